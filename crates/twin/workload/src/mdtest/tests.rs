//! Tests of mdtest's operations, computed by hand and recorded from the real program.

use super::*;
use crate::testing::well_formed;

#[test]
fn shared_directory_by_hand() {
    let run = Mdtest { ranks: 2, files: 2, ..Mdtest::default() }.build().unwrap();
    // Files 0 and 1 belong to rank 0, 2 and 3 to rank 1. Rank 1 inspects those of rank (1 + 1) mod 2 = 0 and removes
    // those of rank (1 + 3) mod 2 = 0.
    let file = FileRef;
    let expected = [
        Op::Phase(0),
        Op::Create { file: file(2) },
        Op::Create { file: file(3) },
        Op::Barrier,
        Op::Phase(2),
        Op::Stat { file: file(0) },
        Op::Stat { file: file(1) },
        Op::Barrier,
        Op::Phase(5),
        Op::Remove { file: file(0) },
        Op::Remove { file: file(1) },
        Op::Barrier,
    ];
    assert_eq!(run.ops(1).collect::<Vec<_>>(), expected);
    assert_eq!(run.name(file(3)), "file.mdtest.1.1");
    assert_eq!([0, 2, 5].map(|phase| run.phase(phase)), ["create", "stat", "remove"]);
    well_formed(&run);
}

#[test]
fn unique_directories_are_created_first() {
    let run = Mdtest {
        ranks: 3,
        files: 1,
        unique_dirs: true,
        write: Size(3901),
        read: Size(3901),
        phases: vec![MdPhase::Create, MdPhase::Read, MdPhase::Remove],
        ..Mdtest::default()
    }
    .build()
    .unwrap();
    // Directories are files 0 to 2, and the one file of rank i is file 3 + i. Rank 2 reads that of rank
    // (2 + 2) mod 3 = 1 and removes that of rank (2 + 3) mod 3 = 2.
    let (own, other) = (FileRef(5), FileRef(4));
    let (offset, len, collective) = (0, 3901, false);
    let expected = [
        Op::Phase(SETUP),
        Op::Mkdir { file: FileRef(2) },
        Op::Barrier,
        Op::Phase(0),
        Op::Open { file: own, create: true },
        Op::Write { file: own, offset, len, collective },
        Op::Close { file: own },
        Op::Barrier,
        Op::Phase(3),
        Op::Open { file: other, create: false },
        Op::Read { file: other, offset, len, collective },
        Op::Close { file: other },
        Op::Barrier,
        Op::Phase(5),
        Op::Remove { file: own },
        Op::Barrier,
        Op::Phase(CLEANUP),
        Op::Rmdir { file: FileRef(2) },
        Op::Barrier,
    ];
    assert_eq!(run.ops(2).collect::<Vec<_>>(), expected);
    assert_eq!([2, 5].map(|n| run.name(FileRef(n))), ["mdtest_tree.2.0", "mdtest_tree.0.0/file.mdtest.2.0"]);
    well_formed(&run);
}

/// Returns the operations of a rank as text with file names.
fn described(run: &MdtestRun, rank: u32) -> Vec<String> {
    let one = |op| match op {
        Op::Mkdir { file } => Some(("mkdir", file)),
        Op::Rmdir { file } => Some(("rmdir", file)),
        Op::Create { file } | Op::Open { file, create: true } => Some(("create", file)),
        Op::Open { file, create: false } => Some(("open", file)),
        Op::Stat { file } => Some(("stat", file)),
        Op::Remove { file } => Some(("remove", file)),
        _ => None,
    };
    run.ops(rank).filter_map(one).map(|(what, file)| format!("{what} {}", run.name(file))).collect()
}

#[test]
fn strides_match_mdtest() {
    // mdtest 4.1.0+dev, 5 ranks, one per node: mdtest -n 1 -F -N 1, rank 1 (strace).
    let phases = vec![MdPhase::Create, MdPhase::Stat, MdPhase::Read, MdPhase::Remove];
    let spec = Mdtest { ranks: 5, files: 1, phases, read: Size(1), write: Size(1), ..Mdtest::default() };
    let names = |of: [u32; 4]| {
        let [create, stat, read, remove] = of.map(|rank| format!("file.mdtest.{rank}.0"));
        [
            format!("create {create}"),
            format!("stat {stat}"),
            format!("open {read}"),
            format!("remove {remove}"),
        ]
    };
    assert_eq!(described(&spec.build().unwrap(), 1), names([1, 2, 3, 4]));
    // mdtest -n 2 -F -u -N 1 -w 100 -e 100, 3 ranks, rank 1: each rank creates a directory, and its files in another.
    let spec = Mdtest { ranks: 3, files: 2, unique_dirs: true, ..spec };
    let expected = [
        "mkdir mdtest_tree.1.0",
        "create mdtest_tree.2.0/file.mdtest.1.0",
        "create mdtest_tree.2.0/file.mdtest.1.1",
        "stat mdtest_tree.0.0/file.mdtest.2.0",
        "stat mdtest_tree.0.0/file.mdtest.2.1",
        "open mdtest_tree.1.0/file.mdtest.0.0",
        "open mdtest_tree.1.0/file.mdtest.0.1",
        "remove mdtest_tree.2.0/file.mdtest.1.0",
        "remove mdtest_tree.2.0/file.mdtest.1.1",
        "rmdir mdtest_tree.1.0",
    ];
    assert_eq!(described(&spec.build().unwrap(), 1), expected);
}

#[test]
fn trees_match_mdtest() {
    // mdtest 4.1.0+dev, 2 ranks: mdtest -n 8 -F -z 1 -b 2 (strace). 8 files in 3 directories are 2 in each; rank 0
    // creates the tree.
    let phases = vec![MdPhase::Create, MdPhase::Remove];
    let spec = Mdtest { ranks: 2, files: 8, depth: 1, branch: 2, stride: 0, phases, ..Mdtest::default() };
    let run = spec.build().unwrap();
    let files = [
        "mdtest_tree.0/file.mdtest.1.0",
        "mdtest_tree.0/file.mdtest.1.1",
        "mdtest_tree.0/mdtest_tree.1/file.mdtest.1.2",
        "mdtest_tree.0/mdtest_tree.1/file.mdtest.1.3",
        "mdtest_tree.0/mdtest_tree.2/file.mdtest.1.4",
        "mdtest_tree.0/mdtest_tree.2/file.mdtest.1.5",
    ];
    let expected = ["create", "remove"].map(|what| files.map(|file| format!("{what} {file}"))).concat();
    assert_eq!(described(&run, 1), expected);
    let rank0 = described(&run, 0);
    let (tree, a, b) = ("mdtest_tree.0", "mdtest_tree.0/mdtest_tree.1", "mdtest_tree.0/mdtest_tree.2");
    assert_eq!(rank0[..3], [tree, a, b].map(|dir| format!("mkdir {dir}")));
    assert_eq!(rank0[rank0.len() - 3..], [a, b, tree].map(|dir| format!("rmdir {dir}")));
    well_formed(&run);
    // mdtest -n 16 -F -z 2 -b 3 -u: one file in each of 13 directories, created in pre-order, inspected by number.
    let phases = vec![MdPhase::Create, MdPhase::Stat];
    let run = Mdtest { files: 16, depth: 2, branch: 3, unique_dirs: true, phases, ..spec }.build().unwrap();
    let number = |line: &String| line.rsplit('.').next().unwrap().parse::<u64>().unwrap();
    let numbers: Vec<u64> = described(&run, 1)[13..].iter().map(number).collect();
    assert_eq!(numbers[..13], [0, 1, 4, 5, 6, 2, 7, 8, 9, 3, 10, 11, 12]);
    assert!(numbers[13..].iter().copied().eq(0..13));
    assert_eq!(
        described(&run, 1)[15],
        "create mdtest_tree.1.0/mdtest_tree.1.1/mdtest_tree.1.4/file.mdtest.1.4"
    );
}

#[test]
fn files_exist_initially_if_no_phase_creates_them() {
    let phases = vec![MdPhase::Open, MdPhase::Resize];
    let run = Mdtest { ranks: 2, files: 3, phases, ..Mdtest::default() }.build().unwrap();
    assert_eq!(run.inputs().count(), 6);
    well_formed(&run);
}

#[test]
fn invalid_descriptions_are_rejected() {
    let refused = |spec: Mdtest| spec.build().expect_err("an invalid description").parameter;
    assert_eq!(refused(Mdtest { files: 0, ..Mdtest::default() }), "files");
    assert_eq!(refused(Mdtest { files: 1 << 40, ..Mdtest::default() }), "files");
    assert_eq!(refused(Mdtest { files: 12, depth: 2, branch: 3, ..Mdtest::default() }), "files");
    assert_eq!(refused(Mdtest { depth: 64, branch: 2, ..Mdtest::default() }), "depth");
    assert_eq!(refused(Mdtest { branch: 0, ..Mdtest::default() }), "branch");
    assert_eq!(refused(Mdtest { phases: vec![], ..Mdtest::default() }), "phases");
    let twice = vec![MdPhase::Create, MdPhase::Stat, MdPhase::Stat];
    assert_eq!(refused(Mdtest { phases: twice, ..Mdtest::default() }), "phases");
    let after = vec![MdPhase::Create, MdPhase::Remove, MdPhase::Stat];
    assert_eq!(refused(Mdtest { phases: after, ..Mdtest::default() }), "phases");
    let reads = vec![MdPhase::Create, MdPhase::Read];
    assert_eq!(refused(Mdtest { phases: reads, read: Size(1), ..Mdtest::default() }), "read");
}
