//! Interruption of waits for servers that do not answer.
//!
//! A wait may last for minutes. The interface that runs the program knows what interrupts it: a signal, or the end of the
//! process that a mount serves.

use parking_lot::RwLock;

/// A wait for a server in progress, until dropped.
pub trait ServerWait: Send {
    /// Whether the caller is to stop waiting. Called after each attempt to connect.
    fn is_interrupted(&mut self) -> bool;
}

/// A wait that nothing interrupts.
struct Uninterrupted;

impl ServerWait for Uninterrupted {
    fn is_interrupted(&mut self) -> bool {
        false
    }
}

static HOOK: RwLock<fn() -> Box<dyn ServerWait>> = RwLock::new(|| Box::new(Uninterrupted));

/// Sets what begins a wait for a server, on the thread that waits.
pub fn set_server_wait(hook: fn() -> Box<dyn ServerWait>) {
    *HOOK.write() = hook;
}

pub(crate) fn begin_wait() -> Box<dyn ServerWait> {
    let hook = *HOOK.read();
    hook()
}
