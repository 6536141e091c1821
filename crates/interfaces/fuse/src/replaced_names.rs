//! Names that other programs replace between the kernel's lookup and its request for the inode.
//!
//! If the inode is gone by then, the request fails with ESTALE. The kernel looks the path up once more and repeats its request. Its
//! second ESTALE would reach the program, which expects the old or the new file. So after an ESTALE the mount *holds* what it finds
//! for this thread: it looks names up by opening them, and an open file stays until the request arrives.
//!
//! The metadata service keeps neither symbolic links nor directories that have no name. Of these the mount holds attributes and
//! targets.

use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weft_client::OpenFile;
use weft_env::real::RealEnv;
use weft_wire::meta::Attr;

/// Time in which a thread repeats its path walk and its request.
const REPEATED_WITHIN: Duration = Duration::from_secs(1);
/// Pause between looks for holds to end.
const PAUSE: Duration = Duration::from_millis(250);
/// Maximum number of threads and of holds. Beyond it nothing more is held.
const HELD_MAX: usize = 1024;

/// Inode that stays as it was looked up.
pub struct Held {
    pub attr: Attr,
    /// Open file, which keeps the inode until it is dropped.
    #[expect(dead_code, reason = "it only has to stay open")]
    pub file: Option<OpenFile<RealEnv>>,
    /// Target of a symbolic link.
    pub target: Option<Vec<u8>>,
}

/// Threads that repeat a path walk, and the inodes that they found.
#[derive(Default)]
pub struct ReplacedNames {
    threads: Mutex<HashMap<u32, Instant>>,
    held: Mutex<BTreeMap<u64, (Instant, Arc<Held>)>>,
}

impl ReplacedNames {
    /// Registers that a thread's request for an inode failed, because the inode is gone.
    pub fn failed(&self, thread: u32) {
        let now = Instant::now();
        let mut threads = self.threads.lock();
        if threads.len() >= HELD_MAX {
            threads.retain(|_, until| *until > now);
        }
        if threads.len() < HELD_MAX {
            threads.insert(thread, now + REPEATED_WITHIN);
        }
    }

    /// Whether the lookups of a thread must hold what they find.
    pub fn is_repeated(&self, thread: u32) -> bool {
        let mut threads = self.threads.lock();
        let Some(until) = threads.get(&thread) else { return false };
        if *until > Instant::now() {
            return true;
        }
        threads.remove(&thread);
        false
    }

    /// Holds an inode until the request for it has surely arrived.
    pub fn hold(self: &Arc<Self>, held: Held) {
        let mut all = self.held.lock();
        let is_first = all.is_empty();
        if all.len() < HELD_MAX {
            all.insert(held.attr.file.0, (Instant::now() + REPEATED_WITHIN, Arc::new(held)));
        }
        drop(all);
        if is_first {
            let this = Arc::clone(self);
            let thread = std::thread::Builder::new().name("weft-held".to_owned());
            let ends = move || {
                while !this.forget_ended(Instant::now()) {
                    std::thread::sleep(PAUSE);
                }
            };
            if thread.spawn(ends).is_err() {
                self.held.lock().clear();
            }
        }
    }

    /// Returns a held inode.
    pub fn get(&self, inode: u64) -> Option<Arc<Held>> {
        self.held.lock().get(&inode).map(|(_, held)| Arc::clone(held))
    }

    /// Ends holds. Returns whether none is left.
    fn forget_ended(&self, now: Instant) -> bool {
        let mut ended = Vec::new();
        let mut all = self.held.lock();
        all.retain(|_, (until, held)| {
            if *until <= now {
                ended.push(Arc::clone(held));
            }
            *until > now
        });
        let is_empty = all.is_empty();
        // Files close without the lock.
        drop(all);
        is_empty
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::{ByteLen, FileId, Timestamp};
    use weft_wire::WalkProof;
    use weft_wire::meta::FileType;

    #[test]
    fn a_hold_ends_by_itself() {
        let names = Arc::new(ReplacedNames::default());
        assert!(!names.is_repeated(7));
        names.failed(7);
        assert!(names.is_repeated(7) && !names.is_repeated(8));
        let time = Timestamp(0);
        let attr = Attr {
            file: FileId(5),
            proof: WalkProof([0; 16]),
            kind: FileType::Symlink,
            mode: 0o777,
            uid: 0,
            gid: 0,
            nlink: 1,
            size: ByteLen(1),
            blocks_512: 0,
            atime: time,
            mtime: time,
            ctime: time,
            rdev: 0,
            invalid_size: None,
        };
        names.hold(Held { attr, file: None, target: Some(b"t".to_vec()) });
        assert_eq!(names.get(5).and_then(|held| held.target.clone()), Some(b"t".to_vec()));
        assert!(!names.forget_ended(Instant::now()));
        assert!(names.forget_ended(Instant::now() + REPEATED_WITHIN) && names.get(5).is_none());
    }
}
