//! What programs asked for, put together again from what servers saw.
//!
//! A request over several datafiles comes to servers as one message for each, or several where one is long. All have the
//! request's number and say how many datafiles there are; when all are there, they fill a range of the file without holes.

use std::collections::BTreeSet;
use weft_core::{Extent, Layout, LocalExtent, Nanos, ObjectId};

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
    /// The request's number, which no other one of the client has at about the same time.
    pub call: u32,
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

/// Puts the requests to a file together from what servers saw, and counts the messages that belong to none: of requests of
/// which a part is missing, or that came under another layout. What lies behind `size` bytes of the file was not read.
pub fn requests(layout: &Layout, size: u64, mut seen: Vec<Seen>) -> (Vec<Asked>, u64) {
    let of_request = |seen: &Seen| (seen.client, seen.write, seen.call);
    seen.sort_by_key(|seen| (of_request(seen), seen.object, seen.local.offset, seen.local.len));
    // What was sent again after a lost connection is one message.
    seen.dedup_by_key(|seen| (of_request(seen), seen.object, seen.local));
    let (mut asked, mut lost) = (Vec::new(), 0);
    for messages in seen.chunk_by(|a, b| of_request(a) == of_request(b)) {
        match whole(layout, messages) {
            None => lost += messages.len() as u64,
            Some(Asked { client, write, extent, start, end }) => {
                let there = if write { u64::MAX } else { size.saturating_sub(extent.offset.0) };
                let len = extent.len.0.min(there);
                if len > 0 {
                    let extent = Extent::new(extent.offset.0, len);
                    asked.push(Asked { client, write, extent, start, end });
                }
            }
        }
    }
    asked.sort_by_key(|asked| (asked.start, asked.client, asked.extent.offset));
    (asked, lost)
}

/// The request that these messages are, if none is missing.
fn whole(layout: &Layout, messages: &[Seen]) -> Option<Asked> {
    let first = messages.first()?;
    let objects: BTreeSet<ObjectId> = messages.iter().map(|seen| seen.object).collect();
    let (mut from, mut to, mut bytes) = (u64::MAX, 0, 0u64);
    let (mut start, mut end) = (first.start, first.end);
    for seen in messages {
        let range = range(layout, seen)?;
        (from, to) = (from.min(range.0), to.max(range.1));
        bytes = bytes.checked_add(seen.local.len.0)?;
        (start, end) = (start.min(seen.start), end.max(seen.end));
    }
    // A client that does not say how many there are means one.
    let all = objects.len() == usize::from(first.siblings.max(1)) && to - from == bytes;
    let extent = Extent::new(from, bytes);
    all.then_some(Asked { client: first.client, write: first.write, extent, start, end })
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
        let call = (asked.start.0 / 1_000_000) as u32;
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
                out.push(Seen { client, object, local, write, siblings, call, start, end });
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
