//! Worlds with length-only payloads: connections and files carry such payloads beside real bytes without errors, and
//! they take the same time as bytes.

use parking_lot::Mutex;
use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::Arc;
use weft_core::{ByteLen, LocalOffset, Nanos};
use weft_env::sim::{Payload, Rng, Sim, SimConfig, SimConn, SimEnv};
use weft_env::{Address, BlockingFile, Conn, Dir, Env, File, Hollow, Listener, OpenMode};

fn world(payload: Payload) -> Sim<'static> {
    Sim::new(SimConfig { payload, shuffle: false, ..SimConfig::default() })
}

/// Payload buffer as programs have it.
enum Buffer {
    Bytes(Vec<u8>),
    Hollow(Hollow),
}

impl Buffer {
    fn new(env: &SimEnv, len: usize) -> Self {
        env.hollow(len).map_or_else(|| Self::Bytes(vec![0; len]), Self::Hollow)
    }

    fn bytes(&mut self) -> &mut [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Hollow(bytes) => bytes,
        }
    }
}

async fn accept(env: &SimEnv) -> SimConn {
    env.listen(&Address::Tcp("any".into(), 7)).await.expect("listen").accept().await.expect("accept")
}

/// Sends messages, each with a head of 16 bytes and a payload, and checks the heads. Returns the times of arrival.
fn messages(payload: Payload, seed: u64) -> Vec<Nanos> {
    let mut sim = world(payload);
    let (a, b) = (sim.node("a"), sim.node("b"));
    let times = Arc::new(Mutex::new(Vec::new()));
    let lens: Vec<usize> = {
        let mut rng = Rng::new(seed);
        (0..40).map(|_| [0, 1, 4000, 65_536, 2_000_000][rng.below(5) as usize]).collect()
    };
    let (to_send, seen, control) = (lens.clone(), Arc::clone(&times), sim.control());
    sim.start(&b.clone(), "receiver", async move {
        let mut conn = accept(&b).await;
        for (number, len) in lens.into_iter().enumerate() {
            let mut head = [0; 16];
            // A reader that reads ahead takes all available bytes up to the size of its buffer.
            let mut inbox = [0; 1000];
            let mut got = 0;
            while got < 16 {
                got += conn.recv(&mut inbox[got..]).await.expect("a head");
            }
            head.copy_from_slice(&inbox[..16]);
            assert_eq!(head, [number as u8 + 1; 16]);
            let ahead = got - 16;
            assert!(ahead <= len && (payload == Payload::Bytes || ahead == 0), "{ahead} read ahead");
            let mut buffer = Buffer::new(&b, len - ahead);
            let (first, second) = buffer.bytes().split_at_mut((len - ahead) / 3);
            let bufs = &mut [IoSliceMut::new(first), IoSliceMut::new(second)];
            conn.recv_exact(bufs).await.expect("a payload");
            seen.lock().push(control.elapsed());
            conn.send(&[IoSlice::new(&[1])]).await.expect("an answer");
        }
    });
    sim.block_on(&a.clone(), async move {
        a.sleep(Nanos(1)).await;
        let mut conn = a.connect(&Address::Tcp("b".into(), 7), Nanos::from_s(1)).await.expect("connect");
        for (number, len) in to_send.into_iter().enumerate() {
            let mut buffer = Buffer::new(&a, len);
            let (first, second) = buffer.bytes().split_at(len / 2);
            let head = [number as u8 + 1; 16];
            let parts = [&head[..5], &head[5..], first, second].map(IoSlice::new);
            conn.send(&parts).await.expect("sent");
            conn.recv_exact(&mut [IoSliceMut::new(&mut [0])]).await.expect("answered");
        }
    });
    let times = times.lock().clone();
    assert_eq!(times.len(), 40);
    times
}

#[test]
fn hollow_payloads_take_the_time_of_bytes_and_heads_stay_whole() {
    for seed in 0..20 {
        assert_eq!(messages(Payload::Lengths, seed), messages(Payload::Bytes, seed), "seed {seed}");
    }
}

#[test]
fn real_bytes_behind_hollow_ones_and_real_readers_of_hollow_ones() {
    let mut sim = world(Payload::Lengths);
    let (a, b) = (sim.node("a"), sim.node("b"));
    let env = b.clone();
    sim.start(&b, "receiver", async move {
        let mut conn = accept(&env).await;
        let mut out = vec![9; 3 + 5000 + 4];
        conn.recv_exact(&mut [IoSliceMut::new(&mut out)]).await.expect("all");
        assert_eq!((&out[..3], &out[5003..]), (&b"abc"[..], &b"defg"[..]));
        assert!(out[3..5003].iter().all(|&byte| byte == 0), "hollow bytes read as zeros");
        // Bytes received into a hollow buffer are discarded.
        let mut hollow = env.hollow(10).expect("a hollow buffer");
        conn.recv_exact(&mut [IoSliceMut::new(&mut hollow)]).await.expect("all");
        conn.send(&[IoSlice::new(b"!")]).await.expect("sent");
    });
    sim.block_on(&a.clone(), async move {
        a.sleep(Nanos(1)).await;
        let mut conn = a.connect(&Address::Tcp("b".into(), 7), Nanos::from_s(1)).await.expect("connect");
        let hollow = a.hollow(5000).expect("a hollow buffer");
        let parts = [IoSlice::new(b"abc"), IoSlice::new(&hollow), IoSlice::new(b"defg")];
        conn.send(&parts).await.expect("sent");
        conn.send(&[IoSlice::new(&[7; 10])]).await.expect("sent");
        conn.recv_exact(&mut [IoSliceMut::new(&mut [0])]).await.expect("answered");
    });
}

#[test]
fn files_below_a_folder_keep_lengths_and_others_bytes() {
    let mut sim = world(Payload::Lengths);
    let node = sim.node("a");
    sim.keep_lengths(&node, Path::new("/"), "objects", &[".map"]);
    let env = node.clone();
    sim.block_on(&node, async move {
        let dir = env.dir(Path::new("/")).await.expect("root");
        dir.make_dir("objects").await.expect("folder");
        let long = env.hollow(1 << 30).expect("a hollow buffer");
        let hollow = dir.open("objects/f", OpenMode::CREATE).await.expect("file");
        hollow.write_at(&[IoSlice::new(&long)], LocalOffset(5)).await.expect("a gigabyte");
        assert_eq!(hollow.meta().await.expect("meta").len, ByteLen((1 << 30) + 5));
        assert_eq!(hollow.meta().await.expect("meta").blocks_512, ((1 << 30) + 4096) / 512);
        let mut out = [7; 10];
        let bufs = &mut [IoSliceMut::new(&mut out)];
        assert_eq!(hollow.read_at(bufs, LocalOffset(1 << 30)).await.expect("read"), 5);
        assert_eq!(out, [0, 0, 0, 0, 0, 7, 7, 7, 7, 7]);
        hollow.set_len(ByteLen(3)).await.expect("cut");
        assert_eq!(hollow.blocking().len().expect("len"), ByteLen(3));
        let before = env.now();
        hollow.sync().await.expect("sync");
        assert_eq!(env.now().0 - before.0, 50_000 + (1 << 30) / 2, "a gigabyte at 2 GB/s");
        let real = dir.open("f", OpenMode::CREATE).await.expect("file");
        real.write_at(&[IoSlice::new(b"abc")], LocalOffset(0)).await.expect("write");
        let excepted = dir.open("objects/f.map", OpenMode::CREATE).await.expect("file");
        excepted.write_at(&[IoSlice::new(b"abc")], LocalOffset(0)).await.expect("write");
        for file in [real, excepted] {
            let mut out = [0; 3];
            file.read_at(&mut [IoSliceMut::new(&mut out)], LocalOffset(0)).await.expect("read");
            assert_eq!(&out, b"abc");
        }
    });
}

#[test]
fn a_world_of_bytes_has_no_hollow_buffers() {
    let sim = world(Payload::Bytes);
    assert!(sim.node("a").hollow(10).is_none());
}
