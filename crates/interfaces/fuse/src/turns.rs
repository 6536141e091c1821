//! Turns of the threads that serve the kernel.
//!
//! A thread that waits for a server that does not answer serves nobody else. So a mount has more threads than it usually
//! needs, but only a few take requests at a time, because more would only compete for processors and their caches. The
//! others sleep at the end of their last request. When a thread begins to wait for a server, another one takes its turn.

use crate::caller::is_to_end;
use parking_lot::{Condvar, Mutex};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use weft_client::ServerWait;

/// Threads of a mount beyond those that usually take requests.
pub const SPARE_THREADS: usize = 32;

thread_local! {
    /// State of this thread, if it serves the kernel.
    static SERVING: RefCell<Option<Serving>> = const { RefCell::new(None) };
}

/// Turns of one mount.
pub struct Turns {
    /// Number of threads that take requests at a time.
    usual: usize,
    /// Number of threads that have a turn. More than usual while threads return from waits.
    taken: AtomicUsize,
    asleep: Mutex<Asleep>,
    given: Condvar,
}

/// Threads without a turn that have no request.
#[derive(Default)]
struct Asleep {
    threads: usize,
    /// Number of turns that wait for a thread to take them.
    turns: usize,
}

/// A thread that serves the kernel. Its end gives up the turn.
struct Serving {
    turns: Arc<Turns>,
    has_turn: bool,
    /// Number of waits for servers in progress, one within another.
    waits: u32,
    /// Thread whose request is served; 0 for a request of the kernel itself.
    caller: u32,
}

/// A request in service, until dropped.
pub struct Turn;

impl Turns {
    /// Creates the turns of a mount of which `usual` threads take requests at a time.
    pub fn new(usual: usize) -> Arc<Self> {
        Arc::new(Self {
            usual: usual.max(1),
            taken: AtomicUsize::new(0),
            asleep: Mutex::default(),
            given: Condvar::new(),
        })
    }

    /// Begins to serve a request of thread `caller`.
    pub fn begin(self: &Arc<Self>, caller: u32) -> Turn {
        SERVING.with_borrow_mut(|serving| {
            let serving = serving.get_or_insert_with(|| Serving {
                turns: Arc::clone(self),
                has_turn: false,
                waits: 0,
                caller,
            });
            serving.caller = caller;
            serving.take();
        });
        Turn
    }

    /// Gives a turn up, to a sleeping thread if there is one.
    fn give_up(&self) {
        let mut asleep = self.asleep.lock();
        if asleep.threads > 0 {
            asleep.threads -= 1;
            asleep.turns += 1;
            self.given.notify_one();
        } else {
            self.taken.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Sleeps until another thread gives its turn up, if too many have one. Returns with a turn.
    fn sleep_if_too_many(&self) {
        if self.taken.load(Ordering::Relaxed) <= self.usual {
            return;
        }
        let mut asleep = self.asleep.lock();
        if self.taken.load(Ordering::Relaxed) <= self.usual {
            return;
        }
        self.taken.fetch_sub(1, Ordering::Relaxed);
        asleep.threads += 1;
        while asleep.turns == 0 {
            self.given.wait(&mut asleep);
        }
        asleep.turns -= 1;
    }
}

impl Serving {
    fn take(&mut self) {
        if !self.has_turn {
            self.has_turn = true;
            self.turns.taken.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn give_up(&mut self) {
        if std::mem::take(&mut self.has_turn) {
            self.turns.give_up();
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Not within the borrow: the sleep may last until the mount ends.
        let turns = SERVING.with_borrow(|serving| serving.as_ref().map(|serving| Arc::clone(&serving.turns)));
        if let Some(turns) = turns {
            turns.sleep_if_too_many();
        }
    }
}

/// A wait for a server on a thread of a mount.
struct MountWait {
    /// Thread whose request waits; 0 for a request of the kernel itself, and for tasks of the mount.
    caller: u32,
}

/// Begins a wait for a server on this thread.
pub fn begin_wait() -> Box<dyn ServerWait> {
    let caller = SERVING.with_borrow_mut(|serving| {
        serving.as_mut().map_or(0, |serving| {
            serving.waits += 1;
            serving.give_up();
            serving.caller
        })
    });
    Box::new(MountWait { caller })
}

impl ServerWait for MountWait {
    fn is_interrupted(&mut self) -> bool {
        self.caller != 0 && is_to_end(self.caller)
    }
}

impl Drop for MountWait {
    fn drop(&mut self) {
        SERVING.with_borrow_mut(|serving| {
            if let Some(serving) = serving {
                serving.waits -= 1;
                if serving.waits == 0 {
                    serving.take();
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn a_thread_that_waits_for_a_server_is_replaced_and_all_end() {
        const THREADS: usize = 6;
        let turns = Turns::new(2);
        let (requests, queue) = channel::<bool>();
        let queue = Arc::new(Mutex::new(queue));
        let (served, results) = channel();
        let release = Arc::new((Mutex::new(false), Condvar::new()));
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let (turns, queue, served) = (Arc::clone(&turns), Arc::clone(&queue), served.clone());
                let release = Arc::clone(&release);
                std::thread::spawn(move || {
                    loop {
                        let Ok(waits) = queue.lock().recv() else { return };
                        let _turn = turns.begin(0);
                        if waits {
                            let wait = begin_wait();
                            let mut is_over = release.0.lock();
                            while !*is_over {
                                release.1.wait(&mut is_over);
                            }
                            drop(wait);
                        }
                        served.send(waits).expect("received");
                    }
                })
            })
            .collect();
        let serve = |count: usize| {
            for _ in 0..count {
                requests.send(false).expect("sent");
            }
            for _ in 0..count {
                assert_eq!(results.recv_timeout(Duration::from_secs(30)), Ok(false));
            }
        };
        serve(4 * THREADS);
        for _ in 0..THREADS - 1 {
            requests.send(true).expect("sent");
        }
        // The last thread still serves requests.
        serve(10);
        *release.0.lock() = true;
        release.1.notify_all();
        for _ in 0..THREADS - 1 {
            assert_eq!(results.recv_timeout(Duration::from_secs(30)), Ok(true));
        }
        serve(4 * THREADS);
        // The end of the queue reaches all of them, also those that sleep.
        drop(requests);
        threads.into_iter().for_each(|thread| thread.join().expect("ends"));
        assert_eq!(turns.taken.load(Ordering::Relaxed), 0);
    }
}
