//! Lengths, syncing and listings.

use super::{Gate, Placed};
use weft_core::ByteLen;
use weft_env::{Env, FileMeta};
use weft_store::datafile::DatafileKey;
use weft_store::error::DatafileError;
use weft_store::fragments::Cached;

impl<E: Env> Placed<E> {
    /// Length, room and time of change; `None` when it is missing.
    ///
    /// # Errors
    /// Of the device.
    pub async fn meta(&self, key: DatafileKey) -> Result<Option<FileMeta>, DatafileError> {
        // The log first: what leaves it from here on is on the disk before.
        let cached = self.cached(key);
        let on_disk = self.target.meta(key).await?;
        let Some(cached) = cached else { return Ok(on_disk) };
        let meta = on_disk.unwrap_or_default();
        Ok(Some(FileMeta {
            len: meta.len.max(cached.end),
            blocks_512: meta.blocks_512 + cached.dirty.0.div_ceil(512),
            mtime: meta.mtime.max(cached.mtime),
        }))
    }

    /// What of it lies on the SSD.
    pub fn cached(&self, key: DatafileKey) -> Option<Cached> {
        self.bridge.as_ref()?.log.cached(key)
    }

    /// Makes it and its name survive loss of power. A missing one is as durable as it can be.
    ///
    /// # Errors
    /// Of the devices; then bytes that were written may be lost.
    pub async fn sync(&self, key: DatafileKey, gate: Gate<'_, E>) -> Result<(), DatafileError> {
        if let Some(bridge) = &self.bridge {
            let _busy = bridge.busy();
            bridge.log.sync_datafile(key).await?;
        }
        let _permit = self.enter(gate).await;
        let bridge = self.bridge.as_ref().filter(|bridge| bridge.policies.wants_times());
        let began = bridge.map(|bridge| bridge.env.now());
        self.target.sync(key).await?;
        if let (Some(bridge), Some(began)) = (bridge, began) {
            bridge.policies.synced(bridge.env.now().saturating_sub(began));
        }
        Ok(())
    }

    /// Makes it survive loss of power that `keys` were removed.
    ///
    /// # Errors
    /// Of the devices; then some of them may come back.
    pub async fn sync_removals(&self, keys: &[DatafileKey]) -> Result<(), DatafileError> {
        if let Some(bridge) = &self.bridge {
            for &key in keys {
                bridge.log.sync_datafile(key).await?;
            }
        }
        self.target.sync_removals(keys).await
    }

    /// At most `limit` datafiles after `after`, in the order of their keys, with their lengths, on whichever device they
    /// lie. Empty at the end.
    ///
    /// # Errors
    /// Of the device.
    pub async fn list(
        &self,
        after: Option<DatafileKey>,
        limit: usize,
    ) -> Result<Vec<(DatafileKey, ByteLen)>, DatafileError> {
        let Some(bridge) = &self.bridge else { return self.target.list(after, limit).await };
        let cached = bridge.log.list(after, limit);
        let on_disk = self.target.list(after, limit).await?;
        let mut all: std::collections::BTreeMap<_, _> = on_disk.into_iter().collect();
        for (key, cached) in cached {
            let len = all.entry(key).or_insert(ByteLen(0));
            *len = cached.end.max(*len);
        }
        Ok(all.into_iter().take(limit).collect())
    }
}
