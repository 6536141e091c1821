//! Whether the system's memory takes what goes to a disk: no arm waits for that then, and there is nothing to gain.

/// After so many requests in a row that memory served, the next ones are taken for such.
const IN_ROW: u32 = 16;
/// More of them count no more.
const IN_ROW_MAX: u32 = 2 * IN_ROW;
/// While they are not, one write in so many shows whether they have become so.
const SHOWN: u32 = 32;

/// What was seen of the writes that the disk got.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Memory {
    /// Of late so many came back at once.
    quick: u32,
    /// Writes since one was to show.
    unseen: u32,
    /// Whether the disk got any since it last synced.
    is_written: bool,
}

impl Memory {
    /// The disk had a write. One that was slow among many others may have waited for a processor; of more it takes two.
    pub fn wrote(&mut self, is_quick: bool) {
        self.is_written = true;
        self.saw(is_quick);
    }

    /// The disk has synced. Who syncs what he has written waits for the arm, whatever memory took.
    pub fn synced(&mut self, is_quick: bool) {
        if std::mem::take(&mut self.is_written) && !is_quick {
            self.saw(false);
        }
    }

    fn saw(&mut self, is_quick: bool) {
        self.quick = if is_quick { (self.quick + 1).min(IN_ROW_MAX) } else { self.quick / 2 };
    }

    /// Whether the next write, which could go to the SSD, is the disk's.
    pub fn takes(&mut self) -> bool {
        self.unseen = (self.unseen + 1) % SHOWN;
        self.quick >= IN_ROW || self.unseen == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many writes go to the disk, which is as quick as said.
    fn to_disk(memory: &mut Memory, writes: u32, is_quick: bool, has_sync: bool) -> u32 {
        let mut count = 0;
        for _ in 0..writes {
            if memory.takes() {
                count += 1;
                memory.wrote(is_quick);
                if has_sync {
                    memory.synced(false);
                }
            }
        }
        count
    }

    #[test]
    fn writes_stay_on_the_disk_once_memory_was_seen_to_take_them() {
        let mut memory = Memory::default();
        assert_eq!(to_disk(&mut memory, 16 * 32, true, false), 16, "one in 32 shows");
        assert_eq!(to_disk(&mut memory, 1000, true, false), 1000);
        memory.wrote(false);
        assert!(memory.takes(), "one may have waited for a processor");
        memory.wrote(false);
        assert_eq!(to_disk(&mut memory, 32, false, false), 1, "memory is full");
    }

    #[test]
    fn slow_disks_show_one_write_in_many() {
        assert_eq!(to_disk(&mut Memory::default(), 3200, false, false), 100);
    }

    #[test]
    fn who_syncs_waits_for_the_arm() {
        assert_eq!(to_disk(&mut Memory::default(), 3200, true, true), 100);
        // One sync at the end of many writes is nothing, however many ask for it.
        let mut memory = Memory::default();
        to_disk(&mut memory, 1000, true, false);
        (0..100).for_each(|_| memory.synced(false));
        assert_eq!(to_disk(&mut memory, 1000, true, false), 1000);
    }
}
