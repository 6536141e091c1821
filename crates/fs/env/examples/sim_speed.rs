//! Measures the speed of the simulated world: `cargo run --release -p weft-env --example sim_speed`.

use std::io::{IoSlice, IoSliceMut};
use std::time::Instant;
use weft_core::Nanos;
use weft_env::sim::{Sim, SimConfig, SimEnv};
use weft_env::{Address, Conn, Env, Listener, Notify};

const LONG: Nanos = Nanos::from_s(60);

fn report(what: &str, sim: &Sim, start: Instant, requests: u64) {
    let seconds = start.elapsed().as_secs_f64();
    let polls = sim.polls() as f64 / seconds / 1e6;
    let requests = requests as f64 / seconds / 1e6;
    println!("{what}: {polls:.2} M polls/s, {requests:.2} M requests/s, hash {:016x}", sim.event_hash());
}

fn sleepers(tasks: u64, rounds: u64) {
    let mut sim = Sim::new(SimConfig { shuffle: false, ..SimConfig::default() });
    let node = sim.node("a");
    for task in 0..tasks {
        let env = node.clone();
        let body = move || async move {
            for round in 0..rounds {
                env.sleep(Nanos(1000 + (task * 7919 + round * 104_729) % 5000)).await;
            }
        };
        node.spawn("sleeper", body).expect("a task");
    }
    let start = Instant::now();
    sim.run();
    report(&format!("{tasks} tasks that sleep"), &sim, start, tasks * rounds);
}

fn notifiers(rounds: u64) {
    let mut sim = Sim::new(SimConfig { shuffle: false, ..SimConfig::default() });
    let node = sim.node("a");
    let (ping, pong) = (node.notify(), node.notify());
    let (a, b) = (ping.clone(), pong.clone());
    let first = move || async move {
        for round in 0..rounds {
            a.notify_all();
            b.wait(round, Some(LONG)).await;
        }
    };
    let second = move || async move {
        for round in 0..rounds {
            ping.wait(round, Some(LONG)).await;
            pong.notify_all();
        }
    };
    node.spawn("ping", first).expect("a task");
    node.spawn("pong", second).expect("a task");
    let start = Instant::now();
    sim.run();
    report("two tasks that notify", &sim, start, rounds);
}

async fn serve(env: SimEnv) {
    let mut listener = env.listen(&Address::Tcp("any".into(), 7)).await.expect("listen");
    loop {
        let mut conn = listener.accept().await.expect("accept");
        let body = move || async move {
            let mut buffer = [0; 64];
            while conn.recv_exact(&mut [IoSliceMut::new(&mut buffer)]).await.is_ok() {
                conn.send(&[IoSlice::new(&buffer)]).await.expect("send");
            }
        };
        env.spawn("connection", body).expect("a task");
    }
}

fn messages(servers: u64, clients: u64, rounds: u64) {
    let mut sim = Sim::new(SimConfig { shuffle: false, ..SimConfig::default() });
    for server in 0..servers {
        let node = sim.node(&format!("server{server}"));
        let env = node.clone();
        node.spawn("server", move || serve(env)).expect("a task");
    }
    for client in 0..clients {
        let node = sim.node(&format!("client{client}"));
        let env = node.clone();
        let body = move || async move {
            env.sleep(Nanos(1)).await;
            let address = Address::Tcp(format!("server{}", client % servers), 7);
            let mut conn = env.connect(&address, LONG).await.expect("connect");
            let mut buffer = [0; 64];
            for _ in 0..rounds {
                conn.send(&[IoSlice::new(&[1; 64])]).await.expect("send");
                conn.recv_exact(&mut [IoSliceMut::new(&mut buffer)]).await.expect("answer");
            }
        };
        node.spawn("client", body).expect("a task");
    }
    let start = Instant::now();
    sim.run();
    report(&format!("{clients} clients and {servers} servers"), &sim, start, clients * rounds);
}

fn main() {
    sleepers(100, 20_000);
    sleepers(10_000, 200);
    notifiers(1_000_000);
    messages(4, 16, 30_000);
    messages(64, 4096, 100);
}
