//! Files of a replica. Numbers are little-endian; the last 8 bytes of a file are the XXH3 hash of all before.

use super::files::{Identity, ReplicaInfo};
use weft_core::replicas::{Grid, MappedExtent, Mapping, Phase, Slot};
use weft_core::{ByteLen, Timestamp};
use xxhash_rust::xxh3::xxh3_64;

const MAPPING_MAGIC: &[u8; 8] = b"WEFTRMAP";
const STATE_MAGIC: &[u8; 8] = b"WEFTRSTA";
/// Version of both formats.
const VERSION: u32 = 1;
/// Maximum length of the path in a state.
const PATH_LEN_MAX: usize = 4096;

/// Bytes of `written` before the marks of regions.
pub const MARKS_AT: u64 = 8;
/// Byte of `written`: 1 if anything was written since the last synchronization.
pub const WRITTEN_AT: u64 = 0;
/// Byte of `written`: 1 if the present users do not use the replica.
pub const BYPASSED_AT: u64 = 1;
/// Byte of `written`: 1 while a process cuts the original.
pub const CUTTING_AT: u64 = 2;

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn time(&mut self) -> Option<Timestamp> {
        Timestamp::try_from(i128::from_le_bytes(self.take()?)).ok()
    }
}

fn sealed(mut out: Vec<u8>) -> Vec<u8> {
    let hash = xxh3_64(&out);
    out.extend(hash.to_le_bytes());
    out
}

/// Returns what lies between magic and version, and the hash, if all three are right.
fn unsealed<'a>(bytes: &'a [u8], magic: &[u8; 8]) -> Option<Reader<'a>> {
    let (body, hash) = bytes.split_last_chunk::<8>()?;
    if xxh3_64(body) != u64::from_le_bytes(*hash) {
        return None;
    }
    let mut reader = Reader(body);
    (reader.take::<8>()? == *magic && reader.u32()? == VERSION).then_some(reader)
}

/// Encodes a mapping.
pub fn encode_mapping(mapping: &Mapping) -> Vec<u8> {
    let mut out = Vec::with_capacity(44 + mapping.encoded_len());
    out.extend(MAPPING_MAGIC);
    out.extend(VERSION.to_le_bytes());
    for count in [mapping.extents().len(), mapping.grids().len(), mapping.slots().len()] {
        out.extend((count as u64).to_le_bytes());
    }
    for extent in mapping.extents() {
        [extent.start, extent.len, extent.at].iter().for_each(|number| out.extend(number.to_le_bytes()));
    }
    for grid in mapping.grids() {
        [grid.start, grid.period].iter().for_each(|number| out.extend(number.to_le_bytes()));
        [grid.count, grid.slots].iter().for_each(|number| out.extend(number.to_le_bytes()));
    }
    for slot in mapping.slots() {
        [slot.offset, slot.len, slot.at].iter().for_each(|number| out.extend(number.to_le_bytes()));
    }
    sealed(out)
}

/// Decodes a mapping; `None` if it is damaged, of another version, or contradicts itself.
pub fn decode_mapping(bytes: &[u8]) -> Option<Mapping> {
    let mut reader = unsealed(bytes, MAPPING_MAGIC)?;
    let counts = [reader.u64()?, reader.u64()?, reader.u64()?];
    let total = counts.iter().try_fold(0u64, |sum, count| sum.checked_add(*count))?;
    if total.checked_mul(24)? != reader.0.len() as u64 {
        return None;
    }
    let extents = (0..counts[0])
        .map(|_| Some(MappedExtent { start: reader.u64()?, len: reader.u64()?, at: reader.u64()? }))
        .collect::<Option<Vec<_>>>()?;
    let grids = (0..counts[1])
        .map(|_| {
            let (start, period) = (reader.u64()?, reader.u64()?);
            Some(Grid { start, period, count: reader.u32()?, slots: reader.u32()? })
        })
        .collect::<Option<Vec<_>>>()?;
    let slots = (0..counts[2])
        .map(|_| Some(Slot { offset: reader.u64()?, len: reader.u64()?, at: reader.u64()? }))
        .collect::<Option<Vec<_>>>()?;
    Mapping::new(extents, grids, slots).ok()
}

/// Encodes the state of a replica.
pub fn encode_state(info: &ReplicaInfo) -> Vec<u8> {
    let mut out = Vec::with_capacity(160 + info.path.len());
    out.extend(STATE_MAGIC);
    out.extend(VERSION.to_le_bytes());
    out.extend(info.phase.number().to_le_bytes());
    out.extend(info.ranks.to_le_bytes());
    let Identity { inode, size, mtime, ctime } = info.original;
    out.extend(inode.to_le_bytes());
    out.extend(size.0.to_le_bytes());
    out.extend(i128::from(mtime).to_le_bytes());
    out.extend(i128::from(ctime).to_le_bytes());
    out.extend(info.mapping_hash.to_le_bytes());
    out.extend((info.path.len() as u32).to_le_bytes());
    out.extend(&info.path);
    sealed(out)
}

/// Decodes the state of a replica; `None` if it is damaged or of another version.
pub fn decode_state(bytes: &[u8]) -> Option<ReplicaInfo> {
    let mut reader = unsealed(bytes, STATE_MAGIC)?;
    let phase = Phase::of_number(reader.u32()?)?;
    let ranks = reader.u32()?;
    let (inode, size) = (reader.u64()?, ByteLen(reader.u64()?));
    let original = Identity { inode, size, mtime: reader.time()?, ctime: reader.time()? };
    let mapping_hash = reader.u64()?;
    let len = reader.u32()? as usize;
    (len <= PATH_LEN_MAX && len == reader.0.len()).then(|| ReplicaInfo {
        phase,
        ranks,
        original,
        mapping_hash,
        path: reader.0.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_and_states_survive_their_encoding_and_damage_is_noticed() {
        let pieces = (0..20).map(|n| MappedExtent { start: n * 10, len: 4, at: n % 4 * 20 + n / 4 * 4 });
        let pieces = pieces.chain([MappedExtent { start: 500, len: 7, at: 90 }]).collect();
        let mapping = Mapping::of_pieces(pieces).expect("a mapping");
        assert!(!mapping.grids().is_empty() && !mapping.extents().is_empty());
        let bytes = encode_mapping(&mapping);
        assert_eq!(decode_mapping(&bytes).as_ref(), Some(&mapping));
        let info = ReplicaInfo {
            phase: Phase::Valid,
            ranks: 8,
            original: Identity {
                inode: 7,
                size: ByteLen(1000),
                mtime: Timestamp::from_parts(5, 6),
                ctime: Timestamp::from_parts(7, 8),
            },
            mapping_hash: 99,
            path: b"/scratch/field".to_vec(),
        };
        let state = encode_state(&info);
        assert_eq!(decode_state(&state), Some(info));
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert_eq!(decode_mapping(&bad), None, "byte {at}");
            assert_eq!(decode_mapping(&bytes[..at]), None);
        }
        for at in 0..state.len() {
            let mut bad = state.clone();
            bad[at] ^= 1;
            assert_eq!(decode_state(&bad), None, "byte {at}");
        }
    }
}
