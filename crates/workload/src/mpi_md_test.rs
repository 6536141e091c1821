//! mpi-md-test of OrangeFS: files made, opened, resized and removed by collective calls.

use crate::error::{Check, SpecError};
use crate::op::{FileRef, Op, Workload};
use crate::passes::Ops;
use crate::permutation::mix;
use serde::{Deserialize, Serialize};

const CHECK: Check = Check("mpi-md-test");
/// The file that is resized; the others follow it.
const RESIZED: FileRef = FileRef(0);

/// mpi-md-test: all ranks together open `files` files of one directory one after the other, which makes them
/// (`create`) or finds them (`open`), by the same call; give one file so many different lengths (`resize`); and remove
/// the files, each rank a share of neighbors (`delete`).
///
/// Serves tables 4.1 to 4.8 and figures 4.1 to 4.4 of the thesis.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MpiMdTest {
    /// Processes; one per client in the thesis.
    pub ranks: u32,
    /// Files, and lengths given in phase `resize` (`-n`); 25,000 to 200,000 in the thesis.
    pub files: u64,
    /// What is done, in this order. Without `create`, files are there before.
    pub phases: Vec<MpiMdPhase>,
    /// Who speaks to the file system in a call of all ranks.
    pub mode: MpiMdMode,
    /// Of the lengths in phase `resize`: 0 to 2^31 - 1.
    pub seed: u64,
}

/// What is done with the files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MpiMdPhase {
    /// `MPI_File_open` of files that are not there, `MPI_File_close`.
    Create,
    /// The same of files that are there.
    Open,
    /// `MPI_File_set_size` of one file.
    Resize,
    /// `MPI_File_delete`, split between the ranks.
    Delete,
}

/// Who speaks to the file system in a call of all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MpiMdMode {
    /// Rank 0, which tells the others what they need: ROMIO on PVFS2 and OrangeFS.
    #[default]
    OneOpens,
    /// Rank 0 makes the file and closes it, then all open it: ROMIO on POSIX file systems.
    AllOpen,
    /// There are no collective calls: each rank does everything by itself (`-i`), opening each file once. (ROMIO on
    /// POSIX file systems makes and closes a file before it opens it here too.)
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

/// The file that is resized is made and removed outside of the phases that are measured.
const SETUP: u16 = 100;
const CLEANUP: u16 = 101;

impl MpiMdTest {
    pub(crate) fn build(&self) -> Result<MpiMdTestRun, SpecError> {
        CHECK.positive("ranks", u64::from(self.ranks))?;
        CHECK.positive("files", self.files)?;
        CHECK.files("files", self.files.saturating_add(1))?;
        if self.phases.is_empty() {
            return CHECK.fail("phases", "nothing is done: name at least one");
        }
        for (index, phase) in self.phases.iter().enumerate() {
            if self.phases[..index].contains(phase) {
                return CHECK.fail("phases", format!("{:?} stands there twice", phase.name()));
            }
            let opens = matches!(phase, MpiMdPhase::Open | MpiMdPhase::Create);
            if opens && self.phases[..index].contains(&MpiMdPhase::Delete) {
                return CHECK.fail("phases", format!("{:?} comes after delete", phase.name()));
            }
            if *phase == MpiMdPhase::Create && self.phases[..index].contains(&MpiMdPhase::Open) {
                return CHECK.fail("phases", "\"create\" comes after open: files are there already");
            }
        }
        Ok(MpiMdTestRun { spec: self.clone() })
    }
}

/// A description that was checked.
#[derive(Debug)]
pub(crate) struct MpiMdTestRun {
    spec: MpiMdTest,
}

impl MpiMdTestRun {
    fn file(index: u64) -> FileRef {
        FileRef(1 + index as u32)
    }

    /// One file opened and closed by a call of all ranks: what `rank` does. Always for writing, and always with leave
    /// to make it, as the program has it; only whoever comes first in phase `create` makes one.
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
                // The first ranks have one more when the files cannot be divided evenly.
                let (ranks, rank) = (u64::from(self.spec.ranks), u64::from(rank));
                let first = |rank: u64| rank * (files / ranks) + rank.min(files % ranks);
                let each = |index| Op::Remove { file: Self::file(index) };
                Box::new(begin.chain((first(rank)..first(rank + 1)).map(each)).chain([Op::Barrier]))
            }
        }
    }

    fn resize(&self, rank: u32) -> impl Iterator<Item = Op> + Send + '_ {
        let independent = self.spec.mode == MpiMdMode::Independent;
        let speaks = rank == 0 || independent;
        let opens = speaks || self.spec.mode == MpiMdMode::AllOpen;
        let one = |op: Op, when: bool| when.then_some(op).into_iter();
        let open = Op::Open { file: RESIZED, create: true };
        let lengths = (0..self.spec.files).flat_map(move |index| {
            let len = mix(self.spec.seed ^ mix(index)) >> 33;
            let cut = speaks.then_some(Op::SetLen { file: RESIZED, len });
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
        let there = needed.is_some_and(|&phase| phase != MpiMdPhase::Create);
        let files = if there { self.spec.files } else { 0 };
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
    fn all_open_after_the_first() {
        // As mpi-md-test of OrangeFS 2.10.0 does on ROMIO of MPICH 4.0.2 and ext4 (mpi-md-test -n 2 -O, strace): rank 0
        // opens with leave to create and closes, then all open.
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
        // As mpi-md-test -n 8 -D does with 3 ranks (strace): 8 = 3 + 3 + 2 neighbors each.
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
    fn shares_of_deletion_are_all_files_once() {
        let run = run(3, 10, &[MpiMdPhase::Create, MpiMdPhase::Delete], MpiMdMode::OneOpens);
        let mut removed: Vec<u32> = (0..3)
            .flat_map(|rank| run.ops(rank).collect::<Vec<_>>())
            .filter_map(|op| if let Op::Remove { file } = op { Some(file.0) } else { None })
            .collect();
        removed.sort_unstable();
        assert!(removed.into_iter().eq(1..=10));
    }

    #[test]
    fn lengths_are_many_and_below_two_gibibytes() {
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
    fn nonsense_is_refused() {
        let refused = |phases: &[MpiMdPhase]| {
            let spec = MpiMdTest { phases: phases.to_vec(), ..MpiMdTest::default() };
            spec.build().expect_err("nonsense").parameter
        };
        assert_eq!(refused(&[]), "phases");
        assert_eq!(refused(&[MpiMdPhase::Delete, MpiMdPhase::Open]), "phases");
        assert_eq!(refused(&[MpiMdPhase::Open, MpiMdPhase::Create]), "phases");
        assert_eq!(refused(&[MpiMdPhase::Open, MpiMdPhase::Open]), "phases");
    }
}
