//! Datafiles that their file may have given up for others: capabilities that end before their seal are good for nothing
//! there, not even for reading.
//!
//! A client that does not know of it would read what was, and write what nobody reads. So a seal outlives loss of power, and
//! when it cannot be written down, or there are too many, it does not stand, and the file keeps its datafiles. The file is
//! one of records like those of fences; what has run out is left out when the target is opened.

use super::fences::{RECORD_LEN, decode, encode};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, Ordering};
use weft_core::{ByteLen, FileId, LocalOffset};
use weft_env::{Dir, Env, File, OpenMode};

const NAME: &str = "seals";
/// So many stand at a time: some hundred thousand files in an hour, a capability's usual life.
const SEALS_MAX: usize = 1 << 18;

/// The seals of a target.
pub(super) struct Seals<E: Env> {
    /// There is one; lets requests pass without the lock where there is none.
    any: AtomicBool,
    inner: Mutex<Inner<E>>,
}

struct Inner<E: Env> {
    seals: BTreeMap<FileId, u64>,
    file: Option<E::File>,
    /// Length of the file.
    end: u64,
}

impl<E: Env> Seals<E> {
    /// What the processes before this one put up.
    pub async fn open(dir: &E::Dir, now_s: u64) -> io::Result<Self> {
        let (mut seals, mut end, mut kept) = (BTreeMap::new(), 0, None);
        match dir.open(NAME, OpenMode::WRITE).await {
            Ok(file) => {
                // Whoever made it may not have come so far.
                dir.sync("").await?;
                let mut bytes = vec![0; file.meta().await?.len.0 as usize];
                let got = file.read_at(&mut [IoSliceMut::new(&mut bytes)], LocalOffset(0)).await?;
                bytes.truncate(got);
                for (sealed, before_s) in bytes.chunks_exact(RECORD_LEN).filter_map(decode) {
                    if before_s > now_s {
                        let stands = seals.entry(sealed).or_insert(before_s);
                        *stands = before_s.max(*stands);
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
        Ok(Self { any, inner: Mutex::new(Inner { seals, file: kept, end }) })
    }

    /// Whether a capability of `file` that ends at `expires_s` is of no use.
    #[inline]
    pub fn refuse(&self, file: FileId, expires_s: u64) -> bool {
        self.any.load(Ordering::SeqCst)
            && self.inner.lock().seals.get(&file).is_some_and(|before_s| expires_s < *before_s)
    }

    /// From here on capabilities of `file` that end before `before_s` are refused.
    pub async fn put(&self, dir: &E::Dir, file: FileId, before_s: u64, now_s: u64) -> io::Result<()> {
        let noted = {
            let mut inner = self.inner.lock();
            if inner.seals.len() >= SEALS_MAX {
                inner.seals.retain(|_, before| *before > now_s);
            }
            if inner.seals.len() >= SEALS_MAX && !inner.seals.contains_key(&file) {
                const WHY: &str = "too many files were moved within the life of a capability: go on later";
                return Err(io::Error::other(WHY));
            }
            let stands = inner.seals.entry(file).or_insert(before_s);
            *stands = before_s.max(*stands);
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
