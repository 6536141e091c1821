//! Where ranks wait for each other: barriers in memory that their processes share.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// After so long a rank gives up on the others.
const PATIENCE: Duration = Duration::from_secs(600);

/// So often a rank that keeps its processor looks for the others before it looks at the clock.
const LOOKS: u32 = 1000;

/// Told by a rank that stops because of another one's trouble.
pub const OTHER_FAILED: &str = "another rank failed";

/// The memory, made by the parent and opened by each rank.
#[derive(Debug)]
pub struct MeetingFile {
    fd: OwnedFd,
}

impl MeetingFile {
    /// For so many ranks.
    ///
    /// # Errors
    /// Those of memfd_create(2) and ftruncate(2).
    pub fn new(ranks: u32) -> io::Result<Self> {
        // SAFETY: the name is a C string, and the descriptor that comes back is owned by nobody else.
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

    /// How another process of this user opens it.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.fd.as_raw_fd())
    }
}

/// One rank's view of it.
#[derive(Debug)]
pub struct Meeting {
    words: NonNull<AtomicU32>,
    ranks: u32,
    /// Whether who waits keeps its processor.
    spin: bool,
}

/// A flag of failure; then who has come and how often all have met, for the group that begins with each rank and for
/// all ranks together.
const fn words(ranks: u32) -> usize {
    1 + 2 * (ranks as usize + 1)
}

const fn bytes(ranks: u32) -> usize {
    words(ranks) * size_of::<AtomicU32>()
}

impl Meeting {
    /// Opens what [`MeetingFile::path`] names, to wait there with or without sleeping.
    ///
    /// # Errors
    /// Those of open(2) and mmap(2).
    pub fn open(path: &str, ranks: u32, spin: bool) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        // SAFETY: a new shared mapping of a descriptor that is valid during the call; nothing else lies there.
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
        assert!(index < words(self.ranks), "word {index} of a meeting of {} ranks", self.ranks);
        // SAFETY: the index lies within the mapping, which lives as long as `self`; all access is atomic.
        unsafe { self.words.add(index).as_ref() }
    }

    /// Tells all who wait or come later that a rank failed.
    pub fn fail(&self) {
        self.word(0).store(1, Ordering::SeqCst);
        (0..=self.ranks as usize).for_each(|group| wake(self.word(2 + 2 * group)));
    }

    /// Waits for all ranks of `group`, which begins with a rank that no other group begins with.
    ///
    /// # Errors
    /// When another rank failed or does not come.
    pub fn meet(&self, group: &Range<u32>) -> Result<(), String> {
        self.meet_at(group.start as usize, group.end - group.start)
    }

    /// Waits for all ranks.
    ///
    /// # Errors
    /// As [`Meeting::meet`].
    pub fn meet_all(&self) -> Result<(), String> {
        self.meet_at(self.ranks as usize, self.ranks)
    }

    fn meet_at(&self, slot: usize, members: u32) -> Result<(), String> {
        let (arrived, met) = (self.word(1 + 2 * slot), self.word(2 + 2 * slot));
        let round = met.load(Ordering::SeqCst);
        if arrived.fetch_add(1, Ordering::SeqCst) + 1 == members {
            arrived.store(0, Ordering::SeqCst);
            met.fetch_add(1, Ordering::SeqCst);
            wake(met);
            return Ok(());
        }
        let begin = Instant::now();
        while met.load(Ordering::SeqCst) == round {
            if self.word(0).load(Ordering::SeqCst) != 0 {
                return Err(OTHER_FAILED.to_owned());
            }
            if begin.elapsed() > PATIENCE {
                return Err(format!("waited {} s for other ranks", PATIENCE.as_secs()));
            }
            if self.spin {
                (0..LOOKS)
                    .take_while(|_| met.load(Ordering::SeqCst) == round)
                    .for_each(|_| std::hint::spin_loop());
            } else {
                wait(met, round);
            }
        }
        Ok(())
    }
}

impl Drop for Meeting {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this address and length, and nothing borrows from it any more.
        unsafe { libc::munmap(self.words.as_ptr().cast(), bytes(self.ranks)) };
    }
}

/// Sleeps while `word` is `value`, at most a second.
fn wait(word: &AtomicU32, value: u32) {
    let second = libc::timespec { tv_sec: 1, tv_nsec: 0 };
    // SAFETY: the word is valid for the call, and the kernel only reads the time.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &raw const second) };
}

fn wake(word: &AtomicU32) {
    // SAFETY: the word is valid for the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn groups_meet_by_themselves_and_nobody_runs_ahead() {
        groups_meet(false, 100);
    }

    #[test]
    fn groups_meet_without_sleeping() {
        groups_meet(true, 1);
    }

    fn groups_meet(spin: bool, scale: u64) {
        let ranks = 5;
        let file = MeetingFile::new(ranks).unwrap();
        let counts: [AtomicU64; 2] = Default::default();
        std::thread::scope(|scope| {
            for rank in 0..ranks {
                let (path, counts) = (file.path(), &counts);
                scope.spawn(move || {
                    let meeting = Meeting::open(&path, ranks, spin).unwrap();
                    let (index, group, rounds) =
                        if rank < 3 { (0, 0..3, 5 * scale) } else { (1, 3..5, 7 * scale) };
                    for round in 1..=rounds {
                        counts[index].fetch_add(1, Ordering::SeqCst);
                        meeting.meet(&group).unwrap();
                        let members = u64::from(group.end - group.start);
                        assert!(counts[index].load(Ordering::SeqCst) >= round * members, "round {round}");
                        meeting.meet(&group).unwrap();
                    }
                    meeting.meet_all().unwrap();
                });
            }
        });
        assert_eq!(counts.map(AtomicU64::into_inner), [15 * scale, 14 * scale]);
    }

    #[test]
    fn who_waits_hears_of_failure() {
        let file = MeetingFile::new(2).unwrap();
        let open = || Meeting::open(&file.path(), 2, false).unwrap();
        let (a, b) = (open(), open());
        std::thread::scope(|scope| {
            // A mapping is not shared between threads by itself: each thread opens its own.
            let path = file.path();
            let waits = scope.spawn(move || Meeting::open(&path, 2, true).unwrap().meet_all());
            b.fail();
            assert_eq!(waits.join().unwrap(), Err(OTHER_FAILED.to_owned()));
        });
        assert_eq!(a.meet(&(0..2)), Err(OTHER_FAILED.to_owned()));
    }
}
