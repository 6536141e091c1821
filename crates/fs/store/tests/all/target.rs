//! Recognition of target directories, and the errors for others.

use crate::target_support::{content, replace};
use std::fs;
use std::path::Path;
use weft_core::{AttachToken, FileId, Integrity, LocalOffset, ObjectId, TargetId};
use weft_env::real::{RealEnv, block_on};
use weft_env::sim::{DiskFaults, Sim, SimpleDisk};
use weft_env::{Dir, Env, File, OpenMode};
use weft_store::datafile::DatafileKey;
use weft_store::error::{DatafileError, TargetError};
use weft_store::identity::Identity;
use weft_store::target::{Module, Target, TargetSpec};

const KEY: DatafileKey = DatafileKey::new(FileId(1), ObjectId { component: 0, column: 0 });

fn spec(path: &Path, cluster: &str, id: u32) -> TargetSpec {
    TargetSpec {
        id: TargetId(id),
        cluster: cluster.into(),
        path: path.to_owned(),
        module: Module::Buffered,
        open_datafiles_max: 10,
        emulate: None,
        integrity: Integrity::Off,
    }
}

fn open(path: &Path, cluster: &str, id: u32) -> Result<Target<RealEnv>, TargetError> {
    block_on(Target::open(&RealEnv::new(), &spec(path, cluster, id)))
}

/// Returns the error of opening a directory; its message must name the path.
fn refusal(path: &Path, cluster: &str, id: u32) -> TargetError {
    let error = open(path, cluster, id).err().expect("refused");
    eprintln!("{error}");
    assert!(error.to_string().contains(path.to_str().expect("UTF-8")), "{error}");
    error
}

#[test]
fn only_one_server_may_open_a_target() {
    let folder = tempfile::tempdir().expect("a folder");
    let target = open(folder.path(), "mine", 3).expect("formatted");
    assert!(matches!(refusal(folder.path(), "mine", 3), TargetError::Locked { .. }));
    drop(target);
    assert!(matches!(refusal(folder.path(), "mine", 4), TargetError::Foreign { .. }));
    assert!(matches!(refusal(folder.path(), "other", 3), TargetError::Foreign { .. }));
    open(folder.path(), "mine", 3).expect("still its own");
    assert!(matches!(refusal(&folder.path().join("missing"), "mine", 3), TargetError::Io { .. }));
}

#[test]
fn a_directory_with_other_content_is_rejected() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("thesis.tex"), "years of work").expect("a file");
    assert!(matches!(refusal(folder.path(), "mine", 3), TargetError::NotEmpty { .. }));
    assert!(!folder.path().join("objects").exists(), "and left alone");
}

#[test]
fn a_damaged_or_missing_identity_is_detected() {
    let folder = tempfile::tempdir().expect("a folder");
    let target = open(folder.path(), "mine", 3).expect("formatted");
    block_on(target.write(KEY, LocalOffset(0), b"precious")).expect("written");
    drop(target);
    let identity = folder.path().join("weft-target");
    let good = fs::read(&identity).expect("the identity");
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x40;
        fs::write(&identity, &bad).expect("damage");
        assert!(matches!(refusal(folder.path(), "mine", 3), TargetError::Damaged { .. }), "byte {at}");
    }
    for bad in [&good[..20], &[], &[&good[..], b"x"].concat()] {
        fs::write(&identity, bad).expect("damage");
        assert!(matches!(refusal(folder.path(), "mine", 3), TargetError::Damaged { .. }));
    }
    let mut later = good.clone();
    later[8] = 3;
    let end = later.len() - 4;
    let crc = crc32fast::hash(&later[..end]).to_le_bytes();
    later[end..].copy_from_slice(&crc);
    fs::write(&identity, &later).expect("another version");
    assert!(matches!(refusal(folder.path(), "mine", 3), TargetError::Version { found: 3, .. }));
    fs::remove_file(&identity).expect("lost");
    assert!(matches!(refusal(folder.path(), "mine", 3), TargetError::IdentityGone { .. }));
    fs::write(&identity, &good).expect("from the backup");
    let target = open(folder.path(), "mine", 3).expect("as before");
    let mut bytes = [0; 8];
    block_on(target.read(KEY, LocalOffset(0), &mut bytes)).expect("read");
    assert_eq!(&bytes, b"precious");
}

#[test]
fn full_and_broken_devices_have_distinct_errors() {
    let mut sim = Sim::with_seed(1);
    let env = sim.node("node");
    let (world, control) = (env.clone(), sim.control());
    sim.add_disk(&env, Path::new("/small"), Box::new(SimpleDisk::default()));
    sim.block_on(&env, async move {
        let path = Path::new("/small");
        let target = Target::open(&world, &spec(path, "mine", 3)).await.expect("formatted");
        let full = DiskFaults { capacity_bytes: 1 << 20, ..DiskFaults::default() };
        control.set_disk_faults(&world, path, full);
        target.write(KEY, LocalOffset(0), &[1; 1 << 19]).await.expect("room");
        let error = target.write(KEY, LocalOffset(1 << 19), &[1; 1 << 20]).await.expect_err("no room");
        assert!(matches!(error, DatafileError::NoSpace { .. }), "{error}");
        assert!(error.to_string().contains("/small/objects/01/0000000000000001.0.0"), "{error}");
        assert_eq!(error.errno(), 28);
        let broken = DiskFaults { sync_errors_per_million: 1_000_000, ..DiskFaults::default() };
        control.set_disk_faults(&world, path, broken);
        let error = target.sync(KEY).await.expect_err("broken");
        assert!(matches!(error, DatafileError::Device { .. }), "{error}");
        assert_eq!(error.errno(), 5);
        // The system may have dropped the bytes, so no sync may report them as safe.
        control.set_disk_faults(&world, path, DiskFaults::default());
        let error = target.sync(KEY).await.expect_err("it is still unknown which bytes were lost");
        assert_eq!(error.errno(), 5, "{error}");
        target.set_len(KEY, weft_core::ByteLen(0)).await.expect("begun anew");
        target.sync(KEY).await.expect("no old bytes are left");
    });
}

#[test]
fn a_target_starts_on_a_full_disk_so_that_files_can_be_removed() {
    for (seed, module) in [(1, Module::Buffered), (2, Module::Direct)] {
        let mut sim = Sim::with_seed(seed);
        let env = sim.node("node");
        let (world, control) = (env.clone(), sim.control());
        sim.add_disk(&env, Path::new("/small"), Box::new(SimpleDisk::default()));
        let path = Path::new("/small");
        let spec = TargetSpec { module, ..spec(path, "mine", 3) };
        let wanted = spec.clone();
        sim.block_on(&env, async move {
            let mut other = Identity::new("mine", TargetId(3));
            let target = Target::open(&world, &spec).await.expect("formatted");
            target.write(KEY, LocalOffset(0), &[1; 1 << 19]).await.expect("room");
            target.sync(KEY).await.expect("sync");
            let space = target.space().await.expect("space");
            let full = DiskFaults { capacity_bytes: space.total.0 - space.free.0, ..DiskFaults::default() };
            control.set_disk_faults(&world, path, full);
            assert!(target.write(KEY, LocalOffset(1 << 19), &[1; 4096]).await.is_err(), "no room");
            target.release();
            drop(target);
            // As an attach does, which records a new token each time.
            for counter in 1..4 {
                let mut unattached = Target::inspect(&world, &spec).await.expect("its own");
                other.latest = AttachToken { counter, nonce: 7 };
                unattached.store(&other).await.expect("stored without space");
                let found = Target::inspect(&world, &spec).await;
                assert!(matches!(found, Err(TargetError::Locked { .. })));
                unattached.open().await.expect("opened without space").release();
                let found = Target::inspect(&world, &spec).await.expect("its own");
                assert_eq!(found.found(), Some(&other));
            }
            let names = world.dir(path).await.expect("dir").list("").await.expect("list");
            assert!(!names.iter().any(|name| name.ends_with(".new")), "{names:?}");
        });
        sim.power_cut(&env);
        let env = sim.restart(&env);
        let (world, spec) = (env.clone(), wanted);
        sim.block_on(&env, async move {
            let found = Target::inspect(&world, &spec).await.expect("undamaged");
            assert_eq!(found.found().expect("an identity").latest.counter, 3);
            let target = found.open().await.expect("opened");
            target.tombstone(KEY).await;
            target.remove(KEY).await.expect("removed");
            target.sync_removals(&[KEY]).await.expect("synced");
            let other = DatafileKey::new(FileId(2), ObjectId { component: 0, column: 0 });
            target.write(other, LocalOffset(0), &[1; 1 << 18]).await.expect("room again");
        });
    }
}

/// Damages the end of a file of records, and says what was done.
type Damage = (&'static str, fn(&mut Vec<u8>));

/// Each of these damages spares all records but the last one.
const DAMAGES: [Damage; 5] = [
    ("a zeroed last record", |bytes| {
        let end = bytes.len();
        bytes[end - 10..].fill(0);
    }),
    ("a cut last record", |bytes| bytes.truncate(bytes.len() - 5)),
    ("a flipped bit in the last record", |bytes| *bytes.last_mut().expect("records") ^= 4),
    ("zeros behind the end", |bytes| bytes.resize(bytes.len() + 5000, 0)),
    ("other bytes behind the end", |bytes| bytes.resize(bytes.len() + 333, 0xa5)),
];

#[test]
fn a_torn_end_of_fences_seals_and_tombstones_costs_the_last_record_only() {
    const FAR: u64 = 1 << 40;
    for (damage, damaged) in DAMAGES {
        for has_rebooted in [false, true] {
            let mut sim = Sim::with_seed(3);
            let env = sim.node("node");
            let world = env.clone();
            sim.block_on(&env, async move {
                let target = Target::open(&world, &spec(Path::new("/"), "mine", 3)).await.expect("formatted");
                for file in 1..5 {
                    target.fence(FileId(file), FAR).await;
                    target.seal(FileId(file), FAR).await.expect("sealed");
                    target.tombstone(DatafileKey { file: FileId(file), ..KEY }).await;
                }
                target.sync_removals(&[KEY]).await.expect("synced");
                target.release();
                drop(target);
                for name in ["fences", "seals", "removed"] {
                    let mut bytes = content(&world, name).await;
                    damaged(&mut bytes);
                    replace(&world, name, &bytes).await;
                    let dir = world.dir(Path::new("/")).await.expect("dir");
                    dir.open(name, OpenMode::WRITE).await.expect("open").sync().await.expect("sync");
                    dir.sync("").await.expect("sync");
                }
            });
            let env = match has_rebooted {
                true => {
                    sim.power_cut(&env);
                    sim.restart(&env)
                }
                false => env,
            };
            let world = env.clone();
            sim.block_on(&env, async move {
                for round in 0..2 {
                    let about = format!("{damage}, rebooted: {has_rebooted}, start {round}");
                    let opened = Target::open(&world, &spec(Path::new("/"), "mine", 3)).await;
                    let target = opened.unwrap_or_else(|error| panic!("{about}: {error}"));
                    for file in 1..4 + round {
                        assert!(target.is_fenced(FileId(file), FAR - 1), "{about}: fence {file}");
                        assert!(target.is_sealed(FileId(file), FAR - 1), "{about}: seal {file}");
                        let key = DatafileKey { file: FileId(file), ..KEY };
                        let late = target.write(key, LocalOffset(0), b"late").await;
                        assert!(
                            matches!(late, Err(DatafileError::Removed { .. })),
                            "{about}: tombstone {file}"
                        );
                    }
                    // New records follow the damaged one.
                    target.fence(FileId(4), FAR).await;
                    target.seal(FileId(4), FAR).await.expect("sealed");
                    target.tombstone(DatafileKey { file: FileId(4), ..KEY }).await;
                    target.release();
                }
            });
        }
    }
}
