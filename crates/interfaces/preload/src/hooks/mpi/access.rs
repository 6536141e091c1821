//! Routines that move bytes: blocking, nonblocking and split, at an offset, at the individual pointer or at the shared
//! one.

use super::abi::{MPI_ERR_OTHER, Routine};
use super::collective::before_ordered;
use super::files::routine;
use super::is_watched;
use super::pieces::gathered;
use super::record::{self, Access, AccessPosition, HookedCall, OwnStatus};
use crate::trace::{self, Operation};
use libc::{c_int, c_void};

/// Runs `call`, as a collective call if `collective`.
unsafe fn perform(collective: bool, call: impl FnOnce() -> c_int) -> c_int {
    if collective { trace::collective_call(call) } else { call() }
}

/// Runs a blocking access.
#[cold]
unsafe fn blocking(access: Access, status: *mut c_void, call: impl FnOnce(*mut c_void) -> c_int) -> c_int {
    let Some(_within) = HookedCall::enter() else { return call(status) };
    if access.is_ordered() {
        before_ordered(access.file);
    }
    let Some(traced) = access.begin() else { return gathered(&access, || call(status)) };
    let mut own: OwnStatus = [0; 16];
    let reads = access.op == Operation::Read;
    let status = if reads && record::is_ignored(status) { own.as_mut_ptr().cast() } else { status };
    let result = perform(access.collective, || gathered(&access, || call(status)));
    if result == 0 {
        if reads { traced.ended_with(status) } else { traced.ended() }
    }
    result
}

/// Runs the start of a nonblocking access.
#[cold]
unsafe fn nonblocking(access: Access, call: impl FnOnce() -> c_int) -> c_int {
    let Some(_within) = HookedCall::enter() else { return call() };
    let Some(traced) = access.begin() else { return gathered(&access, call) };
    let result = perform(access.collective, || gathered(&access, call));
    if result == 0 {
        traced.ended();
    }
    result
}

/// Runs the first half of a split access.
#[cold]
unsafe fn split(access: Access, call: impl FnOnce() -> c_int) -> c_int {
    let Some(_within) = HookedCall::enter() else { return call() };
    if access.is_ordered() {
        before_ordered(access.file);
    }
    let Some(traced) = access.begin() else { return gathered(&access, call) };
    let result = perform(true, || gathered(&access, call));
    if result == 0 {
        traced.split();
    }
    result
}

/// Runs the second half of a split access.
#[cold]
unsafe fn split_end(file: usize, status: *mut c_void, call: impl FnOnce(*mut c_void) -> c_int) -> c_int {
    let Some(begin_access) = record::split_ended(file) else { return call(status) };
    let mut own: OwnStatus = [0; 16];
    let status = if record::is_ignored(status) { own.as_mut_ptr().cast() } else { status };
    let result = perform(true, || call(status));
    if result == 0 {
        begin_access.ended_with(status);
    }
    result
}

/// Defines the two forms of a routine, under their `MPI_` and `PMPI_` names: with a count of `int`, and the large-count
/// form (`_c`), which calls the other form if the MPI lacks it. The brackets contain the arguments before the count and
/// after the type; `memory` is the buffer among them.
macro_rules! access {
    ($name:ident $large:ident [$($before:ident : $bt:ty),*] [$($after:ident : $at:ty)?] $run:ident
        $op:ident $collective:literal $memory:ident $place:expr) => {
        access! { @form $name c_int, file datatype, $($before: $bt),*; $($after: $at)?; $run,
            $op $collective $memory $place;
            |_real| return MPI_ERR_OTHER }
        access! { @form $large i64, file datatype, $($before: $bt),*; $($after: $at)?; $run,
            $op $collective $memory $place;
            |count| match c_int::try_from(count) {
                Ok(count) => return $name(file, $($before,)* count, datatype $(, $after)?),
                Err(_) => return MPI_ERR_OTHER,
            } }
    };
    (@form $name:ident $($rest:tt)*) => {
        access! { @one "" $name $($rest)* }
        const _: () = {
            access! { @one "P" $name $($rest)* }
        };
    };
    (@one $prefix:literal $name:ident $count:ty, $file:ident $datatype:ident, $($before:ident : $bt:ty),*; $($after:ident : $at:ty)?; $run:ident,
        $op:ident $collective:literal $memory:ident $place:expr; |$kept:ident| $missing:expr) => {
        #[cfg_attr(not(test), unsafe(export_name = concat!($prefix, stringify!($name))))]
        pub unsafe extern "C" fn $name(
            $file: usize, $($before: $bt,)* count: $count, $datatype: usize $(, $after: $at)?
        ) -> c_int {
            // SAFETY: ends in its only zero byte.
            static REAL: Routine = Routine::new(unsafe {
                std::ffi::CStr::from_bytes_with_nul_unchecked(concat!($prefix, stringify!($name), "\0").as_bytes())
            });
            let Some(real) = REAL.find() else {
                let $kept = count;
                $missing
            };
            type Real = unsafe extern "C" fn(usize, $($bt,)* $count, usize $(, $at)?) -> c_int;
            let real = std::mem::transmute::<*mut c_void, Real>(real);
            if !is_watched() {
                return real($file, $($before,)* count, $datatype $(, $after)?);
            }
            let place = $place;
            #[allow(clippy::useless_conversion)] // One of the two forms has it wide.
            let access = Access {
                file: $file,
                op: Operation::$op,
                collective: $collective,
                place,
                count: i64::from(count),
                datatype: $datatype,
                memory: $memory.addr(),
            };
            access! { @run $run access real $file [$($before),*] count $datatype $($after)? }
        }
    };
    (@run blocking $access:ident $real:ident $file:ident [$($before:ident),*] $count:ident $datatype:ident
        $status:ident) => {
        blocking($access, $status, |status| $real($file, $($before,)* $count, $datatype, status))
    };
    (@run nonblocking $access:ident $real:ident $file:ident [$($before:ident),*] $count:ident $datatype:ident
        $request:ident) => {
        nonblocking($access, || $real($file, $($before,)* $count, $datatype, $request))
    };
    (@run split $access:ident $real:ident $file:ident [$($before:ident),*] $count:ident $datatype:ident) => {
        split($access, || $real($file, $($before,)* $count, $datatype))
    };
}

/// Defines routines at the individual or the shared pointer.
macro_rules! at_pointer {
    ($($name:ident $large:ident $run:ident $op:ident $collective:literal $place:ident;)*) => { $(
        at_pointer! { @$run $name $large $op $collective $place }
    )* };
    (@blocking $name:ident $large:ident $op:ident $collective:literal $place:ident) => {
        access! { $name $large [buffer: *mut c_void] [status: *mut c_void] blocking
            $op $collective buffer AccessPosition::$place }
    };
    (@nonblocking $name:ident $large:ident $op:ident $collective:literal $place:ident) => {
        access! { $name $large [buffer: *mut c_void] [request: *mut c_void] nonblocking
            $op $collective buffer AccessPosition::$place }
    };
    (@split $name:ident $large:ident $op:ident $collective:literal $place:ident) => {
        access! { $name $large [buffer: *mut c_void] [] split $op $collective buffer AccessPosition::$place }
    };
}

/// Defines routines with an explicit offset.
macro_rules! at_offset {
    ($($name:ident $large:ident $run:ident $op:ident $collective:literal;)*) => { $(
        at_offset! { @$run $name $large $op $collective }
    )* };
    (@blocking $name:ident $large:ident $op:ident $collective:literal) => {
        access! { $name $large [offset: i64, buffer: *mut c_void] [status: *mut c_void] blocking
            $op $collective buffer AccessPosition::At(offset) }
    };
    (@nonblocking $name:ident $large:ident $op:ident $collective:literal) => {
        access! { $name $large [offset: i64, buffer: *mut c_void] [request: *mut c_void] nonblocking
            $op $collective buffer AccessPosition::At(offset) }
    };
    (@split $name:ident $large:ident $op:ident $collective:literal) => {
        access! { $name $large [offset: i64, buffer: *mut c_void] [] split $op $collective buffer AccessPosition::At(offset) }
    };
}

at_pointer! {
    MPI_File_read MPI_File_read_c blocking Read false Own;
    MPI_File_write MPI_File_write_c blocking Write false Own;
    MPI_File_read_all MPI_File_read_all_c blocking Read true Own;
    MPI_File_write_all MPI_File_write_all_c blocking Write true Own;
    MPI_File_read_shared MPI_File_read_shared_c blocking Read false Shared;
    MPI_File_write_shared MPI_File_write_shared_c blocking Write false Shared;
    MPI_File_read_ordered MPI_File_read_ordered_c blocking Read true Shared;
    MPI_File_write_ordered MPI_File_write_ordered_c blocking Write true Shared;
    MPI_File_iread MPI_File_iread_c nonblocking Read false Own;
    MPI_File_iwrite MPI_File_iwrite_c nonblocking Write false Own;
    MPI_File_iread_all MPI_File_iread_all_c nonblocking Read true Own;
    MPI_File_iwrite_all MPI_File_iwrite_all_c nonblocking Write true Own;
    MPI_File_iread_shared MPI_File_iread_shared_c nonblocking Read false Shared;
    MPI_File_iwrite_shared MPI_File_iwrite_shared_c nonblocking Write false Shared;
    MPI_File_read_all_begin MPI_File_read_all_begin_c split Read true Own;
    MPI_File_write_all_begin MPI_File_write_all_begin_c split Write true Own;
    MPI_File_read_ordered_begin MPI_File_read_ordered_begin_c split Read true Shared;
    MPI_File_write_ordered_begin MPI_File_write_ordered_begin_c split Write true Shared;
}

at_offset! {
    MPI_File_read_at MPI_File_read_at_c blocking Read false;
    MPI_File_write_at MPI_File_write_at_c blocking Write false;
    MPI_File_read_at_all MPI_File_read_at_all_c blocking Read true;
    MPI_File_write_at_all MPI_File_write_at_all_c blocking Write true;
    MPI_File_iread_at MPI_File_iread_at_c nonblocking Read false;
    MPI_File_iwrite_at MPI_File_iwrite_at_c nonblocking Write false;
    MPI_File_iread_at_all MPI_File_iread_at_all_c nonblocking Read true;
    MPI_File_iwrite_at_all MPI_File_iwrite_at_all_c nonblocking Write true;
    MPI_File_read_at_all_begin MPI_File_read_at_all_begin_c split Read true;
    MPI_File_write_at_all_begin MPI_File_write_at_all_begin_c split Write true;
}

/// Defines routines that end a split access.
macro_rules! ends {
    ($($name:ident;)*) => { $(
        routine! { $name(file: usize, buffer: *mut c_void, status: *mut c_void) |real| {
            if !is_watched() {
                return real(file, buffer, status);
            }
            split_end(file, status, |status| real(file, buffer, status))
        } }
    )* };
}

ends! {
    MPI_File_read_all_end;
    MPI_File_write_all_end;
    MPI_File_read_at_all_end;
    MPI_File_write_at_all_end;
    MPI_File_read_ordered_end;
    MPI_File_write_ordered_end;
}
