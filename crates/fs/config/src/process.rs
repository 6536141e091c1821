//! How this process describes itself to servers.

use weft_wire::{Level, Levels};

/// Environment variable in which tests say that a process is of an earlier version: the latest feature level that it knows.
const TEST_LEVEL: &str = "WEFT_TEST_LEVEL";

/// Returns the feature levels that this process knows.
pub fn levels() -> Levels {
    let latest = std::env::var(TEST_LEVEL).ok().and_then(|text| text.parse().ok());
    latest.map_or(Levels::KNOWN, |latest| Levels::until(Level(latest)))
}

/// Returns the name of this host.
pub fn host_name() -> String {
    let mut name = [0u8; 256];
    // SAFETY: the buffer is as long as it is said to be; the last byte stays zero.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned()
}

/// Returns the name of this process's program as the kernel knows it, at most 15 bytes; empty if unknown.
pub(crate) fn program_name() -> String {
    let name = std::fs::read("/proc/self/comm").unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}
