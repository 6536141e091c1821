//! The file `synced`: which frames of the logs are on the disk, recorded apart from the logs.
//!
//! A log ends where no frame follows, so a log whose tail was lost looks like one that ended earlier. This file tells the
//! two apart: a start that finds fewer frames than were synced, or a shorter log, is refused.
//!
//! ```text
//! offset size | field
//!      0  512 | slot 0: as of the last start
//!    512  512 | slot 1: as of the last sync of a log
//!
//!      0    8 | magic    "WEFTSYNC"
//!      8    4 | version  1
//!     12    4 | log      0 or 1: the log that holds the frame
//!     16    8 | frame    number of the last frame that is known to be synced
//!     24    8 | end      offset behind that frame
//!     32   16 | lens     least lengths of the logs in bytes
//!     48    4 | crc      CRC-32 of bytes 0 to 47
//! ```
//!
//! Numbers are little-endian. Slot 1 is written after each sync of a log and is not synced itself: it can be older than
//! the logs, never newer. Each slot fits one sector, so a loss of power leaves the old or the new one. The valid slot with
//! the higher frame counts; a start writes both, one after the other, so one is always valid.

use std::io;
use weft_core::{ByteLen, LocalOffset};
use weft_env::BlockingFile;

/// Name of the file.
pub(super) const NAME: &str = "synced";
const MAGIC: &[u8; 8] = b"WEFTSYNC";
const VERSION: u32 = 1;
const SLOT_LEN: usize = 512;
const SLOTS: u64 = 2;
/// Length of the fields of a slot in bytes.
const FIELDS_LEN: usize = 52;

/// Frames that are known to be on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Synced {
    /// Number of the last one.
    pub frame: u64,
    /// Index of the log that holds it.
    pub log: usize,
    /// Offset behind it.
    pub end: u64,
    /// Least lengths of the logs in bytes.
    pub lens: [u64; 2],
}

impl Synced {
    fn encode(&self) -> [u8; SLOT_LEN] {
        let mut out = [0; SLOT_LEN];
        out[0..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&(self.log as u32).to_le_bytes());
        for (at, number) in (16..).step_by(8).zip([self.frame, self.end, self.lens[0], self.lens[1]]) {
            out[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        let crc = crc32fast::hash(&out[..FIELDS_LEN - 4]);
        out[FIELDS_LEN - 4..FIELDS_LEN].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes a slot; `None` if it is damaged, was never written, or is of another version.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; FIELDS_LEN] = bytes.first_chunk()?;
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let is_good = &bytes[..8] == MAGIC
            && u32_at(8) == VERSION
            && u32_at(12) < 2
            && u32_at(FIELDS_LEN - 4) == crc32fast::hash(&bytes[..FIELDS_LEN - 4]);
        is_good.then(|| Self {
            log: u32_at(12) as usize,
            frame: u64_at(16),
            end: u64_at(24),
            lens: [u64_at(32), u64_at(40)],
        })
    }

    /// Returns the least length of a log in bytes.
    pub fn len_min(&self, log: usize) -> u64 {
        let end = if self.log == log { self.end } else { 0 };
        self.lens[log].max(end)
    }
}

/// Reads the file; `None` if no slot is valid.
pub(super) fn read(file: &impl BlockingFile) -> io::Result<Option<Synced>> {
    let len = file.len()?.0.min(SLOTS * SLOT_LEN as u64);
    let mut bytes = vec![0; len as usize];
    file.read_at(&mut bytes, LocalOffset(0))?;
    Ok(bytes.chunks(SLOT_LEN).filter_map(Synced::decode).max_by_key(|synced| synced.frame))
}

/// Writes both slots durably, also with a lower frame than before.
pub(super) fn begin(file: &impl BlockingFile, synced: &Synced) -> io::Result<()> {
    if file.len()? < ByteLen(SLOTS * SLOT_LEN as u64) {
        file.write_at(&[0; SLOTS as usize * SLOT_LEN], LocalOffset(0))?;
    }
    for slot in [1, 0] {
        file.write_at(&synced.encode(), LocalOffset(slot * SLOT_LEN as u64))?;
        file.sync()?;
    }
    Ok(())
}

/// Records frames that have been synced.
pub(super) fn advance(file: &impl BlockingFile, synced: &Synced) -> io::Result<()> {
    file.write_at(&synced.encode(), LocalOffset(SLOT_LEN as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNCED: Synced = Synced { frame: 0x0102_0304, log: 1, end: 0x0506, lens: [0x0708, 0x090a] };

    #[test]
    fn golden_bytes() {
        let mut expected =
            b"WEFTSYNC\x01\0\0\0\x01\0\0\0\x04\x03\x02\x01\0\0\0\0\x06\x05\0\0\0\0\0\0".to_vec();
        expected.extend_from_slice(b"\x08\x07\0\0\0\0\0\0\x0a\x09\0\0\0\0\0\0");
        expected.extend_from_slice(&crc32fast::hash(&expected).to_le_bytes());
        let slot = SYNCED.encode();
        assert_eq!(slot[..FIELDS_LEN], expected);
        assert_eq!(Synced::decode(&slot), Some(SYNCED));
        assert_eq!((SYNCED.len_min(0), SYNCED.len_min(1)), (0x0708, 0x090a));
    }

    #[test]
    fn damaged_and_cut_slots_are_found() {
        let slot = SYNCED.encode();
        for bit in 0..FIELDS_LEN * 8 {
            let mut bad = slot;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Synced::decode(&bad), None, "bit {bit}");
        }
        for len in 0..FIELDS_LEN {
            assert_eq!(Synced::decode(&slot[..len]), None, "{len} bytes");
        }
        assert_eq!(Synced::decode(&[0; SLOT_LEN]), None);
    }
}
