//! What every operation needs beside the database: who asks, when, and what the service knows.

use super::UserBounds;
use super::closed::Closed;
use super::fault::{Fault, Outcome};
use super::fences::Fences;
use super::free::Free;
use super::ghosts::Ghosts;
use super::layouts::Layouts;
use super::moves::Moves;
use super::open::Urgency;
use super::opens::Opens;
use super::permit::{WRITE, allows, owns};
use super::rooms::Rooms;
use super::rules::Rules;
use super::targets::Registry;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weft_core::parts::RoomLeft;
use weft_core::{ByteLen, FileId, Timestamp};
use weft_env::plants::{Plant, planted};
use weft_store::metadata::{Inode, Node, NodeKind, PERMISSION_BITS, Snapshot, Table, Transaction, file_key};
use weft_wire::BoundSession;
use weft_wire::hello::Identity;
use weft_wire::meta::{Attr, FileType, ROOT, Unsettled};
use weft_wire::{Capability, ClusterSecret, Errno, Rights, WalkProof};

/// Nominal length of a directory.
const DIRECTORY_LEN: ByteLen = ByteLen(4096);

/// Who removes a file of this length waits until its room is free: giving it back takes so long that whoever writes the
/// next one would run into it, and into a full target. Smaller ones are more often many.
const LARGE: ByteLen = ByteLen::from_mib(16);

/// What the service knows beside the database.
pub(super) struct Core {
    pub layouts: Layouts,
    pub rooms: Rooms,
    /// Locked after the database's own lock where both are.
    pub rules: Mutex<Rules>,
    pub secret: ClusterSecret,
    /// Shares of one user. They do not bound root and `owner_uid`.
    pub bounds: UserBounds,
    /// The user who runs the server.
    pub owner_uid: u32,
    /// How long a capability holds.
    pub capability_life_s: u64,
    /// State of the data servers, and free space of their targets.
    pub free: Free,
    /// The targets on record.
    pub registry: Registry,
    /// Of this start; the upper half of every epoch, so that none told before a restart fits after it.
    pub incarnation: u32,
    /// After a restart: until then not all mounts that keep pages have told so. Zero at the first start.
    pub cautious_until: Timestamp,
    /// Locked after the database's own lock where both are.
    pub opens: Mutex<Opens>,
    /// Files that somebody unknown may be writing.
    pub ghosts: Mutex<Ghosts>,
    /// Files to which somebody may be appending who has lost the lock.
    pub fences: Mutex<Fences>,
    /// Datafiles for which capabilities of before are refused, by their names.
    pub data_fences: Mutex<Fences>,
    /// Files that are being moved to other layouts.
    pub moves: Moves,
    /// The latest end of a capability that was given without regard to fences, in seconds since 1970.
    pub granted_latest_s: AtomicU64,
    /// Rows in `reap`.
    pub reaping: AtomicU64,
    /// Something was added to `reap`.
    pub reap_wanted: AtomicBool,
    /// Large files among them.
    pub freeing: Mutex<Freeing>,
}

/// Large files whose room is being given back, and for which their removers wait.
#[derive(Default)]
pub(super) struct Freeing {
    pub files: BTreeSet<FileId>,
    /// The reaper gets on: there is a point in waiting.
    pub runs: bool,
}

impl Freeing {
    /// The reaper begins a pass; what is there now will not be there after it.
    pub fn begin(&mut self) -> BTreeSet<FileId> {
        self.runs = true;
        self.files.clone()
    }

    /// The room of these files is free.
    pub fn freed<'a>(&mut self, files: impl IntoIterator<Item = &'a FileId>) {
        for file in files {
            self.files.remove(file);
        }
    }

    /// Nobody is to wait until the reaper gets on again.
    pub fn stalled(&mut self) {
        *self = Self::default();
    }
}

/// One request.
pub(super) struct Op<'a> {
    pub core: &'a Core,
    pub who: &'a Identity,
    pub session: BoundSession,
    /// The connection is a server's or the root user's: it may name inodes by their numbers alone.
    pub trusted: bool,
    pub now: Timestamp,
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

fn seconds(time: Timestamp) -> u64 {
    u64::try_from(time.parts().0).unwrap_or(0)
}

impl Core {
    /// Bounds of a user; `None` for root and the user who runs the server.
    pub(super) fn bounds_of(&self, who: &Identity) -> Option<&UserBounds> {
        (!who.is_root() && who.uid != self.owner_uid).then_some(&self.bounds)
    }

    /// A right of `session` to the datafiles named `data`, from `now` on.
    fn grant(&self, session: BoundSession, data: FileId, rights: Rights, now: Timestamp) -> Capability {
        let now_s = seconds(now);
        // Of what is or may be sealed nobody gets a capability that passes the seal.
        let expires_s = self.moves.end_of(data, now, || {
            let usual_s = now_s + self.capability_life_s;
            self.granted_latest_s.fetch_max(usual_s, Ordering::Relaxed);
            usual_s.max(self.fence_of(data.inode(), now)).max(self.data_fences.lock().of(data, now_s))
        });
        self.secret.grant(session, data, rights, expires_s)
    }

    /// Somebody loses the append lock of `file` who may be writing still: nobody may get it without being told.
    pub(super) fn fence(&self, file: FileId, now: Timestamp) {
        let before_s = self.latest_s(file, now) + 1;
        self.fences.lock().put(file, before_s, seconds(now));
    }

    /// From here on capabilities for `data` that were given before can be told from later ones: those end before the time
    /// that this gives.
    pub(super) fn data_fence(&self, data: FileId, now: Timestamp) -> u64 {
        let (latest_s, now_s) = (self.latest_s(data.inode(), now), seconds(now));
        let mut fences = self.data_fences.lock();
        let before_s = latest_s.max(fences.of(data, now_s)) + 1;
        fences.put(data, before_s, now_s);
        before_s
    }

    /// Whether there is one before any datafiles.
    pub(super) fn any_data_fence(&self) -> bool {
        self.data_fences.lock().any()
    }

    /// The one that stands before `data`, 0 for none.
    pub(super) fn data_fence_of(&self, data: FileId, now: Timestamp) -> u64 {
        self.data_fences.lock().of(data, seconds(now))
    }

    /// No capability for the file ends later, unless there is a fence before its datafiles. Those of others that stand behind
    /// fences say nothing: else each fence would be later than the one before, by far.
    fn latest_s(&self, file: FileId, now: Timestamp) -> u64 {
        let usual_s =
            self.granted_latest_s.load(Ordering::Relaxed).max(seconds(now) + self.capability_life_s);
        usual_s.max(self.fence_of(file, now))
    }

    /// The fence that stands before `file`, 0 for none.
    pub(super) fn fence_of(&self, file: FileId, now: Timestamp) -> u64 {
        self.fences.lock().of(file, seconds(now))
    }

    /// When what is granted at `now` ends at the latest.
    pub(super) fn granted_until(&self, now: Timestamp) -> Timestamp {
        Timestamp(now.0 + i128::from(self.capability_life_s + 1) * 1_000_000_000)
    }

    /// How soon it must be durable that the inode of `file` does not know its size, which it did when `known`. That somebody
    /// else has marked it so is not enough while a crash could undo it.
    pub(super) fn mark(&self, file: FileId, known: bool) -> Urgency {
        let mut opens = self.opens.lock();
        if known && !planted(Plant::EarlyMark) {
            opens.begin_marking(file);
        }
        if known || opens.is_fresh(file) { Urgency::Durable } else { Urgency::Lazy }
    }

    /// Whether mounts that keep pages may exist that this start does not know yet.
    pub(super) fn is_cautious(&self, now: Timestamp) -> bool {
        now < self.cautious_until
    }

    /// An epoch as clients see it.
    pub(super) fn epoch(&self, epoch: u32) -> u64 {
        u64::from(self.incarnation) << 32 | u64::from(epoch)
    }

    pub(super) fn epoch_of(&self, inode: &Inode) -> u64 {
        match &inode.node {
            Node::Regular { epoch, .. } => self.epoch(*epoch),
            _ => 0,
        }
    }

    /// Ends or orphans an inode that has just lost its last name.
    pub(super) fn forsake(&self, t: &mut dyn Transaction, file: FileId, inode: &Inode) -> Outcome<()> {
        if self.opens.lock().orphan(file) {
            super::tables::put_row(t, Table::Orphans, &file_key(file), &());
            super::tables::put_inode(t, file, inode);
            return Ok(());
        }
        self.destroy(t, file, inode)
    }

    /// Ends an inode that nobody has open.
    pub(super) fn destroy(&self, t: &mut dyn Transaction, file: FileId, inode: &Inode) -> Outcome<()> {
        if inode.is_dir() {
            let mut rules = self.rules.lock();
            if rules.has(file) {
                t.delete(Table::Rules, &file_key(file));
                rules.forget(file);
            }
        }
        let reaped = super::tables::destroy(t, file, inode)?;
        if super::moves::end_row(t, file)? {
            self.reaps();
        }
        if reaped {
            self.reaps();
            if inode.size >= LARGE {
                let mut freeing = self.freeing.lock();
                if freeing.runs {
                    freeing.files.insert(inode.data(file));
                }
            }
        } else if let Node::Regular { layout, .. } = &inode.node {
            self.rooms.give_back(t, layout)?;
        }
        Ok(())
    }

    /// The targets that take no new files.
    pub(super) fn closed(&self) -> Closed {
        let mut closed = self.free.closed();
        self.registry.close(&mut closed);
        closed
    }

    /// What layouts may still promise on each target with limited room.
    pub(super) fn left(&self, s: &dyn Snapshot) -> Outcome<RoomLeft> {
        let mut left = self.rooms.left(s)?;
        self.free.limit(&mut left);
        Ok(left)
    }

    /// A row was added to `reap`.
    pub(super) fn reaps(&self) {
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
            unsettled: None,
        };
        match &inode.node {
            Node::Regular { layout, settled: false, epoch, recorded, .. } => {
                // A caller who could cut the file to any length may tell its length.
                let settles = owns(op.who, inode) || allows(op.who, inode, WRITE);
                let rights = if settles { Rights::LENGTH.and(Rights::SETTLE) } else { Rights::LENGTH };
                let is_quiet = !self.opens.lock().is_busy(file) && !self.ghosts.lock().haunt(file, now);
                attr.unsettled = Some(Box::new(Unsettled {
                    layout: layout.clone(),
                    cap: self.grant(op.session, inode.data(file), rights, now),
                    epoch: self.epoch(*epoch),
                    may_settle: settles && is_quiet,
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
    /// Bounds of the user on whose behalf the request is; `None` for root and the user who runs the server.
    pub(super) fn bounds(&self) -> Option<&UserBounds> {
        self.core.bounds_of(self.who)
    }

    pub(super) fn attr(&self, file: FileId, inode: &Inode) -> Attr {
        self.core.attr(self, file, inode)
    }

    /// A right of the caller's session to the datafiles named `data`.
    pub(super) fn grant(&self, data: FileId, rights: Rights) -> Capability {
        self.core.grant(self.session, data, rights, self.now)
    }

    /// A right that passes the seal of `data` at `expires_s`, for the session that moves it.
    pub(super) fn grant_until(&self, data: FileId, rights: Rights, expires_s: u64) -> Capability {
        self.core.secret.grant(self.session, data, rights, expires_s)
    }

    /// Whether `cap` was made for the caller's session and any datafiles of `file`, with these rights, and has not expired.
    pub(super) fn holds(&self, cap: &Capability, file: FileId, rights: Rights) -> bool {
        cap.file.inode() == file && self.core.secret.verify(self.session, cap, cap.file, rights, self.now)
    }

    /// That `session` has reached `file` by a permitted walk. Servers and root need no proof, but none may be wrong.
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
            format!("inode {file}: this session has not reached it by a path: walk to it from the root");
        Err(Fault::new(Errno::EACCES, detail))
    }
}
