//! Profiles of real paths, and servers that emulate devices.

mod common;

use common::{Embedded, WEFT, shown, succeeded};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::{Duration, Instant};
use weft_estimate::measure::Report;

#[test]
fn a_path_is_measured_and_its_profile_can_be_emulated() {
    let cluster = Embedded::new();
    let device = cluster.local("device");
    std::fs::create_dir(&device).expect("a directory");
    let file = cluster.local("disk.toml");
    let mut profile = common::undisturbed();
    profile.arg("profile").arg(&device).args(["--size", "16M", "--time", "2s", "--json", "-o"]).arg(&file);
    let told: serde_json::Value = serde_json::from_str(&succeeded(&mut profile)).expect("JSON");
    assert!(told["samples"].as_array().is_some_and(|samples| samples.len() > 5), "{told}");
    assert!(told["held_out"]["error_median"].as_f64().is_some_and(f64::is_finite), "{told}");
    assert_eq!(told["profile"]["name"], "disk");
    assert_eq!(std::fs::read_dir(&device).expect("a directory").count(), 0, "nothing is left behind");
    // A cluster with the measured profile.
    cluster.run(["true"]);
    cluster.weft(["stop"]);
    let text = std::fs::read_to_string(cluster.file()).expect("a cluster file");
    let emulate = format!("class = \"hdd\"\nemulate = {:?}\n", file.display().to_string());
    std::fs::write(cluster.file(), text.replace("class = \"hdd\"\n", &emulate)).expect("written");
    assert_eq!(cluster.run(["sh", "-c", "echo real > /weft/bytes; cat /weft/bytes"]), "real\n");
    assert!(cluster.weft(["status"]).contains("buffered, emulates disk"), "{}", cluster.weft(["status"]));
    let stripes = cluster.weft(["getstripe", "/weft/bytes"]);
    assert!(stripes.contains("emulated: ") && stripes.contains("disk.toml"), "{stripes}");
}

#[test]
fn an_emulated_disk_takes_a_disks_time() {
    let cluster = Embedded::new();
    cluster.run(["true"]);
    cluster.weft(["stop"]);
    let text = std::fs::read_to_string(cluster.file()).expect("a cluster file");
    let slow = text.replace("class = \"hdd\"\n", "class = \"hdd\"\nemulate = \"ibridge-hdd\"\n");
    std::fs::write(cluster.file(), slow).expect("written");
    // A sync of new bytes on a disk without write cache waits for more than one rotation.
    let start = Instant::now();
    let script = "weft setstripe --class hdd -c 1 /weft/a; for n in 1 2 3; do dd if=/dev/zero of=/weft/a bs=64k \
                  count=1 seek=$n conv=notrunc,fsync status=none; done";
    let script = script.replace("weft set", &format!("{WEFT} --cluster {} set", cluster.file().display()));
    cluster.run(["sh", "-c", &script]);
    assert!(start.elapsed().as_millis() > 12, "three syncs of a disk");
    let refused = text.replace("class = \"ssd\"\n", "class = \"ssd\"\nemulate = \"floppy\"\n");
    let file = cluster.local("refused.toml");
    std::fs::write(&file, refused).expect("written");
    let output = common::undisturbed().arg("config").arg("check").arg(file).output().expect("weft starts");
    let said = shown(&output);
    assert!(!output.status.success() && said.contains("hdd-nearline") && said.contains("floppy"), "{said}");
}

#[test]
fn a_path_that_cannot_be_measured_is_named() {
    let output = common::undisturbed().args(["profile", "/nowhere/at/all"]).output().expect("weft starts");
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(shown(&output).contains("/nowhere/at/all"), "{}", shown(&output));
    // The script limits files to 8 KiB.
    let script = "trap '' XFSZ; ulimit -f 8; exec \"$1\" profile /tmp --size 16M";
    let output = common::isolated("sh").args(["-c", script, "sh", WEFT]).output().expect("sh starts");
    assert!(shown(&output).contains("use less of it with --size"), "{}", shown(&output));
    for (wrong, told) in [(["--size", "100T"], "more than 1 TiB"), (["--time", "0s"], "at least 1s")] {
        let output =
            common::undisturbed().args(["profile", "/tmp"]).args(wrong).output().expect("weft starts");
        assert_eq!(output.status.code(), Some(2), "{}", shown(&output));
        assert!(shown(&output).contains(told), "{}", shown(&output));
    }
    // No device writes this much within the time limit.
    let output = common::undisturbed().args(["profile", "/tmp", "--size", "20G", "--time", "1s"]).output();
    let output = output.expect("weft starts");
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    let told = shown(&output);
    assert!(told.contains("give more --time") || told.contains("use less of it"), "{told}");
    let output =
        common::undisturbed().args(["profile", "/tmp", "--size", "1M"]).output().expect("weft starts");
    assert_eq!(output.status.code(), Some(2), "{}", shown(&output));
}

/// Gives the embedded cluster an emulated disk and an emulated SSD instead of its targets.
fn emulated(cluster: &Embedded) {
    cluster.run(["true"]);
    cluster.weft(["stop"]);
    let mut text = std::fs::read_to_string(cluster.file()).expect("a cluster file");
    for (class, device) in [("hdd", "hdd-7200"), ("ssd", "sata-ssd")] {
        let line = format!("class = {class:?}\n");
        text = text.replace(&line, &format!("{line}emulate = {device:?}\n"));
    }
    std::fs::write(cluster.file(), text).expect("written");
}

#[test]
fn a_measured_cluster_is_planned_for_with_its_figures() {
    let cluster = Embedded::new();
    emulated(&cluster);
    // The measured figures are those of the device models, as the planner measures them, plus some time on a busy host.
    let site = |class: &str, profile: &str| weft_estimate::ClassDevice {
        class: class.into(),
        targets: 2,
        profile: profile.into(),
        direct: false,
        capacity: None,
    };
    let network = weft_planner::figures::Network::new(1.0, 1.0);
    let sites = [site("hdd", "hdd-7200"), site("ssd", "sata-ssd")];
    let model =
        weft_estimate::figures(&sites, &[], network, &Default::default(), 4 * (64 << 20)).expect("figures");
    let deviations = |told: &serde_json::Value| {
        let mut deviations = Vec::new();
        let measured = told["figures"]["classes"].as_array().expect("classes");
        for (class, found) in model.classes.iter().zip(measured) {
            assert_eq!((found["name"].as_str(), &found["targets"]), (Some(&*class.name), &2.into()));
            let us = found["read"]["random"][0]["startup_us"].as_f64().expect("a number");
            let mb_s = found["read"]["sequential"]["mb_s"].as_f64().expect("a number");
            let (alone, sequential) = (class.read.alone(), class.read.sequential);
            if !(0.5..4.0).contains(&(us / alone.startup_us)) {
                deviations.push(format!("{}: {us} us, by the model {alone:?}", class.name));
            }
            if !(0.2..1.6).contains(&(mb_s / sequential.mb_s)) {
                deviations.push(format!("{}: {mb_s} MB/s, by the model {sequential:?}", class.name));
            }
        }
        deviations
    };
    let args = ["profile", "--quick", "--time", "7s", "--size", "64M", "--json"];
    let mut wrong = Vec::new();
    // A machine that stops for a moment distorts a measurement.
    let told = (0..3).find_map(|_| {
        let told: serde_json::Value = serde_json::from_str(&cluster.weft(args)).expect("JSON");
        wrong.push(deviations(&told));
        wrong.last().is_some_and(Vec::is_empty).then_some(told)
    });
    let told = told.unwrap_or_else(|| panic!("{wrong:?}"));
    assert!(told["figures"]["network"]["connect_us"].as_f64().is_some_and(|us| us > 0.0), "{told}");
    assert!(told["classes"][0]["samples"].as_u64().is_some_and(|samples| samples > 200), "{told}");
    // No files are left on the targets.
    let left =
        std::process::Command::new("find").arg(cluster.state()).args(["-name", "ffffffffffffffff*"]).output();
    assert!(left.expect("find starts").stdout.is_empty());
    // The planner uses the figures by itself while the targets are unchanged.
    let trace = cluster.local("trace.csv");
    let mut csv = String::from("operation,file,offset,length\n");
    (0..200).for_each(|n| csv += &format!("read,/data,{},65536\n", n * 7919 % 200 * 65_536));
    std::fs::write(&trace, csv).expect("written");
    let trace = trace.to_str().expect("a path");
    let plan = cluster.weft(["plan", trace, "--output", "-"]);
    assert!(plan.contains("class hdd was measured today") && plan.contains("class ssd was"), "{plan}");
    let plan = weft_planner::Plan::from_toml(&plan).expect("a plan");
    let startup = told["figures"]["classes"][0]["read"]["random"][0]["startup_us"].as_f64();
    assert_eq!(Some(plan.cluster.classes[0].read.alone().startup_us), startup);
    // One class is measured again, and the other class keeps its figures.
    let figures = cluster.state().join("cluster.figures.toml");
    let before = Report::from_toml(&std::fs::read_to_string(&figures).expect("figures")).expect("a report");
    let again = cluster.weft(["profile", "--quick", "--time", "2s", "--size", "16M", "--class", "ssd"]);
    assert!(again.contains("; those of hdd stay") && !again.contains("class hdd"), "{again}");
    let after = Report::from_toml(&std::fs::read_to_string(&figures).expect("figures")).expect("a report");
    let hdd = |report: &Report| report.figures.classes.iter().find(|class| class.name == "hdd").cloned();
    assert!(hdd(&after).is_some() && hdd(&after) == hdd(&before));
    let hdd = after.class("hdd").expect("measured");
    assert_eq!((after.measured_s(hdd), after.classes.len()), (before.measured_s, 2));
    assert_ne!(after.class("ssd"), before.class("ssd"));
    std::fs::write(&figures, before.to_toml()).expect("written");
    // The figures are also a cluster description.
    let mut alone = common::undisturbed();
    alone.args(["plan", trace, "--output", "-", "--cluster"]).arg(&figures);
    let alone = weft_planner::Plan::from_toml(&succeeded(&mut alone)).expect("a plan");
    assert_eq!(alone.cluster.classes[0].read, plan.cluster.classes[0].read);
    let text = std::fs::read_to_string(cluster.file()).expect("a cluster file");
    std::fs::write(cluster.file(), text.replace("hdd-7200", "hdd-nearline")).expect("written");
    let plan = cluster.weft(["plan", trace, "--output", "-"]);
    assert!(
        plan.contains("class hdd was measured when its targets were buffered, emulates hdd-7200"),
        "{plan}"
    );
}

#[test]
fn a_file_without_what_could_not_be_measured_is_accepted_by_the_next_plan() {
    let cluster = Embedded::new();
    emulated(&cluster);
    // One second is too short for all requests of a disk that moves its arm.
    let told = cluster.weft(["profile", "--time", "1s", "--size", "16M", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    let missing = told["missing"].as_array().expect("missing figures");
    let is_missing = |figure: &str| missing.iter().any(|missing| missing["figure"] == figure);
    assert!(
        missing.iter().any(|missing| missing["class"] == "hdd" && missing["reason"].as_str().is_some()),
        "{told}"
    );
    // A figure of the processors is either measured or named.
    let rate = told["figures"]["processor"]["messages_per_s"].as_f64();
    assert_eq!(rate.is_some(), !is_missing("processor"), "{told}");
    assert!(rate.is_none_or(|rate| rate > 0.0), "{told}");
    let trace = cluster.local("trace.csv");
    let mut csv = String::from("operation,file,offset,length\n");
    (0..200).for_each(|n| csv += &format!("write,/data,{},65536\n", n * 65_536));
    std::fs::write(&trace, csv).expect("written");
    let plan = cluster.weft(["plan", trace.to_str().expect("a path"), "--output", "-"]);
    assert!(plan.contains("class hdd was measured today"), "{plan}");
    let plan = weft_planner::Plan::from_toml(&plan).expect("a plan");
    assert!(plan.cluster.measured, "{:?}", plan.cluster);
    assert_eq!(plan.cluster.processor.map(|processor| processor.messages_per_s), rate);
    for class in &plan.cluster.classes {
        assert!(class.error.is_none_or(|error| (0.1..=1.0).contains(&error)), "{class:?}");
        assert_eq!(class.devices.as_ref().map(Vec::len), Some(2), "{class:?}");
    }
    assert!(!plan.cluster.shares_devices(), "emulated devices: {:?}", plan.cluster);
    // The table names the missing figures, too.
    let text = cluster.weft(["profile", "--time", "1s", "--size", "16M", "--class", "hdd"]);
    assert!(text.contains("not measured: class hdd, ") && text.contains("the time ran out"), "{text}");
}

#[test]
fn an_interrupted_measurement_leaves_nothing_behind() {
    let cluster = Embedded::started();
    let figures = cluster.state().join("cluster.figures.toml");
    std::fs::write(&figures, "earlier").expect("written");
    let mut profile = cluster.command(["profile", "--time", "60s", "--size", "64M"]);
    profile.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut profile = profile.spawn().expect("weft starts");
    let datafiles = || {
        let found = std::process::Command::new("find")
            .arg(cluster.state())
            .args(["-name", "ffffffffffffffff*"])
            .output();
        !found.expect("find starts").stdout.is_empty()
    };
    common::until(Duration::from_secs(60), "the measurement has a datafile", || datafiles().then_some(()));
    // SAFETY: a child that has not been waited for.
    assert_eq!(unsafe { libc::kill(profile.id() as i32, libc::SIGINT) }, 0);
    let status = profile.wait().expect("it ends");
    assert_eq!(status.signal(), Some(libc::SIGINT), "{status}");
    common::until(Duration::from_secs(60), "the server removes the datafile", || {
        (!datafiles()).then_some(())
    });
    assert_eq!(std::fs::read_to_string(&figures).expect("figures"), "earlier");
    let left: Vec<_> = std::fs::read_dir(cluster.state()).expect("a directory").flatten().collect();
    assert!(
        !left.iter().any(|file| file.file_name().to_string_lossy().contains(".figures.toml.")),
        "{left:?}"
    );
    // The cluster still works.
    assert_eq!(cluster.run(["sh", "-c", "echo on > /weft/a; cat /weft/a"]), "on\n");
}

#[test]
fn classes_that_cannot_be_measured_are_reported() {
    let cluster = Embedded::started();
    let told = cluster.fails(2, ["profile", "--class", "tape"]);
    assert!(told.contains("classes here: hdd, ssd"), "{told}");
    let told = cluster.fails(2, ["profile", "--size", "1000TiB"]);
    assert!(told.contains("are free") && told.contains("--size"), "{told}");
    let text = cluster.weft(["profile", "--quick", "--time", "4s", "--size", "16M", "--class", "ssd", "-v"]);
    // The targets of an embedded cluster are directories side by side.
    let shared = "some targets share a device";
    for part in
        ["class ssd", "± is a standard error", "in order", "US EACH", "64 KiB from the server", shared]
    {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    assert!(!text.contains("class hdd"), "{text}");
    let told = cluster.fails(2, ["profile", "--output", "/nowhere/figures.toml"]);
    assert!(told.contains("/nowhere/figures.toml"), "{told}");
}

#[test]
fn an_ssd_added_to_a_disk_invalidates_the_figures_of_the_disk() {
    let cluster = Embedded::new();
    emulated(&cluster);
    let text = std::fs::read_to_string(cluster.file()).expect("a cluster file");
    // The second target gets an SSD. The first server has the metadata, which all servers need, so it must start.
    let at = text.rfind("emulate = \"hdd-7200\"\n").expect("a disk") + "emulate = \"hdd-7200\"\n".len();
    let rest = text[at..].find("\n[[server]]").map_or(text.len(), |end| at + end);
    let section = |profile: &str| {
        let log = cluster.state().join("log0");
        let beside =
            format!("\n[server.target.ibridge]\npath = {log:?}\nsize = \"32 MiB\"\nprofile = {profile:?}\n");
        std::fs::write(cluster.file(), format!("{}{beside}{}", &text[..rest], &text[rest..]))
            .expect("written");
    };
    section("measured");
    let refused = cluster.fails(1, ["profile", "--quick"]);
    assert!(refused.contains("nothing was measured") || refused.contains("did not"), "{refused}");
    // Servers without an SSD still run.
    let pids = cluster.pids();
    assert_eq!(pids.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true, true], "{pids:?}");
    section("hdd-7200");
    cluster.weft(["profile", "--quick", "--time", "6s", "--size", "32M"]);
    cluster.weft(["stop"]);
    section("measured");
    assert_eq!(cluster.run(["sh", "-c", "echo kept > /weft/a; cat /weft/a"]), "kept\n");
    let logs = std::process::Command::new("grep")
        .arg("-rh")
        .arg("seek times are those")
        .arg(cluster.state())
        .output();
    let logs = String::from_utf8(logs.expect("grep starts").stdout).expect("text");
    assert!(logs.contains("target 1: seek times are those that weft profile measured"), "{logs}");
}

#[test]
fn codecs_are_measured_on_five_kinds_of_data_and_on_files() {
    let cluster = Embedded::new();
    let told = |args: &[&str]| -> serde_json::Value {
        let mut profile = common::undisturbed();
        let text = succeeded(profile.args(["profile", "--codecs", "--quick", "--json"]).args(args));
        serde_json::from_str(&text).expect("JSON")
    };
    let all = told(&["--size", "128K"]);
    let rows = all["codecs"].as_array().expect("rows");
    assert_eq!(rows.len(), 5 * 5, "kinds and settings");
    for row in rows {
        let of = |name: &str| row[name].as_f64().unwrap_or(f64::NAN);
        assert_eq!((of("bytes"), of("chunk"), of("chunks")), (131_072.0, 65_536.0, 2.0), "{row}");
        assert!(of("compress_mb_s") > 0.0 && of("decompress_mb_s") > 0.0, "{row}");
        assert!((of("ratio") - of("stored") / of("bytes")).abs() < 1e-9 && of("ratio") <= 1.0, "{row}");
        if row["codec"] == "zstd:1" {
            let is_raw = of("raw_chunks") == of("chunks");
            assert_eq!(is_raw, row["data"] == "random", "Zstandard shortens all others: {row}");
        }
    }
    let file = cluster.local("mine");
    std::fs::write(&file, vec![b'a'; 100_000]).expect("written");
    let mine = told(&["--file", file.to_str().expect("a path")]);
    let rows = mine["codecs"].as_array().expect("rows");
    assert_eq!(rows.len(), 5, "one file");
    assert!(rows.iter().all(|row| row["ratio"].as_f64().is_some_and(|ratio| ratio < 0.05)), "{mine}");
    // Refusals.
    for (args, why) in [
        (&["--file", "/nowhere"][..], "/nowhere"),
        (&["--file", "/dev/null"], "is empty"),
        (&["--size", "2G"], "--size"),
    ] {
        let output =
            common::undisturbed().args(["profile", "--codecs"]).args(args).output().expect("weft starts");
        let said = shown(&output);
        assert!(!output.status.success() && said.contains(why), "{said}");
    }
    let mut table = common::undisturbed();
    let text = succeeded(table.args(["profile", "--codecs", "--quick", "--size", "64K"]));
    assert!(text.starts_with("DATA") && text.lines().count() == 26, "{text}");
}
