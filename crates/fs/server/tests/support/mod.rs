//! A server in a world, and a minimal client for it.
#![allow(dead_code)] // each test program uses a part

#[path = "../../../../interfaces/cli/tests/common/skip.rs"]
pub mod skip;

use std::io::{self, IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use weft_core::{ByteLen, ClusterId, FileId, LocalOffset, Nanos, ObjectId, ServerId, TargetId};
use weft_env::real::{RealEnv, block_on};
use weft_env::{Address, Conn, Env, Peer};
use weft_server::{Hooks, Join, Limits, Server, ServerConfig, ServerHandle, TargetConfig};
use weft_store::target::Module;
use weft_wire::data::{DataReply, DataRequest, DatafileId, IoHints, PayloadLocation};
use weft_wire::greeting::{Caller, GreetingError, greet};
use weft_wire::hello::{HelloReply, Identity, Names, Opening, Process, Role, Security, SessionId, Welcome};
use weft_wire::status::{StatusReply, StatusRequest};
use weft_wire::{
    BoundSession, Capability, ClusterSecret, Errno, Family, Incoming, Kind, Link, Rights, SessionOwner,
    WireError,
};

pub const KEY: [u8; 32] = [7; 32];
pub const CLUSTER: &str = "test";
pub const TIMEOUT: Nanos = Nanos::from_s(20);

pub fn secret() -> ClusterSecret {
    ClusterSecret::new(&KEY)
}

pub fn my_uid() -> u32 {
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { libc::getuid() }
}

/// Returns the configuration of a server with one target of each module, numbered 0 (buffered), 1 (direct if `direct`)
/// and 2 (null).
pub fn config(folder: &Path, addresses: Vec<Address>, direct: bool) -> ServerConfig {
    let target = |id, name: &str, module| TargetConfig {
        id: TargetId(id),
        settings: weft_core::TargetSettings::default(),
        class: "ssd".into(),
        path: folder.join(name),
        module,
        queue_depth: 8,
        leases: true,
        integrity: weft_core::Integrity::Off,
        emulate: None,
        ibridge: None,
        cache: None,
    };
    let mut targets = vec![target(0, "t0", Module::Buffered), target(2, "t2", Module::Null)];
    if direct {
        targets.push(target(1, "t1", Module::Direct));
    }
    ServerConfig {
        server: ServerId(0),
        name: "alpha".into(),
        cluster: CLUSTER.into(),
        addresses,
        secret: secret(),
        targets,
        metadata: None,
        metadata_server: None,
        limits: Limits::default(),
        security: Security::Mac,
        idle_exit: None,
        levels: weft_wire::Levels::KNOWN,
        sample: None,
        registers: false,
        join: Join::No,
        hooks: Hooks {
            memory: || ByteLen(1),
            log: Arc::new(|line| eprintln!("server: {line}")),
            pid: 1,
            uid: my_uid(),
            is_ended: || false,
            audit: None,
        },
    }
}

pub fn make_folders(config: &ServerConfig) {
    for target in &config.targets {
        std::fs::create_dir_all(&target.path).expect("a folder");
    }
}

pub fn unix(folder: &Path) -> Address {
    Address::Unix(PathBuf::from(folder).join("socket"))
}

pub async fn start<E: Env>(env: &E, config: ServerConfig) -> ServerHandle<E> {
    Server::start(env.clone(), config).await.expect("the server starts")
}

/// Runs `test` with a server on real files, over a Unix socket and the network.
pub fn with_server(direct: bool, test: impl AsyncFnOnce(RealEnv, Address, Address, &Path)) {
    let folder = tempfile::tempdir().expect("a folder");
    let env = RealEnv::new();
    block_on(async {
        let tcp = Address::Tcp("127.0.0.1".into(), 0);
        let config = config(folder.path(), vec![unix(folder.path()), tcp], direct);
        make_folders(&config);
        let server = start(&env, config).await;
        let (unix, tcp) = (server.addresses()[0].clone(), server.addresses()[1].clone());
        test(env, unix, tcp, folder.path()).await;
        assert_eq!(server.panics(), 0);
        server.stop().await;
        assert_eq!(server.connections(), 0);
    });
}

/// Returns a greeting without a key.
pub fn hello(role: Role, session: u128) -> Caller {
    let key = Some(secret().own_key_of(&role).0);
    Caller {
        names: Names {
            levels: weft_wire::Levels::KNOWN,
            cluster: CLUSTER.into(),
            cluster_id: ClusterId::NONE,
            server: "alpha".into(),
            role,
            key,
        },
        opening: Opening {
            session: SessionId(session),
            slot: 0,
            checksums: false,
            security: Security::None,
            job: None,
            process: Process::default(),
        },
        key: None,
        random: [5; 32],
        lengths_only: false,
    }
}

/// Returns the greeting and the key of an administrator who acts for `identity`.
pub fn administrator(identity: Identity, session: u128) -> (Caller, [u8; 32]) {
    let (claims, key) = secret().own_administrator_key();
    let mut caller = hello(Role::Client(identity), session);
    caller.names.key = Some(claims);
    (caller, key)
}

pub fn me() -> Identity {
    Identity { uid: my_uid(), gid: 0, groups: vec![] }
}

/// Returns the owner of the session that a greeting opens.
pub fn owner(role: &Role, peer: &Peer) -> SessionOwner {
    let is_server = matches!(role, Role::Server(_));
    let uid = match (role, peer) {
        (_, Peer::Local { uid, .. }) => *uid,
        (Role::Client(identity), Peer::Remote { .. }) => identity.uid,
        (Role::Server(_), Peer::Remote { .. }) => 0,
    };
    SessionOwner { uid, is_server }
}

/// Minimal client.
pub struct Client<E: Env> {
    pub link: Link<E::Conn>,
    pub secret: ClusterSecret,
    pub welcome: Option<Welcome>,
    /// Session for which capabilities are made.
    pub bound: BoundSession,
    request: u64,
}

impl<E: Env> Client<E> {
    pub async fn connect(env: &E, address: &Address) -> Self {
        let mut client = Self::bare(env, address).await;
        client.greet(hello(Role::Client(me()), 1), None).await.expect("welcome");
        client
    }

    pub async fn connect_as(env: &E, address: &Address, hello: Caller, key: [u8; 32]) -> Self {
        let mut client = Self::bare(env, address).await;
        client.greet(hello, Some(key)).await.expect("welcome");
        client
    }

    pub async fn bare(env: &E, address: &Address) -> Self {
        let conn = env.connect(address, TIMEOUT).await.expect("the server listens");
        Self { link: Link::new(conn), secret: secret(), welcome: None, bound: BoundSession(0), request: 0 }
    }

    /// Greets the server; an error that is not a rejection by the server becomes `ECONNREFUSED`. A connection that names no
    /// place in its session gets one of its own.
    pub async fn greet(&mut self, mut hello: Caller, key: Option<[u8; 32]>) -> Result<(), WireError> {
        static NEXT: AtomicU32 = AtomicU32::new(1 << 24);
        if hello.opening.slot == 0 {
            hello.opening.slot = NEXT.fetch_add(1, Ordering::Relaxed);
        }
        let bound = hello.opening.session.bound_to(owner(&hello.names.role, self.link.conn().peer()));
        match greet(&mut self.link, Caller { key, ..hello }, |_| Ok(())).await {
            Ok(welcome) => {
                self.bound = bound;
                self.welcome = Some(welcome);
                Ok(())
            }
            Err(GreetingError::Refused(why)) => Err(why),
            Err(other) => Err(WireError::new(Errno::ECONNREFUSED, format!("{other:?}"))),
        }
    }

    pub async fn call_hello<M: serde::Serialize>(&mut self, message: &M) -> HelloReply {
        self.link.send(Kind::Request, Family::Hello, 1, message, &[]).await.expect("sent");
        let incoming = self.link.recv().await.expect("received").expect("an answer");
        self.link.decode(&incoming).expect("decodes")
    }

    pub async fn send(&mut self, request: &DataRequest, payload: &[u8]) {
        self.request += 1;
        let pieces = [IoSlice::new(payload)];
        let pieces: &[_] = if payload.is_empty() { &[] } else { &pieces };
        self.link.send(Kind::Request, Family::Data, self.request, request, pieces).await.expect("sent");
    }

    pub async fn recv(&mut self) -> (DataReply, Vec<u8>) {
        let incoming = self.link.recv().await.expect("received").expect("an answer");
        self.finish(incoming).await
    }

    async fn finish(&mut self, incoming: Incoming) -> (DataReply, Vec<u8>) {
        let reply = self.link.decode(&incoming).expect("decodes");
        let mut payload = vec![0; incoming.header.payload_len as usize];
        self.link
            .recv_payload(&incoming.header, &mut [IoSliceMut::new(&mut payload)])
            .await
            .expect("payload");
        (reply, payload)
    }

    pub async fn call(&mut self, request: &DataRequest, payload: &[u8]) -> (DataReply, Vec<u8>) {
        self.send(request, payload).await;
        self.recv().await
    }

    pub fn cap(&self, file: u64) -> Capability {
        self.grant(file, Rights::READ.and(Rights::WRITE), 1 << 40)
    }

    /// Returns a capability of this client's session, as the metadata service would grant it.
    pub fn grant(&self, file: u64, rights: Rights, expires_s: u64) -> Capability {
        self.secret.grant(self.bound, FileId(file), rights, expires_s)
    }

    pub async fn write(&mut self, datafile: DatafileId, offset: u64, bytes: &[u8]) -> DataReply {
        let cap = self.cap(datafile.file.0);
        self.call(&write_request(datafile, cap, offset, bytes.len() as u32), bytes).await.0
    }

    pub async fn read(&mut self, datafile: DatafileId, offset: u64, len: u32) -> (DataReply, Vec<u8>) {
        let cap = self.cap(datafile.file.0);
        self.call(&read_request(datafile, cap, offset, len), &[]).await
    }

    pub async fn status(&mut self, request: StatusRequest) -> StatusReply {
        self.link.send(Kind::Request, Family::Status, 9, &request, &[]).await.expect("sent");
        let incoming = self.link.recv().await.expect("received").expect("an answer");
        self.link.decode(&incoming).expect("decodes")
    }

    /// Returns the reply to an echo, and its payload.
    pub async fn echo(&mut self, reply_len: u32) -> (StatusReply, Vec<u8>) {
        let sent = [1u8; 777];
        let request = StatusRequest::Echo { reply_len };
        self.link
            .send(Kind::Request, Family::Status, 9, &request, &[IoSlice::new(&sent)])
            .await
            .expect("sent");
        let incoming = self.link.recv().await.expect("received").expect("an answer");
        let reply = self.link.decode(&incoming).expect("decodes");
        let mut payload = vec![0; incoming.header.payload_len as usize];
        self.link
            .recv_payload(&incoming.header, &mut [IoSliceMut::new(&mut payload)])
            .await
            .expect("payload");
        (reply, payload)
    }

    /// Whether the server has closed this connection.
    pub async fn is_ended(&mut self) -> bool {
        match self.link.conn().recv(&mut [0]).await {
            Ok(count) => count == 0,
            Err(error) => error.kind() != io::ErrorKind::TimedOut,
        }
    }
}

pub fn datafile(target: u32, file: u64, column: u16) -> DatafileId {
    DatafileId { target: TargetId(target), file: FileId(file), object: ObjectId { component: 0, column } }
}

pub fn read_request(datafile: DatafileId, cap: Capability, offset: u64, len: u32) -> DataRequest {
    DataRequest::Read { datafile, cap, offset: LocalOffset(offset), len, hints: one_part() }
}

pub fn write_request(datafile: DatafileId, cap: Capability, offset: u64, len: u32) -> DataRequest {
    let (offset, place) = (LocalOffset(offset), PayloadLocation::Payload);
    DataRequest::Write { datafile, cap, offset, len, place, hints: one_part() }
}

pub fn errno(reply: &DataReply) -> Option<Errno> {
    match reply {
        DataReply::Failed(error) => Some(error.errno),
        _ => None,
    }
}

/// Returns bytes that differ from position to position.
pub fn pattern(len: usize, salt: u64) -> Vec<u8> {
    (0..len as u64).map(|at| ((at ^ salt).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

/// Returns the hints of a request on one datafile.
fn one_part() -> IoHints {
    IoHints { siblings: 1, ..IoHints::default() }
}

/// Connects to a Unix socket as user `uid`: the kernel reports the connecting user to the server. The connection
/// belongs to this process afterwards.
pub async fn connect_as_user(
    env: &weft_env::real::RealEnv,
    address: &Address,
    uid: u32,
    hello: Caller,
) -> Result<Client<weft_env::real::RealEnv>, WireError> {
    let become_user = |uid: u32| {
        // SAFETY: the calls take only numbers. As direct system calls they change only this thread.
        let done = unsafe { libc::syscall(libc::SYS_setresuid, u32::MAX, uid, u32::MAX) };
        assert_eq!(done, 0, "{}", io::Error::last_os_error());
    };
    become_user(uid);
    let mut client = Client::bare(env, address).await;
    become_user(0);
    let session = hello.opening.session;
    client.greet(hello, None).await?;
    // The client's end of the socket reports the server's user.
    client.bound = session.bound_to(SessionOwner { uid, is_server: false });
    Ok(client)
}

/// Lets every user access a socket in `folder`.
pub fn open_to_all(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).expect("set");
}
