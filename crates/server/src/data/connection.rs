//! What the data service knows of one connection.

use super::inside::{Insiders, Place};
use super::samples::{Stretch, client_number};
use crate::audit::Origin;
use crate::greeting::Greeted;
use std::collections::BTreeSet;
use std::sync::Arc;
use weft_core::{FileId, TargetId, Timestamp};
use weft_env::{Env, Shared};
use weft_wire::hello::SessionId;
use weft_wire::{BoundSession, Capability, ClusterSecret, Errno, Rights, WireError};

/// Capabilities of a connection that have been verified, so that the next request need not.
const CAPS_KEPT: usize = 8;

/// Rights of a connection, by the peer's identity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionRights {
    /// Whether the shares of one user do not bound the peer.
    pub is_unbounded: bool,
    /// Whether the peer gets descriptors of datafiles for writing.
    pub leases_writable: bool,
}

/// The data service's side of one connection.
pub(crate) struct DataConnection<E: Env> {
    id: u64,
    pub(super) session: SessionId,
    /// The session bound to who the peer is: capabilities that were made for it hold on this connection.
    bound: BoundSession,
    pub(super) local: bool,
    pub(super) is_server: bool,
    is_administrator: bool,
    /// The user at the other end.
    pub(crate) uid: u32,
    /// The user whose share of memory it takes; `None` where there is no bound.
    pub(super) user: Option<u32>,
    /// Whether the peer gets descriptors of datafiles for writing.
    pub(super) leases_writable: bool,
    /// Where its requests come from, for the audit log if there is one.
    pub(crate) origin: Option<Origin>,
    /// The shared payload area, if one was asked for and given.
    pub(super) payload_area: Option<E::Shared>,
    /// Whether the shared areas were handed out.
    pub(super) attached: bool,
    /// Targets on which it has a datafile to measure with.
    pub(super) probed: BTreeSet<TargetId>,
    place: Option<Arc<Place>>,
    caps: Vec<Capability>,
    next: usize,
    /// The number of its client process in samples.
    pub(super) client: u64,
    pub(super) stretch: Stretch,
}

impl<E: Env> DataConnection<E> {
    /// Of a peer that has greeted.
    pub fn new(id: u64, greeted: &Greeted, rights: ConnectionRights, origin: Option<Origin>) -> Self {
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
            place: None,
            caps: Vec::new(),
            next: 0,
            client: client_number(greeted.session),
            stretch: Stretch::default(),
        }
    }

    /// Its number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Its place among those who write.
    pub(super) fn place(&mut self, all: &Insiders) -> &Arc<Place> {
        self.place.get_or_insert_with(|| all.add(self.id))
    }

    /// Whether it may end the server and take leases back.
    pub fn is_administrator(&self) -> bool {
        self.is_administrator
    }

    /// Whether another server of the cluster is at the other end.
    pub fn is_server(&self) -> bool {
        self.is_server
    }

    /// Bytes of its shared payload area.
    pub fn shared_len(&self) -> usize {
        self.payload_area.as_ref().map_or(0, Shared::len)
    }

    /// Whether `cap` is genuine, for `file`, allows `needed` (any right when none is named) and holds at `now`.
    ///
    /// # Errors
    /// `EACCES`, or `ESTALE` when only the time has passed and the client can have a fresh one.
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
            // Any time before its end will do here: the time is checked below.
            if !secret.verify(self.bound, cap, file, Rights::default(), Timestamp(i128::MIN)) {
                return refuse(Errno::EACCES, "it was not made by this cluster for this session and user");
            }
            match self.caps.get_mut(self.next) {
                Some(oldest) => *oldest = *cap,
                None => self.caps.push(*cap),
            }
            self.next = (self.next + 1) % CAPS_KEPT;
        }
        if i128::from(cap.expires_s) * 1_000_000_000 <= now.0 {
            return refuse(Errno::ESTALE, "it has expired");
        }
        Ok(())
    }
}
