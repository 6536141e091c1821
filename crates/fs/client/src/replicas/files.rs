//! A replica on its file system.

use super::format::{self, BYPASSED_AT, CUTTING_AT, MARKS_AT, WRITTEN_AT};
use super::transfer::{Bytes, Difference, Pace, Side, compare, copy, runs_after, windows};
use crate::error::{Error, ReplicaFailure, Result};
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use weft_core::replicas::{DirtyRegions, Mapping, Phase};
use weft_core::{ByteLen, LocalOffset, Nanos, Timestamp};
use weft_env::{Dir, Env, File, FileMeta, OpenMode};
use weft_wire::Errno;
use xxhash_rust::xxh3::xxh3_64;

/// Maximum lag of the file system's clock behind a change. With a greater lag, attributes may not show the next change.
const CLOCK_LAG_MAX: Nanos = Nanos::from_ms(2500);

/// Attributes by which a change of the original shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Inode number.
    pub inode: u64,
    /// Size.
    pub size: ByteLen,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Last change of contents or attributes.
    pub ctime: Timestamp,
}

impl From<FileMeta> for Identity {
    fn from(meta: FileMeta) -> Self {
        Self { inode: meta.inode, size: meta.len, mtime: meta.mtime, ctime: meta.ctime }
    }
}

/// Contents of the state file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaInfo {
    /// State.
    pub phase: Phase,
    /// Number of processes whose requests the replica serves; 0 for any number.
    pub ranks: u32,
    /// The original, when the replica last had its bytes.
    pub original: Identity,
    /// Hash of the mapping.
    pub mapping_hash: u64,
    /// Path of the original when the replica was created.
    pub path: Vec<u8>,
}

/// The original of a replica.
pub struct Origin<E: Env> {
    /// Open file, at least for reading.
    pub file: E::File,
    /// Opens the file for writing.
    pub writable: OpenForWriting<E>,
}

/// Opens the original of a replica for writing.
pub type OpenForWriting<E> = Box<dyn Fn() -> io::Result<<E as Env>::File> + Send + Sync>;

impl<E: Env> Origin<E> {
    /// Returns the attributes that show changes.
    ///
    /// # Errors
    /// Errors of fstat(2).
    pub async fn identity(&self) -> io::Result<Identity> {
        Ok(self.file.meta().await?.into())
    }
}

/// Contents of `written`.
#[derive(Clone, Debug)]
pub struct Written {
    /// Whether anything was written to original or replica since the last synchronization.
    pub any: bool,
    /// Whether the present users do not use the replica.
    pub bypassed: bool,
    /// Whether a process ended while it cut the original.
    pub cutting: bool,
    /// Regions of the replica that were written.
    pub regions: DirtyRegions,
}

/// An open replica. Nothing of it is locked.
pub struct Replica<E: Env> {
    env: E,
    dir: E::Dir,
    id: String,
    /// Path for messages.
    shown: String,
    mapping: Arc<Mapping>,
    data: E::File,
    written: E::File,
}

/// A file of the host in a transfer.
struct HostBytes<'a, E: Env> {
    file: &'a E::File,
    replica: &'a Replica<E>,
}

impl<E: Env> Bytes for HostBytes<'_, E> {
    async fn read(&self, buffer: &mut [u8], at: u64) -> Result<()> {
        let read = self.file.read_at(&mut [IoSliceMut::new(buffer)], LocalOffset(at)).await;
        read.map(drop).map_err(|error| self.replica.failure(&error))
    }

    async fn write(&self, slices: &[IoSlice<'_>], at: u64) -> Result<()> {
        self.file.write_at(slices, LocalOffset(at)).await.map_err(|error| self.replica.failure(&error))
    }
}

impl<E: Env> Replica<E> {
    fn bytes_of<'a>(&'a self, file: &'a E::File) -> HostBytes<'a, E> {
        HostBytes { file, replica: self }
    }

    /// Copies all mapped bytes before `size` to the replica.
    pub(super) async fn fill(&self, original: &E::File, size: ByteLen, pace: &mut impl Pace) -> Result<u64> {
        let (original, data) = (self.bytes_of(original), self.bytes_of(&self.data));
        let mut copied = 0;
        for window in windows(&self.mapping, size, None) {
            copied += copy((&original, Side::Original), (&data, Side::Replica), &window, pace).await?;
        }
        Ok(copied)
    }

    /// Copies these regions of the replica to the original, up to `size`.
    pub(super) async fn copy_back(
        &self,
        original: &E::File,
        size: ByteLen,
        regions: &DirtyRegions,
        pace: &mut impl Pace,
    ) -> Result<u64> {
        let (original, data) = (self.bytes_of(original), self.bytes_of(&self.data));
        let mut copied = 0;
        for window in windows(&self.mapping, size, Some(regions)) {
            self.beat().await?;
            copied += copy((&data, Side::Replica), (&original, Side::Original), &window, pace).await?;
        }
        Ok(copied)
    }

    /// Writes zeros where mapped bytes lie at or after `size`.
    pub(super) async fn clear_after(&self, size: ByteLen) -> Result<()> {
        for (at, len) in runs_after(&self.mapping, size) {
            let cleared = self.data.punch(LocalOffset(at), ByteLen(len)).await;
            cleared.map_err(|error| self.failure(&error))?;
        }
        Ok(())
    }

    /// Compares all mapped bytes before `size`, except these regions of the replica.
    pub(super) async fn compare(
        &self,
        original: &E::File,
        size: ByteLen,
        except: &DirtyRegions,
        pace: &mut impl Pace,
    ) -> Result<Difference> {
        let sides = (&self.bytes_of(original), &self.bytes_of(&self.data));
        compare(&self.mapping, sides, size, except, pace).await
    }

    /// Opens replica `id` in `dir`, the directory `.weft/replicas` at path `place`.
    ///
    /// # Errors
    /// Errors of the file system; ENOENT without such a replica; EIO if a file of it is damaged or missing.
    pub async fn open(env: E, dir: E::Dir, place: &str, id: &str) -> Result<Self> {
        let shown = format!("{place}/{id}");
        let name = |file: &str| format!("{id}.{file}");
        let info = read_state::<E>(&dir, id, &shown).await?;
        let incomplete = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => refused(&shown, Errno::EIO, "a file of it is missing"),
            _ => failure(&shown, &error),
        };
        let bytes = read_file::<E>(&dir, &name("mapping")).await.map_err(incomplete)?;
        let Some(mapping) = format::decode_mapping(&bytes) else {
            return Err(refused(&shown, Errno::EIO, "its mapping is damaged"));
        };
        if info.mapping_hash != xxh3_64(&bytes) {
            return Err(refused(&shown, Errno::EIO, "its mapping is not the one that it was made with"));
        }
        let data = dir.open(&name("data"), OpenMode::WRITE).await.map_err(incomplete)?;
        let written = dir.open(&name("written"), OpenMode::WRITE).await.map_err(incomplete)?;
        let id = id.to_owned();
        Ok(Self { env, dir, id, shown, mapping: Arc::new(mapping), data, written })
    }

    /// Creates a replica without bytes. It is durable on return. Remains of an interrupted creation or removal are
    /// replaced.
    ///
    /// # Errors
    /// Errors of the file system; EEXIST if the file has a replica.
    pub async fn create(
        env: E,
        dir: E::Dir,
        place: &str,
        id: &str,
        mapping: &Mapping,
        info: &ReplicaInfo,
    ) -> Result<Self> {
        let shown = format!("{place}/{id}");
        let failed = |error: io::Error| failure(&shown, &error);
        if list::<E>(&dir).await.map_err(failed)?.iter().any(|known| known == id) {
            const WHY: &str = "the file has a replica; `weft replicate drop` removes it";
            return Err(refused(&shown, Errno::EEXIST, WHY));
        }
        let bytes = format::encode_mapping(mapping);
        let info = ReplicaInfo { phase: Phase::Copying, mapping_hash: xxh3_64(&bytes), ..info.clone() };
        let create = async |file: &str, bytes: &[u8], len: u64| {
            let file = dir.open(&format!("{id}.{file}"), OpenMode::CREATE).await?;
            file.set_len(ByteLen(0)).await?;
            file.write_at(&[IoSlice::new(bytes)], LocalOffset(0)).await?;
            file.set_len(ByteLen(len)).await?;
            file.sync().await
        };
        create("mapping", &bytes, bytes.len() as u64).await.map_err(failed)?;
        create("data", &[], mapping.replica_len()).await.map_err(failed)?;
        create("written", &[], MARKS_AT).await.map_err(failed)?;
        create("users", &[], 0).await.map_err(failed)?;
        dir.sync("").await.map_err(failed)?;
        // The replica exists as soon as its state does.
        replace_state::<E>(&dir, id, &info).await.map_err(failed)?;
        Self::open(env, dir, place, id).await
    }

    /// Removes a replica: its state first, so that an interrupted removal leaves no damaged replica. Nobody may use it;
    /// [`Usage::remove`](super::Usage::remove) checks that.
    ///
    /// # Errors
    /// Errors of the file system.
    pub async fn remove(dir: &E::Dir, place: &str, id: &str) -> Result<()> {
        let remove = async {
            remove_file::<E>(dir, &format!("{id}.state")).await?;
            dir.sync("").await?;
            for file in ["mapping", "data", "written", "clock", "appenders", "state.new", "users"] {
                remove_file::<E>(dir, &format!("{id}.{file}")).await?;
            }
            dir.sync("").await
        };
        remove.await.map_err(|error| failure(&format!("{place}/{id}"), &error))
    }

    /// Returns the state.
    ///
    /// # Errors
    /// Errors of the file system; EIO if it is damaged.
    pub async fn info(&self) -> Result<ReplicaInfo> {
        read_state::<E>(&self.dir, &self.id, &self.shown).await
    }

    /// Replaces the state, durably.
    pub(super) async fn set_info(&self, info: &ReplicaInfo) -> Result<()> {
        replace_state::<E>(&self.dir, &self.id, info).await.map_err(|error| self.failure(&error))
    }

    /// Waits until a later change of the original gets another time than `seen` has. Returns false if the clock of the
    /// file system is too coarse for that.
    pub(super) async fn clock_has_passed(&self, seen: &Identity) -> Result<bool> {
        let last = seen.mtime.max(seen.ctime);
        let begin = self.env.now();
        let name = format!("{}.clock", self.id);
        let clock = self.dir.open(&name, OpenMode::CREATE).await.map_err(|error| self.failure(&error))?;
        loop {
            let look = async {
                clock.write_at(&[IoSlice::new(&[0])], LocalOffset(0)).await?;
                clock.meta().await
            };
            if look.await.map_err(|error| self.failure(&error))?.mtime > last {
                return Ok(true);
            }
            if self.env.now().saturating_sub(begin) > CLOCK_LAG_MAX {
                return Ok(false);
            }
            self.env.sleep(Nanos::from_ms(1)).await;
        }
    }

    /// Returns what was written since the last synchronization.
    ///
    /// # Errors
    /// Errors of the file system.
    pub async fn written(&self) -> Result<Written> {
        let mut regions = DirtyRegions::new(self.mapping.replica_len());
        let mut bytes =
            vec![0; MARKS_AT as usize + regions.regions(0, self.mapping.replica_len()).end as usize];
        let read = self.written.read_at(&mut [IoSliceMut::new(&mut bytes)], LocalOffset(0)).await;
        read.map_err(|error| self.failure(&error))?;
        for (number, _) in (0..).zip(&bytes[MARKS_AT as usize..]).filter(|(_, mark)| **mark != 0) {
            regions.insert(number);
        }
        let flag = |at: u64| bytes[at as usize] != 0;
        Ok(Written {
            any: flag(WRITTEN_AT) || !regions.is_empty(),
            bypassed: flag(BYPASSED_AT),
            cutting: flag(CUTTING_AT),
            regions,
        })
    }

    /// Marks bytes of `written`, durably if asked.
    pub(super) async fn mark(&self, at: u64, count: u64, durably: bool) -> Result<()> {
        let marks = vec![1; count as usize];
        let mark = async {
            self.written.write_at(&[IoSlice::new(&marks)], LocalOffset(at)).await?;
            if durably { self.written.sync().await } else { Ok(()) }
        };
        mark.await.map_err(|error| self.failure(&error))
    }

    /// Sets a byte of `written`, durably.
    async fn set_byte(&self, at: u64, byte: bool) -> Result<()> {
        let set = async {
            self.written.write_at(&[IoSlice::new(&[u8::from(byte)])], LocalOffset(at)).await?;
            self.written.sync().await
        };
        set.await.map_err(|error| self.failure(&error))
    }

    /// Sets whether the present users use the replica. Only a holder of the exclusive lock may.
    pub(super) async fn set_bypassed(&self, bypassed: bool) -> Result<()> {
        self.set_byte(BYPASSED_AT, bypassed).await
    }

    /// Notes that the original is being cut, or is no longer.
    pub(super) async fn set_cutting(&self, cutting: bool) -> Result<()> {
        self.set_byte(CUTTING_AT, cutting).await
    }

    /// Notes durably that something was written.
    pub(super) async fn mark_written(&self) -> Result<()> {
        self.mark(WRITTEN_AT, 1, true).await
    }

    /// Notes that this process writes.
    pub(super) async fn beat(&self) -> Result<()> {
        self.mark(WRITTEN_AT, 1, false).await
    }

    /// Forgets all marks, durably.
    pub(super) async fn forget_marks(&self) -> Result<()> {
        let forget = async {
            self.written.set_len(ByteLen(0)).await?;
            self.written.set_len(ByteLen(MARKS_AT)).await?;
            self.written.sync().await
        };
        forget.await.map_err(|error| self.failure(&error))
    }

    /// Time of the last write to the replica, or of its marks.
    pub(super) async fn last_write(&self) -> Result<Timestamp> {
        let times = async { Ok(self.data.meta().await?.mtime.max(self.written.meta().await?.mtime)) };
        times.await.map_err(|error: io::Error| self.failure(&error))
    }

    /// The lock of the processes that have the file open.
    pub(super) async fn users(&self) -> Result<Box<dyn weft_env::SharedLock>> {
        let lock = self.dir.shared_lock(&format!("{}.users", self.id)).await;
        lock.map_err(|error| self.failure(&error))
    }

    /// Whether this is still the replica of this name. It may have been removed, or replaced by another, since it was opened.
    pub(super) async fn is_current(&self) -> Result<bool> {
        match self.dir.meta(&format!("{}.data", self.id)).await {
            Ok(named) => {
                let own = self.data.meta().await.map_err(|error| self.failure(&error))?;
                Ok(named.inode == own.inode)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(self.failure(&error)),
        }
    }

    /// Error of a replica that was removed since it was opened.
    pub(super) fn removed(&self) -> Error {
        refused(&self.shown, Errno::ENOENT, "it was removed meanwhile")
    }

    /// Removes this replica. The caller holds the lock exclusively.
    pub(super) async fn remove_this(&self) -> Result<()> {
        let place = self.shown.strip_suffix(&format!("/{}", self.id)).unwrap_or(&self.shown);
        Self::remove(&self.dir, place, &self.id).await
    }

    /// Whether no process has the file open.
    ///
    /// # Errors
    /// Errors of the file system.
    pub async fn is_unused(&self) -> Result<bool> {
        // Closing it releases it again.
        self.users().await?.try_acquire(true).map_err(|error| self.failure(&error))
    }

    /// The lock of a process that appends to the file.
    pub(super) async fn appenders(&self) -> Result<Box<dyn weft_env::SharedLock>> {
        let lock = self.dir.shared_lock(&format!("{}.appenders", self.id)).await;
        lock.map_err(|error| self.failure(&error))
    }

    /// The mapping.
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// The file with the bytes.
    pub fn data(&self) -> &E::File {
        &self.data
    }

    /// Path for messages.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// The environment.
    pub(super) fn env(&self) -> &E {
        &self.env
    }

    /// Error of the operating system on a file of the replica.
    pub(super) fn failure(&self, error: &io::Error) -> Error {
        failure(&self.shown, error)
    }

    /// EIO with a reason.
    pub(super) fn refused(&self, why: &str) -> Error {
        refused(&self.shown, Errno::EIO, why)
    }
}

fn failure(shown: &str, error: &io::Error) -> Error {
    let errno = Errno(error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::NotFound => Errno::ENOENT.0,
        _ => Errno::EIO.0,
    }));
    Error::Replica(Box::new(ReplicaFailure { replica: shown.to_owned(), errno, why: error.to_string() }))
}

fn refused(shown: &str, errno: Errno, why: &str) -> Error {
    Error::Replica(Box::new(ReplicaFailure { replica: shown.to_owned(), errno, why: why.to_owned() }))
}

async fn read_file<E: Env>(dir: &E::Dir, name: &str) -> io::Result<Vec<u8>> {
    let file = dir.open(name, OpenMode::READ).await?;
    let len = file.meta().await?.len.0;
    // A mapping has at most that length.
    let len_max = 64 + 24 * weft_core::replicas::SLOTS_MAX as u64;
    if len > len_max {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; len as usize];
    let read = file.read_at(&mut [IoSliceMut::new(&mut bytes)], LocalOffset(0)).await?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Returns the names of the replicas in a directory, sorted.
///
/// # Errors
/// Errors of the file system.
pub async fn list<E: Env>(dir: &E::Dir) -> io::Result<Vec<String>> {
    let names = dir.list("").await?;
    Ok(names.iter().filter_map(|name| Some(name.strip_suffix(".state")?.to_owned())).collect())
}

/// Returns the id of the replica of the file with this inode number.
pub fn replica_id(inode: u64) -> String {
    format!("{inode:x}")
}

/// Returns the inode number of the file whose replica has this id.
pub fn replicated_inode(id: &str) -> Option<u64> {
    u64::from_str_radix(id, 16).ok()
}

/// Whether anything was written since replica `id` in `dir` was synchronized. Reads no mapping.
///
/// # Errors
/// Errors of the file system.
pub async fn is_written<E: Env>(dir: &E::Dir, id: &str) -> io::Result<bool> {
    let mut bytes = read_file::<E>(dir, &format!("{id}.written")).await?;
    for (_, flag) in (0..MARKS_AT).zip(&mut bytes).filter(|(at, _)| *at != WRITTEN_AT) {
        *flag = 0;
    }
    Ok(bytes.iter().any(|byte| *byte != 0))
}

async fn remove_file<E: Env>(dir: &E::Dir, name: &str) -> io::Result<()> {
    match dir.remove(name).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

async fn replace_state<E: Env>(dir: &E::Dir, id: &str, info: &ReplicaInfo) -> io::Result<()> {
    let draft = format!("{id}.state.new");
    let file = dir.open(&draft, OpenMode::CREATE).await?;
    file.set_len(ByteLen(0)).await?;
    file.write_at(&[IoSlice::new(&format::encode_state(info))], LocalOffset(0)).await?;
    file.sync().await?;
    dir.rename(&draft, &format!("{id}.state")).await?;
    dir.sync("").await
}

/// Returns the state of replica `id` in `dir`, whose path is `place`.
///
/// # Errors
/// Errors of the file system; EIO if it is damaged.
pub async fn read_info<E: Env>(dir: &E::Dir, place: &str, id: &str) -> Result<ReplicaInfo> {
    read_state::<E>(dir, id, &format!("{place}/{id}")).await
}

async fn read_state<E: Env>(dir: &E::Dir, id: &str, shown: &str) -> Result<ReplicaInfo> {
    let bytes = read_file::<E>(dir, &format!("{id}.state")).await;
    let bytes = bytes.map_err(|error| failure(shown, &error))?;
    format::decode_state(&bytes).ok_or_else(|| refused(shown, Errno::EIO, "its state is damaged"))
}
