//! `weft profile --codecs`: ratio and speed of the codecs of compressed files.

mod data;

use crate::failure::Failure;
use crate::processor;
use crate::progress::Progress;
use crate::table::Table;
use data::Kind;
use serde::Serialize;
use serde_json::json;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use weft_core::{ByteLen, CHUNK_LEN_MAX, CHUNK_LEN_MIN, CodecPolicy};
use weft_store::compressed::codec::{self, Codec};

/// Bytes of each kind of data.
const SIZE: ByteLen = ByteLen::from_mib(8);
/// Maximum number of bytes of each kind of data, all of which are in memory.
const SIZE_MAX: ByteLen = ByteLen::from_mib(1024);
/// Chunk length with `--quick`.
const QUICK_CHUNK_LEN: u64 = 64 << 10;
/// Number of times that each case runs. The fastest counts, because the caches were disturbed in others.
const PASSES: usize = 3;
/// Settings that are measured.
const POLICIES: [(&str, CodecPolicy); 5] = [
    ("lz4", CodecPolicy::Lz4),
    ("zstd:1", CodecPolicy::Zstd { level: 1 }),
    ("zstd:3", CodecPolicy::Zstd { level: 3 }),
    ("zstd:9", CodecPolicy::Zstd { level: 9 }),
    ("auto", CodecPolicy::Auto),
];

/// What to measure.
pub struct Options {
    /// The user's own data, instead of the five kinds.
    pub files: Vec<PathBuf>,
    /// Bytes of each kind or file.
    pub size: Option<ByteLen>,
    /// Only the default chunk length.
    pub is_quick: bool,
    /// Print JSON.
    pub is_json: bool,
}

/// Result of one case.
#[derive(Serialize)]
struct Row {
    data: String,
    codec: &'static str,
    /// Length of chunks in bytes.
    chunk: u64,
    bytes: u64,
    /// Stored bytes, without what rounding to units and the map add.
    stored: u64,
    /// Stored bytes per byte.
    ratio: f64,
    /// Chunks that were stored raw.
    raw_chunks: u64,
    chunks: u64,
    /// MB of data per second of processor time.
    compress_mb_s: f64,
    decompress_mb_s: f64,
}

/// Measures all cases and prints them.
pub fn run(options: &Options) -> Result<u8, Failure> {
    let size = options.size.unwrap_or(SIZE);
    if size.0 == 0 || size > SIZE_MAX {
        return Err(Failure::misuse("--size", "give 1 B to 1 GiB for each kind of data"));
    }
    // Read the files before the work.
    let mut sources: Vec<(String, Vec<u8>)> = options
        .files
        .iter()
        .map(|file| Ok((file.display().to_string(), read(file, size)?)))
        .collect::<Result<_, Failure>>()?;
    if sources.is_empty() {
        let bytes = |kind: Kind| (kind.name().to_owned(), kind.bytes(size.0 as usize));
        sources = Kind::ALL.map(bytes).into();
    }
    let chunk_lens: Vec<u64> = match options.is_quick {
        true => vec![QUICK_CHUNK_LEN],
        false => (CHUNK_LEN_MIN.ilog2()..=CHUNK_LEN_MAX.ilog2()).map(|log2| 1 << log2).collect(),
    };
    let cases = sources.len() * POLICIES.len() * chunk_lens.len();
    let progress = Progress::new("profile: codecs");
    progress.set(0, cases as u64, "");
    let mut rows = Vec::new();
    for (name, bytes) in &sources {
        for &(codec, policy) in &POLICIES {
            for &chunk in &chunk_lens {
                progress.set(rows.len() as u64, cases as u64, format!("{name}, {codec}"));
                rows.push(measure(name, codec, policy, chunk, bytes)?);
            }
        }
    }
    drop(progress);
    match options.is_json {
        true => outln!("{:#}", json!({ "codecs": rows })),
        false => out!("{}", as_text(&rows)),
    }
    Ok(0)
}

/// Reads up to `size` bytes from the start of a file.
fn read(path: &Path, size: ByteLen) -> Result<Vec<u8>, Failure> {
    let failed =
        |error: io::Error| Failure::new(path.display(), error).remedy("give a readable file with --file");
    let mut bytes = Vec::new();
    File::open(path).map_err(failed)?.take(size.0).read_to_end(&mut bytes).map_err(failed)?;
    match bytes.is_empty() {
        true => Err(Failure::new(path.display(), "the file is empty").remedy("give one with data")),
        false => Ok(bytes),
    }
}

fn measure(
    name: &str,
    codec: &'static str,
    policy: CodecPolicy,
    chunk: u64,
    bytes: &[u8],
) -> Result<Row, Failure> {
    let mut stored = Vec::with_capacity(bytes.len() + chunk as usize);
    let mut versions: Vec<(Codec, usize)> = Vec::new();
    let mut back = vec![0; chunk as usize];
    let (mut compressing, mut decompressing) = (f64::MAX, f64::MAX);
    for pass in 0..=PASSES {
        stored.clear();
        versions.clear();
        let start = processor::time_s();
        for chunk in bytes.chunks(chunk as usize) {
            let codec = codec::encode(policy, chunk, &mut stored);
            versions.push((codec, stored.len()));
        }
        let compressed = processor::time_s();
        let (mut from, mut is_right) = (0, true);
        for (chunk, &(codec, end)) in bytes.chunks(chunk as usize).zip(&versions) {
            let back = &mut back[..chunk.len()];
            is_right &= codec::decode(codec, &stored[from..end], back);
            // The first pass warms the caches, and compares.
            is_right &= pass > 0 || back == chunk;
            from = end;
        }
        if !is_right {
            let why = format!("decompression of {codec} returned other bytes");
            return Err(Failure::new(name, why).remedy("do not compress such data, and report the bug"));
        }
        if pass > 0 {
            decompressing = decompressing.min(processor::time_s() - compressed);
            compressing = compressing.min(compressed - start);
        }
    }
    let speed = |time_s: f64| bytes.len() as f64 / 1e6 / time_s.max(1e-9);
    Ok(Row {
        data: name.to_owned(),
        codec,
        chunk,
        bytes: bytes.len() as u64,
        stored: stored.len() as u64,
        ratio: stored.len() as f64 / bytes.len() as f64,
        raw_chunks: versions.iter().filter(|(codec, _)| *codec == Codec::Raw).count() as u64,
        chunks: versions.len() as u64,
        compress_mb_s: speed(compressing),
        decompress_mb_s: speed(decompressing),
    })
}

fn as_text(rows: &[Row]) -> String {
    let mut table =
        Table::new(["DATA", "CODEC", "CHUNK", "STORED", "RAW", "COMPRESS MB/S", "DECOMPRESS MB/S"]);
    for row in rows {
        table.row([
            row.data.clone(),
            row.codec.to_owned(),
            weft_config::format_size(ByteLen(row.chunk)),
            format!("{:.1}%", 100.0 * row.ratio),
            format!("{:.0}%", 100.0 * row.raw_chunks as f64 / row.chunks as f64),
            format!("{:.0}", row.compress_mb_s),
            format!("{:.0}", row.decompress_mb_s),
        ]);
    }
    table.render()
}
