//! Files of replicas, and plans of replicas.

use crate::Outcome;
use crate::alloc::bounded;
use weft_client::replicas::{
    Identity, Phase, ReplicaInfo, decode_mapping, decode_state, encode_mapping, encode_state,
};
use weft_core::replicas::{MappedExtent, Mapping};
use weft_core::{ByteLen, Timestamp};
use weft_planner::replicas::{PlannedReplica, ReplicaFile};
use xxhash_rust::xxh3::xxh3_64;

pub const WORDS: &[&str] = &[
    "version = 1\n",
    "[[replica]]\n",
    "mapping = [",
    "\"0+10>0\",",
    "\"0/100*3 0+10>0 20+10>30\",",
    "18446744073709551615",
    "*4294967295",
    "+0>",
];

/// Replaces the hash at the end by the right one.
fn sealed(data: &[u8]) -> Vec<u8> {
    let mut bytes = data[..data.len().saturating_sub(8)].to_vec();
    let hash = xxh3_64(&bytes);
    bytes.extend(hash.to_le_bytes());
    bytes
}

fn outcome<T>(decoded: Option<&T>) -> Outcome {
    if decoded.is_some() { Outcome::Accepted } else { Outcome::Refused }
}

/// A byte has one place, and a place one byte.
fn check(mapping: &Mapping) {
    let (mut from, mut bytes) = (0, 0);
    for piece in mapping.pieces().take(10_000) {
        assert!(piece.len > 0 && piece.start >= from, "pieces are in order");
        assert!(piece.at + piece.len <= mapping.replica_len());
        assert_eq!(mapping.find(piece.start).0, Some(piece.at));
        (from, bytes) = (piece.start + piece.len, bytes + piece.len);
    }
    assert!(bytes <= mapping.bytes() && from <= mapping.file_end());
}

pub fn replica_mapping(data: &[u8]) -> Outcome {
    let as_given = check_mapping(data);
    check_mapping(&sealed(data));
    as_given
}

fn check_mapping(data: &[u8]) -> Outcome {
    let decoded = bounded(data.len(), 16, 64 << 10, || decode_mapping(data));
    if let Some(mapping) = &decoded {
        assert_eq!(encode_mapping(mapping), data, "the encoding is unique");
        check(mapping);
    }
    outcome(decoded.as_ref())
}

pub fn replica_state(data: &[u8]) -> Outcome {
    let check = |data: &[u8]| {
        let decoded = bounded(data.len(), 4, 16 << 10, || decode_state(data));
        if let Some(info) = &decoded {
            assert_eq!(encode_state(info), data, "the encoding is unique");
        }
        outcome(decoded.as_ref())
    };
    let as_given = check(data);
    check(&sealed(data));
    as_given
}

pub fn replica_plan(data: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(&data[..data.len().min(32 << 10)]);
    let decoded = bounded(text.len(), 512, 256 << 10, || ReplicaFile::of_toml(&text));
    if let Ok(file) = &decoded {
        for replica in &file.replicas {
            if let Ok(mapping) = replica.mapping() {
                check(&mapping);
            }
        }
    }
    Outcome::of(&decoded)
}

fn mapping() -> Mapping {
    let strided = (0..12).map(|n| MappedExtent { start: n * 100, len: 40, at: n % 3 * 160 + n / 3 * 40 });
    let pieces = strided.chain([MappedExtent { start: 5000, len: 77, at: 900 }]);
    Mapping::of_pieces(pieces.collect()).expect("a mapping")
}

pub fn replica_mapping_seeds() -> Vec<Vec<u8>> {
    vec![encode_mapping(&mapping()), encode_mapping(&Mapping::default())]
}

pub fn replica_state_seeds() -> Vec<Vec<u8>> {
    let original = Identity {
        inode: 77,
        size: ByteLen(1 << 20),
        mtime: Timestamp::from_parts(1_700_000_000, 5),
        ctime: Timestamp::from_parts(1_700_000_001, 6),
    };
    let info = ReplicaInfo {
        phase: Phase::Valid,
        ranks: 8,
        original,
        mapping_hash: 5,
        path: b"/scratch/field".to_vec(),
    };
    vec![encode_state(&info), encode_state(&ReplicaInfo { phase: Phase::Copying, path: Vec::new(), ..info })]
}

pub fn replica_plan_seeds() -> Vec<Vec<u8>> {
    let mut replica = PlannedReplica {
        layout: Vec::new(),
        path: "/scratch/field".to_owned(),
        ranks: 8,
        reason: "1.50 times as fast".to_owned(),
        now_s: 3.0,
        run_s: 2.0,
        copy_s: 1.0,
        mapping: Vec::new(),
    };
    replica.set_mapping(&mapping());
    let file = ReplicaFile { replicas: vec![replica], ..ReplicaFile::new("app.wtrace", "best") };
    vec![file.to_toml().into_bytes(), ReplicaFile::new("app.wtrace", "off").to_toml().into_bytes()]
}
