//! Benchmarks a device model as a black box: request times by direction, order, length and queue depth.
//!
//! Each figure is a least-squares line over four request lengths; only completion times are observed.
//!
//! | figure | how it is measured |
//! | --- | --- |
//! | `sequential` | adjacent requests, one at a time |
//! | `streams` | 16 sequential streams, interleaved |
//! | `near` | sequential except that each 8 adjacent requests are shuffled, 4 at a time |
//! | `random` | random offsets at queue depths 1, 4, 16 and 64 |
//! | `scattered` | random direct writes, for data that the page cache had no time to merge |
//! | `sync_us` | small appends, each with a sync |
//! | `waits`, `cache` | module `write_back` |
//! | `head` | module `head` |

mod head;
mod write_back;

use std::collections::{BTreeMap, BTreeSet};
use weft_core::random::splitmix64;
use weft_core::{ByteLen, LocalOffset, Nanos};
use weft_env::device::{DeviceAction, DeviceModel, DeviceRequest, Ticket};
use weft_planner::Bytes;
use weft_planner::figures::{Depth, Line, Service};
use weft_workload::Permutation;

/// Request lengths, bytes.
const LENGTHS: [u64; 4] = [4 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Queue depths.
const DEPTHS: [u32; 4] = [1, 4, 16, 64];
/// Requests of a case without page cache.
const REQUESTS: u64 = 400;
/// Requests of a sequential case with independent streams. High enough that the first seek does not matter.
const REQUESTS_SEQUENTIAL: u64 = 4000;
/// Bytes of a case of buffered writes. High enough that the write buffer is full for most of the case.
const BUFFERED_BYTES: u64 = 768 << 20;
/// Maximum requests of a case.
const REQUESTS_MAX: u64 = 6000;
/// Number of syncs measured.
const SYNCS: u64 = 100;
/// File of all requests.
const FILE_ID: u64 = 1;

/// A device under test.
#[derive(Clone, Copy)]
pub struct Bench<'a> {
    /// Creates a device.
    pub device: &'a dyn Fn() -> Box<dyn DeviceModel>,
    /// Whether requests bypass the page cache.
    pub direct: bool,
    /// Bytes of the device in use.
    pub span: u64,
    /// Dirty bytes before writers block.
    pub write_buffer: u64,
    /// Dirty bytes at which write-back begins.
    pub write_back_threshold: u64,
    /// Schedule of interleaved streams.
    pub schedule: StreamSchedule,
    /// Device queue depth.
    pub queue_depth: u32,
    /// Read-ahead of the operating system, bytes.
    pub read_ahead: u64,
}

/// How the requests of several streams interleave.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum StreamSchedule {
    /// Round robin, a few hundred requests including the first seek. The planner's policies were tuned with figures of
    /// this schedule.
    #[default]
    RoundRobin,
    /// Each stream issues its next request when its previous one completes, as programs do and as running clusters are
    /// measured.
    Independent,
}

/// Offsets of a case.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Sequential,
    Random,
    /// Interleaved sequential streams.
    Streams,
    /// Sequential, except that adjacent requests are shuffled in small groups.
    Near,
}

/// Number of interleaved streams, each with a request in flight.
const STREAMS: u64 = 16;
/// Number of adjacent requests that are shuffled, and their queue depth.
const SHUFFLED_NEIGHBORS: u64 = 8;
const NEAR_DEPTH: u32 = 4;

impl Bench<'_> {
    /// Measures reads.
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
            random: non_increasing(random),
            scattered: Vec::new(),
            sync_us: 0.0,
            read_delay: self.read_delay(),
            cache: None,
            write_buffer: Bytes(0),
            write_back_threshold: Bytes(0),
        }
    }

    /// Measures writes, including the time until they are on the medium.
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
                random: non_increasing(random),
                scattered: Vec::new(),
                sync_us: 0.0,
                read_delay: None,
                cache: None,
                write_buffer: Bytes(0),
                write_back_threshold: Bytes(0),
            };
        }
        // Writes that the page cache cannot merge reach the device like direct writes.
        let past = Self { direct: true, ..*self };
        let scattered = DEPTHS.map(|depth| {
            let line = line(|len| past.write(Order::Random, depth, len));
            Depth { depth, startup_us: line.startup_us, mb_s: line.mb_s }
        });
        // The page cache sorts writes, so the number of writers makes no difference.
        let random = line(|len| self.write(Order::Random, 4, len));
        Service {
            sequential: line(|len| self.write(Order::Sequential, 4, len)),
            head: None,
            streams: Some(line(|len| self.write(Order::Streams, STREAMS as u32, len))),
            near: None,
            random: vec![Depth { depth: 1, startup_us: random.startup_us, mb_s: random.mb_s }],
            scattered: scattered.to_vec(),
            sync_us: self.sync(),
            read_delay: None,
            cache: self.cache(),
            write_buffer: Bytes(self.write_buffer),
            write_back_threshold: Bytes(self.write_back_threshold),
        }
    }

    fn read(&self, order: Order, depth: u32, len: u64) -> f64 {
        let mut run = self.prepared();
        let count = self.requests(order, depth);
        self.run(&mut run, DeviceAction::Read, order, depth, (len, count))
    }

    /// Runs the requests of a case; nanoseconds per request.
    fn run(
        &self,
        run: &mut DeviceRun,
        action: DeviceAction,
        order: Order,
        depth: u32,
        (len, count): (u64, u64),
    ) -> f64 {
        let count = count.min((self.span / len).max(1));
        let request = |at: u64| self.request(action, at, len);
        let stream = |number: u64, of: u64| offsets(order, (number, of), count, len, self.span).map(request);
        match (self.schedule, order) {
            (StreamSchedule::Independent, Order::Streams | Order::Near) => {
                run.run_streams((0..depth.into()).map(|number| stream(number, depth.into())).collect())
            }
            _ => run.run_at_depth(depth, stream(0, 1)),
        }
    }

    fn write(&self, order: Order, depth: u32, len: u64) -> f64 {
        let mut run = DeviceRun::new((self.device)());
        if order != Order::Sequential {
            run.run_one(&self.request(DeviceAction::Write, self.span - 1, 1));
            run.run_one(&self.request(DeviceAction::Sync, 0, 1));
        }
        let count = match self.direct {
            true => self.requests(order, depth),
            false => (BUFFERED_BYTES / len).clamp(64, REQUESTS_MAX),
        };
        let count = count.min((self.span / len).max(1));
        let begun = run.clock;
        self.run(&mut run, DeviceAction::Write, order, depth, (len, count));
        let unsynced = if self.direct { 0 } else { count * len };
        run.run_one(&self.request(DeviceAction::Sync, 0, unsynced));
        (run.clock - begun) as f64 / count as f64
    }

    /// Number of requests of a case without page cache.
    fn requests(&self, order: Order, depth: u32) -> u64 {
        match (self.schedule, order) {
            (StreamSchedule::Independent, Order::Sequential | Order::Near) => REQUESTS_SEQUENTIAL,
            _ => REQUESTS.max(4 * u64::from(depth)),
        }
    }

    /// Time of a sync after an append, microseconds.
    fn sync(&self) -> f64 {
        const LEN: u64 = 4096;
        let mut run = DeviceRun::new((self.device)());
        let growing = |number| {
            [self.request(DeviceAction::Write, number * LEN, LEN), self.request(DeviceAction::Sync, 0, LEN)]
        };
        let takes = run.run_at_depth(1, (0..SYNCS).flat_map(growing)) * 2.0;
        rounded(takes / 1e3)
    }

    fn request(&self, action: DeviceAction, at: u64, len: u64) -> DeviceRequest {
        let is_direct = self.direct && action != DeviceAction::Sync;
        // Direct I/O requires whole pages.
        let (at, len) = if is_direct { (at / 4096 * 4096, len.next_multiple_of(4096)) } else { (at, len) };
        DeviceRequest { action, file: FILE_ID, offset: LocalOffset(at), len: ByteLen(len), is_direct }
    }
}

/// Offsets of one stream of a case, without repetition, so that the page cache cannot answer.
fn offsets(
    order: Order,
    (stream, streams): (u64, u64),
    count: u64,
    len: u64,
    span: u64,
) -> impl Iterator<Item = u64> {
    let places = (span / len).max(1);
    let random = Permutation::new(places, len);
    let neighbors = Permutation::new(SHUFFLED_NEIGHBORS, len);
    let place = move |n: u64| match order {
        Order::Sequential => n,
        Order::Random => random.at(n),
        Order::Near if n / SHUFFLED_NEIGHBORS < places / SHUFFLED_NEIGHBORS => {
            n / SHUFFLED_NEIGHBORS * SHUFFLED_NEIGHBORS + neighbors.at(n % SHUFFLED_NEIGHBORS)
        }
        Order::Near => n,
        Order::Streams if streams == 1 => (n % STREAMS * (places / STREAMS) + n / STREAMS) % places,
        // Each stream has a region and starts at a random offset in it. Equally spaced streams might all use the same
        // die of an SSD and wait for each other.
        Order::Streams => {
            let region = (places / streams).max(1);
            (stream * region + (splitmix64(stream) % region + n / streams) % region) % places
        }
    };
    (stream..count.min(places)).step_by(streams as usize).map(move |n| place(n) * len)
}

/// A line through the times of all lengths, by least squares of relative errors.
fn line(time: impl Fn(u64) -> f64) -> Line {
    let points = LENGTHS.map(|len| (len as f64, time(len).max(1.0)));
    // Weights of 1/y^2 make the errors relative.
    let sum = |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|&(x, y)| of(x, y) / (y * y)).sum::<f64>();
    let (n, x, y) = (sum(&|_, _| 1.0), sum(&|x, _| x), sum(&|_, y| y));
    let (xx, xy) = (sum(&|x, _| x * x), sum(&|x, y| x * y));
    let slope = ((n * xy - x * y) / (n * xx - x * x)).max(1e-4);
    let startup = ((y - slope * x) / n).max(0.0);
    Line { startup_us: rounded(startup / 1e3), mb_s: rounded(1e3 / slope) }
}

/// Rounds to four significant digits, the precision of the measurement.
fn rounded(value: f64) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    let scale = 10f64.powi(3 - value.log10().floor() as i32);
    (value * scale).round() / scale
}

/// Makes the time per request non-increasing with depth. An increase is noise of a few hundred requests.
fn non_increasing(mut depths: [Depth; DEPTHS.len()]) -> Vec<Depth> {
    for at in 1..depths.len() {
        let (before, now) = (depths[at - 1], depths[at]);
        let ns = |depth: Depth| depth.startup_us * 1e3 + 65_536.0 * 1e3 / depth.mb_s;
        if ns(now) > ns(before) {
            depths[at] = Depth { depth: now.depth, ..before };
        }
    }
    depths.to_vec()
}

/// A device and its virtual clock.
struct DeviceRun {
    device: Box<dyn DeviceModel>,
    clock: u64,
    ticket: u64,
}

impl DeviceRun {
    fn new(device: Box<dyn DeviceModel>) -> Self {
        Self { device, clock: 0, ticket: 0 }
    }

    /// Lets the device idle.
    fn pause(&mut self, nanoseconds: u64) {
        let until = self.clock + nanoseconds;
        while let Some(next) = self.device.next_event().filter(|next| next.0 <= until) {
            self.clock = self.clock.max(next.0);
            self.device.advance(Nanos(self.clock), &mut Vec::new());
        }
        self.clock = until;
    }

    /// Submits a request and waits for it.
    fn run_one(&mut self, request: &DeviceRequest) {
        self.run_at_depth(1, std::iter::once(*request));
    }

    /// Runs one request of each stream at a time; nanoseconds per request.
    fn run_streams<S: Iterator<Item = DeviceRequest>>(&mut self, mut streams: Vec<S>) -> f64 {
        let begun = self.clock;
        let (mut in_flight, mut done, mut count) = (BTreeMap::new(), Vec::new(), 0u64);
        let mut ready: Vec<usize> = (0..streams.len()).collect();
        loop {
            for stream in ready.drain(..) {
                if let Some(request) = streams[stream].next() {
                    self.ticket += 1;
                    count += 1;
                    in_flight.insert(Ticket(self.ticket), stream);
                    self.device.submit(Nanos(self.clock), Ticket(self.ticket), &request);
                }
            }
            if in_flight.is_empty() {
                return (self.clock - begun) as f64 / count.max(1) as f64;
            }
            self.advance(&mut done);
            ready.extend(done.drain(..).filter_map(|ticket| in_flight.remove(&ticket)));
        }
    }

    /// Advances to the next event of the device.
    fn advance(&mut self, done: &mut Vec<Ticket>) {
        let next = self.device.next_event().expect("a request is in flight");
        self.clock = self.clock.max(next.0);
        self.device.advance(Nanos(self.clock), done);
    }

    /// Runs requests at a queue depth; nanoseconds per request.
    fn run_at_depth(&mut self, depth: u32, requests: impl Iterator<Item = DeviceRequest>) -> f64 {
        let begun = self.clock;
        let (mut in_flight, mut done, mut count) = (BTreeSet::new(), Vec::new(), 0u64);
        let mut requests = requests.fuse();
        loop {
            while in_flight.len() < depth as usize
                && let Some(request) = requests.next()
            {
                self.ticket += 1;
                count += 1;
                in_flight.insert(Ticket(self.ticket));
                self.device.submit(Nanos(self.clock), Ticket(self.ticket), &request);
            }
            if in_flight.is_empty() {
                return (self.clock - begun) as f64 / count.max(1) as f64;
            }
            self.advance(&mut done);
            for ticket in done.drain(..) {
                in_flight.remove(&ticket);
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
    fn a_disk_of_known_figures_is_measured_correctly() {
        let device = || -> Box<dyn DeviceModel> { Box::new(SimpleDisk::new(Nanos(50_000), 2_000_000_000)) };
        let bench = Bench {
            device: &device,
            direct: true,
            span: 1 << 30,
            write_buffer: 0,
            write_back_threshold: 0,
            schedule: StreamSchedule::RoundRobin,
            queue_depth: 16,
            read_ahead: 0,
        };
        for service in [bench.reads(), bench.writes()] {
            let alone = service.alone();
            assert!(
                (alone.startup_us - 50.0).abs() < 3.0 && (alone.mb_s / 2000.0 - 1.0).abs() < 0.05,
                "{alone:?}"
            );
            // A single queue: a greater depth is not faster.
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
                write_buffer: 0,
                write_back_threshold: 0,
                schedule: StreamSchedule::RoundRobin,
                queue_depth: 16,
                read_ahead: 0,
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
    fn head_figures_follow_from_requests_near_each_other() {
        let of = |name: &str| {
            let profile = Profile::by_name(name).unwrap();
            let device = move || profile.build(1);
            let bench = Bench {
                device: &device,
                direct: false,
                span: 1 << 30,
                write_buffer: 0,
                write_back_threshold: 0,
                schedule: StreamSchedule::RoundRobin,
                queue_depth: 16,
                read_ahead: 128 << 10,
            };
            bench.reads().head
        };
        // A disk of 7,200 rotations per minute with eight cache segments of 256 KiB, and seeks from 1 ms on.
        let head = of("psa-hdd").unwrap();
        assert!((head.rotation_us / 8_333.0 - 1.0).abs() < 0.02, "{head:?}");
        assert_eq!((head.look_ahead.0, head.cache_segments), (256 << 10, 8), "{head:?}");
        assert!((800.0..1_400.0).contains(&head.seeks[0].us), "{head:?}");
        assert!(head.seeks.windows(2).all(|two| two[0].us <= two[1].us), "{head:?}");
        assert!(of("hdd-7200").is_some());
        for ssd in ["psa-ssd", "nvme", "sata-ssd"] {
            assert_eq!(of(ssd), None);
        }
    }
}
