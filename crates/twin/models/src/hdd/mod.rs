//! The hard disk model: arm, rotating platters, command queue, read-ahead and write cache.

mod arm;
mod dirty;
mod geometry;
mod seek;

use crate::drive::{Command, Drive, Verb};
use crate::time::{earliest, from_us, transfer};
use arm::Arm;
use dirty::Dirty;
use geometry::SECTOR;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Parameters of a hard disk, most of them from its data sheet.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HddSpec {
    /// Capacity in 10^9 bytes.
    pub capacity_gb: f64,
    /// Rotations per minute.
    pub rpm: u32,
    /// Number of recording surfaces.
    pub heads: u32,
    /// Number of zones of equal width. The density falls linearly from the outermost to the innermost.
    pub zones: u32,
    /// Sustained transfer rate at the outer edge, in 10^6 bytes per second.
    pub outer_mb_s: f64,
    /// Sustained transfer rate at the inner edge, in 10^6 bytes per second.
    pub inner_mb_s: f64,
    /// Microseconds to switch to another head of the same cylinder.
    pub head_switch_us: f64,
    /// Microseconds to switch to the next cylinder during a transfer.
    pub cylinder_switch_us: f64,
    /// Microseconds of a seek to the neighboring cylinder, including settling.
    pub seek_track_us: f64,
    /// Microseconds of a seek over a third of all cylinders, the average of data sheets.
    pub seek_average_us: f64,
    /// Microseconds of a seek over all cylinders.
    pub seek_full_us: f64,
    /// Microseconds that a write waits longer than a read for the head to settle.
    pub write_settle_us: f64,
    /// Microseconds between a command's arrival and its start, and between its end and the reply.
    pub command_us: f64,
    /// Transfer rate between host and disk memory, in 10^6 bytes per second.
    pub interface_mb_s: f64,
    /// Number of commands that the disk reorders. 1 is a disk without a queue.
    pub queue_depth: u32,
    /// Milliseconds after which a waiting command goes first.
    pub queue_age_ms: f64,
    /// Read-ahead after a read in KiB. 0 is none.
    pub read_ahead_kib: u64,
    /// Number of earlier read ranges that the memory keeps.
    pub segments: u32,
    /// Write cache in KiB. 0 is a cache that is switched off.
    pub write_cache_kib: u64,
}

/// Maximum length of a single write from the write cache to the platters, in sectors.
const DESTAGE_SECTORS: u64 = 2048;
/// Number of ranges of the write cache among which the arm chooses.
const DESTAGE_CHOICE: usize = 8;
/// Nanoseconds without commands after which the write cache is written to the platters.
const DESTAGE_IDLE: u64 = 2_000_000;

#[derive(Clone, Copy, Debug)]
struct Waiting {
    command: Command,
    arrived: u64,
    ready: u64,
}

/// Current work of the arm.
#[derive(Clone, Copy, Debug)]
enum Job {
    Host(Command),
    Destage { start: u64, end: u64 },
}

/// A hard disk.
pub(crate) struct Hdd {
    arm: Arm,
    command: u64,
    interface_mb_s: f64,
    depth: usize,
    age: u64,
    cache_sectors: u64,
    queue: Vec<Waiting>,
    job: Option<(u64, Job)>,
    dirty: Dirty,
    /// Writes that wait for space in the write cache, and flushes, in order.
    blocked: VecDeque<Command>,
    /// A flush that waits for an empty write cache. Writes wait behind it.
    flushing: Option<u64>,
    bus_free: u64,
    finished: BinaryHeap<Reverse<(u64, u64)>>,
    outstanding: usize,
    last_command: u64,
    wake: Option<u64>,
}

impl Hdd {
    pub fn new(spec: &HddSpec, seed: u64) -> Self {
        Self {
            arm: Arm::new(spec, seed),
            command: from_us(spec.command_us),
            interface_mb_s: spec.interface_mb_s,
            depth: spec.queue_depth.max(1) as usize,
            age: from_us(spec.queue_age_ms * 1e3),
            cache_sectors: spec.write_cache_kib * 1024 / SECTOR,
            queue: Vec::new(),
            job: None,
            dirty: Dirty::default(),
            blocked: VecDeque::new(),
            flushing: None,
            bus_free: 0,
            finished: BinaryHeap::new(),
            outstanding: 0,
            last_command: 0,
            wake: None,
        }
    }

    /// Ends a command after its bytes have crossed the interface.
    fn finish_by_bus(&mut self, now: u64, command: &Command) {
        self.bus_free = self.bus_free.max(now) + transfer(command.len, self.interface_mb_s);
        self.finished.push(Reverse((self.bus_free + self.command, command.id)));
    }

    fn is_in_memory(&self, now: u64, command: &Command) -> bool {
        let (start, end) = sectors(command);
        self.dirty.contains(start, end) || self.arm.has_read(now, start, end)
    }

    fn has_cache_room(&self, len: u64) -> bool {
        self.flushing.is_none()
            && (self.dirty.is_empty() || self.dirty.sectors() + len / SECTOR <= self.cache_sectors)
    }

    fn cache(&mut self, now: u64, command: &Command) {
        let (start, end) = sectors(command);
        self.arm.forget(now, start, end);
        self.dirty.insert(start, end);
        self.finish_by_bus(now, command);
    }

    /// Continues waiting writes and flushes as far as possible.
    fn release(&mut self, now: u64) {
        let is_clean = self.dirty.is_empty() && !matches!(self.job, Some((_, Job::Destage { .. })));
        if is_clean && let Some(flush) = self.flushing.take() {
            self.finished.push(Reverse((now + self.command, flush)));
        }
        while let Some(&next) = self.blocked.front() {
            match next.verb {
                Verb::Flush if self.flushing.is_none() => self.flush(now, next.id),
                Verb::Write if self.has_cache_room(next.len) => self.cache(now, &next),
                _ => break,
            }
            self.blocked.pop_front();
        }
    }

    fn flush(&mut self, now: u64, id: u64) {
        if self.dirty.is_empty() && !matches!(self.job, Some((_, Job::Destage { .. }))) {
            self.finished.push(Reverse((now + self.command, id)));
        } else {
            self.flushing = Some(id);
        }
    }

    /// Picks the command with the shortest positioning time, or one that has waited too long.
    fn pick(&self, now: u64) -> Option<(u64, usize)> {
        let ready = self.queue.iter().enumerate().filter(|(_, waiting)| waiting.ready <= now);
        let mut best = None;
        for (index, waiting) in ready {
            if now - waiting.arrived >= self.age {
                // Commands are in order of arrival.
                return Some((0, index));
            }
            let (start, _) = sectors(&waiting.command);
            let cost = self.arm.cost(now, start, waiting.command.verb == Verb::Write);
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, index));
            }
        }
        best
    }

    fn pick_dirty(&self, now: u64) -> Option<(u64, u64)> {
        let near = self.dirty.ahead(self.arm.sector(), DESTAGE_CHOICE);
        near.map(|(start, _)| (self.arm.cost(now, start, true), start)).min()
    }

    /// Gives the arm its next work.
    fn dispatch(&mut self, now: u64) {
        self.wake = None;
        while self.job.is_none() {
            let host = self.pick(now);
            let is_urgent = self.flushing.is_some()
                || !self.blocked.is_empty()
                || self.dirty.sectors() > self.cache_sectors / 2;
            let is_idle = now >= self.last_command + DESTAGE_IDLE;
            let dirty = match host {
                None if is_urgent || is_idle => self.pick_dirty(now),
                Some(_) if is_urgent => self.pick_dirty(now),
                _ => None,
            };
            match (host, dirty) {
                (Some((cost, index)), dirty) if dirty.is_none_or(|(other, _)| cost <= other) => {
                    let Waiting { command, .. } = self.queue.remove(index);
                    if command.verb == Verb::Read && self.is_in_memory(now, &command) {
                        self.finish_by_bus(now, &command);
                        continue;
                    }
                    let (start, end) = sectors(&command);
                    let until = match command.verb {
                        Verb::Read => self.arm.read(now, start, end),
                        _ => self.arm.write(now, start, end),
                    };
                    self.job = Some((until, Job::Host(command)));
                }
                (_, Some((_, start))) => {
                    let end = self.dirty.take(start, DESTAGE_SECTORS);
                    let until = self.arm.write(now, start, end);
                    self.job = Some((until, Job::Destage { start, end }));
                }
                _ => {
                    let ready = self.queue.iter().map(|waiting| waiting.ready).min();
                    let idle = (!self.dirty.is_empty()).then_some(self.last_command + DESTAGE_IDLE);
                    self.wake = earliest(ready, idle);
                    return;
                }
            }
        }
    }
}

fn sectors(command: &Command) -> (u64, u64) {
    (command.at / SECTOR, command.end().div_ceil(SECTOR))
}

impl Drive for Hdd {
    fn has_room(&self) -> bool {
        self.outstanding < self.depth
    }

    fn submit(&mut self, now: u64, command: Command) {
        debug_assert!(command.end() <= self.capacity(), "inside the disk");
        self.outstanding += 1;
        self.last_command = now;
        let is_behind = !self.blocked.is_empty() || self.flushing.is_some();
        match command.verb {
            Verb::Read if self.is_in_memory(now, &command) => self.finish_by_bus(now, &command),
            Verb::Flush if is_behind => self.blocked.push_back(command),
            Verb::Flush => self.flush(now, command.id),
            Verb::Write if self.cache_sectors > 0 => {
                if !is_behind && self.has_cache_room(command.len) {
                    self.cache(now, &command);
                } else {
                    self.blocked.push_back(command);
                }
            }
            _ => self.queue.push(Waiting { command, arrived: now, ready: now + self.command }),
        }
        self.dispatch(now);
    }

    fn next_event(&self) -> Option<u64> {
        let arm = self.job.map_or(self.wake, |(until, _)| Some(until));
        earliest(arm, self.finished.peek().map(|Reverse((at, _))| *at))
    }

    fn advance(&mut self, now: u64, done: &mut Vec<u64>) {
        if let Some((until, job)) = self.job
            && until <= now
        {
            self.job = None;
            match job {
                Job::Host(command) => {
                    let (start, end) = sectors(&command);
                    self.arm.end(until, start, end, command.verb == Verb::Write);
                    // The bytes crossed the interface while they passed under the head.
                    self.finished.push(Reverse((until + self.command, command.id)));
                }
                Job::Destage { start, end } => self.arm.end(until, start, end, true),
            }
        }
        self.release(now);
        self.dispatch(now);
        while let Some(&Reverse((at, id))) = self.finished.peek()
            && at <= now
        {
            self.finished.pop();
            self.outstanding -= 1;
            done.push(id);
        }
    }

    fn capacity(&self) -> u64 {
        self.arm.sectors() * SECTOR
    }
}
