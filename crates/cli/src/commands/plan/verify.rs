//! `weft plan --verify`: each alternative tried on the twin.

use super::PlanArgs;
use super::cluster::Target;
use crate::failure::Failure;
use crate::table::Table;
use serde_json::json;
use std::collections::BTreeSet;
use weft_estimate::trial;
use weft_planner::Placing;
use weft_planner::plan::{Alternative, Planned};
use weft_trace::prepared::{self, Prepared, Timing, TraceWorkload};

/// Times that differ by less are equal.
const EQUAL: f64 = 0.02;

/// A layout and its times.
struct Tried<'a> {
    of: &'a Alternative,
    /// On the twin, or why not.
    seconds: Result<f64, String>,
}

impl PlanArgs {
    /// Tries all; the code to end with.
    pub(super) fn verify(&self, planned: &Planned, target: &Target) -> Result<u8, Failure> {
        let Some(cluster) = &target.twin else {
            return Err(Failure::misuse("--verify", "figures alone make no cluster")
                .remedy("plan for a cluster of the twin or a cluster file"));
        };
        let options = prepared::Options {
            level: self.level(),
            only: self.only.clone(),
            without: self.without.clone(),
            ..prepared::Options::default()
        };
        let mut stream = self.input.open()?;
        let prepared = Prepared::new(&self.input.file, &mut *stream, &options, |_| {})?;
        let plan = &planned.plan;
        let mut wrong = 0;
        let mut told = 0;
        for rule in &plan.rules {
            let files: BTreeSet<u32> = prepared
                .facts
                .files
                .iter()
                .enumerate()
                .filter(|(_, file)| plan.rule(&file.name).is_some_and(|of| of.path == rule.path))
                .map(|(number, _)| number as u32)
                .collect();
            let mut tried: Vec<Tried<'_>> = Vec::new();
            for of in &rule.alternatives {
                let same = tried.iter().find(|before| before.of.layout == of.layout);
                let seconds = match same {
                    Some(same) => same.seconds.clone(),
                    None => {
                        let placing = Placing::read(&of.layout, &target.figures)
                            .map_err(|why| Failure::new(&rule.path, why))?;
                        let workload = TraceWorkload::new(&prepared, Timing::Fast);
                        let outcome = trial(cluster, &target.figures, &placing, &workload, Some(&files));
                        workload.whole()?;
                        outcome.map(|trial| trial.seconds).map_err(|error| error.to_string())
                    }
                };
                tried.push(Tried { of, seconds });
            }
            let verdicts = verdicts(&tried);
            wrong += verdicts.len();
            told += 1;
            if self.json {
                for one in &tried {
                    outln!(
                        "{}",
                        json!({
                            "path": rule.path.0,
                            "planner": one.of.planner,
                            "model_s": one.of.seconds,
                            "twin_s": one.seconds.as_ref().ok(),
                            "why_not": one.seconds.as_ref().err(),
                        })
                    );
                }
                continue;
            }
            outln!("\non the twin, {}:", crate::commands::shown(&rule.path.0));
            let mut table = Table::new(["  ", "PLANNER", "MODEL S", "TWIN S", "MODEL/TWIN", ""]);
            for one in &tried {
                let (twin, ratio, note) = match &one.seconds {
                    Ok(twin) => (
                        format!("{twin:.3}"),
                        format!("{:.2}", one.of.seconds / twin.max(1e-9)),
                        String::new(),
                    ),
                    Err(why) => ("-".to_owned(), "-".to_owned(), why.clone()),
                };
                let model = format!("{:.3}", one.of.seconds);
                table.row([String::new(), one.of.planner.to_string(), model, twin, ratio, note]);
            }
            out!("{}", table.render());
            for verdict in &verdicts {
                outln!("  {verdict}");
            }
            if verdicts.is_empty() {
                outln!("  the model ranked them as the twin does");
            }
        }
        if !self.json {
            match wrong {
                0 => outln!("\nthe model's ranking was right for all {told} rules"),
                wrong => outln!("\nthe model ranked {wrong} pairs wrongly"),
            }
        }
        Ok(0)
    }
}

/// Pairs that the model put the wrong way round: clearly different in one, and in the other the other way.
fn verdicts(tried: &[Tried<'_>]) -> Vec<String> {
    let mut found = Vec::new();
    for (number, a) in tried.iter().enumerate() {
        for b in &tried[number + 1..] {
            let (Ok(twin_a), Ok(twin_b)) = (&a.seconds, &b.seconds) else { continue };
            let model = a.of.seconds / b.of.seconds.max(1e-12);
            let twin = twin_a / twin_b.max(1e-12);
            let (model_first, twin_first) = (model < 1.0, twin < 1.0);
            let clear = |ratio: f64| (ratio - 1.0).abs() > EQUAL;
            if clear(twin) && clear(model) && model_first != twin_first {
                let (first, second) = if twin_first { (a, b) } else { (b, a) };
                let by = 100.0 * (twin.max(1.0 / twin) - 1.0);
                found.push(format!(
                    "wrong: {} is {by:.0} % slower than {} on the twin; the model had it the other way round",
                    second.of.planner, first.of.planner
                ));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use weft_planner::Planner;

    #[test]
    fn only_clear_differences_the_other_way_round_are_wrong() {
        let of = |planner, seconds| Alternative {
            planner,
            seconds,
            cost: None,
            busy: BTreeMap::new(),
            spread: 1.0,
            layout: Vec::new(),
        };
        let all =
            [of(Planner::Best, 1.0), of(Planner::Psa, 1.5), of(Planner::Pa, 1.51), of(Planner::Def, 2.0)];
        let tried = |seconds: [f64; 4]| {
            verdicts(&all.iter().zip(seconds).map(|(of, s)| Tried { of, seconds: Ok(s) }).collect::<Vec<_>>())
        };
        assert!(tried([10.0, 15.0, 14.0, 16.0]).is_empty());
        assert!(tried([10.0, 10.1, 10.0, 9.95]).is_empty());
        let wrong = tried([20.0, 15.0, 25.0, 30.0]);
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        assert!(wrong[0].contains("best is 33 % slower than psa"), "{wrong:?}");
    }
}
