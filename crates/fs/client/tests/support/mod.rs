//! A cluster of four data servers and a metadata server, and helpers for tests.
#![allow(dead_code)] // Each test program uses a part.

pub mod model;
#[path = "../../../../interfaces/cli/tests/common/skip.rs"]
pub mod skip;
pub mod world;

use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};
use weft_client::{
    Client, ClientOptions, ClusterMap, Credentials, InodePath, Key, LayoutSpec, OpenFile, OpenFlags,
    Transport,
};
use weft_core::random::SplitMix64;
use weft_core::{ByteLen, FileOffset, Nanos, Reserve, ServerId, TargetId, TargetSettings};
use weft_env::real::RealEnv;
use weft_env::{Address, Env};
use weft_server::{Hooks, Join, Limits, Server, ServerConfig, ServerHandle, TargetConfig, metadata};
use weft_store::target::Module;
use weft_wire::ClusterSecret;
use weft_wire::cluster::{ServerEntry, TargetEntry};

pub const SERVERS: u32 = 4;
/// Interval between checks of a condition that nothing signals.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
pub const KEY: [u8; 32] = [9; 32];

pub fn secret() -> ClusterSecret {
    ClusterSecret::new(&KEY)
}

pub fn ids() -> (u32, u32) {
    // SAFETY: these calls take no arguments and cannot fail.
    unsafe { (libc::getuid(), libc::getgid()) }
}

/// Configuration of a cluster, from which each server can be restarted.
pub struct Plan {
    pub map: ClusterMap,
    pub folders: Vec<PathBuf>,
    pub metadata: PathBuf,
    pub leases: bool,
    pub capability_life: Nanos,
    pub uid: u32,
    /// Capacity of the targets that have a limit.
    pub capacities: BTreeMap<TargetId, ByteLen>,
    /// Space that must stay free on targets.
    pub reserves: BTreeMap<TargetId, Reserve>,
    /// Interval at which the metadata server checks the data servers, if it does.
    pub ask_every: Option<Nanos>,
    /// Maximum size of files whose bytes are in the metadata.
    pub inline_max: ByteLen,
}

impl Plan {
    /// Plans servers at these addresses, each with a folder for its target.
    pub fn new(addresses: Vec<Address>, folders: Vec<PathBuf>, metadata: PathBuf, uid: u32) -> Self {
        let servers = addresses.into_iter().enumerate();
        let servers =
            servers.map(|(id, address)| ServerEntry { name: format!("s{id}"), addresses: vec![address] });
        let targets = (0..SERVERS).map(|id| TargetEntry {
            id: TargetId(id),
            server: ServerId(id),
            class: if id < 2 { "hdd".into() } else { "ssd".into() },
        });
        let map = ClusterMap {
            domains: Vec::new(),
            name: "test".into(),
            version: 0,
            servers: servers.collect(),
            targets: targets.collect(),
            metadata: ServerId(0),
        };
        Self {
            map,
            folders,
            metadata,
            leases: true,
            capability_life: Nanos::from_s(3600),
            uid,
            capacities: BTreeMap::new(),
            reserves: BTreeMap::new(),
            ask_every: None,
            inline_max: ByteLen(0),
        }
    }

    /// A client of this process's user.
    pub fn client(&self, env: RealEnv, options: ClientOptions) -> Client<RealEnv> {
        let (uid, gid) = ids();
        let credentials = Credentials::user(uid, gid, vec![]).with_key(Key::Cluster(Box::new(secret())));
        Client::new(env, self.map.clone(), options, credentials)
    }

    pub fn config(&self, id: u32) -> ServerConfig {
        ServerConfig {
            levels: weft_wire::Levels::KNOWN,
            server: ServerId(id),
            name: format!("s{id}"),
            cluster: self.map.name.clone(),
            addresses: self.map.servers[id as usize].addresses.clone(),
            secret: secret(),
            targets: vec![TargetConfig {
                id: TargetId(id),
                settings: weft_core::TargetSettings::default(),
                class: self.map.targets[id as usize].class.clone(),
                path: self.folders[id as usize].clone(),
                module: Module::Buffered,
                queue_depth: 16,
                leases: self.leases,
                integrity: weft_core::Integrity::Off,
                emulate: None,
                ibridge: None,
                cache: None,
            }],
            metadata: (id == 0).then(|| {
                let mut config = metadata::Config::new(self.metadata.clone(), self.map.clone());
                config.options.capability_life = self.capability_life;
                let settings = |target| TargetSettings {
                    capacity: self.capacities.get(&target).copied(),
                    reserve: self.reserves.get(&target).copied(),
                    compression: None,
                };
                let targets = self.map.targets.iter().map(|entry| entry.id);
                config.options.targets = targets.map(|target| (target, settings(target))).collect();
                config.options.poll_interval = self.ask_every;
                config.options.inline_max = self.inline_max;
                config
            }),
            metadata_server: Some(self.map.server(self.map.metadata).clone()),
            limits: Limits::default(),
            security: weft_wire::hello::Security::Mac,
            idle_exit: None,
            sample: None,
            registers: false,
            join: Join::Format,
            hooks: Hooks {
                memory: || ByteLen(1),
                log: Arc::new(|line| eprintln!("server: {line}")),
                pid: 1,
                uid: self.uid,
                is_ended: || false,
                audit: None,
            },
        }
    }
}

/// Kind of connection between clients and servers in the real world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    Unix,
    Tcp,
}

/// A cluster in this process, with real sockets and files.
pub struct RealCluster {
    pub env: RealEnv,
    pub plan: Plan,
    pub servers: Vec<Option<ServerHandle<RealEnv>>>,
    folder: tempfile::TempDir,
}

/// Returns a free port. It is below the range that the system uses for outgoing connections, so that none of them
/// takes it before the server does. Each port is returned once by this process.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = (std::process::id() % 20_000) as u16;
    loop {
        let port = 10_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

impl RealCluster {
    pub async fn start(reach: Reach) -> Self {
        Self::start_in(reach, tempfile::tempdir().expect("a folder")).await
    }

    pub async fn start_in(reach: Reach, folder: tempfile::TempDir) -> Self {
        Self::start_with(reach, folder, |_| {}).await
    }

    pub async fn start_with(reach: Reach, folder: tempfile::TempDir, change: impl FnOnce(&mut Plan)) -> Self {
        let env = RealEnv::new();
        let address = |id: u32| match reach {
            Reach::Unix => Address::Unix(folder.path().join(format!("s{id}"))),
            Reach::Tcp => Address::Tcp("127.0.0.1".into(), free_port()),
        };
        let folders: Vec<PathBuf> = (0..SERVERS).map(|id| folder.path().join(format!("t{id}"))).collect();
        let metadata = folder.path().join("meta");
        for folder in folders.iter().chain([&metadata]) {
            std::fs::create_dir(folder).expect("a folder");
        }
        let mut plan = Plan::new((0..SERVERS).map(address).collect(), folders, metadata, ids().0);
        change(&mut plan);
        let mut cluster = Self { env, plan, servers: Vec::new(), folder };
        for id in 0..SERVERS {
            let server = Server::start(env, cluster.plan.config(id)).await.expect("the server starts");
            cluster.servers.push(Some(server));
        }
        cluster
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub async fn stop_server(&mut self, id: u32) {
        self.servers[id as usize].take().expect("it runs").stop().await;
    }

    pub async fn start_server(&mut self, id: u32) {
        // The last tasks of the stopped server may still hold its database for a moment.
        let mut server = None;
        wait_until("the server starts", async || {
            let started = Server::start(self.env, self.plan.config(id)).await;
            server = Some(started.map_err(|error| error.to_string())?);
            Ok(())
        })
        .await;
        self.servers[id as usize] = server;
    }

    pub fn client(&self, options: ClientOptions) -> Client<RealEnv> {
        self.plan.client(self.env, options)
    }

    pub async fn stop(mut self) {
        for server in self.servers.drain(..).flatten() {
            server.stop().await;
            assert_eq!(server.panics(), 0);
        }
    }
}

/// Waits in real time until `condition` returns `Ok`. Panics with its last error after a minute.
pub async fn wait_until(what: &str, mut condition: impl AsyncFnMut() -> Result<(), String>) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while let Err(why) = condition().await {
        assert!(Instant::now() < deadline, "{what}: {why}");
        std::thread::park_timeout(POLL_INTERVAL);
    }
}

pub fn options(transport: Transport) -> ClientOptions {
    ClientOptions {
        transport,
        connect_timeout: Nanos::from_s(2),
        request_timeout: Nanos::from_s(10),
        retry_for: Nanos::from_s(3),
        ..ClientOptions::default()
    }
}

pub fn at(path: &str) -> InodePath {
    InodePath::from_root(path, true)
}

pub const READ_WRITE: OpenFlags = OpenFlags { write: true, create: true, ..OpenFlags::READ };

pub async fn open<E: Env>(client: &Client<E>, path: &str, stripe: u64) -> OpenFile<E> {
    let spec = LayoutSpec { stripe_size: Some(ByteLen(stripe)), ..LayoutSpec::default() };
    client.open(&at(path), READ_WRITE, 0o644, &spec).await.expect("opens")
}

pub async fn write<E: Env>(file: &OpenFile<E>, offset: u64, bytes: &[u8]) {
    let wrote = file.write_at(&[IoSlice::new(bytes)], FileOffset(offset)).await.expect("writes");
    assert_eq!(wrote, bytes.len());
}

pub async fn read<E: Env>(file: &OpenFile<E>, offset: u64, len: usize) -> Vec<u8> {
    // Bytes that a read leaves unchanged must not look like data.
    let mut buf = vec![0xee; len];
    let got = file.read_at(&mut [IoSliceMut::new(&mut buf)], FileOffset(offset)).await.expect("reads");
    buf.truncate(got);
    buf
}

/// Bytes that depend on their position and on `salt`.
pub fn pattern(len: usize, salt: u64) -> Vec<u8> {
    let mut words = SplitMix64::new(salt);
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        out.extend_from_slice(&words.next_u64().to_le_bytes());
    }
    out.truncate(len);
    out
}
