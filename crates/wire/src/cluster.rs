//! Who the servers are and where the targets lie: what a client must know before it can ask anything.

use weft_core::{Candidate, ServerId, TargetId};
use weft_env::Address;

/// The servers and targets of one cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterMap {
    /// Name, told in every greeting so that a client cannot talk to another cluster by mistake.
    pub name: String,
    /// All servers; a [`ServerId`] is an index here.
    pub servers: Vec<ServerEntry>,
    /// All targets, in ascending order of their ids.
    pub targets: Vec<TargetEntry>,
    /// The server with the metadata role.
    pub metadata: ServerId,
}

/// One server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerEntry {
    /// Its name in the cluster file.
    pub name: String,
    /// Where it listens, in the order in which a client tries: Unix sockets first, of use on its own node only.
    pub addresses: Vec<Address>,
}

/// One target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TargetEntry {
    /// Which.
    pub id: TargetId,
    /// Where.
    pub server: ServerId,
    /// Its class: `hdd`, `ssd`, `nvme` or any other name.
    pub class: String,
}

impl ClusterMap {
    /// The server that has `target`.
    pub fn server_of(&self, target: TargetId) -> Option<ServerId> {
        let at = self.targets.binary_search_by_key(&target, |entry| entry.id).ok()?;
        Some(self.targets[at].server)
    }

    /// All targets, as layouts are chosen from them.
    pub fn candidates(&self) -> Vec<Candidate<'_>> {
        let all = self.targets.iter();
        all.map(|entry| Candidate { target: entry.id, server: entry.server, class: &entry.class }).collect()
    }

    /// The entry of `server`.
    ///
    /// # Panics
    /// When there is no such server: ids come from this map.
    pub fn server(&self, server: ServerId) -> &ServerEntry {
        &self.servers[server.0 as usize]
    }
}
