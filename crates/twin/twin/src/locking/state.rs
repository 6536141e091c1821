//! State of a locking file system: locks in use, caches, files.

use super::outcome::LockingOutcome;
use super::spec::{Figures, LockingSpec};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use weft_core::Nanos;
use weft_core::ranges::{ByteRange, RangeSet};
use weft_env::Env;
use weft_env::sim::{Control, SimEnv, SimFile, SimNotify};
use weft_models::locks::{LockKind, Locks};

/// Number of a client: a process that uses the file system.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ClientNumber(pub u32);

/// Range with its own locks: a stripe object, or a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Lockable(pub u64);

/// A modelled locking file system. Clones of the `Arc` share it.
pub struct LockingFs {
    pub(super) figures: Figures,
    pub(super) control: Control,
    pub(super) servers: Vec<SimEnv>,
    pub(super) state: Mutex<State>,
}

pub(super) struct State {
    pub locks: Locks,
    names: BTreeMap<String, u32>,
    /// Sizes by file number.
    pub sizes: Vec<u64>,
    pub clients: Vec<Client>,
    /// Objects that are open at their servers, by server and file.
    pub objects: BTreeMap<(u32, u32), SimFile>,
    /// Times until which the servers are busy.
    pub server_free: Vec<u64>,
    metadata_free: u64,
    pub next_use: u64,
    pub next_request: u64,
    pub counters: LockingOutcome,
}

/// A client.
pub(super) struct Client {
    pub env: SimEnv,
    /// Notified when a use begins or ends and when a request ends.
    pub changed: SimNotify,
    pub uses: BTreeMap<u64, Use>,
    pub caches: BTreeMap<Lockable, Cache>,
    /// Requests that are under way.
    pub in_flight: BTreeMap<u64, InFlight>,
    /// Requests under way by server.
    pub running: BTreeMap<u32, usize>,
    /// Bytes that are dirty or under way, by account.
    pub unwritten: BTreeMap<u32, u64>,
}

/// A granted lock while a call uses it, or waits for it.
pub(super) struct Use {
    pub lockable: Lockable,
    pub range: ByteRange,
    /// Whether the grant has arrived.
    pub has_begun: bool,
}

/// Ranges of a lockable that a client holds in memory.
#[derive(Default)]
pub(super) struct Cache {
    /// Bytes that a read need not request.
    pub valid: RangeSet,
    /// Bytes to write.
    pub dirty: RangeSet,
}

/// A write request under way.
pub(super) struct InFlight {
    pub lockable: Lockable,
    pub runs: Vec<ByteRange>,
}

impl LockingFs {
    /// Creates a file system without files. Each of `servers` has a disk at `/t`.
    pub fn new(spec: &LockingSpec, control: &Control, servers: Vec<SimEnv>) -> Arc<Self> {
        let state = State {
            locks: Locks::new(&spec.lock_spec()),
            names: BTreeMap::new(),
            sizes: Vec::new(),
            clients: Vec::new(),
            objects: BTreeMap::new(),
            server_free: vec![0; servers.len()],
            metadata_free: 0,
            next_use: 0,
            next_request: 0,
            counters: LockingOutcome::default(),
        };
        let figures = spec.figures();
        Arc::new(Self { figures, control: control.clone(), servers, state: Mutex::new(state) })
    }

    /// Adds a client that runs in process `env`.
    pub fn add_client(&self, env: &SimEnv) -> ClientNumber {
        let mut state = self.state.lock();
        state.clients.push(Client {
            env: env.clone(),
            changed: env.notify(),
            uses: BTreeMap::new(),
            caches: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            running: BTreeMap::new(),
            unwritten: BTreeMap::new(),
        });
        ClientNumber(state.clients.len() as u32 - 1)
    }

    /// Returns the counters.
    pub fn counters(&self) -> LockingOutcome {
        let state = self.state.lock();
        LockingOutcome { locks: state.locks.counters(), ..state.counters }
    }

    /// Number of the file with this name, which is created if it is missing.
    pub(super) fn file_number(&self, name: &str) -> u32 {
        let mut state = self.state.lock();
        if let Some(number) = state.names.get(name) {
            return *number;
        }
        let number = state.sizes.len() as u32;
        state.names.insert(name.to_owned(), number);
        state.sizes.push(0);
        number
    }

    /// Runs a request of the metadata server: one message there and one back, behind earlier requests.
    pub(super) async fn metadata_request(&self, client: ClientNumber) {
        let (env, at) = {
            let mut state = self.state.lock();
            let now = self.control.elapsed().0 + self.figures.lock_latency;
            state.metadata_free = state.metadata_free.max(now) + self.figures.open_ns;
            (state.clients[client.0 as usize].env.clone(), state.metadata_free + self.figures.lock_latency)
        };
        self.sleep_until(&env, at).await;
    }

    /// Waits until `at`, in nanoseconds since the world started.
    pub(super) async fn sleep_until(&self, env: &SimEnv, at: u64) {
        let now = self.control.elapsed().0;
        if at > now {
            env.sleep(Nanos(at - now)).await;
        }
    }

    pub(super) fn env_of(&self, client: ClientNumber) -> SimEnv {
        self.state.lock().clients[client.0 as usize].env.clone()
    }

    pub(super) fn changed(&self, client: ClientNumber) -> SimNotify {
        self.state.lock().clients[client.0 as usize].changed.clone()
    }

    /// Divides a range of a file into ranges of lockables, in the order in which clients lock them.
    pub(super) fn lockables(&self, file: u32, range: Range<u64>) -> Vec<(Lockable, ByteRange)> {
        let Figures { kind, servers, stripe, .. } = self.figures;
        if kind == LockKind::Tokens {
            return vec![(Lockable(file.into()), range_of(range))];
        }
        let (first, last) = (range.start / stripe, (range.end - 1) / stripe);
        let mut parts: BTreeMap<u64, Range<u64>> = BTreeMap::new();
        // The first and the last stripe of each server bound its part.
        let ends =
            (first..=last.min(first + servers - 1)).chain(last.saturating_sub(servers - 1).max(first)..=last);
        for number in ends {
            let row = number / servers * stripe;
            let inside =
                |offset: u64| row + offset.clamp(number * stripe, (number + 1) * stripe) - number * stripe;
            let (from, to) = (inside(range.start), inside(range.end));
            let part = parts.entry(number % servers).or_insert(from..to);
            *part = part.start.min(from)..part.end.max(to);
        }
        let lockable = |server| Lockable(u64::from(file) * servers + server);
        parts.into_iter().map(|(server, part)| (lockable(server), range_of(part))).collect()
    }

    /// File of a lockable.
    pub(super) fn file_of(&self, lockable: Lockable) -> u32 {
        match self.figures.kind {
            LockKind::Tokens => lockable.0 as u32,
            LockKind::Extents => (lockable.0 / self.figures.servers) as u32,
        }
    }

    /// Account to which dirty bytes of a lockable belong.
    pub(super) fn account_of(&self, lockable: Lockable) -> u32 {
        match self.figures.kind {
            LockKind::Tokens => 0,
            LockKind::Extents => (lockable.0 % self.figures.servers) as u32,
        }
    }
}

/// Range that is not empty.
pub(super) fn range_of(range: Range<u64>) -> ByteRange {
    ByteRange::new(range.start, range.end).expect("a range of a call is not empty")
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_env::sim::Sim;
    use weft_workload::Size;

    #[test]
    fn ranges_of_stripe_objects_by_hand() {
        let sim = Sim::with_seed(1);
        let spec = LockingSpec {
            servers: Some(3),
            stripe_size: Some(Size(100)),
            write_unit: Some(Size(10)),
            ..LockingSpec::default()
        };
        let fs = LockingFs::new(&spec, &sim.control(), Vec::new());
        let parts = |range: Range<u64>| -> Vec<(u64, u64, u64)> {
            let parts = fs.lockables(2, range).into_iter();
            parts.map(|(lockable, part)| (lockable.0, part.start(), part.end())).collect()
        };
        // File 2 has the lockables 6 to 8. Stripe 4 is the second one of server 1.
        assert_eq!(parts(430..470), [(7, 130, 170)]);
        // Stripes 1 to 3: server 1 from 50, server 2 whole, and the second stripe of server 0 up to 20.
        assert_eq!(parts(150..320), [(6, 100, 120), (7, 50, 100), (8, 0, 100)]);
        // Stripes 0 to 7: the last stripe of server 1 is cut.
        assert_eq!(parts(0..750), [(6, 0, 300), (7, 0, 250), (8, 0, 200)]);
        assert_eq!((fs.file_of(Lockable(7)), fs.account_of(Lockable(7))), (2, 1));
    }
}
