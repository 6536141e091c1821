//! Blocks from records and names.
//!
//! A record: a byte with the operation (bits 0-3), level (4), collective (5), another rank or host than the record
//! before (6), another file than the record before (7); then, as those bits say, rank and host, file; then the begin;
//! how long it took; and for operations that have them offset and length. Everything but the duration is a difference:
//! rank, host, file and begin to the record before, the offset to the end of the bytes that this rank used last in this
//! file, the length to the length then.

use super::{BLOCK_HEADER_LEN, MARKER};
use crate::record::{Operation, Record};
use crate::varint;
use std::collections::BTreeMap;

/// What differences are taken to; the same in encoder and decoder.
#[derive(Default)]
pub(super) struct Deltas {
    pub rank: u32,
    pub host: u32,
    pub file: u32,
    pub start: u64,
    /// Of the rank and the file that were met last, as `places` of the others.
    here: ((u32, u32), (u64, u64)),
    /// By rank and file: the end of the bytes used last, and their number.
    places: BTreeMap<(u32, u32), (u64, u64)>,
}

impl Deltas {
    /// The end of the bytes that a rank used last in a file, and their number.
    #[inline]
    pub fn place(&mut self, rank: u32, file: u32) -> &mut (u64, u64) {
        if self.here.0 != (rank, file) {
            let (before, place) = self.here;
            self.places.insert(before, place);
            self.here = ((rank, file), self.places.remove(&(rank, file)).unwrap_or_default());
        }
        &mut self.here.1
    }
}

pub(super) fn has_place(op: Operation) -> bool {
    op.moves_bytes() || op == Operation::Truncate
}

/// Gathers the records of one block.
#[derive(Default)]
pub struct Encoder {
    plain: Vec<u8>,
    items: u32,
    deltas: Deltas,
}

impl Encoder {
    /// Adds a record.
    pub fn push(&mut self, record: &Record) {
        let before = &mut self.deltas;
        let (rank, host, file) = (record.rank.0, record.host.0, record.file.0);
        let other_rank = rank != before.rank || host != before.host;
        let other_file = file != before.file;
        let out = &mut self.plain;
        out.push(
            record.op as u8
                | (record.level as u8) << 4
                | u8::from(record.collective) << 5
                | u8::from(other_rank) << 6
                | u8::from(other_file) << 7,
        );
        if other_rank {
            varint::put_delta(out, u64::from(before.rank), u64::from(rank));
            varint::put_delta(out, u64::from(before.host), u64::from(host));
        }
        if other_file {
            varint::put_delta(out, u64::from(before.file), u64::from(file));
        }
        varint::put_delta(out, before.start, record.start.get());
        varint::put(out, record.duration().get());
        if has_place(record.op) {
            let place = before.place(rank, file);
            varint::put_delta(out, place.0, record.offset.get());
            varint::put_delta(out, place.1, record.len.get());
            *place = (record.end_offset(), record.len.get());
        }
        (before.rank, before.host, before.file, before.start) = (rank, host, file, record.start.get());
        self.items += 1;
    }

    /// Number of records in it.
    pub fn len(&self) -> usize {
        self.items as usize
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// Bytes that it has before compression.
    pub fn plain_len(&self) -> usize {
        self.plain.len()
    }

    /// The block, appended to `out`; the encoder is empty then.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        block(out, 1, self.items, &self.plain);
        self.plain.clear();
        self.items = 0;
        self.deltas = Deltas::default();
    }
}

/// A block of any kind, appended to `out`; compressed where that makes it shorter.
pub fn block(out: &mut Vec<u8>, kind: u8, items: u32, plain: &[u8]) {
    assert!(plain.len() <= super::PLAIN_LEN_MAX, "a block of {} bytes", plain.len());
    let begin = out.len();
    out.resize(begin + BLOCK_HEADER_LEN + lz4_flex::block::get_maximum_output_size(plain.len()), 0);
    let stored = lz4_flex::block::compress_into(plain, &mut out[begin + BLOCK_HEADER_LEN..])
        .ok()
        .filter(|len| *len < plain.len());
    let stored_len = stored.unwrap_or(plain.len());
    out.truncate(begin + BLOCK_HEADER_LEN + stored_len);
    if stored.is_none() {
        out[begin + BLOCK_HEADER_LEN..].copy_from_slice(plain);
    }
    let head = &mut out[begin..begin + BLOCK_HEADER_LEN];
    head[..4].copy_from_slice(MARKER);
    head[4] = kind;
    head[5] = u8::from(stored.is_some());
    head[8..12].copy_from_slice(&(plain.len() as u32).to_le_bytes());
    head[12..16].copy_from_slice(&(stored_len as u32).to_le_bytes());
    head[16..20].copy_from_slice(&items.to_le_bytes());
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&out[begin..begin + 20]);
    hasher.update(&out[begin + BLOCK_HEADER_LEN..]);
    out[begin + 20..begin + 24].copy_from_slice(&hasher.finalize().to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against a plain map, over all sequences of six looks at four places, each leaving a value of its own.
    #[test]
    fn places_are_kept_by_rank_and_file() {
        for sequence in 0..4u32.pow(6) {
            let (mut deltas, mut model) = (Deltas::default(), BTreeMap::new());
            for look in 0u32..6 {
                let key = ((sequence >> (2 * look)) & 1, (sequence >> (2 * look + 1)) & 1);
                let place = deltas.place(key.0, key.1);
                let known = model.insert(key, (u64::from(look) + 1, 7)).unwrap_or_default();
                assert_eq!(*place, known, "sequence {sequence}, look {look}");
                *place = (u64::from(look) + 1, 7);
            }
        }
    }
}
