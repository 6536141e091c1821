//! A mutex for data that must survive a fork of a multithreaded process.
//!
//! In a forked child, the threads that held or awaited a lock do not exist. A library's lock may share state with other
//! locks (a table of waiters), which the fork can leave locked forever. This lock is a single word, which the child
//! resets.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering::*};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and a thread may be asleep.
const AWAITED: u32 = 2;

/// Mutex; see the module documentation.
pub struct Lock<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only by the one who holds the lock.
unsafe impl<T: Send> Sync for Lock<T> {}
// SAFETY: nothing in it is bound to a thread.
unsafe impl<T: Send> Send for Lock<T> {}

/// Guard that holds the lock until dropped.
pub struct Held<'a, T>(&'a Lock<T>);

impl<T> Lock<T> {
    pub const fn new(value: T) -> Self {
        Self { state: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    pub fn lock(&self) -> Held<'_, T> {
        if self.state.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err() {
            self.wait();
        }
        Held(self)
    }

    #[cold]
    fn wait(&self) {
        for _ in 0..100 {
            if self.state.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok() {
                return;
            }
            std::hint::spin_loop();
        }
        while self.state.swap(AWAITED, Acquire) != FREE {
            crate::sys::futex_wait(&self.state, AWAITED);
        }
    }

    /// Releases the lock on behalf of a thread that does not exist in this process.
    ///
    /// # Safety
    /// Only in a forked child while it has one thread, and only if a value left in the middle of a change does no harm.
    pub unsafe fn reset(&self) {
        self.state.store(FREE, Release);
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: held.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: held.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        if self.0.state.swap(FREE, Release) == AWAITED {
            crate::sys::futex_wake(&self.0.state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_threads_count_without_loss() {
        let lock = Lock::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..10_000).for_each(|_| *lock.lock() += 1));
            }
        });
        assert_eq!(*lock.lock(), 80_000);
    }

    #[test]
    fn a_reset_lock_can_be_acquired() {
        let lock = Lock::new(());
        std::mem::forget(lock.lock());
        // SAFETY: as if the holder were gone.
        unsafe { lock.reset() };
        drop(lock.lock());
    }
}
