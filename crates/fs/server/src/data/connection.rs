//! State of one connection in the data service, and verification of its capabilities.

use super::in_flight::{InFlightSlot, InFlightWrites};
use super::samples::Interval;
use crate::activity::{ConnectionActivity, client_number};
use crate::audit::Origin;
use crate::greeting::Greeted;
use std::collections::BTreeSet;
use std::sync::Arc;
use weft_core::{FileId, TargetId, Timestamp};
use weft_env::{Env, Shared};
use weft_wire::hello::SessionId;
use weft_wire::{BoundSession, Capability, ClusterSecret, Errno, Rights, WireError};

/// Number of verified capabilities that a connection caches.
const CACHED_CAPABILITIES_MAX: usize = 8;

/// Rights of a connection, from its peer's identity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionRights {
    /// Whether the limits of one user do not apply to the peer.
    pub is_unbounded: bool,
    /// Whether the peer may have writable descriptors of datafiles.
    pub leases_writable: bool,
}

/// State of one connection in the data service.
pub(crate) struct DataConnection<E: Env> {
    id: u64,
    pub(super) session: SessionId,
    /// The session bound to the peer's user. Only capabilities issued for both are valid on this connection.
    bound: BoundSession,
    pub(super) local: bool,
    pub(super) is_server: bool,
    is_administrator: bool,
    /// User at the other end.
    pub(crate) uid: u32,
    /// User whose share of memory the connection uses; `None` if no limit applies.
    pub(super) user: Option<u32>,
    /// Whether the peer may have writable descriptors of datafiles.
    pub(super) leases_writable: bool,
    /// Origin of its requests for the audit log, if there is one.
    pub(crate) origin: Option<Origin>,
    /// Shared payload area, if the client requested one and there was memory.
    pub(super) payload_area: Option<E::Shared>,
    /// Whether the shared areas were handed out.
    pub(super) attached: bool,
    /// Targets with a datafile of this connection for measurements.
    pub(super) probed: BTreeSet<TargetId>,
    in_flight_slot: Option<Arc<InFlightSlot>>,
    caps: Vec<Capability>,
    next: usize,
    /// Number of its client process in samples.
    pub(super) client: u64,
    pub(super) interval: Interval,
    /// Counters of its client and files.
    pub(crate) activity: ConnectionActivity,
    /// Number of bytes that the present request has read or written.
    pub(super) transferred: u64,
}

impl<E: Env> DataConnection<E> {
    /// Creates the state for a peer that has completed the greeting.
    pub fn new(
        id: u64,
        greeted: &Greeted,
        rights: ConnectionRights,
        origin: Option<Origin>,
        activity: ConnectionActivity,
    ) -> Self {
        Self {
            id,
            session: greeted.session,
            bound: greeted.session.bound_to(greeted.owner()),
            local: greeted.local,
            is_server: greeted.principal.is_server,
            is_administrator: greeted.principal.is_administrator,
            uid: greeted.principal.identity.uid,
            user: (!rights.is_unbounded).then_some(greeted.principal.identity.uid),
            leases_writable: rights.leases_writable,
            origin,
            payload_area: None,
            attached: false,
            probed: BTreeSet::new(),
            in_flight_slot: None,
            caps: Vec::new(),
            next: 0,
            client: client_number(greeted.session),
            interval: Interval::default(),
            activity,
            transferred: 0,
        }
    }

    /// Number of the connection.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Its slot among the writes in flight.
    pub(super) fn in_flight_slot(&mut self, all: &InFlightWrites) -> &Arc<InFlightSlot> {
        self.in_flight_slot.get_or_insert_with(|| all.add(self.id))
    }

    /// Whether the peer may stop the server and revoke leases.
    pub fn is_administrator(&self) -> bool {
        self.is_administrator
    }

    /// Whether the peer is a server of the cluster.
    pub fn is_server(&self) -> bool {
        self.is_server
    }

    /// Length of its shared payload area.
    pub fn shared_len(&self) -> usize {
        self.payload_area.as_ref().map_or(0, Shared::len)
    }

    /// Whether a genuine capability was presented on this connection lately.
    pub(super) fn knows(&self, cap: &Capability) -> bool {
        self.caps.contains(cap)
    }

    /// Checks that `cap` is genuine, is for `file`, allows `needed` (any right by default) and has not expired at
    /// `now`.
    ///
    /// # Errors
    /// `ESTALE` if only its time has passed, so that the client can get a fresh one; else `EACCES`.
    pub fn check(
        &mut self,
        secret: &ClusterSecret,
        cap: &Capability,
        file: FileId,
        needed: Rights,
        now: Timestamp,
    ) -> Result<(), WireError> {
        let refuse = |errno, why: &str| {
            Err(WireError::new(errno, format!("the capability for file {file} does not hold: {why}")))
        };
        if cap.file != file {
            return refuse(Errno::EACCES, "it is for another file");
        }
        if !cap.rights.allow(needed) || cap.rights == Rights::default() {
            return refuse(Errno::EACCES, "it does not allow this");
        }
        if !self.caps.contains(cap) {
            // Any time before its end will do here; the end is checked below.
            if !secret.verify(self.bound, cap, file, Rights::default(), Timestamp(i128::MIN)) {
                return refuse(Errno::EACCES, "it was not made by this cluster for this session and user");
            }
            match self.caps.get_mut(self.next) {
                Some(oldest) => *oldest = *cap,
                None => self.caps.push(*cap),
            }
            self.next = (self.next + 1) % CACHED_CAPABILITIES_MAX;
        }
        if i128::from(cap.expires_s) * 1_000_000_000 <= now.0 {
            return refuse(Errno::ESTALE, "it has expired");
        }
        Ok(())
    }
}
