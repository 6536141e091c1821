//! Links to descriptors and to the working directory: `/dev/stdin`, `/dev/fd/N`, `/proc/self/fd/N`, `/proc/self/cwd`. The
//! kernel's lead to placeholders, which have no bytes.
//!
//! Nothing here allocates before a link that leads to Weft is found.

use crate::{sys, table};
use std::ffi::{CStr, c_int};

/// Maximum number of links that a path may lead through, as in the kernel.
const LINKS_MAX: u32 = 40;

type Buffer = [u8; libc::PATH_MAX as usize];

/// Target of a link, with the rest of the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link<'a> {
    /// A descriptor of this process.
    Descriptor(c_int, &'a [u8]),
    /// The working directory of this process.
    Cwd(&'a [u8]),
    /// A path from the root.
    Root(&'a [u8]),
    /// A descriptor or the working directory of another process.
    Other,
}

/// Returns the first name of `path` and the rest, without slashes and `.` before the name.
fn split_first(path: &[u8]) -> (&[u8], &[u8]) {
    let mut rest = path;
    loop {
        let begin = rest.iter().position(|&byte| byte != b'/').unwrap_or(rest.len());
        let end = rest[begin..].iter().position(|&byte| byte == b'/').map_or(rest.len(), |len| begin + len);
        let name = &rest[begin..end];
        rest = &rest[end..];
        if name != b"." {
            return (name, rest);
        }
    }
}

fn number(name: &[u8]) -> Option<c_int> {
    let is_plain = name == b"0" || name.first().is_some_and(|first| (b'1'..=b'9').contains(first));
    is_plain.then(|| std::str::from_utf8(name).ok()?.parse().ok()).flatten()
}

/// Returns the link that the absolute `path` leads through, if any.
pub fn parse(path: &[u8]) -> Option<Link<'_>> {
    let (top, rest) = split_first(path);
    let (name, rest) = split_first(rest);
    match (top, name) {
        (b"dev", b"stdin") => Some(Link::Descriptor(0, rest)),
        (b"dev", b"stdout") => Some(Link::Descriptor(1, rest)),
        (b"dev", b"stderr") => Some(Link::Descriptor(2, rest)),
        (b"dev", b"fd") => descriptor(rest),
        (b"proc", b"self" | b"thread-self") => of_process(rest),
        (b"proc", other) => {
            let id = number(other)?;
            let of = of_process(rest)?;
            Some(if is_own(id) { of } else { Link::Other })
        }
        _ => None,
    }
}

fn of_process(rest: &[u8]) -> Option<Link<'_>> {
    let (name, rest) = split_first(rest);
    match name {
        b"fd" => descriptor(rest),
        b"cwd" => Some(Link::Cwd(rest)),
        b"root" => Some(Link::Root(rest)),
        b"task" => {
            let (thread, rest) = split_first(rest);
            number(thread)?;
            let (name, rest) = split_first(rest);
            match name {
                b"fd" => descriptor(rest),
                b"cwd" => Some(Link::Cwd(rest)),
                b"root" => Some(Link::Root(rest)),
                _ => None,
            }
        }
        _ => None,
    }
}

fn descriptor(rest: &[u8]) -> Option<Link<'_>> {
    let (name, rest) = split_first(rest);
    Some(Link::Descriptor(number(name)?, rest))
}

/// Whether this is the number of the process or of one of its threads.
fn is_own(id: c_int) -> bool {
    use std::io::Write;
    if u32::try_from(id) == Ok(std::process::id()) {
        return true;
    }
    let mut buffer = [0u8; 40];
    let mut rest = &mut buffer[..];
    write!(rest, "/proc/self/task/{id}\0").is_ok()
        && CStr::from_bytes_until_nul(&buffer).is_ok_and(|path| sys::exists(libc::AT_FDCWD, path))
}

/// Whether a relative path may lead through such a link, by its first name.
pub fn may_begin(path: &[u8]) -> bool {
    let (name, _) = split_first(path);
    number(name).is_some()
        || matches!(name, b"fd" | b"stdin" | b"stdout" | b"stderr" | b"cwd" | b"task" | b"self")
}

/// Returns `path`, relative to the foreign directory `dir`, as an absolute path.
pub fn absolute<'a>(dir: c_int, path: &[u8], buffer: &'a mut Buffer) -> Option<&'a [u8]> {
    let mut len = 0;
    if !path.starts_with(b"/") {
        len = sys::directory_path(dir, buffer)?.len();
        *buffer.get_mut(len)? = b'/';
        len += 1;
    }
    buffer.get_mut(len..len + path.len())?.copy_from_slice(path);
    Some(&buffer[..len + path.len()])
}

/// Calls `found` with the path, if the foreign `path` is a symbolic link that leads to one of these links. That path is
/// absolute.
pub fn behind_symlink<T>(dir: c_int, path: &CStr, found: impl FnOnce(&[u8]) -> T) -> Option<T> {
    if !table::any() || sys::is_no_link(dir, path) {
        return None;
    }
    let mut at: Buffer = [0; libc::PATH_MAX as usize];
    let mut len = absolute(dir, path.to_bytes(), &mut at)?.len();
    for _ in 0..LINKS_MAX {
        let mut target: Buffer = [0; libc::PATH_MAX as usize];
        *at.get_mut(len)? = 0;
        let here = CStr::from_bytes_until_nul(&at).ok()?;
        let target_len = sys::readlink_to(here, &mut target)?;
        let target = &target[..target_len];
        let keep =
            if target.starts_with(b"/") { 0 } else { at[..len].iter().rposition(|&byte| byte == b'/')? + 1 };
        at.get_mut(keep..keep + target_len)?.copy_from_slice(target);
        len = keep + target_len;
        if parse(&at[..len]).is_some_and(|link| !matches!(link, Link::Root(_))) {
            return Some(found(&at[..len]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_descriptors_and_directories_of_this_process() {
        let own = format!("/proc/{}/fd/7", std::process::id());
        for (path, link) in [
            ("/dev/stdin", Link::Descriptor(0, b"")),
            ("//dev/./stderr", Link::Descriptor(2, b"")),
            ("/dev/fd/12/a/b", Link::Descriptor(12, b"/a/b")),
            ("/proc/self/fd/0/", Link::Descriptor(0, b"/")),
            ("/proc/thread-self/cwd/x", Link::Cwd(b"/x")),
            ("/proc/self/root/weft", Link::Root(b"/weft")),
            (&own, Link::Descriptor(7, b"")),
            ("/proc/1/fd/7", Link::Other),
        ] {
            assert_eq!(parse(path.as_bytes()), Some(link), "{path}");
        }
        for path in [
            "/dev/null",
            "/dev/fd",
            "/dev/fd/x",
            "/dev/fd/01",
            "/proc/self/fdinfo/3",
            "/proc/self/exe",
            "/proc/cpuinfo",
        ] {
            assert_eq!(parse(path.as_bytes()), None, "{path}");
        }
    }
}
