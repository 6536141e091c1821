//! Files in the directory of a fragment log.

use crate::Outcome;
use crate::alloc::bounded;
use crate::rng::Rng;
use weft_core::TargetId;
use weft_store::fragments::journal_bytes::{IDENTITY_LEN, Identity, VERSION, read, reencode, samples};

const HEADER_LEN: usize = 32;

pub fn fragments_journal(data: &[u8]) -> Outcome {
    let as_given = check_journal(data);
    let mut sealed = data.to_vec();
    reseal(&mut sealed, &mut Rng::new(crc32fast::hash(data).into()));
    check_journal(&sealed);
    as_given
}

fn check_journal(journal: &[u8]) -> Outcome {
    // The limit covers an entry here for each row. A record of 29 bytes can split an entry in two. The tables of the
    // mapping grow in pages.
    let Ok((last, rows)) = bounded(journal.len(), 64, 256 << 10, || read(journal)) else {
        return Outcome::Refused;
    };
    assert!(rows.windows(2).all(|two| two[0].0 != two[1].0 || two[0].1.end() <= two[1].1.start()));
    let copy = reencode(journal).expect("the journal was read before");
    assert_eq!(read(&copy).expect("a valid checkpoint"), (last, rows));
    Outcome::Accepted
}

/// Turns arbitrary bytes into frames with valid checksums.
fn reseal(journal: &mut [u8], rng: &mut Rng) {
    let (mut at, mut number, mut part) = (0, 0u64, 0u64);
    while journal.len() - at >= HEADER_LEN {
        let (head, rest) = journal[at..].split_first_chunk_mut::<HEADER_LEN>().expect("long enough");
        let is_checkpoint = match &head[..4] {
            b"FCKP" => true,
            b"FLOG" => false,
            _ => at == 0,
        };
        head[..4].copy_from_slice(if is_checkpoint { b"FCKP" } else { b"FLOG" });
        let len = u32::from_le_bytes(head[4..8].try_into().expect("four bytes")) as usize;
        let len = if rng.one_in(20) { len } else { len % (rest.len() + 1) };
        head[4..8].copy_from_slice(&(len as u32).to_le_bytes());
        number =
            if rng.one_in(20) { rng.next() >> rng.below(64) } else { number + u64::from(!is_checkpoint) };
        head[8..16].copy_from_slice(&number.to_le_bytes());
        if is_checkpoint && !rng.one_in(20) {
            head[16..24].copy_from_slice(&part.to_le_bytes());
            part += 1;
        }
        let body = &rest[..len.min(rest.len())];
        head[24..28].copy_from_slice(&crc32fast::hash(body).to_le_bytes());
        let len = body.len();
        let crc = crc32fast::hash(&head[..28]);
        head[28..32].copy_from_slice(&crc.to_le_bytes());
        at += HEADER_LEN + len;
    }
}

pub fn fragments_identity(data: &[u8]) -> Outcome {
    let as_given = identity(data);
    // Also test behind magic number, version and checksum.
    let mut bytes = data.to_vec();
    bytes.resize(IDENTITY_LEN, 0);
    // Either version, as the input decides.
    let version = 1 + bytes[8] % 2;
    bytes[..12].copy_from_slice(b"WEFTFRG\n\0\0\0\0");
    bytes[8] = version;
    let crc = crc32fast::hash(&bytes[..40]);
    bytes[40..].copy_from_slice(&crc.to_le_bytes());
    identity(&bytes);
    as_given
}

fn identity(data: &[u8]) -> Outcome {
    let decoded = bounded(data.len(), 0, 0, || Identity::decode_with_version(data));
    if let Ok((identity, version)) = &decoded {
        let encoded = identity.encode();
        assert_eq!(Identity::decode_with_version(&encoded), Ok((*identity, VERSION)));
        assert_eq!(encoded == data, *version == VERSION, "the encoding is unique");
        let bit = data[24] as usize % (IDENTITY_LEN * 8);
        let mut damaged = data.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Identity::decode(&damaged).is_err(), "the flipped bit {bit} was not detected");
    }
    Outcome::of(&decoded)
}

pub fn fragments_journal_seeds() -> Vec<Vec<u8>> {
    let mut seeds = samples();
    let checkpoints: Vec<_> = seeds.iter().map(|sample| reencode(sample).expect("good")).collect();
    seeds.extend(checkpoints);
    seeds
}

pub fn fragments_identity_seeds() -> Vec<Vec<u8>> {
    let (cluster, log) = (Identity::cluster_hash("physics"), 77);
    let good = Identity { target: TargetId(3), cluster, log, segments: 2560, segment_len: 4 << 20 }.encode();
    let mut first_version = good;
    first_version[8] = 1;
    let crc = crc32fast::hash(&first_version[..40]);
    first_version[40..].copy_from_slice(&crc.to_le_bytes());
    vec![good[1..].to_vec(), good.to_vec(), first_version.to_vec()]
}
