//! Simulated disks drive any model by events: a waiting task is woken exactly when its request has completed.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::Arc;
use weft_core::{ByteLen, LocalOffset, Nanos};
use weft_env::device::{DeviceAction, DeviceModel, DeviceRequest, Ticket};
use weft_env::sim::{DiskFaults, Sim, SimEnv, SimFile, SimpleDisk};
use weft_env::{Dir, Env, File, OpenMode};

/// Model that completes requests in reverse order of arrival, one per microsecond, and records them all.
#[derive(Clone, Default)]
struct Reversed(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    queue: Vec<Ticket>,
    next: Option<u64>,
    seen: Vec<(u64, DeviceRequest)>,
    forgotten: u64,
}

impl DeviceModel for Reversed {
    fn submit(&mut self, now: Nanos, ticket: Ticket, request: &DeviceRequest) {
        let mut inner = self.0.lock();
        inner.queue.push(ticket);
        inner.next = inner.next.or(Some(now.0 + 1_000));
        inner.seen.push((now.0, *request));
    }

    fn next_event(&self) -> Option<Nanos> {
        self.0.lock().next.map(Nanos)
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Ticket>) {
        let mut inner = self.0.lock();
        if inner.next.is_some_and(|next| next <= now.0) {
            done.extend(inner.queue.pop());
            inner.next = (!inner.queue.is_empty()).then_some(now.0 + 1_000);
        }
    }

    fn forget(&mut self) {
        self.0.lock().forgotten += 1;
    }
}

async fn file(env: &SimEnv, name: &str) -> SimFile {
    env.dir(Path::new("/")).await.expect("root").open(name, OpenMode::CREATE).await.expect("file")
}

#[test]
fn waiting_tasks_are_woken_in_the_order_of_the_model() {
    let mut sim = Sim::with_seed(1);
    let node = sim.node("a");
    let model = Reversed::default();
    sim.set_disk_model(&node, Path::new("/"), Box::new(model.clone()));
    let env = node.clone();
    let files = sim.block_on(&node, async move {
        let mut files = Vec::new();
        for name in ["a", "b", "c", "d"] {
            files.push(file(&env, name).await);
        }
        files
    });
    let ends = Arc::new(Mutex::new(Vec::new()));
    for (index, file) in files.into_iter().enumerate() {
        let (ends, env) = (Arc::clone(&ends), node.clone());
        node.spawn("reader", move || async move {
            env.sleep(Nanos(1 + index as u64)).await;
            let start = env.now();
            file.read_at(&mut [IoSliceMut::new(&mut [0; 10])], LocalOffset(0)).await.expect("read");
            ends.lock().push((index, env.now().0 - start.0));
        })
        .expect("a task");
    }
    let polls = sim.polls();
    sim.run();
    // The first arrival determines the first completion, which the last request gets.
    assert_eq!(*ends.lock(), [(3, 997), (2, 1_998), (1, 2_999), (0, 4_000)]);
    assert_eq!(
        sim.polls() - polls,
        4 * 3,
        "a start, a sleep and a completion for each: no task is woken in vain"
    );
}

#[test]
fn cuts_and_removals_reach_the_model() {
    let mut sim = Sim::with_seed(1);
    let node = sim.node("a");
    let model = Reversed::default();
    sim.set_disk_model(&node, Path::new("/"), Box::new(model.clone()));
    let env = node.clone();
    sim.block_on(&node, async move {
        let dir = env.dir(Path::new("/")).await.expect("root");
        let (a, b) = (file(&env, "a").await, file(&env, "b").await);
        for file in [&a, &b] {
            file.write_at(&[IoSlice::new(&[1; 5000])], LocalOffset(0)).await.expect("write");
        }
        a.set_len(ByteLen(1000)).await.expect("cut");
        dir.remove("a").await.expect("removed");
        dir.rename("b", "c").await.expect("renamed");
        file(&env, "d").await;
        dir.rename("d", "c").await.expect("replaced");
    });
    sim.run();
    let seen = &model.0.lock().seen;
    let cuts: Vec<_> = seen.iter().filter(|(_, it)| it.action == DeviceAction::Cut).collect();
    let cuts: Vec<_> = cuts.iter().map(|(_, it)| (it.file, it.offset.0)).collect();
    assert_eq!(cuts, [(1, 1000), (1, 0), (2, 0)]);
}

#[test]
fn the_page_cache_is_lost_with_power_but_not_with_a_process() {
    let mut sim = Sim::with_seed(1);
    let node = sim.node("a");
    let model = Reversed::default();
    sim.set_disk_model(&node, Path::new("/"), Box::new(model.clone()));
    sim.kill(&node);
    let node = sim.restart(&node);
    assert_eq!(model.0.lock().forgotten, 0);
    sim.power_cut(&node);
    assert_eq!(model.0.lock().forgotten, 1);
    // The disk completes its earlier requests.
    let node = sim.restart(&node);
    let env = node.clone();
    sim.block_on(&node, async move { file(&env, "f").await.sync().await.expect("sync") });
}

#[test]
fn slowness_applies_to_queued_requests() {
    let mut sim = Sim::with_seed(1);
    let node = sim.node("a");
    // 1 ms and 1 ns per byte.
    sim.set_disk_model(&node, Path::new("/"), Box::new(SimpleDisk::new(Nanos::from_ms(1), 1_000_000_000)));
    let (env, control) = (node.clone(), sim.control());
    let files = sim.block_on(&node, async move {
        let files = [file(&env, "a").await, file(&env, "b").await];
        control.set_disk_faults(
            &env,
            Path::new("/"),
            DiskFaults { slowness_percent: 250, ..DiskFaults::default() },
        );
        files
    });
    let start = sim.elapsed();
    for file in files {
        node.spawn("reader", move || async move {
            file.read_at(&mut [IoSliceMut::new(&mut [0; 1000])], LocalOffset(0)).await.expect("read");
        })
        .expect("a task");
    }
    let control = sim.control();
    let env = node.clone();
    node.spawn("healer", move || async move {
        env.sleep(Nanos(4_000_000)).await;
        control.set_disk_faults(&env, Path::new("/"), DiskFaults::default());
    })
    .expect("a task");
    sim.run();
    // Two requests of 1,001,000 ns: 4 ms of the world are 1.6 ms of the model, the other 402,000 ns pass at full speed.
    assert_eq!(sim.elapsed().0 - start.0, 4_000_000 + 402_000);
}

#[test]
fn abandoned_requests_wake_no_task_and_still_complete() {
    let mut sim = Sim::with_seed(1);
    let node = sim.node("a");
    sim.set_disk_model(&node, Path::new("/"), Box::new(SimpleDisk::new(Nanos::from_ms(1), 1_000_000_000)));
    let env = node.clone();
    let other = sim.process(&node, "b", 1, 1);
    let doomed = sim.block_on(&node, async move { file(&env, "a").await });
    let reader = other.clone();
    other
        .spawn("reader", move || async move {
            let file = file(&reader, "a").await;
            let _ = file.read_at(&mut [IoSliceMut::new(&mut [0; 1000])], LocalOffset(0)).await;
            unreachable!("the process is already dead");
        })
        .expect("a task");
    sim.run_for(Nanos(500_000));
    sim.kill(&other);
    let env = node.clone();
    let took = sim.block_on(&node, async move {
        let start = env.now();
        doomed.sync().await.expect("sync");
        env.now().0 - start.0
    });
    // It waits for the request of the dead process, which arrived at 1,000 ns, and then takes 1 ms itself.
    assert_eq!(took, 1_000 + 1_001_000 - 500_000 + 1_000_000);
    let counters = sim.disk_counters(&node, Path::new("/"));
    assert_eq!((counters.reads, counters.read_bytes, counters.writes), (1, 1000, 1));
    assert_eq!(counters.busy, Nanos(1_001_000 + 1_000_000));
    assert_eq!(counters.block_sizes, BTreeMap::from([(0, 1), (1000, 1)]));
}
