//! The names that a [`Dir`](crate::Dir) takes.

use std::io;

/// Refuses a name that is not relative, climbs, or is empty in any part.
pub(crate) fn check_name(name: &str) -> io::Result<()> {
    let bad = name.contains('\0') || name.split('/').any(|part| matches!(part, "" | "." | ".."));
    if bad {
        let text =
            format!("{name:?} is no name in a directory tree: parts between / must not be empty, . or ..");
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
