//! Disks of the simulated world that are removed, copied, reinserted and damaged.

use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use weft_core::LocalOffset;
use weft_env::sim::{DiskFaults, Sim, SimEnv, SimpleDisk};
use weft_env::{Create, Dir, Env, File, OpenMode};

const DISK: &str = "/d";

async fn write(env: &SimEnv, name: &str, text: &str) {
    let dir = env.dir(Path::new(DISK)).await.expect("a disk");
    let mode = OpenMode { write: true, create: Create::IfMissing, direct: false };
    let file = dir.open(name, mode).await.expect("created");
    file.write_at(&[IoSlice::new(text.as_bytes())], LocalOffset(0)).await.expect("written");
}

async fn read(env: &SimEnv, name: &str) -> Option<String> {
    let dir = env.dir(Path::new(DISK)).await.expect("a disk");
    let file = dir.open(name, OpenMode::READ).await.ok()?;
    let mut bytes = [0; 64];
    let count = file.read_at(&mut [IoSliceMut::new(&mut bytes)], LocalOffset(0)).await.expect("read");
    Some(String::from_utf8_lossy(&bytes[..count]).into_owned())
}

#[test]
fn a_copy_is_exact_and_the_original_disk_stays_intact() {
    let mut sim = Sim::with_seed(1);
    let node = sim.node("a");
    let (control, path) = (sim.control(), Path::new(DISK));
    control.add_disk(&node, path, Box::new(SimpleDisk::default()));
    let env = node.clone();
    let model = || Box::new(SimpleDisk::default());
    sim.block_on(&node, async move {
        env.dir(path).await.expect("a disk").make_dir("folder").await.expect("created");
        write(&env, "folder/file", "old").await;
        let copy = control.copy_disk(&env, path, model());
        write(&env, "folder/file", "new, and longer").await;
        write(&env, "other", "x").await;
        let small = DiskFaults { capacity_bytes: 1 << 20, ..DiskFaults::default() };
        control.set_disk_faults(&env, path, small);

        let right = control.swap_disk(&env, path, control.blank_disk(model()));
        assert!(control.files_on(&env, path).is_empty());
        assert_eq!(env.dir(path).await.expect("a disk").space().await.expect("known").total.0, 1 << 20);
        let _blank = control.swap_disk(&env, path, copy);
        assert_eq!(read(&env, "folder/file").await.as_deref(), Some("old"));
        assert_eq!(read(&env, "other").await, None);
        control.swap_disk(&env, path, right);
        assert_eq!(read(&env, "folder/file").await.as_deref(), Some("new, and longer"));
        assert_eq!(control.files_on(&env, path), [("folder/file".into(), 15), ("other".into(), 1)]);
    });
    // Nothing was synced, but removing the disk has written everything back.
    sim.power_cut(&node);
    let node = sim.restart(&node);
    let env = node.clone();
    let found = sim.block_on(&node, async move { read(&env, "folder/file").await });
    assert_eq!(found.as_deref(), Some("new, and longer"));
}

#[test]
fn damage_affects_the_medium_at_the_requested_place() {
    let mut sim = Sim::with_seed(2);
    let node = sim.node("a");
    let (control, path) = (sim.control(), Path::new(DISK));
    control.add_disk(&node, path, Box::new(SimpleDisk::default()));
    let env = node.clone();
    let damage = control.clone();
    sim.block_on(&node, async move {
        for name in ["flipped", "cut", "gone", "whole"] {
            write(&env, name, "abcdef").await;
        }
        damage.flip_bits(&env, path, "flipped", 2, 1).expect("exists");
        damage.cut_file(&env, path, "cut", 3).expect("exists");
        damage.remove_file(&env, path, "gone").expect("exists");
        assert!(damage.remove_file(&env, path, "gone").is_err());
        assert!(damage.cut_file(&env, path, "nothing", 0).is_err());
        env.dir(path).await.expect("a disk").sync("").await.expect("synced");
    });
    sim.power_cut(&node);
    let node = sim.restart(&node);
    let env = node.clone();
    sim.block_on(&node, async move {
        assert_eq!(read(&env, "flipped").await.as_deref(), Some("abbdef"));
        assert_eq!(read(&env, "cut").await.as_deref(), Some("abc"));
        assert_eq!(read(&env, "gone").await, None);
    });
}
