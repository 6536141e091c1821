//! The MPI of this process: its functions, and the little that differs between the ABIs.

use libc::{c_int, c_void};
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the MPI of this process: behind us, or in a library that was loaded privately (mpi4py).
pub unsafe fn mpi(name: &CStr) -> Option<*mut c_void> {
    let found = libc::dlsym(libc::RTLD_NEXT, name.as_ptr());
    if !found.is_null() {
        return Some(found);
    }
    let mut search = Search { name, found: std::ptr::null_mut() };
    libc::dl_iterate_phdr(Some(look_into), (&raw mut search).cast());
    (!search.found.is_null()).then_some(search.found)
}

/// A routine of MPI by its name, looked up once.
pub struct Routine {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Routine {
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Where it is: what comes behind us by this name, which may be another tool, or else by the name that only MPI
    /// itself has.
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

/// The error class that MPI gives to what it cannot do; used only when no MPI is found, which a program that calls
/// MPI cannot bring about.
pub const MPI_ERR_OTHER: c_int = 15;

/// Whether `info` is `MPI_INFO_NULL` in any of the ABIs: asking it anything is an error.
pub unsafe fn is_null_info(info: usize) -> bool {
    // MPICH's int and the standard ABI's small number; Open MPI's is the address of a symbol.
    const MPICH: u32 = 0x1c00_0000;
    const STANDARD: usize = 0x130;
    info as u32 == MPICH
        || info == STANDARD
        || info == 0
        // A program may hold the library's object in its own data (a copy relocation), which counts then.
        || libc::dlsym(libc::RTLD_DEFAULT, c"ompi_mpi_info_null".as_ptr()) as usize == info
        || mpi(c"ompi_mpi_info_null").is_some_and(|null| null as usize == info)
}

/// The info object that `at` holds: an `int` in MPICH's ABI, a pointer in the others.
pub unsafe fn info_handle(at: *const c_void, function: *const c_void) -> usize {
    let is_int = !has_symbol(c"ompi_mpi_info_null") && !is_standard(function);
    if is_int { *at.cast::<u32>() as usize } else { *at.cast::<usize>() }
}

/// Whether `routine` is of an MPI with the standard ABI.
pub unsafe fn is_standard(routine: *const c_void) -> bool {
    file_of(routine).starts_with(b"libmpi_abi")
}

/// `MPI_COMM_WORLD` for `routine`.
pub unsafe fn world(routine: *const c_void) -> usize {
    const MPICH: usize = 0x4400_0000;
    const STANDARD: usize = 0x101;
    if is_standard(routine) {
        return STANDARD;
    }
    // Where the program's copy of Open MPI's object lies, if it has one.
    let own = libc::dlsym(libc::RTLD_DEFAULT, c"ompi_mpi_comm_world".as_ptr());
    let object = if own.is_null() { mpi(c"ompi_mpi_comm_world") } else { Some(own) };
    object.map_or(MPICH, |object| object as usize)
}

/// What matters of the mode in which a file is opened.
#[derive(Clone, Copy)]
pub struct Mode {
    /// Makes the file when it is missing.
    pub creates: bool,
    /// Has no pointers that could be asked for.
    pub sequential: bool,
}

impl Mode {
    /// From the bits that `routine` takes.
    pub unsafe fn new(bits: c_int, routine: *const c_void) -> Self {
        let (create, sequential) = if is_standard(routine) { (2, 64) } else { (1, 256) };
        Self { creates: bits & create != 0, sequential: bits & sequential != 0 }
    }
}

unsafe fn has_symbol(name: &CStr) -> bool {
    !libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()).is_null() || mpi(name).is_some()
}

/// The name of the library file that holds `function`.
unsafe fn file_of(function: *const c_void) -> Vec<u8> {
    let mut info: libc::Dl_info = std::mem::zeroed();
    if libc::dladdr(function, &mut info) == 0 || info.dli_fname.is_null() {
        return Vec::new();
    }
    crate::pathname::split(CStr::from_ptr(info.dli_fname).to_bytes()).1.to_vec()
}
