//! Descriptions of workloads as data.

use crate::btio::Btio;
use crate::error::SpecError;
use crate::flash_io::FlashIo;
use crate::hpio::Hpio;
use crate::ior::Ior;
use crate::mdtest::Mdtest;
use crate::mix::Mix;
use crate::mpi_io_test::MpiIoTest;
use crate::mpi_md_test::MpiMdTest;
use crate::op::Workload;
use crate::s3d_io::S3dIo;
use crate::sandia::Sandia;
use crate::segments::Segments;
use crate::server_span::ServerSpan;
use crate::tile_io::MpiTileIo;
use serde::{Deserialize, Serialize};

/// Description of a workload: `kind = "…"` and the parameters of that kind, all of which have defaults.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum WorkloadSpec {
    /// Ranks write a shared file in round-robin order.
    MpiIoTest(MpiIoTest),
    /// Segments of blocks of transfers.
    Ior(Ior),
    /// Regions at regular distances.
    Hpio(Hpio),
    /// A two-dimensional array divided into tiles.
    MpiTileIo(MpiTileIo),
    /// A solution written every few time steps, divided into diagonal cells.
    Btio(Btio),
    /// A checkpoint and two plot files.
    FlashIo(FlashIo),
    /// Checkpoints of four arrays.
    S3dIo(S3dIo),
    /// Requests that touch selected servers.
    ServerSpan(ServerSpan),
    /// Requests with the statistics of traced applications.
    Sandia(Sandia),
    /// Segments of one file, each with a pattern of its own.
    Segments(Segments),
    /// Files created, inspected and removed by each rank.
    Mdtest(Mdtest),
    /// Files created, opened, resized and removed by collective calls.
    MpiMdTest(MpiMdTest),
    /// Several workloads that run concurrently.
    Mix(Mix),
}

impl WorkloadSpec {
    /// Returns every kind with its defaults, in the order of the documentation.
    pub fn all() -> Vec<Self> {
        vec![
            Self::MpiIoTest(MpiIoTest::default()),
            Self::Ior(Ior::default()),
            Self::Hpio(Hpio::default()),
            Self::MpiTileIo(MpiTileIo::default()),
            Self::Btio(Btio::default()),
            Self::FlashIo(FlashIo::default()),
            Self::S3dIo(S3dIo::default()),
            Self::ServerSpan(ServerSpan::default()),
            Self::Sandia(Sandia::default()),
            Self::Segments(Segments::default()),
            Self::Mdtest(Mdtest::default()),
            Self::MpiMdTest(MpiMdTest::default()),
            Self::Mix(Mix::default()),
        ]
    }

    /// Returns the kind of this name with its defaults.
    pub fn of_kind(kind: &str) -> Option<Self> {
        Self::all().into_iter().find(|spec| spec.kind() == kind)
    }

    /// Returns the name of the kind, as in `kind = "…"`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::MpiIoTest(_) => "mpi-io-test",
            Self::Ior(_) => "ior",
            Self::Hpio(_) => "hpio",
            Self::MpiTileIo(_) => "mpi-tile-io",
            Self::Btio(_) => "btio",
            Self::FlashIo(_) => "flash-io",
            Self::S3dIo(_) => "s3d-io",
            Self::ServerSpan(_) => "server-span",
            Self::Sandia(_) => "sandia",
            Self::Segments(_) => "segments",
            Self::Mdtest(_) => "mdtest",
            Self::MpiMdTest(_) => "mpi-md-test",
            Self::Mix(_) => "mix",
        }
    }

    /// Returns the number of ranks, which a sweep changes; `None` for a mix, whose programs have their own.
    pub fn ranks_mut(&mut self) -> Option<&mut u32> {
        match self {
            Self::MpiIoTest(spec) => Some(&mut spec.ranks),
            Self::Ior(spec) => Some(&mut spec.ranks),
            Self::Hpio(spec) => Some(&mut spec.ranks),
            Self::MpiTileIo(spec) => Some(&mut spec.ranks),
            Self::Btio(spec) => Some(&mut spec.ranks),
            Self::FlashIo(spec) => Some(&mut spec.ranks),
            Self::S3dIo(spec) => Some(&mut spec.ranks),
            Self::ServerSpan(spec) => Some(&mut spec.ranks),
            Self::Sandia(spec) => Some(&mut spec.ranks),
            Self::Segments(spec) => Some(&mut spec.ranks),
            Self::Mdtest(spec) => Some(&mut spec.ranks),
            Self::MpiMdTest(spec) => Some(&mut spec.ranks),
            Self::Mix(_) => None,
        }
    }

    /// Upper bound of the number of files and directories; file numbers are below it.
    pub(crate) fn files(&self) -> u64 {
        match self {
            Self::Ior(spec) if spec.file_per_process => u64::from(spec.ranks),
            Self::FlashIo(_) => 3,
            Self::S3dIo(spec) => u64::from(spec.checkpoints),
            Self::Mdtest(spec) => u64::from(spec.ranks)
                .saturating_mul(spec.files.saturating_add(spec.tree_dirs().unwrap_or(u64::MAX))),
            Self::MpiMdTest(spec) => spec.files.saturating_add(1),
            Self::Mix(spec) => spec.files(),
            _ => 1,
        }
    }

    /// Validates the description and returns the workload.
    ///
    /// # Errors
    /// Fails if a parameter is invalid.
    pub fn build(&self) -> Result<Box<dyn Workload>, SpecError> {
        Ok(match self {
            Self::MpiIoTest(spec) => Box::new(spec.build()?),
            Self::Ior(spec) => Box::new(spec.build()?),
            Self::Hpio(spec) => Box::new(spec.build()?),
            Self::MpiTileIo(spec) => Box::new(spec.build()?),
            Self::Btio(spec) => Box::new(spec.build()?),
            Self::FlashIo(spec) => Box::new(spec.build()?),
            Self::S3dIo(spec) => Box::new(spec.build()?),
            Self::ServerSpan(spec) => Box::new(spec.build()?),
            Self::Sandia(spec) => Box::new(spec.build()?),
            Self::Segments(spec) => Box::new(spec.build()?),
            Self::Mdtest(spec) => Box::new(spec.build()?),
            Self::MpiMdTest(spec) => Box::new(spec.build()?),
            Self::Mix(spec) => Box::new(spec.build()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::Size;
    use crate::testing::well_formed;

    #[test]
    fn every_kind_builds_with_defaults_and_is_well_formed() {
        for spec in WorkloadSpec::all() {
            let workload = spec.build().unwrap_or_else(|error| panic!("{error}"));
            well_formed(&*workload);
            assert_eq!(WorkloadSpec::of_kind(spec.kind()).as_ref(), Some(&spec));
            let text = toml::to_string(&spec).unwrap();
            assert!(text.contains(&format!("kind = \"{}\"", spec.kind())), "{text}");
            assert_eq!(toml::from_str::<WorkloadSpec>(&text).unwrap(), spec);
        }
    }

    #[test]
    fn equal_descriptions_yield_equal_streams() {
        for spec in WorkloadSpec::all() {
            let (a, b) = (spec.build().unwrap(), spec.build().unwrap());
            let last = a.ranks() - 1;
            assert!(a.ops(last).eq(b.ops(last)), "{}", spec.kind());
            // Two streams of one rank may be read alternately.
            let (mut first, mut second) = (a.ops(0), a.ops(0));
            assert_eq!(first.nth(3), second.nth(3), "{}", spec.kind());
            assert!(first.eq(second), "{}", spec.kind());
        }
    }

    #[test]
    fn enormous_workloads_start_at_once() {
        // Each rank has far more operations than fit in memory.
        for text in [
            "kind = \"mpi-io-test\"\nranks = 8192\niterations = 1_000_000_000\ncollective = true",
            "kind = \"ior\"\nranks = 8192\ntransfer = 4096\nper_rank = \"512 TiB\"\norder = \"random\"",
            "kind = \"hpio\"\nregion_count = 1_000_000_000\ncollective = true",
            "kind = \"hpio\"\nregion_count = 1_000_000_000\ncollective = true\n[two_phase]\ncb_buffer_size = 4096",
            "kind = \"mpi-tile-io\"\ntile_x = 1000\ntile_y = 1_000_000_000\nelement = 8",
            "kind = \"btio\"\nclass = \"D\"\ndumps = 1_000_000\nsubtype = \"simple\"",
            "kind = \"btio\"\nclass = \"D\"\ndumps = 1_000_000\n[two_phase]\ncb_buffer_size = 4096",
            "kind = \"flash-io\"\nblocks = 1_000_000_000\n[two_phase]\nforce = true\ncb_buffer_size = 4096",
            "kind = \"s3d-io\"\nblock = [10, 10000, 100000]\ncheckpoints = 1_000_000",
            "kind = \"server-span\"\nrequests = 1_000_000_000\norder = \"random\"",
            "kind = \"sandia\"\ntotal = \"1048576 TiB\"",
            "kind = \"mdtest\"\nfiles = 1_000_000_000",
            "kind = \"mpi-md-test\"\nfiles = 4_000_000_000",
        ] {
            let spec: WorkloadSpec = toml::from_str(text).unwrap();
            let workload = spec.build().unwrap_or_else(|error| panic!("{error}"));
            let last = workload.ranks() - 1;
            assert_eq!(workload.ops(last).take(10_000).count(), 10_000, "{text}");
        }
    }

    #[test]
    fn a_description_in_toml_is_parsed() {
        let spec: WorkloadSpec = toml::from_str(
            "kind = \"mpi-io-test\"\nranks = 512\nsize = \"65 KiB\"\noffset = 1024\ntotal = \"10 GiB\"\naccess = \"read\"",
        )
        .unwrap();
        let WorkloadSpec::MpiIoTest(spec) = spec else { panic!("{spec:?}") };
        assert_eq!((spec.ranks, spec.size, spec.offset), (512, Size(66_560), Size(1024)));
    }

    #[test]
    fn all_examples_in_the_documentation_build() {
        let page = include_str!("../../../../docs/reference/workloads.md");
        let mut kinds = std::collections::BTreeSet::new();
        for part in page.split("```toml\n").skip(1) {
            let text = part.split("```").next().unwrap();
            let spec: WorkloadSpec = toml::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            spec.build().unwrap_or_else(|error| panic!("{text}: {error}"));
            kinds.insert(spec.kind());
        }
        for spec in WorkloadSpec::all() {
            assert!(
                kinds.contains(spec.kind()),
                "docs/reference/workloads.md has no example of {}",
                spec.kind()
            );
            assert!(page.contains(&format!("### {}\n", spec.kind())), "{}", spec.kind());
        }
    }

    #[test]
    fn misspelled_parameters_are_reported() {
        for (text, expected) in [
            ("kind = \"iro\"", "unknown variant `iro`"),
            ("kind = \"ior\"\ntransfre = 1", "unknown field `transfre`"),
            ("kind = \"ior\"\ntransfer = -1", "-1 is negative"),
            ("kind = \"ior\"\ntransfer = \"64 KB\"", "is not a size"),
            ("ranks = 4", "missing field `kind`"),
        ] {
            let error = toml::from_str::<WorkloadSpec>(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
