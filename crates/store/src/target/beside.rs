//! The note that newer bytes of a target may lie in a fragment log beside it: whoever opens the target without the log
//! would serve old ones.
//!
//! The file `beside` holds the path of the log and nothing else.

use super::Target;
use crate::error::TargetError;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use weft_core::{ByteLen, LocalOffset};
use weft_env::{Dir, Env, File, OpenMode};

const NAME: &str = "beside";
const NAME_NEW: &str = "beside.new";
/// What Linux takes for a path.
const PATH_LEN_MAX: usize = 4096;

impl<E: Env> Target<E> {
    /// The log in which newer bytes may lie.
    ///
    /// # Errors
    /// Of the file system.
    pub async fn log_beside(&self) -> Result<Option<PathBuf>, TargetError> {
        let read = async {
            let file = match self.dir.open(NAME, OpenMode::READ).await {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            };
            let mut bytes = vec![0; PATH_LEN_MAX];
            let got = file.read_at(&mut [IoSliceMut::new(&mut bytes)], LocalOffset(0)).await?;
            bytes.truncate(got);
            Ok(Some(PathBuf::from(std::ffi::OsString::from_vec(bytes))))
        };
        read.await.map_err(self.about_note("read which fragment log stands beside it"))
    }

    /// From here on newer bytes may lie in the log at `log`; with `None` they do not any more. Survives loss of power.
    ///
    /// # Errors
    /// Of the file system.
    pub async fn note_log(&self, log: Option<&Path>) -> Result<(), TargetError> {
        let noted = async {
            match log {
                Some(path) => {
                    // Not over the one that is there: a loss of power may leave half of either.
                    let file = self.dir.open(NAME_NEW, OpenMode::CREATE).await?;
                    let bytes = path.as_os_str().as_bytes();
                    file.set_len(ByteLen(0)).await?;
                    file.write_at(&[IoSlice::new(bytes)], LocalOffset(0)).await?;
                    file.sync().await?;
                    self.dir.rename(NAME_NEW, NAME).await?;
                }
                None => match self.dir.remove(NAME).await {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                    removed => removed?,
                },
            }
            self.dir.sync("").await
        };
        noted.await.map_err(self.about_note("note which fragment log stands beside it"))
    }

    fn about_note(&self, doing: &'static str) -> impl FnOnce(io::Error) -> TargetError + use<E> {
        let path = self.path.clone();
        move |source| TargetError::Io { path, doing, source }
    }
}
