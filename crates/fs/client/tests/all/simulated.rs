//! Client and servers in the simulated world, under virtual time, with all choices decided by a seed.

use crate::support::world::World;
use crate::support::{SERVERS, at, model, pattern, read, write};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use weft_client::{
    Client, Counts, Error, InodePath, LockKind, LockOwner, LockRange, LockSpace, OpenFile, SetAttr,
    Transport, Wait,
};
use weft_core::{ByteLen, ClassLayout, ClassPart, FileOffset, Nanos, ServerId, TargetId};
use weft_env::Env;
use weft_env::sim::{Sim, SimEnv};
use weft_wire::Errno;
use weft_wire::hello::JobNumber;
use weft_wire::meta::{LayoutSpec, OpenFlags, Rule, RuleRemoval};

/// Result of a run.
#[derive(PartialEq, Debug)]
struct Outcome {
    hash: u64,
    elapsed: Nanos,
    counts: Counts,
}

fn run(seed: u64, spread: bool, transport: Transport, trouble: bool) -> Outcome {
    let mut sim = Sim::with_seed(seed);
    let world = World::new(&sim, spread);
    let control = sim.control();
    let main = control.process(&world.machines[0], "test", 1000, 1000);
    let counts = sim.block_on(&main, async move {
        let mut servers = world.start().await;
        let clients = [world.client("a", transport), world.client("b", transport)];
        let mut machines = world.machines.clone();
        model::run(seed, 170, &clients, async |step| {
            if trouble {
                world.disturb(step, 20, &mut machines, &mut servers).await;
            }
        })
        .await;
        drop(servers);
        clients[0].counts()
    });
    Outcome { hash: sim.event_hash(), elapsed: sim.elapsed(), counts }
}

#[test]
fn the_same_seed_gives_the_same_events() {
    for (spread, transport) in [(true, Transport::Auto), (false, Transport::Auto), (false, Transport::Socket)]
    {
        let first = run(11, spread, transport, false);
        assert_eq!(first, run(11, spread, transport, false), "same seed");
        assert_ne!(first.hash, run(12, spread, transport, false).hash, "another seed");
        let leased = !spread && transport == Transport::Auto;
        assert_eq!(first.counts.leased_operations > 50, leased, "{:?}", first.counts);
    }
}

#[test]
fn bytes_survive_crashed_servers_and_reset_connections() {
    for seed in 0..6 {
        let outcome = run(seed, true, Transport::Auto, true);
        assert!(outcome.counts.repeated > 0, "seed {seed}: nothing went wrong: {:?}", outcome.counts);
    }
}

#[test]
fn bytes_survive_crashed_servers_under_leases() {
    for seed in 20..24 {
        let outcome = run(seed, false, Transport::Auto, true);
        assert!(outcome.counts.leases > 0, "seed {seed}: {:?}", outcome.counts);
    }
}

#[test]
fn a_silent_server_fails_within_the_time_outs_and_recovers() {
    let mut sim = Sim::with_seed(3);
    let world = World::new(&sim, true);
    let control = sim.control();
    let main = control.process(&world.machines[0], "test", 1000, 1000);
    sim.block_on(&main, async move {
        let servers = world.start().await;
        let client = world.client("a", Transport::Auto);
        let file = crate::support::open(&client, "f", 65_536).await;
        let bytes = crate::support::pattern(4 * 65_536, 1);
        crate::support::write(&file, 0, &bytes).await;
        // The connection stays open, but nothing passes any more.
        control.partition(&world.machines[0], &world.machines[2]);
        let start = control.elapsed();
        let error = file.sync().await.expect_err("no answer");
        assert_eq!(error.errno(), 5);
        assert!(error.to_string().contains("server s2 at tcp:n2:4000"), "{error}");
        let took = control.elapsed().saturating_sub(start);
        assert!(took <= Nanos::from_s(11), "request_timeout is 10 s, and it took {took}");
        let start = control.elapsed();
        assert_eq!(file.sync().await.expect_err("known to be dead").errno(), 5);
        assert!(control.elapsed().saturating_sub(start) < Nanos::from_ms(10), "fails fast");
        // This client is not connected yet, so its greeting gets no answer either.
        let other = world.client("b", Transport::Auto);
        let second = crate::support::open(&other, "f", 65_536).await;
        let start = control.elapsed();
        let mut buf = vec![0; bytes.len()];
        let read = second.read_at(&mut [std::io::IoSliceMut::new(&mut buf)], weft_core::FileOffset(0)).await;
        assert_eq!(read.expect_err("no answer").errno(), 5);
        let took = control.elapsed().saturating_sub(start);
        assert!(took <= Nanos::from_s(6), "retry_for is 3 s and connect_timeout 2 s, and it took {took}");
        control.heal(&world.machines[0], &world.machines[2]);
        client.env().sleep(Nanos::from_s(30)).await;
        file.sync().await.expect("answers again");
        assert!(crate::support::read(&second, 0, bytes.len()).await == bytes);
        drop(servers);
    });
}

#[test]
fn capabilities_are_renewed_before_and_after_they_expire() {
    let mut sim = Sim::with_seed(13);
    let mut world = World::new(&sim, true);
    world.plan.capability_life = Nanos::from_s(1);
    let main = sim.control().process(&world.machines[0], "test", 1000, 1000);
    sim.block_on(&main, async move {
        let servers = world.start().await;
        let client = world.client("a", Transport::Socket);
        let file = crate::support::open(&client, "f", 65_536).await;
        let begun = client.env().now();
        let mut rounds = 0;
        while client.env().now().saturating_sub(begun) < Nanos::from_ms(2500) {
            let bytes = pattern(150_000, rounds);
            write(&file, rounds * 1000, &bytes).await;
            assert!(read(&file, rounds * 1000, bytes.len()).await == bytes, "round {rounds}");
            rounds += 1;
            client.env().sleep(Nanos::from_ms(50)).await; // virtual time
        }
        assert!(client.counts().meta_messages >= 3, "renewed at least twice: {:?}", client.counts());
        // After a pause longer than the capability's life, the next write renews it.
        client.env().sleep(Nanos::from_ms(2100)).await;
        write(&file, 0, b"late").await;
        file.sync().await.expect("syncs");
        assert_eq!(read(&file, 0, 4).await, b"late");
        drop(servers);
    });
}

#[test]
fn truncating_at_the_open_sends_no_size_and_the_next_stat_validates_it() {
    let mut sim = Sim::with_seed(4);
    let world = World::new(&sim, true);
    let main = sim.control().process(&world.machines[0], "test", 1000, 1000);
    sim.block_on(&main, async move {
        let servers = world.start().await;
        let client = world.client("a", Transport::Auto);
        let file = crate::support::open(&client, "f", 65_536).await;
        write(&file, 0, &pattern(1000, 1)).await;
        file.close().await.expect("closed");
        let before = client.counts().meta_messages;
        let flags = OpenFlags { truncate: true, ..OpenFlags::READ };
        let file = client.open(&at("f"), flags, 0, &LayoutSpec::default()).await.expect("truncated");
        assert_eq!(client.counts().meta_messages - before, 1, "the open alone");
        assert_eq!(file.size().await.expect("known"), ByteLen(0));
        file.close().await.expect("closed");
        for is_size_valid in [false, true] {
            let before = client.counts().data_messages;
            assert_eq!(client.stat(&at("f")).await.expect("there").size, ByteLen(0));
            assert_eq!(client.counts().data_messages == before, is_size_valid);
            client.flush().await.expect("flushed");
        }
        drop(servers);
    });
}

#[test]
fn a_failed_truncation_never_leaves_a_file_shorter_than_requested() {
    // Bytes on s1, then a hole on s2, in which the file is to end.
    const HOLE_ENDS: ByteLen = ByteLen(3 * 65_536 - 5);
    for (silent, least) in [(2, 5 * 65_536), (3, HOLE_ENDS.0)] {
        let mut sim = Sim::with_seed(3);
        let world = World::new(&sim, true);
        let control = sim.control();
        let main = control.process(&world.machines[0], "test", 1000, 1000);
        sim.block_on(&main, async move {
            let servers = world.start().await;
            let client = world.client("a", Transport::Auto);
            let strips = (0..SERVERS).map(|target| (TargetId(target), ByteLen(65_536))).collect();
            let spec = LayoutSpec { strips: Some(strips), ..LayoutSpec::default() };
            let flags = OpenFlags { read: true, write: true, create: true, ..OpenFlags::READ };
            let file = client.open(&at("f"), flags, 0o644, &spec).await.expect("made");
            let bytes = pattern(2 * 65_536, 1);
            write(&file, 0, &bytes).await;
            write(&file, 4 * 65_536, &bytes[..65_536]).await;
            control.partition(&world.machines[0], &world.machines[silent]);
            let error = file.truncate(HOLE_ENDS).await.expect_err("no answer");
            let text = error.to_string();
            assert!(text.contains(&format!("server s{silent} ")), "{text}");
            // Nothing is truncated before the end of the file is certain.
            assert_eq!(text.contains("truncate it again when the server is back"), silent == 3, "{text}");
            control.heal(&world.machines[0], &world.machines[silent]);
            client.env().sleep(Nanos::from_s(30)).await;
            assert!(file.size().await.expect("known").0 >= least, "{silent}: {:?}", file.size().await);
            assert!(read(&file, 0, bytes.len()).await == bytes);
            file.truncate(HOLE_ENDS).await.expect("truncated");
            assert_eq!(file.size().await.expect("known"), HOLE_ENDS);
            assert_eq!(client.stat(&at("f")).await.expect("there").size, HOLE_ENDS);
            drop(servers);
        });
    }
}

/// Creates a file and returns the targets that the cluster chose for it.
async fn targets_of_new(client: &Client<SimEnv>, name: &str, spec: &LayoutSpec) -> Result<Vec<u32>, Error> {
    let file = client.open(&at(name), crate::support::READ_WRITE, 0o644, spec).await?;
    let mut targets: Vec<u32> =
        file.layout().expect("a file").objects().map(|(_, target)| target.0).collect();
    targets.sort_unstable();
    write(&file, 0, &pattern(4 * 65_536, 1)).await;
    assert!(read(&file, 0, 4 * 65_536).await == pattern(4 * 65_536, 1));
    file.close().await.expect("closed");
    Ok(targets)
}

#[test]
fn new_files_are_placed_on_servers_that_answer() {
    for silent in [false, true] {
        let mut sim = Sim::with_seed(5);
        let mut world = World::new(&sim, true);
        world.plan.ask_every = Some(Nanos::from_s(1));
        let control = sim.control();
        // The client has a machine of its own, so that the silent server is silent for other clients, too.
        let main = control.process(&world.machines[1], "test", 1000, 1000);
        sim.block_on(&main, async move {
            let mut servers = world.start().await;
            let client = world.client("a", Transport::Auto);
            let any = LayoutSpec { stripe_size: Some(ByteLen(65_536)), ..LayoutSpec::default() };
            let ssd = LayoutSpec { class: Some("ssd".into()), ..any.clone() };
            client.env().sleep(Nanos::from_s(10)).await;
            assert_eq!(targets_of_new(&client, "all", &any).await.expect("made"), [0, 1, 2, 3]);
            let mut machines = world.machines.clone();
            match silent {
                true => control.partition(&machines[0], &machines[2]),
                false => control.kill(&machines[2]),
            }
            // Two time-outs and one interval of the metadata server's checks.
            client.env().sleep(Nanos::from_s(if silent { 6 } else { 2 })).await;
            assert_eq!(targets_of_new(&client, "three", &any).await.expect("made"), [0, 1, 3]);
            assert_eq!(targets_of_new(&client, "one", &ssd).await.expect("made"), [3]);
            // A program that names the target gets it: the server may be back when the bytes come.
            let strips = Some(vec![(TargetId(2), ByteLen(65_536))]);
            let named = LayoutSpec { strips, ..LayoutSpec::default() };
            let file =
                client.open(&at("named"), crate::support::READ_WRITE, 0o644, &named).await.expect("made");
            assert_eq!(file.layout().expect("a file").objects().count(), 1);
            if silent {
                control.partition(&machines[0], &machines[3]);
            } else {
                control.kill(&machines[3]);
            }
            client.env().sleep(Nanos::from_s(6)).await;
            let error = targets_of_new(&client, "none", &ssd).await.expect_err("no SSD is left");
            let text = error.to_string();
            assert_eq!(error.errno(), 5, "{text}");
            for part in
                ["of class ssd", "server s2 does not answer", "server s3 does not answer", "weft serve"]
            {
                assert!(text.contains(part), "{text}");
            }
            for id in [2, 3] {
                if silent {
                    control.heal(&machines[0], &machines[id]);
                } else {
                    machines[id] = control.restart(&machines[id]);
                    servers[id] = world.start_server(&machines[id], id as u32).await;
                }
            }
            client.env().sleep(Nanos::from_s(6)).await;
            assert_eq!(targets_of_new(&client, "again", &any).await.expect("made"), [0, 1, 2, 3]);
            drop(servers);
        });
    }
}

/// Opens a file on all targets for writing, so that its size is asked of the data servers.
async fn open_over_all(client: &Client<SimEnv>, name: &str, bytes: &[u8]) -> OpenFile<SimEnv> {
    let strips = (0..SERVERS).map(|target| (TargetId(target), ByteLen(65_536))).collect();
    let spec = LayoutSpec { strips: Some(strips), ..LayoutSpec::default() };
    let file = client.open(&at(name), crate::support::READ_WRITE, 0o644, &spec).await.expect("made");
    write(&file, 0, bytes).await;
    file
}

#[test]
fn names_and_attributes_work_on_every_file_while_a_server_is_down() {
    for silent in [false, true] {
        let mut sim = Sim::with_seed(6);
        let mut world = World::new(&sim, true);
        world.plan.ask_every = Some(Nanos::from_s(1));
        let control = sim.control();
        let main = control.process(&world.machines[0], "test", 1000, 1000);
        sim.block_on(&main, async move {
            let mut servers = world.start().await;
            let [client, other] = ["a", "b"].map(|name| world.client(name, Transport::Auto));
            // The file ends in the middle of the third stripe, on the server that goes down.
            let bytes = pattern(2 * 65_536 + 777, 1);
            let mut files = Vec::new();
            for name in ["open", "moved", "removed", "replaced", "cut"] {
                files.push(open_over_all(&client, name, &bytes).await);
            }
            let len = ByteLen(bytes.len() as u64);
            assert_eq!(client.stat(&at("open")).await.expect("there").size, len);
            crate::support::open(&client, "closed", 65_536).await.close().await.expect("closed");
            let mut machine = world.machines[2].clone();
            match silent {
                true => control.partition(&world.machines[0], &machine),
                false => control.kill(&machine),
            }
            // A client that asked earlier shows that answer. Another client shows at least the part on the other
            // servers.
            let known = client.stat_last_known(&at("open")).await.expect("there");
            assert_eq!(known.attr.size, len);
            assert!(known.attr.invalid_size.is_some(), "not taken for valid");
            let error = known.error.clone().expect("a server is down").to_string();
            assert!(error.contains("open: server s2 at tcp:n2:4000 does not answer"), "{error}");
            assert_eq!(known.exact().expect_err("not known").errno(), 5);
            let known = other.stat_last_known(&at("open")).await.expect("there");
            assert_eq!((known.attr.size, known.error.is_some()), (ByteLen(2 * 65_536), true));
            let closed = other.stat_last_known(&at("closed")).await.expect("there");
            assert!(closed.error.is_none() && closed.attr.invalid_size.is_none());
            // Operations that need the exact size fail.
            assert_eq!(client.stat(&at("open")).await.expect_err("not known").errno(), 5);
            assert_eq!(files[0].attr().await.expect_err("not known").errno(), 5);
            assert_eq!(files[0].require_size().await.expect_err("not known").errno(), 5);
            assert_eq!(files[0].size().await.expect_err("not known").errno(), 5);
            // A listing has all names, and marks the entries with the last known size.
            let root = InodePath::from_root(Vec::new(), true);
            let (entries, more) = other.list(&root, b"", 100, true).await.expect("listed");
            let attrs: Vec<_> =
                entries.iter().map(|entry| entry.attr.as_ref().expect("attributes")).collect();
            assert!(!more && attrs.len() == 6);
            assert_eq!(attrs.iter().filter(|attr| attr.invalid_size.is_some()).count(), 5);
            // Changes of names work.
            client.rename(&at("moved"), &at("elsewhere"), true, false).await.expect("renamed");
            client.rename(&at("closed"), &at("replaced"), false, false).await.expect("renamed over it");
            client.link(&at("open"), &at("twice")).await.expect("linked");
            let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
            assert_eq!(client.set_attr(&at("open"), set).await.expect("set").mode, 0o600);
            assert_eq!(files[0].set_attr(set).await.expect("set").mode, 0o600);
            client.unlink(&at("removed")).await.expect("removed");
            // A truncation fails and names the server; the other servers keep their bytes.
            let error = client.truncate(&at("cut"), ByteLen(5)).await.expect_err("not cut");
            assert!(error.errno() == 5 && error.to_string().contains("server s2 "), "{error}");
            let flags = OpenFlags { truncate: true, ..crate::support::READ_WRITE };
            let error = client.open(&at("cut"), flags, 0, &LayoutSpec::default()).await.expect_err("not cut");
            assert!(error.errno() == 5 && error.to_string().contains("server s2 "), "{error}");
            assert!(read(&files[4], 0, 2 * 65_536).await == bytes[..2 * 65_536]);
            files.clear();
            // After the server is back, sizes are exact and the datafiles of removed files are gone from it.
            if silent {
                control.heal(&world.machines[0], &machine);
            } else {
                machine = control.restart(&machine);
                servers[2] = world.start_server(&machine, 2).await;
            }
            client.env().sleep(Nanos::from_s(20)).await;
            for name in ["open", "twice", "elsewhere", "cut"] {
                let known = other.stat_last_known(&at(name)).await.expect("there");
                assert_eq!((known.attr.size, known.error.is_none()), (len, true), "{name}");
            }
            assert_eq!(other.stat(&at("replaced")).await.expect("there").size, ByteLen(0));
            let left = other.list_datafiles(TargetId(2), None, 100).await.expect("listed");
            assert_eq!(left.len(), 3, "of open, elsewhere and cut: {left:?}");
            drop(servers);
        });
    }
}

#[test]
fn several_silent_servers_take_no_longer_than_one() {
    let mut sim = Sim::with_seed(7);
    let world = World::new(&sim, true);
    let control = sim.control();
    let main = control.process(&world.machines[0], "test", 1000, 1000);
    sim.block_on(&main, async move {
        let servers = world.start().await;
        let client = world.client("a", Transport::Auto);
        let bytes = pattern(4 * 65_536, 1);
        let file = open_over_all(&client, "f", &bytes).await;
        // A second connection to each server, as silent as the first.
        let twice = open_over_all(&client, "g", &bytes).await;
        for id in 1..4 {
            control.partition(&world.machines[0], &world.machines[id]);
        }
        let start = control.elapsed();
        assert_eq!(file.sync().await.expect_err("no answer").errno(), 5);
        let took = control.elapsed().saturating_sub(start);
        assert!(took <= Nanos::from_s(11), "request_timeout is 10 s, and it took {took}");
        // Servers known to be silent are not asked over other connections.
        let start = control.elapsed();
        let mut buf = vec![0; bytes.len()];
        let read = twice.read_at(&mut [IoSliceMut::new(&mut buf)], FileOffset(0)).await;
        assert_eq!(read.expect_err("no answer").errno(), 5);
        assert!(control.elapsed().saturating_sub(start) <= Nanos::from_s(1), "known to be silent");
        client.env().sleep(Nanos::from_s(5)).await;
        let start = control.elapsed();
        assert_eq!(client.statfs(None).await.expect("the metadata server answers").servers_missing, 3);
        let took = control.elapsed().saturating_sub(start);
        assert!(took <= Nanos::from_s(10), "one time-out for all, and it took {took}");
        for id in 1..4 {
            control.heal(&world.machines[0], &world.machines[id]);
        }
        client.env().sleep(Nanos::from_s(30)).await;
        file.sync().await.expect("answers again");
        assert!(crate::support::read(&twice, 0, bytes.len()).await == bytes);
        drop(servers);
    });
}

/// Creates, renames, links and removes names in one directory. Each change must happen exactly once.
async fn churn(client: Client<SimEnv>, rounds: u32) {
    let session = client.session().to_string();
    let dir = format!("d {session}");
    client.mkdir(&crate::support::at(&dir), 0o755).await.expect("mkdir");
    let exclusive = weft_client::OpenFlags { exclusive: true, ..crate::support::READ_WRITE };
    for round in 0..rounds {
        let name = |part: &str| crate::support::at(&format!("{dir}/{part}{round}"));
        let file = client.open(&name("a"), exclusive, 0o644, &Default::default()).await.expect("made once");
        crate::support::write(&file, 0, &crate::support::pattern(5000, u64::from(round))).await;
        client.rename(&name("a"), &name("b"), true, false).await.expect("renamed once");
        client.link(&name("b"), &name("c")).await.expect("linked once");
        client.unlink(&name("b")).await.expect("removed once");
        file.truncate(weft_core::ByteLen(4000)).await.expect("cut through the handle");
        assert_eq!(file.attr().await.expect("attributes").nlink, 1);
        file.close().await.expect("closed");
        assert_eq!(client.stat(&name("c")).await.expect("stat").size.0, 4000, "{dir} {round}");
        client.unlink(&name("c")).await.expect("removed once");
    }
    client.rmdir(&crate::support::at(&dir)).await.expect("is empty");
}

#[test]
fn changes_happen_once_across_crashes_of_the_metadata_server() {
    for seed in 0..8 {
        let mut sim = Sim::with_seed(seed);
        let world = World::new(&sim, seed % 2 == 0);
        let control = sim.control();
        let main = control.process(&world.machines[0], "test", 1000, 1000);
        let repeated = sim.block_on(&main, async move {
            let _servers = world.start().await;
            let left = Arc::new(AtomicU32::new(3));
            let mut clients = Vec::new();
            for name in ["a", "b", "c"] {
                let client = world.client(name, Transport::Auto);
                clients.push(client.clone());
                let left = Arc::clone(&left);
                let env = client.env().clone();
                let task = move || async move {
                    churn(client, 60).await;
                    left.fetch_sub(1, SeqCst);
                };
                env.spawn("churn", task).expect("a task");
            }
            let mut rng = control.rng();
            let mut server = world.machines[0].clone();
            let mut crashes = 0;
            while left.load(SeqCst) > 0 {
                // A start takes several syncs, because the server attaches its target. With shorter lives, the
                // clients, which pause between attempts, would hardly ever meet a running server.
                clients[0].env().sleep(Nanos(6_000_000 + rng.below(20_000_000))).await;
                control.kill(&server);
                server = control.restart(&server);
                world.start_server(&server, 0).await;
                crashes += 1;
                assert!(crashes < 2000, "seed {seed}: no end");
            }
            clients.iter().map(|client| client.counts().repeated).sum::<u64>()
        });
        assert!(repeated > 3, "seed {seed}: the crashes hit nothing");
    }
}

/// A client with a lock only computes while the metadata server crashes and restarts.
fn lock_over_an_outage(others_lock_it: bool) {
    let mut sim = Sim::with_seed(9);
    let world = World::new(&sim, true);
    let control = sim.control();
    let main = control.process(&world.machines[0], "test", 1000, 1000);
    let env = main.clone();
    sim.block_on(&main, async move {
        let mut servers = world.start().await;
        let clients = [world.client("a", Transport::Auto), world.client("b", Transport::Auto)];
        let mine = crate::support::open(&clients[0], "f", 65_536).await;
        let bytes = crate::support::pattern(100_000, 1);
        crate::support::write(&mine, 0, &bytes).await;
        let whole = LockRange { start: 0, end: u64::MAX };
        let (space, owner, kind) = (LockSpace::Record, LockOwner::Process(1), LockKind::Exclusive);
        mine.lock(space, owner, kind, whole, Wait::No).await.expect("free");

        control.kill(&world.machines[0]);
        let machine = control.restart(&world.machines[0]);
        servers[0] = world.start_server(&machine, 0).await;
        if others_lock_it {
            let theirs = crate::support::open(&clients[1], "f", 65_536).await;
            theirs
                .lock(space, owner, kind, whole, Wait::Until(&mut || false))
                .await
                .expect("after the grace");
            theirs.unlock(space, owner, whole).await.expect("released");
        }
        env.sleep(Nanos::from_s(10)).await;

        let written = mine.write_at(&[IoSlice::new(&bytes)], FileOffset(0)).await;
        if !others_lock_it {
            assert_eq!(written.expect("the lock is there again"), bytes.len());
            let taken = crate::support::open(&clients[1], "f", 65_536).await;
            assert!(taken.lock(space, owner, kind, whole, Wait::No).await.is_err());
            return;
        }
        assert_eq!(written.expect_err("without the lock").errno(), Errno::EIO.0);
        let mut part = [0; 10];
        let read = mine.read_at(&mut [IoSliceMut::new(&mut part)], FileOffset(0)).await;
        assert_eq!(read.expect_err("without the lock").errno(), Errno::EIO.0);
        assert!(mine.truncate(ByteLen(5)).await.is_err());
        // Another open file of the same session gets the error, too.
        let again = crate::support::open(&clients[0], "f", 65_536).await;
        assert!(again.write_at(&[IoSlice::new(b"x")], FileOffset(0)).await.is_err());
        mine.unlock(space, owner, whole).await.expect("released");
        assert_eq!(crate::support::read(&mine, 0, bytes.len()).await, bytes);
        mine.lock(space, owner, kind, whole, Wait::No).await.expect("free");
        crate::support::write(&mine, 0, &bytes).await;
        drop(servers);
    });
}

#[test]
fn a_lock_is_kept_across_an_outage_if_no_other_session_took_it() {
    lock_over_an_outage(false);
}

#[test]
fn a_lock_taken_by_another_session_during_an_outage_is_an_error_for_its_former_holder() {
    lock_over_an_outage(true);
}

#[test]
fn a_flock_whose_conversion_failed_is_neither_reclaimed_nor_lost() {
    let mut sim = Sim::with_seed(10);
    let world = World::new(&sim, true);
    let control = sim.control();
    let main = control.process(&world.machines[0], "test", 1000, 1000);
    sim.block_on(&main, async move {
        let mut servers = world.start().await;
        let clients = [world.client("a", Transport::Auto), world.client("b", Transport::Auto)];
        let mine = crate::support::open(&clients[0], "f", 65_536).await;
        let theirs = crate::support::open(&clients[1], "f", 65_536).await;
        let whole = LockRange { start: 0, end: u64::MAX };
        let (space, owner) = (LockSpace::Flock, LockOwner::Process(1));
        for file in [&mine, &theirs] {
            file.lock(space, owner, LockKind::Shared, whole, Wait::No).await.expect("shared");
        }
        let converted = mine.lock(space, owner, LockKind::Exclusive, whole, Wait::No).await;
        assert_eq!(converted.expect_err("shared with the other").errno(), Errno::EAGAIN.0);
        assert!(mine.held_lock(space, owner, whole).is_none());
        theirs.lock(space, owner, LockKind::Exclusive, whole, Wait::No).await.expect("the only one");

        control.kill(&world.machines[0]);
        let machine = control.restart(&world.machines[0]);
        servers[0] = world.start_server(&machine, 0).await;
        crate::support::write(&mine, 0, b"without a lock").await;
        assert!(theirs.held_lock(space, owner, whole).is_some());
        crate::support::write(&theirs, 0, b"with a lock").await;
        drop(servers);
    });
}

/// Returns a rule: all targets up to a length at which two files fill the SSDs, then HDDs.
fn ruled() -> Rule {
    let part = |end, stripes: &[(&str, u64)]| ClassPart {
        end,
        stripes: stripes.iter().map(|(class, size)| ((*class).to_owned(), ByteLen(*size))).collect(),
    };
    let parts = vec![
        part(Some(FileOffset(140_960)), &[("hdd", 4096), ("ssd", 10_000)]),
        part(None, &[("hdd", 16_384)]),
    ];
    let layout = LayoutSpec { by_class: ClassLayout::new(parts).ok(), ..LayoutSpec::default() };
    Rule { pattern: "f{n}".parse().expect("a pattern"), layout }
}

#[test]
fn files_continue_on_other_targets_when_capacity_ends_and_the_account_survives_crashes() {
    const CAPACITY: u64 = 130_000;
    for seed in 0..6 {
        let mut sim = Sim::with_seed(seed);
        let mut world = World::new(&sim, true);
        world.plan.capacities = [(TargetId(2), ByteLen(CAPACITY)), (TargetId(3), ByteLen(CAPACITY))].into();
        let control = sim.control();
        let main = control.process(&world.machines[0], "test", 1000, 1000);
        let clock = main.clone();
        sim.block_on(&main, async move {
            let mut servers = world.start().await;
            let mut machines = world.machines.clone();
            let client = world.client("a", Transport::Auto);
            client.mkdir(&at("d"), 0o755).await.expect("made");
            client.mkdir(&at("d/e"), 0o755).await.expect("made");
            client.change_rules(&at("d"), RuleRemoval::All, vec![ruled()]).await.expect("set");
            let flags = OpenFlags { read: true, write: true, create: true, ..OpenFlags::default() };
            let account = async |client: &Client<SimEnv>| {
                let status = client.status(ServerId(0)).await.expect("up").metadata.expect("it has it");
                let promised = status
                    .space_reservations
                    .iter()
                    .map(|reservation| reservation.reserved.0)
                    .collect::<Vec<_>>();
                (promised, status.reaping)
            };
            let mut ends = Vec::new();
            for n in 0..5u64 {
                let path = format!("d/e/f{n}");
                let file = client.open(&at(&path), flags, 0o644, &LayoutSpec::default()).await.expect("made");
                let bytes = pattern(300_000, seed * 10 + n);
                for (chunk, part) in bytes.chunks(70_000).enumerate() {
                    write(&file, chunk as u64 * 70_000, part).await;
                    if chunk == 2 {
                        // A server process is killed, and another one takes its place.
                        let id = (seed + n) as usize % SERVERS as usize;
                        control.kill(&machines[id]);
                        machines[id] = control.restart(&machines[id]);
                        servers[id] = world.start_server(&machines[id], id as u32).await;
                    }
                }
                let (layout, _) = client.get_layout(&at(&path)).await.expect("there");
                ends.push(layout.expect("striped").components()[0].end.map_or(0, |end| end.0));
                assert_eq!(read(&file, 0, bytes.len()).await, bytes, "seed {seed}, {path}");
            }
            // A round takes 28,192 bytes, 10,000 of them on each SSD. The SSDs have space for 13 rounds: five, five,
            // and three.
            assert_eq!(ends, [140_960, 140_960, 84_576, 0, 0], "seed {seed}");
            for n in 0..5u64 {
                let (place, open) = (at(&format!("d/e/f{n}")), LayoutSpec::default());
                let file = client.open(&place, OpenFlags::READ, 0, &open).await.expect("there");
                assert_eq!(read(&file, 0, 300_000).await, pattern(300_000, seed * 10 + n), "seed {seed}");
            }
            let full = account(&client).await.0;
            assert_eq!(full, [CAPACITY; 2]);
            // After the session ends, no file is open any more.
            client.unlink(&at("d/e/f0")).await.expect("there");
            drop(client);
            let client = world.client("b", Transport::Auto);
            while account(&client).await.1 > 0 {
                clock.sleep(Nanos::from_ms(100)).await; // virtual time, until the reaper is done
            }
            let now = account(&client).await.0;
            assert_eq!(now, [CAPACITY - 50_000; 2]);
            let file = client.open(&at("d/f9"), flags, 0o644, &LayoutSpec::default()).await.expect("made");
            drop(file);
            let (layout, _) = client.get_layout(&at("d/f9")).await.expect("there");
            assert_eq!(layout.expect("striped").components().len(), 2, "space again");
            let report = client.check_namespace(false).await.expect("an administrator");
            assert_eq!(report.problems, Vec::<String>::new(), "seed {seed}");
        });
    }
}

/// Flags for reading and writing an existing file.
const UPDATE: OpenFlags = OpenFlags { write: true, ..OpenFlags::READ };

#[test]
fn an_open_waits_for_delegates_of_a_job_and_names_the_file_if_they_do_not_answer() {
    let mut sim = Sim::with_seed(7);
    let world = World::new(&sim, true);
    let control = sim.control();
    let main = control.process(&world.machines[0], "test", 1000, 1000);
    sim.block_on(&main, async move {
        let mut servers = world.start().await;
        let mut machines = world.machines.clone();
        let rank = world.client_of_job("rank", JobNumber(5));
        let delegate = world.client_of_job("delegate", JobNumber(5));
        let outside = world.client("outside", Transport::Auto);
        let file = crate::support::open(&rank, "f", 65_536).await;
        delegate.listen().await.expect("connects");
        let cached = delegate.adopt_to_cache(&file.token()).await.expect("adopts");
        assert!(cached.receives_invalidations());

        // A delegate that hangs.
        let start = control.elapsed();
        let error =
            outside.open(&at("f"), UPDATE, 0, &LayoutSpec::default()).await.expect_err("nobody answers");
        assert_eq!(error.errno(), Errno::EBUSY.0);
        assert!(error.to_string().contains("f: ") && error.to_string().contains("I/O delegates"), "{error}");
        let took = control.elapsed().saturating_sub(start);
        assert!((Nanos::from_s(30)..Nanos::from_s(32)).contains(&took), "{took}");
        let error = outside.truncate(&at("f"), ByteLen(1)).await.expect_err("nobody answers");
        assert_eq!(error.errno(), Errno::EBUSY.0, "{error}");

        // A delegate that answers.
        let answering = delegate.clone();
        let env = delegate.env().clone();
        env.spawn("delegate", move || async move {
            let mut done = 0;
            while let Ok(events) = answering.wait_events(done).await {
                done = events.last().map_or(done, |event| event.number);
            }
        })
        .expect("a task");
        let start = control.elapsed();
        let other = outside.open(&at("f"), UPDATE, 0, &LayoutSpec::default()).await.expect("opens");
        assert!(control.elapsed().saturating_sub(start) < Nanos::from_s(1));
        outside.truncate(&at("f"), ByteLen(1)).await.expect("cuts");
        assert_eq!(file.size().await.expect("has a size"), ByteLen(1));

        // After a restart of the metadata service, the program outside has the file open: the delegate may not cache it.
        control.kill(&machines[0]);
        machines[0] = control.restart(&machines[0]);
        servers[0] = world.start_server(&machines[0], 0).await;
        other.attr().await.expect("its session returns");
        delegate.listen().await.expect("connects");
        assert!(!cached.receives_invalidations(), "reclaimed after the other program");
        let fresh = delegate.adopt_to_cache(&file.token()).await.expect("adopts");
        assert!(!fresh.receives_invalidations());
        drop(servers);
    });
}
