//! Addresses of servers and locations of targets, which a client must know before its first request.

use weft_core::{Candidate, ServerId, TargetId};
use weft_env::Address;

/// Servers and targets of one cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterMap {
    /// Name, sent in every greeting so that a client cannot use another cluster by mistake.
    pub name: String,
    /// All servers; a [`ServerId`] is an index into this list.
    pub servers: Vec<ServerEntry>,
    /// All targets, in ascending order of their ids.
    pub targets: Vec<TargetEntry>,
    /// Server with the metadata role.
    pub metadata: ServerId,
}

/// One server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerEntry {
    /// Name in the cluster file.
    pub name: String,
    /// Addresses in the order in which a client tries them. Unix sockets, which work only on the server's own node,
    /// come first.
    pub addresses: Vec<Address>,
}

/// One target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TargetEntry {
    /// Number of the target.
    pub id: TargetId,
    /// Server that has the target.
    pub server: ServerId,
    /// Class: `hdd`, `ssd`, `nvme` or any other name.
    pub class: String,
}

impl ClusterMap {
    /// Returns the server that has `target`.
    pub fn server_of(&self, target: TargetId) -> Option<ServerId> {
        let at = self.targets.binary_search_by_key(&target, |entry| entry.id).ok()?;
        Some(self.targets[at].server)
    }

    /// Returns all targets as candidates for layouts.
    pub fn candidates(&self) -> Vec<Candidate<'_>> {
        let all = self.targets.iter();
        all.map(|entry| Candidate { target: entry.id, server: entry.server, class: &entry.class }).collect()
    }

    /// Returns the entry of `server`.
    ///
    /// # Panics
    /// If there is no such server: ids come from this map.
    pub fn server(&self, server: ServerId) -> &ServerEntry {
        &self.servers[server.0 as usize]
    }
}
