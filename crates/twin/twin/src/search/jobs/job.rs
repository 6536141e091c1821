//! The delegates of a job, their deaths and their failed writes.

use super::plan::JobPlan;
use crate::search::judge::Judge;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use weft_client::{
    ClientOptions, Credentials, DelegatedFile, DelegatedSpec, Delegates, HostFile, JobMap, Key, RankOf,
    Source,
};
use weft_core::delegates::ownership::{FileNumber, PageId, PageIndex, Policy, hashed_owner};
use weft_core::{FileId, Nanos};
use weft_delegate::{DelegateConfig, HostOrWeft, Underlying};
use weft_env::sim::{Control, SimEnv, SimFile, SimpleDisk};
use weft_env::{Address, Dir, Env, File, OpenMode};
use weft_server::{Hooks, ServerHandle};
use weft_wire::ClusterSecret;
use weft_wire::cluster::ServerEntry;
use weft_wire::delegate::FileSource;

/// User id of all processes.
pub const USER: u32 = 1000;
/// Mount path of the disk below.
pub const DATA: &str = "/data";
/// Name of the file.
pub const NAME: &str = "f";
/// The file in the models.
pub const FILE: FileId = FileId(1);
/// Pages of the file whose owners the models know. No write goes further.
const PAGES_MAX: u64 = 2048;
/// Time after a fault during which it may cause errors: the time-out of requests, and repetitions of some.
const ERRORS_AFTER_FAULT: Nanos = Nanos::from_s(60);

/// The file of a rank.
pub type RankFile = DelegatedFile<SimEnv, HostFile<SimEnv>>;

/// A delegate.
struct Delegate {
    env: SimEnv,
    handle: Arc<ServerHandle<SimEnv>>,
}

/// State of delegates and faults.
#[derive(Default)]
struct Known {
    /// Delegates that were killed, or were asked to end.
    gone: BTreeSet<u32>,
    /// Writes to the underlying file that failed.
    failures: usize,
    /// Faults other than the end of a process that are active.
    disturbances: u32,
    /// Time at which the last of them ended.
    disturbed_until: Option<Nanos>,
}

/// A job.
pub struct Job {
    /// The drawn plan.
    pub plan: JobPlan,
    /// Control of the world.
    pub control: Control,
    /// The judge.
    pub judge: Judge,
    /// A process on the machine with the disk.
    pub disk: SimEnv,
    /// A process on each machine of ranks and delegates.
    pub machines: Vec<SimEnv>,
    entries: Vec<ServerEntry>,
    delegates: Vec<Delegate>,
    known: Arc<Mutex<Known>>,
}

/// A file system that all machines share, such as NFS without caches: processes use files of the machine with the disk.
struct SharedDisk(SimEnv);

impl Underlying<SimEnv> for SharedDisk {
    type File = HostFile<SimEnv>;

    async fn open(
        &self,
        _: &FileSource,
        _: Option<SimFile>,
        _: bool,
        name: &[u8],
    ) -> weft_client::Result<HostFile<SimEnv>> {
        let opened = open_below(&self.0).await;
        let file = opened.map_err(|error| HostFile::<SimEnv>::failure(name, &error))?;
        Ok(HostFile::new(file, name.to_vec()))
    }
}

async fn open_below(env: &SimEnv) -> std::io::Result<SimFile> {
    env.dir(Path::new(DATA)).await?.open(NAME, OpenMode::CREATE).await
}

fn secret() -> ClusterSecret {
    ClusterSecret::new(&[7; 32])
}

impl Job {
    /// Builds the machines and starts the delegates.
    pub async fn start(control: &Control, plan: JobPlan, judge: &Judge) -> Self {
        let disk_machine = control.add_machine("disk");
        control.add_disk(&disk_machine, Path::new(DATA), Box::new(SimpleDisk::default()));
        let disk = control.process(&disk_machine, "disk", USER, USER);
        let machines: Vec<SimEnv> = match plan.machines {
            0 => vec![disk.clone()],
            machines => (0..machines).map(|at| control.add_machine(&format!("m{at}"))).collect(),
        };
        let entries = (0..plan.delegates).map(|index| {
            let socket = Address::Unix(format!("/job/{index}.sock").into());
            let network = Address::Tcp(format!("m{}", index as usize % machines.len()), 4000 + index as u16);
            let addresses = match (plan.is_local(), plan.has_sockets) {
                (true, _) => vec![socket],
                (false, true) => vec![socket, network],
                (false, false) => vec![network],
            };
            ServerEntry { name: format!("delegate {index}"), addresses }
        });
        let entries: Vec<ServerEntry> = entries.collect();
        // The name must survive a loss of power.
        open_below(&disk).await.expect("creates the file");
        let dir = disk.dir(Path::new(DATA)).await.expect("the disk is mounted");
        dir.sync("").await.expect("syncs the directory");
        let mut job = Self {
            plan,
            control: control.clone(),
            judge: judge.clone(),
            disk,
            machines,
            entries,
            delegates: Vec::new(),
            known: Arc::default(),
        };
        for index in 0..job.plan.delegates {
            let delegate = job.serve(index).await;
            job.delegates.push(delegate);
        }
        job
    }

    async fn serve(&self, index: u32) -> Delegate {
        let machine = &self.machines[index as usize % self.machines.len()];
        let env = self.control.process(machine, &format!("delegate {index}"), USER, USER);
        let (judge, known) = (self.judge.clone(), Arc::clone(&self.known));
        let log = move |line: &str| {
            judge.say(|| format!("delegate {index}: {line}"));
            if line.contains("a bug in the server") {
                judge.violated("no panic", format!("delegate {index}: {line}"));
            }
            if let Some((start, end)) = failed_range(line) {
                judge.hit("write-behind: failed");
                known.lock().failures += 1;
                judge.file(FILE, |model, now| model.lost_bytes(start, end, now));
            }
        };
        let config = DelegateConfig {
            job: "job".into(),
            delegates: self.entries.clone(),
            settings: self.plan.settings(index),
            addresses: self.entries[index as usize].addresses.clone(),
            secret: secret(),
            dirty_high: self.plan.memory_pages * self.plan.page_len / 2,
            idle: Nanos::from_ms(10),
            idle_exit: None,
            host: "host".into(),
            hooks: Hooks { uid: USER, pid: index + 1, log: Arc::new(log), ..Hooks::none() },
        };
        let handle = match self.plan.is_local() {
            true => weft_delegate::start(env.clone(), config, HostOrWeft::new(env.clone(), None)).await,
            false => weft_delegate::start(env.clone(), config, SharedDisk(self.disk.clone())).await,
        };
        Delegate { env, handle: Arc::new(handle.expect("a delegate starts")) }
    }

    /// Creates the process of a rank.
    pub fn rank_process(&self, rank: u32) -> SimEnv {
        let machine = &self.machines[rank as usize % self.machines.len()];
        self.control.process(machine, &format!("rank {rank}"), USER, USER)
    }

    /// Connects a rank.
    pub async fn join(&self, env: &SimEnv, rank: u32) -> weft_client::Result<Delegates<SimEnv>> {
        let map = JobMap { name: "job".into(), delegates: self.entries.clone() };
        let credentials =
            Credentials::user(USER, USER, Vec::new()).with_key(Key::Cluster(Box::new(secret())));
        let options = ClientOptions { pid: rank + 100, ..ClientOptions::default() };
        let of = RankOf { rank, ranks: self.plan.ranks };
        Delegates::join(env.clone(), map, options, credentials, Some(of)).await
    }

    /// Opens the file as a rank.
    pub async fn open(&self, env: &SimEnv, delegates: &Delegates<SimEnv>) -> std::io::Result<RankFile> {
        let file = open_below(if self.plan.is_local() { env } else { &self.disk }).await?;
        let path = format!("{DATA}/{NAME}").into_bytes();
        let inode = file.meta().await?.inode;
        let spec = DelegatedSpec {
            number: number(),
            source: Source::Host { file: file.clone(), path: path.clone(), inode },
            page_len: self.plan.page_len,
            read: true,
            write: true,
            path: path.clone(),
        };
        Ok(DelegatedFile::new(delegates, HostFile::new(file, path), spec))
    }

    /// Owner of a page, where the policy computes it.
    fn owner(&self, page: u64) -> Option<u32> {
        let id = PageId::new(number(), PageIndex(page));
        let owner = || hashed_owner(id, self.plan.delegates, self.plan.group_pages).0;
        (self.plan.policy == Policy::Hashed).then(owner)
    }

    /// Returns the delegates that a write of `start..end` needs, where the policy computes them.
    pub fn owners(&self, start: u64, end: u64) -> Option<BTreeSet<u32>> {
        (start / self.plan.page_len..end.div_ceil(self.plan.page_len)).map(|page| self.owner(page)).collect()
    }

    /// Kills a delegate. Bytes that it had not written are lost.
    pub fn kill(&self, index: u32) {
        self.control.kill(&self.delegates[index as usize].env);
        self.known.lock().gone.insert(index);
        let len = self.plan.page_len;
        self.judge.file(FILE, |model, now| match self.plan.policy {
            Policy::FirstTouch => model.lost_bytes(0, u64::MAX, now),
            Policy::Hashed => {
                for page in (0..PAGES_MAX).filter(|page| self.owner(*page) == Some(index)) {
                    model.lost_bytes(page * len, (page + 1) * len, now);
                }
            }
        });
    }

    /// Asks a delegate to end; its process ends once it has written its bytes.
    pub fn stop(&self, index: u32, env: &SimEnv) {
        self.known.lock().gone.insert(index);
        let delegate = &self.delegates[index as usize];
        let (handle, process) = (Arc::clone(&delegate.handle), delegate.env.clone());
        let (control, judge) = (self.control.clone(), self.judge.clone());
        let stop = move || async move {
            handle.stop().await;
            judge.say(|| format!("delegate {index} has ended"));
            control.kill(&process);
        };
        env.spawn("stop", stop).expect("the judge runs");
    }

    /// Whether the process of a delegate runs.
    pub fn is_alive(&self, index: u32) -> bool {
        self.control.is_alive(&self.delegates[index as usize].env)
    }

    /// Delegates that have died or were asked to end.
    pub fn gone(&self) -> BTreeSet<u32> {
        self.known.lock().gone.clone()
    }

    /// Number of failed writes of dirty bytes so far.
    pub fn failures(&self) -> usize {
        self.known.lock().failures
    }

    /// A fault that any operation may notice begins or ends.
    pub fn disturb(&self, begins: bool) {
        let mut known = self.known.lock();
        known.disturbances = if begins { known.disturbances + 1 } else { known.disturbances - 1 };
        known.disturbed_until = Some(self.control.elapsed());
    }

    /// Whether no fault but the end of processes can have caused an error of an operation that began at `since`.
    pub fn is_quiet(&self, since: Nanos) -> bool {
        let known = self.known.lock();
        let is_over = known.disturbed_until.is_none_or(|end| since >= end.saturating_add(ERRORS_AFTER_FAULT));
        known.disturbances == 0 && is_over
    }

    /// Reads the underlying file.
    pub async fn below(&self) -> weft_client::Result<Vec<u8>> {
        read_below(&self.disk).await
    }
}

/// Reads the underlying file as a process of the machine with the disk.
pub async fn read_below(env: &SimEnv) -> weft_client::Result<Vec<u8>> {
    let failed = |error: std::io::Error| HostFile::<SimEnv>::failure(NAME.as_bytes(), &error);
    let file = HostFile::<SimEnv>::new(open_below(env).await.map_err(failed)?, NAME.into());
    let len = weft_client::FileHandle::size(&file).await?.0;
    let mut bytes = vec![0; len as usize];
    let read = weft_client::read_all(&file, &mut bytes, weft_core::FileOffset(0)).await?;
    bytes.truncate(read);
    Ok(bytes)
}

fn number() -> FileNumber {
    FileNumber::of_host(0, 1)
}

/// Returns the range of a logged failure of write-behind.
fn failed_range(line: &str) -> Option<(u64, u64)> {
    let rest = line.strip_prefix("warn: bytes ")?;
    let (start, rest) = rest.split_once(" to ")?;
    let (end, rest) = rest.split_once(" of ")?;
    rest.contains("could not be written").then_some((start.parse().ok()?, end.parse().ok()?))
}
