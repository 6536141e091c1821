//! Permission: who may do what with an inode.

use super::fault::Outcome;
use weft_store::metadata::{Inode, NodeKind};
use weft_wire::Errno;
use weft_wire::hello::Identity;

pub(super) const READ: u32 = 4;
pub(super) const WRITE: u32 = 2;
pub(super) const EXECUTE: u32 = 1;

pub(super) const SET_UID: u32 = 0o4000;
pub(super) const SET_GID: u32 = 0o2000;
pub(super) const STICKY: u32 = 0o1000;
pub(super) const MODE_MASK: u32 = 0o7777;

/// Whether all of `mask` is allowed.
pub(super) fn allows(who: &Identity, inode: &Inode, mask: u32) -> bool {
    if who.is_root() {
        return mask & EXECUTE == 0 || inode.is_dir() || inode.mode & 0o111 != 0;
    }
    let bits = if who.uid == inode.uid {
        inode.mode >> 6
    } else if who.in_group(inode.gid) {
        inode.mode >> 3
    } else {
        inode.mode
    };
    bits & mask == mask
}

/// `EACCES` unless all of `mask` is allowed.
pub(super) fn require(who: &Identity, inode: &Inode, mask: u32) -> Outcome<()> {
    if allows(who, inode, mask) { Ok(()) } else { Err(Errno::EACCES.into()) }
}

/// Whether `who` owns it, or is root.
pub(super) fn owns(who: &Identity, inode: &Inode) -> bool {
    who.is_root() || who.uid == inode.uid
}

/// What a sticky directory asks of somebody who removes or renames a name in it.
pub(super) fn require_unstuck(who: &Identity, dir: &Inode, victim: &Inode) -> Outcome<()> {
    if dir.mode & STICKY == 0 || owns(who, dir) || owns(who, victim) {
        return Ok(());
    }
    Err(Errno::EPERM.into())
}

/// Permission for a further name of a file, as with `protected_hardlinks` of Linux. A caller who does not own the file needs
/// permission to read and write it, and it must be a regular file without set-id bits. Another name keeps a file that its owner
/// means to remove, and may lie in a directory with other permissions.
pub(super) fn require_linkable(who: &Identity, inode: &Inode) -> Outcome<()> {
    let is_plain = inode.kind() == NodeKind::Regular && without_set_ids(inode.mode) == inode.mode;
    if owns(who, inode) || (is_plain && allows(who, inode, READ | WRITE)) {
        return Ok(());
    }
    Err(Errno::EPERM.into())
}

/// The mode after somebody without privilege changed the contents: set-id bits go.
pub(super) fn without_set_ids(mode: u32) -> u32 {
    let keep_gid = mode & 0o010 == 0; // without group execution the bit means something else
    mode & !SET_UID & if keep_gid { u32::MAX } else { !SET_GID }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::{ByteLen, FileId, Timestamp};
    use weft_store::metadata::Node;

    fn inode(mode: u32) -> Inode {
        let time = Timestamp(0);
        Inode {
            mode,
            uid: 10,
            gid: 20,
            nlink: 1,
            size: ByteLen(0),
            blocks_512: 0,
            atime: time,
            mtime: time,
            ctime: time,
            mtime_set_at: time,
            parent: FileId(1),
            name: Vec::new(),
            xattrs: 0,
            node: Node::Special { kind: NodeKind::Fifo, rdev: 0 },
        }
    }

    #[test]
    fn the_first_class_that_fits_decides_even_against_the_caller() {
        let who = |uid, gid, groups: &[u32]| Identity { uid, gid, groups: groups.to_vec() };
        assert!(!allows(&who(10, 20, &[]), &inode(0o077), READ), "the owner has the owner's bits only");
        assert!(!allows(&who(11, 1, &[20]), &inode(0o707), READ), "a member has the group's bits only");
        assert!(allows(&who(11, 1, &[]), &inode(0o007), READ | WRITE | EXECUTE));
        assert!(allows(&who(0, 0, &[]), &inode(0), READ | WRITE));
        assert!(!allows(&who(0, 0, &[]), &inode(0o666), EXECUTE), "root executes what anybody may");
    }

    #[test]
    fn another_name_takes_ownership_or_permission_to_read_and_write_a_plain_file() {
        let who = |uid| Identity { uid, gid: 1, groups: vec![] };
        let file = |mode| Inode {
            node: Node::Regular {
                layout: weft_core::Layout::single(weft_core::TargetId(0)),
                settled: true,
                touched: false,
                epoch: 0,
                generations: weft_store::metadata::Generations::default(),
                recorded: weft_core::RecordedLens::NONE,
            },
            ..inode(mode)
        };
        for uid in [0, 10] {
            assert!(require_linkable(&who(uid), &file(0o4000)).is_ok(), "owner and root");
        }
        assert!(require_linkable(&who(11), &file(0o666)).is_ok());
        assert!(require_linkable(&who(11), &file(0o644)).is_err(), "may not write it");
        assert!(require_linkable(&who(11), &file(0o662)).is_err(), "may not read it");
        assert!(require_linkable(&who(11), &file(0o4666)).is_err(), "set-user-id");
        assert!(require_linkable(&who(11), &file(0o2676)).is_err(), "set-group-id");
        assert!(require_linkable(&who(11), &inode(0o666)).is_err(), "a pipe");
    }

    #[test]
    fn set_ids_go_but_a_lock_bit_stays() {
        assert_eq!(without_set_ids(0o6755), 0o755);
        assert_eq!(without_set_ids(0o6745), 0o2745);
    }
}
