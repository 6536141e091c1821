//! The server in the simulated world: reproducible by seed, through crashes and idle times.

use crate::support::*;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weft_core::{ByteLen, Nanos, ServerId};
use weft_env::sim::{Sim, SimEnv};
use weft_env::{Address, Conn, Dir, Env, Notify, Shared};
use weft_server::ServerConfig;
use weft_wire::data::{DataReply, DataRequest, lease};
use weft_wire::hello::{Identity, Role};
use weft_wire::status::{StatusReply, StatusRequest};

fn socket() -> Address {
    Address::Unix("/run/socket".into())
}

fn sim_config() -> ServerConfig {
    let mut config = config(Path::new("/"), vec![socket(), Address::Tcp("storage".into(), 4000)], true);
    // Clients run as the server's user and get writable descriptors.
    config.hooks.uid = 1000;
    config
}

async fn make_sim_folders(env: &SimEnv) {
    let root = env.dir(Path::new("/")).await.expect("the root");
    for name in ["t0", "t1", "t2"] {
        root.make_dir(name).await.expect("a folder");
        root.sync("").await.expect("synced");
    }
}

/// Clients on two machines write and read concurrently. Returns a hash of the events.
fn event_hash_of_a_run(seed: u64) -> u64 {
    let mut sim = Sim::with_seed(seed);
    let storage = sim.node("storage");
    let compute = sim.node("compute");
    let env = storage.clone();
    let server = sim.block_on(&storage, async move {
        make_sim_folders(&env).await;
        Arc::new(start(&env, sim_config()).await)
    });
    let left = Arc::new(AtomicU64::new(6));
    let done = storage.notify();
    for number in 0..6_u64 {
        let (left, done) = (Arc::clone(&left), done.clone());
        let env = if number % 2 == 0 { sim.process(&storage, "client", 1000, 1000) } else { compute.clone() };
        let world = env.clone();
        let task = move || async move {
            let user = Identity { uid: 1000, gid: 1000, groups: vec![] };
            let key = secret().identity_key(&user);
            let address = if number % 2 == 0 { socket() } else { Address::Tcp("storage".into(), 4000) };
            let hello = hello(Role::Client(user), u128::from(number));
            let mut client = Client::connect_as(&world, &address, hello, key).await;
            for round in 0..30_u64 {
                let part = datafile((round % 2) as u32, 100 + number, 0);
                let bytes = pattern(1 + (round * 1777 % 30_000) as usize, number ^ round);
                assert_eq!(client.write(part, round * 900, &bytes).await, DataReply::Written);
                assert!(client.read(part, round * 900, bytes.len() as u32).await.1 == bytes);
            }
            drop(client);
            left.fetch_sub(1, Ordering::SeqCst);
            done.notify_all();
        };
        env.spawn("client", task).expect("a task");
    }
    let stopper = Arc::clone(&server);
    sim.block_on(&storage, async move {
        loop {
            let seen = done.epoch();
            if left.load(Ordering::SeqCst) == 0 {
                break;
            }
            done.wait(seen, None).await;
        }
        stopper.stop().await;
        assert_eq!((stopper.panics(), stopper.connections()), (0, 0));
    });
    // No task of the server remains: the world becomes idle.
    sim.run();
    sim.event_hash()
}

#[test]
fn a_server_and_its_clients_live_in_the_simulated_world() {
    for seed in 0..10 {
        eprintln!("seed {seed}");
        assert_eq!(event_hash_of_a_run(seed), event_hash_of_a_run(seed), "the same seed, different events");
    }
    assert_ne!(event_hash_of_a_run(1), event_hash_of_a_run(2));
}

#[test]
fn an_idle_server_exits_and_a_used_one_does_not() {
    let mut sim = Sim::with_seed(3);
    let storage = sim.node("storage");
    let (env, control) = (storage.clone(), sim.control());
    sim.block_on(&storage, async move {
        make_sim_folders(&env).await;
        let config = ServerConfig { idle_exit: Some(Nanos::from_s(60)), ..sim_config() };
        let server = start(&env, config.clone()).await;
        env.sleep(Nanos::from_s(50)).await;
        let client = Client::connect(&env, &socket()).await;
        env.sleep(Nanos::from_s(500)).await;
        assert_eq!(server.connections(), 1, "in use");
        let idle_from = control.elapsed();
        drop(client);
        // Another server keeps its connection open, like the one that removes datafiles.
        let hello = hello(Role::Server(ServerId(1)), 9);
        let _kept = Client::connect_as(&env, &socket(), hello, secret().server_key()).await;
        server.stopped().await;
        let idle_s = control.elapsed().saturating_sub(idle_from).0 / 1_000_000_000;
        assert!((59..63).contains(&idle_s), "ended after {idle_s} s");
        // Its targets are free for the next server.
        let again = start(&env, ServerConfig { idle_exit: None, ..config }).await;
        again.stop().await;
    });
}

/// Returns the lease page, slot and descriptor of a client with a lease on a datafile.
async fn with_lease<E: Env>(client: &mut Client<E>, file: u64) -> (E::Shared, usize, E::File) {
    client.call(&DataRequest::AttachShared { payload_len: 0 }, &[]).await;
    let page = client.link.conn().take_shared(lease::PAGE_LEN).expect("the page");
    let wanted = DataRequest::Lease { datafile: datafile(0, file, 0), cap: client.cap(file), write: true };
    let DataReply::Leased { slot } = client.call(&wanted, &[]).await.0 else { panic!("no lease") };
    (page, slot as usize, client.link.conn().take_file().expect("a descriptor"))
}

#[test]
fn a_restarted_server_waits_for_leases_of_the_killed_one_to_expire() {
    for clean in [true, false] {
        let mut sim = Sim::with_seed(5);
        let storage = sim.node("storage");
        let user = sim.process(&storage, "client", 1000, 1000);
        let env = storage.clone();
        let server = sim.block_on(&storage, async move {
            make_sim_folders(&env).await;
            Arc::new(start(&env, sim_config()).await)
        });
        let env = user.clone();
        let valid_until = sim.block_on(&user, async move {
            let mut client = Client::connect(&env, &socket()).await;
            let (page, ..) = with_lease(&mut client, 8).await;
            env.sleep(Nanos::from_s(20)).await;
            let until = page.words()[lease::VALID_UNTIL].load(Ordering::SeqCst);
            let ahead_ms = (until - env.now().0) / 1_000_000;
            assert!((3_900..=5_000).contains(&ahead_ms), "heartbeats continue: {ahead_ms} ms ahead");
            until
        });
        if clean {
            sim.block_on(&storage, async move { server.stop().await });
        }
        let storage = sim.restart(&storage);
        let env = storage.clone();
        let removed_at = sim.block_on(&storage, async move {
            start(&env, sim_config()).await;
            let hello = hello(Role::Server(ServerId(1)), 9);
            let mut reaper = Client::connect_as(&env, &socket(), hello, secret().server_key()).await;
            let remove = DataRequest::Remove { datafiles: vec![datafile(0, 8, 0)] };
            assert_eq!(reaper.call(&remove, &[]).await.0, DataReply::Done);
            env.now().0
        });
        assert_eq!(removed_at < valid_until, clean, "removed {removed_at}, lease until {valid_until}");
    }
}

#[test]
fn a_dead_client_holds_no_lease() {
    let mut sim = Sim::with_seed(6);
    let storage = sim.node("storage");
    let doomed = sim.process(&storage, "client", 1000, 1000);
    let env = storage.clone();
    sim.block_on(&storage, async move {
        make_sim_folders(&env).await;
        start(&env, sim_config()).await;
    });
    let env = doomed.clone();
    let page = sim.block_on(&doomed, async move {
        let mut client = Client::connect(&env, &socket()).await;
        let (page, slot, file) = with_lease(&mut client, 8).await;
        // It dies during an operation.
        page.words()[lease::in_flight(slot)].store(1, Ordering::SeqCst);
        std::mem::forget((client, file));
        (page, slot)
    });
    sim.kill(&doomed);
    let env = storage.clone();
    sim.block_on(&storage, async move {
        let hello = hello(Role::Server(ServerId(1)), 9);
        let mut admin = Client::connect_as(&env, &socket(), hello, secret().server_key()).await;
        let before = env.now();
        let revoke = DataRequest::RevokeLeases { target: weft_core::TargetId(0) };
        assert_eq!(admin.call(&revoke, &[]).await.0, DataReply::Done);
        assert!(
            env.now().saturating_sub(before) < Nanos::from_ms(100),
            "no revocation waits for the dead client"
        );
    });
    let (page, slot) = page;
    assert_eq!(page.words()[lease::state(slot)].load(Ordering::SeqCst), lease::REVOKED);
}

#[test]
fn data_synced_through_the_server_survives_a_power_cut() {
    for seed in 0..20 {
        eprintln!("seed {seed}");
        let mut sim = Sim::with_seed(seed);
        let storage = sim.node("storage");
        let env = storage.clone();
        sim.block_on(&storage, async move {
            make_sim_folders(&env).await;
            start(&env, sim_config()).await;
            let mut client = Client::connect(&env, &socket()).await;
            for target in [0, 1] {
                let part = datafile(target, 30, 0);
                assert_eq!(client.write(part, 10, &pattern(9000, seed)).await, DataReply::Written);
                let sync = DataRequest::Sync { cap: client.cap(30), datafiles: vec![part] };
                assert_eq!(client.call(&sync, &[]).await.0, DataReply::Done);
                client.write(part, 20_000, &[1; 100]).await;
            }
        });
        sim.power_cut(&storage);
        let storage = sim.restart(&storage);
        let env = storage.clone();
        sim.block_on(&storage, async move {
            start(&env, sim_config()).await;
            let mut client = Client::connect(&env, &socket()).await;
            for target in [0, 1] {
                let (reply, read) = client.read(datafile(target, 30, 0), 10, 9000).await;
                assert!(read == pattern(9000, seed), "target {target}: {reply:?}, {} bytes", read.len());
                let DataReply::Read { datafile_len } = reply else { panic!("{reply:?}") };
                assert!(datafile_len >= ByteLen(9010));
            }
        });
    }
}

#[test]
fn a_client_that_does_not_receive_its_reply_does_not_block_the_target() {
    let mut sim = Sim::with_seed(9);
    let storage = sim.node("storage");
    let env = storage.clone();
    sim.block_on(&storage, async move {
        make_sim_folders(&env).await;
        let mut config = sim_config();
        config.targets.iter_mut().for_each(|target| target.queue_depth = 2);
        let server = start(&env, config).await;
        let mut client = Client::connect(&env, &socket()).await;
        let part = datafile(0, 1, 0);
        assert_eq!(client.write(part, 0, &pattern(4 << 20, 0)).await, DataReply::Written);
        let mut asleep = Vec::new();
        for _ in 0..2 {
            let mut sleeper = Client::connect(&env, &socket()).await;
            sleeper.send(&read_request(part, sleeper.cap(1), 0, 4 << 20), &[]).await;
            asleep.push(sleeper);
        }
        env.sleep(Nanos::from_ms(100)).await;
        let before = env.now();
        assert_eq!(client.read(part, 0, 100).await.1.len(), 100);
        let waited = env.now().saturating_sub(before);
        assert!(waited > Nanos::from_ms(500), "the target was blocked: {waited}");
        assert!(waited < Nanos::from_s(3), "waited {waited}");
        // They still get their replies, and permits that were revoked are not returned twice.
        for sleeper in &mut asleep {
            assert!(sleeper.recv().await.1 == pattern(4 << 20, 0));
        }
        let StatusReply::Status(status) = client.status(StatusRequest::Status).await else {
            panic!("no status")
        };
        assert_eq!(status.targets[0].queue, 0);
        drop((client, asleep));
        server.stop().await;
        assert_eq!(server.panics(), 0);
    });
}
