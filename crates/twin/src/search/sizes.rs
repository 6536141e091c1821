//! How long a file may be: bounds from what made it longer, what cut it, and what was seen.

use super::bytes::{ChangeId, Moment, NEVER};

/// What tells of a size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// At least so long from here on.
    Grow,
    /// Exactly so long.
    Cut,
    /// It was seen to be that long; makes nothing longer.
    Seen,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Event {
    by: ChangeId,
    kind: Kind,
    size: u64,
    begun: Moment,
    ended: Moment,
    /// From when on it has certainly happened.
    sure: Moment,
    /// A cut has certainly come after it.
    gone: Moment,
    /// That it happened survives loss of power.
    safe: bool,
    /// That it is gone does.
    buried: bool,
    /// Loss of power, or another cut, may have undone a part of it.
    torn: bool,
}

/// The length of one file.
#[derive(Clone, Default, Debug)]
pub struct Sizes {
    events: Vec<Event>,
}

impl Sizes {
    fn begin(&mut self, by: ChangeId, kind: Kind, size: u64, begun: Moment) {
        let (sure, gone) = (NEVER, NEVER);
        self.events.push(Event {
            by,
            kind,
            size,
            begun,
            ended: NEVER,
            sure,
            gone,
            safe: false,
            buried: false,
            torn: false,
        });
    }

    /// Something that ends at `end` begins to be written.
    pub fn begin_write(&mut self, by: ChangeId, end: u64, now: Moment) {
        self.begin(by, Kind::Grow, end, now);
    }

    /// The file begins to be cut or extended to `size`.
    pub fn begin_cut(&mut self, by: ChangeId, size: u64, now: Moment) {
        self.begin(by, Kind::Cut, size, now);
        // Of two at once one may have set the length of the datafile with its last byte before the other, and of the rest
        // after it.
        let under_way = |event: &&mut Event| event.kind == Kind::Cut && event.ended == NEVER;
        if self.events.iter_mut().filter(under_way).count() > 1 {
            self.events.iter_mut().filter(under_way).for_each(|cut| cut.torn = true);
        }
    }

    /// The end of a write turns out to be another one.
    pub fn amend(&mut self, by: ChangeId, end: u64) {
        self.events.iter_mut().filter(|event| event.by == by).for_each(|event| event.size = end);
    }

    /// A change was answered.
    pub fn end(&mut self, by: ChangeId, now: Moment, sure: bool) {
        let Some(at) = self.events.iter().position(|event| event.by == by) else { return };
        self.events[at].ended = now;
        if sure {
            self.events[at].sure = now;
            self.cut_is_sure(at, now);
        }
    }

    /// Its writer was told that what it wrote is safe.
    pub fn confirm(&mut self, by: ChangeId, now: Moment) {
        if let Some(at) = self.events.iter().position(|event| event.by == by && event.sure == NEVER) {
            self.events[at].sure = now;
            self.cut_is_sure(at, now);
        }
    }

    fn cut_is_sure(&mut self, at: usize, now: Moment) {
        let cut = self.events[at].clone();
        if cut.kind == Kind::Cut {
            let before = |event: &&mut Event| event.ended < cut.begun && event.size > cut.size;
            self.events.iter_mut().filter(before).for_each(|event| event.gone = event.gone.min(now));
        }
    }

    /// A sync that began at `began` has succeeded.
    pub fn synced(&mut self, began: Moment, oldest: Moment) {
        for event in &mut self.events {
            event.safe |= event.sure < began;
            event.buried |= event.gone < began;
        }
        self.events.retain(|event| !(event.buried && event.gone < oldest));
    }

    /// Loss of power on a machine that has a part of the file. Whether anything may be lost by it.
    pub fn lost_power(&mut self) -> bool {
        let is_unsafe = |event: &Event| event.kind != Kind::Seen && !event.safe && !event.buried;
        let may_lose = self.events.iter().any(is_unsafe);
        self.events.retain(|event| event.kind != Kind::Seen || event.safe);
        for event in &mut self.events {
            if !event.safe {
                event.sure = NEVER;
                event.torn = true;
            }
            if !event.buried {
                event.gone = NEVER;
            }
        }
        may_lose
    }

    /// Nothing is under way any more.
    pub fn quiet(&mut self, now: Moment) {
        for event in self.events.iter_mut().filter(|event| event.ended == NEVER) {
            event.ended = now;
        }
    }

    /// The least and the greatest size that somebody who asked from `began` until now may have found.
    pub fn bounds(&self, began: Moment) -> (u64, u64) {
        self.bounds_by(began, |_| true)
    }

    /// The same where what others have seen does not count.
    pub fn bounds_of_changes(&self, began: Moment) -> (u64, u64) {
        self.bounds_by(began, |event| event.kind != Kind::Seen)
    }

    fn bounds_by(&self, began: Moment, counts: impl Fn(&Event) -> bool) -> (u64, u64) {
        let most = self
            .events
            .iter()
            .filter(|event| event.kind != Kind::Seen && event.gone > began)
            .map(|event| event.size)
            .max()
            .unwrap_or(0);
        // A cut that may come after an event leaves what lies before its size; what one whose outcome is not known has cut
        // behind it, nobody knows. Who looks while it is under way may find one datafile before it, with a hole at its end,
        // and others after it; and loss of power may leave that.
        let left = |event: &Event| {
            let comes_after = |cut: &&Event| {
                let is_after = cut.by != event.by && cut.ended > event.begun;
                let shakes =
                    cut.size < event.size || event.kind == Kind::Seen && (cut.ended > began || cut.torn);
                cut.kind == Kind::Cut && is_after && shakes
            };
            let left = |cut: &Event| if cut.ended > began || cut.torn { 0 } else { cut.size };
            self.events.iter().filter(comes_after).map(left).min().unwrap_or(event.size)
        };
        let counted = self.events.iter().filter(|event| counts(event) && event.sure < began);
        let least = counted.map(left).max().unwrap_or(0);
        (least.min(most), most)
    }

    /// It was found to be `size` long (or longer) by somebody who asked from `began` until `now`.
    pub fn seen(&mut self, size: u64, began: Moment, now: Moment) {
        let known = |event: &Event| event.kind == Kind::Seen && event.size >= size && event.begun >= began;
        if size > self.bounds(now).0 && !self.events.iter().any(known) {
            let event = Event {
                by: 0,
                kind: Kind::Seen,
                size,
                begun: began,
                ended: now,
                sure: now,
                gone: NEVER,
                safe: false,
                buried: false,
                torn: false,
            };
            self.events.push(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_grow_by_writes_and_shrink_by_cuts_alone() {
        let mut sizes = Sizes::default();
        sizes.begin_write(1, 100, 10);
        assert_eq!(sizes.bounds(11), (0, 100));
        sizes.end(1, 12, true);
        assert_eq!(sizes.bounds(13), (100, 100));
        sizes.begin_cut(2, 40, 20);
        assert_eq!(sizes.bounds(21), (0, 100), "under way");
        sizes.end(2, 22, true);
        assert_eq!(sizes.bounds(23), (40, 40));
        sizes.begin_write(3, 60, 30);
        sizes.end(3, 31, true);
        assert_eq!(sizes.bounds(32), (60, 60));
    }

    #[test]
    fn what_was_seen_stays() {
        let mut sizes = Sizes::default();
        sizes.begin_write(1, 100, 10);
        sizes.seen(70, 11, 12);
        assert_eq!(sizes.bounds(13), (70, 100));
        sizes.end(1, 14, false);
        assert_eq!(sizes.bounds(15), (70, 100));
        sizes.begin_cut(2, 10, 16);
        sizes.end(2, 17, true);
        assert_eq!(sizes.bounds(18), (10, 10));
    }

    #[test]
    fn a_cut_takes_nothing_before_its_size_even_when_it_fails() {
        let mut sizes = Sizes::default();
        sizes.begin_write(1, 100, 10);
        sizes.seen(70, 11, 12);
        sizes.begin_cut(2, 80, 16);
        assert_eq!(sizes.bounds(17), (0, 100), "under way");
        sizes.quiet(18);
        assert_eq!(sizes.bounds(19), (70, 100));
        sizes.begin_cut(3, 60, 20);
        sizes.quiet(21);
        assert_eq!(sizes.bounds(22), (60, 100), "what was seen may be gone");
        sizes.begin_cut(4, 50, 30);
        sizes.begin_cut(5, 20, 31);
        sizes.end(5, 32, false);
        sizes.end(4, 33, false);
        assert_eq!(sizes.bounds(34), (0, 100), "of two at once neither is whole for sure");
    }

    #[test]
    fn loss_of_power_leaves_what_was_synced() {
        let mut sizes = Sizes::default();
        sizes.begin_write(1, 100, 10);
        sizes.end(1, 11, true);
        sizes.synced(12, NEVER);
        sizes.begin_write(2, 200, 13);
        sizes.end(2, 14, true);
        let mut cut = sizes.clone();
        sizes.lost_power();
        assert_eq!(sizes.bounds(20), (100, 200));
        cut.begin_cut(3, 50, 15);
        cut.end(3, 16, true);
        assert_eq!(cut.bounds(17), (50, 50));
        cut.lost_power();
        assert_eq!(cut.bounds(18), (0, 200), "the cut may be lost, and what it cut off be there again");
    }
}
