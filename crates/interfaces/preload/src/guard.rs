//! Marks threads that are inside the client, whose own calls hooks must not serve again.

use std::cell::Cell;

/// Value of the selector with which the kernel makes all system calls.
pub const ALLOW: u8 = 0;
/// Value of the selector with which the kernel dispatches system calls.
pub const BLOCK: u8 = 1;

thread_local! {
    // Const and without a destructor: no lazy initialization, no allocation, safe at any time.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
    // Byte that the kernel reads at each system call while dispatch is on (see `hooks::dispatch`).
    static SELECTOR: Cell<u8> = const { Cell::new(ALLOW) };
    // Value of the selector outside of the client.
    static ARMED: Cell<u8> = const { Cell::new(ALLOW) };
}

/// Whether the calling thread is inside the client.
pub fn inside() -> bool {
    INSIDE.get() > 0
}

/// Marks the thread as inside until dropped.
pub struct Guard(());

/// Enters the client.
pub fn enter() -> Guard {
    SELECTOR.set(ALLOW);
    INSIDE.set(INSIDE.get() + 1);
    Guard(())
}

impl Drop for Guard {
    fn drop(&mut self) {
        INSIDE.set(INSIDE.get() - 1);
        if INSIDE.get() == 0 {
            SELECTOR.set(ARMED.get());
        }
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

/// Returns the address of this thread's selector.
pub fn selector() -> *mut u8 {
    SELECTOR.with(Cell::as_ptr)
}

/// Sets the selector's value outside of the client, and returns the one before.
pub fn arm(value: u8) -> u8 {
    if INSIDE.get() == 0 {
        SELECTOR.set(value);
    }
    ARMED.replace(value)
}

/// Sets the selector's value from the next time on that the thread leaves the client.
pub fn rearm_later(value: u8) {
    ARMED.set(value);
}

/// Lets the thread make system calls until dropped.
pub struct Allowed(u8);

/// Lets the thread make system calls.
#[inline]
pub fn allow() -> Allowed {
    Allowed(SELECTOR.replace(ALLOW))
}

impl Drop for Allowed {
    fn drop(&mut self) {
        SELECTOR.set(self.0);
    }
}
