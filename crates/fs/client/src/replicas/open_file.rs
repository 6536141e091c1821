//! An open file of Weft whose mapped bytes are in its replica.
//!
//! | operation | order | reason |
//! | --- | --- | --- |
//! | write | mark regions, write the data, extend the file | a crash never leaves newer bytes without a mark; bytes behind the end are zeros until they count |
//! | truncate, with the append lock | seal the data, mark, clear, fence the file, cut it, release the seal | nobody else reads or writes the data meanwhile; a synchronization may still be copying to the file |
//! | append | fence file and data | see `append` |
//! | synchronize | sync the data, copy, sync the file, clear the marks | neither side may lose what the other one has got from it |

use super::format;
use super::transfer::runs_after;
use crate::append::AppendGrant;
use crate::call::Effect;
use crate::error::{Error, ReplicaFailure, Result};
use crate::file::{LayoutRetry, OpenFile};
use crate::gather::{pick, pick_mut, total, total_mut, zero};
use crate::size::OFFSET_MAX;
use parking_lot::Mutex;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use weft_core::replicas::{DirtyRegions, Mapping, Part, Phase};
use weft_core::{BufferOffset, ByteLen, Extent, FileOffset, Piece};
use weft_env::Env;
use weft_env::mutants::{self, Mutant};
use weft_wire::Errno;
use weft_wire::meta::{MetaReply, MetaRequest, OpenFlags, Redirected, ReplicaInfo};
use xxhash_rust::xxh3::xxh3_64;

/// The replica of an open file.
pub(crate) struct Redirection<E: Env> {
    data: OpenFile<E>,
    mapping: Mapping,
    /// Regions that this open file has marked.
    marked: Mutex<Marked>,
    /// Size that the file has at least, whatever happens to its servers.
    durable_end: Mutex<DurableEnd>,
}

/// Regions that are marked, since the session was last reclaimed: while it was lost, others may have synchronized them.
struct Marked {
    regions: DirtyRegions,
    reclaims: u64,
}

impl Marked {
    /// The regions, as far as they are certain after `reclaims` reclaims.
    fn since(&mut self, reclaims: u64) -> &mut DirtyRegions {
        if self.reclaims != reclaims {
            self.regions.clear();
            self.reclaims = reclaims;
        }
        &mut self.regions
    }
}

/// Number of requests behind the durable size after which a client makes the file's size durable. It doubles each time while
/// fewer requests than that have gained by it, as in a file that grows with each write.
const MISSES_UNTIL_DURABLE: u32 = 8;

/// Size that a file has at least, as long as the capability for the data of its replica stays the same. A truncation seals
/// the data, so that nothing succeeds under older capabilities after it. The size is durable: else a power failure could take
/// it, and with it bytes that are written to the replica afterwards.
struct DurableEnd {
    size: FileOffset,
    /// End of the capability, in seconds since 1970.
    expires_s: u64,
    /// Requests that ended at or before `size`, and behind it, since the size was last due to be made durable.
    hits: u32,
    misses: u32,
    /// Number of misses after which it is due again.
    misses_max: u32,
}

impl<E: Env> Redirection<E> {
    fn new(data: OpenFile<E>, mapping: Mapping, len: ByteLen) -> Self {
        let durable_end = DurableEnd {
            size: FileOffset::ZERO,
            expires_s: 0,
            hits: 0,
            misses: 0,
            misses_max: MISSES_UNTIL_DURABLE,
        };
        let marked = Mutex::new(Marked { regions: DirtyRegions::new(len.0), reclaims: 0 });
        data.state.mark_as_replica();
        Self { data, mapping, marked, durable_end: Mutex::new(durable_end) }
    }

    /// End of the present capability for the data.
    async fn expires_s(&self) -> Result<u64> {
        Ok(self.data.state.cap().await?.expires_s)
    }

    /// Whether the file certainly has `enough` bytes under the capability that ends at `expires_s`.
    fn has(&self, enough: FileOffset, expires_s: u64) -> bool {
        let mut durable = self.durable_end.lock();
        let has = durable.expires_s == expires_s && durable.size >= enough;
        durable.hits = durable.hits.saturating_add(u32::from(has));
        has
    }

    /// Counts a request behind the durable size. Returns whether its thread should make the size durable.
    fn is_due(&self) -> bool {
        let mut durable = self.durable_end.lock();
        durable.misses += 1;
        if durable.misses < durable.misses_max {
            return false;
        }
        let has_paid = durable.hits >= durable.misses_max;
        durable.misses_max =
            if has_paid { MISSES_UNTIL_DURABLE } else { durable.misses_max.saturating_mul(2) };
        (durable.hits, durable.misses) = (0, 0);
        true
    }

    /// Records a durable size that was found after the capability that ends at `expires_s` was obtained.
    fn learn(&self, size: FileOffset, expires_s: u64) {
        let mut durable = self.durable_end.lock();
        if durable.expires_s != expires_s || durable.size < size {
            (durable.size, durable.expires_s) = (size, expires_s);
        }
    }

    /// The open data of the replica.
    pub(crate) fn data(&self) -> &OpenFile<E> {
        &self.data
    }

    /// The mapping.
    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// The mapping alone.
    pub(crate) fn into_mapping(self) -> Mapping {
        self.mapping
    }
}

/// Place of a part in a buffer that begins with byte `offset` of the file.
fn piece(part: &Part, offset: FileOffset) -> impl Iterator<Item = Piece> {
    std::iter::once(Piece { offset: BufferOffset(part.file.offset.0 - offset.0), len: part.file.len })
}

impl<E: Env> OpenFile<E> {
    /// Opens the data of the file's replica with the rights of this open, and reads the mapping. `is_used` says whether this
    /// open uses it; otherwise it is only compared.
    ///
    /// # Errors
    /// `ENOENT` without a valid replica; `EIO` if its mapping is damaged.
    pub(crate) async fn open_replica(&self, is_used: bool) -> Result<Redirection<E>> {
        let (info, data) = self.open_replica_data(is_used).await?;
        let mapping = self.read_mapping(&info, &data).await?;
        if is_used {
            *self.state.record.redirected.lock() = Redirected::Yes(data.state.record.file);
        }
        Ok(Redirection::new(data, mapping, info.spec.len))
    }

    /// Goes on without the replica, which could not be opened, if the file has all bytes and no other client uses it.
    ///
    /// # Errors
    /// The `error` of the open, or why the replica is needed.
    pub(crate) async fn bypass_replica(&self, error: Error) -> Result<()> {
        let request = MetaRequest::BypassReplica { handle: self.handle() };
        match self.state.session.call(Effect::Once, request).await {
            Ok(MetaReply::Done) => {
                *self.state.record.redirected.lock() = Redirected::No;
                Ok(())
            }
            Ok(_) => Err(Error::unexpected_reply()),
            Err(refused) if refused.errno() == Errno::EBUSY.0 => Err(self.replica_failure(&format!(
                "it cannot be read: {error}; the file alone does not do: {refused}"
            ))),
            Err(other) => Err(other),
        }
    }

    async fn open_replica_data(&self, is_used: bool) -> Result<(ReplicaInfo, Self)> {
        let state = &self.state;
        let core = &state.session.core;
        let data_handle = core.new_handle();
        let before = core.before_open();
        let request = MetaRequest::OpenReplica { handle: self.handle(), data_handle };
        let reply = state.session.call(Effect::Repeatable, request).await;
        let MetaReply::ReplicaOpened { info, opened } = reply.map_err(|error| state.explained(error))? else {
            return Err(Error::unexpected_reply());
        };
        if is_used && !info.is_used {
            return Err(Error::misuse(Errno::ESTALE, "the file's replica is not used any more"));
        }
        // The mapping is read in any case.
        let flags =
            OpenFlags { read: true, write: self.flags().write || self.flags().truncate, ..OpenFlags::READ };
        let data =
            Self::from_opened(&state.session, (data_handle, flags), before, &state.path, *opened).await?;
        Ok((*info, data))
    }

    async fn read_mapping(&self, info: &ReplicaInfo, data: &Self) -> Result<Mapping> {
        let mut bytes = vec![0; info.spec.mapping_len as usize];
        let read = data.read_at(&mut [IoSliceMut::new(&mut bytes)], FileOffset(info.spec.len.0)).await?;
        let is_whole = read == bytes.len() && xxh3_64(&bytes) == info.spec.mapping_hash;
        match format::decode_mapping(&bytes)
            .filter(|mapping| is_whole && mapping.replica_len() <= info.spec.len.0)
        {
            Some(mapping) => Ok(mapping),
            None => {
                Err(self.replica_failure("its mapping is damaged: `weft replicate drop` removes the replica"))
            }
        }
    }

    /// EIO about the file's replica.
    pub(crate) fn replica_failure(&self, why: &str) -> Error {
        let replica = format!("of {}", String::from_utf8_lossy(&self.state.path));
        Error::Replica(Box::new(ReplicaFailure { replica, errno: Errno::EIO, why: why.to_owned() }))
    }

    /// Returns the size of the file, or any size of at least `enough`.
    async fn size_or_enough(&self, enough: FileOffset) -> Result<FileOffset> {
        let state = &self.state;
        let known = LayoutRetry::new(state)
            .run(async |version| state.size_beyond(version, &mut Vec::new(), Some(enough)).await)
            .await;
        match known {
            Ok(size) if size >= enough => Ok(size),
            // The end of the file may be lost.
            _ => Ok(FileOffset(self.size().await?.0)),
        }
    }

    /// Reads mapped bytes from the replica, and all others from the file.
    pub(crate) async fn read_redirected(
        &self,
        replica: &Redirection<E>,
        bufs: &mut [IoSliceMut<'_>],
        offset: FileOffset,
    ) -> Result<usize> {
        let version = self.state.layout_version()?;
        let len = (total_mut(bufs) as u64).min(OFFSET_MAX - offset.0);
        let mut parts = replica.mapping.split(Extent::new(offset.0, len)).peekable();
        if parts.peek().is_none_or(|part| part.replica.is_none() && part.file.len.0 == len) {
            return self.read_original(version, bufs, offset).await;
        }
        let (end, expires_s) = (FileOffset(offset.0 + len), replica.expires_s().await?);
        if replica.has(end, expires_s) {
            let got = self.read_parts(replica, parts.clone(), bufs, offset, end).await?;
            // Otherwise the file may have been cut before this read began.
            if replica.expires_s().await? == expires_s {
                return Ok(got);
            }
        }
        let expires_s = replica.expires_s().await?;
        let size = self.size_or_enough(end).await?;
        if size >= end {
            self.make_size_durable_if_due(replica, expires_s).await;
        }
        self.read_parts(replica, parts, bufs, offset, size).await
    }

    /// Reads the parts of a request at `offset` to a file of `size` bytes.
    async fn read_parts(
        &self,
        replica: &Redirection<E>,
        parts: impl Iterator<Item = Part>,
        bufs: &mut [IoSliceMut<'_>],
        offset: FileOffset,
        size: FileOffset,
    ) -> Result<usize> {
        let version = self.state.layout_version()?;
        let mut done = 0;
        for mut part in parts {
            part.file.len.0 = part.file.len.0.min(size.0.saturating_sub(part.file.offset.0));
            if part.file.len.0 == 0 {
                break;
            }
            let mut own = pick_mut(bufs, piece(&part, offset), usize::MAX);
            let got = match part.replica {
                Some(at) => self.read_data(replica, &mut own, &part, at).await?,
                None => self.read_original(version, &mut own, part.file.offset).await?,
            };
            done += got;
            if (got as u64) < part.file.len.0 {
                break;
            }
        }
        Ok(done)
    }

    /// Reads a part from the data of the replica. If that cannot be read, and the file has the same bytes, they come from the
    /// file.
    async fn read_data(
        &self,
        replica: &Redirection<E>,
        bufs: &mut [IoSliceMut<'_>],
        part: &Part,
        at: u64,
    ) -> Result<usize> {
        let error = match replica.data.read_at(bufs, FileOffset(at)).await {
            Ok(got) if got as u64 == part.file.len.0 => return Ok(got),
            Ok(_) => self.replica_failure("its data ends too early: run `weft fsck`"),
            Err(error) => error,
        };
        // Bytes that a server cannot read, or does not have any more.
        if !matches!(error, Error::Unreachable(_) | Error::Missing(_)) && error.errno() != Errno::EIO.0 {
            return Err(error);
        }
        // A mark is durable before the first byte that it covers. Without one, no newer byte was acknowledged before this
        // read began.
        let dirty = match self.state.session.replica(&self.place()).await? {
            Some(info) if info.phase == Phase::Valid => {
                DirtyRegions::from_bitmap(info.spec.len.0, &info.dirty)
            }
            _ => return Err(error),
        };
        if dirty.touches(at, part.file.len.0) {
            let why = format!("the file does not have these bytes, and the replica cannot be read: {error}");
            return Err(self.replica_failure(&why));
        }
        let version = self.state.layout_version()?;
        let got = self.read_original(version, bufs, part.file.offset).await?;
        // A hole at the end of the file's own bytes.
        let rest = Piece { offset: BufferOffset(got as u64), len: ByteLen(part.file.len.0 - got as u64) };
        zero(bufs, std::iter::once(rest));
        Ok(part.file.len.0 as usize)
    }

    /// Marks the regions of a range of the replica, durably.
    async fn mark_replica(&self, replica: &Redirection<E>, at: u64, len: u64) -> Result<()> {
        let state = &self.state;
        let reclaims = state.session.core.reclaims();
        let regions: Range<u64> = {
            let mut marked = replica.marked.lock();
            let marked = marked.since(reclaims);
            let regions = marked.regions(at, len);
            if regions.clone().all(|number| marked.contains(number)) {
                return Ok(());
            }
            regions
        };
        let (first, count) = (regions.start as u32, (regions.end - regions.start) as u32);
        let request = MetaRequest::MarkReplica { handle: self.handle(), first, count };
        let reply = state.session.call(Effect::Repeatable, request).await;
        if !matches!(reply.map_err(|error| state.explained(error))?, MetaReply::Done) {
            return Err(Error::unexpected_reply());
        }
        if state.session.core.reclaims() == reclaims {
            let mut marked = replica.marked.lock();
            let marked = marked.since(reclaims);
            regions.for_each(|number| marked.insert(number));
        }
        Ok(())
    }

    /// Writes mapped bytes to the replica, and all others to the file. Writes fewer bytes only when a server runs out of
    /// space on the way.
    pub(crate) async fn write_redirected(
        &self,
        replica: &Redirection<E>,
        bufs: &[IoSlice<'_>],
        offset: FileOffset,
        grant: Option<&AppendGrant>,
    ) -> Result<usize> {
        let state = &self.state;
        let version = state.layout_version()?;
        let len = total(bufs) as u64;
        let (mut done, mut end, mut outcome) = (0, 0, Ok(()));
        for part in replica.mapping.split(Extent::new(offset.0, len)) {
            let own = pick(bufs, piece(&part, offset), usize::MAX);
            let written = match part.replica {
                Some(at) => self.write_data(replica, &own, at, grant).await,
                None => self.write_original(version, &own, part.file.offset, grant).await,
            };
            let count = match written {
                Ok(count) => count,
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            };
            done += count;
            if part.replica.is_some() && count > 0 {
                end = part.file.offset.0 + count as u64;
            }
            if (count as u64) < part.file.len.0 {
                break;
            }
        }
        // Also after an error: what is behind the end of the file must be zeros in the replica.
        if end > 0
            && let Err(error) = self.extend(replica, FileOffset(end), grant).await
        {
            outcome = outcome.and(Err(error));
        }
        match outcome {
            Ok(()) => {
                state.note_write(Extent::new(offset.0, done as u64)).await;
                Ok(done)
            }
            Err(error) => {
                state.written.mark_uncertain();
                Err(error)
            }
        }
    }

    async fn write_data(
        &self,
        replica: &Redirection<E>,
        bufs: &[IoSlice<'_>],
        at: u64,
        grant: Option<&AppendGrant>,
    ) -> Result<usize> {
        let len = total(bufs) as u64;
        let is_late = mutants::is_seeded(Mutant::LateReplicaMark);
        if !is_late {
            self.mark_replica(replica, at, len).await?;
        }
        let grant = grant.and_then(|grant| grant.of_replica.as_deref());
        let count = replica.data.write_under_grant(bufs, FileOffset(at), grant).await?;
        if is_late {
            self.mark_replica(replica, at, len).await?;
        }
        Ok(count)
    }

    /// Makes sure that the file ends at or after `end`, the end of bytes that were written to the replica. A byte of the file
    /// that does not count is written, also if the file may be longer. A power failure may have taken its end. If one takes it
    /// later, the next sync reports that. Setting the size instead could cut what another client adds.
    async fn extend(
        &self,
        replica: &Redirection<E>,
        end: FileOffset,
        grant: Option<&AppendGrant>,
    ) -> Result<()> {
        // If a truncation sealed the data since the bytes were written, it clears them, and others get a new capability.
        let expires_s = replica.expires_s().await?;
        if replica.has(end, expires_s) {
            return Ok(());
        }
        let version = self.state.layout_version()?;
        let at = FileOffset(end.0 - 1);
        if self.write_original(version, &[IoSlice::new(&[0])], at, grant).await? == 0 {
            return Err(Error::misuse(Errno::ENOSPC, "the file cannot be extended"));
        }
        // Not during an append: its end is behind the durable one in any case.
        if grant.is_none() {
            self.make_size_durable_if_due(replica, expires_s).await;
        }
        Ok(())
    }

    /// Makes the file's size durable and records it, after some requests that would have needed that.
    async fn make_size_durable_if_due(&self, replica: &Redirection<E>, expires_s: u64) {
        if !replica.is_due() {
            return;
        }
        // Errors concern no bytes of this request. A later sync reports them.
        let Ok(before) = self.sync_datafiles().await else { return };
        let Ok(size) = self.size().await else { return };
        let Ok(after) = self.sync_datafiles().await else { return };
        // Otherwise a machine may have lost the end between the two.
        if before == after {
            replica.learn(FileOffset(size.0), expires_s);
        }
    }

    /// Writes zeros where mapped bytes lie at or after `size`, through this open of the data.
    async fn clear_replica(&self, replica: &Redirection<E>, data: &Self, size: ByteLen) -> Result<()> {
        if mutants::is_seeded(Mutant::ReplicaAfterCut) {
            return Ok(());
        }
        for (at, len) in runs_after(&replica.mapping, size) {
            self.mark_replica(replica, at, len).await?;
            data.punch(Extent::new(at, len)).await?;
        }
        Ok(())
    }

    /// Truncates or extends the file and its replica; at the open, without asking the metadata server again.
    pub(crate) async fn truncate_redirected(
        &self,
        replica: &Redirection<E>,
        size: ByteLen,
        at_open: bool,
    ) -> Result<()> {
        // An open of its own, so that other threads of this process do not pass the seal.
        let (_, data) = self.open_replica_data(true).await?;
        // An append consists of several exchanges.
        let cut = self.without_appends(async {
            data.seal_until_released().await?;
            let cut = async {
                self.clear_replica(replica, &data, size).await?;
                self.fence_all().await?;
                match at_open {
                    true => self.truncate_at_open().await,
                    false => self.truncate_original(size).await,
                }
            };
            let cut = cut.await;
            match data.release_seal().await {
                Ok(()) => cut,
                // Others may have written, and learned the size before the cut.
                Err(error) if error.errno() == Errno::ESTALE.0 => {
                    data.seal().await?;
                    self.clear_replica(replica, &data, size).await?;
                    cut
                }
                Err(error) => cut.and(Err(error)),
            }
        });
        let cut = cut.await;
        cut.and(data.close().await)
    }

    /// Punches the mapped bytes of `extent` in the replica.
    pub(crate) async fn punch_redirected(&self, replica: &Redirection<E>, extent: Extent) -> Result<()> {
        for part in replica.mapping.split(extent) {
            if let Some(at) = part.replica {
                self.mark_replica(replica, at, part.file.len.0).await?;
                replica.data.punch(Extent::new(at, part.file.len.0)).await?;
            }
        }
        Ok(())
    }
}
