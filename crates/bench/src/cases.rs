//! Rounds of the same work on what is measured and on the control, and the rows that come of them.

use crate::context::{Context, ServerLoad, connect, flush, server_load};
use crate::ground::{Plain, fresh_in_weft, remove_in_weft};
use crate::rank::{Reach, Task};
use crate::ranks::{Outcome, Outcomes, Ranks};
use crate::report::{Against, Row, median, table_head, table_row};
use crate::run::{BenchArgs, Interface, Pattern, Transport};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use weft_client::Client;
use weft_env::real::RealEnv;
use weft_workload::{Access, Ior, IorLayout, MdPhase, Mdtest, Size, SyncWhen, WorkloadSpec};

/// Everything that a measurement needs.
pub struct Bench<'a, W: Write> {
    args: &'a BenchArgs,
    ranks: u32,
    /// Weft, with a client for what is not measured.
    weft: Option<(&'a Context, Client<RealEnv>)>,
    /// The other file system that is measured instead.
    path: Option<Plain>,
    control: Control,
    out: &'a mut W,
    head_done: bool,
    rounds_begun: Cell<u64>,
}

/// What stands beside what is measured.
enum Control {
    /// A plain directory.
    Plain(Plain),
    /// Another cluster.
    Cluster { file: PathBuf, client: Client<RealEnv> },
}

impl Control {
    fn fresh(&self) -> io::Result<String> {
        match self {
            Self::Plain(plain) => plain.fresh(),
            Self::Cluster { client, .. } => fresh_in_weft(client),
        }
    }

    fn client(&self) -> Option<&Client<RealEnv>> {
        match self {
            Self::Plain(_) => None,
            Self::Cluster { client, .. } => Some(client),
        }
    }
}

/// What one side has done in one pass.
#[derive(Clone, Copy, Default)]
struct Done {
    outcome: Outcome,
    server: ServerLoad,
}

/// The figures of one operation over the rounds.
#[derive(Default)]
struct Series {
    measured: Vec<f64>,
    control: Vec<f64>,
    seconds: [Vec<f64>; 2],
    client_cpu_s: [f64; 2],
    server: [ServerLoad; 2],
    ops: u64,
    bytes: u64,
}

impl Series {
    fn add(&mut self, measured: &Done, control: &Done) {
        let is_data = measured.outcome.bytes > 0;
        let figure = |done: &Done| if is_data { done.outcome.mib_s() } else { done.outcome.ops_s() };
        self.measured.push(figure(measured));
        self.control.push(figure(control));
        for (side, done) in [measured, control].into_iter().enumerate() {
            self.seconds[side].push(done.outcome.seconds);
            self.client_cpu_s[side] += done.outcome.cpu_s;
            self.server[side].cpu_s += done.server.cpu_s;
            self.server[side].requests += done.server.requests;
        }
        self.ops += measured.outcome.ops;
        self.bytes += measured.outcome.bytes;
    }

    fn unit(&self) -> &'static str {
        if self.bytes > 0 { "MiB/s" } else { "op/s" }
    }
}

/// Ranks on what is measured and on the control, in fresh directories.
struct Round {
    measured: Ranks,
    local: Ranks,
    dir: String,
    control_dir: String,
    /// The directory of Weft to remove.
    name: Option<String>,
    /// Who of both goes first.
    control_first: bool,
}

fn by_library(ranks: u32, file: &Path, transport: Transport, spin: bool) -> io::Result<Ranks> {
    let reach = Reach::Library { cluster: file.to_owned(), transport: transport.name().to_owned() };
    Ranks::start(ranks, &reach, &[], spin)
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
        let weft = match context {
            Some(context) => {
                Some((context, connect(&context.cluster_file, "auto").map_err(io::Error::other)?))
            }
            None => None,
        };
        let path = match &args.path {
            Some(path) => Some(Plain::new(Some(path))?),
            None => None,
        };
        let control = match &args.against {
            Some(file) => {
                let client = connect(file, "auto").map_err(io::Error::other)?;
                Control::Cluster { file: file.clone(), client }
            }
            None => Control::Plain(Plain::new(args.control.as_deref())?),
        };
        Ok(Self { args, ranks, weft, path, control, out, head_done: false, rounds_begun: Cell::new(0) })
    }

    /// What of the cluster is emulated.
    fn emulated(&self) -> &'a [String] {
        self.weft.as_ref().map_or(&[], |(context, _)| &context.emulated)
    }

    fn weft(&self) -> &(&'a Context, Client<RealEnv>) {
        self.weft.as_ref().expect("the caller gives a cluster or a path")
    }

    fn start(&self, interface: Interface, transport: Transport, ranks: u32) -> io::Result<Ranks> {
        let spin = self.args.spin;
        let text = |path: &Path| path.to_string_lossy().into_owned();
        match interface {
            Interface::Fuse | Interface::Path => Ranks::start(ranks, &Reach::Calls, &[], spin),
            Interface::Library => by_library(ranks, &self.weft().0.cluster_file, transport, spin),
            Interface::Preload => {
                let context = self.weft().0;
                let environment = [
                    ("LD_PRELOAD".to_owned(), text(&context.preload)),
                    ("WEFT_CLUSTER".to_owned(), text(&context.cluster_file)),
                    ("WEFT_TRANSPORT".to_owned(), transport.name().to_owned()),
                ];
                Ranks::start(ranks, &Reach::Calls, &environment, spin)
            }
        }
    }

    fn begin_round(&self, interface: Interface, transport: Transport, ranks: u32) -> io::Result<Round> {
        let measured = self.start(interface, transport, ranks)?;
        let local = match &self.control {
            Control::Plain(_) => Ranks::start(ranks, &Reach::Calls, &[], self.args.spin)?,
            Control::Cluster { file, .. } => by_library(ranks, file, transport, self.args.spin)?,
        };
        let (dir, name) = if let Some(path) = &self.path {
            (path.fresh()?, None)
        } else {
            let (context, client) = self.weft();
            let name = fresh_in_weft(client)?;
            let mount = self.args.mount.as_deref().unwrap_or(Path::new(""));
            let dir = match interface {
                Interface::Preload => format!("{}/{name}", context.prefix),
                Interface::Fuse => format!("{}/{name}", mount.display()),
                Interface::Library | Interface::Path => name.clone(),
            };
            (dir, Some(name))
        };
        let number = self.rounds_begun.get();
        self.rounds_begun.set(number + 1);
        let control_first = number.is_multiple_of(2) || self.args.against.is_none();
        Ok(Round { measured, local, dir, control_dir: self.control.fresh()?, name, control_first })
    }

    /// Runs `workload` on the control and on what is measured: what came of each phase.
    fn both(
        &self,
        round: &mut Round,
        workload: &WorkloadSpec,
        inputs: bool,
        flushed: bool,
    ) -> io::Result<[(Outcomes, ServerLoad); 2]> {
        let task = |dir: &str| Task { dir: dir.to_owned(), workload: workload.clone(), inputs, check: false };
        let run = |ranks: &mut Ranks, dir: &str, client: Option<&Client<RealEnv>>| {
            let before = client.map(server_load).unwrap_or_default();
            let mut outcomes = ranks.run(&task(dir))?;
            if let (true, Some(client)) = (flushed, client)
                && let Some(last) = outcomes.values_mut().rfind(|outcome| outcome.bytes > 0)
            {
                last.seconds += flush(client)?;
            }
            let after = client.map(server_load).unwrap_or_default();
            let server = ServerLoad {
                cpu_s: after.cpu_s - before.cpu_s,
                requests: after.requests.saturating_sub(before.requests),
            };
            io::Result::Ok((outcomes, server))
        };
        let client = self.weft.as_ref().map(|(_, client)| client);
        let (mut measured, mut control) = (None, None);
        for is_control in [round.control_first, !round.control_first] {
            if is_control {
                control = Some(run(&mut round.local, &round.control_dir, self.control.client())?);
            } else {
                measured = Some(run(&mut round.measured, &round.dir, client)?);
            }
        }
        Ok([measured, control].map(|side| side.expect("both have run")))
    }

    fn end_round(&self, round: Round) -> io::Result<()> {
        let Round { measured, local, dir, control_dir, name, .. } = round;
        drop((measured, local));
        match (&self.weft, name) {
            (Some((_, client)), Some(name)) => remove_in_weft(client, &name),
            _ => std::fs::remove_dir_all(&dir)?,
        }
        match &self.control {
            Control::Plain(_) => std::fs::remove_dir_all(&control_dir),
            Control::Cluster { client, .. } => {
                remove_in_weft(client, &control_dir);
                Ok(())
            }
        }
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
            passes.push(("write+flush", ior(Access::Write, SyncWhen::End), Series::default()));
        } else {
            passes.push(("write", ior(Access::Write, SyncWhen::Never), Series::default()));
        }
        if self.args.sync {
            passes.push(("write+sync", ior(Access::Write, SyncWhen::End), Series::default()));
        }
        if !self.args.writes_only {
            passes.push(("read", read.clone(), Series::default()));
        }
        for _ in 0..self.args.rounds {
            let mut round = self.begin_round(interface, transport, self.ranks)?;
            for (operation, workload, series) in &mut passes {
                let flushed = *operation == "write+flush";
                let [measured, control] = self.both(&mut round, workload, false, flushed)?.map(|side| {
                    let moved = side.0.values().find(|outcome| outcome.bytes > 0).copied();
                    Done { outcome: moved.unwrap_or_default(), server: side.1 }
                });
                series.add(&measured, &control);
            }
            let dir = round.dir.clone();
            round.measured.run(&Task { dir, workload: read.clone(), inputs: false, check: true })?;
            self.end_round(round)?;
        }
        for (operation, _, series) in passes {
            self.row(format!("ior-{}", pattern.name()), interface, transport, transfer, operation, &series)?;
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
        let mut passes = phases.map(|(name, phase)| (name, mdtest(phase), Series::default()));
        for _ in 0..self.args.rounds {
            let mut round = self.begin_round(interface, transport, self.ranks)?;
            for (_, workload, series) in &mut passes {
                let [measured, control] = self.both(&mut round, workload, false, false)?.map(|side| {
                    let only = side.0.values().find(|outcome| outcome.ops > 0).copied();
                    Done { outcome: only.unwrap_or_default(), server: side.1 }
                });
                series.add(&measured, &control);
            }
            self.end_round(round)?;
        }
        for (operation, _, series) in passes {
            self.row("mdtest".to_owned(), interface, transport, 0, operation, &series)?;
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
        let mut series: BTreeMap<u16, Series> = BTreeMap::new();
        for _ in 0..self.args.rounds {
            let mut round = self.begin_round(interface, transport, ranks)?;
            let [(measured, server), (control, beside)] = self.both(&mut round, spec, true, false)?;
            let all_ops: u64 = measured.values().map(|outcome| outcome.ops).sum();
            for (phase, outcome) in measured {
                let Some(&control) = control.get(&phase) else { continue };
                // Servers cannot tell phases apart: each gets its share by operations.
                let share = outcome.ops as f64 / all_ops.max(1) as f64;
                let [measured, control] = [(outcome, server), (control, beside)].map(|(outcome, load)| {
                    let requests = (load.requests as f64 * share) as u64;
                    Done { outcome, server: ServerLoad { cpu_s: load.cpu_s * share, requests } }
                });
                series.entry(phase).or_default().add(&measured, &control);
            }
            self.end_round(round)?;
        }
        let mut round = self.begin_round(interface, transport, ranks)?;
        let dir = round.dir.clone();
        round.measured.run(&Task { dir, workload: spec.clone(), inputs: true, check: true })?;
        self.end_round(round)?;
        for (phase, series) in series {
            let name = workload.phase(phase);
            let aside = ["setup", "cleanup"].contains(&name.as_str());
            if series.ops == 0 || aside || name.ends_with("-open") || name.ends_with("-close") {
                continue;
            }
            let transfer = if series.bytes > 0 { series.bytes / series.ops } else { 0 };
            self.row(spec.kind().to_owned(), interface, transport, transfer, &name, &series)?;
        }
        Ok(())
    }

    fn row(
        &mut self,
        case: String,
        interface: Interface,
        transport: Transport,
        transfer_bytes: u64,
        operation: &str,
        series: &Series,
    ) -> io::Result<()> {
        let ratios: Vec<f64> = series.measured.iter().zip(&series.control).map(|(w, c)| w / c).collect();
        let per_op = |total: f64| total / series.ops.max(1) as f64;
        let row = Row {
            case,
            interface: interface.name().to_owned(),
            transport: transport.name().to_owned(),
            transfer_bytes,
            operation: operation.to_owned(),
            value: median(&series.measured),
            unit: series.unit(),
            control: median(&series.control),
            ratio: median(&ratios),
            client_cpu_us_per_op: per_op(series.client_cpu_s[0] * 1e6),
            server_cpu_us_per_op: per_op(series.server[0].cpu_s * 1e6),
            messages_per_op: per_op(series.server[0].requests as f64),
            against: self.args.against.as_ref().map(|_| Against {
                seconds: median(&series.seconds[0]),
                control_seconds: median(&series.seconds[1]),
                control_client_cpu_us_per_op: per_op(series.client_cpu_s[1] * 1e6),
                control_server_cpu_us_per_op: per_op(series.server[1].cpu_s * 1e6),
            }),
            emulated: !self.emulated().is_empty(),
        };
        if self.args.json {
            writeln!(self.out, "{}", serde_json::to_string(&row)?)?;
        } else {
            if !self.head_done {
                if !self.emulated().is_empty() {
                    writeln!(self.out, "emulated devices: {}", self.emulated().join(", "))?;
                }
                table_head(self.out, self.args.against.is_some())?;
                self.head_done = true;
            }
            table_row(self.out, &row)?;
        }
        self.out.flush()
    }
}
