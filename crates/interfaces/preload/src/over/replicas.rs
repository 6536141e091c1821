//! Files of the host that have replicas (`WEFT_REPLICAS`), as found when the process began.

use crate::errno::Res;
use crate::open::HostDescriptor;
use crate::{config, placeholder, sys};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use weft_client::replicas::{
    Begun, MaybeReplicated, Origin, Replica, Usage, list_replicas, replicated_inode,
};
use weft_client::{FileHandle, HostFile};
use weft_config::replicas::{REPLICAS_FOLDER, REPLICAS_VARIABLE, rank_count};
use weft_env::Env;
use weft_env::real::{RealEnv, block_on};

/// A file that has a replica.
#[derive(Debug)]
pub struct Replicated {
    device: u64,
    inode: u64,
    /// Directory of the replica.
    place: PathBuf,
    /// Name of the replica.
    id: String,
}

impl Replicated {
    /// Whether the file has these attributes.
    pub fn is(&self, stat: &libc::stat) -> bool {
        (self.inode, self.device) == (stat.st_ino, stat.st_dev)
    }
}

/// Returns the files that have replicas. For the constructor.
pub fn replicated() -> Vec<Replicated> {
    let mut found = Vec::new();
    let Some(value) = config::variable(REPLICAS_VARIABLE) else { return found };
    for directory in value.split(|byte| *byte == b':').filter(|part| !part.is_empty()) {
        let place = PathBuf::from(std::ffi::OsStr::from_bytes(directory)).join(REPLICAS_FOLDER);
        let text = sys::c(place.as_os_str().as_bytes());
        // Directories of others, or removed ones, have no replicas for this process.
        let Ok(stat) = sys::fstatat(libc::AT_FDCWD, &text, 0) else { continue };
        let Ok(dir) = block_on(RealEnv::new().dir(&place)) else { continue };
        let Ok(ids) = block_on(list_replicas::<RealEnv>(&dir)) else { continue };
        let here = ids.into_iter().filter_map(|id| {
            Some(Replicated { device: stat.st_dev, inode: replicated_inode(&id)?, place: place.clone(), id })
        });
        found.extend(here);
    }
    found
}

/// Returns the number of processes of the job; `None` if no launcher says it.
pub fn ranks() -> Option<u32> {
    rank_count(|name| Some(std::str::from_utf8(config::variable(name)?).ok()?.to_owned()))
}

/// Opens a file that has a replica. `original` is the file without it.
pub fn open<F: FileHandle>(
    descriptor: &HostDescriptor,
    replicated: &Replicated,
    original: F,
) -> Res<MaybeReplicated<RealEnv, F>> {
    crate::backend::prepare_clients();
    let env = RealEnv::with_fd_floor(placeholder::floor());
    match block_on(begin(env, descriptor, replicated)) {
        Ok((usage, begun)) => Ok(MaybeReplicated::begun(env, original, usage, begun)),
        // It was removed since this process began.
        Err(error) if error.errno() == libc::ENOENT => Ok(MaybeReplicated::Plain(original)),
        Err(error) => {
            sys::complain(&error.to_string());
            Err(error.errno().into())
        }
    }
}

async fn begin(
    env: RealEnv,
    descriptor: &HostDescriptor,
    replicated: &Replicated,
) -> weft_client::Result<(Usage<RealEnv>, Begun)> {
    let failed = |error| HostFile::<RealEnv>::failure(replicated.place.as_os_str().as_bytes(), &error);
    let dir = env.dir(&replicated.place).await.map_err(failed)?;
    let place = replicated.place.to_string_lossy();
    let replica = Replica::open(env, dir, &place, &replicated.id).await?;
    let file = descriptor.file.clone();
    let again = file.clone();
    let writable = move || {
        let path = sys::c(format!("/proc/self/fd/{}", again.as_raw_fd()).as_bytes());
        let fd =
            sys::open(&path, libc::O_RDWR | libc::O_CLOEXEC, 0).map_err(std::io::Error::from_raw_os_error)?;
        // SAFETY: just opened, and owned by nobody else.
        Ok(env.file(unsafe { OwnedFd::from_raw_fd(fd) }))
    };
    let origin = Origin { file, writable: Box::new(writable) };
    // A process without a launcher is one of one.
    Usage::begin(replica, origin, ranks().or(Some(1))).await
}
