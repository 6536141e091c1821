//! Replies to reads without a buffer.
//!
//! The pages of the datafiles pass through a pipe into the kernel's queue, which copies them once, into the reader's
//! memory. A buffer would require a second copy. The pipe holds only references to pages.
//!
//! A pipe has a slot for each page and one for the header of the reply. For an unprivileged process it has 256 slots (1
//! MiB), one less than the longest read needs. The kernel is then limited to reads of half that length, which still
//! cost less than a second copy.

use fuser::{ReplyData, RequestId};
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use weft_client::{OpenFile, PinnedExtents};
use weft_core::{ByteLen, Extent};
use weft_env::real::{RealEnv, block_on};

/// Minimum length of a spliced read: the two additional system calls of a pipe cost more than copying less.
const LEN_MIN: ByteLen = ByteLen::from_kib(32);
/// Maximum length of a read if pipes cannot be long enough for `READ_LEN_MAX`.
const LEN_MAX_SMALL: u32 = 512 << 10;
/// Length of the header before a reply (`fuse_out_header`).
const HEADER_LEN: usize = 16;

/// Splicing state of one mount.
pub struct Splicer {
    /// Connection to the kernel. All serving threads must use this one: a reply must use the descriptor from which its
    /// request came, and fuser does not reveal the descriptor of a thread.
    device: OnceLock<OwnedFd>,
    page: u64,
    /// Length of available pipes, 0 if splicing is off.
    pipe_len: usize,
}

/// Outcome of an attempt to reply.
pub enum Spliced {
    /// The kernel has its reply.
    Answered,
    /// Use another way: the range is not fully leased or stored (holes, the end of the file).
    Not(ReplyData),
    /// Use another way, and do not try again for this file.
    Never(ReplyData),
}

impl Splicer {
    /// Creates the state for reads of up to `read_len_max` bytes.
    pub fn new(read_len_max: u32) -> Self {
        // SAFETY: the call takes no pointers.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1) as u64;
        // One slot for the header, one because the first page may start in the middle.
        let len_for = |read: u32| (u64::from(read) + 2 * page).next_power_of_two() as usize;
        let longest = [len_for(read_len_max), len_for(LEN_MAX_SMALL)];
        let can_be_had = |len: &usize| Pipe::new(*len).is_ok();
        Self { device: OnceLock::new(), page, pipe_len: longest.into_iter().find(can_be_had).unwrap_or(0) }
    }

    /// Creates a disabled splicer.
    pub fn off() -> Self {
        Self { device: OnceLock::new(), page: 1, pipe_len: 0 }
    }

    /// Returns the maximum length of a read that the kernel should request, if less than `read_len_max`, in bytes.
    pub fn read_len_max(&self, read_len_max: u32) -> Option<u32> {
        (0 < self.pipe_len && self.pipe_len <= read_len_max as usize).then_some(LEN_MAX_SMALL)
    }

    /// Uses this connection from now on.
    ///
    /// # Errors
    /// If no descriptor is left.
    pub fn begin(&self, device: BorrowedFd<'_>) -> io::Result<()> {
        let _ = self.device.set(device.try_clone_to_owned()?);
        Ok(())
    }

    /// Replies to a read of `extent` if all of it comes from leased datafiles.
    pub fn answer(
        &self,
        unique: RequestId,
        file: &OpenFile<RealEnv>,
        extent: Extent,
        reply: ReplyData,
    ) -> Spliced {
        let Some(device) = self.device.get().filter(|_| self.pipe_len > 0 && extent.len >= LEN_MIN) else {
            return Spliced::Not(reply);
        };
        THREAD_STATE.with_borrow_mut(|ThreadState { pipe, pinned }| {
            if !block_on(file.pin(extent, pinned)) {
                return Spliced::Not(reply);
            }
            let mut through = match pipe.take().map_or_else(|| Pipe::new(self.pipe_len), Ok) {
                Ok(pipe) => pipe,
                Err(_) => return Spliced::Not(reply),
            };
            let pages: u64 =
                pinned.runs().map(|(_, at, len)| (at.0 % self.page + len.0).div_ceil(self.page)).sum();
            if (1 + pages) * self.page > self.pipe_len as u64 {
                *pipe = Some(through);
                return Spliced::Not(reply);
            }
            let result = through.fill(unique, pinned).and_then(|len| through.empty(device.as_fd(), len));
            // All bytes have reached the reader, or remain in the pipe that is closed here.
            pinned.release();
            match result {
                Ok(()) => {
                    *pipe = Some(through);
                    // Dropping the reply would answer again. Forgetting it leaks only a reference to the connection,
                    // whose descriptor stays open until the process ends.
                    std::mem::forget(reply);
                    Spliced::Answered
                }
                // The reader no longer waits for the reply.
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                    std::mem::forget(reply);
                    Spliced::Answered
                }
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Spliced::Not(reply),
                // If the kernel has nevertheless accepted this reply, it ignores the next one.
                Err(_) => Spliced::Never(reply),
            }
        })
    }
}

/// State that a serving thread keeps between replies.
#[derive(Default)]
struct ThreadState {
    /// Empty between replies.
    pipe: Option<Pipe>,
    pinned: PinnedExtents<RealEnv>,
}

thread_local! {
    static THREAD_STATE: RefCell<ThreadState> = RefCell::default();
}

struct Pipe {
    out: OwnedFd,
    into: File,
}

impl Pipe {
    /// Creates a pipe with space for `len` bytes in whole pages.
    fn new(len: usize) -> io::Result<Self> {
        let mut ends = [0; 2];
        // SAFETY: there is space for two descriptors, which only this process owns.
        let pipe = unsafe {
            if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
                return Err(io::Error::last_os_error());
            }
            Self { out: OwnedFd::from_raw_fd(ends[0]), into: File::from_raw_fd(ends[1]) }
        };
        // SAFETY: the call takes only integers.
        let got = unsafe { libc::fcntl(pipe.into.as_raw_fd(), libc::F_SETPIPE_SZ, len as libc::c_int) };
        if got < 0 { Err(io::Error::last_os_error()) } else { Ok(pipe) }
    }

    /// Fills the pipe with the whole reply and returns its length. Fails with `UnexpectedEof` where a datafile ends
    /// before its run does.
    fn fill(&mut self, unique: RequestId, pinned: &PinnedExtents<RealEnv>) -> io::Result<usize> {
        let len = HEADER_LEN + pinned.runs().map(|(_, _, len)| len.0 as usize).sum::<usize>();
        let mut header = [0; HEADER_LEN];
        header[..4].copy_from_slice(&(len as u32).to_ne_bytes());
        // The error field in between stays zero.
        header[8..].copy_from_slice(&unique.0.to_ne_bytes());
        self.into.write_all(&header)?;
        for (file, at, len) in pinned.runs() {
            let (mut at, mut left) = (at.0, len.0 as usize);
            while left > 0 {
                // Non-blocking refers to the pipe only: no thread would ever empty a full one.
                let got = splice(file.as_fd(), Some(at), self.into.as_fd(), left, libc::SPLICE_F_NONBLOCK)?;
                if got == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                at += got as u64;
                left -= got;
            }
        }
        Ok(len)
    }

    /// Passes the reply to the kernel.
    fn empty(&self, device: BorrowedFd<'_>, len: usize) -> io::Result<()> {
        splice(self.out.as_fd(), None, device, len, 0).map(|_| ())
    }
}

fn splice(
    from: BorrowedFd<'_>,
    at: Option<u64>,
    to: BorrowedFd<'_>,
    len: usize,
    flags: libc::c_uint,
) -> io::Result<usize> {
    let mut offset = at.unwrap_or(0) as libc::loff_t;
    let at = if at.is_some() { &raw mut offset } else { std::ptr::null_mut() };
    // SAFETY: the descriptors are open, and the offset outlives the call.
    let got = unsafe { libc::splice(from.as_raw_fd(), at, to.as_raw_fd(), std::ptr::null_mut(), len, flags) };
    if got < 0 { Err(io::Error::last_os_error()) } else { Ok(got as usize) }
}
