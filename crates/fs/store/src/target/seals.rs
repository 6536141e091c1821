//! Seals: reject any access under capabilities of a file that end before the file's seal.
//!
//! Moving a file to other datafiles seals the old ones. A client that does not know of the move would otherwise read
//! stale bytes, and write bytes that are never read. A seal therefore survives a loss of power. If it cannot be
//! recorded, or there are too many, setting it fails and the file keeps its datafiles. Making, synchronizing and
//! truncating a replica also seals datafiles; clients with newer capabilities go on using them.
//!
//! The file `seals` has the records of `fences`. Opening the target ignores seals that have expired.

use super::fences::{RECORD_LEN, decode, encode};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weft_core::{ByteLen, FileId, LocalOffset};
use weft_env::{Dir, Env, File, OpenMode};

const NAME: &str = "seals";
/// Maximum number of seals: some hundred thousand moved files per hour, the usual life of a capability.
const SEALS_MAX: usize = 1 << 18;

/// Seals of a target.
pub(super) struct Seals<E: Env> {
    /// True if there is any seal; without one, requests skip the lock.
    any: AtomicBool,
    /// Seal of all files, in seconds since 1970. The metadata server remembers it.
    every_s: AtomicU64,
    inner: Mutex<Inner<E>>,
}

struct Inner<E: Env> {
    seals: BTreeMap<FileId, u64>,
    file: Option<E::File>,
    /// Length of the file in bytes.
    end: u64,
}

impl<E: Env> Seals<E> {
    /// Reads the seals that earlier processes set.
    pub async fn open(dir: &E::Dir, now_s: u64) -> io::Result<Self> {
        let (mut seals, mut end, mut kept) = (BTreeMap::new(), 0, None);
        match dir.open(NAME, OpenMode::WRITE).await {
            Ok(file) => {
                // The process that created the file may have crashed before syncing its name.
                dir.sync("").await?;
                let mut bytes = vec![0; file.meta().await?.len.0 as usize];
                let got = file.read_at(&mut [IoSliceMut::new(&mut bytes)], LocalOffset(0)).await?;
                bytes.truncate(got);
                for (sealed, before_s) in bytes.chunks_exact(RECORD_LEN).filter_map(decode) {
                    if before_s > now_s {
                        let seal_s = seals.entry(sealed).or_insert(before_s);
                        *seal_s = before_s.max(*seal_s);
                    }
                }
                end = (got as u64).next_multiple_of(RECORD_LEN as u64);
                if seals.is_empty() {
                    file.set_len(ByteLen(0)).await?;
                    end = 0;
                }
                kept = Some(file);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let any = AtomicBool::new(!seals.is_empty());
        Ok(Self { any, every_s: AtomicU64::new(0), inner: Mutex::new(Inner { seals, file: kept, end }) })
    }

    /// Returns true if a capability of `file` that ends at `expires_s` is sealed.
    #[inline]
    pub fn refuse(&self, file: FileId, expires_s: u64) -> bool {
        if expires_s < self.every_s.load(Ordering::Relaxed) {
            return true;
        }
        self.any.load(Ordering::SeqCst)
            && self.inner.lock().seals.get(&file).is_some_and(|before_s| expires_s < *before_s)
    }

    /// Seals all files.
    pub fn put_every(&self, before_s: u64) {
        self.every_s.fetch_max(before_s, Ordering::Relaxed);
    }

    /// Sets a seal durably.
    pub async fn put(&self, dir: &E::Dir, file: FileId, before_s: u64, now_s: u64) -> io::Result<()> {
        let noted = {
            let mut inner = self.inner.lock();
            if inner.seals.len() >= SEALS_MAX {
                inner.seals.retain(|_, before| *before > now_s);
            }
            if inner.seals.len() >= SEALS_MAX && !inner.seals.contains_key(&file) {
                const WHY: &str =
                    "too many files were moved within the life of a capability: try again later";
                return Err(io::Error::other(WHY));
            }
            let seal_s = inner.seals.entry(file).or_insert(before_s);
            *seal_s = before_s.max(*seal_s);
            self.any.store(true, Ordering::SeqCst);
            inner.file.clone()
        };
        let notes = match noted {
            Some(notes) => notes,
            None => {
                let notes = dir.open(NAME, OpenMode::CREATE).await?;
                dir.sync("").await?;
                self.inner.lock().file.get_or_insert(notes).clone()
            }
        };
        let at = {
            let mut inner = self.inner.lock();
            let at = inner.end;
            inner.end += RECORD_LEN as u64;
            at
        };
        notes.write_at(&[IoSlice::new(&encode(file, before_s))], LocalOffset(at)).await?;
        notes.sync().await
    }
}
