//! `weft bench` with workloads, and `weft workload`: small runs that check the printed rows and compare bytes.

mod common;

use common::Embedded;

/// Parses the JSON lines as (case, operation, transport, unit).
fn rows(printed: &str) -> Vec<(String, String, String, String)> {
    let row = |line: &str| {
        let row: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
        let text = |name: &str| row[name].as_str().expect("text").to_owned();
        assert!(row["value"].as_f64().is_some_and(|value| value > 0.0), "{line}");
        assert!(row["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0), "{line}");
        (text("case"), text("operation"), text("transport"), text("unit"))
    };
    printed.lines().map(row).collect()
}

fn printed(args: &[&str]) -> String {
    let output = common::undisturbed().args(args).output().expect("weft starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn workloads_run_on_weft() {
    let cluster = Embedded::started();
    let control = cluster.local("control");
    let few = ["--rounds", "1", "--json", "--control", control.to_str().unwrap()];
    let btio = ["bench", "--workload", "btio", "--ranks", "4", "--set", "dumps=2", "--set", "subtype=simple"];
    let got = rows(&cluster.weft(btio.iter().chain(&few)));
    let expected = |transport: &str| {
        ["write", "read"].map(|operation| {
            let [case, unit] = ["btio", "MiB/s"];
            (case.to_owned(), operation.to_owned(), transport.to_owned(), unit.to_owned())
        })
    };
    // By the preload library and by the client library, with descriptors and with messages.
    let ways = [expected("descriptor"), expected("socket")].concat();
    assert_eq!(got, [ways.clone(), ways].concat());
    let names = ["bench", "--workload", "mdtest", "--set", "files=20", "--interfaces", "library"];
    let got = rows(&cluster.weft(names.iter().chain(&["--transports", "socket"]).chain(&few)));
    let operations: Vec<&str> = got.iter().map(|row| row.1.as_str()).collect();
    assert_eq!(operations, ["create", "stat", "remove"]);
    // The benchmark leaves no files.
    assert_eq!(cluster.weft(["ls"]), "");
    assert!(!control.exists());
}

#[test]
fn the_usual_cases_are_measured_and_compared() {
    let cluster = Embedded::started();
    let control = cluster.local("control");
    let usual =
        ["bench", "--size", "256KiB", "--transfers", "47008", "--files", "5", "--interfaces", "library"];
    let more = ["--transports", "socket", "--rounds", "1", "--sync", "--json", "--ranks", "2", "--control"];
    let got = rows(&cluster.weft(usual.iter().chain(&more).chain(&[control.to_str().unwrap()])));
    let got: Vec<(&str, &str)> = got.iter().map(|row| (row.0.as_str(), row.1.as_str())).collect();
    let ior = |case| ["write", "write+sync", "read"].map(|operation| (case, operation));
    let mdtest = ["create", "stat", "remove"].map(|operation| ("mdtest", operation));
    let hard = ["create", "stat", "read", "remove"].map(|operation| ("mdtest-hard", operation));
    let expected = [&ior("ior-segmented")[..], &ior("ior-interleaved"), &mdtest, &hard].concat();
    assert_eq!(got, expected);
}

#[test]
fn the_cost_of_checksums_at_rest_is_measured_in_turns() {
    let cluster = Embedded::started();
    let args = "bench --integrity --size 256KiB --transfers 47008 --patterns segmented --files 3 --rounds 2 --ranks 2 --sync";
    let args: Vec<&str> =
        args.split(' ').chain(["--interfaces", "preload", "--transports", "auto"]).collect();
    let printed = cluster.weft(args.iter().chain(&["--json"]));
    let got = rows(&printed);
    let got: Vec<&str> = got.iter().map(|row| row.1.as_str()).collect();
    let (ior, mdtest) = (["write", "write+sync", "read"], ["create", "stat", "remove"]);
    assert_eq!(got, [&ior[..], &mdtest, &["create", "stat", "read", "remove"]].concat());
    for line in printed.lines() {
        let row: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
        assert_eq!(row["cluster"], "crc32c", "{line}");
        assert!(row["cpu_ratio"].as_f64().is_some_and(|ratio| ratio > 0.0), "{line}");
    }
    let table = cluster.weft(&args[..]);
    assert!(table.lines().any(|line| line.contains("ior-segmented") && line.ends_with("crc32c")), "{table}");
    assert_eq!(cluster.weft(["ls"]), "");
}

#[test]
fn another_file_system_needs_no_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let (path, control) = (dir.path().join("there"), dir.path().join("control"));
    let file = dir.path().join("mine.toml");
    let text = "kind = \"hpio\"\nranks = 3\nregion_count = 4\naccess = \"both\"\ncollective = true\n[two_phase]\ncb_nodes = 2\n";
    std::fs::write(&file, text).unwrap();
    let at = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let (file, path, control) = (at(&file), at(&path), at(&control));
    let got = rows(&printed(&[
        "bench",
        "--workload",
        &file,
        "--path",
        &path,
        "--control",
        &control,
        "--rounds",
        "1",
        "--json",
    ]));
    let expected = ["write", "read"].map(|operation| ["hpio", operation, "-", "MiB/s"].map(str::to_owned));
    assert_eq!(got, expected.map(|[case, operation, transport, unit]| (case, operation, transport, unit)));
}

#[test]
fn workloads_are_shown() {
    let listed = printed(&["workload", "list"]);
    for kind in
        ["mpi-io-test", "ior", "hpio", "mpi-tile-io", "btio", "flash-io", "s3d-io", "mdtest", "mpi-md-test"]
    {
        assert!(listed.lines().any(|line| line.starts_with(&format!("{kind} "))), "{kind}: {listed}");
        assert!(printed(&["workload", "example", kind]).starts_with(&format!("kind = \"{kind}\"\n")));
    }
    let set = ["--set", "ranks=2", "--set", "per_rank=128KiB", "--rank", "1"];
    let shown = printed(&[&["workload", "show", "ior"][..], &set].concat());
    assert!(shown.starts_with("rank,phase,operation,file,offset,length\n"), "{shown}");
    assert!(shown.contains("\n1,write,write,ior,131072,65536\n1,write,write,ior,196608,65536\n"), "{shown}");
    let output =
        common::undisturbed().args(["workload", "show", "btio", "--set", "ranks=3"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("3 is not a square: give 1 or 4"), "{told}");
}
