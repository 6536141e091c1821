//! A process that misuses a leased descriptor affects neither the server nor other users.

use crate::support::*;
use std::io::IoSlice;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use weft_core::LocalOffset;
use weft_env::real::{RealEnv, RealFile, block_on};
use weft_env::{Address, Conn, File};
use weft_server::{ServerConfig, ServerHandle, WritableLeases};
use weft_wire::Rights;
use weft_wire::data::{DataReply, DataRequest, DatafileId, lease};
use weft_wire::hello::{Identity, Role};

struct Stage {
    env: RealEnv,
    server: ServerHandle<RealEnv>,
    unix: Address,
    folder: tempfile::TempDir,
}

fn stage<F: AsyncFnOnce(&Stage)>(change: impl FnOnce(&mut ServerConfig), test: F) {
    let folder = tempfile::tempdir().expect("a folder");
    open_to_all(folder.path());
    let env = RealEnv::new();
    block_on(async {
        let mut config = config(folder.path(), vec![unix(folder.path())], false);
        change(&mut config);
        make_folders(&config);
        let server = start(&env, config).await;
        let unix = server.addresses()[0].clone();
        let stage = Stage { env, server, unix, folder };
        test(&stage).await;
        assert_eq!(stage.server.panics(), 0);
        stage.server.stop().await;
    });
}

async fn attach(client: &mut Client<RealEnv>) {
    let attached = client.call(&DataRequest::AttachShared { payload_len: 0 }, &[]).await.0;
    assert_eq!(attached, DataReply::Attached { payload_len: 0 });
    client.link.conn().take_shared(lease::PAGE_LEN).expect("the lease page");
}

async fn ask(client: &mut Client<RealEnv>, part: DatafileId, write: bool) -> DataReply {
    let cap = client.cap(part.file.0);
    client.call(&DataRequest::Lease { datafile: part, cap, write }, &[]).await.0
}

async fn lease_of(client: &mut Client<RealEnv>, part: DatafileId, write: bool) -> RealFile {
    let reply = ask(client, part, write).await;
    assert!(matches!(reply, DataReply::Leased { .. }), "{reply:?}");
    client.link.conn().take_file().expect("a descriptor")
}

fn flags(file: &RealFile) -> i32 {
    // SAFETY: an open descriptor and no memory.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    assert!(flags >= 0);
    flags
}

#[test]
fn flags_offset_and_locks_of_a_leased_descriptor_are_private() {
    stage(
        |_| (),
        async |stage| {
            let mut holder = Client::connect(&stage.env, &stage.unix).await;
            attach(&mut holder).await;
            let part = datafile(0, 7, 0);
            assert_eq!(holder.write(part, 0, b"0123456789").await, DataReply::Written);
            let mine = lease_of(&mut holder, part, true).await;
            let other = lease_of(&mut holder, part, true).await;
            let reader = lease_of(&mut holder, part, false).await;
            let before = (flags(&other), flags(&reader));
            // SAFETY: an open descriptor; no call takes memory.
            unsafe {
                let fd = mine.as_raw_fd();
                assert_eq!(libc::fcntl(fd, libc::F_SETFL, libc::O_APPEND | libc::O_NONBLOCK), 0);
                // Some file systems reject these flags.
                libc::fcntl(fd, libc::F_SETFL, libc::O_APPEND | libc::O_NONBLOCK | libc::O_DIRECT);
                assert_ne!(libc::fcntl(fd, libc::F_GETFL) & libc::O_APPEND, 0);
                assert_eq!(libc::lseek(fd, 3, libc::SEEK_SET), 3);
                assert_eq!(libc::flock(fd, libc::LOCK_EX | libc::LOCK_NB), 0);
                assert_eq!(libc::lseek(other.as_raw_fd(), 0, libc::SEEK_CUR), 0);
            }
            assert_eq!((flags(&other), flags(&reader)), before, "each lease has its own description");
            // The server and other leases still use the right positions.
            let mut client = Client::connect(&stage.env, &stage.unix).await;
            assert_eq!(client.write(part, 2, b"by message").await, DataReply::Written);
            other.write_at(&[IoSlice::new(b"AB")], LocalOffset(0)).await.expect("written");
            assert_eq!(client.read(part, 0, 100).await.1, b"ABby message");
            assert_eq!(mine.meta().await.expect("exists").len.0, 12, "nothing was appended");
            // A new lease has default flags.
            let fresh = lease_of(&mut holder, part, true).await;
            assert_eq!(flags(&fresh) & (libc::O_APPEND | libc::O_NONBLOCK | libc::O_DIRECT), 0);
        },
    );
}

#[test]
fn only_the_user_who_runs_the_server_gets_writable_descriptors() {
    if !skip::unless_root("connecting as other users") {
        return;
    }
    stage(
        |_| (),
        async |stage| {
            let part = datafile(0, 8, 0);
            let role = Role::Client(Identity { uid: 0, gid: 0, groups: vec![] }); // the server ignores this
            let mut other =
                connect_as_user(&stage.env, &stage.unix, 4242, hello(role, 2)).await.expect("welcome");
            attach(&mut other).await;
            assert_eq!(other.write(part, 0, b"theirs").await, DataReply::Written, "messages do");
            assert_eq!(ask(&mut other, part, true).await, DataReply::NotLeased);
            assert!(other.link.conn().take_file().is_none());
            // For reading, the user gets a read-only descriptor.
            let file = lease_of(&mut other, part, false).await;
            assert_eq!(flags(&file) & libc::O_ACCMODE, libc::O_RDONLY);
            assert!(file.write_at(&[IoSlice::new(b"no")], LocalOffset(0)).await.is_err());
            assert!(file.set_len(weft_core::ByteLen(1)).await.is_err());
            assert!(file.punch(LocalOffset(0), weft_core::ByteLen(1)).await.is_err());
            // Reopening through /proc/self/fd is checked against the datafile's mode, which gives access only to the
            // server.
            let link = format!("/proc/self/fd/{}", file.as_raw_fd());
            let mode = std::fs::metadata(link).expect("the datafile").permissions().mode();
            assert_eq!(mode & 0o7777, 0o600, "{mode:o}");
            // A capability for reading does not grant a writable descriptor either.
            let cap = other.grant(part.file.0, Rights::READ, 1 << 40);
            let reply = other.call(&DataRequest::Lease { datafile: part, cap, write: true }, &[]).await.0;
            assert!(errno(&reply).is_some(), "{reply:?}");
            // The user who runs the server is not affected.
            let mut own = Client::connect(&stage.env, &stage.unix).await;
            attach(&mut own).await;
            let file = lease_of(&mut own, part, true).await;
            file.write_at(&[IoSlice::new(b"OWN")], LocalOffset(0)).await.expect("written");
            assert_eq!(other.read(part, 0, 100).await.1, b"OWNirs");
        },
    );
}

#[test]
fn the_setting_gives_writable_descriptors_to_all_users() {
    if !skip::unless_root("connecting as other users") {
        return;
    }
    stage(
        |config| config.limits.writable_leases = WritableLeases::All,
        async |stage| {
            let part = datafile(0, 9, 0);
            let mut other = connect_as_user(&stage.env, &stage.unix, 4242, hello(Role::Client(me()), 2))
                .await
                .expect("welcome");
            attach(&mut other).await;
            let file = lease_of(&mut other, part, true).await;
            file.write_at(&[IoSlice::new(b"bypassing the server")], LocalOffset(0)).await.expect("written");
            assert_eq!(other.read(part, 0, 100).await.1, b"bypassing the server");
            assert!(stage.folder.path().join("t0/objects").exists());
        },
    );
}

#[test]
fn a_removed_datafile_is_not_leased_under_its_old_name() {
    stage(
        |_| (),
        async |stage| {
            let mut client = Client::connect(&stage.env, &stage.unix).await;
            attach(&mut client).await;
            let part = datafile(0, 10, 0);
            assert_eq!(ask(&mut client, part, false).await, DataReply::NotLeased, "it does not exist");
            // For writing, an empty datafile is created.
            let file = lease_of(&mut client, part, true).await;
            assert_eq!(file.meta().await.expect("exists").len.0, 0);
            assert_eq!(
                client.call(&DataRequest::Remove { datafiles: vec![part] }, &[]).await.0,
                DataReply::Done
            );
            // A write through the old descriptor reaches only a file without a name.
            file.write_at(&[IoSlice::new(b"late")], LocalOffset(0))
                .await
                .expect("into a file without a name");
            assert_eq!(ask(&mut client, part, false).await, DataReply::NotLeased);
        },
    );
}
