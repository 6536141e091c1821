//! A head over a medium that turns, and the requests that wait for it.
//!
//! ```text
//! requests -> by address, neighbors joined, long ones cut -> as many as the device takes -> the one that is reached first
//!
//! the last one ended here ──► read on, in memory ──► until      passes the head at since + (byte - from) / rate,
//!                        from                                   and again every turn
//! ```
//!
//! The system has requests wait in the order of their addresses and gives the device some of them, upwards from the one
//! before. Of these the one goes first that the head reaches first. It reads on behind the last one: what has
//! passed is in the device's memory, what lies within reach passes sooner or later. Elsewhere it comes by when the
//! medium has turned so far, once the head stands still.

use super::ahead::Ahead;
use super::target::Local;
use crate::figures::{Head as Figures, Service};
use std::collections::VecDeque;

/// Neighbors are joined to so many bytes, and longer requests cut.
const PIECE_MAX: u64 = 512 << 10;
/// Who has waited so long goes first, nanoseconds.
const LATE: f64 = 5e8;
/// After so many given upwards the system looks who is late.
const BATCH: u32 = 16;

/// A stretch that the device is to be asked for.
#[derive(Clone, Debug)]
struct Piece {
    object: u64,
    start: u64,
    end: u64,
    since: f64,
    /// Whose it is, by number.
    asks: Vec<u32>,
}

/// A request.
#[derive(Clone, Default, Debug)]
struct Ask {
    of: Of,
    /// Pieces that are not read, and requests that are waited for.
    left: u32,
    /// Who waits for this one.
    waiters: Vec<u32>,
}

/// Whose request it is.
#[derive(Clone, Copy, Debug)]
enum Of {
    /// A rank's, with the place among the legs of its request.
    Rank(u32, u32),
    /// Reading ahead: datafile and begin.
    Ahead(u64, u64),
}

impl Default for Of {
    fn default() -> Self {
        Self::Ahead(0, 0)
    }
}

/// Reading on: `from` passed at `since`; from `start` on all is in memory.
#[derive(Clone, Copy, Debug)]
struct Stream {
    object: u64,
    start: u64,
    from: u64,
    since: f64,
    until: u64,
}

/// A head and its queues.
#[derive(Clone, Default)]
pub(super) struct Head {
    /// What waits, by address.
    waiting: Vec<Piece>,
    /// What the device has been given.
    given: Vec<Piece>,
    /// What the head is at.
    serving: Option<Piece>,
    /// Where what was given last ends.
    last: (u64, u64),
    /// So many are given upwards before the system looks who is late.
    batch: u32,
    ahead: Ahead,
    asks: Vec<Ask>,
    unused: Vec<u32>,
    stream: Option<Stream>,
    /// What the device had in memory when it was asked.
    at_once: Vec<Piece>,
    /// Stretches of earlier streams that are in memory: object, begin, end.
    kept: VecDeque<(u64, u64, u64)>,
}

/// How a piece is reached.
#[derive(Clone, Copy)]
struct Reach {
    /// When it begins to pass.
    begins: f64,
    /// When it has passed.
    passed: f64,
    how: How,
}

#[derive(Clone, Copy, PartialEq)]
enum How {
    Memory,
    Stream,
    Apart,
}

impl Head {
    /// Whether the head is at something.
    pub(super) fn is_busy(&self) -> bool {
        self.serving.is_some()
    }

    /// Adds a request of a rank, for what was read or written before or not; whether it has to wait.
    pub(super) fn waits(
        &mut self,
        now: f64,
        (rank, leg): (u32, u32),
        local: Local,
        is_again: bool,
        service: &Service,
        figures: &Figures,
    ) -> bool {
        let Local { object, offset, len } = local;
        let range = (offset, offset.saturating_add(len));
        if is_again || figures.ahead.0 == 0 {
            // It was in memory, and is no more.
            self.ahead.forget(object, range);
        }
        let waits = self.asks(now, Of::Rank(rank, leg), object, range);
        if figures.ahead.0 > 0
            && let Some((from, to)) = self.ahead.read_on(object, range, figures.ahead.0)
        {
            let mut gaps = Vec::new();
            self.ahead.gaps(object, (from, to), &mut gaps, &mut Vec::new());
            for gap in gaps {
                self.asks(now, Of::Ahead(object, gap.0), object, gap);
            }
        }
        self.give(now, service, figures);
        waits
    }

    fn asks(&mut self, now: f64, of: Of, object: u64, range: (u64, u64)) -> bool {
        let number = self.unused.pop().unwrap_or_else(|| {
            self.asks.push(Ask::default());
            self.asks.len() as u32 - 1
        });
        let (mut gaps, mut brought) = (Vec::new(), Vec::new());
        self.ahead.gaps(object, range, &mut gaps, &mut brought);
        let mut left = brought.len() as u32;
        brought.into_iter().for_each(|by| self.asks[by as usize].waiters.push(number));
        let by = matches!(of, Of::Ahead(..)).then_some(number);
        for (from, to) in gaps {
            self.ahead.hold(object, (from, to), by);
            let mut start = from;
            while start < to {
                let end = to.min(start + PIECE_MAX);
                self.add(Piece { object, start, end, since: now, asks: vec![number] });
                (start, left) = (end, left + 1);
            }
        }
        if left == 0 {
            self.unused.push(number);
            return false;
        }
        self.asks[number as usize] = Ask { of, left, waiters: Vec::new() };
        true
    }

    fn add(&mut self, mut piece: Piece) {
        let mut at =
            self.waiting.partition_point(|other| (other.object, other.start) < (piece.object, piece.start));
        let joins =
            |a: &Piece, b: &Piece| a.object == b.object && a.end == b.start && b.end - a.start <= PIECE_MAX;
        if at > 0 && joins(&self.waiting[at - 1], &piece) {
            at -= 1;
            let mut before = self.waiting.remove(at);
            before.end = piece.end;
            before.asks.append(&mut piece.asks);
            piece = before;
        }
        if self.waiting.get(at).is_some_and(|after| joins(&piece, after)) {
            let mut after = self.waiting.remove(at);
            piece.end = after.end;
            piece.asks.append(&mut after.asks);
            piece.since = piece.since.min(after.since);
        }
        self.waiting.insert(at, piece);
    }

    /// Gives the device what it takes: upwards from the last, or what has waited too long. What it has in memory it
    /// answers at once.
    fn give(&mut self, now: f64, service: &Service, figures: &Figures) {
        let takes = figures.takes as usize;
        while self.given.len() + usize::from(self.serving.is_some()) < takes.max(1)
            && !self.waiting.is_empty()
        {
            let ahead = self.waiting.partition_point(|piece| (piece.object, piece.start) < self.last);
            let index = if self.batch > 0 && ahead < self.waiting.len() {
                self.batch -= 1;
                ahead
            } else {
                self.batch = BATCH - 1;
                let since = |index: &usize| self.waiting[*index].since;
                let oldest = (0..self.waiting.len()).min_by(|a, b| since(a).total_cmp(&since(b)));
                let late = oldest.filter(|oldest| now - since(oldest) > LATE);
                late.unwrap_or(if ahead < self.waiting.len() { ahead } else { 0 })
            };
            let mut piece = self.waiting.remove(index);
            piece.since = now;
            self.last = (piece.object, piece.end);
            match self.has_read(now, &piece, service) {
                true => self.at_once.push(piece),
                false => self.given.push(piece),
            }
        }
    }

    /// Goes to the piece that is reached first; when that has passed.
    pub(super) fn next(&mut self, now: f64, service: &Service, figures: &Figures) -> Option<f64> {
        self.give(now, service, figures);
        let mut first: Option<(usize, Reach)> = None;
        for (index, piece) in self.given.iter().enumerate() {
            if now - piece.since > LATE {
                first = Some((index, self.reach(now, piece, service, figures)));
                break;
            }
            let reach = self.reach(now, piece, service, figures);
            if first.is_none_or(|(_, best)| reach.begins < best.begins) {
                first = Some((index, reach));
            }
        }
        let (index, reach) = first?;
        let piece = self.given.remove(index);
        if reach.how != How::Memory {
            let reads_on = figures.reads_on.0;
            let before = self.stream.filter(|_| reach.how == How::Stream).map(|stream| stream.start);
            if reach.how == How::Apart {
                self.leave(now, service, figures);
            }
            let start = before
                .unwrap_or(piece.start)
                .min(piece.start)
                .max(piece.end.saturating_sub(reads_on))
                .min(piece.end);
            self.stream = Some(Stream {
                object: piece.object,
                start,
                from: piece.end,
                since: reach.passed,
                until: piece.end.saturating_add(reads_on),
            });
        }
        self.serving = Some(piece);
        Some(reach.passed)
    }

    /// What the head was at has passed; it is at nothing.
    pub(super) fn passed(&mut self) {
        self.at_once.extend(self.serving.take());
    }

    /// Appends the ranks, and the places among their legs, that have all they asked for since this was asked last.
    pub(super) fn answered(&mut self, done: &mut Vec<(u32, u32)>) {
        while let Some(piece) = self.at_once.pop() {
            self.came(piece, done);
        }
    }

    fn came(&mut self, piece: Piece, done: &mut Vec<(u32, u32)>) {
        let mut came = piece.asks;
        while let Some(number) = came.pop() {
            let ask = &mut self.asks[number as usize];
            ask.left -= 1;
            if ask.left > 0 {
                continue;
            }
            came.append(&mut ask.waiters);
            match ask.of {
                Of::Rank(rank, leg) => done.push((rank, leg)),
                Of::Ahead(object, start) => self.ahead.came(object, start),
            }
            self.unused.push(number);
        }
    }

    /// Whether all of a piece has passed already and is in the device's memory, whatever the head is at now.
    fn has_read(&self, now: f64, piece: &Piece, service: &Service) -> bool {
        let Piece { object, start, end, .. } = *piece;
        let holds = |(of, from, to): (u64, u64, u64)| of == object && from <= start && end <= to;
        let passed = |stream: &Stream| {
            let until = stream.from as f64 + (now - stream.since) / service.sequential.byte_ns();
            (stream.object, stream.start, (until.max(0.0) as u64).min(stream.until))
        };
        self.kept.iter().copied().any(holds) || self.stream.as_ref().map(passed).is_some_and(holds)
    }

    fn reach(&self, now: f64, piece: &Piece, service: &Service, figures: &Figures) -> Reach {
        let Piece { object, start, end, .. } = *piece;
        let rate = service.sequential.byte_ns();
        if self.has_read(now, piece, service) {
            return Reach { begins: now, passed: now, how: How::Memory };
        }
        let Some(stream) = self.stream else {
            let begins = now + figures.seek_ns(u64::MAX);
            return Reach { begins, passed: begins + (end - start) as f64 * rate, how: How::Apart };
        };
        // When a byte passes the first time; how another datafile lies around a turn is not known, and as good as any.
        let passes = |byte: u64| stream.since + (byte as f64 - stream.from as f64) * rate;
        let turned = |byte: u64, seek: f64| {
            let (turn, earliest, first) = (figures.turn_us * 1e3, now + seek, passes(byte));
            first + ((earliest - first) / turn).ceil() * turn
        };
        if stream.object == object && (stream.start..=stream.until).contains(&start) {
            if end <= stream.until || passes(stream.until) > now {
                // The head is on its way there.
                return Reach {
                    begins: passes(start).max(now),
                    passed: passes(end).max(now),
                    how: How::Stream,
                };
            }
            let begins = turned(stream.until, 0.0);
            return Reach { begins, passed: begins + (end - stream.until) as f64 * rate, how: How::Stream };
        }
        // Datafiles lie beside each other: from one to the other it is about as far as the one is long.
        let is_same = stream.object == object;
        let distance = if is_same { start.abs_diff(stream.from) } else { start.max(stream.from) };
        let begins = turned(start, figures.seek_ns(distance));
        Reach { begins, passed: begins + (end - start) as f64 * rate, how: How::Apart }
    }

    /// The head leaves the stream; what it has read stays in memory.
    fn leave(&mut self, now: f64, service: &Service, figures: &Figures) {
        let Some(stream) = self.stream.take() else { return };
        let passed = ((now - stream.since).max(0.0) / service.sequential.byte_ns()) as u64;
        let position = stream.from.saturating_add(passed).min(stream.until);
        if self.kept.len() >= figures.stretches as usize {
            self.kept.pop_front();
        }
        if figures.stretches > 0 {
            self.kept.push_back((stream.object, stream.start, position));
        }
    }
}
