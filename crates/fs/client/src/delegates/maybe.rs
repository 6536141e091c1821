//! A file whose bytes go through delegates if the job has some.

use super::DelegatedFile;
use crate::error::Result;
use crate::file_system::{FileHandle, ReadPiece, WritePiece, forward_operations};
use std::io::{IoSlice, IoSliceMut};
use weft_core::{ByteLen, Extent, FileOffset};
use weft_env::Env;

/// An open file, with or without delegates in front of it.
pub enum MaybeDelegated<E: Env, F: FileHandle> {
    /// The file of the underlying file system.
    Direct(F),
    /// A file whose bytes go through delegates.
    Delegated(Box<DelegatedFile<E, F>>),
}

impl<E: Env, F: FileHandle> MaybeDelegated<E, F> {
    /// Returns the file of the underlying file system.
    pub fn below(&self) -> &F {
        match self {
            Self::Direct(file) => file,
            Self::Delegated(file) => file.below(),
        }
    }

    /// Returns the file whose bytes go through delegates.
    pub fn delegated(&self) -> Option<&DelegatedFile<E, F>> {
        match self {
            Self::Direct(_) => None,
            Self::Delegated(file) => Some(file),
        }
    }

    /// Returns one past the last byte that delegates hold and the underlying file does not have yet; 0 without such bytes.
    ///
    /// # Errors
    /// A delegate does not answer.
    pub async fn unwritten_end(&self) -> Result<ByteLen> {
        match self {
            Self::Direct(_) => Ok(ByteLen(0)),
            Self::Delegated(file) => {
                let end = file.delegates().unwritten_end(file.spec().number).await?;
                Ok(ByteLen(end.unwrap_or(0)))
            }
        }
    }
}

macro_rules! either {
    ($self:ident, $file:ident => $call:expr) => {
        match $self {
            MaybeDelegated::Direct($file) => $call,
            MaybeDelegated::Delegated($file) => $call,
        }
    };
}

impl<E: Env, F: FileHandle> FileHandle for MaybeDelegated<E, F> {
    forward_operations!(either);

    async fn append(&self, bufs: &[IoSlice<'_>]) -> Result<(FileOffset, usize)> {
        either!(self, file => file.append(bufs).await)
    }

    async fn close(self) -> Result<()> {
        either!(self, file => file.close().await)
    }
}
