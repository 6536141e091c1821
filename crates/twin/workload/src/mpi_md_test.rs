//! mpi-md-test of OrangeFS: files created, opened, resized and removed by collective calls.

use crate::error::{Check, SpecError};
use crate::op::{FileRef, Op, Workload};
use crate::passes::Ops;
use serde::{Deserialize, Serialize};
use weft_core::random::splitmix64;

const CHECK: Check = Check("mpi-md-test");
/// The file that is resized. The other files follow it.
const RESIZED: FileRef = FileRef(0);

/// mpi-md-test: metadata operations by collective calls in one directory.
///
/// | phase | operation |
/// | --- | --- |
/// | `create` | all ranks together open `files` files one after another, which creates them |
/// | `open` | the same call on existing files |
/// | `resize` | one file is set to `files` different lengths |
/// | `delete` | each rank removes a contiguous share of the files |
///
/// Serves tables 4.1 to 4.8 and figures 4.1 to 4.4 of the thesis.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MpiMdTest {
    /// Number of ranks; one per client in the thesis.
    pub ranks: u32,
    /// Number of files, and of lengths in the phase `resize` (`-n`); 25,000 to 200,000 in the thesis.
    pub files: u64,
    /// Phases, in this order. Without `create`, the files exist before.
    pub phases: Vec<MpiMdPhase>,
    /// Ranks that access the file system in a collective call.
    pub mode: MpiMdMode,
    /// Seed of the lengths in the phase `resize`, which are 0 to 2^31 - 1.
    pub seed: u64,
}

/// A phase of mpi-md-test.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MpiMdPhase {
    /// `MPI_File_open` of new files, and `MPI_File_close`.
    Create,
    /// `MPI_File_open` of existing files, and `MPI_File_close`.
    Open,
    /// `MPI_File_set_size` of one file.
    Resize,
    /// `MPI_File_delete`, divided between the ranks.
    Delete,
}

/// Ranks that access the file system in a collective call.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MpiMdMode {
    /// Only rank 0, which tells the others the file's handle: ROMIO on PVFS2 and OrangeFS.
    #[default]
    OneOpens,
    /// Rank 0 creates and closes the file, then all ranks open it: ROMIO on POSIX file systems.
    AllOpen,
    /// No collective calls: each rank opens each file once by itself (`-i`). Real ROMIO on POSIX file systems also
    /// creates and closes a file before it opens it in this mode.
    Independent,
}

impl Default for MpiMdTest {
    fn default() -> Self {
        use MpiMdPhase::{Create, Delete, Open, Resize};
        Self {
            ranks: 4,
            files: 1000,
            phases: vec![Create, Open, Resize, Delete],
            mode: MpiMdMode::OneOpens,
            seed: 1,
        }
    }
}

impl MpiMdPhase {
    const ALL: [Self; 4] = [Self::Create, Self::Open, Self::Resize, Self::Delete];

    fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Open => "open",
            Self::Resize => "resize",
            Self::Delete => "delete",
        }
    }
}

/// Phases in which the resized file is created and removed, outside of the measured phases.
const SETUP: u16 = 100;
const CLEANUP: u16 = 101;

impl MpiMdTest {
    pub(crate) fn build(&self) -> Result<MpiMdTestRun, SpecError> {
        CHECK.positive("ranks", u64::from(self.ranks))?;
        CHECK.positive("files", self.files)?;
        CHECK.files("files", self.files.saturating_add(1))?;
        if self.phases.is_empty() {
            return CHECK.fail("phases", "the list is empty: name at least one");
        }
        for (index, phase) in self.phases.iter().enumerate() {
            if self.phases[..index].contains(phase) {
                return CHECK.fail("phases", format!("{:?} occurs twice", phase.name()));
            }
            let opens = matches!(phase, MpiMdPhase::Open | MpiMdPhase::Create);
            if opens && self.phases[..index].contains(&MpiMdPhase::Delete) {
                return CHECK.fail("phases", format!("{:?} must not come after delete", phase.name()));
            }
            if *phase == MpiMdPhase::Create && self.phases[..index].contains(&MpiMdPhase::Open) {
                return CHECK
                    .fail("phases", "\"create\" must not come after open, which needs existing files");
            }
        }
        Ok(MpiMdTestRun { spec: self.clone() })
    }
}

/// A validated description.
#[derive(Debug)]
pub(crate) struct MpiMdTestRun {
    spec: MpiMdTest,
}

impl MpiMdTestRun {
    fn file(index: u64) -> FileRef {
        FileRef(1 + index as u32)
    }

    /// Generates the operations of `rank` in a collective open and close of one file.
    ///
    /// As in the program, files are always opened for writing with `O_CREAT`; only the first open in the phase `create`
    /// creates the file.
    fn open_close(&self, rank: u32, file: FileRef) -> impl Iterator<Item = Op> + use<> {
        let open = Some(Op::Open { file, create: true });
        let close = Some(Op::Close { file });
        let barrier = Some(Op::Barrier);
        let ops = match (self.spec.mode, rank) {
            (MpiMdMode::Independent, _) => [None, None, open, None, close, None],
            (MpiMdMode::OneOpens, 0) => [None, None, open, barrier, close, None],
            (MpiMdMode::OneOpens, _) => [None, None, None, barrier, None, None],
            (MpiMdMode::AllOpen, 0) => [open, close, barrier, open, close, barrier],
            (MpiMdMode::AllOpen, _) => [None, None, barrier, open, close, barrier],
        };
        ops.into_iter().flatten()
    }

    fn phase_ops(&self, phase: MpiMdPhase, rank: u32) -> Ops<'_> {
        let begin = std::iter::once(Op::Phase(phase as u16));
        let files = self.spec.files;
        match phase {
            MpiMdPhase::Create | MpiMdPhase::Open => {
                let each = move |index| self.open_close(rank, Self::file(index));
                Box::new(begin.chain((0..files).flat_map(each)).chain([Op::Barrier]))
            }
            MpiMdPhase::Resize => Box::new(self.resize(rank)),
            MpiMdPhase::Delete => {
                // If the files cannot be divided evenly, the first ranks have one more.
                let (ranks, rank) = (u64::from(self.spec.ranks), u64::from(rank));
                let first = |rank: u64| rank * (files / ranks) + rank.min(files % ranks);
                let each = |index| Op::Remove { file: Self::file(index) };
                Box::new(begin.chain((first(rank)..first(rank + 1)).map(each)).chain([Op::Barrier]))
            }
        }
    }

    fn resize(&self, rank: u32) -> impl Iterator<Item = Op> + Send + '_ {
        let independent = self.spec.mode == MpiMdMode::Independent;
        let calls = rank == 0 || independent;
        let opens = calls || self.spec.mode == MpiMdMode::AllOpen;
        let one = |op: Op, when: bool| when.then_some(op).into_iter();
        let open = Op::Open { file: RESIZED, create: true };
        let lengths = (0..self.spec.files).flat_map(move |index| {
            let len = splitmix64(self.spec.seed ^ splitmix64(index)) >> 33;
            let cut = calls.then_some(Op::SetLen { file: RESIZED, len });
            [cut, (!independent).then_some(Op::Barrier)].into_iter().flatten()
        });
        [Op::Phase(SETUP)]
            .into_iter()
            .chain(one(open, rank == 0))
            .chain([Op::Barrier])
            .chain(one(open, opens && rank != 0))
            .chain([Op::Barrier, Op::Phase(MpiMdPhase::Resize as u16)])
            .chain(lengths)
            .chain([Op::Barrier, Op::Phase(CLEANUP)])
            .chain(one(Op::Close { file: RESIZED }, opens))
            .chain([Op::Barrier])
            .chain(one(Op::Remove { file: RESIZED }, rank == 0))
            .chain([Op::Barrier])
    }
}

impl Workload for MpiMdTestRun {
    fn ranks(&self) -> u32 {
        self.spec.ranks
    }

    fn name(&self, file: FileRef) -> String {
        match file {
            RESIZED => "testfile".to_owned(),
            FileRef(number) => format!("testfile.{}", number - 1),
        }
    }

    fn phase(&self, phase: u16) -> String {
        match phase {
            SETUP => "setup",
            CLEANUP => "cleanup",
            phase => MpiMdPhase::ALL.get(usize::from(phase)).map_or("unknown", |phase| phase.name()),
        }
        .to_owned()
    }

    fn inputs(&self) -> Box<dyn Iterator<Item = (FileRef, u64)> + Send + '_> {
        let needed = self.spec.phases.iter().find(|&&phase| phase != MpiMdPhase::Resize);
        let existing = needed.is_some_and(|&phase| phase != MpiMdPhase::Create);
        let files = if existing { self.spec.files } else { 0 };
        Box::new((0..files).map(|index| (Self::file(index), 0)))
    }

    fn ops(&self, rank: u32) -> Ops<'_> {
        Box::new(self.spec.phases.iter().flat_map(move |&phase| self.phase_ops(phase, rank)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::well_formed;

    fn run(ranks: u32, files: u64, phases: &[MpiMdPhase], mode: MpiMdMode) -> MpiMdTestRun {
        MpiMdTest { ranks, files, phases: phases.to_vec(), mode, seed: 1 }.build().expect("sensible")
    }

    #[test]
    fn one_opens_for_all() {
        let run = run(2, 2, &[MpiMdPhase::Create, MpiMdPhase::Delete], MpiMdMode::OneOpens);
        let (a, b) = (FileRef(1), FileRef(2));
        let rank0 = [
            Op::Phase(0),
            Op::Open { file: a, create: true },
            Op::Barrier,
            Op::Close { file: a },
            Op::Open { file: b, create: true },
            Op::Barrier,
            Op::Close { file: b },
            Op::Barrier,
            Op::Phase(3),
            Op::Remove { file: a },
            Op::Barrier,
        ];
        assert_eq!(run.ops(0).collect::<Vec<_>>(), rank0);
        let rank1 = [
            Op::Phase(0),
            Op::Barrier,
            Op::Barrier,
            Op::Barrier,
            Op::Phase(3),
            Op::Remove { file: b },
            Op::Barrier,
        ];
        assert_eq!(run.ops(1).collect::<Vec<_>>(), rank1);
        assert_eq!([0, 1, 2].map(|n| run.name(FileRef(n))), ["testfile", "testfile.0", "testfile.1"]);
    }

    #[test]
    fn all_ranks_open_after_the_first() {
        // As in mpi-md-test of OrangeFS 2.10.0 on ROMIO of MPICH 4.0.2 and ext4 (mpi-md-test -n 2 -O, strace): rank 0
        // opens with O_CREAT and closes, then all ranks open.
        let run = run(2, 1, &[MpiMdPhase::Open], MpiMdMode::AllOpen);
        let file = FileRef(1);
        let open = Op::Open { file, create: true };
        let close = Op::Close { file };
        let end = [open, close, Op::Barrier, Op::Barrier];
        let rank0 = [Op::Phase(1), open, close, Op::Barrier];
        assert_eq!(run.ops(0).collect::<Vec<_>>(), [&rank0[..], &end].concat());
        assert_eq!(run.ops(1).collect::<Vec<_>>(), [&[Op::Phase(1), Op::Barrier][..], &end].concat());
        assert_eq!(run.inputs().collect::<Vec<_>>(), [(file, 0)]);
    }

    #[test]
    fn shares_of_deletion_by_hand() {
        // As in mpi-md-test -n 8 -D with 3 ranks (strace): contiguous shares of 3, 3 and 2 files.
        let run = run(3, 8, &[MpiMdPhase::Delete], MpiMdMode::OneOpens);
        let names = |rank| {
            let removed =
                run.ops(rank).filter_map(|op| if let Op::Remove { file } = op { Some(file) } else { None });
            removed.map(|file| run.name(file)).collect::<Vec<_>>()
        };
        assert_eq!(names(0), ["testfile.0", "testfile.1", "testfile.2"]);
        assert_eq!(names(1), ["testfile.3", "testfile.4", "testfile.5"]);
        assert_eq!(names(2), ["testfile.6", "testfile.7"]);
    }

    #[test]
    fn shares_of_deletion_cover_all_files_once() {
        let run = run(3, 10, &[MpiMdPhase::Create, MpiMdPhase::Delete], MpiMdMode::OneOpens);
        let mut removed: Vec<u32> = (0..3)
            .flat_map(|rank| run.ops(rank).collect::<Vec<_>>())
            .filter_map(|op| if let Op::Remove { file } = op { Some(file.0) } else { None })
            .collect();
        removed.sort_unstable();
        assert!(removed.into_iter().eq(1..=10));
    }

    #[test]
    fn lengths_differ_and_are_below_two_gibibytes() {
        let run = run(1, 500, &[MpiMdPhase::Resize], MpiMdMode::OneOpens);
        let length = |op| if let Op::SetLen { len, .. } = op { Some(len) } else { None };
        let lengths: std::collections::BTreeSet<u64> = run.ops(0).filter_map(length).collect();
        assert!(lengths.len() > 490 && lengths.iter().all(|&len| len < 1 << 31));
        assert_eq!(run.inputs().count(), 0);
    }

    #[test]
    fn every_mode_is_well_formed() {
        for mode in [MpiMdMode::OneOpens, MpiMdMode::AllOpen, MpiMdMode::Independent] {
            well_formed(&run(3, 5, &MpiMdPhase::ALL, mode));
        }
    }

    #[test]
    fn invalid_descriptions_are_rejected() {
        let refused = |phases: &[MpiMdPhase]| {
            let spec = MpiMdTest { phases: phases.to_vec(), ..MpiMdTest::default() };
            spec.build().expect_err("an invalid description").parameter
        };
        assert_eq!(refused(&[]), "phases");
        assert_eq!(refused(&[MpiMdPhase::Delete, MpiMdPhase::Open]), "phases");
        assert_eq!(refused(&[MpiMdPhase::Open, MpiMdPhase::Create]), "phases");
        assert_eq!(refused(&[MpiMdPhase::Open, MpiMdPhase::Open]), "phases");
    }
}
