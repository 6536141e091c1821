//! Leases of an open file, at most one for each object.

use super::State;
use super::layout_version::LayoutVersion;
use crate::control::datafile;
use crate::deadline::Deadline;
use crate::error::Result;
use crate::lease::{Lease, LeaseAnswer, LeaseOwner, RETRY_AFTER};
use crate::lease_request::{no_descriptor, request_lease};
use crate::options::Transport;
use parking_lot::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use weft_core::{ByteLen, Layout, ObjectId, SubRequest, TargetId};
use weft_env::Env;

/// Lease slots of one layout version, one for each object.
pub(crate) struct LeaseSlots<E: Env> {
    /// Number of slots before each component.
    starts: Vec<usize>,
    slots: Vec<LeaseSlot<E>>,
    /// Whether any slot ever had a lease.
    leased: AtomicBool,
}

/// State of the lease on one object.
pub(crate) struct LeaseSlot<E: Env> {
    held: RwLock<Option<Arc<Lease<E>>>>,
    uses: AtomicU32,
    /// No request for a lease before this time of the monotonic clock, in nanoseconds.
    not_before: AtomicU64,
}

impl<E: Env> LeaseSlots<E> {
    pub(super) fn new(layout: Option<&Layout>, with_leases: bool) -> Self {
        let mut starts = Vec::new();
        let mut count = 0;
        if let Some(layout) = layout.filter(|_| with_leases) {
            for component in layout.components() {
                starts.push(count);
                count += component.strips.len();
            }
        }
        let slot =
            || LeaseSlot { held: RwLock::new(None), uses: AtomicU32::new(0), not_before: AtomicU64::new(0) };
        Self { starts, slots: (0..count).map(|_| slot()).collect(), leased: AtomicBool::new(false) }
    }

    /// Drops all leases. Later requests may obtain new ones.
    pub(super) fn drop_all(&self) {
        for slot in &self.slots {
            drop(slot.held.write().take());
        }
    }

    /// Drops all leases, and returns whether there were any.
    pub(super) fn clear(&mut self) -> bool {
        self.slots.clear();
        self.leased.load(Relaxed)
    }

    #[inline]
    fn get(&self, object: ObjectId) -> Option<&LeaseSlot<E>> {
        let start = *self.starts.get(usize::from(object.component))?;
        self.slots.get(start + usize::from(object.column))
    }
}

impl<E: Env> LeaseSlot<E> {
    fn drop_if(&self, lease: &Arc<Lease<E>>) {
        let dropped = {
            let mut held = self.held.write();
            if held.as_ref().is_some_and(|held| Arc::ptr_eq(held, lease)) { held.take() } else { None }
        };
        drop(dropped); // Outside the lock.
    }
}

impl<E: Env> LeaseOwner<E> for State<E> {
    fn drop_lease(&self, lease: &Arc<Lease<E>>) {
        for version in self.first_version.iter().flat_map(LayoutVersion::all) {
            version.slots.slots.iter().for_each(|slot| slot.drop_if(lease));
        }
    }
}

impl<E: Env> State<E> {
    /// Returns the lease on the datafile of `sub`, and requests one if that is worthwhile now.
    #[inline]
    pub(crate) async fn lease_for(
        self: &Arc<Self>,
        version: &LayoutVersion<E>,
        sub: &SubRequest,
        write: bool,
    ) -> Result<Option<Arc<Lease<E>>>> {
        let Some(slot) = version.slots.get(sub.object) else { return Ok(None) };
        let held = slot.held.read().clone();
        match held {
            Some(lease) if lease.writable || !write => Ok(Some(lease)),
            _ => self.get_lease(version, slot, (sub.object, sub.target), sub.local.len, write).await,
        }
    }

    /// Returns the lease that is held on `object`, without requesting one.
    pub(crate) fn held_lease(&self, version: &LayoutVersion<E>, object: ObjectId) -> Option<Arc<Lease<E>>> {
        version.slots.get(object)?.held.read().clone()
    }

    /// Drops a lease that turned out to be revoked or expired.
    #[cold]
    pub(crate) fn drop_ended_lease(
        &self,
        version: &LayoutVersion<E>,
        object: ObjectId,
        lease: &Arc<Lease<E>>,
    ) {
        if let Some(slot) = version.slots.get(object) {
            slot.drop_if(lease);
            if self.only_descriptors() {
                return;
            }
            let not_before = self.session.core.env.now().saturating_add(RETRY_AFTER);
            slot.not_before.store(not_before.0, Relaxed);
        }
    }

    pub(crate) fn only_descriptors(&self) -> bool {
        self.session.core.options.transport == Transport::Descriptor
    }

    #[cold]
    async fn get_lease(
        self: &Arc<Self>,
        version: &LayoutVersion<E>,
        slot: &LeaseSlot<E>,
        (object, target): (ObjectId, TargetId),
        len: ByteLen,
        write: bool,
    ) -> Result<Option<Arc<Lease<E>>>> {
        let core = &*self.session.core;
        let now = core.env.now();
        let uses = slot.uses.fetch_add(1, Relaxed).saturating_add(1);
        let early = uses < core.options.lease_after_uses && len.0 < core.options.lease_at_len;
        let server = core.server(core.route(target)?);
        if !self.only_descriptors()
            && (early || now.0 < slot.not_before.load(Relaxed) || !server.channel.may_request(now))
        {
            return Ok(None);
        }
        let cap = self.cap_in(version).await?;
        let name = datafile(version.data, (object, target));
        let later = || slot.not_before.store(now.saturating_add(RETRY_AFTER).0, Relaxed);
        let deadline = if write { Deadline::of_request(core) } else { self.read_deadline() };
        match request_lease(core, server, (name, cap, write), deadline).await {
            Ok(LeaseAnswer::Leased(lease)) => {
                let before = slot.held.write().replace(Arc::clone(&lease));
                drop(before);
                let this: Weak<Self> = Arc::downgrade(self);
                version.slots.leased.store(true, Relaxed);
                core.leases.add(this, &lease);
                Ok(Some(lease))
            }
            Ok(LeaseAnswer::Busy) => Ok(None),
            Ok(LeaseAnswer::WritersBlocked) => {
                later();
                Ok(None)
            }
            // A datafile that does not exist yet is read by message, which returns nothing.
            Ok(LeaseAnswer::Declined) if self.only_descriptors() && write => Err(no_descriptor()),
            Ok(LeaseAnswer::Unavailable) if self.only_descriptors() => Err(no_descriptor()),
            Ok(LeaseAnswer::Declined | LeaseAnswer::Unavailable) => {
                later();
                Ok(None)
            }
            // A message would wait for the same server once more.
            Err(error) if error.is_without_answer() && server.is_troubled() => Err(error),
            // A message may still succeed, or give a better error.
            Err(error) if !self.only_descriptors() && !error.is_stale_layout() => {
                later();
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}
