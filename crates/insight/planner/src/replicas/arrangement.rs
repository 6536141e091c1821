//! Algorithm 1: the bytes of each process, one after another in the order of its first requests.

use crate::sample::Request;
use std::collections::BTreeMap;
use weft_core::replicas::MappedExtent;

/// The bytes that one process requests of a file, in the order of its requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    /// Number of the file in the trace.
    pub file: u32,
    /// Rank of the process.
    pub rank: u32,
    /// Length in bytes.
    pub len: u64,
}

/// A place in an object.
#[derive(Clone, Copy, Debug)]
struct Place {
    end: u64,
    object: u32,
    at: u64,
}

/// Where each requested byte of some files lies among the objects of their processes.
///
/// The paper gives each process an object with all that it requests. Here a byte that several processes request belongs
/// to the object of the first, because it may have one copy that accepts writes.
#[derive(Clone, Debug, Default)]
pub struct Arrangement {
    objects: Vec<Object>,
    /// By file and first byte.
    places: BTreeMap<(u32, u64), Place>,
}

impl Arrangement {
    /// Arranges the bytes of requests, which are in the order of each rank.
    pub fn of(requests: &[Request]) -> Self {
        let mut numbers = BTreeMap::new();
        for request in requests.iter().filter(|request| !request.is_sync()) {
            numbers.entry((request.file, request.rank)).or_insert(0);
        }
        let mut this = Self::default();
        for (number, ((file, rank), place)) in numbers.iter_mut().enumerate() {
            *place = number as u32;
            this.objects.push(Object { file: *file, rank: *rank, len: 0 });
        }
        for request in requests.iter().filter(|request| !request.is_sync()) {
            this.append(numbers[&(request.file, request.rank)], request);
        }
        this
    }

    /// Appends the bytes of a request that no object has yet.
    fn append(&mut self, object: u32, request: &Request) {
        let (file, mut from) = (request.file, request.offset);
        let end = request.offset.saturating_add(request.len);
        while from < end {
            let before = self.places.range(..=(file, from)).next_back();
            if let Some((_, place)) = before.filter(|((of, _), place)| *of == file && place.end > from) {
                from = place.end;
                continue;
            }
            let next =
                self.places.range((file, from)..(file, end)).next().map_or(end, |((_, start), _)| *start);
            let len = next - from;
            let at = self.objects[object as usize].len;
            self.objects[object as usize].len = at.saturating_add(len);
            self.insert((file, from), Place { end: next, object, at });
            from = next;
        }
    }

    /// Inserts a place, joined with the one before if it continues that in the file and in the object.
    fn insert(&mut self, (file, start): (u32, u64), place: Place) {
        if let Some(((of, first), before)) = self.places.range_mut(..(file, start)).next_back()
            && *of == file
            && before.end == start
            && before.object == place.object
            && before.at.saturating_add(start - first) == place.at
        {
            before.end = place.end;
            return;
        }
        self.places.insert((file, start), place);
    }

    /// The objects, by file and rank.
    pub fn objects(&self) -> &[Object] {
        &self.objects
    }

    /// Bytes of all objects.
    pub fn bytes(&self) -> u64 {
        self.objects.iter().map(|object| object.len).fold(0, u64::saturating_add)
    }

    /// Number of entries that a mapping without strides would have.
    pub fn pieces(&self) -> usize {
        self.places.len()
    }

    /// Returns the pieces of a file and their places, if object `i` begins at `starts[i]`.
    pub fn pieces_of(&self, file: u32, starts: &[u64]) -> impl Iterator<Item = MappedExtent> {
        self.places.range((file, 0)..=(file, u64::MAX)).map(|((_, start), place)| MappedExtent {
            start: *start,
            len: place.end - start,
            at: starts[place.object as usize].saturating_add(place.at),
        })
    }

    /// Returns the requests as they go to the replica: object `i` begins at `starts[i]` of the replica of its file. A
    /// request over several objects becomes several.
    pub fn redirected(&self, requests: &[Request], starts: &[u64]) -> Vec<Request> {
        let mut out = Vec::with_capacity(requests.len());
        for request in requests {
            if request.is_sync() {
                out.push(*request);
                continue;
            }
            let end = request.offset.saturating_add(request.len);
            let mut from = request.offset;
            let mut last: Option<Request> = None;
            while from < end {
                let found = self.places.range(..=(request.file, from)).next_back();
                let Some((&(_, start), place)) =
                    found.filter(|((of, _), place)| *of == request.file && place.end > from)
                else {
                    unreachable!("each requested byte has a place");
                };
                let to = end.min(place.end);
                let offset =
                    starts[place.object as usize].saturating_add(place.at).saturating_add(from - start);
                match &mut last {
                    Some(last) if last.offset.saturating_add(last.len) == offset => last.len += to - from,
                    _ => {
                        out.extend(last.take());
                        last = Some(Request { offset, len: to - from, ..*request });
                    }
                }
                from = to;
            }
            out.extend(last);
        }
        out
    }

    /// Starts of the objects if server `i mod n` holds object `i` of a file, in a replica with stripes of the returned
    /// length: the longest object, in whole pages (algorithm 1).
    pub fn starts_by_server(&self) -> (Vec<u64>, u64) {
        const PAGE: u64 = 4096;
        let longest = self.objects.iter().map(|object| object.len).max().unwrap_or(0).max(1);
        let stripe = longest.checked_next_multiple_of(PAGE).unwrap_or(longest);
        (self.starts(|number, _| number.saturating_mul(stripe)), stripe)
    }

    /// Starts of the objects one after another.
    pub fn starts_in_sequence(&self) -> Vec<u64> {
        self.starts(|_, before| before)
    }

    /// Starts by the number of the object within its file, and the bytes of those before it.
    fn starts(&self, start: impl Fn(u64, u64) -> u64) -> Vec<u64> {
        let (mut file, mut number, mut before) = (None, 0, 0u64);
        let each = |object: &Object| {
            if file != Some(object.file) {
                (file, number, before) = (Some(object.file), 0, 0);
            }
            let at = start(number, before);
            (number, before) = (number + 1, before.saturating_add(object.len));
            at
        };
        self.objects.iter().map(each).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix::Direction;
    use proptest::prelude::*;

    fn request(rank: u32, offset: u64, len: u64) -> Request {
        Request::new(rank, 0, Direction::Read, offset, len, (0, 1))
    }

    /// Figure 7 of the paper: each of four processes sends two requests of one block.
    #[test]
    fn each_process_gets_its_blocks_in_sequence() {
        let requests: Vec<Request> = (0..8).map(|n| request(n % 4, u64::from(n) * 100, 100)).collect();
        let arrangement = Arrangement::of(&requests);
        assert_eq!(arrangement.objects().len(), 4);
        assert!(arrangement.objects().iter().all(|object| object.len == 200));
        let (starts, stripe) = arrangement.starts_by_server();
        assert_eq!((starts.as_slice(), stripe), ([0, 4096, 8192, 12_288].as_slice(), 4096));
        let redirected = arrangement.redirected(&requests, &starts);
        let places: Vec<(u64, u64)> =
            redirected.iter().map(|request| (request.offset, request.len)).collect();
        assert_eq!(places[0..5], [(0, 100), (4096, 100), (8192, 100), (12_288, 100), (100, 100)]);
        assert_eq!(arrangement.starts_in_sequence(), [0, 200, 400, 600]);
    }

    #[test]
    fn a_byte_belongs_to_the_first_process_that_requests_it() {
        let requests = [request(1, 50, 100), request(0, 0, 100), request(1, 0, 200), request(0, 0, 200)];
        let arrangement = Arrangement::of(&requests);
        let lens: Vec<u64> = arrangement.objects().iter().map(|object| object.len).collect();
        assert_eq!((lens, arrangement.bytes()), (vec![50, 150], 200));
        let redirected = arrangement.redirected(&requests[3..], &[0, 1000]);
        let places: Vec<(u64, u64)> =
            redirected.iter().map(|request| (request.offset, request.len)).collect();
        assert_eq!(places, [(0, 50), (1000, 150)]);
    }

    proptest! {
        /// Every byte has one place, and no place has two bytes.
        #[test]
        fn places_are_a_bijection(all in prop::collection::vec((0..4u32, 0..2u32, 0..300u64, 1..60u64), 1..60)) {
            let requests: Vec<Request> = all
                .iter()
                .map(|(rank, file, offset, len)| Request::new(*rank, *file, Direction::Write, *offset, *len, (0, 1)))
                .collect();
            let arrangement = Arrangement::of(&requests);
            let starts = arrangement.starts_in_sequence();
            let mut of_byte = BTreeMap::new();
            for request in &requests {
                let parts = arrangement.redirected(std::slice::from_ref(request), &starts);
                let places: Vec<u64> = parts.iter().flat_map(|part| part.offset..part.offset + part.len).collect();
                prop_assert_eq!(places.len() as u64, request.len);
                for (byte, place) in (request.offset..).zip(places) {
                    let known = of_byte.entry((request.file, byte)).or_insert(place);
                    prop_assert_eq!(*known, place, "byte {} of file {}", byte, request.file);
                }
            }
            let mut used: Vec<(u32, u64)> = of_byte.iter().map(|((file, _), place)| (*file, *place)).collect();
            used.sort_unstable();
            used.dedup();
            prop_assert_eq!(used.len(), of_byte.len());
            prop_assert_eq!(used.len() as u64, arrangement.bytes());
        }
    }
}
