//! Checksums at rest: every flipped bit is found, no crash invalidates good bytes, and scrubbing reports all damage.

use crate::target_support::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use weft_core::{ByteLen, FileId, Integrity, LocalOffset, Nanos, ObjectId, TargetId};
use weft_env::sim::{Rng, Sim, SimEnv};
use weft_env::{Dir, Env, File, OpenMode, Shared};
use weft_store::datafile::DatafileKey;
use weft_store::error::DatafileError;
use weft_store::target::{DatafileFormat, Module, SEAL_AFTER, SEAL_IDLE, Target, TargetSpec, ToSend};

const MODULES: [Module; 2] = [Module::Buffered, Module::Direct];
const LEN_MAX: u64 = 60_000;
const BLOCK: u64 = 4096;

fn spec(module: Module, integrity: Integrity) -> TargetSpec {
    target_spec(Path::new("/"), module, integrity, 3)
}

async fn open(env: &SimEnv, module: Module) -> Target<SimEnv> {
    Target::open(env, &spec(module, Integrity::Crc32c)).await.expect("target")
}

fn with(integrity: Integrity) -> DatafileFormat {
    DatafileFormat { integrity: Some(integrity), compression: None }
}

fn key(file: u64) -> DatafileKey {
    DatafileKey::new(FileId(file), ObjectId::default())
}

async fn write(target: &Target<SimEnv>, key: DatafileKey, offset: u64, bytes: &[u8]) {
    target.prepare(key, DatafileFormat::default()).await.expect("prepare");
    target.write(key, LocalOffset(offset), bytes).await.expect("write");
}

async fn read(
    target: &Target<SimEnv>,
    key: DatafileKey,
    offset: u64,
    len: u64,
) -> Result<Vec<u8>, DatafileError> {
    let mut bytes = vec![0xee; len as usize];
    let (got, _) = target.read(key, LocalOffset(offset), &mut bytes).await?;
    bytes.truncate(got);
    Ok(bytes)
}

fn position(rng: &mut Rng) -> u64 {
    match rng.below(3) {
        0 => rng.below(LEN_MAX),
        1 => rng.below(LEN_MAX / BLOCK) * BLOCK,
        _ => (1 + rng.below(LEN_MAX / BLOCK - 1)) * BLOCK + rng.below(5) - 2,
    }
}

/// Changes a datafile at random; a model has its content.
async fn change(env: &SimEnv, target: &Target<SimEnv>, key: DatafileKey, bytes: &mut Vec<u8>, rng: &mut Rng) {
    let (a, b) = (position(rng), position(rng));
    let (offset, end) = (a.min(b), a.max(b));
    match rng.below(8) {
        0 => {
            target.prepare(key, DatafileFormat::default()).await.expect("prepare");
            target.set_len(key, ByteLen(a)).await.expect("set_len");
            bytes.resize(a as usize, 0);
        }
        1 => target.sync(key).await.expect("sync"),
        2 => {
            target.settle(key).await.expect("seal");
        }
        3 => {
            target.punch(key, LocalOffset(offset), ByteLen(end - offset)).await.expect("punch");
            let reach = bytes.len();
            bytes[reach.min(offset as usize)..reach.min(end as usize)].fill(0);
        }
        kind => {
            let fill: Vec<u8> = (offset..end).map(|_| rng.below(256) as u8).collect();
            if end > offset && bytes.len() < end as usize {
                bytes.resize(end as usize, 0);
            }
            if end > offset {
                bytes[offset as usize..end as usize].copy_from_slice(&fill);
            }
            if kind == 4 {
                let area = env.shared(fill.len() + 13).expect("shared memory");
                area.copy_in(13, &fill);
                target.prepare(key, DatafileFormat::default()).await.expect("prepare");
                let written = target.write_shared(key, LocalOffset(offset), &area, 13, fill.len()).await;
                written.expect("write");
            } else {
                write(target, key, offset, &fill).await;
            }
        }
    }
}

#[test]
fn every_flipped_bit_is_found_and_nothing_else_is_rejected() {
    for module in MODULES {
        for seed in 0..25 {
            eprintln!("{module:?}, seed {seed}");
            simulate(seed, |world| async move {
                let target = open(&world, module).await;
                let (mut rng, mut bytes, key) = (Rng::new(seed), Vec::new(), key(7));
                for _ in 0..30 {
                    change(&world, &target, key, &mut bytes, &mut rng).await;
                    assert!(read(&target, key, 0, LEN_MAX).await.expect("read") == bytes);
                    if bytes.is_empty() {
                        continue;
                    }
                    let bit = rng.below(bytes.len() as u64 * 8);
                    let block = bit / 8 / BLOCK;
                    flip(&world, &key.name(), bit).await;
                    let within = (bit / 8).saturating_sub(rng.below(9000));
                    match read(&target, key, within, bit / 8 + 1 - within).await {
                        Err(error @ DatafileError::Damaged { start, end, target: TargetId(4), .. }) => {
                            assert_eq!((start, end), (block * BLOCK, (block + 1) * BLOCK));
                            assert_eq!(error.errno(), 5);
                            assert!(error.to_string().contains(&key.name()), "{error}");
                        }
                        other => panic!("bit {bit} of {}: {:?}", bytes.len(), other.map(|bytes| bytes.len())),
                    }
                    // A partial write of the block fails, and other blocks are unchanged.
                    let part = target.write(key, LocalOffset(block * BLOCK + 1), b"x").await;
                    assert!(matches!(part, Err(DatafileError::Damaged { .. })), "{part:?}");
                    let before = &bytes[..(block * BLOCK) as usize];
                    assert!(read(&target, key, 0, block * BLOCK).await.expect("read") == before);
                    // A write of the whole block repairs it.
                    let len = (bytes.len() as u64 - block * BLOCK).min(BLOCK);
                    if len == BLOCK && rng.below(2) == 0 {
                        let anew = &bytes[(block * BLOCK) as usize..][..BLOCK as usize];
                        write(&target, key, block * BLOCK, anew).await;
                    } else {
                        flip(&world, &key.name(), bit).await;
                    }
                    assert!(read(&target, key, 0, LEN_MAX).await.expect("read") == bytes);
                }
                assert!(target.damage().0 > 0);
                assert_eq!(target.damage().1, 0, "nothing was accepted unverified");
            });
        }
    }
}

#[test]
fn a_damaged_checksum_file_never_yields_wrong_bytes() {
    let mut refused = 0;
    for seed in 0..60 {
        eprintln!("seed {seed}");
        let mut sim = Sim::with_seed(seed);
        let env = sim.node("node");
        let world = env.clone();
        refused += sim.block_on(&env, async move {
            let (mut rng, mut bytes, key) = (Rng::new(seed), Vec::new(), key(7));
            let name = key.name() + ".sum";
            {
                let target = open(&world, Module::Buffered).await;
                for _ in 0..10 {
                    change(&world, &target, key, &mut bytes, &mut rng).await;
                }
                write(&target, key, 0, b"at least this").await;
                let len = bytes.len().max(13);
                bytes.resize(len, 0);
                bytes[..13].copy_from_slice(b"at least this");
                target.release();
            }
            let dir = world.dir(Path::new("/")).await.expect("dir");
            let len = dir.meta(&name).await.expect("meta").len.0;
            for _ in 0..1 + rng.below(3) {
                let bit = if rng.below(2) == 0 { rng.below(64 * 8) } else { rng.below(len * 8) };
                flip(&world, &name, bit).await;
            }
            let target = match Target::open(&world, &spec(Module::Buffered, Integrity::Crc32c)).await {
                Ok(target) => target,
                Err(error) => panic!("the target opens: {error}"),
            };
            match read(&target, key, 0, LEN_MAX).await {
                Ok(found) => {
                    assert!(found == bytes, "right bytes or none");
                    0
                }
                Err(error) => {
                    assert_eq!(error.errno(), 5, "{error}");
                    1
                }
            }
        });
    }
    assert!(refused < 20, "most single flips are harmless: {refused} of 60");
}

/// Content of each datafile after all completed writes.
type Versions = BTreeMap<DatafileKey, Vec<u8>>;
/// Datafiles after all completed writes, and the datafile that the write in progress yields.
type Model = Arc<Mutex<(Versions, Option<(DatafileKey, Vec<u8>)>)>>;

/// Writes at random until it is killed. `model` has the datafiles after all completed writes, and the result of the
/// one in progress.
async fn write_on(env: SimEnv, module: Module, seed: u64, model: Model) {
    let target = open(&env, module).await;
    let mut rng = Rng::new(seed);
    for _ in 0..200 {
        let key = key(7 + rng.below(3));
        let before = model.lock().expect("model").0.get(&key).cloned().unwrap_or_default();
        let mut after = before;
        // The model first, from the same random numbers as the target afterwards.
        let seed = rng.below(u64::MAX);
        model_change(&mut after, &mut Rng::new(seed));
        model.lock().expect("model").1 = Some((key, after.clone()));
        change(&env, &target, key, &mut Vec::new(), &mut Rng::new(seed)).await;
        let mut model = model.lock().expect("model");
        model.0.insert(key, after);
        model.1 = None;
    }
}

/// Applies the change to the model that `change` makes from the same random numbers.
fn model_change(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let (a, b) = (position(rng), position(rng));
    let (offset, end) = (a.min(b) as usize, a.max(b) as usize);
    match rng.below(8) {
        0 => bytes.resize(a as usize, 0),
        1 | 2 => {}
        3 => {
            let reach = bytes.len();
            bytes[reach.min(offset)..reach.min(end)].fill(0);
        }
        _ if end > offset => {
            let fill: Vec<u8> = (offset..end).map(|_| rng.below(256) as u8).collect();
            bytes.resize(bytes.len().max(end), 0);
            bytes[offset..end].copy_from_slice(&fill);
        }
        _ => {}
    }
}

#[test]
fn a_kill_between_bytes_and_checksums_leaves_no_damage() {
    for module in MODULES {
        for seed in 0..40 {
            eprintln!("{module:?}, seed {seed}");
            let mut sim = Sim::with_seed(seed);
            let env = sim.node("node");
            let control = sim.control();
            let model = Arc::new(Mutex::new((Versions::new(), None)));
            sim.start(&env, "writer", write_on(env.clone(), module, seed, Arc::clone(&model)));
            sim.run_for(Nanos(Rng::new(seed + 1000).below(40_000_000)));
            control.kill(&env);
            let env = control.restart(&env);
            let world = env.clone();
            let (versions, under_way) = model.lock().expect("model").clone();
            sim.block_on(&env, async move {
                let target = open(&world, module).await;
                for file in 7..10 {
                    let key = key(file);
                    let found = read(&target, key, 0, LEN_MAX).await.expect("no block is damaged");
                    let before = versions.get(&key).cloned().unwrap_or_default();
                    let after = under_way.as_ref().filter(|(of, _)| *of == key).map(|(_, bytes)| bytes);
                    for (at, byte) in found.iter().enumerate() {
                        let as_in = |bytes: &[u8]| *byte == bytes.get(at).copied().unwrap_or(0);
                        assert!(
                            as_in(&before) || after.is_some_and(|after| as_in(after)),
                            "{key:?} byte {at}"
                        );
                    }
                    // Still strict, because the machine has not lost power.
                    if let Some(last) = found.len().checked_sub(1) {
                        flip(&world, &key.name(), last as u64 * 8).await;
                        let read = read(&target, key, last as u64, 1).await;
                        assert!(
                            matches!(read, Err(DatafileError::Damaged { .. })),
                            "{:?}",
                            read.map(|bytes| bytes.len())
                        );
                    }
                }
                assert_eq!(target.damage().1, 0);
            });
        }
    }
}

#[test]
fn after_a_loss_of_power_good_bytes_are_readable_and_sealed_ones_verified() {
    let (mut unverified, mut sealed_flips) = (0, 0);
    for module in MODULES {
        for seed in 0..50 {
            eprintln!("{module:?}, seed {seed}");
            let mut sim = Sim::with_seed(seed);
            let env = sim.node("node");
            let control = sim.control();
            let world = env.clone();
            // One datafile is sealed and left alone; others are being written.
            let sealed: Vec<u8> = (0..20_000_u32).map(|at| (at / 7) as u8).collect();
            let bytes = sealed.clone();
            sim.block_on(&env, async move {
                let target = open(&world, module).await;
                write(&target, key(1), 0, &bytes).await;
                assert_eq!(target.unsettled_count(), 1);
                assert!(target.settle(key(1)).await.expect("seal"));
                target.sync(key(1)).await.expect("sync");
                // The header reaches the disk with the next sync of the checksum file.
                let dir = world.dir(Path::new("/")).await.expect("dir");
                let sums = dir.open(&(key(1).name() + ".sum"), OpenMode::WRITE).await.expect("open");
                sums.sync().await.expect("sync");
                target.release();
            });
            let model = Arc::new(Mutex::new((Versions::new(), None)));
            sim.start(&env, "writer", write_on(env.clone(), module, seed, Arc::clone(&model)));
            sim.run_for(Nanos(Rng::new(seed + 1000).below(40_000_000)));
            control.power_cut(&env);
            let env = control.restart(&env);
            let world = env.clone();
            let (taken, flips) = sim.block_on(&env, async move {
                let target = open(&world, module).await;
                for file in 7..10 {
                    read(&target, key(file), 0, LEN_MAX).await.expect("no block is rejected");
                }
                let taken = target.damage().1;
                // Once sealed, they are strict again.
                let mut flips = 0;
                for file in 7..10 {
                    // Names of checksum files that were never synced may be gone, with everything else that was never
                    // synced.
                    let is_checked = target.settle(key(file)).await.expect("seal");
                    let len = target.meta(key(file)).await.expect("meta").map_or(0, |meta| meta.len.0);
                    if len > 0 && is_checked {
                        flip(&world, &key(file).name(), len * 8 - 1).await;
                        let read = read(&target, key(file), 0, LEN_MAX).await;
                        assert!(
                            matches!(read, Err(DatafileError::Damaged { .. })),
                            "{:?}",
                            read.map(|bytes| bytes.len())
                        );
                        flips += 1;
                    }
                }
                assert!(read(&target, key(1), 0, LEN_MAX).await.expect("read") == sealed);
                flip(&world, &key(1).name(), 12_345).await;
                let read = read(&target, key(1), 0, LEN_MAX).await;
                assert!(
                    matches!(read, Err(DatafileError::Damaged { start: 0, .. })),
                    "{:?}",
                    read.map(|bytes| bytes.len())
                );
                (taken, flips)
            });
            unverified += taken;
            sealed_flips += flips;
        }
    }
    assert!(unverified > 0, "some blocks and checksums differ");
    assert!(sealed_flips > 50, "only {sealed_flips} datafiles had bytes");
}

/// Nothing tells a lost cache from damage then, so a block that does not match is an error. Other blocks are readable.
#[test]
fn a_disk_that_loses_its_cache_without_a_reboot_costs_single_blocks() {
    const BLOCK: u64 = 4096;
    let (mut readable, mut damaged) = (0, 0);
    for module in MODULES {
        for seed in 0..30 {
            eprintln!("{module:?}, seed {seed}");
            let mut sim = Sim::with_seed(seed);
            let env = sim.node("node");
            let control = sim.control();
            let sealed: Vec<u8> = (0..20_000_u32).map(|at| (at / 7) as u8).collect();
            let (world, bytes) = (env.clone(), sealed.clone());
            sim.block_on(&env, async move {
                let target = open(&world, module).await;
                write(&target, key(1), 0, &bytes).await;
                target.sync(key(1)).await.expect("sync");
                assert!(target.settle(key(1)).await.expect("seal"));
                target.release();
            });
            let model = Arc::new(Mutex::new((Versions::new(), None)));
            sim.start(&env, "writer", write_on(env.clone(), module, seed, Arc::clone(&model)));
            sim.run_for(Nanos(Rng::new(seed + 1000).below(40_000_000)));
            control.power_cut(&env);
            let env = control.restart_in_same_boot(&env);
            let world = env.clone();
            let found = sim.block_on(&env, async move {
                let target = open(&world, module).await;
                assert!(read(&target, key(1), 0, LEN_MAX).await.expect("read") == sealed);
                let mut found = [0, 0];
                for file in 7..10 {
                    let key = key(file);
                    let len = target.meta(key).await.expect("meta").map_or(0, |meta| meta.len.0);
                    for at in (0..len).step_by(BLOCK as usize) {
                        let is_damaged = match read(&target, key, at, BLOCK).await {
                            Ok(_) => false,
                            // The name of the checksum file was never synced.
                            Err(DatafileError::ChecksumsMissing { .. }) => break,
                            Err(DatafileError::Damaged { start, end, .. }) => {
                                assert!(start == at && end <= at + BLOCK, "{start}..{end} at {at}");
                                true
                            }
                            Err(error) => panic!("{error}"),
                        };
                        found[usize::from(is_damaged)] += 1;
                        if is_damaged && at + BLOCK <= len {
                            let new = [7; BLOCK as usize];
                            write(&target, key, at, &new).await;
                            assert!(
                                read(&target, key, at, BLOCK).await.expect("a whole block is new") == new
                            );
                        }
                    }
                }
                found
            });
            readable += found[0];
            damaged += found[1];
        }
    }
    assert!(readable > 100 && damaged > 10, "{readable} blocks are readable, {damaged} are not");
}

#[test]
fn concurrent_reads_and_writes_of_a_block_see_no_damage() {
    for seed in 0..30 {
        eprintln!("seed {seed}");
        let mut sim = Sim::with_seed(seed);
        let env = sim.node("node");
        let world = env.clone();
        let key = key(9);
        let target = sim.block_on(&env, async move { Arc::new(open(&world, Module::Buffered).await) });
        let reads = Arc::new(Mutex::new(0));
        for task in 0..6_u64 {
            let (target, reads) = (Arc::clone(&target), Arc::clone(&reads));
            env.spawn("task", move || async move {
                let mut rng = Rng::new(seed * 100 + task);
                for _ in 0..60 {
                    let (offset, len) = (rng.below(12_000), 1 + rng.below(9_000));
                    match task % 3 {
                        0 => {
                            read(&target, key, offset, len).await.expect("no damage");
                            *reads.lock().expect("count") += 1;
                        }
                        1 if rng.below(4) == 0 => {
                            target.prepare(key, DatafileFormat::default()).await.expect("prepare");
                            target.set_len(key, ByteLen(offset)).await.expect("set_len");
                        }
                        2 if rng.below(8) == 0 => {
                            target.settle(key).await.expect("seal");
                        }
                        _ => write(&target, key, offset, &vec![task as u8 + 1; len as usize]).await,
                    }
                }
            })
            .expect("a task");
        }
        sim.run();
        assert_eq!(*reads.lock().expect("count"), 120);
        assert_eq!(target.damage(), (0, 0));
    }
}

#[test]
fn a_scrub_reports_all_damage_and_continues_where_it_stopped() {
    simulate(1, |world| async move {
        let target = open(&world, Module::Buffered).await;
        for file in 1..=20_u64 {
            write(&target, key(file), 0, &vec![file as u8; 10_000 * file as usize]).await;
        }
        target.write(key(30), LocalOffset(0), b"without checksums").await.expect("write");
        flip(&world, &key(3).name(), 8 * 29_999).await;
        flip(&world, &key(20).name(), 8 * 4096).await;
        flip(&world, &key(20).name(), 8 * 8192).await;
        flip(&world, &key(20).name(), 8 * 100_000).await;
        for budget in [1, 4096, 50_000, 1 << 30] {
            let (mut from, mut steps, mut verified) = (None, 0, 0);
            let (mut checked, mut unchecked, mut damaged) = (0, 0, Vec::new());
            loop {
                let step = target.scrub(from, ByteLen(budget)).await.expect("scrub");
                steps += 1;
                verified += step.verified.0;
                checked += step.checked;
                unchecked += step.unchecked.len();
                damaged
                    .extend(step.damaged.iter().map(|damage| (damage.key.file.0, damage.start, damage.end)));
                from = step.next;
                if from.is_none() {
                    break;
                }
            }
            assert_eq!(damaged, [(3, 28_672, 32_768), (20, 4096, 12_288), (20, 98_304, 102_400)]);
            assert_eq!((checked, unchecked), (20, 1), "budget {budget}");
            assert_eq!(verified, 10_000 * 210, "budget {budget}");
            assert_eq!(steps == 1, budget == 1 << 30, "{steps} steps of {budget}");
        }
        assert_eq!(target.damage().0, 4);
    });
}

#[test]
fn a_datafile_without_required_checksums_is_never_read() {
    let wish = with(Integrity::Crc32c);
    for module in MODULES {
        simulate(1, |world| async move {
            let target = Target::open(&world, &spec(module, Integrity::Off)).await.expect("target");
            target.require_format(key(1), wish).await.expect("a missing datafile has no bytes");
            target.prepare(key(1), wish).await.expect("prepare");
            target.require_format(key(1), wish).await.expect("an empty one");
            target.write(key(1), LocalOffset(0), &[7; 10_000]).await.expect("write");
            target.sync_names(key(1)).await.expect("synced");
            target.require_format(key(1), wish).await.expect("checksums are there");
            drop(target);
            let dir = world.dir(Path::new("/")).await.expect("dir");
            dir.remove(&(key(1).name() + ".sum")).await.expect("removed");
            for marker in [true, false] {
                if !marker {
                    dir.remove("sums").await.expect("removed");
                }
                let target = Target::open(&world, &spec(module, Integrity::Off)).await.expect("target");
                let refused = target.require_format(key(1), wish).await.expect_err("nothing to verify with");
                assert!(matches!(refused, DatafileError::ChecksumsMissing { .. }), "{refused}");
                assert!(refused.to_string().contains("target 4"), "{refused}");
                assert_eq!(refused.errno(), 5);
                let step = target.scrub(None, ByteLen(1 << 30)).await.expect("scrub");
                assert_eq!((step.checked, step.unchecked), (0, vec![key(1)]));
                for wish in [DatafileFormat::default(), with(Integrity::Off)] {
                    target.require_format(key(1), wish).await.expect("the target decides");
                }
            }
            let target = Target::open(&world, &spec(module, Integrity::Off)).await.expect("target");
            let refused = target.prepare(key(1), wish).await.expect_err("no checksums of unknown bytes");
            assert!(matches!(refused, DatafileError::ChecksumsMissing { .. }), "{refused}");
            // After truncation to zero bytes, the next write creates checksums.
            target.set_len(key(1), ByteLen(0)).await.expect("truncated");
            target.prepare(key(1), wish).await.expect("prepare");
            target.write(key(1), LocalOffset(0), &[8; 5000]).await.expect("write");
            target.require_format(key(1), wish).await.expect("checksums are there");
            assert!(target.is_verified(key(1)).await.expect("asked"));
        });
    }
}

#[test]
fn idle_datafiles_are_sealed() {
    simulate(1, |world| async move {
        let target = open(&world, Module::Buffered).await;
        write(&target, key(1), 0, b"bytes").await;
        assert_eq!(target.seal_idle().await, 0, "just written");
        world.sleep(SEAL_IDLE).await;
        assert_eq!(target.seal_idle().await, 1);
        assert_eq!(target.unsettled_count(), 0);
        write(&target, key(1), 2, b"more").await;
        assert_eq!(target.unsettled_count(), 1, "a write unseals it");
        // A datafile that is written continuously is sealed as well.
        let mut sealed = 0;
        let step = Nanos(SEAL_IDLE.0 / 3);
        for _ in 0..SEAL_AFTER.0 / step.0 + 4 {
            write(&target, key(1), 2, b"more").await;
            sealed += target.seal_idle().await;
            world.sleep(step).await;
        }
        assert_eq!(sealed, 1);
    });
}

#[test]
fn checksums_are_removed_with_their_datafile_and_not_listed() {
    simulate(1, |world| async move {
        let target = open(&world, Module::Buffered).await;
        let dir = world.dir(Path::new("/")).await.expect("dir");
        write(&target, key(9), 5000, b"bytes").await;
        assert!(target.is_verified(key(9)).await.expect("asked"));
        assert_eq!(target.list(None, 10).await.expect("list"), [(key(9), ByteLen(5005))]);
        assert!(matches!(target.file_to_send(key(9)).await.expect("asked"), ToSend::Bytes));
        for write in [false, true] {
            assert!(target.lease_file(key(9), write).await.expect("asked").is_none());
        }
        let names = dir.list("objects/09").await.expect("list");
        assert_eq!(names, ["0000000000000009.0.0", "0000000000000009.0.0.sum"]);
        target.remove(key(9)).await.expect("remove");
        assert!(dir.list("objects/09").await.expect("list").is_empty());
        // After a removal it starts empty.
        write(&target, key(9), 1, b"b").await;
        assert_eq!(read(&target, key(9), 0, 10).await.expect("read"), b"\0b");
    });
}

#[test]
fn files_may_override_the_checksum_setting_of_a_target() {
    simulate(1, |world| async move {
        let target = Target::open(&world, &spec(Module::Buffered, Integrity::Off)).await.expect("target");
        let dir = world.dir(Path::new("/")).await.expect("dir");
        write(&target, key(1), 0, b"bytes").await;
        assert!(!dir.list("").await.expect("list").contains(&"sums".to_owned()));
        assert_eq!(dir.list("objects/01").await.expect("list").len(), 1);
        assert!(matches!(target.file_to_send(key(1)).await.expect("asked"), ToSend::File(_, ByteLen(5))));
        target.prepare(key(2), with(Integrity::Crc32c)).await.expect("prepare");
        target.write(key(2), LocalOffset(0), b"bytes").await.expect("write");
        assert!(target.is_verified(key(2)).await.expect("asked"));
        assert!(!target.is_verified(key(1)).await.expect("asked"));
        target.release();
        // When the target's setting changes, datafiles keep theirs; a file may opt out of checksums.
        let target = open(&world, Module::Buffered).await;
        write(&target, key(1), 2, b"bytes").await;
        assert!(!target.is_verified(key(1)).await.expect("asked"));
        target.prepare(key(3), with(Integrity::Off)).await.expect("prepare");
        target.write(key(3), LocalOffset(0), b"bytes").await.expect("write");
        assert!(!target.is_verified(key(3)).await.expect("asked"));
        flip(&world, &key(2).name(), 0).await;
        assert!(read(&target, key(2), 0, 9).await.is_err());
    });
}
