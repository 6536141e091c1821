//! Who is in the middle of a write, so that a fence can wait for those who came before it.
//!
//! A connection serves one request at a time, so that a place for each will do, and a write costs no shared lock.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weft_core::{FileId, Nanos};
use weft_env::Env;

/// How often a fence looks whether writes have ended: from here, doubling, up to the other.
const LOOK_AGAIN_MIN: Nanos = Nanos(20_000);
const LOOK_AGAIN_MAX: Nanos = Nanos::from_ms(5);

/// The place of a connection.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// Odd while it is inside.
    turn: AtomicU64,
    file: AtomicU64,
}

impl Place {
    /// Begins a write of `file`; it ends when the result is dropped. A fence that is put up after this waits for it.
    pub fn enter(self: &Arc<Self>, file: FileId) -> Inside {
        self.file.store(file.0, Ordering::SeqCst);
        self.turn.fetch_add(1, Ordering::SeqCst);
        Inside(Arc::clone(self))
    }
}

/// A write under way.
pub(super) struct Inside(Arc<Place>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.turn.fetch_add(1, Ordering::SeqCst);
    }
}

/// The places of all connections that have written.
#[derive(Debug, Default)]
pub(super) struct Insiders(Mutex<BTreeMap<u64, Arc<Place>>>);

impl Insiders {
    /// A place for a connection.
    pub fn add(&self, connection: u64) -> Arc<Place> {
        Arc::clone(self.0.lock().entry(connection).or_default())
    }

    /// It has ended.
    pub fn remove(&self, connection: u64) {
        self.0.lock().remove(&connection);
    }

    /// Waits until the writes of `file` that are under way now have ended; `false` when some have not within `patience`.
    pub async fn wait<E: Env>(&self, env: &E, file: FileId, patience: Nanos) -> bool {
        let turn = |place: &Place| place.turn.load(Ordering::SeqCst);
        let mut inside: Vec<(Arc<Place>, u64)> = {
            let all = self.0.lock();
            let now = all.values().map(|place| (Arc::clone(place), turn(place)));
            // The file is set before the turn begins.
            now.filter(|(place, turn)| turn % 2 == 1 && place.file.load(Ordering::SeqCst) == file.0).collect()
        };
        let deadline = env.now().saturating_add(patience);
        let mut pause = LOOK_AGAIN_MIN;
        loop {
            inside.retain(|(place, began)| turn(place) == *began);
            if inside.is_empty() {
                return true;
            }
            if env.now() >= deadline {
                return false;
            }
            env.sleep(pause).await;
            pause = Nanos(pause.0 * 2).min(LOOK_AGAIN_MAX);
        }
    }
}
