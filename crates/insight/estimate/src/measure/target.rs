//! Measures one target through its server, on a datafile that belongs to no file.

use super::cases::{self, Case, Offsets, Order, STREAMS};
use super::concurrent::concurrently;
use super::fit::{Point, Stream, is_noisy};
use super::memory::PageCacheEstimate;
use super::missing;
use weft_client::{Client, Error, ProbeWork};
use weft_core::{ByteLen, LocalOffset, Nanos, TargetId};
use weft_env::Env;
use weft_planner::mix::Direction;
use weft_wire::Errno;
use weft_wire::data::PROBES_MAX;

/// Maximum time that one message may occupy the server.
pub(super) const MESSAGE_TIME: Nanos = Nanos::from_ms(500);
/// Length of the writes that fill the datafile, bytes.
const FILL_LEN: u64 = 1 << 20;
/// Minimum bytes of the datafile that are filled, and the unit of its size, bytes.
const FILL_UNIT: u64 = 16 << 20;
/// Fraction of the time (1/5) for filling the datafile. A slow device is measured on a shorter one.
const FILL_TIME_DIVISOR: u64 = 5;
/// Fraction of the time (1/20) for which a filled device rests. An SSD still moves the bytes from its cache to flash.
const REST_TIME_DIVISOR: u64 = 20;
/// Minimum repetitions of a case.
const REPETITIONS_MIN: usize = 2;
/// Maximum repetitions of a noisy case.
const REPETITIONS_MAX: usize = 5;
/// Maximum requests of a round of buffered writes.
const ROUND_MAX: u64 = 6000;
/// Maximum requests of a round of direct writes. Fewer suffice, because the disk's own cache is small.
const DIRECT_ROUND_MAX: u64 = 400;
/// Fraction of the time (1/8) for measuring the page cache.
const PAGE_CACHE_TIME_DIVISOR: u64 = 8;
/// Maximum number of syncs of a repetition.
const SYNCS_MAX: usize = 400;
/// Time limit of a round.
const ROUND_TIME: Nanos = Nanos::from_s(60);
/// Maximum reads of a repetition. More do not improve the figures.
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
    /// Approximate total time. After one and a half times as long, cases are left out.
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
    /// Cases that were not measured, and why.
    pub(super) missed: Vec<(Case, &'static str)>,
    /// Effective size of the page cache; `None` if requests bypass it, or if it was not measured.
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
    cases::all(plan.reach, plan.direct, plan.quick, plan.time).len() as u64 + 2
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
    let mut bench = TargetBench { client, target, plan: *plan };
    let measured = bench.all(progress).await;
    // After a failure the datafile may be gone, along with the connection or the server.
    let removed = bench.ask(ProbeWork::Remove).await;
    let measured = measured?;
    removed?;
    Ok(measured)
}

/// A target being measured.
pub(super) struct TargetBench<'a, E: Env> {
    pub client: &'a Client<E>,
    pub target: TargetId,
    pub plan: Plan,
}

impl<E: Env> TargetBench<'_, E> {
    pub(super) async fn ask(&self, work: ProbeWork) -> Result<(), Error> {
        self.client.probe(self.target, work, 0, Vec::new(), MESSAGE_TIME).await.map(drop)
    }

    async fn all(&mut self, progress: &(dyn Fn(&str) + Sync)) -> Result<Measured, Error> {
        let begun = self.client.env().now();
        progress("creating the datafile");
        let end = self.plan.span.max(self.plan.reach);
        self.ask(ProbeWork::Make(ByteLen(end))).await?;
        if !self.plan.sparse {
            self.plan.span = self.fill().await?;
            self.plan.reach = self.plan.reach.min(self.plan.span);
            self.client.env().sleep(Nanos(self.plan.time.0 / REST_TIME_DIVISOR)).await;
        }
        let plan = self.plan;
        let page_cache_time =
            if plan.direct { Nanos(0) } else { Nanos(plan.time.0 / PAGE_CACHE_TIME_DIVISOR) };
        let cases_time = plan.time.saturating_sub(page_cache_time);
        let passed = || self.client.env().now().saturating_sub(begun);
        let is_late = || passed().0 > plan.time.0 / 2 * 3;
        let cases = cases::all(plan.reach, plan.direct, plan.quick, plan.time);
        let mut left: f64 = cases.iter().map(Case::share).sum();
        let (mut found, mut missed) = (Vec::with_capacity(cases.len()), Vec::new());
        for case in cases {
            progress(&case.name());
            // The remaining time is divided among the remaining cases.
            let share = cases_time.saturating_sub(passed()).0 as f64 * case.share() / left;
            let floor = plan.time.0 as f64 * 0.25 * case.share() / 60.0;
            left -= case.share();
            if !case.is_needed() && is_late() {
                missed.push((case, missing::TIME_RAN_OUT));
                continue;
            }
            match self.case(case, end, Nanos(share.max(floor) as u64)).await? {
                Ok(point) => found.push((case, point)),
                Err(why) => missed.push((case, why)),
            }
        }
        let mut page_cache = None;
        if !plan.direct {
            progress("size of the page cache");
            page_cache = if is_late() { None } else { self.memory(page_cache_time).await? };
        }
        let reach = plan.span.max(plan.reach);
        Ok(Measured { cases: found, missed, page_cache, span: plan.span, reach, direct: plan.direct })
    }

    /// Measures a case in about the given time, or returns why it has no result. Appends begin at `end`.
    async fn case(&self, case: Case, end: u64, time: Nanos) -> Result<Result<Point, &'static str>, Error> {
        let is_append = case.order == Order::AppendSync;
        let point = match case.direction {
            Direction::Write if !is_append => match self.rounds(case, time).await {
                Ok(point) => Some(point).filter(Point::is_measured),
                Err(error) if case.order == Order::RandomDirect && error.errno() == Errno::EINVAL.0 => {
                    return Ok(Err(missing::NO_DIRECT_IO));
                }
                Err(error) => return Err(error),
            },
            _ => self.repetitions(case, end, time).await?,
        };
        Ok(point.ok_or(missing::NOTHING_COMPLETED))
    }

    /// Syncs and drops caches. A case must not find data of the previous one in the page cache, nor compete with its
    /// write-back.
    async fn settle(&self) -> Result<(), Error> {
        self.ask(ProbeWork::Sync).await?;
        self.ask(ProbeWork::Forget).await
    }

    /// Repeats reads or appends until the repetitions agree, within the time and half of it more.
    async fn repetitions(&self, case: Case, end: u64, time: Nanos) -> Result<Option<Point>, Error> {
        let env = self.client.env();
        let begun = env.now();
        let each = Nanos(time.0 / (REPETITIONS_MIN as u64 + 1));
        // No place is used twice, because the drive may have cached it.
        let mut used = vec![0; case.depth as usize];
        let mut points: Vec<Point> = Vec::new();
        loop {
            self.settle().await?;
            let start = env.now();
            let point = match case.order {
                Order::AppendSync => self.syncs(case, end, each, &mut used[0]).await?,
                _ => self.reads(case, each, &mut used).await?,
            };
            if !point.is_measured() {
                break;
            }
            points.push(point);
            let times: Vec<f64> = points.iter().map(|point| point.ns_each).collect();
            let took = env.now().saturating_sub(start);
            let passed = env.now().saturating_sub(begun);
            if is_enough(&times, REPETITIONS_MIN, passed, took, time) {
                break;
            }
        }
        Ok(Point::of_repetitions(&points))
    }

    /// Measures reads, and adds those of each stream to `used`.
    async fn reads(&self, case: Case, time: Nanos, used: &mut [u64]) -> Result<Point, Error> {
        let is_distance = matches!(case.order, Order::Distance(_));
        let span = if is_distance { self.plan.reach } else { self.plan.span };
        let places = (span / case.len / (REPETITIONS_MIN as u64 + 1)).max(u64::from(case.depth));
        let mut streams = self.streams(case, span, time, REQUESTS_MAX.min(places), used).await?;
        for (used, stream) in used.iter_mut().zip(&streams) {
            // Pairs stay pairs.
            *used += (stream.times.len() as u64).next_multiple_of(2);
        }
        if is_distance {
            keep_second_of_pairs(&mut streams[0]);
        }
        Ok(Point::of_streams(case.name(), case.len, &streams))
    }

    /// Writes the datafile from its start for a part of the time, and returns the bytes that were written.
    async fn fill(&self) -> Result<u64, Error> {
        let span = self.plan.span;
        let begun = self.client.env().now();
        let mut at = 0;
        while at < span {
            let passed = self.client.env().now().saturating_sub(begun);
            if at >= FILL_UNIT && passed.0 > self.plan.time.0 / FILL_TIME_DIVISOR {
                return Ok(at / FILL_UNIT * FILL_UNIT);
            }
            let end = span.min(at + 64 * FILL_LEN);
            let offsets: Vec<_> = (at..end).step_by(FILL_LEN as usize).map(LocalOffset).collect();
            let len = FILL_LEN.min(span) as u32;
            let (times, _) =
                self.client.probe(self.target, ProbeWork::Write, len, offsets, MESSAGE_TIME).await?;
            at += times.len() as u64 * FILL_LEN;
            // The time of writes that only reach the page cache says nothing.
            self.ask(ProbeWork::Sync).await?;
        }
        Ok(span)
    }

    /// Runs one stream per unit of queue depth, until the time is up or the requests are done. Each stream leaves out
    /// the offsets that it has `used`.
    async fn streams(
        &self,
        case: Case,
        span: u64,
        time: Nanos,
        requests: u64,
        used: &[u64],
    ) -> Result<Vec<Stream>, Error> {
        let env = self.client.env();
        let end = env.now().saturating_add(time);
        let each = (requests / u64::from(case.depth)).max(1);
        let (client, target, used) = (self.client.clone(), self.target, used.to_vec());
        concurrently(env, case.depth, move |number| {
            let client = client.clone();
            let mut offsets = Offsets::new(case, span, number);
            offsets.advance(used[number as usize]);
            async move { stream(&client, target, case, offsets, (end, each)).await }
        })
        .await
    }

    /// Measures writes in rounds that end when the data is on the medium. Rounds grow until one takes a considerable
    /// part of the time, since short ones measure caches rather than the device.
    async fn rounds(&self, case: Case, time: Nanos) -> Result<Point, Error> {
        self.settle().await?;
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
            if is_enough(&rounds, ROUNDS, passed, took, time) {
                return Ok(Point::of_rounds(case.name(), case.len, case.depth, done, &rounds));
            }
        }
    }

    /// Measures appends from `end` on, each followed by a sync. The first `used` were made before.
    async fn syncs(&self, case: Case, end: u64, time: Nanos, used: &mut u64) -> Result<Point, Error> {
        let env = self.client.env();
        let until = env.now().saturating_add(time);
        let from = end.next_multiple_of(case.len);
        let mut rounds = Vec::new();
        while rounds.is_empty() || (rounds.len() < SYNCS_MAX && env.now() < until) {
            let offsets = vec![LocalOffset(from + *used * case.len)];
            let wrote =
                self.client.probe(self.target, ProbeWork::Write, case.len as u32, offsets, MESSAGE_TIME);
            let (_, write) = wrote.await?;
            let (_, sync) =
                self.client.probe(self.target, ProbeWork::Sync, 0, Vec::new(), MESSAGE_TIME).await?;
            rounds.push((write.0 + sync.0) as f64);
            *used += 1;
        }
        Ok(Point::of_rounds(case.name(), case.len, 1, rounds.len() as u64, &rounds))
    }

    /// Runs a round: `count` writes and a sync.
    async fn round(&self, case: Case, span: u64, count: u64) -> Result<Nanos, Error> {
        let begun = self.client.env().now();
        self.streams(case, span, ROUND_TIME, count, &vec![0; case.depth as usize]).await?;
        self.ask(ProbeWork::Sync).await?;
        Ok(self.client.env().now().saturating_sub(begun))
    }
}

/// Whether a case has enough repetitions: `wanted` of them, or fewer if another one that takes as long as the last one,
/// `took`, exceeds the `time`. While fewer than two agree, up to [`REPETITIONS_MAX`] may take half of the time more.
fn is_enough(times: &[f64], wanted: usize, passed: Nanos, took: Nanos, time: Nanos) -> bool {
    let is_open = times.len() < REPETITIONS_MIN || is_noisy(times);
    let (count, limit) = if is_open { (REPETITIONS_MAX, time.0 / 2 * 3) } else { (wanted, time.0) };
    times.len() >= count || passed.0.saturating_add(took.0) > limit
}

/// Keeps the second request of each pair.
fn keep_second_of_pairs(stream: &mut Stream) {
    let all: u64 = stream.times.iter().sum();
    stream.times = stream.times.iter().skip(1).step_by(2).copied().collect();
    let kept: u64 = stream.times.iter().sum();
    stream.elapsed = (stream.elapsed as f64 * kept as f64 / all.max(1) as f64) as u64;
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
    // All streams together begin with few requests: their time is unknown.
    let mut count = (16 / u64::from(case.depth)).clamp(1, 4);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_noisy_case_is_repeated_within_bounds() {
        let (time, took) = (Nanos(300), Nanos(100));
        let enough = |times: &[f64], passed| is_enough(times, 2, Nanos(passed), took, time);
        assert!(!enough(&[1.0], 100), "one is no comparison");
        assert!(enough(&[1.0, 1.02], 200));
        assert!(!enough(&[1.0, 2.0], 200), "noisy");
        assert!(!enough(&[1.0, 2.0, 3.0], 300), "half of the time more");
        assert!(enough(&[1.0, 2.0, 3.0], 400));
        assert!(enough(&[1.0, 2.0, 3.0, 4.0, 5.0], 0), "at most five");
        assert!(!is_enough(&[1.0, 1.0], 4, Nanos(150), took, time));
        assert!(is_enough(&[1.0, 1.0], 4, Nanos(250), took, time), "no time for another one");
    }
}
