//! Map from logical to physical units. Its memory grows with the units written since the start.

/// Number of units in a chunk of the map.
const CHUNK: u64 = 1024;
/// Number of chunks in a group. A group uses memory once one of its units is written.
const GROUP: usize = 1024;
/// Marks an unmapped unit.
pub(super) const NONE: u32 = u32::MAX;

#[derive(Clone, Debug, Default)]
enum Chunk {
    /// In the initial state.
    #[default]
    Untouched,
    /// The first units are consecutive, and the others are in the initial state.
    Run { at: u32, len: u32 },
    /// Each unit separately. [`NONE`] is in the initial state.
    Mixed(Box<[u32; CHUNK as usize]>),
}

/// Initial contents of a used device: each block holds a run of logical units at its beginning and invalid units after
/// it.
#[derive(Clone, Debug, Default)]
pub(super) struct Aged {
    /// First logical unit of each block, and the end of the last one.
    pub starts: Vec<u64>,
    /// Units of a block.
    pub block: u64,
}

impl Aged {
    fn physical(&self, unit: u64) -> u32 {
        let block = self.starts.partition_point(|&start| start <= unit);
        if block == 0 || block == self.starts.len() {
            return NONE;
        }
        ((block as u64 - 1) * self.block + unit - self.starts[block - 1]) as u32
    }

    /// Returns the logical units of a block.
    pub fn units(&self, block: u64) -> std::ops::Range<u64> {
        match (self.starts.get(block as usize), self.starts.get(block as usize + 1)) {
            (Some(&start), Some(&end)) => start..end,
            _ => 0..0,
        }
    }
}

/// The map.
#[derive(Clone, Debug)]
pub(super) struct Map {
    groups: Vec<Option<Box<[Chunk]>>>,
    pub aged: Aged,
}

impl Map {
    pub fn new(units: u64, aged: Aged) -> Self {
        let groups = units.div_ceil(CHUNK * GROUP as u64) as usize;
        Self { groups: vec![None; groups], aged }
    }

    /// Returns the physical unit of a logical one, or [`NONE`].
    pub fn get(&self, unit: u64) -> u32 {
        let (within, chunk) = (unit % CHUNK, (unit / CHUNK) as usize);
        let now = match self.groups[chunk / GROUP].as_ref().map(|group| &group[chunk % GROUP]) {
            Some(Chunk::Run { at, len }) if within < u64::from(*len) => at + within as u32,
            Some(Chunk::Mixed(units)) => units[within as usize],
            _ => NONE,
        };
        if now == NONE { self.aged.physical(unit) } else { now }
    }

    /// Maps a logical unit to a physical one.
    pub fn set(&mut self, unit: u64, physical: u32) {
        let (within, chunk) = ((unit % CHUNK) as u32, (unit / CHUNK) as usize);
        let group = self.groups[chunk / GROUP]
            .get_or_insert_with(|| vec![Chunk::default(); GROUP].into_boxed_slice());
        let chunk = &mut group[chunk % GROUP];
        match chunk {
            Chunk::Untouched if within == 0 => *chunk = Chunk::Run { at: physical, len: 1 },
            Chunk::Run { at, len } if *len == within && *at + within == physical => *len += 1,
            Chunk::Mixed(units) => units[within as usize] = physical,
            Chunk::Untouched | Chunk::Run { .. } => {
                let mut units = Box::new([NONE; CHUNK as usize]);
                if let Chunk::Run { at, len } = chunk {
                    (0..*len).for_each(|index| units[index as usize] = *at + index);
                }
                units[within as usize] = physical;
                *chunk = Chunk::Mixed(units);
            }
        }
    }
}
