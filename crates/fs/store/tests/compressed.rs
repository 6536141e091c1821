//! Compressed datafiles against a model that keeps every byte: random operations in both worlds, loss of power at every
//! sync, killed processes, damaged files, full disks, concurrent writers.

mod compressed_support;
#[path = "compressed_support/full.rs"]
mod full;
mod target_support;

use compressed_support::*;
use std::path::Path;
use std::sync::{Arc, Mutex};
use target_support::*;
use weft_core::{ByteLen, LocalOffset, Nanos, Timestamp};
use weft_env::real::{RealEnv, block_on};
use weft_env::sim::{DiskFaults, Rng, Sim};
use weft_env::{Dir, Env, File, OpenMode};
use weft_store::error::DatafileError;
use weft_store::target::{DatafileFormat, FOLD_IDLE, Module, SEAL_IDLE, ToSend};

#[test]
fn real_files_match_the_model() {
    for setup in SETUPS {
        for seed in 0..setup.seeds(6) {
            eprintln!("{setup:?}, seed {seed}");
            let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
            let plan = Plan { setup, seed, ops: 200, ..Plan::default() };
            block_on(run(RealEnv::new(), folder.path().into(), plan, Arc::default()));
        }
    }
}

#[test]
fn simulated_files_match_the_model() {
    for setup in SETUPS {
        for seed in 0..setup.seeds(20) {
            eprintln!("{setup:?}, seed {seed}");
            let mut sim = Sim::with_seed(seed);
            let env = sim.node("node");
            let plan = Plan { setup, seed, ops: 150, ..Plan::default() };
            sim.block_on(&env, run(env.clone(), "/".into(), plan, Arc::default()));
        }
    }
}

#[test]
fn each_byte_is_old_or_newer_after_a_loss_of_power_at_any_sync() {
    let mut checked = 0;
    for setup in SETUPS {
        for seed in 0..setup.seeds(5) {
            checked += cut_power_at_every_sync(cut_plan(setup, seed));
        }
    }
    assert!(checked > 10_000_000, "only {checked} bytes had to survive");
}

/// Operations for which the power is cut at each sync.
fn cut_plan(setup: Setup, seed: u64) -> Plan {
    Plan { setup, seed, ops: 40, may_remove: false, ..Plan::default() }
}

#[test]
fn what_a_loss_of_power_left_survives_the_next_one() {
    let mut checked = 0;
    for setup in SETUPS {
        for seed in 0..setup.seeds(5) {
            checked += cut_power_twice(Plan { ops: 20, ..cut_plan(setup, seed) });
        }
    }
    assert!(checked > 1_000_000, "only {checked} bytes had to survive");
}

#[test]
fn a_disk_that_loses_its_cache_without_a_reboot_is_a_loss_of_power() {
    let mut checked = 0;
    for setup in SETUPS {
        for seed in 0..setup.seeds(3) {
            checked += cut_power_at_every_sync(Plan { same_boot: true, ..cut_plan(setup, seed) });
        }
        checked += cut_power_twice(Plan { same_boot: true, ops: 20, ..cut_plan(setup, 7) });
    }
    assert!(checked > 3_000_000, "only {checked} bytes had to survive");
}

/// The end of the last write of a map is zeros, other bytes, or missing, without a reboot.
#[test]
fn a_torn_tail_of_a_map_costs_only_what_was_never_synced() {
    let (setup, key) = (SETUPS[0], key(7, 0));
    let name = key.name() + ".map";
    let synced = text(50_000);
    let mut cut = 0;
    for (keeps_bytes, filling) in [(false, None), (true, Some(0)), (true, Some(0xa5))] {
        let mut sim = Sim::with_seed(5);
        let env = sim.node("node");
        let world = env.clone();
        let (name, synced) = (&name, &synced);
        cut += sim.block_on(&env, async move {
            let dir = world.dir(Path::new("/")).await.expect("dir");
            let target = open(&world, Path::new("/"), setup.module).await;
            write(&target, key, setup, 0, synced).await;
            target.sync(key).await.expect("sync");
            let durable = dir.meta(name).await.expect("meta").len.0;
            // Not synced: other bytes in place, and an append.
            write(&target, key, setup, 20_000, &[7; 9000]).await;
            write(&target, key, setup, 50_000, &[8; 700]).await;
            target.release();
            drop(target);
            let (map, container) = (content(&world, name).await, content(&world, &key.name()).await);
            let restore = async |bytes: &[u8]| {
                replace(&world, name, bytes).await;
                replace(&world, &key.name(), &container).await;
            };
            let mut cut = 0;
            for at in (durable as usize..map.len()).step_by(7) {
                let mut torn = map.clone();
                match (keeps_bytes, filling) {
                    (true, Some(byte)) => torn[at..].fill(byte),
                    _ => torn.truncate(at),
                }
                restore(&torn).await;
                let target = open(&world, Path::new("/"), setup.module).await;
                let found = read(&target, key, setup).await.unwrap_or_else(|error| panic!("{at}: {error}"));
                for (index, (found, before)) in found.iter().zip(synced).enumerate() {
                    let is_changed = (20_000..29_000).contains(&index);
                    assert!(found == before || is_changed && *found == 7, "byte {index}, torn at {at}");
                }
                assert!(found.len() >= synced.len() && found[synced.len()..].iter().all(|byte| *byte == 8));
                // It can be changed and synced again.
                write(&target, key, setup, 100, b"more").await;
                target.sync(key).await.expect("sync");
                let again = read(&target, key, setup).await.expect("read");
                assert!(again[..100] == found[..100] && &again[100..104] == b"more");
                target.release();
                drop(target);
                cut += 1;
                if keeps_bytes && filling == Some(0) {
                    // Zeros over frames that were synced are damage, never older bytes.
                    let mut bad = map.clone();
                    bad[durable as usize - 60..].fill(0);
                    restore(&bad).await;
                    let target = open(&world, Path::new("/"), setup.module).await;
                    let refused = read(&target, key, setup).await;
                    assert!(matches!(refused, Err(DatafileError::MapDamaged { .. })), "{refused:?}");
                    target.release();
                }
            }
            cut
        });
    }
    assert!(cut > 30, "only {cut} torn maps");
}

#[test]
fn checkpoints_survive_a_loss_of_power_at_any_sync() {
    let mut checked = 0;
    for seed in 0..4 {
        // The map is long enough for a checkpoint at the first sync.
        let setup = SETUPS[seed as usize % 2];
        checked += cut_power_at_every_sync(Plan { ops: 16, appends: 800, ..cut_plan(setup, seed) });
    }
    assert!(checked > 100_000, "only {checked} bytes had to survive");
}

#[test]
fn equal_bytes_in_space_that_is_used_again_are_no_damage() {
    let (setup, chunk_len) = (SETUPS[0], 16 << 10);
    let key = key(1, 0);
    let mut moved = 0;
    for seed in 0..400 {
        let mut sim = Sim::with_seed(seed);
        let env = sim.node("node");
        let world = env.clone();
        let old = text(chunk_len);
        sim.block_on(&env, async move {
            let target = open(&world, Path::new("/"), setup.module).await;
            write(&target, key, setup, 0, &[&old[..], &old].concat()).await;
            target.sync(key).await.expect("sync");
            // The first chunk gives up its new space, and the second one stores the same bytes there.
            write(&target, key, setup, 0, &vec![1; chunk_len]).await;
            write(&target, key, setup, 0, &noise(&mut Rng::new(seed), chunk_len)).await;
            write(&target, key, setup, chunk_len as u64, &vec![1; chunk_len]).await;
            target.release();
        });
        sim.control().power_cut(&env);
        let env = sim.restart(&env);
        let world = env.clone();
        let found = sim.block_on(&env, async move {
            let target = open(&world, Path::new("/"), setup.module).await;
            read(&target, key, setup).await.unwrap_or_else(|error| panic!("seed {seed}: {error}"))
        });
        let (first, second) = found.split_at(chunk_len);
        let known = [text(chunk_len), vec![1; chunk_len], noise(&mut Rng::new(seed), chunk_len)];
        assert!(known.iter().any(|bytes| bytes == first), "seed {seed}");
        assert!(known[..2].iter().any(|bytes| bytes == second), "seed {seed}");
        moved += usize::from(first == known[0] && second == known[1]);
    }
    assert!(moved > 10, "only {moved} losses of power kept the last write without the one before");
}

/// A hole hides the bytes that made the datafile long, and newer bytes take their space before any sync.
#[test]
fn a_datafile_keeps_the_length_of_bytes_whose_space_is_used_again() {
    for setup in SETUPS {
        let key = key(1, 0);
        let mut sim = Sim::with_seed(1);
        let env = sim.node("node");
        let world = env.clone();
        let newer = noise(&mut Rng::new(2), 3000);
        let bytes = newer.clone();
        sim.block_on(&env, async move {
            let target = open(&world, Path::new("/"), setup.module).await;
            write(&target, key, setup, 0, &noise(&mut Rng::new(1), 5000)).await;
            target.punch(key, LocalOffset(0), ByteLen(1 << 20)).await.expect("a hole");
            write(&target, key, setup, 100, &bytes).await;
            target.release();
        });
        sim.control().kill(&env);
        let env = sim.control().restart(&env);
        let world = env.clone();
        let found = sim.block_on(&env, async move {
            let target = open(&world, Path::new("/"), setup.module).await;
            read(&target, key, setup).await.expect("nothing is damaged")
        });
        let expected = [&[0; 100][..], &newer, &[0; 1900]].concat();
        assert!(found == expected, "{setup:?}: {} bytes", found.len());
    }
}

#[test]
fn a_killed_process_loses_nothing_that_it_answered() {
    let mut kept = 0;
    for setup in SETUPS {
        for seed in 0..setup.seeds(40) {
            eprintln!("{setup:?}, seed {seed}");
            let mut sim = Sim::with_seed(seed);
            let env = sim.node("node");
            let control = sim.control();
            let model = Arc::new(Mutex::new(Model::default()));
            let plan = Plan { setup, seed, ops: 200, may_remove: false, ..Plan::default() };
            sim.start(&env, "writer", run(env.clone(), "/".into(), plan, Arc::clone(&model)));
            sim.run_for(Nanos(Rng::new(seed + 1000).below(3_000_000_000)));
            control.kill(&env);
            let env = control.restart(&env);
            let world = env.clone();
            kept += sim.block_on(&env, async move {
                let target = open(&world, Path::new("/"), setup.module).await;
                let model = model.lock().expect("model").clone();
                let mut kept = 0;
                for (&key, it) in &model.datafiles {
                    let found = read(&target, key, setup).await.expect("nothing is damaged");
                    let (before, after) = (&it.bytes, it.next.as_ref().unwrap_or(&it.bytes));
                    assert!(found.len() == before.len() || found.len() == after.len(), "{key:?}");
                    check_known(key, &found, &[before.clone(), after.clone()]);
                    kept += found.len();
                }
                kept
            });
        }
    }
    assert!(kept > 1_000_000, "only {kept} bytes");
}

#[test]
fn flipped_bits_are_errors_and_never_wrong_bytes() {
    let (mut damaged, mut harmless) = ([0; 2], 0);
    for setup in SETUPS {
        for seed in 0..setup.seeds(12) {
            eprintln!("{setup:?}, seed {seed}");
            let mut sim = Sim::with_seed(seed);
            let env = sim.node("node");
            let model = Arc::new(Mutex::new(Model::default()));
            let plan = Plan { setup, seed, ops: 40, may_remove: false, ..Plan::default() };
            sim.block_on(&env, run(env.clone(), "/".into(), plan, Arc::clone(&model)));
            let (world, model) = (env.clone(), model.lock().expect("model").clone());
            let (found, fine) = sim.block_on(&env, async move {
                let dir = world.dir(Path::new("/")).await.expect("dir");
                let (mut rng, mut found, mut fine) = (Rng::new(seed), [0; 2], 0);
                for _ in 0..60 {
                    let nth = rng.below(model.datafiles.len() as u64) as usize;
                    let Some((&key, it)) = model.datafiles.iter().nth(nth) else { break };
                    let part = rng.below(2) as usize;
                    let name = key.name() + ["", ".map"][part];
                    let len = dir.meta(&name).await.expect("meta").len.0;
                    let bit = rng.below(len * 8);
                    let names = ["", ".map"].map(|suffix| key.name() + suffix);
                    let kept = [content(&world, &names[0]).await, content(&world, &names[1]).await];
                    flip(&world, &name, bit).await;
                    let target = open(&world, Path::new("/"), setup.module).await;
                    let step = target.scrub(None, ByteLen(1 << 30)).await.expect("scrub");
                    assert!(step.next.is_none() && step.unchecked.is_empty());
                    match read(&target, key, setup).await {
                        Ok(bytes) => {
                            // A write that was never synced may be taken for one that the disk has lost.
                            it.check_survivor(key, &bytes);
                            fine += 1;
                        }
                        Err(error) => {
                            assert_eq!(error.errno(), 5, "{error}");
                            assert!(error.to_string().contains(&key.name()), "{error}");
                            assert!(error.to_string().contains("target 4"), "{error}");
                            assert!(step.damaged.iter().all(|damage| damage.key == key));
                            assert!(!step.damaged.is_empty(), "a scrub finds it too: {error}");
                            found[part] += 1;
                        }
                    }
                    target.release();
                    drop(target);
                    // A recovery may have replaced the map.
                    for (name, bytes) in names.iter().zip(&kept) {
                        replace(&world, name, bytes).await;
                    }
                }
                (found, fine)
            });
            harmless += fine;
            (0..2).for_each(|part| damaged[part] += found[part]);
        }
    }
    assert!(damaged.iter().all(|count| *count > 100) && harmless > 100, "{damaged:?}, {harmless} harmless");
}

#[test]
fn a_missing_map_is_an_error_once_it_was_synced() {
    for (is_synced, has_lost_power) in [(true, false), (true, true), (false, false), (false, true)] {
        eprintln!("synced: {is_synced}, power lost: {has_lost_power}");
        let mut sim = Sim::with_seed(3);
        let env = sim.node("node");
        let world = env.clone();
        let setup = SETUPS[0];
        let key = key(7, 0);
        sim.block_on(&env, async move {
            let target = open(&world, Path::new("/"), setup.module).await;
            write(&target, key, setup, 0, &text(40_000)).await;
            if is_synced {
                target.sync(key).await.expect("sync");
            }
            let dir = world.dir(Path::new("/")).await.expect("dir");
            for name in ["objects/07", ""] {
                dir.sync(name).await.expect("sync of the names");
            }
            dir.open(&key.name(), OpenMode::READ).await.expect("open").sync().await.expect("sync");
            dir.remove(&(key.name() + ".map")).await.expect("remove");
            dir.sync("objects/07").await.expect("sync of the names");
            target.release();
        });
        let env = if has_lost_power {
            sim.control().power_cut(&env);
            sim.restart(&env)
        } else {
            env
        };
        let world = env.clone();
        sim.block_on(&env, async move {
            let target = open(&world, Path::new("/"), setup.module).await;
            let required = target.require_format(key, setup.format()).await;
            if !is_synced && has_lost_power {
                required.expect("it was never synced");
                assert_eq!(target.meta(key).await.expect("meta").expect("a datafile").len, ByteLen(0));
                write(&target, key, setup, 5, b"bytes").await;
                assert_eq!(read(&target, key, setup).await.expect("read"), b"\0\0\0\0\0bytes");
                return;
            }
            let error = required.expect_err("where are the bytes?");
            assert!(matches!(error, DatafileError::MapMissing { .. }), "{error}");
            assert_eq!(error.errno(), 5);
            assert!(error.to_string().contains("target 4") && error.to_string().contains(".map"), "{error}");
            let refused = target.prepare(key, setup.format()).await;
            assert!(matches!(refused, Err(DatafileError::MapMissing { .. })), "{refused:?}");
            assert!(target.write(key, LocalOffset(0), b"bytes").await.is_err());
            let mut byte = [0];
            assert!(target.read(key, LocalOffset(0), &mut byte).await.is_err(), "also without a requirement");
            let step = target.scrub(None, ByteLen(1 << 30)).await.expect("scrub");
            assert_eq!(step.damaged.len(), 1);
            assert_eq!(target.list(None, 9).await.expect("list"), [(key, ByteLen::UNKNOWN)]);
            target.remove(key).await.expect("it can be removed");
        });
    }
}

#[test]
fn a_plain_datafile_is_not_taken_for_a_compressed_one() {
    for setup in [SETUPS[0], SETUPS[2]] {
        // Real files, because only they reject direct reads that are not aligned.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        block_on(check_plain_datafile(folder.path(), setup));
    }
}

async fn check_plain_datafile(path: &Path, setup: Setup) {
    let target = open(&RealEnv::new(), path, setup.module).await;
    target.write(key(1, 0), LocalOffset(0), b"plain").await.expect("write");
    for refused in [
        target.require_format(key(1, 0), setup.format()).await,
        target.prepare(key(1, 0), setup.format()).await,
    ] {
        assert!(matches!(refused, Err(DatafileError::MapMissing { .. })), "{refused:?}");
    }
    target.prepare(key(1, 0), DatafileFormat::default()).await.expect("plain");
    let mut bytes = [0; 5];
    target.read(key(1, 0), LocalOffset(0), &mut bytes).await.expect("read");
    assert_eq!(&bytes, b"plain");
    // An empty one becomes compressed.
    target.set_len(key(1, 0), ByteLen(0)).await.expect("truncated");
    write(&target, key(1, 0), setup, 0, b"bytes").await;
    assert!(target.chunk_stats(key(1, 0)).await.expect("stats").is_some());
    // A compressed one stays compressed, whatever is requested later.
    target.prepare(key(1, 0), DatafileFormat::default()).await.expect("prepare");
    target.write(key(1, 0), LocalOffset(5), b"more").await.expect("write");
    assert_eq!(read(&target, key(1, 0), setup).await.expect("read"), b"bytesmore");
    assert!(target.is_plain(DatafileFormat::default()) && !target.is_plain(setup.format()));
}

#[test]
fn the_descriptor_of_a_compressed_datafile_is_never_lent() {
    simulate(1, |world| async move {
        let setup = SETUPS[0];
        let target = open(&world, Path::new("/"), Module::Buffered).await;
        write(&target, key(9, 0), setup, 0, &text(50_000)).await;
        assert!(matches!(target.file_to_send(key(9, 0)).await.expect("asked"), ToSend::Bytes));
        for write in [false, true] {
            assert!(target.lease_file(key(9, 0), write).await.expect("asked").is_none());
        }
        target.sync(key(9, 0)).await.expect("sync");
        let dir = world.dir(Path::new("/")).await.expect("dir");
        let names = dir.list("objects/09").await.expect("list");
        assert_eq!(names, ["0000000000000009.0.0", "0000000000000009.0.0.map"]);
        assert_eq!(target.list(None, 10).await.expect("list"), [(key(9, 0), ByteLen(50_000))]);
        target.remove(key(9, 0)).await.expect("remove");
        assert!(dir.list("objects/09").await.expect("list").is_empty());
        write(&target, key(9, 0), setup, 1, b"b").await;
        assert_eq!(read(&target, key(9, 0), setup).await.expect("read"), b"\0b");
    });
}

#[test]
fn a_full_disk_loses_nothing() {
    for setup in SETUPS {
        for seed in 0..6 {
            eprintln!("{setup:?}, seed {seed}");
            let mut sim = Sim::with_seed(seed);
            let env = sim.node("node");
            let (world, control) = (env.clone(), sim.control());
            sim.block_on(&env, async move {
                let target = open(&world, Path::new("/"), setup.module).await;
                let mut rng = Rng::new(seed);
                // Bytes that compress well, everywhere.
                let mut model = text(600_000);
                write(&target, key(1, 0), setup, 0, &model).await;
                target.settle(key(1, 0)).await.expect("settle");
                let used = target.space().await.expect("space");
                let capacity_bytes = used.total.0 - used.free.0 + 300_000;
                control.set_disk_faults(
                    &world,
                    Path::new("/"),
                    DiskFaults { capacity_bytes, ..DiskFaults::default() },
                );
                // Bytes that do not compress replace them until nothing fits.
                let mut refused = 0;
                while refused < 20 {
                    let (a, b) = (rng.below(600_000) as usize, rng.below(600_000) as usize);
                    let (start, end) = (a.min(b), a.max(b).min(a.min(b) + 100_000));
                    let new = noise(&mut rng, end - start);
                    let written = target.write(key(1, 0), LocalOffset(start as u64), &new).await;
                    let found = read(&target, key(1, 0), setup).await.expect("nothing is lost");
                    match written {
                        Ok(()) => model[start..end].copy_from_slice(&new),
                        Err(error) => {
                            assert!(matches!(error, DatafileError::NoSpace { .. }), "{error}");
                            refused += 1;
                            // A part may have been written.
                            for at in start..end {
                                assert!(
                                    found[at] == model[at] || found[at] == new[at - start],
                                    "byte {at} is neither old nor new"
                                );
                            }
                            model[start..end].copy_from_slice(&found[start..end]);
                        }
                    }
                    assert!(found == model);
                }
                let _ = target.sync(key(1, 0)).await;
                target.release();
                drop(target);
                if setup.module == Module::Direct {
                    // The start writes a block, to test the file system.
                    let faults =
                        DiskFaults { capacity_bytes: capacity_bytes + 4096, ..DiskFaults::default() };
                    control.set_disk_faults(&world, Path::new("/"), faults);
                }
                let target = open(&world, Path::new("/"), setup.module).await;
                assert!(read(&target, key(1, 0), setup).await.expect("read") == model);
                // It can shrink, and then be written again.
                target.set_len(key(1, 0), ByteLen(1000)).await.expect("a full disk can be emptied");
                target.settle(key(1, 0)).await.expect("settle");
                write(&target, key(1, 0), setup, 1000, &noise(&mut rng, 100_000)).await;
                target.sync(key(1, 0)).await.expect("sync");
            });
        }
    }
}

#[test]
fn concurrent_writers_of_one_chunk_keep_each_others_bytes() {
    const TASKS: u64 = 6;
    const STRIPE: u64 = 700;
    for seed in 0..20 {
        eprintln!("seed {seed}");
        let setup = SETUPS[seed as usize % SETUPS.len()];
        let mut sim = Sim::with_seed(seed);
        let env = sim.node("node");
        let world = env.clone();
        let key = key(9, 0);
        let target =
            sim.block_on(&env, async move { Arc::new(open(&world, Path::new("/"), setup.module).await) });
        for task in 0..TASKS {
            let target = Arc::clone(&target);
            env.spawn("task", move || async move {
                let mut rng = Rng::new(seed * 100 + task);
                let mut model = [0_u8; 40];
                for round in 0..60 {
                    let row = rng.below(40);
                    let at = (row * TASKS + task) * STRIPE;
                    match rng.below(8) {
                        0 => {
                            target.settle(key).await.expect("settle");
                        }
                        1 => target.sync(key).await.expect("sync"),
                        2 => {
                            target.punch(key, LocalOffset(at), ByteLen(STRIPE)).await.expect("punch");
                            model[row as usize] = 0;
                        }
                        3 | 4 => {
                            let mut bytes = vec![0xee; STRIPE as usize];
                            let (got, _) = target.read(key, LocalOffset(at), &mut bytes).await.expect("read");
                            let expected = model[row as usize];
                            assert!(
                                bytes[..got].iter().all(|byte| *byte == expected),
                                "task {task}, row {row}"
                            );
                            assert!(got as u64 == STRIPE || expected == 0);
                        }
                        _ => {
                            let fill = (round + 1) as u8;
                            write(&target, key, setup, at, &[fill; STRIPE as usize]).await;
                            model[row as usize] = fill;
                        }
                    }
                }
                for (row, expected) in model.iter().enumerate() {
                    let at = (row as u64 * TASKS + task) * STRIPE;
                    let mut bytes = vec![0; STRIPE as usize];
                    target.read(key, LocalOffset(at), &mut bytes).await.expect("read");
                    assert!(bytes.iter().all(|byte| byte == expected), "task {task}, row {row}");
                }
            })
            .expect("a task");
        }
        sim.run();
        assert_eq!(target.damage(), (0, 0));
    }
}

#[test]
fn compressible_bytes_take_less_space_and_incompressible_ones_no_more() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    block_on(async {
        let env = RealEnv::new();
        let target = open(&env, folder.path(), Module::Buffered).await;
        let mut rng = Rng::new(1);
        let len = 4 << 20;
        for (file, setup) in (0..).zip(SETUPS) {
            let chunk_len = setup.compression().chunk_len();
            let stored = async |column: u16| {
                target.settle(key(file, column)).await.expect("settle");
                let meta = target.meta(key(file, column)).await.expect("meta").expect("a datafile");
                assert_eq!(meta.len, ByteLen(len), "{setup:?}");
                let stats = target.chunk_stats(key(file, column)).await.expect("stats").expect("compressed");
                assert_eq!(stats.overlay, ByteLen(0));
                (stats.stored.0, meta.blocks_512 * 512)
            };
            write(&target, key(file, 0), setup, 0, &text(len as usize)).await;
            let (bytes, blocks) = stored(0).await;
            assert!(bytes < len / 2 && blocks < len / 2, "{setup:?}: {bytes} of {len}, {blocks} allocated");
            write(&target, key(file, 1), setup, 0, &noise(&mut rng, len as usize)).await;
            let (bytes, blocks) = stored(1).await;
            assert_eq!(bytes, len, "{setup:?}");
            let map = 64 + len / chunk_len * 100;
            assert!(blocks <= len + map.next_multiple_of(4096) + 12_288, "{setup:?}: {blocks} allocated");
            // Zeros take no space, in holes and in writes.
            write(&target, key(file, 2), setup, 0, &vec![0; len as usize]).await;
            assert_eq!(stored(2).await.0, 0);
            assert_eq!(target.seek_data(key(file, 2), LocalOffset(5)).await.expect("seek"), None);
            target.punch(key(file, 1), LocalOffset(0), ByteLen(len - 5)).await.expect("punch");
            let (bytes, blocks) = stored(1).await;
            assert!(bytes <= chunk_len && blocks < 100_000 + chunk_len, "{bytes} bytes in {blocks}");
            let data = target.seek_data(key(file, 1), LocalOffset(0)).await.expect("seek");
            assert_eq!(data.map(|at| at.0 / chunk_len), Some((len - 1) / chunk_len));
        }
    });
}

#[test]
fn space_that_is_overwritten_is_used_again() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    block_on(async {
        let env = RealEnv::new();
        let target = open(&env, folder.path(), Module::Buffered).await;
        let (setup, mut rng, len) = (SETUPS[1], Rng::new(1), 2_u64 << 20);
        for round in 0..40 {
            let start = if round % 2 == 0 { 0 } else { rng.below(len / 2) };
            write(&target, key(1, 0), setup, start, &noise(&mut rng, (len - start) as usize)).await;
            if round % 3 == 0 {
                target.sync(key(1, 0)).await.expect("sync");
            }
            let blocks = target.meta(key(1, 0)).await.expect("meta").expect("a datafile").blocks_512 * 512;
            assert!(blocks < 24 << 20, "round {round}: {blocks} bytes for {len}");
        }
        target.settle(key(1, 0)).await.expect("settle");
        let blocks = target.meta(key(1, 0)).await.expect("meta").expect("a datafile").blocks_512 * 512;
        assert!(blocks < len + len / 8, "{blocks} bytes for {len}");
        // Small writes everywhere keep the overlay within its bound.
        for _ in 0..3000 {
            let at = rng.below(64 << 20);
            write(&target, key(2, 0), setup, at, &text(100)).await;
        }
        let stats = target.chunk_stats(key(2, 0)).await.expect("stats").expect("compressed");
        assert!(stats.overlay.0 <= 1024 * 512 * 8, "{stats:?}");
    });
}

#[test]
fn idle_datafiles_are_folded_and_keep_their_times() {
    simulate(1, |world| async move {
        let setup = SETUPS[0];
        let target = open(&world, Path::new("/"), setup.module).await;
        assert_eq!(target.seal_idle().await, 0);
        write(&target, key(1, 0), setup, 5, &text(9000)).await;
        let stats = async || target.chunk_stats(key(1, 0)).await.expect("stats").expect("compressed");
        assert_eq!(stats().await.stored, ByteLen(9216), "raw");
        assert!(!target.has_idle() && target.seal_idle().await == 0 && target.unsettled_count() == 1);
        let mtime = target.meta(key(1, 0)).await.expect("meta").expect("a datafile").mtime;
        world.sleep(FOLD_IDLE).await;
        assert!(target.has_idle());
        assert_eq!(target.seal_idle().await, 0, "folded, not settled");
        let folded = stats().await;
        assert!(folded.overlay == ByteLen(0) && folded.stored < ByteLen(5000), "{folded:?}");
        world.sleep(SEAL_IDLE).await;
        assert_eq!(target.seal_idle().await, 1);
        assert_eq!(target.unsettled_count(), 0);
        let meta = target.meta(key(1, 0)).await.expect("meta").expect("a datafile");
        assert_eq!((meta.mtime, meta.len), (mtime, ByteLen(9005)));
        assert!(read(&target, key(1, 0), setup).await.expect("read")[5..] == text(9000));
        // A datafile that is written all the time is folded, too, but not before.
        for round in 0..20 {
            write(&target, key(1, 0), setup, 9005 + round * 10, &text(10)).await;
            world.sleep(Nanos(FOLD_IDLE.0 / 2)).await;
            target.seal_idle().await;
        }
        assert!(stats().await.overlay > ByteLen(0));
        let modified = target.meta(key(1, 0)).await.expect("meta").expect("a datafile").mtime;
        assert!(modified > mtime);
        target.set_mtime(key(1, 0), mtime).await.expect("set");
        target.settle(key(1, 0)).await.expect("settle");
        assert_eq!(target.meta(key(1, 0)).await.expect("meta").expect("a datafile").mtime, mtime);
    });
}

#[test]
fn a_datafile_that_was_settled_with_a_checkpoint_is_settled_again() {
    simulate(1, |world| async move {
        let (setup, key) = (SETUPS[0], key(1, 0));
        let target = open(&world, Path::new("/"), setup.module).await;
        // The map is long enough for a checkpoint.
        for number in 0..900 {
            write(&target, key, setup, number * 9, b"new bytes").await;
        }
        world.sleep(SEAL_IDLE).await;
        assert_eq!((target.seal_idle().await, target.unsettled_count()), (1, 0));
        write(&target, key, setup, 5, b"bytes").await;
        assert_eq!(target.unsettled_count(), 1);
        world.sleep(SEAL_IDLE).await;
        assert_eq!((target.seal_idle().await, target.unsettled_count()), (1, 0));
    });
}

#[test]
fn a_modification_time_is_kept_while_the_datafile_is_synced() {
    for seed in 0..100 {
        let mut sim = Sim::with_seed(seed);
        let env = sim.node("node");
        let (world, key) = (env.clone(), key(1, 0));
        let target = sim.block_on(&env, async move {
            let target = Arc::new(open(&world, Path::new("/"), SETUPS[0].module).await);
            // Of some lengths a checkpoint follows.
            for number in 0..(seed % 2) * 800 + 3 {
                write(&target, key, SETUPS[0], number * 9, b"new bytes").await;
            }
            target
        });
        let syncing = Arc::clone(&target);
        env.spawn("sync", move || async move { syncing.sync(key).await.expect("sync") }).expect("a task");
        let (setting, world) = (Arc::clone(&target), env.clone());
        let time = Timestamp::from_parts(1234, 5);
        env.spawn("set", move || async move {
            world.sleep(Nanos(Rng::new(seed).below(40_000_000))).await;
            setting.set_mtime(key, time).await.expect("set");
        })
        .expect("a task");
        sim.run();
        let meta = sim.block_on(&env, async move { target.meta(key).await.expect("meta") });
        assert_eq!(meta.expect("a datafile").mtime, time, "seed {seed}");
    }
}

#[test]
fn a_checkpoint_that_does_not_fit_leaves_nothing_behind() {
    let mut sim = Sim::with_seed(1);
    let env = sim.node("node");
    let (world, control) = (env.clone(), sim.control());
    sim.block_on(&env, async move {
        let (setup, key) = (SETUPS[0], key(1, 0));
        let target = open(&world, Path::new("/"), setup.module).await;
        write(&target, key, setup, 0, &text(2 << 20)).await;
        for number in 0..900 {
            write(&target, key, setup, (2 << 20) + number * 9, b"new bytes").await;
        }
        let space = target.space().await.expect("space");
        let capacity_bytes = space.total.0 - space.free.0;
        let faults = DiskFaults { capacity_bytes, ..DiskFaults::default() };
        control.set_disk_faults(&world, Path::new("/"), faults);
        target.sync(key).await.expect("the map is complete without the checkpoint");
        let dir = world.dir(Path::new("/")).await.expect("dir");
        let map_len = dir.meta("objects/01/0000000000000001.0.0.map").await.expect("meta").len.0;
        assert!(map_len > 64 << 10, "{map_len}");
        assert_eq!(dir.list("objects/01").await.expect("list").len(), 2);
        control.set_disk_faults(&world, Path::new("/"), DiskFaults::default());
        write(&target, key, setup, 0, b"bytes").await;
        target.sync(key).await.expect("sync");
        let shorter = dir.meta("objects/01/0000000000000001.0.0.map").await.expect("meta").len.0;
        assert!(shorter < map_len / 4, "{shorter} after {map_len}");
    });
}

#[test]
fn a_failed_sync_is_not_forgotten() {
    for seed in 0..20 {
        let mut sim = Sim::with_seed(seed);
        let env = sim.node("node");
        let (world, control) = (env.clone(), sim.control());
        sim.block_on(&env, async move {
            let setup = SETUPS[0];
            let target = open(&world, Path::new("/"), setup.module).await;
            let faults = |sync_errors_per_million| {
                let faults = DiskFaults { sync_errors_per_million, ..DiskFaults::default() };
                control.set_disk_faults(&world, Path::new("/"), faults);
            };
            write(&target, key(1, 0), setup, 0, &text(100_000)).await;
            faults(1_000_000);
            assert!(target.sync(key(1, 0)).await.is_err());
            faults(0);
            let again = target.sync(key(1, 0)).await;
            assert!(matches!(again, Err(DatafileError::Unsafe { .. })), "{again:?}");
            // Not even after the datafile was closed, which happens when others are opened.
            for other in 2..9 {
                write(&target, key(other, 0), setup, 0, b"bytes").await;
            }
            let again = target.sync(key(1, 0)).await;
            assert!(matches!(again, Err(DatafileError::Unsafe { .. })), "{again:?}");
            assert!(read(&target, key(1, 0), setup).await.expect("read") == text(100_000));
            target.set_len(key(1, 0), ByteLen(0)).await.expect("truncated");
            write(&target, key(1, 0), setup, 0, &text(50_000)).await;
            target.sync(key(1, 0)).await.expect("sync");
        });
        sim.control().power_cut(&env);
        let env = sim.restart(&env);
        let world = env.clone();
        sim.block_on(&env, async move {
            let target = open(&world, Path::new("/"), SETUPS[0].module).await;
            assert!(read(&target, key(1, 0), SETUPS[0]).await.expect("read") == text(50_000));
        });
    }
}

#[cfg(feature = "mutants")]
#[test]
fn seeded_bugs_are_found() {
    use weft_env::mutants::{self, Mutant};
    for mutant in [Mutant::TornMapEntry, Mutant::LostOverlay, Mutant::EarlyChunkReuse, Mutant::StaleChunk] {
        let found = (0..30).find(|&seed| {
            mutants::seed(Some(mutant));
            let setup = SETUPS[seed as usize % SETUPS.len()];
            let run = || cut_power_at_every_sync(cut_plan(setup, seed));
            let found = std::panic::catch_unwind(run).is_err();
            mutants::seed(None);
            found
        });
        eprintln!("{}: seed {found:?}", mutant.name());
        assert!(found.is_some(), "{} is not found", mutant.name());
    }
}
