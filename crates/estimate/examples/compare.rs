//! The planners beside each other and beside an exhaustive search, all on the twin.
//!
//! ```text
//! cargo run --release -p weft-estimate --example compare -- CLUSTER.toml WORKLOAD.toml ROOM [CLASS=ROOM]… [--exhaustive]
//! ```

use std::collections::BTreeMap;
use weft_estimate::{of_twin, traced, trial};
use weft_planner::plan::{Options, shape};
use weft_planner::{Figures, Part, Placing, Planner};
use weft_twin::ClusterSpec;
use weft_workload::{Size, WorkloadSpec};

fn main() {
    let (flags, arguments): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    let [cluster, workload, rooms @ ..] = arguments.as_slice() else {
        panic!("give CLUSTER.toml WORKLOAD.toml CLASS=ROOM…");
    };
    let read =
        |path: &String| std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let cluster: ClusterSpec = toml::from_str(&read(cluster)).unwrap_or_else(|error| panic!("{error}"));
    let workload: WorkloadSpec = toml::from_str(&read(workload)).unwrap_or_else(|error| panic!("{error}"));
    let workload = workload.build().unwrap_or_else(|error| panic!("{error}"));
    let room = |text: &String| {
        let (class, room) = text.split_once('=').expect("CLASS=ROOM");
        (class.to_owned(), room.parse::<Size>().unwrap_or_else(|error| panic!("{error}")).0)
    };
    let rooms: BTreeMap<String, u64> = rooms.iter().map(room).collect();
    let traced = traced(&*workload);
    let unit = &traced.units[0];
    let figures = of_twin(&cluster, &rooms, unit.extent_sum).unwrap_or_else(|error| panic!("{error}"));
    if flags.iter().any(|flag| flag == "--figures") {
        println!("{}", toml::to_string(&figures).expect("figures can be written"));
    }
    let options = Options::default();
    let planned = weft_planner::plan(&traced, &figures, &options).unwrap_or_else(|error| panic!("{error}"));
    println!("{} requests, {}, {} bytes", traced.requests, shape(&unit.pattern.shape), unit.extent);
    let try_it = |placing: &Placing| trial(&cluster, &figures, placing, &*workload, None);
    for planner in Planner::ALL {
        let (_, placings) = planned.placings.iter().find(|(of, _)| *of == planner).expect("all plan");
        let model = planned.plan.predicted.iter().find(|of| of.planner == planner).expect("all plan").seconds;
        match try_it(&placings[0]) {
            Ok(trial) => println!(
                "{planner:>10} {model:10.3} s by the model, {:10.3} s on the twin ({:.2})  {}",
                trial.seconds,
                model / trial.seconds,
                written(&placings[0], &figures)
            ),
            Err(error) => println!("{planner:>10} {model:10.3} s by the model; {error}"),
        }
    }
    if flags.iter().any(|flag| flag == "--exhaustive") {
        let rooms: Vec<u64> = figures.classes.iter().map(weft_planner::figures::Class::room).collect();
        let load = weft_planner::model::Load::of(&traced, None);
        let mut found: Vec<(f64, f64, Placing)> = Vec::new();
        for placing in all(&figures, &rooms, unit.extent, unit.request_size()) {
            let Ok(trial) = try_it(&placing) else { continue };
            let model = weft_planner::model::run(&figures, &load, &[&placing]).seconds;
            found.push((trial.seconds, model, placing));
        }
        found.sort_by(|a, b| a.0.total_cmp(&b.0));
        println!("{} layouts tried; the best and some of the others:", found.len());
        let shown = found.iter().enumerate();
        for (number, (twin, model, placing)) in
            shown.filter(|(n, _)| *n < 8 || n % (found.len() / 12).max(1) == 0)
        {
            println!(
                "{number:>10} {model:10.3} s by the model, {twin:10.3} s on the twin ({:.2})  {}",
                model / twin,
                written(placing, &figures)
            );
        }
    }
}

fn written(placing: &Placing, figures: &Figures) -> String {
    let parts: Vec<String> = placing.written(figures).iter().map(ToString::to_string).collect();
    parts.join("; ")
}

/// Layouts of one and two parts over all sets of classes and stripes from 64 KiB to 4 MiB by fours, and the request's
/// parts.
fn all(figures: &Figures, rooms: &[u64], extent: u64, request: u64) -> Vec<Placing> {
    let mut sizes: Vec<u64> = [64u64, 256, 1024, 4096].map(|kib| kib << 10).to_vec();
    sizes.extend([request, request / 2, request / 4]);
    sizes.retain(|size| *size >= 4096);
    sizes.sort_unstable();
    sizes.dedup();
    let classes = figures.classes.len();
    if classes > 2 {
        return chains(figures, rooms, extent, request);
    }
    let mut stripes: Vec<Vec<u64>> = vec![vec![]];
    for _ in 0..classes {
        let with = |before: &Vec<u64>| {
            std::iter::once(0)
                .chain(sizes.clone())
                .map(|size| [before.as_slice(), &[size]].concat())
                .collect::<Vec<_>>()
        };
        stripes = stripes.iter().flat_map(with).collect();
    }
    stripes.retain(|stripes| stripes.iter().any(|size| *size > 0));
    let mut found = Vec::new();
    for head in &stripes {
        let limited = (0..classes).filter(|class| head[*class] > 0 && rooms[*class] != u64::MAX);
        let rounds = limited.map(|class| rooms[class] / head[class]).min();
        let part = Part { start: 0, end: None, stripes: head.clone() };
        let boundary = rounds.map_or(u64::MAX, |rounds| rounds * part.round(figures));
        if boundary >= extent {
            found.push(Placing::whole(head.clone()));
            continue;
        }
        for tail in stripes.iter().filter(|tail| *tail != head) {
            let placing = Placing::two(head.clone(), boundary, tail.clone());
            if boundary > 0 && placing.fits(figures, rooms, extent, 1) {
                found.push(placing);
            }
        }
    }
    found
}

/// With more than two classes: up to three parts, each over any set of classes with equal stripes.
fn chains(figures: &Figures, rooms: &[u64], extent: u64, request: u64) -> Vec<Placing> {
    let sizes = [64 << 10, request, 4 << 20];
    let sets = 1..1u32 << rooms.len();
    let stripes = |set: u32, size: u64| {
        (0..rooms.len()).map(|class| if set >> class & 1 == 1 { size } else { 0 }).collect()
    };
    let parts: Vec<Vec<u64>> = sets.flat_map(|set| sizes.map(|size| stripes(set, size))).collect();
    let mut found = Vec::new();
    let mut begun: Vec<(Vec<Part>, Vec<u64>)> = vec![(Vec::new(), rooms.to_vec())];
    for depth in 0..3 {
        let mut next = Vec::new();
        for (before, left) in &begun {
            let from = before.last().map_or(0, |part| part.end.expect("all but the last end"));
            for stripes in
                parts.iter().filter(|stripes| before.last().is_none_or(|last| last.stripes != **stripes))
            {
                let part = Part { start: from, end: None, stripes: stripes.clone() };
                let limited =
                    (0..rooms.len()).filter(|class| stripes[*class] > 0 && left[*class] != u64::MAX);
                let rounds = limited.map(|class| left[class] / stripes[class]).min().unwrap_or(u64::MAX);
                let end = rounds.saturating_mul(part.round(figures)).saturating_add(from);
                if end >= extent {
                    found.push(Placing { parts: [before.as_slice(), &[part]].concat() });
                } else if end > from && depth < 2 {
                    let mut left = left.clone();
                    (0..left.len())
                        .filter(|class| left[*class] != u64::MAX)
                        .collect::<Vec<_>>()
                        .into_iter()
                        .for_each(|class| left[class] -= rounds * stripes[class]);
                    next.push(([before.as_slice(), &[Part { end: Some(end), ..part }]].concat(), left));
                }
            }
        }
        begun = next;
    }
    found
}
