//! Directories that no other user may change: state directories and directories of sockets.

use crate::error::ConfigError;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Permission to write for the group and for others.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Rejects a directory that another user owns or may write: that user could replace files in it, including keys and
/// sockets. Directories of root are accepted, and so is a missing directory.
///
/// # Errors
/// An error with the path, the owner or mode, and the remedy.
pub fn check_private_dir(dir: &Path) -> Result<(), ConfigError> {
    let refuse = |problem: String, remedy: String| Err(ConfigError::whole(dir, problem, remedy));
    let meta = match std::fs::metadata(dir) {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            return refuse(format!("cannot be examined: {error}"), "name another directory".into());
        }
    };
    let shown = dir.display();
    // SAFETY: geteuid has no preconditions and cannot fail.
    let uid = unsafe { libc::geteuid() };
    if !meta.is_dir() {
        return refuse("is not a directory".into(), "name a directory".into());
    }
    if meta.uid() != uid && meta.uid() != 0 {
        return refuse(
            format!("belongs to user {}, who could replace the files of user {uid} there", meta.uid()),
            format!("give it to user {uid} (`chown {uid} {shown}`) or name another directory"),
        );
    }
    if meta.mode() & WRITABLE_BY_OTHERS != 0 {
        return refuse(
            format!(
                "other users may write there (mode {:o}) and replace the files of user {uid}",
                meta.mode() & 0o7777
            ),
            format!("remove that permission (`chmod go-w {shown}`) or name another directory"),
        );
    }
    Ok(())
}

#[cfg(test)]
#[allow(dead_code)] // A part is used.
#[path = "../../../interfaces/cli/tests/common/skip.rs"]
mod skip;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_directory_that_others_may_write_is_rejected_with_a_remedy() {
        let dir = tempfile::tempdir().expect("a directory");
        let state = dir.path().join("state");
        check_private_dir(&state).expect("a missing directory is created later");
        std::fs::create_dir(&state).expect("created");
        let link = dir.path().join("link");
        symlink(&state, &link).expect("a link");
        for (mode, is_good) in
            [(0o700, true), (0o755, true), (0o775, false), (0o757, false), (0o1777, false), (0o500, true)]
        {
            std::fs::set_permissions(&state, Permissions::from_mode(mode)).expect("set");
            for path in [&state, &link] {
                let checked = check_private_dir(path);
                assert_eq!(checked.is_ok(), is_good, "{mode:o}: {checked:?}");
                if let Err(error) = checked {
                    let message = error.to_string();
                    assert!(
                        message.contains(&format!("{mode:o}")) && message.contains("chmod go-w"),
                        "{message}"
                    );
                }
            }
        }
        std::fs::remove_dir(&state).expect("removed");
        std::fs::write(&state, "").expect("a file");
        assert!(check_private_dir(&state).is_err());
    }

    #[test]
    fn a_directory_of_another_user_is_rejected() {
        if !skip::unless_root("changing the owner of a directory") {
            return;
        }
        let dir = tempfile::tempdir().expect("a directory");
        std::os::unix::fs::chown(dir.path(), Some(4321), None).expect("given away");
        let error = check_private_dir(dir.path()).expect_err("rejected").to_string();
        assert!(error.contains("belongs to user 4321") && error.contains("chown 0"), "{error}");
    }
}
