//! Runs a workload on a simulated cluster, with one real client for each rank.

use crate::barrier::{Barrier, barriers};
use crate::cluster::Cluster;
use crate::locking;
use crate::outcome::{DeviceOutcome, IbridgeOutcome, OpKind, Outcome, RunError};
use crate::spec::{ClusterSpec, Payload};
use crate::tally::Tally;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::rc::Rc;
use weft_client::{Client, Error, InodePath, OpenFile, OpenFlags};
use weft_core::random::splitmix64;
use weft_core::{ByteLen, FileOffset, Nanos, ServerId, TargetId};
use weft_env::sim::{self, Control, DiskFaults, Sim, SimConfig, SimEnv, SimNotify};
use weft_env::{Env, Hollow, Notify};
use weft_wire::meta;
use weft_wire::status::TargetStatus;
use weft_workload::{FileRef, Op, Workload};

/// Directory that holds the workload's files.
const FOLDER: &str = "workload";
/// Bytes per write while input files are prepared.
const INPUT_PIECE: u64 = 4 << 20;

/// Options of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunOptions {
    /// Number of times that the workload runs on the same files. The servers' page caches are emptied before each pass,
    /// and only the last pass is measured.
    pub passes: u32,
    /// Whether the run continues until all bytes that it wrote are on the disks of the targets.
    pub drain: bool,
    /// Whether each pass begins at a round virtual time with a reseeded random generator, independent of what ran
    /// before. Two paired runs differ only by the configuration that a pass really uses.
    pub paired: bool,
    /// Longest useful duration of a pass. A longer pass ends with [`RunError::Late`]. The limit does not affect a
    /// shorter pass.
    pub limit: Option<Nanos>,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self { passes: 1, drain: false, paired: false, limit: None }
    }
}

/// Virtual time between two passes, in which background work of the servers can finish.
const PASS_PAUSE: Nanos = Nanos::from_s(60);
/// Passes of paired runs begin at multiples of this time.
const PASS_ALIGNMENT: Nanos = Nanos::from_s(1000);

/// Builds the cluster and runs the workload on it to the end.
///
/// # Errors
/// The first error.
pub fn run(spec: &ClusterSpec, workload: &dyn Workload) -> Result<Outcome, RunError> {
    run_with(spec, workload, RunOptions::default())
}

/// Builds the cluster and runs the workload with `options`.
///
/// # Errors
/// The first error.
pub fn run_with(
    spec: &ClusterSpec,
    workload: &dyn Workload,
    options: RunOptions,
) -> Result<Outcome, RunError> {
    spec.check()?;
    if spec.locking.is_some() {
        return locking::run(spec, workload, options);
    }
    let ranks = workload.ranks();
    let payload = match spec.payload {
        Payload::Bytes => sim::Payload::Bytes,
        Payload::Lengths => sim::Payload::Lengths,
    };
    let mut sim = Sim::new(SimConfig { seed: spec.seed, shuffle: spec.shuffle, payload });
    let nodes = ranks.div_ceil(spec.processes_per_node);
    // The last node prepares the input files.
    let cluster = Cluster::build(&sim.control(), spec, nodes + 1)?;
    let outside = cluster.nodes()[nodes as usize].clone();
    let drive = Rc::new(Drive {
        workload,
        control: sim.control(),
        layout: cluster.layout(),
        barriers: barriers(spec, workload, &outside),
        pause_us: spec.client.pause_us,
        limit: options.limit,
        seed: spec.seed,
        tally: RefCell::new(Tally::default()),
        done: outside.notify(),
        cluster,
    });
    let prepared = Rc::clone(&drive);
    let env = outside.clone();
    let _servers = sim.block_on(&outside, async move {
        let servers = prepared.cluster.start().await?;
        prepared.prepare(&env).await?;
        Ok::<_, RunError>(servers)
    })?;
    let mut pass = 1;
    loop {
        drive.cluster.forget();
        let before =
            Baseline { devices: drive.cluster.devices(), logs: statuses(&mut sim, &drive, &outside)? };
        if options.paired {
            let env = outside.clone();
            let wait = Nanos(sim.elapsed().0.next_multiple_of(PASS_ALIGNMENT.0) - sim.elapsed().0);
            sim.block_on(&outside, async move { env.sleep(wait).await });
            drive.cluster.forget();
            drive.control.reseed(splitmix64(spec.seed ^ splitmix64(pass.into())));
        }
        *drive.tally.borrow_mut() = Tally { left: ranks, start: sim.elapsed(), ..Tally::default() };
        for rank in 0..ranks {
            let env = drive.cluster.rank(rank);
            sim.start(&env, "rank", Rc::clone(&drive).rank(rank, env.clone()));
        }
        let waiting = Rc::clone(&drive);
        sim.block_on(&outside, async move { waiting.wait_for_tasks().await });
        let failure = drive.tally.borrow_mut().failure.take();
        if let Some(failure) = failure {
            return Err(failure);
        }
        let is_last = pass >= options.passes;
        if options.drain || !is_last {
            drain(&mut sim, &drive, &outside)?;
            drive.check_limit()?;
        }
        if is_last {
            let end = sim.elapsed();
            let logs = statuses(&mut sim, &drive, &outside)?;
            return Ok(drive.outcome(&sim, end, before, logs, options));
        }
        pass += 1;
        let env = outside.clone();
        sim.block_on(&outside, async move { env.sleep(PASS_PAUSE).await });
    }
}

/// State of the devices before a pass, subtracted from the state after it.
struct Baseline {
    devices: Vec<DeviceOutcome>,
    logs: Vec<IbridgeOutcome>,
}

/// Flushes all written bytes to the disks: first the contents of all SSD logs, in parallel, then the page caches of the
/// servers.
fn drain<'w>(sim: &mut Sim<'w>, drive: &Rc<Drive<'w>>, env: &SimEnv) -> Result<(), RunError> {
    if drive.cluster.has_logs() {
        let targets: Vec<TargetId> = drive.cluster.map().targets.iter().map(|target| target.id).collect();
        drive.tally.borrow_mut().left = targets.len() as u32;
        for target in targets {
            sim.start(env, "flush", Rc::clone(drive).flush(target, env.clone()));
        }
        let waiting = Rc::clone(drive);
        sim.block_on(env, async move { waiting.wait_for_tasks().await });
        if let Some(failure) = drive.tally.borrow_mut().failure.take() {
            return Err(failure);
        }
    }
    let (syncing, env_here) = (Rc::clone(drive), env.clone());
    sim.block_on(env, async move { syncing.sync_written(&env_here).await })
}

/// Returns the servers' reports about the SSDs beside their disks.
fn statuses<'w>(
    sim: &mut Sim<'w>,
    drive: &Rc<Drive<'w>>,
    env: &SimEnv,
) -> Result<Vec<IbridgeOutcome>, RunError> {
    if !drive.cluster.has_logs() {
        return Ok(Vec::new());
    }
    let (drive, env_here) = (Rc::clone(drive), env.clone());
    sim.block_on(env, async move {
        let client = drive.cluster.client(env_here);
        let mut logs = Vec::new();
        for server in 0..drive.cluster.servers().len() as u32 {
            let status = client
                .status(ServerId(server))
                .await
                .map_err(|error| RunError::Server { server, why: error.to_string() })?;
            let of = |target: TargetStatus| Some((target.target.0, target.ssd?));
            logs.extend(status.targets.into_iter().filter_map(of));
        }
        Ok(logs.into_iter().map(|(target, status)| IbridgeOutcome { target, status }).collect())
    })
}

/// Describes an operation for an error message. The file's name is left out because the client's own message has it.
pub(crate) fn describe(op: &Op) -> String {
    match op {
        Op::Read { offset, len, .. } => format!("read of {len} bytes at {offset}"),
        Op::Write { offset, len, .. } => format!("write of {len} bytes at {offset}"),
        other => format!("{other:?}"),
    }
}

/// Returns the counters accumulated since `before`.
fn since(before: Vec<DeviceOutcome>, mut now: Vec<DeviceOutcome>) -> Vec<DeviceOutcome> {
    for (now, before) in now.iter_mut().zip(before) {
        now.counters = std::mem::take(&mut now.counters).since(&before.counters);
    }
    now
}

/// State shared by the tasks of all ranks.
struct Drive<'w> {
    workload: &'w dyn Workload,
    control: Control,
    cluster: Cluster,
    layout: meta::LayoutSpec,
    barriers: BTreeMap<u32, Barrier>,
    pause_us: f64,
    limit: Option<Nanos>,
    seed: u64,
    tally: RefCell<Tally>,
    done: SimNotify,
}

/// State of one rank while it runs.
struct Rank<'d, 'w> {
    drive: &'d Drive<'w>,
    rank: u32,
    env: SimEnv,
    client: Client<SimEnv>,
    open: BTreeMap<FileRef, OpenFile<SimEnv>>,
    phase: Option<u16>,
    buffer: Buffer,
    /// Number of pauses so far. It selects the next pause from the seed.
    pauses: u64,
}

/// Result of an operation.
enum StepResult {
    /// The operation sent no request to a server.
    NoRequest,
    /// A request of this kind that moved this number of bytes.
    Request(OpKind, u64),
}

impl<'w> Drive<'w> {
    /// Creates the workload's directory and its input files.
    async fn prepare(&self, env: &SimEnv) -> Result<(), RunError> {
        let needed = self.workload.inputs().fold(0u64, |sum, (_, len)| sum.saturating_add(len));
        let capacity =
            DiskFaults::default().capacity_bytes.saturating_mul(self.cluster.map().targets.len() as u64);
        if needed > capacity {
            // Fail now instead of filling the disks first.
            return Err(RunError::Inputs { needed, capacity });
        }
        let client = self.cluster.client(env.clone());
        let failed = |what: &str, error: Error| RunError::Op {
            rank: 0,
            op: format!("preparing {what}"),
            why: error.to_string(),
        };
        client.mkdir(&path_from_root(FOLDER.into()), 0o777).await.map_err(|error| failed(FOLDER, error))?;
        for (file, len) in self.workload.inputs() {
            let name = self.workload.name(file);
            self.make_input(&client, &name, len).await.map_err(|error| failed(&name, error))?;
        }
        Ok(())
    }

    async fn make_input(&self, client: &Client<SimEnv>, name: &str, len: u64) -> Result<(), Error> {
        let mut folder = String::from(FOLDER);
        let parts: Vec<&str> = name.split('/').collect();
        for part in &parts[..parts.len() - 1] {
            folder = format!("{folder}/{part}");
            if client.stat(&path_from_root(folder.clone())).await.is_err() {
                client.mkdir(&path_from_root(folder.clone()), 0o777).await?;
            }
        }
        let at = path_from_root(format!("{FOLDER}/{name}"));
        let file = client.open(&at, READ_WRITE_CREATE, 0o666, &self.layout).await?;
        let buffer = Buffer::new(client.env(), INPUT_PIECE.min(len) as usize);
        let mut offset = 0;
        while offset < len {
            let piece = INPUT_PIECE.min(len - offset) as usize;
            file.write_at(&[IoSlice::new(&buffer.bytes()[..piece])], FileOffset(offset)).await?;
            offset += piece as u64;
        }
        file.sync().await?;
        file.close().await
    }

    /// Flushes the SSD log of one target to the target's disk.
    async fn flush(self: Rc<Self>, target: TargetId, env: SimEnv) {
        let client = self.cluster.client(env);
        let flushed = client.flush_target(target, |_, _| ()).await;
        let mut tally = self.tally.borrow_mut();
        tally.left -= 1;
        if let Err(error) = flushed {
            let (op, why) = (format!("flushing target {}", target.0), error.to_string());
            tally.failure.get_or_insert(RunError::Op { rank: 0, op, why });
        }
        self.done.notify_all();
    }

    /// Syncs all files that were written, so that the servers' page caches reach the disks.
    async fn sync_written(&self, env: &SimEnv) -> Result<(), RunError> {
        let client = self.cluster.client(env.clone());
        let written = std::mem::take(&mut self.tally.borrow_mut().written);
        for file in written {
            let name = self.workload.name(file);
            let synced = async {
                let at = path_from_root(format!("{FOLDER}/{name}"));
                let flags = OpenFlags { write: true, ..OpenFlags::READ };
                let file = client.open(&at, flags, 0, &self.layout).await?;
                file.sync().await?;
                file.close().await
            };
            synced.await.map_err(|error| RunError::Op {
                rank: 0,
                op: format!("bringing {name} to the disks"),
                why: error.to_string(),
            })?;
        }
        Ok(())
    }

    fn outcome(
        &self,
        sim: &Sim,
        end: Nanos,
        before: Baseline,
        logs: Vec<IbridgeOutcome>,
        options: RunOptions,
    ) -> Outcome {
        let tally = std::mem::take(&mut *self.tally.borrow_mut());
        let start = tally.start;
        let of_ranks = tally.end.saturating_sub(start);
        let elapsed = if options.drain { end.saturating_sub(start) } else { of_ranks };
        let file_requests = tally.requests();
        Outcome {
            elapsed,
            drain: elapsed.saturating_sub(of_ranks),
            file_requests,
            data_messages: tally.data_messages,
            phases: tally.phases(self.workload),
            event_hash: sim.event_hash(),
            devices: since(before.devices, self.cluster.devices()),
            ibridge: logs.into_iter().zip(&before.logs).map(|(now, before)| now.since(before)).collect(),
            turns: sim.polls(),
            locking: None,
            delegates: None,
        }
    }

    async fn wait_for_tasks(&self) {
        loop {
            let epoch = self.done.epoch();
            {
                let tally = self.tally.borrow();
                if tally.left == 0 || tally.failure.is_some() {
                    return;
                }
            }
            self.done.wait(epoch, None).await;
        }
    }

    async fn rank(self: Rc<Self>, number: u32, env: SimEnv) {
        let client = self.cluster.client(env.clone());
        let buffer = Buffer::new(&env, 0);
        let open = BTreeMap::new();
        let mut rank = Rank { drive: &self, rank: number, env, client, open, phase: None, buffer, pauses: 0 };
        let result = rank.run().await;
        let mut tally = self.tally.borrow_mut();
        tally.left -= 1;
        tally.data_messages += rank.client.counts().data_messages;
        if let Err(failure) = result {
            tally.failure.get_or_insert(failure);
        }
        if tally.left == 0 || tally.failure.is_some() {
            self.done.notify_all();
        }
    }

    /// Fails if the pass has exceeded its limit.
    fn check_limit(&self) -> Result<(), RunError> {
        let Some(limit) = self.limit else { return Ok(()) };
        let passed = self.control.elapsed().saturating_sub(self.tally.borrow().start);
        if passed > limit { Err(RunError::Late(limit)) } else { Ok(()) }
    }

    fn count(&self, phase: Option<u16>, kind: OpKind, bytes: u64, start: Nanos) {
        self.tally.borrow_mut().count(phase, (kind, bytes), (start, self.control.elapsed()));
    }
}

const READ_WRITE_CREATE: OpenFlags = OpenFlags { write: true, create: true, ..OpenFlags::READ };

fn path_from_root(path: String) -> InodePath {
    InodePath::from_root(path, true)
}

/// Why an operation failed.
enum Failed {
    Client(Error),
    Workload(&'static str),
}

const NOT_OPEN: Failed = Failed::Workload("the rank does not have this file open");

/// Buffer that a rank reads into and writes from.
pub(crate) enum Buffer {
    Bytes(Vec<u8>),
    Hollow(Hollow),
}

impl Buffer {
    pub(crate) fn new(env: &SimEnv, len: usize) -> Self {
        env.hollow(len).map_or_else(|| Self::Bytes(vec![0; len]), Self::Hollow)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Hollow(bytes) => bytes,
        }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Hollow(bytes) => bytes,
        }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

impl Rank<'_, '_> {
    async fn run(&mut self) -> Result<(), RunError> {
        for op in self.drive.workload.ops(self.rank) {
            if !matches!(op, Op::Barrier | Op::Phase(_) | Op::Compute(_)) {
                self.pause().await;
            }
            let start = self.drive.control.elapsed();
            let (rank, what) = (self.rank, || describe(&op));
            match self.step(op).await {
                Ok(StepResult::Request(kind, bytes)) => self.drive.count(self.phase, kind, bytes, start),
                Ok(StepResult::NoRequest) => {}
                Err(Failed::Client(error)) => {
                    return Err(RunError::Op { rank, op: what(), why: error.to_string() });
                }
                Err(Failed::Workload(why)) => return Err(RunError::Workload { rank, op: what(), why }),
            }
            self.drive.check_limit()?;
        }
        let mut tally = self.drive.tally.borrow_mut();
        tally.end = tally.end.max(self.drive.control.elapsed());
        Ok(())
    }

    /// Waits for the time that the process computes before an operation.
    async fn pause(&mut self) {
        let mean = self.drive.pause_us;
        if mean > 0.0 {
            self.pauses += 1;
            let number = splitmix64(splitmix64(u64::from(self.rank) ^ self.drive.seed) ^ self.pauses);
            // In (0, 1]: the negative logarithm of a uniform number is exponentially distributed.
            let chance = ((number >> 11) + 1) as f64 / (1u64 << 53) as f64;
            self.env.sleep(Nanos((-chance.ln() * mean * 1e3) as u64)).await;
        }
    }

    fn inode_path(&self, file: FileRef) -> InodePath {
        path_from_root(format!("{FOLDER}/{}", self.drive.workload.name(file)))
    }

    fn file(&self, file: FileRef) -> Result<&OpenFile<SimEnv>, Failed> {
        self.open.get(&file).ok_or(NOT_OPEN)
    }

    async fn step(&mut self, op: Op) -> Result<StepResult, Failed> {
        let (kind, bytes) = match op {
            Op::Barrier => {
                let group = self.drive.workload.group(self.rank).start;
                self.drive.barriers[&group].wait(&self.env).await;
                return Ok(StepResult::NoRequest);
            }
            Op::Phase(phase) => {
                self.phase = Some(phase);
                return Ok(StepResult::NoRequest);
            }
            Op::Compute(time) => {
                self.env.sleep(time).await;
                return Ok(StepResult::NoRequest);
            }
            Op::Open { file, create } => {
                let opened = self.open_now(file, create).await?;
                if self.open.insert(file, opened).is_some() {
                    return Err(Failed::Workload("the rank has this file open already"));
                }
                (OpKind::Open, 0)
            }
            Op::Close { file } => {
                let open = self.open.remove(&file);
                open.ok_or(NOT_OPEN)?.close().await?;
                (OpKind::Close, 0)
            }
            Op::Read { file, offset, len, .. } => (OpKind::Read, self.read(file, offset, len).await?),
            Op::Write { file, offset, len, .. } => (OpKind::Write, self.write(file, offset, len).await?),
            Op::Sync { file } => {
                self.file(file)?.sync().await?;
                (OpKind::Sync, 0)
            }
            Op::SetLen { file, len } => {
                self.file(file)?.truncate(ByteLen(len)).await?;
                (OpKind::SetLen, 0)
            }
            Op::Mkdir { file } => {
                self.client.mkdir(&self.inode_path(file), 0o777).await?;
                (OpKind::Mkdir, 0)
            }
            Op::Create { file } => {
                self.open_now(file, true).await?.close().await?;
                (OpKind::Create, 0)
            }
            Op::Stat { file } => {
                self.client.stat(&self.inode_path(file)).await?;
                (OpKind::Stat, 0)
            }
            Op::Resize { file, len } => {
                self.client.truncate(&self.inode_path(file), ByteLen(len)).await?;
                (OpKind::Resize, 0)
            }
            Op::Remove { file } => {
                self.client.unlink(&self.inode_path(file)).await?;
                self.drive.tally.borrow_mut().written.remove(&file);
                (OpKind::Remove, 0)
            }
            Op::Rmdir { file } => {
                self.client.rmdir(&self.inode_path(file)).await?;
                (OpKind::Rmdir, 0)
            }
        };
        Ok(StepResult::Request(kind, bytes))
    }

    async fn open_now(&self, file: FileRef, create: bool) -> Result<OpenFile<SimEnv>, Error> {
        let flags = if create { READ_WRITE_CREATE } else { OpenFlags::READ };
        self.client.open(&self.inode_path(file), flags, 0o666, &self.drive.layout).await
    }

    fn reserve_buffer(&mut self, len: u64) {
        if (self.buffer.bytes().len() as u64) < len {
            self.buffer = Buffer::new(&self.env, len as usize);
        }
    }

    async fn read(&mut self, file: FileRef, offset: u64, len: u64) -> Result<u64, Failed> {
        self.reserve_buffer(len);
        let open = self.open.get(&file).ok_or(NOT_OPEN)?;
        let bufs = &mut [IoSliceMut::new(&mut self.buffer.bytes_mut()[..len as usize])];
        Ok(open.read_at(bufs, FileOffset(offset)).await? as u64)
    }

    async fn write(&mut self, file: FileRef, offset: u64, len: u64) -> Result<u64, Failed> {
        self.reserve_buffer(len);
        let bytes = &self.buffer.bytes()[..len as usize];
        let wrote = self.file(file)?.write_at(&[IoSlice::new(bytes)], FileOffset(offset)).await? as u64;
        self.drive.tally.borrow_mut().written.insert(file);
        if wrote < len {
            return Err(Failed::Workload("a disk is full: give the targets more capacity"));
        }
        Ok(wrote)
    }
}
