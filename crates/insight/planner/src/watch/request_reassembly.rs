//! Reassembles requests of programs from the messages that servers sampled.
//!
//! A request that spans several datafiles reaches the servers as one or more messages per datafile. All messages carry
//! the request's number and its total number of datafiles. When all of them are present, they cover a contiguous range
//! of the file.

use std::collections::BTreeSet;
use weft_core::{Extent, Layout, LocalExtent, Nanos, ObjectId};

/// A message sampled by a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SampledMessage {
    /// Client process.
    pub client: u64,
    /// Datafile.
    pub object: ObjectId,
    /// Range of the datafile.
    pub local: LocalExtent,
    /// Whether it is a write.
    pub write: bool,
    /// Number of datafiles that the whole request touches.
    pub siblings: u16,
    /// Request number, unique among the client's requests at about the same time.
    pub call: u32,
    /// Arrival time, relative to an origin common to all messages.
    pub start: Nanos,
    /// Completion time.
    pub end: Nanos,
}

/// A request of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReassembledRequest {
    /// Client process.
    pub client: u64,
    /// Whether it is a write.
    pub write: bool,
    /// Range of the file.
    pub extent: Extent,
    /// Arrival of its first message.
    pub start: Nanos,
    /// Completion of its last message.
    pub end: Nanos,
}

/// Reassembles the requests to a file. Also returns the number of messages that belong to no complete request, because
/// a part is missing or the layout was another one. Reads are cut at `size`, the length of the file.
pub fn reassemble(
    layout: &Layout,
    size: u64,
    mut messages: Vec<SampledMessage>,
) -> (Vec<ReassembledRequest>, u64) {
    let of_request = |message: &SampledMessage| (message.client, message.write, message.call);
    messages.sort_by_key(|message| {
        (of_request(message), message.object, message.local.offset, message.local.len)
    });
    // A message repeated after a lost connection counts once.
    messages.dedup_by_key(|message| (of_request(message), message.object, message.local));
    let (mut requests, mut lost) = (Vec::new(), 0);
    for messages in messages.chunk_by(|a, b| of_request(a) == of_request(b)) {
        match reassembled(layout, messages) {
            None => lost += messages.len() as u64,
            Some(ReassembledRequest { client, write, extent, start, end }) => {
                let there = if write { u64::MAX } else { size.saturating_sub(extent.offset.0) };
                let len = extent.len.0.min(there);
                if len > 0 {
                    let extent = Extent::new(extent.offset.0, len);
                    requests.push(ReassembledRequest { client, write, extent, start, end });
                }
            }
        }
    }
    requests.sort_by_key(|request| (request.start, request.client, request.extent.offset));
    (requests, lost)
}

/// The request that these messages form, if none is missing.
fn reassembled(layout: &Layout, messages: &[SampledMessage]) -> Option<ReassembledRequest> {
    let first = messages.first()?;
    let objects: BTreeSet<ObjectId> = messages.iter().map(|message| message.object).collect();
    let (mut from, mut to, mut bytes) = (u64::MAX, 0, 0u64);
    let (mut start, mut end) = (first.start, first.end);
    for message in messages {
        let range = range(layout, message)?;
        (from, to) = (from.min(range.0), to.max(range.1));
        bytes = bytes.checked_add(message.local.len.0)?;
        (start, end) = (start.min(message.start), end.max(message.end));
    }
    // A client that does not report the number of datafiles sends one message.
    let all = objects.len() == usize::from(first.siblings.max(1)) && to - from == bytes;
    let extent = Extent::new(from, bytes);
    all.then_some(ReassembledRequest { client: first.client, write: first.write, extent, start, end })
}

/// First byte of the file in a message, and one past the last.
fn range(layout: &Layout, message: &SampledMessage) -> Option<(u64, u64)> {
    let mut pieces = layout.file_pieces(message.object, message.local);
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

    /// The messages that servers see of a request: one or more per datafile, of at most `piece` bytes.
    fn messages_of(layout: &Layout, request: &ReassembledRequest, piece: u64) -> Vec<SampledMessage> {
        let call = (request.start.0 / 1_000_000) as u32;
        let subs = layout.split(request.extent, Access::Random, SplitPolicy::Off);
        let mut out = Vec::new();
        for sub in &subs {
            let mut done = 0;
            while done < sub.local.len.0 {
                let len = piece.min(sub.local.len.0 - done);
                let local = LocalExtent::new(sub.local.offset.0 + done, len);
                let (client, object, write) = (request.client, sub.object, request.write);
                // The next message follows the reply to the previous one.
                let (start, end) = (Nanos(request.start.0 + done), request.end);
                let siblings = sub.siblings as u16;
                out.push(SampledMessage { client, object, local, write, siblings, call, start, end });
                done += len;
            }
        }
        out
    }

    fn request(number: u64, client: u64, offset: u64, len: u64, write: bool) -> ReassembledRequest {
        let start = Nanos(number * 1_000_000);
        ReassembledRequest {
            client,
            write,
            extent: Extent::new(offset, len),
            start,
            end: Nanos(start.0 + 900_000),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        /// All requests of clients with one request in flight at a time are found.
        #[test]
        fn complete_requests_are_reassembled(
            layout in layouts(),
            given in prop::collection::vec((0u64..3, 0u64..2000, 1u64..500, any::<bool>()), 1..40),
            piece in prop_oneof![Just(u64::MAX), 1u64..60],
        ) {
            let given: Vec<ReassembledRequest> = given
                .into_iter()
                .enumerate()
                .map(|(number, (client, offset, len, write))| request(number as u64, client, offset, len, write))
                .collect();
            let all = given.iter().flat_map(|request| messages_of(&layout, request, piece));
            let mut messages: Vec<SampledMessage> = all.collect();
            messages.reverse();
            let (found, lost) = reassemble(&layout, u64::MAX, messages);
            prop_assert_eq!(lost, 0);
            prop_assert_eq!(found, given);
        }
    }

    #[test]
    fn incomplete_requests_are_counted_and_left_out() {
        let targets: Vec<TargetId> = (0..4).map(TargetId).collect();
        let layout = Layout::striped(&targets, ByteLen(100)).expect("a layout");
        let read = |number, offset| request(number, 1, offset, 400, false);
        let given = [read(0, 0), read(1, 800), read(2, 1600)];
        let all = given.iter().flat_map(|request| messages_of(&layout, request, u64::MAX));
        let mut messages: Vec<SampledMessage> = all.collect();
        messages.remove(5);
        let (found, lost) = reassemble(&layout, u64::MAX, messages);
        assert_eq!((found.as_slice(), lost), ([given[0], given[2]].as_slice(), 3));
        // A datafile that is not part of the layout.
        let strange = SampledMessage {
            object: ObjectId { component: 3, column: 0 },
            ..messages_of(&layout, &given[0], u64::MAX)[0]
        };
        assert_eq!(reassemble(&layout, u64::MAX, vec![strange]), (vec![], 1));
    }

    #[test]
    fn reads_are_cut_at_the_end_of_the_file() {
        let layout = Layout::single(TargetId(0));
        let given = [0, 1, 2].map(|number| request(number, 1, number * 100, 100, false));
        let messages = given.iter().flat_map(|request| messages_of(&layout, request, u64::MAX)).collect();
        let (found, lost) = reassemble(&layout, 150, messages);
        let extents = found.iter().map(|request| (request.extent.offset.0, request.extent.len.0));
        assert_eq!((extents.collect::<Vec<_>>(), lost), (vec![(0, 100), (100, 50)], 0));
    }
}
