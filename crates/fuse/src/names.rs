//! Names that the kernel looked up last, so that an error about an inode can tell the path. Used for messages alone: another
//! node may have renamed the file meanwhile.

use parking_lot::Mutex;
use std::collections::HashMap;

/// Most inodes whose names are kept; then all are forgotten and learned anew.
const NAMES_MAX: usize = 1 << 14;
/// Deepest path that is told.
const DEPTH_MAX: usize = 64;
/// The root's inode.
const ROOT: u64 = 1;

/// A directory's inode and a name in it.
type Place = (u64, Box<[u8]>);

/// The directory and the name of inodes.
#[derive(Default)]
pub struct Names(Mutex<HashMap<u64, Place>>);

impl Names {
    /// An inode was found by this name.
    pub fn learn(&self, inode: u64, parent: u64, name: &[u8]) {
        let mut names = self.0.lock();
        if names.len() >= NAMES_MAX && !names.contains_key(&inode) {
            names.clear();
        }
        let same = names.get(&inode).is_some_and(|(before, known)| *before == parent && **known == *name);
        if !same {
            names.insert(inode, (parent, name.into()));
        }
    }

    /// The path of an inode below the mount, or its number where the path is not known.
    pub fn path(&self, inode: u64) -> Vec<u8> {
        let names = self.0.lock();
        let (mut parts, mut at) = (Vec::new(), inode);
        while at != ROOT {
            match names.get(&at) {
                Some((parent, name)) if parts.len() < DEPTH_MAX => {
                    parts.push(&**name);
                    at = *parent;
                }
                _ => return format!("inode {inode}").into_bytes(),
            }
        }
        parts.reverse();
        parts.join(&b'/')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_as_far_as_all_names_are_known() {
        let names = Names::default();
        names.learn(5, 1, b"dir");
        names.learn(7, 5, b"file");
        names.learn(9, 8, b"lost");
        assert_eq!((names.path(7), names.path(5)), (b"dir/file".to_vec(), b"dir".to_vec()));
        assert_eq!((names.path(9), names.path(1)), (b"inode 9".to_vec(), b"".to_vec()));
        names.learn(7, 1, b"renamed");
        assert_eq!(names.path(7), b"renamed");
        // A loop, which two renames may leave in what is known.
        names.learn(5, 7, b"a");
        names.learn(7, 5, b"b");
        assert_eq!(names.path(7), b"inode 7");
        for inode in 100..100 + 2 * NAMES_MAX as u64 {
            names.learn(inode, 1, b"x");
        }
        assert!(names.0.lock().len() <= NAMES_MAX, "bounded");
    }
}
