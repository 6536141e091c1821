use super::*;

const PAGE: u64 = 8;
const FILE: FileNumber = FileNumber(7);

fn page(index: u64) -> PageId {
    PageId::new(FILE, PageIndex(index))
}

fn bytes(start: u64, end: u64) -> ByteRange {
    ByteRange::new(start, end).expect("not empty")
}

fn cache(pages_max: usize) -> PageCache<Vec<u8>> {
    PageCache::new(PAGE, pages_max, 4 * PAGE)
}

fn put(cache: &mut PageCache<Vec<u8>>, index: u64, range: ByteRange) {
    cache.write(page(index), range, || vec![0; PAGE as usize]).expect("room");
}

#[test]
fn adjacent_pages_are_written_at_once_and_full_ones_first() {
    let mut cache = cache(100);
    put(&mut cache, 20, bytes(1, 2));
    for index in [3, 1, 2] {
        put(&mut cache, index, bytes(0, PAGE));
    }
    put(&mut cache, 0, bytes(6, PAGE));
    put(&mut cache, 4, bytes(0, 3));
    let write = cache.next_write(Cause::Full).expect("full pages");
    assert_eq!((write.range, write.parts.len()), (bytes(6, 35), 5), "with the partly dirty neighbors");
    assert!(cache.next_write(Cause::Full).is_none());
    assert_eq!(cache.next_unwritten(FILE, PageIndex(0)), Some(PageIndex(0)), "in flight");
    assert_eq!(cache.next_unwritten(FileNumber(8), PageIndex(0)), None);
    put(&mut cache, 4, bytes(1, 5));
    assert!(cache.next_write(Cause::Flush(page(4), 0)).is_none(), "waits for its older bytes");
    assert_eq!(cache.next_unwritten(FILE, PageIndex(5)), Some(PageIndex(20)));
    assert!(cache.next_write(Cause::Flush(page(20), 0)).is_some_and(|write| write.range == bytes(161, 162)));
    assert!(cache.next_write(Cause::Pressure).is_none(), "page 4 waits for its older bytes");
    assert_eq!(cache.written(write.id, true), (FILE, bytes(6, 35)));
    let again = cache.next_write(Cause::Pressure).expect("written again meanwhile");
    assert_eq!((again.range, cache.dirty_bytes(), cache.unwritten_end(FILE)), (bytes(33, 37), 0, Some(162)));
}

#[test]
fn a_write_has_a_maximum_length() {
    let mut cache = cache(100);
    (0..7).for_each(|index| put(&mut cache, index, bytes(0, PAGE)));
    let lens: Vec<u64> =
        std::iter::from_fn(|| cache.next_write(Cause::Full)).map(|write| write.range.len()).collect();
    assert_eq!(lens, [4 * PAGE, 3 * PAGE]);
    put(&mut cache, 10, bytes(0, PAGE));
    put(&mut cache, 9, bytes(0, PAGE));
    put(&mut cache, 9, bytes(0, 1));
    put(&mut cache, 8, bytes(2, PAGE));
    let first = cache.next_write(Cause::Pressure).expect("dirty pages");
    assert_eq!(first.range, bytes(66, 88), "page 9 with its neighbors");
    (20..24).for_each(|index| put(&mut cache, index, bytes(0, PAGE - 1)));
    put(&mut cache, 23, bytes(0, PAGE));
    put(&mut cache, 22, bytes(PAGE - 1, PAGE));
    put(&mut cache, 21, bytes(PAGE - 1, PAGE));
    let flushed = cache.next_write(Cause::Flush(page(20), 0)).expect("dirty pages");
    assert_eq!(flushed.range, bytes(160, 167), "a gap follows");
}

#[test]
fn the_least_recently_used_clean_page_is_evicted() {
    let mut cache = cache(3);
    let new = || vec![0; PAGE as usize];
    put(&mut cache, 0, bytes(0, 1));
    for index in [1, 2, 1] {
        assert!(cache.read(page(index), bytes(0, 2), new).is_ok());
    }
    put(&mut cache, 3, bytes(0, 1));
    assert!(cache.buffer(page(2)).is_none() && cache.buffer(page(1)).is_some());
    put(&mut cache, 4, bytes(0, 1));
    assert_eq!(cache.write(page(5), bytes(0, 1), new).err(), Some(NoRoom), "all pages are dirty");
    let write = cache.next_write(Cause::Pressure).expect("dirty pages");
    assert_eq!(cache.write(page(5), bytes(0, 1), new).err(), Some(NoRoom), "in flight");
    cache.written(write.id, true);
    put(&mut cache, 5, bytes(0, 1));
    assert!(cache.buffer(page(0)).is_none() && cache.len() == 3);
}

#[test]
fn old_bytes_of_a_fetch_are_refused() {
    let new = || vec![0; PAGE as usize];
    let mut cache = cache(2);
    let (_, gaps, fetch) = cache.read(page(0), bytes(0, 8), new).expect("room");
    assert_eq!(gaps, [bytes(0, 8)]);
    put(&mut cache, 0, bytes(2, 4));
    let fill = cache.fill(page(0), fetch, bytes(0, 6)).expect("the page has not changed in the file");
    assert_eq!((fill.missing, fill.is_alone), (vec![bytes(0, 2), bytes(4, 6)], false));
    let write = cache.next_write(Cause::Flush(page(0), 0)).expect("dirty bytes");
    cache.written(write.id, true);
    cache.forget_range(FILE, bytes(3, u64::MAX));
    assert!(cache.fill(page(0), fetch, bytes(0, 8)).is_none(), "read before the range was dropped");
    put(&mut cache, 0, bytes(2, 3));
    assert_eq!((cache.dirty_bytes(), cache.unwritten_end(FILE)), (1, Some(3)));
    let (_, gaps, fetch) = cache.read(page(0), bytes(0, 8), new).expect("room");
    assert_eq!(gaps, [bytes(3, 8)]);
    let write = cache.next_write(Cause::Flush(page(0), 0)).expect("a dirty byte");
    cache.written(write.id, false);
    assert!(cache.fill(page(0), fetch, bytes(3, 8)).is_none(), "read before the failed write");
    let (_, gaps, fetch) = cache.read(page(0), bytes(0, 8), new).expect("room");
    assert_eq!(gaps, [bytes(2, 8)], "the failed bytes are read from the file");
    assert!(!cache.forget_clean(FILE, |_| true));
    assert!(cache.is_empty() && cache.fill(page(0), fetch, bytes(2, 8)).is_none());
}

#[test]
fn old_pages_are_dropped_unless_they_have_unwritten_bytes() {
    let mut cache = cache(3);
    let new = || vec![0; PAGE as usize];
    put(&mut cache, 0, bytes(0, 1));
    for index in [1, 2] {
        let (_, _, fetch) = cache.read(page(index), bytes(0, 2), new).expect("room");
        assert!(cache.fill(page(index), fetch, bytes(0, 8)).expect("unchanged").is_alone);
    }
    assert!(cache.forget_clean(FILE, |id| id.index.0 < 2), "page 0 is dirty");
    assert_eq!((cache.len(), cache.pages_of(FILE)), (2, (2, 1)));
    assert!(cache.evict() && !cache.evict() && cache.len() == 1);
    cache.set_pages_max(1);
    assert_eq!(cache.write(page(5), bytes(0, 1), new).err(), Some(NoRoom));
}

#[test]
fn a_page_that_is_being_fetched_stays() {
    let mut cache = cache(1);
    let new = || vec![0; PAGE as usize];
    assert!(cache.read(page(1), bytes(0, 2), new).is_ok());
    cache.pin(page(1));
    assert_eq!(cache.read(page(2), bytes(0, 2), new).err(), Some(NoRoom));
    cache.unpin(page(1));
    assert!(cache.read(page(2), bytes(0, 2), new).is_ok());
    cache.unpin(page(1));
}

mod model {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const PAGES: u64 = 6;
    const LEN: u64 = PAGE * PAGES;

    #[derive(Clone, Debug)]
    enum Step {
        Write(u64, u64, u8),
        StartRead(u64),
        EndRead(usize),
        StartWrite(u8),
        EndWrite(usize, bool),
        Truncate(u64),
        Forget,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0..LEN, 1..20u64, 1..=255u8).prop_map(|(at, len, value)| Step::Write(at, len, value)),
            4 => (0..PAGES).prop_map(Step::StartRead),
            4 => any::<usize>().prop_map(Step::EndRead),
            4 => (0..3u8).prop_map(Step::StartWrite),
            4 => (any::<usize>(), prop::bool::weighted(0.9)).prop_map(|(which, ok)| Step::EndWrite(which, ok)),
            1 => (0..LEN).prop_map(Step::Truncate),
            1 => Just(Step::Forget),
        ]
    }

    /// Bytes of the file, by their places in a page.
    type Fetched = Vec<(ByteRange, Vec<u8>)>;

    /// The cache over a file, beside the bytes that a program must see.
    struct World {
        cache: PageCache<Vec<u8>>,
        file: Vec<u8>,
        expected: Vec<u8>,
        fetches: Vec<(PageId, Fetch, Fetched)>,
        writes: Vec<(WriteBack, Vec<u8>)>,
    }

    impl World {
        fn new() -> Self {
            let zeros = vec![0; LEN as usize];
            Self { cache: cache(4), file: zeros.clone(), expected: zeros, fetches: vec![], writes: vec![] }
        }

        fn write(&mut self, at: u64, len: u64, value: u8) {
            for at in at..(at + len).min(LEN) {
                let id = page(at / PAGE);
                let within = bytes(at % PAGE, at % PAGE + 1);
                if let Ok(buffer) = self.cache.write(id, within, || vec![0xEE; PAGE as usize]) {
                    buffer[(at % PAGE) as usize] = value;
                    self.expected[at as usize] = value;
                }
            }
        }

        fn start_read(&mut self, index: u64) {
            let whole = bytes(0, PAGE);
            let Ok((buffer, gaps, fetch)) = self.cache.read(page(index), whole, || vec![0xEE; PAGE as usize])
            else {
                return;
            };
            let start = index * PAGE;
            for at in 0..PAGE {
                if !gaps.iter().any(|gap| gap.contains(bytes(at, at + 1))) {
                    assert_eq!(
                        buffer[at as usize],
                        self.expected[(start + at) as usize],
                        "byte {at} of {index}"
                    );
                }
            }
            let fetched = gaps.into_iter().map(|gap| {
                (gap, self.file[(start + gap.start()) as usize..(start + gap.end()) as usize].to_vec())
            });
            self.fetches.push((page(index), fetch, fetched.collect()));
        }

        fn end_read(&mut self, which: usize) {
            if self.fetches.is_empty() {
                return;
            }
            let (id, fetch, fetched) = self.fetches.swap_remove(which % self.fetches.len());
            for (gap, found) in fetched {
                let Some(fill) = self.cache.fill(id, fetch, gap) else { continue };
                let buffer = fill.buffer;
                for range in fill.missing {
                    let from = (range.start() - gap.start()) as usize;
                    let part = &found[from..from + range.len() as usize];
                    buffer[range.start() as usize..range.end() as usize].copy_from_slice(part);
                }
            }
        }

        fn start_write(&mut self, cause: u8) -> bool {
            let flushed = self.cache.next_unwritten(FILE, PageIndex(0)).unwrap_or(PageIndex(0));
            let causes = [Cause::Full, Cause::Pressure, Cause::Flush(PageId::new(FILE, flushed), 0)];
            let cause = causes[usize::from(cause)];
            let Some(write) = self.cache.next_write(cause) else { return false };
            let write = self.copied(write);
            self.writes.push(write);
            true
        }

        fn copied(&self, write: WriteBack) -> (WriteBack, Vec<u8>) {
            let mut copy = Vec::new();
            for (id, part) in &write.parts {
                let buffer = self.cache.buffer(*id).expect("in memory");
                copy.extend_from_slice(&buffer[part.start() as usize..part.end() as usize]);
            }
            assert_eq!(copy.len() as u64, write.range.len());
            (write, copy)
        }

        fn end_write(&mut self, which: usize, has_succeeded: bool) {
            if self.writes.is_empty() {
                return;
            }
            let (write, copy) = self.writes.swap_remove(which % self.writes.len());
            let range = write.range.start() as usize..write.range.end() as usize;
            // A failed write leaves any part of its bytes in the file.
            let reached = if has_succeeded { copy.len() } else { copy.len() / 2 };
            self.file[range.start..range.start + reached].copy_from_slice(&copy[..reached]);
            assert_eq!(self.cache.written(write.id, has_succeeded), (FILE, write.range));
            if !has_succeeded {
                for at in range {
                    let id = page(at as u64 / PAGE);
                    let within = bytes(at as u64 % PAGE, at as u64 % PAGE + 1);
                    if !self.cache.pages[&id].dirty.contains(within) {
                        self.expected[at] = self.file[at];
                    }
                }
            }
        }

        fn truncate(&mut self, len: u64) {
            let mut from = PageIndex(0);
            while let Some(index) = self.cache.next_unwritten(FILE, from) {
                match self.cache.next_write(Cause::Flush(PageId::new(FILE, index), 0)) {
                    Some(write) => {
                        let write = self.copied(write);
                        self.writes.push(write);
                    }
                    None => self.end_write(0, true),
                }
                from = index;
            }
            self.cache.forget_range(FILE, bytes(len, u64::MAX));
            self.file[len as usize..].fill(0);
            self.expected[len as usize..].fill(0);
        }

        fn run(&mut self, step: Step) {
            match step {
                Step::Write(at, len, value) => self.write(at, len, value),
                Step::StartRead(index) => self.start_read(index),
                Step::EndRead(which) => self.end_read(which),
                Step::StartWrite(cause) => drop(self.start_write(cause)),
                Step::EndWrite(which, has_succeeded) => self.end_write(which, has_succeeded),
                Step::Truncate(len) => self.truncate(len),
                Step::Forget => drop(self.cache.forget_clean(FILE, |_| true)),
            }
            assert!(self.cache.len() <= 4);
            let dirty: u64 = self.cache.pages.values().map(|page| page.dirty.bytes()).sum();
            assert_eq!(self.cache.dirty_bytes(), dirty);
        }
    }

    proptest! {
        #[test]
        fn every_read_finds_the_newest_bytes(steps in vec(step(), 1..120)) {
            let mut world = World::new();
            steps.into_iter().for_each(|step| world.run(step));
            (0..PAGES).for_each(|index| world.start_read(index));
            // A flush: writes until nothing is dirty or in flight.
            while world.start_write(2) || !world.writes.is_empty() {
                world.end_write(0, true);
            }
            prop_assert_eq!(&world.file, &world.expected);
            prop_assert_eq!((world.cache.dirty_bytes(), world.cache.unwritten_end(FILE)), (0, None));
        }
    }
}
