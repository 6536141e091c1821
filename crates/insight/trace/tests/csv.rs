//! CSV traces: round trips, columns in any order, units, and errors that name the line.

mod common;

use common::{Dice, all, any_record, names};
use std::path::Path;
use weft_trace::csv::{HEADING, Reader, Writer};
use weft_trace::{Level, Names, OFFSET_MAX, Operation, Rank, Record, RecordStream, TraceError};

fn read(text: &str) -> (Vec<Record>, Option<TraceError>) {
    match Reader::new(Path::new("test"), text.as_bytes(), 0) {
        Ok(reader) => all(reader),
        Err(error) => (Vec::new(), Some(error)),
    }
}

fn wrong(text: &str) -> String {
    read(text).1.expect("refused").to_string()
}

#[test]
fn random_records_round_trip() {
    for seed in 0..5 {
        println!("seed {seed}");
        let mut dice = Dice::new(seed);
        let names = names(6);
        let mut records: Vec<Record> = (0..3_000).map(|_| any_record(&mut dice, 6, 6)).collect();
        for record in &mut records {
            record.offset.0 &= OFFSET_MAX;
            record.len.0 &= OFFSET_MAX;
        }
        let mut writer = Writer::new(Path::new("test"), Vec::new()).expect("writing to memory");
        for record in &records {
            writer.push(record, &names).expect("writing to memory");
        }
        let bytes = writer.finish().expect("writing to memory");
        let mut reader = Reader::new(Path::new("test"), &bytes[..], 0).expect("a heading");
        for record in &records {
            let read = reader.next().expect("as many").expect("sound");
            let there = reader.names();
            if record.op.has_file() {
                assert_eq!(there.file_name(read.file), names.file_name(record.file));
            }
            assert_eq!(there.host_name(read.host), names.host_name(record.host));
            assert_eq!(Record { file: record.file, host: record.host, ..read }, *record);
        }
        assert!(reader.next().is_none());
    }
}

#[test]
fn names_of_any_bytes_round_trip() {
    let names: [&[u8]; 9] = [
        b" /a b ",
        b"\t/a\xc2\xa0",
        b" ",
        b"-",
        b"/caf\xe9 \xff",
        b"/a\\x20",
        b"/a\\ ",
        b"/\"a,\nb\r\"",
        "/\u{2003}\u{10ffff}\u{2003}".as_bytes(),
    ];
    let mut table = Names::default();
    let numbers = names.map(|name| table.file(&weft_core::escaped(name)).expect("room"));
    let mut writer = Writer::new(Path::new("test"), Vec::new()).expect("writing to memory");
    for number in numbers {
        let record = Record { file: number, op: Operation::Open, ..any_record(&mut Dice::new(1), 1, 1) };
        writer.push(&record, &table).expect("writing to memory");
    }
    let bytes = writer.finish().expect("writing to memory");
    let mut reader = Reader::new(Path::new("test"), &bytes[..], 0).expect("a heading");
    reader.by_ref().for_each(|record| assert!(record.is_ok(), "{record:?}"));
    let read: Vec<&str> = reader.names().all_files().collect();
    assert_eq!(read, table.all_files().collect::<Vec<_>>());
    assert!(names.iter().zip(read).all(|(name, read)| *weft_core::unescaped(read) == **name));

    // Programs print raw bytes; the following lines are still text.
    let lines = b"op,file\nread,/caf\xe9\nread,/caf\\xe9\nread,/b\\x5cxe9\xff\nread,/c\n";
    let mut reader = Reader::new(Path::new("test"), &lines[..], 0).expect("a heading");
    reader.by_ref().for_each(|record| assert!(record.is_ok(), "{record:?}"));
    assert_eq!(reader.names().all_files().collect::<Vec<_>>(), ["/caf\\xe9", "/b\\x5cxe9\\xff", "/c"]);
    // Blanks around a name are trimmed, and equal names written differently are one file.
    let text = "op,file\nread, /a \nread,\\x2fa\nread,/b\\xE9\n";
    let mut reader = Reader::new(Path::new("test"), text.as_bytes(), 0).expect("a heading");
    reader.by_ref().for_each(|record| assert!(record.is_ok(), "{record:?}"));
    assert_eq!(reader.names().all_files().collect::<Vec<_>>(), ["/a", "/b\\xe9"]);
}

#[test]
fn columns_in_any_order_with_units() {
    let text = "\u{feff}Duration_us, LENGTH ,color,path,op,begin_ms,process,module,collective\r\n\
                # a comment, of whatever\r\n\
                1.5,64 KiB,red,/a,pwrite,2.000001,3,X_MPIIO,Yes\r\n\
                \r\n\
                ,-,,/b,OPEN,,,,\r\n";
    let (records, error) = read(text);
    assert!(error.is_none(), "{error:?}");
    let first = records[0];
    assert_eq!((first.rank, first.op, first.level), (Rank(3), Operation::Write, Level::MpiIo));
    assert_eq!((first.len.0, first.offset.0, first.collective), (65_536, 0, true));
    assert_eq!((first.start.0, first.end.0), (2_000_001, 2_001_501));
    assert_eq!((records[1].op, records[1].rank, records[1].end.0), (Operation::Open, Rank(0), 0));
    assert_eq!(records.len(), 2);
    // Comments may precede the heading and may look like one. Line numbers count them.
    for text in ["# by hand\n\n# of a run\nop,file\nread,/a\n", "#op,file\nread,/a\n"] {
        assert_eq!(read(text).0.len(), 1, "{text:?}");
    }
    let (_, error) = read("# by hand\n\nop,file,offset\nread,/a,x\n");
    assert!(error.as_ref().is_some_and(|error| error.to_string().contains("line 4")), "{error:?}");
}

#[test]
fn times_are_exact_and_may_be_in_scientific_notation() {
    let (records, _) =
        read("op,file,start,end\nread,a,1234567890.123456789,1.234567891e9\nread,a,1e-9,0.000000002\n");
    assert_eq!(records[0].start.0, 1_234_567_890_123_456_789);
    assert_eq!((records[1].start.0, records[1].end.0), (1, 2));
}

#[test]
fn errors_name_the_line_and_the_reason() {
    let line = |line: &str| wrong(&format!("{HEADING}\n0,,posix,read,no,/a,0,1,0,1\n{line}\n"));
    for (text, what) in [
        ("0,,posix,frobnicate,no,/a,0,1,0,1", "line 3: `frobnicate` is not a valid operation"),
        ("x,,posix,read,no,/a,0,1,0,1", "line 3: `x` is not a valid rank"),
        ("0,,posix,read,no,,0,1,0,1", "line 3: no file"),
        ("0,,posix,read,no,/a,-5,1,0,1", "line 3: `-5` is not a valid offset"),
        ("0,,posix,read,no,/a,0,1 parsec,0,1", "line 3: `1 parsec` is not a valid length"),
        ("0,,posix,read,no,/a,18446744073709551615,1,0,1", "exceeds the largest file offset"),
        ("0,,posix,write,no,/a,0,9223372036854775808,0,1", "exceeds the largest file offset"),
        ("0,,posix,truncate,no,/a,9223372036854775808,0,0,1", "exceeds the largest file offset"),
        ("0,,posix,read,no,/a,0,1,5,4", "ends before it starts"),
        ("0,,posix,read,perhaps,/a,0,1,0,1", "`perhaps` is not a valid value of `collective`"),
        ("0,,hdf5,read,no,/a,0,1,0,1", "`hdf5` is not a valid level"),
    ] {
        let error = line(text);
        assert!(error.contains(what), "{text}: {error}");
    }
    assert!(wrong("rank,offset\n1,2\n").contains("no column `operation`"));
    assert!(wrong("op,file,end,duration\n").contains("`end` and `duration`"));
    assert!(wrong("op,file,len,size\n").contains("`size` repeats"));
    assert!(wrong("op,file,start_ns,start_ms\n").contains("`start_ms` repeats"));
}

#[test]
fn an_endless_line_does_not_fill_memory() {
    let endless = std::io::Read::chain("op,file\nread,".as_bytes(), std::io::repeat(b'x'));
    let (records, error) = all(Reader::new(Path::new("test"), endless, 0).expect("a heading"));
    assert!(records.is_empty());
    assert!(error.expect("refused").to_string().contains("longer than 65536 bytes"));
}
