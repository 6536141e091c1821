//! Plans from figures that were measured on devices' models, tried on the twin.

use std::collections::BTreeMap;
use weft_estimate::{of_twin, traced, trial};
use weft_planner::plan::Options;
use weft_planner::{Figures, Placing, Planned, Planner};
use weft_twin::ClusterSpec;
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
fn planned(workload: &dyn Workload, cluster: &ClusterSpec, room: u64) -> (Figures, Planned) {
    let traced = traced(workload);
    let rooms = BTreeMap::from([("ssd".to_owned(), room)]);
    let figures = of_twin(cluster, &rooms, traced.units[0].extent).unwrap();
    let options = Options { parts_max: 2, ..Options::default() };
    let planned = weft_planner::plan(&traced, &figures, &options).unwrap();
    (figures, planned)
}

#[test]
fn random_reads_with_room_for_a_quarter_are_a_quarter_faster_than_under_any_planner_of_the_paper() {
    let cluster: ClusterSpec = toml::from_str(CLUSTER).unwrap();
    let workload = workload(
        "kind = \"ior\"\nranks = 16\ntransfer = \"512 KiB\"\nper_rank = \"32 MiB\"\norder = \"random\"\naccess = \"read\"",
    );
    let (figures, planned) = planned(&*workload, &cluster, 32 << 20);
    let seconds = |of: Planner| {
        let (_, placings) = planned.placings.iter().find(|(planner, _)| *planner == of).unwrap();
        let placing: &Placing = &placings[0];
        trial(&cluster, &figures, placing, &*workload, None).unwrap().seconds
    };
    let best = seconds(Planner::Best);
    for other in [Planner::Psa, Planner::Pa, Planner::Def] {
        let seconds = seconds(other);
        assert!(seconds > 1.25 * best, "{other}: {seconds} s, best: {best} s\n{}", planned.plan.to_toml());
    }
}
