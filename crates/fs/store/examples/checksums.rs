//! The cost of checksums at rest: alternates the same writes and reads on a target with and without them.
//!
//! `cargo run --release -p weft-store --example checksums -- DIRECTORY`

use std::time::Instant;
use weft_core::{ByteLen, FileId, Integrity, LocalOffset, ObjectId, TargetId};
use weft_env::real::{RealEnv, block_on};
use weft_store::datafile::DatafileKey;
use weft_store::target::{DatafileFormat, Module, Target, TargetSpec};

const BYTES: u64 = 64 << 20;
const ROUNDS: u64 = 5;

fn main() {
    let parent = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    println!("request     without       with   with/without (best of {ROUNDS}, page cache)");
    for len in [4096_u64, 47_008, 65_536, 1 << 20] {
        let mut best = [[0.0_f64; 2]; 2];
        for _ in 0..ROUNDS {
            for (at, integrity) in Integrity::ALL.into_iter().enumerate() {
                let folder = tempfile::tempdir_in(&parent).expect("a folder");
                let [write, read] = block_on(measure(folder.path(), integrity, len));
                best[0][at] = best[0][at].max(write);
                best[1][at] = best[1][at].max(read);
            }
        }
        for (what, [without, with]) in ["write", "read"].into_iter().zip(best) {
            println!("{what:5} {len:7} {without:7.0} MB/s {with:7.0} MB/s {:6.2}", with / without);
        }
    }
}

/// Returns MB/s of writing and reading a datafile in requests of `len` bytes.
async fn measure(path: &std::path::Path, integrity: Integrity, len: u64) -> [f64; 2] {
    let env = RealEnv::new();
    let spec = TargetSpec {
        id: TargetId(0),
        cluster: "cost".into(),
        path: path.to_owned(),
        module: Module::Buffered,
        open_datafiles_max: 8,
        emulate: None,
        integrity,
    };
    let target = Target::open(&env, &spec).await.expect("target");
    let key = DatafileKey::new(FileId(1), ObjectId::default());
    let mut bytes: Vec<u8> = (0..len).map(|at| (at * 31) as u8).collect();
    let offsets = (0..BYTES / len).map(|index| LocalOffset(index * len));
    let rate = |began: Instant| BYTES as f64 / 1e6 / began.elapsed().as_secs_f64();
    let began = Instant::now();
    for offset in offsets.clone() {
        target.prepare(key, DatafileFormat::default()).await.expect("prepare");
        target.write(key, offset, &bytes).await.expect("write");
    }
    let write = rate(began);
    let began = Instant::now();
    for offset in offsets {
        let (got, datafile_len) = target.read(key, offset, &mut bytes).await.expect("read");
        assert!(got as u64 == len && datafile_len >= ByteLen(len), "all of it");
    }
    [write, rate(began)]
}
