//! One clock for all processes of a host: the monotonic one, and what civil time it was at a moment of it.
//!
//! The first process of a host that is traced writes the pair down in the trace directory; all others read it, so that
//! a step of the civil clock between their starts puts nothing out of order.

use std::fs;
use std::io;
use std::path::Path;

/// A moment by both clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Anchor {
    /// Nanoseconds since 1970.
    pub unix_ns: u64,
    /// Nanoseconds of the monotonic clock.
    pub monotonic_ns: u64,
}

/// The monotonic clock in nanoseconds. Costs no system call.
#[inline]
pub fn monotonic_ns() -> u64 {
    now(libc::CLOCK_MONOTONIC)
}

#[inline]
fn now(clock: libc::clockid_t) -> u64 {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one struct.
    unsafe { libc::clock_gettime(clock, &mut at) };
    at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64
}

impl Anchor {
    /// This moment.
    pub fn now() -> Self {
        Self { unix_ns: now(libc::CLOCK_REALTIME), monotonic_ns: monotonic_ns() }
    }

    /// The anchor of this host in the trace directory `dir`, made when it is missing.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn of_host(dir: &Path) -> io::Result<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_else(|_| host_name());
        let path = dir.join(format!("clock-{}", boot.trim()));
        if let Some(found) = read(&path)? {
            return Ok(found);
        }
        // Whole or not there: the first link wins.
        let own = dir.join(format!("clock-{}.{}", boot.trim(), std::process::id()));
        let anchor = Self::now();
        fs::write(&own, format!("{} {}\n", anchor.unix_ns, anchor.monotonic_ns))?;
        let linked = fs::hard_link(&own, &path);
        fs::remove_file(&own)?;
        match linked {
            Ok(()) => Ok(anchor),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                read(&path)?.ok_or_else(|| io::Error::other("the clock file vanished"))
            }
            // A file system without links: this process's own anchor is as good as the clocks are steady.
            Err(_) => Ok(anchor),
        }
    }
}

fn read(path: &Path) -> io::Result<Option<Anchor>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut numbers = text.split_whitespace().map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(unix_ns)), Some(Ok(monotonic_ns))) => Ok(Some(Anchor { unix_ns, monotonic_ns })),
        _ => Err(io::Error::other(format!("{} is no clock file", path.display()))),
    }
}

/// The name of this host.
pub fn host_name() -> String {
    let mut name = [0u8; 256];
    // SAFETY: writes at most so many bytes.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    let len = name.iter().position(|&byte| byte == 0).unwrap_or(0);
    String::from_utf8_lossy(&name[..len]).into_owned()
}
