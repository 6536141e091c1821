//! Figures measured through servers, as on hardware, beside those that the planner takes from the models of the same
//! devices.

use std::collections::BTreeMap;
use weft_core::{Nanos, ServerId, TargetId};
use weft_env::sim::{self, Sim, SimConfig};
use weft_estimate::measure::{self, Plan, Report, Site};
use weft_estimate::{Turns, of_twin_by};
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

/// Measures one target of each class and the way to two servers, where the system says that it has memory for `holds` bytes.
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
            sites.push(Site {
                class: class.into(),
                device: "a model".into(),
                targets,
                behind: 512 << 20,
                gathers: 128 << 20,
                holds,
                capacity: 1 << 40,
                measured: vec![(id, found)],
            });
        }
        let mut links = Vec::new();
        for server in [0, 6] {
            links.push(measure::link(&client, ServerId(server), "s", Nanos::from_ms(500)).await.unwrap());
        }
        Report::new("twin", 0, &sites, links)
    });
    assert_eq!(Report::from_toml(&report.to_toml()).unwrap(), report);
    report
}

/// The worst ratio of times of requests of 4 KiB to 1 MiB by two lines.
fn ratio(a: Line, b: Line) -> f64 {
    let each = [4096.0, 65_536.0, 1_048_576.0].map(|len| a.ns(len) / b.ns(len));
    each.into_iter().map(|ratio| ratio.max(1.0 / ratio)).fold(1.0, f64::max)
}

/// By how much the figures of a class differ at most: what, and the ratio.
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
    // So much that each target is measured over this span.
    of_twin_by(spec, &BTreeMap::new(), span * 8, Turns::Free).unwrap()
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

/// A device that is no line has figures that depend on how many requests there were, and on who came first.
fn bound(what: &str) -> f64 {
    match what {
        // Up to 64 KiB the disk has read ahead what is asked for next, from 256 KiB on it has not.
        "hdd read near" => 1.3,
        // How far each stream gets while the disk is with it depends on how they began.
        "hdd read streams" => 1.25,
        // Of four hundred requests and a sync, here and there of a file that is there and one that grows.
        "hdd write near" | "hdd write sequential" | "hdd write streams" => 1.25,
        // The few that the model is asked for begin and end with fewer under way.
        "ssd read random 16" => 1.15,
        _ => 1.1,
    }
}

#[test]
fn figures_of_a_cluster_past_memory_are_those_of_its_models() {
    check("direct", &bound);
}

#[test]
fn figures_of_a_cluster_through_memory_are_those_of_its_models() {
    check("buffered", &|what| match what {
        // Reading ahead by the system does not know neighbors either.
        "ssd read near" => 1.25,
        // At 4 KiB how densely they lie differs a little.
        "hdd write random 1" => 1.2,
        _ => bound(what),
    });
}

#[test]
fn memory_that_answers_reads_is_found() {
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
            let held = class.held.expect("through memory");
            assert_eq!(held.all, holds > 512, "{}: {held:?}", class.name);
            assert!(
                held.all || held.bytes.0.abs_diff(holds * MIB) <= held.error.0,
                "{}: {held:?}",
                class.name
            );
        }
    }
}
