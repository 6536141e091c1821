//! Numbers by which the kernel refers to open objects.

use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Open objects by number. A lookup takes only a shared lock on one part of the table.
pub struct Handles<T> {
    parts: [RwLock<HashMap<u64, Arc<T>>>; PARTS],
    next: AtomicU64,
}

const PARTS: usize = 16;

impl<T> Handles<T> {
    /// Creates an empty table.
    pub fn new() -> Self {
        Self { parts: std::array::from_fn(|_| RwLock::default()), next: AtomicU64::new(1) }
    }

    /// Stores `thing` and returns its number.
    pub fn insert(&self, thing: T) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.part(number).write().insert(number, Arc::new(thing));
        number
    }

    /// Returns the object with this number.
    pub fn get(&self, number: u64) -> Option<Arc<T>> {
        self.part(number).read().get(&number).cloned()
    }

    /// Whether no object is stored.
    pub fn is_empty(&self) -> bool {
        self.parts.iter().all(|part| part.read().is_empty())
    }

    /// Calls `visit` for each object.
    pub fn each(&self, mut visit: impl FnMut(&T)) {
        for part in &self.parts {
            part.read().values().for_each(|thing| visit(thing));
        }
    }

    /// Removes the object with this number.
    pub fn remove(&self, number: u64) -> Option<Arc<T>> {
        self.part(number).write().remove(&number)
    }

    fn part(&self, number: u64) -> &RwLock<HashMap<u64, Arc<T>>> {
        &self.parts[number as usize % PARTS]
    }
}
