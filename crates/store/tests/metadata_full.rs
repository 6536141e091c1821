//! The metadata database on a device that fills up: what was acknowledged stays readable, changes are refused by a
//! typed error, and go on by themselves when there is room.

use std::ops::Bound;
use std::path::Path;
use weft_core::{ByteLen, Nanos};
use weft_env::Env;
use weft_env::sim::{DiskFaults, Sim, SimEnv};
use weft_store::metadata::{
    Engine, EngineError, Identity, Journal, JournalOptions, Scan, Snapshot, Table, Transaction, seal,
};

const LOG_LEN: ByteLen = ByteLen::from_kib(64);

async fn open(env: &SimEnv) -> Journal<SimEnv> {
    let dir = env.dir(Path::new("/")).await.expect("dir");
    let options =
        JournalOptions { log_len: LOG_LEN, cache_len: ByteLen::from_mib(1), ..JournalOptions::default() };
    let identity = Identity { cluster: "test".into() };
    Journal::open(env.clone(), dir, "/", &identity, options).await.expect("opens")
}

async fn put(journal: &Journal<SimEnv>, number: u32) -> Result<(), EngineError> {
    journal.room().await;
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
fn a_full_device_refuses_changes_loses_nothing_and_recovers() {
    let mut sim = Sim::with_seed(11);
    let env = sim.node("node");
    let control = sim.control();
    let world = env.clone();
    let journal = sim.block_on(&env, async move { open(&world).await });
    // Both logs and the empty base fit, and a little of what is to come.
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
        // It is tried again and again meanwhile.
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
fn what_a_full_device_acknowledged_survives_loss_of_power() {
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
