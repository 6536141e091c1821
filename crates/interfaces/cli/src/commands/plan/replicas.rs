//! `weft plan --replicas`: which access patterns a replica would serve faster.

use super::cluster::Target;
use super::{PlanArgs, Surveyed, layout};
use crate::atomic_file::AtomicFile;
use crate::commands::trace::Input;
use crate::failure::Failure;
use crate::table::Table;
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use weft_core::units::human_bytes;
use weft_planner::plan::{Options, Planner, shape};
use weft_planner::replicas::{self, Alternative, Decision, Kind, Policy, ReplicaFile, ReplicaPlan};
use weft_planner::{ClassPlacement, Figures, TraceSummary};

/// Options of `--replicas`.
#[derive(Args)]
pub struct Replicas {
    /// Show which access patterns a replica would serve faster, instead of layouts
    #[arg(long, conflicts_with = "planner")]
    replicas: bool,
    /// Space that all replicas may take
    #[arg(long, value_name = "SIZE", requires = "replicas", value_parser = budget)]
    budget: Option<u64>,
    /// Rule: off, cida (every non-contiguous pattern), ceda (the paper's model), best (the planner's model)
    #[arg(long, value_name = "POLICY", requires = "replicas", default_value = "best", value_parser = policy)]
    policy: Policy,
}

fn budget(text: &str) -> Result<u64, String> {
    super::super::size(text).map(|size| size.0)
}

fn policy(text: &str) -> Result<Policy, String> {
    text.parse()
}

impl Replicas {
    /// Whether replicas are asked for.
    pub const fn is_wanted(&self) -> bool {
        self.replicas
    }

    /// Returns the options of the planner, with at most `parts_max` parts of a layout.
    pub fn options(&self, parts_max: usize) -> replicas::Options {
        let budget = self.budget.unwrap_or(u64::MAX);
        replicas::Options { policy: self.policy, budget, parts_max }
    }
}

impl PlanArgs {
    /// Prints what to do with each pattern. `mount` is the prefix of paths of Weft.
    pub(super) fn plan_replicas(
        &self,
        input: &Input,
        surveyed: &Surveyed,
        (target, mount): (&Target, Option<&Path>),
        output: Option<&AtomicFile>,
    ) -> Result<u8, Failure> {
        let trace = &input.file.display().to_string();
        let (traced, figures) = (&surveyed.traced, &target.figures);
        let failed = |why: String| Failure::new(trace, why);
        let options = Options { planner: Planner::Def, alternatives: false, ..Options::default() };
        let planned =
            weft_planner::plan(traced, figures, &options).map_err(|error| failed(error.to_string()))?;
        let originals = planned.placements.into_iter().next().map(|(_, placements)| placements);
        let mut originals = originals.unwrap_or_default();
        let present = target.in_force.as_ref().map(|in_force| in_force.layouts(surveyed, figures));
        for (original, present) in originals.iter_mut().zip(present.iter().flatten()) {
            *original = present.over_classes(figures);
        }
        let plan = replicas::decide(traced, figures, &originals, &self.replicas.options(self.parts))
            .map_err(|error| failed(error.to_string()))?;
        if let Some(output) = output {
            let file = replica_file(trace, &plan, surveyed, figures, mount).map_err(failed)?;
            output.write(file.to_toml().as_bytes())?;
            if output.is_stdout() {
                return Ok(0);
            }
        }
        if self.json {
            plan.decisions.iter().for_each(|decision| outln!("{}", as_json(decision, traced, figures)));
            return self.verify_plan(input, &plan, surveyed, target);
        }
        outln!(
            "{} requests of {} ranks at {}; policy {}; files in {}",
            traced.requests,
            traced.ranks,
            traced.level,
            plan.policy,
            match present {
                Some(_) => "their present layouts",
                None => "stripes of 64 KiB over all classes",
            }
        );
        surveyed.notes.iter().chain(&target.notes).for_each(|note| outln!("note: {note}"));
        let is_shown = |decision: &&Decision| self.explain || decision.chosen != Kind::Leave;
        for decision in plan.decisions.iter().filter(is_shown) {
            outln!();
            self.show_decision(decision, traced, figures);
        }
        let left = plan.decisions.iter().filter(|decision| !is_shown(decision)).count();
        match left {
            0 => {}
            1 => outln!("\n1 group of files is left as it is; --explain shows why"),
            _ => outln!("\n{left} groups of files are left as they are; --explain shows why"),
        }
        outln!();
        show_sum(&plan);
        if let Some(output) = output {
            let path = output.path().display();
            if plan.decisions.iter().any(|decision| decision.chosen.is_replica()) {
                outln!("the plan is in {path}; `weft replicate apply {path}` makes the replicas");
            } else {
                outln!("no replica is faster; the plan in {path} has none");
            }
        }
        self.verify_plan(input, &plan, surveyed, target)
    }

    /// Tries the alternatives if `--verify` asks for that, and returns the exit code.
    fn verify_plan(
        &self,
        input: &Input,
        plan: &ReplicaPlan,
        surveyed: &Surveyed,
        target: &Target,
    ) -> Result<u8, Failure> {
        if self.verify { self.verify_replicas(input, plan, surveyed, target) } else { Ok(0) }
    }

    fn show_decision(&self, decision: &Decision, traced: &TraceSummary, figures: &Figures) {
        let group = &traced.groups[decision.group];
        let files = if group.files == 1 { String::new() } else { format!(" ({} files)", group.files) };
        outln!(
            "{}{files}: {} read, {} written; {}",
            group.rule,
            human_bytes(group.read_bytes),
            human_bytes(group.written_bytes),
            shape(&group.pattern.shape)
        );
        outln!("  {}: {}", decision.chosen, decision.reason);
        if let Some(chosen) = decision.alternative(decision.chosen).filter(|one| one.copy_s > 0.0) {
            let runs = match chosen.pays_after(decision.now_s()) {
                Some(1) => "pays for its copy in the first run".to_owned(),
                Some(runs) => format!("pays for its copy after {runs} runs"),
                None => "never pays for its copy".to_owned(),
            };
            outln!(
                "  {:.3} s instead of {:.3} s each run, {} more; the copy takes {:.3} s: it {runs}",
                chosen.run_s(),
                decision.now_s(),
                human_bytes(chosen.bytes),
                chosen.copy_s
            );
        }
        if !self.explain {
            return;
        }
        if let Some(paper) = &decision.paper {
            outln!(
                "  the paper's model: {:.3} s in the file, {:.3} s in a replica by server",
                paper.original_ns / 1e9,
                paper.planned_ns / 1e9
            );
        }
        let mut table = Table::new([
            "  ",
            "ALTERNATIVE",
            "RUN, S",
            "COPY BACK, S",
            "COPY, S",
            "SPACE",
            "PAYS AFTER",
            "LAYOUT",
        ]);
        for alternative in &decision.alternatives {
            table.row([
                String::new(),
                alternative.kind.to_string(),
                format!("{:.3}", alternative.run_s()),
                format!("{:.3}", alternative.sync_s),
                format!("{:.3}", alternative.copy_s),
                human_bytes(alternative.bytes),
                pays(alternative, decision),
                layout(&alternative.placement.to_plan(figures)),
            ]);
        }
        out!("{}", table.render());
    }
}

/// Returns the replicas of a plan, one for each file.
fn replica_file(
    trace: &str,
    plan: &ReplicaPlan,
    surveyed: &Surveyed,
    figures: &Figures,
    mount: Option<&Path>,
) -> Result<ReplicaFile, String> {
    let mut out = ReplicaFile::new(trace, plan.policy.name());
    for decision in plan.decisions.iter().filter(|decision| decision.chosen.is_replica()) {
        let files: BTreeSet<u32> = decision.arrangement.objects().iter().map(|object| object.file).collect();
        for file in files {
            let Some(path) = surveyed.names.get(&file) else { continue };
            let is_of_weft = mount.is_some_and(|mount| Path::new(path).starts_with(mount));
            let figures = is_of_weft.then_some(figures);
            let replica = decision.planned_replica(file, path, surveyed.traced.ranks, figures);
            out.replicas.extend(replica.map_err(|error| format!("{path}: {error}"))?);
        }
    }
    Ok(out)
}

fn pays(alternative: &Alternative, decision: &Decision) -> String {
    match alternative.pays_after(decision.now_s()) {
        _ if alternative.kind == Kind::Leave => "-".to_owned(),
        Some(1) => "1 run".to_owned(),
        Some(runs) => format!("{runs} runs"),
        None => "never".to_owned(),
    }
}

fn show_sum(plan: &ReplicaPlan) {
    let sum = |seconds: fn(&Decision) -> f64| plan.decisions.iter().map(seconds).sum::<f64>();
    let replicas = plan.decisions.iter().filter(|decision| decision.chosen.is_replica()).count();
    let replicas = if replicas == 1 { "1 replica".to_owned() } else { format!("{replicas} replicas") };
    outln!(
        "{replicas} of {}; all patterns, one after another: {:.3} s instead of {:.3} s by the planner's model",
        human_bytes(plan.bytes),
        sum(Decision::chosen_s),
        sum(Decision::now_s)
    );
}

fn as_json(decision: &Decision, traced: &TraceSummary, figures: &Figures) -> Value {
    let placement = |placement: &ClassPlacement| layout(&placement.to_plan(figures));
    let alternative = |one: &Alternative| {
        json!({
            "what": one.kind.name(),
            "run_s": one.run_s(),
            "copy_back_s": one.sync_s,
            "copy_s": one.copy_s,
            "bytes": one.bytes,
            "pays_after_runs": one.pays_after(decision.now_s()),
            "layout": placement(&one.placement),
        })
    };
    json!({
        "path": traced.groups[decision.group].rule.to_string(),
        "chosen": decision.chosen.name(),
        "reason": decision.reason,
        "paper_original_s": decision.paper.map(|paper| paper.original_ns / 1e9),
        "paper_replica_s": decision.paper.map(|paper| paper.planned_ns / 1e9),
        "alternatives": decision.alternatives.iter().map(alternative).collect::<Vec<_>>(),
    })
}
