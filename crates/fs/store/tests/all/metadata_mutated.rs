//! A metadata database of which one file was cut, zeroed, exchanged or replaced by an older copy: it starts with all
//! acknowledged changes, or it is refused with a remedy. Nothing is missing silently.

use crate::metadata_damage::{FILES, Lcg, open};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use weft_env::real::{RealEnv, block_on};
use weft_store::metadata::{Engine, EngineError, Journal, Snapshot, Table, Transaction, seal};

/// Bytes of the files of a database.
type Files = BTreeMap<&'static str, Vec<u8>>;

const ROWS: u32 = 40;

fn files_of(path: &Path) -> Files {
    let read = |name| (name, std::fs::read(path.join(name)).expect("a file of the database"));
    FILES.into_iter().map(read).collect()
}

fn value(row: u32, round: u32) -> (u32, Vec<u8>) {
    (round, vec![row as u8; (row * 371 + round * 11) as usize % 3000])
}

/// Stores a new value in each row, durably, one frame for each.
fn write_round(journal: &Journal<RealEnv>, round: u32) {
    for row in 0..ROWS {
        let key = row.to_be_bytes();
        let put = |transaction: &mut dyn Transaction| {
            transaction.put(Table::Inodes, &key, seal(Table::Inodes, &key, &value(row, round)));
            Ok::<_, EngineError>(())
        };
        let ((), point) = journal.write(put).expect("written");
        block_on(journal.durable(point)).expect("durable");
    }
}

/// Returns the oldest and the newest round of which a row is left.
fn rounds(journal: &Journal<RealEnv>) -> Option<(u32, u32)> {
    journal.read(|snapshot: &dyn Snapshot| {
        let mut found = Vec::new();
        for row in 0..ROWS {
            let key = row.to_be_bytes();
            let stored = snapshot.get(Table::Inodes, &key).expect("read")?;
            let (round, bytes): (u32, Vec<u8>) = stored.open(Table::Inodes, &key).expect("sound");
            assert_eq!((round, &bytes), (round, &value(row, round).1));
            found.push(round);
        }
        Some((*found.iter().min()?, *found.iter().max()?))
    })
}

/// Changes one file, or exchanges two. Returns what it did; `None` if that changes nothing.
fn mutate(files: &mut Files, copies: &[Files], rng: &mut Lcg) -> Option<String> {
    let before = files.clone();
    let name = FILES[1 + rng.below(3)];
    let bytes = files.get_mut(name).expect("a file");
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let mut about = String::new();
    match rng.below(8) {
        0 => {
            let len = rng.below(bytes.len());
            bytes.truncate(len);
            let _ = write!(about, "{name} is cut to {len} bytes");
        }
        1 => {
            let len = rng.below(used.max(1));
            bytes.truncate(len);
            let _ = write!(about, "{name} is cut to {len} bytes, within those in use");
        }
        2 | 3 => {
            let (a, b) = (rng.below(used.max(1)), rng.below(used.max(1)));
            bytes[a.min(b)..a.max(b)].fill(0);
            let _ = write!(about, "{name} is zeros from {} to {}", a.min(b), a.max(b));
        }
        4 => {
            // The rest moves to the front, as if the first frame had never been.
            let second = bytes.windows(4).skip(1).position(|four| four == b"WLO2")? + 1;
            bytes.drain(..second);
            bytes.resize(bytes.len() + second, 0);
            let _ = write!(about, "{name} lacks its first frame");
        }
        5 => {
            let first = files.remove("log.0")?;
            let second = files.insert("log.1", first)?;
            files.insert("log.0", second);
            about += "the logs are exchanged";
        }
        _ => {
            let name = FILES[rng.below(FILES.len())];
            let copy = rng.below(copies.len());
            files.insert(name, copies[copy][name].clone());
            let _ = write!(about, "{name} is copy {copy}");
        }
    }
    (*files != before).then_some(about)
}

#[test]
fn a_file_that_was_mutated_is_refused_or_hides_no_change() {
    // States of a database at any time: in both logs, before and after checkpoints and starts.
    let dir = tempfile::tempdir().expect("a directory");
    let (mut copies, mut round) = (Vec::new(), 0);
    for _ in 0..3 {
        let journal = open(dir.path()).expect("opens");
        for _ in 0..6 {
            round += 1;
            write_round(&journal, round);
            copies.push((round, files_of(dir.path())));
        }
        block_on(journal.shutdown()).expect("ends in order");
        copies.push((round, files_of(dir.path())));
    }
    let all: Vec<Files> = copies.iter().map(|(_, files)| files.clone()).collect();
    assert!(all.iter().any(|files| files["log.1"].starts_with(b"WLO2")), "both logs are used");
    let (mut sound, mut refused) = (0, 0);
    for seed in 1..=120 {
        let mut rng = Lcg(seed);
        (0..20).for_each(|_| _ = rng.below(2));
        let at = rng.below(copies.len());
        let (round, mut files) = copies[at].clone();
        let Some(about) = mutate(&mut files, &all[..=at], &mut rng) else { continue };
        let about = format!("seed {seed}, copy {at}: {about}");
        let path = tempfile::tempdir().expect("a directory");
        for (name, bytes) in &files {
            std::fs::write(path.path().join(name), bytes).expect("written");
        }
        match open(path.path()) {
            Ok(journal) => {
                let found = rounds(&journal);
                assert_eq!(found, Some((round, round)), "{about}");
                sound += 1;
            }
            Err(error) => {
                let said = error.to_string();
                let remedies =
                    ["--accept-lost-log", "restore", "start it again", "check the device below it"];
                let has_remedy = remedies.iter().any(|remedy| said.contains(remedy));
                assert!(has_remedy, "{about}: {said}");
                refused += 1;
            }
        }
    }
    assert!(sound > 5 && refused > 30, "{sound} started, {refused} refused");
}
