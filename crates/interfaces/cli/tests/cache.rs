//! `weft cache simulate`: hit ratios for Zipf workloads, traces of programs and traces of block devices.

mod common;

use common::{shown, succeeded};
use serde_json::Value;
use std::path::Path;

const KIB_64: u64 = 64 << 10;

fn simulate(args: &[&str]) -> String {
    succeeded(common::undisturbed().args(["cache", "simulate"]).args(args))
}

fn rows(args: &[&str]) -> Vec<Value> {
    let text = simulate(&[args, &["--json"]].concat());
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Returns the hit ratio of a policy in a part of the workload.
fn ratio(rows: &[Value], requests: &str, policy: &str, filtered: bool) -> f64 {
    let is =
        |row: &&Value| row["requests"] == requests && row["policy"] == policy && row["filtered"] == filtered;
    let row = rows.iter().find(is).unwrap_or_else(|| panic!("{requests} {policy}: {rows:?}"));
    row["hit_ratio"].as_f64().expect("a number")
}

fn refused(args: &[&str], code: i32, why: &str) {
    let told = common::undisturbed().args(["cache", "simulate"]).args(args).output().expect("weft starts");
    assert_eq!(told.status.code(), Some(code), "{args:?}: {}", shown(&told));
    assert!(shown(&told).contains(why), "{args:?}: {}", shown(&told));
}

#[test]
fn zipf_workloads_have_a_row_for_each_skew_and_size() {
    let args = [
        "--zipf",
        "0.8,1.0",
        "--blocks",
        "5000",
        "--requests",
        "20000",
        "--cache",
        "1%,32MiB",
        "--seed",
        "7",
    ];
    let found = rows(&args);
    assert_eq!(found.len(), 2 * 2 * 4);
    for row in &found {
        assert_eq!((&row["blocks"], &row["footprint_bytes"]), (&20_000.into(), &(5000 * KIB_64).into()));
        assert!([50 * KIB_64, 32 << 20].map(Value::from).contains(&row["cache_bytes"]), "{row}");
    }
    for same in found.chunks(4) {
        let [s3_fifo, lru] = ["s3-fifo", "lru"].map(|policy| ratio(same, "all", policy, false));
        assert!(s3_fifo >= lru && lru > 0.0, "{same:?}");
    }
    assert_eq!(found, rows(&args), "equal seeds give equal results");
    let table = simulate(&args);
    let words = ["skew", "s3-fifo filtered", "0.80", "1.00", "32.0 MiB", "5000 blocks of 64 KiB"];
    assert!(words.iter().all(|word| table.contains(word)), "{table}");
    assert_eq!(table.lines().count(), 2 + 1 + 4, "{table}");
}

#[test]
fn a_scan_costs_s3_fifo_at_most_five_points() {
    let found = rows(&[
        "--zipf",
        "1.0",
        "--blocks",
        "20000",
        "--requests",
        "100000",
        "--cache",
        "5%",
        "--scan",
        "10",
    ]);
    assert_eq!(found.len(), 3 * 4);
    let drop = |policy, filtered| {
        ratio(&found, "before scan", policy, filtered) - ratio(&found, "during scan", policy, filtered)
    };
    assert!(drop("s3-fifo", true) <= 0.05 && drop("s3-fifo", false) <= 0.05, "{found:?}");
    assert!(drop("lru", false) > 0.05, "the scan has an effect: {found:?}");
}

#[test]
fn traces_of_programs_and_devices_are_simulated() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("text").to_owned();
    // Blocks 0 to 9 of a file are written, then read three times; the file is removed, and read again.
    let mut lines = "operation,file,offset,length,start_ns\n".to_owned();
    let mut time = 0;
    let mut line = |op: &str, block: u64| {
        time += 1;
        lines += &format!("{op},/scratch/a,{},{KIB_64},{time}\n", block * KIB_64);
    };
    (0..10).for_each(|block| line("write", block));
    (0..30).for_each(|request| line("read", request % 10));
    line("unlink", 0);
    (0..10).for_each(|block| line("read", block));
    std::fs::write(path("a.csv"), &lines).expect("written");
    succeeded(common::undisturbed().args(["trace", "export", &path("a.csv"), "--wtrace", &path("a.wtrace")]));
    let found = rows(&[&path("a.wtrace"), "--cache", "100%"]);
    assert_eq!(found.len(), 2 * 4);
    for policy in ["s3-fifo", "lru"] {
        assert_eq!(ratio(&found, "reads", policy, false), 0.75);
        assert_eq!(ratio(&found, "writes", policy, false), 0.0);
    }
    assert_eq!(found, rows(&[&path("a.csv"), "--cache", "100%"]));

    // The same on a block device, which knows no removal; a second volume is other data.
    let msr = |volume: u64, op: &str, block: u64| {
        format!("128166372003061629,usr,{volume},{op},{},{KIB_64},1\r\n", block * KIB_64)
    };
    let mut lines: String = (0..10).map(|block| msr(0, "Write", block)).collect();
    lines.extend((0..40).map(|request| msr(request / 30, "Read", request % 10)));
    std::fs::write(path("usr.csv"), lines).expect("written");
    let found = rows(&[&path("usr.csv"), "--cache", "100%"]);
    assert_eq!(found[0]["footprint_bytes"], 20 * KIB_64);
    assert_eq!(ratio(&found, "reads", "lru", false), 0.75);
    let text = "timestamp,offset,size,op\n1,0,65536,Read\n2,0,65536,Read\n";
    std::fs::write(path("b.csv"), text).expect("written");
    assert_eq!(ratio(&rows(&[&path("b.csv"), "--cache", "64KiB"]), "reads", "s3-fifo", false), 0.5);
}

#[test]
fn wrong_arguments_and_traces_are_refused_with_a_remedy() {
    for (args, why) in [
        (&["--zipf", "1.2..0.6"][..], "empty range"),
        (&["--zipf", "9"], "not a skew"),
        (&["--cache", "0%"], "percentage"),
        (&["--cache", "1KiB"], "smaller than a block"),
        (&["--blocks", "0"], "--blocks"),
        (&["--scan", "0"], "--scan"),
        (&["a.csv", "--scan", "10"], "cannot be used with"),
    ] {
        refused(args, 2, why);
    }
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("text").to_owned()
    };
    refused(&[&file("a", "timestamp,offset,size,op\n1,x,1,Read\n")], 1, "line 2: \"x\" is not an offset");
    refused(&[&file("b", "timestamp,offset,size,op\n")], 1, "no reads and writes");
    refused(&[&file("c", "nothing\n")], 1, "CSV needs one");
    refused(&[Path::new("/nonexistent/trace").to_str().expect("text")], 1, "No such file");
}
