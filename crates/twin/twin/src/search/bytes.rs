//! Model of a file's bytes: for each range, the changes whose bytes a read may return.
//!
//! Each byte is an independent register. A write that was answered is visible to every later read, until a newer write
//! replaces it. While several changes are in progress, and after a change without a reply, a read may see any of them.
//!
//! A read is also evidence: a change that ended before the read began, and that the read did not see, is superseded.
//!
//! Loss of power undoes changes that no sync covers, so a superseded change may return. It is only dropped when a sync
//! that began after it was superseded has succeeded.

use std::collections::BTreeMap;
use weft_core::random::splitmix64;

/// Position in the sequence of all events that the search observes. Many moments share one virtual time.
pub type Moment = u64;
/// Moment of an event that has not happened.
pub const NEVER: Moment = Moment::MAX;

/// Bytes that a change writes into its range.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fill {
    /// Zeros, as after a truncation and before the first write.
    Zero,
    /// A word that depends on the offset.
    Positional,
    /// A word that depends on the offset, eight times. Such bytes compress.
    Repeating,
    /// One byte repeated. Appends use it because their offset is not known when they begin.
    Uniform,
}

/// Number of the operation that changes a file's bytes. 0 stands for the initial hole.
pub type ChangeId = u32;

fn word(change: ChangeId, word: u64) -> u64 {
    // No byte is zero, so that written bytes never look like a hole.
    splitmix64(u64::from(change) << 40 ^ word) | 0x0101_0101_0101_0101
}

/// Fills `out` with the bytes that a change writes from `offset` on.
pub fn fill(change: ChangeId, kind: Fill, offset: u64, out: &mut [u8]) {
    match kind {
        Fill::Zero => out.fill(0),
        Fill::Uniform => out.fill(word(change, 0) as u8),
        Fill::Positional | Fill::Repeating => {
            let word_stride = if kind == Fill::Positional { 8 } else { 64 };
            let mut done = 0;
            while done < out.len() {
                let at = offset + done as u64;
                let bytes = word(change, at / word_stride).to_le_bytes();
                let inside = (at % 8) as usize;
                let count = (8 - inside).min(out.len() - done);
                out[done..done + count].copy_from_slice(&bytes[inside..inside + count]);
                done += count;
            }
        }
    }
}

fn byte(change: ChangeId, kind: Fill, offset: u64) -> u8 {
    let mut one = [0];
    fill(change, kind, offset, &mut one);
    one[0]
}

fn is(change: ChangeId, kind: Fill, offset: u64, bytes: &[u8]) -> bool {
    let mut buf = [0; 512];
    bytes.chunks(512).zip(0..).all(|(chunk, index): (_, u64)| {
        let want = &mut buf[..chunk.len()];
        fill(change, kind, offset + index * 512, want);
        want == chunk
    })
}

/// A change that a read of the range may see.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Candidate {
    by: ChangeId,
    kind: Fill,
    begun: Moment,
    /// Moment from which on it takes no further effect.
    ended: Moment,
    /// Moment from which on newly started reads do not see it.
    gone: Moment,
    /// Whether it stays superseded even after loss of power.
    durably_gone: bool,
}

/// Description of a wrong read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mismatch {
    /// Offset of the first wrong byte.
    pub offset: u64,
    /// The first wrong byte.
    pub got: u8,
    /// Change that wrote these bytes, if any did.
    pub belongs_to: Option<ChangeId>,
    /// Changes that the read may see.
    pub legal: Vec<ChangeId>,
    /// Number of consecutive wrong bytes.
    pub run: usize,
}

/// Model of the bytes of one file.
#[derive(Clone, Debug)]
pub struct Bytes {
    /// Candidates by the first byte of their range. Each range extends to the next one.
    ranges: BTreeMap<u64, Vec<Candidate>>,
}

impl Default for Bytes {
    fn default() -> Self {
        let zeros =
            Candidate { by: 0, kind: Fill::Zero, begun: 0, ended: 0, gone: NEVER, durably_gone: false };
        Self { ranges: BTreeMap::from([(0, vec![zeros])]) }
    }
}

impl Bytes {
    fn split(&mut self, at: u64) {
        if at == u64::MAX || self.ranges.contains_key(&at) {
            return;
        }
        let candidate = self.ranges.range(..at).next_back().expect("the first range begins at 0").1.clone();
        self.ranges.insert(at, candidate);
    }

    /// Calls `f` for all ranges within `start..end`, after splitting ranges at these offsets.
    fn each(&mut self, start: u64, end: u64, mut f: impl FnMut(u64, u64, &mut Vec<Candidate>)) {
        if start >= end {
            return;
        }
        self.split(start);
        self.split(end);
        let mut starts: Vec<u64> = self.ranges.range(start..end).map(|(at, _)| *at).collect();
        starts.push(end);
        for pair in starts.windows(2) {
            f(pair[0], pair[1], self.ranges.get_mut(&pair[0]).expect("listed above"));
        }
    }

    /// A change begins.
    pub fn begin(&mut self, by: ChangeId, kind: Fill, (start, end): (u64, u64), now: Moment) {
        let candidate = Candidate { by, kind, begun: now, ended: NEVER, gone: NEVER, durably_gone: false };
        self.each(start, end, |_, _, all| all.push(candidate.clone()));
    }

    /// The change turns out to affect only `start..end`.
    pub fn narrow(&mut self, by: ChangeId, (start, end): (u64, u64)) {
        let drop = |_: u64, _: u64, all: &mut Vec<Candidate>| all.retain(|candidate| candidate.by != by);
        self.each(0, start, drop);
        self.each(end, u64::MAX, drop);
    }

    /// The change was answered. With `sure`, every later read sees it.
    pub fn end(&mut self, by: ChangeId, (start, end): (u64, u64), now: Moment, sure: bool) {
        self.each(start, end, |_, _, all| {
            let Some(at) = all.iter().position(|candidate| candidate.by == by) else { return };
            all[at].ended = now;
            if sure {
                supersede(all, by, now);
            }
        });
    }

    /// A sync reported the change as durable to its writer.
    pub fn confirm(&mut self, by: ChangeId, now: Moment) {
        self.each(0, u64::MAX, |_, _, all| supersede(all, by, now));
    }

    /// A sync that began at `began` has succeeded. `oldest` is the start of the earliest read in progress.
    pub fn synced(&mut self, began: Moment, oldest: Moment) {
        for all in self.ranges.values_mut() {
            for candidate in all.iter_mut() {
                candidate.durably_gone |= candidate.gone < began;
            }
            all.retain(|candidate| !(candidate.durably_gone && candidate.gone < oldest));
        }
    }

    /// Loss of power in `start..end`: changes that were not synced may be present or absent.
    pub fn lost_power(&mut self, start: u64, end: u64) {
        let returns = |candidate: &Candidate| !candidate.durably_gone && candidate.gone != NEVER;
        if !self.ranges.values().flatten().any(returns) {
            return;
        }
        self.each(start, end, |_, _, all| {
            all.iter_mut()
                .filter(|candidate| returns(candidate))
                .for_each(|candidate| candidate.gone = NEVER);
        });
    }

    /// No operation is in progress any more, so changes without a reply take no further effect.
    pub fn quiesced(&mut self, now: Moment) {
        for candidate in self.ranges.values_mut().flatten().filter(|candidate| candidate.ended == NEVER) {
            candidate.ended = now;
        }
    }

    /// Returns the start of the last range. No write has reached it.
    pub fn last_start(&self) -> u64 {
        self.ranges.last_key_value().map_or(0, |(at, _)| *at)
    }

    /// Number of ranges in which a read may see more than one change.
    pub fn uncertain(&self) -> usize {
        let open = |all: &&Vec<Candidate>| all.iter().filter(|candidate| candidate.gone == NEVER).count() > 1;
        self.ranges.values().filter(open).count()
    }

    /// Checks the bytes of a read that began at `began`, and uses them as evidence.
    #[cfg(test)]
    fn check(&mut self, offset: u64, bytes: &[u8], began: Moment, now: Moment) -> Result<(), Mismatch> {
        self.check_and(true, offset, bytes, began, now)
    }

    /// Checks the bytes of a read that began at `began`. With `learn`, the bytes are evidence for later reads.
    pub fn check_and(
        &mut self,
        learn: bool,
        offset: u64,
        bytes: &[u8],
        began: Moment,
        now: Moment,
    ) -> Result<(), Mismatch> {
        let end = offset + bytes.len() as u64;
        let mut wrong = None;
        self.each(offset, end, |start, stop, all| {
            if wrong.is_some() {
                return;
            }
            let got = &bytes[(start - offset) as usize..(stop - offset) as usize];
            let legal = |candidate: &Candidate| candidate.gone > began;
            let fits: Vec<ChangeId> = all
                .iter()
                .filter(|candidate| legal(candidate) && is(candidate.by, candidate.kind, start, got))
                .map(|candidate| candidate.by)
                .collect();
            if fits.is_empty() {
                wrong = first_wrong(all, start, got, legal);
                return;
            }
            if !learn {
                return;
            }
            // A change that ended before the read began and was not seen is superseded.
            for candidate in
                all.iter_mut().filter(|candidate| candidate.ended < began && !fits.contains(&candidate.by))
            {
                candidate.gone = candidate.gone.min(now);
            }
            if let [one] = fits[..] {
                supersede(all, one, now);
            }
        });
        wrong.map_or(Ok(()), Err)
    }
}

/// `by` is visible at `now`: changes that had ended before it began are superseded.
fn supersede(all: &mut [Candidate], by: ChangeId, now: Moment) {
    let Some(begun) = all.iter().find(|candidate| candidate.by == by).map(|candidate| candidate.begun) else {
        return;
    };
    for candidate in all.iter_mut().filter(|candidate| candidate.by != by && candidate.ended < begun) {
        candidate.gone = candidate.gone.min(now);
    }
}

fn first_wrong(
    all: &[Candidate],
    start: u64,
    got: &[u8],
    legal: impl Fn(&Candidate) -> bool,
) -> Option<Mismatch> {
    let fits = |(offset, got): (u64, &u8)| {
        all.iter().any(|candidate| legal(candidate) && byte(candidate.by, candidate.kind, offset) == *got)
    };
    let at = (start..).zip(got).position(|byte| !fits(byte))?;
    let (offset, rest) = (start + at as u64, &got[at..]);
    let run = (offset..).zip(rest).take_while(|byte| !fits(*byte)).count();
    let of = |candidate: &&Candidate| is(candidate.by, candidate.kind, offset, &rest[..run]);
    let belongs_to = all.iter().rev().find(of).map(|candidate| candidate.by);
    let legal = all.iter().filter(|candidate| legal(candidate)).map(|candidate| candidate.by).collect();
    Some(Mismatch { offset, got: rest[0], belongs_to, legal, run })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(by: ChangeId, offset: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        fill(by, Fill::Positional, offset, &mut out);
        out
    }

    /// Two answered writes of 0..100, first by change 1 and then by change 2.
    fn two() -> Bytes {
        let mut bytes = Bytes::default();
        for (by, now) in [(1, 10), (2, 20)] {
            bytes.begin(by, Fill::Positional, (0, 100), now);
            bytes.end(by, (0, 100), now + 5, true);
        }
        bytes
    }

    #[test]
    fn a_read_after_an_answered_write_sees_it() {
        let mut bytes = two();
        assert_eq!(bytes.check(10, &bytes_of(2, 10, 50), 30, 31), Ok(()));
        let wrong = bytes.check(10, &bytes_of(1, 10, 50), 30, 31).expect_err("too old");
        assert_eq!((wrong.offset, wrong.belongs_to), (10, Some(1)));
        assert!(bytes.check(10, &[0; 50], 30, 31).is_err(), "not even zeros");
    }

    #[test]
    fn a_read_during_a_write_may_see_both_and_later_reads_only_the_newer() {
        let mut bytes = Bytes::default();
        bytes.begin(1, Fill::Positional, (0, 100), 10);
        bytes.end(1, (0, 100), 11, true);
        bytes.begin(2, Fill::Positional, (50, 100), 20);
        assert_eq!(bytes.clone().check(0, &bytes_of(1, 0, 100), 21, 22), Ok(()));
        let mixed = [bytes_of(1, 0, 50), bytes_of(2, 50, 50)].concat();
        assert_eq!(bytes.check(0, &mixed, 21, 22), Ok(()));
        assert!(bytes.check(0, &bytes_of(1, 0, 100), 23, 24).is_err(), "the newer one has been seen");
    }

    #[test]
    fn an_unanswered_write_may_take_effect_late_but_not_after_quiescence() {
        let mut bytes = Bytes::default();
        bytes.begin(1, Fill::Positional, (0, 10), 10);
        bytes.begin(2, Fill::Positional, (0, 10), 20);
        bytes.end(2, (0, 10), 25, true);
        assert_eq!(bytes.check(0, &bytes_of(2, 0, 10), 30, 31), Ok(()));
        let mut late = bytes.clone();
        assert_eq!(late.check(0, &bytes_of(1, 0, 10), 32, 33), Ok(()), "it may take effect only now");
        assert!(late.check(0, &bytes_of(2, 0, 10), 34, 35).is_err(), "and overwrite the other");
        bytes.quiesced(40);
        assert_eq!(bytes.check(0, &bytes_of(2, 0, 10), 41, 42), Ok(()));
        assert!(bytes.check(0, &bytes_of(1, 0, 10), 43, 44).is_err());
    }

    #[test]
    fn loss_of_power_undoes_unsynced_writes_only() {
        let mut bytes = two();
        bytes.synced(16, NEVER);
        bytes.lost_power(0, 50);
        assert_eq!(bytes.clone().check(0, &bytes_of(1, 0, 50), 40, 41), Ok(()));
        assert!(bytes.clone().check(0, &[0; 50], 40, 41).is_err(), "superseded before the sync");
        assert!(bytes.clone().check(50, &bytes_of(1, 50, 50), 40, 41).is_err(), "on another machine");
        let mut bytes = two();
        bytes.synced(26, NEVER);
        bytes.lost_power(0, 100);
        assert!(bytes.check(0, &bytes_of(1, 0, 50), 40, 41).is_err());
    }

    #[test]
    fn truncated_bytes_do_not_return() {
        let mut bytes = two();
        bytes.begin(3, Fill::Zero, (30, u64::MAX), 30);
        bytes.end(3, (30, u64::MAX), 31, true);
        let zeros = [bytes_of(2, 0, 30), vec![0; 70]].concat();
        assert_eq!(bytes.check(0, &zeros, 40, 41), Ok(()));
        assert_eq!(bytes.check(0, &bytes_of(2, 0, 100), 42, 43).expect_err("cut").offset, 30);
    }
}
