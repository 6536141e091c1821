//! Connecting and greeting.

use crate::allowance::Allowance;
use crate::core::Core;
use crate::error::Error;
use crate::options::Checksums;
use crate::pool::Line;
use crate::server::{Patience, Server};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, IoSlice};
use weft_core::Nanos;
use weft_env::{Address, Conn, Env, Peer};
use weft_wire::greeting::{Caller, NotWelcome};
use weft_wire::hello::{Names, Opening};
use weft_wire::{Errno, Family, Incoming, Kind, Link, Malformed, WireError};

/// First pause between attempts to connect; it doubles up to the last.
const PAUSE_FIRST: Nanos = Nanos::from_ms(5);
const PAUSE_LAST: Nanos = Nanos::from_ms(250);

/// A greeted connection.
pub(crate) struct Wire<E: Env> {
    pub(crate) link: Link<E::Conn>,
    /// Changes with every start of the server.
    pub(crate) incarnation: u64,
    /// Changes with every boot of its machine.
    pub(crate) boot: u64,
    /// Whether client and server are on one node, so that memory and descriptors can be shared.
    pub(crate) local: bool,
    /// Replies not received yet.
    pub(crate) awaited: u32,
    /// The payload area for writes, once attached.
    pub(crate) area: Area<E::Shared>,
    next_request: u64,
    last_answered: u64,
}

/// Shared memory for the payloads of writes.
pub(crate) enum Area<S> {
    /// Not asked for yet.
    Unknown,
    /// The server has none for us.
    None,
    /// This many bytes.
    Attached(S, u32),
}

impl<E: Env> Wire<E> {
    /// Sends a request.
    pub(crate) async fn ask<M: Serialize>(
        &mut self,
        family: Family,
        message: &M,
        payload: &[IoSlice<'_>],
    ) -> io::Result<()> {
        self.next_request += 1;
        self.link.send(Kind::Request, family, self.next_request, message, payload).await?;
        self.awaited += 1;
        Ok(())
    }

    /// Sends what wants no answer.
    pub(crate) async fn tell<M: Serialize>(&mut self, family: Family, message: &M) -> io::Result<()> {
        self.next_request += 1;
        // Replies come in the order of requests, and this one gets none: its number must not be expected.
        if self.awaited == 0 {
            self.last_answered = self.next_request;
        }
        debug_assert_eq!(self.awaited, 0, "one-way messages go between exchanges");
        self.link.send(Kind::OneWay, family, self.next_request, message, &[]).await
    }

    /// The next reply, which answers the oldest request; its payload is still to be received.
    pub(crate) async fn answer(&mut self) -> io::Result<Incoming> {
        debug_assert!(self.awaited > 0, "a reply is awaited");
        let incoming = self.link.recv().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        self.last_answered += 1;
        if incoming.header.kind != Kind::Reply || incoming.header.request != self.last_answered {
            return Err(Malformed::Field("request").into());
        }
        self.awaited -= 1;
        Ok(incoming)
    }

    /// A request and its reply without payloads.
    pub(crate) async fn exchange<M: Serialize, R: DeserializeOwned>(
        &mut self,
        family: Family,
        message: &M,
    ) -> io::Result<R> {
        self.ask(family, message, &[]).await?;
        let incoming = self.answer().await?;
        let reply = self.link.decode(&incoming)?;
        self.link.skip_payload(u64::from(incoming.header.payload_len)).await?;
        Ok(reply)
    }
}

/// Has `line` connected, with the patience that the server's past deserves, in the time that is left.
///
/// # Errors
/// `Unreachable`; `Hindered`; `Refused` when the greeting was (wrong cluster or key).
pub(crate) async fn connected<'l, E: Env>(
    core: &Core<E>,
    server: &Server<E>,
    line: &'l mut Line<E>,
    allowance: Allowance,
) -> Result<&'l mut Wire<E>, Error> {
    if line.wire.is_none() {
        line.wire = Some(Box::new(connect(core, server, line.number, allowance).await?));
    }
    Ok(line.wire.as_mut().expect("connected above"))
}

/// Has `line` connected to a data server. After a silence of the server, which other requests on other connections have
/// met, it must answer a greeting first: each connection would wait for the whole time-out else.
pub(crate) async fn connected_to_data<'l, E: Env>(
    core: &Core<E>,
    server: &Server<E>,
    line: &'l mut Line<E>,
    allowance: Allowance,
) -> Result<&'l mut Wire<E>, Error> {
    if line.wire.is_some() && server.is_silent() {
        line.wire = None;
        let limit = core.options.connect_timeout.min(allowance.left(&core.env));
        match attempt(core, server, line.number, limit).await {
            Ok(wire) => {
                server.found_alive();
                core.counters.connections.one();
                line.wire = Some(Box::new(wire));
            }
            Err(failed) => {
                server.lines.disconnect_idle();
                return Err(match failed {
                    Failed::Refused(error) => server.refused(error),
                    Failed::Own(errno) => server.found_hindered(core.env.now(), errno),
                    Failed::Io(error) => {
                        server.found_dead(core.env.now(), describe(&error), core.options.dead_for)
                    }
                });
            }
        }
    }
    connected(core, server, line, allowance).await
}

/// Makes a connection, again and again within the client's patience and the time that is left.
pub(crate) async fn connect<E: Env>(
    core: &Core<E>,
    server: &Server<E>,
    number: u32,
    allowance: Allowance,
) -> Result<Wire<E>, Error> {
    let start = core.env.now();
    let mut pause = PAUSE_FIRST;
    loop {
        let patience = server.admit(core.env.now())?;
        let limit = core.options.connect_timeout.min(allowance.left(&core.env));
        let cause = match attempt(core, server, number, limit).await {
            Ok(wire) => {
                server.found_alive();
                core.counters.connections.one();
                return Ok(wire);
            }
            Err(Failed::Refused(error)) => return Err(server.refused(error)),
            Err(Failed::Own(errno)) => return Err(server.found_hindered(core.env.now(), errno)),
            Err(Failed::Io(error)) => describe(&error),
        };
        let now = core.env.now();
        let is_over = now.saturating_sub(start) >= core.options.retry_for || allowance.is_over(&core.env);
        if patience == Patience::Probe || is_over {
            return Err(server.found_dead(now, cause, core.options.dead_for));
        }
        core.env.sleep(pause).await;
        pause = Nanos((pause.0 * 2).min(PAUSE_LAST.0));
    }
}

/// What to tell a person of an error of a connection.
pub(crate) fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => "no answer within the time-out".into(),
        io::ErrorKind::NotFound => "nothing listens there".into(),
        io::ErrorKind::UnexpectedEof => "it closed the connection".into(),
        _ => error.to_string(),
    }
}

/// Why one attempt failed.
enum Failed {
    /// It may work later.
    Io(io::Error),
    /// It will not.
    Refused(WireError),
    /// It will when this process is allowed to, or has given something back.
    Own(Errno),
}

impl Failed {
    /// Why `address` could not be connected to.
    fn connecting(address: &Address, error: io::Error) -> Self {
        match (error.raw_os_error().map(Errno), address) {
            (Some(errno @ (Errno::EMFILE | Errno::ENFILE)), _) => Self::Own(errno),
            (Some(errno @ (Errno::EACCES | Errno::EPERM)), Address::Unix(_)) => Self::Own(errno),
            _ => Self::Io(error),
        }
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// One attempt to connect and greet, at the first of the server's addresses that takes the connection, within `limit`.
async fn attempt<E: Env>(
    core: &Core<E>,
    server: &Server<E>,
    number: u32,
    limit: Nanos,
) -> Result<Wire<E>, Failed> {
    let allowance = Allowance::begin(&core.env, limit);
    let mut last = Failed::Io(io::ErrorKind::AddrNotAvailable.into());
    for address in &server.entry().addresses {
        match core.env.connect(address, allowance.left(&core.env)).await {
            Ok(conn) => return greet(core, server, number, (address, conn), allowance).await,
            Err(error) => last = Failed::connecting(address, error),
        }
    }
    Err(last)
}

async fn greet<E: Env>(
    core: &Core<E>,
    server: &Server<E>,
    number: u32,
    (address, conn): (&Address, E::Conn),
    allowance: Allowance,
) -> Result<Wire<E>, Failed> {
    let local = matches!(conn.peer(), Peer::Local { .. });
    let checksums = match core.options.checksums {
        Checksums::Auto => !local,
        Checksums::On => true,
        Checksums::Off => false,
    };
    let mut random = [0; 32];
    core.env.random(&mut random);
    let key = core.credentials.greeting_key();
    let caller = Caller {
        names: Names {
            cluster: core.map.name.clone(),
            cluster_id: core.cluster_id.get().copied().unwrap_or_default(),
            server: server.entry().name.clone(),
            role: core.credentials.role.clone(),
            key: key.as_ref().map(|key| key.claims.clone()),
        },
        opening: Opening { session: core.session, slot: number, checksums, security: core.options.security },
        key: key.map(|key| key.secret),
        random,
        lengths_only: core.env.hollow(0).is_some(),
    };
    let mut link = Link::new(conn);
    let greeted =
        weft_wire::greeting::greet(&mut link, caller, |link| allowance.limit(&core.env, link)).await;
    let welcome = match greeted {
        Ok(welcome) => welcome,
        Err(NotWelcome::Io(error)) => return Err(Failed::Io(error)),
        Err(NotWelcome::NoKey) => {
            let text = format!(
                "server {} at {address} wants a key: give the cluster file's key_file or a user's key from 'weft key'",
                server.entry().name
            );
            return Err(Failed::Refused(WireError::new(Errno::EACCES, text)));
        }
        Err(NotWelcome::Unproven) => {
            let text = format!(
                "{address} did not prove to be server {} of cluster {}: compare the key files of both sides, and the \
                 addresses in the cluster file",
                server.entry().name,
                core.map.name
            );
            return Err(Failed::Refused(WireError::new(Errno::EACCES, text)));
        }
        // It has too much to do or is about to end: worth another attempt.
        Err(NotWelcome::Refused(error)) if matches!(error.errno, Errno::EAGAIN | Errno::EBUSY) => {
            return Err(Failed::Io(io::Error::other(error)));
        }
        Err(NotWelcome::Refused(error)) => return Err(Failed::Refused(error)),
    };
    if welcome.server != server.id {
        let text = format!(
            "{address} is answered by {} instead of {}: check the addresses in the cluster file",
            welcome.server,
            server.entry().name
        );
        return Err(Failed::Refused(WireError::new(Errno::EPROTO, text)));
    }
    // Only the metadata server decides which cluster this is; the others have to agree.
    let known = match server.id == core.map.metadata {
        true => *core.cluster_id.get_or_init(|| welcome.cluster_id),
        false => core.cluster_id.get().copied().unwrap_or_default(),
    };
    if welcome.cluster_id.is_other_than(known) {
        let text = format!(
            "server {} at {address} belongs to cluster {}, not to {known}, which has the same name: correct the address or \
             the cluster file; a program that ran while the cluster was formatted anew has to start again",
            server.entry().name,
            welcome.cluster_id
        );
        return Err(Failed::Refused(WireError::new(Errno::EINVAL, text)));
    }
    server.greeted(welcome.incarnation);
    link.conn().set_timeout(Some(core.options.request_timeout))?;
    Ok(Wire {
        link,
        incarnation: welcome.incarnation,
        boot: welcome.boot,
        local,
        awaited: 0,
        area: Area::Unknown,
        next_request: 2,
        last_answered: 2,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_with_this_process_is_told_from_what_lies_with_the_server() {
        let unix = Address::Unix("/run/s0".into());
        let tcp = Address::Tcp("node".into(), 4000);
        let own = |address: &Address, errno: Errno| match Failed::connecting(
            address,
            io::Error::from_raw_os_error(errno.0),
        ) {
            Failed::Own(found) => found == errno,
            _ => false,
        };
        assert!(own(&unix, Errno::EMFILE) && own(&tcp, Errno::EMFILE) && own(&tcp, Errno::ENFILE));
        assert!(own(&unix, Errno::EACCES));
        // On the network it may be a filter on the way.
        assert!(!own(&tcp, Errno::EACCES));
        assert!(!own(&unix, Errno::ECONNREFUSED) && !own(&unix, Errno::ENOENT));
    }
}
