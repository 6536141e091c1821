//! Replicas of Weft's own files.

use super::pace::Progress;
use super::show::Drawn;
use super::{IN_USE, processes, report};
use crate::commands::bytes;
use crate::commands::session::{Weft, why};
use crate::failure::Failure;
use serde_json::{Value, json};
use weft_client::{Error, InodePath};
use weft_config::Cluster;
use weft_core::replicas::{DirtyRegions, Mapping};
use weft_core::units::human_bytes;
use weft_core::{ByteLen, ClassLayout};
use weft_env::real::block_on;
use weft_wire::meta::{LayoutSpec, ReplicaInfo, ReplicaPhase};

/// A file of Weft, and its replica if it has one.
pub struct WeftFile {
    weft: std::rc::Rc<Weft>,
    inside: String,
    shown: String,
    info: Option<ReplicaInfo>,
}

/// Returns the user's files with replicas, or for root all; none without a cluster.
pub fn list() -> Result<Vec<WeftFile>, Failure> {
    if Cluster::find().is_err() {
        return Ok(Vec::new());
    }
    let weft = std::rc::Rc::new(Weft::open(None)?);
    let found = block_on(weft.client.replicas())
        .map_err(|error| Failure::new("the replicas of Weft", why(&error)))?;
    Ok(found.into_iter().map(|info| WeftFile::of_info(&weft, info)).collect())
}

impl WeftFile {
    fn of_info(weft: &std::rc::Rc<Weft>, info: ReplicaInfo) -> Self {
        let inside = bytes::text(&info.path);
        let shown = weft.shown(&inside);
        Self { weft: std::rc::Rc::clone(weft), inside, shown, info: Some(info) }
    }

    /// Returns the file at `path`; `None` if that is not a path of Weft.
    pub fn of_path(path: &str) -> Result<Option<Self>, Failure> {
        let Ok(cluster) = Cluster::from_env() else { return Ok(None) };
        if !std::path::Path::new(path).starts_with(&cluster.mount) {
            return Ok(None);
        }
        let weft = std::rc::Rc::new(Weft::open(None)?);
        let Some(inside) = weft.strip(path).map(str::to_owned) else { return Ok(None) };
        let info = weft.at(&inside, true, |place| block_on(weft.client.replica(place)))?;
        let shown = weft.shown(&inside);
        Ok(Some(Self { weft, inside, shown, info }))
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
        self.info.as_ref().is_some_and(|info| info.phase == ReplicaPhase::Valid)
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
                ReplicaPhase::Copying => "incomplete",
                ReplicaPhase::Outdated => "outdated",
                ReplicaPhase::Valid if !info.dirty.is_empty() => "written",
                ReplicaPhase::Valid => "valid",
            },
        }
    }

    fn ask<T>(&self, ask: impl Fn(&InodePath) -> weft_client::Result<T>) -> Result<T, Failure> {
        let path = InodePath::from_root(bytes::bytes(&self.inside), true);
        ask(&path).map_err(|error| self.failure(&error))
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
        self.ask(|at| block_on(self.weft.client.replica_mapping(at)))
    }

    /// Creates the replica and copies the file to it.
    pub fn create(
        &self,
        mapping: &Mapping,
        ranks: u32,
        layout: Option<ClassLayout>,
        rate: Option<ByteLen>,
    ) -> Result<(), Failure> {
        let mut progress = Progress::new(&self.shown, mapping.bytes(), rate);
        let begin = std::time::Instant::now();
        let layout = LayoutSpec { by_class: layout, ..LayoutSpec::default() };
        let path = InodePath::from_root(bytes::bytes(&self.inside), true);
        let copied = block_on(self.weft.client.create_replica(&path, mapping, ranks, &layout, &mut progress));
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
    pub fn synchronize(&self, rate: Option<ByteLen>) -> Result<(), Failure> {
        let path = InodePath::from_root(bytes::bytes(&self.inside), true);
        let mut progress = Progress::new(&self.shown, self.written_bytes(), rate);
        let copied = block_on(self.weft.client.synchronize_replica(&path, &mut progress));
        progress.end();
        if let Some(copied) = copied.map_err(|error| self.failure(&error))?.filter(|copied| *copied > 0) {
            outln!("{}: copied {} to the file", self.shown, human_bytes(copied));
        }
        Ok(())
    }

    /// Copies bytes that only the replica has to the file, or says why the replica is not used.
    pub fn bring_up_to_date(&self, rate: Option<ByteLen>) -> Result<u8, Failure> {
        match self.require_replica()?.phase {
            ReplicaPhase::Valid if self.written_bytes() > 0 => self.synchronize(rate)?,
            ReplicaPhase::Valid => outln!("{}: the replica is valid", self.shown),
            ReplicaPhase::Copying | ReplicaPhase::Outdated => {
                return Err(Failure::new(&self.shown, format!("its replica is {}", self.state()))
                    .remedy("`weft replicate apply` with its plan makes it again"));
            }
        }
        Ok(0)
    }

    /// Removes the replica.
    pub fn remove(&self, force: bool) -> Result<u8, Failure> {
        self.require_replica()?;
        self.ask(|at| block_on(self.weft.client.drop_replica(at, force)))?;
        outln!("{}: the replica is removed", self.shown);
        Ok(0)
    }

    /// Compares file and replica.
    pub fn verify(&self) -> Result<u8, Failure> {
        self.require_replica()?;
        let path = InodePath::from_root(bytes::bytes(&self.inside), true);
        let mut progress = Progress::new(&self.shown, self.bytes(), None);
        let compared = block_on(self.weft.client.verify_replica(&path, &mut progress));
        progress.end();
        match compared.map_err(|error| self.failure(&error))? {
            Some(difference) => Ok(report(&self.shown, &difference)),
            None => {
                outln!("{}: not compared: the replica is {}", self.shown, self.state());
                Ok(0)
            }
        }
    }

    /// Row of `weft replicate list`.
    pub fn as_row(&self) -> [String; 7] {
        let info = self.info.as_ref();
        [
            self.shown.clone(),
            self.state().to_owned(),
            processes(info.map_or(0, |info| info.spec.ranks)),
            human_bytes(self.bytes()),
            human_bytes(self.written_bytes()),
            if info.is_some_and(|info| info.is_used && info.opens > 0) { "yes" } else { "no" }.to_owned(),
            "on Weft".to_owned(),
        ]
    }

    /// Object of `--json`.
    pub fn as_json(&self) -> Value {
        let info = self.info.as_ref();
        let mapping = self.has_valid_replica().then(|| self.mapping().ok()).flatten();
        json!({
            "file": self.shown,
            "state": self.state(),
            "processes": info.map_or(0, |info| info.spec.ranks),
            "bytes": self.bytes(),
            "mapping_bytes": mapping.as_ref().map(Mapping::encoded_len),
            "extents": mapping.as_ref().map(|mapping| mapping.extents().len()),
            "grids": mapping.as_ref().map(|mapping| mapping.grids().len()),
            "written": self.written_bytes() > 0,
            "written_bytes": self.written_bytes(),
            "in_use": info.is_some_and(|info| info.is_used && info.opens > 0),
            "replica": Value::Null,
        })
    }

    /// Calls `show` with what `weft replicate show` shows.
    pub fn draw(&self, show: impl FnOnce(&Drawn<'_>)) -> Result<(), Failure> {
        let info = self.require_replica()?;
        let mapping = if self.has_valid_replica() { Some(self.mapping()?) } else { None };
        let dirty = self.dirty();
        show(&Drawn {
            path: &self.shown,
            state: self.state(),
            replica: None,
            ranks: info.spec.ranks,
            size: self.weft.stat(&self.inside, true)?.size.0,
            mapping: mapping.as_ref(),
            written_bytes: self.written_bytes(),
            dirty: Some(&dirty),
        });
        Ok(())
    }
}
