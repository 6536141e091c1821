//! Emulated targets: exact in the simulated world, approximate in the real one.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use weft_core::{ByteLen, FileId, Integrity, LocalOffset, Nanos, ObjectId, TargetId};
use weft_env::device::{DeviceAction, DeviceModel, DeviceRequest, Ticket};
use weft_env::real::{RealEnv, block_on};
use weft_env::sim::{Sim, SimpleDisk};
use weft_env::{Coding, Dir, Env};
use weft_models::Profile;
use weft_store::datafile::DatafileKey;
use weft_store::emulate::{Emulation, Emulator};
use weft_store::metadata::{DatabaseSpec, Engine, Journal, JournalOptions, Table};
use weft_store::target::{DatafileFormat, Module, Target, TargetSpec};

fn emulation(profile: &str) -> Emulation {
    let profile = Profile::by_name(profile).expect("a profile that comes with Weft");
    Emulation { profile: profile.name.clone(), build: Arc::new(move || profile.build(1)) }
}

fn spec(path: &Path, module: Module, emulate: Emulation) -> TargetSpec {
    TargetSpec {
        id: TargetId(4),
        cluster: "test".into(),
        path: path.to_owned(),
        module,
        open_datafiles_max: 10,
        emulate: Some(emulate),
        integrity: Integrity::Off,
    }
}

fn key(file: u64) -> DatafileKey {
    DatafileKey::new(FileId(file), ObjectId { component: 0, column: 0 })
}

/// 10 ms for each request, one at a time.
#[derive(Default)]
struct OneByOne {
    queue: std::collections::VecDeque<Ticket>,
    next: Option<u64>,
}

impl DeviceModel for OneByOne {
    fn submit(&mut self, now: Nanos, ticket: Ticket, _: &DeviceRequest) {
        self.queue.push_back(ticket);
        self.next.get_or_insert(now.0 + 10_000_000);
    }

    fn next_event(&self) -> Option<Nanos> {
        self.next.map(Nanos)
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Ticket>) {
        while let Some(at) = self.next.filter(|&at| at <= now.0) {
            done.extend(self.queue.pop_front());
            self.next = (!self.queue.is_empty()).then_some(at + 10_000_000);
        }
    }
}

#[test]
fn requests_of_all_connections_share_one_queue() {
    let mut sim = Sim::with_seed(1);
    let node = sim.node("a");
    let emulate =
        Emulation { profile: "one by one".into(), build: Arc::new(|| Box::new(OneByOne::default())) };
    let env = node.clone();
    let target = sim.block_on(&node, async move {
        let target = Target::open(&env, &spec(Path::new("/"), Module::Null, emulate)).await.expect("target");
        Arc::new(target)
    });
    assert_eq!(target.emulates(), Some("one by one"));
    let ends = Arc::new(Mutex::new(Vec::new()));
    for connection in 0..5u64 {
        let (env, target, ends) = (node.clone(), Arc::clone(&target), Arc::clone(&ends));
        node.spawn("connection", move || async move {
            // The last requests arrive before the first one completes.
            env.sleep(Nanos(connection * 1_000_000)).await;
            let start = env.now();
            target.write(key(1), LocalOffset(connection * 100), &[1; 100]).await.expect("write");
            ends.lock().expect("lock").push((connection, env.now().0 - start.0));
        })
        .expect("a task");
    }
    sim.run();
    let took: Vec<_> = (0..5).map(|n| (n, 10_000_000 * (n + 1) - n * 1_000_000)).collect();
    assert_eq!(*ends.lock().expect("lock"), took);
}

#[test]
fn a_simulated_target_takes_the_models_times() {
    let mut sim = Sim::with_seed(1);
    let node = sim.node("a");
    let env = node.clone();
    let (times, mut model) = sim.block_on(&node, async move {
        let emulate = emulation("hdd-7200");
        let model = (emulate.build)();
        let target = Target::open(&env, &spec(Path::new("/"), Module::Null, emulate)).await.expect("target");
        let mut times = Vec::new();
        for n in 0..50u64 {
            let start = env.now();
            let offset = LocalOffset((n * 7919) % 1000 * 1_000_000);
            match n % 3 {
                0 => target.write(key(1), offset, &[1; 5000]).await.expect("write"),
                1 => drop(target.read(key(1), offset, &mut [0; 5000]).await.expect("read")),
                _ => target.set_len(key(1), ByteLen(offset.0)).await.expect("truncated"),
            }
            times.push((n, start, env.now()));
        }
        (times, model)
    });
    for (n, start, end) in times {
        let offset = LocalOffset((n * 7919) % 1000 * 1_000_000);
        let (action, len) = match n % 3 {
            0 => (DeviceAction::Write, 5000),
            1 => (DeviceAction::Read, 5000),
            _ => continue, // The null module has nothing to truncate.
        };
        let file = 1 << 20;
        let request = DeviceRequest { action, file, offset, len: ByteLen(len), is_direct: false };
        model.submit(start, Ticket(n), &request);
        let mut done = Vec::new();
        let mut now = start;
        while done.is_empty() {
            now = model.next_event().expect("under way");
            model.advance(now, &mut done);
        }
        assert_eq!(now, end, "request {n}");
    }
}

/// Returns the times that requests (start, end) would have taken on a new model of the same profile and seed.
fn predicted(profile: &str, requests: &[(DeviceRequest, Nanos)]) -> Vec<u64> {
    let mut model = (emulation(profile).build)();
    let mut took = Vec::new();
    for (n, (request, start)) in requests.iter().enumerate() {
        model.submit(*start, Ticket(n as u64), request);
        let mut done = Vec::new();
        let mut now = *start;
        while done.is_empty() {
            now = now.max(model.next_event().expect("under way"));
            model.advance(now, &mut done);
        }
        took.push(now.0 - start.0);
    }
    took
}

#[test]
fn a_real_target_takes_the_models_times_and_keeps_real_bytes() {
    let dir = tempfile::tempdir().expect("directory");
    let env = RealEnv::new();
    let target = block_on(Target::open(&env, &spec(dir.path(), Module::Buffered, emulation("hdd-7200"))));
    let target = target.expect("target");
    assert!(!target.sends_files(), "every access must pass the model");
    assert!(
        block_on(target.lease_file(key(1), true)).expect("no error").is_none(),
        "no descriptor is leased"
    );
    let bytes: Vec<u8> = (0..8_000_000u32).map(|n| (n % 251) as u8).collect();
    block_on(target.write(key(1), LocalOffset(0), &bytes)).expect("write");
    block_on(target.sync(key(1))).expect("sync");
    let (mut requests, mut took) = (Vec::new(), Vec::new());
    for n in 0..20u64 {
        let offset = (n * 7919) % 1900 * 4096;
        let mut buf = [0; 4096];
        let start = env.now();
        block_on(target.read(key(1), LocalOffset(offset), &mut buf)).expect("read");
        took.push(env.now().0 - start.0);
        assert_eq!(buf[..], bytes[offset as usize..][..4096]);
        let (action, len) = (DeviceAction::Read, ByteLen(4096));
        let request =
            DeviceRequest { action, file: 1 << 20, offset: LocalOffset(offset), len, is_direct: false };
        requests.push((request, start));
    }
    // The rotational position depends on the clock alone, so equal requests at equal times take equally long.
    let mut late: Vec<i64> = took
        .iter()
        .zip(predicted("hdd-7200", &requests))
        .map(|(&took, model)| took as i64 - model as i64)
        .collect();
    late.sort_unstable();
    assert!(took.iter().sum::<u64>() > 30_000_000, "20 reads of a disk take more than 30 ms: {took:?}");
    assert!((-1_000_000..1_000_000).contains(&late[10]), "late by {late:?} ns");
}

/// Commits of the metadata database take the device's time for a write and a sync.
#[test]
fn a_commit_on_an_emulated_disk_waits_for_the_rotation() {
    let commits = |device: Option<&str>| {
        let mut sim = Sim::with_seed(1);
        let node = sim.node("a");
        sim.set_disk_model(&node, Path::new("/"), Box::new(SimpleDisk::new(Nanos(1_000), 10_000_000_000)));
        let emulate = device.map(emulation);
        let env = node.clone();
        sim.block_on(&node, async move {
            let dir = env.dir(&PathBuf::from("/")).await.expect("directory");
            dir.sync("").await.expect("sync");
            let device = emulate.map(|emulate| Emulator::new(&env, &emulate));
            let wanted = DatabaseSpec::formatting("test");
            let options = JournalOptions::default();
            let journal =
                Journal::open_emulated(env.clone(), dir, "/", &wanted, options, device.clone()).await;
            let journal = journal.expect("opens");
            let start = env.now();
            for n in 0..20u8 {
                let written = journal.write(|t| {
                    t.put(Table::ALL[0], &[n], b"row".to_vec());
                    Ok::<_, weft_store::metadata::EngineError>(())
                });
                let ((), point) = written.expect("written");
                journal.durable(point).await.expect("durable");
            }
            let took = env.now().0 - start.0;
            journal.shutdown().await.expect("closed");
            (took / 20, device.map(|device| device.counters().writes))
        })
    };
    let (plain, _) = commits(None);
    let (disk, writes) = commits(Some("hdd-7200"));
    let (ssd, _) = commits(Some("nvme"));
    assert!(plain < 100_000, "{plain} ns on the plain disk");
    assert!((4_000_000..30_000_000).contains(&disk), "{disk} ns: one or two rotations");
    assert!(plain < ssd && ssd < 300_000, "{ssd} ns on a drive with a nonvolatile cache");
    assert!(writes >= Some(20), "{writes:?}");
}

/// Bytes of reads and writes, each of which ends at once.
#[derive(Default)]
struct Meter {
    moved: Arc<Mutex<(u64, u64)>>,
    ended: Vec<Ticket>,
    now: Nanos,
}

impl DeviceModel for Meter {
    fn submit(&mut self, now: Nanos, ticket: Ticket, request: &DeviceRequest) {
        let mut moved = self.moved.lock().expect("lock");
        match request.action {
            DeviceAction::Read => moved.0 += request.len.0,
            DeviceAction::Write => moved.1 += request.len.0,
            _ => {}
        }
        self.ended.push(ticket);
        self.now = now;
    }

    fn next_event(&self) -> Option<Nanos> {
        (!self.ended.is_empty()).then_some(self.now)
    }

    fn advance(&mut self, _: Nanos, done: &mut Vec<Ticket>) {
        done.append(&mut self.ended);
    }
}

/// Chunk of the tests of compressed datafiles.
const CHUNK: usize = 64 << 10;

/// Returns four chunks of decimal numbers, which compress to less than a half.
fn text() -> Vec<u8> {
    (0..80_000).flat_map(|number: u32| format!("{number} ").into_bytes()).take(4 * CHUNK).collect()
}

/// Writes a compressed datafile. Returns the number of its stored bytes.
async fn compressed<E: Env>(target: &Target<E>, bytes: &[u8]) -> u64 {
    let compression = Some("zstd:1/64KiB".parse().expect("a setting"));
    let format = DatafileFormat { integrity: None, compression };
    target.prepare(key(1), format).await.expect("prepare");
    target.write(key(1), LocalOffset(0), bytes).await.expect("write");
    target.chunk_stats(key(1)).await.expect("stats").expect("compressed").stored.0
}

async fn read_all<E: Env>(target: &Target<E>, expected: &[u8]) {
    let mut found = vec![0; expected.len()];
    target.read(key(1), LocalOffset(0), &mut found).await.expect("read");
    assert!(found == expected);
}

#[test]
fn the_device_transfers_the_stored_bytes_of_compressed_datafiles() {
    let dir = tempfile::tempdir().expect("a directory");
    let moved = Arc::new(Mutex::new((0, 0)));
    let counted = Arc::clone(&moved);
    let build =
        move || Box::new(Meter { moved: Arc::clone(&counted), ..Meter::default() }) as Box<dyn DeviceModel>;
    let emulate = Emulation { profile: "meter".into(), build: Arc::new(build) };
    let text = text();
    block_on(async {
        let env = RealEnv::new();
        let target = Target::open(&env, &spec(dir.path(), Module::Buffered, emulate)).await.expect("target");
        let take = || std::mem::take(&mut *moved.lock().expect("lock"));
        let stored = compressed(&target, &text).await;
        let (read, written) = take();
        assert!(stored < text.len() as u64 / 2, "{stored} stored bytes");
        // The headers, and a frame of the map.
        assert!(read == 0 && (stored..stored + 4096).contains(&written), "{written} of {stored} bytes");
        target.forget(key(1)).await.expect("forgotten");
        read_all(&target, &text).await;
        assert_eq!(take(), (stored, 0));
        // A part of a chunk is stored as it is, and no byte is read for it.
        target.write(key(1), LocalOffset(1000), &text[..10_000]).await.expect("write");
        let (read, written) = take();
        assert!(read == 0 && (10_000..10_200).contains(&written), "{read} and {written} bytes");
    });
}

#[test]
fn coding_takes_time_where_it_is_modeled() {
    let text = text();
    let took = |speed: Option<f64>| {
        let mut sim = Sim::with_seed(1);
        let node = sim.node("a");
        if let Some(speed) = speed {
            sim.set_coding(Coding { ratio: 0.5, speed });
        }
        let (env, text) = (node.clone(), text.clone());
        sim.block_on(&node, async move {
            let target = Target::open(&env, &plain_spec()).await.expect("target");
            let start = env.now();
            compressed(&target, &text).await;
            let written = env.now();
            read_all(&target, &text).await;
            (written.0 - start.0, env.now().0 - written.0)
        })
    };
    let (free, once, slow) = (took(None), took(Some(1.0)), took(Some(0.01)));
    // 2 ns for a byte and 8 us for a chunk; 0.55 ns and 5 us to decompress.
    let (compress, decompress) = (4 * (8_000 + 2 * CHUNK as u64), 4 * (5_000 + CHUNK as u64 * 55 / 100));
    assert_eq!(once.0 - free.0, compress);
    assert!((once.1 - free.1).abs_diff(decompress) < 10, "{once:?} {free:?}");
    assert!((slow.0 - free.0).abs_diff(100 * compress) < 10, "{slow:?} {free:?}");
}

fn plain_spec() -> TargetSpec {
    TargetSpec { emulate: None, ..spec(Path::new("/"), Module::Buffered, emulation("hdd-7200")) }
}
