//! Byte-range locks. Waits at the server are bounded, so that a caller can be interrupted.
//!
//! After a crash, the metadata server grants locks to other sessions only after a grace time, which must be longer
//! than [`ANSWERED_WITHIN`] plus one operation. A client that sends any request within it reclaims its locks. A client
//! that only computes sends a request before its next access to the file, and gets an error if the lock is gone.

use crate::call::Effect;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::file::{OpenFile, State};
use crate::registry::LocksOn;
use std::sync::atomic::Ordering::Relaxed;
use weft_core::Nanos;
use weft_env::Env;
use weft_wire::Errno;
use weft_wire::meta::{
    HeldLock, LockKind, LockOwner, LockRange, LockSpace, MetaReply, MetaRequest, ReclaimLock,
};

/// A file with locks is accessed only if the metadata server has answered within this time.
const ANSWERED_WITHIN: Nanos = Nanos::from_s(1);

/// Whether to wait for a lock.
pub enum Wait<'a> {
    /// Do not wait: `EAGAIN` when the lock is taken.
    No,
    /// Wait until the lock is granted, or until the function, called about four times a second, reports an
    /// interruption.
    Until(&'a mut dyn FnMut() -> bool),
}

impl std::fmt::Debug for Wait<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::No => "No",
            Self::Until(_) => "Until(..)",
        })
    }
}

impl<E: Env> Core<E> {
    /// Keeps an unlock that failed because the metadata server did not answer; it is sent before the next request.
    ///
    /// Idle connections are closed, so that the session ends, and with it the locks of a process that sends no further
    /// request. Not for append locks: the server takes these back by itself, and the session's other locks are worth
    /// keeping.
    pub(crate) fn enqueue_unlock(&self, unlock: MetaRequest) {
        let is_append_lock = matches!(
            unlock,
            MetaRequest::Unlock { space: LockSpace::Append, .. } | MetaRequest::AbandonAppend { .. }
        );
        self.pending_unlocks.enqueue(unlock);
        if is_append_lock {
            return;
        }
        self.metadata.disconnect_idle();
        // Data connections to the same server keep the session alive, too.
        self.metadata_server().connections.disconnect_idle();
    }

    /// Sends the pending unlocks that `wanted` selects. No other task sends them meanwhile.
    pub(crate) async fn flush_unlocks(&self, wanted: impl Fn(&MetaRequest) -> bool) -> Result<()> {
        if self.pending_unlocks.is_empty() {
            return Ok(());
        }
        let _reclaim = self.begin_reclaim();
        let due = self.pending_unlocks.take(wanted);
        let mut failed = None;
        for unlock in due {
            let sent = match &failed {
                None => self.call_without_flush(None, Effect::Repeatable, unlock.clone()).await.map(drop),
                Some(_) => Err(Error::Interrupted),
            };
            match sent {
                // The file was closed, or the lock was released otherwise.
                Ok(()) | Err(Error::Refused(_)) => {}
                Err(error) => {
                    self.pending_unlocks.enqueue(unlock);
                    failed.get_or_insert(error);
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Sends the pending unlocks of `owner` before it requests a lock, so that none of them arrives after the lock is
    /// granted.
    pub(crate) async fn flush_unlocks_before_lock(&self, space: LockSpace, owner: LockOwner) -> Result<()> {
        self.flush_unlocks(|unlock| {
            matches!(unlock, MetaRequest::Unlock { space: s, owner: o, .. } if (*s, *o) == (space, owner))
        })
        .await?;
        self.wait_for_reclaims().await;
        Ok(())
    }
}

impl<E: Env> State<E> {
    /// Fails if this session has lost a lock on the file; called before bytes are accessed.
    #[inline]
    pub(crate) async fn check_locks(&self) -> Result<()> {
        if self.session.core.registry.has_locks() { self.check_own_locks().await } else { Ok(()) }
    }

    async fn check_own_locks(&self) -> Result<()> {
        let core = &*self.session.core;
        let file = self.record.file;
        if core.registry.locks_on(file) == LocksOn::Held {
            let answered_at = Nanos(core.answered_at_ns.load(Relaxed));
            if core.env.now() < answered_at.saturating_add(ANSWERED_WITHIN) {
                return Ok(());
            }
            // A connection made after a restart reclaims all locks first.
            let flushed = core.call(None, Effect::Repeatable, MetaRequest::Flush).await;
            flushed.map_err(|error| error.about(&self.path))?;
        }
        if core.registry.locks_on(file) == LocksOn::Lost {
            const WHY: &str = "a lock on the file was lost while the metadata server did not answer, and others may \
                               have held it: release it and take it again";
            return Err(Error::misuse(Errno::EIO, WHY).about(&self.path));
        }
        Ok(())
    }
}

impl<E: Env> State<E> {
    /// Releases a lock, later if the metadata server does not answer now.
    pub(crate) async fn release_lock(&self, request: MetaRequest) -> Result<()> {
        match self.session.call(Effect::Repeatable, request.clone()).await {
            Ok(MetaReply::Done) => Ok(()),
            Ok(_) => Err(Error::unexpected_reply()),
            Err(error) => {
                if error.is_without_answer() {
                    self.session.core.enqueue_unlock(request);
                }
                Err(self.explained(error))
            }
        }
    }
}

impl<E: Env> OpenFile<E> {
    /// Acquires a lock on `range`.
    ///
    /// # Errors
    /// `EAGAIN` without waiting, `EDEADLK` on a deadlock, [`Error::Interrupted`], `ENOLCK` when there are too many
    /// locks; `Unreachable`.
    pub async fn lock(
        &self,
        space: LockSpace,
        owner: LockOwner,
        kind: LockKind,
        range: LockRange,
        wait: Wait<'_>,
    ) -> Result<()> {
        self.lock_for(self.state.session.core.options.pid, space, owner, kind, range, wait).await
    }

    /// Acquires a lock on `range` for the process `pid`, which others see as its holder.
    ///
    /// # Errors
    /// Errors of [`OpenFile::lock`].
    pub async fn lock_for(
        &self,
        pid: u32,
        space: LockSpace,
        owner: LockOwner,
        kind: LockKind,
        range: LockRange,
        mut wait: Wait<'_>,
    ) -> Result<()> {
        let state = &self.state;
        state.check()?;
        let handle = self.handle();
        state
            .session
            .core
            .flush_unlocks_before_lock(space, owner)
            .await
            .map_err(|error| state.explained(error))?;
        // The service releases a `flock` of the other kind before it judges the request: it is not to be reclaimed.
        if space == LockSpace::Flock
            && self.held_lock(space, owner, range).is_some_and(|held| held.kind != kind)
        {
            state.session.core.registry.unlocked(self.file(), space, owner, range);
            state.session.core.wait_for_reclaims().await;
        }
        let mut ticket = 0;
        loop {
            let waits = matches!(wait, Wait::Until(_));
            let request = MetaRequest::Lock { handle, space, owner, kind, range, wait: waits, ticket, pid };
            let reply = state.session.call(Effect::Repeatable, request).await;
            match reply.map_err(|error| state.explained(error))? {
                MetaReply::Locked => {
                    let lock = ReclaimLock { file: self.file(), space, owner, kind, range, pid };
                    state.session.core.registry.locked(lock);
                    return Ok(());
                }
                MetaReply::LockWait(next) => ticket = next,
                _ => return Err(Error::unexpected_reply()),
            }
            if let Wait::Until(interrupted) = &mut wait
                && interrupted()
            {
                // If the lock was granted in the meantime, cancelling the ticket releases it.
                state.session.call(Effect::Repeatable, MetaRequest::CancelLock { ticket }).await?;
                return Err(Error::Interrupted);
            }
        }
    }

    /// Releases the locks of `owner` on `range`.
    ///
    /// # Errors
    /// `ENOLCK` when splitting a lock exceeds the limit; `Unreachable`.
    pub async fn unlock(&self, space: LockSpace, owner: LockOwner, range: LockRange) -> Result<()> {
        let state = &self.state;
        state.check()?;
        let core = &*state.session.core;
        core.registry.unlocked(self.file(), space, owner, range);
        core.wait_for_reclaims().await;
        state.release_lock(MetaRequest::Unlock { handle: self.handle(), space, owner, range }).await
    }

    /// Returns the first lock of `owner` on the file that overlaps `range`.
    #[must_use]
    pub fn held_lock(&self, space: LockSpace, owner: LockOwner, range: LockRange) -> Option<HeldLock> {
        let registry = &self.state.session.core.registry;
        let ReclaimLock { kind, range, pid, .. } = registry.held_lock(self.file(), space, owner, range)?;
        let is_of_open_file = matches!(owner, LockOwner::Handle(_));
        Some(HeldLock { kind, range, pid, is_of_open_file })
    }

    /// Returns the first lock that conflicts with this one.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn test_lock(
        &self,
        space: LockSpace,
        owner: LockOwner,
        kind: LockKind,
        range: LockRange,
    ) -> Result<Option<HeldLock>> {
        let state = &self.state;
        state.check()?;
        let request = MetaRequest::TestLock { handle: self.handle(), space, owner, kind, range };
        match state.session.call(Effect::Repeatable, request).await.map_err(|error| state.explained(error))? {
            MetaReply::Holder(holder) => Ok(holder),
            _ => Err(Error::unexpected_reply()),
        }
    }
}
