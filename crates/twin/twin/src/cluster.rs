//! Machines, disks, servers and clients of a simulated cluster.

use crate::device;
use crate::outcome::{DeviceOutcome, DeviceRole, RunError};
use crate::spec::{ClusterSpec, Payload, ServerSpec, SpecError, TargetSpec};
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::Arc;
use weft_client::{Checksums, Client, ClientOptions, Credentials, Key};
use weft_core::{
    ByteLen, CompressionSetting, FileOffset, LocalOffset, Nanos, ServerId, SplitPolicy, TargetId,
};
use weft_env::sim::{Control, DiskFaults, SimEnv};
use weft_env::{Address, Dir, Env, File, OpenMode};
use weft_server::{
    CacheConfig, Hooks, IbridgeConfig, Join, Limits, Server, ServerConfig, ServerHandle, TargetConfig,
    metadata,
};
use weft_wire::cluster::{ClusterMap, ServerEntry, TargetEntry};
use weft_wire::hello::Security;
use weft_wire::{ClusterSecret, meta};
use weft_workload::Size;

/// User id of all processes of a simulated cluster.
const USER: u32 = 1000;
const PORT: u16 = 4000;
const METADATA_MOUNT: &str = "/meta";

/// A simulated cluster. Machines are numbered from 0: first the servers, then the compute nodes.
pub struct Cluster {
    spec: ClusterSpec,
    control: Control,
    map: Arc<ClusterMap>,
    secret: ClusterSecret,
    servers: Vec<SimEnv>,
    nodes: Vec<SimEnv>,
    disks: Vec<Disk>,
    credentials: Credentials,
    /// Compression that clients request for new files.
    compression: Option<CompressionSetting>,
}

/// A disk and its use.
struct Disk {
    server: u32,
    mount: PathBuf,
    role: DeviceRole,
    target: Option<TargetId>,
    class: String,
    profile: String,
}

impl Cluster {
    /// Builds the machines of a cluster with `nodes` compute nodes in the world of `control`. No server runs yet.
    ///
    /// # Errors
    /// Fails if the description is invalid.
    pub fn build(control: &Control, spec: &ClusterSpec, nodes: u32) -> Result<Self, SpecError> {
        spec.check()?;
        control.set_network(match &spec.network_figures {
            Some(figures) => figures.build(),
            None => device::network(&spec.network)?,
        });
        control.set_coding(spec.compression.coding());
        let data: Vec<&ServerSpec> = spec.data_servers().collect();
        let metadata = spec.metadata.server.unwrap_or(data.len() as u32);
        let count = (data.len() as u32).max(metadata + 1);
        let secret = ClusterSecret::new(&[7; 32]);
        // Experiments also flush and measure targets, which needs an administrator's key.
        let key = Key::Issued(Box::new(secret.own_administrator_key().into()));
        let server_name = |id: u32| format!("s{id}");
        let mut cluster = Self {
            spec: spec.clone(),
            control: control.clone(),
            map: Arc::new(ClusterMap {
                domains: Vec::new(),
                name: "twin".into(),
                version: 0,
                servers: (0..count)
                    .map(|id| ServerEntry {
                        name: server_name(id),
                        addresses: vec![Address::Tcp(server_name(id), PORT)],
                    })
                    .collect(),
                targets: Vec::new(),
                metadata: ServerId(metadata),
            }),
            secret,
            servers: (0..count).map(|id| control.add_machine(&server_name(id))).collect(),
            nodes: (0..nodes).map(|id| control.add_machine(&format!("n{id}"))).collect(),
            disks: Vec::new(),
            credentials: Credentials::user(USER, USER, vec![]).with_key(key),
            compression: Some(spec.compression.setting()?).filter(|it| *it != CompressionSetting::Off),
        };
        for (server, group) in (0..).zip(&data) {
            cluster.add_targets(server, group)?;
        }
        if let Some(profile) = &spec.metadata.profile {
            let model = device::disk(&spec.profiles, profile, spec.seed)?;
            control.add_disk(&cluster.servers[metadata as usize], METADATA_MOUNT.as_ref(), model);
            cluster.disks.push(Disk {
                server: metadata,
                mount: METADATA_MOUNT.into(),
                role: DeviceRole::Metadata,
                target: None,
                class: "metadata".into(),
                profile: profile.clone(),
            });
        }
        Ok(cluster)
    }

    fn add_targets(&mut self, server: u32, group: &ServerSpec) -> Result<(), SpecError> {
        for target in &group.targets {
            let id = TargetId(self.map.targets.len() as u32);
            let mount = PathBuf::from(format!("/t{}", id.0));
            let env = &self.servers[server as usize];
            let seed = self.spec.disk_seed(id);
            let model = device::disk(&self.spec.profiles, &target.profile, seed)?;
            self.control.add_disk(env, &mount, model);
            let faults = DiskFaults { capacity_bytes: target.capacity.0, ..DiskFaults::default() };
            self.control.set_disk_faults(env, &mount, faults);
            let maps = [weft_store::compressed::MAP_SUFFIX, weft_store::compressed::NEW_SUFFIX];
            self.control.count_payload(env, &mount, weft_store::datafile::OBJECTS, &maps);
            if self.spec.payload == Payload::Lengths {
                self.control.keep_lengths(env, &mount, weft_store::datafile::OBJECTS, &maps);
            }
            let class = target.class.clone();
            Arc::make_mut(&mut self.map).targets.push(TargetEntry {
                id,
                server: ServerId(server),
                class: class.clone(),
            });
            let profile = target.profile.clone();
            let role = DeviceRole::Target;
            self.disks.push(Disk { server, mount, role, target: Some(id), class, profile });
            if let Some(profile) = target.ssd_profile() {
                self.add_log(server, id, profile, seed)?;
            }
        }
        Ok(())
    }

    /// Adds the SSD beside a target's disk.
    fn add_log(&mut self, server: u32, id: TargetId, profile: &str, seed: u64) -> Result<(), SpecError> {
        let mount = PathBuf::from(format!("/l{}", id.0));
        let env = &self.servers[server as usize];
        let model = device::disk(&self.spec.profiles, profile, seed.rotate_left(1))?;
        self.control.add_disk(env, &mount, model);
        self.control.count_payload(env, &mount, weft_store::fragments::SEGMENTS, &[]);
        if self.spec.payload == Payload::Lengths {
            self.control.keep_lengths(env, &mount, weft_store::fragments::SEGMENTS, &[]);
        }
        let (class, profile) = ("ibridge".to_owned(), profile.to_owned());
        self.disks.push(Disk { server, mount, role: DeviceRole::Log, target: Some(id), class, profile });
        Ok(())
    }

    /// Whether any target has an SSD beside its disk.
    pub(crate) fn has_logs(&self) -> bool {
        self.disks.iter().any(|disk| disk.role == DeviceRole::Log)
    }

    /// Machines of the servers, by server number.
    pub fn servers(&self) -> &[SimEnv] {
        &self.servers
    }

    /// Machines of the compute nodes.
    pub fn nodes(&self) -> &[SimEnv] {
        &self.nodes
    }

    /// The cluster map: servers, targets and metadata server.
    pub fn map(&self) -> &ClusterMap {
        &self.map
    }

    /// Creates the directories of all servers and starts the servers.
    ///
    /// # Errors
    /// Fails if a server does not start.
    pub async fn start(&self) -> Result<Vec<ServerHandle<SimEnv>>, RunError> {
        let mut handles = Vec::with_capacity(self.servers.len());
        for disk in &self.disks {
            self.make_folder(disk, disk.role.folder()).await?;
        }
        if self.spec.metadata.profile.is_none() {
            let metadata = self.map.metadata.0;
            let first = self.disks.iter().find(|disk| disk.server == metadata).expect("it has a target");
            self.make_folder(first, "database").await?;
        }
        for (id, env) in (0..).zip(&self.servers) {
            handles.push(self.start_server(id, env).await?);
        }
        self.create_placeholders().await?;
        Ok(handles)
    }

    /// Creates a placeholder file on each disk whose SSD is switched off.
    ///
    /// With an SSD, the server keeps a small note on the disk. Without an equally large file in its place, datafiles
    /// would lie on other tracks, and the disk's speed would differ by some per cent for that reason alone.
    async fn create_placeholders(&self) -> Result<(), RunError> {
        for (server, group) in (0..).zip(self.spec.data_servers()) {
            let disks = self.disks.iter().filter(|disk| disk.server == server && disk.target.is_some());
            let targets = disks.filter(|disk| disk.role == DeviceRole::Target);
            for (spec, disk) in group.targets.iter().zip(targets) {
                let has_section = spec.ibridge.is_some() || spec.cache.is_some();
                if has_section && spec.ssd_profile().is_none() {
                    let made = async {
                        let root = self.servers[server as usize].dir(&disk.mount).await?;
                        let file = root.open("stand-in", OpenMode::CREATE).await?;
                        file.write_at(&[IoSlice::new(b"beside")], LocalOffset(0)).await?;
                        file.sync().await
                    };
                    made.await.map_err(|error| RunError::Server { server, why: error.to_string() })?;
                }
            }
        }
        Ok(())
    }

    async fn make_folder(&self, disk: &Disk, folder: &str) -> Result<(), RunError> {
        let made = async {
            let root = self.servers[disk.server as usize].dir(&disk.mount).await?;
            root.make_dir(folder).await?;
            root.sync("").await
        };
        let server = disk.server;
        made.await.map_err(|error| RunError::Server { server, why: error.to_string() })
    }

    /// Starts server `id` in process `env` of its machine, initially or after a crash.
    ///
    /// # Errors
    /// Fails if the server does not start.
    pub async fn start_server(&self, id: u32, env: &SimEnv) -> Result<ServerHandle<SimEnv>, RunError> {
        let config = self.server_config(id);
        let started = Server::start(env.clone(), config).await;
        started.map_err(|error| RunError::Server { server: id, why: error.to_string() })
    }

    /// Returns the configuration of server `id`.
    pub fn server_config(&self, id: u32) -> ServerConfig {
        let group = self.spec.data_servers().nth(id as usize);
        let targets = self.disks.iter().filter(|disk| disk.server == id && disk.role == DeviceRole::Target);
        let targets = targets.filter_map(|disk| Some((disk, disk.target?)));
        let of_group = group.iter().flat_map(|group| &group.targets);
        let targets = of_group.zip(targets).map(|(spec, (disk, id))| TargetConfig {
            id,
            settings: weft_core::TargetSettings::default(),
            class: spec.class.clone(),
            path: disk.mount.join("target"),
            module: spec.module,
            queue_depth: spec.queue_depth,
            leases: true,
            integrity: weft_core::Integrity::Off,
            emulate: None,
            ibridge: self.ibridge_config(spec, id),
            cache: self.cache_config(spec, id),
        });
        let limits = Limits { connections_max: u32::MAX, greetings_max: u32::MAX, ..Limits::default() };
        ServerConfig {
            server: ServerId(id),
            name: self.map.servers[id as usize].name.clone(),
            cluster: self.map.name.clone(),
            addresses: self.map.servers[id as usize].addresses.clone(),
            secret: self.secret.clone(),
            targets: targets.collect(),
            metadata: (self.map.metadata == ServerId(id)).then(|| self.metadata_config()),
            metadata_server: Some(self.map.server(self.map.metadata).clone()),
            limits: match group {
                None => limits,
                Some(group) => Limits {
                    payload_memory_max: ByteLen(group.payload_memory.0),
                    open_datafiles_max: group.open_datafiles as usize,
                    ..limits
                },
            },
            security: Security::Mac,
            idle_exit: None,
            levels: weft_wire::Levels::KNOWN,
            sample: None,
            registers: false,
            join: Join::No,
            hooks: Hooks { uid: USER, ..Hooks::none() },
        }
    }

    fn ibridge_config(&self, spec: &TargetSpec, id: TargetId) -> Option<IbridgeConfig> {
        let curve = device::curve(&self.spec.profiles, &spec.profile);
        Some(spec.ibridge_in_use()?.config(self.log_path(id)?, curve))
    }

    fn cache_config(&self, spec: &TargetSpec, id: TargetId) -> Option<CacheConfig> {
        let curve = device::curve(&self.spec.profiles, &spec.profile);
        Some(spec.cache.as_ref()?.config(self.log_path(id)?, curve, spec.ibridge_in_use()))
    }

    /// Returns the directory of the log on the SSD beside a target; `None` without an SSD.
    fn log_path(&self, id: TargetId) -> Option<PathBuf> {
        let log = self.disks.iter().find(|disk| disk.role == DeviceRole::Log && disk.target == Some(id))?;
        Some(log.mount.join(DeviceRole::Log.folder()))
    }

    fn metadata_config(&self) -> metadata::Config {
        let path = match &self.spec.metadata.profile {
            Some(_) => PathBuf::from(METADATA_MOUNT),
            None => {
                let first = self.disks.iter().find(|disk| disk.server == self.map.metadata.0);
                first.expect("it has a target").mount.clone()
            }
        };
        let mut config = metadata::Config::new(path.join("database"), (*self.map).clone());
        config.options.placement.stripe_size = ByteLen(self.spec.layout.stripe_size.0);
        config.options.without_registry = true;
        config
    }

    /// Creates a client in process `env`.
    pub fn client(&self, env: SimEnv) -> Client<SimEnv> {
        let client = &self.spec.client;
        let options = ClientOptions {
            request_timeout: Nanos::from_s(client.request_timeout_s),
            split: match client.fragments_below.0 {
                0 => SplitPolicy::Off,
                below => SplitPolicy::Below(ByteLen(below)),
            },
            checksums: if client.checksums { Checksums::Auto } else { Checksums::Off },
            ..ClientOptions::default()
        };
        Client::new(env, Arc::clone(&self.map), options, self.credentials.clone())
    }

    /// Creates a new client process on the node of `rank`.
    pub fn rank(&self, rank: u32) -> SimEnv {
        let node = &self.nodes[(rank / self.spec.processes_per_node) as usize];
        self.control.process(node, "rank", USER, USER)
    }

    /// Returns the layout request for new files.
    pub fn layout(&self) -> meta::LayoutSpec {
        let layout = &self.spec.layout;
        let strips = |sizes: &BTreeMap<String, Size>| -> Vec<_> {
            let strip = |target: &TargetEntry| {
                let size = sizes.get(&target.class).filter(|size| size.0 > 0)?;
                Some((target.id, ByteLen(size.0)))
            };
            self.map.targets.iter().filter_map(strip).collect()
        };
        meta::LayoutSpec {
            stripe_size: Some(ByteLen(layout.stripe_size.0)),
            stripe_count: layout.stripe_count,
            first: None,
            class: layout.class.clone(),
            strips: (!layout.stripe_sizes.is_empty()).then(|| strips(&layout.stripe_sizes)),
            tails: layout
                .tail
                .iter()
                .chain(&layout.tails)
                .map(|tail| (FileOffset(tail.from.0), strips(&tail.stripe_sizes)))
                .collect(),
            by_class: None,
            compression: self.compression,
        }
    }

    /// Drops datafiles from the servers' page caches, as the papers do before each run. The metadata database stays in
    /// memory, as it does while a metadata server runs.
    pub fn forget(&self) {
        for disk in self.disks.iter().filter(|disk| disk.target.is_some()) {
            self.control.forget(&self.servers[disk.server as usize], &disk.mount);
        }
    }

    /// Returns the counters of all disks since the start of the simulation.
    pub fn devices(&self) -> Vec<DeviceOutcome> {
        let outcome = |disk: &Disk| DeviceOutcome {
            server: disk.server,
            role: disk.role,
            target: disk.target.map(|target| target.0),
            class: disk.class.clone(),
            profile: disk.profile.clone(),
            counters: self.control.disk_counters(&self.servers[disk.server as usize], &disk.mount),
        };
        self.disks.iter().map(outcome).collect()
    }
}
