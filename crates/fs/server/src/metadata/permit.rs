//! Permission checks.

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
pub(super) fn allows(caller: &Identity, inode: &Inode, mask: u32) -> bool {
    if caller.is_root() {
        return mask & EXECUTE == 0 || inode.is_dir() || inode.mode & 0o111 != 0;
    }
    let bits = if caller.uid == inode.uid {
        inode.mode >> 6
    } else if caller.in_group(inode.gid) {
        inode.mode >> 3
    } else {
        inode.mode
    };
    bits & mask == mask
}

/// Fails with `EACCES` unless all of `mask` is allowed.
pub(super) fn require(caller: &Identity, inode: &Inode, mask: u32) -> Outcome<()> {
    if allows(caller, inode, mask) { Ok(()) } else { Err(Errno::EACCES.into()) }
}

/// User number of root.
pub(super) const ROOT_USER: u32 = 0;

/// Whether user `uid` is neither the owner `owner` nor root.
pub(super) fn is_other(uid: u32, owner: u32) -> bool {
    uid != owner && uid != ROOT_USER
}

/// Whether `caller` is the owner or root.
pub(super) fn owns(caller: &Identity, inode: &Inode) -> bool {
    caller.is_root() || caller.uid == inode.uid
}

/// Checks the rule of a sticky directory for removing or renaming a name in it.
pub(super) fn require_sticky_permission(caller: &Identity, dir: &Inode, victim: &Inode) -> Outcome<()> {
    if dir.mode & STICKY == 0 || owns(caller, dir) || owns(caller, victim) {
        return Ok(());
    }
    Err(Errno::EPERM.into())
}

/// Checks permission for another name of a file, as with `protected_hardlinks` of Linux. A caller who is not the owner
/// needs read and write permission, and a regular file without set-id bits. Another name keeps a file that its owner
/// wants to remove, and may be in a directory with other permissions.
pub(super) fn require_linkable(caller: &Identity, inode: &Inode) -> Outcome<()> {
    let is_plain = inode.kind() == NodeKind::Regular && without_set_ids(inode.mode) == inode.mode;
    if owns(caller, inode) || (is_plain && allows(caller, inode, READ | WRITE)) {
        return Ok(());
    }
    Err(Errno::EPERM.into())
}

/// Mode after an unprivileged user changed the contents, without set-id bits.
pub(super) fn without_set_ids(mode: u32) -> u32 {
    let keep_gid = mode & 0o010 == 0; // without group execution the bit means mandatory locking
    mode & !SET_UID & if keep_gid { u32::MAX } else { !SET_GID }
}

/// Mode after a user changed the contents, as Linux has it since 6.2: a user outside of the file's group loses the set-group-id bit
/// also without group execution.
pub(super) fn without_set_ids_of(mode: u32, is_of_group: bool) -> u32 {
    if is_of_group { without_set_ids(mode) } else { mode & !SET_UID & !SET_GID }
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
    fn the_first_matching_class_decides_even_if_it_allows_less() {
        let caller = |uid, gid, groups: &[u32]| Identity { uid, gid, groups: groups.to_vec() };
        assert!(!allows(&caller(10, 20, &[]), &inode(0o077), READ), "the owner has the owner's bits only");
        assert!(!allows(&caller(11, 1, &[20]), &inode(0o707), READ), "a member has the group's bits only");
        assert!(allows(&caller(11, 1, &[]), &inode(0o007), READ | WRITE | EXECUTE));
        assert!(allows(&caller(0, 0, &[]), &inode(0), READ | WRITE));
        assert!(!allows(&caller(0, 0, &[]), &inode(0o666), EXECUTE), "root executes a file if any user may");
    }

    #[test]
    fn another_name_needs_ownership_or_permission_to_read_and_write_a_plain_file() {
        let caller = |uid| Identity { uid, gid: 1, groups: vec![] };
        let file = |mode| Inode {
            node: Node::Regular {
                layout: weft_core::Layout::single(weft_core::TargetId(0)),
                is_size_valid: true,
                touched: false,
                epoch: 0,
                generations: weft_store::metadata::Generations::default(),
                recorded: weft_core::RecordedLens::NONE,
                is_inline: false,
            },
            ..inode(mode)
        };
        for uid in [0, 10] {
            assert!(require_linkable(&caller(uid), &file(0o4000)).is_ok(), "owner and root");
        }
        assert!(require_linkable(&caller(11), &file(0o666)).is_ok());
        assert!(require_linkable(&caller(11), &file(0o644)).is_err(), "may not write it");
        assert!(require_linkable(&caller(11), &file(0o662)).is_err(), "may not read it");
        assert!(require_linkable(&caller(11), &file(0o4666)).is_err(), "set-user-id");
        assert!(require_linkable(&caller(11), &file(0o2676)).is_err(), "set-group-id");
        assert!(require_linkable(&caller(11), &inode(0o666)).is_err(), "a pipe");
    }

    #[test]
    fn set_ids_are_dropped_but_a_lock_bit_stays() {
        assert_eq!(without_set_ids(0o6755), 0o755);
        assert_eq!(without_set_ids(0o6745), 0o2745);
        assert_eq!((without_set_ids_of(0o6745, true), without_set_ids_of(0o6745, false)), (0o2745, 0o745));
    }
}
