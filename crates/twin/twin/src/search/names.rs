//! Model of the namespace: every state that agrees with the replies so far.
//!
//! The model is a small namespace of a few directories with a few names each. When a request is answered, the model
//! tries all orders in which the overlapping requests may have been served. It keeps the orders in which the request
//! was served between its start and its reply and would have got this reply. A request without a reply may be served at
//! any later time, once, or never. When the metadata server loses power, requests that were served and not answered may
//! be undone, latest first.
//!
//! Two rules keep the number of states small without dropping a possible reply:
//!
//! - The reply that a request would get where it changes nothing is noted in each state, instead of creating a new
//!   state.
//! - Before a request is answered, only requests that may affect it are served, directly or through others. The rest
//!   may as well be served later. Serving a request later also exposes it longer to loss of power.
//!
//! A reply makes all requests durable that were served before the answered one. A visible effect of an unanswered
//! request proves nothing about durability, because other pending requests may have been served before it.

use std::collections::{BTreeMap, BTreeSet};

/// Number of directories, including the root as 0.
pub const DIRS: u8 = 3;
/// Number of names in each directory.
pub const NAMES: u8 = 4;
/// Number of states from which on the model gives up.
const STATES_MAX: usize = 4000;

/// Number of a request. It also identifies the file that the request created.
pub type RequestId = u32;

/// Numbers from here on identify files whose creation was undone.
const UNDONE: RequestId = 1 << 31;

/// A name in a directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct NameSlot {
    /// Number of the directory.
    pub dir: u8,
    /// Number of the name.
    pub name: u8,
}

/// A request about names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Request {
    /// Opens a file.
    Open { at: NameSlot, create: bool, exclusive: bool },
    /// Removes a name.
    Unlink(NameSlot),
    /// Creates a hard link.
    Link(NameSlot, NameSlot),
    /// Renames, replacing.
    Rename(NameSlot, NameSlot),
    /// Creates a directory.
    Mkdir(u8),
    /// Removes a directory.
    Rmdir(u8),
    /// Reads attributes.
    Stat(NameSlot),
    /// Sets the extended attribute.
    SetValue(NameSlot, u32),
    /// Reads the extended attribute.
    GetValue(NameSlot),
    /// Lists the files of a directory.
    List(u8),
}

/// Parts of the namespace that a request reads and writes, as bits for names, directories, link counts and attributes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Reach {
    reads: u32,
    writes: u32,
}

const LINKS: u32 = 1 << 30;
const VALUES: u32 = 1 << 31;

fn dir_bit(dir: u8) -> u32 {
    1 << (u32::from(DIRS) * u32::from(NAMES) + u32::from(dir))
}

fn slot_bit(at: NameSlot) -> u32 {
    1 << (u32::from(at.dir) * u32::from(NAMES) + u32::from(at.name))
}

/// Bits of a directory and all names in it.
fn dir_bits(dir: u8) -> u32 {
    (0..NAMES).fold(dir_bit(dir), |bits, name| bits | slot_bit(NameSlot { dir, name }))
}

impl Reach {
    fn joined(self, other: Self) -> Self {
        Self { reads: self.reads | other.reads, writes: self.writes | other.writes }
    }

    /// Whether the order of the two requests matters.
    fn meets(self, other: Self) -> bool {
        self.writes & (other.reads | other.writes) | other.writes & self.reads != 0
    }
}

impl Request {
    fn reach(&self) -> Reach {
        let at = |slot: NameSlot| slot_bit(slot) | dir_bit(slot.dir);
        let (reads, writes) = match *self {
            Self::Open { at: slot, create, .. } => (at(slot), if create { slot_bit(slot) } else { 0 }),
            Self::Unlink(slot) => (at(slot), slot_bit(slot) | LINKS),
            Self::Link(from, to) => (at(from) | at(to) | LINKS, slot_bit(to) | LINKS),
            Self::Rename(from, to) => (at(from) | at(to), slot_bit(from) | slot_bit(to) | LINKS),
            Self::Mkdir(dir) => (dir_bit(dir), dir_bit(dir)),
            Self::Rmdir(dir) => (dir_bits(dir), dir_bit(dir)),
            Self::Stat(slot) => (at(slot) | LINKS, 0),
            Self::SetValue(slot, _) => (at(slot), VALUES),
            Self::GetValue(slot) => (at(slot) | VALUES, 0),
            Self::List(dir) => (dir_bits(dir), 0),
        };
        Reach { reads, writes }
    }

    fn changes(&self) -> bool {
        match self {
            Self::Open { create, .. } => *create,
            Self::Stat(_) | Self::GetValue(_) | Self::List(_) => false,
            _ => true,
        }
    }
}

/// Reply of the metadata server. Files are identified by their file ids.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Success.
    Done,
    /// An error that depends on the namespace only.
    Errno(i32),
    /// Id of the opened file, and whether the request created it.
    Opened { file: u64, made: bool },
    /// Id of the file and its link count.
    Attr { file: u64, nlink: u32 },
    /// Value of the extended attribute.
    Value(Option<u32>),
    /// The names in a directory.
    Names(Vec<u8>),
}

/// Reply that a state of the model predicts. Files are identified by the request that created them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Prediction {
    /// No client waits for the reply.
    Unawaited,
    Done,
    Errno(i32),
    Opened {
        file: RequestId,
        made: bool,
    },
    Attr {
        file: RequestId,
        nlink: u32,
    },
    Value(Option<u32>),
    Names(Vec<u8>),
}

/// One state of the namespace.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Tree {
    dirs: [bool; DIRS as usize],
    /// Request that created the file of each name; 0 for no file.
    names: [[RequestId; NAMES as usize]; DIRS as usize],
    values: BTreeMap<RequestId, u32>,
}

impl Default for Tree {
    fn default() -> Self {
        let mut dirs = [false; DIRS as usize];
        dirs[0] = true;
        Self { dirs, names: Default::default(), values: BTreeMap::new() }
    }
}

impl Tree {
    fn at(&self, slot: NameSlot) -> Option<RequestId> {
        let there = self.names[slot.dir as usize][slot.name as usize];
        (self.dirs[slot.dir as usize] && there != 0).then_some(there)
    }

    fn set(&mut self, slot: NameSlot, file: RequestId) {
        self.names[slot.dir as usize][slot.name as usize] = file;
    }

    fn nlink(&self, file: RequestId) -> u32 {
        self.names.iter().flatten().filter(|there| **there == file).count() as u32
    }

    fn has_dir(&self, dir: u8) -> bool {
        self.dirs[dir as usize]
    }

    /// Serves a request.
    fn serve(&mut self, id: RequestId, request: &Request) -> Prediction {
        self.try_serve(id, request).unwrap_or_else(Prediction::Errno)
    }

    fn try_serve(&mut self, id: RequestId, request: &Request) -> Result<Prediction, i32> {
        let found = |tree: &Self, slot| tree.at(slot).ok_or(libc::ENOENT);
        match *request {
            Request::Open { at, create, exclusive } => match self.at(at) {
                Some(_) if create && exclusive => Err(libc::EEXIST),
                Some(file) => Ok(Prediction::Opened { file, made: false }),
                None if !create || !self.has_dir(at.dir) => Err(libc::ENOENT),
                None => {
                    self.set(at, id);
                    Ok(Prediction::Opened { file: id, made: true })
                }
            },
            Request::Unlink(at) => {
                found(self, at)?;
                self.set(at, 0);
                Ok(Prediction::Done)
            }
            Request::Link(from, to) => {
                let file = found(self, from)?;
                if !self.has_dir(to.dir) {
                    return Err(libc::ENOENT);
                }
                if self.at(to).is_some() {
                    return Err(libc::EEXIST);
                }
                self.set(to, file);
                Ok(Prediction::Attr { file, nlink: self.nlink(file) })
            }
            Request::Rename(from, to) => {
                let file = found(self, from)?;
                if !self.has_dir(to.dir) {
                    return Err(libc::ENOENT);
                }
                if self.at(to) != Some(file) {
                    self.set(from, 0);
                    self.set(to, file);
                }
                Ok(Prediction::Done)
            }
            Request::Mkdir(dir) => {
                if std::mem::replace(&mut self.dirs[dir as usize], true) {
                    return Err(libc::EEXIST);
                }
                Ok(Prediction::Done)
            }
            Request::Rmdir(dir) => {
                if !self.has_dir(dir) {
                    return Err(libc::ENOENT);
                }
                if self.names[dir as usize].iter().any(|file| *file != 0) {
                    return Err(libc::ENOTEMPTY);
                }
                self.dirs[dir as usize] = false;
                Ok(Prediction::Done)
            }
            Request::Stat(at) => {
                let file = found(self, at)?;
                Ok(Prediction::Attr { file, nlink: self.nlink(file) })
            }
            Request::SetValue(at, value) => {
                let file = found(self, at)?;
                self.values.insert(file, value);
                Ok(Prediction::Done)
            }
            Request::GetValue(at) => {
                let file = found(self, at)?;
                Ok(Prediction::Value(self.values.get(&file).copied()))
            }
            Request::List(dir) => {
                if !self.has_dir(dir) {
                    return Err(libc::ENOENT);
                }
                let names = (0..NAMES).filter(|name| self.at(NameSlot { dir, name: *name }).is_some());
                Ok(Prediction::Names(names.collect()))
            }
        }
    }
}

/// One possible sequence of events so far.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct State {
    tree: Tree,
    /// File ids by the request that created the file.
    numbers: BTreeMap<RequestId, u64>,
    /// Predicted replies of requests that have taken effect and are not answered.
    served: BTreeMap<RequestId, Prediction>,
    /// Requests that have taken effect and may not be durable, in order, each with the tree before it.
    unstable: Vec<(RequestId, Tree)>,
    /// Predicted replies of pending requests for the case that they have no effect, in every state since they were
    /// sent.
    idle: BTreeMap<RequestId, BTreeSet<Prediction>>,
}

impl State {
    /// Returns the state after `request` was served, if that changes the tree.
    fn serve(&self, id: RequestId, request: &Request, is_awaited: bool) -> Option<Self> {
        let mut tree = self.tree.clone();
        let predicted = tree.serve(id, request);
        if tree == self.tree {
            return None;
        }
        let mut next = self.clone();
        next.unstable.push((id, std::mem::replace(&mut next.tree, tree)));
        next.served.insert(id, if is_awaited { predicted } else { Prediction::Unawaited });
        next.idle.remove(&id);
        Some(next)
    }

    /// Notes the reply that `open` would get in this state, if it has no effect here.
    fn note_prediction(&mut self, id: RequestId, open: &Open) {
        if open.is_awaited && !self.served.contains_key(&id) {
            let mut tree = self.tree.clone();
            let predicted = tree.serve(id, &open.request);
            if tree == self.tree {
                self.idle.entry(id).or_default().insert(predicted);
            }
        }
    }

    /// The creation by request `id` is undone. If the request is served again, it creates another file. Replies that
    /// mention the first file may still arrive.
    fn forget_file(&mut self, id: RequestId) {
        let of = |predicted: &Prediction| match predicted {
            Prediction::Opened { file, .. } | Prediction::Attr { file, .. } => Some(*file),
            _ => None,
        };
        let is_known = |state: &Self, file| {
            let predicted = state.idle.values().flatten().any(|predicted| of(predicted) == Some(file));
            predicted || state.numbers.contains_key(&file)
        };
        if !is_known(self, id) {
            return;
        }
        let gone = (UNDONE..).find(|file| !is_known(self, *file)).expect("fewer files than numbers");
        if let Some(number) = self.numbers.remove(&id) {
            self.numbers.insert(gone, number);
        }
        for predicted in self.idle.values_mut() {
            *predicted = std::mem::take(predicted)
                .into_iter()
                .map(|predicted| match predicted {
                    Prediction::Opened { file, made } if file == id => {
                        Prediction::Opened { file: gone, made }
                    }
                    Prediction::Attr { file, nlink } if file == id => Prediction::Attr { file: gone, nlink },
                    other => other,
                })
                .collect();
        }
    }

    fn same_file(&mut self, made_by: RequestId, number: u64) -> bool {
        if self.numbers.iter().any(|(by, other)| *other == number && *by != made_by) {
            return false;
        }
        *self.numbers.entry(made_by).or_insert(number) == number
    }

    /// Collects the states that remain after `id` was answered with `answer`.
    fn answered(&self, id: RequestId, answer: &Answer, out: &mut BTreeSet<Self>) {
        if let Some(predicted) = self.served.get(&id) {
            let mut next = self.clone();
            next.served.remove(&id);
            // Requests served before a durable one are durable.
            if let Some(at) = next.unstable.iter().position(|(unstable, _)| *unstable == id) {
                next.unstable.drain(..=at);
            }
            out.extend(next.if_predicted(predicted, answer));
            return;
        }
        for predicted in self.idle.get(&id).into_iter().flatten() {
            let mut next = self.clone();
            next.idle.remove(&id);
            out.extend(next.if_predicted(predicted, answer));
        }
    }

    /// Returns this state if the predicted reply agrees with the real one.
    fn if_predicted(mut self, predicted: &Prediction, answer: &Answer) -> Option<Self> {
        let fits = match (predicted, answer) {
            (Prediction::Done, Answer::Done) => true,
            (Prediction::Errno(a), Answer::Errno(b)) => a == b,
            (Prediction::Opened { file, made }, Answer::Opened { file: number, made: was_made }) => {
                made == was_made && self.same_file(*file, *number)
            }
            (Prediction::Attr { file, nlink }, Answer::Attr { file: number, nlink: links }) => {
                nlink == links && self.same_file(*file, *number)
            }
            (Prediction::Value(a), Answer::Value(b)) => a == b,
            (Prediction::Names(a), Answer::Names(b)) => a == b,
            _ => false,
        };
        fits.then_some(self)
    }

    /// Whether two states differ only in `idle`.
    fn is_alike(&self, other: &Self) -> bool {
        (&self.tree, &self.numbers, &self.served, &self.unstable)
            == (&other.tree, &other.numbers, &other.served, &other.unstable)
    }

    /// Whether every continuation of `other` is also one of this state. Both must be alike.
    fn covers(&self, other: &Self) -> bool {
        let within = |(id, predicted): (&RequestId, &BTreeSet<Prediction>)| {
            self.idle.get(id).is_some_and(|own| predicted.is_subset(own))
        };
        other.idle.iter().all(within)
    }

    /// Collects the states that loss of power may leave.
    fn after_power_loss(&self, out: &mut BTreeSet<Self>) {
        for kept in 0..=self.unstable.len() {
            let mut next = self.clone();
            if let Some((_, tree)) = self.unstable.get(kept) {
                next.tree = tree.clone();
            }
            let undone: Vec<RequestId> = next.unstable.drain(kept..).map(|(id, _)| id).collect();
            for id in undone {
                next.served.remove(&id);
                next.forget_file(id);
            }
            next.unstable.clear();
            out.insert(next);
        }
    }
}

/// A request that was not answered yet.
#[derive(Clone, Debug)]
struct Open {
    request: Request,
    is_awaited: bool,
}

/// Model of the namespace: all possible states.
#[derive(Clone, Debug)]
pub struct Names {
    states: BTreeSet<State>,
    open: BTreeMap<RequestId, Open>,
    /// Whether the model gave up because there were too many states.
    pub gave_up: bool,
    /// Greatest number of states at any time.
    pub states_max: usize,
}

impl Default for Names {
    fn default() -> Self {
        let states = BTreeSet::from([State::default()]);
        Self { states, open: BTreeMap::new(), gave_up: false, states_max: 1 }
    }
}

impl Names {
    /// A request is sent.
    pub fn begin(&mut self, id: RequestId, request: Request) {
        let open = Open { request, is_awaited: true };
        self.change_each(|state| state.note_prediction(id, &open));
        self.open.insert(id, open);
    }

    fn change_each(&mut self, change: impl Fn(&mut State)) {
        let changed = std::mem::take(&mut self.states).into_iter().map(|mut state| {
            change(&mut state);
            state
        });
        self.states = changed.collect();
    }

    /// Returns the pending changes that may affect the reply to `id`, directly or through each other.
    fn concerned(&self, id: RequestId) -> Vec<RequestId> {
        let mut reach = self.open[&id].request.reach();
        let mut left: Vec<RequestId> = self.open.keys().copied().filter(|other| *other != id).collect();
        left.retain(|other| self.open[other].request.changes());
        let mut found = vec![id];
        loop {
            let (near, far): (Vec<_>, Vec<_>) =
                left.into_iter().partition(|other| self.open[other].request.reach().meets(reach));
            if near.is_empty() {
                if found.len() > 1 {
                    found.extend(far.into_iter().filter(|other| self.open[other].is_awaited));
                }
                return found;
            }
            reach = near.iter().fold(reach, |all, other| all.joined(self.open[other].request.reach()));
            found.extend(near);
            left = far;
        }
    }

    /// A request was answered. Returns `false` if no order of events explains the reply.
    pub fn answered(&mut self, id: RequestId, answer: &Answer) -> bool {
        if !self.open.contains_key(&id) {
            return true;
        }
        if self.gave_up {
            self.open.remove(&id);
            return true;
        }
        let concerned = self.concerned(id);
        let mut todo: Vec<State> = std::mem::take(&mut self.states).into_iter().collect();
        let mut seen: BTreeSet<State> = todo.iter().cloned().collect();
        let mut next = BTreeSet::new();
        while let Some(state) = todo.pop() {
            state.answered(id, answer, &mut next);
            if state.served.contains_key(&id) {
                continue;
            }
            // Serve another request first.
            for other in &concerned {
                let open = &self.open[other];
                if state.served.contains_key(other) {
                    continue;
                }
                if let Some(mut after) = state.serve(*other, &open.request, open.is_awaited) {
                    self.open.iter().for_each(|(id, open)| after.note_prediction(*id, open));
                    if seen.insert(after.clone()) {
                        todo.push(after);
                    }
                }
            }
            if seen.len() > STATES_MAX * 8 || next.len() > STATES_MAX {
                self.give_up();
                return true;
            }
        }
        self.open.remove(&id);
        self.states_max = self.states_max.max(next.len());
        let fits = !next.is_empty();
        self.states = without_covered(next);
        fits
    }

    /// A request will get no reply.
    pub fn unknown(&mut self, id: RequestId) {
        let Some(open) = self.open.get_mut(&id) else { return };
        let changes = open.request.changes();
        open.is_awaited = false;
        if !changes {
            self.open.remove(&id);
        }
        self.change_each(|state| {
            if let Some(predicted) = state.served.get_mut(&id) {
                *predicted = Prediction::Unawaited;
            }
            state.idle.remove(&id);
        });
    }

    /// The metadata server has lost power.
    pub fn lost_power(&mut self) {
        let mut left = BTreeSet::new();
        self.states.iter().for_each(|state| state.after_power_loss(&mut left));
        self.states = left;
        let open = std::mem::take(&mut self.open);
        self.change_each(|state| open.iter().for_each(|(id, open)| state.note_prediction(*id, open)));
        self.open = open;
        if self.states.len() > STATES_MAX {
            self.give_up();
        }
    }

    /// A request turns out to have never been sent.
    pub fn never_sent(&mut self, id: RequestId) {
        self.open.remove(&id);
        self.states.retain(|state| !state.served.contains_key(&id));
        self.change_each(|state| drop(state.idle.remove(&id)));
    }

    /// Returns the number of possible states.
    pub fn states(&self) -> usize {
        self.states.len()
    }

    fn give_up(&mut self) {
        self.gave_up = true;
        self.states.clear();
    }
}

/// Drops states whose continuations are all continuations of another state.
fn without_covered(states: BTreeSet<State>) -> BTreeSet<State> {
    let all: Vec<State> = states.into_iter().collect();
    let mut kept = BTreeSet::new();
    // Alike states are adjacent.
    for group in all.chunk_by(State::is_alike) {
        let covered = |state: &State| group.iter().any(|other| other != state && other.covers(state));
        kept.extend(group.iter().filter(|state| !covered(state)).cloned());
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NameSlot = NameSlot { dir: 0, name: 0 };
    const B: NameSlot = NameSlot { dir: 0, name: 1 };
    const MAKE: Request = Request::Open { at: A, create: true, exclusive: true };

    fn ask(names: &mut Names, id: RequestId, request: Request, answer: Answer) -> bool {
        names.begin(id, request);
        names.answered(id, &answer)
    }

    #[test]
    fn sequential_requests_have_one_answer() {
        let mut names = Names::default();
        assert!(ask(&mut names, 1, MAKE, Answer::Opened { file: 70, made: true }));
        assert!(ask(&mut names, 2, MAKE, Answer::Errno(libc::EEXIST)));
        assert!(ask(&mut names, 3, Request::Link(A, B), Answer::Attr { file: 70, nlink: 2 }));
        assert!(ask(&mut names, 4, Request::Unlink(A), Answer::Done));
        let mut other = names.clone();
        assert!(!ask(&mut other, 5, Request::Stat(A), Answer::Attr { file: 70, nlink: 1 }));
        assert!(ask(&mut names, 5, Request::Stat(B), Answer::Attr { file: 70, nlink: 1 }));
        assert!(!ask(&mut names, 6, Request::Unlink(B), Answer::Errno(libc::ENOENT)));
    }

    #[test]
    fn one_of_two_concurrent_creations_wins() {
        for (first, second, fits) in [(true, false, true), (false, true, true), (true, true, false)] {
            let mut names = Names::default();
            names.begin(1, MAKE);
            names.begin(2, MAKE);
            let answer = |made, file| {
                if made { Answer::Opened { file, made } } else { Answer::Errno(libc::EEXIST) }
            };
            let got = names.answered(1, &answer(first, 70)) && names.answered(2, &answer(second, 71));
            assert_eq!(got, fits, "{first} {second}");
        }
    }

    #[test]
    fn an_unanswered_request_happens_once_or_never() {
        let mut names = Names::default();
        assert!(ask(&mut names, 1, MAKE, Answer::Opened { file: 70, made: true }));
        names.begin(2, Request::Rename(A, B));
        names.unknown(2);
        let mut other = names.clone();
        assert!(ask(&mut other, 3, Request::Stat(A), Answer::Attr { file: 70, nlink: 1 }), "not yet");
        assert!(ask(&mut names, 3, Request::Stat(B), Answer::Attr { file: 70, nlink: 1 }), "done");
        assert!(ask(&mut names, 4, MAKE, Answer::Opened { file: 71, made: true }));
        assert!(!ask(&mut names, 5, Request::Stat(B), Answer::Attr { file: 71, nlink: 1 }), "not twice");
        other.never_sent(2);
        assert!(!ask(&mut other, 4, Request::Stat(B), Answer::Attr { file: 70, nlink: 1 }), "never");
    }

    #[test]
    fn a_repeated_creation_after_an_undo_makes_another_file() {
        for seen in [false, true] {
            let mut names = Names::default();
            names.begin(1, MAKE);
            names.begin(2, Request::Stat(A));
            assert!(ask(&mut names, 3, MAKE, Answer::Errno(libc::EEXIST)), "it is there");
            let stat = Answer::Attr { file: 70, nlink: 1 };
            assert!(!seen || names.answered(2, &stat));
            names.lost_power();
            assert!(seen || names.answered(2, &stat), "an answer to a request before the power cut");
            let mut other = names.clone();
            assert!(names.answered(1, &Answer::Opened { file: 71, made: true }));
            assert!(ask(&mut names, 4, Request::Stat(A), Answer::Attr { file: 71, nlink: 1 }));
            assert!(!ask(&mut names, 5, Request::Stat(A), Answer::Attr { file: 70, nlink: 1 }));
            assert!(
                other.answered(1, &Answer::Opened { file: 70, made: true }),
                "or the creation was not undone"
            );
        }
    }

    #[test]
    fn an_early_visible_effect_is_not_durable_because_of_later_replies() {
        let mut names = Names::default();
        let other = Request::Open { at: B, create: true, exclusive: true };
        names.begin(1, other);
        names.begin(2, MAKE);
        assert!(
            ask(&mut names, 3, MAKE, Answer::Errno(libc::EEXIST)),
            "the second has taken effect and is not durable"
        );
        assert!(names.answered(1, &Answer::Opened { file: 70, made: true }));
        names.unknown(2);
        names.lost_power();
        assert!(ask(&mut names, 4, MAKE, Answer::Opened { file: 71, made: true }));
    }

    #[test]
    fn loss_of_power_undoes_unanswered_requests() {
        let mut names = Names::default();
        names.begin(1, MAKE);
        assert!(ask(&mut names, 2, Request::Stat(A), Answer::Attr { file: 70, nlink: 1 }), "seen early");
        let mut kept = names.clone();
        assert!(!ask(&mut kept, 3, Request::Stat(A), Answer::Errno(libc::ENOENT)));
        names.lost_power();
        let mut other = names.clone();
        assert!(ask(&mut names, 3, Request::Stat(A), Answer::Errno(libc::ENOENT)));
        assert!(ask(&mut other, 3, Request::Stat(A), Answer::Attr { file: 70, nlink: 1 }));
        assert!(other.answered(1, &Answer::Opened { file: 70, made: true }));
        other.lost_power();
        assert!(!ask(&mut other, 4, Request::Stat(A), Answer::Errno(libc::ENOENT)), "answered, so durable");
    }
}
