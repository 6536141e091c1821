//! When a changed pattern is worth a new layout: a state machine that knows no clock and no cluster.
//!
//! ```text
//!            like the known one                         paused, or not for long enough
//!          ┌────────────────┐                          ┌─────────────┐
//!          ▼                │   another one            ▼             │
//!        known ─────────────┴──────────────────────> waiting ────────┤
//!          ▲                                            │  lasts     │ another one still: count anew
//!          └──────────── decided: apply, or keep ───────┴────────────┘
//! ```
//! Whatever is decided, the pattern is known from then on: nothing is planned again until another one lasts.

use crate::mix::Direction;
use crate::pattern::Shape;
use crate::survey::Unit;
use std::collections::BTreeMap;
use weft_core::Nanos;

/// The most groups of files that are followed; the one that was quiet for longest gives way.
const GROUPS_MAX: usize = 4096;
/// So much of all bytes goes one way, or it is both.
const ONE_WAY: f64 = 0.9;

/// What keeps layouts from following every mood of a program.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Hysteresis {
    /// A new layout has to take so much less time than the one in force, 0 to 1.
    pub gain: f64,
    /// Intervals in a row in which a pattern has to be seen. Those without requests do not count.
    pub intervals: u32,
    /// How long after a change the next one may follow.
    pub pause: Nanos,
    /// Requests in an interval below which there is no telling.
    pub requests: u64,
}

impl Default for Hysteresis {
    fn default() -> Self {
        Self { gain: 0.2, intervals: 3, pause: Nanos::from_s(3600), requests: 64 }
    }
}

/// In which order requests come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Order {
    /// One after another.
    Contiguous,
    /// Blocks at fixed distances, also within each other.
    Strided,
    /// None.
    Random,
    /// Several.
    Mixed,
    /// Most bytes are of files from which a process takes one request or two: small ones that are read as a whole, for
    /// instance. Alone none of them tells an order, and all together ask for a layout like any others.
    Few,
}

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Ways {
    /// Nine tenths are read.
    Reads,
    /// Nine tenths are written.
    Writes,
    /// Both.
    Both,
}

/// What of a pattern decides which layout is good.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Signature {
    /// The order.
    pub order: Order,
    /// The way.
    pub ways: Ways,
    /// The length that moves most bytes, as a power of two.
    pub size_log2: u32,
}

impl Signature {
    /// Of a group of files; `None` when it did too little to tell.
    pub fn of(unit: &Unit, hysteresis: &Hysteresis) -> Option<Self> {
        if unit.reads + unit.writes < hysteresis.requests.max(1) {
            return None;
        }
        let order = match &unit.pattern.shape {
            Shape::Few => Order::Few,
            Shape::Contiguous => Order::Contiguous,
            Shape::Strided { .. } | Shape::Nested { .. } => Order::Strided,
            Shape::Random => Order::Random,
            Shape::Mixed { .. } => Order::Mixed,
        };
        let part = |bytes: u64| bytes as f64 >= ONE_WAY * unit.bytes() as f64;
        let ways = match (part(unit.read_bytes), part(unit.written_bytes)) {
            (true, _) => Ways::Reads,
            (_, true) => Ways::Writes,
            _ => Ways::Both,
        };
        let size_log2 = unit.request_size().ilog2();
        Some(Self { order, ways, size_log2 })
    }

    /// Whether a layout that is good for one is good for the other: lengths may differ by a power of two.
    pub fn is_like(&self, other: &Self) -> bool {
        (self.order, self.ways) == (other.order, other.ways) && self.size_log2.abs_diff(other.size_log2) <= 1
    }
}

impl std::fmt::Display for Signature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let order = match self.order {
            Order::Contiguous => "contiguous",
            Order::Strided => "strided",
            Order::Random => "random",
            Order::Mixed => "mixed",
            Order::Few => "few by each process,",
        };
        let ways = match self.ways {
            Ways::Reads => "reads",
            Ways::Writes => "writes",
            Ways::Both => "reads and writes",
        };
        let size = crate::Bytes(1 << self.size_log2.min(63));
        write!(f, "{order} {ways} of about {size}")
    }
}

/// What follows from an interval for a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Nothing to tell from.
    Quiet,
    /// The pattern that was planned for.
    Known,
    /// Another one, in so many intervals in a row out of those that it takes.
    Waiting {
        /// So many.
        seen: u32,
        /// Of so many.
        of: u32,
    },
    /// It lasts, but the layout was changed a short while ago.
    Paused {
        /// Until it may be changed again.
        left: Nanos,
    },
    /// It lasts: plan, and have it decided by [`Watch::decide`].
    Plan,
}

/// What is done.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Decision {
    /// The new layout is put into force; it gains this part of the time.
    Apply {
        /// 0 to 1.
        gain: f64,
    },
    /// The layout in force stays: the new one gains only so much, or nothing.
    Keep {
        /// Up to 1; negative when it would be slower.
        gain: f64,
    },
}

#[derive(Clone, Debug, Default)]
struct Group {
    /// What the layout in force was decided for.
    known: Option<Signature>,
    /// What may become known, and in how many intervals in a row it was seen.
    next: Option<(Signature, u32)>,
    changed: Option<Nanos>,
    /// When there was something to tell from last.
    told: Nanos,
}

/// All groups of files that are followed.
#[derive(Clone, Debug)]
pub struct Watch {
    hysteresis: Hysteresis,
    groups: BTreeMap<String, Group>,
}

impl Watch {
    /// Of nothing yet.
    pub fn new(hysteresis: Hysteresis) -> Self {
        Self { hysteresis, groups: BTreeMap::new() }
    }

    /// What keeps it back.
    pub fn hysteresis(&self) -> &Hysteresis {
        &self.hysteresis
    }

    /// An interval has ended at `now`, in which this was seen of a group.
    pub fn observe(&mut self, now: Nanos, group: &str, seen: Option<Signature>) -> Step {
        let Some(seen) = seen else { return Step::Quiet };
        if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(group) {
            let quiet = self.groups.iter().min_by_key(|(_, group)| group.told);
            let quiet = quiet.map(|(name, _)| name.clone()).expect("there are many");
            self.groups.remove(&quiet);
        }
        let group = self.groups.entry(group.to_owned()).or_default();
        group.told = now;
        if group.known.is_some_and(|known| known.is_like(&seen)) {
            group.next = None;
            return Step::Known;
        }
        let before = group.next.filter(|(next, _)| next.is_like(&seen));
        let (signature, count) = before.map_or((seen, 1), |(next, count)| (next, count.saturating_add(1)));
        group.next = Some((signature, count));
        let of = self.hysteresis.intervals.max(1);
        if count < of {
            return Step::Waiting { seen: count, of };
        }
        let since = group.changed.map(|changed| now.saturating_sub(changed));
        match since.filter(|since| *since < self.hysteresis.pause) {
            Some(since) => Step::Paused { left: self.hysteresis.pause.saturating_sub(since) },
            None => Step::Plan,
        }
    }

    /// The answer to [`Step::Plan`]: how long the requests take in the layout in force, and in the new one. From here on the
    /// pattern is known.
    ///
    /// # Panics
    /// When the group was not to be planned for.
    pub fn decide(&mut self, now: Nanos, group: &str, in_force_s: f64, planned_s: f64) -> Decision {
        let group = self.groups.get_mut(group).expect("a group that was observed");
        let (signature, _) = group.next.take().expect("a pattern that lasts");
        group.known = Some(signature);
        let gain = if in_force_s > 0.0 { 1.0 - planned_s / in_force_s } else { 0.0 };
        if gain < self.hysteresis.gain || gain <= 0.0 {
            return Decision::Keep { gain };
        }
        group.changed = Some(now);
        Decision::Apply { gain }
    }

    /// Nothing that was decided is in force any more: all begins anew.
    pub fn forget(&mut self) {
        self.groups.clear();
    }

    /// What was decided could not be done: the pattern is to be planned for again when it is seen the next time.
    pub fn failed(&mut self, group: &str) {
        if let Some(group) = self.groups.get_mut(group)
            && let Some(known) = group.known.take()
        {
            group.next = Some((known, self.hysteresis.intervals));
            group.changed = None;
        }
    }
}

impl Signature {
    /// Of requests that are all alike.
    pub fn alike(order: Order, direction: Direction, len: u64) -> Self {
        let ways = match direction {
            Direction::Read => Ways::Reads,
            Direction::Write => Ways::Writes,
        };
        Self { order, ways, size_log2: len.max(1).ilog2() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STREAM: Signature = Signature { order: Order::Contiguous, ways: Ways::Reads, size_log2: 20 };
    const RANDOM: Signature = Signature { order: Order::Random, ways: Ways::Reads, size_log2: 12 };

    fn hysteresis(intervals: u32, pause: u64) -> Hysteresis {
        Hysteresis { gain: 0.2, intervals, pause: Nanos(pause), requests: 1 }
    }

    /// Each step; whenever it is to be planned, the new layout takes `planned` of the time.
    fn steps(watch: &mut Watch, from: u64, seen: &[Option<Signature>], planned: f64) -> Vec<Step> {
        let step = |(number, seen): (usize, &Option<Signature>)| {
            let now = Nanos(from + number as u64);
            let step = watch.observe(now, "/d/*", *seen);
            if step == Step::Plan {
                watch.decide(now, "/d/*", 1.0, planned);
            }
            step
        };
        seen.iter().enumerate().map(step).collect()
    }

    fn plans(steps: &[Step]) -> usize {
        steps.iter().filter(|step| **step == Step::Plan).count()
    }

    #[test]
    fn a_lasting_change_is_planned_for_once() {
        let mut watch = Watch::new(hysteresis(3, 5));
        let first = steps(&mut watch, 0, &[Some(STREAM); 50], 0.99);
        assert_eq!(
            first[..3],
            [Step::Waiting { seen: 1, of: 3 }, Step::Waiting { seen: 2, of: 3 }, Step::Plan]
        );
        assert_eq!(plans(&first), 1, "what stays as it is is looked at once");
        let second = steps(&mut watch, 50, &[Some(RANDOM); 50], 0.5);
        assert_eq!((plans(&second), second[2]), (1, Step::Plan));
        assert!(second[3..].iter().all(|step| *step == Step::Known));
    }

    #[test]
    fn flapping_patterns_do_not_flap_layouts() {
        for period in 1..4 {
            let mut watch = Watch::new(hysteresis(4, 0));
            steps(&mut watch, 0, &[Some(STREAM); 4], 0.5);
            let flapping: Vec<_> =
                (0..200).map(|n| Some(if n / period % 2 == 0 { RANDOM } else { STREAM })).collect();
            assert_eq!(plans(&steps(&mut watch, 4, &flapping, 0.5)), 0, "period {period}");
        }
    }

    #[test]
    fn a_change_soon_after_another_waits() {
        let mut watch = Watch::new(hysteresis(2, 100));
        let steps = |watch: &mut Watch, from, seen| steps(watch, from, &[Some(seen); 10], 0.5);
        assert_eq!(plans(&steps(&mut watch, 0, STREAM)), 1);
        let early = steps(&mut watch, 10, RANDOM);
        assert_eq!(early[1], Step::Paused { left: Nanos(90) });
        assert_eq!(plans(&early), 0);
        // Changed at 1, so it may be changed again at 101.
        let late = steps(&mut watch, 95, RANDOM);
        assert_eq!(late.iter().position(|step| *step == Step::Plan), Some(6));
    }

    #[test]
    fn what_gains_little_stays_and_does_not_pause() {
        let mut watch = Watch::new(hysteresis(1, 1000));
        assert_eq!(watch.observe(Nanos(0), "a", Some(STREAM)), Step::Plan);
        assert_eq!(watch.decide(Nanos(0), "a", 10.0, 8.1), Decision::Keep { gain: 1.0 - 8.1 / 10.0 });
        assert_eq!(watch.observe(Nanos(1), "a", Some(RANDOM)), Step::Plan);
        assert_eq!(watch.decide(Nanos(1), "a", 10.0, 5.0), Decision::Apply { gain: 0.5 });
        assert!(matches!(watch.observe(Nanos(2), "a", Some(STREAM)), Step::Paused { .. }));
        // Another group has a pause of its own.
        assert_eq!(watch.observe(Nanos(2), "b", Some(STREAM)), Step::Plan);
        let decision = watch.decide(Nanos(2), "b", 0.0, 0.0);
        assert_eq!(decision, Decision::Keep { gain: 0.0 });
    }

    #[test]
    fn what_failed_is_tried_again() {
        let mut watch = Watch::new(hysteresis(3, 1000));
        assert_eq!(plans(&steps(&mut watch, 0, &[Some(STREAM); 3], 0.5)), 1);
        watch.failed("/d/*");
        assert_eq!(watch.observe(Nanos(4), "/d/*", Some(STREAM)), Step::Plan);
    }

    #[test]
    fn what_is_forgotten_has_to_last_again_and_does_not_wait_for_a_change_before() {
        let mut watch = Watch::new(hysteresis(2, 1000));
        assert_eq!(plans(&steps(&mut watch, 0, &[Some(STREAM); 4], 0.5)), 1);
        watch.forget();
        let again = steps(&mut watch, 4, &[Some(STREAM); 3], 0.5);
        assert_eq!(again, [Step::Waiting { seen: 1, of: 2 }, Step::Plan, Step::Known]);
    }

    #[test]
    fn lengths_may_differ_by_a_power_of_two() {
        let of = |size_log2| Signature { size_log2, ..STREAM };
        assert!(of(20).is_like(&of(21)) && of(20).is_like(&of(19)) && !of(20).is_like(&of(22)));
        assert!(!STREAM.is_like(&Signature { ways: Ways::Both, ..STREAM }));
        assert_eq!(STREAM, Signature::alike(Order::Contiguous, Direction::Read, 1 << 20));
    }

    #[test]
    fn the_quietest_group_gives_way() {
        let mut watch = Watch::new(hysteresis(1, 0));
        for number in 0..GROUPS_MAX as u64 {
            watch.observe(Nanos(10 + number), &format!("g{number}"), Some(STREAM));
            watch.decide(Nanos(10 + number), &format!("g{number}"), 1.0, 1.0);
        }
        assert_eq!(watch.observe(Nanos(9999), "g0", Some(STREAM)), Step::Known);
        watch.observe(Nanos(10_000), "new", Some(STREAM));
        assert_eq!(watch.groups.len(), GROUPS_MAX);
        assert!(watch.groups.contains_key("g0") && !watch.groups.contains_key("g1"));
    }

    proptest! {
        /// Against the whole history: a pattern is planned for exactly when it was all that was seen in the last intervals,
        /// is not the one planned for last, and the last change is long enough ago.
        #[test]
        fn plans_follow_from_the_history(
            history in prop::collection::vec((0u8..4, 1u64..6, any::<bool>()), 1..80),
            intervals in 1u32..5,
            pause in 0u64..40,
        ) {
            let kinds = [None, Some(STREAM), Some(RANDOM), Some(Signature { ways: Ways::Writes, ..STREAM })];
            let mut watch = Watch::new(hysteresis(intervals, pause));
            let (mut now, mut told) = (100u64, Vec::new());
            let (mut planned_for, mut changed): (Option<Signature>, Option<u64>) = (None, None);
            for (kind, later, worth) in history {
                now += later;
                let seen = kinds[usize::from(kind)];
                told.extend(seen);
                let step = watch.observe(Nanos(now), "g", seen);
                let last = &told[told.len().saturating_sub(intervals as usize)..];
                let lasts = last.len() == intervals as usize && last.iter().all(|one| Some(*one) == seen);
                let rested = changed.is_none_or(|changed| now - changed >= pause);
                let due = seen.is_some() && lasts && seen != planned_for && rested;
                prop_assert_eq!(step == Step::Plan, due, "{:?} at {}", step, now);
                if due {
                    planned_for = seen;
                    let decision = watch.decide(Nanos(now), "g", 1.0, if worth { 0.7 } else { 0.9 });
                    prop_assert_eq!(matches!(decision, Decision::Apply { .. }), worth);
                    if worth {
                        changed = Some(now);
                    }
                }
            }
        }
    }
}
