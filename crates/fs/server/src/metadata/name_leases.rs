//! Leases of names and attributes, which mounts take with a listing or a lookup.
//!
//! The kernel of a mount uses such a name and its attributes by itself for a part of [`NAME_LEASE`]. A change of such a name,
//! or of attributes of its file, is answered when all other mounts with a lease have dropped it, or when their leases
//! have ended. Leases are granted and looked up inside the steps on the database, so that each listing is before or
//! after each change.
//!
//! | case | rule |
//! | --- | --- |
//! | change by the mount itself | its kernel knows |
//! | second change before the first was acknowledged | waits for the same event |
//! | a name is created in a directory where the end of a lease is awaited | waits, too: it may replace the name in use |
//! | the mount's connection breaks | its lease ends by itself |
//! | a mount does not answer | it gets no lease for [`SILENT_FOR`] |
//! | name removed or replaced while leased elsewhere | its directory is not leased for [`BUSY_FOR`]: two mounts that remove files there would wait for each other, because the kernel locks the directory for each removal and for each drop |
//! | restart | the first changes wait until leases of the previous start have ended, if there were any |

use super::Service;
use super::fault::Outcome;
use super::op::Op;
use super::serve::Call;
use super::sessions::Sessions;
use super::tables::{file_of_key, put_row, row};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::atomic::Ordering;
use weft_core::{FileId, Nanos};
use weft_env::mutants::{Mutant, is_seeded};
use weft_env::{Env, Notify};
use weft_store::metadata::{
    DentryRow, Engine, EngineError, LEASING_START_KEY, Snapshot, Table, Transaction, Untrusted, Visit,
};
use weft_wire::BoundSession;
use weft_wire::meta::{Attr, NAME_LEASE, Outdated};

/// Maximum number of leases.
const LEASES_MAX: usize = 1 << 20;
/// Time in which leases are granted that end together.
const BATCH: Nanos = Nanos::from_ms(250);
/// Time for which a directory is not leased after a change in it had to wait for a lease.
const BUSY_FOR: Nanos = Nanos::from_s(2);
/// Maximum number of directories remembered as busy. Beyond it nothing is leased.
const BUSY_MAX: usize = 1024;

/// Time for which a session that did not answer gets no leases.
const SILENT_FOR: Nanos = Nanos::from_s(60);
/// Key of revocations that concern no name.
const NO_DIR: FileId = FileId(0);

/// Number of a session with leases. It needs less memory than its id, in a set of a million leases.
type SessionNumber = u32;

/// Leases that end together.
struct Batch {
    until: Nanos,
    leases: BTreeSet<(FileId, SessionNumber)>,
}

/// Event that ends a lease.
#[derive(Clone, Copy, Debug)]
struct Ending {
    /// Event to be acknowledged; `None` if the session was gone.
    event: Option<u64>,
    /// Whether it ends the use of the name too, not only that of the attributes.
    of_name: bool,
    /// Latest end of the lease.
    until: Nanos,
}

/// Leases of all mounts. A lease is of one file and the name that leads to it.
#[derive(Default)]
pub(super) struct NameLeases {
    /// The oldest first.
    batches: VecDeque<Batch>,
    /// Revoked leases. A file is not leased again until they have ended, because it may soon change again.
    endings: BTreeMap<(FileId, SessionNumber), Ending>,
    /// Sessions by number.
    sessions: Vec<BoundSession>,
    /// Revocations until their leases have ended, by directory of the changed names; [`NO_DIR`] for those of attributes.
    pending: BTreeMap<FileId, Vec<Revocation>>,
    /// Directories in which changes had to wait for leases, with the ends of the times for which they are not leased.
    busy: BTreeMap<FileId, Nanos>,
    /// Sessions that let a revoked lease end without an answer, with the ends of the times for which they get none.
    silent: BTreeMap<BoundSession, Nanos>,
}

/// Wait of a change for one lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct Revocation {
    session: BoundSession,
    /// Event to be acknowledged; `None` if the session is gone.
    event: Option<u64>,
    until: Nanos,
}

impl NameLeases {
    fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Forgets leases that have ended.
    fn forget_ended(&mut self, now: Nanos) {
        let before = self.batches.len();
        while self.batches.front().is_some_and(|batch| batch.until <= now) {
            self.batches.pop_front();
        }
        if self.batches.len() < before {
            self.endings.retain(|_, ending| ending.until > now);
            self.pending.retain(|_, waits| {
                waits.retain(|wait| wait.until > now);
                !waits.is_empty()
            });
        }
        if self.batches.is_empty() {
            self.sessions.clear();
        }
        if self.busy.len() >= BUSY_MAX {
            self.busy.retain(|_, until| *until > now);
        }
        if self.silent.len() >= BUSY_MAX {
            self.silent.retain(|_, until| *until > now);
        }
    }

    fn number_of(&mut self, session: BoundSession) -> SessionNumber {
        let known = self.sessions.iter().position(|known| *known == session);
        let number = known.unwrap_or_else(|| {
            self.sessions.push(session);
            self.sessions.len() - 1
        });
        number as SessionNumber
    }

    /// Leases those of the names in `dir` that can be, and tells it for each.
    pub(super) fn grant<'a>(
        &mut self,
        session: BoundSession,
        dir: FileId,
        found: impl ExactSizeIterator<Item = &'a Attr>,
        now: Nanos,
    ) -> Vec<bool> {
        self.forget_ended(now);
        let is_over = |until: Option<&Nanos>| until.is_none_or(|until| *until <= now);
        let leases: usize = self.batches.iter().map(|batch| batch.leases.len()).sum();
        let may_lease = is_over(self.busy.get(&dir))
            && is_over(self.silent.get(&session))
            && self.busy.len().max(self.silent.len()) < BUSY_MAX
            && leases + found.len() <= LEASES_MAX;
        if !may_lease {
            return vec![false; found.len()];
        }
        let number = self.number_of(session);
        let until = now.saturating_add(NAME_LEASE);
        if self.batches.back().is_none_or(|batch| batch.until < until) {
            let until = until.saturating_add(BATCH);
            self.batches.push_back(Batch { until, leases: BTreeSet::new() });
        }
        let batch = self.batches.back_mut().expect("pushed");
        let endings = &self.endings;
        found
            .map(|attr| {
                let mut ended =
                    endings.range((attr.file, SessionNumber::MIN)..=(attr.file, SessionNumber::MAX));
                let can_be = attr.can_be_leased() && ended.next().is_none();
                if can_be {
                    batch.leases.insert((attr.file, number));
                }
                can_be
            })
            .collect()
    }

    /// Returns revocations of earlier changes in `dirs`, or in all directories.
    fn pending(&self, dirs: Option<&BTreeSet<FileId>>) -> impl Iterator<Item = Revocation> {
        let is_wanted = move |dir: &FileId| dirs.is_none_or(|dirs| dirs.contains(dir));
        self.pending.iter().filter(move |(dir, _)| is_wanted(dir)).flat_map(|(_, waits)| waits).copied()
    }

    /// A session has not answered before its lease ended.
    fn set_silent(&mut self, session: BoundSession, now: Nanos) {
        self.silent.insert(session, now.saturating_add(SILENT_FOR));
    }

    /// Ends the leases of sessions other than `session` for changed files. Returns what the change must wait for.
    fn revoke(
        &mut self,
        changes: &Changes,
        session: BoundSession,
        sessions: &Mutex<Sessions>,
        now: Nanos,
    ) -> Vec<Revocation> {
        self.forget_ended(now);
        // A name whose removal waits for a mount may be in use there although another change replaces it now.
        let of_others = |wait: &Revocation| wait.session != session;
        let mut revoked: Vec<Revocation> = self.pending(Some(&changes.dirs)).filter(of_others).collect();
        let (no_dir, mut is_new) = (BTreeSet::from([NO_DIR]), false);
        for file in changes.inodes.union(&changes.files) {
            let of_name = changes.files.contains(file);
            let (outdated, dirs) = match of_name {
                true => (Outdated::Name, &changes.dirs),
                false => (Outdated::Attributes, &no_dir),
            };
            // The latest end of each session's lease.
            let mut ends: BTreeMap<SessionNumber, Nanos> = BTreeMap::new();
            for batch in &self.batches {
                let of_file = batch.leases.range((*file, SessionNumber::MIN)..=(*file, SessionNumber::MAX));
                ends.extend(of_file.map(|(_, number)| (*number, batch.until)));
            }
            for (number, until) in ends {
                let holder = self.sessions[number as usize];
                if holder == session {
                    continue;
                }
                let before = self.endings.get(&(*file, number)).copied();
                let ending = match before.filter(|ending| ending.of_name || !of_name) {
                    Some(ending) => ending,
                    None => {
                        let event = sessions.lock().queue_event(holder, *file, outdated);
                        let ending = Ending { event, of_name, until };
                        self.endings.insert((*file, number), ending);
                        ending
                    }
                };
                let wait = Revocation { session: holder, event: ending.event, until };
                for dir in dirs {
                    self.pending.entry(*dir).or_default().push(wait);
                }
                is_new |= of_name;
                revoked.push(wait);
            }
        }
        if is_new {
            let until = now.saturating_add(BUSY_FOR);
            self.busy.extend(changes.dirs.iter().map(|dir| (*dir, until)));
        }
        revoked
    }
}

/// Inodes and names that a transaction changes.
#[derive(Default)]
struct Changes {
    /// Inodes.
    inodes: BTreeSet<FileId>,
    /// Files whose names are removed or replaced.
    files: BTreeSet<FileId>,
    /// Directories with added, removed or replaced names.
    dirs: BTreeSet<FileId>,
}

/// A transaction that notes what mounts may have leased.
struct Noted<'a> {
    inner: &'a mut dyn Transaction,
    changes: Changes,
    /// Whether any mount has a lease.
    notes: bool,
    /// Whether there was a change of inodes or names.
    has_changed: bool,
}

impl Noted<'_> {
    fn note(&mut self, table: Table, key: &[u8]) {
        if !matches!(table, Table::Inodes | Table::Dentries) {
            return;
        }
        self.has_changed = true;
        if !self.notes {
            return;
        }
        if table == Table::Inodes {
            self.changes.inodes.insert(file_of_key(key));
            return;
        }
        self.changes.dirs.insert(file_of_key(key));
        if let Ok(Some(DentryRow { file, .. })) = row(self.inner, Table::Dentries, key) {
            self.changes.files.insert(file);
        }
    }
}

impl Snapshot for Noted<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Untrusted>, EngineError> {
        self.inner.get(table, key)
    }

    fn scan(&self, table: Table, from: Bound<&[u8]>, visit: &mut Visit<'_>) -> Result<(), EngineError> {
        self.inner.scan(table, from, visit)
    }
}

impl Transaction for Noted<'_> {
    fn put(&mut self, table: Table, key: &[u8], value: Vec<u8>) {
        self.note(table, key);
        self.inner.put(table, key, value);
    }

    fn delete(&mut self, table: Table, key: &[u8]) {
        self.note(table, key);
        self.inner.delete(table, key);
    }
}

/// Leases that a change has to wait for.
#[derive(Default)]
pub(super) struct Revoked {
    waits: Vec<Revocation>,
    /// Whether leases of the previous start count too.
    has_changed: bool,
}

impl<E: Env> Service<E> {
    /// Runs `body` in a transaction, and revokes the leases of other mounts for its changes.
    pub(super) fn revoking<T>(
        &self,
        t: &mut dyn Transaction,
        op: &Op<'_>,
        body: impl FnOnce(&mut dyn Transaction, &Op<'_>) -> Outcome<T>,
    ) -> Outcome<(T, Revoked)> {
        let notes = !self.core.name_leases.lock().is_empty();
        let mut noted = Noted { inner: t, changes: Changes::default(), notes, has_changed: false };
        let result = body(&mut noted, op)?;
        let Noted { changes, has_changed, .. } = noted;
        let has_changed = has_changed || op.is_repeated.get();
        if !notes || is_seeded(Mutant::KeptName) {
            return Ok((result, Revoked { waits: Vec::new(), has_changed }));
        }
        let mut leases = self.core.name_leases.lock();
        let mut waits = leases.revoke(&changes, op.session, &self.sessions, self.env.now());
        if op.is_repeated.get() {
            // The first request may still wait, or have waited in the previous start.
            waits.extend(leases.pending(None));
        }
        if !waits.is_empty() {
            self.event_changed.notify_all();
        }
        Ok((result, Revoked { waits, has_changed }))
    }

    /// Waits until no mount uses names and attributes that a change has revoked. Not even a stop of the service ends this
    /// wait, which takes at most [`NAME_LEASE`] and [`BATCH`].
    pub(super) async fn wait_for_revoked(&self, revoked: Revoked) {
        let known_from = if revoked.has_changed { self.names_known_from } else { Nanos::ZERO };
        if revoked.waits.is_empty() && known_from == Nanos::ZERO {
            return;
        }
        loop {
            let epoch = self.event_changed.epoch();
            let now = self.env.now();
            let unanswered: Vec<&Revocation> = {
                let sessions = self.sessions.lock();
                let is_unanswered = |wait: &&Revocation| {
                    wait.event.is_none_or(|event| !sessions.has_acknowledged(wait.session, event))
                };
                revoked.waits.iter().filter(is_unanswered).collect()
            };
            let until = unanswered.iter().map(|wait| wait.until).max();
            let left = until.unwrap_or_default().max(known_from).saturating_sub(now);
            if left == Nanos::ZERO {
                let mut leases = self.core.name_leases.lock();
                unanswered.iter().for_each(|wait| leases.set_silent(wait.session, now));
                return;
            }
            self.event_changed.wait(epoch, Some(left)).await;
        }
    }

    /// Whether all leases, of this start and earlier ones, have ended.
    pub(super) fn has_no_leases(&self) -> bool {
        let now = self.env.now();
        let mut leases = self.core.name_leases.lock();
        leases.forget_ended(now);
        leases.is_empty() && self.names_known_from <= now
    }

    /// Whether names may be leased to the caller: it answers events, and a restart would know that there are leases.
    pub(super) async fn may_lease_names(&self, call: &Call<'_>) -> bool {
        if !self.sessions.lock().is_mount(call.ctx.session) {
            return false;
        }
        if self.has_recorded_leases.load(Ordering::Acquire) {
            return true;
        }
        let incarnation = self.core.incarnation;
        let recorded = self.journal.write(|t| -> Outcome<()> {
            record_leases(t, incarnation);
            Ok(())
        });
        let Ok(((), point)) = recorded else { return false };
        let is_durable = self.journal.durable(point).await.is_ok();
        self.has_recorded_leases.fetch_or(is_durable, Ordering::AcqRel);
        is_durable
    }
}

/// Records that the start `incarnation` may grant leases, or that leases of an earlier one may not have ended.
pub(super) fn record_leases(t: &mut dyn Transaction, incarnation: u32) {
    put_row(t, Table::Counters, LEASING_START_KEY, &incarnation);
}

/// Records that there are no leases.
pub(super) fn forget_leases(t: &mut dyn Transaction) {
    t.delete(Table::Counters, LEASING_START_KEY);
}

/// Whether the start `incarnation` may have granted leases.
pub(super) fn had_leases(s: &dyn Snapshot, incarnation: u32) -> Outcome<bool> {
    Ok(row::<u32>(s, Table::Counters, LEASING_START_KEY)? == Some(incarnation))
}
