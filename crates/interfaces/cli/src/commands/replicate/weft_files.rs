//! Replicas of Weft's own files.

use super::pace::{Pacing, Progress};
use super::show::View;
use super::{IN_USE, report};
use crate::commands::agent::{WeftCommand, Work};
use crate::commands::bytes;
use crate::commands::session::{Weft, why};
use crate::failure::Failure;
use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use weft_client::replicas::Purpose;
use weft_client::{Error, InodePath};
use weft_config::Cluster;
use weft_core::ClassLayout;
use weft_core::replicas::{DirtyRegions, Mapping, Phase};
use weft_core::units::human_bytes;
use weft_env::real::block_on;
use weft_wire::meta::{LayoutSpec, ReplicaInfo};

/// A file of Weft, and its replica if it has one.
pub struct WeftFile {
    weft: Rc<Weft>,
    inside: String,
    shown: String,
    info: Option<ReplicaInfo>,
}

/// Files of the cluster that applies, to which this connects when it is needed.
pub struct WeftFiles {
    /// `None` without a cluster.
    cluster: Option<Cluster>,
    weft: OnceCell<Rc<Weft>>,
}

impl WeftFiles {
    /// Files of the cluster in `file`, or of the one that is configured, if any.
    ///
    /// # Errors
    /// The named file is no cluster file.
    pub fn new(file: Option<PathBuf>) -> Result<Self, Failure> {
        let cluster = match file {
            Some(file) => Some(Cluster::load(&file)?),
            None => Cluster::from_env().ok(),
        };
        Ok(Self { cluster, weft: OnceCell::new() })
    }

    fn weft(&self, cluster: &Cluster) -> Result<Rc<Weft>, Failure> {
        if let Some(weft) = self.weft.get() {
            return Ok(Rc::clone(weft));
        }
        let weft = Rc::new(Weft::reach_for_transfer(cluster.clone())?);
        Ok(Rc::clone(self.weft.get_or_init(|| weft)))
    }

    /// Returns the user's files with replicas, or for root all; none without a cluster.
    pub fn list(&self) -> Result<Vec<WeftFile>, Failure> {
        let Some(cluster) = &self.cluster else { return Ok(Vec::new()) };
        let weft = self.weft(cluster)?;
        let found = block_on(weft.client.replicas())
            .map_err(|error| Failure::new("the replicas of Weft", why(&error)))?;
        Ok(found.into_iter().map(|info| WeftFile::of_info(&weft, info)).collect())
    }

    /// Returns the file at `path`; `None` if that is not a path of Weft.
    pub fn at(&self, path: &str) -> Result<Option<WeftFile>, Failure> {
        let Some(cluster) = self.cluster.as_ref().filter(|of| Path::new(path).starts_with(&of.mount)) else {
            return Ok(None);
        };
        let weft = self.weft(cluster)?;
        let Some(inside) = weft.strip(path).map(str::to_owned) else { return Ok(None) };
        let info = weft.at(&inside, true, |place| block_on(weft.client.replica(place)))?;
        let shown = weft.shown(&inside);
        Ok(Some(WeftFile { weft, inside, shown, info }))
    }
}

impl WeftFile {
    fn of_info(weft: &Rc<Weft>, info: ReplicaInfo) -> Self {
        let inside = bytes::text(&info.path);
        let shown = weft.shown(&inside);
        Self { weft: Rc::clone(weft), inside, shown, info: Some(info) }
    }

    /// Path with the mount's prefix.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Fails without a replica.
    pub fn require_replica(&self) -> Result<&ReplicaInfo, Failure> {
        self.info.as_ref().ok_or_else(|| {
            Failure::new(&self.shown, "it has no replica").remedy("`weft replicate list` shows all")
        })
    }

    /// Whether it has a replica that programs may use.
    pub fn has_valid_replica(&self) -> bool {
        self.info.as_ref().is_some_and(|info| info.phase == Phase::Valid)
    }

    /// Bytes of the replica.
    pub fn bytes(&self) -> u64 {
        self.info.as_ref().map_or(0, |info| info.spec.len.0)
    }

    fn dirty(&self) -> DirtyRegions {
        self.info.as_ref().map_or_else(
            || DirtyRegions::new(0),
            |info| DirtyRegions::from_bitmap(info.spec.len.0, &info.dirty),
        )
    }

    fn written_bytes(&self) -> u64 {
        let dirty = self.dirty();
        (dirty.count() * dirty.region_len()).min(self.bytes())
    }

    /// State in a word.
    fn state(&self) -> &'static str {
        match &self.info {
            None => "none",
            Some(info) => match info.phase {
                Phase::Copying => "incomplete",
                Phase::Outdated => "outdated",
                Phase::Valid if !info.dirty.is_empty() => "written",
                Phase::Valid => "valid",
            },
        }
    }

    fn place(&self) -> InodePath {
        InodePath::from_root(bytes::bytes(&self.inside), true)
    }

    fn failure(&self, error: &Error) -> Failure {
        let failure = Failure::new(&self.shown, why(error));
        match error.errno() {
            libc::EBUSY | libc::EAGAIN => failure.code(IN_USE),
            _ => failure,
        }
    }

    /// Mapping of the valid replica.
    pub fn mapping(&self) -> Result<Mapping, Failure> {
        block_on(self.weft.client.replica_mapping(&self.place())).map_err(|error| self.failure(&error))
    }

    /// Creates the replica and copies the file to it.
    pub fn create(
        &self,
        mapping: &Mapping,
        purpose: Purpose,
        layout: Option<ClassLayout>,
        pacing: Pacing,
    ) -> Result<(), Failure> {
        let mut progress = Progress::new(&self.shown, mapping.bytes(), pacing);
        let begin = std::time::Instant::now();
        let layout = LayoutSpec { by_class: layout, ..LayoutSpec::default() };
        let copied = block_on(self.weft.client.create_replica(
            &self.place(),
            mapping,
            purpose,
            &layout,
            &mut progress,
        ));
        progress.end();
        let copied = copied.map_err(|error| self.failure(&error))?;
        outln!(
            "{}: copied {} to the replica in {:.2} s",
            self.shown,
            human_bytes(copied),
            begin.elapsed().as_secs_f64()
        );
        Ok(())
    }

    /// Copies bytes that only the replica has to the file.
    pub fn synchronize(&self, pacing: Pacing) -> Result<(), Failure> {
        let mut progress = Progress::new(&self.shown, self.written_bytes(), pacing);
        let copied = block_on(self.weft.client.synchronize_replica(&self.place(), &mut progress));
        progress.end();
        if let Some(copied) = copied.map_err(|error| self.failure(&error))?.filter(|copied| *copied > 0) {
            outln!("{}: copied {} to the file", self.shown, human_bytes(copied));
        }
        Ok(())
    }

    /// Whether the replica has bytes that the file does not have. Otherwise says that it is valid.
    ///
    /// # Errors
    /// The replica is not used.
    pub fn needs_synchronization(&self) -> Result<bool, Failure> {
        match self.require_replica()?.phase {
            Phase::Valid if self.written_bytes() > 0 => Ok(true),
            Phase::Valid => {
                outln!("{}: the replica is valid", self.shown);
                Ok(false)
            }
            Phase::Copying | Phase::Outdated => {
                Err(Failure::new(&self.shown, format!("its replica is {}", self.state()))
                    .remedy("`weft replicate apply` with its plan makes it again"))
            }
        }
    }

    /// Copies bytes that only the replica has to the file, or says why the replica is not used.
    pub fn bring_up_to_date(&self, pacing: Pacing) -> Result<u8, Failure> {
        if self.needs_synchronization()? {
            self.synchronize(pacing)?;
        }
        Ok(0)
    }

    /// Work of the agent on this file.
    pub fn work(&self, command: WeftCommand) -> Result<Work, Failure> {
        Work::on_weft(&self.weft.cluster, self.shown.clone(), command)
    }

    /// Removes the replica.
    pub fn remove(&self, force: bool) -> Result<u8, Failure> {
        self.require_replica()?;
        let dropped = block_on(self.weft.client.drop_replica(&self.place(), force));
        dropped.map_err(|error| self.failure(&error))?;
        outln!("{}: the replica is removed", self.shown);
        Ok(0)
    }

    /// Compares file and replica.
    pub fn verify(&self) -> Result<u8, Failure> {
        self.require_replica()?;
        let mut progress = Progress::new(&self.shown, self.bytes(), Pacing::default());
        let compared = block_on(self.weft.client.verify_replica(&self.place(), &mut progress));
        progress.end();
        match compared.map_err(|error| self.failure(&error))? {
            Some(difference) => Ok(report(&self.shown, &difference)),
            None => {
                outln!("{}: not compared: the replica is {}", self.shown, self.state());
                Ok(0)
            }
        }
    }

    /// Returns what commands show; `whole` also reads the mapping and the size of the file, if they can be read.
    pub fn view(&self, whole: bool) -> View {
        let info = self.info.as_ref();
        let mapping = (whole && self.has_valid_replica()).then(|| self.mapping().ok()).flatten();
        let size = if whole { self.weft.stat(&self.inside, true).ok() } else { None };
        View {
            path: self.shown.clone(),
            state: self.state(),
            place: None,
            ranks: info.map_or(0, |info| info.spec.ranks),
            size: size.map_or(0, |attr| attr.size.0),
            bytes: self.bytes(),
            mapping: mapping.map(Arc::new),
            written: self.written_bytes() > 0,
            written_bytes: self.written_bytes(),
            dirty: Some(self.dirty()),
            in_use: info.is_some_and(|info| info.is_used && info.opens > 0),
        }
    }
}
