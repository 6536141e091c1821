//! Formats of new datafiles, and opening of datafiles in their formats.

use super::{Module, Target, device, format};
use crate::compressed::{self, ChunkStats, Compressed};
use crate::content::{CheckedFile, Content, Fault, NullFile, RawFile, sums_name};
use crate::datafile::{Datafile, DatafileKey, Names};
use crate::error::DatafileError;
use crate::integrity::BlockSums;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weft_core::{ByteLen, Compression, Integrity};
use weft_env::{Create, Dir, Env, File, FileMeta, OpenMode};

/// Format that a file requests for its datafiles. A datafile keeps the format that it was created in.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DatafileFormat {
    /// Checksums; `None` for the target's setting.
    pub integrity: Option<Integrity>,
    /// Compression; `None` for none. A compressed datafile verifies its own bytes, so checksums add nothing to it.
    pub compression: Option<Compression>,
}

impl<E: Env> Target<E> {
    /// Creates a missing datafile in the format that its file requests. A datafile that holds bytes keeps its format.
    /// Called before each write; does nothing for a plain datafile.
    ///
    /// # Errors
    /// Errors of the device; [`DatafileError::ChecksumsMissing`]; [`DatafileError::MapMissing`].
    #[inline]
    pub async fn prepare(&self, key: DatafileKey, requested: DatafileFormat) -> Result<(), DatafileError> {
        if let Some(compression) = self.compression_of(requested) {
            return Box::pin(self.compress(key, compression)).await;
        }
        match self.integrity_of(requested.integrity) {
            Integrity::Off => Ok(()),
            Integrity::Crc32c => self.add_sums(key, requested.integrity.is_some()).await,
        }
    }

    /// Returns true if a new datafile with this requested format is plain, so that clients may use its descriptor.
    #[inline]
    pub fn is_plain(&self, requested: DatafileFormat) -> bool {
        self.compression_of(requested).is_none() && self.integrity_of(requested.integrity) == Integrity::Off
    }

    /// Returns the setting of new datafiles of a file that requests `requested`.
    #[inline]
    pub fn integrity_of(&self, requested: Option<Integrity>) -> Integrity {
        requested.unwrap_or(self.integrity)
    }

    /// Returns the compression of new datafiles. The null module has nothing to compress, nor have simulations that
    /// keep lengths only and have no model of compression.
    fn compression_of(&self, requested: DatafileFormat) -> Option<Compression> {
        requested.compression.filter(|_| self.module != Module::Null && self.may_compress)
    }

    /// Records durably that datafiles of the target may have further files.
    async fn mark(
        &self,
        key: DatafileKey,
        mark: &AtomicBool,
        name: &str,
        doing: &'static str,
    ) -> Result<(), DatafileError> {
        if mark.load(Ordering::Acquire) {
            return Ok(());
        }
        let marking = async {
            self.dir.open(name, OpenMode::CREATE).await?;
            self.dir.sync("").await
        };
        marking.await.map_err(|error| self.error(key, doing, error))?;
        mark.store(true, Ordering::Release);
        Ok(())
    }

    async fn add_sums(&self, key: DatafileKey, is_required: bool) -> Result<(), DatafileError> {
        let is_verified = || self.open.get(key).is_some_and(|datafile| datafile.content.is_verified());
        if self.module == Module::Null || is_verified() {
            return Ok(());
        }
        self.mark(key, &self.has_sums, format::SUMS, "mark the target as having checksums").await?;
        if self.open_or_create(key).await?.content.is_verified() {
            return Ok(());
        }
        let _guard = self.lock_opening(key).await;
        if is_verified() {
            return Ok(());
        }
        let mut is_missing = false;
        let adding: Result<(), Fault> = async {
            let mut datafile = self.open_file(key, Create::No).await?;
            if let Content::Raw(raw) = datafile.content {
                let len = raw.len().await?;
                if len.0 > 0 {
                    // Created under another setting of the target. An error if the file itself requires checksums.
                    is_missing = is_required;
                    return Ok(());
                }
                let sums = self.open_sums(key, Create::IfMissing, len).await?;
                datafile.content =
                    Content::Checked(CheckedFile::new(key, raw, sums, Arc::clone(&self.upkeep)));
            }
            self.open.replace(datafile);
            Ok(())
        }
        .await;
        match adding {
            Ok(()) if is_missing => Err(self.checksums_missing(key, "write")),
            added => self.unless_removed(key, added, "create its checksums"),
        }
    }

    /// Creates a compressed datafile, or makes an empty one compressed.
    async fn compress(&self, key: DatafileKey, compression: Compression) -> Result<(), DatafileError> {
        let is_compressed = || {
            let datafile = self.open.get(key);
            datafile.is_some_and(|datafile| matches!(datafile.content, Content::Compressed(_)))
        };
        if is_compressed() {
            return Ok(());
        }
        self.mark(
            key,
            &self.has_compressed,
            format::COMPRESSED,
            "mark the target as having compressed datafiles",
        )
        .await?;
        self.not_removed(key)?;
        let _guard = self.lock_opening(key).await;
        if is_compressed() {
            return Ok(());
        }
        let made = self.make_compressed(key, compression).await;
        self.unless_removed(key, made, "create it compressed")?;
        self.undo_if_removed(key).await
    }

    async fn make_compressed(&self, key: DatafileKey, compression: Compression) -> Result<(), Fault> {
        match self.open_file(key, Create::No).await {
            Ok(datafile) => {
                let raw = match &datafile.content {
                    Content::Compressed(_) => {
                        self.open.replace(datafile);
                        return Ok(());
                    }
                    Content::Raw(raw) => raw,
                    Content::Checked(checked) => checked.raw(),
                    Content::Null(_) => return Ok(()),
                };
                if !compressed::is_blank(raw).await? {
                    return Err(Fault::MapMissing);
                }
            }
            Err(Fault::Io(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Err(fault) => return Err(fault),
        }
        let names = self.names_of(key);
        let compressed = Compressed::create(&self.compressed_spec(key, &names), compression).await?;
        self.open.replace(Datafile { key, content: Content::Compressed(compressed), names });
        self.map_reserve.allocate().await;
        Ok(())
    }

    fn unless_removed(
        &self,
        key: DatafileKey,
        result: Result<(), Fault>,
        doing: &'static str,
    ) -> Result<(), DatafileError> {
        match result {
            Err(Fault::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                Err(DatafileError::Removed { path: self.path_of(key) })
            }
            result => result.map_err(|fault| self.fault(key, doing, fault)),
        }
    }

    /// Rejects reads of a datafile that holds bytes without the checksums or the map that its file requires. Does
    /// nothing unless `requested` says so.
    ///
    /// # Errors
    /// Errors of the device; [`DatafileError::ChecksumsMissing`]; [`DatafileError::MapMissing`].
    #[inline]
    pub async fn require_format(
        &self,
        key: DatafileKey,
        requested: DatafileFormat,
    ) -> Result<(), DatafileError> {
        if self.compression_of(requested).is_some() {
            return self.check_map_exists(key, requested).await;
        }
        match requested.integrity {
            Some(Integrity::Crc32c) if self.module != Module::Null => self.check_sums_exist(key).await,
            _ => Ok(()),
        }
    }

    async fn check_sums_exist(&self, key: DatafileKey) -> Result<(), DatafileError> {
        let Some(datafile) = self.open_existing(key).await? else { return Ok(()) };
        let Content::Raw(raw) = &datafile.content else { return Ok(()) };
        let len = raw.len().await.map_err(|error| self.error(key, "read", error))?;
        // The first write may have created the checksums, before its bytes, since the check above.
        if len == ByteLen(0) || self.is_verified(key).await? {
            return Ok(());
        }
        Err(self.checksums_missing(key, "read"))
    }

    async fn check_map_exists(
        &self,
        key: DatafileKey,
        requested: DatafileFormat,
    ) -> Result<(), DatafileError> {
        let Some(datafile) = self.open_existing(key).await? else { return Ok(()) };
        match &datafile.content {
            Content::Compressed(_) => return Ok(()),
            Content::Raw(raw) => {
                let len = raw.len().await.map_err(|error| self.error(key, "read", error))?;
                if len == ByteLen(0) {
                    return Ok(());
                }
            }
            Content::Checked(_) | Content::Null(_) => {}
        }
        drop(datafile);
        // Either an error, or an empty datafile: one that lost its map with power before it was ever synced.
        self.prepare(key, requested).await
    }

    fn checksums_missing(&self, key: DatafileKey, doing: &'static str) -> DatafileError {
        DatafileError::ChecksumsMissing { path: self.path_of(key), target: self.id, doing }
    }

    /// Makes the names of a datafile that has several files, and its format, survive a loss of power. Otherwise bytes
    /// that another device holds for it could return to a datafile of another format.
    ///
    /// # Errors
    /// Errors of the device.
    pub async fn sync_names(&self, key: DatafileKey) -> Result<(), DatafileError> {
        let Some(datafile) = self.open_existing(key).await? else { return Ok(()) };
        let synced = match &datafile.content {
            Content::Null(_) | Content::Raw(_) => return Ok(()),
            Content::Checked(_) => datafile.names.sync().await.map_err(Fault::Io),
            Content::Compressed(compressed) => compressed.sync_headers().await,
        };
        synced.map_err(|fault| self.fault(key, "sync its names", fault))
    }

    /// Returns true if a datafile exists and every read of it is verified: it has checksums or is compressed.
    ///
    /// # Errors
    /// Errors of the device.
    pub async fn is_verified(&self, key: DatafileKey) -> Result<bool, DatafileError> {
        if self.module == Module::Null || !self.has_side_files() {
            return Ok(false);
        }
        Ok(self.open_existing(key).await?.is_some_and(|datafile| datafile.content.is_verified()))
    }

    /// Returns size and fragmentation of a compressed datafile; `None` if it is missing or not compressed.
    ///
    /// # Errors
    /// Errors of the device.
    pub async fn chunk_stats(&self, key: DatafileKey) -> Result<Option<ChunkStats>, DatafileError> {
        if !self.has_side_files() {
            return Ok(None);
        }
        Ok(self.open_existing(key).await?.and_then(|datafile| match &datafile.content {
            Content::Compressed(compressed) => Some(compressed.stats()),
            Content::Null(_) | Content::Raw(_) | Content::Checked(_) => None,
        }))
    }

    /// Returns the number of bytes of chunks that were compressed since the start, and of the bytes that they became.
    pub fn compressed(&self) -> (u64, u64) {
        self.upkeep.compressed()
    }

    /// Returns the number of blocks and chunks found damaged since the start, each counted once, and of blocks accepted
    /// without verification after a loss of power.
    pub fn damage(&self) -> (u64, u64) {
        self.upkeep.damage()
    }

    /// Opens a datafile in its format. The caller holds the lock of [`lock_opening`](Self::lock_opening).
    pub(super) async fn open_file(&self, key: DatafileKey, create: Create) -> Result<Datafile<E>, Fault> {
        if self.module == Module::Null {
            let found = self.null.find(key).ok_or(io::ErrorKind::NotFound);
            return Ok(self.null_datafile(key, found.map_err(io::Error::from)?));
        }
        let name = key.name();
        let file = self.dir.open(&name, OpenMode { write: true, create, direct: false }).await?;
        let names = self.names_of(key);
        if self.has_compressed.load(Ordering::Acquire)
            && let Some(compressed) =
                Box::pin(Compressed::open(&self.compressed_spec(key, &names), &file)).await?
        {
            return Ok(Datafile { key, content: Content::Compressed(compressed), names });
        }
        let sums = match self.has_sums.load(Ordering::Acquire) {
            true => {
                let len = file.meta().await?.len;
                match self.open_sums(key, Create::No, len).await {
                    Ok(sums) => Some(sums),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                    Err(error) => return Err(Fault::Io(error)),
                }
            }
            false => None,
        };
        let charge = self.charge(device::number(key), true);
        let raw = match self.module {
            Module::Direct => {
                let direct = self.dir.open(&name, OpenMode { direct: true, ..OpenMode::WRITE }).await?;
                RawFile::new_direct(&self.env, direct, file, charge)
            }
            Module::Buffered | Module::Null => RawFile::new_plain(file, charge),
        };
        let content = match sums {
            Some(sums) => Content::Checked(CheckedFile::new(key, raw, sums, Arc::clone(&self.upkeep))),
            None => Content::Raw(raw),
        };
        Ok(Datafile { key, content, names })
    }

    pub(super) fn null_datafile(&self, key: DatafileKey, meta: Arc<Mutex<FileMeta>>) -> Datafile<E> {
        let charge = self.charge(device::number(key), true);
        let content = Content::Null(NullFile { env: self.env.clone(), meta, charge });
        Datafile { key, content, names: self.names_of(key) }
    }

    fn names_of(&self, key: DatafileKey) -> Arc<Names<E>> {
        Arc::new(Names::new(&self.dir, key, self.charge(device::number(key), false)))
    }

    fn compressed_spec(&self, key: DatafileKey, names: &Arc<Names<E>>) -> compressed::Spec<E> {
        compressed::Spec {
            env: self.env.clone(),
            key,
            names: Arc::clone(names),
            upkeep: Arc::clone(&self.upkeep),
            reserve: Arc::clone(&self.map_reserve),
            cache: Arc::clone(&self.chunk_cache),
            container: self.charge(device::number(key), false),
            map: self.charge(device::map_number(device::number(key)), false),
        }
    }

    /// Opens the checksum file of a datafile of `len` bytes.
    async fn open_sums(&self, key: DatafileKey, create: Create, len: ByteLen) -> io::Result<BlockSums<E>> {
        let mode = OpenMode { write: true, create, direct: false };
        let file = self.dir.open(&sums_name(key), mode).await?;
        BlockSums::open(&self.env, file, key, len).await
    }
}
