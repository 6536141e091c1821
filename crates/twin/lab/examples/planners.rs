//! Compares the planners on an experiment: by their model, on the twin, and with an exhaustive search.
//!
//! ```text
//! cargo run --release -p weft-lab --example planners -- psa-fig12 my.toml [--quick] [--exhaustive] [--seed=N] [--others=N] [--jobs=N]
//! ```

use weft_lab::experiment::{Experiment, by_name};
use weft_lab::judge::{JudgeOptions, JudgedLayout, JudgedPoint, judge};
use weft_lab::planned::LayoutSet;

fn main() {
    let (flags, names): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    let number = |name: &str, or: u64| {
        let given = flags.iter().find_map(|flag| flag.strip_prefix(&format!("--{name}=")));
        given.map_or(or, |text| text.parse().unwrap_or_else(|_| panic!("--{name}: {text:?} is not a number")))
    };
    let has = |name: &str| flags.iter().any(|flag| flag == name);
    let tried =
        has("--exhaustive").then_some(LayoutSet::Exhaustive).or(has("--fixed").then_some(LayoutSet::Fixed));
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let options = JudgeOptions {
        quick: has("--quick"),
        layouts: tried,
        seed: number("seed", 1),
        other_seeds: number("others", 4),
        jobs: number("jobs", cores) as usize,
    };
    let shown = number("show", 3) as usize;
    for name in &names {
        let experiment = match by_name(name) {
            Some(experiment) => experiment.clone(),
            None => read(name),
        };
        println!("{}: {}", experiment.name, experiment.title);
        let result = judge(&experiment, options, &mut |place| show(place, shown));
        result.unwrap_or_else(|error| panic!("{error}"));
    }
}

fn read(path: &str) -> Experiment {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    Experiment::parse(path, &text).unwrap_or_else(|error| panic!("{error}"))
}

fn show(place: &JudgedPoint, shown: usize) {
    let twin = |of: &JudgedLayout| of.twin_s;
    let best = &place.planners[0];
    let other = place.planners[1..].iter().map(twin).fold(f64::INFINITY, f64::min);
    println!(
        "\n{}: best over the best of DEF, PA and PSA {:.3}; confidence {:.2}",
        place.name,
        other / best.twin_s,
        place.confidence
    );
    if let Some((same, others)) = place.found_over_best() {
        println!(
            "  of {} layouts the best takes {same:.3} of best, {others:.3} as the mean of other seeds; {} within 3 %",
            place.tried,
            place.found.len()
        );
    }
    for one in place.planners.iter().chain(place.found.iter().take(shown)) {
        println!(
            "  {:>5} {:9.4} s by the model {:9.4} s on the twin ({:.2}){}  {}",
            one.planner,
            one.model_s,
            one.twin_s,
            one.model_s / one.twin_s,
            one.mean_s.map_or_else(String::new, |mean| format!(", mean {mean:.4} s")),
            one.layout
        );
    }
}
