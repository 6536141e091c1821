//! `weft plan --watch`: a directory of a cluster of real servers with programs whose access patterns change.

mod common;

use common::servers::Servers;
use common::{Embedded, Random};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, IoSlice, IoSliceMut};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use weft_client::{Client, OpenFile};
use weft_config::Cluster;
use weft_core::{FileOffset, LocalExtent, Nanos};
use weft_env::real::{RealEnv, block_on};
use weft_planner::Plan;
use weft_planner::replicas::ReplicaFile;
use weft_planner::watch::SampledMessage;
use weft_planner::watch::request_reassembly::reassemble;
use weft_wire::meta::{InodePath, LayoutSpec, OpenFlags};

const MIB: u64 = 1 << 20;
/// File size that no program reaches during the test.
const FILE: u64 = 16 << 30;
const PROCESSES: u64 = 4;
/// Time limit for one line of output.
const LINE_TIMEOUT: Duration = Duration::from_secs(60);

/// Devices of the classes, whose directories lie on the same disk.
const DEVICES: [&str; 4] = ["--profile", "hdd=hdd-7200", "--profile", "ssd=sata-ssd"];

/// A running `weft plan --watch --json`, whose output is read line by line.
struct Watching {
    child: Child,
    lines: Receiver<serde_json::Value>,
}

impl Watching {
    fn new(servers: &Servers, args: &[&str]) -> Self {
        let mut command = servers.command(["plan", "--watch", "/weft/data", "--json"]);
        let mut child = command.args(args).stdout(Stdio::piped()).spawn().expect("weft starts");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let row = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
                if send.send(row).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    /// Returns the next line about the files.
    #[track_caller]
    fn next(&self) -> serde_json::Value {
        let row = self.lines.recv_timeout(LINE_TIMEOUT).expect("a line in time");
        println!("{row}");
        assert_eq!(row["group"], "/weft/data/run*/field");
        row
    }

    /// Returns the next decision, which must be the next line that is not an error.
    #[track_caller]
    fn decision(&self) -> serde_json::Value {
        loop {
            let row = self.next();
            if !row["decision"].is_null() {
                return row;
            }
            let step = row["step"].as_str().expect("a step");
            assert!(["waiting", "quiet", "known"].contains(&step), "{row}");
        }
    }

    /// Waits for `count` intervals in the steady state without a decision in between. On a busy machine, single
    /// intervals may deviate.
    #[track_caller]
    fn steady(&self, mut count: usize) {
        while count > 0 {
            let row = self.next();
            assert!(row["decision"].is_null() && row["step"] != "plan", "{row}");
            count -= usize::from(row["step"] == "known");
        }
    }
}

/// Stops a program however the test ends.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended
        let _ = self.child.wait();
    }
}

fn client(file: &Path) -> Client<RealEnv> {
    let cluster = Cluster::load(file).expect("the cluster file");
    let credentials = cluster.credentials().expect("the key");
    Client::new(RealEnv::new(), cluster.map(), cluster.client_options(), credentials)
}

fn open(client: &Client<RealEnv>, path: &str) -> OpenFile<RealEnv> {
    let flags = OpenFlags { read: true, write: true, create: true, ..OpenFlags::default() };
    let at = InodePath::from_root(path, true);
    block_on(client.open(&at, flags, 0o644, &LayoutSpec::default())).expect("opens")
}

/// Runs a process of the program, which reads its part of a file sequentially, or 4 KiB at random offsets.
fn program(cluster: &Path, number: u64, random: &AtomicBool, stop: &AtomicBool) {
    let client = client(cluster);
    let file = open(&client, &format!("data/run{}/field", number % 2));
    let (part, mut at) = (FILE / PROCESSES, 0);
    let mut chance = Random::new(number);
    let mut buf = vec![0; MIB as usize];
    while !stop.load(Ordering::Relaxed) {
        let (offset, len) = match random.load(Ordering::Relaxed) {
            false => (number * part + at % part, MIB),
            true => (chance.below(FILE / 4096) * 4096, 4096),
        };
        at += MIB;
        let mut bufs = [IoSliceMut::new(&mut buf[..len as usize])];
        let got = block_on(file.read_at(&mut bufs, FileOffset(offset))).expect("reads");
        assert_eq!(got as u64, len);
        // The program computes as well, and leaves the processors to others.
        std::thread::sleep(Duration::from_millis(4));
    }
}

#[test]
fn a_program_with_a_new_access_pattern_gets_one_new_layout() {
    let mut servers = Servers::of_classes(&["hdd", "hdd", "ssd"], "sample = \"all\"", "", "", "");
    servers.weft(["mkdir", "-p", "/weft/data/run0", "/weft/data/run1", "/weft/elsewhere"]);
    for directory in ["/weft/data/run0", "/weft/data/run1"] {
        servers.weft(["setstripe", "--class", "hdd", "-S", "1M", directory]);
    }
    {
        let client = client(&servers.file());
        for run in 0..2 {
            let file = open(&client, &format!("data/run{run}/field"));
            // Write the last stripe of each datafile, so that no read reaches the end of one.
            for at in [FILE - 1, FILE - MIB - 1] {
                block_on(file.write_at(&[IoSlice::new(&[1])], FileOffset(at))).expect("writes");
            }
        }
        // A file outside the watched directory.
        let other = open(&client, "elsewhere/f");
        block_on(other.write_at(&[IoSlice::new(&[1; 4096])], FileOffset(0))).expect("writes");
    }
    let (random, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let plan = servers.path("plan.toml");
    let output = plan.display().to_string();
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&stop);
        {
            let (random, stop) = (&random, &stop);
            for number in 0..PROCESSES {
                let cluster = servers.file();
                scope.spawn(move || program(&cluster, number, random, stop));
            }
        }
        let hysteresis = ["--every", "1s", "--lasts", "2", "--pause", "0s", "--gain", "80%"];
        let args = [&hysteresis[..], &["--capacity", "ssd=64GiB"], &DEVICES].concat();
        let watching = Watching::new(&servers, &[&args[..], &["--output", &output]].concat());
        // Sequential reads: a new layout would be faster, but the gain is below the threshold.
        let first = watching.decision();
        assert!(first["pattern"].as_str().expect("known").starts_with("contiguous reads"), "{first}");
        assert_eq!(first["decision"]["apply"], false, "{first}");
        watching.steady(3);
        // A short outage of a server causes no decision.
        servers.kill(1);
        servers.start(1);
        watching.steady(2);
        random.store(true, Ordering::Relaxed);
        let second = watching.decision();
        assert!(second["pattern"].as_str().expect("known").starts_with("random reads"), "{second}");
        assert_eq!(second["decision"]["apply"], true, "{second}");
        let rule = &second["rule"];
        assert!(rule["layout"][0]["stripes"]["ssd"].is_string(), "{rule}");
        watching.steady(1);
        let plan = Plan::from_toml(&std::fs::read_to_string(&plan).expect("the plan")).expect("a plan");
        assert!(plan.rule("/weft/data/run1/field").is_some() && plan.rules.len() == 1);
        watching.steady(3);
        // New files of the next run get the layout.
        servers.weft(["mkdir", "/weft/data/run7"]);
        let client = client(&servers.file());
        let targets = |path: &str| {
            let file = open(&client, path);
            let layout = file.layout().expect("a layout");
            layout.objects().map(|(_, target)| target.0).collect::<BTreeSet<u32>>()
        };
        assert!(targets("data/run7/field").contains(&2), "the SSD is used");
        assert_eq!(targets("data/run1/field"), BTreeSet::from([0, 1]), "existing files stay in place");
        // A new watcher finds that the best layout is already in force.
        drop(watching);
        let watching = Watching::new(&servers, &args);
        let third = watching.decision();
        assert_eq!(third["decision"]["apply"], false, "{third}");
        let number = |name: &str| third[name].as_f64().expect("a time");
        assert!(number("files_s") > 2.0 * number("in_force_s"), "{third}");
        watching.steady(2);
    });
}

#[test]
fn a_cluster_without_samples_is_refused_with_a_remedy() {
    let cluster = Embedded::started();
    let error = cluster.fails(2, ["plan", "--watch", "/weft"]);
    assert!(error.contains("sample = \"1/64\""), "{error}");
    cluster.weft(["touch", "/weft/file"]);
    let error = cluster.fails(2, ["plan", "--watch", "/weft/file"]);
    assert!(error.contains("not a directory"), "{error}");
    for args in [&["--every", "5s"][..], &["--watch", "/weft"]] {
        let error = cluster.fails(2, [&["plan", "trace.csv"][..], args].concat());
        assert!(error.contains("--watch"), "{error}");
    }
}

#[test]
fn a_single_look_at_the_samples() {
    let servers = Servers::of_classes(&["hdd", "ssd"], "sample = \"1/1\"", "", "", "");
    servers.weft(["mkdir", "/weft/data"]);
    servers.weft(["setstripe", "--class", "hdd", "/weft/data"]);
    let look = |more: &[&str]| {
        let args = ["plan", "--watch", "/weft/data", "--once", "--gain", "0%", "--capacity", "ssd=64GiB"];
        servers.weft([&args[..], more].concat())
    };
    assert!(look(&["--dry-run"]).contains("no requests"), "nobody did anything");
    let client = client(&servers.file());
    let file = open(&client, "data/f");
    let mut chance = Random::new(77);
    for _ in 0..300 {
        let at = chance.below(4096) * 4096;
        block_on(file.write_at(&[IoSlice::new(&[1; 4096])], FileOffset(at))).expect("writes");
    }
    let text = look(&["--dry-run", "--requests", "1000"]);
    assert!(text.contains("/weft/data/f: too few requests"), "{text}");
    let text = look(&["--explain", "--dry-run"]);
    assert!(text.contains("/weft/data/f: random writes of about 4 KiB lasts"), "{text}");
    assert!(text.contains("300 requests"), "{text}");
    let targets = || {
        let file = open(&client, "data/f");
        file.layout().expect("a layout").objects().map(|(_, target)| target.0).collect::<BTreeSet<u32>>()
    };
    assert_eq!(targets(), BTreeSet::from([0]), "no layout was applied");
    let plan = servers.path("plan.toml").display().to_string();
    let text = look(&["--output", &plan, "--migrate"]);
    assert!(text.contains("have their layouts"), "{text}");
    assert!(targets().contains(&1), "it was moved");
    // A moved file has a new file id, and the requests of the mover are not counted.
    let file = open(&client, "data/f");
    for _ in 0..100 {
        let at = chance.below(4096) * 4096;
        let read = block_on(file.read_at(&mut [IoSliceMut::new(&mut [0; 4096])], FileOffset(at)));
        read.expect("reads");
    }
    let text = look(&["--explain", "--dry-run"]);
    assert!(
        text.contains("/weft/data/f: random reads of about 4 KiB") && text.contains("100 requests"),
        "{text}"
    );
}

#[test]
fn replicas_are_proposed_for_a_pattern_that_lasts() {
    const BLOCK: u64 = 4096;
    const STRIDE: u64 = MIB / 2;
    const BLOCKS: u64 = 2048;
    let servers = Servers::of_classes(&["hdd", "hdd"], "sample = \"all\"", "", "", "");
    servers.weft(["mkdir", "-p", "/weft/data/run1"]);
    let block = |number: u64| [(number * 7 + number / 251) as u8; BLOCK as usize];
    {
        let client = client(&servers.file());
        let file = open(&client, "data/run1/field");
        for number in 0..BLOCKS {
            let at = FileOffset(number * STRIDE);
            block_on(file.write_at(&[IoSlice::new(&block(number))], at)).expect("writes");
        }
        block_on(file.close()).expect("closes");
    }
    // The program: one process that reads blocks in random order until it shall stop.
    let read = |stop: &AtomicBool| {
        let client = client(&servers.file());
        let at = InodePath::from_root("data/run1/field", true);
        let flags = OpenFlags { read: true, ..OpenFlags::default() };
        let file = block_on(client.open(&at, flags, 0, &LayoutSpec::default())).expect("opens");
        let mut buf = [0; BLOCK as usize];
        let mut chance = Random::new(11);
        loop {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let number = chance.below(BLOCKS);
            let at = FileOffset(number * STRIDE);
            let got = block_on(file.read_at(&mut [IoSliceMut::new(&mut buf)], at)).expect("reads");
            assert!(got as u64 == BLOCK && buf == block(number), "block {number}");
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    let plan = servers.path("replicas.toml");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&stop);
        let (read, stop) = (&read, &stop);
        scope.spawn(move || read(stop));
        let output = plan.display().to_string();
        let hysteresis = ["--every", "1s", "--lasts", "2", "--pause", "1h", "--gain", "5%"];
        let replicas = ["--replicas", "--policy", "cida", "--output", &output, "--replicate=1G"];
        let watching = Watching::new(&servers, &[&hysteresis[..], &replicas].concat());
        let row = watching.decision();
        assert_eq!(row["decision"]["apply"], true, "{row}");
        assert!(row["pattern"].as_str().expect("known").starts_with("random reads"), "{row}");
        assert_eq!(row["replica"]["file"], "/weft/data/run1/field", "{row}");
        assert!(row["replica"]["run_s"].as_f64() < row["replica"]["now_s"].as_f64(), "{row}");
        assert!(row["rule"].is_null(), "{row}");
        // The file is copied while the program reads it.
        let replica = || {
            let text = servers.weft(["replicate", "list", "--json"]);
            let row: serde_json::Value = serde_json::from_str(text.lines().next()?).expect("JSON");
            (row["state"] == "valid").then_some(row)
        };
        let replica = common::until(Duration::from_secs(120), "the replica is valid", replica);
        assert_eq!(replica["processes"], 0, "{replica}");
    });
    let file = ReplicaFile::of_toml(&std::fs::read_to_string(&plan).expect("the plan")).expect("a plan");
    let [planned] = &file.replicas[..] else { panic!("{} replicas", file.replicas.len()) };
    assert_eq!((planned.path.as_str(), planned.ranks), ("/weft/data/run1/field", 0));
    assert!(planned.mapping().expect("a mapping").bytes() > 64 * BLOCK);
    // Programs that open the file from now on read the same bytes, with the replica.
    let client = client(&servers.file());
    let file = open(&client, "data/run1/field");
    for number in 0..BLOCKS {
        let mut buf = [0; BLOCK as usize];
        let at = FileOffset(number * STRIDE);
        let got = block_on(file.read_at(&mut [IoSliceMut::new(&mut buf)], at)).expect("reads");
        assert!(got as u64 == BLOCK && buf == block(number), "block {number}");
    }
    block_on(file.close()).expect("closes");
    assert!(servers.weft(["replicate", "verify", "/weft/data/run1/field"]).contains("no difference"));
    let agent = || servers.weft(["agent", "status", "--json"]);
    let ended = || {
        let status: serde_json::Value = serde_json::from_str(&agent()).expect("JSON");
        (status["running"] == false && status["jobs"] == serde_json::json!([])).then_some(())
    };
    common::until(Duration::from_secs(120), "the agent ends", ended);
}

#[test]
fn replicas_need_samples_of_all_requests() {
    let cluster = Embedded::started();
    let error = cluster.fails(2, ["plan", "--watch", "/weft", "--replicas"]);
    assert!(error.contains("keeps no samples") && error.contains("sample = \"all\""), "{error}");
    for options in [&["--replicate"][..], &["--replicate", "--output", "-"], &["--output", "f", "--migrate"]]
    {
        let args = [&["plan", "--watch", "/weft", "--replicas"][..], options].concat();
        assert!(cluster.fails(2, args).contains("--"), "{options:?}");
    }
    let servers = Servers::of_classes(&["hdd"], "sample = \"1/4\"", "", "", "");
    let error = servers.fails(2, ["plan", "--watch", "/weft", "--replicas", "--once"]);
    assert!(error.contains("samples of 1/4") && error.contains("sample = \"all\""), "{error}");
}

#[test]
fn a_directory_that_is_renamed_and_recreated_is_planned_again() {
    let servers =
        Servers::of_classes(&["hdd", "ssd"], "sample = \"all\"", "", "", "[layout]\nclass = \"hdd\"\n");
    let stop = AtomicBool::new(false);
    let begin = || {
        servers.weft(["mkdir", "/weft/data", "/weft/data/run1"]);
        let client = client(&servers.file());
        let file = open(&client, "data/run1/field");
        block_on(file.write_at(&[IoSlice::new(&[1])], FileOffset(64 * MIB))).expect("writes");
    };
    begin();
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&stop);
        let (cluster, stop) = (servers.file(), &stop);
        scope.spawn(move || {
            let client = client(&cluster);
            let mut chance = Random::new(5);
            let at = InodePath::from_root("data/run1/field", true);
            while !stop.load(Ordering::Relaxed) {
                let flags = OpenFlags { read: true, ..OpenFlags::default() };
                // The file is missing for a moment.
                if let Ok(file) = block_on(client.open(&at, flags, 0, &LayoutSpec::default())) {
                    for _ in 0..64 {
                        let offset = FileOffset(chance.below(64 * MIB / 4096) * 4096);
                        let mut bytes = [0; 4096];
                        let mut bufs = [IoSliceMut::new(&mut bytes)];
                        block_on(file.read_at(&mut bufs, offset)).expect("reads");
                    }
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let args =
            ["--every", "1s", "--lasts", "1", "--pause", "1h", "--gain", "10%", "--capacity", "ssd=64GiB"];
        let watching = Watching::new(&servers, &[&args[..], &DEVICES].concat());
        assert_eq!(watching.decision()["decision"]["apply"], true);
        watching.steady(1);
        servers.weft(["mv", "/weft/data", "/weft/kept"]);
        begin();
        assert_eq!(watching.decision()["decision"]["apply"], true);
        // The rules are set after the line with the decision and before the next interval.
        watching.steady(1);
        assert!(servers.weft(["getstripe", "-d", "/weft/data"]).contains("ssd"), "the new one has the rule");
    });
}

#[test]
fn samples_of_all_servers_contain_the_requests_of_a_client() {
    let servers = Servers::of_classes(&["hdd", "hdd", "hdd", "hdd"], "sample = \"all\"", "", "", "");
    servers.weft(["setstripe", "-S", "192K", "/weft"]);
    let (mut chance, _) = Random::seeded();
    let client = client(&servers.file());
    let file = open(&client, "f");
    let layout = file.layout().expect("a layout").clone();
    let mut bytes = vec![3; 6 * MIB as usize];
    let (mut asked, mut end) = (Vec::new(), 0);
    for number in 0..120 {
        // Within a stripe, over several, and longer than one message; a part is read back.
        let longest = [100_000, MIB, 6 * MIB][chance.below(3) as usize];
        let write = number < 60 || chance.below(2) == 0;
        // A read ends at the current end of the file, which samples do not contain.
        let offset = chance.below(if write { 20 * MIB } else { end });
        let most = if write { longest } else { longest.min(end - offset) };
        let len = 1 + chance.below(most);
        let bytes = &mut bytes[..len as usize];
        let at = FileOffset(offset);
        let done = match write {
            true => block_on(file.write_at(&[IoSlice::new(bytes)], at)).expect("writes"),
            false => block_on(file.read_at(&mut [IoSliceMut::new(bytes)], at)).expect("reads"),
        };
        assert_eq!(done as u64, len);
        end = end.max(offset + len);
        asked.push((write, offset, len));
    }
    let size = block_on(file.size()).expect("a size").0;
    let cluster = Cluster::load(&servers.file()).expect("the cluster file");
    let mut seen = Vec::new();
    for (server, _) in cluster.numbered() {
        // A sample is recorded after the reply; a later request waits for it.
        block_on(file.sync()).expect("syncs");
        let samples = block_on(client.samples(server, 0, 0, 8192)).expect("samples");
        assert_eq!((samples.one_in, samples.lost), (1, 0));
        seen.extend(samples.samples.iter().map(|sample| SampledMessage {
            client: sample.client,
            object: sample.datafile.object,
            local: LocalExtent::new(sample.offset.0, sample.len.into()),
            write: sample.write,
            siblings: sample.siblings,
            call: sample.call,
            start: Nanos(sample.start.0 as u64),
            end: Nanos(sample.start.0 as u64 + sample.took.0),
        }));
    }
    let (found, lost) = reassemble(&layout, size, seen);
    let found: Vec<_> = found.iter().map(|one| (one.write, one.extent.offset.0, one.extent.len.0)).collect();
    assert_eq!(lost, 0);
    assert_eq!(found, asked);
}
