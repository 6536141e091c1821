//! Targets and links.

use super::head::Head;
use crate::figures::{Head as HeadFigures, Service};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A device whose requests take so much less each when four are under way serves them side by side.
const SIDE_BY_SIDE: f64 = 0.5;
/// Length by which this is told, bytes.
const SIDE_BY_SIDE_LEN: f64 = 4096.0;
/// Ends of requests that a target remembers, to tell streams.
const ENDS: usize = 64;
/// A request that begins so near to the end of the one before goes on there, bytes.
const NEAR: u64 = 1 << 20;

/// Of what memory has gathered the device is given so many bytes at a time: what comes meanwhile goes in order with the rest.
const PORTION: f64 = 16e6;

/// Datafile, begin and end.
type Range = (u64, u64, u64);

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

/// Writes that memory has taken.
#[derive(Clone, Default)]
struct Behind {
    /// Datafile, begin and end of what the device has not been given.
    pool: BTreeSet<Range>,
    pool_bytes: f64,
    /// How often it has been given all of a datafile for a sync.
    synced: BTreeMap<u64, u64>,
    /// Datafile and offset behind what it was given last.
    at: Option<(u64, u64)>,
    /// What it has been given, from when to when it writes that.
    given_bytes: f64,
    from: f64,
    to: f64,
}

/// What became of a sync.
pub(super) enum Synced {
    /// It is done then.
    Done(f64),
    /// It is to be asked for again then.
    Again(f64),
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

    /// A request that arrives at `now`; when it is done.
    pub(super) fn serve(&mut self, now: f64, service: &Service, local: Local, side_by_side: bool) -> f64 {
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
        self.free = self.free.max(now) + takes;
        // What memory has to write waits for who waits.
        if self.behind.to > now {
            self.behind.to += takes;
        }
        let end = self.free.max(now + at_least);
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
    pub(super) fn next(&mut self, now: f64, service: &Service, figures: &HeadFigures) -> Option<f64> {
        let passed = self.head.next(now, service, figures)?;
        self.busy += passed - now;
        self.free = self.free.max(passed);
        // What memory has to write waits for who waits.
        if self.behind.to > now {
            self.behind.to += passed - now;
        }
        Some(passed)
    }

    /// Bytes that memory takes at `now`; when it has taken them.
    pub(super) fn keep(&mut self, now: f64, service: &Service, local: Local) -> f64 {
        let bytes = local.len as f64;
        let gathers = service.gathers.0 as f64;
        while self.behind.to <= now && self.behind.pool_bytes >= gathers.max(1.0) {
            // It has been enough since the device was ready.
            self.give(self.behind.to, service, PORTION);
        }
        if self.behind.pool.insert((local.object, local.offset, local.offset.saturating_add(local.len))) {
            self.behind.pool_bytes += bytes;
        }
        if self.behind.to <= now && self.behind.pool_bytes >= gathers {
            self.give(now, service, PORTION);
        }
        let room = service.behind.0 as f64;
        let over = self.behind.pool_bytes + self.behind.left(now) - room;
        if over <= 0.0 {
            return now;
        }
        while over > self.behind.left(now) && !self.behind.pool.is_empty() {
            self.give(now, service, PORTION);
        }
        // As much as is too much has to be written before.
        let left = self.behind.left(now).max(1.0);
        now + (self.behind.to - now) * (over / left).min(1.0)
    }

    /// Has what memory holds of a datafile written, when the device has nothing else to write; when that is done, or when
    /// to ask again. `since` is how often it had been synced when this was first asked: what came later is not waited for.
    pub(super) fn sync(&mut self, now: f64, service: &Service, object: u64, since: u64) -> Synced {
        let of = |range: &Range| range.0 == object;
        if self.synced(object) > since || !self.behind.pool.iter().any(of) {
            return Synced::Done(self.behind.to.max(now));
        }
        if self.behind.to > now {
            return Synced::Again(self.behind.to);
        }
        let others: BTreeSet<_> = self.behind.pool.iter().filter(|range| !of(range)).copied().collect();
        self.behind.pool.retain(of);
        self.behind.pool_bytes = bytes(&self.behind.pool);
        self.give(now, service, f64::INFINITY);
        self.behind.to += service.sync_us * 1e3;
        *self.behind.synced.entry(object).or_default() += 1;
        self.behind.pool_bytes = bytes(&others);
        self.behind.pool = others;
        Synced::Done(self.behind.to)
    }

    /// How often all of a datafile was given to the device for a sync.
    pub(super) fn synced(&self, object: u64) -> u64 {
        self.behind.synced.get(&object).copied().unwrap_or(0)
    }

    /// When all that it was given is on the device, if ranks end at `end`.
    pub(super) fn written(&mut self, end: f64, service: &Service) -> f64 {
        if !self.behind.pool.is_empty() {
            self.give(end, service, f64::INFINITY);
        }
        self.free.max(self.behind.to)
    }

    /// Gives the device so many bytes of what was gathered, upwards from where it is.
    fn give(&mut self, now: f64, service: &Service, most: f64) {
        let behind = &mut self.behind;
        let takes = behind.takes(service, now, most);
        self.busy += takes;
        (behind.from, behind.to) = (now, behind.to.max(now) + takes);
    }
}

/// Bytes of ranges.
fn bytes<'a>(ranges: impl IntoIterator<Item = &'a Range>) -> f64 {
    ranges.into_iter().map(|(_, from, to)| (to - from) as f64).sum()
}

impl Behind {
    /// Bytes that the device was given and has not written.
    fn left(&self, now: f64) -> f64 {
        if self.to <= now || self.to <= self.from {
            return 0.0;
        }
        self.given_bytes * (self.to - now) / (self.to - self.from)
    }

    /// What the device takes for so many bytes of the pool, upwards from where it is and then from the beginning: what
    /// follows each other is one request.
    fn takes(&mut self, service: &Service, now: f64, most: f64) -> f64 {
        let gathered = self.pool_bytes;
        let (mut last, mut given) = (self.at, 0.0);
        let mut runs: Vec<Range> = Vec::new();
        while given < most {
            let onward = self.at.and_then(|(object, end)| self.pool.range((object, end, 0)..).next());
            let Some(range) = onward.or_else(|| self.pool.first()).copied() else { break };
            self.pool.remove(&range);
            let (object, from, to) = range;
            given += (to - from) as f64;
            match runs.last_mut() {
                Some(run) if run.0 == object && (run.1..=run.2).contains(&from) => run.2 = run.2.max(to),
                _ => runs.push(range),
            }
            self.at = Some((object, to));
        }
        self.given_bytes = self.left(now) + given;
        self.pool_bytes = gathered - given;
        // How far it is to the next one goes by how many there are to choose from.
        let count = (runs.len() as f64 * gathered / given.max(1.0)) as u32;
        let mut takes = 0.0;
        for (object, from, to) in runs {
            let anywhere = service.gathered_ns(count, (to - from) as f64);
            let gap = last.filter(|last| last.0 == object).and_then(|last| from.checked_sub(last.1));
            takes += match gap.filter(|gap| *gap <= NEAR) {
                // Over a gap it may be as quick to go on.
                Some(gap) => anywhere.min(service.sequential.ns((gap + to - from) as f64)),
                None => anywhere,
            };
            last = Some((object, to));
        }
        takes
    }
}
