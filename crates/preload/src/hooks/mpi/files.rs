//! Routines about files as a whole, and the start of MPI.

use super::abi::{MPI_ERR_OTHER, Routine, mode_create};
use super::hints;
use super::record::{self, Within};
use crate::trace::{self, Operation};
use libc::{c_char, c_int, c_void};

/// Defines routines: `routine! { name(arguments) |real| { body } }`, where `real` is the next of that name.
macro_rules! routine {
    ($name:ident ( $($arg:ident : $ty:ty),* ) |$real:ident| $body:block) => {
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
            // SAFETY: ends in its only zero byte.
            static REAL: Routine = Routine::new(unsafe {
                std::ffi::CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes())
            });
            let Some($real) = REAL.find() else { return MPI_ERR_OTHER };
            #[allow(unused_variables)] // Some have no other use for it than the call.
            let routine = $real;
            let $real = std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($ty),*) -> c_int>($real);
            $body
        }
    };
}
pub(super) use routine;

routine! { MPI_Init(count: *mut c_int, arguments: *mut c_void) |real| {
    let result = real(count, arguments);
    if result == 0 && trace::is_on() {
        record::tell_rank();
    }
    result
} }

routine! { MPI_Init_thread(count: *mut c_int, arguments: *mut c_void, wanted: c_int, given: *mut c_int) |real| {
    let result = real(count, arguments, wanted, given);
    if result == 0 && trace::is_on() {
        record::tell_rank();
    }
    result
} }

// Opens a file; one of ours is made with the layout that `info` asks for.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn MPI_File_open(
    comm: usize,
    name: *const c_char,
    mode: c_int,
    info: usize,
    file: *mut usize,
) -> c_int {
    type Open = unsafe extern "C" fn(usize, *const c_char, c_int, usize, *mut usize) -> c_int;
    static REAL: Routine = Routine::new(c"MPI_File_open");
    let Some(routine) = REAL.find() else { return MPI_ERR_OTHER };
    let real = std::mem::transmute::<*mut c_void, Open>(routine);
    let start = trace::begin();
    let within = start.and_then(|_| Within::enter());
    let result = hints::opened(name, info, file, || real(comm, name, mode, info, file));
    if let (Some(start), Some(_), 0, false) = (start, &within, result, file.is_null()) {
        record::opened(start, name, mode & mode_create(routine) != 0, *file);
    }
    result
}

routine! { MPI_File_close(file: *mut usize) |real| {
    let handle = if file.is_null() { 0 } else { *file };
    let start = trace::begin();
    let was = start.and_then(|_| record::closing(handle));
    let result = real(file);
    if result == 0 {
        hints::closed(handle);
        if let (Some(start), Some(file)) = (start, was) {
            record::whole(start, file, Operation::Close, true, 0);
        }
    }
    result
} }

routine! { MPI_File_sync(file: usize) |real| {
    let start = trace::begin();
    let result = real(file);
    if let (Some(start), 0) = (start, result) && let Some(file) = record::of(file) {
        record::whole(start, file, Operation::Sync, true, 0);
    }
    result
} }

routine! { MPI_File_set_size(file: usize, size: i64) |real| {
    let start = trace::begin();
    let result = real(file, size);
    if let (Some(start), 0) = (start, result) && let Some(file) = record::of(file) {
        record::whole(start, file, Operation::Truncate, true, size);
    }
    result
} }

routine! { MPI_File_delete(name: *const c_char, info: usize) |real| {
    let start = trace::begin();
    // Its real path can be told only while it is there.
    let file = start.and_then(|_| record::file_at(name));
    let result = real(name, info);
    if let (Some(start), Some(file), 0) = (start, file, result) {
        record::whole(start, file, Operation::Unlink, false, 0);
    }
    result
} }
