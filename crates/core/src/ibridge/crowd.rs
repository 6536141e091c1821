//! Whether more processes write to a disk than when it was last found out what that takes.

/// Places for processes, by a hash of theirs: two may share one.
const PLACES: usize = 1024;
/// Over so many requests they are counted.
const REQUESTS: u32 = 512;

/// The processes of the latest requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Crowd {
    seen: [u64; PLACES / 64],
    count: u32,
    requests: u32,
    /// How many there were.
    known: u32,
}

impl Crowd {
    /// Nobody yet.
    pub const fn new() -> Self {
        Self { seen: [0; PLACES / 64], count: 0, requests: 0, known: 1 }
    }

    /// A process has sent a request; whether there are twice as many as when this was said last.
    pub fn add(&mut self, process: u64) -> bool {
        let place = (process.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize;
        let (word, bit) = (&mut self.seen[place / 64], 1 << (place % 64));
        self.count += u32::from(*word & bit == 0);
        *word |= bit;
        let has_grown = self.count >= self.known.saturating_mul(2);
        if has_grown {
            self.known = self.count;
        }
        self.requests += 1;
        if self.requests == REQUESTS {
            *self = Self { known: self.known.min(self.count).max(1), ..Self::new() };
        }
        has_grown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growing_is_noticed_each_time_there_are_twice_as_many() {
        let mut crowd = Crowd::new();
        let mut grown = |processes: u64, requests: usize| {
            (0..processes).cycle().take(requests).filter(|&process| crowd.add(process)).count()
        };
        assert_eq!(grown(1, 2000), 0, "one alone");
        assert_eq!(grown(64, 2000), 6, "2, 4, 8, 16, 32, 64");
        assert_eq!(grown(64, 5000), 0, "no more come");
        assert_eq!(grown(1, 2000), 0, "they leave");
        assert_eq!(grown(8, 2000), 3, "some come back");
    }
}
