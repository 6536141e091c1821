//! Compares figures measured through servers, as on hardware, with the figures that the planner takes from the models
//! of the same devices.

use std::collections::BTreeMap;
use weft_core::{Nanos, ServerId, TargetId};
use weft_env::Env;
use weft_env::sim::{self, Sim, SimConfig};
use weft_estimate::measure::{self, ClassMeasurement, Measured, Plan, Report};
use weft_estimate::{StreamSchedule, of_twin_by};
use weft_planner::Figures;
use weft_planner::figures::{Class, Depth, Line};
use weft_twin::{Cluster, ClusterSpec};

fn cluster(module: &str) -> ClusterSpec {
    let text = format!(
        r#"
        network = "gbe"
        payload = "lengths"
        [metadata]
        profile = "sata-ssd"
        [[servers]]
        count = 6
        targets = [{{ class = "hdd", profile = "hdd-7200", module = "{module}" }}]
        [[servers]]
        count = 2
        targets = [{{ class = "ssd", profile = "sata-ssd", module = "{module}" }}]
        "#
    );
    toml::from_str(&text).unwrap()
}

/// A class of which one target was measured. The system reports a page cache of `holds` bytes.
fn site(class: &str, targets: u32, holds: u64, measured: (u32, Measured)) -> ClassMeasurement {
    ClassMeasurement {
        class: class.into(),
        device: "a model".into(),
        targets,
        write_buffer: 512 << 20,
        write_back_threshold: 128 << 20,
        page_cache: holds,
        capacity: 1 << 40,
        devices: None,
        measured: vec![measured],
    }
}

/// Measures one target of each class and the network to two servers. The system reports a page cache of `holds` bytes.
fn measured(spec: &ClusterSpec, plan: Plan, holds: u64) -> Report {
    let payload = sim::Payload::Lengths;
    let mut sim = Sim::new(SimConfig { seed: 7, shuffle: false, payload });
    let cluster = Cluster::build(&sim.control(), spec, 1).unwrap();
    let env = cluster.nodes()[0].clone();
    let report = sim.block_on(&env.clone(), async move {
        let _servers = cluster.start().await.unwrap();
        let client = cluster.client(cluster.rank(0));
        let mut sites = Vec::new();
        for (class, id, targets) in [("hdd", 0, 6), ("ssd", 6, 2)] {
            let found = measure::target(&client, TargetId(id), &plan, &|_| ()).await.unwrap();
            sites.push(site(class, targets, holds, (id, found)));
        }
        let mut links = Vec::new();
        for server in [0, 6] {
            links.push(
                measure::link(&client, ServerId(server), "s", Nanos::from_ms(500)).await.unwrap().unwrap(),
            );
        }
        let servers = [ServerId(0), ServerId(6)];
        let processor = measure::processor(&client, &servers, 2, Nanos::from_ms(500)).await.unwrap();
        // The twin's processors take part of each message's time, and nothing disturbs them.
        assert!(processor.is_some_and(|processor| processor.messages_per_s > 1000.0), "{processor:?}");
        Report::new("twin", 0, &sites, links, processor, Vec::new())
    });
    assert_eq!(Report::from_toml(&report.to_toml()).unwrap(), report);
    report
}

/// Largest ratio between the times of two lines for requests of 4 KiB to 1 MiB.
fn ratio(a: Line, b: Line) -> f64 {
    let each = [4096.0, 65_536.0, 1_048_576.0].map(|len| a.ns(len) / b.ns(len));
    each.into_iter().map(|ratio| ratio.max(1.0 / ratio)).fold(1.0, f64::max)
}

/// Ratios between the figures of a class, by figure.
fn compare(measured: &Class, model: &Class) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    for (name, a, b) in [("read", &measured.read, &model.read), ("write", &measured.write, &model.write)] {
        let of = |what: &str| format!("{} {name} {what}", measured.name);
        found.insert(of("sequential"), ratio(a.sequential, b.sequential));
        if let (Some(a), Some(b)) = (a.streams, b.streams) {
            found.insert(of("streams"), ratio(a, b));
        }
        if let (Some(a), Some(b)) = (a.near, b.near) {
            found.insert(of("near"), ratio(a, b));
        }
        if a.sync_us > 0.0 {
            found.insert(of("sync"), (a.sync_us / b.sync_us).max(b.sync_us / a.sync_us));
        }
        for (what, a, b) in [("random", &a.random, &b.random), ("scattered", &a.scattered, &b.scattered)] {
            assert_eq!(a.len(), b.len(), "{}", of(what));
            for (a, b) in a.iter().zip(b) {
                assert_eq!(a.depth, b.depth, "{}", of(what));
                let line = |depth: &Depth| Line { startup_us: depth.startup_us, mb_s: depth.mb_s };
                found.insert(of(&format!("{what} {}", a.depth)), ratio(line(a), line(b)));
            }
        }
    }
    found
}

fn model(spec: &ClusterSpec, span: u64) -> Figures {
    // Total bytes such that each target is measured over this span.
    of_twin_by(spec, &BTreeMap::new(), span * 8, StreamSchedule::Independent).unwrap()
}

fn check(module: &str, bounds: &dyn Fn(&str) -> f64) {
    let spec = cluster(module);
    let span = 1 << 30;
    let plan = Plan {
        span,
        reach: span,
        time: Nanos::from_s(120),
        quick: false,
        direct: module == "direct",
        sparse: false,
    };
    let report = measured(&spec, plan, 0);
    for class in &report.classes {
        // Nothing disturbs the twin.
        assert_eq!(class.unreliable().0, 0, "{class:?}");
    }
    let model = model(&spec, span);
    let mut out = String::new();
    let mut far = Vec::new();
    for (a, b) in report.figures.classes.iter().zip(&model.classes) {
        for (what, ratio) in compare(a, b) {
            out += &format!("{what}: {ratio:.2}\n");
            if ratio > bounds(&what) {
                far.push(what);
            }
        }
    }
    out += &format!("{:?}\n{:?}\n", report.figures, model);
    for class in &report.classes {
        assert!(class.samples > 2000, "{}: {} samples", class.name, class.samples);
        out +=
            &format!("{}: {} samples, {} aside, {:?}\n", class.name, class.samples, class.aside, class.curve);
    }
    println!("{out}");
    assert!(far.is_empty(), "{far:?} differ too much\n{out}");
    let (a, b) = (&report.figures.network, &model.network);
    assert!((a.connect_us / b.connect_us - 1.0).abs() < 0.25, "{a:?} {b:?}");
    assert!((a.mb_s / b.mb_s - 1.0).abs() < 0.1, "{a:?} {b:?}");
}

/// Tolerated ratio. Figures of a device whose times are not linear depend on the number and order of requests.
fn bound(what: &str) -> f64 {
    match what {
        // Up to 64 KiB the disk has already read ahead the next request; from 256 KiB on it has not.
        "hdd read near" => 1.3,
        // The progress of each stream depends on the offsets at which the streams start.
        "hdd read streams" => 1.25,
        // Four hundred requests and a sync, on an existing file here and on a growing one there.
        "hdd write near" | "hdd write sequential" | "hdd write streams" => 1.25,
        // The few requests of the model begin and end with a shallower queue.
        "ssd read random 16" => 1.15,
        _ => 1.1,
    }
}

#[test]
fn direct_figures_match_the_models() {
    check("direct", &bound);
}

#[test]
fn buffered_figures_match_the_models() {
    check("buffered", &|what| match what {
        // The system's read-ahead does not recognize shuffled neighbors either.
        "ssd read near" => 1.25,
        // A sync takes whole rotations, four or five, and few of them are measured.
        "hdd write sync" => 1.15,
        // At 4 KiB the density of the requests differs slightly.
        "hdd write random 1" => 1.2,
        _ => bound(what),
    });
}

#[test]
fn the_page_cache_size_is_found() {
    const MIB: u64 = 1 << 20;
    let span = 512 * MIB;
    let plan = Plan { span, reach: span, time: Nanos::from_s(60), quick: true, direct: false, sparse: false };
    for (holds, expected) in [(0, 0), (128, 128), (300, 300), (4096, 700)] {
        let mut spec = cluster("buffered");
        for name in ["hdd-7200", "sata-ssd"] {
            let mut profile = weft_models::Profile::by_name(name).unwrap();
            profile.name = format!("{name}-with-memory");
            profile.files.page_cache_mib = holds;
            spec.profiles.push(profile);
        }
        let targets = spec.servers.iter_mut().flat_map(|server| &mut server.targets);
        targets.for_each(|target| target.profile += "-with-memory");
        let report = measured(&spec, plan, 700 * MIB);
        for (class, figures) in report.classes.iter().zip(&report.figures.classes) {
            let found = figures.memory.0;
            let off = found.abs_diff(expected * MIB);
            assert!(off <= expected * MIB / 10, "{holds} MiB of memory, {}: {found}", class.name);
            let estimate = class.page_cache.expect("through memory");
            assert_eq!(estimate.is_lower_bound, holds > 512, "{}: {estimate:?}", class.name);
            assert!(
                estimate.is_lower_bound || estimate.bytes.0.abs_diff(holds * MIB) <= estimate.error.0,
                "{}: {estimate:?}",
                class.name
            );
        }
    }
}

#[test]
fn a_short_measurement_keeps_its_time_and_misses_no_needed_figure() {
    let spec = cluster("buffered");
    // The parts of a target of two classes, by default and with --quick.
    for (time, quick, span) in
        [(Nanos::from_ms(7_875), false, 1 << 30), (Nanos::from_ms(3_500), true, 1 << 28)]
    {
        let plan = Plan { span, reach: span, time, quick, direct: false, sparse: false };
        let mut sim = Sim::new(SimConfig { seed: 7, shuffle: false, payload: sim::Payload::Lengths });
        let cluster = Cluster::build(&sim.control(), &spec, 1).unwrap();
        let env = cluster.nodes()[0].clone();
        let (report, took) = sim.block_on(&env.clone(), async move {
            let _servers = cluster.start().await.unwrap();
            let client = cluster.client(cluster.rank(0));
            let (mut sites, mut took) = (Vec::new(), Vec::new());
            for (class, id, targets) in [("hdd", 0, 6), ("ssd", 6, 2)] {
                let begun = client.env().now();
                let found = measure::target(&client, TargetId(id), &plan, &|_| ()).await.unwrap();
                took.push(client.env().now().saturating_sub(begun).0 as f64 / time.0 as f64);
                sites.push(site(class, targets, 0, (id, found)));
            }
            (Report::new("twin", 0, &sites, Vec::new(), None, Vec::new()), took)
        });
        assert!(took.iter().all(|took| (0.5..1.6).contains(took)), "{took:?} of the time, quick: {quick}");
        assert_eq!(report.figures.classes.len(), 2, "{:?}", report.missing);
        assert!(report.classes.iter().all(|class| class.curve.is_some()), "{:?}", report.missing);
        let model = model(&spec, span);
        for (a, b) in report.figures.classes.iter().zip(&model.classes) {
            let pairs = [(a.read.sequential, b.read.sequential), (a.read.alone(), b.read.alone())];
            for (measured, model) in pairs {
                let off = ratio(measured, model);
                assert!(off < 1.5, "{}: {measured:?}, by the model {model:?}", a.name);
            }
        }
    }
}
