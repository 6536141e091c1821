//! An asynchronous mutex.

use parking_lot::Mutex;
use std::ops::{Deref, DerefMut};
use weft_env::{Env, Notify};

/// Mutual exclusion for a value; waiting suspends the task instead of blocking the thread.
pub(super) struct AsyncMutex<E: Env, T> {
    value: Mutex<Option<T>>,
    released: E::Notify,
}

impl<E: Env, T> AsyncMutex<E, T> {
    pub fn new(env: &E, value: T) -> Self {
        Self { value: Mutex::new(Some(value)), released: env.notify() }
    }

    /// Waits for the value. Dropping the guard releases it.
    pub async fn lock(&self) -> AsyncMutexGuard<'_, E, T> {
        loop {
            let seen = self.released.epoch();
            if let Some(value) = self.value.lock().take() {
                return AsyncMutexGuard { mutex: self, value: Some(value) };
            }
            self.released.wait(seen, None).await;
        }
    }
}

/// Guard of the locked value.
pub(super) struct AsyncMutexGuard<'a, E: Env, T> {
    mutex: &'a AsyncMutex<E, T>,
    /// `Some` until the guard is dropped.
    value: Option<T>,
}

impl<E: Env, T> Deref for AsyncMutexGuard<'_, E, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("present until the guard is dropped")
    }
}

impl<E: Env, T> DerefMut for AsyncMutexGuard<'_, E, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("present until the guard is dropped")
    }
}

impl<E: Env, T> Drop for AsyncMutexGuard<'_, E, T> {
    fn drop(&mut self) {
        *self.mutex.value.lock() = self.value.take();
        self.mutex.released.notify_all();
    }
}
