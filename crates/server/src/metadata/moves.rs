//! Files that are being given another layout while programs use them.
//!
//! ```text
//! Move      a row in `moves`: generation and layout of the new datafiles, and whose session fills them
//! MoveOver  from here on no capability for the old datafiles is given that passes the seal that is told
//! Moved     in one transaction: the new datafiles are the file's, the old ones are to be removed, the row goes
//! ```
//! What is left when a session ends is the row; whoever moves the file next goes on with it or has it removed, and so has
//! whoever removes the file. See `docs/decisions/migrate.md`.

use super::fault::{Fault, Outcome};
use super::op::{Core, Op};
use super::open::Urgency;
use super::opens::{Cuts, OpenEntry};
use super::permit::owns;
use super::tables::{named_inode, path_of, put_inode, put_row, row};
use super::walk::walk;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::AtomicU64;
use weft_core::{ByteLen, FileId, Layout, Nanos, RecordedLens, Timestamp};
use weft_env::plants::{Plant, planted};
use weft_store::metadata::{Inode, MoveRow, Node, ReapRow, Scan, Snapshot, Table, Transaction, file_key};
use weft_wire::BoundSession;
use weft_wire::meta::{HandleId, LayoutSpec, MOVES_MAX, MetaReply, MoveState, MoverState, Moving, Place};
use weft_wire::{Errno, Rights};

/// About the most bytes of a reply with moves.
const REPLY_LEN_MAX: usize = 512 << 10;
/// Nobody waits longer for a move that does not come to its end.
const OVER_FOR: Nanos = Nanos::from_s(10);
/// So long a look at the database may take that began before a file had other datafiles.
const GONE_FOR: Nanos = Nanos::from_s(60);

/// What the service knows of moves beside the database.
#[derive(Debug, Default)]
pub(super) struct Moves {
    inner: Mutex<Inner>,
    /// Changes of datafiles that may not be durable yet: nothing that depends on one is told before it is.
    pub swaps: AtomicU64,
}

#[derive(Debug, Default)]
struct Inner {
    /// Who may take the append lock though it does not write, and how far it is.
    movers: BTreeMap<FileId, (BoundSession, MoverState)>,
    /// By the name of the datafiles.
    seals: BTreeMap<FileId, Seal>,
}

/// What comes of the wish to move a file.
pub(super) enum Begun {
    /// This is to be answered.
    Told(MetaReply),
    /// What a mover had left is given up. It is to be asked again, where there are some when these datafiles are gone, which
    /// have room that is needed.
    Again { pending: Option<FileId> },
}

/// Datafiles for which nobody gets a capability that is worth anything.
#[derive(Clone, Copy, Debug)]
struct Seal {
    /// Data servers refuse, or may refuse, those that end before, in seconds since 1970.
    seal_s: u64,
    /// Nobody but who has the last word may write to the other ones with a capability that ends later.
    last_s: u64,
    /// Until then.
    until: Timestamp,
    /// Who is about to put others in their place; `None` when that is done.
    by: Option<BoundSession>,
}

fn after(now: Timestamp, time: Nanos) -> Timestamp {
    Timestamp(now.0 + i128::from(time.0))
}

impl Moves {
    /// When a capability for `data` ends, `usual` if nothing speaks against it. Nobody begins to seal meanwhile.
    pub(super) fn end_of(&self, data: FileId, now: Timestamp, usual: impl FnOnce() -> u64) -> u64 {
        let mut inner = self.inner.lock();
        let usual = usual();
        match inner.seals.get(&data) {
            Some(seal) if now < seal.until => usual.min(seal.seal_s - 1),
            Some(_) => {
                inner.seals.remove(&data);
                usual
            }
            None => usual,
        }
    }

    /// Whether `session` moves the file.
    pub(super) fn is_moved_by(&self, file: FileId, session: BoundSession) -> bool {
        self.inner.lock().movers.get(&file).is_some_and(|(by, _)| *by == session)
    }

    /// A session has ended: what it was about to do it does not do.
    pub(super) fn ended(&self, session: BoundSession) {
        let mut inner = self.inner.lock();
        inner.movers.retain(|_, (by, _)| *by != session);
        inner.seals.retain(|_, seal| seal.by != Some(session));
    }

    /// A session is at a file; what it told before stays if it was before.
    fn begins(&self, file: FileId, session: BoundSession, now: Timestamp) {
        let new = MoverState { since: now, told: now, done: ByteLen(0), left: ByteLen(0) };
        let mut inner = self.inner.lock();
        let known = inner.movers.entry(file).or_insert((session, new));
        if known.0 != session {
            *known = (session, new);
        }
    }

    /// It tells what it has copied, and what is left.
    fn told(&self, file: FileId, (done, left): (ByteLen, ByteLen), now: Timestamp) {
        if let Some((_, mover)) = self.inner.lock().movers.get_mut(&file) {
            *mover = MoverState { told: now, done, left, ..*mover };
        }
    }

    fn mover(&self, file: FileId) -> Option<MoverState> {
        self.inner.lock().movers.get(&file).map(|(_, mover)| *mover)
    }

    fn ends(&self, file: FileId) {
        self.inner.lock().movers.remove(&file);
    }

    /// Seals the first of these datafiles, for which those of the second are to come, at the times that `fence` tells.
    fn over(
        &self,
        (data, to): (FileId, FileId),
        session: BoundSession,
        now: Timestamp,
        fence: impl Fn(FileId) -> u64,
    ) {
        let mut inner = self.inner.lock();
        inner.seals.retain(|_, seal| now < seal.until);
        let (seal_s, last_s) = (fence(data), fence(to));
        inner.seals.insert(data, Seal { seal_s, last_s, until: after(now, OVER_FOR), by: Some(session) });
    }

    /// The seal that `session` has put before `data`: its time, and that of the fence before the other datafiles.
    fn seal_by(&self, data: FileId, session: BoundSession) -> Option<(u64, u64)> {
        let inner = self.inner.lock();
        inner.seals.get(&data).filter(|seal| seal.by == Some(session)).map(|seal| (seal.seal_s, seal.last_s))
    }

    /// Takes it back.
    fn back(&self, data: FileId, session: BoundSession) {
        self.inner.lock().seals.retain(|sealed, seal| *sealed != data || seal.by != Some(session));
    }

    /// The file has other datafiles.
    fn gone(&self, data: FileId, now: Timestamp) {
        if let Some(seal) = self.inner.lock().seals.get_mut(&data) {
            *seal = Seal { until: after(now, GONE_FOR), by: None, ..*seal };
        }
    }
}

fn move_row(s: &dyn Snapshot, file: FileId) -> Outcome<Option<MoveRow>> {
    row(s, Table::Moves, &file_key(file))
}

/// Has what was copied for a file removed, if there is any; whether there was.
pub(super) fn end_row(t: &mut dyn Transaction, file: FileId) -> Outcome<bool> {
    let Some(row) = move_row(t, file)? else { return Ok(false) };
    t.delete(Table::Moves, &file_key(file));
    let data = file.of_generation(row.generation);
    put_row(t, Table::Reap, &file_key(data), &ReapRow { layout: row.layout });
    Ok(true)
}

impl Core {
    /// The epoch under which what is read of the file now is what it has, if nobody can be changing it.
    fn quiet_epoch(&self, file: FileId, inode: &Inode, now: Timestamp) -> Option<u32> {
        let busy = self.opens.lock().is_busy(file) || self.ghosts.lock().haunt(file, now);
        match &inode.node {
            Node::Regular { settled: true, epoch, .. } if !busy => Some(*epoch),
            _ => None,
        }
    }
}

impl Op<'_> {
    fn is_mine(&self, row: &MoveRow, handle: HandleId) -> bool {
        (row.session, row.handle) == (self.session.0, handle.0)
    }

    /// The file of a request about a move, which must be the asking session's.
    fn moved_file(&self, s: &dyn Snapshot, handle: HandleId) -> Outcome<(FileId, Inode, MoveRow)> {
        let open = self.core.opens.lock().get(self.session, handle).ok_or(Errno::EBADF)?;
        let inode = named_inode(s, open.file)?;
        match move_row(s, open.file)?.filter(|row| self.is_mine(row, handle)) {
            Some(row) => Ok((open.file, inode, row)),
            None => Err(Fault::new(Errno::ESTALE, "somebody else moves the file, or the move was given up")),
        }
    }

    pub(super) fn begin_move(
        &self,
        t: &mut dyn Transaction,
        at: &Place,
        handle: HandleId,
        wish: &LayoutSpec,
        only_tell: bool,
    ) -> Outcome<(Begun, Urgency)> {
        let told = |reply, urgency| Ok((Begun::Told(reply), urgency));
        let mut walked = walk(t, self, at)?;
        let (file, mut inode) = walked.found.take().ok_or(Errno::ENOENT)?;
        if inode.is_dir() {
            return Err(Errno::EISDIR.into());
        }
        if !owns(self.who, &inode) {
            return Err(Fault::new(Errno::EPERM, "only its owner and root may move a file"));
        }
        let quiet = self.core.quiet_epoch(file, &inode, self.now);
        let left = move_row(t, file)?;
        if let Some(row) = &left
            && !self.is_mine(row, handle)
            && self.core.opens.lock().get(BoundSession(row.session), HandleId(row.handle)).is_some()
        {
            return Err(Fault::new(Errno::EBUSY, "somebody else moves the file at the moment"));
        }
        // What was copied before is what the file has if nobody can have changed it since.
        let is_unchanged =
            |row: &MoveRow| row.epoch.is_some() && row.epoch == quiet || planted(Plant::TrustedCopy);
        let take_up = |row: MoveRow| {
            let copied = if is_unchanged(&row) { row.copied } else { ByteLen(0) };
            let fence_s = self.core.data_fence(file.of_generation(row.generation), self.now);
            (MoveRow { session: self.session.0, handle: handle.0, copied, ..row }, fence_s)
        };
        let (row, fence_s) = match left {
            // The request of a mover who is at it, perhaps for long, is repeated, perhaps late: his datafiles stay.
            Some(row) if self.is_mine(&row, handle) => take_up(row),
            left => {
                let to = self.destination(t, &mut walked, (file, &inode), wish)?;
                let soon = to.with(t, left.as_ref().map(|row| &row.layout))?;
                if only_tell {
                    return told(MetaReply::Layout { layout: Some(soon), default: None }, Urgency::Lazy);
                }
                match left {
                    Some(row) if row.layout == soon && is_unchanged(&row) => take_up(row),
                    Some(row) => {
                        let is_room_missing = to.with(t, None).ok() != Some(soon);
                        end_row(t, file)?;
                        self.core.reaps();
                        let pending = file.of_generation(row.generation);
                        return Ok((
                            Begun::Again { pending: is_room_missing.then_some(pending) },
                            Urgency::Lazy,
                        ));
                    }
                    None => match self.new_move(t, (file, &mut inode), handle, (soon, quiet))? {
                        Some(row) => (row, 0),
                        None => return told(MetaReply::Done, Urgency::Lazy),
                    },
                }
            }
        };
        put_row(t, Table::Moves, &file_key(file), &row);
        let entry = OpenEntry {
            file,
            uid: self.who.uid,
            read: true,
            write: false,
            readable: true,
            truncate: false,
            caching: false,
            cuts_before: None,
        };
        self.core.opens.lock().add(
            self.session,
            handle,
            entry,
            true,
            inode.nlink == 0,
            Cuts { begins: false, lost: true },
        );
        self.core.moves.begins(file, self.session, self.now);
        told(self.moving(file, &inode, row, fence_s)?, Urgency::Durable)
    }

    /// A move of a file to `layout`; `None` where it has that.
    fn new_move(
        &self,
        t: &mut dyn Transaction,
        (file, inode): (FileId, &mut Inode),
        handle: HandleId,
        (to, epoch): (Layout, Option<u32>),
    ) -> Outcome<Option<MoveRow>> {
        let Node::Regular { layout, generations, .. } = &mut inode.node else {
            return Err(Errno::EINVAL.into());
        };
        if to == *layout {
            return Ok(None);
        }
        self.core.rooms.take(t, &to)?;
        generations.last = generations
            .last
            .checked_add(1)
            .ok_or_else(|| Fault::new(Errno::EMLINK, "the file was moved too often: copy it to a new one"))?;
        let (generation, session, copied) = (generations.last, self.session.0, ByteLen(0));
        put_inode(t, file, inode);
        Ok(Some(MoveRow { generation, layout: to, session, handle: handle.0, copied, epoch }))
    }

    /// What the mover of a file is told.
    fn moving(&self, file: FileId, inode: &Inode, row: MoveRow, fence_s: u64) -> Outcome<MetaReply> {
        let Node::Regular { layout, .. } = &inode.node else { return Err(Errno::EINVAL.into()) };
        let (data, to) = (inode.data(file), file.of_generation(row.generation));
        let integrity = Rights::of_integrity(inode.integrity());
        let from_rights = Rights::READ.and(Rights::LENGTH).and(Rights::MOVE).and(integrity);
        let to_rights = from_rights.and(Rights::WRITE);
        let seal = self.core.moves.seal_by(data, self.session);
        let to_cap = self.grant(to, to_rights);
        let (from, to, last) = match seal {
            None => (self.grant(data, from_rights), to_cap, None),
            Some((seal_s, last_s)) => (
                self.grant_until(data, from_rights, seal_s),
                self.grant_until(to, to_rights, to_cap.expires_s.min(last_s - 1)),
                Some(self.grant_until(to, to_rights, last_s)),
            ),
        };
        let moving = Moving {
            file,
            proof: self.core.secret.prove_walk(file, self.session),
            from,
            from_layout: layout.clone(),
            to,
            to_layout: row.layout,
            copied: row.copied,
            fence_s,
            seal_s: seal.map_or(0, |(seal_s, _)| seal_s),
            last,
        };
        Ok(MetaReply::Moving(Box::new(moving)))
    }

    pub(super) fn go_on_moving(
        &self,
        t: &mut dyn Transaction,
        handle: HandleId,
        copied: ByteLen,
        told: (ByteLen, ByteLen),
    ) -> Outcome<(MetaReply, Urgency)> {
        let (file, inode, mut row) = self.moved_file(t, handle)?;
        self.core.moves.begins(file, self.session, self.now);
        if told != (ByteLen(0), ByteLen(0)) {
            self.core.moves.told(file, told, self.now);
        }
        // Who changes the file makes what was copied before worth nothing for who comes later.
        if copied > row.copied {
            row.copied = copied;
            put_row(t, Table::Moves, &file_key(file), &row);
        }
        Ok((self.moving(file, &inode, row, 0)?, Urgency::Lazy))
    }

    pub(super) fn move_over(&self, s: &dyn Snapshot, handle: HandleId) -> Outcome<MetaReply> {
        let (file, inode, row) = self.moved_file(s, handle)?;
        if inode.nlink == 0 {
            return Err(Fault::new(Errno::ENOENT, "the file was removed meanwhile"));
        }
        self.core.moves.begins(file, self.session, self.now);
        let (data, to) = (inode.data(file), file.of_generation(row.generation));
        let fence = |data| self.core.data_fence(data, self.now);
        self.core.moves.over((data, to), self.session, self.now, fence);
        self.moving(file, &inode, row, 0)
    }

    pub(super) fn move_back(&self, s: &dyn Snapshot, handle: HandleId) -> Outcome<MetaReply> {
        let (file, inode, _) = self.moved_file(s, handle)?;
        self.core.moves.back(inode.data(file), self.session);
        Ok(MetaReply::Done)
    }

    pub(super) fn moved(
        &self,
        t: &mut dyn Transaction,
        handle: HandleId,
        seal_s: u64,
        size: ByteLen,
        lens: RecordedLens,
    ) -> Outcome<MetaReply> {
        let (file, mut inode, row) = self.moved_file(t, handle)?;
        let data = inode.data(file);
        if self.core.moves.seal_by(data, self.session).is_none_or(|(standing, _)| standing != seal_s) {
            return Err(Fault::new(Errno::EAGAIN, "the last part of the move took too long"));
        }
        let known = inode.size;
        let Node::Regular { layout, settled, touched, epoch, generations, recorded } = &mut inode.node else {
            return Err(Errno::EINVAL.into());
        };
        if *touched || !*settled {
            put_row(t, Table::Reap, &file_key(data), &ReapRow { layout: layout.clone() });
            self.core.reaps();
        } else {
            self.core.rooms.give_back(t, layout)?;
        }
        // A cut that has begun, and was overtaken, reaches the new datafiles without another word: O_TRUNC does. Then nothing
        // is recorded before somebody has looked.
        let may_be_cut =
            self.core.opens.lock().may_be_cut(file) || self.core.ghosts.lock().may_cut(file, self.now);
        if *settled && (known != size || may_be_cut) {
            *settled = false;
        }
        if !*settled {
            *epoch = epoch.wrapping_add(1);
        }
        *layout = row.layout;
        generations.now = row.generation;
        *recorded = if may_be_cut { RecordedLens::NONE } else { lens };
        *touched = true;
        t.delete(Table::Moves, &file_key(file));
        put_inode(t, file, &inode);
        self.core.moves.gone(data, self.now);
        self.core.moves.ends(file);
        Ok(MetaReply::Done)
    }

    /// Moves under way and left of the caller's files, of all for root.
    pub(super) fn moves(&self, s: &dyn Snapshot, after: FileId) -> Outcome<MetaReply> {
        let (mut rows, mut more) = (Vec::new(), None);
        s.scan(Table::Moves, Bound::Excluded(&file_key(after)), &mut |key, value| {
            if rows.len() == MOVES_MAX {
                more = rows.last().map(|(file, _): &(FileId, MoveRow)| *file);
                return Ok(Scan::Stop);
            }
            let file = FileId(key.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes)));
            rows.push((file, value.open(Table::Moves, key)?));
            Ok(Scan::Next)
        })?;
        let (mut moves, mut len) = (Vec::new(), 0);
        for (file, row) in rows {
            let Some(inode) = super::tables::inode(s, file)?.filter(|inode| owns(self.who, inode)) else {
                continue;
            };
            let state = MoveState {
                file,
                // One that is removed but open has none.
                path: path_of(s, file).unwrap_or_default(),
                size: inode.size,
                layout: row.layout,
                safe: row.copied,
                mover: self.core.moves.mover(file),
            };
            len += postcard::experimental::serialized_size(&state).unwrap_or(0);
            moves.push(state);
            if len > REPLY_LEN_MAX {
                more = Some(file);
                break;
            }
        }
        Ok(MetaReply::Moves { moves, more })
    }

    pub(super) fn move_not(&self, t: &mut dyn Transaction, at: &Place) -> Outcome<MetaReply> {
        let (file, inode) = walk(t, self, at)?.existing()?;
        if !owns(self.who, &inode) {
            return Err(Fault::new(Errno::EPERM, "only its owner and root may give up a file's move"));
        }
        self.core.moves.ends(file);
        if end_row(t, file)? {
            self.core.reaps();
        }
        Ok(MetaReply::Done)
    }
}

/// The names and layouts of all datafiles that are being copied to, or were left.
pub(super) fn being_filled(s: &dyn Snapshot) -> Outcome<Vec<(FileId, Layout)>> {
    let mut found = Vec::new();
    s.scan(Table::Moves, Bound::Unbounded, &mut |key, value| {
        let row: MoveRow = value.open(Table::Moves, key)?;
        let file = FileId(key.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes)));
        found.push((file.of_generation(row.generation), row.layout));
        Ok(Scan::Next)
    })?;
    Ok(found)
}
