//! A model of the kernel's page, a server, and programs that store into the page and write past it, in random orders.
//!
//! Each byte ends with the value of an operation that no other one certainly followed. A store follows whatever the page
//! had when it was made, all earlier stores, and all answered writes.

use super::*;
use weft_core::random::SplitMix64;

/// Length of the file, in bytes.
const LEN: usize = 4;
const VALUES: u64 = 3;
const STEPS: usize = 40;
const RUNS: u64 = 4000;

/// Value of a byte and number of the operation that it is from.
type Byte = (u8, usize);

#[derive(Clone)]
struct Page {
    bytes: [Byte; LEN],
    is_dirty: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    /// The kernel has written the pages of the range back, and dropped them.
    Called,
    Begun,
    Written,
    /// Applied; the page has to be dropped.
    Applied(ByteRange),
    Dropped(ByteRange),
}

struct Write {
    /// Number of the change once it has begun.
    change: u64,
    range: Range<usize>,
    value: u8,
    operation: usize,
    stage: Stage,
}

/// Operations on one byte: value, and whether another one certainly followed.
type History = Vec<(u8, bool)>;

struct World<'a> {
    pages: &'a FilePages<()>,
    server: [Byte; LEN],
    page: Option<Page>,
    /// A read of the page in progress, and its bytes once the server has sent them.
    reading: Option<(Reading<'a, ()>, Option<[Byte; LEN]>)>,
    writes: Vec<Write>,
    histories: [History; LEN],
    /// Answered writes and stores, by byte.
    done: [Vec<usize>; LEN],
    random: SplitMix64,
}

impl World<'_> {
    fn below(&mut self, limit: u64) -> u64 {
        self.random.next_u64() % limit
    }

    /// Begins an operation on a byte, which follows all that are done.
    fn operation(&mut self, byte: usize, value: u8) -> usize {
        for done in self.done[byte].drain(..) {
            self.histories[byte][done].1 = true;
        }
        self.histories[byte].push((value, false));
        self.histories[byte].len() - 1
    }

    fn values(bytes: &[Byte; LEN]) -> [u8; LEN] {
        bytes.map(|(value, _)| value)
    }

    fn begin_reading(&mut self) {
        let server = self.server;
        let mut buffer = [0; LEN];
        let read = |buffer: &mut [u8]| {
            buffer.copy_from_slice(&Self::values(&server));
            Ok::<_, ()>(LEN)
        };
        match self.pages.filling(0, &mut buffer, read) {
            Filling::Begun(reading) => self.reading = Some((reading, None)),
            Filling::Done(_) => self.page = Some(Page { bytes: server, is_dirty: false }),
        }
    }

    fn continue_reading(&mut self) {
        match self.reading.take() {
            Some((reading, None)) => self.reading = Some((reading, Some(self.server))),
            Some((_, Some(bytes))) => self.page = Some(Page { bytes, is_dirty: false }),
            None => {}
        }
    }

    fn store(&mut self) {
        let (byte, value) = (self.below(LEN as u64) as usize, self.below(VALUES) as u8);
        let Some(seen) = self.page.as_ref().map(|page| page.bytes[byte].1) else { return };
        self.histories[byte][seen].1 = true;
        let operation = self.operation(byte, value);
        self.done[byte].push(operation);
        self.page = self.page.take().map(|mut page| {
            page.bytes[byte] = (value, operation);
            Page { is_dirty: true, ..page }
        });
    }

    fn write_back(&mut self) {
        let Some(page) = self.page.as_mut().filter(|page| page.is_dirty) else { return };
        page.is_dirty = false;
        let bytes = page.bytes;
        let pages = self.pages;
        // Writes of programs may reach the server before and after it.
        pages.write_back(0, &Self::values(&bytes), |parts| {
            self.send_some();
            for part in parts {
                self.server[part.clone()].copy_from_slice(&bytes[part.clone()]);
            }
            self.send_some();
        });
    }

    fn call_write(&mut self) {
        let start = self.below(LEN as u64) as usize;
        let range = start..start + 1 + self.below((LEN - start) as u64) as usize;
        let value = self.below(VALUES) as u8;
        self.write_back();
        self.page = None;
        // Numbers of operations are the same for all bytes of a write.
        let next = self.histories.iter().map(Vec::len).max().unwrap_or(0);
        for byte in range.clone() {
            self.histories[byte].resize(next, (0, true));
            assert_eq!(self.operation(byte, value), next);
        }
        self.writes.push(Write { change: 0, range, value, operation: next, stage: Stage::Called });
    }

    fn begin_change(&self, range: ByteRange) -> u64 {
        let read = |_: &(), at: u64, buffer: &mut [u8]| {
            assert_eq!(at, 0);
            buffer[..LEN].copy_from_slice(&Self::values(&self.server));
            Ok::<_, ()>(LEN)
        };
        self.pages.begin(range, read).expect("read")
    }

    fn send_some(&mut self) {
        if let Some(write) = self.writes.iter_mut().find(|write| write.stage == Stage::Begun)
            && self.random.next_u64().is_multiple_of(2)
        {
            write.stage = Stage::Written;
            self.server[write.range.clone()].fill((write.value, write.operation));
        }
    }

    fn continue_write(&mut self) {
        if self.writes.is_empty() {
            return;
        }
        let index = self.below(self.writes.len() as u64) as usize;
        let Write { change, range, value, operation, stage } = &self.writes[index];
        let changed = ByteRange::new(range.start as u64, range.end as u64);
        let next = match stage {
            // It waits for the read.
            Stage::Called if self.reading.is_some() => return,
            Stage::Called => {
                self.writes[index].change = self.begin_change(changed.expect("not empty"));
                Some(Stage::Begun)
            }
            Stage::Begun => {
                self.server[range.clone()].fill((*value, *operation));
                Some(Stage::Written)
            }
            Stage::Written => self.pages.applied(*change, changed).map(Stage::Applied),
            // The kernel waits for reads of the page.
            Stage::Applied(_) if self.reading.is_some() => return,
            Stage::Applied(dropped) => {
                let dropped = *dropped;
                self.write_back();
                self.page = None;
                Some(Stage::Dropped(dropped))
            }
            Stage::Dropped(dropped) => {
                self.pages.ended(*change, *dropped);
                None
            }
        };
        match next {
            Some(stage) => self.writes[index].stage = stage,
            None => {
                let write = self.writes.swap_remove(index);
                write.range.for_each(|byte| self.done[byte].push(write.operation));
            }
        }
    }

    fn step(&mut self) {
        match self.below(8) {
            0 | 1 if self.page.is_none() && self.reading.is_none() => self.begin_reading(),
            0 | 1 => self.continue_reading(),
            2 | 3 => self.store(),
            4 => self.write_back(),
            // The kernel waits for the read before it drops the page.
            5 if self.writes.len() < 3 && self.reading.is_none() => self.call_write(),
            6 if self.below(8) == 0 => {
                self.write_back();
                self.page = None;
            }
            _ => self.continue_write(),
        }
    }
}

#[test]
fn no_store_and_no_write_is_undone_in_any_order() {
    for seed in 0..RUNS {
        let pages = FilePages::default();
        pages.opened(Some((1, ())));
        let mut world = World {
            pages: &pages,
            server: [(0, 0); LEN],
            page: None,
            reading: None,
            writes: Vec::new(),
            histories: std::array::from_fn(|_| vec![(0, false)]),
            done: std::array::from_fn(|_| vec![0]),
            random: SplitMix64::new(seed),
        };
        (0..STEPS).for_each(|_| world.step());
        (0..2).for_each(|_| world.continue_reading());
        while !world.writes.is_empty() {
            world.continue_write();
        }
        world.write_back();
        for (byte, (value, _)) in world.server.iter().enumerate() {
            let may_be_last = |&(last, is_followed): &(u8, bool)| last == *value && !is_followed;
            let history = &world.histories[byte];
            assert!(history.iter().any(may_be_last), "seed {seed}, byte {byte}: {value} after {history:?}");
        }
    }
}
