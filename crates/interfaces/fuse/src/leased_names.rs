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
    /// Connection to the kernel.
    device: OnceLock<File>,
}

#[derive(Default)]
struct Known {
    places: HashMap<u64, Leased>,
    files: HashMap<Place, u64>,
    /// Files in the order in which their leases end.
    ends: VecDeque<(Nanos, u64)>,
}

impl Known {
    fn put(&mut self, file: u64, place: Place, until: Nanos, looked_up: Nanos) {
        self.files.insert(place.clone(), file);
        let earlier = self.places.get(&file).map_or(Nanos::ZERO, |leased| leased.looked_up);
        let looked_up = looked_up.max(earlier);
        let before = self.places.insert(file, Leased { place: place.clone(), until, looked_up });
        if let Some(Leased { place: old, .. }) = before
            && old != place
        {
            self.forget_place(&old, file);
        }
        self.ends.push_back((until, file));
    }

    fn forget_place(&mut self, place: &Place, file: u64) {
        if self.files.get(place) == Some(&file) {
            self.files.remove(place);
        }
    }

    fn forget_ended(&mut self, now: Nanos) {
        while let Some(&(until, file)) = self.ends.front()
            && until <= now
        {
            self.ends.pop_front();
            if self.places.get(&file).is_some_and(|leased| leased.until <= now)
                && let Some(Leased { place, .. }) = self.places.remove(&file)
            {
                self.forget_place(&place, file);
            }
        }
    }
}

impl LeasedNames {
    /// Uses this connection from now on.
    ///
    /// # Errors
    /// If no descriptor is left.
    pub fn begin(&self, device: BorrowedFd<'_>) -> io::Result<()> {
        let _ = self.device.set(File::from(device.try_clone_to_owned()?));
        Ok(())
    }

    /// Remembers a name of a listing that the kernel is going to get. Returns the time for which it may use it.
    pub fn listed(&self, lease: (FileId, Nanos), parent: INodeNo, name: &[u8], now: Nanos) -> Duration {
        self.learn(lease, (parent.0, name.into()), now, Nanos::ZERO)
    }

    /// Remembers a name in the reply to a lookup, like [`Self::listed`]. Returns how long the kernel may use it.
    pub fn looked_up(&self, attr: &Attr, until: Nanos, (parent, name): (INodeNo, &[u8]), now: Nanos) -> Used {
        let is_dir = attr.kind == FileType::Directory;
        let looked_up = if is_dir { now } else { Nanos::ZERO };
        let attributes = self.learn((attr.file, until), (parent.0, name.into()), now, looked_up);
        Used { name: if is_dir { attributes } else { Duration::ZERO }, attributes }
    }

    fn learn(&self, (file, until): (FileId, Nanos), place: Place, now: Nanos, looked_up: Nanos) -> Duration {
        let age = NAME_LEASE.saturating_sub(until.saturating_sub(now));
        if age > BEGIN_WITHIN || self.device.get().is_none() {
            return Duration::ZERO;
        }
        let mut known = self.known.lock();
        known.forget_ended(now);
        known.put(file.0, place, until, looked_up);
        Duration::from_nanos(USED_FOR.0)
    }

    /// Waits until the kernel has surely taken in the latest reply to a lookup of a file.
    pub fn wait_for_kernel(&self, file: FileId, env: &RealEnv) {
        loop {
            let looked_up =
                self.known.lock().places.get(&file.0).map_or(Nanos::ZERO, |leased| leased.looked_up);
            let left = looked_up.saturating_add(TAKEN_IN_WITHIN).saturating_sub(env.now());
            if looked_up == Nanos::ZERO || left == Nanos::ZERO {
                return;
            }
            std::thread::sleep(Duration::from_nanos(left.0));
        }
    }

    /// Returns the directory and name of an inode that the kernel may have reached without asking.
    pub fn place(&self, inode: u64) -> Option<(u64, Box<[u8]>)> {
        self.known.lock().places.get(&inode).map(|leased| leased.place.clone())
    }

    /// Follows a rename by this mount before the kernel learns that it succeeded: the kernel uses the new name for as
    /// long as the old one.
    pub fn renamed(&self, from: (INodeNo, &[u8]), to: (INodeNo, &[u8]), exchange: bool) {
        let place = |(parent, name): (INodeNo, &[u8])| -> Place { (parent.0, name.into()) };
        let (from, to) = (place(from), place(to));
        let mut known = self.known.lock();
        let until = |known: &Known, file: u64| known.places.get(&file).map(|leased| leased.until);
        let (moved, replaced) = (known.files.remove(&from), known.files.remove(&to));
        if let Some(file) = moved
            && let Some(until) = until(&known, file)
        {
            known.put(file, to, until, Nanos::ZERO);
        }
        if let Some(file) = replaced
            && exchange
            && let Some(until) = until(&known, file)
        {
            known.put(file, from, until, Nanos::ZERO);
        }
    }

    /// Makes the kernel forget name and attributes of a file. Not for serving threads: the kernel waits for requests in
    /// the directory that they have to serve.
    pub fn drop_now(&self, notifier: &Notifier, file: FileId) {
        let mut dropped = None;
        // A rename may move the name while the kernel drops the old one.
        while let Some(place) = self.place(file.0).filter(|place| dropped.as_ref() != Some(place)) {
            self.expire(&place);
            // Without offset: attributes only. An inode that the kernel does not know is not an error.
            let _ = notifier.inval_inode(INodeNo(file.0), -1, 0);
            dropped = Some(place);
        }
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
        names
    }

    fn learn(names: &LeasedNames, file: u64, name: &[u8], now_ms: u64, until_ms: u64) -> Duration {
        let (now, until) = (Nanos::from_ms(now_ms), Nanos::from_ms(until_ms));
        names.listed((FileId(file), until), INodeNo(1), name, now)
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
    fn renames_move_names() {
        let names = names();
        learn(&names, 7, b"a", 0, 1000);
        learn(&names, 8, b"b", 0, 1000);
        names.renamed((INodeNo(1), b"a"), (INodeNo(2), b"b"), false);
        assert_eq!(place(&names, 7), Some((2, b"b".to_vec())));
        names.renamed((INodeNo(2), b"b"), (INodeNo(1), b"b"), true);
        assert_eq!(place(&names, 7), Some((1, b"b".to_vec())));
        assert_eq!(place(&names, 8), Some((2, b"b".to_vec())), "exchanged");
        names.renamed((INodeNo(1), b"b"), (INodeNo(2), b"b"), false);
        assert_eq!(place(&names, 7), Some((2, b"b".to_vec())));
        // The replaced file has lost its name, and a later rename does not give it one.
        names.renamed((INodeNo(2), b"b"), (INodeNo(3), b"x"), false);
        assert_eq!(place(&names, 7), Some((3, b"x".to_vec())));
        names.renamed((INodeNo(1), b"unknown"), (INodeNo(3), b"x"), false);
        assert_eq!(names.known.lock().files.len(), 0);
    }

    #[test]
    fn notifications_have_the_kernels_format() {
        let mut expected = vec![36, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        expected.extend([5, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0]);
        expected.extend(b"abc\0");
        assert_eq!(expiry(5, b"abc"), expected);
    }
}
