//! Early ends of a request: an error, or a path that leaves the namespace.

use weft_core::Nanos;
use weft_store::metadata::{Damaged, EngineError};
use weft_wire::meta::MetaReply;
use weft_wire::{Errno, WireError};

/// Why a change of an inline file waits.
const GROWING: &str = "another client copies the small file to its datafiles: try again";
const LEASED: &str = "another client reads the small file: try again";

/// Early end of a request.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Fault {
    /// The request fails.
    Failed(WireError),
    /// A symbolic link leads out of the namespace; the client resolves the rest.
    Elsewhere { from: Vec<u8>, target: Vec<u8>, rest: Vec<u8> },
    /// A client copies the inline file: the request is repeated within the service when that has ended, or at this time.
    Growing(Nanos),
    /// A client has a lease of the bytes of the inline file: likewise.
    Leased(Nanos),
}

pub(super) type Outcome<T> = Result<T, Fault>;

impl Fault {
    pub(super) fn new(errno: Errno, detail: impl Into<String>) -> Self {
        Self::Failed(WireError::new(errno, detail))
    }

    /// Prefixes the error with the object it is about.
    pub(super) fn about(self, what: &str) -> Self {
        match self {
            Self::Failed(error) => Self::new(error.errno, format!("{what}: {}", error.detail)),
            other => other,
        }
    }

    /// Text for the log.
    pub(super) fn log_text(&self) -> String {
        match self {
            Self::Failed(error) => error.detail.clone(),
            Self::Growing(_) => GROWING.into(),
            Self::Leased(_) => LEASED.into(),
            Self::Elsewhere { .. } => "a symbolic link leads out of the namespace".into(),
        }
    }

    pub(super) fn into_reply(self) -> MetaReply {
        match self {
            Self::Failed(error) => MetaReply::Failed(error),
            Self::Growing(_) => MetaReply::Failed(WireError::new(Errno::EAGAIN, GROWING)),
            Self::Leased(_) => MetaReply::Failed(WireError::new(Errno::EAGAIN, LEASED)),
            Self::Elsewhere { from, target, rest } => MetaReply::Elsewhere { from, target, rest },
        }
    }
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Self {
        Self::Failed(errno.into())
    }
}

impl From<EngineError> for Fault {
    fn from(error: EngineError) -> Self {
        let errno = if matches!(error, EngineError::Full { .. }) { Errno::ENOSPC } else { Errno::EIO };
        Self::new(errno, error.to_string())
    }
}

impl From<Damaged> for Fault {
    fn from(error: Damaged) -> Self {
        EngineError::from(error).into()
    }
}
