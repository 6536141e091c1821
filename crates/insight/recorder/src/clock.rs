//! A clock that all traced processes of a host share.
//!
//! Records carry times of the monotonic clock. An [`Anchor`] relates that clock to wall-clock time. The first traced
//! process of a host stores the anchor in the trace directory and later processes load it. Their records therefore stay
//! in order even if the wall clock is set between their starts.

use std::fs;
use std::io;
use std::path::Path;

/// One instant, read from the wall clock and from the monotonic clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Anchor {
    /// Wall-clock time in nanoseconds since the Unix epoch.
    pub unix_ns: u64,
    /// Monotonic time in nanoseconds.
    pub monotonic_ns: u64,
}

/// Reads the monotonic clock, in nanoseconds. Costs no system call (vDSO).
#[inline]
pub fn monotonic_ns() -> u64 {
    now(libc::CLOCK_MONOTONIC)
}

#[inline]
fn now(clock: libc::clockid_t) -> u64 {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one `timespec`.
    unsafe { libc::clock_gettime(clock, &mut at) };
    at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64
}

impl Anchor {
    /// Reads both clocks now.
    pub fn now() -> Self {
        Self { unix_ns: now(libc::CLOCK_REALTIME), monotonic_ns: monotonic_ns() }
    }

    /// Loads this host's anchor from the trace directory `dir`, or stores a new one there.
    ///
    /// # Errors
    /// Fails if the anchor file cannot be read, written or parsed.
    pub fn of_host(dir: &Path) -> io::Result<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_else(|_| host_name());
        let path = dir.join(format!("clock-{}", boot.trim()));
        if let Some(found) = read(&path)? {
            return Ok(found);
        }
        // A hard link publishes the complete file atomically; if two processes race, the first link wins.
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
            // The file system has no hard links. Anchors taken by several processes differ only by clock adjustments.
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
        _ => Err(io::Error::other(format!("{} is not a clock file", path.display()))),
    }
}

/// Returns this host's name.
pub fn host_name() -> String {
    let mut name = [0u8; 256];
    // SAFETY: writes at most `name.len() - 1` bytes and leaves the terminating zero.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    let len = name.iter().position(|&byte| byte == 0).unwrap_or(0);
    String::from_utf8_lossy(&name[..len]).into_owned()
}
