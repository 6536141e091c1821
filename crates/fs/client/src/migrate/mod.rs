//! Moves: copying a file to another layout while programs read and write it.
//!
//! ```text
//! mover                          old datafiles            new datafiles          metadata server
//! 1 register ────────────────────────────────────────────────────────────────▶ row for the next generation
//! 2 watch ─────────────────────▶ note changed ranges
//! 3 copy everything ◀────────────────────────────────────▶
//! 4 fetch and copy changes, repeat until little is left
//! 5 take the append lock, ask for the last step ───────────────────────────────▶ seal time
//! 6 seal ──────────────────────▶ reject old capabilities
//! 7 copy the last changes, fence and sync ───────────────▶
//! 8 commit ──────────────────────────────────────────────────────────────────▶ one transaction swaps layouts
//! ```
//!
//! | file | steps |
//! | --- | --- |
//! | `watch` | 2, and the changed ranges of 4 |
//! | `copy` | 3, and the copying of 4 and 7 |
//! | `cutover` | 5 to 8, while the file's users wait |
//!
//! Until step 8 the file keeps its old datafiles, so the mover may die at any point without a loss. Clients that meet
//! a sealed datafile ask the metadata server for the new layout. See docs/design/moving-files.md.

mod copy;
mod cutover;
mod watch;

use crate::call::Effect;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::file::Unsynced;
use crate::registry::OpenRecord;
use crate::session::Session;
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use watch::Watched;
use weft_core::{ByteLen, ByteRange, ChangedRanges, FileId, FileOffset, Layout, Nanos};
use weft_env::Env;
use weft_wire::meta::{
    HandleId, InodePath, LayoutSpec, MetaReply, MetaRequest, MoveState, Moving, OpenFlags, WriteSummary,
};
use weft_wire::{Capability, Errno};

/// Most changed ranges that are kept apart; more are merged with the bytes between them.
const CHANGED_RANGES_MAX: usize = 1 << 14;
/// The last step begins when no more than this is left to copy, because the file's users wait during it.
const LAST_STEP_BYTES_MAX: ByteLen = ByteLen::from_mib(4);
/// Rounds after which the last step may take up to [`LAST_STEP_TIME_MAX`].
const ROUNDS_BEFORE_LONG_LAST_STEP: u32 = 6;
/// Longest estimated time of the last step, at the rate so far.
const LAST_STEP_TIME_MAX: Nanos = Nanos::from_s(2);
/// Rounds after which the move gives up: the file is written faster than it is copied.
const ROUNDS_MAX: u32 = 40;
/// Most attempts of the last step.
const LAST_STEP_ATTEMPTS_MAX: u32 = 5;
/// Interval between progress reports to the metadata server.
const REPORT_INTERVAL: Nanos = Nanos::from_s(1);

/// Options of a move.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MoveOptions {
    /// Most bytes copied in a second, except in the last step.
    pub rate_bytes_per_s: Option<ByteLen>,
    /// Whether to copy only while the disks of the old and the new targets are idle, except in the last step.
    pub only_while_idle: bool,
    /// Whether to read the copied bytes back and compare them.
    pub verify: bool,
    /// Most bytes left for the last step, during which the file's users wait; 4 MiB by default.
    pub last_step_bytes_max: Option<ByteLen>,
    /// Bytes that are read and written at a time; 8 MiB by default.
    pub piece_len: Option<ByteLen>,
    /// Bytes after which the copy is synced and recorded, so that another mover can resume there; 1 GiB by default.
    pub checkpoint_interval: Option<ByteLen>,
}

/// Progress of a move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MoveProgress {
    /// Bytes of this round that were processed.
    pub done: ByteLen,
    /// Bytes of this round.
    pub total: ByteLen,
    /// Whether the move waits until the disks are idle.
    pub is_waiting: bool,
    /// Number of the round, from 1. Later rounds copy bytes that were changed during earlier ones.
    pub round: u32,
}

/// Outcome of a move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MoveOutcome {
    /// The file already has the layout.
    Already,
    /// The callback stopped the move. A later move to the same layout resumes, unless the file was changed in between.
    Stopped,
    /// The file was moved.
    Moved(MoveReport),
}

/// Figures of a move.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MoveReport {
    /// Length of the file.
    pub size: ByteLen,
    /// Bytes written to the new datafiles; bytes written twice count twice.
    pub copied: ByteLen,
    /// Bytes at the start that an earlier, stopped move had copied.
    pub kept: ByteLen,
    /// Number of copy rounds.
    pub rounds: u32,
    /// Time that the file's users had to wait during the last step.
    pub paused: Nanos,
}

/// Called between two pieces of a copy: returns whether to continue.
pub type ProgressCallback<'a> = dyn FnMut(MoveProgress) -> bool + 'a;

impl<E: Env> Client<E> {
    /// Moves a file to the layout that a new file of its name would get by `spec`.
    ///
    /// # Errors
    /// `EPERM` when the caller neither owns the file nor is root; `EBUSY` when another mover is active; `EINVAL` when
    /// no target fits; `ENOSPC`; errors of the servers. The file is unchanged then.
    pub async fn migrate(
        &self,
        at: &InodePath,
        spec: &LayoutSpec,
        options: MoveOptions,
        on_progress: &mut ProgressCallback<'_>,
    ) -> Result<MoveOutcome> {
        let core = &self.session.core;
        core.check_not_forked()?;
        let handle = core.new_handle();
        let request = MetaRequest::BeginMove { at: at.clone(), handle, layout: spec.clone(), dry_run: false };
        let moving = match self.session.call_at(at, Effect::Repeatable, request).await? {
            MetaReply::Moving(moving) => *moving,
            MetaReply::Done => return Ok(MoveOutcome::Already),
            _ => return Err(Error::unexpected_reply()),
        };
        let record = Arc::new(OpenRecord {
            handle,
            file: moving.file,
            proof: moving.proof,
            identity: self.session.on_behalf.clone(),
            flags: OpenFlags::READ,
            cap: RwLock::new(Some(moving.from)),
            lost: AtomicBool::new(false),
            caching: AtomicBool::new(false),
            redirected: Mutex::default(),
        });
        core.registry.opened(&record);
        let mut mover = Mover::new(&self.session, Arc::clone(&record), moving, options);
        let result = mover.run(on_progress).await;
        core.registry.closed(handle);
        core.wait_for_reclaims().await;
        let close = MetaRequest::Close { handle, summary: WriteSummary::default() };
        if !record.lost.load(Relaxed) {
            let _ = core.send_one_way(self.session.identity(), close).await;
        }
        if result.as_ref().is_err_and(|error| error.errno() == Errno::ENOSPC.0) {
            // The move cannot be resumed, and its copy would take space from other files.
            let _ = self.cancel_move(at).await;
        }
        result.map_err(|error| {
            const WHY: &str = "another client is moving the file, or has moved it";
            let error = if error.is_stale_layout() { Error::misuse(Errno::EBUSY, WHY) } else { error };
            error.about(&at.path)
        })
    }

    /// Returns the layout that [`migrate`](Self::migrate) would give a file, with the space that is free now.
    ///
    /// # Errors
    /// Errors of [`migrate`](Self::migrate).
    pub async fn layout_if_moved(&self, at: &InodePath, spec: &LayoutSpec) -> Result<Layout> {
        let (handle, layout) = (HandleId(0), spec.clone());
        let request = MetaRequest::BeginMove { at: at.clone(), handle, layout, dry_run: true };
        match self.session.call_at(at, Effect::Repeatable, request).await? {
            MetaReply::Layout { layout: Some(layout), .. } => Ok(layout),
            _ => Err(Error::unexpected_reply()),
        }
    }

    /// Returns this user's files that are being moved or whose moves were stopped; for root, those of all users.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn moves(&self) -> Result<Vec<MoveState>> {
        let (mut all, mut after) = (Vec::new(), FileId(0));
        loop {
            match self.session.call(Effect::Repeatable, MetaRequest::Moves { after }).await? {
                MetaReply::Moves { moves, more } => {
                    all.extend(moves);
                    match more.filter(|more| *more > after) {
                        Some(more) => after = more,
                        None => return Ok(all),
                    }
                }
                _ => return Err(Error::unexpected_reply()),
            }
        }
    }

    /// Cancels a move that was stopped or that another mover is performing, and removes the copy.
    ///
    /// # Errors
    /// `EPERM` when the caller neither owns the file nor is root.
    pub async fn cancel_move(&self, at: &InodePath) -> Result<()> {
        self.session.done_at(at, Effect::Once, MetaRequest::AbortMove { at: at.clone() }).await
    }
}

/// The datafiles of one layout.
struct DatafileSet {
    cap: Capability,
    layout: Layout,
}

impl DatafileSet {
    fn data(&self) -> FileId {
        self.cap.file
    }
}

/// A move in progress.
struct Mover<'a, E: Env> {
    session: &'a Session<E>,
    record: Arc<OpenRecord>,
    from: DatafileSet,
    to: DatafileSet,
    options: MoveOptions,
    /// Left by an earlier mover: the number of bytes copied, and the fence against its late writes (0 without an
    /// earlier mover).
    resume_from: (ByteLen, u64),
    watched: Vec<Watched>,
    /// When changes were last fetched.
    polled_at: Nanos,
    /// Ranges changed since they were copied.
    changed: ChangedRanges,
    /// Ranges where the new datafiles may contain other bytes than zeros.
    written: ChangedRanges,
    unsynced: Unsynced,
    /// When progress was last reported to the metadata server.
    reported_at: Nanos,
    /// Bytes written to the new datafiles, and the time that took.
    copied: ByteLen,
    copy_time: Nanos,
    buf: Vec<u8>,
}

impl<'a, E: Env> Mover<'a, E> {
    fn new(session: &'a Session<E>, record: Arc<OpenRecord>, moving: Moving, options: MoveOptions) -> Self {
        let Moving { from, from_layout, to, to_layout, copied, fence_s, .. } = moving;
        Self {
            session,
            record,
            from: DatafileSet { cap: from, layout: from_layout },
            to: DatafileSet { cap: to, layout: to_layout },
            options,
            resume_from: (copied, fence_s),
            watched: Vec::new(),
            polled_at: Nanos::ZERO,
            changed: ChangedRanges::new(CHANGED_RANGES_MAX),
            written: ChangedRanges::new(CHANGED_RANGES_MAX),
            unsynced: Unsynced::default(),
            reported_at: session.core.env.now(),
            copied: ByteLen::ZERO,
            copy_time: Nanos::ZERO,
            buf: Vec::new(),
        }
    }

    async fn run(&mut self, on_progress: &mut ProgressCallback<'_>) -> Result<MoveOutcome> {
        let begin = self.resume().await?;
        self.watch().await?;
        let size = self.size().await?;
        if let Some(all) = ByteRange::new(begin.0, size.0) {
            self.changed.add(all);
        }
        let (mut rounds, mut attempts) = (0, 0);
        loop {
            rounds += 1;
            let size = self.size().await?;
            if !self.round(rounds, size, on_progress).await? {
                return Ok(MoveOutcome::Stopped);
            }
            self.poll().await?;
            let size = self.size().await?;
            let left = self.changed_bytes_in(size);
            if !self.is_last_step_due(left, rounds) {
                if rounds >= ROUNDS_MAX {
                    const WHY: &str =
                        "the file is written faster than it can be copied: move it when it is written less";
                    return Err(Error::misuse(Errno::EBUSY, WHY));
                }
                continue;
            }
            attempts += 1;
            match self.finish().await {
                Ok((size, paused)) => {
                    let copied = self.copied;
                    return Ok(MoveOutcome::Moved(MoveReport { size, copied, kept: begin, rounds, paused }));
                }
                // The last step took too long, or another client was in the middle of an operation: try again.
                Err(error) if attempts < LAST_STEP_ATTEMPTS_MAX && error.errno() == Errno::EAGAIN.0 => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Fences an earlier mover's writes, and returns how many bytes of its copy are valid.
    async fn resume(&mut self) -> Result<ByteLen> {
        let (copied, fence_s) = self.resume_from;
        if fence_s == 0 {
            return Ok(ByteLen::ZERO);
        }
        let (core, to) = (&self.session.core, &self.to);
        core.fence(to.data(), to.cap, &to.layout, fence_s).await?;
        let boots = core.set_lens(to.data(), to.cap, &to.layout, FileOffset(copied.0)).await?;
        self.unsynced.note_all(&boots);
        if let Some(range) = ByteRange::new(0, copied.0) {
            self.written.add(range);
        }
        Ok(copied)
    }

    fn is_last_step_due(&self, left: ByteLen, rounds: u32) -> bool {
        // Estimated from the copy rate so far.
        let in_time = match self.copy_time {
            Nanos(0) => 0,
            Nanos(took) => {
                (u128::from(self.copied.0) * u128::from(LAST_STEP_TIME_MAX.0) / u128::from(took)) as u64
            }
        };
        left <= self.options.last_step_bytes_max.unwrap_or(LAST_STEP_BYTES_MAX)
            || rounds >= ROUNDS_BEFORE_LONG_LAST_STEP && left.0 <= in_time
    }

    /// Number of changed bytes within the size of the file.
    fn changed_bytes_in(&self, size: ByteLen) -> ByteLen {
        let Some(all) = ByteRange::new(0, size.0) else { return ByteLen::ZERO };
        let ranges = self.changed.ranges().overlapping(all).filter_map(|range| range.intersection(all));
        ByteLen(ranges.map(ByteRange::len).sum())
    }

    /// Returns the current size of the file.
    async fn size(&mut self) -> Result<ByteLen> {
        let found = self.session.core.survey(self.from.cap, &self.from.layout).await;
        let found = match found {
            Err(error) if error.is_expired() => {
                self.renew_capabilities(ByteLen::ZERO).await?;
                self.session.core.survey(self.from.cap, &self.from.layout).await
            }
            found => found,
        };
        found.map(|found| found.size)
    }

    /// Fetches fresh capabilities, and records that `copied` bytes from the start are durable.
    async fn renew_capabilities(&mut self, copied: ByteLen) -> Result<()> {
        self.renew_and_report(copied, ByteLen::ZERO, ByteLen::ZERO).await
    }

    /// Reports progress to the metadata server from time to time.
    async fn report_progress(&mut self, left: ByteLen) -> Result<()> {
        let now = self.session.core.env.now();
        if now < self.reported_at.saturating_add(REPORT_INTERVAL) {
            return Ok(());
        }
        self.reported_at = now;
        self.renew_and_report(ByteLen::ZERO, self.copied, left).await
    }

    async fn renew_and_report(&mut self, copied: ByteLen, done: ByteLen, left: ByteLen) -> Result<()> {
        let request = MetaRequest::RenewMove { handle: self.record.handle, copied, done, left };
        let moving = self.send_move_request(request).await?;
        self.install_capabilities(&moving);
        Ok(())
    }

    async fn send_move_request(&self, request: MetaRequest) -> Result<Moving> {
        match self.session.call(Effect::Repeatable, request).await? {
            MetaReply::Moving(moving) => Ok(*moving),
            _ => Err(Error::unexpected_reply()),
        }
    }

    fn install_capabilities(&mut self, moving: &Moving) {
        (self.from.cap, self.to.cap) = (moving.from, moving.to);
        *self.record.cap.write() = Some(moving.from);
    }
}
