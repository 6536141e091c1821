//! Fences: reject writes under capabilities of a file that end before the file's fence.
//!
//! A client that lost the append lock without releasing it may still write at its old end of file, which others have
//! moved since. The next holder therefore has a fence set before it appends. Fences survive the process, in a file of
//! 20-byte records: file id (8, little-endian), seconds since 1970 (8), CRC-32 of these (4).

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, Ordering};
use weft_core::{ByteLen, FileId, LocalOffset};
use weft_env::{Dir, Env, File, OpenMode};

const NAME: &str = "fences";
pub(super) const RECORD_LEN: usize = 20;
/// Maximum number of files with fences of their own; beyond that, one fence applies to all files.
const FILES_MAX: usize = 65_536;

/// Fences of a target.
pub(super) struct Fences<E: Env> {
    /// True if there is any fence; without one, writes skip the lock.
    any: AtomicBool,
    inner: Mutex<Inner<E>>,
}

struct Inner<E: Env> {
    fences: Table,
    file: Option<E::File>,
    /// Length of the file in bytes.
    end: u64,
}

/// The fences in memory.
#[derive(Default, Debug)]
struct Table {
    files: BTreeMap<FileId, u64>,
    /// Fence of all files, set when there were more fences than [`FILES_MAX`].
    every: u64,
}

impl Table {
    /// Sets a fence; returns true if it is higher than before.
    fn put(&mut self, file: FileId, before_s: u64, now_s: u64) -> bool {
        if self.of(file) >= before_s {
            return false;
        }
        if self.files.len() >= FILES_MAX && !self.files.contains_key(&file) {
            self.files.retain(|_, before| *before > now_s);
        }
        if self.files.len() >= FILES_MAX && !self.files.contains_key(&file) {
            self.every = self.files.values().fold(self.every.max(before_s), |all, &before| all.max(before));
            self.files.clear();
        } else {
            self.files.insert(file, before_s);
        }
        true
    }

    fn of(&self, file: FileId) -> u64 {
        self.files.get(&file).map_or(self.every, |before| self.every.max(*before))
    }
}

pub(super) fn encode(file: FileId, before_s: u64) -> [u8; RECORD_LEN] {
    let mut record = [0; RECORD_LEN];
    record[..8].copy_from_slice(&file.0.to_le_bytes());
    record[8..16].copy_from_slice(&before_s.to_le_bytes());
    let crc = crc32fast::hash(&record[..16]);
    record[16..].copy_from_slice(&crc.to_le_bytes());
    record
}

/// Decodes a record; `None` if it was torn.
pub(super) fn decode(record: &[u8]) -> Option<(FileId, u64)> {
    let (body, crc) = record.split_first_chunk::<16>()?;
    if crc32fast::hash(body).to_le_bytes() != *crc {
        return None;
    }
    let (file, before_s) = body.split_first_chunk::<8>()?;
    Some((FileId(u64::from_le_bytes(*file)), u64::from_le_bytes(before_s.try_into().ok()?)))
}

impl<E: Env> Fences<E> {
    /// Reads the fences that earlier processes set.
    pub async fn open(dir: &E::Dir, now_s: u64) -> io::Result<Self> {
        let (mut fences, mut end, mut kept) = (Table::default(), 0, None);
        match dir.open(NAME, OpenMode::WRITE).await {
            Ok(file) => {
                let mut bytes = vec![0; file.meta().await?.len.0 as usize];
                let got = file.read_at(&mut [IoSliceMut::new(&mut bytes)], LocalOffset(0)).await?;
                bytes.truncate(got);
                for (file, before_s) in bytes.chunks_exact(RECORD_LEN).filter_map(decode) {
                    if before_s > now_s {
                        fences.put(file, before_s, now_s);
                    }
                }
                end = (got as u64).next_multiple_of(RECORD_LEN as u64);
                if fences.files.is_empty() && fences.every == 0 {
                    file.set_len(ByteLen(0)).await?;
                    end = 0;
                }
                kept = Some(file);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let any = AtomicBool::new(fences.every > 0 || !fences.files.is_empty());
        Ok(Self { any, inner: Mutex::new(Inner { fences, file: kept, end }) })
    }

    /// Returns true if a capability of `file` that ends at `expires_s` is fenced.
    #[inline]
    pub fn refuse(&self, file: FileId, expires_s: u64) -> bool {
        self.any.load(Ordering::SeqCst) && expires_s < self.inner.lock().fences.of(file)
    }

    /// Sets a fence. If it cannot be written to the file, it lasts as long as this process.
    pub async fn put(&self, dir: &E::Dir, file: FileId, before_s: u64, now_s: u64) {
        if !self.inner.lock().fences.put(file, before_s, now_s) {
            return;
        }
        self.any.store(true, Ordering::SeqCst);
        let is_noted = self.inner.lock().file.is_some();
        if !is_noted && let Ok(notes) = dir.open(NAME, OpenMode::CREATE).await {
            self.inner.lock().file.get_or_insert(notes);
        }
        let (notes, at) = {
            let mut inner = self.inner.lock();
            let at = inner.end;
            inner.end += RECORD_LEN as u64;
            (inner.file.clone(), at)
        };
        if let Some(notes) = notes {
            let _ = notes.write_at(&[IoSlice::new(&encode(file, before_s))], LocalOffset(at)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip_and_damaged_ones_are_rejected() {
        let record = encode(FileId(0x0102_0304_0506_0708), 0x1112_1314);
        assert_eq!(decode(&record), Some((FileId(0x0102_0304_0506_0708), 0x1112_1314)));
        for bit in 0..RECORD_LEN * 8 {
            let mut bad = record;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&bad), None, "bit {bit}");
        }
    }

    #[test]
    fn fences_are_never_lowered_and_never_dropped_early() {
        let mut fences = Table::default();
        assert!(fences.put(FileId(1), 50, 0) && !fences.put(FileId(1), 40, 0));
        assert_eq!((fences.of(FileId(1)), fences.of(FileId(2))), (50, 0));
        for file in 0..FILES_MAX as u64 {
            fences.put(FileId(file), 60, 0);
        }
        assert!(fences.put(FileId(1 << 40), 55, 10), "above the limit");
        assert!(fences.of(FileId(5)) >= 60 && fences.of(FileId(1 << 40)) >= 55);
        assert!(fences.files.len() <= FILES_MAX);
        let mut fences = Table::default();
        for file in 0..FILES_MAX as u64 {
            fences.put(FileId(file), 60, 0);
        }
        fences.put(FileId(1 << 40), 70, 65);
        assert_eq!(
            (fences.of(FileId(5)), fences.files.len()),
            (0, 1),
            "fences of expired capabilities are dropped"
        );
    }
}
