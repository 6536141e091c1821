//! Moving a file to another layout while programs read and write it.
//!
//! The bytes are copied to new datafiles while the servers of the old ones note what is changed ([`watch`]); what was changed
//! is copied again, until little is left. Then the old datafiles are sealed, the last bytes copied and made safe, and the
//! metadata service puts the new ones in their place ([`over`]). Whoever comes to the old ones from then on is refused and
//! asks where the bytes are. Nothing is lost when the mover dies at any point: until the very end the file has what it had.

mod copy;
mod over;
mod watch;

use crate::call::Effect;
use crate::client::Client;
use crate::control::odd_reply;
use crate::error::{Error, Result};
use crate::file::{Unsynced, moved};
use crate::registry::OpenRecord;
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use watch::Watched;
use weft_core::{ByteLen, ByteRange, Changed, FileId, FileOffset, Layout, Nanos};
use weft_env::Env;
use weft_wire::meta::{
    HandleId, LayoutSpec, MetaReply, MetaRequest, MoveState, Moving, OpenFlags, Place, WriteSummary,
};
use weft_wire::{Capability, Errno};

/// Changed ranges that are told apart.
const RANGES_MAX: usize = 1 << 14;
/// The last bytes are copied while everybody waits when there are no more than this.
const LAST_MAX: ByteLen = ByteLen::from_mib(4);
/// After so many rounds they may take longer.
const ROUNDS_SHORT: u32 = 6;
/// So long, at the rate so far.
const LAST_FOR: Nanos = Nanos::from_s(2);
/// After so many the file is written faster than it can be copied.
const ROUNDS_MAX: u32 = 40;
/// How often the last part is tried.
const TRIES_MAX: u32 = 5;
/// So often the metadata service is told how far a move is.
const TELL_AFTER: Nanos = Nanos::from_s(1);

/// How to move a file.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MoveOptions {
    /// Bytes in a second at the most, apart from the last ones.
    pub rate: Option<ByteLen>,
    /// Reads everything back that was written, and compares.
    pub verify: bool,
    /// So many bytes may be left for the end, when the file's users wait; 4 MiB when missing.
    pub last: Option<ByteLen>,
    /// Bytes that are read at a time, and then written; 8 MiB when missing.
    pub piece: Option<ByteLen>,
    /// What was copied is made safe, for whoever goes on should this mover end, after so many bytes; 1 GiB when missing.
    pub safe_after: Option<ByteLen>,
}

/// How far a move is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MoveProgress {
    /// Bytes of the file that have been looked at in this round.
    pub done: ByteLen,
    /// Of so many.
    pub of: ByteLen,
    /// 1 for the first; later ones copy again what was changed meanwhile.
    pub round: u32,
}

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MoveOutcome {
    /// The file has that layout already.
    Already,
    /// It was asked to stop; who moves the file to that layout next goes on where this one was, if nobody changes it until
    /// then.
    Stopped,
    /// Done.
    Moved(MoveReport),
}

/// What a move took.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MoveReport {
    /// Length of the file.
    pub size: ByteLen,
    /// Bytes that were written to the new datafiles, those written again included.
    pub copied: ByteLen,
    /// Bytes from the start that were there already, from a mover that was stopped.
    pub kept: ByteLen,
    /// Times that changes were copied.
    pub rounds: u32,
    /// How long the file's users had to wait at the end.
    pub paused: Nanos,
}

/// Asked between two pieces of a file: whether to go on.
pub type GoOn<'a> = dyn FnMut(MoveProgress) -> bool + 'a;

impl<E: Env> Client<E> {
    /// Moves the bytes of a file to the layout that a new file of its name would get by `spec`.
    ///
    /// # Errors
    /// `EPERM` for who neither owns the file nor is root; `EBUSY` when somebody else moves it; `EINVAL` for what no target
    /// fits; `ENOSPC`; those of the servers. The file is as it was then.
    pub async fn migrate(
        &self,
        at: &Place,
        spec: &LayoutSpec,
        options: MoveOptions,
        go_on: &mut GoOn<'_>,
    ) -> Result<MoveOutcome> {
        let core = &self.core;
        core.check_ours()?;
        let handle = core.new_handle();
        let request = MetaRequest::Move { at: at.clone(), handle, layout: spec.clone(), only_tell: false };
        let moving = match self.about(at, Effect::Repeatable, request).await? {
            MetaReply::Moving(moving) => *moving,
            MetaReply::Done => return Ok(MoveOutcome::Already),
            _ => return Err(odd_reply()),
        };
        let record = Arc::new(OpenRecord {
            handle,
            file: moving.file,
            proof: moving.proof,
            who: self.on_behalf.clone(),
            flags: OpenFlags::READ,
            cap: RwLock::new(Some(moving.from)),
            lost: AtomicBool::new(false),
            caching: AtomicBool::new(false),
        });
        core.registry.opened(&record);
        let mut mover = Mover::new(self, Arc::clone(&record), moving, options);
        let result = mover.go(go_on).await;
        core.registry.closed(handle);
        core.until_reclaimed().await;
        let close = MetaRequest::Close { handle, summary: WriteSummary::default() };
        if !record.lost.load(Relaxed) {
            let _ = core.tell(self.who(), close).await;
        }
        if result.as_ref().is_err_and(|error| error.errno() == Errno::ENOSPC.0) {
            // Nobody can go on with it, and what was copied leaves no room for others.
            let _ = self.forget_move(at).await;
        }
        result.map_err(|error| {
            const WHY: &str = "somebody else moves the file, or has moved it meanwhile";
            let error = if moved(&error) { Error::misuse(Errno::EBUSY, WHY) } else { error };
            error.about(&at.path)
        })
    }

    /// The layout that [`migrate`](Self::migrate) would give a file, as far as room goes now.
    ///
    /// # Errors
    /// As there.
    pub async fn layout_if_moved(&self, at: &Place, spec: &LayoutSpec) -> Result<Layout> {
        let (handle, layout) = (HandleId(0), spec.clone());
        let request = MetaRequest::Move { at: at.clone(), handle, layout, only_tell: true };
        match self.about(at, Effect::Repeatable, request).await? {
            MetaReply::Layout { layout: Some(layout), .. } => Ok(layout),
            _ => Err(odd_reply()),
        }
    }

    /// Files of this user that are being moved, or whose moves were stopped; of root all.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn moves(&self) -> Result<Vec<MoveState>> {
        let (mut all, mut after) = (Vec::new(), FileId(0));
        loop {
            match self.call(Effect::Repeatable, MetaRequest::Moves { after }).await? {
                MetaReply::Moves { moves, more } => {
                    all.extend(moves);
                    match more.filter(|more| *more > after) {
                        Some(more) => after = more,
                        None => return Ok(all),
                    }
                }
                _ => return Err(odd_reply()),
            }
        }
    }

    /// Gives up a move that was stopped, or that somebody else is at: what was copied is removed.
    ///
    /// # Errors
    /// `EPERM` for who neither owns the file nor is root.
    pub async fn forget_move(&self, at: &Place) -> Result<()> {
        self.done(at, Effect::Once, MetaRequest::MoveNot { at: at.clone() }).await
    }
}

/// The datafiles of one layout.
struct Side {
    cap: Capability,
    layout: Layout,
}

impl Side {
    fn data(&self) -> FileId {
        self.cap.file
    }
}

/// A move under way.
struct Mover<'a, E: Env> {
    client: &'a Client<E>,
    record: Arc<OpenRecord>,
    from: Side,
    to: Side,
    options: MoveOptions,
    /// A former mover's: refuse what is older than the second before anything is written, and go on from the first.
    left: (ByteLen, u64),
    watched: Vec<Watched>,
    polled: Nanos,
    /// Changed since it was copied.
    changed: Changed,
    /// Where the new datafiles may have something else than zeros.
    written: Changed,
    unsynced: Unsynced,
    /// When the metadata service was told last how far this is.
    told: Nanos,
    /// Bytes written to the new datafiles, and how long it took.
    copied: ByteLen,
    took: Nanos,
    buf: Vec<u8>,
}

impl<'a, E: Env> Mover<'a, E> {
    fn new(client: &'a Client<E>, record: Arc<OpenRecord>, moving: Moving, options: MoveOptions) -> Self {
        let Moving { from, from_layout, to, to_layout, copied, fence_s, .. } = moving;
        Self {
            client,
            record,
            from: Side { cap: from, layout: from_layout },
            to: Side { cap: to, layout: to_layout },
            options,
            left: (copied, fence_s),
            watched: Vec::new(),
            polled: Nanos::ZERO,
            changed: Changed::new(RANGES_MAX),
            written: Changed::new(RANGES_MAX),
            unsynced: Unsynced::default(),
            told: client.core.env.now(),
            copied: ByteLen::ZERO,
            took: Nanos::ZERO,
            buf: Vec::new(),
        }
    }

    async fn go(&mut self, go_on: &mut GoOn<'_>) -> Result<MoveOutcome> {
        let begin = self.take_over().await?;
        self.watch().await?;
        let size = self.size().await?;
        if let Some(all) = ByteRange::new(begin.0, size.0) {
            self.changed.add(all);
        }
        let (mut rounds, mut tries) = (0, 0);
        loop {
            rounds += 1;
            let size = self.size().await?;
            if !self.round(rounds, size, go_on).await? {
                return Ok(MoveOutcome::Stopped);
            }
            self.poll().await?;
            let size = self.size().await?;
            let left = self.left_in(size);
            if !self.is_little(left, rounds) {
                if rounds >= ROUNDS_MAX {
                    const WHY: &str =
                        "the file is written faster than it can be copied: move it when it is quieter";
                    return Err(Error::misuse(Errno::EBUSY, WHY));
                }
                continue;
            }
            tries += 1;
            match self.finish().await {
                Ok((size, paused)) => {
                    let copied = self.copied;
                    return Ok(MoveOutcome::Moved(MoveReport { size, copied, kept: begin, rounds, paused }));
                }
                // It took too long, or somebody was in the middle of something: once more.
                Err(error) if tries < TRIES_MAX && error.errno() == Errno::EAGAIN.0 => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sees to it that nobody writes to the new datafiles any more; what they have for good.
    async fn take_over(&mut self) -> Result<ByteLen> {
        let (copied, fence_s) = self.left;
        if fence_s == 0 {
            return Ok(ByteLen::ZERO);
        }
        let (core, to) = (&self.client.core, &self.to);
        core.fence(to.data(), to.cap, &to.layout, fence_s).await?;
        let boots = core.set_lens(to.data(), to.cap, &to.layout, FileOffset(copied.0)).await?;
        self.unsynced.note_all(&boots);
        if let Some(range) = ByteRange::new(0, copied.0) {
            self.written.add(range);
        }
        Ok(copied)
    }

    fn is_little(&self, left: ByteLen, rounds: u32) -> bool {
        // By what a second has brought so far.
        let in_time = match self.took {
            Nanos(0) => 0,
            Nanos(took) => (u128::from(self.copied.0) * u128::from(LAST_FOR.0) / u128::from(took)) as u64,
        };
        left <= self.options.last.unwrap_or(LAST_MAX) || rounds >= ROUNDS_SHORT && left.0 <= in_time
    }

    /// Changed bytes that a file of this size has.
    fn left_in(&self, size: ByteLen) -> ByteLen {
        let Some(all) = ByteRange::new(0, size.0) else { return ByteLen::ZERO };
        let inside = self.changed.ranges().overlapping(all).filter_map(|range| range.intersection(all));
        ByteLen(inside.map(ByteRange::len).sum())
    }

    /// How long the file is now.
    async fn size(&mut self) -> Result<ByteLen> {
        let found = self.client.core.survey(self.from.cap, &self.from.layout).await;
        let found = match found {
            Err(error) if crate::write::expired(&error) => {
                self.go_on(ByteLen::ZERO).await?;
                self.client.core.survey(self.from.cap, &self.from.layout).await
            }
            found => found,
        };
        found.map(|found| found.size)
    }

    /// Fresh capabilities; `copied` bytes from the start are there and safe.
    async fn go_on(&mut self, copied: ByteLen) -> Result<()> {
        self.go_on_with(copied, ByteLen::ZERO, ByteLen::ZERO).await
    }

    /// Tells who asks for it how far this is, now and then.
    async fn tell(&mut self, left: ByteLen) -> Result<()> {
        let now = self.client.core.env.now();
        if now < self.told.saturating_add(TELL_AFTER) {
            return Ok(());
        }
        self.told = now;
        self.go_on_with(ByteLen::ZERO, self.copied, left).await
    }

    async fn go_on_with(&mut self, copied: ByteLen, done: ByteLen, left: ByteLen) -> Result<()> {
        let request = MetaRequest::MoveOn { handle: self.record.handle, copied, done, left };
        let moving = self.moving(request).await?;
        self.take(&moving);
        Ok(())
    }

    async fn moving(&self, request: MetaRequest) -> Result<Moving> {
        match self.client.call(Effect::Repeatable, request).await? {
            MetaReply::Moving(moving) => Ok(*moving),
            _ => Err(odd_reply()),
        }
    }

    fn take(&mut self, moving: &Moving) {
        (self.from.cap, self.to.cap) = (moving.from, moving.to);
        *self.record.cap.write() = Some(moving.from);
    }
}
