//! Memory mappings of Weft files: private memory with the file's bytes. The kernel maps files of the host that delegates
//! serve, except shared writable ones.
//!
//! A private or read-only mapping is a snapshot. A mapping that may change the file is the kernel's, through the private
//! mount, and so are all others while there is one. With `WEFT_MMAP_SHARED=writeback` it is memory, and changed pages are
//! written back at `msync` and `munmap` and at the
//! end of the process; other processes see the changes only after that.

use crate::config::config;
use crate::errno::{self, Res};
use crate::lock::Lock;
use crate::memory;
use crate::open::Open;
use crate::private::{self, mapped};
use crate::serve::{inside, on_fd};
use crate::{sys, table};
use libc::{c_int, c_void, off_t, size_t};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const PAGE: usize = 4096;
/// What to do without a private mount.
const WITHOUT_MOUNT: &str = "run the program on a mount (`weft mount DIR`), or set WEFT_MMAP_SHARED=writeback if no \
                             other process uses the memory";
/// Remedy for a file that delegates or a replica serve.
const WITH_OTHERS: &str = "run the program without them, or set WEFT_MMAP_SHARED=writeback";

type Map = unsafe extern "C" fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void;

hook! { [mmap, mmap64]
    (address: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void {
    if flags & libc::MAP_FIXED != 0 {
        memory::forget();
    }
    let is_kernels =
        flags & libc::MAP_ANONYMOUS != 0 || !table::is_ours(fd) || is_for_kernel(fd, protection, flags);
    if is_kernels && flags & libc::MAP_FIXED != 0 && mapped::any() && !crate::guard::inside() {
        let real: Map = real!(mmap: fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void);
        let at = real(address, len, protection, flags, fd, offset);
        if at != libc::MAP_FAILED {
            note(|| mapped::remove(at as usize, len));
        }
        Some(at)
    } else if is_kernels {
        None
    } else {
        let real: Map = real!(mmap: fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void);
        on_fd(fd, |open| map(real, open, (address, len, protection, flags, fd, offset)))
            .map(|found| if found.is_null() { libc::MAP_FAILED } else { found })
    }
} }

/// Updates what is known of mappings, inside the client.
fn note(update: impl FnOnce()) {
    let _ = inside(|| {
        update();
        Ok(())
    });
}

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
    // The checks of Linux, in its order.
    if !(offset as usize).is_multiple_of(PAGE) {
        return Err(libc::EINVAL.into());
    }
    open.is_opened()?;
    if len == 0 || offset < 0 {
        return Err(libc::EINVAL.into());
    }
    if !matches!(flags & libc::MAP_TYPE, libc::MAP_PRIVATE | libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE) {
        return Err(libc::EINVAL.into());
    }
    let access = open.flags() & libc::O_ACCMODE;
    if access == libc::O_WRONLY || access == libc::O_ACCMODE || open.is_directory() {
        return Err(if open.is_directory() { libc::ENODEV } else { libc::EACCES }.into());
    }
    let shared = flags & libc::MAP_TYPE != libc::MAP_PRIVATE;
    let writes_back = shared && protection & libc::PROT_WRITE != 0;
    if writes_back && open.flags() & libc::O_ACCMODE != libc::O_RDWR {
        return Err(libc::EACCES.into());
    }
    // A mapping of a descriptor for writing may become writable later, and must show writes.
    let may_change = shared && open.flags() & libc::O_ACCMODE == libc::O_RDWR;
    if !config().mmap_writeback
        && let Some(at) = map_by_kernel(real, open, request, may_change)?
    {
        return Ok(at);
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

/// Maps the file through the private mount, if the program may change it through the mapping or if it is mapped there
/// already. Returns `None` if a snapshot serves.
unsafe fn map_by_kernel(
    real: Map,
    open: &Open,
    request: Request,
    may_change: bool,
) -> Res<Option<*mut c_void>> {
    let (address, len, protection, flags, _, offset) = request;
    let file = open.file()?;
    let is_writable = flags & libc::MAP_TYPE != libc::MAP_PRIVATE && protection & libc::PROT_WRITE != 0;
    if open.is_host() || file.number().is_some() || file.is_redirected() {
        // Delegates and replicas would not see the changes.
        return match is_writable {
            true => Err(private::refusal(
                &open.full_path(),
                "shared mapping",
                "delegates or a replica serve the file",
                WITH_OTHERS,
            )),
            false => Ok(None),
        };
    }
    let inode = file.inode()?;
    let mapped = match mapped::of(inode) {
        Some(mapped) => mapped,
        None if !may_change => return Ok(None),
        None => match mapped::begin(inode, &open.token().ok_or(libc::EBADF)?) {
            Ok(mapped) => mapped,
            // Also a mapping that the program only reads must follow writes by the descriptor.
            Err(why) => {
                return Err(private::refusal(&open.full_path(), "shared mapping", &why, WITHOUT_MOUNT));
            }
        },
    };
    // The kernel learns the size, which another program may have changed.
    let _ = sys::fstatat(mapped.fd(), c"", libc::AT_EMPTY_PATH);
    let at = real(address, len, protection, flags, mapped.fd(), offset);
    if at == libc::MAP_FAILED {
        return match errno::get() {
            // Before Linux 6.6, such files cannot be mapped shared.
            libc::ENODEV if !may_change => Ok(None),
            libc::ENODEV => Err(private::refusal(
                &open.full_path(),
                "shared mapping",
                "Linux older than 6.6",
                WITHOUT_MOUNT,
            )),
            number => Err(number.into()),
        };
    }
    mapped::insert(at as usize, len, mapped);
    Ok(Some(at))
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

hook! { [mremap]
    (from: *mut c_void, from_len: size_t, len: size_t, flags: c_int, to: *mut c_void) -> *mut c_void {
    memory::forget();
    if mapped::any() && !crate::guard::inside() {
        let real = real!(mremap: fn(*mut c_void, size_t, size_t, c_int, *mut c_void) -> *mut c_void);
        let at = real(from, from_len, len, flags, to);
        if at != libc::MAP_FAILED {
            note(|| mapped::moved(from as usize, from_len, at as usize, len));
        }
        Some(at)
    } else {
        None
    }
} }

hook! { [munmap] (address: *mut c_void, len: size_t) -> c_int {
    memory::forget();
    if ANY.load(Ordering::Acquire) && !crate::guard::inside() {
        let (start, end) = (address as usize, (address as usize).saturating_add(len));
        let _ = inside(|| write_back(start, end));
        // A partly unmapped region is dropped: partial unmapping of a shared file mapping is not supported.
        REGIONS.lock().retain(|region| region.start + region.len <= start || region.start >= end);
    }
    if !mapped::any() || crate::guard::inside() {
        return real!(munmap: fn(*mut c_void, size_t) -> c_int)(address, len);
    }
    // Before the addresses are free: another thread may map at them at once. The kernel refuses other requests.
    if (address as usize).is_multiple_of(PAGE) && len != 0 {
        note(|| mapped::remove(address as usize, len));
    }
    Some(real!(munmap: fn(*mut c_void, size_t) -> c_int)(address, len))
} }
