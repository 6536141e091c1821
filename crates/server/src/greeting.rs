//! Who is at the other end: the first messages on a connection, before any request is served.

use crate::server::Shared;
use std::io;
use weft_env::{Conn, Env, Peer};
use weft_wire::hello::{
    BODY_LEN_MAX, Challenge, GROUPS_MAX, Hello, HelloReply, Identity, Proof, Role, SessionId, Side, Welcome,
    proof_holds, prove,
};
use weft_wire::{Errno, Family, Header, Incoming, Kind, Link, WireError};

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
    over_limit: bool,
) -> Result<Greeted, NotGreeted> {
    link.limit_bodies(BODY_LEN_MAX);
    let first = next(link).await?;
    let hello: Hello = link.decode(&first).map_err(io::Error::from)?;
    let request = first.header.request;
    match admit(shared, link, &hello, &first.header, over_limit).await? {
        Ok(greeted) => {
            let checksums = hello.checksums || (!greeted.local && shared.config.checksums_remote);
            let welcome = Welcome {
                server: shared.config.server,
                incarnation: shared.incarnation,
                boot: shared.boot,
                idle_limit: weft_core::Nanos(0),
                checksums,
                cluster_id: shared.cluster_id,
            };
            say(link, request, &HelloReply::Welcome(welcome)).await?;
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

async fn admit<E: Env>(
    shared: &Shared<E>,
    link: &mut Link<E::Conn>,
    hello: &Hello,
    header: &Header,
    over_limit: bool,
) -> io::Result<Result<Greeted, WireError>> {
    let config = &shared.config;
    if over_limit {
        let limit = config.limits.connections_max;
        let detail = format!(
            "server {:?} has all of its {limit} connections in use: raise connections_max, or open fewer",
            config.name
        );
        return Ok(Err(WireError::new(Errno::EAGAIN, detail)));
    }
    if hello.cluster != config.cluster {
        let detail = format!(
            "server {:?} belongs to cluster {:?}, not to {:?}: correct the address or the cluster file",
            config.name,
            config.cluster,
            clip(&hello.cluster)
        );
        return Ok(Err(WireError::new(Errno::EINVAL, detail)));
    }
    if hello.cluster_id.is_other_than(shared.cluster_id) {
        let detail = format!(
            "server {:?} belongs to cluster {}, not to {}, which has the same name: correct the address or the cluster \
             file; a program that ran while the cluster was formatted anew has to start again",
            config.name, shared.cluster_id, hello.cluster_id
        );
        return Ok(Err(WireError::new(Errno::EINVAL, detail)));
    }
    let peer = link.conn().peer().clone();
    let (key, identity) = match (&hello.role, &peer) {
        (Role::Server(_), Peer::Local { uid, gid, groups, .. }) => {
            let identity = Identity { uid: *uid, gid: *gid, groups: groups.clone() };
            (Some(config.secret.server_key()), identity)
        }
        (Role::Server(_), Peer::Remote { .. }) => {
            // The cluster key makes anybody, and what needs an identity here is done as root.
            (Some(config.secret.server_key()), Identity { uid: 0, gid: 0, groups: Vec::new() })
        }
        (Role::Client(_), Peer::Local { uid, gid, groups, .. }) => {
            (None, Identity { uid: *uid, gid: *gid, groups: groups.clone() })
        }
        (Role::Client(identity), Peer::Remote { .. }) => {
            if identity.groups.len() > GROUPS_MAX || !identity.groups.is_sorted() {
                let detail = format!("an identity has at most {GROUPS_MAX} supplementary groups, sorted");
                return Ok(Err(WireError::new(Errno::EINVAL, detail)));
            }
            (Some(config.secret.identity_key(identity)), identity.clone())
        }
    };
    if let Some(key) = key
        && !challenge(shared, link, hello, header.request, &key).await?
    {
        let detail = match hello.role {
            Role::Server(_) => "the peer does not hold this cluster's key".to_owned(),
            Role::Client(_) => format!(
                "the key is not that of user {} with group {} in cluster {:?}: get one by `weft key`",
                identity.uid, identity.gid, config.cluster
            ),
        };
        return Ok(Err(WireError::new(Errno::EACCES, detail)));
    }
    let (local, pid) = match peer {
        Peer::Local { pid, .. } => (true, pid),
        Peer::Remote { .. } => (false, 0),
    };
    let is_server = matches!(hello.role, Role::Server(_));
    Ok(Ok(Greeted { session: hello.session, slot: hello.slot, identity, pid, is_server, local }))
}

/// Proves to the peer that this server holds `key` and has the peer prove the same.
async fn challenge<E: Env>(
    shared: &Shared<E>,
    link: &mut Link<E::Conn>,
    hello: &Hello,
    request: u64,
    key: &[u8; 32],
) -> io::Result<bool> {
    let mut server_nonce = [0; 32];
    shared.env.random(&mut server_nonce);
    let proof = prove(key, Side::Server, hello, &server_nonce);
    say(link, request, &HelloReply::Challenge(Challenge { server_nonce, proof })).await?;
    let answer = next(link).await?;
    let Proof { proof } = link.decode(&answer)?;
    Ok(proof_holds(key, Side::Client, hello, &server_nonce, &proof))
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
