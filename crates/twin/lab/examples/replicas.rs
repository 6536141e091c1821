//! Compares the alternatives for replicas on experiments: by the planner's model and on the twin.
//!
//! ```text
//! cargo run --release -p weft-lab --example replicas -- ceda-fig9 ceda-fig12 [--quick] [--seed=N] [--only=read]
//! ```

use weft_lab::experiment::by_name;
use weft_lab::judge_replicas::{JudgedAlternative, judge_replicas};

fn main() {
    let (flags, names): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    let value = |name: &str| flags.iter().find_map(|flag| flag.strip_prefix(&format!("--{name}=")));
    let seed = value("seed").map_or(1, |text| text.parse().expect("--seed takes a number"));
    let quick = flags.iter().any(|flag| flag == "--quick");
    for name in &names {
        let experiment = by_name(name).unwrap_or_else(|| panic!("there is no experiment {name}"));
        println!("{}: {}", experiment.name, experiment.title);
        judge_replicas(experiment, (quick, seed), value("only").unwrap_or(""), &mut show)
            .unwrap_or_else(|error| panic!("{error}"));
    }
}

fn show(name: &str, alternatives: &[JudgedAlternative]) {
    println!("\n{name}");
    for JudgedAlternative { kind, is_chosen, model_s, twin_s } in alternatives {
        let chosen = if *is_chosen { " chosen" } else { "" };
        println!(
            "  {kind:20} {model_s:9.3} s by the model {twin_s:9.3} s on the twin ({:.2}){chosen}",
            model_s / twin_s
        );
    }
}
