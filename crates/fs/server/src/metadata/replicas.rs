//! Replicas: reorganized copies of byte ranges of a file, kept together with it.
//!
//! The data of a replica is an inode without a name. A row in `replicas` names it. At any time, every client that has
//! the file open either uses the replica or does not. The bytes that a used replica maps are those in its data; the
//! file's own copies of them do not count.
//!
//! ```text
//!  none ──CreateReplica──▶ copying ──PublishReplica──▶ valid, clean ──MarkReplica──▶ valid, dirty
//!                             ▲                          │     ▲                         │
//!                             |                          |     └───SynchronizedReplica───┘
//!                             └────CreateReplica──── outdated   a client that does not use it
//!                                                               opens the file for writing
//! ```
//!
//! The open of a file decides for this and all later clients, and only if no other client can have the file open and
//! the replica is clean. Otherwise the last decision stands. So clients agree without messages to each other, and no
//! byte has two current copies.
//!
//! | event | result |
//! |---|---|
//! | a client is lost, or the service restarts | the decision stands until the client's capabilities have ended, or a seal rejects them |
//! | a client returns with another decision than the present one | its open is lost |
//! | the file is truncated by name | a client that uses the replica must open it first; else the replica is outdated |
//! | the file is removed | its replica too |
//! | a target fills up | clean replicas of files that nobody has open are dropped (`replica_space`) |
//! | somebody writes while the bytes are copied | the copy is not published |
//!
//! `docs/design/replicas.md` gives the reasons.

use super::fault::{Fault, Outcome};
use super::op::{Core, Op, seconds};
use super::open::{OpenOrigin, Urgency};
use super::opens::OpenEntry;
use super::permit::owns;
use super::tables::{
    change_inode, file_of_key, inode, named_inode, page_after, path_of, put_inode, put_row, row,
};
use super::walk::walk;
use std::ops::Bound;
use weft_core::replicas::{DirtyRegions, Phase};
use weft_core::{CompressionSetting, FileId, Timestamp};
use weft_env::mutants::{Mutant, is_seeded};
use weft_store::metadata::{
    Inode, Node, PERMISSION_BITS, ReplicaRow, Scan, Snapshot, Table, Transaction, file_key,
};
use weft_wire::meta::{
    FenceKind, HandleId, InodePath, LayoutSpec, MetaReply, Opened, REPLICAS_MAX, Redirected, ReplicaInfo,
    ReplicaSpec,
};
use weft_wire::{BoundSession, Errno, Rights};

/// Approximate maximum size of a reply with replicas.
const REPLY_LEN_MAX: usize = 512 << 10;
/// Longest time in seconds that fences and seals of a file may be ahead of its capabilities without them. Each one
/// postpones the capabilities after it by a second. The fences of the next start must be later; see `FENCES_APART_S`.
const FENCES_AHEAD_MAX_S: u64 = 6;
/// Longest encoded mapping.
const MAPPING_LEN_MAX: u32 = 1 << 30;

/// Reason why a file cannot be copied to its replica, or back.
const WRITERS_WHY: &str = "other programs have the file open for writing, or had it open before a restart of the metadata server: \
                           repeat the command later";

/// Whether an open uses the file's replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ReplicaUse {
    pub is_used: bool,
    /// Durable if the decision, or the end of the replica's validity, must be.
    pub urgency: Urgency,
}

impl ReplicaUse {
    const NONE: Self = Self { is_used: false, urgency: Urgency::Lazy };
}

fn replica_row(s: &dyn Snapshot, file: FileId) -> Outcome<Option<ReplicaRow>> {
    row(s, Table::Replicas, &file_key(file))
}

fn put_replica(t: &mut dyn Transaction, file: FileId, row: &ReplicaRow) {
    put_row(t, Table::Replicas, &file_key(file), row);
}

/// Files with replicas.
pub(super) fn replicated_files(s: &dyn Snapshot) -> Outcome<Vec<FileId>> {
    let mut found = Vec::new();
    s.scan(Table::Replicas, Bound::Unbounded, &mut |key, _| {
        found.push(file_of_key(key));
        Ok(Scan::Next)
    })?;
    Ok(found)
}

impl Core {
    /// Whether no client but the one with this open can have the file open.
    fn is_open_nowhere_else(&self, file: FileId, own: (BoundSession, HandleId), op: &Op<'_>) -> bool {
        let opens = self.opens.lock();
        !opens.is_open_except(file, own)
            && !self.unknown_writers.lock().may_write(file, op.now)
            && !self.unknown_holders.lock().may_write(file, op.now)
    }

    /// Epoch that stays the same as long as no client can change the file; `None` if one may be changing it.
    pub(super) fn quiet_epoch(&self, file: FileId, inode: &Inode, now: Timestamp) -> Option<u32> {
        let is_busy = self.opens.lock().is_busy(file) || self.unknown_writers.lock().may_write(file, now);
        match &inode.node {
            Node::Regular { epoch, .. } if !is_busy => Some(*epoch),
            _ => None,
        }
    }

    /// Removes the replica of a file that nobody has open.
    pub(super) fn drop_replica_of(&self, t: &mut dyn Transaction, file: FileId) -> Outcome<()> {
        self.remove_replica(t, file)?;
        // Clients must not rely on bytes that they have cached.
        change_inode(t, file, |inode| {
            if let Node::Regular { epoch, .. } = &mut inode.node {
                *epoch = epoch.wrapping_add(1);
            }
        })
        .map(drop)
    }

    /// Row of a replica without which no client loses bytes or fails: no client may have the file open, and the file has
    /// all bytes.
    pub(super) fn droppable_row(
        &self,
        s: &dyn Snapshot,
        file: FileId,
        now: Timestamp,
    ) -> Outcome<Option<ReplicaRow>> {
        let may_be_open = self.opens.lock().is_open(file)
            || self.unknown_holders.lock().may_write(file, now)
            || self.unknown_writers.lock().may_write(file, now);
        if may_be_open {
            return Ok(None);
        }
        Ok(replica_row(s, file)?.filter(|row| row.dirty.is_empty()))
    }

    /// Forgets lost sessions whose requests the seal `sealed_s` of the file's datafiles rejects.
    fn end_lost_opens(&self, file: FileId, sealed_s: u64) {
        self.unknown_writers.lock().sealed(file, sealed_s);
        self.unknown_holders.lock().sealed(file, sealed_s);
    }

    /// Removes the replica of a file that is removed, or whose replica is given up.
    pub(super) fn remove_replica(&self, t: &mut dyn Transaction, file: FileId) -> Outcome<()> {
        let Some(row) = replica_row(t, file)? else { return Ok(()) };
        t.delete(Table::Replicas, &file_key(file));
        self.opens.lock().set_replicated(file, false);
        match inode(t, row.data)? {
            Some(inode) => self.destroy(t, row.data, &inode),
            None => Ok(()),
        }
    }

    /// Gives the data of a file's replica the file's owner and permissions.
    pub(super) fn set_replica_owner(
        &self,
        t: &mut dyn Transaction,
        file: FileId,
        original: &Inode,
    ) -> Outcome<()> {
        if !self.opens.lock().is_replicated(file) {
            return Ok(());
        }
        let Some(row) = replica_row(t, file)? else { return Ok(()) };
        adopt_owner(self, t, row.data, original)
    }
}

/// Open of the data by the client that copies bytes to it, and has the file open as `open`.
fn copier_entry(open: &OpenEntry, data: FileId) -> OpenEntry {
    OpenEntry {
        file: data,
        read: true,
        write: true,
        readable: true,
        truncate: false,
        caching: false,
        ..*open
    }
}

/// Gives inode `data` the owner and permissions of `original`.
fn adopt_owner(core: &Core, t: &mut dyn Transaction, data: FileId, original: &Inode) -> Outcome<()> {
    let Some(mut inode) = inode(t, data)? else { return Ok(()) };
    if inode.uid != original.uid {
        // The owner of the file need not have asked for the replica.
        super::quotas::change_owner(core, t, (data, &inode), original.uid)?;
    }
    (inode.uid, inode.gid) = (original.uid, original.gid);
    inode.mode = (inode.mode & !PERMISSION_BITS) | (original.mode & PERMISSION_BITS & 0o666);
    put_inode(t, data, &inode);
    Ok(())
}

impl Op<'_> {
    /// Decides whether an open of `file` under `handle` uses the file's replica; see the module. `changes` says whether
    /// the open may change the file, `ranks` how many processes the program has. A replica that is not used is outdated
    /// then.
    pub(super) fn begin_use(
        &self,
        t: &mut dyn Transaction,
        file: FileId,
        (handle, changes): (HandleId, bool),
        ranks: Option<u32>,
    ) -> Outcome<ReplicaUse> {
        let Some(mut row) = self.valid_replica(t, file)? else { return Ok(ReplicaUse::NONE) };
        let (before, was_valid) = (row.used, row.phase);
        if row.dirty.is_empty()
            && (self.core.is_open_nowhere_else(file, (self.session, handle), self)
                || is_seeded(Mutant::LooseReplica))
        {
            // A program of which nothing is known has one process.
            row.used = row.ranks == 0 || row.ranks == ranks.unwrap_or(1);
        }
        self.outdate_unused(&mut row, changes);
        let is_changed = (row.used, row.phase) != (before, was_valid);
        if is_changed {
            put_replica(t, file, &row);
        }
        let urgency = if is_changed { Urgency::Durable } else { Urgency::Lazy };
        Ok(ReplicaUse { is_used: row.used, urgency })
    }

    /// Checks that an open that its client had before still agrees with all others about the replica.
    pub(super) fn resume_use(
        &self,
        t: &mut dyn Transaction,
        file: FileId,
        redirected: Redirected,
        changes: bool,
    ) -> Outcome<Urgency> {
        let is_redirected = matches!(redirected, Redirected::Yes(_));
        let Some(mut row) = self.valid_replica(t, file)? else {
            return if is_redirected { Err(Errno::ESTALE.into()) } else { Ok(Urgency::Lazy) };
        };
        let agreed = if row.used { Redirected::Yes(row.data) } else { Redirected::No };
        if ![agreed, Redirected::Undecided].contains(&redirected) {
            return Err(Errno::ESTALE.into());
        }
        if row.used || !changes {
            return Ok(Urgency::Lazy);
        }
        self.outdate_unused(&mut row, changes);
        put_replica(t, file, &row);
        Ok(Urgency::Durable)
    }

    fn outdate_unused(&self, row: &mut ReplicaRow, changes: bool) {
        if !row.used && changes && !is_seeded(Mutant::KeptReplica) {
            row.phase = Phase::Outdated;
        }
    }

    fn valid_replica(&self, s: &dyn Snapshot, file: FileId) -> Outcome<Option<ReplicaRow>> {
        if !self.core.opens.lock().is_replicated(file) {
            return Ok(None);
        }
        Ok(replica_row(s, file)?.filter(|row| row.phase == Phase::Valid))
    }

    /// Prepares a truncation by name. Returns `None` if the client must open the file first, because it uses its replica.
    pub(super) fn truncate_replicated(
        &self,
        t: &mut dyn Transaction,
        file: FileId,
    ) -> Outcome<Option<Urgency>> {
        let Some(mut row) = self.valid_replica(t, file)? else { return Ok(Some(Urgency::Lazy)) };
        if row.used {
            return Ok(None);
        }
        self.outdate_unused(&mut row, true);
        put_replica(t, file, &row);
        Ok(Some(Urgency::Durable))
    }

    fn open_file(&self, s: &dyn Snapshot, handle: HandleId) -> Outcome<(OpenEntry, Inode)> {
        let open = self.core.opens.lock().get(self.session, handle).ok_or(Errno::EBADF)?;
        Ok((open, named_inode(s, open.file)?))
    }

    fn require_owner(&self, inode: &Inode) -> Outcome<()> {
        if owns(self.caller, inode) {
            return Ok(());
        }
        Err(Fault::new(Errno::EPERM, "only its owner or root may change a file's replica"))
    }

    pub(super) fn create_replica(
        &self,
        t: &mut dyn Transaction,
        (handle, data_handle): (HandleId, HandleId),
        spec: &ReplicaSpec,
        layout: &LayoutSpec,
    ) -> Outcome<(MetaReply, Urgency)> {
        let (open, original) = self.open_file(t, handle)?;
        self.require_owner(&original)?;
        if !matches!(original.node, Node::Regular { .. }) {
            return Err(Errno::EINVAL.into());
        }
        if original.is_inline() {
            const WHY: &str =
                "the file is so small that its bytes are in the metadata: a replica would gain nothing";
            return Err(Fault::new(Errno::EINVAL, WHY));
        }
        if original.nlink == 0 {
            return Err(Fault::new(Errno::ENOENT, "the file was removed"));
        }
        if spec.mapping_len == 0
            || spec.mapping_len > MAPPING_LEN_MAX
            || spec.len.0.checked_add(u64::from(spec.mapping_len)).is_none_or(|end| end > i64::MAX as u64)
        {
            return Err(Fault::new(
                Errno::EINVAL,
                "a replica of this length, or with this mapping, is impossible",
            ));
        }
        let (file, mine) = (open.file, (self.session.0, handle.0));
        if let Some(row) = replica_row(t, file)? {
            let copier = (BoundSession(row.session), HandleId(row.handle));
            let is_copied =
                self.core.opens.lock().get(copier.0, copier.1).is_some_and(|open| open.file == file);
            if row.phase == Phase::Valid {
                const WHY: &str = "the file has a replica; `weft replicate drop` removes it";
                return Err(Fault::new(Errno::EEXIST, WHY));
            }
            if row.phase == Phase::Copying && is_copied && (row.session, row.handle) != mine {
                return Err(Fault::new(Errno::EBUSY, "another program creates a replica of the file"));
            }
            self.core.remove_replica(t, file)?;
        }
        let dir = named_inode(t, original.parent)?;
        let request = LayoutSpec {
            compression: layout.compression.or(Some(CompressionSetting::Off)),
            ..layout.clone()
        };
        let (data, _) = self.make_unnamed(t, (original.parent, dir), 0, &request)?;
        t.delete(Table::Orphans, &file_key(data));
        // The row below is its link.
        change_inode(t, data, |inode| inode.nlink = 1)?;
        adopt_owner(self.core, t, data, &original)?;
        let ReplicaSpec { ranks, len, mapping_len, mapping_hash, gain_us } = *spec;
        let row = ReplicaRow {
            data,
            ranks,
            len,
            mapping_len,
            mapping_hash,
            gain_us,
            phase: Phase::Copying,
            used: false,
            dirty: Vec::new(),
            epoch: None,
            session: mine.0,
            handle: mine.1,
        };
        put_replica(t, file, &row);
        self.core.opens.lock().set_replicated(file, true);
        let entry = copier_entry(&open, data);
        let data_inode = named_inode(t, data)?;
        let opened = self.open_inode(t, data, &data_inode, data_handle, entry, true)?;
        Ok((MetaReply::Opened(Box::new(opened)), Urgency::Durable))
    }

    /// Repeats the stored reply of a creation, and registers the open of the data again.
    pub(super) fn create_replica_again(
        &self,
        t: &mut dyn Transaction,
        (handle, data_handle): (HandleId, HandleId),
        reply: MetaReply,
    ) -> Outcome<MetaReply> {
        let MetaReply::Opened(opened) = &reply else { return Ok(reply) };
        if self.core.opens.lock().get(self.session, data_handle).is_some() {
            return Ok(reply);
        }
        let (open, _) = self.open_file(t, handle)?;
        let (row, data) = (self.own_copy(t, open.file, handle)?, opened.attr.file);
        if row.data != data {
            return Err(Errno::ESTALE.into());
        }
        let entry = copier_entry(&open, data);
        let (opened, _) = self.open_data(t, data, data_handle, entry)?;
        Ok(MetaReply::Opened(Box::new(opened)))
    }

    /// Row of the replica that this session is creating.
    fn own_copy(&self, s: &dyn Snapshot, file: FileId, handle: HandleId) -> Outcome<ReplicaRow> {
        let row = replica_row(s, file)?.filter(|row| {
            row.phase == Phase::Copying && (row.session, row.handle) == (self.session.0, handle.0)
        });
        row.ok_or_else(|| Fault::new(Errno::ESTALE, "the creation of this replica was given up"))
    }

    /// Begins a copy. The file's datafiles have the seal `sealed_s`, if that is not 0.
    pub(super) fn copy_replica(
        &self,
        t: &mut dyn Transaction,
        handle: HandleId,
        sealed_s: u64,
    ) -> Outcome<MetaReply> {
        let (open, original) = self.open_file(t, handle)?;
        let mut row = self.own_copy(t, open.file, handle)?;
        self.require_owner(&original)?;
        self.core.end_lost_opens(open.file, sealed_s);
        row.epoch = self.core.quiet_epoch(open.file, &original, self.now);
        if row.epoch.is_none() {
            return Err(Fault::new(Errno::EBUSY, WRITERS_WHY));
        }
        put_replica(t, open.file, &row);
        Ok(MetaReply::Done)
    }

    /// Gives up a copy. A replica that another client has created since stays.
    pub(super) fn abandon_replica(&self, t: &mut dyn Transaction, handle: HandleId) -> Outcome<MetaReply> {
        let (open, _) = self.open_file(t, handle)?;
        self.own_copy(t, open.file, handle)?;
        self.core.remove_replica(t, open.file)?;
        Ok(MetaReply::Done)
    }

    pub(super) fn publish_replica(&self, t: &mut dyn Transaction, handle: HandleId) -> Outcome<MetaReply> {
        let (open, original) = self.open_file(t, handle)?;
        let mut row = self.own_copy(t, open.file, handle)?;
        let now = self.core.quiet_epoch(open.file, &original, self.now);
        if now.is_none() || now != row.epoch {
            return Err(Fault::new(Errno::EAGAIN, "the file was changed while it was copied"));
        }
        row.phase = Phase::Valid;
        row.used = self.core.is_open_nowhere_else(open.file, (self.session, handle), self);
        put_replica(t, open.file, &row);
        Ok(MetaReply::Done)
    }

    pub(super) fn open_replica(
        &self,
        t: &mut dyn Transaction,
        handle: HandleId,
        data_handle: HandleId,
    ) -> Outcome<(MetaReply, Urgency)> {
        let (open, original) = self.open_file(t, handle)?;
        let row = self.valid_replica(t, open.file)?.ok_or(Errno::ENOENT)?;
        // Others only compare it.
        let entry = match row.used {
            true => {
                OpenEntry { file: row.data, caching: false, write: open.changes(), truncate: false, ..open }
            }
            false => {
                self.require_owner(&original)?;
                OpenEntry { file: row.data, caching: false, write: false, truncate: false, ..open }
            }
        };
        let info = Box::new(self.replica_info(t, open.file, &original, &row));
        let (opened, urgency) = self.open_data(t, row.data, data_handle, entry)?;
        Ok((MetaReply::ReplicaOpened { info, opened: Box::new(opened) }, urgency))
    }

    /// Opens the data of a replica.
    fn open_data(
        &self,
        t: &mut dyn Transaction,
        data: FileId,
        handle: HandleId,
        entry: OpenEntry,
    ) -> Outcome<(Opened, Urgency)> {
        let mut inode = named_inode(t, data)?;
        if self.core.opens.lock().get(self.session, handle).is_some_and(|open| open.file != data) {
            return Err(Errno::EALREADY.into());
        }
        let (mut known, mut urgency) = (true, Urgency::Lazy);
        if let Node::Regular { is_size_valid, epoch, .. } = &mut inode.node
            && entry.changes()
        {
            known = *is_size_valid;
            urgency = self.core.mark_size_invalid(data, known);
            (*is_size_valid, *epoch) = (false, epoch.wrapping_add(1));
            put_inode(t, data, &inode);
        }
        Ok((self.open_inode(t, data, &inode, handle, entry, known)?, urgency))
    }

    pub(super) fn bypass_replica(&self, t: &mut dyn Transaction, handle: HandleId) -> Outcome<MetaReply> {
        let open = self.core.opens.lock().get(self.session, handle).ok_or(Errno::EBADF)?;
        let Some(mut row) = self.valid_replica(t, open.file)?.filter(|row| row.used) else {
            return Ok(MetaReply::Done);
        };
        if !row.dirty.is_empty() || !self.core.is_open_nowhere_else(open.file, (self.session, handle), self) {
            const WHY: &str = "other programs use the file's replica, or may use it, or it has bytes that the file does not have";
            return Err(Fault::new(Errno::EBUSY, WHY));
        }
        row.used = false;
        self.outdate_unused(&mut row, open.changes());
        put_replica(t, open.file, &row);
        Ok(MetaReply::Done)
    }

    pub(super) fn mark_replica(
        &self,
        t: &mut dyn Transaction,
        handle: HandleId,
        (first, count): (u32, u32),
    ) -> Outcome<MetaReply> {
        let open = self.core.opens.lock().get(self.session, handle).ok_or(Errno::EBADF)?;
        let row = self.valid_replica(t, open.file)?.filter(|row| row.used && open.changes());
        let mut row = row.ok_or_else(|| Fault::new(Errno::ESTALE, "the file's replica was dropped"))?;
        let mut dirty = DirtyRegions::from_bitmap(row.len.0, &row.dirty);
        let end = u64::from(first) + u64::from(count);
        for number in u64::from(first)..end.min(dirty.number_end()) {
            dirty.insert(number);
        }
        row.dirty = dirty.bitmap();
        put_replica(t, open.file, &row);
        Ok(MetaReply::Done)
    }

    /// Time of a fence or seal, and a capability that passes it.
    pub(super) fn fence_file(
        &self,
        s: &dyn Snapshot,
        handle: HandleId,
        kind: FenceKind,
    ) -> Outcome<MetaReply> {
        let (open, inode) = self.open_file(s, handle)?;
        if !open.changes() {
            if kind != FenceKind::All {
                return Err(Errno::EBADF.into());
            }
            self.require_owner(&inode)?;
            // An append consists of several exchanges, and would end half done.
            if self.core.opens.lock().is_busy(open.file) {
                return Err(Fault::new(Errno::EBUSY, "other programs have the file open for writing"));
            }
        }
        if kind != FenceKind::Writes && self.core.moves.is_moving(open.file) {
            return Err(Fault::new(Errno::EBUSY, "the file gets another layout"));
        }
        let data = inode.data(open.file);
        // A restart postpones the capabilities of all earlier files. The fences of the next one are as far ahead of its time, and
        // further.
        let now_s = seconds(self.now);
        let usual_s =
            (now_s + self.core.capability_life_s).max(self.core.fences.lock().of_start(open.file, now_s));
        if self.core.data_fence_of(data, self.now) > usual_s + FENCES_AHEAD_MAX_S {
            return Err(Fault::new(Errno::EAGAIN, "the file had too many fences within the last seconds"));
        }
        let limit = self.write_limit(s, open.file, &inode)?;
        if kind == FenceKind::AllUntilReleased {
            let fence = |data| self.core.data_fence(data, self.now);
            let fence_s = self.core.moves.hold(data, self.session, self.now, fence);
            let rights = self.capability(&inode, &open, None).rights.and(Rights::MOVE);
            let cap = self.limited(self.grant_until(data, rights, fence_s), limit);
            return Ok(MetaReply::LockedFenced { cap, fence_s });
        }
        let fence_s = {
            // No session is lost between the two.
            let (mut writers, mut holders) =
                (self.core.unknown_writers.lock(), self.core.unknown_holders.lock());
            let fence_s = self.core.data_fence(data, self.now);
            if kind == FenceKind::All {
                writers.expect_seal(open.file, fence_s);
                holders.expect_seal(open.file, fence_s);
            }
            fence_s
        };
        let mut cap = self.capability(&inode, &open, limit);
        if kind == FenceKind::All {
            cap = self.limited(self.grant(data, cap.rights.and(Rights::MOVE)), limit);
        }
        if cap.expires_s < fence_s {
            return Err(Fault::new(Errno::EAGAIN, "the file is about to get its new layout"));
        }
        Ok(MetaReply::LockedFenced { cap, fence_s })
    }

    pub(super) fn release_seal(&self, s: &dyn Snapshot, handle: HandleId) -> Outcome<MetaReply> {
        let (open, inode) = self.open_file(s, handle)?;
        match self.core.moves.release(inode.data(open.file), self.session, self.now) {
            true => Ok(MetaReply::Done),
            false => Err(Errno::ESTALE.into()),
        }
    }

    pub(super) fn synchronized_replica(
        &self,
        t: &mut dyn Transaction,
        handle: HandleId,
        epoch: u64,
        sealed_s: u64,
    ) -> Outcome<MetaReply> {
        let (open, original) = self.open_file(t, handle)?;
        if owns(self.caller, &original) {
            self.core.end_lost_opens(open.file, sealed_s);
        }
        let row = self.valid_replica(t, open.file)?.filter(|row| row.used && open.write);
        let mut row = row.ok_or(Errno::ENOENT)?;
        let is_written_elsewhere =
            self.core.opens.lock().is_changed_except(open.file, (self.session, handle))
                || self.core.unknown_writers.lock().may_write(open.file, self.now);
        if is_written_elsewhere || self.core.epoch_of(&original) != epoch {
            return Err(Fault::new(Errno::EAGAIN, WRITERS_WHY));
        }
        row.dirty.clear();
        put_replica(t, open.file, &row);
        Ok(MetaReply::Done)
    }

    pub(super) fn drop_replica(
        &self,
        t: &mut dyn Transaction,
        at: &InodePath,
        force: bool,
    ) -> Outcome<MetaReply> {
        let (file, inode) = walk(t, self, at)?.existing()?;
        self.require_owner(&inode)?;
        let row = replica_row(t, file)?.ok_or(Errno::ENOENT)?;
        let is_used = row.phase == Phase::Valid && row.used;
        if is_used && self.core.opens.lock().is_open(file) {
            return Err(Fault::new(
                Errno::EBUSY,
                "programs use the replica: repeat the command when they have ended",
            ));
        }
        if is_used && !row.dirty.is_empty() && !force {
            const WHY: &str = "the replica has bytes that the file does not have: `weft replicate sync` copies them to the \
                               file, `weft replicate drop --force` gives them up";
            return Err(Fault::new(Errno::EBUSY, WHY));
        }
        self.core.drop_replica_of(t, file)?;
        Ok(MetaReply::Done)
    }

    fn replica_info(&self, s: &dyn Snapshot, file: FileId, inode: &Inode, row: &ReplicaRow) -> ReplicaInfo {
        let ReplicaRow { ranks, len, mapping_len, mapping_hash, gain_us, .. } = *row;
        let (opens, writers) = {
            let all = self.core.opens.lock();
            (all.count(file), all.writers(file))
        };
        ReplicaInfo {
            file,
            // A removed file that is still open has no path.
            path: path_of(s, file).unwrap_or_default(),
            spec: ReplicaSpec { ranks, len, mapping_len, mapping_hash, gain_us },
            phase: row.phase,
            is_used: row.used,
            opens,
            dirty: row.dirty.clone(),
            epoch: self.core.epoch_of(inode),
            writers,
            has_lost_opens: self.core.unknown_writers.lock().is_lost(file, self.now)
                || self.core.unknown_holders.lock().is_lost(file, self.now),
        }
    }

    pub(super) fn replica(&self, s: &dyn Snapshot, at: &InodePath) -> Outcome<MetaReply> {
        let (file, inode) = walk(s, self, at)?.existing()?;
        let row = replica_row(s, file)?;
        let replicas = row.iter().map(|row| self.replica_info(s, file, &inode, row)).collect();
        Ok(MetaReply::Replicas { replicas, more: None })
    }

    /// Replicas of the caller's files or, for root, of all.
    pub(super) fn replicas(&self, s: &dyn Snapshot, after: FileId) -> Outcome<MetaReply> {
        let (rows, mut more) = page_after::<ReplicaRow>(s, Table::Replicas, after, REPLICAS_MAX)?;
        let (mut replicas, mut len) = (Vec::new(), 0);
        for (file, row) in rows {
            let Some(inode) = inode(s, file)?.filter(|inode| owns(self.caller, inode)) else { continue };
            let info = self.replica_info(s, file, &inode, &row);
            len += postcard::experimental::serialized_size(&info).unwrap_or(0);
            replicas.push(info);
            if len > REPLY_LEN_MAX {
                more = Some(file);
                break;
            }
        }
        Ok(MetaReply::Replicas { replicas, more })
    }

    /// Registers an open of an existing inode, and returns what the client needs.
    fn open_inode(
        &self,
        s: &dyn Snapshot,
        file: FileId,
        inode: &Inode,
        handle: HandleId,
        open: OpenEntry,
        known: bool,
    ) -> Outcome<Opened> {
        self.opened_as(OpenOrigin::New, s, file, inode, handle, open, false, false, known)
    }
}
