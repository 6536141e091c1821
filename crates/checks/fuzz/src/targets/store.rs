//! Files on the devices of a data server.

use crate::Outcome;
use crate::alloc::bounded;
use weft_core::{FileId, ObjectId, TargetId};
use weft_store::datafile::DatafileKey;
use weft_store::identity::{Identity, LEN, LEN_1};
use weft_store::integrity::{HEADER_BYTES, Header, Slot, block_sum};

pub fn target_identity(data: &[u8]) -> Outcome {
    let as_given = identity(data);
    // Also test behind magic number, version and checksum.
    let mut bytes = data.to_vec();
    bytes.resize(LEN, 0);
    bytes[..12].copy_from_slice(b"WEFTTGT\n\x02\0\0\0");
    let end = bytes.len() - 4;
    let crc = crc32fast::hash(&bytes[..end]);
    bytes[end..].copy_from_slice(&crc.to_le_bytes());
    identity(&bytes);
    as_given
}

fn identity(data: &[u8]) -> Outcome {
    let decoded = bounded(data.len(), 0, 0, || Identity::decode(data));
    if let Ok(identity) = &decoded {
        match data.len() {
            LEN_1 => assert_eq!(Identity::decode(&identity.encode()).as_ref(), Ok(identity)),
            _ => assert_eq!(identity.encode(), data, "the encoding is unique"),
        }
        let bit = data[32] as usize % (data.len() * 8);
        let mut damaged = data.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Identity::decode(&damaged).is_err(), "the flipped bit {bit} was not detected");
    }
    Outcome::of(&decoded)
}

pub fn datafile_name(data: &[u8]) -> Outcome {
    let Some((&fan, name)) = data.split_first() else { return Outcome::Refused };
    let name = String::from_utf8_lossy(name);
    let parsed = bounded(data.len(), 1, 256, || DatafileKey::parse(fan, &name));
    let Some(key) = parsed else { return Outcome::Refused };
    assert_eq!(key.fan(), fan);
    assert_eq!(key.name(), format!("objects/{fan:02x}/{name}"), "a datafile has one name");
    Outcome::Accepted
}

pub fn target_identity_seeds() -> Vec<Vec<u8>> {
    let good = Identity::new("physics", TargetId(3)).encode().to_vec();
    let short = good[..LEN - 1].to_vec();
    let mut version_1 = good[..LEN_1 - 4].to_vec();
    version_1[8] = 1;
    version_1.extend_from_slice(&crc32fast::hash(&version_1).to_le_bytes());
    vec![good, short, version_1]
}

pub fn checksum_header(data: &[u8]) -> Outcome {
    let as_given = sums_header(data);
    // Also test behind magic number, version, block length and checksum.
    let mut bytes = data.to_vec();
    bytes.resize(HEADER_BYTES, 0);
    bytes[..16].copy_from_slice(b"WEFTSUM\n\x01\0\0\0\0\x10\0\0");
    let crc = crc32fast::hash(&bytes[..60]);
    bytes[60..].copy_from_slice(&crc.to_le_bytes());
    sums_header(&bytes);
    as_given
}

fn sums_header(data: &[u8]) -> Outcome {
    let decoded = bounded(data.len(), 0, 0, || Header::decode(data));
    if let Ok(header) = &decoded {
        let encoded = header.encode();
        assert_eq!(encoded, data[..HEADER_BYTES], "the encoding is unique");
        let bit = usize::from(encoded[60]) % (HEADER_BYTES * 8);
        let mut damaged = encoded;
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Header::decode(&damaged).is_err(), "the flipped bit {bit} was not detected");
        let blocks = [0, 1, header.open_start, header.open_end, header.sealed_end];
        let all_are_sealed = blocks.iter().all(|block| header.is_sealed(*block));
        assert!(!all_are_sealed, "the block after the sealed ones is never sealed");
    }
    Outcome::of(&decoded)
}

pub fn checksum_slot(data: &[u8]) -> Outcome {
    let Some((slot, block)) = data.split_first_chunk::<8>() else { return Outcome::Refused };
    let slot = Slot::decode(*slot);
    assert_eq!(Slot::decode(slot.encode()), slot);
    let block = &block[..block.len().min(4096)];
    let accepts = bounded(data.len(), 0, 0, || slot.accepts(block));
    assert_eq!(accepts, [slot.sum, slot.previous].contains(&block_sum(block)));
    assert!(Slot::stable(block_sum(block)).accepts(block), "a block matches its own checksum");
    if accepts { Outcome::Accepted } else { Outcome::Refused }
}

pub fn checksum_header_seeds() -> Vec<Vec<u8>> {
    let key = DatafileKey::new(FileId(0x1234), ObjectId { component: 0, column: 3 });
    let header = Header { sealed_end: 300, open_start: 5, open_end: 70, ..Header::new(key, 9) };
    vec![header.encode().to_vec(), header.encode()[..HEADER_BYTES - 1].to_vec()]
}

pub fn checksum_slot_seeds() -> Vec<Vec<u8>> {
    let of = |block: &[u8]| [&Slot::stable(block_sum(block)).encode()[..], block].concat();
    vec![of(b""), of(b"bytes"), of(&[7; 4096])]
}

pub fn datafile_name_seeds() -> Vec<Vec<u8>> {
    let seed = |file, component, column| {
        let key = DatafileKey::new(FileId(file), ObjectId { component, column });
        let name = key.name();
        let last = name.rsplit('/').next().expect("a last component");
        [&[key.fan()], last.as_bytes()].concat()
    };
    vec![seed(1, 0, 0), seed(u64::MAX, 65_535, 65_535), seed(0x1234_5678_9abc, 1, 12)]
}
