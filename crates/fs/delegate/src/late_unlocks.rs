//! Page locks whose release did not reach their home, as in a partition.
//!
//! The home would keep such locks until the connections of this delegate end, and requests of other ranks would wait. A
//! task repeats the release until the home answers.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use weft_client::Delegates;
use weft_core::Nanos;
use weft_core::delegates::assignment::DelegateIndex;
use weft_core::delegates::page_locks::HolderId;
use weft_env::{Env, Notify};

/// Time between two attempts to reach a home.
const PAUSE: Nanos = Nanos::from_ms(250);
/// Most releases that are remembered for each home. A home that is dead has no locks that matter.
const PER_HOME_MAX: usize = 4096;

/// Releases that failed.
pub(crate) struct LateUnlocks<E: Env> {
    by_home: Mutex<BTreeMap<DelegateIndex, Vec<HolderId>>>,
    changed: E::Notify,
}

impl<E: Env> LateUnlocks<E> {
    pub(crate) fn new(env: &E) -> Self {
        Self { by_home: Mutex::default(), changed: env.notify() }
    }

    /// Adds a holder whose locks at `home` must be released.
    pub(crate) fn add(&self, home: DelegateIndex, holder: HolderId) {
        let mut by_home = self.by_home.lock();
        let holders = by_home.entry(home).or_default();
        if holders.len() < PER_HOME_MAX {
            holders.push(holder);
        }
        drop(by_home);
        self.wake();
    }

    pub(crate) fn wake(&self) {
        self.changed.notify_all();
    }

    /// Repeats failed releases until `is_stopping` is set.
    pub(crate) async fn run(&self, peers: &Delegates<E>, is_stopping: &AtomicBool) {
        while !is_stopping.load(Ordering::SeqCst) {
            let seen = self.changed.epoch();
            let homes: Vec<DelegateIndex> = self.by_home.lock().keys().copied().collect();
            for home in &homes {
                self.release_at(*home, peers).await;
            }
            let is_empty = self.by_home.lock().is_empty();
            self.changed.wait(seen, (!is_empty).then_some(PAUSE)).await;
        }
    }

    /// Releases locks at a home, until all are released or one attempt fails.
    async fn release_at(&self, home: DelegateIndex, peers: &Delegates<E>) {
        loop {
            let holder = {
                let mut by_home = self.by_home.lock();
                let Some(holder) = by_home.get(&home).and_then(|holders| holders.last().copied()) else {
                    by_home.remove(&home);
                    return;
                };
                holder
            };
            if peers.unlock_pages(home, holder).await.is_err() {
                return;
            }
            if let Some(holders) = self.by_home.lock().get_mut(&home) {
                holders.retain(|other| *other != holder);
            }
        }
    }
}
