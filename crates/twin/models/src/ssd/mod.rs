//! The SSD model: parallel channels and dies, a page map, garbage collection and a write buffer.

mod collect;
mod flash;
mod map;
mod partial;
mod times;

use crate::drive::{Command, Drive, Verb};
use crate::time::{from_us, transfer};
use flash::{Flash, Program};
use partial::{Joined, Partial};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use times::Times;

/// Parameters of an SSD.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SsdSpec {
    /// Capacity that the host sees, in 10^9 bytes.
    pub capacity_gb: f64,
    /// Additional flash as a fraction of the capacity. 0.15 is 15 %.
    pub spare: f64,
    /// Fraction of the capacity that was overwritten in random order before, which scatters the invalid units. 0 is a
    /// new device.
    pub used: f64,
    /// Number of channels between controller and flash.
    pub channels: u32,
    /// Number of dies on each channel.
    pub dies_per_channel: u32,
    /// KiB that a die reads or programs at once, over all its planes. A multiple of 4.
    pub page_kib: u64,
    /// Granularity of the map in KiB. A smaller write waits in the buffer for the rest of its unit. If the rest does
    /// not come in time, it is read. A multiple of 4 that divides `page_kib`.
    #[serde(default = "four")]
    pub map_kib: u64,
    /// Pages of an erase block, over all planes.
    pub pages_per_block: u64,
    /// Microseconds to read a page into its register.
    pub read_us: f64,
    /// Microseconds to program a page.
    pub program_us: f64,
    /// Microseconds to erase a block.
    pub erase_us: f64,
    /// Maximum microseconds that a read waits for a program or erase in progress. With 0 it waits for its end.
    pub suspend_us: f64,
    /// Rate of one channel in 10^6 bytes per second.
    pub channel_mb_s: f64,
    /// Rate between host and device in each direction, in 10^6 bytes per second.
    pub interface_mb_s: f64,
    /// Microseconds that the controller spends on each command, one after another.
    pub command_us: f64,
    /// Additional latency of a command and its reply, in microseconds.
    pub latency_us: f64,
    /// Number of commands that the device processes at once.
    pub queue_depth: u32,
    /// Write buffer in KiB. Writes are acknowledged when they are in the buffer.
    pub buffer_kib: u64,
    /// Whether the buffer survives loss of power, so that a flush need not wait.
    pub is_power_safe: bool,
    /// Microseconds of a flush, in addition to waiting.
    pub flush_us: f64,
}

impl SsdSpec {
    /// Returns the units of a page, and of a block across all dies.
    pub(crate) fn block_units(&self) -> (u64, u64) {
        let page = (self.page_kib / self.map_kib).max(1);
        let dies = u64::from(self.channels.max(1)) * u64::from(self.dies_per_channel.max(1));
        (page, page * self.pages_per_block.max(1) * dies)
    }

    /// Returns the number of units that the host sees, and the number of blocks. The blocks have space for the valid
    /// units, the two blocks being written, and the blocks kept erased.
    pub(crate) fn sizes(&self) -> (u64, u64) {
        let units = (self.capacity_gb * 1e9) as u64 / (self.map_kib * 1024);
        let (_, block) = self.block_units();
        let wanted = (units as f64 * (1.0 + self.spare) / block as f64) as u64;
        (units, wanted.max(units.div_ceil(block) + flash::FREE_MIN as u64 + 3))
    }
}

fn four() -> u64 {
    4
}

/// An SSD.
pub(crate) struct Ssd {
    flash: Flash,
    times: Times,
    partial: Partial,
    unit: u64,
    capacity: u64,
    interface_mb_s: f64,
    command: u64,
    latency: u64,
    depth: usize,
    buffer: u64,
    buffered: u64,
    /// Programs in progress: end, and bytes of the buffer that it frees. Ends never decrease.
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
        let unit = spec.map_kib * 1024;
        let capacity = spec.sizes().0 * unit;
        Self {
            flash: Flash::new(spec),
            times: Times::new(spec),
            // Half of the buffer may hold incomplete units.
            partial: Partial::new(unit, (spec.buffer_kib / spec.map_kib / 2) as usize),
            unit,
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

    /// Moves bytes between host and device. The first are ready at `first`, and the last `tail` bytes at `last`.
    fn cross(&mut self, (first, last): (u64, u64), len: u64, tail: u64, is_write: bool) -> u64 {
        let link = &mut self.links_free[usize::from(is_write)];
        *link = (*link).max(first) + transfer(len, self.interface_mb_s);
        (*link).max(last + transfer(tail, self.interface_mb_s))
    }

    fn read(&mut self, now: u64, command: &Command) -> u64 {
        let (first, last) = (command.at / self.unit, command.end().div_ceil(self.unit));
        let (mut earliest, mut latest, mut tail) = (u64::MAX, now, 0);
        let mut unit = first;
        while unit < last {
            let page = self.flash.page_of(unit);
            let mut end = unit + 1;
            while end < last && self.flash.page_of(end) == page {
                end += 1;
            }
            let bytes = command.end().min(end * self.unit) - command.at.max(unit * self.unit);
            let ready = self.times.read(now, page, bytes);
            (earliest, latest, tail) = (earliest.min(ready), latest.max(ready), bytes);
            unit = end;
        }
        self.cross((earliest, latest), command.len, tail, false)
    }

    /// Frees the buffer space of programs that have ended by `now`.
    fn free_buffer(&mut self, now: u64) {
        while let Some(&(at, bytes)) = self.programs.front()
            && at <= now
        {
            self.buffered -= bytes;
            self.programs.pop_front();
        }
    }

    fn write(&mut self, now: u64, command: &Command) -> u64 {
        let (first, last) = (command.at / self.unit, command.end().div_ceil(self.unit));
        let here = self.cross((now, now), command.len, command.len, true);
        self.free_buffer(now);
        let before = self.buffered;
        let mut unit = first;
        while unit < last {
            let start = unit * self.unit;
            let (from, to) = (command.at.max(start) - start, command.end().min(start + self.unit) - start);
            if to - from == self.unit {
                if !self.partial.take(unit) {
                    self.buffered += self.unit;
                }
                self.program(unit, now);
            } else {
                match self.partial.add(unit, from, to) {
                    Joined::Begun => self.buffered += self.unit,
                    Joined::More => {}
                    Joined::Whole => self.program(unit, now),
                }
            }
            unit += 1;
        }
        while let Some(unit) = self.partial.evict(false) {
            self.complete(unit, now);
        }
        // The bytes entered the buffer as programs freed it.
        let mut over = self.buffered.max(before).saturating_sub(self.buffer);
        let mut accepted = here;
        for &(at, freed) in &self.programs {
            if over == 0 {
                break;
            }
            (accepted, over) = (accepted.max(at), over.saturating_sub(freed));
        }
        accepted
    }

    /// Writes a unit that is completely in the buffer.
    fn program(&mut self, unit: u64, now: u64) {
        if let Some(program) = self.flash.write(unit, now, &mut self.times) {
            self.note(&program);
        }
    }

    /// Writes a unit that is partly in the buffer. The rest is read first.
    fn complete(&mut self, unit: u64, now: u64) {
        let page = self.flash.page_of(unit);
        self.times.read_to_move(now, page);
        self.program(unit, now);
    }

    /// Records a program in progress.
    fn note(&mut self, program: &Program) {
        let at = self.programs.back().map_or(0, |&(at, _)| at).max(program.end);
        self.programs.push_back((at, program.bytes));
    }

    fn sync(&mut self, now: u64) -> u64 {
        if self.is_power_safe {
            return now + self.flush;
        }
        while let Some(unit) = self.partial.evict(true) {
            self.complete(unit, now);
        }
        if let Some(program) = self.flash.pad(now, &mut self.times) {
            self.note(&program);
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
