//! Gain of an SSD beside each disk of a class: the same workload on the twin without and with it.

use weft_core::Module;
use weft_core::ibridge::Policy;
use weft_twin::{ClusterSpec, IbridgeSpec, RunError, RunOptions, TargetSpec};
use weft_workload::Workload;

/// Policies of the SSD that are tried: the paper's and Weft's.
pub const SSD_POLICIES: [Policy; 2] = [Policy::Ibridge, Policy::DETOUR];
/// I/O modules of the disks that are tried: the page cache decides whether small writes reach the disk one by one.
pub const SSD_MODULES: [Module; 2] = [Module::Buffered, Module::Direct];

/// Virtual seconds of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RunSeconds {
    /// Until the program ended.
    pub program: f64,
    /// Until all bytes that the program wrote were on the disks.
    pub on_disks: f64,
}

impl RunSeconds {
    /// Returns the times multiplied by `factor`, such as the [weight](crate::WorkloadSlice::weight) of a slice.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        Self { program: self.program * factor, on_disks: self.on_disks * factor }
    }

    /// Returns how many times as long this run took as `other`, until the program ended and until its bytes were on the
    /// disks. A run in no time counts as a nanosecond.
    pub fn ratios(self, other: Self) -> (f64, f64) {
        let ratio = |a: f64, b: f64| a.max(1e-9) / b.max(1e-9);
        (ratio(self.program, other.program), ratio(self.on_disks, other.on_disks))
    }
}

/// Returns the cluster with an SSD of profile `ssd` beside each target of `class`, or with `Policy::Off` without one.
/// The targets of the class use `module`. SSDs that these targets have already are replaced.
#[must_use]
pub fn with_ssds(
    cluster: &ClusterSpec,
    class: &str,
    module: Module,
    ssd: &str,
    policy: Policy,
) -> ClusterSpec {
    let mut cluster = cluster.clone();
    let targets = cluster.servers.iter_mut().flat_map(|server| &mut server.targets);
    for target in targets.filter(|target| target.class == class) {
        let ibridge = IbridgeSpec { profile: ssd.to_owned(), policy, ..IbridgeSpec::default() };
        *target = TargetSpec { module, ibridge: Some(ibridge), cache: None, ..target.clone() };
    }
    cluster
}

/// Runs the workload `passes` times on the same files, and returns the times of the last run. The page caches of the
/// servers are empty at its start. Two calls whose clusters differ in `policy` of [`with_ssds`] only are comparable:
/// they use the same random numbers and the same places on the disks.
///
/// # Errors
/// The first failure of the run.
pub fn run_seconds(
    cluster: &ClusterSpec,
    workload: &dyn Workload,
    passes: u32,
) -> Result<RunSeconds, RunError> {
    let options = RunOptions { passes, drain: true, paired: true, ..RunOptions::default() };
    let outcome = weft_twin::run_with(cluster, workload, options)?;
    let seconds = |nanos: weft_core::Nanos| nanos.get() as f64 / 1e9;
    let program = outcome.elapsed.saturating_sub(outcome.drain);
    Ok(RunSeconds { program: seconds(program), on_disks: seconds(outcome.elapsed) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_workload::WorkloadSpec;

    /// Servers with a disk and an SSD each; files are on the disks.
    fn cluster(disk: &str) -> ClusterSpec {
        let text = "network = \"gbe\"\n[[servers]]\ncount = 2\n\
                    targets = [{ class = \"hdd\", profile = \"DISK\" }, { class = \"ssd\", profile = \"sata-ssd\" }]\n\
                    [layout]\nclass = \"hdd\"";
        toml::from_str(&text.replace("DISK", disk)).expect("a cluster")
    }

    fn workload(text: &str) -> Box<dyn Workload> {
        toml::from_str::<WorkloadSpec>(text).expect("valid").build().expect("a workload")
    }

    /// Returns the ratios without / with SSDs of a workload.
    fn gain(disk: &str, text: &str, module: Module, policy: Policy) -> (f64, f64) {
        let workload = workload(text);
        let seconds = |policy| {
            let cluster = with_ssds(&cluster(disk), "hdd", module, "sata-ssd", policy);
            run_seconds(&cluster, &*workload, 1).expect("it runs")
        };
        seconds(Policy::Off).ratios(seconds(policy))
    }

    const RANDOM: &str = "kind = \"ior\"\nranks = 8\ntransfer = 4096\nper_rank = \"256 KiB\"\norder = \"random\"\n\
                          access = \"write\"";

    #[test]
    fn only_targets_of_the_class_get_ssds() {
        let with = with_ssds(&cluster("hdd-7200"), "hdd", Module::Direct, "nvme", Policy::DETOUR);
        with.check().expect("valid");
        let [hdd, ssd] = &with.servers[0].targets[..] else { panic!("two targets") };
        let ibridge = hdd.ibridge.as_ref().expect("an SSD");
        assert_eq!((&ibridge.profile[..], ibridge.policy), ("nvme", Policy::DETOUR));
        assert_eq!(hdd.module, Module::Direct);
        assert_eq!(*ssd, cluster("hdd-7200").servers[0].targets[1]);
    }

    #[test]
    fn small_random_writes_to_a_disk_without_write_cache_gain() {
        for policy in SSD_POLICIES {
            let (program, on_disks) = gain("ibridge-hdd", RANDOM, Module::Direct, policy);
            assert!(on_disks > 1.2, "{policy}: {on_disks}");
            assert!(program > on_disks, "{policy}: {program} is not above {on_disks}");
        }
    }

    #[test]
    fn a_write_cache_leaves_less_to_gain() {
        let (program, _) = gain("hdd-7200", RANDOM, Module::Direct, Policy::DETOUR);
        assert!((0.9..1.1).contains(&program), "{program}");
    }

    #[test]
    fn aligned_sequential_writes_gain_nothing() {
        let sequential =
            "kind = \"ior\"\nranks = 1\ntransfer = \"1 MiB\"\nper_rank = \"64 MiB\"\naccess = \"write\"";
        for (module, policy) in SSD_MODULES.into_iter().zip(SSD_POLICIES) {
            let (program, on_disks) = gain("ibridge-hdd", sequential, module, policy);
            assert!((0.9..1.1).contains(&program), "{module:?} {policy}: {program}");
            assert!((0.9..1.1).contains(&on_disks), "{module:?} {policy}: {on_disks}");
        }
    }

    #[test]
    fn a_sync_is_included_in_the_time_on_disks() {
        let written = workload(
            "kind = \"ior\"\nranks = 2\ntransfer = \"64 KiB\"\nper_rank = \"1 MiB\"\naccess = \"write\"",
        );
        let seconds = run_seconds(&cluster("hdd-7200"), &*written, 1).expect("it runs");
        assert!(seconds.on_disks > seconds.program && seconds.program > 0.0, "{seconds:?}");
        let (program, on_disks) = seconds.scaled(2.0).ratios(seconds);
        assert!((program - 2.0).abs() < 1e-9 && (on_disks - 2.0).abs() < 1e-9, "{program} {on_disks}");
    }
}
