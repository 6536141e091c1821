//! Operations on whole datafiles: metadata, sync and listing.

use super::{DiskAdmission, TieredTarget};
use weft_core::{ByteLen, Timestamp};
use weft_env::{Env, FileMeta};
use weft_store::datafile::DatafileKey;
use weft_store::error::DatafileError;
use weft_store::fragments::Cached;

impl<E: Env> TieredTarget<E> {
    /// Length, allocated blocks and modification time; `None` if the datafile does not exist.
    ///
    /// # Errors
    /// Errors of the device.
    pub async fn meta(&self, key: DatafileKey) -> Result<Option<FileMeta>, DatafileError> {
        // The log first: bytes that leave it after this are on the disk already.
        let cached = self.cached(key);
        let on_disk = self.target.meta(key).await?;
        let Some(cached) = cached else { return Ok(on_disk) };
        let meta = on_disk.unwrap_or_default();
        Ok(Some(FileMeta {
            len: meta.len.max(cached.end),
            blocks_512: meta.blocks_512 + cached.dirty.0.div_ceil(512),
            mtime: meta.mtime.max(cached.mtime),
            ..FileMeta::default()
        }))
    }

    /// Extent of a datafile in the log.
    pub fn cached(&self, key: DatafileKey) -> Option<Cached> {
        self.tier.as_ref()?.log.cached(key)
    }

    /// Makes the datafile and its name durable. Succeeds if it does not exist. Copies of dirty bytes on the disk do not
    /// count: the SSD has these bytes.
    ///
    /// # Errors
    /// Errors of the devices; written bytes may then be lost.
    pub async fn sync(&self, key: DatafileKey, admission: DiskAdmission<'_, E>) -> Result<(), DatafileError> {
        if let Some(tier) = &self.tier {
            let is_durable = tier.durable.contains(key);
            let _active = tier.begin_log_request();
            tier.log.sync_datafile(key).await?;
            if is_durable && tier.log.failure().is_none() {
                return Ok(());
            }
        }
        let _permit = self.enter(admission).await;
        let tier = self.tier.as_ref().filter(|tier| tier.policies.needs_write_times());
        let began = tier.map(|tier| tier.env.now());
        self.sync_disk(key).await?;
        if let (Some(tier), Some(began)) = (tier, began) {
            tier.policies.synced(tier.env.now().saturating_sub(began));
        }
        Ok(())
    }

    /// Syncs the datafile on the disk.
    ///
    /// # Errors
    /// Errors of the disk.
    pub(super) async fn sync_disk(&self, key: DatafileKey) -> Result<(), DatafileError> {
        let Some(tier) = &self.tier else { return self.target.sync(key).await };
        let sync = tier.durable.begin_sync(key);
        let synced = self.target.sync(key).await;
        tier.durable.end_sync(key, sync, synced.is_ok());
        synced
    }

    /// Sets the modification time on the disk.
    ///
    /// # Errors
    /// Errors of the disk.
    pub async fn set_mtime(&self, key: DatafileKey, mtime: Timestamp) -> Result<(), DatafileError> {
        let _change = self.tier.as_ref().map(|tier| tier.durable.begin_change(key));
        self.target.set_mtime(key, mtime).await
    }

    /// Makes the removal of `keys` durable.
    ///
    /// # Errors
    /// Errors of the devices; some datafiles may then reappear after a loss of power.
    pub async fn sync_removals(&self, keys: &[DatafileKey]) -> Result<(), DatafileError> {
        if let Some(tier) = &self.tier {
            for &key in keys {
                tier.log.sync_datafile(key).await?;
            }
        }
        self.target.sync_removals(keys).await
    }

    /// Lists at most `limit` datafiles after `after` on either device, with their lengths, in the order of their keys.
    /// The list is empty at the end.
    ///
    /// # Errors
    /// Errors of the device.
    pub async fn list(
        &self,
        after: Option<DatafileKey>,
        limit: usize,
    ) -> Result<Vec<(DatafileKey, ByteLen)>, DatafileError> {
        let Some(tier) = &self.tier else { return self.target.list(after, limit).await };
        let cached = tier.log.list(after, limit);
        let on_disk = self.target.list(after, limit).await?;
        let mut all: std::collections::BTreeMap<_, _> = on_disk.into_iter().collect();
        for (key, cached) in cached {
            let len = all.entry(key).or_insert(ByteLen(0));
            *len = cached.end.max(*len);
        }
        Ok(all.into_iter().take(limit).collect())
    }
}
