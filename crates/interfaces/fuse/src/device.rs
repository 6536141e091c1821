//! What to do when the kernel gives no FUSE connection.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

const DEVICE: &str = "/dev/fuse";
/// Major and minor number of the device in Linux.
const NUMBER: (u32, u32) = (10, 229);
/// How a container gets the device.
const CONTAINER: &str = "a container needs `--device /dev/fuse --cap-add SYS_ADMIN`";

/// Returns what to do after a mount failed with `error`.
pub fn remedy(error: &io::Error) -> String {
    let opened = OpenOptions::new().read(true).write(true).open(DEVICE);
    // SAFETY: the call takes no pointers.
    let is_root = unsafe { libc::geteuid() } == 0;
    match opened {
        Err(opened) => of_device(&opened),
        Ok(file) if !file.metadata().is_ok_and(|found| is_fuse(&found)) => {
            format!("{DEVICE} is not the FUSE device: {CONTAINER}")
        }
        Ok(_) if is_root && error.raw_os_error() == Some(libc::EPERM) => {
            format!("this root user may not mount: {CONTAINER}")
        }
        Ok(_) if !is_root && !has_fusermount() => {
            "install fusermount3 (Debian: fuse3), with which users mount".to_owned()
        }
        Ok(_) => "see `dmesg` for the reason of the kernel".to_owned(),
    }
}

/// What to do about a device that cannot be opened.
fn of_device(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT) => {
            format!("{DEVICE} is missing: load the module with `modprobe fuse`; {CONTAINER}")
        }
        Some(libc::ENODEV | libc::ENXIO) => {
            format!("{DEVICE} has no driver: load the module with `modprobe fuse` as root of the host")
        }
        // The control group of a container forbids devices with this error.
        Some(libc::EPERM) => format!("{DEVICE} is not permitted here: {CONTAINER}"),
        Some(libc::EACCES) => {
            let group = std::fs::metadata(DEVICE).map_or(0, |found| found.gid());
            let member =
                if group == 0 { String::new() } else { format!(", or become a member of group {group}") };
            format!("{DEVICE} is closed to you: have root run `chmod 666 {DEVICE}`{member}")
        }
        _ => format!("{DEVICE} cannot be opened: {error}"),
    }
}

fn is_fuse(found: &std::fs::Metadata) -> bool {
    let number = (libc::major(found.rdev()), libc::minor(found.rdev()));
    found.file_type().is_char_device() && number == NUMBER
}

fn has_fusermount() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join("fusermount3").is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_of_the_device_has_a_remedy() {
        for (number, part) in [
            (libc::ENOENT, "modprobe fuse"),
            (libc::ENODEV, "modprobe fuse"),
            (libc::EPERM, "--device /dev/fuse --cap-add SYS_ADMIN"),
            (libc::EACCES, "chmod 666 /dev/fuse"),
            (libc::EMFILE, "Too many open files"),
        ] {
            let said = of_device(&io::Error::from_raw_os_error(number));
            assert!(said.contains(DEVICE) && said.contains(part), "{said}");
        }
        assert!(!is_fuse(&std::fs::metadata("/dev/null").expect("there")));
    }
}
