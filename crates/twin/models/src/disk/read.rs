//! Reads and read-ahead.

use super::{Disk, Kind, around};
use crate::drive::Verb;
use crate::files::PAGE;
use crate::time::transfer;
use weft_env::device::{DeviceRequest, Ticket};

/// Returns the number of bytes of separate ranges.
fn total(ranges: &[(u64, u64)]) -> u64 {
    ranges.iter().map(|(start, end)| end - start).sum()
}

impl Disk {
    pub(super) fn read(&mut self, now: u64, ticket: Ticket, request: &DeviceRequest) {
        let (file, len) = (request.file, request.len.0);
        let cost = self.call + if request.is_direct { 0 } else { transfer(len, self.copy_mb_s) };
        let (start, end) = around(request, if request.is_direct { 512 } else { PAGE });
        let op = self.start_op(Kind::Pieces, Some(ticket), cost);
        let mut gaps = std::mem::take(&mut self.gaps);
        gaps.clear();
        self.read_reasons.requested_bytes += len;
        self.read_reasons.padding_bytes += end - start - len;
        let was_empty = self.was_empty;
        let state = self.files.entry(file).or_default();
        if was_empty {
            // Holes read as zeros without access to the device.
            state.mapped.parts(start, end, &mut gaps);
        } else {
            state.len = state.len.max(end);
            state.mapped.insert(start / PAGE * PAGE, end.next_multiple_of(PAGE));
            gaps.push((start, end));
        }
        let present = total(&gaps);
        self.read_reasons.hole_bytes += end - start - present;
        if !request.is_direct {
            let lies = std::mem::take(&mut gaps);
            lies.into_iter().for_each(|(from, to)| self.cache.gaps(file, from, to, &mut gaps));
            // Pages that have not reached the device are in memory.
            for held in [&state.dirty, &state.in_write_back] {
                if !held.is_empty() {
                    let cold = std::mem::take(&mut gaps);
                    cold.into_iter().for_each(|(from, to)| held.gaps(from, to, &mut gaps));
                }
            }
            self.wait_for_read_ahead(op, file, &mut gaps);
        }
        self.read_reasons.cached_bytes += present - total(&gaps);
        for &(from, to) in &gaps {
            self.issue(now, op, Verb::Read, file, from, to);
            if !request.is_direct {
                self.cache.insert(file, from, to);
            }
        }
        self.gaps = gaps;
        if !request.is_direct && self.read_ahead > 0 {
            self.extend_read_ahead(now, file, start, end);
        }
        self.check(now, op);
    }

    /// Removes ranges from `gaps` that read-ahead is fetching, and makes the operation wait for it.
    pub(super) fn wait_for_read_ahead(&mut self, op: u32, file: u64, gaps: &mut Vec<(u64, u64)>) {
        let Some(state) = self.files.get(&file).filter(|state| !state.reading.is_empty()) else { return };
        for &(from, to, ahead) in &state.reading {
            let mut rest = Vec::with_capacity(gaps.len());
            let mut is_met = false;
            for &(start, end) in gaps.iter() {
                if end <= from || to <= start {
                    rest.push((start, end));
                    continue;
                }
                is_met = true;
                if start < from {
                    rest.push((start, from));
                }
                if to < end {
                    rest.push((to, end));
                }
            }
            if is_met {
                self.ops[ahead as usize].waiters.push(op);
                self.ops[op as usize].left += 1;
            }
            *gaps = rest;
        }
    }

    /// Reads ahead of a sequential reader. The window starts at four requests and doubles up to its maximum. The next
    /// window is requested when the reader enters the second half of the last one.
    pub(super) fn extend_read_ahead(&mut self, now: u64, file: u64, start: u64, end: u64) {
        let most = self.read_ahead;
        let state = self.files.get_mut(&file).expect("a file that is read");
        let is_onward = start <= state.next_read && end > state.next_read;
        state.next_read = end;
        if !is_onward {
            (state.window, state.read_ahead_end) = (0, end);
            return;
        }
        if state.window > 0 && end + state.window / 2 < state.read_ahead_end {
            return;
        }
        state.window = if state.window == 0 { 4 * (end - start) } else { 2 * state.window }.min(most);
        let from = state.read_ahead_end.max(end);
        let to = (end + state.window).min(state.len.max(end)).next_multiple_of(PAGE);
        if from >= to {
            return;
        }
        state.read_ahead_end = to;
        let mut gaps = Vec::new();
        self.cache.gaps(file, from, to, &mut gaps);
        self.read_reasons.ahead_bytes += total(&gaps);
        for (from, to) in gaps {
            let op = self.start_op(Kind::ReadAhead { file, start: from, end: to }, None, 0);
            self.files.get_mut(&file).expect("a file that is read").reading.push((from, to, op));
            self.issue(now, op, Verb::Read, file, from, to);
        }
    }
}
