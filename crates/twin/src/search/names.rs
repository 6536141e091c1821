//! What names there may be: all orders in which the requests that overlapped may have been served.
//!
//! A small namespace (a few directories, a few names in each) is kept in every state that what was answered so far
//! allows. When a request is answered, those orders stay in which it was served between its beginning and its end and
//! would have got this answer. A request whose outcome nobody knows may be served at any later time, once, or never.
//! When the metadata service loses power, what was served and not answered yet may be undone, latest first.
//!
//! Two things keep the states few, and take none away that could give another answer. What a request would be told where
//! it changes nothing is noted with each state on the way instead of making a state of its own. And before a request that
//! is answered only those are served that have to do with it, by other requests perhaps: the others may as well be served
//! later, and are undone by loss of power the sooner for it. Only who is answered himself later on makes safe what was
//! served before him: where something is seen early that was not answered, others that are awaited may have come before it.

use std::collections::{BTreeMap, BTreeSet};

/// Directories, the root among them as 0.
pub const DIRS: u8 = 3;
/// Names in each.
pub const NAMES: u8 = 4;
/// More states than this are not followed.
const STATES_MAX: usize = 4000;

/// A request, by its number; also the file that it made.
pub type RequestId = u32;

/// Numbers from here on stand for files that were undone.
const UNDONE: RequestId = 1 << 31;

/// Where a name stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Spot {
    /// Which directory.
    pub dir: u8,
    /// Which name.
    pub name: u8,
}

/// A request about names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Request {
    /// Opens a file.
    Open { at: Spot, create: bool, exclusive: bool },
    /// Removes a name.
    Unlink(Spot),
    /// A further name.
    Link(Spot, Spot),
    /// Renames, replacing.
    Rename(Spot, Spot),
    /// Makes a directory.
    Mkdir(u8),
    /// Removes one.
    Rmdir(u8),
    /// Asks for attributes.
    Stat(Spot),
    /// Sets the one extended attribute.
    SetValue(Spot, u32),
    /// Asks for it.
    GetValue(Spot),
    /// Lists a directory's files.
    List(u8),
}

/// What a request looks at and changes, as bits: spots, directories, numbers of names, attributes.
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

fn spot_bit(at: Spot) -> u32 {
    1 << (u32::from(at.dir) * u32::from(NAMES) + u32::from(at.name))
}

/// All spots of a directory, and itself.
fn dir_bits(dir: u8) -> u32 {
    (0..NAMES).fold(dir_bit(dir), |bits, name| bits | spot_bit(Spot { dir, name }))
}

impl Reach {
    fn joined(self, other: Self) -> Self {
        Self { reads: self.reads | other.reads, writes: self.writes | other.writes }
    }

    /// Whether it matters which of the two comes first.
    fn meets(self, other: Self) -> bool {
        self.writes & (other.reads | other.writes) | other.writes & self.reads != 0
    }
}

impl Request {
    fn reach(&self) -> Reach {
        let at = |spot: Spot| spot_bit(spot) | dir_bit(spot.dir);
        let (reads, writes) = match *self {
            Self::Open { at: spot, create, .. } => (at(spot), if create { spot_bit(spot) } else { 0 }),
            Self::Unlink(spot) => (at(spot), spot_bit(spot) | LINKS),
            Self::Link(from, to) => (at(from) | at(to) | LINKS, spot_bit(to) | LINKS),
            Self::Rename(from, to) => (at(from) | at(to), spot_bit(from) | spot_bit(to) | LINKS),
            Self::Mkdir(dir) => (dir_bit(dir), dir_bit(dir)),
            Self::Rmdir(dir) => (dir_bits(dir), dir_bit(dir)),
            Self::Stat(spot) => (at(spot) | LINKS, 0),
            Self::SetValue(spot, _) => (at(spot), VALUES),
            Self::GetValue(spot) => (at(spot) | VALUES, 0),
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

/// What a server answered. Files are named by the numbers that the servers gave them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It was done.
    Done,
    /// An error that only the names decide.
    Errno(i32),
    /// This file, which the request made or not.
    Opened { file: u64, made: bool },
    /// This file, with so many names.
    Attr { file: u64, nlink: u32 },
    /// The extended attribute.
    Value(Option<u32>),
    /// The names in a directory.
    Names(Vec<u8>),
}

/// What a state of the namespace answers. Files are named by who made them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Told {
    /// Nobody waits for it.
    Nobody,
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
    /// Who made what stands there; 0 for nothing.
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
    fn at(&self, spot: Spot) -> Option<RequestId> {
        let there = self.names[spot.dir as usize][spot.name as usize];
        (self.dirs[spot.dir as usize] && there != 0).then_some(there)
    }

    fn set(&mut self, spot: Spot, file: RequestId) {
        self.names[spot.dir as usize][spot.name as usize] = file;
    }

    fn nlink(&self, file: RequestId) -> u32 {
        self.names.iter().flatten().filter(|there| **there == file).count() as u32
    }

    fn has_dir(&self, dir: u8) -> bool {
        self.dirs[dir as usize]
    }

    /// Serves a request.
    fn serve(&mut self, id: RequestId, request: &Request) -> Told {
        self.try_serve(id, request).unwrap_or_else(Told::Errno)
    }

    fn try_serve(&mut self, id: RequestId, request: &Request) -> Result<Told, i32> {
        let found = |tree: &Self, spot| tree.at(spot).ok_or(libc::ENOENT);
        match *request {
            Request::Open { at, create, exclusive } => match self.at(at) {
                Some(_) if create && exclusive => Err(libc::EEXIST),
                Some(file) => Ok(Told::Opened { file, made: false }),
                None if !create || !self.has_dir(at.dir) => Err(libc::ENOENT),
                None => {
                    self.set(at, id);
                    Ok(Told::Opened { file: id, made: true })
                }
            },
            Request::Unlink(at) => {
                found(self, at)?;
                self.set(at, 0);
                Ok(Told::Done)
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
                Ok(Told::Attr { file, nlink: self.nlink(file) })
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
                Ok(Told::Done)
            }
            Request::Mkdir(dir) => {
                if std::mem::replace(&mut self.dirs[dir as usize], true) {
                    return Err(libc::EEXIST);
                }
                Ok(Told::Done)
            }
            Request::Rmdir(dir) => {
                if !self.has_dir(dir) {
                    return Err(libc::ENOENT);
                }
                if self.names[dir as usize].iter().any(|file| *file != 0) {
                    return Err(libc::ENOTEMPTY);
                }
                self.dirs[dir as usize] = false;
                Ok(Told::Done)
            }
            Request::Stat(at) => {
                let file = found(self, at)?;
                Ok(Told::Attr { file, nlink: self.nlink(file) })
            }
            Request::SetValue(at, value) => {
                let file = found(self, at)?;
                self.values.insert(file, value);
                Ok(Told::Done)
            }
            Request::GetValue(at) => {
                let file = found(self, at)?;
                Ok(Told::Value(self.values.get(&file).copied()))
            }
            Request::List(dir) => {
                if !self.has_dir(dir) {
                    return Err(libc::ENOENT);
                }
                let names = (0..NAMES).filter(|name| self.at(Spot { dir, name: *name }).is_some());
                Ok(Told::Names(names.collect()))
            }
        }
    }
}

/// One possible course of events so far.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct State {
    tree: Tree,
    /// The servers' numbers of files, by who made them.
    numbers: BTreeMap<RequestId, u64>,
    /// Served with an effect and not answered yet (or never), with what they will be told.
    served: BTreeMap<RequestId, Told>,
    /// Served and perhaps not durable yet, in this order, each with the tree before it.
    fresh: Vec<(RequestId, Tree)>,
    /// What those that are awaited and were not served so would be told if they had no effect, at any time since they
    /// were sent.
    idle: BTreeMap<RequestId, BTreeSet<Told>>,
}

impl State {
    /// The state after `request` was served, if that has an effect.
    fn serve(&self, id: RequestId, request: &Request, is_awaited: bool) -> Option<Self> {
        let mut tree = self.tree.clone();
        let told = tree.serve(id, request);
        if tree == self.tree {
            return None;
        }
        let mut next = self.clone();
        next.fresh.push((id, std::mem::replace(&mut next.tree, tree)));
        next.served.insert(id, if is_awaited { told } else { Told::Nobody });
        next.idle.remove(&id);
        Some(next)
    }

    /// Notes what `open` would be told here where it has no effect.
    fn look(&mut self, id: RequestId, open: &Open) {
        if open.is_awaited && !self.served.contains_key(&id) {
            let mut tree = self.tree.clone();
            let told = tree.serve(id, &open.request);
            if tree == self.tree {
                self.idle.entry(id).or_default().insert(told);
            }
        }
    }

    /// What request `id` made is undone: should it be served again, it makes another file. Who was told of the first one
    /// before may hear that yet.
    fn forget_file(&mut self, id: RequestId) {
        let of = |told: &Told| match told {
            Told::Opened { file, .. } | Told::Attr { file, .. } => Some(*file),
            _ => None,
        };
        let is_known = |state: &Self, file| {
            let told = state.idle.values().flatten().any(|told| of(told) == Some(file));
            told || state.numbers.contains_key(&file)
        };
        if !is_known(self, id) {
            return;
        }
        let gone = (UNDONE..).find(|file| !is_known(self, *file)).expect("fewer files than numbers");
        if let Some(number) = self.numbers.remove(&id) {
            self.numbers.insert(gone, number);
        }
        for told in self.idle.values_mut() {
            *told = std::mem::take(told)
                .into_iter()
                .map(|told| match told {
                    Told::Opened { file, made } if file == id => Told::Opened { file: gone, made },
                    Told::Attr { file, nlink } if file == id => Told::Attr { file: gone, nlink },
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

    /// The states after `answer` came for `id`.
    fn answered(&self, id: RequestId, answer: &Answer, out: &mut BTreeSet<Self>) {
        if let Some(told) = self.served.get(&id) {
            let mut next = self.clone();
            next.served.remove(&id);
            // What was served before something that is durable is durable.
            if let Some(at) = next.fresh.iter().position(|(fresh, _)| *fresh == id) {
                next.fresh.drain(..=at);
            }
            out.extend(next.told(told, answer));
            return;
        }
        for told in self.idle.get(&id).into_iter().flatten() {
            let mut next = self.clone();
            next.idle.remove(&id);
            out.extend(next.told(told, answer));
        }
    }

    /// This state, if somebody may have got `answer` who was told `told`.
    fn told(mut self, told: &Told, answer: &Answer) -> Option<Self> {
        let fits = match (told, answer) {
            (Told::Done, Answer::Done) => true,
            (Told::Errno(a), Answer::Errno(b)) => a == b,
            (Told::Opened { file, made }, Answer::Opened { file: number, made: was_made }) => {
                made == was_made && self.same_file(*file, *number)
            }
            (Told::Attr { file, nlink }, Answer::Attr { file: number, nlink: links }) => {
                nlink == links && self.same_file(*file, *number)
            }
            (Told::Value(a), Answer::Value(b)) => a == b,
            (Told::Names(a), Answer::Names(b)) => a == b,
            _ => false,
        };
        fits.then_some(self)
    }

    /// Whether they differ in nothing but `idle`.
    fn is_like(&self, other: &Self) -> bool {
        (&self.tree, &self.numbers, &self.served, &self.fresh)
            == (&other.tree, &other.numbers, &other.served, &other.fresh)
    }

    /// Of two that are alike: whether whatever may come of `other` may come of this, too.
    fn covers(&self, other: &Self) -> bool {
        let within = |(id, told): (&RequestId, &BTreeSet<Told>)| {
            self.idle.get(id).is_some_and(|own| told.is_subset(own))
        };
        other.idle.iter().all(within)
    }

    /// All that loss of power may leave of it.
    fn after_power_loss(&self, out: &mut BTreeSet<Self>) {
        for kept in 0..=self.fresh.len() {
            let mut next = self.clone();
            if let Some((_, tree)) = self.fresh.get(kept) {
                next.tree = tree.clone();
            }
            let undone: Vec<RequestId> = next.fresh.drain(kept..).map(|(id, _)| id).collect();
            for id in undone {
                next.served.remove(&id);
                next.forget_file(id);
            }
            next.fresh.clear();
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

/// All possible states of the namespace.
#[derive(Clone, Debug)]
pub struct Names {
    states: BTreeSet<State>,
    open: BTreeMap<RequestId, Open>,
    /// There were too many states.
    pub gave_up: bool,
    /// The most states at once.
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
        self.change_each(|state| state.look(id, &open));
        self.open.insert(id, open);
    }

    fn change_each(&mut self, change: impl Fn(&mut State)) {
        let changed = std::mem::take(&mut self.states).into_iter().map(|mut state| {
            change(&mut state);
            state
        });
        self.states = changed.collect();
    }

    /// Changes that must be thought of before `id` is answered: what it meets, and what that meets in its turn.
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

    /// It was answered. `false` when no order of events gives that answer.
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
            // Something else first.
            for other in &concerned {
                let open = &self.open[other];
                if state.served.contains_key(other) {
                    continue;
                }
                if let Some(mut after) = state.serve(*other, &open.request, open.is_awaited) {
                    self.open.iter().for_each(|(id, open)| after.look(*id, open));
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

    /// Nobody will ever know what became of it.
    pub fn unknown(&mut self, id: RequestId) {
        let Some(open) = self.open.get_mut(&id) else { return };
        let changes = open.request.changes();
        open.is_awaited = false;
        if !changes {
            self.open.remove(&id);
        }
        self.change_each(|state| {
            if let Some(told) = state.served.get_mut(&id) {
                *told = Told::Nobody;
            }
            state.idle.remove(&id);
        });
    }

    /// The metadata service has lost power.
    pub fn lost_power(&mut self) {
        let mut left = BTreeSet::new();
        self.states.iter().for_each(|state| state.after_power_loss(&mut left));
        self.states = left;
        let open = std::mem::take(&mut self.open);
        self.change_each(|state| open.iter().for_each(|(id, open)| state.look(*id, open)));
        self.open = open;
        if self.states.len() > STATES_MAX {
            self.give_up();
        }
    }

    /// It was never sent.
    pub fn never_sent(&mut self, id: RequestId) {
        self.open.remove(&id);
        self.states.retain(|state| !state.served.contains_key(&id));
        self.change_each(|state| drop(state.idle.remove(&id)));
    }

    /// How many states there may be.
    pub fn states(&self) -> usize {
        self.states.len()
    }

    fn give_up(&mut self) {
        self.gave_up = true;
        self.states.clear();
    }
}

/// Leaves out states of which all that may come may come of another one.
fn without_covered(states: BTreeSet<State>) -> BTreeSet<State> {
    let all: Vec<State> = states.into_iter().collect();
    let mut kept = BTreeSet::new();
    // Those that are alike lie together.
    for group in all.chunk_by(State::is_like) {
        let covered = |state: &State| group.iter().any(|other| other != state && other.covers(state));
        kept.extend(group.iter().filter(|state| !covered(state)).cloned());
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Spot = Spot { dir: 0, name: 0 };
    const B: Spot = Spot { dir: 0, name: 1 };
    const MAKE: Request = Request::Open { at: A, create: true, exclusive: true };

    fn ask(names: &mut Names, id: RequestId, request: Request, answer: Answer) -> bool {
        names.begin(id, request);
        names.answered(id, &answer)
    }

    #[test]
    fn one_after_the_other_there_is_one_answer() {
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
    fn of_two_at_once_one_wins() {
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
    fn what_nobody_knows_happens_once_or_never() {
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
    fn what_was_undone_and_is_done_again_is_another_file() {
        for seen in [false, true] {
            let mut names = Names::default();
            names.begin(1, MAKE);
            names.begin(2, Request::Stat(A));
            assert!(ask(&mut names, 3, MAKE, Answer::Errno(libc::EEXIST)), "it is there");
            let stat = Answer::Attr { file: 70, nlink: 1 };
            assert!(!seen || names.answered(2, &stat));
            names.lost_power();
            assert!(seen || names.answered(2, &stat), "an answer of before");
            let mut other = names.clone();
            assert!(names.answered(1, &Answer::Opened { file: 71, made: true }));
            assert!(ask(&mut names, 4, Request::Stat(A), Answer::Attr { file: 71, nlink: 1 }));
            assert!(!ask(&mut names, 5, Request::Stat(A), Answer::Attr { file: 70, nlink: 1 }));
            assert!(other.answered(1, &Answer::Opened { file: 70, made: true }), "or it was not undone");
        }
    }

    #[test]
    fn who_came_before_what_was_seen_early_does_not_make_it_safe() {
        let mut names = Names::default();
        let other = Request::Open { at: B, create: true, exclusive: true };
        names.begin(1, other);
        names.begin(2, MAKE);
        assert!(ask(&mut names, 3, MAKE, Answer::Errno(libc::EEXIST)), "the second is done, and not safe");
        assert!(names.answered(1, &Answer::Opened { file: 70, made: true }));
        names.unknown(2);
        names.lost_power();
        assert!(ask(&mut names, 4, MAKE, Answer::Opened { file: 71, made: true }));
    }

    #[test]
    fn power_takes_back_what_was_not_answered() {
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
