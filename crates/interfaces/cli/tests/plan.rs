//! `weft plan`, from a trace to a plan that is verified on the twin.

mod common;

use common::{Embedded, succeeded, undisturbed};
use weft_planner::{Plan, Planner};

const CLUSTER: &str = r#"
    network = "gbe"
    processes_per_node = 2
    [metadata]
    profile = "psa-hdd"
    [[servers]]
    count = 2
    targets = [{ class = "hdd", profile = "psa-hdd" }]
    [[servers]]
    count = 2
    targets = [{ class = "ssd", profile = "psa-ssd" }]
"#;

/// Writes a trace as CSV and its cluster; returns their paths and that of the plan.
fn files(dir: &std::path::Path) -> [std::path::PathBuf; 3] {
    let [trace, cluster, plan] = ["trace.csv", "twin.toml", "plan.toml"].map(|name| dir.join(name));
    let mut csv = String::from("rank,operation,file,offset,length,start_us,end_us\n");
    for n in 0..512u64 {
        let mixed = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20;
        let (rank, place) = (n % 8, mixed % 512);
        csv += &format!("{rank},read,/scratch/data,{},65536,{n},{}\n", place * 65_536, n + 8);
    }
    std::fs::write(&trace, csv).unwrap();
    std::fs::write(&cluster, CLUSTER).unwrap();
    [trace, cluster, plan]
}

#[test]
fn a_plan_is_written_explained_and_tried() {
    let dir = tempfile::tempdir().unwrap();
    let [trace, cluster, plan] = files(dir.path());
    let mut command = common::undisturbed();
    command.arg("plan").arg(&trace).arg("--cluster").arg(&cluster).args([
        "--capacity",
        "ssd=4MiB",
        "--explain",
    ]);
    let text = succeeded(command.arg("--verify").arg("--output").arg(&plan));
    for part in ["/scratch/data", "random", "confidence", "PAPER'S COST", "on the twin", "MODEL/TWIN"] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    let read = Plan::from_toml(&std::fs::read_to_string(&plan).unwrap()).unwrap();
    let rule = read.rule("/scratch/data").expect("a rule");
    assert_eq!((read.planner, rule.alternatives.len()), (Planner::Best, 4));
    assert_eq!(rule.layout, rule.alternatives[0].layout);
    // With a part of the trace, which the output reports.
    let mut command = common::undisturbed();
    command.arg("plan").arg(&trace).arg("--cluster").arg(&cluster).args([
        "--verify",
        "--verify-requests",
        "100",
    ]);
    let part = succeeded(&mut command);
    assert!(part.contains("of 512 requests ("), "{part}");
    // A plan is also a cluster description: the same trace is planned for it by another planner.
    let mut command = common::undisturbed();
    command.arg("plan").arg(&trace).arg("--cluster").arg(&plan).args(["--planner", "psa", "--output", "-"]);
    let again = Plan::from_toml(&succeeded(&mut command)).unwrap();
    assert_eq!(again.planner, Planner::Psa);
    assert_eq!(again.cluster, read.cluster);
    assert_eq!(again.rules[0].layout, rule.alternatives[1].layout);
}

#[test]
fn without_a_configured_cluster_the_embedded_one_is_planned_for() {
    let cluster = Embedded::started();
    let [trace, _, plan] = files(&cluster.local(""));
    let mut command = undisturbed();
    command.env("WEFT_STATE", cluster.state());
    // No target has limited space, so the servers need not be asked or started.
    cluster.weft(["stop"]);
    succeeded(command.arg("plan").arg(&trace).arg("--output").arg(&plan));
    assert_eq!(cluster.pids(), [None; 4]);
    let plan = Plan::from_toml(&std::fs::read_to_string(&plan).unwrap()).unwrap();
    let classes: Vec<_> = plan.cluster.classes.iter().map(|class| (&class.name[..], class.targets)).collect();
    assert_eq!(classes, [("hdd", 2), ("ssd", 2)]);
}

#[test]
fn impossible_plans_are_refused_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let [trace, cluster, plan] = files(dir.path());
    std::fs::write(&plan, "[cluster]\nname = 5\n").unwrap();
    let asked = |arguments: &[&std::ffi::OsStr]| {
        let out = common::undisturbed().arg("plan").arg(&trace).args(arguments).output().unwrap();
        assert!(!out.status.success());
        String::from_utf8(out.stderr).unwrap()
    };
    let cluster = cluster.as_os_str();
    for (arguments, told) in [
        (
            vec!["--cluster".as_ref(), cluster, "--capacity".as_ref(), "tape=1GiB".as_ref()],
            "no class \"tape\"",
        ),
        (
            vec!["--cluster".as_ref(), cluster, "--planner".as_ref(), "worst".as_ref()],
            "use best, psa, pa or def",
        ),
        (
            vec!["--cluster".as_ref(), cluster, "--only".as_ref(), "nothing".as_ref()],
            "selected by --only and --without",
        ),
        (vec!["--cluster".as_ref(), plan.as_os_str()], "name"),
        // Options that would be ignored silently.
        (vec!["--cluster".as_ref(), cluster, "--profile".as_ref(), "hdd=nvme".as_ref()], "already describes"),
        (vec!["--cluster".as_ref(), cluster, "--network".as_ref(), "gbe".as_ref()], "already describes"),
        (
            vec!["--cluster".as_ref(), cluster, "--output".as_ref(), "-".as_ref(), "--json".as_ref()],
            "is for the plan only",
        ),
        (
            vec!["--cluster".as_ref(), cluster, "-o".as_ref(), "-".as_ref(), "--verify".as_ref()],
            "is for the plan only",
        ),
    ] {
        let error = asked(&arguments);
        assert!(error.contains(told), "{told} is missing: {error}");
    }
}

#[test]
fn files_too_large_for_the_twin_are_planned_but_not_verified() {
    let dir = tempfile::tempdir().unwrap();
    let [trace, cluster, _] = files(dir.path());
    // The last bytes that a file can have.
    let far = i64::MAX as u64 - 4096;
    std::fs::write(&trace, format!("op,file,offset,length\nread,/a,{far},4096\nwrite,/a,0,4096\n")).unwrap();
    let out =
        common::undisturbed().arg("plan").arg(&trace).arg("--cluster").arg(&cluster).arg("--verify").output();
    let out = out.unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(text.contains("/a: 8.00 EiB long") && text.contains("the input files need"), "{text}");
    assert!(text.contains("no layout could be tried") && !text.contains("as the twin does"), "{text}");
    assert_eq!(out.status.code(), Some(1));
    std::fs::write(&trace, "op,file,offset,length\nwrite,/a,4611686018427387904,4096\n").unwrap();
    let out = common::undisturbed().arg("replay").arg(&trace).arg("--twin").arg(&cluster).output().unwrap();
    let error = String::from_utf8(out.stderr).unwrap();
    assert!(error.contains("rank 0: write of 4096 bytes at 4611686018427387904: "), "{error}");
}

#[test]
fn trace_options_are_refused_for_a_watched_directory() {
    for option in
        [&["--only", "x"][..], &["--without", "x"], &["--level", "posix"], &["--verify"], &["--reconstruct"]]
    {
        let out = common::undisturbed().args(["plan", "--watch", "/weft/d"]).args(option).output().unwrap();
        assert_eq!(out.status.code(), Some(2), "{option:?}");
        let told = String::from_utf8(out.stderr).unwrap();
        assert!(told.contains(option[0]) && told.contains("cannot be used with"), "{told}");
    }
}

#[test]
fn replicas_are_proposed_within_the_budget() {
    let dir = tempfile::tempdir().unwrap();
    let [trace, cluster, _] = files(dir.path());
    let run = |options: &[&str]| {
        let mut command = common::undisturbed();
        command.arg("plan").arg(&trace).arg("--cluster").arg(&cluster).arg("--replicas").args(options);
        succeeded(&mut command)
    };
    let text = run(&["--explain"]);
    for part in ["/scratch/data", "policy best", "replica by server", "PAYS AFTER", "the paper's model"] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    let json = |options: &[&str]| -> serde_json::Value {
        serde_json::from_str(&run(&[&["--json"], options].concat())).expect("one group")
    };
    let ceda = json(&["--policy", "ceda"]);
    assert_eq!(ceda["chosen"], "replica by server", "{ceda}");
    assert!(ceda["paper_original_s"].as_f64() > ceda["paper_replica_s"].as_f64(), "{ceda}");
    let alternatives = ceda["alternatives"].as_array().expect("a list");
    let of = |what: &str| alternatives.iter().find(|one| one["what"] == what).expect("listed").clone();
    assert_eq!(of("leave")["pays_after_runs"], serde_json::Value::Null);
    assert!(of("replica by server")["bytes"].as_u64() > Some(16 << 20), "{ceda}");
    assert_eq!(json(&["--policy", "ceda", "--budget", "1MiB"])["chosen"], "leave");
    assert_eq!(json(&["--policy", "off"])["chosen"], "leave");
    let text = run(&["--verify"]);
    for part in ["on the twin, /scratch/data", "MODEL/TWIN", "replica, own layout", "chosen"] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    let tried: Vec<serde_json::Value> = run(&["--verify", "--json", "--policy", "off"])
        .lines()
        .skip(1)
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(tried.len(), 5, "{tried:?}");
    assert!(tried.iter().all(|one| one["twin_s"].as_f64() > Some(0.0)), "{tried:?}");
    assert_eq!(tried.iter().filter(|one| one["chosen"] == true).count(), 1, "{tried:?}");
    let mut command = common::undisturbed();
    let refused = command.arg("plan").arg(&trace).args(["--replicas", "--policy", "all"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("write off, cida, ceda or best"));
}
