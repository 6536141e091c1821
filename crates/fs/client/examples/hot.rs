//! Measures the hot path alone: many short rounds, compared with a plain file in the same run. Prints the minimum of
//! each.

#[path = "../tests/support/mod.rs"]
mod support;

use std::io::{IoSlice, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::time::Instant;
use support::{Reach, RealCluster, open, options};
use weft_client::Transport;
use weft_core::FileOffset;
use weft_env::real::block_on;

const OPS: u64 = 20_000;
const LEN: usize = 512;

fn main() {
    let place = |op: u64| op * 512 % 32_768;
    let folder = tempfile::tempdir_in(".").expect("a folder");
    let plain = std::fs::File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(folder.path().join("p"))
        .expect("a file");
    let (cluster, file) = block_on(async {
        let cluster = RealCluster::start_in(Reach::Unix, tempfile::tempdir_in(".").expect("a folder")).await;
        let client = cluster.client(options(Transport::Descriptor));
        let file = open(&client, "f", 65_536).await;
        (cluster, file)
    });
    let mut buf = vec![7; LEN];
    let mut least = [u64::MAX; 4];
    for _ in 0..40 {
        let t = Instant::now();
        for op in 0..OPS {
            plain.write_all_at(&buf, place(op)).expect("writes");
        }
        least[0] = least[0].min(t.elapsed().as_nanos() as u64);
        let t = Instant::now();
        for op in 0..OPS {
            block_on(file.write_at(&[IoSlice::new(&buf)], FileOffset(place(op)))).expect("writes");
        }
        least[1] = least[1].min(t.elapsed().as_nanos() as u64);
        let t = Instant::now();
        for op in 0..OPS {
            plain.read_exact_at(&mut buf, place(op)).expect("reads");
        }
        least[2] = least[2].min(t.elapsed().as_nanos() as u64);
        let t = Instant::now();
        for op in 0..OPS {
            block_on(file.read_at(&mut [IoSliceMut::new(&mut buf)], FileOffset(place(op)))).expect("reads");
        }
        least[3] = least[3].min(t.elapsed().as_nanos() as u64);
    }
    let [pw, w, pr, r] = least.map(|ns| ns / OPS);
    println!(
        "{LEN} bytes: write plain {pw} ns, leased {w} ns (+{}); read plain {pr} ns, leased {r} ns (+{})",
        w - pw,
        r - pr
    );
    drop(file);
    block_on(cluster.stop());
}
