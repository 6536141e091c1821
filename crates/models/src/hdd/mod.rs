//! A hard disk: an arm over turning platters, a queue that the disk orders itself, read-ahead and a write cache.

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

/// The figures of a hard disk, most of them from its data sheet.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HddSpec {
    /// Size in 10^9 bytes.
    pub capacity_gb: f64,
    /// Turns per minute.
    pub rpm: u32,
    /// Recording surfaces.
    pub heads: u32,
    /// Zones of equal width; the density falls evenly from the outermost to the innermost.
    pub zones: u32,
    /// Sustained transfer at the outer edge, 10^6 bytes per second.
    pub outer_mb_s: f64,
    /// Sustained transfer at the inner edge, 10^6 bytes per second.
    pub inner_mb_s: f64,
    /// To another head of the same cylinder, microseconds.
    pub head_switch_us: f64,
    /// To the next cylinder while a transfer goes on, microseconds.
    pub cylinder_switch_us: f64,
    /// Seek to the neighboring cylinder, settling included, microseconds.
    pub seek_track_us: f64,
    /// Seek over a third of all cylinders (what data sheets call average), microseconds.
    pub seek_average_us: f64,
    /// Seek over all cylinders, microseconds.
    pub seek_full_us: f64,
    /// What a write waits longer than a read until the head stands still, microseconds.
    pub write_settle_us: f64,
    /// From a command's arrival until the arm may start on it, and on the way back, microseconds.
    pub command_us: f64,
    /// Transfer between host and the disk's memory, 10^6 bytes per second.
    pub interface_mb_s: f64,
    /// Commands that the disk orders among themselves; 1 is a disk without a queue.
    pub queue_depth: u32,
    /// A command that has waited so long goes first, milliseconds.
    pub queue_age_ms: f64,
    /// What the head goes on reading after a read, KiB; 0 is none.
    pub read_ahead_kib: u64,
    /// Stretches of earlier reads that the memory keeps.
    pub segments: u32,
    /// Memory for writes that are acknowledged before they are on the platters, KiB; 0 is a write cache switched off.
    pub write_cache_kib: u64,
}

/// The longest stretch of the write cache that goes to the platters as one, in sectors.
const DESTAGE_SECTORS: u64 = 2048;
/// Ranges of the write cache among which the arm picks.
const DESTAGE_CHOICE: usize = 8;
/// So long without commands, and the write cache goes to the platters.
const DESTAGE_IDLE: u64 = 2_000_000;

#[derive(Clone, Copy, Debug)]
struct Waiting {
    command: Command,
    arrived: u64,
    ready: u64,
}

/// What the arm is at.
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
    /// Writes that wait for room in the write cache, and flushes, in their order.
    held: VecDeque<Command>,
    /// A flush that waits until the write cache is empty; writes wait behind it.
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
            held: VecDeque::new(),
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

    /// Lets held writes and flushes on as far as they may go.
    fn release(&mut self, now: u64) {
        let is_settled = self.dirty.is_empty() && !matches!(self.job, Some((_, Job::Destage { .. })));
        if is_settled && let Some(flush) = self.flushing.take() {
            self.finished.push(Reverse((now + self.command, flush)));
        }
        while let Some(&next) = self.held.front() {
            match next.verb {
                Verb::Flush if self.flushing.is_none() => self.flush(now, next.id),
                Verb::Write if self.has_cache_room(next.len) => self.cache(now, &next),
                _ => break,
            }
            self.held.pop_front();
        }
    }

    fn flush(&mut self, now: u64, id: u64) {
        if self.dirty.is_empty() && !matches!(self.job, Some((_, Job::Destage { .. }))) {
            self.finished.push(Reverse((now + self.command, id)));
        } else {
            self.flushing = Some(id);
        }
    }

    /// The command that the arm reaches first, or one that has waited too long.
    fn pick(&self, now: u64) -> Option<(u64, usize)> {
        let ready = self.queue.iter().enumerate().filter(|(_, waiting)| waiting.ready <= now);
        let mut best = None;
        for (index, waiting) in ready {
            if now - waiting.arrived >= self.age {
                // Commands stand in the order of their arrival.
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
                || !self.held.is_empty()
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
        let is_behind = !self.held.is_empty() || self.flushing.is_some();
        match command.verb {
            Verb::Read if self.is_in_memory(now, &command) => self.finish_by_bus(now, &command),
            Verb::Flush if is_behind => self.held.push_back(command),
            Verb::Flush => self.flush(now, command.id),
            Verb::Write if self.cache_sectors > 0 => {
                if !is_behind && self.has_cache_room(command.len) {
                    self.cache(now, &command);
                } else {
                    self.held.push_back(command);
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
                    // The bytes have crossed the interface while they passed under the head.
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
