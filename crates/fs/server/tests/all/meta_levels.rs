//! Feature levels: what servers of two versions record, and when the cluster may store later forms.

use crate::meta_support::{Removed, cluster, config, errno, secret, start, user};
use std::path::PathBuf;
use std::sync::Arc;
use weft_core::ServerId;
use weft_env::Address;
use weft_env::sim::{Sim, SimEnv};
use weft_server::Hooks;
use weft_server::metadata::{Config, Service};
use weft_wire::cluster::{Domain, DomainChange, ServerChange};
use weft_wire::hello::SessionId;
use weft_wire::meta::{ClusterLevels, MetaCall, MetaReply, MetaRequest};
use weft_wire::{Errno, Level, Levels};

fn config_of(levels: Levels) -> Config {
    let mut config = config(PathBuf::from("/"));
    config.cluster = cluster();
    config.options.keeps_map = true;
    config.options.without_registry = false;
    config.options.levels = levels;
    config
}

fn until(level: u8) -> Levels {
    Levels::until(Level(level))
}

struct World {
    service: Arc<Service<SimEnv>>,
}

impl World {
    async fn start(env: &SimEnv, levels: Levels) -> Self {
        Self { service: start(env, config_of(levels), &Removed::default()).await }
    }

    /// Sends a request over a connection of this level, as a server that root runs.
    async fn ask_at(&self, level: Level, request: MetaRequest) -> MetaReply {
        let ctx = self.service.connected(SessionId(9), 0, user(0), 1, true).at_level(level);
        self.service.call(&ctx, MetaCall { seq: 0, on_behalf: None, request }).await
    }

    async fn ask(&self, request: MetaRequest) -> MetaReply {
        self.ask_at(Level::LATEST, request).await
    }

    async fn register(&self, name: &str, levels: Levels) -> MetaReply {
        self.ask(MetaRequest::RegisterServer {
            name: name.into(),
            addresses: vec![Address::Tcp(format!("host-of-{name}"), 7411)],
            targets: vec![],
            format: true,
            levels,
        })
        .await
    }

    async fn levels(&self) -> ClusterLevels {
        match self.ask(MetaRequest::Levels).await {
            MetaReply::Levels(levels) => levels,
            other => panic!("{other:?}"),
        }
    }

    async fn raise(&self, to: u8) -> Result<Level, (Errno, String)> {
        match self.ask(MetaRequest::RaiseLevel { to: Level(to) }).await {
            MetaReply::Levels(levels) => Ok(levels.cluster),
            MetaReply::Failed(error) => Err((error.errno, error.detail)),
            other => panic!("{other:?}"),
        }
    }

    async fn set_rack(&self, name: &str, rack: &str) -> MetaReply {
        let change = DomainChange { host: None, rack: Some(rack.into()) };
        self.ask(MetaRequest::SetDomain { name: name.into(), change }).await
    }

    async fn domains_at(&self, level: u8) -> Vec<Domain> {
        let reply = self.ask_at(Level(level), MetaRequest::ClusterMap).await;
        assert_eq!(matches!(reply, MetaReply::ClusterMap(_)), level == 1, "{reply:?}");
        reply.into_map().expect("a map").domains
    }

    async fn stop(self) {
        self.service.shutdown().await;
    }
}

fn simulated<F: Future<Output = ()> + 'static>(seed: u64, run: impl FnOnce(SimEnv) -> F) {
    let mut sim = Sim::with_seed(seed);
    let node = sim.node("mds");
    sim.block_on(&node, run(node.clone()));
}

#[test]
fn an_upgrade_raises_the_level_when_all_servers_know_it() {
    simulated(1, |env| async move {
        // The first release creates the cluster.
        let world = World::start(&env, until(1)).await;
        for (number, name) in ["s0", "s1"].into_iter().enumerate() {
            let registered = MetaReply::Registered { server: ServerId(number as u32), level: Level(1) };
            assert_eq!(world.register(name, until(1)).await, registered);
        }
        assert_eq!(errno(world.set_rack("s1", "r1").await), Errno::EOPNOTSUPP);
        let (why, text) = world.raise(2).await.expect_err("this version does not know it");
        assert_eq!(why, Errno::EINVAL);
        assert!(text.contains("knows level 1, not level 2"), "{text}");
        world.stop().await;

        // The metadata server is upgraded first. Nothing of the new level is stored, so it may return.
        let world = World::start(&env, until(2)).await;
        assert_eq!(errno(world.set_rack("s1", "r1").await), Errno::EOPNOTSUPP);
        let (why, text) = world.raise(2).await.expect_err("the others are of the earlier version");
        assert_eq!(why, Errno::EBUSY);
        assert!(text.contains("s0 (level 1), s1 (level 1)") && text.contains("start them again"), "{text}");
        world.register("s0", until(2)).await;
        world.stop().await;
        let world = World::start(&env, until(1)).await;
        assert_eq!(world.levels().await.cluster, Level(1));
        world.stop().await;

        let world = World::start(&env, until(2)).await;
        assert_eq!(world.raise(2).await.map_err(|(why, _)| why), Err(Errno::EBUSY), "s1 has not returned");
        let registered = MetaReply::Registered { server: ServerId(1), level: Level(1) };
        assert_eq!(world.register("s1", until(2)).await, registered);
        assert_eq!(world.raise(2).await, Ok(Level(2)));
        assert_eq!(world.raise(2).await, Ok(Level(2)), "again");
        for to in [0, 1, 3] {
            assert_eq!(world.raise(to).await.map_err(|(why, _)| why), Err(Errno::EINVAL), "level {to}");
        }
        let levels = world.levels().await;
        assert_eq!((levels.cluster, levels.known), (Level(2), Levels::KNOWN));
        assert!(levels.servers.contains(&("s1".into(), Level(2))), "{levels:?}");

        // Servers of the earlier version are refused, with the remedy; clients of it are not.
        let MetaReply::Failed(why) = world.register("s1", until(1)).await else { panic!("it may not start") };
        assert_eq!(why.errno, Errno::EPROTO);
        assert!(
            why.detail.contains("server s1 knows level 1, and the cluster has level 2: install"),
            "{why}"
        );
        let early = Levels { earliest: Level(3), latest: Level(4) };
        let MetaReply::Failed(why) = world.register("s1", early).await else { panic!("it may not start") };
        assert!(why.detail.contains("run `weft upgrade` with it first"), "{why}");
        assert!(world.domains_at(1).await.is_empty());
        world.stop().await;
        let refused = Service::start_with(
            env.clone(),
            config_of(until(1)),
            secret(),
            Hooks::none(),
            Removed::default(),
        );
        let text = refused.await.err().expect("it does not know the level");
        assert!(text.contains("this server knows level 1, and the cluster has level 2: install"), "{text}");
    });
}

#[test]
fn failure_domains_belong_to_level_two() {
    simulated(2, |env| async move {
        let world = World::start(&env, Levels::KNOWN).await;
        assert_eq!(world.levels().await.cluster, Level::LATEST, "a new cluster");
        for name in ["s0", "s1"] {
            world.register(name, Levels::KNOWN).await;
        }
        let version =
            async |world: &World| world.ask(MetaRequest::ClusterMap).await.into_map().expect("a map").version;
        let before = version(&world).await;
        let request = MetaRequest::SetDomain { name: "s1".into(), change: DomainChange::default() };
        assert_eq!(errno(world.ask_at(Level(1), request).await), Errno::EPROTO);
        for (name, rack) in [("s1", "a rack"), ("s1", "-r"), ("s9", "r1")] {
            assert_eq!(errno(world.set_rack(name, rack).await), Errno::EINVAL, "{name} {rack:?}");
        }
        let map = world.set_rack("s1", "r1").await.into_map().expect("the map");
        assert!(map.version > before, "clients fetch it");
        let domain = |host: &str, rack: &str| Domain { host: host.into(), rack: rack.into() };
        assert_eq!(map.domain_of(ServerId(1)), domain("host-of-s1", "r1"));
        assert_eq!(map.domain_of(ServerId(0)), domain("host-of-s0", ""));
        let change = DomainChange { host: Some("chassis3".into()), rack: None };
        let map = world.ask(MetaRequest::SetDomain { name: "s1".into(), change }).await;
        assert_eq!(map.into_map().expect("the map").domain_of(ServerId(1)), domain("chassis3", "r1"));
        assert_eq!(world.domains_at(1).await, []);
        world.stop().await;

        let world = World::start(&env, Levels::KNOWN).await;
        assert_eq!(world.domains_at(2).await, [Domain::default(), domain("chassis3", "r1")]);
        // A server of the same name that joins later stands elsewhere.
        for change in [ServerChange::Remove, ServerChange::Add] {
            world.ask(MetaRequest::ChangeServer { name: "s1".into(), change }).await;
        }
        world.register("s1", Levels::KNOWN).await;
        let map = world.ask(MetaRequest::ClusterMap).await.into_map().expect("the map");
        assert_eq!(map.domain_of(ServerId(1)), domain("host-of-s1", ""));
        world.stop().await;
    });
}
