//! Runs the same work on every arm in each round, and computes the result rows.

use crate::arm::Arm;
use crate::context::{Context, ServerLoad, flush};
use crate::rank::{FileAccess, Task};
use crate::ranks::{Outcome, Outcomes, Ranks};
use crate::report::{Against, Row, median, table_head, table_row};
use crate::run::{BenchArgs, Interface, Pattern, Transport};
use crate::work_dir::WorkDir;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use weft_core::Integrity;
use weft_workload::{Access, Ior, IorLayout, MdPhase, Mdtest, Size, SyncWhen, WorkloadSpec};

/// A benchmark: its arms and its output.
pub struct Bench<'a, W: Write> {
    args: &'a BenchArgs,
    ranks: u32,
    context: Option<&'a Context>,
    /// The control, the measured arm, and further measured arms (`--beside`).
    arms: Vec<Arm>,
    out: &'a mut W,
    has_heading: bool,
    rounds_begun: Cell<usize>,
}

/// Length of the small files, as in mdtest-hard of the IO500.
const SMALL_FILE_LEN: u64 = 3901;

/// Index of the control among the arms.
const CONTROL: usize = 0;
/// Index of the arm that uses the chosen interface.
///
/// Other arms use the client library, except that with `--integrity` the control uses the same interface.
const MEASURED: usize = 1;

/// Work of one arm in one pass.
#[derive(Clone, Copy, Default)]
struct Done {
    outcome: Outcome,
    server: ServerLoad,
}

impl Done {
    fn cpu_s(&self) -> f64 {
        self.outcome.cpu_s + self.server.cpu_s
    }
}

/// Figures of one operation on one arm, by round.
#[derive(Default)]
struct Series {
    speed: Vec<f64>,
    seconds: Vec<f64>,
    cpu_us_per_op: Vec<f64>,
    sum: Done,
}

impl Series {
    fn add(&mut self, done: &Done) {
        let outcome = &done.outcome;
        self.speed.push(if outcome.bytes > 0 { outcome.mib_s() } else { outcome.ops_s() });
        self.seconds.push(outcome.seconds);
        self.cpu_us_per_op.push(done.cpu_s() * 1e6 / outcome.ops.max(1) as f64);
        self.sum.outcome.add(outcome);
        self.sum.server.add(&done.server);
    }

    fn per_op(&self, total: f64) -> f64 {
        total / self.sum.outcome.ops.max(1) as f64
    }
}

/// Median over the rounds of the quotients `of / by`.
fn median_ratio(of: &[f64], by: &[f64]) -> f64 {
    let ratios: Vec<f64> = of.iter().zip(by).map(|(of, by)| of / by).collect();
    median(&ratios)
}

/// The ranks of one arm with their fresh directory.
struct ArmSetup {
    ranks: Ranks,
    /// The directory as the ranks access it.
    dir: String,
    /// The directory as [`Arm::remove`] takes it.
    fresh: String,
}

/// One round: all arms, and the arm that runs first.
struct Round {
    setups: Vec<ArmSetup>,
    first: usize,
}

impl<'a, W: Write> Bench<'a, W> {
    /// Prepares the arms. Creates the directory of the control.
    ///
    /// # Errors
    /// Fails if a cluster file is invalid or a directory cannot be created.
    pub fn new(
        args: &'a BenchArgs,
        ranks: u32,
        context: Option<&'a Context>,
        out: &'a mut W,
    ) -> io::Result<Self> {
        let control = match (&args.against, context) {
            (Some(file), _) => Arm::cluster(file)?,
            (None, Some(context)) if args.integrity => {
                Arm::with_integrity(&context.cluster_file, Integrity::Off)?
            }
            (None, _) => Arm::Directory(WorkDir::new(args.control.as_deref())?),
        };
        let measured = match (&args.path, context) {
            (Some(path), _) => Arm::Directory(WorkDir::new(Some(path))?),
            (None, Some(context)) if args.integrity => {
                Arm::with_integrity(&context.cluster_file, Integrity::Crc32c)?
            }
            (None, Some(context)) => Arm::cluster(&context.cluster_file)?,
            (None, None) => {
                return Err(io::Error::other("neither a cluster nor a path to measure was given"));
            }
        };
        let mut arms = vec![control, measured];
        for file in &args.beside {
            arms.push(Arm::cluster(file)?);
        }
        Ok(Self { args, ranks, context, arms, out, has_heading: false, rounds_begun: Cell::new(0) })
    }

    /// Descriptions of the cluster's emulated devices.
    fn emulated(&self) -> &'a [String] {
        self.context.map_or(&[], |context| &context.emulated)
    }

    /// Starts ranks on the measured arm. Returns them with the path of the directory `fresh` as they access it.
    fn measured_ranks(
        &self,
        interface: Interface,
        transport: Transport,
        ranks: u32,
        fresh: &str,
    ) -> io::Result<(Ranks, String)> {
        let spin = self.args.spin;
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let context = || self.context.expect("an interface to a cluster has a context");
        let calls = |environment: &[_]| Ranks::start(ranks, &FileAccess::Calls, environment, spin);
        Ok(match interface {
            Interface::Path => (calls(&[])?, fresh.to_owned()),
            Interface::Fuse => {
                let mount = self.args.mount.as_deref().unwrap_or(Path::new(""));
                (calls(&[])?, format!("{}/{fresh}", mount.display()))
            }
            Interface::Library => {
                (self.library_ranks(&context().cluster_file, transport, ranks)?, fresh.to_owned())
            }
            Interface::Preload => {
                let context = context();
                let environment = [
                    ("LD_PRELOAD".to_owned(), text(&context.preload)),
                    ("WEFT_CLUSTER".to_owned(), text(&context.cluster_file)),
                    ("WEFT_TRANSPORT".to_owned(), transport.name().to_owned()),
                ];
                (calls(&environment)?, format!("{}/{fresh}", context.prefix))
            }
        })
    }

    fn library_ranks(&self, file: &Path, transport: Transport, ranks: u32) -> io::Result<Ranks> {
        let access = FileAccess::Library { cluster: file.to_owned(), transport: transport.name().to_owned() };
        Ranks::start(ranks, &access, &[], self.args.spin)
    }

    fn begin_round(&self, interface: Interface, transport: Transport, ranks: u32) -> io::Result<Round> {
        let mut setups = Vec::new();
        for (number, arm) in self.arms.iter().enumerate() {
            let fresh = arm.fresh_dir()?;
            let (ranks, dir) = match arm {
                _ if number == MEASURED || self.args.integrity => {
                    self.measured_ranks(interface, transport, ranks, &fresh)?
                }
                Arm::Directory(_) => {
                    (Ranks::start(ranks, &FileAccess::Calls, &[], self.args.spin)?, fresh.clone())
                }
                Arm::Cluster { file, .. } => (self.library_ranks(file, transport, ranks)?, fresh.clone()),
            };
            setups.push(ArmSetup { ranks, dir, fresh });
        }
        let number = self.rounds_begun.get();
        self.rounds_begun.set(number + 1);
        let first = if self.args.compares_weft() { number % self.arms.len() } else { CONTROL };
        Ok(Round { setups, first })
    }

    /// Runs `workload` once on each arm, in turn, and returns the results by phase.
    fn run_once(
        &self,
        round: &mut Round,
        workload: &WorkloadSpec,
        inputs: bool,
        flushed: bool,
    ) -> io::Result<Vec<(Outcomes, ServerLoad)>> {
        let count = self.arms.len();
        let mut done: Vec<_> = (0..count).map(|_| Default::default()).collect();
        for arm in (round.first..round.first + count).map(|at| at % count) {
            let ArmSetup { ranks, dir, .. } = &mut round.setups[arm];
            let task = Task { dir: dir.clone(), workload: workload.clone(), inputs, check: false };
            let arm_itself = &self.arms[arm];
            done[arm] = arm_itself.measured(|| {
                let mut outcomes = ranks.run(&task)?;
                if let (true, Some(client)) = (flushed, arm_itself.client())
                    && let Some(last) = outcomes.values_mut().rfind(|outcome| outcome.bytes > 0)
                {
                    last.seconds += flush(client)?;
                }
                Ok(outcomes)
            })?;
        }
        Ok(done)
    }

    /// Repeats [`run_once`](Self::run_once) until each arm's transfers have taken long enough, and adds them up.
    fn transfers(&self, round: &mut Round, workload: &WorkloadSpec, flushed: bool) -> io::Result<Vec<Done>> {
        let mut sums = vec![Done::default(); self.arms.len()];
        loop {
            let results = self.run_once(round, workload, false, flushed)?;
            for (sum, (outcomes, server)) in sums.iter_mut().zip(results) {
                if let Some(moved) = outcomes.values().find(|outcome| outcome.bytes > 0) {
                    sum.outcome.add(moved);
                }
                sum.server.add(&server);
            }
            let is_enough = |sum: &Done| sum.outcome.seconds >= self.args.at_least || sum.outcome.ops == 0;
            if sums.iter().all(is_enough) {
                return Ok(sums);
            }
            if self.args.compares_weft() {
                round.first = (round.first + 1) % self.arms.len();
            }
        }
    }

    fn end_round(&self, round: Round) -> io::Result<()> {
        for (arm, ArmSetup { ranks, fresh, .. }) in self.arms.iter().zip(round.setups) {
            drop(ranks);
            arm.remove(&fresh)?;
        }
        Ok(())
    }

    fn new_series(&self) -> Vec<Series> {
        self.arms.iter().map(|_| Series::default()).collect()
    }

    /// Runs IOR: a write pass, optionally a write pass with a sync, a read pass, and a comparison of every byte.
    ///
    /// # Errors
    /// Fails if a rank fails or a comparison finds a wrong byte.
    pub fn data_case(
        &mut self,
        interface: Interface,
        transport: Transport,
        pattern: Pattern,
        transfer: u64,
    ) -> io::Result<()> {
        let count = (self.args.size / transfer).max(1);
        let strided = pattern == Pattern::Interleaved;
        let ior = |access, sync| {
            WorkloadSpec::Ior(Ior {
                ranks: self.ranks,
                transfer: Size(transfer),
                per_rank: Some(Size(count * transfer)),
                layout: if strided { IorLayout::Strided } else { IorLayout::Sequential },
                file_per_process: pattern == Pattern::FilePerProcess,
                access,
                sync,
                // No rank reads the data that it wrote itself.
                reorder: 1,
                ..Ior::default()
            })
        };
        let read = ior(Access::Read, SyncWhen::Never);
        let mut passes = Vec::new();
        if self.args.flush {
            passes.push(("write+flush", ior(Access::Write, SyncWhen::End), self.new_series()));
        } else {
            passes.push(("write", ior(Access::Write, SyncWhen::Never), self.new_series()));
        }
        if self.args.sync {
            passes.push(("write+sync", ior(Access::Write, SyncWhen::End), self.new_series()));
        }
        if !self.args.writes_only {
            passes.push(("read", read.clone(), self.new_series()));
        }
        for _ in 0..self.args.rounds {
            let mut round = self.begin_round(interface, transport, self.ranks)?;
            for (operation, workload, series) in &mut passes {
                let flushed = *operation == "write+flush";
                let done = self.transfers(&mut round, workload, flushed)?;
                series.iter_mut().zip(&done).for_each(|(series, done)| series.add(done));
            }
            for ArmSetup { ranks, dir, .. } in &mut round.setups[MEASURED..] {
                let (dir, workload) = (dir.clone(), read.clone());
                ranks.run(&Task { dir, workload, inputs: false, check: true })?;
            }
            self.end_round(round)?;
        }
        for (operation, _, series) in passes {
            self.rows(format!("ior-{}", pattern.name()), interface, transport, transfer, operation, &series)?;
        }
        Ok(())
    }

    /// Runs mdtest in one shared directory: with empty files, and with the small files of the IO500 benchmark
    /// mdtest-hard, which are also read.
    ///
    /// # Errors
    /// Fails if a rank fails.
    pub fn meta_case(&mut self, interface: Interface, transport: Transport) -> io::Result<()> {
        use MdPhase::{Create, Read, Remove, Stat};
        let empty = ("mdtest", 0, &[("create", Create), ("stat", Stat), ("remove", Remove)][..]);
        let small = [("create", Create), ("stat", Stat), ("read", Read), ("remove", Remove)];
        let hard = ("mdtest-hard", SMALL_FILE_LEN, &small[..]);
        for (name, len, phases) in [empty, hard] {
            self.mdtest_case(interface, transport, (name, Size(len)), phases)?;
        }
        Ok(())
    }

    /// Runs mdtest with files of one length.
    fn mdtest_case(
        &mut self,
        interface: Interface,
        transport: Transport,
        (name, len): (&str, Size),
        phases: &[(&str, MdPhase)],
    ) -> io::Result<()> {
        let mdtest = |phase| {
            let (ranks, files, phases) = (self.ranks, self.args.files, vec![phase]);
            WorkloadSpec::Mdtest(Mdtest { ranks, files, phases, write: len, read: len, ..Mdtest::default() })
        };
        let mut passes: Vec<_> =
            phases.iter().map(|(name, phase)| (*name, mdtest(*phase), self.new_series())).collect();
        for _ in 0..self.args.rounds {
            let mut round = self.begin_round(interface, transport, self.ranks)?;
            for (_, workload, series) in &mut passes {
                for (series, (outcomes, server)) in
                    series.iter_mut().zip(self.run_once(&mut round, workload, false, false)?)
                {
                    let only = outcomes.values().find(|outcome| outcome.ops > 0).copied();
                    series.add(&Done { outcome: only.unwrap_or_default(), server });
                }
            }
            self.end_round(round)?;
        }
        for (operation, _, series) in passes {
            self.rows(name.to_owned(), interface, transport, 0, operation, &series)?;
        }
        Ok(())
    }

    /// Runs a workload as described: one figure for each phase, and a last round that compares every byte.
    ///
    /// # Errors
    /// Fails if a rank fails or a comparison finds a wrong byte.
    pub fn workload_case(
        &mut self,
        interface: Interface,
        transport: Transport,
        spec: &WorkloadSpec,
    ) -> io::Result<()> {
        let workload = spec.build().map_err(io::Error::other)?;
        let ranks = workload.ranks();
        let mut all: BTreeMap<u16, Vec<Series>> = BTreeMap::new();
        for _ in 0..self.args.rounds {
            let mut round = self.begin_round(interface, transport, ranks)?;
            let results = self.run_once(&mut round, spec, true, false)?;
            let mut common: Vec<u16> = results[CONTROL].0.keys().copied().collect();
            common.retain(|phase| results.iter().all(|(outcomes, _)| outcomes.contains_key(phase)));
            for phase in common {
                let series = all.entry(phase).or_insert_with(|| self.new_series());
                for (series, (outcomes, load)) in series.iter_mut().zip(&results) {
                    let outcome = outcomes[&phase];
                    // Servers do not know phases: split their load in proportion to the number of operations.
                    let all_ops: u64 = outcomes.values().map(|outcome| outcome.ops).sum();
                    let share = outcome.ops as f64 / all_ops.max(1) as f64;
                    let requests = (load.requests as f64 * share) as u64;
                    series.add(&Done { outcome, server: ServerLoad { cpu_s: load.cpu_s * share, requests } });
                }
            }
            self.end_round(round)?;
        }
        let mut round = self.begin_round(interface, transport, ranks)?;
        let ArmSetup { ranks, dir, .. } = &mut round.setups[MEASURED];
        ranks.run(&Task { dir: dir.clone(), workload: spec.clone(), inputs: true, check: true })?;
        self.end_round(round)?;
        for (phase, series) in all {
            let name = workload.phase(phase);
            let aside = ["setup", "cleanup"].contains(&name.as_str());
            let sum = series[MEASURED].sum.outcome;
            if sum.ops == 0 || aside || name.ends_with("-open") || name.ends_with("-close") {
                continue;
            }
            let transfer = if sum.bytes > 0 { sum.bytes / sum.ops } else { 0 };
            self.rows(spec.kind().to_owned(), interface, transport, transfer, &name, &series)?;
        }
        Ok(())
    }

    /// Adds a row for each arm except the control.
    fn rows(
        &mut self,
        case: String,
        interface: Interface,
        transport: Transport,
        transfer_bytes: u64,
        operation: &str,
        series: &[Series],
    ) -> io::Result<()> {
        let control = &series[CONTROL];
        for (arm, own) in series.iter().enumerate().skip(MEASURED) {
            let client_us = |series: &Series| series.per_op(series.sum.outcome.cpu_s * 1e6);
            let server_us = |series: &Series| series.per_op(series.sum.server.cpu_s * 1e6);
            let against = self.args.compares_weft().then(|| Against {
                cluster: self.arms[arm].name().to_owned(),
                cpu_ratio: median_ratio(&own.cpu_us_per_op, &control.cpu_us_per_op),
                seconds: median(&own.seconds),
                control_seconds: median(&control.seconds),
                control_client_cpu_us_per_op: client_us(control),
                control_server_cpu_us_per_op: server_us(control),
            });
            let row = Row {
                case: case.clone(),
                interface: interface.name().to_owned(),
                transport: transport.name().to_owned(),
                transfer_bytes,
                operation: operation.to_owned(),
                value: median(&own.speed),
                unit: if own.sum.outcome.bytes > 0 { "MiB/s" } else { "op/s" },
                control: median(&control.speed),
                ratio: median_ratio(&own.speed, &control.speed),
                client_cpu_us_per_op: client_us(own),
                server_cpu_us_per_op: server_us(own),
                messages_per_op: own.per_op(own.sum.server.requests as f64),
                against,
                emulated: !self.emulated().is_empty(),
            };
            self.row(&row)?;
        }
        Ok(())
    }

    fn row(&mut self, row: &Row) -> io::Result<()> {
        if self.args.json {
            writeln!(self.out, "{}", serde_json::to_string(row)?)?;
        } else {
            if !self.has_heading {
                if !self.emulated().is_empty() {
                    writeln!(self.out, "emulated devices: {}", self.emulated().join(", "))?;
                }
                table_head(self.out, self.args.compares_weft())?;
                self.has_heading = true;
            }
            table_row(self.out, row)?;
        }
        self.out.flush()
    }
}
