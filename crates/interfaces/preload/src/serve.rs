//! Conversion from internal results (`Result`, Weft paths) to those of C (`errno`, -1, null).

use crate::errno::{self, Fail, Res};
use crate::open::{Open, settle};
use crate::route::{self, Route, WeftPath};
use crate::{guard, pathname, sys, table};
use std::ffi::{CString, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// C result with a value that represents failure.
pub trait Outcome: Sized {
    /// Returns the value that represents failure; `errno` contains the reason.
    fn failed() -> Self;
    /// Whether the real call failed because the name does not exist.
    fn is_missing(&self) -> bool;
}

macro_rules! negative_is_failure {
    ($($ty:ty),*) => { $(impl Outcome for $ty {
        fn failed() -> Self { -1 }
        #[inline]
        fn is_missing(&self) -> bool { *self == -1 && errno::get() == libc::ENOENT }
    })* };
}
negative_is_failure!(i32, i64, isize);

impl<T> Outcome for *mut T {
    fn failed() -> Self {
        std::ptr::null_mut()
    }
    #[inline]
    fn is_missing(&self) -> bool {
        self.is_null() && errno::get() == libc::ENOENT
    }
}

/// Runs `work` inside the client: its own calls go to libc, a panic becomes `EIO`, and success does not change `errno`.
pub fn inside<T>(work: impl FnOnce() -> Res<T>) -> Res<T> {
    let before = errno::get();
    let guard = guard::enter();
    let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        sys::complain("internal error; the call fails with EIO");
        Err(Fail::Errno(libc::EIO))
    });
    drop(guard);
    errno::set(before);
    result
}

/// Runs `work` inside the client and returns its C result.
pub fn answer<T: Outcome>(work: impl FnOnce() -> Res<T>) -> T {
    match inside(work) {
        Ok(value) => value,
        Err(fail) => {
            errno::set(fail.report());
            T::failed()
        }
    }
}

/// Serves a call that moves bytes of `fd` or its position, if that is a registered descriptor. In a call of MPI-IO the
/// bytes may move later.
#[inline]
pub fn on_transfer<T: Outcome>(fd: c_int, work: impl FnOnce(&Arc<Open>) -> Res<T>) -> Option<T> {
    if !table::is_ours(fd) {
        return None;
    }
    on_registered(fd, work)
}

/// Serves another call on the contents of `fd` if that is a registered descriptor.
#[inline]
pub fn on_fd<T: Outcome>(fd: c_int, work: impl FnOnce(&Arc<Open>) -> Res<T>) -> Option<T> {
    on_transfer(fd, |open| settle().and_then(|()| work(open)))
}

fn on_registered<T: Outcome>(fd: c_int, work: impl FnOnce(&Arc<Open>) -> Res<T>) -> Option<T> {
    if guard::inside() {
        return None;
    }
    let open = table::get(fd)?;
    Some(answer(|| work(&open)))
}

/// Serves a call that concerns names, attributes or locks of `fd` if that is a descriptor of Weft. The kernel serves
/// those of other files.
#[inline]
pub fn on_weft_fd<T: Outcome>(fd: c_int, work: impl FnOnce(&Arc<Open>) -> Res<T>) -> Option<T> {
    if !table::is_weft(fd) {
        return None;
    }
    on_registered(fd, work)
}

/// Serves a call that concerns the bytes of `fd` if that is a registered descriptor, for functions that return the error
/// number.
pub fn on_fd_number(fd: c_int, work: impl FnOnce(&Open) -> Res<()>) -> Option<c_int> {
    if !table::is_ours(fd) || guard::inside() {
        return None;
    }
    let open = table::get(fd)?;
    Some(match inside(|| settle().and_then(|()| work(&open))) {
        Ok(()) => 0,
        Err(fail) => fail.report(),
    })
}

/// Serves a path that leads into Weft. `None` means that the caller must call the real function, with the path in
/// `kept` if there is one.
pub fn on_way<T: Outcome>(
    mut way: Route,
    kept: &mut Option<CString>,
    mut work: impl FnMut(&WeftPath) -> Res<T>,
) -> Option<T> {
    // As many links out of the mount and back as the kernel would follow.
    for _ in 0..40 {
        let weft_path = match way {
            Route::Foreign => return None,
            Route::Moved(path) => {
                *kept = Some(path);
                return None;
            }
            Route::Ours(weft_path) => weft_path,
            Route::Failed(number) => {
                errno::set(number);
                return Some(T::failed());
            }
        };
        match inside(|| work(&weft_path)) {
            Ok(value) => return Some(value),
            Err(Fail::Moved(mut path)) => {
                if weft_path.must_dir && !pathname::wants_directory(&path) {
                    path.push(b'/');
                }
                let path = sys::c(&path);
                // SAFETY: a valid C string.
                way = unsafe { route::route(libc::AT_FDCWD, path.as_ptr()) };
                if matches!(way, Route::Foreign) {
                    way = Route::Moved(path);
                }
            }
            Err(Fail::Kernel) => return None,
            Err(fail) => {
                errno::set(fail.report());
                return Some(T::failed());
            }
        }
    }
    errno::set(libc::ELOOP);
    Some(T::failed())
}
