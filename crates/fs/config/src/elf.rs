//! Programs into which no preload library can be loaded, by their ELF headers.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

/// Bytes of a file that [`loader`] and [`hindrance`] need at once.
pub const HEAD_LEN: usize = 64;
/// Maximum number of program headers that are read.
const HEADERS_MAX: u64 = 128;
/// Maximum length of a loader's path, with its zero.
const PATH_LEN_MAX: u64 = 4096;

/// Why the preload library cannot be loaded into a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hindrance {
    /// The program is statically linked.
    Static,
    /// The program uses the C library musl.
    Musl,
    /// The program runs with more privileges than its caller.
    Privileged,
}

impl fmt::Display for Hindrance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Static => "it is statically linked, so no library can be loaded into it",
            Self::Musl => "it is linked with musl, and the preload library with glibc",
            Self::Privileged => {
                "it runs with other privileges than yours, so the system loads no library into it"
            }
        })
    }
}

/// Returns the dynamic loader of a 64-bit program, if it has one. `None` if the file is not such a program. `head` has the
/// first [`HEAD_LEN`] bytes, and `read` fills a buffer from an offset.
pub fn loader(head: &[u8], read: impl Fn(&mut [u8], u64) -> Option<()>) -> Option<Option<Vec<u8>>> {
    const PT_INTERP: u32 = 3;
    const CLASS_64_LITTLE: [u8; 6] = *b"\x7fELF\x02\x01";
    head.strip_prefix(&CLASS_64_LITTLE)?;
    let u16_at = |at: usize| Some(u64::from(u16::from_le_bytes(head.get(at..at + 2)?.try_into().ok()?)));
    let table = u64::from_le_bytes(head.get(32..40)?.try_into().ok()?);
    let (len, count) = (u16_at(54)?, u16_at(56)?.min(HEADERS_MAX));
    for index in 0..count {
        let at = table.checked_add(index * len)?;
        let mut header = [0; 40];
        read(&mut header, at)?;
        if header[..4] != PT_INTERP.to_le_bytes() {
            continue;
        }
        let u64_at = |at: usize| Some(u64::from_le_bytes(header.get(at..at + 8)?.try_into().ok()?));
        let (offset, len) = (u64_at(8)?, u64_at(32)?);
        let mut name = vec![0; usize::try_from(len).ok().filter(|_| len <= PATH_LEN_MAX)?];
        read(&mut name, offset)?;
        return Some(Some(name.strip_suffix(b"\0")?.to_owned()));
    }
    Some(None)
}

/// Returns why the preload library cannot be loaded into the program at `path`; `None` if it can, or if the file is not a
/// 64-bit program. `head` and `read` are those of [`loader`].
pub fn hindrance(
    path: &OsStr,
    head: &[u8],
    read: impl Fn(&mut [u8], u64) -> Option<()>,
) -> Option<Hindrance> {
    match loader(head, read)? {
        // A dynamic loader that is run with a program as argument loads libraries into it.
        None if file_name(path.as_bytes()).starts_with(b"ld-") => None,
        None => Some(Hindrance::Static),
        Some(loader) if file_name(&loader).starts_with(b"ld-musl") => Some(Hindrance::Musl),
        Some(_) => None,
    }
}

fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a program with one header of kind `PT_LOAD` and, with a loader, one of kind `PT_INTERP`.
    fn program(loader: Option<&[u8]>) -> Vec<u8> {
        let mut bytes = vec![0; HEAD_LEN];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[32..40].copy_from_slice(&64u64.to_le_bytes());
        bytes[54..56].copy_from_slice(&56u16.to_le_bytes());
        bytes[56..58].copy_from_slice(&(1 + u16::from(loader.is_some())).to_le_bytes());
        let mut header = |kind: u32, offset: u64, len: u64| {
            let begin = bytes.len();
            bytes.resize(begin + 56, 0);
            bytes[begin..begin + 4].copy_from_slice(&kind.to_le_bytes());
            bytes[begin + 8..begin + 16].copy_from_slice(&offset.to_le_bytes());
            bytes[begin + 32..begin + 40].copy_from_slice(&len.to_le_bytes());
        };
        header(1, 0, 64);
        if let Some(loader) = loader {
            header(3, 64 + 2 * 56, loader.len() as u64);
            bytes.extend_from_slice(loader);
        }
        bytes
    }

    fn judged(path: &str, bytes: &[u8]) -> Option<Hindrance> {
        let read = |buffer: &mut [u8], at: u64| {
            let at = usize::try_from(at).ok()?;
            buffer.copy_from_slice(bytes.get(at..at.checked_add(buffer.len())?)?);
            Some(())
        };
        hindrance(OsStr::new(path), &bytes[..HEAD_LEN.min(bytes.len())], read)
    }

    #[test]
    fn static_programs_and_those_of_musl_are_named() {
        assert_eq!(judged("/bin/a", &program(Some(b"/lib64/ld-linux-x86-64.so.2\0"))), None);
        assert_eq!(judged("/bin/a", &program(Some(b"/lib/ld-musl-x86_64.so.1\0"))), Some(Hindrance::Musl));
        assert_eq!(judged("/bin/a", &program(None)), Some(Hindrance::Static));
        assert_eq!(judged("/lib64/ld-linux-x86-64.so.2", &program(None)), None, "a loader");
        assert_eq!(judged("/bin/a", b"#!/bin/sh\n"), None);
    }

    #[test]
    fn a_cut_or_wild_header_is_not_judged() {
        let whole = program(Some(b"/lib/ld-musl-x86_64.so.1\0"));
        for len in 0..whole.len() {
            assert_eq!(judged("/bin/a", &whole[..len]), None, "{len} bytes");
        }
        let mut wild = whole.clone();
        wild[32..40].fill(0xff);
        assert_eq!(judged("/bin/a", &wild), None, "headers beyond the end");
        let mut wild = whole;
        wild[64 + 56 + 32..64 + 56 + 40].fill(0xff);
        assert_eq!(judged("/bin/a", &wild), None, "a name beyond the end");
    }
}
