//! Ends of open files that the kernel has reported but that no lock request may overtake.
//!
//! A close returns to the program before the mount has handled the end of the open file. The kernel reports that end before
//! the program's next request, but another thread may serve that one first. A program must not see a lock that it gave back by
//! closing. So a request that meets a lock of an open file waits until no thread can have such an end in its hands.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Pause between looks at the serving threads.
const PAUSE: Duration = Duration::from_micros(200);
/// Maximum time of a wait. A thread of an overloaded host may run that long without sleeping.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Prefix of the names of threads that serve the kernel (fuser 0.18).
const SERVING: &str = "fuser-";

/// Ends of open files in progress.
#[derive(Default)]
pub struct Releases(AtomicU32);

/// End of an open file in progress, until dropped.
pub struct Releasing<'a>(&'a Releases);

impl Drop for Releasing<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Releases {
    /// Begins the end of an open file, before its thread can sleep.
    pub fn begin(&self) -> Releasing<'_> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Releasing(self)
    }

    /// Whether a thread handles the end of an open file.
    pub fn are_in_progress(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }

    /// Waits until all ends that the kernel has reported before this call are handled.
    pub fn settle(&self) {
        let until = Instant::now() + WAIT_MAX;
        let mut left = serving_threads();
        loop {
            left.retain(|thread| !is_asleep(thread));
            if left.is_empty() && !self.are_in_progress() || Instant::now() >= until {
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
            assert_eq!(releases.0.load(Ordering::SeqCst), 0);
        });
    }
}
