//! Two data servers and a metadata service, in both worlds.

use super::*;
use crate::config::{Hooks, IbridgeConfig, Join, Limits, TargetConfig};
use crate::metadata;
use crate::server::{Server, ServerHandle};
use std::path::{Path, PathBuf};
use weft_core::ibridge::{Arrival, DiskRequest, ServiceCurve};
use weft_core::{ByteLen, LocalOffset, ServerId};
use weft_env::real::{RealEnv, block_on};
use weft_env::sim::{Sim, SimEnv};
use weft_env::{Address, Dir};
use weft_store::target::Module;
use weft_wire::cluster::TargetEntry;
use weft_wire::{ClusterMap, ClusterSecret, Errno};

const EXCHANGE: Nanos = Nanos::from_ms(20);
const STALE: Nanos = Nanos::from_ms(400);
/// Time limit of each wait in a test.
const WAIT_MAX: Nanos = Nanos::from_s(20);

type Lines = Arc<Mutex<Vec<String>>>;

/// Server 0 has the metadata; servers 1 and 2 have a disk with an SSD tier each.
struct TestCluster<E: Env> {
    worlds: [E; 3],
    folders: [PathBuf; 3],
    map: ClusterMap,
    lines: Lines,
}

fn curve() -> ServiceCurve {
    let seek = vec![(ByteLen(0), Nanos(0))];
    ServiceCurve::new(seek, Nanos::from_ms(4), 100_000_000, 100_000_000, ByteLen(0)).expect("a disk")
}

impl<E: Env> TestCluster<E> {
    fn new(worlds: [E; 3], folders: [PathBuf; 3], addresses: [Address; 3]) -> Self {
        let servers = addresses.into_iter().enumerate();
        let target = |id| TargetEntry { id: TargetId(id), server: ServerId(id), class: "hdd".into() };
        let map = ClusterMap {
            domains: Vec::new(),
            name: "test".into(),
            version: 0,
            servers: servers
                .map(|(id, address)| ServerEntry { name: format!("s{id}"), addresses: vec![address] })
                .collect(),
            targets: vec![target(1), target(2)],
            metadata: ServerId(0),
        };
        Self { worlds, folders, map, lines: Lines::default() }
    }

    fn config(&self, id: u32) -> ServerConfig {
        let folder = &self.folders[id as usize];
        let mut ibridge = IbridgeConfig::new(folder.join("log"), ByteLen::from_mib(32), curve());
        (ibridge.exchange, ibridge.stale) = (EXCHANGE, STALE);
        let target = TargetConfig {
            id: TargetId(id),
            settings: weft_core::TargetSettings::default(),
            class: "hdd".into(),
            path: folder.join("target"),
            module: Module::Buffered,
            queue_depth: 4,
            leases: false,
            integrity: weft_core::Integrity::Off,
            emulate: None,
            ibridge: Some(ibridge),
            cache: None,
        };
        let lines = Arc::clone(&self.lines);
        ServerConfig {
            server: ServerId(id),
            name: format!("s{id}"),
            cluster: self.map.name.clone(),
            addresses: self.map.server(ServerId(id)).addresses.clone(),
            secret: ClusterSecret::new(&[7; 32]),
            targets: if id == 0 { vec![] } else { vec![target] },
            metadata: (id == 0).then(|| {
                let mut config = metadata::Config::new(folder.join("target"), self.map.clone());
                config.options.without_registry = true;
                config
            }),
            metadata_server: Some(self.map.server(ServerId(0)).clone()),
            limits: Limits::default(),
            security: weft_wire::hello::Security::Mac,
            idle_exit: None,
            levels: weft_wire::Levels::KNOWN,
            sample: None,
            registers: false,
            join: Join::No,
            hooks: Hooks { log: Arc::new(move |line| lines.lock().push(line.to_owned())), ..Hooks::none() },
        }
    }

    async fn start(&self, id: u32) -> ServerHandle<E> {
        Server::start(self.worlds[id as usize].clone(), self.config(id)).await.expect("the server starts")
    }

    /// Simulates a piece of a larger request on a server's disk.
    fn piece(&self, handle: &ServerHandle<E>) {
        let data = handle.shared().data.as_ref().expect("a data server");
        let (_, decider) = data.averages().deciders.first_key_value().expect("a disk");
        let request = DiskRequest { file: 1, offset: LocalOffset(0), len: ByteLen(1 << 20), write: true };
        decider.lock().decide(&Arrival { request, pieces: 2, siblings: &[] }, Nanos::ZERO);
    }

    /// T of server `of` as the server of `handle` knows it.
    fn known(&self, handle: &ServerHandle<E>, of: u32) -> Option<Nanos> {
        let data = handle.shared().data.as_ref().expect("a data server");
        let (_, decider) = data.averages().deciders.first_key_value().expect("a disk");
        decider.lock().peer_averages().average(TargetId(of), handle.shared().env.now())
    }

    async fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let env = &self.worlds[0];
        let deadline = env.now().saturating_add(WAIT_MAX);
        while !is_so() {
            assert!(env.now() < deadline, "not in time: {what}");
            env.sleep(Nanos::from_ms(1)).await;
        }
    }

    async fn run(self) {
        let mut metadata = self.start(0).await;
        let (one, two) = (self.start(1).await, self.start(2).await);
        // 4 ms plus 1 ms for the transfer of 100,000 bytes, weighted 7/8.
        let request = DiskRequest { file: 1, offset: LocalOffset(0), len: ByteLen(100_000), write: true };
        let data = one.shared().data.as_ref().expect("a data server");
        data.averages().of(TargetId(1)).expect("with an SSD").lock().served_by_disk(&request);
        let busy = Some(Nanos(4_375_000));
        // There are no exchanges without requests of several pieces.
        self.worlds[0].sleep(Nanos(EXCHANGE.0 * 5)).await;
        assert_eq!((self.known(&two, 1), self.known(&one, 2)), (None, None));
        let pieces = || [&one, &two].into_iter().for_each(|server| self.piece(server));
        let learns = |server, of, what| {
            pieces();
            self.known(server, of) == what
        };
        self.until("two learns of one", || learns(&two, 1, busy)).await;
        self.until("one learns of two", || learns(&one, 2, Some(Nanos(0)))).await;
        assert_eq!(self.known(&one, 1), busy, "and it knows its own");

        metadata.stop().await;
        self.until("the report expires", || self.known(&two, 1).is_none()).await;
        metadata = self.start(0).await;
        self.until("two learns of one again", || learns(&two, 1, busy)).await;
        let logged = |lines: &Lines| {
            lines.lock().iter().filter(|line| line.contains("service times of other servers")).count()
        };
        assert!(
            (1..=2).contains(&logged(&self.lines)),
            "at most one message of each server: {:?}",
            self.lines.lock()
        );

        self.reports_of_servers_only().await;
        // The exchange also stops while the metadata server does not answer.
        metadata.stop().await;
        for handle in [one, two] {
            handle.stop().await;
            assert_eq!(handle.panics(), 0);
        }
    }

    /// Only servers of the cluster report averages, and only of known targets.
    async fn reports_of_servers_only(&self) {
        let connector = PeerConnector {
            env: self.worlds[1].clone(),
            server: ServerId(2),
            cluster: self.map.name.clone(),
            cluster_id: weft_core::ClusterId::NONE,
            secret: ClusterSecret::new(&[7; 32]),
            levels: weft_wire::Levels::KNOWN,
            timeout: TIMEOUT,
        };
        let entry = self.map.server(ServerId(0));
        let mut link = None;
        let unknown = Report { target: TargetId(3), average: Nanos(9), age: Nanos(0) };
        let known =
            exchange_once(&connector, entry, &mut link, 1, vec![unknown]).await.expect("a server may");
        assert!(known.iter().all(|report| report.target != unknown.target), "{known:?}");
        let other_key = PeerConnector { secret: ClusterSecret::new(&[8; 32]), ..connector };
        assert!(other_key.connect(entry).await.is_err(), "it has another key");
    }
}

#[test]
fn servers_learn_of_each_other_in_the_simulated_world() {
    let mut sim = Sim::with_seed(3);
    let worlds = ["s0", "s1", "s2"].map(|name| sim.node(name));
    let addresses = ["s0", "s1", "s2"].map(|name| Address::Tcp(name.into(), 4000));
    let cluster =
        TestCluster::new(worlds.clone(), [const { PathBuf::new() }; 3].map(|_| "/".into()), addresses);
    sim.block_on(&worlds[0].clone(), async move {
        for world in &worlds {
            make_folders(world).await;
        }
        cluster.run().await;
    });
}

async fn make_folders(world: &SimEnv) {
    let root = world.dir(Path::new("/")).await.expect("the root");
    for name in ["target", "log"] {
        root.make_dir(name).await.expect("a folder");
    }
    root.sync("").await.expect("synced");
}

#[test]
fn servers_learn_of_each_other_in_the_real_world() {
    let folder = tempfile::tempdir().expect("a folder");
    let folders = ["s0", "s1", "s2"].map(|name| folder.path().join(name));
    for path in &folders {
        for name in ["target", "log"] {
            std::fs::create_dir_all(path.join(name)).expect("a folder");
        }
    }
    let addresses = folders.each_ref().map(|path| Address::Unix(path.join("socket")));
    let env = RealEnv::new();
    block_on(TestCluster::new([env; 3], folders, addresses).run());
}

#[test]
fn a_client_may_not_report_disks() {
    let mut sim = Sim::with_seed(4);
    let node = sim.node("s0");
    let env = node.clone();
    sim.block_on(&node, async move {
        make_folders(&env).await;
        let addresses = ["s0", "s1", "s2"].map(|name| Address::Tcp(name.into(), 4000));
        let cluster = TestCluster::new(
            [env.clone(), env.clone(), env.clone()],
            ["/".into(), "/".into(), "/".into()],
            addresses,
        );
        let mut options = metadata::Config::new("/target".into(), cluster.map.clone());
        options.format = true;
        let secret = ClusterSecret::new(&[7; 32]);
        let service = metadata::Service::start(env, options, secret, Hooks::none()).await.expect("starts");
        let identity = weft_wire::hello::Identity { uid: 0, gid: 0, groups: vec![] };
        let session = weft_wire::hello::SessionId(1);
        let call =
            || MetaCall { seq: 0, on_behalf: None, request: MetaRequest::Averages { reports: vec![] } };
        let root = service.connected(session, 0, identity.clone(), 1, false);
        match service.call(&root, call()).await {
            MetaReply::Failed(error) => assert_eq!(error.errno, Errno::EPERM),
            other => panic!("{other:?}"),
        }
        let server = service.connected(session, 1, identity, 1, true);
        assert_eq!(service.call(&server, call()).await, MetaReply::Averages(vec![]));
        service.shutdown().await;
    });
}
