//! The planners beside each other and beside an exhaustive search, all on the twin.
//!
//! ```text
//! cargo run --release -p weft-estimate --example compare -- CLUSTER.toml WORKLOAD.toml ROOM [CLASS=ROOM]… [--exhaustive]
//! ```

use std::collections::BTreeMap;
use weft_estimate::{Space, Trials, of_twin, traced, trial};
use weft_planner::plan::{Options, shape};
use weft_planner::{Figures, Placing, Planner};
use weft_twin::{ClusterSpec, RunOptions};
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
        let (extent, request) = (unit.extent, unit.request_size());
        let space = Space { figures: &figures, rooms: &rooms, extent, request };
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        let options = RunOptions { drain: true, ..RunOptions::default() };
        let trials =
            Trials { cluster: &cluster, figures: &figures, workload: &*workload, options, seeds: 1, jobs };
        let model = |placing: &Placing| weft_planner::model::run(&figures, &load, &[placing]).seconds;
        let found = trials.search(&space, &model);
        println!("{} layouts tried; the best:", found.tried);
        for (number, (trial, placing)) in found.best.iter().take(8).enumerate() {
            let (model, twin) = (model(placing), trial.seconds);
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
