//! Decodes and replays a map held in memory, for fuzzing.

use super::header::PROGRESS_MAX;
pub use super::header::{BadHeader, HEADER_BYTES, Header, HeaderedFile};

use super::chunks::{Chunk, Chunks, Layer};
use super::codec::{self, Codec};
use super::frame::{self, Frame};
use super::record::{Piece, RECORD_BYTES, Record, Version};
use super::scan;
use super::space::Space;
use crate::datafile::DatafileKey;
use std::ops::Range;
use weft_core::ranges::{ByteRange, RangeSet};
use weft_core::{CodecPolicy, FileId, ObjectId};

/// A part of a chunk: the chunk, the range within it, and the place and offset of its bytes; `None` for zeros over
/// them.
pub type Row = (u64, Range<u64>, Option<(u64, u64)>);

/// A [`Row`] without its chunk.
type Visible = (Range<u64>, Option<(u64, u64)>);

/// Replays a map as an open does. Returns the length of the datafile, and the parts of its chunks.
///
/// # Errors
/// When the map is invalid.
pub fn read(map: &[u8]) -> Result<(u64, Vec<Row>), &'static str> {
    let (_, _, chunks) = replayed(map)?;
    Ok((chunks.len(), rows(&chunks)))
}

/// Encodes a checkpoint of the map; reading it returns the same rows.
///
/// # Errors
/// As for [`read`].
pub fn reencode(map: &[u8]) -> Result<Vec<u8>, &'static str> {
    let (header, last, chunks) = replayed(map)?;
    let records: Vec<Record> = chunks.records().collect();
    // One frame for each record at most.
    let end = last.checked_add(1 + records.len() as u64);
    end.filter(|end| *end <= PROGRESS_MAX).ok_or("no number is left")?;
    Ok(frame::checkpoint(header, last + 1, &records).1)
}

fn replayed(map: &[u8]) -> Result<(Header, u64, Chunks), &'static str> {
    let header = Header::decode(HeaderedFile::Map, map).map_err(|_| "a bad header")?;
    let found = scan::scan(&header, map)?;
    let replayed = scan::replay(&header, map, &found, &scan::Torn::new())?;
    Space::new(replayed.chunks.extents(), replayed.pending, 0).map(drop)?;
    Ok((header, found.last, replayed.chunks))
}

fn rows(chunks: &Chunks) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut from = 0;
    while let Some(chunk) = chunks.next_stored(from) {
        rows.extend(parts(&chunks.get(chunk)).into_iter().map(|(range, place)| (chunk, range, place)));
        from = chunk + 1;
    }
    rows
}

/// Returns the visible parts of a chunk, in order; zeros are left out.
fn parts(chunk: &Chunk) -> Vec<Visible> {
    let mut hidden = RangeSet::new();
    let mut parts = Vec::new();
    let mut show = |range: ByteRange, place: Option<(u64, u64)>| {
        for gap in hidden.gaps(range).collect::<Vec<_>>() {
            let place = place.map(|(at, start)| (at, gap.start() - start));
            parts.extend(place.map(|place| (gap.start()..gap.end(), Some(place))));
            hidden.insert(gap);
        }
    };
    for layer in chunk.layers.iter().rev() {
        match layer {
            Layer::Piece(piece) => show(layer.range(), Some((piece.at, piece.start.into()))),
            Layer::Zeros { .. } => show(layer.range(), None),
        }
    }
    if let Some(version) = chunk.version
        && let Some(range) = ByteRange::new(0, version.len.into())
    {
        show(range, Some((version.at, 0)));
    }
    parts.sort_by_key(|(range, _)| range.start);
    parts
}

/// Decodes a record as in a datafile with chunks of 64 KiB. Returns its encoding.
pub fn record(bytes: &[u8; RECORD_BYTES]) -> Option<[u8; RECORD_BYTES]> {
    Record::decode(bytes, 64 << 10).map(|record| record.encode())
}

/// Decompresses the stored bytes of a chunk into `out`, with the codec of this number. Returns false if they are
/// invalid.
pub fn decode_chunk(codec: u8, stored: &[u8], out: &mut [u8]) -> bool {
    Codec::from_number(codec).is_some_and(|codec| codec::decode(codec, stored, out))
}

/// Compresses the bytes of a chunk. Returns the number of the codec, and the stored bytes.
pub fn encode_chunk(policy: CodecPolicy, bytes: &[u8]) -> (u8, Vec<u8>) {
    let mut stored = Vec::new();
    (codec::encode(policy, bytes, &mut stored).number(), stored)
}

/// Returns valid maps.
pub fn samples() -> Vec<Vec<u8>> {
    let header = Header {
        key: DatafileKey::new(FileId(0x1234), ObjectId { component: 0, column: 3 }),
        compression: "zstd:1/64KiB".parse().expect("a setting"),
        pair: 0,
        boot: 7,
        progress: 0,
        frames: 0,
    };
    let version = |at| Version { at, stored: 1000, len: 65_536, crc: 5, codec: Codec::Zstd };
    let piece = |start, len, at| Piece { start, len, at, crc: 6 };
    let frames = [
        vec![
            Record::Version { chunk: 0, version: version(1) },
            Record::Version { chunk: 1, version: version(3) },
        ],
        vec![Record::Piece { chunk: 1, piece: piece(100, 500, 5) }],
        vec![Record::Piece { chunk: 1, piece: piece(100, 700, 5) }],
        vec![Record::Zeros { chunk: 0, start: 3, len: 40_000 }],
        vec![],
        vec![Record::Hole { chunk: 0, count: 1 }, Record::Length { len: 200_000 }],
        vec![Record::Version { chunk: 1, version: version(9) }],
    ];
    let mut map = header.encode(HeaderedFile::Map).to_vec();
    for (number, records) in (1..).zip(&frames) {
        let (sealed, durable) = if number < 5 { (0, 0) } else { (4, number - 1) };
        Frame { number, sealed, durable, boot: header.boot }.encode(0, records, &mut map);
    }
    let torn = map[..map.len() - 3].to_vec();
    let mut all = vec![header.encode(HeaderedFile::Map).to_vec(), map, torn];
    let checkpoints: Vec<_> = all.iter().map(|map| reencode(map).expect("good")).collect();
    all.extend(checkpoints);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_and_their_checkpoints_are_the_same() {
        for sample in samples() {
            let found = read(&sample).expect("good");
            assert_eq!(read(&reencode(&sample).expect("good")), Ok(found));
        }
        let (len, rows) = read(&samples()[1]).expect("good");
        assert_eq!((len, rows), (200_000, vec![(1, 0..65_536, Some((9, 0)))]));
    }

    /// Offset of the last frame of the second sample. No later frame says that it is durable.
    const LAST_FRAME: usize = 632;

    #[test]
    fn a_flipped_bit_is_damage_unless_a_lost_write_explains_it() {
        let map = &samples()[1];
        let before = read(&map[..LAST_FRAME]).expect("good");
        for bit in 0..map.len() * 8 {
            let mut bad = map.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let found = read(&bad);
            assert_eq!(found.is_err(), bit / 8 < LAST_FRAME, "bit {bit}");
            assert!(found.is_err() || found.as_ref() == Ok(&before), "bit {bit}");
        }
    }

    #[test]
    fn any_tail_that_was_never_synced_is_cut() {
        let map = &samples()[1];
        for len in HEADER_BYTES..map.len() {
            assert!(read(&map[..len]).is_ok(), "the process was killed at {len}");
            // Zeros, and bytes of another file, up to and behind the former end.
            for filling in [vec![0; map.len() + 5000], vec![0xa5; map.len()]] {
                let bad = [&map[..len], &filling[len..]].concat();
                // A frame may end in zeros.
                let same = bad.iter().zip(map).take_while(|(a, b)| a == b).count();
                assert_eq!(read(&bad), read(&map[..same]), "cut at {len}");
            }
        }
        // The last frame proves that the others were synced.
        for at in HEADER_BYTES..LAST_FRAME - 40 {
            let mut bad = map.clone();
            bad[at..LAST_FRAME].fill(0);
            assert_eq!(read(&bad), Err("a frame that was synced is broken"), "zeros from {at} on");
        }
    }
}
