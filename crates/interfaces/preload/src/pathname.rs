//! Lexical operations on paths, without access to a file system.

/// Normalizes `text`: removes `//` and `.`, but keeps `..`, because only a walk knows where a symbolic link leads.
/// Returns `None` if it lexically climbs above the root. The result starts with a slash and has no trailing slash
/// unless it is the root.
pub fn tidy(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() + 1);
    let mut depth = 0usize;
    for name in names(text) {
        if name == b".." {
            depth = depth.checked_sub(1)?;
        } else {
            depth += 1;
        }
        out.push(b'/');
        out.extend_from_slice(name);
    }
    if out.is_empty() {
        out.push(b'/');
    }
    Some(out)
}

/// Removes `//`, `.` and `..` from `text` lexically; above the root is the root.
pub fn fold(text: &[u8]) -> Vec<u8> {
    let mut kept: Vec<&[u8]> = Vec::new();
    for name in names(text) {
        if name == b".." {
            kept.pop();
        } else {
            kept.push(name);
        }
    }
    let mut out = Vec::with_capacity(text.len() + 1);
    for name in kept {
        out.push(b'/');
        out.extend_from_slice(name);
    }
    if out.is_empty() {
        out.push(b'/');
    }
    out
}

/// Returns the components of a path, without empty ones and `.`.
pub fn names(text: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    text.split(|&byte| byte == b'/').filter(|name| !name.is_empty() && *name != b".")
}

/// Returns the last component of a path, which may be `.` or `..`; `None` of the root.
pub fn last_name(text: &[u8]) -> Option<&[u8]> {
    text.split(|&byte| byte == b'/').rfind(|name| !name.is_empty())
}

/// Returns the part of `path` below `mount` (starting with a slash, or empty for the mount itself); `None` outside.
#[inline]
pub fn below<'a>(mount: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(mount)?;
    (rest.is_empty() || rest[0] == b'/').then_some(rest)
}

/// Whether `path`, with `//`, `.` and `..` removed lexically, is `mount` or lies below it. Does not allocate.
pub fn folds_below(mount: &[u8], path: &[u8]) -> bool {
    leads_below(mount, [path])
}

/// Like [`folds_below`] for the concatenation of paths.
pub fn leads_below<'a>(mount: &[u8], parts: impl IntoIterator<Item = &'a [u8]>) -> bool {
    let wanted = names(mount).count();
    // Number of components so far, and number of leading ones that match the mount's.
    let (mut depth, mut common) = (0, 0);
    for name in parts.into_iter().flat_map(names) {
        if name == b".." {
            depth = usize::saturating_sub(depth, 1);
            common = depth.min(common);
        } else {
            if common == depth && names(mount).nth(depth) == Some(name) {
                common += 1;
            }
            depth += 1;
        }
    }
    common == wanted
}

/// Whether the end of the path requires a directory.
pub fn wants_directory(path: &[u8]) -> bool {
    path.ends_with(b"/") || path.ends_with(b"/.") || path == b"." || path == b".." || path.ends_with(b"/..")
}

/// Joins `dir` and `rest` with one slash.
pub fn join(dir: &[u8], rest: &[u8]) -> Vec<u8> {
    let mut out = dir.to_vec();
    if !out.ends_with(b"/") {
        out.push(b'/');
    }
    out.extend_from_slice(rest.strip_prefix(b"/").unwrap_or(rest));
    out
}

/// Splits a path into the part before its last component, and that component.
pub fn split(text: &[u8]) -> (&[u8], &[u8]) {
    match text.iter().rposition(|&byte| byte == b'/') {
        Some(0) => (b"/", &text[1..]),
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (b".", text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tidy_keeps_climbing_inside_and_rejects_it_outside() {
        assert_eq!(tidy(b"").unwrap(), b"/");
        assert_eq!(tidy(b"/a//b/./c/").unwrap(), b"/a/b/c");
        assert_eq!(tidy(b"/a/../b").unwrap(), b"/a/../b");
        assert_eq!(tidy(b"/a/../.."), None);
        assert_eq!(tidy(b"/.."), None);
    }

    #[test]
    fn fold_is_lexical() {
        assert_eq!(fold(b"/a/../../etc//x/."), b"/etc/x");
        assert_eq!(fold(b"/.."), b"/");
    }

    #[test]
    fn the_mount_is_a_whole_name() {
        assert_eq!(below(b"/weft", b"/weft/x"), Some(&b"/x"[..]));
        assert_eq!(below(b"/weft", b"/weft"), Some(&b""[..]));
        assert_eq!(below(b"/weft", b"/wefty/x"), None);
        assert_eq!(below(b"/weft", b"/wef"), None);
    }

    #[test]
    fn folding_without_allocation_agrees_with_folding() {
        let parts: [&[u8]; 7] = [b"a", b"b", b"ab", b"..", b".", b"", b"c"];
        for mount in [&b"/a"[..], b"/a/b", b"/ab/a/c"] {
            for number in 0..7usize.pow(6) {
                let path: Vec<u8> = (0..6).fold(Vec::new(), |mut path, place| {
                    path.push(b'/');
                    path.extend_from_slice(parts[number / 7usize.pow(place) % 7]);
                    path
                });
                let expected = below(mount, &fold(&path)).is_some();
                assert_eq!(folds_below(mount, &path), expected, "{}", String::from_utf8_lossy(&path));
            }
        }
    }

    #[test]
    fn ends_that_require_directories() {
        for path in [&b"a/"[..], b"a/.", b".", b"..", b"a/.."] {
            assert!(wants_directory(path));
        }
        for path in [&b"a"[..], b"a.", b"a/b..", b""] {
            assert!(!wants_directory(path));
        }
    }
}
