//! Byte-range locks: bounded waits at the server, so that a caller can be interrupted and nothing hangs.

use crate::call::Effect;
use crate::control::odd_reply;
use crate::error::{Error, Result};
use crate::file::OpenFile;
use weft_env::Env;
use weft_wire::meta::{
    HeldLock, LockKind, LockOwner, LockRange, LockSpace, MetaReply, MetaRequest, ReclaimLock,
};

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
        let request = MetaRequest::Unlock { handle: self.handle(), space, owner, range };
        match state.client.call(Effect::Repeatable, request).await.map_err(|error| state.explained(error))? {
            MetaReply::Done => Ok(()),
            _ => Err(odd_reply()),
        }
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
