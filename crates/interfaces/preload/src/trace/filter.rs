//! Selection of the files to trace.

use crate::pathname::below;

/// Directories of programs and system files rather than data.
const SYSTEM: [&[u8]; 13] = [
    b"/proc", b"/sys", b"/dev", b"/run", b"/etc", b"/usr", b"/bin", b"/sbin", b"/lib", b"/lib32", b"/lib64",
    b"/libx32", b"/boot",
];

/// Names of directories that contain programs anywhere.
const CODE: [&[u8]; 6] = [b"site-packages", b"dist-packages", b"node_modules", b".git", b".pyenv", b".venv"];

/// Paths under the requested prefixes; without prefixes, all except those of the system, shared libraries, Python and
/// other code. Weft's mount is always included, the trace directory never.
pub struct Filter {
    mount: Vec<u8>,
    own: Vec<u8>,
    prefixes: Vec<Vec<u8>>,
    /// Device and inode of excluded files: the program's output.
    excluded: Vec<(u64, u64)>,
}

impl Filter {
    pub fn new(prefixes: Option<&[u8]>, mount: &[u8], own: &[u8], excluded: Option<&[u8]>) -> Self {
        let excluded = std::str::from_utf8(excluded.unwrap_or_default()).unwrap_or_default();
        let excluded = excluded.split(',').filter_map(|item| {
            let (device, number) = item.split_once(':')?;
            Some((device.parse().ok()?, number.parse().ok()?))
        });
        let excluded = excluded.collect();
        let trimmed = |path: &[u8]| {
            let len = path.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
            path[..len].to_vec()
        };
        let prefixes = prefixes.unwrap_or_default().split(|&byte| byte == b':');
        let prefixes = prefixes.filter(|prefix| prefix.starts_with(b"/")).map(trimmed).collect();
        Self { mount: mount.to_vec(), own: trimmed(own), prefixes, excluded }
    }

    /// Whether the file with these attributes is eligible: a regular file that is excluded excluded.
    pub fn wants_kind(&self, stat: &libc::stat) -> bool {
        stat.st_mode & libc::S_IFMT == libc::S_IFREG && !self.excluded.contains(&(stat.st_dev, stat.st_ino))
    }

    /// Whether the file at this absolute path is traced.
    pub fn wants(&self, path: &[u8]) -> bool {
        // Memory files and shared memory have names that look like paths.
        let memory = [&b"/memfd:"[..], b"/SYSV"].iter().any(|begin| path.starts_with(begin));
        if !path.starts_with(b"/") || memory || below(&self.own, path).is_some() {
            return false;
        }
        if below(&self.mount, path).is_some() {
            return true;
        }
        if !self.prefixes.is_empty() {
            return self.prefixes.iter().any(|prefix| below(prefix, path).is_some());
        }
        !SYSTEM.iter().any(|dir| below(dir, path).is_some())
            && !is_code(crate::pathname::split(path).1)
            && !crate::pathname::names(path).any(|name| CODE.contains(&name))
    }
}

/// `libx.so`, `libx.so.1`, `x.py`, `x.pyc`
fn is_code(name: &[u8]) -> bool {
    [&b".so"[..], b".py", b".pyc"].iter().any(|end| name.ends_with(end))
        || name.windows(4).any(|part| part == b".so.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_traced_but_system_files_are_not() {
        let filter = Filter::new(None, b"/weft", b"/home/me/run.wtrace.parts/", None);
        for path in
            ["/weft/a", "/weft/lib.so", "/home/me/a", "/home/me/run.wtrace", "/libraries/x", "/tmp/so"]
        {
            assert!(filter.wants(path.as_bytes()), "{path}");
        }
        for path in [
            "/home/me/run.wtrace.parts/x",
            "/lib/x",
            "/proc/self/maps",
            "/opt/lib/libhdf5.so.310",
            "/home/me/a.so",
            "/home/me/a.py",
            "/home/me/env/lib/python3.12/site-packages/x/data",
            "/home/me/__pycache__/a.cpython-312.pyc",
            "/memfd:x (deleted)",
            "relative",
            "",
        ] {
            assert!(!filter.wants(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn prefixes_select_only_paths_below_them() {
        let filter = Filter::new(Some(b"/etc:/data/:"), b"/weft", b"/t", None);
        for path in ["/etc/passwd", "/data/x", "/weft/x"] {
            assert!(filter.wants(path.as_bytes()), "{path}");
        }
        for path in ["/database", "/home/x", "/t/x"] {
            assert!(!filter.wants(path.as_bytes()), "{path}");
        }
    }
}
