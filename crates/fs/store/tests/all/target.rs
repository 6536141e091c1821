//! Recognition of target directories, and the errors for others.

use std::fs;
use std::path::Path;
use weft_core::{FileId, Integrity, LocalOffset, ObjectId, TargetId};
use weft_env::real::{RealEnv, block_on};
use weft_env::sim::{DiskFaults, Sim, SimpleDisk};
use weft_store::datafile::DatafileKey;
use weft_store::error::{DatafileError, TargetError};
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
