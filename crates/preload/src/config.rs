//! What the environment says, read once at the first path that could be ours.

use std::ffi::CStr;
use std::sync::OnceLock;

/// The settings of this process.
pub struct Config {
    /// The mount prefix, without a slash at its end.
    pub mount: Vec<u8>,
    /// Whether shared writable mappings are emulated by writing changed pages back, instead of refused.
    pub mmap_writeback: bool,
}

static CONFIG: OnceLock<Config> = OnceLock::new();

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

/// The settings.
pub fn config() -> &'static Config {
    CONFIG.get_or_init(|| {
        let mut mount = variable("WEFT_MOUNT").unwrap_or(b"/weft").to_vec();
        while mount.len() > 1 && mount.ends_with(b"/") {
            mount.pop();
        }
        if mount.len() < 2 || mount[0] != b'/' {
            crate::sys::complain("WEFT_MOUNT must be an absolute path below /; using /weft");
            mount = b"/weft".to_vec();
        }
        Config { mount, mmap_writeback: variable("WEFT_MMAP_SHARED") == Some(b"writeback") }
    })
}
