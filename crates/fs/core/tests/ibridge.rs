//! iBridge's equations with numbers computed by hand, and invariants for arbitrary requests.

use proptest::prelude::*;
use std::collections::BTreeMap;
use weft_core::ibridge::{
    Arrival, Class, Decider, DeciderSpec, DiskRequest, Partition, PeerAverages, Policy, Report,
    ServiceAverage, ServiceCurve, Thresholds, Verdict, Weight, fragment_return,
};
use weft_core::{ByteLen, LocalOffset, Nanos, TargetId};

/// D_to_T: 0 at 0, 100 ns at 1000 bytes, 200 ns from 3000 on. R = 50 ns. B: a byte takes 1 ns to read, 2 to write. The
/// distance between datafiles is 2000 bytes.
fn curve() -> ServiceCurve {
    let seek = [(0, 0), (1000, 100), (3000, 200)].map(|(distance, time)| (ByteLen(distance), Nanos(time)));
    ServiceCurve::new(seek.to_vec(), Nanos(50), 1_000_000_000, 500_000_000, ByteLen(2000)).unwrap()
}

fn read(file: u64, offset: u64, len: u64) -> DiskRequest {
    DiskRequest { file, offset: LocalOffset(offset), len: ByteLen(len), write: false }
}

fn write(file: u64, offset: u64, len: u64) -> DiskRequest {
    DiskRequest { write: true, ..read(file, offset, len) }
}

const OWN: TargetId = TargetId(7);

fn decider(policy: Policy) -> Decider {
    Decider::new(DeciderSpec {
        target: OWN,
        policy,
        thresholds: Thresholds { fragments_below: ByteLen(100), random_below: ByteLen(60) },
        weight: Weight::default(),
        curve: curve(),
        stale: Nanos(1000),
        has_page_cache: false,
    })
}

fn alone(request: DiskRequest) -> Arrival<'static> {
    Arrival { request, pieces: 1, siblings: &[] }
}

fn report(target: u32, average: u64, age: u64) -> Report {
    Report { target: TargetId(target), average: Nanos(average), age: Nanos(age) }
}

#[test]
fn equations_1_and_2() {
    let curve = curve();
    let mut average = ServiceAverage::new(Weight::default());
    assert_eq!(average.value(), Nanos(0));
    // From another datafile: D_to_T(2000) + R + 80 = 150 + 50 + 80 = 280; T = 0/8 + 7/8 * 280 = 245.
    let first = read(1, 0, 80);
    assert_eq!(average.cost(&curve, &first), Nanos(280));
    assert_eq!(average.disk_if_served(&curve, &first), Nanos(245));
    assert_eq!(average.gain(&curve, &first), 245);
    average.served(&curve, &first);
    assert_eq!(average.value(), Nanos(245));
    // D_to_T(500) + R + 40 * 2 = 50 + 50 + 80 = 180; T = (245 + 7 * 180)/8 = 188.125.
    let second = write(1, 500, 40);
    assert_eq!(average.disk_if_served(&curve, &second), Nanos(188));
    assert_eq!(average.gain(&curve, &second), 188 - 245);
    // If the SSD serves it, neither T nor λ changes (equation 2): the third request is 1500 bytes from the first.
    // D_to_T(1500) + R + 8 = 125 + 50 + 8 = 183; T = (245 + 7 * 183)/8 = 190.75.
    let third = read(1, 1500, 8);
    assert_eq!(average.disk_if_served(&curve, &third), Nanos(190));
    // If the disk serves it: D_to_T(1000) + R + 8 = 158; T = (188 + 7 * 158)/8 = 161.75.
    average.served(&curve, &second);
    assert_eq!(average.disk_if_served(&curve, &third), Nanos(161));
    // The distance is symmetric.
    average.served(&curve, &third);
    assert_eq!(average.distance(&curve, &second), ByteLen(1000));
}

#[test]
fn weights_round_trip() {
    let mut average = ServiceAverage::new("1/4".parse().unwrap());
    average.served(&curve(), &read(1, 0, 80));
    assert_eq!(average.value(), Nanos(70), "280/4");
    for text in ["", "7", "0/8", "9/8", "-1/8", "1/0", "a/b"] {
        assert!(text.parse::<Weight>().is_err(), "{text}");
    }
    assert_eq!(Weight::default().to_string(), "7/8");
}

#[test]
fn equation_3() {
    // This disk is the slowest: (190 - 150) * 3 is added.
    assert_eq!(fragment_return(-55, Nanos(190), Some(Nanos(150)), 3), 65);
    // Not the slowest, or as slow as another.
    assert_eq!(fragment_return(-55, Nanos(190), Some(Nanos(191)), 3), -55);
    assert_eq!(fragment_return(-55, Nanos(190), Some(Nanos(190)), 3), -55);
    // Unknown.
    assert_eq!(fragment_return(-55, Nanos(190), None, 3), -55);
    assert_eq!(fragment_return(i64::MAX, Nanos(u64::MAX), Some(Nanos(0)), u32::MAX), i64::MAX);
}

#[test]
fn a_fragment_depends_only_on_the_servers_of_its_siblings() {
    let mut decider = decider(Policy::Ibridge);
    decider.served_by_disk(&read(1, 0, 80)); // T = 245
    let now = Nanos(10_000);
    decider.peer_averages_mut().take(&[report(1, 145, 0), report(2, 200, 0), report(3, 5000, 0)], now);
    // Its own return: (245 + 7 * (50 + 50 + 80))/8 - 245 = -57, as above.
    let fragment = |siblings, pieces| Arrival { request: write(1, 500, 40), pieces, siblings };
    let (one, two, slow) = ([TargetId(1)], [TargetId(1), TargetId(2)], [TargetId(1), TargetId(3)]);
    assert_eq!(decider.gain(&fragment(&one, 2), now), -57 + (245 - 145));
    assert_eq!(decider.gain(&fragment(&two, 3), now), -57 + (245 - 200) * 2, "the second largest counts");
    assert_eq!(decider.gain(&fragment(&slow, 3), now), -57, "another is slower");
    assert_eq!(decider.gain(&fragment(&[], 2), now), -57, "unknown siblings");
    assert_eq!(decider.gain(&fragment(&[OWN], 2), now), -57, "on the same disk");
    assert_eq!(decider.gain(&fragment(&[TargetId(99)], 2), now), -57, "never heard of");
    assert_eq!(decider.gain(&fragment(&one, 1), now), -57, "no fragment");
    assert_eq!(decider.gain(&fragment(&one, 2), now.saturating_add(Nanos(1000))), -57 + 100);
    assert_eq!(decider.gain(&fragment(&one, 2), now.saturating_add(Nanos(1001))), -57, "too long ago");
    let verdict = decider.decide(&fragment(&one, 2), now);
    assert_eq!(verdict, Verdict::Ssd { class: Class::Fragment, gain: 43 });
    assert_eq!(decider.decide(&fragment(&slow, 3), now), Verdict::Disk);
    assert_eq!(decider.average(), Nanos(245), "a decision changes nothing");
}

#[test]
fn size_limits_depend_on_the_class() {
    let mut decider = decider(Policy::Threshold);
    let mut class = |len, pieces| match decider
        .decide(&Arrival { request: read(1, 0, len), pieces, siblings: &[] }, Nanos(0))
    {
        Verdict::Ssd { class, .. } => Some(class),
        Verdict::Disk => None,
        Verdict::Edges { .. } | Verdict::Outgrown { .. } => panic!("not a verdict of the paper's policies"),
    };
    assert_eq!([class(59, 1), class(60, 1)], [Some(Class::Random), None]);
    assert_eq!([class(99, 2), class(100, 2)], [Some(Class::Fragment), None]);
    assert_eq!(class(59, 0), Some(Class::Random), "unknown number of pieces");
}

#[test]
fn policies_admit_what_their_names_say() {
    // The second request has a return of -57.
    let second = alone(write(1, 500, 40));
    let decide = |policy| {
        let mut decider = decider(policy);
        decider.served_by_disk(&read(1, 0, 80));
        (decider.decide(&second, Nanos(0)), decider.decide(&alone(read(9, 0, 59)), Nanos(0)))
    };
    // 150 + 50 + 59 = 259; (245 + 7 * 259)/8 = 257.25: +12.
    let (class, far) = (Class::Random, Verdict::Ssd { class: Class::Random, gain: 12 });
    assert_eq!(decide(Policy::Off), (Verdict::Disk, Verdict::Disk));
    assert_eq!(decide(Policy::Ibridge), (Verdict::Disk, far));
    assert_eq!(decide(Policy::Static { fragments: 1, random: 1 }), (Verdict::Disk, far));
    assert_eq!(decide(Policy::Threshold), (Verdict::Ssd { class, gain: -57 }, far));
}

#[test]
fn shares_follow_the_average_returns() {
    let capacity = ByteLen(1000);
    let quotas = |partition: &Partition| Class::ALL.map(|class| partition.quota(class, capacity).0);
    let mut partition = Partition::new(Policy::Ibridge);
    assert_eq!(quotas(&partition), [500, 500], "without history");
    partition.admitted(Class::Fragment, 3000);
    assert_eq!(quotas(&partition), [900, 100], "a class without history has a floor");
    partition.admitted(Class::Random, 1000);
    assert_eq!(quotas(&partition), [750, 250]);
    for _ in 0..2000 {
        partition.admitted(Class::Random, 3000);
    }
    assert_eq!(partition.average(Class::Random).map(|mean| mean.round()), Some(3000.0), "it follows");
    let mut fixed = Partition::new("static(1:2)".parse().unwrap());
    fixed.admitted(Class::Random, i64::MAX);
    assert_eq!(quotas(&fixed), [667, 333], "one part for random requests, two for fragments");
    assert_eq!(quotas(&Partition::new(Policy::Threshold)), [1000, 1000], "no partition");
}

fn requests() -> impl Strategy<Value = DiskRequest> {
    let offset = prop_oneof![0..10_000u64, any::<u64>()];
    (0..3u64, offset, prop_oneof![0..200u64, any::<u64>()], any::<bool>())
        .prop_map(|(file, offset, len, write)| DiskRequest { write, ..read(file, offset, len) })
}

proptest! {
    #[test]
    fn t_lies_between_its_old_value_and_the_cost(requests in prop::collection::vec(requests(), 1..50)) {
        let curve = curve();
        let mut average = ServiceAverage::new(Weight::default());
        for request in requests {
            let (before, cost) = (average.value(), average.cost(&curve, &request));
            let gain = average.gain(&curve, &request);
            average.served(&curve, &request);
            let after = average.value();
            prop_assert!(before.min(cost) <= after && after <= before.max(cost));
            prop_assert_eq!(gain > 0, after > before);
        }
    }

    #[test]
    fn requests_served_by_the_ssd_leave_no_trace(
        requests in prop::collection::vec((requests(), 0..4u32), 1..80),
    ) {
        let mut decider = decider(Policy::Ibridge);
        let mut disk_alone = ServiceAverage::new(Weight::default());
        for (request, pieces) in requests {
            let arrival = Arrival { request, pieces, siblings: &[] };
            let is_small = request.len < if pieces > 1 { ByteLen(100) } else { ByteLen(60) };
            let gain = disk_alone.gain(&curve(), &request);
            match decider.decide(&arrival, Nanos(0)) {
                Verdict::Ssd { class, gain: reported_at } => {
                    prop_assert!(is_small && gain > 0);
                    prop_assert_eq!((reported_at, class == Class::Fragment), (gain, pieces > 1));
                }
                Verdict::Disk => {
                    prop_assert!(!is_small || gain <= 0);
                    decider.served_by_disk(&request);
                    disk_alone.served(&curve(), &request);
                }
                Verdict::Edges { .. } | Verdict::Outgrown { .. } => prop_assert!(false),
            }
            prop_assert_eq!(decider.average(), disk_alone.value());
        }
    }

    #[test]
    fn peer_averages_keep_the_latest_fresh_report(
        steps in prop::collection::vec(
            (prop::collection::vec((0..4u32, 0..1000u64, 0..300u64), 0..4), 0..200u64),
            1..30,
        ),
    ) {
        let mut peer_averages = PeerAverages::new(Nanos(100));
        let mut now = 1000;
        let mut all: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for (reports, pause) in steps {
            let reports = reports.into_iter().map(|(target, average, age)| report(target, average, age));
            let reports: Vec<_> = reports.collect();
            peer_averages.take(&reports, Nanos(now));
            for report in &reports {
                let reported_at = now - report.age.0;
                let line = all.entry(report.target.0).or_insert((reported_at, report.average.0));
                if reported_at >= line.0 {
                    *line = (reported_at, report.average.0);
                }
            }
            now += pause;
            for target in 0..4 {
                let fresh = all.get(&target).filter(|(reported_at, _)| now - reported_at <= 100);
                let fresh = fresh.map(|(_, average)| Nanos(*average));
                prop_assert_eq!(peer_averages.average(TargetId(target), Nanos(now)), fresh);
            }
            let reported_at = peer_averages.reports(Nanos(now));
            let fresh = all.iter().filter(|(_, (reported_at, _))| now - reported_at <= 100);
            let fresh =
                fresh.map(|(&target, &(reported_at, average))| report(target, average, now - reported_at));
            let fresh: Vec<_> = fresh.collect();
            prop_assert_eq!(reported_at, fresh);
            all.retain(|_, (reported_at, _)| now - *reported_at <= 100);
        }
    }

    #[test]
    fn shares_are_parts_of_the_whole(
        admitted in prop::collection::vec((any::<bool>(), any::<i64>()), 0..100), capacity in any::<u64>(),
    ) {
        let mut partition = Partition::new(Policy::Ibridge);
        for (is_fragment, gain) in admitted {
            partition.admitted(if is_fragment { Class::Fragment } else { Class::Random }, gain);
            let shares = Class::ALL.map(|class| partition.share(class));
            prop_assert!((shares[0] + shares[1] - 1.0).abs() < 1e-9);
            prop_assert!(shares.iter().all(|share| (0.0999..=0.9001).contains(share)));
            let quotas = Class::ALL.map(|class| partition.quota(class, ByteLen(capacity)).0);
            prop_assert!(quotas.iter().all(|quota| *quota <= capacity));
        }
    }

    #[test]
    fn no_policy_exceeds_the_request(
        requests in prop::collection::vec((requests(), 0..4u64), 1..80), took in 0..20_000_000u64,
    ) {
        let mut decider = decider(Policy::Detour { ns_per_byte: 2, page: 64 });
        let mut now = 0;
        for (request, process) in requests {
            decider.observe_writer(process, Nanos(now));
            match decider.decide(&alone(request), Nanos(0)) {
                Verdict::Ssd { gain, .. } => prop_assert!(gain > 0 && request.len > ByteLen(0)),
                Verdict::Disk => {
                    decider.served_by_disk(&request);
                    decider.observe_write(&request, (Nanos(now), Nanos(now + took)), process as u32);
                    now += took / 2;
                }
                Verdict::Outgrown { before } => {
                    prop_assert!(before > 0 && before <= request.offset.0 && !request.write);
                    decider.served_by_disk(&request);
                }
                Verdict::Edges { head, tail, gain, .. } => {
                    prop_assert!(gain > 0 && request.write && head < 64 && tail < 64);
                    prop_assert!(head + tail > 0 && head + tail < request.len.0);
                }
            }
        }
    }
}
