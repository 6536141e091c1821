//! Pages that mounts keep: telling them to drop some, and waiting until they have.

use super::Service;
use super::fault::Outcome;
use super::serve::Call;
use weft_core::{FileId, Nanos};
use weft_env::{Env, Notify};
use weft_wire::BoundSession;
use weft_wire::Errno;
use weft_wire::meta::{EVENT_WAIT, HandleId, MetaReply, PAGES_WAIT};

impl<E: Env> Service<E> {
    /// Tells the mounts other than `session` whose kernels may have pages of `file` to drop some; returns each mount with
    /// the number that it will acknowledge. These are the mounts that keep pages, and all that have the file open: programs
    /// map files through opens that keep no pages, too.
    pub(super) fn tell_others(
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
        let told: Vec<_> = {
            let mut sessions = self.sessions.lock();
            let mut others = held;
            others.retain(|other| caching.contains(other) || sessions.listens(*other));
            let tell = |session| Some((session, sessions.tell(session, file, start, end)?));
            others.into_iter().filter_map(tell).collect()
        };
        if !told.is_empty() {
            self.event_changed.notify_all();
        }
        told
    }

    pub(super) async fn invalidate(
        &self,
        call: &Call<'_>,
        handle: HandleId,
        start: u64,
        end: u64,
    ) -> Outcome<MetaReply> {
        let open = self.core.opens.lock().get(call.ctx.session, handle).ok_or(Errno::EBADF)?;
        let told = self.tell_others(call.ctx.session, open.file, start, end);
        // Mounts that were told before the service started are known again only then.
        loop {
            let epoch = self.event_changed.epoch();
            let early = self.pages_told_from.saturating_sub(self.env.now());
            if early == Nanos::ZERO || self.is_stopping() {
                break;
            }
            self.event_changed.wait(epoch, Some(early)).await;
        }
        self.until_dropped(open.file, &told).await;
        Ok(MetaReply::Done)
    }

    /// Has other mounts drop their pages of a file that a writer has closed, for maps that see only by that what it wrote.
    pub(super) async fn closed_by_writer(&self, session: BoundSession, file: FileId) {
        let told = self.tell_others(session, file, 0, u64::MAX);
        if !told.is_empty() {
            self.until_dropped(file, &told).await;
        }
    }

    /// Waits until mounts have dropped pages, [`PAGES_WAIT`] at the longest.
    async fn until_dropped(&self, file: FileId, told: &[(BoundSession, u64)]) {
        let until = self.env.now().saturating_add(PAGES_WAIT);
        loop {
            let epoch = self.event_changed.epoch();
            let done = {
                let sessions = self.sessions.lock();
                told.iter().all(|(session, number)| sessions.has_done(*session, *number))
            };
            let left = until.saturating_sub(self.env.now());
            if !done && left == Nanos::ZERO {
                self.log(&format!("a mount did not drop its pages of inode {file} in time"));
            }
            if done || left == Nanos::ZERO || self.is_stopping() {
                return;
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
