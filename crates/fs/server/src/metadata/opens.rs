//! Open files, in memory: lost with the service, and reclaimed by the clients after a restart.
//!
//! # When the size in the inode is valid
//!
//! The datafiles always have the true length. The inode caches the size, and its *valid* flag says whether the cache
//! may be used. While it is invalid, a client that needs the size collects the lengths of the datafiles and may report
//! the result (`ValidateSize`, see `size.rs`).
//!
//! ```text
//!               open for writing, truncate (new epoch)
//!       ┌───────────────────────────────────────────────┐
//!       |                                               ▼
//!  ┌─────────┐   last writer closes, all reported   ┌─────────┐
//!  |  valid  |◀─────────────────────────────────────| invalid |──┐ last writer closes,
//!  └─────────┘                                      └─────────┘◀─┘ something unreported:
//!       ▲                                               |          new epoch
//!       └───────────────────────────────────────────────┘
//!         ValidateSize under the present epoch, no writer known or unknown
//! ```
//!
//! | open or event | effect on the summary of the writers |
//! |---|---|
//! | close with a summary | the end of its writes counts |
//! | close that reports an error | the summary is incomplete |
//! | session lost | incomplete, and an *unknown writer* until its capability expires |
//! | truncation begins | incomplete; ends reported earlier are dropped |
//! | open that meets a truncation in progress | its reported ends are not recorded |
//!
//! The epoch changes whenever the file may start to change, so a `ValidateSize` with lengths that were collected
//! earlier is ignored.

use super::permit::is_other;
use std::collections::{BTreeMap, BTreeSet};
use weft_core::{ByteLen, FileId, Timestamp};
use weft_store::metadata::Point;
use weft_wire::BoundSession;
use weft_wire::hello::JobNumber;
use weft_wire::meta::{HandleId, NO_EPOCH, WriteSummary, WrittenLens};
use weft_wire::status::DelegateCounts;

/// One open file of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OpenEntry {
    pub file: FileId,
    /// User that opened it.
    pub uid: u32,
    pub read: bool,
    pub write: bool,
    /// Whether the opener has read permission, even if the file is open for writing only. The capability then includes
    /// reading, because a leased descriptor for writing can also be read through. The client enforces the flags of the
    /// open.
    pub readable: bool,
    /// Whether the opener truncates the file, though it may never write.
    pub truncate: bool,
    /// Whether its session may cache pages: the kernel of a mount, or an I/O delegate of a job.
    pub caching: bool,
    /// Job of its session.
    pub job: Option<JobNumber>,
    /// Number of truncations that had begun when the file was opened; `None` if one of them may be unfinished. The ends
    /// of its writes count while no other truncation begins. Set by [`Opens::add`].
    pub truncations_before: Option<u64>,
}

impl OpenEntry {
    /// Whether the datafiles may change through this open.
    pub(super) fn changes(&self) -> bool {
        self.write || self.truncate
    }
}

/// Truncations of a file at the time of an open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TruncationState {
    /// The open itself truncates.
    pub begins: bool,
    /// A session that the service lost track of may be truncating, or the open was there during a truncation that is no
    /// longer known.
    pub lost: bool,
}

/// Summary of what the writers of an epoch reported so far.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct WriterSummary {
    pub wrote: bool,
    pub end: ByteLen,
    pub bytes: ByteLen,
    pub mtime: Option<Timestamp>,
    /// Whether an unprivileged user wrote, which drops the set-id bits.
    pub drop_set_ids: bool,
}

/// Result of the last-writer close of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum LastWriterClose {
    /// Complete summary of all writers.
    Complete(WriterSummary),
    /// A writer was lost or failed. The reported writes end here.
    Incomplete(ByteLen),
}

/// A truncation by a session that does not have the file open for writing.
#[derive(Clone, Copy, Debug)]
struct Truncation {
    /// Whether the lengths it reports count.
    is_trusted: bool,
    /// User that requested it.
    uid: u32,
}

/// A file that is open or being truncated.
#[derive(Debug, Default)]
pub(super) struct FileEntry {
    opens: u32,
    /// Sessions that have it open, with the number of their opens.
    holders: BTreeMap<BoundSession, u32>,
    writers: BTreeMap<BoundSession, u32>,
    /// Mounts whose kernels may keep pages, with the number of such opens.
    caching: BTreeMap<BoundSession, u32>,
    /// Number of opens by the jobs of their sessions.
    jobs: BTreeMap<Option<JobNumber>, u32>,
    /// I/O delegates that may cache pages, with their jobs and the number of such opens.
    delegates: BTreeMap<BoundSession, (JobNumber, u32)>,
    /// Truncations by sessions that do not have it open for writing, by the epoch under which they began.
    truncating: BTreeMap<(BoundSession, u64), Truncation>,
    /// Number of truncations that have begun.
    truncation_count: u64,
    /// Ends of the writes of closed opens since the last truncation began.
    written: WrittenLens,
    /// Whether the inode's size was valid when the first writer came, and all changes since have been reported.
    pub is_complete: bool,
    pub reported: WriterSummary,
    /// Whether the file has no name.
    pub orphan: bool,
    /// Whether it lost its last name while it was open.
    lost_name: bool,
    /// Whether its bytes are in the database, so that a close changes nothing there.
    is_inline: bool,
}

impl FileEntry {
    /// Whether the datafiles may be changing.
    pub(super) fn busy(&self) -> bool {
        !self.writers.is_empty() || !self.truncating.is_empty()
    }

    /// Begins a truncation, after which a datafile may be shorter than reported.
    fn count_truncation(&mut self) {
        self.truncation_count += 1;
        self.written = WrittenLens::default();
    }

    fn unused(&self) -> bool {
        self.opens == 0 && self.truncating.is_empty()
    }
}

/// State of a file after an open has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ClosedOpen {
    pub open: OpenEntry,
    /// Set if that was the last-writer close and no truncation is in progress.
    pub last_writer_close: Option<LastWriterClose>,
    /// Ends of all writes that count, at the last-writer close.
    pub written: WrittenLens,
    /// Whether a truncation began while the file was open.
    pub was_truncated: bool,
    /// Whether the file is neither open nor has a name.
    pub is_orphaned: bool,
    /// Whether the session has the file open no more.
    pub last_of_session: bool,
}

/// Creation or growth of a file, or mark that its size is invalid, that is not known to be durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mark {
    /// Not written yet, or written for a client that waits until it is durable. The number tells it from later ones.
    InProgress(u64),
    /// Creation or growth that survives this process, and a loss of power when all changes up to this point are durable.
    Written(Point),
}

/// All open files.
#[derive(Debug, Default)]
pub(super) struct Opens {
    by_handle: BTreeMap<(BoundSession, HandleId), OpenEntry>,
    files: BTreeMap<FileId, FileEntry>,
    /// Files whose creation, or whose invalid size, is not durable yet.
    not_durable: BTreeMap<FileId, Mark>,
    /// Number of marks so far.
    marks: u64,
    /// Durable point at which marks were forgotten last.
    forgot_marks: Point,
    /// Opens and truncations by user, without empty entries.
    by_user: BTreeMap<u32, u32>,
    /// Files that have a replica, valid or not.
    replicated: BTreeSet<FileId>,
}

fn count_down<K: Ord>(counts: &mut BTreeMap<K, u32>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

/// Merges the ends of one writer into those of all. The latest generation of datafiles counts.
fn merge(all: &mut WrittenLens, ends: &WrittenLens) {
    if all.data.generation() < ends.data.generation() || all.lens.is_empty() {
        all.clone_from(ends);
    } else if all.data == ends.data {
        all.lens.raise(&ends.lens);
    }
}

impl Opens {
    /// Adds the present numbers of files, jobs and delegates to `counts`.
    pub(super) fn delegate_counts(&self, counts: DelegateCounts) -> DelegateCounts {
        let (mut jobs, mut delegates) = (BTreeSet::new(), BTreeSet::new());
        let (mut open_files, mut cached_files) = (0, 0);
        for file in self.files.values() {
            jobs.extend(file.jobs.keys().flatten().copied());
            delegates.extend(file.delegates.keys().copied());
            open_files += u32::from(file.jobs.keys().any(Option::is_some));
            cached_files += u32::from(!file.delegates.is_empty());
        }
        let (jobs, delegates) = (jobs.len() as u32, delegates.len() as u32);
        DelegateCounts { jobs, delegates, open_files, cached_files, ..counts }
    }

    /// Opens and truncations of a user.
    pub(super) fn of_user(&self, uid: u32) -> u32 {
        self.by_user.get(&uid).copied().unwrap_or(0)
    }

    /// Opens and truncations by user, without empty entries.
    pub(super) fn by_user(&self) -> &BTreeMap<u32, u32> {
        &self.by_user
    }

    fn count_up_user(&mut self, uid: u32) {
        *self.by_user.entry(uid).or_default() += 1;
    }

    fn count_down_user(&mut self, uid: u32) {
        if let Some(count) = self.by_user.get_mut(&uid) {
            *count -= 1;
            if *count == 0 {
                self.by_user.remove(&uid);
            }
        }
    }

    /// Whether no file is open or being truncated.
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.by_handle.len()
    }

    pub(super) fn get(&self, session: BoundSession, handle: HandleId) -> Option<OpenEntry> {
        self.by_handle.get(&(session, handle)).copied()
    }

    /// Begins to create a file, or to mark its size as invalid.
    pub(super) fn await_durability(&mut self, file: FileId) {
        self.marks += 1;
        self.not_durable.insert(file, Mark::InProgress(self.marks));
    }

    /// Records that the creation is written, and durable with `point`. Forgets files that became durable with `durable`
    /// if there are many.
    pub(super) fn set_written(&mut self, file: FileId, point: Point, durable: Point) {
        const KEPT_MAX: usize = 4096;
        if self.not_durable.len() >= KEPT_MAX && self.forgot_marks < durable {
            self.not_durable.retain(|_, mark| !matches!(mark, Mark::Written(point) if *point <= durable));
            self.forgot_marks = durable;
        }
        self.not_durable.insert(file, Mark::Written(point));
    }

    /// Records that the creation or mark is durable, unless there is a later one by now.
    pub(super) fn set_durable(&mut self, file: FileId, mark: Mark) {
        if self.not_durable.get(&file) == Some(&mark) {
            self.not_durable.remove(&file);
        }
    }

    /// Whether a crash could undo the creation or mark.
    pub(super) fn awaits_durability(&self, file: FileId) -> bool {
        self.not_durable.contains_key(&file)
    }

    /// The creation or mark of a file, if a crash could undo it.
    pub(super) fn mark_of(&self, file: FileId) -> Option<Mark> {
        self.not_durable.get(&file).copied()
    }

    /// Records whether a file has a replica.
    pub(super) fn set_replicated(&mut self, file: FileId, is_replicated: bool) {
        if is_replicated {
            self.replicated.insert(file);
        } else {
            self.replicated.remove(&file);
        }
    }

    /// Whether the file has a replica, valid or not.
    pub(super) fn is_replicated(&self, file: FileId) -> bool {
        self.replicated.contains(&file)
    }

    /// Number of times the file is open.
    pub(super) fn count(&self, file: FileId) -> u32 {
        self.files.get(&file).map_or(0, |entry| entry.opens)
    }

    /// Whether the file is open otherwise than by `own`, or is being truncated.
    pub(super) fn is_open_except(&self, file: FileId, own: (BoundSession, HandleId)) -> bool {
        let is_own = self.get(own.0, own.1).is_some_and(|open| open.file == file);
        let entry = self.files.get(&file);
        entry.is_some_and(|entry| entry.opens > u32::from(is_own) || !entry.truncating.is_empty())
    }

    /// Number of times the file is open for writing or being truncated.
    pub(super) fn writers(&self, file: FileId) -> u32 {
        let count = |entry: &FileEntry| entry.writers.values().sum::<u32>() + entry.truncating.len() as u32;
        self.files.get(&file).map_or(0, count)
    }

    /// Whether the file may change otherwise than by `own`.
    pub(super) fn is_changed_except(&self, file: FileId, own: (BoundSession, HandleId)) -> bool {
        let is_own = self.get(own.0, own.1).is_some_and(|open| open.file == file && open.changes());
        let entry = self.files.get(&file);
        let writers = |entry: &FileEntry| entry.writers.values().sum::<u32>();
        entry.is_some_and(|entry| writers(entry) > u32::from(is_own) || !entry.truncating.is_empty())
    }

    pub(super) fn is_open(&self, file: FileId) -> bool {
        self.files.get(&file).is_some_and(|entry| entry.opens > 0)
    }

    /// Whether `session` has the file open.
    pub(super) fn is_held_by(&self, file: FileId, session: BoundSession) -> bool {
        self.files.get(&file).is_some_and(|entry| entry.holders.contains_key(&session))
    }

    /// Whether `session` has the file open for writing, and the file has not lost its last name since it was opened.
    pub(super) fn may_get_first_name(&self, file: FileId, session: BoundSession) -> bool {
        self.files.get(&file).is_some_and(|entry| entry.writers.contains_key(&session) && !entry.lost_name)
    }

    pub(super) fn is_busy(&self, file: FileId) -> bool {
        self.files.get(&file).is_some_and(FileEntry::busy)
    }

    /// Whether a session other than `session` writes or truncates the file.
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

    /// Whether a session that is not of `job` has the file open.
    pub(super) fn is_open_outside(&self, file: FileId, job: JobNumber) -> bool {
        self.files.get(&file).is_some_and(|entry| entry.jobs.keys().any(|other| *other != Some(job)))
    }

    /// I/O delegates of jobs other than `job` that may cache pages of the file.
    pub(super) fn delegates_of_others(&self, file: FileId, job: Option<JobNumber>) -> Vec<BoundSession> {
        let entry = self.files.get(&file);
        let all = entry.into_iter().flat_map(|entry| &entry.delegates);
        all.filter(|(_, (of, _))| Some(*of) != job).map(|(session, _)| *session).collect()
    }

    /// Sessions other than `session` that have the file open.
    pub(super) fn held_elsewhere(&self, file: FileId, session: BoundSession) -> Vec<BoundSession> {
        let entry = self.files.get(&file);
        entry.into_iter().flat_map(|e| e.holders.keys().copied()).filter(|&other| other != session).collect()
    }

    /// Adds an open; a repeated open changes nothing. `size_known` says that the inode's size was valid until now,
    /// `state` what is known about truncations.
    pub(super) fn add(
        &mut self,
        session: BoundSession,
        handle: HandleId,
        mut open: OpenEntry,
        size_known: bool,
        orphan: bool,
        state: TruncationState,
    ) {
        if self.by_handle.contains_key(&(session, handle)) {
            return;
        }
        let entry = self.files.entry(open.file).or_default();
        entry.opens += 1;
        *entry.holders.entry(session).or_default() += 1;
        *entry.jobs.entry(open.job).or_default() += 1;
        entry.orphan |= orphan;
        if open.changes() {
            // Other writers may have begun a truncation that is not finished.
            let sees_no_truncation = !state.lost && (!entry.busy() || entry.truncation_count == 0);
            if state.begins {
                entry.count_truncation();
            }
            open.truncations_before = sees_no_truncation.then_some(entry.truncation_count);
            if !entry.busy() {
                entry.is_complete = size_known;
                entry.reported = WriterSummary::default();
            } else if state.lost {
                // Its earlier writes may end behind a truncation that the other writers came after.
                entry.is_complete = false;
            }
            *entry.writers.entry(session).or_default() += 1;
        }
        match open.job {
            Some(job) if open.caching => entry.delegates.entry(session).or_insert((job, 0)).1 += 1,
            None if open.caching => *entry.caching.entry(session).or_default() += 1,
            _ => {}
        }
        if open.truncate {
            entry.is_complete = false;
        }
        self.by_handle.insert((session, handle), open);
        self.count_up_user(open.uid);
    }

    /// Records whether the bytes of an open file are in the database.
    pub(super) fn set_inline(&mut self, file: FileId, is_inline: bool) {
        if let Some(entry) = self.files.get_mut(&file) {
            entry.is_inline = is_inline;
        }
    }

    /// Whether the reported ends of writes through this open count: no truncation has begun since.
    pub(super) fn trusts_reported_ends(&self, session: BoundSession, handle: HandleId) -> bool {
        self.get(session, handle).is_some_and(|open| {
            let count = self.files.get(&open.file).map(|entry| entry.truncation_count);
            open.truncations_before.is_some() && open.truncations_before == count
        })
    }

    /// Whether a truncation has begun since the file was first opened; it may be unfinished.
    pub(super) fn may_be_truncated(&self, file: FileId) -> bool {
        self.files.get(&file).is_some_and(|entry| entry.truncation_count > 0)
    }

    /// Makes the summary incomplete, because lengths change in another way.
    pub(super) fn mark_incomplete(&mut self, file: FileId) {
        if let Some(entry) = self.files.get_mut(&file) {
            entry.is_complete = false;
            entry.count_truncation();
        }
    }

    /// Begins a truncation by a session that does not have the file open for writing, under `epoch`. Its reported
    /// lengths count only if it is `alone`.
    pub(super) fn begin_truncation(
        &mut self,
        file: FileId,
        session: BoundSession,
        epoch: u64,
        alone: bool,
        uid: u32,
    ) {
        let entry = self.files.entry(file).or_default();
        let cut = Truncation { is_trusted: alone && !entry.busy(), uid };
        let before = entry.truncating.insert((session, epoch), cut);
        entry.is_complete = false;
        entry.count_truncation();
        self.count_up_user(uid);
        if let Some(before) = before {
            self.count_down_user(before.uid);
        }
    }

    /// Ends a truncation. Returns whether its reported lengths count, if it was in progress. [`NO_EPOCH`] ends the
    /// session's oldest one, without lengths.
    pub(super) fn end_truncation(&mut self, file: FileId, session: BoundSession, epoch: u64) -> Option<bool> {
        let entry = self.files.get_mut(&file)?;
        let ended = match epoch {
            NO_EPOCH => {
                let oldest = *entry.truncating.range((session, 0)..=(session, NO_EPOCH)).next()?.0;
                entry.truncating.remove(&oldest).map(|cut| Truncation { is_trusted: false, ..cut })
            }
            epoch => entry.truncating.remove(&(session, epoch)),
        };
        if entry.unused() {
            self.files.remove(&file);
        }
        if let Some(cut) = &ended {
            self.count_down_user(cut.uid);
        }
        ended.map(|cut| cut.is_trusted)
    }

    /// Records that the file has lost its last name. Returns whether it is open.
    pub(super) fn orphan(&mut self, file: FileId) -> bool {
        match self.files.get_mut(&file) {
            Some(entry) if entry.opens > 0 => {
                (entry.orphan, entry.lost_name) = (true, true);
                true
            }
            _ => false,
        }
    }

    /// Records that a file without a name got one.
    pub(super) fn named(&mut self, file: FileId) {
        if let Some(entry) = self.files.get_mut(&file) {
            entry.orphan = false;
        }
    }

    /// Whether closing needs a change of the database.
    pub(super) fn close_matters(&self, session: BoundSession, handle: HandleId) -> bool {
        self.get(session, handle).is_some_and(|open| {
            let is = |what: fn(&FileEntry) -> bool| self.files.get(&open.file).is_some_and(what);
            open.changes() && !is(|entry| entry.is_inline) || is(|entry| entry.orphan)
        })
    }

    /// Ends an open. Without a summary (its session died), its writes are unknown.
    pub(super) fn remove(
        &mut self,
        session: BoundSession,
        handle: HandleId,
        summary: Option<(&WriteSummary, bool)>,
    ) -> Option<ClosedOpen> {
        let open = self.by_handle.remove(&(session, handle))?;
        let entry = self.files.get_mut(&open.file).expect("each open has its file's entry");
        entry.opens -= 1;
        count_down(&mut entry.holders, session);
        count_down(&mut entry.jobs, open.job);
        match (open.caching, entry.delegates.get_mut(&session)) {
            (true, Some((_, 1))) => drop(entry.delegates.remove(&session)),
            (true, Some((_, count))) => *count -= 1,
            (true, None) => count_down(&mut entry.caching, session),
            (false, _) => {}
        }
        let (mut last_writer_close, mut written) = (None, WrittenLens::default());
        if open.changes() {
            count_down(&mut entry.writers, session);
            entry.reported.end =
                entry.reported.end.max(summary.map_or(ByteLen(0), |(summary, _)| summary.end));
            if let Some((summary, _)) = summary {
                if open.truncations_before == Some(entry.truncation_count) {
                    merge(&mut entry.written, &summary.written);
                } else if summary.wrote {
                    // Where its writes ended does not count. A size is valid only with a complete record.
                    entry.is_complete = false;
                }
            }
            match summary {
                Some((summary, privileged)) if !summary.unsure => {
                    if summary.wrote {
                        let reported = &mut entry.reported;
                        reported.wrote = true;
                        reported.bytes = ByteLen(reported.bytes.0.saturating_add(summary.bytes.0));
                        reported.mtime = reported.mtime.max(Some(summary.mtime));
                        reported.drop_set_ids |= !privileged;
                    }
                }
                _ => entry.is_complete = false,
            }
            if !entry.busy() {
                last_writer_close = Some(match entry.is_complete {
                    true => LastWriterClose::Complete(entry.reported.clone()),
                    false => LastWriterClose::Incomplete(entry.reported.end),
                });
                written = std::mem::take(&mut entry.written);
            }
        }
        let (is_orphaned, was_truncated) = (entry.opens == 0 && entry.orphan, entry.truncation_count > 0);
        if entry.unused() {
            self.files.remove(&open.file);
        }
        self.count_down_user(open.uid);
        let mut of_session = self.by_handle.range((session, HandleId(0))..=(session, HandleId(u64::MAX)));
        let last_of_session = !of_session.any(|(_, other)| other.file == open.file);
        Some(ClosedOpen { open, last_writer_close, written, was_truncated, is_orphaned, last_of_session })
    }

    /// Whether a user other than `owner` and root has the file open for writing or is truncating it. Looks at all opens.
    pub(super) fn is_written_by_others(&self, file: FileId, owner: u32) -> bool {
        let Some(entry) = self.files.get(&file).filter(|entry| entry.busy()) else { return false };
        entry.truncating.values().any(|cut| is_other(cut.uid, owner))
            || self
                .by_handle
                .values()
                .any(|open| open.file == file && open.changes() && is_other(open.uid, owner))
    }

    /// Handles of a session.
    pub(super) fn handles(&self, session: BoundSession) -> Vec<HandleId> {
        let range = (session, HandleId(0))..=(session, HandleId(u64::MAX));
        self.by_handle.range(range).map(|((_, handle), _)| *handle).collect()
    }

    /// Files that a session is truncating, once for each truncation.
    pub(super) fn truncations(&self, session: BoundSession) -> Vec<FileId> {
        let of_session =
            |entry: &FileEntry| entry.truncating.range((session, 0)..=(session, NO_EPOCH)).count();
        self.files.iter().flat_map(|(file, entry)| std::iter::repeat_n(*file, of_session(entry))).collect()
    }
}
