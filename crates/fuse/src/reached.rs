//! Proofs that the mount's session reached the inodes that the kernel knows.
//!
//! The kernel names inodes by number. The metadata service takes a number only with the proof that it gave when the inode
//! was looked up, so the mount keeps the proofs for as long as the kernel keeps the inodes. One proof serves all users of the
//! mount: the kernel checks for each of them whether he may search the directories on the way.

use fuser::INodeNo;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use weft_core::FileId;
use weft_wire::WalkProof;
use weft_wire::meta::{Attr, Place, ROOT};

const PARTS: usize = 16;

struct Known {
    proof: WalkProof,
    /// Replies that named the inode, minus those that the kernel has forgotten.
    lookups: u64,
}

/// The inodes that the kernel knows.
#[derive(Default)]
pub struct Reached {
    parts: [Mutex<HashMap<u64, Known>>; PARTS],
}

impl Reached {
    fn part(&self, inode: u64) -> &Mutex<HashMap<u64, Known>> {
        &self.parts[inode as usize % PARTS]
    }

    /// Keeps the proof of an inode before the kernel gets its name.
    pub fn learn(&self, attr: &Attr) {
        let mut part = self.part(attr.file.0).lock();
        let known = part.entry(attr.file.0).or_insert(Known { proof: attr.proof, lookups: 0 });
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

    /// An inode itself.
    pub fn inode(&self, ino: INodeNo) -> Place {
        let base = FileId(ino.0);
        let proof = match base {
            ROOT => None,
            _ => self.part(ino.0).lock().get(&ino.0).map(|known| known.proof),
        };
        Place { base, proof, path: Vec::new(), follow: false }
    }

    /// A name in a directory; the kernel follows symbolic links itself.
    pub fn child(&self, parent: INodeNo, name: &OsStr) -> Place {
        Place { path: name.as_bytes().to_vec(), ..self.inode(parent) }
    }

    /// Number of inodes that are known.
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
            unsettled: None,
        }
    }

    #[test]
    fn proofs_are_kept_for_as_long_as_the_kernel_keeps_the_inode() {
        let reached = Reached::default();
        reached.learn(&attr(7, 1));
        reached.learn(&attr(7, 2));
        reached.learn(&attr(7 + PARTS as u64, 3));
        assert_eq!(reached.inode(INodeNo(7)), Place::at_inode(FileId(7), WalkProof([2; 16])));
        let child = reached.child(INodeNo(7), OsStr::new("a"));
        assert_eq!((child.base, child.path.as_slice(), child.follow), (FileId(7), &b"a"[..], false));
        reached.forget(7, 1);
        assert!(reached.inode(INodeNo(7)).proof.is_some(), "one lookup is left");
        reached.forget(7, 1);
        assert_eq!(reached.inode(INodeNo(7)).proof, None);
        reached.forget(9, 5);
        assert_eq!(reached.len(), 1);
        assert_eq!(reached.inode(INodeNo::ROOT), Place::from_root("", false));
    }
}
