//! Operations on an open file.

use super::Interrupted;
use super::convert::{base_of, stat_of};
use crate::errno::Res;
use crate::pathname;
use crate::route::{Base, WeftPath};
use std::io::{IoSlice, IoSliceMut};
use weft_client::{FileType, HeldLock, LockKind, LockOwner, LockRange, LockSpace, OpenFile, Wait};
use weft_core::{ByteLen, Extent, FileOffset};
use weft_env::real::{RealEnv, block_on};

/// Open file or directory. Dropping it closes it.
pub struct File(pub(super) OpenFile<RealEnv>);

impl File {
    fn owner(&self, by_handle: bool) -> LockOwner {
        if by_handle { LockOwner::Handle(self.0.handle()) } else { LockOwner::Process(0) }
    }

    pub fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Res<usize> {
        Ok(block_on(self.0.read_at(bufs, FileOffset(offset)))?)
    }

    pub fn write_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Res<usize> {
        Ok(block_on(self.0.write_at(bufs, FileOffset(offset)))?)
    }

    /// Writes at the end. Returns the position and the number of bytes.
    pub fn append(&self, bufs: &[IoSlice<'_>]) -> Res<(u64, usize)> {
        let (at, done) = block_on(self.0.append(bufs))?;
        Ok((at.0, done))
    }

    pub fn size(&self) -> Res<u64> {
        Ok(block_on(self.0.size())?.0)
    }

    pub fn stat(&self) -> Res<libc::stat> {
        Ok(stat_of(&block_on(self.0.attr())?))
    }

    pub fn truncate(&self, size: u64) -> Res<()> {
        Ok(block_on(self.0.truncate(ByteLen(size)))?)
    }

    /// Punches a hole of `len` bytes at `offset`.
    pub fn punch(&self, offset: u64, len: u64) -> Res<()> {
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
        Ok(block_on(self.0.sync())?)
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
        let owner = self.owner(by_handle);
        let Some(kind) = kind else { return Ok(block_on(self.0.unlock(space, owner, range))?) };
        let wait = wait.map_or(Wait::No, Wait::Until);
        Ok(block_on(self.0.lock(space, owner, kind, range, wait))?)
    }

    /// Returns the first conflicting lock.
    pub fn test_lock(&self, by_handle: bool, kind: LockKind, range: LockRange) -> Res<Option<HeldLock>> {
        Ok(block_on(self.0.test_lock(LockSpace::Record, self.owner(by_handle), kind, range))?)
    }

    /// Returns the file by its inode, for operations without a call on an open file.
    pub fn weft_path(&self) -> WeftPath {
        // Only the inode matters; the text is for messages.
        let text = pathname::join(b"/", self.0.path());
        let start = text.len();
        WeftPath { text, base: Some((self.base(), start)), must_dir: false }
    }

    /// Returns the inode as the start of a walk.
    pub fn base(&self) -> Base {
        base_of(self.0.attr_at_open())
    }

    /// Returns the inode number.
    pub fn inode(&self) -> u64 {
        self.0.file().0
    }

    pub fn is_directory(&self) -> bool {
        self.0.attr_at_open().kind == FileType::Directory
    }

    /// Returns the data with which another process can open the file.
    pub fn token(&self) -> Vec<u8> {
        self.0.token().encode()
    }
}
