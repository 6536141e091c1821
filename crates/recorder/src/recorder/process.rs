//! The files of one process: its tail, mapped, and its part.

use super::drain::{Part, no_descriptor};
use super::mapping::{Mapping, reserve};
use super::names::{Numbers, text};
use crate::clock::{Anchor, host_name, monotonic_ns};
use crate::tail::*;
use crate::varint;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::*;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a shard's lock guards: which half takes slots.
#[derive(Default)]
struct Shard {
    active: usize,
    /// How much of each half has its room on the disk.
    room: [usize; 2],
}

/// What the lock of the names guards.
struct Named {
    numbers: Numbers,
    /// How much of the names' place has its room on the disk.
    room: usize,
}

/// The first room that is taken of a place. Then as much again each time: processes that do little take little.
const ROOM_MIN: usize = 8192;

/// See the module.
pub struct Process {
    pub generation: u32,
    /// What time 0 is on the monotonic clock.
    pub anchor_ns: u64,
    tail: PathBuf,
    map: Mapping,
    shards: [Mutex<Shard>; SHARDS],
    // Lock order: a shard, the part, the names.
    part: Mutex<Part>,
    part_path: PathBuf,
    names: Mutex<Named>,
}

/// A lock whose holder panicked is as good as any other: what it guards is whole between statements.
fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Process {
    pub fn new(dir: &Path, generation: u32, rank: u32, missed: u64) -> io::Result<Self> {
        let anchor = Anchor::of_host(dir)?;
        let host = host_name();
        let (tail, file) = new_tail(dir, &host)?;
        let map = Mapping::new(&file, NAMES_AT + ROOM_MIN)?;
        let program = std::fs::read("/proc/self/cmdline").unwrap_or_default();
        let program: Vec<u8> =
            program.trim_ascii_end().iter().map(|&byte| if byte == 0 { b' ' } else { byte }).collect();
        let program = &program.trim_ascii_end()[..program.trim_ascii_end().len().min(PROGRAM_LEN_MAX)];
        let host = &host.as_bytes()[..host.len().min(HOST_LEN_MAX)];
        map.put(at::HOST, host);
        map.put(at::PROGRAM, program);
        for (at, value) in [
            (at::VERSION, VERSION),
            (at::PROCESS, std::process::id()),
            (at::RANK, rank),
            (at::HOST_LEN, host.len() as u32),
            (at::PROGRAM_LEN, program.len() as u32),
        ] {
            map.half(at).store(value, Relaxed);
        }
        map.word(at::ANCHOR).store(anchor.unix_ns, Relaxed);
        map.word(at::STARTED).store(monotonic_ns().saturating_sub(anchor.monotonic_ns), Relaxed);
        map.word(at::LOST).store(missed, Relaxed);
        // Last: a head without it is none.
        map.put(0, MAGIC);
        let part_path = tail.with_extension("wtrace");
        Ok(Self {
            generation,
            anchor_ns: anchor.monotonic_ns,
            map,
            shards: Default::default(),
            part: Mutex::new(Part::new(part_path.clone())),
            part_path,
            names: Mutex::new(Named { numbers: Numbers::default(), room: ROOM_MIN }),
            tail,
        })
    }

    pub fn unmap(&self) {
        self.map.unmap();
    }

    pub fn part(&self) -> &Path {
        &self.part_path
    }

    pub fn set_rank(&self, rank: u32) {
        self.map.half(at::RANK).store(rank, Relaxed);
    }

    pub fn lost(&self, count: u64) {
        self.map.word(at::LOST).fetch_add(count, Relaxed);
    }

    pub fn ended(&self, error: &io::Error) {
        let number = error.raw_os_error().unwrap_or(libc::EIO);
        self.map.half(at::ENDED).store(number as u32, Relaxed);
    }

    /// The number of a file; `None` when there is none left, or no descriptor to write its name by.
    pub fn number(&self, name: &[u8]) -> io::Result<Option<u32>> {
        let name = text(name);
        let mut entry = Vec::new();
        loop {
            let mut names = lock(&self.names);
            if let Some(number) = names.numbers.get(&name) {
                return Ok(Some(number));
            }
            if entry.is_empty() {
                entry.push(0);
                varint::put(&mut entry, name.len() as u64);
                entry.extend_from_slice(name.as_bytes());
            }
            let len = self.map.half(at::NAMES_LEN).load(Relaxed) as usize;
            if NAMES_AT + len + entry.len() <= HALVES_AT {
                if !self.has_room(NAMES_AT, &mut names.room, len + entry.len(), HALVES_AT - NAMES_AT)? {
                    return Ok(None);
                }
                let number = names.numbers.add(&name);
                if number.is_some() {
                    self.map.put(NAMES_AT + len, &entry);
                    self.map.half(at::NAMES_LEN).store((len + entry.len()) as u32, Release);
                }
                return Ok(number);
            }
            drop(names);
            let mut part = lock(&self.part);
            if !self.drain_names(&mut part)? {
                return Ok(None);
            }
        }
    }

    /// Puts a slot where the thread's shard has room; what finds none is counted as lost.
    pub fn push(&self, shard: usize, slot: &Slot) -> io::Result<()> {
        loop {
            let mut state = lock(&self.shards[shard]);
            let active = state.active;
            let half = 2 * shard + active;
            let base = HALVES_AT + half * HALF_LEN;
            let count = self.count(&state, half);
            if count < SLOTS {
                let end = SLOTS_AT + (count + 1) * SLOT_LEN;
                let has_room = self.has_room(base, &mut state.room[active], end, HALF_LEN);
                if !has_room.inspect_err(|_| self.lost(1))? {
                    self.lost(1);
                    return Ok(());
                }
                if count == 0 {
                    self.map.half(at::SHARDS).fetch_max(shard as u32 + 1, AcqRel);
                }
                self.map.put(base + SLOTS_AT + count * SLOT_LEN, &slot.encode());
                self.map.half(base).store(count as u32 + 1, Release);
                if count + 1 < SLOTS {
                    return Ok(());
                }
                state.active ^= 1;
                drop(state);
                return self.drain(half);
            }
            // Both halves are full: whoever filled this one is writing it, or has not begun.
            drop(state);
            self.drain(half).inspect_err(|_| self.lost(1))?;
        }
    }

    /// How many slots a half has.
    fn count(&self, state: &Shard, half: usize) -> usize {
        match state.room[half % 2] {
            0 => 0,
            _ => self.map.half(HALVES_AT + half * HALF_LEN).load(Acquire) as usize,
        }
    }

    /// Sees that `len` bytes from `base` on have their room, of which `room` says how much there is and `most` how much there
    /// can be; false when there is no descriptor to do it by.
    #[inline]
    fn has_room(&self, base: usize, room: &mut usize, len: usize, most: usize) -> io::Result<bool> {
        if len <= *room { Ok(true) } else { self.make_room(base, room, len, most) }
    }

    #[cold]
    fn make_room(&self, base: usize, room: &mut usize, len: usize, most: usize) -> io::Result<bool> {
        let file = match OpenOptions::new().write(true).open(&self.tail) {
            Err(error) if no_descriptor(&error) => return Ok(false),
            opened => opened?,
        };
        let wanted = len.max(2 * *room).next_multiple_of(ROOM_MIN).min(most);
        reserve(&file, base + *room, wanted - *room)?;
        *room = wanted;
        Ok(true)
    }

    /// Appends a half to the part if it is full.
    fn drain(&self, half: usize) -> io::Result<()> {
        let mut part = lock(&self.part);
        let count = self.map.half(HALVES_AT + half * HALF_LEN).load(Acquire) as usize;
        if count < SLOTS { Ok(()) } else { self.drain_half(&mut part, half, count) }
    }

    /// Appends everything.
    pub fn flush(&self) -> io::Result<()> {
        for shard in 0..SHARDS {
            let state = lock(&self.shards[shard]);
            // The other half first, which has the older slots.
            for half in [2 * shard + (state.active ^ 1), 2 * shard + state.active] {
                let mut part = lock(&self.part);
                let count = self.count(&state, half);
                if count > 0 {
                    self.drain_half(&mut part, half, count)?;
                }
            }
        }
        let mut part = lock(&self.part);
        self.drain_names(&mut part).map(drop)
    }

    /// Appends the first `count` slots of a half, in which nobody writes meanwhile.
    fn drain_half(&self, part: &mut Part, half: usize, count: usize) -> io::Result<()> {
        if !self.drain_names(part)? {
            self.drop_half(half, count);
            return Ok(());
        }
        let base = HALVES_AT + half * HALF_LEN;
        self.map.word(at::DRAINED).store(part.records(), Release);
        self.map.half(at::DRAINING).store(half as u32 + 1, Release);
        let written = part.records_block(self.map.get(base + SLOTS_AT, count * SLOT_LEN))?;
        if !written {
            self.drop_half(half, count);
            return Ok(());
        }
        self.map.half(base).store(0, Release);
        self.map.half(at::DRAINING).store(0, Release);
        Ok(())
    }

    /// What cannot be written for want of a descriptor is given up, so that the process can go on.
    fn drop_half(&self, half: usize, count: usize) {
        self.lost(count as u64);
        self.map.half(HALVES_AT + half * HALF_LEN).store(0, Release);
        self.map.half(at::DRAINING).store(0, Release);
    }

    /// Appends the names that are not in the part; false when there is no descriptor to do it by.
    fn drain_names(&self, part: &mut Part) -> io::Result<bool> {
        let names = lock(&self.names);
        let len = self.map.half(at::NAMES_LEN).load(Relaxed) as usize;
        if len == 0 {
            return Ok(true);
        }
        let (bytes, count) = (self.map.get(NAMES_AT, len), names.numbers.next() - part.names());
        if !part.names_block(bytes, count)? {
            return Ok(false);
        }
        // In this order: without a length there are no names, whatever their first number.
        self.map.half(at::NAMES_LEN).store(0, Release);
        self.map.half(at::NAMES_FIRST).store(part.names(), Release);
        Ok(true)
    }
}

/// Makes the tail: `HOST.PROCESS.N.wtail`, N counting the programs that the process has executed.
fn new_tail(dir: &Path, host: &str) -> io::Result<(PathBuf, File)> {
    let host: String = host.chars().map(|c| if c == '/' || c == '\0' { '_' } else { c }).collect();
    for number in 0u32.. {
        let path = dir.join(format!("{host}.{}.{number}.wtail", std::process::id()));
        match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(file) => return Ok((path, file)),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}
