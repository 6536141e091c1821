//! The file with the replicas of a plan, for `weft replicate apply`.

use super::alternatives::{Kind, runs_to_pay};
use super::arrangement::Arrangement;
use super::decision::Decision;
use crate::figures::Figures;
use crate::placement::PlanPart;
use serde::{Deserialize, Serialize};
use std::str::FromStr;
use weft_core::replicas::{Grid, MappedExtent, Mapping, MappingError, Slot};
use weft_core::{ByteLen, ClassLayout, ClassPart, FileOffset};

/// Version of the file format.
const VERSION: u32 = 1;

/// Replicas to make.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaFile {
    /// Version of the file format.
    pub version: u32,
    /// Name of the trace.
    pub trace: String,
    /// Rule by which patterns were chosen.
    pub policy: String,
    /// Replicas.
    #[serde(default, rename = "replica")]
    pub replicas: Vec<PlannedReplica>,
}

/// A replica of a file.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedReplica {
    /// Path of the file.
    pub path: String,
    /// Number of processes of the traced program. Programs with another number do not use the replica. 0 if all do.
    pub ranks: u32,
    /// Why it is made.
    pub reason: String,
    /// Predicted time of a run without it, seconds.
    pub now_s: f64,
    /// Predicted time of a run with it, seconds.
    pub run_s: f64,
    /// Predicted time of the copy, seconds.
    pub copy_s: f64,
    /// Layout of the replica of a file of Weft; empty for that of a new file in its directory. On mounted file systems,
    /// replicas have no layouts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layout: Vec<PlanPart>,
    /// Where each byte lies: extents, `START+LENGTH>PLACE`, and grids,
    /// `START/PERIOD*COUNT OFFSET+LENGTH>PLACE ...`, in bytes.
    pub mapping: Vec<String>,
}

/// Why a file of replicas cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReplicaFileError {
    /// It is not TOML with these keys.
    #[error("{0}")]
    Syntax(toml::de::Error),
    /// It has another version.
    #[error("it has version {0}, and this Weft reads version {VERSION}")]
    Version(u32),
    /// A line of a mapping is wrong.
    #[error(
        "mapping of {path}: {line:?} is neither START+LENGTH>PLACE nor START/PERIOD*COUNT OFFSET+LENGTH>PLACE ..."
    )]
    Line {
        /// Path of the replicated file.
        path: String,
        /// The line.
        line: String,
    },
    /// A mapping contradicts itself.
    #[error("mapping of {path}: {error}")]
    Mapping {
        /// Path of the replicated file.
        path: String,
        /// The contradiction.
        error: MappingError,
    },
}

impl ReplicaFile {
    /// Creates a file without replicas.
    pub fn new(trace: &str, policy: &str) -> Self {
        Self { version: VERSION, trace: trace.to_owned(), policy: policy.to_owned(), replicas: Vec::new() }
    }

    /// Formats the file.
    ///
    /// # Panics
    /// Never: all keys and values have a form in TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).expect("every value has a form in TOML")
    }

    /// Reads a file. Mappings are read one by one with [`PlannedReplica::mapping`].
    ///
    /// # Errors
    /// Wrong syntax, or another version.
    pub fn of_toml(text: &str) -> Result<Self, ReplicaFileError> {
        let file: Self = toml::from_str(text).map_err(ReplicaFileError::Syntax)?;
        if file.version == VERSION { Ok(file) } else { Err(ReplicaFileError::Version(file.version)) }
    }
}

impl PlannedReplica {
    /// Number of runs after which the saved time exceeds that of the copy; `None` if never.
    pub fn pays_after(&self) -> Option<u64> {
        runs_to_pay(self.copy_s, self.now_s - self.run_s)
    }

    /// Returns the layout of the replica; `None` for that of a new file.
    ///
    /// # Errors
    /// Parts that are not consecutive, and other reasons why they are no layout.
    pub fn class_layout(&self) -> Result<Option<ClassLayout>, String> {
        if self.layout.is_empty() {
            return Ok(None);
        }
        let (mut parts, mut next) = (Vec::new(), Some(0));
        for part in &self.layout {
            if next != Some(part.from.0) {
                return Err(format!("layout of {}: parts that do not follow each other", self.path));
            }
            next = part.to.map(|to| to.0);
            let stripes = part.stripes.iter().map(|(class, size)| (class.clone(), ByteLen(size.0)));
            parts.push(ClassPart { end: part.to.map(|to| FileOffset(to.0)), stripes: stripes.collect() });
        }
        ClassLayout::new(parts).map(Some).map_err(|error| format!("layout of {}: {error}", self.path))
    }

    /// Sets the mapping.
    pub fn set_mapping(&mut self, mapping: &Mapping) {
        let extents =
            mapping.extents().iter().map(|MappedExtent { start, len, at }| format!("{start}+{len}>{at}"));
        let mut slots = mapping.slots();
        let grids = mapping.grids().iter().map(|grid| {
            let (own, rest) = slots.split_at(grid.slots as usize);
            slots = rest;
            let own = own.iter().map(|Slot { offset, len, at }| format!(" {offset}+{len}>{at}"));
            format!("{}/{}*{}{}", grid.start, grid.period, grid.count, own.collect::<String>())
        });
        self.mapping = extents.chain(grids).collect();
    }

    /// Returns the mapping.
    ///
    /// # Errors
    /// A line is wrong, or lines contradict each other.
    pub fn mapping(&self) -> Result<Mapping, ReplicaFileError> {
        let (mut extents, mut grids) = (Vec::new(), Vec::new());
        for line in &self.mapping {
            let wrong = || ReplicaFileError::Line { path: self.path.clone(), line: line.clone() };
            if let Some(extent) = extent(line) {
                extents.push(extent);
            } else {
                grids.push(grid(line).ok_or_else(wrong)?);
            }
        }
        extents.sort_unstable();
        grids.sort_by_key(|(grid, _)| grid.start);
        let slots = grids.iter().flat_map(|(_, slots)| slots.iter().copied()).collect();
        let grids = grids.iter().map(|(grid, _)| *grid).collect();
        Mapping::new(extents, grids, slots)
            .map_err(|error| ReplicaFileError::Mapping { path: self.path.clone(), error })
    }
}

fn parse<T: FromStr>(text: &str) -> Option<T> {
    text.trim().parse().ok()
}

/// Reads `FIRST+LENGTH>PLACE`.
fn piece(text: &str) -> Option<[u64; 3]> {
    let (first, rest) = text.split_once('+')?;
    let (len, at) = rest.split_once('>')?;
    Some([parse(first)?, parse(len)?, parse(at)?])
}

fn extent(text: &str) -> Option<MappedExtent> {
    piece(text).map(|[start, len, at]| MappedExtent { start, len, at })
}

fn grid(text: &str) -> Option<(Grid, Vec<Slot>)> {
    let mut words = text.split_whitespace();
    let (start, rest) = words.next()?.split_once('/')?;
    let (period, count) = rest.split_once('*')?;
    let slot = |word| piece(word).map(|[offset, len, at]| Slot { offset, len, at });
    let slots = words.map(slot).collect::<Option<Vec<_>>>()?;
    let number = u32::try_from(slots.len()).ok()?;
    Some((Grid { start: parse(start)?, period: parse(period)?, count: parse(count)?, slots: number }, slots))
}

impl Arrangement {
    /// Returns the mapping of a file, if object `i` of the arrangement begins at `starts[i]` of its replica.
    ///
    /// # Errors
    /// Objects overlap, or pieces are too many.
    pub fn mapping(&self, file: u32, starts: &[u64]) -> Result<Mapping, MappingError> {
        Mapping::of_pieces(self.pieces_of(file, starts).collect())
    }
}

impl Decision {
    /// Returns the replica of the file `path`, which has number `file` in the trace, for programs with `ranks` processes;
    /// `None` if no replica was chosen. For a file of Weft, `figures` are those of its cluster. A mounted file system gives
    /// replicas its own layout, so that gaps between the objects gain nothing.
    ///
    /// # Errors
    /// The mapping has too many pieces.
    pub fn planned_replica(
        &self,
        file: u32,
        path: &str,
        ranks: u32,
        figures: Option<&Figures>,
    ) -> Result<Option<PlannedReplica>, MappingError> {
        let Some(chosen) = self.alternative(self.chosen).filter(|chosen| chosen.kind.is_replica()) else {
            return Ok(None);
        };
        let starts = match (chosen.kind, figures) {
            (Kind::ByServer, Some(_)) => self.arrangement.starts_by_server().0,
            _ => self.arrangement.starts_in_sequence(),
        };
        let layout = match (chosen.kind, figures) {
            (Kind::ByServer | Kind::OwnLayout, Some(figures)) => chosen.placement.to_plan(figures),
            _ => Vec::new(),
        };
        let mut replica = PlannedReplica {
            path: path.to_owned(),
            ranks,
            reason: self.reason.clone(),
            now_s: self.now_s(),
            run_s: chosen.run_s(),
            copy_s: chosen.copy_s,
            layout,
            mapping: Vec::new(),
        };
        replica.set_mapping(&self.arrangement.mapping(file, &starts)?);
        Ok(Some(replica))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bytes;
    use crate::mix::Direction;
    use crate::sample::Request;

    #[test]
    fn mappings_survive_the_file() {
        let strided =
            (0..40).map(|n| Request::new(n % 4, 0, Direction::Read, u64::from(n) * 100, 100, (0, 1)));
        let odd =
            [(9000, 7), (9100, 50)].map(|(at, len)| Request::new(1, 0, Direction::Write, at, len, (0, 1)));
        let requests: Vec<Request> = strided.chain(odd).collect();
        let arrangement = Arrangement::of(&requests);
        let mapping = arrangement.mapping(0, &arrangement.starts_in_sequence()).expect("a mapping");
        assert_eq!((mapping.bytes(), mapping.replica_len()), (arrangement.bytes(), arrangement.bytes()));
        assert_eq!((mapping.grids().len(), mapping.extents().len()), (1, 2));
        let mut replica = PlannedReplica {
            path: "/scratch/field \"1\"".to_owned(),
            ranks: 4,
            reason: "2 times as fast".to_owned(),
            now_s: 3.0,
            run_s: 1.0,
            copy_s: 5.0,
            layout: vec![PlanPart {
                from: Bytes(0),
                to: None,
                stripes: [("hdd".to_owned(), Bytes(65_536))].into(),
                targets: [].into(),
            }],
            mapping: Vec::new(),
        };
        replica.set_mapping(&mapping);
        let file = ReplicaFile { replicas: vec![replica], ..ReplicaFile::new("app.wtrace", "best") };
        let read = ReplicaFile::of_toml(&file.to_toml()).expect("a file");
        assert_eq!(read, file);
        assert_eq!(read.replicas[0].mapping().expect("a mapping"), mapping);
        assert_eq!(read.replicas[0].pays_after(), Some(3));
        let layout = read.replicas[0].class_layout().expect("a layout").expect("one of its own");
        assert_eq!(layout.parts()[0].stripes, [("hdd".to_owned(), ByteLen(65_536))]);
        let mut gap = read.replicas[0].clone();
        gap.layout[0].from = Bytes(1);
        assert!(gap.class_layout().expect_err("begins late").contains("layout of /scratch/field"));
    }

    #[test]
    fn wrong_lines_and_versions_are_named() {
        let with = |line: &str| {
            let text = format!(
                "version = 1\ntrace = \"t\"\npolicy = \"best\"\n[[replica]]\npath = \"/f\"\nranks = 1\nreason = \"\"\n\
                 now_s = 1.0\nrun_s = 1.0\ncopy_s = 0.0\nmapping = [\"0+10>0\", \"{line}\"]\n"
            );
            ReplicaFile::of_toml(&text).expect("a file").replicas[0].mapping()
        };
        assert!(with("10+5>20").is_ok());
        let text = |line| with(line).expect_err("is wrong").to_string();
        assert!(text("10+5").contains("mapping of /f: \"10+5\" is neither"));
        assert!(text("10/5*2").contains("empty or too long"));
        assert!(text("5+5>20").contains("overlap"));
        let old = "version = 7\ntrace = \"t\"\npolicy = \"best\"\n";
        assert!(ReplicaFile::of_toml(old).expect_err("another version").to_string().contains("version 7"));
    }
}
