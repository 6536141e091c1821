//! Which datafiles a target holds.

use super::{Module, Target};
use crate::datafile::{DatafileKey, FAN_OUT, fan_name};
use crate::error::DatafileError;
use weft_core::ByteLen;
use weft_env::{Dir, Env};

impl<E: Env> Target<E> {
    /// At most `limit` datafiles after `after`, in the order of their keys, with their lengths. Empty at the end.
    ///
    /// # Errors
    /// Of the device.
    pub async fn list(
        &self,
        after: Option<DatafileKey>,
        limit: usize,
    ) -> Result<Vec<(DatafileKey, ByteLen)>, DatafileError> {
        if self.module == Module::Null {
            return Ok(self.null.list(after, limit));
        }
        let mut found = Vec::new();
        for fan in after.map_or(0, |key| usize::from(key.fan()))..FAN_OUT {
            let fan = fan as u8;
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
            for key in keys {
                if found.len() == limit {
                    return Ok(found);
                }
                if let Some(meta) = self.meta(key).await? {
                    found.push((key, meta.len));
                }
            }
        }
        Ok(found)
    }
}
