//! Measures one target through its server, on a datafile that belongs to no file.

use super::cases::{self, Case, Offsets, Order, STREAMS};
use super::fit::{Point, Stream};
use super::memory::PageCacheEstimate;
use parking_lot::Mutex;
use std::sync::Arc;
use weft_client::{Client, Error, ProbeWork};
use weft_core::{ByteLen, LocalOffset, Nanos, TargetId};
use weft_env::{Env, Notify};
use weft_planner::mix::Direction;
use weft_wire::Errno;
use weft_wire::data::PROBES_MAX;

/// Maximum time that one message may occupy the server.
pub(super) const MESSAGE_TIME: Nanos = Nanos::from_ms(500);
/// Length of the writes that fill the datafile, bytes.
const FILL_LEN: u64 = 1 << 20;
/// Maximum requests of a round of buffered writes.
const ROUND_MAX: u64 = 6000;
/// Maximum requests of a round of direct writes. Fewer suffice, because the disk's own cache is small.
const DIRECT_ROUND_MAX: u64 = 400;
/// Fraction of the time (1/8) for measuring the page cache.
const PAGE_CACHE_TIME_DIVISOR: u64 = 8;
/// Maximum number of syncs.
const SYNCS_MAX: usize = 400;
/// Time limit of a round.
const ROUND_TIME: Nanos = Nanos::from_s(60);
/// Maximum reads of a case. More do not improve the figures.
const REQUESTS_MAX: u64 = 4096;
/// Number of rounds of equal length whose times are compared.
const ROUNDS: usize = 4;

/// Options for measuring a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Bytes of the target in use.
    pub span: u64,
    /// Bytes over which distances are measured. Exceeds `span` only if the target is `sparse`.
    pub reach: u64,
    /// Approximate total time.
    pub time: Nanos,
    /// Use fewer request lengths and depths.
    pub quick: bool,
    /// Requests bypass the page cache.
    pub direct: bool,
    /// The device is modeled and stores no data, so the datafile need not be filled first.
    pub sparse: bool,
}

/// Measurements of a target.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// Results of all cases.
    pub(super) cases: Vec<(Case, Point)>,
    /// Effective size of the page cache; `None` if requests bypass it.
    pub(super) page_cache: Option<PageCacheEstimate>,
    /// Bytes of the target in use.
    pub span: u64,
    /// Bytes over which distances were measured.
    pub reach: u64,
    /// Whether requests bypassed the page cache.
    pub direct: bool,
}

impl Measured {
    /// Total number of requests.
    pub fn samples(&self) -> u64 {
        self.cases.iter().map(|(_, point)| point.count).sum()
    }

    /// Results of all cases.
    pub fn points(&self) -> impl Iterator<Item = &Point> {
        self.cases.iter().map(|(_, point)| point)
    }
}

/// Number of progress reports of [`target`].
pub fn steps(plan: &Plan) -> u64 {
    cases::all(plan.reach, plan.direct, plan.quick).len() as u64 + 2
}

/// Measures a target, and calls `progress` at the begin of each step. The datafile is removed at the end; the server
/// also removes it when the client's connection ends.
///
/// # Errors
/// Errors of the server.
pub async fn target<E: Env>(
    client: &Client<E>,
    target: TargetId,
    plan: &Plan,
    progress: &(dyn Fn(&str) + Sync),
) -> Result<Measured, Error> {
    let bench = TargetBench { client, target, plan };
    let measured = async {
        let cases = bench.all(progress).await?;
        if plan.direct {
            return Ok((cases, None));
        }
        progress("size of the page cache");
        Ok((cases, Some(bench.memory(Nanos(plan.time.0 / PAGE_CACHE_TIME_DIVISOR)).await?)))
    };
    let measured = measured.await;
    // After a failure the datafile may be gone, along with the connection or the server.
    let removed = bench.ask(ProbeWork::Remove).await;
    let (cases, page_cache) = measured?;
    removed?;
    Ok(Measured { cases, page_cache, span: plan.span, reach: plan.span.max(plan.reach), direct: plan.direct })
}

/// A target being measured.
pub(super) struct TargetBench<'a, E: Env> {
    pub client: &'a Client<E>,
    pub target: TargetId,
    pub plan: &'a Plan,
}

impl<E: Env> TargetBench<'_, E> {
    pub(super) async fn ask(&self, work: ProbeWork) -> Result<(), Error> {
        self.client.probe(self.target, work, 0, Vec::new(), MESSAGE_TIME).await.map(drop)
    }

    async fn all(&self, progress: &(dyn Fn(&str) + Sync)) -> Result<Vec<(Case, Point)>, Error> {
        let plan = self.plan;
        progress("creating the datafile");
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
            // A case must not find data of the previous case in the page cache, nor compete with its write-back.
            self.ask(ProbeWork::Sync).await?;
            self.ask(ProbeWork::Forget).await?;
            // The remaining time is divided among the remaining cases.
            let passed = self.client.env().now().saturating_sub(begun);
            let share = plan.time.saturating_sub(passed).0 as f64 * case.share() / left;
            let floor = plan.time.0 as f64 * 0.25 * case.share() / 60.0;
            let time = Nanos(share.max(floor) as u64);
            left -= case.share();
            let point = match case.direction {
                Direction::Write if case.order == Order::AppendSync => self.syncs(case, time).await?,
                Direction::Write => match self.rounds(case, time).await {
                    Ok(point) => point,
                    // The target's file system does not support direct I/O.
                    Err(error) if case.order == Order::RandomDirect && error.errno() == Errno::EINVAL.0 => {
                        continue;
                    }
                    Err(error) => return Err(error),
                },
                Direction::Read => {
                    let span = if matches!(case.order, Order::Distance(_)) {
                        self.plan.reach
                    } else {
                        self.plan.span
                    };
                    let mut streams = self.streams(case, span, time, REQUESTS_MAX).await?;
                    if matches!(case.order, Order::Distance(_)) {
                        keep_second_of_pairs(&mut streams[0]);
                    }
                    Point::of_streams(case.name(), case.len, &streams)
                }
            };
            found.push((case, point));
        }
        Ok(found)
    }

    /// Writes the whole datafile.
    async fn fill(&self) -> Result<(), Error> {
        let mut at = 0;
        while at < self.plan.span {
            let end = self.plan.span.min(at + 64 * FILL_LEN);
            let offsets: Vec<_> = (at..end).step_by(FILL_LEN as usize).map(LocalOffset).collect();
            let len = FILL_LEN.min(self.plan.span) as u32;
            let (times, _) =
                self.client.probe(self.target, ProbeWork::Write, len, offsets, MESSAGE_TIME).await?;
            at += times.len() as u64 * FILL_LEN;
        }
        self.ask(ProbeWork::Sync).await
    }

    /// Runs one stream per unit of queue depth, until the time is up or the requests are done.
    async fn streams(&self, case: Case, span: u64, time: Nanos, requests: u64) -> Result<Vec<Stream>, Error> {
        let env = self.client.env();
        let end = env.now().saturating_add(time);
        let each = (requests / u64::from(case.depth)).max(1);
        let shared = Arc::new(StreamResults {
            done: Mutex::new((vec![Stream::default(); case.depth as usize], case.depth, None)),
            changed: env.notify(),
        });
        for number in 1..case.depth {
            let (client, target) = (self.client.clone(), self.target);
            let worker = Arc::clone(&shared);
            let body = move || async move {
                let outcome =
                    stream(&client, target, case, Offsets::new(case, span, number), (end, each)).await;
                worker.finish(number, outcome);
            };
            if env.spawn("weft profile", body).is_err() {
                let why = "no thread to measure with";
                shared.finish(number, Err(Error::Misuse { errno: Errno::EAGAIN, why }));
            }
        }
        shared.finish(
            0,
            stream(self.client, self.target, case, Offsets::new(case, span, 0), (end, each)).await,
        );
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

    /// Measures writes in rounds that end when the data is on the medium. Rounds grow until one takes a considerable
    /// part of the time, since short ones measure caches rather than the device.
    async fn rounds(&self, case: Case, time: Nanos) -> Result<Point, Error> {
        let env = self.client.env();
        let begun = env.now();
        let most = (self.plan.span / 4 * 3 / case.len).clamp(1, ROUND_MAX);
        let past = self.plan.direct || case.order == Order::RandomDirect;
        let most = if past { most.min(DIRECT_ROUND_MAX.max(8 * u64::from(case.depth))) } else { most };
        let mut count = most.min(u64::from(STREAMS).max(2 * u64::from(case.depth)));
        let (mut rounds, mut done) = (Vec::new(), 0);
        loop {
            // Fewer requests use a smaller span, so that they are as dense as in a full round. The density determines
            // the seek distances.
            let span = (self.plan.span as f64 * count as f64 / most as f64) as u64;
            let span = span.next_multiple_of(case.len * u64::from(STREAMS)).min(self.plan.span);
            let took = self.round(case, span, count).await?;
            done += count;
            let passed = env.now().saturating_sub(begun);
            let left = time.saturating_sub(passed);
            if count < most && took.0 * 3 < left.0 {
                rounds.clear();
                // Aims at half of the remaining time.
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

    /// Measures appends, each followed by a sync.
    async fn syncs(&self, case: Case, time: Nanos) -> Result<Point, Error> {
        let env = self.client.env();
        let end = env.now().saturating_add(time);
        let mut at = self.plan.span.max(self.plan.reach).next_multiple_of(case.len);
        let mut rounds = Vec::new();
        while rounds.is_empty() || (rounds.len() < SYNCS_MAX && env.now() < end) {
            let offsets = vec![LocalOffset(at)];
            let wrote =
                self.client.probe(self.target, ProbeWork::Write, case.len as u32, offsets, MESSAGE_TIME);
            let (_, write) = wrote.await?;
            let (_, sync) =
                self.client.probe(self.target, ProbeWork::Sync, 0, Vec::new(), MESSAGE_TIME).await?;
            rounds.push((write.0 + sync.0) as f64);
            at += case.len;
        }
        Ok(Point::of_rounds(case.name(), case.len, 1, rounds.len() as u64, &rounds))
    }

    /// Runs a round: `count` writes and a sync.
    async fn round(&self, case: Case, span: u64, count: u64) -> Result<Nanos, Error> {
        let begun = self.client.env().now();
        self.streams(case, span, ROUND_TIME, count).await?;
        self.ask(ProbeWork::Sync).await?;
        Ok(self.client.env().now().saturating_sub(begun))
    }
}

/// Keeps the second request of each pair.
fn keep_second_of_pairs(stream: &mut Stream) {
    let all: u64 = stream.times.iter().sum();
    stream.times = stream.times.iter().skip(1).step_by(2).copied().collect();
    let kept: u64 = stream.times.iter().sum();
    stream.elapsed = (stream.elapsed as f64 * kept as f64 / all.max(1) as f64) as u64;
}

/// State shared by the streams of a case: their results, the number still running, and an error.
struct StreamResults<N> {
    done: Mutex<(Vec<Stream>, u32, Option<Error>)>,
    changed: N,
}

impl<N: Notify> StreamResults<N> {
    fn finish(&self, number: u32, outcome: Result<Stream, Error>) {
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

/// Runs requests one after the other until `end`, or until the given number is done.
async fn stream<E: Env>(
    client: &Client<E>,
    target: TargetId,
    case: Case,
    mut offsets: Offsets,
    (end, requests): (Nanos, u64),
) -> Result<Stream, Error> {
    let work = match (case.direction, case.order) {
        (Direction::Read, _) => ProbeWork::Read,
        (Direction::Write, Order::RandomDirect) => ProbeWork::WritePast,
        (Direction::Write, _) => ProbeWork::Write,
    };
    let mut stream = Stream::default();
    let mut count = 4;
    loop {
        let left = end.saturating_sub(client.env().now());
        let done = stream.times.len() as u64;
        // Each offset is used once, but every stream runs at least one request.
        if offsets.is_exhausted() || done >= requests || (left == Nanos(0) && done > 0) {
            return Ok(stream);
        }
        let wanted = offsets.peek(count.min(requests - done)).into_iter().map(LocalOffset).collect();
        // The first requests count even if the time is up.
        let within = if done == 0 { MESSAGE_TIME } else { left.min(MESSAGE_TIME) };
        let (times, elapsed) = client.probe(target, work, case.len as u32, wanted, within).await?;
        offsets.advance(times.len() as u64);
        let mean = elapsed.0 / (times.len() as u64).max(1);
        count = (MESSAGE_TIME.0 / mean.max(1)).clamp(4, PROBES_MAX as u64);
        stream.elapsed += elapsed.0;
        stream.times.extend(times.iter().map(|time| time.0));
    }
}
