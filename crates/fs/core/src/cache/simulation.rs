//! Simulation of a read cache: hit ratios of policies without devices.

use super::{
    AdmissionSpec, BLOCK_LEN, BlockId, CacheAdmission, CacheRequest, Eviction, EvictionPolicy, Verdict,
};
use crate::random::SplitMix64;
use std::ops::AddAssign;

/// Blocks requested, and those that the cache had.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct HitRatio {
    /// Blocks requested.
    pub requests: u64,
    /// Blocks that were in the cache.
    pub hits: u64,
}

impl HitRatio {
    /// Returns the hit ratio, 0 to 1; 0 without requests.
    pub fn ratio(self) -> f64 {
        if self.requests == 0 { 0.0 } else { self.hits as f64 / self.requests as f64 }
    }

    /// Returns the counts since an earlier state.
    pub const fn since(self, earlier: Self) -> Self {
        Self { requests: self.requests - earlier.requests, hits: self.hits - earlier.hits }
    }
}

impl AddAssign for HitRatio {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.hits += other.hits;
    }
}

/// A cache of whole blocks that stores no bytes.
#[derive(Debug)]
pub struct Simulation {
    eviction: Eviction,
    admission: CacheAdmission,
    reads: HitRatio,
    writes: HitRatio,
    stored: u64,
}

impl Simulation {
    /// Returns an empty cache of the capacity of `admission`.
    pub fn new(policy: EvictionPolicy, admission: &AdmissionSpec) -> Self {
        Self {
            eviction: Eviction::new(policy, admission.capacity),
            admission: CacheAdmission::new(admission),
            reads: HitRatio::default(),
            writes: HitRatio::default(),
            stored: 0,
        }
    }

    /// Reads an extent.
    pub fn read(&mut self, request: CacheRequest) {
        let mut missing = Vec::new();
        for block in BlockId::of(request.file, request.extent) {
            self.reads.requests += 1;
            if self.eviction.touch(block) {
                self.reads.hits += 1;
            } else {
                missing.push(block);
            }
        }
        if !missing.is_empty() && self.admission.read(request) == Verdict::Admit {
            missing.into_iter().for_each(|block| self.store(block));
        }
        for extent in self.admission.prefetch(request) {
            for block in BlockId::of(request.file, extent) {
                if self.eviction.bytes_of(block).is_none() {
                    self.store(block);
                }
            }
        }
    }

    /// Writes an extent, as a cache that keeps written bytes.
    pub fn write(&mut self, request: CacheRequest) {
        let admits = self.admission.write(request) == Verdict::Admit;
        for block in BlockId::of(request.file, request.extent) {
            self.writes.requests += 1;
            if self.eviction.touch(block) {
                self.writes.hits += 1;
            } else if admits {
                self.store(block);
            }
        }
    }

    /// Drops the blocks of a datafile from an offset on, after a truncation or the removal of the datafile.
    pub fn truncate(&mut self, file: u64, len: u64) {
        self.eviction.remove_from(BlockId { file, index: len.div_ceil(BLOCK_LEN) });
    }

    fn store(&mut self, block: BlockId) {
        self.stored += BLOCK_LEN;
        self.eviction.insert(block, BLOCK_LEN as u32);
        while self.eviction.victim(|_| true).is_some() {}
    }

    /// Returns the hit ratio of reads.
    pub const fn reads(&self) -> HitRatio {
        self.reads
    }

    /// Returns the hit ratio of writes: the fraction that overwrites blocks in the cache.
    pub const fn writes(&self) -> HitRatio {
        self.writes
    }

    /// Returns the bytes that the SSD received for blocks that were not in the cache.
    pub const fn stored(&self) -> u64 {
        self.stored
    }
}

/// Numbers below a bound with a Zipf distribution: number *n* has a probability in proportion to (n+1)^-skew.
///
/// Uses rejection-inversion of Hörmann and Derflinger (1996), whose time does not depend on the bound.
#[derive(Clone, Debug)]
pub struct Zipf {
    skew: f64,
    count: f64,
    /// Integral of the density at the ends.
    low: f64,
    high: f64,
    /// Distance below which a candidate is accepted without a test.
    sure: f64,
}

impl Zipf {
    /// Returns the distribution of numbers below `count`; `None` for a count of zero or a skew that is negative or not
    /// finite.
    pub fn new(count: u64, skew: f64) -> Option<Self> {
        if count == 0 || !skew.is_finite() || skew < 0.0 {
            return None;
        }
        let mut zipf = Self { skew, count: count as f64, low: 0.0, high: 0.0, sure: 0.0 };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(zipf.count + 0.5);
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        Some(zipf)
    }

    /// Returns the next number.
    pub fn sample(&self, random: &mut SplitMix64) -> u64 {
        loop {
            let area = self.high + random.next_f64() * (self.low - self.high);
            let at = self.inverse(area);
            let number = at.round().clamp(1.0, self.count);
            if number - at <= self.sure || area >= self.integral(number + 0.5) - self.density(number) {
                return number as u64 - 1;
            }
        }
    }

    fn density(&self, at: f64) -> f64 {
        (-self.skew * at.ln()).exp()
    }

    /// (x^(1-skew) - 1) / (1-skew), also for a skew of one.
    fn integral(&self, at: f64) -> f64 {
        let log = at.ln();
        let exponent = (1.0 - self.skew) * log;
        log * if exponent.abs() > 1e-8 { exponent.exp_m1() / exponent } else { 1.0 + exponent / 2.0 }
    }

    fn inverse(&self, area: f64) -> f64 {
        let t = ((1.0 - self.skew) * area).max(-1.0);
        (area * if t.abs() > 1e-8 { t.ln_1p() / t } else { 1.0 - t / 2.0 }).exp()
    }
}
