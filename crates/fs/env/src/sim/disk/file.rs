//! Open files of a simulated disk.

use super::body::Body;
use super::pages::PAGE_BYTES;
use super::{SimDisk, SimInode};
use crate::device::{DeviceAction, DeviceRequest};
use crate::sim::{SimEnv, SimShared};
use crate::{BlockingFile, Env, File, FileMeta, Shared};
use parking_lot::Mutex;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use weft_core::{ByteLen, LocalOffset, Timestamp};

/// Open file of the simulated world.
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

    /// Returns the open file for another process that received it.
    pub(in crate::sim) fn handed_to(&self, env: &SimEnv) -> Self {
        Self { env: env.clone(), ..self.clone() }
    }

    /// Returns the request of an operation to the device, unless the operation fails.
    fn request(&self, action: DeviceAction, offset: u64, len: u64) -> io::Result<DeviceRequest> {
        let file = self.inode.number;
        self.env.world().note(offset ^ (len << 20) ^ ((action as u64) << 60) ^ (file << 50));
        self.disk.check(action)?;
        let (offset, len) = (LocalOffset(offset), ByteLen(len));
        Ok(DeviceRequest { action, file, offset, len, is_direct: self.is_direct })
    }

    /// Counts a request to a payload file.
    fn count_payload(&self, request: &DeviceRequest) {
        if self.inode.is_payload {
            self.disk.payload_bytes[usize::from(request.action == DeviceAction::Write)]
                .fetch_add(request.len.0, Relaxed);
        }
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
            let count = state.content.read(offset.0 + done as u64, buf);
            done += count;
            if count < buf.len() {
                break;
            }
        }
        Ok((done, request))
    }

    fn write(&self, bufs: &[IoSlice<'_>], offset: LocalOffset) -> io::Result<DeviceRequest> {
        self.writable()?;
        let len = bufs.iter().map(|buf| buf.len() as u64).sum();
        Self::end_of(offset, len)?;
        let (missing, mut written) = {
            let state = self.inode.state.lock();
            (state.content.missing(offset.0, len), state.content.gather(bufs))
        };
        if self.disk.used_bytes() + missing * PAGE_BYTES > self.disk.capacity_bytes() {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        let request = self.request(DeviceAction::Write, offset.0, len);
        if request.is_err() {
            written.truncate(self.disk.below(len + 1));
        }
        self.inode.change(self.env.wall(), |content| content.write(offset.0, written, self.is_direct));
        request
    }

    /// Starts a sync. Returns what it makes durable at its end.
    fn begin_sync(&self) -> io::Result<(u64, DeviceRequest)> {
        let (mark, len) = {
            let state = self.inode.state.lock();
            (state.content.mark(), state.content.unsynced_after(state.writing_to))
        };
        match self.request(DeviceAction::Sync, 0, len) {
            Ok(request) => {
                self.inode.state.lock().writing_to = mark;
                Ok((mark, request))
            }
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

    fn allocate(&self, len: ByteLen) -> io::Result<()> {
        self.writable()?;
        Self::end_of(LocalOffset(0), len.0)?;
        let there = self.inode.state.lock().content.pages();
        let missing = len.0.div_ceil(PAGE_BYTES).saturating_sub(there);
        if self.disk.used_bytes() + missing * PAGE_BYTES > self.disk.capacity_bytes() {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        self.inode.change(self.env.wall(), |content| content.allocate(len.0));
        Ok(())
    }

    /// The range reads as zeros at once, so that a caller that still needs the bytes fails.
    fn discard(&self, offset: LocalOffset, len: ByteLen) -> io::Result<DeviceRequest> {
        self.writable()?;
        Self::end_of(offset, len.0)?;
        self.inode.change(self.env.wall(), |content| content.discard(offset.0, len.0));
        self.request(DeviceAction::Discard, offset.0, len.0)
    }

    fn meta_now(&self) -> FileMeta {
        inode_meta(&self.inode)
    }

    /// Whether the file stores only its length.
    pub(in crate::sim) fn keeps_length(&self) -> bool {
        matches!(self.inode.state.lock().content, Body::Length(_))
    }

    /// Takes the time of reading `len` bytes. Returns the number of bytes available.
    pub(in crate::sim) async fn read_length(&self, offset: LocalOffset, len: usize) -> io::Result<usize> {
        self.env.alive().await;
        Self::end_of(offset, len as u64)?;
        let request = self.request(DeviceAction::Read, offset.0, len as u64)?;
        let left = self.inode.state.lock().content.len().saturating_sub(offset.0);
        self.run(request).await;
        Ok(usize::try_from(left).unwrap_or(usize::MAX).min(len))
    }

    async fn run(&self, request: DeviceRequest) {
        if matches!(request.action, DeviceAction::Read | DeviceAction::Write) {
            self.count_payload(&request);
        }
        self.disk.run(self.env.world(), &request).await;
    }
}

pub(super) fn inode_meta(inode: &SimInode) -> FileMeta {
    let state = inode.state.lock();
    let content = &state.content;
    FileMeta {
        len: ByteLen(content.len()),
        blocks_512: content.pages() * PAGE_BYTES / 512,
        mtime: state.mtime,
        ctime: state.mtime,
        inode: 0,
    }
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
        let request = self.write(bufs, offset)?;
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
        let request = self.write(&[IoSlice::new(&bytes)], offset)?;
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
        // The system has the attributes of an open file in memory, so that the disk is not involved; other tasks may
        // still run in between.
        self.env.alive().await;
        if self.env.world().config.shuffle {
            self.env.world().step_back().await;
        }
        Ok(self.meta_now())
    }

    async fn set_len(&self, len: ByteLen) -> io::Result<()> {
        self.env.alive().await;
        let request = self.cut(len)?;
        self.run(request).await;
        Ok(())
    }

    async fn punch(&self, offset: LocalOffset, len: ByteLen) -> io::Result<()> {
        self.env.alive().await;
        if self.keeps_length() {
            // Nothing has to be written over bytes that are not there.
            let request = self.discard(offset, len)?;
            self.run(request).await;
            return Ok(());
        }
        // The simulated disk has no holes in the middle of a file: write zeros, up to its end.
        let count = self.meta_now().len.0.saturating_sub(offset.0).min(len.0) as usize;
        let request = self.write(&[IoSlice::new(&vec![0; count])], offset)?;
        self.run(request).await;
        Ok(())
    }

    async fn seek_data(&self, offset: LocalOffset) -> io::Result<Option<LocalOffset>> {
        self.env.alive().await;
        Ok((offset.0 < self.meta_now().len.0).then_some(offset))
    }

    async fn seek_hole(&self, offset: LocalOffset) -> io::Result<LocalOffset> {
        self.env.alive().await;
        Ok(LocalOffset(offset.0.max(self.meta_now().len.0)))
    }

    async fn set_mtime(&self, mtime: Timestamp) -> io::Result<()> {
        self.env.alive().await;
        self.writable()?;
        self.inode.state.lock().mtime = mtime;
        Ok(())
    }

    async fn forget(&self) -> io::Result<()> {
        self.env.alive().await;
        self.disk.forget();
        Ok(())
    }

    fn blocking(&self) -> SimBlockingFile {
        SimBlockingFile { file: self.clone(), pending: Mutex::default() }
    }
}

/// File for code that cannot suspend. It acts at once and queues its requests to the device.
#[derive(Debug)]
pub struct SimBlockingFile {
    file: SimFile,
    pending: Mutex<Vec<DeviceRequest>>,
}

impl SimBlockingFile {
    fn alive(&self) -> io::Result<()> {
        if self.file.env.is_alive() { Ok(()) } else { Err(io::Error::other("this process is dead")) }
    }

    fn enqueue(&self, request: DeviceRequest) {
        self.pending.lock().push(request);
    }
}

impl BlockingFile for SimBlockingFile {
    fn read_at(&self, buf: &mut [u8], offset: LocalOffset) -> io::Result<()> {
        self.alive()?;
        let len = buf.len();
        let (count, request) = self.file.read(&mut [IoSliceMut::new(buf)], offset)?;
        self.enqueue(request);
        if count == len { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn write_at(&self, buf: &[u8], offset: LocalOffset) -> io::Result<()> {
        self.alive()?;
        self.file.write(&[IoSlice::new(buf)], offset).map(|request| self.enqueue(request))
    }

    fn sync(&self) -> io::Result<()> {
        self.file.env.sync_point();
        self.alive()?;
        let (mark, request) = self.file.begin_sync()?;
        self.file.end_sync(mark);
        self.enqueue(request);
        Ok(())
    }

    fn len(&self) -> io::Result<ByteLen> {
        self.alive()?;
        Ok(self.file.meta_now().len)
    }

    fn set_len(&self, len: ByteLen) -> io::Result<()> {
        self.alive()?;
        self.file.cut(len).map(|request| self.enqueue(request))
    }

    fn allocate(&self, len: ByteLen) -> io::Result<()> {
        self.alive()?;
        self.file.allocate(len)
    }

    fn discard(&self, offset: LocalOffset, len: ByteLen) -> io::Result<()> {
        self.alive()?;
        self.file.discard(offset, len).map(|request| self.enqueue(request))
    }

    async fn wait_for_device(&self) {
        let pending = std::mem::take(&mut *self.pending.lock());
        for request in pending {
            self.file.run(request).await;
        }
    }
}
