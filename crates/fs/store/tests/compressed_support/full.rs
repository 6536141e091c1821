//! Compressed datafiles on a device without a free byte, after the process was killed.

use crate::compressed_support::{SETUPS, Setup, key, noise, open, read, text, write};
use std::path::Path;
use weft_core::{ByteLen, LocalOffset};
use weft_env::sim::{Control, DiskFaults, Rng, Sim, SimEnv};
use weft_env::{BlockingFile, Dir, Env, File, OpenMode};
use weft_store::error::DatafileError;
use weft_store::target::{Module, Target};

const LEN: usize = 400_000;

/// Makes the device small, so that it can be filled.
fn limit(control: &Control, env: &SimEnv) {
    let faults = DiskFaults { capacity_bytes: 512 << 20, ..DiskFaults::default() };
    control.set_disk_faults(env, Path::new("/"), faults);
}

/// Leaves no free byte.
async fn fill(env: &SimEnv) {
    let dir = env.dir(Path::new("/")).await.expect("dir");
    let free = dir.space().await.expect("space").free;
    let filling = dir.open("filling", OpenMode::CREATE).await.expect("open");
    filling.blocking().allocate(free).expect("allocated");
    assert!(dir.space().await.expect("space").free < ByteLen(4096));
}

/// Writes a datafile so that its map names space that was used again since: an open finds records that do not count, and
/// needs a checkpoint. Returns its bytes.
async fn write_and_overwrite(target: &Target<SimEnv>, setup: Setup, rng: &mut Rng) -> Vec<u8> {
    let mut bytes = text(LEN);
    write(target, key(1, 0), setup, 0, &bytes).await;
    if rng.below(2) == 0 {
        target.sync(key(1, 0)).await.expect("sync");
    }
    for _ in 0..12 {
        let (start, len) = (rng.below(LEN as u64 / 2) as usize, 1 + rng.below(LEN as u64 / 2) as usize);
        let new = noise(rng, len);
        write(target, key(1, 0), setup, start as u64, &new).await;
        bytes[start..start + len].copy_from_slice(&new);
    }
    // A piece that grew.
    for number in 0..20 {
        let tail = [number as u8 | 1; 30];
        write(target, key(1, 0), setup, bytes.len() as u64, &tail).await;
        bytes.extend(tail);
    }
    bytes
}

#[test]
fn a_full_disk_can_be_emptied_after_a_kill() {
    let mut shrunk = [0; 3];
    // A container whose last long chunk is in use cannot be cut.
    let is_short = |setup: &Setup| setup.compression().chunk_len() <= 64 << 10;
    for setup in SETUPS.into_iter().filter(|setup| setup.module == Module::Buffered && is_short(setup)) {
        for seed in 0..9 {
            eprintln!("{setup:?}, seed {seed}");
            let mut sim = Sim::with_seed(seed);
            let env = sim.node("node");
            let (world, control) = (env.clone(), sim.control());
            let kind = seed as usize % 3;
            let left = sim.block_on(&env, async move {
                let mut rng = Rng::new(seed);
                limit(&control, &world);
                let target = open(&world, Path::new("/"), setup.module).await;
                let mut bytes = write_and_overwrite(&target, setup, &mut rng).await;
                target.release();
                drop(target);
                fill(&world).await;
                let target = open(&world, Path::new("/"), setup.module).await;
                assert!(read(&target, key(1, 0), setup).await.expect("read") == bytes);
                let refused = target.prepare(key(2, 0), setup.format()).await;
                assert!(
                    matches!(refused, Err(DatafileError::NoSpace { .. })),
                    "the disk is full: {refused:?}"
                );
                match kind {
                    0 => {
                        target.set_len(key(1, 0), ByteLen(1000)).await.expect("truncated");
                        bytes.truncate(1000);
                    }
                    1 => {
                        target.set_len(key(1, 0), ByteLen(0)).await.expect("emptied");
                        bytes.clear();
                    }
                    _ => {
                        let hole = target.punch(key(1, 0), LocalOffset(10), ByteLen(LEN as u64)).await;
                        hole.expect("punched");
                        bytes[10..LEN + 10].fill(0);
                    }
                }
                // The simulated disk has no holes, so space comes back when the container is cut.
                target.settle(key(1, 0)).await.expect("settle");
                write(&target, key(2, 0), setup, 0, &noise(&mut rng, LEN / 3)).await;
                for file in [1, 2] {
                    target.sync(key(file, 0)).await.expect("sync");
                }
                assert!(read(&target, key(1, 0), setup).await.expect("read") == bytes);
                target.remove(key(1, 0)).await.expect("removed");
                write(&target, key(1, 0), setup, 0, &bytes).await;
                target.sync(key(1, 0)).await.expect("sync");
                target.release();
                bytes
            });
            sim.control().power_cut(&env);
            let env = sim.restart(&env);
            let world = env.clone();
            sim.block_on(&env, async move {
                let target = open(&world, Path::new("/"), setup.module).await;
                assert!(read(&target, key(1, 0), setup).await.expect("read") == left);
                assert_eq!(read(&target, key(2, 0), setup).await.expect("read").len(), LEN / 3);
            });
            shrunk[kind] += 1;
        }
    }
    assert!(shrunk.iter().all(|count| *count == 9), "{shrunk:?}");
}

/// Bytes that the reserve gives away come back when there is space.
#[test]
fn the_reserve_is_allocated_again() {
    let mut sim = Sim::with_seed(4);
    let env = sim.node("node");
    let (world, control) = (env.clone(), sim.control());
    sim.block_on(&env, async move {
        let (setup, mut rng) = (SETUPS[0], Rng::new(4));
        limit(&control, &world);
        let dir = world.dir(Path::new("/")).await.expect("dir");
        let reserved = async || dir.meta("reserve").await.expect("a reserve").len.0;
        let target = open(&world, Path::new("/"), setup.module).await;
        let bytes = write_and_overwrite(&target, setup, &mut rng).await;
        target.release();
        drop(target);
        let whole = reserved().await;
        assert!(whole > 1 << 20, "{whole}");
        fill(&world).await;
        let target = open(&world, Path::new("/"), setup.module).await;
        target.set_len(key(1, 0), ByteLen(bytes.len() as u64 - 1)).await.expect("truncated");
        let now = reserved().await;
        assert!(now < whole && now > whole / 2, "{now} of {whole}: a checkpoint takes what it needs");
        dir.remove("filling").await.expect("removed");
        dir.sync("").await.expect("sync");
        write(&target, key(1, 0), setup, 0, b"bytes").await;
        target.sync(key(1, 0)).await.expect("sync");
        assert_eq!(reserved().await, whole);
    });
}
