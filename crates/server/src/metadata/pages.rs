//! Pages that mounts keep: telling them to drop some, and waiting until they have.

use super::Service;
use super::fault::Outcome;
use super::serve::Call;
use weft_core::{FileId, Nanos};
use weft_env::{Env, Notify};
use weft_wire::Errno;
use weft_wire::hello::SessionId;
use weft_wire::meta::{EVENT_WAIT, HandleId, MetaReply, PAGES_WAIT};

impl<E: Env> Service<E> {
    /// Tells mounts that keep pages of `file` to drop some; whom, and the number that each will acknowledge.
    pub(super) fn tell_others(
        &self,
        call: &Call<'_>,
        file: FileId,
        start: u64,
        end: u64,
    ) -> Vec<(SessionId, u64)> {
        let others = self.core.opens.lock().caching_elsewhere(file, call.ctx.session);
        let told: Vec<_> = {
            let mut sessions = self.sessions.lock();
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
        let told = self.tell_others(call, open.file, start, end);
        let now = self.env.now();
        let until = now.max(self.pages_told_from).saturating_add(PAGES_WAIT);
        loop {
            let epoch = self.event_changed.epoch();
            let early = self.pages_told_from.saturating_sub(self.env.now());
            if early > Nanos::ZERO && !self.is_stopping() {
                self.event_changed.wait(epoch, Some(early)).await;
                continue;
            }
            let done = {
                let sessions = self.sessions.lock();
                told.iter().all(|(session, number)| sessions.has_done(*session, *number))
            };
            let left = until.saturating_sub(self.env.now());
            if !done && left == Nanos::ZERO {
                self.log(&format!("a mount did not drop its pages of inode {} in time", open.file));
            }
            if done || left == Nanos::ZERO || self.is_stopping() {
                return Ok(MetaReply::Done);
            }
            self.event_changed.wait(epoch, Some(left)).await;
        }
    }

    pub(super) async fn wait_events(&self, session: SessionId, done: u64) -> MetaReply {
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
