//! Codecs of chunks.
//!
//! | codec | library | stored bytes |
//! | --- | --- | --- |
//! | raw | none | the bytes themselves |
//! | lz4 | `lz4_flex` | an LZ4 block without its length |
//! | zstd | `zstd` | a Zstandard frame without a checksum |

use parking_lot::Mutex;
use std::io::Cursor;
use weft_core::CodecPolicy;
use zstd::bulk::{Compressor, Decompressor};

/// Compression must save at least one part in this number, or else the bytes are stored raw.
const SAVING_PART: usize = 8;
/// The automatic policy prefers Zstandard if it saves at least one part in this number more than LZ4, because it takes
/// several times as long to decompress.
const ZSTD_SAVING_PART: usize = 16;
/// At least one sample must save one part in this number, or else the bytes are stored raw.
const SAMPLE_SAVING_PART: usize = 32;
/// Length of a sample in bytes.
const SAMPLE_LEN: usize = 4 << 10;
/// Minimum length in bytes of chunks that are sampled. Samples would be most of a shorter one.
const SAMPLED_LEN_MIN: usize = 32 << 10;
/// Level of Zstandard for samples and for the automatic policy.
pub(super) const FAST_LEVEL: u8 = 1;
/// Maximum number of idle contexts of Zstandard kept for reuse, of each kind. One for compression takes about 1 MiB at
/// the lowest level.
const CONTEXTS_MAX: usize = 8;

/// How the bytes of a chunk are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Codec {
    /// As they are.
    Raw,
    /// As an LZ4 block.
    Lz4,
    /// As a Zstandard frame.
    Zstd,
}

impl Codec {
    /// Returns the codec's number in a map.
    pub const fn number(self) -> u8 {
        match self {
            Self::Raw => 0,
            Self::Lz4 => 1,
            Self::Zstd => 2,
        }
    }

    /// Returns the codec with this number in a map.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Raw),
            1 => Some(Self::Lz4),
            2 => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// Returns true if all bytes are zero.
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    let (blocks, rest) = bytes.as_chunks::<64>();
    blocks.iter().all(|block| block.iter().fold(0, |all, byte| all | byte) == 0)
        && rest.iter().all(|&byte| byte == 0)
}

/// Returns the maximum length of the compressed form of `len` bytes.
pub(super) const fn len_max(len: usize) -> usize {
    len - len.div_ceil(SAVING_PART)
}

/// Returns how many of `len` incompressible bytes are tried: samples, or all.
pub(super) const fn sampled_len(len: usize) -> usize {
    if len < SAMPLED_LEN_MIN { len } else { 3 * SAMPLE_LEN }
}

/// Compresses `bytes` and appends the result to `out`. Bytes that compression makes less than one eighth shorter are
/// appended as they are.
pub fn encode(policy: CodecPolicy, bytes: &[u8], out: &mut Vec<u8>) -> Codec {
    let start = out.len();
    let len_max = len_max(bytes.len());
    let codec = match policy {
        _ if !is_promising(policy, bytes) => None,
        CodecPolicy::Lz4 => encode_lz4(bytes, len_max, out).then_some(Codec::Lz4),
        CodecPolicy::Zstd { level } => encode_zstd(level, bytes, len_max, out).then_some(Codec::Zstd),
        CodecPolicy::Auto => encode_best(bytes, len_max, out),
    };
    codec.unwrap_or_else(|| {
        out.truncate(start);
        out.extend_from_slice(bytes);
        Codec::Raw
    })
}

/// Appends the LZ4 block, unless Zstandard saves clearly more.
fn encode_best(bytes: &[u8], len_max: usize, out: &mut Vec<u8>) -> Option<Codec> {
    let start = out.len();
    let lz4_len = encode_lz4(bytes, len_max, out).then(|| out.len() - start);
    let zstd_len_max = match lz4_len {
        None => len_max,
        Some(len) => len.saturating_sub(bytes.len() / ZSTD_SAVING_PART),
    };
    let mut zstd = Vec::new();
    if zstd_len_max > 0 && encode_zstd(FAST_LEVEL, bytes, zstd_len_max, &mut zstd) {
        out.truncate(start);
        out.append(&mut zstd);
        return Some(Codec::Zstd);
    }
    lz4_len.map(|_| Codec::Lz4)
}

/// Appends the LZ4 block of `bytes`. Returns false, and leaves `out` as it was, if it is longer than `len_max`.
fn encode_lz4(bytes: &[u8], len_max: usize, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    out.resize(start + lz4_flex::block::get_maximum_output_size(bytes.len()), 0);
    let len = lz4_flex::block::compress_into(bytes, &mut out[start..]).unwrap_or(usize::MAX);
    let fits = len <= len_max;
    out.truncate(if fits { start + len } else { start });
    fits
}

/// Appends the Zstandard frame of `bytes`. Returns false, and leaves `out` as it was, if it is longer than `len_max`.
fn encode_zstd(level: u8, bytes: &[u8], len_max: usize, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    out.reserve(len_max);
    let mut room = Cursor::new(&mut *out);
    room.set_position(start as u64);
    // An error means that there is too little room. There may be more than requested.
    let len = with_compressor(level, |context| context.compress_to_buffer(bytes, &mut room).ok()).flatten();
    let fitting = len.filter(|len| *len <= len_max);
    out.truncate(start + fitting.unwrap_or(0));
    fitting.is_some()
}

/// Returns false if samples of `bytes` do not get shorter.
fn is_promising(policy: CodecPolicy, bytes: &[u8]) -> bool {
    if bytes.len() < SAMPLED_LEN_MIN {
        return true;
    }
    let mut out = Vec::new();
    let len_max = SAMPLE_LEN - SAMPLE_LEN / SAMPLE_SAVING_PART;
    let mut saves = |at: usize| {
        let sample = &bytes[at..][..SAMPLE_LEN];
        out.clear();
        match policy {
            CodecPolicy::Lz4 => encode_lz4(sample, len_max, &mut out),
            // Zstandard also shortens bytes without repetitions, if some values are frequent.
            CodecPolicy::Zstd { .. } | CodecPolicy::Auto => {
                encode_zstd(FAST_LEVEL, sample, len_max, &mut out)
            }
        }
    };
    saves(0) || saves(bytes.len() / 2) || saves(bytes.len() - SAMPLE_LEN)
}

/// Decompresses `stored` into `out`. Returns false if it is not exactly `out.len()` bytes.
pub fn decode(codec: Codec, stored: &[u8], out: &mut [u8]) -> bool {
    match codec {
        Codec::Raw => {
            let fits = stored.len() == out.len();
            if fits {
                out.copy_from_slice(stored);
            }
            fits
        }
        Codec::Lz4 => lz4_flex::block::decompress_into(stored, out).is_ok_and(|len| len == out.len()),
        Codec::Zstd => {
            let len = with_decompressor(|context| context.decompress_to_buffer(stored, out).ok()).flatten();
            len == Some(out.len())
        }
    }
}

/// Idle contexts. Creating one takes longer than compressing a chunk.
static COMPRESSORS: Mutex<Vec<(u8, Compressor<'static>)>> = Mutex::new(Vec::new());
static DECOMPRESSORS: Mutex<Vec<Decompressor<'static>>> = Mutex::new(Vec::new());

/// Calls `body` with a context for compression; `None` if the library cannot create one.
fn with_compressor<R>(level: u8, body: impl FnOnce(&mut Compressor<'static>) -> R) -> Option<R> {
    let idle = {
        let mut all = COMPRESSORS.lock();
        let found = all.iter().position(|(of, _)| *of == level);
        found.map(|at| all.swap_remove(at).1)
    };
    let mut context = match idle {
        Some(context) => context,
        None => Compressor::new(i32::from(level)).ok()?,
    };
    let result = body(&mut context);
    let mut all = COMPRESSORS.lock();
    if all.len() >= CONTEXTS_MAX {
        all.remove(0);
    }
    all.push((level, context));
    Some(result)
}

/// Calls `body` with a context for decompression; `None` if the library cannot create one.
fn with_decompressor<R>(body: impl FnOnce(&mut Decompressor<'static>) -> R) -> Option<R> {
    let idle = DECOMPRESSORS.lock().pop();
    let mut context = match idle {
        Some(context) => context,
        None => Decompressor::new().ok()?,
    };
    let result = body(&mut context);
    let mut all = DECOMPRESSORS.lock();
    if all.len() < CONTEXTS_MAX {
        all.push(context);
    }
    Some(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_env::sim::Rng;

    const POLICIES: [CodecPolicy; 4] = [
        CodecPolicy::Lz4,
        CodecPolicy::Zstd { level: 1 },
        CodecPolicy::Zstd { level: 19 },
        CodecPolicy::Auto,
    ];

    fn random(rng: &mut Rng, len: usize, values: u64) -> Vec<u8> {
        (0..len).map(|_| rng.below(values) as u8).collect()
    }

    #[test]
    fn bytes_round_trip() {
        let mut rng = Rng::new(1);
        for len in [1, 2, 100, 4096, 65_535, 65_536, 1 << 20] {
            for values in [1, 2, 20, 256] {
                let bytes = random(&mut rng, len, values);
                for policy in POLICIES {
                    let mut out = b"before".to_vec();
                    let codec = encode(policy, &bytes, &mut out);
                    let stored = &out[6..];
                    assert_eq!(&out[..6], b"before");
                    assert!(
                        codec == Codec::Raw || stored.len() * 8 <= bytes.len() * 7,
                        "{policy:?} of {len}"
                    );
                    let mut back = vec![0xee; len];
                    assert!(decode(codec, stored, &mut back), "{policy:?} of {len}");
                    assert!(back == bytes);
                    assert!(!decode(codec, stored, &mut vec![0; len + 1]), "{policy:?} of {len}");
                    assert!(!decode(codec, stored, &mut vec![0; len - 1]), "{policy:?} of {len}");
                }
            }
        }
    }

    #[test]
    fn the_policy_decides_what_is_worth_compressing() {
        let mut rng = Rng::new(2);
        let mut out = Vec::new();
        let letters = random(&mut rng, 65_536, 20);
        assert_eq!(encode(CodecPolicy::Lz4, &letters, &mut out), Codec::Raw, "no repetitions");
        assert_eq!(encode(CodecPolicy::Zstd { level: 1 }, &letters, &mut out), Codec::Zstd);
        assert_eq!(encode(CodecPolicy::Auto, &letters, &mut out), Codec::Zstd);
        assert_eq!(encode(CodecPolicy::Auto, &[7; 65_536], &mut out), Codec::Lz4);
        // Half of the chunk is worth it, wherever it is.
        for half in 0..2 {
            let mut bytes = random(&mut rng, 65_536, 256);
            bytes[half * 32_768..][..32_768].fill(7);
            for policy in POLICIES {
                assert_ne!(encode(policy, &bytes, &mut out), Codec::Raw, "{policy:?}");
            }
        }
    }

    #[test]
    fn zeros_are_found() {
        for len in [0, 1, 63, 64, 65, 1000] {
            let mut bytes = vec![0; len];
            assert!(is_zero(&bytes), "{len}");
            for at in 0..len {
                bytes[at] = 1;
                assert!(!is_zero(&bytes), "{at} of {len}");
                bytes[at] = 0;
            }
        }
    }

    #[test]
    fn damaged_bytes_do_not_panic() {
        let mut rng = Rng::new(3);
        for _ in 0..2000 {
            let (len, values) = (rng.below(300) as usize, 1 + rng.below(256));
            let bytes = random(&mut rng, len, values);
            for codec in [Codec::Raw, Codec::Lz4, Codec::Zstd] {
                let mut out = vec![0; rng.below(500) as usize];
                decode(codec, &bytes, &mut out);
            }
        }
    }
}
