//! `weft plan`, from a trace to a plan that is verified on the twin.

mod common;

use common::servers::Servers;
use common::{Embedded, shown, succeeded, undisturbed};
use weft_planner::plan::Verdict;
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
        "ssd=12MiB",
        "--explain",
    ]);
    let text = succeeded(command.arg("--verify").arg("--output").arg(&plan));
    for part in ["/scratch/data", "random", "confidence", "PAPER'S COST", "on the twin", "MODEL/TWIN"] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    let read = Plan::from_toml(&std::fs::read_to_string(&plan).unwrap()).unwrap();
    let rule = read.rule("/scratch/data").expect("a rule");
    assert_eq!((read.planner, rule.alternatives.len()), (Planner::Best, 5));
    assert!(rule.advice.is_some_and(|advice| advice.is_certain()), "{:?}", rule.advice);
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

/// Nothing was measured, so the plan keeps the layouts, and names the command that measures and its duration.
#[test]
fn a_fresh_cluster_keeps_its_layouts() {
    let cluster = Embedded::started();
    let [trace, _, plan] = files(&cluster.local(""));
    let text = cluster.weft(["plan", &trace.display().to_string(), "--output", &plan.display().to_string()]);
    assert!(text.contains("`weft profile --quick` measures them in about 8 s"), "{text}");
    assert!(
        text.contains("advice: keep the present layouts") && text.contains("it changes no layout"),
        "{text}"
    );
    let read = Plan::from_toml(&std::fs::read_to_string(&plan).expect("written")).expect("a plan");
    assert!(read.rules.is_empty(), "{:?}", read.rules);
    let kept = &read.kept[0];
    assert!(kept.confidence < 0.8 && kept.why.contains("the model's error of"), "{kept:?}");
    let present = kept.alternatives.iter().find(|other| other.planner == Planner::Present).expect("listed");
    assert_eq!(present.layout, kept.layout);
    assert!(present.layout[0].stripes.values().all(|size| size.0 == 1 << 20), "{:?}", present.layout);
    let applied = cluster.weft(["apply", &plan.display().to_string()]);
    assert!(applied.contains("changes no layout"), "{applied}");
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

/// Writes a trace of `writes` as CSV: the rank, the offset and the length of each.
fn written(path: &std::path::Path, writes: impl Iterator<Item = (u64, u64, u64)>) {
    let mut csv = String::from("rank,operation,file,offset,length,start_us,end_us\n");
    for (n, (rank, offset, length)) in writes.enumerate() {
        csv += &format!("{rank},write,/scratch/new,{offset},{length},{n},{}\n", n + 8);
    }
    std::fs::write(path, csv).unwrap();
}

#[test]
fn the_gain_of_ssds_is_shown_with_and_without_write_back() {
    let dir = tempfile::tempdir().unwrap();
    let [trace, cluster, figures] = files(dir.path());
    std::fs::write(&cluster, CLUSTER.replace("psa-hdd", "ibridge-hdd")).unwrap();
    let run = |cluster: &std::path::Path, options: &[&str]| {
        let mut command = common::undisturbed();
        command.arg("plan").arg(&trace).arg("--cluster").arg(cluster).args(options);
        succeeded(&mut command)
    };
    let rows = |options: &[&str]| -> Vec<serde_json::Value> {
        let text = run(&cluster, &[&["--json"], options].concat());
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    // Small unaligned pieces at random places, on disks without a write cache.
    written(&trace, (0..512u64).map(|n| (n % 8, n * 193 % 512 * 70_001, 5_000)));
    let small = rows(&["--ssd"]);
    // Two modules and two policies of the one class of disks.
    assert_eq!(small.len(), 4, "{small:?}");
    for row in &small {
        assert_eq!(
            (&row["class"], &row["profile"], &row["ssd"]),
            (&"hdd".into(), &"ibridge-hdd".into(), &"sata-ssd".into())
        );
        assert!(row["gain"].is_f64() && row["gain_with_write_back"].is_f64(), "{row}");
        assert!(row["without_on_disks_s"].as_f64() >= row["without_s"].as_f64(), "{row}");
    }
    let direct: Vec<_> = small.iter().filter(|row| row["module"] == "direct").collect();
    assert_eq!((&direct[0]["policy"], &direct[1]["policy"]), (&"ibridge".into(), &"detour".into()));
    assert!(direct.iter().all(|row| row["gain"].as_f64() > Some(1.0)), "{direct:?}");
    let text = run(&cluster, &["--ssd=nvme", "--verify-requests", "100"]);
    for part in
        ["an SSD (nvme, 10.0 GiB)", "GAIN+WB", "ibridge-hdd", "buffered", "of 512 requests are replayed"]
    {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    // Aligned writes in sequence.
    written(&trace, (0..64u64).map(|n| (0, n << 20, 1 << 20)));
    for row in rows(&["--ssd"]) {
        for gain in ["gain", "gain_with_write_back"] {
            assert!((0.9..1.1).contains(&row[gain].as_f64().expect("a number")), "{gain}: {row}");
        }
    }
    // A plan has figures of its classes, but no devices.
    let mut command = common::undisturbed();
    succeeded(command.arg("plan").arg(&trace).arg("--cluster").arg(&cluster).arg("--output").arg(&figures));
    let text = run(&figures, &["--ssd"]);
    assert!(text.contains("targets of class hdd are assumed to be like hdd-7200"), "{text}");
    for (options, told) in [
        (&["--ssd=hdd-7200"][..], "is a disk"),
        (&["--ssd=floppy"], "there is no profile named"),
        (&["--ssd", "--explain"], "cannot be used with"),
    ] {
        let mut command = common::undisturbed();
        command.arg("plan").arg(&trace).arg("--cluster").arg(&cluster).args(options);
        let refused = command.output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{options:?}");
        let error = String::from_utf8_lossy(&refused.stderr);
        assert!(error.contains(told), "{told} is missing: {error}");
    }
}

/// Writes a trace of two ranks that write and read a file, each at its own half, and returns its path.
fn small_trace(path: std::path::PathBuf, file: &str) -> String {
    let mut csv = String::from("rank,operation,file,offset,length,start_us,end_us\n");
    for n in 0..32u64 {
        let (rank, offset) = (n % 2, (n % 2 * 16 + n / 2) * 16_384);
        let operation = if n < 24 { "write" } else { "read" };
        csv += &format!("{rank},{operation},{file},{offset},16384,{},{}\n", 10 * n, 10 * n + 8);
    }
    std::fs::write(&path, csv).expect("written");
    path.to_str().expect("text").to_owned()
}

#[test]
fn a_plan_that_was_tried_holds_the_trial_and_leaves_no_scratch_files() {
    let cluster = Embedded::started();
    let trace = small_trace(cluster.local("trace.csv"), "/weft/data");
    let plan = cluster.local("plan.toml").to_str().expect("text").to_owned();
    let read = || Plan::from_toml(&std::fs::read_to_string(&plan).expect("written")).expect("a plan");
    let names = || cluster.weft(["ls", "--all", "/weft"]);
    let before = names();

    // Without a trial, a plan is applied with a warning.
    cluster.weft(["plan", &trace, "--planner", "psa", "--output", &plan]);
    assert!(read().trial.is_none());
    let applied = cluster.command(["apply", &plan, "--dry-run"]).output().expect("weft starts");
    assert!(applied.status.success(), "{}", shown(&applied));
    assert!(String::from_utf8_lossy(&applied.stderr).contains("was not tried"), "{}", shown(&applied));

    let asked = [
        "plan",
        &trace,
        "--planner",
        "psa",
        "--try",
        "--times",
        "5",
        "--try-until",
        "0.5",
        "--output",
        &plan,
    ];
    let tried = cluster.command(asked).output().expect("weft starts");
    assert!(tried.status.success(), "{}", shown(&tried));
    let text = String::from_utf8_lossy(&tried.stdout);
    for part in ["tried: 5 pairs", "median", "ratio", "p = ", "undecided", "changes no layout"] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    assert!(String::from_utf8_lossy(&tried.stderr).contains("at least 6"), "{}", shown(&tried));
    let found = read();
    let trial = found.trial.as_ref().expect("a trial");
    assert_eq!((trial.times, trial.present_s.len(), trial.planned_s.len()), (5, 5, 5));
    assert!((0.5..0.6).contains(&trial.share), "{}", trial.share);
    // Five pairs decide nothing, so the files keep their layouts.
    assert_eq!((trial.verdict(), found.rules.len()), (Verdict::Undecided, 0));
    assert!(found.notes.iter().any(|note| note.contains("files keep their layouts")), "{:?}", found.notes);
    assert_eq!(names(), before);
    let applied = cluster.command(["apply", &plan]).output().expect("weft starts");
    assert!(applied.status.success(), "{}", shown(&applied));
    let text = String::from_utf8_lossy(&applied.stdout);
    assert!(text.contains("tried: 5 pairs") && text.contains("files keep their layouts"), "{text}");
    assert!(applied.stderr.is_empty(), "{}", shown(&applied));

    // A verdict of six pairs depends on the machine, but not that there is one, and the rules follow it.
    let asked = ["plan", &trace, "--planner", "psa", "--try", "--times", "6", "--json", "--output", &plan];
    let json = cluster.weft(asked);
    let last = json.lines().last().expect("a trial");
    let last: serde_json::Value = serde_json::from_str(last).expect("JSON");
    assert_eq!(last["trial"]["times"], 6, "{last}");
    assert!(last["p"].as_f64().is_some_and(|p| (0.0..=1.0).contains(&p)), "{last}");
    let found = read();
    let verdict = found.trial.as_ref().expect("a trial").verdict();
    assert_eq!(last["verdict"], serde_json::to_value(verdict).expect("JSON"), "{last}");
    assert_eq!(found.rules.is_empty(), verdict != Verdict::Faster);
    assert_eq!(names(), before);
}

#[test]
fn a_trial_that_does_not_fit_writes_nothing() {
    let ssd = "capacity = \"6 MiB\"";
    let servers = Servers::of(
        &[("hdd", ""), ("hdd", ""), ("ssd", ssd), ("ssd", ssd)],
        "",
        "",
        "[layout]\nclass = \"hdd\"\n",
    );
    let trace = small_trace(servers.path("trace.csv"), "/weft/data");
    let plan = servers.path("plan.toml");
    // This file has reserved the capacity of the SSDs, and a copy of it needs as much again.
    servers.weft(["setstripe", "--part", "ssd=64K@12M", "--part", "hdd=64K", "/weft/data"]);
    let before = servers.weft(["ls", "--all", "/weft"]);
    let output = plan.to_str().expect("text");
    let told =
        servers.fails(1, ["plan", &trace, "--planner", "def", "--try", "--times", "6", "--output", output]);
    let needed =
        "class ssd: scratch files with the present layouts need 12582912 bytes, and 0 bytes are free";
    assert!(told.contains(needed) && told.contains("--try-until"), "{told}");
    assert!(!plan.exists(), "no plan");
    assert_eq!(servers.weft(["ls", "--all", "/weft"]), before);
    // A cluster of the twin does not run.
    let twin = servers.path("twin.toml");
    std::fs::write(&twin, CLUSTER).expect("written");
    let mut command = undisturbed();
    let refused =
        command.args(["plan", &trace, "--try", "--cluster"]).arg(&twin).output().expect("weft starts");
    assert_eq!(refused.status.code(), Some(2), "{}", shown(&refused));
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("needs a running cluster"),
        "{}",
        shown(&refused)
    );
}

#[test]
fn replicas_are_compared_with_the_present_layouts_of_files() {
    let servers = Servers::of_classes(&["hdd", "hdd", "ssd"], "", "", "", "");
    servers.weft(["mkdir", "/weft/data"]);
    servers.weft(["setstripe", "--class", "hdd", "-S", "256K", "/weft/data"]);
    servers.weft(["touch", "/weft/data/f"]);
    let trace = servers.path("trace.csv");
    let mut csv = String::from("rank,operation,file,offset,length,start_us,end_us\n");
    for n in 0..512u64 {
        for file in ["f", "missing"] {
            csv += &format!("{},read,/weft/data/{file},{},4096,{n},{}\n", n % 8, n * 65_536, n + 8);
        }
    }
    std::fs::write(&trace, csv).unwrap();
    let text = servers.weft(["plan", "--replicas", "--json", &trace.display().to_string()]);
    let groups: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let present = |path: &str| {
        let group = groups.iter().find(|group| group["path"] == path).expect("a group");
        let leave =
            group["alternatives"].as_array().expect("a list").iter().find(|one| one["what"] == "leave");
        leave.expect("listed")["layout"].as_str().expect("text").to_owned()
    };
    assert_eq!(present("/weft/data/f"), "all: hdd 256 KiB");
    assert_eq!(present("/weft/data/missing"), "all: hdd 256 KiB", "a new file gets its directory's layout");
}
