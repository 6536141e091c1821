//! Peers that violate the protocol get errors or lose their connection; the server and all other clients continue.

use crate::support::*;
use std::io::{IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weft_core::{ByteLen, LocalOffset, Nanos, ServerId, TargetId};
use weft_env::real::{RealEnv, block_on};
use weft_env::sim::Rng;
use weft_env::{Address, Conn, Processor, Shared};
use weft_server::{ServerConfig, ServerHandle};
use weft_wire::data::{DataReply, DataRequest, IoHints, PAYLOAD_LEN_MAX, PayloadLocation, lease};
use weft_wire::header::encode_message;
use weft_wire::hello::{AuthMethod, Exchange, Hello, HelloReply, Identity, Role};
use weft_wire::status::StatusRequest;
use weft_wire::{Errno, Family, HEADER_LEN, Header, Kind, Level, Levels};

struct Stage {
    env: RealEnv,
    server: ServerHandle<RealEnv>,
    unix: Address,
    tcp: Address,
}

impl Stage {
    fn path(&self) -> &std::path::Path {
        let Address::Unix(path) = &self.unix else { unreachable!() };
        path
    }

    /// Checks that the server still serves other clients.
    async fn still_serves(&self) {
        let mut client = Client::connect(&self.env, &self.unix).await;
        let part = datafile(0, 0xffff, 0);
        assert_eq!(client.write(part, 0, b"well").await, DataReply::Written);
        assert_eq!(client.read(part, 0, 10).await.1, b"well");
    }
}

fn stage<F: AsyncFnOnce(&Stage)>(change: impl FnOnce(&mut ServerConfig), test: F) {
    let folder = tempfile::tempdir().expect("a folder");
    let env = RealEnv::new();
    block_on(async {
        let tcp = Address::Tcp("127.0.0.1".into(), 0);
        let mut config = config(folder.path(), vec![unix(folder.path()), tcp], false);
        change(&mut config);
        make_folders(&config);
        let server = start(&env, config).await;
        let (unix, tcp) = (server.addresses()[0].clone(), server.addresses()[1].clone());
        let stage = Stage { env, server, unix, tcp };
        test(&stage).await;
        stage.still_serves().await;
        stage.server.stop().await;
    });
}

fn resident_kib() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("statm");
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("resident pages") * 4
}

#[test]
fn garbage_ends_one_connection_and_allocates_nothing() {
    stage(
        |_| (),
        async |stage| {
            let before = resident_kib();
            let mut rng = Rng::new(11);
            for round in 0..200 {
                let mut stream = UnixStream::connect(stage.path()).expect("connects");
                let mut bytes = vec![0; rng.below(300) as usize];
                rng.fill(&mut bytes);
                if round % 2 == 0 {
                    // A valid header with impossible lengths.
                    let header = Header {
                        map_version: 0,
                        level: weft_wire::Level::LATEST,
                        kind: Kind::Request,
                        family: [Family::Hello, Family::Data, Family::Meta, Family::Status][round % 4],
                        request: 1,
                        body_len: [0, 4096, 1 << 20, u32::MAX][round / 2 % 4],
                        body_crc: 0,
                        payload_len: [0, PAYLOAD_LEN_MAX, u32::MAX][round % 3],
                        payload_check: None,
                        is_sealed: round % 5 == 0,
                        attachments: [0, 8, 255][round % 3],
                        waits_on: [None, Some(Processor(0)), Some(Processor(9_999))][round % 3],
                    };
                    bytes.splice(0..0, header.encode());
                }
                let _ = stream.write_all(&bytes);
            }
            let grown = resident_kib().saturating_sub(before);
            assert!(grown < 32 * 1024, "200 hostile connections cost {grown} KiB");
            assert_eq!(stage.server.panics(), 0);
        },
    );
}

#[test]
fn a_peer_without_a_common_level_is_refused() {
    let levels = |earliest, latest| Levels { earliest: Level(earliest), latest: Level(latest) };
    stage(
        |_| (),
        async |stage| {
            // Levels that the server knows, others, and an agreement that it does not keep.
            for (offered, agreed) in [(levels(1, 1), Some(1)), (levels(1, 200), Some(Level::LATEST.0))] {
                let mut caller = hello(Role::Client(me()), 1);
                caller.names.levels = offered;
                let mut client = Client::bare(&stage.env, &stage.unix).await;
                client.greet(caller, None).await.expect("a common level");
                assert_eq!(client.welcome.as_ref().map(|welcome| welcome.level.0), agreed);
                assert_eq!(client.link.level().0, agreed.expect("one"));
                client.link.set_level(Level(3 - agreed.expect("one")));
                client
                    .link
                    .send(Kind::Request, Family::Status, 1, &StatusRequest::Status, &[])
                    .await
                    .expect("sent");
                assert!(client.is_ended().await, "a message of another level");
            }
            let mut caller = hello(Role::Client(me()), 1);
            caller.names.levels = levels(Level::LATEST.0 + 1, 200);
            let mut client = Client::bare(&stage.env, &stage.unix).await;
            let why = client.greet(caller, None).await.expect_err("no common level");
            assert_eq!(why.errno, Errno::EPROTO);
            let expected = format!("knows feature {}, this program levels", Levels::KNOWN);
            assert!(why.detail.contains(&expected), "{why}");
            assert!(client.is_ended().await);
            // Programs older than the first release put a version there, even in a greeting.
            for other in [22, 200] {
                let mut stream = UnixStream::connect(stage.path()).expect("connects");
                let mut hello = Header::new(Kind::Request, Family::Hello, 1).encode();
                hello[4] = other;
                stream.write_all(&hello).expect("sent");
                let mut reply = Vec::new();
                stream.read_to_end(&mut reply).expect("a reply, then the end");
                let header = Header::decode(reply[..HEADER_LEN].try_into().expect("a header"));
                assert_eq!(header.expect("a greeting").kind, Kind::Reply);
            }
        },
    );
}

#[test]
fn nothing_is_served_before_the_greeting() {
    stage(
        |_| (),
        async |stage| {
            for family in [Family::Data, Family::Meta, Family::Status] {
                let mut client = Client::bare(&stage.env, &stage.unix).await;
                client.link.send(Kind::Request, family, 1, &StatusRequest::Status, &[]).await.expect("sent");
                assert!(client.is_ended().await);
            }
        },
    );
}

#[test]
fn peers_without_the_key_are_rejected() {
    stage(
        |_| (),
        async |stage| {
            let root = Identity { uid: 0, gid: 0, groups: vec![] };
            // Not the user that runs this test.
            let user = Identity { uid: 4321, gid: 4321, groups: vec![10, 20] };
            let mine = secret().identity_key(&user);
            let cases = [
                ("root with a user's key", &stage.tcp, Role::Client(root), mine),
                ("a user with an invalid key", &stage.tcp, Role::Client(user.clone()), [1; 32]),
                (
                    "the user with an additional group",
                    &stage.tcp,
                    Role::Client(Identity { groups: vec![10, 20, 30], ..user }),
                    mine,
                ),
                ("a server with a user's key", &stage.tcp, Role::Server(ServerId(1)), mine),
                ("a server on this node", &stage.unix, Role::Server(ServerId(1)), mine),
            ];
            for (name, address, role, key) in cases {
                let mut client = Client::bare(&stage.env, address).await;
                let why = client.greet(hello(role, 1), Some(key)).await.expect_err(name);
                assert_eq!(why.errno, Errno::EACCES, "{name}");
                assert!(client.is_ended().await);
            }
            // Credentials are not accepted on the network, nor a client's key on a Unix socket.
            let opening = hello(Role::Client(me()), 1).opening;
            let cases = [
                (&stage.tcp, AuthMethod::Credentials(opening), Errno::EACCES),
                (&stage.unix, AuthMethod::Key(Exchange { ephemeral: [9; 32], tag: [1; 16] }), Errno::EPROTO),
            ];
            for (address, means, errno) in cases {
                let mut client = Client::bare(&stage.env, address).await;
                let names = hello(Role::Client(me()), 1).names;
                let HelloReply::Refused(why) =
                    client.call_hello(&Hello { names, method: means.clone() }).await
                else {
                    panic!("{means:?} was accepted")
                };
                assert_eq!(why.errno, errno);
                assert!(client.is_ended().await);
            }
            let mut lost = Client::bare(&stage.env, &stage.unix).await;
            let mut other = hello(Role::Client(me()), 1);
            other.names.cluster = "other".into();
            let why = lost.greet(other, None).await.expect_err("another cluster");
            assert!(why.detail.contains("\"test\"") && why.detail.contains("\"other\""), "{why}");
            let mut lost = Client::bare(&stage.env, &stage.unix).await;
            let mut other = hello(Role::Client(me()), 1);
            other.names.server = "beta".into();
            let why = lost.greet(other, None).await.expect_err("another server");
            assert!(why.detail.contains("\"alpha\"") && why.detail.contains("\"beta\""), "{why}");
        },
    );
}

#[test]
fn impossible_requests_are_answered_and_the_connection_stays_usable() {
    stage(
        |_| (),
        async |stage| {
            let mut client = Client::connect(&stage.env, &stage.unix).await;
            let part = datafile(0, 5, 0);
            let cap = client.cap(5);
            let shared = |from, len| DataRequest::Write {
                datafile: part,
                cap,
                offset: LocalOffset(0),
                len,
                place: PayloadLocation::Shared(from),
                hints: IoHints::default(),
            };
            let attach = DataRequest::AttachShared { payload_len: 8192 };
            assert!(matches!(client.call(&shared(0, 10), &[]).await.0, DataReply::Failed(_)), "no area yet");
            assert!(matches!(client.call(&attach, &[]).await.0, DataReply::Attached { payload_len: 8192 }));
            let many = vec![part; 5000];
            let cases: Vec<(DataRequest, usize, Errno)> = vec![
                (read_request(part, cap, 0, PAYLOAD_LEN_MAX + 1), 0, Errno::EINVAL),
                (read_request(part, cap, 0, u32::MAX), 0, Errno::EINVAL),
                (read_request(part, cap, u64::MAX, 2), 0, Errno::EFBIG),
                (read_request(part, cap, i64::MAX as u64, 2), 0, Errno::EFBIG),
                (read_request(part, cap, 0, 1), 100_000, Errno::EPROTO),
                (read_request(datafile(9, 5, 0), cap, 0, 1), 0, Errno::ENXIO),
                (write_request(part, cap, 0, 10), 11, Errno::EINVAL),
                (write_request(part, cap, 0, 10), 0, Errno::EINVAL),
                (write_request(part, cap, u64::MAX - 5, 10), 10, Errno::EFBIG),
                (write_request(datafile(9, 5, 0), cap, 0, 10), 10, Errno::ENXIO),
                (shared(8190, 10), 0, Errno::EINVAL),
                (shared(u32::MAX, 10), 0, Errno::EINVAL),
                (attach.clone(), 0, Errno::EBUSY),
                (DataRequest::GetLens { cap, datafiles: many.clone() }, 0, Errno::EINVAL),
                (DataRequest::Sync { cap, datafiles: many.clone() }, 0, Errno::EINVAL),
                (DataRequest::Remove { datafiles: many.clone() }, 0, Errno::EINVAL),
                (DataRequest::SetLens { cap, datafiles: vec![(part, ByteLen(u64::MAX))] }, 0, Errno::EFBIG),
                (DataRequest::RevokeLeases { target: TargetId(9) }, 0, Errno::ENXIO),
            ];
            for (request, payload_len, expected) in cases {
                let (reply, _) = client.call(&request, &vec![1; payload_len]).await;
                assert_eq!(errno(&reply), Some(expected), "{request:?}");
            }
            // An invalid body.
            client
                .link
                .send(Kind::Request, Family::Data, 1, &[0xff_u8; 32], &[IoSlice::new(&[7; 5000])])
                .await
                .expect("sent");
            assert_eq!(errno(&client.recv().await.0), Some(Errno::EPROTO));
            // Slots that are not in use, one of them twice.
            let release = DataRequest::Release { slots: vec![0, 0, 1022, 1023, u32::MAX] };
            assert_eq!(client.call(&release, &[]).await.0, DataReply::Done);
            // Listings of zero and of all datafiles.
            let list = DataRequest::ListDatafiles { target: TargetId(0), after: None, limit: u32::MAX };
            assert_eq!(client.call(&list, &[]).await.0, DataReply::Datafiles(vec![]));
            assert_eq!(client.write(part, 0, b"fine").await, DataReply::Written);
        },
    );
}

#[test]
fn a_damaged_payload_is_reported_and_not_written() {
    stage(
        |_| (),
        async |stage| {
            let mut greeting = hello(Role::Client(me()), 2);
            greeting.opening.checksums = true;
            let mut client = Client::bare(&stage.env, &stage.unix).await;
            client.greet(greeting, None).await.expect("welcome");
            assert!(client.welcome.as_ref().is_some_and(|welcome| welcome.checksums));
            let part = datafile(0, 5, 0);
            assert_eq!(client.write(part, 0, b"sound bytes").await, DataReply::Written);
            let mut message = Vec::new();
            let request = write_request(part, client.cap(5), 0, 11);
            let header = Header {
                payload_len: 11,
                payload_check: Some(1234),
                ..Header::new(Kind::Request, Family::Data, 7)
            };
            encode_message(&mut message, &header, &request);
            let parts = [IoSlice::new(&message), IoSlice::new(b"other bytes")];
            client.link.conn().send(&parts).await.expect("sent");
            assert_eq!(errno(&client.recv().await.0), Some(Errno::EBADMSG));
            assert_eq!(client.read(part, 0, 100).await.1, b"sound bytes");
        },
    );
}

#[test]
fn connections_above_the_limit_are_rejected_with_a_reason() {
    stage(
        |config| config.limits.connections_max = 3,
        async |stage| {
            let mut held = Vec::new();
            for _ in 0..3 {
                held.push(Client::connect(&stage.env, &stage.unix).await);
            }
            let mut one_more = Client::bare(&stage.env, &stage.unix).await;
            let why = one_more.greet(hello(Role::Client(me()), 1), None).await.expect_err("full");
            assert_eq!(why.errno, Errno::EAGAIN);
            assert!(why.detail.contains("connections_max"), "{why}");
            drop(held);
            while stage.server.connections() > 0 {
                one_more.link.conn().recv(&mut [0]).await.ok();
                std::thread::yield_now();
            }
        },
    );
}

#[test]
fn silent_and_stalled_connections_are_closed() {
    let timeout = Nanos::from_ms(300);
    let change = |config: &mut ServerConfig| {
        config.limits.greeting_timeout = timeout;
        config.limits.stall_timeout = timeout;
    };
    stage(change, async |stage| {
        let mut silent = Client::bare(&stage.env, &stage.unix).await;
        let mut stalling = Client::connect(&stage.env, &stage.unix).await;
        let mut idle = Client::connect(&stage.env, &stage.unix).await;
        // The head of a write whose payload is only half sent.
        let mut message = Vec::new();
        let request = write_request(datafile(0, 5, 0), stalling.cap(5), 0, 1 << 20);
        encode_message(
            &mut message,
            &Header { payload_len: 1 << 20, ..Header::new(Kind::Request, Family::Data, 7) },
            &request,
        );
        message.resize(message.len() + (1 << 19), 1);
        stalling.link.conn().send(&[IoSlice::new(&message)]).await.expect("sent");
        assert!(silent.is_ended().await);
        assert!(stalling.is_ended().await);
        assert_eq!(idle.write(datafile(0, 6, 0), 0, b"patient").await, DataReply::Written);
    });
}

#[test]
fn a_client_that_ignores_a_revocation_loses_its_connection() {
    stage(
        |config| config.limits.revoke_timeout = Nanos::from_ms(50),
        async |stage| {
            let mut bad = Client::connect(&stage.env, &stage.unix).await;
            let part = datafile(0, 5, 0);
            assert_eq!(bad.write(part, 0, b"x").await, DataReply::Written);
            bad.call(&DataRequest::AttachShared { payload_len: 0 }, &[]).await;
            let page = bad.link.conn().take_shared(lease::PAGE_LEN).expect("the page");
            let wanted = DataRequest::Lease { datafile: part, cap: bad.cap(5), write: true };
            assert!(matches!(bad.call(&wanted, &[]).await.0, DataReply::Leased { .. }));
            // The client may write arbitrary values to the page.
            for word in page.words() {
                word.store(u64::MAX, Ordering::SeqCst);
            }
            let mut other = Client::connect(&stage.env, &stage.unix).await;
            assert_eq!(
                other.call(&DataRequest::Remove { datafiles: vec![part] }, &[]).await.0,
                DataReply::Done
            );
            assert!(bad.is_ended().await);
        },
    );
}

#[test]
fn with_a_full_lease_page_messages_are_used() {
    stage(
        |_| (),
        async |stage| {
            let mut client = Client::connect(&stage.env, &stage.unix).await;
            client.call(&DataRequest::AttachShared { payload_len: 0 }, &[]).await;
            let part = datafile(0, 5, 0);
            let wanted = DataRequest::Lease { datafile: part, cap: client.cap(5), write: true };
            for expected in 0..lease::SLOTS as u32 {
                assert_eq!(client.call(&wanted, &[]).await.0, DataReply::Leased { slot: expected });
                client.link.conn().take_file().expect("a descriptor");
            }
            assert_eq!(client.call(&wanted, &[]).await.0, DataReply::NotLeased);
            assert_eq!(client.call(&DataRequest::Release { slots: vec![500] }, &[]).await.0, DataReply::Done);
            assert_eq!(client.call(&wanted, &[]).await.0, DataReply::Leased { slot: 500 });
        },
    );
}

#[test]
fn a_panic_ends_one_connection_only() {
    // The memory hook stands for any bug below a connection.
    fn broken() -> ByteLen {
        panic!("a seeded bug")
    }
    stage(
        |config| config.hooks.memory = broken,
        async |stage| {
            for round in 1..=20 {
                let mut client = Client::connect(&stage.env, &stage.unix).await;
                client
                    .link
                    .send(Kind::Request, Family::Status, 9, &StatusRequest::Status, &[])
                    .await
                    .expect("sent");
                assert!(client.is_ended().await);
                assert_eq!(stage.server.panics(), round);
            }
            // Its resources are released: the target's depth is 8.
            for _ in 0..20 {
                stage.still_serves().await;
            }
        },
    );
}

#[test]
fn mutated_messages_are_survived() {
    stage(
        |_| (),
        async |stage| {
            let flag = Arc::new(AtomicBool::new(false));
            let mut rng = Rng::new(5);
            let part = datafile(0, 5, 0);
            let cap = Client::connect(&stage.env, &stage.unix).await.grant(5, weft_wire::Rights(7), 1 << 40);
            let requests = [
                write_request(part, cap, 0, 300),
                DataRequest::GetLens { cap, datafiles: vec![part; 30] },
                DataRequest::Release { slots: (0..50).collect() },
            ];
            for round in 0..600 {
                let mut client = Client::connect(&stage.env, &stage.unix).await;
                client.link.conn().set_timeout(Some(Nanos::from_ms(20))).expect("set");
                let request = &requests[round % requests.len()];
                let mut message = Vec::new();
                encode_message(
                    &mut message,
                    &Header { payload_len: 300, ..Header::new(Kind::Request, Family::Data, 7) },
                    request,
                );
                // Damage that the checksums do not detect, because they are computed after it.
                for _ in 0..1 + rng.below(6) {
                    let at = HEADER_LEN + rng.below((message.len() - HEADER_LEN) as u64) as usize;
                    message[at] = rng.next_u64() as u8;
                }
                let body_crc = crc32fast::hash(&message[HEADER_LEN..]);
                let head: [u8; HEADER_LEN] = message[..HEADER_LEN].try_into().expect("a header");
                let header = Header { body_crc, ..Header::decode(&head).expect("was sound") };
                message[..HEADER_LEN].copy_from_slice(&header.encode());
                message.extend_from_slice(&[3; 300]);
                client.link.conn().send(&[IoSlice::new(&message)]).await.expect("sent");
                if let Ok(Some(incoming)) = client.link.recv().await {
                    client.link.decode::<DataReply>(&incoming).expect("a reply of the family");
                    flag.store(true, Ordering::Relaxed);
                }
            }
            assert!(flag.load(Ordering::Relaxed), "at least one was answered");
            assert_eq!(stage.server.panics(), 0);
        },
    );
}
