//! Golden bytes of the `.wtrace` format: a change of the format is a decision, not an accident.

use std::path::Path;
use weft_core::{ByteLen, FileOffset, Nanos};
use weft_trace::wtrace::{Reader, Writer};
use weft_trace::{HostId, Level, Operation, Rank, Record};

const GOLDEN: &str = include_str!("data/golden.wtrace.hex");

fn records(writer: &mut Writer<Vec<u8>>) -> Vec<Record> {
    let file = writer.file("/data/shared").expect("few");
    let host = writer.host("node7").expect("few");
    let first = Record {
        rank: Rank(0),
        host: HostId(0),
        file,
        op: Operation::Create,
        level: Level::Posix,
        collective: false,
        offset: FileOffset(0),
        len: ByteLen(0),
        start: Nanos(1_000),
        end: Nanos(1_500),
    };
    let write = Record {
        op: Operation::Write,
        len: ByteLen(47_008),
        start: Nanos(2_000),
        end: Nanos(9_000),
        ..first
    };
    let next = Record { offset: FileOffset(47_008), start: Nanos(9_100), end: Nanos(16_000), ..write };
    let other =
        Record { rank: Rank(3), host, level: Level::MpiIo, collective: true, start: Nanos(1_800), ..write };
    vec![first, write, next, other]
}

#[test]
fn encoding_matches_the_golden_bytes() {
    let mut writer = Writer::to(Path::new("golden"), Vec::new()).expect("writing to memory");
    let records = records(&mut writer);
    for record in &records {
        writer.push(record).expect("writing to memory");
    }
    let bytes = writer.finish().expect("writing to memory");
    let hex: Vec<String> =
        bytes.chunks(16).map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
    assert_eq!(hex.join("\n") + "\n", GOLDEN);
    let mut reader = Reader::new(Path::new("golden"), &bytes[..], 0).expect("a trace");
    assert_eq!(reader.by_ref().map(|record| record.expect("sound")).collect::<Vec<_>>(), records);
}
