//! From a plan to files: rules of directories and room of targets, with real servers.

mod common;

use common::servers::Servers;
use common::{Random, shown};
use std::fmt::Write as _;
use std::path::Path;

const MIB: u64 = 1 << 20;
/// Room of each SSD.
const ROOM: u64 = 6 * MIB;

fn servers() -> Servers {
    let ssd = "room = \"6 MiB\"";
    Servers::of(
        &[("hdd", ""), ("hdd", ""), ("ssd", ssd), ("ssd", ssd)],
        "",
        "",
        "[layout]\nclass = \"hdd\"\n",
    )
}

/// Random reads of two files of 8 MiB by eight ranks, as CSV.
fn trace(path: &Path) {
    let mut csv = String::from("rank,operation,file,offset,length,start_us,end_us\n");
    for n in 0..1024u64 {
        let mixed = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20;
        let (rank, place, end) = (n % 8, mixed % 128, n + 8);
        writeln!(csv, "{rank},read,/scratch/run1/part.{},{},65536,{n},{end}", n % 2, place * 65_536)
            .expect("a String takes every write");
    }
    std::fs::write(path, csv).expect("written");
}

/// What is promised on each SSD.
fn promised(servers: &Servers) -> Vec<u64> {
    let status: serde_json::Value = serde_json::from_str(&servers.weft(["status", "--json"])).expect("JSON");
    let rooms = status["servers"][0]["status"]["metadata"]["rooms"].as_array().expect("rooms").clone();
    assert!(rooms.iter().all(|room| room["room"] == ROOM), "{rooms:?}");
    rooms.iter().map(|room| room["promised"].as_u64().expect("a number")).collect()
}

/// Copies a file in, and says how many bytes its layout promises on each of the two SSDs.
fn copy(servers: &Servers, local: &str, to: &str) -> Vec<u64> {
    let before = promised(servers);
    servers.weft(["cp", local, to]);
    promised(servers).iter().zip(before).map(|(after, before)| after - before).collect()
}

#[test]
fn a_plan_s_layouts_are_those_of_new_files_until_room_runs_out() {
    let mut servers = servers();
    let [trace_file, plan, local] = ["trace.csv", "plan.toml", "part"].map(|name| servers.path(name));
    let texts = [&trace_file, &plan, &local].map(|path| path.to_str().expect("text").to_owned());
    let [trace_text, plan_text, local_text] = texts.each_ref().map(String::as_str);
    trace(&trace_file);
    assert!(servers.weft(["config", "show"]).contains("may promise 6 MiB on target 2"));
    // The cluster file says how much room there is.
    servers.weft(["plan", trace_text, "--output", plan_text]);
    let text = std::fs::read_to_string(&plan).expect("written");
    assert!(text.contains("/scratch/run1/part.*") && text.contains("room = \"6 MiB\""), "{text}");
    assert!(!text.contains("class ssd has room"), "nobody has any of it: {text}");
    // A bit less for both of its files, so that the third one gets a rest.
    servers.weft(["plan", trace_text, "--output", plan_text, "--room", "ssd=5MiB"]);
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
    assert!(again.contains("1 file of the plan already with its layout"), "{again}");
    // Below directories that were there before and that come later, and nowhere else.
    let rules = servers.weft(["getstripe", "-d", "/weft/runs/old"]);
    assert!(rules.contains("rules of /weft/runs:") && rules.contains("part.{n}"), "{rules}");
    let first = promised(&servers);
    assert!(first[0] > 0 && first == [first[0]; 2], "of the empty file: {first:?}");
    servers.weft(["mkdir", "-p", "/weft/runs/new/deep"]);
    let of_new = copy(&servers, local_text, "/weft/runs/new/deep/part.0017");
    assert!(of_new.iter().all(|bytes| (1..=first[0]).contains(bytes)), "{of_new:?}");
    let shown = servers.weft(["getstripe", "/weft/runs/new/deep/part.0017"]);
    assert!(shown.contains("bytes 0 to ") && shown.contains("ssd"), "{shown}");
    assert_eq!(copy(&servers, local_text, "/weft/runs/new/partx"), [0, 0]);
    assert_eq!(copy(&servers, local_text, "/weft/part.1"), [0, 0]);
    // An explicit wish goes before the rule.
    servers.weft(["setstripe", "-c", "1", "/weft/runs/part.99"]);
    assert!(!servers.weft(["getstripe", "/weft/runs/part.99"]).contains("bytes 0 to "));

    // Until nothing is left; what was promised before stays, and later files are on HDDs.
    let mut got = Vec::new();
    for n in 100..112 {
        got.push(copy(&servers, local_text, &format!("/weft/runs/part.{n}")));
    }
    assert!(got[0].iter().all(|bytes| (1..first[0]).contains(bytes)), "the rest: {got:?}");
    assert!(got.windows(2).all(|pair| pair[1] <= pair[0]), "{got:?}");
    assert_eq!(got.last(), Some(&vec![0, 0]), "{got:?}");
    let full = promised(&servers);
    assert!(full.iter().all(|bytes| (ROOM - MIB..=ROOM).contains(bytes)), "{full:?}");
    let df = servers.weft(["df"]);
    assert!(df.contains("PROMISED") && df.contains("6.00 MiB"), "{df}");
    assert!(servers.weft(["status"]).contains("PROMISED"));
    // Every byte is where it was put.
    for path in ["new/deep/part.0017", "part.100", "part.103", "part.111", "old/part.3"] {
        let read = servers.command(["cat", &format!("/weft/runs/{path}")]).output().expect("weft starts");
        assert!(read.stdout == bytes, "{path}: {}", common::shown(&read).len());
    }
    // The account is as it was after the service was killed, and right by a check.
    servers.kill(0);
    servers.start(0);
    assert_eq!(promised(&servers), full);
    let check = servers.command(["fsck"]).output().expect("weft starts");
    assert!(check.status.success(), "{}", common::shown(&check));

    // Room that is given back is there again.
    servers.weft(["rm", "/weft/runs/new/deep/part.0017", "/weft/runs/part.100"]);
    let freed = |servers: &Servers| promised(servers).iter().all(|bytes| *bytes < ROOM - MIB);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !freed(&servers) && std::time::Instant::now() < until {
        std::thread::yield_now();
    }
    let of_next = copy(&servers, local_text, "/weft/runs/part.200");
    assert_eq!(of_next, of_new);
    // What was there before is moved by the rules, and then has what a new one would have.
    servers.weft(["rm", "/weft/runs/part.101", "/weft/runs/part.102", "/weft/runs/part.200"]);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while promised(&servers) != first && std::time::Instant::now() < until {
        std::thread::yield_now();
    }
    assert_eq!(promised(&servers), first, "of the empty file alone");
    servers.weft(["migrate", "/weft/runs/old/part.3"]);
    assert_eq!(promised(&servers), [2 * first[0]; 2]);
    let moved = servers.command(["cat", "/weft/runs/old/part.3"]).output().expect("weft starts");
    assert!(moved.stdout == bytes);
    servers.weft(["rm", "/weft/runs/part.99"]);
    let after = servers.weft(asked);
    assert!(after.contains("2 files of the plan already with its layout"), "{after}");
    servers.weft(["apply", plan_text, "--under", "/weft/runs", "--anywhere", "--remove"]);
    assert!(!servers.weft(["getstripe", "-d", "/weft/runs/old"]).contains("rules"));
    assert_eq!(copy(&servers, local_text, "/weft/runs/part.300"), [0, 0]);
}

#[test]
fn a_plan_reckons_with_what_other_files_have_of_the_room() {
    let mut servers = servers();
    let [trace_file, plan, local] = ["trace.csv", "plan.toml", "part"].map(|name| servers.path(name));
    trace(&trace_file);
    let text = std::fs::read_to_string(&trace_file).expect("written");
    std::fs::write(&trace_file, text.replace("/scratch/", "/weft/")).expect("written");
    let [trace_text, plan_text] = [&trace_file, &plan].map(|path| path.to_str().expect("text"));
    let room = |servers: &Servers, more: &[&str]| {
        servers.weft([&["plan", trace_text, "--output", plan_text][..], more].concat());
        let plan = std::fs::read_to_string(&plan).expect("written");
        let plan = weft_planner::Plan::from_toml(&plan).expect("a plan");
        let ssd = plan.cluster.classes.iter().find(|class| class.name == "ssd").expect("the class");
        (ssd.room.expect("a limit").0, plan.notes.join("\n"))
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
    // A file that has the room itself gets another layout: what it has does not count, what one beside it has does.
    servers.weft(["cp", local.to_str().expect("text"), "/weft/run1/part.0"]);
    let (own, notes) = room(&servers, &[]);
    assert_eq!(own, ROOM);
    assert!(notes.contains("files of the trace have of it (2.00 MiB) counts as free"), "{notes}");
    servers.weft(["cp", local.to_str().expect("text"), "/weft/run1/part.7"]);
    let (left, notes) = room(&servers, &[]);
    assert_eq!(left, ROOM - 2 * MIB);
    assert!(
        notes.contains("4.00 MiB of 6.00 MiB") && notes.contains("2.00 MiB of it are promised"),
        "{notes}"
    );
    // What is said goes before, and what nobody can tell is said.
    let (said, notes) = room(&servers, &["--room", "ssd=3MiB"]);
    assert!(said == 3 * MIB && !notes.contains("promised"), "{said} {notes}");
    servers.stop(3);
    let (all, notes) = room(&servers, &[]);
    assert!(
        all == ROOM && notes.contains("is not known") && notes.contains(": server s3: "),
        "{all} {notes}"
    );
    // The file of a cluster elsewhere is planned for without its key.
    let elsewhere = servers.path("elsewhere.toml");
    let text = std::fs::read_to_string(servers.file()).expect("there");
    let text = text.replacen("unix:", "tcp:127.0.0.1:9\" # ", 1).replace("/key\"", "/no-key\"");
    std::fs::write(&elsewhere, text).expect("written");
    let (all, notes) = room(&servers, &["--cluster", elsewhere.to_str().expect("text")]);
    assert!(all == ROOM && notes.contains("all of it counts: key file "), "{all} {notes}");
}

/// Room that a file's own old layout takes while it is moved is in its way once, and not for ever.
#[test]
fn a_move_gets_the_room_that_the_file_itself_gives_back() {
    let servers = servers();
    let [trace_file, plan, local] = ["trace.csv", "plan.toml", "part"].map(|name| servers.path(name));
    trace(&trace_file);
    let text = std::fs::read_to_string(&trace_file).expect("written");
    std::fs::write(&trace_file, text.replace("/scratch/", "/weft/")).expect("written");
    let [trace_text, plan_text, local_text] =
        [&trace_file, &plan, &local].map(|path| path.to_str().expect("text"));
    std::fs::write(&local, [7; MIB as usize]).expect("written");
    servers.weft(["plan", trace_text, "--output", plan_text, "--room", "ssd=6MiB"]);
    servers.weft(["mkdir", "/weft/run1"]);
    // Of 6 MiB on each SSD it has 5, and the plan gives it 3 of them in stripes of another length.
    servers.weft(["setstripe", "--part", "ssd=256K@10M", "--part", "hdd=1M", "/weft/run1/part.0"]);
    servers.weft(["cp", local_text, "/weft/run1/part.0"]);
    assert_eq!(promised(&servers), [5 * MIB; 2]);
    let moved = servers.weft(["migrate", "--plan", plan_text, "/weft/run1/part.0"]);
    assert!(moved.contains("moved 1 file (2.00 MiB copied)"), "twice: {moved}");
    let right = servers.weft(["apply", plan_text]);
    assert!(right.contains("1 file of the plan already with its layout"), "{right}");
    let again = servers.weft(["migrate", "--plan", plan_text, "/weft/run1/part.0"]);
    assert!(again.contains("moved 0 files; 1 file left alone"), "{again}");
    // Where others have the room the file goes on without, and that is said.
    servers.weft(["setstripe", "--part", "ssd=256K@4M", "--part", "hdd=1M", "/weft/other"]);
    servers.weft(["setstripe", "-c", "1", "/weft/run1/part.1"]);
    servers.weft(["cp", local_text, "/weft/run1/part.1"]);
    let short =
        servers.command(["migrate", "--plan", plan_text, "/weft/run1/part.1"]).output().expect("runs");
    let said = shown(&short);
    assert!(short.status.success() && said.contains("1 file has less than the plan gives"), "{said}");
}

#[test]
fn rules_are_set_by_hand_shown_and_taken_away() {
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
    // What names more than there is: told where and what to do.
    let full = servers
        .fails(1, ["setstripe", "--rule", "*", "--part", "ssd=1M@1G", "--part", "hdd=1M", "/weft/d/e/a.log"]);
    assert!(full.contains("Not a directory"), "{full}");
    servers.weft(["setstripe", "-d", "--rule", "*.h5", "/weft/d"]);
    assert!(!servers.weft(["getstripe", "-d", "/weft/d"]).contains("*.h5"));
    servers.weft(["setstripe", "--no-rules", "/weft/d/e"]);
    servers.weft(["setstripe", "-d", "/weft/d"]);
    let gone = servers.weft(["getstripe", "-d", "/weft/d/e"]);
    assert!(!gone.contains("rules"), "{gone}");
    // A single file by class, cut where room ends.
    servers.weft(["setstripe", "--part", "ssd=1M@1G", "--part", "hdd=1M", "/weft/d/big"]);
    let cut = servers.weft(["getstripe", "/weft/d/big"]);
    // Half a stripe of each went to a.h5.
    assert!(cut.contains(&format!("bytes 0 to {}:\n", 2 * (ROOM - MIB))), "{cut}");
    let output = servers.command(["getstripe", "/weft/nothing"]).output().expect("weft starts");
    assert!(!output.status.success(), "{}", shown(&output));
}
