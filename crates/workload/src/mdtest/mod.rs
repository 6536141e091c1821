//! mdtest: each rank makes files of its own, in one directory or in one of each rank, and goes through those of others.

use crate::error::{Check, SpecError};
use crate::op::{FileRef, Op, Workload};
use crate::passes::Ops;
use crate::size::Size;
use crate::tree::Tree;
use serde::{Deserialize, Serialize};

const CHECK: Check = Check("mdtest");

/// mdtest. In each of `phases` every rank goes once through `files` files; all wait for each other between phases.
///
/// With a `depth`, files lie in a tree of directories, as many in each: rank 0 makes it before all else, or every rank
/// its own. Files are made and removed from the root on, one branch after the other, and looked at by their numbers,
/// which go level by level.
///
/// Serves the metadata half of measurements beside mpi-md-test (tables 4.1 to 4.8 of the thesis, which is
/// collective): many independent clients, in one directory or apart.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mdtest {
    /// Processes, N.
    pub ranks: u32,
    /// Files of each rank (`-n`); rounded down to as many in each directory of a tree.
    pub files: u64,
    /// Levels of directories below the topmost one (`-z`).
    pub depth: u32,
    /// Directories in each one that is not on the last level (`-b`).
    pub branch: u64,
    /// A directory of each rank (`-u`) instead of one for all.
    pub unique_dirs: bool,
    /// Directories are made, looked at and removed instead of files (`-D`); phases `create`, `stat` and `remove`.
    pub directories: bool,
    /// What is done, in this order. Without `create`, files are there before.
    pub phases: Vec<MdPhase>,
    /// Nobody looks at what it has made itself (`-N`): rank i goes through the files of rank i + `stride` in phase
    /// `stat` (and in `open` and `resize`), i + 2 `stride` in `read` and i + 3 `stride` in `remove`, modulo N. With
    /// `unique_dirs`, the files of rank i lie in the directory that rank i + `stride` has made.
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

    /// How many strides away the rank is whose files a rank goes through.
    fn strides(self) -> u64 {
        match self {
            Self::Create => 0,
            Self::Open | Self::Stat | Self::Resize => 1,
            Self::Read => 2,
            Self::Remove => 3,
        }
    }

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
            depth: 0,
            branch: 1,
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

/// Directories that hold files are made before all phases and removed after them.
const SETUP: u16 = 100;
const CLEANUP: u16 = 101;

impl Mdtest {
    fn tree(&self) -> Tree {
        Tree { depth: self.depth, branch: self.branch }
    }

    /// Directories of a tree, if they can be counted.
    pub(crate) fn tree_dirs(&self) -> Option<u64> {
        self.tree().len()
    }

    pub(crate) fn build(&self) -> Result<MdtestRun, SpecError> {
        CHECK.positive("ranks", u64::from(self.ranks))?;
        CHECK.positive("files", self.files)?;
        CHECK.positive("branch", self.branch)?;
        let Some(dirs) = self.tree_dirs().filter(|dirs| u32::try_from(*dirs).is_ok()) else {
            return CHECK
                .fail("depth", "the tree has more than 2^32 directories: give less of depth or branch");
        };
        if self.files < dirs {
            let message = format!("{} are fewer than the {dirs} directories of the tree", self.files);
            return CHECK.fail("files", message);
        }
        let own = self.files.saturating_add(dirs);
        CHECK.files("files", u64::from(self.ranks).saturating_mul(own))?;
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
        Ok(MdtestRun { spec: self.clone(), tree: self.tree(), tree_dirs: dirs, in_dir: self.files / dirs })
    }
}

/// Numbers of files.
type Ops64<'a> = Box<dyn Iterator<Item = u64> + Send + 'a>;

/// A description that was checked. Files are numbered rank by rank, directories that hold them before them.
#[derive(Debug)]
pub(crate) struct MdtestRun {
    spec: Mdtest,
    tree: Tree,
    /// Directories of the tree.
    tree_dirs: u64,
    /// Files of a rank in each.
    in_dir: u64,
}

impl MdtestRun {
    /// Directories that hold files; none when all lie side by side.
    fn dirs(&self) -> u32 {
        match (self.spec.unique_dirs, self.spec.depth) {
            (true, _) => self.spec.ranks * self.tree_dirs as u32,
            (false, 0) => 0,
            (false, _) => self.tree_dirs as u32,
        }
    }

    /// Files of each rank.
    fn files(&self) -> u64 {
        self.in_dir * self.tree_dirs
    }

    fn file(&self, rank: u32, index: u64) -> FileRef {
        FileRef(self.dirs() + (u64::from(rank) * self.files() + index) as u32)
    }

    /// The directory `dir` of the tree that `rank` has made.
    fn dir(&self, rank: u32, dir: u64) -> FileRef {
        FileRef((u64::from(rank) * self.tree_dirs + dir) as u32)
    }

    /// So many strides after `rank`.
    fn after(&self, rank: u32, strides: u64) -> u32 {
        ((u64::from(rank) + strides * u64::from(self.spec.stride)) % u64::from(self.spec.ranks)) as u32
    }

    /// The path of a directory by its number.
    fn dir_name(&self, number: u64) -> String {
        let (owner, dir) = (number / self.tree_dirs, number % self.tree_dirs);
        let one = |dir: u64| match self.spec.unique_dirs {
            true => format!("mdtest_tree.{owner}.{dir}"),
            false => format!("mdtest_tree.{dir}"),
        };
        self.tree.path(dir).into_iter().map(one).collect::<Vec<_>>().join("/")
    }

    /// The numbers of a rank's files in the order of a phase.
    fn order(&self, phase: MdPhase) -> Ops64<'_> {
        match phase {
            MdPhase::Create | MdPhase::Remove => {
                let in_dir = self.in_dir;
                Box::new(self.tree.down().flat_map(move |dir| dir * in_dir..(dir + 1) * in_dir))
            }
            _ => Box::new(0..self.files()),
        }
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

/// A phase in which directories are made or removed by some of the ranks.
fn around(phase: u16, dirs: Option<impl Iterator<Item = Op>>) -> impl Iterator<Item = Op> {
    std::iter::once(Op::Phase(phase)).chain(dirs.into_iter().flatten()).chain([Op::Barrier])
}

impl Workload for MdtestRun {
    fn ranks(&self) -> u32 {
        self.spec.ranks
    }

    fn name(&self, file: FileRef) -> String {
        let Some(number) = file.0.checked_sub(self.dirs()) else {
            return self.dir_name(u64::from(file.0));
        };
        let (rank, index) = (u64::from(number) / self.files(), u64::from(number) % self.files());
        let kind = if self.spec.directories { "dir" } else { "file" };
        let name = format!("{kind}.mdtest.{rank}.{index}");
        if self.dirs() == 0 {
            return name;
        }
        let owner = if self.spec.unique_dirs { self.after(rank as u32, 1) } else { 0 };
        let dir = self.dir(owner, index / self.in_dir);
        format!("{}/{name}", self.dir_name(u64::from(dir.0)))
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
        let all = u64::from(self.spec.ranks) * self.files();
        Box::new((0..all as u32).map(move |number| (FileRef(self.dirs() + number), len)))
    }

    fn ops(&self, rank: u32) -> Ops<'_> {
        let makes = self.dirs() > 0 && self.spec.phases[0] == MdPhase::Create;
        let removes = self.dirs() > 0 && self.spec.phases.contains(&MdPhase::Remove);
        // Rank 0 makes and removes a tree that all share.
        let mine = self.spec.unique_dirs || rank == 0;
        let mkdirs = || self.tree.down().map(move |dir| Op::Mkdir { file: self.dir(rank, dir) });
        let rmdirs = || self.tree.up().map(move |dir| Op::Rmdir { file: self.dir(rank, dir) });
        let setup = makes.then(|| around(SETUP, mine.then(mkdirs)));
        let cleanup = removes.then(|| around(CLEANUP, mine.then(rmdirs)));
        let work = self.spec.phases.iter().flat_map(move |&phase| {
            let of = self.after(rank, phase.strides());
            let items = self
                .order(phase)
                .flat_map(move |index| self.item(phase, self.file(of, index)).into_iter().flatten());
            std::iter::once(Op::Phase(phase as u16)).chain(items).chain([Op::Barrier])
        });
        Box::new(setup.into_iter().flatten().chain(work).chain(cleanup.into_iter().flatten()))
    }
}

#[cfg(test)]
mod tests;
