//! Actors that draw operations on one page of one file of a mount. Each owns some bytes of the page, which no other
//! changes, so that every operation has one right result.

use super::Random;
use super::mounts::{Mounted, Watchdog};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};

pub const PAGE: usize = 4096;
/// Length of the bytes of an actor.
pub const OWN: usize = 700;
/// Time after which an operation counts as hanging, in seconds.
pub const LIMIT_S: u32 = 30;

#[derive(Clone, Copy, Debug)]
pub enum Op {
    Open {
        flags: i32,
    },
    Close,
    Write {
        at: usize,
        len: usize,
        byte: u8,
    },
    Read,
    Map,
    Unmap,
    Store {
        at: usize,
        len: usize,
        byte: u8,
    },
    Load,
    SyncMap,
    SyncFile,
    Cut {
        len: u64,
    },
    Punch {
        at: usize,
        len: usize,
    },
    Zero {
        at: usize,
        len: usize,
    },
    Stat,
    /// Reads the whole file through a new open.
    Reopen {
        flags: i32,
    },
}

/// A shared mapping of the first pages of a file.
pub struct Map(*mut u8, usize);

// SAFETY: the mapping belongs to this value.
unsafe impl Send for Map {}
// SAFETY: all accesses are volatile, and of bytes that no other thread stores into.
unsafe impl Sync for Map {}

impl Map {
    pub fn new(file: &File, len: usize, writes: bool) -> Self {
        let protection = libc::PROT_READ | if writes { libc::PROT_WRITE } else { 0 };
        // SAFETY: a new mapping.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Self(at.cast(), len)
    }

    pub fn load(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at + len <= self.1);
        // SAFETY: in the mapping; volatile, because others change the file.
        (at..at + len).map(|at| unsafe { self.0.add(at).read_volatile() }).collect()
    }

    pub fn store(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.1);
        for (index, byte) in bytes.iter().enumerate() {
            // SAFETY: in the mapping; volatile, because others read the file.
            unsafe { self.0.add(at + index).write_volatile(*byte) };
        }
    }

    pub fn sync(&self) {
        // SAFETY: the mapping of this value.
        assert_eq!(unsafe { libc::msync(self.0.cast(), self.1, libc::MS_SYNC) }, 0);
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping of this value.
        unsafe { libc::munmap(self.0.cast(), self.1) };
    }
}

pub struct Actor {
    path: PathBuf,
    /// First byte that this actor owns.
    pub start: usize,
    /// Bytes up to which the file is never cut.
    least: usize,
    own: Vec<u8>,
    file: Option<(File, i32)>,
    map: Option<(Map, bool)>,
}

fn writes(flags: i32) -> bool {
    flags & libc::O_ACCMODE != libc::O_RDONLY
}

fn reads(flags: i32) -> bool {
    flags & libc::O_ACCMODE != libc::O_WRONLY
}

fn open(path: &Path, flags: i32) -> File {
    let mut options = OpenOptions::new();
    options.read(reads(flags)).write(writes(flags)).custom_flags(flags & !libc::O_ACCMODE);
    options.open(path).expect("opened")
}

impl Actor {
    /// Draws an operation that is possible now.
    fn draw(&self, random: &mut Random, may_cut: bool) -> Op {
        let at = random.below(OWN as u64 - 1) as usize;
        let len = 1 + random.below((OWN - at) as u64) as usize;
        let byte = random.next() as u8;
        let Some((_, flags)) = self.file else {
            let access = [libc::O_RDONLY, libc::O_RDWR, libc::O_RDWR, libc::O_RDWR, libc::O_WRONLY];
            let more = [0, 0, 0, libc::O_APPEND, libc::O_DIRECT];
            let flags = access[random.below(5) as usize] | more[random.below(5) as usize];
            // Appends would write elsewhere.
            return Op::Open { flags: if writes(flags) { flags & !libc::O_APPEND } else { flags } };
        };
        match (random.below(20), &self.map) {
            (0, _) => Op::Close,
            (1, Some(_)) => Op::Unmap,
            (2, _) => Op::Stat,
            (3, _) => Op::Reopen { flags: [0, libc::O_DIRECT][random.below(2) as usize] },
            (4, _) if writes(flags) => Op::SyncFile,
            (5, _) if writes(flags) && may_cut => {
                Op::Cut { len: (self.least as u64) + [0, 1, 512, 1404, 4608][random.below(5) as usize] }
            }
            (6, _) if writes(flags) => Op::Punch { at, len },
            (7, _) if writes(flags) => Op::Zero { at, len },
            (8..11, _) if writes(flags) => Op::Write { at, len, byte },
            (11..15, Some((_, true))) => Op::Store { at, len, byte },
            (15, Some(_)) => Op::SyncMap,
            (16, Some(_)) => Op::Load,
            (17.., _) if reads(flags) => Op::Read,
            (_, None) if reads(flags) => Op::Map,
            (_, Some(_)) => Op::Load,
            _ => Op::Stat,
        }
    }

    pub fn check(&self, got: &[u8], how: &str) -> Result<(), String> {
        match got.iter().zip(&self.own).position(|(a, b)| a != b) {
            None if got.len() == OWN => Ok(()),
            None => Err(format!("{how}: only {} bytes", got.len())),
            Some(at) => {
                Err(format!("{how}: byte {at} of {} is {}, not {}", self.start, got[at], self.own[at]))
            }
        }
    }

    fn allocate(&mut self, mode: i32, at: usize, len: usize) {
        let (file, _) = self.file.as_ref().expect("open");
        let offset = (self.start + at) as libc::off_t;
        // SAFETY: only integers.
        let done = unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, len as libc::off_t) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        self.own[at..at + len].fill(0);
    }

    /// Does an operation and checks what this actor then sees.
    fn act(&mut self, op: Op) -> Result<(), String> {
        let end = (self.start + OWN).next_multiple_of(PAGE);
        let file = self.file.as_ref().map(|(file, flags)| (file, *flags));
        match (op, file) {
            (Op::Open { flags }, _) => self.file = Some((open(&self.path, flags), flags)),
            (Op::Close, _) => self.file = None,
            (Op::Write { at, len, byte }, Some((file, _))) => {
                let bytes: Vec<u8> = (0..len).map(|index| byte.wrapping_add(index as u8)).collect();
                file.write_all_at(&bytes, (self.start + at) as u64).expect("written");
                self.own[at..at + len].copy_from_slice(&bytes);
            }
            (Op::Map, Some((file, flags))) => {
                self.map = Some((Map::new(file, end, writes(flags)), writes(flags)));
            }
            (Op::Unmap, _) => self.map = None,
            (Op::Store { at, len, byte }, _) => {
                let bytes: Vec<u8> = (0..len).map(|index| byte.wrapping_sub(index as u8)).collect();
                self.map.as_ref().expect("mapped").0.store(self.start + at, &bytes);
                self.own[at..at + len].copy_from_slice(&bytes);
            }
            (Op::SyncMap, _) => self.map.as_ref().expect("mapped").0.sync(),
            (Op::SyncFile, Some((file, _))) => file.sync_all().expect("synchronized"),
            (Op::Cut { len }, Some((file, _))) => file.set_len(len).expect("cut"),
            (Op::Punch { at, len }, _) => {
                self.allocate(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, at, len);
            }
            (Op::Zero { at, len }, _) => self.allocate(libc::FALLOC_FL_ZERO_RANGE, at, len),
            (Op::Stat, Some((file, _))) => {
                let len = file.metadata().expect("there").len();
                if len < self.least as u64 {
                    return Err(format!("only {len} bytes long"));
                }
            }
            (Op::Reopen { flags }, _) => {
                let whole = read_all(&open(&self.path, flags), flags)?;
                if let Some(at) = whole.iter().skip(self.least).position(|byte| *byte != 0) {
                    return Err(format!("reopened: byte {} is {}", self.least + at, whole[self.least + at]));
                }
                let from = self.start.min(whole.len());
                self.check(&whole[from..(self.start + OWN).min(whole.len())], "reopened")?;
            }
            _ => {}
        }
        if let Some((map, _)) = &self.map {
            self.check(&map.load(self.start, OWN), "mapped")?;
        }
        if let Some((file, flags)) = &self.file
            && reads(*flags)
        {
            let whole = read_all(file, *flags)?;
            let from = self.start.min(whole.len());
            self.check(&whole[from..(self.start + OWN).min(whole.len())], "read")?;
        }
        Ok(())
    }
}

/// Reads at most four pages, into a buffer that suits direct reads.
fn read_all(file: &File, flags: i32) -> Result<Vec<u8>, String> {
    let mut buffer = vec![0u8; 5 * PAGE];
    let skip = buffer.as_ptr().align_offset(PAGE);
    let got =
        file.read_at(&mut buffer[skip..skip + 4 * PAGE], 0).map_err(|e| format!("read {flags:o}: {e}"))?;
    Ok(buffer[skip..skip + got].to_vec())
}

/// An actor on a thread of its own; `None` while it acts.
pub struct Role {
    tasks: Sender<(Actor, Op)>,
    answers: Receiver<(Actor, Result<(), String>)>,
    actor: Option<Actor>,
}

/// Actors, and the mounts that they use.
pub struct Stage {
    watchdog: Watchdog,
    pub mounts: Vec<Mounted>,
    pub cast: Vec<Role>,
}

impl Stage {
    pub fn new(mounts: Vec<Mounted>, actors: Vec<Actor>) -> Self {
        let cast = actors.into_iter().map(|actor| {
            let (tasks, theirs) = channel::<(Actor, Op)>();
            let (answer, answers) = channel();
            std::thread::spawn(move || {
                for (mut actor, op) in theirs {
                    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| actor.act(op)));
                    let done = done.unwrap_or_else(|_| Err("failed".to_owned()));
                    if answer.send((actor, done)).is_err() {
                        return;
                    }
                }
            });
            Role { tasks, answers, actor: Some(actor) }
        });
        let cast = cast.collect();
        Self { watchdog: Watchdog::new(&mounts, LIMIT_S), mounts, cast }
    }

    pub fn actor(&self, number: usize) -> &Actor {
        self.cast[number].actor.as_ref().expect("idle")
    }

    /// Has actors do one operation each, at the same time.
    pub fn play(&mut self, ops: &[(usize, Op)], what: &str) {
        self.watchdog.expect(&format!("{what}: {ops:?}"));
        for &(number, op) in ops {
            let role = &mut self.cast[number];
            role.tasks.send((role.actor.take().expect("idle"), op)).expect("sent");
        }
        for &(number, _) in ops {
            let role = &mut self.cast[number];
            let (back, done) = role.answers.recv().expect("answered");
            role.actor = Some(back);
            if let Err(error) = done {
                panic!("{what}: actor {number} in {ops:?}: {error}");
            }
        }
    }

    pub fn play_random(&mut self, random: &mut Random, seed: u64, steps: usize, may_cut: bool) {
        for step in 0..steps {
            let first = random.below(self.cast.len() as u64) as usize;
            let second = (first + 1 + random.below(self.cast.len() as u64 - 1) as usize) % self.cast.len();
            // One that cuts the file leaves the bytes of all others alone.
            let ops = [(first, may_cut), (second, false)]
                .map(|(number, may_cut)| (number, self.actor(number).draw(random, may_cut)));
            self.play(&ops, &format!("seed {seed}, step {step}"));
        }
        for number in 0..self.cast.len() {
            self.play(&[(number, Op::Unmap)], "at the end");
            self.play(&[(number, Op::Close)], "at the end");
        }
    }
}

pub fn actor(mount: &Mounted, start: usize, least: usize) -> Actor {
    Actor { path: mount.at("file"), start, least, own: vec![0; OWN], file: None, map: None }
}
