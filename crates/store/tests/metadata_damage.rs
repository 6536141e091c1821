//! A metadata database with damage at rest: what was acknowledged is there, or the start is refused; it never begins
//! with less.

use std::path::Path;
use weft_env::Env;
use weft_env::real::{RealEnv, block_on};
use weft_store::metadata::{
    Engine, EngineError, Identity, Journal, JournalOptions, OpenError, Snapshot, Table, Transaction,
    log_bytes, seal,
};

const ROWS: u32 = 50;

fn open(path: &Path) -> Result<Journal<RealEnv>, OpenError> {
    let env = RealEnv::new();
    let name = path.display().to_string();
    block_on(async {
        let dir = env.dir(path).await?;
        let identity = Identity { cluster: "test".into() };
        let options =
            JournalOptions { log_len: weft_core::ByteLen::from_kib(256), ..JournalOptions::default() };
        Journal::open(env, dir, &name, &identity, options).await
    })
}

/// Fifty rows, each in a frame of its own, in the log.
fn filled(path: &Path) {
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
    let Err(error) = open(path) else { panic!("it starts, where it should say: {why}") };
    assert!(error.to_string().contains(why), "{error}");
}

#[test]
fn a_frame_that_others_follow_is_not_taken_for_the_end() {
    let dir = tempfile::tempdir().expect("a directory");
    filled(dir.path());
    let log = dir.path().join("log.0");
    let good = std::fs::read(&log).expect("read");
    let frame = good.windows(4).skip(1).position(|bytes| bytes == b"WLOG").expect("a second frame") + 1;
    let last = ROWS as usize - 1;
    for number in 0..last {
        // The body, and in turn magic, length, number and the checksums.
        for at in [30, [0, 5, 9, 17, 22][number % 5]] {
            std::fs::write(&log, &good).expect("written");
            flip(&log, number * frame + at);
            refused(dir.path(), "is damaged or missing");
        }
    }
    // A whole stretch of them, up to the last but one.
    let mut bad = good.clone();
    bad[3 * frame..last * frame].fill(0);
    std::fs::write(&log, &bad).expect("written");
    refused(dir.path(), "frame 4 of its log is damaged or missing");
    // Only the last one may have been cut short by a crash.
    for at in [0, 9, 30] {
        std::fs::write(&log, &good).expect("written");
        flip(&log, last * frame + at);
        let copy = tempfile::tempdir().expect("a directory");
        for name in ["identity", "log.0", "log.1", "base.redb"] {
            std::fs::copy(dir.path().join(name), copy.path().join(name)).expect("copied");
        }
        let journal = open(copy.path()).expect("opens");
        assert_eq!(rows(&journal), ROWS - 1);
        block_on(journal.shutdown()).expect("ends in order");
    }
}

#[test]
fn what_users_store_is_never_taken_for_a_frame() {
    let dir = tempfile::tempdir().expect("a directory");
    // Values full of frames that the next ones could be, at every place in a sector.
    let mut forged = Vec::new();
    for number in 1..400 {
        forged.extend(log_bytes::frame(number, &[(Table::Inodes, vec![1, 2, 3], Some(vec![9; 20]))]));
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
    // Each start begins the log anew over what the one before left.
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
fn what_is_gone_is_not_made_anew() {
    let dir = tempfile::tempdir().expect("a directory");
    filled(dir.path());
    let identity = std::fs::read(dir.path().join("identity")).expect("read");
    let without = || std::fs::remove_file(dir.path().join("identity")).expect("removed");
    // While everything is in the log, and when everything is in the base.
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
    refused(dir.path(), "log.0 is empty");
    std::fs::remove_file(dir.path().join("log.0")).expect("removed");
    refused(dir.path(), "log.0 is gone");
}
