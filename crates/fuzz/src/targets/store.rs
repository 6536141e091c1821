//! What lies on a server's devices.

use crate::Outcome;
use crate::alloc::bounded;
use weft_core::{FileId, ObjectId, TargetId};
use weft_store::datafile::DatafileKey;
use weft_store::identity::{Identity, LEN};

pub fn target_identity(data: &[u8]) -> Outcome {
    let as_given = identity(data);
    // Past magic, version and checksum.
    let mut bytes = data.to_vec();
    bytes.resize(LEN, 0);
    bytes[..12].copy_from_slice(b"WEFTTGT\n\x01\0\0\0");
    let crc = crc32fast::hash(&bytes[..32]);
    bytes[32..].copy_from_slice(&crc.to_le_bytes());
    identity(&bytes);
    as_given
}

fn identity(data: &[u8]) -> Outcome {
    let decoded = bounded(data.len(), 0, 0, || Identity::decode(data));
    if let Ok(identity) = &decoded {
        assert_eq!(identity.encode(), data, "there is one way to write an identity");
        let bit = data[32] as usize % (LEN * 8);
        let mut damaged = data.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Identity::decode(&damaged).is_err(), "bit {bit} flipped and not noticed");
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
    vec![good, short]
}

pub fn datafile_name_seeds() -> Vec<Vec<u8>> {
    let seed = |file, component, column| {
        let key = DatafileKey::new(FileId(file), ObjectId { component, column });
        let name = key.name();
        let last = name.rsplit('/').next().expect("a last part");
        [&[key.fan()], last.as_bytes()].concat()
    };
    vec![seed(1, 0, 0), seed(u64::MAX, 65_535, 65_535), seed(0x1234_5678_9abc, 1, 12)]
}
