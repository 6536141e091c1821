//! The C library's `errno`, and the errors inside this crate.

/// Error of an operation.
#[derive(Debug)]
pub enum Fail {
    /// Linux error number.
    Errno(i32),
    /// A symbolic link leads out of the mount: continue at this absolute path.
    Moved(Vec<u8>),
    /// The kernel serves the call: the name is a link of its own.
    Kernel,
    /// The write exceeds the process's limit on file sizes: `EFBIG`, and `SIGXFSZ` to the calling thread.
    BeyondLimit,
}

impl From<i32> for Fail {
    fn from(errno: i32) -> Self {
        Self::Errno(errno)
    }
}

impl Fail {
    /// Makes this error the outcome of a call, outside the client: sends its signal, if any, and returns the error
    /// number.
    pub fn report(&self) -> i32 {
        if matches!(self, Self::BeyondLimit) {
            crate::sys::raise(libc::SIGXFSZ);
        }
        self.errno()
    }

    /// Returns the error number for a caller that cannot follow a link out of the mount.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Errno(errno) => *errno,
            Self::Moved(_) | Self::Kernel => libc::EXDEV,
            Self::BeyondLimit => libc::EFBIG,
        }
    }
}

/// Result of operations of this crate.
pub type Res<T> = Result<T, Fail>;

/// Returns the calling thread's `errno`.
pub fn get() -> i32 {
    // SAFETY: the location is always valid for the calling thread.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's `errno`.
pub fn set(errno: i32) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno }
}
