//! A note of the fragment log that may hold newer bytes of the target.
//!
//! Opening the target without a log that may have the only copy of bytes would serve stale bytes. The file `beside`
//! contains that log's path. For a log that has copies only it contains the path and [`COPIES`]: the target can be opened
//! without that log, which removes the note. A log without a note may have older bytes than the disk, so its copies are
//! dropped when it is opened.

use super::Target;
use crate::error::TargetError;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use weft_core::{ByteLen, LocalOffset};
use weft_env::{Dir, Env, File, OpenMode};

const NAME: &str = "beside";
const NAME_NEW: &str = "beside.new";
/// Follows the path of a log that has copies only. No path contains its first byte, so a program that does not know it
/// takes the log for another one and refuses the target.
const COPIES: &[u8] = b"\0copies";
/// Maximum length of a path on Linux, in bytes.
const PATH_LEN_MAX: usize = 4096;

/// A fragment log noted at a target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogNote {
    /// Directory of the log.
    pub path: PathBuf,
    /// True if the log has copies of the disk's bytes only.
    pub has_copies_only: bool,
}

impl<E: Env> Target<E> {
    /// Returns the log that may hold bytes of the target.
    ///
    /// # Errors
    /// Errors of the file system.
    pub async fn log_beside(&self) -> Result<Option<LogNote>, TargetError> {
        let read = async {
            let file = match self.dir.open(NAME, OpenMode::READ).await {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            };
            let mut bytes = vec![0; PATH_LEN_MAX + COPIES.len()];
            let got = file.read_at(&mut [IoSliceMut::new(&mut bytes)], LocalOffset(0)).await?;
            bytes.truncate(got);
            let path = bytes.strip_suffix(COPIES).map(<[u8]>::to_vec);
            let has_copies_only = path.is_some();
            let path = PathBuf::from(std::ffi::OsString::from_vec(path.unwrap_or(bytes)));
            Ok(Some(LogNote { path, has_copies_only }))
        };
        read.await.map_err(self.about_note("read the path of its fragment log"))
    }

    /// Records durably that a log may hold bytes of the target, or with `None` that no log does.
    ///
    /// # Errors
    /// Errors of the file system.
    pub async fn note_log(&self, log: Option<&LogNote>) -> Result<(), TargetError> {
        let noted = async {
            match log {
                Some(note) => {
                    // Written to a new file, because a loss of power could leave half of an overwritten one.
                    let file = self.dir.open(NAME_NEW, OpenMode::CREATE).await?;
                    let mut bytes = note.path.as_os_str().as_bytes().to_vec();
                    bytes.extend_from_slice(if note.has_copies_only { COPIES } else { &[] });
                    file.set_len(ByteLen(0)).await?;
                    file.write_at(&[IoSlice::new(&bytes)], LocalOffset(0)).await?;
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
        noted.await.map_err(self.about_note("record the path of its fragment log"))
    }

    fn about_note(&self, doing: &'static str) -> impl FnOnce(io::Error) -> TargetError + use<E> {
        let path = self.path.clone();
        move |source| TargetError::Io { path, doing, source }
    }
}
