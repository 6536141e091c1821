//! Names that a [`Dir`](crate::Dir) accepts.

use std::io;

/// Rejects a name that is absolute, contains `.` or `..`, or has an empty component.
pub(crate) fn check_name(name: &str) -> io::Result<()> {
    let bad = name.contains('\0') || name.split('/').any(|part| matches!(part, "" | "." | ".."));
    if bad {
        let text =
            format!("{name:?} is not a name in a directory tree: parts between / must not be empty, . or ..");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check_name;

    #[test]
    fn names_stay_inside() {
        for good in ["a", "objects/3f/00.1", "..a/b."] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a\0"] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
    }
}
