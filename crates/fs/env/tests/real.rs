//! Problems specific to the real world: descriptors, stale sockets, hostile peers.

use std::fs;
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use weft_core::{ByteLen, LocalOffset, Nanos};
use weft_env::real::{RealConn, RealEnv, block_on};
use weft_env::{Address, Attachment, Conn, Dir, Env, File, Listener, OpenMode, Peer};

const LONG: Nanos = Nanos::from_s(20);

/// Returns both ends of a connection whose peer is a raw socket.
fn with_foreign_peer(folder: &Path) -> (RealConn, UnixStream) {
    let path = folder.join("foreign");
    let listener = UnixListener::bind(&path).expect("bind");
    let conn = block_on(RealEnv::new().connect(&Address::Unix(path), LONG)).expect("connect");
    (conn, listener.accept().expect("accept").0)
}

fn open_fds() -> Vec<(i32, String)> {
    let entries = fs::read_dir("/proc/self/fd").expect("descriptors");
    let entries = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let target = fs::read_link(entry.path()).ok()?;
        Some((entry.file_name().to_str()?.parse().ok()?, target.to_string_lossy().into_owned()))
    });
    entries.collect()
}

#[test]
fn descriptors_are_above_the_floor_and_close_on_exec() {
    const FLOOR: i32 = 300;
    let folder = tempfile::tempdir().expect("folder");
    let env = RealEnv::with_fd_floor(FLOOR);
    let address = Address::Unix(folder.path().join("floor.sock"));
    block_on(async {
        let mut listener = env.listen(&address).await.expect("listen");
        let mut client = env.connect(&address, LONG).await.expect("connect");
        let mut server = listener.accept().await.expect("accept");
        let dir = env.dir(folder.path()).await.expect("folder");
        let file = dir.open("floor.file", OpenMode::CREATE).await.expect("file");
        let shared = env.shared(1).expect("shared");
        let lock = dir.lock("floor.lock").await.expect("lock");
        let both = [Attachment::File(file.clone()), Attachment::Shared(shared.clone())];
        server.send_attached(b"x", &both).await.expect("send");
        client.recv(&mut [0; 1]).await.expect("receive");
        let taken = client.take_file().expect("a file");
        let taken_shared = client.take_shared(1).expect("shared memory");
        assert!(taken.as_raw_fd() >= FLOOR && file.as_fd().as_raw_fd() >= FLOOR);
        let ours: Vec<_> = open_fds()
            .into_iter()
            .filter(|(_, target)| target.contains("/floor.") || target.contains("memfd:weft"))
            .collect();
        // Two for the file, two for the memory, one for the lock.
        assert_eq!(ours.len(), 5, "{ours:?}");
        let above: Vec<_> = open_fds().into_iter().filter(|(fd, _)| *fd >= FLOOR).collect();
        assert_eq!(above.len(), 9, "the five, three sockets and the folder: {above:?}");
        for (fd, target) in ours.iter().chain(&above) {
            assert!(*fd >= FLOOR, "{fd} {target}");
            // SAFETY: no memory is involved.
            let flags = unsafe { libc::fcntl(*fd, libc::F_GETFD) };
            assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC, "{fd} {target}");
        }
        drop((taken_shared, shared, lock));
    });
}

#[test]
fn a_stale_socket_is_replaced_and_another_file_is_not() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("socket");
    drop(UnixListener::bind(&path).expect("bind"));
    assert!(path.exists(), "the name remains");
    let env = RealEnv::new();
    let address = Address::Unix(path.clone());
    let listener = block_on(env.listen(&address)).expect("a stale name is replaced");
    assert_eq!(block_on(env.listen(&address)).expect_err("in use").kind(), ErrorKind::AddrInUse);
    drop(listener);
    assert!(!path.exists(), "the listener removes its name");
    fs::write(&path, "precious").expect("write");
    assert!(block_on(env.listen(&address)).is_err());
    assert_eq!(fs::read(&path).expect("still there"), b"precious");
}

#[test]
fn a_listener_does_not_remove_the_name_of_its_successor() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("socket");
    let first = block_on(RealEnv::new().listen(&Address::Unix(path.clone()))).expect("listen");
    fs::remove_file(&path).expect("remove");
    let _second = UnixListener::bind(&path).expect("bind");
    drop(first);
    assert!(path.exists());
}

#[test]
fn memory_that_can_shrink_is_rejected() {
    let folder = tempfile::tempdir().expect("folder");
    let (mut conn, peer) = with_foreign_peer(folder.path());
    // SAFETY: the name is a C string, and this process owns the new descriptor.
    let memory =
        unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"foreign".as_ptr(), libc::MFD_ALLOW_SEALING)) };
    // SAFETY: no memory is involved.
    assert_eq!(unsafe { libc::ftruncate(memory.as_raw_fd(), 8192) }, 0);
    let file = fs::File::create(folder.path().join("file")).expect("file");
    file.set_len(8192).expect("length");
    let (mut pipe, _writer) = std::io::pipe().expect("pipe");
    for fd in [memory.as_fd(), file.as_fd(), pipe.as_fd()] {
        send_fd(&peer, fd.as_raw_fd());
        block_on(conn.recv(&mut [0; 1])).expect("receive");
        let error = block_on(async { conn.take_shared(4096) }).expect_err("not sealed");
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    }
    send_fd(&peer, pipe.as_raw_fd());
    block_on(conn.recv(&mut [0; 1])).expect("receive");
    assert!(conn.take_file().is_none(), "a pipe is not a regular file");
    let _ = &mut pipe;
    // SAFETY: no memory is involved.
    assert_eq!(unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) }, 0);
    send_fd(&peer, memory.as_raw_fd());
    block_on(conn.recv(&mut [0; 1])).expect("receive");
    conn.take_shared(4096).expect("sealed now");
}

/// Sends one byte and one descriptor.
fn send_fd(socket: &UnixStream, fd: i32) {
    #[repr(C, align(8))]
    struct Control([u8; 24]);
    let mut control = Control([0; 24]);
    let mut byte = [1_u8];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // SAFETY: the message points to live memory, and the control buffer has space for one descriptor.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = libc::CMSG_SPACE(4) as _;
        let header = libc::CMSG_FIRSTHDR(&message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(4) as _;
        libc::CMSG_DATA(header).cast::<i32>().write_unaligned(fd);
        assert_eq!(libc::sendmsg(socket.as_raw_fd(), &message, 0), 1);
    }
}

#[test]
fn a_flood_of_descriptors_is_closed() {
    let folder = tempfile::tempdir().expect("folder");
    let (mut conn, peer) = with_foreign_peer(folder.path());
    let file = fs::File::create(folder.path().join("flood")).expect("file");
    let count = || open_fds().iter().filter(|(_, target)| target.ends_with("/flood")).count();
    for _ in 0..100 {
        send_fd(&peer, file.as_raw_fd());
        block_on(conn.recv(&mut [0; 1])).expect("receive");
    }
    assert!(count() <= 17, "{} descriptors are kept", count());
    drop(conn);
    assert_eq!(count(), 1);
}

#[test]
fn symbolic_links_are_not_followed() {
    let folder = tempfile::tempdir().expect("folder");
    let outside = tempfile::tempdir().expect("folder");
    std::os::unix::fs::symlink(outside.path(), folder.path().join("link")).expect("link");
    fs::write(outside.path().join("secret"), "x").expect("write");
    std::os::unix::fs::symlink(outside.path().join("secret"), folder.path().join("file")).expect("link");
    block_on(async {
        let dir = RealEnv::new().dir(folder.path()).await.expect("folder");
        for name in ["link/secret", "link/new", "file"] {
            let error = dir.open(name, OpenMode::CREATE).await.expect_err("a link");
            assert_eq!(error.raw_os_error(), Some(libc::ELOOP), "{name}: {error}");
        }
        assert!(dir.list("link").await.is_err());
        assert!(dir.remove("link/secret").await.is_err());
        assert!(dir.rename("link/secret", "mine").await.is_err());
        assert!(outside.path().join("secret").exists());
    });
}

#[test]
fn the_peer_is_this_process() {
    let folder = tempfile::tempdir().expect("folder");
    let (conn, _peer) = with_foreign_peer(folder.path());
    let Peer::Local { uid, gid, pid, groups } = conn.peer().clone() else { panic!("a local peer") };
    // SAFETY: no memory is involved.
    unsafe { assert_eq!((uid, gid), (libc::geteuid(), libc::getegid())) };
    assert_eq!(pid, std::process::id());
    let mut mine = vec![0; 1024];
    // SAFETY: the list has space for 1024 groups.
    let count = unsafe { libc::getgroups(1024, mine.as_mut_ptr()) };
    mine.truncate(count as usize);
    let sorted = |mut groups: Vec<u32>| {
        groups.sort_unstable();
        groups
    };
    assert_eq!(sorted(groups), sorted(mine));
}

#[test]
#[should_panic(expected = "a future was pending in the real world")]
fn a_pending_future_is_a_bug() {
    block_on(std::future::pending::<()>());
}

#[test]
fn direct_reads_stop_at_the_end_of_the_file() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("folder");
    #[repr(align(4096))]
    struct Aligned([u8; 8192]);
    block_on(async {
        let dir = RealEnv::new().dir(folder.path()).await.expect("folder");
        let file = match dir.open("f", OpenMode { direct: true, ..OpenMode::CREATE }).await {
            Ok(file) => file,
            // The file system does not support direct I/O; the open must report that.
            Err(error) => return assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}"),
        };
        let mut buffer = Box::new(Aligned([7; 8192]));
        file.write_at(&[IoSlice::new(&buffer.0)], LocalOffset(0)).await.expect("write");
        file.set_len(ByteLen(5000)).await.expect("cut");
        let count = file
            .read_at(&mut [IoSliceMut::new(&mut buffer.0)], LocalOffset(0))
            .await
            .expect("read at the end");
        assert_eq!(count, 5000);
    });
}

#[test]
fn locks_exclude_other_processes_and_end_with_them() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("lock");
    fs::write(&path, "").expect("file");
    let holder = fs::File::open(&path).expect("file");
    // SAFETY: no memory is involved.
    assert_eq!(unsafe { libc::flock(holder.as_raw_fd(), libc::LOCK_EX) }, 0);
    let dir = block_on(RealEnv::new().dir(folder.path())).expect("folder");
    let error = block_on(dir.lock("lock")).err().expect("locked");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    drop(holder);
    block_on(dir.lock("lock")).expect("free");
}

extern "C" fn ignore(_: libc::c_int) {}

#[test]
fn a_fast_timer_of_the_host_neither_breaks_nor_prolongs_waits() {
    // SAFETY: the handler does nothing; without SA_RESTART every blocking call is interrupted.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ignore as extern "C" fn(libc::c_int) as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
    }
    let folder = tempfile::tempdir().expect("folder");
    let (mut conn, mut peer) = with_foreign_peer(folder.path());
    conn.set_timeout(Some(Nanos::from_ms(100))).expect("time-out");
    // SAFETY: no memory is involved.
    let this = unsafe { libc::pthread_self() };
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let timer = std::thread::spawn(move || {
        let mut sent = 0;
        while stopped.recv_timeout(std::time::Duration::from_millis(5)).is_err() {
            // SAFETY: the target thread waits for this one to end, so it is alive.
            assert_eq!(unsafe { libc::pthread_kill(this, libc::SIGUSR1) }, 0);
            sent += 1;
            assert!(sent < 2000, "the timeout never expires");
        }
        sent
    });
    let error = block_on(conn.recv_exact(&mut [IoSliceMut::new(&mut [0; 4])])).expect_err("silence");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    // Data that arrives in time is still received.
    conn.set_timeout(Some(LONG)).expect("time-out");
    let writer = std::thread::spawn(move || {
        for byte in 0..4 {
            std::thread::sleep(std::time::Duration::from_millis(12));
            std::io::Write::write_all(&mut peer, &[byte]).expect("write");
        }
    });
    let mut bytes = [9; 4];
    block_on(conn.recv_exact(&mut [IoSliceMut::new(&mut bytes)])).expect("four bytes");
    assert_eq!(bytes, [0, 1, 2, 3]);
    stop.send(()).expect("stop");
    assert!(timer.join().expect("timer") > 10);
    writer.join().expect("writer");
}
