//! Barriers in memory that the processes of all ranks share.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Maximum time that a rank waits at a barrier.
const WAIT_TIMEOUT: Duration = Duration::from_secs(600);

/// Checks of the barrier between two reads of the clock, for ranks that spin.
const CHECKS_PER_CLOCK_READ: u32 = 1000;

/// Error of a rank that stops because another rank failed.
pub const OTHER_FAILED: &str = "another rank failed";

/// The shared memory, created by the parent and opened by each rank.
#[derive(Debug)]
pub struct BarrierFile {
    fd: OwnedFd,
}

impl BarrierFile {
    /// Creates the memory for `ranks` ranks.
    ///
    /// # Errors
    /// Returns the error of `memfd_create(2)` or `ftruncate(2)`.
    pub fn new(ranks: u32) -> io::Result<Self> {
        // SAFETY: the name is a C string, and nothing else owns the new descriptor.
        let fd = unsafe {
            let fd = libc::memfd_create(c"weft-bench".as_ptr(), libc::MFD_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        let file = Self { fd };
        File::from(file.fd.try_clone()?).set_len(bytes(ranks) as u64)?;
        Ok(file)
    }

    /// Path by which other processes of this user can open the memory.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.fd.as_raw_fd())
    }
}

/// One rank's mapping of the shared memory.
#[derive(Debug)]
pub struct Barrier {
    words: NonNull<AtomicU32>,
    ranks: u32,
    /// Whether to spin instead of sleeping.
    spin: bool,
}

/// Number of words in the memory.
///
/// Word 0 is set when a rank fails. Then each barrier has two words: the number of ranks that have arrived, and the
/// number of completed rounds. Barrier r is for the group whose first rank is r; the last barrier is for all ranks.
const fn words(ranks: u32) -> usize {
    1 + 2 * (ranks as usize + 1)
}

const fn bytes(ranks: u32) -> usize {
    words(ranks) * size_of::<AtomicU32>()
}

impl Barrier {
    /// Maps the memory at `path`, the result of [`BarrierFile::path`].
    ///
    /// # Errors
    /// Returns the error of `open(2)` or `mmap(2)`.
    pub fn open(path: &str, ranks: u32, spin: bool) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        // SAFETY: a new shared mapping of a descriptor that is valid during the call; the kernel chooses the address.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes(ranks),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(at.cast()) {
            Some(words) if at != libc::MAP_FAILED => Ok(Self { words, ranks, spin }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn word(&self, index: usize) -> &AtomicU32 {
        assert!(index < words(self.ranks), "word {index} of a barrier for {} ranks", self.ranks);
        // SAFETY: the index is within the mapping, which lives as long as `self`; all accesses are atomic.
        unsafe { self.words.add(index).as_ref() }
    }

    /// Makes all ranks that wait now or later fail with [`OTHER_FAILED`].
    pub fn fail(&self) {
        self.word(0).store(1, Ordering::SeqCst);
        (0..=self.ranks as usize).for_each(|group| futex_wake(self.word(2 + 2 * group)));
    }

    /// Waits for all ranks of `group`. No other group may begin with the same rank.
    ///
    /// # Errors
    /// Fails if another rank failed or does not arrive in time.
    pub fn wait(&self, group: &Range<u32>) -> Result<(), String> {
        self.wait_at(group.start as usize, group.end - group.start)
    }

    /// Waits for all ranks.
    ///
    /// # Errors
    /// See [`Barrier::wait`].
    pub fn wait_all(&self) -> Result<(), String> {
        self.wait_at(self.ranks as usize, self.ranks)
    }

    fn wait_at(&self, slot: usize, members: u32) -> Result<(), String> {
        let (arrived, completed) = (self.word(1 + 2 * slot), self.word(2 + 2 * slot));
        let round = completed.load(Ordering::SeqCst);
        if arrived.fetch_add(1, Ordering::SeqCst) + 1 == members {
            arrived.store(0, Ordering::SeqCst);
            completed.fetch_add(1, Ordering::SeqCst);
            futex_wake(completed);
            return Ok(());
        }
        let begin = Instant::now();
        while completed.load(Ordering::SeqCst) == round {
            if self.word(0).load(Ordering::SeqCst) != 0 {
                return Err(OTHER_FAILED.to_owned());
            }
            if begin.elapsed() > WAIT_TIMEOUT {
                return Err(format!("waited {} s for other ranks", WAIT_TIMEOUT.as_secs()));
            }
            if self.spin {
                (0..CHECKS_PER_CLOCK_READ)
                    .take_while(|_| completed.load(Ordering::SeqCst) == round)
                    .for_each(|_| std::hint::spin_loop());
            } else {
                futex_wait(completed, round);
            }
        }
        Ok(())
    }
}

impl Drop for Barrier {
    fn drop(&mut self) {
        // SAFETY: the mapping was created with this address and length, and no reference to it remains.
        unsafe { libc::munmap(self.words.as_ptr().cast(), bytes(self.ranks)) };
    }
}

/// Sleeps until another process changes `word` from `value`, at most one second.
fn futex_wait(word: &AtomicU32, value: u32) {
    let second = libc::timespec { tv_sec: 1, tv_nsec: 0 };
    // SAFETY: the word is valid during the call, and the kernel only reads the timeout.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &raw const second) };
}

fn futex_wake(word: &AtomicU32) {
    // SAFETY: the word is valid during the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn groups_wait_independently_and_no_rank_runs_ahead() {
        groups_wait(false, 100);
    }

    #[test]
    fn groups_wait_without_sleeping() {
        groups_wait(true, 1);
    }

    fn groups_wait(spin: bool, scale: u64) {
        let ranks = 5;
        let file = BarrierFile::new(ranks).unwrap();
        let counts: [AtomicU64; 2] = Default::default();
        std::thread::scope(|scope| {
            for rank in 0..ranks {
                let (path, counts) = (file.path(), &counts);
                scope.spawn(move || {
                    let barrier = Barrier::open(&path, ranks, spin).unwrap();
                    let (index, group, rounds) =
                        if rank < 3 { (0, 0..3, 5 * scale) } else { (1, 3..5, 7 * scale) };
                    for round in 1..=rounds {
                        counts[index].fetch_add(1, Ordering::SeqCst);
                        barrier.wait(&group).unwrap();
                        let members = u64::from(group.end - group.start);
                        assert!(counts[index].load(Ordering::SeqCst) >= round * members, "round {round}");
                        barrier.wait(&group).unwrap();
                    }
                    barrier.wait_all().unwrap();
                });
            }
        });
        assert_eq!(counts.map(AtomicU64::into_inner), [15 * scale, 14 * scale]);
    }

    #[test]
    fn a_waiting_rank_learns_of_a_failure() {
        let file = BarrierFile::new(2).unwrap();
        let open = || Barrier::open(&file.path(), 2, false).unwrap();
        let (a, b) = (open(), open());
        std::thread::scope(|scope| {
            // Like a rank, each thread maps the memory itself.
            let path = file.path();
            let waiting = scope.spawn(move || Barrier::open(&path, 2, true).unwrap().wait_all());
            b.fail();
            assert_eq!(waiting.join().unwrap(), Err(OTHER_FAILED.to_owned()));
        });
        assert_eq!(a.wait(&(0..2)), Err(OTHER_FAILED.to_owned()));
    }
}
