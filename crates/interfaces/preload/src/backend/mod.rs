//! File system operations for the hooks: the client of Weft and the delegates, with the types of the C library.
//!
//! ```text
//! names    operations by path          file       operations on an open file
//! connect  creation of the client      delegates  delegates of the job
//! convert  places, `stat`, links that lead out of the mount
//! identity the user of the calling thread
//! sessions one file system for each user; reach  places that another user's session has found
//! ```

mod connect;
mod convert;
mod delegates;
mod file;
pub mod identity;
mod lock_session;
mod names;
mod reach;
mod sessions;

pub use delegates::{delegates, has_delegates, unwritten_end};
pub use file::File;
pub use lock_session::LockSession;
pub use sessions::{
    after_change, after_fork_in_child, backend, before_change, generation, in_use, of_real_user, session,
};

use crate::errno::{Fail, Res};
use crate::signal_wait::SignalWait;
use crate::sys;
use weft_client::{Client, LayoutSpec, OpenFlags};
use weft_config::Cluster;
use weft_env::real::RealEnv;
use weft_wire::hello::{Identity, SessionId};

/// Parameters of an open.
#[derive(Clone, Default, Debug)]
pub struct OpenRequest {
    /// Access mode and flags.
    pub flags: OpenFlags,
    /// Whether a symbolic link in the last component is an error.
    pub nofollow: bool,
    /// Whether transfers shall bypass caches, which directories cannot.
    pub direct: bool,
    /// Permission bits of a new file, after the umask.
    pub mode: u32,
    /// Layout of a new file.
    pub spec: LayoutSpec,
}

impl OpenRequest {
    /// Returns the request for a directory that is only a place for walks.
    pub fn place() -> Self {
        Self { flags: OpenFlags { directory: true, ..OpenFlags::default() }, ..Self::default() }
    }
}

/// Name in a directory.
#[derive(Clone, Debug)]
pub struct Name {
    /// Name.
    pub name: Vec<u8>,
    /// Inode number.
    pub inode: u64,
    /// Type as in `d_type`, such as `DT_REG`.
    pub kind: u8,
}

/// Callback that returns true if a signal must end the wait.
pub type Interrupted<'a> = &'a mut dyn FnMut() -> bool;

/// File system as one user sees it, by names.
pub struct Backend {
    client: Client<RealEnv>,
    cluster: Cluster,
    /// The user.
    identity: Identity,
    /// The client's session, and those of the processes from which this one was forked.
    sessions: Vec<SessionId>,
}

/// Sets where clients of this process report outages, and what interrupts their waits.
pub fn prepare_clients() {
    weft_client::set_log(sys::complain);
    weft_client::set_server_wait(|| Box::new(SignalWait::begin()));
}

impl Backend {
    /// Creates the file system of the calling thread's user from the default cluster file. Connects at its first use.
    fn new() -> Res<Self> {
        prepare_clients();
        let cluster = Cluster::from_env().map_err(|error| {
            sys::complain(&error.to_string());
            // The cluster of another user, such as a former one of this process.
            let is_closed = std::fs::File::open(&error.file)
                .is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied);
            Fail::Errno(if is_closed { libc::EACCES } else { libc::ENOENT })
        })?;
        Self::of_user(cluster, identity::effective())
    }

    /// Creates the file system of a user.
    fn of_user(cluster: Cluster, identity: Identity) -> Res<Self> {
        let client = connect::client(&cluster, &identity)?;
        let sessions = vec![client.session()];
        Ok(Self { client, cluster, identity, sessions })
    }

    /// Returns the user.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }
}
