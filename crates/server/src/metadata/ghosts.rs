//! Files that somebody may be writing of whom the service knows nothing: what is measured of them is not believed.
//!
//! A writer needs only the data servers. After a restart of the service, or when its session was lost, it may go on for
//! as long as its capability holds without asking the service anything.

use std::collections::BTreeMap;
use weft_core::{FileId, Timestamp};

/// Lost writers that are told apart by their files.
const FILES_MAX: usize = 65_536;

/// Which files those are, and until when.
#[derive(Debug)]
pub(super) struct Ghosts {
    /// Files below this one, until then.
    below: (FileId, Timestamp),
    /// Files whose writers were lost.
    lost: BTreeMap<FileId, Lost>,
}

/// Until when lost sessions may change a file.
#[derive(Clone, Copy, Debug)]
struct Lost {
    write: Timestamp,
    /// In the past for none that may.
    cut: Timestamp,
}

impl Ghosts {
    /// Writers from before a start may be at files below `first_new` until `until`.
    pub(super) fn new(first_new: FileId, until: Timestamp) -> Self {
        Self { below: (first_new, until), lost: BTreeMap::new() }
    }

    /// A writer of `file` was lost at `now`; what it may do holds until `until`. `cuts`: it may have begun to cut the file.
    pub(super) fn lose(&mut self, file: FileId, now: Timestamp, until: Timestamp, cuts: bool) {
        if self.lost.len() >= FILES_MAX {
            self.lost.retain(|_, lost| lost.write > now);
        }
        if self.lost.len() >= FILES_MAX {
            // Too many to remember each: all files that there can be.
            self.below = (FileId(u64::MAX), self.below.1.max(until));
            return;
        }
        let lost = self.lost.entry(file).or_insert(Lost { write: until, cut: now });
        lost.write = lost.write.max(until);
        if cuts {
            lost.cut = lost.cut.max(until);
        }
    }

    /// Whether somebody unknown may be writing `file` at `now`.
    pub(super) fn haunt(&self, file: FileId, now: Timestamp) -> bool {
        self.is_of_before(file, now) || self.lost.get(&file).is_some_and(|lost| now < lost.write)
    }

    /// Whether somebody unknown may be cutting `file` at `now`.
    pub(super) fn may_cut(&self, file: FileId, now: Timestamp) -> bool {
        self.is_of_before(file, now) || self.lost.get(&file).is_some_and(|lost| now < lost.cut)
    }

    fn is_of_before(&self, file: FileId, now: Timestamp) -> bool {
        file < self.below.0 && now < self.below.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_writers_count_until_their_capabilities_end() {
        let mut ghosts = Ghosts::new(FileId(10), Timestamp(100));
        assert!(ghosts.haunt(FileId(9), Timestamp(99)) && !ghosts.haunt(FileId(9), Timestamp(100)));
        assert!(!ghosts.haunt(FileId(10), Timestamp(0)));
        ghosts.lose(FileId(12), Timestamp(50), Timestamp(150), false);
        assert!(!ghosts.may_cut(FileId(12), Timestamp(60)), "it only wrote");
        ghosts.lose(FileId(12), Timestamp(20), Timestamp(120), true);
        assert!(ghosts.haunt(FileId(12), Timestamp(149)) && !ghosts.haunt(FileId(12), Timestamp(150)));
        assert!(ghosts.may_cut(FileId(12), Timestamp(119)) && !ghosts.may_cut(FileId(12), Timestamp(120)));
        assert!(ghosts.may_cut(FileId(9), Timestamp(99)), "anything may have begun before the start");
    }

    #[test]
    fn more_lost_writers_than_are_remembered_haunt_every_file() {
        let mut ghosts = Ghosts::new(FileId(0), Timestamp(0));
        for file in 0..FILES_MAX as u64 {
            ghosts.lose(FileId(file), Timestamp(1), Timestamp(100), false);
        }
        assert!(!ghosts.haunt(FileId(FILES_MAX as u64), Timestamp(50)));
        ghosts.lose(FileId(FILES_MAX as u64), Timestamp(1), Timestamp(100), false);
        assert!(ghosts.haunt(FileId(1 << 40), Timestamp(50)));
        assert_eq!(ghosts.lost.len(), FILES_MAX, "bounded");
        ghosts.lose(FileId(7), Timestamp(200), Timestamp(300), false);
        assert_eq!(ghosts.lost.len(), 1, "those that are over are forgotten");
    }
}
