//! Leases of datafile descriptors to clients on the same host.

use super::{Target, format};
use crate::datafile::DatafileKey;
use crate::error::DatafileError;
use std::io;
use std::sync::atomic::Ordering;
use weft_env::{Dir, Env, OpenMode};

impl<E: Env> Target<E> {
    /// Opens a descriptor to lease to a client on the same host. Returns `None` if the module or the datafile's format
    /// must see every access, or if the lease is read-only and the datafile does not exist.
    ///
    /// Each call opens the datafile again. The client gets an open file description of its own, so its status flags
    /// (`O_APPEND`, `O_DIRECT`, `O_NONBLOCK`), offset and `flock` locks do not affect the server or other leases.
    /// Without `write` the description is read-only.
    ///
    /// # Errors
    /// Errors of the device.
    pub async fn lease_file(&self, key: DatafileKey, write: bool) -> Result<Option<E::File>, DatafileError> {
        if !self.sends_files() {
            return Ok(None);
        }
        if self.is_verified(key).await? {
            return Ok(None);
        }
        if !self.leases_marked.load(Ordering::Acquire) {
            let marked = self.dir.open(format::LEASED, OpenMode::CREATE).await;
            marked.map_err(|error| self.error(key, "mark the target as leased", error))?;
            self.leases_marked.store(true, Ordering::Release);
        }
        let mode = if write {
            self.open_or_create(key).await?;
            OpenMode::WRITE
        } else {
            OpenMode::READ
        };
        // No lease of a datafile that was removed since the check.
        match self.dir.open(&key.name(), mode).await {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.error(key, "open", error)),
        }
    }

    /// Records that all leased descriptors have been recalled, so that the next start need not wait for them.
    ///
    /// # Errors
    /// Errors of the device.
    pub async fn mark_leases_ended(&self) -> Result<(), DatafileError> {
        self.remove_file(format::LEASED).await.map_err(|error| {
            let path = self.path.join(format::LEASED).display().to_string();
            DatafileError::new(path, "remove", error)
        })?;
        self.leases_marked.store(false, Ordering::Release);
        Ok(())
    }
}
