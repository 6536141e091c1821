//! The simulated network delays, loses, reorders and resets messages, but only as real networks may.

use parking_lot::Mutex;
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::sync::Arc;
use weft_core::Nanos;
use weft_env::sim::{NetworkFaults, Sim, SimConn, SimEnv, SimpleNetwork};
use weft_env::{Address, Conn, Env, Listener};

const LONG: Nanos = Nanos::from_s(100);
const MESSAGES: u8 = 50;

/// Returns a network whose times are easy to add up: 1 ms, and 1 ns per byte.
fn world(seed: u64) -> (Sim<'static>, SimEnv, SimEnv) {
    let sim = Sim::with_seed(seed);
    sim.set_network(Box::new(SimpleNetwork::new(Nanos::from_ms(1), 1_000_000_000)));
    let (a, b) = (sim.node("a"), sim.node("b"));
    (sim, a, b)
}

async fn connect(env: &SimEnv) -> SimConn {
    env.sleep(Nanos(1)).await;
    env.connect(&Address::Tcp("b".into(), 7), LONG).await.expect("connect")
}

async fn accept(env: &SimEnv) -> SimConn {
    env.listen(&Address::Tcp("any".into(), 7)).await.expect("listen").accept().await.expect("accept")
}

/// Sends numbered messages of `len` bytes at intervals of `pause` on one connection. Returns the arrivals in order, and
/// how the connection ended.
fn stream(seed: u64, len: usize, pause: Nanos, faults: NetworkFaults) -> (Vec<(u8, u64)>, Option<ErrorKind>) {
    let (mut sim, a, b) = world(seed);
    let seen = Arc::new(Mutex::new((Vec::new(), None)));
    let (out, control) = (Arc::clone(&seen), sim.control());
    let receiver = b.clone();
    sim.start(&b, "receiver", async move {
        let mut conn = accept(&receiver).await;
        let mut message = vec![0; len];
        loop {
            match conn.recv_exact(&mut [IoSliceMut::new(&mut message)]).await {
                Ok(()) => {
                    assert!(message.iter().all(|&byte| byte == message[0]), "a message arrived in pieces");
                    out.lock().0.push((message[0], control.elapsed().0));
                }
                Err(error) => {
                    out.lock().1 = Some(error.kind());
                    return;
                }
            }
        }
    });
    let control = sim.control();
    let sender = a.clone();
    sim.block_on(&a, async move {
        let mut conn = connect(&sender).await;
        control.set_network_faults(faults);
        let start = control.elapsed().0;
        for number in 0..MESSAGES {
            if conn.send(&[IoSlice::new(&vec![number; len])]).await.is_err() {
                break;
            }
            sender.sleep(pause).await;
        }
        assert!(control.elapsed().0 - start < 60_000_000_000);
        sender.sleep(Nanos::from_s(10)).await;
    });
    sim.run();
    let (times, end) = std::mem::take(&mut *seen.lock());
    (times, end)
}

#[test]
fn without_faults_a_message_takes_the_latency_and_its_bytes() {
    let (times, end) = stream(1, 1000, Nanos::from_ms(10), NetworkFaults::default());
    assert_eq!(times.len(), usize::from(MESSAGES));
    assert!(times.windows(2).all(|pair| pair[1].1 - pair[0].1 == 10_000_000), "one every 10 ms");
    // 1 ns before connecting, a trip in each direction, then 1 ms and 1000 bytes.
    assert_eq!(times[0], (0, 1 + 2_000_000 + 1_000_000 + 1_000));
    assert_eq!(end, Some(ErrorKind::UnexpectedEof));
}

#[test]
fn two_senders_share_the_link_of_the_receiver() {
    let mut sim = Sim::with_seed(1);
    sim.set_network(Box::new(SimpleNetwork::new(Nanos::from_ms(1), 1_000_000_000)));
    let to = sim.node("b");
    let ends = Arc::new(Mutex::new(Vec::new()));
    let (env, out, control) = (to.clone(), Arc::clone(&ends), sim.control());
    sim.start(&to, "receiver", async move {
        let mut listener = env.listen(&Address::Tcp("any".into(), 7)).await.expect("listen");
        for _ in 0..2 {
            let (mut conn, out, control) =
                (listener.accept().await.expect("accept"), Arc::clone(&out), control.clone());
            let body = move || async move {
                conn.recv_exact(&mut [IoSliceMut::new(&mut [0; 100_000])]).await.expect("all");
                out.lock().push(control.elapsed().0);
            };
            env.spawn("receiver", body).expect("a task");
        }
    });
    for name in ["x", "y"] {
        let from = sim.node(name);
        let env = from.clone();
        sim.start(&from, "sender", async move {
            let mut conn = connect(&env).await;
            conn.send(&[IoSlice::new(&[0; 100_000])]).await.expect("sent");
            env.sleep(Nanos::from_s(1)).await;
        });
    }
    sim.run();
    // Both send at once over separate links; the receiver's link carries one message after the other.
    let first = 1 + 2_000_000 + 1_000_000 + 100_000;
    assert_eq!(*ends.lock(), [first, first + 100_000]);
}

#[test]
fn a_lost_segment_delays_all_that_follow() {
    let faults = NetworkFaults { losses_per_million: 100_000, ..NetworkFaults::default() };
    let mut late = 0;
    for seed in 0..20 {
        let (times, _) = stream(seed, 100, Nanos::from_ms(10), faults);
        let numbers: Vec<u8> = times.iter().map(|(number, _)| *number).collect();
        assert!(numbers.iter().copied().eq(0..MESSAGES), "seed {seed}: a stream stays in order: {numbers:?}");
        for (number, at) in times {
            let sent = 1 + 2_000_000 + u64::from(number) * 10_000_000;
            let took = at - sent;
            assert!(took >= 1_000_100, "seed {seed}");
            assert!(
                took <= 1_000_100 + 200_000_000,
                "seed {seed}: {took} ns: retransmitted after 200 ms at most once"
            );
            late += u32::from(took > 1_000_100);
        }
    }
    assert!(late > 200, "{late} of 1000 were late");
}

#[test]
fn jitter_lets_connections_overtake_each_other_but_not_a_stream_itself() {
    let faults = NetworkFaults { jitter: Nanos::from_ms(5), ..NetworkFaults::default() };
    let (times, _) = stream(3, 100, Nanos::from_ms(1), faults);
    assert!(times.iter().map(|(number, _)| *number).eq(0..MESSAGES));
    assert!(times.iter().any(|&(number, at)| at > 1 + 2_000_000 + u64::from(number) * 1_000_000 + 2_000_000));
    // On two connections, messages do not always arrive in the order of sending.
    let mut overtaken = 0;
    for seed in 0..50 {
        let (mut sim, a, b) = world(seed);
        let order = Arc::new(Mutex::new(Vec::new()));
        let (env, out) = (b.clone(), Arc::clone(&order));
        sim.start(&b, "receiver", async move {
            let mut listener = env.listen(&Address::Tcp("any".into(), 7)).await.expect("listen");
            for _ in 0..2 {
                let (mut conn, out) = (listener.accept().await.expect("accept"), Arc::clone(&out));
                let body = move || async move {
                    let mut byte = [0];
                    conn.recv_exact(&mut [IoSliceMut::new(&mut byte)]).await.expect("a byte");
                    out.lock().push(byte[0]);
                };
                env.spawn("receiver", body).expect("a task");
            }
        });
        let (env, control) = (a.clone(), sim.control());
        sim.block_on(&a, async move {
            let (mut first, mut second) = (connect(&env).await, connect(&env).await);
            control.set_network_faults(faults);
            first.send(&[IoSlice::new(&[1])]).await.expect("sent");
            second.send(&[IoSlice::new(&[2])]).await.expect("sent");
            env.sleep(Nanos::from_s(1)).await;
        });
        overtaken += u32::from(*order.lock() == [2, 1]);
    }
    assert!((10..40).contains(&overtaken), "{overtaken} of 50");
}

#[test]
fn a_reset_loses_data_in_flight_and_both_ends_detect_it() {
    let faults = NetworkFaults { resets_per_million: 50_000, ..NetworkFaults::default() };
    let mut resets = 0;
    for seed in 0..40 {
        let (times, end) = stream(seed, 100, Nanos::from_ms(1), faults);
        let numbers = times.iter().map(|(number, _)| *number);
        assert!(numbers.eq(0..times.len() as u8), "seed {seed}: a gap");
        match end {
            Some(ErrorKind::ConnectionReset) => resets += 1,
            end => assert_eq!((times.len(), end), (usize::from(MESSAGES), Some(ErrorKind::UnexpectedEof))),
        }
    }
    assert!((25..40).contains(&resets), "{resets} of 40 were reset");
}

#[test]
fn processes_of_one_machine_have_no_network_between_them() {
    let mut sim = Sim::with_seed(1);
    let a = sim.node("a");
    let other = sim.process(&a, "other", 1, 1);
    sim.set_network_faults(NetworkFaults {
        losses_per_million: 1_000_000,
        jitter: Nanos::from_s(1),
        resets_per_million: 1_000_000,
    });
    let env = other.clone();
    sim.start(&other, "receiver", async move {
        let mut conn = accept(&env).await;
        conn.recv_exact(&mut [IoSliceMut::new(&mut [0; 10])]).await.expect("all");
        conn.send(&[IoSlice::new(&[0; 10])]).await.expect("sent");
    });
    let env = a.clone();
    sim.block_on(&a, async move {
        env.sleep(Nanos(1)).await;
        let mut conn = env.connect(&Address::Tcp("localhost".into(), 7), LONG).await.expect("connect");
        conn.send(&[IoSlice::new(&[0; 10])]).await.expect("sent");
        conn.recv_exact(&mut [IoSliceMut::new(&mut [0; 10])]).await.expect("all");
        assert!(env.now().0 > 0);
    });
    assert!(sim.elapsed() < Nanos::from_ms(1));
}
