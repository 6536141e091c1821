//! Watches: byte ranges that change in datafiles while a mover copies them.
//!
//! A change is recorded after its bytes are written, and before a seal stops waiting for its write. So a mover that
//! asks for changes and then reads has seen every change that no later answer reports.
//!
//! A watch is lost when the server restarts or the mover is silent for [`IDLE_MAX`]. The server then answers
//! that it does not know the watch, and the mover must assume that every byte changed.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use weft_core::{ByteRange, ChangedRanges, FileId, Nanos};
use weft_env::Env;
use weft_env::mutants::{Mutant, is_seeded};
use weft_wire::data::{CHANGES_MAX, Change, DatafileId};

/// Time without a request after which a watch ends.
const IDLE_MAX: Nanos = Nanos::from_s(30);
/// Maximum number of watches.
const WATCHES_MAX: usize = 1024;

/// All watches of a server.
#[derive(Debug, Default)]
pub(super) struct Watches {
    /// Number of watches; a write takes no lock while it is zero.
    count: AtomicUsize,
    inner: Mutex<BTreeMap<u64, Watch>>,
}

#[derive(Debug)]
struct Watch {
    file: FileId,
    datafiles: BTreeMap<DatafileId, ChangedRanges>,
    last_used: Nanos,
    /// Last round and its answer, repeated if the mover did not receive it.
    last: (u64, Vec<Change>),
}

impl Watches {
    /// Begins a watch; `None` if there are too many.
    pub fn add<E: Env>(&self, env: &E, file: FileId, datafiles: &[DatafileId]) -> Option<u64> {
        let each = (CHANGES_MAX / datafiles.len().max(1)).max(1);
        let watch = Watch {
            file,
            datafiles: datafiles.iter().map(|datafile| (*datafile, ChangedRanges::new(each))).collect(),
            last_used: env.now(),
            last: (0, Vec::new()),
        };
        let mut inner = self.inner.lock();
        if inner.len() >= WATCHES_MAX {
            return None;
        }
        // A random number does not match a watch of an earlier start.
        let number = loop {
            let mut bytes = [0; 8];
            env.random(&mut bytes);
            let number = u64::from_le_bytes(bytes);
            if !inner.contains_key(&number) {
                break number;
            }
        };
        inner.insert(number, watch);
        self.count.store(inner.len(), Ordering::SeqCst);
        Some(number)
    }

    /// Changes since the round before `round`; `None` if there is no such watch of `file`.
    pub fn changes(&self, file: FileId, number: u64, round: u64, now: Nanos) -> Option<Vec<Change>> {
        let mut inner = self.inner.lock();
        let watch = inner.get_mut(&number).filter(|watch| watch.file == file)?;
        watch.last_used = now;
        if round == watch.last.0 {
            return Some(watch.last.1.clone());
        }
        if round != watch.last.0 + 1 {
            return None;
        }
        let changed = watch.datafiles.iter_mut().filter(|(_, changed)| !changed.ranges().is_empty());
        let changes: Vec<Change> = changed
            .map(|(datafile, changed)| Change {
                datafile: *datafile,
                ranges: changed.take().iter().map(|range| (range.start(), range.end())).collect(),
            })
            .collect();
        watch.last = (round, changes.clone());
        Some(changes)
    }

    /// Whether a datafile is watched.
    pub fn has(&self, datafile: DatafileId) -> bool {
        self.count.load(Ordering::SeqCst) > 0
            && self.inner.lock().values().any(|watch| watch.datafiles.contains_key(&datafile))
    }

    /// Records a change of `start..end` when the result is dropped.
    pub fn record_change(&self, datafile: DatafileId, start: u64, end: u64) -> PendingChange<'_> {
        PendingChange { watches: self, datafile, range: ByteRange::new(start, end) }
    }

    /// Ends idle watches.
    pub fn tick(&self, now: Nanos) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut inner = self.inner.lock();
        inner.retain(|_, watch| watch.last_used.saturating_add(IDLE_MAX) > now);
        self.count.store(inner.len(), Ordering::SeqCst);
    }

    /// Ends the watches of a file whose datafiles are removed.
    pub fn end(&self, file: FileId) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut inner = self.inner.lock();
        inner.retain(|_, watch| watch.file != file);
        self.count.store(inner.len(), Ordering::SeqCst);
    }
}

/// A change that is not recorded yet.
pub(super) struct PendingChange<'a> {
    watches: &'a Watches,
    datafile: DatafileId,
    range: Option<ByteRange>,
}

impl Drop for PendingChange<'_> {
    fn drop(&mut self) {
        let Some(range) = self.range else { return };
        if self.watches.count.load(Ordering::SeqCst) == 0 || is_seeded(Mutant::UnnotedChange) {
            return;
        }
        for watch in self.watches.inner.lock().values_mut() {
            if let Some(changed) = watch.datafiles.get_mut(&self.datafile) {
                changed.add(range);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::{ObjectId, TargetId};
    use weft_env::sim::Sim;

    fn datafile(column: u16) -> DatafileId {
        DatafileId { target: TargetId(1), file: FileId(7), object: ObjectId { component: 0, column } }
    }

    #[test]
    fn changes_are_reported_once_and_repeated_when_the_round_is() {
        let mut sim = Sim::with_seed(1);
        let env = sim.node("n");
        let (watches, file) = (Watches::default(), FileId(7));
        drop(watches.record_change(datafile(0), 0, 5));
        let watch = watches.add(&env, file, &[datafile(0), datafile(1)]).expect("a free watch");
        let under_way = watches.record_change(datafile(0), 10, 20);
        assert_eq!(watches.changes(file, watch, 1, Nanos(0)), Some(vec![]), "its bytes are not written yet");
        drop(under_way);
        drop(watches.record_change(datafile(2), 0, 5));
        drop(watches.record_change(datafile(1), 7, u64::MAX));
        let both = vec![
            Change { datafile: datafile(0), ranges: vec![(10, 20)] },
            Change { datafile: datafile(1), ranges: vec![(7, u64::MAX)] },
        ];
        assert_eq!(watches.changes(file, watch, 2, Nanos(0)), Some(both.clone()));
        drop(watches.record_change(datafile(1), 0, 1));
        assert_eq!(watches.changes(file, watch, 2, Nanos(0)), Some(both), "the round is repeated");
        let one = vec![Change { datafile: datafile(1), ranges: vec![(0, 1)] }];
        assert_eq!(watches.changes(file, watch, 3, Nanos(0)), Some(one));
        assert_eq!(watches.changes(file, watch, 5, Nanos(0)), None, "a round was skipped");
        assert_eq!(watches.changes(FileId(8), watch, 4, Nanos(0)), None);
        assert!(watches.has(datafile(0)) && !watches.has(datafile(2)));
        watches.tick(IDLE_MAX);
        assert_eq!(watches.changes(file, watch, 4, Nanos(0)), None);
        sim.block_on(&env, async {});
    }
}
