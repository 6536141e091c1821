//! One target measured through its server: by messages that have it do requests on a datafile of nobody's.

use super::cases::{self, Case, Offsets, Order, STREAMS};
use super::fit::{Point, Stream};
use super::memory::Held;
use parking_lot::Mutex;
use std::sync::Arc;
use weft_client::{Client, Error, ProbeWork};
use weft_core::{ByteLen, LocalOffset, Nanos, TargetId};
use weft_env::{Env, Notify};
use weft_planner::mix::Direction;
use weft_wire::Errno;
use weft_wire::data::PROBES_MAX;

/// Longest that a message has the server measure.
pub(super) const STEP: Nanos = Nanos::from_ms(500);
/// Bytes written at a time where the datafile has to be there.
const FILL_LEN: u64 = 1 << 20;
/// Requests of a round of writes into memory at most.
const ROUND_MAX: u64 = 6000;
/// Past memory: the disk's own memory is small.
const PAST_MAX: u64 = 400;
/// Of the time such a part is for reading what memory may have then.
const MEMORY_PART: u64 = 8;
/// Syncs at most.
const SYNCS_MAX: usize = 400;
/// A round ends whatever happens.
const ROUND_TIME: Nanos = Nanos::from_s(60);
/// Reads of a case at most: more make no figure better.
const REQUESTS_MAX: u64 = 4096;
/// Rounds of the same length whose times are compared.
const ROUNDS: usize = 4;

/// How a target is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// How much of it is used, bytes.
    pub span: u64,
    /// Over how much of it distances are measured; more than the span only where it is `sparse`.
    pub reach: u64,
    /// About how long all may take.
    pub time: Nanos,
    /// Fewer lengths and depths.
    pub quick: bool,
    /// Requests go past memory.
    pub direct: bool,
    /// The device knows no contents: what lies there need not be written first.
    pub sparse: bool,
}

/// A target as it was found.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// Every case.
    pub(super) cases: Vec<(Case, Point)>,
    /// What memory has of what was read; `None` where requests go past it.
    pub(super) held: Option<Held>,
    /// Over how much of it.
    pub span: u64,
    /// Over how much of it distances were measured.
    pub reach: u64,
    /// Whether requests went past memory.
    pub direct: bool,
}

impl Measured {
    /// Requests that were done.
    pub fn samples(&self) -> u64 {
        self.cases.iter().map(|(_, point)| point.count).sum()
    }

    /// What is known of each kind of request.
    pub fn points(&self) -> impl Iterator<Item = &Point> {
        self.cases.iter().map(|(_, point)| point)
    }
}

/// Steps in which [`target`] tells its progress.
pub fn steps(plan: &Plan) -> u64 {
    cases::all(plan.reach, plan.direct, plan.quick).len() as u64 + 2
}

/// Measures a target. `progress` is told of each step as it begins. What is left there for the purpose goes when this ends,
/// and with the client's connection whatever happens.
///
/// # Errors
/// Whatever the server says.
pub async fn target<E: Env>(
    client: &Client<E>,
    target: TargetId,
    plan: &Plan,
    progress: &(dyn Fn(&str) + Sync),
) -> Result<Measured, Error> {
    let bench = Bench { client, target, plan };
    let measured = async {
        let cases = bench.all(progress).await?;
        if plan.direct {
            return Ok((cases, None));
        }
        progress("what memory still has");
        Ok((cases, Some(bench.memory(Nanos(plan.time.0 / MEMORY_PART)).await?)))
    };
    let measured = measured.await;
    // When measuring failed the datafile may be gone, with its connection or its server.
    let removed = bench.ask(ProbeWork::Remove).await;
    let (cases, held) = measured?;
    removed?;
    Ok(Measured { cases, held, span: plan.span, reach: plan.span.max(plan.reach), direct: plan.direct })
}

/// A target that is being measured.
pub(super) struct Bench<'a, E: Env> {
    pub client: &'a Client<E>,
    pub target: TargetId,
    pub plan: &'a Plan,
}

impl<E: Env> Bench<'_, E> {
    pub(super) async fn ask(&self, work: ProbeWork) -> Result<(), Error> {
        self.client.probe(self.target, work, 0, Vec::new(), STEP).await.map(drop)
    }

    async fn all(&self, progress: &(dyn Fn(&str) + Sync)) -> Result<Vec<(Case, Point)>, Error> {
        let plan = self.plan;
        progress("making room");
        self.ask(ProbeWork::Make(ByteLen(plan.span.max(plan.reach)))).await?;
        if !plan.sparse {
            self.fill().await?;
        }
        let cases = cases::all(plan.reach, plan.direct, plan.quick);
        let begun = self.client.env().now();
        let mut left: f64 = cases.iter().map(Case::share).sum();
        let mut found = Vec::with_capacity(cases.len());
        for case in cases {
            progress(&case.name());
            // What one case left in memory is not to answer the next, nor its writes to be the next one's load.
            self.ask(ProbeWork::Sync).await?;
            self.ask(ProbeWork::Forget).await?;
            // What others did not need, or took too long for, is dealt out over those that are left.
            let passed = self.client.env().now().saturating_sub(begun);
            let share = plan.time.saturating_sub(passed).0 as f64 * case.share() / left;
            let floor = plan.time.0 as f64 * 0.25 * case.share() / 60.0;
            let time = Nanos(share.max(floor) as u64);
            left -= case.share();
            let point = match case.direction {
                Direction::Write if case.order == Order::Sync => self.syncs(case, time).await?,
                Direction::Write => match self.rounds(case, time).await {
                    Ok(point) => point,
                    // The target's file system knows no direct I/O.
                    Err(error) if case.order == Order::Past && error.errno() == Errno::EINVAL.0 => continue,
                    Err(error) => return Err(error),
                },
                Direction::Read => {
                    let span =
                        if matches!(case.order, Order::Apart(_)) { self.plan.reach } else { self.plan.span };
                    let mut streams = self.streams(case, span, time, REQUESTS_MAX).await?;
                    if matches!(case.order, Order::Apart(_)) {
                        second(&mut streams[0]);
                    }
                    Point::of_streams(case.name(), case.len, &streams)
                }
            };
            found.push((case, point));
        }
        Ok(found)
    }

    /// Writes all of the datafile.
    async fn fill(&self) -> Result<(), Error> {
        let mut at = 0;
        while at < self.plan.span {
            let end = self.plan.span.min(at + 64 * FILL_LEN);
            let offsets: Vec<_> = (at..end).step_by(FILL_LEN as usize).map(LocalOffset).collect();
            let len = FILL_LEN.min(self.plan.span) as u32;
            let (times, _) = self.client.probe(self.target, ProbeWork::Write, len, offsets, STEP).await?;
            at += times.len() as u64 * FILL_LEN;
        }
        self.ask(ProbeWork::Sync).await
    }

    /// As many streams side by side as requests are to be under way, for so long or until so many are done.
    async fn streams(&self, case: Case, span: u64, time: Nanos, requests: u64) -> Result<Vec<Stream>, Error> {
        let env = self.client.env();
        let end = env.now().saturating_add(time);
        let each = (requests / u64::from(case.depth)).max(1);
        let shared = Arc::new(Shared {
            done: Mutex::new((vec![Stream::default(); case.depth as usize], case.depth, None)),
            changed: env.notify(),
        });
        for number in 1..case.depth {
            let (client, target) = (self.client.clone(), self.target);
            let worker = Arc::clone(&shared);
            let body = move || async move {
                let outcome =
                    stream(&client, target, case, Offsets::new(case, span, number), (end, each)).await;
                worker.tell(number, outcome);
            };
            if env.spawn("weft profile", body).is_err() {
                let why = "no thread to measure with";
                shared.tell(number, Err(Error::Misuse { errno: Errno::EAGAIN, why }));
            }
        }
        shared
            .tell(0, stream(self.client, self.target, case, Offsets::new(case, span, 0), (end, each)).await);
        loop {
            let seen = shared.changed.epoch();
            if shared.done.lock().1 == 0 {
                break;
            }
            shared.changed.wait(seen, None).await;
        }
        let (streams, _, failed) = std::mem::take(&mut *shared.done.lock());
        failed.map_or(Ok(streams), Err)
    }

    /// Writes by rounds, each until it is on the medium: rounds grow until one takes a good part of the time, since shorter
    /// ones tell of memory, the disk's too, more than of the device.
    async fn rounds(&self, case: Case, time: Nanos) -> Result<Point, Error> {
        let env = self.client.env();
        let begun = env.now();
        let most = (self.plan.span / 4 * 3 / case.len).clamp(1, ROUND_MAX);
        let past = self.plan.direct || case.order == Order::Past;
        let most = if past { most.min(PAST_MAX.max(8 * u64::from(case.depth))) } else { most };
        let mut count = most.min(u64::from(STREAMS).max(2 * u64::from(case.depth)));
        let (mut rounds, mut done) = (Vec::new(), 0);
        loop {
            // Fewer requests lie as close to each other as many would: how far it is from one to the next is what they take.
            let span = (self.plan.span as f64 * count as f64 / most as f64) as u64;
            let span = span.next_multiple_of(case.len * u64::from(STREAMS)).min(self.plan.span);
            let took = self.round(case, span, count).await?;
            done += count;
            let passed = env.now().saturating_sub(begun);
            let left = time.saturating_sub(passed);
            if count < most && took.0 * 3 < left.0 {
                rounds.clear();
                // As long as half of what is left, if all goes on like this.
                let grown = (left.0 / 2 / took.0.max(1)).clamp(2, 8);
                count = (count * grown).min(most);
                continue;
            }
            rounds.push(took.0 as f64 / count as f64);
            if rounds.len() == ROUNDS || left.0 < took.0 {
                return Ok(Point::of_rounds(case.name(), case.len, case.depth, done, &rounds));
            }
        }
    }

    /// Writes behind the end, each with a sync.
    async fn syncs(&self, case: Case, time: Nanos) -> Result<Point, Error> {
        let env = self.client.env();
        let end = env.now().saturating_add(time);
        let mut at = self.plan.span.max(self.plan.reach).next_multiple_of(case.len);
        let mut rounds = Vec::new();
        while rounds.is_empty() || (rounds.len() < SYNCS_MAX && env.now() < end) {
            let offsets = vec![LocalOffset(at)];
            let wrote = self.client.probe(self.target, ProbeWork::Write, case.len as u32, offsets, STEP);
            let (_, write) = wrote.await?;
            let (_, sync) = self.client.probe(self.target, ProbeWork::Sync, 0, Vec::new(), STEP).await?;
            rounds.push((write.0 + sync.0) as f64);
            at += case.len;
        }
        Ok(Point::of_rounds(case.name(), case.len, 1, rounds.len() as u64, &rounds))
    }

    /// So many writes and a sync.
    async fn round(&self, case: Case, span: u64, count: u64) -> Result<Nanos, Error> {
        let begun = self.client.env().now();
        self.streams(case, span, ROUND_TIME, count).await?;
        self.ask(ProbeWork::Sync).await?;
        Ok(self.client.env().now().saturating_sub(begun))
    }
}

/// Of pairs of requests the second.
fn second(stream: &mut Stream) {
    let all: u64 = stream.times.iter().sum();
    stream.times = stream.times.iter().skip(1).step_by(2).copied().collect();
    let kept: u64 = stream.times.iter().sum();
    stream.elapsed = (stream.elapsed as f64 * kept as f64 / all.max(1) as f64) as u64;
}

/// What the streams of a case share: how each went, how many run still, what failed.
struct Shared<N> {
    done: Mutex<(Vec<Stream>, u32, Option<Error>)>,
    changed: N,
}

impl<N: Notify> Shared<N> {
    fn tell(&self, number: u32, outcome: Result<Stream, Error>) {
        let mut done = self.done.lock();
        match outcome {
            Ok(stream) => done.0[number as usize] = stream,
            Err(error) => done.2 = Some(error),
        }
        done.1 -= 1;
        drop(done);
        self.changed.notify_all();
    }
}

/// One request after another until `end`, or until so many are done.
async fn stream<E: Env>(
    client: &Client<E>,
    target: TargetId,
    case: Case,
    mut offsets: Offsets,
    (end, requests): (Nanos, u64),
) -> Result<Stream, Error> {
    let work = match (case.direction, case.order) {
        (Direction::Read, _) => ProbeWork::Read,
        (Direction::Write, Order::Past) => ProbeWork::WritePast,
        (Direction::Write, _) => ProbeWork::Write,
    };
    let mut stream = Stream::default();
    let mut count = 4;
    loop {
        let left = end.saturating_sub(client.env().now());
        let done = stream.times.len() as u64;
        // Each place once, but each stream something.
        if offsets.is_over() || done >= requests || (left == Nanos(0) && done > 0) {
            return Ok(stream);
        }
        let wanted = offsets.peek(count.min(requests - done)).into_iter().map(LocalOffset).collect();
        // The first few count whatever time it is.
        let within = if done == 0 { STEP } else { left.min(STEP) };
        let (times, elapsed) = client.probe(target, work, case.len as u32, wanted, within).await?;
        offsets.used(times.len() as u64);
        let mean = elapsed.0 / (times.len() as u64).max(1);
        count = (STEP.0 / mean.max(1)).clamp(4, PROBES_MAX as u64);
        stream.elapsed += elapsed.0;
        stream.times.extend(times.iter().map(|time| time.0));
    }
}
