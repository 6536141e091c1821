//! Views of the cluster file for other crates.

use crate::model::{Cluster, LogLevel, Module, Server, Target};
use std::collections::BTreeMap;
use std::path::PathBuf;
use weft_core::{ByteLen, Integrity, Reserve, ServerId, TargetId, TargetSettings};
use weft_env::Address;
use weft_wire::ClusterMap;
use weft_wire::cluster::{ServerEntry, TargetEntry};

impl Server {
    /// A server of which nothing but the name is known.
    fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            addresses: Vec::new(),
            host: None,
            metadata: None,
            targets: Vec::new(),
            log: None,
            log_level: LogLevel::Info,
            audit: None,
            metrics: None,
            connections_max: 0,
            greetings_max: 0,
            payload_memory: ByteLen(0),
            sample: None,
        }
    }
}

impl Target {
    /// A target of which nothing but the number is known.
    fn numbered(id: TargetId) -> Self {
        Self {
            id,
            class: String::new(),
            path: PathBuf::new(),
            module: Module::Buffered,
            queue_depth: 1,
            leases: true,
            integrity: Integrity::Off,
            compression: None,
            emulate: None,
            capacity: None,
            reserve: Reserve::default(),
            ibridge: None,
            cache: None,
        }
    }

    /// Returns the settings that the metadata server needs.
    pub fn settings(&self) -> TargetSettings {
        TargetSettings {
            capacity: self.capacity,
            reserve: (self.module != Module::Null).then_some(self.reserve),
            compression: self.compression,
        }
    }
}

impl Cluster {
    /// Takes servers, addresses and targets from the map of the metadata server, which counts more than the cluster file.
    /// Their other settings remain. The place of each server is its number afterwards; places of servers that
    /// were removed have no name.
    pub fn complete(&mut self, map: &ClusterMap) {
        let mut own = std::mem::take(&mut self.servers);
        let targets = own.iter_mut().flat_map(|server| std::mem::take(&mut server.targets));
        let mut targets: BTreeMap<TargetId, Target> = targets.map(|target| (target.id, target)).collect();
        let server = |entry: &ServerEntry| {
            let at = own.iter().position(|server| server.name == entry.name);
            let known = at.map_or_else(|| Server::named(&entry.name), |at| own.swap_remove(at));
            Server { addresses: entry.addresses.clone(), ..known }
        };
        self.servers = map.servers.iter().map(server).collect();
        for entry in &map.targets {
            let known = targets.remove(&entry.id).unwrap_or_else(|| Target::numbered(entry.id));
            if let Some(server) = self.servers.get_mut(entry.server.0 as usize) {
                server.targets.push(Target { class: entry.class.clone(), ..known });
            }
        }
    }

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
            domains: Vec::new(),
            name: self.name.clone(),
            version: 0,
            servers: servers.collect(),
            targets,
            metadata: metadata.expect("a loaded cluster has one metadata server").0,
        }
    }

    /// Returns the capacities of the targets that have a limit.
    pub fn capacities(&self) -> BTreeMap<TargetId, ByteLen> {
        self.settings()
            .into_iter()
            .filter_map(|(target, settings)| Some((target, settings.capacity?)))
            .collect()
    }

    /// Returns the settings of all targets that the metadata server needs.
    pub fn settings(&self) -> BTreeMap<TargetId, TargetSettings> {
        let targets = self.servers.iter().flat_map(|server| &server.targets);
        targets.map(|target| (target.id, target.settings())).collect()
    }

    /// Returns the servers with their ids.
    pub fn numbered(&self) -> impl Iterator<Item = (ServerId, &Server)> {
        let all = self.servers.iter().enumerate().map(|(index, server)| (ServerId(index as _), server));
        all.filter(|(_, server)| !server.name.is_empty())
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_map_of_the_metadata_server_counts_more_than_the_file() {
        let text = crate::EXAMPLE;
        let mut cluster = Cluster::parse(Path::new("cluster.toml"), text).expect("the example");
        let (before, kept) = (cluster.map(), cluster.servers[0].clone());
        let mut map = cluster.map();
        assert!(map.servers.len() > 1 && !map.targets.is_empty());
        // The first server moves, the second one was removed, and another one joined with a target.
        let (moved, new) = (Address::Tcp("elsewhere".into(), 1), Address::Tcp("new".into(), 2));
        map.servers[0].addresses = vec![moved.clone()];
        map.servers[1] = ServerEntry::default();
        map.targets.retain(|entry| entry.server != ServerId(1));
        let last = ServerId(map.servers.len() as u32);
        map.servers.push(ServerEntry { name: "joined".into(), addresses: vec![new] });
        map.targets.push(TargetEntry { id: TargetId(99), server: last, class: "tape".into() });
        cluster.complete(&map);
        assert_eq!(cluster.map(), map);
        assert_eq!(cluster.servers[0].addresses, [moved]);
        assert_eq!(cluster.servers[0].targets, kept.targets, "what only the file says remains");
        assert_eq!(cluster.server("joined").map(|(number, _)| number), Some(last));
        assert_eq!(cluster.server(&before.servers[1].name), None);
        assert!(cluster.numbered().all(|(number, _)| number != ServerId(1)));
    }
}
