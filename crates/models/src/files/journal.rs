//! The journal: commits one after another; who comes while one is under way shares the next.

use super::{FilesSpec, PAGE};

/// Names that share one more block of the journal.
const NAMES_PER_BLOCK: u64 = 16;
/// Most blocks of a commit.
const BLOCKS_MAX: u64 = 256;

/// How far a commit has got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// None is under way.
    Idle,
    /// Its blocks are being written.
    Blocks,
    /// The device brings them to the medium before the record may follow.
    BlocksFlush,
    /// Its record is being written.
    Record,
    /// The device brings the record to the medium.
    RecordFlush,
}

/// The journal and who waits for it.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    pub stage: Stage,
    start: u64,
    len: u64,
    head: u64,
    blocks: u64,
    pub barrier: bool,
    /// Changes that no commit holds yet.
    changes: u64,
    /// Who waits for the commit under way, and for the next.
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

    /// Where it lies.
    pub fn range(&self) -> (u64, u64) {
        (self.start, self.start + self.len)
    }

    pub fn note_change(&mut self) {
        self.changes += 1;
    }

    pub fn has_changes(&self) -> bool {
        self.changes > 0
    }

    /// The writes of the next commit's blocks: where, and how long. Without a journal these are two blocks in place.
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

    /// The write of the commit's record; none without a journal.
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
