//! A target's start and end with the SSD beside it.

use super::{Bridge, Placed};
use crate::config::{IbridgeConfig, ServerConfig, TargetConfig};
use crate::lease::LEASE_TERM;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weft_core::ibridge::{Decider, Policy};
use weft_core::{ByteLen, Nanos};
use weft_env::Env;
use weft_store::error::TargetError;
use weft_store::fragments::{FragmentLog, LogSpec, Lost};
use weft_store::target::Target;

/// How much is written back between two looks at whether to go on.
pub(super) const STEP: ByteLen = ByteLen(16 << 20);
/// How often the log is told how far writing back has come.
const TOLD_EVERY: Nanos = Nanos::from_s(5);
/// The shortest segment of a log that has room for enough of them.
const SEGMENT_LEN_MIN: ByteLen = ByteLen::from_kib(64);
/// So many lost ranges are named one by one.
const LOST_MAX: usize = 1000;

/// Opens what stands beside `target` and puts both together.
///
/// # Errors
/// When the log cannot be used, or is another than the one that has bytes of this target.
pub(crate) async fn open<E: Env>(
    env: &E,
    config: &ServerConfig,
    wanted: &TargetConfig,
    target: Target<E>,
    decider: Option<&Arc<Mutex<Decider>>>,
) -> Result<Placed<E>, TargetError> {
    let noted = target.log_beside().await?;
    let Some(ibridge) = &wanted.ibridge else {
        return match noted {
            None => Ok(Placed::new(target, None)),
            Some(log) => Err(TargetError::LogNotNamed { path: wanted.path.clone(), log }),
        };
    };
    if let Some(log) = noted.clone().filter(|log| *log != ibridge.path) {
        return Err(TargetError::LogNotNamed { path: wanted.path.clone(), log });
    }
    if ibridge.policy == Policy::Off && noted.is_none() {
        return Ok(Placed::new(target, None));
    }
    let say = |line: &str| (config.hooks.log)(&format!("{}: {line}", wanted.id));
    let log = open_log(env, config, wanted, ibridge, noted.is_some(), &say).await?;
    if noted.is_none() {
        target.note_log(Some(&ibridge.path)).await?;
    }
    if target.had_leases() {
        // Descriptors that the process before this one lent could be written through behind the log's back.
        env.sleep(LEASE_TERM).await;
    }
    let placed = |target, decider| Placed::new(target, Some(Bridge::new(env, ibridge, log.clone(), decider)));
    match decider {
        Some(decider) => Ok(placed(target, Arc::clone(decider))),
        None => empty(placed(target, Arc::new(Mutex::new(ibridge.decider(wanted)))), &say).await,
    }
}

async fn open_log<E: Env>(
    env: &E,
    config: &ServerConfig,
    wanted: &TargetConfig,
    ibridge: &IbridgeConfig,
    has_been: bool,
    say: &impl Fn(&str),
) -> Result<FragmentLog<E>, TargetError> {
    let spec = LogSpec {
        path: ibridge.path.clone(),
        target: wanted.id,
        cluster: config.cluster.clone(),
        target_path: wanted.path.clone(),
        size: ibridge.size,
        segment_len: segment_len(ibridge.size),
        entry_len: ibridge.entry_len,
        emulate: ibridge.emulate.clone(),
    };
    let (log, found) = FragmentLog::open(env, &spec).await?;
    let path = ibridge.path.display();
    if found.is_new && has_been {
        say(&format!("the fragment log {path} is new: what the one before it had for the disk is lost"));
    }
    if found.dirty > ByteLen(0) {
        say(&format!("the fragment log {path} has {} bytes that go to the disk in time", found.dirty.0));
    }
    found.lost.iter().take(LOST_MAX).for_each(|lost| say(&told(lost)));
    if found.lost.len() > LOST_MAX {
        say(&format!("and {} more ranges are lost", found.lost.len() - LOST_MAX));
    }
    Ok(log)
}

/// Small logs have small segments: one that is being filled and some to clean take too much of them otherwise.
fn segment_len(size: ByteLen) -> ByteLen {
    let most = (size.0 / LogSpec::SEGMENTS_MIN).max(LogSpec::SEGMENT_LEN_MIN.into());
    let part = (size.0 / (2 * LogSpec::SEGMENTS_MIN)).max(SEGMENT_LEN_MIN.0).min(most);
    ByteLen(1 << part.ilog2()).min(LogSpec::SEGMENT_LEN)
}

fn told(lost: &Lost) -> String {
    let extent = lost.extent;
    format!(
        "{} from {}: {} bytes that were only on the SSD are lost; they cannot be read until they are written anew",
        lost.key.name(),
        extent.start(),
        extent.len()
    )
}

/// Brings everything to the disk and gives the log up.
async fn empty<E: Env>(placed: Placed<E>, say: &impl Fn(&str)) -> Result<Placed<E>, TargetError> {
    let bridge = placed.bridge.as_ref().expect("there is a log");
    let (path, log) = (placed.target.path().to_owned(), bridge.config.path.clone());
    let failed = |why: String| TargetError::NotFlushed { path: path.clone(), log: log.clone(), why };
    placed.drain(&AtomicBool::new(false), say).await.map_err(failed)?;
    let left = bridge.dirty();
    if left > ByteLen(0) {
        return Err(failed(format!("{} bytes of it are lost or cannot be written", left.0)));
    }
    while let Some(&(key, _)) = bridge.log.list(None, 1).first() {
        bridge.log.remove(key).await.map_err(|error| failed(error.to_string()))?;
    }
    bridge.log.close().await.map_err(|error| failed(error.to_string()))?;
    placed.target.note_log(None).await?;
    say(&format!("the fragment log {} is empty and no longer used", log.display()));
    Ok(Placed::new(placed.target, None))
}

impl<E: Env> Placed<E> {
    /// Writes everything back that is dirty now, unless it is told to `hurry`.
    ///
    /// # Errors
    /// What stands in the way, after everything else has been written.
    pub(super) async fn drain(&self, hurry: &AtomicBool, say: impl Fn(&str)) -> Result<(), String> {
        let Some(bridge) = &self.bridge else { return Ok(()) };
        let path = bridge.config.path.display();
        let (mut from, mut told) = (None, bridge.env.now());
        let mut failed = None;
        if bridge.dirty() > ByteLen(0) {
            say(&format!(
                "writing {} bytes from the SSD {path} to the disk; another signal leaves them there",
                bridge.dirty().0
            ));
        }
        while !hurry.load(Ordering::SeqCst) {
            match self.write_back(from, STEP).await {
                Ok(step) => from = step.next,
                Err((error, next)) => {
                    failed.get_or_insert(error.to_string());
                    from = next;
                }
            }
            if from.is_none() {
                break;
            }
            let now = bridge.env.now();
            if now.saturating_sub(told) >= TOLD_EVERY {
                told = now;
                say(&format!("{} bytes are left on the SSD {path}", bridge.dirty().0));
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// The end of the task that looks after the SSD: everything goes to the disk, unless there is a `hurry`, and the log is
    /// closed in order.
    pub async fn put_away(&self, hurry: &AtomicBool, say: impl Fn(&str)) {
        let Some(bridge) = &self.bridge else { return };
        if let Err(why) = self.drain(hurry, &say).await {
            say(&format!("bytes stay on the SSD {}: {why}", bridge.config.path.display()));
        }
        if let Err(error) = bridge.log.close().await {
            say(&error.to_string());
        }
    }
}
