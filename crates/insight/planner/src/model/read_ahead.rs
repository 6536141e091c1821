//! Page cache and read-ahead of a target's operating system.

use std::collections::BTreeMap;

/// Size of the first read-ahead window, in requests.
const FIRST_WINDOW_REQUESTS: u64 = 4;

/// Ranges of datafiles that are in the page cache or being read into it.
#[derive(Clone, Default)]
pub(super) struct ReadAhead {
    /// By datafile and begin: the end, and the number of the device read that brings the range if it is still in
    /// flight.
    ranges: BTreeMap<(u64, u64), (u64, Option<u32>)>,
    readers: BTreeMap<u64, Reader>,
}

/// Sequential-access state of a datafile.
#[derive(Clone, Copy, Default)]
struct Reader {
    /// End of the last request.
    next: u64,
    window: u64,
    /// End of the read-ahead.
    to: u64,
}

impl ReadAhead {
    /// Appends the parts of a range that are missing, and the reads in flight that bring other parts.
    pub(super) fn missing(
        &self,
        object: u64,
        (start, end): (u64, u64),
        missing: &mut Vec<(u64, u64)>,
        in_flight: &mut Vec<u32>,
    ) {
        let before = self.ranges.range(..(object, start)).next_back();
        let before = before.filter(|((of, _), (to, _))| *of == object && *to > start);
        let mut at = start;
        for (&(_, from), &(to, by)) in
            before.into_iter().chain(self.ranges.range((object, start)..(object, end)))
        {
            if from > at {
                missing.push((at, from));
            }
            if to > at {
                in_flight.extend(by.filter(|by| !in_flight.contains(by)));
            }
            at = at.max(to);
        }
        if at < end {
            missing.push((at, end));
        }
    }

    /// Adds a range. `by` is the read that brings it, if it is in flight.
    pub(super) fn insert(&mut self, object: u64, (start, end): (u64, u64), by: Option<u32>) {
        self.ranges.insert((object, start), (end, by));
    }

    /// Drops a range from the page cache unless it is in flight.
    pub(super) fn evict(&mut self, object: u64, (start, end): (u64, u64)) {
        let within = self.ranges.range((object, start)..(object, end));
        let gone: Vec<_> = within.filter(|(_, (_, by))| by.is_none()).map(|(&key, _)| key).collect();
        for key in gone {
            self.ranges.remove(&key);
        }
    }

    /// Marks a range as present.
    pub(super) fn mark_present(&mut self, object: u64, start: u64) {
        if let Some((_, by)) = self.ranges.get_mut(&(object, start)) {
            *by = None;
        }
    }

    /// Returns the range to read ahead after a read. For a sequential reader the window doubles whenever the reader
    /// enters its second half.
    pub(super) fn next_window(
        &mut self,
        object: u64,
        (start, end): (u64, u64),
        most: u64,
    ) -> Option<(u64, u64)> {
        let reader = self.readers.entry(object).or_default();
        let is_sequential = start <= reader.next && end > reader.next;
        reader.next = end;
        if !is_sequential {
            (reader.window, reader.to) = (0, end);
            return None;
        }
        if reader.window > 0 && end.saturating_add(reader.window / 2) < reader.to {
            return None;
        }
        let window = match reader.window {
            0 => FIRST_WINDOW_REQUESTS * (end - start),
            window => 2 * window,
        };
        reader.window = window.min(most);
        let range = (reader.to.max(end), end.saturating_add(reader.window));
        if range.0 >= range.1 {
            return None;
        }
        reader.to = range.1;
        Some(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_double_while_a_file_is_read_in_order() {
        let mut cache = ReadAhead::default();
        let mut read = |start, end| cache.next_window(1, (start, end), 64);
        // A first request at offset 0 counts as sequential.
        assert_eq!(read(0, 4), Some((4, 20)));
        // More than half of the window is left.
        assert_eq!(read(4, 8), None);
        assert_eq!(read(8, 12), Some((20, 44)));
        assert_eq!(read(12, 30), Some((44, 94)));
        // A jump ends read-ahead until the reader continues there.
        assert_eq!(read(200, 204), None);
        assert_eq!(read(204, 208), Some((208, 224)));
    }

    #[test]
    fn gaps_and_reads_in_flight_are_reported() {
        let mut cache = ReadAhead::default();
        cache.insert(1, (10, 20), None);
        cache.insert(1, (30, 40), Some(7));
        let look = |cache: &ReadAhead, range| {
            let (mut missing, mut in_flight) = (Vec::new(), Vec::new());
            cache.missing(1, range, &mut missing, &mut in_flight);
            (missing, in_flight)
        };
        assert_eq!(look(&cache, (0, 50)), (vec![(0, 10), (20, 30), (40, 50)], vec![7]));
        assert_eq!(look(&cache, (15, 18)), (vec![], vec![]));
        cache.mark_present(1, 30);
        assert_eq!(look(&cache, (35, 45)), (vec![(40, 45)], vec![]));
        cache.evict(1, (0, 35));
        assert_eq!(look(&cache, (5, 35)), (vec![(5, 35)], vec![]));
        cache.insert(2, (0, 100), None);
        assert_eq!(look(&cache, (0, 5)), (vec![(0, 5)], vec![]));
    }
}
