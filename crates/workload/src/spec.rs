//! Workloads as data.

use crate::error::SpecError;
use crate::ior::Ior;
use crate::mdtest::Mdtest;
use crate::mpi_io_test::MpiIoTest;
use crate::mpi_md_test::MpiMdTest;
use crate::op::Workload;
use serde::{Deserialize, Serialize};

/// A workload as an experiment or a command names it: `kind = "…"` and that kind's parameters, all of which have
/// defaults.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum WorkloadSpec {
    /// Ranks take turns along one file.
    MpiIoTest(MpiIoTest),
    /// Segments of blocks of transfers.
    Ior(Ior),
    /// Files of each rank made, looked at and removed.
    Mdtest(Mdtest),
    /// Files made, opened, resized and removed by collective calls.
    MpiMdTest(MpiMdTest),
}

impl WorkloadSpec {
    /// Every kind with its defaults, in the order of the documentation.
    pub fn all() -> Vec<Self> {
        vec![
            Self::MpiIoTest(MpiIoTest::default()),
            Self::Ior(Ior::default()),
            Self::Mdtest(Mdtest::default()),
            Self::MpiMdTest(MpiMdTest::default()),
        ]
    }

    /// The kind with its defaults.
    pub fn of_kind(kind: &str) -> Option<Self> {
        Self::all().into_iter().find(|spec| spec.kind() == kind)
    }

    /// As in `kind = "…"`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::MpiIoTest(_) => "mpi-io-test",
            Self::Ior(_) => "ior",
            Self::Mdtest(_) => "mdtest",
            Self::MpiMdTest(_) => "mpi-md-test",
        }
    }

    /// The number of processes, which a sweep changes.
    pub fn ranks_mut(&mut self) -> Option<&mut u32> {
        match self {
            Self::MpiIoTest(spec) => Some(&mut spec.ranks),
            Self::Ior(spec) => Some(&mut spec.ranks),
            Self::Mdtest(spec) => Some(&mut spec.ranks),
            Self::MpiMdTest(spec) => Some(&mut spec.ranks),
        }
    }

    /// The workload.
    ///
    /// # Errors
    /// Parameters that make no sense.
    pub fn build(&self) -> Result<Box<dyn Workload>, SpecError> {
        Ok(match self {
            Self::MpiIoTest(spec) => Box::new(spec.build()?),
            Self::Ior(spec) => Box::new(spec.build()?),
            Self::Mdtest(spec) => Box::new(spec.build()?),
            Self::MpiMdTest(spec) => Box::new(spec.build()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::Size;
    use crate::testing::well_formed;

    #[test]
    fn every_kind_builds_with_its_defaults_and_is_well_formed() {
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
    fn a_description_in_toml() {
        let spec: WorkloadSpec = toml::from_str(
            "kind = \"mpi-io-test\"\nranks = 512\nsize = \"65 KiB\"\noffset = 1024\ntotal = \"10 GiB\"\naccess = \"read\"",
        )
        .unwrap();
        let WorkloadSpec::MpiIoTest(spec) = spec else { panic!("{spec:?}") };
        assert_eq!((spec.ranks, spec.size, spec.offset), (512, Size(66_560), Size(1024)));
    }

    #[test]
    fn slips_of_the_pen_are_told() {
        for (text, told) in [
            ("kind = \"iro\"", "unknown variant `iro`"),
            ("kind = \"ior\"\ntransfre = 1", "unknown field `transfre`"),
            ("kind = \"ior\"\ntransfer = -1", "-1 is below zero"),
            ("kind = \"ior\"\ntransfer = \"64 KB\"", "is no size"),
            ("ranks = 4", "missing field `kind`"),
        ] {
            let error = toml::from_str::<WorkloadSpec>(text).unwrap_err().to_string();
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
