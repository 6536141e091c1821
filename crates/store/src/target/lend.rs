//! Datafiles' own descriptors, for co-located clients.

use super::{Target, format};
use crate::datafile::DatafileKey;
use crate::error::DatafileError;
use std::io;
use std::sync::atomic::Ordering;
use weft_env::{Dir, Env, OpenMode};

impl<E: Env> Target<E> {
    /// The descriptor to lend to a co-located client; `None` when the module or the checksums have to see every access, or when only
    /// reading is wanted and there is nothing yet.
    ///
    /// Each call opens the datafile anew. The client gets an open file description that nothing else uses, so its status flags
    /// (`O_APPEND`, `O_DIRECT`, `O_NONBLOCK`), its offset and its `flock` locks have no effect on the server or on other leases.
    /// Without `write` the description is read-only.
    ///
    /// # Errors
    /// Of the device.
    pub async fn file_to_lend(
        &self,
        key: DatafileKey,
        write: bool,
    ) -> Result<Option<E::File>, DatafileError> {
        if !self.sends_files() {
            return Ok(None);
        }
        if self.is_checked(key).await? {
            return Ok(None);
        }
        if !self.leases_marked.load(Ordering::Acquire) {
            let marked = self.dir.open(format::LEASED, OpenMode::CREATE).await;
            marked.map_err(|error| self.error(key, "note that descriptors are lent", error))?;
            self.leases_marked.store(true, Ordering::Release);
        }
        let mode = if write {
            self.made(key).await?;
            OpenMode::WRITE
        } else {
            OpenMode::READ
        };
        // A datafile that was removed meanwhile is not lent.
        match self.dir.open(&key.name(), mode).await {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.error(key, "open", error)),
        }
    }

    /// All lent descriptors have been taken back: the next start need not wait for them.
    ///
    /// # Errors
    /// Of the device.
    pub async fn leases_ended(&self) -> Result<(), DatafileError> {
        match self.dir.remove(format::LEASED).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let path = self.path.join(format::LEASED).display().to_string();
                Err(DatafileError::new(path, "remove", error))
            }
            _ => {
                self.leases_marked.store(false, Ordering::Release);
                Ok(())
            }
        }
    }
}
