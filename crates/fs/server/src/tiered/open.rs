//! Opening and closing a target with its SSD tier.

use super::{SsdTier, TieredTarget, UnusableSsd};
use crate::config::{LogConfig, ServerConfig, TargetConfig};
use crate::lease::LEASE_TERM;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weft_core::cache::CacheMode;
use weft_core::ibridge::Decider;
use weft_core::{ByteLen, Nanos};
use weft_env::Env;
use weft_store::error::TargetError;
use weft_store::fragments::{FragmentLog, LogError, LogSpec, Lost, OpenLogError};
use weft_store::target::{LogNote, Target};

/// Bytes written back between two checks whether to continue.
pub(super) const STEP_LEN: ByteLen = ByteLen(16 << 20);
/// Interval of progress messages while everything is written back.
const PROGRESS_INTERVAL: Nanos = Nanos::from_s(5);
/// Shortest segment of a log that is large enough for the minimum number of segments.
const SEGMENT_LEN_MIN: ByteLen = ByteLen::from_kib(64);
/// Number of lost ranges that are logged one by one.
const LOGGED_LOSSES_MAX: usize = 1000;

/// Opens the SSD tier that the configuration names for `target`.
///
/// The note of the target names a log that may have the only copy of bytes, or a log that has copies only:
///
/// | note | log in the cluster file | action |
/// |---|---|---|
/// | none | any | open it, drop its copies, which may be older than the disk, and write the note |
/// | copies | the same, usable | open it |
/// | copies | another one | as without a note |
/// | copies | none, or an unusable one | remove the note; use the disk |
/// | only copies of bytes | the same | open it; it must exist |
/// | only copies of bytes | none, or another one | refuse to start |
///
/// # Errors
/// The log cannot be used, or another log has bytes of this target.
pub(crate) async fn open<E: Env>(
    env: &E,
    config: &ServerConfig,
    target_config: &TargetConfig,
    target: Target<E>,
    decider: Option<&Arc<Mutex<Decider>>>,
) -> Result<TieredTarget<E>, TargetError> {
    let noted = target.log_beside().await?;
    let named = target_config.log();
    let is_named = |note: &LogNote| named.as_ref().is_some_and(|log| log.path == note.path);
    if let Some(note) = noted.as_ref().filter(|note| !note.has_copies_only && !is_named(note)) {
        return Err(TargetError::LogNotNamed { path: target_config.path.clone(), log: note.path.clone() });
    }
    let is_off = target_config.ibridge_policy().is_none() && target_config.cache_in_use().is_none();
    let note_of_log = noted.as_ref().filter(|note| is_named(note));
    let Some(named) = named.filter(|_| !is_off || note_of_log.is_some()) else {
        if noted.is_some() {
            target.note_log(None).await?;
        }
        return Ok(TieredTarget::new(target, None));
    };
    let say = |line: &str| config.hooks.log_of(&target_config.id, line);
    let log = match open_log(env, config, target_config, &named, note_of_log, &say).await {
        Ok(log) => log,
        Err(error)
            if note_of_log.is_none_or(|note| note.has_copies_only)
                && has_copies_only(target_config)
                && is_dispensable(&error) =>
        {
            let why = format!("the cache is not used: {error}");
            say(&format!("error: {why}"));
            target.note_log(None).await?;
            let unusable = UnusableSsd { path: named.path.display().to_string(), why };
            return Ok(TieredTarget { unusable: Some(unusable), ..TieredTarget::new(target, None) });
        }
        Err(error) => return Err(error.into()),
    };
    if note_of_log.is_none() {
        // A disk is noted before the log gets its first bytes. So these belong to a disk before this one, or are copies that
        // may be older than it.
        let dropped = drop_all(&log).await;
        dropped.map_err(|error| not_flushed(&target, &named, error.to_string()))?;
    }
    let note = LogNote { path: named.path.clone(), has_copies_only: has_copies_only(target_config) };
    if !is_off && noted.is_none() {
        target.note_log(Some(&note)).await?;
    }
    if target.had_leases() {
        // A descriptor leased out by the previous server process could write to the disk past the log.
        env.sleep(LEASE_TERM).await;
    }
    let tier = SsdTier::new(env, target_config, named, log, decider.map(Arc::clone));
    let tiered = TieredTarget::new(target, Some(tier));
    if is_off {
        return drain_and_close(tiered, &say).await;
    }
    if noted.is_some_and(|noted| noted != note) {
        tiered.change_note(&note, &say).await?;
    }
    Ok(tiered)
}

/// Whether the tier never has the only copy of bytes.
fn has_copies_only(target: &TargetConfig) -> bool {
    let takes_writes = target.cache_in_use().is_some_and(|cache| cache.mode == CacheMode::WriteBack);
    target.ibridge_policy().is_none() && !takes_writes
}

/// Whether a target that has only copies on its SSD can do without it after this error. If the log belongs to another
/// target or server, the cluster file is wrong, and the start fails.
fn is_dispensable(error: &OpenLogError) -> bool {
    matches!(error, OpenLogError::Io { .. } | OpenLogError::Damaged { .. })
}

fn not_flushed<E: Env>(target: &Target<E>, log: &LogConfig, why: String) -> TargetError {
    TargetError::NotFlushed { path: target.path().to_owned(), log: log.path.clone(), why }
}

/// Opens the log `named`. `note` is what the disk has noted about it.
async fn open_log<E: Env>(
    env: &E,
    config: &ServerConfig,
    target_config: &TargetConfig,
    named: &LogConfig,
    note: Option<&LogNote>,
    say: &impl Fn(&str),
) -> Result<FragmentLog<E>, OpenLogError> {
    let spec = LogSpec {
        path: named.path.clone(),
        target: target_config.id,
        cluster: config.cluster.clone(),
        target_path: target_config.path.clone(),
        size: named.size,
        segment_len: segment_len(named.size),
        entry_len: named.entry_len,
        must_exist: note.is_some_and(|note| !note.has_copies_only),
        emulate: named.emulate.clone(),
    };
    let (log, found) = FragmentLog::open(env, &spec).await?;
    let path = named.path.display();
    if found.dirty > ByteLen(0) {
        let fate = match note.is_some() {
            true => "that will be written back to the disk",
            false => "of another disk of this target, which are dropped",
        };
        say(&format!("the fragment log {path} holds {} bytes {fate}", found.dirty.0));
    }
    found.lost.iter().take(LOGGED_LOSSES_MAX).for_each(|lost| say(&format!("error: {}", describe(lost))));
    if found.lost.len() > LOGGED_LOSSES_MAX {
        say(&format!("error: {} more ranges are lost", found.lost.len() - LOGGED_LOSSES_MAX));
    }
    Ok(log)
}

/// Scales the segment length with the log: the segment being filled and those being cleaned would take too large a part
/// of a small log.
fn segment_len(size: ByteLen) -> ByteLen {
    let most = (size.0 / LogSpec::SEGMENTS_MIN).max(LogSpec::SEGMENT_LEN_MIN.into());
    let part = (size.0 / (2 * LogSpec::SEGMENTS_MIN)).max(SEGMENT_LEN_MIN.0).min(most);
    ByteLen(1 << part.ilog2()).min(LogSpec::SEGMENT_LEN)
}

fn describe(lost: &Lost) -> String {
    let extent = lost.extent;
    format!(
        "{} from {}: {} bytes that were only on the SSD are lost; reads of them fail until they are written again",
        lost.key.name(),
        extent.start(),
        extent.len()
    )
}

/// Drops all bytes of a log, also those that are not on the disk.
async fn drop_all<E: Env>(log: &FragmentLog<E>) -> Result<(), LogError> {
    while let Some(&(key, _)) = log.list(None, 1).first() {
        log.remove(key).await?;
    }
    Ok(())
}

/// Writes everything back to the disk and closes the log for good.
async fn drain_and_close<E: Env>(
    tiered: TieredTarget<E>,
    say: &impl Fn(&str),
) -> Result<TieredTarget<E>, TargetError> {
    let tier = tiered.tier.as_ref().expect("there is a log");
    let log = tier.config.path.clone();
    let failed = |why: String| not_flushed(&tiered.target, &tier.config, why);
    tiered.drain(&AtomicBool::new(false), say).await.map_err(failed)?;
    let left = tier.dirty();
    if left > ByteLen(0) {
        return Err(failed(format!("{} bytes are lost or cannot be written", left.0)));
    }
    drop_all(&tier.log).await.map_err(|error| failed(error.to_string()))?;
    tier.log.close().await.map_err(|error| failed(error.to_string()))?;
    tiered.target.note_log(None).await?;
    say(&format!("the fragment log {} is empty and no longer used", log.display()));
    Ok(TieredTarget::new(tiered.target, None))
}

impl<E: Env> TieredTarget<E> {
    /// Changes the note of the log after the configuration has changed. A log that may have the only copy of bytes is
    /// written back before its note says that it has copies only; if it cannot be, its note stays.
    async fn change_note(&self, note: &LogNote, say: &impl Fn(&str)) -> Result<(), TargetError> {
        if let Some(tier) = self.tier.as_ref().filter(|_| note.has_copies_only) {
            if let Err(why) = self.drain(&AtomicBool::new(false), say).await {
                say(&format!("warn: bytes stay on the SSD {}: {why}", tier.config.path.display()));
            }
            if tier.dirty() > ByteLen(0) || tier.log.stats().lost > ByteLen(0) {
                return Ok(());
            }
        }
        self.target.note_log(Some(note)).await
    }

    /// Writes back everything that is dirty now, until `skip` is set.
    ///
    /// # Errors
    /// The first error, after everything else has been written.
    pub(super) async fn drain(&self, skip: &AtomicBool, say: impl Fn(&str)) -> Result<(), String> {
        let Some(tier) = &self.tier else { return Ok(()) };
        let path = tier.config.path.display();
        let (mut from, mut reported_at) = (None, tier.env.now());
        let mut failed = None;
        if tier.dirty() > ByteLen(0) {
            say(&format!(
                "writing {} bytes from the SSD {path} to the disk; another signal leaves them there",
                tier.dirty().0
            ));
        }
        while !skip.load(Ordering::SeqCst) {
            match self.write_back(from, STEP_LEN).await {
                Ok(step) => from = step.next,
                Err((error, next)) => {
                    failed.get_or_insert(error.to_string());
                    from = next;
                }
            }
            if from.is_none() {
                break;
            }
            let now = tier.env.now();
            if now.saturating_sub(reported_at) >= PROGRESS_INTERVAL {
                reported_at = now;
                say(&format!("warn: {} bytes are left on the SSD {path}", tier.dirty().0));
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Ends the background task: writes everything back unless `skip` is set, and closes the log.
    pub async fn shut_down(&self, skip: &AtomicBool, say: impl Fn(&str)) {
        let Some(tier) = &self.tier else { return };
        if let Err(why) = self.drain(skip, &say).await {
            say(&format!("warn: bytes stay on the SSD {}: {why}", tier.config.path.display()));
        }
        self.settle_copies(tier, || !skip.load(Ordering::SeqCst)).await;
        if let Err(error) = tier.log.close().await {
            say(&format!("error: {error}"));
        }
    }
}
