//! The leases that an open file holds, one for each object at the most.

use super::State;
use super::home::{Home, moved};
use crate::control::datafile;
use crate::error::{Error, Result};
use crate::lease::{self, Answer, Keeper, Lease, RETRY_AFTER};
use crate::options::Transport;
use parking_lot::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use weft_core::{ByteLen, Layout, ObjectId, SubRequest, TargetId};
use weft_env::Env;

/// A place for the lease of each object.
pub(crate) struct Cells<E: Env> {
    /// Cells before each component.
    starts: Vec<usize>,
    cells: Vec<Cell<E>>,
    /// Whether any had a lease.
    leased: AtomicBool,
}

pub(crate) struct Cell<E: Env> {
    held: RwLock<Option<Arc<Lease<E>>>>,
    uses: AtomicU32,
    /// No asking before this time of the monotonic clock.
    not_before: AtomicU64,
}

impl<E: Env> Cells<E> {
    pub(super) fn new(layout: Option<&Layout>, with_leases: bool) -> Self {
        let mut starts = Vec::new();
        let mut count = 0;
        if let Some(layout) = layout.filter(|_| with_leases) {
            for component in layout.components() {
                starts.push(count);
                count += component.strips.len();
            }
        }
        let cell =
            || Cell { held: RwLock::new(None), uses: AtomicU32::new(0), not_before: AtomicU64::new(0) };
        Self { starts, cells: (0..count).map(|_| cell()).collect(), leased: AtomicBool::new(false) }
    }

    /// Drops all leases, for good or until they are asked for again.
    pub(super) fn let_go(&self) {
        for cell in &self.cells {
            drop(cell.held.write().take());
        }
    }

    /// Drops all leases; whether there had been any.
    pub(super) fn clear(&mut self) -> bool {
        self.cells.clear();
        self.leased.load(Relaxed)
    }

    #[inline]
    fn get(&self, object: ObjectId) -> Option<&Cell<E>> {
        let start = *self.starts.get(usize::from(object.component))?;
        self.cells.get(start + usize::from(object.column))
    }
}

impl<E: Env> Cell<E> {
    fn drop_if(&self, lease: &Arc<Lease<E>>) {
        let dropped = {
            let mut held = self.held.write();
            if held.as_ref().is_some_and(|held| Arc::ptr_eq(held, lease)) { held.take() } else { None }
        };
        drop(dropped); // Outside the lock.
    }
}

impl<E: Env> Keeper<E> for State<E> {
    fn drop_lease(&self, lease: &Arc<Lease<E>>) {
        for home in self.home.iter().flat_map(Home::all) {
            home.cells.cells.iter().for_each(|cell| cell.drop_if(lease));
        }
    }
}

impl<E: Env> State<E> {
    /// The lease on the datafile of `sub`, if there is one or it is time to get one.
    #[inline]
    pub(crate) async fn lease_for(
        self: &Arc<Self>,
        home: &Home<E>,
        sub: &SubRequest,
        write: bool,
    ) -> Result<Option<Arc<Lease<E>>>> {
        let Some(cell) = home.cells.get(sub.object) else { return Ok(None) };
        let held = cell.held.read().clone();
        match held {
            Some(lease) if lease.writable || !write => Ok(Some(lease)),
            _ => self.get_lease(home, cell, (sub.object, sub.target), sub.local.len, write).await,
        }
    }

    /// The lease that is held on `object`, without asking for one.
    pub(crate) fn held_lease(&self, home: &Home<E>, object: ObjectId) -> Option<Arc<Lease<E>>> {
        home.cells.get(object)?.held.read().clone()
    }

    /// The lease did not hold any more.
    #[cold]
    pub(crate) fn lease_ended(&self, home: &Home<E>, object: ObjectId, lease: &Arc<Lease<E>>) {
        if let Some(cell) = home.cells.get(object) {
            cell.drop_if(lease);
            if self.only_descriptors() {
                return;
            }
            let not_before = self.client.core.env.now().saturating_add(RETRY_AFTER);
            cell.not_before.store(not_before.0, Relaxed);
        }
    }

    pub(crate) fn only_descriptors(&self) -> bool {
        self.client.core.options.transport == Transport::Descriptor
    }

    #[cold]
    async fn get_lease(
        self: &Arc<Self>,
        home: &Home<E>,
        cell: &Cell<E>,
        (object, target): (ObjectId, TargetId),
        len: ByteLen,
        write: bool,
    ) -> Result<Option<Arc<Lease<E>>>> {
        let core = &*self.client.core;
        let now = core.env.now();
        let uses = cell.uses.fetch_add(1, Relaxed).saturating_add(1);
        let early = uses < core.options.lease_after_uses && len.0 < core.options.lease_at_len;
        let server = core.server(core.route(target)?);
        if !self.only_descriptors()
            && (early || now.0 < cell.not_before.load(Relaxed) || !server.channel.is_useful(now))
        {
            return Ok(None);
        }
        let cap = self.cap_in(home).await?;
        let name = datafile(home.data, (object, target));
        let later = || cell.not_before.store(now.saturating_add(RETRY_AFTER).0, Relaxed);
        match lease::ask(core, server, name, cap, write).await {
            Ok(Answer::Leased(lease)) => {
                let before = cell.held.write().replace(Arc::clone(&lease));
                drop(before);
                let this: Weak<Self> = Arc::downgrade(self);
                home.cells.leased.store(true, Relaxed);
                core.leases.add(this, &lease);
                Ok(Some(lease))
            }
            Ok(Answer::Busy) => Ok(None),
            Ok(Answer::NotNow) => {
                later();
                Ok(None)
            }
            // A datafile that does not exist yet is read by message: it has nothing to say.
            Ok(Answer::No) if self.only_descriptors() && write => Err(lease::no_descriptor()),
            Ok(Answer::Never) if self.only_descriptors() => Err(lease::no_descriptor()),
            Ok(Answer::No | Answer::Never) => {
                later();
                Ok(None)
            }
            // Messages would wait for the same server once more.
            Err(error @ Error::Unreachable(_)) if server.is_troubled() => Err(error),
            // Messages may still work, or say better what is wrong.
            Err(error) if !self.only_descriptors() && !moved(&error) => {
                later();
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}
