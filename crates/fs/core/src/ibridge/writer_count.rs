//! Detects growth in the number of writing processes since the disk's cost was last measured.

/// Number of buckets, indexed by a hash of the process; processes may collide.
const BUCKETS: usize = 1024;
/// Number of requests over which processes are counted.
const WINDOW_REQUESTS: u32 = 512;

/// Count of distinct processes among recent requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct WriterCount {
    seen: [u64; BUCKETS / 64],
    count: u32,
    requests: u32,
    /// Number of processes at the last reported growth.
    known: u32,
}

impl WriterCount {
    /// Returns an empty count.
    pub const fn new() -> Self {
        Self { seen: [0; BUCKETS / 64], count: 0, requests: 0, known: 1 }
    }

    /// Records a request of a process. Returns true if the number of processes has doubled since this last returned
    /// true.
    pub fn add(&mut self, process: u64) -> bool {
        let bucket = (process.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize;
        let (word, bit) = (&mut self.seen[bucket / 64], 1 << (bucket % 64));
        self.count += u32::from(*word & bit == 0);
        *word |= bit;
        let has_grown = self.count >= self.known.saturating_mul(2);
        if has_grown {
            self.known = self.count;
        }
        self.requests += 1;
        if self.requests == WINDOW_REQUESTS {
            *self = Self { known: self.known.min(self.count).max(1), ..Self::new() };
        }
        has_grown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_doubling_is_reported() {
        let mut writers = WriterCount::new();
        let mut grown = |processes: u64, requests: usize| {
            (0..processes).cycle().take(requests).filter(|&process| writers.add(process)).count()
        };
        assert_eq!(grown(1, 2000), 0, "a single process");
        assert_eq!(grown(64, 2000), 6, "2, 4, 8, 16, 32, 64");
        assert_eq!(grown(64, 5000), 0, "no growth");
        assert_eq!(grown(1, 2000), 0, "shrinking is not reported");
        assert_eq!(grown(8, 2000), 3, "growth after shrinking");
    }
}
