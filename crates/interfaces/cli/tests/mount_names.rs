//! The kernel of a mount uses names and attributes of a listing, and never outdated ones.

mod common;

use common::mounts::{self, Mounted};
use common::{Embedded, Random, until};
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const STEPS: u64 = 700;
const DIRECTORIES: u64 = 6;

/// Requests to the metadata service so far.
fn requests(cluster: &Embedded) -> u64 {
    let status = cluster.status();
    let metadata = status.iter().find_map(|server| server["metadata"]["requests"].as_u64());
    metadata.expect("the metadata service reports")
}

#[test]
fn a_listing_brings_the_attributes_of_all_files() {
    if !mounts::possible() {
        return;
    }
    if !weft_fuse::kernel_lets_names_expire() {
        common::skip::skip_on_this_machine("mounts use names of listings only from Linux 6.2 on");
        return;
    }
    const FILES: u64 = 3000;
    let cluster = Embedded::started();
    let mount = Mounted::new(&cluster, "mount");
    std::fs::create_dir(mount.at("d")).expect("made");
    for number in 0..FILES {
        std::fs::write(mount.at(&format!("d/{number}")), vec![0; (number % 100) as usize]).expect("written");
    }
    // A mount listens for changes soon after it has connected.
    until(Duration::from_secs(20), "few requests", || {
        let before = requests(&cluster);
        let listed =
            Command::new("ls").arg("-l").arg(mount.at("d")).env("LC_ALL", "C").output().expect("ls runs");
        let made = requests(&cluster) - before;
        let text = String::from_utf8(listed.stdout).expect("text");
        assert!(listed.status.success(), "{text}");
        let sizes: u64 =
            text.lines().filter_map(|line| line.split_whitespace().nth(4)?.parse::<u64>().ok()).sum();
        assert_eq!(sizes, (0..FILES).map(|number| number % 100).sum::<u64>());
        // Entries come by some hundreds; each stat and getxattr of its own would be 6,000.
        (made < FILES / 10).then_some(())
    });
}

/// Mode of an inode and, for a file, its length.
type Known = (u32, Option<u64>);

fn known(path: &Path) -> Option<Known> {
    match std::fs::symlink_metadata(path) {
        Ok(found) => Some((found.mode() & 0o777, found.is_file().then_some(found.len()))),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => panic!("{}: {error}", path.display()),
    }
}

#[test]
fn changes_are_visible_through_every_mount_after_listings() {
    if !mounts::possible() {
        return;
    }
    let cluster = Embedded::started();
    let (mut random, seed) = Random::seeded();
    let mounts = [Mounted::new(&cluster, "a"), Mounted::new(&cluster, "b")];
    let mut model: BTreeMap<String, Known> = BTreeMap::new();
    for dir in 0..DIRECTORIES {
        std::fs::create_dir(mounts[0].at(&format!("d{dir}"))).expect("made");
    }
    for step in 0..STEPS {
        let what = format!("seed {seed}, step {step}");
        let mut name =
            || format!("d{}/{}", random.below(DIRECTORIES), ["a", "b", "c", "d"][random.below(4) as usize]);
        let (one, two) = (name(), name());
        let mount = &mounts[random.below(2) as usize];
        let at = mount.at(&one);
        let found = model.get(&one).copied();
        match (random.below(16), found) {
            (0, Some((_, Some(_)))) => {
                std::fs::remove_file(at).expect(&what);
                model.remove(&one);
            }
            (1, Some((_, None))) => {
                std::fs::remove_dir(at).expect(&what);
                model.remove(&one);
            }
            (2, Some(moved)) if model.get(&two).is_none_or(|(_, len)| len.is_some() == moved.1.is_some()) => {
                std::fs::rename(at, mount.at(&two)).expect(&what);
                model.remove(&one);
                model.insert(two.clone(), moved);
            }
            (3 | 4, Some((_, len))) => {
                let mode = 0o700 + random.below(64) as u32;
                std::fs::set_permissions(at, Permissions::from_mode(mode)).expect(&what);
                model.insert(one.clone(), (mode, len));
            }
            (5 | 6, Some((mode, Some(_)))) => {
                // Inline, or with datafiles.
                let len = random.below(8000);
                std::fs::write(at, vec![7; len as usize]).expect(&what);
                model.insert(one.clone(), (mode, Some(len)));
            }
            (7, None) => {
                std::fs::create_dir(&at).expect(&what);
                std::fs::set_permissions(at, Permissions::from_mode(0o755)).expect(&what);
                model.insert(one.clone(), (0o755, None));
            }
            (8..11, None) => {
                let options = &mut std::fs::OpenOptions::new();
                options.write(true).create_new(true).mode(0o600).open(at).expect(&what);
                model.insert(one.clone(), (0o600, Some(0)));
            }
            _ => {
                let dir = &one[..2];
                let listed: BTreeMap<String, Option<Known>> = std::fs::read_dir(mount.at(dir))
                    .expect(&what)
                    .map(|entry| {
                        let entry = entry.expect("readable");
                        let name = entry.file_name().into_string().expect("text");
                        (format!("{dir}/{name}"), known(&entry.path()))
                    })
                    .collect();
                let wanted = model.range(format!("{dir}/")..format!("{dir}0"));
                let wanted = wanted.map(|(name, known)| (name.clone(), Some(*known))).collect();
                assert_eq!(listed, wanted, "{what}");
                continue;
            }
        }
        for mount in &mounts {
            for name in [&one, &two] {
                assert_eq!(
                    known(&mount.at(name)),
                    model.get(name).copied(),
                    "{what}: {name} on {:?}",
                    mount.0
                );
            }
        }
    }
}

#[test]
fn two_mounts_remove_the_files_of_one_directory() {
    if !mounts::possible() {
        return;
    }
    const FILES: u32 = 400;
    let cluster = Embedded::started();
    let mounts = [Mounted::new(&cluster, "a"), Mounted::new(&cluster, "b")];
    std::fs::create_dir(mounts[0].at("d")).expect("made");
    for round in 0..3 {
        for number in 0..FILES {
            std::fs::write(mounts[0].at(&format!("d/{number}")), b"some").expect("written");
        }
        for mount in &mounts {
            // Both kernels use all names.
            let entries = std::fs::read_dir(mount.at("d")).expect("listed");
            let len: u64 = entries.map(|entry| entry.expect("listed").metadata().expect("there").len()).sum();
            assert_eq!(len, u64::from(FILES) * 4);
        }
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for (remainder, mount) in mounts.iter().enumerate() {
                scope.spawn(move || {
                    for number in (0..FILES).filter(|number| *number as usize % 2 == remainder) {
                        std::fs::remove_file(mount.at(&format!("d/{number}"))).expect("removed");
                    }
                });
            }
        });
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(10), "round {round}: {took:?}");
        for mount in &mounts {
            assert_eq!(known(&mount.at("d/7")), None);
            assert_eq!(std::fs::read_dir(mount.at("d")).expect("listed").count(), 0);
        }
    }
}
