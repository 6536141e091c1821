//! Finds and binds libdarshan-util. Used only in the child process.

use crate::error::{Result, TraceError};
use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub const REMEDY: &str = "`make deps` or `scripts/deps.sh darshan` installs it (`pip install --no-deps --target \
     ~/.local/share/weft/darshan darshan` does the same), or name the library or its folder with WEFT_DARSHAN_LIB";

/// `struct darshan_job` of the library, with additional space at the end.
#[repr(C, align(8))]
pub struct Job {
    pub uid: i64,
    pub start_time_sec: i64,
    pub start_time_nsec: i64,
    pub end_time_sec: i64,
    pub end_time_nsec: i64,
    pub nprocs: i64,
    pub jobid: i64,
    pub metadata: [u8; 1024],
    additional_space: [u8; 4096],
}

#[repr(C)]
struct ModInfo {
    name: *const c_char,
    len: c_int,
    ver: c_int,
    idx: c_int,
    partial_flag: c_int,
}

#[repr(C)]
struct NameInfo {
    id: u64,
    name: *mut c_char,
}

/// A module of a log.
pub struct Module {
    pub name: String,
    pub index: c_int,
    pub version: c_int,
    pub partial: bool,
}

type Fd = *mut c_void;

/// The library's functions used by this crate.
pub struct Library {
    pub path: String,
    pub version: String,
    log_open: unsafe extern "C" fn(*const c_char) -> Fd,
    log_close: unsafe extern "C" fn(Fd),
    get_job: unsafe extern "C" fn(Fd, *mut Job) -> c_int,
    get_exe: unsafe extern "C" fn(Fd, *mut c_char) -> c_int,
    get_modules: unsafe extern "C" fn(Fd, *mut *mut ModInfo, *mut c_int),
    get_mod: unsafe extern "C" fn(Fd, c_int, *mut c_void, c_int) -> c_int,
    get_record: unsafe extern "C" fn(Fd, c_int, *mut *mut c_void) -> c_int,
    get_names: unsafe extern "C" fn(Fd, *mut *mut NameInfo, *mut c_int),
    free: unsafe extern "C" fn(*mut c_void),
    handle: *mut c_void,
}

impl Library {
    /// Loads the first library found that is recent enough.
    pub fn find() -> Result<Self> {
        let mut tried = Vec::new();
        for candidate in candidate_paths() {
            match Self::load(&candidate) {
                Ok(library) => return Ok(library),
                Err(why) => tried.push(format!("{} ({why})", candidate.to_string_lossy())),
            }
        }
        let tried = if tried.is_empty() { String::new() } else { format!(" (tried {})", tried.join(", ")) };
        Err(TraceError::NoLibrary { tried, remedy: REMEDY })
    }

    #[expect(clippy::missing_transmute_annotations, reason = "the field says the type")]
    fn load(candidate: &OsStr) -> std::result::Result<Self, String> {
        let name = CString::new(candidate.as_bytes()).map_err(|_| "a name with a zero byte".to_owned())?;
        // SAFETY: the name is a C string. Loading runs none of this crate's code, and the library is never unloaded.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            // SAFETY: after a failure on this thread, dlerror returns a C string or null.
            let text = unsafe {
                let text = libc::dlerror();
                if text.is_null() { "loading failed".into() } else { CStr::from_ptr(text).to_string_lossy() }
            };
            let short = text.rsplit_once(": ").map_or(&*text, |(_, why)| why);
            return Err(short.to_owned());
        }
        macro_rules! bind {
            ($name:literal) => {
                // SAFETY: each function has the type that darshan-logutils.h declares since 3.4.1; the version is
                // checked below.
                unsafe { std::mem::transmute(symbol(handle, $name)?) }
            };
        }
        let get_version: unsafe extern "C" fn() -> *const c_char = bind!(c"darshan_log_get_lib_version");
        // SAFETY: the function returns a constant C string.
        let version = unsafe { CStr::from_ptr(get_version()) }.to_string_lossy().into_owned();
        let mut parts = version.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
        match (parts.next(), parts.next(), parts.next()) {
            (Some(3), Some(4), Some(1..)) | (Some(3), Some(5..), _) => {}
            _ => return Err(format!("version {version}, but version 3.4.1 or a newer 3.x is needed")),
        }
        Ok(Self {
            path: candidate.to_string_lossy().into_owned(),
            version,
            log_open: bind!(c"darshan_log_open"),
            log_close: bind!(c"darshan_log_close"),
            get_job: bind!(c"darshan_log_get_job"),
            get_exe: bind!(c"darshan_log_get_exe"),
            get_modules: bind!(c"darshan_log_get_modules"),
            get_mod: bind!(c"darshan_log_get_mod"),
            get_record: bind!(c"darshan_log_get_record"),
            get_names: bind!(c"darshan_log_get_name_records"),
            free: bind!(c"darshan_free"),
            handle,
        })
    }

    /// Returns the names in one of the library's counter tables, up to the entry that ends in `NUM_INDICES`.
    pub fn counter_names(&self, table: &CStr) -> std::result::Result<Vec<String>, String> {
        let table = symbol(self.handle, table)?.cast::<*const c_char>();
        let mut names = Vec::new();
        for at in 0..1024 {
            // SAFETY: Darshan's headers define the table as an array of C strings whose last entry ends in
            // NUM_INDICES, and the loop stops there.
            let name = unsafe { CStr::from_ptr(*table.add(at)) }.to_string_lossy().into_owned();
            if name.ends_with("NUM_INDICES") {
                return Ok(names);
            }
            names.push(name);
        }
        Err("a counter table has no end".into())
    }

    /// Opens a log; `None` if the library rejects it. The library prints the reason to standard error.
    pub fn open(&self, path: &Path) -> Option<Log<'_>> {
        let name = CString::new(path.as_os_str().as_bytes()).ok()?;
        // SAFETY: the name is a C string.
        let fd = unsafe { (self.log_open)(name.as_ptr()) };
        (!fd.is_null()).then_some(Log { library: self, fd })
    }
}

fn symbol(handle: *mut c_void, name: &CStr) -> std::result::Result<*mut c_void, String> {
    // SAFETY: the handle belongs to a loaded library; the name is a C string.
    let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
    if address.is_null() { Err(format!("missing symbol {}", name.to_string_lossy())) } else { Ok(address) }
}

/// An open log.
pub struct Log<'a> {
    library: &'a Library,
    fd: Fd,
}

impl Log<'_> {
    /// Returns the log's job record.
    pub fn job(&self) -> Option<Box<Job>> {
        // SAFETY: all-zero bytes are a valid `Job`.
        let mut job: Box<Job> = Box::new(unsafe { std::mem::zeroed() });
        // SAFETY: the log is open, and the buffer is larger than the library's structure.
        (unsafe { (self.library.get_job)(self.fd, &raw mut *job) } == 0).then_some(job)
    }

    /// Returns the command line.
    pub fn program(&self) -> Option<String> {
        let mut text = vec![0u8; 16 << 10];
        // SAFETY: the log is open; the library writes at most 4 KiB.
        let done = unsafe { (self.library.get_exe)(self.fd, text.as_mut_ptr().cast()) } == 0;
        let end = text.iter().position(|byte| *byte == 0)?;
        done.then(|| String::from_utf8_lossy(&text[..end]).into_owned())
    }

    /// Returns the modules that have data.
    pub fn modules(&self) -> Vec<Module> {
        let (mut list, mut count) = (std::ptr::null_mut(), 0);
        // SAFETY: the log is open; both pointers are valid.
        unsafe { (self.library.get_modules)(self.fd, &raw mut list, &raw mut count) };
        let mut modules = Vec::new();
        for at in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the library filled `count` entries.
            let info = unsafe { &*list.add(at) };
            if info.name.is_null() {
                continue;
            }
            // SAFETY: the library returns a constant C string.
            let name = unsafe { CStr::from_ptr(info.name) }.to_string_lossy().into_owned();
            let partial = info.partial_flag != 0;
            modules.push(Module { name, index: info.idx, version: info.ver, partial });
        }
        // SAFETY: the library allocated the list for its caller to free.
        unsafe { (self.library.free)(list.cast()) };
        modules
    }

    /// Reads the next bytes of a module into `buf`. At the module's end, returns fewer bytes than requested.
    pub fn module_bytes(&self, module: &Module, buf: &mut [u8]) -> Option<usize> {
        let len = c_int::try_from(buf.len()).expect("a small buffer");
        // SAFETY: the log is open; the library writes at most `len` bytes.
        let took = unsafe { (self.library.get_mod)(self.fd, module.index, buf.as_mut_ptr().cast(), len) };
        usize::try_from(took).ok().filter(|took| *took <= buf.len())
    }

    /// Passes each record of a counter module to `each` as words.
    ///
    /// The words are the record id, the rank, the integer counters and the floating-point counters. Returns false if
    /// the library failed.
    pub fn records(&self, module: &Module, words: usize, mut each: impl FnMut(&[u64])) -> bool {
        loop {
            let mut record = std::ptr::null_mut();
            // SAFETY: the log is open. The library allocates the record and converts it to its newest version,
            // whatever the version in the log.
            let got = unsafe { (self.library.get_record)(self.fd, module.index, &raw mut record) };
            if got == 0 || record.is_null() {
                return got == 0;
            }
            if got > 0 {
                // SAFETY: a record has two words and one for each name in the library's tables.
                each(unsafe { std::slice::from_raw_parts(record.cast::<u64>(), words) });
            }
            // SAFETY: the library allocated the record for its caller to free.
            unsafe { (self.library.free)(record) };
            if got < 0 {
                return false;
            }
        }
    }

    /// Passes Darshan's record id and the name of each file to `each`. Returns false if the library failed.
    pub fn names(self, mut each: impl FnMut(u64, String)) -> bool {
        let (mut list, mut count) = (std::ptr::null_mut::<NameInfo>(), -1);
        // SAFETY: the log is open; both pointers are valid.
        unsafe { (self.library.get_names)(self.fd, &raw mut list, &raw mut count) };
        if count < 0 {
            // On failure the library has closed the log itself.
            std::mem::forget(self);
            return false;
        }
        for at in 0..count as usize {
            // SAFETY: the library filled `count` entries, each with a C string or null.
            let (id, name) = unsafe { ((*list.add(at)).id, (*list.add(at)).name) };
            if !name.is_null() {
                // SAFETY: see above; the name is not null.
                let text = weft_core::escaped(unsafe { CStr::from_ptr(name) }.to_bytes()).into_owned();
                each(id, text);
                // SAFETY: the library allocated the name for its caller to free.
                unsafe { (self.library.free)(name.cast()) };
            }
        }
        // SAFETY: the library allocated the list for its caller to free.
        unsafe { (self.library.free)(list.cast()) };
        true
    }
}

impl Drop for Log<'_> {
    fn drop(&mut self) {
        // SAFETY: the library opened the log, and it is closed once.
        unsafe { (self.library.log_close)(self.fd) };
    }
}

/// Paths at which the library may be installed, in order of preference.
fn candidate_paths() -> Vec<OsString> {
    let mut out = Vec::new();
    if let Some(named) = std::env::var_os("WEFT_DARSHAN_LIB").filter(|named| !named.is_empty()) {
        let path = PathBuf::from(&named);
        if path.is_dir() {
            wheels(&path, &mut out);
        } else {
            out.push(named);
        }
        // An explicitly named library is the only candidate.
        return out;
    }
    if let Some(program) = std::env::current_exe().ok().as_deref().and_then(Path::parent) {
        wheels(&program.join("../lib/weft/darshan"), &mut out);
    }
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(data) = data.or_else(|| Some(home.as_ref()?.join(".local/share"))) {
        wheels(&data.join("weft/darshan"), &mut out);
    }
    out.extend(["libdarshan-util.so.0", "libdarshan-util.so"].map(OsString::from));
    let environments =
        ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    for prefix in environments.chain(home.map(|home| home.join(".local"))) {
        let pythons = std::fs::read_dir(prefix.join("lib")).into_iter().flatten().flatten();
        let mut pythons: Vec<PathBuf> = pythons
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"))
            .map(|entry| entry.path().join("site-packages"))
            .collect();
        pythons.sort();
        for packages in pythons.iter().rev() {
            wheels(packages, &mut out);
        }
        out.push(prefix.join("lib/libdarshan-util.so").into_os_string());
    }
    out.retain(|candidate| !candidate.as_bytes().contains(&b'/') || Path::new(candidate).exists());
    out
}

/// Adds the library in a folder, or the folder of libraries that a Python wheel installs.
fn wheels(folder: &Path, out: &mut Vec<OsString>) {
    for dir in [folder.to_owned(), folder.join("darshan.libs"), folder.join("lib")] {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let mut found: Vec<PathBuf> = entries
            .map(|entry| entry.path())
            .filter(|path| {
                let name = path.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
                name.starts_with("libdarshan-util") && name.contains(".so")
            })
            .collect();
        found.sort();
        out.extend(found.into_iter().map(PathBuf::into_os_string));
    }
}
