//! A bounded table of rows with counters.
//!
//! | case | behavior |
//! | --- | --- |
//! | known key | the connection has the row already, and counts with a few relaxed additions |
//! | new key, room | a row that starts at zero |
//! | new key, table or share of the user full | rows idle for [`IDLE_MIN`] make room, at most once in [`SWEEP_INTERVAL`] |
//! | still no room | no row: the observer sees the difference between the total and all rows as "others" |
//!
//! The counters of a row are exact. A sketch such as space-saving would let a new key inherit the counters of another
//! one, so that rates between two observations would be wrong. A busy key without a row gets one soon, because each of
//! its requests tries again after a sweep.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use weft_core::{ByteLen, Nanos};
use weft_wire::activity::Work;

use crate::latency::Operation;

/// Time without a request after which a row may make room for another one. Longer than the interval of most observers, who
/// then see the last requests of a row before it goes.
pub(super) const IDLE_MIN: Nanos = Nanos::from_s(10);
/// Time between two searches for idle rows in a full table.
pub(super) const SWEEP_INTERVAL: Nanos = Nanos::from_s(1);

/// Counters of a row.
#[derive(Default, Debug)]
pub(super) struct Counters {
    requests: [AtomicU64; Operation::ALL.len()],
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    time_ns: AtomicU64,
}

impl Counters {
    /// Counts a request that moved `bytes`.
    pub fn count(&self, operation: Operation, bytes: u64, took: Nanos) {
        self.requests[operation as usize].fetch_add(1, Ordering::Relaxed);
        match operation {
            Operation::Read => drop(self.bytes_read.fetch_add(bytes, Ordering::Relaxed)),
            Operation::Write => drop(self.bytes_written.fetch_add(bytes, Ordering::Relaxed)),
            Operation::Datafile | Operation::Metadata => {}
        }
        self.time_ns.fetch_add(took.0, Ordering::Relaxed);
    }

    /// Adds the work of a row that made room.
    pub fn add(&self, work: &Work) {
        for operation in Operation::ALL {
            let count = match operation {
                Operation::Read => work.reads,
                Operation::Write => work.writes,
                Operation::Datafile => work.others,
                Operation::Metadata => work.metadata,
            };
            self.requests[operation as usize].fetch_add(count, Ordering::Relaxed);
        }
        self.bytes_read.fetch_add(work.bytes_read.0, Ordering::Relaxed);
        self.bytes_written.fetch_add(work.bytes_written.0, Ordering::Relaxed);
        self.time_ns.fetch_add(work.time.0, Ordering::Relaxed);
    }

    /// Returns the present values.
    pub fn work(&self) -> Work {
        let requests = |operation: Operation| self.requests[operation as usize].load(Ordering::Relaxed);
        Work {
            reads: requests(Operation::Read),
            writes: requests(Operation::Write),
            others: requests(Operation::Datafile),
            metadata: requests(Operation::Metadata),
            bytes_read: ByteLen(self.bytes_read.load(Ordering::Relaxed)),
            bytes_written: ByteLen(self.bytes_written.load(Ordering::Relaxed)),
            time: Nanos(self.time_ns.load(Ordering::Relaxed)),
        }
    }
}

/// A row with its description.
#[derive(Debug)]
pub(super) struct Row<T> {
    pub counters: Counters,
    /// Description of the row.
    pub about: T,
    /// Open connections, for rows of clients.
    pub connections: AtomicU32,
    /// Start of the row.
    pub since: Nanos,
    last_used_ns: AtomicU64,
    /// Whether the table has the row.
    is_listed: AtomicBool,
}

impl<T> Row<T> {
    /// Counts a request that ended at `now`. False if the row is no longer in its table; then nothing is counted.
    pub fn count(&self, operation: Operation, bytes: u64, took: Nanos, now: Nanos) -> bool {
        if !self.is_listed() {
            return false;
        }
        self.counters.count(operation, bytes, took);
        self.last_used_ns.store(now.0, Ordering::Relaxed);
        true
    }

    /// Whether the table has the row.
    pub fn is_listed(&self) -> bool {
        self.is_listed.load(Ordering::Relaxed)
    }
}

/// Key of a row, which belongs to a user.
pub(super) trait Key: Ord + Copy {
    /// User of the row.
    fn uid(&self) -> u32;
}

/// Rows by key.
pub(super) struct Table<K, T> {
    rows_max: usize,
    /// Maximum number of rows of one user, so that no user hides the others.
    user_max: usize,
    inner: Mutex<Inner<K, T>>,
}

struct Inner<K, T> {
    rows: BTreeMap<K, Arc<Row<T>>>,
    by_user: BTreeMap<u32, usize>,
    /// Time before which idle rows make no room.
    sweep_after: Nanos,
}

impl<K: Key, T> Table<K, T> {
    /// Creates an empty table of at most `rows_max` rows, and at most `user_max` for each user.
    pub fn new(rows_max: usize, user_max: usize) -> Self {
        let inner = Inner { rows: BTreeMap::new(), by_user: BTreeMap::new(), sweep_after: Nanos(0) };
        Self { rows_max, user_max, inner: Mutex::new(inner) }
    }

    /// Returns the row of `key`, or a new one with the description `about`; `None` if there is no room. Calls `removed`
    /// for each row that made room.
    pub fn row(
        &self,
        key: K,
        now: Nanos,
        about: impl FnOnce() -> T,
        mut removed: impl FnMut(&K, &Row<T>),
    ) -> Option<Arc<Row<T>>> {
        let mut inner = self.inner.lock();
        if let Some(row) = inner.rows.get(&key) {
            return Some(Arc::clone(row));
        }
        if !self.has_room(&inner, &key) {
            if now < inner.sweep_after {
                return None;
            }
            inner.sweep_after = now.saturating_add(SWEEP_INTERVAL);
            inner.remove_idle(now, &mut removed);
            if !self.has_room(&inner, &key) {
                return None;
            }
        }
        let row = Arc::new(Row {
            counters: Counters::default(),
            about: about(),
            connections: AtomicU32::new(0),
            since: now,
            last_used_ns: AtomicU64::new(now.0),
            is_listed: AtomicBool::new(true),
        });
        inner.rows.insert(key, Arc::clone(&row));
        *inner.by_user.entry(key.uid()).or_default() += 1;
        Some(row)
    }

    fn has_room(&self, inner: &Inner<K, T>, key: &K) -> bool {
        let of_user = inner.by_user.get(&key.uid()).copied().unwrap_or(0);
        inner.rows.len() < self.rows_max && of_user < self.user_max
    }

    /// Reads the rows while none is added or removed.
    pub fn read<R>(&self, read: impl FnOnce(&BTreeMap<K, Arc<Row<T>>>) -> R) -> R {
        read(&self.inner.lock().rows)
    }

    /// Number of rows.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.inner.lock().rows.len()
    }
}

impl<K: Key, T> Inner<K, T> {
    fn remove_idle(&mut self, now: Nanos, removed: &mut impl FnMut(&K, &Row<T>)) {
        let by_user = &mut self.by_user;
        self.rows.retain(|key, row| {
            let idle = now.saturating_sub(Nanos(row.last_used_ns.load(Ordering::Relaxed)));
            if idle < IDLE_MIN {
                return true;
            }
            row.is_listed.store(false, Ordering::Relaxed);
            removed(key, row);
            if let Some(count) = by_user.get_mut(&key.uid()) {
                *count -= 1;
                if *count == 0 {
                    by_user.remove(&key.uid());
                }
            }
            false
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::random::SplitMix64;

    impl Key for (u64, u32) {
        fn uid(&self) -> u32 {
            self.1
        }
    }

    const ROWS_MAX: usize = 8;
    const USER_MAX: usize = 5;

    /// Expected contents of the table, computed from all requests.
    #[derive(Default)]
    struct Model {
        /// Work, start and last use of each row.
        rows: BTreeMap<(u64, u32), (Work, Nanos, Nanos)>,
        /// Work of rows that made room, and of requests without a row.
        others: Work,
        /// All work.
        total: Work,
        sweep_after: Nanos,
    }

    impl Model {
        fn has_room(&self, uid: u32) -> bool {
            let of_user = self.rows.keys().filter(|key| key.1 == uid).count();
            self.rows.len() < ROWS_MAX && of_user < USER_MAX
        }

        fn count(&mut self, key: (u64, u32), one: Work, now: Nanos) {
            self.total.add(&one);
            if !self.rows.contains_key(&key) {
                if !self.has_room(key.1) {
                    if now < self.sweep_after {
                        return self.others.add(&one);
                    }
                    self.sweep_after = now.saturating_add(SWEEP_INTERVAL);
                    let others = &mut self.others;
                    self.rows.retain(|_, (work, _, last)| {
                        let keeps = now.saturating_sub(*last) < IDLE_MIN;
                        if !keeps {
                            others.add(work);
                        }
                        keeps
                    });
                }
                if !self.has_room(key.1) {
                    return self.others.add(&one);
                }
                self.rows.insert(key, (Work::default(), now, now));
            }
            let row = self.rows.get_mut(&key).expect("inserted");
            row.0.add(&one);
            row.2 = now;
        }
    }

    /// Random requests of few users with changing sets of files, at random times. Each connection keeps rows.
    fn run(seed: u64) -> usize {
        let mut random = SplitMix64::new(seed);
        let mut below = |bound: u64| random.next_u64() % bound;
        let table: Table<(u64, u32), ()> = Table::new(ROWS_MAX, USER_MAX);
        let mut kept: BTreeMap<(u64, u32), Arc<Row<()>>> = BTreeMap::new();
        let (mut model, others) = (Model::default(), Counters::default());
        let (mut now, mut refused) = (Nanos(0), 0);
        for _ in 0..3000 {
            now.0 += [0, 1_000_000, 400_000_000, 11_000_000_000][below(4) as usize] * below(3) / 2;
            let key = (below(6) + now.0 / 30_000_000_000, below(3) as u32);
            let operation = Operation::ALL[below(4) as usize];
            let (bytes, took) = (below(1 << 20), Nanos(below(1_000_000)));
            let one = {
                let counters = Counters::default();
                counters.count(operation, bytes, took);
                counters.work()
            };
            model.count(key, one, now);
            if below(50) == 0 {
                kept.clear(); // the connection has other rows in its cache
            }
            let counted = kept.get(&key).is_some_and(|row| row.count(operation, bytes, took, now));
            if !counted {
                let fold = |_: &(u64, u32), row: &Row<()>| others.add(&row.counters.work());
                match table.row(key, now, || (), fold) {
                    Some(row) => {
                        assert!(row.count(operation, bytes, took, now), "a row of the table is listed");
                        kept.insert(key, row);
                    }
                    None => {
                        refused += 1;
                        others.count(operation, bytes, took);
                    }
                }
            }
            assert!(table.len() <= ROWS_MAX, "the bound holds");
        }
        let found: BTreeMap<_, _> = table
            .read(|rows| rows.iter().map(|(key, row)| (*key, (row.counters.work(), row.since))).collect());
        let expected: BTreeMap<_, _> =
            model.rows.iter().map(|(key, (work, since, _))| (*key, (*work, *since))).collect();
        assert_eq!(found, expected, "seed {seed}");
        assert_eq!(others.work(), model.others, "seed {seed}");
        let mut sum = others.work();
        found.values().for_each(|(work, _)| sum.add(work));
        assert_eq!(sum, model.total, "no request is lost; seed {seed}");
        refused
    }

    #[test]
    fn the_table_counts_as_a_model_without_bounds_would() {
        let first = std::env::var("WEFT_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
        let refused: usize = (first..first + 40).map(run).sum();
        assert!(refused > 100, "the table was full {refused} times");
    }

    #[test]
    fn a_user_has_a_share_of_the_rows() {
        let table: Table<(u64, u32), ()> = Table::new(ROWS_MAX, USER_MAX);
        let row = |file: u64, uid: u32, now: Nanos| table.row((file, uid), now, || (), |_, _| ()).is_some();
        assert!((0..USER_MAX as u64).all(|file| row(file, 1, Nanos(0))));
        assert!(!row(99, 1, Nanos(0)), "the share of user 1 is used");
        assert!(row(99, 2, Nanos(0)), "others still have room");
        assert!(row(0, 1, Nanos(0)), "known rows are found");
        assert!(row(99, 1, IDLE_MIN), "idle rows have made room");
        assert_eq!(table.len(), 1);
    }
}
