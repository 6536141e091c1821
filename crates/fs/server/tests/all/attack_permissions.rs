//! Attacks by an authenticated user on data of another user, with a minimal client over real sockets, and beside each
//! attack the legitimate use that it imitates.

use crate::support::{Client, config, datafile, hello, read_request, secret, start, write_request};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use weft_core::{ByteLen, FileId, Nanos, ServerId, TargetId};
use weft_env::Address;
use weft_env::real::{RealEnv, block_on};
use weft_server::{Join, ServerConfig, ServerHandle, metadata};
use weft_wire::cluster::{ClusterMap, ServerEntry, TargetEntry};
use weft_wire::data::DataReply;
use weft_wire::hello::{Identity, Role, SessionId};
use weft_wire::meta::{
    Attr, CollectedSize, FileType, HandleId, InodePath, LayoutSpec, LockKind, LockOwner, LockRange,
    LockSpace, MetaCall, MetaReply, MetaRequest, OpenFlags, Opened, ROOT, ReclaimLock, ReclaimOpen,
    RuleRemoval, SetAttr, WriteSummary,
};
use weft_wire::{Capability, Errno, Family, Kind, Rights, WalkProof};

const ALICE: u32 = 40_001;
const MALLORY: u32 = 40_002;
const SET_ID_FILE: u32 = 0o4777;

const READ: OpenFlags = OpenFlags::READ;
const WRITE: OpenFlags = OpenFlags { write: true, ..READ };
const CREATE: OpenFlags = OpenFlags { create: true, ..WRITE };

/// A server with the metadata service and one target, over the network.
struct Site {
    env: RealEnv,
    config: ServerConfig,
    server: Option<ServerHandle<RealEnv>>,
    _folder: TempDir,
}

fn plan(folder: &Path, capability_life: Nanos) -> ServerConfig {
    let (unix, tcp) = (crate::support::unix(folder), Address::Tcp("127.0.0.1".into(), 0));
    let mut config = config(folder, vec![unix.clone(), tcp], false);
    config.targets.truncate(1);
    let map = ClusterMap {
        domains: Vec::new(),
        name: config.cluster.clone(),
        version: 0,
        servers: vec![ServerEntry { name: config.name.clone(), addresses: vec![unix] }],
        targets: vec![TargetEntry { id: TargetId(0), server: ServerId(0), class: "ssd".into() }],
        metadata: ServerId(0),
    };
    let path = folder.join("meta");
    std::fs::create_dir(&path).expect("a folder");
    let mut metadata = metadata::Config::new(path, map.clone());
    metadata.options.capability_life = capability_life;
    metadata.options.root.mode = 0o777;
    crate::support::make_folders(&config);
    ServerConfig {
        metadata: Some(metadata),
        metadata_server: Some(map.server(map.metadata).clone()),
        registers: false,
        join: Join::Format,
        ..config
    }
}

impl Site {
    async fn start(capability_life: Nanos) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (env, config) = (RealEnv::new(), plan(folder.path(), capability_life));
        let server = Some(start(&env, config.clone()).await);
        Self { env, config, server, _folder: folder }
    }

    fn address(&self) -> Address {
        self.server.as_ref().expect("it runs").addresses()[1].clone()
    }

    async fn restart(&mut self) {
        self.server.take().expect("it runs").stop().await;
        // Within one process, the last tasks of the previous server may hold its database for a moment.
        let deadline = Instant::now() + Duration::from_secs(20);
        self.server = loop {
            match weft_server::Server::start(self.env, self.config.clone()).await {
                Ok(server) => break Some(server),
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
    }

    async fn stop(mut self) {
        let server = self.server.take().expect("it runs");
        assert_eq!(server.panics(), 0);
        server.stop().await;
    }

    /// Returns a client of `uid` with the session of this number.
    async fn user(&self, uid: u32, session: u128) -> User {
        self.user_at(uid, session, 0).await
    }

    /// Connects for this place in the session; for one of its own if that is 0.
    async fn user_at(&self, uid: u32, session: u128, place: u32) -> User {
        let identity = Identity { uid, gid: uid, groups: vec![] };
        let mut greeting = hello(Role::Client(identity.clone()), session);
        greeting.opening.slot = place;
        let key = secret().identity_key(&identity);
        let client = Client::connect_as(&self.env, &self.address(), greeting, key).await;
        // Sequence numbers increase over all connections of a session, as those of one client do.
        static STARTED: AtomicU64 = AtomicU64::new(1);
        let seq = STARTED.fetch_add(1, Ordering::Relaxed) << 32;
        User { client, seq, next_handle: seq }
    }
}

/// One connection of one user.
struct User {
    client: Client<RealEnv>,
    seq: u64,
    next_handle: u64,
}

fn at(path: &str) -> InodePath {
    InodePath::from_root(path, false)
}

fn errno(reply: &MetaReply) -> Option<Errno> {
    match reply {
        MetaReply::Failed(error) => Some(error.errno),
        _ => None,
    }
}

impl User {
    async fn repeat(&mut self, seq: u64, request: MetaRequest) -> MetaReply {
        let call = MetaCall { seq, on_behalf: None, request };
        let link = &mut self.client.link;
        link.send(Kind::Request, Family::Meta, 1, &call, &[]).await.expect("sent");
        let incoming = link.recv().await.expect("received").expect("an answer");
        link.decode(&incoming).expect("decodes")
    }

    async fn ask(&mut self, request: MetaRequest) -> MetaReply {
        self.repeat(0, request).await
    }

    async fn change(&mut self, request: MetaRequest) -> MetaReply {
        self.seq += 1;
        self.repeat(self.seq, request).await
    }

    async fn stat(&mut self, at: InodePath) -> Result<Attr, Errno> {
        match self.ask(MetaRequest::Stat { at }).await {
            MetaReply::Attr(attr) => Ok(attr),
            other => Err(errno(&other).expect("attributes or an error")),
        }
    }

    async fn mkdir(&mut self, path: &str, mode: u32) -> Attr {
        match self.change(MetaRequest::Mkdir { at: at(path), mode }).await {
            MetaReply::Attr(attr) => attr,
            other => panic!("{path}: {other:?}"),
        }
    }

    async fn open(
        &mut self,
        at: InodePath,
        flags: OpenFlags,
        mode: u32,
    ) -> Result<(HandleId, Opened), Errno> {
        self.next_handle += 1;
        let handle = HandleId(self.next_handle);
        let request = MetaRequest::Open {
            at,
            flags,
            mode,
            handle,
            layout: LayoutSpec::default(),
            cache: false,
            ranks: None,
        };
        match self.change(request).await {
            MetaReply::Opened(opened) => Ok((handle, *opened)),
            other => Err(errno(&other).expect("an open file or an error")),
        }
    }

    /// Creates a file with these bytes and closes it.
    async fn file(&mut self, path: &str, mode: u32, bytes: &[u8]) -> Attr {
        let (handle, opened) = self.open(at(path), CREATE, mode).await.expect("created");
        let cap = opened.cap.expect("a file has a capability");
        assert_eq!(self.write(cap, bytes).await, DataReply::Written);
        let len = ByteLen(bytes.len() as u64);
        let summary = WriteSummary { wrote: true, end: len, bytes: len, ..WriteSummary::default() };
        assert_eq!(self.ask(MetaRequest::Close { handle, summary }).await, MetaReply::Done);
        // A write clears set-id bits, so clients set them by chmod after it.
        self.chmod(at(path), mode).await
    }

    async fn chmod(&mut self, at: InodePath, mode: u32) -> Attr {
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        match self.change(MetaRequest::SetAttr { at, set }).await {
            MetaReply::Attr(attr) => attr,
            other => panic!("{other:?}"),
        }
    }

    async fn link(&mut self, from: InodePath, to: &str) -> Option<Errno> {
        let reply = self.change(MetaRequest::Link { from, to: at(to) }).await;
        assert!(matches!(reply, MetaReply::Attr(_) | MetaReply::Failed(_)), "{reply:?}");
        errno(&reply)
    }

    async fn list(&mut self, at: InodePath) -> Result<Vec<weft_wire::meta::Entry>, Errno> {
        let request = MetaRequest::List { at, after: vec![], limit: 100, with_attr: true, lease: false };
        match self.ask(request).await {
            MetaReply::Entries { entries, .. } => Ok(entries),
            other => Err(errno(&other).expect("entries or an error")),
        }
    }

    async fn write(&mut self, cap: Capability, bytes: &[u8]) -> DataReply {
        let part = datafile(0, cap.file.0, 0);
        self.client.call(&write_request(part, cap, 0, bytes.len() as u32), bytes).await.0
    }

    async fn read(&mut self, cap: Capability) -> Result<Vec<u8>, Errno> {
        let part = datafile(0, cap.file.0, 0);
        let (reply, bytes) = self.client.call(&read_request(part, cap, 0, 100), &[]).await;
        match crate::support::errno(&reply) {
            Some(errno) => Err(errno),
            None => Ok(bytes),
        }
    }

    async fn adopt(
        &mut self,
        parent: SessionId,
        (file, proof): (FileId, Option<WalkProof>),
        flags: OpenFlags,
    ) -> Result<Opened, Errno> {
        self.next_handle += 1;
        let handle = HandleId(self.next_handle);
        let open = ReclaimOpen {
            handle,
            file,
            flags,
            proof,
            cap: None,
            caching: false,
            redirected: weft_wire::meta::Redirected::No,
        };
        match self.ask(MetaRequest::Adopt { open, parent: parent.name() }).await {
            MetaReply::Opened(opened) => Ok(*opened),
            other => Err(errno(&other).expect("an open file or an error")),
        }
    }

    /// Whether the reclaim of an open succeeds.
    async fn reclaims(&mut self, handle: HandleId, opened: &Opened, flags: OpenFlags) -> bool {
        let (file, proof, cap) = (opened.attr.file, Some(opened.attr.proof), opened.cap);
        let open = ReclaimOpen {
            handle,
            file,
            flags,
            proof,
            cap,
            caching: false,
            redirected: weft_wire::meta::Redirected::No,
        };
        match self.ask(MetaRequest::Reclaim { opens: vec![open], locks: vec![] }).await {
            MetaReply::Reclaimed { lost_opens, .. } => lost_opens.is_empty(),
            other => panic!("{other:?}"),
        }
    }
}

/// Waits until the data server rejects a capability as expired.
async fn until_expired(user: &mut User, cap: Capability) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while user.read(cap).await != Err(Errno::ESTALE) {
        assert!(Instant::now() < deadline, "the capability does not expire");
        std::thread::sleep(Duration::from_millis(20));
    }
}

const LIFE: Nanos = Nanos::from_s(3600);
const SHORT_LIFE: Nanos = Nanos::from_s(3);

/// Creates an inaccessible directory of alice with an accessible one and an accessible file in it.
async fn closed_home(alice: &mut User) -> [Attr; 4] {
    [
        alice.mkdir("home", 0o700).await,
        alice.mkdir("home/sub", 0o755).await,
        alice.file("home/note", 0o644, b"for alice").await,
        alice.file("home/sub/deep", 0o666, b"for alice").await,
    ]
}

#[test]
fn inode_numbers_open_nothing() {
    block_on(async {
        let site = Site::start(LIFE).await;
        let mut alice = site.user(ALICE, 1).await;
        let [home, sub, note, deep] = closed_home(&mut alice).await;
        let mut mallory = site.user(MALLORY, 2).await;
        let own = mallory.mkdir("own", 0o777).await;

        let last = own.file.0 + 5;
        let stolen = [None, Some(note.proof), Some(own.proof), Some(WalkProof([0; 16]))];
        let first = home.file.0 - 5;
        for number in (first..=last).filter(|number| *number != own.file.0) {
            let file = FileId(number);
            for (index, proof) in stolen.into_iter().enumerate() {
                let place = |path: &str| InodePath { base: file, proof, path: path.into(), follow: true };
                let found = mallory.stat(place("")).await;
                assert_eq!(found, Err(Errno::EACCES), "inode {number}, whether it exists or not");
                if index > 1 {
                    continue;
                }
                assert_eq!(mallory.stat(place("deep")).await, Err(Errno::EACCES));
                assert_eq!(mallory.list(place("")).await, Err(Errno::EACCES));
                for flags in [READ, WRITE, CREATE] {
                    assert_eq!(mallory.open(place(""), flags, 0o644).await.map(|_| ()), Err(Errno::EACCES));
                }
                assert_eq!(mallory.link(place(""), "own/stolen").await, Some(Errno::EACCES));
                let set = SetAttr { mode: Some(0o777), ..SetAttr::default() };
                let (name, spec) = ("user.a".to_owned(), LayoutSpec::default());
                let from_root = || at("own/name");
                let requests = [
                    MetaRequest::Truncate { at: place(""), handle: None, size: ByteLen(0) },
                    MetaRequest::Mkdir { at: place("x"), mode: 0o755 },
                    MetaRequest::Mknod { at: place("x"), kind: FileType::Regular, mode: 0o644, rdev: 0 },
                    MetaRequest::Symlink { at: place("x"), target: b"y".to_vec() },
                    MetaRequest::Link { from: from_root(), to: place("x") },
                    MetaRequest::Unlink { at: place("note") },
                    MetaRequest::Rmdir { at: place("sub") },
                    MetaRequest::Rename {
                        from: place("note"),
                        to: from_root(),
                        no_replace: false,
                        exchange: false,
                    },
                    MetaRequest::Readlink { at: place("") },
                    MetaRequest::SetAttr { at: place(""), set },
                    MetaRequest::Access { at: place(""), mask: 0 },
                    MetaRequest::GetXattr { at: place(""), name: name.clone() },
                    MetaRequest::ListXattr { at: place("") },
                    MetaRequest::RemoveXattr { at: place(""), name: name.clone() },
                    MetaRequest::SetXattr {
                        at: place(""),
                        name,
                        value: vec![1],
                        create: false,
                        replace: false,
                    },
                    MetaRequest::GetLayout { at: place("") },
                    MetaRequest::SetLayout { at: place(""), spec },
                    MetaRequest::Rules { at: place("") },
                    MetaRequest::ChangeRules { at: place(""), forget: RuleRemoval::All, add: vec![] },
                    MetaRequest::BeginMove {
                        at: place(""),
                        handle: HandleId(1),
                        layout: LayoutSpec::default(),
                        dry_run: false,
                    },
                    MetaRequest::AbortMove { at: place("") },
                ];
                for request in requests {
                    let reply = mallory.change(request.clone()).await;
                    let missing = matches!(&request, MetaRequest::Link { from, .. } if *from == from_root());
                    let expected = if missing { Errno::ENOENT } else { Errno::EACCES };
                    assert_eq!(errno(&reply), Some(expected), "{request:?}");
                }
            }
        }
        assert!(mallory.list(at("own")).await.expect("his own").is_empty(), "nothing was linked");
        for path in ["home/note", "home/sub", "home/sub/deep"] {
            assert_eq!(mallory.stat(at(path)).await, Err(Errno::EACCES), "{path}");
        }

        // The session that walked there continues from the end of the walk.
        for attr in [&home, &sub, &note, &deep] {
            let again = alice.stat(InodePath::at_inode(attr.file, attr.proof)).await.expect("hers");
            assert_eq!((again.file, again.proof), (attr.file, attr.proof));
        }
        let below = InodePath { path: b"deep".to_vec(), ..InodePath::at_inode(sub.file, sub.proof) };
        let (_, opened) = alice.open(below, READ, 0).await.expect("hers");
        assert_eq!(alice.read(opened.cap.expect("a file")).await.expect("hers"), b"for alice");
        site.stop().await;
    });
}

#[test]
fn a_walk_proof_holds_for_its_session_and_user_and_as_long_as_the_inode_lives() {
    block_on(async {
        let mut site = Site::start(LIFE).await;
        let mut alice = site.user(ALICE, 1).await;
        let [home, sub, ..] = closed_home(&mut alice).await;
        let place = InodePath::at_inode(sub.file, sub.proof);

        // Another user with the stolen proof, under any session; another session of the same user; an altered proof.
        for session in [1, 2] {
            let mut mallory = site.user(MALLORY, session).await;
            assert_eq!(mallory.stat(place.clone()).await, Err(Errno::EACCES), "session {session}");
        }
        let mut other = site.user(ALICE, 3).await;
        assert_eq!(other.stat(place.clone()).await, Err(Errno::EACCES));
        for bit in [0, 63, 127] {
            let mut proof = sub.proof;
            proof.0[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                alice.stat(InodePath::at_inode(sub.file, proof)).await,
                Err(Errno::EACCES),
                "bit {bit}"
            );
        }
        // Root needs no proof, but an invalid one is rejected.
        let mut root = site.user(0, 4).await;
        assert!(root.stat(InodePath { proof: None, ..place.clone() }).await.is_ok());
        assert_eq!(root.stat(place.clone()).await, Err(Errno::EACCES));

        // A rename, an inaccessible directory above, another connection of the session and a restart do not matter.
        let rename = MetaRequest::Rename {
            from: at("home/sub"),
            to: at("home/renamed"),
            no_replace: false,
            exchange: false,
        };
        assert_eq!(alice.change(rename).await, MetaReply::Done);
        alice.chmod(at("home"), 0).await;
        assert_eq!(alice.stat(at("home/renamed")).await, Err(Errno::EACCES));
        assert_eq!(alice.list(place.clone()).await.expect("hers").len(), 1);
        drop(alice);
        let mut alice = site.user(ALICE, 1).await;
        assert_eq!(alice.list(place.clone()).await.expect("hers").len(), 1);
        site.restart().await;
        let mut alice = site.user(ALICE, 1).await;
        assert_eq!(alice.list(place.clone()).await.expect("hers").len(), 1);
        // Nor does walking up, as from a working directory; the mode of each file protects it.
        let up = InodePath { path: b"..".to_vec(), ..place.clone() };
        assert_eq!(alice.stat(up).await.expect("seen from below").file, home.file);
        let up = InodePath { path: b"../note".to_vec(), ..place.clone() };
        assert_eq!(alice.stat(up).await, Err(Errno::EACCES));
        alice.chmod(at("home"), 0o700).await;
        for path in ["home/renamed/deep", "home/renamed"] {
            let remove = |at| match path {
                "home/renamed" => MetaRequest::Rmdir { at },
                _ => MetaRequest::Unlink { at },
            };
            assert_eq!(alice.change(remove(at(path))).await, MetaReply::Done);
        }
        assert_eq!(alice.stat(place).await, Err(Errno::ESTALE), "its inode was removed");
        site.stop().await;
    });
}

#[test]
fn entries_prove_a_walk_only_where_the_directory_may_be_searched() {
    block_on(async {
        let site = Site::start(LIFE).await;
        let mut alice = site.user(ALICE, 1).await;
        alice.mkdir("shown", 0o744).await;
        alice.file("shown/file", 0o644, b"hers").await;
        let mut mallory = site.user(MALLORY, 2).await;
        let entries = mallory.list(at("shown")).await.expect("may be read");
        assert_eq!((entries.len(), &entries[0].attr), (1, &None), "names, and nothing else");
        alice.chmod(at("shown"), 0o755).await;
        let entries = mallory.list(at("shown")).await.expect("may be read");
        let attr = entries[0].attr.as_ref().expect("may be searched");
        let place = InodePath::at_inode(attr.file, attr.proof);
        let (_, opened) = mallory.open(place, READ, 0).await.expect("may be read");
        assert_eq!(mallory.read(opened.cap.expect("a file")).await.expect("read"), b"hers");
        site.stop().await;
    });
}

#[test]
fn a_hard_link_needs_ownership_or_permission_to_read_and_write() {
    block_on(async {
        let site = Site::start(LIFE).await;
        let mut alice = site.user(ALICE, 1).await;
        let mut mallory = site.user(MALLORY, 2).await;
        mallory.mkdir("own", 0o777).await;
        for (name, mode, allowed) in [
            ("readable", 0o644, false),
            ("writable", 0o662, false),
            ("both", 0o666, true),
            ("set-uid", 0o4666, false),
            ("set-gid", 0o2676, false),
        ] {
            alice.file(name, mode, b"hers").await;
            let expected = (!allowed).then_some(Errno::EPERM);
            assert_eq!(mallory.link(at(name), &format!("own/{name}")).await, expected, "{name}");
            assert_eq!(alice.link(at(name), &format!("own/by-alice-{name}")).await, None, "{name}");
        }
        let fifo = MetaRequest::Mknod { at: at("fifo"), kind: FileType::Fifo, mode: 0o666, rdev: 0 };
        assert!(matches!(alice.change(fifo).await, MetaReply::Attr(_)));
        assert_eq!(mallory.link(at("fifo"), "own/fifo").await, Some(Errno::EPERM));
        let mut root = site.user(0, 3).await;
        assert_eq!(root.link(at("readable"), "own/by-root").await, None);
        site.stop().await;
    });
}

#[test]
fn a_session_id_gives_another_user_nothing() {
    block_on(async {
        let site = Site::start(LIFE).await;
        let mut alice = site.user_at(ALICE, 7, 1).await;
        alice.file("secret", 0o600, b"hers").await;
        let before = alice.seq;
        let hers = alice.mkdir("hers", 0o700).await;
        let (handle, opened) = alice.open(at("secret"), WRITE, 0).await.expect("hers");
        let range = LockRange { start: 0, end: 10 };
        let (space, owner) = (LockSpace::Record, LockOwner::Process(0));
        let lock = |handle, wait| MetaRequest::Lock {
            handle,
            space,
            owner,
            kind: LockKind::Exclusive,
            range,
            wait,
            ticket: 0,
            pid: 1,
        };
        assert_eq!(alice.ask(lock(handle, false)).await, MetaReply::Locked);

        let mut mallory = site.user_at(MALLORY, 7, 1).await;
        // A stored reply: the same number on the same slot is the attacker's own first request.
        let own = mallory.repeat(before + 1, MetaRequest::Mkdir { at: at("his"), mode: 0o700 }).await;
        let MetaReply::Attr(own) = own else { panic!("{own:?}") };
        assert_eq!((own.uid, own.file == hers.file), (MALLORY, false));
        let requests = [
            MetaRequest::Renew { handle },
            MetaRequest::Recorded { handle },
            MetaRequest::Truncate { at: at(""), handle: Some(handle), size: ByteLen(0) },
            MetaRequest::Unlock { handle, space, owner, range },
            MetaRequest::Invalidate { handle, start: 0, end: 1 },
            MetaRequest::Close { handle, summary: WriteSummary::default() },
            lock(handle, false),
        ];
        for request in requests {
            let reply = mallory.ask(request.clone()).await;
            assert_eq!(errno(&reply), Some(Errno::EBADF), "{request:?}");
        }
        assert!(!mallory.reclaims(handle, &opened, WRITE).await, "her open file");
        let (file, proof) = (opened.attr.file, Some(opened.attr.proof));
        for proof in [proof, Some(hers.proof), None] {
            for parent in [SessionId(7), SessionId(8)] {
                let adopted = mallory.adopt(parent, (file, proof), READ).await;
                assert_eq!(adopted.map(|_| ()), Err(Errno::EACCES));
            }
        }
        let theirs = ReclaimLock { file, space, owner, kind: LockKind::Exclusive, range, pid: 0 };
        let reclaim = MetaRequest::Reclaim { opens: vec![], locks: vec![theirs.clone()] };
        match mallory.ask(reclaim).await {
            MetaReply::Reclaimed { lost_locks, .. } => assert_eq!(lost_locks, [theirs]),
            other => panic!("{other:?}"),
        }
        drop(mallory);

        // Her session stays usable: its open file, its lock, its stored reply.
        assert!(matches!(alice.ask(MetaRequest::Renew { handle }).await, MetaReply::Capability(_)));
        let again = alice.repeat(before + 1, MetaRequest::Mkdir { at: at("hers"), mode: 0o700 }).await;
        assert!(errno(&again).is_some(), "a later request has replaced it: {again:?}");
        let seq = alice.seq + 1;
        let make = MetaRequest::Mkdir { at: at("twice"), mode: 0o700 };
        let first = alice.repeat(seq, make.clone()).await;
        assert_eq!(alice.repeat(seq, make.clone()).await, first, "executed once, answered twice");
        let mut again = site.user_at(ALICE, 7, 1).await;
        assert_eq!(again.repeat(seq, make).await, first, "to the same place on another connection, too");
        assert_eq!(again.ask(lock(handle, false)).await, MetaReply::Locked, "it holds the lock");
        let mut other = site.user(ALICE, 9).await;
        let (theirs, _) = other.open(at("secret"), WRITE, 0).await.expect("hers");
        assert_eq!(
            errno(&other.ask(lock(theirs, false)).await),
            Some(Errno::EAGAIN),
            "and no other session does"
        );
        site.stop().await;
    });
}

#[test]
fn a_capability_is_valid_only_for_its_session_and_user() {
    block_on(async {
        let site = Site::start(LIFE).await;
        let mut alice = site.user(ALICE, 1).await;
        alice.file("secret", 0o600, b"hers").await;
        let (_, opened) = alice.open(at("secret"), WRITE, 0).await.expect("hers");
        let cap = opened.cap.expect("a file");
        for (uid, session) in [(MALLORY, 2), (MALLORY, 1), (ALICE, 3), (0, 1)] {
            let mut thief = site.user(uid, session).await;
            assert_eq!(thief.read(cap).await, Err(Errno::EACCES), "user {uid}, session {session}");
            let reply = thief.write(cap, b"gone").await;
            assert_eq!(crate::support::errno(&reply), Some(Errno::EACCES), "user {uid}, session {session}");
        }
        assert_eq!(alice.read(cap).await.expect("hers"), b"hers");
        assert_eq!(alice.write(cap, b"more").await, DataReply::Written);
        // Another connection of the session may use it, and another process of hers gets its own.
        let mut second = site.user(ALICE, 1).await;
        assert_eq!(second.read(cap).await.expect("hers"), b"more");
        let mut child = site.user(ALICE, 3).await;
        let adopted = child
            .adopt(SessionId(1), (opened.attr.file, Some(opened.attr.proof)), WRITE)
            .await
            .expect("inherited");
        assert_eq!(child.read(adopted.cap.expect("a file")).await.expect("hers"), b"more");
        // It may pass on the right by an adoption.
        let mut grandchild = site.user(ALICE, 4).await;
        let from = (adopted.attr.file, Some(adopted.attr.proof));
        assert!(grandchild.adopt(SessionId(3), from, READ).await.is_ok());
        site.stop().await;
    });
}

#[test]
fn a_former_open_is_not_reopened_without_permission() {
    block_on(async {
        let mut site = Site::start(SHORT_LIFE).await;
        let mut alice = site.user(ALICE, 1).await;
        alice.file("shared", 0o666, b"for all").await;
        let mut mallory = site.user(MALLORY, 2).await;
        let (handle, opened) = mallory.open(at("shared"), WRITE, 0).await.expect("for all");
        let reached = (opened.attr.file, Some(opened.attr.proof));
        let mut child = site.user(MALLORY, 3).await;
        assert!(child.adopt(SessionId(2), reached, WRITE).await.is_ok(), "permitted");
        alice.chmod(at("shared"), 0o600).await;
        for flags in [READ, WRITE] {
            let adopted = child.adopt(SessionId(2), reached, flags).await;
            assert_eq!(adopted.map(|_| ()), Err(Errno::EACCES), "permission is checked again");
        }
        // It stays open for the session that opened it, like a descriptor.
        assert!(matches!(mallory.ask(MetaRequest::Renew { handle }).await, MetaReply::Capability(_)));
        assert!(mallory.reclaims(handle, &opened, WRITE).await, "it is open");
        assert_eq!(
            mallory.ask(MetaRequest::Close { handle, summary: WriteSummary::default() }).await,
            MetaReply::Done
        );
        // No longer open: neither the capability nor its expiry gives access again.
        assert!(!mallory.reclaims(handle, &opened, WRITE).await, "long after the start");
        until_expired(&mut mallory, opened.cap.expect("a file")).await;
        assert!(!mallory.reclaims(handle, &opened, WRITE).await, "an expired capability");
        assert!(errno(&mallory.ask(MetaRequest::Renew { handle }).await).is_some());
        site.restart().await;
        let mut mallory = site.user(MALLORY, 2).await;
        assert!(!mallory.reclaims(handle, &opened, WRITE).await, "an expired one, soon after a start");

        // The owner's session can reclaim it at any time, and after a start any session that had it open.
        let mut alice = site.user(ALICE, 1).await;
        let (hers, her_open) = alice.open(at("shared"), WRITE, 0).await.expect("hers");
        drop(alice);
        let mut alice = site.user(ALICE, 1).await;
        assert!(alice.reclaims(hers, &her_open, WRITE).await);
        alice.chmod(at("shared"), 0o644).await;
        site.stop().await;

        let mut site = Site::start(LIFE).await;
        let mut alice = site.user(ALICE, 1).await;
        alice.file("shared", 0o666, b"for all").await;
        let mut bob = site.user(MALLORY, 2).await;
        let (handle, opened) = bob.open(at("shared"), WRITE, 0).await.expect("for all");
        alice.chmod(at("shared"), 0o600).await;
        site.restart().await;
        let mut thief = site.user(ALICE + 9, 2).await;
        assert!(!thief.reclaims(handle, &opened, WRITE).await, "another user's session id");
        let mut other = site.user(MALLORY, 5).await;
        assert!(!other.reclaims(handle, &opened, WRITE).await, "another session");
        let mut bob = site.user(MALLORY, 2).await;
        assert!(!bob.reclaims(HandleId(99), &Opened { cap: None, ..opened.clone() }, WRITE).await);
        assert!(bob.reclaims(handle, &opened, WRITE).await, "he had it open when the service ended");
        assert!(matches!(bob.ask(MetaRequest::Renew { handle }).await, MetaReply::Capability(_)));
        site.stop().await;
    });
}

#[test]
fn after_the_grace_time_of_a_restart_an_unexpired_capability_reopens_nothing() {
    block_on(async {
        let mut site = Site::start(LIFE).await;
        let mut alice = site.user(ALICE, 1).await;
        alice.file("shared", 0o666, b"for all").await;
        let mut bob = site.user(MALLORY, 2).await;
        let (handle, opened) = bob.open(at("shared"), WRITE, 0).await.expect("for all");
        let reached = (opened.attr.file, Some(opened.attr.proof));
        alice.chmod(at("shared"), 0o600).await;
        // The grace time ends as it begins.
        site.config.metadata.as_mut().expect("a metadata service").options.grace = Nanos::ZERO;
        site.restart().await;

        for (uid, session) in [(MALLORY, 2), (MALLORY, 5), (ALICE + 9, 2)] {
            let mut former = site.user(uid, session).await;
            for flags in [READ, WRITE] {
                assert!(!former.reclaims(handle, &opened, flags).await, "user {uid}, session {session}");
                let adopted = former.adopt(SessionId(2), reached, flags).await;
                assert_eq!(adopted.map(|_| ()), Err(Errno::EACCES), "user {uid}, session {session}");
            }
            let renewed = former.ask(MetaRequest::Renew { handle }).await;
            assert_eq!(errno(&renewed), Some(Errno::EBADF), "user {uid}, session {session}");
        }
        // With permission, its session reopens the file without a capability, too.
        let mut alice = site.user(ALICE, 1).await;
        alice.chmod(at("shared"), 0o666).await;
        let mut bob = site.user(MALLORY, 2).await;
        assert!(bob.reclaims(handle, &Opened { cap: None, ..opened.clone() }, WRITE).await);
        site.stop().await;
    });
}

#[test]
fn only_users_who_may_write_a_file_validate_its_size() {
    block_on(async {
        let site = Site::start(SHORT_LIFE).await;
        let mut alice = site.user(ALICE, 1).await;
        let (_, opened) = alice.open(at("log"), CREATE, 0o644).await.expect("created");
        let cap = opened.cap.expect("a file");
        assert_eq!(alice.write(cap, b"twelve bytes").await, DataReply::Written);
        drop(alice); // dies without reporting its writes

        let mut mallory = site.user(MALLORY, 2).await;
        let settle = |attr: &Attr, size| {
            let invalid_size = attr.invalid_size.as_ref().expect("an invalid size");
            let found = CollectedSize {
                size: ByteLen(size),
                blocks_512: 8,
                mtime: None,
                lens: weft_core::RecordedLens::new(vec![ByteLen(size)]),
            };
            MetaRequest::ValidateSize {
                file: attr.file,
                epoch: invalid_size.epoch,
                cap: invalid_size.cap,
                found,
            }
        };
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut alice = site.user(ALICE, 3).await;
        let hers = loop {
            let attr = alice.stat(at("log")).await.expect("hers");
            if attr.invalid_size.as_ref().expect("an invalid size").may_validate_size {
                break attr;
            }
            assert!(Instant::now() < deadline, "the lost writer is never considered dead");
            std::thread::sleep(Duration::from_millis(20));
        };
        let his = mallory.stat(at("log")).await.expect("may be seen");
        let invalid_size = his.invalid_size.clone().expect("an invalid size");
        assert!(!invalid_size.may_validate_size, "he may only read the file");
        assert!(!invalid_size.cap.rights.allow(Rights::VALIDATE_SIZE));
        let hers_by_him = settle(&hers, 5);
        let mut widened = his.clone();
        let forged = &mut widened.invalid_size.as_mut().expect("an invalid size").cap;
        forged.rights = forged.rights.and(Rights::VALIDATE_SIZE);
        for request in [settle(&his, 5), settle(&widened, 5), hers_by_him] {
            assert_eq!(errno(&mallory.ask(request).await), Some(Errno::EACCES));
        }
        assert!(
            mallory.stat(at("log")).await.expect("may be seen").invalid_size.is_some(),
            "no size was validated"
        );
        assert_eq!(alice.ask(settle(&hers, 12)).await, MetaReply::Done);
        let seen = mallory.stat(at("log")).await.expect("may be seen");
        assert_eq!((seen.size, seen.invalid_size), (ByteLen(12), None));
        site.stop().await;
    });
}

#[test]
fn set_id_bits_are_cleared_before_an_unprivileged_user_can_write() {
    block_on(async {
        let site = Site::start(LIFE).await;
        let mut alice = site.user(ALICE, 1).await;
        let mut mallory = site.user(MALLORY, 2).await;
        for (name, flags) in [
            ("write", WRITE),
            ("cut", OpenFlags { truncate: true, ..READ }),
            ("adopt", READ),
            ("by-length", READ),
        ] {
            let made = alice.file(name, SET_ID_FILE, b"#!").await;
            assert_eq!(made.mode, SET_ID_FILE, "{name}");
            let (_, opened) = mallory.open(at(name), READ, 0).await.expect("may be read");
            let mode = mallory.stat(at(name)).await.expect("exists").mode;
            assert_eq!(mode, SET_ID_FILE, "{name}: reading changes nothing");
            let cap = match name {
                "adopt" => {
                    let reached = (opened.attr.file, Some(opened.attr.proof));
                    let adopted = mallory.adopt(SessionId(2), reached, WRITE).await.expect("may be written");
                    adopted.cap.expect("a file")
                }
                "by-length" => {
                    let cut = MetaRequest::Truncate { at: at(name), handle: None, size: ByteLen(2) };
                    match mallory.change(cut).await {
                        MetaReply::Truncate { cap, .. } => cap,
                        other => panic!("{other:?}"),
                    }
                }
                _ => mallory.open(at(name), flags, 0).await.expect("may be written").1.cap.expect("a file"),
            };
            // Never closed.
            assert_eq!(mallory.write(cap, b"evil").await, DataReply::Written, "{name}");
            let mode = alice.stat(at(name)).await.expect("hers").mode;
            assert_eq!(mode, 0o777, "{name}");
        }
        // The bits are set while Mallory has the file open.
        for mode in [0o4777, 0o2777, 0o6777] {
            let name = format!("later-{mode:o}");
            alice.file(&name, 0o777, b"#!").await;
            let (handle, opened) = mallory.open(at(&name), WRITE, 0).await.expect("may be written");
            assert_eq!(alice.chmod(at(&name), mode).await.mode, 0o777, "{name}");
            assert_eq!(
                mallory.write(opened.cap.expect("a file"), b"evil").await,
                DataReply::Written,
                "{name}"
            );
            // Mallory's client does not tell the service of the write.
            let close = MetaRequest::Close { handle, summary: WriteSummary::default() };
            assert_eq!(mallory.ask(close).await, MetaReply::Done);
            assert_eq!(alice.stat(at(&name)).await.expect("hers").mode, 0o777, "{name}");
            assert_eq!(alice.chmod(at(&name), mode).await.mode, mode, "{name}: closed");
        }
        let mut root = site.user(0, 3).await;
        alice.file("kept", SET_ID_FILE, b"#!").await;
        let (_, opened) = root.open(at("kept"), WRITE, 0).await.expect("root");
        assert_eq!(root.write(opened.cap.expect("a file"), b"good").await, DataReply::Written);
        assert_eq!(alice.stat(at("kept")).await.expect("hers").mode, SET_ID_FILE, "root keeps them");
        site.stop().await;
    });
}

#[test]
fn only_administrators_learn_inodes_by_number() {
    block_on(async {
        let site = Site::start(LIFE).await;
        let mut mallory = site.user(MALLORY, 2).await;
        let requests = [
            MetaRequest::ScanInodes { after: FileId(0), limit: 10 },
            MetaRequest::CheckNamespace { repair: false },
            MetaRequest::DumpBegin,
            MetaRequest::DumpPage { number: 1, after: None },
            MetaRequest::Lineage { files: vec![ROOT] },
        ];
        for request in requests {
            assert_eq!(errno(&mallory.ask(request.clone()).await), Some(Errno::EPERM), "{request:?}");
        }
        let moves = mallory.ask(MetaRequest::Moves { after: FileId(0) }).await;
        assert!(matches!(moves, MetaReply::Moves { ref moves, .. } if moves.is_empty()), "{moves:?}");
        site.stop().await;
    });
}
