//! Origin of a description: how another process, or this one after a fork, opens its file again.

use super::Open;
use crate::backend::{Backend, File, OpenRequest, backend, identity, session};
use crate::errno::Res;
use crate::over::HostFileId;
use crate::route::WeftPath;
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
    /// Opens the file of `open` for this process; `before` is the file that its parent had open.
    pub fn open(&mut self, before: Option<&File>, open: &Open) -> Res<File> {
        match self {
            Self::Weft(token) => {
                let known = token.take().or_else(|| before.and_then(File::token));
                *token = known;
                let file = match token.as_deref() {
                    Some(token) => session_for(before)?.adopt(token, &open.path())?,
                    // Only the path of a working directory may come alone.
                    None => backend()?.open(&WeftPath::at(open.path()), &OpenRequest::place())?,
                };
                *token = None;
                Ok(file)
            }
            Self::Host(descriptor) => File::of_host(descriptor),
        }
    }
}

/// Returns the file system in which a file is opened again, by a forked child or for a lock: that of the user who had it
/// open, if this process can connect as that user.
pub fn session_for(before: Option<&File>) -> Res<&'static Backend> {
    let former = before.and_then(|file| session(file.session().ok()?));
    match former.filter(|former| identity::can_be(former.identity())) {
        Some(former) => Ok(former),
        None => backend(),
    }
}
