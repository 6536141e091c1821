//! The null module, for measurements: keeps lengths in memory, reads zeros, discards writes.

use super::Fault;
use crate::datafile::DatafileKey;
use crate::emulate::{self, Charge};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use weft_core::{ByteLen, LocalOffset, Timestamp};
use weft_env::device::DeviceAction;
use weft_env::{Env, FileMeta};

/// Datafiles that hold no bytes. They vanish with the server.
#[derive(Default)]
pub(crate) struct NullModule {
    datafiles: Mutex<BTreeMap<DatafileKey, Arc<Mutex<FileMeta>>>>,
}

impl NullModule {
    /// Returns a datafile; `None` if it is missing.
    pub fn find(&self, key: DatafileKey) -> Option<Arc<Mutex<FileMeta>>> {
        self.datafiles.lock().get(&key).cloned()
    }

    /// Returns a datafile, which is created if it is missing.
    pub fn find_or_create(&self, key: DatafileKey) -> Arc<Mutex<FileMeta>> {
        Arc::clone(self.datafiles.lock().entry(key).or_default())
    }

    /// Removes a datafile.
    pub fn remove(&self, key: DatafileKey) {
        self.datafiles.lock().remove(&key);
    }

    /// Returns at most `limit` datafiles after `after`, with their lengths.
    pub fn list(&self, after: Option<DatafileKey>, limit: usize) -> Vec<(DatafileKey, ByteLen)> {
        use std::ops::Bound::{Excluded, Unbounded};
        let datafiles = self.datafiles.lock();
        let from = after.map_or(Unbounded, Excluded);
        datafiles.range((from, Unbounded)).take(limit).map(|(&key, meta)| (key, meta.lock().len)).collect()
    }
}

/// An open datafile that holds no bytes.
pub(crate) struct NullFile<E: Env> {
    pub env: E,
    pub meta: Arc<Mutex<FileMeta>>,
    pub charge: Charge<E>,
}

impl<E: Env> NullFile<E> {
    /// Reads zeros up to the end.
    pub async fn read(&self, offset: LocalOffset, buf: &mut [u8]) -> Result<(usize, ByteLen), Fault> {
        let in_flight = self.charge.begin(DeviceAction::Read, offset, buf.len());
        let len = self.meta.lock().len;
        let count = len.0.saturating_sub(offset.0).min(buf.len() as u64) as usize;
        buf[..count].fill(0);
        emulate::finish(in_flight).await;
        Ok((count, len))
    }

    pub async fn write(&self, offset: LocalOffset, bytes: &[u8]) -> Result<(), Fault> {
        self.extend(offset, bytes.len()).await
    }

    /// Takes the time of a write, and extends the datafile to its end.
    pub async fn extend(&self, offset: LocalOffset, len: usize) -> Result<(), Fault> {
        let in_flight = self.charge.begin(DeviceAction::Write, offset, len);
        {
            let mut meta = self.meta.lock();
            meta.len = meta.len.max(ByteLen(offset.0 + len as u64));
            meta.mtime = self.env.wall();
        }
        emulate::finish(in_flight).await;
        Ok(())
    }

    pub async fn set_len(&self, len: ByteLen) -> Result<(), Fault> {
        *self.meta.lock() = FileMeta { len, mtime: self.env.wall(), ..FileMeta::default() };
        Ok(())
    }

    pub async fn punch(&self, _: LocalOffset, _: ByteLen) -> Result<(), Fault> {
        Ok(())
    }

    pub async fn seek_data(&self, _: LocalOffset) -> Result<Option<LocalOffset>, Fault> {
        Ok(None)
    }

    pub async fn seek_hole(&self, offset: LocalOffset) -> Result<LocalOffset, Fault> {
        Ok(offset)
    }

    pub async fn meta(&self) -> Result<FileMeta, Fault> {
        Ok(*self.meta.lock())
    }

    pub async fn set_mtime(&self, _: Timestamp) -> Result<(), Fault> {
        Ok(())
    }

    pub async fn forget(&self) -> Result<(), Fault> {
        Ok(())
    }
}
