//! What can go wrong for a caller: each with a POSIX number and a sentence that names path, server and remedy.

use std::fmt;
use weft_core::{ByteLen, FileId, FileOffset, ObjectId, TargetId};
use weft_wire::{Errno, WireError};

/// The result of everything that a client does.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation was not done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// A server answered that it cannot be done.
    Refused(Box<Refused>),
    /// A server could not be reached, or did not answer in time.
    Unreachable(Box<Unreachable>),
    /// This process cannot reach a server for a reason that lies with itself.
    Hindered(Box<Hindered>),
    /// A symbolic link leads out of the namespace: the caller goes on from `target` with `rest` behind it.
    Elsewhere {
        /// The directory in which the link lies, as a path from the root.
        from: Vec<u8>,
        /// What the link says.
        target: Vec<u8>,
        /// What is still to be walked after it.
        rest: Vec<u8>,
    },
    /// Waiting for a lock was interrupted (EINTR).
    Interrupted,
    /// The caller asked for something that its open file or its arguments do not allow.
    Misuse {
        /// What a POSIX caller gets.
        errno: Errno,
        /// Why.
        why: &'static str,
    },
    /// A co-located datafile could not be read or written through its own descriptor.
    Device(Box<Device>),
    /// A datafile is missing or shorter than recorded: bytes of the file are lost.
    Missing(Box<Missing>),
}

/// A server's refusal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Its name in the cluster file.
    pub server: String,
    /// The path or file that it is about; may be empty.
    pub path: Vec<u8>,
    /// What it said.
    pub error: WireError,
}

/// A server that does not answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreachable {
    /// Its name in the cluster file.
    pub server: String,
    /// The address that was tried.
    pub address: String,
    /// What happened.
    pub cause: String,
    /// The path or file that the request was about; may be empty.
    pub path: Vec<u8>,
}

/// What keeps this process from a server that may be well.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hindered {
    /// Its name in the cluster file.
    pub server: String,
    /// The address that was tried.
    pub address: String,
    /// What the operating system said.
    pub errno: Errno,
    /// The path or file that the request was about; may be empty.
    pub path: Vec<u8>,
}

impl Hindered {
    /// What to do about it.
    fn remedy(&self) -> &'static str {
        match self.errno {
            Errno::EMFILE => {
                "this process has all of its descriptors in use: raise its limit of open files (ulimit -n), or have it \
                 close some"
            }
            Errno::ENFILE => "this machine has all of its descriptors in use: raise fs.file-max",
            _ => {
                "only some users may use the server's socket: run the program as the user who runs the server, or open \
                 the folder of the socket to others"
            }
        }
    }
}

/// An error of a leased datafile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    /// The server that leased it.
    pub server: String,
    /// Which datafile.
    pub datafile: String,
    /// The path or file that it is about.
    pub path: Vec<u8>,
    /// What the operating system said.
    pub errno: Errno,
}

/// Bytes of a file that are recorded and not there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing {
    /// The server of the datafile, by its name in the cluster file.
    pub server: String,
    /// The target of the datafile.
    pub target: TargetId,
    /// The file of the datafile, by the name of its datafiles.
    pub file: FileId,
    /// The datafile among those of the file.
    pub object: ObjectId,
    /// Length of the datafile.
    pub held: ByteLen,
    /// Recorded length of the datafile.
    pub recorded: ByteLen,
    /// Lost bytes of the file: the first one that was asked for, and one past the last one that the datafile had.
    pub range: (FileOffset, FileOffset),
    /// The path or file that it is about; may be empty.
    pub path: Vec<u8>,
}

impl Error {
    /// What a POSIX caller gets.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Refused(refused) => refused.error.errno.0,
            Self::Unreachable(_) => Errno::EIO.0,
            Self::Hindered(hindered) => hindered.errno.0,
            // An interface that cannot follow the link says so as for one that leads nowhere.
            Self::Elsewhere { .. } => Errno::EXDEV.0,
            Self::Interrupted => Errno::EINTR.0,
            Self::Misuse { errno, .. } => errno.0,
            Self::Device(device) => device.errno.0,
            Self::Missing(_) => Errno::EIO.0,
        }
    }

    pub(crate) const fn misuse(errno: Errno, why: &'static str) -> Self {
        Self::Misuse { errno, why }
    }

    /// The same error about `path`, unless it names one already.
    #[must_use]
    pub fn about(mut self, path: &[u8]) -> Self {
        if let Some(place) = self.path_mut().filter(|place| place.is_empty()) {
            place.extend_from_slice(path);
        }
        self
    }

    /// The same error, with what it leaves behind.
    pub(crate) fn and(mut self, more: &str) -> Self {
        let text = match &mut self {
            Self::Refused(refused) => &mut refused.error.detail,
            Self::Unreachable(unreachable) => &mut unreachable.cause,
            _ => return self,
        };
        if !text.is_empty() {
            text.push_str("; ");
        }
        text.push_str(more);
        self
    }

    /// The same error for somebody who names the path himself.
    #[must_use]
    pub fn without_path(mut self) -> Self {
        if let Some(place) = self.path_mut() {
            place.clear();
        }
        self
    }

    /// The path that it is about, if it names one.
    pub fn path(&self) -> Option<&[u8]> {
        let path = match self {
            Self::Refused(refused) => &refused.path,
            Self::Unreachable(unreachable) => &unreachable.path,
            Self::Hindered(hindered) => &hindered.path,
            Self::Device(device) => &device.path,
            Self::Missing(missing) => &missing.path,
            Self::Elsewhere { .. } | Self::Interrupted | Self::Misuse { .. } => return None,
        };
        (!path.is_empty()).then_some(path)
    }

    fn path_mut(&mut self) -> Option<&mut Vec<u8>> {
        match self {
            Self::Refused(refused) => Some(&mut refused.path),
            Self::Unreachable(unreachable) => Some(&mut unreachable.path),
            Self::Hindered(hindered) => Some(&mut hindered.path),
            Self::Device(device) => Some(&mut device.path),
            Self::Missing(missing) => Some(&mut missing.path),
            Self::Elsewhere { .. } | Self::Interrupted | Self::Misuse { .. } => None,
        }
    }
}

/// `path: ` or nothing.
struct About<'a>(&'a [u8]);

impl fmt::Display for About<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "{}: ", String::from_utf8_lossy(self.0)) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(r) => write!(f, "{}{} (from server {})", About(&r.path), r.error, r.server),
            Self::Unreachable(u) => write!(
                f,
                "{}server {} at {} does not answer: {}; see whether it runs with 'weft status' and start it with \
                 'weft serve'",
                About(&u.path),
                u.server,
                u.address,
                u.cause
            ),
            Self::Hindered(h) => write!(
                f,
                "{}cannot connect to server {} at {}: {}; {}",
                About(&h.path),
                h.server,
                h.address,
                std::io::Error::from_raw_os_error(h.errno.0),
                h.remedy()
            ),
            Self::Elsewhere { from, target, .. } => write!(
                f,
                "a symbolic link in /{} leads out of the namespace, to {}",
                String::from_utf8_lossy(from),
                String::from_utf8_lossy(target)
            ),
            Self::Interrupted => f.write_str("interrupted while waiting for a lock"),
            Self::Misuse { errno, why } => write!(f, "{why} ({errno})"),
            Self::Device(d) => write!(
                f,
                "{}datafile {} of server {}: {} ({}); 'weft status' shows room and state of its target",
                About(&d.path),
                d.datafile,
                d.server,
                std::io::Error::from_raw_os_error(d.errno.0),
                d.errno
            ),
            Self::Missing(m) => write!(
                f,
                "{}bytes {} to {} are lost: datafile {}.{} on target {} of server {} has {} of {} bytes; see 'weft fsck' \
                 for all that is lost, and restore the target's disk, or the file from a copy",
                About(&m.path),
                m.range.0.0,
                m.range.1.0,
                m.file,
                m.object,
                m.target.0,
                m.server,
                m.held.0,
                m.recorded.0
            ),
        }
    }
}

impl std::error::Error for Error {}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        // Kind by number, sentence by Display.
        let kind = std::io::Error::from_raw_os_error(error.errno()).kind();
        std::io::Error::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreachable_server_is_named_with_its_address_and_the_remedy() {
        let error = Error::Unreachable(Box::new(Unreachable {
            server: "s2".into(),
            address: "tcp:node7:4000".into(),
            cause: "connection refused".into(),
            path: vec![],
        }));
        let text = error.clone().about(b"a/b").to_string();
        for part in ["a/b: ", "s2", "tcp:node7:4000", "connection refused", "weft status"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(error.errno(), 5);
    }

    #[test]
    fn what_hinders_this_process_is_not_blamed_on_the_server() {
        for (errno, remedy) in [
            (Errno::EMFILE, "ulimit -n"),
            (Errno::ENFILE, "fs.file-max"),
            (Errno::EACCES, "as the user who runs the server"),
        ] {
            let hindered =
                Hindered { server: "s2".into(), address: "unix:/run/s2".into(), errno, path: vec![] };
            let error = Error::Hindered(Box::new(hindered)).about(b"a/b");
            let text = error.to_string();
            assert!(text.starts_with("a/b: cannot connect to server s2 at unix:/run/s2: "), "{text}");
            assert!(text.contains(remedy) && !text.contains("weft status"), "{text}");
            assert_eq!(error.errno(), errno.0);
        }
    }

    #[test]
    fn lost_bytes_are_named_with_their_target_and_the_remedy() {
        let missing = Missing {
            server: "s1".into(),
            target: TargetId(3),
            file: FileId(42),
            object: ObjectId { component: 0, column: 1 },
            held: ByteLen(0),
            recorded: ByteLen(65_536),
            range: (FileOffset(65_536), FileOffset(131_072)),
            path: vec![],
        };
        let error = Error::Missing(Box::new(missing)).about(b"a/b");
        let text = error.to_string();
        let parts =
            ["a/b: bytes 65536 to 131072", "a.0.1 on target 3 of server s1 has 0 of 65536", "weft fsck"];
        for part in parts {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(error.errno(), 5);
    }

    #[test]
    fn the_first_path_stays() {
        let refused = Refused { server: "s0".into(), path: b"x".to_vec(), error: Errno::ENOENT.into() };
        let error = Error::Refused(Box::new(refused)).about(b"y");
        assert_eq!(error.to_string(), "x: ENOENT (from server s0)");
        assert_eq!(error.errno(), 2);
    }
}
