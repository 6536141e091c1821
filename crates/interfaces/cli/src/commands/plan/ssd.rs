//! `weft plan --ssd`: what an SSD beside each disk would gain, on the twin.

use super::cluster::{Target, add_profile};
use super::verify::{bar, concurrently};
use super::{PlanArgs, Surveyed};
use crate::commands::trace::Input;
use crate::failure::{FAILED, Failure};
use crate::table::Table;
use indicatif::ProgressBar;
use serde_json::json;
use weft_core::Module;
use weft_core::ibridge::Policy;
use weft_core::units::human_bytes;
use weft_estimate::{RunSeconds, SSD_MODULES, SSD_POLICIES, WorkloadSlice, run_seconds, with_ssds};
use weft_models::Profile;
use weft_trace::prepared::{Prepared, Timing, TraceWorkload};
use weft_twin::{ClusterSpec, IbridgeSpec};
use weft_workload::Workload;

/// A class whose targets are disks.
struct DiskClass {
    name: String,
    profile: String,
}

/// A run: the class that has SSDs, the I/O module of its targets, and the policy of the SSDs.
#[derive(Clone, Copy)]
struct Job<'a> {
    class: &'a DiskClass,
    module: Module,
    policy: Policy,
}

/// Times of a run, or why it failed.
type Outcome = Result<RunSeconds, String>;

impl PlanArgs {
    /// Tries the SSDs and returns the exit code. `ssd` is the name or the file of their profile.
    pub(super) fn plan_ssd(
        &self,
        input: &Input,
        surveyed: &Surveyed,
        target: &Target,
        ssd: &str,
    ) -> Result<u8, Failure> {
        let (mut cluster, mut notes) = target.twin_or_usual()?;
        add_profile(&mut cluster, ssd)?;
        if profile(&cluster, ssd).map_err(|why| Failure::misuse("--ssd", why))?.ssd.is_none() {
            return Err(
                Failure::misuse("--ssd", format!("{ssd} is a disk")).remedy("name an SSD, such as sata-ssd")
            );
        }
        let classes = disks(&cluster);
        if classes.is_empty() {
            return Err(Failure::misuse("--ssd", "no class of the cluster is a disk")
                .remedy("`weft plan --profile CLASS=hdd-7200` names the disk of a class of a cluster file"));
        }
        let prepared = self.prepare(input, None)?;
        let workload = TraceWorkload::new(&prepared, Timing::Fast);
        let part = WorkloadSlice::new(&workload, None, self.requests_max());
        let reads_inputs = surveyed.traced.groups.iter().any(|group| group.read_bytes > 0)
            && workload.inputs().next().is_some();
        let (kept, all, passes) = (part.kept(), part.all(), if reads_inputs { 2 } else { 1 });
        workload.finish()?;
        if reads_inputs {
            notes.push(
                "the second run on the same files is measured, because the SSDs are empty in the first"
                    .into(),
            );
        }
        if kept != all {
            notes.push(format!(
                "{} of {} requests are replayed, the same windows of each rank; times are scaled up to all",
                kept.requests, all.requests
            ));
        }
        let policies = || [Policy::Off].into_iter().chain(SSD_POLICIES);
        let jobs: Vec<Job<'_>> = classes
            .iter()
            .flat_map(|class| SSD_MODULES.map(|module| (class, module)))
            .flat_map(|(class, module)| policies().map(move |policy| Job { class, module, policy }))
            .collect();
        let progress = bar(kept.requests * u64::from(passes) * jobs.len() as u64, jobs.len());
        let outcomes = self.runs(&jobs, &cluster, &prepared, (ssd, passes), &progress);
        progress.finish_and_clear();
        let outcomes = outcomes?;
        if !self.json {
            let traced = &surveyed.traced;
            outln!(
                "{} requests of {} ranks at {}; an SSD ({ssd}, {}) beside each disk, on the twin",
                traced.requests,
                traced.ranks,
                traced.level,
                human_bytes(IbridgeSpec::default().size.0)
            );
            let of_file = surveyed.notes.iter().chain(&target.notes);
            of_file.chain(&notes).for_each(|note| outln!("note: {note}"));
        }
        // Each run without SSDs precedes those with them.
        let per_disk = 1 + SSD_POLICIES.len();
        let rows: Vec<(Job<'_>, &Outcome, &Outcome)> = jobs
            .chunks(per_disk)
            .zip(outcomes.chunks(per_disk))
            .flat_map(|(jobs, outcomes)| {
                jobs.iter().zip(outcomes).skip(1).map(|(job, with)| (*job, &outcomes[0], with))
            })
            .collect();
        if self.json {
            let counts =
                json!({ "ssd": ssd, "runs": passes, "requests": kept.requests, "of_requests": all.requests });
            rows.iter().for_each(|row| outln!("{}", as_json(row, &counts)));
        } else {
            as_text(&rows);
        }
        Ok(if outcomes.iter().any(Result::is_err) { FAILED } else { 0 })
    }

    /// Returns the times of all runs, scaled up to the whole trace.
    fn runs(
        &self,
        jobs: &[Job<'_>],
        cluster: &ClusterSpec,
        prepared: &Prepared,
        (ssd, passes): (&str, u32),
        progress: &ProgressBar,
    ) -> Result<Vec<Outcome>, Failure> {
        let tell = |count| progress.inc(count);
        let outcomes = concurrently(jobs.len(), |number| {
            let Job { class, module, policy } = jobs[number];
            let workload = TraceWorkload::new(prepared, Timing::Fast);
            let part = WorkloadSlice::new(&workload, None, self.requests_max()).with_progress(&tell);
            let cluster = with_ssds(cluster, &class.name, module, ssd, policy);
            let outcome = run_seconds(&cluster, &part, passes).map(|seconds| seconds.scaled(part.weight()));
            workload.finish()?;
            Ok(outcome.map_err(|error| error.to_string()))
        });
        outcomes.into_iter().collect()
    }
}

/// Returns the name of a policy in the cluster file, without the default values of its parameters.
fn policy_name(policy: Policy) -> String {
    if policy == Policy::DETOUR { "detour".to_owned() } else { policy.to_string() }
}

/// Returns a profile of the cluster's own or a built-in one.
fn profile(cluster: &ClusterSpec, name: &str) -> Result<Profile, String> {
    let own = cluster.profiles.iter().find(|own| own.name == name).cloned();
    own.map_or_else(|| Profile::by_name(name).map_err(|error| error.to_string()), Ok)
}

/// Returns the classes whose targets are disks, in the order of the cluster.
fn disks(cluster: &ClusterSpec) -> Vec<DiskClass> {
    let mut classes: Vec<DiskClass> = Vec::new();
    for target in cluster.data_servers().flat_map(|server| &server.targets) {
        let is_disk = profile(cluster, &target.profile).is_ok_and(|profile| profile.hdd.is_some());
        if is_disk && !classes.iter().any(|class| class.name == target.class) {
            classes.push(DiskClass { name: target.class.clone(), profile: target.profile.clone() });
        }
    }
    classes
}

fn as_json(
    (job, without, with): &(Job<'_>, &Outcome, &Outcome),
    counts: &serde_json::Value,
) -> serde_json::Value {
    let gains = without.as_ref().ok().zip(with.as_ref().ok()).map(|(without, with)| without.ratios(*with));
    let run_s = |outcome: &Outcome| outcome.as_ref().ok().map(|seconds| seconds.program);
    let on_disks_s = |outcome: &Outcome| outcome.as_ref().ok().map(|seconds| seconds.on_disks);
    let mut row = json!({
        "class": job.class.name,
        "profile": job.class.profile,
        "module": job.module.name(),
        "policy": policy_name(job.policy),
        "without_s": run_s(without),
        "with_s": run_s(with),
        "gain": gains.map(|gains| gains.0),
        "without_on_disks_s": on_disks_s(without),
        "with_on_disks_s": on_disks_s(with),
        "gain_with_write_back": gains.map(|gains| gains.1),
        "why_not": without.as_ref().err().or(with.as_ref().err()),
    });
    if let (Some(row), Some(counts)) = (row.as_object_mut(), counts.as_object()) {
        row.extend(counts.clone());
    }
    row
}

fn as_text(rows: &[(Job<'_>, &Outcome, &Outcome)]) {
    let head = [
        "  ",
        "CLASS",
        "DISK",
        "MODULE",
        "POLICY",
        "WITHOUT S",
        "WITH S",
        "GAIN",
        "WITHOUT+WB S",
        "WITH+WB S",
        "GAIN+WB",
        "",
    ];
    let mut table = Table::new(head);
    for (job, without, with) in rows {
        let outcome = without.as_ref().and_then(|without| with.as_ref().map(|with| (without, with)));
        let (numbers, note) = match outcome {
            Ok((without, with)) => {
                let (gain, with_write_back) = without.ratios(*with);
                let seconds = [without.program, with.program, without.on_disks, with.on_disks];
                let [a, b, c, d] = seconds.map(|seconds| format!("{seconds:.3}"));
                ([a, b, format!("{gain:.2}"), c, d, format!("{with_write_back:.2}")], String::new())
            }
            Err(why) => (std::array::from_fn(|_| "-".to_owned()), why.clone()),
        };
        let [a, b, gain, c, d, with_write_back] = numbers;
        let (class, disk) = (job.class.name.clone(), job.class.profile.clone());
        let (module, policy) = (job.module.name().to_owned(), policy_name(job.policy));
        table.row([String::new(), class, disk, module, policy, a, b, gain, c, d, with_write_back, note]);
    }
    out!("{}", table.render());
    outln!(
        "without and with SSDs: seconds until the program ends; +WB: until its bytes are on the disks as well"
    );
}
