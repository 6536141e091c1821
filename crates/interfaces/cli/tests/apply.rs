//! `weft apply` with real servers: rules of directories and reserved space of targets.

mod common;

use common::servers::Servers;
use common::{Random, shown};
use std::fmt::Write as _;
use std::path::Path;

/// Devices of the classes: a plan for assumed ones would keep all layouts.
const DEVICES: [&str; 4] = ["--profile", "hdd=hdd-7200", "--profile", "ssd=sata-ssd"];

const MIB: u64 = 1 << 20;
/// Capacity of each SSD.
const CAPACITY: u64 = 6 * MIB;

fn servers() -> Servers {
    let ssd = "capacity = \"6 MiB\"";
    Servers::of(
        &[("hdd", ""), ("hdd", ""), ("ssd", ssd), ("ssd", ssd)],
        "",
        "",
        "[layout]\nclass = \"hdd\"\n",
    )
}

/// Writes a trace as CSV: random reads of two files of 8 MiB by eight ranks.
fn trace(path: &Path) {
    let mut csv = String::from("rank,operation,file,offset,length,start_us,end_us\n");
    for n in 0..1024u64 {
        let mixed = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20;
        let (rank, place, end) = (n % 8, mixed % 128, n + 8);
        writeln!(csv, "{rank},read,/scratch/run1/part.{},{},65536,{n},{end}", n % 2, place * 65_536)
            .expect("a String can be written");
    }
    std::fs::write(path, csv).expect("written");
}

/// Returns the reserved bytes of each SSD.
fn reserved(servers: &Servers) -> Vec<u64> {
    let status: serde_json::Value = serde_json::from_str(&servers.weft(["status", "--json"])).expect("JSON");
    let reservations = &status["servers"][0]["status"]["metadata"]["space_reservations"];
    let reservations = reservations.as_array().expect("space reservations");
    assert!(reservations.iter().all(|reservation| reservation["room"] == CAPACITY), "{reservations:?}");
    reservations.iter().map(|reservation| reservation["promised"].as_u64().expect("a number")).collect()
}

/// Copies a file to the cluster and returns the bytes that its layout reserves on each of the two SSDs.
fn copy(servers: &Servers, local: &str, to: &str) -> Vec<u64> {
    let before = reserved(servers);
    servers.weft(["cp", local, to]);
    reserved(servers).iter().zip(before).map(|(after, before)| after - before).collect()
}

#[test]
fn new_files_get_the_layouts_of_the_plan_until_capacity_runs_out() {
    let mut servers = servers();
    let [trace_file, plan, local] = ["trace.csv", "plan.toml", "part"].map(|name| servers.path(name));
    let texts = [&trace_file, &plan, &local].map(|path| path.to_str().expect("text").to_owned());
    let [trace_text, plan_text, local_text] = texts.each_ref().map(String::as_str);
    trace(&trace_file);
    assert!(servers.weft(["config", "show"]).contains("may reserve 6 MiB on target 2"));
    // The cluster file states the capacity.
    servers.weft([&["plan", trace_text, "--output", plan_text], &DEVICES[..]].concat());
    let text = std::fs::read_to_string(&plan).expect("written");
    assert!(text.contains("/scratch/run1/part.*") && text.contains("capacity = \"6 MiB\""), "{text}");
    assert!(!text.contains("class ssd has"), "no other file has reserved space: {text}");
    // Slightly less than both files need, so that space is left for a third one.
    servers.weft(
        [&["plan", trace_text, "--output", plan_text, "--capacity", "ssd=5MiB"], &DEVICES[..]].concat(),
    );
    let (mut random, _) = Random::seeded();
    let bytes: Vec<u8> = (0..8 * MIB / 8).flat_map(|_| random.next().to_le_bytes()).collect();
    std::fs::write(&local, &bytes).expect("written");

    for asked in [
        &["apply", plan_text, "--class"][..],
        &["migrate", "/weft", "-r", "--plan", plan_text, "--class-here"],
    ] {
        let unknown = servers.fails(2, asked.iter().chain(&["tape=ssd"]));
        assert!(unknown.contains("tape=ssd: the plan has no such class; its classes: hdd, ssd"), "{unknown}");
    }
    let elsewhere = servers.fails(2, ["apply", plan_text]);
    assert!(elsewhere.contains("--map OLD=NEW"), "{elsewhere}");
    servers.weft(["mkdir", "-p", "/weft/runs/old"]);
    servers.weft(["cp", local_text, "/weft/runs/old/part.3"]);
    servers.weft(["touch", "/weft/runs/old/part.4"]);
    let asked = ["apply", plan_text, "--under", "/weft/runs", "--anywhere"];
    let dry = servers.weft(asked.iter().chain(&["--dry-run"]));
    assert!(dry.contains("part.{n}") && dry.contains("nothing was set"), "{dry}");
    assert!(!servers.weft(["getstripe", "-d", "/weft/runs"]).contains("rules"), "nothing was set");

    let set = servers.weft(asked);
    assert!(set.contains("/weft/runs\n") && set.contains("2 files"), "{set}");
    assert!(set.contains("1 file that was never written got the layout"), "{set}");
    assert!(set.contains("weft migrate /weft/runs/old/part.3\n"), "{set}");
    assert!(!set.contains("part.4"), "{set}");
    let again = servers.weft(asked);
    assert!(again.contains("1 file of the plan with the right layout already"), "{again}");
    // The rules apply below directories that exist already and new ones, and nowhere else.
    let rules = servers.weft(["getstripe", "-d", "/weft/runs/old"]);
    assert!(rules.contains("rules of /weft/runs:") && rules.contains("part.{n}"), "{rules}");
    let first = reserved(&servers);
    assert!(first[0] > 0 && first == [first[0]; 2], "of the empty file: {first:?}");
    servers.weft(["mkdir", "-p", "/weft/runs/new/deep"]);
    let of_new = copy(&servers, local_text, "/weft/runs/new/deep/part.0017");
    assert!(of_new.iter().all(|bytes| (1..=first[0]).contains(bytes)), "{of_new:?}");
    let shown = servers.weft(["getstripe", "/weft/runs/new/deep/part.0017"]);
    assert!(shown.contains("bytes 0 to ") && shown.contains("ssd"), "{shown}");
    assert_eq!(copy(&servers, local_text, "/weft/runs/new/partx"), [0, 0]);
    assert_eq!(copy(&servers, local_text, "/weft/part.1"), [0, 0]);
    // An explicit layout takes precedence over the rule.
    servers.weft(["setstripe", "-c", "1", "/weft/runs/part.99"]);
    assert!(!servers.weft(["getstripe", "/weft/runs/part.99"]).contains("bytes 0 to "));

    // Until the space is exhausted. Earlier reservations stay, and later files are on HDDs.
    let mut got = Vec::new();
    for n in 100..112 {
        got.push(copy(&servers, local_text, &format!("/weft/runs/part.{n}")));
    }
    assert!(got[0].iter().all(|bytes| (1..first[0]).contains(bytes)), "the rest: {got:?}");
    assert!(got.windows(2).all(|pair| pair[1] <= pair[0]), "{got:?}");
    assert_eq!(got.last(), Some(&vec![0, 0]), "{got:?}");
    let full = reserved(&servers);
    assert!(full.iter().all(|bytes| (CAPACITY - MIB..=CAPACITY).contains(bytes)), "{full:?}");
    let df = servers.weft(["df"]);
    assert!(df.contains("RESERVED") && df.contains("6.00 MiB"), "{df}");
    assert!(servers.weft(["status"]).contains("RESERVED"));
    // All bytes are stored correctly.
    for path in ["new/deep/part.0017", "part.100", "part.103", "part.111", "old/part.3"] {
        let read = servers.command(["cat", &format!("/weft/runs/{path}")]).output().expect("weft starts");
        assert!(read.stdout == bytes, "{path}: {}", common::shown(&read).len());
    }
    // The reservations survive a kill of the metadata service, and a check confirms them.
    servers.kill(0);
    servers.start(0);
    assert_eq!(reserved(&servers), full);
    let check = servers.command(["fsck"]).output().expect("weft starts");
    assert!(check.status.success(), "{}", common::shown(&check));

    // Released space is available again.
    servers.weft(["rm", "/weft/runs/new/deep/part.0017", "/weft/runs/part.100"]);
    let rest: Vec<u64> = (0..2).map(|at| full[at] - of_new[at] - got[0][at]).collect();
    let freed = |servers: &Servers| reserved(servers) == rest;
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !freed(&servers) && std::time::Instant::now() < until {
        std::thread::yield_now();
    }
    let of_next = copy(&servers, local_text, "/weft/runs/part.200");
    assert_eq!(of_next, of_new);
    // Existing files are moved by the rules, and then have the layout of a new file.
    servers.weft(["rm", "/weft/runs/part.101", "/weft/runs/part.102", "/weft/runs/part.200"]);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while reserved(&servers) != first && std::time::Instant::now() < until {
        std::thread::yield_now();
    }
    assert_eq!(reserved(&servers), first, "of the empty file alone");
    servers.weft(["migrate", "/weft/runs/old/part.3"]);
    assert_eq!(reserved(&servers), [2 * first[0]; 2]);
    let moved = servers.command(["cat", "/weft/runs/old/part.3"]).output().expect("weft starts");
    assert!(moved.stdout == bytes);
    servers.weft(["rm", "/weft/runs/part.99"]);
    let after = servers.weft(asked);
    assert!(after.contains("2 files of the plan with the right layout already"), "{after}");
    servers.weft(["apply", plan_text, "--under", "/weft/runs", "--anywhere", "--remove"]);
    assert!(!servers.weft(["getstripe", "-d", "/weft/runs/old"]).contains("rules"));
    assert_eq!(copy(&servers, local_text, "/weft/runs/part.300"), [0, 0]);
}

#[test]
fn a_plan_subtracts_space_that_other_files_reserve() {
    let mut servers = servers();
    let [trace_file, plan, local] = ["trace.csv", "plan.toml", "part"].map(|name| servers.path(name));
    trace(&trace_file);
    let text = std::fs::read_to_string(&trace_file).expect("written");
    std::fs::write(&trace_file, text.replace("/scratch/", "/weft/")).expect("written");
    let [trace_text, plan_text] = [&trace_file, &plan].map(|path| path.to_str().expect("text"));
    let available = |servers: &Servers, more: &[&str]| {
        servers.weft([&["plan", trace_text, "--output", plan_text][..], more].concat());
        let plan = std::fs::read_to_string(&plan).expect("written");
        let plan = weft_planner::Plan::from_toml(&plan).expect("a plan");
        let ssd = plan.cluster.classes.iter().find(|class| class.name == "ssd").expect("the class");
        (ssd.capacity.expect("a limit").0, plan.notes.join("\n"))
    };
    std::fs::write(&local, [7; MIB as usize]).expect("written");
    servers.weft(["mkdir", "-p", "/weft/run1"]);
    servers.weft([
        "setstripe",
        "--rule",
        "part.*",
        "--part",
        "ssd=256K@4M",
        "--part",
        "hdd=1M",
        "/weft/run1",
    ]);
    // A traced file with reserved space gets another layout: its own reservation does not count, that of another file
    // does.
    servers.weft(["cp", local.to_str().expect("text"), "/weft/run1/part.0"]);
    let (own, notes) = available(&servers, &[]);
    assert_eq!(own, CAPACITY);
    assert!(notes.contains("space of the traced files (2.00 MiB) counts as free"), "{notes}");
    servers.weft(["cp", local.to_str().expect("text"), "/weft/run1/part.7"]);
    let (left, notes) = available(&servers, &[]);
    assert_eq!(left, CAPACITY - 2 * MIB);
    assert!(
        notes.contains("4.00 MiB available of 6.00 MiB") && notes.contains("2.00 MiB of it are reserved"),
        "{notes}"
    );
    // The option takes precedence, and an unreachable server is reported.
    let (said, notes) = available(&servers, &["--capacity", "ssd=3MiB"]);
    assert!(said == 3 * MIB && !notes.contains("reserved"), "{said} {notes}");
    servers.stop(3);
    let (all, notes) = available(&servers, &[]);
    assert!(
        all == CAPACITY && notes.contains("is unknown") && notes.contains(": server s3: "),
        "{all} {notes}"
    );
    // A plan for the file of a remote cluster needs no key.
    let elsewhere = servers.path("elsewhere.toml");
    let text = std::fs::read_to_string(servers.file()).expect("there");
    let text = text.replacen("unix:", "tcp:127.0.0.1:9\" # ", 1).replace("/key\"", "/no-key\"");
    std::fs::write(&elsewhere, text).expect("written");
    let (all, notes) = available(&servers, &["--cluster", elsewhere.to_str().expect("text")]);
    assert!(all == CAPACITY && notes.contains("all of it counts as free: key file "), "{all} {notes}");
}

/// Space that the old layout of a file holds during the move limits the first move only.
#[test]
fn a_move_can_use_space_that_the_file_itself_releases() {
    let servers = servers();
    let [trace_file, plan, local] = ["trace.csv", "plan.toml", "part"].map(|name| servers.path(name));
    trace(&trace_file);
    let text = std::fs::read_to_string(&trace_file).expect("written");
    std::fs::write(&trace_file, text.replace("/scratch/", "/weft/")).expect("written");
    let [trace_text, plan_text, local_text] =
        [&trace_file, &plan, &local].map(|path| path.to_str().expect("text"));
    std::fs::write(&local, [7; MIB as usize]).expect("written");
    servers.weft(
        [&["plan", trace_text, "--output", plan_text, "--capacity", "ssd=6MiB"], &DEVICES[..]].concat(),
    );
    servers.weft(["mkdir", "/weft/run1"]);
    // The file holds 5 of 6 MiB on each SSD, and the plan gives it 3 of them with another stripe size.
    servers.weft(["setstripe", "--part", "ssd=256K@10M", "--part", "hdd=1M", "/weft/run1/part.0"]);
    servers.weft(["cp", local_text, "/weft/run1/part.0"]);
    assert_eq!(reserved(&servers), [5 * MIB; 2]);
    let moved = servers.weft(["migrate", "--plan", plan_text, "/weft/run1/part.0"]);
    assert!(moved.contains("moved 1 file (2.00 MiB copied)"), "moved twice: {moved}");
    let right = servers.weft(["apply", plan_text]);
    assert!(right.contains("1 file of the plan with the right layout already"), "{right}");
    let again = servers.weft(["migrate", "--plan", plan_text, "/weft/run1/part.0"]);
    assert!(again.contains("moved 0 files; 1 file left alone"), "{again}");
    // If other files hold the space, the file is moved without it and a note says so.
    servers.weft(["setstripe", "--part", "ssd=256K@4M", "--part", "hdd=1M", "/weft/other"]);
    servers.weft(["setstripe", "-c", "1", "/weft/run1/part.1"]);
    servers.weft(["cp", local_text, "/weft/run1/part.1"]);
    let short =
        servers.command(["migrate", "--plan", plan_text, "/weft/run1/part.1"]).output().expect("runs");
    let said = shown(&short);
    assert!(short.status.success() && said.contains("1 file has less than the plan gives"), "{said}");
}

#[test]
fn rules_are_set_shown_and_removed() {
    let servers = servers();
    servers.weft(["mkdir", "-p", "/weft/d/e"]);
    servers.weft(["setstripe", "--rule", "*.log", "-c", "1", "/weft/d"]);
    servers.weft(["setstripe", "--rule", "*.h5", "--part", "ssd=256K@1M", "--part", "hdd=512K", "/weft/d"]);
    servers.weft(["setstripe", "--rule", "/x.h5", "--class", "ssd", "/weft/d/e"]);
    let shown_rules = servers.weft(["getstripe", "-d", "/weft/d/e"]);
    let order = [
        "rules:",
        "/x.h5",
        "class ssd",
        "rules of /weft/d:",
        "*.h5",
        "to 1 MiB: ssd 256 KiB; from 1 MiB: hdd 512 KiB",
        "*.log",
        "1 target",
    ];
    let mut at = 0;
    for part in order {
        let found = shown_rules[at..].find(part);
        at += found.unwrap_or_else(|| panic!("{part} after {at} in {shown_rules}"));
    }
    let stripes = |path: &str| {
        servers.weft(["touch", path]);
        servers.weft(["getstripe", "-c", "-S", path]).split_whitespace().take(2).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(stripes("/weft/d/e/a.log"), "1 1048576");
    assert_eq!(stripes("/weft/d/e/a.h5"), "2 262144");
    assert_eq!(stripes("/weft/d/e/x.h5"), "2 1048576");
    assert!(servers.fails(2, ["setstripe", "--rule", "[a", "-c", "1", "/weft/d"]).contains("] is missing"));
    assert!(
        servers.fails(2, ["setstripe", "--rule", "*", "--part", "ssd=1M@1G", "/weft/d"]).contains("no end")
    );
    assert!(
        servers.fails(2, ["setstripe", "--rule", "*", "--part", "tape=1M", "/weft/d"]).contains("hdd, ssd")
    );
    assert!(servers.fails(1, ["setstripe", "-d", "--rule", "*.txt", "/weft/d"]).contains("no rule *.txt"));
    // Invalid paths are reported with a remedy.
    let full = servers
        .fails(1, ["setstripe", "--rule", "*", "--part", "ssd=1M@1G", "--part", "hdd=1M", "/weft/d/e/a.log"]);
    assert!(full.contains("Not a directory"), "{full}");
    servers.weft(["setstripe", "-d", "--rule", "*.h5", "/weft/d"]);
    assert!(!servers.weft(["getstripe", "-d", "/weft/d"]).contains("*.h5"));
    servers.weft(["setstripe", "--no-rules", "/weft/d/e"]);
    servers.weft(["setstripe", "-d", "/weft/d"]);
    let gone = servers.weft(["getstripe", "-d", "/weft/d/e"]);
    assert!(!gone.contains("rules"), "{gone}");
    // A single file by class, cut where the capacity ends.
    servers.weft(["setstripe", "--part", "ssd=1M@1G", "--part", "hdd=1M", "/weft/d/big"]);
    let cut = servers.weft(["getstripe", "/weft/d/big"]);
    // The file a.h5 has half a stripe on each SSD.
    assert!(cut.contains(&format!("bytes 0 to {}:\n", 2 * (CAPACITY - MIB))), "{cut}");
    let output = servers.command(["getstripe", "/weft/nothing"]).output().expect("weft starts");
    assert!(!output.status.success(), "{}", shown(&output));
}
