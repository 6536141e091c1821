//! Operations on an open file.

use super::Interrupted;
use super::convert::{base_of, stat_of};
use super::delegates::delegates;
use crate::errno::Res;
use crate::open::HostDescriptor;
use crate::over::open_replicated;
use crate::private::mapped::{self, Mapped};
use crate::route::Base;
use crate::sys;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use weft_client::replicas::MaybeReplicated;
use weft_client::{
    DelegatedFile, DelegatedSpec, FileHandle, FileType, HeldLock, HostFile, HostOrWeftFile, LockKind,
    LockOwner, LockRange, LockSpace, MaybeDelegated, OpenFile, ReadPiece, Source, Wait, WritePiece,
};
use weft_core::delegates::ownership::FileNumber;
use weft_core::{ByteLen, Extent, FileOffset};
use weft_env::real::{RealEnv, block_on};
use weft_wire::hello::SessionId;

/// Open file or directory. Dropping it closes it.
///
/// Names, attributes and locks of a file of the host are the kernel's; only its bytes come here, to go through delegates.
pub struct File(MaybeReplicated<RealEnv, Below>);

/// A file without replica.
type Below = MaybeDelegated<RealEnv, HostOrWeftFile<RealEnv>>;

impl From<Below> for File {
    fn from(file: Below) -> Self {
        Self(MaybeReplicated::Plain(file))
    }
}

impl File {
    /// Wraps a file of Weft, without delegates.
    pub(super) fn direct(file: OpenFile<RealEnv>) -> Self {
        MaybeDelegated::Direct(file.into()).into()
    }

    /// Wraps a file of the host, whose bytes go through delegates or to a replica.
    pub fn of_host(from: &HostDescriptor) -> Res<Self> {
        let HostDescriptor { file, id, access, .. } = from;
        if let Some(replica) = id.replica {
            let below = HostFile::new(file.clone(), id.path.clone()).into();
            return Ok(Self(open_replicated(from, replica, MaybeDelegated::Direct(below))?));
        }
        let spec = DelegatedSpec {
            number: id.number,
            source: Source::Host { file: file.clone(), path: id.path.clone(), inode: id.inode },
            page_len: id.page_len,
            read: access.read,
            write: access.write,
            path: id.path.clone(),
        };
        let below = HostFile::new(file.clone(), id.path.clone()).into();
        Ok(MaybeDelegated::Delegated(Box::new(DelegatedFile::new(delegates()?, below, spec))).into())
    }

    /// Returns the open file of Weft. The kernel serves names and locks of other files, so that their hooks do not ask.
    pub(super) fn weft(&self) -> Res<&OpenFile<RealEnv>> {
        self.0.original().below().weft().ok_or(libc::EBADF.into())
    }

    /// Returns the number of the file at the delegates; `None` if its bytes do not go through them.
    pub fn number(&self) -> Option<FileNumber> {
        self.0.original().delegated().map(|file| file.spec().number)
    }

    /// Returns the length of the file's pages at the delegates; `None` if its bytes do not go through them.
    pub fn page_len(&self) -> Option<u64> {
        let file = self.0.original().delegated()?;
        let asked = file.delegates().settings().page_len.unwrap_or(file.spec().page_len);
        Some(file.page_len().unwrap_or(asked))
    }

    /// Whether bytes of the file are in a replica.
    pub fn is_redirected(&self) -> bool {
        self.0.is_redirected()
    }

    /// Returns the file as this process has mapped it by the kernel, if it has.
    #[inline]
    pub(super) fn mapped(&self) -> Option<Arc<Mapped>> {
        if mapped::any() { mapped::of(self.inode().ok()?) } else { None }
    }

    pub fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Res<usize> {
        if let Some(mapped) = self.mapped() {
            return mapped.read_at(bufs, offset);
        }
        Ok(block_on(self.0.read_at(bufs, FileOffset(offset)))?)
    }

    pub fn write_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Res<usize> {
        if let Some(mapped) = self.mapped() {
            return mapped.write_at(bufs, offset);
        }
        Ok(block_on(self.0.write_at(bufs, FileOffset(offset)))?)
    }

    /// Reads several pieces, and returns the number of bytes of each.
    pub fn read_list(&self, pieces: &mut [ReadPiece<'_>]) -> Res<Vec<usize>> {
        Ok(block_on(self.0.read_list(pieces))?)
    }

    /// Writes several pieces, in their order.
    pub fn write_list(&self, pieces: &[WritePiece<'_>]) -> Res<()> {
        Ok(block_on(self.0.write_list(pieces))?)
    }

    /// Writes at the end. Returns the position and the number of bytes.
    pub fn append(&self, bufs: &[IoSlice<'_>]) -> Res<(u64, usize)> {
        let (at, done) = block_on(self.0.append(bufs))?;
        if let Some(mapped) = self.mapped() {
            mapped.appended(bufs, at.0)?;
        }
        Ok((at.0, done))
    }

    pub fn size(&self) -> Res<u64> {
        Ok(block_on(self.0.size())?.0)
    }

    pub fn stat(&self) -> Res<libc::stat> {
        // Asked first: bytes that delegates write meanwhile are then in the file.
        let unwritten = block_on(self.0.original().unwritten_end())?;
        let mut stat = match self.0.original().below() {
            HostOrWeftFile::Weft(file) => stat_of(&block_on(file.attr())?),
            HostOrWeftFile::Host(file) => sys::fstatat(file.file().as_raw_fd(), c"", libc::AT_EMPTY_PATH)?,
        };
        stat.st_size = stat.st_size.max(unwritten.0 as i64);
        Ok(stat)
    }

    pub fn truncate(&self, size: u64) -> Res<()> {
        if let Some(mapped) = self.mapped() {
            return mapped.truncate(size);
        }
        Ok(block_on(self.0.truncate(ByteLen(size)))?)
    }

    /// Punches a hole of `len` bytes at `offset`.
    pub fn punch(&self, offset: u64, len: u64) -> Res<()> {
        if let Some(mapped) = self.mapped() {
            return mapped.punch(offset, len);
        }
        Ok(block_on(self.0.punch(Extent::new(offset, len)))?)
    }

    /// Returns the first data at or after `offset`; `None` if there is none.
    pub fn seek_data(&self, offset: u64) -> Res<Option<u64>> {
        Ok(block_on(self.0.seek_data(FileOffset(offset)))?.map(|at| at.0))
    }

    /// Returns the first hole at or after `offset`; `None` after the end of the file.
    pub fn seek_hole(&self, offset: u64) -> Res<Option<u64>> {
        Ok(block_on(self.0.seek_hole(FileOffset(offset)))?.map(|at| at.0))
    }

    pub fn sync(&self) -> Res<()> {
        if let Some(mapped) = self.mapped() {
            mapped.sync()?;
        }
        Ok(block_on(self.0.sync())?)
    }

    /// Writes the bytes that delegates hold to the underlying file.
    pub fn write_back(&self) -> Res<()> {
        Ok(self.0.original().delegated().map_or(Ok(()), |file| block_on(file.write_back()))?)
    }

    /// Closes the file, and returns errors of writes that delegates have not reported yet.
    pub fn close(self) -> Res<()> {
        match self.0 {
            // A dropped file of Weft is closed without waiting for the reply.
            MaybeReplicated::Plain(MaybeDelegated::Direct(file)) => drop(file),
            other => block_on(other.close())?,
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

    /// Returns the first lock of this open file that overlaps `range`.
    pub fn own_lock(&self, range: LockRange) -> Res<Option<HeldLock>> {
        let file = self.weft()?;
        Ok(file.held_lock(LockSpace::Record, owner(file, true), range))
    }

    /// Returns the inode as the start of a walk.
    pub fn base(&self) -> Res<Base> {
        let file = self.weft()?;
        Ok(base_of(file.attr_at_open(), file.session()))
    }

    /// Returns the session in which the file is open.
    pub fn session(&self) -> Res<SessionId> {
        Ok(self.weft()?.session())
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
