//! Real servers in this process, over real sockets and files, in real time.

use super::device::SharedDisk;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use weft_client::{Client, ClientOptions, ClusterMap, Credentials, LayoutSpec, Transport};
use weft_core::{ByteLen, Nanos, ServerId, TargetId};
use weft_env::Address;
use weft_env::device::DeviceModel;
use weft_env::real::{RealEnv, block_on};
use weft_models::Profile;
use weft_server::{Hooks, Join, Limits, Server, ServerConfig, ServerHandle, TargetConfig, metadata};
use weft_store::target::Module;
use weft_twin::ClusterSpec;
use weft_wire::ClusterSecret;
use weft_wire::cluster::{ServerEntry, TargetEntry};

/// Stripe size in bytes.
pub const STRIPE: u64 = 64 << 10;
/// Deadline longer than any request takes.
const DEADLINE: Nanos = Nanos::from_s(120);

/// Emulated disks.
#[derive(Clone, Copy)]
pub struct Disks<'a> {
    /// Profile of all disks.
    pub profile: &'a Profile,
    /// The simulated cluster with the same disks. Their initial angles are equal.
    pub twin: &'a ClusterSpec,
}

/// A cluster in this process.
pub struct RealCluster {
    env: RealEnv,
    map: ClusterMap,
    servers: Vec<ServerHandle<RealEnv>>,
    disks: Vec<SharedDisk>,
    ids: (u32, u32),
    folder: tempfile::TempDir,
}

impl RealCluster {
    /// Starts servers with one target each. The first one also serves metadata. With `disks`, targets and metadata are
    /// emulated.
    pub fn start(below: &Path, servers: u32, disks: Option<Disks<'_>>) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("weft-fidelity-").tempdir_in(below)?;
        let owner = std::fs::metadata(folder.path())?;
        let entry = |id: u32| ServerEntry {
            name: format!("s{id}"),
            addresses: vec![Address::Unix(folder.path().join(format!("s{id}")))],
        };
        let target = |id: u32| TargetEntry { id: TargetId(id), server: ServerId(id), class: "hdd".into() };
        let map = ClusterMap {
            domains: Vec::new(),
            name: "fidelity".into(),
            version: 0,
            servers: (0..servers).map(entry).collect(),
            targets: (0..servers).map(target).collect(),
            metadata: ServerId(0),
        };
        let ids = (owner.uid(), owner.gid());
        let mut cluster =
            Self { env: RealEnv::new(), map, servers: Vec::new(), disks: Vec::new(), ids, folder };
        for id in 0..servers {
            let config = cluster.config(id, disks)?;
            let started = block_on(Server::start(cluster.env, config));
            cluster.servers.push(started.map_err(|error| io::Error::other(error.to_string()))?);
        }
        Ok(cluster)
    }

    fn config(&mut self, id: u32, disks: Option<Disks<'_>>) -> io::Result<ServerConfig> {
        let target = self.folder.path().join(format!("t{id}"));
        std::fs::create_dir(&target)?;
        let emulate = disks.map(|disks| {
            let disk = SharedDisk::new(disks.profile, disks.twin.disk_seed(TargetId(id)));
            self.disks.push(disk.clone());
            disk.emulation(disks.profile)
        });
        let metadata = match id {
            0 => {
                let path = self.folder.path().join("metadata");
                std::fs::create_dir(&path)?;
                let mut config = metadata::Config::new(path, self.map.clone());
                config.options.emulate = disks
                    .map(|disks| SharedDisk::new(disks.profile, disks.twin.seed).emulation(disks.profile));
                Some(config)
            }
            _ => None,
        };
        let log = Arc::new(|line: &str| eprintln!("weft: fidelity: {line}"));
        Ok(ServerConfig {
            levels: weft_wire::Levels::KNOWN,
            server: ServerId(id),
            name: self.map.servers[id as usize].name.clone(),
            cluster: self.map.name.clone(),
            addresses: self.map.servers[id as usize].addresses.clone(),
            secret: ClusterSecret::new(&[5; 32]),
            targets: vec![TargetConfig {
                id: TargetId(id),
                settings: weft_core::TargetSettings::default(),
                class: "hdd".into(),
                path: target,
                module: Module::Buffered,
                queue_depth: 64,
                leases: false,
                integrity: weft_core::Integrity::Off,
                emulate,
                ibridge: None,
                cache: None,
            }],
            metadata,
            metadata_server: Some(self.map.server(self.map.metadata).clone()),
            limits: Limits::default(),
            security: weft_wire::hello::Security::Mac,
            idle_exit: None,
            sample: None,
            registers: false,
            join: Join::Format,
            hooks: Hooks { log, uid: self.ids.0, ..Hooks::none() },
        })
    }

    /// Creates a client.
    pub fn client(&self) -> Client<RealEnv> {
        let options = ClientOptions {
            transport: Transport::Socket,
            connect_timeout: DEADLINE,
            request_timeout: DEADLINE,
            retry_for: Nanos(0),
            ..ClientOptions::default()
        };
        Client::new(self.env, self.map.clone(), options, Credentials::user(self.ids.0, self.ids.1, vec![]))
    }

    /// Returns a layout over all targets in order.
    pub fn layout(&self) -> LayoutSpec {
        let strips = self.map.targets.iter().map(|target| (target.id, ByteLen(STRIPE)));
        LayoutSpec { strips: Some(strips.collect()), ..LayoutSpec::default() }
    }

    /// Empties the page caches of the emulated disks.
    pub fn forget(&mut self) {
        self.disks.iter_mut().for_each(DeviceModel::forget);
    }

    /// Stops all servers and removes all files.
    pub fn stop(self) {
        for server in self.servers {
            block_on(server.stop());
        }
    }
}
