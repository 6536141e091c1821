//! Rounds of the same work on what is measured and on the control, and the rows that come of them.

use crate::context::{Context, ServerLoad, connect, server_load};
use crate::ground::{Plain, fresh_in_weft, remove_in_weft};
use crate::rank::{Reach, Task};
use crate::ranks::{Outcome, Outcomes, Ranks};
use crate::report::{Row, median, table_head, table_row};
use crate::run::{BenchArgs, Interface, Pattern, Transport};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
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
    control: Plain,
    out: &'a mut W,
    head_done: bool,
}

/// The figures of one operation over the rounds.
#[derive(Default)]
struct Series {
    measured: Vec<f64>,
    control: Vec<f64>,
    client_cpu_s: f64,
    server: ServerLoad,
    ops: u64,
    bytes: u64,
}

impl Series {
    fn add(&mut self, measured: &Outcome, control: &Outcome, server: ServerLoad) {
        let figure = |outcome: &Outcome| if measured.bytes > 0 { outcome.mib_s() } else { outcome.ops_s() };
        self.measured.push(figure(measured));
        self.control.push(figure(control));
        self.client_cpu_s += measured.cpu_s;
        self.server.cpu_s += server.cpu_s;
        self.server.requests += server.requests;
        self.ops += measured.ops;
        self.bytes += measured.bytes;
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
        let control = Plain::new(args.control.as_deref())?;
        Ok(Self { args, ranks, weft, path, control, out, head_done: false })
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
            Interface::Library => {
                let cluster = self.weft().0.cluster_file.clone();
                let reach = Reach::Library { cluster, transport: transport.name().to_owned() };
                Ranks::start(ranks, &reach, &[], spin)
            }
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
        let local = Ranks::start(ranks, &Reach::Calls, &[], self.args.spin)?;
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
        Ok(Round { measured, local, dir, control_dir: self.control.fresh()?, name })
    }

    /// Runs `workload` on the control and then on what is measured: what came of each phase.
    fn both(
        &self,
        round: &mut Round,
        workload: &WorkloadSpec,
        inputs: bool,
    ) -> io::Result<(Outcomes, Outcomes, ServerLoad)> {
        let task = |dir: &str| Task { dir: dir.to_owned(), workload: workload.clone(), inputs, check: false };
        let load = || self.weft.as_ref().map(|(_, client)| server_load(client)).unwrap_or_default();
        let control = round.local.run(&task(&round.control_dir))?;
        let before = load();
        let measured = round.measured.run(&task(&round.dir))?;
        let after = load();
        let server = ServerLoad {
            cpu_s: after.cpu_s - before.cpu_s,
            requests: after.requests.saturating_sub(before.requests),
        };
        Ok((measured, control, server))
    }

    fn end_round(&self, round: Round) -> io::Result<()> {
        let Round { measured, local, dir, control_dir, name } = round;
        drop((measured, local));
        match (&self.weft, name) {
            (Some((_, client)), Some(name)) => remove_in_weft(client, &name),
            _ => std::fs::remove_dir_all(&dir)?,
        }
        std::fs::remove_dir_all(&control_dir)
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
        let mut passes = vec![("write", ior(Access::Write, SyncWhen::Never), Series::default())];
        if self.args.sync {
            passes.push(("write+sync", ior(Access::Write, SyncWhen::End), Series::default()));
        }
        passes.push(("read", read.clone(), Series::default()));
        for _ in 0..self.args.rounds {
            let mut round = self.begin_round(interface, transport, self.ranks)?;
            for (_, workload, series) in &mut passes {
                let (measured, control, server) = self.both(&mut round, workload, false)?;
                let moved = |outcomes: &Outcomes| {
                    outcomes.values().find(|outcome| outcome.bytes > 0).copied().unwrap_or_default()
                };
                series.add(&moved(&measured), &moved(&control), server);
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
                let (measured, control, server) = self.both(&mut round, workload, false)?;
                let only = |outcomes: &Outcomes| {
                    outcomes.values().find(|outcome| outcome.ops > 0).copied().unwrap_or_default()
                };
                series.add(&only(&measured), &only(&control), server);
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
            let (measured, control, server) = self.both(&mut round, spec, true)?;
            let all_ops: u64 = measured.values().map(|outcome| outcome.ops).sum();
            for (phase, outcome) in measured {
                let Some(beside) = control.get(&phase) else { continue };
                // Servers cannot tell phases apart: each gets its share by operations.
                let share = outcome.ops as f64 / all_ops.max(1) as f64;
                let server = ServerLoad {
                    cpu_s: server.cpu_s * share,
                    requests: (server.requests as f64 * share) as u64,
                };
                series.entry(phase).or_default().add(&outcome, beside, server);
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
            client_cpu_us_per_op: per_op(series.client_cpu_s * 1e6),
            server_cpu_us_per_op: per_op(series.server.cpu_s * 1e6),
            messages_per_op: per_op(series.server.requests as f64),
            emulated: !self.emulated().is_empty(),
        };
        if self.args.json {
            writeln!(self.out, "{}", serde_json::to_string(&row)?)?;
        } else {
            if !self.head_done {
                if !self.emulated().is_empty() {
                    writeln!(self.out, "emulated devices: {}", self.emulated().join(", "))?;
                }
                table_head(self.out)?;
                self.head_done = true;
            }
            table_row(self.out, &row)?;
        }
        self.out.flush()
    }
}
