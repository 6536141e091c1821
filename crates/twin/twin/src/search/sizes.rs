//! Model of a file's length: bounds that follow from writes, truncations and observed sizes.

use super::bytes::{ChangeId, Moment, NEVER};

/// Kind of an event that affects or shows the size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// A write: the file is at least this long afterwards.
    Grow,
    /// A truncation or extension: the file is exactly this long.
    Cut,
    /// An observation: the file had this length. It extends nothing.
    Seen,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct SizeEvent {
    by: ChangeId,
    kind: Kind,
    size: u64,
    begun: Moment,
    ended: Moment,
    /// Moment from which on it has certainly happened.
    sure: Moment,
    /// Moment from which on a truncation has certainly superseded it.
    gone: Moment,
    /// Whether its effect survives loss of power.
    durable: bool,
    /// Whether it stays superseded after loss of power.
    durably_gone: bool,
    /// Whether loss of power or a concurrent truncation may have undone a part of it.
    partial: bool,
}

/// Model of the length of one file.
#[derive(Clone, Default, Debug)]
pub struct Sizes {
    events: Vec<SizeEvent>,
}

impl Sizes {
    fn begin(&mut self, by: ChangeId, kind: Kind, size: u64, begun: Moment) {
        let (sure, gone) = (NEVER, NEVER);
        self.events.push(SizeEvent {
            by,
            kind,
            size,
            begun,
            ended: NEVER,
            sure,
            gone,
            durable: false,
            durably_gone: false,
            partial: false,
        });
    }

    /// A write that ends at `end` begins.
    pub fn begin_write(&mut self, by: ChangeId, end: u64, now: Moment) {
        self.begin(by, Kind::Grow, end, now);
    }

    /// A truncation or extension to `size` begins.
    pub fn begin_cut(&mut self, by: ChangeId, size: u64, now: Moment) {
        self.begin(by, Kind::Cut, size, now);
        // Concurrent truncations may be applied in different orders on the datafile with the last byte and on the
        // others.
        let under_way = |event: &&mut SizeEvent| event.kind == Kind::Cut && event.ended == NEVER;
        if self.events.iter_mut().filter(under_way).count() > 1 {
            self.events.iter_mut().filter(under_way).for_each(|cut| cut.partial = true);
        }
    }

    /// The end of a write turns out to be `end`.
    pub fn amend(&mut self, by: ChangeId, end: u64) {
        self.events.iter_mut().filter(|event| event.by == by).for_each(|event| event.size = end);
    }

    /// A change was answered. With `sure`, it certainly took effect.
    pub fn end(&mut self, by: ChangeId, now: Moment, sure: bool) {
        let Some(at) = self.events.iter().position(|event| event.by == by) else { return };
        self.events[at].ended = now;
        if sure {
            self.events[at].sure = now;
            self.cut_is_sure(at, now);
        }
    }

    /// A sync reported the change as durable to its writer.
    pub fn confirm(&mut self, by: ChangeId, now: Moment) {
        if let Some(at) = self.events.iter().position(|event| event.by == by && event.sure == NEVER) {
            self.events[at].sure = now;
            self.cut_is_sure(at, now);
        }
    }

    fn cut_is_sure(&mut self, at: usize, now: Moment) {
        let cut = self.events[at].clone();
        if cut.kind == Kind::Cut {
            let before = |event: &&mut SizeEvent| event.ended < cut.begun && event.size > cut.size;
            self.events.iter_mut().filter(before).for_each(|event| event.gone = event.gone.min(now));
        }
    }

    /// A sync that began at `began` has succeeded. `oldest` is the start of the earliest read in progress.
    pub fn synced(&mut self, began: Moment, oldest: Moment) {
        for event in &mut self.events {
            event.durable |= event.sure < began;
            event.durably_gone |= event.gone < began;
        }
        self.events.retain(|event| !(event.durably_gone && event.gone < oldest));
    }

    /// Loss of power on a machine that has a part of the file. Returns whether anything may be lost.
    pub fn lost_power(&mut self) -> bool {
        let is_volatile =
            |event: &SizeEvent| event.kind != Kind::Seen && !event.durable && !event.durably_gone;
        let may_lose = self.events.iter().any(is_volatile);
        self.events.retain(|event| event.kind != Kind::Seen || event.durable);
        for event in &mut self.events {
            if !event.durable {
                event.sure = NEVER;
                event.partial = true;
            }
            if !event.durably_gone {
                event.gone = NEVER;
            }
        }
        may_lose
    }

    /// No operation is in progress any more.
    pub fn quiesced(&mut self, now: Moment) {
        for event in self.events.iter_mut().filter(|event| event.ended == NEVER) {
            event.ended = now;
        }
    }

    /// Returns the smallest and greatest size that a query from `began` until now may return.
    pub fn bounds(&self, began: Moment) -> (u64, u64) {
        self.bounds_by(began, |_| true)
    }

    /// Returns these bounds without regard to sizes that other queries observed.
    pub fn bounds_of_changes(&self, began: Moment) -> (u64, u64) {
        self.bounds_by(began, |event| event.kind != Kind::Seen)
    }

    fn bounds_by(&self, began: Moment, counts: impl Fn(&SizeEvent) -> bool) -> (u64, u64) {
        let most = self
            .events
            .iter()
            .filter(|event| event.kind != Kind::Seen && event.gone > began)
            .map(|event| event.size)
            .max()
            .unwrap_or(0);
        // A later truncation leaves the bytes before its size. Without a known outcome, it may have removed any of the
        // bytes behind that. A query during the truncation may see some datafiles before it and others after it, with a
        // hole at the end of one. Loss of power may make that state permanent.
        let left = |event: &SizeEvent| {
            let comes_after = |cut: &&SizeEvent| {
                let is_after = cut.by != event.by && cut.ended > event.begun;
                let shakes =
                    cut.size < event.size || event.kind == Kind::Seen && (cut.ended > began || cut.partial);
                cut.kind == Kind::Cut && is_after && shakes
            };
            let left = |cut: &SizeEvent| if cut.ended > began || cut.partial { 0 } else { cut.size };
            self.events.iter().filter(comes_after).map(left).min().unwrap_or(event.size)
        };
        let counted = self.events.iter().filter(|event| counts(event) && event.sure < began);
        let least = counted.map(left).max().unwrap_or(0);
        (least.min(most), most)
    }

    /// A query from `began` until `now` found the file to be at least `size` long.
    pub fn seen(&mut self, size: u64, began: Moment, now: Moment) {
        let known =
            |event: &SizeEvent| event.kind == Kind::Seen && event.size >= size && event.begun >= began;
        if size > self.bounds(now).0 && !self.events.iter().any(known) {
            let event = SizeEvent {
                by: 0,
                kind: Kind::Seen,
                size,
                begun: began,
                ended: now,
                sure: now,
                gone: NEVER,
                durable: false,
                durably_gone: false,
                partial: false,
            };
            self.events.push(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_grow_by_writes_and_shrink_by_truncation_only() {
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
    fn observed_sizes_stay() {
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
    fn a_failed_truncation_keeps_bytes_before_its_size() {
        let mut sizes = Sizes::default();
        sizes.begin_write(1, 100, 10);
        sizes.seen(70, 11, 12);
        sizes.begin_cut(2, 80, 16);
        assert_eq!(sizes.bounds(17), (0, 100), "under way");
        sizes.quiesced(18);
        assert_eq!(sizes.bounds(19), (70, 100));
        sizes.begin_cut(3, 60, 20);
        sizes.quiesced(21);
        assert_eq!(sizes.bounds(22), (60, 100), "observed bytes may be gone");
        sizes.begin_cut(4, 50, 30);
        sizes.begin_cut(5, 20, 31);
        sizes.end(5, 32, false);
        sizes.end(4, 33, false);
        assert_eq!(sizes.bounds(34), (0, 100), "neither of two concurrent truncations is certainly complete");
    }

    #[test]
    fn loss_of_power_keeps_synced_bytes() {
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
        assert_eq!(cut.bounds(18), (0, 200), "the truncation may be lost, and the removed bytes may return");
    }
}
