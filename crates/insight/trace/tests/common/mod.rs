//! Shared helpers of the tests.
#![allow(dead_code, missing_docs)] // Each test file uses a part.

#[path = "../../../../interfaces/cli/tests/common/skip.rs"]
pub mod skip;

use std::path::PathBuf;
use weft_core::random::SplitMix64;
use weft_core::{ByteLen, FileOffset, Nanos};
use weft_trace::darshan::Helper;
use weft_trace::{FileId, HostId, Level, Names, OpenOptions, Operation, Rank, Record, Result};

pub const HELPER: &str = env!("CARGO_BIN_EXE_weft-trace-helper");

pub fn data(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data")).join(name)
}

/// Returns options that use this crate's helper program.
pub fn options() -> OpenOptions {
    OpenOptions { helper: helper(), reconstruct: false }
}

pub fn helper() -> Helper {
    Helper::program(HELPER, ["darshan-reader".into()])
}

/// Random choices of a test.
pub struct Dice(SplitMix64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Returns mostly small numbers, sometimes any number.
    pub fn any(&mut self) -> u64 {
        let bits = self.below(65);
        if bits == 0 { 0 } else { self.next() >> (64 - bits) }
    }
}

/// Returns a random record over `files` files and `hosts` hosts.
pub fn any_record(dice: &mut Dice, files: u64, hosts: u64) -> Record {
    let op = Operation::ALL[dice.below(12) as usize];
    let start = dice.any();
    let place = op.moves_bytes() || op == Operation::Truncate;
    Record {
        rank: Rank(dice.any() as u32),
        host: HostId(dice.below(hosts + 1) as u32),
        file: FileId(if op.has_file() { dice.below(files) as u32 } else { 0 }),
        op,
        level: if dice.below(2) == 0 { Level::Posix } else { Level::MpiIo },
        collective: dice.below(2) == 0,
        offset: FileOffset(if place { dice.any() } else { 0 }),
        len: ByteLen(if op.moves_bytes() { dice.any() } else { 0 }),
        start: Nanos(start),
        end: Nanos(start.saturating_add(dice.any())),
    }
}

/// Collects a stream, and the error that ended it.
pub fn all(stream: impl Iterator<Item = Result<Record>>) -> (Vec<Record>, Option<weft_trace::TraceError>) {
    let mut records = Vec::new();
    for record in stream {
        match record {
            Ok(record) => records.push(record),
            Err(error) => return (records, Some(error)),
        }
    }
    (records, None)
}

pub fn names(count: u64) -> Names {
    let mut names = Names::default();
    for number in 0..count {
        names.file(&format!("/scratch/run/α {number}, \"quoted\"")).expect("few");
        names.host(&format!("node{number}")).expect("few");
    }
    names
}

/// Whether WEFT_SKIP_DARSHAN disables the tests of Darshan logs.
pub fn without_darshan() -> bool {
    skip::requested("WEFT_SKIP_DARSHAN")
}
