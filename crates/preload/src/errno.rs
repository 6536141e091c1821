//! The C library's `errno`, and the failures that travel inside this crate.

/// Why an operation did not succeed.
#[derive(Debug)]
pub enum Fail {
    /// A Linux error number.
    Errno(i32),
    /// A symbolic link leads out of the mount: go on from this absolute path.
    Moved(Vec<u8>),
    /// Beyond the process's limit on file sizes: `EFBIG`, and `SIGXFSZ` to the calling thread.
    BeyondLimit,
}

impl From<i32> for Fail {
    fn from(errno: i32) -> Self {
        Self::Errno(errno)
    }
}

impl Fail {
    /// Makes this the outcome of a call, outside the client: sends the signal that belongs to it; the error number.
    pub fn settle(&self) -> i32 {
        if matches!(self, Self::BeyondLimit) {
            crate::sys::raise(libc::SIGXFSZ);
        }
        self.errno()
    }

    /// The number that a caller gets who cannot follow a link out of the mount.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Errno(errno) => *errno,
            Self::Moved(_) => libc::EXDEV,
            Self::BeyondLimit => libc::EFBIG,
        }
    }
}

/// What operations of this crate return.
pub type Res<T> = Result<T, Fail>;

/// The calling thread's `errno`.
pub fn get() -> i32 {
    // SAFETY: the location is always valid for the calling thread.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's `errno`.
pub fn set(errno: i32) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno }
}
