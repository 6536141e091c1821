//! Replies to requests of the status family.

use crate::audit::{Audited, EventKind};
use crate::connection::malformed;
use crate::data::DataConnection;
use crate::latency::Operation;
use crate::server::Shared;
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use weft_core::ByteLen;
use weft_env::Env;
use weft_wire::activity::Activity;
use weft_wire::data::PAYLOAD_LEN_MAX;
use weft_wire::status::{KeyStatus, ServerStatus, StatusReply, StatusRequest, USERS_MAX, UserStatus};
use weft_wire::{Errno, Incoming, Link, WireError};

/// Kind of reply.
pub(crate) enum StatusAnswer {
    /// A reply without payload.
    Plain(StatusReply),
    /// `Echo` with this number of zeros.
    Echo(u32),
}

/// Zeros to send repeatedly, so that an echo takes no memory.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// Slices with `len` zeros in total.
pub(crate) fn zeros(len: u32) -> Vec<IoSlice<'static>> {
    let mut left = len as usize;
    let mut pieces = Vec::with_capacity(left.div_ceil(ZEROS.len()));
    while left > 0 {
        let piece = left.min(ZEROS.len());
        pieces.push(IoSlice::new(&ZEROS[..piece]));
        left -= piece;
    }
    pieces
}

/// Answers a request of the status family.
pub(crate) async fn reply<E: Env>(
    shared: &Shared<E>,
    link: &mut Link<E::Conn>,
    incoming: &Incoming,
    connection: &DataConnection<E>,
) -> io::Result<StatusAnswer> {
    let request = link.decode(incoming);
    link.skip_payload(incoming.header.payload_len.into()).await?;
    Ok(StatusAnswer::Plain(match request {
        Ok(StatusRequest::Echo { reply_len }) if reply_len <= PAYLOAD_LEN_MAX => {
            return Ok(StatusAnswer::Echo(reply_len));
        }
        Ok(StatusRequest::Echo { .. }) => {
            StatusReply::Failed(WireError::new(Errno::EINVAL, "the payload exceeds the maximum length"))
        }
        Ok(StatusRequest::Status) => StatusReply::Status(Box::new(status(shared, connection).await)),
        Ok(StatusRequest::Activity) => StatusReply::Activity(Box::new(activity(shared, connection).await)),
        Ok(StatusRequest::Shutdown) => {
            let refused = (!connection.is_administrator()).then(|| {
                WireError::new(
                    Errno::EPERM,
                    "only administrators may end the server: root and the user who runs it on its host, and holders of \
                     an administrator's key",
                )
            });
            if let Some(origin) = &connection.origin {
                let what = Audited::new(EventKind::Action, "server.stop", shared.config.name.clone());
                origin.record(shared.env.wall(), &what, refused.as_ref());
            }
            match refused {
                Some(refused) => StatusReply::Failed(refused),
                None => {
                    shared.request_stop();
                    StatusReply::ShuttingDown
                }
            }
        }
        Ok(StatusRequest::Revoke(revoked)) if connection.is_server() => {
            if shared.config.secret.revoke(revoked.keys) {
                shared.end_refused_keys();
            }
            StatusReply::Revoked
        }
        Ok(StatusRequest::Revoke(_)) => StatusReply::Failed(WireError::new(
            Errno::EPERM,
            "only servers of the cluster exchange revoked keys: use `weft key revoke`",
        )),
        Ok(StatusRequest::MetadataServer) => StatusReply::MetadataServer(shared.told_metadata_entry()),
        Ok(StatusRequest::SetMetadataServer(told)) if connection.is_server() => {
            shared.set_metadata_server(told);
            StatusReply::MetadataServer(shared.told_metadata_entry())
        }
        Ok(StatusRequest::SetMetadataServer(_)) => {
            const WHY: &str = "only servers of the cluster say where the metadata server is";
            StatusReply::Failed(WireError::new(Errno::EPERM, WHY))
        }
        Err(bad) => StatusReply::Failed(malformed(bad)),
    }))
}

async fn status<E: Env>(shared: &Shared<E>, connection: &DataConnection<E>) -> ServerStatus {
    ServerStatus { users: users(shared, connection), ..of_server(shared).await }
}

/// State of a server without the use by users.
pub(crate) async fn of_server<E: Env>(shared: &Shared<E>) -> ServerStatus {
    let config = &shared.config;
    ServerStatus {
        server: config.server,
        name: config.name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: config.hooks.pid,
        uptime: shared.env.now().saturating_sub(shared.started),
        connections: shared.connections.count() as u32,
        memory: (config.hooks.memory)(),
        cluster_id: shared.cluster_id,
        users: Vec::new(),
        bounds: bounds(shared),
        keys: KeyStatus {
            generations: config.secret.generations(),
            revoked: u32::try_from(config.secret.revoked_count()).unwrap_or(u32::MAX),
        },
        audit: config.hooks.audit.as_ref().map(|sink| sink.status()),
        targets: match &shared.data {
            Some(service) => service.status().await,
            None => Vec::new(),
        },
        metadata: match &shared.metadata {
            Some(service) => Some(service.status().await),
            None => None,
        },
    }
}

/// Activity on the server, as far as the peer may see it.
async fn activity<E: Env>(shared: &Shared<E>, connection: &DataConnection<E>) -> Activity {
    let is_complete = connection.is_administrator();
    let leases = shared.data.as_ref().map(|service| service.lease_counts()).unwrap_or_default();
    let rows = shared.activity.rows((!is_complete).then_some(connection.uid), &leases);
    Activity {
        now: shared.env.now(),
        incarnation: shared.incarnation,
        is_complete,
        operations: Operation::ALL.iter().map(|operation| shared.latencies_of(*operation).into()).collect(),
        targets: shared.data.as_ref().map(|service| service.target_latencies()).unwrap_or_default(),
        clients: rows.clients,
        users: rows.users,
        files: rows.files,
        status: of_server(shared).await,
    }
}

/// Use by each user. With more than [`USERS_MAX`] users, those closest to a limit.
fn users<E: Env>(shared: &Shared<E>, connection: &DataConnection<E>) -> Vec<UserStatus> {
    let mut users: BTreeMap<u32, UserStatus> = BTreeMap::new();
    fn of(users: &mut BTreeMap<u32, UserStatus>, uid: u32) -> &mut UserStatus {
        users.entry(uid).or_insert(UserStatus { uid, ..UserStatus::default() })
    }
    for (uid, connections) in shared.connections.by_user() {
        of(&mut users, uid).connections = connections;
    }
    if let Some(data) = &shared.data {
        for (uid, bytes) in data.memory_by_user() {
            of(&mut users, uid).payload = ByteLen(bytes as u64);
        }
    }
    if let Some(metadata) = &shared.metadata {
        metadata.add_users(&mut users);
    }
    let mut users: Vec<UserStatus> = users.into_values().collect();
    if !connection.is_administrator() {
        users.retain(|user| user.uid == connection.uid);
    }
    if users.len() > USERS_MAX {
        let bounds = bounds(shared);
        let part = |has: u64, most: u64| has.saturating_mul(1 << 10) / most.max(1);
        let largest = |user: &UserStatus| {
            let parts = [
                part(user.connections.into(), bounds.connections.into()),
                part(user.payload.0, bounds.payload.0),
                part(user.opens.into(), bounds.opens.into()),
                part(user.locks.into(), bounds.locks.into()),
                part(user.inodes, bounds.inodes),
            ];
            parts.into_iter().max()
        };
        users.sort_by_key(|user| std::cmp::Reverse(largest(user)));
        users.truncate(USERS_MAX);
        users.sort_by_key(|user| user.uid);
    }
    users
}

/// Limits of one user.
fn bounds<E: Env>(shared: &Shared<E>) -> UserStatus {
    let limits = &shared.config.limits;
    let user = shared.config.metadata.as_ref().map(|metadata| metadata.options.user);
    UserStatus {
        uid: 0,
        connections: limits.connections_of_user(),
        payload: limits.payload_of_user(),
        opens: user.map_or(0, |user| user.opens),
        locks: user.map_or(0, |user| user.locks),
        inodes: user.map_or(0, |user| user.inodes),
    }
}
