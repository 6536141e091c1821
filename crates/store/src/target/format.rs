//! What lies in a target's directory, and how it gets there.
//!
//! ```text
//! weft-target      whose target it is (see `identity`), written last
//! lock             locked while a server uses the target
//! leased           there while descriptors of datafiles may be in the hands of clients
//! removed          which datafiles were removed last (see `removed`)
//! beside           there while newer bytes may lie in a fragment log (see `beside`)
//! sums             there when datafiles may have checksums
//! objects/00..ff/  the datafiles, and beside those with checksums a file NAME.sum (see `integrity`)
//! ```

use super::TargetSpec;
use crate::aligned::AlignedBuf;
use crate::datafile::{FAN_OUT, OBJECTS, fan_name};
use crate::error::TargetError;
use crate::identity::{self, BadIdentity, Identity};
use crate::module_direct::BLOCK;
use std::io::{self, IoSlice, IoSliceMut};
use std::path::Path;
use weft_core::LocalOffset;
use weft_env::{Dir, File, OpenMode};

pub(super) const LOCK: &str = "lock";
pub(super) const LEASED: &str = "leased";
pub(super) const SUMS: &str = "sums";
const IDENTITY_NEW: &str = "weft-target.new";
const PROBE: &str = "probe";
/// More than any version of the identity file has.
const IDENTITY_LEN_MAX: usize = 4096;
/// What a target may hold before its identity is there, because a formatting was cut short.
const BEFORE_IDENTITY: [&str; 5] = [LOCK, OBJECTS, IDENTITY_NEW, PROBE, "lost+found"];

/// Reads the identity of the target in the directory; `None` when the directory is blank.
///
/// # Errors
/// When the directory holds something else, or is another target by number or cluster name.
pub(super) async fn look<D: Dir<File: File>>(
    dir: &D,
    spec: &TargetSpec,
) -> Result<Option<Identity>, TargetError> {
    let path = || spec.path.clone();
    let file = match dir.open(identity::NAME, OpenMode::READ).await {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return check_blank(dir, spec).await.map(|()| None);
        }
        Err(source) => return Err(TargetError::Io { path: path(), doing: "open its identity file", source }),
    };
    let mut bytes = [0; IDENTITY_LEN_MAX];
    let got = file
        .read_at(&mut [IoSliceMut::new(&mut bytes)], LocalOffset(0))
        .await
        .map_err(|source| TargetError::Io { path: path(), doing: "read its identity file", source })?;
    let found = Identity::decode(&bytes[..got]).map_err(|bad| match bad {
        BadIdentity::Damaged(why) => TargetError::Damaged { path: path(), identity: identity::NAME, why },
        BadIdentity::Version(found) => TargetError::Version { path: path(), found, known: identity::VERSION },
    })?;
    let wanted = Identity::new(&spec.cluster, spec.id);
    if (found.target, found.cluster) == (wanted.target, wanted.cluster) {
        return Ok(Some(found));
    }
    let found = match found.cluster == wanted.cluster {
        true => format!("{} of this cluster", found.target),
        false => format!("{} of another cluster", found.target),
    };
    let wanted = format!("{} of cluster {:?}", spec.id, spec.cluster);
    Err(TargetError::Foreign { path: path(), found, wanted })
}

/// Refuses a directory without an identity file that holds anything.
async fn check_blank<D: Dir<File: File>>(dir: &D, spec: &TargetSpec) -> Result<(), TargetError> {
    let io = |doing| move |source| TargetError::Io { path: spec.path.clone(), doing, source };
    let there = dir.list("").await.map_err(io("list the target"))?;
    if let Some(found) = there.iter().find(|name| !BEFORE_IDENTITY.contains(&name.as_str())) {
        return Err(TargetError::NotEmpty { path: spec.path.clone(), found: found.clone() });
    }
    if there.iter().any(|name| name == OBJECTS) {
        for folder in dir.list(OBJECTS).await.map_err(io("list the target"))? {
            let names = dir.list(&format!("{OBJECTS}/{folder}")).await.map_err(io("list the target"))?;
            if !names.is_empty() {
                return Err(TargetError::IdentityGone { path: spec.path.clone(), identity: identity::NAME });
            }
        }
    }
    Ok(())
}

/// Makes the folders of a blank target. Its identity comes last ([`store`]).
pub(super) async fn make_folders<D: Dir<File: File>>(dir: &D, spec: &TargetSpec) -> Result<(), TargetError> {
    let making = async {
        dir.make_dir(OBJECTS).await?;
        for fan in 0..FAN_OUT {
            dir.make_dir(&fan_name(fan as u8)).await?;
        }
        dir.sync(OBJECTS).await?;
        dir.sync("").await
    };
    let failed = |source| TargetError::Io { path: spec.path.clone(), doing: "format the target", source };
    making.await.map_err(failed)
}

/// Writes the identity file, whole or not at all; it survives loss of power.
pub(super) async fn store<D: Dir<File: File>>(
    dir: &D,
    path: &Path,
    identity: &Identity,
) -> Result<(), TargetError> {
    let storing = async {
        let file = dir.open(IDENTITY_NEW, OpenMode::CREATE).await?;
        file.set_len(weft_core::ByteLen(0)).await?;
        file.write_at(&[IoSlice::new(&identity.encode())], LocalOffset(0)).await?;
        file.sync().await?;
        dir.rename(IDENTITY_NEW, identity::NAME).await?;
        dir.sync("").await
    };
    let failed = |source| TargetError::Io { path: path.to_owned(), doing: "write its identity file", source };
    storing.await.map_err(failed)
}

/// Finds out whether the file system takes direct I/O.
pub(super) async fn probe_direct<D: Dir<File: File>>(dir: &D, path: &Path) -> Result<(), TargetError> {
    let probing = async {
        let file = dir.open(PROBE, OpenMode { direct: true, ..OpenMode::CREATE }).await?;
        file.write_at(&[IoSlice::new(&AlignedBuf::zeroed(BLOCK))], LocalOffset(0)).await
    };
    let probed = probing.await;
    let _ = dir.remove(PROBE).await; // left over, it does no harm
    probed.map_err(|source| TargetError::NoDirect { path: path.to_owned(), block: BLOCK, source })
}
