//! mdtest: each rank makes, looks at and removes files of its own, in one directory or in one of each rank.

use crate::error::{Check, SpecError};
use crate::op::{FileRef, Op, Workload};
use crate::passes::Ops;
use crate::size::Size;
use serde::{Deserialize, Serialize};

const CHECK: Check = Check("mdtest");

/// mdtest. In each of `phases` every rank goes once through `files` files; all wait for each other between phases.
///
/// Serves the metadata half of measurements beside mpi-md-test (tables 4.1 to 4.8 of the thesis, which is
/// collective): many independent clients, in one directory or apart.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mdtest {
    /// Processes, N.
    pub ranks: u32,
    /// Files of each rank (`-n`).
    pub files: u64,
    /// A directory of each rank (`-u`) instead of one for all.
    pub unique_dirs: bool,
    /// Directories are made, looked at and removed instead of files (`-D`); phases `create`, `stat` and `remove`.
    pub directories: bool,
    /// What is done, in this order. Without `create`, files are there before.
    pub phases: Vec<MdPhase>,
    /// In phases other than `create` and `remove`, rank i goes through the files of rank (i + `stride`) mod N (`-N`),
    /// so that nobody looks at what it has made itself.
    pub stride: u32,
    /// Bytes written to each file when it is made (`-w`).
    pub write: Size,
    /// Bytes read from each file in phase `read` (`-e`); at most `write` when files are made here.
    pub read: Size,
    /// Length that phase `resize` gives to each file.
    pub resize: Size,
}

/// What is done with each file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MdPhase {
    /// Made, with bytes if there are to be some.
    Create,
    /// Opened and closed.
    Open,
    /// Asked for attributes.
    Stat,
    /// Opened, read and closed.
    Read,
    /// Cut or extended.
    Resize,
    /// Removed.
    Remove,
}

impl MdPhase {
    const ALL: [Self; 6] = [Self::Create, Self::Open, Self::Stat, Self::Read, Self::Resize, Self::Remove];

    fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Open => "open",
            Self::Stat => "stat",
            Self::Read => "read",
            Self::Resize => "resize",
            Self::Remove => "remove",
        }
    }
}

impl Default for Mdtest {
    fn default() -> Self {
        Self {
            ranks: 4,
            files: 1000,
            unique_dirs: false,
            directories: false,
            phases: vec![MdPhase::Create, MdPhase::Stat, MdPhase::Remove],
            stride: 1,
            write: Size(0),
            read: Size(0),
            resize: Size(0),
        }
    }
}

/// Directories of ranks are made before all phases and removed after them.
const SETUP: u16 = 100;
const CLEANUP: u16 = 101;

impl Mdtest {
    pub(crate) fn build(&self) -> Result<MdtestRun, SpecError> {
        CHECK.positive("ranks", u64::from(self.ranks))?;
        CHECK.positive("files", self.files)?;
        let files = CHECK.product("files", &[u64::from(self.ranks), self.files])?;
        CHECK.files("files", files.saturating_add(u64::from(self.ranks)))?;
        if self.phases.is_empty() {
            return CHECK.fail("phases", "nothing is done: name at least one");
        }
        for (index, phase) in self.phases.iter().enumerate() {
            if self.phases[..index].contains(phase) {
                return CHECK.fail("phases", format!("{:?} stands there twice", phase.name()));
            }
            let made = *phase != MdPhase::Create || index == 0;
            let removed = index > 0 && self.phases[index - 1] == MdPhase::Remove;
            if !made || removed {
                return CHECK.fail("phases", "files are made before all else and removed after it");
            }
            let of_files = matches!(phase, MdPhase::Open | MdPhase::Read | MdPhase::Resize);
            if self.directories && of_files {
                return CHECK.fail("phases", format!("{:?} is for files, not directories", phase.name()));
            }
        }
        if self.directories && self.write.0 > 0 {
            return CHECK.fail("write", "directories hold no bytes");
        }
        if self.directories && self.phases[0] != MdPhase::Create {
            return CHECK.fail("phases", "directories are not there before: begin with create");
        }
        let reads = self.phases.contains(&MdPhase::Read);
        if reads && self.read.0 == 0 {
            return CHECK.fail("read", "phase read needs a size to read");
        }
        if reads && self.phases[0] == MdPhase::Create && self.read > self.write {
            return CHECK
                .fail("read", format!("{} is more than the {} that are written", self.read, self.write));
        }
        Ok(MdtestRun { spec: self.clone() })
    }
}

/// A description that was checked. Files are numbered rank by rank, directories of ranks before them.
#[derive(Debug)]
pub(crate) struct MdtestRun {
    spec: Mdtest,
}

impl MdtestRun {
    fn dirs(&self) -> u32 {
        if self.spec.unique_dirs { self.spec.ranks } else { 0 }
    }

    fn file(&self, rank: u32, index: u64) -> FileRef {
        FileRef(self.dirs() + (u64::from(rank) * self.spec.files + index) as u32)
    }

    /// What is done with one file, at most four operations.
    fn item(&self, phase: MdPhase, file: FileRef) -> [Option<Op>; 4] {
        let Mdtest { directories, write, read, resize, .. } = self.spec;
        let open = |create| Some(Op::Open { file, create });
        let close = Some(Op::Close { file });
        let one = |op| [Some(op), None, None, None];
        match phase {
            MdPhase::Create if directories => one(Op::Mkdir { file }),
            MdPhase::Create if write.0 == 0 => one(Op::Create { file }),
            MdPhase::Create => [
                open(true),
                Some(Op::Write { file, offset: 0, len: write.0, collective: false }),
                close,
                None,
            ],
            MdPhase::Open => [open(false), close, None, None],
            MdPhase::Stat => one(Op::Stat { file }),
            MdPhase::Read => {
                [open(false), Some(Op::Read { file, offset: 0, len: read.0, collective: false }), close, None]
            }
            MdPhase::Resize => one(Op::Resize { file, len: resize.0 }),
            MdPhase::Remove if directories => one(Op::Rmdir { file }),
            MdPhase::Remove => one(Op::Remove { file }),
        }
    }
}

impl Workload for MdtestRun {
    fn ranks(&self) -> u32 {
        self.spec.ranks
    }

    fn name(&self, file: FileRef) -> String {
        let Some(number) = file.0.checked_sub(self.dirs()) else {
            return format!("mdtest.{}", file.0);
        };
        let (rank, index) = (u64::from(number) / self.spec.files, u64::from(number) % self.spec.files);
        let kind = if self.spec.directories { "dir" } else { "file" };
        let name = format!("{kind}.mdtest.{rank}.{index}");
        if self.spec.unique_dirs { format!("mdtest.{rank}/{name}") } else { name }
    }

    fn phase(&self, phase: u16) -> String {
        match phase {
            SETUP => "setup",
            CLEANUP => "cleanup",
            phase => MdPhase::ALL.get(usize::from(phase)).map_or("unknown", |phase| phase.name()),
        }
        .to_owned()
    }

    fn inputs(&self) -> Box<dyn Iterator<Item = (FileRef, u64)> + Send + '_> {
        if self.spec.phases[0] == MdPhase::Create {
            return Box::new(std::iter::empty());
        }
        let len = self.spec.write.0.max(self.spec.read.0);
        let all = u64::from(self.spec.ranks) * self.spec.files;
        Box::new((0..all as u32).map(move |number| (FileRef(self.dirs() + number), len)))
    }

    fn ops(&self, rank: u32) -> Ops<'_> {
        let ranks = u64::from(self.spec.ranks);
        let other = ((u64::from(rank) + u64::from(self.spec.stride)) % ranks) as u32;
        let own_dir = FileRef(rank);
        let makes = self.spec.unique_dirs && self.spec.phases[0] == MdPhase::Create;
        let removes = self.spec.unique_dirs && self.spec.phases.contains(&MdPhase::Remove);
        let setup = [Op::Phase(SETUP), Op::Mkdir { file: own_dir }, Op::Barrier];
        let cleanup = [Op::Phase(CLEANUP), Op::Rmdir { file: own_dir }, Op::Barrier];
        let work = self.spec.phases.iter().flat_map(move |&phase| {
            let of = if matches!(phase, MdPhase::Create | MdPhase::Remove) { rank } else { other };
            let items = (0..self.spec.files)
                .flat_map(move |index| self.item(phase, self.file(of, index)).into_iter().flatten());
            std::iter::once(Op::Phase(phase as u16)).chain(items).chain([Op::Barrier])
        });
        let setup = makes.then_some(setup).into_iter().flatten();
        Box::new(setup.chain(work).chain(removes.then_some(cleanup).into_iter().flatten()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::well_formed;

    #[test]
    fn shared_directory_by_hand() {
        let run = Mdtest { ranks: 2, files: 2, ..Mdtest::default() }.build().unwrap();
        // Files 0 and 1 are of rank 0, 2 and 3 of rank 1; rank 1 looks at those of rank (1 + 1) mod 2 = 0.
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
            Op::Remove { file: file(2) },
            Op::Remove { file: file(3) },
            Op::Barrier,
        ];
        assert_eq!(run.ops(1).collect::<Vec<_>>(), expected);
        assert_eq!(run.name(file(3)), "file.mdtest.1.1");
        assert_eq!([0, 2, 5].map(|phase| run.phase(phase)), ["create", "stat", "remove"]);
        well_formed(&run);
    }

    #[test]
    fn unique_directories_come_first() {
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
        // Directories are files 0 to 2, the one file of rank i is file 3 + i; rank 2 reads that of rank 0.
        let (mine, other) = (FileRef(5), FileRef(3));
        let (offset, len, collective) = (0, 3901, false);
        let expected = [
            Op::Phase(SETUP),
            Op::Mkdir { file: FileRef(2) },
            Op::Barrier,
            Op::Phase(0),
            Op::Open { file: mine, create: true },
            Op::Write { file: mine, offset, len, collective },
            Op::Close { file: mine },
            Op::Barrier,
            Op::Phase(3),
            Op::Open { file: other, create: false },
            Op::Read { file: other, offset, len, collective },
            Op::Close { file: other },
            Op::Barrier,
            Op::Phase(5),
            Op::Remove { file: mine },
            Op::Barrier,
            Op::Phase(CLEANUP),
            Op::Rmdir { file: FileRef(2) },
            Op::Barrier,
        ];
        assert_eq!(run.ops(2).collect::<Vec<_>>(), expected);
        assert_eq!([2, 5].map(|n| run.name(FileRef(n))), ["mdtest.2", "mdtest.2/file.mdtest.2.0"]);
        well_formed(&run);
    }

    #[test]
    fn files_are_there_before_when_nobody_makes_them() {
        let phases = vec![MdPhase::Open, MdPhase::Resize];
        let run = Mdtest { ranks: 2, files: 3, phases, ..Mdtest::default() }.build().unwrap();
        assert_eq!(run.inputs().count(), 6);
        well_formed(&run);
    }

    #[test]
    fn nonsense_is_refused() {
        let refused = |spec: Mdtest| spec.build().expect_err("nonsense").parameter;
        assert_eq!(refused(Mdtest { files: 0, ..Mdtest::default() }), "files");
        assert_eq!(refused(Mdtest { files: 1 << 40, ..Mdtest::default() }), "files");
        assert_eq!(refused(Mdtest { phases: vec![], ..Mdtest::default() }), "phases");
        let twice = vec![MdPhase::Create, MdPhase::Stat, MdPhase::Stat];
        assert_eq!(refused(Mdtest { phases: twice, ..Mdtest::default() }), "phases");
        let after = vec![MdPhase::Create, MdPhase::Remove, MdPhase::Stat];
        assert_eq!(refused(Mdtest { phases: after, ..Mdtest::default() }), "phases");
        let reads = vec![MdPhase::Create, MdPhase::Read];
        assert_eq!(refused(Mdtest { phases: reads, read: Size(1), ..Mdtest::default() }), "read");
    }
}
