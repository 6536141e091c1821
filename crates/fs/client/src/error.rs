//! Errors of the client. Each has a POSIX error number and a message that names path, server and remedy.

use std::fmt;
use weft_core::{ByteLen, FileId, FileOffset, ObjectId, TargetId};
use weft_wire::{Errno, WireError};

/// Result of the client's operations.
pub type Result<T> = std::result::Result<T, Error>;

/// Reason why an operation failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// A server refused the request.
    Refused(Box<Refused>),
    /// A server could not be reached, or did not answer in time.
    Unreachable(Box<Unreachable>),
    /// This process cannot connect to a server for a local reason: no descriptor is left, or the permission is
    /// missing.
    LocalFailure(Box<LocalFailure>),
    /// A symbolic link leads out of the namespace. The caller continues at `target`, followed by `rest`.
    ExternalLink {
        /// Path of the directory that contains the link, from the root.
        from: Vec<u8>,
        /// Target of the link.
        target: Vec<u8>,
        /// Path components that follow the link.
        rest: Vec<u8>,
    },
    /// Waiting for a lock, or for a server that does not answer, was interrupted (EINTR).
    Interrupted,
    /// The open file or the arguments do not allow the operation.
    Misuse {
        /// POSIX error number.
        errno: Errno,
        /// Reason.
        why: &'static str,
    },
    /// A leased datafile could not be read or written through its descriptor.
    Device(Box<Device>),
    /// A datafile is missing or shorter than recorded, so bytes of the file are lost.
    Missing(Box<Missing>),
    /// A file of the host's own file systems could not be used.
    Host(Box<HostFailure>),
    /// An I/O delegate could not be reached, or reported an error.
    Delegate(Box<DelegateFailure>),
    /// A replica of a file could not be used.
    Replica(Box<ReplicaFailure>),
}

/// Error of a replica.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaFailure {
    /// Path of the replica.
    pub replica: String,
    /// POSIX error number.
    pub errno: Errno,
    /// Reason and remedy for a person.
    pub why: String,
}

/// Error of a file of the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostFailure {
    /// Path of the file.
    pub path: Vec<u8>,
    /// Error of the operating system.
    pub errno: Errno,
}

/// Error of an I/O delegate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DelegateFailure {
    /// Name of the delegate, such as `delegate 1`.
    pub delegate: String,
    /// Path of the request; may be empty.
    pub path: Vec<u8>,
    /// Error number and reason.
    pub error: WireError,
}

/// A server's refusal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Server's name in the cluster file.
    pub server: String,
    /// Path of the request; may be empty.
    pub path: Vec<u8>,
    /// Error that the server returned.
    pub error: WireError,
}

/// A server that does not answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreachable {
    /// Server's name in the cluster file.
    pub server: String,
    /// Addresses that were tried.
    pub address: String,
    /// Description of the failure for a person.
    pub cause: String,
    /// Path of the request; may be empty.
    pub path: Vec<u8>,
}

/// A local reason why this process cannot connect to a server, which itself may be well.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocalFailure {
    /// Server's name in the cluster file.
    pub server: String,
    /// Addresses that were tried.
    pub address: String,
    /// Error of the operating system.
    pub errno: Errno,
    /// Path of the request; may be empty.
    pub path: Vec<u8>,
}

impl LocalFailure {
    /// Remedy for a person.
    fn remedy(&self) -> &'static str {
        match self.errno {
            Errno::EMFILE => {
                "all descriptors of this process are in use: raise its limit of open files (ulimit -n), or close some \
                 files"
            }
            Errno::ENFILE => "all descriptors of this machine are in use: raise fs.file-max",
            _ => {
                "this user may not use the server's socket: run the program as the user who runs the server, or give \
                 other users access to the socket's folder"
            }
        }
    }
}

/// Error of I/O on a leased datafile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    /// Server that granted the lease.
    pub server: String,
    /// Name of the datafile.
    pub datafile: String,
    /// Path of the open file.
    pub path: Vec<u8>,
    /// Error of the operating system.
    pub errno: Errno,
}

/// Bytes of a file that are recorded but no longer there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing {
    /// Name of the datafile's server in the cluster file.
    pub server: String,
    /// Target of the datafile.
    pub target: TargetId,
    /// File id in the datafile's name.
    pub file: FileId,
    /// Datafile within the file.
    pub object: ObjectId,
    /// Current length of the datafile.
    pub held: ByteLen,
    /// Recorded length of the datafile.
    pub recorded: ByteLen,
    /// Lost bytes of the file: the first one requested, and the offset after the last one that the datafile had.
    pub range: (FileOffset, FileOffset),
    /// Path of the request; may be empty.
    pub path: Vec<u8>,
}

impl Error {
    /// Returns the POSIX error number.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Refused(refused) => refused.error.errno.0,
            Self::Unreachable(_) => Errno::EIO.0,
            Self::LocalFailure(failure) => failure.errno.0,
            // For interfaces that cannot follow the link.
            Self::ExternalLink { .. } => Errno::EXDEV.0,
            Self::Interrupted => Errno::EINTR.0,
            Self::Misuse { errno, .. } => errno.0,
            Self::Device(device) => device.errno.0,
            Self::Missing(_) => Errno::EIO.0,
            Self::Host(failure) => failure.errno.0,
            Self::Delegate(failure) => failure.error.errno.0,
            Self::Replica(failure) => failure.errno.0,
        }
    }

    pub(crate) const fn misuse(errno: Errno, why: &'static str) -> Self {
        Self::Misuse { errno, why }
    }

    /// Error for a server's reply that does not fit the request.
    pub(crate) fn unexpected_reply() -> Self {
        const WHY: &str = "a server's reply does not fit its request; install the same Weft on both, or versions that follow each other";
        Self::misuse(Errno::EPROTO, WHY)
    }

    /// Error of an operation whose layout version is not the one that the capability is for.
    pub(crate) fn stale_layout() -> Self {
        Self::misuse(Errno::EREMCHG, "the file was moved to another layout")
    }

    /// Returns whether the request failed because the file has moved, or is about to move, to another layout.
    pub(crate) fn is_stale_layout(&self) -> bool {
        self.errno() == Errno::EREMCHG.0
    }

    /// Returns whether a data server rejected the request only because its capability has expired.
    pub(crate) fn is_expired(&self) -> bool {
        matches!(self, Self::Refused(refused) if refused.error.errno == Errno::ESTALE)
    }

    /// Returns whether the request ended without an answer, so that it may have been executed or not.
    pub(crate) fn is_without_answer(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Interrupted)
    }

    /// Adds `path` to the error unless it has a path already.
    #[must_use]
    pub fn about(mut self, path: &[u8]) -> Self {
        if let Some(place) = self.path_mut().filter(|place| place.is_empty()) {
            place.extend_from_slice(path);
        }
        self
    }

    /// Adds a sentence about the state that the failure leaves.
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

    /// Removes the path, for a caller that prints the path itself.
    #[must_use]
    pub fn without_path(mut self) -> Self {
        if let Some(place) = self.path_mut() {
            place.clear();
        }
        self
    }

    /// Returns the path of the request, if there is one.
    pub fn path(&self) -> Option<&[u8]> {
        let path = match self {
            Self::Refused(refused) => &refused.path,
            Self::Unreachable(unreachable) => &unreachable.path,
            Self::LocalFailure(failure) => &failure.path,
            Self::Device(device) => &device.path,
            Self::Missing(missing) => &missing.path,
            Self::Host(failure) => &failure.path,
            Self::Delegate(failure) => &failure.path,
            Self::ExternalLink { .. } | Self::Interrupted | Self::Misuse { .. } | Self::Replica(_) => {
                return None;
            }
        };
        (!path.is_empty()).then_some(path)
    }

    fn path_mut(&mut self) -> Option<&mut Vec<u8>> {
        match self {
            Self::Refused(refused) => Some(&mut refused.path),
            Self::Unreachable(unreachable) => Some(&mut unreachable.path),
            Self::LocalFailure(failure) => Some(&mut failure.path),
            Self::Device(device) => Some(&mut device.path),
            Self::Missing(missing) => Some(&mut missing.path),
            Self::Host(failure) => Some(&mut failure.path),
            Self::Delegate(failure) => Some(&mut failure.path),
            Self::ExternalLink { .. } | Self::Interrupted | Self::Misuse { .. } | Self::Replica(_) => None,
        }
    }
}

/// Displays `path: `, or nothing for an empty path.
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
            // Servers of clusters have names without spaces.
            Self::Unreachable(u) if u.server.starts_with("delegate ") => write!(
                f,
                "{}{} at {} does not answer: {}; bytes that it had not written are lost; `weft delegate status` shows the \
                 others",
                About(&u.path),
                u.server,
                u.address,
                u.cause
            ),
            Self::Unreachable(u) => write!(
                f,
                "{}server {} at {} does not answer: {}; see whether it runs with 'weft status' and start it with \
                 'weft serve'",
                About(&u.path),
                u.server,
                u.address,
                u.cause
            ),
            Self::LocalFailure(h) => write!(
                f,
                "{}cannot connect to server {} at {}: {}; {}",
                About(&h.path),
                h.server,
                h.address,
                std::io::Error::from_raw_os_error(h.errno.0),
                h.remedy()
            ),
            Self::ExternalLink { from, target, .. } => write!(
                f,
                "a symbolic link in /{} leads out of the namespace to {}",
                String::from_utf8_lossy(from),
                String::from_utf8_lossy(target)
            ),
            Self::Interrupted => f.write_str("interrupted while waiting"),
            Self::Misuse { errno, why } => write!(f, "{why} ({errno})"),
            Self::Device(d) => write!(
                f,
                "{}datafile {} of server {}: {} ({}); 'weft status' shows the free space and state of its target",
                About(&d.path),
                d.datafile,
                d.server,
                std::io::Error::from_raw_os_error(d.errno.0),
                d.errno
            ),
            Self::Missing(m) if m.recorded == ByteLen::UNKNOWN => write!(
                f,
                "{}bytes from {} on may be lost: datafile {}.{} on target {} of server {} has {} bytes, and how many it had \
                 when the disk was given up is unknown; run 'weft fsck' for a list of all losses, and restore the file \
                 from a copy, or accept the loss with 'weft fsck --repair --accept-loss'",
                About(&m.path),
                m.range.0.0,
                m.file,
                m.object,
                m.target.0,
                m.server,
                m.held.0,
            ),
            Self::Missing(m) => write!(
                f,
                "{}bytes {} to {} are lost: datafile {}.{} on target {} of server {} has {} of {} bytes; \
                 run 'weft fsck' for a list of all losses, and restore the target's disk, or the file from a copy",
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
            Self::Host(h) => {
                write!(f, "{}{} ({})", About(&h.path), std::io::Error::from_raw_os_error(h.errno.0), h.errno)
            }
            Self::Delegate(d) => write!(f, "{}{} (from {})", About(&d.path), d.error, d.delegate),
            Self::Replica(r) => write!(f, "replica {}: {} ({})", r.replica, r.why, r.errno),
        }
    }
}

impl std::error::Error for Error {}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        if let Error::Host(failure) = error {
            return Self::from_raw_os_error(failure.errno.0);
        }
        // The kind comes from the error number, the text from Display.
        let kind = std::io::Error::from_raw_os_error(error.errno()).kind();
        std::io::Error::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreachable_server_is_reported_with_its_name_its_address_and_a_remedy() {
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
    fn a_local_failure_to_connect_names_its_cause_and_not_the_server_state() {
        for (errno, remedy) in [
            (Errno::EMFILE, "ulimit -n"),
            (Errno::ENFILE, "fs.file-max"),
            (Errno::EACCES, "as the user who runs the server"),
        ] {
            let failure =
                LocalFailure { server: "s2".into(), address: "unix:/run/s2".into(), errno, path: vec![] };
            let error = Error::LocalFailure(Box::new(failure)).about(b"a/b");
            let text = error.to_string();
            assert!(text.starts_with("a/b: cannot connect to server s2 at unix:/run/s2: "), "{text}");
            assert!(text.contains(remedy) && !text.contains("weft status"), "{text}");
            assert_eq!(error.errno(), errno.0);
        }
    }

    #[test]
    fn lost_bytes_are_reported_with_range_target_and_remedy() {
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
    fn a_path_is_added_only_where_there_is_none() {
        let refused = Refused { server: "s0".into(), path: b"x".to_vec(), error: Errno::ENOENT.into() };
        let error = Error::Refused(Box::new(refused)).about(b"y");
        assert_eq!(error.to_string(), "x: ENOENT (from server s0)");
        assert_eq!(error.errno(), 2);
    }
}
