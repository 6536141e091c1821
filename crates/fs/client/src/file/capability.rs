//! The capability of an open file, renewed before it expires.

use super::State;
use crate::call::Effect;
use crate::error::{Error, Result};
use std::sync::atomic::Ordering::Relaxed;
use weft_core::{FileOffset, Timestamp};
use weft_env::Env;
use weft_wire::meta::{MetaReply, MetaRequest};
use weft_wire::{Capability, Errno};

/// Time before its end at which a capability is renewed, in seconds. A capability that lives less than four times as
/// long is renewed after three quarters of its life.
const RENEW_BEFORE_S: i128 = 60;

impl<E: Env> State<E> {
    /// Returns [`State::cap`], or `None` for a file without a capability, such as a directory.
    pub(crate) async fn with_cap(&self) -> Result<Option<Capability>> {
        if self.record.cap.read().is_none() { Ok(None) } else { self.cap().await.map(Some) }
    }

    /// Returns a capability that does not expire soon.
    pub(crate) async fn cap(&self) -> Result<Capability> {
        let cap = (*self.record.cap.read())
            .ok_or_else(|| Error::misuse(Errno::EBADF, "the file is not open for reading or writing"))?;
        let now_s = self.session.core.env.wall().0.div_euclid(1_000_000_000);
        if now_s < i128::from(self.renew_at_s.load(Relaxed)) {
            return Ok(cap);
        }
        // An outage of the metadata server must not stop reads and writes that the old capability still allows.
        match self.renew().await {
            Err(_) if now_s < i128::from(cap.expires_s) => Ok(cap),
            result => result,
        }
    }

    /// Uses `cap` from now on.
    pub(crate) fn install_cap(&self, cap: Capability) {
        *self.record.cap.write() = Some(cap);
        self.renew_at_s.store(renew_at(&cap, self.session.core.env.wall()), Relaxed);
    }

    /// Asks the metadata server for a fresh capability, and takes over a new layout if the file has moved.
    pub(crate) async fn renew(&self) -> Result<Capability> {
        let request = MetaRequest::Renew { handle: self.record.handle };
        let answer = self.session.call(Effect::Repeatable, request).await;
        match answer.map_err(|error| self.explained(error))? {
            MetaReply::Capability(cap) => {
                self.install_cap(cap);
                Ok(cap)
            }
            MetaReply::Relocated { cap, layout } => {
                self.install_layout(cap, layout);
                Ok(cap)
            }
            _ => Err(Error::unexpected_reply()),
        }
    }

    /// Asks the metadata server to charge the file's quotas for the bytes up to `end`. Returns a capability for them that
    /// expires with `cap`.
    #[cold]
    pub(crate) async fn reserve_space(&self, cap: Capability, end: FileOffset) -> Result<Capability> {
        let request = MetaRequest::ReserveSpace { handle: self.record.handle, cap, end };
        let answer = self.session.call(Effect::Repeatable, request).await;
        let MetaReply::Capability(reserved) = answer.map_err(|error| self.explained(error))? else {
            return Err(Error::unexpected_reply());
        };
        let mut own = self.record.cap.write();
        // Another thread may have a higher limit already, or a fresh capability.
        if let Some(own) = &mut *own
            && (own.file, own.expires_s) == (reserved.file, reserved.expires_s)
            && own.limit.is_some_and(|limit| reserved.limit.is_none_or(|more| more.file_len > limit.file_len))
        {
            *own = reserved;
        }
        Ok(reserved)
    }
}

/// Returns when a capability that arrived at `now` must be renewed, in seconds since 1970.
pub(super) fn renew_at(cap: &Capability, now: Timestamp) -> u64 {
    let life_s = i128::from(cap.expires_s) - now.0.div_euclid(1_000_000_000);
    if life_s <= 0 {
        // The clocks disagree, so only a server can tell when the capability has expired.
        return u64::MAX;
    }
    (i128::from(cap.expires_s) - RENEW_BEFORE_S.min(life_s / 4)) as u64
}
