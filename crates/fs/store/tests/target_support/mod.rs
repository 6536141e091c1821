//! Shared helpers for tests of targets.
#![allow(dead_code)] // No test uses all of it.

use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use weft_core::{ByteLen, Integrity, LocalOffset, TargetId};
use weft_env::sim::{Sim, SimEnv};
use weft_env::{Dir, Env, File, OpenMode};
use weft_store::target::{Module, TargetSpec};

/// Returns the specification of a target on the real device.
pub fn target_spec(
    path: &Path,
    module: Module,
    integrity: Integrity,
    open_datafiles_max: usize,
) -> TargetSpec {
    TargetSpec {
        id: TargetId(4),
        cluster: "test".into(),
        path: path.to_owned(),
        module,
        open_datafiles_max,
        emulate: None,
        integrity,
    }
}

/// Runs a test on the machine of a new simulation.
pub fn simulate<F: Future<Output = ()>>(seed: u64, test: impl FnOnce(SimEnv) -> F) {
    let mut sim = Sim::with_seed(seed);
    let env = sim.node("node");
    sim.block_on(&env, test(env.clone()));
}

/// Flips a bit of a file behind the target's back.
pub async fn flip(env: &SimEnv, name: &str, bit: u64) {
    let file = env.dir(Path::new("/")).await.expect("dir").open(name, OpenMode::WRITE).await.expect("open");
    let at = LocalOffset(bit / 8);
    let mut byte = [0];
    file.read_at(&mut [IoSliceMut::new(&mut byte)], at).await.expect("read");
    byte[0] ^= 1 << (bit % 8);
    file.write_at(&[IoSlice::new(&byte)], at).await.expect("write");
}

/// Returns all bytes of a file.
pub async fn content(env: &SimEnv, name: &str) -> Vec<u8> {
    let file = env.dir(Path::new("/")).await.expect("dir").open(name, OpenMode::READ).await.expect("open");
    let mut bytes = vec![0; file.meta().await.expect("meta").len.0 as usize];
    let got = file.read_at(&mut [IoSliceMut::new(&mut bytes)], LocalOffset(0)).await.expect("read");
    assert_eq!(got, bytes.len(), "{name}");
    bytes
}

/// Replaces all bytes of a file behind the target's back.
pub async fn replace(env: &SimEnv, name: &str, bytes: &[u8]) {
    let file = env.dir(Path::new("/")).await.expect("dir").open(name, OpenMode::WRITE).await.expect("open");
    file.set_len(ByteLen(0)).await.expect("cut");
    file.write_at(&[IoSlice::new(bytes)], LocalOffset(0)).await.expect("write");
}
