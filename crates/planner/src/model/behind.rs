//! Writes that memory has taken, on their way to the device.
//!
//! ```text
//! write -> pool, in order of datafile and offset -> given, upwards, some at a time -> in the device's memory -> on it
//!          `---------- a read of these is answered from memory ----------'
//! ```
//!
//! The device begins when enough has been gathered and goes on as long as it is. Who reads anything else waits while it
//! does, but no longer than was measured.

use crate::figures::Service;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Of what memory has gathered the device is given so many bytes at a time: what comes meanwhile goes in order with the rest.
const PORTION: f64 = 16e6;
/// A request that begins so near to the end of the one before goes on there, bytes.
pub(super) const NEAR: u64 = 1 << 20;

/// Datafile, begin and end.
type Range = (u64, u64, u64);

/// A run of what the device was given, and from when to when it writes that if it never stands aside for reads.
#[derive(Clone, Copy)]
struct Leaving {
    range: Range,
    from: f64,
    to: f64,
    /// Bytes that it was given before.
    before: f64,
}

/// Writes that memory has taken.
#[derive(Clone, Default)]
pub(super) struct Behind {
    /// Datafile, begin and end of what the device has not been given.
    pool: BTreeSet<Range>,
    pool_bytes: f64,
    /// The longest there ever was.
    longest: u64,
    /// How often it has been given all of a datafile for a sync.
    synced: BTreeMap<u64, u64>,
    /// Datafile and offset behind what it was given last.
    at: Option<(u64, u64)>,
    /// What it has been given, from when to when it writes that.
    given_bytes: f64,
    from: f64,
    to: f64,
    /// What it has not written, in its order, and by datafile and begin: the end, and bytes that it was given before.
    leaving: VecDeque<Leaving>,
    places: BTreeMap<(u64, u64), (u64, f64)>,
    longest_run: u64,
    /// Bytes that it was ever given.
    given: f64,
    /// How long it has stood aside, and from when on it will for how long.
    aside: f64,
    asides: VecDeque<(f64, f64)>,
    /// Since when it writes without a pause.
    since: f64,
}

/// What became of a sync.
pub(super) enum Synced {
    /// It is done then.
    Done(f64),
    /// It is to be asked for again then.
    Again(f64),
}

impl Behind {
    /// When all is on the device that it was given.
    pub(super) fn until(&self) -> f64 {
        self.to
    }

    /// The device serves who waits from `from` on: what it writes then is so much later.
    pub(super) fn stands_aside(&mut self, now: f64, from: f64, takes: f64, service: &Service) {
        if self.waits(now, service) <= from - now {
            return;
        }
        self.to += takes;
        self.asides.push_back((from, takes));
    }

    /// Gives the device what it would have been given by now, until memory has no more than it gathers; how long that takes.
    pub(super) fn goes_on(&mut self, now: f64, service: &Service) -> f64 {
        self.given_by(now, service, |over| over.clamp(1.0, PORTION))
    }

    /// Gives the device parts of what is too much, as long as it has been ready by now and there is enough.
    fn given_by(&mut self, now: f64, service: &Service, part: impl Fn(f64) -> f64) -> f64 {
        let mut takes = 0.0;
        while self.to <= now && self.pool_bytes >= gathers(service).max(1.0) {
            takes += self.give(self.to, service, part(self.pool_bytes - gathers(service)));
        }
        takes
    }

    /// Bytes that memory takes at `now`; when it has taken them, and how long the device takes for what it is given.
    pub(super) fn keep(&mut self, now: f64, service: &Service, range: Range) -> (f64, f64) {
        // Who writes brings more: whole portions.
        let mut takes = self.given_by(now, service, |_| PORTION);
        let (object, start, end) = range;
        if self.pool.insert((object, start, end)) {
            self.pool_bytes += (end - start) as f64;
            self.longest = self.longest.max(end - start);
        }
        if self.to <= now && self.pool_bytes >= gathers(service) {
            takes += self.give(now, service, PORTION);
        }
        let over = self.pool_bytes + self.left(now) - service.behind.0 as f64;
        if over <= 0.0 {
            return (now, takes);
        }
        while over > self.left(now) && !self.pool.is_empty() {
            takes += self.give(now, service, PORTION);
        }
        // As much as is too much has to be written before.
        let left = self.left(now).max(1.0);
        (now + (self.to - now) * (over / left).min(1.0), takes)
    }

    /// What of a range memory does not hold any more, or never did.
    pub(super) fn gaps(&mut self, now: f64, service: &Service, range: Range) -> Vec<(u64, u64)> {
        let (object, start, end) = range;
        let mut gaps = vec![(start, end)];
        self.forget(now);
        // So many of the bytes that it was ever given, and is given next, are in memory no more.
        let written = self.leaving.front().map_or(self.given, |run| {
            let part = (now - run.from - self.aside) / (run.to - run.from).max(1.0);
            run.before + (run.range.2 - run.range.1) as f64 * part.clamp(0.0, 1.0)
        });
        let gone = written + self.ahead(now, service);
        let first = (object, start.saturating_sub(self.longest_run));
        for (&(_, from), &(to, before)) in self.places.range(first..(object, end)) {
            let part = (gone - before).clamp(0.0, (to - from) as f64) as u64;
            without(&mut gaps, (from + part, to));
        }
        let over = (self.pool_bytes - gathers(service)).max(0.0);
        let next = (gone - self.given).clamp(0.0, over) as u64;
        let at = self.at.filter(|at| at.0 == object).map_or((0, 0), |(_, at)| (at, at.saturating_add(next)));
        let first = (object, start.saturating_sub(self.longest), 0);
        for &(_, from, to) in self.pool.range(first..(object, end, 0)) {
            without(&mut gaps, (from, to.min(at.0.max(from))));
            without(&mut gaps, (from.max(at.1.min(to)), to));
        }
        gaps
    }

    /// So many bytes more than are on the medium the device has taken into its own memory.
    fn ahead(&self, now: f64, service: &Service) -> f64 {
        let Some(cache) = service.cache.filter(|_| self.waits(now, service) > 0.0) else { return 0.0 };
        let gains = (cache.mb_s - service.sequential.mb_s).max(0.0) / 1e3;
        (cache.size.0 as f64).min(gains * (now - self.since))
    }

    /// How long the device still writes until memory has no more than it gathers.
    pub(super) fn waits(&self, now: f64, service: &Service) -> f64 {
        let over = (self.pool_bytes - gathers(service)).max(0.0);
        (self.to - now).max(0.0) + over * service.sequential.byte_ns()
    }

    /// Has what memory holds of a datafile written, when the device has nothing else to write; when that is done, or when
    /// to ask again, and how long the device takes for what it is given. `since` is how often it had been synced when this
    /// was first asked: what came later is not waited for.
    pub(super) fn sync(&mut self, now: f64, service: &Service, object: u64, since: u64) -> (Synced, f64) {
        let of = |range: &Range| range.0 == object;
        if self.synced(object) > since || !self.pool.iter().any(of) {
            return (Synced::Done(self.to.max(now)), 0.0);
        }
        if self.to > now {
            return (Synced::Again(self.to), 0.0);
        }
        let others: BTreeSet<_> = self.pool.iter().filter(|range| !of(range)).copied().collect();
        self.pool.retain(of);
        self.pool_bytes = bytes(&self.pool);
        let takes = self.give(now, service, f64::INFINITY);
        self.to += service.sync_us * 1e3;
        *self.synced.entry(object).or_default() += 1;
        self.pool_bytes = bytes(&others);
        self.pool = others;
        (Synced::Done(self.to), takes)
    }

    /// How often all of a datafile was given to the device for a sync.
    pub(super) fn synced(&self, object: u64) -> u64 {
        self.synced.get(&object).copied().unwrap_or(0)
    }

    /// Gives the device all there is; how long that takes.
    pub(super) fn give_all(&mut self, now: f64, service: &Service) -> f64 {
        let takes = self.goes_on(now, service);
        if self.pool.is_empty() { takes } else { takes + self.give(now, service, f64::INFINITY) }
    }

    /// What is on the device need not be known any more.
    fn forget(&mut self, now: f64) {
        while let Some((_, takes)) = self.asides.front().filter(|(from, _)| *from <= now) {
            self.aside += takes;
            self.asides.pop_front();
        }
        while let Some(run) = self.leaving.front().filter(|run| run.to + self.aside <= now) {
            let place = (run.range.0, run.range.1);
            if self.places.get(&place).is_some_and(|(_, before)| *before == run.before) {
                self.places.remove(&place);
            }
            self.leaving.pop_front();
        }
    }

    /// Bytes that the device was given and has not written.
    fn left(&self, now: f64) -> f64 {
        if self.to <= now || self.to <= self.from {
            return 0.0;
        }
        self.given_bytes * (self.to - now) / (self.to - self.from)
    }

    /// Gives the device so many bytes of what was gathered, upwards from where it is and then from the beginning; how long
    /// that takes. What follows each other is one request.
    fn give(&mut self, now: f64, service: &Service, most: f64) -> f64 {
        let gathered = self.pool_bytes;
        let (mut last, mut given) = (self.at, 0.0);
        let mut runs: Vec<Range> = Vec::new();
        self.forget(now);
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
        let begin = self.to.max(now);
        if self.to < now {
            self.since = now;
        }
        let mut takes = 0.0;
        let aside = self.aside + self.asides.iter().map(|(_, takes)| takes).sum::<f64>();
        for range in runs {
            let (object, from, to) = range;
            let anywhere = service.gathered_ns(count, (to - from) as f64);
            let gap = last.filter(|last| last.0 == object).and_then(|last| from.checked_sub(last.1));
            let run = match gap.filter(|gap| *gap <= NEAR) {
                // Over a gap it may be as quick to go on.
                Some(gap) => anywhere.min(service.sequential.ns((gap + to - from) as f64)),
                None => anywhere,
            };
            let from_on = begin + takes - aside;
            self.leaving.push_back(Leaving { range, from: from_on, to: from_on + run, before: self.given });
            self.places.insert((object, from), (to, self.given));
            self.longest_run = self.longest_run.max(to - from);
            self.given += (to - from) as f64;
            takes += run;
            last = Some((object, to));
        }
        (self.from, self.to) = (now, begin + takes);
        takes
    }
}

fn gathers(service: &Service) -> f64 {
    service.gathers.0 as f64
}

/// Bytes of ranges.
fn bytes<'a>(ranges: impl IntoIterator<Item = &'a Range>) -> f64 {
    ranges.into_iter().map(|(_, from, to)| (to - from) as f64).sum()
}

/// Takes a range out of gaps.
fn without(gaps: &mut Vec<(u64, u64)>, (from, to): (u64, u64)) {
    for at in (0..gaps.len()).rev() {
        let (start, end) = gaps[at];
        if end <= from || to <= start {
            continue;
        }
        gaps.remove(at);
        let rest = [(start, from.max(start)), (to.min(end), end)];
        rest.into_iter().filter(|(start, end)| start < end).for_each(|gap| gaps.push(gap));
    }
    gaps.sort_unstable();
}
