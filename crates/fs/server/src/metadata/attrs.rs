//! Reading and setting attributes.

use super::fault::Outcome;
use super::op::Op;
use super::permit::{
    MODE_MASK, READ, SET_GID, WRITE, allows, owns, require, without_set_ids, without_set_ids_of,
};
use super::quotas;
use super::tables::put_inode;
use super::walk::walk;
use super::xattr::drop_capabilities;
use weft_core::{ByteLen, FileId, Nanos, Timestamp};
use weft_store::metadata::{Inode, Node, Snapshot, Transaction};
use weft_wire::Errno;
use weft_wire::meta::{InodePath, MetaReply, SetAttr, SetTime, Writer};

impl Op<'_> {
    pub(super) fn stat(&self, s: &dyn Snapshot, at: &InodePath) -> Outcome<MetaReply> {
        let (file, inode) = walk(s, self, at)?.existing()?;
        Ok(MetaReply::Attr(self.attr(file, &inode)))
    }

    /// Looks up a name for a mount. `lease_at` is the time before this step if name and attributes are to be leased.
    pub(super) fn look_up(
        &self,
        s: &dyn Snapshot,
        at: &InodePath,
        lease_at: Option<Nanos>,
    ) -> Outcome<MetaReply> {
        let (file, inode) = walk(s, self, at)?.existing()?;
        let attr = self.attr(file, &inode);
        // The inode `base`, or a name in this directory. The directory of a longer path may be busy.
        let is_near = !at.path.contains(&b'/') && !matches!(&*at.path, b"." | b"..");
        let leased = is_near
            && lease_at.is_some_and(|now| {
                let found = std::iter::once(&attr);
                self.core.name_leases.lock().grant(self.session, at.base, found, now) == [true]
            });
        Ok(MetaReply::LookedUp { attr, leased })
    }

    pub(super) fn readlink(&self, s: &dyn Snapshot, at: &InodePath) -> Outcome<MetaReply> {
        let (_, inode) = walk(s, self, at)?.existing()?;
        match inode.node {
            Node::Symlink { target } => Ok(MetaReply::Target(target)),
            _ => Err(Errno::EINVAL.into()),
        }
    }

    pub(super) fn access(&self, s: &dyn Snapshot, at: &InodePath, mask: u32) -> Outcome<MetaReply> {
        if mask & !7 != 0 {
            return Err(Errno::EINVAL.into());
        }
        let (_, inode) = walk(s, self, at)?.existing()?;
        require(self.caller, &inode, mask)?;
        Ok(MetaReply::Done)
    }

    pub(super) fn set_attr(
        &self,
        t: &mut dyn Transaction,
        at: &InodePath,
        set: &SetAttr,
    ) -> Outcome<MetaReply> {
        let (file, mut inode) = walk(t, self, at)?.existing()?;
        // All permissions are checked before anything changes.
        self.require_owner_change(&inode, set)?;
        if set.mode.is_some() && !owns(self.caller, &inode) {
            return Err(Errno::EPERM.into());
        }
        self.require_time_change(&inode, set)?;
        if set.written_by.is_some() && !self.trusted && !owns(self.caller, &inode) {
            require(self.caller, &inode, WRITE)?;
        }

        if set.uid.is_some() || set.gid.is_some() {
            if let Some(uid) = set.uid.filter(|uid| *uid != inode.uid) {
                quotas::change_owner(self.core, t, (file, &inode), uid)?;
                inode.uid = uid;
            }
            inode.gid = set.gid.unwrap_or(inode.gid);
            if !inode.is_dir() {
                inode.mode = without_set_ids(inode.mode);
                drop_capabilities(t, file, &mut inode);
            }
        }
        if let Some(writer) = set.written_by.filter(|_| !inode.is_dir()) {
            inode.mode = without_set_ids_of(inode.mode, writer == Writer::Member);
        }
        if let Some(mode) = set.mode {
            inode.mode = (inode.mode & !MODE_MASK) | (mode & MODE_MASK);
            if !self.caller.is_root() && !self.caller.in_group(inode.gid) {
                inode.mode &= !SET_GID;
            }
            if !inode.is_dir()
                && without_set_ids(inode.mode) != inode.mode
                && self.may_be_written_by_others(file, &inode)
            {
                inode.mode = without_set_ids(inode.mode);
            }
        }
        let time = |set: SetTime| match set {
            SetTime::Now => self.now,
            SetTime::At(time) => time,
        };
        inode.atime = set.atime.map_or(inode.atime, time);
        if let Some(mtime) = set.mtime {
            (inode.mtime, inode.mtime_set_at) = (time(mtime), self.now);
        }
        inode.ctime = self.now;
        put_inode(t, file, &inode);
        self.core.set_replica_owner(t, file, &inode)?;
        Ok(MetaReply::Attr(self.attr(file, &inode)))
    }

    /// Takes from a file what a change of its bytes takes: set-id bits, unless root changes it, and the capabilities of a program.
    pub(super) fn drop_privileges(&self, t: &mut dyn Transaction, file: FileId, inode: &mut Inode) {
        let mode = match self.caller.is_root() {
            true => inode.mode,
            false => without_set_ids_of(inode.mode, self.caller.in_group(inode.gid)),
        };
        if mode != inode.mode {
            (inode.mode, inode.ctime) = (mode, self.now);
        }
        drop_capabilities(t, file, inode);
    }

    /// Whether a user other than the owner and root may write to the file without another message to this service.
    fn may_be_written_by_others(&self, file: FileId, inode: &Inode) -> bool {
        self.core.opens.lock().is_written_by_others(file, inode.uid)
            || self.core.unknown_writers.lock().may_write_as_other(file, inode.uid, self.now)
    }

    fn require_owner_change(&self, inode: &Inode, set: &SetAttr) -> Outcome<()> {
        if self.caller.is_root() {
            return Ok(());
        }
        let uid_kept = set.uid.is_none_or(|uid| uid == inode.uid);
        let gid_kept = set.gid.is_none_or(|gid| gid == inode.gid || self.caller.in_group(gid));
        let owner = self.caller.uid == inode.uid || (set.uid.is_none() && set.gid.is_none());
        if uid_kept && gid_kept && owner { Ok(()) } else { Err(Errno::EPERM.into()) }
    }

    fn require_time_change(&self, inode: &Inode, set: &SetAttr) -> Outcome<()> {
        let explicit = |time: Option<SetTime>| time.is_some_and(|time| time != SetTime::Now);
        match (set.atime, set.mtime) {
            (None, None) => Ok(()),
            // A user with write permission may set both times to now; all else needs the owner.
            (Some(_), Some(_)) if !explicit(set.atime) && !explicit(set.mtime) => {
                if owns(self.caller, inode) || allows(self.caller, inode, WRITE) {
                    return Ok(());
                }
                Err(Errno::EACCES.into())
            }
            _ if owns(self.caller, inode) => Ok(()),
            _ => Err(Errno::EPERM.into()),
        }
    }

    pub(super) fn require_read(&self, inode: &Inode) -> Outcome<()> {
        require(self.caller, inode, READ)
    }
}

/// The later of two times, the second of which may be unknown.
/// Space that bytes take, in units of 512 bytes: blocks are allocated in pages.
pub(super) fn blocks_of(bytes: ByteLen) -> u64 {
    bytes.0.div_ceil(4096).saturating_mul(8)
}

pub(super) fn later(a: Timestamp, b: Option<Timestamp>) -> Timestamp {
    b.map_or(a, |b| a.max(b))
}
