//! The capability of an open file, renewed before it ends.

use super::State;
use crate::call::Effect;
use crate::error::{Error, Result};
use std::sync::atomic::Ordering::Relaxed;
use weft_core::Timestamp;
use weft_env::Env;
use weft_wire::meta::{MetaReply, MetaRequest};
use weft_wire::{Capability, Errno};

/// Capabilities are renewed this long before they end (or after three quarters of their life, if that is later).
const RENEW_BEFORE_S: i128 = 60;

impl<E: Env> State<E> {
    /// As [`State::cap`]; `None` where there is none to be had (a directory).
    pub(crate) async fn with_cap(&self) -> Result<Option<Capability>> {
        if self.record.cap.read().is_none() { Ok(None) } else { self.cap().await.map(Some) }
    }

    /// A capability that is good for a while.
    pub(crate) async fn cap(&self) -> Result<Capability> {
        let cap = (*self.record.cap.read())
            .ok_or_else(|| Error::misuse(Errno::EBADF, "the file is not open for reading or writing"))?;
        let now_s = self.client.core.env.wall().0.div_euclid(1_000_000_000);
        if now_s < i128::from(self.renew_at_s.load(Relaxed)) {
            return Ok(cap);
        }
        // An outage of the metadata service must not stop reads and writes that are still allowed.
        match self.renew().await {
            Err(_) if now_s < i128::from(cap.expires_s) => Ok(cap),
            result => result,
        }
    }

    /// From here on this one is used.
    pub(crate) fn renewed(&self, cap: Capability) {
        *self.record.cap.write() = Some(cap);
        self.renew_at_s.store(renew_at(&cap, self.client.core.env.wall()), Relaxed);
    }

    /// Asks for a fresh capability.
    pub(crate) async fn renew(&self) -> Result<Capability> {
        let request = MetaRequest::Renew { handle: self.record.handle };
        let answer = self.client.call(Effect::Repeatable, request).await;
        match answer.map_err(|error| self.explained(error))? {
            MetaReply::Capability(cap) => {
                self.renewed(cap);
                Ok(cap)
            }
            MetaReply::Relocated { cap, layout } => {
                self.relocated(cap, layout);
                Ok(cap)
            }
            _ => Err(crate::control::odd_reply()),
        }
    }
}

/// When a capability that came at `now` is to be renewed, in seconds since 1970.
pub(super) fn renew_at(cap: &Capability, now: Timestamp) -> u64 {
    let life_s = i128::from(cap.expires_s) - now.0.div_euclid(1_000_000_000);
    if life_s <= 0 {
        // The clocks disagree: only a server can say when it has ended.
        return u64::MAX;
    }
    (i128::from(cap.expires_s) - RENEW_BEFORE_S.min(life_s / 4)) as u64
}
