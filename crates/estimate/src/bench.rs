//! A device asked as a benchmark asks it: what a request takes, by direction, order, length and how many there are.
//!
//! Nothing is known of the device but when its requests end.

mod behind;
mod head;

use std::collections::{BTreeMap, BTreeSet};
use weft_core::{ByteLen, LocalOffset, Nanos};
use weft_env::device::{DeviceAction, DeviceModel, DeviceRequest, Ticket};
use weft_planner::Bytes;
use weft_planner::figures::{Depth, Line, Service};
use weft_workload::{Permutation, mix};

/// Lengths that are asked for, bytes.
const LENGTHS: [u64; 4] = [4 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Requests under way at a time.
const DEPTHS: [u32; 4] = [1, 4, 16, 64];
/// Requests of each case of which none waits in memory.
const REQUESTS: u64 = 400;
/// Of those in order where turns are free, so that what the first ones take counts for nothing.
const IN_ORDER: u64 = 4000;
/// Bytes of each case of writes into memory, so that its memory is full for most of it.
const WRITTEN: u64 = 768 << 20;
/// Requests of a case at most.
const REQUESTS_MAX: u64 = 6000;
/// Syncs that are measured.
const SYNCS: u64 = 100;
/// The file of all requests.
const FILE: u64 = 1;

/// A device under test.
#[derive(Clone, Copy)]
pub struct Bench<'a> {
    /// Makes a new one.
    pub device: &'a dyn Fn() -> Box<dyn DeviceModel>,
    /// Whether requests go past memory.
    pub direct: bool,
    /// How much of it is used, bytes.
    pub span: u64,
    /// So much is taken into memory before writers wait, where requests do not go past it.
    pub behind: u64,
    /// So much is gathered there before the device begins.
    pub gathers: u64,
    /// How requests of several streams follow each other.
    pub turns: Turns,
    /// So many requests the device is given at a time.
    pub takes: u32,
    /// The system reads so far ahead, bytes.
    pub ahead: u64,
}

/// How requests of several streams follow each other, and for how long.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Turns {
    /// Strictly in turn, a few hundred, the first of which finds its place. The planner's policies were judged by figures
    /// of these.
    #[default]
    Strict,
    /// Each stream goes on as soon as its own request is done, as programs do, and as clusters that run are measured.
    Free,
}

/// Where the requests of a case lie.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Sequential,
    Random,
    /// So many streams in turn, each in order.
    Streams,
    /// In order but for neighbors, which are mixed.
    Near,
}

/// Streams of that case, each with a request under way.
const STREAMS: u64 = 16;
/// Neighbors that are mixed, and how many of them are under way at a time.
const NEIGHBORS: u64 = 8;
const NEAR_DEPTH: u32 = 4;

impl Bench<'_> {
    /// Reads.
    pub fn reads(&self) -> Service {
        let random = DEPTHS.map(|depth| {
            let line = line(|len| self.read(Order::Random, depth, len));
            Depth { depth, startup_us: line.startup_us, mb_s: line.mb_s }
        });
        let sequential = line(|len| self.read(Order::Sequential, 1, len));
        Service {
            sequential,
            head: self.head(sequential),
            streams: Some(line(|len| self.read(Order::Streams, STREAMS as u32, len))),
            near: Some(line(|len| self.read(Order::Near, NEAR_DEPTH, len))),
            random: falling(random),
            scattered: Vec::new(),
            sync_us: 0.0,
            waits: self.waits(),
            cache: None,
            behind: Bytes(0),
            gathers: Bytes(0),
        }
    }

    /// Writes, with what it takes until they are on the medium.
    pub fn writes(&self) -> Service {
        if self.direct {
            let random = DEPTHS.map(|depth| {
                let line = line(|len| self.write(Order::Random, depth, len));
                Depth { depth, startup_us: line.startup_us, mb_s: line.mb_s }
            });
            let sequential = line(|len| self.write(Order::Sequential, 1, len));
            let streams = Some(line(|len| self.write(Order::Streams, STREAMS as u32, len)));
            let near = Some(line(|len| self.write(Order::Near, NEAR_DEPTH, len)));
            return Service {
                sequential,
                head: None,
                streams,
                near,
                random: falling(random),
                scattered: Vec::new(),
                sync_us: 0.0,
                waits: None,
                cache: None,
                behind: Bytes(0),
                gathers: Bytes(0),
            };
        }
        // What memory has no time to gather comes to the device as if it went past it.
        let past = Self { direct: true, ..*self };
        let scattered = DEPTHS.map(|depth| {
            let line = line(|len| past.write(Order::Random, depth, len));
            Depth { depth, startup_us: line.startup_us, mb_s: line.mb_s }
        });
        // Memory gathers and orders what is written: how many writers there are makes no difference.
        let random = line(|len| self.write(Order::Random, 4, len));
        Service {
            sequential: line(|len| self.write(Order::Sequential, 4, len)),
            head: None,
            streams: Some(line(|len| self.write(Order::Streams, STREAMS as u32, len))),
            near: None,
            random: vec![Depth { depth: 1, startup_us: random.startup_us, mb_s: random.mb_s }],
            scattered: scattered.to_vec(),
            sync_us: self.sync(),
            waits: None,
            cache: self.cache(),
            behind: Bytes(self.behind),
            gathers: Bytes(self.gathers),
        }
    }

    fn read(&self, order: Order, depth: u32, len: u64) -> f64 {
        let mut run = self.prepared();
        let count = self.requests(order, depth);
        self.run(&mut run, DeviceAction::Read, order, depth, (len, count))
    }

    /// Requests of a case; nanoseconds for each.
    fn run(
        &self,
        run: &mut Run,
        action: DeviceAction,
        order: Order,
        depth: u32,
        (len, count): (u64, u64),
    ) -> f64 {
        let count = count.min((self.span / len).max(1));
        let asked = |at: u64| self.asked(action, at, len);
        let stream = |number: u64, of: u64| offsets(order, (number, of), count, len, self.span).map(asked);
        match (self.turns, order) {
            (Turns::Free, Order::Streams | Order::Near) => {
                run.streams((0..depth.into()).map(|number| stream(number, depth.into())).collect())
            }
            _ => run.each(depth, stream(0, 1)),
        }
    }

    fn write(&self, order: Order, depth: u32, len: u64) -> f64 {
        let mut run = Run::new((self.device)());
        if order != Order::Sequential {
            run.one(&self.asked(DeviceAction::Write, self.span - 1, 1));
            run.one(&self.asked(DeviceAction::Sync, 0, 1));
        }
        let count = match self.direct {
            true => self.requests(order, depth),
            false => (WRITTEN / len).clamp(64, REQUESTS_MAX),
        };
        let count = count.min((self.span / len).max(1));
        let begun = run.clock;
        self.run(&mut run, DeviceAction::Write, order, depth, (len, count));
        let unsynced = if self.direct { 0 } else { count * len };
        run.one(&self.asked(DeviceAction::Sync, 0, unsynced));
        (run.clock - begun) as f64 / count as f64
    }

    /// Requests of a case of which none waits in memory.
    fn requests(&self, order: Order, depth: u32) -> u64 {
        match (self.turns, order) {
            (Turns::Free, Order::Sequential | Order::Near) => IN_ORDER,
            _ => REQUESTS.max(4 * u64::from(depth)),
        }
    }

    /// What a sync takes of a file that grows, microseconds.
    fn sync(&self) -> f64 {
        const LEN: u64 = 4096;
        let mut run = Run::new((self.device)());
        let growing = |number| {
            [self.asked(DeviceAction::Write, number * LEN, LEN), self.asked(DeviceAction::Sync, 0, LEN)]
        };
        let takes = run.each(1, (0..SYNCS).flat_map(growing)) * 2.0;
        short(takes / 1e3)
    }

    fn asked(&self, action: DeviceAction, at: u64, len: u64) -> DeviceRequest {
        let is_direct = self.direct && action != DeviceAction::Sync;
        // Past memory only whole pages go.
        let (at, len) = if is_direct { (at / 4096 * 4096, len.next_multiple_of(4096)) } else { (at, len) };
        DeviceRequest { action, file: FILE, offset: LocalOffset(at), len: ByteLen(len), is_direct }
    }
}

/// Offsets of one of so many streams of a case, the same whenever it is asked, none twice: memory is not to answer.
fn offsets(
    order: Order,
    (stream, streams): (u64, u64),
    count: u64,
    len: u64,
    span: u64,
) -> impl Iterator<Item = u64> {
    let places = (span / len).max(1);
    let random = Permutation::new(places, len);
    let neighbors = Permutation::new(NEIGHBORS, len);
    let place = move |n: u64| match order {
        Order::Sequential => n,
        Order::Random => random.at(n),
        Order::Near if n / NEIGHBORS < places / NEIGHBORS => {
            n / NEIGHBORS * NEIGHBORS + neighbors.at(n % NEIGHBORS)
        }
        Order::Near => n,
        Order::Streams if streams == 1 => (n % STREAMS * (places / STREAMS) + n / STREAMS) % places,
        // A region each, but not begun at its beginning: what lies equally far apart may lie on one die of an SSD, and who
        // reads there in step waits for the others.
        Order::Streams => {
            let region = (places / streams).max(1);
            (stream * region + (mix(stream) % region + n / streams) % region) % places
        }
    };
    (stream..count.min(places)).step_by(streams as usize).map(move |n| place(n) * len)
}

/// A line through the times of all lengths, by the least squares of their relative errors.
fn line(time: impl Fn(u64) -> f64) -> Line {
    let points = LENGTHS.map(|len| (len as f64, time(len).max(1.0)));
    // With weights of 1/y^2 the errors are relative.
    let sum = |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|&(x, y)| of(x, y) / (y * y)).sum::<f64>();
    let (n, x, y) = (sum(&|_, _| 1.0), sum(&|x, _| x), sum(&|_, y| y));
    let (xx, xy) = (sum(&|x, _| x * x), sum(&|x, y| x * y));
    let slope = ((n * xy - x * y) / (n * xx - x * x)).max(1e-4);
    let startup = ((y - slope * x) / n).max(0.0);
    Line { startup_us: short(startup / 1e3), mb_s: short(1e3 / slope) }
}

/// Four figures: more would pretend to be known, and make a plan hard to read.
fn short(value: f64) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    let scale = 10f64.powi(3 - value.log10().floor() as i32);
    (value * scale).round() / scale
}

/// More at a time never take longer each: what would say so is chance of a few hundred requests.
fn falling(mut depths: [Depth; DEPTHS.len()]) -> Vec<Depth> {
    for at in 1..depths.len() {
        let (before, now) = (depths[at - 1], depths[at]);
        let ns = |depth: Depth| depth.startup_us * 1e3 + 65_536.0 * 1e3 / depth.mb_s;
        if ns(now) > ns(before) {
            depths[at] = Depth { depth: now.depth, ..before };
        }
    }
    depths.to_vec()
}

/// A device and its clock.
struct Run {
    device: Box<dyn DeviceModel>,
    clock: u64,
    ticket: u64,
}

impl Run {
    fn new(device: Box<dyn DeviceModel>) -> Self {
        Self { device, clock: 0, ticket: 0 }
    }

    /// Asks for nothing for so long, nanoseconds.
    fn pause(&mut self, nanoseconds: u64) {
        let until = self.clock + nanoseconds;
        while let Some(next) = self.device.next_event().filter(|next| next.0 <= until) {
            self.clock = self.clock.max(next.0);
            self.device.advance(Nanos(self.clock), &mut Vec::new());
        }
        self.clock = until;
    }

    /// Hands one in and waits for it.
    fn one(&mut self, request: &DeviceRequest) {
        self.each(1, std::iter::once(*request));
    }

    /// Has one of each stream under way until all are done; nanoseconds for each.
    fn streams<S: Iterator<Item = DeviceRequest>>(&mut self, mut streams: Vec<S>) -> f64 {
        let begun = self.clock;
        let (mut under_way, mut done, mut count) = (BTreeMap::new(), Vec::new(), 0u64);
        let mut ready: Vec<usize> = (0..streams.len()).collect();
        loop {
            for stream in ready.drain(..) {
                if let Some(request) = streams[stream].next() {
                    self.ticket += 1;
                    count += 1;
                    under_way.insert(Ticket(self.ticket), stream);
                    self.device.submit(Nanos(self.clock), Ticket(self.ticket), &request);
                }
            }
            if under_way.is_empty() {
                return (self.clock - begun) as f64 / count.max(1) as f64;
            }
            self.wait(&mut done);
            ready.extend(done.drain(..).filter_map(|ticket| under_way.remove(&ticket)));
        }
    }

    /// To the next time at which something may be done.
    fn wait(&mut self, done: &mut Vec<Ticket>) {
        let next = self.device.next_event().expect("something is under way");
        self.clock = self.clock.max(next.0);
        self.device.advance(Nanos(self.clock), done);
    }

    /// Has so many under way until all are done; nanoseconds for each.
    fn each(&mut self, depth: u32, requests: impl Iterator<Item = DeviceRequest>) -> f64 {
        let begun = self.clock;
        let (mut under_way, mut done, mut count) = (BTreeSet::new(), Vec::new(), 0u64);
        let mut requests = requests.fuse();
        loop {
            while under_way.len() < depth as usize
                && let Some(request) = requests.next()
            {
                self.ticket += 1;
                count += 1;
                under_way.insert(Ticket(self.ticket));
                self.device.submit(Nanos(self.clock), Ticket(self.ticket), &request);
            }
            if under_way.is_empty() {
                return (self.clock - begun) as f64 / count.max(1) as f64;
            }
            self.wait(&mut done);
            for ticket in done.drain(..) {
                under_way.remove(&ticket);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_env::sim::SimpleDisk;
    use weft_models::Profile;

    #[test]
    fn a_disk_of_known_figures_is_measured_as_it_is() {
        let device = || -> Box<dyn DeviceModel> { Box::new(SimpleDisk::new(Nanos(50_000), 2_000_000_000)) };
        let bench = Bench {
            device: &device,
            direct: true,
            span: 1 << 30,
            behind: 0,
            gathers: 0,
            turns: Turns::Strict,
            takes: 16,
            ahead: 0,
        };
        for service in [bench.reads(), bench.writes()] {
            let alone = service.alone();
            assert!(
                (alone.startup_us - 50.0).abs() < 3.0 && (alone.mb_s / 2000.0 - 1.0).abs() < 0.05,
                "{alone:?}"
            );
            // One queue: more at a time are no quicker.
            assert!((service.random_ns(64, 0.0) / 50_000.0 - 1.0).abs() < 0.06);
        }
    }

    #[test]
    fn disks_gain_by_order_and_ssds_by_depth() {
        let of = |name: &str| {
            let profile = Profile::by_name(name).unwrap();
            let device = move || profile.build(1);
            Bench {
                device: &device,
                direct: false,
                span: 4 << 30,
                behind: 0,
                gathers: 0,
                turns: Turns::Strict,
                takes: 16,
                ahead: 0,
            }
            .reads()
        };
        let (hdd, ssd) = (of("psa-hdd"), of("psa-ssd"));
        assert!(hdd.alone().startup_us > 4_000.0 && hdd.sequential.startup_us < 1_000.0, "{hdd:?}");
        let gain = |service: &Service| service.random_ns(1, 4096.0) / service.random_ns(64, 4096.0);
        assert!((1.3..6.0).contains(&gain(&hdd)), "{hdd:?}");
        assert!(gain(&ssd) > 5.0, "{ssd:?}");
    }

    #[test]
    fn a_head_is_known_by_what_requests_near_each_other_take() {
        let of = |name: &str| {
            let profile = Profile::by_name(name).unwrap();
            let device = move || profile.build(1);
            let bench = Bench {
                device: &device,
                direct: false,
                span: 1 << 30,
                behind: 0,
                gathers: 0,
                turns: Turns::Strict,
                takes: 16,
                ahead: 128 << 10,
            };
            bench.reads().head
        };
        // 7,200 turns a minute, 256 KiB and eight segments; seeks of 1 ms and more.
        let head = of("psa-hdd").unwrap();
        assert!((head.turn_us / 8_333.0 - 1.0).abs() < 0.02, "{head:?}");
        assert_eq!((head.reads_on.0, head.stretches), (256 << 10, 8), "{head:?}");
        assert!((800.0..1_400.0).contains(&head.seeks[0].us), "{head:?}");
        assert!(head.seeks.windows(2).all(|two| two[0].us <= two[1].us), "{head:?}");
        assert!(of("hdd-7200").is_some());
        for nothing_turns in ["psa-ssd", "nvme", "sata-ssd"] {
            assert_eq!(of(nothing_turns), None);
        }
    }
}
