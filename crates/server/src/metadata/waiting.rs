//! Locks that are waited for.

use super::fault::Outcome;
use super::locking::{LockAnswer, LockRequest};
use super::op::Op;
use super::open::Urgency;
use super::serve::Call;
use super::tables::put_row;
use super::{LOCK_NOTIFIERS, Service};
use weft_core::{FileId, Nanos};
use weft_env::{Env, Notify};
use weft_store::metadata::{Table, Transaction, session_key};
use weft_wire::Errno;
use weft_wire::hello::SessionId;
use weft_wire::meta::{HandleId, LockKind, LockSpace, MetaReply};

/// How long a request for a lock waits before the client is told to ask again.
const LOCK_WAIT: Nanos = Nanos::from_ms(250);
impl<E: Env> Service<E> {
    pub(super) fn wake_lockers(&self, file: FileId) {
        self.lock_changed[file.0 as usize % LOCK_NOTIFIERS].notify_all();
    }

    /// The file of a handle, if locks of this kind may be had through it.
    pub(super) fn lockable(
        &self,
        session: SessionId,
        handle: HandleId,
        space: LockSpace,
        kind: Option<LockKind>,
    ) -> Outcome<FileId> {
        let open = self.core.opens.lock().get(session, handle).ok_or(Errno::EBADF)?;
        let fits = match (space, kind) {
            (LockSpace::Record, Some(LockKind::Shared)) => open.read,
            (LockSpace::Record | LockSpace::Append, Some(LockKind::Exclusive)) => open.write,
            _ => true,
        };
        if fits { Ok(open.file) } else { Err(Errno::EBADF.into()) }
    }

    pub(super) async fn lock(
        &self,
        call: &Call<'_>,
        handle: HandleId,
        request: LockRequest,
        wait: bool,
        ticket: u64,
    ) -> Outcome<MetaReply> {
        if !self.wait_out_grace(request.file).await? {
            return Ok(MetaReply::LockWait(ticket));
        }
        // Appends are short and told by nobody after a restart; the others the next start must wait for.
        if request.space != LockSpace::Append && self.sessions.lock().note_locks(request.session) {
            let note = |t: &mut dyn Transaction, _: &Op<'_>| {
                put_row(t, Table::Sessions, &session_key(request.session.0), &());
                Ok(((), Urgency::Durable))
            };
            self.commit(call, note).await?;
        }
        let changed = &self.lock_changed[request.file.0 as usize % LOCK_NOTIFIERS];
        let until = self.env.now().saturating_add(LOCK_WAIT);
        let mut ticket = ticket;
        loop {
            let epoch = changed.epoch();
            let now = self.env.now();
            // Closed meanwhile: nobody would ever give the lock up.
            if self.core.opens.lock().get(request.session, handle).is_none() {
                return Err(Errno::EBADF.into());
            }
            let answer = self.locks.lock().ask(request, wait, ticket, now);
            match answer {
                LockAnswer::Granted => {
                    // Those who queued behind may go with it (shared locks).
                    return Ok(MetaReply::Locked);
                }
                LockAnswer::Refused(errno) => return Err(errno.into()),
                LockAnswer::Wait(place) => ticket = place,
            }
            if now >= until || self.is_stopping() {
                return Ok(MetaReply::LockWait(ticket));
            }
            changed.wait(epoch, Some(until.saturating_sub(now))).await;
        }
    }

    /// Waits a bounded time for the grace after a start to end; whether it has. A client that is told to ask again is
    /// there still: one that has given up would be granted a lock that it never hears of.
    async fn wait_out_grace(&self, file: FileId) -> Outcome<bool> {
        let changed = &self.lock_changed[file.0 as usize % LOCK_NOTIFIERS];
        let until = self.env.now().saturating_add(LOCK_WAIT);
        loop {
            let epoch = changed.epoch();
            let now = self.env.now();
            if now >= self.grace_until || now >= until || self.is_stopping() {
                return Ok(now >= self.grace_until);
            }
            changed.wait(epoch, Some(self.grace_until.min(until).saturating_sub(now))).await;
        }
    }
}
