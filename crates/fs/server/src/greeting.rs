//! Authentication of a peer: the first messages of a connection, before any request is served.

use crate::connections::Entry;
use crate::server::Shared;
use std::io;
use weft_env::{Conn, Env, Peer};
use weft_wire::hello::{
    AuthMethod, BODY_LEN_MAX, Hello, HelloReply, Identity, JobNumber, Names, Opening, Process, Role,
    Security, SessionId, Welcome,
};
use weft_wire::keys::{KeyClaims, KeyId, Principal};
use weft_wire::secure::{Handshake, Sealing};
use weft_wire::{
    Errno, Family, Header, Incoming, Kind, Level, Link, SessionOwner, WireError, is_other_level,
};

/// Identity that the peer has proven.
#[derive(Debug)]
pub(crate) struct Greeted {
    /// Feature level of the connection.
    pub level: Level,
    pub session: SessionId,
    pub slot: u32,
    /// Identity of the peer, and the users it may act for.
    pub principal: Principal,
    /// Key that the peer has proven, if one was needed.
    pub key: Option<KeyClaims>,
    /// Process id, 0 for a peer on another host.
    pub pid: u32,
    /// Whether the peer is on this host, so that descriptors can be passed.
    pub local: bool,
    /// Job of the peer.
    pub job: Option<JobNumber>,
    /// Description of the process by the peer itself; on this host with the process id that the kernel names.
    pub process: Process,
    /// Network address of the peer; empty for a process of this host.
    pub address: String,
}

impl Greeted {
    /// Owner of the session.
    pub fn owner(&self) -> SessionOwner {
        SessionOwner { uid: self.principal.identity.uid, is_server: self.principal.is_server }
    }
}

/// Reason why a greeting failed.
pub(crate) enum GreetingError {
    /// The peer left, or does not use the protocol.
    Gone,
    /// The peer was refused, and got the reason.
    Refused {
        /// Reason.
        why: WireError,
        /// Key that the peer named, proven or not.
        key: Option<KeyId>,
        /// User that the peer named, proven or not.
        uid: Option<u32>,
    },
}

impl From<io::Error> for GreetingError {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

/// Authenticates the peer, or sends it the reason of its refusal.
pub(crate) async fn greet<E: Env>(
    shared: &Shared<E>,
    link: &mut Link<E::Conn>,
    entry: &Entry,
) -> Result<Greeted, GreetingError> {
    link.limit_bodies(BODY_LEN_MAX);
    let first = receive_hello(link).await?;
    let hello: Hello = link.decode(&first).map_err(io::Error::from)?;
    let mut request = first.header.request;
    let key = hello.names.key.as_ref().map(|key| key.id);
    let uid = match &hello.names.role {
        Role::Client(identity) => Some(identity.uid),
        Role::Server(_) => None,
    };
    let admitted = admit(shared, link, hello, &mut request).await?;
    let counted = |(greeted, opening): (Greeted, Opening)| {
        shared.count_connection(entry, &greeted)?;
        admit_connection(shared, entry)?;
        Ok((greeted, opening))
    };
    match admitted.and_then(counted) {
        Ok((greeted, opening)) => {
            let level = greeted.level;
            let security = match greeted.local {
                true => Security::None,
                false => opening.security.max(shared.config.security).max(Security::Mac),
            };
            let checksums = opening.checksums && security == Security::None;
            let welcome = Welcome {
                server: shared.config.server,
                incarnation: shared.incarnation,
                boot: shared.boot,
                idle_limit: weft_core::Nanos(0),
                checksums,
                cluster_id: shared.cluster_id,
                level,
                security,
            };
            send_reply(link, request, &HelloReply::Welcome(welcome)).await?;
            link.agree(security);
            link.set_level(level);
            link.set_checksums(checksums);
            link.limit_bodies(u32::MAX);
            Ok(greeted)
        }
        Err(refusal) => {
            send_reply(link, request, &HelloReply::Refused(refusal.clone())).await?;
            Err(GreetingError::Refused { why: refusal, key, uid })
        }
    }
}

/// Determines the identity of the peer and the properties of the connection. `request` is the number of its latest
/// message.
async fn admit<E: Env>(
    shared: &Shared<E>,
    link: &mut Link<E::Conn>,
    hello: Hello,
    request: &mut u64,
) -> io::Result<Result<(Greeted, Opening), WireError>> {
    let config = &shared.config;
    let Hello { names, method } = hello;
    let level = match check_names(shared, &names) {
        Ok(level) => level,
        Err(error) => return Ok(Err(error)),
    };
    let peer = link.conn().peer().clone();
    let own = match &peer {
        Peer::Local { uid, gid, groups, .. } => {
            let identity = Identity { uid: *uid, gid: *gid, groups: groups.clone() };
            let is_administrator = identity.is_root() || *uid == config.hooks.uid;
            Some(Principal::local(identity, is_administrator))
        }
        Peer::Remote { .. } => None,
    };
    let has_credentials = matches!((&names.role, &peer), (Role::Client(_), Peer::Local { .. }));
    let (opening, principal, key) = match (method, own) {
        (AuthMethod::Credentials(opening), Some(own)) if has_credentials => (opening, own, None),
        (AuthMethod::Key(first), own) if !has_credentials => {
            let Some(claims) = names.key.clone() else {
                let detail = format!(
                    "server {:?} requires the claims of a key: create one with `weft key`",
                    config.name
                );
                return Ok(Err(WireError::new(Errno::EACCES, detail)));
            };
            let (key, proven) = match config.secret.admit(&claims, &names.role, shared.env.wall()) {
                Ok(admitted) => admitted,
                Err(refusal) => return Ok(Err(refusal)),
            };
            let mut random = [0; 32];
            shared.env.random(&mut random);
            let Ok((keys, second)) = Handshake::answer(&key, &names, &first, random) else {
                let detail = format!(
                    "the peer did not prove key {} of {} in cluster {:?}: compare the key files of both sides",
                    claims.id, claims.holder, config.cluster
                );
                return Ok(Err(WireError::new(Errno::EACCES, detail)));
            };
            send_reply(link, *request, &HelloReply::Challenge(second)).await?;
            link.seal(Sealing::new(keys, true), shared.env.hollow(0).is_some());
            // Only a peer that holds the key can have made the next message.
            let answer = receive_hello(link).await?;
            *request = answer.header.request;
            let principal = match own {
                None => proven,
                Some(own) => Principal { is_server: proven.is_server, key: proven.key, ..own },
            };
            (link.decode(&answer)?, principal, Some(claims))
        }
        (AuthMethod::Credentials(_), _) => {
            let detail = format!("server {:?} requires a key here: create one with `weft key`", config.name);
            return Ok(Err(WireError::new(Errno::EACCES, detail)));
        }
        (AuthMethod::Key(_), _) => {
            let detail = "on a Unix socket the credentials of a client's process are its key".to_owned();
            return Ok(Err(WireError::new(Errno::EPROTO, detail)));
        }
    };
    let (local, pid, address) = match peer {
        Peer::Local { pid, .. } => (true, pid, String::new()),
        Peer::Remote { address } => (false, 0, address),
    };
    let Opening { session, slot, job, ref process, .. } = opening;
    let mut process = process.clone();
    if local {
        process.pid = pid;
    }
    Ok(Ok((Greeted { level, session, slot, principal, key, pid, local, job, process, address }, opening)))
}

/// Counts a connection as authenticated, within the limit.
fn admit_connection<E: Env>(shared: &Shared<E>, entry: &Entry) -> Result<(), WireError> {
    if shared.connections.admit(entry) {
        return Ok(());
    }
    let limit = shared.config.limits.connections_max;
    let detail = format!(
        "server {:?} has all of its {limit} connections in use: raise connections_max, or open fewer",
        shared.config.name
    );
    Err(WireError::new(Errno::EAGAIN, detail))
}

/// Checks that the peer means this server and its cluster, and returns the latest feature level that both know.
fn check_names<E: Env>(shared: &Shared<E>, names: &Names) -> Result<Level, WireError> {
    let config = &shared.config;
    if names.cluster != config.cluster {
        let detail = format!(
            "server {:?} belongs to cluster {:?}, not to {:?}: correct the address or the cluster file",
            config.name,
            config.cluster,
            clip(&names.cluster)
        );
        return Err(WireError::new(Errno::EINVAL, detail));
    }
    if names.cluster_id.is_other_than(shared.cluster_id) {
        let detail = format!(
            "server {:?} belongs to cluster {}, not to {}, which has the same name: correct the address or the cluster \
             file; restart programs that ran while the cluster was formatted again",
            config.name, shared.cluster_id, names.cluster_id
        );
        return Err(WireError::new(Errno::EINVAL, detail));
    }
    if names.server != config.name {
        let detail = format!(
            "server {:?} answers at an address of {:?}: check the addresses in the cluster file",
            config.name,
            clip(&names.server)
        );
        return Err(WireError::new(Errno::EPROTO, detail));
    }
    config.levels.common(names.levels).ok_or_else(|| {
        let detail = format!(
            "server {:?} knows feature {}, this program {}: install the same Weft on both, or versions that follow each other",
            config.name, config.levels, names.levels
        );
        WireError::new(Errno::EPROTO, detail)
    })
}

async fn receive_hello<C: Conn>(link: &mut Link<C>) -> io::Result<Incoming> {
    let received = link.recv().await;
    if let Err(error) = &received
        && is_other_level(error)
    {
        let why = WireError::new(Errno::EPROTO, error.to_string());
        let _ = send_reply(link, 1, &HelloReply::Refused(why)).await;
    }
    let incoming = received?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let Header { family, kind, payload_len, .. } = incoming.header;
    if family != Family::Hello || kind != Kind::Request || payload_len != 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the first message is not a greeting"));
    }
    Ok(incoming)
}

async fn send_reply<C: Conn>(link: &mut Link<C>, request: u64, reply: &HelloReply) -> io::Result<()> {
    link.send(Kind::Reply, Family::Hello, request, reply, &[]).await
}

fn clip(text: &str) -> String {
    text.chars().take(64).collect()
}
