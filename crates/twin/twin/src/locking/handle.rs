//! Open files of a locking file system.

use super::state::{ClientNumber, Lockable, LockingFs};
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;
use weft_client::{Error, FileHandle, Result};
use weft_core::ranges::ByteRange;
use weft_core::{ByteLen, Extent, FileOffset, Nanos};
use weft_delegate::Underlying;
use weft_env::Env;
use weft_env::sim::{SimEnv, SimFile};
use weft_models::locks::Mode;
use weft_wire::Errno;
use weft_wire::delegate::FileSource;

/// A locking file system as one process sees it.
#[derive(Clone)]
pub struct LockingMount {
    fs: Arc<LockingFs>,
    client: ClientNumber,
    /// Longest part of a write that holds its locks at once.
    write_max: u64,
}

impl LockingMount {
    /// Mounts the file system in process `env`.
    pub fn new(fs: &Arc<LockingFs>, env: &SimEnv) -> Self {
        Self { fs: Arc::clone(fs), client: fs.add_client(env), write_max: u64::MAX }
    }

    /// Divides longer writes at multiples of `write_max`.
    #[must_use]
    pub fn with_write_max(self, write_max: u64) -> Self {
        Self { write_max, ..self }
    }

    /// Opens a file, which is created if it is missing.
    pub async fn open_file(&self, name: &str) -> LockedFile {
        self.fs.metadata_request(self.client).await;
        LockedFile { mount: self.clone(), file: self.fs.file_number(name) }
    }
}

/// The delegates' access to the file system. Ranks pass names as tokens.
impl Underlying<SimEnv> for LockingMount {
    type File = LockedFile;

    async fn open(&self, source: &FileSource, _: Option<SimFile>, _: bool, _: &[u8]) -> Result<LockedFile> {
        match source {
            FileSource::Token(token) => Ok(self.open_file(&String::from_utf8_lossy(token)).await),
            FileSource::Descriptor | FileSource::Path { .. } => {
                let why = "a file of this model has no path";
                Err(Error::Misuse { errno: Errno(libc::EINVAL), why })
            }
        }
    }
}

/// An open file of a locking file system.
pub struct LockedFile {
    mount: LockingMount,
    file: u32,
}

impl LockedFile {
    /// Number of the file.
    pub fn number(&self) -> u32 {
        self.file
    }

    fn fs(&self) -> &Arc<LockingFs> {
        &self.mount.fs
    }

    fn size_now(&self) -> u64 {
        self.fs().state.lock().sizes[self.file as usize]
    }

    /// Waits while the client copies `len` bytes between the program and its cache.
    async fn copy(&self, len: u64) {
        let nanos = (len as f64 * 1e3 / self.fs().figures.copy_mb_s) as u64;
        self.fs().env_of(self.mount.client).sleep(Nanos(nanos)).await;
    }

    /// Reads the units at the ends of a write that it changes in part, unless the client has their other bytes or the
    /// file has none there.
    async fn fill_units(&self, range: &Range<u64>) {
        let (fs, client) = (self.fs(), self.mount.client);
        let unit = fs.figures.unit;
        let size = self.size_now();
        let before = range.start / unit * unit..range.start;
        let after = range.end..range.end.next_multiple_of(unit);
        for missing in [before, after] {
            if missing.is_empty() || missing.start >= size {
                continue;
            }
            let Some(&(lockable, part)) = fs.lockables(self.file, missing).first() else { continue };
            let has_all = {
                let state = fs.state.lock();
                let cache = state.clients[client.0 as usize].caches.get(&lockable);
                cache.is_some_and(|cache| cache.valid.contains(part))
            };
            if !has_all {
                fs.state.lock().counters.unit_reads += 1;
                fs.read_range(client, lockable, part).await;
            }
        }
    }

    async fn write_range(&self, range: Range<u64>) {
        let (fs, client) = (self.fs(), self.mount.client);
        let unit = fs.figures.unit;
        // Locks cover the units that the write changes in part.
        let locked = range.start / unit * unit..range.end.next_multiple_of(unit);
        let mut uses = Vec::new();
        for (lockable, part) in fs.lockables(self.file, locked) {
            uses.push(fs.lock(client, lockable, part, Mode::Write).await);
        }
        self.fill_units(&range).await;
        self.copy(range.end - range.start).await;
        let parts: Vec<(Lockable, ByteRange)> = fs.lockables(self.file, range.clone());
        for (lockable, part) in &parts {
            fs.add_dirty(client, *lockable, *part);
        }
        {
            let size = &mut fs.state.lock().sizes[self.file as usize];
            *size = (*size).max(range.end);
        }
        for number in uses {
            fs.release(client, number);
        }
        for (lockable, part) in parts {
            fs.write_full_requests(client, lockable, part);
            fs.wait_for_cache(client, lockable).await;
        }
    }

    async fn read_range(&self, range: Range<u64>) {
        let (fs, client) = (self.fs(), self.mount.client);
        let mut uses = Vec::new();
        let parts = fs.lockables(self.file, range.clone());
        for (lockable, part) in &parts {
            uses.push(fs.lock(client, *lockable, *part, Mode::Read).await);
        }
        let missing: Vec<(Lockable, ByteRange)> = {
            let state = fs.state.lock();
            let caches = &state.clients[client.0 as usize].caches;
            let gaps = |(lockable, part): &(Lockable, ByteRange)| match caches.get(lockable) {
                Some(cache) => cache.valid.gaps(*part).map(|gap| (*lockable, gap)).collect(),
                None => vec![(*lockable, *part)],
            };
            parts.iter().flat_map(gaps).collect()
        };
        let reads = missing.into_iter().map(|(lockable, gap)| fs.read_range(client, lockable, gap));
        super::write_back::all(reads).await;
        self.copy(range.end - range.start).await;
        for number in uses {
            fs.release(client, number);
        }
    }
}

impl FileHandle for LockedFile {
    async fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: FileOffset) -> Result<usize> {
        let wanted: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
        let len = wanted.min(self.size_now().saturating_sub(offset.0));
        if len > 0 {
            self.read_range(offset.0..offset.0 + len).await;
        }
        Ok(len as usize)
    }

    async fn write_at(&self, bufs: &[IoSlice<'_>], offset: FileOffset) -> Result<usize> {
        let len: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
        let (mut at, end, max) = (offset.0, offset.0 + len, self.mount.write_max);
        while at < end {
            let part = at..(at / max * max).saturating_add(max).min(end);
            at = part.end;
            self.write_range(part).await;
        }
        Ok(len as usize)
    }

    async fn append(&self, bufs: &[IoSlice<'_>]) -> Result<(FileOffset, usize)> {
        let end = FileOffset(self.size_now());
        Ok((end, self.write_at(bufs, end).await?))
    }

    async fn size(&self) -> Result<ByteLen> {
        Ok(ByteLen(self.size_now()))
    }

    async fn truncate(&self, size: ByteLen) -> Result<()> {
        self.fs().metadata_request(self.mount.client).await;
        self.fs().state.lock().sizes[self.file as usize] = size.0;
        Ok(())
    }

    async fn sync(&self) -> Result<()> {
        self.fs().write_file(self.mount.client, self.file).await;
        Ok(())
    }

    async fn punch(&self, _: Extent) -> Result<()> {
        Ok(())
    }

    async fn seek_data(&self, offset: FileOffset) -> Result<Option<FileOffset>> {
        Ok((offset.0 < self.size_now()).then_some(offset))
    }

    async fn seek_hole(&self, offset: FileOffset) -> Result<Option<FileOffset>> {
        Ok(Some(FileOffset(offset.0.max(self.size_now()))))
    }

    /// Writes the client's dirty bytes of the file, as in IODC (section IV: *closing files will flush all the dirty
    /// data*).
    async fn close(self) -> Result<()> {
        self.sync().await?;
        self.fs().metadata_request(self.mount.client).await;
        Ok(())
    }
}
