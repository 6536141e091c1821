//! Message headers.

use crate::Outcome;
use weft_env::Processor;
use weft_wire::{Family, HEADER_LEN, Header, Kind, Malformed};

pub fn header(data: &[u8]) -> Outcome {
    let mut bytes = [0; HEADER_LEN];
    let len = data.len().min(HEADER_LEN);
    bytes[..len].copy_from_slice(&data[..len]);
    let as_given = check(&bytes);
    // Also test behind the checksum, because a malicious peer computes valid checksums.
    bytes[..4].copy_from_slice(b"WEFT");
    bytes[4] = weft_wire::Level::LATEST.0;
    reseal(&mut bytes);
    let resealed = check(&bytes);
    if as_given == Outcome::Accepted { as_given } else { resealed }
}

/// Corrects a header's checksum.
pub fn reseal(bytes: &mut [u8; HEADER_LEN]) {
    let crc = crc32fast::hash(&bytes[..44]);
    bytes[44..].copy_from_slice(&crc.to_le_bytes());
}

fn check(bytes: &[u8; HEADER_LEN]) -> Outcome {
    let decoded = Header::decode(bytes);
    match &decoded {
        Ok(header) => {
            assert_eq!(&header.encode(), bytes, "the encoding is unique");
            assert!(header.body_len <= weft_wire::header::BODY_LEN_MAX);
            assert!(header.payload_len <= weft_wire::data::PAYLOAD_LEN_MAX);
            assert!(header.attachments <= weft_wire::header::ATTACHMENTS_MAX);
            let bit = (bytes[44] as usize * 256 + bytes[45] as usize) % (HEADER_LEN * 8);
            let mut damaged = *bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&damaged).is_err(), "the flipped bit {bit} was not detected");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    Outcome::of(&decoded)
}

pub fn seeds() -> Vec<Vec<u8>> {
    let header = Header {
        level: weft_wire::Level::LATEST,
        kind: Kind::Request,
        family: Family::Data,
        request: 7,
        body_len: 60,
        body_crc: 0x1234_5678,
        payload_len: 65_536,
        payload_check: Some(0x1122_3344_5566_7788),
        is_sealed: false,
        attachments: 0,
        waits_on: Some(Processor(3)),
        map_version: 0x0102_0304,
    };
    let plain = Header {
        kind: Kind::Reply,
        payload_check: None,
        attachments: 2,
        family: Family::Meta,
        waits_on: None,
        ..header
    };
    let one_way = Header { kind: Kind::OneWay, payload_len: 0, family: Family::Hello, ..plain };
    let sealed = Header { is_sealed: true, payload_len: 9, ..one_way };
    let bad = |at: usize, value: u8| {
        let mut bytes = header.encode();
        bytes[at] = value;
        reseal(&mut bytes);
        bytes.to_vec()
    };
    let mut seeds: Vec<_> = [header, plain, one_way, Header { body_crc: 0, ..sealed }]
        .iter()
        .map(|header| header.encode().to_vec())
        .collect();
    seeds.extend([
        bad(5, 3),
        bad(6, 9),
        bad(7, 3),
        bad(7, 4),
        bad(32, 9),
        bad(35, 1),
        bad(19, 255),
        bad(23, 255),
    ]);
    assert_eq!(Header::decode(seeds[4][..].try_into().expect("48 bytes")), Err(Malformed::Field("kind")));
    seeds
}
