//! Plans made with figures of the device models, tried on the twin.

use std::collections::BTreeMap;
use weft_estimate::{SearchResult, SearchSpace, Trials, of_twin, summarize_workload, trial};
use weft_planner::plan::Options;
use weft_planner::{ClassPlacement, Figures, Planned, Planner};
use weft_twin::{ClusterSpec, RunOptions};
use weft_workload::{Workload, WorkloadSpec};

const CLUSTER: &str = r#"
    network = "gbe"
    processes_per_node = 2
    [metadata]
    profile = "psa-hdd"
    [[servers]]
    count = 4
    targets = [{ class = "hdd", profile = "psa-hdd" }]
    [[servers]]
    count = 4
    targets = [{ class = "ssd", profile = "psa-ssd" }]
"#;

fn workload(text: &str) -> Box<dyn Workload> {
    toml::from_str::<WorkloadSpec>(text).unwrap().build().unwrap()
}

/// Plans for a workload.
fn planned(workload: &dyn Workload, cluster: &ClusterSpec, capacity: u64) -> (Figures, Planned) {
    let traced = summarize_workload(workload);
    let capacities = BTreeMap::from([("ssd".to_owned(), capacity)]);
    let figures = of_twin(cluster, &capacities, traced.groups[0].extent).unwrap();
    let options = Options { parts_max: 2, ..Options::default() };
    let planned = weft_planner::plan(&traced, &figures, &options).unwrap();
    (figures, planned)
}

#[test]
fn random_reads_that_partly_fit_the_ssds_are_faster_than_under_the_papers_planners() {
    let cluster: ClusterSpec = toml::from_str(CLUSTER).unwrap();
    let workload = workload(
        "kind = \"ior\"\nranks = 16\ntransfer = \"512 KiB\"\nper_rank = \"32 MiB\"\norder = \"random\"\naccess = \"read\"",
    );
    let (figures, planned) = planned(&*workload, &cluster, 32 << 20);
    let seconds = |of: Planner| {
        let (_, placements) = planned.placements.iter().find(|(planner, _)| *planner == of).unwrap();
        let placement: &ClassPlacement = &placements[0];
        trial(&cluster, &figures, placement, &*workload, None).unwrap().seconds
    };
    let best = seconds(Planner::Best);
    for other in [Planner::Psa, Planner::Pa, Planner::Def] {
        let seconds = seconds(other);
        assert!(seconds > 1.25 * best, "{other}: {seconds} s, best: {best} s\n{}", planned.plan.to_toml());
    }
}

/// Seeds for comparing layouts. They differ from those of the search, because the best of many runs is biased towards
/// luck.
const OTHER_SEEDS: std::ops::RangeInclusive<u64> = 1001..=1006;
/// Number of best layouts that are compared.
const COMPARED: usize = 5;

/// Time of the planner's layout on the twin divided by that of the best other layout. Tries a third of the grid to save
/// time.
fn over_the_best_found(text: &str, capacity: u64) -> f64 {
    let cluster: ClusterSpec = toml::from_str(CLUSTER).unwrap();
    let workload = workload(text);
    let (figures, planned) = planned(&*workload, &cluster, capacity);
    let traced = summarize_workload(&*workload);
    let (extent, request) = (traced.groups[0].extent, traced.groups[0].request_size());
    let space = SearchSpace { figures: &figures, capacities: &[u64::MAX, capacity], extent, request };
    let options = RunOptions { drain: true, ..RunOptions::default() };
    let some: Vec<ClassPlacement> =
        space.all().into_iter().step_by(3).map(|(_, placement)| placement).collect();
    assert!(some.len() > 30, "{} layouts", some.len());
    let trials =
        Trials { cluster: &cluster, figures: &figures, workload: &*workload, options, seeds: 1, jobs: 4 };
    let found = trials.each(&some);
    let (_, placements) = planned.placements.iter().find(|(planner, _)| *planner == Planner::Best).unwrap();
    let sum = |placement: &ClassPlacement| {
        let seconds = |seed| {
            let cluster = ClusterSpec { seed, ..cluster.clone() };
            trial(&cluster, &figures, placement, &*workload, None).unwrap().seconds
        };
        OTHER_SEEDS.map(seconds).sum::<f64>()
    };
    let found = found.iter().take(COMPARED).map(|(_, number)| sum(&some[*number]));
    sum(&placements[0]) / found.fold(f64::INFINITY, f64::min)
}

#[test]
fn random_reads_are_planned_nearly_as_well_as_by_search() {
    let text = "kind = \"ior\"\nranks = 16\ntransfer = \"512 KiB\"\nper_rank = \"8 MiB\"\norder = \"random\"\naccess = \"read\"";
    let over = over_the_best_found(text, 8 << 20);
    println!("{over}");
    assert!(over < 1.05, "{over}");
}

#[test]
fn long_collective_writes_are_planned_nearly_as_well_as_by_search() {
    // BTIO: sixteen processes on eight nodes collectively write windows of 2.6 MB, and read them back at the end.
    let text = "kind = \"btio\"\nranks = 16\nclass = \"B\"\nsubtype = \"full\"\ndumps = 3\ntwo_phase = {}";
    let over = over_the_best_found(text, 16 << 20);
    println!("{over}");
    assert!(over < 1.05, "{over}");
}

#[test]
fn aborting_slow_layouts_does_not_change_the_result() {
    let cluster: ClusterSpec = toml::from_str(CLUSTER).unwrap();
    let workload = workload(
        "kind = \"ior\"\nranks = 4\ntransfer = \"256 KiB\"\nper_rank = \"2 MiB\"\norder = \"random\"\naccess = \"read\"",
    );
    let capacity = 512 << 10;
    let (figures, _) = planned(&*workload, &cluster, capacity);
    let capacities = [u64::MAX, capacity];
    let (extent, request) = (8 << 20, 256 << 10);
    let space = SearchSpace { figures: &figures, capacities: &capacities, extent, request };
    let options = RunOptions::default();
    let trials =
        |jobs| Trials { cluster: &cluster, figures: &figures, workload: &*workload, options, seeds: 2, jobs };
    let grid: Vec<ClassPlacement> = space.all().into_iter().map(|(_, placement)| placement).collect();
    let all = trials(4).each(&grid);
    assert_eq!(all.len(), grid.len());
    let summary = |found: &SearchResult| -> Vec<_> {
        found.best.iter().map(|(trial, placement)| (trial.event_hash, placement.clone())).collect()
    };
    let mut first = None;
    for (jobs, guess) in [(1, 1.0), (4, 1.0), (3, -1.0)] {
        // The guess affects the duration only.
        let found =
            trials(jobs).search(&space, &|placement| 2.0 + guess * (placement.parts.len() as f64 - 1.0));
        let best = found.best[0].0.seconds;
        assert!(found.tried > grid.len() && best <= all[0].0.seconds, "{best}: {:?}", all[0]);
        for (trial, number) in all.iter().filter(|(trial, _)| trial.seconds <= best * 1.03) {
            assert!(found.best.contains(&(*trial, grid[*number].clone())), "{trial:?}");
        }
        assert_eq!(&summary(&found), first.get_or_insert_with(|| summary(&found)));
    }
}
