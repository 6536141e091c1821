//! Names and attributes of listings and lookups, which the kernel may use for a moment.
//!
//! `readdirplus` gives the kernel the attributes of all entries that it lists, so that `ls -l` and `find` ask for each
//! page of a directory, not for each file. The metadata service leases these names to the mount, and reports when one
//! is outdated before the change is answered.
//!
//! The kernel locks a directory while it takes in the reply to a listing, and while it drops a name. So a name is
//! dropped after the listing that brought it, and its attributes after that. It does not lock it for a lookup of a name
//! that it knows. So by a lookup it may use only names of directories, which are dropped when it has surely taken in the
//! reply. A late reply with attributes it ignores itself. The kernel must be able to let a name
//! expire (Linux 6.2): removing it instead would detach what is mounted on it.

use fuser::{INodeNo, Notifier};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weft_core::{FileId, Nanos};
use weft_env::Env;
use weft_env::real::RealEnv;
use weft_wire::meta::{Attr, FileType, NAME_LEASE};

/// Age of a lease up to which the kernel may still begin to use the name.
const BEGIN_WITHIN: Nanos = Nanos::from_ms(300);
/// Time for which the kernel uses names. The rest of the lease is for delays between the mount and the kernel.
const USED_FOR: Nanos = Nanos::from_ms(400);
/// Time within which the kernel takes in a reply.
const TAKEN_IN_WITHIN: Nanos = Nanos::from_ms(250);
const _: () = assert!(BEGIN_WITHIN.0 + TAKEN_IN_WITHIN.0 + USED_FOR.0 < NAME_LEASE.0);

/// Code of the kernel's notification that a name has changed (`FUSE_NOTIFY_INVAL_ENTRY`).
const INVALIDATE_ENTRY: i32 = 3;
/// Flag that lets the name expire (`FUSE_EXPIRE_ONLY`).
const EXPIRE_ONLY: u32 = 1;
/// Length of the notification before the name: `fuse_out_header` and `fuse_notify_inval_entry_out`.
const HEAD_LEN: usize = 32;

/// Inode of a directory, and a name in it.
type Place = (u64, Box<[u8]>);

/// Times for which the kernel may use a name and its attributes.
#[derive(Clone, Copy, Default, Debug)]
pub struct Used {
    pub name: Duration,
    pub attributes: Duration,
}

/// A name that the kernel may use.
struct Leased {
    place: Place,
    until: Nanos,
    /// Time of the latest reply to a lookup that gave the kernel the name; zero if there was none.
    looked_up: Nanos,
}

/// Names that the kernel may use.
#[derive(Default)]
pub struct LeasedNames {
    known: Mutex<Known>,
    /// Whether the kernel can let names expire.
    expires: AtomicBool,
    /// Connection to the kernel.
    device: OnceLock<File>,
}

#[derive(Default)]
struct Known {
    /// All names of each file. A rename by another session adds one before the event for the old one arrives.
    places: HashMap<u64, Vec<Leased>>,
    files: HashMap<Place, u64>,
    /// Files in the order in which their leases end.
    ends: VecDeque<(Nanos, u64)>,
    /// Times of events. An event may overtake the reply that it concerns.
    dropped: HashMap<u64, Nanos>,
    drops: VecDeque<(Nanos, u64)>,
}

impl Known {
    fn put(&mut self, file: u64, place: Place, until: Nanos, looked_up: Nanos) {
        let places = self.places.entry(file).or_default();
        match places.iter_mut().find(|leased| leased.place == place) {
            Some(leased) => {
                leased.until = leased.until.max(until);
                leased.looked_up = leased.looked_up.max(looked_up);
            }
            None => places.push(Leased { place: place.clone(), until, looked_up }),
        }
        self.files.insert(place, file);
        self.ends.push_back((until, file));
    }

    fn forget_ended(&mut self, now: Nanos) {
        while let Some(&(until, file)) = self.ends.front()
            && until <= now
        {
            self.ends.pop_front();
            let Some(places) = self.places.get_mut(&file) else { continue };
            let files = &mut self.files;
            places.retain(|leased| {
                let is_over = leased.until <= now;
                if is_over && files.get(&leased.place) == Some(&file) {
                    files.remove(&leased.place);
                }
                !is_over
            });
            if places.is_empty() {
                self.places.remove(&file);
            }
        }
        while let Some(&(at, file)) = self.drops.front()
            && at.saturating_add(NAME_LEASE) <= now
        {
            self.drops.pop_front();
            if self.dropped.get(&file) == Some(&at) {
                self.dropped.remove(&file);
            }
        }
    }
}

impl LeasedNames {
    /// The kernel can let names expire.
    pub fn enable(&self) {
        self.expires.store(true, Ordering::Relaxed);
    }

    /// Whether to lease names.
    pub fn are_used(&self) -> bool {
        self.expires.load(Ordering::Relaxed)
    }

    /// Uses this connection from now on.
    ///
    /// # Errors
    /// If no descriptor is left.
    pub fn begin(&self, device: BorrowedFd<'_>) -> io::Result<()> {
        let _ = self.device.set(File::from(device.try_clone_to_owned()?));
        Ok(())
    }

    /// Remembers a name of a listing that the kernel is going to get. Returns the time for which it may use it.
    pub fn listed(&self, lease: (FileId, Nanos), (parent, name): (INodeNo, &[u8]), now: Nanos) -> Duration {
        self.learn(lease, Some(((parent.0, name.into()), Nanos::ZERO)), now)
    }

    /// Remembers a name in the reply to a lookup, like [`Self::listed`]. Returns how long the kernel may use it.
    pub fn looked_up(&self, attr: &Attr, until: Nanos, (parent, name): (INodeNo, &[u8]), now: Nanos) -> Used {
        let is_dir = attr.kind == FileType::Directory;
        let looked_up = if is_dir { now } else { Nanos::ZERO };
        let attributes = self.learn((attr.file, until), Some(((parent.0, name.into()), looked_up)), now);
        Used { name: if is_dir { attributes } else { Duration::ZERO }, attributes }
    }

    /// Returns the time for which the kernel may use the attributes in the reply to a query of an inode.
    pub fn queried(&self, lease: (FileId, Nanos), now: Nanos) -> Duration {
        self.learn(lease, None, now)
    }

    /// Remembers a leased name, if there is one, with the time of a reply to a lookup that gives it to the kernel. Returns
    /// the time for which the kernel may use the lease.
    fn learn(&self, (file, until): (FileId, Nanos), name: Option<(Place, Nanos)>, now: Nanos) -> Duration {
        let requested = until.saturating_sub(NAME_LEASE);
        let is_old = now.saturating_sub(requested) > BEGIN_WITHIN;
        if is_old || !self.are_used() || self.device.get().is_none() {
            return Duration::ZERO;
        }
        let mut known = self.known.lock();
        known.forget_ended(now);
        if known.dropped.get(&file.0).is_some_and(|at| *at >= requested) {
            return Duration::ZERO;
        }
        if let Some((place, looked_up)) = name {
            known.put(file.0, place, until, looked_up);
        }
        Duration::from_nanos(USED_FOR.0)
    }

    /// Returns the directory and name of an inode that the kernel may have reached without asking.
    pub fn place(&self, inode: u64) -> Option<(u64, Box<[u8]>)> {
        self.known.lock().places.get(&inode)?.last().map(|leased| leased.place.clone())
    }

    /// Follows a rename by this mount before the kernel learns that it succeeded: the kernel uses the new name for as
    /// long as the old one.
    pub fn renamed(&self, from: (INodeNo, &[u8]), to: (INodeNo, &[u8]), exchange: bool) {
        let place = |(parent, name): (INodeNo, &[u8])| -> Place { (parent.0, name.into()) };
        let (from, to) = (place(from), place(to));
        let mut known = self.known.lock();
        let leased = |known: &Known, at: &Place| {
            let file = *known.files.get(at)?;
            let of_place = known.places.get(&file)?.iter().find(|leased| leased.place == *at)?;
            Some((file, of_place.until))
        };
        let (moved, replaced) = (leased(&known, &from), leased(&known, &to));
        if let Some((file, until)) = moved {
            known.put(file, to, until, Nanos::ZERO);
        }
        if let (true, Some((file, until))) = (exchange, replaced) {
            known.put(file, from, until, Nanos::ZERO);
        }
    }

    /// An event for a file has arrived: replies to earlier requests lease it no more.
    pub fn outdated(&self, file: FileId, now: Nanos) {
        let mut known = self.known.lock();
        known.forget_ended(now);
        known.dropped.insert(file.0, now);
        known.drops.push_back((now, file.0));
    }

    /// Makes the kernel forget names and attributes of a file, after [`Self::outdated`]. If the name itself has changed,
    /// waits first until the kernel has surely taken in the latest reply to a lookup of it. Not for serving threads: the
    /// kernel waits for requests in the directory that they have to serve.
    pub fn drop_now(&self, notifier: &Notifier, file: FileId, of_name: bool, env: &RealEnv) {
        let mut dropped: Vec<Place> = Vec::new();
        loop {
            // A rename by this mount may move the name while the kernel drops the old one.
            let next = self.known.lock().places.get(&file.0).and_then(|places| {
                let mut left = places.iter().filter(|leased| !dropped.contains(&leased.place));
                left.next().map(|leased| (leased.place.clone(), leased.looked_up))
            });
            let Some((place, looked_up)) = next else { break };
            if of_name && looked_up > Nanos::ZERO {
                let left = looked_up.saturating_add(TAKEN_IN_WITHIN).saturating_sub(env.now());
                std::thread::sleep(Duration::from_nanos(left.0));
            }
            self.expire(&place);
            dropped.push(place);
        }
        // Without offset: attributes only. An inode that the kernel does not know is not an error.
        let _ = notifier.inval_inode(INodeNo(file.0), -1, 0);
    }

    fn expire(&self, (parent, name): &Place) {
        let Some(mut device) = self.device.get() else { return };
        // The kernel answers with ENOENT if it does not know the name.
        let _ = device.write(&expiry(*parent, name));
    }
}

/// Encodes the notification that lets a name expire.
fn expiry(parent: u64, name: &[u8]) -> Vec<u8> {
    let len = HEAD_LEN + name.len() + 1;
    let mut out = Vec::with_capacity(len);
    out.extend_from_slice(&(len as u32).to_ne_bytes());
    out.extend_from_slice(&INVALIDATE_ENTRY.to_ne_bytes());
    out.extend_from_slice(&0u64.to_ne_bytes());
    out.extend_from_slice(&parent.to_ne_bytes());
    out.extend_from_slice(&(name.len() as u32).to_ne_bytes());
    out.extend_from_slice(&EXPIRE_ONLY.to_ne_bytes());
    out.extend_from_slice(name);
    out.push(0);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> LeasedNames {
        let names = LeasedNames::default();
        names.device.set(File::open("/dev/null").expect("a device")).expect("the first");
        names.enable();
        names
    }

    fn learn(names: &LeasedNames, file: u64, name: &[u8], now_ms: u64, until_ms: u64) -> Duration {
        let (now, until) = (Nanos::from_ms(now_ms), Nanos::from_ms(until_ms));
        names.listed((FileId(file), until), (INodeNo(1), name), now)
    }

    fn place(names: &LeasedNames, file: u64) -> Option<(u64, Vec<u8>)> {
        names.place(file).map(|(parent, name)| (parent, name.into_vec()))
    }

    #[test]
    fn the_kernel_uses_only_young_leases() {
        let names = names();
        let used = Duration::from_nanos(USED_FOR.0);
        assert_eq!(learn(&names, 7, b"a", 0, 1000), used);
        assert_eq!(learn(&names, 8, b"b", 300, 1000), used);
        assert_eq!(learn(&names, 9, b"c", 301, 1000), Duration::ZERO);
        assert_eq!(place(&names, 9), None);
        assert_eq!(learn(&LeasedNames::default(), 7, b"a", 0, 1000), Duration::ZERO, "not connected");
    }

    #[test]
    fn names_are_known_until_their_leases_end() {
        let names = names();
        learn(&names, 7, b"a", 0, 1000);
        learn(&names, 8, b"b", 200, 1200);
        learn(&names, 7, b"a", 200, 1200);
        learn(&names, 9, b"c", 1100, 2100);
        assert_eq!(place(&names, 7), Some((1, b"a".to_vec())), "leased again");
        learn(&names, 10, b"d", 1200, 2200);
        assert_eq!((place(&names, 7), place(&names, 8)), (None, None));
        let known = names.known.lock();
        assert_eq!((known.places.len(), known.files.len(), known.ends.len()), (2, 2, 2));
    }

    #[test]
    fn renames_add_names() {
        let names = names();
        learn(&names, 7, b"a", 0, 1000);
        learn(&names, 8, b"b", 0, 1000);
        names.renamed((INodeNo(1), b"a"), (INodeNo(2), b"b"), false);
        assert_eq!(place(&names, 7), Some((2, b"b".to_vec())));
        names.renamed((INodeNo(2), b"b"), (INodeNo(1), b"b"), true);
        assert_eq!(place(&names, 7), Some((1, b"b".to_vec())));
        assert_eq!(place(&names, 8), Some((2, b"b".to_vec())), "exchanged");
        names.renamed((INodeNo(1), b"unknown"), (INodeNo(3), b"x"), false);
        assert_eq!(names.known.lock().files.len(), 3);
        learn(&names, 9, b"c", 1000, 2000);
        let known = names.known.lock();
        assert_eq!((known.files.len(), known.places.len()), (1, 1));
    }

    #[test]
    fn a_reply_after_an_event_leases_only_if_it_was_requested_later() {
        let names = names();
        let used = Duration::from_nanos(USED_FOR.0);
        names.outdated(FileId(7), Nanos::from_ms(100));
        assert_eq!(learn(&names, 7, b"a", 150, 1000), Duration::ZERO, "requested at 0");
        assert_eq!(learn(&names, 7, b"a", 150, 1100), Duration::ZERO, "requested at the same time");
        assert_eq!(learn(&names, 8, b"b", 150, 1000), used, "another file");
        assert_eq!(learn(&names, 7, b"a", 150, 1101), used);
        names.outdated(FileId(9), Nanos::from_ms(1200));
        assert_eq!(names.known.lock().dropped.len(), 1, "forgotten when no reply can be that late");
    }

    #[test]
    fn a_file_keeps_all_names_that_the_kernel_may_use() {
        let names = names();
        learn(&names, 7, b"before", 0, 1000);
        learn(&names, 7, b"after", 100, 1100);
        let all = |names: &LeasedNames| -> Vec<Vec<u8>> {
            let known = names.known.lock();
            known.places[&7].iter().map(|leased| leased.place.1.to_vec()).collect()
        };
        assert_eq!(all(&names), [b"before".to_vec(), b"after".to_vec()]);
        learn(&names, 8, b"b", 1050, 2050);
        assert_eq!(all(&names), [b"after".to_vec()]);
    }

    #[test]
    fn notifications_have_the_kernels_format() {
        let mut expected = vec![36, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        expected.extend([5, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0]);
        expected.extend(b"abc\0");
        assert_eq!(expiry(5, b"abc"), expected);
    }
}
