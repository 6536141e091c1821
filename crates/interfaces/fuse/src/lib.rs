//! The FUSE mount, for every unmodified program.
//!
//! Each request of the kernel becomes one call of the client library. This crate contains only the state that the
//! kernel makes necessary:
//!
//! * open handles and positions in directories,
//! * proofs for the inodes that the kernel knows,
//! * the caller's identity, and locks of processes behind the mount,
//! * the rules by which the kernel may keep pages (see `pages`), and names of listings (see `leased_names`).
//!
//! The kernel uses names and attributes for a moment, unless they change (see `leased_names`). By default it caches no
//! others, so that every node sees changes by other nodes at once.

mod answer;
mod attributes;
mod caller;
mod convert;
mod data;
pub mod device;
mod directories;
mod dropper;
pub mod failures;
mod file_pages;
mod filesystem;
mod handles;
mod inode_proofs;
mod kernel_size;
mod leased_names;
mod lock_call;
mod lock_owners;
mod locks;
mod names;
mod open;
mod pages;
mod private;
mod releases;
mod replaced_names;
mod reporter;
mod splice;
mod turns;

pub use private::{PrivateMount, mount_private};

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

/// Options of a mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Allows access by other users; the metadata service checks permissions of each caller. Needs root, or
    /// `user_allow_other` in /etc/fuse.conf.
    pub allow_other: bool,
    /// Rejects changes.
    pub read_only: bool,
    /// Lets no program be executed.
    pub no_exec: bool,
    /// Number of threads that serve the kernel at a time; `None` for one based on the number of processors. Those that wait
    /// for a server that does not answer are not counted.
    pub threads: Option<usize>,
    /// Time for which the kernel may cache names and attributes; with zero, changes by other nodes are visible at once.
    pub attribute_ttl: Duration,
    /// Whether the kernel may keep pages of files that no other node writes.
    pub page_cache: bool,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            allow_other: false,
            read_only: false,
            no_exec: false,
            threads: None,
            attribute_ttl: Duration::ZERO,
            page_cache: true,
        }
    }
}

/// Mount that is served in the background; dropping it unmounts.
pub struct Mount {
    session: BackgroundSession,
}

impl Mount {
    /// Waits until the file system is unmounted.
    ///
    /// # Errors
    /// Errors of the connection to the kernel.
    pub fn join(self) -> io::Result<()> {
        self.session.join()
    }

    /// Unmounts and waits for the end.
    ///
    /// # Errors
    /// If the mount is busy.
    pub fn unmount(self) -> io::Result<()> {
        self.session.umount_and_join()
    }
}

/// Mounts the namespace of `client` on `dir` and serves it in the background.
///
/// # Errors
/// If the kernel or fusermount3 rejects the mount, with the reason.
pub fn mount(client: Client<RealEnv>, dir: &Path, options: &MountOptions) -> io::Result<Mount> {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(format!("weft:{}", client.map().name)),
        MountOption::Subtype("weft".to_owned()),
        MountOption::NoDev,
        MountOption::NoSuid,
        MountOption::NoAtime,
    ];
    // SAFETY: the call takes no pointers.
    let by_root = unsafe { libc::geteuid() } == 0;
    if options.allow_other || !by_root && kernel_lets_names_expire() {
        // The metadata service checks every request. But the kernel uses leased names without one, and only the kernel
        // sees opens of pipes and connections to sockets. It checks those only if it checks everything.
        config.mount_options.push(MountOption::DefaultPermissions);
    }
    if options.read_only {
        config.mount_options.push(MountOption::RO);
    }
    if options.no_exec {
        config.mount_options.push(MountOption::NoExec);
    }
    // Only servers on this host lease datafile descriptors.
    let colocated = is_colocated(&client);
    let splicer = Arc::new(if colocated { Splicer::new(TRANSFER_LEN_MAX) } else { Splicer::off() });
    if let Some(len) = splicer.read_len_max(TRANSFER_LEN_MAX) {
        config.mount_options.push(MountOption::CUSTOM(format!("max_read={len}")));
    }
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    let threads = options.threads.unwrap_or_else(|| default_threads(colocated)).max(1);
    config.n_threads = Some(threads + turns::SPARE_THREADS);
    weft_client::set_server_wait(turns::begin_wait);
    // Separate connections per thread gain nothing, and splicing must know the connection for the reply.
    config.clone_fd = !colocated;
    let filesystem = WeftFilesystem::new(client, options.clone(), colocated, Arc::clone(&splicer), threads);
    let pages = Arc::clone(&filesystem.pages);
    let session = Session::new(filesystem, dir, &config)?;
    splicer.begin(session.as_fd())?;
    pages.names.begin(session.as_fd())?;
    let session = session.spawn()?;
    pages.serve(session.notifier())?;
    Ok(Mount { session })
}

/// Whether all servers are on this host.
fn is_colocated(client: &Client<RealEnv>) -> bool {
    let here = |address: &Address| matches!(address, Address::Unix(path) if path.exists());
    client.map().numbered().all(|(_, server)| server.addresses.iter().any(here))
}

/// Whether the kernel can let names expire, as Linux can since 6.2. On others a mount leases no names.
pub fn kernel_lets_names_expire() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 2)
}

/// Returns the default number of threads that serve the kernel. If requests wait for the network, there are more
/// threads than processors. Otherwise more threads would only compete for processors and their caches.
fn default_threads(colocated: bool) -> usize {
    let processors = std::thread::available_parallelism().map_or(4, usize::from);
    if colocated { processors.clamp(4, 16) } else { 8 }
}
