//! Measures the effective size of a target's page cache.
//!
//! The datafile is read sequentially for as long as the time allows. Then small parts are read again. Old parts come
//! from the device and recent parts from the page cache; a binary search finds the boundary.

use super::target::{MESSAGE_TIME, TargetBench};
use serde::{Deserialize, Serialize};
use weft_client::{Error, ProbeWork};
use weft_core::random::splitmix64;
use weft_core::{LocalOffset, Nanos};
use weft_env::Env;
use weft_planner::Bytes;

/// Request length of the sequential read, bytes.
const SEQUENTIAL_LEN: u64 = 1 << 20;
/// Request length of the reads that test for caching, bytes.
const PROBE_LEN: u64 = 4096;
/// Number of reads whose median decides whether a place is cached.
const PROBES: u64 = 5;
/// Minimum distance between these reads, bytes. Greater than the drive's own look-ahead.
const PROBE_DISTANCE_MIN: u64 = 2 << 20;
/// Resolution of the boundary, as a fraction of the bytes read.
const RESOLUTION_DIVISOR: u64 = 64;
/// Fraction of the bytes read below which the cache counts as empty. The drive's own cache may be that large.
const MINIMUM_DIVISOR: u64 = 16;
/// A cached read takes at most this fraction of the device's time.
const CACHED_SPEEDUP: u64 = 4;

/// Effective size of the page cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageCacheEstimate {
    /// Bytes of recently read data that are cached.
    pub bytes: Bytes,
    /// Uncertainty of `bytes`.
    pub error: Bytes,
    /// Whether everything that was read is cached, so that the cache may be larger.
    #[serde(rename = "all")]
    pub is_lower_bound: bool,
}

impl PageCacheEstimate {
    /// The smallest value of several targets.
    pub(super) fn least(all: impl Iterator<Item = Self>) -> Option<Self> {
        all.min_by_key(|estimate| estimate.bytes.0)
    }

    /// The size to plan with. `reported` is the size that the system reports, which counts if everything was cached.
    pub(super) fn or_reported(self, reported: u64) -> u64 {
        if self.is_lower_bound { self.bytes.0.max(reported) } else { self.bytes.0 }
    }
}

impl<E: Env> TargetBench<'_, E> {
    /// Measures the page cache after reading for the given time. `None` if the device took no time that can be compared.
    pub(super) async fn memory(&self, time: Nanos) -> Result<Option<PageCacheEstimate>, Error> {
        self.ask(ProbeWork::Sync).await?;
        self.ask(ProbeWork::Forget).await?;
        let span = self.plan.span / SEQUENTIAL_LEN * SEQUENTIAL_LEN;
        let cold = self.median(0, span, 0).await?;
        if cold.0 < CACHED_SPEEDUP {
            return Ok(None);
        }
        self.ask(ProbeWork::Forget).await?;
        let end = self.client.env().now().saturating_add(time);
        let mut read = 0;
        while read < span && (read == 0 || self.client.env().now() < end) {
            let end = span.min(read + 16 * SEQUENTIAL_LEN);
            let offsets = (read..end).step_by(SEQUENTIAL_LEN as usize).map(LocalOffset).collect();
            let probed = self
                .client
                .probe(self.target, ProbeWork::Read, SEQUENTIAL_LEN as u32, offsets, MESSAGE_TIME)
                .await?;
            read += probed.0.len() as u64 * SEQUENTIAL_LEN;
        }
        let step = (read / RESOLUTION_DIVISOR).max(PROBES * PROBE_DISTANCE_MIN).min(read / MINIMUM_DIVISOR);
        let mut round = 0;
        let mut is_cached = async |ago: u64| {
            round += 1;
            Ok::<_, Error>(self.median(read - ago, step, round).await?.0 < cold.0 / CACHED_SPEEDUP)
        };
        let estimate = |bytes: u64, error: u64, is_lower_bound| PageCacheEstimate {
            bytes: Bytes(bytes),
            error: Bytes(error),
            is_lower_bound,
        };
        if is_cached(read).await? {
            return Ok(Some(estimate(read, step, true)));
        }
        let (mut there, mut gone) = (read / MINIMUM_DIVISOR, read);
        if !is_cached(there).await? {
            return Ok(Some(estimate(0, there, false)));
        }
        while gone - there > step {
            let between = there + (gone - there) / 2;
            match is_cached(between).await? {
                true => there = between,
                false => gone = between,
            }
        }
        // The reads of a test lie up to one step nearer than requested.
        Ok(Some(estimate(there + (gone - there) / 2 - step / 2, gone - there, false)))
    }

    /// Median time of some small reads in `len` bytes from `from` on, in descending order.
    async fn median(&self, from: u64, len: u64, round: u64) -> Result<Nanos, Error> {
        let places = (len / PROBES / PROBE_LEN).max(1);
        let at = |n: u64| from / PROBE_LEN + n * places + splitmix64(round << 8 | n) % places.div_ceil(4);
        let offsets = (0..PROBES).rev().map(|n| LocalOffset(at(n) * PROBE_LEN)).collect();
        let (mut times, _) =
            self.client.probe(self.target, ProbeWork::Read, PROBE_LEN as u32, offsets, MESSAGE_TIME).await?;
        times.sort_unstable();
        Ok(times.get(times.len() / 2).copied().unwrap_or_default())
    }
}
