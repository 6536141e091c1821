//! A target: one storage path of a server, with its identity, its lock and the operations on its datafiles.

mod beside;
mod device;
mod fences;
mod format;
mod lease;
mod list;
mod prepare;
mod scrub;
mod seals;
mod tombstones;

use crate::compressed::{self, ChunkCache, MapReserve};
use crate::content::{Content, Fault, NullModule, Upkeep, sums_name};
use crate::datafile::{Datafile, DatafileKey, OpenDatafiles, fan_name};
use crate::emulate::{self, Emulation, Emulator};
use crate::error::{DatafileError, TargetError, is_full};
use crate::identity::Identity;
use crate::range_lock::{RangeGuard, RangeLocks};
pub use beside::LogNote;
use fences::Fences;
use parking_lot::Mutex;
pub use prepare::DatafileFormat;
pub use scrub::{Damage, FOLD_IDLE, SEAL_AFTER, SEAL_IDLE, ScrubStep};
use seals::Seals;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tombstones::Tombstones;
pub use weft_core::Module;
use weft_core::{ByteLen, ClusterId, DeviceLoad, FileId, Integrity, LocalOffset, TargetId, Timestamp};
use weft_env::device::DeviceAction;
use weft_env::mutants::{self, Mutant, is_seeded};
use weft_env::{Create, Dir, Env, File, FileMeta, Shared, Space};

/// Maximum length of a datafile in bytes: the maximum of the system's file offsets.
pub const DATAFILE_LEN_MAX: u64 = i64::MAX as u64;

/// Specification of a target to open.
#[derive(Clone, Debug)]
pub struct TargetSpec {
    /// Number of the target in the cluster.
    pub id: TargetId,
    /// Name of the cluster.
    pub cluster: String,
    /// Directory of the target; must exist.
    pub path: PathBuf,
    /// I/O module.
    pub module: Module,
    /// Maximum number of datafiles held open.
    pub open_datafiles_max: usize,
    /// Modeled device whose service times requests take; `None` for those of the real device.
    pub emulate: Option<Emulation>,
    /// Default checksum setting of new datafiles; a file's own setting overrides it.
    pub integrity: Integrity,
}

/// Source for sending a datafile without a copy.
#[derive(Clone, Debug)]
pub enum ToSend<F> {
    /// The open datafile and its length.
    File(F, ByteLen),
    /// The datafile does not exist.
    Missing,
    /// The bytes must be read into memory, because the module or the datafile's format needs them.
    Bytes,
}

/// An open target, exclusive to this process.
///
/// A missing datafile reads as empty. Only writing and extending create it.
pub struct Target<E: Env> {
    env: E,
    dir: E::Dir,
    id: TargetId,
    path: PathBuf,
    module: Module,
    integrity: Integrity,
    open: OpenDatafiles<E>,
    /// True if datafiles may have checksums.
    has_sums: AtomicBool,
    /// True if datafiles may be compressed.
    has_compressed: AtomicBool,
    /// False in simulations that keep payload lengths only and have no model of compression.
    may_compress: bool,
    /// Locked, per number of the datafile, while one that may have several files is opened, created or removed.
    opening: RangeLocks<E>,
    upkeep: Arc<Upkeep<E>>,
    /// Decompressed chunks of all datafiles.
    chunk_cache: Arc<ChunkCache>,
    /// Space for the maps of compressed datafiles.
    map_reserve: Arc<MapReserve<E>>,
    null: NullModule,
    emulator: Option<Emulator<E>>,
    tombstones: Tombstones<E>,
    fences: Fences<E>,
    seals: Seals<E>,
    had_leases: bool,
    leases_marked: AtomicBool,
    lock: Mutex<Option<Box<dyn Send + Sync>>>,
}

impl<E: Env> Target<E> {
    /// Opens the target, and formats it if its directory is blank, without asking a metadata server.
    ///
    /// # Errors
    /// [`TargetError`], with the remedy.
    pub async fn open(env: &E, spec: &TargetSpec) -> Result<Self, TargetError> {
        let mut unattached = Self::inspect(env, spec).await?;
        if unattached.found.is_none() {
            unattached.store(&Identity::new(&spec.cluster, spec.id)).await?;
        }
        unattached.open().await
    }

    /// Locks the target's directory and reads its identity. Changes nothing.
    ///
    /// # Errors
    /// [`TargetError`], with the remedy.
    pub async fn inspect(env: &E, spec: &TargetSpec) -> Result<Unattached<E>, TargetError> {
        let path = spec.path.clone();
        let io = |doing| {
            let path = path.clone();
            move |source| TargetError::Io { path, doing, source }
        };
        let dir = env.dir(&spec.path).await.map_err(io("open the target"))?;
        let lock = match dir.lock(format::LOCK).await {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(TargetError::Locked { path });
            }
            Err(error) => return Err(io("lock the target")(error)),
        };
        let found = format::inspect(&dir, spec).await?;
        Ok(Unattached { env: env.clone(), dir, lock, spec: spec.clone(), found })
    }

    /// Returns true if the directory exists and has an identity file.
    pub async fn has_identity(env: &E, path: &Path) -> bool {
        match env.dir(path).await {
            Ok(dir) => dir.meta(crate::identity::NAME).await.is_ok(),
            Err(_) => false,
        }
    }

    /// Returns the cluster that the target in this directory belongs to; `None` without a readable identity, or if the
    /// target is older than identities of clusters.
    pub async fn cluster_of(env: &E, path: &Path) -> Option<ClusterId> {
        let dir = env.dir(path).await.ok()?;
        format::read_identity(&dir, path)
            .await
            .ok()
            .flatten()
            .map(|found| found.cluster_id)
            .filter(|id| !id.is_none())
    }
}

/// A locked target directory, before the metadata service has accepted the target.
pub struct Unattached<E: Env> {
    env: E,
    dir: E::Dir,
    lock: Box<dyn Send + Sync>,
    spec: TargetSpec,
    found: Option<Identity>,
}

impl<E: Env> Unattached<E> {
    /// Returns the target's identity; `None` if the directory is blank.
    pub fn found(&self) -> Option<&Identity> {
        self.found.as_ref()
    }

    /// Stores the identity durably. Creates the folders of a blank directory first.
    ///
    /// # Errors
    /// Errors of the file system.
    pub async fn store(&mut self, identity: &Identity) -> Result<(), TargetError> {
        if self.found.is_none() {
            format::make_folders(&self.dir, &self.spec).await?;
        }
        format::store(&self.dir, &self.spec.path, identity).await?;
        self.found = Some(*identity);
        Ok(())
    }

    /// Opens the target.
    ///
    /// # Errors
    /// Errors of the file system.
    ///
    /// # Panics
    /// When the directory is blank.
    pub async fn open(self) -> Result<Target<E>, TargetError> {
        assert!(self.found.is_some(), "a blank directory is not a target");
        let Self { env, dir, lock, spec, .. } = self;
        let (env, spec, path) = (&env, &spec, spec.path.clone());
        let io = |doing| {
            let path = path.clone();
            move |source| TargetError::Io { path, doing, source }
        };
        if spec.module == Module::Direct {
            format::probe_direct(&dir, &spec.path).await?;
        }
        let tombstones =
            Tombstones::open(env, &dir).await.map_err(io("read the tombstones of removed datafiles"))?;
        let fences = Fences::open(&dir, seconds(env)).await.map_err(io("read the fences"))?;
        let seals = Seals::open(&dir, seconds(env)).await.map_err(io("read the seals of moved datafiles"))?;
        let had_leases = dir.meta(format::LEASED).await.is_ok();
        let exists = async |name| match dir.meta(name).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        };
        let has_sums = exists(format::SUMS).await.map_err(io("check for checksums"))?;
        let has_compressed =
            exists(format::COMPRESSED).await.map_err(io("check for compressed datafiles"))?;
        let map_reserve = Arc::new(MapReserve::new(env, &dir));
        if has_compressed {
            map_reserve.allocate().await;
        }
        Ok(Target {
            env: env.clone(),
            dir,
            id: spec.id,
            path: spec.path.clone(),
            module: spec.module,
            integrity: spec.integrity,
            open: OpenDatafiles::new(spec.open_datafiles_max),
            has_sums: AtomicBool::new(has_sums),
            has_compressed: AtomicBool::new(has_compressed),
            may_compress: env.hollow(1).is_none() || env.coding().is_some(),
            opening: RangeLocks::new(env),
            upkeep: Arc::new(Upkeep::new(env)),
            chunk_cache: Arc::default(),
            map_reserve,
            null: NullModule::default(),
            emulator: spec.emulate.as_ref().map(|emulation| Emulator::new(env, emulation)),
            tombstones,
            fences,
            seals,
            had_leases,
            leases_marked: AtomicBool::new(had_leases),
            lock: Mutex::new(Some(lock)),
        })
    }
}

impl<E: Env> Target<E> {
    /// Releases the target's lock, so that another process can open it. The target must not be used afterwards.
    pub fn release(&self) {
        drop(self.lock.lock().take());
    }

    /// Returns the target's directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the target's I/O module.
    pub fn module(&self) -> Module {
        self.module
    }

    /// Returns true if the previous process ended without recalling its leases, so clients may use their descriptors
    /// until the leases run out.
    pub fn had_leases(&self) -> bool {
        self.had_leases
    }

    /// Returns the number of open datafiles.
    pub fn open_count(&self) -> usize {
        self.open.len()
    }

    /// Returns the space of the underlying file system.
    ///
    /// # Errors
    /// Errors of the file system.
    pub async fn space(&self) -> Result<Space, DatafileError> {
        let path = self.path.display().to_string();
        self.dir.space().await.map_err(|error| DatafileError::new(path, "ask for the free space", error))
    }

    /// Returns the load of the disk; `None` without a local block device.
    pub fn device_load(&self) -> Option<DeviceLoad> {
        self.dir.device_load()
    }

    /// Reads until `buf` is full or the datafile ends. Returns the number of bytes and the datafile's length.
    ///
    /// # Errors
    /// Errors of the device; damaged bytes.
    pub async fn read(
        &self,
        key: DatafileKey,
        offset: LocalOffset,
        buf: &mut [u8],
    ) -> Result<(usize, ByteLen), DatafileError> {
        let Some(datafile) = self.open_existing(key).await? else { return Ok((0, ByteLen(0))) };
        datafile.content.read(offset, buf).await.map_err(|fault| self.fault(key, "read", fault))
    }

    /// Returns the source for sending a datafile without a copy of its bytes.
    ///
    /// # Errors
    /// Errors of the device.
    pub async fn file_to_send(&self, key: DatafileKey) -> Result<ToSend<E::File>, DatafileError> {
        if !self.sends_files() {
            return Ok(ToSend::Bytes);
        }
        let Some(datafile) = self.open_existing(key).await? else { return Ok(ToSend::Missing) };
        let Some(file) = datafile.content.raw_descriptor() else { return Ok(ToSend::Bytes) };
        let meta = file.meta().await.map_err(|error| self.error(key, "read", error))?;
        Ok(ToSend::File(file.clone(), meta.len))
    }

    /// Writes all of `bytes`. On an error, some may have been written.
    ///
    /// # Errors
    /// Errors of the device; damaged bytes.
    ///
    /// # Panics
    /// Past [`DATAFILE_LEN_MAX`].
    pub async fn write(
        &self,
        key: DatafileKey,
        offset: LocalOffset,
        bytes: &[u8],
    ) -> Result<(), DatafileError> {
        check_end(offset, bytes.len());
        let datafile = self.open_or_create(key).await?;
        let mut written = datafile.content.write(offset, bytes).await;
        if self.may_fit_now(&written).await {
            written = datafile.content.write(offset, bytes).await;
        }
        written.map_err(|fault| self.fault(key, "write", fault))?;
        if is_seeded(Mutant::ResurrectedBytes) {
            self.resurrect(&datafile, offset.0).await;
        }
        Ok(())
    }

    /// Returns true if a write that found the device full should be repeated: compressed datafiles have released space
    /// that truncations and overwrites have freed since their last sync.
    async fn may_fit_now(&self, written: &Result<(), Fault>) -> bool {
        match written {
            Err(Fault::Io(error)) if is_full(error) && self.has_compressed.load(Ordering::Acquire) => {}
            _ => return false,
        }
        let mut is_released = false;
        for key in self.upkeep.unsettled() {
            if let Some(datafile) = self.open.get(key)
                && let Content::Compressed(compressed) = &datafile.content
            {
                is_released |= Box::pin(compressed.release()).await;
            }
        }
        is_released
    }

    /// Sets the modification time of a datafile. Used after writing back bytes that were written earlier.
    ///
    /// # Errors
    /// Errors of the device.
    pub async fn set_mtime(&self, key: DatafileKey, mtime: Timestamp) -> Result<(), DatafileError> {
        let Some(datafile) = self.open_existing(key).await? else { return Ok(()) };
        let set = datafile.content.set_mtime(mtime).await;
        set.map_err(|fault| self.fault(key, "set the modification time", fault))
    }

    /// Writes bytes of a shared memory area, as [`write`](Self::write) does; without a copy if the format allows.
    ///
    /// # Errors
    /// Errors of the device; damaged bytes.
    ///
    /// # Panics
    /// Past [`DATAFILE_LEN_MAX`], or outside `shared`.
    pub async fn write_shared(
        &self,
        key: DatafileKey,
        offset: LocalOffset,
        shared: &E::Shared,
        from: usize,
        len: usize,
    ) -> Result<(), DatafileError> {
        check_end(offset, len);
        assert!(from.checked_add(len).is_some_and(|end| end <= shared.len()), "inside the shared area");
        let datafile = self.open_or_create(key).await?;
        let mut written = datafile.content.write_shared(offset, shared, from, len).await;
        if self.may_fit_now(&written).await {
            written = datafile.content.write_shared(offset, shared, from, len).await;
        }
        written.map_err(|fault| self.fault(key, "write", fault))
    }

    /// Reads up to `len` bytes into shared memory at `to`. Returns the number of bytes, and the datafile's length if
    /// the read reached its end.
    ///
    /// # Errors
    /// Errors of the device; damaged bytes.
    ///
    /// # Panics
    /// Past [`DATAFILE_LEN_MAX`], or outside `shared`.
    pub async fn read_shared(
        &self,
        key: DatafileKey,
        offset: LocalOffset,
        shared: &E::Shared,
        to: usize,
        len: usize,
    ) -> Result<(usize, Option<ByteLen>), DatafileError> {
        assert!(to.checked_add(len).is_some_and(|end| end <= shared.len()), "inside the shared area");
        let Some(datafile) = self.open_existing(key).await? else { return Ok((0, Some(ByteLen(0)))) };
        let read = datafile.content.read_shared(offset, shared, to, len).await;
        read.map_err(|fault| self.fault(key, "read", fault))
    }

    /// Returns length, allocated space and modification time; `None` if the datafile is missing.
    ///
    /// # Errors
    /// Errors of the device.
    pub async fn meta(&self, key: DatafileKey) -> Result<Option<FileMeta>, DatafileError> {
        const DOING: &str = "read the length";
        if let Some(datafile) = self.open.get(key) {
            return datafile.content.meta().await.map(Some).map_err(|fault| self.fault(key, DOING, fault));
        }
        // The length of a compressed datafile is in its map, and the null module has no files.
        if self.has_compressed.load(Ordering::Acquire) || self.module == Module::Null {
            let Some(datafile) = self.open_existing(key).await? else { return Ok(None) };
            return datafile.content.meta().await.map(Some).map_err(|fault| self.fault(key, DOING, fault));
        }
        match self.dir.meta(&key.name()).await {
            Ok(meta) => Ok(Some(meta)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.not_removed(key).map(|()| None),
            Err(error) => Err(self.error(key, DOING, error)),
        }
    }

    /// Truncates or extends a datafile. Length zero does not create a missing one.
    ///
    /// # Errors
    /// Errors of the device; damaged bytes.
    pub async fn set_len(&self, key: DatafileKey, len: ByteLen) -> Result<(), DatafileError> {
        assert!(len.0 <= DATAFILE_LEN_MAX, "the caller checks lengths");
        let datafile = match len {
            ByteLen(0) => match self.open_existing(key).await? {
                Some(datafile) => datafile,
                None => return Ok(()),
            },
            _ => self.open_or_create(key).await?,
        };
        if is_seeded(Mutant::ResurrectedBytes) {
            let mut tail = vec![0; 4096];
            let read = datafile.content.read(LocalOffset(len.0), &mut tail).await;
            mutants::save(self.mutant_key(key), len.0, &tail[..read.map_or(0, |(got, _)| got)]);
        }
        let set = datafile.content.set_len(len).await;
        set.map_err(|fault| self.fault(key, "set the length", fault))?;
        if len == ByteLen(0) {
            self.upkeep.forgive(key);
        }
        Ok(())
    }

    /// Punches a hole of `len` bytes, clipped at the end of the datafile; its length stays. Does nothing if it is
    /// missing.
    ///
    /// # Errors
    /// Errors of the device, or a file system without holes; damaged bytes.
    ///
    /// # Panics
    /// Past [`DATAFILE_LEN_MAX`].
    pub async fn punch(
        &self,
        key: DatafileKey,
        offset: LocalOffset,
        len: ByteLen,
    ) -> Result<(), DatafileError> {
        assert!(offset.0.checked_add(len.0).is_some_and(|end| end <= DATAFILE_LEN_MAX), "the caller checks");
        if len == ByteLen(0) {
            return Ok(());
        }
        let Some(datafile) = self.open_existing(key).await? else { return Ok(()) };
        let punched = datafile.content.punch(offset, len).await;
        punched.map_err(|fault| self.fault(key, "punch a hole", fault))
    }

    /// Returns the first byte at or after `offset` that is not in a hole; `None` if there is none.
    ///
    /// # Errors
    /// Errors of the device.
    pub async fn seek_data(
        &self,
        key: DatafileKey,
        offset: LocalOffset,
    ) -> Result<Option<LocalOffset>, DatafileError> {
        let Some(datafile) = self.open_existing(key).await? else { return Ok(None) };
        datafile.content.seek_data(offset).await.map_err(|fault| self.fault(key, "look for data", fault))
    }

    /// Returns the first byte at or after `offset` that is in a hole. The end of the datafile counts as a hole.
    ///
    /// # Errors
    /// Errors of the device.
    pub async fn seek_hole(
        &self,
        key: DatafileKey,
        offset: LocalOffset,
    ) -> Result<LocalOffset, DatafileError> {
        let Some(datafile) = self.open_existing(key).await? else { return Ok(offset) };
        datafile.content.seek_hole(offset).await.map_err(|fault| self.fault(key, "look for a hole", fault))
    }

    /// Makes a datafile and its name survive a loss of power. Does nothing if it is missing.
    ///
    /// # Errors
    /// Errors of the device; written bytes may then be lost.
    pub async fn sync(&self, key: DatafileKey) -> Result<(), DatafileError> {
        if self.module == Module::Null || is_seeded(Mutant::UnsyncedReply) {
            return Ok(());
        }
        if self.upkeep.is_unsafe(key) {
            return Err(self.fault(key, "sync", Fault::Unsafe));
        }
        let Some(datafile) = self.open_existing(key).await? else { return Ok(()) };
        datafile.content.sync(&datafile.names).await.map_err(|fault| {
            // A compressed datafile records by itself whether bytes may be lost.
            if !matches!(datafile.content, Content::Compressed(_)) {
                self.upkeep.note_unsafe(key);
            }
            self.fault(key, "sync", fault)
        })
    }

    /// Records a tombstone: the file is gone, so no client can create this datafile again, whatever it still has open.
    /// Must precede [`remove`](Self::remove).
    pub async fn tombstone(&self, key: DatafileKey) {
        if self.module != Module::Null && !is_seeded(Mutant::ForgottenRemovals) {
            self.tombstones.add(&self.dir, key).await;
        }
    }

    /// Fences a file: capabilities that end before `before_s`, in seconds since 1970, no longer permit changes of its
    /// datafiles. Survives the process.
    pub async fn fence(&self, file: FileId, before_s: u64) {
        self.fences.put(&self.dir, file, before_s, seconds(&self.env)).await;
    }

    /// Returns true if a capability of `file` that ends at `expires_s` is [fenced](Self::fence).
    #[inline]
    pub fn is_fenced(&self, file: FileId, expires_s: u64) -> bool {
        self.fences.refuse(file, expires_s)
    }

    /// Seals a file: capabilities that end before `before_s`, in seconds since 1970, no longer permit any access to
    /// its datafiles. Survives a loss of power.
    ///
    /// # Errors
    /// Errors of the device, or too many seals; the seal may then not survive the process.
    pub async fn seal(&self, file: FileId, before_s: u64) -> Result<(), DatafileError> {
        let sealed = self.seals.put(&self.dir, file, before_s, seconds(&self.env)).await;
        sealed.map_err(|error| {
            let path = self.path.display().to_string();
            DatafileError::new(path, "record a seal", error)
        })
    }

    /// Refuses the capabilities of all files that end before `before_s`, in seconds since 1970, until the target is closed.
    pub fn refuse_before(&self, before_s: u64) {
        self.seals.put_every(before_s);
    }

    /// Returns true if a capability of `file` that ends at `expires_s` is [sealed](Self::seal).
    #[inline]
    pub fn is_sealed(&self, file: FileId, expires_s: u64) -> bool {
        self.seals.refuse(file, expires_s)
    }

    /// Removes a datafile; does nothing if it is missing. The removal survives a loss of power after
    /// [`sync_removals`](Self::sync_removals).
    ///
    /// # Errors
    /// Errors of the device.
    pub async fn remove(&self, key: DatafileKey) -> Result<(), DatafileError> {
        if self.module == Module::Null {
            self.open.remove(key);
            self.null.remove(key);
            return Ok(());
        }
        let in_flight = self.begin(DeviceAction::Name, key, LocalOffset(0), 0);
        if let Some(emulator) = &self.emulator {
            let number = device::number(key);
            emulator.submit(&emulate::request(DeviceAction::Cut, number, LocalOffset(0), 0));
            if self.has_compressed.load(Ordering::Acquire) {
                emulator.submit(&emulate::request(
                    DeviceAction::Cut,
                    device::map_number(number),
                    LocalOffset(0),
                    0,
                ));
            }
        }
        let guard = self.lock_opening(key).await;
        let removed = match self.remove_file(&key.name()).await {
            Ok(()) => self.remove_side_files(key).await,
            failed => failed,
        };
        let removed = removed.map_err(|error| self.error(key, "remove", error));
        // A concurrent read may have opened it again before its name was gone.
        self.open.remove(key);
        drop(guard);
        self.upkeep.forgive(key);
        emulate::finish(in_flight).await;
        removed
    }

    /// Makes the removal of `keys` survive a loss of power.
    ///
    /// # Errors
    /// Errors of the device; some datafiles may then reappear.
    pub async fn sync_removals(&self, keys: &[DatafileKey]) -> Result<(), DatafileError> {
        if self.module == Module::Null {
            return Ok(());
        }
        // On common file systems, the first of these syncs covers the changes of the others.
        let first_of_each: BTreeMap<u8, DatafileKey> = keys.iter().map(|key| (key.fan(), *key)).collect();
        for (fan, key) in first_of_each {
            let synced = self.dir.sync(&fan_name(fan)).await;
            synced.map_err(|error| self.error(key, "sync the folder", error))?;
        }
        if let Some(&key) = keys.first() {
            self.tombstones
                .sync(&self.dir)
                .await
                .map_err(|error| self.error(key, "record its removal", error))?;
        }
        Ok(())
    }

    /// Removes the other files of a datafile whose own has been removed.
    async fn remove_side_files(&self, key: DatafileKey) -> io::Result<()> {
        self.upkeep.forget(key);
        // It cannot be opened again.
        if let Some(datafile) = self.open.get(key) {
            datafile.content.detach().await;
        }
        let sums = self.has_sums.load(Ordering::Acquire).then(|| sums_name(key));
        let maps = self.has_compressed.load(Ordering::Acquire).then(|| compressed::side_files(key));
        for name in sums.into_iter().chain(maps.into_iter().flatten()) {
            self.remove_file(&name).await?;
        }
        Ok(())
    }

    /// Removes a file of the target; does nothing if it is missing.
    async fn remove_file(&self, name: &str) -> io::Result<()> {
        match self.dir.remove(name).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    fn mutant_key(&self, key: DatafileKey) -> (u64, u64) {
        let path = self.path.to_string_lossy().bytes().map(u64::from).sum::<u64>();
        (path << 32 | key.file.0, u64::from(key.object.component) << 16 | u64::from(key.object.column))
    }

    /// Seeded mutant: bytes that a truncation dropped reappear in the hole before a later write.
    async fn resurrect(&self, datafile: &Datafile<E>, before: u64) {
        let mut hole = vec![0; before.min(1 << 20) as usize];
        let start = before - hole.len() as u64;
        mutants::restore(self.mutant_key(datafile.key), start, &mut hole);
        let Some(first) = hole.iter().position(|&byte| byte != 0) else { return };
        let _ = datafile.content.write(LocalOffset(start + first as u64), &hole[first..]).await;
    }

    async fn open_existing(&self, key: DatafileKey) -> Result<Option<Arc<Datafile<E>>>, DatafileError> {
        if let Some(datafile) = self.open.get(key) {
            return Ok(Some(datafile));
        }
        let _guard = self.lock_opening(key).await;
        if let Some(datafile) = self.open.get(key) {
            return Ok(Some(datafile));
        }
        match self.open_file(key, Create::No).await {
            Ok(datafile) => Ok(Some(self.open.insert(datafile))),
            Err(Fault::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                self.not_removed(key).map(|()| None)
            }
            Err(fault) => Err(self.fault(key, "open", fault)),
        }
    }

    /// Opens an existing datafile; `None` also if its file was removed.
    async fn open_unless_removed(&self, key: DatafileKey) -> Result<Option<Arc<Datafile<E>>>, DatafileError> {
        match self.open_existing(key).await {
            Err(DatafileError::Removed { .. }) => Ok(None),
            found => found,
        }
    }

    /// Waits until no other task opens, creates or removes this datafile. Not needed on a target where each datafile
    /// has one file.
    async fn lock_opening(&self, key: DatafileKey) -> Option<RangeGuard<'_, E>> {
        if !self.has_side_files() {
            return None;
        }
        let number = device::number(key) >> 1;
        Some(self.opening.lock(number, number + 1).await)
    }

    /// Checks that the datafile's file has not been removed, so that bytes of it may be stored on any device.
    ///
    /// # Errors
    /// [`DatafileError::Removed`].
    pub fn check_not_removed(&self, key: DatafileKey) -> Result<(), DatafileError> {
        self.not_removed(key)
    }

    /// Checks that a missing datafile is empty, not removed.
    fn not_removed(&self, key: DatafileKey) -> Result<(), DatafileError> {
        match self.tombstones.contains(key) {
            true => Err(DatafileError::Removed { path: self.path_of(key) }),
            false => Ok(()),
        }
    }

    async fn open_or_create(&self, key: DatafileKey) -> Result<Arc<Datafile<E>>, DatafileError> {
        if let Some(datafile) = self.open.get(key) {
            return Ok(datafile);
        }
        self.not_removed(key)?;
        let _guard = self.lock_opening(key).await;
        if let Some(datafile) = self.open.get(key) {
            return Ok(datafile);
        }
        if self.module == Module::Null {
            return Ok(self.open.insert(self.null_datafile(key, self.null.find_or_create(key))));
        }
        let in_flight = self.begin(DeviceAction::Name, key, LocalOffset(0), 0);
        match self.open_file(key, Create::IfMissing).await {
            Ok(datafile) => {
                emulate::finish(in_flight).await;
                self.undo_if_removed(key).await?;
                Ok(self.open.insert(datafile))
            }
            Err(fault) => Err(self.fault(key, "create", fault)),
        }
    }

    /// Checks that the datafile's file was not removed during an open, which may have created the datafile again. If
    /// it was, removes the datafile.
    async fn undo_if_removed(&self, key: DatafileKey) -> Result<(), DatafileError> {
        let checked = self.not_removed(key);
        if checked.is_err() {
            let _ = self.dir.remove(&key.name()).await;
            let _ = self.remove_side_files(key).await;
            self.open.remove(key);
        }
        checked
    }

    fn error(&self, key: DatafileKey, doing: &'static str, error: io::Error) -> DatafileError {
        DatafileError::new(self.path_of(key), doing, error)
    }

    /// Returns the path of a datafile, for messages.
    fn path_of(&self, key: DatafileKey) -> String {
        self.path.join(key.name()).display().to_string()
    }

    fn fault(&self, key: DatafileKey, doing: &'static str, fault: Fault) -> DatafileError {
        let (path, target) = (self.path_of(key), self.id);
        match fault {
            Fault::Io(error) => DatafileError::new(path, doing, error),
            Fault::Damaged(range) => {
                DatafileError::Damaged { path, target, doing, start: range.start, end: range.end }
            }
            Fault::Unsafe => DatafileError::Unsafe { path },
            Fault::MapMissing => DatafileError::MapMissing { path, target, doing },
            Fault::MapDamaged(why) => DatafileError::MapDamaged { path, target, doing, why },
        }
    }
}

fn seconds<E: Env>(env: &E) -> u64 {
    u64::try_from(env.wall().parts().0).unwrap_or(0)
}

fn check_end(offset: LocalOffset, len: usize) {
    let end = offset.0.checked_add(len as u64);
    assert!(end.is_some_and(|end| end <= DATAFILE_LEN_MAX), "the caller checks offsets");
}
