//! Traces of programs and the files of the recorder.

use crate::Outcome;
use crate::alloc::bounded;
use std::path::Path;
use weft_core::{ByteLen, FileOffset, Nanos};
use weft_recorder::tail::{self, Slot, Tail};
use weft_recorder::{Event, Options, Recorder};
use weft_trace::darshan::dxt::{Decoder, Format, Item};
use weft_trace::wtrace::{self, BLOCK_HEADER_LEN, HEADER_LEN};
use weft_trace::{FileId, HostId, Level, Names, Operation, Rank, Record, RecordStream, TraceError, csv};

const PATH: &str = "input";

/// Allocation limit per input byte: a block with its records, and names after LZ4 decompression.
const MEMORY_BYTES_PER_INPUT_BYTE: usize = 4096;
const MEMORY_BYTES_MIN: usize = 64 << 20;

pub fn wtrace(data: &[u8]) -> Outcome {
    // Test the blocks as they are, and with corrected checksums, behind a valid header.
    let mut outcome = read_wtrace(data);
    for repaired in [false, true] {
        let mut bytes = wtrace::header().to_vec();
        bytes.extend_from_slice(data);
        let ends = if repaired { repair(&mut bytes) } else { Vec::new() };
        outcome = bounded(bytes.len(), MEMORY_BYTES_PER_INPUT_BYTE, MEMORY_BYTES_MIN, || read_wtrace(&bytes));
        for end in ends {
            damage(&bytes[end.0..end.1]);
        }
    }
    outcome
}

/// Corrects checksums. Returns the start and end of each block.
fn repair(bytes: &mut [u8]) -> Vec<(usize, usize)> {
    let mut blocks = Vec::new();
    let mut at = HEADER_LEN;
    while let Some(head) = bytes.get(at..at + BLOCK_HEADER_LEN) {
        let stored = u32::from_le_bytes([head[12], head[13], head[14], head[15]]) as usize;
        let Some(end) = at.checked_add(BLOCK_HEADER_LEN + stored).filter(|end| *end <= bytes.len()) else {
            break;
        };
        bytes[at..at + 4].copy_from_slice(wtrace::MARKER);
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&bytes[at..at + 20]);
        hasher.update(&bytes[at + BLOCK_HEADER_LEN..end]);
        let crc = hasher.finalize();
        bytes[at + 20..at + 24].copy_from_slice(&crc.to_le_bytes());
        blocks.push((at, end));
        at = end;
    }
    blocks
}

fn damage(block: &[u8]) {
    let Ok(decoded) = wtrace::decode_block(block) else { return };
    assert_eq!(decoded.len, block.len());
    let bit = crc32fast::hash(block) as usize % (block.len() * 8);
    let mut damaged = block.to_vec();
    damaged[bit / 8] ^= 1 << (bit % 8);
    assert!(wtrace::decode_block(&damaged).is_err(), "the flipped bit {bit} was not detected");
}

fn read_wtrace(bytes: &[u8]) -> Outcome {
    let Ok(mut reader) = wtrace::Reader::new(Path::new(PATH), bytes, 0) else { return Outcome::Refused };
    let mut records = Vec::new();
    let outcome = drain(&mut reader, &mut records);
    let mut writer = wtrace::Writer::to(Path::new(PATH), Vec::new()).expect("writing to memory");
    // A name that occurs twice in the input has one number after rewriting.
    let files: Vec<FileId> =
        reader.names().all_files().map(|file| writer.file(file).expect("as many")).collect();
    for record in records.iter_mut().filter(|record| record.op.has_file()) {
        record.file = files[record.file.0 as usize];
    }
    for host in 1..=reader.names().hosts() {
        writer
            .host(reader.names().host_name(HostId(host)).expect("the host has a name"))
            .expect("no more hosts than before");
    }
    for record in &records {
        writer.push(record).expect("writing to memory");
    }
    let written = writer.finish().expect("writing to memory");
    let mut again = Vec::new();
    let mut reader = wtrace::Reader::new(Path::new(PATH), &written[..], 0).expect("just written");
    assert_eq!(drain(&mut reader, &mut again), Outcome::Accepted);
    assert!(again == records, "records change when they are written and read again");
    outcome
}

/// Decodes a tail file, as a process leaves it when it ends.
pub fn trace_tail(data: &[u8]) -> Outcome {
    // Test the bytes as they are, and with a valid magic number and version.
    let mut repaired = data.to_vec();
    for (at, byte) in tail::MAGIC.iter().chain(&tail::VERSION.to_le_bytes()).enumerate() {
        if let Some(place) = repaired.get_mut(at) {
            *place = *byte;
        }
    }
    let mut outcome = Outcome::Refused;
    for bytes in [data, &repaired] {
        outcome = bounded(bytes.len(), 64, 4 << 20, || read_tail(bytes));
    }
    outcome
}

fn read_tail(bytes: &[u8]) -> Outcome {
    let Ok(read) = Tail::read(bytes) else { return Outcome::Refused };
    assert!(read.names.iter().map(String::len).sum::<usize>() <= tail::BUFFERS_OFFSET - tail::NAMES_OFFSET);
    let mut count = [0u64; 2];
    for drained in [false, true] {
        let each = |slot: Slot| {
            assert!(slot.end >= slot.start);
            assert_eq!(Slot::decode(&slot.encode()), Some(slot));
            count[usize::from(drained)] += 1;
            Ok::<_, std::io::Error>(())
        };
        read.slots(bytes, drained, each).expect("memory reads without errors");
    }
    assert!(count[1] <= count[0] && count[0] <= (2 * tail::SHARDS_MAX * tail::SLOTS_PER_BUFFER) as u64);
    Outcome::Accepted
}

pub fn trace_tail_seeds() -> Vec<Vec<u8>> {
    let dir = std::env::temp_dir().join(format!("weft-fuzz-tail-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a temporary directory");
    let recorder =
        Recorder::new(Options { dir: dir.clone(), rank: Some(3), on_end: |line| panic!("{line}") });
    for record in some(40) {
        let file = recorder.file(format!("/data/file {}", record.file.0).as_bytes()).expect("it records");
        let (start, end) = (record.start.get(), record.end.get());
        let (offset, len) = (record.offset.get(), record.len.get());
        let Record { op, level, collective, .. } = record;
        recorder.record(&Event { file, op, level, collective, offset, len, start, end });
    }
    let files = std::fs::read_dir(&dir).expect("listed").map(|entry| entry.expect("listed").path());
    let tail = files.into_iter().find(|path| path.extension().is_some_and(|end| end == "wtail"));
    let bytes = std::fs::read(tail.expect("a tail")).expect("read");
    let _ = std::fs::remove_dir_all(&dir);
    // Only the used part of the first buffer, so that mutations hit something.
    vec![bytes[..tail::BUFFERS_OFFSET + tail::SLOTS_OFFSET + 50 * tail::SLOT_LEN].to_vec()]
}

/// Maximum number of records kept for the comparison.
const COMPARED_RECORDS_MAX: usize = 100_000;

fn drain(stream: &mut dyn RecordStream, into: &mut Vec<Record>) -> Outcome {
    while let Some(record) = stream.next() {
        match record {
            Ok(record) => {
                assert!(record.end >= record.start);
                assert!(!record.op.has_file() || stream.names().file_name(record.file).is_some());
                assert!(stream.names().host_name(record.host).is_some());
                if into.len() < COMPARED_RECORDS_MAX {
                    into.push(record);
                }
            }
            Err(error) => {
                assert!(!matches!(error, TraceError::Io { .. }), "memory can be read: {error}");
                assert!(stream.next().is_none(), "a stream ends after an error");
                return Outcome::Refused;
            }
        }
    }
    Outcome::Accepted
}

pub const WORDS: &[&str] = &[
    "rank",
    "operation",
    "file",
    "offset",
    "length",
    "start_ns",
    "end_us",
    "duration_s",
    "level",
    "collective",
    "read",
    "write",
    "barrier",
    "mpi-io",
    ",",
    "\n",
    "\"",
    "KiB",
    "1e-9",
    "18446744073709551615",
    "-",
    "#",
];

pub fn trace_csv(data: &[u8]) -> Outcome {
    // The limit covers a line, the names, and the buffers of the CSV reader.
    bounded(data.len(), 256, 4 << 20, || {
        let Ok(mut reader) = csv::Reader::new(Path::new(PATH), data, 0) else { return Outcome::Refused };
        let mut records = Vec::new();
        let outcome = match drain_csv(&mut reader, &mut records) {
            Ok(()) => Outcome::Accepted,
            Err(()) => Outcome::Refused,
        };
        let mut writer = csv::Writer::new(Path::new(PATH), Vec::new()).expect("writing to memory");
        for record in &records {
            writer.push(record, reader.names()).expect("writing to memory");
        }
        let written = writer.finish().expect("writing to memory");
        let mut reader_again = csv::Reader::new(Path::new(PATH), &written[..], 0).expect("just written");
        for record in &records {
            let again = reader_again.next().expect("as many").expect("just written");
            same(record, reader.names(), &again, reader_again.names());
        }
        assert!(reader_again.next().is_none());
        outcome
    })
}

fn drain_csv(reader: &mut csv::Reader<&[u8]>, into: &mut Vec<Record>) -> Result<(), ()> {
    for record in reader.by_ref() {
        let record = record.map_err(drop)?;
        assert!(record.end >= record.start);
        into.push(record);
    }
    Ok(())
}

fn same(a: &Record, a_names: &Names, b: &Record, b_names: &Names) {
    if a.op.has_file() {
        let (a, b) = (a_names.file_name(a.file), b_names.file_name(b.file));
        assert_eq!(a.map(plain), b.map(plain));
    }
    assert_eq!(a_names.host_name(a.host).map(plain), b_names.host_name(b.host).map(plain));
    assert_eq!(Record { file: b.file, host: b.host, ..*a }, *b);
}

/// Trims white space, which does not belong to a cell.
fn plain(name: &str) -> &str {
    name.trim()
}

pub fn darshan_dxt(data: &[u8]) -> Outcome {
    let Some((&choice, data)) = data.split_first() else { return Outcome::Refused };
    let level = if choice & 1 == 0 { Level::Posix } else { Level::MpiIo };
    let Some(format) = Format::of(level, i32::from(choice >> 2 & 7), choice & 2 != 0) else {
        return Outcome::Refused;
    };
    let whole = bounded(data.len(), 8, 4096, || items(format, data, usize::MAX));
    for piece in [1, 7, 104, 151] {
        assert_eq!(items(format, data, piece), whole, "in pieces of {piece}");
    }
    if whole.1 { Outcome::Accepted } else { Outcome::Refused }
}

/// Decodes items from bytes that arrive in pieces. Returns them, and whether decoding failed.
fn items(format: Format, data: &[u8], piece: usize) -> (Vec<Item>, bool) {
    let mut decoder = Decoder::new(format);
    let (mut kept, mut items) = (Vec::new(), Vec::new());
    for piece in data.chunks(piece.min(data.len().max(1))) {
        kept.extend_from_slice(piece);
        let mut rest = &kept[..];
        loop {
            match decoder.take(rest) {
                Ok(Some((item, after))) => {
                    if let Item::Segment(segment) = &item {
                        assert!(segment.end_ns >= segment.start_ns);
                        assert!(segment.offset.checked_add(segment.len).is_some());
                    }
                    items.push(item);
                    rest = after;
                }
                Ok(None) => break,
                Err(_) => return (items, false),
            }
        }
        kept = rest.to_vec();
    }
    let whole = kept.is_empty() && decoder.between_files();
    (items, whole)
}

fn some(count: u64) -> impl Iterator<Item = Record> {
    (0..count).map(|n| {
        let op = Operation::ALL[n as usize % Operation::ALL.len()];
        Record {
            rank: Rank((n % 5) as u32),
            host: HostId((n % 3) as u32),
            file: FileId(if op.has_file() { (n % 4) as u32 } else { 0 }),
            op,
            level: if n % 2 == 0 { Level::Posix } else { Level::MpiIo },
            collective: n % 7 == 0,
            offset: FileOffset(if op.moves_bytes() { n * 4096 } else { 0 }),
            len: ByteLen(if op.moves_bytes() { 4096 + n % 2 } else { 0 }),
            start: Nanos(n * 1000),
            end: Nanos(n * 1000 + 700),
        }
    })
}

pub fn wtrace_seeds() -> Vec<Vec<u8>> {
    [1, 40, 2000]
        .map(|count| {
            let mut writer = wtrace::Writer::to(Path::new(PATH), Vec::new()).expect("writing to memory");
            for number in 0..4 {
                writer.file(&format!("/data/file {number}")).expect("few");
                writer.host(&format!("node{number}")).expect("few");
            }
            writer.info(&weft_trace::Info::default()).expect("writing to memory");
            for record in some(count) {
                writer.push(&record).expect("writing to memory");
            }
            writer.finish().expect("writing to memory")[HEADER_LEN..].to_vec()
        })
        .into()
}

pub fn trace_csv_seeds() -> Vec<Vec<u8>> {
    let mut names = Names::default();
    for number in 0..4 {
        names.file(&format!("/data/file {number}")).expect("few");
        names.host(&format!("node{number}")).expect("few");
    }
    let mut writer = csv::Writer::new(Path::new(PATH), Vec::new()).expect("writing to memory");
    for record in some(30) {
        writer.push(&record, &names).expect("writing to memory");
    }
    let written = writer.finish().expect("writing to memory");
    let short =
        b"op,file,len,start_ms,duration_us\nread,\"a,\n\"\"b\",4 KiB,1.5,2e-3\n# comment\nbarrier,,,9,\n"
            .to_vec();
    vec![written, short]
}

pub fn darshan_dxt_seeds() -> Vec<Vec<u8>> {
    let module = |choice: u8, threads: bool| {
        let mut out = vec![choice];
        let words = |words: &[u64]| -> Vec<u8> {
            let swap = |word: &u64| if choice & 2 != 0 { word.swap_bytes() } else { *word };
            words.iter().flat_map(|word| swap(word).to_ne_bytes()).collect()
        };
        for rank in 0..3 {
            out.extend(words(&[77, rank, u64::MAX]));
            let mut host = [0; 64];
            host[..5].copy_from_slice(b"node7");
            out.extend(host);
            out.extend(words(&[2, 1]));
            for segment in 0..3u64 {
                let begin = segment as f64;
                out.extend(words(&[segment * 4096, 4096, begin.to_bits(), (begin + 0.25).to_bits()]));
                if threads {
                    out.extend(words(&[1]));
                }
            }
        }
        out
    };
    vec![module(1 << 2, false), module(2 << 2, true), module(1 | 2 | 3 << 2, true), module(1 | 2 << 2, false)]
}
