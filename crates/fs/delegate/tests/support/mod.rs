//! A job with delegates in the simulated world.

#![allow(dead_code)] // Each test program uses a part.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use weft_client::{
    ClientOptions, Credentials, DelegatedFile, DelegatedSpec, Delegates, FileHandle, HostFile,
    HostOrWeftFile, JobMap, Key, RankOf, Source,
};
use weft_core::delegates::ownership::{FileNumber, Policy};
use weft_core::{ByteLen, FileOffset, Nanos};
use weft_delegate::{DelegateConfig, HostOrWeft, Recall, Recalls, Underlying};
use weft_env::sim::{Control, Sim, SimEnv, SimNotify, SimpleDisk};
use weft_env::{Address, Dir, Env, Notify, OpenMode};
use weft_server::{Hooks, ServerHandle};
use weft_wire::ClusterSecret;
use weft_wire::cluster::ServerEntry;
use weft_wire::delegate::{FileSource, JobSettings};

pub const PAGE: u64 = 4096;
pub const DATA: &str = "/data";
const USER: u32 = 1000;

/// A file of a rank.
pub type RankFile = DelegatedFile<SimEnv, HostFile<SimEnv>>;

/// Delegates of one job on one or several machines.
pub struct Job {
    pub settings: JobSettings,
    pub machine: SimEnv,
    secret: ClusterSecret,
    entries: Vec<ServerEntry>,
    pub delegates: Vec<(SimEnv, ServerHandle<SimEnv>)>,
    pub outside: Arc<Outside>,
}

/// A program outside of the job, whose opens a metadata service reports to the delegates.
pub struct Outside {
    state: Mutex<OutsideState>,
    changed: SimNotify,
}

#[derive(Default)]
struct OutsideState {
    /// Files that it has opened, one after the other.
    opened: Vec<FileNumber>,
    /// File that it has open.
    open: Option<FileNumber>,
    /// Number of opens that each delegate has acknowledged.
    acknowledged: BTreeMap<u32, u64>,
}

impl Outside {
    /// Opens a file, and waits until all delegates have acknowledged that.
    pub async fn open(&self, file: FileNumber, delegates: u32) {
        let number = {
            let mut state = self.state.lock();
            state.opened.push(file);
            state.open = Some(file);
            state.opened.len() as u64
        };
        self.changed.notify_all();
        loop {
            let seen = self.changed.epoch();
            let acknowledged = |index: &u32| self.state.lock().acknowledged.get(index) >= Some(&number);
            if (0..delegates).all(|index| acknowledged(&index)) {
                return;
            }
            self.changed.wait(seen, None).await;
        }
    }

    /// Closes the file.
    pub fn close(&self) {
        self.state.lock().open = None;
    }
}

/// Files of the host, with reports of opens outside of the job.
struct Reported {
    files: HostOrWeft<SimEnv>,
    outside: Arc<Outside>,
    index: u32,
}

impl Underlying<SimEnv> for Reported {
    type File = HostOrWeftFile<SimEnv>;

    async fn open(
        &self,
        source: &FileSource,
        attached: Option<<SimEnv as Env>::File>,
        write: bool,
        name: &[u8],
    ) -> weft_client::Result<HostOrWeftFile<SimEnv>> {
        self.files.open(source, attached, write, name).await
    }

    fn may_cache(&self, _: &HostOrWeftFile<SimEnv>) -> bool {
        self.outside.state.lock().open.is_none()
    }

    async fn recalls(&self, done: u64) -> Recalls {
        let seen = self.outside.changed.epoch();
        let (is_known, recalls) = {
            let mut state = self.outside.state.lock();
            let is_known = state.acknowledged.insert(self.index, done) == Some(done);
            let new = state.opened.iter().enumerate().skip(done as usize);
            let recalls = new.map(|(at, file)| Recall { number: at as u64 + 1, file: *file });
            (is_known, recalls.collect::<Vec<_>>())
        };
        if !is_known {
            self.outside.changed.notify_all();
        }
        if recalls.is_empty() {
            self.outside.changed.wait(seen, Some(Nanos::from_s(2))).await;
        }
        Recalls::Of(recalls)
    }
}

/// Settings of a small job.
pub fn settings(delegates: u32, policy: Policy) -> JobSettings {
    JobSettings {
        delegates,
        index: 0,
        policy,
        group_pages: 1,
        page_len: Some(PAGE),
        memory: ByteLen(16 * PAGE),
        write_behind: true,
        direct_min: Some(4 * PAGE),
    }
}

impl Job {
    /// Starts delegates beside the ranks.
    pub async fn start(sim: &Control, settings: JobSettings) -> Self {
        let machine = sim.add_machine("host");
        sim.add_disk(&machine, Path::new(DATA), Box::new(SimpleDisk::default()));
        let secret = ClusterSecret::new(&[7; 32]);
        let entries = (0..settings.delegates).map(|index| ServerEntry {
            name: format!("delegate {index}"),
            addresses: vec![Address::Unix(format!("/job/{index}.sock").into())],
        });
        let entries: Vec<ServerEntry> = entries.collect();
        let outside = Arc::new(Outside { state: Mutex::default(), changed: machine.notify() });
        let mut job = Self { settings, machine, secret, entries, delegates: Vec::new(), outside };
        for index in 0..job.settings.delegates {
            let env = sim.process(&job.machine, &format!("delegate {index}"), USER, USER);
            let handle = job.serve(&env, index).await;
            job.delegates.push((env, handle));
        }
        job
    }

    async fn serve(&self, env: &SimEnv, index: u32) -> ServerHandle<SimEnv> {
        let config = DelegateConfig {
            job: "job".into(),
            delegates: self.entries.clone(),
            settings: JobSettings { index, ..self.settings.clone() },
            addresses: self.entries[index as usize].addresses.clone(),
            secret: self.secret.clone(),
            dirty_high: self.settings.memory.0 / 2,
            idle: Nanos::from_ms(10),
            idle_exit: None,
            host: "host".into(),
            hooks: Hooks { uid: USER, ..Hooks::none() },
        };
        let files = HostOrWeft::new(env.clone(), None);
        let underlying = Reported { files, outside: Arc::clone(&self.outside), index };
        weft_delegate::start(env.clone(), config, underlying).await.expect("starts")
    }

    /// Connects a rank.
    pub async fn rank(&self, env: &SimEnv, rank: u32, ranks: u32) -> Delegates<SimEnv> {
        let map = JobMap { name: "job".into(), delegates: self.entries.clone() };
        let credentials =
            Credentials::user(USER, USER, Vec::new()).with_key(Key::Cluster(Box::new(self.secret.clone())));
        let options = ClientOptions { retry_for: Nanos::from_s(1), ..ClientOptions::default() };
        let joined =
            Delegates::join(env.clone(), map, options, credentials, Some(RankOf { rank, ranks })).await;
        joined.expect("the delegates answer")
    }

    /// Ends all delegates in order.
    pub async fn stop(&self) {
        for (_, handle) in &self.delegates {
            handle.stop().await;
        }
    }
}

/// Returns the number of a file.
pub fn number(name: &str) -> FileNumber {
    FileNumber(name.bytes().map(u64::from).sum())
}

/// Opens or creates a file as a rank.
pub async fn open(env: &SimEnv, delegates: &Delegates<SimEnv>, name: &str) -> RankFile {
    let dir = env.dir(Path::new(DATA)).await.expect("the directory exists");
    let file = dir.open(name, OpenMode::CREATE).await.expect("opens");
    let path = format!("{DATA}/{name}").into_bytes();
    let spec = DelegatedSpec {
        number: number(name),
        source: Source::Host { file: file.clone(), path: path.clone(), inode: 0 },
        page_len: PAGE,
        read: true,
        write: true,
        path: path.clone(),
    };
    DelegatedFile::new(delegates, HostFile::new(file, path), spec)
}

/// Reads all bytes of the underlying file.
pub async fn below(file: &RankFile) -> Vec<u8> {
    let len = file.below().size().await.expect("has a size").0;
    let mut bytes = vec![0; len as usize];
    let read = weft_client::read_all(file.below(), &mut bytes, FileOffset(0)).await.expect("reads");
    assert_eq!(read, bytes.len());
    bytes
}

/// Runs a test as a process on the machine of the delegates.
pub fn run<T: 'static, F: Future<Output = T> + 'static>(
    seed: u64,
    settings: JobSettings,
    body: impl FnOnce(Job, SimEnv, Control) -> F + 'static,
) -> (T, u64) {
    let mut sim = Sim::with_seed(seed);
    let control = sim.control();
    let starter = control.add_machine("starter");
    let main = control.process(&starter, "test", USER, USER);
    let value = sim.block_on(&main, async move {
        let job = Job::start(&control, settings).await;
        let env = control.process(&job.machine, "ranks", USER, USER);
        body(job, env, control).await
    });
    (value, sim.event_hash())
}
