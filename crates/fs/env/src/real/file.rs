//! Open files.

use super::RealShared;
use super::sys::{self, Fd};
use crate::{BlockingFile, File, FileMeta};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use weft_core::{ByteLen, LocalOffset, Timestamp};

/// Unit in which a direct read can be short without having reached the end of the file, in bytes.
const SECTOR_BYTES: usize = 512;

/// Open file; clones share its descriptor.
#[derive(Clone, Debug)]
pub struct RealFile {
    fd: Arc<Fd>,
    direct: bool,
}

impl RealFile {
    pub(super) fn new(fd: Fd, direct: bool) -> Self {
        Self { fd: Arc::new(fd), direct }
    }

    /// Accepts a received descriptor if it is a regular file. Reading any other kind could block forever.
    pub(super) fn received(fd: Fd) -> Option<Self> {
        let mode = sys::statx(&fd).ok()?.stx_mode;
        (u32::from(mode) & libc::S_IFMT == libc::S_IFREG).then(|| Self::new(fd, false))
    }

    pub(super) fn fd(&self) -> &Fd {
        &self.fd
    }

    /// Whether the caller has to align its buffers.
    pub(super) fn is_direct(&self) -> bool {
        self.direct
    }

    /// Reads until `parts` are full or the file ends.
    fn read(&self, parts: &[libc::iovec], offset: LocalOffset) -> io::Result<usize> {
        // After the unaligned end of a file, a direct read fails instead of returning zero bytes.
        sys::preadv(&self.fd, parts, offset.0, |count| self.direct && count % SECTOR_BYTES != 0)
    }
}

impl AsFd for RealFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as `self`.
        unsafe { BorrowedFd::borrow_raw(self.fd.as_raw_fd()) }
    }
}

impl AsRawFd for RealFile {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Returns the fields of a `statx` that Weft needs.
pub(super) fn file_meta(meta: &libc::statx) -> FileMeta {
    FileMeta {
        len: ByteLen(meta.stx_size),
        blocks_512: meta.stx_blocks,
        mtime: Timestamp::from_parts(meta.stx_mtime.tv_sec, meta.stx_mtime.tv_nsec),
        ctime: Timestamp::from_parts(meta.stx_ctime.tv_sec, meta.stx_ctime.tv_nsec),
        inode: meta.stx_ino,
    }
}

impl File for RealFile {
    type Shared = RealShared;
    type Blocking = RealBlockingFile;

    async fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: LocalOffset) -> io::Result<usize> {
        self.read(sys::scatter(bufs), offset)
    }

    async fn write_at(&self, bufs: &[IoSlice<'_>], offset: LocalOffset) -> io::Result<()> {
        sys::pwritev(&self.fd, sys::gather(bufs), offset.0)
    }

    async fn write_shared_at(
        &self,
        shared: &RealShared,
        from: usize,
        len: usize,
        offset: LocalOffset,
    ) -> io::Result<()> {
        let part = libc::iovec { iov_base: shared.at(from, len).cast(), iov_len: len };
        sys::pwritev(&self.fd, &[part], offset.0)
    }

    async fn read_shared_at(
        &self,
        shared: &RealShared,
        to: usize,
        len: usize,
        offset: LocalOffset,
    ) -> io::Result<usize> {
        let part = libc::iovec { iov_base: shared.at(to, len).cast(), iov_len: len };
        self.read(&[part], offset)
    }

    async fn sync(&self) -> io::Result<()> {
        // fdatasync omits the times but includes the length.
        sys::fdatasync(&self.fd)
    }

    async fn meta(&self) -> io::Result<FileMeta> {
        sys::statx(&self.fd).map(|meta| file_meta(&meta))
    }

    async fn set_len(&self, len: ByteLen) -> io::Result<()> {
        sys::ftruncate(&self.fd, len.0)
    }

    async fn punch(&self, offset: LocalOffset, len: ByteLen) -> io::Result<()> {
        sys::punch(&self.fd, offset.0, len.0)
    }

    async fn seek_data(&self, offset: LocalOffset) -> io::Result<Option<LocalOffset>> {
        Ok(sys::seek(&self.fd, offset.0, libc::SEEK_DATA)?.map(LocalOffset))
    }

    async fn seek_hole(&self, offset: LocalOffset) -> io::Result<LocalOffset> {
        Ok(LocalOffset(sys::seek(&self.fd, offset.0, libc::SEEK_HOLE)?.unwrap_or(offset.0)))
    }

    async fn set_mtime(&self, mtime: Timestamp) -> io::Result<()> {
        sys::set_mtime(&self.fd, mtime)
    }

    async fn forget(&self) -> io::Result<()> {
        // Only clean pages can be dropped.
        sys::fdatasync(&self.fd)?;
        sys::forget(&self.fd)
    }

    async fn close(self) -> io::Result<()> {
        Arc::into_inner(self.fd).map_or(Ok(()), Fd::close)
    }

    fn blocking(&self) -> RealBlockingFile {
        RealBlockingFile(self.clone())
    }
}

/// The file for code that cannot suspend.
#[derive(Clone, Debug)]
pub struct RealBlockingFile(RealFile);

impl BlockingFile for RealBlockingFile {
    fn read_at(&self, buf: &mut [u8], offset: LocalOffset) -> io::Result<()> {
        let len = buf.len();
        match self.0.read(sys::scatter(&mut [IoSliceMut::new(buf)]), offset)? {
            count if count == len => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn write_at(&self, buf: &[u8], offset: LocalOffset) -> io::Result<()> {
        sys::pwritev(&self.0.fd, sys::gather(&[IoSlice::new(buf)]), offset.0)
    }

    fn sync(&self) -> io::Result<()> {
        sys::fdatasync(&self.0.fd)
    }

    fn len(&self) -> io::Result<ByteLen> {
        sys::statx(&self.0.fd).map(|meta| ByteLen(meta.stx_size))
    }

    fn allocate(&self, len: ByteLen) -> io::Result<()> {
        match sys::allocate(&self.0.fd, len.0) {
            // Some file systems cannot allocate except by writing.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                crate::extend_with_zeros(self, len)
            }
            result => result,
        }
    }

    fn reserve(&self, len: ByteLen) -> io::Result<()> {
        match sys::reserve(&self.0.fd, len.0) {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
            result => result,
        }
    }

    fn set_len(&self, len: ByteLen) -> io::Result<()> {
        sys::ftruncate(&self.0.fd, len.0)
    }

    fn discard(&self, offset: LocalOffset, len: ByteLen) -> io::Result<()> {
        match sys::zero_range(&self.0.fd, offset.0, len.0) {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
            result => result,
        }
    }
}
