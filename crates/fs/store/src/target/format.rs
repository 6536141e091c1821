//! Layout of a target's directory, and formatting.
//!
//! ```text
//! weft-target      identity (see `identity`), written last
//! lock             locked while a server uses the target
//! leased           exists while clients may hold descriptors of datafiles
//! removed          tombstones of recently removed datafiles (see `tombstones`)
//! fences, seals    capabilities that are no longer valid (see `fences` and `seals`)
//! beside           exists while a fragment log may hold newer bytes (see `beside`)
//! sums             exists if datafiles may have checksums
//! compressed       exists if datafiles may be compressed
//! reserve          space that compressed datafiles use on a full device
//! objects/00..ff/  datafiles; a file NAME.sum beside each one with checksums (see `integrity`), and a file NAME.map
//!                  beside each compressed one (see `compressed`)
//! ```

use super::TargetSpec;
use crate::aligned::AlignedBuf;
use crate::content::BLOCK;
use crate::datafile::{FAN_OUT, OBJECTS, fan_name};
use crate::error::{TargetError, is_full};
use crate::identity::{self, BadIdentity, Identity};
use std::io::{self, IoSlice, IoSliceMut};
use std::path::Path;
use weft_core::LocalOffset;
use weft_env::{Dir, File, OpenMode};

pub(super) const LOCK: &str = "lock";
pub(super) const LEASED: &str = "leased";
pub(super) const SUMS: &str = "sums";
pub(super) const COMPRESSED: &str = "compressed";
const IDENTITY_NEW: &str = "weft-target.new";
const PROBE: &str = "probe";
/// Maximum length in bytes of any version of the identity file.
const IDENTITY_LEN_MAX: usize = 4096;
/// Names that may exist without an identity file, left by an interrupted format.
const BEFORE_IDENTITY: [&str; 5] = [LOCK, OBJECTS, IDENTITY_NEW, PROBE, "lost+found"];

/// Reads the identity of the target in the directory; `None` if the directory is blank.
///
/// # Errors
/// When the directory holds something else, or a target of another number or cluster name.
pub(super) async fn inspect<D: Dir<File: File>>(
    dir: &D,
    spec: &TargetSpec,
) -> Result<Option<Identity>, TargetError> {
    let Some(found) = read_identity(dir, &spec.path).await? else {
        return check_blank(dir, spec).await.map(|()| None);
    };
    let expected = Identity::new(&spec.cluster, spec.id);
    if (found.target, found.cluster) == (expected.target, expected.cluster) {
        return Ok(Some(found));
    }
    let found = match found.cluster == expected.cluster {
        true => format!("{} of this cluster", found.target),
        false => format!("{} of another cluster", found.target),
    };
    let expected = format!("{} of cluster {:?}", spec.id, spec.cluster);
    Err(TargetError::Foreign { path: spec.path.clone(), found, expected })
}

/// Reads the identity of the target at `path`; `None` if there is no such file.
///
/// # Errors
/// Errors of the device; a damaged identity, or one of an unknown version.
pub(super) async fn read_identity<D: Dir<File: File>>(
    dir: &D,
    path: &Path,
) -> Result<Option<Identity>, TargetError> {
    let path = || path.to_owned();
    let file = match dir.open(identity::NAME, OpenMode::READ).await {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
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
    Ok(Some(found))
}

/// Rejects a directory that holds anything but no identity file.
async fn check_blank<D: Dir<File: File>>(dir: &D, spec: &TargetSpec) -> Result<(), TargetError> {
    let io = |doing| move |source| TargetError::Io { path: spec.path.clone(), doing, source };
    let names = dir.list("").await.map_err(io("list the target"))?;
    if let Some(found) = names.iter().find(|name| !BEFORE_IDENTITY.contains(&name.as_str())) {
        return Err(TargetError::NotEmpty { path: spec.path.clone(), found: found.clone() });
    }
    if names.iter().any(|name| name == OBJECTS) {
        for folder in dir.list(OBJECTS).await.map_err(io("list the target"))? {
            let datafiles = dir.list(&format!("{OBJECTS}/{folder}")).await.map_err(io("list the target"))?;
            if !datafiles.is_empty() {
                return Err(TargetError::IdentityGone { path: spec.path.clone(), identity: identity::NAME });
            }
        }
    }
    Ok(())
}

/// Creates the folders of a blank target. [`store`] writes its identity last.
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

/// Writes the identity file atomically and durably. A target without free space must be able to start, because only then
/// can files be removed: if a new file does not fit, the present one is overwritten in place. It is shorter than a sector,
/// so a loss of power leaves the old or the new one.
pub(super) async fn store<D: Dir<File: File>>(
    dir: &D,
    path: &Path,
    identity: &Identity,
) -> Result<(), TargetError> {
    let bytes = identity.encode();
    let replacing = async {
        let file = dir.open(IDENTITY_NEW, OpenMode::CREATE).await?;
        file.set_len(weft_core::ByteLen(0)).await?;
        file.write_at(&[IoSlice::new(&bytes)], LocalOffset(0)).await?;
        file.sync().await?;
        dir.rename(IDENTITY_NEW, identity::NAME).await?;
        dir.sync("").await
    };
    let stored = match replacing.await {
        Err(error) if is_full(&error) => {
            let _ = dir.remove(IDENTITY_NEW).await; // A leftover file is harmless.
            let overwriting = async {
                let file = dir.open(identity::NAME, OpenMode::WRITE).await?;
                file.write_at(&[IoSlice::new(&bytes)], LocalOffset(0)).await?;
                file.sync().await
            };
            // A blank target has no identity to overwrite.
            overwriting.await.map_err(|_| error)
        }
        stored => stored,
    };
    let failed = |source| TargetError::Io { path: path.to_owned(), doing: "write its identity file", source };
    stored.map_err(failed)
}

/// Checks whether the file system supports direct I/O.
pub(super) async fn probe_direct<D: Dir<File: File>>(dir: &D, path: &Path) -> Result<(), TargetError> {
    let probing = async {
        let file = dir.open(PROBE, OpenMode { direct: true, ..OpenMode::CREATE }).await?;
        file.write_at(&[IoSlice::new(&AlignedBuf::zeroed(BLOCK))], LocalOffset(0)).await
    };
    let probed = match probing.await {
        // A full disk says nothing about direct I/O: the file was opened for it.
        Err(error) if is_full(&error) => Ok(()),
        probed => probed,
    };
    let _ = dir.remove(PROBE).await; // A leftover file is harmless.
    probed.map_err(|source| TargetError::NoDirect { path: path.to_owned(), block: BLOCK, source })
}
