//! Copying bytes from the datafiles of one layout to those of another.

use super::{DatafileSet, MoveProgress, Mover, ProgressCallback};
use crate::data::{Reads, SharedBounds, SubRequests, Transfer, Writes, unfinished};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::exchange::{exchange, first_error};
use crate::idle::{Pauses, targets_of};
use std::io::{IoSlice, IoSliceMut};
use weft_core::{Access, ByteLen, ByteRange, Extent, Nanos, SplitPolicy, SubRequest};
use weft_env::Env;
use weft_env::mutants::{Mutant, is_seeded};
use weft_wire::{Capability, Errno};

/// Default number of bytes that are read and written at a time.
const PIECE_LEN: ByteLen = ByteLen::from_mib(8);
/// Length of an aligned block that becomes a hole when it contains zeros only.
const HOLE_LEN: usize = 64 << 10;
static ZEROS: [u8; HOLE_LEN] = [0; HOLE_LEN];
/// Interval between fetches of changes: servers stop noting them for a mover that does not ask.
const POLL_INTERVAL: Nanos = Nanos::from_s(5);
/// Default number of bytes after which the copy is synced and recorded.
const CHECKPOINT_INTERVAL: ByteLen = ByteLen::from_mib(1024);

impl<E: Env> Mover<'_, E> {
    /// Copies all changed ranges; false when the callback stopped the move.
    pub(super) async fn round(
        &mut self,
        round: u32,
        size: ByteLen,
        on_progress: &mut ProgressCallback<'_>,
    ) -> Result<bool> {
        let env = self.session.core.env.clone();
        let mut all = Vec::new();
        for range in self.changed.take().iter() {
            all.extend(ByteRange::new(range.start(), range.end().min(size.0)));
            // Bytes copied before the file was truncated must not reappear if it grows again.
            if let Some(behind) = ByteRange::new(range.start().max(size.0), range.end())
                && !is_seeded(Mutant::ForgottenCut)
            {
                self.changed.add(behind);
            }
        }
        let total = ByteLen(all.iter().copied().map(ByteRange::len).sum());
        let (piece, checkpoint_interval) =
            (self.piece(), self.options.checkpoint_interval.unwrap_or(CHECKPOINT_INTERVAL).0);
        let (began, mut done, mut safe) = (env.now(), 0, 0);
        for (at, range) in all.iter().enumerate() {
            let mut start = range.start();
            while start < range.end() {
                let chunk = ByteRange::new(start, range.end().min(start + piece)).expect("not at the end");
                let mut state = MoveProgress { done: ByteLen(done), total, is_waiting: false, round };
                let continues = self.wait_until_idle(&mut state, on_progress).await? && on_progress(state);
                let copied = if continues { self.copy(chunk).await } else { Ok(()) };
                if !continues || copied.is_err() {
                    // The rest remains to be copied.
                    self.changed.add(ByteRange::new(start, range.end()).expect("this chunk at least"));
                    all[at + 1..].iter().for_each(|range| self.changed.add(*range));
                    copied?;
                    if round == 1 && all.len() == 1 {
                        self.checkpoint(start).await?;
                    }
                    return Ok(false);
                }
                start = chunk.end();
                done += chunk.len();
                if env.now() >= self.polled_at.saturating_add(POLL_INTERVAL) {
                    self.poll().await?;
                }
                self.report_progress(ByteLen(total.0 - done)).await?;
                if round == 1 && all.len() == 1 && start - safe >= checkpoint_interval {
                    self.checkpoint(start).await?;
                    safe = start;
                }
                if let Some(rate) = self.options.rate_bytes_per_s.filter(|rate| rate.0 > 0) {
                    let due = (u128::from(done) * 1_000_000_000 / u128::from(rate.0)) as u64;
                    let state = MoveProgress { done: ByteLen(done), total, is_waiting: false, round };
                    self.wait_until(began.saturating_add(Nanos(due)), on_progress, state).await?;
                }
            }
        }
        on_progress(MoveProgress { done: total, total, is_waiting: false, round });
        Ok(true)
    }

    /// Waits until `due`.
    async fn wait_until(
        &mut self,
        due: Nanos,
        on_progress: &mut ProgressCallback<'_>,
        at: MoveProgress,
    ) -> Result<()> {
        let env = self.session.core.env.clone();
        loop {
            let now = env.now();
            if now >= due || !on_progress(at) {
                return Ok(());
            }
            env.sleep(due.saturating_sub(now).min(Nanos::from_ms(100))).await;
            self.keep_alive(at).await?;
        }
    }

    /// Waits until the disks of both layouts are idle, if the move shall; false when the callback stopped it.
    async fn wait_until_idle(
        &mut self,
        at: &mut MoveProgress,
        on_progress: &mut ProgressCallback<'_>,
    ) -> Result<bool> {
        if !self.options.only_while_idle {
            return Ok(true);
        }
        let core = std::sync::Arc::clone(&self.session.core);
        let targets = targets_of([&self.from.layout, &self.to.layout]);
        let mut pauses = Pauses::default();
        loop {
            // The disks would still write the bytes of this move.
            self.sync(self.to.cap).await?;
            at.is_waiting = !core.are_idle(&targets).await;
            if !at.is_waiting || !on_progress(*at) {
                return Ok(!at.is_waiting);
            }
            core.env.sleep(pauses.next_pause()).await;
            self.keep_alive(*at).await?;
        }
    }

    /// Tells the servers that the move continues while it copies nothing, so that they keep noting changes.
    async fn keep_alive(&mut self, at: MoveProgress) -> Result<()> {
        self.report_progress(ByteLen(at.total.0 - at.done.0)).await?;
        if self.session.core.env.now() >= self.polled_at.saturating_add(POLL_INTERVAL) {
            self.poll().await?;
        }
        Ok(())
    }

    /// Makes the copied bytes before `end` durable, so that another mover can resume there.
    async fn checkpoint(&mut self, end: u64) -> Result<()> {
        self.sync(self.to.cap).await?;
        self.renew_capabilities(ByteLen(end)).await
    }

    /// Syncs the new datafiles.
    pub(super) async fn sync(&mut self, cap: Capability) -> Result<()> {
        let before = self.unsynced.begin_sync();
        let boots = match self.session.core.sync_datafiles(self.to.data(), cap, &self.to.layout).await {
            Err(error) if error.is_expired() => {
                self.renew_capabilities(ByteLen::ZERO).await?;
                self.session.core.sync_datafiles(self.to.data(), self.to.cap, &self.to.layout).await?
            }
            boots => boots?,
        };
        self.unsynced.finish_sync(&before, &boots)
    }

    /// Number of bytes that are copied at a time.
    pub(super) fn piece(&self) -> u64 {
        self.options.piece_len.unwrap_or(PIECE_LEN).0.max(1)
    }

    /// Copies the bytes of `range`, at most one [`piece`](Self::piece).
    pub(super) async fn copy(&mut self, range: ByteRange) -> Result<()> {
        let env = self.session.core.env.clone();
        let began = env.now();
        let mut buf = std::mem::take(&mut self.buf);
        buf.resize(range.len() as usize, 0);
        let result = self.copy_through(range, &mut buf).await;
        self.buf = buf;
        self.copy_time = self.copy_time.saturating_add(env.now().saturating_sub(began));
        result
    }

    async fn copy_through(&mut self, range: ByteRange, buf: &mut [u8]) -> Result<()> {
        self.read(true, range.start(), buf).await?;
        for (start, end) in self.runs_to_write(range.start(), buf) {
            let bytes = &buf[start..end];
            let at = range.start() + start as u64;
            // Recorded before the write, because a failed write may have written a part.
            self.written.add(ByteRange::with_len(at, bytes.len() as u64).expect("runs have bytes"));
            self.write(at, bytes).await?;
            self.copied.0 += bytes.len() as u64;
        }
        if self.options.verify {
            let mut again = vec![0xa5; buf.len()];
            self.read(false, range.start(), &mut again).await?;
            if again != buf {
                const WHY: &str =
                    "the copied bytes read back differently: see 'weft status' and the servers' logs";
                return Err(Error::misuse(Errno::EIO, WHY));
            }
        }
        Ok(())
    }

    /// Returns the ranges of `buf`, which starts at byte `at` of the file, that must be written: all but blocks of
    /// zeros where the new datafiles have nothing yet.
    fn runs_to_write(&self, at: u64, buf: &[u8]) -> Vec<(usize, usize)> {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        let mut start = 0;
        while start < buf.len() {
            // Blocks are aligned to their length in the file.
            let end = (start + HOLE_LEN - (at + start as u64) as usize % HOLE_LEN).min(buf.len());
            let here = ByteRange::new(at + start as u64, at + end as u64).expect("a block has bytes");
            // Compared as a whole: byte by byte would take half of the time of copying a sparse file.
            let is_hole = buf[start..end] == ZEROS[..end - start] && !self.written.ranges().overlaps(here);
            match runs.last_mut() {
                _ if is_hole => {}
                Some(last) if last.1 == start => last.1 = end,
                _ => runs.push((start, end)),
            }
            start = end;
        }
        runs
    }

    fn datafiles(&self, from: bool) -> &DatafileSet {
        if from { &self.from } else { &self.to }
    }

    fn transfers(&self, from: bool, at: u64, len: usize) -> Vec<Transfer> {
        let mut subs = SubRequests::take();
        let extent = Extent::new(at, len as u64);
        self.datafiles(from).layout.split_into(
            extent,
            Access::Sequential,
            SplitPolicy::default(),
            &mut subs.0,
        );
        let transfer = |sub: &SubRequest| {
            let mut sub = *sub;
            // Not a program's request: servers leave it out of their samples.
            sub.siblings = 0;
            Transfer::new(sub)
        };
        subs.0.iter().map(transfer).collect()
    }

    /// Renews the capabilities once after an expired one, so that the exchange can be repeated.
    async fn renew_once(&mut self, result: Result<()>, renewed: &mut bool) -> Result<()> {
        match result {
            Err(error) if error.is_expired() && !*renewed => {
                *renewed = true;
                self.renew_capabilities(ByteLen::ZERO).await
            }
            result => result,
        }
    }

    /// Reads from the old or the new datafiles; missing bytes read as zeros.
    async fn read(&mut self, from: bool, at: u64, buf: &mut [u8]) -> Result<()> {
        buf.fill(0);
        let mut transfers = self.transfers(from, at, buf.len());
        let (mut renewed, buffer_len) = (false, buf.len());
        loop {
            let core = &*self.session.core;
            let (open, mut items) = unfinished(core, &transfers)?;
            if open.is_empty() {
                return Ok(());
            }
            let mut reads = Reads {
                shared_bounds: SharedBounds::of(core),
                file: self.datafiles(from).data(),
                cap: self.datafiles(from).cap,
                call: 0,
                transfers: &mut transfers,
                items: &open,
                bufs: &mut [IoSliceMut::new(buf)],
                buffer_len,
                area_used: 0,
            };
            exchange(core, &mut items, &mut reads, Deadline::of_request(core)).await;
            let result = first_error(items);
            self.renew_once(result, &mut renewed).await?;
        }
    }

    /// Writes to the new datafiles.
    async fn write(&mut self, at: u64, buf: &[u8]) -> Result<()> {
        let mut transfers = self.transfers(false, at, buf.len());
        let mut renewed = false;
        loop {
            let core = &*self.session.core;
            let (open, mut items) = unfinished(core, &transfers)?;
            if open.is_empty() {
                return Ok(());
            }
            let mut writes = Writes {
                shared_bounds: SharedBounds::of(core),
                file: self.to.data(),
                cap: self.to.cap,
                call: 0,
                unsynced: &self.unsynced,
                transfers: &mut transfers,
                items: &open,
                bufs: &[IoSlice::new(buf)],
                buffer_len: buf.len(),
                shared: 0,
                area_used: 0,
            };
            exchange(core, &mut items, &mut writes, Deadline::of_request(core)).await;
            let result = first_error(items);
            self.renew_once(result, &mut renewed).await?;
        }
    }
}
