//! Block devices below a file, and their counters.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use weft_core::DeviceLoad;

/// Levels of devices on devices, such as encryption on a RAID on partitions. Further ones are not searched.
const LEVELS_MAX: u32 = 8;
/// Length of a sector in the kernel's counters, in bytes, whatever the device's own sectors are.
const SECTOR_LEN: u64 = 512;

/// The disks below a file.
#[derive(Clone, Debug)]
pub struct BlockDevice {
    /// Files with the counters of each disk.
    counters: Vec<PathBuf>,
}

impl BlockDevice {
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
        (!this.counters.is_empty() && this.load().is_ok()).then_some(this)
    }

    /// Reads the counters; those of several disks are added.
    ///
    /// # Errors
    /// Errors of the files; `InvalidData`.
    pub fn load(&self) -> io::Result<DeviceLoad> {
        self.counters.iter().try_fold(DeviceLoad::default(), |sum, file| {
            let one = parse(&std::fs::read_to_string(file)?);
            Ok(sum.plus(one.ok_or(io::ErrorKind::InvalidData)?))
        })
    }
}

/// Reads a `stat` file of `/sys/dev/block`.
fn parse(stat: &str) -> Option<DeviceLoad> {
    let fields: Vec<&str> = stat.split_ascii_whitespace().take(11).collect();
    let field = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let bytes = |sectors: u64| sectors.saturating_mul(SECTOR_LEN);
    Some(DeviceLoad {
        in_flight: field(8)?,
        queued_ms: field(10)?,
        bytes_read: bytes(field(2)?),
        bytes_written: bytes(field(6)?),
    })
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
    fn counters_are_those_of_the_kernel() {
        let stat = "  446216   784926  9550688  4382310  1442 0 11 5   3   75612  4386190  0 0 0 0 9 9\n";
        let (bytes_read, bytes_written) = (9_550_688 * 512, 11 * 512);
        let found = DeviceLoad { in_flight: 3, queued_ms: 4_386_190, bytes_read, bytes_written };
        assert_eq!(parse(stat), Some(found));
        assert_eq!(parse("1 2 3"), None);
        assert_eq!(parse("1 2 3 4 5 6 7 8 x 10 11"), None);
    }

    #[test]
    fn a_volume_on_partitions_has_the_counters_of_their_disks() {
        let sys = tempfile::tempdir().expect("a directory");
        let at = |name: &str| sys.path().join(name);
        let make = |name: &str| std::fs::create_dir_all(at(name)).expect("made");
        let stat = |in_flight: u64| format!("0 0 2 0 0 0 4 0 {in_flight} 0 7\n");
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
        let load = |major, minor| {
            let device = BlockDevice::below(&at("dev"), major, minor)?;
            Some(device.load().expect("counters"))
        };
        let found = |in_flight, disks: u64| DeviceLoad {
            in_flight,
            queued_ms: 7 * disks,
            bytes_read: 1024 * disks,
            bytes_written: 2048 * disks,
        };
        assert_eq!(load(253, 0), Some(found(3, 2)), "each disk counts once");
        assert_eq!(load(8, 1), Some(found(1, 1)));
        assert_eq!(load(0, 41), None, "network file systems have no block device");
    }
}
