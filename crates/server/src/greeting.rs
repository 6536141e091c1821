//! Who is at the other end: the first messages on a connection, before any request is served.

use crate::connections::Entry;
use crate::server::Shared;
use std::io;
use weft_env::{Conn, Env, Peer};
use weft_wire::hello::{
    BODY_LEN_MAX, GROUPS_MAX, Hello, HelloReply, Identity, Means, Names, Opening, Role, Security, SessionId,
    Welcome,
};
use weft_wire::secure::{Handshake, Sealing};
use weft_wire::{Errno, Family, Header, Incoming, Kind, Link, SessionOwner, WireError};

/// Who the peer has shown to be.
#[derive(Debug)]
pub(crate) struct Greeted {
    pub session: SessionId,
    pub slot: u32,
    pub identity: Identity,
    /// Process id, 0 for one on another node.
    pub pid: u32,
    /// Has proven the cluster key.
    pub is_server: bool,
    /// On this node, so that descriptors can be passed.
    pub local: bool,
}

impl Greeted {
    /// The owner of the session.
    pub fn owner(&self) -> SessionOwner {
        SessionOwner { uid: self.identity.uid, is_server: self.is_server }
    }
}

/// Why there was no greeting.
pub(crate) enum NotGreeted {
    /// The peer broke off or spoke no Weft.
    Gone,
    /// The peer was told why not.
    Refused(WireError),
}

impl From<io::Error> for NotGreeted {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

/// Greets and authenticates the peer, or tells it why not.
pub(crate) async fn greet<E: Env>(
    shared: &Shared<E>,
    link: &mut Link<E::Conn>,
    entry: &Entry,
) -> Result<Greeted, NotGreeted> {
    link.limit_bodies(BODY_LEN_MAX);
    let first = next(link).await?;
    let hello: Hello = link.decode(&first).map_err(io::Error::from)?;
    let mut request = first.header.request;
    let admitted = admit(shared, link, hello, &mut request).await?;
    let counted = |(greeted, opening): (Greeted, Opening)| {
        shared.count_connection(entry, &greeted)?;
        has_room(shared, entry)?;
        Ok((greeted, opening))
    };
    match admitted.and_then(counted) {
        Ok((greeted, opening)) => {
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
                security,
            };
            say(link, request, &HelloReply::Welcome(welcome)).await?;
            link.agree(security);
            link.set_checksums(checksums);
            link.limit_bodies(u32::MAX);
            Ok(greeted)
        }
        Err(refusal) => {
            say(link, request, &HelloReply::Refused(refusal.clone())).await?;
            Err(NotGreeted::Refused(refusal))
        }
    }
}

/// Finds out who the peer is and what it wants of the connection. `request` is the number of its latest message.
async fn admit<E: Env>(
    shared: &Shared<E>,
    link: &mut Link<E::Conn>,
    hello: Hello,
    request: &mut u64,
) -> io::Result<Result<(Greeted, Opening), WireError>> {
    let config = &shared.config;
    let Hello { names, means } = hello;
    if let Err(error) = check_names(shared, &names) {
        return Ok(Err(error));
    }
    let peer = link.conn().peer().clone();
    let identity = match (&names.role, &peer) {
        (Role::Server(_) | Role::Client(_), Peer::Local { uid, gid, groups, .. }) => {
            Identity { uid: *uid, gid: *gid, groups: groups.clone() }
        }
        // The cluster key makes anybody, and what needs an identity here is done as root.
        (Role::Server(_), Peer::Remote { .. }) => Identity { uid: 0, gid: 0, groups: Vec::new() },
        (Role::Client(identity), Peer::Remote { .. }) => {
            if identity.groups.len() > GROUPS_MAX || !identity.groups.is_sorted() {
                let detail = format!("an identity has at most {GROUPS_MAX} supplementary groups, sorted");
                return Ok(Err(WireError::new(Errno::EINVAL, detail)));
            }
            identity.clone()
        }
    };
    let has_credentials = matches!((&names.role, &peer), (Role::Client(_), Peer::Local { .. }));
    let opening = match means {
        Means::Credentials(opening) if has_credentials => opening,
        Means::Key(first) if !has_credentials => {
            let mut random = [0; 32];
            shared.env.random(&mut random);
            let key = key_of(shared, &names.role);
            let Ok((keys, second)) = Handshake::answer(&key, &names, &first, random) else {
                let detail = match &names.role {
                    Role::Server(_) => "the peer does not hold this cluster's key".to_owned(),
                    Role::Client(_) => format!(
                        "the key is not that of user {} with group {} in cluster {:?}: get one by `weft key`",
                        identity.uid, identity.gid, config.cluster
                    ),
                };
                return Ok(Err(WireError::new(Errno::EACCES, detail)));
            };
            say(link, *request, &HelloReply::Challenge(second)).await?;
            link.seal(Sealing::new(keys, true), shared.env.hollow(0).is_some());
            // Only who holds the key can have made the next message.
            let answer = next(link).await?;
            *request = answer.header.request;
            link.decode(&answer)?
        }
        Means::Credentials(_) => {
            let detail = format!("server {:?} wants a key here: get one by `weft key`", config.name);
            return Ok(Err(WireError::new(Errno::EACCES, detail)));
        }
        Means::Key(_) => {
            let detail = "on a Unix socket the credentials of a client's process are its key".to_owned();
            return Ok(Err(WireError::new(Errno::EPROTO, detail)));
        }
    };
    let (local, pid) = match peer {
        Peer::Local { pid, .. } => (true, pid),
        Peer::Remote { .. } => (false, 0),
    };
    let is_server = matches!(names.role, Role::Server(_));
    let Opening { session, slot, .. } = opening;
    Ok(Ok((Greeted { session, slot, identity, pid, is_server, local }, opening)))
}

/// Counts a connection whose peer has authenticated itself, if there is room for it.
fn has_room<E: Env>(shared: &Shared<E>, entry: &Entry) -> Result<(), WireError> {
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

/// Whether the peer means this server and its cluster.
fn check_names<E: Env>(shared: &Shared<E>, names: &Names) -> Result<(), WireError> {
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
             file; a program that ran while the cluster was formatted anew has to start again",
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
    Ok(())
}

/// The key that a peer of `role` has to hold.
fn key_of<E: Env>(shared: &Shared<E>, role: &Role) -> [u8; 32] {
    match role {
        Role::Server(_) => shared.config.secret.server_key(),
        Role::Client(identity) => shared.config.secret.identity_key(identity),
    }
}

async fn next<C: Conn>(link: &mut Link<C>) -> io::Result<Incoming> {
    let incoming = link.recv().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let Header { family, kind, payload_len, .. } = incoming.header;
    if family != Family::Hello || kind != Kind::Request || payload_len != 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "something else than a greeting"));
    }
    Ok(incoming)
}

async fn say<C: Conn>(link: &mut Link<C>, request: u64, reply: &HelloReply) -> io::Result<()> {
    link.send(Kind::Reply, Family::Hello, request, reply, &[]).await
}

fn clip(text: &str) -> String {
    text.chars().take(64).collect()
}
