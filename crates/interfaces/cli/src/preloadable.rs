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
use weft_config::elf::{self, Hindrance};

/// Maximum depth of scripts whose interpreter is a script.
const INTERPRETERS_MAX: usize = 4;

/// Returns the executable of `program` and why the library cannot be loaded into it, or `None` if it can.
pub fn hindrance(program: &OsStr) -> Option<(PathBuf, Hindrance)> {
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
        if is_privileged(&path, &file.metadata().ok()?) {
            return Some((path, Hindrance::Privileged));
        }
        let why = elf::hindrance(path.as_os_str(), &head, |bytes, at| file.read_exact_at(bytes, at).ok())?;
        return Some((path, why));
    }
    None
}

/// Whether only a program with the preload library finds `program`: by a path below `mount`, or along PATH there.
pub fn is_below(mount: &Path, program: &OsStr) -> bool {
    let is_path = program.as_bytes().contains(&b'/');
    let on_path = || {
        std::env::var_os("PATH")
            .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.starts_with(mount)))
    };
    if is_path { Path::new(program).starts_with(mount) } else { found(program).is_none() && on_path() }
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

/// Returns the executable of `program` and its dynamic loader. `None` for scripts and statically linked programs.
pub fn loader(program: &OsStr) -> Option<(PathBuf, PathBuf)> {
    let path = found(program)?;
    let file = File::open(&path).ok()?;
    let mut head = Vec::new();
    (&file).take(256).read_to_end(&mut head).ok()?;
    let loader = elf::loader(&head, |bytes, at| file.read_exact_at(bytes, at).ok())??;
    Some((path, OsStr::from_bytes(&loader).into()))
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
}
