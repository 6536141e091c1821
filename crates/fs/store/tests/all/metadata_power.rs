//! A metadata database whose machine loses power, or whose process is killed, at any time: what is left is a prefix of
//! the changes, with everything that was durable, or with everything that was written.

use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use weft_core::{ByteLen, Nanos};
use weft_env::Env;
use weft_env::sim::{Sim, SimEnv};
use weft_store::metadata::{
    DatabaseSpec, Engine, EngineError, Journal, JournalOptions, OpenError, Point, Snapshot, Table,
    Transaction, seal,
};

async fn open(env: &SimEnv) -> Result<Journal<SimEnv>, OpenError> {
    let dir = env.dir(Path::new("/")).await?;
    // Short logs, so that checkpoints and changes of the log are frequent.
    let options = JournalOptions { log_len: ByteLen(4000), ..JournalOptions::default() };
    let wanted = DatabaseSpec::formatting("test");
    Journal::open(env.clone(), dir, "/", &wanted, options).await
}

/// Value of a change. It has one of two lengths, so that frames left by a loss of power often fit behind new ones.
fn value(draw: u64) -> ([u8; 8], Vec<u8>) {
    (draw.to_le_bytes(), vec![draw as u8; (draw >> 8) as usize % 2 * 100])
}

/// Makes change `number`. Its value tells it from a change that had the same number before a loss of power.
fn put(journal: &Journal<SimEnv>, number: u32, draw: u64) -> Result<Point, EngineError> {
    let key = number.to_be_bytes();
    let value = value(draw);
    let change = |t: &mut dyn Transaction| {
        t.put(Table::Inodes, &key, seal(Table::Inodes, &key, &value));
        Ok::<_, EngineError>(())
    };
    Ok(journal.write(change)?.1)
}

/// Changes of a client, numbered from 1, and the replies to them.
#[derive(Default)]
struct Told {
    values: Mutex<Vec<u64>>,
    written: AtomicU32,
    durable: AtomicU32,
}

/// Makes a change for each of `draws`, and asks for some of them to be written or durable. Fails only if the process
/// dies meanwhile.
async fn load(env: SimEnv, told: Arc<Told>, draws: Vec<u64>) -> Result<(), OpenError> {
    let journal = open(&env).await?;
    for draw in draws {
        let number = {
            let mut values = told.values.lock();
            values.push(draw);
            values.len() as u32
        };
        let point = put(&journal, number, draw)?;
        match draw % 8 {
            0..4 => {
                journal.written(point).await?;
                told.written.store(number, SeqCst);
            }
            4 => {
                journal.durable(point).await?;
                told.durable.store(number, SeqCst);
            }
            5 => env.sleep(Nanos::from_ms(draw >> 16 & 0xfff)).await,
            _ => {}
        }
    }
    // The power cut or the kill ends it.
    env.sleep(Nanos::from_s(1_000_000)).await;
    Ok(())
}

/// Number of changes that are left; they must be the first ones.
async fn left(env: SimEnv, values: Vec<u64>) -> u32 {
    let journal = open(&env).await.expect("opens");
    let made = values.len() as u32;
    let found = |number: u32| {
        journal.read(|s: &dyn Snapshot| {
            let key = number.to_be_bytes();
            let found = s.get(Table::Inodes, &key).expect("readable");
            let found: Option<([u8; 8], Vec<u8>)> =
                found.map(|found| found.open(Table::Inodes, &key).expect("undamaged"));
            found
                .inspect(|found| assert_eq!(*found, value(values[number as usize - 1]), "change {number}"))
                .is_some()
        })
    };
    let left = (1..=made).take_while(|number| found(*number)).count() as u32;
    let later: Vec<u32> = (left + 1..=made).filter(|number| found(*number)).collect();
    assert_eq!(later, [], "changes after {left} without that one");
    left
}

#[test]
fn a_prefix_with_all_durable_changes_survives_a_loss_of_power_and_all_written_ones_a_kill() {
    let mut lost_written = 0;
    for seed in 0..150 {
        let mut sim = Sim::with_seed(seed);
        let mut node = sim.node("mds");
        let mut rng = sim.rng();
        let told = Arc::new(Told::default());
        for life in 0..6 {
            let count = 1 + rng.next_u64() as u32 % 60;
            let draws = (0..count).map(|_| rng.next_u64()).collect();
            let is_kill = rng.next_u64().is_multiple_of(3);
            if !is_kill && rng.next_u64().is_multiple_of(2) {
                let cut = sim.sync_points(&node) + 1 + rng.next_u64() % 12;
                sim.power_cut_at_sync(&node, cut);
            }
            let (env, told_here) = (node.clone(), told.clone());
            let client = move || async move {
                let error = load(env, told_here, draws).await.expect_err("the process dies first");
                assert!(error.to_string().contains("this process is dead"), "{error}");
            };
            node.spawn("client", client).expect("a task");
            sim.run_for(Nanos::from_ms(1 + rng.next_u64() % 40_000));
            match is_kill {
                true => sim.kill(&node),
                false => sim.power_cut(&node),
            }
            node = sim.restart(&node);
            let values = told.values.lock().clone();
            let found = sim.block_on(&node, left(node.clone(), values));
            let about = format!("seed {seed}, life {life}, killed: {is_kill}");
            let (written, durable) = (told.written.load(SeqCst), told.durable.load(SeqCst));
            assert!(found >= durable, "{about}: {found} of {durable} durable changes");
            if is_kill {
                assert!(found >= written, "{about}: {found} of {written} written changes");
            }
            lost_written += written.saturating_sub(found);
            told.values.lock().truncate(found as usize);
            told.written.fetch_min(found, SeqCst);
            told.durable.fetch_min(found, SeqCst);
            node = sim.restart(&node);
        }
    }
    assert!(lost_written > 0, "no loss of power hit a change that was written only");
}
