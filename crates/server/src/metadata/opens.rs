//! Who has what open, in memory: lost with the service, told again by the clients after a restart.

use std::collections::{BTreeMap, BTreeSet};
use weft_core::{ByteLen, FileId, Timestamp};
use weft_wire::BoundSession;
use weft_wire::meta::{HandleId, NO_EPOCH, WriteSummary, WrittenLens};

/// One open file of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OpenEntry {
    pub file: FileId,
    /// The user for whom it was opened.
    pub uid: u32,
    pub read: bool,
    pub write: bool,
    /// Whoever opened it might have opened it for reading too: its capability says so, because a descriptor of a
    /// datafile, which a writer may be lent, can be read as well. The client holds the program to its flags.
    pub readable: bool,
    /// Its opener cuts the file, though perhaps it does not write.
    pub truncate: bool,
    /// The kernel of its session may keep pages.
    pub caching: bool,
    /// Number of cuts that had begun when the file was opened; `None` when one of them may not be over. The ends of its
    /// writes are believed while no other cut begins. [`Opens::add`] sets it.
    pub cuts_before: Option<u64>,
}

impl OpenEntry {
    /// Whether the datafiles may change through it.
    pub(super) fn changes(&self) -> bool {
        self.write || self.truncate
    }
}

/// Cuts of a file at the time of an open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cuts {
    /// The open begins with one.
    pub begins: bool,
    /// A session that the service has lost sight of may be at one, or the open has seen one that the service has forgotten.
    pub lost: bool,
}

/// What the writers of an epoch have told so far.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Told {
    pub wrote: bool,
    pub end: ByteLen,
    pub bytes: ByteLen,
    pub mtime: Option<Timestamp>,
    /// Somebody without privilege wrote: set-id bits go.
    pub drop_set_ids: bool,
}

/// Knowledge about a file's end when its last writer has gone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Quiet {
    /// All that its writers told, which is everything.
    Sure(Told),
    /// A writer was lost or failed: the others, and the failed ones before they failed, wrote up to here.
    Unsure(ByteLen),
}

/// A cut by a session that has the file not open for writing.
#[derive(Clone, Copy, Debug)]
struct Cut {
    /// Whether the lengths that it finds are believed.
    believed: bool,
    /// The user for whom it is made.
    uid: u32,
}

/// One file that somebody has open or is cutting.
#[derive(Debug, Default)]
pub(super) struct FileEntry {
    opens: u32,
    /// Sessions that have it open, with the number of their opens.
    holders: BTreeMap<BoundSession, u32>,
    writers: BTreeMap<BoundSession, u32>,
    caching: BTreeMap<BoundSession, u32>,
    /// Cuts by those who have it not open for writing, by the epochs under which they began.
    truncating: BTreeMap<(BoundSession, u64), Cut>,
    /// Cuts that have begun.
    cuts: u64,
    /// Ends of the writes of closed opens, since the last cut began.
    written: WrittenLens,
    /// The inode's size was known when the first writer came, and all that happened since has been told.
    pub sure: bool,
    pub told: Told,
    /// It has no name any more.
    pub orphan: bool,
}

impl FileEntry {
    /// Whether the datafiles may be changing.
    pub(super) fn busy(&self) -> bool {
        !self.writers.is_empty() || !self.truncating.is_empty()
    }

    /// Somebody begins to cut the file: a datafile may get shorter than anybody has told.
    fn begin_cut(&mut self) {
        self.cuts += 1;
        self.written = WrittenLens::default();
    }

    fn unused(&self) -> bool {
        self.opens == 0 && self.truncating.is_empty()
    }
}

/// What is left of a file's entry when an open has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Ended {
    pub open: OpenEntry,
    /// The last writer has gone (and nobody cuts).
    pub quiet: Option<Quiet>,
    /// With the last writer: ends of all writes that are believed.
    pub written: WrittenLens,
    /// A cut of the file has begun while the file was open.
    pub cut: bool,
    /// Nobody has it open any more, and it has no name.
    pub forsaken: bool,
    /// This session has it open no more.
    pub last_of_session: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Opens {
    by_handle: BTreeMap<(BoundSession, HandleId), OpenEntry>,
    files: BTreeMap<FileId, FileEntry>,
    /// Files of which it is not durable yet that they were made, or that their size is not what the inode says.
    fresh: BTreeSet<FileId>,
    /// Opens and cuts of each user who has any.
    by_user: BTreeMap<u32, u32>,
}

fn count_down(counts: &mut BTreeMap<BoundSession, u32>, session: BoundSession) {
    if let Some(count) = counts.get_mut(&session) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&session);
        }
    }
}

/// Merges the ends of one writer into those of all. Of several generations the latest counts.
fn merge(all: &mut WrittenLens, told: &WrittenLens) {
    if all.data.generation() < told.data.generation() || all.lens.is_empty() {
        all.clone_from(told);
    } else if all.data == told.data {
        all.lens.raise(&told.lens);
    }
}

impl Opens {
    /// Opens and cuts of a user.
    pub(super) fn of_user(&self, uid: u32) -> u32 {
        self.by_user.get(&uid).copied().unwrap_or(0)
    }

    /// Opens and cuts of each user who has any.
    pub(super) fn by_user(&self) -> &BTreeMap<u32, u32> {
        &self.by_user
    }

    fn count_up(&mut self, uid: u32) {
        *self.by_user.entry(uid).or_default() += 1;
    }

    fn take_off(&mut self, uid: u32) {
        if let Some(count) = self.by_user.get_mut(&uid) {
            *count -= 1;
            if *count == 0 {
                self.by_user.remove(&uid);
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_handle.len()
    }

    pub(super) fn get(&self, session: BoundSession, handle: HandleId) -> Option<OpenEntry> {
        self.by_handle.get(&(session, handle)).copied()
    }

    /// A file is being made, or marked as one that is written.
    pub(super) fn begin_marking(&mut self, file: FileId) {
        self.fresh.insert(file);
    }

    /// That is durable.
    pub(super) fn marked(&mut self, file: FileId) {
        self.fresh.remove(&file);
    }

    /// Whether a crash might undo that.
    pub(super) fn is_fresh(&self, file: FileId) -> bool {
        self.fresh.contains(&file)
    }

    pub(super) fn is_open(&self, file: FileId) -> bool {
        self.files.get(&file).is_some_and(|entry| entry.opens > 0)
    }

    /// Whether `session` has the file open.
    pub(super) fn is_held_by(&self, file: FileId, session: BoundSession) -> bool {
        self.files.get(&file).is_some_and(|entry| entry.holders.contains_key(&session))
    }

    pub(super) fn is_busy(&self, file: FileId) -> bool {
        self.files.get(&file).is_some_and(FileEntry::busy)
    }

    /// Whether a session other than `session` writes or cuts the file.
    pub(super) fn busy_elsewhere(&self, file: FileId, session: BoundSession) -> bool {
        self.files.get(&file).is_some_and(|entry| {
            let truncating = entry.truncating.keys().map(|(session, _)| session);
            entry.writers.keys().chain(truncating).any(|&other| other != session)
        })
    }

    /// Sessions other than `session` whose kernels may keep pages of the file.
    pub(super) fn caching_elsewhere(&self, file: FileId, session: BoundSession) -> Vec<BoundSession> {
        let entry = self.files.get(&file);
        entry.into_iter().flat_map(|e| e.caching.keys().copied()).filter(|&other| other != session).collect()
    }

    /// Sessions other than `session` that have the file open.
    pub(super) fn held_elsewhere(&self, file: FileId, session: BoundSession) -> Vec<BoundSession> {
        let entry = self.files.get(&file);
        entry.into_iter().flat_map(|e| e.holders.keys().copied()).filter(|&other| other != session).collect()
    }

    /// Adds an open. `size_known`: the inode knew the size until now. `cuts`: what is known of cuts of the file. The same
    /// open again changes nothing.
    pub(super) fn add(
        &mut self,
        session: BoundSession,
        handle: HandleId,
        mut open: OpenEntry,
        size_known: bool,
        orphan: bool,
        cuts: Cuts,
    ) {
        if self.by_handle.contains_key(&(session, handle)) {
            return;
        }
        let entry = self.files.entry(open.file).or_default();
        entry.opens += 1;
        *entry.holders.entry(session).or_default() += 1;
        entry.orphan |= orphan;
        if open.changes() {
            // While others have the file open for writing, a cut of theirs may have begun and not be over.
            let meets_no_cut = !cuts.lost && (!entry.busy() || entry.cuts == 0);
            if cuts.begins {
                entry.begin_cut();
            }
            open.cuts_before = meets_no_cut.then_some(entry.cuts);
            if !entry.busy() {
                entry.sure = size_known;
                entry.told = Told::default();
            } else if cuts.lost {
                // Where it wrote before may lie behind the end that a cut gave the file, which the others have met.
                entry.sure = false;
            }
            *entry.writers.entry(session).or_default() += 1;
        }
        if open.caching {
            *entry.caching.entry(session).or_default() += 1;
        }
        if open.truncate {
            entry.sure = false;
        }
        self.by_handle.insert((session, handle), open);
        self.count_up(open.uid);
    }

    /// Whether it is believed where the writes through this open end: nobody has begun to cut the file since.
    pub(super) fn believes(&self, session: BoundSession, handle: HandleId) -> bool {
        self.get(session, handle).is_some_and(|open| {
            let cuts = self.files.get(&open.file).map(|entry| entry.cuts);
            open.cuts_before.is_some() && open.cuts_before == cuts
        })
    }

    /// Whether a cut has begun since the file was opened first by those who have it open: it may not be over.
    pub(super) fn may_be_cut(&self, file: FileId) -> bool {
        self.files.get(&file).is_some_and(|entry| entry.cuts > 0)
    }

    /// The datafiles' lengths are changed past the writers' summaries.
    pub(super) fn unsure(&mut self, file: FileId) {
        if let Some(entry) = self.files.get_mut(&file) {
            entry.sure = false;
            entry.begin_cut();
        }
    }

    /// `session` begins under `epoch` to set the lengths of a file that it has not open for writing. What it then finds
    /// is to be believed if it is `alone`.
    pub(super) fn begin_truncation(
        &mut self,
        file: FileId,
        session: BoundSession,
        epoch: u64,
        alone: bool,
        uid: u32,
    ) {
        let entry = self.files.entry(file).or_default();
        let cut = Cut { believed: alone && !entry.busy(), uid };
        let before = entry.truncating.insert((session, epoch), cut);
        entry.sure = false;
        entry.begin_cut();
        self.count_up(uid);
        if let Some(before) = before {
            self.take_off(before.uid);
        }
    }

    /// It is done with it: whether what it found is to be believed, if it was at it. Under [`NO_EPOCH`] one of its cuts
    /// is over, and it found nothing.
    pub(super) fn end_truncation(&mut self, file: FileId, session: BoundSession, epoch: u64) -> Option<bool> {
        let entry = self.files.get_mut(&file)?;
        let ended = match epoch {
            NO_EPOCH => {
                let oldest = *entry.truncating.range((session, 0)..=(session, NO_EPOCH)).next()?.0;
                entry.truncating.remove(&oldest).map(|cut| Cut { believed: false, ..cut })
            }
            epoch => entry.truncating.remove(&(session, epoch)),
        };
        if entry.unused() {
            self.files.remove(&file);
        }
        if let Some(cut) = &ended {
            self.take_off(cut.uid);
        }
        ended.map(|cut| cut.believed)
    }

    /// The file has lost its last name; whether somebody has it open.
    pub(super) fn orphan(&mut self, file: FileId) -> bool {
        match self.files.get_mut(&file) {
            Some(entry) if entry.opens > 0 => {
                entry.orphan = true;
                true
            }
            _ => false,
        }
    }

    /// Whether closing needs a change of the database.
    pub(super) fn close_matters(&self, session: BoundSession, handle: HandleId) -> bool {
        self.get(session, handle).is_some_and(|open| {
            open.changes() || self.files.get(&open.file).is_some_and(|entry| entry.orphan)
        })
    }

    /// Ends an open. Without a summary (its session died) nobody knows what was written.
    pub(super) fn remove(
        &mut self,
        session: BoundSession,
        handle: HandleId,
        summary: Option<(&WriteSummary, bool)>,
    ) -> Option<Ended> {
        let open = self.by_handle.remove(&(session, handle))?;
        let entry = self.files.get_mut(&open.file).expect("each open has its file's entry");
        entry.opens -= 1;
        count_down(&mut entry.holders, session);
        if open.caching {
            count_down(&mut entry.caching, session);
        }
        let (mut quiet, mut written) = (None, WrittenLens::default());
        if open.changes() {
            count_down(&mut entry.writers, session);
            entry.told.end = entry.told.end.max(summary.map_or(ByteLen(0), |(summary, _)| summary.end));
            if let Some((summary, _)) = summary
                && open.cuts_before == Some(entry.cuts)
            {
                merge(&mut entry.written, &summary.written);
            }
            match summary {
                Some((summary, privileged)) if !summary.unsure => {
                    if summary.wrote {
                        let told = &mut entry.told;
                        told.wrote = true;
                        told.bytes = ByteLen(told.bytes.0.saturating_add(summary.bytes.0));
                        told.mtime = told.mtime.max(Some(summary.mtime));
                        told.drop_set_ids |= !privileged;
                    }
                }
                _ => entry.sure = false,
            }
            if !entry.busy() {
                quiet = Some(match entry.sure {
                    true => Quiet::Sure(entry.told.clone()),
                    false => Quiet::Unsure(entry.told.end),
                });
                written = std::mem::take(&mut entry.written);
            }
        }
        let (forsaken, cut) = (entry.opens == 0 && entry.orphan, entry.cuts > 0);
        if entry.unused() {
            self.files.remove(&open.file);
        }
        self.take_off(open.uid);
        let mut of_session = self.by_handle.range((session, HandleId(0))..=(session, HandleId(u64::MAX)));
        let last_of_session = !of_session.any(|(_, other)| other.file == open.file);
        Some(Ended { open, quiet, written, cut, forsaken, last_of_session })
    }

    /// Handles of a session.
    pub(super) fn handles(&self, session: BoundSession) -> Vec<HandleId> {
        let range = (session, HandleId(0))..=(session, HandleId(u64::MAX));
        self.by_handle.range(range).map(|((_, handle), _)| *handle).collect()
    }

    /// Files that a session is cutting, once for each cut.
    pub(super) fn truncations(&self, session: BoundSession) -> Vec<FileId> {
        let of_session =
            |entry: &FileEntry| entry.truncating.range((session, 0)..=(session, NO_EPOCH)).count();
        self.files.iter().flat_map(|(file, entry)| std::iter::repeat_n(*file, of_session(entry))).collect()
    }
}
