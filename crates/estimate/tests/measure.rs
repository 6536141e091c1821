//! Figures measured through servers, as on hardware, beside those that the planner takes from the models of the same
//! devices.

use std::collections::BTreeMap;
use weft_core::{Nanos, ServerId, TargetId};
use weft_env::sim::{self, Sim, SimConfig};
use weft_estimate::measure::{self, Plan, Report, Site};
use weft_estimate::of_twin;
use weft_planner::Figures;
use weft_planner::figures::{Class, Line};
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

/// Measures one target of each class and the way to two servers.
fn measured(spec: &ClusterSpec, plan: Plan) -> Report {
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
                holds: 0,
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
        for depth in &a.random {
            let line = Line { startup_us: depth.startup_us, mb_s: depth.mb_s };
            let ns = |len: f64| b.random_ns(depth.depth, len);
            let each = [4096.0, 65_536.0, 1_048_576.0].map(|len| line.ns(len) / ns(len));
            let worst = each.into_iter().map(|ratio| ratio.max(1.0 / ratio)).fold(1.0, f64::max);
            found.insert(of(&format!("random {}", depth.depth)), worst);
        }
    }
    found
}

fn model(spec: &ClusterSpec, span: u64) -> Figures {
    // So much that each target is measured over this span.
    of_twin(spec, &BTreeMap::new(), span * 8).unwrap()
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
    let report = measured(&spec, plan);
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

/// Requests in order are compared at a length at which a disk takes as long as the few that the other asks for.
fn bound(what: &str) -> f64 {
    match what {
        // Side by side here, in turn there: reading ahead for all of them over one file differs.
        "ssd read streams" => 2.6,
        _ if what.contains("random") => 1.15,
        // The first of few requests in order begin with a seek, those of many do not.
        _ => 1.8,
    }
}

#[test]
fn figures_of_a_cluster_past_memory_are_those_of_its_models() {
    check("direct", &bound);
}

#[test]
fn figures_of_a_cluster_through_memory_are_those_of_its_models() {
    check("buffered", &|what| match what {
        // The less memory gathers the further is the way from one to the next, and here it gathers for seconds.
        "hdd write random 1" => 3.6,
        _ if what.contains("write") => 1.4,
        _ => bound(what),
    });
}
