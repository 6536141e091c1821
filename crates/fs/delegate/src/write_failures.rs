//! Failed writes of dirty bytes. Each open file learns of them at its next sync or close.
//!
//! Failures are numbered. A rank keeps, for each open file and delegate, the number of the last failure that it knows of,
//! and a sync or close sends it. A repeated request therefore gets the same answer, and a lost connection loses no report.

use std::collections::BTreeMap;
use weft_core::delegates::ownership::FileNumber;
use weft_wire::WireError;

/// Most files whose last failure is remembered.
const FILES_MAX: usize = 1 << 16;

/// The last failed write of each file.
#[derive(Debug, Default)]
pub(crate) struct WriteFailures {
    last: u64,
    by_file: BTreeMap<FileNumber, Failure>,
}

#[derive(Debug)]
struct Failure {
    number: u64,
    error: WireError,
    /// Whether a rank or the log has received it.
    is_told: bool,
}

impl WriteFailures {
    /// Adds a failure and returns its number.
    pub(crate) fn add(&mut self, file: FileNumber, error: WireError) -> u64 {
        self.last += 1;
        self.by_file.insert(file, Failure { number: self.last, error, is_told: false });
        if self.by_file.len() > FILES_MAX {
            let oldest = self.by_file.iter().min_by_key(|(_, failure)| failure.number).map(|(file, _)| *file);
            self.by_file.remove(&oldest.expect("there are failures"));
        }
        self.last
    }

    /// Returns the number of the last failure of any file.
    pub(crate) const fn last(&self) -> u64 {
        self.last
    }

    /// Returns the last failure of a file with its number, if it comes after number `seen`.
    pub(crate) fn after(&mut self, seen: u64, file: FileNumber) -> Option<(u64, WireError)> {
        let failure = self.by_file.get_mut(&file).filter(|failure| failure.number > seen)?;
        failure.is_told = true;
        Some((failure.number, failure.error.clone()))
    }

    /// Returns the last failure of a file for the log, unless a rank has received it.
    pub(crate) fn untold(&mut self, file: FileNumber) -> Option<&WireError> {
        let failure = self.by_file.get_mut(&file)?;
        (!std::mem::replace(&mut failure.is_told, true)).then_some(&failure.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_wire::Errno;

    fn error(text: &str) -> WireError {
        WireError::new(Errno::EIO, text.to_owned())
    }

    #[test]
    fn every_open_file_learns_of_the_failures_after_its_last_one() {
        let (a, b) = (FileNumber(1), FileNumber(2));
        let mut failures = WriteFailures::default();
        assert_eq!((failures.last(), failures.after(0, a)), (0, None));
        failures.add(a, error("first"));
        failures.add(b, error("other file"));
        let second = failures.add(a, error("second"));
        assert_eq!(failures.after(0, a), Some((second, error("second"))));
        assert_eq!(failures.after(0, a), Some((second, error("second"))), "the reply was lost");
        assert_eq!(failures.after(second, a), None);
        assert_eq!(failures.untold(a), None);
        assert_eq!(failures.untold(b), Some(&error("other file")));
        assert_eq!(failures.untold(b), None);
    }

    #[test]
    fn the_oldest_failures_are_forgotten() {
        let mut failures = WriteFailures::default();
        let files = FILES_MAX as u64 + 2;
        for file in 0..files {
            failures.add(FileNumber(file), error("full"));
        }
        assert_eq!(failures.after(0, FileNumber(1)), None);
        assert_eq!(failures.after(0, FileNumber(2)), Some((3, error("full"))));
        assert_eq!(failures.last(), files);
    }
}
