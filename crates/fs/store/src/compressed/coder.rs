//! Coding of chunks and sums of stored bytes: with the codecs, or in a simulation with a model of their results and
//! times.
//!
//! | world | results | time |
//! | --- | --- | --- |
//! | real | the codecs' | the codecs' |
//! | simulated, without a model | the codecs' | none |
//! | simulated, with a model | the codecs' | the model's |
//! | simulated, with a model, payloads of lengths only | the model's | the model's |
//!
//! In the last world no byte is read. Each sum is a number of its own, and all stored bytes match theirs.

use super::codec::{self, Codec};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use weft_core::{CodecPolicy, Nanos};
use weft_env::{Coding, Env};

/// Processor time in nanoseconds.
#[derive(Clone, Copy)]
struct Cost {
    per_chunk: f64,
    /// Per byte of data, not of stored bytes.
    per_byte: f64,
}

impl Cost {
    const fn new(per_chunk: f64, per_byte: f64) -> Self {
        Self { per_chunk, per_byte }
    }

    fn of(self, len: usize) -> f64 {
        self.per_chunk + self.per_byte * len as f64
    }
}

// Measured with `weft profile --codecs` on one processor of an AMD EPYC with AVX2 in November 2026: means of the times
// for text, libraries, doubles and protein, where they are not stored raw. The costs per chunk are the difference
// between chunks of 16 and of 64 KiB. `docs/reference/profile.md` has the table.
const LZ4: Cost = Cost::new(1e3, 2.4);
const LZ4_DECODING: Cost = Cost::new(1e3, 0.3);
/// Zstandard at levels 1, 3, 9 and 19; the others lie in between.
const ZSTD: [(u8, Cost); 4] = [
    (1, Cost::new(8e3, 2.0)),
    (3, Cost::new(8e3, 3.8)),
    (9, Cost::new(8e3, 18.0)),
    (19, Cost::new(8e3, 200.0)),
];
/// Zstandard; decompression takes about the same time at all levels.
const ZSTD_DECODING: Cost = Cost::new(5e3, 0.55);
/// The search for a byte that is not zero.
const SCAN: Cost = Cost::new(0.0, 0.02);
/// A copy and the checksum of bytes that are stored raw.
const COPY: Cost = Cost::new(0.0, 0.07);

/// Codecs of a datafile, or their model.
pub(super) struct Coder {
    policy: CodecPolicy,
    model: Option<Coding>,
    /// Number of sums so far, in a world of lengths.
    sums: Option<AtomicU32>,
}

impl Coder {
    pub fn new<E: Env>(env: &E, policy: CodecPolicy) -> Self {
        let model = env.coding();
        let has_lengths = model.is_some() && env.hollow(0).is_some();
        Self { policy, model, sums: has_lengths.then(AtomicU32::default) }
    }

    /// Returns false in a world of lengths.
    pub fn has_contents(&self) -> bool {
        self.sums.is_none()
    }

    /// Returns true if all bytes are zero.
    pub fn is_zero(&self, bytes: &[u8]) -> bool {
        match (&self.sums, self.model) {
            (Some(_), Some(model)) => model.ratio == 0.0,
            _ => codec::is_zero(bytes),
        }
    }

    /// Compresses `bytes` and appends the result to `out`.
    pub fn encode(&self, bytes: &[u8], out: &mut Vec<u8>) -> Codec {
        let (Some(_), Some(model)) = (&self.sums, self.model) else {
            return codec::encode(self.policy, bytes, out);
        };
        let len = (bytes.len() as f64 * model.ratio).ceil().max(1.0) as usize;
        let is_shorter = len <= codec::len_max(bytes.len());
        out.resize(out.len() + if is_shorter { len } else { bytes.len() }, 0);
        match self.policy {
            _ if !is_shorter => Codec::Raw,
            CodecPolicy::Lz4 => Codec::Lz4,
            CodecPolicy::Zstd { .. } | CodecPolicy::Auto => Codec::Zstd,
        }
    }

    /// Decompresses `stored` into `out`. Returns false if it is not exactly `out.len()` bytes.
    pub fn decode(&self, codec: Codec, stored: &[u8], out: &mut [u8]) -> bool {
        !self.has_contents() || codec::decode(codec, stored, out)
    }

    /// Returns the checksum of stored bytes.
    pub fn sum(&self, stored: &[u8]) -> u32 {
        self.sum_behind(0, stored)
    }

    /// Returns the checksum of stored bytes behind some with the checksum `before`.
    pub fn sum_behind(&self, before: u32, stored: &[u8]) -> u32 {
        match &self.sums {
            Some(sums) => sums.fetch_add(1, Relaxed),
            None => crc32c::crc32c_append(before, stored),
        }
    }

    /// Returns true if stored bytes match their checksum.
    pub fn matches(&self, stored: &[u8], sum: u32) -> bool {
        !self.has_contents() || crc32c::crc32c(stored) == sum
    }

    /// Sets a part of a payload to zeros.
    pub fn clear(&self, part: &mut [u8]) {
        if self.has_contents() {
            part.fill(0);
        }
    }

    /// Copies bytes to or from a payload.
    pub fn copy(&self, from: &[u8], to: &mut [u8]) {
        if self.has_contents() {
            to.copy_from_slice(from);
        }
    }

    /// Returns the processor time of compressing `len` bytes; `codec` is the result, `None` for zeros. No time where
    /// codecs take their own.
    pub fn encoding_time(&self, codec: Option<Codec>, len: usize) -> Nanos {
        let fast = match self.policy {
            CodecPolicy::Lz4 => LZ4,
            CodecPolicy::Zstd { .. } | CodecPolicy::Auto => zstd(codec::FAST_LEVEL),
        };
        self.time(match (codec, self.policy) {
            (None, _) => SCAN.of(len),
            (Some(Codec::Raw), _) => COPY.of(len) + fast.of(codec::sampled_len(len)),
            (Some(_), CodecPolicy::Lz4) => LZ4.of(len),
            (Some(_), CodecPolicy::Zstd { level }) => zstd(level).of(len),
            // Both are tried.
            (Some(_), CodecPolicy::Auto) => LZ4.of(len) + fast.of(len),
        })
    }

    /// Returns the processor time of decompressing a chunk of `len` bytes. No time where codecs take their own.
    pub fn decoding_time(&self, codec: Codec, len: usize) -> Nanos {
        let cost = match codec {
            Codec::Raw => COPY,
            Codec::Lz4 => LZ4_DECODING,
            Codec::Zstd => ZSTD_DECODING,
        };
        self.time(cost.of(len))
    }

    fn time(&self, nanos: f64) -> Nanos {
        Nanos(self.model.map_or(0, |model| (nanos / model.speed).round() as u64))
    }
}

/// Returns the cost of Zstandard at a level. Between the measured levels, the logarithm of the time per byte is linear
/// in that of the level.
fn zstd(level: u8) -> Cost {
    let above = ZSTD.iter().position(|&(of, _)| of >= level).unwrap_or(ZSTD.len() - 1).max(1);
    let ((level_a, a), (level_b, b)) = (ZSTD[above - 1], ZSTD[above]);
    let ln = |level: u8| f64::from(level).ln();
    let part = (ln(level) - ln(level_a)) / (ln(level_b) - ln(level_a));
    Cost { per_byte: a.per_byte * (b.per_byte / a.per_byte).powf(part), ..a }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_between_those_measured_take_times_in_between() {
        let times: Vec<f64> = (1..=19).map(|level| zstd(level).per_byte).collect();
        assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
        for (level, cost) in ZSTD {
            assert!((zstd(level).per_byte - cost.per_byte).abs() < 1e-9, "level {level}");
        }
    }

    fn coder(policy: CodecPolicy, ratio: f64) -> Coder {
        Coder { policy, model: Some(Coding { ratio, speed: 2.0 }), sums: Some(AtomicU32::default()) }
    }

    #[test]
    fn lengths_get_the_ratio_of_the_model() {
        let chunk = vec![0; 65_536];
        for (ratio, expected, codec) in [
            (0.5, 32_768, Codec::Zstd),
            (0.875, 57_344, Codec::Zstd),
            (0.876, 65_536, Codec::Raw),
            (1.0, 65_536, Codec::Raw),
            (1e-9, 1, Codec::Zstd),
        ] {
            let mut out = vec![7; 3];
            let coder = coder(CodecPolicy::Zstd { level: 1 }, ratio);
            assert!(!coder.is_zero(&chunk), "{ratio}");
            assert_eq!((coder.encode(&chunk, &mut out), out.len() - 3), (codec, expected), "{ratio}");
        }
        assert!(coder(CodecPolicy::Lz4, 0.0).is_zero(&[1]));
        let lz4 = coder(CodecPolicy::Lz4, 0.5);
        assert_eq!(lz4.encode(&chunk, &mut Vec::new()), Codec::Lz4);
        assert!(lz4.sum(b"same") != lz4.sum(b"same") && lz4.matches(b"other", 9), "no byte is read");
    }

    #[test]
    fn incompressible_bytes_cost_their_samples_only() {
        let coder = coder(CodecPolicy::Zstd { level: 9 }, 1.0);
        let time = |codec, len| coder.encoding_time(codec, len).0;
        let len = 256 << 10;
        assert_eq!(time(Some(Codec::Zstd), len), (8e3 + 18.0 * len as f64) as u64 / 2, "at twice the speed");
        assert!(time(Some(Codec::Raw), len) * 20 < time(Some(Codec::Zstd), len));
        assert!(time(None, len) * 2 < time(Some(Codec::Raw), len));
        assert!(coder.decoding_time(Codec::Zstd, len) > coder.decoding_time(Codec::Lz4, len));
    }
}
