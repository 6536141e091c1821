//! What everybody in a search tells, and what is wrong with it.

use super::bytes::{ChangeId, Moment};
use super::coverage::Coverage;
use super::file::{FileModel, HandleKey};
use super::locks::{Held, Locks};
use super::names::{Answer, Names, Request};
use super::rules::Rules;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weft_client::Error;
use weft_core::{FileId, Nanos, TargetId};
use weft_env::sim::Control;

/// For so long after the last fault errors may still come of it.
const AFTERMATH: Nanos = Nanos::from_s(90);
/// An operation may take this long while there are faults.
const PATIENCE_IN_TROUBLE: Nanos = Nanos::from_s(400);
/// And this long when all is well.
const PATIENCE: Nanos = Nanos::from_s(30);
/// Lines of history kept when nobody asked for all.
const LINES_MAX: usize = 100_000;

/// What was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Which promise does not hold.
    pub promise: &'static str,
    /// What happened.
    pub what: String,
    /// When, in virtual time.
    pub at: Nanos,
}

/// An operation under way.
struct UnderWay {
    client: u32,
    what: String,
    since: Nanos,
}

/// The state of the checkers.
pub struct State {
    moment: Moment,
    ids: u32,
    /// All files that anybody opened.
    pub files: BTreeMap<FileId, FileModel>,
    /// The namespace.
    pub names: Names,
    /// Rules of directories.
    pub rules: Rules,
    /// Locks.
    pub locks: Locks,
    /// What was reached.
    pub coverage: Coverage,
    violation: Option<Violation>,
    under_way: BTreeMap<u32, UnderWay>,
    /// Faults that last.
    lasting: u32,
    trouble_until: Nanos,
    had_outage: bool,
    /// An SSD may have failed with bytes that no disk has.
    ssd_may_have_failed: bool,
    /// A write to a target with checksums may have failed halfway.
    blocks_may_be_torn: bool,
    /// Files of which a datafile was damaged below Weft.
    damaged: BTreeSet<FileId>,
    /// What happened to connections to the metadata service so far, and what lasts.
    link_troubles: (u64, u32),
    /// The last operation that had begun when somebody was first told that the metadata log has failed.
    log_failed: Option<u32>,
    /// The longest that an operation took.
    longest: Nanos,
    verbose: bool,
    lines: Vec<String>,
}

/// The checkers, shared by all tasks of a search.
#[derive(Clone)]
pub struct Judge {
    control: Control,
    state: Arc<Mutex<State>>,
}

impl Judge {
    /// Nothing has happened yet.
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
            under_way: BTreeMap::new(),
            lasting: 0,
            trouble_until: Nanos::ZERO,
            had_outage: false,
            ssd_may_have_failed: false,
            blocks_may_be_torn: false,
            damaged: BTreeSet::new(),
            link_troubles: (0, 0),
            log_failed: None,
            longest: Nanos::ZERO,
            verbose,
            lines: Vec::new(),
        };
        Self { control, state: Arc::new(Mutex::new(state)) }
    }

    /// The state, and a new moment.
    pub fn now<R>(&self, f: impl FnOnce(&mut State, Moment) -> R) -> R {
        let mut state = self.state.lock();
        state.moment += 1;
        let moment = state.moment;
        f(&mut state, moment)
    }

    /// A new number.
    pub fn id(&self) -> u32 {
        self.now(|state, _| {
            state.ids += 1;
            state.ids
        })
    }

    /// Writes a line of history.
    pub fn say(&self, line: impl FnOnce() -> String) {
        let mut state = self.state.lock();
        if state.verbose && state.lines.len() < LINES_MAX {
            let at = self.control.elapsed();
            state.lines.push(format!("{:>14.6} {}", at.0 as f64 / 1e9, line()));
        }
    }

    /// The history so far.
    pub fn lines(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().lines)
    }

    /// Something does not hold. The first is kept.
    pub fn violated(&self, promise: &'static str, what: String) {
        self.say(|| format!("VIOLATION of {promise}: {what}"));
        let at = self.control.elapsed();
        self.state.lock().violation.get_or_insert(Violation { promise, what, at });
    }

    /// What does not hold.
    pub fn violation(&self) -> Option<Violation> {
        self.state.lock().violation.clone()
    }

    /// Counts.
    pub fn hit(&self, what: &'static str) {
        self.state.lock().coverage.hit(what);
    }

    // Faults.

    /// A fault that is over at once.
    pub fn fault(&self) {
        let until = self.control.elapsed().saturating_add(AFTERMATH);
        let mut state = self.state.lock();
        state.trouble_until = state.trouble_until.max(until);
    }

    /// Sessions may have lost what they had in the metadata service.
    pub fn outage(&self) {
        let mut state = self.state.lock();
        state.had_outage = true;
        state.link_troubles.0 += 1;
        state.locks.doubt(|_| true);
    }

    /// The same goes on from now on, or ends.
    pub fn outage_lasts(&self, begins: bool) {
        self.outage();
        let mut state = self.state.lock();
        state.link_troubles.1 = if begins { state.link_troubles.1 + 1 } else { state.link_troubles.1 - 1 };
    }

    /// An SSD gets errors.
    pub fn ssd_may_fail(&self) {
        self.state.lock().ssd_may_have_failed = true;
    }

    /// Writes to a target with checksums fail, some of them halfway: such a block does not match its checksum until it is
    /// written as a whole.
    pub fn writes_fail_halfway(&self) {
        self.state.lock().blocks_may_be_torn = true;
    }

    /// Whether `error` tells of bytes that are lost with a failed SSD, or by a write that failed halfway.
    pub fn is_lost_with_ssd(&self, error: &Error) -> bool {
        let state = self.state.lock();
        let is_torn = || error.to_string().contains("do not match their checksums");
        error.errno() == libc::EIO && (state.ssd_may_have_failed || state.blocks_may_be_torn && is_torn())
    }

    /// Whether `error` tells of bytes of a file that no sync had made safe before a machine lost power: what was written and
    /// closed is recorded, and missed.
    pub fn is_lost_with_power(&self, error: &Error) -> bool {
        let Error::Missing(missing) = error else { return false };
        let is_lost = self.file(missing.file.inode(), |model, _| model.may_miss_bytes());
        if is_lost {
            self.hit("read: bytes that power took");
        }
        is_lost
    }

    /// A datafile of this file was damaged.
    pub fn damaged(&self, file: FileId) {
        self.state.lock().damaged.insert(file);
    }

    /// Files of which a datafile was damaged.
    pub fn all_damaged(&self) -> BTreeSet<FileId> {
        self.state.lock().damaged.clone()
    }

    /// Whether open files may have been lost.
    pub fn had_outage(&self) -> bool {
        self.state.lock().had_outage
    }

    /// Counts outages.
    pub fn link_troubles(&self) -> u64 {
        self.state.lock().link_troubles.0
    }

    /// Whether one lasts.
    pub fn link_is_troubled(&self) -> bool {
        self.state.lock().link_troubles.1 > 0
    }

    /// The present moment.
    pub fn moment(&self) -> Moment {
        self.now(|_, now| now)
    }

    /// A fault that lasts begins.
    pub fn fault_begins(&self) {
        self.state.lock().lasting += 1;
    }

    /// It ends.
    pub fn fault_ends(&self) {
        self.state.lock().lasting -= 1;
        self.fault();
    }

    /// Whether errors may come of faults.
    pub fn in_trouble(&self) -> bool {
        let state = self.state.lock();
        state.lasting > 0 || self.control.elapsed() < state.trouble_until
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

    /// A client begins something.
    pub fn begins(&self, client: u32, what: impl FnOnce() -> String) -> u32 {
        let since = self.control.elapsed();
        let what = what();
        let id = self.id();
        self.say(|| format!("client {client} #{id} {what}"));
        self.state.lock().under_way.insert(id, UnderWay { client, what, since });
        id
    }

    /// It ended: how long it took.
    pub fn ends(&self, id: u32, how: impl FnOnce() -> String) -> Nanos {
        let now = self.control.elapsed();
        let took = {
            let mut state = self.state.lock();
            let began = state.under_way.remove(&id).map_or(now, |under_way| under_way.since);
            let took = now.saturating_sub(began);
            state.longest = state.longest.max(took);
            took
        };
        self.say(|| format!("         #{id} -> {}", how()));
        took
    }

    /// A client died: what it did is never answered.
    pub fn client_died(&self, client: u32) {
        let mut state = self.state.lock();
        let lost: Vec<u32> =
            state.under_way.iter().filter(|(_, op)| op.client == client).map(|(id, _)| *id).collect();
        for id in lost {
            state.under_way.remove(&id);
            state.names.unknown(id);
        }
        state.locks.died(client);
    }

    /// Whether something takes too long.
    pub fn check_liveness(&self) {
        let patience = if self.in_trouble() { PATIENCE_IN_TROUBLE } else { PATIENCE };
        let now = self.control.elapsed();
        let late = {
            let state = self.state.lock();
            let late = state.under_way.iter().find(|(_, op)| now.saturating_sub(op.since) > patience);
            late.map(|(id, op)| format!("#{id} {} of client {} since {}", op.what, op.client, op.since))
        };
        if let Some(late) = late {
            self.violated("no hang", late);
        }
    }

    /// The longest operation.
    pub fn longest(&self) -> Nanos {
        self.state.lock().longest
    }

    /// An error came: whether one may come of the faults there are. One that may not is a violation.
    pub fn excused(&self, error: &Error, legal: &[i32]) -> bool {
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
            self.hit("ssd: bytes that are lost");
            return true;
        }
        if self.is_lost_with_power(error) {
            return true;
        }
        if legal.contains(&errno) || (self.in_trouble() && [libc::EIO, libc::ESTALE].contains(&errno)) {
            return true;
        }
        self.violated("errors only of faults", error.to_string());
        false
    }

    /// An unlock of this client was not heard: it lets its session end, and with it its other locks.
    pub fn unlock_unheard(&self, client: u32) {
        self.state.lock().locks.doubt(|of| of == client);
    }

    /// Somebody was told that he has a lock.
    pub fn locked(&self, id: u32, lock: Held) {
        let now = self.control.elapsed();
        self.hit("lock: granted");
        if let Some(other) = self.now(|state, _| state.locks.granted(lock, now)) {
            self.violated("locks exclude", format!("#{id} got a lock that {other:?} excludes"));
        }
    }

    /// A client read or wrote a file in an operation that took so long and has just ended.
    pub fn used(&self, id: u32, client: u32, file: FileId, took: Nanos) {
        let began = self.control.elapsed().saturating_sub(took);
        if let Some(lost) = self.now(|state, _| state.locks.used(client, file, began)) {
            self.violated("nothing is done under a lost lock", format!("#{id}, though {lost:?} was lost"));
        }
    }

    // Names.

    /// A request about names is sent.
    pub fn asks(&self, id: u32, request: Request) {
        self.now(|state, _| state.names.begin(id, request));
    }

    /// Its answer.
    pub fn told(&self, id: u32, answer: &Answer) {
        let fits = self.now(|state, _| {
            let before = state.names.states();
            let fits = state.names.answered(id, answer);
            if before > 1 {
                state.coverage.hit("names: more than one state");
            }
            fits
        });
        if !fits {
            self.violated("names change once and in order", format!("#{id} was told {answer:?}"));
        }
    }

    /// There is none. What took no time was not sent: the server was known not to answer. A metadata service whose log has
    /// failed changes nothing more: only what was under way when it first said so may be done.
    pub fn never_told(&self, id: u32, took: Nanos, error: &Error) {
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

    /// A file that a client has open.
    pub fn file<R>(&self, file: FileId, f: impl FnOnce(&mut FileModel, Moment) -> R) -> R {
        self.now(|state, now| {
            let model = state.files.entry(file).or_insert_with(|| FileModel::new(now));
            f(model, now)
        })
    }

    /// Somebody asks by name: of no file may be forgotten what was before.
    pub fn begin_asking_by_name(&self) -> Moment {
        self.now(|state, now| {
            state.files.values_mut().for_each(|model| {
                model.reads.insert(now);
            });
            now
        })
    }

    /// He has asked.
    pub fn asked_by_name(&self, began: Moment) {
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

    /// A read from `offset` of up to `wanted` bytes gave `bytes`.
    pub fn end_read(&self, id: u32, file: FileId, began: Moment, offset: u64, wanted: usize, bytes: &[u8]) {
        let (wrong, bounds, uncertain) = self.file(file, |model, now| {
            model.reads.remove(&began);
            let bounds = model.sizes.bounds(began);
            // What was seen before a loss of power, and told after it, may be lost.
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
            let what = format!("#{id}: file {file}: a read ends at {end}, the size is at least {}", bounds.0);
            self.violated("sizes shrink by cuts alone", what);
        }
        if !bytes.is_empty() && end > bounds.1 {
            let what = format!("#{id}: file {file}: a read ends at {end}, the size is at most {}", bounds.1);
            self.violated("no bytes behind the end", what);
        }
    }

    /// A read failed.
    pub fn fail_read(&self, file: FileId, began: Moment) {
        self.file(file, |model, _| model.reads.remove(&began));
    }

    /// Somebody asks for a size, or appends: what was before must be remembered until [`asked`](Self::asked).
    pub fn begin_asking(&self, file: FileId) -> Moment {
        self.begin_read(file)
    }

    /// He has asked.
    pub fn asked(&self, file: FileId, began: Moment) {
        self.fail_read(file, began);
    }

    /// Somebody who asked from `began` was told that the file is `size` long, perhaps as the metadata service has it
    /// recorded.
    pub fn size_told(&self, id: u32, file: FileId, began: Moment, size: u64, by_stat: bool) {
        let (least, most) = self.file(file, |model, now| {
            // What was recorded before the end was lost may be wrong, whatever reads show: `weft fsck` tells.
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
            self.violated("sizes shrink by cuts alone", what);
        }
        if least != most {
            self.hit("sizes: uncertain at a look");
        }
    }

    /// An append was told where it went.
    pub fn appended(&self, id: u32, file: FileId, began: Moment, offset: u64, len: u64) {
        let (bounds, over) = self.file(file, |model, _| {
            model.sizes.amend(id, 0);
            let over = model.append_at(offset, offset + len, began);
            (model.sizes.bounds(began), over)
        });
        if let Some((start, end)) = over {
            let what =
                format!("#{id}: file {file}: {len} bytes at {offset} lie over those at {start}..{end}");
            self.violated("appends lie behind each other", what);
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

    /// Nothing is under way any more.
    pub fn quiet(&self) {
        self.now(|state, now| {
            state.files.values_mut().for_each(|file| file.quiet(now));
        });
    }
}
