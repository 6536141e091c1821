//! Shared helpers for tests of the fragment log.

use std::ops::Range;
use std::path::{Path, PathBuf};
use weft_core::DataClass;
use weft_core::ranges::ByteRange;
use weft_core::{ByteLen, FileId, LocalOffset, ObjectId, TargetId, Timestamp};
use weft_env::Env;
use weft_env::sim::{Sim, SimEnv, SimpleDisk};
use weft_store::datafile::DatafileKey;
use weft_store::fragments::{FragmentLog, LogSpec, Tag};

pub const SEGMENT_LEN: u64 = 64 << 10;

/// A machine with a disk for the log and one for the target.
pub fn node(sim: &Sim) -> SimEnv {
    let node = sim.node("data");
    for path in ["/ssd", "/hdd"] {
        sim.add_disk(&node, Path::new(path), Box::new(SimpleDisk::default()));
    }
    node
}

/// Runs a test on the machine of a new simulation.
pub fn simulate<F: Future<Output = ()>>(seed: u64, test: impl FnOnce(SimEnv) -> F) {
    let mut sim = Sim::with_seed(seed);
    let node = node(&sim);
    sim.block_on(&node, test(node.clone()));
}

pub fn spec_of(segments: u64) -> LogSpec {
    LogSpec {
        path: PathBuf::from("/ssd"),
        target: TargetId(3),
        cluster: "test".to_owned(),
        target_path: PathBuf::from("/hdd"),
        size: ByteLen(segments * SEGMENT_LEN),
        segment_len: ByteLen(SEGMENT_LEN),
        entry_len: LogSpec::ENTRY_LEN,
        must_exist: false,
        emulate: None,
    }
}

pub fn spec() -> LogSpec {
    spec_of(16)
}

pub fn key(file: u64) -> DatafileKey {
    DatafileKey::new(FileId(file), ObjectId { component: 0, column: 1 })
}

pub fn at(offset: u64) -> LocalOffset {
    LocalOffset(offset)
}

pub fn dirty(second: i64) -> Tag {
    Tag { class: DataClass::FRAGMENT, gain: 1_000_000, dirty: true, mtime: Timestamp::from_parts(second, 0) }
}

pub fn copy() -> Tag {
    Tag { dirty: false, ..dirty(0) }
}

pub fn range(start: u64, end: u64) -> ByteRange {
    ByteRange::new(start, end).expect("bytes")
}

/// Returns the log's bytes of a range, or `None` for each byte that it does not have.
pub async fn bytes_of<E: Env>(log: &FragmentLog<E>, key: DatafileKey, of: Range<u64>) -> Vec<Option<u8>> {
    let mut found = vec![None; (of.end - of.start) as usize];
    for piece in log.find(key, range(of.start, of.end)) {
        let extent = piece.extent();
        let mut bytes = vec![0; extent.len() as usize];
        log.read(&piece, &mut bytes).await.expect("readable");
        for (place, byte) in found[(extent.start() - of.start) as usize..].iter_mut().zip(bytes) {
            assert!(place.is_none(), "pieces are disjoint");
            *place = Some(byte);
        }
    }
    found
}
