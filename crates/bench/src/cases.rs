//! Rounds of the same work on what is measured and on the control, and the rows that come of them.

use crate::context::{Context, ServerLoad, flush};
use crate::ground::Plain;
use crate::rank::{Reach, Task};
use crate::ranks::{Outcome, Outcomes, Ranks};
use crate::report::{Against, Row, median, table_head, table_row};
use crate::run::{BenchArgs, Interface, Pattern, Transport};
use crate::side::Side;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use weft_core::Integrity;
use weft_workload::{Access, Ior, IorLayout, MdPhase, Mdtest, Size, SyncWhen, WorkloadSpec};

/// Everything that a measurement needs.
pub struct Bench<'a, W: Write> {
    args: &'a BenchArgs,
    ranks: u32,
    context: Option<&'a Context>,
    /// The one that all others are compared with, the one that is measured, and what is measured beside it.
    sides: Vec<Side>,
    out: &'a mut W,
    head_done: bool,
    rounds_begun: Cell<usize>,
}

/// The control among the sides.
const CONTROL: usize = 0;
/// The side that may have another interface than the client library; with `--integrity` the control has its interface.
const MEASURED: usize = 1;

/// What one side has done in one pass.
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

/// The figures of one operation on one side over the rounds.
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

/// The middle one of the quotients of figures of the same round.
fn median_ratio(of: &[f64], by: &[f64]) -> f64 {
    let ratios: Vec<f64> = of.iter().zip(by).map(|(of, by)| of / by).collect();
    median(&ratios)
}

/// Ranks on one side, in a fresh directory.
struct Seat {
    ranks: Ranks,
    /// As the ranks reach it.
    dir: String,
    /// As it is to be removed.
    fresh: String,
}

/// All sides, and which of them goes first.
struct Round {
    seats: Vec<Seat>,
    first: usize,
}

impl<'a, W: Write> Bench<'a, W> {
    /// Gets ready; makes the directory of the control.
    ///
    /// # Errors
    /// A bad cluster file; a directory that cannot be made.
    pub fn new(
        args: &'a BenchArgs,
        ranks: u32,
        context: Option<&'a Context>,
        out: &'a mut W,
    ) -> io::Result<Self> {
        let control = match (&args.against, context) {
            (Some(file), _) => Side::cluster(file)?,
            (None, Some(context)) if args.integrity => {
                Side::with_integrity(&context.cluster_file, Integrity::Off)?
            }
            (None, _) => Side::Plain(Plain::new(args.control.as_deref())?),
        };
        let measured = match (&args.path, context) {
            (Some(path), _) => Side::Plain(Plain::new(Some(path))?),
            (None, Some(context)) if args.integrity => {
                Side::with_integrity(&context.cluster_file, Integrity::Crc32c)?
            }
            (None, Some(context)) => Side::cluster(&context.cluster_file)?,
            (None, None) => return Err(io::Error::other("neither a cluster nor a path to measure")),
        };
        let mut sides = vec![control, measured];
        for file in &args.beside {
            sides.push(Side::cluster(file)?);
        }
        Ok(Self { args, ranks, context, sides, out, head_done: false, rounds_begun: Cell::new(0) })
    }

    /// What of the cluster is emulated.
    fn emulated(&self) -> &'a [String] {
        self.context.map_or(&[], |context| &context.emulated)
    }

    /// Ranks on what is measured, and how they reach a directory there.
    fn measured(
        &self,
        interface: Interface,
        transport: Transport,
        ranks: u32,
        fresh: &str,
    ) -> io::Result<(Ranks, String)> {
        let spin = self.args.spin;
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let context = || self.context.expect("of a cluster");
        let calls = |environment: &[_]| Ranks::start(ranks, &Reach::Calls, environment, spin);
        Ok(match interface {
            Interface::Path => (calls(&[])?, fresh.to_owned()),
            Interface::Fuse => {
                let mount = self.args.mount.as_deref().unwrap_or(Path::new(""));
                (calls(&[])?, format!("{}/{fresh}", mount.display()))
            }
            Interface::Library => {
                (self.by_library(&context().cluster_file, transport, ranks)?, fresh.to_owned())
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

    fn by_library(&self, file: &Path, transport: Transport, ranks: u32) -> io::Result<Ranks> {
        let reach = Reach::Library { cluster: file.to_owned(), transport: transport.name().to_owned() };
        Ranks::start(ranks, &reach, &[], self.args.spin)
    }

    fn begin_round(&self, interface: Interface, transport: Transport, ranks: u32) -> io::Result<Round> {
        let mut seats = Vec::new();
        for (number, side) in self.sides.iter().enumerate() {
            let fresh = side.fresh()?;
            let (ranks, dir) = match side {
                _ if number == MEASURED || self.args.integrity => {
                    self.measured(interface, transport, ranks, &fresh)?
                }
                Side::Plain(_) => (Ranks::start(ranks, &Reach::Calls, &[], self.args.spin)?, fresh.clone()),
                Side::Cluster { file, .. } => (self.by_library(file, transport, ranks)?, fresh.clone()),
            };
            seats.push(Seat { ranks, dir, fresh });
        }
        let number = self.rounds_begun.get();
        self.rounds_begun.set(number + 1);
        let first = if self.args.compares_weft() { number % self.sides.len() } else { CONTROL };
        Ok(Round { seats, first })
    }

    /// Runs `workload` once on each side, in turns: what came of each phase.
    fn turn(
        &self,
        round: &mut Round,
        workload: &WorkloadSpec,
        inputs: bool,
        flushed: bool,
    ) -> io::Result<Vec<(Outcomes, ServerLoad)>> {
        let count = self.sides.len();
        let mut done: Vec<_> = (0..count).map(|_| Default::default()).collect();
        for side in (round.first..round.first + count).map(|at| at % count) {
            let Seat { ranks, dir, .. } = &mut round.seats[side];
            let task = Task { dir: dir.clone(), workload: workload.clone(), inputs, check: false };
            let side_itself = &self.sides[side];
            done[side] = side_itself.observed(|| {
                let mut outcomes = ranks.run(&task)?;
                if let (true, Some(client)) = (flushed, side_itself.client())
                    && let Some(last) = outcomes.values_mut().rfind(|outcome| outcome.bytes > 0)
                {
                    last.seconds += flush(client)?;
                }
                Ok(outcomes)
            })?;
        }
        Ok(done)
    }

    /// The same for the phase that moves bytes, again and again until it has taken long enough on each side.
    fn transfers(&self, round: &mut Round, workload: &WorkloadSpec, flushed: bool) -> io::Result<Vec<Done>> {
        let mut sums = vec![Done::default(); self.sides.len()];
        loop {
            let turn = self.turn(round, workload, false, flushed)?;
            for (sum, (outcomes, server)) in sums.iter_mut().zip(turn) {
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
                round.first = (round.first + 1) % self.sides.len();
            }
        }
    }

    fn end_round(&self, round: Round) -> io::Result<()> {
        for (side, Seat { ranks, fresh, .. }) in self.sides.iter().zip(round.seats) {
            drop(ranks);
            side.remove(&fresh)?;
        }
        Ok(())
    }

    fn new_series(&self) -> Vec<Series> {
        self.sides.iter().map(|_| Series::default()).collect()
    }

    /// IOR: writing, writing with a sync, reading, and a pass that compares each byte.
    ///
    /// # Errors
    /// When a rank fails or bytes come back wrong.
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
                // Nobody reads what it has written itself.
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
            for Seat { ranks, dir, .. } in &mut round.seats[MEASURED..] {
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

    /// mdtest: making, looking at and removing files in one directory.
    ///
    /// # Errors
    /// When a rank fails.
    pub fn meta_case(&mut self, interface: Interface, transport: Transport) -> io::Result<()> {
        let phases = [("create", MdPhase::Create), ("stat", MdPhase::Stat), ("remove", MdPhase::Remove)];
        let mdtest = |phase| {
            let (ranks, files) = (self.ranks, self.args.files);
            WorkloadSpec::Mdtest(Mdtest { ranks, files, phases: vec![phase], ..Mdtest::default() })
        };
        let mut passes = phases.map(|(name, phase)| (name, mdtest(phase), self.new_series()));
        for _ in 0..self.args.rounds {
            let mut round = self.begin_round(interface, transport, self.ranks)?;
            for (_, workload, series) in &mut passes {
                for (series, (outcomes, server)) in
                    series.iter_mut().zip(self.turn(&mut round, workload, false, false)?)
                {
                    let only = outcomes.values().find(|outcome| outcome.ops > 0).copied();
                    series.add(&Done { outcome: only.unwrap_or_default(), server });
                }
            }
            self.end_round(round)?;
        }
        for (operation, _, series) in passes {
            self.rows("mdtest".to_owned(), interface, transport, 0, operation, &series)?;
        }
        Ok(())
    }

    /// A workload as it is: a figure for each of its phases, and a last round in which every byte is compared.
    ///
    /// # Errors
    /// When a rank fails or bytes come back wrong.
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
            let turn = self.turn(&mut round, spec, true, false)?;
            let mut common: Vec<u16> = turn[CONTROL].0.keys().copied().collect();
            common.retain(|phase| turn.iter().all(|(outcomes, _)| outcomes.contains_key(phase)));
            for phase in common {
                let series = all.entry(phase).or_insert_with(|| self.new_series());
                for (series, (outcomes, load)) in series.iter_mut().zip(&turn) {
                    let outcome = outcomes[&phase];
                    // Servers cannot tell phases apart: each gets its share by operations.
                    let all_ops: u64 = outcomes.values().map(|outcome| outcome.ops).sum();
                    let share = outcome.ops as f64 / all_ops.max(1) as f64;
                    let requests = (load.requests as f64 * share) as u64;
                    series.add(&Done { outcome, server: ServerLoad { cpu_s: load.cpu_s * share, requests } });
                }
            }
            self.end_round(round)?;
        }
        let mut round = self.begin_round(interface, transport, ranks)?;
        let Seat { ranks, dir, .. } = &mut round.seats[MEASURED];
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

    /// A row for each side but the control.
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
        for (side, own) in series.iter().enumerate().skip(MEASURED) {
            let client_us = |series: &Series| series.per_op(series.sum.outcome.cpu_s * 1e6);
            let server_us = |series: &Series| series.per_op(series.sum.server.cpu_s * 1e6);
            let against = self.args.compares_weft().then(|| Against {
                cluster: self.sides[side].name().to_owned(),
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
            if !self.head_done {
                if !self.emulated().is_empty() {
                    writeln!(self.out, "emulated devices: {}", self.emulated().join(", "))?;
                }
                table_head(self.out, self.args.compares_weft())?;
                self.head_done = true;
            }
            table_row(self.out, row)?;
        }
        self.out.flush()
    }
}
