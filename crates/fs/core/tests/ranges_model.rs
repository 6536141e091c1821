//! Range sets against one flag per byte.

use proptest::prelude::*;
use weft_core::ranges::RangeError;
use weft_core::{ByteRange, RangeSet};

const BYTES: u64 = 48;

#[derive(Clone, Debug)]
enum Op {
    Insert(ByteRange),
    Remove(ByteRange),
}

fn ranges() -> impl Strategy<Value = ByteRange> {
    (0..BYTES, 1..=BYTES).prop_filter_map("empty", |(a, len)| ByteRange::new(a, (a + len.min(12)).min(BYTES)))
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = (any::<bool>(), ranges())
        .prop_map(|(insert, range)| if insert { Op::Insert(range) } else { Op::Remove(range) });
    prop::collection::vec(op, 1..40)
}

/// Returns the maximal ranges of bytes within `range` for which `f` holds.
fn runs(range: ByteRange, f: impl Fn(u64) -> bool) -> Vec<ByteRange> {
    let mut found: Vec<ByteRange> = Vec::new();
    for byte in range.start()..range.end() {
        if !f(byte) {
            continue;
        }
        match found.last_mut() {
            Some(last) if last.end() == byte => *last = ByteRange::new(last.start(), byte + 1).unwrap(),
            _ => found.extend(ByteRange::new(byte, byte + 1)),
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn sets_match_the_model(ops in ops(), probe in ranges()) {
        let (mut set, mut model) = (RangeSet::new(), [false; BYTES as usize]);
        let all = ByteRange::new(0, BYTES).unwrap();
        for op in ops {
            let (changed_bytes, range, value) = match op {
                Op::Insert(range) => (set.insert(range), range, true),
                Op::Remove(range) => (set.remove(range), range, false),
            };
            let bytes = &mut model[range.start() as usize..range.end() as usize];
            prop_assert_eq!(changed_bytes, bytes.iter().filter(|&&b| b != value).count() as u64);
            bytes.fill(value);
            let has = |byte: u64| model[byte as usize];
            let expected = runs(all, has);
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), &expected[..]);
            prop_assert_eq!(set.count(), expected.len());
            prop_assert_eq!(set.bytes(), model.iter().filter(|&&b| b).count() as u64);
            prop_assert_eq!(set.is_empty(), expected.is_empty());
            let touched: Vec<_> = expected.iter().copied().filter(|r| r.overlaps(probe)).collect();
            prop_assert_eq!(set.overlapping(probe).collect::<Vec<_>>(), &touched[..]);
            prop_assert_eq!(set.overlaps(probe), (probe.start()..probe.end()).any(has));
            prop_assert_eq!(set.contains(probe), (probe.start()..probe.end()).all(has));
            let next = runs(ByteRange::new(probe.start(), BYTES).unwrap(), has).first().copied();
            prop_assert_eq!(set.next_from(probe.start()), next);
            prop_assert_eq!(set.gaps(probe).collect::<Vec<_>>(), runs(probe, |byte| !has(byte)));
            prop_assert_eq!(&expected.into_iter().rev().collect::<RangeSet>(), &set);
        }
    }
}

#[test]
fn ranges_at_the_maximum_offset() {
    let mut set = RangeSet::new();
    set.insert(ByteRange::ALL);
    set.remove(ByteRange::new(u64::MAX - 1, u64::MAX).unwrap());
    set.remove(ByteRange::new(0, 1).unwrap());
    assert_eq!(set.iter().collect::<Vec<_>>(), [ByteRange::new(1, u64::MAX - 1).unwrap()]);
    set.insert(ByteRange::from(7).unwrap());
    assert_eq!(set.bytes(), u64::MAX - 1);
    assert_eq!(ByteRange::from(u64::MAX), None);
    assert_eq!(ByteRange::with_len(u64::MAX - 3, 9), ByteRange::new(u64::MAX - 3, u64::MAX));
    assert_eq!(ByteRange::with_len(5, 0), None);
}

#[test]
fn empty_ranges_do_not_decode() {
    let bytes = postcard::to_allocvec(&(5u64, 5u64)).unwrap();
    assert!(postcard::from_bytes::<ByteRange>(&bytes).is_err());
    let range = ByteRange::new(5, 6).unwrap();
    let bytes = postcard::to_allocvec(&range).unwrap();
    assert_eq!(postcard::from_bytes::<ByteRange>(&bytes).unwrap(), range);
}

#[test]
fn struct_flock_round_trips() {
    const MAX: i64 = i64::MAX;
    let range = |start, end| Ok(ByteRange::new(start, end).unwrap());
    let table = [
        ((0, 0), Ok(ByteRange::ALL)),
        ((10, 5), range(10, 15)),
        ((10, -4), range(6, 10)),
        ((10, -10), range(0, 10)),
        ((10, -11), Err(RangeError::Invalid)),
        ((0, -1), Err(RangeError::Invalid)),
        ((-1, 0), Err(RangeError::Invalid)),
        ((i64::MIN, -1), Err(RangeError::Invalid)),
        ((5, i64::MIN), Err(RangeError::Invalid)),
        ((MAX, 0), range(MAX as u64, u64::MAX)),
        ((MAX, 1), range(MAX as u64, u64::MAX)),
        ((MAX, 2), Err(RangeError::Overflow)),
        ((7, MAX - 6), range(7, u64::MAX)),
        ((6, MAX - 6), range(6, MAX as u64)),
    ];
    for ((start, len), expected) in table {
        let found = ByteRange::from_posix(start, len);
        assert_eq!(found, expected, "l_start {start}, l_len {len}");
        if let Ok(range) = found {
            let (start, len) = range.to_posix();
            assert_eq!(ByteRange::from_posix(start, len), Ok(range));
        }
    }
    assert_eq!(ByteRange::from_inclusive(3, 3), range(3, 4));
    assert_eq!(ByteRange::from_inclusive(3, 2), Err(RangeError::Invalid));
    assert_eq!(ByteRange::from_inclusive(0, MAX), Ok(ByteRange::ALL));
}
