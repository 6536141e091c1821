//! Properties specific to the simulated world: repeatable runs, death of processes, power failures, a broken network.

use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weft_core::{ByteLen, LocalOffset, Nanos};
use weft_env::sim::{DiskFaults, NetworkFaults, Sim, SimConfig, SimEnv, SimFile};
use weft_env::{Address, BlockingFile, Conn, Dir, Env, File, Listener, Notify, OpenMode};

const LONG: Nanos = Nanos::from_s(5);

fn tcp(host: &str) -> Address {
    Address::Tcp(host.into(), 7000)
}

/// Answers every 8 bytes with 8 bytes, in one task for each connection.
async fn serve(env: SimEnv, address: Address) {
    let mut listener = env.listen(&address).await.expect("listen");
    while let Ok(mut conn) = listener.accept().await {
        env.spawn("connection", move || async move {
            let mut buffer = [0; 8];
            while conn.recv_exact(&mut [IoSliceMut::new(&mut buffer)]).await.is_ok() {
                let answer = u64::from_le_bytes(buffer).wrapping_add(1).to_le_bytes();
                if conn.send(&[IoSlice::new(&answer)]).await.is_err() {
                    return;
                }
            }
        })
        .expect("a task");
    }
}

async fn ask<C: Conn>(conn: &mut C, question: u64) -> std::io::Result<u64> {
    conn.send(&[IoSlice::new(&question.to_le_bytes())]).await?;
    let mut buffer = [0; 8];
    conn.recv_exact(&mut [IoSliceMut::new(&mut buffer)]).await?;
    Ok(u64::from_le_bytes(buffer))
}

fn start_server(server: &SimEnv, address: Address) {
    let env = server.clone();
    server.spawn("server", move || serve(env, address)).expect("a task");
}

async fn file(env: &SimEnv, name: &str) -> SimFile {
    env.dir(Path::new("/")).await.expect("root").open(name, OpenMode::CREATE).await.expect("file")
}

async fn put(file: &SimFile, bytes: &[u8]) {
    file.write_at(&[IoSlice::new(bytes)], LocalOffset(0)).await.expect("write");
}

async fn get(env: &SimEnv, name: &str) -> Option<Vec<u8>> {
    let dir = env.dir(Path::new("/")).await.expect("root");
    let file = dir.open(name, OpenMode::READ).await.ok()?;
    let mut bytes = vec![0; file.meta().await.expect("meta").len.0 as usize];
    file.read_at(&mut [IoSliceMut::new(&mut bytes)], LocalOffset(0)).await.expect("read");
    Some(bytes)
}

/// Runs a busy workload with faults. Returns its hash, its end and the sum of all answers.
fn busy_run(config: SimConfig) -> (u64, Nanos, u64) {
    let mut sim = Sim::new(config);
    sim.set_network_faults(NetworkFaults {
        jitter: Nanos(5000),
        losses_per_million: 1000,
        resets_per_million: 0,
    });
    let server = sim.node("server");
    start_server(&server, tcp("server"));
    let sum = Arc::new(AtomicU64::new(0));
    for client in 0..10 {
        let (env, sum) = (sim.node(&format!("client{client}")), Arc::clone(&sum));
        let inner = env.clone();
        env.spawn("client", move || async move {
            inner.sleep(Nanos(1)).await;
            let mut conn = inner.connect(&tcp("server"), LONG).await.expect("connect");
            let log = file(&inner, "log").await;
            for question in 0..100 {
                let answer = ask(&mut conn, question).await.expect("an answer");
                assert_eq!(answer, question + 1);
                sum.fetch_add(answer, Relaxed);
                put(&log, &answer.to_le_bytes()).await;
                if question % 10 == client {
                    log.sync().await.expect("sync");
                }
            }
        })
        .expect("a task");
    }
    sim.run();
    (sim.event_hash(), sim.elapsed(), sum.load(Relaxed))
}

#[test]
fn runs_are_equal_for_equal_seeds_only() {
    for shuffle in [false, true] {
        let run = |seed| busy_run(SimConfig { seed, shuffle, ..SimConfig::default() });
        let first = run(1);
        assert_eq!(first, run(1));
        let other = run(2);
        assert_ne!(first.0, other.0);
        assert_eq!((first.2, other.2), (50_500, 50_500));
    }
}

#[test]
fn simultaneous_tasks_run_in_any_order() {
    let first_of = |seed| {
        let mut sim = Sim::with_seed(seed);
        let env = sim.node("a");
        let order = Arc::new(AtomicU64::new(0));
        for task in 1..=3 {
            let (inner, order) = (env.clone(), Arc::clone(&order));
            env.spawn("task", move || async move {
                inner.sleep(Nanos(100)).await;
                order.store(order.load(Relaxed) * 10 + task, Relaxed);
            })
            .expect("a task");
        }
        sim.run();
        order.load(Relaxed)
    };
    let orders: std::collections::BTreeSet<u64> = (0..200).map(first_of).collect();
    assert_eq!(orders.into_iter().collect::<Vec<_>>(), [123, 132, 213, 231, 312, 321]);
}

#[test]
fn writes_of_a_killed_process_stay() {
    let mut sim = Sim::with_seed(3);
    let node = sim.node("a");
    let (env, control) = (node.clone(), sim.control());
    let ended = sim.try_block_on(&node, async move {
        put(&file(&env, "f").await, b"unsynced").await;
        control.kill(&env);
        env.sleep(Nanos(1)).await;
        panic!("a dead process continues");
    });
    assert!(ended.is_none());
    assert!(node.spawn("x", || async {}).is_err());
    let again = sim.restart(&node);
    let env = again.clone();
    assert_eq!(sim.block_on(&again, async move { get(&env, "f").await }), Some(b"unsynced".to_vec()));
}

#[test]
fn peers_of_a_killed_process_see_the_end() {
    let mut sim = Sim::with_seed(4);
    let (server, client) = (sim.node("server"), sim.node("client"));
    start_server(&server, tcp("server"));
    let (env, control) = (client.clone(), sim.control());
    sim.block_on(&client, async move {
        env.sleep(Nanos(1)).await;
        let mut conn = env.connect(&tcp("server"), LONG).await.expect("connect");
        assert_eq!(ask(&mut conn, 1).await.expect("answer"), 2);
        control.kill(&server);
        assert_eq!(conn.recv(&mut [0; 8]).await.expect("end of stream"), 0);
        assert_eq!(conn.send(&[IoSlice::new(b"x")]).await.expect_err("gone").kind(), ErrorKind::BrokenPipe);
        let refused = env.connect(&tcp("server"), LONG).await.err().expect("nobody");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        start_server(&control.restart(&server), tcp("server"));
        env.sleep(Nanos(1)).await;
        let mut conn = env.connect(&tcp("server"), LONG).await.expect("connect");
        assert_eq!(ask(&mut conn, 3).await.expect("answer"), 4);
    });
}

#[test]
fn peers_of_a_machine_without_power_hear_nothing() {
    let mut sim = Sim::with_seed(5);
    let (server, client) = (sim.node("server"), sim.node("client"));
    start_server(&server, tcp("server"));
    let (env, control) = (client.clone(), sim.control());
    sim.block_on(&client, async move {
        env.sleep(Nanos(1)).await;
        let mut conn = env.connect(&tcp("server"), LONG).await.expect("connect");
        let mut other = env.connect(&tcp("server"), LONG).await.expect("connect");
        other.set_timeout(None).expect("time-out");
        control.power_cut(&server);
        let before = env.now();
        assert_eq!(ask(&mut conn, 1).await.expect_err("silence").kind(), ErrorKind::TimedOut);
        assert_eq!(env.now().saturating_sub(before), LONG);
        let unreachable = env.connect(&tcp("server"), LONG).await.err().expect("nobody");
        assert_eq!(unreachable.kind(), ErrorKind::TimedOut);
        let given_up = other.recv(&mut [0; 1]).await.expect_err("given up");
        assert_eq!(given_up.kind(), ErrorKind::ConnectionReset);
        let again = control.restart(&server);
        assert!(again.now() < Nanos::from_ms(1), "the clock since boot restarts");
        start_server(&again, tcp("server"));
        env.sleep(Nanos(1)).await;
        assert_eq!(conn.recv(&mut [0; 1]).await.expect_err("reset").kind(), ErrorKind::ConnectionReset);
        let mut conn = env.connect(&tcp("server"), LONG).await.expect("connect");
        assert_eq!(ask(&mut conn, 3).await.expect("answer"), 4);
    });
}

#[test]
fn a_partition_holds_streams_back_until_it_heals() {
    let mut sim = Sim::with_seed(6);
    let (server, client) = (sim.node("server"), sim.node("client"));
    start_server(&server, tcp("server"));
    let (env, control) = (client.clone(), sim.control());
    sim.block_on(&client, async move {
        env.sleep(Nanos(1)).await;
        let mut conn = env.connect(&tcp("server"), LONG).await.expect("connect");
        control.partition(&env, &server);
        assert_eq!(ask(&mut conn, 1).await.expect_err("silence").kind(), ErrorKind::TimedOut);
        control.heal(&env, &server);
        let mut late = [0; 8];
        conn.recv_exact(&mut [IoSliceMut::new(&mut late)]).await.expect("the late answer");
        assert_eq!(u64::from_le_bytes(late), 2);
        assert_eq!(ask(&mut conn, 5).await.expect("answer"), 6);
        control.reset_connections(&server, &env);
        assert_eq!(ask(&mut conn, 7).await.expect_err("reset").kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_process_that_died_leaves_its_socket_behind() {
    let mut sim = Sim::with_seed(7);
    let node = sim.node("a");
    let address = Address::Unix("/run/s".into());
    let server = sim.process(&node, "server", 0, 0);
    start_server(&server, address.clone());
    let (env, control) = (node.clone(), sim.control());
    sim.block_on(&node, async move {
        env.sleep(Nanos(1)).await;
        assert!(env.connect(&address, LONG).await.is_ok());
        assert_eq!(env.listen(&address).await.err().expect("in use").kind(), ErrorKind::AddrInUse);
        control.kill(&server);
        let refused = env.connect(&address, LONG).await.err().expect("stale");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        env.listen(&address).await.expect("a stale name is replaced");
        assert_eq!(env.connect(&address, LONG).await.err().expect("removed").kind(), ErrorKind::NotFound);
    });
}

#[test]
fn power_is_cut_at_the_requested_sync() {
    // Three syncs of one file and one of its folder: at each of them, that sync has not taken effect.
    for count in 1..=5 {
        let mut sim = Sim::with_seed(count);
        let node = sim.node("a");
        sim.power_cut_at_sync(&node, count);
        let env = node.clone();
        let ended = sim.try_block_on(&node, async move {
            let file = file(&env, "f").await;
            put(&file, &[1; 512]).await;
            file.sync().await.expect("sync 1");
            env.dir(Path::new("/")).await.expect("root").sync("").await.expect("sync 2");
            put(&file, &[2; 512]).await;
            // A blocking call cannot stay pending: it fails, and the task ends at its next await.
            if file.blocking().sync().is_err() {
                env.sleep(Nanos(1)).await;
                panic!("a dead process continues");
            }
            put(&file, &[3; 512]).await;
            file.sync().await.expect("sync 4");
        });
        let is_cut = count <= 4;
        assert_eq!(ended.is_none(), is_cut, "{count}");
        let again = sim.restart(&node);
        let env = again.clone();
        let bytes = sim.block_on(&again, async move { get(&env, "f").await });
        let first = bytes.as_ref().map(|bytes| bytes.first().copied());
        match count {
            1 => assert!(matches!(first, None | Some(None | Some(0 | 1))), "{bytes:?}"),
            2 => assert!(matches!(first, None | Some(Some(1))), "{bytes:?}"),
            3 => assert!(matches!(first, Some(Some(1 | 2))), "{bytes:?}"),
            4 => assert!(matches!(first, Some(Some(2 | 3))), "{bytes:?}"),
            _ => assert_eq!(first, Some(Some(3))),
        }
    }
}

#[test]
fn disks_fill_up_and_fail() {
    let mut sim = Sim::with_seed(8);
    let node = sim.node("a");
    let (env, control) = (node.clone(), sim.control());
    sim.block_on(&node, async move {
        let root = Path::new("/");
        let mut faults = DiskFaults { capacity_bytes: 5 * 4096, ..DiskFaults::default() };
        control.set_disk_faults(&env, root, faults);
        let file = file(&env, "f").await;
        put(&file, &[1; 4 * 4096]).await;
        let full = file.write_at(&[IoSlice::new(&[2; 8192])], LocalOffset(4 * 4096)).await;
        assert_eq!(full.expect_err("full").kind(), ErrorKind::StorageFull);
        put(&file, &[3; 4 * 4096]).await;
        let dir = env.dir(root).await.expect("root");
        assert_eq!(dir.space().await.expect("space").free, ByteLen(4096));
        file.set_len(ByteLen(4096)).await.expect("cut");
        file.write_at(&[IoSlice::new(&[2; 8192])], LocalOffset(4096)).await.expect("room again");
        dir.remove("f").await.expect("remove");
        drop(file);
        dir.sync("").await.expect("sync");
        assert_eq!(dir.space().await.expect("space").free, ByteLen(5 * 4096));
        let file = dir.open("g", OpenMode::CREATE).await.expect("file");
        faults.read_errors_per_million = 1_000_000;
        faults.write_errors_per_million = 1_000_000;
        faults.sync_errors_per_million = 1_000_000;
        control.set_disk_faults(&env, root, faults);
        assert!(file.write_at(&[IoSlice::new(&[2; 10])], LocalOffset(0)).await.is_err());
        assert!(file.read_at(&mut [IoSliceMut::new(&mut [0; 1])], LocalOffset(0)).await.is_err());
        assert!(file.sync().await.is_err());
        assert!(dir.sync("").await.is_err());
    });
}

#[test]
fn blocking_files_queue_the_time_of_all_their_operations() {
    let mut sim = Sim::with_seed(9);
    let node = sim.node("a");
    let env = node.clone();
    sim.block_on(&node, async move {
        let file = file(&env, "f").await.blocking();
        let before = env.now();
        (0..10).for_each(|at| file.write_at(&[1; 4096], LocalOffset(at * 4096)).expect("write"));
        assert_eq!(env.now(), before);
        file.wait_for_device().await;
        // Each write: 1,000 ns, and 4,096 bytes at 10 GB/s.
        assert_eq!(env.now().0 - before.0, 10 * 1_409);
        let written = env.now();
        file.sync().expect("sync");
        file.sync().expect("sync");
        assert_eq!(env.now(), written);
        file.wait_for_device().await;
        // Two syncs, one of 40,960 bytes at 2 GB/s.
        assert_eq!(env.now().0 - written.0, 2 * 50_000 + 20_480);
        let idle_at = env.now();
        file.wait_for_device().await;
        assert_eq!(env.now(), idle_at);
    });
}

#[test]
#[should_panic(expected = "nothing can happen any more")]
fn a_deadlock_is_reported() {
    let mut sim = Sim::with_seed(10);
    let node = sim.node("a");
    let notify = node.notify();
    sim.block_on(&node, async move {
        notify.wait(notify.epoch(), None).await;
    });
}

#[test]
fn timeouts_that_never_expire_do_not_accumulate() {
    let mut sim = Sim::with_seed(11);
    let node = sim.node("a");
    let (ping, pong) = (node.notify(), node.notify());
    let (a, b) = (ping.clone(), pong.clone());
    node.spawn("other", move || async move {
        for round in 0..1000 {
            assert!(a.wait(round, Some(Nanos::from_s(100))).await);
            b.notify_all();
        }
    })
    .expect("a task");
    let env = node.clone();
    sim.block_on(&node, async move {
        for round in 0..1000 {
            env.sleep(Nanos(10)).await;
            ping.notify_all();
            assert!(pong.wait(round, Some(Nanos::from_s(100))).await);
        }
    });
    // Both tasks may be polled once more for an obsolete timeout, but not two thousand times.
    let polls = sim.polls();
    sim.run();
    assert!(sim.polls() - polls <= 2, "{}", sim.polls() - polls);
}
