//! Numbers that the kernel holds for what is open.

use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Open things by number. Looking one up takes a shared lock of its part of the table only.
pub struct Handles<T> {
    parts: [RwLock<HashMap<u64, Arc<T>>>; PARTS],
    next: AtomicU64,
}

const PARTS: usize = 16;

impl<T> Handles<T> {
    /// None.
    pub fn new() -> Self {
        Self { parts: std::array::from_fn(|_| RwLock::default()), next: AtomicU64::new(1) }
    }

    /// Keeps `thing` and gives it a number.
    pub fn insert(&self, thing: T) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.part(number).write().insert(number, Arc::new(thing));
        number
    }

    /// The thing with that number.
    pub fn get(&self, number: u64) -> Option<Arc<T>> {
        self.part(number).read().get(&number).cloned()
    }

    /// Does `what` with each.
    pub fn each(&self, mut what: impl FnMut(&T)) {
        for part in &self.parts {
            part.read().values().for_each(|thing| what(thing));
        }
    }

    /// Forgets the number.
    pub fn remove(&self, number: u64) -> Option<Arc<T>> {
        self.part(number).write().remove(&number)
    }

    fn part(&self, number: u64) -> &RwLock<HashMap<u64, Arc<T>>> {
        &self.parts[number as usize % PARTS]
    }
}
