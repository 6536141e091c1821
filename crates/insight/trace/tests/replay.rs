//! Replays on a local directory do what the trace says, for any number of processes and threads.

mod common;

use common::{HELPER, data, options};
use std::path::Path;
use weft_trace::csv::Reader;
use weft_trace::prepared::{self, Prepared, Timing};
use weft_trace::replay::{Options, Outcome, run};
use weft_trace::{Operation, open};

fn prepared_of(csv: &str) -> Prepared {
    let mut stream = Reader::new(Path::new("test"), csv.as_bytes(), 0).expect("a heading");
    Prepared::new(Path::new("test"), &mut stream, &prepared::Options::default(), |_| {}).expect("sound")
}

fn replay_options(dir: &Path) -> Options {
    Options {
        dir: dir.join("replay"),
        processes: 4,
        threads: 3,
        timing: Timing::Fast,
        verify: true,
        space_limit: Some(u64::MAX),
        unlink_early: false,
        keep: false,
        sync: false,
        is_ended: || false,
        worker: vec![HELPER.into(), "replay-worker".into()],
        environment: Vec::new(),
    }
}

fn here(prepared: &Prepared, change: impl FnOnce(&mut Options)) -> Result<Outcome, String> {
    let dir = tempfile::tempdir().expect("a directory");
    let mut options = replay_options(dir.path());
    change(&mut options);
    let outcome = run(prepared, &options, |_| {});
    let left = std::fs::read_dir(dir.path()).expect("the directory").count();
    assert_eq!(left, 0, "files were left behind");
    outcome
}

/// Each rank writes its part of a shared file and reads another rank's part, repeatedly.
fn exchange(ranks: u32, rounds: u32, len: u64) -> String {
    let mut text = String::from("op,rank,file,offset,length,start_ns,end_ns\n");
    for round in 0..rounds {
        for rank in 0..ranks {
            let (base, offset) = (u64::from(round) * 1_000, u64::from(rank) * len);
            let other = u64::from((rank + 1) % ranks) * len;
            text += &format!("write,{rank},shared,{offset},{len},{},{}\n", base + 1, base + 100);
            text += &format!("read,{rank},shared,{other},{len},{},{}\n", base + 500, base + 600);
            text += &format!("read,{rank},input.{rank},7,1001,{},{}\n", base + 601, base + 650);
        }
    }
    text
}

#[test]
fn any_number_of_processes_and_threads_gives_the_same_result() {
    let (ranks, rounds, len) = (13, 2, 47_008);
    let prepared = prepared_of(&exchange(ranks, rounds, len));
    for (processes, threads) in [(1, 1), (1, 13), (4, 3), (13, 1), (64, 16)] {
        let outcome = here(&prepared, |options| {
            (options.processes, options.threads) = (processes, threads);
        })
        .unwrap_or_else(|why| panic!("{processes} processes, {threads} threads: {why}"));
        let count = |op| outcome.tally.kinds[&op].latency.count();
        assert_eq!(count(Operation::Write), u64::from(ranks * rounds));
        assert_eq!(count(Operation::Read), u64::from(2 * ranks * rounds));
        assert_eq!(outcome.tally.kinds[&Operation::Write].bytes, u64::from(ranks * rounds) * len);
        assert_eq!(outcome.tally.kinds[&Operation::Read].bytes, u64::from(ranks * rounds) * (len + 1001));
        assert_eq!(outcome.tally.kinds[&Operation::Read].short, 0);
        // Write, read, write, read: a barrier at each of the three changes.
        assert_eq!((outcome.barriers, outcome.processes), (3, processes.min(13)));
        assert_eq!(outcome.compared, Some(u64::from(ranks * rounds) * len));
        let files: u64 = outcome.tally.files.values().flatten().map(|(_, kind)| kind.bytes).sum();
        assert_eq!(files, outcome.tally.bytes());
    }
}

#[test]
fn only_written_files_are_synced_and_syncs_are_measured() {
    let text = "op,rank,file,offset,length,start_ns,end_ns\n\
        write,0,a,0,5,0,1\nwrite,1,b,0,5,0,1\nread,1,input,0,5,2,3\nunlink,0,a,0,0,4,5\n";
    let prepared = prepared_of(text);
    let kinds = |sync| {
        let outcome = here(&prepared, |options| options.sync = sync).expect("sound");
        outcome.tally.kinds.keys().copied().collect::<Vec<_>>()
    };
    assert!(!kinds(false).contains(&Operation::Sync));
    assert!(kinds(true).contains(&Operation::Sync));
    let outcome = here(&prepared, |options| options.sync = true).expect("sound");
    // The removed file is not there any more, and the input file was synced before.
    assert_eq!(outcome.tally.kinds[&Operation::Sync].latency.count(), 1);
}

#[test]
fn a_replay_that_must_end_leaves_no_files() {
    let prepared = prepared_of(&exchange(3, 1, 1000));
    let why = here(&prepared, |options| options.is_ended = || true).expect_err("ended");
    assert!(why.contains("ended by a signal"), "{why}");
}

#[test]
fn without_barriers_a_read_may_precede_the_write_it_depends_on() {
    // The reader has nothing else to do and the writer much, so only a barrier orders them.
    let mut text = String::from("op,rank,file,offset,length,start_ns,end_ns\n");
    for index in 0..400u64 {
        text += &format!("write,0,shared,{},65536,{index},{}\n", index * 65_536, index + 1);
    }
    text += &format!("read,1,shared,{},65536,1000,1001\n", 399 * 65_536);
    let mut stream = Reader::new(Path::new("test"), text.as_bytes(), 0).expect("a heading");
    let never = prepared::Options { barriers: false, ..Default::default() };
    let unordered = Prepared::new(Path::new("test"), &mut stream, &never, |_| {}).expect("sound");
    let short = |prepared: &Prepared| {
        here(prepared, |_| {}).expect("the replay succeeds").tally.kinds[&Operation::Read].short
    };
    assert_eq!(short(&prepared_of(&text)), 0);
    assert_eq!(short(&unordered), 1);
}

#[test]
fn a_real_log_is_replayed_and_its_files_are_kept_on_request() {
    if common::without_darshan() {
        return;
    }
    let path = data("hdf5-diagonal-write-10ranks-dxt.darshan");
    let mut stream = open(&path, &options()).expect("a log");
    let prepared = Prepared::new(&path, &mut *stream, &prepared::Options::default(), |_| {}).expect("sound");
    let dir = tempfile::tempdir().expect("a directory");
    let outcome =
        run(&prepared, &Options { keep: true, ..replay_options(dir.path()) }, |_| {}).expect("sound");
    // Darshan's own counts for this log.
    let kind = |op| (outcome.tally.kinds[&op].latency.count(), outcome.tally.kinds[&op].bytes);
    assert_eq!((kind(Operation::Read), kind(Operation::Write)), ((400, 2_627_610), (40, 16_470)));
    assert_eq!(outcome.compared, Some(16_470));
    let files = &prepared.facts.files;
    let written: Vec<_> = (0..files.len() as u32).filter(|file| files[*file as usize].written).collect();
    assert_eq!(written.len(), 10);
    for number in written {
        let file = dir.path().join("replay").join(prepared.name(number));
        assert_eq!(file.metadata().expect("it is kept").len(), files[number as usize].extent);
    }
}

#[test]
fn pauses_are_kept_and_scaled() {
    let mut text = String::from("op,rank,file,length,start_ms,end_ms\n");
    for rank in 0..20 {
        text += &format!("write,{rank},a{rank},1,0,1\nwrite,{rank},a{rank},1,401,402\n");
    }
    let prepared = prepared_of(&text);
    let elapsed = |processes, timing| {
        let outcome = here(&prepared, |options| {
            (options.processes, options.threads, options.timing) = (processes, 1, timing);
        });
        outcome.expect("sound").tally.elapsed().get() / 1_000_000
    };
    assert!(elapsed(4, Timing::Speed(1.0)) >= 400);
    assert!(elapsed(4, Timing::Speed(4.0)) >= 100);
    // Ranks that share a thread pause in parallel; one after another they would take 8 s.
    let shared = elapsed(1, Timing::Speed(1.0));
    assert!((400..6_000).contains(&shared), "{shared} ms");
    assert!(elapsed(1, Timing::Fast) < shared, "without pauses");
}

#[test]
fn failures_name_rank_file_and_reason() {
    let prepared = prepared_of("op,rank,file,offset,length\nwrite,0,a,0,5\nwrite,1,a,5,5\n");
    let nowhere =
        here(&prepared, |options| options.dir = "/nonexistent/place/replay".into()).expect_err("no place");
    assert!(nowhere.contains("/nonexistent/place/replay"), "{nowhere}");
    let dead = here(&prepared, |options| options.worker = vec!["/bin/false".into()]).expect_err("no worker");
    assert!(dead.contains("ended early"), "{dead}");
    let huge = prepared_of("op,rank,file,offset,length\nwrite,0,a,5,1152921504606846976\n");
    let why = here(&huge, |_| {}).expect_err("no room");
    assert!(why.contains("are free"), "{why}");
    // A refused operation is reported with the rank, the file in the replay and in the trace, and the system's error.
    let past = prepared_of("op,rank,file,offset,length\nwrite,0,/data/a,9223372036854775807,5\n");
    let why = here(&past, |options| options.space_limit = None).expect_err("beyond the largest offset");
    assert!(why.contains("rank 0: write of") && why.contains("/data/a"), "{why}");
    let past = prepared_of("op,rank,file,offset,length\nread,0,/data/a,9223372036854775807,5\n");
    let why = here(&past, |options| options.space_limit = None).expect_err("beyond the largest offset");
    assert!(why.contains("preparing") && why.contains("File too large"), "{why}");
}

#[test]
fn large_files_are_filled_only_where_they_are_read() {
    let text = "op,rank,file,offset,length,start_ns,end_ns\n\
        read,0,large,1099511627776,5000,0,1\nread,1,large,7,5000,0,1\n\
        write,1,large,9,10,5,6\nread,0,large,0,100,10,11\n";
    let prepared = prepared_of(text);
    assert!(prepared.facts.files[0].sparse());
    assert_eq!(
        (prepared.facts.files[0].input, prepared.facts.files[0].space_needed()),
        (Some((1 << 40) + 5000), 10_110)
    );
    let outcome = here(&prepared, |_| {}).expect("10 KB fit");
    assert_eq!((outcome.tally.kinds[&Operation::Read].short, outcome.compared), (0, Some(10)));
}

#[test]
fn a_replay_whose_parent_is_killed_leaves_no_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = dir.path().join("place");
    std::fs::create_dir(&place).expect("made");
    let trace = dir.path().join("trace.csv");
    // Long pauses, so that the parent is killed in the middle.
    let text =
        "op,rank,file,length,start_s,end_s\nwrite,0,a,100000,0,1\nwrite,0,a,1,1000,1001\nwrite,1,b,1,0,1\n";
    std::fs::write(&trace, text).expect("written");
    let mut child = std::process::Command::new(HELPER)
        .args(["replay", trace.to_str().expect("text"), place.to_str().expect("text")])
        .env("TMPDIR", dir.path())
        .spawn()
        .expect("started");
    let entries = |path: &Path| std::fs::read_dir(path).expect("the directory").flatten().count();
    let written = || {
        let below = std::fs::read_dir(&place).expect("the directory").flatten().next();
        below.is_some_and(|below| entries(&below.path()) == 2)
    };
    wait_until("the files exist", written);
    child.kill().expect("it runs");
    child.wait().expect("it ran");
    wait_until("the files are gone", || entries(&place) == 0);
    // The trace and the replay's directory remain.
    assert_eq!(entries(dir.path()), 2, "files were left in the temporary directory");
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begin = std::time::Instant::now();
    while !done() {
        assert!(begin.elapsed().as_secs() < 60, "{what}: not within a minute");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn one_failing_rank_ends_all_ranks_that_wait_for_it() {
    let text = "op,rank,file,offset,length,start_ns,end_ns\n\
        write,0,a,0,5,0,1\nwrite,0,a,9223372036854775807,5,2,3\nread,1,a,0,5,10,11\nread,0,a,0,5,12,13\n";
    let prepared = prepared_of(text);
    assert_eq!(prepared.facts.barriers.len(), 1);
    for (processes, threads) in [(2, 1), (1, 2), (1, 1)] {
        let why = here(&prepared, |options| {
            (options.processes, options.threads, options.space_limit) = (processes, threads, None);
        })
        .expect_err("the second write");
        assert!(why.contains("rank 0: write of"), "{why}");
    }
}
