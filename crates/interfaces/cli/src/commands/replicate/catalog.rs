//! The replicas of a user, and where they lie.

use super::show::View;
use crate::failure::Failure;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weft_client::replicas::{
    Identity, Origin, Replica, ReplicaInfo, Unpaced, Usage, is_written, list_replicas, read_info, replica_id,
    replicated_inode,
};
use weft_config::replicas::{REPLICAS_FOLDER, list_replica_directory, replica_directories, replica_list};
use weft_core::replicas::{DirtyRegions, Mapping};
use weft_core::units::human_bytes;
use weft_env::real::{RealDir, RealEnv, RealFile, block_on};
use weft_env::{Dir, Env, File};

/// Free space that a replica leaves on its file system.
const SPARE: u64 = 64 << 20;

/// Directories with replicas.
pub struct Catalog {
    directories: Vec<PathBuf>,
    /// File with the directories of the user.
    list: Option<PathBuf>,
}

impl Catalog {
    /// Returns the directories in which the user has replicas.
    pub fn of_user() -> Result<Self, Failure> {
        let list = replica_list().ok_or_else(|| {
            Failure::misuse("HOME", "without a home directory, the list of replicas has no place")
                .remedy("set HOME")
        })?;
        let directories = replica_directories(&list).map_err(|error| Failure::new(list.display(), error))?;
        Ok(Self { directories, list: Some(list) })
    }

    /// Returns these directories.
    pub fn of(directories: &[PathBuf]) -> Self {
        Self { directories: directories.to_vec(), list: None }
    }

    /// The directories.
    pub fn directories(&self) -> &[PathBuf] {
        &self.directories
    }

    /// Adds a directory to the user's list.
    pub fn add(&self, directory: &Path) -> Result<(), Failure> {
        let Some(list) = &self.list else { return Ok(()) };
        list_replica_directory(list, directory, true)
            .map_err(|error| Failure::new(directory.display(), error))
    }

    /// Returns all replicas. Directories that are gone have none.
    pub fn entries(&self) -> Result<Vec<Entry>, Failure> {
        self.entries_if(|_, _| Ok(true))
    }

    /// Returns the replicas that were written since they were synchronized. Mappings of others are not read.
    fn written(&self) -> Result<Vec<Entry>, Failure> {
        self.entries_if(|place, id| {
            block_on(is_written::<RealEnv>(&place.dir()?, id))
                .map_err(|error| Failure::new(place.shown(), error))
        })
    }

    fn entries_if(
        &self,
        is_wanted: impl Fn(&Place, &str) -> Result<bool, Failure>,
    ) -> Result<Vec<Entry>, Failure> {
        let mut entries = Vec::new();
        for directory in &self.directories {
            let place = Place::of_directory(directory);
            for id in place.list()? {
                match is_wanted(&place, &id)
                    .and_then(|wanted| wanted.then(|| Entry::read(&place, &id)).transpose())
                {
                    Ok(entry) => entries.extend(entry),
                    Err(failure) => errln!("{failure}"),
                }
            }
        }
        Ok(entries)
    }

    /// Returns the replica of a file, or the replica at this path.
    pub fn find(file: &Path) -> Result<Entry, Failure> {
        Self::look(file)?.ok_or_else(|| {
            Failure::new(file.display(), "it has no replica").remedy("`weft replicate list` shows all")
        })
    }

    /// Returns the replica of a file, or the replica at this path, if there is one.
    pub fn look(file: &Path) -> Result<Option<Entry>, Failure> {
        if let Some(folder) = file.parent().filter(|folder| folder.ends_with(REPLICAS_FOLDER)) {
            let directory = folder.ancestors().nth(2).unwrap_or(folder);
            let id = file.file_name().unwrap_or_default().to_string_lossy();
            return Entry::read(&Place::of_directory(directory), &id).map(Some);
        }
        let place = Place::beside(file)?;
        let id = place.id();
        let found = match place.list()?.contains(&id) {
            true => Some(place),
            // Renamed to another directory.
            false => Self::of_user()?.directories.iter().map(|dir| Place::of_directory(dir)).find(|other| {
                other.list().is_ok_and(|ids| ids.contains(&id)) && other.device() == place.device()
            }),
        };
        found.map(|place| Entry::read(&place, &id)).transpose()
    }
}

/// Synchronizes the replicas of a user that nobody uses, and says what it cannot do.
pub fn synchronize_all() {
    let Ok(entries) = Catalog::of_user().and_then(|catalog| catalog.written()) else { return };
    for entry in entries.iter().filter(|entry| !entry.in_use) {
        let Some(place) = entry.original() else { continue };
        let done = entry.open().and_then(|replica| {
            block_on(Usage::synchronize(replica, place.origin()?, false, &mut Unpaced)).map_err(Failure::said)
        });
        if let Err(failure) = done {
            errln!("{failure}");
        }
    }
}

/// A directory that may have replicas, and the file in question.
pub struct Place {
    directory: PathBuf,
    file: Option<(PathBuf, std::fs::Metadata)>,
}

impl Place {
    /// The place of replicas of `file`.
    pub fn beside(file: &Path) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::new(file.display(), error);
        let file = file.canonicalize().map_err(failed)?;
        let meta = file.metadata().map_err(failed)?;
        if !meta.is_file() {
            return Err(Failure::misuse(file.display(), "it is not a regular file"));
        }
        let directory = file.parent().unwrap_or(Path::new("/")).to_owned();
        Ok(Self { directory, file: Some((file, meta)) })
    }

    /// The replicas in a directory.
    pub fn of_directory(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), file: None }
    }

    /// Directory that contains `.weft`.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn folder(&self) -> PathBuf {
        self.directory.join(REPLICAS_FOLDER)
    }

    /// Path of the replicas.
    pub fn shown(&self) -> String {
        self.folder().to_string_lossy().into_owned()
    }

    /// Name of the file's replica.
    pub fn id(&self) -> String {
        replica_id(self.file.as_ref().map_or(0, |(_, meta)| meta.ino()))
    }

    /// Path of the file.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_ref().map(|(path, _)| path.as_path())
    }

    /// Path of the file with the bytes of a replica.
    pub fn data_path(&self, id: &str) -> PathBuf {
        self.folder().join(format!("{id}.data"))
    }

    fn device(&self) -> Option<u64> {
        match &self.file {
            Some((_, meta)) => Some(meta.dev()),
            None => self.directory.metadata().ok().map(|meta| meta.dev()),
        }
    }

    /// Names of the replicas.
    pub fn list(&self) -> Result<Vec<String>, Failure> {
        let folder = self.folder();
        if !folder.exists() {
            return Ok(Vec::new());
        }
        let list =
            block_on(RealEnv::new().dir(&folder)).and_then(|dir| block_on(list_replicas::<RealEnv>(&dir)));
        list.map_err(|error| Failure::new(folder.display(), error))
    }

    fn dir(&self) -> Result<RealDir, Failure> {
        let folder = self.folder();
        block_on(RealEnv::new().dir(&folder)).map_err(|error| Failure::new(folder.display(), error))
    }

    /// Opens a replica.
    pub fn open(&self, id: &str) -> Result<Replica<RealEnv>, Failure> {
        let shown = self.shown();
        block_on(Replica::open(RealEnv::new(), self.dir()?, &shown, id)).map_err(Failure::said)
    }

    /// Removes a replica.
    pub fn remove(&self, id: &str) -> Result<(), Failure> {
        block_on(Replica::<RealEnv>::remove(&self.dir()?, &self.shown(), id)).map_err(Failure::said)
    }

    /// Creates the folder of the replicas, readable only by the user.
    pub fn create(&self) -> Result<RealDir, Failure> {
        let folder = self.folder();
        let failed = |error: io::Error| Failure::new(folder.display(), error);
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed)?;
        let meta = folder.metadata().map_err(failed)?;
        if meta.permissions().mode() & 0o077 != 0 {
            return Err(
                Failure::new(folder.display(), "other users may read or change it").remedy("chmod 700 it")
            );
        }
        if Some(meta.dev()) != self.device() {
            return Err(Failure::new(folder.display(), "it lies on another file system than the file"));
        }
        self.dir()
    }

    /// Checks that the file system has room for a replica.
    pub fn check_space(&self, bytes: u64) -> Result<(), Failure> {
        let dir = block_on(RealEnv::new().dir(&self.directory));
        let failed = |error: io::Error| Failure::new(self.directory.display(), error);
        let free = block_on(dir.map_err(failed)?.space()).map_err(failed)?.free.0;
        if free < bytes.saturating_add(SPARE) {
            return Err(Failure::new(
                self.directory.display(),
                format!("the replica needs {}, and {} are free", human_bytes(bytes), human_bytes(free)),
            )
            .remedy("free some space, or give a smaller --budget to `weft plan --replicas`"));
        }
        Ok(())
    }

    fn open_file(path: &Path) -> io::Result<RealFile> {
        Ok(RealEnv::new().file(std::fs::File::open(path)?.into()))
    }

    /// Opens the file.
    pub fn origin(&self) -> Result<Origin<RealEnv>, Failure> {
        let Some((path, _)) = &self.file else { unreachable!("only places of files are opened") };
        let file = Self::open_file(path).map_err(|error| Failure::new(path.display(), error))?;
        let again = file.clone();
        let writable = move || {
            let own = format!("/proc/self/fd/{}", again.as_raw_fd());
            let file = std::fs::OpenOptions::new().read(true).write(true).open(own)?;
            Ok(RealEnv::new().file(file.into()))
        };
        Ok(Origin { file, writable: Box::new(writable) })
    }

    /// Attributes of the file.
    pub fn identity(&self) -> Result<Identity, Failure> {
        let origin = self.origin()?;
        block_on(origin.file.meta())
            .map(Identity::from)
            .map_err(|error| Failure::new(self.directory.display(), error))
    }

    /// Removes the folder, and the directory from the user's list, if no replica is left.
    pub fn forget_if_empty(&self) -> Result<(), Failure> {
        if !self.list()?.is_empty() {
            return Ok(());
        }
        let folder = self.folder();
        // Only empty ones.
        let _ = std::fs::remove_dir(&folder);
        let _ = folder.parent().map(std::fs::remove_dir);
        let Some(list) = replica_list() else { return Ok(()) };
        list_replica_directory(&list, &self.directory, false)
            .map_err(|error| Failure::new(list.display(), error))
    }
}

/// A replica with its state.
pub struct Entry {
    /// Where it lies.
    pub place: Place,
    /// Name.
    pub id: String,
    /// State.
    pub info: ReplicaInfo,
    /// Path of the original when the replica was created.
    pub path: String,
    /// Mapping; `None` if it is damaged.
    pub mapping: Option<Arc<Mapping>>,
    /// Whether anything was written since the last synchronization.
    pub written: bool,
    /// Regions that were.
    pub regions: Option<DirtyRegions>,
    /// Whether a program has the file open.
    pub in_use: bool,
}

impl Entry {
    /// Returns what commands show.
    pub fn view(&self) -> View {
        View {
            path: self.path.clone(),
            state: self.state(),
            place: Some(self.shown()),
            ranks: self.info.ranks,
            size: self.info.original.size.0,
            bytes: self.bytes(),
            mapping: self.mapping.clone(),
            written: self.written,
            written_bytes: self.written_bytes(),
            dirty: self.regions.clone(),
            in_use: self.in_use,
        }
    }

    fn read(place: &Place, id: &str) -> Result<Self, Failure> {
        let place = Place::of_directory(place.directory());
        let info =
            block_on(read_info::<RealEnv>(&place.dir()?, &place.shown(), id)).map_err(Failure::said)?;
        let path = String::from_utf8_lossy(&info.path).into_owned();
        let mut this = Self {
            place,
            id: id.to_owned(),
            info,
            path,
            mapping: None,
            written: false,
            regions: None,
            in_use: false,
        };
        match this.place.open(id) {
            Ok(replica) => {
                let written = block_on(replica.written()).map_err(Failure::said)?;
                this.in_use = !block_on(replica.is_unused()).map_err(Failure::said)?;
                this.mapping = Some(Arc::clone(replica.mapping()));
                (this.written, this.regions) = (written.any, Some(written.regions));
            }
            Err(failure) => errln!("{failure}"),
        }
        Ok(this)
    }

    /// Path of the replica.
    pub fn shown(&self) -> String {
        format!("{}/{}", self.place.shown(), self.id)
    }

    /// Bytes of the replica.
    pub fn bytes(&self) -> u64 {
        self.mapping.as_ref().map_or(0, |mapping| mapping.bytes())
    }

    /// Bytes of regions that were written.
    pub fn written_bytes(&self) -> u64 {
        let regions = self.regions.as_ref().map_or(0, |regions| regions.count() * regions.region_len());
        regions.min(self.bytes())
    }

    /// State in a word.
    pub fn state(&self) -> &'static str {
        use weft_client::replicas::Phase;
        match self.info.phase {
            _ if self.mapping.is_none() => "damaged",
            Phase::Copying => "incomplete",
            Phase::Outdated => "outdated",
            Phase::Valid if self.original().is_none() => "orphan",
            Phase::Valid if self.written => "written",
            Phase::Valid if self.is_changed() => "outdated",
            Phase::Valid => "valid",
        }
    }

    /// Whether another program has changed the original.
    pub fn is_changed(&self) -> bool {
        !self.in_use
            && self
                .original()
                .is_some_and(|place| place.identity().is_ok_and(|now| now != self.info.original))
    }

    /// Opens the replica.
    pub fn open(&self) -> Result<Replica<RealEnv>, Failure> {
        self.place.open(&self.id)
    }

    /// Returns the place with the original; `None` if it was removed, or replaced by another file.
    pub fn original(&self) -> Option<Place> {
        let path = std::ffi::OsStr::from_bytes(&self.info.path);
        let by_path = Place::beside(Path::new(path)).ok();
        let is_it = |place: &Place| place.id() == self.id && place.device() == self.place.device();
        let found = by_path.filter(is_it).or_else(|| self.renamed())?;
        Some(Place { directory: self.place.directory.clone(), ..found })
    }

    /// Returns the original if it was renamed within its directory.
    fn renamed(&self) -> Option<Place> {
        let inode = replicated_inode(&self.id)?;
        let entries = std::fs::read_dir(self.place.directory()).ok()?;
        let found = entries.flatten().find(|entry| {
            use std::os::unix::fs::DirEntryExt;
            entry.ino() == inode && entry.file_type().is_ok_and(|kind| kind.is_file())
        })?;
        Place::beside(&found.path()).ok()
    }

    /// Error of a replica whose original is gone.
    pub fn without_original(&self) -> Failure {
        let what = match self.written {
            true => {
                "its file was removed, replaced or moved to another directory, and it has bytes that the file does not have"
            }
            false => "its file was removed, replaced or moved to another directory",
        };
        Failure::new(self.shown(), what).remedy("`weft replicate drop --force` removes the replica")
    }
}
