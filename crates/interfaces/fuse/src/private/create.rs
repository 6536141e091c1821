//! Creation of a mount without a place.
//!
//! | way | needs |
//! | --- | --- |
//! | `fsmount` | root |
//! | `fsmount` in a child in its own user namespace | user namespaces for ordinary users |
//! | a directory for `fusermount3`, unmounted lazily at once | fusermount3 (fuse3) |
//!
//! A descriptor of the root keeps the mount. When the last one is closed, or the daemon ends, the kernel removes it: there
//! is nothing to clean up. Only a daemon that is killed between the two steps of the last way leaves a mount.

use std::ffi::{CStr, CString};
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use weft_env::real::{receive_descriptors, send_descriptors};

/// Mount whose requests wait in `device`.
pub struct Created {
    /// Connection to the kernel.
    pub device: OwnedFd,
    /// Root directory.
    pub root: OwnedFd,
    /// How it was created.
    pub kind: Kind,
}

/// Way of creation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// By root.
    Root,
    /// In a user namespace, which knows only the user and the group of this process.
    OwnNamespace,
    /// By `fusermount3`.
    Fusermount,
}

/// Options of a mount.
struct Options {
    source: CString,
    allow_other: bool,
    max_read: Option<u32>,
}

/// Creates a mount. `name` is the cluster's.
pub fn create(name: &str, max_read: Option<u32>) -> io::Result<Created> {
    // SAFETY: the call takes no pointers.
    let is_root = unsafe { libc::geteuid() } == 0;
    let source = CString::new(format!("weft:{name}"))?;
    let options = Options { source, allow_other: is_root, max_read };
    let direct = if is_root { by_fsmount(&options) } else { Err(io::ErrorKind::PermissionDenied.into()) };
    if let Ok((device, root)) = direct {
        return Ok(Created { device, root, kind: Kind::Root });
    }
    if let Ok((device, root)) = in_namespace(&options) {
        return Ok(Created { device, root, kind: Kind::OwnNamespace });
    }
    let (device, root) = by_fusermount(&options)?;
    Ok(Created { device, root, kind: Kind::Fusermount })
}

/// Returns a new descriptor, or the error of the call.
fn new_fd(result: libc::c_long) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has returned a new descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(result as RawFd) })
}

fn open_device() -> io::Result<OwnedFd> {
    // SAFETY: a C string.
    new_fd(unsafe { libc::open(c"/dev/fuse".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) }.into())
}

/// Sets a parameter of the file system that is being created; `value` is null for a flag.
fn set(context: &OwnedFd, key: &CStr, value: Option<&CStr>) -> io::Result<()> {
    const SET_FLAG: u32 = 0;
    const SET_STRING: u32 = 1;
    let command = if value.is_some() { SET_STRING } else { SET_FLAG };
    let value = value.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: C strings, or null where the kernel expects it.
    let done =
        unsafe { libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), command, key.as_ptr(), value, 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Creates a mount by system calls (Linux 5.2). Returns the connection and the root directory.
fn by_fsmount(options: &Options) -> io::Result<(OwnedFd, OwnedFd)> {
    const CLOEXEC: u32 = 1;
    const CREATE: u32 = 6;
    const NOSUID_NODEV_NOATIME: u32 = 2 | 4 | 0x10;
    let device = open_device()?;
    // SAFETY: a C string.
    let context = new_fd(unsafe { libc::syscall(libc::SYS_fsopen, c"fuse".as_ptr(), CLOEXEC) })?;
    // SAFETY: the calls take no pointers.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    let text = |value: String| CString::new(value).unwrap_or_default();
    set(&context, c"source", Some(&options.source))?;
    set(&context, c"subtype", Some(c"weft"))?;
    set(&context, c"fd", Some(&text(device.as_raw_fd().to_string())))?;
    set(&context, c"rootmode", Some(c"40000"))?;
    set(&context, c"user_id", Some(&text(uid.to_string())))?;
    set(&context, c"group_id", Some(&text(gid.to_string())))?;
    if let Some(len) = options.max_read {
        set(&context, c"max_read", Some(&text(len.to_string())))?;
    }
    if options.allow_other {
        set(&context, c"allow_other", None)?;
        set(&context, c"default_permissions", None)?;
    }
    let null = std::ptr::null::<libc::c_char>();
    // SAFETY: the command takes no key and no value.
    let done = unsafe { libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), CREATE, null, null, 0) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call takes no pointers.
    let root =
        unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), CLOEXEC, NOSUID_NODEV_NOATIME) };
    Ok((device, new_fd(root)?))
}

/// Creates a mount in a child with its own user namespace, which hands it to this process. This process stays outside.
fn in_namespace(options: &Options) -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = UnixStream::pair()?;
    // SAFETY: this process has one thread.
    match unsafe { libc::fork() } {
        0 => {
            let sent = enter_namespace()
                .and_then(|()| {
                    by_fsmount(&Options { source: options.source.clone(), allow_other: false, ..*options })
                })
                .and_then(|(device, root)| {
                    send_descriptors(theirs.as_fd(), &[device.as_raw_fd(), root.as_raw_fd()])
                });
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(sent.is_err())) }
        }
        child if child > 0 => {
            drop(theirs);
            let received = receive_descriptors(ours.as_fd());
            // SAFETY: our own child, and no status is stored.
            unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
            let both: [OwnedFd; 2] = received?.try_into().map_err(|_| io::ErrorKind::InvalidData)?;
            let [device, root] = both;
            Ok((device, root))
        }
        _ => Err(io::Error::last_os_error()),
    }
}

fn enter_namespace() -> io::Result<()> {
    // SAFETY: the calls take no pointers.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    // SAFETY: as above.
    if unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}

/// Has `fusermount3` mount on a directory, takes a descriptor of the root, and removes the mount from the directory.
fn by_fusermount(options: &Options) -> io::Result<(OwnedFd, OwnedFd)> {
    let base = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, Into::into);
    let dir = base.join(format!("weft-private-{}", std::process::id()));
    DirBuilder::new().mode(0o700).create(&dir)?;
    let result = mount_on(&dir, options).and_then(|device| {
        let root = OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(&dir);
        let mut command = Command::new("fusermount3");
        let _ = command.args(["-u", "-z", "--"]).arg(&dir).stderr(Stdio::null()).status();
        Ok((device, OwnedFd::from(root?)))
    });
    let _ = std::fs::remove_dir(&dir);
    result
}

/// Has `fusermount3` mount on `dir`. Returns the connection.
fn mount_on(dir: &Path, options: &Options) -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    let max_read = options.max_read.map(|len| format!(",max_read={len}")).unwrap_or_default();
    let source = options.source.to_string_lossy();
    // SAFETY: the call takes no pointers.
    unsafe { libc::fcntl(theirs.as_raw_fd(), libc::F_SETFD, 0) };
    let mut command = Command::new("fusermount3");
    command.args(["-o", &format!("fsname={source},subtype=weft,nosuid,nodev,noatime{max_read}")]);
    command.arg("--").arg(dir).env("_FUSE_COMMFD", theirs.as_raw_fd().to_string());
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    drop(theirs);
    let device = receive_descriptors(ours.as_fd()).ok().and_then(|mut fds| fds.pop());
    let mut said = String::new();
    child.stderr.take().map(|mut text| text.read_to_string(&mut said)).transpose()?;
    child.wait()?;
    device.ok_or_else(|| io::Error::other(said.trim().to_owned()))
}
