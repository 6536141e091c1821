//! Prepared traces: order, barriers, files, opens and closes, compared with a model or by hand.

mod common;

use common::{Dice, all, data, options};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use weft_core::Nanos;
use weft_trace::csv::Reader;
use weft_trace::prepared::{Options, Prepared, Step, Timing, TraceWorkload};
use weft_trace::{Level, Operation, Record, open};
use weft_workload::{FileRef, Op, Workload};

fn prepared(csv: &str) -> Prepared {
    with(csv, &Options::default())
}

fn with(csv: &str, options: &Options) -> Prepared {
    let mut stream = Reader::new(Path::new("test"), csv.as_bytes(), 0).expect("a heading");
    Prepared::new(Path::new("test"), &mut stream, options, |_| {}).expect("sound")
}

fn steps(prepared: &Prepared, rank: u32, timing: Timing) -> Vec<Step> {
    let mut steps = prepared.steps(rank, timing);
    let all: Vec<Step> = steps.by_ref().collect();
    assert!(steps.error().is_none());
    all
}

fn ops(prepared: &Prepared, rank: u32) -> Vec<Op> {
    steps(prepared, rank, Timing::Fast).into_iter().map(|step| step.op).collect()
}

fn short(ops: &[Op]) -> String {
    let one = |op: &Op| match op {
        Op::Open { file, create } => format!("{}{}", if *create { "C" } else { "O" }, file.0),
        Op::Close { file } => format!("X{}", file.0),
        Op::Read { file, offset, len, .. } => format!("R{}:{offset}+{len}", file.0),
        Op::Write { file, offset, len, .. } => format!("W{}:{offset}+{len}", file.0),
        Op::Barrier => "B".into(),
        Op::Remove { file } => format!("D{}", file.0),
        Op::Stat { file } => format!("S{}", file.0),
        Op::SetLen { file, len } => format!("T{}:{len}", file.0),
        Op::Compute(time) => format!("P{}", time.get()),
        other => format!("{other:?}"),
    };
    ops.iter().map(one).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_barrier_separates_a_write_from_another_ranks_read() {
    let text = "op,rank,file,offset,length,start_ns,end_ns\n\
        write,0,a,0,10,0,10\n\
        write,1,a,10,10,5,30\n\
        read,0,a,10,10,40,50\n\
        read,1,a,0,10,45,60\n\
        read,1,b,0,7,100,110\n";
    let prepared = prepared(text);
    let barriers: Vec<_> =
        prepared.facts.barriers.iter().map(|barrier| (barrier.at.get(), barrier.idle_since.get())).collect();
    assert_eq!(barriers, [(40, 30)]);
    assert_eq!(short(&ops(&prepared, 0)), "C0 W0:0+10 B R0:10+10 X0");
    assert_eq!(short(&ops(&prepared, 1)), "C0 W0:10+10 B R0:0+10 O1 R1:0+7 X0 X1");
    assert_eq!(prepared.facts.files[0].input, None);
    assert_eq!(prepared.facts.files[1].input, Some(7));
    let pauses = steps(&prepared, 1, Timing::Speed(0.5)).into_iter().map(|step| step.op).collect::<Vec<_>>();
    assert_eq!(short(&pauses), "P10 C0 W0:10+10 B P30 R0:0+10 P80 O1 R1:0+7 X0 X1");
}

#[test]
fn without_an_idle_gap_there_is_no_barrier() {
    let text = "op,rank,file,offset,length,start_ns,end_ns\n\
        write,0,a,0,10,0,10\n\
        write,1,b,0,10,5,50\n\
        read,1,a,0,10,60,70\n\
        read,0,b,0,10,65,75\n";
    assert_eq!(prepared(text).facts.barriers.len(), 1);
    // Rank 1 has an operation in flight all the time.
    let text = text.replace("5,50", "5,62");
    assert!(prepared(&text).facts.barriers.is_empty());
    // A single rank's dependencies need no barrier.
    let text = text.replace(",1,", ",0,").replace("5,62", "5,50");
    assert!(prepared(&text).facts.barriers.is_empty());
    let never = Options { barriers: false, ..Options::default() };
    assert!(
        with("op,rank,file,length,start_ns,end_ns\nwrite,0,a,1,0,1\nread,1,a,1,5,6\n", &never)
            .facts
            .barriers
            .is_empty()
    );
}

#[test]
fn a_later_conflict_does_not_hide_an_earlier_one() {
    // Rank 1 wrote before the idle gap; rank 2 writes after it, while rank 0 reads.
    let text = "op,rank,file,offset,length,start_ns,end_ns\n\
        write,1,a,0,10,0,10\n\
        write,2,a,20,10,20,30\n\
        read,0,a,0,10,25,35\n";
    assert_eq!(prepared(text).facts.barriers.iter().map(|b| b.at.get()).collect::<Vec<_>>(), [20]);
}

#[test]
fn complete_explicit_barriers_are_kept_and_partial_ones_ignored() {
    let text = "op,rank,file,length,start_ns,end_ns\n\
        write,0,a,1,0,1\nbarrier,0,,,2,9\nread,0,b,1,10,11\n\
        write,1,b,1,0,8\nbarrier,1,,,8,9\nread,1,a,1,10,12\n";
    let prepared_all = prepared(text);
    assert!(prepared_all.facts.explicit_barriers && prepared_all.facts.barriers.is_empty());
    assert_eq!(short(&ops(&prepared_all, 0)), "C0 W0:0+1 B C1 R1:0+1 X0 X1");
    let some = text.replace("barrier,1,,,8,9\n", "");
    let prepared_some = prepared(&some);
    assert!(!prepared_some.facts.explicit_barriers);
    assert_eq!(prepared_some.facts.barriers.len(), 1, "one barrier is inferred");
    assert!(prepared_some.facts.notes.iter().any(|note| note.contains("do not cover all ranks")));
}

#[test]
fn files_used_before_they_are_created_exist_initially() {
    let text = "op,rank,file,offset,length,start_ns,end_ns\n\
        open,0,found,,,0,1\nread,0,found,100,50,2,3\nclose,0,found,,,4,5\n\
        create,0,made,,,6,7\nwrite,0,made,0,10,8,9\nread,0,made,0,30,10,11\nclose,0,made,,,12,13\n\
        stat,0,looked,,,14,15\nunlink,0,gone,,,16,17\n\
        write,0,cut,0,100,18,19\ntruncate,0,cut,40,,20,21\n";
    let prepared = prepared(text);
    let input: Vec<_> = prepared.facts.files.iter().map(|file| file.input).collect();
    // The program read 30 bytes of a file of which it had written 10.
    assert_eq!(input, [Some(150), Some(30), Some(0), Some(0), None]);
    assert_eq!(short(&ops(&prepared, 0)), "O0 R0:100+50 X0 C1 W1:0+10 R1:0+30 X1 S2 D3 C4 W4:0+100 T4:40 X4");
    let workload = TraceWorkload::new(&prepared, Timing::Fast);
    assert_eq!(workload.inputs().count(), 4);
    assert_eq!(workload.name(FileRef(0)), "000000-found");
    assert_eq!(workload.ops(0).count(), ops(&prepared, 0).len());
    workload.finish().expect("read to its end");
}

#[test]
fn operations_on_names_in_unknown_order_are_left_out() {
    let text = "op,rank,file,offset,length,start_ns,end_ns\n\
        mkdir,0,d,,,0,10\nmkdir,1,d,,,1,10\n\
        write,0,f,0,5,20,30\nunlink,1,f,,,25,35\n";
    let prepared = prepared(text);
    assert_eq!(prepared.facts.left_out, 3);
    assert_eq!(short(&ops(&prepared, 0)), "C1 W1:0+5 X1");
    assert!(prepared.facts.notes.iter().any(|note| note.starts_with("3 operations")));
    // With an idle gap between, the removal is replayed after it.
    let text = text.replace("25,35", "40,45");
    let ordered = prepared_of(&text);
    assert_eq!(ordered.facts.left_out, 2);
    assert_eq!(short(&ops(&ordered, 0)), "C1 W1:0+5 B X1");
    assert_eq!(short(&ops(&ordered, 1)), "B D1");
}

fn prepared_of(csv: &str) -> Prepared {
    prepared(csv)
}

#[test]
fn a_rank_keeps_a_bounded_number_of_files_open() {
    let mut text = String::from("op,rank,file,offset,length,start_ns,end_ns\n");
    for file in 0..200 {
        text += &format!("write,0,f{file},0,1,{file},{file}\n");
    }
    let prepared = prepared(&text);
    let (mut open, mut most) = (BTreeSet::new(), 0);
    for op in ops(&prepared, 0) {
        match op {
            Op::Open { file, .. } => assert!(open.insert(file)),
            Op::Close { file } => assert!(open.remove(&file)),
            Op::Write { file, .. } => assert!(open.contains(&file)),
            other => panic!("{other:?}"),
        }
        most = most.max(open.len());
    }
    assert!(open.is_empty());
    assert_eq!(most, 64);
}

#[test]
fn filters_select_levels_files_ranks_and_times() {
    let text = "op,rank,file,length,start_ns,end_ns,level\n\
        write,0,a,100,0,9,mpi-io\nwrite,0,a,60,1,4,posix\nwrite,0,a,40,5,8,posix\n\
        write,1,/tmp/b,7,3,4,posix\nwrite,2,a,7,90,95,posix\n";
    let count = |options: &Options| {
        let prepared = with(text, options);
        (prepared.records(), prepared.ranks(), prepared.facts.level)
    };
    let all = Options::default;
    assert_eq!(count(&all()), (4, 3, Level::Posix));
    assert_eq!(count(&Options { level: Some(Level::MpiIo), ..all() }), (1, 1, Level::MpiIo));
    assert_eq!(count(&Options { without: Some("/tmp".into()), ..all() }), (3, 2, Level::Posix));
    assert_eq!(count(&Options { only: Some("/tmp".into()), ..all() }), (1, 1, Level::Posix));
    assert_eq!(count(&Options { ranks: Some(2), ..all() }), (3, 2, Level::Posix));
    assert_eq!(count(&Options { until: Some(Nanos(5)), ..all() }), (2, 2, Level::Posix));
    let mut stream = Reader::new(Path::new("test"), text.as_bytes(), 0).expect("a heading");
    let none = Options { only: Some("nothing like it".into()), ..all() };
    let error = Prepared::new(Path::new("test"), &mut stream, &none, |_| {}).err().expect("nothing to do");
    assert!(error.to_string().contains("no operations to replay"), "{error}");
}

/// Start, position in the source, whether it is a write, file, offset, length.
type Expected = (u64, u64, bool, String, u64, u64);

/// For a random trace and any run length, each rank replays exactly its records in order.
#[test]
fn no_record_is_lost_or_reordered() {
    for seed in 0..30 {
        println!("seed {seed}");
        let mut dice = Dice::new(seed);
        let (ranks, files) = (1 + dice.below(9), 1 + dice.below(30));
        let mut text = String::from("op,rank,file,offset,length,start_ns,end_ns\n");
        let mut expected: BTreeMap<u64, Vec<Expected>> = BTreeMap::new();
        for index in 0..dice.below(3_000) + 1 {
            let (rank, file) = (dice.below(ranks), dice.below(files));
            let (start, len, offset) = (dice.below(500), dice.below(100), dice.below(1_000));
            let write = dice.below(2) == 0;
            let op = if write { "write" } else { "read" };
            text += &format!("{op},{rank},f{file},{offset},{len},{start},{}\n", start + dice.below(20));
            expected.entry(rank).or_default().push((start, index, write, format!("f{file}"), offset, len));
        }
        let options = Options { run_records: 1 + dice.below(700) as usize, ..Options::default() };
        let prepared = with(&text, &options);
        assert_eq!(prepared.ranks() as usize, expected.len());
        let mut barriers = BTreeSet::new();
        for (place, (_, mut wanted)) in expected.into_iter().enumerate() {
            wanted.sort();
            let ops = ops(&prepared, place as u32);
            barriers.insert(ops.iter().filter(|op| matches!(op, Op::Barrier)).count());
            let name = |file: FileRef| prepared.facts.files[file.0 as usize].name.clone();
            let moved: Vec<_> = ops
                .iter()
                .filter_map(|op| match op {
                    Op::Read { file, offset, len, .. } => Some((false, name(*file), *offset, *len)),
                    Op::Write { file, offset, len, .. } => Some((true, name(*file), *offset, *len)),
                    _ => None,
                })
                .collect();
            let wanted: Vec<_> =
                wanted.into_iter().map(|(_, _, write, file, at, len)| (write, file, at, len)).collect();
            assert!(moved == wanted, "rank {place}");
        }
        assert_eq!(barriers.len(), 1, "all ranks pass the same barriers");
    }
}

#[test]
fn a_real_trace_has_a_barrier_between_its_writes_and_reads() {
    if common::without_darshan() {
        return;
    }
    let path = data("mpi-io-test-32ranks-dxt.darshan");
    let mut stream = open(&path, &options()).expect("a log");
    let prepared = Prepared::new(&path, &mut *stream, &Options::default(), |_| {}).expect("sound");
    assert_eq!((prepared.ranks(), prepared.records(), prepared.facts.barriers.len()), (32, 320, 1));
    let again = Prepared::open(prepared.dir()).expect("the same");
    for rank in 0..32 {
        let ops = ops(&again, rank);
        let barrier = ops.iter().position(|op| *op == Op::Barrier).expect("one");
        let big = |op: &&Op| matches!(op, Op::Write { len, .. } if *len == 16 << 20);
        assert_eq!(ops[..barrier].iter().filter(big).count(), 4);
        assert_eq!(ops[barrier..].iter().filter(|op| matches!(op, Op::Read { .. })).count(), 4);
    }
    let mut stream = open(&path, &options()).expect("a log");
    let (records, _) = all(&mut *stream);
    let bytes = |op: Operation| -> u64 {
        let of = |r: &&Record| r.level == Level::Posix && r.op == op;
        records.iter().filter(of).map(|r| r.len.get()).sum()
    };
    assert_eq!(prepared.facts.traced[&Operation::Write].bytes, bytes(Operation::Write));
    assert_eq!(prepared.facts.traced[&Operation::Read].bytes, bytes(Operation::Read));
}
