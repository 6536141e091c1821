//! Reading.

use super::bridge::{Bridge, range};
use super::counters::add;
use super::preload::Miss;
use super::span::gaps;
use super::{Gate, Placed};
use std::sync::atomic::Ordering;
use weft_core::ibridge::Verdict;
use weft_core::ranges::ByteRange;
use weft_core::{ByteLen, LocalExtent, LocalOffset, Nanos};
use weft_env::{Env, Hollow};
use weft_store::datafile::DatafileKey;
use weft_store::error::DatafileError;
use weft_store::fragments::{LogError, Piece};
use weft_store::target::ToSend;
use weft_wire::data::IoHints;

/// Pieces nearer to each other than this are read from the disk in one request with what lies between them, which the log
/// has: the disk is no slower for it.
const GAP_MAX: u64 = 128 << 10;

/// How a read is to be served.
pub(crate) enum ReadPlan {
    /// By the disk alone. The log knows the datafile to reach to here at least.
    Disk(ByteLen),
    /// By the disk alone, and the SSD is to get a copy.
    Copy(Miss),
    /// The log has some of it.
    Mixed,
}

impl ReadPlan {
    /// Whether the disk's bytes are all that is to be sent.
    pub const fn is_of_disk(&self) -> bool {
        matches!(self, Self::Disk(_))
    }

    /// How far the log knows the datafile to reach, when the disk alone serves the read.
    const fn known(&self) -> Option<ByteLen> {
        match self {
            Self::Disk(end) => Some(*end),
            Self::Copy(miss) => Some(miss.end),
            Self::Mixed => None,
        }
    }

    /// The time, if somebody wants to know how long the disk takes.
    fn begins<E: Env>(&self, env: &E) -> Option<Nanos> {
        matches!(self, Self::Copy(_)).then(|| env.now())
    }

    /// The disk has read since `began`.
    fn took<E: Env>(&mut self, env: &E, began: Option<Nanos>) {
        if let (Self::Copy(miss), Some(began)) = (self, began) {
            miss.took = env.now().saturating_sub(began);
        }
    }
}

/// What can be sent without a copy.
pub(crate) enum Sending<F> {
    /// These bytes of a file of which the datafile's length is the second.
    File(F, ByteLen),
    /// There is no datafile.
    Nothing,
    /// The bytes have to be put together.
    Bytes,
}

impl<E: Env> Placed<E> {
    /// How a read is to be served. Counts it.
    pub fn plan_read(&self, key: DatafileKey, offset: LocalOffset, len: u32, hints: &IoHints) -> ReadPlan {
        let extent = LocalExtent { offset, len: ByteLen(len.into()) };
        let (Some(bridge), Some(range)) = (&self.bridge, range(extent)) else {
            return ReadPlan::Disk(ByteLen(0));
        };
        let end = match bridge.log.look(key, range) {
            None => ByteLen(0),
            Some((true, _)) => return ReadPlan::Mixed,
            Some((false, end)) => end,
        };
        add(&bridge.counters.read_misses, 1);
        match bridge.policies.read(&bridge.env, key, extent, hints) {
            Verdict::Ssd { class, gain } if bridge.config.preload => {
                let changes = bridge.ranges.changes(key);
                ReadPlan::Copy(Miss { class, gain, changes, end, took: Nanos::ZERO })
            }
            Verdict::Outgrown { before } => {
                bridge.wishes.take_back(key, offset.0.saturating_sub(before), offset.0);
                ReadPlan::Disk(end)
            }
            _ => ReadPlan::Disk(end),
        }
    }

    /// The open datafile and its length, for sending `len` bytes of it from `offset` on without a copy.
    ///
    /// # Errors
    /// Of the device.
    pub async fn file_to_send(
        &self,
        plan: &ReadPlan,
        key: DatafileKey,
        offset: LocalOffset,
        len: u32,
    ) -> Result<Sending<E::File>, DatafileError> {
        let ReadPlan::Disk(end) = *plan else { return Ok(Sending::Bytes) };
        let found = self.target.file_to_send(key).await?;
        let disk_end = match &found {
            ToSend::File(_, len) => *len,
            ToSend::Missing => ByteLen(0),
            ToSend::Bytes => return Ok(Sending::Bytes),
        };
        // The log knows of bytes behind what the disk has: what lies before them reads as zeros.
        if end > disk_end && offset.0 + u64::from(len) > disk_end.0 {
            return Ok(Sending::Bytes);
        }
        Ok(match found {
            ToSend::File(file, disk_len) => Sending::File(file, disk_len.max(end)),
            ToSend::Missing | ToSend::Bytes => Sending::Nothing,
        })
    }

    /// Reads until `buf` is full or the datafile ends; the number of bytes, and the datafile's length.
    ///
    /// # Errors
    /// Of the devices.
    pub async fn read(
        &self,
        plan: &mut ReadPlan,
        key: DatafileKey,
        offset: LocalOffset,
        buf: &mut [u8],
        gate: Gate<'_, E>,
    ) -> Result<(usize, ByteLen), DatafileError> {
        let Some(bridge) = &self.bridge else {
            let _permit = self.enter(gate).await;
            return self.target.read(key, offset, buf).await;
        };
        let Some(range) = ByteRange::with_len(offset.0, buf.len() as u64) else {
            return Ok((0, self.meta(key).await?.map_or(ByteLen(0), |meta| meta.len)));
        };
        let known = match plan.known() {
            None => {
                return loop {
                    match self.read_mixed(bridge, key, range, buf, gate).await {
                        // The copy was bad and is gone: the disk has the same bytes.
                        Err(DatafileError::Log(LogError::BadCopy { .. })) => {}
                        read => break read,
                    }
                };
            }
            Some(end) => end,
        };
        let began = plan.begins(&bridge.env);
        let _permit = self.enter(gate).await;
        let (count, disk_len) = self.target.read(key, offset, buf).await?;
        plan.took(&bridge.env, began);
        Ok(lengthened(range, buf, count, disk_len, known))
    }

    /// The same by the disk alone into shared memory, with the length only when the read met the end of what the disk has;
    /// `None` when the bytes have to be put together, or kept for a copy.
    ///
    /// # Errors
    /// Of the device.
    pub async fn read_shared(
        &self,
        plan: &mut ReadPlan,
        key: DatafileKey,
        offset: LocalOffset,
        (shared, to, len): (&E::Shared, usize, usize),
        gate: Gate<'_, E>,
    ) -> Result<Option<(usize, Option<ByteLen>)>, DatafileError> {
        let known = match plan {
            ReadPlan::Disk(known) => *known,
            ReadPlan::Copy(miss) if !miss.wants_bytes(len) => miss.end,
            ReadPlan::Copy(_) | ReadPlan::Mixed => return Ok(None),
        };
        let began = self.bridge.as_ref().and_then(|bridge| plan.begins(&bridge.env));
        let _permit = self.enter(gate).await;
        let got = self.target.read_shared(key, offset, shared, to, len).await?;
        if let Some(bridge) = &self.bridge {
            plan.took(&bridge.env, began);
        }
        // Where the log knows of more than the disk has, there are zeros between.
        Ok(got.1.is_none_or(|datafile_len| datafile_len >= known).then_some(got))
    }

    async fn read_mixed(
        &self,
        bridge: &Bridge<E>,
        key: DatafileKey,
        range: ByteRange,
        buf: &mut [u8],
        gate: Gate<'_, E>,
    ) -> Result<(usize, ByteLen), DatafileError> {
        // The log first: what leaves it from here on is on the disk before.
        let known = bridge.log.cached(key).map_or(ByteLen(0), |cached| cached.end);
        let pieces = bridge.log.find(key, range);
        let known = known.max(ByteLen(pieces.last().map_or(0, |piece| piece.extent().end())));
        let gaps = gaps(range, pieces.iter().map(Piece::extent), |len| len.0 < GAP_MAX);
        let within =
            |part: ByteRange| (part.start() - range.start()) as usize..(part.end() - range.start()) as usize;
        let mut disk_len = ByteLen(0);
        let permit = if gaps.is_empty() { None } else { Some(self.enter(gate).await) };
        for &gap in &gaps {
            let offset = LocalOffset(gap.start());
            let part = &mut buf[within(gap)];
            bridge.policies.served_by_disk(key, LocalExtent { offset, len: ByteLen(gap.len()) }, false);
            let (count, len) = self.target.read(key, offset, part).await?;
            zero(&mut part[count..]);
            disk_len = disk_len.max(len);
        }
        drop(permit);
        let mut from_log = 0;
        bridge.log_requests.fetch_add(1, Ordering::Relaxed);
        for piece in &pieces {
            let _busy = bridge.busy();
            bridge.log.read(piece, &mut buf[within(piece.extent())]).await?;
            from_log += piece.extent().len();
        }
        if gaps.is_empty() {
            disk_len = self.target.meta(key).await?.map_or(ByteLen(0), |meta| meta.len);
        }
        let counters = &bridge.counters;
        let whole = from_log == range.len();
        add(if whole { &counters.read_hits } else { &counters.read_partial_hits }, 1);
        add(&counters.bytes_read, from_log);
        let datafile_len = disk_len.max(known);
        Ok((datafile_len.0.saturating_sub(range.start()).min(range.len()) as usize, datafile_len))
    }
}

/// What a read gives of a datafile that the log knows to reach to `known`: what lies behind the disk's end are zeros.
fn lengthened(
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

/// Bytes that nobody has written. Buffers that stand for lengths only are left alone.
fn zero(bytes: &mut [u8]) {
    if !Hollow::holds(bytes) {
        bytes.fill(0);
    }
}
