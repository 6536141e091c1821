//! Open files of a simulated disk.

use super::pages::PAGE_BYTES;
use super::{DiskAction, DiskRequest, SimDisk, SimInode};
use crate::sim::{SimEnv, SimShared};
use crate::{BlockingFile, Env, File, FileMeta, Shared};
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weft_core::{ByteLen, LocalOffset, Nanos};

/// An open file of the simulated world.
#[derive(Clone)]
pub struct SimFile {
    env: SimEnv,
    disk: Arc<SimDisk>,
    inode: Arc<SimInode>,
    may_write: bool,
    is_direct: bool,
}

impl fmt::Debug for SimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimFile({})", self.inode.number)
    }
}

/// An operation that has acted, or still has to when it ends.
struct Begun {
    finish: u64,
}

impl SimFile {
    pub(super) fn new(
        env: SimEnv,
        disk: Arc<SimDisk>,
        inode: Arc<SimInode>,
        may_write: bool,
        is_direct: bool,
    ) -> Self {
        Self { env, disk, inode, may_write, is_direct }
    }

    /// The same open file in another process that it was sent to.
    pub(in crate::sim) fn handed_to(&self, env: &SimEnv) -> Self {
        Self { env: env.clone(), ..self.clone() }
    }

    /// Begins an operation that comes `later` nanoseconds after now.
    fn begin(&self, later: u64, action: DiskAction, offset: u64, len: u64) -> io::Result<Begun> {
        let request = DiskRequest {
            action,
            file: self.inode.number,
            offset: LocalOffset(offset),
            len: ByteLen(len),
            is_direct: self.is_direct,
        };
        let world = self.env.world();
        world.note(offset ^ (len << 20) ^ ((action as u64) << 60) ^ (self.inode.number << 50));
        Ok(Begun { finish: self.disk.begin(world.now() + later, &request)? })
    }

    fn writable(&self) -> io::Result<()> {
        if self.may_write { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EBADF)) }
    }

    fn end_of(offset: LocalOffset, len: u64) -> io::Result<u64> {
        let end = offset.0.checked_add(len).filter(|&end| end <= i64::MAX as u64);
        end.ok_or_else(|| io::Error::from_raw_os_error(libc::EFBIG))
    }

    fn read(
        &self,
        later: u64,
        bufs: &mut [IoSliceMut<'_>],
        offset: LocalOffset,
    ) -> io::Result<(usize, Begun)> {
        let len = bufs.iter().map(|buf| buf.len() as u64).sum();
        Self::end_of(offset, len)?;
        let begun = self.begin(later, DiskAction::Read, offset.0, len)?;
        let state = self.inode.state.lock();
        let mut done = 0;
        for buf in bufs {
            let count = state.content.pages().read(offset.0 + done as u64, buf);
            done += count;
            if count < buf.len() {
                break;
            }
        }
        Ok((done, begun))
    }

    fn write(&self, later: u64, mut bytes: Vec<u8>, offset: LocalOffset) -> io::Result<Begun> {
        self.writable()?;
        Self::end_of(offset, bytes.len() as u64)?;
        let missing = self.inode.state.lock().content.pages().missing(offset.0, bytes.len());
        let begun = if self.disk.used_bytes() + missing * PAGE_BYTES > self.disk.capacity_bytes() {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        } else {
            self.begin(later, DiskAction::Write, offset.0, bytes.len() as u64)
        };
        if begun.is_err() {
            bytes.truncate(self.disk.below(bytes.len() as u64 + 1) as usize);
        }
        self.inode.change(self.env.wall(), |content| {
            let end = offset.0 + bytes.len() as u64;
            content.write(offset.0, bytes);
            debug_assert!(content.pages().len() >= end || end == offset.0);
        });
        begun
    }

    /// A sync that starts now: what it has to make durable when it ends.
    fn begin_sync(&self, later: u64) -> io::Result<(u64, Begun)> {
        let (mark, len) = {
            let state = self.inode.state.lock();
            (state.content.mark(), state.content.unsynced_bytes())
        };
        match self.begin(later, DiskAction::Sync, 0, len) {
            Ok(begun) => Ok((mark, begun)),
            Err(error) => {
                if self.disk.below(2) == 0 {
                    self.inode.state.lock().content.forget_unsynced();
                }
                Err(error)
            }
        }
    }

    fn end_sync(&self, mark: u64) {
        self.inode.state.lock().content.sync_to(mark);
    }

    fn cut(&self, later: u64, len: ByteLen) -> io::Result<Begun> {
        self.writable()?;
        Self::end_of(LocalOffset(0), len.0)?;
        self.inode.change(self.env.wall(), |content| content.set_len(len.0));
        self.begin(later, DiskAction::Name, 0, 0)
    }

    fn meta_now(&self) -> FileMeta {
        inode_meta(&self.inode)
    }

    async fn finish(&self, begun: Begun) {
        self.env.world().sleep_until(begun.finish).await;
    }
}

pub(super) fn inode_meta(inode: &SimInode) -> FileMeta {
    let state = inode.state.lock();
    let pages = state.content.pages();
    FileMeta { len: ByteLen(pages.len()), blocks_512: pages.count() * PAGE_BYTES / 512, mtime: state.mtime }
}

fn gather(bufs: &[IoSlice<'_>]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(bufs.iter().map(|buf| buf.len()).sum());
    bufs.iter().for_each(|buf| bytes.extend_from_slice(buf));
    bytes
}

impl File for SimFile {
    type Shared = SimShared;
    type Blocking = SimBlockingFile;

    async fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: LocalOffset) -> io::Result<usize> {
        self.env.alive().await;
        let (count, begun) = self.read(0, bufs, offset)?;
        self.finish(begun).await;
        Ok(count)
    }

    async fn write_at(&self, bufs: &[IoSlice<'_>], offset: LocalOffset) -> io::Result<()> {
        self.env.alive().await;
        let begun = self.write(0, gather(bufs), offset)?;
        self.finish(begun).await;
        Ok(())
    }

    async fn write_shared_at(
        &self,
        shared: &SimShared,
        from: usize,
        len: usize,
        offset: LocalOffset,
    ) -> io::Result<()> {
        self.env.alive().await;
        let mut bytes = vec![0; len];
        shared.copy_out(from, &mut bytes);
        let begun = self.write(0, bytes, offset)?;
        self.finish(begun).await;
        Ok(())
    }

    async fn read_shared_at(
        &self,
        shared: &SimShared,
        to: usize,
        len: usize,
        offset: LocalOffset,
    ) -> io::Result<usize> {
        self.env.alive().await;
        let mut bytes = vec![0; len];
        let (count, begun) = self.read(0, &mut [IoSliceMut::new(&mut bytes)], offset)?;
        self.finish(begun).await;
        shared.copy_in(to, &bytes[..count]);
        Ok(count)
    }

    async fn sync(&self) -> io::Result<()> {
        self.env.sync_point();
        self.env.alive().await;
        let (mark, begun) = self.begin_sync(0)?;
        self.finish(begun).await;
        self.end_sync(mark);
        Ok(())
    }

    async fn meta(&self) -> io::Result<FileMeta> {
        self.env.alive().await;
        let begun = self.begin(0, DiskAction::Name, 0, 0)?;
        self.finish(begun).await;
        Ok(self.meta_now())
    }

    async fn set_len(&self, len: ByteLen) -> io::Result<()> {
        self.env.alive().await;
        let begun = self.cut(0, len)?;
        self.finish(begun).await;
        Ok(())
    }

    fn blocking(&self) -> SimBlockingFile {
        SimBlockingFile { file: self.clone(), owed: AtomicU64::new(0) }
    }
}

/// The same file for code that cannot suspend: it acts at once and owes the time.
#[derive(Debug)]
pub struct SimBlockingFile {
    file: SimFile,
    owed: AtomicU64,
}

impl SimBlockingFile {
    fn alive(&self) -> io::Result<()> {
        if self.file.env.is_alive() { Ok(()) } else { Err(io::Error::other("this process is dead")) }
    }

    fn owe(&self, begun: &Begun) {
        let took = begun.finish.saturating_sub(self.file.env.world().now());
        self.owed.fetch_max(took, Relaxed);
    }

    /// An operation begins when those before it have ended.
    fn owed(&self) -> u64 {
        self.owed.load(Relaxed)
    }
}

impl BlockingFile for SimBlockingFile {
    fn read_at(&self, buf: &mut [u8], offset: LocalOffset) -> io::Result<()> {
        self.alive()?;
        let len = buf.len();
        let (count, begun) = self.file.read(self.owed(), &mut [IoSliceMut::new(buf)], offset)?;
        self.owe(&begun);
        if count == len { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn write_at(&self, buf: &[u8], offset: LocalOffset) -> io::Result<()> {
        self.alive()?;
        self.file.write(self.owed(), buf.to_vec(), offset).map(|begun| self.owe(&begun))
    }

    fn sync(&self) -> io::Result<()> {
        self.file.env.sync_point();
        self.alive()?;
        let (mark, begun) = self.file.begin_sync(self.owed())?;
        self.file.end_sync(mark);
        self.owe(&begun);
        Ok(())
    }

    fn len(&self) -> io::Result<ByteLen> {
        self.alive()?;
        Ok(self.file.meta_now().len)
    }

    fn set_len(&self, len: ByteLen) -> io::Result<()> {
        self.alive()?;
        self.file.cut(self.owed(), len).map(|begun| self.owe(&begun))
    }

    fn take_owed(&self) -> Nanos {
        Nanos(self.owed.swap(0, Relaxed))
    }
}
