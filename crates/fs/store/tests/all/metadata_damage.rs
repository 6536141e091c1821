//! A metadata database with damage at rest: acknowledged changes are present, or the start fails. It never starts with
//! less.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};
use weft_env::Env;
use weft_env::real::{RealEnv, block_on};
use weft_store::metadata::{
    DatabaseSpec, Engine, EngineError, Journal, JournalOptions, OpenError, Snapshot, Table, Transaction,
    log_bytes, seal,
};

const ROWS: u32 = 50;

pub(crate) fn open(path: &Path) -> Result<Journal<RealEnv>, OpenError> {
    open_with(path, JournalOptions::default())
}

pub(crate) fn open_with(path: &Path, options: JournalOptions) -> Result<Journal<RealEnv>, OpenError> {
    open_all(path, &DatabaseSpec::formatting("test"), options)
}

fn open_spec(path: &Path, spec: &DatabaseSpec) -> Result<Journal<RealEnv>, OpenError> {
    open_all(path, spec, JournalOptions::default())
}

fn open_all(
    path: &Path,
    spec: &DatabaseSpec,
    options: JournalOptions,
) -> Result<Journal<RealEnv>, OpenError> {
    let env = RealEnv::new();
    let name = path.display().to_string();
    block_on(async {
        let dir = env.dir(path).await?;
        let options = JournalOptions { log_len: weft_core::ByteLen::from_kib(256), ..options };
        Journal::open(env, dir, &name, spec, options).await
    })
}

/// Writes fifty rows into the log, each in a frame of its own.
fn write_rows(path: &Path) {
    let journal = open(path).expect("opens");
    for number in 0..ROWS {
        let key = number.to_be_bytes();
        let put = |transaction: &mut dyn Transaction| {
            transaction.put(Table::Inodes, &key, seal(Table::Inodes, &key, &number));
            Ok::<_, EngineError>(())
        };
        let ((), point) = journal.write(put).expect("written");
        block_on(journal.durable(point)).expect("durable");
    }
    block_on(journal.shutdown()).expect("ends in order");
}

fn rows(journal: &Journal<RealEnv>) -> u32 {
    journal.read(|snapshot: &dyn Snapshot| {
        (0..ROWS).filter(|n| snapshot.get(Table::Inodes, &n.to_be_bytes()).expect("read").is_some()).count()
            as u32
    })
}

fn flip(file: &Path, at: usize) {
    let mut bytes = std::fs::read(file).expect("read");
    bytes[at] ^= 0x41;
    std::fs::write(file, bytes).expect("written");
}

fn refused(path: &Path, why: &str) {
    let Err(error) = open(path) else { panic!("it starts instead of failing with: {why}") };
    assert!(error.to_string().contains(why), "{error}");
}

#[test]
fn a_damaged_frame_before_others_is_not_the_end() {
    let dir = tempfile::tempdir().expect("a directory");
    write_rows(dir.path());
    let log = dir.path().join("log.0");
    let good = std::fs::read(&log).expect("read");
    let frame = good.windows(4).skip(1).position(|bytes| bytes == b"WLO2").expect("a second frame") + 1;
    let last = ROWS as usize - 1;
    for number in 0..last {
        // The body, then magic, length, number, synced frames and the checksums.
        for at in [35, [0, 5, 9, 17, 22, 26][number % 6]] {
            std::fs::write(&log, &good).expect("written");
            flip(&log, number * frame + at);
            refused(dir.path(), "is damaged or missing");
        }
    }
    // A series of frames, up to the last but one.
    let mut bad = good.clone();
    bad[3 * frame..last * frame].fill(0);
    std::fs::write(&log, &bad).expect("written");
    refused(dir.path(), "frame 4 of its log is damaged or missing");
    // The file `synced` tells that the last frame was synced, too. An older one lets a crash have torn it.
    for at in [0, 9, 35] {
        std::fs::write(&log, &good).expect("written");
        flip(&log, last * frame + at);
        refused(dir.path(), "its logs end with frame 49, but frame 50 was synced in log.0");
        let copy = copy_of(dir.path());
        let mut synced = std::fs::read(copy.path().join("synced")).expect("read");
        synced[512..].fill(0);
        std::fs::write(copy.path().join("synced"), synced).expect("written");
        let journal = open(copy.path()).expect("opens");
        assert_eq!(rows(&journal), ROWS - 1);
        block_on(journal.shutdown()).expect("ends in order");
    }
}

/// Copies the files of a database.
fn copy_of(path: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().expect("a directory");
    for name in FILES {
        std::fs::copy(path.join(name), copy.path().join(name)).expect("copied");
    }
    copy
}

#[test]
fn a_log_that_was_cut_or_zeroed_is_refused_unless_the_loss_is_accepted() {
    let dir = tempfile::tempdir().expect("a directory");
    write_rows(dir.path());
    let good = std::fs::read(dir.path().join("log.0")).expect("read");
    let used = good.iter().rposition(|byte| *byte != 0).expect("frames") + 1;
    let frame = used / ROWS as usize;
    let zeroed = |range: std::ops::Range<usize>| {
        let mut bytes = good.clone();
        bytes[range].fill(0);
        bytes
    };
    let cut = |len: usize| good[..len].to_vec();
    // Damage, reason, and rows that an accepted loss leaves.
    let damages = [
        ("a short end that was never used", cut(good.len() - 1000), "its end is missing", ROWS),
        ("half of the frames", cut(used / 2), "its end is missing", ROWS / 2 - 1),
        ("everything", cut(0), "log.0 has 0 bytes", 0),
        ("zeros everywhere", zeroed(0..good.len()), "frame 50 was synced in log.0 up to offset", 0),
        ("a zeroed tail", zeroed(used / 2..good.len()), "acknowledged changes are missing", ROWS / 2 - 1),
        ("a zeroed first frame", zeroed(0..frame), "frame 1 of its log is damaged or missing at offset 0", 0),
        ("a zeroed last frame", zeroed(used - 20..used), "its logs end with frame 49", ROWS - 1),
    ];
    for (what, bytes, why, left) in damages {
        let copy = copy_of(dir.path());
        std::fs::write(copy.path().join("log.0"), &bytes).expect("written");
        for _ in 0..2 {
            refused(copy.path(), why);
            refused(copy.path(), "--accept-lost-log");
        }
        let now = std::fs::read(copy.path().join("log.0")).expect("read");
        assert!(now == bytes, "{what}: a refused start changes nothing");
        let accepted = DatabaseSpec { accept_lost_log: true, ..DatabaseSpec::formatting("test") };
        let journal = open_spec(copy.path(), &accepted).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(rows(&journal).abs_diff(left) <= 1, "{what}: {} rows", rows(&journal));
        block_on(journal.shutdown()).expect("ends in order");
        // Accepted once: the next start is an ordinary one, and keeps new changes.
        write_rows(copy.path());
        assert_eq!(rows(&open(copy.path()).expect("opens")), ROWS, "{what}");
    }
    // A base that has all changes needs no log. Its length counts nevertheless.
    block_on(open(dir.path()).expect("opens").shutdown()).expect("ends in order");
    let copy = copy_of(dir.path());
    std::fs::write(copy.path().join("log.0"), zeroed(0..good.len())).expect("written");
    assert_eq!(rows(&open(copy.path()).expect("nothing is lost")), ROWS);
}

#[test]
fn a_lost_record_of_synced_frames_is_refused_and_an_earlier_version_gets_one() {
    let dir = tempfile::tempdir().expect("a directory");
    write_rows(dir.path());
    for damage in ["gone", "damaged"] {
        let copy = copy_of(dir.path());
        let path = copy.path().join("synced");
        match damage {
            "gone" => std::fs::remove_file(&path).expect("removed"),
            _ => std::fs::write(&path, [0; 1024]).expect("written"),
        }
        refused(copy.path(), &format!("synced is {damage}"));
        let accepted = DatabaseSpec { accept_lost_log: true, ..DatabaseSpec::formatting("test") };
        assert_eq!(rows(&open_spec(copy.path(), &accepted).expect("opens")), ROWS);
    }
    // Version 4 of the identity file has no such file.
    let mut identity = std::fs::read(dir.path().join("identity")).expect("read");
    identity.truncate(identity.len() - 4);
    identity[8] = 4;
    let crc = crc32fast::hash(&identity).to_le_bytes();
    identity.extend_from_slice(&crc);
    let former = identity;
    std::fs::write(dir.path().join("identity"), &former).expect("written");
    let synced = std::fs::read(dir.path().join("synced")).expect("read");
    std::fs::remove_file(dir.path().join("synced")).expect("removed");
    let log = dir.path().join("log.0");
    let good = std::fs::read(&log).expect("read");
    for len in [0, 20_000] {
        std::fs::write(&log, &good[..len]).expect("written");
        refused(dir.path(), &format!("log.0 has {len} bytes, but was made with 262144"));
        // An interrupted upgrade has recorded the frame.
        std::fs::write(&log, vec![0; good.len()]).expect("written");
        std::fs::write(dir.path().join("synced"), &synced).expect("written");
        refused(dir.path(), "frame 50 was synced in log.0");
        std::fs::remove_file(dir.path().join("synced")).expect("removed");
        std::fs::write(dir.path().join("identity"), &former).expect("written");
    }
    std::fs::write(&log, &good).expect("written");
    let journal = open(dir.path()).expect("opens");
    assert_eq!(rows(&journal), ROWS);
    block_on(journal.shutdown()).expect("ends in order");
    assert!(dir.path().join("synced").exists());
}

#[test]
fn frames_behind_a_lost_one_never_follow_new_ones() {
    let dir = tempfile::tempdir().expect("a directory");
    let put = |journal: &Journal<RealEnv>, row: u32| {
        let key = row.to_be_bytes();
        let put = |transaction: &mut dyn Transaction| {
            transaction.put(Table::Inodes, &key, seal(Table::Inodes, &key, &row));
            Ok::<_, EngineError>(())
        };
        journal.write(put).expect("written").1
    };
    let copy = |from: &Path| {
        let copy = tempfile::tempdir().expect("a directory");
        for name in FILES {
            std::fs::copy(from.join(name), copy.path().join(name)).expect("copied");
        }
        copy
    };
    let journal = open(dir.path()).expect("opens");
    for row in [1, 2] {
        block_on(journal.written(put(&journal, row))).expect("written");
    }
    // The power fails before the sync: the first frame is lost, the second one is not.
    let after = copy(dir.path());
    let log = after.path().join("log.0");
    let mut bytes = std::fs::read(&log).expect("read");
    let second = bytes.windows(4).skip(1).position(|bytes| bytes == b"WLO2").expect("a second frame") + 1;
    bytes[..second].fill(0);
    std::fs::write(&log, bytes).expect("written");
    let journal = open(after.path()).expect("opens");
    assert_eq!(rows(&journal), 0);
    // A frame of the same length, and then another loss of power.
    block_on(journal.durable(put(&journal, 3))).expect("durable");
    let journal = open(copy(after.path()).path()).expect("opens");
    assert_eq!(rows(&journal), 1, "only the new change");
}

/// A log that was used before keeps the beginning of that use, while later sectors of its new frames reached the disk.
#[test]
fn a_lost_beginning_of_a_log_is_no_damage_of_the_other_one() {
    const FILLING: usize = 1000;
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    let journal = open(dir.path()).expect("opens");
    let put = |row: u32| {
        let key = row.to_be_bytes();
        let value = (row, vec![row as u8; FILLING]);
        let put = |transaction: &mut dyn Transaction| {
            transaction.put(Table::Inodes, &key, seal(Table::Inodes, &key, &value));
            Ok::<_, EngineError>(())
        };
        journal.write(put).expect("written").1
    };
    let put_durably = |row: u32| block_on(journal.durable(put(row))).expect("durable");
    // All frames have one length, so each log takes the same number.
    let mut row = 0;
    let is_second_used = || std::fs::read(path("log.1")).expect("read").starts_with(b"WLO2");
    while !is_second_used() {
        row += 1;
        put_durably(row);
    }
    let per_log = row - 1;
    // A log is only left when the checkpoint of the other one is complete.
    let until_checkpoints = |count: u64| {
        let deadline = Instant::now() + Duration::from_secs(60);
        while journal.stats().checkpoints < count {
            assert!(Instant::now() < deadline, "checkpoint {count} takes more than a minute");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    until_checkpoints(1);
    // Both logs have been used, and the first one is in use again.
    while row < 2 * per_log + 1 {
        row += 1;
        put_durably(row);
    }
    until_checkpoints(2);
    let kept = tempfile::tempdir().expect("a directory");
    for name in ["identity", "synced", "base.redb", "base.sums"] {
        std::fs::copy(path(name), kept.path().join(name)).expect("copied");
    }
    // As if the checkpoint of the first log took long: the base stays as it is, and frames go to the second log.
    let before = std::fs::read(path("log.1")).expect("read");
    let last = 3 * per_log;
    (row + 1..=last).for_each(put_durably);
    assert_eq!(std::fs::read(path("log.1")).expect("read"), before);
    for next in last + 1..last + 12 {
        block_on(journal.written(put(next))).expect("written");
    }
    std::fs::copy(path("log.0"), kept.path().join("log.0")).expect("copied");
    let mut log = std::fs::read(path("log.1")).expect("read");
    assert!(log[..4096] != before[..4096] && log[4096..8192] != before[4096..8192], "the log is in use");
    log[..4096].copy_from_slice(&before[..4096]);
    std::fs::write(kept.path().join("log.1"), log).expect("written");

    let journal = open(kept.path()).expect("opens");
    let has = |row: u32| {
        let key = row.to_be_bytes();
        journal.read(|snapshot: &dyn Snapshot| snapshot.get(Table::Inodes, &key).expect("read").is_some())
    };
    assert!((1..=last).all(has), "all durable rows");
    assert!(!(last + 1..last + 12).any(has), "no row without those before it");
}

#[test]
fn user_data_is_never_taken_for_a_frame() {
    let dir = tempfile::tempdir().expect("a directory");
    // Values that contain valid next frames, at every offset within a sector.
    let mut forged = Vec::new();
    for number in 1..400 {
        forged.extend(log_bytes::frame(number, 0, &[(Table::Inodes, vec![1, 2, 3], Some(vec![9; 20]))]));
        forged.push(0);
    }
    let put = |journal: &Journal<RealEnv>, row: u32, value: Vec<u8>| {
        let key = row.to_be_bytes();
        let put = |transaction: &mut dyn Transaction| {
            transaction.put(Table::Xattrs, &key, seal(Table::Xattrs, &key, &value));
            Ok::<_, EngineError>(())
        };
        let ((), point) = journal.write(put).expect("written");
        block_on(journal.durable(point)).expect("durable");
    };
    // Each start overwrites the remains of the previous log from the beginning.
    for start in 0..4 {
        let journal = open(dir.path()).expect("opens");
        for row in 0..5 {
            put(&journal, row, if start % 2 == 0 { forged.clone() } else { vec![7; 10] });
        }
        block_on(journal.shutdown()).expect("ends in order");
    }
    drop(open(dir.path()).expect("opens"));
}

#[test]
fn missing_files_are_not_created_again() {
    let dir = tempfile::tempdir().expect("a directory");
    write_rows(dir.path());
    let identity = std::fs::read(dir.path().join("identity")).expect("read");
    let without = || std::fs::remove_file(dir.path().join("identity")).expect("removed");
    // With everything in the log, and with everything in the base.
    without();
    refused(dir.path(), "without its identity file");
    std::fs::write(dir.path().join("identity"), &identity).expect("written");
    let journal = open(dir.path()).expect("opens");
    assert_eq!(rows(&journal), ROWS);
    block_on(journal.shutdown()).expect("ends in order");
    let log = std::fs::read(dir.path().join("log.0")).expect("read");
    std::fs::write(dir.path().join("log.0"), vec![0; log.len()]).expect("written");
    without();
    refused(dir.path(), "without its identity file");
    std::fs::write(dir.path().join("identity"), &identity).expect("written");
    std::fs::write(dir.path().join("log.0"), b"").expect("written");
    refused(dir.path(), "log.0 has 0 bytes");
    std::fs::remove_file(dir.path().join("log.0")).expect("removed");
    refused(dir.path(), "log.0 is gone");
}

/// Pseudorandom numbers, equal in every run.
pub(crate) struct Lcg(pub(crate) u64);

impl Lcg {
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

const MANY: u32 = 1200;

fn value(row: u32) -> Vec<u8> {
    let len = row as usize % 90;
    (0..len).map(|at| (row as usize * 31 + at * 7) as u8).collect()
}

/// Writes rows to several pages of the base, and then changes and removes some of them.
fn base_filled(path: &Path) {
    for round in 0..3 {
        let journal = open(path).expect("opens");
        let put = |transaction: &mut dyn Transaction| {
            for row in (round..MANY).step_by(3) {
                let key = row.to_be_bytes();
                transaction.put(Table::Dentries, &key, seal(Table::Dentries, &key, &value(row)));
                transaction.put(Table::Inodes, &key, seal(Table::Inodes, &key, &row));
                if row % 7 == 0 {
                    transaction.delete(Table::Inodes, &key);
                }
            }
            Ok::<_, EngineError>(())
        };
        let ((), point) = journal.write(put).expect("written");
        block_on(journal.durable(point)).expect("durable");
        block_on(journal.shutdown()).expect("ends in order");
    }
    // Now the base includes the logs.
    let journal = open(path).expect("opens");
    block_on(journal.shutdown()).expect("ends in order");
}

/// Returns the number of unreadable rows. Readable ones must be unchanged, and none may be missing.
fn unreadable(journal: &Journal<RealEnv>, about: &str) -> usize {
    let mut unreadable = 0;
    journal.read(|snapshot: &dyn Snapshot| {
        for row in 0..MANY {
            let key = row.to_be_bytes();
            match snapshot.get(Table::Dentries, &key) {
                Ok(found) => {
                    let found = found.unwrap_or_else(|| panic!("{about}: row {row} is missing"));
                    assert_eq!(found.open(Table::Dentries, &key), Ok(value(row)), "{about}");
                }
                Err(error) => {
                    assert!(error.to_string().contains("base.redb"), "{about}: {error}");
                    unreadable += 1;
                }
            }
            match snapshot.get(Table::Inodes, &key) {
                Ok(found) => assert_eq!(found.is_some(), row % 7 != 0, "{about}: row {row}"),
                Err(_) => unreadable += 1,
            }
        }
        let mut seen = 0;
        let scanned = snapshot.scan(Table::Dentries, std::ops::Bound::Unbounded, &mut |key, found| {
            assert_eq!(key, u32::to_be_bytes(seen), "{about}");
            assert_eq!(found.open(Table::Dentries, key), Ok(value(seen)), "{about}");
            seen += 1;
            Ok(weft_store::metadata::Scan::Next)
        });
        assert!(seen == MANY || scanned.is_err(), "{about}: {seen} rows and no error");
    });
    unreadable
}

pub(crate) const FILES: [&str; 6] = ["identity", "log.0", "log.1", "synced", "base.redb", "base.sums"];

/// Copies of the files of a database, to be damaged one by one.
struct Files(Vec<(&'static str, Vec<u8>)>);

impl Files {
    fn read(path: &Path) -> Self {
        Self(FILES.map(|name| (name, std::fs::read(path.join(name)).expect("read"))).to_vec())
    }

    fn write(&self, path: &Path) {
        for (name, bytes) in &self.0 {
            std::fs::write(path.join(name), bytes).expect("written");
        }
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        self.0.iter().find(|(found, _)| *found == name).expect("opens").1.clone()
    }
}

/// Returns a database with rows in its base, and a directory for damaged copies of it.
fn sample() -> (Files, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a directory");
    base_filled(dir.path());
    (Files::read(dir.path()), tempfile::tempdir().expect("a directory"))
}

#[test]
fn a_flipped_bit_of_the_base_is_repaired_and_no_row_is_missing() {
    let (good, dir) = sample();
    let seed = 0x5eed_1234_5678_9abc;
    let mut rng = Lcg(seed);
    let base = good.bytes("base.redb");
    for round in 0..100 {
        good.write(dir.path());
        let mut bytes = base.clone();
        // Most of the file was never used, so half of the flips hit its beginning.
        let end = if round % 2 == 0 { 64 << 10 } else { bytes.len() };
        let bit = rng.below(end * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(dir.path().join("base.redb"), &bytes).expect("written");
        let about = format!("seed {seed:#x}, round {round}, bit {bit}");
        let journal = open(dir.path()).unwrap_or_else(|error| panic!("{about}: {error}"));
        assert_eq!(unreadable(&journal, &about), 0, "{about}");
        // Every start overwrites the header.
        let in_header = bit / 8 < 4096;
        let found = journal.check_base(false).expect("checked");
        assert_eq!(found.damaged.len(), usize::from(!in_header), "{about}");
        assert_eq!(journal.stats().damaged_blocks, u64::from(!in_header), "{about}");
        let mended = journal.check_base(true).expect("checked");
        assert!(mended.damaged.iter().all(|(bytes, mended)| bytes.contains(&(bit as u64 / 8)) && *mended));
        assert_eq!(journal.check_base(false).expect("checked").damaged, [], "{about}");
        assert_eq!(journal.stats().damaged_blocks, 0, "{about}");
        block_on(journal.shutdown()).expect("ends in order");
    }
}

#[test]
fn damage_of_any_kind_never_loses_or_changes_a_row_silently() {
    let (good, dir) = sample();
    let seed = 0x0bad_cafe_1357_2468;
    let mut rng = Lcg(seed);
    let (mut refused, mut partly) = (0, 0);
    for round in 0..60 {
        good.write(dir.path());
        let name = if round % 5 == 4 { "base.sums" } else { "base.redb" };
        let mut bytes = good.bytes(name);
        let from = rng.below(bytes.len().min(96 << 10) - 600);
        match round % 3 {
            0 => bytes[from] ^= 0xff,
            1 => bytes[from..from + 512].fill(0),
            _ => bytes[from..from + 600].iter_mut().for_each(|byte| *byte = rng.below(256) as u8),
        }
        let is_changed = bytes != good.bytes(name);
        let about = format!("seed {seed:#x}, round {round}, {name} from {from} on");
        // While the server runs, and while it does not. redb caches hardly anything.
        let options =
            JournalOptions { cache_len: weft_core::ByteLen::from_kib(64), ..JournalOptions::default() };
        let running = round % 2 == 0 && name == "base.redb";
        let journal = running.then(|| open_with(dir.path(), options).expect("opens"));
        let file = std::fs::File::options().write(true).open(dir.path().join(name)).expect("opens");
        file.write_all_at(&bytes[from..from + 600], from as u64).expect("written");
        let journal = match journal.map_or_else(|| open_with(dir.path(), options), Ok) {
            Ok(journal) => journal,
            Err(error) => {
                assert!(error.to_string().contains("base.redb"), "{about}: {error}");
                refused += 1;
                continue;
            }
        };
        let lost = unreadable(&journal, &about);
        partly += usize::from(lost > 0);
        let found = journal.check_base(false).expect("checked");
        let known = !found.damaged.is_empty() || from < 4096 || !is_changed || name == "base.sums";
        assert!(known && (lost == 0 || !found.damaged.is_empty()), "{about}: {lost} rows");
        block_on(journal.shutdown()).ok();
    }
    assert!(
        refused > 0 && partly > 0,
        "{refused} starts rejected, {partly} bases with rows that cannot be read"
    );
}

#[test]
fn a_base_without_checksums_gets_them_unless_it_is_damaged() {
    let (good, dir) = sample();
    let without = || {
        good.write(dir.path());
        std::fs::remove_file(dir.path().join("base.sums")).expect("removed");
    };
    without();
    let journal = open(dir.path()).expect("opens");
    assert_eq!(unreadable(&journal, "without sums"), 0);
    assert_eq!(journal.check_base(false).expect("checked").damaged, []);
    block_on(journal.shutdown()).expect("ends in order");
    assert!(dir.path().join("base.sums").metadata().expect("opens").len() > 4096);
    // A key with a flipped bit sorts elsewhere; redb's own checksums detect it.
    without();
    let mut bytes = good.bytes("base.redb");
    let found = seal(Table::Dentries, &77u32.to_be_bytes(), &value(77));
    let at = bytes.windows(found.len()).rposition(|window| window == found).expect("in a page");
    bytes[at] ^= 1;
    std::fs::write(dir.path().join("base.redb"), &bytes).expect("written");
    for _ in 0..2 {
        refused(dir.path(), "base.redb");
    }
}

#[test]
fn an_older_copy_of_the_base_alone_is_rejected_or_unreadable() {
    let dir = tempfile::tempdir().expect("a directory");
    base_filled(dir.path());
    let old = std::fs::read(dir.path().join("base.redb")).expect("read");
    let journal = open(dir.path()).expect("opens");
    let put = |transaction: &mut dyn Transaction| {
        for row in 0..MANY {
            let key = row.to_be_bytes();
            transaction.put(Table::Dentries, &key, seal(Table::Dentries, &key, &b"newer"));
        }
        Ok::<_, EngineError>(())
    };
    let ((), point) = journal.write(put).expect("written");
    block_on(journal.durable(point)).expect("durable");
    block_on(journal.shutdown()).expect("ends in order");
    block_on(open(dir.path()).expect("opens").shutdown()).expect("ends in order");
    std::fs::write(dir.path().join("base.redb"), old).expect("written");
    let Ok(journal) = open(dir.path()) else { return };
    assert!(!journal.check_base(false).expect("checked").damaged.is_empty());
    let key = 5u32.to_be_bytes();
    let found = journal.read(|snapshot: &dyn Snapshot| snapshot.get(Table::Dentries, &key));
    assert!(found.is_err(), "{found:?}");
}
