//! Lists the datafiles of a target.

use super::{Module, Target};
use crate::datafile::{DatafileKey, FAN_OUT, fan_name};
use crate::error::DatafileError;
use weft_core::ByteLen;
use weft_env::{Dir, Env, FileMeta};

impl<E: Env> Target<E> {
    /// Returns at most `limit` datafiles after `after`, in the order of their keys, with their lengths. Empty at the
    /// end. A compressed datafile with a lost map has the length [`ByteLen::UNKNOWN`].
    ///
    /// # Errors
    /// Errors of the device.
    pub async fn list(
        &self,
        after: Option<DatafileKey>,
        limit: usize,
    ) -> Result<Vec<(DatafileKey, ByteLen)>, DatafileError> {
        if self.module == Module::Null {
            return Ok(self.null.list(after, limit));
        }
        let mut found = Vec::new();
        for fan in fans(after) {
            for key in self.keys_in(fan, after).await? {
                if found.len() == limit {
                    return Ok(found);
                }
                let meta = match self.meta(key).await {
                    // It holds bytes, so it must not look empty to a repair.
                    Err(DatafileError::MapMissing { .. } | DatafileError::MapDamaged { .. }) => {
                        Some(FileMeta { len: ByteLen::UNKNOWN, ..FileMeta::default() })
                    }
                    meta => meta?,
                };
                if let Some(meta) = meta {
                    found.push((key, meta.len));
                }
            }
        }
        Ok(found)
    }

    /// Returns at most `limit` datafiles after `after`, in the order of their keys. Empty at the end. Opens none,
    /// whereas [`list`](Self::list) reads the maps of compressed ones for their lengths.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) async fn list_keys(
        &self,
        after: Option<DatafileKey>,
        limit: usize,
    ) -> Result<Vec<DatafileKey>, DatafileError> {
        let mut found = Vec::new();
        for fan in fans(after) {
            found.extend(self.keys_in(fan, after).await?);
            if found.len() >= limit {
                found.truncate(limit);
                break;
            }
        }
        Ok(found)
    }

    /// Returns the sorted keys after `after` in folder `fan`.
    async fn keys_in(&self, fan: u8, after: Option<DatafileKey>) -> Result<Vec<DatafileKey>, DatafileError> {
        let folder = fan_name(fan);
        let names = self.dir.list(&folder).await.map_err(|error| {
            DatafileError::new(self.path.join(&folder).display().to_string(), "list", error)
        })?;
        let mut keys: Vec<_> = names
            .iter()
            .filter_map(|name| DatafileKey::parse(fan, name))
            .filter(|&key| after.is_none_or(|after| key > after))
            .collect();
        keys.sort_unstable();
        Ok(keys)
    }
}

/// Returns the folders that may have datafiles after `after`.
fn fans(after: Option<DatafileKey>) -> impl Iterator<Item = u8> {
    (after.map_or(0, |key| usize::from(key.fan()))..FAN_OUT).map(|fan| fan as u8)
}
