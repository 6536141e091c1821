//! Random operations against the naive namespace, also with a power failure at every sync: acknowledged operations
//! survive, all others survive completely or not at all.

use crate::meta_support::cuts::power_cut_at_every_sync;
use crate::meta_support::model::{Model, Rng, answer, op, request};
use crate::meta_support::*;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use weft_core::{ByteLen, Nanos};
use weft_env::Env;
use weft_env::Notify;
use weft_env::real::{RealEnv, block_on};
use weft_env::sim::{Sim, SimEnv};
use weft_server::metadata::{Config, Service};
use weft_wire::hello::Identity;
use weft_wire::meta::*;
use weft_wire::{Errno, WireError};

#[test]
fn replies_to_random_operations_match_the_model() {
    for seed in 0..20 {
        let dir = tempfile::tempdir().expect("a directory");
        block_on(async {
            let mut service = start(&RealEnv::new(), config(dir.path().into()), &Removed::default()).await;
            let mut peer = Peer::new(&service, 1, user(0));
            peer.mkdir("top").await.expect("created");
            let (mut model, mut rng) = (Model::new(), Rng::new(seed));
            for step in 0..300u64 {
                let op = op(&mut rng);
                let handle = HandleId(step);
                let reply = peer.change(request(&op, "top", handle)).await;
                assert_eq!(answer(&reply), model.apply(&op), "seed {seed}, step {step}: {op:?}");
                if let MetaReply::Opened(_) = reply {
                    peer.close(handle, WriteSummary::default()).await.expect("open");
                }
                if step % 50 == 49 {
                    assert_eq!(peer.lines("top").await, model.lines(), "seed {seed}, step {step}");
                    assert_eq!(peer.problems().await, Vec::<String>::new(), "seed {seed}, step {step}");
                }
                if step == 150 {
                    peer.gone().await;
                    service.shutdown().await;
                    drop(service);
                    service = start(&RealEnv::new(), config(dir.path().into()), &Removed::default()).await;
                    peer = Peer::new(&service, 1, user(0));
                    peer.seq = step + 10;
                }
            }
            peer.gone().await;
            service.shutdown().await;
        });
    }
}

const CLIENTS: usize = 3;
const STEPS: u64 = 24;

fn sim_config() -> Config {
    let mut config = config(PathBuf::from("/"));
    config.options.journal.log_len = ByteLen(1500);
    config
}

/// State known to a client: its model after each step, and the numbers of acknowledged and of synced steps.
#[derive(Clone)]
struct Progress {
    states: Vec<Vec<String>>,
    answered: usize,
    synced: usize,
}

/// Runs the program of each client concurrently until all are done.
async fn run_clients<P, F>(env: &SimEnv, program_of: impl Fn(usize) -> P)
where
    P: FnOnce() -> F + Send + 'static,
    F: Future<Output = ()> + 'static,
{
    let (done, count) = (env.notify(), Arc::new(Mutex::new(0)));
    for client in 0..CLIENTS {
        let (done, count, program) = (done.clone(), count.clone(), program_of(client));
        let body = move || async move {
            program().await;
            *count.lock() += 1;
            done.notify_all();
        };
        env.spawn("client", body).expect("a task");
    }
    loop {
        let epoch = done.epoch();
        if *count.lock() == CLIENTS {
            return;
        }
        done.wait(epoch, None).await;
    }
}

/// Each client, on another host, changes a directory of its own.
async fn load(env: SimEnv, seed: u64, progress: Vec<Arc<Mutex<Progress>>>) {
    load_from(Peer::new, env, seed, progress).await;
}

/// Each client, on the host of the service, changes a directory of its own, and syncs now and then.
async fn load_on_host(env: SimEnv, seed: u64, progress: Vec<Arc<Mutex<Progress>>>) {
    load_from(Peer::on_host, env, seed, progress).await;
}

type NewPeer = fn(&Arc<Service<SimEnv>>, u128, Identity) -> Peer<SimEnv>;

async fn load_from(new_peer: NewPeer, env: SimEnv, seed: u64, progress: Vec<Arc<Mutex<Progress>>>) {
    let service = start(&env, sim_config(), &Removed::default()).await;
    run_clients(&env, |client| {
        let mut peer = new_peer(&service, client as u128, user(0));
        let (progress, env) = (progress[client].clone(), env.clone());
        move || async move {
            let top = format!("c{client}");
            let (mut model, mut rng) = (Model::new(), Rng::new(seed * 100 + client as u64));
            peer.mkdir(&top).await.expect("created");
            progress.lock().states.push(model.lines());
            progress.lock().answered += 1;
            for step in 0..STEPS {
                let op = op(&mut rng);
                let expected = model.apply(&op);
                progress.lock().states.push(model.lines());
                let handle = HandleId(step);
                let reply = peer.change(request(&op, &top, handle)).await;
                if let MetaReply::Failed(WireError { errno: Errno::EIO, detail }) = &reply {
                    assert!(detail.contains("this process is dead"), "seed {seed}: {op:?}: {detail}");
                    return;
                }
                assert_eq!(answer(&reply), expected, "seed {seed}: {op:?}");
                progress.lock().answered += 1;
                if let MetaReply::Opened(_) = reply {
                    peer.close(handle, WriteSummary::default()).await.expect("open");
                }
                env.sleep(Nanos::from_ms(1)).await;
                if step % 5 == client as u64 {
                    let answered = progress.lock().answered;
                    // It fails only in a process that is dead.
                    if peer.ask(MetaRequest::SyncNames).await == MetaReply::Done {
                        progress.lock().synced = answered;
                    }
                }
            }
        }
    })
    .await;
    service.shutdown().await;
}

fn fresh() -> Vec<Arc<Mutex<Progress>>> {
    let none = || Progress { states: vec![], answered: 0, synced: 0 };
    (0..CLIENTS).map(|_| Arc::new(Mutex::new(none()))).collect()
}

/// After a restart, checks that the state is the one that a client knows, or includes its last unacknowledged step.
async fn check(env: SimEnv, progress: Vec<Arc<Mutex<Progress>>>, note: String) {
    check_after(|progress| progress.answered, env, progress, note).await;
}

/// After a restart, checks that the state is that after a synced step, or after a later one.
async fn check_synced(env: SimEnv, progress: Vec<Arc<Mutex<Progress>>>, note: String) {
    check_after(|progress| progress.synced, env, progress, note).await;
}

/// Checks that the state of each client is that after one of its steps from number `first` on.
async fn check_after(
    first: fn(&Progress) -> usize,
    env: SimEnv,
    progress: Vec<Arc<Mutex<Progress>>>,
    note: String,
) {
    let service = start(&env, sim_config(), &Removed::default()).await;
    let peer = Peer::new(&service, 99, user(0));
    for (client, progress) in progress.iter().enumerate() {
        let progress = progress.lock().clone();
        let top = format!("c{client}");
        let first = first(&progress);
        if peer.stat(&top).await.is_err() {
            assert_eq!(first, 0, "{note}: an acknowledged directory is lost");
            continue;
        }
        let found = peer.lines(&top).await;
        if progress.states.is_empty() {
            assert_eq!(found, Vec::<String>::new(), "{note}: a new directory is not empty");
            continue;
        }
        // With a step that was not acknowledged.
        let possible = &progress.states[first.max(1) - 1..progress.states.len().min(progress.answered + 1)];
        assert!(
            possible.contains(&found),
            "{note}, client {client}: found {found:#?}\nafter {first} to {} steps {possible:#?}",
            progress.answered
        );
    }
    assert_eq!(peer.problems().await, Vec::<String>::new(), "{note}");
    peer.gone().await;
    service.shutdown().await;
}

#[test]
fn power_cut_at_every_sync_loses_no_acknowledged_operation() {
    let cuts = power_cut_at_every_sync(fresh, load, check);
    assert!(cuts > 100, "{cuts} cuts are too few to be significant");
}

#[test]
fn power_cut_at_every_sync_leaves_a_prefix_of_the_operations_on_the_host() {
    let cuts = power_cut_at_every_sync(fresh, load_on_host, check_synced);
    assert!(cuts > 100, "{cuts} cuts are too few to be significant");
}

#[test]
fn a_kill_at_any_time_loses_no_acknowledged_operation_on_the_host() {
    for seed in 0..60 {
        let mut sim = Sim::with_seed(seed);
        let node = sim.node("mds");
        let progress = fresh();
        let (env, of_clients) = (node.clone(), progress.clone());
        node.spawn("clients", move || load_on_host(env, seed, of_clients)).expect("a task");
        let mut rng = sim.rng();
        sim.run_for(Nanos::from_ms(rng.next_u64() % (STEPS * 2)));
        sim.kill(&node);
        let node = sim.restart(&node);
        sim.block_on(&node, check(node.clone(), progress, format!("seed {seed}")));
    }
}

const SHARED_NAMES: usize = 12;

/// Names that an answer declared present or absent.
type Declared = Arc<Mutex<BTreeMap<String, bool>>>;

/// All clients create the same files and remove the same others, so that most changes are refused.
async fn contend(env: SimEnv, _: u64, declared: Declared) {
    // Commits wait, so that clients see changes that are not durable yet.
    let mut config = sim_config();
    config.options.journal.commit_delay = Nanos::from_ms(1);
    let service = start(&env, config, &Removed::default()).await;
    let mut peer = Peer::new(&service, 100, user(0));
    for name in (0..SHARED_NAMES).map(|step| format!("old{step}")) {
        peer.mkdir(&name).await.expect("created");
        declared.lock().insert(name, true);
    }
    run_clients(&env, |client| {
        let mut peer = Peer::new(&service, client as u128, user(0));
        let declared = declared.clone();
        move || async move {
            for step in 0..SHARED_NAMES {
                let (new, old) = (format!("new{step}"), format!("old{step}"));
                let exclusive = OpenFlags { exclusive: true, ..CREATE };
                let created = peer.open(&new, exclusive).await.map(|_| ());
                assert!(matches!(created, Ok(()) | Err(Errno::EEXIST)), "{created:?}");
                declared.lock().insert(new, true);
                // A removal without an answer may have taken effect.
                if declared.lock().get(&old) == Some(&true) {
                    declared.lock().remove(&old);
                }
                let removed = peer.rmdir(&old).await;
                assert!(matches!(removed, Ok(()) | Err(Errno::ENOENT)), "{removed:?}");
                declared.lock().insert(old, false);
            }
        }
    })
    .await;
    service.shutdown().await;
}

async fn check_declared(env: SimEnv, declared: Declared, note: String) {
    let service = start(&env, sim_config(), &Removed::default()).await;
    let peer = Peer::new(&service, 99, user(0));
    let declared = declared.lock().clone();
    for (name, is_present) in declared {
        assert_eq!(peer.stat(&name).await.is_ok(), is_present, "{note}: {name}");
    }
    service.shutdown().await;
}

#[test]
fn power_cut_at_every_sync_contradicts_no_refusal() {
    let cuts = power_cut_at_every_sync(Declared::default, contend, check_declared);
    assert!(cuts > 100, "{cuts} cuts are too few to be significant");
}

#[test]
fn no_reply_precedes_its_sync() {
    let mut sim = Sim::with_seed(1);
    let node = sim.node("mds");
    let (env, control) = (node.clone(), sim.control());
    sim.block_on(&node, async move {
        let service = start(&env, sim_config(), &Removed::default()).await;
        let mut peer = Peer::new(&service, 1, user(0));
        for step in 0..30 {
            let before = control.sync_points(&env);
            let name = format!("f{step}");
            peer.open(&name, CREATE).await.expect("created");
            assert!(control.sync_points(&env) > before, "create {step} was answered without a sync");
            let before = control.sync_points(&env);
            peer.stat(&name).await.expect("exists");
            assert_eq!(control.sync_points(&env), before, "a read needs no sync");
        }
        peer.gone().await;
        service.shutdown().await;
    });
}
