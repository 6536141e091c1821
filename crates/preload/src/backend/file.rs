//! What is asked of an open file.

use super::Interrupted;
use super::convert::{base_of, stat_of};
use crate::errno::Res;
use crate::pathname;
use crate::route::{Base, Spot};
use std::io::{IoSlice, IoSliceMut};
use weft_client::{FileType, HeldLock, LockKind, LockOwner, LockRange, LockSpace, OpenFile, Wait};
use weft_core::{ByteLen, Extent, FileOffset};
use weft_env::real::{RealEnv, block_on};

/// An open file or directory. Dropping it closes it.
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

    /// Writes at the end; where that was, and how much.
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

    /// Makes a hole of `len` bytes from `offset` on.
    pub fn punch(&self, offset: u64, len: u64) -> Res<()> {
        Ok(block_on(self.0.punch(Extent::new(offset, len)))?)
    }

    /// The first data at or behind `offset`; `None` when there is none.
    pub fn seek_data(&self, offset: u64) -> Res<Option<u64>> {
        Ok(block_on(self.0.seek_data(FileOffset(offset)))?.map(|at| at.0))
    }

    /// The first hole at or behind `offset`; `None` behind the end of the file.
    pub fn seek_hole(&self, offset: u64) -> Res<Option<u64>> {
        Ok(block_on(self.0.seek_hole(FileOffset(offset)))?.map(|at| at.0))
    }

    pub fn sync(&self) -> Res<()> {
        Ok(block_on(self.0.sync())?)
    }

    /// Takes a lock (`None` gives up) for the process or for this open file; waits when `wait` is given.
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

    /// The first lock in the way.
    pub fn test_lock(&self, by_handle: bool, kind: LockKind, range: LockRange) -> Res<Option<HeldLock>> {
        Ok(block_on(self.0.test_lock(LockSpace::Record, self.owner(by_handle), kind, range))?)
    }

    /// The file by its inode, for what has no call on an open file.
    pub fn spot(&self) -> Spot {
        // The inode alone; the text serves messages only.
        let text = pathname::join(b"/", self.0.path());
        let start = text.len();
        Spot { text, base: Some((self.base(), start)), must_dir: false }
    }

    /// Its inode, from which names are walked.
    pub fn base(&self) -> Base {
        base_of(self.0.attr_at_open())
    }

    /// Its inode number.
    pub fn inode(&self) -> u64 {
        self.0.file().0
    }

    pub fn is_directory(&self) -> bool {
        self.0.attr_at_open().kind == FileType::Directory
    }

    /// What another process needs to open it again.
    pub fn token(&self) -> Vec<u8> {
        self.0.token().encode()
    }
}
