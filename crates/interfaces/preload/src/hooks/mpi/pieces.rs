//! Pieces of non-contiguous accesses, which go to the delegates in few requests.

use super::abi::{self, Routine};
use super::record::Access;
use crate::backend::has_delegates;
use crate::guard;
use crate::open::{Memory, gather};
use crate::trace::Operation;
use libc::{c_int, c_void};

type Extent = unsafe extern "C" fn(usize, *mut i64, *mut i64) -> c_int;
type CallHandler = unsafe extern "C" fn(usize, c_int) -> c_int;

/// Runs an access, and moves its pieces through delegates together. An error of these becomes the result of the call, by
/// the error handler of the file.
pub unsafe fn gathered(access: &Access, call: impl FnOnce() -> c_int) -> c_int {
    if !has_delegates() || guard::inside() {
        return call();
    }
    let Some(memory) = memory(access) else { return call() };
    let (result, moved) = gather(memory, call);
    match moved {
        Err(fail) if result == 0 => failed(access.file, fail.errno()),
        _ => result,
    }
}

/// Returns the memory of an access; `None` if MPI does not tell, or if it is empty.
unsafe fn memory(access: &Access) -> Option<Memory> {
    static EXTENT: Routine = Routine::new(c"PMPI_Type_get_extent_x");
    static TRUE_EXTENT: Routine = Routine::new(c"PMPI_Type_get_true_extent_x");
    if access.count <= 0 {
        return None;
    }
    let len = access.unit()?.checked_mul(access.count as u64)?;
    let ask = |routine: &Routine| {
        let ask = std::mem::transmute::<*mut c_void, Extent>(routine.find()?);
        let (mut lower, mut extent) = (0, -1);
        (ask(access.datatype, &mut lower, &mut extent) == 0).then_some((lower, extent))
    };
    let (first, span) = ask(&TRUE_EXTENT)?;
    let (_, step) = ask(&EXTENT)?;
    if len == 0 || span <= 0 || step < 0 {
        return None;
    }
    let start = access.memory.checked_add_signed(isize::try_from(first).ok()?)?;
    let steps = step.checked_mul(access.count - 1)?;
    let end = start.checked_add(usize::try_from(steps.checked_add(span)?).ok()?)?;
    Some(Memory { range: start..end, len: len as usize, reads: access.op == Operation::Read })
}

/// Reports an error number of the operating system as the result of a call on a file.
unsafe fn failed(file: usize, errno: i32) -> c_int {
    static CALL_HANDLER: Routine = Routine::new(c"PMPI_File_call_errhandler");
    let Some(call_handler) = CALL_HANDLER.find() else { return abi::MPI_ERR_OTHER };
    let class = abi::error_class(errno, call_handler);
    std::mem::transmute::<*mut c_void, CallHandler>(call_handler)(file, class);
    class
}
