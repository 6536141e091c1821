//! Targets of a cluster that share a device, because their directories lie on the same file system.

use crate::commands::serve::runs_here;
use crate::commands::session::Weft;
use crate::commands::status::query_servers;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use weft_config::{Cluster, Server, Target};
use weft_core::TargetId;
use weft_planner::figures::Class;

/// Identifies the device of a target.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Device {
    /// An emulated device, which no other target uses.
    Emulated(TargetId),
    /// Device number of a file system of this host.
    Local(u64),
    /// Number of a file system, as its server reports it.
    Reported(u64),
}

/// Returns the device numbers of a running cluster's targets by class, in the order of the cluster file. A class with a
/// target whose device is unknown is missing.
pub fn of_running(weft: &Weft) -> BTreeMap<String, Vec<u32>> {
    let answers = query_servers(weft);
    let targets =
        answers.iter().filter_map(|answer| answer.status.as_ref().ok()).flat_map(|status| &status.targets);
    let reported = targets
        .filter(|status| status.file_system != 0)
        .map(|status| (status.target, status.file_system))
        .collect();
    by_class(&weft.cluster, &reported)
}

/// Sets the devices of `classes` without asking a server: by the directories, or as in `known` figures if targets are on
/// other hosts.
pub fn take(classes: &mut [Class], cluster: &Cluster, known: &[Class]) {
    let local = by_class(cluster, &BTreeMap::new());
    // Numbers of different measurements do not compare.
    let is_whole = classes.iter().all(|class| local.contains_key(&class.name));
    for class in classes {
        let devices = match is_whole {
            true => local.get(&class.name).cloned(),
            false => {
                known.iter().find(|known| known.name == class.name).and_then(|known| known.devices.clone())
            }
        };
        class.devices = devices.filter(|devices| devices.len() == class.targets as usize);
    }
}

/// Numbers the devices from 0 on. `reported` are file systems by target.
fn by_class(cluster: &Cluster, reported: &BTreeMap<TargetId, u64>) -> BTreeMap<String, Vec<u32>> {
    let mut numbers: BTreeMap<Device, u32> = BTreeMap::new();
    let mut classes: BTreeMap<String, Option<Vec<u32>>> = BTreeMap::new();
    for server in &cluster.servers {
        for target in &server.targets {
            let class = classes.entry(target.class.clone()).or_insert_with(|| Some(Vec::new()));
            let next = numbers.len() as u32;
            match (device(server, target, reported), &mut *class) {
                (Some(device), Some(devices)) => devices.push(*numbers.entry(device).or_insert(next)),
                (None, _) => *class = None,
                (Some(_), None) => {}
            }
        }
    }
    classes.into_iter().filter_map(|(class, devices)| Some((class, devices?))).collect()
}

fn device(server: &Server, target: &Target, reported: &BTreeMap<TargetId, u64>) -> Option<Device> {
    if target.emulate.is_some() {
        return Some(Device::Emulated(target.id));
    }
    if runs_here(server) {
        return local(&target.path).map(Device::Local);
    }
    reported.get(&target.id).copied().map(Device::Reported)
}

/// Returns the device number of the file system of a directory, or of the one in which the directory will be made.
fn local(path: &Path) -> Option<u64> {
    for path in path.ancestors() {
        match std::fs::metadata(path) {
            Ok(metadata) => return Some(metadata.dev()),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // A mount point may lie behind a directory that this user may not enter.
            Err(_) => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(text: &str) -> Cluster {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("cluster.toml");
        std::fs::write(&file, text.replace("DIR", &dir.path().display().to_string())).expect("written");
        Cluster::load(&file).expect("a cluster file")
    }

    #[test]
    fn directories_on_one_file_system_share_a_device_and_emulated_targets_do_not() {
        let text = r#"
            [cluster]
            name = "test"
            key_file = "DIR/cluster.key"
            [[server]]
            name = "one"
            address = "unix:DIR/one.sock"
            [server.metadata]
            path = "DIR/metadata"
            [[server.target]]
            id = 0
            class = "hdd"
            path = "DIR/a"
            [[server.target]]
            id = 1
            class = "hdd"
            path = "DIR/b/of/it"
            [[server.target]]
            id = 2
            class = "ssd"
            path = "DIR/c"
            [[server.target]]
            id = 3
            class = "nvme"
            path = "DIR/d"
            emulate = "nvme"
        "#;
        let here = by_class(&cluster(text), &BTreeMap::new());
        assert_eq!((here["hdd"].as_slice(), here["ssd"].as_slice()), (&[0, 0][..], &[0][..]));
        assert_ne!(here["nvme"], here["ssd"]);
        // A target on another host has a device if its server reports one.
        let text = text.replacen("name = \"one\"", "name = \"one\"\nhost = \"elsewhere\"", 1);
        let there = cluster(&text);
        let none = by_class(&there, &BTreeMap::new());
        assert_eq!(none.keys().collect::<Vec<_>>(), ["nvme"]);
        let reported = [(0, 7), (1, 8), (2, 7)].map(|(target, system)| (TargetId(target), system)).into();
        let told = by_class(&there, &reported);
        assert_eq!((told["hdd"].as_slice(), told["ssd"].as_slice()), (&[0, 1][..], &[0][..]));
    }
}
