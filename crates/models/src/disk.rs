//! A device below a local file system: requests for files come in at the top, their ends come out.

use crate::block::{BlockLayer, BlockSpec};
use crate::drive::{Drive, Verb};
use crate::files::{FilesSpec, Journal, PAGE, PageCache, Piece, Ranges, Space, Stage};
use crate::time::{earliest, from_us, transfer};
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
    WriteBack { file: u64, len: u64 },
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
    /// Buffered writes that are not in memory yet.
    coming: Vec<u32>,
    /// Operations of write-back and of reading ahead that are under way.
    writing: Vec<u32>,
    reading: Vec<(u64, u64, u32)>,
    /// Where a read in order would go on, how much is read ahead, and up to where that has got.
    next_read: u64,
    window: u64,
    ahead_to: u64,
}

/// A device below a local file system.
pub struct Disk {
    block: BlockLayer,
    space: Space,
    journal: Journal,
    cache: PageCache,
    files: BTreeMap<u64, FileState>,
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

    fn read(&mut self, now: u64, ticket: Ticket, request: &DeviceRequest) {
        let (file, len) = (request.file, request.len.0);
        let cost = self.call + if request.is_direct { 0 } else { transfer(len, self.copy_mb_s) };
        let (start, end) = around(request, if request.is_direct { 512 } else { PAGE });
        let op = self.start_op(Kind::Plain, Some(ticket), cost);
        let mut gaps = std::mem::take(&mut self.gaps);
        gaps.clear();
        let state = self.files.entry(file).or_default();
        state.len = state.len.max(end);
        if request.is_direct {
            gaps.push((start, end));
        } else {
            self.cache.gaps(file, start, end, &mut gaps);
            if !state.dirty.is_empty() {
                let cold = std::mem::take(&mut gaps);
                cold.into_iter().for_each(|(from, to)| state.dirty.gaps(from, to, &mut gaps));
            }
            self.wait_for_ahead(op, file, &mut gaps);
        }
        for &(from, to) in &gaps {
            self.issue(now, op, Verb::Read, file, from, to);
            self.cache.insert(file, from, to);
        }
        self.gaps = gaps;
        if !request.is_direct && self.read_ahead > 0 {
            self.read_on(now, file, start, end);
        }
        self.check(now, op);
    }

    /// What is being read ahead need not be read again: the operation waits for it.
    fn wait_for_ahead(&mut self, op: u32, file: u64, gaps: &mut Vec<(u64, u64)>) {
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

    /// Reads ahead of a file that is read in order: the window doubles from four requests to its most, and the next
    /// is asked for when the reader enters the last.
    fn read_on(&mut self, now: u64, file: u64, start: u64, end: u64) {
        let most = self.read_ahead;
        let state = self.files.get_mut(&file).expect("a file that is read");
        let is_onward = start <= state.next_read && end > state.next_read;
        state.next_read = end;
        if !is_onward {
            (state.window, state.ahead_to) = (0, end);
            return;
        }
        if state.window > 0 && end + state.window / 2 < state.ahead_to {
            return;
        }
        state.window = if state.window == 0 { 4 * (end - start) } else { 2 * state.window }.min(most);
        let from = state.ahead_to.max(end);
        let to = (end + state.window).min(state.len.max(end)).next_multiple_of(PAGE);
        if from >= to {
            return;
        }
        state.ahead_to = to;
        let mut gaps = Vec::new();
        self.cache.gaps(file, from, to, &mut gaps);
        for (from, to) in gaps {
            let op = self.start_op(Kind::Ahead { file, start: from, end: to }, None, 0);
            self.files.get_mut(&file).expect("a file that is read").reading.push((from, to, op));
            self.issue(now, op, Verb::Read, file, from, to);
        }
    }

    fn write(&mut self, now: u64, ticket: Ticket, request: &DeviceRequest) {
        let (file, len) = (request.file, request.len.0);
        let end = request.offset.0 + len;
        if request.is_direct {
            let (from, to) = around(request, 512);
            let op = self.start_op(Kind::Plain, Some(ticket), self.call);
            let made = self.issue(now, op, Verb::Write, file, from, to);
            self.note_growth(file, end, made);
            return self.check(now, op);
        }
        let cost = self.call + transfer(len, self.copy_mb_s);
        let kind = Kind::Buffered { file, start: request.offset.0, end };
        let op = self.start_op(kind, Some(ticket), cost);
        // A page that is written in part has to be in memory.
        let (from, to) = around(request, PAGE);
        let old_len = self.files.get(&file).map_or(0, |state| state.len);
        let first = (request.offset.0 > from).then_some(from);
        let last = (end < to && (to - PAGE > from || first.is_none())).then_some(to - PAGE);
        for page in first.into_iter().chain(last) {
            let is_dirty = self.files.get(&file).is_some_and(|state| state.dirty.has(page));
            if page >= old_len || is_dirty {
                continue;
            }
            if !self.cache.has(file, page) {
                self.issue(now, op, Verb::Read, file, page, page + PAGE);
            }
        }
        self.files.entry(file).or_default().coming.push(op);
        if self.ops[op as usize].left == 0 {
            self.admit(now, op);
        }
    }

    fn note_growth(&mut self, file: u64, end: u64, made: bool) {
        let state = self.files.entry(file).or_default();
        if end > state.len || made {
            state.is_changed = true;
        }
        state.len = state.len.max(end);
    }

    /// Takes a buffered write into memory, if there is room for it.
    fn admit(&mut self, now: u64, op: u32) {
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
        let state = self.files.get_mut(&file).expect("noted just now");
        state.coming.retain(|&other| other != op);
        self.dirty += state.dirty.insert(from, to);
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
    }

    /// Sends what memory holds to the device, as far as its goal and the bound of requests let it.
    fn write_back(&mut self, now: u64) {
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

    fn send_dirty(&mut self, now: u64, file: u64, start: u64, end: u64) -> u32 {
        let op = self.start_op(Kind::WriteBack { file, len: end - start }, None, 0);
        let state = self.files.get_mut(&file).expect("a file with bytes in memory");
        self.dirty -= state.dirty.remove(start, end);
        state.writing.push(op);
        self.writing += end - start;
        self.writing_count += 1;
        if self.issue(now, op, Verb::Write, file, start, end) {
            self.files.get_mut(&file).expect("a file with bytes in memory").is_changed = true;
        }
        op
    }

    fn sync(&mut self, now: u64, ticket: Ticket, file: u64) {
        let op = self.start_op(Kind::Sync { file, stage: SyncStage::Writes }, Some(ticket), self.call);
        if let Some(state) = self.files.get(&file) {
            for &other in &state.coming {
                self.ops[other as usize].waiters.push(op);
                self.ops[op as usize].left += 1;
            }
        }
        self.check(now, op);
    }

    /// Sends what memory holds of a file, and waits for that.
    fn sync_bytes(&mut self, now: u64, op: u32, file: u64) {
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

    /// Has the names committed for an operation.
    fn join_commit(&mut self, now: u64, op: u32) {
        self.ops[op as usize].left += 1;
        self.journal.next.push(op);
        self.commit_on(now);
    }

    /// Starts the next commit, if none is under way and somebody waits for one.
    fn commit_on(&mut self, now: u64) {
        if self.journal.stage != Stage::Idle || self.journal.next.is_empty() {
            return;
        }
        self.journal.waiting = std::mem::take(&mut self.journal.next);
        self.journal.stage = Stage::Blocks;
        let op = self.start_op(Kind::Commit, None, 0);
        for (at, len) in self.journal.begin() {
            self.issue_raw(now, op, at, len);
        }
    }

    fn issue_raw(&mut self, now: u64, op: u32, mut at: u64, len: u64) {
        let end = at + len;
        while at < end {
            let count = (end - at).min(self.block.request_max());
            self.ops[op as usize].left += 1;
            self.block.add(now, op, Verb::Write, at, count);
            at += count;
        }
    }

    fn issue_flush(&mut self, op: u32) {
        self.ops[op as usize].left += 1;
        self.block.add_flush(op);
    }

    /// Moves the commit on to its next stage.
    fn commit_next(&mut self, now: u64, op: u32) {
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
                    return self.commit_on(now);
                }
            };
            match self.journal.stage {
                Stage::BlocksFlush | Stage::RecordFlush if barrier => return self.issue_flush(op),
                Stage::Record => {
                    if let Some((at, len)) = self.journal.record() {
                        return self.issue_raw(now, op, at, len);
                    }
                }
                _ => {}
            }
        }
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
            Kind::WriteBack { file, len } => {
                self.writing -= len;
                self.writing_count -= 1;
                if let Some(state) = self.files.get_mut(&file) {
                    state.writing.retain(|&other| other != op);
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

    /// Writers that waited for memory, in the order of their coming.
    fn let_in(&mut self, now: u64) {
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

    fn cut(&mut self, file: u64, len: u64) {
        if let Some(state) = self.files.get_mut(&file) {
            self.dirty -= state.dirty.remove(len.next_multiple_of(PAGE), u64::MAX);
            state.len = state.len.min(len);
            state.is_changed = true;
            state.next_read = state.next_read.min(len);
            state.ahead_to = state.ahead_to.min(len);
        }
        self.cache.cut(file, len);
        self.space.cut(file, len);
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
