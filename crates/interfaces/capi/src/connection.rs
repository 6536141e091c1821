//! Connections to a cluster, and the resolution of paths.

use crate::args;
use crate::fail::{Fail, Res, exported};
use crate::forked::{self, Forked};
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::Arc;
use weft_client::{Client, ClientOptions, DelegatedFs, Delegates, Error, InodePath, Join};
use weft_config::Cluster;
use weft_config::job::Job;
use weft_env::real::{RealEnv, block_on};

/// Maximum number of symbolic links on a path that lead out of the namespace and back, as on Linux.
const LINKS_MAX: usize = 40;

/// Names of Weft, with the delegates of the job in front of the bytes, if it has some.
pub type Files<'a> = DelegatedFs<'a, RealEnv>;

/// Target of a `weft_t` pointer.
pub struct Weft(pub Arc<Connection>);

/// Connection; open files keep it alive.
pub struct Connection {
    client: Forked<Client<RealEnv>>,
    /// Delegates of the job that `WEFT_DELEGATES` names.
    delegates: Option<Forked<Delegates<RealEnv>>>,
    /// Path under which programs see the namespace.
    mount: Vec<u8>,
    /// Cluster as its file describes it.
    pub cluster: Cluster,
    /// Distinguishes the file systems of clusters in `struct stat`.
    pub device: u64,
}

impl Connection {
    fn open(cluster: Cluster) -> Res<Self> {
        forked::watch();
        let credentials =
            cluster.credentials().map_err(|error| Fail::new(libc::EACCES, error.to_string()))?;
        let job = Job::from_env().map_err(|error| Fail::new(libc::EIO, error.to_string()))?;
        let options = ClientOptions { job: job.as_ref().map(Job::number), ..cluster.client_options() };
        let client = Client::new(RealEnv::new(), cluster.map(), options, credentials);
        // Send a first request, so that a cluster that does not run is reported here and not at the first open.
        let root = block_on(client.stat(&InodePath::from_root(Vec::new(), true)));
        root.map_err(|error| not_connected(error, &cluster))?;
        let delegates = job.map(|job| block_on(job.join(RealEnv::new()))).transpose();
        let delegates = delegates.map_err(|error| Fail::new(libc::EIO, error.to_string()))?;
        let device = cluster.name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mount = cluster.mount.as_os_str().as_bytes().to_vec();
        Ok(Self {
            client: Forked::new(client),
            delegates: delegates.map(Forked::new),
            mount,
            cluster,
            device,
        })
    }

    /// Returns this process's client.
    pub fn client(&self) -> Res<&Client<RealEnv>> {
        self.client.get(|parents| Ok(parents.after_fork_in_child()))
    }

    /// Returns whether bytes of files go through delegates.
    pub fn has_delegates(&self) -> bool {
        self.delegates.is_some()
    }

    /// Calls `work` with this process's connections.
    pub fn files<T>(&self, work: impl FnOnce(&Files<'_>) -> T) -> Res<T> {
        let weft = self.client()?;
        let delegates = self.delegates.as_ref();
        let delegates = delegates.map(|found| found.get(|parents| Ok(parents.after_fork_in_child())));
        let join = delegates.transpose()?.map(|found| move || Ok(found));
        let join = join.as_ref().map(|join| join as &Join<'_, RealEnv>);
        Ok(work(&DelegatedFs { weft, join, page_len: None, mount: &self.mount }))
    }

    /// Calls `ask` for `path`, and again where a symbolic link with an absolute target leads back under the mount.
    pub fn at<T>(
        &self,
        path: &[u8],
        follow: bool,
        ask: impl Fn(&Files<'_>, &InodePath) -> weft_client::Result<T>,
    ) -> Res<T> {
        if path.is_empty() {
            return Err(Fail::new(libc::ENOENT, "the path is empty"));
        }
        let mut inside = self.below(path).unwrap_or(path).to_vec();
        for _ in 0..LINKS_MAX {
            match self.files(|files| ask(files, &InodePath::from_root(inside, follow)))? {
                Err(Error::ExternalLink { from, target, rest }) => match self.below(&target) {
                    Some(below) if rest.is_empty() => inside = below.to_vec(),
                    Some(below) => inside = [below, b"/", &rest].concat(),
                    None => return Err(Error::ExternalLink { from, target, rest }.into()),
                },
                answer => return Ok(answer?),
            }
        }
        Err(Fail::new(libc::ELOOP, format!("{}: too many symbolic links", String::from_utf8_lossy(path))))
    }

    /// Returns the path below the mount, if `path` is under it.
    fn below<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        let rest = path.strip_prefix(self.mount.as_slice())?;
        (rest.is_empty() || rest[0] == b'/').then_some(rest)
    }

    /// Returns the [`InodePath`] of a path, for calls that do not follow a link in the last component.
    pub fn inode_path(&self, path: &[u8]) -> InodePath {
        InodePath::from_root(self.below(path).unwrap_or(path).to_vec(), false)
    }
}

/// Returns the error of a first request. Servers of an embedded cluster have another remedy than those of other clusters.
fn not_connected(error: Error, cluster: &Cluster) -> Fail {
    match &error {
        Error::Unreachable(down) if cluster.embedded.is_some() => Fail::new(
            error.errno(),
            format!(
                "server {} at {} does not answer: {}; servers of an embedded cluster end when they are not used, and \
                 `weft run -- PROGRAM` starts them",
                down.server, down.address, down.cause
            ),
        ),
        _ => error.into(),
    }
}

/// Returns the connection behind a pointer from C.
///
/// # Safety
/// See [`args::object`].
pub unsafe fn connection<'a>(weft: *const Weft) -> Res<&'a Arc<Connection>> {
    // SAFETY: the caller's promise.
    unsafe { args::object(weft, "the connection") }.map(|weft| &weft.0)
}

exported! {
    fn weft_connect(cluster_file: *const c_char) -> *mut Weft | ptr::null_mut(); {
        let cluster = match cluster_file.is_null() {
            true => Cluster::from_env(),
            false => {
                // SAFETY: a string of the caller.
                let file = unsafe { args::string(cluster_file, "the cluster file")? };
                Cluster::load(Path::new(OsStr::from_bytes(file)))
            }
        };
        let cluster = cluster.map_err(|error| Fail::argument(error.to_string()))?;
        Ok(Box::into_raw(Box::new(Weft(Arc::new(Connection::open(cluster)?)))))
    }

    fn weft_disconnect(weft: *mut Weft) -> c_int | -1; {
        if weft.is_null() {
            return Err(Fail::argument("the connection is a null pointer"));
        }
        // SAFETY: it came from `weft_connect`, and the caller does not use it again.
        let weft = unsafe { Box::from_raw(weft) };
        // In a forked child, drop only the child's own connections.
        weft.0.files(|_| ())?;
        drop(weft);
        Ok(0)
    }

    fn weft_version() -> *const c_char | ptr::null(); {
        const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version without zeros"),
        };
        Ok(VERSION.as_ptr())
    }
}
