//! `syscall(2)` by number, for calls that programs make that way because older C libraries had no function for them.

use libc::{c_int, c_long, c_uint, off_t};

/// Number of `fchmodat2`, the same on all architectures. The libc crate does not define it for ARM.
const SYS_FCHMODAT2: c_long = 452;

hook! { [syscall] (number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
    serve(number, [a, b, c, d, e, f])
} }

/// Serves a system call; `None` if it is not for Weft. A failed call returns -1 and sets `errno`.
pub unsafe fn serve(number: c_long, arg: [usize; 6]) -> Option<c_long> {
    let (number, arg) = modern(number, arg);
    by_number(number, arg).or_else(|| by_descriptor(number, arg)).or_else(|| attributes_or_watch(number, arg))
}

/// Returns the call with a directory argument that does the same as an older call.
#[cfg(target_arch = "x86_64")]
fn modern(number: c_long, arg: [usize; 6]) -> (c_long, [usize; 6]) {
    const HERE: usize = libc::AT_FDCWD as usize;
    const LINK: usize = libc::AT_SYMLINK_NOFOLLOW as usize;
    const CREAT: usize = (libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC) as usize;
    let [a, b, c, d, ..] = arg;
    match number {
        libc::SYS_open => (libc::SYS_openat, [HERE, a, b, c, 0, 0]),
        libc::SYS_creat => (libc::SYS_openat, [HERE, a, CREAT, b, 0, 0]),
        libc::SYS_stat => (libc::SYS_newfstatat, [HERE, a, b, 0, 0, 0]),
        libc::SYS_lstat => (libc::SYS_newfstatat, [HERE, a, b, LINK, 0, 0]),
        libc::SYS_access => (libc::SYS_faccessat, [HERE, a, b, 0, 0, 0]),
        libc::SYS_mkdir => (libc::SYS_mkdirat, [HERE, a, b, 0, 0, 0]),
        libc::SYS_rmdir => (libc::SYS_unlinkat, [HERE, a, libc::AT_REMOVEDIR as usize, 0, 0, 0]),
        libc::SYS_unlink => (libc::SYS_unlinkat, [HERE, a, 0, 0, 0, 0]),
        libc::SYS_rename => (libc::SYS_renameat2, [HERE, a, HERE, b, 0, 0]),
        libc::SYS_renameat => (libc::SYS_renameat2, [a, b, c, d, 0, 0]),
        libc::SYS_link => (libc::SYS_linkat, [HERE, a, HERE, b, 0, 0]),
        libc::SYS_symlink => (libc::SYS_symlinkat, [a, HERE, b, 0, 0, 0]),
        libc::SYS_readlink => (libc::SYS_readlinkat, [HERE, a, b, c, 0, 0]),
        libc::SYS_mknod => (libc::SYS_mknodat, [HERE, a, b, c, 0, 0]),
        libc::SYS_chmod => (libc::SYS_fchmodat, [HERE, a, b, 0, 0, 0]),
        libc::SYS_chown => (libc::SYS_fchownat, [HERE, a, b, c, 0, 0]),
        libc::SYS_lchown => (libc::SYS_fchownat, [HERE, a, b, c, LINK, 0]),
        _ => (number, arg),
    }
}

/// Other architectures have no older calls.
#[cfg(not(target_arch = "x86_64"))]
fn modern(number: c_long, arg: [usize; 6]) -> (c_long, [usize; 6]) {
    (number, arg)
}

/// Serves calls on descriptors of ours, on programs and on the working directory.
unsafe fn by_descriptor(number: c_long, arg: [usize; 6]) -> Option<c_long> {
    let [a, b, c, d, e, f] = arg;
    if !crate::config::is_ready() {
        return None;
    }
    let is_ours = |fd: usize| crate::table::is_ours(fd as c_int);
    Some(match number {
        libc::SYS_dup if is_ours(a) => c_long::from(super::descriptors::dup(a as c_int)),
        libc::SYS_dup3 if is_ours(a) || is_ours(b) => {
            c_long::from(super::descriptors::dup3(a as c_int, b as c_int, c as c_int))
        }
        #[cfg(target_arch = "x86_64")]
        libc::SYS_dup2 if is_ours(a) || is_ours(b) => {
            c_long::from(super::descriptors::dup2(a as c_int, b as c_int))
        }
        libc::SYS_fcntl if is_ours(a) => c_long::from(super::descriptors::fcntl(a as c_int, b as c_int, c)),
        libc::SYS_flock if is_ours(a) => c_long::from(super::locks::flock(a as c_int, b as c_int)),
        libc::SYS_fchmod if is_ours(a) => c_long::from(super::attrs::fchmod(a as c_int, b as libc::mode_t)),
        libc::SYS_fchown if is_ours(a) => c_long::from(super::attrs::fchown(a as c_int, b as _, c as _)),
        libc::SYS_fstatfs if is_ours(a) => c_long::from(super::attrs::fstatfs(a as c_int, b as *mut _)),
        libc::SYS_fchdir if is_ours(a) => c_long::from(super::cwd::fchdir(a as c_int)),
        libc::SYS_mmap if d & libc::MAP_ANONYMOUS as usize == 0 && is_ours(e) => {
            super::maps::mmap(a as *mut _, b, c as c_int, d as c_int, e as c_int, f as off_t) as c_long
        }
        libc::SYS_chdir if leads_to_us(libc::AT_FDCWD as usize, a) => {
            c_long::from(super::cwd::chdir(a as *const _))
        }
        libc::SYS_getcwd if crate::route::cwd().is_some() => match super::cwd::getcwd(a as *mut _, b) {
            text if text.is_null() => -1,
            text => libc::strlen(text) as c_long + 1,
        },
        libc::SYS_statfs if leads_to_us(libc::AT_FDCWD as usize, a) => {
            c_long::from(super::attrs::statfs(a as *const _, b as *mut _))
        }
        libc::SYS_execveat => c_long::from(super::process::execveat(
            a as c_int,
            b as *const _,
            c as *const _,
            d as *const _,
            e as c_int,
        )),
        libc::SYS_ioctl if is_ours(a) => c_long::from(super::data::ioctl(a as c_int, b as _, c as *mut _)),
        libc::SYS_fadvise64 if is_ours(a) => {
            match super::data::posix_fadvise(a as c_int, b as off_t, c as off_t, d as c_int) {
                0 => 0,
                number => {
                    crate::errno::set(number);
                    -1
                }
            }
        }
        libc::SYS_readahead if is_ours(a) => super::data::readahead(a as c_int, b as _, c) as c_long,
        libc::SYS_syncfs if is_ours(a) => c_long::from(super::data::syncfs(a as c_int)),
        libc::SYS_sync_file_range if is_ours(a) => {
            c_long::from(super::data::sync_file_range(a as c_int, b as off_t, c as off_t, d as c_uint))
        }
        libc::SYS_fgetxattr if is_ours(a) => {
            super::xattrs::fgetxattr(a as c_int, b as *const _, c as *mut _, d) as c_long
        }
        libc::SYS_fsetxattr if is_ours(a) => {
            c_long::from(super::xattrs::fsetxattr(a as c_int, b as *const _, c as *const _, d, e as c_int))
        }
        libc::SYS_flistxattr if is_ours(a) => super::xattrs::flistxattr(a as c_int, b as *mut _, c) as c_long,
        libc::SYS_fremovexattr if is_ours(a) => {
            c_long::from(super::xattrs::fremovexattr(a as c_int, b as *const _))
        }
        libc::SYS_execve => c_long::from(super::process::execve(a as *const _, b as *const _, c as *const _)),
        _ => return None,
    })
}

/// Serves calls by path on extended attributes, calls that set times and that newer architectures do not have, and
/// watches.
unsafe fn attributes_or_watch(number: c_long, [a, b, c, d, e, _]: [usize; 6]) -> Option<c_long> {
    if !crate::config::is_ready() {
        return None;
    }
    const HERE: usize = libc::AT_FDCWD as usize;
    Some(match number {
        libc::SYS_getxattr if leads_to_us(HERE, a) => {
            super::xattrs::getxattr(a as _, b as _, c as _, d) as c_long
        }
        libc::SYS_lgetxattr if leads_to_us(HERE, a) => {
            super::xattrs::lgetxattr(a as _, b as _, c as _, d) as c_long
        }
        libc::SYS_setxattr if leads_to_us(HERE, a) => {
            c_long::from(super::xattrs::setxattr(a as _, b as _, c as _, d, e as c_int))
        }
        libc::SYS_lsetxattr if leads_to_us(HERE, a) => {
            c_long::from(super::xattrs::lsetxattr(a as _, b as _, c as _, d, e as c_int))
        }
        libc::SYS_listxattr if leads_to_us(HERE, a) => super::xattrs::listxattr(a as _, b as _, c) as c_long,
        libc::SYS_llistxattr if leads_to_us(HERE, a) => {
            super::xattrs::llistxattr(a as _, b as _, c) as c_long
        }
        libc::SYS_removexattr if leads_to_us(HERE, a) => {
            c_long::from(super::xattrs::removexattr(a as _, b as _))
        }
        libc::SYS_lremovexattr if leads_to_us(HERE, a) => {
            c_long::from(super::xattrs::lremovexattr(a as _, b as _))
        }
        #[cfg(target_arch = "x86_64")]
        libc::SYS_utime if leads_to_us(HERE, a) => c_long::from(super::attrs::utime(a as _, b as _)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_utimes if leads_to_us(HERE, a) => c_long::from(super::attrs::utimes(a as _, b as _)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_futimesat if leads_to_us(a, b) => {
            c_long::from(super::attrs::futimesat(a as c_int, b as _, c as _))
        }
        libc::SYS_inotify_add_watch if leads_to_us(HERE, b) => {
            c_long::from(super::attrs::inotify_add_watch(a as c_int, b as _, c as u32))
        }
        _ => return None,
    })
}

unsafe fn by_number(number: c_long, arg: [usize; 6]) -> Option<c_long> {
    let [a, b, c, d, e, f] = arg;
    if !crate::config::is_ready() {
        return None;
    }
    // The tracer also records foreign files.
    let ours = crate::table::is_ours(a as c_int) || crate::trace::is_on();
    Some(match number {
        libc::SYS_getdents64 if crate::table::is_ours(a as c_int) => {
            super::directories::getdents64(a as c_int, b as *mut _, c) as c_long
        }
        libc::SYS_copy_file_range => super::transfer::copy_file_range(
            a as c_int,
            b as *mut off_t,
            c as c_int,
            d as *mut off_t,
            e,
            f as c_uint,
        ) as c_long,
        libc::SYS_renameat2 => c_long::from(super::names::renameat2(
            a as c_int,
            b as *const _,
            c as c_int,
            d as *const _,
            e as c_uint,
        )),
        libc::SYS_statx => {
            c_long::from(super::attrs::statx(a as c_int, b as *const _, c as c_int, d as c_uint, e as *mut _))
        }
        libc::SYS_openat => {
            c_long::from(super::names::openat(a as c_int, b as *const _, c as c_int, d as libc::mode_t))
        }
        libc::SYS_openat2 => {
            c_long::from(super::openat2::openat2(a as c_int, b as *const _, c as *const _, d)?)
        }
        libc::SYS_mkdirat if leads_to_us(a, b) => {
            c_long::from(super::names::mkdirat(a as c_int, b as *const _, c as libc::mode_t))
        }
        libc::SYS_unlinkat if leads_to_us(a, b) => {
            c_long::from(super::names::unlinkat(a as c_int, b as *const _, c as c_int))
        }
        libc::SYS_symlinkat if leads_to_us(b, c) => {
            c_long::from(super::names::symlinkat(a as *const _, b as c_int, c as *const _))
        }
        libc::SYS_linkat if leads_to_us(a, b) || leads_to_us(c, d) => c_long::from(super::names::linkat(
            a as c_int,
            b as *const _,
            c as c_int,
            d as *const _,
            e as c_int,
        )),
        libc::SYS_readlinkat if leads_to_us(a, b) => {
            super::names::readlinkat(a as c_int, b as *const _, c as *mut _, d) as c_long
        }
        libc::SYS_truncate if leads_to_us(libc::AT_FDCWD as usize, a) => {
            c_long::from(super::names::truncate(a as *const _, b as off_t))
        }
        libc::SYS_newfstatat if leads_to_us(a, b) => {
            c_long::from(super::attrs::fstatat(a as c_int, b as *const _, c as *mut _, d as c_int))
        }
        libc::SYS_faccessat if leads_to_us(a, b) => {
            c_long::from(super::attrs::faccessat(a as c_int, b as *const _, c as c_int, 0))
        }
        libc::SYS_faccessat2 if leads_to_us(a, b) => {
            c_long::from(super::attrs::faccessat(a as c_int, b as *const _, c as c_int, d as c_int))
        }
        // The C library may not know the call, which the kernel serves for files of the host.
        SYS_FCHMODAT2 if leads_to_weft(a, b) => {
            c_long::from(super::attrs::fchmodat(a as c_int, b as *const _, c as libc::mode_t, d as c_int))
        }
        libc::SYS_fchmodat if leads_to_us(a, b) => {
            c_long::from(super::attrs::fchmodat(a as c_int, b as *const _, c as libc::mode_t, 0))
        }
        libc::SYS_fchownat if leads_to_us(a, b) => {
            c_long::from(super::attrs::fchownat(a as c_int, b as *const _, c as _, d as _, e as c_int))
        }
        libc::SYS_utimensat if b == 0 && d == 0 && leads_to_us(a, b) => {
            c_long::from(super::attrs::futimens(a as c_int, c as *const _))
        }
        libc::SYS_utimensat if leads_to_us(a, b) => {
            c_long::from(super::attrs::utimensat(a as c_int, b as *const _, c as *const _, d as c_int))
        }
        libc::SYS_mknodat if leads_to_us(a, b) => c_long::from(super::names::mknodat(
            a as c_int,
            b as *const _,
            c as libc::mode_t,
            d as libc::dev_t,
        )),
        libc::SYS_name_to_handle_at if leads_to_us(a, b) => c_long::from(super::names::name_to_handle_at(
            a as c_int,
            b as *const _,
            c as *mut _,
            d as *mut _,
            e as c_int,
        )),
        number if super::identity::is_change(number) => super::identity::by_number(number, a, b, c),
        libc::SYS_close if ours => c_long::from(super::descriptors::close(a as c_int)),
        libc::SYS_close_range => {
            c_long::from(super::descriptors::close_range(a as c_uint, b as c_uint, c as c_int))
        }
        libc::SYS_read if ours => super::data::read(a as c_int, b as *mut _, c) as c_long,
        libc::SYS_write if ours => super::data::write(a as c_int, b as *const _, c) as c_long,
        libc::SYS_pread64 if ours => super::data::pread64(a as c_int, b as *mut _, c, d as off_t) as c_long,
        libc::SYS_pwrite64 if ours => {
            super::data::pwrite64(a as c_int, b as *const _, c, d as off_t) as c_long
        }
        libc::SYS_readv if ours => super::data::readv(a as c_int, b as *const _, c as c_int) as c_long,
        libc::SYS_writev if ours => super::data::writev(a as c_int, b as *const _, c as c_int) as c_long,
        libc::SYS_sendfile => super::transfer::sendfile(a as c_int, b as c_int, c as *mut off_t, d) as c_long,
        libc::SYS_splice => {
            super::splices::splice(a as c_int, b as *mut off_t, c as c_int, d as *mut off_t, e, f as c_uint)
                as c_long
        }
        libc::SYS_fcntl if ours => c_long::from(super::descriptors::fcntl(a as c_int, b as c_int, c)),
        libc::SYS_flock if ours => c_long::from(super::locks::flock(a as c_int, b as c_int)),
        libc::SYS_dup if ours => c_long::from(super::descriptors::dup(a as c_int)),
        libc::SYS_dup3 if ours || crate::table::is_ours(b as c_int) => {
            c_long::from(super::descriptors::dup3(a as c_int, b as c_int, c as c_int))
        }
        // The kernel takes the offset of these calls in two parts, of which the second is zero here.
        libc::SYS_preadv2 if ours => {
            super::data::preadv2(a as c_int, b as *const _, c as c_int, d as off_t, f as c_int) as c_long
        }
        libc::SYS_pwritev2 if ours => {
            super::data::pwritev2(a as c_int, b as *const _, c as c_int, d as off_t, f as c_int) as c_long
        }
        libc::SYS_preadv if ours => {
            super::data::preadv(a as c_int, b as *const _, c as c_int, d as off_t) as c_long
        }
        libc::SYS_pwritev if ours => {
            super::data::pwritev(a as c_int, b as *const _, c as c_int, d as off_t) as c_long
        }
        libc::SYS_fallocate if ours => {
            c_long::from(super::data::fallocate(a as c_int, b as c_int, c as off_t, d as off_t))
        }
        libc::SYS_lseek if ours => super::data::lseek(a as c_int, b as off_t, c as c_int),
        libc::SYS_ftruncate if ours => c_long::from(super::data::ftruncate(a as c_int, b as off_t)),
        libc::SYS_fsync if ours => c_long::from(super::data::fsync(a as c_int)),
        libc::SYS_fdatasync if ours => c_long::from(super::data::fdatasync(a as c_int)),
        libc::SYS_io_submit => {
            let done = super::libaio::submit(a as _, b as c_long, c as *const *mut _);
            if done < 0 {
                crate::errno::set(-done as c_int);
                return Some(-1);
            }
            done
        }
        libc::SYS_fstat if ours => c_long::from(super::attrs::fstat(a as c_int, b as *mut _)),
        _ => return None,
    })
}

/// Whether a name, or a descriptor without a name, may belong to Weft.
unsafe fn leads_to_weft(dir: usize, path: usize) -> bool {
    let (dir, path) = (dir as c_int, path as *const libc::c_char);
    if path.is_null() || super::is_empty(path) {
        crate::table::is_weft(dir)
    } else {
        !matches!(crate::route::route(dir, path), crate::route::Route::Foreign)
    }
}

/// Whether a name, or a descriptor without a name, may belong to Weft, or to a file that delegates serve.
unsafe fn leads_to_us(dir: usize, path: usize) -> bool {
    let (dir, path) = (dir as c_int, path as *const libc::c_char);
    let empty = path.is_null() || super::is_empty(path);
    if empty {
        crate::table::is_ours(dir)
    } else if crate::over::is_on() {
        true
    } else {
        !matches!(crate::route::route(dir, path), crate::route::Route::Foreign)
    }
}
