//! A solid-state disk: channels and dies that work at the same time, a page map, garbage collection, a write buffer.

mod collect;
mod flash;
mod map;
mod times;

use crate::drive::{Command, Drive, Verb};
use crate::time::{from_us, transfer};
use flash::Flash;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use times::Times;

/// Bytes of a unit of the map.
pub(crate) const UNIT: u64 = 4096;

/// The figures of a solid-state disk.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SsdSpec {
    /// Size as its host sees it, 10^9 bytes.
    pub capacity_gb: f64,
    /// Flash beyond that, as a part of it: 0.15 is 15 %.
    pub spare: f64,
    /// How much of it has been written before, in random order, as a part: its spare room is then as scattered as
    /// long use leaves it. 0 is a new one.
    pub used: f64,
    /// Channels between controller and flash.
    pub channels: u32,
    /// Dies on each channel.
    pub dies_per_channel: u32,
    /// What a die reads or programs at once (all its planes), KiB; a multiple of 4.
    pub page_kib: u64,
    /// Pages of an erase block (all planes).
    pub pages_per_block: u64,
    /// Reading a page into its register, microseconds.
    pub read_us: f64,
    /// Programming a page, microseconds.
    pub program_us: f64,
    /// Erasing a block, microseconds.
    pub erase_us: f64,
    /// A read waits at most so long for a program or an erasure in progress, microseconds; 0 waits for its end.
    pub suspend_us: f64,
    /// Transfer on one channel, 10^6 bytes per second.
    pub channel_mb_s: f64,
    /// Transfer between host and device in each direction, 10^6 bytes per second.
    pub interface_mb_s: f64,
    /// What the controller spends on each command, one after another, microseconds.
    pub command_us: f64,
    /// What passes on the way there and back beside, microseconds.
    pub latency_us: f64,
    /// Commands that it takes at a time.
    pub queue_depth: u32,
    /// Memory for writes that are acknowledged before they are in the flash, KiB.
    pub buffer_kib: u64,
    /// The buffer survives loss of power, so that a flush has nothing to wait for.
    pub is_power_safe: bool,
    /// What a flush costs beside waiting, microseconds.
    pub flush_us: f64,
}

/// A solid-state disk.
pub(crate) struct Ssd {
    flash: Flash,
    times: Times,
    capacity: u64,
    interface_mb_s: f64,
    command: u64,
    latency: u64,
    depth: usize,
    buffer: u64,
    buffered: u64,
    /// Programs under way: when each ends, and how many bytes of the buffer it frees. Ends never fall.
    programs: VecDeque<(u64, u64)>,
    is_power_safe: bool,
    flush: u64,
    controller_free: u64,
    links_free: [u64; 2],
    finished: BinaryHeap<Reverse<(u64, u64)>>,
    outstanding: usize,
}

impl Ssd {
    pub fn new(spec: &SsdSpec) -> Self {
        let capacity = (spec.capacity_gb * 1e9) as u64 / UNIT * UNIT;
        Self {
            flash: Flash::new(spec, capacity / UNIT),
            times: Times::new(spec),
            capacity,
            interface_mb_s: spec.interface_mb_s,
            command: from_us(spec.command_us),
            latency: from_us(spec.latency_us),
            depth: spec.queue_depth.max(1) as usize,
            buffer: spec.buffer_kib * 1024,
            buffered: 0,
            programs: VecDeque::new(),
            is_power_safe: spec.is_power_safe,
            flush: from_us(spec.flush_us),
            controller_free: 0,
            links_free: [0; 2],
            finished: BinaryHeap::new(),
            outstanding: 0,
        }
    }

    /// Moves bytes between host and device from `at` on; a link lost to others is made up for, never run ahead of.
    fn cross(&mut self, now: u64, at: u64, len: u64, is_write: bool) -> u64 {
        let took = transfer(len, self.interface_mb_s);
        let link = &mut self.links_free[usize::from(is_write)];
        *link = (*link).max(now) + took;
        (*link).max(at + took)
    }

    fn read(&mut self, now: u64, command: &Command) -> u64 {
        let (first, last) = (command.at / UNIT, command.end().div_ceil(UNIT));
        let mut ready = now;
        let mut unit = first;
        while unit < last {
            let page = self.flash.page_of(unit);
            let mut end = unit + 1;
            while end < last && self.flash.page_of(end) == page {
                end += 1;
            }
            ready = ready.max(self.times.read(now, page, (end - unit) * UNIT));
            unit = end;
        }
        self.cross(now, ready, command.len, false)
    }

    /// Room of programs that have ended by `now`.
    fn free_buffer(&mut self, now: u64) {
        while let Some(&(at, bytes)) = self.programs.front()
            && at <= now
        {
            self.buffered -= bytes;
            self.programs.pop_front();
        }
    }

    fn write(&mut self, now: u64, command: &Command) -> u64 {
        let (first, last) = (command.at / UNIT, command.end().div_ceil(UNIT));
        let here = self.cross(now, now, command.len, true);
        self.free_buffer(now);
        // The bytes move into the buffer as programs free it.
        let bytes = (last - first) * UNIT;
        let mut over = (self.buffered + bytes).saturating_sub(self.buffer);
        let mut accepted = here;
        for &(at, freed) in &self.programs {
            if over == 0 {
                break;
            }
            (accepted, over) = (accepted.max(at), over.saturating_sub(freed));
        }
        self.buffered += bytes;
        for program in self.flash.write(first, last - first, now, &mut self.times) {
            let at = self.programs.back().map_or(0, |&(at, _)| at).max(program.end);
            self.programs.push_back((at, program.bytes));
        }
        accepted
    }

    fn sync(&mut self, now: u64) -> u64 {
        if self.is_power_safe {
            return now + self.flush;
        }
        if let Some(program) = self.flash.pad(now, &mut self.times) {
            let at = self.programs.back().map_or(0, |&(at, _)| at).max(program.end);
            self.programs.push_back((at, program.bytes));
        }
        self.programs.back().map_or(now, |&(at, _)| at.max(now)) + self.flush
    }
}

impl Drive for Ssd {
    fn has_room(&self) -> bool {
        self.outstanding < self.depth
    }

    fn submit(&mut self, now: u64, command: Command) {
        debug_assert!(command.end() <= self.capacity, "inside the device");
        self.outstanding += 1;
        self.controller_free = self.controller_free.max(now) + self.command;
        let begin = self.controller_free;
        let end = match command.verb {
            Verb::Read => self.read(begin, &command),
            Verb::Write => self.write(begin, &command),
            Verb::Flush => self.sync(begin),
        };
        self.finished.push(Reverse((end + self.latency, command.id)));
    }

    fn next_event(&self) -> Option<u64> {
        self.finished.peek().map(|Reverse((at, _))| *at)
    }

    fn advance(&mut self, now: u64, done: &mut Vec<u64>) {
        while let Some(&Reverse((at, id))) = self.finished.peek()
            && at <= now
        {
            self.finished.pop();
            self.outstanding -= 1;
            done.push(id);
        }
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }
}
