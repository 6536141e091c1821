//! Appending: the end of the file is asked for and written to under a lock of the metadata service.
//!
//! Who is slow, stopped or cut off may lose the lock without knowing. Nobody else looks for the end then before all data
//! servers refuse the capability that the former holder writes with: it learns of its loss by that, and begins anew.

use crate::call::Effect;
use crate::control::odd_reply;
use crate::error::{Error, Result};
use crate::exchange::{Item, Outcome};
use crate::file::{OpenFile, State};
use crate::file::{Patience, another_home, moved};
use crate::write::expired;
use std::io::IoSlice;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use weft_core::FileOffset;
use weft_env::Env;
use weft_wire::meta::{LockKind, LockOwner, LockRange, LockSpace, MetaReply, MetaRequest};
use weft_wire::{Capability, Errno};

/// How often an append begins anew because its turn was over before it wrote.
const TURNS_MAX: u32 = 8;
const WHOLE: LockRange = LockRange { start: 0, end: u64::MAX };

/// The right to append, for as long as data servers take its capability.
pub(crate) struct Turn {
    pub(crate) owner: LockOwner,
    pub(crate) cap: Capability,
    /// Something may have been written.
    pub(crate) wrote: AtomicBool,
    /// Something may be written still.
    in_doubt: AtomicBool,
}

impl Turn {
    fn new(owner: LockOwner, cap: Capability) -> Self {
        Self { owner, cap, wrote: AtomicBool::new(false), in_doubt: AtomicBool::new(false) }
    }

    /// What became of an exchange of writes.
    pub(crate) fn note(&self, items: &[Item]) {
        for item in items {
            let refused = matches!(&item.outcome, Outcome::Failed(Error::Refused(_)));
            let done = matches!(&item.outcome, Outcome::Done);
            if item.unheard || !refused {
                self.wrote.store(true, Relaxed);
            }
            if !refused && !done {
                self.in_doubt.store(true, Relaxed);
            }
        }
    }
}

impl<E: Env> OpenFile<E> {
    /// Writes all of `bufs` at the end of the file, wherever that is when nobody else appends; where that was, and
    /// the number of bytes written.
    ///
    /// # Errors
    /// As [`OpenFile::write_at`]; `EIO` when others have appended before all of it was written, or again and again before
    /// any of it was.
    pub async fn append(&self, bufs: &[IoSlice<'_>]) -> Result<(FileOffset, usize)> {
        let state = &self.state;
        state.check()?;
        // The lock's owner is this open file: its own tasks take turns here.
        let _own = state.appending.enter().await;
        let mut turns = 0;
        loop {
            let turn = self.take_turn().await?;
            let result = self.append_in(&turn, bufs).await;
            let over = result.as_ref().is_err_and(|error| expired(error) || moved(error));
            let wrote = turn.wrote.load(Relaxed);
            // Whoever waits gets the lock in the end though this be lost; what is written is written.
            let _ = self.end_turn(turn.owner, turn.in_doubt.load(Relaxed)).await;
            turns += 1;
            match result {
                Err(_) if over && wrote => {
                    const WHY: &str =
                        "others have appended before all of it was written: a part of it may be in the file";
                    return Err(Error::misuse(Errno::EIO, WHY).about(&state.path));
                }
                Err(error) if over && turns == TURNS_MAX => return Err(error),
                Err(_) if over => drop(state.renew().await?),
                result => return result,
            }
        }
    }

    async fn append_in(&self, turn: &Turn, bufs: &[IoSlice<'_>]) -> Result<(FileOffset, usize)> {
        let end = FileOffset(self.size().await?.0);
        self.write_in_turn(bufs, end, Some(turn)).await.map(|count| (end, count))
    }

    pub(crate) async fn end_turn(&self, owner: LockOwner, in_doubt: bool) -> Result<()> {
        let handle = self.handle();
        let request = match in_doubt {
            true => MetaRequest::Forsake { handle, owner },
            false => MetaRequest::Unlock { handle, space: LockSpace::Append, owner, range: WHOLE },
        };
        self.state.give_up(request).await
    }

    /// Waits for the append lock.
    pub(crate) async fn take_turn(&self) -> Result<Turn> {
        let state = &self.state;
        let (handle, pid) = (self.handle(), state.client.options().pid);
        // Each turn is an owner of its own: what is heard late of one says nothing about the next.
        let owner = LockOwner::Handle(state.client.core.new_handle());
        let space = LockSpace::Append;
        let mut ticket = 0;
        loop {
            // Of before the lock is given: one of after its loss would pass the fence.
            let cap = state.cap().await?;
            let request = MetaRequest::Lock {
                handle,
                space,
                owner,
                kind: LockKind::Exclusive,
                range: WHOLE,
                wait: true,
                ticket,
                pid,
            };
            match state.client.call(Effect::Repeatable, request).await {
                Ok(MetaReply::Locked) => return Ok(Turn::new(owner, cap)),
                Ok(MetaReply::LockedFenced { cap, fence_s }) => match state.put_fence(cap, fence_s).await {
                    Ok(cap) => return Ok(Turn::new(owner, cap)),
                    Err(error) => {
                        let _ = self.end_turn(owner, false).await;
                        return Err(error);
                    }
                },
                Ok(MetaReply::LockWait(next)) => ticket = next,
                Ok(_) => return Err(odd_reply()),
                Err(error) => {
                    if matches!(error, Error::Unreachable(_)) {
                        // It may have been granted all the same.
                        let _ = self.end_turn(owner, false).await;
                    }
                    return Err(state.explained(error));
                }
            }
        }
    }
}

impl<E: Env> State<E> {
    /// Has late appends of others refused; the capability that passes.
    async fn put_fence(&self, cap: Capability, fence_s: u64) -> Result<Capability> {
        let mut patience = Patience::default();
        let mut cap = cap;
        if self.home()?.data == cap.file {
            self.renewed(cap);
        } else {
            cap = self.renew().await?;
        }
        loop {
            let home = self.home()?;
            if home.fenced_s.load(Relaxed) >= fence_s && cap.file == home.data {
                return Ok(cap);
            }
            let fenced = match cap.file == home.data {
                true => self.client.core.fence(home.data, cap, &home.layout, fence_s).await,
                false => Err(another_home()),
            };
            let fenced = self.unless_moved(home, fenced, &mut patience).await;
            if fenced.map_err(|error| error.about(&self.path))?.is_some() {
                home.fenced_s.fetch_max(fence_s, Relaxed);
                return Ok(cap);
            }
            cap = self.cap().await?;
        }
    }
}
