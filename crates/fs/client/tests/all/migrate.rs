//! Files that move to other layouts while programs use them.

use crate::support::world::World;
use crate::support::{
    READ_WRITE, Reach, RealCluster, SERVERS, at, model, open, options, pattern, read, write,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use weft_client::{Client, LayoutSpec, MoveOptions, MoveOutcome, OpenFlags, Transport};
use weft_core::{ByteLen, ClassLayout, ClassPart, Component, FileOffset, Layout, Nanos, Strip, TargetId};
use weft_env::Env;
use weft_env::real::block_on;
use weft_env::sim::{DiskFaults, Sim, SimEnv};

/// Layout request for these targets with this stripe size.
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

/// Number of datafiles on all targets.
async fn datafiles<E: Env>(client: &Client<E>) -> usize {
    let mut count = 0;
    for target in 0..SERVERS {
        count += client.list_datafiles(TargetId(target), None, 1000).await.expect("lists").len();
    }
    count
}

async fn move_idle_files<E: Env>(one: Client<E>, two: Client<E>) {
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
        // Files opened before the move read the same bytes as files opened after it.
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
    one.flush().await.expect("flushed");
    two.flush().await.expect("flushed");
    crate::support::wait_until("the datafiles of removed files are removed", async || {
        match datafiles(&one).await {
            0 => Ok(()),
            count => Err(format!("{count} remain")),
        }
    })
    .await;
    assert!(one.check_namespace(false).await.expect("checked").problems.is_empty());
}

#[test]
fn idle_files_are_moved_and_open_files_continue_to_work() {
    for (reach, transport) in [
        (Reach::Unix, Transport::Auto),
        (Reach::Unix, Transport::Socket),
        (Reach::Unix, Transport::Descriptor),
        (Reach::Tcp, Transport::Auto),
    ] {
        block_on(async {
            let cluster = RealCluster::start(reach).await;
            let clients = (cluster.client(options(transport)), cluster.client(options(transport)));
            move_idle_files(clients.0, clients.1).await;
            cluster.stop().await;
        });
    }
}

#[test]
fn a_move_preserves_holes() {
    block_on(async {
        let cluster = RealCluster::start(Reach::Unix).await;
        let client = cluster.client(options(Transport::Auto));
        let file = open(&client, "f", 65_536).await;
        write(&file, 40 << 20, &pattern(70_000, 1)).await;
        file.truncate(ByteLen(90 << 20)).await.expect("extends");
        drop(file);
        client.flush().await.expect("flushed");
        let before = client.stat(&at("f")).await.expect("stat");
        let MoveOutcome::Moved(report) = migrate(&client, "f", &strips(&[2, 0, 1], 100_000)).await else {
            panic!("it is moved")
        };
        assert!(report.copied.0 <= 3 << 16, "{report:?}");
        let after = client.stat(&at("f")).await.expect("stat");
        assert_eq!((after.size, after.mtime), (before.size, before.mtime));
        let file = open(&client, "f", 1).await;
        let allocated: u64 =
            file.datafiles().await.expect("asked").iter().map(|meta| meta.blocks_512 * 512).sum();
        assert!(allocated < 1 << 20, "{allocated} bytes on the targets");
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
        if !crate::support::skip::unless_root("acting as another user") {
            return;
        }
        let other = client.on_behalf(weft_client::Identity { uid: 12_345, gid: 12_345, groups: vec![] });
        let refused =
            other.migrate(&at("f"), &strips(&[1], 4096), MoveOptions::default(), &mut |_| true).await;
        assert_eq!(refused.expect_err("not its owner").errno(), 1);
        cluster.stop().await;
    });
}

/// Totals of the movers.
#[derive(Default)]
struct Done {
    moved: AtomicU32,
    rounds: AtomicU32,
    failed: AtomicU32,
    stop: AtomicBool,
}

/// Moves existing files to random layouts, again and again.
async fn keep_moving(client: Client<SimEnv>, seed: u64, done: Arc<Done>, pause: Nanos, may_fail: bool) {
    let mut random = model::Random::new(seed);
    while !done.stop.load(SeqCst) {
        client.env().sleep(Nanos(random.below(pause.0))).await;
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
        let entry = &entries[random.below(entries.len() as u64) as usize];
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        let mut targets: Vec<u32> = (0..SERVERS).filter(|_| random.below(2) == 0).collect();
        if targets.is_empty() {
            targets.push(random.below(u64::from(SERVERS)) as u32);
        }
        let stripe = [1000, 4096, 65_536, 100_000][random.below(4) as usize];
        let options = MoveOptions { verify: random.below(2) == 0, ..MoveOptions::default() };
        match client.migrate(&at(&name), &strips(&targets, stripe), options, &mut |_| true).await {
            Ok(MoveOutcome::Moved(report)) => {
                done.moved.fetch_add(1, SeqCst);
                done.rounds.fetch_max(report.rounds, SeqCst);
            }
            Ok(_) => {}
            // The file was removed, another mover is active, or the file is written without a pause.
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

/// Runs two programs on files that movers move all the time. The programs must read what they wrote.
fn use_and_move(seed: u64, spread: bool, movers: u64, trouble: bool) -> (u32, u32) {
    let mut sim = Sim::with_seed(seed);
    let world = World::new(&sim, spread);
    let control = sim.control();
    let main = control.process(&world.machines[0], "test", 1000, 1000);
    let done = Arc::new(Done::default());
    // With failures, programs wait for dead servers, and movers pause for longer.
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
                // A mover dies at any point, and another one starts.
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
        // Cancelling the moves of dead movers must remove all that they left.
        living.iter().for_each(|mover| control.kill(mover));
        let (entries, _) = clients[0].list(&at(""), b"", 100, false).await.expect("lists");
        main_check(&clients[0], &entries).await;
        drop(servers);
    });
    (done.moved.load(SeqCst), done.rounds.load(SeqCst))
}

/// Checks that the targets have no datafile that does not belong to a file.
async fn main_check(client: &Client<SimEnv>, entries: &[weft_client::Entry]) {
    client.env().sleep(Nanos::from_s(20)).await;
    let mut expected = 0;
    for entry in entries {
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        client.cancel_move(&at(&name)).await.expect("cancelled");
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
fn programs_read_their_own_writes_while_their_files_move() {
    let mut sum = 0;
    for seed in 0..8 {
        let (moved, rounds) = use_and_move(seed, seed % 2 == 0, 1 + seed % 3, false);
        println!("seed {seed}: {moved} moves, up to {rounds} rounds");
        sum += moved;
    }
    assert!(sum > 100, "{sum} moves");
}

#[test]
fn a_move_without_enough_space_leaves_nothing_behind() {
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
        client.flush().await.expect("flushed");
        let little = DiskFaults { capacity_bytes: 4 << 20, ..DiskFaults::default() };
        world.control.set_disk_faults(&world.machines[3], "/t3".as_ref(), little);
        let spec = strips(&[3], 65_536);
        let options = MoveOptions::default();
        let refused =
            client.migrate(&at("large"), &spec, options, &mut |_| true).await.expect_err("no space");
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

/// Moves a file from target 0 to target 1 only while they are idle, and another program reads from target `used`.
/// Returns whether the move waited, and whether it had ended before the other program.
fn move_beside_reader(used: u32) -> (bool, bool) {
    let mut sim = Sim::with_seed(7);
    let world = World::new(&sim, true);
    let main = sim.control().process(&world.machines[0], "test", 1000, 1000);
    sim.block_on(&main, async move {
        let servers = world.start().await;
        let (mover, other) = (world.client("a", Transport::Socket), world.client("b", Transport::Socket));
        for (name, target) in [("f", 0), ("used", used)] {
            let spec = strips(&[target], 65_536);
            let file = other.open(&at(name), READ_WRITE, 0o644, &spec).await.expect("made");
            write(&file, 0, &pattern(100_000, 3)).await;
            file.close().await.expect("closed");
        }
        let is_used = Arc::new(AtomicBool::new(true));
        let until = Arc::clone(&is_used);
        let env = other.env().clone();
        let begin = env.now();
        let read_often = move || async move {
            let file = open(&other, "used", 1).await;
            while other.env().now() < begin.saturating_add(Nanos::from_s(5)) {
                assert_eq!(read(&file, 0, 1000).await.len(), 1000);
                other.env().sleep(Nanos::from_ms(3)).await;
            }
            until.store(false, SeqCst);
        };
        env.spawn("reader", read_often).expect("spawns");
        mover.env().sleep(Nanos::from_ms(100)).await;
        let options =
            MoveOptions { piece_len: Some(ByteLen(10_000)), only_while_idle: true, ..MoveOptions::default() };
        let (mut has_waited, mut last) = (false, ByteLen::ZERO);
        let mut watch = |progress: weft_client::MoveProgress| {
            assert!(!progress.is_waiting || progress.done == last, "a waiting move copies nothing");
            has_waited |= progress.is_waiting;
            last = progress.done;
            true
        };
        let moved = mover.migrate(&at("f"), &strips(&[1], 4096), options, &mut watch).await;
        assert!(matches!(moved, Ok(MoveOutcome::Moved(_))), "{moved:?}");
        let is_first = is_used.load(SeqCst);
        let file = open(&mover, "f", 1).await;
        assert!(read(&file, 0, 200_000).await == pattern(100_000, 3));
        drop(servers);
        (has_waited, is_first)
    })
}

#[test]
fn a_background_move_waits_for_programs_that_use_its_targets() {
    for used in [0, 1] {
        assert_eq!(move_beside_reader(used), (true, false), "target {used} is used");
    }
    assert_eq!(move_beside_reader(2), (false, true), "others do not matter");
}

#[test]
fn a_stopped_move_resumes_unless_the_file_was_changed() {
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
            let options = MoveOptions { piece_len: Some(ByteLen(10_000)), ..MoveOptions::default() };
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
            // Resumed by the session that began the move, or by another one.
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

/// Layout up to `end` on the targets with limited capacity, then on the others.
fn parts(end: u64) -> LayoutSpec {
    let part = |end, class: &str| ClassPart { end, stripes: vec![(class.to_owned(), ByteLen(1000))] };
    let by_class = ClassLayout::new(vec![part(Some(FileOffset(end)), "ssd"), part(None, "hdd")]);
    LayoutSpec { by_class: Some(by_class.expect("parts that rise")), ..LayoutSpec::default() }
}

#[test]
fn moves_within_limited_capacity_terminate_and_cancelled_moves_free_their_space() {
    let mut sim = Sim::with_seed(7);
    let mut world = World::new(&sim, true);
    // 25,000 bytes on each of two targets.
    world.plan.capacities = [(TargetId(2), ByteLen(25_000)), (TargetId(3), ByteLen(25_000))].into();
    let main = sim.control().process(&world.machines[0], "test", 1000, 1000);
    sim.block_on(&main, async move {
        let servers = world.start().await;
        let client = world.client("a", Transport::Auto);
        let bytes = pattern(60_000, 3);
        for (name, end) in [("other", 30_000), ("f", 40_000)] {
            let file = client.open(&at(name), READ_WRITE, 0o644, &parts(end)).await.expect("made");
            write(&file, 0, &bytes).await;
        }
        client.flush().await.expect("flushed");
        let has = async || {
            let (layout, _) = client.get_layout(&at("f")).await.expect("a layout");
            layout.expect("of a file").space_reservations().values().map(|bytes| bytes.0).sum::<u64>()
        };
        assert_eq!(has().await, 20_000, "what the other one left");
        let options = MoveOptions::default();
        let go = async |spec: &LayoutSpec| client.migrate(&at("f"), spec, options, &mut |_| true).await;
        // 30,000 bytes are free beside the file's own, so it gets these, and keeps them.
        client.unlink(&at("other")).await.expect("removed");
        client.env().sleep(Nanos::from_s(5)).await;
        let file = client.open(&at("other"), READ_WRITE, 0o644, &parts(4_000)).await.expect("made");
        file.close().await.expect("closed");
        let mut seen = vec![has().await];
        for _ in 0..4 {
            let predicted = client.layout_if_moved(&at("f"), &parts(60_000)).await.expect("a layout");
            let outcome = go(&parts(60_000)).await.expect("moves");
            client.env().sleep(Nanos::from_s(5)).await;
            let (layout, _) = client.get_layout(&at("f")).await.expect("a layout");
            assert_eq!(layout, Some(predicted), "the predicted layout");
            seen.push(has().await);
            assert_eq!(outcome == MoveOutcome::Already, seen[seen.len() - 2] == has().await, "{seen:?}");
        }
        assert_eq!(seen, [20_000, 26_000, 26_000, 26_000, 26_000]);
        // A stopped move holds the rest. Another move cancels it and can use its space at once.
        let (most, less) = (LayoutSpec::exactly(&layout(&[0, 1], 500)), parts(20_000));
        go(&most).await.expect("moves");
        client.env().sleep(Nanos::from_s(5)).await;
        let stopped = client.migrate(&at("f"), &parts(40_000), options, &mut |_| false).await;
        assert_eq!(stopped.expect("stops"), MoveOutcome::Stopped);
        assert!(matches!(go(&less).await, Ok(MoveOutcome::Moved(_))));
        assert_eq!(has().await, 20_000);
        go(&most).await.expect("moves");
        client.env().sleep(Nanos::from_s(5)).await;
        // A layout with named targets gets all of the space or fails.
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
fn no_byte_is_lost_when_movers_and_servers_die() {
    let mut sum = 0;
    for seed in 100..108 {
        let (moved, rounds) = use_and_move(seed, seed % 2 == 0, 1 + seed % 2, true);
        println!("seed {seed}: {moved} moves, up to {rounds} rounds");
        sum += moved;
    }
    assert!(sum > 50, "{sum} moves");
}
