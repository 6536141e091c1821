//! Calls on buffered streams, hooked only for the tracer. Streams over Weft files are served by the hooks of their
//! descriptors.

use crate::trace::streams::Kind;
use crate::trace::{self, posix, streams};
use libc::{FILE, c_char, c_int, c_long, c_void, off_t, size_t, ssize_t};

macro_rules! stream_hook {
    ([$($name:ident),+] $args:tt -> $ret:ty, $file:ident, $kind:expr) => {
        $( stream_hook! { @one $name $args -> $ret, $file, $kind } )+
    };
    (@one $name:ident ($($arg:ident : $ty:ty),*) -> $ret:ty, $file:ident, $kind:expr) => {
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            let watch = trace::begin().and_then(|start| streams::before(start, $file, $kind));
            let done = real!($name: fn($($ty),*) -> $ret)($($arg),*);
            if let Some(watch) = watch {
                streams::moved(watch, $file, $kind);
            }
            done
        }
    };
}

stream_hook! { [fread, fread_unlocked] (buf: *mut c_void, size: size_t, count: size_t, file: *mut FILE) -> size_t,
file, Kind::Reads }
stream_hook! { [__fread_chk, __fread_unlocked_chk]
(buf: *mut c_void, buf_len: size_t, size: size_t, count: size_t, file: *mut FILE) -> size_t,
file, Kind::Reads }
stream_hook! { [fgets, fgets_unlocked] (buf: *mut c_char, capacity: c_int, file: *mut FILE) -> *mut c_char,
file, Kind::Reads }
stream_hook! { [getline] (line: *mut *mut c_char, capacity: *mut size_t, file: *mut FILE) -> ssize_t,
file, Kind::Reads }
stream_hook! { [getdelim, __getdelim]
(line: *mut *mut c_char, capacity: *mut size_t, end: c_int, file: *mut FILE) -> ssize_t,
file, Kind::Reads }
stream_hook! { [fwrite, fwrite_unlocked]
(buf: *const c_void, size: size_t, count: size_t, file: *mut FILE) -> size_t,
file, Kind::Writes }
stream_hook! { [fputs, fputs_unlocked] (text: *const c_char, file: *mut FILE) -> c_int,
file, Kind::Writes }
stream_hook! { [fflush] (file: *mut FILE) -> c_int, file, Kind::Moves }
stream_hook! { [fseek] (file: *mut FILE, offset: c_long, whence: c_int) -> c_int, file, Kind::Moves }
stream_hook! { [fseeko, fseeko64] (file: *mut FILE, offset: off_t, whence: c_int) -> c_int, file, Kind::Moves }
stream_hook! { [fsetpos, fsetpos64] (file: *mut FILE, place: *const libc::fpos_t) -> c_int, file, Kind::Moves }
stream_hook! { [rewind] (file: *mut FILE) -> (), file, Kind::Moves }

hook! { [fclose] (file: *mut FILE) -> c_int { None } trace from {
    trace::begin().and_then(|start| {
        streams::closing(start, file);
        let fd = streams::descriptor(file)?;
        Some((trace::begin()?, fd, posix::closing(fd)))
    })
} |(start, fd, was), _done| { posix::closed(start, fd, was) } }
