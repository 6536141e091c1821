//! The judge: records all operations of a search and checks them against the models.

use super::bytes::{ChangeId, Moment};
use super::coverage::Coverage;
use super::file::{FileModel, HandleKey};
use super::locks::{GrantedLock, Locks};
use super::names::{Answer, Names, Request};
use super::rules::Rules;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weft_client::Error;
use weft_core::{FileId, Nanos, TargetId};
use weft_env::sim::Control;

/// Time after the last fault during which it may still cause errors.
const ERRORS_AFTER_FAULT: Nanos = Nanos::from_s(90);
/// Longest duration of an operation during faults.
const DEADLINE_WITH_FAULTS: Nanos = Nanos::from_s(400);
/// Longest duration of an operation without faults.
const DEADLINE: Nanos = Nanos::from_s(30);
/// Maximum number of lines of history.
const LINES_MAX: usize = 100_000;

/// A broken promise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The promise.
    pub promise: &'static str,
    /// Description of what happened.
    pub what: String,
    /// Virtual time at which it happened.
    pub at: Nanos,
}

/// An operation in progress.
struct PendingOp {
    client: u32,
    what: String,
    since: Nanos,
}

/// State of the models.
pub struct State {
    moment: Moment,
    ids: u32,
    /// All files that were opened.
    pub files: BTreeMap<FileId, FileModel>,
    /// The namespace.
    pub names: Names,
    /// Rules of directories.
    pub rules: Rules,
    /// Locks.
    pub locks: Locks,
    /// Counters of operations, faults and checks.
    pub coverage: Coverage,
    violation: Option<Violation>,
    pending: BTreeMap<u32, PendingOp>,
    /// Number of active faults.
    active_faults: u32,
    errors_until: Nanos,
    had_outage: bool,
    /// Whether an SSD may have failed with bytes that no disk has.
    ssd_may_have_failed: bool,
    /// A write to a target with checksums may have failed halfway.
    blocks_may_be_torn: bool,
    /// Files of which a datafile was damaged outside of Weft.
    damaged: BTreeSet<FileId>,
    /// Number of disturbances of connections to the metadata server so far, and the number of active ones.
    link_disturbances: (u64, u32),
    /// Latest operation that had begun when a reply first reported that the metadata log has failed.
    log_failed: Option<u32>,
    /// Longest duration of an operation.
    longest: Nanos,
    verbose: bool,
    lines: Vec<String>,
}

/// The judge, shared by all tasks of a search.
#[derive(Clone)]
pub struct Judge {
    control: Control,
    state: Arc<Mutex<State>>,
}

impl Judge {
    /// Creates a judge that has recorded nothing.
    pub fn new(control: Control, verbose: bool) -> Self {
        let state = State {
            moment: 1,
            ids: 0,
            files: BTreeMap::new(),
            names: Names::default(),
            rules: Rules::default(),
            locks: Locks::default(),
            coverage: Coverage::default(),
            violation: None,
            pending: BTreeMap::new(),
            active_faults: 0,
            errors_until: Nanos::ZERO,
            had_outage: false,
            ssd_may_have_failed: false,
            blocks_may_be_torn: false,
            damaged: BTreeSet::new(),
            link_disturbances: (0, 0),
            log_failed: None,
            longest: Nanos::ZERO,
            verbose,
            lines: Vec::new(),
        };
        Self { control, state: Arc::new(Mutex::new(state)) }
    }

    /// Calls `f` with the state and a new moment.
    pub fn now<R>(&self, f: impl FnOnce(&mut State, Moment) -> R) -> R {
        let mut state = self.state.lock();
        state.moment += 1;
        let moment = state.moment;
        f(&mut state, moment)
    }

    /// Returns a new operation number.
    pub fn id(&self) -> u32 {
        self.now(|state, _| {
            state.ids += 1;
            state.ids
        })
    }

    /// Adds a line to the history.
    pub fn say(&self, line: impl FnOnce() -> String) {
        let mut state = self.state.lock();
        if state.verbose && state.lines.len() < LINES_MAX {
            let at = self.control.elapsed();
            state.lines.push(format!("{:>14.6} {}", at.0 as f64 / 1e9, line()));
        }
    }

    /// Takes the history so far.
    pub fn lines(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().lines)
    }

    /// Records a broken promise. Only the first one is kept.
    pub fn violated(&self, promise: &'static str, what: String) {
        self.say(|| format!("VIOLATION of {promise}: {what}"));
        let at = self.control.elapsed();
        self.state.lock().violation.get_or_insert(Violation { promise, what, at });
    }

    /// Returns the first broken promise.
    pub fn violation(&self) -> Option<Violation> {
        self.state.lock().violation.clone()
    }

    /// Increments a coverage counter.
    pub fn hit(&self, what: &'static str) {
        self.state.lock().coverage.hit(what);
    }

    // Faults.

    /// A fault without duration has happened.
    pub fn instant_fault(&self) {
        let until = self.control.elapsed().saturating_add(ERRORS_AFTER_FAULT);
        let mut state = self.state.lock();
        state.errors_until = state.errors_until.max(until);
    }

    /// Sessions may have lost their state in the metadata server.
    pub fn outage(&self) {
        let mut state = self.state.lock();
        state.had_outage = true;
        state.link_disturbances.0 += 1;
        state.locks.doubt(|_| true);
    }

    /// A disturbance of connections begins or ends.
    pub fn set_lasting_outage(&self, begins: bool) {
        self.outage();
        let mut state = self.state.lock();
        state.link_disturbances.1 =
            if begins { state.link_disturbances.1 + 1 } else { state.link_disturbances.1 - 1 };
    }

    /// An SSD gets faults.
    pub fn ssd_may_fail(&self) {
        self.state.lock().ssd_may_have_failed = true;
    }

    /// Writes to a target with checksums get faults. A write that fails halfway leaves a block that does not match its
    /// checksum until the whole block is written.
    pub fn writes_fail_halfway(&self) {
        self.state.lock().blocks_may_be_torn = true;
    }

    /// Whether `error` reports bytes lost with a failed SSD or by a write that failed halfway.
    pub fn is_lost_with_ssd(&self, error: &Error) -> bool {
        let state = self.state.lock();
        let is_torn = || error.to_string().contains("do not match their checksums");
        error.errno() == libc::EIO && (state.ssd_may_have_failed || state.blocks_may_be_torn && is_torn())
    }

    /// Whether `error` reports missing bytes that no sync had covered before a machine lost power. Their length was
    /// recorded at the close.
    pub fn is_lost_with_power(&self, error: &Error) -> bool {
        let Error::Missing(missing) = error else { return false };
        let is_lost = self.file(missing.file.inode(), |model, _| model.may_miss_bytes());
        if is_lost {
            self.hit("read: bytes lost with power");
        }
        is_lost
    }

    /// Whether `error` reports missing bytes of a file that had a datafile on a disk that was given up.
    fn is_lost_with_disk(&self, error: &Error) -> bool {
        let Error::Missing(missing) = error else { return false };
        self.state.lock().damaged.contains(&missing.file.inode())
    }

    /// A datafile of this file was damaged.
    pub fn damaged(&self, file: FileId) {
        self.state.lock().damaged.insert(file);
    }

    /// Returns the files of which a datafile was damaged.
    pub fn all_damaged(&self) -> BTreeSet<FileId> {
        self.state.lock().damaged.clone()
    }

    /// Whether open files may have been lost.
    pub fn had_outage(&self) -> bool {
        self.state.lock().had_outage
    }

    /// Returns the number of disturbances so far.
    pub fn link_disturbances(&self) -> u64 {
        self.state.lock().link_disturbances.0
    }

    /// Whether a disturbance is active.
    pub fn link_is_disturbed(&self) -> bool {
        self.state.lock().link_disturbances.1 > 0
    }

    /// Returns a new moment.
    pub fn moment(&self) -> Moment {
        self.now(|_, now| now)
    }

    /// A fault with a duration begins.
    pub fn begin_fault(&self) {
        self.state.lock().active_faults += 1;
    }

    /// A fault with a duration ends.
    pub fn end_fault(&self) {
        self.state.lock().active_faults -= 1;
        self.instant_fault();
    }

    /// Whether errors may still result from faults.
    pub fn tolerates_errors(&self) -> bool {
        let state = self.state.lock();
        state.active_faults > 0 || self.control.elapsed() < state.errors_until
    }

    /// A machine with these targets lost power.
    pub fn power_lost(&self, targets: &[TargetId], with_metadata: bool) {
        self.now(|state, now| {
            state.files.values_mut().for_each(|file| file.lost_power(targets, now));
            if with_metadata {
                state.names.lost_power();
                state.log_failed = None;
            }
        });
    }

    // Operations.

    /// A client begins an operation.
    pub fn begins(&self, client: u32, what: impl FnOnce() -> String) -> u32 {
        let since = self.control.elapsed();
        let what = what();
        let id = self.id();
        self.say(|| format!("client {client} #{id} {what}"));
        self.state.lock().pending.insert(id, PendingOp { client, what, since });
        id
    }

    /// An operation has ended. Returns its duration.
    pub fn ends(&self, id: u32, how: impl FnOnce() -> String) -> Nanos {
        let now = self.control.elapsed();
        let took = {
            let mut state = self.state.lock();
            let began = state.pending.remove(&id).map_or(now, |pending| pending.since);
            let took = now.saturating_sub(began);
            state.longest = state.longest.max(took);
            took
        };
        self.say(|| format!("         #{id} -> {}", how()));
        took
    }

    /// A client died. Its operations will get no reply.
    pub fn client_died(&self, client: u32) {
        let mut state = self.state.lock();
        let lost: Vec<u32> =
            state.pending.iter().filter(|(_, op)| op.client == client).map(|(id, _)| *id).collect();
        for id in lost {
            state.pending.remove(&id);
            state.names.unknown(id);
        }
        state.locks.died(client);
    }

    /// Checks that no operation exceeds its deadline.
    pub fn check_liveness(&self) {
        let deadline = if self.tolerates_errors() { DEADLINE_WITH_FAULTS } else { DEADLINE };
        let now = self.control.elapsed();
        let late = {
            let state = self.state.lock();
            let late = state.pending.iter().find(|(_, op)| now.saturating_sub(op.since) > deadline);
            late.map(|(id, op)| format!("#{id} {} of client {} since {}", op.what, op.client, op.since))
        };
        if let Some(late) = late {
            self.violated("no hang", late);
        }
    }

    /// Returns the longest duration of an operation.
    pub fn longest(&self) -> Nanos {
        self.state.lock().longest
    }

    /// Checks that active or recent faults explain `error`. Reports a violation and returns `false` otherwise.
    pub fn check_excuse(&self, error: &Error, legal: &[i32]) -> bool {
        let errno = error.errno();
        self.now(|state, _| {
            state.coverage.hit(match errno {
                libc::EIO => "error EIO",
                libc::ENOSPC => "error ENOSPC",
                libc::ESTALE => "error ESTALE",
                _ => "error other",
            });
        });
        if self.is_lost_with_ssd(error) {
            self.hit("ssd: lost bytes");
            return true;
        }
        if self.is_lost_with_power(error) || self.is_lost_with_disk(error) {
            return true;
        }
        // After a fault of its disk, the log fails until its server is started again, however long that takes.
        let has_failed_before = self.state.lock().log_failed.is_some();
        if has_failed_before && errno == libc::EIO && error.to_string().contains("metadata log ") {
            return true;
        }
        if legal.contains(&errno) || (self.tolerates_errors() && [libc::EIO, libc::ESTALE].contains(&errno)) {
            return true;
        }
        self.violated("errors come from faults only", error.to_string());
        false
    }

    /// An unlock of this client got no reply. The client lets its session end, which releases its other locks.
    pub fn unlock_unanswered(&self, client: u32) {
        self.state.lock().locks.doubt(|of| of == client);
    }

    /// A client was granted a lock.
    pub fn locked(&self, id: u32, lock: GrantedLock) {
        let now = self.control.elapsed();
        self.hit("lock: granted");
        if let Some(other) = self.now(|state, _| state.locks.grant(lock, now)) {
            self.violated("locks exclude", format!("#{id} got a lock that {other:?} excludes"));
        }
    }

    /// A client finished a read or write that took `took`.
    pub fn used(&self, id: u32, client: u32, file: FileId, took: Nanos) {
        let began = self.control.elapsed().saturating_sub(took);
        if let Some(lost) = self.now(|state, _| state.locks.used(client, file, began)) {
            self.violated("no access under a lost lock", format!("#{id}, though {lost:?} was lost"));
        }
    }

    // Names.

    /// A request about names is sent.
    pub fn name_requested(&self, id: u32, request: Request) {
        self.now(|state, _| state.names.begin(id, request));
    }

    /// A request about names was answered.
    pub fn name_answered(&self, id: u32, answer: &Answer) {
        let fits = self.now(|state, _| {
            let before = state.names.states();
            let fits = state.names.answered(id, answer);
            if before > 1 {
                state.coverage.hit("names: more than one state");
            }
            fits
        });
        if !fits {
            self.violated("names change once and in order", format!("#{id} got {answer:?}"));
        }
    }

    /// A request about names got no usable reply. One that took no time was never sent, because the client knew that
    /// the server was down. After the metadata log has failed, only requests sent before the first report of the
    /// failure may take effect.
    pub fn name_unanswered(&self, id: u32, took: Nanos, error: &Error) {
        let log_failed = matches!(error, Error::Refused(_)) && error.to_string().contains("metadata log ");
        self.now(|state, _| {
            if took == Nanos::ZERO || log_failed && state.log_failed.is_some_and(|since| id > since) {
                return state.names.never_sent(id);
            }
            if log_failed {
                state.log_failed.get_or_insert(state.ids);
            }
            state.names.unknown(id);
            state.coverage.hit("names: unknown outcome");
        });
    }

    // Bytes.

    /// Calls `f` with the model of a file.
    pub fn file<R>(&self, file: FileId, f: impl FnOnce(&mut FileModel, Moment) -> R) -> R {
        self.now(|state, now| {
            let model = state.files.entry(file).or_insert_with(|| FileModel::new(now));
            f(model, now)
        })
    }

    /// A query by name begins. It may concern any file, so no model may drop earlier states.
    pub fn begin_name_query(&self) -> Moment {
        self.now(|state, now| {
            state.files.values_mut().for_each(|model| {
                model.reads.insert(now);
            });
            now
        })
    }

    /// The query by name that began at `began` has ended.
    pub fn end_name_query(&self, began: Moment) {
        self.now(|state, _| {
            state.files.values_mut().for_each(|model| {
                model.reads.remove(&began);
            })
        });
    }

    /// A read begins.
    pub fn begin_read(&self, file: FileId) -> Moment {
        self.file(file, |model, now| {
            model.reads.insert(now);
            now
        })
    }

    /// A read of up to `wanted` bytes from `offset` returned `bytes`.
    pub fn end_read(&self, id: u32, file: FileId, began: Moment, offset: u64, wanted: usize, bytes: &[u8]) {
        let (wrong, bounds, uncertain) = self.file(file, |model, now| {
            model.reads.remove(&began);
            let bounds = model.sizes.bounds(began);
            // Bytes read before a loss of power and returned after it may be lost.
            let learn = !model.lost_power_since(began);
            let wrong = model.bytes.check_and(learn, offset, bytes, began, now).err();
            let end = offset + bytes.len() as u64;
            if !bytes.is_empty() && learn {
                model.sizes.seen(end, began, now);
            }
            (wrong, bounds, model.bytes.uncertain())
        });
        if uncertain > 0 {
            self.hit("bytes: uncertain ranges at a read");
        }
        if let Some(wrong) = wrong {
            let of = |id: ChangeId| if id == 0 { "a hole".to_owned() } else { format!("#{id}") };
            let legal: Vec<String> = wrong.legal.iter().map(|id| of(*id)).collect();
            let belongs = wrong.belongs_to.map_or("nothing that was written there".to_owned(), of);
            let place = self.file(file, |model, _| {
                let place = |layout: &weft_core::Layout| layout.locate(weft_core::FileOffset(wrong.offset));
                model.layout.as_ref().map(place)
            });
            let place = place.map_or(String::new(), |at| format!(" ({} of {})", at.local, at.target));
            let what = format!(
                "#{id}: file {file} at {}{place}: {} bytes ({:#04x}..) of {belongs}, legal: {}",
                wrong.offset,
                wrong.run,
                wrong.got,
                legal.join(", ")
            );
            self.violated("the newest bytes", what);
        }
        let end = offset + bytes.len() as u64;
        if bytes.len() < wanted && end < bounds.0.min(offset + wanted as u64) {
            let what =
                format!("#{id}: file {file}: a read ends at {end}, and the size is at least {}", bounds.0);
            self.violated("sizes shrink by truncation only", what);
        }
        if !bytes.is_empty() && end > bounds.1 {
            let what =
                format!("#{id}: file {file}: a read ends at {end}, and the size is at most {}", bounds.1);
            self.violated("no bytes beyond the end", what);
        }
    }

    /// A read failed.
    pub fn fail_read(&self, file: FileId, began: Moment) {
        self.file(file, |model, _| model.reads.remove(&began));
    }

    /// A size query or an append begins. Earlier states must be kept until it ends.
    pub fn begin_size_query(&self, file: FileId) -> Moment {
        self.begin_read(file)
    }

    /// The size query or append that began at `began` has ended.
    pub fn end_size_query(&self, file: FileId, began: Moment) {
        self.fail_read(file, began);
    }

    /// A size query that began at `began` returned `size`. With `by_stat`, the size may be the one recorded in the
    /// inode.
    pub fn size_returned(&self, id: u32, file: FileId, began: Moment, size: u64, by_stat: bool) {
        let (least, most) = self.file(file, |model, now| {
            // A size recorded before the end was lost may be wrong even if reads show otherwise. `weft fsck` reports
            // it.
            let bounds = match by_stat && model.end_lost {
                true => model.sizes.bounds_of_changes(began),
                false => model.sizes.bounds(began),
            };
            if !model.end_lost && !model.lost_power_since(began) {
                model.sizes.seen(size, began, now);
            }
            bounds
        });
        if size < least || size > most {
            let what = format!("#{id}: file {file} has {size} bytes, and at least {least}, at most {most}");
            self.violated("sizes shrink by truncation only", what);
        }
        if least != most {
            self.hit("sizes: uncertain at a query");
        }
    }

    /// An append returned its offset.
    pub fn appended(&self, id: u32, file: FileId, began: Moment, offset: u64, len: u64) {
        let (bounds, over) = self.file(file, |model, _| {
            model.sizes.amend(id, 0);
            let over = model.append_at(offset, offset + len, began);
            (model.sizes.bounds(began), over)
        });
        if let Some((start, end)) = over {
            let what = format!("#{id}: file {file}: {len} bytes at {offset} overlap those at {start}..{end}");
            self.violated("appends do not overlap", what);
        }
        if offset < bounds.0 || offset > bounds.1 {
            let what =
                format!("#{id}: file {file}: appended at {offset}, between {} and {}", bounds.0, bounds.1);
            self.violated("appends go to the end", what);
        }
    }

    /// A sync by `handle` has ended.
    pub fn end_sync(&self, file: FileId, handle: HandleKey, began: Moment, ok: bool) {
        self.file(file, |model, now| match ok {
            true => model.synced(handle, began, now),
            false => model.not_synced(handle),
        });
    }

    /// No operation is in progress any more.
    pub fn quiesced(&self) {
        self.now(|state, now| {
            state.files.values_mut().for_each(|file| file.quiesced(now));
        });
    }
}
