//! Encodes blocks of records and names.
//!
//! A record is a sequence of bytes and LEB128 numbers. A delta is the zigzag-encoded difference to the reference value.
//!
//! | field | present | encoding | reference value |
//! | --- | --- | --- | --- |
//! | flags | always | 1 byte, see below | |
//! | rank, host | flag 6 | 2 deltas | rank and host of the previous record |
//! | file | flag 7 | delta | file of the previous record |
//! | start | always | delta | start of the previous record |
//! | duration | always | number | |
//! | offset | read, write, truncate | delta | end of the same rank's previous access to the file |
//! | length | read, write, truncate | delta | length of the same rank's previous access to the file |
//!
//! Flags: bits 0 to 3 operation, 4 level, 5 collective, 6 rank or host changes, 7 file changes. All reference values
//! are 0 at the beginning of a block.

use super::{BLOCK_HEADER_LEN, MARKER};
use crate::record::{Operation, Record};
use crate::varint;
use std::collections::BTreeMap;

/// Reference values of deltas. Encoder and decoder update them alike.
#[derive(Default)]
pub(super) struct Deltas {
    pub rank: u32,
    pub host: u32,
    pub file: u32,
    pub start: u64,
    /// Current rank and file, with the end and length of their last access. The map has the other pairs.
    current: ((u32, u32), (u64, u64)),
    /// End and length of the last access, by rank and file.
    accesses: BTreeMap<(u32, u32), (u64, u64)>,
}

impl Deltas {
    /// Returns the end and length of a rank's last access to a file.
    #[inline]
    pub fn access(&mut self, rank: u32, file: u32) -> &mut (u64, u64) {
        if self.current.0 != (rank, file) {
            let (previous, access) = self.current;
            self.accesses.insert(previous, access);
            self.current = ((rank, file), self.accesses.remove(&(rank, file)).unwrap_or_default());
        }
        &mut self.current.1
    }
}

pub(super) fn has_extent(op: Operation) -> bool {
    op.moves_bytes() || op == Operation::Truncate
}

/// Encodes the records of one block.
#[derive(Default)]
pub struct Encoder {
    plain: Vec<u8>,
    items: u32,
    deltas: Deltas,
}

impl Encoder {
    /// Appends a record.
    pub fn push(&mut self, record: &Record) {
        let previous = &mut self.deltas;
        let (rank, host, file) = (record.rank.0, record.host.0, record.file.0);
        let other_rank = rank != previous.rank || host != previous.host;
        let other_file = file != previous.file;
        let out = &mut self.plain;
        out.push(
            record.op as u8
                | (record.level as u8) << 4
                | u8::from(record.collective) << 5
                | u8::from(other_rank) << 6
                | u8::from(other_file) << 7,
        );
        if other_rank {
            varint::put_delta(out, u64::from(previous.rank), u64::from(rank));
            varint::put_delta(out, u64::from(previous.host), u64::from(host));
        }
        if other_file {
            varint::put_delta(out, u64::from(previous.file), u64::from(file));
        }
        varint::put_delta(out, previous.start, record.start.get());
        varint::put(out, record.duration().get());
        if has_extent(record.op) {
            let access = previous.access(rank, file);
            varint::put_delta(out, access.0, record.offset.get());
            varint::put_delta(out, access.1, record.len.get());
            *access = (record.end_offset(), record.len.get());
        }
        (previous.rank, previous.host, previous.file, previous.start) =
            (rank, host, file, record.start.get());
        self.items += 1;
    }

    /// Number of records appended.
    pub fn len(&self) -> usize {
        self.items as usize
    }

    /// Whether no record was appended.
    pub fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// Encoded length before compression, in bytes.
    pub fn plain_len(&self) -> usize {
        self.plain.len()
    }

    /// Appends the finished block to `out` and resets the encoder.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        block(out, 1, self.items, &self.plain);
        self.plain.clear();
        self.items = 0;
        self.deltas = Deltas::default();
    }
}

/// Appends a block of any kind to `out`, compressed if that makes it shorter.
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

    /// Compares with a plain map, for all sequences of six accesses to four pairs of rank and file.
    #[test]
    fn last_access_is_kept_by_rank_and_file() {
        for sequence in 0..4u32.pow(6) {
            let (mut deltas, mut model) = (Deltas::default(), BTreeMap::new());
            for step in 0u32..6 {
                let key = ((sequence >> (2 * step)) & 1, (sequence >> (2 * step + 1)) & 1);
                let access = deltas.access(key.0, key.1);
                let known = model.insert(key, (u64::from(step) + 1, 7)).unwrap_or_default();
                assert_eq!(*access, known, "sequence {sequence}, access {step}");
                *access = (u64::from(step) + 1, 7);
            }
        }
    }
}
