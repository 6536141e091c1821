//! Writes and write-back.

use super::{Disk, FileState, Kind, WRITE_BACK_MAX, around};
use crate::drive::Verb;
use crate::files::{PAGE, Ranges};
use crate::time::transfer;
use weft_env::device::{DeviceRequest, Ticket};

/// Returns the bytes of a range that lie in the pages of `written` bytes but were not written themselves. A page without
/// written bytes does not count.
fn page_padding(written: &Ranges, start: u64, end: u64) -> u64 {
    let mut parts = Vec::new();
    written.parts(start, end, &mut parts);
    let (mut padding, mut counted_to) = (0, start);
    for (from, to) in parts {
        // Parts of one page follow each other.
        padding += from - (from / PAGE * PAGE).max(counted_to).min(from);
        counted_to = to;
        let page_end = to.next_multiple_of(PAGE);
        let next = written.next(to, 1).map_or(u64::MAX, |(next, _)| next);
        if next >= page_end {
            padding += page_end - to;
            counted_to = page_end;
        }
    }
    padding
}

impl Disk {
    pub(super) fn write(&mut self, now: u64, ticket: Ticket, request: &DeviceRequest) {
        let (file, len) = (request.file, request.len.0);
        let end = request.offset.0 + len;
        if request.is_direct {
            let (from, to) = around(request, 512);
            let op = self.start_op(Kind::Pieces, Some(ticket), self.call);
            self.write_reasons.requested_bytes += len;
            self.write_reasons.padding_bytes += to - from - len;
            let made = self.issue(now, op, Verb::Write, file, from, to);
            self.note_growth(file, end, made);
            self.note_mapped(file, from, to);
            return self.check(now, op);
        }
        let cost = self.call + transfer(len, self.copy_mb_s);
        let kind = Kind::Buffered { file, start: request.offset.0, end };
        let op = self.start_op(kind, Some(ticket), cost);
        let state = self.files.entry(file).or_default();
        state.pending_writes.push(op);
        state.write_queue.push_back(op);
        if state.write_queue.len() == 1 {
            self.begin_write(now, op);
        }
    }

    /// Starts a buffered write whose turn has come. Pages that it covers in part must be in memory, unless they are
    /// holes.
    fn begin_write(&mut self, now: u64, op: u32) {
        let Kind::Buffered { file, start, end } = self.ops[op as usize].kind else {
            unreachable!("only buffered writes take turns")
        };
        let (from, to) = (start / PAGE * PAGE, end.next_multiple_of(PAGE));
        let first = (start > from).then_some(from);
        let last = (end < to && (to - PAGE > from || first.is_none())).then_some(to - PAGE);
        for page in first.into_iter().chain(last) {
            let state = &self.files[&file];
            let is_held =
                state.dirty.has(page) || state.in_write_back.has(page) || self.cache.has(file, page);
            if is_held || !state.mapped.has(page) {
                continue;
            }
            let mut gaps = vec![(page, page + PAGE)];
            self.wait_for_read_ahead(op, file, &mut gaps);
            if !gaps.is_empty() {
                self.read_reasons.for_write_bytes += PAGE;
                self.issue(now, op, Verb::Read, file, page, page + PAGE);
            }
        }
        if self.ops[op as usize].left == 0 {
            self.admit(now, op);
        }
    }

    pub(super) fn note_growth(&mut self, file: u64, end: u64, made: bool) {
        let state = self.files.entry(file).or_default();
        if end > state.len || made {
            state.is_changed = true;
        }
        state.len = state.len.max(end);
    }

    /// Marks a range as present on the device, or soon to be.
    fn note_mapped(&mut self, file: u64, start: u64, end: u64) {
        let state = self.files.entry(file).or_default();
        state.mapped.insert(start / PAGE * PAGE, end.next_multiple_of(PAGE));
    }

    /// Admits a buffered write into memory, or queues it if there is no space.
    pub(super) fn admit(&mut self, now: u64, op: u32) {
        let Kind::Buffered { file, start, end } = self.ops[op as usize].kind else {
            unreachable!("only buffered writes wait for memory")
        };
        let held = self.dirty + self.writing;
        if held > 0 && held + (end - start) > self.dirty_limit {
            self.throttled.push_back(op);
            self.goal = Some(self.goal.map_or(self.dirty_background, |goal| goal.min(self.dirty_background)));
            return self.write_back(now);
        }
        let (from, to) = (start / PAGE * PAGE, end.next_multiple_of(PAGE));
        self.note_growth(file, end, false);
        self.note_mapped(file, from, to);
        let state = self.files.get_mut(&file).expect("noted just now");
        state.pending_writes.retain(|&other| other != op);
        let had_turn = state.write_queue.pop_front();
        debug_assert_eq!(had_turn, Some(op), "writes to a file take turns");
        let next = state.write_queue.front().copied();
        self.dirty += state.dirty.insert(from, to);
        self.write_reasons.requested_bytes += end - start;
        self.write_reasons.overwritten_bytes += end - start - state.written.insert(start, end);
        self.cache.insert(file, from, to);
        if start > from {
            self.cache.keep(file, from, from + PAGE);
        }
        if end < to {
            self.cache.keep(file, to - PAGE, to);
        }
        self.dirty_since.get_or_insert(now);
        self.wake_waiters(now, op);
        self.finish(now, op);
        if self.dirty + self.writing > self.dirty_background {
            self.goal = Some(self.goal.map_or(self.dirty_background, |goal| goal.min(self.dirty_background)));
            self.write_back(now);
        }
        if let Some(next) = next {
            self.begin_write(now, next);
        }
    }

    /// Sends dirty pages to the device until the goal or the maximum number of requests is reached.
    pub(super) fn write_back(&mut self, now: u64) {
        let Some(goal) = self.goal else { return };
        while self.writing_count < WRITE_BACK_MAX && self.dirty > goal {
            let (file, offset) = self.cursor;
            let most = self.block.request_max();
            let here = self.files.get(&file).and_then(|state| state.dirty.next(offset, most));
            let Some((start, end)) = here else {
                let dirty = |(file, state): (&u64, &FileState)| (!state.dirty.is_empty()).then_some(*file);
                let next = self.files.range(file + 1..).find_map(dirty);
                let Some(next) = next.or_else(|| self.files.iter().find_map(dirty)) else { break };
                self.cursor = (next, 0);
                continue;
            };
            self.cursor = (file, end);
            self.send_dirty(now, file, start, end);
        }
        if self.dirty <= goal {
            self.goal = None;
            self.dirty_since = (self.dirty > 0).then_some(now);
        }
    }

    pub(super) fn send_dirty(&mut self, now: u64, file: u64, start: u64, end: u64) -> u32 {
        let op = self.start_op(Kind::WriteBack { file, start, end }, None, 0);
        let state = self.files.get_mut(&file).expect("a file with bytes in memory");
        self.dirty -= state.dirty.remove(start, end);
        self.write_reasons.padding_bytes += page_padding(&state.written, start, end);
        state.written.remove(start, end);
        state.writing.push(op);
        state.in_write_back.insert(start, end);
        self.writing += end - start;
        self.writing_count += 1;
        if self.issue(now, op, Verb::Write, file, start, end) {
            self.files.get_mut(&file).expect("a file with bytes in memory").is_changed = true;
        }
        op
    }

    /// Admits waiting writers in order of arrival, as far as memory allows.
    pub(super) fn admit_waiting(&mut self, now: u64) {
        while let Some(&op) = self.throttled.front() {
            let Kind::Buffered { start, end, .. } = self.ops[op as usize].kind else {
                unreachable!("only buffered writes wait for memory")
            };
            let held = self.dirty + self.writing;
            if held > 0 && held + (end - start) > self.dirty_limit {
                return;
            }
            self.throttled.pop_front();
            self.admit(now, op);
        }
    }
}
