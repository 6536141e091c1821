//! Compares the planners with each other, and optionally with an exhaustive search, on the twin.
//!
//! ```text
//! cargo run --release -p weft-estimate --example compare -- CLUSTER.toml WORKLOAD.toml CLASS=CAPACITY… [--exhaustive]
//! ```

use std::collections::BTreeMap;
use weft_estimate::{SearchSpace, Trials, of_twin, summarize_workload, trial};
use weft_planner::plan::{Options, shape};
use weft_planner::{ClassPlacement, Figures, Planner};
use weft_twin::{ClusterSpec, RunOptions};
use weft_workload::{Size, WorkloadSpec};

fn main() {
    let (flags, arguments): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    let [cluster, workload, capacities @ ..] = arguments.as_slice() else {
        panic!("usage: compare CLUSTER.toml WORKLOAD.toml CLASS=CAPACITY…");
    };
    let read =
        |path: &String| std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let cluster: ClusterSpec = toml::from_str(&read(cluster)).unwrap_or_else(|error| panic!("{error}"));
    let workload: WorkloadSpec = toml::from_str(&read(workload)).unwrap_or_else(|error| panic!("{error}"));
    let workload = workload.build().unwrap_or_else(|error| panic!("{error}"));
    let capacity = |text: &String| {
        let (class, capacity) = text.split_once('=').expect("CLASS=CAPACITY");
        (class.to_owned(), capacity.parse::<Size>().unwrap_or_else(|error| panic!("{error}")).0)
    };
    let capacities: BTreeMap<String, u64> = capacities.iter().map(capacity).collect();
    let traced = summarize_workload(&*workload);
    let group = &traced.groups[0];
    let figures = of_twin(&cluster, &capacities, group.extent_sum).unwrap_or_else(|error| panic!("{error}"));
    if flags.iter().any(|flag| flag == "--figures") {
        println!("{}", toml::to_string(&figures).expect("figures can be written"));
    }
    let options = Options::default();
    let planned = weft_planner::plan(&traced, &figures, &options).unwrap_or_else(|error| panic!("{error}"));
    println!("{} requests, {}, {} bytes", traced.requests, shape(&group.pattern.shape), group.extent);
    let try_it = |placement: &ClassPlacement| trial(&cluster, &figures, placement, &*workload, None);
    for planner in Planner::ALL {
        let (_, placements) = planned.placements.iter().find(|(of, _)| *of == planner).expect("all plan");
        let model = planned.plan.predicted.iter().find(|of| of.planner == planner).expect("all plan").seconds;
        match try_it(&placements[0]) {
            Ok(trial) => println!(
                "{planner:>10} {model:10.3} s by the model, {:10.3} s on the twin ({:.2})  {}",
                trial.seconds,
                model / trial.seconds,
                written(&placements[0], &figures)
            ),
            Err(error) => println!("{planner:>10} {model:10.3} s by the model; {error}"),
        }
    }
    if flags.iter().any(|flag| flag == "--exhaustive") {
        let capacities: Vec<u64> =
            figures.classes.iter().map(weft_planner::figures::Class::capacity).collect();
        let load = weft_planner::model::Load::of(&traced, None);
        let (extent, request) = (group.extent, group.request_size());
        let space = SearchSpace { figures: &figures, capacities: &capacities, extent, request };
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        let options = RunOptions { drain: true, ..RunOptions::default() };
        let trials =
            Trials { cluster: &cluster, figures: &figures, workload: &*workload, options, seeds: 1, jobs };
        let model =
            |placement: &ClassPlacement| weft_planner::model::run(&figures, &load, &[placement]).seconds;
        let found = trials.search(&space, &model);
        println!("{} layouts tried; the best:", found.tried);
        for (number, (trial, placement)) in found.best.iter().take(8).enumerate() {
            let (model, twin) = (model(placement), trial.seconds);
            println!(
                "{number:>10} {model:10.3} s by the model, {twin:10.3} s on the twin ({:.2})  {}",
                model / twin,
                written(placement, &figures)
            );
        }
    }
}

fn written(placement: &ClassPlacement, figures: &Figures) -> String {
    let parts: Vec<String> = placement.to_plan(figures).iter().map(ToString::to_string).collect();
    parts.join("; ")
}
