//! Names that the kernel looked up last, so that messages about an inode can show a path. For messages only: another
//! node may have renamed the file.

use parking_lot::Mutex;
use std::collections::HashMap;

/// Maximum number of inodes with known names. Beyond it, all names are discarded and learned again.
const NAMES_MAX: usize = 1 << 14;
/// Maximum depth of a reconstructed path.
const DEPTH_MAX: usize = 64;
/// Inode of the root.
const ROOT: u64 = 1;

/// Directory inode and name.
type ParentAndName = (u64, Box<[u8]>);

/// Directory and name of inodes.
#[derive(Default)]
pub struct Names(Mutex<HashMap<u64, ParentAndName>>);

impl Names {
    /// Records that an inode was found by this name.
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

    /// Returns the path of an inode below the mount, or its number if the path is unknown.
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
    fn paths_need_all_names_on_the_way() {
        let names = Names::default();
        names.learn(5, 1, b"dir");
        names.learn(7, 5, b"file");
        names.learn(9, 8, b"lost");
        assert_eq!((names.path(7), names.path(5)), (b"dir/file".to_vec(), b"dir".to_vec()));
        assert_eq!((names.path(9), names.path(1)), (b"inode 9".to_vec(), b"".to_vec()));
        names.learn(7, 1, b"renamed");
        assert_eq!(names.path(7), b"renamed");
        // A loop, which two renames can leave among the known names.
        names.learn(5, 7, b"a");
        names.learn(7, 5, b"b");
        assert_eq!(names.path(7), b"inode 7");
        for inode in 100..100 + 2 * NAMES_MAX as u64 {
            names.learn(inode, 1, b"x");
        }
        assert!(names.0.lock().len() <= NAMES_MAX, "bounded");
    }
}
