//! Records of the journal: each is one change of the mapping, or one row of a checkpoint.
//!
//! ```text
//! size | field
//!    1 | kind
//!      |
//! kind | fields
//!    1 | put      12 key, 8 offset, 4 len, 1 label, 4 gain, 2 puts, 12 mtime,
//!      |          4 segment, 4 generation, 4 position, 4 check
//!    2 | clean    12 key, 8 start, 8 end      the disk has the dirty bytes of the range
//!    3 | forget   12 key, 8 start, 8 end      clean and lost bytes of the range are dropped
//!    4 | abandon  12 key, 8 start, 8 end      all bytes of the range are dropped
//!    5 | truncate 12 key, 8 len               all bytes from len on are dropped
//!    6 | remove   12 key                      all bytes of the datafile are dropped
//!    7 | free     4 segment, 4 generation     the segment is empty and has this generation from now on
//!    8 | sealed   8 number                    payloads of all frames up to this number are durable
//!    9 | end                                  clean shutdown
//!   16 | begin    8 boot, 8 sealed            first record of a checkpoint
//!   17 | segment  4 segment, 4 generation
//!   18 | chunk    4 position, 4 len, 4 check  in the preceding segment
//!   19 | file     12 key, 12 mtime
//!   20 | entry    8 start, 4 len, 1 label, 4 gain, 2 puts, 4 segment, 4 position   of the preceding file
//!   21 | ready                                last record of a complete checkpoint
//!
//! key    8 file id, 2 component, 2 column
//! mtime  8 seconds (signed), 4 nanoseconds
//! label  bits 1 and 2 state (0 dirty, 1 clean, 2 copy, 3 lost); bit 0, and above it bits 3 to 7, number of the class
//!        (see `weft_core::DataClass`)
//! ```
//!
//! Numbers are little-endian.
//!
//! Version 1 had classes 0 and 1 only, in bit 0 of the label: its records are valid records of version 2. In version 2
//! `clean` also turns copies into clean bytes; version 1 never wrote it over copies.

use super::map::Label;
use super::piece::{Location, State};
use crate::datafile::DatafileKey;
use weft_core::DataClass;
use weft_core::ranges::ByteRange;
use weft_core::{FileId, ObjectId, Timestamp};

/// A change of the mapping, or a row of a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Record {
    Put(Put),
    Clean(DatafileKey, ByteRange),
    Forget(DatafileKey, ByteRange),
    Abandon(DatafileKey, ByteRange),
    Truncate(DatafileKey, u64),
    Remove(DatafileKey),
    Free { segment: u32, generation: u32 },
    Sealed(u64),
    End,
    Begin { boot: u64, sealed: u64 },
    Segment { segment: u32, generation: u32 },
    Chunk { position: u32, len: u32, check: u32 },
    File { key: DatafileKey, mtime: Timestamp },
    Entry { extent: ByteRange, location: Location, label: Label },
    Ready,
}

/// A put of bytes at a location.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Put {
    pub key: DatafileKey,
    pub extent: ByteRange,
    pub label: Label,
    pub mtime: Timestamp,
    pub location: Location,
    pub generation: u32,
    pub check: u32,
}

/// Lengths of the checkpoint records in bytes. They are fixed, so that a checkpoint's length is known before it is
/// encoded.
pub(super) const BEGIN_LEN: u64 = 17;
pub(super) const SEGMENT_LEN: u64 = 9;
pub(super) const CHUNK_LEN: u64 = 13;
pub(super) const FILE_LEN: u64 = 25;
pub(super) const ENTRY_LEN: u64 = 28;
pub(super) const READY_LEN: u64 = 1;

/// Maximum length of a record in bytes.
#[cfg(test)]
pub(super) const RECORD_LEN_MAX: usize = 60;

impl Record {
    /// Returns the datafile that the record changes.
    pub fn key(&self) -> Option<DatafileKey> {
        match *self {
            Self::Put(Put { key, .. })
            | Self::Clean(key, _)
            | Self::Forget(key, _)
            | Self::Abandon(key, _)
            | Self::Truncate(key, _)
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
                u32s(out, &[put.location.segment, put.generation, put.location.position, put.check]);
            }
            Self::Clean(of, extent) => range(out, 2, of, extent),
            Self::Forget(of, extent) => range(out, 3, of, extent),
            Self::Abandon(of, extent) => range(out, 4, of, extent),
            Self::Truncate(of, len) => {
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
            Self::Entry { extent, location, label: with } => {
                out.push(20);
                out.extend_from_slice(&extent.start().to_le_bytes());
                u32s(out, &[len32(extent)]);
                label(out, with);
                u32s(out, &[location.segment, location.position]);
            }
            Self::Ready => out.push(21),
        }
    }

    /// Decodes the first record of `bytes` and advances past it; `None` if it is invalid.
    pub fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let mut rest = Reader(bytes);
        let record = match rest.u8()? {
            1 => {
                let key = rest.key()?;
                let start = rest.u64()?;
                let extent = ByteRange::new(start, start.checked_add(u64::from(rest.u32()?))?)?;
                let (label, mtime) = (rest.label()?, rest.mtime()?);
                let (segment, generation) = (rest.u32()?, rest.u32()?);
                let location = Location { segment, position: rest.u32()? };
                Self::Put(Put { key, extent, label, mtime, location, generation, check: rest.u32()? })
            }
            2 => Self::Clean(rest.key()?, rest.range()?),
            3 => Self::Forget(rest.key()?, rest.range()?),
            4 => Self::Abandon(rest.key()?, rest.range()?),
            5 => Self::Truncate(rest.key()?, rest.u64()?),
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
                Self::Entry {
                    extent,
                    label,
                    location: Location { segment: rest.u32()?, position: rest.u32()? },
                }
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
    let number = label.class.number();
    out.push(number & 1 | state << 1 | (number >> 1) << 3);
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
        let state = match bits >> 1 & 3 {
            0 => State::Dirty,
            1 => State::Clean,
            2 => State::Copy,
            _ => State::Lost,
        };
        let class = DataClass::from_number(bits & 1 | (bits >> 3) << 1)?;
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
        let label = Label { class: DataClass::RANDOM, state: State::Copy, gain: -5, puts: 7, is_used: false };
        let location = Location { segment: 9, position: 0x77 };
        let mtime = Timestamp::from_parts(-4, 999_999_999);
        vec![
            Record::Put(Put { key, extent, label, mtime, location, generation: 2, check: 0xdead_beef }),
            Record::Clean(key, extent),
            Record::Forget(key, extent),
            Record::Abandon(key, extent),
            Record::Truncate(key, 5),
            Record::Remove(key),
            Record::Free { segment: 1, generation: 2 },
            Record::Sealed(77),
            Record::End,
            Record::Begin { boot: 1, sealed: 2 },
            Record::Segment { segment: 1, generation: 2 },
            Record::Chunk { position: 1, len: 2, check: 3 },
            Record::File { key, mtime },
            Record::Entry { extent, location, label },
            Record::Ready,
        ]
    }

    #[test]
    fn records_round_trip_and_truncated_ones_are_rejected() {
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
    fn labels_hold_every_class_and_no_unknown_one() {
        for class in DataClass::ALL {
            for state in [State::Dirty, State::Clean, State::Copy, State::Lost] {
                let with = Label { class, state, gain: 1, puts: 2, is_used: false };
                let mut bytes = Vec::new();
                label(&mut bytes, with);
                assert_eq!(Reader(&bytes).label(), Some(with));
                // Version 1 had the state in the bits above the class.
                assert!(class.number() > 1 || bytes[0] >> 1 < 4);
            }
        }
        for bits in [0b1001, 0b1_0000, 0xf8, 0xff] {
            assert_eq!(Reader(&[bits, 0, 0, 0, 0, 1, 0]).label(), None, "{bits:b}");
        }
    }

    #[test]
    fn invalid_records_are_rejected() {
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
