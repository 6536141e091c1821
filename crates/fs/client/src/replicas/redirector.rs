//! The open file of a program whose requests go to the original, to its replica, or to both.

use super::files::Replica;
use super::format::MARKS_AT;
use super::usage::{Begun, Usage};
use crate::error::Result;
use crate::file_system::{FileHandle, ReadPiece, WritePiece, forward_operations};
use parking_lot::Mutex;
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicU64, Ordering};
use weft_core::replicas::DirtyRegions;
use weft_core::{ByteLen, Extent, FileOffset, LocalOffset, Nanos};
use weft_env::mutants::{self, Mutant};
use weft_env::{Env, File};

/// Interval in which a writing process notes that it writes.
const BEAT_EVERY: Nanos = Nanos::from_s(1);

/// An open file whose mapped bytes are in a replica. `F` is the open original.
pub struct Redirector<E: Env, F: FileHandle> {
    env: E,
    original: F,
    usage: Usage<E>,
    /// Regions that this process has marked.
    marked: Mutex<DirtyRegions>,
    /// Time of the last note that this process writes, plus 1; 0 before the first.
    beat: AtomicU64,
}

impl<E: Env, F: FileHandle> Redirector<E, F> {
    fn new(env: E, original: F, usage: Usage<E>) -> Self {
        let marked = DirtyRegions::new(usage.replica().mapping().replica_len());
        Self { env, original, usage, marked: Mutex::new(marked), beat: AtomicU64::new(0) }
    }

    fn replica(&self) -> &Replica<E> {
        self.usage.replica()
    }

    /// Notes that this process writes: durably before its first write, then at intervals.
    async fn before_write(&self) -> Result<()> {
        let now = self.env.tick();
        let last = self.beat.load(Ordering::Relaxed);
        if last == 0 {
            self.replica().mark_written().await?;
        } else if now.0.saturating_sub(last - 1) >= BEAT_EVERY.0 {
            self.replica().beat().await?;
        } else {
            return Ok(());
        }
        self.beat.store(now.0 + 1, Ordering::Relaxed);
        Ok(())
    }

    /// Marks the regions of a range of the replica before its first byte is written.
    async fn before_change(&self, at: u64, len: u64) -> Result<()> {
        let regions = {
            let marked = self.marked.lock();
            let regions = marked.regions(at, len);
            if regions.clone().all(|number| marked.contains(number)) {
                return Ok(());
            }
            regions
        };
        self.replica().mark(MARKS_AT + regions.start, regions.end - regions.start, true).await?;
        let mut marked = self.marked.lock();
        regions.for_each(|number| marked.insert(number));
        Ok(())
    }

    /// Extends the original so that it ends at or after `end`. A byte is written, because another process may extend the file
    /// at the same time. The replica has the byte that counts.
    async fn extend(&self, end: u64) -> Result<()> {
        if self.original.size().await?.0 < end {
            self.original.write_at(&[IoSlice::new(&[0])], FileOffset(end - 1)).await?;
        }
        Ok(())
    }

    /// Reads from a file of `size` bytes.
    async fn read_range(&self, buffer: &mut [u8], offset: u64, size: u64) -> Result<usize> {
        let len = (buffer.len() as u64).min(size.saturating_sub(offset)) as usize;
        let mut rest = &mut buffer[..len];
        let mut done = 0;
        for part in self.replica().mapping().split(Extent::new(offset, len as u64)) {
            let (own, after) = rest.split_at_mut(part.file.len.0 as usize);
            rest = after;
            let wanted = own.len();
            let got = match part.replica {
                Some(at) => {
                    let read =
                        self.replica().data().read_at(&mut [IoSliceMut::new(own)], LocalOffset(at)).await;
                    let got = read.map_err(|error| self.replica().failure(&error))?;
                    if got < wanted {
                        return Err(self.replica().refused(
                            "its data ends too early; `weft replicate drop` removes it, and its file has the bytes of the last \
                             synchronization",
                        ));
                    }
                    got
                }
                None => self.original.read_at(&mut [IoSliceMut::new(own)], part.file.offset).await?,
            };
            done += got;
            if got < wanted {
                break;
            }
        }
        Ok(done)
    }

    /// Writes a range, and notes one past the last byte that the replica got in `end`.
    async fn write_range(&self, bytes: &[u8], offset: u64, end: &mut u64) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.before_write().await?;
        let mut rest = bytes;
        for part in self.replica().mapping().split(Extent::new(offset, bytes.len() as u64)) {
            let (own, after) = rest.split_at(part.file.len.0 as usize);
            rest = after;
            match part.replica {
                Some(at) => {
                    let is_late = mutants::is_seeded(Mutant::LateReplicaMark);
                    if !is_late {
                        self.before_change(at, own.len() as u64).await?;
                    }
                    let done = self.replica().data().write_at(&[IoSlice::new(own)], LocalOffset(at)).await;
                    done.map_err(|error| self.replica().failure(&error))?;
                    if is_late {
                        self.before_change(at, own.len() as u64).await?;
                    }
                    *end = part.file.offset.0 + own.len() as u64;
                }
                None => crate::file_system::write_all(&self.original, own, part.file.offset).await?,
            }
        }
        Ok(())
    }
}

impl<E: Env, F: FileHandle> FileHandle for Redirector<E, F> {
    async fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: FileOffset) -> Result<usize> {
        let size = self.original.size().await?.0;
        let (mut done, mut at) = (0, offset.0);
        for buf in bufs {
            let got = self.read_range(buf, at, size).await?;
            (done, at) = (done + got, at + got as u64);
            if got < buf.len() {
                break;
            }
        }
        Ok(done)
    }

    async fn write_at(&self, bufs: &[IoSlice<'_>], offset: FileOffset) -> Result<usize> {
        let (mut at, mut end, mut written) = (offset.0, 0, Ok(()));
        for buf in bufs {
            written = self.write_range(buf, at, &mut end).await;
            if written.is_err() {
                break;
            }
            at += buf.len() as u64;
        }
        // Also after an error, because the replica has only zeros behind the end of the file.
        let extended = if end > 0 { self.extend(end).await } else { Ok(()) };
        written.and(extended)?;
        Ok((at - offset.0) as usize)
    }

    async fn append(&self, bufs: &[IoSlice<'_>]) -> Result<(FileOffset, usize)> {
        let _turn = self.usage.append_turn().await?;
        let end = FileOffset(self.original.size().await?.0);
        Ok((end, self.write_at(bufs, end).await?))
    }

    async fn size(&self) -> Result<ByteLen> {
        self.original.size().await
    }

    async fn truncate(&self, size: ByteLen) -> Result<()> {
        self.before_write().await?;
        if size >= self.original.size().await? {
            return self.original.truncate(size).await;
        }
        let replica = self.replica();
        replica.set_cutting(true).await?;
        self.original.truncate(size).await?;
        if !mutants::is_seeded(Mutant::ReplicaAfterCut) {
            replica.clear_after(size).await?;
        }
        replica.data().sync().await.map_err(|error| replica.failure(&error))?;
        replica.set_cutting(false).await
    }

    async fn sync(&self) -> Result<()> {
        // Also what other processes of this host wrote, as fsync does.
        let replica = self.replica();
        replica.data().sync().await.map_err(|error| replica.failure(&error))?;
        self.original.sync().await
    }

    async fn punch(&self, extent: Extent) -> Result<()> {
        self.before_write().await?;
        let size = self.original.size().await?.0;
        let end = extent.offset.0.saturating_add(extent.len.0).min(size);
        let Some(len) = end.checked_sub(extent.offset.0) else { return Ok(()) };
        let replica = self.replica();
        for part in replica.mapping().split(Extent::new(extent.offset.0, len)) {
            match part.replica {
                Some(at) => {
                    self.before_change(at, part.file.len.0).await?;
                    let done = replica.data().punch(LocalOffset(at), part.file.len).await;
                    done.map_err(|error| replica.failure(&error))?;
                }
                None => self.original.punch(part.file).await?,
            }
        }
        Ok(())
    }

    /// Holes of the original may have bytes in the replica, so the whole file counts as data.
    async fn seek_data(&self, offset: FileOffset) -> Result<Option<FileOffset>> {
        Ok((offset.0 < self.original.size().await?.0).then_some(offset))
    }

    async fn seek_hole(&self, offset: FileOffset) -> Result<Option<FileOffset>> {
        let size = self.original.size().await?.0;
        Ok((offset.0 < size).then_some(FileOffset(size)))
    }

    async fn close(self) -> Result<()> {
        let Self { original, usage, .. } = self;
        // The original first: what it holds back must be in its attributes.
        let closed = original.close().await;
        let ended = usage.end().await;
        closed.and(ended.map(|_| ()))
    }
}

/// An open file with or without a replica.
pub enum MaybeReplicated<E: Env, F: FileHandle> {
    /// The file has no replica.
    Plain(F),
    /// The present users of the file do not use its replica.
    Bypassed(F, Box<Usage<E>>),
    /// Requests go to the replica.
    Used(Box<Redirector<E, F>>),
}

impl<E: Env, F: FileHandle> MaybeReplicated<E, F> {
    /// Returns the file of a use that has begun.
    pub fn begun(env: E, original: F, usage: Usage<E>, begun: Begun) -> Self {
        match begun {
            Begun::Used => Self::Used(Box::new(Redirector::new(env, original, usage))),
            Begun::Bypassed => Self::Bypassed(original, Box::new(usage)),
        }
    }

    /// Returns the open original.
    pub fn original(&self) -> &F {
        match self {
            Self::Plain(file) | Self::Bypassed(file, _) => file,
            Self::Used(file) => &file.original,
        }
    }

    /// Whether requests go to a replica.
    pub fn is_redirected(&self) -> bool {
        matches!(self, Self::Used(_))
    }
}

macro_rules! either {
    ($self:ident, $file:ident => $call:expr) => {
        match $self {
            MaybeReplicated::Plain($file) | MaybeReplicated::Bypassed($file, _) => $call,
            MaybeReplicated::Used($file) => $call,
        }
    };
}

impl<E: Env, F: FileHandle> FileHandle for MaybeReplicated<E, F> {
    forward_operations!(either);

    async fn append(&self, bufs: &[IoSlice<'_>]) -> Result<(FileOffset, usize)> {
        match self {
            Self::Plain(file) => file.append(bufs).await,
            Self::Bypassed(file, usage) => {
                let _turn = usage.append_turn().await?;
                file.append(bufs).await
            }
            Self::Used(file) => file.append(bufs).await,
        }
    }

    async fn close(self) -> Result<()> {
        match self {
            Self::Plain(file) => file.close().await,
            Self::Bypassed(file, usage) => {
                let closed = file.close().await;
                let ended = usage.end().await;
                closed.and(ended.map(|_| ()))
            }
            Self::Used(file) => file.close().await,
        }
    }
}
