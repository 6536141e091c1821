//! Origin of a description: how another process, or this one after a fork, opens its file again.

use crate::backend::{File, backend};
use crate::errno::Res;
use crate::over::HostFileId;
use weft_env::real::RealFile;

/// Rights of a descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    pub read: bool,
    pub write: bool,
}

/// The library's own descriptor of a file of the host.
pub struct HostDescriptor {
    /// Open file, usually with an open file description of its own.
    pub file: RealFile,
    /// File below a directory that delegates serve.
    pub id: HostFileId,
    /// Rights of `file`.
    pub access: Access,
    /// Whether `file` has the program's open file description.
    pub is_shared: bool,
}

/// How to open the file again.
pub enum Origin {
    /// With the token of another process; `None` once the file is open.
    Weft(Option<Vec<u8>>),
    /// From a descriptor, which forked processes inherit.
    Host(HostDescriptor),
}

impl Origin {
    /// Opens the file for this process; `before` is the file that its parent had open.
    pub fn open(&mut self, before: Option<&File>) -> Res<File> {
        match self {
            Self::Weft(token) => {
                let known = token.take().or_else(|| before.and_then(File::token));
                *token = known;
                let file = backend()?.adopt(token.as_deref().ok_or(libc::EBADF)?)?;
                *token = None;
                Ok(file)
            }
            Self::Host(descriptor) => File::of_host(descriptor),
        }
    }
}
