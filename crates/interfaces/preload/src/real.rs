//! The next definition of each libc function, and the macros that define hooks.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Looks up the next definition of `name` after this library, and stores it. Before the library is ready, calls that
/// allocators make during their initialization get a system call instead: `dlsym` allocates in some C libraries, and
/// always when it fails.
#[cold]
pub fn resolve(slot: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    if !crate::config::is_ready()
        && let Some(early) = crate::early::find(name)
    {
        return early;
    }
    // SAFETY: a plain look-up by a valid C string.
    let mut found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if found.is_null() {
        found = missing as *mut c_void;
    }
    slot.store(found, Ordering::Release);
    found
}

/// Replaces a function that this C library lacks.
unsafe extern "C" fn missing() -> isize {
    crate::errno::set(libc::ENOSYS);
    -1
}

/// Returns the real function `name` with the given type.
macro_rules! real {
    ($name:ident : fn($($ty:ty),* $(,)?) -> $ret:ty) => {{
        static SLOT: std::sync::atomic::AtomicPtr<std::ffi::c_void> =
            std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());
        let mut found = SLOT.load(std::sync::atomic::Ordering::Acquire);
        if found.is_null() {
            found = $crate::real::resolve(
                &SLOT,
                // SAFETY: ends in its only zero byte.
                unsafe { std::ffi::CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes()) },
            );
        }
        // SAFETY: the C library's function of this name has this type.
        unsafe { std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($ty),*) -> $ret>(found) }
    }};
}

/// Defines hooks: `hook! { [names] (arguments) -> type { body } }`. The body returns `Some(result)` if it serves the
/// call, and `None` to call the real function with the same arguments.
///
/// With `trace |start, done| { after }`, `after` reports to the tracer a call that began at `start` and returned
/// `done`. With `trace from begin |start, done| …`, the expression `begin` is evaluated before the call.
macro_rules! hook {
    ([$($name:ident),+ $(,)?] $args:tt -> $ret:ty $body:block) => {
        $( hook_one! { $name $args -> $ret $body } )+
    };
    ([$($name:ident),+ $(,)?] $args:tt -> $ret:ty $body:block trace |$start:pat_param, $done:ident| $after:block) => {
        $( traced_one! { $name $args -> $ret, hook_one, ($body), $crate::trace::begin(), |$start, $done| $after } )+
    };
    ([$($name:ident),+ $(,)?] $args:tt -> $ret:ty $body:block
        trace from $begin:block |$start:pat_param, $done:ident| $after:block) => {
        $( traced_one! { $name $args -> $ret, hook_one, ($body), $begin, |$start, $done| $after } )+
    };
}

/// Defines a traced hook around an untraced one.
macro_rules! traced_one {
    ($name:ident ( $($arg:ident : $ty:ty),* $(,)? ) -> $ret:ty, $kind:ident, ($($how:tt)*), $begin:expr,
        |$start:pat_param, $done:ident| $after:block) => {
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            $kind! { @plain $name ($($arg: $ty),*) -> $ret, $($how)* }
            let watch = $begin;
            let $done = untraced($($arg),*);
            if let Some($start) = watch {
                $after
            }
            $done
        }
    };
}

macro_rules! hook_one {
    (@plain $name:ident ( $($arg:ident : $ty:ty),* ) -> $ret:ty, $body:block) => {
        #[inline(always)]
        unsafe fn untraced($($arg: $ty),*) -> $ret {
            let served: Option<$ret> = $body;
            match served {
                Some(result) => result,
                None => real!($name: fn($($ty),*) -> $ret)($($arg),*),
            }
        }
    };
    ($name:ident ( $($arg:ident : $ty:ty),* $(,)? ) -> $ret:ty $body:block) => {
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            let served: Option<$ret> = $body;
            match served {
                Some(result) => result,
                None => real!($name: fn($($ty),*) -> $ret)($($arg),*),
            }
        }
    };
}

/// Defines hooks that take a path: `path_hook! { [names] (arguments) -> type, (dirfd, path) |weft_path| { body } }`. The
/// body serves a Weft path.
///
/// If a symbolic link leads out of the mount, the real function is called with the path that the link leads to. If the
/// real function finds nothing because a foreign symbolic link leads into the mount, the body serves that path.
///
/// With `over { result }`, this result replaces that of the real function if directories of the host are served through
/// delegates. With `, if condition |open| { body }`, a call for which the condition holds refers to the descriptor `dirfd`
/// itself.
/// `trace` works as in `hook!`.
macro_rules! path_hook {
    ([$($name:ident),+ $(,)?] $args:tt -> $ret:ty, ($dir:expr, $path:ident) |$weft_path:ident| $body:block
        $(over $over:block)? $(, if $empty:expr, |$open:pat_param| $fd_body:block)?) => {
        path_hook! { @plain [$($name),+] $args -> $ret,
            (($dir, $path) |$weft_path| $body $(over $over)? $(, if $empty, |$open| $fd_body)?) }
    };
    ([$($name:ident),+ $(,)?] $args:tt -> $ret:ty, ($dir:expr, $path:ident) |$weft_path:ident| $body:block
        $(over $over:block)? $(, if $empty:expr, |$open:pat_param| $fd_body:block)?
        trace |$start:pat_param, $done:ident| $after:block) => {
        path_hook! { @traced [$($name),+] $args -> $ret,
            (($dir, $path) |$weft_path| $body $(over $over)? $(, if $empty, |$open| $fd_body)?),
            |$start, $done| $after }
    };
    (@plain [$($name:ident),+] $args:tt -> $ret:ty, $how:tt) => {
        $( path_hook_one! { @whole $name $args -> $ret, $how } )+
    };
    (@traced [$($name:ident),+] $args:tt -> $ret:ty, $how:tt, |$start:pat_param, $done:ident| $after:block) => {
        $( traced_one! { $name $args -> $ret, path_hook_one, $how, $crate::trace::begin(),
            |$start, $done| $after } )+
    };
}

macro_rules! path_hook_one {
    (@plain $name:ident ( $($arg:ident : $ty:ty),* ) -> $ret:ty,
        ($dir:expr, $path:ident) |$weft_path:ident| $body:block
        $(over $over:block)? $(, if $empty:expr, |$open:pat_param| $fd_body:block)?) => {
        #[inline(always)]
        unsafe fn untraced($($arg: $ty),*) -> $ret {
            $(
                if $empty && let Some(result) = $crate::serve::on_weft_fd($dir, |$open| $fd_body) {
                    return result;
                }
            )?
            let mut kept = None;
            let $path = match $crate::route::route($dir, $path) {
                $crate::route::Route::Foreign => match $crate::route::through_symlink($dir, $path) {
                    None => $path,
                    Some(way) => match $crate::serve::on_way(way, &mut kept, |$weft_path| $body) {
                        Some(result) => return result,
                        None => $path,
                    },
                },
                way => match $crate::serve::on_way(way, &mut kept, |$weft_path| $body) {
                    Some(result) => return result,
                    None => kept.as_ref().map_or($path, |moved| moved.as_ptr()),
                },
            };
            #[allow(unused_labels)]
            let result: $ret = 'result: {
                $(
                    if $crate::over::is_on() {
                        let over: $ret = $over;
                        break 'result over;
                    }
                )?
                real!($name: fn($($ty),*) -> $ret)($($arg),*)
            };
            if $crate::serve::Outcome::is_missing(&result)
                && let Some(way) = $crate::route::follow_foreign($dir, $path)
                && let Some(result) = $crate::serve::on_way(way, &mut kept, |$weft_path| $body)
            {
                return result;
            }
            result
        }
    };
    (@whole $name:ident ( $($arg:ident : $ty:ty),* $(,)? ) -> $ret:ty, ($($how:tt)*)) => {
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            path_hook_one! { @plain $name ($($arg: $ty),*) -> $ret, $($how)* }
            untraced($($arg),*)
        }
    };
}
