//! The journal over bytes in memory, for fuzzing what a start reads.

pub use super::identity::{BadIdentity, Identity, LEN as IDENTITY_LEN};

use super::checkpoint;
use super::frame::{self, FrameKey, Kind};
use super::map::{Label, Map};
use super::piece::{Place, State};
use super::record::{Put, Record};
use super::replay;
use super::segments::Segments;
use crate::datafile::DatafileKey;
use std::collections::BTreeSet;
use weft_core::ibridge::Class;
use weft_core::ranges::ByteRange;
use weft_core::{FileId, ObjectId, Timestamp};

const KEY: FrameKey = FrameKey(0);
const SEGMENTS: u32 = 16;
const SEGMENT_LEN: u32 = 64 << 10;

/// A range of a datafile, what it is, and where: segment and position, zero for what is lost.
pub type Row = (DatafileKey, ByteRange, String, (u32, u32));

/// What a start makes of a journal: its last frame, and the mapping.
///
/// # Errors
/// Of what is no journal.
pub fn read(journal: &[u8]) -> Result<(u64, Vec<Row>), &'static str> {
    let scan = replay::scan(journal, KEY).ok_or("no whole checkpoint")?;
    replay::later(journal, scan.end, KEY);
    let map = replayed(journal, &scan)?;
    Ok((scan.last, rows(&map)))
}

/// A checkpoint of what [`read`] finds, which reads the same.
///
/// # Errors
/// As [`read`].
pub fn again(journal: &[u8]) -> Result<Vec<u8>, &'static str> {
    let scan = replay::scan(journal, KEY).ok_or("no whole checkpoint")?;
    let map = replayed(journal, &scan)?;
    Ok(checkpoint::checkpoint_of(&map.picture(), scan.boot, scan.last, KEY).concat())
}

fn replayed(journal: &[u8], scan: &replay::Scan) -> Result<Map, &'static str> {
    let mut map = Map::new(Segments::new(SEGMENTS, SEGMENT_LEN));
    replay::replay(journal, scan, KEY, &BTreeSet::new(), &mut map)?;
    map.verify();
    Ok(map)
}

/// Entries that lie side by side are one row, whether they were joined or not.
fn rows(map: &Map) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let entries = map.keys_from(None).flat_map(|(key, _)| map.overlapping(key, ByteRange::ALL));
    for it in entries {
        let what = format!("{:?} {:?}", it.label.class, it.label.state);
        let is_lost = it.label.state == State::Lost;
        let place = if is_lost { (0, 0) } else { (it.place.segment, it.place.position) };
        if let Some((key, extent, before, at)) = rows.last_mut()
            && (*key, extent.end()) == (it.key, it.extent.start())
            && *before == what
            && (is_lost || place == (at.0, at.1 + extent.len() as u32))
        {
            *extent = ByteRange::new(extent.start(), it.extent.end()).expect("bytes");
        } else {
            rows.push((it.key, it.extent, what, place));
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

/// Journals that hold.
pub fn samples() -> Vec<Vec<u8>> {
    let key = |file| DatafileKey::new(FileId(file), ObjectId { component: 0, column: 1 });
    let range = |start, len| ByteRange::with_len(start, len).expect("bytes");
    let put = |file, start, len, position, state| {
        let label = Label { class: Class::Fragment, state, gain: 5, puts: 1, is_used: false };
        let place = Place { segment: 1, position };
        let mtime = Timestamp::from_parts(7, 8);
        Record::Put(Put {
            key: key(file),
            extent: range(start, len),
            label,
            mtime,
            place,
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
        add(3, &[Record::Forget(key(1), range(200, 300)), Record::Cut(key(2), 1024)]),
        add(4, &[Record::GiveUp(key(1), range(0, 10)), Record::Free { segment: 1, generation: 1 }]),
        add(5, &[Record::Remove(key(2)), Record::End]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_and_written_again() {
        for (sample, frames) in samples().into_iter().zip(1..) {
            let (last, rows) = read(&sample).expect("good");
            assert_eq!(last, frames);
            let copy = again(&sample).expect("good");
            assert_eq!(read(&copy), Ok((last, rows)));
            // A torn end: the last frame is not there.
            let (before, _) = read(&sample[..sample.len() - 1]).expect("a torn end is no error");
            assert_eq!(before, frames - 1);
        }
        assert_eq!(read(&[]), Err("no whole checkpoint"));
    }

    #[test]
    fn what_a_freed_segment_had_alone_is_still_there_or_lost_and_never_forgotten() {
        // Nothing was put into a segment since that was freed behind the last seal.
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
