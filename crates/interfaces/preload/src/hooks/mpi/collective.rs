//! Collective calls on Weft files without an exchange of data between ranks.
//!
//! ROMIO's two-phase I/O sends the bytes of a collective call to a few ranks, which write them. That helps file systems
//! that lock ranges or are slow for unaligned requests, but the exchange itself costs: ranks that wait spin, and where
//! they outnumber the processors, each exchange takes milliseconds. Hints make each rank of ROMIO write and read its own
//! pieces instead. `docs/measurements/collective.md` has the figures.

use super::abi::{info_handle, is_null_info, mpi};
use super::hints::{InfoSet, info_value};
use crate::config;
use libc::{c_int, c_void};
use std::ffi::CStr;

type InfoNew = unsafe extern "C" fn(*mut c_void) -> c_int;
type InfoDup = unsafe extern "C" fn(usize, *mut c_void) -> c_int;

/// Hints of ROMIO for two-phase I/O and data sieving.
const KEYS: [&CStr; 4] = [c"romio_cb_write", c"romio_cb_read", c"romio_ds_write", c"romio_ds_read"];

/// How the ranks of a collective call transfer its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Collective {
    /// Each rank its own pieces.
    Direct,
    /// As the MPI library decides.
    Library,
}

impl Collective {
    fn parse(text: &[u8]) -> Option<Self> {
        match text {
            b"direct" => Some(Self::Direct),
            b"library" => Some(Self::Library),
            _ => None,
        }
    }

    /// Returns the setting of the program, else of the environment. All ranks must come to the same result, because
    /// two-phase I/O needs all of them.
    unsafe fn of(info: usize) -> Self {
        let of_program = match is_null_info(info) {
            true => None,
            false => info_value(info, c"weft_collective").and_then(|text| Self::parse(text.as_bytes())),
        };
        let of_environment = || config::variable("WEFT_COLLECTIVE").and_then(Self::parse);
        of_program.or_else(of_environment).unwrap_or(Self::Library)
    }
}

/// Calls `open`, for a Weft file, with the hints of `info` and those of the setting. Hints that the program or the file
/// of `ROMIO_HINTS` gives stay as they are.
pub unsafe fn with_hints(info: usize, open: impl FnOnce(usize) -> c_int) -> c_int {
    let has_hint_file = config::variable("ROMIO_HINTS").is_some_and(|path| !path.is_empty());
    if has_hint_file || Collective::of(info) == Collective::Library {
        return open(info);
    }
    let mut word = 0usize;
    let at = (&raw mut word).cast::<c_void>();
    let Some(set) = mpi(c"PMPI_Info_set") else { return open(info) };
    let Some(handle) = copy(info, at, set) else { return open(info) };
    let set_hint = std::mem::transmute::<*mut c_void, InfoSet>(set);
    for key in KEYS {
        if info_value(handle, key).is_none() {
            set_hint(handle, key.as_ptr(), c"disable".as_ptr());
        }
    }
    let result = open(handle);
    if let Some(free) = mpi(c"PMPI_Info_free") {
        std::mem::transmute::<*mut c_void, InfoNew>(free)(at);
    }
    result
}

/// Copies `info`, which may be null, to `at`. Returns its handle. `function` is one of the MPI.
unsafe fn copy(info: usize, at: *mut c_void, function: *mut c_void) -> Option<usize> {
    let result = match is_null_info(info) {
        true => std::mem::transmute::<*mut c_void, InfoNew>(mpi(c"PMPI_Info_create")?)(at),
        false => std::mem::transmute::<*mut c_void, InfoDup>(mpi(c"PMPI_Info_dup")?)(info, at),
    };
    (result == 0).then(|| info_handle(at, function))
}
