//! The journal. One commit runs at a time, and requests that arrive during a commit share the next one.

use super::{FilesSpec, PAGE};

/// Number of name changes per additional journal block.
const NAMES_PER_BLOCK: u64 = 16;
/// Maximum number of blocks in a commit.
const BLOCKS_MAX: u64 = 256;

/// Stage of a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// No commit is in progress.
    Idle,
    /// The blocks are being written.
    Blocks,
    /// The device is flushed, so that the blocks precede the record.
    BlocksFlush,
    /// The commit record is being written.
    Record,
    /// The device is flushed, so that the record is durable.
    RecordFlush,
}

/// State of the journal.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    pub stage: Stage,
    start: u64,
    len: u64,
    head: u64,
    blocks: u64,
    pub barrier: bool,
    /// Changes since the last commit.
    changes: u64,
    /// Operations that wait for the commit in progress, and for the next one.
    pub waiting: Vec<u32>,
    pub next: Vec<u32>,
}

impl Journal {
    pub fn new(spec: &FilesSpec, capacity: u64) -> Self {
        let len = (spec.journal_mib << 20).clamp(1 << 20, capacity / 8).next_multiple_of(PAGE);
        let start = ((capacity - len) as f64 * spec.journal_at.clamp(0.0, 1.0)) as u64 / PAGE * PAGE;
        Self {
            stage: Stage::Idle,
            start,
            len: len / PAGE * PAGE,
            head: 0,
            blocks: spec.journal_blocks,
            barrier: spec.barrier,
            changes: 0,
            waiting: Vec::new(),
            next: Vec::new(),
        }
    }

    /// Returns the journal's address range.
    pub fn range(&self) -> (u64, u64) {
        (self.start, self.start + self.len)
    }

    pub fn note_change(&mut self) {
        self.changes += 1;
    }

    pub fn has_changes(&self) -> bool {
        self.changes > 0
    }

    /// Returns the address and length of each write of the next commit. Without a journal, these are two blocks in
    /// place.
    pub fn begin(&mut self) -> Vec<(u64, u64)> {
        let changes = std::mem::take(&mut self.changes);
        if self.blocks == 0 {
            let place = |salt: u64| {
                let pages = self.len / PAGE;
                self.start + (self.head / PAGE + salt * pages / 2) % pages * PAGE
            };
            let writes = vec![(place(0), PAGE), (place(1), PAGE)];
            self.head = (self.head + changes.min(1) * PAGE) % self.len;
            return writes;
        }
        let blocks = (self.blocks + changes / NAMES_PER_BLOCK).min(BLOCKS_MAX);
        vec![self.extend(blocks * PAGE)]
    }

    /// Returns the address and length of the commit record. `None` without a journal.
    pub fn record(&mut self) -> Option<(u64, u64)> {
        (self.blocks > 0).then(|| self.extend(PAGE))
    }

    fn extend(&mut self, len: u64) -> (u64, u64) {
        if self.head + len > self.len {
            self.head = 0;
        }
        let at = self.start + self.head;
        self.head += len;
        (at, len)
    }
}
