//! A metadata database with damage at rest: what was acknowledged is there, or the start is refused; it never begins
//! with less.

use std::path::Path;
use weft_env::Env;
use weft_env::real::{RealEnv, block_on};
use weft_store::metadata::{
    Engine, EngineError, Identity, Journal, JournalOptions, OpenError, Snapshot, Table, Transaction, seal,
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
    for number in [0, 1, 20, ROWS as usize - 2] {
        std::fs::write(&log, &good).expect("written");
        flip(&log, number * frame + 30);
        refused(dir.path(), "is damaged or missing");
    }
    // Only the last one may have been cut short by a crash.
    std::fs::write(&log, &good).expect("written");
    flip(&log, (ROWS as usize - 1) * frame + 30);
    let journal = open(dir.path()).expect("opens");
    assert_eq!(rows(&journal), ROWS - 1);
    block_on(journal.shutdown()).expect("ends in order");
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
