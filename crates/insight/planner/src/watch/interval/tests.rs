use super::*;
use crate::testing::hybrid;
use crate::watch::pattern_tracker::{DirectionMix, Order};
use weft_core::{Access, ByteLen, Extent, FileId as Id, ServerId, SplitPolicy, SubRequest, TargetId};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
/// Length of each file.
const SIZE: u64 = 256 * MIB;

const AVAILABLE: [Candidate<'static>; 6] = {
    const fn of(number: u32, class: &'static str) -> Candidate<'static> {
        Candidate { target: TargetId(10 + number), server: ServerId(number), class }
    }
    [of(0, "hdd"), of(1, "hdd"), of(2, "hdd"), of(3, "hdd"), of(4, "ssd"), of(5, "ssd")]
};

/// An access pattern.
#[derive(Clone, Copy)]
enum Use {
    Stream,
    Random,
}

/// A read in the given call of a client.
fn read(client: u64, call: u64, sub: &SubRequest, start: Nanos, took: Nanos) -> SampledMessage {
    SampledMessage {
        client,
        object: sub.object,
        local: sub.local,
        write: false,
        siblings: sub.siblings as u16,
        call: call as u32,
        start,
        end: start.saturating_add(took),
    }
}

/// The messages of 8 processes that access a file during an interval.
fn seen(layout: &Layout, number: u64, how: Use, requests: u64) -> Vec<SampledMessage> {
    let mut out = Vec::new();
    for n in 0..requests {
        let (client, turn) = (n % 8, n / 8);
        let chance = (number * requests + n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let chance = (chance ^ (chance >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20;
        let extent = match how {
            Use::Stream => Extent::new(client * (SIZE / 8) + (number * requests / 8 + turn) % 32 * MIB, MIB),
            Use::Random => Extent::new(chance % (SIZE / (16 * KIB)) * 16 * KIB, 16 * KIB),
        };
        let start = Nanos(number * 60_000_000_000 + turn * 100_000_000 + client * 1000);
        for sub in layout.split(extent, Access::Sequential, SplitPolicy::Off) {
            out.push(read(900 + client, turn, &sub, start, Nanos::from_ms(9)));
        }
    }
    out
}

struct Run {
    watcher: Watcher,
    figures: Figures,
    layout: Layout,
    ruled: Option<ClassLayout>,
    /// Selects the messages in the samples.
    kept: fn(&SampledMessage) -> bool,
    number: u64,
}

impl Run {
    fn new(hysteresis: Hysteresis) -> Self {
        // This layout is already good for streams.
        let all: Vec<TargetId> = AVAILABLE.iter().map(|candidate| candidate.target).collect();
        Self {
            watcher: Watcher::new("/out2", hysteresis),
            ruled: None,
            kept: |_| true,
            figures: hybrid((4, 8_000.0, 150.0), (2, 80.0, 500.0), Some(512 * MIB)),
            layout: Layout::striped(&all, ByteLen(MIB)).expect("a layout"),
            number: 0,
        }
    }

    /// Runs an interval with this access pattern.
    fn interval(&mut self, how: Use, requests: u64) -> Interval {
        let layout = self.layout.clone();
        let file = |number: u64| FileSamples {
            file: Id(number),
            path: format!("/out2/run{number}/data"),
            layout: layout.clone(),
            ruled: self.ruled.clone(),
            size: SIZE,
            messages: seen(&layout, self.number, how, requests).into_iter().filter(self.kept).collect(),
        };
        // Intervals differ in their files.
        let files = (0..1 + self.number % 2).map(file).collect();
        self.number += 1;
        let now = Nanos::from_s(60 * self.number);
        let figures = self.figures.clone();
        self.watcher.interval(now, files, |_| Ok(figures), &AVAILABLE, &Options::default())
    }
}

fn hysteresis() -> Hysteresis {
    Hysteresis { gain: 0.2, intervals: 3, pause: Nanos::from_s(600), requests: 64 }
}

fn decided(intervals: &[Interval]) -> Vec<(usize, &GroupDecision)> {
    let all = intervals.iter().enumerate();
    all.flat_map(|(at, one)| one.groups.iter().filter_map(move |group| Some((at, group.decided.as_ref()?))))
        .collect()
}

#[test]
fn a_change_to_random_requests_is_planned_once_with_ssds() {
    let mut run = Run::new(hysteresis());
    let streams: Vec<Interval> = (0..12).map(|_| run.interval(Use::Stream, 256)).collect();
    for interval in &streams {
        assert_eq!((interval.groups.len(), interval.lost), (1, 0));
        let signature = interval.groups[0].signature.expect("enough to tell");
        assert_eq!(
            (signature.order, signature.directions, signature.size_log2),
            (Order::Contiguous, DirectionMix::Reads, 20)
        );
        assert_eq!(interval.groups[0].name, "/out2/run*/data");
    }
    // The pattern that suits the current layout is planned once.
    let first = decided(&streams);
    assert_eq!(first.len(), 1);
    assert!(matches!(first[0].1.decision, Decision::Keep { .. }), "{:?}", first[0].1);
    let random: Vec<Interval> = (0..12).map(|_| run.interval(Use::Random, 2048)).collect();
    let second = decided(&random);
    let [(at, new)] = second.as_slice() else { panic!("{} decisions", second.len()) };
    assert_eq!(*at, 2, "in the third interval");
    assert!(matches!(new.decision, Decision::Apply { gain } if gain > 0.2), "{:?}", new.decision);
    let plan = random[2].plan.as_ref().expect("a plan");
    assert_eq!(plan.rules.len(), 1);
    assert!(plan.rules[0].layout[0].stripes.contains_key("ssd"), "{:?}", plan.rules[0].layout);
    assert!(plan.rules[0].pattern.starts_with("random"), "{}", plan.rules[0].pattern);
    assert!(random.iter().all(|one| one.failed.is_none()));
}

#[test]
fn patterns_are_recognized_from_sampled_stretches() {
    for (how, order) in [(Use::Stream, Order::Contiguous), (Use::Random, Order::Random)] {
        let mut run = Run::new(hysteresis());
        // About one second in eight, different seconds for each client.
        run.kept = |seen| {
            let stretch = seen.start.0 / 1_000_000_000;
            let chance = (stretch * 8191 + seen.client + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (chance ^ (chance >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 61 == 0
        };
        for _ in 0..4 {
            let interval = run.interval(how, 4096);
            let signature = interval.groups[0].signature;
            assert!((300..800 * 2).contains(&interval.requests) && interval.lost == 0, "{interval:?}");
            assert_eq!(signature.map(|seen| seen.order), Some(order), "{:?}", interval.groups);
        }
    }
}

#[test]
fn an_existing_rule_is_the_layout_in_force() {
    let mut first = Run::new(hysteresis());
    let planned: Vec<Interval> = (0..4).map(|_| first.interval(Use::Random, 2048)).collect();
    let plan = planned.iter().find_map(|interval| interval.plan.as_ref()).expect("a plan");
    assert_eq!(plan.rules[0].path.0, "/out2/run*/data");
    // A second watcher starts. The rule exists, and the files have their old layouts.
    let mut second = Run::new(hysteresis());
    let renamed = crate::live::ClassRenames::new();
    let layout = crate::live::class_layout(&plan.rules[0].layout, &second.figures, &renamed);
    second.ruled = Some(layout.expect("a layout"));
    let again: Vec<Interval> = (0..6).map(|_| second.interval(Use::Random, 2048)).collect();
    let decided = decided(&again);
    let [(2, kept)] = decided.as_slice() else { panic!("{decided:?}") };
    assert!(matches!(kept.decision, Decision::Keep { .. }), "{:?}", kept.decision);
    assert!(kept.files_s > 2.0 * kept.in_force_s && kept.in_force_s <= 1.05 * kept.planned_s, "{kept:?}");
}

#[test]
fn unchanged_and_alternating_patterns_get_no_plan() {
    for period in [1, 2] {
        let mut run = Run::new(hysteresis());
        let known: Vec<Interval> = (0..3).map(|_| run.interval(Use::Stream, 256)).collect();
        assert_eq!(decided(&known).len(), 1);
        for number in 0..12 {
            let random = number / period % 2 == 0;
            let interval =
                if random { run.interval(Use::Random, 2048) } else { run.interval(Use::Stream, 256) };
            assert!(
                interval.plan.is_none() && interval.groups[0].step != Step::Plan,
                "{:?}",
                interval.groups
            );
        }
    }
}

#[test]
fn too_few_requests_give_no_signature() {
    let mut run = Run::new(hysteresis());
    for _ in 0..6 {
        let interval = run.interval(Use::Random, 16);
        assert!(
            interval.groups.iter().all(|group| group.step == Step::TooFewRequests),
            "{:?}",
            interval.groups
        );
    }
    let nothing = run.interval(Use::Random, 0);
    assert_eq!((nothing.requests, nothing.groups.len()), (0, 0));
}

#[test]
fn figures_of_another_cluster_fail_and_are_requested_again() {
    let mut run = Run::new(hysteresis());
    run.figures.classes[1].targets = 5;
    (0..2).for_each(|_| assert!(run.interval(Use::Random, 2048).failed.is_none()));
    let failed = run.interval(Use::Random, 2048);
    assert!(failed.failed.as_ref().is_some_and(|why| why.contains("5 targets")), "{:?}", failed.failed);
    run.figures.classes[1].targets = 2;
    assert!(run.interval(Use::Random, 2048).plan.is_some());
}

#[test]
fn group_names_do_not_depend_on_the_files_seen() {
    let watcher = Watcher::new("/proj2", hysteresis());
    for rule in ["/proj2/run7/out.0001.h5", "/proj2/run7/out.*.h5", "/proj2/run8/out.1.h5"] {
        assert_eq!(watcher.group_name(&PathRule(rule.into())), "/proj2/run*/out.*.h*");
    }
    assert_eq!(watcher.group_name(&PathRule::of("/proj2/plain")), "/proj2/plain");
}

/// Each file is read as a whole by one request. No single file shows an order, but together they keep disks busy.
#[test]
fn many_small_files_read_once_are_planned() {
    let mut run = Run::new(hysteresis());
    let interval = |run: &mut Run, number: u64| {
        let of_file = |file: u64| {
            let (client, start) = (900 + file % 8, Nanos(number * 60_000_000_000 + file / 8 * 9_000_000));
            let extent = Extent::new(0, 128 * KIB);
            let subs = run.layout.split(extent, Access::Sequential, SplitPolicy::Off);
            let message = |sub: &SubRequest| read(client, file, sub, start, Nanos(8_500_000));
            FileSamples {
                file: Id(1000 + file),
                path: format!("/out2/picture.{file}"),
                layout: run.layout.clone(),
                ruled: None,
                size: 128 * KIB,
                messages: subs.iter().map(message).collect(),
            }
        };
        let files = (0..600).map(|n| of_file(number % 3 * 600 + n)).collect();
        let (figures, now) = (run.figures.clone(), Nanos(number * 60_000_000_000));
        run.watcher.interval(now, files, |_| Ok(figures), &AVAILABLE, &Options::default())
    };
    for number in 1..3 {
        let waiting = interval(&mut run, number);
        assert!(matches!(waiting.groups[0].step, Step::Waiting { .. }), "{:?}", waiting.groups);
    }
    let decided = interval(&mut run, 3);
    assert_eq!(decided.failed, None);
    let group = &decided.groups[0];
    let signature = group.signature.expect("enough to tell");
    assert_eq!(signature.to_string(), "few by each process, reads of about 128 KiB");
    let of = group.decided.as_ref().expect("it was planned for");
    assert!(matches!(of.decision, Decision::Apply { .. }) && of.planned_s < of.in_force_s, "{of:?}");
    assert!(of.rule.layout[0].stripes.contains_key("ssd"), "{of:?}");
    assert_eq!(interval(&mut run, 4).groups[0].step, Step::Known);
}

/// An interval with `files` files on disks. In each, 8 processes read all blocks of 16 KiB in random order.
fn shuffled(watcher: &mut Watcher, number: u64, files: u64) -> Option<ReplicaProposal> {
    let disks: Vec<TargetId> = AVAILABLE[..4].iter().map(|candidate| candidate.target).collect();
    let layout = Layout::striped(&disks, ByteLen(64 * KIB)).expect("a layout");
    let sent = |file: u64, n: u64| {
        let (client, turn) = (n % 8, n / 8);
        let extent = Extent::new((turn * 7919 % 61 * 8 + client) * 16 * KIB, 16 * KIB);
        let start = Nanos(number * 60_000_000_000 + turn * 10_000_000 + client * 1000);
        let sub = &layout.split(extent, Access::Sequential, SplitPolicy::Off)[0];
        read(900 + client + 8 * file, turn, sub, start, Nanos::from_ms(9))
    };
    let file = |file: u64| FileSamples {
        file: Id(file),
        path: format!("/out2/run{file}/data"),
        layout: layout.clone(),
        ruled: None,
        size: SIZE,
        messages: (0..8 * 61).map(|n| sent(file, n)).collect(),
    };
    let mut figures = hybrid((4, 9_000.0, 80.0), (2, 80.0, 500.0), None);
    figures.classes.truncate(1);
    let (now, files) = (Nanos::from_s(60 * number), (0..files).map(file).collect());
    let options = crate::replicas::Options::default();
    let found = watcher.interval_for_replicas(now, files, |_| Ok(figures), &AVAILABLE, &options);
    assert_eq!((found.failed.as_deref(), found.lost), (None, 0));
    assert!(found.plan.is_none() && found.groups[0].decided.is_none());
    found.groups[0].replica.clone()
}

#[test]
fn a_replica_is_proposed_once_for_the_single_file_of_a_group() {
    let mut watcher = Watcher::new("/out2", Hysteresis { gain: 0.1, ..hysteresis() });
    let found: Vec<_> = (0..6).map(|number| shuffled(&mut watcher, number, 1)).collect();
    assert!(found.iter().enumerate().all(|(at, one)| one.is_some() == (at == 2)), "{found:?}");
    let proposal = found[2].as_ref().expect("one");
    assert!(matches!(proposal.decision, Decision::Apply { gain } if gain > 0.1), "{proposal:?}");
    let replica = proposal.replica.as_ref().expect("one");
    assert_eq!((replica.path.as_str(), replica.ranks), ("/out2/run0/data", 0));
    let mapping = replica.mapping().expect("a mapping");
    assert_eq!((mapping.bytes(), proposal.bytes), (8 * 61 * 16 * KIB, 8 * 61 * 16 * KIB));

    let mut watcher = Watcher::new("/out2", Hysteresis { gain: 0.1, ..hysteresis() });
    let found: Vec<_> = (0..3).map(|number| shuffled(&mut watcher, number, 2)).collect();
    let proposal = found[2].as_ref().expect("a decision");
    assert!(proposal.reason.contains("2 files") && proposal.replica.is_none(), "{proposal:?}");
    assert_eq!(proposal.decision, Decision::Keep { gain: 0.0 });
}

#[test]
fn a_replica_that_gains_too_little_is_not_proposed() {
    let mut watcher = Watcher::new("/out2", Hysteresis { gain: 0.999, ..hysteresis() });
    let found: Vec<_> = (0..3).map(|number| shuffled(&mut watcher, number, 1)).collect();
    let proposal = found[2].as_ref().expect("a decision");
    assert!(matches!(proposal.decision, Decision::Keep { gain } if gain > 0.0), "{proposal:?}");
    assert!(proposal.replica.is_none() && proposal.run_s < proposal.now_s, "{proposal:?}");
}
