//! Datafiles with many entries are removed in batches: the state after a removal that ended halfway.

use crate::fragments_support::*;
use std::cell::Cell;
use std::path::Path;
use weft_core::{ByteLen, Nanos};
use weft_env::Env;
use weft_env::sim::{DiskFaults, Sim, SimEnv};
use weft_store::fragments::{FragmentLog, LogSpec};

const ENTRIES: u64 = 14_000;
const STEP: u64 = 64;
const LEN: u64 = 16;

fn spec() -> LogSpec {
    LogSpec { entry_len: ByteLen(1 << 10), ..spec_of(512) }
}

fn byte(file: u64, number: u64) -> u8 {
    (file * 101 + number * 7 + number / 256) as u8 | 1
}

async fn put<E: Env>(log: &FragmentLog<E>, file: u64, number: u64) {
    log.put(key(file), at(number * STEP), &[byte(file, number); LEN as usize], dirty(1)).await.expect("room");
}

/// Returns the numbers of a datafile's remaining entries, after checking their bytes.
async fn entries<E: Env>(log: &FragmentLog<E>, file: u64) -> Vec<u64> {
    let mut numbers = Vec::new();
    for piece in log.find(key(file), range(0, 2 * ENTRIES * STEP)) {
        let (start, number) = (piece.extent().start(), piece.extent().start() / STEP);
        assert_eq!((start % STEP, piece.extent().len()), (0, LEN));
        let mut bytes = [0; LEN as usize];
        log.read(&piece, &mut bytes).await.expect("readable");
        assert_eq!(bytes, [byte(file, number); LEN as usize], "file {file}, {number}");
        numbers.push(number);
    }
    numbers
}

/// Ends the machine this long after a removal began, by a kill or a loss of power. Returns the number of entries left.
fn ended_after(time: Nanos, loses_power: bool) -> u64 {
    let cells = (Cell::new(false), Cell::new(0), Cell::new(0));
    let (is_removing, acknowledged, left) = (&cells.0, &cells.1, &cells.2);
    let mut sim = Sim::with_seed(time.0);
    let machine = node(&sim);
    let env = machine.clone();
    let life = async move {
        let (log, _) = FragmentLog::open(&env, &spec()).await.expect("created");
        for number in 0..ENTRIES {
            put(&log, 1, number).await;
            if number % 4 == 0 {
                put(&log, 2, number).await;
            }
        }
        for file in [1, 2] {
            log.sync_datafile(key(file)).await.expect("synced");
        }
        is_removing.set(true);
        env.sleep(Nanos::from_ms(5)).await;
        // Other operations continue concurrently.
        let others = async {
            for number in 0..2000 {
                put(&log, 3, number).await;
                acknowledged.set(number + 1);
                env.sleep(Nanos(20_000)).await;
            }
        };
        let (removed, ()) = futures_join(log.remove(key(1)), others).await;
        removed.expect("removed");
    };
    sim.start(&machine, "driver", life);
    while !is_removing.get() {
        sim.run_for(Nanos::from_ms(1));
    }
    // From now on, a write of the journal takes 1 ms.
    let slow = DiskFaults { slowness_percent: 100_000, ..DiskFaults::default() };
    sim.set_disk_faults(&machine, Path::new("/ssd"), slow);
    sim.run_for(Nanos(5_000_000 + time.0));
    if loses_power {
        sim.power_cut(&machine)
    } else {
        sim.kill(&machine)
    }
    sim.set_disk_faults(&machine, Path::new("/ssd"), DiskFaults::default());
    let (machine, acknowledged) = (sim.restart(&machine), acknowledged.get());
    let env = machine.clone();
    sim.block_on(&machine, async move {
        let check = async |log: &FragmentLog<SimEnv>, is_gone: bool| {
            let first = entries(log, 1).await;
            // The tail of the datafile, without a gap.
            let begin = first.first().copied().unwrap_or(ENTRIES);
            assert_eq!(first, (begin..ENTRIES).collect::<Vec<_>>());
            assert!(!is_gone || first.is_empty());
            assert_eq!(entries(log, 2).await, (0..ENTRIES).step_by(4).collect::<Vec<_>>(), "another's");
            let newer = entries(log, 3).await;
            assert!(loses_power || newer.len() as u64 >= acknowledged, "a new one's");
            first.len() as u64
        };
        let (log, recovered) = FragmentLog::open(&env, &spec()).await.expect("opens again");
        assert!(recovered.lost.is_empty());
        left.set(check(&log, false).await);
        // The caller repeats the removal.
        log.remove(key(1)).await.expect("removed");
        check(&log, true).await;
        log.close().await.expect("orderly");
        let (log, _) = FragmentLog::open(&env, &spec()).await.expect("opens again");
        check(&log, true).await;
        log.close().await.expect("orderly");
    });
    left.get()
}

/// Polls both futures alternately.
async fn futures_join<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (std::pin::pin!(a), std::pin::pin!(b));
    let (mut of_a, mut of_b) = (None, None);
    std::future::poll_fn(move |context| {
        if of_a.is_none()
            && let std::task::Poll::Ready(output) = a.as_mut().poll(context)
        {
            of_a = Some(output);
        }
        if of_b.is_none()
            && let std::task::Poll::Ready(output) = b.as_mut().poll(context)
        {
            of_b = Some(output);
        }
        if of_a.is_some() && of_b.is_some() {
            return std::task::Poll::Ready((of_a.take().expect("done"), of_b.take().expect("done")));
        }
        std::task::Poll::Pending
    })
    .await
}

#[test]
fn removals_interrupted_anywhere_can_be_repeated() {
    let mut partial = 0;
    for (number, loses_power) in (0..8).flat_map(|number| [(number, false), (number, true)]) {
        let time = Nanos(number * 2_100_000);
        let left = ended_after(time, loses_power);
        println!("{} us, power lost {loses_power}: {left} left", time.0 / 1000);
        partial += u32::from(left > 0 && left < ENTRIES);
    }
    assert!(partial > 0, "none was interrupted halfway");
}
