//! Linux's own asynchronous I/O (`io_submit`), which libaio and programs by `syscall` use.
//!
//! Requests on registered descriptors are executed when they are submitted. Their events come from the kernel, in its
//! ring of events, which some programs read without a call. For that, a request that succeeded is submitted as a write
//! of as many bytes to `/dev/null`. The kernel completes it at once and does not look at the bytes. One that found no
//! space goes to `/dev/full`. Any other failed request makes its submission fail, as invalid requests do.

use crate::errno::Res;
use crate::memory::{self, Access, Buffers};
use crate::open::{Open, settle};
use crate::serve::inside;
use crate::{placeholder, sys, table};
use libc::{c_int, c_long, c_ulong, iovec};
use std::ffi::CStr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use weft_env::real::RealEnv;

/// The kernel's control block (`struct iocb`).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Block {
    _data: u64,
    _key: u32,
    rw_flags: c_int,
    opcode: u16,
    _priority: i16,
    fd: u32,
    buf: u64,
    len: u64,
    offset: i64,
    _reserved: u64,
    flags: u32,
    _eventfd: u32,
}

const _: () = assert!(std::mem::size_of::<Block>() == 64);

const PREAD: u16 = 0;
const PWRITE: u16 = 1;
const FSYNC: u16 = 2;
const FDSYNC: u16 = 3;
const PREADV: u16 = 7;
const PWRITEV: u16 = 8;

/// Executes a request.
fn serve(open: &Arc<Open>, block: &Block) -> Res<usize> {
    settle()?;
    let start = block.buf as *const std::ffi::c_void;
    let list = |access| {
        // SAFETY: the program's array.
        unsafe { Buffers::list(start.cast::<iovec>(), block.len as c_int, access) }
    };
    let mut bufs = match block.opcode {
        PREAD => Buffers::one(start, block.len as usize, Access::Write)?,
        PWRITE => Buffers::one(start, block.len as usize, Access::Read)?,
        PREADV => list(Access::Write)?,
        PWRITEV => list(Access::Read)?,
        FSYNC | FDSYNC => return open.sync().map(|()| 0),
        _ => return Err(libc::EINVAL.into()),
    };
    if block.rw_flags & !(libc::RWF_HIPRI | libc::RWF_DSYNC | libc::RWF_SYNC) != 0 {
        return Err(libc::EOPNOTSUPP.into());
    }
    if bufs.are_bad() {
        return Err(libc::EFAULT.into());
    }
    if matches!(block.opcode, PREAD | PREADV) {
        // SAFETY: the program gave this memory for the time of the request.
        return open.read_at(unsafe { bufs.targets() }, block.offset);
    }
    // SAFETY: as above.
    let done = open.write_at(unsafe { bufs.sources() }, block.offset)?;
    if block.rw_flags & (libc::RWF_DSYNC | libc::RWF_SYNC) != 0 {
        open.sync()?;
    }
    Ok(done)
}

/// Device that completes a write with a fixed result.
struct Device {
    path: &'static CStr,
    fd: AtomicI32,
}

/// Accepts all bytes.
static NULL: Device = Device { path: c"/dev/null", fd: AtomicI32::new(-1) };
/// Has no space.
static FULL: Device = Device { path: c"/dev/full", fd: AtomicI32::new(-1) };

impl Device {
    /// Returns a descriptor of the device, opened at the first call.
    fn fd(&self) -> Res<c_int> {
        let known = self.fd.load(Ordering::Acquire);
        if known >= 0 && sys::fcntl(known, libc::F_GETFD, 0).is_ok() {
            return Ok(known);
        }
        let low = sys::open(self.path, libc::O_WRONLY | libc::O_CLOEXEC, 0)?;
        // SAFETY: a new descriptor.
        let low = unsafe { OwnedFd::from_raw_fd(low) };
        // Out of the way of the program, whose loops over descriptors do not close it.
        let file = RealEnv::with_fd_floor(placeholder::floor()).file(low);
        let fd = file.as_raw_fd();
        // Open until the process ends.
        std::mem::forget(file);
        self.fd.store(fd, Ordering::Release);
        Ok(fd)
    }
}

/// Submits to the kernel. Returns the number of requests, or a negative error number.
unsafe fn real(context: c_ulong, blocks: *const *mut Block, count: usize) -> c_long {
    sys::syscall(libc::SYS_io_submit, [context as usize, count, blocks.addr(), 0, 0, 0]) as c_long
}

/// Returns the open file of a request if it is on a registered descriptor.
unsafe fn ours(block: *const Block) -> Option<(Block, Arc<Open>)> {
    let known = memory::load(block).ok()?;
    let fd = known.fd as c_int;
    if !table::is_ours(fd) || crate::guard::inside() {
        return None;
    }
    Some((known, table::get(fd).map(|open| Arc::clone(&open))?))
}

/// Implements `io_submit`. Returns the number of requests, or a negative error number.
///
/// # Safety
/// The array is the program's.
pub unsafe fn submit(context: c_ulong, count: c_long, blocks: *const *mut Block) -> c_long {
    let Ok(len) = usize::try_from(count) else { return real(context, blocks, count as usize) };
    if !memory::has(blocks.cast(), len.saturating_mul(size_of::<*mut Block>()), Access::Read) {
        return real(context, blocks, len);
    }
    let all = if len == 0 { &[] } else { std::slice::from_raw_parts(blocks, len) };
    if all.iter().all(|&block| ours(block).is_none()) {
        return real(context, blocks, len);
    }
    let mut done = 0;
    while done < len {
        let result = match ours(all[done]) {
            Some((known, open)) => one(context, &all[done], known, &open),
            None => {
                let foreign = all[done..].iter().take_while(|&&block| ours(block).is_none()).count();
                real(context, &raw const all[done], foreign)
            }
        };
        if result <= 0 {
            return if done > 0 { done as c_long } else { result };
        }
        done += result as usize;
    }
    done as c_long
}

/// Executes a request, and makes the kernel report its event.
unsafe fn one(context: c_ulong, place: &*mut Block, known: Block, open: &Arc<Open>) -> c_long {
    let ended = inside(|| match serve(open, &known) {
        Ok(moved) => Ok((NULL.fd()?, moved)),
        Err(fail) if fail.errno() == libc::ENOSPC => Ok((FULL.fd()?, 1)),
        Err(fail) => Err(fail),
    });
    let (device, len) = match ended {
        Ok(ended) => ended,
        Err(fail) => return -c_long::from(fail.report()),
    };
    let block = *place;
    *block = Block { opcode: PWRITE, fd: device as u32, len: len as u64, offset: 0, rw_flags: 0, ..known };
    let result = real(context, place, 1);
    *block = known;
    result
}

/// `io_submit` of libaio, which returns a negative error number on failure.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn io_submit(context: c_ulong, count: c_long, blocks: *const *mut Block) -> c_int {
    submit(context, count, blocks) as c_int
}
