//! Block devices below a file, and their counters.

use super::idle::Sample;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// Levels of devices on devices, such as encryption on a RAID on partitions. Further ones are not searched.
const LEVELS_MAX: u32 = 8;

/// The disks below a file.
pub struct Device {
    /// Files with the counters of each disk.
    counters: Vec<PathBuf>,
}

impl Device {
    /// Returns the disks of the device with this number, as `stat` reports it for a file. `None` if the file is not on a
    /// local block device.
    pub fn of(device: u64) -> Option<Self> {
        Self::below(Path::new("/sys/dev/block"), libc::major(device), libc::minor(device))
    }

    fn below(devices: &Path, major: u32, minor: u32) -> Option<Self> {
        let own = devices.join(format!("{major}:{minor}")).canonicalize().ok()?;
        let mut disks = BTreeSet::new();
        add_disks(&own, LEVELS_MAX, &mut disks);
        let counters: Vec<_> = disks.into_iter().map(|disk| disk.join("stat")).collect();
        let this = Self { counters };
        (!this.counters.is_empty() && this.sample().is_ok()).then_some(this)
    }

    /// Reads the counters.
    pub fn sample(&self) -> io::Result<Sample> {
        self.counters.iter().try_fold(Sample::default(), |sum, file| {
            let one = Sample::parse(&std::fs::read_to_string(file)?);
            Ok(sum.plus(one.ok_or(io::ErrorKind::InvalidData)?))
        })
    }
}

/// Adds the whole disks below a device. Requests to other partitions of a disk keep it busy, too.
fn add_disks(device: &Path, levels: u32, disks: &mut BTreeSet<PathBuf>) {
    let disk = match (device.join("partition").exists(), device.parent()) {
        (true, Some(parent)) => parent,
        _ => device,
    };
    let below: Vec<PathBuf> = std::fs::read_dir(disk.join("slaves"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.path().canonicalize().ok())
        .collect();
    if below.is_empty() || levels == 0 {
        disks.insert(disk.to_owned());
    } else {
        below.iter().for_each(|device| add_disks(device, levels - 1, disks));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_volume_on_partitions_has_the_counters_of_their_disks() {
        let sys = tempfile::tempdir().expect("a directory");
        let at = |name: &str| sys.path().join(name);
        let make = |name: &str| std::fs::create_dir_all(at(name)).expect("made");
        let stat = |in_flight: u64| format!("0 0 0 0 0 0 0 0 {in_flight} 0 7\n");
        for (disk, in_flight) in [("sda", 1), ("sdb", 2), ("dm-0", 100)] {
            make(&format!("block/{disk}/slaves"));
            std::fs::write(at(&format!("block/{disk}/stat")), stat(in_flight)).expect("written");
        }
        for partition in ["sda/sda1", "sda/sda2", "sdb/sdb1"] {
            make(&format!("block/{partition}"));
            std::fs::write(at(&format!("block/{partition}/partition")), "1\n").expect("written");
            let name = partition.split('/').nth(1).expect("a name");
            symlink(at(&format!("block/{partition}")), at(&format!("block/dm-0/slaves/{name}")))
                .expect("made");
        }
        make("dev");
        symlink(at("block/dm-0"), at("dev/253:0")).expect("made");
        symlink(at("block/sda/sda1"), at("dev/8:1")).expect("made");
        let sample = |major, minor| {
            let device = Device::below(&at("dev"), major, minor)?;
            Some(device.sample().expect("counters"))
        };
        assert_eq!(sample(253, 0), Some(Sample { in_flight: 3, queue_ms: 14 }), "each disk counts once");
        assert_eq!(sample(8, 1), Some(Sample { in_flight: 1, queue_ms: 7 }));
        assert_eq!(sample(0, 41), None, "network file systems have no block device");
    }
}
