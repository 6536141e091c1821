//! Which bytes a read may give: for every range of a file, the writes whose bytes may be there.
//!
//! Each byte is a register of its own. A write that was answered is there for every read that begins later, until
//! something newer is; while several are under way at once, and after one whose outcome nobody knows, any of them may
//! be. What a read saw is evidence: what was over before it began, and was not seen, is gone.
//!
//! Loss of power takes back what no sync has covered. So what is gone is only forgotten when a sync that began later
//! has succeeded.

use std::collections::BTreeMap;

/// A moment in the order of everything that the search saw. Virtual time stands still between many of these.
pub type Moment = u64;
/// Not yet.
pub const NEVER: Moment = Moment::MAX;

/// What a change puts into its range.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fill {
    /// Zeros, as cutting and the time before the first write do.
    Zero,
    /// Bytes that differ from place to place.
    Placed,
    /// The same byte everywhere: who appends does not know where to.
    Flat,
}

/// A change of a file's bytes, by the number of its operation.
pub type ChangeId = u32;

fn word(change: ChangeId, word: u64) -> u64 {
    let mut x = (u64::from(change) << 40 ^ word).wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    // No byte is zero, so that none is taken for a hole.
    (x ^ (x >> 31)) | 0x0101_0101_0101_0101
}

/// The bytes of a change from `offset` on.
pub fn fill(change: ChangeId, kind: Fill, offset: u64, out: &mut [u8]) {
    match kind {
        Fill::Zero => out.fill(0),
        Fill::Flat => out.fill(word(change, 0) as u8),
        Fill::Placed => {
            let mut done = 0;
            while done < out.len() {
                let at = offset + done as u64;
                let bytes = word(change, at / 8).to_le_bytes();
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

/// A change that may be in a range.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Held {
    by: ChangeId,
    kind: Fill,
    begun: Moment,
    /// From when on it takes no more effect.
    ended: Moment,
    /// Reads that begin later do not see it.
    gone: Moment,
    /// Not even loss of power brings it back.
    buried: bool,
}

/// What a wrong read was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrong {
    /// The first wrong byte.
    pub offset: u64,
    /// It.
    pub got: u8,
    /// What it belongs to, if anything that was ever written there.
    pub belongs_to: Option<ChangeId>,
    /// What might have been there.
    pub legal: Vec<ChangeId>,
    /// So many bytes in a row are as wrong.
    pub run: usize,
}

/// The bytes of one file.
#[derive(Clone, Debug)]
pub struct Bytes {
    /// By their first byte; each range reaches to the next one.
    ranges: BTreeMap<u64, Vec<Held>>,
}

impl Default for Bytes {
    fn default() -> Self {
        let zeros = Held { by: 0, kind: Fill::Zero, begun: 0, ended: 0, gone: NEVER, buried: false };
        Self { ranges: BTreeMap::from([(0, vec![zeros])]) }
    }
}

impl Bytes {
    fn split(&mut self, at: u64) {
        if at == u64::MAX || self.ranges.contains_key(&at) {
            return;
        }
        let held = self.ranges.range(..at).next_back().expect("the first range begins at 0").1.clone();
        self.ranges.insert(at, held);
    }

    /// Calls `f` for all ranges within `start..end`, made to begin and end there.
    fn each(&mut self, start: u64, end: u64, mut f: impl FnMut(u64, u64, &mut Vec<Held>)) {
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
        let held = Held { by, kind, begun: now, ended: NEVER, gone: NEVER, buried: false };
        self.each(start, end, |_, _, all| all.push(held.clone()));
    }

    /// It turns out to have touched nothing outside `start..end`.
    pub fn narrow(&mut self, by: ChangeId, (start, end): (u64, u64)) {
        let drop = |_: u64, _: u64, all: &mut Vec<Held>| all.retain(|held| held.by != by);
        self.each(0, start, drop);
        self.each(end, u64::MAX, drop);
    }

    /// It was answered; `sure` when it must be there from now on.
    pub fn end(&mut self, by: ChangeId, (start, end): (u64, u64), now: Moment, sure: bool) {
        self.each(start, end, |_, _, all| {
            let Some(at) = all.iter().position(|held| held.by == by) else { return };
            all[at].ended = now;
            if sure {
                supersede(all, by, now);
            }
        });
    }

    /// Its writer was told that what it wrote is safe.
    pub fn confirm(&mut self, by: ChangeId, now: Moment) {
        self.each(0, u64::MAX, |_, _, all| supersede(all, by, now));
    }

    /// A sync that began at `began` has succeeded. `oldest` is the earliest read under way.
    pub fn synced(&mut self, began: Moment, oldest: Moment) {
        for all in self.ranges.values_mut() {
            for held in all.iter_mut() {
                held.buried |= held.gone < began;
            }
            all.retain(|held| !(held.buried && held.gone < oldest));
        }
    }

    /// Loss of power in `start..end`: what was not synced may be there or not.
    pub fn lost_power(&mut self, start: u64, end: u64) {
        let returns = |held: &Held| !held.buried && held.gone != NEVER;
        if !self.ranges.values().flatten().any(returns) {
            return;
        }
        self.each(start, end, |_, _, all| {
            all.iter_mut().filter(|held| returns(held)).for_each(|held| held.gone = NEVER);
        });
    }

    /// Nothing is under way any more: what never ended has.
    pub fn quiet(&mut self, now: Moment) {
        for held in self.ranges.values_mut().flatten().filter(|held| held.ended == NEVER) {
            held.ended = now;
        }
    }

    /// Where the last range begins: nothing was ever written behind it.
    pub fn last_start(&self) -> u64 {
        self.ranges.last_key_value().map_or(0, |(at, _)| *at)
    }

    /// Ranges in which more than one change may be there.
    pub fn uncertain(&self) -> usize {
        let open = |all: &&Vec<Held>| all.iter().filter(|held| held.gone == NEVER).count() > 1;
        self.ranges.values().filter(open).count()
    }

    /// Checks what a read that began at `began` has given.
    #[cfg(test)]
    fn check(&mut self, offset: u64, bytes: &[u8], began: Moment, now: Moment) -> Result<(), Wrong> {
        self.check_and(true, offset, bytes, began, now)
    }

    /// Checks what a read that began at `began` has given, perhaps without taking it for evidence of what is there now.
    pub fn check_and(
        &mut self,
        learn: bool,
        offset: u64,
        bytes: &[u8],
        began: Moment,
        now: Moment,
    ) -> Result<(), Wrong> {
        let end = offset + bytes.len() as u64;
        let mut wrong = None;
        self.each(offset, end, |start, stop, all| {
            if wrong.is_some() {
                return;
            }
            let got = &bytes[(start - offset) as usize..(stop - offset) as usize];
            let legal = |held: &Held| held.gone > began;
            let fits: Vec<ChangeId> = all
                .iter()
                .filter(|held| legal(held) && is(held.by, held.kind, start, got))
                .map(|held| held.by)
                .collect();
            if fits.is_empty() {
                wrong = first_wrong(all, start, got, legal);
                return;
            }
            if !learn {
                return;
            }
            // What was over before the read began and was not seen is gone.
            for held in all.iter_mut().filter(|held| held.ended < began && !fits.contains(&held.by)) {
                held.gone = held.gone.min(now);
            }
            if let [one] = fits[..] {
                supersede(all, one, now);
            }
        });
        wrong.map_or(Ok(()), Err)
    }
}

/// `by` is there at `now`: what had ended before it began is gone.
fn supersede(all: &mut [Held], by: ChangeId, now: Moment) {
    let Some(begun) = all.iter().find(|held| held.by == by).map(|held| held.begun) else { return };
    for held in all.iter_mut().filter(|held| held.by != by && held.ended < begun) {
        held.gone = held.gone.min(now);
    }
}

fn first_wrong(all: &[Held], start: u64, got: &[u8], legal: impl Fn(&Held) -> bool) -> Option<Wrong> {
    let fits = |(offset, got): (u64, &u8)| {
        all.iter().any(|held| legal(held) && byte(held.by, held.kind, offset) == *got)
    };
    let at = (start..).zip(got).position(|byte| !fits(byte))?;
    let (offset, rest) = (start + at as u64, &got[at..]);
    let run = (offset..).zip(rest).take_while(|byte| !fits(*byte)).count();
    let of = |held: &&Held| is(held.by, held.kind, offset, &rest[..run]);
    let belongs_to = all.iter().rev().find(of).map(|held| held.by);
    let legal = all.iter().filter(|held| legal(held)).map(|held| held.by).collect();
    Some(Wrong { offset, got: rest[0], belongs_to, legal, run })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(by: ChangeId, offset: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        fill(by, Fill::Placed, offset, &mut out);
        out
    }

    /// Writes 0..100 by 1 and then by 2, both answered.
    fn two() -> Bytes {
        let mut bytes = Bytes::default();
        for (by, now) in [(1, 10), (2, 20)] {
            bytes.begin(by, Fill::Placed, (0, 100), now);
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
    fn a_read_beside_a_write_may_see_both_and_then_only_the_newer() {
        let mut bytes = Bytes::default();
        bytes.begin(1, Fill::Placed, (0, 100), 10);
        bytes.end(1, (0, 100), 11, true);
        bytes.begin(2, Fill::Placed, (50, 100), 20);
        assert_eq!(bytes.clone().check(0, &bytes_of(1, 0, 100), 21, 22), Ok(()));
        let mixed = [bytes_of(1, 0, 50), bytes_of(2, 50, 50)].concat();
        assert_eq!(bytes.check(0, &mixed, 21, 22), Ok(()));
        assert!(bytes.check(0, &bytes_of(1, 0, 100), 23, 24).is_err(), "the newer one was seen before");
    }

    #[test]
    fn an_unknown_write_may_come_late_but_not_after_everything_is_quiet() {
        let mut bytes = Bytes::default();
        bytes.begin(1, Fill::Placed, (0, 10), 10);
        bytes.begin(2, Fill::Placed, (0, 10), 20);
        bytes.end(2, (0, 10), 25, true);
        assert_eq!(bytes.check(0, &bytes_of(2, 0, 10), 30, 31), Ok(()));
        let mut late = bytes.clone();
        assert_eq!(late.check(0, &bytes_of(1, 0, 10), 32, 33), Ok(()), "it might come only now");
        assert!(late.check(0, &bytes_of(2, 0, 10), 34, 35).is_err(), "and has overwritten the other");
        bytes.quiet(40);
        assert_eq!(bytes.check(0, &bytes_of(2, 0, 10), 41, 42), Ok(()));
        assert!(bytes.check(0, &bytes_of(1, 0, 10), 43, 44).is_err());
    }

    #[test]
    fn loss_of_power_takes_back_what_was_not_synced_and_nothing_else() {
        let mut bytes = two();
        bytes.synced(16, NEVER);
        bytes.lost_power(0, 50);
        assert_eq!(bytes.clone().check(0, &bytes_of(1, 0, 50), 40, 41), Ok(()));
        assert!(bytes.clone().check(0, &[0; 50], 40, 41).is_err(), "was gone before the sync");
        assert!(bytes.clone().check(50, &bytes_of(1, 50, 50), 40, 41).is_err(), "on another machine");
        let mut bytes = two();
        bytes.synced(26, NEVER);
        bytes.lost_power(0, 100);
        assert!(bytes.check(0, &bytes_of(1, 0, 50), 40, 41).is_err());
    }

    #[test]
    fn cut_bytes_do_not_come_back() {
        let mut bytes = two();
        bytes.begin(3, Fill::Zero, (30, u64::MAX), 30);
        bytes.end(3, (30, u64::MAX), 31, true);
        let zeros = [bytes_of(2, 0, 30), vec![0; 70]].concat();
        assert_eq!(bytes.check(0, &zeros, 40, 41), Ok(()));
        assert_eq!(bytes.check(0, &bytes_of(2, 0, 100), 42, 43).expect_err("cut").offset, 30);
    }
}
