//! `weft twin` on the command line: equal descriptions give equal predictions.

mod common;

use common::succeeded;
use serde_json::Value;

fn rows(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a JSON object")).collect()
}

fn twin(args: &[&str]) -> String {
    succeeded(common::undisturbed().arg("twin").args(args))
}

#[test]
fn a_prediction_is_the_same_each_time_and_the_example_is_the_default() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("cluster.toml");
    std::fs::write(&file, twin(&["example"])).expect("written");
    let file = file.to_str().expect("a name");
    let args = ["run", "ior", "--set", "ranks=4", "--set", "access=\"both\"", "--disks", "--json"];
    let first = twin(&args);
    assert_eq!(first, twin(&args));
    assert_eq!(first, twin(&[&args[..], &["--cluster", file]].concat()));
    let rows = rows(&first);
    let sum = |kind: &str| {
        let of_kind = rows.iter().filter(|row| row["kind"] == kind);
        of_kind.map(|row| row["bytes"].as_u64().expect("a number")).sum::<u64>()
    };
    assert_eq!((sum("write"), sum("read")), (16 << 20, 16 << 20), "4 MiB of each of 4 ranks");
    assert_eq!(rows.iter().filter(|row| row["profile"] == "simple").count(), 9);
    let other = twin(&[&args[..], &["--seed", "2"]].concat());
    let hash = |text: &str| self::rows(text).last().expect("a last row")["event_hash"].clone();
    assert_ne!(hash(&first), hash(&other));
}

#[test]
fn wrong_descriptions_are_refused_with_their_field() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("cluster.toml");
    std::fs::write(&file, "[[servers]]\ncount = 0\n").expect("written");
    let output =
        common::undisturbed().args(["twin", "run", "ior", "--cluster"]).arg(&file).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("servers[0].count: give at least 1"), "{text}");
}

#[test]
fn the_speed_of_the_simulation_is_measured() {
    let rows = rows(&twin(&["speed", "--only", "2x4", "--requests", "400", "--json"]));
    assert_eq!(rows.len(), 1);
    // 400 transfers, and four ranks that open and close the file for writing and for reading.
    assert_eq!(rows[0]["requests"], 400 + 4 * 4);
    for figure in
        ["requests_per_s", "requests_per_processor_s", "memory_bytes", "turns_per_request", "virtual_s"]
    {
        assert!(rows[0][figure].as_f64().is_some_and(|figure| figure > 0.0), "{figure}: {}", rows[0]);
    }
}

#[test]
fn a_run_says_that_its_bytes_have_not_reached_the_disks() {
    let said = |options: &[&str]| {
        let mut command = common::undisturbed();
        succeeded(command.args(["twin", "run", "ior", "--set", "ranks=2", "--disks"]).args(options))
    };
    let note = "reached a disk during the run";
    assert!(said(&[]).contains(note));
    for options in [&["--set", "sync=end"][..], &["--drain"]] {
        assert!(!said(options).contains(note), "{options:?}");
    }
}
