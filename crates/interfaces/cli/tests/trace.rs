//! `weft trace`: traces are shown, converted, and replayed on Weft and on the twin.
//!
//! The tests read Darshan logs with a library that `make test` installs, and `scripts/deps.sh darshan` alone.

mod common;

use common::{Embedded, WEFT, root, succeeded};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

fn log(name: &str) -> PathBuf {
    root().join("crates/insight/trace/tests/data").join(name)
}

fn weft(args: &[&str]) -> String {
    succeeded(common::undisturbed().args(args))
}

fn rows(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Returns the row of a kind of operation.
fn kind<'a>(rows: &'a [Value], operation: &str) -> &'a Value {
    let is = |row: &&Value| row["row"] == "operation" && row["operation"] == operation;
    rows.iter().find(is).unwrap_or_else(|| panic!("no row of {operation}: {rows:?}"))
}

#[test]
fn a_trace_is_the_same_in_every_form() {
    if common::without_darshan() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let log = log("hdf5-diagonal-write-10ranks-dxt.darshan");
    let path = |name: &str| dir.path().join(name).to_str().expect("text").to_owned();
    let (wtrace, csv, again) = (path("a.wtrace"), path("a.csv"), path("b.wtrace"));
    weft(&["trace", "export", log.to_str().expect("text"), "--wtrace", &wtrace]);
    weft(&["trace", "export", &wtrace, "--csv", &csv]);
    weft(&["trace", "export", &csv, "--wtrace", &again]);
    let show = |path: &str| -> Value {
        let mut shown: Value = serde_json::from_str(&weft(&["trace", "show", path, "--json"])).expect("JSON");
        // CSV does not contain the description of the program.
        for key in ["source", "program", "processes", "began_unix_ns"] {
            shown.as_object_mut().expect("an object").remove(key);
        }
        shown
    };
    let first = show(log.to_str().expect("text"));
    assert_eq!((&first["records"], &first["ranks"]), (&440.into(), &10.into()));
    assert_eq!(first["levels"][0]["reads"]["bytes"], 2_627_610);
    for other in [&wtrace, &csv, &again] {
        assert_eq!(show(other), first, "{other}");
    }
    let piped = weft(&["trace", "export", &again, "--csv", "-"]);
    assert_eq!(piped, std::fs::read_to_string(&csv).expect("text"));
}

#[test]
fn the_output_of_a_conversion_does_not_replace_its_trace() {
    let dir = tempfile::tempdir().expect("a directory");
    let trace = dir.path().join("a");
    let rows = (0..20_000).map(|n| format!("write,/scratch/a,{n},1\n"));
    std::fs::write(&trace, "operation,file,offset,length\n".to_owned() + &rows.collect::<String>())
        .expect("written");
    let before = std::fs::read(&trace).expect("there");
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&trace, &link).expect("made");
    for output in [&trace, &link] {
        for form in [
            &["trace", "export", "--csv"][..],
            &["trace", "export", "--wtrace"],
            &["trace", "plot", "-o"],
            &["plan", "-o"],
        ] {
            let told =
                common::undisturbed().args(form).arg(output).arg(&trace).output().expect("weft starts");
            assert_eq!(told.status.code(), Some(2), "{form:?}: {}", common::shown(&told));
            assert!(common::shown(&told).contains("would be overwritten"), "{}", common::shown(&told));
            assert!(std::fs::read(&trace).expect("there") == before, "{form:?}");
        }
    }
}

#[test]
fn outputs_are_checked_before_the_work_and_replaced_when_complete() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("text").to_owned();
    // A pipe without a writer: a command that opened the trace first would block.
    let (pipe, csv, damaged) = (path("pipe"), path("a.csv"), path("b.csv"));
    common::succeeded(Command::new("mkfifo").arg(&pipe));
    std::fs::write(&csv, HALVES).expect("written");
    std::fs::write(&damaged, HALVES.to_owned() + "read,0,/scratch/big,many\n").expect("written");
    std::fs::write(path("cluster.toml"), weft(&["twin", "example"])).expect("written");
    let (old, cluster) = (path("old.svg"), path("cluster.toml"));
    std::fs::write(&old, "old").expect("written");
    for form in [&["trace", "plot"][..], &["plan", "--cluster", &cluster]] {
        for wrong in [path("missing/a.svg"), path("a.csv/a.svg"), path("")] {
            let told =
                common::undisturbed().args(form).args([&pipe, "-o", &wrong]).output().expect("weft starts");
            assert!(!told.status.success(), "{form:?} {wrong}");
            assert!(common::shown(&told).contains(&wrong), "{}", common::shown(&told));
        }
        let told =
            common::undisturbed().args(form).args([&damaged, "-o", &old]).output().expect("weft starts");
        assert_eq!(told.status.code(), Some(1), "{}", common::shown(&told));
        assert_eq!(std::fs::read_to_string(&old).expect("there"), "old");
        weft(&[form, &[&csv, "-o", &old]].concat());
        assert_ne!(std::fs::read_to_string(&old).expect("there"), "old");
        std::fs::write(&old, "old").expect("written");
    }
    assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 5, "nothing is left beside");
}

/// A CSV trace of two ranks, each of which writes its half and reads the other one.
const HALVES: &str = "\
op,rank,file,offset,length,start_ms,end_ms
write,0,/scratch/big,0,4MiB,0,10
write,1,/scratch/big,4MiB,4MiB,0,10
read,0,/scratch/big,4MiB,4MiB,20,25
read,1,/scratch/big,0,4MiB,20,25
read,0,/scratch/small,0,100,30,31
";

#[test]
fn a_trace_is_plotted_and_tabulated() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("text").to_owned();
    let (csv, svg, parquet) = (path("a.csv"), path("a.svg"), path("a.parquet"));
    std::fs::write(&csv, HALVES).expect("written");
    weft(&["trace", "plot", &csv, "-o", &svg]);
    let drawn = std::fs::read_to_string(&svg).expect("a picture");
    for part in [
        "a.csv",
        "/scratch/big",
        "8.00 MiB read",
        "8.00 MiB written",
        "shown: 1 of 2 files",
        "5 requests of 2 ranks",
    ] {
        assert!(drawn.contains(part), "{part} is not in {drawn}");
    }
    assert_eq!(weft(&["trace", "plot", &csv, "-o", "-"]), drawn, "equal traces give equal plots");
    let small = weft(&["trace", "plot", &csv, "-o", "-", "--only", "small", "--view", "ranks"]);
    assert!(small.contains("/scratch/small") && !small.contains("/scratch/big"), "{small}");
    let plan = path("replicas.toml");
    let planned = "version = 1\ntrace = \"t\"\npolicy = \"best\"\n[[replica]]\npath = \"/scratch/big\"\nranks = 2\nreason = \"\"\n\
                   now_s = 1.0\nrun_s = 1.0\ncopy_s = 0.0\nmapping = [\"0+4194304>0\"]\n";
    std::fs::write(&plan, planned).expect("written");
    let marked = weft(&["trace", "plot", &csv, "-o", "-", "--replicas", &plan]);
    assert!(marked.contains("green bar: 4.00 MiB that replicas.toml replicates"), "{marked}");
    assert!(marked.contains("#1a7f37") && !drawn.contains("#1a7f37"), "{marked}");
    let other = weft(&["trace", "plot", &csv, "-o", "-", "--replicas", &plan, "--only", "small"]);
    assert!(other.contains("no replicas of the files shown") && !other.contains("#1a7f37"), "{other}");
    let together = weft(&["trace", "plot", &csv, "-o", "-", "--together", "--view", "rank-time"]);
    assert!(together.contains("2 files together") && !together.contains("shown:"), "{together}");
    weft(&["trace", "export", &csv, "--parquet", &parquet]);
    let bytes = std::fs::read(&parquet).expect("a table");
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    let full = common::undisturbed().args(["trace", "export", &csv, "--parquet", "/dev/full"]).output();
    let full = common::shown(&full.expect("weft starts"));
    assert!(full.contains("/dev/full: No space left on device\n"), "{full}");
    let refused = |args: &[&str]| {
        let output = common::undisturbed().args(args).output().expect("weft starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, why) = refused(&["trace", "plot", &csv, "-o", "-", "--only", "nothing of that name"]);
    assert!(code == Some(1) && why.contains("nothing of that name"), "{why}");
    let ranks = ["trace", "plot", &csv, "-o", "-", "--view", "rank-time", "--replicas", &plan];
    let (code, why) = refused(&ranks);
    assert!(code == Some(2) && why.contains("--view ranks"), "{why}");
    let (code, why) = refused(&["trace", "plot", &csv, "-o", &path("a.png")]);
    assert!(code == Some(1) && why.contains("SVG"), "{why}");
    let (code, why) = refused(&["trace", "export", &csv, "--parquet", &parquet, "--csv", "-"]);
    assert!(code == Some(2) && why.contains("cannot be used with"), "{why}");
}

#[test]
fn a_log_without_operations_shows_counters_and_names_the_missing_data() {
    if common::without_darshan() {
        return;
    }
    let log = log("mpi-io-test-4ranks-counters.darshan");
    let log = log.to_str().expect("text");
    let shown = weft(&["trace", "show", log]);
    for part in ["counters only", "DXT_ENABLE_IO_TRACE=1", "64.0 MiB", "MPI-IO"] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    let refused = common::undisturbed().args(["replay", log, "/tmp"]).output().expect("weft starts");
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1));
    assert!(why.contains("--reconstruct") && why.contains("counters only"), "{why}");
    let shown: Value =
        serde_json::from_str(&weft(&["trace", "show", log, "--reconstruct", "--json"])).expect("JSON");
    assert_eq!((&shown["source"], &shown["ranks"]), (&"darshan-counters".into(), &4.into()));
}

#[test]
fn a_real_log_is_replayed_on_weft_and_every_byte_is_right() {
    if common::without_darshan() {
        return;
    }
    let cluster = Embedded::started();
    let log = log("hdf5-diagonal-write-10ranks-dxt.darshan");
    let args = ["replay", log.to_str().expect("text"), "/weft", "--verify", "--json", "--processes", "5"];
    let rows = rows(&cluster.weft(args));
    assert_eq!((&rows[0]["ranks"], &rows[0]["processes"]), (&10.into(), &5.into()));
    assert_eq!(rows[0]["compared_bytes"], 16_470);
    assert_eq!(
        (&kind(&rows, "read")["count"], &kind(&rows, "read")["bytes"]),
        (&400.into(), &2_627_610.into())
    );
    assert_eq!((&kind(&rows, "write")["count"], &kind(&rows, "read")["short"]), (&40.into(), &0.into()));
    assert!(
        rows.iter()
            .any(|row| row["row"] == "file" && row["file"].as_str().is_some_and(|f| f.ends_with(".pyc")))
    );
    assert_eq!(cluster.weft(["ls", "/weft"]), "", "nothing is left");
    // Under `weft run`, in its environment.
    let mut command = vec![WEFT];
    command.extend(["replay", log.to_str().expect("text"), "/weft", "--verify"]);
    assert!(cluster.run(command).contains("all bytes read were correct"));
    // A log on Weft can be read there.
    cluster.weft(["cp", log.to_str().expect("text"), "/weft/a.darshan"]);
    let shown = cluster.run([WEFT, "trace", "show", "/weft/a.darshan"]);
    assert!(shown.contains("440 in 2.970 s"), "{shown}");
    let why = cluster.fails(1, ["replay", log.to_str().expect("text"), "/weft/nowhere"]);
    assert!(why.contains("/weft/nowhere"), "{why}");
}

/// Four targets on one disk share its free space.
#[test]
fn a_replay_that_the_disk_below_all_targets_cannot_take_is_not_begun() {
    let cluster = Embedded::started();
    let bytes: u64 =
        cluster.weft(["df", "--bytes"]).lines().nth(1).map_or(0, |line| {
            line.split_whitespace().nth(5).expect("what is available").parse().expect("bytes")
        });
    let trace = cluster.local("large.csv");
    std::fs::write(&trace, format!("op,file,length\nwrite,/a,{}\nwrite,/b,1\n", bytes + bytes / 2)).unwrap();
    let error = cluster.fails(1, ["replay", trace.to_str().unwrap(), "/weft"]);
    assert!(error.contains("are free") && error.contains("--no-room-check"), "{error}");
    assert_eq!(cluster.weft(["ls", "/weft"]), "");
}

#[test]
fn a_file_system_that_loses_bytes_is_detected() {
    let cluster = Embedded::started();
    cluster.weft(["stop"]);
    let file = std::fs::read_to_string(cluster.file()).expect("a cluster file");
    let null = file.replace("[[server.target]]\n", "[[server.target]]\nmodule = \"null\"\n");
    assert_ne!(null, file);
    std::fs::write(cluster.file(), null).expect("written");
    let trace = cluster.local("trace.csv");
    std::fs::write(&trace, "op,file,offset,length\nwrite,a,0,100000\nwrite,a,100000,100000\n")
        .expect("written");
    let trace = trace.to_str().expect("text");
    cluster.weft(["replay", trace, "/weft"]);
    let why = cluster.fails(1, ["replay", trace, "/weft", "--verify"]);
    assert!(why.contains("comparing /weft/weft-replay-"), "{why}");
}

#[test]
fn every_command_reads_every_kind_of_trace() {
    if common::without_darshan() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("text").to_owned();
    let (cluster, plan, picture) = (path("cluster.toml"), path("plan.toml"), path("map.svg"));
    let target = "targets = [{ class = \"hdd\", profile = \"hdd-7200\" }]";
    std::fs::write(&cluster, format!("seed = 5\n[[servers]]\ncount = 3\n{target}\n")).expect("written");
    let (log, wtrace, csv) =
        (log("hdf5-diagonal-write-10ranks-dxt.darshan"), path("a.wtrace"), path("a.csv"));
    let log = log.to_str().expect("text");
    weft(&["trace", "export", log, "--wtrace", &wtrace]);
    weft(&["trace", "export", &wtrace, "--csv", &csv]);
    let mut same: Vec<[String; 3]> = Vec::new();
    for trace in [log, &wtrace, &csv] {
        assert!(weft(&["trace", "show", trace]).contains("10"), "{trace}");
        weft(&["trace", "plot", trace, "-o", &picture]);
        let replay = rows(&weft(&["replay", trace, "--twin", &cluster, "--json"]));
        weft(&["replay", trace, dir.path().to_str().expect("text"), "--verify"]);
        weft(&["plan", trace, "--cluster", &cluster, "--verify", "--output", &plan]);
        let layouts = std::fs::read_to_string(&plan).expect("a plan");
        let layouts: Vec<&str> = layouts.lines().filter(|line| line.contains("stripes")).collect();
        let csv = weft(&["trace", "export", trace, "--csv", "-"]);
        same.push([replay[0]["event_hash"].to_string(), layouts.join("\n"), csv]);
        // Commands for workloads refer to the commands for traces.
        let output = common::undisturbed().args(["twin", "run", trace]).output().expect("weft starts");
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && why.contains("weft replay"), "{why}");
    }
    assert!(!same[0][1].is_empty());
    assert!(same.iter().all(|of| *of == same[0]), "the same from every kind");
}

#[test]
fn the_twin_replays_a_log_the_same_way_twice() {
    if common::without_darshan() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let spec = dir.path().join("cluster.toml");
    std::fs::write(&spec, "seed = 5\n[[servers]]\ncount = 3\n").expect("written");
    let log = log("hdf5-diagonal-write-10ranks-dxt.darshan");
    let (log, spec) = (log.to_str().expect("text"), spec.to_str().expect("text"));
    let replay = |more: &[&str]| rows(&weft(&[&["replay", log, "--twin", spec, "--json"], more].concat()));
    let (first, again) = (replay(&[]), replay(&[]));
    assert_eq!(first[0]["event_hash"], again[0]["event_hash"]);
    assert_eq!(
        (&kind(&first, "read")["count"], &kind(&first, "read")["bytes"]),
        (&400.into(), &2_627_610.into())
    );
    assert_eq!(
        (&kind(&first, "write")["count"], &kind(&first, "write")["bytes"]),
        (&40.into(), &16_470.into())
    );
    // The program computed for seconds between its operations.
    let seconds = |rows: &[Value]| rows[0]["seconds"].as_f64().expect("a number");
    assert!(seconds(&first) < 1.0, "{first:?}");
    let paced = replay(&["--speed", "1"]);
    assert!((2.0..4.0).contains(&seconds(&paced)), "{paced:?}");
    std::fs::write(spec, "servers = 7").expect("written");
    let refused = common::undisturbed().args(["replay", log, "--twin", spec]).output().expect("weft starts");
    assert_eq!(refused.status.code(), Some(2), "{}", common::shown(&refused));
}

#[test]
fn files_that_are_no_traces_are_refused_with_a_list_of_formats() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("x");
    for (bytes, why) in [
        (&b""[..], "it is empty"),
        (b"# a comment\nworld\n", "CSV needs one, such as rank,host"),
        (b"hello\nworld\n", "CSV needs one, such as rank,host"),
        (&[0x1f, 0x8b, 8, 0], "uncompress it first"),
        (&[0; 100], "neither .wtrace, CSV nor a Darshan 3 log"),
    ] {
        std::fs::write(&file, bytes).expect("written");
        let shown = common::undisturbed().args(["trace", "show"]).arg(&file).output().expect("weft starts");
        let said = String::from_utf8_lossy(&shown.stderr);
        assert!(shown.status.code() == Some(1) && said.contains(why), "{said}");
    }
    let mut piped = common::isolated("sh");
    piped.args(["-c", "echo operation,file | \"$1\" trace show /dev/stdin", "sh", WEFT]);
    let said = common::shown(&piped.output().expect("sh starts"));
    assert!(said.contains("write it to a file first"), "{said}");
}

#[test]
fn records_before_the_damage_of_a_trace_are_recovered() {
    let dir = tempfile::tempdir().expect("a directory");
    let [csv, trace, out] = ["a.csv", "a.wtrace", "b"].map(|name| dir.path().join(name));
    let rows = (0..20_000u64).map(|n| format!("write,/scratch/a,{},1\n", n.wrapping_mul(n) % 1_000_003));
    std::fs::write(&csv, "operation,file,offset,length\n".to_owned() + &rows.collect::<String>())
        .expect("written");
    let export = |from: &PathBuf, form: &str, to: &PathBuf| {
        common::undisturbed()
            .args(["trace", "export"])
            .arg(from)
            .arg(form)
            .arg(to)
            .output()
            .expect("weft starts")
    };
    assert!(export(&csv, "--wtrace", &trace).status.success());
    let mut bytes = std::fs::read(&trace).expect("there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(&trace, bytes).expect("written");
    let records = |path: &PathBuf| -> u64 {
        let shown = weft(&["trace", "show", "--json", path.to_str().expect("text")]);
        serde_json::from_str::<Value>(&shown).expect("JSON")["records"].as_u64().expect("a number")
    };
    for form in ["--csv", "--wtrace"] {
        let told = export(&trace, form, &out);
        assert!(told.status.code() == Some(1) && common::shown(&told).contains("copies the records before"));
        // Whole blocks of 4,096.
        assert_eq!(records(&out), 8192, "{form}");
        let shown = weft(&["trace", "show", out.to_str().expect("text")]);
        assert!(form == "--csv" || shown.contains("is damaged at byte"), "{form}: {shown}");
    }
}
