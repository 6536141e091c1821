//! The disk model: a device below a local file system.
//!
//! [`Disk`] receives requests on files, as a server makes them, and reports when each one ends. A request passes these
//! layers:
//!
//! ```text
//!  read, write, sync of a file
//!        │
//!  disk          page cache, write-back, read-ahead, journal commits     FilesSpec
//!        │       whole pages, or 512-byte sectors for direct I/O
//!  files::space  file range ──> addresses on the device                 FilesSpec
//!        │       pieces of at most `request_kib`
//!  block         queue, merging, elevator                               BlockSpec
//!        │       commands, at most `device_depth` at once
//!  hdd or ssd    seek, rotation, transfer; or channels, dies, garbage collection
//! ```
//!
//! Each request is an operation that counts the pieces and the other operations it waits for. When the count reaches
//! zero, the operation moves on:
//!
//! | Operation | Steps |
//! | --- | --- |
//! | Direct read or write | pieces on the device, then end |
//! | Buffered read | pages missing from memory, then end; starts read-ahead of sequential reads |
//! | Buffered write | waits for earlier writes to the file, reads partly covered pages, waits for memory, then ends |
//! | Sync | waits for earlier buffered writes, writes dirty pages back, then commits the journal or flushes |
//! | Commit | journal blocks, flush, commit record, flush; later syncs share the next commit |
//! | Write-back | starts at a dirty limit or an age, and frees memory for waiting writers |
//!
//! The model stores no data. It does not simulate contents of directories: [`DeviceAction::Name`] only marks that the
//! next commit has something to write.

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
use weft_env::device::{
    DeviceAction, DeviceCounters, DeviceModel, DeviceRequest, ReadReasons, Ticket, WriteReasons,
};

/// Maximum number of write-back requests in progress.
const WRITE_BACK_MAX: usize = 128;

/// Purpose of an operation inside the model.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A read or a direct write. It ends with its pieces.
    Pieces,
    /// A buffered write that waits for pages or for memory.
    Buffered { file: u64, start: u64, end: u64 },
    /// Waits for earlier writes, then for the file's bytes, then for the journal or the device's cache.
    Sync { file: u64, stage: SyncStage },
    /// Waits for a commit of names.
    Names,
    /// Writes of the journal.
    Commit,
    /// Writes dirty pages to the device.
    WriteBack { file: u64, start: u64, end: u64 },
    /// Read-ahead.
    ReadAhead { file: u64, start: u64, end: u64 },
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
    /// Number of pieces and operations that it waits for.
    left: u32,
    /// Processor time in nanoseconds after the last piece.
    cost: u64,
    /// Operations that wait for this one.
    waiters: Vec<u32>,
}

#[derive(Clone, Debug, Default)]
struct FileState {
    len: u64,
    /// Whether its space or length has changed since the last sync.
    is_changed: bool,
    /// Pages that differ from those on the device.
    dirty: Ranges,
    /// Bytes of those pages that programs wrote; the rest of a page is padding.
    written: Ranges,
    /// Pages that were read or written. A partial write to any other page need not read it.
    mapped: Ranges,
    /// Buffered writes that are not in memory yet, and the queue in which they take effect.
    pending_writes: Vec<u32>,
    write_queue: VecDeque<u32>,
    /// Pages on their way to the device. They stay in memory until they have arrived.
    in_write_back: Ranges,
    /// Write-back and read-ahead operations in progress.
    writing: Vec<u32>,
    reading: Vec<(u64, u64, u32)>,
    /// Next offset of a sequential read, read-ahead window, and end of the pages read ahead.
    next_read: u64,
    window: u64,
    read_ahead_end: u64,
}

impl FileState {
    /// Whether no operation on it is in progress.
    fn is_idle(&self) -> bool {
        self.pending_writes.is_empty()
            && self.writing.is_empty()
            && self.reading.is_empty()
            && self.dirty.is_empty()
    }
}

/// A device below a local file system. Layers: see the documentation of the module `disk`.
pub struct Disk {
    block: BlockLayer,
    space: Space,
    journal: Journal,
    cache: PageCache,
    files: BTreeMap<u64, FileState>,
    /// Whether the disk was empty at the start. Ranges that were not written then are holes.
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
    /// Dirty bytes at which write-back in progress stops.
    goal: Option<u64>,
    /// Position of write-back: file and offset.
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
    read_reasons: ReadReasons,
    write_reasons: WriteReasons,
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
            read_reasons: ReadReasons::default(),
            write_reasons: WriteReasons::default(),
        }
    }

    /// Returns the capacity of the device in bytes.
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

    /// Sends the pieces of a file's range to the block layer for an operation. Returns whether space was allocated.
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

    /// Ends an operation after its processor time.
    fn finish(&mut self, now: u64, op: u32) {
        let Op { ticket, cost, .. } = self.ops[op as usize];
        if let Some(ticket) = ticket {
            self.end_at(now + cost, ticket);
        }
        self.release(op);
    }

    /// A piece or operation that `op` waits for has ended.
    fn piece_done(&mut self, now: u64, op: u32) {
        self.ops[op as usize].left -= 1;
        self.check(now, op);
    }

    /// Continues an operation that waits for nothing more.
    fn check(&mut self, now: u64, op: u32) {
        if self.ops[op as usize].left > 0 {
            return;
        }
        match self.ops[op as usize].kind {
            Kind::Pieces | Kind::Names => self.finish(now, op),
            Kind::Buffered { .. } => self.admit(now, op),
            Kind::Commit => self.advance_commit(now, op),
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
                    state.in_write_back.remove(start, end);
                    // Pages written again since may be on their way again.
                    for other in &state.writing {
                        if let Kind::WriteBack { start: from, end: to, .. } = self.ops[*other as usize].kind
                            && from < end
                            && start < to
                        {
                            state.in_write_back.insert(from, to);
                        }
                    }
                }
                self.wake_waiters(now, op);
                self.release(op);
                self.write_back(now);
                self.admit_waiting(now);
            }
            Kind::ReadAhead { file, start, end } => {
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
            self.write_reasons.dropped_bytes += state.written.remove(len.next_multiple_of(PAGE), u64::MAX);
            state.in_write_back.remove(len.next_multiple_of(PAGE), u64::MAX);
            state.mapped.remove(len.next_multiple_of(PAGE), u64::MAX);
            state.len = state.len.min(len);
            state.is_changed = true;
            state.next_read = state.next_read.min(len);
            state.read_ahead_end = state.read_ahead_end.min(len);
            if len == 0 && state.is_idle() {
                // The file was probably removed. Drop its state.
                self.files.remove(&file);
            }
        }
        self.cache.cut(file, len);
        self.space.cut(file, len);
    }

    /// Turns whole pages of a range into holes that keep their place.
    fn discard(&mut self, file: u64, start: u64, end: u64) {
        let (start, end) = (start.next_multiple_of(PAGE), end / PAGE * PAGE);
        if let Some(state) = self.files.get_mut(&file)
            && start < end
        {
            self.dirty -= state.dirty.remove(start, end);
            self.write_reasons.dropped_bytes += state.written.remove(start, end);
            state.in_write_back.remove(start, end);
            state.mapped.remove(start, end);
        }
    }

    fn next_internal(&self) -> Option<u64> {
        let due = self.dirty_since.filter(|_| self.goal.is_none()).map(|since| since + self.write_back_after);
        earliest(self.block.next_event(), due)
    }

    /// Processes all events up to `now`.
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

/// Returns a request's range, extended to whole blocks.
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
            (file.next_read, file.window, file.read_ahead_end) = (0, 0, 0);
        }
    }

    fn counters(&self) -> DeviceCounters {
        let mut counters = self.block.counters(self.time);
        let queued = (counters.read_reasons.queued_bytes, counters.write_reasons.waiting_bytes);
        let in_memory = self.files.values().flat_map(|file| file.written.iter()).map(|(from, to)| to - from);
        counters.read_reasons = ReadReasons { queued_bytes: queued.0, ..self.read_reasons };
        counters.write_reasons =
            WriteReasons { waiting_bytes: queued.1 + in_memory.sum::<u64>(), ..self.write_reasons };
        counters
    }
}
