//! The arm over the platters: position, read-ahead, and times of accesses.

use super::HddSpec;
use super::geometry::{Geometry, SECTOR};
use super::seek::Seek;
use crate::time::from_us;
use std::collections::VecDeque;
use weft_core::random::SplitMix64;

/// Nanoseconds by which a sector may be missed because of rounding without the loss of a rotation.
const SLACK: u64 = 3_000;

/// Read-ahead after a read: from `from` at time `since` up to `until`. The disk's memory holds it from `start` on.
#[derive(Clone, Copy, Debug)]
struct Stream {
    start: u64,
    from: u64,
    since: u64,
    until: u64,
}

/// Mechanics of a disk. Ranges are in sectors, times in nanoseconds.
pub(super) struct Arm {
    geometry: Geometry,
    seek: Seek,
    write_settle: u64,
    /// Angle of the platters at time zero.
    phase: u64,
    read_ahead: u64,
    segments_max: usize,
    track: u64,
    sector: u64,
    stream: Option<Stream>,
    segments: VecDeque<(u64, u64)>,
}

impl Arm {
    pub fn new(spec: &HddSpec, seed: u64) -> Self {
        let geometry = Geometry::new(spec);
        let seek = Seek::new(spec, geometry.cylinders());
        let phase = SplitMix64::new(seed).below(geometry.period);
        Self {
            seek,
            write_settle: from_us(spec.write_settle_us),
            phase,
            read_ahead: spec.read_ahead_kib * 1024 / SECTOR,
            segments_max: spec.segments as usize,
            track: 0,
            sector: 0,
            stream: None,
            segments: VecDeque::new(),
            geometry,
        }
    }

    pub fn sectors(&self) -> u64 {
        self.geometry.sectors()
    }

    /// Returns the last position of the head.
    pub fn sector(&self) -> u64 {
        self.sector
    }

    /// Returns the time at which the head is over `sector` if it moves there at `now`.
    pub fn reach(&self, now: u64, sector: u64, is_write: bool) -> u64 {
        let target = self.geometry.sector_position(sector);
        let moved = self.geometry.switch(self.track, target.track).unwrap_or_else(|| {
            let (from, to) = (self.geometry.cylinder(self.track), self.geometry.cylinder(target.track));
            self.seek.time(from.abs_diff(to)) + if is_write { self.write_settle } else { 0 }
        });
        let period = self.geometry.period;
        let arrived = now + moved;
        let turned = (arrived + self.phase) % period;
        let wait = (target.angle + period - turned) % period;
        if wait + SLACK >= period { arrived } else { arrived + wait }
    }

    /// Returns the position of the read-ahead at `now`.
    fn position(&self, stream: &Stream, now: u64) -> u64 {
        let passed = self.geometry.passed(stream.from, now.saturating_sub(stream.since));
        (stream.from + passed).min(stream.until)
    }

    /// Whether read-ahead or a segment holds the whole range in memory.
    pub fn has_read(&self, now: u64, start: u64, end: u64) -> bool {
        let is_inside = |&(first, last): &(u64, u64)| first <= start && end <= last;
        self.segments.iter().any(is_inside)
            || self
                .stream
                .as_ref()
                .is_some_and(|stream| is_inside(&(stream.start, self.position(stream, now))))
    }

    /// Returns the time until the head can begin at `start`.
    pub fn cost(&self, now: u64, start: u64, is_write: bool) -> u64 {
        if let Some(stream) = self.stream.as_ref().filter(|stream| !is_write && stream.holds(start)) {
            let position = self.position(stream, now);
            if start <= position {
                return 0;
            }
            let there = stream.since + self.geometry.transfer(stream.from, start - stream.from);
            return there.saturating_sub(now);
        }
        self.reach(now, start, is_write) - now
    }

    /// Reads a range that is not completely in memory. Returns the time at which the last sector has passed.
    pub fn read(&mut self, now: u64, start: u64, end: u64) -> u64 {
        if let Some(stream) = self.stream.filter(|stream| stream.holds(start)) {
            let position = self.position(&stream, now);
            if position < stream.until || end <= stream.until {
                // The head is reading towards it.
                let until =
                    stream.since + self.geometry.transfer(stream.from, end.max(stream.from) - stream.from);
                return until.max(now);
            }
            // The read-ahead stopped at its end. Only the part behind it must be read.
            let begin = self.reach(now, stream.until, false);
            return begin + self.geometry.transfer(stream.until, end - stream.until);
        }
        self.stop(now);
        self.reach(now, start, false) + self.geometry.transfer(start, end - start)
    }

    /// Writes a range. Returns the time at which the last sector has passed.
    pub fn write(&mut self, now: u64, start: u64, end: u64) -> u64 {
        self.stop(now);
        self.forget(now, start, end);
        self.reach(now, start, true) + self.geometry.transfer(start, end - start)
    }

    /// Ends an access: the head is behind the range, and after a read it starts read-ahead.
    pub fn end(&mut self, now: u64, start: u64, end: u64, is_write: bool) {
        self.sector = end;
        self.track = self.geometry.sector_position(end.max(1) - 1).track;
        if is_write || self.read_ahead == 0 {
            self.stream = None;
            return;
        }
        let first = match self.stream {
            Some(stream) if stream.holds(start) => stream.start,
            _ => start,
        };
        let until = (end + self.read_ahead).min(self.sectors());
        // A segment keeps as much behind the head as ahead of it.
        let start = first.max(end.saturating_sub(self.read_ahead)).min(end);
        self.stream = Some(Stream { start, from: end, since: now, until });
    }

    /// Stops the read-ahead and keeps it as a segment.
    fn stop(&mut self, now: u64) {
        let Some(stream) = self.stream.take() else { return };
        let position = self.position(&stream, now);
        self.track = self.geometry.sector_position(position.max(1) - 1).track;
        if self.segments_max == 0 {
            return;
        }
        if self.segments.len() == self.segments_max {
            self.segments.pop_front();
        }
        self.segments.push_back((stream.start, position));
    }

    /// Drops read-ahead data of a range that is being overwritten.
    pub fn forget(&mut self, now: u64, start: u64, end: u64) {
        if self.stream.is_some_and(|stream| stream.start < end && start < stream.until) {
            self.stop(now);
        }
        self.segments.retain(|&(first, last)| last <= start || end <= first);
    }
}

impl Stream {
    fn holds(&self, sector: u64) -> bool {
        (self.start..=self.until).contains(&sector)
    }
}
