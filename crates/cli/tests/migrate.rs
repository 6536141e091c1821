//! Files of real programs are moved to other layouts while they are used, and while movers and servers are killed.

mod common;

use common::load::Worker;
use common::{Embedded, Random};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const CLIENTS: u64 = 2;
const MOVES: u64 = 12;

#[test]
fn a_file_is_moved_as_asked_and_stays_the_same() {
    let cluster = Embedded::started();
    let bytes: Vec<u8> =
        (0..5_000_000u32).flat_map(|n| (n.wrapping_mul(2_654_435_761)).to_le_bytes()).collect();
    std::fs::write(cluster.local("bytes"), &bytes).expect("a local file");
    let local = cluster.local("bytes").display().to_string();
    cluster.weft(["mkdir", "/weft/d"]);
    cluster.weft(["cp", &local, "/weft/d/f"]);
    cluster.weft(["ln", "/weft/d/f", "/weft/d/same"]);
    let before = cluster.weft(["stat", "/weft/d/f"]);
    let told = cluster.weft(["migrate", "-c", "1", "-S", "64K", "--dry-run", "/weft/d/f"]);
    assert!(told.contains("/weft/d/f: ") && told.contains(" -> "), "{told}");
    assert!(!cluster.weft(["getstripe", "/weft/d/f"]).contains("stripe count: 1,"));
    let told = cluster.weft(["migrate", "--verify", "-c", "1", "-S", "64K", "/weft/d/f"]);
    assert!(told.contains("moved 1 file (19.1 MiB copied)"), "{told}");
    let layout = cluster.weft(["getstripe", "-v", "/weft/d/f"]);
    assert!(layout.contains("stripe count: 1, stripe size: 64 KiB"), "{layout}");
    let same = |text: &str| {
        text.lines().filter(|line| !line.contains("ayout") && !line.contains("tripe")).collect::<String>()
    };
    assert_eq!(same(&cluster.weft(["stat", "/weft/d/f"])), same(&before));
    cluster.weft(["cp", "/weft/d/same", &cluster.local("back").display().to_string()]);
    assert!(std::fs::read(cluster.local("back")).expect("there") == bytes);
    let told = cluster.weft(["migrate", "-c", "1", "-S", "64K", "/weft/d/f"]);
    assert!(told.contains("moved 0 files; 1 file left alone"), "{told}");
    // As new files in the directory would be, one file for both of its names.
    cluster.weft(["setstripe", "-c", "2", "-S", "128K", "/weft/d"]);
    let told = cluster.weft(["migrate", "-r", "/weft/d"]);
    assert!(told.contains("moved 1 file "), "{told}");
    let layout = cluster.weft(["getstripe", "/weft/d/same"]);
    assert!(layout.contains("stripe count: 2, stripe size: 128 KiB"), "{layout}");
    // In the background, with a word about each file.
    let log = cluster.local("log");
    cluster.weft(["migrate", "-c", "1", "--background", &log.display().to_string(), "/weft/d/f"]);
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let told = std::fs::read_to_string(&log).expect("a log");
        if told.contains("moved 1 file ") {
            assert!(told.contains("/weft/d/f: 19.1 MiB, moved; others waited"), "{told}");
            break;
        }
        assert!(Instant::now() < deadline, "{told}");
        std::thread::sleep(Duration::from_millis(20));
    }
    let refused = cluster.fails(1, ["migrate", "/weft/d"]);
    assert!(refused.contains("-r moves all files"), "{refused}");
    let refused = cluster.fails(2, ["migrate", "--class", "tape", "/weft/d/f"]);
    assert!(refused.contains("classes here"), "{refused}");
    cluster.weft(["fsck"]);
}

#[test]
fn a_move_that_was_stopped_goes_on_and_can_be_given_up() {
    let cluster = Embedded::started();
    std::fs::write(cluster.local("bytes"), vec![7; 40 << 20]).expect("a local file");
    cluster.weft(["cp", &cluster.local("bytes").display().to_string(), "/weft/f"]);
    let slow = ["migrate", "-c", "1", "-S", "64K", "--rate", "16M", "/weft/f"];
    for forget in [true, false] {
        let mut mover = cluster.command(slow).stderr(Stdio::piped()).spawn().expect("starts");
        let deadline = Instant::now() + Duration::from_secs(30);
        // Until something of it is there.
        while datafiles(&cluster) < 5 {
            assert!(Instant::now() < deadline, "nothing is copied");
            std::thread::sleep(Duration::from_millis(20));
        }
        // SAFETY: a process that this test started.
        unsafe { libc::kill(mover.id() as i32, libc::SIGTERM) };
        let ended = mover.wait().expect("ends");
        assert_eq!(ended.code(), Some(130));
        cluster.weft(["fsck"]);
        assert!(!cluster.weft(["getstripe", "/weft/f"]).contains("stripe count: 1,"));
        if forget {
            cluster.weft(["migrate", "--forget", "/weft/f"]);
            while datafiles(&cluster) > 4 {
                assert!(Instant::now() < deadline, "what was copied stays");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
    let told = cluster.weft(["migrate", "-c", "1", "-S", "64K", "/weft/f"]);
    let copied = told.split('(').nth(1).and_then(|rest| rest.split(' ').next()).expect("a sum");
    assert!(copied.parse::<f64>().expect("a number") < 39.0, "it went on where it was: {told}");
    cluster.weft(["cp", "/weft/f", &cluster.local("back").display().to_string()]);
    assert!(std::fs::read(cluster.local("back")).expect("there") == vec![7; 40 << 20]);
    cluster.weft(["fsck"]);
}

/// On all targets.
fn datafiles(cluster: &Embedded) -> usize {
    let objects = |dir: &std::path::Path| -> usize {
        let fans = std::fs::read_dir(dir.join("objects")).into_iter().flatten().flatten();
        fans.map(|fan| std::fs::read_dir(fan.path()).map_or(0, Iterator::count)).sum()
    };
    let targets = std::fs::read_dir(cluster.state()).expect("a state");
    let folders = targets.flatten().flat_map(|entry| {
        let below = std::fs::read_dir(entry.path()).into_iter().flatten().flatten().map(|entry| entry.path());
        below.chain([entry.path()]).collect::<Vec<_>>()
    });
    folders.map(|folder| objects(&folder)).sum()
}

#[test]
fn programs_go_on_while_movers_and_servers_are_killed() {
    let cluster = Embedded::started();
    let (mut random, seed) = Random::seeded();
    let (stop, done, file) = (AtomicBool::new(false), AtomicU64::new(0), cluster.file());
    let (mut moved, mut killed) = (0, 0);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..CLIENTS)
            .map(|index| {
                let (stop, done, file) = (&stop, &done, &file);
                scope.spawn(move || Worker::until(stop, file, index, seed, done))
            })
            .collect();
        for number in 0..MOVES {
            let (count, stripe) =
                (1 + random.below(4), ["4K", "30000", "64K", "1M"][random.below(4) as usize]);
            let mut mover = cluster
                .command(["migrate", "-r", "-c", &count.to_string(), "-S", stripe, "/weft"])
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .expect("starts");
            let kind = random.below(3);
            if kind == 0 {
                std::thread::sleep(Duration::from_millis(random.below(120)));
                mover.kill().expect("killed");
                killed += 1;
            }
            if kind == 1 && number % 4 == 0 {
                std::thread::sleep(Duration::from_millis(random.below(100)));
                let pids: Vec<i32> = cluster.pids().into_iter().flatten().collect();
                let victim = pids[random.below(pids.len() as u64) as usize];
                // SAFETY: a process that this test started.
                unsafe { libc::kill(victim, libc::SIGKILL) };
                cluster.run(["true"]);
            }
            let output = mover.wait_with_output().expect("ends");
            let told = String::from_utf8_lossy(&output.stdout).into_owned();
            let count =
                told.strip_prefix("moved ").and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
            moved += count.unwrap_or(0);
            if workers.iter().any(std::thread::ScopedJoinHandle::is_finished) {
                break; // one has failed, and says why below
            }
        }
        stop.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().unwrap_or_else(|_| panic!("seed {seed}"));
        }
    });
    println!(
        "seed {seed}: {moved} files moved, {killed} movers killed, {} operations",
        done.load(Ordering::Relaxed)
    );
    assert!(moved > 0, "seed {seed}: no move came to its end");
    cluster.weft(["migrate", "-r", "--forget", "/weft"]);
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        // Removals of what was left may be under way still.
        let mut check = cluster.command(["fsck"]);
        let output = check.output().expect("runs");
        if output.status.success() {
            break;
        }
        assert!(Instant::now() < deadline, "seed {seed}: {}", common::shown(&output));
        std::thread::sleep(Duration::from_millis(500));
    }
}
