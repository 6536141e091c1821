//! Page caches of mounts and I/O delegates: events that drop pages, and waiting until they are dropped.
//!
//! | cache | allowed while | events |
//! | --- | --- | --- |
//! | kernel of a mount | no other session writes the file | after each write of another session, for its range |
//! | I/O delegate | all sessions that have the file open are of its job | when another session opens the file, for all of it |
//!
//! A delegate has dirty pages, and the open of another session waits until they are written. It then caches no page of
//! the file until its job has closed it. Because opens wait for delegates, only those of users who may write the file
//! may cache it.

use super::Service;
use super::fault::Outcome;
use super::serve::Call;
use std::sync::atomic::{AtomicU64, Ordering};
use weft_core::{FileId, Nanos};
use weft_env::{Env, Notify};
use weft_wire::BoundSession;
use weft_wire::Errno;
use weft_wire::meta::{EVENT_WAIT, HandleId, LOCK_WAIT, MetaReply, Outdated, PAGES_WAIT};
use weft_wire::status::DelegateCounts;

/// All pages of a file.
const ALL_PAGES: Outdated = Outdated::Pages { start: 0, end: u64::MAX };

/// Recalls of files from I/O delegates since the start.
#[derive(Default)]
pub(super) struct RecallCounts {
    all: AtomicU64,
    failed: AtomicU64,
    time_ns: AtomicU64,
}

impl RecallCounts {
    fn add(&self, took: Nanos, is_recalled: bool) {
        self.all.fetch_add(1, Ordering::Relaxed);
        self.failed.fetch_add(u64::from(!is_recalled), Ordering::Relaxed);
        self.time_ns.fetch_add(took.0, Ordering::Relaxed);
    }

    fn counts(&self) -> DelegateCounts {
        DelegateCounts {
            recalls: self.all.load(Ordering::Relaxed),
            recalls_failed: self.failed.load(Ordering::Relaxed),
            recall_time: Nanos(self.time_ns.load(Ordering::Relaxed)),
            ..DelegateCounts::default()
        }
    }
}

impl<E: Env> Service<E> {
    /// Asks the mounts other than `session` whose kernels may have pages of `file` to drop some. Returns each mount
    /// with the event number it will acknowledge. These are the mounts that keep pages and all mounts that have the
    /// file open, because programs can map files through opens that keep no pages.
    pub(super) fn send_drop_events(
        &self,
        session: BoundSession,
        file: FileId,
        start: u64,
        end: u64,
    ) -> Vec<(BoundSession, u64)> {
        let (caching, held) = {
            let opens = self.core.opens.lock();
            (opens.caching_elsewhere(file, session), opens.held_elsewhere(file, session))
        };
        if held.is_empty() {
            return Vec::new();
        }
        let events: Vec<_> = {
            let mut sessions = self.sessions.lock();
            let mut others = held;
            others.retain(|other| caching.contains(other) || sessions.is_mount(*other));
            let queue = |session| {
                Some((session, sessions.queue_event(session, file, Outdated::Pages { start, end })?))
            };
            others.into_iter().filter_map(queue).collect()
        };
        if !events.is_empty() {
            self.event_changed.notify_all();
        }
        events
    }

    /// Whether a mount has the file open that `session` opens. Mounts know when a program closes a descriptor, and then drop the
    /// pages of others without being told.
    pub(super) fn is_mapped_elsewhere(&self, session: BoundSession, file: FileId) -> bool {
        let held = self.core.opens.lock().held_elsewhere(file, session);
        !held.is_empty() && {
            let sessions = self.sessions.lock();
            !sessions.is_mount(session) && held.into_iter().any(|other| sessions.is_mount(other))
        }
    }

    pub(super) async fn invalidate(
        &self,
        call: &Call<'_>,
        handle: HandleId,
        start: u64,
        end: u64,
    ) -> Outcome<MetaReply> {
        let open = self.core.opens.lock().get(call.ctx.session, handle).ok_or(Errno::EBADF)?;
        let events = self.send_drop_events(call.ctx.session, open.file, start, end);
        // Mounts that got events from the previous start are known again only after this time.
        loop {
            let epoch = self.event_changed.epoch();
            let early = self.pages_known_from.saturating_sub(self.env.now());
            if early == Nanos::ZERO || self.is_stopping() {
                break;
            }
            self.event_changed.wait(epoch, Some(early)).await;
        }
        self.wait_until_dropped(open.file, &events).await;
        Ok(MetaReply::Done)
    }

    /// Drops the pages of other mounts after a writer closed the file, because a mapping sees its writes only then. Not for
    /// writes that have been reported: a mount whose pages are dropped for nothing may end a read of its kernel too early.
    pub(super) async fn closed_by_writer(&self, session: BoundSession, file: FileId) {
        let events = self.send_drop_events(session, file, 0, u64::MAX);
        if !events.is_empty() {
            self.wait_until_dropped(file, &events).await;
        }
    }

    /// Asks I/O delegates of other jobs to drop their pages of an open file, and waits at most [`LOCK_WAIT`].
    pub(super) async fn await_recall(&self, call: &Call<'_>, handle: HandleId) -> Outcome<MetaReply> {
        let open = self.core.opens.lock().get(call.ctx.session, handle).ok_or(Errno::EBADF)?;
        let until = self.env.now().saturating_add(LOCK_WAIT);
        // Delegates that had pages before a restart are known again only after this time.
        loop {
            let epoch = self.event_changed.epoch();
            let now = self.env.now();
            if now >= self.pages_known_from {
                break;
            }
            if now >= until || self.is_stopping() {
                return Ok(MetaReply::Recalled(false));
            }
            let early = self.pages_known_from.min(until).saturating_sub(now);
            self.event_changed.wait(epoch, Some(early)).await;
        }
        let delegates = self.core.opens.lock().delegates_of_others(open.file, open.job);
        let events: Vec<_> = {
            let mut sessions = self.sessions.lock();
            let queue = |session| Some((session, sessions.queue_event(session, open.file, ALL_PAGES)?));
            delegates.into_iter().filter_map(queue).collect()
        };
        self.event_changed.notify_all();
        let begin = self.env.now();
        let is_recalled = self.have_completed(&events, until).await;
        if !events.is_empty() {
            self.recalls.add(self.env.now().saturating_sub(begin), is_recalled);
        }
        Ok(MetaReply::Recalled(is_recalled))
    }

    /// Use of the cluster through I/O delegates.
    pub(super) fn delegate_counts(&self) -> DelegateCounts {
        let counts = self.recalls.counts();
        // Without a job there is no need to look at each open file.
        let has_jobs = self.sessions.lock().has_jobs();
        if has_jobs { self.core.opens.lock().delegate_counts(counts) } else { counts }
    }

    /// Waits until mounts have dropped pages, at most [`PAGES_WAIT`].
    async fn wait_until_dropped(&self, file: FileId, events: &[(BoundSession, u64)]) {
        let until = self.env.now().saturating_add(PAGES_WAIT);
        if !self.have_completed(events, until).await && !self.is_stopping() {
            self.log(&format!("warn: a mount did not drop its pages of inode {file} in time"));
        }
    }

    /// Waits until sessions have completed events; returns whether they have.
    async fn have_completed(&self, events: &[(BoundSession, u64)], until: Nanos) -> bool {
        loop {
            let epoch = self.event_changed.epoch();
            let done = {
                let sessions = self.sessions.lock();
                events.iter().all(|(session, number)| sessions.has_completed(*session, *number))
            };
            let left = until.saturating_sub(self.env.now());
            if done || left == Nanos::ZERO || self.is_stopping() {
                return done;
            }
            self.event_changed.wait(epoch, Some(left)).await;
        }
    }

    pub(super) async fn wait_events(&self, session: BoundSession, done: u64) -> MetaReply {
        self.sessions.lock().acknowledge(session, done);
        self.event_changed.notify_all();
        let until = self.env.now().saturating_add(EVENT_WAIT);
        loop {
            let epoch = self.event_changed.epoch();
            let events = self.sessions.lock().events(session);
            let left = until.saturating_sub(self.env.now());
            if !events.is_empty() || left == Nanos::ZERO || self.is_stopping() {
                return MetaReply::Events(events);
            }
            self.event_changed.wait(epoch, Some(left)).await;
        }
    }
}
