//! How much of what was read last the memory of a target's system still has.
//!
//! The datafile is read in order, as far as there is time. Then some of it is read again: what was read long ago comes from
//! the device, what was read lately from memory, and where the one becomes the other is found by halving.

use super::target::{Bench, STEP};
use serde::{Deserialize, Serialize};
use weft_client::{Error, ProbeWork};
use weft_core::{LocalOffset, Nanos};
use weft_env::Env;
use weft_planner::Bytes;
use weft_workload::mix;

/// Bytes of a request of the first reading.
const READ_LEN: u64 = 1 << 20;
/// Bytes of each that is read again.
const AGAIN_LEN: u64 = 4096;
/// So many of them say together whether memory has a place.
const AGAIN: u64 = 5;
/// And lie so far apart at least: further than a disk reads ahead for itself, bytes.
const APART_MIN: u64 = 2 << 20;
/// The place is known to such a part of what was read.
const PART: u64 = 64;
/// Memory of less than such a part is none: the device's own is as large.
const LEAST_PART: u64 = 16;
/// Memory answers in such a part of the time of the device.
const FASTER: u64 = 4;

/// What memory still has of what was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Held {
    /// So much of what was read last.
    pub bytes: Bytes,
    /// By so much that may be off.
    pub error: Bytes,
    /// It was all that was read: there may be more.
    pub all: bool,
}

impl Held {
    /// Of several targets the least.
    pub(super) fn least(all: impl Iterator<Item = Self>) -> Option<Self> {
        all.min_by_key(|held| held.bytes.0)
    }

    /// What to plan with where `told` is what the system says that it has.
    pub(super) fn or_as_told(self, told: u64) -> u64 {
        if self.all { self.bytes.0.max(told) } else { self.bytes.0 }
    }
}

impl<E: Env> Bench<'_, E> {
    /// What memory has of what was read, after reading for so long.
    pub(super) async fn memory(&self, time: Nanos) -> Result<Held, Error> {
        self.ask(ProbeWork::Sync).await?;
        self.ask(ProbeWork::Forget).await?;
        let span = self.plan.span / READ_LEN * READ_LEN;
        let cold = self.median(0, span, 0).await?;
        self.ask(ProbeWork::Forget).await?;
        let end = self.client.env().now().saturating_add(time);
        let mut read = 0;
        while read < span && (read == 0 || self.client.env().now() < end) {
            let offsets =
                (read..span.min(read + 16 * READ_LEN)).step_by(READ_LEN as usize).map(LocalOffset).collect();
            let probed =
                self.client.probe(self.target, ProbeWork::Read, READ_LEN as u32, offsets, STEP).await?;
            read += probed.0.len() as u64 * READ_LEN;
        }
        let step = (read / PART).max(AGAIN * APART_MIN).min(read / LEAST_PART);
        let mut round = 0;
        let mut has = async |ago: u64| {
            round += 1;
            Ok::<_, Error>(self.median(read - ago, step, round).await?.0 < cold.0 / FASTER)
        };
        let held = |bytes: u64, error: u64, all| Held { bytes: Bytes(bytes), error: Bytes(error), all };
        if has(read).await? {
            return Ok(held(read, step, true));
        }
        let (mut there, mut gone) = (read / LEAST_PART, read);
        if !has(there).await? {
            return Ok(held(0, there, false));
        }
        while gone - there > step {
            let between = there + (gone - there) / 2;
            match has(between).await? {
                true => there = between,
                false => gone = between,
            }
        }
        // A place lies up to a step nearer than it was asked for.
        Ok(held(there + (gone - there) / 2 - step / 2, gone - there, false))
    }

    /// What a small read takes, by the median of some in `len` bytes from `from` on, back to front.
    async fn median(&self, from: u64, len: u64, round: u64) -> Result<Nanos, Error> {
        let places = (len / AGAIN / AGAIN_LEN).max(1);
        let at = |n: u64| from / AGAIN_LEN + n * places + mix(round << 8 | n) % places.div_ceil(4);
        let offsets = (0..AGAIN).rev().map(|n| LocalOffset(at(n) * AGAIN_LEN)).collect();
        let (mut times, _) =
            self.client.probe(self.target, ProbeWork::Read, AGAIN_LEN as u32, offsets, STEP).await?;
        times.sort_unstable();
        Ok(times.get(times.len() / 2).copied().unwrap_or_default())
    }
}
