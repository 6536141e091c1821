//! MPI library of a job, loaded at run time: only the calls by which delegates start a program.
//!
//! A handle is an `int` in MPICH's ABI and a pointer in the others. Both are passed as `usize`: the calling conventions of
//! 64-bit systems pass them in the same registers, and MPICH reads the lower half.

use crate::failure::Failure;
use crate::preloadable;
use libc::{c_char, c_int, c_void};
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Libraries to try if the program itself names none, such as a script.
const NAMES: [&str; 5] =
    ["libmpi_abi.so.1", "libmpi_abi.so.0", "libmpi.so.12", "libmpich.so.12", "libmpi.so.40"];
/// Library of Open MPI, which is tried first under its launcher.
const OPEN_MPI_NAME: &str = "libmpi.so.40";
/// Variable that only Open MPI's launcher sets.
const OPEN_MPI_VARIABLE: &str = "OMPI_COMM_WORLD_RANK";
/// Variable that only MPICH's launcher and those derived from it set.
const HYDRA_VARIABLE: &str = "MPI_LOCALRANKID";
/// Name of Open MPI's ABI.
const OPEN_MPI: &str = "Open MPI";
/// Maximum length of MPI's error texts in all ABIs, with the terminating zero.
const ERROR_STRING_MAX: usize = 512;

type Init = unsafe extern "C" fn(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int) -> c_int;
type Comm = unsafe extern "C" fn(usize, *mut c_int) -> c_int;
type SetHandler = unsafe extern "C" fn(usize, usize) -> c_int;
type Spawn = unsafe extern "C" fn(
    *const c_char,
    *const *const c_char,
    c_int,
    usize,
    c_int,
    usize,
    *mut usize,
    *mut c_int,
) -> c_int;
type ErrorString = unsafe extern "C" fn(c_int, *mut c_char, *mut c_int) -> c_int;
type Abort = unsafe extern "C" fn(usize, c_int) -> c_int;
type Finalize = unsafe extern "C" fn() -> c_int;

/// Values of an ABI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Abi {
    name: &'static str,
    world: usize,
    own: usize,
    null_info: usize,
    errors_return: usize,
    thread_multiple: c_int,
}

const MPICH: Abi = Abi {
    name: "MPICH",
    world: 0x4400_0000,
    own: 0x4400_0001,
    null_info: 0x1c00_0000,
    errors_return: 0x5400_0001,
    thread_multiple: 3,
};
const STANDARD: Abi = Abi {
    name: "standard",
    world: 0x101,
    own: 0x102,
    null_info: 0x130,
    errors_return: 0x143,
    thread_multiple: 4096,
};

/// A loaded MPI library.
#[derive(Clone)]
pub struct Mpi {
    /// File or name of the library.
    pub library: String,
    abi: Abi,
    init: Init,
    size: Comm,
    set_handler: SetHandler,
    spawn: Spawn,
    error_string: ErrorString,
    abort: Abort,
    finalize: Finalize,
}

impl Mpi {
    /// Loads the MPI library `named`, else the one that `program` is linked with, else one with a usual name, first from
    /// the launcher's own installation.
    ///
    /// # Errors
    /// No library is found, or it lacks a function.
    pub fn load(named: Option<&OsStr>, program: &OsStr) -> Result<Self, Failure> {
        if let Some(library) = named {
            return Self::open(library);
        }
        if let Some(library) = linked(program) {
            return Self::open(library.as_os_str());
        }
        let is_open_mpi = std::env::var_os(OPEN_MPI_VARIABLE).is_some();
        let first = is_open_mpi.then_some(OPEN_MPI_NAME);
        let names: Vec<_> = first.into_iter().chain(NAMES).map(PathBuf::from).collect();
        let dir = launcher_libraries();
        let beside =
            names.iter().filter_map(|name| Some(dir.as_ref()?.join(name)).filter(|file| file.exists()));
        for name in beside.chain(names.iter().cloned()) {
            if let Ok(mpi) = Self::open(name.as_os_str()) {
                return Ok(mpi);
            }
        }
        let why = format!("no MPI library is known: {} is linked with none", program.to_string_lossy());
        Err(Failure::misuse("--spawn", why).remedy("name the library of the launcher with --mpi LIB"))
    }

    fn open(library: &OsStr) -> Result<Self, Failure> {
        let shown = library.to_string_lossy().into_owned();
        let failed = |why: String| {
            Failure::misuse(format!("MPI library {shown}"), why)
                .remedy("name the library of the launcher with --mpi LIB")
        };
        let path = CString::new(library.as_bytes()).map_err(|error| failed(error.to_string()))?;
        // SAFETY: the path is a C string. The library's constructors run, as they do in every program linked with it.
        // Parts of Open MPI that it loads later need its symbols: RTLD_GLOBAL.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if handle.is_null() {
            return Err(failed(loader_error()));
        }
        let find = |name: &CStr| {
            // SAFETY: the handle is that of an open library, which is never closed, and the name is a C string.
            let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
            (!found.is_null()).then_some(found)
        };
        let function =
            |name: &CStr| find(name).ok_or_else(|| failed(format!("it has no {}", name.to_string_lossy())));
        let (init, size) = (function(c"MPI_Init_thread")?, function(c"MPI_Comm_size")?);
        let (set_handler, spawn) = (function(c"MPI_Comm_set_errhandler")?, function(c"MPI_Comm_spawn")?);
        let (error_string, abort) = (function(c"MPI_Error_string")?, function(c"MPI_Abort")?);
        let finalize = function(c"MPI_Finalize")?;
        let object = |name: &CStr| find(name).map(|object| object as usize);
        let abi = match object(c"ompi_mpi_comm_world") {
            _ if is_standard(spawn) => STANDARD,
            None => MPICH,
            Some(world) => {
                let missing = || failed("it lacks handles of Open MPI".to_owned());
                Abi {
                    name: OPEN_MPI,
                    world,
                    own: object(c"ompi_mpi_comm_self").ok_or_else(missing)?,
                    null_info: object(c"ompi_mpi_info_null").ok_or_else(missing)?,
                    errors_return: object(c"ompi_mpi_errors_return").ok_or_else(missing)?,
                    thread_multiple: 3,
                }
            }
        };
        // SAFETY: these are the functions of MPI with these names, whose types the standard fixes.
        unsafe {
            Ok(Self {
                library: shown,
                abi,
                init: std::mem::transmute::<*mut c_void, Init>(init),
                size: std::mem::transmute::<*mut c_void, Comm>(size),
                set_handler: std::mem::transmute::<*mut c_void, SetHandler>(set_handler),
                spawn: std::mem::transmute::<*mut c_void, Spawn>(spawn),
                error_string: std::mem::transmute::<*mut c_void, ErrorString>(error_string),
                abort: std::mem::transmute::<*mut c_void, Abort>(abort),
                finalize: std::mem::transmute::<*mut c_void, Finalize>(finalize),
            })
        }
    }

    /// Checks that the launcher of this process belongs to the library.
    ///
    /// # Errors
    /// Each process would be an MPI job of its own.
    pub fn check_launcher(&self) -> Result<(), Failure> {
        let is_set = |name: &str| std::env::var_os(name).is_some();
        let launcher = match self.abi.name == OPEN_MPI {
            true if is_set(HYDRA_VARIABLE) && !is_set(OPEN_MPI_VARIABLE) => "MPICH",
            false if is_set(OPEN_MPI_VARIABLE) && !is_set(HYDRA_VARIABLE) => OPEN_MPI,
            _ => return Ok(()),
        };
        let why = format!("the launcher of this process is that of {launcher}");
        Err(Failure::misuse(format!("MPI library {}", self.library), why)
            .remedy("use the launcher of the library that the program is linked with"))
    }

    /// Returns the name of the ABI.
    pub fn abi(&self) -> &'static str {
        self.abi.name
    }

    /// Initializes MPI in this process. Returns the number of processes and whether all threads may call MPI.
    ///
    /// # Errors
    /// MPI fails. By default it ends the process itself.
    pub fn init(&self) -> Result<(u32, bool), Failure> {
        let (mut provided, mut size) = (0, 0);
        // SAFETY: MPI is called for the first time in this process, and null pointers stand for no arguments.
        let error = unsafe {
            (self.init)(
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                self.abi.thread_multiple,
                &raw mut provided,
            )
        };
        self.check("MPI_Init_thread", error)?;
        // SAFETY: MPI is initialized, and the handles are those of its ABI.
        let error = unsafe {
            (self.set_handler)(self.abi.own, self.abi.errors_return);
            (self.set_handler)(self.abi.world, self.abi.errors_return);
            (self.size)(self.abi.world, &raw mut size)
        };
        self.check("MPI_Comm_size", error)?;
        Ok((size.max(0) as u32, provided >= self.abi.thread_multiple))
    }

    /// Starts `count` processes and waits until all of them have initialized MPI.
    ///
    /// # Errors
    /// The library or the launcher does not support it, or has too few slots.
    pub fn spawn(&self, command: &CStr, args: &[CString], count: u32) -> Result<(), Failure> {
        let mut pointers: Vec<_> = args.iter().map(|arg| arg.as_ptr()).collect();
        pointers.push(std::ptr::null());
        let mut between = 0;
        // SAFETY: MPI is initialized, the handles are those of its ABI, the texts outlive the call, and the list of
        // arguments ends with a null pointer. A null pointer stands for no error codes in all ABIs.
        let error = unsafe {
            (self.spawn)(
                command.as_ptr(),
                pointers.as_ptr(),
                count as c_int,
                self.abi.null_info,
                0,
                self.abi.own,
                &raw mut between,
                std::ptr::null_mut(),
            )
        };
        self.check("MPI_Comm_spawn", error)
    }

    /// Ends MPI in this process, after all delegates have called it.
    pub fn finalize(&self) {
        // SAFETY: MPI is initialized, and this process calls nothing of it later.
        unsafe { (self.finalize)() };
    }

    /// Ends all processes of the job; the launcher returns `code`.
    pub fn abort(&self, code: u8) {
        // SAFETY: MPI is initialized, and the handle is that of its ABI.
        unsafe { (self.abort)(self.abi.world, c_int::from(code)) };
    }

    fn check(&self, call: &str, error: c_int) -> Result<(), Failure> {
        if error == 0 {
            return Ok(());
        }
        let mut text = [0u8; ERROR_STRING_MAX];
        let mut len = 0;
        // SAFETY: the buffer has the longest length of all ABIs; its last byte stays zero.
        unsafe { (self.error_string)(error, text.as_mut_ptr().cast(), &raw mut len) };
        let text = String::from_utf8_lossy(&text);
        // MPICH's first line ends with "error stack:"; the last one has the cause.
        let lines: Vec<_> = text.trim_end_matches('\0').trim().lines().collect();
        let cause = lines.last().copied().unwrap_or("unknown error");
        Err(Failure::misuse(format!("MPI library {}", self.library), format!("{call} failed: {cause}")))
    }
}

/// Returns the message of the dynamic loader about its last error.
fn loader_error() -> String {
    // SAFETY: the text is valid until the next call of the loader in this thread, and is copied.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            "it cannot be loaded".to_owned()
        } else {
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    }
}

/// Whether `function` belongs to a library with the standard ABI.
fn is_standard(function: *mut c_void) -> bool {
    // SAFETY: zeros are a valid `Dl_info`, which the call fills in.
    let file = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(function, &raw mut info) == 0 || info.dli_fname.is_null() {
            return false;
        }
        CStr::from_ptr(info.dli_fname)
    };
    let file = Path::new(OsStr::from_bytes(file.to_bytes()));
    file.file_name().is_some_and(|name| name.as_bytes().starts_with(b"libmpi_abi"))
}

/// Returns the directory of libraries of the installation that the launcher of this process belongs to.
fn launcher_libraries() -> Option<PathBuf> {
    let parent = std::os::unix::process::parent_id();
    let launcher = std::fs::read_link(format!("/proc/{parent}/exe")).ok()?;
    Some(launcher.parent()?.parent()?.join("lib"))
}

/// Returns the MPI library that the dynamic loader finds for a program.
fn linked(program: &OsStr) -> Option<PathBuf> {
    let (program, loader) = preloadable::loader(program)?;
    let output = Command::new(loader).arg("--list").arg(program).env_remove("LD_PRELOAD").output().ok()?;
    of_list(&String::from_utf8_lossy(&output.stdout))
}

/// Returns the MPI library in a list of the loader, whose lines are `NAME => FILE (ADDRESS)`.
fn of_list(list: &str) -> Option<PathBuf> {
    let files = list.lines().filter_map(|line| {
        let (name, rest) = line.trim().split_once(" => ")?;
        Some((name, rest.rsplit_once(" (").map_or(rest, |(file, _)| file)))
    });
    // A library that is missing is "not found".
    let of_mpi: Vec<_> =
        files.filter(|(name, file)| name.starts_with("libmpi") && file.starts_with('/')).collect();
    let is_core =
        |name: &str| ["libmpi.so", "libmpich.so", "libmpi_abi.so"].iter().any(|core| name.starts_with(core));
    // Libraries of C++ and Fortran need the core, which the loader then lists, too.
    let core = of_mpi.iter().find(|(name, _)| is_core(name)).or(of_mpi.first());
    core.map(|(_, file)| PathBuf::from(*file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_library_is_found_in_the_loaders_list() {
        let list = "\tlinux-vdso.so.1 (0x1)\n\tlibmpi_mpifh.so.40 => /l/libmpi_mpifh.so.40 (0x2)\n\
                    \tlibmpi.so.40 => /l/with space/libmpi.so.40 (0x3)\n\t/lib64/ld-linux-x86-64.so.2 (0x4)\n";
        assert_eq!(of_list(list), Some("/l/with space/libmpi.so.40".into()));
        assert_eq!(
            of_list("\tlibmpi_cray.so.12 => /l/libmpi_cray.so.12 (0x1)\n"),
            Some("/l/libmpi_cray.so.12".into())
        );
        assert_eq!(of_list("\tlibmpi.so.12 => not found\n"), None);
        assert_eq!(of_list("\tlibc.so.6 => /l/libc.so.6 (0x1)\n"), None);
    }

    #[test]
    fn a_library_without_mpi_is_refused() {
        let error = Mpi::load(Some(OsStr::new("libc.so.6")), OsStr::new("true")).err().expect("refused");
        assert!(error.text().contains("libc.so.6: it has no MPI_Init_thread"), "{}", error.text());
        assert!(Mpi::load(Some(OsStr::new("/nonexistent")), OsStr::new("true")).is_err());
    }
}
