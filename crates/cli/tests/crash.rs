//! What was promised survives SIGKILL of any or all servers at any moment.
//!
//! Several clients write, cut, rename, remove, read and sync their own files while servers are killed and started
//! again. Each keeps a model of what was acknowledged. Only processes die here, not the machine, so everything that
//! was acknowledged must be there, synced or not; what was under way when it failed may have happened or not. That
//! what fsync promised survives loss of power is shown where disks are simulated.

mod common;

use common::load::Worker;
use common::{Embedded, Random};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const CLIENTS: u64 = 3;
const KILLS: u64 = 8;
/// Fewer are no load.
const OPERATIONS_MIN: u64 = 100;

#[test]
fn what_was_acknowledged_survives_kills_of_any_server_at_any_moment() {
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
            // Not waiting for anything: moments to kill at, spread over the load.
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
                // Long enough for impatient clients to see the outage.
                std::thread::sleep(Duration::from_millis(300 + random.below(900)));
            }
            cluster.run(["true"]);
            if workers.iter().any(std::thread::ScopedJoinHandle::is_finished) {
                break; // one has failed, and says why below
            }
        }
        // On a slow machine the kills may be over before there was a load.
        let patience = Instant::now() + Duration::from_secs(60);
        while done.load(Ordering::Relaxed) <= OPERATIONS_MIN
            && Instant::now() < patience
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
        assert!(done > OPERATIONS_MIN, "the load was a load");
    });
    // Nothing is left over, and nothing is missing.
    let checked = cluster.weft(["fsck"]);
    assert!(checked.contains("0 problems"), "seed {seed}: {checked}");
}
