//! Appends: finding the end of the file and writing there under the append lock.
//!
//! The metadata server takes the lock back from a client that is stopped, slow or cut off, and that client may not
//! notice. A *fence* keeps its delayed writes out. The fence is a time after the end of every capability granted so
//! far. A data server that has it rejects older capabilities for writing.
//!
//! ```text
//! client A                 metadata server             data servers              client B
//! lock ───────────────────▶ granted to A
//! length? ─────────────────────────────────────────────▶ 100
//!    (A is stopped)         15 s pass      ◀─────────────────────────────────── lock
//!                           taken from A, granted to B with fence F ──────────▶
//!                                                       ◀──────────────────── fence F
//!                                                       rejects capabilities that end before F
//!                                                       ◀──────────────────── length? 100
//!                                                       ◀──────────────────── write at 100
//! write at 100 ────────────────────────────────────────▶ ESTALE
//! unlock, renew, start again
//! ```
//!
//! | outcome of the writes under one grant | the append |
//! | --- | --- |
//! | all done | returns offset and count |
//! | rejected by a fence or a seal, nothing written | starts again, up to [`APPEND_ATTEMPTS_MAX`] grants |
//! | rejected, a part written | fails with `EIO`: other clients may have appended in between |
//! | a reply is missing | fails, and abandons the lock instead of unlocking, so that the next holder gets a fence |
//!
//! Two rules make this safe. The capability of a grant is obtained before the lock and never renewed under it, because
//! a fresh one would pass the fence. Each append is a lock owner of its own, so a delayed unlock cannot release the
//! next append's lock. See docs/design/appends.md.

use crate::backoff::Backoff;
use crate::call::Effect;
use crate::error::{Error, Result};
use crate::exchange::{Item, Outcome};
use crate::file::{LayoutRetry, OpenFile, State};
use std::io::IoSlice;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use weft_core::FileOffset;
use weft_env::Env;
use weft_wire::data::DataRequest;
use weft_wire::meta::{
    FenceKind, HandleId, LockKind, LockOwner, LockRange, LockSpace, MetaReply, MetaRequest,
};
use weft_wire::{Capability, Errno};

/// Attempts of one append whose grant ends before it has written anything.
const APPEND_ATTEMPTS_MAX: u32 = 8;
const WHOLE_FILE: LockRange = LockRange { start: 0, end: u64::MAX };

/// A granted append lock, with the capability that its writes use.
pub(crate) struct AppendGrant {
    pub(crate) owner: LockOwner,
    pub(crate) cap: Capability,
    /// Whether bytes may have been written under this grant.
    pub(crate) wrote: AtomicBool,
    /// Whether a request is unanswered, so that its bytes may still be written later.
    in_doubt: AtomicBool,
    /// Grant for the data of the file's replica, if that is used.
    pub(crate) of_replica: Option<Box<Self>>,
}

/// Answer to a request for the append lock.
enum AppendLock {
    Granted,
    /// Granted, but earlier holders may still have requests on their way.
    Fenced {
        cap: Capability,
        fence_s: u64,
    },
    /// Ticket of the next request.
    Wait(u64),
}

impl AppendGrant {
    fn new(owner: LockOwner, cap: Capability, of_replica: Option<Capability>) -> Self {
        let of_replica = of_replica.map(|cap| Box::new(Self::new(owner, cap, None)));
        Self { owner, cap, wrote: AtomicBool::new(false), in_doubt: AtomicBool::new(false), of_replica }
    }

    /// Grant for writes under a capability that must not be renewed, without an append lock.
    pub(crate) fn without_lock(cap: Capability) -> Self {
        Self::new(LockOwner::Handle(HandleId(0)), cap, None)
    }

    /// Whether a flag of this grant, or of that for the replica, is set.
    fn any(&self, flag: impl Fn(&Self) -> &AtomicBool) -> bool {
        flag(self).load(Relaxed) || self.of_replica.as_ref().is_some_and(|other| flag(other).load(Relaxed))
    }

    /// Records the outcome of an exchange of writes.
    pub(crate) fn note(&self, items: &[Item]) {
        for item in items {
            let refused = matches!(&item.outcome, Outcome::Failed(Error::Refused(_)));
            let done = matches!(&item.outcome, Outcome::Done);
            if item.unacknowledged || !refused {
                self.wrote.store(true, Relaxed);
            }
            if !refused && !done {
                self.in_doubt.store(true, Relaxed);
            }
        }
    }
}

impl<E: Env> OpenFile<E> {
    /// Writes all of `bufs` at the end of the file, and returns that offset and the number of bytes written.
    ///
    /// # Errors
    /// Errors of [`OpenFile::write_at`]. `EIO` when other clients have appended before all of it was written, or on
    /// every attempt before any of it was written.
    pub async fn append(&self, bufs: &[IoSlice<'_>]) -> Result<(FileOffset, usize)> {
        let state = &self.state;
        state.check()?;
        // Tasks that share this open file append one after the other.
        let _own = state.appending.lock().await;
        if state.replica().is_none() {
            self.check_write().await?;
            if let Some(appended) = self.append_inline(bufs).await? {
                return Ok(appended);
            }
        }
        let mut attempts = 0;
        loop {
            let grant = self.acquire_append_grant().await?;
            let result = self.append_under(&grant, bufs).await;
            let over = result.as_ref().is_err_and(|error| error.is_expired() || error.is_stale_layout());
            let wrote = grant.any(|grant| &grant.wrote);
            // If this message is lost, the metadata server takes the lock back by itself.
            let _ = self.release_append_grant(grant.owner, grant.any(|grant| &grant.in_doubt)).await;
            attempts += 1;
            match result {
                Err(_) if over && wrote => {
                    const WHY: &str =
                        "others have appended before all of it was written: a part of it may be in the file";
                    return Err(Error::misuse(Errno::EIO, WHY).about(&state.path));
                }
                Err(error) if over && attempts == APPEND_ATTEMPTS_MAX => return Err(error),
                Err(_) if over => {
                    state.renew().await?;
                    if let Some(replica) = state.replica() {
                        replica.data().state.renew().await?;
                    }
                }
                result => return result,
            }
        }
    }

    async fn append_under(&self, grant: &AppendGrant, bufs: &[IoSlice<'_>]) -> Result<(FileOffset, usize)> {
        let end = FileOffset(self.size().await?.0);
        self.write_under_grant(bufs, end, Some(grant)).await.map(|count| (end, count))
    }

    async fn release_append_grant(&self, owner: LockOwner, in_doubt: bool) -> Result<()> {
        let handle = self.handle();
        let request = match in_doubt {
            true => MetaRequest::AbandonAppend { handle, owner },
            false => MetaRequest::Unlock { handle, space: LockSpace::Append, owner, range: WHOLE_FILE },
        };
        self.state.release_lock(request).await
    }

    /// Waits for the append lock, and fences earlier holders if the metadata server asks for that.
    async fn acquire_append_grant(&self) -> Result<AppendGrant> {
        let state = &self.state;
        // Each append has its own owner, so that a delayed unlock cannot release the next append's lock.
        let owner = LockOwner::Handle(state.session.core.new_handle());
        let mut ticket = 0;
        loop {
            // Obtained before the lock is granted: a capability issued after the lock was lost would pass the fence.
            let cap = state.cap().await?;
            let of_replica = match state.replica() {
                Some(replica) => Some(replica.data().state.cap().await?),
                None => None,
            };
            match self.ask_for_append_lock(owner, ticket).await? {
                AppendLock::Granted => return Ok(AppendGrant::new(owner, cap, of_replica)),
                AppendLock::Fenced { cap, fence_s } => match self.fence_both(cap, fence_s).await {
                    Ok((cap, of_replica)) => return Ok(AppendGrant::new(owner, cap, of_replica)),
                    Err(error) => {
                        let _ = self.release_append_grant(owner, false).await;
                        return Err(error);
                    }
                },
                AppendLock::Wait(next) => ticket = next,
            }
        }
    }

    /// Runs `work` while nobody appends. `work` must reject the requests of earlier holders of the lock, which are not fenced
    /// here.
    pub(crate) async fn without_appends<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let owner = LockOwner::Handle(self.state.session.core.new_handle());
        let mut ticket = 0;
        while let AppendLock::Wait(next) = self.ask_for_append_lock(owner, ticket).await? {
            ticket = next;
        }
        let result = work.await;
        // If this message is lost, the metadata server takes the lock back by itself.
        let _ = self.release_append_grant(owner, result.is_err()).await;
        result
    }

    async fn ask_for_append_lock(&self, owner: LockOwner, ticket: u64) -> Result<AppendLock> {
        let state = &self.state;
        let request = MetaRequest::Lock {
            handle: self.handle(),
            space: LockSpace::Append,
            owner,
            kind: LockKind::Exclusive,
            range: WHOLE_FILE,
            wait: true,
            ticket,
            pid: state.session.core.options.pid,
        };
        match state.session.call(Effect::Repeatable, request).await {
            Ok(MetaReply::Locked) => Ok(AppendLock::Granted),
            Ok(MetaReply::LockedFenced { cap, fence_s }) => Ok(AppendLock::Fenced { cap, fence_s }),
            Ok(MetaReply::LockWait(next)) => Ok(AppendLock::Wait(next)),
            Ok(_) => Err(Error::unexpected_reply()),
            Err(error) => {
                if error.is_without_answer() {
                    // The lock may have been granted nevertheless.
                    let _ = self.release_append_grant(owner, false).await;
                }
                Err(state.explained(error))
            }
        }
    }

    /// Fences the file and, if it is used, its replica. Returns capabilities that pass.
    async fn fence_both(&self, cap: Capability, fence_s: u64) -> Result<(Capability, Option<Capability>)> {
        let cap = self.state.put_fence(cap, fence_s).await?;
        let of_replica = match self.state.replica() {
            Some(replica) => Some(replica.data().fence_all().await?),
            None => None,
        };
        Ok((cap, of_replica))
    }

    /// Has the data servers reject all earlier capabilities for writing, and returns one that passes.
    pub(crate) async fn fence_all(&self) -> Result<Capability> {
        self.reject_earlier(FenceKind::Writes).await.map(|(cap, _)| cap)
    }

    /// Has the data servers reject all earlier capabilities, also for reading, and returns the seal.
    ///
    /// # Errors
    /// `EPERM` when the caller neither owns the file nor is root; `EBUSY` while the file is moved.
    pub(crate) async fn seal(&self) -> Result<u64> {
        self.reject_earlier(FenceKind::All).await.map(|(_, seal_s)| seal_s)
    }

    /// Like [`seal`](Self::seal), and nobody else can use the file until [`release_seal`](Self::release_seal).
    pub(crate) async fn seal_until_released(&self) -> Result<()> {
        self.reject_earlier(FenceKind::AllUntilReleased).await.map(drop)
    }

    /// Lets others use the file again.
    ///
    /// # Errors
    /// `ESTALE` if they could use it before.
    pub(crate) async fn release_seal(&self) -> Result<()> {
        let request = MetaRequest::ReleaseSeal { handle: self.handle() };
        self.state.session.call(Effect::Repeatable, request).await.map(drop)
    }

    /// Puts a fence, or a seal, and returns it with a capability that passes.
    async fn reject_earlier(&self, kind: FenceKind) -> Result<(Capability, u64)> {
        let state = &self.state;
        let mut backoff = Backoff::default();
        loop {
            let request = MetaRequest::FenceFile { handle: self.handle(), kind };
            let (cap, fence_s) = match state.session.call(Effect::Repeatable, request).await {
                Ok(MetaReply::LockedFenced { cap, fence_s }) => (cap, fence_s),
                Ok(_) => return Err(Error::unexpected_reply()),
                // A move is about to switch the datafiles, or the file had too many fences within the last seconds.
                Err(error)
                    if error.errno() == Errno::EAGAIN.0 && backoff.wait(&state.session.core.env).await =>
                {
                    continue;
                }
                Err(error) => return Err(state.explained(error)),
            };
            let put = match kind {
                FenceKind::Writes => state.put_fence(cap, fence_s).await,
                FenceKind::All | FenceKind::AllUntilReleased => {
                    state.put_seal(cap, fence_s).await.map(|()| cap)
                }
            };
            match put {
                // The file has moved meanwhile, and its new datafiles need a fence of their own.
                Err(error)
                    if (error.errno() == Errno::EINVAL.0 || error.is_stale_layout())
                        && backoff.wait(&state.session.core.env).await => {}
                result => return result.map(|cap| (cap, fence_s)),
            }
        }
    }
}

impl<E: Env> State<E> {
    /// Has the data servers reject all capabilities that end before `seal_s`.
    ///
    /// # Errors
    /// A stale layout if the file has moved since `cap` was issued.
    async fn put_seal(&self, cap: Capability, seal_s: u64) -> Result<()> {
        if self.layout_version()?.data != cap.file {
            self.renew().await?;
            return Err(Error::stale_layout());
        }
        let (core, layout) = (&self.session.core, &self.layout_version()?.layout);
        let request = |datafiles| DataRequest::Seal { cap, before_s: seal_s, datafiles };
        core.apply_to_all(cap.file, layout, request).await.map_err(|error| error.about(&self.path))?;
        self.install_cap(cap);
        Ok(())
    }

    /// Has the data servers reject delayed appends of earlier holders, and returns a capability that passes the fence.
    async fn put_fence(&self, cap: Capability, fence_s: u64) -> Result<Capability> {
        let mut retry = LayoutRetry::new(self);
        let mut cap = cap;
        if self.layout_version()?.data == cap.file {
            self.install_cap(cap);
        } else {
            cap = self.renew().await?;
        }
        loop {
            let version = self.layout_version()?;
            if version.fenced_s.load(Relaxed) >= fence_s && cap.file == version.data {
                return Ok(cap);
            }
            let fenced = match cap.file == version.data {
                true => self.session.core.fence(version.data, cap, &version.layout, fence_s).await,
                false => Err(Error::stale_layout()),
            };
            let fenced = retry.check(version, fenced).await;
            if fenced.map_err(|error| error.about(&self.path))?.is_some() {
                version.fenced_s.fetch_max(fence_s, Relaxed);
                return Ok(cap);
            }
            cap = self.cap().await?;
        }
    }
}
