//! Replicas of Weft's own files, while programs use the files.

use crate::support::model::Random;
use crate::support::world::World;
use crate::support::{READ_WRITE, at, open, pattern, read, write};
use std::io::IoSlice;
use weft_client::replicas::{Phase, Purpose, Unpaced};
use weft_client::{Client, ClientOptions, Credentials, Key, LayoutSpec, OpenFile, OpenFlags, Transport};
use weft_core::replicas::{MappedExtent, Mapping};
use weft_core::{ByteLen, Extent, FileOffset, Nanos, Reserve, TargetId};
use weft_env::Env;
use weft_env::sim::{DiskFaults, Sim, SimEnv};

/// Requests of `ranks` processes, interleaved, each process with an object of its own.
fn strided(ranks: u64, len: u64, count: u64) -> Mapping {
    let place = |number: u64| MappedExtent {
        start: number * len,
        len,
        at: number % ranks * count * len + number / ranks * len,
    };
    Mapping::of_pieces((0..ranks * count).map(place).collect()).expect("a mapping")
}

/// Pieces of random lengths with gaps, in random places of the replica.
fn scattered(random: &mut Random, span: u64) -> Mapping {
    let (mut pieces, mut start) = (Vec::new(), random.below(20_000));
    while start < span {
        let len = 1 + random.below(60_000);
        pieces.push(MappedExtent { start, len, at: 0 });
        start += len + random.below(3) * random.below(40_000);
    }
    let mut order: Vec<usize> = (0..pieces.len()).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, random.below(last as u64 + 1) as usize);
    }
    let mut at = 0;
    for number in order {
        pieces[number].at = at;
        at += pieces[number].len + random.below(2) * 100;
    }
    Mapping::of_pieces(pieces).expect("a mapping")
}

fn client_of(world: &World, name: &str, ranks: Option<u32>) -> Client<SimEnv> {
    client_on(world, 0, name, ranks)
}

/// Client of a program on a machine, by its number.
fn client_on(world: &World, machine: usize, name: &str, ranks: Option<u32>) -> Client<SimEnv> {
    let env = world.control.process(&world.machines[machine], name, 1000, 1000);
    let key = Key::Cluster(Box::new(crate::support::secret()));
    let credentials = Credentials::user(1000, 1000, vec![]).with_key(key);
    let options = ClientOptions { ranks, ..crate::support::options(Transport::Auto) };
    Client::new(env, world.plan.map.clone(), options, credentials)
}

fn on_targets(targets: &[u32]) -> LayoutSpec {
    let strips = targets.iter().map(|&target| (TargetId(target), ByteLen(65_536))).collect();
    LayoutSpec { strips: Some(strips), ..LayoutSpec::default() }
}

/// Runs `body` on a cluster, with the client of a program of four processes and that of a program without others.
fn on_cluster<F: Future<Output = ()>>(
    seed: u64,
    body: impl FnOnce(World, Client<SimEnv>, Client<SimEnv>) -> F,
) {
    let mut sim = Sim::with_seed(seed);
    let world = World::new(&sim, true);
    let main = sim.control().process(&world.machines[0], "test", 1000, 1000);
    sim.block_on(&main, async move {
        let servers = world.start().await;
        let (four, one) = (client_of(&world, "four", Some(4)), client_of(&world, "one", None));
        body(world, four, one).await;
        drop(servers);
    });
}

async fn phase(client: &Client<SimEnv>) -> (Phase, bool, bool) {
    let info = client.replica(&at("f")).await.expect("asked").expect("a replica");
    (info.phase, info.is_used, !info.dirty.is_empty())
}

#[test]
fn a_replica_serves_its_program_and_every_opener_sees_the_same_bytes() {
    on_cluster(1, async |_, four, one| {
        let mut bytes = pattern(1_000_000, 3);
        let file = open(&one, "f", 10_000).await;
        write(&file, 0, &bytes).await;
        let mapping = strided(4, 4096, 50);
        // While a program has it open for writing, no copy would be good.
        let busy = four.create_replica(&at("f"), &mapping, 4, &on_targets(&[1, 3]), &mut Unpaced).await;
        assert_eq!(busy.expect_err("it is open").errno(), libc::EBUSY);
        assert!(four.replica(&at("f")).await.expect("asked").is_none(), "nothing is left of it");
        file.close().await.expect("closed");
        let copied = four.create_replica(&at("f"), &mapping, 4, &on_targets(&[1, 3]), &mut Unpaced).await;
        assert_eq!(copied.expect("created"), 4 * 4096 * 50);
        let again = one.create_replica(&at("f"), &mapping, 4, &LayoutSpec::default(), &mut Unpaced).await;
        assert_eq!(again.expect_err("it has one").errno(), libc::EEXIST);
        let compared = one.verify_replica(&at("f"), &mut Unpaced).await.expect("compared").expect("valid");
        assert_eq!((compared.compared, compared.differing), (4 * 4096 * 50, 0));
        assert_eq!(one.replica_mapping(&at("f")).await.expect("read"), mapping);

        // Another program uses the file, and no byte of the replica.
        let alone = open(&one, "f", 1).await;
        assert!(!alone.uses_replica());
        let joined = open(&four, "f", 1).await;
        assert!(!joined.uses_replica(), "the first open decides");
        drop(joined);
        alone.close().await.expect("closed");
        // It was open for writing.
        one.flush().await.expect("flushed");
        assert_eq!(phase(&one).await, (Phase::Outdated, false, false));
        let copied = four.create_replica(&at("f"), &mapping, 4, &on_targets(&[1, 3]), &mut Unpaced).await;
        assert_eq!(copied.expect("replaces the outdated one"), 4 * 4096 * 50);

        let (fast, other) = (open(&four, "f", 1).await, open(&one, "f", 1).await);
        assert!(fast.uses_replica() && other.uses_replica(), "the first open decides");
        assert!(read(&fast, 0, 1_000_001).await == bytes && read(&other, 0, 1_000_001).await == bytes);
        // Within a piece, across pieces, across the end of the mapping, behind the end of the file.
        for (offset, len) in [(5000, 10), (4000, 9000), (800_000, 50_000), (1_000_000, 7)] {
            let newer = pattern(len, offset);
            let writer = if len % 2 == 0 { &fast } else { &other };
            write(writer, offset, &newer).await;
            bytes.resize(bytes.len().max(offset as usize + len), 0);
            bytes[offset as usize..offset as usize + len].copy_from_slice(&newer);
            assert!(read(&other, 0, 1_100_000).await == bytes, "{offset}");
            assert!(read(&fast, 0, 1_100_000).await == bytes, "{offset}");
        }
        assert_eq!(phase(&one).await, (Phase::Valid, true, true));
        let busy = one.synchronize_replica(&at("f"), &mut Unpaced).await;
        assert_eq!(busy.expect_err("it is open for writing").errno(), libc::EAGAIN);
        let busy = one.drop_replica(&at("f"), false).await;
        assert_eq!(busy.expect_err("it is in use").errno(), libc::EBUSY);
        fast.close().await.expect("closed");
        other.close().await.expect("closed");
        one.flush().await.expect("flushed");
        four.flush().await.expect("flushed");
        let dirty = one.drop_replica(&at("f"), false).await;
        assert_eq!(dirty.expect_err("it has newer bytes").errno(), libc::EBUSY);

        // A program that it does not serve uses it as long as it has newer bytes.
        let other = one.open(&at("f"), OpenFlags::READ, 0, &LayoutSpec::default()).await.expect("opens");
        assert!(other.uses_replica() && read(&other, 0, 1_100_000).await == bytes);
        drop(other);
        let copied = one.synchronize_replica(&at("f"), &mut Unpaced).await.expect("copied");
        assert_eq!(copied, Some(4 * 4096 * 50), "the region");
        assert_eq!(phase(&one).await, (Phase::Valid, true, false));
        one.flush().await.expect("flushed");
        let other = one.open(&at("f"), OpenFlags::READ, 0, &LayoutSpec::default()).await.expect("opens");
        assert!(!other.uses_replica() && read(&other, 0, 1_100_000).await == bytes);
        drop(other);
        one.flush().await.expect("flushed");
        one.drop_replica(&at("f"), false).await.expect("dropped");
        let file = open(&four, "f", 1).await;
        assert!(!file.uses_replica() && read(&file, 0, 1_100_000).await == bytes);
    });
}

#[test]
fn names_links_modes_and_removal_leave_a_replica_with_its_file() {
    on_cluster(2, async |_, four, one| {
        let bytes = pattern(300_000, 3);
        let file = open(&one, "f", 10_000).await;
        write(&file, 0, &bytes).await;
        file.close().await.expect("closed");
        let count = async || one.statfs(None).await.expect("asked").inodes;
        let before = count().await;
        four.create_replica(&at("f"), &strided(4, 4096, 10), 0, &LayoutSpec::default(), &mut Unpaced)
            .await
            .expect("created");
        four.rename(&at("f"), &at("g"), false, false).await.expect("renamed");
        four.link(&at("g"), &at("h")).await.expect("linked");
        for name in ["g", "h"] {
            let file = one.open(&at(name), OpenFlags::READ, 0, &LayoutSpec::default()).await.expect("opens");
            assert!(file.uses_replica() && read(&file, 0, 300_001).await == bytes, "{name}");
        }
        let listed = one.replicas().await.expect("listed");
        assert_eq!(listed.iter().map(|info| &info.path[..]).collect::<Vec<_>>(), [b"g"]);
        let report = one.check_namespace(false).await.expect("checked");
        assert_eq!(report.problems, Vec::<String>::new());
        one.unlink(&at("g")).await.expect("removed");
        assert_eq!(count().await, before + 1, "the file and its replica");
        // Open to the end, and removed with the file.
        let file = open(&one, "h", 1).await;
        one.unlink(&at("h")).await.expect("removed");
        write(&file, 5000, b"newer").await;
        assert_eq!(read(&file, 5000, 5).await, b"newer");
        drop(file);
        one.flush().await.expect("flushed");
        assert_eq!(count().await, before - 1);
        assert!(one.replicas().await.expect("listed").is_empty());
    });
}

/// A server of the replica is down: clean bytes come from the file, and newer ones are an error that names the replica.
#[test]
fn without_its_server_a_replica_is_skipped_unless_it_has_newer_bytes() {
    on_cluster(3, async |world, four, one| {
        let bytes = pattern(3_000_000, 3);
        let spec = on_targets(&[0, 1]);
        let file = one.open(&at("f"), READ_WRITE, 0o644, &spec).await.expect("opens");
        write(&file, 0, &bytes).await;
        file.close().await.expect("closed");
        // Regions of 1 MiB: the first one will be newer.
        let mapping = strided(4, 4096, 150);
        four.create_replica(&at("f"), &mapping, 0, &on_targets(&[3]), &mut Unpaced).await.expect("created");
        let file = open(&four, "f", 1).await;
        write(&file, 0, b"newer").await;
        file.sync().await.expect("synced");
        world.control.kill(&world.machines[3]);
        let clean = read(&file, 3 * 4096, 4096).await;
        assert!(clean == bytes[3 * 4096..][..4096], "of the region that has no newer bytes");
        let mut buffer = vec![0; 4096];
        let refused = file.read_at(&mut [std::io::IoSliceMut::new(&mut buffer)], FileOffset(0)).await;
        let refused = refused.expect_err("the file does not have them");
        assert_eq!(refused.errno(), libc::EIO);
        assert!(refused.to_string().contains("replica of f"), "{refused}");
    });
}

/// A region is marked before its first byte is written: a write that cannot reach the metadata server changes nothing. Else
/// its bytes would vanish with the replica, which has no marks, after others have read them.
fn write_without_a_mark() {
    on_cluster(6, async |world, four, _| {
        let bytes = pattern(300_000, 3);
        let file = open(&four, "f", 10_000).await;
        write(&file, 0, &bytes).await;
        file.close().await.expect("closed");
        let mapping = strided(4, 4096, 10);
        four.create_replica(&at("f"), &mapping, 0, &on_targets(&[1, 3]), &mut Unpaced)
            .await
            .expect("created");
        let far = client_on(&world, 2, "far", None);
        let (reader, writer) = (
            four.open(&at("f"), OpenFlags::READ, 0, &LayoutSpec::default()).await.expect("opens"),
            open(&far, "f", 1).await,
        );
        assert!(reader.uses_replica() && writer.uses_replica());
        assert!(read(&writer, 0, 300_001).await == bytes);
        world.control.partition(&world.machines[0], &world.machines[2]);
        let refused = writer.write_at(&[IoSlice::new(b"newer")], FileOffset(4096)).await;
        assert_eq!(refused.expect_err("no mark").errno(), libc::EIO);
        world.control.heal(&world.machines[0], &world.machines[2]);
        assert!(read(&reader, 0, 300_001).await == bytes, "written without a mark");
    });
}

#[test]
fn a_write_that_cannot_be_marked_changes_nothing() {
    write_without_a_mark();
}

/// The metadata server restarts while programs use replicas. Nobody changes sides.
#[test]
fn decisions_survive_a_restart_of_the_metadata_server() {
    let mut sim = Sim::with_seed(5);
    let world = World::new(&sim, true);
    let control = sim.control();
    let main = control.process(&world.machines[0], "test", 1000, 1000);
    sim.block_on(&main, async move {
        let mut servers = world.start().await;
        let (four, one) = (client_of(&world, "four", Some(4)), client_of(&world, "one", None));
        let mut bytes = pattern(300_000, 3);
        let file = open(&one, "f", 10_000).await;
        write(&file, 0, &bytes).await;
        file.close().await.expect("closed");
        let mapping = strided(4, 4096, 10);
        four.create_replica(&at("f"), &mapping, 4, &LayoutSpec::default(), &mut Unpaced)
            .await
            .expect("created");
        let file = open(&four, "f", 1).await;
        assert!(file.uses_replica());
        control.kill(&world.machines[0]);
        let machine = control.restart(&world.machines[0]);
        servers[0] = world.start_server(&machine, 0).await;
        let env = control.process(&machine, "late", 1000, 1000);
        let key = Key::Cluster(Box::new(crate::support::secret()));
        let credentials = Credentials::user(1000, 1000, vec![]).with_key(key);
        let late =
            Client::new(env, world.plan.map.clone(), crate::support::options(Transport::Auto), credentials);
        // The first client may still write to the replica, whatever the newcomer is.
        let other = open(&late, "f", 1).await;
        assert!(other.uses_replica());
        write(&other, 4000, b"newer").await;
        bytes[4000..4005].copy_from_slice(b"newer");
        assert!(read(&other, 0, 300_001).await == bytes);
        drop((file, four, one));
        drop(servers);
    });
}

#[test]
fn when_a_target_fills_up_the_least_useful_replicas_go() {
    const MIB: u64 = 1 << 20;
    let mut sim = Sim::with_seed(11);
    let mut world = World::new(&sim, true);
    world.plan.ask_every = Some(Nanos::from_s(1));
    world.plan.reserves = [(TargetId(3), Reserve::Bytes(ByteLen(4 * MIB)))].into();
    let main = sim.control().process(&world.machines[0], "test", 1000, 1000);
    sim.block_on(&main, async move {
        let servers = world.start().await;
        let small = DiskFaults { capacity_bytes: 16 * MIB, ..DiskFaults::default() };
        world.control.set_disk_faults(&world.machines[3], "/".as_ref(), small);
        let (four, one) = (client_of(&world, "four", Some(4)), client_of(&world, "one", None));
        let (mapping, bytes) = (strided(4, 65_536, 12), pattern(3 << 20, 3));
        for (name, gain_s) in [("useful", 9), ("useless", 1)] {
            let made = one.open(&at(name), READ_WRITE, 0o644, &on_targets(&[0])).await.expect("made");
            write(&made, 0, &bytes).await;
            made.close().await.expect("closed");
            let purpose = Purpose { ranks: 4, gain: Nanos::from_s(gain_s) };
            four.create_replica(&at(name), &mapping, purpose, &on_targets(&[3]), &mut Unpaced)
                .await
                .expect("created");
        }
        let replicas = async || {
            four.env().sleep(Nanos::from_s(5)).await; // virtual time: several polls and removals
            let found = [four.replica(&at("useful")).await, four.replica(&at("useless")).await];
            found.map(|found| found.expect("asked").is_some())
        };
        assert_eq!(replicas().await, [true, true], "space for all");
        let filler = one.open(&at("filler"), READ_WRITE, 0o644, &on_targets(&[3])).await.expect("made");
        write(&filler, 0, &pattern(6 << 20, 4)).await;
        assert_eq!(replicas().await, [true, false], "1 MiB is missing");
        let used = open(&four, "useful", 1).await;
        assert!(used.uses_replica());
        write(&filler, 6 * MIB, &pattern(3 << 20, 5)).await;
        assert_eq!(replicas().await, [true, false], "it is in use");
        write(&used, 4000, b"newer").await;
        used.close().await.expect("closed");
        assert_eq!(replicas().await, [true, false], "it has bytes that the file does not have");
        four.synchronize_replica(&at("useful"), &mut Unpaced).await.expect("synchronized");
        assert_eq!(replicas().await, [false, false]);
        let mut expected = bytes;
        expected[4000..4005].copy_from_slice(b"newer");
        let file = open(&four, "useful", 1).await;
        assert!(!file.uses_replica());
        assert!(read(&file, 0, expected.len() + 1).await == expected);
        let report = one.check_namespace(false).await.expect("an administrator");
        assert_eq!(report.problems, Vec::<String>::new());
        drop((file, filler, servers));
    });
}

/// One open file of a program.
async fn reopen(handle: &mut Option<OpenFile<SimEnv>>, client: &Client<SimEnv>, truncate: bool) {
    if let Some(file) = handle.take() {
        file.close().await.expect("closed");
        client.flush().await.expect("flushed");
    }
    let flags = OpenFlags { truncate, ..READ_WRITE };
    *handle = Some(client.open(&at("f"), flags, 0o644, &LayoutSpec::default()).await.expect("opens"));
}

/// Runs random operations of three programs on one file, which gets, uses and loses replicas. Returns how many
/// operations met a used replica, and how many synchronizations copied bytes.
fn use_and_replicate(seed: u64) -> (u32, u32) {
    let mut sim = Sim::with_seed(seed);
    let world = World::new(&sim, true);
    let main = sim.control().process(&world.machines[0], "test", 1000, 1000);
    sim.block_on(&main, async move {
        let servers = world.start().await;
        let clients: Vec<Client<SimEnv>> = [Some(4), Some(4), None]
            .iter()
            .enumerate()
            .map(|(number, ranks)| client_of(&world, &format!("c{number}"), *ranks))
            .collect();
        let keeper = client_of(&world, "keeper", None);
        let mut random = Random::new(seed);
        let mut handles: Vec<Option<OpenFile<SimEnv>>> = clients.iter().map(|_| None).collect();
        let mut bytes: Vec<u8> = Vec::new();
        let (mut used, mut synchronized) = (0, 0);
        reopen(&mut handles[0], &clients[0], false).await;
        for step in 0..250u64 {
            let which = random.below(3) as usize;
            if handles[which].is_none() {
                reopen(&mut handles[which], &clients[which], false).await;
            }
            let file = handles[which].clone().expect("open");
            used += u32::from(file.uses_replica());
            let (offset, len) = (random.below(500_000), random.below(60_000) as usize);
            match random.below(24) {
                0..8 => {
                    let newer = pattern(len, step);
                    write(&file, offset, &newer).await;
                    let end = offset as usize + len;
                    if len > 0 {
                        bytes.resize(bytes.len().max(end), 0);
                        bytes[offset as usize..end].copy_from_slice(&newer);
                    }
                }
                8..12 => {
                    let got = read(&file, offset, len).await;
                    let want =
                        &bytes[bytes.len().min(offset as usize)..bytes.len().min(offset as usize + len)];
                    assert!(got == want, "seed {seed}, step {step}: {len} bytes at {offset}");
                }
                12 => {
                    file.truncate(ByteLen(offset)).await.expect("truncates");
                    bytes.resize(offset as usize, 0);
                }
                13 => {
                    clients[which].truncate(&at("f"), ByteLen(offset)).await.expect("truncates");
                    bytes.resize(offset as usize, 0);
                }
                14 => {
                    let newer = pattern(len.max(1), step);
                    let (place, _) = file.append(&[IoSlice::new(&newer)]).await.expect("appends");
                    assert_eq!(place.0, bytes.len() as u64, "seed {seed}, step {step}");
                    bytes.extend(newer);
                }
                15 => {
                    file.punch(Extent::new(offset, len as u64)).await.expect("punches");
                    let end = bytes.len().min(offset as usize + len);
                    bytes[(offset as usize).min(end)..end].fill(0);
                }
                16 => file.sync().await.expect("syncs"),
                17 => {
                    reopen(&mut handles[which], &clients[which], true).await;
                    bytes.clear();
                }
                18..20 => {
                    drop(file);
                    for (handle, client) in handles.iter_mut().zip(&clients) {
                        if let Some(file) = handle.take() {
                            file.close().await.expect("closed");
                            client.flush().await.expect("flushed");
                        }
                    }
                    let mapping = match random.below(2) {
                        0 => strided(4, 1 + random.below(9000), 1 + random.below(30)),
                        _ => scattered(&mut random, 600_000),
                    };
                    if random.below(2) == 0 {
                        keeper
                            .drop_replica(&at("f"), false)
                            .await
                            .or_else(|error| {
                                if [libc::ENOENT, libc::EBUSY].contains(&error.errno()) {
                                    Ok(())
                                } else {
                                    Err(error)
                                }
                            })
                            .expect("dropped, or none, or newer");
                    }
                    let targets: &[u32] = [&[0, 1, 2, 3][..], &[2], &[3, 1]][random.below(3) as usize];
                    let ranks = [0, 4][random.below(2) as usize];
                    let made = keeper
                        .create_replica(&at("f"), &mapping, ranks, &on_targets(targets), &mut Unpaced)
                        .await;
                    assert!(made.as_ref().is_ok_or_errno(libc::EEXIST), "seed {seed}: {made:?}");
                }
                20..22 => {
                    if random.below(2) == 0 {
                        drop(file);
                        for (handle, client) in handles.iter_mut().zip(&clients) {
                            if let Some(file) = handle.take() {
                                file.close().await.expect("closed");
                                client.flush().await.expect("flushed");
                            }
                        }
                    }
                    match keeper.synchronize_replica(&at("f"), &mut Unpaced).await {
                        Ok(copied) => synchronized += u32::from(copied.is_some_and(|copied| copied > 0)),
                        Err(error) => assert_eq!(error.errno(), libc::EAGAIN, "seed {seed}: {error}"),
                    }
                    keeper.flush().await.expect("flushed");
                }
                22 => {
                    let size = file.size().await.expect("asked").0;
                    assert_eq!(size, bytes.len() as u64, "seed {seed}, step {step}");
                }
                _ => {
                    reopen(&mut handles[which], &clients[which], false).await;
                }
            }
        }
        if let Ok(Some(found)) = keeper.verify_replica(&at("f"), &mut Unpaced).await {
            assert_eq!(found.differing, 0, "seed {seed}: {found:?}");
        }
        let last = open(&keeper, "f", 1).await;
        let got = read(&last, 0, bytes.len() + 1).await;
        assert!(
            got == bytes,
            "seed {seed}: at the end, first difference at {:?}",
            got.iter().zip(&bytes).position(|(a, b)| a != b)
        );
        let report = keeper.check_namespace(false).await.expect("checked");
        assert_eq!(report.problems, Vec::<String>::new(), "seed {seed}");
        drop((last, handles, clients, keeper));
        main_env_sleep(&world).await;
        drop(servers);
        (used, synchronized)
    })
}

/// Lets closes that were sent on the way arrive.
async fn main_env_sleep(world: &World) {
    world.machines[0].sleep(Nanos::from_ms(10)).await;
}

trait OkOrErrno {
    fn is_ok_or_errno(&self, errno: i32) -> bool;
}

impl<T> OkOrErrno for Result<T, &weft_client::Error> {
    fn is_ok_or_errno(&self, errno: i32) -> bool {
        self.as_ref().map_or_else(|error| error.errno() == errno, |_| true)
    }
}

#[test]
fn programs_read_what_they_wrote_while_replicas_come_and_go() {
    let (mut used, mut synchronized) = (0, 0);
    for seed in 0..16 {
        let (some, copies) = use_and_replicate(seed);
        (used, synchronized) = (used + some, synchronized + copies);
    }
    assert!(used > 200 && synchronized > 8, "{used} operations on replicas, {synchronized} synchronizations");
}

/// Each seeded bug makes a run fail.
#[cfg(feature = "mutants")]
#[test]
fn seeded_bugs_are_found() {
    use weft_env::mutants::{self, Mutant};
    let finds = |mutant, run: &dyn Fn() -> bool| {
        mutants::seed(Some(mutant));
        let found = run();
        mutants::seed(None);
        assert!(found, "{mutant:?} is not found");
    };
    for mutant in
        [Mutant::ForgottenRegion, Mutant::ReplicaAfterCut, Mutant::LooseReplica, Mutant::KeptReplica]
    {
        finds(mutant, &|| (0..40).any(|seed| std::panic::catch_unwind(|| use_and_replicate(seed)).is_err()));
    }
    finds(Mutant::LateReplicaMark, &|| std::panic::catch_unwind(write_without_a_mark).is_err());
}
