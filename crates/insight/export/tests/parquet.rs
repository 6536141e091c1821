//! Exported Parquet files are read back with the library's reader.

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use std::path::Path;
use weft_core::{ByteLen, FileOffset, Nanos};
use weft_export::parquet::{INFO_KEY, ROWS_PER_GROUP, Writer};
use weft_trace::{Info, Level, Names, Operation, Rank, Record};

/// A pseudorandom generator without a dependency.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.0) * u128::from(end)) >> 64) as u64
    }
}

fn records(count: usize, seed: u64) -> (Vec<Record>, Names) {
    let mut numbers = Numbers(seed);
    let mut names = Names::default();
    let files: Vec<_> =
        (0..7).map(|n| names.file(&format!("/weft/ü {n}, \"{n}\"")).expect("room for names")).collect();
    let hosts = ["", "n1", "n2"].map(|name| names.host(name).expect("room for names"));
    let records = (0..count)
        .map(|_| {
            let op = Operation::ALL[numbers.below(Operation::ALL.len() as u64) as usize];
            let start = numbers.below(u64::MAX);
            Record {
                rank: Rank(numbers.below(1 << 32) as u32),
                host: hosts[numbers.below(3) as usize],
                file: files[numbers.below(7) as usize],
                op,
                level: if numbers.below(2) == 0 { Level::Posix } else { Level::MpiIo },
                collective: numbers.below(2) == 0,
                // Includes values beyond the range of a signed number.
                offset: FileOffset(numbers.below(u64::MAX)),
                len: ByteLen(numbers.below(1 << 20)),
                start: Nanos(start),
                end: Nanos(start + numbers.below(u64::MAX - start)),
            }
        })
        .collect();
    (records, names)
}

fn text(field: Option<&str>) -> Field {
    field.map_or(Field::Null, |text| Field::Str(text.to_owned()))
}

/// Reads the file back and compares every cell with its record.
fn assert_round_trip(records: &[Record], names: &Names) {
    let info = Info { program: "a \"program\"".into(), processes: 5, ..Info::default() };
    let mut writer = Writer::new(Path::new("in memory"), Vec::new()).expect("memory takes it");
    for record in records {
        writer.push(record, names).expect("memory takes it");
    }
    let bytes = writer.finish(&info).expect("memory takes it");
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("a.parquet");
    std::fs::write(&path, bytes).expect("written");
    let reader =
        SerializedFileReader::new(std::fs::File::open(&path).expect("it is there")).expect("Parquet");
    let meta = reader.metadata().file_metadata();
    assert_eq!(meta.num_rows(), records.len() as i64);
    assert_eq!(reader.num_row_groups(), records.len().div_ceil(ROWS_PER_GROUP));
    let keys = meta.key_value_metadata().expect("it has keys");
    let kept = keys.iter().find(|key| key.key == INFO_KEY).and_then(|key| key.value.as_deref());
    let kept: Info = serde_json::from_str(kept.expect("what is known of the program")).expect("JSON");
    assert_eq!(kept, info);
    let mut count = 0;
    for (row, record) in reader.get_row_iter(None).expect("rows").zip(records) {
        let row = row.expect("a row");
        let host = names.host_name(record.host).filter(|name| !name.is_empty());
        let file = names.file_name(record.file).filter(|_| record.op.has_file());
        let expected = [
            ("rank", Field::UInt(record.rank.0)),
            ("host", text(host)),
            ("level", text(Some(record.level.name()))),
            ("operation", text(Some(record.op.name()))),
            ("collective", Field::Bool(record.collective)),
            ("file", text(file)),
            ("offset", Field::ULong(record.offset.get())),
            ("length", Field::ULong(record.len.get())),
            ("start_ns", Field::ULong(record.start.get())),
            ("end_ns", Field::ULong(record.end.get())),
        ];
        for ((name, field), (expected_name, expected)) in row.get_column_iter().zip(&expected) {
            assert_eq!((name.as_str(), field), (*expected_name, expected), "row {count}");
        }
        assert_eq!(row.len(), expected.len());
        count += 1;
    }
    assert_eq!(count, records.len());
}

#[test]
fn rows_survive_a_round_trip() {
    let seed = std::process::id().into();
    println!("seed {seed}");
    let (records, names) = records(3000, seed);
    assert_round_trip(&records, &names);
    assert_round_trip(&records[..1], &names);
    assert_round_trip(&[], &names);
}

#[test]
fn row_groups_are_bounded() {
    let (records, names) = records(ROWS_PER_GROUP + 1, 1);
    assert_round_trip(&records, &names);
    assert_round_trip(&records[..ROWS_PER_GROUP], &names);
}
