//! Settings of this process, which the library's constructor reads from the environment.
//!
//! The library is *ready* when its constructor has read them. Before that, no hook serves anything: hooks call the C
//! library without allocating, taking a lock or reading the environment. See "Rules before initialization" in the crate
//! documentation.

use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use weft_config::job::DELEGATES_VARIABLE;

/// Settings of this process.
pub struct Config {
    /// Mount prefix, without a trailing slash.
    pub mount: Vec<u8>,
    /// Whether shared writable mappings are emulated by writing back changed pages, instead of rejected.
    pub mmap_writeback: bool,
    /// Whether bytes of files go through the delegates of a job.
    pub delegates: bool,
    /// Directories of the host whose files are served through delegates.
    pub over: Vec<crate::over::Directory>,
    /// Files of the host that have replicas.
    pub replicas: Vec<crate::over::Replicated>,
    /// Set of the first bytes of the prefix's components: one bit for each of the 256 values.
    first_bytes: [u64; 4],
}

impl Config {
    fn new(mount: Vec<u8>, mmap_writeback: bool) -> Self {
        let mut first_bytes = [0; 4];
        for name in crate::pathname::names(&mount) {
            first_bytes[usize::from(name[0] >> 6)] |= 1 << (name[0] & 63);
        }
        Self { mount, mmap_writeback, delegates: false, over: Vec::new(), replicas: Vec::new(), first_bytes }
    }

    /// Whether a component of the prefix starts with `byte`: the cheap check for relative paths.
    #[inline]
    pub fn has_name_beginning_with(&self, byte: u8) -> bool {
        self.first_bytes[usize::from(byte >> 6)] & (1 << (byte & 63)) != 0
    }
}

static CONFIG: AtomicPtr<Config> = AtomicPtr::new(null_mut());

/// Returns a variable of the process's environment, without the locks and copies of `std::env`.
pub fn variable(name: &str) -> Option<&'static [u8]> {
    // SAFETY: `environ` is null or a null-ended array of C strings; nobody frees the strings that we read at start.
    unsafe {
        let mut at = environ;
        if at.is_null() {
            return None;
        }
        while !(*at).is_null() {
            let entry = CStr::from_ptr(*at).to_bytes();
            if entry.len() > name.len() && entry.starts_with(name.as_bytes()) && entry[name.len()] == b'=' {
                return Some(&entry[name.len() + 1..]);
            }
            at = at.add(1);
        }
    }
    None
}

unsafe extern "C" {
    /// Environment of the process.
    pub static mut environ: *mut *mut libc::c_char;
}

/// Returns the settings if the library is ready.
#[inline]
pub fn ready() -> Option<&'static Config> {
    // SAFETY: once stored it is never freed.
    unsafe { CONFIG.load(Ordering::Acquire).as_ref() }
}

/// Whether hooks may allocate, lock and read the environment.
#[inline]
pub fn is_ready() -> bool {
    !CONFIG.load(Ordering::Acquire).is_null()
}

/// Returns the settings, for code that runs only when the library is ready.
pub fn config() -> &'static Config {
    ready().unwrap_or_else(read)
}

/// Reads the settings, which makes the library ready. For the constructor.
pub fn read() -> &'static Config {
    let mut mount = variable("WEFT_MOUNT").unwrap_or(b"/weft").to_vec();
    while mount.len() > 1 && mount.ends_with(b"/") {
        mount.pop();
    }
    if mount.len() < 2 || mount[0] != b'/' {
        crate::sys::complain("WEFT_MOUNT must be an absolute path below /; using /weft");
        mount = b"/weft".to_vec();
    }
    let mmap_writeback = variable("WEFT_MMAP_SHARED") == Some(b"writeback");
    let delegates = variable(DELEGATES_VARIABLE).is_some_and(|value| !value.is_empty());
    let over = if delegates { crate::over::directories() } else { Vec::new() };
    // Delegates and replicas are not used together.
    let replicas = if delegates { Vec::new() } else { crate::over::replicated() };
    let made = Config { delegates, over, replicas, ..Config::new(mount, mmap_writeback) };
    let made = Box::leak(Box::new(made));
    crate::over::ON.store(!made.over.is_empty() || !made.replicas.is_empty(), Ordering::Relaxed);
    CONFIG.store(made, Ordering::Release);
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_the_prefix_is_known_by_its_first_byte() {
        let config = Config::new(b"/scratch/weft".to_vec(), false);
        let known: Vec<u8> = (0..=255).filter(|&byte| config.has_name_beginning_with(byte)).collect();
        assert_eq!(known, b"sw");
    }
}
