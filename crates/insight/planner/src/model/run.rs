//! The discrete-event simulation of one run.

use super::Outcome;
use super::load::{Load, LoadRequest};
use super::target::{DatafileRange, Link, Target, is_parallel};
use super::write_back::SyncProgress;
use crate::figures::{Figures, Head};
use crate::mix::Direction;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use weft_core::{Access, Extent, Layout, SplitPolicy, SubRequest};

/// Maximum bytes of one message to or from a target.
const MESSAGE_MAX: u64 = 4 << 20;

/// Events in the life of a rank's request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// The rank issues its next request.
    Begin,
    /// The next round of messages begins.
    Round,
    /// The rank continues to send.
    Send,
    /// A message has arrived at its target, by index of the target request.
    Arrived(u32),
    /// A target has read the data of a target request.
    Reply(u32),
    /// A sync arrives at a target, by index of the target request.
    Sync(u32),
    /// The rank continues to receive.
    Receive,
    /// A target's head has completed a read. The event's rank field holds the target number.
    HeadReady,
}

/// The part of a request that goes to one target.
#[derive(Clone, Copy, Debug)]
struct TargetRequest {
    target: u32,
    local: DatafileRange,
    /// Bytes not assigned to a message yet.
    left: u64,
    /// Bytes of the current message.
    message_len: u64,
    /// Bytes of the current message that were not sent. For a sync: the datafile's sync count when it was requested.
    unsent: u64,
    /// Arrival time of the data in flight.
    arrival: Option<f64>,
}

/// A rank's request in flight.
#[derive(Default)]
struct RankRequest {
    load_request: Option<LoadRequest>,
    parts: Vec<TargetRequest>,
    /// Index of the target request that is being sent to or received from.
    at: usize,
    /// Messages without a reply.
    unanswered: u32,
    /// Arrival time of the last reply.
    until: f64,
}

pub(super) struct Run<'a> {
    figures: &'a Figures,
    load: &'a Load,
    /// Seed of the random think times.
    seed: u32,
    /// Read heads by class.
    heads: Vec<Option<Head>>,
    layouts: Vec<Layout>,
    /// Layouts of single files, which replace `layouts`.
    files: Option<&'a BTreeMap<u32, Layout>>,
    targets: Vec<Target>,
    /// For each target, the one that stands for its device: targets that share a device are one queue.
    device_of: Vec<u32>,
    /// The processors of the host, where clients and servers share them.
    processors: Link,
    nodes: Vec<(Link, Link)>,
    /// By time, then by insertion order.
    events: BinaryHeap<Reverse<(u64, u64, u32, Event)>>,
    scheduled: u64,
    next: Vec<u32>,
    /// Targets and datafiles that each rank has written to since its last sync.
    unsynced: Vec<Vec<(u32, u64)>>,
    in_flight: Vec<RankRequest>,
    waiting_ranks: Vec<u32>,
    epoch: u32,
    left: u32,
    end: f64,
    moved_bytes: f64,
    subs: Vec<SubRequest>,
    /// Ranks and target requests whose data has arrived. Kept to reuse its memory.
    completed: Vec<(u32, u32)>,
    subrequests: u64,
    /// Whether requests are served in parallel, by class and direction.
    is_parallel: Vec<[bool; 2]>,
}

impl<'a> Run<'a> {
    /// A run with one layout per file group, or a single one for all groups.
    pub(super) fn new(figures: &'a Figures, load: &'a Load, layouts: Vec<Layout>) -> Self {
        let mut targets = Vec::new();
        for (class, of) in figures.targets().iter().enumerate() {
            targets.extend(of.iter().map(|_| Target::of(class)));
        }
        let nodes = load.ranks.len().div_ceil(figures.processes_per_node as usize);
        Self {
            figures,
            seed: 0,
            heads: figures.classes.iter().map(|class| class.read.head.clone()).collect(),
            load,
            layouts,
            files: None,
            device_of: device_of(figures),
            processors: Link::default(),
            targets,
            nodes: vec![Default::default(); nodes],
            events: BinaryHeap::new(),
            scheduled: 0,
            next: vec![0; load.ranks.len()],
            unsynced: vec![Vec::new(); load.ranks.len()],
            in_flight: load.ranks.iter().map(|_| RankRequest::default()).collect(),
            waiting_ranks: Vec::new(),
            epoch: 0,
            left: load.epochs[0],
            end: 0.0,
            moved_bytes: 0.0,
            subs: Vec::new(),
            completed: Vec::new(),
            subrequests: 0,
            is_parallel: figures
                .classes
                .iter()
                .map(|class| [is_parallel(class, &class.read), is_parallel(class, &class.write)])
                .collect(),
        }
    }

    /// Varies the run: another seed of think times, and rotation times scaled by `rotation_factor`.
    pub(super) fn with_variation(mut self, seed: u32, rotation_factor: f64) -> Self {
        self.seed = seed;
        self.heads.iter_mut().flatten().for_each(|head| head.rotation_us *= rotation_factor);
        self
    }

    /// Uses one layout per file.
    pub(super) fn with_files(mut self, files: &'a BTreeMap<u32, Layout>) -> Self {
        self.files = Some(files);
        self
    }

    pub(super) fn simulate(mut self) -> Outcome {
        (0..self.load.ranks.len() as u32).for_each(|rank| self.schedule_next_request(rank, 0.0));
        while let Some(Reverse((time, _, rank, event))) = self.events.pop() {
            let now = time as f64;
            match event {
                Event::Begin => self.begin(rank, now),
                Event::Round => self.round(rank, now),
                Event::Send => self.send(rank, now),
                Event::Arrived(part) => self.arrived(rank, part as usize, now),
                Event::Reply(part) => self.reply(rank, part as usize, now),
                Event::Sync(part) => self.synced(rank, part, now),
                Event::Receive => self.receive(rank, now),
                Event::HeadReady => self.head_ready(rank, now),
            }
        }
        // Remaining dirty data is written at the end.
        let mut end = self.end;
        for target in &mut self.targets {
            end = end.max(target.flush_all(self.end, &self.figures.classes[target.class].write));
        }
        let seconds = |ns: f64| ns * self.load.scale / 1e9;
        let most = |class: usize, of: &dyn Fn(&Target) -> f64| {
            let of_class = self.targets.iter().filter(|target| target.class == class);
            seconds(of_class.map(of).fold(0.0, f64::max))
        };
        let classes = 0..self.figures.classes.len();
        Outcome {
            seconds: seconds(end),
            target_busy_s: classes.clone().map(|class| most(class, &|target| target.busy_ns)).collect(),
            link_busy_s: classes
                .map(|class| most(class, &|target| target.into.busy_ns.max(target.out.busy_ns)))
                .collect(),
            node_link_busy_s: seconds(
                self.nodes.iter().fold(0.0, |most, (a, b)| most.max(a.busy_ns).max(b.busy_ns)),
            ),
            targets_per_request: self.subrequests as f64 / self.load.transfers.max(1) as f64,
        }
    }

    fn schedule(&mut self, at: f64, rank: u32, event: Event) {
        self.scheduled += 1;
        self.events.push(Reverse((at.ceil() as u64, self.scheduled, rank, event)));
    }

    /// Schedules the rank's next request after its think time, unless it waits at a synchronization point or is done.
    fn schedule_next_request(&mut self, rank: u32, now: f64) {
        let number = self.next[rank as usize];
        let Some(&index) = self.load.ranks[rank as usize].get(number as usize) else { return };
        if self.load.requests[index as usize].epoch > self.epoch {
            return self.waiting_ranks.push(rank);
        }
        let own = self.figures.call_us * 1e3 * think_time_factor(self.seed, rank, number);
        self.schedule(now + own, rank, Event::Begin);
    }

    fn begin(&mut self, rank: u32, now: f64) {
        let number = self.next[rank as usize];
        self.next[rank as usize] += 1;
        let load_request = self.load.requests[self.load.ranks[rank as usize][number as usize] as usize];
        let request = &load_request.request;
        if request.is_sync() {
            return self.sync(rank, now, load_request);
        }
        let layout = match self.files {
            Some(files) => &files[&request.file],
            None => &self.layouts[if self.layouts.len() == 1 { 0 } else { request.group as usize }],
        };
        let len = request.len.min(u64::MAX - request.offset);
        let extent = Extent::new(request.offset, len);
        layout.split_into(extent, Access::Sequential, SplitPolicy::Off, &mut self.subs);
        self.subrequests += self.subs.len() as u64;
        let in_flight = &mut self.in_flight[rank as usize];
        let devices = &self.device_of;
        let part = |sub: &SubRequest| TargetRequest {
            target: devices[sub.target.0 as usize],
            local: DatafileRange {
                object: (u64::from(request.file) << 32)
                    | (u64::from(sub.object.component) << 16)
                    | u64::from(sub.object.column),
                offset: sub.local.offset.0,
                len: 0,
            },
            left: sub.local.len.0,
            message_len: 0,
            unsent: 0,
            arrival: None,
        };
        in_flight.parts.clear();
        in_flight.parts.extend(self.subs.iter().map(part));
        in_flight.parts.sort_by_key(|part| part.target);
        in_flight.load_request = Some(load_request);
        self.round(rank, now);
    }

    /// Syncs the datafiles that the rank has written, including what other ranks wrote to them.
    fn sync(&mut self, rank: u32, now: f64, load_request: LoadRequest) {
        let connect = self.figures.network.connect_us * 1e3;
        let mut written = std::mem::take(&mut self.unsynced[rank as usize]);
        written.sort_unstable();
        let part = |&(target, object): &(u32, u64)| TargetRequest {
            target,
            local: DatafileRange { object, offset: 0, len: 0 },
            left: 0,
            message_len: 0,
            unsent: self.targets[target as usize].synced(object),
            arrival: None,
        };
        let in_flight = &mut self.in_flight[rank as usize];
        in_flight.parts.clear();
        in_flight.parts.extend(written.iter().map(part));
        in_flight.load_request = Some(load_request);
        (in_flight.unanswered, in_flight.until) = (in_flight.parts.len() as u32, now);
        if in_flight.parts.is_empty() {
            return self.done(rank, now);
        }
        (0..written.len() as u32).for_each(|part| self.schedule(now + connect, rank, Event::Sync(part)));
    }

    fn synced(&mut self, rank: u32, part: u32, now: f64) {
        let in_flight = &mut self.in_flight[rank as usize];
        let TargetRequest { target, local, unsent: since, .. } = in_flight.parts[part as usize];
        let target = &mut self.targets[target as usize];
        let service = &self.figures.classes[target.class].write;
        match target.sync(now, service, local.object, since) {
            SyncProgress::RetryAt(at) => self.schedule(at, rank, Event::Sync(part)),
            SyncProgress::Complete(at) => {
                in_flight.until = in_flight.until.max(at + self.figures.network.connect_us * 1e3);
                in_flight.unanswered -= 1;
                if in_flight.unanswered == 0 {
                    let until = in_flight.until;
                    self.schedule(until, rank, Event::Round);
                }
            }
        }
    }

    /// Handles a message, and returns when the processors have: they are a queue if the figures name them.
    fn handled(&mut self, now: f64) -> f64 {
        match self.figures.processor {
            Some(processor) => self.processors.carry(now, now, 1e9 / processor.messages_per_s),
            None => now,
        }
    }

    /// Creates the next round: one message for each target with bytes left.
    fn round(&mut self, rank: u32, now: f64) {
        let in_flight = &mut self.in_flight[rank as usize];
        for part in &mut in_flight.parts {
            part.local.offset += part.message_len;
            part.message_len = part.left.min(MESSAGE_MAX);
            part.local.len = part.message_len;
            (part.left, part.unsent, part.arrival) = (part.left - part.message_len, part.message_len, None);
        }
        in_flight.parts.retain(|part| part.message_len > 0);
        (in_flight.at, in_flight.unanswered, in_flight.until) = (0, in_flight.parts.len() as u32, now);
        if in_flight.parts.is_empty() {
            return self.done(rank, now);
        }
        match in_flight.load_request.expect("a request is in flight").request.direction {
            Direction::Read => {
                let connect = self.figures.network.connect_us * 1e3;
                for part in 0..in_flight.unanswered {
                    let there = self.handled(now) + connect;
                    self.schedule(there, rank, Event::Arrived(part));
                }
            }
            Direction::Write => self.send(rank, now),
        }
    }

    fn done(&mut self, rank: u32, now: f64) {
        self.end = self.end.max(now);
        self.left -= 1;
        self.schedule_next_request(rank, now);
        while self.left == 0 && (self.epoch as usize) + 1 < self.load.epochs.len() {
            self.epoch += 1;
            self.left = self.load.epochs[self.epoch as usize];
            let waiting_ranks = std::mem::take(&mut self.waiting_ranks);
            waiting_ranks.into_iter().for_each(|rank| self.schedule_next_request(rank, now));
        }
    }

    /// Sends up to the connection window, one target after the other.
    fn send(&mut self, rank: u32, now: f64) {
        loop {
            let in_flight = &mut self.in_flight[rank as usize];
            let at = in_flight.at;
            let Some(part) = in_flight.parts.get_mut(at) else { return };
            let bytes = part.unsent.min(self.figures.network.window.0.max(1));
            part.unsent -= bytes;
            let (target, unsent) = (part.target as usize, part.unsent);
            let node = &mut self.nodes[rank as usize / self.figures.processes_per_node as usize];
            let there = carry(self.figures, &mut node.1, &mut self.targets[target].into, now, bytes);
            if unsent > 0 {
                return self.schedule(there, rank, Event::Send);
            }
            let there = there + (self.handled(now) - now);
            let in_flight = &mut self.in_flight[rank as usize];
            in_flight.at += 1;
            let same = in_flight.parts.get(in_flight.at).is_some_and(|next| next.target as usize == target);
            self.schedule(there, rank, Event::Arrived(at as u32));
            if same {
                // Both use one connection, which is full.
                return self.schedule(there, rank, Event::Send);
            }
        }
    }

    /// Handles a message that has arrived: a write, or the begin of a read.
    fn arrived(&mut self, rank: u32, part: usize, now: f64) {
        let connect = self.figures.network.connect_us * 1e3;
        let in_flight = &mut self.in_flight[rank as usize];
        let load_request = in_flight.load_request.expect("a request is in flight");
        let part = (part, in_flight.parts[part]);
        let (place, part) = part;
        let local = part.local;
        let target = &mut self.targets[part.target as usize];
        let class = &self.figures.classes[target.class];
        let direction = load_request.request.direction;
        let service = class.service(direction);
        let is_parallel = self.is_parallel[target.class][direction as usize];
        // Of all bytes moved since, this target has received its share.
        let share = if self.moved_bytes > 0.0 { target.moved_bytes / self.moved_bytes } else { 1.0 };
        let is_cached =
            load_request.reuse_distance.is_some_and(|since| since as f64 * share <= class.memory.0 as f64);
        target.moved_bytes += local.len as f64;
        self.moved_bytes += local.len as f64;
        if direction == Direction::Read {
            // The head model has no writes between reads.
            let by_head = !is_cached && !is_parallel && self.load.reads_by_head;
            if let Some(head) = self.heads[target.class].as_ref().filter(|_| by_head) {
                let is_again = load_request.reuse_distance.is_some();
                let waits = target.queue_read(now, (rank, place as u32), local, is_again, service, head);
                if !waits {
                    self.schedule(now, rank, Event::Reply(place as u32));
                }
                return self.advance_head(part.target, now);
            }
            let read = if is_cached { now } else { target.read(now, class, local, is_parallel) };
            return self.schedule(read, rank, Event::Reply(place as u32));
        }
        let written = if service.write_buffer.0 > 0 {
            target.buffer_write(now, service, local)
        } else {
            target.serve(now, service, local, is_parallel)
        };
        let unsynced = (part.target, local.object);
        let mine = &mut self.unsynced[rank as usize];
        if !mine.contains(&unsynced) {
            mine.push(unsynced);
        }
        in_flight.until = in_flight.until.max(written + connect);
        in_flight.unanswered -= 1;
        if in_flight.unanswered == 0 {
            let until = in_flight.until;
            self.schedule(until, rank, Event::Round);
        }
    }

    /// Handles the completion of a head's read.
    fn head_ready(&mut self, number: u32, now: f64) {
        self.targets[number as usize].head.finish_current();
        self.advance_head(number, now);
    }

    /// Starts the next read of an idle head, and answers completed reads.
    fn advance_head(&mut self, number: u32, now: f64) {
        let target = &mut self.targets[number as usize];
        let class = &self.figures.classes[target.class];
        let head = self.heads[target.class].as_ref().expect("only heads are ready");
        let passed = if target.head.is_busy() { None } else { target.start_next(now, class, head) };
        let answered = now + class.read.sequential.startup_ns() + head.overhead_us * 1e3;
        let mut done = std::mem::take(&mut self.completed);
        target.head.take_completed(&mut done);
        if let Some(passed) = passed {
            self.schedule(passed, number, Event::HeadReady);
        }
        done.drain(..).for_each(|(rank, part)| self.schedule(answered, rank, Event::Reply(part)));
        self.completed = done;
    }

    /// Sends the reply of a read, up to the connection window.
    fn reply(&mut self, rank: u32, part: usize, now: f64) {
        let there = self.send_reply(rank, part, now);
        if self.in_flight[rank as usize].at == part {
            self.schedule(there, rank, Event::Receive);
        }
    }

    fn send_reply(&mut self, rank: u32, part: usize, now: f64) -> f64 {
        let part = &mut self.in_flight[rank as usize].parts[part];
        let bytes = part.unsent.min(self.figures.network.window.0.max(1));
        part.unsent -= bytes;
        let node = &mut self.nodes[rank as usize / self.figures.processes_per_node as usize];
        let target = &mut self.targets[part.target as usize];
        let there = carry(self.figures, &mut target.out, &mut node.0, now, bytes);
        part.arrival = Some(there);
        there
    }

    /// Receives what has arrived, one target after the other.
    fn receive(&mut self, rank: u32, now: f64) {
        loop {
            let in_flight = &mut self.in_flight[rank as usize];
            let at = in_flight.at;
            let Some(part) = in_flight.parts.get(at) else { return self.round(rank, now) };
            match part.arrival {
                // The target's answer will schedule it.
                None => return,
                Some(there) if there > now => return self.schedule(there, rank, Event::Receive),
                Some(_) if part.unsent > 0 => {
                    let there = self.send_reply(rank, at, now);
                    return self.schedule(there, rank, Event::Receive);
                }
                Some(_) => in_flight.at += 1,
            }
        }
    }
}

/// For each target, the first one that shares its device.
fn device_of(figures: &Figures) -> Vec<u32> {
    let mut first: BTreeMap<u32, u32> = BTreeMap::new();
    let mut device_of: Vec<u32> = Vec::new();
    for class in &figures.classes {
        for target in 0..class.targets as usize {
            let number = device_of.len() as u32;
            let device = class.devices.as_ref().and_then(|devices| devices.get(target));
            device_of.push(device.map_or(number, |device| *first.entry(*device).or_insert(number)));
        }
    }
    device_of
}

/// Carries bytes from one link to another, and returns the arrival of the last byte.
fn carry(figures: &Figures, out: &mut Link, into: &mut Link, now: f64, bytes: u64) -> f64 {
    let transfer_ns = bytes as f64 * 1e3 / figures.network.mb_s;
    let sent = out.carry(now, now, transfer_ns);
    let ready = sent - transfer_ns + figures.network.connect_us * 1e3;
    into.carry(now, ready, transfer_ns)
}

/// Exponentially distributed random factor of a think time, with mean 1.
fn think_time_factor(seed: u32, rank: u32, number: u32) -> f64 {
    let x = ((u64::from(seed) << 56) ^ (u64::from(rank) << 32) | u64::from(number))
        .wrapping_add(1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let seed = (((x ^ (x >> 27)) >> 11) + 1) as f64 / (1u64 << 53) as f64;
    -seed.ln()
}
