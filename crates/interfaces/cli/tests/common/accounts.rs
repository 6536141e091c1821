//! Users that a test makes for itself.

use super::skip::skip;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Runs `test` where each user id of `users` has its name, beside the users of this machine.
///
/// It runs on a thread with a mount namespace of its own, in which a private file replaces /etc/passwd. Programs that it
/// starts are in this namespace as well, which ends with them. Mounts of `test` are visible to the thread and its
/// programs only. The caller is root.
pub fn with(users: &[(&str, u32)], test: impl FnOnce() + Send) {
    let dir = tempfile::Builder::new().prefix("weft-accounts-").tempdir().expect("a directory");
    let file = dir.path().join("passwd");
    let mut text = std::fs::read_to_string("/etc/passwd").expect("the users of this machine");
    for (name, uid) in users {
        writeln!(text, "{name}:x:{uid}:{uid}::/nonexistent:/bin/sh").expect("text");
    }
    std::fs::write(&file, text).expect("written");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).expect("set");

    let name = std::thread::current().name().unwrap_or("main").to_owned();
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(name).spawn_scoped(scope, || {
            match replace(&file, c"/etc/passwd") {
                Ok(()) => test(),
                Err(error) => skip(format_args!("no mount namespace can be made here: {error}")),
            }
        });
        if let Err(panic) = thread.expect("a thread").join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Moves this thread into a new mount namespace, in which `file` replaces `path`.
fn replace(file: &Path, path: &std::ffi::CStr) -> std::io::Result<()> {
    let file = std::ffi::CString::new(file.as_os_str().as_bytes()).expect("no NUL");
    let mount = |source: Option<&std::ffi::CStr>, target: &std::ffi::CStr, flags| {
        let source = source.map_or(std::ptr::null(), std::ffi::CStr::as_ptr);
        // SAFETY: source is NULL or a C string, target is a C string; both outlive the call. Type and data may be NULL.
        match unsafe { libc::mount(source, target.as_ptr(), std::ptr::null(), flags, std::ptr::null()) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: no preconditions; the call changes this thread alone.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    mount(None, c"/", libc::MS_REC | libc::MS_PRIVATE)?;
    mount(Some(&file), path, libc::MS_BIND)
}
