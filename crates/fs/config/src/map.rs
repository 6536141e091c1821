//! Views of the cluster file for other crates.

use crate::model::{Cluster, Module, Server};
use std::collections::BTreeMap;
use weft_core::{ByteLen, CompressionSetting, Reserve, ServerId, TargetId};
use weft_env::Address;
use weft_wire::ClusterMap;
use weft_wire::cluster::{ServerEntry, TargetEntry};

impl Cluster {
    /// Returns the servers and the locations of targets.
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

    /// Returns the capacities of the targets that have a limit.
    pub fn capacities(&self) -> BTreeMap<TargetId, ByteLen> {
        let targets = self.servers.iter().flat_map(|server| &server.targets);
        targets.filter_map(|target| Some((target.id, target.capacity?))).collect()
    }

    /// Returns the space that new files leave free on targets that can become full.
    pub fn reserves(&self) -> BTreeMap<TargetId, Reserve> {
        let targets = self.servers.iter().flat_map(|server| &server.targets);
        let targets = targets.filter(|target| target.module != Module::Null);
        targets.map(|target| (target.id, target.reserve)).collect()
    }

    /// Returns the compression settings of targets.
    pub fn compressions(&self) -> BTreeMap<TargetId, CompressionSetting> {
        let targets = self.servers.iter().flat_map(|server| &server.targets);
        targets.filter_map(|target| Some((target.id, target.compression?))).collect()
    }

    /// Returns the servers with their ids.
    pub fn numbered(&self) -> impl Iterator<Item = (ServerId, &Server)> {
        self.servers.iter().enumerate().map(|(index, server)| (ServerId(index as _), server))
    }

    /// Returns the server with this name.
    pub fn server(&self, name: &str) -> Option<(ServerId, &Server)> {
        self.numbered().find(|(_, server)| server.name == name)
    }

    /// Whether a client needs a key, because some server is reachable only over the network.
    pub fn needs_key(&self) -> bool {
        let local = |server: &Server| server.addresses.iter().any(|a| matches!(a, Address::Unix(_)));
        !self.servers.iter().all(local)
    }
}
