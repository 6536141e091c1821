//! Records of the journal: one change of the mapping each.
//!
//! ```text
//! size field
//!    1 kind
//!      1 put      12 key, 8 offset, 4 len, 1 label, 4 gain, 2 puts, 12 mtime, 4 segment, 4 generation, 4 position, 4 check
//!      2 clean    12 key, 8 start, 8 end      the disk has what is dirty there
//!      3 forget   12 key, 8 start, 8 end      what is clean or lost there is gone
//!      4 give up  12 key, 8 start, 8 end      whatever is there is gone
//!      5 cut      12 key, 8 len               and what lies behind
//!      6 remove   12 key
//!      7 free     4 segment, 4 generation     nothing lies in the segment, which is of this generation from here on
//!      8 sealed   8 number                    the payloads of all frames up to this one are durable
//!      9 end                                  orderly
//!     16 begin    8 boot, 8 sealed            a checkpoint of everything that follows
//!     17 segment  4 segment, 4 generation
//!     18 chunk    4 position, 4 len, 4 check  of the segment before
//!     19 file     12 key, 12 mtime
//!     20 entry    8 start, 4 len, 1 label, 4 gain, 2 puts, 4 segment, 4 position   of the file before
//!     21 ready                                the checkpoint is whole
//!
//! key    8 file id, 2 component, 2 column
//! mtime  8 seconds (signed), 4 nanoseconds
//! label  bit 0 class (0 fragment, 1 random), bits 1 and 2 state (0 dirty, 1 clean, 2 copy, 3 lost)
//! ```
//! Numbers are little-endian.

use super::map::Label;
use super::piece::{Place, State};
use crate::datafile::DatafileKey;
use weft_core::ibridge::Class;
use weft_core::ranges::ByteRange;
use weft_core::{FileId, ObjectId, Timestamp};

/// A change of the mapping, or a part of a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Record {
    Put(Put),
    Clean(DatafileKey, ByteRange),
    Forget(DatafileKey, ByteRange),
    GiveUp(DatafileKey, ByteRange),
    Cut(DatafileKey, u64),
    Remove(DatafileKey),
    Free { segment: u32, generation: u32 },
    Sealed(u64),
    End,
    Begin { boot: u64, sealed: u64 },
    Segment { segment: u32, generation: u32 },
    Chunk { position: u32, len: u32, check: u32 },
    File { key: DatafileKey, mtime: Timestamp },
    Entry { extent: ByteRange, place: Place, label: Label },
    Ready,
}

/// Bytes that were put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Put {
    pub key: DatafileKey,
    pub extent: ByteRange,
    pub label: Label,
    pub mtime: Timestamp,
    pub place: Place,
    pub generation: u32,
    pub check: u32,
}

/// Lengths of the records of checkpoints.
pub(super) const BEGIN_LEN: u64 = 17;
pub(super) const SEGMENT_LEN: u64 = 9;
pub(super) const CHUNK_LEN: u64 = 13;
pub(super) const FILE_LEN: u64 = 25;
pub(super) const ENTRY_LEN: u64 = 28;
pub(super) const READY_LEN: u64 = 1;

/// Of the longest record.
#[cfg(test)]
pub(super) const RECORD_LEN_MAX: usize = 60;

impl Record {
    /// The datafile that it changes.
    pub fn key(&self) -> Option<DatafileKey> {
        match *self {
            Self::Put(Put { key, .. })
            | Self::Clean(key, _)
            | Self::Forget(key, _)
            | Self::GiveUp(key, _)
            | Self::Cut(key, _)
            | Self::Remove(key) => Some(key),
            _ => None,
        }
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Put(put) => {
                out.push(1);
                key(out, put.key);
                out.extend_from_slice(&put.extent.start().to_le_bytes());
                u32s(out, &[len32(put.extent)]);
                label(out, put.label);
                mtime(out, put.mtime);
                u32s(out, &[put.place.segment, put.generation, put.place.position, put.check]);
            }
            Self::Clean(of, extent) => range(out, 2, of, extent),
            Self::Forget(of, extent) => range(out, 3, of, extent),
            Self::GiveUp(of, extent) => range(out, 4, of, extent),
            Self::Cut(of, len) => {
                out.push(5);
                key(out, of);
                out.extend_from_slice(&len.to_le_bytes());
            }
            Self::Remove(of) => {
                out.push(6);
                key(out, of);
            }
            Self::Free { segment, generation } => {
                out.push(7);
                u32s(out, &[segment, generation]);
            }
            Self::Sealed(number) => {
                out.push(8);
                out.extend_from_slice(&number.to_le_bytes());
            }
            Self::End => out.push(9),
            Self::Begin { boot, sealed } => {
                out.push(16);
                out.extend_from_slice(&boot.to_le_bytes());
                out.extend_from_slice(&sealed.to_le_bytes());
            }
            Self::Segment { segment, generation } => {
                out.push(17);
                u32s(out, &[segment, generation]);
            }
            Self::Chunk { position, len, check } => {
                out.push(18);
                u32s(out, &[position, len, check]);
            }
            Self::File { key: of, mtime: at } => {
                out.push(19);
                key(out, of);
                mtime(out, at);
            }
            Self::Entry { extent, place, label: with } => {
                out.push(20);
                out.extend_from_slice(&extent.start().to_le_bytes());
                u32s(out, &[len32(extent)]);
                label(out, with);
                u32s(out, &[place.segment, place.position]);
            }
            Self::Ready => out.push(21),
        }
    }

    /// The first record of `bytes`, which go on behind it; `None` when it is none.
    pub fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let mut rest = Reader(bytes);
        let record = match rest.u8()? {
            1 => {
                let key = rest.key()?;
                let start = rest.u64()?;
                let extent = ByteRange::new(start, start.checked_add(u64::from(rest.u32()?))?)?;
                let (label, mtime) = (rest.label()?, rest.mtime()?);
                let (segment, generation) = (rest.u32()?, rest.u32()?);
                let place = Place { segment, position: rest.u32()? };
                Self::Put(Put { key, extent, label, mtime, place, generation, check: rest.u32()? })
            }
            2 => Self::Clean(rest.key()?, rest.range()?),
            3 => Self::Forget(rest.key()?, rest.range()?),
            4 => Self::GiveUp(rest.key()?, rest.range()?),
            5 => Self::Cut(rest.key()?, rest.u64()?),
            6 => Self::Remove(rest.key()?),
            7 => Self::Free { segment: rest.u32()?, generation: rest.u32()? },
            8 => Self::Sealed(rest.u64()?),
            9 => Self::End,
            16 => Self::Begin { boot: rest.u64()?, sealed: rest.u64()? },
            17 => Self::Segment { segment: rest.u32()?, generation: rest.u32()? },
            18 => Self::Chunk { position: rest.u32()?, len: rest.u32()?, check: rest.u32()? },
            19 => Self::File { key: rest.key()?, mtime: rest.mtime()? },
            20 => {
                let start = rest.u64()?;
                let extent = ByteRange::new(start, start.checked_add(u64::from(rest.u32()?))?)?;
                let label = rest.label()?;
                Self::Entry { extent, label, place: Place { segment: rest.u32()?, position: rest.u32()? } }
            }
            21 => Self::Ready,
            _ => return None,
        };
        *bytes = rest.0;
        Some(record)
    }
}

fn u32s(out: &mut Vec<u8>, numbers: &[u32]) {
    numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
}

fn len32(extent: ByteRange) -> u32 {
    u32::try_from(extent.len()).expect("entries are shorter than a segment")
}

fn key(out: &mut Vec<u8>, key: DatafileKey) {
    out.extend_from_slice(&key.file.0.to_le_bytes());
    out.extend_from_slice(&key.object.component.to_le_bytes());
    out.extend_from_slice(&key.object.column.to_le_bytes());
}

fn range(out: &mut Vec<u8>, kind: u8, of: DatafileKey, extent: ByteRange) {
    out.push(kind);
    key(out, of);
    out.extend_from_slice(&extent.start().to_le_bytes());
    out.extend_from_slice(&extent.end().to_le_bytes());
}

fn label(out: &mut Vec<u8>, label: Label) {
    let state = match label.state {
        State::Dirty => 0,
        State::Clean => 1,
        State::Copy => 2,
        State::Lost => 3,
    };
    out.push(label.class.index() as u8 | state << 1);
    out.extend_from_slice(&label.gain.to_le_bytes());
    out.extend_from_slice(&label.puts.to_le_bytes());
}

fn mtime(out: &mut Vec<u8>, at: Timestamp) {
    let (seconds, nanos) = at.parts();
    out.extend_from_slice(&seconds.to_le_bytes());
    out.extend_from_slice(&nanos.to_le_bytes());
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn key(&mut self) -> Option<DatafileKey> {
        let file = FileId(self.u64()?);
        Some(DatafileKey::new(file, ObjectId { component: self.u16()?, column: self.u16()? }))
    }

    fn range(&mut self) -> Option<ByteRange> {
        ByteRange::new(self.u64()?, self.u64()?)
    }

    fn label(&mut self) -> Option<Label> {
        let bits = self.u8()?;
        let state = match bits >> 1 {
            0 => State::Dirty,
            1 => State::Clean,
            2 => State::Copy,
            3 => State::Lost,
            _ => return None,
        };
        let class = Class::ALL[usize::from(bits & 1)];
        let gain = self.u32()? as i32;
        let puts = self.u16().filter(|&puts| puts > 0)?;
        Some(Label { class, state, gain, puts, is_used: false })
    }

    fn mtime(&mut self) -> Option<Timestamp> {
        let seconds = self.u64()? as i64;
        let nanos = self.u32().filter(|&nanos| nanos < 1_000_000_000)?;
        Some(Timestamp::from_parts(seconds, nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Record> {
        let key = DatafileKey::new(FileId(0x0102_0304_0506_0708), ObjectId { component: 3, column: 0x405 });
        let extent = ByteRange::new(0x1000, 0x1123).expect("bytes");
        let label = Label { class: Class::Random, state: State::Copy, gain: -5, puts: 7, is_used: false };
        let place = Place { segment: 9, position: 0x77 };
        let mtime = Timestamp::from_parts(-4, 999_999_999);
        vec![
            Record::Put(Put { key, extent, label, mtime, place, generation: 2, check: 0xdead_beef }),
            Record::Clean(key, extent),
            Record::Forget(key, extent),
            Record::GiveUp(key, extent),
            Record::Cut(key, 5),
            Record::Remove(key),
            Record::Free { segment: 1, generation: 2 },
            Record::Sealed(77),
            Record::End,
            Record::Begin { boot: 1, sealed: 2 },
            Record::Segment { segment: 1, generation: 2 },
            Record::Chunk { position: 1, len: 2, check: 3 },
            Record::File { key, mtime },
            Record::Entry { extent, place, label },
            Record::Ready,
        ]
    }

    #[test]
    fn records_read_back_and_cut_ones_do_not() {
        for record in samples() {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            assert!(bytes.len() <= RECORD_LEN_MAX, "{record:?} takes {}", bytes.len());
            let mut rest = &bytes[..];
            assert_eq!(Record::decode(&mut rest), Some(record));
            assert!(rest.is_empty(), "{record:?}");
            for cut in 0..bytes.len() {
                assert_eq!(Record::decode(&mut &bytes[..cut]), None, "{record:?} cut to {cut}");
            }
        }
    }

    #[test]
    fn golden_bytes() {
        let mut bytes = Vec::new();
        samples()[0].encode(&mut bytes);
        let mut expected = vec![1, 8, 7, 6, 5, 4, 3, 2, 1, 3, 0, 5, 4];
        expected
            .extend_from_slice(&[0, 16, 0, 0, 0, 0, 0, 0, 0x23, 1, 0, 0, 0b101, 0xfb, 255, 255, 255, 7, 0]);
        expected.extend_from_slice(&[0xfc, 255, 255, 255, 255, 255, 255, 255, 255, 201, 154, 59]);
        expected.extend_from_slice(&[9, 0, 0, 0, 2, 0, 0, 0, 0x77, 0, 0, 0, 0xef, 0xbe, 0xad, 0xde]);
        assert_eq!(bytes, expected);
    }

    #[test]
    fn records_that_mean_nothing_are_refused() {
        for bad in [
            [2u8].iter().chain(&[0; 12]).chain(&[0; 16]).copied().collect::<Vec<_>>(),
            vec![0],
            vec![10],
            vec![22],
        ] {
            assert_eq!(Record::decode(&mut &bad[..]), None, "{bad:?}");
        }
    }
}
