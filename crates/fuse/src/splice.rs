//! Answering reads without a buffer.
//!
//! The pages of the datafiles go through a pipe into the kernel's queue, which copies them once, into the reader's
//! memory; by a buffer they would be copied into it and out of it again. The pipe only carries references to pages.
//!
//! A pipe has a slot for each page and one for the header of the answer. Without privilege it has 256 (1 MiB), one less
//! than the longest read takes: the kernel is then told to ask for half of it at a time, which still costs less than the
//! second copy.

use fuser::{ReplyData, RequestId};
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use weft_client::{Loan, OpenFile};
use weft_core::{ByteLen, Extent};
use weft_env::real::{RealEnv, block_on};

/// Shorter reads cost less by a buffer: a pipe takes two system calls more.
const LEN_MIN: ByteLen = ByteLen::from_kib(32);
/// The longest read when a pipe cannot be long enough for `READ_LEN_MAX`.
const LEN_MAX_SMALL: u32 = 512 << 10;
/// Length of the header before an answer (`fuse_out_header`).
const HEADER_LEN: usize = 16;

/// How one mount splices.
pub struct Splicer {
    /// The connection to the kernel: all serving threads must use this one, because an answer must leave by the
    /// descriptor by which its request came, and fuser does not tell that of a thread.
    device: OnceLock<OwnedFd>,
    page: u64,
    /// Length of the pipes that can be had, 0 where splicing makes no sense.
    pipe_len: usize,
}

/// What became of an attempt to answer.
pub enum Spliced {
    /// The kernel has its answer.
    Answered,
    /// Another way must be taken: not all is leased, or not there (holes, the end of the file).
    Not(ReplyData),
    /// Another way must be taken, and there is no point in trying again with this file.
    Never(ReplyData),
}

impl Splicer {
    /// For reads of up to `read_len_max` bytes.
    pub fn new(read_len_max: u32) -> Self {
        // SAFETY: a question without arguments in memory.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1) as u64;
        // One slot for the header, one because the first page may be begun in the middle.
        let len_for = |read: u32| (u64::from(read) + 2 * page).next_power_of_two() as usize;
        let longest = [len_for(read_len_max), len_for(LEN_MAX_SMALL)];
        let can_be_had = |len: &usize| Pipe::new(*len).is_ok();
        Self { device: OnceLock::new(), page, pipe_len: longest.into_iter().find(can_be_had).unwrap_or(0) }
    }

    /// That does nothing.
    pub fn off() -> Self {
        Self { device: OnceLock::new(), page: 1, pipe_len: 0 }
    }

    /// What the kernel should ask for at the most, if less than `read_len_max`, in bytes.
    pub fn read_len_max(&self, read_len_max: u32) -> Option<u32> {
        (0 < self.pipe_len && self.pipe_len <= read_len_max as usize).then_some(LEN_MAX_SMALL)
    }

    /// Uses this connection from now on.
    ///
    /// # Errors
    /// When there is no descriptor left.
    pub fn begin(&self, device: BorrowedFd<'_>) -> io::Result<()> {
        let _ = self.device.set(device.try_clone_to_owned()?);
        Ok(())
    }

    /// Answers a read of `extent` if all of it comes from leased datafiles.
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
        TOOLS.with_borrow_mut(|Tools { pipe, loan }| {
            if !block_on(file.lend(extent, loan)) {
                return Spliced::Not(reply);
            }
            let mut through = match pipe.take().map_or_else(|| Pipe::new(self.pipe_len), Ok) {
                Ok(pipe) => pipe,
                Err(_) => return Spliced::Not(reply),
            };
            let pages: u64 =
                loan.runs().map(|(_, at, len)| (at.0 % self.page + len.0).div_ceil(self.page)).sum();
            if (1 + pages) * self.page > self.pipe_len as u64 {
                *pipe = Some(through);
                return Spliced::Not(reply);
            }
            let result = through.fill(unique, loan).and_then(|len| through.empty(device.as_fd(), len));
            // Everything has reached the reader, or is with the pipe that ends here.
            loan.end();
            match result {
                Ok(()) => {
                    *pipe = Some(through);
                    // Its end would answer again. All that is lost is a count of the connection's users: its descriptor
                    // stays open until the process ends.
                    std::mem::forget(reply);
                    Spliced::Answered
                }
                // Nobody waits for the answer any more.
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                    std::mem::forget(reply);
                    Spliced::Answered
                }
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Spliced::Not(reply),
                // Should the kernel have taken the answer for this one all the same, it ignores the next.
                Err(_) => Spliced::Never(reply),
            }
        })
    }
}

/// What a serving thread keeps for the next answer.
#[derive(Default)]
struct Tools {
    /// Empty between two answers.
    pipe: Option<Pipe>,
    loan: Loan<RealEnv>,
}

thread_local! {
    static TOOLS: RefCell<Tools> = RefCell::default();
}

struct Pipe {
    out: OwnedFd,
    into: File,
}

impl Pipe {
    /// With room for `len` bytes in whole pages.
    fn new(len: usize) -> io::Result<Self> {
        let mut ends = [0; 2];
        // SAFETY: there is room for two descriptors, which nobody else owns.
        let pipe = unsafe {
            if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
                return Err(io::Error::last_os_error());
            }
            Self { out: OwnedFd::from_raw_fd(ends[0]), into: File::from_raw_fd(ends[1]) }
        };
        // SAFETY: integers only.
        let got = unsafe { libc::fcntl(pipe.into.as_raw_fd(), libc::F_SETPIPE_SZ, len as libc::c_int) };
        if got < 0 { Err(io::Error::last_os_error()) } else { Ok(pipe) }
    }

    /// Puts the whole answer in; its length. `UnexpectedEof` where a datafile ends before its run does.
    fn fill(&mut self, unique: RequestId, loan: &Loan<RealEnv>) -> io::Result<usize> {
        let len = HEADER_LEN + loan.runs().map(|(_, _, len)| len.0 as usize).sum::<usize>();
        let mut header = [0; HEADER_LEN];
        header[..4].copy_from_slice(&(len as u32).to_ne_bytes());
        // The error, which there is none of, lies between.
        header[8..].copy_from_slice(&unique.0.to_ne_bytes());
        self.into.write_all(&header)?;
        for (file, at, len) in loan.runs() {
            let (mut at, mut left) = (at.0, len.0 as usize);
            while left > 0 {
                // Not to wait is about the pipe alone: nobody would ever empty one that is full.
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

    /// Hands the answer over.
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
