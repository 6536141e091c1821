//! One request.

use super::fault::{Fault, Outcome};
use super::locking::{LockAnswer, LockRequest, byte_range};
use super::op::Op;
use super::open::{OpenRequest, Urgency};
use super::tables::{allocator, put_row, row};
use super::{ConnectionContext, LOCK_NOTIFIERS, Service};
use std::sync::atomic::Ordering;
use weft_core::{FileId, Nanos};
use weft_env::{Dir, Env, Notify};
use weft_store::metadata::{Engine, ReplyRow, Snapshot, Table, Transaction, reply_key, session_key};
use weft_wire::Errno;
use weft_wire::hello::{Identity, SessionId};
use weft_wire::meta::{
    HandleId, LockSpace, MetaCall, MetaReply, MetaRequest, ReclaimLock, ReclaimOpen, WriteSummary,
};

/// How long a request for a lock waits before the client is told to ask again.
const LOCK_WAIT: Nanos = Nanos::from_ms(250);
/// How long a mount's question for events waits. Short, because a connection that waits does not see its peer die.
const EVENT_WAIT: Nanos = Nanos::from_s(2);
/// How long a writer waits for mounts to drop their pages.
const INVALIDATE_WAIT: Nanos = Nanos::from_s(5);

/// One call, taken apart.
struct Call<'a> {
    ctx: &'a ConnectionContext,
    who: Identity,
    seq: u64,
}

impl<E: Env> Service<E> {
    /// Serves one request. Requests of one connection come one after the other.
    pub async fn call(&self, ctx: &ConnectionContext, call: MetaCall) -> MetaReply {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let MetaCall { seq, on_behalf, request } = call;
        let trusted = ctx.is_server || ctx.identity.is_root();
        let who = on_behalf.filter(|_| trusted).unwrap_or_else(|| ctx.identity.clone());
        let call = Call { ctx, who, seq };
        let reply = self.serve(&call, request).await.unwrap_or_else(Fault::into_reply);
        self.wake_reaper();
        self.journal.pay().await;
        reply
    }

    async fn serve(&self, call: &Call<'_>, request: MetaRequest) -> Outcome<MetaReply> {
        use MetaRequest as R;
        match request {
            R::Stat { at } => self.look(call, |s, op| op.stat(s, &at)),
            R::Readlink { at } => self.look(call, |s, op| op.readlink(s, &at)),
            R::Access { at, mask } => self.look(call, |s, op| op.access(s, &at, mask)),
            R::List { at, after, limit, with_attr } => {
                self.look(call, |s, op| op.list(s, &at, &after, limit, with_attr))
            }
            R::GetXattr { at, name } => self.look(call, |s, op| op.get_xattr(s, &at, &name)),
            R::ListXattr { at } => self.look(call, |s, op| op.list_xattr(s, &at)),
            R::GetLayout { at } => self.look(call, |s, op| op.get_layout(s, &at)),
            R::Renew { handle } => self.op(call).renew(handle),

            R::Mkdir { at, mode } => self.change(call, |t, op| op.mkdir(t, &at, mode)).await,
            R::Mknod { at, kind, mode, rdev } => {
                self.change(call, |t, op| op.mknod(t, &at, kind, mode, rdev)).await
            }
            R::Symlink { at, target } => self.change(call, |t, op| op.symlink(t, &at, &target)).await,
            R::Link { from, to } => self.change(call, |t, op| op.link(t, &from, &to)).await,
            R::Unlink { at } => self.change(call, |t, op| op.unlink(t, &at)).await,
            R::Rmdir { at } => self.change(call, |t, op| op.rmdir(t, &at)).await,
            R::Rename { from, to, no_replace, exchange } => {
                self.change(call, |t, op| op.rename(t, &from, &to, no_replace, exchange)).await
            }
            R::SetAttr { at, set } => self.change(call, |t, op| op.set_attr(t, &at, &set)).await,
            R::SetXattr { at, name, value, create, replace } => {
                self.change(call, |t, op| op.set_xattr(t, &at, &name, &value, create, replace)).await
            }
            R::RemoveXattr { at, name } => self.change(call, |t, op| op.remove_xattr(t, &at, &name)).await,
            R::SetLayout { at, spec } => self.change(call, |t, op| op.set_layout(t, &at, &spec)).await,
            R::CheckNamespace { repair } => {
                self.require_administrator(call)?;
                if repair {
                    self.change(call, |t, op| op.mend_namespace(t)).await
                } else {
                    self.look(call, |s, op| op.check_namespace(s))
                }
            }
            R::ScanInodes { after, limit } => {
                self.require_administrator(call)?;
                self.look(call, |s, op| op.scan_inodes(s, after, limit))
            }

            R::Open { at, flags, mode, handle, layout, cache } => {
                let ask = OpenRequest { at: &at, flags, mode, handle, layout: &layout, cache };
                self.open(call, &ask).await
            }
            R::Adopt { open } => self.change_as_urgent(call, |t, op| op.adopt(t, &open)).await,
            R::Close { handle, summary } => self.close(call, handle, summary).await,
            R::Truncate { at, handle } => {
                self.change_as_urgent(call, |t, op| op.truncate(t, &at, handle)).await
            }
            R::Settle { file, epoch, cap, found } => {
                let settle = |t: &mut dyn Transaction, op: &Op<'_>| {
                    op.settle(t, file, epoch, &cap, &found).map(|ended| (ended, Urgency::Lazy))
                };
                if self.commit(call, settle).await? {
                    self.tell_others(call, file, 0, u64::MAX);
                }
                Ok(MetaReply::Done)
            }
            R::Flush => {
                self.journal.durable(self.journal.now()).await?;
                Ok(MetaReply::Done)
            }
            R::StatFs => {
                let inodes = self.journal.read(|s| allocator(s))?.inodes;
                let space = self.dir.space().await.unwrap_or_default();
                Ok(MetaReply::StatFs { inodes, total: space.total, free: space.free })
            }

            R::Lock { handle, space, owner, kind, range, wait, ticket, pid } => {
                let pid = if pid == 0 { call.ctx.pid } else { pid };
                let session = call.ctx.session;
                let file = self.lockable(session, handle, space, Some(kind))?;
                let range = byte_range(range)?;
                let request = LockRequest { session, file, space, owner, kind, range, pid };
                self.lock(call, request, wait, ticket).await
            }
            R::Unlock { handle, space, owner, range } => {
                let session = call.ctx.session;
                let file = self.lockable(session, handle, space, None)?;
                let (range, kind, pid) = (byte_range(range)?, weft_wire::meta::LockKind::Shared, 0);
                let request = LockRequest { session, file, space, owner, kind, range, pid };
                if self.locks.lock().unlock(&request)? {
                    self.wake_lockers(file);
                }
                Ok(MetaReply::Done)
            }
            R::TestLock { handle, space, owner, kind, range } => {
                let session = call.ctx.session;
                let file = self.lockable(session, handle, space, None)?;
                let request =
                    LockRequest { session, file, space, owner, kind, range: byte_range(range)?, pid: 0 };
                Ok(MetaReply::Holder(self.locks.lock().test(&request)))
            }
            R::CancelLock { ticket } => {
                if self.locks.lock().cancel(call.ctx.session, ticket) {
                    self.lock_changed.iter().for_each(Notify::notify_all);
                }
                Ok(MetaReply::Done)
            }
            R::Reclaim { opens, locks } => self.reclaim(call, &opens, &locks).await,
            R::Invalidate { handle, start, end } => self.invalidate(call, handle, start, end).await,
            R::WaitEvents { done } => Ok(self.wait_events(call.ctx.session, done).await),
        }
    }

    fn op<'a>(&'a self, call: &'a Call<'_>) -> Op<'a> {
        Op { core: &self.core, who: &call.who, session: call.ctx.session, now: self.env.wall() }
    }

    fn require_administrator(&self, call: &Call<'_>) -> Outcome<()> {
        let identity = &call.ctx.identity;
        if call.ctx.is_server || identity.is_root() || identity.uid == self.hooks.uid {
            return Ok(());
        }
        Err(Fault::new(Errno::EPERM, "only root and the user who runs the servers may do this"))
    }

    /// A step that changes nothing.
    fn look<T>(
        &self,
        call: &Call<'_>,
        body: impl FnOnce(&dyn Snapshot, &Op<'_>) -> Outcome<T>,
    ) -> Outcome<T> {
        let op = self.op(call);
        self.journal.read(|s| body(s, &op))
    }

    /// A step that changes something; its result may be told when it is durable, if it is urgent.
    async fn commit<T>(
        &self,
        call: &Call<'_>,
        body: impl FnOnce(&mut dyn Transaction, &Op<'_>) -> Outcome<(T, Urgency)>,
    ) -> Outcome<T> {
        self.journal.room().await;
        let op = self.op(call);
        let ((told, urgency), point) = self.journal.write(|t| body(t, &op))?;
        match urgency {
            Urgency::Durable => self.journal.durable(point).await?,
            Urgency::Lazy => self.journal.lazily(point).await?,
        }
        Ok(told)
    }

    /// The same, done once for each number on a slot.
    async fn once(
        &self,
        call: &Call<'_>,
        body: impl FnOnce(&mut dyn Transaction, &Op<'_>) -> Outcome<(MetaReply, Urgency)>,
        again: impl FnOnce(&mut dyn Transaction, &Op<'_>, MetaReply) -> Outcome<MetaReply>,
    ) -> Outcome<MetaReply> {
        let seq = call.seq;
        if seq == 0 {
            return self.commit(call, body).await;
        }
        let key = reply_key(call.ctx.session.0, call.ctx.slot);
        let step = |t: &mut dyn Transaction, op: &Op<'_>| {
            if let Some(stored) = row::<ReplyRow>(t, Table::Replies, &key)? {
                if stored.seq > seq {
                    let detail =
                        format!("request {seq} of slot {} comes after {}", call.ctx.slot, stored.seq);
                    return Err(Fault::new(Errno::EPROTO, detail));
                }
                if stored.seq == seq {
                    let reply = postcard::from_bytes(&stored.reply)
                        .map_err(|_| Fault::new(Errno::EIO, "a stored reply does not decode"))?;
                    return Ok((again(t, op, reply)?, Urgency::Durable));
                }
            }
            let (reply, urgency) = body(t, op)?;
            let stored = postcard::to_allocvec(&reply).expect("replies always encode");
            put_row(t, Table::Replies, &key, &ReplyRow { seq, reply: stored });
            Ok((reply, urgency))
        };
        self.commit(call, step).await
    }

    async fn change(
        &self,
        call: &Call<'_>,
        body: impl FnOnce(&mut dyn Transaction, &Op<'_>) -> Outcome<MetaReply>,
    ) -> Outcome<MetaReply> {
        self.once(call, |t, op| Ok((body(t, op)?, Urgency::Durable)), |_, _, reply| Ok(reply)).await
    }

    async fn change_as_urgent(
        &self,
        call: &Call<'_>,
        body: impl FnOnce(&mut dyn Transaction, &Op<'_>) -> Outcome<(MetaReply, Urgency)>,
    ) -> Outcome<MetaReply> {
        // Opening and cutting again is harmless, and their effect in memory is wanted: no reply is kept.
        self.commit(call, body).await
    }

    async fn open(&self, call: &Call<'_>, ask: &OpenRequest<'_>) -> Outcome<MetaReply> {
        let key = reply_key(call.ctx.session.0, call.ctx.slot);
        let unchanged = self.look(call, |s, op| {
            let stored = || row::<ReplyRow>(s, Table::Replies, &key);
            // A creation may have been done already: then the stored reply counts, not what is there now.
            if ask.flags.create && call.seq > 0 && stored()?.is_some_and(|stored| stored.seq >= call.seq) {
                return Ok(None);
            }
            op.open_unchanged(s, ask)
        })?;
        if let Some(reply) = unchanged {
            return Ok(reply);
        }
        self.once(call, |t, op| op.open(t, ask), |t, op, reply| op.open_again(t, ask, reply)).await
    }

    async fn close(&self, call: &Call<'_>, handle: HandleId, summary: WriteSummary) -> Outcome<MetaReply> {
        let session = call.ctx.session;
        let matters = self.core.opens.lock().close_matters(session, handle);
        let ended = if matters {
            let close = |t: &mut dyn Transaction, op: &Op<'_>| {
                op.close(t, handle, Some(summary)).map(|ended| (ended, Urgency::Lazy))
            };
            self.commit(call, close).await?
        } else {
            self.core.opens.lock().remove(session, handle, Some((summary, true)))
        };
        let Some(ended) = ended else { return Err(Errno::EBADF.into()) };
        // Between the look and the end the file may have lost its last name.
        if ended.forsaken && !matters {
            let end = |t: &mut dyn Transaction, op: &Op<'_>| {
                op.end_orphan(t, ended.open.file).map(|()| ((), Urgency::Lazy))
            };
            self.commit(call, end).await?;
        }
        if self.locks.lock().closed(session, ended.open.file, handle, ended.last_of_session) {
            self.wake_lockers(ended.open.file);
        }
        Ok(MetaReply::Done)
    }

    fn wake_lockers(&self, file: FileId) {
        self.lock_changed[file.0 as usize % LOCK_NOTIFIERS].notify_all();
    }

    /// The file of a handle, if locks of this kind may be had through it.
    fn lockable(
        &self,
        session: SessionId,
        handle: HandleId,
        space: LockSpace,
        kind: Option<weft_wire::meta::LockKind>,
    ) -> Outcome<FileId> {
        let open = self.core.opens.lock().get(session, handle).ok_or(Errno::EBADF)?;
        let fits = match (space, kind) {
            (LockSpace::Record, Some(weft_wire::meta::LockKind::Shared)) => open.read,
            (LockSpace::Record | LockSpace::Append, Some(weft_wire::meta::LockKind::Exclusive)) => open.write,
            _ => true,
        };
        if fits { Ok(open.file) } else { Err(Errno::EBADF.into()) }
    }

    async fn lock(
        &self,
        call: &Call<'_>,
        request: LockRequest,
        wait: bool,
        ticket: u64,
    ) -> Outcome<MetaReply> {
        self.wait_out_grace(request.file).await?;
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

    async fn wait_out_grace(&self, file: FileId) -> Outcome<()> {
        let changed = &self.lock_changed[file.0 as usize % LOCK_NOTIFIERS];
        loop {
            let epoch = changed.epoch();
            let left = self.grace_until.saturating_sub(self.env.now());
            if left == Nanos::ZERO {
                return Ok(());
            }
            if self.is_stopping() {
                return Err(Fault::new(Errno::EAGAIN, "the metadata service is ending"));
            }
            changed.wait(epoch, Some(left)).await;
        }
    }

    async fn reclaim(
        &self,
        call: &Call<'_>,
        opens: &[ReclaimOpen],
        locks: &[ReclaimLock],
    ) -> Outcome<MetaReply> {
        let session = call.ctx.session;
        let (mut lost_opens, mut lost_locks, mut uncached) = (Vec::new(), Vec::new(), Vec::new());
        for open in opens {
            let reopen = |t: &mut dyn Transaction, op: &Op<'_>| op.adopt(t, open);
            match self.commit(call, reopen).await {
                Ok(_) => {
                    let entry = self.core.opens.lock().get(session, open.handle);
                    if open.caching && !entry.is_some_and(|entry| entry.caching) {
                        uncached.push(open.handle);
                    }
                }
                Err(Fault::Failed(error)) if error.errno == Errno::EIO => return Err(Fault::Failed(error)),
                Err(_) => lost_opens.push(open.handle),
            }
        }
        if !locks.is_empty() && self.sessions.lock().note_locks(session) {
            let note = |t: &mut dyn Transaction, _: &Op<'_>| {
                put_row(t, Table::Sessions, &session_key(session.0), &());
                Ok(((), Urgency::Durable))
            };
            self.commit(call, note).await?;
        }
        for lock in locks {
            let ReclaimLock { file, space, owner, kind, range } = lock;
            let is_open = self.core.opens.lock().is_open(*file);
            let got = is_open && {
                let range = byte_range(*range)?;
                let request = LockRequest {
                    session,
                    file: *file,
                    space: *space,
                    owner: *owner,
                    kind: *kind,
                    range,
                    pid: call.ctx.pid,
                };
                self.locks.lock().ask(request, false, 0, self.env.now()) == LockAnswer::Granted
            };
            if !got {
                lost_locks.push(lock.clone());
            }
        }
        Ok(MetaReply::Reclaimed { lost_opens, lost_locks, uncached })
    }

    /// Tells mounts that keep pages of `file` to drop some; whom, and the number that each will acknowledge.
    fn tell_others(&self, call: &Call<'_>, file: FileId, start: u64, end: u64) -> Vec<(SessionId, u64)> {
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

    async fn invalidate(
        &self,
        call: &Call<'_>,
        handle: HandleId,
        start: u64,
        end: u64,
    ) -> Outcome<MetaReply> {
        let open = self.core.opens.lock().get(call.ctx.session, handle).ok_or(Errno::EBADF)?;
        let told = self.tell_others(call, open.file, start, end);
        let now = self.env.now();
        let until = now.max(self.pages_told_from).saturating_add(INVALIDATE_WAIT);
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

    async fn wait_events(&self, session: SessionId, done: u64) -> MetaReply {
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
