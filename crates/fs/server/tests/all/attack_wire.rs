//! An attacker on the network between real clients and real servers: it relays greetings, and changes, repeats,
//! reorders, drops, injects and reflects messages. None of its messages takes effect.

use crate::support::*;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use weft_core::{ClusterId, Nanos, ServerId};
use weft_env::real::{RealEnv, block_on};
use weft_env::{Address, Env};
use weft_server::{Join, Server, ServerConfig, ServerHandle, metadata};
use weft_wire::cluster::{ClusterMap, ServerEntry, TargetEntry};
use weft_wire::data::{DataReply, DataRequest};
use weft_wire::greeting::{Caller, GreetingError, greet};
use weft_wire::header::encode_message;
use weft_wire::hello::{AuthMethod, Hello, HelloReply, Identity, Role, Security, SessionId, Welcome};
use weft_wire::meta::{InodePath, MetaCall, MetaReply, MetaRequest};
use weft_wire::secure::{TAG_LEN, segments};
use weft_wire::status::{StatusReply, StatusRequest};
use weft_wire::{Errno, Family, HEADER_LEN, Header, Kind, Link};

/// Messages of a greeting in each direction.
const GREETING: usize = 2;
const SOUND: &[u8] = b"sound bytes";

struct Stage {
    env: RealEnv,
    server: ServerHandle<RealEnv>,
    tcp: Address,
}

impl Stage {
    /// Reads the datafile over a connection without a relay.
    async fn content(&self) -> Vec<u8> {
        let mut client = self.direct().await;
        client.read(datafile(0, 5, 0), 0, 100).await.1
    }

    async fn direct(&self) -> Client<RealEnv> {
        let role = Role::Server(ServerId(1));
        Client::connect_as(&self.env, &self.tcp, hello(role, 7), secret().server_key()).await
    }

    /// Connects a client with a server's rights through a relay.
    async fn through(&self, relay: &Relay) -> Client<RealEnv> {
        let role = Role::Server(ServerId(1));
        Client::connect_as(&self.env, &relay.address, hello(role, 8), secret().server_key()).await
    }
}

fn stage<F: AsyncFnOnce(&Stage)>(change: impl FnOnce(&mut ServerConfig), test: F) {
    let folder = tempfile::tempdir().expect("a folder");
    let env = RealEnv::new();
    block_on(async {
        let tcp = Address::Tcp("127.0.0.1".into(), 0);
        let mut config = config(folder.path(), vec![tcp], false);
        change(&mut config);
        make_folders(&config);
        let server = start(&env, config).await;
        let tcp = server.addresses()[0].clone();
        let stage = Stage { env, server, tcp };
        test(&stage).await;
        assert_eq!(stage.server.panics(), 0);
        stage.server.stop().await;
    });
}

/// Destination of a relayed message.
enum To {
    Server(Vec<u8>),
    Client(Vec<u8>),
}

/// Decides what a relay does with message `n` of one direction.
type Tamper = Box<dyn FnMut(usize, Vec<u8>) -> Vec<To> + Send>;

/// Relays one connection to a server.
struct Relay {
    address: Address,
    /// All bytes relayed in both directions.
    seen: Arc<Mutex<Vec<u8>>>,
}

fn socket(address: &Address) -> String {
    let Address::Tcp(host, port) = address else { unreachable!("a network address") };
    format!("{host}:{port}")
}

fn honest(to: fn(Vec<u8>) -> To) -> Tamper {
    Box::new(move |_, message| vec![to(message)])
}

fn relay(server: &Address, mut to_server: Tamper, mut to_client: Tamper) -> Relay {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = Address::Tcp("127.0.0.1".into(), listener.local_addr().expect("bound").port());
    let (server, seen) = (socket(server), Arc::new(Mutex::new(Vec::new())));
    let relay = Relay { address, seen: Arc::clone(&seen) };
    std::thread::spawn(move || {
        let (client, _) = listener.accept().expect("a client");
        let server = TcpStream::connect(server).expect("the server listens");
        let pass = |from: &TcpStream, tamper: &mut Tamper| {
            let mut number = 0;
            while let Ok(message) = next_message(&mut &*from) {
                seen.lock().expect("no panic").extend_from_slice(&message);
                for to in tamper(number, message) {
                    let sent = match to {
                        To::Server(bytes) => (&server).write_all(&bytes),
                        To::Client(bytes) => (&client).write_all(&bytes),
                    };
                    if sent.is_err() {
                        break;
                    }
                }
                number += 1;
            }
            let _ = client.shutdown(Shutdown::Both);
            let _ = server.shutdown(Shutdown::Both);
        };
        std::thread::scope(|scope| {
            scope.spawn(|| pass(&client, &mut to_server));
            pass(&server, &mut to_client);
        });
    });
    relay
}

/// Reads the next message, whose length is visible in its header.
fn next_message(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut message = vec![0; HEADER_LEN];
    from.read_exact(&mut message)?;
    let header = Header::decode(message[..].try_into().expect("a header")).expect("a sound header");
    let payload_len = header.payload_len as usize;
    let tags = if header.is_sealed { TAG_LEN * (1 + segments(payload_len).count()) } else { 0 };
    let rest = header.body_len as usize + payload_len + tags;
    message.resize(HEADER_LEN + rest, 0);
    from.read_exact(&mut message[HEADER_LEN..])?;
    Ok(message)
}

/// Recomputes the checksum of a changed header.
fn reseal(message: &mut [u8]) {
    let crc = crc32fast::hash(&message[..44]);
    message[44..48].copy_from_slice(&crc.to_le_bytes());
}

/// Sends a write on a connection that may end.
async fn write(client: &mut Client<RealEnv>, request: u64, bytes: &[u8]) -> io::Result<DataReply> {
    send_write(client, request, bytes).await?;
    reply(client).await
}

async fn send_write(client: &mut Client<RealEnv>, request: u64, bytes: &[u8]) -> io::Result<()> {
    let message = write_request(datafile(0, 5, 0), client.cap(5), 0, bytes.len() as u32);
    client.link.send(Kind::Request, Family::Data, request, &message, &[IoSlice::new(bytes)]).await
}

async fn reply(client: &mut Client<RealEnv>) -> io::Result<DataReply> {
    let incoming = client.link.recv().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let reply = client.link.decode(&incoming)?;
    let mut payload = vec![0; incoming.header.payload_len as usize];
    client.link.recv_payload(&incoming.header, &mut [IoSliceMut::new(&mut payload)]).await?;
    Ok(reply)
}

const SECURITIES: [Security; 2] = [Security::Mac, Security::Encrypt];

#[test]
fn a_changed_message_ends_the_connection_and_does_nothing() {
    type Change = fn(&mut Vec<u8>);
    let changes: [(&str, Change); 9] = [
        ("number of the request", |message| message[8] ^= 1),
        ("family", |message| message[6] = 3),
        ("tag of the head", |message| message[HEADER_LEN] ^= 0x80),
        ("first byte of the body", |message| message[HEADER_LEN + TAG_LEN] ^= 1),
        ("last byte of the payload, whose checksum would match", |message| {
            let at = message.len() - TAG_LEN - 1;
            message[at] ^= 1;
        }),
        ("tag of the payload", |message| {
            let at = message.len() - 1;
            message[at] ^= 1;
        }),
        ("no longer sealed", |message| {
            message[7] = 0;
            let body_len = u32::from_le_bytes(message[16..20].try_into().expect("four")) as usize;
            let body = HEADER_LEN + TAG_LEN..HEADER_LEN + TAG_LEN + body_len;
            let crc = crc32fast::hash(&message[body.clone()]);
            message[40..44].copy_from_slice(&crc.to_le_bytes());
            message.drain(HEADER_LEN..HEADER_LEN + TAG_LEN);
            message.truncate(message.len() - TAG_LEN);
        }),
        ("no payload", |message| {
            message[20..24].fill(0);
            message.truncate(message.len() - TAG_LEN - b"other bytes".len());
        }),
        ("a shorter body", |message| {
            let body_len = u32::from_le_bytes(message[16..20].try_into().expect("four")) - 1;
            message[16..20].copy_from_slice(&body_len.to_le_bytes());
        }),
    ];
    for security in SECURITIES {
        stage(
            |config| config.security = security,
            async |stage| {
                for (name, change) in changes {
                    let tamper = move |number, mut message: Vec<u8>| {
                        if number == GREETING + 1 {
                            change(&mut message);
                            reseal(&mut message);
                        }
                        vec![To::Server(message)]
                    };
                    let relay = relay(&stage.tcp, Box::new(tamper), honest(To::Client));
                    let mut client = stage.through(&relay).await;
                    assert_eq!(client.link.security(), security);
                    // Unchanged messages work.
                    assert_eq!(write(&mut client, 1, SOUND).await.expect("left alone"), DataReply::Written);
                    let changed = write(&mut client, 2, b"other bytes").await;
                    assert!(changed.is_err(), "{security:?}, {name}: {changed:?}");
                    assert_eq!(stage.content().await, SOUND, "{security:?}, {name}");
                }
            },
        );
    }
}

#[test]
fn repeated_reordered_dropped_and_injected_requests_have_no_effect() {
    /// Plays the two writes after the greeting; the relay holds the first until it has the second.
    type Play = fn(&[Vec<u8>]) -> Vec<To>;
    fn to_server(messages: &[&Vec<u8>]) -> Vec<To> {
        messages.iter().map(|message| To::Server((*message).clone())).collect()
    }
    fn removal(is_sealed: bool) -> Vec<u8> {
        let request = DataRequest::Remove { datafiles: vec![datafile(0, 5, 0)] };
        let mut message = Vec::new();
        let header = Header { is_sealed, ..Header::new(Kind::Request, Family::Data, 3) };
        encode_message(&mut message, &header, &request);
        message
    }
    let plays: [(&str, Play, &[u8]); 7] = [
        ("the first again", |m| to_server(&[&m[0], &m[1], &m[0]]), b"write two"),
        ("the second again", |m| to_server(&[&m[0], &m[1], &m[1]]), b"write two"),
        ("reordered", |m| to_server(&[&m[1], &m[0]]), SOUND),
        ("the first dropped", |m| to_server(&[&m[1]]), SOUND),
        ("a removal without a tag", |m| to_server(&[&m[0], &removal(false), &m[1]]), b"write one"),
        ("a removal with a forged tag", |m| to_server(&[&m[0], &removal(true), &m[1]]), b"write one"),
        (
            "the client's own requests, and nothing to the server",
            |m| m.iter().map(|message| To::Client(message.clone())).collect(),
            SOUND,
        ),
    ];
    for security in SECURITIES {
        stage(
            |config| config.security = security,
            async |stage| {
                for (name, play, left) in plays {
                    let mut direct = stage.direct().await;
                    assert_eq!(direct.write(datafile(0, 5, 0), 0, SOUND).await, DataReply::Written);
                    let mut held = Vec::new();
                    let tamper = move |number, message: Vec<u8>| match number {
                        0 | 1 => vec![To::Server(message)],
                        2 => {
                            held.push(message);
                            Vec::new()
                        }
                        3 => {
                            held.push(message);
                            play(&held)
                        }
                        _ => vec![To::Server(message)],
                    };
                    let relay = relay(&stage.tcp, Box::new(tamper), honest(To::Client));
                    let mut client = stage.through(&relay).await;
                    send_write(&mut client, 1, b"write one").await.expect("sent");
                    send_write(&mut client, 2, b"write two").await.expect("sent");
                    let mut replies = 0;
                    while replies < 2 && reply(&mut client).await.is_ok() {
                        replies += 1;
                    }
                    if replies == 2 {
                        // Both were served before the attack; the connection has ended since.
                        assert!(client.is_ended().await, "{security:?}, {name}");
                    }
                    let mut expected = SOUND.to_vec();
                    expected[..left.len()].copy_from_slice(left);
                    assert_eq!(stage.content().await, expected, "{security:?}, {name}");
                }
            },
        );
    }
}

/// Adds a metadata service whose root directory every user may change, and leaves one target.
fn with_metadata(config: &mut ServerConfig) {
    config.targets.truncate(1);
    let target = &config.targets[0];
    let folder = target.path.parent().expect("a folder").to_owned();
    let local = unix(&folder);
    let map = ClusterMap {
        domains: Vec::new(),
        name: config.cluster.clone(),
        version: 0,
        servers: vec![ServerEntry { name: config.name.clone(), addresses: vec![local.clone()] }],
        targets: vec![TargetEntry { id: target.id, server: config.server, class: target.class.clone() }],
        metadata: config.server,
    };
    config.addresses.push(local);
    let path = folder.join("metadata");
    std::fs::create_dir(&path).expect("a folder");
    let mut metadata = metadata::Config::new(path, map.clone());
    metadata.options.root.mode = 0o777;
    config.metadata = Some(metadata);
    config.metadata_server = Some(map.server(map.metadata).clone());
    config.join = Join::Format;
}

#[test]
fn a_request_injected_after_the_greeting_of_a_user_is_not_executed() {
    fn call(seq: u64, request: MetaRequest) -> MetaCall {
        MetaCall { seq, on_behalf: None, request }
    }
    fn mkdir(path: &str) -> MetaCall {
        call(1, MetaRequest::Mkdir { at: InodePath::from_root(path, false), mode: 0o755 })
    }
    async fn ask(client: &mut Client<RealEnv>, call: &MetaCall) -> io::Result<MetaReply> {
        client.link.send(Kind::Request, Family::Meta, 1, call, &[]).await?;
        let incoming = client.link.recv().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(client.link.decode(&incoming)?)
    }
    let user = Identity { uid: 4321, gid: 4321, groups: vec![] };
    let key = secret().identity_key(&user);
    for security in SECURITIES {
        stage(
            |config| {
                config.security = security;
                with_metadata(config);
            },
            async |stage| {
                let greeting = |session| hello(Role::Client(user.clone()), session);
                let mut direct = Client::connect_as(&stage.env, &stage.tcp, greeting(4), key).await;
                for (name, is_sealed) in [("without a tag", false), ("with a forged tag", true)] {
                    let mut injected = Vec::new();
                    let header = Header { is_sealed, ..Header::new(Kind::Request, Family::Meta, 1) };
                    encode_message(&mut injected, &header, &mkdir("injected"));
                    let tamper = move |number: usize, message: Vec<u8>| match number {
                        GREETING => vec![To::Server(injected.clone()), To::Server(message)],
                        _ => vec![To::Server(message)],
                    };
                    let relay = relay(&stage.tcp, Box::new(tamper), honest(To::Client));
                    let mut client = Client::connect_as(&stage.env, &relay.address, greeting(3), key).await;
                    let reply = ask(&mut client, &mkdir("own")).await;
                    assert!(reply.is_err(), "{security:?}, {name}: the connection goes on: {reply:?}");
                    for path in ["injected", "own"] {
                        let stat = MetaRequest::Stat { at: InodePath::from_root(path, false) };
                        let found = ask(&mut direct, &call(0, stat)).await.expect("a reply");
                        let is_missing =
                            matches!(&found, MetaReply::Failed(error) if error.errno == Errno::ENOENT);
                        assert!(is_missing, "{security:?}, {name}: {path}: {found:?}");
                    }
                }
                // The user's own client is served.
                let made = ask(&mut direct, &mkdir("injected")).await.expect("a reply");
                assert!(matches!(made, MetaReply::Attr(_)), "{security:?}: {made:?}");
            },
        );
    }
}

#[test]
fn only_the_servers_next_reply_is_accepted() {
    type Play = fn(&[Vec<u8>]) -> Vec<To>;
    let plays: [(&str, Play); 5] = [
        ("the first reply for the second", |m| vec![To::Client(m[0].clone()), To::Client(m[0].clone())]),
        ("the first dropped", |m| vec![To::Client(m[1].clone())]),
        ("other bytes", |m| {
            let mut changed = m[0].clone();
            let at = changed.len() - TAG_LEN - 1;
            changed[at] ^= 1;
            vec![To::Client(changed)]
        }),
        ("a reply without a tag", |_| {
            let mut message = Vec::new();
            let header = Header::new(Kind::Reply, Family::Data, 1);
            encode_message(&mut message, &header, &DataReply::Written);
            vec![To::Client(message)]
        }),
        // Both directions carry the same bytes, but have different keys.
        ("the server's replies back to it", |m| vec![To::Server(m[0].clone()), To::Server(m[1].clone())]),
    ];
    for security in SECURITIES {
        stage(
            |config| config.security = security,
            async |stage| {
                let mut direct = stage.direct().await;
                assert_eq!(direct.write(datafile(0, 5, 0), 0, SOUND).await, DataReply::Written);
                for (name, play) in plays {
                    let mut held = Vec::new();
                    let tamper = move |number, message: Vec<u8>| {
                        if number < GREETING {
                            return vec![To::Client(message)];
                        }
                        held.push(message);
                        if held.len() == 2 { play(&held) } else { Vec::new() }
                    };
                    let relay = relay(&stage.tcp, honest(To::Server), Box::new(tamper));
                    let mut client = stage.through(&relay).await;
                    let read = read_request(datafile(0, 5, 0), client.cap(5), 0, 100);
                    for request in [1, 2] {
                        client
                            .link
                            .send(Kind::Request, Family::Data, request, &read, &[])
                            .await
                            .expect("sent");
                    }
                    let mut replies = 0;
                    while reply(&mut client).await.is_ok() {
                        replies += 1;
                    }
                    assert!(replies < 2, "{security:?}, {name}");
                    assert_eq!(stage.content().await, SOUND, "{security:?}, {name}");
                }
            },
        );
    }
}

#[test]
fn a_greeting_cannot_be_changed_to_other_names_or_less_protection() {
    let user = Identity { uid: 4321, gid: 4321, groups: vec![] };
    type Bend = fn(&mut Hello);
    let bends: [(&str, Bend); 4] = [
        ("another identity", |hello| {
            hello.names.role = Role::Client(Identity { uid: 0, gid: 0, groups: vec![] });
        }),
        ("a server", |hello| hello.names.role = Role::Server(ServerId(1))),
        ("another cluster id", |hello| hello.names.cluster_id = ClusterId(9)),
        ("credentials instead of the key", |hello| {
            hello.method =
                AuthMethod::Credentials(crate::support::hello(hello.names.role.clone(), 1).opening);
        }),
    ];
    stage(
        |_| (),
        async |stage| {
            for (name, bend) in bends {
                let tamper = move |number, mut message: Vec<u8>| {
                    if number == 0 {
                        let header = Header::decode(message[..HEADER_LEN].try_into().expect("48"));
                        let header = header.expect("a header");
                        let mut hello: Hello =
                            header.decode_body(&message[HEADER_LEN..]).expect("a greeting");
                        bend(&mut hello);
                        encode_message(&mut message, &header, &hello);
                    }
                    vec![To::Server(message)]
                };
                let relay = relay(&stage.tcp, Box::new(tamper), honest(To::Client));
                let mut client = Client::bare(&stage.env, &relay.address).await;
                let key = secret().identity_key(&user);
                let why =
                    client.greet(hello(Role::Client(user.clone()), 3), Some(key)).await.expect_err(name);
                assert_eq!(why.errno, Errno::EACCES, "{name}: {why}");
            }
            // The server's second message, changed.
            for number in 0..GREETING {
                let tamper = move |at, mut message: Vec<u8>| {
                    if at == number {
                        let last = message.len() - 1;
                        message[last] ^= 1;
                        if number == 0 {
                            let crc = crc32fast::hash(&message[HEADER_LEN..]);
                            message[40..44].copy_from_slice(&crc.to_le_bytes());
                            reseal(&mut message);
                        }
                    }
                    vec![To::Client(message)]
                };
                let relay = relay(&stage.tcp, honest(To::Server), Box::new(tamper));
                let mut client = Client::bare(&stage.env, &relay.address).await;
                let key = secret().identity_key(&user);
                let greeting = hello(Role::Client(user.clone()), 3);
                client.greet(greeting, Some(key)).await.expect_err("a changed answer");
            }
        },
    );
    // The stronger of the client's request and the server's setting applies.
    for (server, client, agreed) in [
        (Security::Encrypt, Security::None, Security::Encrypt),
        (Security::Encrypt, Security::Mac, Security::Encrypt),
        (Security::Mac, Security::None, Security::Mac),
        (Security::None, Security::None, Security::Mac),
        (Security::Mac, Security::Encrypt, Security::Encrypt),
    ] {
        stage(
            |config| config.security = server,
            async |stage| {
                let role = Role::Client(me());
                let mut greeting = hello(role, 3);
                greeting.opening.security = client;
                let key = secret().identity_key(&me());
                let mut client = Client::connect_as(&stage.env, &stage.tcp, greeting, key).await;
                assert_eq!(client.link.security(), agreed);
                assert_eq!(client.write(datafile(0, 6, 0), 0, SOUND).await, DataReply::Written);
                assert_eq!(client.read(datafile(0, 6, 0), 0, 100).await.1, SOUND);
            },
        );
    }
}

#[test]
fn session_ids_do_not_travel_in_clear_and_contents_only_where_nothing_is_encrypted() {
    let session = SessionId(0x0123_4567_89ab_cdef_1122_3344_5566_7788);
    let forms = [
        session.0.to_le_bytes().to_vec(),
        session.0.to_be_bytes().to_vec(),
        // As encoded in messages.
        postcard::to_allocvec(&session).expect("encodes"),
    ];
    let holds = |seen: &[u8], what: &[u8]| seen.windows(what.len()).any(|window| window == what);
    // As a control: the search finds the id in the greeting on a Unix socket.
    let mut plain = hello(Role::Client(me()), 0);
    plain.opening.session = session;
    let plain = Hello { names: plain.names, method: AuthMethod::Credentials(plain.opening) };
    assert!(holds(&postcard::to_allocvec(&plain).expect("encodes"), &forms[2]));
    for security in SECURITIES {
        stage(
            |config| config.security = security,
            async |stage| {
                let relay = relay(&stage.tcp, honest(To::Server), honest(To::Client));
                let greeting = hello(Role::Client(me()), session.0);
                let key = secret().identity_key(&me());
                let mut client = Client::connect_as(&stage.env, &relay.address, greeting, key).await;
                assert_eq!(client.write(datafile(0, 6, 0), 0, SOUND).await, DataReply::Written);
                assert_eq!(client.read(datafile(0, 6, 0), 0, 100).await.1, SOUND);
                assert!(matches!(client.status(StatusRequest::Status).await, StatusReply::Status(_)));
                let seen = relay.seen.lock().expect("no panic").clone();
                for form in &forms {
                    assert!(!holds(&seen, form), "{security:?}");
                }
                assert_eq!(holds(&seen, SOUND), security == Security::Mac);
                // The names of both ends are not secret.
                assert!(holds(&seen, b"alpha"));
            },
        );
    }
}

/// Accepts connections, answers greetings with `answer`, and records the messages it receives.
struct Impostor {
    address: Address,
    received: Arc<Mutex<Vec<Vec<u8>>>>,
}

fn impostor(answer: fn(&Hello) -> HelloReply) -> Impostor {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = Address::Tcp("127.0.0.1".into(), listener.local_addr().expect("bound").port());
    let received = Arc::new(Mutex::new(Vec::new()));
    let impostor = Impostor { address, received: Arc::clone(&received) };
    std::thread::spawn(move || {
        while let Ok((mut peer, _)) = listener.accept() {
            let received = Arc::clone(&received);
            std::thread::spawn(move || {
                let first = next_message(&mut peer).expect("a greeting");
                let header = Header::decode(first[..HEADER_LEN].try_into().expect("48")).expect("a header");
                let hello: Hello = header.decode_body(&first[HEADER_LEN..]).expect("a greeting");
                received.lock().expect("no panic").push(first);
                let mut reply = Vec::new();
                encode_message(
                    &mut reply,
                    &Header::new(Kind::Reply, Family::Hello, header.request),
                    &answer(&hello),
                );
                peer.write_all(&reply).expect("answered");
                let mut rest = Vec::new();
                let _ = peer.read_to_end(&mut rest);
                if !rest.is_empty() {
                    received.lock().expect("no panic").push(rest);
                }
            });
        }
    });
    impostor
}

fn welcome() -> Welcome {
    Welcome {
        level: weft_wire::Level::LATEST,
        server: ServerId(1),
        incarnation: 1,
        boot: 1,
        idle_limit: Nanos(0),
        checksums: false,
        cluster_id: ClusterId::NONE,
        security: Security::None,
    }
}

/// Replies that an impostor without the key can try.
const POSES: [fn(&Hello) -> HelloReply; 3] = [
    |_| HelloReply::Welcome(welcome()),
    // Reflect the caller's message.
    |hello| match hello.method {
        AuthMethod::Key(first) => HelloReply::Challenge(first),
        AuthMethod::Credentials(_) => HelloReply::Welcome(welcome()),
    },
    // A handshake with another key.
    |hello| {
        let AuthMethod::Key(_) = hello.method else { return HelloReply::Welcome(welcome()) };
        let (_, made_up) = weft_wire::secure::Handshake::begin(&[9; 32], &hello.names, [1; 32]);
        HelloReply::Challenge(made_up)
    },
];

#[test]
fn clients_reveal_nothing_to_an_impostor() {
    block_on(async {
        for pose in POSES {
            let impostor = impostor(pose);
            for (role, key) in [
                (Role::Client(me()), secret().identity_key(&me())),
                (Role::Server(ServerId(0)), secret().server_key()),
            ] {
                let env = RealEnv::new();
                let conn = env.connect(&impostor.address, TIMEOUT).await.expect("it listens");
                let mut link = Link::new(conn);
                let caller = Caller { key: Some(key), ..hello(role, 3) };
                let result = greet(&mut link, caller, |_| Ok(())).await;
                assert!(matches!(result, Err(GreetingError::Unproven)), "{result:?}");
            }
            assert_eq!(
                impostor.received.lock().expect("no panic").len(),
                2,
                "two greetings and nothing else"
            );
        }
    });
}

#[test]
fn servers_must_prove_their_role_on_a_unix_socket_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    let impostor = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().expect("a peer");
        let first = next_message(&mut peer).expect("a greeting");
        let header = Header::decode(first[..HEADER_LEN].try_into().expect("48")).expect("a header");
        let mut reply = Vec::new();
        let header = Header::new(Kind::Reply, Family::Hello, header.request);
        encode_message(&mut reply, &header, &HelloReply::Welcome(welcome()));
        peer.write_all(&reply).expect("answered");
        let mut rest = Vec::new();
        peer.read_to_end(&mut rest).expect("the peer closes the connection");
        rest
    });
    block_on(async {
        let env = RealEnv::new();
        let conn = env.connect(&Address::Unix(path), TIMEOUT).await.expect("it listens");
        let mut link = Link::new(conn);
        let caller = Caller { key: Some(secret().server_key()), ..hello(Role::Server(ServerId(0)), 3) };
        let result = greet(&mut link, caller, |_| Ok(())).await;
        assert!(matches!(result, Err(GreetingError::Unproven)), "{result:?}");
    });
    assert_eq!(impostor.join().expect("no panic"), Vec::<u8>::new(), "nothing after the greeting");
    // A real server proves itself there, and both continue without tags.
    block_on(async {
        let env = RealEnv::new();
        let config = config(folder.path(), vec![Address::Unix(folder.path().join("real"))], false);
        make_folders(&config);
        let server = start(&env, config).await;
        let role = Role::Server(ServerId(1));
        let mut peer =
            Client::connect_as(&env, &server.addresses()[0], hello(role, 7), secret().server_key()).await;
        assert_eq!(peer.link.security(), Security::None);
        assert_eq!(peer.write(datafile(0, 5, 0), 0, SOUND).await, DataReply::Written);
        server.stop().await;
    });
}

#[test]
fn servers_reveal_nothing_to_an_impostor_on_a_stopped_servers_port() {
    for pose in POSES {
        let folder = tempfile::tempdir().expect("a folder");
        let impostor = impostor(pose);
        let env = RealEnv::new();
        block_on(async {
            let tcp = || Address::Tcp("127.0.0.1".into(), 0);
            // Server b runs normally, to check that the metadata server does contact data servers.
            let mut honest = config(&folder.path().join("b"), vec![tcp()], false);
            (honest.server, honest.name) = (ServerId(2), "c".into());
            make_folders(&honest);
            let honest = start(&env, honest).await;
            let entry = |name: &str, address: &Address| ServerEntry {
                name: name.into(),
                addresses: vec![address.clone()],
            };
            let map = ClusterMap {
                domains: Vec::new(),
                name: CLUSTER.into(),
                version: 0,
                servers: vec![
                    ServerEntry { name: "alpha".into(), addresses: vec![] },
                    entry("b", &impostor.address),
                    entry("c", &honest.addresses()[0]),
                ],
                targets: [(1, 1), (0, 2)]
                    .map(|(server, target)| TargetEntry {
                        id: weft_core::TargetId(target),
                        server: ServerId(if server == 1 { 1 } else { 2 }),
                        class: "ssd".into(),
                    })
                    .to_vec(),
                metadata: ServerId(0),
            };
            let mut own = config(&folder.path().join("a"), vec![tcp()], false);
            own.targets.clear();
            own.join = Join::Format;
            let path = folder.path().join("metadata");
            std::fs::create_dir_all(&path).expect("a folder");
            let mut metadata = metadata::Config::new(path, map);
            metadata.options.poll_interval = Some(Nanos::from_ms(20));
            own.metadata = Some(metadata);
            let asked = Arc::new(Mutex::new(Vec::new()));
            let lines = Arc::clone(&asked);
            own.hooks.log = Arc::new(move |line| lines.lock().expect("no panic").push(line.to_owned()));
            let server = Server::start(env, own).await.expect("the metadata server starts");
            let until = Instant::now() + Duration::from_secs(20);
            // It queries the honest server, and contacts the impostor repeatedly.
            while impostor.received.lock().expect("no panic").len() < 3 || honest.connections() == 0 {
                assert!(Instant::now() < until, "the metadata server does not contact the data servers");
                std::thread::yield_now();
            }
            server.stop().await;
            honest.stop().await;
            for message in impostor.received.lock().expect("no panic").iter() {
                let header = Header::decode(message[..HEADER_LEN].try_into().expect("48")).expect("a header");
                assert_eq!(header.family, Family::Hello, "an impostor received more than a greeting");
                assert!(
                    header.decode_body::<Hello>(&message[HEADER_LEN..]).is_ok(),
                    "one message and no more"
                );
            }
        });
    }
}
