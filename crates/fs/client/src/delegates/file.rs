//! A file whose bytes go through delegates.
//!
//! | request | way |
//! | --- | --- |
//! | pieces of pages | to the owner of each page (`hashed`), or to the delegate of this rank (`first-touch`) |
//! | many whole pages (`hashed`, delegates on this host) | the delegates hold or write back the range, and this process uses the underlying file |
//! | cutting, punching, appending | all delegates hold the range, and this process changes the underlying file |
//!
//! A read that ends before its end has two meanings: the end of the file, or a hole between bytes of several delegates.
//! The size by all delegates and the underlying file tells.

use super::hold::{Hold, HoldOutcome};
use super::traffic::{self, Batch, Batches, Call, call_all};
use super::{DelegatedSpec, Delegates, KnownFailures, Source, of_delegate, one};
use crate::error::{Error, Result};
use crate::file_system::{FileHandle, ReadPiece, WritePiece};
use crate::gather::{total, total_mut};
use crate::size::OFFSET_MAX;
use std::collections::BTreeSet;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weft_core::delegates::ownership::{FileNumber, PageId, PageIndex, Policy, hashed_owner, home, pieces};
use weft_core::{ByteLen, Extent, FileOffset, ServerId};
use weft_env::mutants::{Mutant, is_seeded};
use weft_env::{Address, Env};
use weft_wire::Errno;
use weft_wire::delegate::{DelegateReply, DelegateRequest, FileSource};

/// Attempts of a request beside one for each delegate, for connections that are lost again meanwhile.
const ATTEMPTS_MORE: u32 = 4;

/// A file whose bytes go through the delegates of the job. `F` is the same file in the underlying file system, which this
/// process has open.
///
/// The first read or write registers the file at all delegates.
pub struct DelegatedFile<E: Env, F: FileHandle> {
    below: F,
    delegates: Delegates<E>,
    spec: DelegatedSpec<E>,
    /// Length of a page; 0 until the file is registered.
    page_len: AtomicU64,
    /// Number of this open file among those of the process.
    handle: u64,
    known_failures: Arc<KnownFailures>,
}

impl<E: Env, F: FileHandle> DelegatedFile<E, F> {
    /// Creates the handle; sends no message.
    pub fn new(delegates: &Delegates<E>, below: F, spec: DelegatedSpec<E>) -> Self {
        let known_failures = Arc::new(KnownFailures::of(delegates.settings.delegates as usize));
        let handle = delegates.last_handle.fetch_add(1, Relaxed) + 1;
        let page_len = AtomicU64::new(0);
        Self { below, delegates: delegates.clone(), spec, page_len, handle, known_failures }
    }

    /// The file in the underlying file system.
    pub fn below(&self) -> &F {
        &self.below
    }

    /// Returns the properties.
    pub fn spec(&self) -> &DelegatedSpec<E> {
        &self.spec
    }

    /// Returns the delegates.
    pub fn delegates(&self) -> &Delegates<E> {
        &self.delegates
    }

    /// Returns the length of the file's pages, once it is registered.
    pub fn page_len(&self) -> Option<u64> {
        Some(self.page_len.load(Relaxed)).filter(|len| *len > 0)
    }

    /// Writes the bytes that delegates hold to the underlying file, so that other calls of this process on the
    /// underlying file see them. Does not sync.
    ///
    /// # Errors
    /// Errors of the underlying file.
    pub async fn write_back(&self) -> Result<()> {
        let file = self.number();
        let request = || DelegateRequest::WriteBack { file, start: 0, end: u64::MAX };
        self.about(self.delegates.tell_each(request).await)
    }

    const fn number(&self) -> FileNumber {
        self.spec.number
    }

    fn about<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| error.about(&self.spec.path))
    }

    fn request_to_open(&self, delegate: ServerId, page_len: u64) -> Call<E> {
        let spec = &self.spec;
        let (source, descriptor) = match &spec.source {
            Source::Weft(token) => (FileSource::Token(token.clone()), None),
            Source::Host { file, path, inode } => {
                let by_path = FileSource::Path { path: path.clone(), inode: *inode };
                (FileSource::Descriptor, Some((file.clone(), by_path)))
            }
        };
        let request = DelegateRequest::Open {
            file: spec.number,
            handle: self.handle,
            source,
            read: spec.read,
            write: spec.write,
            page_len,
            name: spec.path.clone(),
        };
        Call { descriptor, ..Call::new(delegate, request) }
    }

    /// Registers the file at all delegates, and returns the length of its pages. The home of its first page knows the
    /// length of a file that others have open already.
    async fn register(&self) -> Result<u64> {
        let delegates = &self.delegates;
        let first = home(PageId::new(self.number(), PageIndex(0)), delegates.settings.delegates);
        let first = ServerId(first.0);
        let asked = delegates.settings.page_len.unwrap_or(self.spec.page_len);
        let page_len = self.register_at(vec![first], asked).await?[0];
        let others = delegates.all().filter(|delegate| *delegate != first).collect();
        self.register_with(others, page_len).await?;
        self.page_len.store(page_len, Relaxed);
        Ok(page_len)
    }

    /// Registers the file at some delegates, whose pages must have the length `page_len`.
    async fn register_with(&self, at: Vec<ServerId>, page_len: u64) -> Result<()> {
        let agree = page_len > 0 && self.register_at(at, page_len).await?.iter().all(|len| *len == page_len);
        if !agree {
            const WHY: &str =
                "delegates disagree about the length of the file's pages: close the file everywhere";
            return Err(Error::misuse(Errno::EIO, WHY));
        }
        Ok(())
    }

    /// Registers the file at some delegates, and returns the length of its pages at each.
    async fn register_at(&self, at: Vec<ServerId>, page_len: u64) -> Result<Vec<u64>> {
        let Delegates { core, incarnations, .. } = &self.delegates;
        let mut calls: Vec<Call<E>> =
            at.into_iter().map(|delegate| self.request_to_open(delegate, page_len)).collect();
        one(call_all(core, incarnations, &mut calls).await)?;
        let opened = |call: Call<E>| match call.reply {
            Some(DelegateReply::Opened { page_len, failures }) => {
                self.known_failures.registered(call.delegate, failures);
                Ok(page_len)
            }
            _ => Err(Error::unexpected_reply()),
        };
        calls.into_iter().map(opened).collect()
    }

    /// Registers the file again at delegates that have lost the connection to this process. Others are not asked: they may
    /// have ended.
    async fn register_again(&self, at: Vec<ServerId>) -> Result<()> {
        let page_len = self.registered().await?;
        self.register_with(at, page_len).await
    }

    /// Attempts of a request, at each of which another delegate may not know the file.
    fn attempts_max(&self) -> u32 {
        ATTEMPTS_MORE + self.delegates.settings.delegates
    }

    async fn registered(&self) -> Result<u64> {
        match self.page_len.load(Relaxed) {
            0 => self.register().await,
            page_len => Ok(page_len),
        }
    }

    /// Calls `add` with the delegate and the length of each part of an extent that goes to one delegate.
    fn route(&self, extent: Extent, page_len: u64, mut add: impl FnMut(ServerId, usize)) {
        let settings = &self.delegates.settings;
        match settings.policy {
            Policy::FirstTouch => add(ServerId(self.delegates.own.0), extent.len.0 as usize),
            Policy::Hashed => {
                let owner = |page| {
                    let page = PageId::new(self.spec.number, page);
                    hashed_owner(page, settings.delegates, settings.group_pages)
                };
                for (owner, part) in pieces(extent, ByteLen(page_len), owner) {
                    add(ServerId(owner.0), part.len.0 as usize);
                }
            }
        }
    }

    async fn write_pieces(&self, list: &[WritePiece<'_>]) -> Result<()> {
        for registrations in 0.. {
            let page_len = self.registered().await?;
            let mut batches = Batches(Vec::new());
            for (index, piece) in list.iter().enumerate() {
                let (mut offset, mut rest) = (piece.offset.0, piece.bytes);
                self.route(Extent::new(offset, rest.len() as u64), page_len, |delegate, len| {
                    let (part, behind) = rest.split_at(len);
                    batches.push(delegate, index, offset, part);
                    (offset, rest) = (offset + len as u64, behind);
                });
            }
            let Delegates { core, incarnations, .. } = &self.delegates;
            one(traffic::write_all(core, incarnations, (self.number(), &[]), &mut batches.0).await)?;
            if !self.must_register(&batches.0, registrations).await? {
                return Ok(());
            }
        }
        unreachable!("the attempts end with an error")
    }

    /// Registers the file again if a delegate does not know it, and returns whether to repeat the request.
    async fn must_register<B>(&self, batches: &[Batch<B>], registrations: u32) -> Result<bool> {
        let delegates = self.delegates.settings.delegates;
        let unknown_at = |batch: &Batch<B>| match batch.reply {
            Some(DelegateReply::NotOpen { delegate }) => Some(ServerId(delegate)),
            _ => None,
        };
        let unknown: BTreeSet<ServerId> = batches.iter().filter_map(unknown_at).collect();
        if unknown.is_empty() {
            return Ok(false);
        }
        if registrations >= self.attempts_max() {
            return Err(lost_again());
        }
        if unknown.iter().any(|delegate| delegate.0 >= delegates) {
            return Err(Error::unexpected_reply());
        }
        self.register_again(unknown.into_iter().collect()).await?;
        Ok(true)
    }

    /// Reads pieces through the delegates, and returns for each how many bytes are known.
    async fn read_known(&self, list: &mut [(u64, &mut [u8])]) -> Result<Vec<usize>> {
        let starts: Vec<u64> = list.iter().map(|(offset, _)| *offset).collect();
        for registrations in 0.. {
            let page_len = self.registered().await?;
            let mut batches = Batches(Vec::new());
            for (index, (offset, buffer)) in list.iter_mut().enumerate() {
                let (mut offset, mut rest) = (*offset, &mut **buffer);
                self.route(Extent::new(offset, rest.len() as u64), page_len, |delegate, len| {
                    let (part, behind) = std::mem::take(&mut rest).split_at_mut(len);
                    batches.push(delegate, index, offset, part);
                    (offset, rest) = (offset + len as u64, behind);
                });
            }
            let Delegates { core, incarnations, .. } = &self.delegates;
            one(traffic::read_all(core, incarnations, (self.number(), &[]), &mut batches.0).await)?;
            if self.must_register(&batches.0, registrations).await? {
                continue;
            }
            // Bytes before the last known one are known: holes in between are zeros.
            let ends = known_ends(&batches.0, starts.len());
            return Ok(starts
                .iter()
                .zip(ends)
                .map(|(start, end)| end.saturating_sub(*start) as usize)
                .collect());
        }
        unreachable!("the attempts end with an error")
    }

    async fn read_pieces(&self, list: &mut [(u64, &mut [u8])]) -> Result<Vec<usize>> {
        let mut done = self.read_known(list).await?;
        if !list.iter().zip(&done).any(|((_, buffer), done)| *done < buffer.len()) {
            return Ok(done);
        }
        // The end of the file, or a hole before bytes that other delegates hold.
        let size = self.full_size().await?;
        for ((offset, buffer), done) in list.iter_mut().zip(&mut done) {
            let within = size.saturating_sub(*offset).min(buffer.len() as u64) as usize;
            if *done >= within {
                continue;
            }
            // Bytes written since the first read are read again, so that a grown file never shows zeros in their place.
            let mut rest = [(*offset + *done as u64, &mut buffer[*done..within])];
            let known = self.read_known(&mut rest).await?[0];
            if self.delegates.core.env.hollow(0).is_none() {
                buffer[*done + known..within].fill(0);
            }
            *done = within;
        }
        Ok(done)
    }

    async fn full_size(&self) -> Result<u64> {
        let unwritten = self.delegates.unwritten_end(self.number()).await?;
        Ok(self.below.size().await?.0.max(unwritten.unwrap_or(0)))
    }

    /// Returns the whole pages of an extent that this process should transfer itself, and the delegates that own them.
    fn direct_part(&self, extent: Extent, page_len: u64) -> Option<(u64, u64, Vec<ServerId>)> {
        let settings = &self.delegates.settings;
        let min = settings.direct_min.filter(|_| settings.policy == Policy::Hashed)?;
        if extent.len.0 < min || !self.delegates.are_local() {
            return None;
        }
        let (start, end) = (extent.offset.0, extent.end()?.0);
        let (first, last) = (start.next_multiple_of(page_len), end / page_len * page_len);
        if last < first.saturating_add(min) {
            return None;
        }
        let mut owners = Vec::new();
        self.route(Extent::new(first, last - first), page_len, |delegate, _| {
            if !owners.contains(&delegate) {
                owners.push(delegate);
            }
        });
        owners.sort_unstable();
        Some((first, last, owners))
    }

    async fn hold_all(&self, range: (u64, u64)) -> Result<Hold<'_, E>> {
        self.about(self.hold_at(self.delegates.all().collect(), range).await)
    }

    async fn hold_at(&self, at: Vec<ServerId>, range: (u64, u64)) -> Result<Hold<'_, E>> {
        for _ in 0..self.attempts_max() {
            self.registered().await?;
            match self.delegates.hold(at.clone(), self.number(), range).await? {
                HoldOutcome::Held(hold) => return Ok(hold),
                HoldOutcome::NotOpen(unknown) => self.register_again(unknown).await?,
            }
        }
        Err(lost_again())
    }

    async fn write_at_most(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let extent = Extent::new(offset, bytes.len() as u64);
        let page_len = self.registered().await?;
        let Some((start, end, owners)) = self.direct_part(extent, page_len) else {
            return self.write_pieces(&[WritePiece { offset: FileOffset(offset), bytes }]).await;
        };
        let (head, rest) = bytes.split_at((start - offset) as usize);
        let (middle, tail) = rest.split_at((end - start) as usize);
        let around = [
            WritePiece { offset: FileOffset(offset), bytes: head },
            WritePiece { offset: FileOffset(end), bytes: tail },
        ];
        if !head.is_empty() || !tail.is_empty() {
            self.write_pieces(&around).await?;
        }
        let mut hold = self.hold_at(owners, (start, end)).await?;
        if is_seeded(Mutant::EarlyRelease) {
            hold.release_early().await;
        }
        let written = crate::file_system::write_all(&self.below, middle, FileOffset(start)).await;
        hold.release().await?;
        written
    }

    async fn read_at_most(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let extent = Extent::new(offset, buffer.len() as u64);
        let page_len = self.registered().await?;
        let Some((start, end, owners)) = self.direct_part(extent, page_len) else {
            return Ok(self.read_pieces(&mut [(offset, buffer)]).await?[0]);
        };
        let file = self.number();
        let request = || DelegateRequest::WriteBack { file, start, end };
        let mut calls: Vec<Call<E>> = owners.into_iter().map(|owner| Call::new(owner, request())).collect();
        let Delegates { core, incarnations, .. } = &self.delegates;
        one(call_all(core, incarnations, &mut calls).await)?;
        let (head, rest) = buffer.split_at_mut((start - offset) as usize);
        let (middle, tail) = rest.split_at_mut((end - start) as usize);
        let done = crate::file_system::read_all(&self.below, middle, FileOffset(start)).await?;
        // Head, tail, and the bytes behind the end of the underlying file.
        let mut parts = [(offset, head), (start + done as u64, &mut middle[done..]), (end, tail)];
        let lens: Vec<usize> = parts.iter().map(|(_, part)| part.len()).collect();
        let known = self.read_pieces(&mut parts).await?;
        if known[0] < lens[0] {
            return Ok(known[0]);
        }
        if known[1] < lens[1] {
            return Ok(lens[0] + done + known[1]);
        }
        Ok(lens[0] + (end - start) as usize + known[2])
    }
}

/// Error of a process whose registration does not last.
const fn lost_again() -> Error {
    Error::misuse(Errno::EIO, "a delegate keeps losing the connection to this process")
}

/// Returns one past the last known byte of each of the caller's pieces; 0 if none is known.
fn known_ends(batches: &[Batch<&mut [u8]>], pieces: usize) -> Vec<u64> {
    let mut ends = vec![0; pieces];
    for batch in batches {
        let Some(DelegateReply::Read { known }) = &batch.reply else { continue };
        for (index, (piece, part_of)) in batch.pieces.iter().zip(&batch.parts_of).enumerate() {
            let known = known.get(index).copied().unwrap_or(piece.len);
            if known > 0 {
                let end = &mut ends[*part_of as usize];
                *end = piece.offset.saturating_add(u64::from(known)).max(*end);
            }
        }
    }
    ends
}

impl<E: Env> Delegates<E> {
    /// Whether all delegates are on this host.
    fn are_local(&self) -> bool {
        let is_local = |address: &Address| matches!(address, Address::Unix(_));
        self.core.map().servers.iter().all(|entry| entry.addresses.iter().any(is_local))
    }
}

fn check_offset(offset: u64, len: usize) -> Result<()> {
    if offset.checked_add(len as u64).is_none_or(|end| end > OFFSET_MAX) {
        return Err(Error::misuse(Errno::EFBIG, "the request ends behind the last possible offset"));
    }
    Ok(())
}

impl<E: Env, F: FileHandle> FileHandle for DelegatedFile<E, F> {
    async fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: FileOffset) -> Result<usize> {
        if !self.spec.read {
            return Err(Error::misuse(Errno::EBADF, "the file is not open for reading"));
        }
        if offset.0 > OFFSET_MAX {
            return Err(Error::misuse(Errno::EINVAL, "the offset is behind the last possible one"));
        }
        if total_mut(bufs) == 0 {
            return Ok(0);
        }
        if let [buffer] = bufs {
            return self.about(self.read_at_most(buffer, offset.0).await);
        }
        let mut at = offset.0;
        let mut list: Vec<(u64, &mut [u8])> = Vec::with_capacity(bufs.len());
        for buffer in bufs.iter_mut() {
            let start = at;
            at += buffer.len() as u64;
            list.push((start, buffer));
        }
        let lens: Vec<usize> = list.iter().map(|(_, buffer)| buffer.len()).collect();
        let done = self.about(self.read_pieces(&mut list).await)?;
        let whole = done.iter().zip(&lens).take_while(|(done, len)| done == len).count();
        Ok(done.iter().take(whole + 1).sum())
    }

    async fn write_at(&self, bufs: &[IoSlice<'_>], offset: FileOffset) -> Result<usize> {
        let len = total(bufs);
        if !self.spec.write {
            return Err(Error::misuse(Errno::EBADF, "the file is not open for writing"));
        }
        check_offset(offset.0, len)?;
        if len == 0 {
            return Ok(0);
        }
        if let [bytes] = bufs {
            self.about(self.write_at_most(bytes, offset.0).await)?;
            return Ok(len);
        }
        let mut at = offset.0;
        let list: Vec<WritePiece<'_>> = bufs
            .iter()
            .map(|bytes| {
                let piece = WritePiece { offset: FileOffset(at), bytes };
                at += bytes.len() as u64;
                piece
            })
            .collect();
        self.about(self.write_pieces(&list).await)?;
        Ok(len)
    }

    async fn read_list(&self, pieces: &mut [ReadPiece<'_>]) -> Result<Vec<usize>> {
        if !self.spec.read {
            return Err(Error::misuse(Errno::EBADF, "the file is not open for reading"));
        }
        for piece in pieces.iter() {
            check_offset(piece.offset.0, piece.buffer.len())?;
        }
        let mut list: Vec<(u64, &mut [u8])> =
            pieces.iter_mut().map(|piece| (piece.offset.0, &mut *piece.buffer)).collect();
        self.about(self.read_pieces(&mut list).await)
    }

    async fn write_list(&self, pieces: &[WritePiece<'_>]) -> Result<()> {
        if !self.spec.write {
            return Err(Error::misuse(Errno::EBADF, "the file is not open for writing"));
        }
        for piece in pieces {
            check_offset(piece.offset.0, piece.bytes.len())?;
        }
        self.about(self.write_pieces(pieces).await)
    }

    /// Holds the whole file at all delegates: the underlying file then has its full size.
    async fn append(&self, bufs: &[IoSlice<'_>]) -> Result<(FileOffset, usize)> {
        let hold = self.hold_all((0, u64::MAX)).await?;
        let appended = self.below.append(bufs).await;
        self.about(hold.release().await)?;
        appended
    }

    async fn size(&self) -> Result<ByteLen> {
        self.about(self.full_size().await).map(ByteLen)
    }

    async fn truncate(&self, size: ByteLen) -> Result<()> {
        // A new file that is opened with O_TRUNC needs no registration.
        if size.0 == 0 && self.page_len().is_none() && self.size().await?.0 == 0 {
            return Ok(());
        }
        let mut hold = self.hold_all((size.0, u64::MAX)).await?;
        if is_seeded(Mutant::EarlyRelease) {
            hold.release_early().await;
        }
        let done = self.below.truncate(size).await;
        self.about(hold.release().await)?;
        done
    }

    async fn sync(&self) -> Result<()> {
        let file = self.number();
        let request = |failures_seen| DelegateRequest::Sync { file, failures_seen };
        let told = self.about(self.delegates.sync_each(&self.known_failures, request).await);
        // This host may be another one than those of the delegates.
        let synced = self.below.sync().await;
        told.and(synced)
    }

    async fn punch(&self, extent: Extent) -> Result<()> {
        let end = extent.end().map_or(u64::MAX, |end| end.0);
        let hold = self.hold_all((extent.offset.0, end)).await?;
        let done = self.below.punch(extent).await;
        self.about(hold.release().await)?;
        done
    }

    async fn seek_data(&self, offset: FileOffset) -> Result<Option<FileOffset>> {
        self.write_back().await?;
        self.below.seek_data(offset).await
    }

    async fn seek_hole(&self, offset: FileOffset) -> Result<Option<FileOffset>> {
        self.write_back().await?;
        self.below.seek_hole(offset).await
    }

    async fn close(self) -> Result<()> {
        if self.page_len.swap(0, Relaxed) == 0 {
            return Ok(());
        }
        let file = self.number();
        let handle = self.handle;
        let request = |failures_seen| DelegateRequest::Close { file, handle, failures_seen };
        self.about(self.delegates.sync_each(&self.known_failures, request).await)
    }
}

/// A dropped file is closed without a report.
impl<E: Env, F: FileHandle> Drop for DelegatedFile<E, F> {
    fn drop(&mut self) {
        if *self.page_len.get_mut() == 0 || self.delegates.core.is_abandoned() {
            return;
        }
        let (delegates, file, handle) = (self.delegates.clone(), self.spec.number, self.handle);
        let known_failures = Arc::clone(&self.known_failures);
        let _ = self.delegates.core.env.detach("weft close", move || async move {
            let request = |failures_seen| DelegateRequest::Close { file, handle, failures_seen };
            if let Err(error) = delegates.sync_each(&known_failures, request).await {
                crate::log::note(&of_delegate(error).to_string());
            }
        });
    }
}
