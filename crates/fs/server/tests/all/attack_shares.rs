//! One user takes connections, memory, opens, locks and inodes without end, while another user continues to work.

use crate::support::*;
use std::io::IoSlice;
use std::time::{Duration, Instant};
use weft_core::{ByteLen, Nanos, ServerId};
use weft_env::Address;
use weft_env::real::{RealEnv, block_on};
use weft_server::metadata::{self, UserBounds};
use weft_server::{Join, ServerConfig, ServerHandle};
use weft_wire::cluster::{ServerEntry, TargetEntry};
use weft_wire::data::{DataReply, DataRequest, PAYLOAD_LEN_MAX};
use weft_wire::header::encode_message;
use weft_wire::hello::Role;
use weft_wire::meta::*;
use weft_wire::status::{ServerStatus, StatusReply, StatusRequest};
use weft_wire::{ClusterMap, Errno, Family, Header, Kind};

/// User who attacks; below, one who works meanwhile.
const ATTACKER: u32 = 4242;
const OTHER: u32 = 4343;

struct Stage {
    env: RealEnv,
    server: ServerHandle<RealEnv>,
    unix: Address,
}

type Peer = Client<RealEnv>;

impl Stage {
    async fn connect(&self, uid: u32, session: u128) -> Result<Peer, weft_wire::WireError> {
        connect_as_user(&self.env, &self.unix, uid, hello(Role::Client(me()), session)).await
    }

    async fn status(&self) -> ServerStatus {
        let mut client = Client::connect(&self.env, &self.unix).await;
        status_to(&mut client).await
    }
}

async fn status_to(client: &mut Peer) -> ServerStatus {
    match client.status(StatusRequest::Status).await {
        StatusReply::Status(status) => *status,
        other => panic!("{other:?}"),
    }
}

fn stage<F: AsyncFnOnce(&Stage)>(change: impl FnOnce(&mut ServerConfig), test: F) {
    if !skip::unless_root("connecting as other users") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    open_to_all(folder.path());
    let env = RealEnv::new();
    block_on(async {
        let addresses = vec![unix(folder.path())];
        let mut config = config(folder.path(), addresses.clone(), false);
        let server = ServerEntry { name: config.name.clone(), addresses };
        let target = |target: &weft_server::TargetConfig| TargetEntry {
            id: target.id,
            server: ServerId(0),
            class: target.class.clone(),
        };
        let map = ClusterMap {
            domains: Vec::new(),
            name: CLUSTER.into(),
            version: 0,
            servers: vec![server],
            targets: config.targets.iter().map(target).collect(),
            metadata: ServerId(0),
        };
        let path = folder.path().join("metadata");
        std::fs::create_dir(&path).expect("created");
        let mut metadata = metadata::Config::new(path, map);
        metadata.format = true;
        metadata.options.without_registry = true;
        metadata.options.root.mode = 0o777;
        metadata.options.user = UserBounds { opens: 20, locks: 10, inodes: 30 };
        config.metadata = Some(metadata);
        config.join = Join::No;
        change(&mut config);
        make_folders(&config);
        let server = start(&env, config).await;
        let unix = server.addresses()[0].clone();
        let stage = Stage { env, server, unix };
        test(&stage).await;
        assert_eq!(stage.server.panics(), 0);
        stage.server.stop().await;
    });
}

fn at(name: &str) -> InodePath {
    InodePath::from_root(name, true)
}

async fn meta(client: &mut Peer, request: MetaRequest) -> MetaReply {
    let call = MetaCall { seq: 0, on_behalf: None, request };
    client.link.send(Kind::Request, Family::Meta, 5, &call, &[]).await.expect("sent");
    let incoming = client.link.recv().await.expect("received").expect("an answer");
    client.link.decode(&incoming).expect("decodes")
}

fn open_request(name: &str, handle: u64, create: bool) -> MetaRequest {
    let flags = OpenFlags { write: true, create, ..OpenFlags::READ };
    let (handle, layout) = (HandleId(handle), LayoutSpec::default());
    MetaRequest::Open { at: at(name), flags, mode: 0o666, handle, layout, cache: false, ranks: None }
}

fn close_request(handle: u64) -> MetaRequest {
    MetaRequest::Close { handle: HandleId(handle), summary: WriteSummary::default() }
}

fn refusal(reply: MetaReply) -> weft_wire::WireError {
    match reply {
        MetaReply::Failed(error) => error,
        other => panic!("{other:?}"),
    }
}

/// Waits until a condition becomes true by itself.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !holds().await {
        assert!(Instant::now() < end, "{what}: not within 30 s");
        std::thread::yield_now();
    }
}

#[test]
fn a_user_has_half_of_the_connections_and_another_user_connects() {
    stage(
        |config| config.limits.connections_max = 16,
        async |stage| {
            let mut held = Vec::new();
            let refused = loop {
                match stage.connect(ATTACKER, held.len() as u128 + 1).await {
                    Ok(client) => held.push(client),
                    Err(why) => break why,
                }
            };
            assert_eq!(held.len(), 8);
            assert_eq!(refused.errno, Errno::EAGAIN);
            assert!(
                refused.detail.contains("user_connections") && refused.detail.contains("4242"),
                "{refused}"
            );
            // Accepted connections stay usable, and so do those of other users, including root.
            assert!(matches!(
                meta(&mut held[0], MetaRequest::StatFs { at: None }).await,
                MetaReply::StatFs { .. }
            ));
            let mut other = stage.connect(OTHER, 100).await.expect("welcome");
            assert_eq!(other.write(datafile(0, 5, 0), 0, b"mine").await, DataReply::Written);
            let status = stage.status().await;
            let of = |uid| status.users.iter().find(|user| user.uid == uid).map(|user| user.connections);
            assert_eq!((of(ATTACKER), of(OTHER), status.bounds.connections), (Some(8), Some(1), 8));
            // A user who is not an administrator sees only its own usage.
            let users = status_to(&mut other).await.users;
            assert_eq!(users.iter().map(|user| user.uid).collect::<Vec<_>>(), [OTHER]);
            // A closed connection allows another one.
            held.pop();
            until("one more connection", async || stage.connect(ATTACKER, 200).await.is_ok()).await;
        },
    );
}

#[test]
fn a_user_opens_a_bounded_number_of_files_over_all_sessions() {
    stage(
        |_| (),
        async |stage| {
            let mut one = stage.connect(ATTACKER, 1).await.expect("welcome");
            let mut two = stage.connect(ATTACKER, 2).await.expect("welcome");
            let reply = meta(&mut one, open_request("file", 1, true)).await;
            assert!(matches!(reply, MetaReply::Opened(_)), "{reply:?}");
            for handle in 2..=20 {
                let by = if handle % 2 == 0 { &mut one } else { &mut two };
                let reply = meta(by, open_request("file", handle, false)).await;
                assert!(matches!(reply, MetaReply::Opened(_)), "{handle}: {reply:?}");
            }
            for request in [
                open_request("file", 21, false),
                open_request("new", 22, true),
                MetaRequest::Open {
                    at: at(""),
                    flags: OpenFlags::READ,
                    mode: 0,
                    handle: HandleId(23),
                    layout: LayoutSpec::default(),
                    cache: false,
                    ranks: None,
                },
                MetaRequest::Truncate { at: at("file"), handle: None, size: ByteLen(0) },
            ] {
                let error = refusal(meta(&mut two, request).await);
                assert_eq!(error.errno, Errno::ENFILE);
                assert!(error.detail.contains("user_opens"), "{error}");
            }
            let found = refusal(meta(&mut two, MetaRequest::Stat { at: at("new") }).await);
            assert_eq!(found.errno, Errno::ENOENT, "rejected files were not created");
            // A repeated open does not count again, and neither does a truncation of an open file.
            assert!(matches!(meta(&mut one, open_request("file", 1, false)).await, MetaReply::Opened(_)));
            let mut other = stage.connect(OTHER, 3).await.expect("welcome");
            assert!(matches!(meta(&mut other, open_request("others", 1, true)).await, MetaReply::Opened(_)));
            assert!(matches!(meta(&mut one, close_request(2)).await, MetaReply::Done));
            assert!(matches!(meta(&mut two, open_request("file", 21, false)).await, MetaReply::Opened(_)));
            // The end of a session closes its opens.
            drop(one);
            until("the session's opens are closed", async || {
                let users = stage.status().await.users;
                users.iter().any(|user| user.uid == ATTACKER && user.opens == 10)
            })
            .await;
        },
    );
}

#[test]
fn cuts_that_never_end_count_as_opens() {
    stage(
        |_| (),
        async |stage| {
            let mut client = stage.connect(ATTACKER, 1).await.expect("welcome");
            assert!(matches!(meta(&mut client, open_request("file", 1, true)).await, MetaReply::Opened(_)));
            assert!(matches!(meta(&mut client, close_request(1)).await, MetaReply::Done));
            let cut = || MetaRequest::Truncate { at: at("file"), handle: None, size: ByteLen(5) };
            let mut cuts = 0;
            let error = loop {
                match meta(&mut client, cut()).await {
                    MetaReply::Truncate { .. } => cuts += 1,
                    MetaReply::Failed(error) => break error,
                    other => panic!("{other:?}"),
                }
                assert!(cuts <= 20, "without end");
            };
            assert_eq!((cuts, error.errno), (20, Errno::ENFILE));
            let mut other = stage.connect(OTHER, 2).await.expect("welcome");
            assert!(matches!(meta(&mut other, open_request("others", 1, true)).await, MetaReply::Opened(_)));
        },
    );
}

#[test]
fn a_user_has_a_bounded_number_of_locks() {
    stage(
        |_| (),
        async |stage| {
            let lock = |start: u64, owner: u64, wait: bool| MetaRequest::Lock {
                handle: HandleId(1),
                space: LockSpace::Record,
                owner: LockOwner::Process(owner),
                kind: LockKind::Exclusive,
                range: LockRange { start, end: start + 1 },
                wait,
                ticket: 0,
                pid: 1,
            };
            let mut one = stage.connect(ATTACKER, 1).await.expect("welcome");
            assert!(matches!(meta(&mut one, open_request("file", 1, true)).await, MetaReply::Opened(_)));
            for n in 0..10 {
                assert!(matches!(meta(&mut one, lock(n * 2, 0, false)).await, MetaReply::Locked), "{n}");
            }
            let error = refusal(meta(&mut one, lock(50, 0, false)).await);
            assert_eq!(error.errno, Errno::ENOLCK);
            assert!(error.detail.contains("user_locks"), "{error}");
            // Another session or process is the same user.
            let mut two = stage.connect(ATTACKER, 2).await.expect("welcome");
            assert!(matches!(meta(&mut two, open_request("file", 1, false)).await, MetaReply::Opened(_)));
            for owner in [0, 7] {
                assert_eq!(refusal(meta(&mut two, lock(60, owner, true)).await).errno, Errno::ENOLCK);
            }
            // Another user locks a free range, and appends still work for all.
            let mut other = stage.connect(OTHER, 3).await.expect("welcome");
            assert!(matches!(meta(&mut other, open_request("file", 1, false)).await, MetaReply::Opened(_)));
            assert!(matches!(meta(&mut other, lock(60, 0, false)).await, MetaReply::Locked));
            let append = MetaRequest::Lock {
                handle: HandleId(1),
                space: LockSpace::Append,
                owner: LockOwner::Handle(HandleId(99)),
                kind: LockKind::Exclusive,
                range: LockRange { start: 0, end: 1 },
                wait: false,
                ticket: 0,
                pid: 1,
            };
            let reply = meta(&mut two, append).await;
            assert!(matches!(reply, MetaReply::Locked | MetaReply::LockedFenced { .. }), "{reply:?}");
            drop((one, two));
            until("the locks are released", async || {
                let users = stage.status().await.users;
                users.iter().find(|user| user.uid == ATTACKER).is_none_or(|user| user.locks == 0)
            })
            .await;
        },
    );
}

#[test]
fn a_user_owns_a_bounded_number_of_inodes_also_after_a_crash() {
    stage(
        |_| (),
        async |stage| {
            let mut client = stage.connect(ATTACKER, 1).await.expect("welcome");
            let mkdir = |name: String| MetaRequest::Mkdir { at: at(&name), mode: 0o755 };
            for n in 0..30 {
                let reply = meta(&mut client, mkdir(format!("d{n}"))).await;
                assert!(matches!(reply, MetaReply::Attr(_)), "{n}: {reply:?}");
            }
            let link = MetaRequest::Symlink { at: at("link"), target: b"d0".to_vec() };
            for request in [mkdir("d30".into()), open_request("file", 1, true), link] {
                let error = refusal(meta(&mut client, request).await);
                assert_eq!(error.errno, Errno::EDQUOT);
                assert!(error.detail.contains("user_inodes"), "{error}");
            }
            let gone = refusal(meta(&mut client, MetaRequest::Stat { at: at("d30") }).await);
            assert_eq!(gone.errno, Errno::ENOENT, "rejected requests left nothing behind");
            let mut other = stage.connect(OTHER, 2).await.expect("welcome");
            assert!(matches!(meta(&mut other, mkdir("others".into())).await, MetaReply::Attr(_)));
            let status = stage.status().await;
            let of = |uid| status.users.iter().find(|user| user.uid == uid).map(|user| user.inodes);
            assert_eq!((of(ATTACKER), of(OTHER), of(0)), (Some(30), Some(1), Some(1)));
            assert_eq!(status.metadata.expect("metadata").inodes, 32);
            // Removing an inode, or giving it to another user, reduces the usage.
            let rmdir = MetaRequest::Rmdir { at: at("d0") };
            assert!(matches!(meta(&mut client, rmdir).await, MetaReply::Done));
            assert!(matches!(meta(&mut client, mkdir("again".into())).await, MetaReply::Attr(_)));
            let mut root = Client::connect(&stage.env, &stage.unix).await;
            let set = SetAttr { uid: Some(OTHER), ..SetAttr::default() };
            let chown = MetaRequest::SetAttr { at: at("d1"), set };
            assert!(matches!(meta(&mut root, chown).await, MetaReply::Attr(_)));
            assert!(matches!(meta(&mut client, mkdir("more".into())).await, MetaReply::Attr(_)));
            assert_eq!(refusal(meta(&mut client, mkdir("no".into())).await).errno, Errno::EDQUOT);
            let check = meta(&mut root, MetaRequest::CheckNamespace { repair: false }).await;
            let MetaReply::Checked(report) = check else { panic!("{check:?}") };
            assert!(report.problems.is_empty(), "{report:?}");
        },
    );
}

/// Sends the first bytes of a write of 4 MiB, and nothing more.
async fn stall(client: &mut Peer) {
    let part = datafile(0, 77, 0);
    let cap = client.cap(77);
    let write = write_request(part, cap, 0, PAYLOAD_LEN_MAX);
    let header = Header {
        map_version: 0,
        level: weft_wire::Level::LATEST,
        kind: Kind::Request,
        family: Family::Data,
        request: 1,
        body_len: 0,
        body_crc: 0,
        payload_len: PAYLOAD_LEN_MAX,
        payload_check: None,
        is_sealed: false,
        attachments: 0,
        waits_on: None,
    };
    let mut message = Vec::new();
    encode_message(&mut message, &header, &write);
    let parts = [IoSlice::new(&message), IoSlice::new(&[1; 1000])];
    weft_env::Conn::send(client.link.conn(), &parts).await.expect("sent");
}

#[test]
fn stalled_writes_hold_a_limited_share_of_the_memory_for_a_limited_time() {
    stage(
        |config| {
            config.limits.payload_memory_max = ByteLen::from_mib(32);
            config.limits.stall_timeout = Nanos::from_s(1000);
            config.limits.short_stall_timeout = Nanos::from_s(1);
        },
        async |stage| {
            let mut stalled = Vec::new();
            for session in 0..12 {
                let mut client = stage.connect(ATTACKER, session + 1).await.expect("welcome");
                stall(&mut client).await;
                stalled.push(client);
            }
            // Four of twelve have memory; the others wait for the share of their user and are closed in turn.
            until("the share is used", async || {
                let users = stage.status().await.users;
                users.iter().any(|user| user.uid == ATTACKER && user.payload == ByteLen::from_mib(16))
            })
            .await;
            let mut other = stage.connect(OTHER, 100).await.expect("welcome");
            let bytes = vec![7; PAYLOAD_LEN_MAX as usize];
            let began = Instant::now();
            for _ in 0..4 {
                assert_eq!(other.write(datafile(0, 5, 0), 0, &bytes).await, DataReply::Written);
            }
            assert_eq!(other.read(datafile(0, 5, 0), 0, PAYLOAD_LEN_MAX).await.1, bytes);
            eprintln!("the other user wrote 16 MiB and read 4 MiB in {:?}", began.elapsed());
            // Stalled connections that hold memory while others wait for it are closed.
            until("all but the last four are closed, which block no other connection", async || {
                let users = stage.status().await.users;
                users.iter().any(|user| user.uid == ATTACKER && user.connections == 4)
            })
            .await;
            assert_eq!(other.read(datafile(0, 5, 0), 0, 10).await.1, &bytes[..10]);
        },
    );
}

#[test]
fn shared_areas_are_shared_fairly() {
    stage(
        |config| config.limits.shared_memory_max = ByteLen::from_mib(4),
        async |stage| {
            let attach = DataRequest::AttachShared { payload_len: 1 << 20 };
            let mut held = Vec::new();
            let mut given = 0;
            for session in 0..6 {
                let mut client = stage.connect(ATTACKER, session + 1).await.expect("welcome");
                match client.call(&attach, &[]).await.0 {
                    DataReply::Attached { payload_len } => given += u32::from(payload_len > 0),
                    other => panic!("{other:?}"),
                }
                held.push(client);
            }
            assert_eq!(given, 2, "half of four");
            let mut other = stage.connect(OTHER, 100).await.expect("welcome");
            assert_eq!(other.call(&attach, &[]).await.0, DataReply::Attached { payload_len: 1 << 20 });
            // Without an area, the bytes travel over the socket.
            assert_eq!(held[5].write(datafile(0, 6, 0), 0, b"by message").await, DataReply::Written);
        },
    );
}
