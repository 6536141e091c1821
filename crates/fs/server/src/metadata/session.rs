//! Begin and end of connections and sessions.

use super::fault::Outcome;
use super::locking::Locks;
use super::op::Op;
use super::opens::OpenEntry;
use super::tables::{inode, put_inode};
use super::{ConnectionContext, HostName, Service};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::atomic::Ordering;
use weft_core::FileId;
use weft_env::mutants::{Mutant, is_seeded};
use weft_env::{Env, Notify};
use weft_store::metadata::{Engine, Node, Point, Scan, Table, Transaction, session_key};
use weft_wire::hello::{Identity, JobNumber, SessionId};
use weft_wire::keys::Principal;
use weft_wire::meta::{HandleId, NO_EPOCH};
use weft_wire::{BoundSession, Level, SessionOwner};

impl<E: Env> Service<E> {
    /// Registers a process of this host. Root and the user who runs the server are administrators.
    pub fn connected(
        &self,
        session: SessionId,
        slot: u32,
        identity: Identity,
        pid: u32,
        is_server: bool,
    ) -> ConnectionContext {
        let is_administrator = identity.is_root() || identity.uid == self.hooks.uid;
        let principal = Principal { is_server, ..Principal::local(identity, is_administrator) };
        self.connected_as(session, slot, principal, (pid, None, HostName::default()), false)
    }

    /// Registers an authenticated connection of a process and its job. `is_on_host`: the process ends with this host.
    pub fn connected_as(
        &self,
        session: SessionId,
        slot: u32,
        principal: Principal,
        (pid, job, host): (u32, Option<JobNumber>, HostName),
        is_on_host: bool,
    ) -> ConnectionContext {
        let session =
            session.bound_to(SessionOwner { uid: principal.identity.uid, is_server: principal.is_server });
        self.sessions.lock().connected(session, job.is_some());
        let Principal { identity, is_server, is_administrator, delegation, .. } = principal;
        let ends_with_host = is_on_host && !self.syncs_all_names;
        ConnectionContext {
            session,
            slot,
            identity,
            pid,
            is_server,
            is_administrator,
            delegation,
            job,
            host,
            level: Level::LATEST,
            ends_with_host,
        }
    }

    /// Ends a connection. With the last one of a session, its locks are released and its open files closed.
    pub async fn disconnected(&self, ctx: ConnectionContext) {
        let Some(written) = self.end_session(&ctx) else { return };
        match written {
            Ok(point) => {
                // A failed log is reported to the requests that wait for it.
                let _ = self.journal.durable_soon(point).await;
            }
            Err(fault) => {
                self.log(&format!("error: the end of {} could not be recorded: {fault:?}", ctx.session))
            }
        }
        self.wake_reaper();
        self.journal.await_device().await;
    }

    /// Ends the session of a connection that was its last; `None` if there is nothing to record.
    fn end_session(&self, ctx: &ConnectionContext) -> Option<Outcome<Point>> {
        let now = self.env.now();
        // Held until all is recorded. No other session gets a lock of this session earlier. And the session, which may
        // be back already, does not reclaim a lock that is released here.
        let mut locks = self.locks.lock();
        let forgotten = {
            let mut sessions = self.sessions.lock();
            if !sessions.disconnected(ctx.session, now) {
                return None;
            }
            sessions.take_forgotten(now)
        };
        self.end_locks(&mut locks, ctx.session);
        self.core.moves.ended(ctx.session);
        self.dumps.session_ended(ctx.session);
        self.end_growths(ctx.session, None);
        if self.is_stopping() {
            return None; // the session may return to the next start
        }
        let (wall, clock) = (self.env.wall(), self.env.now());
        let (core, caller, session) = (&self.core, &ctx.identity, ctx.session);
        let (trusted, acts_for_users, job) = (ctx.is_trusted(), ctx.acts_for_users(), ctx.job);
        let (changed_bytes, is_repeated) = (Cell::new(None), Cell::new(false));
        let op = Op {
            core,
            caller,
            session,
            level: ctx.level,
            job,
            trusted,
            acts_for_users,
            now: wall,
            clock,
            changed_bytes,
            is_repeated,
        };
        let (handles, changed) = {
            let opens = self.core.opens.lock();
            let handles = opens.handles(ctx.session);
            let changes = |handle: &HandleId| opens.get(ctx.session, *handle).filter(OpenEntry::changes);
            let changed: BTreeSet<FileId> =
                handles.iter().filter_map(changes).map(|open| open.file).collect();
            (handles, changed)
        };
        let written = self.journal.write(|t| -> Outcome<()> {
            for handle in handles {
                op.close(t, handle, None)?;
            }
            let truncated = self.core.opens.lock().truncations(ctx.session);
            for file in truncated {
                self.core.opens.lock().end_truncation(file, ctx.session, NO_EPOCH);
                let until = self.core.granted_until(wall);
                self.core.unknown_writers.lock().add(file, caller.uid, wall, until, true);
                new_epoch(t, file)?;
            }
            if t.get(Table::Sessions, &session_key(ctx.session.0))?.is_some() {
                t.delete(Table::Sessions, &session_key(ctx.session.0));
            }
            forgotten.iter().try_for_each(|session| forget_replies(t, *session))
        });
        forgotten.iter().for_each(|session| locks.forget_session(*session));
        let written = written.map(|(_, point)| point);
        self.ends.lock().add(written.as_ref().ok().copied());
        // The mounts are not waited for here, because the writer is gone.
        for file in changed {
            self.send_drop_events(ctx.session, file, 0, u64::MAX);
        }
        Some(written)
    }

    /// Waits until the ends of sessions so far are durable. Until then no lock is granted: a later start would give it
    /// back to a session whose row is still there.
    ///
    /// # Errors
    /// The log has failed, or accepts no changes now.
    pub(super) async fn wait_for_durable_ends(&self) -> Outcome<()> {
        loop {
            let point = {
                let mut ends = self.ends.lock();
                if ends.is_behind {
                    let ((), point) = self.journal.write(|t| self.delete_rows_without_locks(t))?;
                    ends.is_behind = false;
                    ends.add(Some(point));
                }
                match ends.latest {
                    Some(point) if !ends.are_durable() => point,
                    _ => return Ok(()),
                }
            };
            self.journal.durable(point).await?;
            let mut ends = self.ends.lock();
            ends.durable = ends.durable.max(Some(point));
        }
    }

    /// Deletes the rows of sessions that recorded no locks since the start.
    fn delete_rows_without_locks(&self, t: &mut dyn Transaction) -> Outcome<()> {
        let mut rows = Vec::new();
        t.scan(Table::Sessions, Bound::Unbounded, &mut |key, _| {
            if let Ok(session) = key.try_into() {
                rows.push(BoundSession(u128::from_be_bytes(session)));
            }
            Ok(Scan::Next)
        })?;
        rows.retain(|session| !self.sessions.lock().is_recorded(*session));
        rows.iter().for_each(|session| t.delete(Table::Sessions, &session_key(session.0)));
        Ok(())
    }

    /// Releases the locks of a session and wakes waiting clients.
    fn end_locks(&self, locks: &mut Locks, session: BoundSession) {
        let had_locks = !is_seeded(Mutant::StuckLock) && {
            for file in locks.append_locks_of(session) {
                self.revoke_append_lock(locks, file);
            }
            locks.ended(session)
        };
        if had_locks {
            self.lock_changed.iter().for_each(Notify::notify_all);
        }
        self.event_changed.notify_all();
    }

    pub(super) fn wake_reaper(&self) {
        if self.core.reap_wanted.swap(false, Ordering::Relaxed) {
            self.reap_work.notify_all();
        }
    }

    /// Gives up the locks of sessions that have not returned after a restart, and if `orphans` is set the files that they had
    /// open.
    pub(super) async fn end_grace(&self, orphans: bool) {
        let written = self.journal.write(|t| -> Outcome<()> {
            // A connected session that has not reclaimed its locks yet gets a new row when it does.
            self.delete_rows_without_locks(t)?;
            if orphans { self.destroy_orphans(t) } else { Ok(()) }
        });
        self.ends.lock().add(written.as_ref().ok().map(|(_, point)| *point));
        self.grace_is_over.store(true, Ordering::SeqCst);
        self.lock_changed.iter().for_each(Notify::notify_all);
        self.orphans_ended(written).await;
    }

    /// Removes the files that were removed before the start, and that no session has open.
    pub(super) async fn end_orphans(&self) {
        let written = self.journal.write(|t| self.destroy_orphans(t));
        self.orphans_ended(written).await;
    }

    fn destroy_orphans(&self, t: &mut dyn Transaction) -> Outcome<()> {
        let mut orphans = Vec::new();
        t.scan(Table::Orphans, Bound::Unbounded, &mut |key, _| {
            if let Ok(file) = key.try_into() {
                orphans.push(FileId(u64::from_be_bytes(file)));
            }
            Ok(Scan::Next)
        })?;
        orphans.retain(|file| !self.core.opens.lock().is_open(*file));
        for file in orphans {
            t.delete(Table::Orphans, &weft_store::metadata::file_key(file));
            if let Some(inode) = inode(t, file)? {
                self.core.destroy(t, file, &inode)?;
            }
        }
        Ok(())
    }

    async fn orphans_ended(&self, written: Outcome<((), Point)>) {
        match written {
            Ok((_, point)) => drop(self.journal.durable_soon(point).await),
            Err(fault) => self.log(&format!("error: files removed before the start stay for now: {fault:?}")),
        }
        self.wake_reaper();
    }
}

/// Starts a new epoch: lengths collected so far no longer count.
fn new_epoch(t: &mut dyn Transaction, file: FileId) -> Outcome<()> {
    let Some(mut inode) = inode(t, file)? else { return Ok(()) };
    if let Node::Regular { epoch, .. } = &mut inode.node {
        *epoch = epoch.wrapping_add(1);
        put_inode(t, file, &inode);
    }
    Ok(())
}

fn forget_replies(t: &mut dyn Transaction, session: BoundSession) -> Outcome<()> {
    let prefix = session_key(session.0);
    let mut keys = Vec::new();
    t.scan(Table::Replies, Bound::Included(&prefix), &mut |key, _| {
        if !key.starts_with(&prefix) {
            return Ok(Scan::Stop);
        }
        keys.push(key.to_vec());
        Ok(Scan::Next)
    })?;
    keys.iter().for_each(|key| t.delete(Table::Replies, key));
    Ok(())
}
