//! Connecting to a server, and the greeting on a new connection.

use crate::call::Effect;
use crate::connection::{Area, Connection, describe};
use crate::core::{ASK_INTERVAL, Core};
use crate::deadline::{BRIEF, Deadline};
use crate::error::Error;
use crate::interruption;
use crate::options::Checksums;
use crate::pool::PooledConnection;
use crate::server::{ConnectPolicy, Entry, SEEK_CONNECTION_NUMBER, Server};
use std::io;
use std::pin::Pin;
use weft_core::Nanos;
use weft_env::{Address, Conn, Env, Peer};
use weft_wire::cluster::ServerEntry;
use weft_wire::greeting::{Caller, GreetingError};
use weft_wire::hello::{Names, Opening, Process};
use weft_wire::meta::{MetaReply, MetaRequest};
use weft_wire::status::{MetadataEntry, StatusReply, StatusRequest};
use weft_wire::{Errno, Family, Link, WireError, is_other_level};

/// First and longest pause between attempts to connect; the pause doubles. In a long outage it becomes longer.
const PAUSE_MIN: Nanos = Nanos::from_ms(5);
const PAUSE_MAX: Nanos = Nanos::from_ms(250);
const PAUSE_MAX_LATER: Nanos = Nanos::from_s(1);
/// Number of servers that are asked at once for the addresses of the metadata server.
const ASKED_MAX: usize = 3;

/// Connects `pooled` within the time that is left, with one attempt or several depending on the server's recent
/// failures.
///
/// # Errors
/// `Unreachable`; `LocalFailure`; `Refused` when the greeting was refused (wrong cluster or key).
pub(crate) async fn ensure_connected<'l, E: Env>(
    core: &Core<E>,
    server: &Server<E>,
    pooled: &'l mut PooledConnection<E>,
    deadline: Deadline,
) -> Result<&'l mut Connection<E>, Error> {
    if pooled.connection.is_none() {
        pooled.connection = Some(Box::new(connect(core, server, pooled.number, deadline).await?));
    }
    Ok(pooled.connection.as_mut().expect("connected above"))
}

/// Connects `pooled` to a data server.
///
/// After another request timed out on this server, the server must answer a greeting first. Otherwise each open
/// connection would wait for the whole time-out.
pub(crate) async fn ensure_data_connection<'l, E: Env>(
    core: &Core<E>,
    server: &Server<E>,
    pooled: &'l mut PooledConnection<E>,
    deadline: Deadline,
) -> Result<&'l mut Connection<E>, Error> {
    if pooled.connection.is_some() && server.is_silent() {
        pooled.connection = None;
        let limit = core.options.connect_timeout.min(deadline.remaining(&core.env));
        match attempt(core, server, pooled.number, limit).await {
            Ok(connection) => {
                server.mark_alive();
                core.counters.connections.one();
                pooled.connection = Some(Box::new(connection));
            }
            Err(ConnectError::Io(error)) if server.is_awaited(core.env.now(), deadline.retry_for) => {
                server.connections.disconnect_idle();
                server.note_outage(core.env.now(), describe(&error));
            }
            Err(failed) => {
                server.connections.disconnect_idle();
                return Err(match failed {
                    ConnectError::Refused(error) => server.mark_refused(core.env.now(), error),
                    ConnectError::Local(errno) => server.mark_local_failure(core.env.now(), errno),
                    ConnectError::Io(error) => server.mark_dead(
                        core.env.now(),
                        describe(&error),
                        core.options.dead_for,
                        deadline.retry_for,
                    ),
                });
            }
        }
    }
    ensure_connected(core, server, pooled, deadline).await
}

/// Makes a connection, with repeated attempts within the configured time and the time that is left.
pub(crate) async fn connect<E: Env>(
    core: &Core<E>,
    server: &Server<E>,
    number: u32,
    deadline: Deadline,
) -> Result<Connection<E>, Error> {
    let start = core.env.now();
    let mut pause = PAUSE_MIN;
    let mut wait = None;
    loop {
        if server.entry().is_blank() {
            return Err(server.unreachable("it is not part of the cluster".to_owned()));
        }
        if server.is_refused() && core.has_other_key() {
            server.forget_refusal();
        }
        let policy = server.admit(core.env.now(), deadline.retry_for)?;
        let limit = core.options.connect_timeout.min(deadline.remaining(&core.env));
        let (key, tried) = (core.greeting_key(), server.entry());
        let cause = match attempt(core, server, number, limit).await {
            Ok(connection) => {
                server.mark_alive();
                core.counters.connections.one();
                return Ok(connection);
            }
            // Another server may have its former address.
            Err(ConnectError::Refused(error)) if error.errno == Errno::EPROTO => {
                match has_moved(core, server, &tried, true, deadline).await {
                    true => continue,
                    false => return Err(server.mark_refused(core.env.now(), error)),
                }
            }
            Err(ConnectError::Refused(error))
                if error.errno == Errno::EACCES && core.renew_key(key.as_ref()) =>
            {
                continue;
            }
            Err(ConnectError::Refused(error)) => return Err(server.mark_refused(core.env.now(), error)),
            Err(ConnectError::Local(errno)) => return Err(server.mark_local_failure(core.env.now(), errno)),
            Err(ConnectError::Io(error)) => describe(&error),
        };
        let waited = core.env.now().saturating_sub(start);
        let is_over = waited >= deadline.retry_for || deadline.has_passed(&core.env);
        let is_last = is_over || policy == ConnectPolicy::ProbeOnce;
        if has_moved(core, server, &tried, is_last, deadline).await {
            continue;
        }
        if core.has_given_up(server.id) {
            return Err(server.mark_given_up(core.env.now(), core.options.dead_for));
        }
        let now = core.env.now();
        if is_last {
            return Err(server.mark_dead(now, cause, core.options.dead_for, deadline.retry_for));
        }
        server.note_outage(now, cause);
        if wait.get_or_insert_with(interruption::begin_wait).is_interrupted() {
            return Err(Error::Interrupted);
        }
        core.env.sleep(pause).await;
        pause = Nanos(pause.0 * 2).min(if waited < BRIEF { PAUSE_MAX } else { PAUSE_MAX_LATER });
    }
}

/// Asks whether a server that did not answer at its addresses in `tried` has others now: the metadata server for data servers,
/// and data servers for the metadata server. They are asked when it has not answered for a while, or if this attempt is the
/// last one.
async fn has_moved<E: Env>(
    core: &Core<E>,
    server: &Server<E>,
    tried: &Entry,
    is_last: bool,
    deadline: Deadline,
) -> bool {
    if server.id != core.map().metadata {
        if core.should_ask_for_map() {
            ask_for_map(core).await;
        }
    } else if core.should_seek_metadata(is_last) {
        let most = core.options.connect_timeout.min(ASK_INTERVAL).min(deadline.remaining(&core.env));
        seek_metadata(core, &tried.name, Deadline::begin(&core.env, most)).await;
    }
    **tried != *server.entry()
}

/// Asks some data servers, each time others, for the addresses of the metadata server `name`. If none of them has news, looks into
/// the cluster file, which may have been corrected.
///
/// Each server gets one attempt over a connection of its own: requests that wait for the metadata server may have all pooled
/// ones.
async fn seek_metadata<E: Env>(core: &Core<E>, name: &str, deadline: Deadline) {
    let own = core.map().metadata;
    let mut others: Vec<_> =
        core.servers().filter(|server| server.id != own && !server.is_refused()).collect();
    // Processes that lose the server in the same second ask different servers.
    let turn = u128::from(core.env.now().0 / ASK_INTERVAL.0).wrapping_add(core.session_id.0);
    let count = others.len().max(1);
    others.rotate_left((turn % count as u128) as usize);
    others.sort_by_key(|server| server.is_troubled());
    for server in others.into_iter().take(ASKED_MAX) {
        if deadline.has_passed(&core.env) {
            break;
        }
        let limit = deadline.remaining(&core.env);
        let Ok(mut connection) = attempt(core, server, SEEK_CONNECTION_NUMBER, limit).await else { continue };
        if deadline.limit(&core.env, &mut connection.link, core.options.request_timeout).is_err() {
            continue;
        }
        let request = StatusRequest::MetadataServer;
        if let Ok(StatusReply::MetadataServer(Some(told))) =
            connection.exchange(Family::Status, &request).await
            && told.entry.name == name
            && core.move_metadata(told)
        {
            return;
        }
    }
    if let Some(addresses) = core.options.metadata_search.as_ref().and_then(|search| (search.0)()) {
        let version = core.map().version;
        let entry = ServerEntry { name: name.to_owned(), addresses };
        core.move_metadata(MetadataEntry { version: version.saturating_add(1), entry });
    }
}

/// Fetches the map, and which targets wait for other disks. Its type is written out because this calls what connects, which calls this.
fn ask_for_map<E: Env>(core: &Core<E>) -> Pin<Box<dyn Future<Output = ()> + '_>> {
    Box::pin(async move {
        // The reply carries the version, so that the map is taken. Without a reply, the former map remains. The metadata
        // server may be away, too.
        let soon = Deadline::begin(&core.env, core.options.connect_timeout);
        let _ = core.call_until(soon, None, Effect::Repeatable, MetaRequest::ClusterMap).await;
        let targets = core.call_until(soon, None, Effect::Repeatable, MetaRequest::Targets).await;
        if let Ok(MetaReply::Targets { targets, .. }) = targets {
            core.note_records(&targets);
        }
    })
}

/// Reason why one attempt to connect failed.
enum ConnectError {
    /// May succeed later.
    Io(io::Error),
    /// Will not succeed.
    Refused(WireError),
    /// Will succeed when this process gets the permission, or has released a descriptor.
    Local(Errno),
}

impl ConnectError {
    /// Classifies the error of connecting to `address`.
    fn connecting(address: &Address, error: io::Error) -> Self {
        match (error.raw_os_error().map(Errno), address) {
            (Some(errno @ (Errno::EMFILE | Errno::ENFILE)), _) => Self::Local(errno),
            (Some(errno @ (Errno::EACCES | Errno::EPERM)), Address::Unix(_)) => Self::Local(errno),
            _ => Self::Io(error),
        }
    }
}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Makes one attempt to connect and greet within `limit`, at the first address of the server that accepts a
/// connection.
async fn attempt<E: Env>(
    core: &Core<E>,
    server: &Server<E>,
    number: u32,
    limit: Nanos,
) -> Result<Connection<E>, ConnectError> {
    let deadline = Deadline::begin(&core.env, limit);
    let mut last = ConnectError::Io(io::ErrorKind::AddrNotAvailable.into());
    for address in &server.entry().addresses {
        match core.env.connect(address, deadline.remaining(&core.env)).await {
            Ok(conn) => return greet(core, server, number, (address, conn), deadline).await,
            Err(error) => last = ConnectError::connecting(address, error),
        }
    }
    Err(last)
}

async fn greet<E: Env>(
    core: &Core<E>,
    server: &Server<E>,
    number: u32,
    (address, conn): (&Address, E::Conn),
    deadline: Deadline,
) -> Result<Connection<E>, ConnectError> {
    let local = matches!(conn.peer(), Peer::Local { .. });
    let checksums = match core.options.checksums {
        Checksums::Auto => !local,
        Checksums::On => true,
        Checksums::Off => false,
    };
    let map = core.map();
    let entry = server.entry();
    let mut random = [0; 32];
    core.env.random(&mut random);
    let key = core.greeting_key();
    let caller = Caller {
        names: Names {
            levels: core.options.levels,
            cluster: map.name.clone(),
            cluster_id: core.cluster_id.get().copied().unwrap_or_default(),
            server: entry.name.clone(),
            role: core.credentials.role.clone(),
            key: key.as_ref().map(|key| key.claims.clone()),
        },
        opening: Opening {
            session: core.session_id,
            slot: number,
            checksums,
            security: core.options.security,
            job: core.options.job,
            process: Process {
                host: core.options.host.clone(),
                pid: core.options.pid,
                program: core.options.program.clone(),
            },
        },
        key: key.map(|key| key.secret),
        random,
        lengths_only: core.env.hollow(0).is_some(),
    };
    let mut link = Link::new(conn);
    let greeted = weft_wire::greeting::greet(&mut link, caller, |link| {
        deadline.limit(&core.env, link, core.options.connect_timeout)
    })
    .await;
    let welcome = match greeted {
        Ok(welcome) => welcome,
        Err(GreetingError::Io(error)) if is_other_level(&error) => {
            let text = format!(
                "server {} at {address}: {error}, and restart the servers ('weft stop' stops those of an embedded cluster)",
                entry.name
            );
            return Err(ConnectError::Refused(WireError::new(Errno::EPROTO, text)));
        }
        Err(GreetingError::Io(error)) => return Err(ConnectError::Io(error)),
        Err(GreetingError::NoKey) => {
            let why = core.credentials.no_key.as_deref().unwrap_or("none was given");
            let name = &entry.name;
            let text = format!("server {name} at {address} requires a key, and this process has none: {why}");
            return Err(ConnectError::Refused(WireError::new(Errno::EACCES, text)));
        }
        Err(GreetingError::Unproven) => {
            let text = format!(
                "{address} did not prove to be server {} of cluster {}: compare the key files of both sides, and the \
                 addresses in the cluster file",
                entry.name, map.name
            );
            return Err(ConnectError::Refused(WireError::new(Errno::EACCES, text)));
        }
        // The server is overloaded or is shutting down: worth another attempt.
        Err(GreetingError::Refused(error)) if matches!(error.errno, Errno::EAGAIN | Errno::EBUSY) => {
            return Err(ConnectError::Io(io::Error::other(error)));
        }
        Err(GreetingError::Refused(error)) => return Err(ConnectError::Refused(error)),
    };
    // The numbers of a client that has no map yet follow from its cluster file, which may be older than the cluster.
    if welcome.server != server.id && map.version != 0 {
        let text = format!(
            "{address} is answered by {} instead of {}: check the addresses in the cluster file",
            welcome.server, entry.name
        );
        return Err(ConnectError::Refused(WireError::new(Errno::EPROTO, text)));
    }
    // The metadata server decides which cluster this is; the others have to agree.
    let known = match server.id == map.metadata {
        true => *core.cluster_id.get_or_init(|| welcome.cluster_id),
        false => core.cluster_id.get().copied().unwrap_or_default(),
    };
    if welcome.cluster_id.is_other_than(known) {
        let text = format!(
            "server {} at {address} belongs to cluster {}, not to {known}, which has the same name: correct the \
             address or the cluster file; restart programs that were running while the cluster was formatted again",
            entry.name, welcome.cluster_id
        );
        return Err(ConnectError::Refused(WireError::new(Errno::EINVAL, text)));
    }
    if server.note_greeting(welcome.incarnation) {
        core.note_restart();
    }
    link.conn().set_timeout(Some(core.options.request_timeout))?;
    Ok(Connection {
        link,
        incarnation: welcome.incarnation,
        boot: welcome.boot,
        local,
        replies_pending: 0,
        area: Area::Unknown,
        next_request: 2,
        last_answered: 2,
        map_version: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_with_this_process_is_told_from_what_lies_with_the_server() {
        let unix = Address::Unix("/run/s0".into());
        let tcp = Address::Tcp("node".into(), 4000);
        let own = |address: &Address, errno: Errno| match ConnectError::connecting(
            address,
            io::Error::from_raw_os_error(errno.0),
        ) {
            ConnectError::Local(found) => found == errno,
            _ => false,
        };
        assert!(own(&unix, Errno::EMFILE) && own(&tcp, Errno::EMFILE) && own(&tcp, Errno::ENFILE));
        assert!(own(&unix, Errno::EACCES));
        // On a network, a filter on the way may have caused it.
        assert!(!own(&tcp, Errno::EACCES));
        assert!(!own(&unix, Errno::ECONNREFUSED) && !own(&unix, Errno::ENOENT));
    }
}
