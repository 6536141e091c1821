//! Waiting for locks.

use super::fault::{Fault, Outcome};
use super::locking::{LockAnswer, LockRequest, Locks};
use super::op::Op;
use super::open::Urgency;
use super::serve::Call;
use super::tables::{known_inode, put_row};
use super::{LOCK_NOTIFIERS, Service};
use std::sync::atomic::Ordering;
use weft_core::FileId;
use weft_env::{Env, Notify};
use weft_store::metadata::{Table, Transaction, session_key};
use weft_wire::BoundSession;
use weft_wire::Errno;
use weft_wire::meta::{HandleId, LOCK_WAIT, LockKind, LockSpace, MetaReply};

impl<E: Env> Service<E> {
    pub(super) fn wake_lockers(&self, file: FileId) {
        self.lock_changed[file.0 as usize % LOCK_NOTIFIERS].notify_all();
    }

    /// The file of a handle, if it allows this kind of lock.
    pub(super) fn lockable(
        &self,
        session: BoundSession,
        handle: HandleId,
        space: LockSpace,
        kind: Option<LockKind>,
    ) -> Outcome<FileId> {
        let open = self.core.opens.lock().get(session, handle).ok_or(Errno::EBADF)?;
        let fits = match (space, kind) {
            (LockSpace::Record, Some(LockKind::Shared)) => open.read,
            (LockSpace::Record, Some(LockKind::Exclusive)) => open.write,
            // The mover of a file blocks appends for a moment.
            (LockSpace::Append, Some(_)) => open.changes() || self.core.moves.is_moved_by(open.file, session),
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
        if !self.wait_for_grace_end(request.file).await? {
            return Ok(MetaReply::LockWait(ticket));
        }
        // Append locks are short and not reclaimed after a restart. All others are recorded, so that the next start
        // waits for them.
        if request.space != LockSpace::Append {
            self.record_locks(call).await?;
        }
        let changed = &self.lock_changed[request.file.0 as usize % LOCK_NOTIFIERS];
        let until = self.env.now().saturating_add(LOCK_WAIT);
        let mut ticket = ticket;
        loop {
            let epoch = changed.epoch();
            if request.space != LockSpace::Append {
                self.wait_for_durable_ends().await?;
            }
            let now = self.env.now();
            // If the handle was closed meanwhile, the lock would never be released.
            let open = self.core.opens.lock().get(request.session, handle).ok_or(Errno::EBADF)?;
            let (answer, converted) = {
                let mut locks = self.locks.lock();
                // A session ends with this lock held, so a lock granted here was free before any end that the database
                // does not record. During a shutdown, ends are not recorded.
                if self.is_stopping() {
                    return Ok(MetaReply::LockWait(ticket));
                }
                if request.space != LockSpace::Append && !self.ends.lock().are_durable() {
                    continue;
                }
                if request.space == LockSpace::Append && locks.is_overdue(&request, now) {
                    self.revoke_append_lock(&mut locks, request.file);
                }
                let converted = ticket == 0 && locks.release_converted(&request);
                (locks.acquire(request, wait, ticket, now), converted)
            };
            if converted {
                self.wake_lockers(request.file);
            }
            match answer {
                LockAnswer::Granted if request.space == LockSpace::Append => {
                    let op = self.op(call);
                    let of_file_s = self.core.fence_of(request.file, op.now);
                    if of_file_s == 0 && !self.core.any_data_fence() {
                        return Ok(MetaReply::Locked);
                    }
                    let (inode, limit) = self.read(call, |s, op| {
                        let inode = known_inode(s, request.file)?;
                        let limit = op.write_limit(s, request.file, &inode)?;
                        Ok((inode, limit))
                    })?;
                    let data = inode.data(request.file);
                    // An abandoned move leaves some datafiles sealed, while an older capability is good for the others.
                    // An append under it would be written in part.
                    let fence_s = of_file_s.max(self.core.data_fence_of(data, op.now));
                    if fence_s == 0 {
                        return Ok(MetaReply::Locked);
                    }
                    let cap = op.capability(&inode, &open, limit);
                    return Ok(MetaReply::LockedFenced { cap, fence_s });
                }
                LockAnswer::Granted => return Ok(MetaReply::Locked),
                LockAnswer::Refused(errno) => return Err(errno.into()),
                LockAnswer::OverUserLimit => {
                    let (uid, most) = (request.uid, request.user_max.unwrap_or_default());
                    let detail = format!(
                        "user {uid} has as many locks as one user may have ({most}): release some, or raise user_locks \
                         under [limits] in the cluster file and restart the metadata server"
                    );
                    return Err(Fault::new(Errno::ENOLCK, detail));
                }
                LockAnswer::Wait(next) => ticket = next,
            }
            if now >= until || self.is_stopping() {
                return Ok(MetaReply::LockWait(ticket));
            }
            changed.wait(epoch, Some(until.saturating_sub(now))).await;
        }
    }

    /// Revokes the append lock of `file`, whose holder may still be writing. The fence is set first, so that no client
    /// gets the lock without it.
    pub(super) fn revoke_append_lock(&self, locks: &mut Locks, file: FileId) {
        self.core.fence(file, self.env.wall());
        if locks.revoke_append(file) {
            self.wake_lockers(file);
        }
    }

    /// Waits a bounded time for the grace time to end. Returns whether it has. A client that must repeat its request is
    /// still there; one that has given up could be granted a lock it never learns of.
    async fn wait_for_grace_end(&self, file: FileId) -> Outcome<bool> {
        let changed = &self.lock_changed[file.0 as usize % LOCK_NOTIFIERS];
        let until = self.env.now().saturating_add(LOCK_WAIT);
        loop {
            let epoch = changed.epoch();
            let now = self.env.now();
            let is_over = now >= self.grace_until && self.grace_is_over.load(Ordering::SeqCst);
            if is_over || now >= until || self.is_stopping() {
                return Ok(is_over);
            }
            changed.wait(epoch, Some(until.saturating_sub(now))).await;
        }
    }

    /// Makes it durable that a session holds locks, so that the next start waits for it.
    pub(super) async fn record_locks(&self, call: &Call<'_>) -> Outcome<()> {
        // Deletes the row of an earlier end of the same session, but not the row written here.
        self.wait_for_durable_ends().await?;
        let session = call.ctx.session;
        if !self.sessions.lock().record_locks(session) {
            return Ok(());
        }
        let note = |t: &mut dyn Transaction, _: &Op<'_>| {
            put_row(t, Table::Sessions, &session_key(session.0), &());
            Ok(((), Urgency::Durable))
        };
        let noted = self.commit(call, note).await;
        if noted.is_err() {
            self.sessions.lock().forget_record(session);
        }
        noted
    }
}
