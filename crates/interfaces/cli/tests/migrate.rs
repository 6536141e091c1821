//! Files of running programs are moved to other layouts, while movers and servers are killed.

mod common;

use common::load::Worker;
use common::{Embedded, Random, shown};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const CLIENTS: u64 = 2;
const MOVES: u64 = 12;

#[test]
fn a_file_is_moved_as_requested_and_stays_the_same() {
    let cluster = Embedded::started();
    let bytes: Vec<u8> =
        (0..5_000_000u32).flat_map(|n| (n.wrapping_mul(2_654_435_761)).to_le_bytes()).collect();
    std::fs::write(cluster.local("bytes"), &bytes).expect("a local file");
    let local = cluster.local("bytes").display().to_string();
    cluster.weft(["mkdir", "/weft/d"]);
    cluster.weft(["cp", &local, "/weft/d/f"]);
    cluster.weft(["ln", "/weft/d/f", "/weft/d/same"]);
    let before = cluster.weft(["stat", "/weft/d/f"]);
    let message = cluster.weft(["migrate", "-c", "1", "-S", "64K", "--dry-run", "/weft/d/f"]);
    assert!(message.contains("/weft/d/f: ") && message.contains(" -> "), "{message}");
    assert!(!cluster.weft(["getstripe", "/weft/d/f"]).contains("stripe count: 1,"));
    let message = cluster.weft(["migrate", "--verify", "-c", "1", "-S", "64K", "/weft/d/f"]);
    assert!(message.contains("moved 1 file (19.1 MiB copied)"), "{message}");
    let layout = cluster.weft(["getstripe", "-v", "/weft/d/f"]);
    assert!(layout.contains("stripe count: 1, stripe size: 64 KiB"), "{layout}");
    let same = |text: &str| {
        text.lines().filter(|line| !line.contains("ayout") && !line.contains("tripe")).collect::<String>()
    };
    assert_eq!(same(&cluster.weft(["stat", "/weft/d/f"])), same(&before));
    cluster.weft(["cp", "/weft/d/same", &cluster.local("back").display().to_string()]);
    assert!(std::fs::read(cluster.local("back")).expect("there") == bytes);
    let message = cluster.weft(["migrate", "-c", "1", "-S", "64K", "/weft/d/f"]);
    assert!(message.contains("moved 0 files; 1 file left alone"), "{message}");
    // Without options the file gets the layout of new files in the directory, once for both of its names.
    cluster.weft(["setstripe", "-c", "2", "-S", "128K", "/weft/d"]);
    let message = cluster.weft(["migrate", "-r", "/weft/d"]);
    assert!(message.contains("moved 1 file "), "{message}");
    let layout = cluster.weft(["getstripe", "/weft/d/same"]);
    assert!(layout.contains("stripe count: 2, stripe size: 128 KiB"), "{layout}");
    // A link that is named is followed, also after a file with several names.
    cluster.weft(["mkdir", "/weft/e"]);
    cluster.weft(["cp", &local, "/weft/e/f"]);
    cluster.weft(["ln", "-s", "e/f", "/weft/link"]);
    let message = cluster.weft(["migrate", "-c", "3", "-S", "64K", "/weft/d/f", "/weft/link"]);
    assert!(message.contains("moved 2 files "), "{message}");
    assert!(cluster.weft(["getstripe", "/weft/e/f"]).contains("stripe count: 3,"));
    // With a line for each file.
    let message = cluster.weft(["migrate", "-rvc", "1", "/weft/d/f"]);
    assert!(message.contains("/weft/d/f: 19.1 MiB, moved; other clients waited"), "{message}");
    assert!(message.contains("moved 1 file "), "{message}");
    cluster.run(["mkfifo", "/weft/pipe"]);
    let refused = cluster.fails(1, ["migrate", "--class", "ssd", "/weft/pipe"]);
    assert!(refused.contains("neither a file"), "{refused}");
    let refused = cluster.fails(1, ["migrate", "/weft/d"]);
    assert!(refused.contains("-r moves all files"), "{refused}");
    let refused = cluster.fails(2, ["migrate", "--rate", "0", "/weft/d/f"]);
    assert!(refused.contains("at least 1 byte per second"), "{refused}");
    let refused = cluster.fails(2, ["migrate", "--class", "tape", "/weft/d/f"]);
    assert!(refused.contains("classes here"), "{refused}");
    cluster.weft(["fsck"]);
}

#[test]
fn a_stopped_move_can_be_resumed_and_given_up() {
    let cluster = Embedded::started();
    std::fs::write(cluster.local("bytes"), vec![7; 40 << 20]).expect("a local file");
    cluster.weft(["cp", &cluster.local("bytes").display().to_string(), "/weft/f"]);
    let slow = ["migrate", "-c", "1", "-S", "64K", "--rate", "16M", "/weft/f"];
    for forget in [true, false] {
        let mut mover = cluster.command(slow).stderr(Stdio::piped()).spawn().expect("starts");
        let deadline = Instant::now() + Duration::from_secs(30);
        // Wait until a part is copied.
        while datafiles(&cluster) < 5 {
            assert!(Instant::now() < deadline, "no bytes are copied");
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
                assert!(Instant::now() < deadline, "the copied datafiles are not removed");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
    let message = cluster.weft(["migrate", "-c", "1", "-S", "64K", "/weft/f"]);
    let copied = message.split('(').nth(1).and_then(|rest| rest.split(' ').next()).expect("a sum");
    assert!(copied.parse::<f64>().expect("a number") < 39.0, "the move was not resumed: {message}");
    cluster.weft(["cp", "/weft/f", &cluster.local("back").display().to_string()]);
    assert!(std::fs::read(cluster.local("back")).expect("there") == vec![7; 40 << 20]);
    cluster.weft(["fsck"]);
}

#[test]
fn running_and_stopped_moves_are_shown() {
    let cluster = Embedded::started();
    let status = ["migrate", "--status", "--json"];
    // Returns the exit code and the status of each move.
    let move_status = |paths: &[&str]| -> (Option<i32>, Vec<serde_json::Value>) {
        let output = cluster.command(status.iter().chain(paths)).output().expect("weft starts");
        let moves: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", shown(&output)));
        (output.status.code(), moves)
    };
    assert_eq!(move_status(&[]), (Some(0), vec![]));
    assert!(cluster.weft(["migrate", "--status"]).contains("no file is being moved"));
    std::fs::write(cluster.local("bytes"), vec![7; 60 << 20]).expect("a local file");
    let bytes = cluster.local("bytes").display().to_string();
    cluster.run(["mkdir", "/weft/d", "/weft/e"]);
    cluster.weft(["cp", &bytes, "/weft/d/f"]);
    let slow = ["migrate", "-c", "1", "-S", "64K", "--rate", "8M", "-r", "/weft/d"];
    let mut mover = cluster.command(slow).spawn().expect("starts");
    let number = |state: &serde_json::Value, what: &str| state[what].as_f64().unwrap_or(0.0);
    let deadline = Instant::now() + Duration::from_secs(60);
    let state = loop {
        assert!(Instant::now() < deadline, "no progress is shown");
        let (code, moves) = move_status(&[]);
        match &moves[..] {
            [one] if number(one, "copied") > 0.0 => {
                assert_eq!(code, Some(3));
                break one.clone();
            }
            _ => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    assert_eq!((&state["path"], &state["state"]), (&"/weft/d/f".into(), &"moving".into()));
    let (done, size) = (number(&state, "done"), number(&state, "size"));
    assert!(size == (60 << 20) as f64 && done > 0.0 && done < size, "{state}");
    // At the maximum rate, except for the first piece, which is copied at once.
    assert!((4e6..40e6).contains(&number(&state, "bytes_per_s")), "{state}");
    assert_eq!(move_status(&["/weft/d"]).1.len(), 1);
    assert_eq!(move_status(&["/weft/d/f"]).0, Some(3));
    assert_eq!(move_status(&["/weft/e"]), (Some(0), vec![]), "only moves below this path");
    let table = cluster.command(["migrate", "--status"]).output().expect("weft starts");
    assert!(shown(&table).contains("moving") && shown(&table).contains("/weft/d/f"), "{}", shown(&table));
    mover.kill().expect("a child");
    mover.wait().expect("ends");
    let (code, moves) = loop {
        assert!(Instant::now() < deadline, "the mover's exit is not noticed");
        let (code, moves) = move_status(&[]);
        if moves.iter().all(|one| one["state"] == "stopped") {
            break (code, moves);
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!((code, moves.len()), (Some(4), 1));
    assert!(moves[0]["bytes_per_s"].is_null(), "{moves:?}");
    // A restart keeps all moves.
    cluster.weft(["stop"]);
    cluster.run(["true"]);
    assert_eq!(move_status(&[]).0, Some(4));
    cluster.weft(["migrate", "--forget", "/weft/d/f"]);
    assert_eq!(move_status(&[]), (Some(0), vec![]));
    let refused = cluster.fails(2, ["migrate", "--status", "--rate", "1M"]);
    assert!(refused.contains("--rate"), "{refused}");
}

/// Counts the datafiles on all targets.
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
            let (count, stripe) = (1 + random.below(4), ["4K", "12K", "64K", "1M"][random.below(4) as usize]);
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
            let message = String::from_utf8_lossy(&output.stdout).into_owned();
            let count =
                message.strip_prefix("moved ").and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
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
    assert!(moved > 0, "seed {seed}: no move finished");
    cluster.weft(["migrate", "-r", "--forget", "/weft"]);
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        // Removals of old datafiles may still be in progress.
        let mut check = cluster.command(["fsck"]);
        let output = check.output().expect("runs");
        if output.status.success() {
            break;
        }
        assert!(Instant::now() < deadline, "seed {seed}: {}", common::shown(&output));
        std::thread::sleep(Duration::from_millis(500));
    }
}
