//! One storage path of a server: its identity, its lock, and the operations on its datafiles.

mod beside;
mod checked;
mod device;
mod fences;
mod format;
mod lend;
mod list;
mod removed;
mod scrub;
mod seals;

use crate::datafile::{Datafile, DatafileKey, DirectParts, OpenDatafiles, fan_name};
use crate::emulate::{self, Emulation, Emulator};
use crate::error::{DatafileError, TargetError};
use crate::identity::Identity;
use crate::module_direct;
use crate::module_null::NullModule;
use crate::range_lock::{RangeGuard, RangeLocks};
use fences::Fences;
use parking_lot::Mutex;
use removed::Removed;
pub use scrub::{Damage, SEAL_AFTER, SEAL_IDLE, ScrubStep};
use seals::Seals;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weft_core::{ByteLen, FileId, Integrity, LocalOffset, Nanos, TargetId, Timestamp};
use weft_env::device::DeviceAction;
use weft_env::plants::{self, Plant, planted};
use weft_env::{Create, Dir, Env, File, FileMeta, OpenMode, Shared, Space};

/// The longest datafile, in bytes: what the system's offsets hold.
pub const DATAFILE_LEN_MAX: u64 = i64::MAX as u64;

/// How datafiles are read and written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Module {
    /// Through the page cache.
    Buffered,
    /// Past the page cache (`O_DIRECT`).
    Direct,
    /// Nowhere: keeps lengths, reads zeros. For measuring everything else.
    Null,
}

impl Module {
    /// As in the cluster file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Buffered => "buffered",
            Self::Direct => "direct",
            Self::Null => "null",
        }
    }
}

/// Which target to open, and how.
#[derive(Clone, Debug)]
pub struct TargetSpec {
    /// Its number in the cluster.
    pub id: TargetId,
    /// The cluster's name.
    pub cluster: String,
    /// Its directory, which must exist.
    pub path: PathBuf,
    /// How its datafiles are read and written.
    pub module: Module,
    /// Most datafiles held open.
    pub open_datafiles_max: usize,
    /// The device whose time requests take; `None` the one below.
    pub emulate: Option<Emulation>,
    /// Whether new datafiles get checksums where their file does not say.
    pub integrity: Integrity,
}

/// What there is to send of a datafile without a copy.
#[derive(Clone, Debug)]
pub enum ToSend<F> {
    /// The open datafile and its length.
    File(F, ByteLen),
    /// There is no datafile.
    Missing,
    /// The module or the checksums have to see the bytes.
    Bytes,
}

/// A target that this process has for itself.
///
/// Operations on a missing datafile see it as empty, and only writing and extending make it.
pub struct Target<E: Env> {
    env: E,
    dir: E::Dir,
    id: TargetId,
    path: PathBuf,
    module: Module,
    integrity: Integrity,
    open: OpenDatafiles<E>,
    /// Datafiles may have checksums.
    has_sums: AtomicBool,
    /// Held, by number of the datafile, while one with checksums is opened, made or removed.
    opening: RangeLocks<E>,
    /// Datafiles of which not all blocks are sealed, and when to look at each.
    unsealed: Mutex<BTreeMap<DatafileKey, Nanos>>,
    /// Blocks that did not match their checksums.
    damaged: Mutex<BTreeSet<(DatafileKey, u64)>>,
    /// Blocks that were taken as they were after a loss of power.
    unverified: AtomicU64,
    null: NullModule,
    emulator: Option<Emulator<E>>,
    /// Datafiles that a sync failed for. The system may have dropped what was written and call the next sync a
    /// success, so no sync of them succeeds until they are emptied or removed.
    unsafe_datafiles: Mutex<BTreeSet<DatafileKey>>,
    removed: Removed<E>,
    fences: Fences<E>,
    seals: Seals<E>,
    unclean: bool,
    leases_marked: AtomicBool,
    lock: Mutex<Option<Box<dyn Send + Sync>>>,
}

impl<E: Env> Target<E> {
    /// Opens the target and formats it when its directory is blank, without asking a metadata server.
    ///
    /// # Errors
    /// When the directory is missing, another process's, somebody else's or damaged; each with the remedy.
    pub async fn open(env: &E, spec: &TargetSpec) -> Result<Self, TargetError> {
        let mut unattached = Self::look(env, spec).await?;
        if unattached.found.is_none() {
            unattached.store(&Identity::new(&spec.cluster, spec.id)).await?;
        }
        unattached.open().await
    }

    /// Locks the target's directory and reads its identity; nothing is changed.
    ///
    /// # Errors
    /// When the directory is missing, another process's, somebody else's or damaged; each with the remedy.
    pub async fn look(env: &E, spec: &TargetSpec) -> Result<Unattached<E>, TargetError> {
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
        let found = format::look(&dir, spec).await?;
        Ok(Unattached { env: env.clone(), dir, lock, spec: spec.clone(), found })
    }

    /// Whether there is an identity file in the directory, which may be missing.
    pub async fn has_identity(env: &E, path: &Path) -> bool {
        match env.dir(path).await {
            Ok(dir) => dir.meta(crate::identity::NAME).await.is_ok(),
            Err(_) => false,
        }
    }
}

/// A target's directory, locked, before it is known whether the target may be used.
pub struct Unattached<E: Env> {
    env: E,
    dir: E::Dir,
    lock: Box<dyn Send + Sync>,
    spec: TargetSpec,
    found: Option<Identity>,
}

impl<E: Env> Unattached<E> {
    /// The identity of the target; `None` when the directory is blank.
    pub fn found(&self) -> Option<&Identity> {
        self.found.as_ref()
    }

    /// Stores the identity, and makes the folders of a blank directory before. It survives loss of power.
    ///
    /// # Errors
    /// Of the file system.
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
    /// Of the file system.
    ///
    /// # Panics
    /// When the directory is blank.
    pub async fn open(self) -> Result<Target<E>, TargetError> {
        assert!(self.found.is_some(), "a blank directory is no target");
        let Self { env, dir, lock, spec, .. } = self;
        let (env, spec, path) = (&env, &spec, spec.path.clone());
        let io = |doing| {
            let path = path.clone();
            move |source| TargetError::Io { path, doing, source }
        };
        if spec.module == Module::Direct {
            format::probe_direct(&dir, &spec.path).await?;
        }
        let removed = Removed::open(env, &dir).await.map_err(io("read which datafiles were removed"))?;
        let fences =
            Fences::open(&dir, seconds(env)).await.map_err(io("read which capabilities are refused"))?;
        let seals =
            Seals::open(&dir, seconds(env)).await.map_err(io("read which datafiles were given up"))?;
        let unclean = dir.meta(format::LEASED).await.is_ok();
        let has_sums = match dir.meta(format::SUMS).await {
            Ok(_) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(io("ask whether there are checksums")(error)),
        };
        Ok(Target {
            env: env.clone(),
            dir,
            id: spec.id,
            path: spec.path.clone(),
            module: spec.module,
            integrity: spec.integrity,
            open: OpenDatafiles::new(spec.open_datafiles_max),
            has_sums: AtomicBool::new(has_sums),
            opening: RangeLocks::new(env),
            unsealed: Mutex::default(),
            damaged: Mutex::default(),
            unverified: AtomicU64::new(0),
            null: NullModule::default(),
            emulator: spec.emulate.as_ref().map(|emulation| Emulator::new(env, emulation)),
            unsafe_datafiles: Mutex::default(),
            removed,
            fences,
            seals,
            unclean,
            leases_marked: AtomicBool::new(unclean),
            lock: Mutex::new(Some(lock)),
        })
    }
}

impl<E: Env> Target<E> {
    /// Lets another process have it. Nothing may be done with it from here on.
    pub fn give_up(&self) {
        drop(self.lock.lock().take());
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How its datafiles are read and written.
    pub fn module(&self) -> Module {
        self.module
    }

    /// Whether descriptors that the process before this one gave out may still be in use for the length of a lease.
    pub fn had_leases(&self) -> bool {
        self.unclean
    }

    /// Datafiles held open now.
    pub fn open_count(&self) -> usize {
        self.open.len()
    }

    /// Room on the file system below.
    ///
    /// # Errors
    /// Of the file system.
    pub async fn space(&self) -> Result<Space, DatafileError> {
        let path = self.path.display().to_string();
        self.dir.space().await.map_err(|error| DatafileError::new(path, "ask for the free space", error))
    }

    /// Reads until `buf` is full or the datafile ends; the number of bytes, and the datafile's length.
    ///
    /// # Errors
    /// Of the device.
    pub async fn read(
        &self,
        key: DatafileKey,
        offset: LocalOffset,
        buf: &mut [u8],
    ) -> Result<(usize, ByteLen), DatafileError> {
        if self.module == Module::Null {
            let charge = self.begin(DeviceAction::Read, key, offset, buf.len());
            let got = self.null.read(key, offset, buf);
            emulate::end(charge).await;
            return Ok(got);
        }
        let Some(datafile) = self.existing(key).await? else { return Ok((0, ByteLen(0))) };
        if let Some(sums) = &datafile.sums {
            return self.read_checked(&datafile, sums, offset, buf).await;
        }
        let read = async {
            let charge = self.begin_read(&datafile, offset, buf.len()).await?;
            let got = match self.module {
                Module::Direct => module_direct::read(&datafile, offset, buf).await?,
                _ => datafile.file.read_at(&mut [IoSliceMut::new(buf)], offset).await?,
            };
            emulate::end(charge).await;
            let reached = ByteLen(if got == 0 { 0 } else { offset.0 + got as u64 });
            Ok((got, datafile.file.meta().await?.len.max(reached)))
        };
        read.await.map_err(|error| self.error(key, "read", error))
    }

    /// What there is to send of a datafile without a copy of its bytes.
    ///
    /// # Errors
    /// Of the device.
    pub async fn file_to_send(&self, key: DatafileKey) -> Result<ToSend<E::File>, DatafileError> {
        if !self.sends_files() {
            return Ok(ToSend::Bytes);
        }
        let Some(datafile) = self.existing(key).await? else { return Ok(ToSend::Missing) };
        if datafile.sums.is_some() {
            return Ok(ToSend::Bytes);
        }
        let meta = datafile.file.meta().await.map_err(|error| self.error(key, "read", error))?;
        Ok(ToSend::File(datafile.file.clone(), meta.len))
    }

    /// Writes all of `bytes`; on an error some may have been written.
    ///
    /// # Errors
    /// Of the device.
    ///
    /// # Panics
    /// Past [`DATAFILE_LEN_MAX`]: the caller checks.
    pub async fn write(
        &self,
        key: DatafileKey,
        offset: LocalOffset,
        bytes: &[u8],
    ) -> Result<(), DatafileError> {
        let end = end_of(offset, bytes.len());
        let charge = self.begin(DeviceAction::Write, key, offset, bytes.len());
        match self.module {
            Module::Null => self.null.write(key, end, self.env.wall()),
            Module::Direct | Module::Buffered => {
                let datafile = self.made(key).await?;
                if let Some(sums) = &datafile.sums {
                    self.write_checked(&datafile, sums, offset, bytes).await?;
                } else {
                    let written = match self.module {
                        Module::Direct => module_direct::write(&datafile, offset, bytes).await,
                        _ => datafile.file.write_at(&[IoSlice::new(bytes)], offset).await,
                    };
                    written.map_err(|error| self.error(key, "write", error))?;
                }
            }
        }
        if planted(Plant::ResurrectedBytes) {
            self.resurrect(key, offset.0).await;
        }
        emulate::end(charge).await;
        Ok(())
    }

    /// Sets the time of change of what is there, for who brings bytes here that were written earlier.
    ///
    /// # Errors
    /// Of the device.
    pub async fn set_mtime(&self, key: DatafileKey, mtime: Timestamp) -> Result<(), DatafileError> {
        if self.module == Module::Null {
            return Ok(());
        }
        let Some(datafile) = self.existing(key).await? else { return Ok(()) };
        datafile.file.set_mtime(mtime).await.map_err(|error| self.error(key, "set the time of change", error))
    }

    /// The same from shared memory, without a copy where the module allows.
    ///
    /// # Errors
    /// Of the device.
    ///
    /// # Panics
    /// Past [`DATAFILE_LEN_MAX`] or outside `shared`: the caller checks.
    pub async fn write_shared(
        &self,
        key: DatafileKey,
        offset: LocalOffset,
        shared: &E::Shared,
        from: usize,
        len: usize,
    ) -> Result<(), DatafileError> {
        let end = end_of(offset, len);
        assert!(from.checked_add(len).is_some_and(|end| end <= shared.len()), "inside the shared area");
        match self.module {
            Module::Null => {
                let charge = self.begin(DeviceAction::Write, key, offset, len);
                self.null.write(key, end, self.env.wall());
                emulate::end(charge).await;
                Ok(())
            }
            Module::Direct => {
                // Copied, because the client may change the bytes while blocks are put together.
                let mut copy = crate::aligned::AlignedBuf::zeroed(len);
                shared.copy_out(from, &mut copy);
                self.write(key, offset, &copy).await
            }
            Module::Buffered => {
                let datafile = self.made(key).await?;
                if datafile.sums.is_some() {
                    // Copied, because the client may change the bytes after their checksum is known.
                    let mut copy = crate::aligned::AlignedBuf::zeroed(len);
                    shared.copy_out(from, &mut copy);
                    return self.write(key, offset, &copy).await;
                }
                let charge = self.begin(DeviceAction::Write, key, offset, len);
                let written = datafile.file.write_shared_at(shared, from, len, offset).await;
                written.map_err(|error| self.error(key, "write", error))?;
                emulate::end(charge).await;
                Ok(())
            }
        }
    }

    /// Reads up to `len` bytes into shared memory from `to`: how many, and the length of the datafile when the read met
    /// its end.
    ///
    /// # Errors
    /// Of the device.
    ///
    /// # Panics
    /// Past [`DATAFILE_LEN_MAX`] or outside `shared`: the caller checks.
    pub async fn read_shared(
        &self,
        key: DatafileKey,
        offset: LocalOffset,
        shared: &E::Shared,
        to: usize,
        len: usize,
    ) -> Result<(usize, Option<ByteLen>), DatafileError> {
        assert!(to.checked_add(len).is_some_and(|end| end <= shared.len()), "inside the shared area");
        if self.module != Module::Buffered {
            return self.read_copied(key, offset, shared, to, len).await;
        }
        let Some(datafile) = self.existing(key).await? else { return Ok((0, Some(ByteLen(0)))) };
        if datafile.sums.is_some() {
            return self.read_copied(key, offset, shared, to, len).await;
        }
        let read = async {
            let charge = self.begin_read(&datafile, offset, len).await?;
            let count = datafile.file.read_shared_at(shared, to, len, offset).await?;
            emulate::end(charge).await;
            Ok(count)
        };
        let count = read.await.map_err(|error| self.error(key, "read", error))?;
        if count == len {
            return Ok((count, None));
        }
        let meta = datafile.file.meta().await.map_err(|error| self.error(key, "read", error))?;
        Ok((count, Some(meta.len)))
    }

    async fn read_copied(
        &self,
        key: DatafileKey,
        offset: LocalOffset,
        shared: &E::Shared,
        to: usize,
        len: usize,
    ) -> Result<(usize, Option<ByteLen>), DatafileError> {
        let mut bytes = crate::aligned::AlignedBuf::zeroed(len);
        let (count, datafile_len) = self.read(key, offset, &mut bytes).await?;
        shared.copy_in(to, &bytes[..count]);
        Ok((count, (count < len).then_some(datafile_len)))
    }

    /// Length, room and time of change; `None` when it is missing.
    ///
    /// # Errors
    /// Of the device.
    pub async fn meta(&self, key: DatafileKey) -> Result<Option<FileMeta>, DatafileError> {
        if self.module == Module::Null {
            return Ok(self.null.meta(key));
        }
        let meta = match self.open.get(key) {
            Some(datafile) => datafile.meta().await,
            None => self.dir.meta(&key.name()).await,
        };
        match meta {
            Ok(meta) => Ok(Some(meta)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.not_removed(key).map(|()| None),
            Err(error) => Err(self.error(key, "ask for the length", error)),
        }
    }

    /// Cuts or extends it. Zero for a missing one makes nothing.
    ///
    /// # Errors
    /// Of the device.
    pub async fn set_len(&self, key: DatafileKey, len: ByteLen) -> Result<(), DatafileError> {
        assert!(len.0 <= DATAFILE_LEN_MAX, "the caller checks lengths");
        if self.module == Module::Null {
            self.null.set_len(key, len, self.env.wall());
            return Ok(());
        }
        let datafile = match len {
            ByteLen(0) => match self.existing(key).await? {
                Some(datafile) => datafile,
                None => return Ok(()),
            },
            _ => self.made(key).await?,
        };
        if planted(Plant::ResurrectedBytes) {
            let mut tail = vec![0; 4096];
            let read = datafile.file.read_at(&mut [IoSliceMut::new(&mut tail)], LocalOffset(len.0)).await;
            plants::keep(self.plant_key(key), len.0, &tail[..read.unwrap_or(0)]);
        }
        let charge = self.begin(DeviceAction::Cut, key, LocalOffset(len.0), 0);
        if let Some(sums) = &datafile.sums {
            self.set_len_checked(&datafile, sums, len).await?;
        } else {
            let set = match self.module {
                Module::Direct => module_direct::set_len(&datafile, len).await,
                _ => datafile.file.set_len(len).await,
            };
            set.map_err(|error| self.error(key, "set the length", error))?;
        }
        emulate::end(charge).await;
        if len == ByteLen(0) {
            self.unsafe_datafiles.lock().remove(&key);
        }
        Ok(())
    }

    /// Makes a hole of `len` bytes, as far as it reaches; its length stays. A missing one is a hole already.
    ///
    /// # Errors
    /// Of the device; that its file system has no holes.
    ///
    /// # Panics
    /// Past [`DATAFILE_LEN_MAX`]: the caller checks.
    pub async fn punch(
        &self,
        key: DatafileKey,
        offset: LocalOffset,
        len: ByteLen,
    ) -> Result<(), DatafileError> {
        assert!(offset.0.checked_add(len.0).is_some_and(|end| end <= DATAFILE_LEN_MAX), "the caller checks");
        if self.module == Module::Null || len == ByteLen(0) {
            return Ok(());
        }
        let Some(datafile) = self.existing(key).await? else { return Ok(()) };
        if let Some(sums) = &datafile.sums {
            let meta = datafile.file.meta().await.map_err(|error| self.error(key, "punch a hole", error))?;
            let len = len.min(ByteLen(meta.len.0.saturating_sub(offset.0)));
            let charge = self.begin(DeviceAction::Discard, key, offset, len.0 as usize);
            self.punch_checked(&datafile, sums, offset, len).await?;
            emulate::end(charge).await;
            return Ok(());
        }
        let punch = async {
            let reach = datafile.file.meta().await?.len.0.saturating_sub(offset.0);
            let len = len.min(ByteLen(reach));
            if len == ByteLen(0) {
                return Ok(());
            }
            let charge = self.begin(DeviceAction::Discard, key, offset, len.0 as usize);
            match self.module {
                Module::Direct => module_direct::punch(&datafile, offset, len).await?,
                _ => datafile.file.punch(offset, len).await?,
            }
            emulate::end(charge).await;
            Ok(())
        };
        punch.await.map_err(|error| self.error(key, "punch a hole", error))
    }

    /// The first byte at or behind `offset` that lies in no hole; `None` when there is none.
    ///
    /// # Errors
    /// Of the device.
    pub async fn seek_data(
        &self,
        key: DatafileKey,
        offset: LocalOffset,
    ) -> Result<Option<LocalOffset>, DatafileError> {
        if self.module == Module::Null {
            return Ok(None);
        }
        let Some(datafile) = self.existing(key).await? else { return Ok(None) };
        datafile.file.seek_data(offset).await.map_err(|error| self.error(key, "look for data", error))
    }

    /// The first byte at or behind `offset` that lies in a hole, as all behind the end does.
    ///
    /// # Errors
    /// Of the device.
    pub async fn seek_hole(
        &self,
        key: DatafileKey,
        offset: LocalOffset,
    ) -> Result<LocalOffset, DatafileError> {
        if self.module == Module::Null {
            return Ok(offset);
        }
        let Some(datafile) = self.existing(key).await? else { return Ok(offset) };
        datafile.file.seek_hole(offset).await.map_err(|error| self.error(key, "look for a hole", error))
    }

    /// Makes it and its name survive loss of power. A missing one is as durable as it can be.
    ///
    /// # Errors
    /// Of the device; then bytes that were written may be lost.
    pub async fn sync(&self, key: DatafileKey) -> Result<(), DatafileError> {
        if self.module == Module::Null {
            return Ok(());
        }
        if planted(Plant::UnsyncedReply) {
            return Ok(());
        }
        if self.unsafe_datafiles.lock().contains(&key) {
            let path = self.path.join(key.name()).display().to_string();
            return Err(DatafileError::Unsafe { path });
        }
        let Some(datafile) = self.existing(key).await? else { return Ok(()) };
        let sync = async {
            let charge = self.begin(DeviceAction::Sync, key, LocalOffset(0), 0);
            datafile.file.sync().await?;
            emulate::end(charge).await;
            if !datafile.name_synced.load(Ordering::Acquire) {
                let charge = self.begin(DeviceAction::SyncNames, key, LocalOffset(0), 0);
                self.dir.sync(&fan_name(key.fan())).await?;
                emulate::end(charge).await;
                datafile.name_synced.store(true, Ordering::Release);
            }
            Ok(())
        };
        sync.await.map_err(|error| {
            self.unsafe_datafiles.lock().insert(key);
            self.error(key, "sync", error)
        })
    }

    /// Its file is gone: from here on nobody makes it again, whatever he has open still. To be said before
    /// [`remove`](Self::remove).
    pub async fn bury(&self, key: DatafileKey) {
        if self.module != Module::Null && !planted(Plant::ForgottenRemovals) {
            self.removed.add(&self.dir, key).await;
        }
    }

    /// From here on capabilities of `file` that end before `before_s`, in seconds since 1970, are of no more use for
    /// changing its datafiles; outlives the process.
    pub async fn fence(&self, file: FileId, before_s: u64) {
        self.fences.put(&self.dir, file, before_s, seconds(&self.env)).await;
    }

    /// Whether a capability of `file` that ends at `expires_s` is [fenced](Self::fence) off.
    #[inline]
    pub fn is_fenced(&self, file: FileId, expires_s: u64) -> bool {
        self.fences.refuse(file, expires_s)
    }

    /// From here on capabilities of `file` that end before `before_s`, in seconds since 1970, are of no more use for
    /// anything; outlives loss of power.
    ///
    /// # Errors
    /// Of the device, or when there are too many: then it may not stand after the process has ended.
    pub async fn seal(&self, file: FileId, before_s: u64) -> Result<(), DatafileError> {
        let sealed = self.seals.put(&self.dir, file, before_s, seconds(&self.env)).await;
        sealed.map_err(|error| {
            let path = self.path.display().to_string();
            DatafileError::new(path, "note that datafiles are given up", error)
        })
    }

    /// Whether a capability of `file` that ends at `expires_s` is [sealed](Self::seal) off.
    #[inline]
    pub fn is_sealed(&self, file: FileId, expires_s: u64) -> bool {
        self.seals.refuse(file, expires_s)
    }

    /// Removes it; a missing one is removed already. That it is gone survives loss of power after
    /// [`sync_removals`](Self::sync_removals).
    ///
    /// # Errors
    /// Of the device.
    pub async fn remove(&self, key: DatafileKey) -> Result<(), DatafileError> {
        if self.module == Module::Null {
            self.null.remove(key);
            return Ok(());
        }
        self.open.remove(key);
        let charge = self.begin(DeviceAction::Name, key, LocalOffset(0), 0);
        if let Some(emulator) = &self.emulator {
            emulator.tell(&emulate::request(DeviceAction::Cut, device::number(key), LocalOffset(0), 0));
        }
        let guard = self.opens(key).await;
        let removed = match self.dir.remove(&key.name()).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        };
        let removed = match removed {
            Ok(()) => self.remove_sums(key).await,
            failed => failed,
        };
        let removed = removed.map_err(|error| self.error(key, "remove", error));
        // Somebody may have opened it again before its name was gone.
        self.open.remove(key);
        drop(guard);
        self.unsafe_datafiles.lock().remove(&key);
        emulate::end(charge).await;
        removed
    }

    /// Makes it survive loss of power that `keys` were removed.
    ///
    /// # Errors
    /// Of the device; then some of them may come back.
    pub async fn sync_removals(&self, keys: &[DatafileKey]) -> Result<(), DatafileError> {
        if self.module == Module::Null {
            return Ok(());
        }
        // The first of these syncs brings the others' changes with it on the usual file systems.
        let first_of_each: BTreeMap<u8, DatafileKey> = keys.iter().map(|key| (key.fan(), *key)).collect();
        for (fan, key) in first_of_each {
            let synced = self.dir.sync(&fan_name(fan)).await;
            synced.map_err(|error| self.error(key, "sync the folder", error))?;
        }
        if let Some(&key) = keys.first() {
            self.removed.sync(&self.dir).await.map_err(|error| self.error(key, "note its removal", error))?;
        }
        Ok(())
    }

    fn plant_key(&self, key: DatafileKey) -> (u64, u64) {
        let path = self.path.to_string_lossy().bytes().map(u64::from).sum::<u64>();
        (path << 32 | key.file.0, u64::from(key.object.component) << 16 | u64::from(key.object.column))
    }

    /// The planted bug: what a cut took away shows in the hole before a later write.
    async fn resurrect(&self, key: DatafileKey, before: u64) {
        let mut hole = vec![0; before.min(1 << 20) as usize];
        let start = before - hole.len() as u64;
        plants::kept(self.plant_key(key), start, &mut hole);
        let Some(first) = hole.iter().position(|&byte| byte != 0) else { return };
        if let Ok(datafile) = self.made(key).await {
            let file = datafile.direct.as_ref().map_or(&datafile.file, |parts| &parts.buffered);
            let _ = file.write_at(&[IoSlice::new(&hole[first..])], LocalOffset(start + first as u64)).await;
        }
    }

    async fn existing(&self, key: DatafileKey) -> Result<Option<Arc<Datafile<E>>>, DatafileError> {
        if let Some(datafile) = self.open.get(key) {
            return Ok(Some(datafile));
        }
        let _guard = self.opens(key).await;
        if let Some(datafile) = self.open.get(key) {
            return Ok(Some(datafile));
        }
        match self.open_file(key, Create::No).await {
            Ok(datafile) => Ok(Some(self.open.insert(datafile))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.not_removed(key).map(|()| None),
            Err(error) => Err(self.error(key, "open", error)),
        }
    }

    /// An open datafile; `None` also when its file was removed.
    async fn existing_or_removed(&self, key: DatafileKey) -> Result<Option<Arc<Datafile<E>>>, DatafileError> {
        match self.existing(key).await {
            Err(DatafileError::Removed { .. }) => Ok(None),
            found => found,
        }
    }

    /// Waits until no other task opens, makes or removes this datafile. Without checksums on the target nothing has to be
    /// waited for.
    async fn opens(&self, key: DatafileKey) -> Option<RangeGuard<'_, E>> {
        if !self.has_sums.load(Ordering::Acquire) {
            return None;
        }
        let number = device::number(key) >> 1;
        Some(self.opening.lock(number, number + 1).await)
    }

    /// That its file has not been removed, so that bytes of it may be stored, wherever.
    ///
    /// # Errors
    /// [`DatafileError::Removed`].
    pub fn check_not_removed(&self, key: DatafileKey) -> Result<(), DatafileError> {
        self.not_removed(key)
    }

    /// That a missing datafile is merely empty.
    fn not_removed(&self, key: DatafileKey) -> Result<(), DatafileError> {
        match self.removed.contains(key) {
            true => Err(DatafileError::Removed { path: self.path.join(key.name()).display().to_string() }),
            false => Ok(()),
        }
    }

    async fn made(&self, key: DatafileKey) -> Result<Arc<Datafile<E>>, DatafileError> {
        if let Some(datafile) = self.open.get(key) {
            return Ok(datafile);
        }
        self.not_removed(key)?;
        let _guard = self.opens(key).await;
        if let Some(datafile) = self.open.get(key) {
            return Ok(datafile);
        }
        let charge = self.begin(DeviceAction::Name, key, LocalOffset(0), 0);
        match self.open_file(key, Create::IfMissing).await {
            Ok(datafile) => {
                emulate::end(charge).await;
                if let Err(error) = self.not_removed(key) {
                    // It was removed while we opened it, and we may have made it again.
                    let _ = self.dir.remove(&key.name()).await;
                    return Err(error);
                }
                Ok(self.open.insert(datafile))
            }
            Err(error) => Err(self.error(key, "create", error)),
        }
    }

    async fn open_file(&self, key: DatafileKey, create: Create) -> io::Result<Datafile<E>> {
        let name = key.name();
        let mode = OpenMode { write: true, create, direct: false };
        let file = self.dir.open(&name, mode).await?;
        let sums = match self.has_sums.load(Ordering::Acquire) {
            true => self.sums_of(key, &file).await?,
            false => None,
        };
        let name_synced = AtomicBool::new(false);
        if self.module != Module::Direct {
            return Ok(Datafile { key, file, name_synced, direct: None, sums });
        }
        let direct = self.dir.open(&name, OpenMode { direct: true, ..OpenMode::WRITE }).await?;
        let parts = DirectParts { buffered: file, ranges: RangeLocks::new(&self.env) };
        Ok(Datafile { key, file: direct, name_synced, direct: Some(parts), sums })
    }

    fn error(&self, key: DatafileKey, doing: &'static str, error: io::Error) -> DatafileError {
        DatafileError::new(self.path.join(key.name()).display().to_string(), doing, error)
    }
}

fn seconds<E: Env>(env: &E) -> u64 {
    u64::try_from(env.wall().parts().0).unwrap_or(0)
}

fn end_of(offset: LocalOffset, len: usize) -> u64 {
    let end = offset.0.checked_add(len as u64).filter(|&end| end <= DATAFILE_LEN_MAX);
    end.expect("the caller checks offsets")
}
