//! Settings of this process, read from the environment by the library's constructor.
//!
//! The library is *ready* when its constructor has read them. Until then no hook serves anything: it calls the C
//! library without allocating, taking a lock or reading the environment. The process's allocator may be in the middle
//! of its own initialization then, and would wait for itself.

use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The settings of this process.
pub struct Config {
    /// The mount prefix, without a slash at its end.
    pub mount: Vec<u8>,
    /// Whether shared writable mappings are emulated by writing changed pages back, instead of refused.
    pub mmap_writeback: bool,
    /// Set of the first bytes of the prefix's names: a bit for each of the 256 values.
    first_bytes: [u64; 4],
}

impl Config {
    fn new(mount: Vec<u8>, mmap_writeback: bool) -> Self {
        let mut first_bytes = [0; 4];
        for name in crate::pathname::names(&mount) {
            first_bytes[usize::from(name[0] >> 6)] |= 1 << (name[0] & 63);
        }
        Self { mount, mmap_writeback, first_bytes }
    }

    /// Whether a name of the prefix begins with `byte`: the cheap question about relative paths.
    #[inline]
    pub fn has_name_beginning_with(&self, byte: u8) -> bool {
        self.first_bytes[usize::from(byte >> 6)] & (1 << (byte & 63)) != 0
    }
}

static CONFIG: AtomicPtr<Config> = AtomicPtr::new(null_mut());

/// A variable of the process's environment, without the locks and copies of `std::env`.
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
    /// The process's environment.
    pub static mut environ: *mut *mut libc::c_char;
}

/// The settings, once the library is ready.
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

/// The settings, for code that runs only in a library that is ready.
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
    let made = Box::leak(Box::new(Config::new(mount, mmap_writeback)));
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
