//! Formats users, groups, modes and times for display.

use crate::failure::Failure;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use weft_core::Timestamp;
use weft_wire::meta::FileType;

/// Cache of user and group names.
#[derive(Default)]
pub struct Names {
    users: BTreeMap<u32, String>,
    groups: BTreeMap<u32, String>,
}

impl Names {
    /// Returns the user's name or number.
    pub fn user(&mut self, uid: u32) -> &str {
        self.users.entry(uid).or_insert_with(|| {
            // SAFETY: null, or a record that is valid until the next call. Only one thread of this program calls it.
            let name = unsafe { libc::getpwuid(uid).as_ref().map(|entry| CStr::from_ptr(entry.pw_name)) };
            name.map_or_else(|| uid.to_string(), |name| name.to_string_lossy().into_owned())
        })
    }

    /// Returns the group's name or number.
    pub fn group(&mut self, gid: u32) -> &str {
        self.groups.entry(gid).or_insert_with(|| {
            // SAFETY: see `user`.
            let name = unsafe { libc::getgrgid(gid).as_ref().map(|entry| CStr::from_ptr(entry.gr_name)) };
            name.map_or_else(|| gid.to_string(), |name| name.to_string_lossy().into_owned())
        })
    }
}

/// Returns the number of a group that is given by name or number.
pub fn group_id(group: &str) -> Result<u32, Failure> {
    let by_name = || {
        let name = CString::new(group).ok()?;
        // SAFETY: see `Names::user`.
        unsafe { libc::getgrnam(name.as_ptr()).as_ref().map(|entry| entry.gr_gid) }
    };
    group.parse().ok().or_else(by_name).ok_or_else(|| {
        Failure::misuse(format!("group {group:?}"), "it is unknown on this host").remedy("give the number")
    })
}

/// Replaces characters with which a name could change the terminal.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Formats a mode such as `drwxr-sr-t`.
pub fn mode(kind: FileType, mode: u32) -> String {
    let mut out = String::from(match kind {
        FileType::Regular => '-',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        FileType::CharDevice => 'c',
        FileType::BlockDevice => 'b',
    });
    for (shift, special, set, plain) in [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')]
    {
        let bits = mode >> shift;
        out.push(if bits & 4 != 0 { 'r' } else { '-' });
        out.push(if bits & 2 != 0 { 'w' } else { '-' });
        out.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => set,
            (true, false) => plain,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    out
}

/// Describes the file type.
pub fn kind(kind: FileType) -> &'static str {
    match kind {
        FileType::Regular => "regular file",
        FileType::Directory => "directory",
        FileType::Symlink => "symbolic link",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::CharDevice => "character special file",
        FileType::BlockDevice => "block special file",
    }
}

/// Formats local time as `2026-01-31 23:59:59.123456789 +0100`.
pub fn time(at: Timestamp) -> String {
    let (seconds, nanos) = at.parts();
    let local = local(seconds);
    format!(
        "{} {:02}:{:02}:{:02}.{nanos:09} {}",
        date(&local),
        local.tm_hour,
        local.tm_min,
        local.tm_sec,
        zone(&local)
    )
}

/// Formats local time to the minute as `2026-01-31 23:59`.
pub fn minute(at: Timestamp) -> String {
    let local = local(at.parts().0);
    format!("{} {:02}:{:02}", date(&local), local.tm_hour, local.tm_min)
}

fn date(local: &libc::tm) -> String {
    format!("{:04}-{:02}-{:02}", local.tm_year + 1900, local.tm_mon + 1, local.tm_mday)
}

fn zone(local: &libc::tm) -> String {
    let minutes = local.tm_gmtoff / 60;
    let sign = if minutes < 0 { '-' } else { '+' };
    format!("{sign}{:02}{:02}", minutes.abs() / 60, minutes.abs() % 60)
}

fn local(seconds: i64) -> libc::tm {
    // SAFETY: tm is plain data; both pointers are to locals that live through the call.
    unsafe {
        let mut out: libc::tm = std::mem::zeroed();
        libc::localtime_r(&raw const seconds, &raw mut out);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_read_as_ls_writes_them() {
        assert_eq!(mode(FileType::Regular, 0o644), "-rw-r--r--");
        assert_eq!(mode(FileType::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(mode(FileType::Regular, 0o4710), "-rws--x---");
        assert_eq!(mode(FileType::Regular, 0o2640), "-rw-r-S---");
        assert_eq!(mode(FileType::Symlink, 0o777), "lrwxrwxrwx");
    }
}
