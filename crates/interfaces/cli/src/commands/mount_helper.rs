//! `mount.weft`, the helper of mount(8) for file systems of type `weft`: this program under another name.
//!
//! mount(8) calls `mount.weft SOURCE TARGET [-sfnv] [-o OPTIONS]`. The source is `CLUSTER_FILE:/DIRECTORY`. The helper
//! returns when the mount is usable; its process goes on in the background.

use super::mount::{Mount, unmount};
use crate::failure::Failure;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Name of the program under which it is this helper.
pub const NAME: &str = "mount.weft";
/// Directory of the logs of mounts by root.
const LOGS: &str = "/var/log/weft-mounts";

/// Exit code of mount(8): incorrect invocation.
const MISUSED: u8 = 1;
/// Exit code of mount(8): the mount failed.
const MOUNT_FAILED: u8 = 32;

/// Options that a mount has anyway, or that concern mount(8), systemd and init scripts.
const IGNORED: [&str; 30] = [
    "_netdev",
    "async",
    "auto",
    "defaults",
    "dirsync",
    "exec",
    "group",
    "iversion",
    "lazytime",
    "loud",
    "mand",
    "noatime",
    "noauto",
    "nodev",
    "nodiratime",
    "nofail",
    "nogroup",
    "nolazytime",
    "nomand",
    "noowner",
    "nosuid",
    "nouser",
    "nousers",
    "owner",
    "relatime",
    "rw",
    "silent",
    "sync",
    "user",
    "users",
];
/// Beginnings of options with values that are ignored: comments, and settings of systemd.
const IGNORED_BEGINNINGS: [&str; 5] = ["x-", "X-", "comment=", "user=", "helper="];
/// Options of this helper.
const KNOWN: &str = "ro, noexec, allow_other, noallow_other, threads=N, attribute_ttl=TIME, no_page_cache, nonempty, \
                     log=FILE, key=FILE; options of every file system such as noauto, nofail, _netdev, x-systemd.…";

/// Whether the program was called by the name of the helper.
pub fn is_called(program: Option<&OsStr>) -> bool {
    program.is_some_and(|program| Path::new(program).file_name() == Some(OsStr::new(NAME)))
}

/// Runs the helper with its arguments. Returns the exit code of mount(8).
pub fn run(args: impl IntoIterator<Item = OsString>) -> u8 {
    let called = match Call::of(args) {
        Ok(called) => called,
        Err(failure) => {
            errln!("{failure}");
            return MISUSED;
        }
    };
    match called.mount() {
        Ok(()) => 0,
        Err(failure) => {
            if !failure.text().is_empty() {
                errln!("{failure}");
            }
            MOUNT_FAILED
        }
    }
}

/// Arguments of mount(8).
#[derive(Debug)]
struct Call {
    cluster: PathBuf,
    /// Directory of Weft to show, from its root; empty for the root.
    directory: PathBuf,
    target: PathBuf,
    options: Mount,
    key: Option<PathBuf>,
    is_fake: bool,
    is_verbose: bool,
}

impl Call {
    fn of(args: impl IntoIterator<Item = OsString>) -> Result<Self, Failure> {
        let usage = |why: String| {
            Failure::misuse(NAME, why)
                .remedy("usage: mount.weft CLUSTER_FILE:/DIRECTORY TARGET [-sfnv] [-o OPTIONS]")
        };
        let (mut places, mut texts) = (Vec::new(), Vec::new());
        let (mut is_fake, mut is_verbose, mut is_sloppy) = (false, false, false);
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            match arg.as_bytes() {
                [b'-', flags @ ..] if !flags.is_empty() => {
                    for (at, flag) in flags.iter().enumerate() {
                        match flag {
                            b'f' => is_fake = true,
                            b'v' => is_verbose = true,
                            b's' => is_sloppy = true,
                            b'n' | b'w' => {}
                            b'r' => texts.push("ro".to_owned()),
                            b'o' | b't' => {
                                let rest = flags.get(at + 1..).filter(|rest| !rest.is_empty());
                                let value = rest
                                    .map(|rest| OsStr::from_bytes(rest).to_owned())
                                    .or_else(|| args.next());
                                let value = value
                                    .ok_or_else(|| usage(format!("-{} needs a value", char::from(*flag))))?;
                                if *flag == b'o' {
                                    texts.push(value.to_string_lossy().into_owned());
                                }
                                break;
                            }
                            other => {
                                return Err(usage(format!("there is no option -{}", char::from(*other))));
                            }
                        }
                    }
                }
                _ => places.push(PathBuf::from(arg)),
            }
        }
        let [source, target] = <[PathBuf; 2]>::try_from(places)
            .map_err(|places| usage(format!("{} names where a source and a target belong", places.len())))?;
        let (cluster, directory) = parts_of(&source);
        let mut call =
            Self { cluster, directory, options: Mount::on(&target), target, key: None, is_fake, is_verbose };
        call.options.allow_other = is_root();
        if is_root() {
            let name = call.target.to_string_lossy().trim_matches('/').replace('/', "-");
            call.options.log = Some(Path::new(LOGS).join(format!("{name}.log")));
        }
        for option in texts.iter().flat_map(|text| text.split(',')).filter(|option| !option.is_empty()) {
            call.take(option, is_sloppy)?;
        }
        Ok(call)
    }

    /// Takes one option. An unknown one is an error unless mount(8) is sloppy.
    fn take(&mut self, option: &str, is_sloppy: bool) -> Result<(), Failure> {
        let failed = |why: String| Failure::misuse(format!("option {option}"), why);
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        let options = &mut self.options;
        match (name.replace('-', "_").as_str(), value) {
            ("ro", None) => options.read_only = true,
            ("noexec", None) => options.no_exec = true,
            ("allow_other", None) => options.allow_other = true,
            ("noallow_other", None) => options.allow_other = false,
            ("no_page_cache", None) => options.no_page_cache = true,
            ("nonempty", None) => options.nonempty = true,
            ("threads", Some(count)) => {
                let count = count.parse().ok().filter(|count| *count > 0);
                options.threads = Some(count.ok_or_else(|| failed("write a number above 0".to_owned()))?);
            }
            ("attribute_ttl", Some(time)) => options.attribute_ttl = super::duration(time).map_err(failed)?,
            ("log", Some(file)) => options.log = Some(file.into()),
            ("key", Some(file)) => self.key = Some(file.into()),
            ("remount", None) => {
                let remedy = format!("umount {0} && mount {0}", super::quoted_path(&self.target));
                return Err(failed("options of a mount do not change".to_owned()).remedy(remedy));
            }
            _ if IGNORED.contains(&option) => {}
            _ if IGNORED_BEGINNINGS.iter().any(|beginning| option.starts_with(beginning)) => {}
            _ if is_sloppy => {}
            _ => {
                return Err(
                    failed("a mount of Weft does not know it".to_owned()).remedy(format!("it knows {KNOWN}"))
                );
            }
        }
        Ok(())
    }

    fn mount(mut self) -> Result<(), Failure> {
        if let Some(key) = &self.key {
            // SAFETY: the process has one thread so far.
            unsafe { std::env::set_var("WEFT_KEY", key) };
        }
        let said = format!("{} on {}", self.cluster.display(), self.target.display());
        if self.is_verbose {
            errln!("{NAME}: mounts {said}, directory /{}", self.directory.display());
        }
        if self.is_fake {
            return Ok(());
        }
        let is_part = self.directory != Path::new("");
        if is_part && !is_root() {
            let directory = self.directory.display();
            return Err(Failure::misuse(format!("/{directory}"), "only root may mount a directory of Weft")
                .remedy("mount the root: CLUSTER_FILE:/"));
        }
        self.options.dir =
            std::path::absolute(&self.target).map_err(|error| Failure::new(self.target.display(), error))?;
        let code = self.options.start(Some(self.cluster.clone()))?;
        if code != 0 {
            return Err(Failure::said("")); // the process in the background has printed the reason
        }
        if is_part {
            let shown = self.show_directory();
            return shown.inspect_err(|_| drop(unmount(&self.options.dir, true)));
        }
        Ok(())
    }

    /// Replaces the mount of the whole cluster by a mount of one of its directories.
    fn show_directory(&self) -> Result<(), Failure> {
        const OPEN_TREE_CLONE: libc::c_uint = 1;
        const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 4;
        let from = self.options.dir.join(&self.directory);
        let failed = |error: io::Error| {
            let source = format!("{}:/{}", self.cluster.display(), self.directory.display());
            Failure::new(source, error).remedy("name a directory of Weft; `weft mkdir` makes one")
        };
        if !std::fs::metadata(&from).map_err(failed)?.is_dir() {
            return Err(failed(io::Error::from_raw_os_error(libc::ENOTDIR)));
        }
        let c = |path: &Path| CString::new(path.as_os_str().as_bytes()).map_err(|error| failed(error.into()));
        let (from, to) = (c(&from)?, c(&self.options.dir)?);
        let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC as libc::c_uint;
        // SAFETY: a C string.
        let tree = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, from.as_ptr(), flags) };
        if tree < 0 {
            return Err(failed(io::Error::last_os_error()));
        }
        // SAFETY: the call has returned a new descriptor.
        let tree = unsafe { OwnedFd::from_raw_fd(tree as i32) };
        // The copy keeps the process in the background. SAFETY: C strings, and a descriptor that is open.
        let done = unsafe {
            libc::umount2(to.as_ptr(), libc::MNT_DETACH);
            let (empty, here) = (c"".as_ptr(), libc::AT_FDCWD);
            libc::syscall(
                libc::SYS_move_mount,
                tree.as_raw_fd(),
                empty,
                here,
                to.as_ptr(),
                MOVE_MOUNT_F_EMPTY_PATH,
            )
        };
        if done < 0 { Err(failed(io::Error::last_os_error())) } else { Ok(()) }
    }
}

fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Splits a source into the cluster file and the directory below the root of Weft.
fn parts_of(source: &Path) -> (PathBuf, PathBuf) {
    let bytes = source.as_os_str().as_bytes();
    let split = bytes
        .windows(2)
        .rposition(|two| two == b":/")
        .or_else(|| bytes.len().checked_sub(1).filter(|&last| bytes[last] == b':'));
    let Some(at) = split else { return (source.to_owned(), PathBuf::new()) };
    let directory = Path::new(OsStr::from_bytes(&bytes[at + 1..]));
    let names = directory.components().filter(|part| matches!(part, std::path::Component::Normal(_)));
    (OsStr::from_bytes(&bytes[..at]).into(), names.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(args: &[&str]) -> Result<Call, String> {
        Call::of(args.iter().map(OsString::from)).map_err(|failure| failure.to_string())
    }

    #[test]
    fn a_source_names_a_cluster_file_and_a_directory() {
        for (source, cluster, directory) in [
            ("/etc/weft/cluster.toml:/scratch/a", "/etc/weft/cluster.toml", "scratch/a"),
            ("/etc/weft/cluster.toml:/", "/etc/weft/cluster.toml", ""),
            ("/etc/weft/cluster.toml:", "/etc/weft/cluster.toml", ""),
            ("/etc/weft/cluster.toml", "/etc/weft/cluster.toml", ""),
            ("/a:b/c.toml:/../x/./y/", "/a:b/c.toml", "x/y"),
        ] {
            assert_eq!(parts_of(Path::new(source)), (cluster.into(), directory.into()), "{source}");
        }
    }

    #[test]
    fn options_are_those_of_the_mount_or_ignored_or_refused() {
        let fstab = "rw,_netdev,nofail,noauto,x-systemd.automount,x-systemd.requires=a.service,user,defaults";
        let call = called(&["/c:/", "/mnt", "-o", fstab]).expect("as in fstab");
        assert!(!call.options.read_only && !call.is_fake && call.key.is_none());
        let own = "ro,noexec,threads=8,attribute-ttl=1 s,no_page_cache,nonempty,log=/l,key=/k,noallow_other";
        let call =
            called(&["-nfv", "/c:/d", "/mnt", "-t", "weft", &format!("-o{own}")]).expect("own options");
        let Mount { read_only, no_exec, threads, no_page_cache, nonempty, allow_other, .. } = call.options;
        assert!(read_only && no_exec && threads == Some(8) && no_page_cache && nonempty && !allow_other);
        assert!(call.is_fake && call.is_verbose && call.key.as_deref() == Some(Path::new("/k")));
        assert_eq!(call.options.attribute_ttl, weft_core::Nanos::from_s(1));
        assert_eq!(call.options.log.as_deref(), Some(Path::new("/l")));
        let said = called(&["/c", "/mnt", "-o", "ro,stripe=4"]).expect_err("unknown");
        assert!(said.contains("option stripe=4") && said.contains("threads=N"), "{said}");
        assert!(called(&["/c", "/mnt", "-s", "-o", "ro,stripe=4"]).is_ok_and(|call| call.options.read_only));
        for (args, part) in [
            (&["/c"][..], "TARGET"),
            (&["/c", "/mnt", "-o"], "-o needs a value"),
            (&["/c", "/mnt", "-q"], "no option -q"),
            (&["/c", "/mnt", "-o", "threads=0"], "above 0"),
            (&["/c", "/mnt", "-o", "remount,ro"], "umount /mnt"),
        ] {
            let said = called(args).expect_err("refused");
            assert!(said.contains(part), "{args:?}: {said}");
        }
    }

    #[test]
    fn the_helper_is_known_by_its_name() {
        assert!(is_called(Some(OsStr::new("/sbin/mount.weft"))) && !is_called(Some(OsStr::new("weft"))));
        assert!(!is_called(None) && !is_called(Some(OsStr::new("mount.weft/weft"))));
    }
}
