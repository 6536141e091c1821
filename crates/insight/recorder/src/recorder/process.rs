//! The files of one traced process: the mapped tail and the part file.

use super::mapping::{Mapping, reserve};
use super::names::{FileNumbers, text};
use super::part_file::{PartFile, no_descriptor};
use crate::clock::{Anchor, host_name, monotonic_ns};
use crate::tail::*;
use crate::varint;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::*;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// State of a shard, guarded by its lock.
#[derive(Default)]
struct Shard {
    active: usize,
    /// Allocated bytes of each buffer.
    allocated: [usize; 2],
}

/// State of the name table, guarded by its lock.
struct NameTable {
    numbers: FileNumbers,
    /// Allocated bytes of the tail's name area.
    allocated: usize,
}

/// First disk allocation of an area in bytes.
///
/// Allocations double from here, so that a process with few operations takes little disk space.
const ALLOCATION_BYTES_MIN: usize = 8192;

/// The tail and the part file of one process.
pub struct Process {
    pub generation: u32,
    /// Monotonic time of the trace's time 0, in nanoseconds.
    pub anchor_ns: u64,
    tail: PathBuf,
    map: Mapping,
    shards: [Mutex<Shard>; SHARDS_MAX],
    // Lock order: shard, then part file, then names.
    part: Mutex<PartFile>,
    part_path: PathBuf,
    names: Mutex<NameTable>,
}

/// Locks a mutex and ignores poisoning: guarded state is consistent after every statement.
fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Process {
    pub fn new(dir: &Path, generation: u32, rank: u32, uncounted_lost: u64) -> io::Result<Self> {
        let anchor = Anchor::of_host(dir)?;
        let host = host_name();
        let (tail, file) = new_tail(dir, &host)?;
        let map = Mapping::new(&file, NAMES_OFFSET + ALLOCATION_BYTES_MIN)?;
        let program = std::fs::read("/proc/self/cmdline").unwrap_or_default();
        let program: Vec<u8> =
            program.trim_ascii_end().iter().map(|&byte| if byte == 0 { b' ' } else { byte }).collect();
        let program = &program.trim_ascii_end()[..program.trim_ascii_end().len().min(PROGRAM_LEN_MAX)];
        let host = &host.as_bytes()[..host.len().min(HOST_LEN_MAX)];
        map.put(header::HOST, host);
        map.put(header::PROGRAM, program);
        for (at, value) in [
            (header::VERSION, VERSION),
            (header::PROCESS, std::process::id()),
            (header::RANK, rank),
            (header::HOST_LEN, host.len() as u32),
            (header::PROGRAM_LEN, program.len() as u32),
        ] {
            map.u32_at(at).store(value, Relaxed);
        }
        map.u64_at(header::ANCHOR).store(anchor.unix_ns, Relaxed);
        map.u64_at(header::STARTED).store(monotonic_ns().saturating_sub(anchor.monotonic_ns), Relaxed);
        map.u64_at(header::LOST).store(uncounted_lost, Relaxed);
        // The magic number is stored last: readers ignore a file without it.
        map.put(0, MAGIC);
        let part_path = tail.with_extension("wtrace");
        Ok(Self {
            generation,
            anchor_ns: anchor.monotonic_ns,
            map,
            shards: Default::default(),
            part: Mutex::new(PartFile::new(part_path.clone())),
            part_path,
            names: Mutex::new(NameTable { numbers: FileNumbers::default(), allocated: ALLOCATION_BYTES_MIN }),
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
        self.map.u32_at(header::RANK).store(rank, Relaxed);
    }

    pub fn lost(&self, count: u64) {
        self.map.u64_at(header::LOST).fetch_add(count, Relaxed);
    }

    pub fn ended(&self, error: &io::Error) {
        let number = error.raw_os_error().unwrap_or(libc::EIO);
        self.map.u32_at(header::ENDED).store(number as u32, Relaxed);
    }

    /// Returns a file's number; `None` if all numbers are used or no descriptor is free to store the name.
    pub fn file_number(&self, name: &[u8]) -> io::Result<Option<u32>> {
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
            let len = self.map.u32_at(header::NAMES_LEN).load(Relaxed) as usize;
            if NAMES_OFFSET + len + entry.len() <= BUFFERS_OFFSET {
                let (used, most) = (len + entry.len(), BUFFERS_OFFSET - NAMES_OFFSET);
                if !self.ensure_allocated(NAMES_OFFSET, &mut names.allocated, used, most)? {
                    return Ok(None);
                }
                let number = names.numbers.add(&name);
                if number.is_some() {
                    self.map.put(NAMES_OFFSET + len, &entry);
                    self.map.u32_at(header::NAMES_LEN).store((len + entry.len()) as u32, Release);
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

    /// Stores a slot in the shard's active buffer. A slot that cannot be stored is counted as lost.
    pub fn push(&self, shard: usize, slot: &Slot) -> io::Result<()> {
        loop {
            let mut state = lock(&self.shards[shard]);
            let active = state.active;
            let buffer = 2 * shard + active;
            let base = BUFFERS_OFFSET + buffer * BUFFER_LEN;
            let count = self.count(&state, buffer);
            if count < SLOTS_PER_BUFFER {
                let end = SLOTS_OFFSET + (count + 1) * SLOT_LEN;
                let is_allocated = self.ensure_allocated(base, &mut state.allocated[active], end, BUFFER_LEN);
                if !is_allocated.inspect_err(|_| self.lost(1))? {
                    self.lost(1);
                    return Ok(());
                }
                if count == 0 {
                    self.map.u32_at(header::SHARDS).fetch_max(shard as u32 + 1, AcqRel);
                }
                self.map.put(base + SLOTS_OFFSET + count * SLOT_LEN, &slot.encode());
                self.map.u32_at(base).store(count as u32 + 1, Release);
                if count + 1 < SLOTS_PER_BUFFER {
                    return Ok(());
                }
                state.active ^= 1;
                drop(state);
                return self.drain(buffer);
            }
            // Both buffers are full. The thread that filled this one is still draining it, or has not begun.
            drop(state);
            self.drain(buffer).inspect_err(|_| self.lost(1))?;
        }
    }

    /// Number of slots in a buffer.
    fn count(&self, state: &Shard, buffer: usize) -> usize {
        match state.allocated[buffer % 2] {
            0 => 0,
            _ => self.map.u32_at(BUFFERS_OFFSET + buffer * BUFFER_LEN).load(Acquire) as usize,
        }
    }

    /// Ensures that `len` bytes from `base` have disk blocks.
    ///
    /// `allocated` is the number of bytes from `base` that already have blocks; `most` is the size of the area. Returns
    /// false if no descriptor is free.
    #[inline]
    fn ensure_allocated(
        &self,
        base: usize,
        allocated: &mut usize,
        len: usize,
        most: usize,
    ) -> io::Result<bool> {
        if len <= *allocated { Ok(true) } else { self.allocate(base, allocated, len, most) }
    }

    #[cold]
    fn allocate(&self, base: usize, allocated: &mut usize, len: usize, most: usize) -> io::Result<bool> {
        let file = match OpenOptions::new().write(true).open(&self.tail) {
            Err(error) if no_descriptor(&error) => return Ok(false),
            opened => opened?,
        };
        let wanted = len.max(2 * *allocated).next_multiple_of(ALLOCATION_BYTES_MIN).min(most);
        reserve(&file, base + *allocated, wanted - *allocated)?;
        *allocated = wanted;
        Ok(true)
    }

    /// Appends a buffer to the part file if the buffer is full.
    fn drain(&self, buffer: usize) -> io::Result<()> {
        let mut part = lock(&self.part);
        let count = self.map.u32_at(BUFFERS_OFFSET + buffer * BUFFER_LEN).load(Acquire) as usize;
        if count < SLOTS_PER_BUFFER { Ok(()) } else { self.drain_buffer(&mut part, buffer, count) }
    }

    /// Appends all buffers and names to the part file.
    pub fn flush(&self) -> io::Result<()> {
        for shard in 0..SHARDS_MAX {
            let state = lock(&self.shards[shard]);
            // The inactive buffer has the older slots.
            for buffer in [2 * shard + (state.active ^ 1), 2 * shard + state.active] {
                let mut part = lock(&self.part);
                let count = self.count(&state, buffer);
                if count > 0 {
                    self.drain_buffer(&mut part, buffer, count)?;
                }
            }
        }
        let mut part = lock(&self.part);
        self.drain_names(&mut part).map(drop)
    }

    /// Appends the first `count` slots of a buffer to which no thread writes meanwhile.
    fn drain_buffer(&self, part: &mut PartFile, buffer: usize, count: usize) -> io::Result<()> {
        if !self.drain_names(part)? {
            self.discard_buffer(buffer, count);
            return Ok(());
        }
        let base = BUFFERS_OFFSET + buffer * BUFFER_LEN;
        self.map.u64_at(header::DRAINED).store(part.records(), Release);
        self.map.u32_at(header::DRAINING).store(buffer as u32 + 1, Release);
        let written = part.records_block(self.map.get(base + SLOTS_OFFSET, count * SLOT_LEN))?;
        if !written {
            self.discard_buffer(buffer, count);
            return Ok(());
        }
        self.map.u32_at(base).store(0, Release);
        self.map.u32_at(header::DRAINING).store(0, Release);
        Ok(())
    }

    /// Discards a buffer that cannot be written because no descriptor is free, so that the process can continue.
    fn discard_buffer(&self, buffer: usize, count: usize) {
        self.lost(count as u64);
        self.map.u32_at(BUFFERS_OFFSET + buffer * BUFFER_LEN).store(0, Release);
        self.map.u32_at(header::DRAINING).store(0, Release);
    }

    /// Appends the names that the part file does not have yet. Returns false if no descriptor is free.
    fn drain_names(&self, part: &mut PartFile) -> io::Result<bool> {
        let names = lock(&self.names);
        let len = self.map.u32_at(header::NAMES_LEN).load(Relaxed) as usize;
        if len == 0 {
            return Ok(true);
        }
        let (bytes, count) = (self.map.get(NAMES_OFFSET, len), names.numbers.next() - part.names());
        if !part.names_block(bytes, count)? {
            return Ok(false);
        }
        // The length is cleared first: readers ignore the first number of an empty list.
        self.map.u32_at(header::NAMES_LEN).store(0, Release);
        self.map.u32_at(header::NAMES_FIRST).store(part.names(), Release);
        Ok(true)
    }
}

/// Creates `HOST.PROCESS.N.wtail`, where N counts the programs that the process has executed so far.
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
