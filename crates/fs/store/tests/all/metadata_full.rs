//! The metadata database on a device that fills up: acknowledged changes stay readable, new ones fail with a typed
//! error, and resume by themselves when there is space.

use std::ops::Bound;
use std::path::Path;
use weft_core::{ByteLen, LocalOffset, Nanos};
use weft_env::sim::{DiskFaults, Sim, SimEnv};
use weft_env::{BlockingFile, Dir, Env, File, OpenMode};
use weft_store::metadata::{
    DatabaseSpec, Engine, EngineError, Journal, JournalOptions, Scan, Snapshot, Table, Transaction, seal,
};

const LOG_LEN: ByteLen = ByteLen::from_kib(64);

async fn open(env: &SimEnv) -> Journal<SimEnv> {
    let dir = env.dir(Path::new("/")).await.expect("dir");
    let options =
        JournalOptions { log_len: LOG_LEN, cache_len: ByteLen::from_mib(1), ..JournalOptions::default() };
    let wanted = DatabaseSpec::formatting("test");
    Journal::open(env.clone(), dir, "/", &wanted, options).await.expect("opens")
}

async fn put(journal: &Journal<SimEnv>, number: u32) -> Result<(), EngineError> {
    journal.throttle().await;
    let ((), point) = journal.write(|transaction: &mut dyn Transaction| {
        transaction.put(
            Table::Inodes,
            &number.to_be_bytes(),
            seal(Table::Inodes, &number.to_be_bytes(), &[7u32; 32]),
        );
        Ok::<_, EngineError>(())
    })?;
    journal.durable(point).await
}

fn numbers(journal: &Journal<SimEnv>) -> Vec<u32> {
    journal.read(|snapshot: &dyn Snapshot| {
        let mut found = Vec::new();
        snapshot
            .scan(Table::Inodes, Bound::Unbounded, &mut |key, _| {
                found.push(u32::from_be_bytes(key.try_into().expect("four bytes")));
                Ok(Scan::Next)
            })
            .expect("everything is readable on a full device");
        found
    })
}

#[test]
fn a_full_device_rejects_changes_loses_nothing_and_recovers() {
    let mut sim = Sim::with_seed(11);
    let env = sim.node("node");
    let control = sim.control();
    let world = env.clone();
    let journal = sim.block_on(&env, async move { open(&world).await });
    // Space for both logs, the empty base and a few changes.
    let faults = DiskFaults { capacity_bytes: 1 << 20, ..DiskFaults::default() };
    control.set_disk_faults(&env, Path::new("/"), faults);

    let (world, full) = (env.clone(), journal.clone());
    let acknowledged = sim.block_on(&env, async move {
        let mut acknowledged = Vec::new();
        let refused = loop {
            let next = acknowledged.len() as u32;
            match put(&full, next).await {
                Ok(()) => acknowledged.push(next),
                Err(error) => break error,
            }
            assert!(next < 100_000, "the device never fills up");
        };
        assert!(matches!(refused, EngineError::Full { .. }), "{refused}");
        assert_eq!(numbers(&full), acknowledged);
        // The checkpoint is repeated in the background.
        world.sleep(Nanos::from_s(5)).await;
        assert_eq!(numbers(&full), acknowledged);
        assert!(matches!(put(&full, 1 << 20).await, Err(EngineError::Full { .. })));
        acknowledged
    });

    control.set_disk_faults(&env, Path::new("/"), DiskFaults::default());
    let (world, roomy) = (env.clone(), journal.clone());
    let mut expected = acknowledged;
    expected.push(1 << 21);
    let all = expected.clone();
    sim.block_on(&env, async move {
        world.sleep(Nanos::from_s(3)).await;
        put(&roomy, 1 << 21).await.expect("changes go on");
        assert_eq!(numbers(&roomy), all);
        roomy.shutdown().await.expect("ends in order");
    });
    let world = env.clone();
    sim.block_on(&env, async move { assert_eq!(numbers(&open(&world).await), expected) });
}

#[test]
fn changes_acknowledged_on_a_full_device_survive_a_loss_of_power() {
    let mut sim = Sim::with_seed(12);
    let env = sim.node("node");
    let control = sim.control();
    let world = env.clone();
    let journal = sim.block_on(&env, async move { open(&world).await });
    let faults = DiskFaults { capacity_bytes: 1 << 20, ..DiskFaults::default() };
    control.set_disk_faults(&env, Path::new("/"), faults);
    let acknowledged = sim.block_on(&env, async move {
        let mut count = 0;
        while put(&journal, count).await.is_ok() {
            count += 1;
        }
        count
    });
    control.power_cut(&env);
    control.set_disk_faults(&env, Path::new("/"), DiskFaults::default());
    let env = sim.control().restart(&env);
    let world = env.clone();
    let found = sim.block_on(&env, async move { numbers(&open(&world).await) });
    assert_eq!(found[..acknowledged as usize], (0..acknowledged).collect::<Vec<_>>());
}

async fn delete(journal: &Journal<SimEnv>, number: u32) -> Result<(), EngineError> {
    journal.throttle().await;
    let ((), point) = journal.write(|transaction: &mut dyn Transaction| {
        transaction.delete(Table::Inodes, &number.to_be_bytes());
        Ok::<_, EngineError>(())
    })?;
    journal.durable(point).await
}

#[test]
fn a_full_device_accepts_removals_and_recovers_by_itself() {
    let mut sim = Sim::with_seed(13);
    let env = sim.node("node");
    let control = sim.control();
    // A sixteenth of it is reserved.
    let small = DiskFaults { capacity_bytes: 4 << 20, ..DiskFaults::default() };
    control.set_disk_faults(&env, Path::new("/"), small);
    let world = env.clone();
    let set_faults = {
        let (control, env) = (control.clone(), env.clone());
        move |faults| control.set_disk_faults(&env, Path::new("/"), faults)
    };
    sim.block_on(&env, async move {
        let journal = open(&world).await;
        assert!(!journal.is_low());
        let mut count = 0;
        while !journal.is_low() {
            put(&journal, count).await.expect("there is space until it reports otherwise");
            count += 1;
            assert!(count < 100_000, "the device never fills up");
        }
        assert_eq!(numbers(&journal), (0..count).collect::<Vec<_>>());
        // Everything can be removed.
        for number in 0..count {
            delete(&journal, number).await.expect("removed on a full device");
        }
        assert!(numbers(&journal).is_empty());
        set_faults(DiskFaults::default());
        world.sleep(Nanos::from_s(3)).await;
        assert!(!journal.is_low(), "there is space again, without intervention");
        put(&journal, 1).await.expect("changes go on");
        assert_eq!(numbers(&journal), [1]);
        journal.shutdown().await.expect("ends in order");
    });
}

#[test]
fn a_start_on_a_full_device_uses_the_reserve() {
    let mut sim = Sim::with_seed(14);
    let env = sim.node("node");
    let control = sim.control();
    let small = DiskFaults { capacity_bytes: 4 << 20, ..DiskFaults::default() };
    control.set_disk_faults(&env, Path::new("/"), small);
    let world = env.clone();
    let count = sim.block_on(&env, async move {
        let journal = open(&world).await;
        // Other files take all that is left, and power is lost before a checkpoint applies the log.
        let file = world.dir(Path::new("/")).await.expect("dir").open("ballast", OpenMode::CREATE).await;
        let ballast = file.expect("created").blocking();
        let mut len = 0;
        while ballast.write_at(&[1; 4096], LocalOffset(len)).is_ok() {
            len += 4096;
        }
        ballast.sync().expect("synced");
        let reserve = world.dir(Path::new("/")).await.expect("dir").meta("reserve").await.expect("opens").len;
        assert_eq!(reserve, ByteLen(256 << 10), "a sixteenth");
        for number in 0..300 {
            put(&journal, number).await.expect("in the log, whose space is allocated");
        }
        300
    });
    control.power_cut(&env);
    let env = sim.control().restart(&env);
    let world = env.clone();
    sim.block_on(&env, async move {
        let journal = open(&world).await;
        assert_eq!(numbers(&journal), (0..count).collect::<Vec<_>>());
        let reserve = world.dir(Path::new("/")).await.expect("dir").meta("reserve").await.expect("opens").len;
        assert!(reserve < ByteLen(256 << 10), "{reserve}");
        delete(&journal, 0).await.expect("removed");
    });
}
