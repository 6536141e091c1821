//! A server as the client sees it: its name and addresses, its connections, and whether it answers.
//!
//! | state | a request | left by |
//! | --- | --- | --- |
//! | well | connects, with attempts for `retry_for` | a failed connection, or a time-out |
//! | dead until a time, because a request gave up | fails at once, unless the outage is shorter than its `retry_for`: then it goes on trying | that time |
//! | dead, time over | makes one attempt, a *probe* | a greeting (well), or a failure (dead for twice as long) |
//! | refused until a time: the key is not accepted | fails at once with the reason | that time; then an attempt with twice the pause, up to a minute |
//! | silent | an open connection must be greeted again | a greeting |

use crate::error::{Error, LocalFailure, Refused, Unreachable};
use crate::lease::LeaseChannel;
use crate::log;
use crate::options::ClientOptions;
use crate::pool::Pool;
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weft_core::units::format_duration;
use weft_core::{Nanos, ServerId};
use weft_env::mutants::{Mutant, is_seeded};
use weft_env::{Address, Env};
use weft_wire::cluster::{ClusterMap, ServerEntry};
use weft_wire::{Errno, WireError};

/// An ongoing outage is logged again after this time, by a request that gave up and by one that waits.
const OUTAGE_LOG_INTERVAL: Nanos = Nanos::from_s(60);
const WAIT_LOG_INTERVAL: Nanos = Nanos::from_s(600);
/// An outage that requests wait for is logged after this time.
const WAIT_LOGGED_AFTER: Nanos = Nanos::from_s(5);
/// Longest time between two probes of a dead server.
const DEAD_FOR_MAX: Nanos = Nanos::from_s(10);
/// Shortest and longest time between two greetings with a key that was refused.
const REFUSED_FOR: (Nanos, Nanos) = (Nanos::from_s(1), Nanos::from_s(60));
/// First number of data connections. They must not collide with the numbers of metadata connections, by which the
/// metadata server stores its replies.
const DATA_CONNECTION_NUMBER_FIRST: u32 = 1 << 16;
/// Number of the connection that leases belong to.
pub(crate) const LEASE_CONNECTION_NUMBER: u32 = 1 << 17;
/// Number of connections that only ask where the metadata server is.
pub(crate) const SEEK_CONNECTION_NUMBER: u32 = LEASE_CONNECTION_NUMBER + 1;

/// One server of the cluster.
pub(crate) struct Server<E: Env> {
    pub(crate) id: ServerId,
    map: RwLock<Arc<ClusterMap>>,
    /// Connections for data requests.
    pub(crate) connections: Pool<E>,
    /// Connection that leases belong to.
    pub(crate) channel: LeaseChannel<E>,
    /// Whether `outage` is in use. Nothing else is read while the server is well.
    troubled: AtomicBool,
    outage: Mutex<Outage>,
    /// Time for which the requests of programs are repeated, for messages.
    retry_for: Nanos,
    /// Incarnation of the server at the last greeting; 0 before.
    incarnation: AtomicU64,
}

/// Entry of a server in the cluster map.
pub(crate) struct Entry {
    map: Arc<ClusterMap>,
    id: ServerId,
}

impl std::ops::Deref for Entry {
    type Target = ServerEntry;

    fn deref(&self) -> &ServerEntry {
        self.map.server(self.id)
    }
}

#[derive(Default)]
struct Outage {
    /// Time of the first failure.
    since: Option<Nanos>,
    /// Time until which requests fail at once.
    dead_until: Option<Nanos>,
    /// Length of that period.
    dead_for: Nanos,
    /// When the outage was last logged.
    logged_at: Option<Nanos>,
    /// Whether a request timed out, with no greeting since.
    silent: bool,
    /// Set while the server refuses the key of this process.
    refused: Option<RefusedKey>,
    cause: String,
}

/// Refusal of a key, which the next attempts will meet, too.
struct RefusedKey {
    error: WireError,
    /// Time until which requests fail without an attempt.
    until: Nanos,
    /// Length of that period.
    pause: Nanos,
}

impl Outage {
    /// Returns whether to log the outage now, and remembers that it is logged.
    fn should_log(&mut self, now: Nanos, interval: Nanos) -> bool {
        let must_log = self.logged_at.is_none_or(|at| now.saturating_sub(at) >= interval);
        if must_log {
            self.logged_at = Some(now);
        }
        must_log
    }
}

/// Number of attempts to connect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ConnectPolicy {
    /// The server was well a moment ago: repeat for a while.
    Retry,
    /// The server was found dead: try once.
    ProbeOnce,
}

impl<E: Env> Server<E> {
    pub(crate) fn new(env: &E, id: ServerId, map: Arc<ClusterMap>, options: &ClientOptions) -> Self {
        Self {
            id,
            map: RwLock::new(map),
            connections: Pool::new(env, DATA_CONNECTION_NUMBER_FIRST, options.connections_max),
            channel: LeaseChannel::new(env),
            troubled: AtomicBool::new(false),
            outage: Mutex::default(),
            retry_for: options.retry_for,
            incarnation: AtomicU64::new(0),
        }
    }

    /// Name and addresses of the server.
    pub(crate) fn entry(&self) -> Entry {
        Entry { map: Arc::clone(&self.map.read()), id: self.id }
    }

    /// Takes a new cluster map. A server that has moved is tried there at once.
    pub(crate) fn take_map(&self, map: &Arc<ClusterMap>) {
        let before = std::mem::replace(&mut *self.map.write(), Arc::clone(map));
        if before.server(self.id) == map.server(self.id) {
            return;
        }
        self.connections.disconnect_idle();
        let mut outage = self.outage.lock();
        self.troubled.store(false, Ordering::Relaxed);
        *outage = Outage::default();
    }

    /// Returns whether the server may run on this machine: only then can memory and descriptors be shared.
    pub(crate) fn may_be_local(&self) -> bool {
        self.entry().addresses.iter().any(|address| matches!(address, Address::Unix(_)))
    }

    /// Returns whether the last contact with the server failed.
    pub(crate) fn is_troubled(&self) -> bool {
        self.troubled.load(Ordering::Relaxed)
    }

    /// Returns whether the server has refused the key of this process.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_troubled() && self.outage.lock().refused.is_some()
    }

    /// Lets the next request try another key.
    pub(crate) fn forget_refusal(&self) {
        self.outage.lock().refused = None;
    }

    /// Decides whether a request that tries for `retry_for` connects, and how often it tries.
    pub(crate) fn admit(&self, now: Nanos, retry_for: Nanos) -> Result<ConnectPolicy, Error> {
        if !self.troubled.load(Ordering::Relaxed) {
            return Ok(ConnectPolicy::Retry);
        }
        let mut outage = self.outage.lock();
        if let Some(refused) = outage.refused.as_ref().filter(|refused| now < refused.until) {
            return Err(self.refused(refused.error.clone()));
        }
        let lasts = outage.since.map_or(Nanos::ZERO, |since| now.saturating_sub(since));
        match outage.dead_until {
            None => Ok(ConnectPolicy::Retry),
            Some(_) if lasts < retry_for => Ok(ConnectPolicy::Retry),
            Some(until) if now < until => {
                let cause = outage.cause.clone();
                drop(outage);
                Err(self.unreachable(cause))
            }
            // Every task probes once by itself. If it failed because another task's probe is in progress, it would
            // fail without a cause when that probe succeeds.
            Some(_) => {
                if is_seeded(Mutant::OneProbe) {
                    outage.dead_until = Some(now.saturating_add(outage.dead_for));
                }
                Ok(ConnectPolicy::ProbeOnce)
            }
        }
    }

    /// Returns whether a request that tries for `retry_for` goes on trying.
    pub(crate) fn is_awaited(&self, now: Nanos, retry_for: Nanos) -> bool {
        self.outage.lock().since.is_some_and(|since| now.saturating_sub(since) < retry_for)
    }

    /// Returns whether the server has not answered for `time`.
    pub(crate) fn is_down_for(&self, now: Nanos, time: Nanos) -> bool {
        self.outage.lock().since.is_some_and(|since| now.saturating_sub(since) >= time)
    }

    /// Returns whether a request timed out, so that the server's connections are not reliable.
    pub(crate) fn is_silent(&self) -> bool {
        self.troubled.load(Ordering::Relaxed) && self.outage.lock().silent
    }

    /// Marks the server as silent after a request timed out that will not be repeated, logs that, and returns the error.
    /// `waited` is the length of the time-out.
    pub(crate) fn mark_silent(
        &self,
        (now, waited): (Nanos, Nanos),
        cause: String,
        dead_for: Nanos,
        retry_for: Nanos,
    ) -> Error {
        self.outage.lock().since.get_or_insert(now.saturating_sub(waited));
        let error = self.mark_dead(now, cause, dead_for, retry_for);
        self.outage.lock().silent = true;
        error
    }

    /// Marks the server as silent after a request timed out that will be repeated.
    pub(crate) fn mark_silent_but_awaited(&self, (now, waited): (Nanos, Nanos), cause: String) {
        {
            let mut outage = self.outage.lock();
            outage.since.get_or_insert(now.saturating_sub(waited));
            outage.silent = true;
        }
        self.note_outage(now, cause);
    }

    /// Notes that the server does not answer. Logs that when the outage has lasted for a while and requests wait for its end.
    pub(crate) fn note_outage(&self, now: Nanos, cause: String) {
        let must_log = {
            let mut outage = self.outage.lock();
            let lasts = now.saturating_sub(*outage.since.get_or_insert(now));
            outage.cause.clone_from(&cause);
            self.troubled.store(true, Ordering::Relaxed);
            let is_long = lasts >= WAIT_LOGGED_AFTER && self.retry_for > WAIT_LOGGED_AFTER;
            is_long && outage.should_log(now, WAIT_LOG_INTERVAL)
        };
        if must_log {
            let most = format_duration(self.retry_for);
            let error = self.unreachable(cause);
            log::note(&format!("{error}{}, each for up to {most}", log::WAITING));
        }
    }

    /// Marks the server as dead because a request that tried for `retry_for` gives up, logs that, and returns the error.
    pub(crate) fn mark_dead(&self, now: Nanos, cause: String, dead_for: Nanos, retry_for: Nanos) -> Error {
        let is_brief = retry_for < self.retry_for;
        let must_log = {
            let mut outage = self.outage.lock();
            outage.since.get_or_insert(now);
            // Waiting requests have logged the outage, but not that they give up.
            let is_news = outage.dead_until.is_none() && self.retry_for > WAIT_LOGGED_AFTER;
            // Other tasks may notice the same failure at the same time; that must not lengthen the outage.
            if outage.dead_until.is_none_or(|until| until <= now) {
                let longer = Nanos((outage.dead_for.0 * 2).min(DEAD_FOR_MAX.0));
                outage.dead_for = dead_for.max(longer);
                outage.dead_until = Some(now.saturating_add(outage.dead_for));
            }
            outage.cause.clone_from(&cause);
            self.troubled.store(true, Ordering::Relaxed);
            !is_brief && (outage.should_log(now, OUTAGE_LOG_INTERVAL) || is_news)
        };
        let error = self.unreachable(cause.clone());
        if must_log {
            log::note(&error.to_string());
        }
        if is_brief {
            self.note_outage(now, cause);
        }
        error
    }

    /// Marks the server as dead because nobody expects its data any more, logs that, and returns the error.
    pub(crate) fn mark_given_up(&self, now: Nanos, dead_for: Nanos) -> Error {
        const WHY: &str = "its disks were given up, and others have not taken their places";
        {
            let mut outage = self.outage.lock();
            // As if every request had waited long enough.
            outage.since = Some(now.saturating_sub(self.retry_for));
            if outage.cause != WHY {
                outage.logged_at = None;
            }
        }
        self.mark_dead(now, WHY.to_owned(), dead_for, self.retry_for)
    }

    /// Returns the error of a refused greeting. If it is the key that was refused, logs each reason once, and leaves the
    /// server alone for a while.
    pub(crate) fn mark_refused(&self, now: Nanos, error: WireError) -> Error {
        if error.errno != Errno::EACCES {
            return self.refused(error);
        }
        let is_new = {
            let mut outage = self.outage.lock();
            let known = outage.refused.take();
            let is_new = known.as_ref().is_none_or(|known| known.error != error);
            let (shortest, longest) = REFUSED_FOR;
            let pause = known.map_or(shortest, |known| Nanos(known.pause.0 * 2).min(longest));
            outage.refused =
                Some(RefusedKey { error: error.clone(), until: now.saturating_add(pause), pause });
            if is_new {
                outage.logged_at = Some(now);
            }
            self.troubled.store(true, Ordering::Relaxed);
            is_new
        };
        let error = self.refused(error);
        if is_new {
            log::note(&error.to_string());
        }
        error
    }

    /// Logs, not too often, a local reason that prevents a connection, and returns the error. The next request tries
    /// again at once, because the server may be well.
    pub(crate) fn mark_local_failure(&self, now: Nanos, errno: Errno) -> Error {
        let error = Error::LocalFailure(Box::new(LocalFailure {
            server: self.entry().name.clone(),
            address: self.addresses(),
            errno,
            path: Vec::new(),
        }));
        let must_log = {
            let mut outage = self.outage.lock();
            self.troubled.store(true, Ordering::Relaxed);
            outage.should_log(now, OUTAGE_LOG_INTERVAL)
        };
        if must_log {
            log::note(&error.to_string());
        }
        error
    }

    /// Marks the server as well.
    pub(crate) fn mark_alive(&self) {
        if !self.troubled.load(Ordering::Relaxed) {
            return;
        }
        let was_logged = {
            let mut outage = self.outage.lock();
            self.troubled.store(false, Ordering::Relaxed);
            std::mem::take(&mut *outage).logged_at.is_some()
        };
        if was_logged {
            log::note(&format!("server {} {}", self.entry().name, log::OVER));
        }
    }

    /// Returns whether the server has restarted since it had `incarnation`.
    pub(crate) fn has_restarted_since(&self, incarnation: u64) -> bool {
        self.incarnation.load(Ordering::Relaxed) != incarnation
    }

    /// Takes over the incarnation of a new connection, and returns whether it is another than before. A restarted
    /// server may have another configuration.
    pub(crate) fn note_greeting(&self, incarnation: u64) -> bool {
        let has_restarted = self.incarnation.swap(incarnation, Ordering::Relaxed) != incarnation;
        if has_restarted {
            self.channel.allow_requests();
        }
        has_restarted
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
