//! The planner's own model of a run: ranks that wait for their requests, targets and links that serve them in turn.
//!
//! ```text
//! rank: request -> own time -> split over targets -> each: message, target, links -> the last one done -> next request
//! ```
//!
//! * A **target** takes, for a request that goes on where the one before it ended, its sequential line; else its random
//!   line at the number of requests that are there at the time, or that of several streams if it goes on where one of the
//!   last 64 ended. A device whose requests overlap (four at a time take less
//!   than half as long each) takes as long as with most of them under way, but none is done sooner than one alone.
//! * **Links** of targets and compute nodes carry bytes one request after another, in each direction apart; writes that
//!   begin at about the same time share them.
//! * **Writes** into memory are done when they are there, unless so much waits for the device that the memory is full. The
//!   device begins when enough has been gathered; the run ends when all is written.
//! * Ranks wait for each other where the trace was quiet and a rank then read what another had written, or the other way
//!   round, and where it was quiet between collective calls.
//!
//! It knows nothing of seeks, caches, elevators or windows: what a class is like stands in its figures, which were
//! measured. The same input gives the same times.

use crate::figures::{Figures, Service};
use crate::mix::Direction;
use crate::placing::Placing;
use crate::sample::Request;
use crate::survey::Traced;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use weft_core::{Access, Extent, Layout, SplitPolicy, SubRequest, TargetId};

/// A device whose requests take so much less each when four are under way serves them side by side.
const SIDE_BY_SIDE: f64 = 0.5;
/// Length by which this is told, bytes.
const SIDE_BY_SIDE_LEN: f64 = 4096.0;
/// Ends of requests that a target remembers, to tell streams.
const ENDS: usize = 64;
/// A request that begins so near to the end of the one before goes on there, bytes.
const NEAR: u64 = 1 << 20;

/// What is run: requests of a trace by rank.
#[derive(Clone, Debug)]
pub struct Load {
    requests: Vec<Planned>,
    /// The requests of each rank, as indices.
    ranks: Vec<Vec<u32>>,
    /// Requests between one point at which all ranks wait and the next.
    epochs: Vec<u32>,
    /// Requests of the trace for each of these.
    scale: f64,
}

#[derive(Clone, Copy, Debug)]
struct Planned {
    request: Request,
    rank: u32,
    epoch: u32,
}

/// What came of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// How long the whole trace takes.
    pub seconds: f64,
    /// Of that, how long the busiest target of each class works.
    pub busy_s: Vec<f64>,
    /// How long the busiest link of a target of each class works.
    pub link_s: Vec<f64>,
    /// How long the busiest link of a compute node works.
    pub node_s: f64,
    /// Requests to targets for each request of the program.
    pub spread: f64,
}

impl Load {
    /// The sample of a trace, all of it or that of one unit.
    pub fn of(traced: &Traced, unit: Option<u32>) -> Self {
        let wanted = |request: &&Request| unit.is_none_or(|unit| request.unit == unit);
        let requests: Vec<Request> = traced.sample.iter().filter(wanted).copied().collect();
        let all: u64 = match unit {
            None => traced.requests,
            Some(unit) => {
                let unit = &traced.units[unit as usize];
                unit.reads + unit.writes
            }
        };
        Self::from(&requests, all)
    }

    /// Requests by time, of `all` that there were.
    fn from(requests: &[Request], all: u64) -> Self {
        // By rising numbers: neighbors share a node.
        let numbers: BTreeSet<u32> = requests.iter().map(|request| request.rank).collect();
        let numbers: BTreeMap<u32, u32> = numbers.into_iter().zip(0..).collect();
        let mut ranks: Vec<Vec<u32>> = vec![Vec::new(); numbers.len()];
        let mut planned = Vec::with_capacity(requests.len());
        let mut waits = Waits::default();
        for (index, request) in requests.iter().enumerate() {
            let rank = numbers[&request.rank];
            ranks[rank as usize].push(index as u32);
            planned.push(Planned { request: *request, rank, epoch: waits.epoch(request) });
        }
        let mut epochs = vec![0; waits.epoch as usize + 1];
        planned.iter().for_each(|planned| epochs[planned.epoch as usize] += 1);
        let scale = if requests.is_empty() { 1.0 } else { all as f64 / requests.len() as f64 };
        Self { requests: planned, ranks, epochs, scale }
    }

    /// About `max` of the requests, of every rank the same windows.
    #[must_use]
    pub fn thin(&self, max: usize) -> Self {
        const WINDOW: usize = 16;
        let every = self.requests.len().div_ceil(max.max(1)).max(1);
        if every == 1 {
            return self.clone();
        }
        let mut keep = vec![false; self.requests.len()];
        for rank in &self.ranks {
            for (number, &index) in rank.iter().enumerate() {
                keep[index as usize] = (number / WINDOW).is_multiple_of(every);
            }
        }
        let kept = self.requests.iter().zip(&keep).filter(|(_, keep)| **keep);
        let requests: Vec<Request> = kept.map(|(planned, _)| planned.request).collect();
        let all = self.scale * self.requests.len() as f64;
        Self { scale: all / requests.len().max(1) as f64, ..Self::from(&requests, requests.len() as u64) }
    }

    /// The files of its requests, by their numbers in the trace.
    pub fn files(&self) -> BTreeSet<u32> {
        self.requests.iter().map(|planned| planned.request.file).collect()
    }

    /// Requests that are run.
    pub fn requests(&self) -> usize {
        self.requests.len()
    }
}

/// Where all ranks wait for each other.
#[derive(Default)]
struct Waits {
    epoch: u32,
    /// End of the last request so far.
    end: u64,
    /// Who used each file last since the latest wait, and how.
    used: BTreeMap<u32, (u32, Direction)>,
    /// Whether the request before was part of a call of all ranks.
    collective: bool,
}

impl Waits {
    fn epoch(&mut self, request: &Request) -> u32 {
        let quiet = request.start > 0 && request.start >= self.end;
        let turned = self
            .used
            .get(&request.file)
            .is_some_and(|&(rank, direction)| rank != request.rank && direction != request.direction);
        let called = request.collective && self.collective;
        self.collective = request.collective;
        if quiet && (turned || called) {
            self.epoch += 1;
            self.used.clear();
        }
        self.used.insert(request.file, (request.rank, request.direction));
        self.end = self.end.max(request.end);
        self.epoch
    }
}

/// One target.
#[derive(Clone, Default)]
struct Target {
    class: usize,
    free: f64,
    busy: f64,
    /// Bytes that memory gathers, and what writing them takes.
    held: (f64, f64),
    /// Ends of the requests that are here.
    here: VecDeque<f64>,
    /// Datafile and offset behind the requests that came last, the very last at the end.
    ends: VecDeque<(u64, u64)>,
    into: Link,
    out: Link,
}

/// A direction of a link.
#[derive(Clone, Copy, Default)]
struct Link {
    free: f64,
    busy: f64,
}

impl Link {
    /// Carries what is asked for at `now` and can go from `ready` on; what is ready late holds up nobody.
    fn carry(&mut self, now: f64, ready: f64, took: f64) -> f64 {
        self.free = self.free.max(now) + took;
        self.busy += took;
        self.free.max(ready + took)
    }
}

/// Runs `load` on a cluster, each unit's files laid out as `placings` has it (by its number, or all by the only one).
///
/// # Panics
/// When a placing is no layout.
pub fn run(figures: &Figures, load: &Load, placings: &[&Placing]) -> Outcome {
    Run::new(figures, load, placings).through()
}

/// Runs `load` on a cluster, each file laid out as `layouts` has it (by its number in the trace); targets are counted
/// through the classes of the figures.
///
/// # Panics
/// When a file has no layout, or a layout a target that there is not.
pub fn run_files(figures: &Figures, load: &Load, layouts: &BTreeMap<u32, Layout>) -> Outcome {
    let mut run = Run::new(figures, load, &[]);
    run.files = Some(layouts);
    run.through()
}

struct Run<'a> {
    figures: &'a Figures,
    load: &'a Load,
    layouts: Vec<Layout>,
    /// Those of single files instead.
    files: Option<&'a BTreeMap<u32, Layout>>,
    targets: Vec<Target>,
    nodes: Vec<(Link, Link)>,
    /// When a rank is ready, and which; the earliest first.
    ready: BinaryHeap<Reverse<(u64, u32)>>,
    next: Vec<u32>,
    parked: Vec<u32>,
    epoch: u32,
    left: u32,
    end: f64,
    epoch_end: f64,
    subs: Vec<SubRequest>,
    spread: u64,
    /// By class and direction, whether requests are served side by side.
    side_by_side: Vec<[bool; 2]>,
}

impl<'a> Run<'a> {
    fn new(figures: &'a Figures, load: &'a Load, placings: &[&Placing]) -> Self {
        let mut number = 0;
        let mut targets = Vec::new();
        let mut by_class = Vec::new();
        for (class, of) in figures.classes.iter().enumerate() {
            by_class.push((number..number + of.targets).map(TargetId).collect::<Vec<_>>());
            number += of.targets;
            targets.extend((0..of.targets).map(|_| Target { class, ..Target::default() }));
        }
        let layout = |placing: &&Placing| placing.layout(&by_class).expect("a placing is a layout");
        let nodes = load.ranks.len().div_ceil(figures.processes_per_node as usize);
        let side_by_side = |service: &Service| {
            service.random_ns(4, SIDE_BY_SIDE_LEN) < SIDE_BY_SIDE * service.random_ns(1, SIDE_BY_SIDE_LEN)
        };
        Self {
            figures,
            load,
            layouts: placings.iter().map(layout).collect(),
            files: None,
            targets,
            nodes: vec![Default::default(); nodes],
            ready: (0..load.ranks.len() as u32).map(|rank| Reverse((0, rank))).collect(),
            next: vec![0; load.ranks.len()],
            parked: Vec::new(),
            epoch: 0,
            left: load.epochs[0],
            end: 0.0,
            epoch_end: 0.0,
            subs: Vec::new(),
            spread: 0,
            side_by_side: figures
                .classes
                .iter()
                .map(|class| [side_by_side(&class.read), side_by_side(&class.write)])
                .collect(),
        }
    }

    fn through(mut self) -> Outcome {
        let mut group: Vec<Planned> = Vec::new();
        while let Some(Reverse((time, rank))) = self.ready.pop() {
            let Some(first) = self.next_of(rank) else { continue };
            let now = time as f64 + self.figures.call_us * 1e3;
            if first.request.direction == Direction::Read {
                let done = self.read(now, &first);
                self.done(&first, done);
            } else {
                let shared = self.figures.call_us * 1e3 + 0.5 * first.request.len as f64 * self.byte_ns();
                group.push(first);
                while let Some(&Reverse((other, rank))) = self.ready.peek()
                    && other as f64 <= time as f64 + shared
                    && self.writes_next(rank)
                {
                    self.ready.pop();
                    group.extend(self.next_of(rank));
                }
                self.write(now, &mut group);
            }
            if self.left == 0 {
                self.next_epoch();
            }
        }
        // What memory still gathers is written in the end.
        let written = |target: &Target| {
            target.free.max(if target.held.1 > 0.0 { self.end } else { 0.0 }) + target.held.1
        };
        let end = self.targets.iter().map(written).fold(self.end, f64::max);
        let seconds = |ns: f64| ns * self.load.scale / 1e9;
        let most = |class: usize, of: &dyn Fn(&Target) -> f64| {
            let of_class = self.targets.iter().filter(|target| target.class == class);
            seconds(of_class.map(of).fold(0.0, f64::max))
        };
        let classes = 0..self.figures.classes.len();
        Outcome {
            seconds: seconds(end),
            busy_s: classes.clone().map(|class| most(class, &|target| target.busy)).collect(),
            link_s: classes
                .map(|class| most(class, &|target| target.into.busy.max(target.out.busy)))
                .collect(),
            node_s: seconds(self.nodes.iter().fold(0.0, |most, (a, b)| most.max(a.busy).max(b.busy))),
            spread: self.spread as f64 / self.load.requests.len().max(1) as f64,
        }
    }

    fn next_epoch(&mut self) {
        while self.left == 0 && (self.epoch as usize) + 1 < self.load.epochs.len() {
            self.epoch += 1;
            self.left = self.load.epochs[self.epoch as usize];
        }
        // Those that run on come to the point by themselves, and find it passed.
        let at = self.epoch_end as u64;
        let parked = std::mem::take(&mut self.parked);
        self.ready.extend(parked.into_iter().map(|rank| Reverse((at, rank))));
        let ready: Vec<_> = std::mem::take(&mut self.ready).into_vec();
        self.ready.extend(ready.into_iter().map(|Reverse((time, rank))| Reverse((time.max(at), rank))));
    }

    /// The next request of a rank, unless it has none or waits for the others.
    fn next_of(&mut self, rank: u32) -> Option<Planned> {
        let index = *self.load.ranks[rank as usize].get(self.next[rank as usize] as usize)?;
        let planned = self.load.requests[index as usize];
        if planned.epoch > self.epoch {
            self.parked.push(rank);
            return None;
        }
        self.next[rank as usize] += 1;
        Some(planned)
    }

    fn writes_next(&self, rank: u32) -> bool {
        let index = self.load.ranks[rank as usize].get(self.next[rank as usize] as usize);
        let planned = index.map(|index| self.load.requests[*index as usize]);
        planned.is_some_and(|next| next.request.direction == Direction::Write && next.epoch <= self.epoch)
    }

    fn done(&mut self, planned: &Planned, done: f64) {
        self.end = self.end.max(done);
        self.epoch_end = self.epoch_end.max(done);
        self.ready.push(Reverse((done as u64, planned.rank)));
        self.left -= 1;
    }

    fn byte_ns(&self) -> f64 {
        1e3 / self.figures.network.mb_s
    }

    /// What a request asks of targets, in `self.subs`.
    fn split(&mut self, request: &Request) {
        let layout = match self.files {
            Some(files) => &files[&request.file],
            None => &self.layouts[if self.layouts.len() == 1 { 0 } else { request.unit as usize }],
        };
        let len = request.len.min(u64::MAX - request.offset);
        let extent = Extent::new(request.offset, len);
        layout.split_into(extent, Access::Sequential, SplitPolicy::Off, &mut self.subs);
        self.spread += self.subs.len() as u64;
    }

    /// One request; when it is done.
    fn read(&mut self, now: f64, planned: &Planned) -> f64 {
        self.split(&planned.request);
        let connect = self.figures.network.connect_us * 1e3;
        let byte_ns = self.byte_ns();
        let node = &mut self.nodes[planned.rank as usize / self.figures.processes_per_node as usize];
        let mut done = now;
        for sub in &self.subs {
            let target = &mut self.targets[sub.target.0 as usize];
            let side_by_side = self.side_by_side[target.class][0];
            let service = &self.figures.classes[target.class].read;
            let took = sub.local.len.0 as f64 * byte_ns;
            let read = target.serve(now + connect, service, local(&planned.request, sub), side_by_side);
            let sent = target.out.carry(now, read, took);
            let there = node.0.carry(now, sent - took, took).max(sent);
            done = done.max(there + connect);
        }
        done
    }

    /// Requests that begin at about the same time. Their bytes share the links: all of them are there when the last one
    /// is, and ranks that began together go on together.
    fn write(&mut self, now: f64, group: &mut Vec<Planned>) {
        let connect = self.figures.network.connect_us * 1e3;
        let byte_ns = self.byte_ns();
        let mut asked = Vec::new();
        for (number, planned) in group.iter().enumerate() {
            self.split(&planned.request);
            let node = planned.rank as usize / self.figures.processes_per_node as usize;
            for sub in &self.subs {
                let target = sub.target.0 as usize;
                let took = sub.local.len.0 as f64 * byte_ns;
                self.nodes[node].1.carry(now, now + connect, took);
                self.targets[target].into.carry(now, now + connect, took);
                asked.push((number, node, target, local(&planned.request, sub)));
            }
        }
        let mut ends = vec![now; group.len()];
        for (number, node, target, local) in asked {
            let there = self.nodes[node].1.free.max(self.targets[target].into.free).max(now + connect);
            let target = &mut self.targets[target];
            let side_by_side = self.side_by_side[target.class][1];
            let service = &self.figures.classes[target.class].write;
            let written = target.serve(there, service, local, side_by_side);
            ends[number] = ends[number].max(written + connect);
        }
        for (planned, end) in group.drain(..).zip(ends) {
            self.done(&planned, end);
        }
    }
}

/// A range of a datafile: which, offset, length.
fn local(request: &Request, sub: &SubRequest) -> (u64, u64, u64) {
    let object = (u64::from(request.file) << 32)
        | (u64::from(sub.object.component) << 16)
        | u64::from(sub.object.column);
    (object, sub.local.offset.0, sub.local.len.0)
}

impl Target {
    /// A request for a range (datafile, offset, length) that arrives at `now`; when it is done.
    fn serve(
        &mut self,
        now: f64,
        service: &Service,
        (object, offset, len): (u64, u64, u64),
        side_by_side: bool,
    ) -> f64 {
        while self.here.front().is_some_and(|end| *end <= now) {
            self.here.pop_front();
        }
        let bytes = len as f64;
        let near =
            self.ends.back().is_some_and(|&(last, end)| last == object && offset.abs_diff(end) <= NEAR);
        let stream = self.ends.iter().position(|end| *end == (object, offset));
        if let Some(stream) = stream {
            self.ends.remove(stream);
        } else if self.ends.len() == ENDS {
            self.ends.pop_front();
        }
        self.ends.push_back((object, offset.saturating_add(len)));
        let depth = self.here.len() as u32 + 1;
        let (takes, at_least) = if near {
            (service.sequential.ns(bytes), 0.0)
        } else if stream.is_some() && !side_by_side {
            (service.streams_ns(depth, bytes), 0.0)
        } else if side_by_side {
            (service.random_ns(u32::MAX, bytes), service.random_ns(1, bytes))
        } else {
            (service.random_ns(depth, bytes), 0.0)
        };
        self.busy += takes;
        if service.gathers.0 > 0 && self.free <= now {
            // Memory gathers until it is worth while.
            self.held = (self.held.0 + bytes, self.held.1 + takes);
            if self.held.0 < service.gathers.0 as f64 {
                return now;
            }
            self.free = now + self.held.1 - takes;
            self.held = (0.0, 0.0);
        }
        self.free = self.free.max(now) + takes;
        let end = self.free.max(now + at_least);
        self.here.push_back(end);
        // As much as memory holds is still to be written when this one is taken.
        end.min(now.max(end - service.behind.0 as f64 * takes / bytes.max(1.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Bytes;
    use crate::figures::Depth;
    use crate::testing::hybrid;

    const KIB: u64 = 1024;

    fn load(requests: &[(u32, u64, u64)]) -> Load {
        let request = |(number, &(rank, offset, len)): (usize, &(u32, u64, u64))| {
            Request::new(rank, 0, Direction::Read, offset, len, (number as u64, number as u64 + 100_000))
        };
        let requests: Vec<Request> = requests.iter().enumerate().map(request).collect();
        Load::from(&requests, requests.len() as u64)
    }

    #[test]
    fn one_request_by_hand() {
        let figures = hybrid((2, 1000.0, 100.0), (2, 100.0, 400.0), None);
        let load = load(&[(0, 40 << 20, 128 * KIB)]);
        let outcome = run(&figures, &load, &[&Placing::whole(vec![64 * KIB, 0])]);
        // Message, 1 ms and 64 KiB at 100 MB/s on both disks, over the links side by side until the node's has both.
        let took = 65_536.0 / 117.7e6;
        let seconds = 34e-6 + 1e-3 + 65_536.0 / 100e6 + took + 34e-6;
        assert!((outcome.seconds - seconds).abs() < 2.0 * took, "{} {seconds}", outcome.seconds);
        assert_eq!(outcome.spread, 2.0);
        assert_eq!(outcome.busy_s[1], 0.0);
        assert!((outcome.node_s - 2.0 * took).abs() < 1e-9);
    }

    #[test]
    fn busy_targets_bound_the_time_and_ranks_overlap() {
        let figures = hybrid((4, 10_000.0, 100.0), (1, 1.0, 1e6), None);
        let random = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (1 << 14);
        let requests: Vec<_> =
            (0..800u64).map(|n| ((n % 16) as u32, random(n) * 64 * KIB * 64, 64 * KIB)).collect();
        let placing = Placing::whole(vec![64 * KIB * 64, 0]);
        let outcome = run(&figures, &load(&requests), &[&placing]);
        // 200 requests for each disk if they were dealt evenly: 10 ms and 0.66 ms each.
        let even = 200.0 * (10e-3 + 65_536.0 / 100e6);
        assert!((even * 0.99..even * 1.6).contains(&outcome.seconds), "{} {even}", outcome.seconds);
        assert!(outcome.busy_s[0] <= outcome.seconds);
        // One rank alone keeps one disk busy at a time.
        let alone: Vec<_> = requests.iter().map(|&(_, offset, len)| (0, offset, len)).collect();
        let alone = run(&figures, &load(&alone), &[&placing]);
        assert!(alone.seconds > 3.9 * even, "{} {even}", alone.seconds);
    }

    #[test]
    fn devices_that_serve_side_by_side_are_not_slower_for_a_burst() {
        let mut figures = hybrid((1, 1.0, 1e6), (1, 100.0, 1e6), None);
        let depth = |depth, startup_us| Depth { depth, startup_us, mb_s: 1e6 };
        figures.classes[1].read.random = vec![depth(1, 100.0), depth(4, 25.0), depth(16, 10.0)];
        figures.network = crate::figures::Network { connect_us: 0.0, mb_s: 1e6 };
        let requests: Vec<_> = (0..16u32).map(|rank| (rank, u64::from(rank) << 30, 4096)).collect();
        let outcome = run(&figures, &load(&requests), &[&Placing::whole(vec![0, 1 << 20])]);
        assert!((outcome.seconds - 160e-6).abs() < 1e-6, "{}", outcome.seconds);
    }

    #[test]
    fn writes_into_memory_are_waited_for_in_the_end() {
        let mut figures = hybrid((1, 1000.0, 100.0), (1, 1.0, 1e6), None);
        figures.classes[0].write.behind = Bytes(1 << 30);
        let request = |n: u64| Request::new(0, 0, Direction::Write, (n * 7 % 50) << 30, 4096, (n, n + 1));
        let requests: Vec<Request> = (0..50).map(request).collect();
        let outcome = run(&figures, &Load::from(&requests, 500), &[&Placing::whole(vec![1 << 40, 0])]);
        let each = 1e-3 + 4096.0 / 100e6;
        // Ten times as many as are run.
        assert!((outcome.seconds - 500.0 * each).abs() < 0.02 * 500.0 * each, "{}", outcome.seconds);
    }

    #[test]
    fn ranks_wait_between_writing_and_reading() {
        let figures = hybrid((2, 1000.0, 100.0), (1, 1.0, 1e6), None);
        let at = |rank, direction, offset, start: u64| {
            Request::new(rank, 0, direction, offset, 4096, (start, start + 10))
        };
        let requests = [
            at(0, Direction::Write, 1 << 40, 1),
            at(1, Direction::Write, (2 << 40) + 4096, 2),
            at(0, Direction::Read, (3 << 40) + 4096, 100),
            at(1, Direction::Read, 4 << 40, 101),
        ];
        let load = Load::from(&requests, 4);
        assert_eq!(load.epochs, [2, 2]);
        let outcome = run(&figures, &load, &[&Placing::whole(vec![4096, 0])]);
        assert!(outcome.seconds > 2e-3);
    }
}
