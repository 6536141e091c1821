//! The files of a database: creation, and recovery of committed changes after a crash.

use super::reserve::Reserve;
use super::{Blocking, JournalOptions, LOW_TRANSACTION_BYTES, OpenError};
use crate::metadata::base::Base;
use crate::metadata::delta::Delta;
use crate::metadata::identity::Identity;
use crate::metadata::log::{LOST_FRAMES, LogKey, first_frame, is_used, replay};
use crate::metadata::progress::{self, Synced};
use std::io::{self, IoSlice, IoSliceMut};
use weft_core::{ByteLen, LocalOffset};
use weft_env::{BlockingFile, Create, Dir, Env, File, OpenMode};

pub(super) const IDENTITY: &str = "identity";
pub(super) const IDENTITY_NEW: &str = "identity.new";
pub(super) const LOCK: &str = "lock";
pub(super) const BASE: &str = "base.redb";
pub(super) const SUMS: &str = "base.sums";
pub(super) const RESERVE: &str = "reserve";
pub(super) const LOGS: [&str; 2] = ["log.0", "log.1"];
pub(super) const SYNCED: &str = progress::NAME;

/// Bytes allocated beyond the nominal length of a log, for the frame that fills it.
const LOG_SLACK: u64 = 256 << 10;
/// Number of zero bytes per write.
const ZERO_CHUNK: u64 = 1 << 20;

/// Rejects a directory whose database holds changes: its identity was lost and must not be replaced by that of an
/// empty one.
pub(super) async fn check_empty<D: Dir>(dir: &D, names: &[String]) -> Result<(), OpenError>
where
    D::File: File,
{
    for name in LOGS.into_iter().filter(|log| names.iter().any(|name| name == log)) {
        if is_used(&dir.open(name, OpenMode::READ).await?.blocking())? {
            return Err(OpenError::Unidentified);
        }
    }
    if names.iter().any(|name| name == BASE) {
        // An unreadable base was left by an interrupted format. Nothing is acknowledged before the identity exists.
        let file = dir.open(BASE, OpenMode::WRITE).await?.blocking();
        let sums = dir.open(SUMS, OpenMode::CREATE).await?.blocking();
        if Base::open(file, sums, BASE.to_owned(), 1 << 20)
            .is_ok_and(|base| base.applied().is_ok_and(|last| last > 0))
        {
            return Err(OpenError::Unidentified);
        }
    }
    Ok(())
}

/// Creates an empty database. The identity comes last, so an interrupted format is repeated.
pub(super) async fn format<D: Dir>(
    dir: &D,
    identity: &Identity,
    options: JournalOptions,
) -> Result<(), OpenError>
where
    D::File: File,
{
    make_files(dir, options).await?;
    Ok(store_identity(dir, &identity.encode()).await?)
}

/// Creates the files of an empty database, except its identity.
pub(super) async fn make_files<D: Dir>(dir: &D, options: JournalOptions) -> Result<(), OpenError>
where
    D::File: File,
{
    for name in LOGS {
        let file = dir.open(name, OpenMode::CREATE).await?;
        file.set_len(ByteLen(0)).await?;
        // Written instead of reserved, so that a later sync has no file metadata to commit.
        let zeros = vec![0; ZERO_CHUNK as usize];
        let len = options.log_len.0 + LOG_SLACK;
        let mut at = 0;
        while at < len {
            let part = ZERO_CHUNK.min(len - at);
            file.write_at(&[IoSlice::new(&zeros[..part as usize])], LocalOffset(at)).await?;
            at += part;
        }
        file.sync().await?;
    }
    let len = options.log_len.0 + LOG_SLACK;
    let synced = dir.open(SYNCED, OpenMode::CREATE).await?;
    progress::begin(&synced.blocking(), &Synced { lens: [len; 2], ..Synced::default() })?;
    let base = dir.open(BASE, OpenMode::CREATE).await?;
    base.set_len(ByteLen(0)).await?;
    let sums = dir.open(SUMS, OpenMode::CREATE).await?;
    sums.set_len(ByteLen(0)).await?;
    drop(Base::open(base.blocking(), sums.blocking(), BASE.to_owned(), 1 << 20)?);
    base.sync().await?;
    sums.sync().await?;
    Ok(())
}

/// Writes the identity file atomically and durably.
pub(super) async fn store_identity<D: Dir>(dir: &D, identity: &[u8]) -> io::Result<()>
where
    D::File: File,
{
    let file =
        dir.open(IDENTITY_NEW, OpenMode { write: true, create: Create::IfMissing, direct: false }).await?;
    file.set_len(ByteLen(0)).await?;
    file.write_at(&[IoSlice::new(identity)], LocalOffset(0)).await?;
    file.sync().await?;
    dir.sync("").await?;
    dir.rename(IDENTITY_NEW, IDENTITY).await?;
    dir.sync("").await
}

pub(super) async fn read_all<F: File>(file: &F) -> io::Result<Vec<u8>> {
    const LEN_MAX: u64 = 1 << 17;
    let len = file.meta().await?.len.0.min(LEN_MAX);
    let mut bytes = vec![0; len as usize];
    let got = file.read_at(&mut [IoSliceMut::new(&mut bytes)], LocalOffset(0)).await?;
    bytes.truncate(got);
    Ok(bytes)
}

/// Creates the file `synced` of a database that an earlier version made, or whose file is lost. Keeps what an
/// interrupted upgrade has recorded. Fails if a log is shorter than every version made it, unless `accepts_loss`: an
/// empty log would look like one that was never used.
pub(super) async fn make_synced<D: Dir>(
    dir: &D,
    log_len: ByteLen,
    accepts_loss: bool,
) -> Result<(), OpenError>
where
    D::File: File,
{
    let file = dir.open(SYNCED, OpenMode::CREATE).await?.blocking();
    let mut synced = progress::read(&file)?.unwrap_or_default();
    for (index, name) in LOGS.into_iter().enumerate() {
        // A length counts only once it is on the disk.
        let log = match dir.open(name, OpenMode::WRITE).await {
            Ok(log) => log,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(gone(name).into()),
            Err(error) => return Err(error.into()),
        };
        log.sync().await?;
        let len = log.meta().await?.len;
        if len < log_len && !accepts_loss {
            let (len, log_len) = (len.0, log_len.0);
            return Err(lost(format!(
                "{name} has {len} bytes, but was made with {log_len}: its end is missing"
            )));
        }
        synced.lens[index] = synced.lens[index].max(len.0);
    }
    progress::begin(&file, &synced)?;
    Ok(dir.sync("").await?)
}

/// Returns the error of a file that does not exist.
pub(super) fn gone(name: &str) -> io::Error {
    let what = format!("{name} is gone; restore the metadata path from a copy");
    io::Error::new(io::ErrorKind::NotFound, what)
}

/// State of the logs at a start.
pub(super) struct Recovered {
    /// Number of the last frame.
    pub last: u64,
    /// Key of later ones: the base's, or a fresh one if it has none or if frames with its key could follow new ones.
    pub key: LogKey,
    /// Lengths of the logs.
    pub lens: [u64; 2],
}

/// Applies the changes in the logs to the base. Fails if frames are missing that were synced, unless `accepts_loss`.
pub(super) fn recover<E: Env>(
    base: &Base<Blocking<E>>,
    logs: &[Blocking<E>; 2],
    synced: &Blocking<E>,
    reserve: &Reserve<E>,
    (fresh, accepts_loss): (LogKey, bool),
) -> Result<Recovered, OpenError> {
    let applied = base.applied()?;
    let key = base.log_key()?;
    let known = match progress::read(synced) {
        Ok(Some(known)) => known,
        _ if accepts_loss => Synced::default(),
        Ok(None) => return Err(lost(format!("{SYNCED} is damaged"))),
        Err(error) => return Err(error.into()),
    };
    let mut found = Vec::new();
    for (index, log) in logs.iter().enumerate() {
        let (len, len_min) = (log.len()?.0, known.len_min(index));
        if len < len_min {
            let what = format!("{} has {len} bytes, but had {len_min}: its end is missing", LOGS[index]);
            if !accepts_loss {
                return Err(lost(what));
            }
        }
        // A log with a damaged beginning, or with one that is left from an earlier use, goes last. If it has newer frames
        // than the other, they are found.
        let first = first_frame(log, key)?.filter(|first| *first > applied);
        found.push((first.unwrap_or(u64::MAX), log));
    }
    found.sort_by_key(|(first, _)| *first);
    let mut delta = Delta::default();
    let (mut last, mut has_remains) = (applied, false);
    for (_, log) in found {
        let end = replay(log, key, last, accepts_loss, &mut delta)?;
        last = end.last;
        has_remains |= end.has_remains;
    }
    if last < known.frame && !accepts_loss {
        let name = LOGS[known.log];
        return Err(lost(format!(
            "its logs end with frame {last}, but frame {} was synced in {name} up to offset {}: acknowledged changes are \
             missing",
            known.frame, known.end
        )));
    }
    // A log that was cut gets its length back.
    let mut lens = [0; 2];
    for (index, log) in logs.iter().enumerate() {
        lens[index] = log.len()?.0.max(known.len_min(index));
        if log.len()?.0 < lens[index] {
            log.set_len(ByteLen(lens[index]))?;
        }
    }
    // After an accepted loss, frames of this key may be left anywhere.
    let next_key = if key == LogKey::NONE || has_remains || accepts_loss { fresh } else { key };
    if last > applied || next_key != key {
        let result = base.apply(&delta, last, next_key);
        if reserve.release_for_retry(&result) {
            // The parts are no transaction together, and the logs must survive a loss of power between them.
            logs.iter().try_for_each(BlockingFile::sync)?;
            // redb stops using a file after its first error.
            base.reopen()?;
            for part in delta.parts(LOW_TRANSACTION_BYTES) {
                base.apply_part(&part)?;
            }
            base.apply(&Delta::default(), last, next_key)?;
        } else {
            result?;
        }
    }
    // The base has all frames. From here on, they may be overwritten.
    let synced_now = Synced { frame: last, log: 0, end: 0, lens };
    if synced_now != known {
        // A log that grew before a kill may have a length that is not on the disk yet.
        logs.iter().try_for_each(BlockingFile::sync)?;
        progress::begin(synced, &synced_now)?;
    }
    Ok(Recovered { last, key: next_key, lens })
}

fn lost(what: String) -> OpenError {
    io::Error::new(io::ErrorKind::InvalidData, format!("{what}; {LOST_FRAMES}")).into()
}
