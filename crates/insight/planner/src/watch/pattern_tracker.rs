//! Decides when a changed access pattern is worth a new plan: a state machine without clock or cluster.
//!
//! ```text
//!         pattern as known                       not seen often enough, or paused
//!          ┌───────────┐                                   ┌───────────┐
//!          v           |      another pattern              v           |
//!         known ───────┴────────────────────────────────> waiting ─────┤
//!          ^                                               |  |        | yet another pattern:
//!          |                                               |  └────────┘ count from 1
//!          └── decide: apply or keep <── plan <────────────┘ seen in `intervals` consecutive intervals
//! ```
//!
//! | step | condition |
//! | --- | --- |
//! | `TooFewRequests` | fewer than `requests` requests in the interval; does not count |
//! | `Known` | like the pattern of the last decision |
//! | `Waiting` | another pattern, in fewer than `intervals` consecutive intervals |
//! | `Paused` | long enough, but the last change was less than `pause` ago |
//! | `Plan` | due |
//!
//! After a decision the pattern is known, whether the layout was changed or not. A program that alternates between
//! patterns within `intervals` intervals therefore never causes a plan.

use crate::mix::Direction;
use crate::pattern::Shape;
use crate::survey::FileGroup;
use std::collections::BTreeMap;
use weft_core::Nanos;

/// Maximum number of tracked groups. The one idle for longest is dropped.
const GROUPS_MAX: usize = 4096;
/// Fraction of the bytes that makes a group read-only or write-only.
const ONE_DIRECTION_MIN: f64 = 0.9;

/// Thresholds that keep layouts from following short-lived changes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Hysteresis {
    /// Fraction of the current time, 0 to 1, that a new layout has to save.
    pub gain: f64,
    /// Consecutive intervals in which a pattern must be seen. Intervals without requests do not count.
    pub intervals: u32,
    /// Minimum time between two changes of a group.
    pub pause: Nanos,
    /// Minimum requests in an interval to classify a group.
    pub requests: u64,
}

impl Default for Hysteresis {
    fn default() -> Self {
        Self { gain: 0.2, intervals: 3, pause: Nanos::from_s(3600), requests: 64 }
    }
}

/// Order of requests, as far as it matters for a layout.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Order {
    /// Contiguous.
    Contiguous,
    /// Blocks at fixed distances, possibly nested.
    Strided,
    /// No order.
    Random,
    /// Several orders.
    Mixed,
    /// Most bytes belong to files with only one or two requests per process, for instance small files read as a whole.
    /// A single file shows no order, but the group as a whole has a layout.
    Few,
}

/// Predominant direction of a group's bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DirectionMix {
    /// At least 90 % are read.
    Reads,
    /// At least 90 % are written.
    Writes,
    /// Neither.
    Both,
}

/// The properties of an access pattern that determine a good layout.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Signature {
    /// Order of requests.
    pub order: Order,
    /// Direction.
    pub directions: DirectionMix,
    /// Base-2 logarithm of the length that moves most bytes.
    pub size_log2: u32,
}

impl Signature {
    /// The signature of a file group; `None` with too few requests.
    pub fn of(group: &FileGroup, hysteresis: &Hysteresis) -> Option<Self> {
        if group.reads + group.writes < hysteresis.requests.max(1) {
            return None;
        }
        let order = match &group.pattern.shape {
            Shape::Few => Order::Few,
            Shape::Contiguous => Order::Contiguous,
            Shape::Strided { .. } | Shape::Nested { .. } => Order::Strided,
            Shape::Random => Order::Random,
            Shape::Mixed { .. } => Order::Mixed,
        };
        let part = |bytes: u64| bytes as f64 >= ONE_DIRECTION_MIN * group.bytes() as f64;
        let directions = match (part(group.read_bytes), part(group.written_bytes)) {
            (true, _) => DirectionMix::Reads,
            (_, true) => DirectionMix::Writes,
            _ => DirectionMix::Both,
        };
        let size_log2 = group.request_size().ilog2();
        Some(Self { order, directions, size_log2 })
    }

    /// Whether one layout suits both: equal order and direction, and lengths within a factor of two.
    pub fn is_similar(&self, other: &Self) -> bool {
        let is_same = (self.order, self.directions) == (other.order, other.directions);
        is_same && self.size_log2.abs_diff(other.size_log2) <= 1
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
        let directions = match self.directions {
            DirectionMix::Reads => "reads",
            DirectionMix::Writes => "writes",
            DirectionMix::Both => "reads and writes",
        };
        let size = crate::Bytes(1 << self.size_log2.min(63));
        write!(f, "{order} {directions} of about {size}")
    }
}

/// The consequence of an interval for a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Too few requests to classify.
    TooFewRequests,
    /// The pattern of the last decision.
    Known,
    /// Another pattern, not seen for long enough.
    Waiting {
        /// Consecutive intervals in which it was seen.
        seen: u32,
        /// Intervals required.
        of: u32,
    },
    /// A lasting change, but too soon after the previous one.
    Paused {
        /// Time until the next change is allowed.
        left: Nanos,
    },
    /// A lasting change: plan, then call [`PatternTracker::decide`].
    Plan,
}

/// Whether to change the layout.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Decision {
    /// Put the new layout into force.
    Apply {
        /// Fraction of the time saved, 0 to 1.
        gain: f64,
    },
    /// Keep the current layout.
    Keep {
        /// Fraction of the time that the new layout would save; negative if it is slower.
        gain: f64,
    },
}

#[derive(Clone, Debug, Default)]
struct TrackedGroup {
    /// Signature at the last decision.
    known: Option<Signature>,
    /// A different signature, and the number of consecutive intervals in which it was seen.
    next: Option<(Signature, u32)>,
    changed: Option<Nanos>,
    /// Last interval with enough requests.
    last_seen: Nanos,
}

/// The tracked file groups.
#[derive(Clone, Debug)]
pub struct PatternTracker {
    hysteresis: Hysteresis,
    groups: BTreeMap<String, TrackedGroup>,
}

impl PatternTracker {
    /// Tracks no group yet.
    pub fn new(hysteresis: Hysteresis) -> Self {
        Self { hysteresis, groups: BTreeMap::new() }
    }

    /// The thresholds.
    pub fn hysteresis(&self) -> &Hysteresis {
        &self.hysteresis
    }

    /// Records the signature of a group in an interval that ended at `now`.
    pub fn observe(&mut self, now: Nanos, group: &str, seen: Option<Signature>) -> Step {
        let Some(seen) = seen else { return Step::TooFewRequests };
        if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(group) {
            let idle_longest = self.groups.iter().min_by_key(|(_, group)| group.last_seen);
            let idle_longest = idle_longest.map(|(name, _)| name.clone()).expect("the map is full");
            self.groups.remove(&idle_longest);
        }
        let group = self.groups.entry(group.to_owned()).or_default();
        group.last_seen = now;
        if group.known.is_some_and(|known| known.is_similar(&seen)) {
            group.next = None;
            return Step::Known;
        }
        let before = group.next.filter(|(next, _)| next.is_similar(&seen));
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

    /// Decides on a group after [`Step::Plan`], from its predicted times under the current and the new layout. The
    /// pattern is known from now on.
    ///
    /// # Panics
    /// If no plan was due for the group.
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

    /// Forgets all decisions.
    pub fn forget(&mut self) {
        self.groups.clear();
    }

    /// Reverts a decision that could not be carried out. The pattern is planned again when it is next seen.
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
    /// The signature of equal requests.
    pub fn of_equal_requests(order: Order, direction: Direction, len: u64) -> Self {
        let directions = match direction {
            Direction::Read => DirectionMix::Reads,
            Direction::Write => DirectionMix::Writes,
        };
        Self { order, directions, size_log2: len.max(1).ilog2() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STREAM: Signature =
        Signature { order: Order::Contiguous, directions: DirectionMix::Reads, size_log2: 20 };
    const RANDOM: Signature =
        Signature { order: Order::Random, directions: DirectionMix::Reads, size_log2: 12 };

    fn hysteresis(intervals: u32, pause: u64) -> Hysteresis {
        Hysteresis { gain: 0.2, intervals, pause: Nanos(pause), requests: 1 }
    }

    /// Observes each signature. Whenever a plan is due, the new layout takes `planned` of the time.
    fn steps(watch: &mut PatternTracker, from: u64, seen: &[Option<Signature>], planned: f64) -> Vec<Step> {
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
        let mut watch = PatternTracker::new(hysteresis(3, 5));
        let first = steps(&mut watch, 0, &[Some(STREAM); 50], 0.99);
        assert_eq!(
            first[..3],
            [Step::Waiting { seen: 1, of: 3 }, Step::Waiting { seen: 2, of: 3 }, Step::Plan]
        );
        assert_eq!(plans(&first), 1, "an unchanged pattern is planned once");
        let second = steps(&mut watch, 50, &[Some(RANDOM); 50], 0.5);
        assert_eq!((plans(&second), second[2]), (1, Step::Plan));
        assert!(second[3..].iter().all(|step| *step == Step::Known));
    }

    #[test]
    fn flapping_patterns_do_not_flap_layouts() {
        for period in 1..4 {
            let mut watch = PatternTracker::new(hysteresis(4, 0));
            steps(&mut watch, 0, &[Some(STREAM); 4], 0.5);
            let flapping: Vec<_> =
                (0..200).map(|n| Some(if n / period % 2 == 0 { RANDOM } else { STREAM })).collect();
            assert_eq!(plans(&steps(&mut watch, 4, &flapping, 0.5)), 0, "period {period}");
        }
    }

    #[test]
    fn a_change_soon_after_another_is_paused() {
        let mut watch = PatternTracker::new(hysteresis(2, 100));
        let steps = |watch: &mut PatternTracker, from, seen| steps(watch, from, &[Some(seen); 10], 0.5);
        assert_eq!(plans(&steps(&mut watch, 0, STREAM)), 1);
        let early = steps(&mut watch, 10, RANDOM);
        assert_eq!(early[1], Step::Paused { left: Nanos(90) });
        assert_eq!(plans(&early), 0);
        // Changed at 1, so the next change is allowed at 101.
        let late = steps(&mut watch, 95, RANDOM);
        assert_eq!(late.iter().position(|step| *step == Step::Plan), Some(6));
    }

    #[test]
    fn a_small_gain_keeps_the_layout_without_a_pause() {
        let mut watch = PatternTracker::new(hysteresis(1, 1000));
        assert_eq!(watch.observe(Nanos(0), "a", Some(STREAM)), Step::Plan);
        assert_eq!(watch.decide(Nanos(0), "a", 10.0, 8.1), Decision::Keep { gain: 1.0 - 8.1 / 10.0 });
        assert_eq!(watch.observe(Nanos(1), "a", Some(RANDOM)), Step::Plan);
        assert_eq!(watch.decide(Nanos(1), "a", 10.0, 5.0), Decision::Apply { gain: 0.5 });
        assert!(matches!(watch.observe(Nanos(2), "a", Some(STREAM)), Step::Paused { .. }));
        // Each group has its own pause.
        assert_eq!(watch.observe(Nanos(2), "b", Some(STREAM)), Step::Plan);
        let decision = watch.decide(Nanos(2), "b", 0.0, 0.0);
        assert_eq!(decision, Decision::Keep { gain: 0.0 });
    }

    #[test]
    fn a_failed_decision_is_retried() {
        let mut watch = PatternTracker::new(hysteresis(3, 1000));
        assert_eq!(plans(&steps(&mut watch, 0, &[Some(STREAM); 3], 0.5)), 1);
        watch.failed("/d/*");
        assert_eq!(watch.observe(Nanos(4), "/d/*", Some(STREAM)), Step::Plan);
    }

    #[test]
    fn a_forgotten_pattern_must_last_again_but_is_not_paused() {
        let mut watch = PatternTracker::new(hysteresis(2, 1000));
        assert_eq!(plans(&steps(&mut watch, 0, &[Some(STREAM); 4], 0.5)), 1);
        watch.forget();
        let again = steps(&mut watch, 4, &[Some(STREAM); 3], 0.5);
        assert_eq!(again, [Step::Waiting { seen: 1, of: 2 }, Step::Plan, Step::Known]);
    }

    #[test]
    fn lengths_may_differ_by_a_power_of_two() {
        let of = |size_log2| Signature { size_log2, ..STREAM };
        assert!(of(20).is_similar(&of(21)) && of(20).is_similar(&of(19)) && !of(20).is_similar(&of(22)));
        assert!(!STREAM.is_similar(&Signature { directions: DirectionMix::Both, ..STREAM }));
        assert_eq!(STREAM, Signature::of_equal_requests(Order::Contiguous, Direction::Read, 1 << 20));
    }

    #[test]
    fn the_group_idle_for_longest_is_dropped() {
        let mut watch = PatternTracker::new(hysteresis(1, 0));
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
        /// Compares with a reference that sees the whole history. A plan is due exactly if the last intervals all had
        /// this pattern, it was not planned for last, and the last change is long enough ago.
        #[test]
        fn plans_follow_from_the_history(
            history in prop::collection::vec((0u8..4, 1u64..6, any::<bool>()), 1..80),
            intervals in 1u32..5,
            pause in 0u64..40,
        ) {
            let writes = Signature { directions: DirectionMix::Writes, ..STREAM };
            let kinds = [None, Some(STREAM), Some(RANDOM), Some(writes)];
            let mut watch = PatternTracker::new(hysteresis(intervals, pause));
            let (mut now, mut all_seen) = (100u64, Vec::new());
            let (mut planned_for, mut changed): (Option<Signature>, Option<u64>) = (None, None);
            for (kind, later, worth) in history {
                now += later;
                let seen = kinds[usize::from(kind)];
                all_seen.extend(seen);
                let step = watch.observe(Nanos(now), "g", seen);
                let last = &all_seen[all_seen.len().saturating_sub(intervals as usize)..];
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
