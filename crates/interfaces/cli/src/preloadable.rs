//! Detects programs into which the dynamic loader will not load the preload library.
//!
//! Only the program itself and the interpreter of a script are checked, not the programs they start. In doubt there is
//! no warning: it is for a mistake that otherwise appears as "/weft: No such file".

use std::ffi::{CString, OsStr};
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Maximum depth of scripts whose interpreter is a script.
const INTERPRETERS_MAX: usize = 4;
/// Maximum number of program headers that are read.
const HEADERS_MAX: u64 = 128;

/// Why the library cannot be loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// The program is statically linked.
    Static,
    /// The program runs with more privileges than its caller.
    Privileged,
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Static => "it is statically linked, so no library can be loaded into it",
            Self::Privileged => {
                "it runs with other privileges than yours, so the system loads no library into it"
            }
        })
    }
}

/// Returns the executable of `program` and why the library cannot be loaded into it, or `None` if it can.
pub fn hindrance(program: &OsStr) -> Option<(PathBuf, Why)> {
    let mut path = found(program)?;
    for _ in 0..INTERPRETERS_MAX {
        let file = File::open(&path).ok()?;
        let mut head = Vec::new();
        (&file).take(256).read_to_end(&mut head).ok()?;
        if let Some(line) = head.strip_prefix(b"#!") {
            // The system ignores set-id bits of scripts.
            path = interpreter(line)?;
            continue;
        }
        let why = if is_privileged(&path, &file.metadata().ok()?) {
            Why::Privileged
        } else if is_static(&head, &file)? {
            Why::Static
        } else {
            return None;
        };
        return Some((path, why));
    }
    None
}

/// Searches for a program like `execvp`.
fn found(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|path| path.is_file())
}

fn interpreter(line: &[u8]) -> Option<PathBuf> {
    let line = line.split(|byte| *byte == b'\n').next()?.trim_ascii();
    let name = line.split(|byte| byte.is_ascii_whitespace()).next()?;
    (!name.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(name)))
}

fn is_privileged(path: &Path, meta: &Metadata) -> bool {
    // SAFETY: these calls take no arguments and cannot fail.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    let set_uid = meta.mode() & libc::S_ISUID != 0 && meta.uid() != uid;
    // Without the group's execute bit, the set-group-id bit has another meaning.
    let both = libc::S_ISGID | libc::S_IXGRP;
    let set_gid = meta.mode() & both == both && meta.gid() != gid;
    set_uid || set_gid || uid != 0 && has_capabilities(path)
}

fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    let name = c"security.capability";
    // SAFETY: both names are C strings, and a length of 0 only asks for the length.
    unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

/// Whether a 64-bit program has no loader. `None` if the file is not such a program.
fn is_static(head: &[u8], file: &File) -> Option<bool> {
    Some(loader_at(head, file)?.is_none())
}

/// Returns offset and length of the loader's path in a 64-bit program, if the program has one. `None` if the file is not
/// such a program.
fn loader_at(head: &[u8], file: &File) -> Option<Option<(u64, u64)>> {
    const PT_INTERP: u32 = 3;
    const CLASS_64_LITTLE: [u8; 6] = *b"\x7fELF\x02\x01";
    head.strip_prefix(&CLASS_64_LITTLE)?;
    let u16_at = |at: usize| Some(u64::from(u16::from_le_bytes(head.get(at..at + 2)?.try_into().ok()?)));
    let table = u64::from_le_bytes(head.get(32..40)?.try_into().ok()?);
    let (len, count) = (u16_at(54)?, u16_at(56)?.min(HEADERS_MAX));
    for index in 0..count {
        let at = table.checked_add(index * len)?;
        let mut kind = [0; 4];
        file.read_exact_at(&mut kind, at).ok()?;
        if u32::from_le_bytes(kind) == PT_INTERP {
            let field = |offset: u64| {
                let mut value = [0; 8];
                file.read_exact_at(&mut value, at.checked_add(offset)?).ok()?;
                Some(u64::from_le_bytes(value))
            };
            return Some(Some((field(8)?, field(32)?)));
        }
    }
    Some(None)
}

/// Returns the executable of `program` and its dynamic loader. `None` for scripts and statically linked programs.
pub fn loader(program: &OsStr) -> Option<(PathBuf, PathBuf)> {
    let path = found(program)?;
    let file = File::open(&path).ok()?;
    let mut head = Vec::new();
    (&file).take(256).read_to_end(&mut head).ok()?;
    let (offset, len) = loader_at(&head, &file)??;
    let mut name = vec![0; usize::try_from(len).ok().filter(|len| *len <= libc::PATH_MAX as usize)?];
    file.read_exact_at(&mut name, offset).ok()?;
    let name = name.strip_suffix(b"\0")?;
    Some((path, OsStr::from_bytes(name).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_with_a_loader_are_fine_and_what_is_no_program_is_not_judged() {
        assert_eq!(hindrance(OsStr::new("sh")), None);
        assert_eq!(hindrance(OsStr::new("/bin/true")), None);
        assert_eq!(hindrance(OsStr::new("no-such-program")), None);
        assert_eq!(hindrance(OsStr::new("/dev/null")), None);
        assert_eq!(interpreter(b" /bin/sh -e\nexit"), Some("/bin/sh".into()));
        assert_eq!(interpreter(b"\n"), None);
    }

    #[test]
    fn a_dynamic_program_has_a_loader() {
        let (program, loader) = loader(OsStr::new("true")).expect("a loader");
        assert!(program.ends_with("true") && loader.is_file(), "{}", loader.display());
        assert_eq!(super::loader(OsStr::new("/dev/null")), None);
    }

    #[test]
    fn a_cut_or_wild_header_is_not_judged() {
        let mut file = tempfile::tempfile().expect("a file");
        let mut head = std::fs::read("/bin/true").expect("read")[..64].to_vec();
        for len in 0..64 {
            assert_eq!(is_static(&head[..len.min(head.len())], &file), None, "{len} bytes");
        }
        std::io::Write::write_all(&mut file, &head).expect("written");
        head[32..40].fill(0xff);
        assert_eq!(is_static(&head, &file), None, "headers beyond the end");
    }
}
