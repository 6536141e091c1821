//! Decodes and replays a journal held in memory, for fuzzing.

pub use super::identity::{BadIdentity, Identity, LEN as IDENTITY_LEN, VERSION};

use super::checkpoint;
use super::frame::{self, FrameKey, Kind};
use super::map::{Label, Map};
use super::piece::{Location, State};
use super::record::{Put, Record};
use super::replay;
use super::segments::Segments;
use crate::datafile::DatafileKey;
use std::collections::BTreeSet;
use weft_core::DataClass;
use weft_core::ranges::ByteRange;
use weft_core::{FileId, ObjectId, Timestamp};

const KEY: FrameKey = FrameKey(0);
const SEGMENTS: u32 = 16;
const SEGMENT_LEN: u32 = 64 << 10;

/// A range of a datafile, its class and state, and its segment and position (zero for lost bytes).
pub type Row = (DatafileKey, ByteRange, String, (u32, u32));

/// Replays a journal as a start does. Returns the number of its last frame, and the mapping.
///
/// # Errors
/// When the journal is invalid.
pub fn read(journal: &[u8]) -> Result<(u64, Vec<Row>), &'static str> {
    let scan = replay::scan(journal, KEY).ok_or("no complete checkpoint")?;
    replay::later(journal, scan.end, KEY);
    let map = replayed(journal, &scan)?;
    Ok((scan.last, rows(&map)))
}

/// Encodes a checkpoint of the mapping that [`read`] returns; reading it returns the same mapping.
///
/// # Errors
/// As for [`read`].
pub fn reencode(journal: &[u8]) -> Result<Vec<u8>, &'static str> {
    let scan = replay::scan(journal, KEY).ok_or("no complete checkpoint")?;
    let map = replayed(journal, &scan)?;
    Ok(checkpoint::checkpoint_of(&map.snapshot(), scan.boot, scan.last, KEY).concat())
}

fn replayed(journal: &[u8], scan: &replay::Scan) -> Result<Map, &'static str> {
    let mut map = Map::new(Segments::new(SEGMENTS, SEGMENT_LEN));
    replay::replay(journal, scan, KEY, &BTreeSet::new(), &mut map)?;
    map.verify();
    Ok(map)
}

/// Merges adjacent entries into one row, whether or not the mapping joined them.
fn rows(map: &Map) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let entries = map.keys_from(None).flat_map(|(key, _)| map.overlapping(key, ByteRange::ALL));
    for it in entries {
        let what = format!("{:?} {:?}", it.label.class, it.label.state);
        let is_lost = it.label.state == State::Lost;
        let location = if is_lost { (0, 0) } else { (it.location.segment, it.location.position) };
        if let Some((key, extent, before, at)) = rows.last_mut()
            && (*key, extent.end()) == (it.key, it.extent.start())
            && *before == what
            && (is_lost || location == (at.0, at.1 + extent.len() as u32))
        {
            *extent = ByteRange::new(extent.start(), it.extent.end()).expect("bytes");
        } else {
            rows.push((it.key, it.extent, what, location));
        }
    }
    rows
}

fn add(journal: &mut Vec<u8>, number: u64, records: &[Record]) {
    let mut frame = Vec::new();
    frame::start(&mut frame);
    records.iter().for_each(|record| record.encode(&mut frame));
    frame::finish(&mut frame, Kind::Changes, number, number - 1, KEY);
    journal.extend_from_slice(&frame);
}

/// Returns valid journals.
pub fn samples() -> Vec<Vec<u8>> {
    let key = |file| DatafileKey::new(FileId(file), ObjectId { component: 0, column: 1 });
    let range = |start, len| ByteRange::with_len(start, len).expect("bytes");
    let put = |file, start, len, position, state| {
        // One datafile for each class.
        let class = DataClass::ALL[file as usize % DataClass::COUNT];
        let label = Label { class, state, gain: 5, puts: 1, is_used: false };
        let location = Location { segment: 1, position };
        let mtime = Timestamp::from_parts(7, 8);
        Record::Put(Put {
            key: key(file),
            extent: range(start, len),
            label,
            mtime,
            location,
            generation: 0,
            check: 9,
        })
    };
    let mut journal = checkpoint::empty_checkpoint(3, KEY);
    let mut add = |number, records: &[Record]| {
        add(&mut journal, number, records);
        journal.clone()
    };
    vec![
        add(1, &[put(1, 0, 1000, 0, State::Dirty), put(1, 1000, 500, 1000, State::Dirty)]),
        add(
            2,
            &[put(2, 0, 4096, 4096, State::Copy), Record::Clean(key(1), range(100, 300)), Record::Sealed(1)],
        ),
        add(3, &[Record::Forget(key(1), range(200, 300)), Record::Truncate(key(2), 1024)]),
        add(4, &[Record::Abandon(key(1), range(0, 10)), Record::Free { segment: 1, generation: 1 }]),
        add(5, &[Record::Remove(key(2)), Record::End]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_round_trip() {
        for (sample, frames) in samples().into_iter().zip(1..) {
            let (last, rows) = read(&sample).expect("good");
            assert_eq!(last, frames);
            let copy = reencode(&sample).expect("good");
            assert_eq!(read(&copy), Ok((last, rows)));
            // A torn end loses only the last frame.
            let (before, _) = read(&sample[..sample.len() - 1]).expect("a torn end is not an error");
            assert_eq!(before, frames - 1);
        }
        assert_eq!(read(&[]), Err("no complete checkpoint"));
    }

    #[test]
    fn dirty_bytes_of_a_freed_segment_stay_dirty_or_become_lost() {
        // The `Free` record is not sealed, so the segment has not been reused since.
        let (_, rows) = read(&samples()[3]).expect("good");
        assert!(rows.iter().any(|(_, _, what, _)| what.contains("Dirty")), "{rows:?}");
        assert!(
            rows.iter().all(|(_, _, what, _)| !what.contains("Clean") && !what.contains("Copy")),
            "{rows:?}"
        );
        let mut sealed = samples()[3].clone();
        add(&mut sealed, 5, &[Record::Sealed(4)]);
        let (_, rows) = read(&sealed).expect("good");
        assert!(!rows.is_empty() && rows.iter().all(|(_, _, what, _)| what.contains("Lost")), "{rows:?}");
    }
}
