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
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else {
        return true;
    };
    let mask = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .and_then(|value| u64::from_str_radix(value.trim(), 16).ok())
            .unwrap_or(0)
    };
    let pending = mask("SigPnd:") | mask("ShdPnd:");
    let held_back = mask("SigBlk:") | mask("SigIgn:");
    let kill = 1 << (libc::SIGKILL - 1);
    pending & (!held_back | kill) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_ended_counts_as_interrupted() {
        assert!(!interrupted(std::process::id()));
        assert!(interrupted(u32::MAX));
    }

    #[test]
    fn own_groups_are_those_of_the_system() {
        // SAFETY: a length of zero only asks for the count.
        let count = unsafe { libc::getgroups(0, std::ptr::null_mut()) };
        assert_eq!(groups_of(std::process::id()).len(), (count as usize).min(64));
    }
}
