//! Files of compressed datafiles.

use crate::Outcome;
use crate::alloc::bounded;
use crate::rng::Rng;
use weft_core::{CodecPolicy, FileId, ObjectId};
use weft_store::compressed::map_bytes::{
    HEADER_BYTES, Header, HeaderedFile, decode_chunk, encode_chunk, read, record, reencode, samples,
};
use weft_store::datafile::DatafileKey;

const FRAME_LEN: usize = 48;
const RECORD_LEN: usize = 40;

pub fn compressed_header(data: &[u8]) -> Outcome {
    let Some((which, bytes)) = data.split_first() else { return Outcome::Refused };
    let file = if which % 2 == 0 { HeaderedFile::Map } else { HeaderedFile::Container };
    let as_given = check_header(file, bytes);
    // Also test behind magic number, version and checksum.
    let mut sealed = bytes.to_vec();
    sealed.resize(HEADER_BYTES, 0);
    seal_header(file, &mut sealed);
    check_header(file, &sealed);
    as_given
}

fn seal_header(file: HeaderedFile, header: &mut [u8]) {
    header[..8].copy_from_slice(if file == HeaderedFile::Map { b"WEFTMAP\n" } else { b"WEFTBOX\n" });
    header[8..12].copy_from_slice(b"\x01\0\0\0");
    let crc = crc32c::crc32c(&header[..60]);
    header[60..64].copy_from_slice(&crc.to_le_bytes());
}

fn check_header(file: HeaderedFile, data: &[u8]) -> Outcome {
    let decoded = bounded(data.len(), 0, 0, || Header::decode(file, data));
    if let Ok(header) = &decoded {
        let encoded = header.encode(file);
        assert_eq!(encoded, data[..HEADER_BYTES], "the encoding is unique");
        let bit = usize::from(encoded[60]) % (HEADER_BYTES * 8);
        let mut damaged = encoded;
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Header::decode(file, &damaged).is_err(), "the flipped bit {bit} was not detected");
    }
    Outcome::of(&decoded)
}

pub fn compressed_map(data: &[u8]) -> Outcome {
    let as_given = check_map(data);
    let mut sealed = data.to_vec();
    reseal(&mut sealed, &mut Rng::new(crc32fast::hash(data).into()));
    check_map(&sealed);
    as_given
}

fn check_map(map: &[u8]) -> Outcome {
    for record_bytes in map.chunks_exact(RECORD_LEN).filter_map(|bytes| bytes.first_chunk()) {
        assert!(record(record_bytes).is_none_or(|again| again == *record_bytes), "the encoding is unique");
    }
    // The limit covers a version and its layers, and the places that are searched for overlaps.
    let Ok((len, rows)) = bounded(map.len(), 64, 256 << 10, || read(map)) else {
        return Outcome::Refused;
    };
    let is_ordered = |two: &[_]| {
        let [a, b]: &[(u64, std::ops::Range<u64>, _); 2] = two.try_into().expect("two");
        a.0 < b.0 || a.0 == b.0 && a.1.end <= b.1.start
    };
    assert!(rows.windows(2).all(is_ordered), "parts of chunks do not overlap");
    if let Ok(copy) = reencode(map) {
        assert_eq!(read(&copy), Ok((len, rows)), "a checkpoint describes the same bytes");
    }
    Outcome::Accepted
}

/// Turns arbitrary bytes into a map with valid checksums.
fn reseal(map: &mut [u8], rng: &mut Rng) {
    if map.len() < HEADER_BYTES {
        return;
    }
    seal_header(HeaderedFile::Map, &mut map[..HEADER_BYTES]);
    let Ok(header) = Header::decode(HeaderedFile::Map, map) else { return };
    let mut number = header.progress - u64::from(header.frames);
    let mut at = HEADER_BYTES;
    while map.len() - at >= FRAME_LEN {
        let (head, rest) = map[at..].split_first_chunk_mut::<FRAME_LEN>().expect("long enough");
        number = if rng.one_in(30) { rng.next() >> rng.below(64) } else { number.wrapping_add(1) };
        head[..4].copy_from_slice(b"WMFR");
        let len = u32::from_le_bytes(head[4..8].try_into().expect("four bytes")) as usize;
        let len = if rng.one_in(30) { len } else { len % (rest.len() + 1) / RECORD_LEN * RECORD_LEN };
        head[4..8].copy_from_slice(&(len as u32).to_le_bytes());
        head[8..16].copy_from_slice(&number.to_le_bytes());
        for field in [16, 24] {
            if !rng.one_in(8) {
                let sealed = number.saturating_sub(u64::from(rng.one_in(2)));
                head[field..field + 8].copy_from_slice(&sealed.to_le_bytes());
            }
        }
        let body_len = len.min(rest.len());
        let body = &mut rest[..body_len];
        for record in body.chunks_exact_mut(RECORD_LEN) {
            mend(record, rng);
        }
        head[40..44].copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(&header.pair.to_le_bytes()), &head[..44]);
        head[44..48].copy_from_slice(&crc.to_le_bytes());
        at += FRAME_LEN + body.len();
    }
}

/// Makes it likely that a record is valid.
fn mend(record: &mut [u8], rng: &mut Rng) {
    if rng.one_in(30) {
        return;
    }
    let kind = record[0] % 5 + 1;
    let small = |record: &mut [u8], at: usize, below: u32| {
        let value = u32::from_le_bytes(record[at..at + 4].try_into().expect("four bytes")) % below;
        record[at..at + 4].copy_from_slice(&value.to_le_bytes());
        value
    };
    record[0] = kind;
    record[1] = if kind == 1 { record[1] % 3 } else { 0 };
    record[2..4].fill(0);
    record[36..].fill(0);
    if kind != 5 {
        small(record, 8, 6);
        record[12..16].fill(0);
    }
    small(record, 4, 16_000);
    let len = small(record, 28, 300) + 1;
    record[28..32].copy_from_slice(&len.to_le_bytes());
    small(record, 16, 4000);
    record[20..24].fill(0);
    let stored = if record[1] == 0 { len } else { len.max(2) - 1 };
    record[24..28].copy_from_slice(&stored.to_le_bytes());
    match kind {
        1 => record[4..8].fill(0),
        2 => {
            record[4..8].fill(0);
            record[24..36].fill(0);
        }
        3 => record[24..28].fill(0),
        4 => {
            record[16..28].fill(0);
            record[32..36].fill(0);
        }
        _ => {
            record[4..8].fill(0);
            record[16..36].fill(0);
        }
    }
}

pub fn compressed_chunk(data: &[u8]) -> Outcome {
    let Some((&[codec, len_low, len_high], stored)) = data.split_first_chunk::<3>() else {
        return Outcome::Refused;
    };
    let mut out = vec![0xee; usize::from(u16::from_le_bytes([len_low, len_high]))];
    // A context of the library is allocated once.
    let is_valid = bounded(data.len(), 1, 4 << 20, || decode_chunk(codec % 4, stored, &mut out));
    for policy in [CodecPolicy::Lz4, CodecPolicy::Zstd { level: 1 }, CodecPolicy::Auto] {
        let (codec, packed) = encode_chunk(policy, stored);
        assert!(packed.len() <= stored.len(), "never longer than the bytes");
        let mut back = vec![0xee; stored.len()];
        assert!(decode_chunk(codec, &packed, &mut back) && back == stored, "{policy:?}");
    }
    if is_valid { Outcome::Accepted } else { Outcome::Refused }
}

pub fn compressed_header_seeds() -> Vec<Vec<u8>> {
    let header = Header {
        key: DatafileKey::new(FileId(0x1234), ObjectId { component: 0, column: 3 }),
        compression: "lz4/128KiB".parse().expect("a setting"),
        pair: 77,
        boot: 7,
        progress: 9,
        frames: 2,
    };
    let of = |which: u8, file| [&[which][..], &header.encode(file)].concat();
    vec![of(0, HeaderedFile::Map), of(1, HeaderedFile::Container), of(0, HeaderedFile::Map)[..40].to_vec()]
}

pub fn compressed_map_seeds() -> Vec<Vec<u8>> {
    samples()
}

pub fn compressed_chunk_seeds() -> Vec<Vec<u8>> {
    let text: Vec<u8> = b"chunks of compressed bytes, ".repeat(100);
    let of = |policy, bytes: &[u8]| {
        let (codec, packed) = encode_chunk(policy, bytes);
        [&[codec][..], &(bytes.len() as u16).to_le_bytes(), &packed].concat()
    };
    vec![
        of(CodecPolicy::Lz4, &text),
        of(CodecPolicy::Zstd { level: 1 }, &text),
        of(CodecPolicy::Zstd { level: 19 }, &[7; 5000]),
        of(CodecPolicy::Lz4, b"short"),
    ]
}
