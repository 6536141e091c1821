//! A device below a local file system: requests for files come in at the top, their ends come out.

mod read;
mod sync;
mod write;

use crate::block::{BlockLayer, BlockSpec};
use crate::drive::{Drive, Verb};
use crate::files::{FilesSpec, Journal, PAGE, PageCache, Piece, Ranges, Space, Stage};
use crate::time::{earliest, from_us};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use weft_core::Nanos;
use weft_env::device::{DeviceAction, DeviceCounters, DeviceModel, DeviceRequest, Ticket};

/// Requests of write-back that are under way at a time.
const WRITE_BACK_MAX: usize = 128;

/// What an operation inside the model is for.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A read, a direct write: it ends when its pieces have.
    Plain,
    /// A buffered write that waits for pages to be read or for room in memory.
    Buffered { file: u64, start: u64, end: u64 },
    /// Writes that came before, a file's bytes on their way to the medium, then its names or the device's memory.
    Sync { file: u64, stage: SyncStage },
    /// Names on their way to the medium.
    Names,
    /// The journal's own writes.
    Commit,
    /// What memory holds on its way to the device.
    WriteBack { file: u64, start: u64, end: u64 },
    /// Reading ahead.
    Ahead { file: u64, start: u64, end: u64 },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SyncStage {
    Writes,
    Bytes,
    Flush,
}

#[derive(Debug)]
struct Op {
    kind: Kind,
    ticket: Option<Ticket>,
    /// Pieces and operations that it waits for.
    left: u32,
    /// Time of the processor after its last piece.
    cost: u64,
    /// Operations that wait for this one.
    waiters: Vec<u32>,
}

#[derive(Clone, Debug, Default)]
struct FileState {
    len: u64,
    /// Its room or length has changed since the last sync.
    is_changed: bool,
    dirty: Ranges,
    /// What has been written or read so far: of a page that was not, a write need not learn anything.
    mapped: Ranges,
    /// Buffered writes that are not in memory yet, and those of them that wait for their turn: the first one has it.
    coming: Vec<u32>,
    turns: VecDeque<u32>,
    /// What is on its way to the device: it is in memory until it is there.
    leaving: Ranges,
    /// Operations of write-back and of reading ahead that are under way.
    writing: Vec<u32>,
    reading: Vec<(u64, u64, u32)>,
    /// Where a read in order would go on, how much is read ahead, and up to where that has got.
    next_read: u64,
    window: u64,
    ahead_to: u64,
}

impl FileState {
    /// Whether nothing of it is under way.
    fn is_at_rest(&self) -> bool {
        self.coming.is_empty() && self.writing.is_empty() && self.reading.is_empty() && self.dirty.is_empty()
    }
}

/// A device below a local file system.
pub struct Disk {
    block: BlockLayer,
    space: Space,
    journal: Journal,
    cache: PageCache,
    files: BTreeMap<u64, FileState>,
    /// Nothing lay on it before: what was not written is a hole.
    was_empty: bool,
    ops: Vec<Op>,
    free_ops: Vec<u32>,
    dirty: u64,
    writing: u64,
    writing_count: usize,
    dirty_limit: u64,
    dirty_background: u64,
    write_back_after: u64,
    dirty_since: Option<u64>,
    /// Write-back goes on until so little is left.
    goal: Option<u64>,
    /// Where write-back is: file and offset.
    cursor: (u64, u64),
    throttled: VecDeque<u32>,
    read_ahead: u64,
    copy_mb_s: f64,
    call: u64,
    name: u64,
    ends: BinaryHeap<Reverse<(u64, u64, Ticket)>>,
    order: u64,
    time: u64,
    pieces: Vec<Piece>,
    gaps: Vec<(u64, u64)>,
    done: Vec<u32>,
}

impl Disk {
    pub(crate) fn new(files: &FilesSpec, block: &BlockSpec, drive: Box<dyn Drive>) -> Self {
        let block = BlockLayer::new(block, drive);
        let capacity = block.capacity();
        let journal = Journal::new(files, capacity);
        Self {
            space: Space::new(capacity, journal.range(), files.stretch_mib << 20),
            journal,
            block,
            cache: PageCache::new(files.page_cache_mib << 20),
            files: BTreeMap::new(),
            was_empty: false,
            ops: Vec::new(),
            free_ops: Vec::new(),
            dirty: 0,
            writing: 0,
            writing_count: 0,
            dirty_limit: files.dirty_limit_mib << 20,
            dirty_background: files.dirty_background_mib << 20,
            write_back_after: from_us(files.write_back_ms * 1e3),
            dirty_since: None,
            goal: None,
            cursor: (0, 0),
            throttled: VecDeque::new(),
            read_ahead: if files.page_cache_mib > 0 { files.read_ahead_kib * 1024 } else { 0 },
            copy_mb_s: files.copy_mb_s,
            call: from_us(files.call_us),
            name: from_us(files.name_us),
            ends: BinaryHeap::new(),
            order: 0,
            time: 0,
            pieces: Vec::new(),
            gaps: Vec::new(),
            done: Vec::new(),
        }
    }

    /// The room of the device, in bytes.
    pub fn capacity(&self) -> u64 {
        self.block.capacity()
    }

    fn start_op(&mut self, kind: Kind, ticket: Option<Ticket>, cost: u64) -> u32 {
        let op = Op { kind, ticket, left: 0, cost, waiters: Vec::new() };
        match self.free_ops.pop() {
            Some(id) => {
                self.ops[id as usize] = op;
                id
            }
            None => {
                self.ops.push(op);
                self.ops.len() as u32 - 1
            }
        }
    }

    fn end_at(&mut self, at: u64, ticket: Ticket) {
        self.order += 1;
        self.ends.push(Reverse((at, self.order, ticket)));
    }

    /// Adds the pieces of a file's range to the block layer for an operation; whether room had to be made.
    fn issue(&mut self, now: u64, op: u32, verb: Verb, file: u64, start: u64, end: u64) -> bool {
        let mut pieces = std::mem::take(&mut self.pieces);
        pieces.clear();
        let made = self.space.pieces(file, start, end, self.block.request_max(), &mut pieces);
        self.ops[op as usize].left += pieces.len() as u32;
        for piece in &pieces {
            self.block.add(now, op, verb, piece.at, piece.len);
        }
        self.pieces = pieces;
        made
    }

    fn release(&mut self, op: u32) {
        self.ops[op as usize].waiters = Vec::new();
        self.free_ops.push(op);
    }

    /// The caller of an operation goes on after the processor's share.
    fn finish(&mut self, now: u64, op: u32) {
        let Op { ticket, cost, .. } = self.ops[op as usize];
        if let Some(ticket) = ticket {
            self.end_at(now + cost, ticket);
        }
        self.release(op);
    }

    /// One of those that an operation waits for has ended.
    fn piece_done(&mut self, now: u64, op: u32) {
        self.ops[op as usize].left -= 1;
        self.check(now, op);
    }

    /// Moves an operation on that waits for nothing more.
    fn check(&mut self, now: u64, op: u32) {
        if self.ops[op as usize].left > 0 {
            return;
        }
        match self.ops[op as usize].kind {
            Kind::Plain | Kind::Names => self.finish(now, op),
            Kind::Buffered { .. } => self.admit(now, op),
            Kind::Commit => self.commit_next(now, op),
            Kind::Sync { file, stage: SyncStage::Writes } => self.sync_bytes(now, op, file),
            Kind::Sync { file, stage: SyncStage::Bytes } => {
                self.ops[op as usize].kind = Kind::Sync { file, stage: SyncStage::Flush };
                let is_changed =
                    self.files.get_mut(&file).is_some_and(|state| std::mem::take(&mut state.is_changed));
                if is_changed {
                    self.journal.note_change();
                    self.join_commit(now, op);
                } else if self.journal.barrier {
                    self.issue_flush(op);
                } else {
                    self.finish(now, op);
                }
            }
            Kind::Sync { stage: SyncStage::Flush, .. } => self.finish(now, op),
            Kind::WriteBack { file, start, end } => {
                self.writing -= end - start;
                self.writing_count -= 1;
                if let Some(state) = self.files.get_mut(&file) {
                    state.writing.retain(|&other| other != op);
                    state.leaving.remove(start, end);
                    // What was written again meanwhile may be on its way again.
                    for other in &state.writing {
                        if let Kind::WriteBack { start: from, end: to, .. } = self.ops[*other as usize].kind
                            && from < end
                            && start < to
                        {
                            state.leaving.insert(from, to);
                        }
                    }
                }
                self.wake_waiters(now, op);
                self.release(op);
                self.write_back(now);
                self.let_in(now);
            }
            Kind::Ahead { file, start, end } => {
                self.cache.insert(file, start, end);
                if let Some(state) = self.files.get_mut(&file) {
                    state.reading.retain(|&(_, _, other)| other != op);
                }
                self.wake_waiters(now, op);
                self.release(op);
            }
        }
    }

    fn wake_waiters(&mut self, now: u64, op: u32) {
        for waiter in std::mem::take(&mut self.ops[op as usize].waiters) {
            self.piece_done(now, waiter);
        }
    }

    fn cut(&mut self, file: u64, len: u64) {
        if let Some(state) = self.files.get_mut(&file) {
            self.dirty -= state.dirty.remove(len.next_multiple_of(PAGE), u64::MAX);
            state.leaving.remove(len.next_multiple_of(PAGE), u64::MAX);
            state.mapped.remove(len.next_multiple_of(PAGE), u64::MAX);
            state.len = state.len.min(len);
            state.is_changed = true;
            state.next_read = state.next_read.min(len);
            state.ahead_to = state.ahead_to.min(len);
            if len == 0 && state.is_at_rest() {
                // Removed, as far as can be told: what is not kept needs no memory.
                self.files.remove(&file);
            }
        }
        self.cache.cut(file, len);
        self.space.cut(file, len);
    }

    /// Whole pages of a range become holes that keep their place.
    fn discard(&mut self, file: u64, start: u64, end: u64) {
        let (start, end) = (start.next_multiple_of(PAGE), end / PAGE * PAGE);
        if let Some(state) = self.files.get_mut(&file)
            && start < end
        {
            self.dirty -= state.dirty.remove(start, end);
            state.leaving.remove(start, end);
            state.mapped.remove(start, end);
        }
    }

    fn next_internal(&self) -> Option<u64> {
        let due = self.dirty_since.filter(|_| self.goal.is_none()).map(|since| since + self.write_back_after);
        earliest(self.block.next_event(), due)
    }

    /// Lets everything happen up to `now`.
    fn step_to(&mut self, now: u64) {
        while let Some(at) = self.next_internal().filter(|&at| at <= now) {
            let at = at.max(self.time);
            self.time = at;
            if self.goal.is_none()
                && self.dirty_since.is_some_and(|since| since + self.write_back_after <= at)
            {
                self.goal = Some(0);
                self.write_back(at);
            }
            let mut done = std::mem::take(&mut self.done);
            self.block.advance(at, &mut done);
            for op in done.drain(..) {
                self.piece_done(at, op);
            }
            self.done = done;
            self.block.dispatch(at);
        }
        self.time = self.time.max(now);
    }
}

/// A request's range in whole blocks.
fn around(request: &DeviceRequest, block: u64) -> (u64, u64) {
    let end = request.offset.0 + request.len.0;
    (request.offset.0 / block * block, end.next_multiple_of(block))
}

impl DeviceModel for Disk {
    fn submit(&mut self, now: Nanos, ticket: Ticket, request: &DeviceRequest) {
        let now = now.0.max(self.time);
        self.step_to(now);
        let is_empty = request.len.0 == 0;
        match request.action {
            DeviceAction::Read | DeviceAction::Write if is_empty => self.end_at(now + self.call, ticket),
            DeviceAction::Read => self.read(now, ticket, request),
            DeviceAction::Write => self.write(now, ticket, request),
            DeviceAction::Sync => self.sync(now, ticket, request.file),
            DeviceAction::SyncNames => {
                let op = self.start_op(Kind::Names, Some(ticket), self.call);
                if self.journal.has_changes() {
                    self.join_commit(now, op);
                } else if self.journal.stage != Stage::Idle {
                    self.ops[op as usize].left += 1;
                    self.journal.waiting.push(op);
                } else {
                    self.check(now, op);
                }
            }
            DeviceAction::Name => {
                self.journal.note_change();
                self.end_at(now + self.name, ticket);
            }
            DeviceAction::Cut => {
                self.cut(request.file, request.offset.0);
                self.journal.note_change();
                self.end_at(now + self.name, ticket);
            }
            DeviceAction::Discard => {
                self.discard(request.file, request.offset.0, request.offset.0 + request.len.0);
                self.journal.note_change();
                self.end_at(now + self.name, ticket);
            }
        }
        self.block.dispatch(now);
    }

    fn next_event(&self) -> Option<Nanos> {
        let end = self.ends.peek().map(|Reverse((at, ..))| *at);
        earliest(end, self.next_internal()).map(Nanos)
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Ticket>) {
        self.step_to(now.0);
        while let Some(&Reverse((at, _, ticket))) = self.ends.peek()
            && at <= now.0
        {
            self.ends.pop();
            done.push(ticket);
        }
    }

    fn starts_empty(&mut self) {
        self.was_empty = true;
    }

    fn forget(&mut self) {
        self.cache.clear();
        for (number, file) in &mut self.files {
            for (start, end) in file.dirty.iter() {
                self.cache.insert(*number, start, end);
            }
            (file.next_read, file.window, file.ahead_to) = (0, 0, 0);
        }
    }

    fn counters(&self) -> DeviceCounters {
        self.block.counters(self.time)
    }
}
