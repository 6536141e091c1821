//! Ends of open files that the kernel has reported but that no lock request may overtake.
//!
//! A close returns to the program before the mount has handled the end of the open file. The kernel reports that end before
//! the program's next request, but another thread may serve that one first. A program must not see a lock that it gave back by
//! closing. So a request that meets a lock of an open file waits for the ends that the kernel had reported before. It waits
//! until each thread has slept once, and so has begun the end that it may have had in its hands. Then it waits for the ends
//! that have begun by now; later ones do not prolong the wait.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Pause between looks at the serving threads.
const PAUSE: Duration = Duration::from_micros(200);
/// Maximum time of a wait. A thread of an overloaded host may run that long without sleeping.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Prefix of the names of threads that serve the kernel (fuser 0.18).
const SERVING: &str = "fuser-";

/// Ends of open files, numbered in the order in which they begin.
#[derive(Default)]
pub struct Releases {
    /// Number of ends that have begun. Changed without a lock, for which a thread could sleep.
    begun: AtomicU64,
    handled: Mutex<Handled>,
}

/// Ends that are handled.
#[derive(Default)]
struct Handled {
    /// Number of first ends that are all handled.
    first: u64,
    /// Numbers of others.
    later: BTreeSet<u64>,
}

/// End of an open file in progress, until dropped.
pub struct Releasing<'a>(&'a Releases, u64);

impl Drop for Releasing<'_> {
    fn drop(&mut self) {
        let handled = &mut *self.0.handled.lock();
        handled.later.insert(self.1);
        while handled.later.remove(&handled.first) {
            handled.first += 1;
        }
    }
}

impl Releases {
    /// Begins the end of an open file, before its thread can sleep.
    pub fn begin(&self) -> Releasing<'_> {
        Releasing(self, self.begun.fetch_add(1, Ordering::SeqCst))
    }

    /// Whether a thread handles the end of an open file.
    pub fn are_in_progress(&self) -> bool {
        !self.are_handled(self.begun.load(Ordering::SeqCst))
    }

    /// Whether the first `begun` ends are handled.
    fn are_handled(&self, begun: u64) -> bool {
        self.handled.lock().first >= begun
    }

    /// Waits until all ends that the kernel has reported before this call are handled.
    pub fn settle(&self) {
        let until = Instant::now() + WAIT_MAX;
        let mut left = serving_threads();
        let mut begun = None;
        loop {
            left.retain(|thread| !is_asleep(thread));
            if left.is_empty() {
                begun = begun.or_else(|| Some(self.begun.load(Ordering::SeqCst)));
            }
            if begun.is_some_and(|begun| self.are_handled(begun)) || Instant::now() >= until {
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Returns the threads that serve the kernel, except this one.
fn serving_threads() -> BTreeSet<String> {
    // SAFETY: no preconditions.
    let own = unsafe { libc::gettid() }.to_string();
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return BTreeSet::new() };
    let names = threads.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let serves = |thread: &String| {
        let name = fs::read_to_string(format!("/proc/self/task/{thread}/comm")).unwrap_or_default();
        name.starts_with(SERVING) && *thread != own
    };
    names.filter(serves).collect()
}

/// Whether a thread sleeps in a system call: it waits for the next request, or has begun to serve one.
fn is_asleep(thread: &str) -> bool {
    match fs::read_to_string(format!("/proc/self/task/{thread}/syscall")) {
        Ok(line) => line.starts_with(|first: char| first.is_ascii_digit()),
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_wait_ends_when_the_releases_in_progress_have_ended() {
        let releases = Releases::default();
        releases.settle();
        let (begun, has_begun) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let releasing = releases.begin();
                begun.send(()).expect("received");
                std::thread::yield_now();
                drop(releasing);
            });
            has_begun.recv().expect("sent");
            releases.settle();
            assert!(!releases.are_in_progress());
        });
    }

    #[test]
    fn a_wait_does_not_count_ends_that_begin_later() {
        let releases = Releases::default();
        let first = releases.begin();
        let begun = releases.begun.load(Ordering::SeqCst);
        let later = releases.begin();
        assert!(!releases.are_handled(begun));
        drop(first);
        assert!(releases.are_handled(begun) && releases.are_in_progress());
        drop(later);
    }
}
