//! The run itself, event by event.

use super::Outcome;
use super::behind::Synced;
use super::load::{Load, Planned};
use super::target::{Link, Local, Target, side_by_side};
use crate::figures::{Figures, Head};
use crate::mix::Direction;
use crate::placing::Placing;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use weft_core::{Access, Extent, Layout, SplitPolicy, SubRequest, TargetId};

/// The most bytes of a message to or from a target.
const MESSAGE_MAX: u64 = 4 << 20;

/// What happens to a rank's request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// The rank has the next request.
    Begin,
    /// The next messages are sent.
    Round,
    /// The rank goes on with sending.
    Send,
    /// A message is at its target, as a place among the legs.
    Arrived(u32),
    /// A target has read what it was asked for.
    Answer(u32),
    /// A sync is asked for at a target, as a place among the legs.
    Sync(u32),
    /// The rank goes on with taking what comes.
    Take,
    /// The head of a target, which stands in the place of the rank, is ready for the next.
    Ready,
}

/// What a request asks of a target.
#[derive(Clone, Copy, Debug)]
struct Leg {
    target: u32,
    local: Local,
    /// Bytes that no message has been made for.
    left: u64,
    /// Bytes of the message that is under way.
    message: u64,
    /// Bytes of it that have not been sent; of a sync, how often the datafile had been synced.
    unsent: u64,
    /// When what is on its way arrives.
    comes: Option<f64>,
}

/// A request under way.
#[derive(Default)]
struct Call {
    planned: Option<Planned>,
    legs: Vec<Leg>,
    /// The leg that is sent to or taken from.
    at: usize,
    /// Messages that are not answered.
    waiting: u32,
    /// When the last answer is here.
    until: f64,
}

pub(super) struct Run<'a> {
    figures: &'a Figures,
    load: &'a Load,
    /// Which of many courses that chance may take.
    chance: u32,
    /// Heads for reads, by class.
    heads: Vec<Option<Head>>,
    layouts: Vec<Layout>,
    /// Those of single files instead.
    files: Option<&'a BTreeMap<u32, Layout>>,
    targets: Vec<Target>,
    nodes: Vec<(Link, Link)>,
    /// By time, then as they were told.
    events: BinaryHeap<Reverse<(u64, u64, u32, Event)>>,
    told: u64,
    next: Vec<u32>,
    /// Targets and datafiles that a rank has written to since it synced, by rank.
    unsynced: Vec<Vec<(u32, u64)>>,
    calls: Vec<Call>,
    parked: Vec<u32>,
    epoch: u32,
    left: u32,
    end: f64,
    passed: f64,
    subs: Vec<SubRequest>,
    /// Ranks and legs that have all they asked for.
    passed_by: Vec<(u32, u32)>,
    spread: u64,
    /// By class and direction, whether requests are served side by side.
    side_by_side: Vec<[bool; 2]>,
}

impl<'a> Run<'a> {
    pub(super) fn new(figures: &'a Figures, load: &'a Load, placings: &[&Placing]) -> Self {
        let mut number = 0;
        let mut targets = Vec::new();
        let mut by_class = Vec::new();
        for (class, of) in figures.classes.iter().enumerate() {
            by_class.push((number..number + of.targets).map(TargetId).collect::<Vec<_>>());
            number += of.targets;
            targets.extend((0..of.targets).map(|_| Target::of(class)));
        }
        let layout = |placing: &&Placing| placing.layout(&by_class).expect("a placing is a layout");
        let nodes = load.ranks.len().div_ceil(figures.processes_per_node as usize);
        Self {
            figures,
            chance: 0,
            heads: figures.classes.iter().map(|class| class.read.head.clone()).collect(),
            load,
            layouts: placings.iter().map(layout).collect(),
            files: None,
            targets,
            nodes: vec![Default::default(); nodes],
            events: BinaryHeap::new(),
            told: 0,
            next: vec![0; load.ranks.len()],
            unsynced: vec![Vec::new(); load.ranks.len()],
            calls: load.ranks.iter().map(|_| Call::default()).collect(),
            parked: Vec::new(),
            epoch: 0,
            left: load.epochs[0],
            end: 0.0,
            passed: 0.0,
            subs: Vec::new(),
            passed_by: Vec::new(),
            spread: 0,
            side_by_side: figures
                .classes
                .iter()
                .map(|class| [side_by_side(&class.read), side_by_side(&class.write)])
                .collect(),
        }
    }

    /// Another of the courses that it may take: with other chances, and turns of heads that take so much of what the
    /// figures say.
    pub(super) fn with_course(mut self, chance: u32, turns: f64) -> Self {
        self.chance = chance;
        self.heads.iter_mut().flatten().for_each(|head| head.turn_us *= turns);
        self
    }

    /// With layouts of single files.
    pub(super) fn with_files(mut self, files: &'a BTreeMap<u32, Layout>) -> Self {
        self.files = Some(files);
        self
    }

    pub(super) fn through(mut self) -> Outcome {
        (0..self.load.ranks.len() as u32).for_each(|rank| self.goes_on(rank, 0.0));
        while let Some(Reverse((time, _, rank, event))) = self.events.pop() {
            let now = time as f64;
            match event {
                Event::Begin => self.begin(rank, now),
                Event::Round => self.round(rank, now),
                Event::Send => self.send(rank, now),
                Event::Arrived(leg) => self.arrived(rank, leg as usize, now),
                Event::Answer(leg) => self.answer(rank, leg as usize, now),
                Event::Sync(leg) => self.synced(rank, leg, now),
                Event::Take => self.take(rank, now),
                Event::Ready => self.ready(rank, now),
            }
        }
        // What memory still gathers is written in the end.
        let mut end = self.end;
        for target in &mut self.targets {
            end = end.max(target.written(self.end, &self.figures.classes[target.class].write));
        }
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
            spread: self.spread as f64 / self.load.moving.max(1) as f64,
        }
    }

    fn tell(&mut self, at: f64, rank: u32, event: Event) {
        self.told += 1;
        self.events.push(Reverse((at.ceil() as u64, self.told, rank, event)));
    }

    /// The rank has its next request after what it spends on its own, unless it waits for the others or is done.
    fn goes_on(&mut self, rank: u32, now: f64) {
        let number = self.next[rank as usize];
        let Some(&index) = self.load.ranks[rank as usize].get(number as usize) else { return };
        if self.load.requests[index as usize].epoch > self.epoch {
            return self.parked.push(rank);
        }
        let own = self.figures.call_us * 1e3 * spread(self.chance, rank, number);
        self.tell(now + own, rank, Event::Begin);
    }

    fn begin(&mut self, rank: u32, now: f64) {
        let number = self.next[rank as usize];
        self.next[rank as usize] += 1;
        let planned = self.load.requests[self.load.ranks[rank as usize][number as usize] as usize];
        let request = &planned.request;
        if request.is_sync() {
            return self.sync(rank, now, planned);
        }
        let layout = match self.files {
            Some(files) => &files[&request.file],
            None => &self.layouts[if self.layouts.len() == 1 { 0 } else { request.unit as usize }],
        };
        let len = request.len.min(u64::MAX - request.offset);
        let extent = Extent::new(request.offset, len);
        layout.split_into(extent, Access::Sequential, SplitPolicy::Off, &mut self.subs);
        self.spread += self.subs.len() as u64;
        let call = &mut self.calls[rank as usize];
        let leg = |sub: &SubRequest| Leg {
            target: sub.target.0,
            local: Local {
                object: (u64::from(request.file) << 32)
                    | (u64::from(sub.object.component) << 16)
                    | u64::from(sub.object.column),
                offset: sub.local.offset.0,
                len: 0,
            },
            left: sub.local.len.0,
            message: 0,
            unsent: 0,
            comes: None,
        };
        call.legs.clear();
        call.legs.extend(self.subs.iter().map(leg));
        call.legs.sort_by_key(|leg| leg.target);
        call.planned = Some(planned);
        self.round(rank, now);
    }

    /// Has what the rank wrote, and what others wrote to the same datafiles, brought to the devices.
    fn sync(&mut self, rank: u32, now: f64, planned: Planned) {
        let connect = self.figures.network.connect_us * 1e3;
        let mut written = std::mem::take(&mut self.unsynced[rank as usize]);
        written.sort_unstable();
        let leg = |&(target, object): &(u32, u64)| Leg {
            target,
            local: Local { object, offset: 0, len: 0 },
            left: 0,
            message: 0,
            unsent: self.targets[target as usize].synced(object),
            comes: None,
        };
        let call = &mut self.calls[rank as usize];
        call.legs.clear();
        call.legs.extend(written.iter().map(leg));
        (call.planned, call.waiting, call.until) = (Some(planned), call.legs.len() as u32, now);
        if call.legs.is_empty() {
            return self.done(rank, now);
        }
        (0..written.len() as u32).for_each(|leg| self.tell(now + connect, rank, Event::Sync(leg)));
    }

    fn synced(&mut self, rank: u32, leg: u32, now: f64) {
        let call = &mut self.calls[rank as usize];
        let Leg { target, local, unsent: since, .. } = call.legs[leg as usize];
        let target = &mut self.targets[target as usize];
        let service = &self.figures.classes[target.class].write;
        match target.sync(now, service, local.object, since) {
            Synced::Again(at) => self.tell(at, rank, Event::Sync(leg)),
            Synced::Done(at) => {
                call.until = call.until.max(at + self.figures.network.connect_us * 1e3);
                call.waiting -= 1;
                if call.waiting == 0 {
                    let until = call.until;
                    self.tell(until, rank, Event::Round);
                }
            }
        }
    }

    /// Makes the next messages, one for each target that is asked for more.
    fn round(&mut self, rank: u32, now: f64) {
        let call = &mut self.calls[rank as usize];
        for leg in &mut call.legs {
            leg.local.offset += leg.message;
            leg.message = leg.left.min(MESSAGE_MAX);
            leg.local.len = leg.message;
            (leg.left, leg.unsent, leg.comes) = (leg.left - leg.message, leg.message, None);
        }
        call.legs.retain(|leg| leg.message > 0);
        (call.at, call.waiting, call.until) = (0, call.legs.len() as u32, now);
        if call.legs.is_empty() {
            return self.done(rank, now);
        }
        match call.planned.expect("under way").request.direction {
            Direction::Read => {
                let there = now + self.figures.network.connect_us * 1e3;
                (0..call.waiting).for_each(|leg| self.tell(there, rank, Event::Arrived(leg)));
            }
            Direction::Write => self.send(rank, now),
        }
    }

    fn done(&mut self, rank: u32, now: f64) {
        self.end = self.end.max(now);
        self.left -= 1;
        self.goes_on(rank, now);
        while self.left == 0 && (self.epoch as usize) + 1 < self.load.epochs.len() {
            self.epoch += 1;
            self.left = self.load.epochs[self.epoch as usize];
            let parked = std::mem::take(&mut self.parked);
            parked.into_iter().for_each(|rank| self.goes_on(rank, now));
        }
    }

    /// Sends as much as connections hold, to one target after another.
    fn send(&mut self, rank: u32, now: f64) {
        loop {
            let call = &mut self.calls[rank as usize];
            let at = call.at;
            let Some(leg) = call.legs.get_mut(at) else { return };
            let bytes = leg.unsent.min(self.figures.network.window.0.max(1));
            leg.unsent -= bytes;
            let (target, unsent) = (leg.target as usize, leg.unsent);
            let node = &mut self.nodes[rank as usize / self.figures.processes_per_node as usize];
            let there = carry(self.figures, &mut node.1, &mut self.targets[target].into, now, bytes);
            if unsent > 0 {
                return self.tell(there, rank, Event::Send);
            }
            let call = &mut self.calls[rank as usize];
            call.at += 1;
            let same = call.legs.get(call.at).is_some_and(|next| next.target as usize == target);
            self.tell(there, rank, Event::Arrived(at as u32));
            if same {
                // The same connection, which is full.
                return self.tell(there, rank, Event::Send);
            }
        }
    }

    /// A message is at its target: it writes, or begins to read.
    fn arrived(&mut self, rank: u32, leg: usize, now: f64) {
        let connect = self.figures.network.connect_us * 1e3;
        let call = &mut self.calls[rank as usize];
        let planned = call.planned.expect("under way");
        let leg = (leg, call.legs[leg]);
        let (place, leg) = leg;
        let local = leg.local;
        let target = &mut self.targets[leg.target as usize];
        let class = &self.figures.classes[target.class];
        let direction = planned.request.direction;
        let service = class.service(direction);
        let side_by_side = self.side_by_side[target.class][direction as usize];
        // Of what was moved since, this target has had its part.
        let share = if self.passed > 0.0 { target.passed / self.passed } else { 1.0 };
        let held = planned.since.is_some_and(|since| since as f64 * share <= class.memory.0 as f64);
        target.passed += local.len as f64;
        self.passed += local.len as f64;
        if direction == Direction::Read {
            // Lines for those in order were measured as they come, and a head here knows of no writes between reads.
            let by_head = !held && !side_by_side && self.load.jumps;
            if let Some(head) = self.heads[target.class].as_ref().filter(|_| by_head) {
                let is_again = planned.since.is_some();
                let waits = target.waits(now, (rank, place as u32), local, is_again, service, head);
                if !waits {
                    self.tell(now, rank, Event::Answer(place as u32));
                }
                return self.head_goes_on(leg.target, now);
            }
            let read = if held { now } else { target.read(now, class, local, side_by_side) };
            return self.tell(read, rank, Event::Answer(place as u32));
        }
        let written = if service.behind.0 > 0 {
            target.keep(now, service, local)
        } else {
            target.serve(now, service, local, side_by_side)
        };
        let unsynced = (leg.target, local.object);
        let mine = &mut self.unsynced[rank as usize];
        if !mine.contains(&unsynced) {
            mine.push(unsynced);
        }
        call.until = call.until.max(written + connect);
        call.waiting -= 1;
        if call.waiting == 0 {
            let until = call.until;
            self.tell(until, rank, Event::Round);
        }
    }

    /// What a target's head was at has passed: it is answered, and the head goes to the next.
    fn ready(&mut self, number: u32, now: f64) {
        self.targets[number as usize].head.passed();
        self.head_goes_on(number, now);
    }

    /// A target's head goes to the next request that waits for it, if it is at none; what has passed is answered.
    fn head_goes_on(&mut self, number: u32, now: f64) {
        let target = &mut self.targets[number as usize];
        let class = &self.figures.classes[target.class];
        let head = self.heads[target.class].as_ref().expect("only heads are ready");
        let passed = if target.head.is_busy() { None } else { target.next(now, class, head) };
        let answered = now + class.read.sequential.startup_ns() + head.way_us * 1e3;
        let mut done = std::mem::take(&mut self.passed_by);
        target.head.answered(&mut done);
        if let Some(passed) = passed {
            self.tell(passed, number, Event::Ready);
        }
        done.drain(..).for_each(|(rank, leg)| self.tell(answered, rank, Event::Answer(leg)));
        self.passed_by = done;
    }

    /// A target sends what it has read, as much as the connection holds.
    fn answer(&mut self, rank: u32, leg: usize, now: f64) {
        let there = self.sends(rank, leg, now);
        if self.calls[rank as usize].at == leg {
            self.tell(there, rank, Event::Take);
        }
    }

    fn sends(&mut self, rank: u32, leg: usize, now: f64) -> f64 {
        let leg = &mut self.calls[rank as usize].legs[leg];
        let bytes = leg.unsent.min(self.figures.network.window.0.max(1));
        leg.unsent -= bytes;
        let node = &mut self.nodes[rank as usize / self.figures.processes_per_node as usize];
        let target = &mut self.targets[leg.target as usize];
        let there = carry(self.figures, &mut target.out, &mut node.0, now, bytes);
        leg.comes = Some(there);
        there
    }

    /// Takes what is here, from one target after another.
    fn take(&mut self, rank: u32, now: f64) {
        loop {
            let call = &mut self.calls[rank as usize];
            let at = call.at;
            let Some(leg) = call.legs.get(at) else { return self.round(rank, now) };
            match leg.comes {
                // It is told when the target has read.
                None => return,
                Some(there) if there > now => return self.tell(there, rank, Event::Take),
                Some(_) if leg.unsent > 0 => {
                    let there = self.sends(rank, at, now);
                    return self.tell(there, rank, Event::Take);
                }
                Some(_) => call.at += 1,
            }
        }
    }
}

/// Bytes that leave one link at `now` for another; when the last of them is there.
fn carry(figures: &Figures, out: &mut Link, into: &mut Link, now: f64, bytes: u64) -> f64 {
    let took = bytes as f64 * 1e3 / figures.network.mb_s;
    let sent = out.carry(now, now, took);
    let ready = sent - took + figures.network.connect_us * 1e3;
    into.carry(now, ready, took)
}

/// What a process spends on its own varies as chance has it, around 1.
fn spread(chance: u32, rank: u32, number: u32) -> f64 {
    let x = ((u64::from(chance) << 56) ^ (u64::from(rank) << 32) | u64::from(number))
        .wrapping_add(1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let chance = (((x ^ (x >> 27)) >> 11) + 1) as f64 / (1u64 << 53) as f64;
    -chance.ln()
}
