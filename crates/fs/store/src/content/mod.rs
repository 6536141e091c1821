//! Formats in which datafiles store their bytes, behind one interface.
//!
//! | format | chosen by | bytes on the disk |
//! | --- | --- | --- |
//! | plain | module `buffered` | a file, through the page cache |
//! | direct | module `direct` | a file, past the page cache |
//! | null | module `null` | none; lengths in memory |
//! | checked | checksums, with module `buffered` or `direct` | a file and its checksums |
//! | compressed | compression, with module `buffered` or `direct` | a container of chunks and its map |
//!
//! A [target](crate::target) knows names, fences, seals and tombstones, and nothing of formats. A format knows nothing
//! of other datafiles. The format of a datafile is chosen when it is created and never changes.
//!
//! # The interface
//!
//! Every format has these operations. Offsets and lengths are those of the datafile, whatever is stored.
//!
//! | operation | contract |
//! | --- | --- |
//! | `read` | the bytes up to the end of the datafile, with its length; verified, or [`Fault::Damaged`] |
//! | `write` | any offset and length; extends the datafile. Concurrent writers of different bytes lose none |
//! | `set_len` | drops bytes for good, or extends with zeros |
//! | `punch` | zeros within the datafile; frees space where the format can |
//! | `sync` | what was written, the length and the names survive a loss of power, or no later sync succeeds |
//! | `meta` | logical length, stored bytes (`blocks_512`), modification time. Upkeep does not change the time |
//! | `seek_data`, `seek_hole` | holes, which read as zeros. A format may report fewer than there are |
//! | `raw_descriptor` | the file with the datafile's bytes at their offsets, for leases and `sendfile`, or `None` |
//! | `unsettled`, `settle` | work for idle times: checksums, folding, free space |
//! | `scrub` | verification of the stored bytes |
//! | `forget` | drops cached pages |
//!
//! Formats are variants of one enum, not implementations of a trait object: operations are `async` and generic over the
//! environment, and there are no formats outside this crate.
//!
//! Each format charges the emulated device, if there is one, for the bytes that move between it and its files, below
//! checksums and codecs.

mod checked;
mod direct;
mod null;
mod raw;
mod upkeep;

pub(crate) use checked::{CheckedFile, sums_name};
pub(crate) use direct::BLOCK;
pub(crate) use null::{NullFile, NullModule};
pub(crate) use raw::RawFile;
pub(crate) use upkeep::Upkeep;

use crate::aligned::AlignedBuf;
use crate::compressed::Compressed;
use crate::datafile::Names;
use std::io;
use std::ops::Range;
use weft_core::{ByteLen, LocalOffset, Nanos, Timestamp};
use weft_env::{Env, FileMeta, Shared};

/// Reason why an operation on a datafile's bytes failed.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The device failed.
    Io(io::Error),
    /// Bytes in this range do not match their checksums.
    Damaged(Range<u64>),
    /// The map of a compressed datafile is missing.
    MapMissing,
    /// The map of a compressed datafile is damaged.
    MapDamaged(&'static str),
    /// An earlier sync failed, so bytes written before it may be lost.
    Unsafe,
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Result of verifying a part of a datafile.
pub(crate) struct Scrubbed {
    /// Ranges of bytes that do not match their checksums.
    pub damaged: Vec<Range<u64>>,
    /// Number of bytes verified.
    pub verified: u64,
    /// Offset to continue from; `None` at the end of the datafile.
    pub next: Option<u64>,
}

impl Scrubbed {
    /// Adds a damaged range, which begins at or behind the ones before it.
    pub fn add_damage(&mut self, range: Range<u64>) {
        match self.damaged.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.damaged.push(range),
        }
    }
}

/// Stored bytes of an open datafile, in its format.
#[allow(clippy::large_enum_variant)] // There are few: one per open datafile.
pub(crate) enum Content<E: Env> {
    /// Nothing but a length.
    Null(NullFile<E>),
    /// A plain file.
    Raw(RawFile<E>),
    /// A plain file with checksums.
    Checked(CheckedFile<E>),
    /// Compressed chunks.
    Compressed(Compressed<E>),
}

/// Evaluates an expression with the format of a datafile.
macro_rules! each {
    ($content:expr, $it:ident => $call:expr) => {
        match $content {
            Content::Null($it) => $call,
            Content::Raw($it) => $call,
            Content::Checked($it) => $call,
            Content::Compressed($it) => $call,
        }
    };
}

impl<E: Env> Content<E> {
    /// Reads until `buf` is full or the datafile ends. Returns the number of bytes and the datafile's length.
    pub async fn read(&self, offset: LocalOffset, buf: &mut [u8]) -> Result<(usize, ByteLen), Fault> {
        each!(self, it => it.read(offset, buf).await)
    }

    /// Writes all of `bytes`. On an error, some may have been written.
    pub async fn write(&self, offset: LocalOffset, bytes: &[u8]) -> Result<(), Fault> {
        each!(self, it => it.write(offset, bytes).await)
    }

    /// Writes bytes of a shared memory area.
    pub async fn write_shared(
        &self,
        offset: LocalOffset,
        shared: &E::Shared,
        from: usize,
        len: usize,
    ) -> Result<(), Fault> {
        match self {
            Self::Null(it) => return it.extend(offset, len).await,
            Self::Raw(it) => {
                if let Some(file) = it.plain() {
                    return Ok(it.write_shared(file, offset, (shared, from, len)).await?);
                }
            }
            Self::Checked(_) | Self::Compressed(_) => {}
        }
        // Copied, because the client may change the bytes while they are assembled, summed or compressed.
        let mut copy = AlignedBuf::zeroed(len);
        shared.copy_out(from, &mut copy);
        self.write(offset, &copy).await
    }

    /// Reads up to `len` bytes into shared memory at `to`. Returns the number of bytes, and the datafile's length if
    /// the read reached its end.
    pub async fn read_shared(
        &self,
        offset: LocalOffset,
        shared: &E::Shared,
        to: usize,
        len: usize,
    ) -> Result<(usize, Option<ByteLen>), Fault> {
        if let Self::Raw(it) = self
            && let Some(file) = it.plain()
        {
            return Ok(it.read_shared(file, offset, (shared, to, len)).await?);
        }
        let mut bytes = AlignedBuf::zeroed(len);
        let (count, datafile_len) = self.read(offset, &mut bytes).await?;
        shared.copy_in(to, &bytes[..count]);
        Ok((count, (count < len).then_some(datafile_len)))
    }

    /// Truncates or extends.
    pub async fn set_len(&self, len: ByteLen) -> Result<(), Fault> {
        each!(self, it => it.set_len(len).await)
    }

    /// Punches a hole, clipped at the end of the datafile.
    pub async fn punch(&self, offset: LocalOffset, len: ByteLen) -> Result<(), Fault> {
        each!(self, it => it.punch(offset, len).await)
    }

    /// Returns the first byte at or after `offset` that is not in a hole; `None` if there is none.
    pub async fn seek_data(&self, offset: LocalOffset) -> Result<Option<LocalOffset>, Fault> {
        each!(self, it => it.seek_data(offset).await)
    }

    /// Returns the first byte at or after `offset` that is in a hole. The end of the datafile counts as a hole.
    pub async fn seek_hole(&self, offset: LocalOffset) -> Result<LocalOffset, Fault> {
        each!(self, it => it.seek_hole(offset).await)
    }

    /// Returns logical length, stored bytes (as allocated space) and modification time.
    pub async fn meta(&self) -> Result<FileMeta, Fault> {
        each!(self, it => it.meta().await)
    }

    /// Sets the modification time.
    pub async fn set_mtime(&self, mtime: Timestamp) -> Result<(), Fault> {
        each!(self, it => it.set_mtime(mtime).await)
    }

    /// Makes bytes, length and names survive a loss of power.
    pub async fn sync(&self, names: &Names<E>) -> Result<(), Fault> {
        match self {
            Self::Null(_) => Ok(()),
            Self::Raw(it) => Ok(it.sync(names).await?),
            Self::Checked(it) => Ok(it.raw().sync(names).await?),
            // Its map names bytes only after their file's name is durable.
            Self::Compressed(it) => it.sync().await,
        }
    }

    /// Drops cached pages.
    pub async fn forget(&self) -> Result<(), Fault> {
        each!(self, it => it.forget().await)
    }

    /// Returns the file whose bytes at each offset are the datafile's, if reads and writes may bypass the format.
    pub fn raw_descriptor(&self) -> Option<&E::File> {
        match self {
            Self::Raw(it) => it.plain(),
            Self::Null(_) | Self::Checked(_) | Self::Compressed(_) => None,
        }
    }

    /// Returns true if every read is verified.
    pub const fn is_verified(&self) -> bool {
        matches!(self, Self::Checked(_) | Self::Compressed(_))
    }

    /// Returns the times of the first and last change since the datafile was last [settled](Self::settle); `None` if
    /// there is nothing to do.
    pub fn unsettled(&self) -> Option<(Nanos, Nanos)> {
        match self {
            Self::Null(_) | Self::Raw(_) => None,
            Self::Checked(it) => it.unsettled(),
            Self::Compressed(it) => it.unsettled(),
        }
    }

    /// Folds the overlay of a compressed datafile that has been idle for a while. Returns the time at which to try
    /// again; `None` if there is nothing left to fold.
    pub async fn fold_idle(&self) -> Option<Nanos> {
        match self {
            Self::Null(_) | Self::Raw(_) | Self::Checked(_) => None,
            Self::Compressed(it) => it.fold_idle().await,
        }
    }

    /// Does the work that is left for idle times: seals checksums, folds overlays, frees space.
    pub async fn settle(&self) -> Result<(), Fault> {
        match self {
            Self::Null(_) | Self::Raw(_) => Ok(()),
            Self::Checked(it) => it.settle().await,
            Self::Compressed(it) => it.settle().await,
        }
    }

    /// Keeps a removed datafile from creating files again. Its bytes can be used as long as it is open.
    pub async fn detach(&self) {
        if let Self::Compressed(it) = self {
            it.detach().await;
        }
    }

    /// Verifies about `budget` bytes from byte `first` on; `None` if the format has no checksums.
    pub async fn scrub(&self, first: u64, budget: u64) -> Result<Option<Scrubbed>, Fault> {
        match self {
            Self::Null(_) | Self::Raw(_) => Ok(None),
            Self::Checked(it) => Ok(Some(it.scrub(first, budget).await?)),
            Self::Compressed(it) => Ok(Some(it.scrub(first, budget).await?)),
        }
    }
}
