//! Targets and links.

use super::behind::{Behind, NEAR, Synced};
use super::head::Head;
use crate::figures::{Class, Head as HeadFigures, Service};
use std::collections::VecDeque;

/// A device whose requests take so much less each when four are under way serves them side by side.
const SIDE_BY_SIDE: f64 = 0.5;
/// Length by which this is told, bytes.
const SIDE_BY_SIDE_LEN: f64 = 4096.0;
/// Ends of requests that a target remembers, to tell streams.
const ENDS: usize = 64;
/// Whether a class serves requests of a direction side by side.
pub(super) fn side_by_side(service: &Service) -> bool {
    service.random_ns(4, SIDE_BY_SIDE_LEN) < SIDE_BY_SIDE * service.random_ns(1, SIDE_BY_SIDE_LEN)
}

/// A range of a datafile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Local {
    /// Which datafile.
    pub(super) object: u64,
    pub(super) offset: u64,
    pub(super) len: u64,
}

impl Local {
    fn range(self) -> (u64, u64, u64) {
        (self.object, self.offset, self.offset.saturating_add(self.len))
    }
}

/// One target.
#[derive(Clone, Default)]
pub(super) struct Target {
    pub(super) class: usize,
    free: f64,
    pub(super) busy: f64,
    /// Ends of the requests that are here.
    here: VecDeque<f64>,
    /// Datafile and offset behind the requests that came last, the very last at the end.
    ends: VecDeque<(u64, u64)>,
    behind: Behind,
    /// What waits for the head, where there is one.
    pub(super) head: Head,
    /// Bytes that came or went.
    pub(super) passed: f64,
    pub(super) into: Link,
    pub(super) out: Link,
}

/// A direction of a link.
#[derive(Clone, Copy, Default)]
pub(super) struct Link {
    pub(super) free: f64,
    pub(super) busy: f64,
}

impl Link {
    /// Carries what is asked for at `now` and can go from `ready` on; what is ready late holds up nobody.
    pub(super) fn carry(&mut self, now: f64, ready: f64, took: f64) -> f64 {
        self.free = self.free.max(now) + took;
        self.busy += took;
        self.free.max(ready + took)
    }
}

impl Target {
    /// One of a class that has nothing to do.
    pub(super) fn of(class: usize) -> Self {
        Self { class, ..Self::default() }
    }

    /// Reads what memory does not hold; when that is done.
    pub(super) fn read(&mut self, now: f64, class: &Class, local: Local, side_by_side: bool) -> f64 {
        let (write, object) = (&class.write, local.object);
        self.busy += self.behind.goes_on(now, write);
        let gaps = self.behind.gaps(now, write, local.range());
        // Who reads has the device write on for a while.
        let waits = class.read.waits.map_or(0.0, |waits| {
            (self.behind.waits(now, write) - waits.beside_us * 1e3).clamp(0.0, waits.most_us * 1e3)
        });
        let (mut at, mut end) = (local.offset, now);
        for (from, to) in gaps {
            self.passes(object, at, from);
            let (free, gap) = (self.free.max(now + waits), Local { object, offset: from, len: to - from });
            end = end.max(self.serve_from(now, now + waits, &class.read, gap, side_by_side));
            if !side_by_side {
                // What memory has to write waits for who waits.
                self.behind.stands_aside(now, now + waits, self.free - free, write);
            }
            at = to;
        }
        self.passes(object, at, local.offset.saturating_add(local.len));
        end
    }

    /// Memory answers this range: a stream that comes here goes on behind it.
    fn passes(&mut self, object: u64, from: u64, to: u64) {
        if from < to
            && let Some(end) = self.ends.iter_mut().find(|end| **end == (object, from))
        {
            end.1 = to;
        }
    }

    /// A request that arrives at `now`; when it is done.
    pub(super) fn serve(&mut self, now: f64, service: &Service, local: Local, side_by_side: bool) -> f64 {
        self.serve_from(now, now, service, local, side_by_side)
    }

    /// A request that arrives at `now` and is served from `from` on; when it is done.
    fn serve_from(
        &mut self,
        now: f64,
        from: f64,
        service: &Service,
        local: Local,
        side_by_side: bool,
    ) -> f64 {
        let Local { object, offset, len } = local;
        while self.here.front().is_some_and(|end| *end <= now) {
            self.here.pop_front();
        }
        let bytes = len as f64;
        let last = self.ends.back().filter(|(last, _)| *last == object).map(|(_, end)| offset.abs_diff(*end));
        let stream = self.ends.iter().position(|end| *end == (object, offset));
        if let Some(stream) = stream {
            self.ends.remove(stream);
        } else if self.ends.len() == ENDS {
            self.ends.pop_front();
        }
        self.ends.push_back((object, offset.saturating_add(len)));
        let depth = self.here.len() as u32 + 1;
        let (takes, at_least) = match last {
            Some(0) => (service.sequential.ns(bytes), 0.0),
            Some(1..=NEAR) => (service.near_ns(bytes), 0.0),
            _ if side_by_side => (service.random_ns(u32::MAX, bytes), service.random_ns(1, bytes)),
            _ if stream.is_some() => (service.streams_ns(depth, bytes), 0.0),
            _ => (service.random_ns(depth, bytes), 0.0),
        };
        self.busy += takes;
        self.free = self.free.max(from) + takes;
        let end = self.free.max(from + at_least);
        self.here.push_back(end);
        end
    }

    /// A request for the head; whether it has to wait.
    pub(super) fn waits(
        &mut self,
        now: f64,
        of: (u32, u32),
        local: Local,
        is_again: bool,
        service: &Service,
        figures: &HeadFigures,
    ) -> bool {
        self.head.waits(now, of, local, is_again, service, figures)
    }

    /// The head goes to the next request, if one waits; when that has passed.
    pub(super) fn next(&mut self, now: f64, class: &Class, figures: &HeadFigures) -> Option<f64> {
        let passed = self.head.next(now, &class.read, figures)?;
        self.busy += passed - now;
        self.free = self.free.max(passed);
        // What memory has to write waits for who waits.
        self.behind.stands_aside(now, now, passed - now, &class.write);
        Some(passed)
    }

    /// Bytes that memory takes at `now`; when it has taken them.
    pub(super) fn keep(&mut self, now: f64, service: &Service, local: Local) -> f64 {
        let (taken, takes) = self.behind.keep(now, service, local.range());
        self.busy += takes;
        taken
    }

    /// Has what memory holds of a datafile written; see [`Behind::sync`].
    pub(super) fn sync(&mut self, now: f64, service: &Service, object: u64, since: u64) -> Synced {
        let (synced, takes) = self.behind.sync(now, service, object, since);
        self.busy += takes;
        synced
    }

    /// How often all of a datafile was given to the device for a sync.
    pub(super) fn synced(&self, object: u64) -> u64 {
        self.behind.synced(object)
    }

    /// When all that it was given is on the device, if ranks end at `end`.
    pub(super) fn written(&mut self, end: f64, service: &Service) -> f64 {
        self.busy += self.behind.give_all(end, service);
        self.free.max(self.behind.until())
    }
}
