//! The files of a database: making them, and reading again what was committed before a crash.

use super::reserve::Reserve;
use super::{Blocking, JournalOptions, LOW_PART_LEN, OpenError};
use crate::metadata::base::Base;
use crate::metadata::delta::Delta;
use crate::metadata::identity::Identity;
use crate::metadata::log::{LogKey, first_frame, is_used, replay};
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

/// Log room beyond its nominal length that is allocated beforehand, for the frame that fills it.
const LOG_SLACK: u64 = 256 << 10;
/// Zeros are written in pieces of this many bytes.
const ZERO_CHUNK: u64 = 1 << 20;

/// Refuses a directory whose database holds something: its identity has been lost, and must not be written anew as
/// that of an empty one.
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
        // One that cannot be read was cut short when it was made: nothing has been acknowledged before the identity.
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

/// Makes an empty database. The identity comes last: what is cut short is done again.
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

/// Makes the files of an empty database, except its identity.
pub(super) async fn make_files<D: Dir>(dir: &D, options: JournalOptions) -> Result<(), OpenError>
where
    D::File: File,
{
    for name in LOGS {
        let file = dir.open(name, OpenMode::CREATE).await?;
        file.set_len(ByteLen(0)).await?;
        // Written and not only reserved: a later sync has then no change of the file's own metadata to commit.
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
    let base = dir.open(BASE, OpenMode::CREATE).await?;
    base.set_len(ByteLen(0)).await?;
    let sums = dir.open(SUMS, OpenMode::CREATE).await?;
    sums.set_len(ByteLen(0)).await?;
    drop(Base::open(base.blocking(), sums.blocking(), BASE.to_owned(), 1 << 20)?);
    base.sync().await?;
    sums.sync().await?;
    Ok(())
}

/// Writes the identity file, whole or not at all; it survives loss of power.
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

/// Brings the base up with what the logs hold; the number of the last frame, and the key of those after it: `fresh` where
/// the base has none yet.
pub(super) fn recover<E: Env>(
    base: &Base<Blocking<E>>,
    logs: &[Blocking<E>; 2],
    reserve: &Reserve<E>,
    fresh: LogKey,
) -> Result<(u64, LogKey), OpenError> {
    let applied = base.applied()?;
    let key = base.log_key()?;
    let mut found = Vec::new();
    for (log, name) in logs.iter().zip(LOGS) {
        if log.len()? == ByteLen(0) {
            let what = format!("{name} is empty; restore the metadata path from a copy");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what).into());
        }
        // One whose beginning is damaged comes last: should it have newer frames than the other, they are found.
        found.push((first_frame(log, key)?.unwrap_or(u64::MAX), log));
    }
    found.sort_by_key(|(first, _)| *first);
    let mut delta = Delta::default();
    let mut last = applied;
    for (_, log) in found {
        last = replay(log, key, last, &mut delta)?;
    }
    let next_key = if key == LogKey::NONE { fresh } else { key };
    if last > applied || next_key != key {
        let brought = base.apply(&delta, last, next_key);
        if reserve.helps(&brought) {
            // redb does nothing more with a file that has failed it once.
            base.reopen()?;
            for part in delta.parts(LOW_PART_LEN) {
                base.apply_part(&part)?;
            }
            base.apply(&Delta::default(), last, next_key)?;
        } else {
            brought?;
        }
    }
    Ok((last, next_key))
}
