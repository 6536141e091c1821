//! Files that are moved to other layouts while they are used.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use support::world::World;
use support::{READ_WRITE, Reach, RealCluster, SERVERS, at, model, open, options, pattern, read, write};
use weft_client::{Client, LayoutSpec, MoveOptions, MoveOutcome, OpenFlags, Transport};
use weft_core::{ByteLen, ClassLayout, ClassPart, Component, FileOffset, Layout, Nanos, Strip, TargetId};
use weft_env::Env;
use weft_env::real::block_on;
use weft_env::sim::{DiskFaults, Sim, SimEnv};

/// These targets, each with this stripe.
fn strips(targets: &[u32], stripe: u64) -> LayoutSpec {
    let strips = targets.iter().map(|&target| (TargetId(target), ByteLen(stripe))).collect();
    LayoutSpec { strips: Some(strips), ..LayoutSpec::default() }
}

fn layout(targets: &[u32], stripe: u64) -> Layout {
    let targets: Vec<TargetId> = targets.iter().copied().map(TargetId).collect();
    Layout::striped(&targets, ByteLen(stripe)).expect("a layout")
}

async fn migrate<E: Env>(client: &Client<E>, path: &str, spec: &LayoutSpec) -> MoveOutcome {
    let options = MoveOptions { verify: true, ..MoveOptions::default() };
    client.migrate(&at(path), spec, options, &mut |_| true).await.expect("moves")
}

/// Datafiles on all targets, with their lengths.
async fn datafiles<E: Env>(client: &Client<E>) -> usize {
    let mut count = 0;
    for target in 0..SERVERS {
        count += client.list_datafiles(TargetId(target), None, 1000).await.expect("lists").len();
    }
    count
}

async fn moves_quiet_files<E: Env>(one: Client<E>, two: Client<E>) {
    for (name, len) in [("none", 0), ("little", 1), ("more", 300_000), ("much", 9_000_000)] {
        let bytes = pattern(len, 7);
        let file = open(&one, name, 65_536).await;
        let reader = two.open(&at(name), OpenFlags::READ, 0, &LayoutSpec::default()).await.expect("opens");
        write(&file, 0, &bytes).await;
        let before = one.stat(&at(name)).await.expect("stat");
        let wanted = layout(&[3, 1], 10_000);
        let spec = strips(&[3, 1], 10_000);
        let MoveOutcome::Moved(report) = migrate(&two, name, &spec).await else { panic!("{name} is moved") };
        assert_eq!((report.size.0, report.rounds), (len as u64, 1), "{name}");
        let (now, _) = one.get_layout(&at(name)).await.expect("a layout");
        assert_eq!(now.as_ref(), Some(&wanted), "{name}");
        // Who had it open goes on unnoticed, who opens it now sees the same.
        assert!(read(&file, 0, len + 1).await == bytes && read(&reader, 0, len + 1).await == bytes, "{name}");
        assert_eq!(reader.layout(), Some(&wanted), "{name}");
        let after = one.stat(&at(name)).await.expect("stat");
        assert_eq!(
            (after.file, after.size, after.mtime, after.atime, after.mode, after.ctime),
            (before.file, before.size, before.mtime, before.atime, before.mode, before.ctime),
            "{name}"
        );
        write(&file, len as u64, b"and on").await;
        let all = [&bytes[..], b"and on"].concat();
        assert!(read(&reader, 0, len + 10).await == all, "{name}");
        file.sync().await.expect("syncs");
        assert_eq!(migrate(&one, name, &spec).await, MoveOutcome::Already, "{name}");
        drop((file, reader));
        let again = open(&two, name, 1).await;
        assert!(read(&again, 0, len + 10).await == all, "{name}");
        drop(again);
        one.unlink(&at(name)).await.expect("removed");
    }
    one.flush().await.expect("said");
    two.flush().await.expect("said");
    let mut tries = 0;
    while datafiles(&one).await > 0 {
        tries += 1;
        assert!(tries < 1000, "what was moved and removed leaves nothing");
        one.env().sleep(Nanos::from_ms(20)).await;
    }
    assert!(one.check_namespace(false).await.expect("checked").problems.is_empty());
}

#[test]
fn quiet_files_are_moved_and_who_has_them_open_goes_on() {
    for (reach, transport) in [
        (Reach::Unix, Transport::Auto),
        (Reach::Unix, Transport::Socket),
        (Reach::Unix, Transport::Descriptor),
        (Reach::Tcp, Transport::Auto),
    ] {
        block_on(async {
            let cluster = RealCluster::start(reach).await;
            let clients = (cluster.client(options(transport)), cluster.client(options(transport)));
            moves_quiet_files(clients.0, clients.1).await;
            cluster.stop().await;
        });
    }
}

#[test]
fn holes_stay_holes() {
    block_on(async {
        let cluster = RealCluster::start(Reach::Unix).await;
        let client = cluster.client(options(Transport::Auto));
        let file = open(&client, "f", 65_536).await;
        write(&file, 40 << 20, &pattern(70_000, 1)).await;
        file.truncate(ByteLen(90 << 20)).await.expect("extends");
        drop(file);
        client.flush().await.expect("said");
        let before = client.stat(&at("f")).await.expect("stat");
        let MoveOutcome::Moved(report) = migrate(&client, "f", &strips(&[2, 0, 1], 100_000)).await else {
            panic!("it is moved")
        };
        assert!(report.copied.0 <= 3 << 16, "{report:?}");
        let after = client.stat(&at("f")).await.expect("stat");
        assert_eq!((after.size, after.mtime), (before.size, before.mtime));
        let file = open(&client, "f", 1).await;
        let room: u64 = file.datafiles().await.expect("asked").iter().map(|meta| meta.blocks_512 * 512).sum();
        assert!(room < 1 << 20, "{room} bytes on the targets");
        assert!(read(&file, 40 << 20, 70_000).await == pattern(70_000, 1));
        assert!(read(&file, 80 << 20, 1 << 20).await == vec![0; 1 << 20]);
        drop(file);
        cluster.stop().await;
    });
}

#[test]
fn only_owner_and_root_may_move_a_file() {
    block_on(async {
        let cluster = RealCluster::start(Reach::Unix).await;
        let client = cluster.client(options(Transport::Auto));
        drop(open(&client, "f", 65_536).await);
        if support::ids().0 != 0 {
            return; // somebody else cannot be played
        }
        let other = client.on_behalf(weft_client::Identity { uid: 12_345, gid: 12_345, groups: vec![] });
        let refused =
            other.migrate(&at("f"), &strips(&[1], 4096), MoveOptions::default(), &mut |_| true).await;
        assert_eq!(refused.expect_err("not its owner").errno(), 1);
        cluster.stop().await;
    });
}

/// What movers have done.
#[derive(Default)]
struct Done {
    moved: AtomicU32,
    rounds: AtomicU32,
    failed: AtomicU32,
    stop: AtomicBool,
}

/// Moves whatever files there are to layouts that chance decides, again and again.
async fn keep_moving(client: Client<SimEnv>, seed: u64, done: Arc<Done>, pause: Nanos, may_fail: bool) {
    let mut dice = model::Dice::new(seed);
    while !done.stop.load(SeqCst) {
        client.env().sleep(Nanos(dice.below(pause.0))).await;
        let (entries, _) = match client.list(&at(""), b"", 100, false).await {
            Ok(listed) => listed,
            Err(error) => {
                assert!(may_fail, "{error}");
                continue;
            }
        };
        if entries.is_empty() {
            client.env().sleep(Nanos::from_ms(1)).await;
            continue;
        }
        let entry = &entries[dice.below(entries.len() as u64) as usize];
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        let mut targets: Vec<u32> = (0..SERVERS).filter(|_| dice.below(2) == 0).collect();
        if targets.is_empty() {
            targets.push(dice.below(u64::from(SERVERS)) as u32);
        }
        let stripe = [1000, 4096, 65_536, 100_000][dice.below(4) as usize];
        let options = MoveOptions { verify: dice.below(2) == 0, ..MoveOptions::default() };
        match client.migrate(&at(&name), &strips(&targets, stripe), options, &mut |_| true).await {
            Ok(MoveOutcome::Moved(report)) => {
                done.moved.fetch_add(1, SeqCst);
                done.rounds.fetch_max(report.rounds, SeqCst);
            }
            Ok(_) => {}
            // Removed meanwhile, or somebody else moves it, or it is written without a pause.
            Err(error) if [2, 16, 11, 116].contains(&error.errno()) => {
                done.failed.fetch_add(1, SeqCst);
            }
            Err(error) => {
                assert!(may_fail, "{error}");
                done.failed.fetch_add(1, SeqCst);
            }
        }
    }
}

/// Two programs use files that one mover, or two, move all the time; what they read is what they wrote.
fn use_and_move(seed: u64, spread: bool, movers: u64, trouble: bool) -> (u32, u32) {
    let mut sim = Sim::with_seed(seed);
    let world = World::new(&sim, spread);
    let control = sim.control();
    let main = control.process(&world.machines[0], "test", 1000, 1000);
    let done = Arc::new(Done::default());
    // Dead servers are waited for by programs, and movers have time.
    let pause = if trouble { Nanos::from_ms(60) } else { Nanos(1) };
    let of_movers = Arc::clone(&done);
    sim.block_on(&main, async move {
        let mut servers = world.start().await;
        let clients = [world.client("a", Transport::Auto), world.client("b", Transport::Auto)];
        let mut number = 0;
        let mut start_mover = || {
            number += 1;
            let client = world.client(&format!("mover {number}"), Transport::Auto);
            let (env, done) = (client.env().clone(), Arc::clone(&of_movers));
            let of_env = env.clone();
            let seed = seed * 100 + number;
            env.spawn("mover", move || keep_moving(client, seed, done, pause, trouble)).expect("spawns");
            of_env
        };
        let mut living: Vec<SimEnv> = (0..movers).map(|_| start_mover()).collect();
        let mut machines = world.machines.clone();
        model::run(seed, 150, &clients, async |step| {
            if !trouble {
                return;
            }
            match step % 30 {
                // A mover dies in the middle of something, another one comes.
                7 | 22 => {
                    let dead = living.remove(0);
                    control.kill(&dead);
                    living.push(start_mover());
                }
                14 => {
                    let id = (step / 30 % u64::from(SERVERS)) as u32;
                    control.kill(&machines[id as usize]);
                    machines[id as usize] = control.restart(&machines[id as usize]);
                    servers[id as usize] = world.start_server(&machines[id as usize], id).await;
                }
                _ => {}
            }
        })
        .await;
        of_movers.stop.store(true, SeqCst);
        // What movers that died have left goes when somebody says so, and nothing of it stays anywhere.
        living.iter().for_each(|mover| control.kill(mover));
        let (entries, _) = clients[0].list(&at(""), b"", 100, false).await.expect("lists");
        main_check(&clients[0], &entries).await;
        drop(servers);
    });
    (done.moved.load(SeqCst), done.rounds.load(SeqCst))
}

/// Nothing lies anywhere but what files have.
async fn main_check(client: &Client<SimEnv>, entries: &[weft_client::Entry]) {
    client.env().sleep(Nanos::from_s(20)).await;
    let mut expected = 0;
    for entry in entries {
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        client.forget_move(&at(&name)).await.expect("given up");
    }
    client.env().sleep(Nanos::from_s(60)).await;
    for entry in entries {
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        let (layout, _) = client.get_layout(&at(&name)).await.expect("a layout");
        expected += layout.expect("of a file").objects().count();
    }
    let found = datafiles(client).await;
    assert!(found <= expected, "{found} datafiles, and files have {expected}");
}

#[test]
fn programs_do_not_notice_that_their_files_are_moved() {
    let mut sum = 0;
    for seed in 0..8 {
        let (moved, rounds) = use_and_move(seed, seed % 2 == 0, 1 + seed % 3, false);
        println!("seed {seed}: {moved} moves, up to {rounds} rounds");
        sum += moved;
    }
    assert!(sum > 100, "{sum} moves");
}

#[test]
fn what_finds_no_room_leaves_none_taken() {
    let mut sim = Sim::with_seed(5);
    let world = World::new(&sim, true);
    let main = sim.control().process(&world.machines[0], "test", 1000, 1000);
    sim.block_on(&main, async move {
        let servers = world.start().await;
        let client = world.client("a", Transport::Auto);
        for (name, len) in [("large", 12 << 20), ("small", 1 << 20)] {
            let spec = strips(&[0], 65_536);
            let file = client.open(&at(name), READ_WRITE, 0o644, &spec).await.expect("made");
            write(&file, 0, &pattern(len, 3)).await;
        }
        client.flush().await.expect("said");
        let little = DiskFaults { capacity_bytes: 4 << 20, ..DiskFaults::default() };
        world.control.set_disk_faults(&world.machines[3], "/t3".as_ref(), little);
        let spec = strips(&[3], 65_536);
        let options = MoveOptions::default();
        let refused = client.migrate(&at("large"), &spec, options, &mut |_| true).await.expect_err("no room");
        assert_eq!(refused.errno(), 28, "{refused}");
        assert_eq!(client.moves().await.expect("asked").len(), 0, "nothing is left of it");
        client.env().sleep(Nanos::from_s(20)).await;
        assert_eq!(datafiles(&client).await, 2);
        let moved = client.migrate(&at("small"), &spec, options, &mut |_| true).await;
        assert!(matches!(moved, Ok(MoveOutcome::Moved(_))), "{moved:?}");
        let file = open(&client, "large", 1).await;
        assert!(read(&file, 0, 13 << 20).await == pattern(12 << 20, 3));
        drop(servers);
    });
}

#[test]
fn a_move_that_was_stopped_goes_on_where_it_was_unless_the_file_was_changed() {
    for (change, own) in [(false, true), (false, false), (true, true), (true, false)] {
        let mut sim = Sim::with_seed(6);
        let world = World::new(&sim, true);
        let main = sim.control().process(&world.machines[0], "test", 1000, 1000);
        sim.block_on(&main, async move {
            let servers = world.start().await;
            let (mover, other) = (world.client("a", Transport::Auto), world.client("b", Transport::Auto));
            let mut bytes = pattern(100_000, 3);
            let file = open(&other, "f", 65_536).await;
            write(&file, 0, &bytes).await;
            file.close().await.expect("closed");
            let (spec, mut pieces) = (strips(&[3], 4096), 0);
            let options = MoveOptions { piece: Some(ByteLen(10_000)), ..MoveOptions::default() };
            let mut a_few = |_| {
                pieces += 1;
                pieces < 5
            };
            let stopped = mover.migrate(&at("f"), &spec, options, &mut a_few).await;
            assert_eq!(stopped.expect("stops"), MoveOutcome::Stopped);
            if change {
                let file = open(&other, "f", 1).await;
                write(&file, 5000, b"newer").await;
                bytes[5000..5005].copy_from_slice(b"newer");
                file.close().await.expect("closed");
            }
            // Whether by the session that began or another one.
            let next = if own { &mover } else { &other };
            let moved = next.migrate(&at("f"), &spec, options, &mut |_| true).await.expect("moves");
            let MoveOutcome::Moved(report) = moved else { panic!("{moved:?}") };
            let kept = if change { 0 } else { 40_000 };
            assert_eq!((report.kept.0, report.copied.0), (kept, 100_000 - kept), "{change} {own}");
            let file = open(&other, "f", 1).await;
            assert!(read(&file, 0, 100_001).await == bytes, "{change} {own}");
            drop(servers);
        });
    }
}

/// Up to `end` on the targets with limited room, then on the others.
fn parts(end: u64) -> LayoutSpec {
    let part = |end, class: &str| ClassPart { end, stripes: vec![(class.to_owned(), ByteLen(1000))] };
    let by_class = ClassLayout::new(vec![part(Some(FileOffset(end)), "ssd"), part(None, "hdd")]);
    LayoutSpec { by_class: Some(by_class.expect("parts that rise")), ..LayoutSpec::default() }
}

#[test]
fn moves_to_limited_room_come_to_an_end_and_what_was_given_up_makes_room_for_others() {
    let mut sim = Sim::with_seed(7);
    let mut world = World::new(&sim, true);
    // 25,000 bytes on each of two.
    world.plan.rooms = [(TargetId(2), ByteLen(25_000)), (TargetId(3), ByteLen(25_000))].into();
    let main = sim.control().process(&world.machines[0], "test", 1000, 1000);
    sim.block_on(&main, async move {
        let servers = world.start().await;
        let client = world.client("a", Transport::Auto);
        let bytes = pattern(60_000, 3);
        for (name, end) in [("other", 30_000), ("f", 40_000)] {
            let file = client.open(&at(name), READ_WRITE, 0o644, &parts(end)).await.expect("made");
            write(&file, 0, &bytes).await;
        }
        client.flush().await.expect("said");
        let has = async || {
            let (layout, _) = client.get_layout(&at("f")).await.expect("a layout");
            layout.expect("of a file").promises().values().map(|bytes| bytes.0).sum::<u64>()
        };
        assert_eq!(has().await, 20_000, "what the other one left");
        let options = MoveOptions::default();
        let go = async |spec: &LayoutSpec| client.migrate(&at("f"), spec, options, &mut |_| true).await;
        // There is room for 30,000 bytes beside what the file has, so it gets these, and keeps them.
        client.unlink(&at("other")).await.expect("removed");
        client.env().sleep(Nanos::from_s(5)).await;
        let file = client.open(&at("other"), READ_WRITE, 0o644, &parts(4_000)).await.expect("made");
        file.close().await.expect("closed");
        let mut seen = vec![has().await];
        for _ in 0..4 {
            let told = client.layout_if_moved(&at("f"), &parts(60_000)).await.expect("told");
            let outcome = go(&parts(60_000)).await.expect("moves");
            client.env().sleep(Nanos::from_s(5)).await;
            let (layout, _) = client.get_layout(&at("f")).await.expect("a layout");
            assert_eq!(layout, Some(told), "as it was told");
            seen.push(has().await);
            assert_eq!(outcome == MoveOutcome::Already, seen[seen.len() - 2] == has().await, "{seen:?}");
        }
        assert_eq!(seen, [20_000, 26_000, 26_000, 26_000, 26_000]);
        // A move that was stopped has the rest. Another one gives it up, and has it at once.
        let (most, less) = (LayoutSpec::exactly(&layout(&[0, 1], 500)), parts(20_000));
        go(&most).await.expect("moves");
        client.env().sleep(Nanos::from_s(5)).await;
        let stopped = client.migrate(&at("f"), &parts(40_000), options, &mut |_| false).await;
        assert_eq!(stopped.expect("stops"), MoveOutcome::Stopped);
        assert!(matches!(go(&less).await, Ok(MoveOutcome::Moved(_))));
        assert_eq!(has().await, 20_000);
        go(&most).await.expect("moves");
        client.env().sleep(Nanos::from_s(5)).await;
        // The same where targets are named, which takes the room or nothing.
        let stopped = client.migrate(&at("f"), &parts(40_000), options, &mut |_| false).await;
        assert_eq!(stopped.expect("stops"), MoveOutcome::Stopped);
        let end = Some(FileOffset(20_000));
        let of = |start, end, target| Component {
            start,
            end,
            strips: vec![Strip { target: TargetId(target), stripe_size: ByteLen(1000) }],
        };
        let named = [of(FileOffset(0), end, 2), of(FileOffset(20_000), None, 0)];
        let named = Layout::from_components(named.to_vec()).expect("a layout");
        let moved = go(&LayoutSpec::exactly(&named)).await;
        assert!(matches!(moved, Ok(MoveOutcome::Moved(_))), "{moved:?}");
        let file = open(&client, "f", 1).await;
        assert!(read(&file, 0, 60_001).await == bytes);
        drop(servers);
    });
}

#[test]
fn movers_and_servers_die_at_any_time() {
    let mut sum = 0;
    for seed in 100..108 {
        let (moved, rounds) = use_and_move(seed, seed % 2 == 0, 1 + seed % 2, true);
        println!("seed {seed}: {moved} moves, up to {rounds} rounds");
        sum += moved;
    }
    assert!(sum > 50, "{sum} moves");
}
