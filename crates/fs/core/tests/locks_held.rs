//! Held locks against the per-byte model: conflicts, conversion, splitting, merging, testing, releasing.
#[path = "support/locks.rs"]
mod support;

use proptest::prelude::*;
use support::{Model, OWNERS, modes, ranges};
use weft_core::ByteRange;
use weft_core::locks::{Acquire, LockLimits, LockMode, LockTable, LockTableFull, Wait};

#[derive(Clone, Debug)]
enum Op {
    Lock(usize, ByteRange, LockMode),
    Unlock(usize, ByteRange),
    Test(usize, ByteRange, LockMode),
    Release(usize),
    RemoveOwner(usize),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let owner = 0..OWNERS;
    let op = prop_oneof![
        6 => (owner.clone(), ranges(), modes()).prop_map(|(o, r, m)| Op::Lock(o, r, m)),
        3 => (owner.clone(), ranges()).prop_map(|(o, r)| Op::Unlock(o, r)),
        2 => (owner.clone(), ranges(), modes()).prop_map(|(o, r, m)| Op::Test(o, r, m)),
        1 => owner.clone().prop_map(Op::Release),
        1 => owner.prop_map(Op::RemoveOwner),
    ];
    prop::collection::vec(op, 1..60)
}

const FILE: &str = "file";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_table_matches_the_model(ops in ops()) {
        let mut table = LockTable::default();
        let mut model = Model::default();
        for op in ops {
            match op {
                Op::Lock(owner, range, mode) => {
                    let blockers = model.blockers(owner, range, mode);
                    match table.acquire(FILE, owner, range, mode, Wait::No) {
                        Acquire::Granted => {
                            prop_assert_eq!(blockers, []);
                            model.set(owner, range, Some(mode));
                        }
                        Acquire::Busy(lock) => prop_assert!(blockers.contains(&lock.owner)),
                        other => prop_assert!(false, "{:?} without waiting", other),
                    }
                }
                Op::Unlock(owner, range) => {
                    prop_assert_eq!(table.unlock(&FILE, &owner, range), Ok(false));
                    model.set(owner, range, None);
                }
                Op::Test(owner, range, mode) => {
                    let expected = model
                        .locks()
                        .into_iter()
                        .filter(|lock| {
                            lock.owner != owner && lock.range.overlaps(range) && lock.mode.conflicts(mode)
                        })
                        .min_by_key(|lock| lock.range.start());
                    let found = table.test(&FILE, &owner, range, mode);
                    prop_assert_eq!(found.map(|l| l.range.start()), expected.map(|l| l.range.start()));
                    // Any of several that begin at the same byte is valid.
                    prop_assert!(found.is_none_or(|lock| model.locks().contains(&lock) && lock.owner != owner));
                }
                Op::Release(owner) => {
                    table.release(&FILE, &owner);
                    model.set(owner, ByteRange::ALL, None);
                }
                Op::RemoveOwner(owner) => {
                    prop_assert_eq!(table.remove_owner(&owner), Vec::<&str>::new());
                    model.set(owner, ByteRange::ALL, None);
                }
            }
            let mut held: Vec<_> = table.locks(&FILE).collect();
            held.sort();
            prop_assert_eq!(held, model.locks());
            prop_assert_eq!(table.is_empty(), model.locks().is_empty(), "files without locks are dropped");
        }
    }

    /// The number of ranges never exceeds the limit, and rejected requests change nothing.
    #[test]
    fn limits_hold(ops in ops(), max in 3usize..8) {
        let mut table = LockTable::new(LockLimits { ranges_per_file_max: max, tickets_max: 1 });
        for op in ops {
            let before: Vec<_> = table.locks(&FILE).collect();
            let refused = match op {
                Op::Lock(owner, range, mode) => {
                    table.acquire(FILE, owner, range, mode, Wait::No) == Acquire::Full
                }
                Op::Unlock(owner, range) => table.unlock(&FILE, &owner, range) == Err(LockTableFull),
                _ => false,
            };
            let after: Vec<_> = table.locks(&FILE).collect();
            prop_assert!(after.len() <= max);
            if refused {
                prop_assert_eq!(before, after);
            }
        }
    }
}

#[test]
fn locks_of_different_files_are_independent() {
    let mut table = LockTable::default();
    for file in ["a", "b"] {
        let owner = file.len() + usize::from(file == "b");
        let got = table.acquire(file, owner, ByteRange::ALL, LockMode::Exclusive, Wait::No);
        assert_eq!(got, Acquire::Granted);
    }
    table.remove_file(&"a");
    assert_eq!(table.locks(&"a").count(), 0);
    assert_eq!(table.locks(&"b").count(), 1);
}

#[test]
fn unlocking_the_middle_fails_at_the_range_limit() {
    let mut table = LockTable::new(LockLimits { ranges_per_file_max: 2, tickets_max: 1 });
    let range = |a, b| ByteRange::new(a, b).unwrap();
    assert_eq!(table.acquire(0, 'a', range(0, 10), LockMode::Exclusive, Wait::No), Acquire::Granted);
    assert_eq!(table.unlock(&0, &'a', range(2, 3)), Ok(false));
    assert_eq!(table.unlock(&0, &'a', range(5, 6)), Err(LockTableFull));
    assert_eq!(table.unlock(&0, &'a', range(5, 10)), Ok(false), "unlocking an end needs no additional range");
    assert_eq!(table.acquire(0, 'b', range(20, 30), LockMode::Shared, Wait::No), Acquire::Full);
    assert_eq!(table.locks(&0).count(), 2);
}
