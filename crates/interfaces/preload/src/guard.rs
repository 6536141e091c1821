//! Marks threads that are inside the client, whose own calls hooks must not serve again.

use std::cell::Cell;

thread_local! {
    // Const and without a destructor: no lazy initialization, no allocation, safe at any time.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// Whether the calling thread is inside the client.
pub fn inside() -> bool {
    INSIDE.get() > 0
}

/// Marks the thread as inside until dropped.
pub struct Guard(());

/// Enters the client.
pub fn enter() -> Guard {
    INSIDE.set(INSIDE.get() + 1);
    Guard(())
}

impl Drop for Guard {
    fn drop(&mut self) {
        INSIDE.set(INSIDE.get() - 1);
    }
}

/// Marks the thread as outside until dropped, for code of the program that runs in the middle of a call (signal
/// handlers).
pub struct Outside(u32);

/// Leaves the client temporarily.
pub fn leave() -> Outside {
    Outside(INSIDE.replace(0))
}

impl Drop for Outside {
    fn drop(&mut self) {
        INSIDE.set(self.0);
    }
}
