//! Model test: the mapping against an array of bytes.

use super::{Label, Map, MapSnapshot};
use crate::datafile::DatafileKey;
use crate::fragments::piece::{Location, State};
use crate::fragments::segments::Segments;
use weft_core::DataClass;
use weft_core::ranges::ByteRange;
use weft_core::{FileId, ObjectId, Timestamp};
use weft_env::sim::Rng;

const FILES: u64 = 3;
const LEN: u64 = 200;
const SEGMENTS: u32 = 8;
const SEGMENT_LEN: u32 = 64 << 10;

/// Location, state and class of a byte; `None` if unmapped.
type Byte = Option<(Location, State, DataClass)>;

fn key(file: u64) -> DatafileKey {
    DatafileKey::new(FileId(file), ObjectId { component: 0, column: 0 })
}

fn found(map: &Map, file: u64) -> Vec<Byte> {
    let mut bytes = vec![None; LEN as usize];
    for it in map.overlapping(key(file), ByteRange::ALL) {
        for at in it.extent.start()..it.extent.end() {
            let position = it.location.position + (at - it.extent.start()) as u32;
            let location = Location { position, ..it.location };
            assert!(bytes[at as usize].replace((location, it.label.state, it.label.class)).is_none());
        }
    }
    bytes
}

type Row = (DatafileKey, Timestamp, ByteRange, Location, Label);

fn rows(snapshot: &MapSnapshot) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut files = 0;
    snapshot.for_each_datafile(|file| {
        files += 1;
        rows.extend(
            file.entries().map(|(extent, location, label)| (file.key, file.mtime, extent, location, label)),
        );
    });
    assert_eq!((files, rows.len() as u64), (snapshot.files_count(), snapshot.entries_count()));
    rows
}

fn live_rows(map: &Map) -> Vec<Row> {
    let of = |(key, mtime)| {
        map.overlapping(key, ByteRange::ALL).map(move |it| (key, mtime, it.extent, it.location, it.label))
    };
    map.keys_from(None).flat_map(of).collect()
}

#[test]
fn mapping_matches_a_byte_array_model() {
    for seed in 0..30 {
        let mut rng = Rng::new(seed);
        let mut map = Map::new(Segments::new(SEGMENTS, SEGMENT_LEN));
        let mut model = vec![vec![None; LEN as usize]; FILES as usize];
        let mut fill = 0;
        let mut taken = None;
        for step in 0..400 {
            let file = rng.below(FILES);
            let start = rng.below(LEN);
            let extent = ByteRange::with_len(start, 1 + rng.below((LEN - start).min(40))).expect("bytes");
            let inside = extent.start() as usize..extent.end().min(LEN) as usize;
            let extent = ByteRange::new(extent.start(), inside.end as u64).expect("bytes");
            let bytes: &mut Vec<Byte> = &mut model[file as usize];
            let class = DataClass::ALL[rng.below(3) as usize];
            match rng.below(9) {
                pick @ 0..5 => {
                    let state =
                        [State::Dirty, State::Dirty, State::Dirty, State::Clean, State::Copy][pick as usize];
                    let label = Label { class, state, gain: rng.below(99) as i32, puts: 1, is_used: false };
                    let location =
                        Location { segment: fill / SEGMENT_LEN % SEGMENTS, position: fill % SEGMENT_LEN / 2 };
                    fill += extent.len() as u32;
                    for (at, byte) in inside.enumerate() {
                        let only_here = matches!(bytes[byte], Some((_, State::Dirty, _)));
                        if state == State::Dirty || !only_here {
                            let position = location.position + at as u32;
                            bytes[byte] = Some((Location { position, ..location }, state, class));
                        }
                    }
                    match state {
                        State::Dirty => map.insert(key(file), extent, location, label, Timestamp(step)),
                        _ => map.insert_below_dirty(key(file), extent, location, label, Timestamp(step)),
                    }
                }
                5 => {
                    let all = rng.below(2) == 0;
                    let goes = |state| all || state != State::Dirty;
                    let removed = map.remove(key(file), extent, goes);
                    let mut count = 0;
                    for byte in &mut bytes[inside] {
                        if byte.is_some_and(|(_, state, _)| goes(state)) {
                            *byte = None;
                            count += 1;
                        }
                    }
                    assert_eq!(removed, count);
                }
                6 => {
                    map.clean(key(file), extent);
                    for (_, state, _) in bytes[inside].iter_mut().flatten() {
                        if matches!(state, State::Dirty | State::Copy) {
                            *state = State::Clean;
                        }
                    }
                }
                7 => {
                    let used: Vec<u32> = map.overlapping(key(file), extent).map(|it| it.id).collect();
                    used.iter().for_each(|&id| map.touch(id));
                    for class in DataClass::ALL {
                        let spare: Vec<u32> = map.evictable(class).map(|it| it.id).collect();
                        let count = spare.iter().filter(|id| used.contains(id)).count();
                        let last = &spare[spare.len() - count..];
                        assert!(last.iter().all(|id| used.contains(id)), "used entries are evicted last");
                    }
                }
                _ => {
                    let parts: Vec<_> = map.overlapping(key(file), extent).collect();
                    for it in parts {
                        assert_eq!(map.parts_at(key(file), it.extent, it.location), [(it.extent, it.label)]);
                        let elsewhere =
                            Location { segment: (it.location.segment + 1) % SEGMENTS, ..it.location };
                        assert_eq!(map.parts_at(key(file), it.extent, elsewhere), []);
                    }
                }
            }
            map.verify();
            assert_eq!(found(&map, file), model[file as usize], "seed {seed} step {step}");
            let now = rows(&map.snapshot());
            assert_eq!(now, live_rows(&map), "seed {seed} step {step}");
            if let Some((snapshot, then)) = &taken {
                assert_eq!(&rows(snapshot), then, "seed {seed} step {step}: a snapshot does not change");
            }
            if rng.below(20) == 0 {
                taken = (rng.below(3) > 0).then(|| (map.snapshot(), now));
            }
        }
        assert!(map.len() > 20);
        // Reuse of a segment makes its dirty bytes lost.
        for segment in 0..SEGMENTS {
            map.empty_segment(segment);
        }
        map.verify();
        assert_eq!((map.bytes(), map.segments.get(0).live), (0, 0));
        let dirty = model.iter().flatten().flatten().filter(|(_, state, _)| *state == State::Dirty).count();
        assert_eq!(map.lost, dirty as u64);
    }
}
