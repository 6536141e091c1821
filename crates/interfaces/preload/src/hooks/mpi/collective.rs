//! Collective calls on Weft files, and on files that delegates serve, without an exchange of data between ranks.
//!
//! ROMIO's two-phase I/O sends the bytes of a collective call to a few ranks, which write them. That helps file systems
//! that lock ranges or are slow for unaligned requests, but the exchange itself costs: ranks that wait spin, and where
//! they outnumber the processors, each exchange takes milliseconds. Hints make each rank of ROMIO write and read its own
//! pieces instead. With delegates that is the default. `docs/measurements/collective.md` has the figures.

use super::abi::{MPI_ERR_OTHER, Routine, info_handle, is_null_info, is_open_mpi, mpi};
use super::files::routine;
use super::hints::{InfoSet, info_value};
use super::watch;
use crate::backend::has_delegates;
use crate::config;
use crate::lock::Lock;
use libc::{c_char, c_int, c_void};
use std::collections::BTreeMap;
use std::ffi::CStr;

type InfoNew = unsafe extern "C" fn(*mut c_void) -> c_int;
type InfoDup = unsafe extern "C" fn(usize, *mut c_void) -> c_int;
type SetInfo = unsafe extern "C" fn(usize, usize) -> c_int;
type Extent = unsafe extern "C" fn(usize, *mut i64, *mut i64) -> c_int;

/// Hints of ROMIO for two-phase I/O.
const TWO_PHASE: [&CStr; 2] = [c"romio_cb_write", c"romio_cb_read"];
/// Hints of ROMIO for data sieving.
const SIEVING: [&CStr; 2] = [c"romio_ds_write", c"romio_ds_read"];

/// State of a file whose ranks transfer their own pieces.
struct Direct {
    /// Hints that this library has set.
    keys: Vec<&'static CStr>,
    /// Whether two-phase I/O is on again, because the program uses the shared pointer in the order of ranks.
    is_ordered: bool,
    /// Whether data sieving is on again, because of the view.
    sieves: bool,
}

// Such files, by handle.
static DIRECT: Lock<BTreeMap<usize, Direct>> = Lock::new(BTreeMap::new());

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

    /// Returns the setting of the program, else of the environment, else the default, with which delegates assemble the
    /// pieces of all ranks. All ranks must come to the same result, because
    /// two-phase I/O needs all of them.
    unsafe fn of(info: usize) -> Self {
        let of_program = match is_null_info(info) {
            true => None,
            false => info_value(info, c"weft_collective").and_then(|text| Self::parse(text.as_bytes())),
        };
        let of_environment = || config::variable("WEFT_COLLECTIVE").and_then(Self::parse);
        let default = || if has_delegates() { Self::Direct } else { Self::Library };
        of_program.or_else(of_environment).unwrap_or_else(default)
    }
}

/// Selects the module of Open MPI's own MPI-IO that lets each rank transfer its own pieces, if delegates assemble them. It
/// has no such hint, so the choice holds for all files of the program; a setting of the user has precedence.
pub unsafe fn before_init() {
    const MODULE: &CStr = c"OMPI_MCA_fcoll";
    let of_environment = config::variable("WEFT_COLLECTIVE").and_then(Collective::parse);
    if has_delegates() && of_environment != Some(Collective::Library) && is_open_mpi() {
        libc::setenv(MODULE.as_ptr(), c"individual".as_ptr(), 0);
    }
}

/// Calls `open`, for a file of Weft or of delegates, with the hints of `info` and those of the setting. Hints that the
/// program or the file of `ROMIO_HINTS` gives stay as they are. `open` stores the handle of the file in `file`.
pub unsafe fn with_hints(info: usize, file: *const usize, open: impl FnOnce(usize) -> c_int) -> c_int {
    let has_hint_file = config::variable("ROMIO_HINTS").is_some_and(|path| !path.is_empty());
    if has_hint_file || Collective::of(info) == Collective::Library {
        return open(info);
    }
    let is_free = |key: &&'static CStr| is_null_info(info) || info_value(info, key).is_none();
    let keys: Vec<_> = TWO_PHASE.into_iter().chain(SIEVING).filter(is_free).collect();
    let result = with_values(info, &keys, c"disable", open);
    if result == 0 && !file.is_null() {
        DIRECT.lock().insert(*file, Direct { keys, is_ordered: false, sieves: false });
        watch();
    }
    result
}

/// Forgets a file that was closed.
pub fn closed(file: usize) {
    DIRECT.lock().remove(&file);
}

/// Prepares a file for accesses at the shared pointer in the order of ranks. Without two-phase I/O, ROMIO (to 4.3 at least)
/// lets a rank move the pointer again before all ranks have taken their part of the previous access. All ranks call this.
pub unsafe fn before_ordered(file: usize) {
    static SET_INFO: Routine = Routine::new(c"PMPI_File_set_info");
    let keys: Vec<_> = {
        let mut files = DIRECT.lock();
        let Some(direct) = files.get_mut(&file) else { return };
        if std::mem::replace(&mut direct.is_ordered, true) {
            return;
        }
        TWO_PHASE.into_iter().filter(|key| direct.keys.contains(key)).collect()
    };
    let Some(set_info) = SET_INFO.find() else { return };
    let set_info = std::mem::transmute::<*mut c_void, SetInfo>(set_info);
    with_values(0, &keys, c"automatic", |info| set_info(file, info));
}

// A view. Without data sieving, ROMIO (to 4.3 at least) writes and reads at wrong offsets if the lower bound of the type
// lies behind its first byte; such views keep data sieving.
routine! { MPI_File_set_view(file: usize, at: i64, unit: usize, view: usize, format: *const c_char, info: usize) |real| {
    let sieves = begins_before_its_bound(view);
    // The lock is not held during the collective call.
    let keys: Option<Vec<_>> = DIRECT.lock().get_mut(&file).filter(|direct| direct.sieves != sieves).map(|direct| {
        direct.sieves = sieves;
        SIEVING.into_iter().filter(|key| direct.keys.contains(key)).collect()
    });
    let Some(keys) = keys else { return real(file, at, unit, view, format, info) };
    let value = if sieves { c"enable" } else { c"disable" };
    with_values(info, &keys, value, |info| real(file, at, unit, view, format, info))
} }

/// Whether the first byte of a datatype lies before its lower bound.
unsafe fn begins_before_its_bound(datatype: usize) -> bool {
    static EXTENT: Routine = Routine::new(c"PMPI_Type_get_extent_x");
    static TRUE_EXTENT: Routine = Routine::new(c"PMPI_Type_get_true_extent_x");
    let lower = |routine: &Routine| {
        let ask = std::mem::transmute::<*mut c_void, Extent>(routine.find()?);
        let (mut lower, mut extent) = (0, 0);
        (ask(datatype, &mut lower, &mut extent) == 0).then_some(lower)
    };
    lower(&TRUE_EXTENT).zip(lower(&EXTENT)).is_some_and(|(first, bound)| first < bound)
}

/// Calls `call` with the hints of `info`, which may be null, and with `keys` set to `value`.
unsafe fn with_values(info: usize, keys: &[&CStr], value: &CStr, call: impl FnOnce(usize) -> c_int) -> c_int {
    let mut word = 0usize;
    let at = (&raw mut word).cast::<c_void>();
    let Some(set) = mpi(c"PMPI_Info_set") else { return call(info) };
    let Some(handle) = copy(info, at, set) else { return call(info) };
    let set_hint = std::mem::transmute::<*mut c_void, InfoSet>(set);
    for key in keys {
        set_hint(handle, key.as_ptr(), value.as_ptr());
    }
    let result = call(handle);
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
