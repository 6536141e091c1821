//! Proofs that the mount's session reached the inodes that the kernel knows.
//!
//! The kernel refers to inodes by number. The metadata service accepts a number only with the proof from the lookup of
//! the inode, so the mount stores the proof for as long as the kernel references the inode. One proof serves all users
//! of the mount: the kernel checks each user's permission to search the directories on the way.

use fuser::INodeNo;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use weft_core::FileId;
use weft_wire::WalkProof;
use weft_wire::meta::{Attr, InodePath, ROOT};

const PARTS: usize = 16;

struct KnownInode {
    proof: WalkProof,
    /// Replies that named the inode, minus those that the kernel has forgotten.
    lookups: u64,
}

/// Inodes that the kernel knows.
#[derive(Default)]
pub struct InodeProofs {
    parts: [Mutex<HashMap<u64, KnownInode>>; PARTS],
}

impl InodeProofs {
    fn part(&self, inode: u64) -> &Mutex<HashMap<u64, KnownInode>> {
        &self.parts[inode as usize % PARTS]
    }

    /// Stores the proof of an inode before the kernel gets its name.
    pub fn learn(&self, attr: &Attr) {
        let mut part = self.part(attr.file.0).lock();
        let known = part.entry(attr.file.0).or_insert(KnownInode { proof: attr.proof, lookups: 0 });
        known.proof = attr.proof;
        known.lookups += 1;
    }

    /// Drops `lookups` of the kernel's references to an inode, and with the last one the proof.
    pub fn forget(&self, inode: u64, lookups: u64) {
        let mut part = self.part(inode).lock();
        if let Some(known) = part.get_mut(&inode) {
            known.lookups = known.lookups.saturating_sub(lookups);
            if known.lookups == 0 {
                part.remove(&inode);
            }
        }
    }

    /// Returns the inode itself.
    pub fn inode(&self, ino: INodeNo) -> InodePath {
        let base = FileId(ino.0);
        let proof = match base {
            ROOT => None,
            _ => self.part(ino.0).lock().get(&ino.0).map(|known| known.proof),
        };
        InodePath { base, proof, path: Vec::new(), follow: false }
    }

    /// Returns a name in a directory; the kernel follows symbolic links itself.
    pub fn child(&self, parent: INodeNo, name: &OsStr) -> InodePath {
        InodePath { path: name.as_bytes().to_vec(), ..self.inode(parent) }
    }

    /// Returns the number of known inodes.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.parts.iter().map(|part| part.lock().len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::{ByteLen, Timestamp};
    use weft_wire::meta::FileType;

    fn attr(file: u64, proof: u8) -> Attr {
        let time = Timestamp(0);
        Attr {
            file: FileId(file),
            proof: WalkProof([proof; 16]),
            kind: FileType::Directory,
            mode: 0o755,
            uid: 0,
            gid: 0,
            nlink: 2,
            size: ByteLen(0),
            blocks_512: 0,
            atime: time,
            mtime: time,
            ctime: time,
            rdev: 0,
            invalid_size: None,
        }
    }

    #[test]
    fn proofs_are_kept_for_as_long_as_the_kernel_keeps_the_inode() {
        let inode_proofs = InodeProofs::default();
        inode_proofs.learn(&attr(7, 1));
        inode_proofs.learn(&attr(7, 2));
        inode_proofs.learn(&attr(7 + PARTS as u64, 3));
        assert_eq!(inode_proofs.inode(INodeNo(7)), InodePath::at_inode(FileId(7), WalkProof([2; 16])));
        let child = inode_proofs.child(INodeNo(7), OsStr::new("a"));
        assert_eq!((child.base, child.path.as_slice(), child.follow), (FileId(7), &b"a"[..], false));
        inode_proofs.forget(7, 1);
        assert!(inode_proofs.inode(INodeNo(7)).proof.is_some(), "one lookup is left");
        inode_proofs.forget(7, 1);
        assert_eq!(inode_proofs.inode(INodeNo(7)).proof, None);
        inode_proofs.forget(9, 5);
        assert_eq!(inode_proofs.len(), 1);
        assert_eq!(inode_proofs.inode(INodeNo::ROOT), InodePath::from_root("", false));
    }
}
