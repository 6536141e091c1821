//! Operations on an open file.

use super::Interrupted;
use super::convert::{base_of, stat_of};
use super::delegates::{delegates, has_delegates, unwritten_end};
use crate::errno::Res;
use crate::open::{HostDescriptor, page_len_hint};
use crate::route::{self, Base, WeftPath};
use crate::{pathname, sys};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsRawFd;
use weft_client::{
    DelegatedFile, DelegatedSpec, FileHandle, FileType, HeldLock, HostFile, LockKind, LockOwner, LockRange,
    LockSpace, OpenFile, ReadPiece, Source, Wait, WritePiece,
};
use weft_core::delegates::ownership::FileNumber;
use weft_core::{ByteLen, Extent, FileOffset, Layout};
use weft_env::real::{RealEnv, block_on};

/// Range of page lengths of Weft's files, in bytes: the stripe size within these limits.
const PAGE_LENS: std::ops::RangeInclusive<u64> = 64 << 10..=4 << 20;

/// Open file or directory. Dropping it closes it.
pub enum File {
    /// File of Weft.
    Weft(OpenFile<RealEnv>),
    /// File of Weft whose bytes go through delegates.
    DelegatedWeft(Box<DelegatedFile<RealEnv, OpenFile<RealEnv>>>),
    /// File of the host whose bytes go through delegates. Its names, attributes and locks are the kernel's.
    DelegatedHost(Box<DelegatedFile<RealEnv, HostFile<RealEnv>>>),
}

/// Calls an operation of [`FileHandle`] on the file.
macro_rules! on_bytes {
    ($file:expr, $op:ident($($argument:expr),*)) => {
        match $file {
            File::Weft(file) => block_on(FileHandle::$op(file, $($argument),*)),
            File::DelegatedWeft(file) => block_on(FileHandle::$op(&**file, $($argument),*)),
            File::DelegatedHost(file) => block_on(FileHandle::$op(&**file, $($argument),*)),
        }
    };
}

/// Evaluates an expression on a delegated file.
macro_rules! on_delegated {
    ($file:expr, $delegated:ident => $value:expr) => {
        match $file {
            File::Weft(_) => None,
            File::DelegatedWeft($delegated) => Some($value),
            File::DelegatedHost($delegated) => Some($value),
        }
    };
}

impl File {
    /// Wraps a file of Weft; its bytes go through delegates if the job has some.
    pub fn of_weft(file: OpenFile<RealEnv>) -> Res<Self> {
        if !has_delegates() || file.attr_at_open().kind != FileType::Regular {
            return Ok(Self::Weft(file));
        }
        let strips = file.layout().into_iter().flat_map(Layout::components).flat_map(|part| &part.strips);
        let stripe = strips.map(|strip| strip.stripe_size.0).min().unwrap_or(0);
        let spec = DelegatedSpec {
            number: FileNumber::of_weft(file.file()),
            source: Source::Weft(file.token().encode()),
            page_len: page_len_hint().unwrap_or(stripe.clamp(*PAGE_LENS.start(), *PAGE_LENS.end())),
            read: file.flags().read,
            write: file.flags().write,
            path: route::full(&pathname::join(b"/", file.path())),
        };
        Ok(Self::DelegatedWeft(Box::new(DelegatedFile::new(delegates()?, file, spec))))
    }

    /// Wraps a file of the host, whose bytes go through delegates.
    pub fn of_host(from: &HostDescriptor) -> Res<Self> {
        let HostDescriptor { file, id, access, .. } = from;
        let spec = DelegatedSpec {
            number: id.number,
            source: Source::Host { file: file.clone(), path: id.path.clone(), inode: id.inode },
            page_len: id.page_len,
            read: access.read,
            write: access.write,
            path: id.path.clone(),
        };
        let below = HostFile::new(file.clone(), id.path.clone());
        Ok(Self::DelegatedHost(Box::new(DelegatedFile::new(delegates()?, below, spec))))
    }

    /// Returns the open file of Weft. The kernel serves names and locks of other files, so that their hooks do not ask.
    pub(super) fn weft(&self) -> Res<&OpenFile<RealEnv>> {
        match self {
            Self::Weft(file) => Ok(file),
            Self::DelegatedWeft(file) => Ok(file.below()),
            Self::DelegatedHost(_) => Err(libc::EBADF.into()),
        }
    }

    /// Returns the number of the file at the delegates; `None` if its bytes do not go through them.
    pub fn number(&self) -> Option<FileNumber> {
        on_delegated!(self, file => file.spec().number)
    }

    /// Returns the length of the file's pages at the delegates; `None` if its bytes do not go through them.
    pub fn page_len(&self) -> Option<u64> {
        on_delegated!(self, file => {
            let asked = file.delegates().settings().page_len.unwrap_or(file.spec().page_len);
            file.page_len().unwrap_or(asked)
        })
    }

    pub fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Res<usize> {
        Ok(on_bytes!(self, read_at(bufs, FileOffset(offset)))?)
    }

    pub fn write_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Res<usize> {
        Ok(on_bytes!(self, write_at(bufs, FileOffset(offset)))?)
    }

    /// Reads several pieces, and returns the number of bytes of each.
    pub fn read_list(&self, pieces: &mut [ReadPiece<'_>]) -> Res<Vec<usize>> {
        Ok(on_bytes!(self, read_list(pieces))?)
    }

    /// Writes several pieces, in their order.
    pub fn write_list(&self, pieces: &[WritePiece<'_>]) -> Res<()> {
        Ok(on_bytes!(self, write_list(pieces))?)
    }

    /// Writes at the end. Returns the position and the number of bytes.
    pub fn append(&self, bufs: &[IoSlice<'_>]) -> Res<(u64, usize)> {
        let (at, done) = on_bytes!(self, append(bufs))?;
        Ok((at.0, done))
    }

    pub fn size(&self) -> Res<u64> {
        Ok(on_bytes!(self, size())?.0)
    }

    pub fn stat(&self) -> Res<libc::stat> {
        // Asked first: bytes that delegates write meanwhile are then in the file.
        let unwritten = self.number().map_or(Ok(None), unwritten_end)?;
        let mut stat = match self {
            Self::Weft(_) | Self::DelegatedWeft(_) => stat_of(&block_on(self.weft()?.attr())?),
            Self::DelegatedHost(file) => {
                sys::fstatat(file.below().file().as_raw_fd(), c"", libc::AT_EMPTY_PATH)?
            }
        };
        stat.st_size = stat.st_size.max(unwritten.unwrap_or(0) as i64);
        Ok(stat)
    }

    pub fn truncate(&self, size: u64) -> Res<()> {
        Ok(on_bytes!(self, truncate(ByteLen(size)))?)
    }

    /// Punches a hole of `len` bytes at `offset`.
    pub fn punch(&self, offset: u64, len: u64) -> Res<()> {
        Ok(on_bytes!(self, punch(Extent::new(offset, len)))?)
    }

    /// Returns the first data at or after `offset`; `None` if there is none.
    pub fn seek_data(&self, offset: u64) -> Res<Option<u64>> {
        Ok(on_bytes!(self, seek_data(FileOffset(offset)))?.map(|at| at.0))
    }

    /// Returns the first hole at or after `offset`; `None` after the end of the file.
    pub fn seek_hole(&self, offset: u64) -> Res<Option<u64>> {
        Ok(on_bytes!(self, seek_hole(FileOffset(offset)))?.map(|at| at.0))
    }

    pub fn sync(&self) -> Res<()> {
        Ok(on_bytes!(self, sync())?)
    }

    /// Writes the bytes that delegates hold to the underlying file.
    pub fn write_back(&self) -> Res<()> {
        match on_delegated!(self, file => block_on(file.write_back())) {
            Some(result) => Ok(result?),
            None => Ok(()),
        }
    }

    /// Closes the file, and returns errors of writes that delegates have not reported yet.
    pub fn close(self) -> Res<()> {
        match self {
            Self::Weft(file) => drop(file),
            Self::DelegatedWeft(file) => block_on(FileHandle::close(*file))?,
            Self::DelegatedHost(file) => block_on(FileHandle::close(*file))?,
        }
        Ok(())
    }

    /// Acquires a lock (`None` releases it) for the process or for this open file. Waits if `wait` is given.
    pub fn lock(
        &self,
        space: LockSpace,
        by_handle: bool,
        kind: Option<LockKind>,
        range: LockRange,
        wait: Option<Interrupted<'_>>,
    ) -> Res<()> {
        let file = self.weft()?;
        let owner = owner(file, by_handle);
        let Some(kind) = kind else { return Ok(block_on(file.unlock(space, owner, range))?) };
        let wait = wait.map_or(Wait::No, Wait::Until);
        Ok(block_on(file.lock(space, owner, kind, range, wait))?)
    }

    /// Returns the first conflicting lock.
    pub fn test_lock(&self, by_handle: bool, kind: LockKind, range: LockRange) -> Res<Option<HeldLock>> {
        let file = self.weft()?;
        Ok(block_on(file.test_lock(LockSpace::Record, owner(file, by_handle), kind, range))?)
    }

    /// Returns the file by its inode, for operations without a call on an open file.
    pub fn weft_path(&self) -> Res<WeftPath> {
        // Only the inode matters; the text is for messages.
        let text = pathname::join(b"/", self.weft()?.path());
        let start = text.len();
        Ok(WeftPath { text, base: Some((self.base()?, start)), must_dir: false })
    }

    /// Returns the inode as the start of a walk.
    pub fn base(&self) -> Res<Base> {
        Ok(base_of(self.weft()?.attr_at_open()))
    }

    /// Returns the inode number.
    pub fn inode(&self) -> Res<u64> {
        Ok(self.weft()?.file().0)
    }

    pub fn is_directory(&self) -> bool {
        self.weft().is_ok_and(|file| file.attr_at_open().kind == FileType::Directory)
    }

    /// Returns the data with which another process can open the file; `None` for a file of the host.
    pub fn token(&self) -> Option<Vec<u8>> {
        self.weft().ok().map(|file| file.token().encode())
    }
}

fn owner(file: &OpenFile<RealEnv>, by_handle: bool) -> LockOwner {
    if by_handle { LockOwner::Handle(file.handle()) } else { LockOwner::Process(0) }
}
