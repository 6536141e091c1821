//! What is changed in datafiles while somebody copies them.
//!
//! A change is noted when its bytes are there, and before a seal that waits for it gets on: who asks for changes and then
//! reads has read the bytes of every change that he is not told of later. Of a watch that the server does not know, because
//! it has been started again or nobody had asked for long, everything may have changed, and it says so.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use weft_core::{ByteRange, Changed, FileId, Nanos};
use weft_env::Env;
use weft_env::plants::{Plant, planted};
use weft_wire::data::{CHANGES_MAX, Change, DatafileId};

/// Nobody has asked for so long: the watch ends.
const FORGOTTEN_AFTER: Nanos = Nanos::from_s(30);
/// Most watches at a time.
const WATCHES_MAX: usize = 1024;

/// All watches of a server.
#[derive(Debug, Default)]
pub(super) struct Watches {
    /// How many; lets changes pass without the lock where there are none.
    count: AtomicUsize,
    inner: Mutex<BTreeMap<u64, Watch>>,
}

#[derive(Debug)]
struct Watch {
    file: FileId,
    datafiles: BTreeMap<DatafileId, Changed>,
    asked: Nanos,
    /// The last answer, for who did not hear it.
    last: (u64, Vec<Change>),
}

impl Watches {
    /// Begins one; `None` when there are too many.
    pub fn add<E: Env>(&self, env: &E, file: FileId, datafiles: &[DatafileId]) -> Option<u64> {
        let each = (CHANGES_MAX / datafiles.len().max(1)).max(1);
        let watch = Watch {
            file,
            datafiles: datafiles.iter().map(|datafile| (*datafile, Changed::new(each))).collect(),
            asked: env.now(),
            last: (0, Vec::new()),
        };
        let mut inner = self.inner.lock();
        if inner.len() >= WATCHES_MAX {
            return None;
        }
        // By chance, so that none is taken for one of before a restart.
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

    /// What has changed since the round before `round`; `None` when there is no such watch of `file`.
    pub fn changes(&self, file: FileId, number: u64, round: u64, now: Nanos) -> Option<Vec<Change>> {
        let mut inner = self.inner.lock();
        let watch = inner.get_mut(&number).filter(|watch| watch.file == file)?;
        watch.asked = now;
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

    /// Once the result is dropped the bytes from `start` to `end` are noted as changed.
    pub fn changing(&self, datafile: DatafileId, start: u64, end: u64) -> Changing<'_> {
        Changing { watches: self, datafile, range: ByteRange::new(start, end) }
    }

    /// Ends those for which nobody has asked for long.
    pub fn tick(&self, now: Nanos) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut inner = self.inner.lock();
        inner.retain(|_, watch| watch.asked.saturating_add(FORGOTTEN_AFTER) > now);
        self.count.store(inner.len(), Ordering::SeqCst);
    }

    /// The file has these datafiles no more.
    pub fn end(&self, file: FileId) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut inner = self.inner.lock();
        inner.retain(|_, watch| watch.file != file);
        self.count.store(inner.len(), Ordering::SeqCst);
    }
}

/// A change under way.
pub(super) struct Changing<'a> {
    watches: &'a Watches,
    datafile: DatafileId,
    range: Option<ByteRange>,
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let Some(range) = self.range else { return };
        if self.watches.count.load(Ordering::SeqCst) == 0 || planted(Plant::UnnotedChange) {
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
    fn changes_are_told_once_and_again_to_who_did_not_hear() {
        let mut sim = Sim::with_seed(1);
        let env = sim.node("n");
        let (watches, file) = (Watches::default(), FileId(7));
        drop(watches.changing(datafile(0), 0, 5));
        let watch = watches.add(&env, file, &[datafile(0), datafile(1)]).expect("room");
        let under_way = watches.changing(datafile(0), 10, 20);
        assert_eq!(watches.changes(file, watch, 1, Nanos(0)), Some(vec![]), "its bytes are not there yet");
        drop(under_way);
        drop(watches.changing(datafile(2), 0, 5));
        drop(watches.changing(datafile(1), 7, u64::MAX));
        let both = vec![
            Change { datafile: datafile(0), ranges: vec![(10, 20)] },
            Change { datafile: datafile(1), ranges: vec![(7, u64::MAX)] },
        ];
        assert_eq!(watches.changes(file, watch, 2, Nanos(0)), Some(both.clone()));
        drop(watches.changing(datafile(1), 0, 1));
        assert_eq!(watches.changes(file, watch, 2, Nanos(0)), Some(both), "asked again");
        let one = vec![Change { datafile: datafile(1), ranges: vec![(0, 1)] }];
        assert_eq!(watches.changes(file, watch, 3, Nanos(0)), Some(one));
        assert_eq!(watches.changes(file, watch, 5, Nanos(0)), None, "a round was left out");
        assert_eq!(watches.changes(FileId(8), watch, 4, Nanos(0)), None);
        assert!(watches.has(datafile(0)) && !watches.has(datafile(2)));
        watches.tick(FORGOTTEN_AFTER);
        assert_eq!(watches.changes(file, watch, 4, Nanos(0)), None);
        sim.block_on(&env, async {});
    }
}
