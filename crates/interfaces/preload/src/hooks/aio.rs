//! Asynchronous I/O, executed synchronously. The control block is filled as by the C library, so that its own
//! `aio_error`, `aio_return` and `aio_suspend` return the result.

use crate::errno;
use crate::lock::Lock;
use crate::memory::{Access, Buffers};
use crate::serve::inside;
use crate::table;
use crate::trace::{Operation, Start, posix};
use libc::{c_int, c_void, off_t, sigevent, size_t};
use std::collections::BTreeMap;

/// The C library's control block (glibc, 64 bit).
#[repr(C)]
pub struct Block {
    fd: c_int,
    opcode: c_int,
    priority: c_int,
    buf: *mut c_void,
    len: size_t,
    event: sigevent,
    _next: *mut c_void,
    _absolute_priority: c_int,
    _policy: c_int,
    error: c_int,
    result: isize,
    offset: off_t,
    _reserved: [u8; 32],
}

const _: () = assert!(std::mem::size_of::<Block>() == 168);

#[derive(Clone, Copy)]
enum What {
    Read,
    Write,
    Sync,
}

/// Executes the request of `block` if it is on a Weft file.
unsafe fn serve(block: *mut Block, what: What) -> Option<c_int> {
    let block = block.as_mut()?;
    if !table::is_ours(block.fd) || crate::guard::inside() {
        return None;
    }
    let result = inside(|| {
        let open = table::get(block.fd).ok_or(libc::EBADF)?;
        let access = match what {
            What::Sync => return open.sync().map(|()| 0),
            What::Read => Access::Write,
            What::Write => Access::Read,
        };
        let mut bufs = Buffers::one(block.buf, block.len, access)?;
        match what {
            _ if bufs.are_bad() => Err(libc::EFAULT.into()),
            What::Read => open.read_at(bufs.targets(), block.offset),
            _ => open.write_at(bufs.sources(), block.offset),
        }
    });
    (block.error, block.result) = match result {
        Ok(n) => (0, n as isize),
        Err(fail) => (fail.errno(), -1),
    };
    notify(&block.event);
    Some(0)
}

unsafe fn notify(event: &sigevent) {
    match event.sigev_notify {
        libc::SIGEV_SIGNAL => {
            libc::sigqueue(libc::getpid(), event.sigev_signo, event.sigev_value);
        }
        libc::SIGEV_THREAD => {
            // The function lies where the thread id lies for the other kind of notification.
            type Function = unsafe extern "C" fn(libc::sigval);
            let at = (&raw const event.sigev_notify_thread_id).cast::<Option<Function>>();
            let aligned = at.cast::<u8>().align_offset(8) == 0;
            if let Some(function) = aligned.then(|| *at).flatten() {
                let value = event.sigev_value.sival_ptr as usize;
                // A separate thread, as documented: the caller may hold locks that the function acquires.
                std::thread::spawn(move || function(libc::sigval { sival_ptr: value as *mut c_void }));
            }
        }
        _ => {}
    }
}

hook! { [aio_read, aio_read64] (block: *mut Block) -> c_int { serve(block, What::Read) }
trace |start, done| { if done == 0 { submitted(start, block, Operation::Read) } } }
hook! { [aio_write, aio_write64] (block: *mut Block) -> c_int { serve(block, What::Write) }
trace |start, done| { if done == 0 { submitted(start, block, Operation::Write) } } }
hook! { [aio_fsync, aio_fsync64] (_op: c_int, block: *mut Block) -> c_int { serve(block, What::Sync) } }

// Requests in progress in the C library, by the address of their block, for the tracer.
static IN_PROGRESS: Lock<BTreeMap<usize, (Start, Operation)>> = Lock::new(BTreeMap::new());
/// Maximum number of tracked requests; further ones are not traced.
const IN_PROGRESS_MAX: usize = 4096;

/// Registers a submitted request with the tracer. One on a Weft file is complete; others complete when their result is
/// fetched.
unsafe fn submitted(start: Start, block: *const Block, op: Operation) {
    let Some(known) = block.as_ref() else { return };
    if table::is_ours(known.fd) {
        return posix::at(start, known.fd, op, known.offset, known.result);
    }
    let mut under_way = IN_PROGRESS.lock();
    if under_way.len() < IN_PROGRESS_MAX {
        under_way.insert(block as usize, (start, op));
    }
}

/// Resets the table in a forked child, where only the forking thread exists and requests belong to the parent.
pub fn after_fork_in_child() {
    // SAFETY: the holder does not exist in this process, and the map is replaced without a look at it.
    unsafe {
        IN_PROGRESS.reset();
        std::ptr::write(&mut *IN_PROGRESS.lock(), BTreeMap::new());
    }
}

hook! { [aio_return, aio_return64] (block: *mut Block) -> isize { None } trace |_now, done| {
    let begun = IN_PROGRESS.lock().remove(&(block as usize));
    if let Some((start, op)) = begun {
        posix::at(start, (*block).fd, op, (*block).offset, done);
    }
} }

hook! { [aio_cancel, aio_cancel64] (fd: c_int, _block: *mut Block) -> c_int {
    // AIO_ALLDONE
    table::is_ours(fd).then_some(2)
} }

hook! { [lio_listio, lio_listio64]
    (mode: c_int, list: *const *mut Block, count: c_int, event: *mut sigevent) -> c_int {
    let blocks = std::slice::from_raw_parts(list, usize::try_from(count).unwrap_or(0));
    let is_ours = |block: &&*mut Block| !block.is_null() && table::is_ours((***block).fd);
    if blocks.iter().any(|block| is_ours(&block)) {
        Some(list_of_both(mode, blocks, event))
    } else {
        None
    }
} trace |start, done| {
    if done == 0 {
        let blocks = std::slice::from_raw_parts(list, usize::try_from(count).unwrap_or(0));
        for &block in blocks.iter().filter(|block| !block.is_null()) {
            match (*block).opcode {
                libc::LIO_READ => submitted(start, block, Operation::Read),
                libc::LIO_WRITE => submitted(start, block, Operation::Write),
                _ => {}
            }
        }
    }
} }

/// Executes a list with requests on both kinds of files: those on Weft files here, the others by the C library.
unsafe fn list_of_both(mode: c_int, blocks: &[*mut Block], event: *mut sigevent) -> c_int {
    let mut others = Vec::new();
    let mut failed = false;
    for &block in blocks.iter().filter(|block| !block.is_null()) {
        let what = match (*block).opcode {
            libc::LIO_READ => What::Read,
            libc::LIO_WRITE => What::Write,
            _ => continue,
        };
        match serve(block, what) {
            Some(_) => failed |= (*block).error != 0,
            None => others.push(block),
        }
    }
    if !others.is_empty() {
        type List = unsafe extern "C" fn(c_int, *const *mut Block, c_int, *mut sigevent) -> c_int;
        let real: List = real!(lio_listio: fn(c_int, *const *mut Block, c_int, *mut sigevent) -> c_int);
        let result = real(mode, others.as_ptr(), others.len() as c_int, event);
        if result != 0 {
            return result;
        }
    } else if mode == libc::LIO_NOWAIT
        && let Some(event) = event.as_ref()
    {
        notify(event);
    }
    if failed && mode == libc::LIO_WAIT {
        errno::set(libc::EIO);
        return -1;
    }
    0
}
