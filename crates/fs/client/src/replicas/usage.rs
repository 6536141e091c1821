//! Use of a replica by a process: from the open of the file to its close.

use super::files::{Identity, Origin, Replica, ReplicaInfo};
use super::transfer::{Difference, Pace, Unpaced};
use crate::error::Result;
use weft_core::Nanos;
use weft_core::replicas::Phase;
use weft_env::mutants::{self, Mutant};
use weft_env::{Env, File, SharedLock};

/// Pause between attempts to get the lock.
const PAUSE: Nanos = Nanos::from_ms(5);
/// A process that waits this long says so.
const LONG_WAIT: Nanos = Nanos::from_s(3);
/// An original that was changed this much later than the replica was changed by another program. Users of a replica note
/// their writes to the original at least once a second.
const FOREIGN_AFTER: i128 = 10_000_000_000;
/// Attempts to copy a file that changes meanwhile.
const COPIES_MAX: u32 = 5;

/// How a use begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begun {
    /// Requests go to the replica.
    Used,
    /// Requests go to the original alone.
    Bypassed,
}

/// Result of a synchronization.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Synchronized {
    /// Bytes copied to the original.
    pub copied: u64,
    /// State of the replica.
    pub info: ReplicaInfo,
}

/// A process that has the original open. It holds the shared lock of the replica.
pub struct Usage<E: Env> {
    replica: Replica<E>,
    origin: Origin<E>,
    lock: Box<dyn SharedLock>,
}

impl<E: Env> Usage<E> {
    /// Begins to use `replica`, from a process of `ranks` (`None` if unknown). The first user completes an interrupted
    /// synchronization, and decides for all: the replica is used if it is valid and made for this number of ranks. Waits
    /// while another process synchronizes.
    ///
    /// # Errors
    /// Errors of the file system; EIO if both original and replica were changed; ENOENT if the replica was removed since
    /// it was opened.
    pub async fn begin(replica: Replica<E>, origin: Origin<E>, ranks: Option<u32>) -> Result<(Self, Begun)> {
        let lock = replica.users().await?;
        let this = Self { replica, origin, lock };
        let is_first = this.acquire().await?;
        if !this.replica.is_current().await? {
            return Err(this.replica.removed());
        }
        if is_first {
            let first = this.begin_first(ranks).await;
            // A failure leaves the lock to the next process.
            let begun = first.inspect_err(|_| drop(this.lock.release()))?;
            this.lock.try_acquire(false).map_err(|error| this.replica.failure(&error))?;
            return Ok((this, begun));
        }
        let bypassed = this.replica.written().await?.bypassed;
        Ok((this, if bypassed { Begun::Bypassed } else { Begun::Used }))
    }

    /// Acquires the lock, exclusively if nobody holds it. Returns whether it is exclusive.
    async fn acquire(&self) -> Result<bool> {
        let failed = |error| self.replica.failure(&error);
        let env = self.replica.env();
        let (begin, mut told) = (env.now(), false);
        loop {
            if self.lock.try_acquire(true).map_err(failed)? {
                return Ok(true);
            }
            if self.lock.try_acquire(false).map_err(failed)? {
                return Ok(false);
            }
            if !told && env.now().saturating_sub(begin) > LONG_WAIT {
                told = true;
                crate::log::note(&format!("replica {} is being synchronized: waiting", self.replica.shown()));
            }
            env.sleep(PAUSE).await;
        }
    }

    async fn begin_first(&self, ranks: Option<u32>) -> Result<Begun> {
        let info = self.settle(false, &mut Unpaced).await?.info;
        let is_for_these = info.ranks == 0 || ranks.is_none_or(|ranks| ranks == info.ranks);
        let is_used = info.phase == Phase::Valid && is_for_these;
        if self.replica.written().await?.bypassed == is_used {
            self.replica.set_bypassed(!is_used).await?;
        }
        Ok(if is_used { Begun::Used } else { Begun::Bypassed })
    }

    /// Waits until no other process and thread appends to the file.
    pub(super) async fn append_turn(&self) -> Result<Box<dyn SharedLock>> {
        let lock = self.replica.appenders().await?;
        while !lock.try_acquire(true).map_err(|error| self.replica.failure(&error))? {
            self.replica.env().sleep(PAUSE).await;
        }
        Ok(lock)
    }

    /// The replica.
    pub fn replica(&self) -> &Replica<E> {
        &self.replica
    }

    /// Ends the use. The last user synchronizes.
    ///
    /// # Errors
    /// Errors of the file system; the next use tries again.
    pub async fn end(self) -> Result<Option<Synchronized>> {
        let failed = |error| self.replica.failure(&error);
        // Two last users both fail to get it exclusively, so that each tries again after it has let go.
        if !self.lock.try_acquire(true).map_err(failed)? {
            self.lock.release().map_err(failed)?;
            if !self.lock.try_acquire(true).map_err(failed)? {
                return Ok(None);
            }
        }
        let settled = self.settle(false, &mut Unpaced).await;
        self.lock.release().map_err(failed)?;
        settled.map(Some)
    }

    /// Acquires the lock exclusively; returns `None` if somebody uses the replica.
    async fn alone(replica: Replica<E>, origin: Origin<E>) -> Result<Option<Self>> {
        let lock = replica.users().await?;
        let is_alone = lock.try_acquire(true).map_err(|error| replica.failure(&error))?;
        Ok(is_alone.then_some(Self { replica, origin, lock }))
    }

    /// Synchronizes the replica if nobody else uses it; returns `None` if somebody does. `force` copies marked regions even
    /// if another program has changed the original.
    ///
    /// # Errors
    /// As for [`begin`](Self::begin).
    pub async fn synchronize(
        replica: Replica<E>,
        origin: Origin<E>,
        force: bool,
        pace: &mut impl Pace,
    ) -> Result<Option<Synchronized>> {
        let Some(this) = Self::alone(replica, origin).await? else { return Ok(None) };
        this.settle(force, pace).await.map(Some)
    }

    /// Removes a replica that nobody uses; returns false if somebody does. Unless `force` is set, it is synchronized first:
    /// `origin` is its original, if that exists.
    ///
    /// # Errors
    /// Errors of the file system; EIO if it has bytes that its original does not have and cannot get.
    pub async fn remove(replica: Replica<E>, origin: Option<Origin<E>>, force: bool) -> Result<bool> {
        let lock = replica.users().await?;
        if !lock.try_acquire(true).map_err(|error| replica.failure(&error))? {
            return Ok(false);
        }
        let Some(origin) = origin.filter(|_| !force) else {
            if !force && replica.written().await?.any {
                return Err(replica.refused("it has bytes that its file, which is gone, does not have"));
            }
            // The lock is held until it is removed, so that no program begins to use it.
            return replica.remove_this().await.map(|()| true);
        };
        let this = Self { replica, origin, lock };
        this.settle(false, &mut Unpaced).await?;
        this.replica.remove_this().await.map(|()| true)
    }

    /// Copies the original's bytes to the replica, which is valid afterwards. Returns `None` if somebody has the file open at
    /// the end of the copy, or changes it during each of several attempts.
    ///
    /// # Errors
    /// Errors of the file system.
    pub async fn fill(replica: Replica<E>, origin: Origin<E>, pace: &mut impl Pace) -> Result<Option<u64>> {
        let Some(this) = Self::alone(replica, origin).await? else { return Ok(None) };
        let failed = |error| this.replica.failure(&error);
        let info = this.settle(false, pace).await?.info;
        if info.phase == Phase::Valid {
            return Ok(Some(0));
        }
        this.replica.set_info(&ReplicaInfo { phase: Phase::Copying, ..info }).await?;
        this.replica.set_bypassed(true).await?;
        for _ in 0..COPIES_MAX {
            // Programs may open the original meanwhile.
            this.lock.release().map_err(failed)?;
            let before = this.origin.identity().await.map_err(failed)?;
            if !this.replica.clock_has_passed(&before).await? {
                return Err(this.replica.refused(
                    "the times of this file system are too coarse to notice changes of the original; wait a few seconds and \
                     repeat the command",
                ));
            }
            let file = &this.origin.file;
            let copied = this.replica.fill(file, before.size, pace).await?;
            this.replica.clear_after(before.size).await?;
            if !mutants::is_seeded(Mutant::EarlyReplica) {
                this.replica.data().sync().await.map_err(failed)?;
            }
            if !this.lock.try_acquire(true).map_err(failed)? {
                return Ok(None);
            }
            if this.origin.identity().await.map_err(failed)? == before {
                let info = this.replica.info().await?;
                let valid = ReplicaInfo { phase: Phase::Valid, original: before, ..info };
                this.replica.set_info(&valid).await?;
                return Ok(Some(copied));
            }
        }
        Ok(None)
    }

    /// Compares original and replica, except for regions that are not synchronized. Returns `None` if somebody uses the
    /// replica, or if it is not valid.
    ///
    /// # Errors
    /// Errors of the file system.
    pub async fn verify(
        replica: Replica<E>,
        origin: Origin<E>,
        pace: &mut impl Pace,
    ) -> Result<Option<Difference>> {
        let Some(this) = Self::alone(replica, origin).await? else { return Ok(None) };
        let failed = |error| this.replica.failure(&error);
        let now = this.origin.identity().await.map_err(failed)?;
        if this.replica.info().await?.phase != Phase::Valid {
            return Ok(None);
        }
        let written = this.replica.written().await?;
        this.replica.compare(&this.origin.file, now.size, &written.regions, pace).await.map(Some)
    }

    /// Brings original and replica together. The caller holds the lock exclusively.
    async fn settle(&self, force: bool, pace: &mut impl Pace) -> Result<Synchronized> {
        let failed = |error| self.replica.failure(&error);
        let mut info = self.replica.info().await?;
        let written = self.replica.written().await?;
        let now = self.origin.identity().await.map_err(failed)?;
        if info.phase != Phase::Valid {
            return Ok(Synchronized { copied: 0, info });
        }
        if !written.any {
            if now != info.original {
                info.phase = Phase::Outdated;
                self.replica.set_info(&info).await?;
            }
            return Ok(Synchronized { copied: 0, info });
        }
        if now != info.original && !force && self.is_foreign(&now).await? {
            return Err(self.replica.refused(
                "it has bytes that its file does not have, and another program has changed the file since: `weft replicate \
                 sync --force` copies them to the file, `weft replicate drop --force` discards them",
            ));
        }
        let file = (self.origin.writable)().map_err(failed)?;
        let mut regions = written.regions.clone();
        if mutants::is_seeded(Mutant::ForgottenRegion) {
            regions.remove_last();
        }
        let copied = self.replica.copy_back(&file, now.size, &regions, pace).await?;
        file.sync().await.map_err(failed)?;
        self.replica.clear_after(now.size).await?;
        self.replica.data().sync().await.map_err(failed)?;
        let original = Identity::from(file.meta().await.map_err(failed)?);
        let is_whole = !written.cutting && original.size == now.size;
        let phase = match is_whole && self.replica.clock_has_passed(&original).await? {
            true => Phase::Valid,
            false => Phase::Outdated,
        };
        let info = ReplicaInfo { phase, original, ..info };
        self.replica.set_info(&info).await?;
        self.replica.forget_marks().await?;
        Ok(Synchronized { copied, info })
    }

    /// Whether another program has changed the original after the last use of the replica.
    async fn is_foreign(&self, now: &Identity) -> Result<bool> {
        let last = i128::from(self.replica.last_write().await?);
        Ok(i128::from(now.mtime) > last + FOREIGN_AFTER)
    }
}
