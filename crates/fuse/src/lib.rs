//! The FUSE mount: every program, unmodified, with the kernel's help.
//!
//! A request of the kernel becomes one call of the client library; this crate holds only what the kernel makes
//! necessary: open handles, positions in directories, the caller's identity, locks of processes behind the mount,
//! and the rule by which the kernel may keep pages (see `pages`).
//!
//! Attributes and names are never cached by default, so that what one node changed every other node sees at once.

mod answer;
mod attributes;
mod caller;
mod convert;
mod data;
mod directories;
mod dropper;
pub mod failures;
mod filesystem;
mod handles;
mod locks;
mod names;
mod open;
mod pages;
mod reached;
mod splice;

use filesystem::{TRANSFER_LEN_MAX, WeftFilesystem};
use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use splice::Splicer;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use weft_client::Client;
use weft_env::Address;
use weft_env::real::RealEnv;

/// How to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Let other users in; permissions are checked by the metadata service for each caller. Needs root, or
    /// `user_allow_other` in /etc/fuse.conf.
    pub allow_other: bool,
    /// No changes.
    pub read_only: bool,
    /// Threads that serve the kernel; `None`: by the number of processors.
    pub threads: Option<usize>,
    /// How long the kernel may keep names and attributes; zero sees every change of other nodes at once.
    pub attribute_ttl: Duration,
    /// Whether the kernel may keep pages of files that no other node writes.
    pub page_cache: bool,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            allow_other: false,
            read_only: false,
            threads: None,
            attribute_ttl: Duration::ZERO,
            page_cache: true,
        }
    }
}

/// A mount that is served in the background; dropping it unmounts.
pub struct Mount {
    session: BackgroundSession,
}

impl Mount {
    /// Waits until somebody unmounts.
    ///
    /// # Errors
    /// Of the connection to the kernel.
    pub fn join(self) -> io::Result<()> {
        self.session.join()
    }

    /// Unmounts and waits for the end.
    ///
    /// # Errors
    /// When the mount is busy.
    pub fn unmount(self) -> io::Result<()> {
        self.session.umount_and_join()
    }
}

/// Mounts the namespace of `client` on `dir` and serves it in the background.
///
/// # Errors
/// When the kernel or fusermount3 refuses, with the reason.
pub fn mount(client: Client<RealEnv>, dir: &Path, options: &MountOptions) -> io::Result<Mount> {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(format!("weft:{}", client.map().name)),
        MountOption::Subtype("weft".to_owned()),
        MountOption::NoDev,
        MountOption::NoSuid,
        MountOption::NoAtime,
    ];
    if options.allow_other {
        // The metadata service checks every request, but the kernel alone knows of opens of pipes and of connections to
        // sockets, and it checks those only when it checks everything.
        config.mount_options.push(MountOption::DefaultPermissions);
    }
    if options.read_only {
        config.mount_options.push(MountOption::RO);
    }
    // No server of which this host is not the host can be on loan.
    let colocated = is_colocated(&client);
    let splicer = Arc::new(if colocated { Splicer::new(TRANSFER_LEN_MAX) } else { Splicer::off() });
    if let Some(len) = splicer.read_len_max(TRANSFER_LEN_MAX) {
        config.mount_options.push(MountOption::CUSTOM(format!("max_read={len}")));
    }
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.threads.unwrap_or_else(|| default_threads(colocated)).max(1));
    // A connection of its own for each thread gains nothing, and splicing needs to know by which to answer.
    config.clone_fd = !colocated;
    let filesystem = WeftFilesystem::new(client, options.clone(), colocated, Arc::clone(&splicer));
    let pages = Arc::clone(&filesystem.pages);
    let session = Session::new(filesystem, dir, &config)?;
    splicer.begin(session.as_fd())?;
    let session = session.spawn()?;
    pages.serve(session.notifier())?;
    Ok(Mount { session })
}

/// Whether all servers are on this host.
fn is_colocated(client: &Client<RealEnv>) -> bool {
    let here = |address: &Address| matches!(address, Address::Unix(path) if path.exists());
    client.map().servers.iter().all(|server| server.addresses.iter().any(here))
}

/// Threads that serve the kernel unless told otherwise. Where requests wait for the network there are some more; where they
/// do not, more threads than processors only take turns, each with less of what it needs in its processor's cache.
fn default_threads(colocated: bool) -> usize {
    let processors = std::thread::available_parallelism().map_or(4, usize::from);
    if colocated { processors.clamp(4, 16) } else { 8 }
}
