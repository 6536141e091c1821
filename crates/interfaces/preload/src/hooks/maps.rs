//! Memory mappings of Weft files: private memory with the file's bytes. The kernel maps files of the host that delegates
//! serve, except shared writable ones.
//!
//! A private or read-only mapping is a snapshot. A shared writable mapping fails with `ENODEV`, which programs can
//! handle, unless `WEFT_MMAP_SHARED=writeback`. Changed pages are then written back at `msync` and `munmap` and at the
//! end of the process; other processes see the changes only after that.

use crate::config::config;
use crate::errno::{self, Res};
use crate::lock::Lock;
use crate::memory;
use crate::open::Open;
use crate::serve::{inside, on_fd};
use crate::table;
use libc::{c_int, c_void, off_t, size_t};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const PAGE: usize = 4096;

type Map = unsafe extern "C" fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void;

hook! { [mmap, mmap64]
    (address: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void {
    if flags & libc::MAP_FIXED != 0 {
        memory::forget();
    }
    if flags & libc::MAP_ANONYMOUS != 0 || !table::is_ours(fd) || is_for_kernel(fd, protection, flags) {
        None
    } else {
        let real: Map = real!(mmap: fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void);
        on_fd(fd, |open| map(real, open, (address, len, protection, flags, fd, offset)))
            .map(|found| if found.is_null() { libc::MAP_FAILED } else { found })
    }
} }

/// Whether the kernel maps a file of the host. It does not if the program may change the file through the mapping, because
/// delegates and replicas would not see that, nor if bytes are in a replica. Delegates first write what they hold.
fn is_for_kernel(fd: c_int, protection: c_int, flags: c_int) -> bool {
    let may_change = flags & libc::MAP_TYPE != libc::MAP_PRIVATE && protection & libc::PROT_WRITE != 0;
    if may_change || table::is_weft(fd) {
        return false;
    }
    let written: Option<c_int> = on_fd(fd, |open| {
        open.write_back()?;
        Ok(c_int::from(open.is_redirected()?))
    });
    written.is_some_and(|result| result == 0)
}

type Request = (*mut c_void, size_t, c_int, c_int, c_int, off_t);

unsafe fn map(real: Map, open: &Arc<Open>, request: Request) -> Res<*mut c_void> {
    let (address, len, protection, flags, fd, offset) = request;
    if len == 0 || offset < 0 || !(offset as usize).is_multiple_of(PAGE) {
        return Err(libc::EINVAL.into());
    }
    if !matches!(flags & libc::MAP_TYPE, libc::MAP_PRIVATE | libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE) {
        return Err(libc::EINVAL.into());
    }
    open.is_opened()?;
    let access = open.flags() & libc::O_ACCMODE;
    if access == libc::O_WRONLY || access == libc::O_ACCMODE || open.is_directory() {
        return Err(if open.is_directory() { libc::ENODEV } else { libc::EACCES }.into());
    }
    let shared = flags & libc::MAP_TYPE != libc::MAP_PRIVATE;
    let writes_back = shared && protection & libc::PROT_WRITE != 0;
    if writes_back && open.flags() & libc::O_ACCMODE != libc::O_RDWR {
        return Err(libc::EACCES.into());
    }
    if writes_back && !config().mmap_writeback {
        return Err(libc::ENODEV.into());
    }
    let own = flags & !libc::MAP_TYPE | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let at = real(address, len, libc::PROT_READ | libc::PROT_WRITE, own, -1, 0);
    if at == libc::MAP_FAILED {
        return Err(errno::get().into());
    }
    let memory = std::slice::from_raw_parts_mut(at.cast::<u8>(), len);
    let mut done = 0;
    while done < len {
        match open.read_at(&mut [IoSliceMut::new(&mut memory[done..])], offset + done as i64) {
            Ok(0) => break,
            Ok(got) => done += got,
            Err(fail) => {
                libc::munmap(at, len);
                return Err(fail);
            }
        }
    }
    if writes_back {
        remember(at as usize, len, offset, fd, memory);
    }
    if protection != libc::PROT_READ | libc::PROT_WRITE {
        libc::mprotect(at, len, protection);
    }
    Ok(at)
}

/// Shared writable mapping, with a hash of each page from when it last matched the file.
struct Region {
    start: usize,
    len: usize,
    offset: i64,
    open: Arc<Open>,
    seen: Vec<u64>,
}

static REGIONS: Lock<Vec<Region>> = Lock::new(Vec::new());
static ANY: AtomicBool = AtomicBool::new(false);

/// Returns a hash that is good enough to detect a change (FNV over words).
fn digest(page: &[u8]) -> u64 {
    page.chunks(8).fold(0xcbf2_9ce4_8422_2325, |hash: u64, chunk| {
        let mut word = [0u8; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29)
    })
}

fn remember(start: usize, len: usize, offset: i64, fd: c_int, memory: &[u8]) {
    let Some(open) = table::get(fd) else { return };
    let seen = memory.chunks(PAGE).map(digest).collect();
    REGIONS.lock().push(Region { start, len, offset, open: Arc::clone(&open), seen });
    if !ANY.swap(true, Ordering::AcqRel) {
        // SAFETY: a function of this library, which is never unloaded.
        unsafe { libc::atexit(at_end) };
    }
}

extern "C" fn at_end() {
    let _ = inside(|| write_back(0, usize::MAX));
}

/// Writes the changed pages of all shared mappings in `[start, end)` to their files.
fn write_back(start: usize, end: usize) -> Res<()> {
    for region in REGIONS.lock().iter_mut() {
        let first = start.max(region.start);
        let last = end.min(region.start + region.len);
        if first >= last {
            continue;
        }
        // Bytes past the end of the file are not written, as with a real mapping.
        let size = region.open.file()?.size()? as i64;
        for page in (first - region.start) / PAGE..(last - region.start).div_ceil(PAGE) {
            let at = page * PAGE;
            let len = PAGE.min(region.len - at);
            // SAFETY: the program's mapping, which it has not unmapped yet.
            let memory = unsafe { std::slice::from_raw_parts((region.start + at) as *const u8, len) };
            let now = digest(memory);
            let place = region.offset + at as i64;
            let inside_file = usize::try_from(size - place).unwrap_or(0).min(len);
            if now != region.seen[page] && inside_file > 0 {
                region.open.write_at(&[IoSlice::new(&memory[..inside_file])], place)?;
                region.seen[page] = now;
            }
        }
    }
    Ok(())
}

hook! { [msync] (address: *mut c_void, len: size_t, _flags: c_int) -> c_int {
    if ANY.load(Ordering::Acquire) && !crate::guard::inside() {
        let start = address as usize;
        if let Err(fail) = inside(|| write_back(start, start.saturating_add(len))) {
            errno::set(fail.errno());
            return -1;
        }
    }
    None
} }

hook! { [mprotect] (_address: *mut c_void, _len: size_t, _protection: c_int) -> c_int {
    memory::forget();
    None
} }

hook! { [munmap] (address: *mut c_void, len: size_t) -> c_int {
    memory::forget();
    if ANY.load(Ordering::Acquire) && !crate::guard::inside() {
        let (start, end) = (address as usize, (address as usize).saturating_add(len));
        let _ = inside(|| write_back(start, end));
        // A partly unmapped region is dropped: partial unmapping of a shared file mapping is not supported.
        REGIONS.lock().retain(|region| region.start + region.len <= start || region.start >= end);
    }
    None
} }
