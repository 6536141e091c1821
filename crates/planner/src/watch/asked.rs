//! What programs asked for, put together again from what servers saw.
//!
//! A request over several datafiles comes to servers as one message for each, or several where one is long. Its parts say
//! how many there are; those that lie next to each other in the file and fill a range without holes are one request.

use std::collections::{BTreeMap, VecDeque};
use weft_core::{Extent, Layout, LocalExtent, Nanos, ObjectId};

/// Requests of one client that are put together at a time. Its process has no more threads at work than that.
const OPEN_MAX: usize = 64;
/// A message that comes so long after a request was answered is no other part of it: its client waits for all parts before
/// it asks for something else. So far may the clocks of servers differ.
const LATE_NS: u64 = 200_000;

/// A message that a server saw.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Which client process.
    pub client: u64,
    /// On which datafile.
    pub object: ObjectId,
    /// Which part of it.
    pub local: LocalExtent,
    /// Whether it wrote.
    pub write: bool,
    /// Datafiles that the request touches as a whole.
    pub siblings: u16,
    /// Whether it goes on with what is longer than one message.
    pub continues: bool,
    /// When it came; since any origin that all have in common.
    pub start: Nanos,
    /// When it was answered.
    pub end: Nanos,
}

/// A request of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    /// Which client process.
    pub client: u64,
    /// Whether it wrote.
    pub write: bool,
    /// Which part of the file.
    pub extent: Extent,
    /// When its first part came.
    pub start: Nanos,
    /// When its last part was answered.
    pub end: Nanos,
}

/// A request of which some parts are known.
struct Open {
    siblings: u16,
    /// The parts, by datafile: one past the last byte there.
    parts: BTreeMap<ObjectId, u64>,
    messages: u64,
    /// Bytes of all of them.
    bytes: u64,
    /// First byte in the file, and one past the last.
    from: u64,
    to: u64,
    start: Nanos,
    end: Nanos,
}

impl Open {
    /// By its first message, which is not in it yet.
    fn new(seen: &Seen, (from, to): (u64, u64)) -> Self {
        Self {
            // A client that does not say how many there are means one.
            siblings: seen.siblings.max(1),
            parts: BTreeMap::new(),
            messages: 0,
            bytes: 0,
            from,
            to,
            start: seen.start,
            end: seen.end,
        }
    }

    /// Bytes between its parts if a message were one of them, 0 if the message goes on with one; `None` when it cannot be.
    fn holes(&self, layout: &Layout, seen: &Seen, (from, to): (u64, u64)) -> Option<u64> {
        if self.siblings != seen.siblings.max(1) {
            return None;
        }
        if seen.continues {
            return (self.parts.get(&seen.object) == Some(&seen.local.offset.0)).then_some(0);
        }
        let (component, round) = component(layout, seen.object.component)?;
        let mut near = from <= self.to.saturating_add(round) && self.from <= to.saturating_add(round);
        if let (Some((first, _)), Some((last, _))) =
            (self.parts.first_key_value(), self.parts.last_key_value())
        {
            // What goes over the end of a component is at the begin of the next one.
            let (first, last) = (first.component, last.component);
            near |= seen.object.component > last && from <= component.saturating_add(round);
            near |= seen.object.component < first
                && self::component(layout, first)
                    .is_some_and(|(start, round)| self.from <= start.saturating_add(round));
        }
        let late = seen.start.0 > self.end.0.saturating_add(LATE_NS);
        let another = !self.parts.contains_key(&seen.object) && self.parts.len() < usize::from(self.siblings);
        let held = self.bytes.saturating_add(seen.local.len.0);
        let hull = self.to.max(to) - self.from.min(from);
        (another && near && !late).then(|| hull.saturating_sub(held))
    }

    fn add(&mut self, seen: &Seen, (from, to): (u64, u64)) {
        let len = seen.local.len.0;
        self.parts.insert(seen.object, seen.local.offset.0.saturating_add(len));
        self.messages += 1;
        self.bytes = self.bytes.saturating_add(len);
        (self.from, self.to) = (self.from.min(from), self.to.max(to));
        (self.start, self.end) = (self.start.min(seen.start), self.end.max(seen.end));
    }

    fn is_whole(&self) -> bool {
        self.parts.len() == usize::from(self.siblings) && self.bytes == self.to - self.from
    }
}

/// Puts the requests to a file together from what servers saw, and counts the messages that belong to none: of requests of
/// which a part is missing, or that came under another layout. What lies behind `size` bytes of the file was not read.
pub fn requests(layout: &Layout, size: u64, mut seen: Vec<Seen>) -> (Vec<Asked>, u64) {
    seen.sort_by_key(|seen| (seen.client, seen.write, seen.start, seen.object, seen.local.offset));
    let mut found = Found { size, asked: Vec::new(), lost: 0 };
    for of_client in seen.chunk_by(|a, b| (a.client, a.write) == (b.client, b.write)) {
        // Also those that are whole: a message may go on with one.
        let mut open: VecDeque<Open> = VecDeque::new();
        for seen in of_client {
            let Some(range) = range(layout, seen) else {
                found.lost += 1;
                continue;
            };
            // Where it leaves the fewest holes; of those the latest.
            let fitting = open.iter().enumerate().rev();
            let fitting = fitting.filter_map(|(at, open)| Some((open.holes(layout, seen, range)?, at)));
            let at = fitting.min_by_key(|(holes, _)| *holes).map(|(_, at)| at).unwrap_or_else(|| {
                if open.len() == OPEN_MAX
                    && let Some(first) = open.pop_front()
                {
                    found.take(&first, seen);
                }
                open.push_back(Open::new(seen, range));
                open.len() - 1
            });
            open[at].add(seen, range);
        }
        open.iter().for_each(|open| found.take(open, &of_client[0]));
    }
    found.asked.sort_by_key(|asked| (asked.start, asked.client, asked.extent.offset));
    (found.asked, found.lost)
}

/// What was found so far.
struct Found {
    size: u64,
    asked: Vec<Asked>,
    lost: u64,
}

impl Found {
    fn take(&mut self, open: &Open, of: &Seen) {
        if !open.is_whole() {
            self.lost += open.messages;
            return;
        }
        let to = if of.write { open.to } else { open.to.min(self.size) };
        if to > open.from {
            let extent = Extent::new(open.from, to - open.from);
            let (start, end) = (open.start, open.end);
            self.asked.push(Asked { client: of.client, write: of.write, extent, start, end });
        }
    }
}

/// Where a component begins, and the bytes of a round in it.
fn component(layout: &Layout, number: u16) -> Option<(u64, u64)> {
    let component = layout.components().get(usize::from(number))?;
    Some((component.start.0, component.strips.iter().map(|strip| strip.stripe_size.0).sum()))
}

/// From the first byte of the file in a message to one past the last.
fn range(layout: &Layout, seen: &Seen) -> Option<(u64, u64)> {
    let mut pieces = layout.file_pieces(seen.object, seen.local);
    let first = pieces.next()?;
    let last = pieces.last().unwrap_or(first);
    Some((first.offset.0, last.offset.0 + last.len.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weft_core::{Access, ByteLen, Component, FileOffset, SplitPolicy, Strip, TargetId};

    fn layouts() -> impl Strategy<Value = Layout> {
        let strips = prop::collection::vec(1u64..40, 1..6);
        (strips.clone(), 1u64..400, strips).prop_map(|(head, boundary, tail)| {
            let mut next = 0..;
            let mut strips = |sizes: Vec<u64>| -> Vec<Strip> {
                let strip = |size| Strip {
                    target: TargetId(next.next().expect("endless")),
                    stripe_size: ByteLen(size),
                };
                sizes.into_iter().map(strip).collect()
            };
            let end = Some(FileOffset(boundary));
            let head = Component { start: FileOffset(0), end, strips: strips(head) };
            let tail = Component { start: FileOffset(boundary), end: None, strips: strips(tail) };
            Layout::from_components(vec![head, tail]).expect("a layout")
        })
    }

    /// What servers see of a request: a message for each datafile, of at most `piece` bytes.
    fn messages(layout: &Layout, asked: &Asked, piece: u64) -> Vec<Seen> {
        let subs = layout.split(asked.extent, Access::Random, SplitPolicy::Off);
        let mut out = Vec::new();
        for sub in &subs {
            let mut done = 0;
            while done < sub.local.len.0 {
                let len = piece.min(sub.local.len.0 - done);
                let local = LocalExtent::new(sub.local.offset.0 + done, len);
                let (client, object, write) = (asked.client, sub.object, asked.write);
                // The next piece follows on the answer to the one before.
                let (start, end) = (Nanos(asked.start.0 + done), asked.end);
                let siblings = sub.siblings as u16;
                out.push(Seen { client, object, local, write, siblings, continues: done > 0, start, end });
                done += len;
            }
        }
        out
    }

    fn asked(number: u64, client: u64, offset: u64, len: u64, write: bool) -> Asked {
        let start = Nanos(number * 1_000_000);
        Asked { client, write, extent: Extent::new(offset, len), start, end: Nanos(start.0 + 900_000) }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        /// Of clients that ask for one thing after another every request is found as it was.
        #[test]
        fn requests_are_put_together_as_they_were(
            layout in layouts(),
            given in prop::collection::vec((0u64..3, 0u64..2000, 1u64..500, any::<bool>()), 1..40),
            piece in prop_oneof![Just(u64::MAX), 1u64..60],
        ) {
            let given: Vec<Asked> = given
                .into_iter()
                .enumerate()
                .map(|(number, (client, offset, len, write))| asked(number as u64, client, offset, len, write))
                .collect();
            let mut seen: Vec<Seen> = given.iter().flat_map(|asked| messages(&layout, asked, piece)).collect();
            seen.reverse();
            let (found, lost) = requests(&layout, u64::MAX, seen);
            prop_assert_eq!(lost, 0);
            prop_assert_eq!(found, given);
        }
    }

    #[test]
    fn what_misses_a_part_is_counted_and_left_out() {
        let targets: Vec<TargetId> = (0..4).map(TargetId).collect();
        let layout = Layout::striped(&targets, ByteLen(100)).expect("a layout");
        let given = [asked(0, 1, 0, 400, false), asked(1, 1, 800, 400, false), asked(2, 1, 1600, 400, false)];
        let mut seen: Vec<Seen> = given.iter().flat_map(|asked| messages(&layout, asked, u64::MAX)).collect();
        seen.remove(5);
        let (found, lost) = requests(&layout, u64::MAX, seen);
        assert_eq!((found.as_slice(), lost), ([given[0], given[2]].as_slice(), 3));
        // An object that the layout has not.
        let strange = Seen {
            object: ObjectId { component: 3, column: 0 },
            ..messages(&layout, &given[0], u64::MAX)[0]
        };
        assert_eq!(requests(&layout, u64::MAX, vec![strange]), (vec![], 1));
    }

    #[test]
    fn what_lies_behind_the_end_was_not_read() {
        let layout = Layout::single(TargetId(0));
        let given = [asked(0, 1, 0, 100, false), asked(1, 1, 100, 100, false), asked(2, 1, 200, 100, false)];
        let seen = given.iter().flat_map(|asked| messages(&layout, asked, u64::MAX)).collect();
        let (found, lost) = requests(&layout, 150, seen);
        let extents: Vec<_> = found.iter().map(|asked| (asked.extent.offset.0, asked.extent.len.0)).collect();
        assert_eq!((extents, lost), (vec![(0, 100), (100, 50)], 0));
    }
}
