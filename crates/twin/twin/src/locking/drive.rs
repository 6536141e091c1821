//! Runs a workload on a locking file system, with or without delegates.

use super::delegates::Job;
use super::exchange::Exchange;
use super::handle::{LockedFile, LockingMount};
use super::outcome::DelegatesOutcome;
use super::state::{ClientNumber, LockingFs};
use super::write_back::{DISK, OBJECTS};
use crate::RunOptions;
use crate::barrier::{Barrier, barriers};
use crate::device;
use crate::drive::{Buffer, describe};
use crate::outcome::{DeviceOutcome, DeviceRole, OpKind, Outcome, RunError};
use crate::spec::{ClusterSpec, SpecError};
use crate::tally::Tally;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use weft_client::{DelegatedFile, Delegates, FileHandle, RankOf, WritePiece};
use weft_core::{ByteLen, FileOffset, Nanos};
use weft_env::sim::{self, Control, Sim, SimConfig, SimEnv, SimNotify};
use weft_env::{Dir, Env, Notify};
use weft_workload::{FileRef, Op, Workload};

/// User id of all processes.
const USER: u32 = 1000;

/// Builds the machines and runs the workload.
///
/// # Errors
/// The first error.
pub(crate) fn run(
    spec: &ClusterSpec,
    workload: &dyn Workload,
    options: RunOptions,
) -> Result<Outcome, RunError> {
    let refused = |field: &str, why: &str| RunError::Spec(SpecError::new(field, why));
    if options.passes != 1 {
        return Err(refused("run.passes", "a locking file system has no second pass: write 1"));
    }
    if workload.inputs().next().is_some() {
        return Err(refused(
            "workload",
            "the files of a locking file system are new: write access = \"write\"",
        ));
    }
    let locking = spec.locking.as_ref().expect("checked by the caller");
    let payload = sim::Payload::Lengths;
    let mut sim = Sim::new(SimConfig { seed: spec.seed, shuffle: spec.shuffle, payload });
    let control = sim.control();
    control.set_network(match &spec.network_figures {
        Some(figures) => figures.build(),
        None => device::network(&spec.network)?,
    });
    let mut servers = Vec::new();
    for index in 0..locking.server_count() {
        let server = control.add_machine(&format!("s{index}"));
        let seed = spec.disk_seed(weft_core::TargetId(index));
        control.add_disk(&server, Path::new(DISK), device::disk(&spec.profiles, &locking.profile, seed)?);
        control.count_payload(&server, Path::new(DISK), OBJECTS, &[]);
        control.keep_lengths(&server, Path::new(DISK), OBJECTS, &[]);
        servers.push(server);
    }
    let fs = LockingFs::new(locking, &control, servers);
    let ranks = workload.ranks();
    let nodes: Vec<SimEnv> = (0..ranks.div_ceil(spec.processes_per_node))
        .map(|node| control.add_machine(&format!("n{node}")))
        .collect();
    let outside = control.add_machine("outside");
    let request_timeout = Nanos::from_s(spec.client.request_timeout_s);
    let has_delegates = spec.delegates.count > 0;
    let job = has_delegates.then(|| Job::new(&control, &spec.delegates, USER, request_timeout));
    let machine = |rank: u32| nodes[(rank / spec.processes_per_node) as usize].clone();
    let exchange = |first: u32| {
        let group = workload.group(first);
        Exchange::new(&control, first, group.map(machine).collect())
    };
    let barriers = barriers(spec, workload, &outside);
    let drive = Rc::new(Drive {
        workload,
        exchanges: barriers.keys().map(|first| (*first, exchange(*first))).collect(),
        barriers,
        all_ready: Barrier::new(&outside, ranks, Nanos::ZERO),
        processes: (0..ranks).map(|rank| control.process(&machine(rank), "rank", USER, USER)).collect(),
        limit: options.limit,
        tally: RefCell::new(Tally { left: ranks, ..Tally::default() }),
        memory_max: RefCell::new(0),
        done: outside.notify(),
        control,
        fs,
        job,
    });
    let prepared = Rc::clone(&drive);
    let _delegates = sim.block_on(&outside, async move { prepared.prepare().await })?;
    for rank in 0..ranks {
        let env = drive.processes[rank as usize].clone();
        sim.start(&env, "rank", Rc::clone(&drive).rank(rank, env.clone()));
    }
    let observer = Rc::clone(&drive);
    sim.start(&outside, "observer", observer.observe(outside.clone()));
    let waiting = Rc::clone(&drive);
    sim.block_on(&outside, async move { waiting.wait_for_ranks().await });
    if let Some(failure) = drive.tally.borrow_mut().failure.take() {
        return Err(failure);
    }
    if options.drain {
        let draining = Rc::clone(&drive);
        sim.block_on(&outside, async move { draining.drain().await });
        drive.check_limit()?;
    }
    let end = sim.elapsed();
    let (asking, env) = (Rc::clone(&drive), outside.clone());
    let delegates = sim.block_on(&outside, async move {
        let Some(job) = &asking.job else { return Ok(None) };
        let observer = job.join(&env, None).await.map_err(|why| RunError::Server { server: 0, why })?;
        let last = job.outcome(&observer).await?;
        let memory_max = last.memory_max.max(*asking.memory_max.borrow());
        Ok::<_, RunError>(Some(DelegatesOutcome { memory_max, ..last }))
    })?;
    let tally = std::mem::take(&mut *drive.tally.borrow_mut());
    let of_ranks = tally.end.saturating_sub(tally.start);
    let elapsed = if options.drain { end.saturating_sub(tally.start) } else { of_ranks };
    let disk = |(index, server): (usize, &SimEnv)| DeviceOutcome {
        server: index as u32,
        role: DeviceRole::Target,
        target: Some(index as u32),
        class: "hdd".to_owned(),
        profile: locking.profile.clone(),
        counters: drive.control.disk_counters(server, Path::new(DISK)),
    };
    Ok(Outcome {
        elapsed,
        drain: elapsed.saturating_sub(of_ranks),
        file_requests: tally.requests(),
        data_messages: 0,
        phases: tally.phases(workload),
        event_hash: sim.event_hash(),
        devices: drive.fs.servers.iter().enumerate().map(disk).collect(),
        ibridge: Vec::new(),
        turns: sim.polls(),
        locking: Some(drive.fs.counters()),
        delegates,
    })
}

/// State shared by the tasks of all ranks.
struct Drive<'w> {
    workload: &'w dyn Workload,
    control: Control,
    fs: Arc<LockingFs>,
    job: Option<Job>,
    processes: Vec<SimEnv>,
    barriers: BTreeMap<u32, Barrier>,
    exchanges: BTreeMap<u32, Exchange>,
    /// All ranks are connected.
    all_ready: Barrier,
    limit: Option<Nanos>,
    tally: RefCell<Tally>,
    /// Most bytes of pages seen in the memory of one delegate.
    memory_max: RefCell<u64>,
    done: SimNotify,
}

/// Interval between two samples of the delegates' memory.
const SAMPLE_INTERVAL: Nanos = Nanos::from_ms(250);

impl Drive<'_> {
    /// Creates the directories of the servers and starts the delegates.
    async fn prepare(&self) -> Result<Vec<weft_server::ServerHandle<SimEnv>>, RunError> {
        for (server, env) in (0..).zip(&self.fs.servers) {
            let made = async {
                let root = env.dir(Path::new(DISK)).await?;
                root.make_dir(OBJECTS).await?;
                root.sync("").await
            };
            made.await
                .map_err(|error: std::io::Error| RunError::Server { server, why: error.to_string() })?;
        }
        match &self.job {
            Some(job) => job.start(&self.fs).await,
            None => Ok(Vec::new()),
        }
    }

    async fn wait_for_ranks(&self) {
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

    /// Samples the memory of the delegates until the ranks end. An error is one of the ranks, too.
    async fn observe(self: Rc<Self>, env: SimEnv) {
        let Some(job) = &self.job else { return };
        let Ok(observer) = job.join(&env, None).await else { return };
        while self.tally.borrow().left > 0 {
            let Ok(now) = job.outcome(&observer).await else { return };
            let most = now.memory_max.max(*self.memory_max.borrow());
            self.memory_max.replace(most);
            env.sleep(SAMPLE_INTERVAL).await;
        }
    }

    /// Waits until all clients have written their dirty bytes.
    async fn drain(&self) {
        let (clients, files) = {
            let state = self.fs.state.lock();
            (state.clients.len() as u32, state.sizes.len() as u32)
        };
        let each = (0..clients).map(|client| async move {
            for file in 0..files {
                self.fs.write_file(ClientNumber(client), file).await;
            }
        });
        super::write_back::all(each).await;
    }

    fn check_limit(&self) -> Result<(), RunError> {
        let Some(limit) = self.limit else { return Ok(()) };
        let passed = self.control.elapsed().saturating_sub(self.tally.borrow().start);
        if passed > limit { Err(RunError::Late(limit)) } else { Ok(()) }
    }

    async fn rank(self: Rc<Self>, number: u32, env: SimEnv) {
        let result = Rank::run(&self, number, &env).await;
        let mut tally = self.tally.borrow_mut();
        tally.left -= 1;
        if let Err(failure) = result {
            tally.failure.get_or_insert(failure);
        }
        if tally.left == 0 || tally.failure.is_some() {
            self.done.notify_all();
        }
    }
}

/// An open file of a rank.
enum OpenFile {
    Own(LockedFile),
    Delegated(Box<DelegatedFile<SimEnv, LockedFile>>),
}

/// State of one rank while it runs.
struct Rank<'d, 'w> {
    drive: &'d Drive<'w>,
    rank: u32,
    env: &'d SimEnv,
    mount: LockingMount,
    delegates: Option<Delegates<SimEnv>>,
    open: BTreeMap<FileRef, OpenFile>,
    phase: Option<u16>,
    buffer: Buffer,
    barriers: u64,
}

const NOT_OPEN: &str = "the rank does not have this file open";

impl<'d, 'w> Rank<'d, 'w> {
    async fn run(drive: &'d Drive<'w>, rank: u32, env: &'d SimEnv) -> Result<(), RunError> {
        let delegates = match &drive.job {
            None => None,
            Some(job) => {
                let ranks = drive.workload.ranks();
                let joined = job.join(env, Some(RankOf { rank, ranks })).await;
                Some(joined.map_err(|why| RunError::Op { rank, op: "joining the delegates".into(), why })?)
            }
        };
        let mut this = Self {
            drive,
            rank,
            env,
            mount: LockingMount::new(&drive.fs, env),
            delegates,
            open: BTreeMap::new(),
            phase: None,
            buffer: Buffer::new(env, 0),
            barriers: 0,
        };
        drive.all_ready.wait(env).await;
        drive.tally.borrow_mut().start = drive.control.elapsed();
        let mut ops = drive.workload.ops(rank).peekable();
        while let Some(op) = ops.next() {
            let mut pieces = Vec::new();
            if let Op::Write { file, offset, len, collective } = op {
                pieces.push((offset, len));
                // The pieces of a collective call are one call.
                while let Some(Op::Write { file: next, offset, len, collective: true }) = ops.peek()
                    && collective
                    && *next == file
                {
                    pieces.push((*offset, *len));
                    ops.next();
                }
            }
            this.perform(op, &pieces).await?;
            drive.check_limit()?;
        }
        let mut tally = drive.tally.borrow_mut();
        tally.end = tally.end.max(drive.control.elapsed());
        Ok(())
    }

    async fn perform(&mut self, op: Op, pieces: &[(u64, u64)]) -> Result<(), RunError> {
        let start = self.drive.control.elapsed();
        let rank = self.rank;
        let failed =
            |error: weft_client::Error| RunError::Op { rank, op: describe(&op), why: error.to_string() };
        let misplaced = |why| RunError::Workload { rank, op: describe(&op), why };
        let (kind, bytes) = match op {
            Op::Barrier => {
                self.barrier().await;
                return Ok(());
            }
            Op::Phase(phase) => {
                self.phase = Some(phase);
                return Ok(());
            }
            Op::Compute(time) => {
                self.env.sleep(time).await;
                return Ok(());
            }
            Op::Open { file, .. } => {
                self.open(file).await;
                (OpKind::Open, 0)
            }
            Op::Close { file } => {
                match self.open.remove(&file).ok_or_else(|| misplaced(NOT_OPEN))? {
                    OpenFile::Own(file) => file.close().await,
                    OpenFile::Delegated(file) => file.close().await,
                }
                .map_err(failed)?;
                (OpKind::Close, 0)
            }
            Op::Write { file, .. } => {
                let bytes =
                    self.write(file, pieces).await.ok_or_else(|| misplaced(NOT_OPEN))?.map_err(failed)?;
                (OpKind::Write, bytes)
            }
            Op::Read { file, offset, len, .. } => {
                self.reserve(len);
                let open = self.open.get(&file).ok_or_else(|| misplaced(NOT_OPEN))?;
                let bufs = &mut [IoSliceMut::new(&mut self.buffer.bytes_mut()[..len as usize])];
                let read = match open {
                    OpenFile::Own(file) => file.read_at(bufs, FileOffset(offset)).await,
                    OpenFile::Delegated(file) => file.read_at(bufs, FileOffset(offset)).await,
                };
                (OpKind::Read, read.map_err(failed)? as u64)
            }
            Op::Sync { file } => {
                match self.open.get(&file).ok_or_else(|| misplaced(NOT_OPEN))? {
                    OpenFile::Own(file) => file.sync().await,
                    OpenFile::Delegated(file) => file.sync().await,
                }
                .map_err(failed)?;
                (OpKind::Sync, 0)
            }
            Op::SetLen { file, len } => {
                match self.open.get(&file).ok_or_else(|| misplaced(NOT_OPEN))? {
                    OpenFile::Own(file) => file.truncate(ByteLen(len)).await,
                    OpenFile::Delegated(file) => file.truncate(ByteLen(len)).await,
                }
                .map_err(failed)?;
                (OpKind::SetLen, 0)
            }
            Op::Mkdir { .. }
            | Op::Create { .. }
            | Op::Stat { .. }
            | Op::Resize { .. }
            | Op::Remove { .. }
            | Op::Rmdir { .. } => {
                return Err(misplaced("the model of a locking file system has no such operation"));
            }
        };
        let times = (start, self.drive.control.elapsed());
        self.drive.tally.borrow_mut().count(self.phase, (kind, bytes), times);
        Ok(())
    }

    async fn barrier(&mut self) {
        let group = self.drive.workload.group(self.rank);
        self.drive.barriers[&group.start].wait(self.env).await;
        let messages = self.drive.workload.exchange(self.rank, self.barriers);
        self.barriers += 1;
        // In a call with an exchange, each rank has pieces and sends a message, if only to itself.
        if !messages.is_empty() {
            self.drive.exchanges[&group.start].run(self.env, self.rank, messages).await;
        }
    }

    async fn open(&mut self, file: FileRef) {
        let name = self.drive.workload.name(file);
        let own = self.mount.open_file(&name).await;
        let open = match (&self.drive.job, &self.delegates) {
            (Some(job), Some(delegates)) => OpenFile::Delegated(Box::new(job.wrap(delegates, own, &name))),
            _ => OpenFile::Own(own),
        };
        self.open.insert(file, open);
    }

    fn reserve(&mut self, len: u64) {
        if (self.buffer.bytes().len() as u64) < len {
            self.buffer = Buffer::new(self.env, len as usize);
        }
    }

    /// Writes pieces and returns their length; `None` if the file is not open.
    async fn write(&mut self, file: FileRef, pieces: &[(u64, u64)]) -> Option<weft_client::Result<u64>> {
        let bytes: u64 = pieces.iter().map(|(_, len)| len).sum();
        self.reserve(bytes);
        let written = match self.open.get(&file)? {
            OpenFile::Own(file) => self.write_each(file, pieces).await,
            OpenFile::Delegated(file) => {
                let mut rest = &self.buffer.bytes()[..bytes as usize];
                let mut list = Vec::with_capacity(pieces.len());
                for (offset, len) in pieces {
                    let (bytes, behind) = rest.split_at(*len as usize);
                    list.push(WritePiece { offset: FileOffset(*offset), bytes });
                    rest = behind;
                }
                file.write_list(&list).await
            }
        };
        Some(written.map(|()| bytes))
    }

    async fn write_each(&self, file: &LockedFile, pieces: &[(u64, u64)]) -> weft_client::Result<()> {
        for (offset, len) in pieces {
            let bytes = &self.buffer.bytes()[..*len as usize];
            file.write_at(&[IoSlice::new(bytes)], FileOffset(*offset)).await?;
        }
        Ok(())
    }
}
