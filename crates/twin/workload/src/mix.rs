//! Several programs that run concurrently, each with its own ranks, files and phases.

use crate::btio::{Btio, BtioSubtype};
use crate::error::{Check, SpecError};
use crate::mpi_io_test::MpiIoTest;
use crate::op::{FileRef, Op, Workload};
use crate::passes::{Access, Ops};
use crate::size::Size;
use crate::spec::WorkloadSpec;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use weft_core::Nanos;

const CHECK: Check = Check("mix");

/// Several programs that run concurrently.
///
/// Ranks are numbered program by program, and barriers are local to a program. File names begin with the number of the
/// program, phase names with its label.
///
/// Serves iBridge section III-F and figure 12 (mpi-io-test beside BTIO, 64 ranks each) and figure 3 (two programs of
/// kind `server-span`).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mix {
    /// The programs.
    pub parts: Vec<MixProgram>,
}

/// A program of a mix.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixProgram {
    /// Label in results; default is the kind.
    #[serde(default)]
    pub label: Option<String>,
    /// Delay before the program begins, in microseconds.
    #[serde(default)]
    pub delay_us: u64,
    /// The program's workload.
    pub workload: WorkloadSpec,
}

impl Default for Mix {
    fn default() -> Self {
        let part = |workload| MixProgram { label: None, delay_us: 0, workload };
        let fragments = MpiIoTest { size: Size::kib(65), ..MpiIoTest::default() };
        let small = Btio { subtype: BtioSubtype::Simple, access: Access::Write, ..Btio::default() };
        Self { parts: vec![part(WorkloadSpec::MpiIoTest(fragments)), part(WorkloadSpec::Btio(small))] }
    }
}

/// Number of phase numbers reserved for each program.
const PHASES: u16 = 256;

impl Mix {
    /// Upper bound of the number of files and directories, like [`WorkloadSpec::files`].
    ///
    /// File numbers are assigned to the programs in round-robin order.
    pub(crate) fn files(&self) -> u64 {
        let most = self.parts.iter().map(|part| part.workload.files()).max().unwrap_or(0);
        most.saturating_mul(self.parts.len() as u64)
    }

    pub(crate) fn build(&self) -> Result<MixRun, SpecError> {
        if self.parts.is_empty() || self.parts.len() > usize::from(u16::MAX / PHASES) {
            return CHECK.fail("parts", "give 1 to 255 programs");
        }
        CHECK.files("parts", self.files())?;
        let mut parts = Vec::new();
        let mut labels: Vec<String> = Vec::new();
        let mut first = 0u32;
        for part in &self.parts {
            if matches!(part.workload, WorkloadSpec::Mix(_)) {
                return CHECK.fail("parts", "a mix cannot contain a mix: list all programs in one");
            }
            let workload = part.workload.build()?;
            let Some(end) = first.checked_add(workload.ranks()) else {
                return CHECK.fail("parts", "more than 2^32 ranks in total");
            };
            let wanted = part.label.clone().unwrap_or_else(|| part.workload.kind().to_owned());
            let label = if labels.contains(&wanted) { format!("{wanted}-{}", labels.len()) } else { wanted };
            if labels.contains(&label) {
                return CHECK.fail("label", format!("two programs have the label {label:?}"));
            }
            labels.push(label.clone());
            parts.push(Program {
                label,
                delay: Nanos(part.delay_us.saturating_mul(1000)),
                ranks: first..end,
                workload,
            });
            first = end;
        }
        Ok(MixRun { parts })
    }
}

/// A validated mix.
pub(crate) struct MixRun {
    parts: Vec<Program>,
}

struct Program {
    label: String,
    delay: Nanos,
    ranks: Range<u32>,
    workload: Box<dyn Workload>,
}

impl MixRun {
    /// Returns the program of a rank, and the program's number.
    fn program(&self, rank: u32) -> (usize, &Program) {
        let index = self.parts.partition_point(|part| part.ranks.end <= rank);
        (index, &self.parts[index])
    }

    fn file(&self, index: usize, file: FileRef) -> FileRef {
        FileRef(file.0 * self.parts.len() as u32 + index as u32)
    }

    fn rename(&self, index: usize, op: Op) -> Op {
        let of = |file| self.file(index, file);
        match op {
            Op::Open { file, create } => Op::Open { file: of(file), create },
            Op::Close { file } => Op::Close { file: of(file) },
            Op::Read { file, offset, len, collective } => {
                Op::Read { file: of(file), offset, len, collective }
            }
            Op::Write { file, offset, len, collective } => {
                Op::Write { file: of(file), offset, len, collective }
            }
            Op::Sync { file } => Op::Sync { file: of(file) },
            Op::SetLen { file, len } => Op::SetLen { file: of(file), len },
            Op::Mkdir { file } => Op::Mkdir { file: of(file) },
            Op::Create { file } => Op::Create { file: of(file) },
            Op::Stat { file } => Op::Stat { file: of(file) },
            Op::Resize { file, len } => Op::Resize { file: of(file), len },
            Op::Remove { file } => Op::Remove { file: of(file) },
            Op::Rmdir { file } => Op::Rmdir { file: of(file) },
            Op::Phase(phase) => Op::Phase(phase % PHASES + PHASES * index as u16),
            Op::Barrier | Op::Compute(_) => op,
        }
    }
}

impl Workload for MixRun {
    fn ranks(&self) -> u32 {
        self.parts.last().map_or(0, |part| part.ranks.end)
    }

    fn name(&self, file: FileRef) -> String {
        let programs = self.parts.len() as u32;
        let (index, inner) = (file.0 % programs, FileRef(file.0 / programs));
        format!("{index}-{}", self.parts[index as usize].workload.name(inner))
    }

    fn phase(&self, phase: u16) -> String {
        match self.parts.get(usize::from(phase / PHASES)) {
            Some(part) => format!("{}/{}", part.label, part.workload.phase(phase % PHASES)),
            None => "unknown".to_owned(),
        }
    }

    fn group(&self, rank: u32) -> Range<u32> {
        let (_, part) = self.program(rank);
        let group = part.workload.group(rank - part.ranks.start);
        part.ranks.start + group.start..part.ranks.start + group.end
    }

    fn inputs(&self) -> Box<dyn Iterator<Item = (FileRef, u64)> + Send + '_> {
        Box::new(self.parts.iter().enumerate().flat_map(move |(index, part)| {
            part.workload.inputs().map(move |(file, len)| (self.file(index, file), len))
        }))
    }

    fn ops(&self, rank: u32) -> Ops<'_> {
        let (index, part) = self.program(rank);
        let wait = (part.delay.0 > 0).then_some(Op::Compute(part.delay));
        let ops = part.workload.ops(rank - part.ranks.start).map(move |op| self.rename(index, op));
        Box::new(wait.into_iter().chain(ops))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ior::Ior;
    use crate::mdtest::Mdtest;
    use crate::testing::{file_extents, well_formed};

    fn mix() -> Mix {
        let ior = |ranks, access| MixProgram {
            label: None,
            delay_us: 0,
            workload: WorkloadSpec::Ior(Ior { ranks, access, ..Ior::default() }),
        };
        let mdtest = MixProgram {
            label: Some("names".to_owned()),
            delay_us: 7,
            workload: WorkloadSpec::Mdtest(Mdtest { ranks: 2, unique_dirs: true, ..Mdtest::default() }),
        };
        Mix { parts: vec![ior(3, Access::Write), mdtest, ior(1, Access::Read)] }
    }

    #[test]
    fn ranks_files_and_phases_are_separate() {
        let run = mix().build().unwrap();
        assert_eq!(run.ranks(), 6);
        assert_eq!([0, 2, 3, 4, 5].map(|rank| run.group(rank)), [0..3, 0..3, 3..5, 3..5, 5..6]);
        // File numbers go round-robin: 0 and 3 belong to the first program, 1 to the second, 2 to the third.
        assert!(file_extents(&run, 1).iter().all(|extent| extent.0 == FileRef(0)));
        assert!(file_extents(&run, 5).iter().all(|extent| extent.0 == FileRef(2)));
        assert_eq!(run.name(FileRef(2)), "2-ior");
        // Rank 1 of the second program has directory 1, which is file 1 * 3 + 1 of the mix.
        assert_eq!(run.name(FileRef(4)), "1-mdtest_tree.1.0");
        assert_eq!(run.ops(4).nth(2), Some(Op::Mkdir { file: FileRef(4) }));
        assert_eq!(run.ops(4).next(), Some(Op::Compute(Nanos(7000))));
        assert_eq!(
            [1, 256, 512 + 4].map(|phase| run.phase(phase)),
            ["ior/write", "names/create", "ior-2/read"]
        );
        assert_eq!(run.inputs().collect::<Vec<_>>(), [(FileRef(2), 4 << 20)]);
        well_formed(&run);
    }

    #[test]
    fn a_program_does_the_same_in_a_mix_as_alone() {
        let run = mix().build().unwrap();
        let alone = Ior { ranks: 3, access: Access::Write, ..Ior::default() }.build().unwrap();
        assert_eq!(run.ops(2).count(), alone.ops(2).count());
        assert_eq!(file_extents(&run, 2), file_extents(&alone, 2));
    }

    #[test]
    fn invalid_descriptions_are_rejected() {
        assert_eq!(Mix { parts: vec![] }.build().err().map(|e| e.parameter), Some("parts"));
        let nested = MixProgram { label: None, delay_us: 0, workload: WorkloadSpec::Mix(Mix::default()) };
        assert_eq!(Mix { parts: vec![nested] }.build().err().map(|e| e.parameter), Some("parts"));
        let bad = MixProgram {
            label: None,
            delay_us: 0,
            workload: WorkloadSpec::Ior(Ior { ranks: 0, ..Ior::default() }),
        };
        assert_eq!(Mix { parts: vec![bad] }.build().err().map(|e| e.kind), Some("ior"));
    }
}
