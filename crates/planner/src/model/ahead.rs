//! What the system of a target holds of files, and reads ahead of who reads them in order.

use std::collections::BTreeMap;

/// The first window, in requests.
const FIRST: u64 = 4;

/// Stretches of datafiles in memory, or on their way there.
#[derive(Clone, Default)]
pub(super) struct Ahead {
    /// By datafile and begin: the end, and which request to the device brings it, if it is not there yet.
    held: BTreeMap<(u64, u64), (u64, Option<u32>)>,
    readers: BTreeMap<u64, Reader>,
}

/// How a datafile is read.
#[derive(Clone, Copy, Default)]
struct Reader {
    /// Where the last request ended.
    next: u64,
    window: u64,
    /// How far was read ahead.
    to: u64,
}

impl Ahead {
    /// Appends what of a range is not there, and the requests that bring the rest.
    pub(super) fn gaps(
        &self,
        object: u64,
        (start, end): (u64, u64),
        gaps: &mut Vec<(u64, u64)>,
        brought: &mut Vec<u32>,
    ) {
        let before = self.held.range(..(object, start)).next_back();
        let before = before.filter(|((of, _), (to, _))| *of == object && *to > start);
        let mut at = start;
        for (&(_, from), &(to, by)) in
            before.into_iter().chain(self.held.range((object, start)..(object, end)))
        {
            if from > at {
                gaps.push((at, from));
            }
            if to > at {
                brought.extend(by.filter(|by| !brought.contains(by)));
            }
            at = at.max(to);
        }
        if at < end {
            gaps.push((at, end));
        }
    }

    /// A range comes into memory, by a request to the device if that is to be waited for.
    pub(super) fn hold(&mut self, object: u64, (start, end): (u64, u64), by: Option<u32>) {
        self.held.insert((object, start), (end, by));
    }

    /// What was held of a range is not there any more, unless it is on its way.
    pub(super) fn forget(&mut self, object: u64, (start, end): (u64, u64)) {
        let within = self.held.range((object, start)..(object, end));
        let gone: Vec<_> = within.filter(|(_, (_, by))| by.is_none()).map(|(&key, _)| key).collect();
        for key in gone {
            self.held.remove(&key);
        }
    }

    /// A range is there.
    pub(super) fn came(&mut self, object: u64, start: u64) {
        if let Some((_, by)) = self.held.get_mut(&(object, start)) {
            *by = None;
        }
    }

    /// What is to be read ahead when a range is read: of a file that is read in order a window that doubles, again when
    /// the reader comes into its second half.
    pub(super) fn read_on(&mut self, object: u64, (start, end): (u64, u64), most: u64) -> Option<(u64, u64)> {
        let reader = self.readers.entry(object).or_default();
        let goes_on = start <= reader.next && end > reader.next;
        reader.next = end;
        if !goes_on {
            (reader.window, reader.to) = (0, end);
            return None;
        }
        if reader.window > 0 && end.saturating_add(reader.window / 2) < reader.to {
            return None;
        }
        reader.window = if reader.window == 0 { FIRST * (end - start) } else { 2 * reader.window }.min(most);
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
        let mut ahead = Ahead::default();
        let mut read = |start, end| ahead.read_on(1, (start, end), 64);
        // The first request is in order when it begins where files do.
        assert_eq!(read(0, 4), Some((4, 20)));
        // Half of the window is left.
        assert_eq!(read(4, 8), None);
        assert_eq!(read(8, 12), Some((20, 44)));
        assert_eq!(read(12, 30), Some((44, 94)));
        // Somewhere else: nothing, until it goes on there.
        assert_eq!(read(200, 204), None);
        assert_eq!(read(204, 208), Some((208, 224)));
    }

    #[test]
    fn gaps_and_those_who_bring_the_rest() {
        let mut ahead = Ahead::default();
        ahead.hold(1, (10, 20), None);
        ahead.hold(1, (30, 40), Some(7));
        let look = |ahead: &Ahead, range| {
            let (mut gaps, mut brought) = (Vec::new(), Vec::new());
            ahead.gaps(1, range, &mut gaps, &mut brought);
            (gaps, brought)
        };
        assert_eq!(look(&ahead, (0, 50)), (vec![(0, 10), (20, 30), (40, 50)], vec![7]));
        assert_eq!(look(&ahead, (15, 18)), (vec![], vec![]));
        ahead.came(1, 30);
        assert_eq!(look(&ahead, (35, 45)), (vec![(40, 45)], vec![]));
        ahead.forget(1, (0, 35));
        assert_eq!(look(&ahead, (5, 35)), (vec![(5, 35)], vec![]));
        ahead.hold(2, (0, 100), None);
        assert_eq!(look(&ahead, (0, 5)), (vec![(0, 5)], vec![]));
    }
}
