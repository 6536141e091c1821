//! Weft's trace format: round trips, truncated files and damage.

mod common;

use common::{Dice, all, any_record};
use std::io::{Cursor, Read};
use std::path::Path;
use weft_trace::wtrace::{BLOCK_HEADER_LEN, HEADER_LEN, Reader, TraceEnd, Writer};
use weft_trace::{Info, Record, RecordStream, Source, TraceError};

fn reader(bytes: &[u8]) -> Reader<Cursor<Vec<u8>>> {
    Reader::new(Path::new("test"), Cursor::new(bytes.to_vec()), 0).expect("a valid header")
}

fn written(records: &[Record], flush_every: usize) -> Vec<u8> {
    let mut writer = Writer::to(Path::new("test"), Vec::new()).expect("writing to memory");
    write(&mut writer, records, flush_every);
    writer.finish().expect("writing to memory")
}

fn write<W: std::io::Write>(writer: &mut Writer<W>, records: &[Record], flush_every: usize) {
    for number in 0..4 {
        writer.file(&format!("file {number}")).expect("few");
        writer.host(&format!("host {number}")).expect("few");
    }
    for (index, record) in records.iter().enumerate() {
        writer.push(record).expect("writing to memory");
        if (index + 1).is_multiple_of(flush_every) {
            writer.flush().expect("writing to memory");
        }
    }
}

fn some(seed: u64, count: usize) -> Vec<Record> {
    let mut dice = Dice::new(seed);
    (0..count).map(|_| any_record(&mut dice, 4, 4)).collect()
}

/// Offsets at which blocks end.
fn ends(bytes: &[u8]) -> Vec<usize> {
    let mut ends = vec![HEADER_LEN];
    while let Some(head) = bytes.get(ends[ends.len() - 1]..).filter(|rest| rest.len() >= BLOCK_HEADER_LEN) {
        let stored = u32::from_le_bytes([head[12], head[13], head[14], head[15]]) as usize;
        ends.push(ends[ends.len() - 1] + BLOCK_HEADER_LEN + stored);
    }
    ends
}

#[test]
fn random_records_round_trip() {
    for seed in 0..20 {
        println!("seed {seed}");
        let records = some(seed, 10_000);
        let mut stream = reader(&written(&records, 700 + seed as usize));
        let (read, error) = all(&mut stream);
        assert!(error.is_none(), "{error:?}");
        assert!(read == records);
        assert_eq!(stream.end(), TraceEnd::Finished);
        assert_eq!(stream.names().file_name(read[0].file).map(|name| &name[..5]), Some("file "));
    }
}

#[test]
fn a_truncated_file_yields_all_complete_blocks() {
    let records = some(7, 600);
    let bytes = written(&records, 100);
    let ends = ends(&bytes);
    assert!(ends.len() > 7 && ends[ends.len() - 1] == bytes.len());
    for cut in HEADER_LEN..bytes.len() {
        let mut stream = reader(&bytes[..cut]);
        let (read, error) = all(&mut stream);
        assert!(error.is_none(), "cut at {cut}: {error:?}");
        let whole = ends.iter().rev().find(|end| **end <= cut).copied().expect("the header");
        // The first block holds the names, the last one is the end block.
        let blocks = ends.iter().take_while(|end| **end <= cut).count() - 1;
        assert_eq!(read.len(), (blocks.saturating_sub(1) * 100).min(600), "cut at {cut}");
        assert!(read[..] == records[..read.len()]);
        let expected = if whole == cut { TraceEnd::Open } else { TraceEnd::Truncated { at: whole as u64 } };
        assert_eq!(stream.end(), expected, "cut at {cut}");
        // Only a truncated file has a note.
        let told = if cut == bytes.len() { 0 } else { 1 };
        assert_eq!(stream.info().notes.len(), told, "cut at {cut}: {:?}", stream.info().notes);
    }
}

#[test]
fn zeros_or_stale_bytes_at_the_end_are_truncation_and_damage_before_it_is_an_error() {
    let records = some(8, 300);
    let bytes = written(&records, 100);
    let ends = ends(&bytes);
    // A file system that lost pages leaves zeros,
    let mut zeros = bytes[..ends[3]].to_vec();
    zeros.resize(ends[3] + 9_000, 0);
    let mut stream = reader(&zeros);
    assert_eq!(all(&mut stream).0.len(), 200);
    assert_eq!(stream.end(), TraceEnd::Truncated { at: ends[3] as u64 });
    // or stale bytes in the last block.
    let mut last = bytes[..ends[4]].to_vec();
    let middle = ends[3] + BLOCK_HEADER_LEN + 5;
    last[middle] ^= 0x40;
    let mut stream = reader(&last);
    assert_eq!(all(&mut stream).0.len(), 200);
    assert_eq!(stream.end(), TraceEnd::Truncated { at: ends[3] as u64 });
    // Any flipped bit in an earlier block is damage.
    let mut dice = Dice::new(3);
    for _ in 0..300 {
        let mut damaged = bytes.clone();
        let at = ends[2] + dice.below((ends[3] - ends[2]) as u64) as usize;
        damaged[at] ^= 1 << dice.below(8);
        let (read, error) = all(reader(&damaged));
        assert!(read[..] == records[..100], "byte {at}");
        match error {
            Some(TraceError::Damaged { at, .. }) => assert_eq!(at, ends[2] as u64),
            // A length that was increased reaches beyond the end, like that of an incomplete block.
            None if (ends[2] + 12..ends[2] + 16).contains(&at) => {}
            other => panic!("byte {at}: {other:?}"),
        }
    }
}

#[test]
fn a_writer_continues_a_truncated_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("a.wtrace");
    let records = some(9, 500);
    let bytes = written(&records, 100);
    let ends = ends(&bytes);
    for cut in [0, ends[0], ends[1], ends[1] + 3, ends[3] - 1, ends[3], ends[4] + 30, bytes.len()] {
        std::fs::write(&path, &bytes[..cut]).expect("written");
        let whole = ends.iter().filter(|end| **end <= cut).count().saturating_sub(2).min(5) * 100;
        let mut writer = Writer::append(&path).expect("it goes on");
        assert_eq!(writer.records(), whole as u64, "cut at {cut}");
        let more = some(10, 250);
        write(&mut writer, &more, 1_000);
        writer.finish().expect("written");
        let mut stream = Reader::open(&path).expect("a trace");
        let (read, error) = all(&mut stream);
        assert!(error.is_none(), "cut at {cut}: {error:?}");
        assert!(read[..whole] == records[..whole] && read[whole..] == more[..], "cut at {cut}");
        assert_eq!((stream.end(), stream.names().files()), (TraceEnd::Finished, 4));
    }
    std::fs::write(&path, "something else entirely").expect("written");
    assert!(matches!(Writer::append(&path), Err(TraceError::Damaged { .. })));
    assert_eq!(std::fs::read(&path).expect("still there"), b"something else entirely");
}

#[test]
fn flushed_records_of_a_killed_program_are_readable() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("a.wtrace");
    let mut writer = Writer::create(&path).expect("made");
    let info = Info { source: Source::Weft, program: "app".into(), processes: 2, ..Info::default() };
    writer.info(&info).expect("written");
    write(&mut writer, &some(1, 150), 100);
    // The writer neither flushes nor finishes.
    std::mem::forget(writer);
    let mut stream = Reader::open(&path).expect("a trace");
    assert_eq!(all(&mut stream).0.len(), 100);
    assert_eq!((stream.end(), &*stream.info().program), (TraceEnd::Open, &*info.program));
    assert!(stream.info().notes[0].contains("no end mark"), "{:?}", stream.info().notes);
}

#[test]
fn a_regular_trace_is_small() {
    let mut writer = Writer::to(Path::new("test"), Vec::new()).expect("writing to memory");
    let file = writer.file("shared").expect("few");
    let mut record = some(1, 1)[0];
    record.file = file;
    record.host = weft_trace::HostId(0);
    record.op = weft_trace::Operation::Write;
    let mut dice = Dice::new(5);
    for index in 0..100_000u64 {
        record.rank = weft_trace::Rank((index % 32) as u32);
        record.offset.0 = index * 47_008;
        record.len.0 = 47_008;
        record.start.0 = index * 10_000 + dice.below(1_000);
        record.end.0 = record.start.0 + 200_000 + dice.below(20_000);
        writer.push(&record).expect("writing to memory");
    }
    let bytes = writer.finish().expect("writing to memory").len();
    println!("{} bytes per record", bytes as f64 / 1e5);
    assert!(bytes < 1_300_000, "{bytes} bytes for 100,000 records");
}

#[test]
fn other_files_and_versions_are_rejected() {
    for bytes in [&b""[..], b"WEFT", b"WEFTTRC\n\x02\0\0\0", &[0; 64]] {
        let opened = Reader::new(Path::new("test"), bytes.chain(&[][..]), 0);
        assert!(matches!(opened.err(), Some(TraceError::Damaged { at: 0, .. })));
    }
    let mut newer = weft_trace::wtrace::header();
    newer[8] = 2;
    let crc = crc32fast::hash(&newer[..12]);
    newer[12..].copy_from_slice(&crc.to_le_bytes());
    let error = Reader::new(Path::new("test"), &newer[..], 0).err().expect("refused").to_string();
    assert!(error.contains("version 2"), "{error}");
}
