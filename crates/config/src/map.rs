//! From the cluster file to what the other rooms ask for.

use crate::model::{Cluster, Module, Server};
use std::collections::BTreeMap;
use weft_core::{ByteLen, Reserve, ServerId, TargetId};
use weft_env::Address;
use weft_wire::ClusterMap;
use weft_wire::cluster::{ServerEntry, TargetEntry};

impl Cluster {
    /// Who the servers are and where the targets lie.
    pub fn map(&self) -> ClusterMap {
        let servers =
            self.servers.iter().map(|s| ServerEntry { name: s.name.clone(), addresses: s.addresses.clone() });
        let mut targets: Vec<_> = self
            .numbered()
            .flat_map(|(server, s)| {
                s.targets.iter().map(move |t| TargetEntry { id: t.id, server, class: t.class.clone() })
            })
            .collect();
        targets.sort_by_key(|entry| entry.id);
        let metadata = self.numbered().find(|(_, s)| s.metadata.is_some());
        ClusterMap {
            name: self.name.clone(),
            servers: servers.collect(),
            targets,
            metadata: metadata.expect("a loaded cluster has one metadata server").0,
        }
    }

    /// Room of the targets that have a limit.
    pub fn rooms(&self) -> BTreeMap<TargetId, ByteLen> {
        let targets = self.servers.iter().flat_map(|server| &server.targets);
        targets.filter_map(|target| Some((target.id, target.room?))).collect()
    }

    /// What new files leave free, of targets that can get full.
    pub fn reserves(&self) -> BTreeMap<TargetId, Reserve> {
        let targets = self.servers.iter().flat_map(|server| &server.targets);
        let targets = targets.filter(|target| target.module != Module::Null);
        targets.map(|target| (target.id, target.reserve)).collect()
    }

    /// The servers with their ids.
    pub fn numbered(&self) -> impl Iterator<Item = (ServerId, &Server)> {
        self.servers.iter().enumerate().map(|(index, server)| (ServerId(index as _), server))
    }

    /// The server of that name.
    pub fn server(&self, name: &str) -> Option<(ServerId, &Server)> {
        self.numbered().find(|(_, server)| server.name == name)
    }

    /// Whether a client needs a key: whether some server can be reached over the network only.
    pub fn needs_key(&self) -> bool {
        let local = |server: &Server| server.addresses.iter().any(|a| matches!(a, Address::Unix(_)));
        !self.servers.iter().all(local)
    }
}
