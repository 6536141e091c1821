//! Measures the cost of an operation by transport: time, messages and system calls, compared with a plain file.
//!
//! `cargo run --release -p weft-client --example costs`

#[path = "../tests/support/mod.rs"]
mod support;

use std::io::{IoSlice, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::time::Instant;
use support::{Reach, RealCluster, open, options};
use weft_client::{ClientOptions, Transport};
use weft_core::FileOffset;
use weft_env::real::block_on;

/// Length in bytes of the file area that a round covers.
const AREA: u64 = 64 << 20;

struct Cost {
    write_ns: f64,
    read_ns: f64,
}

fn plain(path: &std::path::Path, len: usize) -> Cost {
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .expect("a file");
    let mut buf = vec![7; len];
    let ops = ops(len);
    let mut cost = Cost { write_ns: f64::MAX, read_ns: f64::MAX };
    for _ in 0..3 {
        let start = Instant::now();
        for op in 0..ops {
            file.write_all_at(&buf, place(op, len)).expect("writes");
        }
        cost.write_ns = cost.write_ns.min(start.elapsed().as_nanos() as f64 / ops as f64);
        let start = Instant::now();
        for op in 0..ops {
            file.read_exact_at(&mut buf, place(op, len)).expect("reads");
        }
        cost.read_ns = cost.read_ns.min(start.elapsed().as_nanos() as f64 / ops as f64);
    }
    cost
}

fn ops(len: usize) -> u64 {
    (256 << 20) / (len as u64).max(4096)
}

fn place(op: u64, len: usize) -> u64 {
    op * len as u64 % (AREA - len as u64)
}

fn main() {
    block_on(async {
        println!(
            "{:>8} {:>12} {:>11} {:>11} {:>11} {:>11} {:>9} {:>9}",
            "bytes", "transport", "write ns", "over plain", "read ns", "over plain", "msg/write", "msg/read"
        );
        for len in [512, 4096, 47_008, 65_536, 1 << 20] {
            let folder = tempfile::tempdir_in(".").expect("a folder");
            let base = plain(&folder.path().join("plain"), len);
            println!("{len:>8} {:>12} {:>11.0} {:>11} {:>11.0}", "plain", base.write_ns, "", base.read_ns);
            for (name, reach, transport, shared) in [
                ("descriptor", Reach::Unix, Transport::Descriptor, true),
                ("unix+shared", Reach::Unix, Transport::Socket, true),
                ("unix", Reach::Unix, Transport::Socket, false),
                ("tcp+xxh3", Reach::Tcp, Transport::Socket, false),
            ] {
                let cluster =
                    RealCluster::start_in(reach, tempfile::tempdir_in(".").expect("a folder")).await;
                let mut options = options(transport);
                if !shared {
                    options = ClientOptions { shared_payload_max: 0, ..options };
                }
                let client = cluster.client(options);
                let file = open(&client, "f", 65_536).await;
                let mut buf = vec![7; len];
                let ops = if transport == Transport::Descriptor { ops(len) } else { ops(len).min(20_000) };
                let mut cost = Cost { write_ns: f64::MAX, read_ns: f64::MAX };
                let (mut wrote, mut read) = (0, 0);
                for _ in 0..3 {
                    let (before, start) = (client.counts(), Instant::now());
                    for op in 0..ops {
                        let count = file.write_at(&[IoSlice::new(&buf)], FileOffset(place(op, len))).await;
                        assert_eq!(count.expect("writes"), len);
                    }
                    cost.write_ns = cost.write_ns.min(start.elapsed().as_nanos() as f64 / ops as f64);
                    let (middle, start) = (client.counts(), Instant::now());
                    for op in 0..ops {
                        let count =
                            file.read_at(&mut [IoSliceMut::new(&mut buf)], FileOffset(place(op, len))).await;
                        assert_eq!(count.expect("reads"), len);
                    }
                    cost.read_ns = cost.read_ns.min(start.elapsed().as_nanos() as f64 / ops as f64);
                    wrote = middle.data_messages - before.data_messages;
                    read = client.counts().data_messages - middle.data_messages;
                }
                println!(
                    "{len:>8} {name:>12} {:>11.0} {:>+11.0} {:>11.0} {:>+11.0} {:>9.2} {:>9.2}",
                    cost.write_ns,
                    cost.write_ns - base.write_ns,
                    cost.read_ns,
                    cost.read_ns - base.read_ns,
                    wrote as f64 / ops as f64,
                    read as f64 / ops as f64
                );
                drop(file);
                drop(client);
                cluster.stop().await;
            }
        }
    });
}
