//! Moves: files that get another layout while programs use them.
//!
//! A mover (a client) copies the file to datafiles of the next *generation* while the data servers record which ranges
//! change. It then seals the old datafiles, copies the last changes, and asks for the switch.
//!
//! ```text
//! mover                          metadata server                 data servers of the old datafiles
//!   |── Move ──────────────────▶ row in `moves`: generation,
//!   |                            new layout, session
//!   |── Watch ──────────────────────────────────────────────────▶ record changed ranges,
//!   |                                                            grant no leases for writing
//!   |── read, copy, Changes … repeated until few changes remain ─▶
//!   |── BeginCutover ──────────────▶ seal time T: no new capability
//!   |                            for the old datafiles reaches T
//!   |── Seal(T) ────────────────────────────────────────────────▶ refuse capabilities that end
//!   |                                                            before T, wait for writes in flight
//!   |── copy the last changes, set times, sync ─────────────────▶
//!   |── Moved ─────────────────▶ one transaction: the new
//!   |                            datafiles are the file's, the
//!   |                            old ones go to `reap`, the row
//!   |                            is deleted
//! ```
//!
//! | event | result |
//! |---|---|
//! | the mover's session ends before `Moved` | the file keeps its old layout; the row stays |
//! | the next mover comes | continues the copy if no writer opened the file since, else starts again |
//! | the file is removed | the row goes, and its datafiles are removed |
//! | no `Moved` within [`SEAL_TIME_MAX`] | the service issues capabilities beyond T again |
//! | a client meets a sealed datafile | gets `EREMCHG` and asks for the layout |
//!
//! `docs/design/moving-files.md` gives the reasons.

use super::fault::{Fault, Outcome};
use super::op::{Core, Op};
use super::open::Urgency;
use super::opens::{OpenEntry, TruncationState};
use super::permit::owns;
use super::tables::{file_of_key, named_inode, page_after, path_of, put_inode, put_row, row};
use super::walk::walk;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::AtomicU64;
use weft_core::{ByteLen, CompressionSetting, FileId, Layout, Nanos, RecordedLens, Timestamp};
use weft_env::mutants::{Mutant, is_seeded};
use weft_store::metadata::{Inode, MoveRow, Node, ReapRow, Scan, Snapshot, Table, Transaction, file_key};
use weft_wire::BoundSession;
use weft_wire::meta::{HandleId, InodePath, LayoutSpec, MOVES_MAX, MetaReply, MoveState, MoverState, Moving};
use weft_wire::status::MoveCounts;
use weft_wire::{Errno, Rights};

/// Approximate maximum size of a reply with moves.
const REPLY_LEN_MAX: usize = 512 << 10;
/// Time after which a seal without a switch ends.
const SEAL_TIME_MAX: Nanos = Nanos::from_s(10);
/// Longest time a read of the database may take that began before a switch.
const STALE_READ_TIME_MAX: Nanos = Nanos::from_s(60);

/// Moves in progress, apart from the rows in the database.
#[derive(Debug, Default)]
pub(super) struct Moves {
    inner: Mutex<Inner>,
    /// Number of switches that may not be durable yet. No reply that may depend on one is sent before it is durable.
    pub pending_switches: AtomicU64,
}

#[derive(Debug, Default)]
struct Inner {
    /// Sessions that may take the append lock without writing, with their progress.
    movers: BTreeMap<FileId, (BoundSession, MoverState)>,
    /// By the file id of the old datafiles.
    seals: BTreeMap<FileId, Seal>,
    /// Counters since the start.
    counts: MoveCounts,
}

/// Result of a request to move a file.
pub(super) enum MoveStart {
    /// The reply is ready.
    Reply(MetaReply),
    /// An abandoned move was given up, and the request must be repeated. `pending` names the datafiles that must be
    /// removed first, because the move needs their space.
    Retry { pending: Option<FileId> },
}

/// Old datafiles whose capabilities are limited.
#[derive(Clone, Copy, Debug)]
struct Seal {
    /// Capabilities that end before this time are, or may be, refused by data servers. In seconds since 1970.
    seal_s: u64,
    /// Only the mover gets a capability for the new datafiles that ends later, for its last step.
    last_s: u64,
    /// End of the limit.
    until: Timestamp,
    /// Session that is about to switch the datafiles; `None` after the switch.
    by: Option<BoundSession>,
}

fn after(now: Timestamp, time: Nanos) -> Timestamp {
    Timestamp(now.0 + i128::from(time.0))
}

impl Moves {
    /// End of a capability for `data`: `usual`, or earlier if it is sealed. No seal begins meanwhile.
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

    /// Ends the moves of a session that has ended.
    pub(super) fn ended(&self, session: BoundSession) {
        let mut inner = self.inner.lock();
        let before = inner.movers.len();
        inner.movers.retain(|_, (by, _)| *by != session);
        inner.counts.lost += (before - inner.movers.len()) as u64;
        inner.seals.retain(|_, seal| seal.by != Some(session));
    }

    /// Records that a session moves a file. Its earlier progress stays.
    fn set_mover(&self, file: FileId, session: BoundSession, now: Timestamp) {
        let new = MoverState { since: now, reported: now, done: ByteLen(0), left: ByteLen(0) };
        let mut inner = self.inner.lock();
        if inner.movers.get(&file).is_none_or(|(by, _)| *by != session) {
            inner.movers.insert(file, (session, new));
            inner.counts.started += 1;
        }
    }

    /// Records the mover's progress.
    fn report_progress(&self, file: FileId, (done, left): (ByteLen, ByteLen), now: Timestamp) {
        let mut inner = self.inner.lock();
        if let Some((_, mover)) = inner.movers.get_mut(&file) {
            let copied = done.0.saturating_sub(mover.done.0);
            *mover = MoverState { reported: now, done, left, ..*mover };
            inner.counts.bytes_copied.0 += copied;
        }
    }

    /// Ends the move of a file that has its new layout.
    fn completed(&self, file: FileId, copied: ByteLen, now: Timestamp) {
        self.report_progress(file, (copied, ByteLen(0)), now);
        let mut inner = self.inner.lock();
        inner.movers.remove(&file);
        inner.counts.completed += 1;
    }

    /// Ends the move of a file that was removed.
    pub(super) fn removed(&self, file: FileId) {
        let mut inner = self.inner.lock();
        inner.movers.remove(&file);
        inner.counts.removed += 1;
    }

    /// Ends a move that was given up.
    fn abandoned(&self, file: FileId) {
        let mut inner = self.inner.lock();
        inner.movers.remove(&file);
        inner.counts.abandoned += 1;
    }

    /// Counters since the start, and the number of moves, of which `rows` are recorded.
    pub(super) fn counts(&self, rows: u64) -> MoveCounts {
        let inner = self.inner.lock();
        let running = inner.movers.len() as u64;
        let interrupted = rows.saturating_sub(running);
        MoveCounts { running: running as u32, interrupted: interrupted as u32, ..inner.counts }
    }

    /// Whether a session moves the file.
    pub(super) fn is_moving(&self, file: FileId) -> bool {
        self.inner.lock().movers.contains_key(&file)
    }

    fn mover(&self, file: FileId) -> Option<MoverState> {
        self.inner.lock().movers.get(&file).map(|(_, mover)| *mover)
    }

    /// Seals `data`, to be switched to `to`, at the times that `fence` returns.
    fn seal(
        &self,
        (data, to): (FileId, FileId),
        session: BoundSession,
        now: Timestamp,
        fence: impl Fn(FileId) -> u64,
    ) {
        let mut inner = self.inner.lock();
        inner.seals.retain(|_, seal| now < seal.until);
        let (seal_s, last_s) = (fence(data), fence(to));
        inner
            .seals
            .insert(data, Seal { seal_s, last_s, until: after(now, SEAL_TIME_MAX), by: Some(session) });
    }

    /// Times of the seal of `data` by `session`, and of the fence of the new datafiles.
    fn seal_by(&self, data: FileId, session: BoundSession) -> Option<(u64, u64)> {
        let inner = self.inner.lock();
        inner.seals.get(&data).filter(|seal| seal.by == Some(session)).map(|seal| (seal.seal_s, seal.last_s))
    }

    /// Removes the seal.
    fn unseal(&self, data: FileId, session: BoundSession) {
        self.inner.lock().seals.retain(|sealed, seal| *sealed != data || seal.by != Some(session));
    }

    /// Seals `data` for a while, without a move. Others get no capability that passes until the session releases it. Returns
    /// the end of the capabilities that pass.
    pub(super) fn hold(
        &self,
        data: FileId,
        session: BoundSession,
        now: Timestamp,
        fence: impl Fn(FileId) -> u64,
    ) -> u64 {
        let mut inner = self.inner.lock();
        let seal_s = fence(data);
        let seal = Seal { seal_s, last_s: seal_s, until: after(now, SEAL_TIME_MAX), by: Some(session) };
        inner.seals.insert(data, seal);
        seal_s
    }

    /// Ends a [`hold`](Self::hold). Returns whether it was in force until now.
    pub(super) fn release(&self, data: FileId, session: BoundSession, now: Timestamp) -> bool {
        let mut inner = self.inner.lock();
        let held = inner.seals.get(&data).filter(|seal| seal.by == Some(session)).map(|seal| seal.until);
        if held.is_some() {
            inner.seals.remove(&data);
        }
        held.is_some_and(|until| now < until)
    }

    /// Keeps the seal after the switch until all older reads of the database have ended.
    fn switched(&self, data: FileId, now: Timestamp) {
        if let Some(seal) = self.inner.lock().seals.get_mut(&data) {
            *seal = Seal { until: after(now, STALE_READ_TIME_MAX), by: None, ..*seal };
        }
    }
}

fn move_row(s: &dyn Snapshot, file: FileId) -> Outcome<Option<MoveRow>> {
    row(s, Table::Moves, &file_key(file))
}

/// Schedules the removal of a file's copied datafiles. Returns whether there were any.
pub(super) fn remove_move(t: &mut dyn Transaction, file: FileId) -> Outcome<bool> {
    let Some(row) = move_row(t, file)? else { return Ok(false) };
    t.delete(Table::Moves, &file_key(file));
    let data = file.of_generation(row.generation);
    put_row(t, Table::Reap, &file_key(data), &ReapRow { layout: row.layout });
    Ok(true)
}

impl Core {
    /// Epoch that identifies the file's present contents, if its size is known and no client can be changing it.
    fn stable_epoch(&self, file: FileId, inode: &Inode, now: Timestamp) -> Option<u32> {
        match &inode.node {
            Node::Regular { is_size_valid: true, .. } => self.quiet_epoch(file, inode, now),
            _ => None,
        }
    }
}

impl Op<'_> {
    fn is_mine(&self, row: &MoveRow, handle: HandleId) -> bool {
        (row.session, row.handle) == (self.session.0, handle.0)
    }

    /// File of a request about a move, which must be the requesting session's.
    fn moved_file(&self, s: &dyn Snapshot, handle: HandleId) -> Outcome<(FileId, Inode, MoveRow)> {
        let open = self.core.opens.lock().get(self.session, handle).ok_or(Errno::EBADF)?;
        let inode = named_inode(s, open.file)?;
        match move_row(s, open.file)?.filter(|row| self.is_mine(row, handle)) {
            Some(row) => Ok((open.file, inode, row)),
            None => {
                Err(Fault::new(Errno::ESTALE, "another session moves the file, or the move was given up"))
            }
        }
    }

    pub(super) fn begin_move(
        &self,
        t: &mut dyn Transaction,
        at: &InodePath,
        handle: HandleId,
        request: &LayoutSpec,
        dry_run: bool,
    ) -> Outcome<(MoveStart, Urgency)> {
        let reply_with = |reply, urgency| Ok((MoveStart::Reply(reply), urgency));
        let mut walked = walk(t, self, at)?;
        let (file, mut inode) = walked.found.take().ok_or(Errno::ENOENT)?;
        if inode.is_dir() {
            return Err(Errno::EISDIR.into());
        }
        if !owns(self.caller, &inode) {
            return Err(Fault::new(Errno::EPERM, "only its owner or root may move a file"));
        }
        // Rules and directories decide for new files only.
        let compression = request.compression.or_else(|| inode.compression_setting());
        let stable_epoch = self.core.stable_epoch(file, &inode, self.now);
        let left = move_row(t, file)?;
        if let Some(row) = &left
            && !self.is_mine(row, handle)
            && self.core.opens.lock().get(BoundSession(row.session), HandleId(row.handle)).is_some()
        {
            return Err(Fault::new(Errno::EBUSY, "another session is moving the file"));
        }
        // An earlier copy is still good if no client can have changed the file since.
        let is_unchanged = |row: &MoveRow| {
            row.epoch.is_some() && row.epoch == stable_epoch || is_seeded(Mutant::TrustedCopy)
        };
        let take_up = |row: MoveRow| {
            let copied = if is_unchanged(&row) { row.copied } else { ByteLen(0) };
            let fence_s = self.core.data_fence(file.of_generation(row.generation), self.now);
            (MoveRow { session: self.session.0, handle: handle.0, copied, ..row }, fence_s)
        };
        let (row, fence_s) = match left {
            // A repeated request of the present mover, which may be late: its datafiles stay.
            Some(row) if self.is_mine(&row, handle) => take_up(row),
            left => {
                let to = self.destination(t, &mut walked, (file, &inode), request)?;
                let soon = to.with(t, left.as_ref().map(|row| &row.layout))?;
                if dry_run {
                    return reply_with(
                        MetaReply::Layout { layout: Some(soon), default: None },
                        Urgency::Lazy,
                    );
                }
                match left {
                    Some(row)
                        if (&row.layout, row.compression) == (&soon, compression) && is_unchanged(&row) =>
                    {
                        take_up(row)
                    }
                    Some(row) => {
                        let is_room_missing = to.with(t, None).ok() != Some(soon);
                        remove_move(t, file)?;
                        self.core.moves.abandoned(file);
                        self.core.count_reap_row();
                        let pending = file.of_generation(row.generation);
                        return Ok((
                            MoveStart::Retry { pending: is_room_missing.then_some(pending) },
                            Urgency::Lazy,
                        ));
                    }
                    None => match self.new_move(
                        t,
                        (file, &mut inode),
                        handle,
                        (soon, compression, stable_epoch),
                    )? {
                        Some(row) => (row, 0),
                        None => return reply_with(MetaReply::Done, Urgency::Lazy),
                    },
                }
            }
        };
        put_row(t, Table::Moves, &file_key(file), &row);
        let entry = OpenEntry {
            file,
            uid: self.caller.uid,
            read: true,
            write: false,
            readable: true,
            truncate: false,
            caching: false,
            job: self.job,
            truncations_before: None,
        };
        self.core.opens.lock().add(
            self.session,
            handle,
            entry,
            true,
            inode.nlink == 0,
            TruncationState { begins: false, lost: true },
        );
        self.core.moves.set_mover(file, self.session, self.now);
        reply_with(self.moving(file, &inode, row, fence_s)?, Urgency::Durable)
    }

    /// Row of a new move to a layout and compression; `None` if the file has both already.
    fn new_move(
        &self,
        t: &mut dyn Transaction,
        (file, inode): (FileId, &mut Inode),
        handle: HandleId,
        (to, compression, epoch): (Layout, Option<CompressionSetting>, Option<u32>),
    ) -> Outcome<Option<MoveRow>> {
        let has_compression = compression.and_then(CompressionSetting::compression) == inode.compression();
        let Node::Regular { layout, generations, is_inline, .. } = &mut inode.node else {
            return Err(Errno::EINVAL.into());
        };
        if to == *layout && has_compression {
            return Ok(None);
        }
        if *is_inline {
            // There are no bytes to move.
            self.set_inline_layout(t, file, inode, to)?;
            inode.set_compression(compression);
            put_inode(t, file, inode);
            return Ok(None);
        }
        self.core.reservations.reserve(t, &to)?;
        generations.last = generations
            .last
            .checked_add(1)
            .ok_or_else(|| Fault::new(Errno::EMLINK, "the file was moved too often: copy it to a new one"))?;
        let (generation, session, copied) = (generations.last, self.session.0, ByteLen(0));
        put_inode(t, file, inode);
        Ok(Some(MoveRow { generation, layout: to, session, handle: handle.0, copied, epoch, compression }))
    }

    /// Reply to the mover of a file.
    fn moving(&self, file: FileId, inode: &Inode, row: MoveRow, fence_s: u64) -> Outcome<MetaReply> {
        let Node::Regular { layout, .. } = &inode.node else { return Err(Errno::EINVAL.into()) };
        let (data, to_data) = (inode.data(file), file.of_generation(row.generation));
        let integrity = Rights::of_integrity(inode.integrity());
        let rights = Rights::READ.and(Rights::LENGTH).and(Rights::MOVE).and(integrity);
        let from_rights = rights.and(Rights::of_compression(inode.compression()));
        let to = row.compression.and_then(CompressionSetting::compression);
        let to_rights = rights.and(Rights::WRITE).and(Rights::of_compression(to));
        let seal = self.core.moves.seal_by(data, self.session);
        let to_cap = self.grant(to_data, to_rights);
        let (from, to, last) = match seal {
            None => (self.grant(data, from_rights), to_cap, None),
            Some((seal_s, last_s)) => (
                self.grant_until(data, from_rights, seal_s),
                self.grant_until(to_data, to_rights, to_cap.expires_s.min(last_s - 1)),
                Some(self.grant_until(to_data, to_rights, last_s)),
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

    pub(super) fn continue_move(
        &self,
        t: &mut dyn Transaction,
        handle: HandleId,
        copied: ByteLen,
        progress: (ByteLen, ByteLen),
    ) -> Outcome<(MetaReply, Urgency)> {
        let (file, inode, mut row) = self.moved_file(t, handle)?;
        self.core.moves.set_mover(file, self.session, self.now);
        if progress != (ByteLen(0), ByteLen(0)) {
            self.core.moves.report_progress(file, progress, self.now);
        }
        // A change of the file makes this copy useless to a later mover; see the epoch.
        if copied > row.copied {
            row.copied = copied;
            put_row(t, Table::Moves, &file_key(file), &row);
        }
        Ok((self.moving(file, &inode, row, 0)?, Urgency::Lazy))
    }

    pub(super) fn move_over(&self, s: &dyn Snapshot, handle: HandleId) -> Outcome<MetaReply> {
        let (file, inode, row) = self.moved_file(s, handle)?;
        if inode.nlink == 0 {
            return Err(Fault::new(Errno::ENOENT, "the file was removed during the move"));
        }
        self.core.moves.set_mover(file, self.session, self.now);
        let (data, to) = (inode.data(file), file.of_generation(row.generation));
        let fence = |data| self.core.data_fence(data, self.now);
        self.core.moves.seal((data, to), self.session, self.now, fence);
        self.moving(file, &inode, row, 0)
    }

    pub(super) fn move_back(&self, s: &dyn Snapshot, handle: HandleId) -> Outcome<MetaReply> {
        let (file, inode, _) = self.moved_file(s, handle)?;
        self.core.moves.unseal(inode.data(file), self.session);
        Ok(MetaReply::Done)
    }

    pub(super) fn moved(
        &self,
        t: &mut dyn Transaction,
        handle: HandleId,
        (seal_s, copied): (u64, ByteLen),
        size: ByteLen,
        lens: RecordedLens,
    ) -> Outcome<MetaReply> {
        let (file, mut inode, row) = self.moved_file(t, handle)?;
        let data = inode.data(file);
        if self.core.moves.seal_by(data, self.session).is_none_or(|(standing, _)| standing != seal_s) {
            const WHY: &str = "the seal ended before the switch: repeat the last step of the move";
            return Err(Fault::new(Errno::EAGAIN, WHY));
        }
        let (known, compressed_before) = (inode.size, inode.compression());
        inode.set_compression(row.compression);
        let is_converted = inode.compression() != compressed_before;
        let Node::Regular { layout, is_size_valid, touched, epoch, generations, recorded, .. } =
            &mut inode.node
        else {
            return Err(Errno::EINVAL.into());
        };
        if *touched || !*is_size_valid {
            put_row(t, Table::Reap, &file_key(data), &ReapRow { layout: layout.clone() });
            self.core.count_reap_row();
        } else {
            self.core.reservations.release(t, layout)?;
        }
        // A truncation in progress sends a new message before it reaches the new datafiles, and that message lowers the
        // record. Until then the measured lengths are right. The size is found again.
        let may_be_truncated = self.core.opens.lock().may_be_truncated(file)
            || self.core.unknown_writers.lock().may_truncate(file, self.now);
        // Only the new datafiles know the stored bytes of a converted file.
        if *is_size_valid && (known != size || may_be_truncated || is_converted) {
            *is_size_valid = false;
        }
        if !*is_size_valid {
            *epoch = epoch.wrapping_add(1);
        }
        *layout = row.layout;
        generations.now = row.generation;
        *recorded = lens;
        *touched = true;
        t.delete(Table::Moves, &file_key(file));
        put_inode(t, file, &inode);
        self.core.moves.switched(data, self.now);
        self.core.moves.completed(file, copied, self.now);
        Ok(MetaReply::Done)
    }

    /// Moves in progress or abandoned, of the caller's files or, for root, of all.
    pub(super) fn moves(&self, s: &dyn Snapshot, after: FileId) -> Outcome<MetaReply> {
        let (rows, mut more) = page_after::<MoveRow>(s, Table::Moves, after, MOVES_MAX)?;
        let (mut moves, mut len) = (Vec::new(), 0);
        for (file, row) in rows {
            let Some(inode) = super::tables::inode(s, file)?.filter(|inode| owns(self.caller, inode)) else {
                continue;
            };
            let state = MoveState {
                file,
                // A removed file that is still open has no path.
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

    pub(super) fn abandon_move(&self, t: &mut dyn Transaction, at: &InodePath) -> Outcome<MetaReply> {
        let (file, inode) = walk(t, self, at)?.existing()?;
        if !owns(self.caller, &inode) {
            return Err(Fault::new(Errno::EPERM, "only its owner or root may give up a file's move"));
        }
        if remove_move(t, file)? {
            self.core.moves.abandoned(file);
            self.core.count_reap_row();
        }
        Ok(MetaReply::Done)
    }
}

/// Number of moves in progress or interrupted.
pub(super) fn count_rows(s: &dyn Snapshot) -> Outcome<u64> {
    let mut rows = 0;
    s.scan(Table::Moves, Bound::Unbounded, &mut |_, _| {
        rows += 1;
        Ok(Scan::Next)
    })?;
    Ok(rows)
}

/// File ids and layouts of all datafiles that a move is filling or has abandoned.
pub(super) fn move_destinations(s: &dyn Snapshot) -> Outcome<Vec<(FileId, Layout)>> {
    let mut found = Vec::new();
    s.scan(Table::Moves, Bound::Unbounded, &mut |key, value| {
        let row: MoveRow = value.open(Table::Moves, key)?;
        found.push((file_of_key(key).of_generation(row.generation), row.layout));
        Ok(Scan::Next)
    })?;
    Ok(found)
}
