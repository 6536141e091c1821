//! What a client knows of one server: its name and addresses, its connections, and whether it answers.

use crate::error::{Error, Hindered, Refused, Unreachable};
use crate::lease::Channel;
use crate::log;
use crate::options::ClientOptions;
use crate::pool::Pool;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weft_core::{Nanos, ServerId};
use weft_env::plants::{Plant, planted};
use weft_env::{Address, Env};
use weft_wire::cluster::{ClusterMap, ServerEntry};
use weft_wire::{Errno, WireError};

/// An outage is said again when it goes on for this long.
const SAY_AGAIN_AFTER: Nanos = Nanos::from_s(60);
/// A server that stays dead is tried at least this often.
const DEAD_FOR_MAX: Nanos = Nanos::from_s(10);
/// Numbers of data connections start here, so that they never collide with those of the metadata service, which
/// remembers replies by number.
const DATA_LINES: u32 = 1 << 16;
/// Number of the connection that leases hang on.
pub(crate) const LEASE_LINE: u32 = 1 << 17;

/// One server.
pub(crate) struct Server<E: Env> {
    pub(crate) id: ServerId,
    map: Arc<ClusterMap>,
    /// Connections for data.
    pub(crate) lines: Pool<E>,
    /// The connection that leases hang on.
    pub(crate) channel: Channel<E>,
    /// Whether `outage` holds anything: the only thing that is looked at when all is well.
    troubled: AtomicBool,
    outage: Mutex<Outage>,
    /// Of the server that was greeted last; 0 before.
    incarnation: AtomicU64,
}

#[derive(Default)]
struct Outage {
    /// Until when requests fail at once.
    dead_until: Option<Nanos>,
    /// How long the last such time was.
    dead_for: Nanos,
    said_at: Option<Nanos>,
    /// It did not answer a request in time, and nobody has greeted it since.
    silent: bool,
    cause: String,
}

impl Outage {
    /// Whether it has not been said lately; from now on it has.
    fn is_to_be_said(&mut self, now: Nanos) -> bool {
        let say = self.said_at.is_none_or(|at| now.saturating_sub(at) >= SAY_AGAIN_AFTER);
        if say {
            self.said_at = Some(now);
        }
        say
    }
}

/// How patiently a connection is to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Patience {
    /// The server was well a moment ago: go on trying for a while.
    Retry,
    /// It was found dead: try once.
    Probe,
}

impl<E: Env> Server<E> {
    pub(crate) fn new(env: &E, id: ServerId, map: Arc<ClusterMap>, options: &ClientOptions) -> Self {
        Self {
            id,
            map,
            lines: Pool::new(env, DATA_LINES, options.connections_max),
            channel: Channel::new(env),
            troubled: AtomicBool::new(false),
            outage: Mutex::default(),
            incarnation: AtomicU64::new(0),
        }
    }

    /// Its name and addresses.
    pub(crate) fn entry(&self) -> &ServerEntry {
        &self.map.servers[self.id.0 as usize]
    }

    /// Whether it may be on this node: only then can memory and descriptors be shared.
    pub(crate) fn may_be_local(&self) -> bool {
        self.entry().addresses.iter().any(|address| matches!(address, Address::Unix(_)))
    }

    /// Whether the last that was heard of the server was trouble.
    pub(crate) fn is_troubled(&self) -> bool {
        self.troubled.load(Ordering::Relaxed)
    }

    /// Whether to try at all.
    pub(crate) fn admit(&self, now: Nanos) -> Result<Patience, Error> {
        if !self.troubled.load(Ordering::Relaxed) {
            return Ok(Patience::Retry);
        }
        let mut outage = self.outage.lock();
        match outage.dead_until {
            None => Ok(Patience::Retry),
            Some(until) if now < until => {
                let cause = outage.cause.clone();
                drop(outage);
                Err(self.unreachable(cause))
            }
            // Nobody knows whether it is well again: each tries once, because to fail for a probe of somebody else
            // that succeeds a moment later would be an error without a cause.
            Some(_) => {
                if planted(Plant::OneProbe) {
                    outage.dead_until = Some(now.saturating_add(outage.dead_for));
                }
                Ok(Patience::Probe)
            }
        }
    }

    /// Whether it left a request without an answer, so that its connections are not to be relied on.
    pub(crate) fn is_silent(&self) -> bool {
        self.troubled.load(Ordering::Relaxed) && self.outage.lock().silent
    }

    /// Remembers that the server left a request without an answer for the whole time-out, says so, and makes the error.
    pub(crate) fn found_silent(&self, now: Nanos, cause: String, dead_for: Nanos) -> Error {
        let error = self.found_dead(now, cause, dead_for);
        self.outage.lock().silent = true;
        error
    }

    /// Remembers that the server does not answer, says so, and makes the error.
    pub(crate) fn found_dead(&self, now: Nanos, cause: String, dead_for: Nanos) -> Error {
        let say = {
            let mut outage = self.outage.lock();
            // Others may have found the same at the same time: that makes the outage no longer.
            if outage.dead_until.is_none_or(|until| until <= now) {
                let longer = Nanos((outage.dead_for.0 * 2).min(DEAD_FOR_MAX.0));
                outage.dead_for = dead_for.max(longer);
                outage.dead_until = Some(now.saturating_add(outage.dead_for));
            }
            outage.cause.clone_from(&cause);
            self.troubled.store(true, Ordering::Relaxed);
            outage.is_to_be_said(now)
        };
        let error = self.unreachable(cause);
        if say {
            log::note(&error.to_string());
        }
        error
    }

    /// Says, not too often, what keeps this process from the server, and makes the error. The next request tries again
    /// at once: the server may be well.
    pub(crate) fn found_hindered(&self, now: Nanos, errno: Errno) -> Error {
        let error = Error::Hindered(Box::new(Hindered {
            server: self.entry().name.clone(),
            address: self.addresses(),
            errno,
            path: Vec::new(),
        }));
        let say = {
            let mut outage = self.outage.lock();
            self.troubled.store(true, Ordering::Relaxed);
            outage.is_to_be_said(now)
        };
        if say {
            log::note(&error.to_string());
        }
        error
    }

    /// Remembers that the server answers.
    pub(crate) fn found_alive(&self) {
        if !self.troubled.load(Ordering::Relaxed) {
            return;
        }
        let said = {
            let mut outage = self.outage.lock();
            self.troubled.store(false, Ordering::Relaxed);
            std::mem::take(&mut *outage).said_at.is_some()
        };
        if said {
            log::note(&format!("server {} answers again", self.entry().name));
        }
    }

    /// Whether `incarnation` is that of a server that has been started again since.
    pub(crate) fn is_gone(&self, incarnation: u64) -> bool {
        self.incarnation.load(Ordering::Relaxed) != incarnation
    }

    /// A connection was made. A server that was started again may have another configuration.
    pub(crate) fn greeted(&self, incarnation: u64) {
        if self.incarnation.swap(incarnation, Ordering::Relaxed) != incarnation {
            self.channel.ask_again();
        }
    }

    fn addresses(&self) -> String {
        self.entry().addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
    }

    pub(crate) fn unreachable(&self, cause: String) -> Error {
        Error::Unreachable(Box::new(Unreachable {
            server: self.entry().name.clone(),
            address: self.addresses(),
            cause,
            path: Vec::new(),
        }))
    }

    pub(crate) fn refused(&self, error: WireError) -> Error {
        Error::Refused(Box::new(Refused { server: self.entry().name.clone(), path: Vec::new(), error }))
    }
}
