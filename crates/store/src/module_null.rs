//! The module that keeps no bytes: lengths live in memory, reads give zeros, writes go nowhere.

use crate::datafile::DatafileKey;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use weft_core::{ByteLen, LocalOffset, Timestamp};
use weft_env::FileMeta;

/// Lengths of datafiles that are nowhere. They end with the server.
#[derive(Default)]
pub(crate) struct NullModule {
    datafiles: Mutex<BTreeMap<DatafileKey, FileMeta>>,
}

impl NullModule {
    /// Zeros up to the end; the number of bytes and the length.
    pub fn read(&self, key: DatafileKey, offset: LocalOffset, buf: &mut [u8]) -> (usize, ByteLen) {
        let len = self.meta(key).unwrap_or_default().len;
        let count = len.0.saturating_sub(offset.0).min(buf.len() as u64) as usize;
        buf[..count].fill(0);
        (count, len)
    }

    pub fn write(&self, key: DatafileKey, end: u64, now: Timestamp) {
        let mut datafiles = self.datafiles.lock();
        let meta = datafiles.entry(key).or_default();
        meta.len = meta.len.max(ByteLen(end));
        meta.mtime = now;
    }

    pub fn set_len(&self, key: DatafileKey, len: ByteLen, now: Timestamp) {
        let mut datafiles = self.datafiles.lock();
        if len == ByteLen(0) && !datafiles.contains_key(&key) {
            return;
        }
        datafiles.insert(key, FileMeta { len, blocks_512: 0, mtime: now });
    }

    pub fn meta(&self, key: DatafileKey) -> Option<FileMeta> {
        self.datafiles.lock().get(&key).copied()
    }

    pub fn remove(&self, key: DatafileKey) {
        self.datafiles.lock().remove(&key);
    }

    pub fn list(&self, after: Option<DatafileKey>, limit: usize) -> Vec<(DatafileKey, ByteLen)> {
        use std::ops::Bound::{Excluded, Unbounded};
        let datafiles = self.datafiles.lock();
        let from = after.map_or(Unbounded, Excluded);
        datafiles.range((from, Unbounded)).take(limit).map(|(&key, meta)| (key, meta.len)).collect()
    }
}
