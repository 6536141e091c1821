//! Errors on the wire: a POSIX error number and a message for the user.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Linux error number, such as `ENOENT` (2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident = $number:literal),* $(,)?) => {
        impl Errno {
            $(#[doc = concat!("`", stringify!($name), "` of Linux.")]
            pub const $name: Self = Self($number);)*

            /// Returns the symbolic name, or `E?`.
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $($number => stringify!($name),)*
                    _ => "E?",
                }
            }
        }
    };
}

errnos! {
    EPERM = 1, ENOENT = 2, EINTR = 4, EIO = 5, ENXIO = 6, EBADF = 9, EAGAIN = 11, ENOMEM = 12, EACCES = 13,
    EBUSY = 16, EEXIST = 17, EXDEV = 18, ENODEV = 19, ENOTDIR = 20, EISDIR = 21, EINVAL = 22, ENFILE = 23,
    EMFILE = 24, ENOTTY = 25, ETXTBSY = 26, EFBIG = 27, ENOSPC = 28, ESPIPE = 29, EROFS = 30, EMLINK = 31,
    EPIPE = 32, ERANGE = 34, EDEADLK = 35, ENAMETOOLONG = 36, ENOLCK = 37, ENOSYS = 38, ENOTEMPTY = 39,
    ELOOP = 40, ENODATA = 61, EPROTO = 71, EBADMSG = 74, EOVERFLOW = 75, EREMCHG = 78, EOPNOTSUPP = 95, ETIMEDOUT = 110, EALREADY = 114,
    ECONNREFUSED = 111, ESTALE = 116, EDQUOT = 122,
}

/// Error that a server reports.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WireError {
    /// Error number for POSIX callers.
    pub errno: Errno,
    /// Message for the user: the failed operation with its path or datafile, and the remedy. May be empty.
    pub detail: String,
}

impl WireError {
    /// Creates an error with a message.
    pub fn new(errno: Errno, detail: impl Into<String>) -> Self {
        Self { errno, detail: detail.into() }
    }
}

impl From<Errno> for WireError {
    fn from(errno: Errno) -> Self {
        Self { errno, detail: String::new() }
    }
}

impl From<std::io::Error> for WireError {
    fn from(error: std::io::Error) -> Self {
        let errno = Errno(error.raw_os_error().unwrap_or(Errno::EIO.0));
        Self { errno, detail: error.to_string() }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            "E?" => write!(f, "errno {}", self.0),
            name => f.write_str(name),
        }
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.detail.as_str() {
            "" => self.errno.fmt(f),
            detail => write!(f, "{} ({})", detail, self.errno),
        }
    }
}

impl std::error::Error for WireError {}
