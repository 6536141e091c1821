//! mdtest: each rank creates files and processes those of other ranks.

use crate::error::{Check, SpecError};
use crate::op::{FileRef, Op, Workload};
use crate::passes::Ops;
use crate::size::Size;
use crate::tree::Tree;
use serde::{Deserialize, Serialize};

const CHECK: Check = Check("mdtest");

/// mdtest: metadata operations on many small files.
///
/// In each of `phases` every rank processes `files` files, and all ranks wait at a barrier between phases.
///
/// With a `depth`, files are spread evenly over a tree of directories. Rank 0 creates the tree first, or each rank its
/// own. Files are created and removed in the tree's pre-order and accessed in the order of their numbers, level by
/// level.
///
/// Complements mpi-md-test (tables 4.1 to 4.8 of the thesis), which is collective: many independent clients, in one
/// directory or in separate ones.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mdtest {
    /// Number of ranks, N.
    pub ranks: u32,
    /// Number of files of each rank (`-n`), rounded down to the same number in each directory of a tree.
    pub files: u64,
    /// Levels of directories below the root of the tree (`-z`).
    pub depth: u32,
    /// Number of subdirectories in each directory that is not on the last level (`-b`).
    pub branch: u64,
    /// Whether each rank has its own directory (`-u`).
    pub unique_dirs: bool,
    /// Whether to process directories instead of files (`-D`), in the phases `create`, `stat` and `remove`.
    pub directories: bool,
    /// Phases, in this order. Without `create`, the files exist before.
    pub phases: Vec<MdPhase>,
    /// Shift of ranks, so that no rank accesses files that it created (`-N`).
    ///
    /// Rank i processes the files of rank i + `stride` in the phases `stat`, `open` and `resize`, of i + 2 `stride` in
    /// `read`, and of i + 3 `stride` in `remove`, modulo N. With `unique_dirs`, the files of rank i are in the
    /// directory created by rank i + `stride`.
    pub stride: u32,
    /// Bytes written to each new file (`-w`).
    pub write: Size,
    /// Bytes read from each file in the phase `read` (`-e`); at most `write` if the workload creates the files.
    pub read: Size,
    /// Length that the phase `resize` gives each file.
    pub resize: Size,
}

/// An operation on each file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MdPhase {
    /// Creates the file and writes `write` bytes.
    Create,
    /// Opens and closes the file.
    Open,
    /// Reads the file's attributes.
    Stat,
    /// Opens, reads and closes the file.
    Read,
    /// Sets the file's length.
    Resize,
    /// Removes the file.
    Remove,
}

impl MdPhase {
    const ALL: [Self; 6] = [Self::Create, Self::Open, Self::Stat, Self::Read, Self::Resize, Self::Remove];

    /// Distance in strides to the rank whose files a rank processes.
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

/// Phases before and after all others, in which directories are created and removed.
const SETUP: u16 = 100;
const CLEANUP: u16 = 101;

impl Mdtest {
    fn tree(&self) -> Tree {
        Tree { depth: self.depth, branch: self.branch }
    }

    /// Number of directories of a tree; `None` on overflow.
    pub(crate) fn tree_dirs(&self) -> Option<u64> {
        self.tree().len()
    }

    pub(crate) fn build(&self) -> Result<MdtestRun, SpecError> {
        CHECK.positive("ranks", u64::from(self.ranks))?;
        CHECK.positive("files", self.files)?;
        CHECK.positive("branch", self.branch)?;
        let Some(dirs) = self.tree_dirs().filter(|dirs| u32::try_from(*dirs).is_ok()) else {
            return CHECK.fail("depth", "the tree has more than 2^32 directories: reduce depth or branch");
        };
        if self.files < dirs {
            let message = format!("{} files are fewer than the {dirs} directories of the tree", self.files);
            return CHECK.fail("files", message);
        }
        let own = self.files.saturating_add(dirs);
        CHECK.files("files", u64::from(self.ranks).saturating_mul(own))?;
        if self.phases.is_empty() {
            return CHECK.fail("phases", "the list is empty: name at least one");
        }
        for (index, phase) in self.phases.iter().enumerate() {
            if self.phases[..index].contains(phase) {
                return CHECK.fail("phases", format!("{:?} occurs twice", phase.name()));
            }
            let made = *phase != MdPhase::Create || index == 0;
            let removed = index > 0 && self.phases[index - 1] == MdPhase::Remove;
            if !made || removed {
                return CHECK.fail("phases", "create must be the first phase, and remove the last");
            }
            let of_files = matches!(phase, MdPhase::Open | MdPhase::Read | MdPhase::Resize);
            if self.directories && of_files {
                return CHECK
                    .fail("phases", format!("{:?} is only for files, not directories", phase.name()));
            }
        }
        if self.directories && self.write.0 > 0 {
            return CHECK.fail("write", "directories have no content");
        }
        if self.directories && self.phases[0] != MdPhase::Create {
            return CHECK.fail("phases", "directories do not exist before: begin with create");
        }
        let reads = self.phases.contains(&MdPhase::Read);
        if reads && self.read.0 == 0 {
            return CHECK.fail("read", "the phase read needs a length");
        }
        if reads && self.phases[0] == MdPhase::Create && self.read > self.write {
            return CHECK.fail("read", format!("{} exceeds the {} written", self.read, self.write));
        }
        Ok(MdtestRun { spec: self.clone(), tree: self.tree(), tree_dirs: dirs, in_dir: self.files / dirs })
    }
}

/// Stream of file numbers.
type Ops64<'a> = Box<dyn Iterator<Item = u64> + Send + 'a>;

/// A validated description. Directories that hold files are numbered first, then files rank by rank.
#[derive(Debug)]
pub(crate) struct MdtestRun {
    spec: Mdtest,
    tree: Tree,
    /// Number of directories in a tree.
    tree_dirs: u64,
    /// Number of files of a rank in each directory.
    in_dir: u64,
}

impl MdtestRun {
    /// Number of directories that hold files; 0 if all files are in the workload's directory.
    fn dirs(&self) -> u32 {
        match (self.spec.unique_dirs, self.spec.depth) {
            (true, _) => self.spec.ranks * self.tree_dirs as u32,
            (false, 0) => 0,
            (false, _) => self.tree_dirs as u32,
        }
    }

    /// Number of files of each rank.
    fn files(&self) -> u64 {
        self.in_dir * self.tree_dirs
    }

    fn file(&self, rank: u32, index: u64) -> FileRef {
        FileRef(self.dirs() + (u64::from(rank) * self.files() + index) as u32)
    }

    /// Returns directory `dir` of the tree created by `rank`.
    fn dir(&self, rank: u32, dir: u64) -> FileRef {
        FileRef((u64::from(rank) * self.tree_dirs + dir) as u32)
    }

    /// Returns the rank `strides` strides after `rank`.
    fn after(&self, rank: u32, strides: u64) -> u32 {
        ((u64::from(rank) + strides * u64::from(self.spec.stride)) % u64::from(self.spec.ranks)) as u32
    }

    /// Path of a directory by its number.
    fn dir_name(&self, number: u64) -> String {
        let (owner, dir) = (number / self.tree_dirs, number % self.tree_dirs);
        let one = |dir: u64| match self.spec.unique_dirs {
            true => format!("mdtest_tree.{owner}.{dir}"),
            false => format!("mdtest_tree.{dir}"),
        };
        self.tree.path(dir).into_iter().map(one).collect::<Vec<_>>().join("/")
    }

    /// Returns the numbers of a rank's files in the order of a phase.
    fn order(&self, phase: MdPhase) -> Ops64<'_> {
        match phase {
            MdPhase::Create | MdPhase::Remove => {
                let in_dir = self.in_dir;
                Box::new(self.tree.down().flat_map(move |dir| dir * in_dir..(dir + 1) * in_dir))
            }
            _ => Box::new(0..self.files()),
        }
    }

    /// Returns the operations on one file, at most four.
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

/// Generates a phase in which some ranks create or remove directories.
fn directory_phase(phase: u16, dirs: Option<impl Iterator<Item = Op>>) -> impl Iterator<Item = Op> {
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
        // Rank 0 creates and removes the shared tree.
        let takes_part = self.spec.unique_dirs || rank == 0;
        let mkdirs = || self.tree.down().map(move |dir| Op::Mkdir { file: self.dir(rank, dir) });
        let rmdirs = || self.tree.up().map(move |dir| Op::Rmdir { file: self.dir(rank, dir) });
        let setup = makes.then(|| directory_phase(SETUP, takes_part.then(mkdirs)));
        let cleanup = removes.then(|| directory_phase(CLEANUP, takes_part.then(rmdirs)));
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
