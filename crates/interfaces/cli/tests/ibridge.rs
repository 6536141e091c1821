//! SSDs as cache of disks, with real servers: kills at any time, and SSDs that are full, failed or missing.

mod common;

use common::Random;
use common::load::Worker;
use common::servers::{Servers, unwritable};
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weft_client::Client;
use weft_config::Cluster;
use weft_core::{ByteLen, FileOffset};
use weft_env::real::{RealEnv, block_on};
use weft_wire::meta::{InodePath, LayoutSpec, OpenFlags};

const CLIENTS: u64 = 3;
const KILLS: u64 = 6;
/// Minimum number of operations for a meaningful load.
const OPERATIONS_MIN: u64 = 100;
/// Clients mark all pieces up to this size as fragments, so that most writes of the load may go to an SSD.
const CLIENT: &str = "[client]\nfragment_threshold = \"64 KiB\"";

/// All small requests go to the SSD. Dirty bytes beyond 2 MiB are written back at once, the rest when the disk is idle.
const BUSY: &str =
    "size = \"32 MiB\"\npolicy = \"threshold\"\nfragments_below = \"64 KiB\"\nrandom_below = \"64 KiB\"
idle = \"20 ms\"\ndirty_high = \"2 MiB\"\ndirty_low = \"1 MiB\"";
/// SSD settings without automatic write-back.
const LAZY: &str =
    "size = \"32 MiB\"\npolicy = \"threshold\"\nfragments_below = \"64 KiB\"\nrandom_below = \"64 KiB\"
idle = \"1 h\"\ndirty_high = \"32 MiB\"\ndirty_low = \"32 MiB\"";

fn number(value: &serde_json::Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("{name} in {value}"))
}

#[test]
fn acknowledged_operations_survive_kills_of_servers_with_ssds() {
    let mut cluster = Servers::started(3, "", BUSY, CLIENT);
    let (mut random, seed) = Random::seeded();
    let (stop, flushed) = (AtomicBool::new(false), AtomicBool::new(false));
    let (done, compared) = (AtomicU64::new(0), AtomicU64::new(0));
    let file = cluster.file();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..CLIENTS)
            .map(|index| {
                let (stop, flushed, done, compared, file) = (&stop, &flushed, &done, &compared, &file);
                scope.spawn(move || {
                    let mut worker = Worker::new(file, index, seed, done);
                    while !stop.load(Ordering::Relaxed) {
                        worker.step();
                    }
                    worker.verify_all();
                    compared.fetch_add(1, Ordering::SeqCst);
                    while !flushed.load(Ordering::SeqCst) {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    worker.verify_all();
                    worker.failed
                })
            })
            .collect();
        let anybody_ended = || workers.iter().any(std::thread::ScopedJoinHandle::is_finished);

        for kill in 0..KILLS {
            // Random delays spread the kills over the load; nothing is waited for.
            std::thread::sleep(Duration::from_millis(100 + random.below(400)));
            let count = cluster.len() as u64;
            let victims: Vec<usize> = match random.below(3) {
                0 => (0..cluster.len()).collect(),
                1 => vec![1 + random.below(count - 1) as usize],
                _ => vec![random.below(count) as usize],
            };
            println!("kill {kill}: {victims:?}");
            victims.iter().for_each(|&id| cluster.kill(id));
            if random.below(2) == 0 {
                // Long enough for clients without retries to see the outage.
                std::thread::sleep(Duration::from_millis(200 + random.below(300)));
            }
            victims.iter().for_each(|&id| cluster.start(id));
            if anybody_ended() {
                break; // one has failed, and says why below
            }
        }
        // On a slow machine, the kills may be over before there is load.
        let deadline = Instant::now() + Duration::from_secs(60);
        while done.load(Ordering::Relaxed) <= OPERATIONS_MIN && Instant::now() < deadline && !anybody_ended()
        {
            std::thread::sleep(Duration::from_millis(10));
        }
        stop.store(true, Ordering::Relaxed);
        while compared.load(Ordering::SeqCst) < CLIENTS && !anybody_ended() {
            std::thread::sleep(Duration::from_millis(10));
        }
        // After a flush of the SSDs to the disks, the bytes are the same.
        if !anybody_ended() {
            cluster.weft(["flush"]);
            let ssds = cluster.ssds();
            assert!(ssds.iter().all(|ssd| number(ssd, "dirty") == 0), "{ssds:?}");
        }
        flushed.store(true, Ordering::SeqCst);
        let failed: Vec<u64> = workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|_| panic!("seed {seed}")))
            .collect();
        let done = done.load(Ordering::Relaxed);
        println!("{done} operations, {failed:?} of them failed in outages");
        assert!(done > OPERATIONS_MIN, "the load was a load");
    });
    // No orphans are left, and no data are missing.
    let checked = cluster.weft(["fsck"]);
    assert!(checked.contains("0 problems"), "seed {seed}: {checked}");
    // Counters restart with a killed server. Some of the running servers must have written to SSDs.
    println!("{:?}", cluster.ssds());
    (0..cluster.len()).rev().for_each(|id| cluster.stop(id));
    for id in 0..cluster.len() {
        assert!(!cluster.log(id).contains("lost"), "seed {seed}: {}", cluster.log(id));
    }
}

/// A client whose errors are texts.
struct Session(Client<RealEnv>);

impl Session {
    fn new(cluster: &Servers) -> Self {
        let config = Cluster::load(&cluster.file()).unwrap_or_else(|error| panic!("{error}"));
        let credentials = config.credentials().unwrap_or_else(|error| panic!("{error}"));
        Self(Client::new(RealEnv::new(), config.map(), config.client_options(), credentials))
    }

    fn open(&self, name: &str) -> Result<weft_client::OpenFile<RealEnv>, String> {
        let flags = OpenFlags { read: true, write: true, create: true, ..OpenFlags::default() };
        let spec = LayoutSpec { stripe_size: Some(ByteLen::from_kib(64)), ..LayoutSpec::default() };
        let at = InodePath::from_root(name.as_bytes().to_vec(), false);
        block_on(self.0.open(&at, flags, 0o600, &spec)).map_err(|error| error.to_string())
    }

    fn write(&self, name: &str, bytes: &[u8], step: usize) -> Result<(), String> {
        let open = self.open(name)?;
        for (part, at) in bytes.chunks(step).zip((0..).step_by(step)) {
            let wrote = block_on(open.write_at(&[IoSlice::new(part)], FileOffset(at)));
            assert_eq!(wrote.map_err(|error| error.to_string())?, part.len());
        }
        Ok(())
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, String> {
        let open = self.open(name)?;
        let size = block_on(open.size()).map_err(|error| error.to_string())?.0 as usize;
        let mut found = vec![0; size];
        for (part, at) in found.chunks_mut(1 << 20).zip((0..).step_by(1 << 20)) {
            let got = block_on(open.read_at(&mut [IoSliceMut::new(part)], FileOffset(at)));
            assert_eq!(got.map_err(|error| error.to_string())?, part.len(), "{name} at {at}");
        }
        Ok(found)
    }
}

/// Returns bytes that differ from offset to offset.
fn pattern(len: usize, salt: u64) -> Vec<u8> {
    (0..len as u64).map(|at| ((at + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8).collect()
}

/// Writes `bytes` from the beginning in steps, reads them back, and compares.
fn written(cluster: &Servers, name: &str, bytes: &[u8], step: usize) -> Session {
    let session = Session::new(cluster);
    session.write(name, bytes, step).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(session.read(name).expect("readable") == bytes, "{name} has the written bytes");
    session
}

#[test]
fn an_ssd_that_is_full_leaves_the_rest_to_the_disk() {
    let mut cluster = Servers::started(1, "", LAZY, CLIENT);
    // More bytes than the SSD can hold, in small requests.
    let bytes = pattern(44 << 20, 1);
    drop(written(&cluster, "much", &bytes, 16 << 10));
    for ssd in cluster.ssds() {
        let (dirty, capacity) = (number(&ssd, "dirty"), number(&ssd, "capacity"));
        assert!(dirty > capacity / 2 && dirty <= capacity, "{ssd}");
        assert!(ssd["failed"].is_null(), "{ssd}");
    }
    // Newer bytes replace dirty bytes on the full SSD.
    let newer = pattern(6 << 20, 2);
    let session = Session::new(&cluster);
    session.write("much", &newer, 1 << 20).expect("written");
    let both = [&newer[..], &bytes[newer.len()..]].concat();
    assert!(session.read("much").expect("readable") == both);
    drop(session);
    cluster.kill(0);
    cluster.start(0);
    assert!(Session::new(&cluster).read("much").expect("readable") == both);
    cluster.weft(["flush"]);
    assert!(cluster.ssds().iter().all(|ssd| number(ssd, "dirty") == 0));
    assert!(Session::new(&cluster).read("much").expect("readable") == both);
}

#[test]
fn a_failed_ssd_loses_only_its_dirty_bytes_and_names_the_files() {
    let mut cluster = Servers::started(1, "", LAZY, CLIENT);
    let (there, mut lost) = (pattern(300_000, 1), pattern(200_000, 2));
    let session = written(&cluster, "there", &there, 10_000);
    cluster.weft(["flush"]);
    session.write("lost", &lost, 10_000).expect("written");
    let payloads = cluster.path("ssd0/segments/data");
    if unwritable(&payloads, true).is_none() {
        common::skip::skip_on_this_machine("open files cannot be made immutable here; run as root on ext4");
        return;
    }
    // From now on writes go to the disk, and writers see no difference.
    let more = pattern(100_000, 3);
    session.write("more", &more, 10_000).expect("the disk accepts them");
    assert!(session.read("more").expect("readable") == more);
    assert!(session.read("there").expect("readable") == there);
    assert!(session.read("lost").expect("the SSD can still be read") == lost);
    let [ssd] = &cluster.ssds()[..] else { panic!("one target") };
    assert!(ssd["failed"].is_string(), "{ssd}");
    // Writes over lost bytes of the SSD work as well.
    lost[..10_000].copy_from_slice(&pattern(10_000, 4));
    session.write("lost", &lost[..10_000], 10_000).expect("the disk accepts them");
    // A restart finds the SSD in the same state.
    drop(session);
    cluster.kill(0);
    cluster.start(0);
    let session = Session::new(&cluster);
    for (name, bytes) in [("there", &there), ("lost", &lost), ("more", &more)] {
        assert!(&session.read(name).expect("readable") == bytes, "{name}");
    }
    drop(session);
    // The SSD is lost permanently: an empty one replaces it.
    cluster.kill(0);
    unwritable(&payloads, false).expect("as before");
    std::fs::remove_dir_all(cluster.path("ssd0")).expect("removed");
    cluster.start(0);
    let session = Session::new(&cluster);
    assert!(session.read("there").expect("it is on the disk") == there);
    assert!(session.read("more").expect("it is on the disk") == more);
    let error = session.read("lost").expect_err("its bytes are lost");
    assert!(error.contains("lost"), "{error}");
    let log = cluster.log(0);
    assert!(log.contains("are lost"), "{log}");
    // After a complete rewrite the file can be read again, and the new SSD is used.
    session.write("lost", &lost, 1 << 20).expect("written");
    assert!(session.read("lost").expect("readable") == lost);
    let [ssd] = &cluster.ssds()[..] else { panic!("one target") };
    assert!(ssd["failed"].is_null(), "{ssd}");
    drop(session);
    assert!(cluster.weft(["fsck"]).contains("0 problems"));
}
