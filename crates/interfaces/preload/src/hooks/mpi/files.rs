//! Routines on whole files, and the initialization of MPI.

use super::abi::{MPI_ERR_OTHER, Mode, Routine};
use super::record::{self, HookedCall};
use super::{collective, hints};
use crate::trace::{self, Operation, Start};
use libc::{c_char, c_int, c_void};

/// Defines routines: `routine! { name(arguments) |real| { body } }`, where `real` is the next definition of the name.
/// Each is defined under its `MPI_` name and its `PMPI_` name, which Open MPI's Fortran bindings call.
macro_rules! routine {
    ($name:ident $arguments:tt |$real:ident| $body:block) => {
        routine! { @one "" $name $arguments |$real| $body }
        const _: () = {
            routine! { @one "P" $name $arguments |$real| $body }
        };
    };
    (@one $prefix:literal $name:ident ( $($arg:ident : $ty:ty),* ) |$real:ident| $body:block) => {
        #[cfg_attr(not(test), unsafe(export_name = concat!($prefix, stringify!($name))))]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
            // SAFETY: ends in its only zero byte.
            static REAL: Routine = Routine::new(unsafe {
                std::ffi::CStr::from_bytes_with_nul_unchecked(
                    concat!($prefix, stringify!($name), "\0").as_bytes(),
                )
            });
            let Some(found) = REAL.find() else { return MPI_ERR_OTHER };
            let $real = std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($ty),*) -> c_int>(found);
            $body
        }
    };
}
pub(super) use routine;

/// Returns the start of a call to record, and marks nested calls as part of it.
fn begin() -> Option<(Start, HookedCall)> {
    Some((trace::begin()?, HookedCall::enter()?))
}

routine! { MPI_Init(count: *mut c_int, arguments: *mut c_void) |real| {
    collective::before_init();
    let result = real(count, arguments);
    if result == 0 && trace::is_on() {
        record::record_rank();
    }
    result
} }

routine! { MPI_Init_thread(count: *mut c_int, arguments: *mut c_void, wanted: c_int, given: *mut c_int) |real| {
    collective::before_init();
    let result = real(count, arguments, wanted, given);
    if result == 0 && trace::is_on() {
        record::record_rank();
    }
    result
} }

routine! { MPI_File_open(comm: usize, name: *const c_char, mode: c_int, info: usize, file: *mut usize) |real| {
    let start = begin();
    let result = hints::opened(name, info, file, |info| real(comm, name, mode, info, file));
    if let (Some((start, _)), 0, false) = (&start, result, file.is_null()) {
        record::opened(*start, name, Mode::new(mode, real as *const c_void), *file);
    }
    result
} }

routine! { MPI_File_close(file: *mut usize) |real| {
    let handle = if file.is_null() { 0 } else { *file };
    let start = begin();
    let was = start.as_ref().and_then(|_| record::closing(handle));
    let result = real(file);
    if result == 0 {
        hints::closed(handle);
        if let (Some((start, _)), Some(file)) = (&start, was) {
            record::whole(*start, file, Operation::Close, true, 0);
        }
    }
    result
} }

routine! { MPI_File_sync(file: usize) |real| {
    let start = begin();
    let result = real(file);
    if let (Some((start, _)), 0) = (&start, result) && let Some(file) = record::of(file) {
        record::whole(*start, file, Operation::Sync, true, 0);
    }
    result
} }

routine! { MPI_File_set_size(file: usize, size: i64) |real| {
    let start = begin();
    let result = real(file, size);
    if let (Some((start, _)), 0) = (&start, result) && let Some(file) = record::of(file) {
        record::whole(*start, file, Operation::Truncate, true, size);
    }
    result
} }

routine! { MPI_File_delete(name: *const c_char, info: usize) |real| {
    let start = begin();
    // Determine the real path while the file still exists.
    let file = start.as_ref().and_then(|_| record::file_at(name));
    let result = real(name, info);
    if let (Some((start, _)), Some(file), 0) = (&start, file, result) {
        record::whole(*start, file, Operation::Unlink, false, 0);
    }
    result
} }
