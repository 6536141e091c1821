//! Byte-range locks: bounded waits at the server, so that a caller can be interrupted and nothing hangs.
//!
//! A metadata service that crashed lets others have locks only after its grace time, which must be longer than
//! [`HEARD_WITHIN`] and an operation together. Who holds a lock has told of it again by then if he asked anything. Who did
//! nothing but compute is made to ask before he next touches the file, and gets an error if the lock is gone.

use crate::call::Effect;
use crate::control::odd_reply;
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

/// Bytes under a lock are touched only when the metadata service has answered within this time.
const HEARD_WITHIN: Nanos = Nanos::from_s(1);

/// Whether to wait for a lock.
pub enum Wait<'a> {
    /// Not at all: `EAGAIN` when somebody has it.
    No,
    /// Until it is there, or the function says that the caller was interrupted (asked about four times a second).
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

impl<E: Env> State<E> {
    /// Before bytes are touched: the locks that this session has on the file must still be its own.
    #[inline]
    pub(crate) async fn check_locks(&self) -> Result<()> {
        if self.client.core.registry.has_locks() { self.check_own_locks().await } else { Ok(()) }
    }

    async fn check_own_locks(&self) -> Result<()> {
        let core = &*self.client.core;
        let file = self.record.file;
        if core.registry.locks_on(file) == LocksOn::Held {
            let heard = Nanos(core.heard.load(Relaxed));
            if core.env.now() < heard.saturating_add(HEARD_WITHIN) {
                return Ok(());
            }
            // Over a connection made after a restart all locks are told again first.
            let asked = core.call(None, Effect::Repeatable, MetaRequest::Flush).await;
            asked.map_err(|error| error.about(&self.path))?;
        }
        if core.registry.locks_on(file) == LocksOn::Lost {
            const WHY: &str = "a lock on the file was lost while the metadata server was away, and others may have had it: \
                               give it up, and take it again before going on";
            return Err(Error::misuse(Errno::EIO, WHY).about(&self.path));
        }
        Ok(())
    }
}

impl<E: Env> State<E> {
    /// Tells that a lock is given up, later if need be.
    pub(crate) async fn give_up(&self, request: MetaRequest) -> Result<()> {
        match self.client.call(Effect::Repeatable, request.clone()).await {
            Ok(MetaReply::Done) => Ok(()),
            Ok(_) => Err(odd_reply()),
            Err(error) => {
                if matches!(error, Error::Unreachable(_)) {
                    self.client.core.owe(request);
                }
                Err(self.explained(error))
            }
        }
    }
}

impl<E: Env> OpenFile<E> {
    /// Takes a lock on `range`.
    ///
    /// # Errors
    /// `EAGAIN` without waiting, `EDEADLK` when waiting would never end, [`Error::Interrupted`], `ENOLCK` when there
    /// are too many; `Unreachable`.
    pub async fn lock(
        &self,
        space: LockSpace,
        owner: LockOwner,
        kind: LockKind,
        range: LockRange,
        mut wait: Wait<'_>,
    ) -> Result<()> {
        let state = &self.state;
        state.check()?;
        let pid = state.client.options().pid;
        let handle = self.handle();
        state.client.core.pay_before_lock(space, owner).await.map_err(|error| state.explained(error))?;
        let mut ticket = 0;
        loop {
            let waits = matches!(wait, Wait::Until(_));
            let request = MetaRequest::Lock { handle, space, owner, kind, range, wait: waits, ticket, pid };
            let reply = state.client.call(Effect::Repeatable, request).await;
            match reply.map_err(|error| state.explained(error))? {
                MetaReply::Locked => {
                    let lock = ReclaimLock { file: self.file(), space, owner, kind, range };
                    state.client.core.registry.locked(lock);
                    return Ok(());
                }
                MetaReply::LockWait(next) => ticket = next,
                _ => return Err(odd_reply()),
            }
            if let Wait::Until(interrupted) = &mut wait
                && interrupted()
            {
                // If it was granted meanwhile, the ticket's end gives it back; unlocking makes sure.
                state.client.call(Effect::Repeatable, MetaRequest::CancelLock { ticket }).await?;
                return Err(Error::Interrupted);
            }
        }
    }

    /// Gives up what `owner` holds of `range`.
    ///
    /// # Errors
    /// `ENOLCK` when a split made too many; `Unreachable`.
    pub async fn unlock(&self, space: LockSpace, owner: LockOwner, range: LockRange) -> Result<()> {
        let state = &self.state;
        state.check()?;
        let core = &*state.client.core;
        core.registry.unlocked(self.file(), space, owner, range);
        core.until_reclaimed().await;
        state.give_up(MetaRequest::Unlock { handle: self.handle(), space, owner, range }).await
    }

    /// The first lock that would be in the way of this one.
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
        match state.client.call(Effect::Repeatable, request).await.map_err(|error| state.explained(error))? {
            MetaReply::Holder(holder) => Ok(holder),
            _ => Err(odd_reply()),
        }
    }
}
