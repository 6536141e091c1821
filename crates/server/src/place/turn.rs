//! One at a time: who has the turn has what belongs to it.

use parking_lot::Mutex;
use std::ops::{Deref, DerefMut};
use weft_env::{Env, Notify};

/// Something that one task has at a time.
pub(super) struct Turn<E: Env, T> {
    thing: Mutex<Option<T>>,
    given_back: E::Notify,
}

impl<E: Env, T> Turn<E, T> {
    pub fn new(env: &E, thing: T) -> Self {
        Self { thing: Mutex::new(Some(thing)), given_back: env.notify() }
    }

    /// Waits for it. Given back on drop.
    pub async fn take(&self) -> Held<'_, E, T> {
        loop {
            let seen = self.given_back.epoch();
            if let Some(thing) = self.thing.lock().take() {
                return Held { turn: self, thing: Some(thing) };
            }
            self.given_back.wait(seen, None).await;
        }
    }
}

/// It, for as long as this lives.
pub(super) struct Held<'a, E: Env, T> {
    turn: &'a Turn<E, T>,
    /// There until the drop.
    thing: Option<T>,
}

impl<E: Env, T> Deref for Held<'_, E, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.thing.as_ref().expect("there until the drop")
    }
}

impl<E: Env, T> DerefMut for Held<'_, E, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.thing.as_mut().expect("there until the drop")
    }
}

impl<E: Env, T> Drop for Held<'_, E, T> {
    fn drop(&mut self) {
        *self.turn.thing.lock() = self.thing.take();
        self.turn.given_back.notify_all();
    }
}
