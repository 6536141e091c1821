//! Caller of a request, as the kernel reports it.

use fuser::Request;
use weft_wire::hello::Identity;

/// Returns the identity of the process that made a request. Supplementary groups are read from /proc, because the
/// kernel does not send them; root needs none.
pub fn identity(request: &Request) -> Identity {
    let groups = if request.uid() == 0 { Vec::new() } else { groups_of(request.pid()) };
    Identity { uid: request.uid(), gid: request.gid(), groups }
}

fn groups_of(pid: u32) -> Vec<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mut groups: Vec<u32> = status
        .lines()
        .find_map(|line| line.strip_prefix("Groups:"))
        .unwrap_or("")
        .split_whitespace()
        .filter_map(|group| group.parse().ok())
        .take(64)
        .collect();
    groups.sort_unstable();
    groups
}

/// Whether a process has a pending signal or is gone, so that its wait for a lock must end. The kernel reports this by
/// an interrupt message, which the FUSE library does not pass on.
pub fn interrupted(pid: u32) -> bool {
    let Some(signals) = Signals::of(pid) else { return true };
    signals.pending & (!(signals.blocked | signals.ignored) | bit(libc::SIGKILL)) != 0
}

/// Whether a process is about to end, is gone, or has a pending signal with which a user ends programs, so that its wait for a
/// server must end. Other signals do not count, as on other file systems: a program does not expect that they interrupt
/// accesses to files.
pub fn is_to_end(pid: u32) -> bool {
    let Some(signals) = Signals::of(pid) else { return true };
    let by_users = [libc::SIGINT, libc::SIGTERM, libc::SIGQUIT, libc::SIGHUP];
    let counts = by_users.into_iter().map(bit).fold(!signals.caught, |counts, signal| counts | signal);
    signals.pending & (counts & !(signals.blocked | signals.ignored) | bit(libc::SIGKILL)) != 0
}

/// Signals of a process, as bit masks.
struct Signals {
    pending: u64,
    blocked: u64,
    ignored: u64,
    caught: u64,
}

impl Signals {
    /// Returns the signals of a thread; `None` if it is gone.
    fn of(pid: u32) -> Option<Self> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let mask = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name));
            value.and_then(|value| u64::from_str_radix(value.trim(), 16).ok()).unwrap_or(0)
        };
        let pending = mask("SigPnd:") | mask("ShdPnd:");
        let (blocked, ignored, caught) = (mask("SigBlk:"), mask("SigIgn:"), mask("SigCgt:"));
        Some(Self { pending, blocked, ignored, caught })
    }
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_ended_counts_as_interrupted() {
        assert!(!interrupted(std::process::id()) && !is_to_end(std::process::id()));
        assert!(interrupted(u32::MAX) && is_to_end(u32::MAX));
    }

    #[test]
    fn own_groups_are_those_of_the_system() {
        // SAFETY: a length of zero only asks for the count.
        let count = unsafe { libc::getgroups(0, std::ptr::null_mut()) };
        assert_eq!(groups_of(std::process::id()).len(), (count as usize).min(64));
    }
}
