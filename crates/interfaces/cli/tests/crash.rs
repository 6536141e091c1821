//! Acknowledged operations survive SIGKILL of any or all servers at any time.
//!
//! Several clients write, cut, rename, remove, read and sync their own files while servers are killed and restarted.
//! Each client keeps a model of the acknowledged operations. Only processes die here, not the machine, so everything
//! that was acknowledged must be present, synced or not. An operation that was in progress when it failed may have
//! happened or not. Tests with simulated disks show that data survive loss of power after fsync.

mod common;

use common::load::Worker;
use common::{Embedded, Random};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const CLIENTS: u64 = 3;
const KILLS: u64 = 8;
/// Minimum number of operations for a meaningful load.
const OPERATIONS_MIN: u64 = 100;

#[test]
fn acknowledged_operations_survive_kills_of_any_server() {
    let cluster = Embedded::started();
    let (mut random, seed) = Random::seeded();
    let stop = AtomicBool::new(false);
    let done = AtomicU64::new(0);
    let file = cluster.file();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..CLIENTS)
            .map(|index| {
                let (stop, done, file) = (&stop, &done, &file);
                scope.spawn(move || Worker::until(stop, file, index, seed, done))
            })
            .collect();

        for kill in 0..KILLS {
            // Random delays spread the kills over the load; nothing is waited for.
            std::thread::sleep(Duration::from_millis(100 + random.below(500)));
            let pids: Vec<i32> = cluster.pids().into_iter().flatten().collect();
            let victims = match random.below(3) {
                0 => pids.clone(),
                1 => pids[..1].to_vec(), // the one with the metadata
                _ => vec![pids[random.below(pids.len() as u64) as usize]],
            };
            println!("kill {kill}: {} of {} servers", victims.len(), pids.len());
            for pid in victims {
                // SAFETY: a process that this test started.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
            if random.below(2) == 0 {
                // Long enough for clients without retries to see the outage.
                std::thread::sleep(Duration::from_millis(300 + random.below(900)));
            }
            cluster.run(["true"]);
            if workers.iter().any(std::thread::ScopedJoinHandle::is_finished) {
                break; // one has failed, and says why below
            }
        }
        // On a slow machine, the kills may be over before there is load.
        let deadline = Instant::now() + Duration::from_secs(60);
        while done.load(Ordering::Relaxed) <= OPERATIONS_MIN
            && Instant::now() < deadline
            && !workers.iter().any(std::thread::ScopedJoinHandle::is_finished)
        {
            std::thread::sleep(Duration::from_millis(10));
        }
        stop.store(true, Ordering::Relaxed);
        let failed: Vec<u64> = workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|_| panic!("seed {seed}")))
            .collect();
        let done = done.load(Ordering::Relaxed);
        println!("{done} operations, {failed:?} of them failed in outages");
        assert!(done > OPERATIONS_MIN, "the load was too small");
    });
    // No orphans are left, and no data are missing.
    let checked = cluster.weft(["fsck"]);
    assert!(checked.contains("0 problems"), "seed {seed}: {checked}");
}
