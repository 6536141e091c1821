//! Context of an operation apart from the database: caller, time, and state in memory. Capabilities are issued here.

use super::UserBounds;
use super::byte_leases::ByteLeases;
use super::closed_targets::ClosedTargets;
use super::cluster_map::SharedMap;
use super::compression::{DefaultCompression, datafile_settings};
use super::fault::{Fault, Outcome};
use super::fences::Fences;
use super::inline::{Growths, UnsyncedBytes};
use super::layouts::Layouts;
use super::moves::Moves;
use super::name_leases::NameLeases;
use super::open::Urgency;
use super::opens::Opens;
use super::permit::{WRITE, allows, owns};
use super::quotas::Quotas;
use super::rules::Rules;
use super::server_health::ServerHealth;
use super::space_reservations::SpaceReservations;
use super::targets::Registry;
use super::unknown_writers::UnknownWriters;
use parking_lot::{Mutex, RwLock};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weft_core::parts::SpaceLeft;
use weft_core::{ByteLen, FileId, Nanos, Timestamp};
use weft_env::mutants::{Mutant, is_seeded};
use weft_store::metadata::{Inode, Node, NodeKind, PERMISSION_BITS, Snapshot, Table, Transaction, file_key};
use weft_wire::BoundSession;
use weft_wire::hello::{Identity, JobNumber};
use weft_wire::meta::{Attr, FileType, InvalidSize, ROOT};
use weft_wire::{Capability, ClusterSecret, Errno, Level, Levels, Rights, WalkProof};

/// Nominal length of a directory.
const DIRECTORY_LEN: ByteLen = ByteLen(4096);

/// Minimum length of a file whose removal waits until its space is free. Freeing it takes so long that the next file
/// would otherwise meet a full target. Smaller files come in larger numbers.
const LARGE_FILE_LEN_MIN: ByteLen = ByteLen::from_mib(16);

/// State of the service apart from the database.
pub(super) struct Core {
    /// Servers and targets of the cluster.
    pub map: SharedMap,
    /// Whether the database has the map.
    pub keeps_map: bool,
    /// Feature levels that this server knows.
    pub levels: Levels,
    pub layouts: Layouts,
    /// Compression of new files without another setting.
    pub compression: RwLock<DefaultCompression>,
    pub reservations: SpaceReservations,
    /// Locked after the database if both are locked.
    pub rules: Mutex<Rules>,
    /// Limits of users and trees. Locked after the database if both are locked.
    pub quotas: Mutex<Quotas>,
    pub secret: ClusterSecret,
    /// Limits of one user. They do not apply to root and `owner_uid`.
    pub bounds: UserBounds,
    /// User who runs the server.
    pub owner_uid: u32,
    /// Lifetime of a capability.
    pub capability_life_s: u64,
    /// State of the data servers, and free space of their targets.
    pub server_health: ServerHealth,
    /// Recorded targets.
    pub registry: Registry,
    /// Number of this start. It is the upper half of every epoch, so no epoch is valid after a restart.
    pub incarnation: u32,
    /// Time until which mounts that keep pages may not have reported after a restart. Zero at the first start.
    pub cautious_until: Timestamp,
    /// Locked after the database if both are locked.
    pub opens: Mutex<Opens>,
    /// Files that may have unknown writers.
    pub unknown_writers: Mutex<UnknownWriters>,
    /// Files with replicas that may be open in clients of which the service has no record.
    pub unknown_holders: Mutex<UnknownWriters>,
    /// Files that may have an appending client without the append lock.
    pub fences: Mutex<Fences>,
    /// Fences by file id of datafiles.
    pub data_fences: Mutex<Fences>,
    /// Files that are being moved to other layouts.
    pub moves: Moves,
    /// Maximum size of files whose bytes are in the database; 0 for none.
    pub inline_max: ByteLen,
    /// First file id that this start of the service may assign.
    pub first_of_start: FileId,
    /// Inline files that are being copied to datafiles. Locked after the database if both are locked.
    pub growths: Mutex<Growths>,
    /// Changes of inline files that are not durable. Locked after the database if both are locked.
    pub unsynced_bytes: Mutex<UnsyncedBytes>,
    /// Bytes of inline files that clients use. Locked after the database if both are locked.
    pub byte_leases: Mutex<ByteLeases>,
    /// Names and attributes that mounts use. Locked after the database if both are locked, and before the sessions.
    pub name_leases: Mutex<NameLeases>,
    /// Latest end of a capability that no fence postponed, in seconds since 1970.
    pub granted_latest_s: AtomicU64,
    /// Number of rows in `reap`.
    pub reaping: AtomicU64,
    /// Whether a row was added to `reap`.
    pub reap_wanted: AtomicBool,
    /// Large files among them.
    pub freeing: Mutex<PendingFrees>,
}

/// Large files whose space is being freed while their removers wait.
#[derive(Default)]
pub(super) struct PendingFrees {
    pub files: BTreeSet<FileId>,
    /// Whether the reaper makes progress, so that waiting makes sense.
    pub runs: bool,
}

impl PendingFrees {
    /// Begins a pass of the reaper. Returns the files that are freed by its end.
    pub fn begin(&mut self) -> BTreeSet<FileId> {
        self.runs = true;
        self.files.clone()
    }

    /// Reports the space of these files as free.
    pub fn freed<'a>(&mut self, files: impl IntoIterator<Item = &'a FileId>) {
        for file in files {
            self.files.remove(file);
        }
    }

    /// Ends all waiting until the reaper makes progress again.
    pub fn stalled(&mut self) {
        *self = Self::default();
    }
}

/// One request.
pub(super) struct Op<'a> {
    pub core: &'a Core,
    pub caller: &'a Identity,
    pub session: BoundSession,
    /// Feature level of the connection.
    pub level: Level,
    /// Job of the session.
    pub job: Option<JobNumber>,
    /// Whether the peer is a server or root, and may name inodes by number alone.
    pub trusted: bool,
    /// Whether the peer acts for other users, as the kernel of their host does.
    pub acts_for_users: bool,
    pub now: Timestamp,
    /// Time of the service's monotonic clock, before the step on the database began.
    pub clock: Nanos,
    /// Inline file whose bytes this request changes; see [`Core::unsynced_bytes`].
    pub changed_bytes: Cell<Option<FileId>>,
    /// Whether an earlier request made this change already.
    pub is_repeated: Cell<bool>,
}

pub(super) fn file_type(kind: NodeKind) -> FileType {
    match kind {
        NodeKind::Regular => FileType::Regular,
        NodeKind::Directory => FileType::Directory,
        NodeKind::Symlink => FileType::Symlink,
        NodeKind::Fifo => FileType::Fifo,
        NodeKind::Socket => FileType::Socket,
        NodeKind::CharDevice => FileType::CharDevice,
        NodeKind::BlockDevice => FileType::BlockDevice,
    }
}

pub(super) fn seconds(time: Timestamp) -> u64 {
    u64::try_from(time.parts().0).unwrap_or(0)
}

impl Core {
    /// Limits of a user; `None` for root and the user who runs the server.
    pub(super) fn bounds_of(&self, caller: &Identity) -> Option<&UserBounds> {
        (!caller.is_root() && caller.uid != self.owner_uid).then_some(&self.bounds)
    }

    /// Issues a capability for the datafiles `data`.
    fn grant(&self, session: BoundSession, data: FileId, rights: Rights, now: Timestamp) -> Capability {
        let now_s = seconds(now);
        self.registry.note_grant();
        // No capability for a sealed file outlasts the seal.
        let expires_s = self.moves.end_of(data, now, || {
            let usual_s = now_s + self.capability_life_s;
            self.granted_latest_s.fetch_max(usual_s, Ordering::Relaxed);
            let of_data_s = self.data_fences.lock().of(data, now_s);
            usual_s
                .max(self.fence_of(data.inode(), now))
                .max(of_data_s)
                .max(self.registry.capabilities_from_s())
        });
        self.secret.grant(session, data, rights, expires_s)
    }

    /// Fences `file`, whose append lock is taken from a client that may still be writing. The next holder learns of it.
    pub(super) fn fence(&self, file: FileId, now: Timestamp) {
        let before_s = self.latest_s(file, now) + 1;
        self.fences.lock().put(file, before_s, seconds(now));
    }

    /// Separates earlier capabilities for `data` from later ones. Returns a time before which all earlier ones end.
    pub(super) fn data_fence(&self, data: FileId, now: Timestamp) -> u64 {
        let (latest_s, now_s) = (self.latest_s(data.inode(), now), seconds(now));
        let mut fences = self.data_fences.lock();
        let before_s = latest_s.max(fences.of(data, now_s)) + 1;
        fences.put(data, before_s, now_s);
        before_s
    }

    /// Whether any datafile may be fenced.
    pub(super) fn any_data_fence(&self) -> bool {
        self.data_fences.lock().any()
    }

    /// Fence of the datafiles `data`; 0 if there is none.
    pub(super) fn data_fence_of(&self, data: FileId, now: Timestamp) -> u64 {
        self.data_fences.lock().of(data, seconds(now))
    }

    /// Time by which all capabilities end that were issued until `now`, in seconds since 1970.
    pub(super) fn capabilities_end_by_s(&self, now: Timestamp) -> u64 {
        let fences_s = self.fences.lock().latest_s().max(self.data_fences.lock().latest_s());
        self.usual_end_s(now).max(fences_s).max(self.registry.capabilities_from_s())
    }

    /// Time by which all capabilities end that were issued until `now` and that no fence postponed.
    fn usual_end_s(&self, now: Timestamp) -> u64 {
        self.granted_latest_s.load(Ordering::Relaxed).max(seconds(now) + self.capability_life_s)
    }

    /// Latest end of any capability for the file that no fence of its datafiles postponed. Those that were postponed
    /// for other files do not count; otherwise each fence would be much later than the one before.
    fn latest_s(&self, file: FileId, now: Timestamp) -> u64 {
        // Targets refuse capabilities that end before the last of these.
        self.usual_end_s(now).max(self.fence_of(file, now)).max(self.registry.capabilities_from_s())
    }

    /// Fence of `file`; 0 if there is none.
    pub(super) fn fence_of(&self, file: FileId, now: Timestamp) -> u64 {
        self.fences.lock().of(file, seconds(now))
    }

    /// Latest end of a capability issued at `now`.
    pub(super) fn granted_until(&self, now: Timestamp) -> Timestamp {
        Timestamp(now.0 + i128::from(self.capability_life_s + 1) * 1_000_000_000)
    }

    /// How urgently it must be durable that the inode of `file` has no valid size, given that it had one when `known`.
    /// If another request wrote that but a crash could undo it, waiting is needed too.
    pub(super) fn mark_size_invalid(&self, file: FileId, known: bool) -> Urgency {
        let mut opens = self.opens.lock();
        if known && !is_seeded(Mutant::EarlyMark) {
            opens.await_durability(file);
        }
        if known || opens.awaits_durability(file) { Urgency::Durable } else { Urgency::Lazy }
    }

    /// Whether mounts may keep pages that have not reported after a restart.
    pub(super) fn is_cautious(&self, now: Timestamp) -> bool {
        now < self.cautious_until
    }

    /// Epoch as clients see it.
    pub(super) fn epoch(&self, epoch: u32) -> u64 {
        u64::from(self.incarnation) << 32 | u64::from(epoch)
    }

    pub(super) fn epoch_of(&self, inode: &Inode) -> u64 {
        match &inode.node {
            Node::Regular { epoch, .. } => self.epoch(*epoch),
            _ => 0,
        }
    }

    /// Removes an inode that has lost its last name, or records it as an orphan if it is open.
    pub(super) fn orphan_or_destroy(
        &self,
        t: &mut dyn Transaction,
        file: FileId,
        inode: &Inode,
    ) -> Outcome<()> {
        if self.opens.lock().orphan(file) {
            super::tables::put_row(t, Table::Orphans, &file_key(file), &());
            super::tables::put_inode(t, file, inode);
            return Ok(());
        }
        self.destroy(t, file, inode)
    }

    /// Removes an inode that is not open.
    pub(super) fn destroy(&self, t: &mut dyn Transaction, file: FileId, inode: &Inode) -> Outcome<()> {
        if inode.is_dir() {
            let mut rules = self.rules.lock();
            if rules.has(file) {
                t.delete(Table::Rules, &file_key(file));
                rules.forget(file);
            }
        }
        self.uncharge(t, file, inode)?;
        let reaped = super::tables::destroy(t, file, inode)?;
        if super::moves::remove_move(t, file)? {
            self.moves.removed(file);
            self.count_reap_row();
        }
        if self.opens.lock().is_replicated(file) {
            self.remove_replica(t, file)?;
        }
        if reaped {
            self.count_reap_row();
            if inode.size >= LARGE_FILE_LEN_MIN {
                let mut freeing = self.freeing.lock();
                if freeing.runs {
                    freeing.files.insert(inode.data(file));
                }
            }
        } else if let Node::Regular { layout, .. } = &inode.node {
            self.reservations.release(t, layout)?;
        }
        Ok(())
    }

    /// Targets that take no new files.
    pub(super) fn closed(&self) -> ClosedTargets {
        let mut closed = self.server_health.closed();
        self.registry.close(&mut closed);
        closed
    }

    /// Space that layouts may still reserve, on each target with limited space.
    pub(super) fn available_space(&self, s: &dyn Snapshot) -> Outcome<SpaceLeft> {
        let mut left = self.reservations.available(s)?;
        self.server_health.limit(&mut left);
        Ok(left)
    }

    /// Counts a row added to `reap`.
    pub(super) fn count_reap_row(&self) {
        self.reaping.fetch_add(1, Ordering::Relaxed);
        self.reap_wanted.store(true, Ordering::Relaxed);
    }

    /// Attributes for the caller of `op`.
    fn attr(&self, op: &Op<'_>, file: FileId, inode: &Inode) -> Attr {
        let now = op.now;
        let mut attr = Attr {
            file,
            proof: self.secret.prove_walk(file, op.session),
            kind: file_type(inode.kind()),
            mode: inode.mode & PERMISSION_BITS,
            uid: inode.uid,
            gid: inode.gid,
            nlink: inode.nlink,
            size: inode.size,
            blocks_512: inode.blocks_512,
            atime: inode.atime,
            mtime: inode.mtime,
            ctime: inode.ctime,
            rdev: 0,
            invalid_size: None,
        };
        match &inode.node {
            Node::Regular { layout, is_size_valid: false, epoch, recorded, .. } => {
                // A caller who may truncate the file to any length may also report its length.
                let may_validate = owns(op.caller, inode) || allows(op.caller, inode, WRITE);
                let rights =
                    if may_validate { Rights::LENGTH.and(Rights::VALIDATE_SIZE) } else { Rights::LENGTH };
                let rights = rights.and(datafile_settings(inode));
                let has_no_writer =
                    !self.opens.lock().is_busy(file) && !self.unknown_writers.lock().may_write(file, now);
                attr.invalid_size = Some(Box::new(InvalidSize {
                    layout: layout.clone(),
                    cap: self.grant(op.session, inode.data(file), rights, now),
                    epoch: self.epoch(*epoch),
                    may_validate_size: may_validate && has_no_writer,
                    mtime_set_at: inode.mtime_set_at,
                    recorded: recorded.clone(),
                }));
            }
            Node::Regular { .. } => {}
            Node::Directory { .. } => {
                (attr.size, attr.blocks_512) = (DIRECTORY_LEN, DIRECTORY_LEN.0 / 512);
            }
            Node::Symlink { target } => attr.size = ByteLen(target.len() as u64),
            Node::Special { rdev, .. } => attr.rdev = *rdev,
        }
        attr
    }
}

impl Op<'_> {
    /// Limits of the user on whose behalf the request is; `None` for root and the user who runs the server.
    pub(super) fn bounds(&self) -> Option<&UserBounds> {
        self.core.bounds_of(self.caller)
    }

    pub(super) fn attr(&self, file: FileId, inode: &Inode) -> Attr {
        self.core.attr(self, file, inode)
    }

    /// Issues a capability for the datafiles `data` to the caller's session.
    pub(super) fn grant(&self, data: FileId, rights: Rights) -> Capability {
        self.core.grant(self.session, data, rights, self.now)
    }

    /// Issues a capability that outlasts the seal of `data`, for the mover.
    pub(super) fn grant_until(&self, data: FileId, rights: Rights, expires_s: u64) -> Capability {
        self.core.secret.grant(self.session, data, rights, expires_s)
    }

    /// Whether `cap` was issued to the caller's session for any datafiles of `file`, with these rights, and has not
    /// expired.
    pub(super) fn holds(&self, cap: &Capability, file: FileId, rights: Rights) -> bool {
        cap.file.inode() == file && self.core.secret.verify(self.session, cap, cap.file, rights, self.now)
    }

    /// Checks that `session` has reached `file` by a permitted walk. Servers and root need no proof, but a given proof
    /// must be right.
    pub(super) fn require_reached(
        &self,
        session: BoundSession,
        file: FileId,
        proof: Option<&WalkProof>,
    ) -> Outcome<()> {
        let holds = match proof {
            Some(proof) => self.core.secret.walk_holds(proof, file, session),
            None => self.trusted || file == ROOT,
        };
        if holds {
            return Ok(());
        }
        let detail =
            format!("inode {file}: this session has not reached it by a path: look it up from the root");
        Err(Fault::new(Errno::EACCES, detail))
    }
}
