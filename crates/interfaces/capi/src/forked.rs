//! Objects that a forked child recreates.
//!
//! A child must not use its parent's connections. A count of forks identifies the process for which an object was
//! created. The child's version is appended to the parent's without a lock, because another thread of the parent might
//! have held a lock at the fork.

use crate::fail::Res;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Once, OnceLock};

/// Number of forks between the first process and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Starts to count forks.
pub fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler accesses one atomic. The call fails only without memory; forks are then not detected.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// Value with a separate version for each process that uses it.
pub struct Forked<T> {
    generation: u32,
    value: T,
    next: OnceLock<Box<Forked<T>>>,
}

impl<T> Forked<T> {
    /// Creates the version of this process.
    pub fn new(value: T) -> Self {
        Self { generation: GENERATION.load(Ordering::Relaxed), value, next: OnceLock::new() }
    }

    /// Returns this process's version, created by `again` from its ancestor's if it does not exist yet.
    pub fn get(&self, again: impl FnOnce(&T) -> Res<T>) -> Res<&T> {
        let now = GENERATION.load(Ordering::Relaxed);
        let mut node = self;
        while node.generation != now {
            let Some(next) = node.next.get() else {
                let fresh = Box::new(Self::new(again(&node.value)?));
                // Two threads may create a version at once: the later one is dropped.
                return Ok(&node.next.get_or_init(|| fresh).value);
            };
            node = next;
        }
        Ok(&node.value)
    }

    /// Returns this process's version, if it was created.
    pub fn into_own(self) -> Option<T> {
        let now = GENERATION.load(Ordering::Relaxed);
        let mut node = self;
        while node.generation != now {
            node = *node.next.into_inner()?;
        }
        Some(node.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_creates_its_version_once() {
        let value = Forked::new(1);
        let get = |again: i32| *value.get(|old| Ok(old * 10 + again)).expect("no failure");
        assert_eq!(get(5), 1);
        in_child();
        assert_eq!((get(2), get(3)), (12, 12));
        in_child();
        assert_eq!((get(4), get(5)), (124, 124), "created from the closest ancestor");
        assert_eq!(value.into_own(), Some(124));
        let value = Forked::new(1);
        in_child();
        assert_eq!(value.into_own(), None);
    }
}
