//! Unknown writers: files that may have writers of which the service has no record.
//!
//! A writer needs only the data servers. After a restart of the service, or after its session was lost, it may write
//! until its capability expires. Until then a collected size of the file is not stored as valid.

use super::permit::{ROOT_USER, is_other};
use std::collections::BTreeMap;
use weft_core::{FileId, Timestamp};

/// Maximum number of files with an entry of their own.
const FILES_MAX: usize = 65_536;

/// Files that may have unknown writers, and until when.
#[derive(Debug)]
pub(super) struct UnknownWriters {
    /// All files below this id, until this time.
    below: (FileId, Timestamp),
    /// Files whose writers lost their session.
    lost: BTreeMap<FileId, LostWriter>,
}

/// Times until which lost sessions may change a file.
#[derive(Clone, Copy, Debug)]
struct LostWriter {
    write_until: Timestamp,
    /// Seal of the file's datafiles that rejects all requests of these sessions, if one was asked for.
    seal_s: Option<u64>,
    /// In the past if no lost session may truncate it.
    truncate_until: Timestamp,
    /// User of the sessions, root aside; `None` if there were several.
    user: Option<u32>,
}

impl UnknownWriters {
    /// Files below `first_new` may have writers of the previous start, until `until`.
    pub(super) fn new(first_new: FileId, until: Timestamp) -> Self {
        Self { below: (first_new, until), lost: BTreeMap::new() }
    }

    /// Records that a writer of `file`, of user `uid`, was lost at `now`, whose capability holds until `until`. `truncates`
    /// is set if it may have begun to truncate the file.
    pub(super) fn add(&mut self, file: FileId, uid: u32, now: Timestamp, until: Timestamp, truncates: bool) {
        if self.lost.len() >= FILES_MAX {
            self.lost.retain(|_, lost| lost.write_until.max(lost.truncate_until) > now);
        }
        if self.lost.len() >= FILES_MAX {
            // There are too many files to remember each: every file counts.
            self.below = (FileId(u64::MAX), self.below.1.max(until));
            return;
        }
        let new = LostWriter { write_until: until, seal_s: None, truncate_until: now, user: Some(uid) };
        let lost = self.lost.entry(file).or_insert(new);
        if lost.write_until.max(lost.truncate_until) <= now || lost.user == Some(ROOT_USER) {
            lost.user = Some(uid);
        } else if lost.user != Some(uid) && uid != ROOT_USER {
            lost.user = None;
        }
        lost.write_until = lost.write_until.max(until);
        lost.seal_s = None;
        if truncates {
            lost.truncate_until = lost.truncate_until.max(until);
        }
    }

    /// Whether an unknown client may be writing `file` at `now`.
    pub(super) fn may_write(&self, file: FileId, now: Timestamp) -> bool {
        self.may_be_from_previous_start(file, now) || self.is_lost(file, now)
    }

    /// Whether an unknown client of another user than `owner` and root may be writing `file` at `now`.
    pub(super) fn may_write_as_other(&self, file: FileId, owner: u32, now: Timestamp) -> bool {
        let may_be_other = |lost: &LostWriter| lost.user.is_none_or(|user| is_other(user, owner));
        self.may_be_from_previous_start(file, now)
            || self.lost.get(&file).is_some_and(|lost| now < lost.write_until && may_be_other(lost))
    }

    /// Whether a lost session may use `file` at `now`, other than those of an earlier start.
    pub(super) fn is_lost(&self, file: FileId, now: Timestamp) -> bool {
        self.lost.get(&file).is_some_and(|lost| now < lost.write_until)
    }

    /// Records that a seal at `seal_s` will reject the requests of all sessions with `file` that are lost by now.
    pub(super) fn expect_seal(&mut self, file: FileId, seal_s: u64) {
        if let Some(lost) = self.lost.get_mut(&file) {
            lost.seal_s.get_or_insert(seal_s);
        }
    }

    /// Records that all datafiles of `file` have the seal `seal_s`. A truncation that a lost session has begun is not known
    /// to be over.
    pub(super) fn sealed(&mut self, file: FileId, seal_s: u64) {
        if let Some(lost) = self.lost.get_mut(&file)
            && lost.seal_s.is_some_and(|expected_s| expected_s <= seal_s)
        {
            lost.write_until = Timestamp(i128::MIN);
        }
    }

    /// Whether an unknown client may be truncating `file` at `now`.
    pub(super) fn may_truncate(&self, file: FileId, now: Timestamp) -> bool {
        self.may_be_from_previous_start(file, now)
            || self.lost.get(&file).is_some_and(|lost| now < lost.truncate_until)
    }

    /// Whether any client is unknown at `now`.
    pub(super) fn any(&self, now: Timestamp) -> bool {
        now < self.below.1 || self.lost.values().any(|lost| now < lost.write_until)
    }

    fn may_be_from_previous_start(&self, file: FileId, now: Timestamp) -> bool {
        file < self.below.0 && now < self.below.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_writers_count_until_their_capabilities_end() {
        let mut writers = UnknownWriters::new(FileId(10), Timestamp(100));
        assert!(writers.may_write(FileId(9), Timestamp(99)) && !writers.may_write(FileId(9), Timestamp(100)));
        assert!(!writers.may_write(FileId(10), Timestamp(0)));
        writers.add(FileId(12), 7, Timestamp(50), Timestamp(150), false);
        assert!(!writers.may_truncate(FileId(12), Timestamp(60)), "it only wrote");
        writers.add(FileId(12), 7, Timestamp(20), Timestamp(120), true);
        assert!(
            writers.may_write(FileId(12), Timestamp(149)) && !writers.may_write(FileId(12), Timestamp(150))
        );
        assert!(
            writers.may_truncate(FileId(12), Timestamp(119))
                && !writers.may_truncate(FileId(12), Timestamp(120))
        );
        assert!(
            writers.may_truncate(FileId(9), Timestamp(99)),
            "a truncation may have begun before the start"
        );
    }

    #[test]
    fn a_seal_ends_the_writers_that_were_lost_before_it_was_asked_for() {
        let (file, now) = (FileId(12), Timestamp(60));
        let mut writers = UnknownWriters::new(FileId(10), Timestamp(0));
        writers.expect_seal(file, 500);
        writers.add(file, 7, Timestamp(50), Timestamp(150), true);
        writers.sealed(file, 500);
        assert!(writers.may_write(file, now), "lost after the seal was asked for");
        writers.expect_seal(file, 501);
        writers.expect_seal(file, 502);
        writers.sealed(file, 500);
        assert!(writers.may_write(file, now), "an earlier seal");
        writers.add(file, 7, Timestamp(51), Timestamp(150), false);
        writers.sealed(file, 501);
        assert!(writers.is_lost(file, now), "another one was lost meanwhile");
        writers.expect_seal(file, 503);
        writers.sealed(file, 503);
        assert!(!writers.may_write(file, now) && !writers.is_lost(file, now));
        assert!(writers.may_truncate(file, now), "it may have truncated the file before");
        writers.add(file, 7, Timestamp(60), Timestamp(160), false);
        assert!(writers.may_write(file, now));
    }

    #[test]
    fn lost_writers_of_the_owner_and_of_root_are_no_others() {
        let (file, now, until) = (FileId(12), Timestamp(10), Timestamp(100));
        let mut writers = UnknownWriters::new(FileId(10), Timestamp(20));
        assert!(writers.may_write_as_other(FileId(9), 7, now) && !writers.may_write_as_other(file, 7, now));
        writers.add(file, ROOT_USER, now, until, false);
        assert!(writers.may_write(file, now) && !writers.may_write_as_other(file, 7, now));
        writers.add(file, 7, now, until, false);
        writers.add(file, ROOT_USER, now, until, false);
        assert!(!writers.may_write_as_other(file, 7, now) && writers.may_write_as_other(file, 8, now));
        writers.add(file, 8, now, until, false);
        assert!(writers.may_write_as_other(file, 7, now) && writers.may_write_as_other(file, 8, now));
        writers.add(file, 7, until, Timestamp(200), false);
        assert!(!writers.may_write_as_other(file, 7, until), "earlier ones have ended");
    }

    #[test]
    fn too_many_lost_writers_make_every_file_suspect() {
        let mut writers = UnknownWriters::new(FileId(0), Timestamp(0));
        for file in 0..FILES_MAX as u64 {
            writers.add(FileId(file), 7, Timestamp(1), Timestamp(100), false);
        }
        assert!(!writers.may_write(FileId(FILES_MAX as u64), Timestamp(50)));
        writers.add(FileId(FILES_MAX as u64), 7, Timestamp(1), Timestamp(100), false);
        assert!(writers.may_write(FileId(1 << 40), Timestamp(50)));
        assert_eq!(writers.lost.len(), FILES_MAX, "bounded");
        writers.add(FileId(7), 7, Timestamp(200), Timestamp(300), false);
        assert_eq!(writers.lost.len(), 1, "expired entries are removed");
    }
}
