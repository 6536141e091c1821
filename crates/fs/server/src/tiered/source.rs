//! Bytes on their way into a datafile.

use weft_core::{ByteLen, LocalOffset};
use weft_env::Env;
use weft_store::datafile::DatafileKey;
use weft_store::error::DatafileError;
use weft_store::fragments::{FragmentLog, LogError, Tag};
use weft_store::target::Target;

/// Bytes to write.
pub(crate) enum Source<'a, E: Env> {
    /// Memory of the server.
    Bytes(&'a [u8]),
    /// Offset and length in memory that a client shares.
    Shared(&'a E::Shared, usize, usize),
    /// Number of zeros to write as a hole, which takes no space on a disk.
    Hole(ByteLen),
}

impl<E: Env> Clone for Source<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E: Env> Copy for Source<'_, E> {}

impl<E: Env> Source<'_, E> {
    pub fn len(&self) -> ByteLen {
        match self {
            Self::Bytes(bytes) => ByteLen(bytes.len() as u64),
            Self::Shared(_, _, len) => ByteLen(*len as u64),
            Self::Hole(len) => *len,
        }
    }

    /// `len` bytes from offset `from` on.
    ///
    /// # Panics
    /// If the range is outside.
    pub fn part(&self, from: u64, len: u64) -> Self {
        assert!(from + len <= self.len().0, "a part lies inside its source");
        let (from, count) = (from as usize, len as usize);
        match self {
            Self::Hole(_) => Self::Hole(ByteLen(len)),
            Self::Bytes(bytes) => Self::Bytes(&bytes[from..from + count]),
            Self::Shared(area, start, _) => Self::Shared(area, start + from, count),
        }
    }

    pub async fn to_disk(
        self,
        target: &Target<E>,
        key: DatafileKey,
        offset: LocalOffset,
    ) -> Result<(), DatafileError> {
        match self {
            Self::Bytes(bytes) => target.write(key, offset, bytes).await,
            Self::Shared(area, from, len) => target.write_shared(key, offset, area, from, len).await,
            Self::Hole(len) => target.punch(key, offset, len).await,
        }
    }

    pub async fn to_log(
        self,
        log: &FragmentLog<E>,
        key: DatafileKey,
        offset: LocalOffset,
        tag: Tag,
    ) -> Result<(), LogError> {
        match self {
            Self::Bytes(bytes) => log.put(key, offset, bytes, tag).await,
            Self::Shared(area, from, len) => log.put_shared(key, offset, area, from, len, tag).await,
            // The log has no holes. This one covers only dirty bytes of the log, which are few.
            Self::Hole(len) => log.put(key, offset, &vec![0; len.0 as usize], tag).await,
        }
    }
}
