//! Guarantees of the client beyond reading and writing: names, locks, appends, forks, bounds on leases.

mod support;

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use support::{READ_WRITE, Reach, RealCluster, at, open, options, pattern, read, write};
use weft_client::{
    ClientOptions, Error, FileType, HandleToken, LayoutSpec, LockKind, LockOwner, LockRange, LockSpace,
    OpenFlags, Transport, Wait,
};
use weft_core::{ByteLen, FileOffset};
use weft_env::real::block_on;

const WHOLE: LockRange = LockRange { start: 0, end: u64::MAX };
const ME: LockOwner = LockOwner::Process(0);

#[test]
fn names_links_and_attributes_behave_as_in_posix() {
    block_on(async {
        let cluster = RealCluster::start(Reach::Unix).await;
        let client = cluster.client(options(Transport::Auto));
        client.mkdir(&at("d"), 0o755).await.expect("mkdir");
        let file = open(&client, "d/f", 65_536).await;
        assert!(file.created());
        write(&file, 300_000, b"end").await;
        assert_eq!(client.stat(&at("d/f")).await.expect("while written").size, ByteLen(300_003));
        file.close().await.expect("closes");
        client.flush().await.expect("the close has arrived");
        let attr = client.stat(&at("d/f")).await.expect("valid");
        assert_eq!((attr.size, attr.invalid_size.is_none()), (ByteLen(300_003), true));
        client.symlink(&at("d/l"), b"f").await.expect("symlink");
        assert_eq!(client.readlink(&at("d/l")).await.expect("readlink"), b"f");
        assert_eq!(client.stat(&at("d/l")).await.expect("follows").file, attr.file);
        client.symlink(&at("out"), b"/etc/passwd").await.expect("symlink");
        let left = client.stat(&at("out")).await.expect_err("leads out");
        assert!(matches!(left, Error::ExternalLink { ref target, .. } if target == b"/etc/passwd"), "{left}");
        client.link(&at("d/f"), &at("d/g")).await.expect("link");
        client.set_xattr(&at("d/g"), "user.x", b"1", true, false).await.expect("xattr");
        assert_eq!(client.get_xattr(&at("d/f"), "user.x").await.expect("xattr"), b"1");
        client.rename(&at("d/g"), &at("h"), false, false).await.expect("rename");
        let (entries, more) = client.list(&at("d"), b"", 100, true).await.expect("list");
        let names: Vec<_> =
            entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect();
        assert_eq!((names, more), (vec!["f".to_owned(), "l".to_owned()], false));
        assert_eq!(entries[0].attr.as_ref().expect("attributes").size, ByteLen(300_003));
        assert_eq!(entries[1].kind, FileType::Symlink);
        client.truncate(&at("h"), ByteLen(10)).await.expect("truncate");
        assert_eq!(client.stat(&at("d/f")).await.expect("stat").size, ByteLen(10));
        let truncate = OpenFlags { truncate: true, ..READ_WRITE };
        let file = client.open(&at("h"), truncate, 0, &LayoutSpec::default()).await.expect("opens");
        assert_eq!(file.size().await.expect("size"), ByteLen(0));
        let error = client.mkdir(&at("d"), 0o755).await.expect_err("is there");
        assert_eq!(error.errno(), 17);
        assert!(error.to_string().starts_with("d: "), "{error}");
        assert_eq!(client.rmdir(&at("d")).await.expect_err("not empty").errno(), 39);
        let space = client.statfs(None).await.expect("statfs");
        assert!(space.total.0 > space.free.0 && space.free.0 > 0 && space.servers_missing == 0, "{space:?}");
        cluster.stop().await;
    });
}

#[test]
fn an_unnamed_file_gets_a_name_unless_it_was_opened_exclusively() {
    block_on(async {
        let cluster = RealCluster::start(Reach::Unix).await;
        let client = cluster.client(options(Transport::Auto));
        client.mkdir(&at("d"), 0o755).await.expect("mkdir");
        let spec = LayoutSpec::default();
        let file = client.open_unnamed(&at("d"), READ_WRITE, 0o600, &spec).await.expect("created");
        write(&file, 300_000, b"end").await;
        assert_eq!(file.attr().await.expect("open").nlink, 0);
        assert_eq!(file.link(&at("d")).await.expect_err("taken").errno(), 17);
        let linked = file.link(&at("d/f")).await.expect("linked");
        assert_eq!((linked.file, linked.nlink, linked.size), (file.file(), 1, ByteLen(300_003)));
        file.close().await.expect("closes");
        let named = client.open(&at("d/f"), READ_WRITE, 0, &spec).await.expect("opens");
        assert_eq!((named.file(), read(&named, 300_000, 9).await), (linked.file, b"end".to_vec()));
        // A removed file stays without a name.
        client.unlink(&at("d/f")).await.expect("unlink");
        assert_eq!(named.link(&at("d/f")).await.expect_err("removed").errno(), 2);
        let exclusive = OpenFlags { exclusive: true, ..READ_WRITE };
        let file = client.open_unnamed(&at("d"), exclusive, 0o600, &spec).await.expect("created");
        assert_eq!(file.link(&at("d/f")).await.expect_err("exclusive").errno(), 2);
        let readable = OpenFlags { read: true, ..OpenFlags::default() };
        let refused = client.open_unnamed(&at("d"), readable, 0o600, &spec).await;
        assert_eq!(refused.expect_err("not for writing").errno(), 22);
        let directory = OpenFlags { directory: true, ..READ_WRITE };
        let refused = client.open(&at("d"), directory, 0o600, &spec).await;
        assert_eq!(refused.expect_err("no open creates a directory").errno(), 22);
        cluster.stop().await;
    });
}

#[test]
fn limits_are_errors_and_requests_longer_than_any_message_succeed() {
    block_on(async {
        let cluster = RealCluster::start(Reach::Unix).await;
        let client = cluster.client(options(Transport::Auto));
        let file = open(&client, "f", 65_536).await;
        let last = FileOffset(i64::MAX as u64);
        assert_eq!(file.write_at(&[IoSlice::new(b"x")], last).await.expect_err("too far").errno(), 27);
        assert_eq!(file.write_at(&[], FileOffset(5)).await.expect("nothing"), 0);
        assert_eq!(file.size().await.expect("size"), ByteLen(0));
        let mut buf = [1; 8];
        assert_eq!(file.read_at(&mut [IoSliceMut::new(&mut buf)], last).await.expect("nothing there"), 0);
        let beyond = FileOffset(1 << 63);
        let error = file.read_at(&mut [IoSliceMut::new(&mut buf)], beyond).await.expect_err("no offset");
        assert_eq!(error.errno(), 22);
        assert_eq!(file.truncate(ByteLen(1 << 63)).await.expect_err("too long").errno(), 27);
        let readable = OpenFlags { read: true, ..OpenFlags::default() };
        let other = client.open(&at("f"), readable, 0, &LayoutSpec::default()).await.expect("opens");
        assert_eq!(
            other.write_at(&[IoSlice::new(b"x")], FileOffset(0)).await.expect_err("read only").errno(),
            9
        );
        assert_eq!(other.truncate(ByteLen(1)).await.expect_err("read only").errno(), 22);
        // A sparse file of 64 GiB, and a request longer than any message.
        write(&file, 64 << 30, b"far").await;
        assert_eq!(file.size().await.expect("size").0, (64 << 30) + 3);
        assert!(read(&file, 32 << 30, 100_000).await == vec![0; 100_000]);
        let long = pattern(40 << 20, 3);
        for transport in [Transport::Socket, Transport::Auto] {
            let client = cluster.client(options(transport));
            let file = open(&client, &format!("long {transport:?}"), 1 << 20).await;
            write(&file, 12_345, &long).await;
            assert!(read(&file, 12_345, long.len() + 9).await == long, "{transport:?}");
        }
        cluster.stop().await;
    });
}

#[test]
fn locks_exclude_other_sessions_survive_restarts_and_can_be_interrupted() {
    block_on(async {
        let mut cluster = RealCluster::start(Reach::Unix).await;
        let (a, b) = (cluster.client(options(Transport::Auto)), cluster.client(options(Transport::Auto)));
        let (fa, fb) = (open(&a, "f", 65_536).await, open(&b, "f", 65_536).await);
        let (space, kind) = (LockSpace::Record, LockKind::Exclusive);
        let range = LockRange { start: 10, end: 20 };
        fa.lock(space, ME, kind, range, Wait::No).await.expect("free");
        assert_eq!(fb.lock(space, ME, kind, range, Wait::No).await.expect_err("taken").errno(), 11);
        let other = LockRange { start: 20, end: 30 };
        fb.lock(space, ME, kind, other, Wait::No).await.expect("next to it");
        let held = fb.test_lock(space, ME, kind, WHOLE).await.expect("asks").expect("is held");
        assert_eq!((held.kind, held.range), (kind, range));
        let mut asked = 0;
        let mut interrupted = || {
            asked += 1;
            asked == 2
        };
        let error =
            fb.lock(space, ME, kind, range, Wait::Until(&mut interrupted)).await.expect_err("interrupted");
        assert_eq!((error, asked), (Error::Interrupted, 2));
        // After a restart, locks are reclaimed before another session can acquire them.
        cluster.stop_server(0).await;
        cluster.start_server(0).await;
        assert_eq!(fa.size().await.expect("size"), ByteLen(0));
        a.stat(&at("f")).await.expect("reconnects and reclaims");
        assert_eq!(fb.lock(space, ME, kind, range, Wait::No).await.expect_err("still taken").errno(), 11);
        fa.lock(space, ME, LockKind::Shared, range, Wait::No).await.expect("still ours");
        // The waiter gets the lock when the holder's session ends.
        drop(fa);
        drop(a);
        fb.lock(space, ME, kind, range, Wait::Until(&mut || false)).await.expect("free at last");
        drop(fb);
        drop(b);
        cluster.stop().await;
    });
}

#[test]
fn concurrent_appends_never_overlap() {
    block_on(async {
        let cluster = RealCluster::start(Reach::Unix).await;
        let clients: Vec<_> = (0..3).map(|_| cluster.client(options(Transport::Auto))).collect();
        let mut files = Vec::new();
        for client in &clients {
            files.push(open(client, "log", 4096).await);
        }
        // Two threads share each open file.
        std::thread::scope(|scope| {
            for thread in 0..6u64 {
                let file = files[thread as usize / 2].clone();
                scope.spawn(move || {
                    block_on(async {
                        for round in 0..15 {
                            let record = pattern(1000, thread * 100 + round);
                            let (_, count) = file.append(&[IoSlice::new(&record)]).await.expect("appends");
                            assert_eq!(count, 1000);
                        }
                    });
                });
            }
        });
        let all = read(&files[0], 0, 100_000).await;
        assert_eq!(all.len(), 90_000);
        let mut found: Vec<&[u8]> = all.chunks(1000).collect();
        let mut expected: Vec<Vec<u8>> =
            (0..6).flat_map(|t| (0..15).map(move |r| pattern(1000, t * 100 + r))).collect();
        found.sort_unstable();
        expected.sort_unstable();
        assert!(found.iter().zip(&expected).all(|(a, b)| a == b), "a record was torn or lost");
        drop(files);
        drop(clients);
        cluster.stop().await;
    });
}

#[test]
fn leased_descriptors_stay_within_their_bound() {
    block_on(async {
        let cluster = RealCluster::start(Reach::Unix).await;
        let options = ClientOptions { leases_max: 10, ..options(Transport::Descriptor) };
        let client = cluster.client(options);
        let mut files = Vec::new();
        for number in 0..12u64 {
            let file = open(&client, &format!("f{number}"), 4096).await;
            write(&file, 0, &pattern(16_384, number)).await;
            files.push(file);
        }
        for (number, file) in files.iter().enumerate() {
            assert!(read(file, 0, 16_385).await == pattern(16_384, number as u64));
        }
        let fds = std::fs::read_dir("/proc/self/fd").expect("proc");
        let ours = cluster.path().to_string_lossy().into_owned();
        let links = fds.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
        let held =
            links.filter(|to| to.starts_with(&ours) && to.to_string_lossy().contains("objects")).count();
        // The servers of this process keep the datafiles open in their own caches, too.
        assert!(held <= 10 + 48, "{held} datafiles open");
        let mut leases = 0;
        for id in 0..support::SERVERS {
            let status = client.status(weft_core::ServerId(id)).await.expect("status");
            leases += status.targets.iter().map(|target| target.leases).sum::<u32>();
        }
        // Dropped leases are returned with the next request for a lease at the latest.
        assert!(leases <= 10 + 4, "{leases} leases");
        // After an administrator has revoked all leases, reads still work.
        for target in 0..support::SERVERS {
            client.revoke_leases(weft_core::TargetId(target)).await.expect("revokes");
        }
        for (number, file) in files.iter().enumerate() {
            assert!(read(file, 0, 16_385).await == pattern(16_384, number as u64));
        }
        drop(files);
        drop(client);
        cluster.stop().await;
    });
}

#[test]
fn a_write_only_file_is_written_by_descriptor_and_never_read() {
    block_on(async {
        let cluster = RealCluster::start(Reach::Unix).await;
        let client = cluster.client(options(Transport::Descriptor));
        let flags = OpenFlags { read: false, ..READ_WRITE };
        let file = client.open(&at("f"), flags, 0o644, &LayoutSpec::default()).await.expect("opens");
        write(&file, 5, &pattern(100_000, 1)).await;
        assert!(client.counts().leased_operations > 0);
        let error =
            file.read_at(&mut [IoSliceMut::new(&mut [0; 4])], FileOffset(0)).await.expect_err("not readable");
        assert_eq!(error.errno(), 9);
        drop(file);
        // A user without read permission gets no descriptor that could be read (root may read anything).
        let file = client.open(&at("g"), flags, 0o200, &LayoutSpec::default()).await.expect("opens");
        let result = file.write_at(&[IoSlice::new(b"secret")], FileOffset(0)).await;
        assert_eq!(result.is_ok(), support::ids().0 == 0, "{result:?}");
        drop(file);
        drop(client);
        cluster.stop().await;
    });
}

#[test]
fn administrators_can_list_and_remove_datafiles() {
    block_on(async {
        let cluster = RealCluster::start(Reach::Unix).await;
        let client = cluster.client(options(Transport::Socket));
        let file = open(&client, "f", 4096).await;
        write(&file, 0, &pattern(16_384, 1)).await;
        let layout = file.layout().expect("a layout").clone();
        let scanned = client.scan_inodes(weft_core::FileId(0), 100).await.expect("scans");
        assert!(
            scanned.iter().any(|inode| inode.file == file.file() && inode.layout.as_ref() == Some(&layout))
        );
        assert_eq!(client.check_namespace(false).await.expect("checks").problems, Vec::<String>::new());
        let mut found = Vec::new();
        for (object, target) in layout.objects() {
            let listed = client.list_datafiles(target, None, 100).await.expect("lists");
            assert_eq!(listed, vec![(file.file(), object, ByteLen(4096))]);
            assert!(
                client
                    .list_datafiles(target, Some((file.file(), object)), 9)
                    .await
                    .expect("lists")
                    .is_empty()
            );
            found.push(weft_wire::data::DatafileId { target, file: file.file(), object });
        }
        client.remove_datafiles(&found[1..3]).await.expect("removes");
        assert_eq!(file.size().await.expect("size"), ByteLen(16_384), "the last one is there");
        let mut expected = pattern(16_384, 1);
        expected[4096..12_288].fill(0);
        assert!(read(&file, 0, 20_000).await == expected, "removed parts are holes");
        drop(file);
        drop(client);
        cluster.stop().await;
    });
}

/// Runs `child` in a forked process and returns whether it succeeded.
fn fork(child: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs only `child` and ends without returning into the test harness.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork");
    if pid == 0 {
        let ok = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(false);
        // SAFETY: ends the process at once, without the parent's destructors.
        unsafe { libc::_exit(i32::from(!ok)) }
    }
    let mut status = 0;
    // SAFETY: `status` is a valid place to write to.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    status == 0
}

#[test]
fn a_forked_child_uses_no_connection_of_its_parent() {
    block_on(async {
        let cluster = RealCluster::start(Reach::Unix).await;
        let client = cluster.client(options(Transport::Auto));
        let file = open(&client, "f", 65_536).await;
        for _ in 0..3 {
            write(&file, 0, &pattern(200_000, 1)).await;
        }
        assert!(client.counts().leases > 0);
        file.lock(LockSpace::Record, ME, LockKind::Exclusive, WHOLE, Wait::No).await.expect("locks");
        let ok = fork(|| {
            block_on(async {
                let fresh = client.after_fork_in_child();
                assert_ne!(fresh.session(), client.session());
                // The inherited open file fails, and dropping it sends nothing to the server.
                assert_eq!(
                    file.write_at(&[IoSlice::new(b"x")], FileOffset(0)).await.expect_err("not ours").errno(),
                    9
                );
                assert!(client.stat(&at("f")).await.is_err());
                let token = HandleToken::decode(&file.token().encode()).expect("a token");
                drop(file.clone());
                let ours = fresh.adopt(&token).await.expect("adopts");
                assert!(read(&ours, 0, 200_001).await == pattern(200_000, 1));
                for _ in 0..3 {
                    write(&ours, 200_000, &pattern(100_000, 2)).await;
                }
                assert!(fresh.counts().leases > 0);
                // Locks belong to the parent.
                let lock = ours.lock(LockSpace::Record, ME, LockKind::Exclusive, WHOLE, Wait::No).await;
                assert_eq!(lock.expect_err("the parent's").errno(), 11);
                ours.close().await.expect("closes");
                true
            })
        });
        assert!(ok, "the child failed");
        // The parent continues undisturbed.
        assert!(read(&file, 200_000, 100_000).await == pattern(100_000, 2));
        write(&file, 300_000, b"parent").await;
        file.unlock(LockSpace::Record, ME, WHOLE).await.expect("still ours");
        assert_eq!(client.stat(&at("f")).await.expect("stat").size, ByteLen(300_006));
        drop(file);
        drop(client);
        cluster.stop().await;
    });
}

#[test]
fn threads_share_a_client_that_has_few_connections() {
    block_on(async {
        let cluster = RealCluster::start(Reach::Unix).await;
        let client = cluster.client(ClientOptions {
            connections_max: 3,
            metadata_connections_max: 3,
            ..options(Transport::Auto)
        });
        let done = Arc::new(AtomicU32::new(0));
        std::thread::scope(|scope| {
            for thread in 0..12u64 {
                let (client, done) = (client.clone(), Arc::clone(&done));
                scope.spawn(move || {
                    block_on(async {
                        for round in 0..8 {
                            let name = format!("{thread}-{round}");
                            let file = open(&client, &name, 65_536).await;
                            let bytes = pattern(3901, thread * 100 + round);
                            write(&file, 0, &bytes).await;
                            file.close().await.expect("closes");
                            assert_eq!(client.stat(&at(&name)).await.expect("stat").size, ByteLen(3901));
                            let file = open(&client, &name, 65_536).await;
                            assert!(read(&file, 0, 4000).await == bytes);
                            client.unlink(&at(&name)).await.expect("unlinks");
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                });
            }
        });
        assert_eq!(done.load(Ordering::Relaxed), 96);
        assert!(client.list(&at(""), b"", 10, false).await.expect("list").0.is_empty());
        drop(client);
        cluster.stop().await;
    });
}
