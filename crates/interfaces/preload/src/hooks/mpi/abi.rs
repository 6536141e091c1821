//! The MPI of this process: its functions, and the differences between the ABIs.

use libc::{c_int, c_void};
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Returns a function of this process's MPI: the next definition after this library, or one in a privately loaded
/// library (mpi4py).
pub unsafe fn mpi(name: &CStr) -> Option<*mut c_void> {
    let found = libc::dlsym(libc::RTLD_NEXT, name.as_ptr());
    if !found.is_null() {
        return Some(found);
    }
    let mut search = Search { name, found: std::ptr::null_mut() };
    libc::dl_iterate_phdr(Some(look_into), (&raw mut search).cast());
    (!search.found.is_null()).then_some(search.found)
}

/// Routine of MPI by name, looked up once.
pub struct Routine {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Routine {
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Returns the routine: the next definition with this name, which may belong to another tool, or else the one under
    /// the name that only MPI itself has.
    #[inline(always)]
    pub unsafe fn find(&self) -> Option<*mut c_void> {
        let found = self.found.load(Ordering::Acquire);
        if found.is_null() { self.look() } else { Some(found) }
    }

    #[cold]
    unsafe fn look(&self) -> Option<*mut c_void> {
        let own = [b"P", self.name.to_bytes()].concat();
        let found = mpi(self.name).or_else(|| mpi(&std::ffi::CString::new(own).ok()?))?;
        self.found.store(found, Ordering::Release);
        Some(found)
    }
}

struct Search<'a> {
    name: &'a CStr,
    found: *mut c_void,
}

unsafe extern "C" fn look_into(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    let search = &mut *data.cast::<Search<'_>>();
    if (*info).dlpi_name.is_null() {
        return 0;
    }
    let path = CStr::from_ptr((*info).dlpi_name);
    let file = crate::pathname::split(path.to_bytes()).1;
    if !file.starts_with(b"libmpi") && !file.starts_with(b"libpmpi") {
        return 0;
    }
    let library = libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
    if library.is_null() {
        return 0;
    }
    let found = libc::dlsym(library, search.name.as_ptr());
    libc::dlclose(library);
    if found.is_null() {
        return 0;
    }
    search.found = found;
    1
}

/// Error class of MPI for unsupported operations. Used only if no MPI is found, which cannot happen in a program that
/// calls MPI.
pub const MPI_ERR_OTHER: c_int = 15;

/// Whether `info` is `MPI_INFO_NULL` in any of the ABIs: querying it is an error.
pub unsafe fn is_null_info(info: usize) -> bool {
    // MPICH's int and the standard ABI's small number; Open MPI's is the address of a symbol.
    const MPICH: u32 = 0x1c00_0000;
    const STANDARD: usize = 0x130;
    info as u32 == MPICH
        || info == STANDARD
        || info == 0
        // A program may contain the library's object in its own data (a copy relocation), which then takes precedence.
        || libc::dlsym(libc::RTLD_DEFAULT, c"ompi_mpi_info_null".as_ptr()) as usize == info
        || mpi(c"ompi_mpi_info_null").is_some_and(|null| null as usize == info)
}

/// Returns the info object at `at`: an `int` in MPICH's ABI, a pointer in the others.
pub unsafe fn info_handle(at: *const c_void, function: *const c_void) -> usize {
    let is_int = !is_open_mpi() && !is_standard(function);
    if is_int { *at.cast::<u32>() as usize } else { *at.cast::<usize>() }
}

/// Whether `routine` belongs to an MPI with the standard ABI.
pub unsafe fn is_standard(routine: *const c_void) -> bool {
    file_of(routine).starts_with(b"libmpi_abi")
}

/// Whether the process's MPI is Open MPI.
pub unsafe fn is_open_mpi() -> bool {
    has_symbol(c"ompi_mpi_info_null")
}

/// Returns the error class for an error number of the operating system. `routine` is one of the MPI.
pub unsafe fn error_class(errno: i32, routine: *const c_void) -> c_int {
    let is_mpich = !is_standard(routine) && !is_open_mpi();
    let [io, no_space, quota, read_only] = if is_mpich { [32, 36, 39, 40] } else { [35, 41, 44, 45] };
    match errno {
        libc::ENOSPC => no_space,
        libc::EDQUOT => quota,
        libc::EROFS => read_only,
        _ => io,
    }
}

/// Returns `MPI_COMM_WORLD` for `routine`.
pub unsafe fn world(routine: *const c_void) -> usize {
    const MPICH: usize = 0x4400_0000;
    const STANDARD: usize = 0x101;
    if is_standard(routine) {
        return STANDARD;
    }
    // Address of the program's copy of Open MPI's object, if it has one.
    let own = libc::dlsym(libc::RTLD_DEFAULT, c"ompi_mpi_comm_world".as_ptr());
    let object = if own.is_null() { mpi(c"ompi_mpi_comm_world") } else { Some(own) };
    object.map_or(MPICH, |object| object as usize)
}

/// Relevant bits of the mode in which a file is opened.
#[derive(Clone, Copy)]
pub struct Mode {
    /// Creates the file if it is missing.
    pub creates: bool,
    /// Sequential access, without pointers that can be queried.
    pub sequential: bool,
}

impl Mode {
    /// Converts the bits that `routine` takes.
    pub unsafe fn new(bits: c_int, routine: *const c_void) -> Self {
        let (create, sequential) = if is_standard(routine) { (2, 64) } else { (1, 256) };
        Self { creates: bits & create != 0, sequential: bits & sequential != 0 }
    }
}

unsafe fn has_symbol(name: &CStr) -> bool {
    !libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()).is_null() || mpi(name).is_some()
}

/// Returns the file name of the library that contains `function`.
unsafe fn file_of(function: *const c_void) -> Vec<u8> {
    let mut info: libc::Dl_info = std::mem::zeroed();
    if libc::dladdr(function, &mut info) == 0 || info.dli_fname.is_null() {
        return Vec::new();
    }
    crate::pathname::split(CStr::from_ptr(info.dli_fname).to_bytes()).1.to_vec()
}
