//! File operations of programs on two real mounts of one cluster, with a client beside them.

mod common;

use common::mounts::{self, Mounted};
use common::{Embedded, succeeded};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn both(open: &mut OpenOptions, path: impl AsRef<Path>) -> File {
    open.read(true).write(true).open(path).expect("opened")
}

/// A mapping of a whole file.
struct Map(*mut u8, usize);

impl Map {
    fn new(file: &File, len: usize, how: i32) -> Self {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, of a file that is `len` bytes long.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, access, how, file.as_raw_fd(), 0) };
        assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Self(at.cast(), len)
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the range stays mapped until the value is dropped, and no other client uses the file meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.0, self.1) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping of this value.
        unsafe { libc::munmap(self.0.cast(), self.1) };
    }
}

#[test]
fn files_on_a_mount_behave_as_files() {
    if !mounts::possible() {
        return;
    }
    let cluster = Embedded::started();
    let (a, b) = (Mounted::new(&cluster, "a"), Mounted::new(&cluster, "b"));
    mappings(&a, &b);
    names_and_open_files(&a, &b);
    appends(&a, &b);
    holes(&a, &b);
    attributes(&cluster, &a, &b);
    times_before_1970(&cluster, &a, &b);
    directories(&a, &b);
    removed_directories(&a, &b);
    locks(&a, &b);
    interrupted_locks(&a, &b);
}

fn mappings(a: &Mounted, b: &Mounted) {
    let file = both(OpenOptions::new().create(true), a.at("mapped"));
    file.write_all_at(&[1; 10_000], 0).expect("written");
    let mut shared = Map::new(&file, 10_000, libc::MAP_SHARED);
    let mut private = Map::new(&file, 10_000, libc::MAP_PRIVATE);
    assert_eq!((shared.bytes()[9_999], private.bytes()[5]), (1, 1));
    shared.bytes()[5000] = 7;
    private.bytes()[5001] = 9;
    // SAFETY: the mapping is that long.
    assert_eq!(unsafe { libc::msync(shared.0.cast(), 10_000, libc::MS_SYNC) }, 0);
    drop((shared, private));
    let seen = std::fs::read(b.at("mapped")).expect("read");
    assert_eq!((seen.len(), seen[5000], seen[5001]), (10_000, 7, 1));
    // A program that was replaced on the other mount is the new one on this mount.
    std::fs::copy("/bin/false", a.at("program")).expect("copied");
    assert_eq!(Command::new(a.at("program")).status().expect("started").code(), Some(1));
    std::fs::copy("/bin/true", b.at("program")).expect("copied");
    succeeded(&mut Command::new(a.at("program")));
}

fn names_and_open_files(a: &Mounted, b: &Mounted) {
    let mut open = both(OpenOptions::new().create(true), a.at("one"));
    open.write_all(b"old").expect("written");
    std::fs::write(b.at("two"), "new").expect("written");
    std::fs::rename(b.at("two"), b.at("one")).expect("renamed over an open file");
    assert_eq!(std::fs::read(a.at("one")).expect("read"), b"new");
    let mut still = String::new();
    open.rewind().expect("sought");
    open.read_to_string(&mut still).expect("read");
    assert_eq!(still, "old");
    let mut open = both(&mut OpenOptions::new(), a.at("one"));
    std::fs::remove_file(b.at("one")).expect("removed");
    open.write_all(b"NEW and more").expect("written without a name");
    open.rewind().expect("sought");
    open.read_to_string(&mut still).expect("read");
    assert_eq!(still, "oldNEW and more");
    assert_eq!(open.metadata().expect("asked").nlink(), 0);
    assert!(!a.at("one").exists());
}

fn appends(a: &Mounted, b: &Mounted) {
    let script = "i=0; while [ $i -lt 50 ]; do echo $0 $i >> $1; i=$((i+1)); done";
    let start = |name: &str, mount: &Mounted| {
        Command::new("sh").args(["-c", script, name]).arg(mount.at("log")).spawn().expect("started")
    };
    let children = [start("x", a), start("y", a), start("z", b)];
    for mut child in children {
        assert!(child.wait().expect("waited").success());
    }
    let log = std::fs::read_to_string(a.at("log")).expect("read");
    for name in ["x", "y", "z"] {
        let mine: Vec<_> = log.lines().filter_map(|line| line.strip_prefix(name)).collect();
        let wanted: Vec<_> = (0..50).map(|i| format!(" {i}")).collect();
        assert_eq!(mine, wanted, "no line of {name} is lost, torn or out of order");
    }
}

fn holes(a: &Mounted, b: &Mounted) {
    const LEN: u64 = 64 << 30;
    let mut file = both(OpenOptions::new().create(true), a.at("sparse"));
    file.set_len(LEN).expect("extended");
    file.write_all_at(b"end", LEN - 3).expect("written");
    file.write_all_at(b"middle", LEN / 2 - 3).expect("written");
    let meta = std::fs::metadata(b.at("sparse")).expect("asked");
    assert_eq!(meta.len(), LEN);
    assert!(meta.blocks() < 4096, "{} blocks", meta.blocks());
    let mut bytes = [9; 12];
    File::open(b.at("sparse")).expect("opened").read_exact_at(&mut bytes, LEN / 2 - 6).expect("read");
    assert_eq!(&bytes, b"\0\0\0middle\0\0\0");
    assert_eq!(file.seek(SeekFrom::End(0)).expect("sought"), LEN);
    // SAFETY: only numbers are passed.
    let grown = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, 4096) };
    assert_eq!(grown, 0);
    file.set_len(5).expect("cut");
    assert_eq!(std::fs::read(b.at("sparse")).expect("read"), [0; 5]);
}

fn attributes(cluster: &Embedded, a: &Mounted, b: &Mounted) {
    let file = both(OpenOptions::new().create(true).mode(0o640), a.at("attributes"));
    file.write_all_at(b"x", 0).expect("written");
    let then = std::time::SystemTime::UNIX_EPOCH + Duration::from_nanos(1_234_567_890_123_456_789);
    file.set_modified(then).expect("set");
    drop(file);
    let meta = std::fs::metadata(b.at("attributes")).expect("asked");
    assert_eq!(meta.modified().expect("a time"), then, "set after the last write, it stays");
    std::fs::set_permissions(b.at("attributes"), PermissionsExt::from_mode(0o4711)).expect("set");
    assert_eq!(std::fs::metadata(a.at("attributes")).expect("asked").mode() & 0o7777, 0o4711);
    let path = std::ffi::CString::new(a.at("attributes").to_str().expect("text")).expect("no zeros");
    let mut value = [0u8; 16];
    // SAFETY: the buffers have the passed lengths.
    let (set, got) = unsafe {
        let (name, to) = (c"user.color".as_ptr(), value.as_mut_ptr().cast());
        (
            libc::setxattr(path.as_ptr(), name, c"green".as_ptr().cast(), 5, 0),
            libc::getxattr(path.as_ptr(), name, to, value.len()),
        )
    };
    assert_eq!((set, got, &value[..5]), (0, 5, b"green".as_slice()));
    // SAFETY: a structure of numbers, filled by the call.
    let space = unsafe {
        let mut space: libc::statvfs = std::mem::zeroed();
        assert_eq!(libc::statvfs(path.as_ptr(), &mut space), 0);
        space
    };
    assert!(space.f_blocks > 0 && space.f_bavail <= space.f_blocks);
    // All targets are on one disk, which counts once. SAFETY: as above.
    let disk = unsafe {
        let path = std::ffi::CString::new(cluster.state().to_str().expect("text")).expect("no zeros");
        let mut disk: libc::statvfs = std::mem::zeroed();
        assert_eq!(libc::statvfs(path.as_ptr(), &mut disk), 0);
        disk
    };
    // Blocks that the disk reserves for root count neither as used nor as free.
    let total = (disk.f_blocks - (disk.f_bfree - disk.f_bavail)) * disk.f_frsize;
    let bytes = space.f_blocks * space.f_frsize;
    assert!(total - bytes < space.f_frsize, "{bytes} of {total}");
    let used = |space: &libc::statvfs| (space.f_blocks - space.f_bfree) * space.f_frsize;
    // Others write to the disk meanwhile.
    assert!(used(&space).abs_diff(used(&disk)) < 1 << 30, "{} and {}", used(&space), used(&disk));
}

fn directories(a: &Mounted, b: &Mounted) {
    // More than a page of the listing.
    std::fs::create_dir(a.at("many")).expect("made");
    for name in 0..1200 {
        File::create(a.at("many").join(format!("{name:04}"))).expect("made");
    }
    let mut seen = 0;
    for entry in std::fs::read_dir(b.at("many")).expect("opened") {
        std::fs::remove_file(entry.expect("an entry").path()).expect("each is listed once");
        seen += 1;
    }
    assert_eq!(seen, 1200, "removing while listing skips nothing");
    std::fs::remove_dir(a.at("many")).expect("empty");
}

/// Returns seconds and nanoseconds of the last change, as the file system reports them.
fn changed(path: impl AsRef<Path>) -> (i64, i64) {
    let meta = std::fs::metadata(path).expect("asked");
    (meta.mtime(), meta.mtime_nsec())
}

fn times_before_1970(cluster: &Embedded, a: &Mounted, b: &Mounted) {
    let path = std::ffi::CString::new(a.at("old").to_str().expect("text")).expect("no zeros");
    File::create(a.at("old")).expect("made");
    for (seconds, nanos) in [(-2, 500_000_000), (-1, 0), (-1, 999_999_999), (-1, 1), (-86_400, 7), (0, 1)] {
        let time = libc::timespec { tv_sec: seconds, tv_nsec: nanos };
        // SAFETY: a path and two times.
        let set = unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), [time; 2].as_ptr(), 0) };
        assert_eq!(set, 0);
        assert_eq!(changed(a.at("old")), (seconds, nanos));
        assert_eq!(changed(b.at("old")), (seconds, nanos));
        let seen = cluster.run(["stat", "-c", "%.9Y", "/weft/old"]);
        let exact = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        let sign = if exact < 0 { "-" } else { "" };
        let (whole, part) = (exact.unsigned_abs() / 1_000_000_000, exact.unsigned_abs() % 1_000_000_000);
        assert_eq!(seen.trim(), format!("{sign}{whole}.{part:09}"), "the same under weft run");
        // A copy keeps the time.
        let local = cluster.local("old");
        cluster.weft(["cp", "-p", "/weft/old", local.to_str().expect("text")]);
        assert_eq!(changed(&local), (seconds, nanos));
    }
    cluster.run(["touch", "-d", "1969-12-31 23:59:58.25 UTC", "/weft/old"]);
    assert_eq!(changed(b.at("old")), (-2, 250_000_000));
}

fn removed_directories(a: &Mounted, b: &Mounted) {
    std::fs::create_dir(a.at("gone")).expect("made");
    for remover in [a, b] {
        let open = File::open(a.at("gone")).expect("opened");
        std::fs::remove_dir(remover.at("gone")).expect("removed");
        for flags in [libc::O_RDONLY, libc::O_CREAT | libc::O_WRONLY, libc::O_DIRECTORY, libc::O_PATH] {
            // SAFETY: a directory, a name, flags and a mode.
            let opened = unsafe { libc::openat(open.as_raw_fd(), c"name".as_ptr(), flags, 0o600) };
            let error = std::io::Error::last_os_error();
            assert_eq!((opened, error.raw_os_error()), (-1, Some(libc::ENOENT)), "{flags:o}");
        }
        let _ = std::fs::create_dir(a.at("gone"));
    }
    let _ = std::fs::remove_dir(a.at("gone"));
}

fn lock(file: &File, kind: i32, start: i64, len: i64, wait: bool) -> std::io::Result<()> {
    // SAFETY: zeros are a lock of the whole file; the call only reads it.
    let result = unsafe {
        let mut lock: libc::flock = std::mem::zeroed();
        (lock.l_type, lock.l_start, lock.l_len) = (kind as i16, start, len);
        let how = if wait { libc::F_SETLKW } else { libc::F_SETLK };
        libc::fcntl(file.as_raw_fd(), how, &lock)
    };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

fn locks(a: &Mounted, b: &Mounted) {
    let here = both(OpenOptions::new().create(true), a.at("locked"));
    let there = both(&mut OpenOptions::new(), b.at("locked"));
    lock(&here, libc::F_WRLCK, 0, 10, false).expect("free");
    assert_eq!(
        lock(&there, libc::F_RDLCK, 9, 5, false).expect_err("held").raw_os_error(),
        Some(libc::EAGAIN)
    );
    lock(&there, libc::F_WRLCK, 10, 5, false).expect("beside it");
    lock(&here, libc::F_UNLCK, 0, 10, false).expect("given back");
    lock(&there, libc::F_WRLCK, 0, 5, true).expect("free again");
    drop(there);
    lock(&here, libc::F_WRLCK, 0, 0, true).expect("a closed file holds nothing");
    drop(here);
    let (here, there) = (File::open(a.at("locked")), File::open(b.at("locked")));
    let (here, there) = (here.expect("opened"), there.expect("opened"));
    let flock = |file: &File, how| {
        // SAFETY: only numbers are passed.
        unsafe { libc::flock(file.as_raw_fd(), how) == 0 }
    };
    assert!(flock(&here, libc::LOCK_SH) && flock(&there, libc::LOCK_SH));
    assert!(!flock(&there, libc::LOCK_EX | libc::LOCK_NB), "shared with another mount");
    if let Ok(both) = File::options().read(true).write(true).open(a.at("locked"))
        && root()
    {
        assert!(flock(&both, libc::LOCK_UN));
        lock(&both, libc::F_WRLCK, 0, 0, false).expect("locks of the other kind do not conflict");
        lock(&both, libc::F_UNLCK, 0, 0, false).expect("given back");
    }
    drop(here);
    // The kernel reports the end of a flock by a close only after the close has returned.
    assert!(flock(&there, libc::LOCK_EX));
}

/// Returns whether this is root: only root may look up which kind of lock a program requests.
fn root() -> bool {
    // SAFETY: no preconditions.
    unsafe { libc::geteuid() == 0 }
}

/// Starts a program that waits for a lock that this test holds.
fn waiting(mount: &Mounted) -> Child {
    let script = "import fcntl,signal,sys\nsignal.signal(signal.SIGUSR1, lambda *_: sys.exit(7))\n\
                  f=open(sys.argv[1],'r+')\nprint('waits',flush=True)\nfcntl.lockf(f,fcntl.LOCK_EX)\n";
    let mut command = Command::new("python3");
    command.args(["-c", script]).arg(mount.at("locked")).stdout(Stdio::piped());
    let mut child = command.spawn().expect("python3 starts");
    let mut line = [0; 6];
    child.stdout.as_mut().expect("piped").read_exact(&mut line).expect("the program reports that it waits");
    child
}

fn interrupted_locks(a: &Mounted, b: &Mounted) {
    let here = both(&mut OpenOptions::new(), a.at("locked"));
    lock(&here, libc::F_WRLCK, 0, 0, true).expect("free");
    for signal in [libc::SIGUSR1, libc::SIGKILL] {
        let mut child = waiting(b);
        let since = Instant::now();
        // SAFETY: a process that this test started.
        unsafe { libc::kill(child.id() as i32, signal) };
        let status = child.wait().expect("waited");
        assert_ne!(status.code(), Some(0), "it did not get the lock");
        assert!(since.elapsed() < Duration::from_secs(10), "signal {signal} ended the wait");
    }
    drop(here);
    let there = both(&mut OpenOptions::new(), b.at("locked"));
    lock(&there, libc::F_WRLCK, 0, 0, true).expect("interrupted waiters hold no lock");
}
