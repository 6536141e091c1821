//! `weft plan --replicas --verify`: tries each alternative for a pattern on the twin.

use super::cluster::Target;
use super::verify::{EQUAL_WITHIN, bar};
use super::{PlanArgs, Surveyed};
use crate::commands::trace::Input;
use crate::failure::{FAILED, Failure};
use crate::table::Table;
use serde_json::json;
use std::collections::BTreeSet;
use weft_core::units::human_bytes;
use weft_estimate::{RedirectedWorkload, WorkloadSlice, trial};
use weft_planner::replicas::{Alternative, Decision, ReplicaPlan};
use weft_trace::prepared::{Prepared, Timing, TraceWorkload};

/// An alternative with its time on the twin.
struct Trial<'a> {
    of: &'a Alternative,
    /// Seconds of a run without copies, or why the trial failed.
    seconds: Result<f64, String>,
}

impl PlanArgs {
    /// Tries the alternatives of all patterns and returns the exit code.
    pub(super) fn verify_replicas(
        &self,
        input: &Input,
        plan: &ReplicaPlan,
        surveyed: &Surveyed,
        target: &Target,
    ) -> Result<u8, Failure> {
        let prepared = self.prepare(input, None)?;
        let (mut wrong, mut checked, mut failed) = (0, 0, 0);
        for decision in plan.decisions.iter().filter(|decision| !decision.alternatives.is_empty()) {
            let group = &surveyed.traced.groups[decision.group];
            let rule = group.rule.to_string();
            let mut numbers: Vec<u32> =
                decision.arrangement.objects().iter().map(|object| object.file).collect();
            numbers.sort_unstable();
            numbers.dedup();
            let [number] = numbers[..] else {
                if !self.json {
                    outln!(
                        "\non the twin, {rule}: not tried, because the pattern has {} files",
                        numbers.len()
                    );
                }
                continue;
            };
            let name = surveyed.names.get(&number);
            let facts = prepared.facts.files.iter().zip(0u32..);
            let files: BTreeSet<u32> =
                facts.filter(|(file, _)| Some(&file.name) == name).map(|(_, number)| number).collect();
            let requests = group.reads + group.writes;
            if requests > self.requests_max() {
                // A part of them would interrupt sequential reads, which then take longer.
                if !self.json {
                    outln!(
                        "\non the twin, {rule}: not tried, because it has {requests} requests; --verify-requests 0 tries them"
                    );
                }
                continue;
            }
            let (tried, moved) = self.try_pattern(decision, &files, target, &prepared)?;
            let verdict = verdict(&tried, decision);
            wrong += usize::from(verdict.is_some());
            checked += usize::from(tried.iter().any(|one| one.seconds.is_ok()));
            failed += usize::from(tried.iter().all(|one| one.seconds.is_err()));
            match self.json {
                true => tried.iter().for_each(|one| outln!("{}", as_json(&rule, one, decision))),
                false => {
                    outln!("\non the twin, {rule}, {moved}:");
                    as_text(&tried, decision);
                    verdict.iter().for_each(|verdict| outln!("  {verdict}"));
                }
            }
        }
        if !self.json {
            match (checked, wrong) {
                (0, _) => outln!("\nno pattern could be tried"),
                (1, 0) => outln!("\nthe choice was right for the one pattern that could be tried"),
                (_, 0) => outln!("\nthe choice was right for all {checked} patterns that could be tried"),
                (_, 1) => outln!("\none choice was wrong"),
                (_, wrong) => outln!("\n{wrong} choices were wrong"),
            }
        }
        Ok(if failed > 0 { FAILED } else { 0 })
    }

    /// Tries the alternatives for one file. Also returns what was tried, in words.
    fn try_pattern<'a>(
        &self,
        decision: &'a Decision,
        files: &BTreeSet<u32>,
        target: &Target,
        prepared: &Prepared,
    ) -> Result<(Vec<Trial<'a>>, String), Failure> {
        let cluster = target.twin()?;
        let (mut tried, mut moved) = (Vec::new(), String::new());
        for alternative in &decision.alternatives {
            let workload = TraceWorkload::new(prepared, Timing::Fast);
            let all = WorkloadSlice::new(&workload, Some(files.clone()), u64::MAX);
            let progress = bar(all.kept().requests, decision.alternatives.len());
            let tell = |count| progress.inc(count);
            let part = all.with_progress(&tell);
            moved = format!("{} requests, {}", part.all().requests, human_bytes(part.all().bytes));
            let (figures, placement) = (&target.figures, &alternative.placement);
            let outcome = match alternative.kind.is_replica() {
                false => trial(cluster, figures, placement, &part, None),
                true => {
                    let (arrangement, starts) = (decision.arrangement.clone(), alternative.starts.clone());
                    let redirected = RedirectedWorkload::new(&part, arrangement, starts);
                    trial(cluster, figures, placement, &redirected, None)
                }
            };
            progress.finish_and_clear();
            let seconds = outcome.map(|trial| trial.seconds).map_err(|error| error.to_string());
            workload.finish()?;
            tried.push(Trial { of: alternative, seconds });
        }
        Ok((tried, moved))
    }
}

/// Returns what is wrong with the choice, if another alternative is clearly faster on the twin. Copies count by the model.
fn verdict(tried: &[Trial<'_>], decision: &Decision) -> Option<String> {
    let run_s = |one: &Trial<'_>| one.seconds.as_ref().ok().map(|seconds| seconds + one.of.sync_s);
    let chosen = tried.iter().find(|one| one.of.kind == decision.chosen).and_then(run_s)?;
    let others = tried.iter().filter_map(|one| Some((one.of.kind, run_s(one)?)));
    let (kind, fastest) = others.min_by(|a, b| a.1.total_cmp(&b.1))?;
    (chosen > fastest * (1.0 + EQUAL_WITHIN)).then(|| {
        let by = 100.0 * (chosen / fastest.max(1e-12) - 1.0);
        format!("wrong: {} is {by:.0} % slower than {kind} on the twin", decision.chosen)
    })
}

fn as_text(tried: &[Trial<'_>], decision: &Decision) {
    let mut table = Table::new(["  ", "ALTERNATIVE", "MODEL S", "TWIN S", "MODEL/TWIN", ""]);
    for one in tried {
        let (twin, ratio, mut note) = match &one.seconds {
            Ok(twin) => {
                let ratio = one.of.requests_s / twin.max(1e-9);
                (format!("{twin:.3}"), format!("{ratio:.2}"), String::new())
            }
            Err(why) => ("-".to_owned(), "-".to_owned(), why.clone()),
        };
        if one.of.kind == decision.chosen {
            note = format!("chosen {note}").trim_end().to_owned();
        }
        let model = format!("{:.3}", one.of.requests_s);
        table.row([String::new(), one.of.kind.to_string(), model, twin, ratio, note]);
    }
    out!("{}", table.render());
}

fn as_json(rule: &str, one: &Trial<'_>, decision: &Decision) -> serde_json::Value {
    json!({
        "path": rule,
        "what": one.of.kind.name(),
        "chosen": one.of.kind == decision.chosen,
        "model_s": one.of.requests_s,
        "twin_s": one.seconds.as_ref().ok(),
        "copy_back_s": one.of.sync_s,
        "why_not": one.seconds.as_ref().err(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_planner::ClassPlacement;
    use weft_planner::replicas::{Arrangement, Kind};

    #[test]
    fn a_choice_is_wrong_if_another_alternative_is_clearly_faster_with_its_copies() {
        let alternative = |kind, sync_s| Alternative {
            kind,
            requests_s: 1.0,
            sync_s,
            copy_s: 0.0,
            bytes: 0,
            placement: ClassPlacement::whole(vec![65_536]),
            starts: Vec::new(),
        };
        let all = [
            alternative(Kind::Leave, 0.0),
            alternative(Kind::ByServer, 5.0),
            alternative(Kind::OwnLayout, 0.0),
        ];
        let decision = Decision {
            group: 0,
            alternatives: Vec::new(),
            chosen: Kind::OwnLayout,
            reason: String::new(),
            paper: None,
            arrangement: Arrangement::default(),
        };
        let of = |seconds: [Result<f64, String>; 3]| {
            let tried =
                all.iter().zip(seconds).map(|(of, seconds)| Trial { of, seconds }).collect::<Vec<_>>();
            verdict(&tried, &decision)
        };
        assert_eq!(of([Ok(10.0), Ok(1.0), Ok(2.0)]), None, "its copy takes 5 s");
        assert_eq!(of([Ok(1.99), Ok(9.0), Ok(2.0)]), None, "equal");
        let wrong = of([Ok(1.0), Ok(9.0), Ok(2.0)]).expect("wrong");
        assert!(wrong.contains("replica, own layout is 100 % slower than leave"), "{wrong}");
        assert_eq!(of([Ok(1.0), Ok(1.0), Err("no space".to_owned())]), None, "not tried");
    }
}
