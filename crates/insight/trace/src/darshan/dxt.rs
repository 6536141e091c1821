//! Decodes the DXT modules of a Darshan log after the library has decompressed them.
//!
//! ```text
//! header per file and rank, 104 bytes      segment per operation, first all writes, then all reads
//!    0  record id of the file, u64            0  offset, i64
//!    8  rank, i64                             8  length, i64
//!    8  rank, i64                             8  length in bytes, i64
//!   16  -1 for a shared file, i64            16  start in seconds of the job, f64
//!   24  host name, 64 bytes                  24  end in seconds of the job, f64
//!   88  number of writes, i64                32  thread, u64: since version 2 of DXT_POSIX
//!   96  number of reads, i64                     and version 3 of DXT_MPIIO
//!
//! Source: include/darshan-dxt-log-format.h and darshan-util/darshan-dxt-logutils.c of Darshan. The library's own
//! record function allocates memory for whatever counts the log contains; this decoder reads piece by piece instead.

use crate::record::Level;

/// Length of a header in bytes.
pub const HEAD_LEN: usize = 104;

/// Layout of a module, determined by its version and byte order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Format {
    /// Level of the module's operations.
    pub level: Level,
    /// Length of a segment in bytes.
    pub segment_len: usize,
    /// Whether the module's offsets are valid.
    pub has_offsets: bool,
    /// Whether the log was written in the other byte order.
    pub swapped: bool,
}

impl Format {
    /// Returns the layout of a module's version; `None` for unknown versions.
    pub fn of(level: Level, version: i32, swapped: bool) -> Option<Self> {
        let threads_since = match level {
            Level::Posix => 2,
            Level::MpiIo => 3,
        };
        (1..=threads_since).contains(&version).then_some(Self {
            level,
            segment_len: if version == threads_since { 40 } else { 32 },
            has_offsets: level == Level::Posix || version > 1,
            swapped,
        })
    }
}

/// Header of the operations of one rank on one file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Head {
    /// Darshan's record id of the file.
    pub record_id: u64,
    /// Rank that used the file.
    pub rank: u32,
    /// Host on which the rank ran.
    pub host: String,
    /// Number of write segments that follow.
    pub writes: u64,
    /// Number of read segments that follow the writes.
    pub reads: u64,
}

/// One operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Whether the operation is a write; otherwise it is a read.
    pub write: bool,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// Start in nanoseconds of the job.
    pub start_ns: u64,
    /// End in nanoseconds of the job.
    pub end_ns: u64,
}

/// Next item of a module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item {
    /// A header: operations of another file or rank follow.
    Head(Head),
    /// An operation of the file and rank of the last header.
    Segment(Segment),
}

/// Decodes a module incrementally.
#[derive(Debug)]
pub struct Decoder {
    format: Format,
    writes_left: u64,
    reads_left: u64,
}

impl Decoder {
    /// Creates a decoder for the beginning of a module.
    pub const fn new(format: Format) -> Self {
        Self { format, writes_left: 0, reads_left: 0 }
    }

    /// Whether the module may end here.
    pub const fn between_files(&self) -> bool {
        self.writes_left == 0 && self.reads_left == 0
    }

    /// Decodes the item at the front of `bytes` and returns it with the rest; `None` if more bytes are needed.
    ///
    /// # Errors
    /// Returns the reason as text for users if the item is invalid.
    pub fn take<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<(Item, &'a [u8])>, &'static str> {
        if self.between_files() {
            let Some((head, rest)) = bytes.split_at_checked(HEAD_LEN) else { return Ok(None) };
            let head = self.head(head)?;
            (self.writes_left, self.reads_left) = (head.writes, head.reads);
            return Ok(Some((Item::Head(head), rest)));
        }
        let Some((segment, rest)) = bytes.split_at_checked(self.format.segment_len) else { return Ok(None) };
        let segment = self.segment(segment)?;
        if segment.write {
            self.writes_left -= 1
        } else {
            self.reads_left -= 1
        }
        Ok(Some((Item::Segment(segment), rest)))
    }

    fn word(&self, bytes: &[u8], at: usize) -> u64 {
        let word = u64::from_ne_bytes(*bytes[at..].first_chunk().expect("checked by the caller"));
        if self.format.swapped { word.swap_bytes() } else { word }
    }

    fn head(&self, bytes: &[u8]) -> Result<Head, &'static str> {
        let count = |at| i64::try_from(self.word(bytes, at)).ok().filter(|n| *n < 1 << 48).map(|n| n as u64);
        let name = &bytes[24..88];
        let name = &name[..name.iter().position(|byte| *byte == 0).unwrap_or(name.len())];
        Ok(Head {
            record_id: self.word(bytes, 0),
            rank: u32::try_from(self.word(bytes, 8)).map_err(|_| "invalid rank")?,
            host: String::from_utf8_lossy(name).into_owned(),
            writes: count(88).ok_or("invalid number of writes")?,
            reads: count(96).ok_or("invalid number of reads")?,
        })
    }

    fn segment(&self, bytes: &[u8]) -> Result<Segment, &'static str> {
        let number = |at| i64::try_from(self.word(bytes, at)).ok().map(|n| n as u64);
        let time = |at| {
            let seconds = f64::from_bits(self.word(bytes, at));
            // Clocks of hosts differ: a time before the start of the job becomes the start of the job.
            (seconds.is_finite() && (-1e6..9e9).contains(&seconds))
                .then(|| (seconds.max(0.0) * 1e9).round() as u64)
        };
        let offset = if self.format.has_offsets { number(0).ok_or("negative offset")? } else { 0 };
        let len = number(8).ok_or("negative length")?;
        offset.checked_add(len).ok_or("an operation exceeds the largest offset")?;
        let start_ns = time(16).ok_or("invalid start time")?;
        let end_ns = time(24).ok_or("invalid end time")?.max(start_ns);
        Ok(Segment { write: self.writes_left > 0, offset, len, start_ns, end_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u64], swapped: bool) -> Vec<u8> {
        words.iter().flat_map(|word| if swapped { word.swap_bytes() } else { *word }.to_ne_bytes()).collect()
    }

    /// Encodes one file of rank 3 with one write and one read.
    fn module(swapped: bool, threads: bool) -> Vec<u8> {
        let mut out = bytes(&[77, 3, u64::MAX], swapped);
        out.extend_from_slice(b"node7");
        out.resize(88, 0);
        out.extend(bytes(&[1, 1], swapped));
        for (offset, begin) in [(4096u64, 1.5f64), (0, 2.25)] {
            out.extend(bytes(&[offset, 10, begin.to_bits(), (begin + 0.5).to_bits()], swapped));
            if threads {
                out.extend(bytes(&[9], swapped));
            }
        }
        out
    }

    #[test]
    fn both_byte_orders_and_segment_lengths_decode() {
        for (version, swapped) in [(1, false), (2, false), (1, true), (2, true)] {
            let format = Format::of(Level::Posix, version, swapped).expect("known");
            let bytes = module(swapped, version == 2);
            let mut decoder = Decoder::new(format);
            let (mut rest, mut items) = (&bytes[..], Vec::new());
            while let Some((item, after)) = decoder.take(rest).expect("sound") {
                items.push(item);
                rest = after;
            }
            assert!(rest.is_empty() && decoder.between_files());
            let head = Head { record_id: 77, rank: 3, host: "node7".into(), writes: 1, reads: 1 };
            let segment = |write, offset, start_ns| {
                Item::Segment(Segment { write, offset, len: 10, start_ns, end_ns: start_ns + 500_000_000 })
            };
            let expected =
                [Item::Head(head), segment(true, 4096, 1_500_000_000), segment(false, 0, 2_250_000_000)];
            assert_eq!(items, expected);
        }
    }

    #[test]
    fn unknown_versions_are_rejected() {
        assert!(Format::of(Level::Posix, 3, false).is_none());
        assert!(Format::of(Level::MpiIo, 4, false).is_none());
        assert!(Format::of(Level::MpiIo, 0, false).is_none());
        assert!(!Format::of(Level::MpiIo, 1, false).expect("known").has_offsets);
    }

    #[test]
    fn invalid_values_are_errors() {
        let format = Format::of(Level::Posix, 1, false).expect("known");
        for (at, word) in [(8, u64::MAX), (88, u64::MAX), (96, 1 << 60)] {
            let mut bytes = module(false, false);
            bytes[at..at + 8].copy_from_slice(&word.to_ne_bytes());
            assert!(Decoder::new(format).take(&bytes).is_err(), "at {at}");
        }
        for (at, word) in [(0, u64::MAX), (8, u64::MAX), (16, f64::NAN.to_bits()), (24, 1e300f64.to_bits())] {
            let mut bytes = module(false, false);
            bytes[HEAD_LEN + at..HEAD_LEN + at + 8].copy_from_slice(&word.to_ne_bytes());
            let mut decoder = Decoder::new(format);
            let rest = decoder.take(&bytes).expect("the head is sound").expect("enough").1;
            assert!(decoder.take(rest).is_err(), "at {at}");
        }
    }
}
