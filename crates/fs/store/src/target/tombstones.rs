//! Tombstones of recently removed datafiles, which clients that still have the file open must not create again.
//!
//! The capability of a client that lost contact with the metadata service remains valid for a while, although the file
//! is gone. Without tombstones, its writes would create datafiles that belong to no file, and its reads would see
//! holes.
//!
//! The tombstones survive the process, in a file of 16-byte records: file id (8, little-endian), component (2), column
//! (2), CRC-32 of these (4).

use crate::datafile::DatafileKey;
use crate::error::is_full;
use crate::range_lock::RangeLocks;
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};
use std::io::{self, IoSlice, IoSliceMut};
use weft_core::{ByteLen, FileId, LocalOffset, ObjectId};
use weft_env::{Dir, Env, File, OpenMode};

const NAME: &str = "removed";
const NAME_NEW: &str = "removed.new";
const RECORD_LEN: usize = 16;
/// Maximum number of tombstones.
const TOMBSTONES_MAX: usize = 65_536;

/// Tombstones of a target.
pub(super) struct Tombstones<E: Env> {
    inner: Mutex<Inner<E>>,
    /// Locked while records are written: a sync must not overtake a record that another task is writing.
    writing: RangeLocks<E>,
}

struct Inner<E: Env> {
    all: BTreeSet<DatafileKey>,
    /// Oldest first.
    order: VecDeque<DatafileKey>,
    /// Tombstones that are not in the file yet.
    unwritten: VecDeque<DatafileKey>,
    file: Option<E::File>,
    /// Length of the file in bytes.
    end: u64,
}

fn encode(key: DatafileKey) -> [u8; RECORD_LEN] {
    let mut record = [0; RECORD_LEN];
    record[..8].copy_from_slice(&key.file.0.to_le_bytes());
    record[8..10].copy_from_slice(&key.object.component.to_le_bytes());
    record[10..12].copy_from_slice(&key.object.column.to_le_bytes());
    let crc = crc32fast::hash(&record[..12]);
    record[12..].copy_from_slice(&crc.to_le_bytes());
    record
}

/// Decodes a record; `None` if it was torn.
fn decode(record: &[u8]) -> Option<DatafileKey> {
    let (body, crc) = record.split_first_chunk::<12>()?;
    if crc32fast::hash(body).to_le_bytes() != *crc {
        return None;
    }
    let file = FileId(u64::from_le_bytes(body[..8].try_into().ok()?));
    let number = |at: usize| u16::from_le_bytes([body[at], body[at + 1]]);
    Some(DatafileKey::new(file, ObjectId { component: number(8), column: number(10) }))
}

impl<E: Env> Tombstones<E> {
    /// Reads the tombstones that earlier processes recorded.
    pub async fn open(env: &E, dir: &E::Dir) -> io::Result<Self> {
        let (mut order, mut end, mut kept) = (VecDeque::new(), 0, None);
        match dir.open(NAME, OpenMode::WRITE).await {
            Ok(file) => {
                let len = file.meta().await?.len.0;
                // The file has at most twice as many records as are kept; older ones are dropped here.
                let skipped = len.saturating_sub((TOMBSTONES_MAX * RECORD_LEN) as u64);
                let skipped = skipped.next_multiple_of(RECORD_LEN as u64).min(len);
                let mut bytes = vec![0; (len - skipped) as usize];
                let got = file.read_at(&mut [IoSliceMut::new(&mut bytes)], LocalOffset(skipped)).await?;
                bytes.truncate(got);
                order.extend(bytes.chunks_exact(RECORD_LEN).filter_map(decode));
                end = len.next_multiple_of(RECORD_LEN as u64);
                kept = Some(file);
                if skipped > 0 {
                    let all: Vec<u8> = order.iter().flat_map(|&key| encode(key)).collect();
                    match Self::replaced(dir, &all).await {
                        Ok(file) => (end, kept) = (all.len() as u64, Some(file)),
                        // On a full disk the file stays as long as it is.
                        Err(error) if is_full(&error) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let all = order.iter().copied().collect();
        let unwritten = VecDeque::new();
        let inner = Mutex::new(Inner { all, order, unwritten, file: kept, end });
        Ok(Self { inner, writing: RangeLocks::new(env) })
    }

    /// Replaces the file by one with `bytes`, atomically and durably.
    async fn replaced(dir: &E::Dir, bytes: &[u8]) -> io::Result<E::File> {
        let file = dir.open(NAME_NEW, OpenMode::CREATE).await?;
        file.set_len(ByteLen(0)).await?;
        file.write_at(&[IoSlice::new(bytes)], LocalOffset(0)).await?;
        file.sync().await?;
        dir.rename(NAME_NEW, NAME).await?;
        dir.sync("").await?;
        Ok(file)
    }

    pub fn contains(&self, key: DatafileKey) -> bool {
        self.inner.lock().all.contains(&key)
    }

    /// Writes the records that failed earlier, and makes all of them survive a loss of power. After a removal, even a
    /// full disk has space again.
    pub async fn sync(&self, dir: &E::Dir) -> io::Result<()> {
        self.write_down(dir).await?;
        let file = self.inner.lock().file.clone();
        match file {
            Some(file) => file.sync().await,
            None => Ok(()),
        }
    }

    /// Adds a tombstone. A record that cannot be written now is written by the next [`sync`](Self::sync).
    pub async fn add(&self, dir: &E::Dir, key: DatafileKey) {
        {
            let mut inner = self.inner.lock();
            if !inner.all.insert(key) {
                return;
            }
            inner.order.push_back(key);
            inner.unwritten.push_back(key);
            if inner.order.len() > TOMBSTONES_MAX
                && let Some(oldest) = inner.order.pop_front()
            {
                inner.all.remove(&oldest);
            }
        }
        let _ = self.write_down(dir).await;
    }

    async fn write_down(&self, dir: &E::Dir) -> io::Result<()> {
        let _alone = self.writing.lock(0, 1).await;
        loop {
            let Some(key) = self.inner.lock().unwritten.pop_front() else { return Ok(()) };
            if let Err(error) = self.write(dir, key).await {
                let mut inner = self.inner.lock();
                inner.unwritten.push_front(key);
                inner.unwritten.truncate(TOMBSTONES_MAX);
                return Err(error);
            }
        }
    }

    async fn write(&self, dir: &E::Dir, key: DatafileKey) -> io::Result<()> {
        let noted = self.inner.lock().file.clone();
        let file = match noted {
            Some(file) => file,
            None => {
                let file = dir.open(NAME, OpenMode::CREATE).await?;
                // A sync of the file does not cover its name.
                dir.sync("").await?;
                self.inner.lock().file.get_or_insert(file).clone()
            }
        };
        let at = {
            let mut inner = self.inner.lock();
            let at = inner.end;
            inner.end += RECORD_LEN as u64;
            at
        };
        file.write_at(&[IoSlice::new(&encode(key))], LocalOffset(at)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip_and_damaged_ones_are_rejected() {
        let key = DatafileKey::new(FileId(0x0102_0304_0506_0708), ObjectId { component: 3, column: 0x405 });
        let record = encode(key);
        assert_eq!(decode(&record), Some(key));
        for bit in 0..RECORD_LEN * 8 {
            let mut bad = record;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&bad), None, "bit {bit}");
        }
    }
}
