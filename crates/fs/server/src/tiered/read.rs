//! Reads of a tiered target.

use super::coalesce::gaps;
use super::counters::add;
use super::preload::Miss;
use super::ssd_tier::{SsdTier, range};
use super::{DiskAdmission, TieredTarget};
use std::sync::atomic::Ordering;
use weft_core::ibridge::Verdict;
use weft_core::ranges::ByteRange;
use weft_core::{ByteLen, DataClass, LocalExtent, LocalOffset, Nanos};
use weft_env::{Env, Hollow};
use weft_store::datafile::DatafileKey;
use weft_store::error::DatafileError;
use weft_store::fragments::{LogError, Piece};
use weft_store::target::ToSend;
use weft_wire::data::IoHints;
use weft_wire::hello::SessionId;

/// Gaps that are closer than this are read from the disk in one request. Reading the logged bytes between them too
/// costs the disk no extra time.
const GAP_MAX: u64 = 128 << 10;

/// How a read is served.
pub(crate) enum ReadPlan {
    /// The disk has all bytes. The value is the least length of the datafile according to the log.
    Disk(ByteLen),
    /// The disk has all bytes, and the log should get a copy.
    Copy(Miss),
    /// The log has some or all of the bytes. The cache should get a copy of the others.
    Mixed(Option<Miss>),
}

impl ReadPlan {
    /// Whether the disk's bytes can be sent as they are.
    pub const fn is_of_disk(&self) -> bool {
        matches!(self, Self::Disk(_))
    }

    /// The copy that the log should get.
    pub const fn miss(&self) -> Option<&Miss> {
        match self {
            Self::Copy(miss) | Self::Mixed(Some(miss)) => Some(miss),
            Self::Disk(_) | Self::Mixed(None) => None,
        }
    }

    /// Least length of the datafile according to the log, when the disk has all bytes.
    const fn known(&self) -> Option<ByteLen> {
        match self {
            Self::Disk(end) => Some(*end),
            Self::Copy(miss) => Some(miss.end),
            Self::Mixed(_) => None,
        }
    }

    /// Start time of the disk's read, if the policy uses it.
    fn begins<E: Env>(&self, env: &E) -> Option<Nanos> {
        matches!(self, Self::Copy(_)).then(|| env.now())
    }

    /// Records how long the disk's read took.
    fn took<E: Env>(&mut self, env: &E, began: Option<Nanos>) {
        if let (Self::Copy(miss), Some(began)) = (self, began) {
            miss.took = env.now().saturating_sub(began);
        }
    }
}

/// Bytes that can be sent without copying.
pub(crate) enum Sending<F> {
    /// An open datafile and its length.
    File(F, ByteLen),
    /// The datafile does not exist.
    Missing,
    /// The bytes have to be assembled in memory.
    Assemble,
}

impl<E: Env> TieredTarget<E> {
    /// Decides how to serve a read, and counts it.
    pub fn plan_read(
        &self,
        session: SessionId,
        key: DatafileKey,
        (offset, len): (LocalOffset, u32),
        hints: &IoHints,
    ) -> ReadPlan {
        let extent = LocalExtent { offset, len: ByteLen(len.into()) };
        let (Some(tier), Some(range)) = (&self.tier, range(extent)) else {
            return ReadPlan::Disk(ByteLen(0));
        };
        let end = match tier.log.overlap_and_end(key, range) {
            None => ByteLen(0),
            Some((true, end)) => return ReadPlan::Mixed(tier.plan_mixed(session, key, range, end)),
            Some((false, end)) => end,
        };
        add(&tier.counters.read_misses, 1);
        let for_ibridge = match tier.policies.read(&tier.env, key, extent, hints) {
            Verdict::Ssd { class, gain } if tier.preload => Some((DataClass::from(class), gain)),
            Verdict::Outgrown { before } => {
                tier.preloads.cancel(key, offset.0.saturating_sub(before), offset.0);
                None
            }
            _ => None,
        };
        // The cache sees every read, because it recognizes streams and repeated reads.
        let for_cache = tier.offer_read(session, key, range, 0).then_some((DataClass::CACHED, 0));
        match for_ibridge.or(for_cache) {
            Some((class, gain)) => {
                let changes = tier.range_locks.change_count(key);
                ReadPlan::Copy(Miss { class, gain, changes, end, took: Nanos::ZERO })
            }
            None => ReadPlan::Disk(end),
        }
    }

    /// Returns the open datafile, if `len` bytes from `offset` on can be sent from it without copying.
    ///
    /// # Errors
    /// Errors of the device.
    pub async fn file_to_send(
        &self,
        plan: &ReadPlan,
        key: DatafileKey,
        offset: LocalOffset,
        len: u32,
    ) -> Result<Sending<E::File>, DatafileError> {
        let ReadPlan::Disk(end) = *plan else { return Ok(Sending::Assemble) };
        let found = self.target.file_to_send(key).await?;
        let disk_end = match &found {
            ToSend::File(_, len) => *len,
            ToSend::Missing => ByteLen(0),
            ToSend::Bytes => return Ok(Sending::Assemble),
        };
        // The log has bytes behind the disk's end. The bytes between read as zeros.
        if end > disk_end && offset.0 + u64::from(len) > disk_end.0 {
            return Ok(Sending::Assemble);
        }
        Ok(match found {
            ToSend::File(file, disk_len) => Sending::File(file, disk_len.max(end)),
            ToSend::Missing | ToSend::Bytes => Sending::Missing,
        })
    }

    /// Reads until `buf` is full or the datafile ends. Returns the number of bytes and the datafile's length.
    ///
    /// # Errors
    /// Errors of the devices.
    pub async fn read(
        &self,
        plan: &mut ReadPlan,
        key: DatafileKey,
        offset: LocalOffset,
        buf: &mut [u8],
        admission: DiskAdmission<'_, E>,
    ) -> Result<(usize, ByteLen), DatafileError> {
        let Some(tier) = &self.tier else {
            let _permit = self.enter(admission).await;
            return self.target.read(key, offset, buf).await;
        };
        let Some(range) = ByteRange::with_len(offset.0, buf.len() as u64) else {
            return Ok((0, self.meta(key).await?.map_or(ByteLen(0), |meta| meta.len)));
        };
        let known = match plan.known() {
            None => {
                return loop {
                    match self.read_mixed(tier, key, range, buf, admission).await {
                        // The clean copy was corrupt and has been dropped. The disk has the same bytes.
                        Err(DatafileError::Log(LogError::BadCopy { .. })) => {}
                        read => break read,
                    }
                };
            }
            Some(end) => end,
        };
        let began = plan.begins(&tier.env);
        let _permit = self.enter(admission).await;
        let (count, disk_len) = self.target.read(key, offset, buf).await?;
        plan.took(&tier.env, began);
        Ok(extended(range, buf, count, disk_len, known))
    }

    /// Reads from the disk alone into shared memory. Returns the datafile's length only if the read met the end of what
    /// the disk has. Returns `None` if the bytes have to be assembled in memory, or kept for a copy.
    ///
    /// # Errors
    /// Errors of the device.
    pub async fn read_shared(
        &self,
        plan: &mut ReadPlan,
        key: DatafileKey,
        offset: LocalOffset,
        (shared, to, len): (&E::Shared, usize, usize),
        admission: DiskAdmission<'_, E>,
    ) -> Result<Option<(usize, Option<ByteLen>)>, DatafileError> {
        let known = match plan {
            ReadPlan::Disk(known) => *known,
            ReadPlan::Copy(miss) if !miss.is_short(len) => miss.end,
            ReadPlan::Copy(_) | ReadPlan::Mixed(_) => return Ok(None),
        };
        let began = self.tier.as_ref().and_then(|tier| plan.begins(&tier.env));
        let _permit = self.enter(admission).await;
        let got = self.target.read_shared(key, offset, shared, to, len).await?;
        if let Some(tier) = &self.tier {
            plan.took(&tier.env, began);
        }
        // Between the disk's end and the least length by the log there are zeros.
        Ok(got.1.is_none_or(|datafile_len| datafile_len >= known).then_some(got))
    }

    async fn read_mixed(
        &self,
        tier: &SsdTier<E>,
        key: DatafileKey,
        range: ByteRange,
        buf: &mut [u8],
        admission: DiskAdmission<'_, E>,
    ) -> Result<(usize, ByteLen), DatafileError> {
        // The log first: bytes that leave it after this are on the disk already.
        let known = tier.log.cached(key).map_or(ByteLen(0), |cached| cached.end);
        let pieces = tier.log.find(key, range);
        let known = known.max(ByteLen(pieces.last().map_or(0, |piece| piece.extent().end())));
        let gaps = gaps(range, pieces.iter().map(Piece::extent), |len| len.0 < GAP_MAX);
        let within =
            |part: ByteRange| (part.start() - range.start()) as usize..(part.end() - range.start()) as usize;
        let mut disk_len = ByteLen(0);
        let permit = if gaps.is_empty() { None } else { Some(self.enter(admission).await) };
        for &gap in &gaps {
            let offset = LocalOffset(gap.start());
            let part = &mut buf[within(gap)];
            tier.policies.served_by_disk(key, LocalExtent { offset, len: ByteLen(gap.len()) }, false);
            let (count, len) = self.target.read(key, offset, part).await?;
            zero(&mut part[count..]);
            disk_len = disk_len.max(len);
        }
        drop(permit);
        let mut from_log = 0;
        tier.log_requests.fetch_add(1, Ordering::Relaxed);
        for piece in &pieces {
            let _active = tier.begin_log_request();
            tier.log.read(piece, &mut buf[within(piece.extent())]).await?;
            from_log += piece.extent().len();
            tier.policies.served_by_ssd(piece.class(), ByteLen(piece.extent().len()));
        }
        if gaps.is_empty() {
            disk_len = self.target.meta(key).await?.map_or(ByteLen(0), |meta| meta.len);
        }
        let counters = &tier.counters;
        let whole = from_log == range.len();
        add(if whole { &counters.read_hits } else { &counters.read_partial_hits }, 1);
        add(&counters.bytes_read, from_log);
        let datafile_len = disk_len.max(known);
        Ok((datafile_len.0.saturating_sub(range.start()).min(range.len()) as usize, datafile_len))
    }
}

impl<E: Env> SsdTier<E> {
    /// Offers a read to the cache, of which the log has `hit` bytes. Returns whether the cache takes the others.
    fn offer_read(&self, session: SessionId, key: DatafileKey, range: ByteRange, hit: u64) -> bool {
        let Some(cache) = &self.cache else { return false };
        let extent = LocalExtent { offset: LocalOffset(range.start()), len: ByteLen(range.len()) };
        add(&self.counters.bytes_hit, hit);
        add(&self.counters.bytes_missed, range.len() - hit);
        let decision = cache.read(session, key, extent, hit == range.len());
        for ahead in decision.ahead {
            if let Some(ahead) = ByteRange::with_len(ahead.offset.0, ahead.len.0) {
                self.prefetch(key, ahead);
            }
        }
        decision.admits
    }

    /// Offers a read to the cache of which the log has some bytes.
    fn plan_mixed(
        &self,
        session: SessionId,
        key: DatafileKey,
        range: ByteRange,
        end: ByteLen,
    ) -> Option<Miss> {
        self.cache.as_ref()?;
        let hit = self.log.extents(key, range).iter().map(|part| part.len()).sum();
        let changes = self.range_locks.change_count(key);
        let class = DataClass::CACHED;
        let miss = Miss { class, gain: 0, changes, end, took: Nanos::ZERO };
        self.offer_read(session, key, range, hit).then_some(miss)
    }
}

/// Extends a read of the disk with zeros up to `known`, the least length of the datafile according to the log.
fn extended(
    range: ByteRange,
    buf: &mut [u8],
    count: usize,
    disk_len: ByteLen,
    known: ByteLen,
) -> (usize, ByteLen) {
    let reached = known.0.saturating_sub(range.start()).min(range.len()) as usize;
    if reached > count {
        zero(&mut buf[count..reached]);
    }
    (count.max(reached), disk_len.max(known))
}

/// Zeros bytes that were never written. Buffers that stand for lengths only are left alone.
fn zero(bytes: &mut [u8]) {
    if !Hollow::holds(bytes) {
        bytes.fill(0);
    }
}
