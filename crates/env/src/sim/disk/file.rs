//! Open files of a simulated disk.

use super::pages::PAGE_BYTES;
use super::{SimDisk, SimInode};
use crate::device::{DeviceAction, DeviceRequest};
use crate::sim::{SimEnv, SimShared};
use crate::{BlockingFile, Env, File, FileMeta, Shared};
use parking_lot::Mutex;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use weft_core::{ByteLen, LocalOffset};

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

    /// What an operation asks of the device, unless it fails.
    fn request(&self, action: DeviceAction, offset: u64, len: u64) -> io::Result<DeviceRequest> {
        let file = self.inode.number;
        self.env.world().note(offset ^ (len << 20) ^ ((action as u64) << 60) ^ (file << 50));
        self.disk.check(action)?;
        let (offset, len) = (LocalOffset(offset), ByteLen(len));
        Ok(DeviceRequest { action, file, offset, len, is_direct: self.is_direct })
    }

    fn writable(&self) -> io::Result<()> {
        if self.may_write { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EBADF)) }
    }

    fn end_of(offset: LocalOffset, len: u64) -> io::Result<u64> {
        let end = offset.0.checked_add(len).filter(|&end| end <= i64::MAX as u64);
        end.ok_or_else(|| io::Error::from_raw_os_error(libc::EFBIG))
    }

    fn read(&self, bufs: &mut [IoSliceMut<'_>], offset: LocalOffset) -> io::Result<(usize, DeviceRequest)> {
        let len = bufs.iter().map(|buf| buf.len() as u64).sum();
        Self::end_of(offset, len)?;
        let request = self.request(DeviceAction::Read, offset.0, len)?;
        let state = self.inode.state.lock();
        let mut done = 0;
        for buf in bufs {
            let count = state.content.pages().read(offset.0 + done as u64, buf);
            done += count;
            if count < buf.len() {
                break;
            }
        }
        Ok((done, request))
    }

    fn write(&self, mut bytes: Vec<u8>, offset: LocalOffset) -> io::Result<DeviceRequest> {
        self.writable()?;
        Self::end_of(offset, bytes.len() as u64)?;
        let missing = self.inode.state.lock().content.pages().missing(offset.0, bytes.len());
        if self.disk.used_bytes() + missing * PAGE_BYTES > self.disk.capacity_bytes() {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        let request = self.request(DeviceAction::Write, offset.0, bytes.len() as u64);
        if request.is_err() {
            bytes.truncate(self.disk.below(bytes.len() as u64 + 1) as usize);
        }
        self.inode.change(self.env.wall(), |content| {
            let end = offset.0 + bytes.len() as u64;
            content.write(offset.0, bytes);
            debug_assert!(content.pages().len() >= end || end == offset.0);
        });
        request
    }

    /// A sync that starts now: what it has to make durable when it ends.
    fn begin_sync(&self) -> io::Result<(u64, DeviceRequest)> {
        let (mark, len) = {
            let state = self.inode.state.lock();
            (state.content.mark(), state.content.unsynced_bytes())
        };
        match self.request(DeviceAction::Sync, 0, len) {
            Ok(request) => Ok((mark, request)),
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

    fn cut(&self, len: ByteLen) -> io::Result<DeviceRequest> {
        self.writable()?;
        Self::end_of(LocalOffset(0), len.0)?;
        self.inode.change(self.env.wall(), |content| content.set_len(len.0));
        self.request(DeviceAction::Cut, len.0, 0)
    }

    fn meta_now(&self) -> FileMeta {
        inode_meta(&self.inode)
    }

    async fn run(&self, request: DeviceRequest) {
        self.disk.run(self.env.world(), &request).await;
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
        let (count, request) = self.read(bufs, offset)?;
        self.run(request).await;
        Ok(count)
    }

    async fn write_at(&self, bufs: &[IoSlice<'_>], offset: LocalOffset) -> io::Result<()> {
        self.env.alive().await;
        let request = self.write(gather(bufs), offset)?;
        self.run(request).await;
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
        let request = self.write(bytes, offset)?;
        self.run(request).await;
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
        let (count, request) = self.read(&mut [IoSliceMut::new(&mut bytes)], offset)?;
        self.run(request).await;
        shared.copy_in(to, &bytes[..count]);
        Ok(count)
    }

    async fn sync(&self) -> io::Result<()> {
        self.env.sync_point();
        self.env.alive().await;
        let (mark, request) = self.begin_sync()?;
        self.run(request).await;
        self.end_sync(mark);
        Ok(())
    }

    async fn meta(&self) -> io::Result<FileMeta> {
        self.env.alive().await;
        let request = self.request(DeviceAction::Name, 0, 0)?;
        self.run(request).await;
        Ok(self.meta_now())
    }

    async fn set_len(&self, len: ByteLen) -> io::Result<()> {
        self.env.alive().await;
        let request = self.cut(len)?;
        self.run(request).await;
        Ok(())
    }

    fn blocking(&self) -> SimBlockingFile {
        SimBlockingFile { file: self.clone(), owed: Mutex::default() }
    }
}

/// The same file for code that cannot suspend: it acts at once, and its requests to the device are owed.
#[derive(Debug)]
pub struct SimBlockingFile {
    file: SimFile,
    owed: Mutex<Vec<DeviceRequest>>,
}

impl SimBlockingFile {
    fn alive(&self) -> io::Result<()> {
        if self.file.env.is_alive() { Ok(()) } else { Err(io::Error::other("this process is dead")) }
    }

    fn owe(&self, request: DeviceRequest) {
        self.owed.lock().push(request);
    }
}

impl BlockingFile for SimBlockingFile {
    fn read_at(&self, buf: &mut [u8], offset: LocalOffset) -> io::Result<()> {
        self.alive()?;
        let len = buf.len();
        let (count, request) = self.file.read(&mut [IoSliceMut::new(buf)], offset)?;
        self.owe(request);
        if count == len { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn write_at(&self, buf: &[u8], offset: LocalOffset) -> io::Result<()> {
        self.alive()?;
        self.file.write(buf.to_vec(), offset).map(|request| self.owe(request))
    }

    fn sync(&self) -> io::Result<()> {
        self.file.env.sync_point();
        self.alive()?;
        let (mark, request) = self.file.begin_sync()?;
        self.file.end_sync(mark);
        self.owe(request);
        Ok(())
    }

    fn len(&self) -> io::Result<ByteLen> {
        self.alive()?;
        Ok(self.file.meta_now().len)
    }

    fn set_len(&self, len: ByteLen) -> io::Result<()> {
        self.alive()?;
        self.file.cut(len).map(|request| self.owe(request))
    }

    async fn settle(&self) {
        let owed = std::mem::take(&mut *self.owed.lock());
        for request in owed {
            self.file.run(request).await;
        }
    }
}
