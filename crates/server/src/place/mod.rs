//! Where bytes lie: on the disk of a target, or on the SSD beside it.
//!
//! A [`Placed`] target is what all data requests go through. Without an SSD it is the target and nothing else. With one
//! ([`Bridge`]), what small requests write goes into a log on the SSD when the policy says so, and to the disk when that
//! has nothing else to do. What holds then:
//!
//! * A byte that lies in the log is newest there; every other byte is newest on the disk. A datafile is as long as the
//!   longer of both says.
//! * Dirty bytes (which the disk does not have) become clean only when the disk has them and was synced. Until then
//!   newer bytes of their range go into the log too, so that no sync of one device has to wait for the other.
//! * Clean bytes are forgotten before the disk gets newer ones.
//! * Who changes a range of a datafile, or moves it from one device to the other, [holds](ranges::Ranges) it. Reads hold
//!   nothing: they look into the log first and then at the disk, and what is on its way to the disk stays in the log
//!   until it has arrived.
//!
//! `docs/decisions/ibridge-log.md` says why that outlives crashes.

mod back;
mod bridge;
mod counters;
mod many;
mod open;
mod preload;
mod ranges;
mod read;
mod source;
mod span;
mod state;
mod turn;
mod write;

pub(crate) use back::Position;
pub(crate) use bridge::Bridge;
pub(crate) use open::open;
pub(crate) use read::{ReadPlan, Sending};
pub(crate) use source::Source;

use crate::admission::{Admission, Permit};
use std::sync::atomic::Ordering;
use weft_core::Integrity;
use weft_env::Env;
use weft_store::datafile::DatafileKey;
use weft_store::error::DatafileError;
use weft_store::target::Target;
use weft_wire::hello::SessionId;

/// A target, with the SSD beside it if there is one.
pub(crate) struct Placed<E: Env> {
    target: Target<E>,
    bridge: Option<Bridge<E>>,
}

/// The way to the disk for one session's request. It is taken after ranges are held, never before: who has the disk's
/// leave must not wait for anybody who may be waiting for it.
pub(crate) struct Gate<'a, E: Env> {
    /// Of the disk.
    pub admission: &'a Admission<E>,
    /// Whose turn it is to be.
    pub session: SessionId,
}

impl<E: Env> Clone for Gate<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E: Env> Copy for Gate<'_, E> {}

impl<E: Env> Placed<E> {
    /// Of both; without an SSD all requests go to `target`.
    fn new(target: Target<E>, bridge: Option<Bridge<E>>) -> Self {
        Self { target, bridge }
    }

    /// The target, for what concerns no bytes.
    pub fn target(&self) -> &Target<E> {
        &self.target
    }

    /// [`Target::prepare`] before a write. With an SSD the names of datafile and checksums are on the disk before bytes go
    /// into the log, which may outlive them.
    ///
    /// # Errors
    /// Those of [`Target::prepare`].
    #[inline]
    pub async fn prepare(&self, key: DatafileKey, wish: Option<Integrity>) -> Result<(), DatafileError> {
        self.target.prepare(key, wish).await?;
        match &self.bridge {
            Some(_) if self.target.integrity_of(wish) != Integrity::Off => {
                self.target.sync_sums_name(key).await
            }
            _ => Ok(()),
        }
    }

    /// The SSD beside it.
    pub fn bridge(&self) -> Option<&Bridge<E>> {
        self.bridge.as_ref()
    }

    /// Waits for the disk's leave.
    pub async fn enter<'a>(&self, gate: Gate<'a, E>) -> Permit<'a, E> {
        if let Some(bridge) = &self.bridge {
            bridge.disk_requests.fetch_add(1, Ordering::Relaxed);
        }
        gate.admission.enter(gate.session).await
    }
}
