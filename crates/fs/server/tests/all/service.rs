//! A server over real sockets and files, from the greeting to its end.

use crate::support::*;
use weft_core::{ByteLen, LocalOffset, Nanos, TargetId};
use weft_env::real::{RealEnv, block_on};
use weft_env::{Conn, Env, File, Processor, Shared};
use weft_wire::data::{DataReply, DataRequest, IoHints, PayloadLocation, ProbeWork, lease};
use weft_wire::hello::{Role, Security, SessionId};
use weft_wire::status::{StatusReply, StatusRequest};
use weft_wire::{Errno, Rights, SessionOwner};

#[test]
fn bytes_are_read_back_through_every_module_and_transport() {
    with_server(true, async |env, unix, tcp, _| {
        let local = Client::connect(&env, &unix).await;
        let key = secret().identity_key(&me());
        let remote = Client::connect_as(&env, &tcp, hello(Role::Client(me()), 2), key).await;
        assert_eq!((remote.link.security(), local.link.security()), (Security::Mac, Security::None));
        assert!(!remote.link.sends_files() && local.link.sends_files());
        for (salt, mut client) in [(1, local), (2, remote)] {
            for target in [0, 1] {
                let part = datafile(target, 40 + salt, 3);
                for (offset, len) in
                    [(0, 1), (4095, 2), (100_000, 300_001), (1 << 20, 4 << 20), (50_000, 70_000)]
                {
                    let bytes = pattern(len, salt + offset);
                    assert_eq!(client.write(part, offset, &bytes).await, DataReply::Written);
                    let (reply, read) = client.read(part, offset, len as u32).await;
                    assert!(matches!(reply, DataReply::Read { .. }), "{reply:?}");
                    assert!(read == bytes, "target {target}: {len} bytes at {offset}");
                }
                // Past the end: short, then empty, always with the length.
                let end = ByteLen((1 << 20) + (4 << 20));
                let (reply, read) = client.read(part, end.0 - 5, 100).await;
                assert_eq!((reply, read.len()), (DataReply::Read { datafile_len: end }, 5));
                let (reply, read) = client.read(part, end.0 + 5, 100).await;
                assert_eq!((reply, read.len()), (DataReply::Read { datafile_len: end }, 0));
                let cap = client.cap(40 + salt);
                let sync = DataRequest::Sync { cap, datafiles: vec![part] };
                assert_eq!(client.call(&sync, &[]).await.0, DataReply::Done);
                let cut = DataRequest::SetLens { cap, datafiles: vec![(part, ByteLen(5001))] };
                assert_eq!(client.call(&cut, &[]).await.0, DataReply::Done);
                let missing = datafile(target, 40 + salt, 4);
                let lens = DataRequest::GetLens { cap, datafiles: vec![part, missing] };
                let DataReply::Lens(lens) = client.call(&lens, &[]).await.0 else { panic!("no lengths") };
                assert_eq!((lens[0].len, lens[0].mtime.is_some()), (ByteLen(5001), true));
                assert_eq!((lens[1].len, lens[1].mtime), (ByteLen(0), None));
                let (reply, read) = client.read(missing, 0, 10).await;
                assert_eq!((reply, read.len()), (DataReply::Read { datafile_len: ByteLen(0) }, 0));
            }
        }
    });
}

#[test]
fn a_fence_rejects_older_capabilities_across_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let env = RealEnv::new();
    block_on(async {
        let config = config(folder.path(), vec![unix(folder.path())], false);
        make_folders(&config);
        let part = datafile(0, 12, 0);
        for start_number in 0..2 {
            let server = start(&env, config.clone()).await;
            let mut client = Client::connect(&env, &server.addresses()[0]).await;
            let old = client.cap(12);
            let new = client.grant(12, old.rights, old.expires_s + 5);
            let mut write = async |cap| {
                let request = write_request(part, cap, 0, 4);
                client.call(&request, b"ever").await.0
            };
            if start_number == 0 {
                assert_eq!(write(old).await, DataReply::Written);
                let fence = |cap| DataRequest::Fence { cap, before_s: new.expires_s, datafiles: vec![part] };
                let mut other = Client::connect(&env, &server.addresses()[0]).await;
                let refused = other.call(&fence(old), &[]).await.0;
                assert_eq!(errno(&refused), Some(Errno::EINVAL), "it would fence itself");
                assert_eq!(other.call(&fence(new), &[]).await.0, DataReply::Done);
                // Other files and reads are not affected.
                assert_eq!(other.write(datafile(0, 13, 0), 0, b"else").await, DataReply::Written);
                assert_eq!(other.read(part, 0, 4).await.1, b"ever");
            }
            assert_eq!(errno(&write(old).await), Some(Errno::ESTALE));
            assert_eq!(write(new).await, DataReply::Written);
            server.stop().await;
        }
    });
}

#[test]
fn the_null_module_keeps_lengths_and_reads_zeros() {
    with_server(false, async |env, unix, _, _| {
        let mut client = Client::connect(&env, &unix).await;
        let part = datafile(2, 9, 0);
        assert_eq!(client.write(part, 1000, &[1; 500]).await, DataReply::Written);
        let (reply, read) = client.read(part, 1400, 4096).await;
        assert_eq!((reply, read), (DataReply::Read { datafile_len: ByteLen(1500) }, vec![0; 100]));
    });
}

#[test]
fn a_lease_gives_the_datafile_itself_until_it_is_revoked() {
    with_server(false, async |env, unix, _, _| {
        let mut client = Client::connect(&env, &unix).await;
        let part = datafile(0, 77, 0);
        let cap = client.cap(77);
        let wanted = DataRequest::Lease { datafile: part, cap, write: true };
        assert_eq!(client.call(&wanted, &[]).await.0, DataReply::NotLeased, "no lease page yet");
        let attach = DataRequest::AttachShared { payload_len: 100_000 };
        let DataReply::Attached { payload_len } = client.call(&attach, &[]).await.0 else {
            panic!("attached")
        };
        assert!(payload_len >= 100_000);
        let area = client.link.conn().take_shared(payload_len as usize).expect("the payload area");
        let page = client.link.conn().take_shared(lease::PAGE_LEN).expect("the lease page");
        let DataReply::Leased { slot } = client.call(&wanted, &[]).await.0 else { panic!("leased") };
        let slot = slot as usize;
        let file = client.link.conn().take_file().expect("a descriptor");
        assert!(page.words()[lease::VALID_UNTIL].load(std::sync::atomic::Ordering::SeqCst) > env.now().0);
        assert_eq!(
            page.words()[lease::state(slot)].load(std::sync::atomic::Ordering::SeqCst),
            lease::GRANTED
        );
        file.write_at(&[std::io::IoSlice::new(b"by descriptor")], LocalOffset(3)).await.expect("written");
        let (_, read) = client.read(part, 0, 100).await;
        assert_eq!(read, b"\0\0\0by descriptor");

        // A write from the shared area is visible through the descriptor.
        area.copy_in(50, b"BY MEMORY");
        let write = DataRequest::Write {
            datafile: part,
            cap,
            offset: LocalOffset(3),
            len: 9,
            place: PayloadLocation::Shared(50),
            hints: IoHints::default(),
        };
        assert_eq!(client.call(&write, &[]).await.0, DataReply::Written);
        let mut seen = [0; 16];
        file.read_at(&mut [std::io::IoSliceMut::new(&mut seen)], LocalOffset(0)).await.expect("read");
        assert_eq!(&seen, b"\0\0\0BY MEMORYptor");

        // A reader's descriptor is read-only, although the file is writable.
        let mut other = Client::connect(&env, &unix).await;
        let attached = other.call(&DataRequest::AttachShared { payload_len: 0 }, &[]).await.0;
        assert_eq!(attached, DataReply::Attached { payload_len: 0 });
        other.link.conn().take_shared(lease::PAGE_LEN).expect("the lease page");
        let read_only = DataRequest::Lease { datafile: part, cap, write: false };
        assert!(matches!(other.call(&read_only, &[]).await.0, DataReply::Leased { .. }));
        let read_only = other.link.conn().take_file().expect("a descriptor");
        assert!(read_only.write_at(&[std::io::IoSlice::new(b"no")], LocalOffset(0)).await.is_err());

        // Revocation waits for the operation in flight, which ends in another thread.
        let in_flight = lease::in_flight(slot);
        page.words()[in_flight].store(1, std::sync::atomic::Ordering::SeqCst);
        let ender = page.clone();
        let (waited, done) = std::sync::mpsc::channel();
        env.spawn("client", move || async move {
            while ender.words()[lease::state(slot)].load(std::sync::atomic::Ordering::SeqCst)
                != lease::REVOKED
            {
                std::thread::yield_now();
            }
            waited.send(()).expect("the test waits");
            ender.words()[in_flight].store(0, std::sync::atomic::Ordering::SeqCst);
        })
        .expect("a thread");
        let revoke = DataRequest::RevokeLeases { target: TargetId(0) };
        assert_eq!(client.call(&revoke, &[]).await.0, DataReply::Done);
        done.try_recv().expect("the revocation completed after the operation in flight");
        assert_eq!(
            page.words()[lease::state(slot)].load(std::sync::atomic::Ordering::SeqCst),
            lease::REVOKED
        );
        assert_eq!(
            client.call(&DataRequest::Release { slots: vec![slot as u32, 9999] }, &[]).await.0,
            DataReply::Done
        );
        assert_eq!(page.words()[lease::state(slot)].load(std::sync::atomic::Ordering::SeqCst), lease::FREE);
        assert!(matches!(client.call(&wanted, &[]).await.0, DataReply::Leased { .. }), "and leased again");
    });
}

#[test]
fn a_repetition_over_another_connection_ends_the_former_one() {
    // Their replies fit the buffers of the socket.
    const REQUESTS: usize = 200;
    let old = vec![b'o'; 4096];
    with_server(false, async |env, unix, _, _| {
        let place = |session| {
            let mut caller = hello(Role::Client(me()), session);
            caller.opening.slot = 5;
            caller
        };
        let datafile = datafile(0, 77, 0);
        for round in 0..5 {
            let mut former = Client::bare(&env, &unix).await;
            former.greet(place(9), None).await.expect("welcome");
            let cap = former.cap(77);
            for _ in 0..REQUESTS {
                former.send(&write_request(datafile, cap, 0, 4096), &old).await;
            }
            // Other places, and the same place of another session, are no repetitions.
            let mut other = Client::bare(&env, &unix).await;
            other.greet(place(10), None).await.expect("welcome");
            let mut beside = Client::connect(&env, &unix).await;

            let mut later = Client::bare(&env, &unix).await;
            later.greet(place(9), None).await.expect("welcome");
            let new = format!("new {round:04}");
            assert_eq!(later.write(datafile, 0, new.as_bytes()).await, DataReply::Written);
            // The former connection has ended: its remaining requests are never executed.
            let mut replies = [0; 4096];
            loop {
                match former.link.conn().recv(&mut replies).await {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(error) => {
                        assert_ne!(error.kind(), std::io::ErrorKind::TimedOut);
                        break;
                    }
                }
            }
            let (_, bytes) = later.read(datafile, 0, 8).await;
            assert_eq!(String::from_utf8_lossy(&bytes), new);
            for client in [&mut other, &mut beside] {
                assert!(matches!(client.echo(3).await.0, StatusReply::Echo));
            }
        }
    });
}

#[test]
fn requests_beyond_a_capability_are_rejected() {
    with_server(false, async |env, unix, _, _| {
        let mut client = Client::connect(&env, &unix).await;
        let part = datafile(0, 5, 0);
        let good = client.cap(5);
        assert_eq!(client.write(part, 0, b"secret").await, DataReply::Written);
        let (own, owner) = (client.bound, SessionOwner { uid: my_uid(), is_server: false });
        let grant = |rights, until| secret().grant(own, part.file, rights, until);
        let granted_to = |session| secret().grant(session, part.file, Rights::READ, 1 << 40);
        let foreign = weft_wire::ClusterSecret::new(&[8; 32]).grant(own, part.file, Rights::READ, 1 << 40);
        let other_user = SessionOwner { uid: owner.uid + 1, ..owner };
        let cases = [
            ("another file's", client.cap(6), Errno::EACCES),
            ("write only", grant(Rights::WRITE, 1 << 40), Errno::EACCES),
            ("expired", grant(Rights::READ, 1_000_000), Errno::ESTALE),
            ("forged", weft_wire::Capability { mac: [0; 16], ..good }, Errno::EACCES),
            ("prolonged", weft_wire::Capability { expires_s: 1 << 50, ..good }, Errno::EACCES),
            ("another cluster's", foreign, Errno::EACCES),
            ("another session's", granted_to(SessionId(2).bound_to(owner)), Errno::EACCES),
            ("another user's", granted_to(SessionId(1).bound_to(other_user)), Errno::EACCES),
        ];
        for (name, cap, expected) in cases {
            for _ in 0..2 {
                let (reply, read) = client.call(&read_request(part, cap, 0, 6), &[]).await;
                assert_eq!((errno(&reply), read.len()), (Some(expected), 0), "{name}");
            }
        }
        let read_only = grant(Rights::READ, 1 << 40);
        let (reply, _) = client.call(&write_request(part, read_only, 0, 6), b"broken").await;
        assert_eq!(errno(&reply), Some(Errno::EACCES));
        let lens = DataRequest::GetLens { cap: good, datafiles: vec![part, datafile(0, 6, 0)] };
        assert_eq!(errno(&client.call(&lens, &[]).await.0), Some(Errno::EACCES));
        let (_, read) = client.read(part, 0, 100).await;
        assert_eq!(read, b"secret");
    });
}

#[test]
fn only_servers_and_administrators_remove_and_list() {
    with_server(false, async |env, unix, tcp, _| {
        let mut server = Client::connect_as(
            &env,
            &unix,
            hello(Role::Server(weft_core::ServerId(1)), 3),
            secret().server_key(),
        )
        .await;
        for file in 1..=600 {
            assert_eq!(server.write(datafile(0, file, 0), 0, &[1; 10]).await, DataReply::Written);
        }
        let (mut after, mut files) = (None, Vec::new());
        loop {
            let page = DataRequest::ListDatafiles { target: TargetId(0), after, limit: 7 };
            let DataReply::Datafiles(found) = server.call(&page, &[]).await.0 else { panic!("no page") };
            let Some(&(file, object, len)) = found.last() else { break };
            assert!(found.len() <= 7 && len == ByteLen(10));
            after = Some((file, object));
            files.extend(found.iter().map(|(file, ..)| file.0));
        }
        files.sort_unstable();
        assert_eq!(files, (1..=600).collect::<Vec<_>>());
        let stranger = weft_wire::hello::Identity { uid: 54_321, gid: 1, groups: vec![] };
        let key = secret().identity_key(&stranger);
        let mut stranger = Client::connect_as(&env, &tcp, hello(Role::Client(stranger), 4), key).await;
        let remove = DataRequest::Remove { datafiles: vec![datafile(0, 1, 0), datafile(0, 9999, 0)] };
        let list = DataRequest::ListDatafiles { target: TargetId(0), after: None, limit: 7 };
        for request in [&remove, &list, &DataRequest::RevokeLeases { target: TargetId(0) }] {
            assert_eq!(errno(&stranger.call(request, &[]).await.0), Some(Errno::EPERM));
        }
        assert!(matches!(stranger.status(StatusRequest::Shutdown).await, StatusReply::Failed(_)));
        assert_eq!(server.call(&remove, &[]).await.0, DataReply::Done);
        let (reply, _) = server.read(datafile(0, 1, 0), 0, 10).await;
        assert_eq!(errno(&reply), Some(Errno::ESTALE), "it does not reappear as a hole");
    });
}

#[test]
fn a_target_is_measured_on_a_datafile_that_ends_with_its_connection() {
    with_server(true, async |env, unix, tcp, folder| {
        let probe = |target, work, offsets: &[u64], within| DataRequest::Probe {
            target: TargetId(target),
            work,
            len: 4096,
            offsets: offsets.iter().copied().map(LocalOffset).collect(),
            within,
        };
        let long = Nanos::from_s(3);
        let left = || -> usize {
            let fans = ["t0", "t1"].map(|target| folder.join(target).join("objects/ff"));
            fans.iter().map(|fan| std::fs::read_dir(fan).map_or(0, Iterator::count)).sum()
        };
        for target in [0, 1] {
            let mut client = Client::connect(&env, &unix).await;
            let make = probe(target, ProbeWork::Make(ByteLen(1 << 20)), &[], long);
            assert!(matches!(client.call(&make, &[]).await.0, DataReply::Probed { .. }));
            assert_eq!(left(), 1);
            for (work, count) in [(ProbeWork::Write, 3), (ProbeWork::WritePast, 3), (ProbeWork::Read, 3)] {
                let (reply, _) = client.call(&probe(target, work, &[0, 8192, 4096], long), &[]).await;
                let DataReply::Probed { times, elapsed } = reply else { panic!("{reply:?}") };
                assert_eq!(times.len(), count);
                assert!(times.iter().map(|time| time.0).sum::<u64>() <= elapsed.0);
            }
            for work in [ProbeWork::Sync, ProbeWork::Forget] {
                let (reply, _) = client.call(&probe(target, work, &[], long), &[]).await;
                assert!(matches!(reply, DataReply::Probed { .. }), "{reply:?}");
            }
            // Without time, no request is executed.
            let (reply, _) = client.call(&probe(target, ProbeWork::Read, &[0, 0], Nanos(0)), &[]).await;
            assert!(matches!(reply, DataReply::Probed { times, .. } if times.is_empty()));
            // A missing datafile cannot be read, nor an offset beyond the maximum.
            let (reply, _) = client.call(&probe(target, ProbeWork::Read, &[1 << 20], long), &[]).await;
            assert_eq!(errno(&reply), Some(Errno::ESTALE));
            let (reply, _) = client.call(&probe(target, ProbeWork::Write, &[u64::MAX - 7], long), &[]).await;
            assert_eq!(errno(&reply), Some(Errno::EFBIG));
            if target == 0 {
                let (reply, _) = client.call(&probe(target, ProbeWork::Remove, &[], long), &[]).await;
                assert!(matches!(reply, DataReply::Probed { .. }), "{reply:?}");
                assert_eq!(left(), 0);
            }
            drop(client);
        }
        // The server detects the end of the connection by the time it answers another status request twice, or soon
        // after.
        let mut other = Client::connect(&env, &unix).await;
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while left() > 0 {
            assert!(std::time::Instant::now() < deadline, "it was not removed");
            assert!(matches!(other.status(StatusRequest::Status).await, StatusReply::Status(_)));
        }
        let stranger = weft_wire::hello::Identity { uid: 54_321, gid: 1, groups: vec![] };
        let key = secret().identity_key(&stranger);
        let mut stranger = Client::connect_as(&env, &tcp, hello(Role::Client(stranger), 4), key).await;
        let (reply, _) = stranger.call(&probe(0, ProbeWork::Read, &[0], long), &[]).await;
        assert_eq!(errno(&reply), Some(Errno::EPERM));
        let (_, bytes) = stranger.echo(100_000).await;
        assert_eq!(bytes, vec![0; 100_000]);
        assert!(matches!(stranger.echo(u32::MAX).await.0, StatusReply::Failed(_)));
    });
}

#[test]
fn status_counts_requests() {
    with_server(false, async |env, unix, _, _| {
        let mut client = Client::connect(&env, &unix).await;
        client.write(datafile(0, 1, 0), 0, &[1; 1000]).await;
        client.read(datafile(0, 1, 0), 0, 600).await;
        let StatusReply::Status(status) = client.status(StatusRequest::Status).await else {
            panic!("no status")
        };
        let target = &status.targets[0];
        assert_eq!((target.bytes_written, target.bytes_read, target.requests), (1000, 600, 2));
        assert_eq!((target.queue, target.leases, status.connections), (0, 0, 1));
        assert!(target.total >= target.free && target.free > ByteLen(0));
        assert_eq!(status.name, "alpha");
    });
}

#[test]
fn an_administrator_stops_the_server_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let env = RealEnv::new();
    block_on(async {
        let config = config(folder.path(), vec![unix(folder.path())], false);
        make_folders(&config);
        let server = start(&env, config.clone()).await;
        let mut idle = Client::connect(&env, &server.addresses()[0]).await;
        let mut client = Client::connect(&env, &server.addresses()[0]).await;
        assert_eq!(client.write(datafile(0, 1, 0), 0, b"kept").await, DataReply::Written);
        assert_eq!(client.status(StatusRequest::Shutdown).await, StatusReply::ShuttingDown);
        server.stopped().await;
        assert!(client.is_ended().await && idle.is_ended().await);
        assert!(!folder.path().join("t0/leased").exists() && !folder.path().join("socket").exists());
        // The target is free for the next server.
        drop(server);
        let again = start(&env, config).await;
        let mut client = Client::connect(&env, &again.addresses()[0]).await;
        assert_eq!(client.read(datafile(0, 1, 0), 0, 10).await.1, b"kept");
        again.stop().await;
    });
}

/// Counts the threads of connections in this process that may run on `processor` only.
fn connections_bound_to(processor: Processor) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("tasks");
    let bound = tasks.filter(|task| {
        let folder = task.as_ref().expect("a task").path();
        // A thread that has ended counts as nothing.
        let read = |name| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        let only = format!("Cpus_allowed_list:\t{}", processor.0);
        read("comm").trim() == "weft conn" && read("status").lines().any(|line| line == only)
    });
    bound.count()
}

#[test]
fn a_connection_is_served_where_its_client_waits() {
    if std::thread::available_parallelism().expect("processors").get() == 1 {
        crate::support::skip::skip_on_this_machine("only one processor is available");
        return;
    }
    with_server(false, async |env, unix, tcp, _| {
        let key = secret().identity_key(&me());
        let mut local = Client::connect(&env, &unix).await;
        let mut remote = Client::connect_as(&env, &tcp, hello(Role::Client(me()), 2), key).await;
        let part = datafile(0, 5, 0);
        local.write(part, 0, b"here").await;
        let here = env.processor().expect("Linux reports it");
        let wishes = [
            (Some(here), 1),
            // An invalid number does not prevent the request from being served.
            (Some(Processor(9_999)), 1),
            (None, 0),
        ];
        for (wish, bound) in wishes {
            local.link.set_waits_on(wish);
            for _ in 0..4 {
                assert_eq!(local.read(part, 0, 4).await.1, b"here");
            }
            assert_eq!(connections_bound_to(here), bound, "{wish:?}");
        }
        // On the network, the number refers to a processor of another machine.
        remote.link.set_waits_on(Some(here));
        for _ in 0..4 {
            assert_eq!(remote.read(part, 0, 4).await.1, b"here");
        }
        assert_eq!(connections_bound_to(here), 0);
    });
}
