//! Syncs and journal commits.

use super::{Disk, Kind, SyncStage};
use crate::drive::Verb;
use crate::files::Stage;
use weft_env::device::Ticket;

impl Disk {
    pub(super) fn sync(&mut self, now: u64, ticket: Ticket, file: u64) {
        let op = self.start_op(Kind::Sync { file, stage: SyncStage::Writes }, Some(ticket), self.call);
        if let Some(state) = self.files.get(&file) {
            for &other in &state.pending_writes {
                self.ops[other as usize].waiters.push(op);
                self.ops[op as usize].left += 1;
            }
        }
        self.check(now, op);
    }

    /// Writes back the dirty pages of a file and waits for them.
    pub(super) fn sync_bytes(&mut self, now: u64, op: u32, file: u64) {
        self.ops[op as usize].kind = Kind::Sync { file, stage: SyncStage::Bytes };
        let most = self.block.request_max();
        while let Some((start, end)) = self.files.get(&file).and_then(|state| state.dirty.next(0, most)) {
            self.send_dirty(now, file, start, end);
        }
        if let Some(state) = self.files.get(&file) {
            for &other in &state.writing {
                self.ops[other as usize].waiters.push(op);
                self.ops[op as usize].left += 1;
            }
        }
        self.check(now, op);
    }

    /// Makes an operation wait for the next commit.
    pub(super) fn join_commit(&mut self, now: u64, op: u32) {
        self.ops[op as usize].left += 1;
        self.journal.next.push(op);
        self.start_commit(now);
    }

    /// Starts the next commit if none is in progress and an operation waits for it.
    pub(super) fn start_commit(&mut self, now: u64) {
        if self.journal.stage != Stage::Idle || self.journal.next.is_empty() {
            return;
        }
        self.journal.waiting = std::mem::take(&mut self.journal.next);
        self.journal.stage = Stage::Blocks;
        let op = self.start_op(Kind::Commit, None, 0);
        for (at, len) in self.journal.begin() {
            self.write_reasons.journal_bytes += len;
            self.issue_raw(now, op, at, len);
        }
    }

    pub(super) fn issue_raw(&mut self, now: u64, op: u32, mut at: u64, len: u64) {
        let end = at + len;
        while at < end {
            let count = (end - at).min(self.block.request_max());
            self.ops[op as usize].left += 1;
            self.block.add(now, op, Verb::Write, at, count);
            at += count;
        }
    }

    pub(super) fn issue_flush(&mut self, op: u32) {
        self.ops[op as usize].left += 1;
        self.block.add_flush(op);
    }

    /// Moves the commit to its next stage.
    pub(super) fn advance_commit(&mut self, now: u64, op: u32) {
        loop {
            let barrier = self.journal.barrier;
            self.journal.stage = match self.journal.stage {
                Stage::Blocks => Stage::BlocksFlush,
                Stage::BlocksFlush => Stage::Record,
                Stage::Record => Stage::RecordFlush,
                Stage::RecordFlush | Stage::Idle => {
                    self.journal.stage = Stage::Idle;
                    self.release(op);
                    for waiter in std::mem::take(&mut self.journal.waiting) {
                        self.piece_done(now, waiter);
                    }
                    return self.start_commit(now);
                }
            };
            match self.journal.stage {
                Stage::BlocksFlush | Stage::RecordFlush if barrier => return self.issue_flush(op),
                Stage::Record => {
                    if let Some((at, len)) = self.journal.record() {
                        self.write_reasons.journal_bytes += len;
                        return self.issue_raw(now, op, at, len);
                    }
                }
                _ => {}
            }
        }
    }
}
