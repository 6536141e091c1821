//! A simulated server with an SSD beside its disk, clients, and a naive model of the bytes.

use crate::support::*;
use parking_lot::Mutex;
use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weft_core::cache::{CacheMode, EvictionPolicy};
use weft_core::ibridge::{Policy, ServiceCurve};
use weft_core::{ByteLen, FileId, LocalOffset, Nanos, ServerId, TargetId};
use weft_env::sim::{Control, DiskFaults, Rng, Sim, SimEnv, SimpleDisk};
use weft_env::{Address, Dir, Env, Notify};
use weft_server::{CacheConfig, IbridgeConfig, ServerConfig, ServerHandle, TargetConfig};
use weft_store::target::Module;
use weft_wire::data::{DataReply, DataRequest, DatafileId, IoHints, PayloadLocation};
use weft_wire::hello::{Identity, Role};
use weft_wire::status::{SsdStatus, StatusReply, StatusRequest};
use weft_wire::{Errno, Family, Kind};

pub const CLIENTS: u64 = 4;
/// File in which each client has its own region.
pub const SHARED: u64 = 1;
pub const REGION: u64 = 50_000;
pub const LEN_MAX: u64 = 120_000;
/// Environment variable with the number of seeds to run.
pub const SEEDS: &str = "WEFT_PLACEMENT_SEEDS";

pub fn address() -> Address {
    Address::Tcp("storage".into(), 4000)
}

/// Disk on which adjacent requests are cheap and others cost a seek.
pub fn curve() -> ServiceCurve {
    let seek = vec![(ByteLen(0), Nanos(0)), (ByteLen(1 << 20), Nanos::from_ms(3))];
    ServiceCurve::new(seek, Nanos::from_ms(4), 100_000_000, 100_000_000, ByteLen(1 << 30)).expect("a curve")
}

/// Parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// iBridge's policy; `None` without iBridge.
    pub policy: Option<Policy>,
    /// Mode and policy of the cache; `None` without one.
    pub cache: Option<(CacheMode, EvictionPolicy)>,
    pub module: Module,
    /// Size of the log.
    pub size: ByteLen,
}

impl Plan {
    /// iBridge alone.
    pub fn of(policy: Policy, module: Module, size: ByteLen) -> Self {
        Self { policy: Some(policy), cache: None, module, size }
    }

    /// Whether the SSD may have the only copy of bytes.
    pub fn may_lose(&self) -> bool {
        self.policy.is_some() || self.cache.is_some_and(|(mode, _)| mode == CacheMode::WriteBack)
    }
}

pub fn server_config(plan: Plan) -> ServerConfig {
    let ibridge = plan
        .policy
        .map(|policy| IbridgeConfig { policy, ..IbridgeConfig::new("/ssd/log".into(), plan.size, curve()) });
    let cache = plan.cache.map(|(mode, eviction)| {
        let alone = CacheConfig::new(mode, "/ssd/log".into(), plan.size, curve());
        let cache = if ibridge.is_some() { CacheConfig::shared(mode) } else { alone };
        CacheConfig { eviction, prefetch: ByteLen(64 << 10), ..cache }
    });
    let target = TargetConfig {
        id: TargetId(0),
        settings: weft_core::TargetSettings::default(),
        class: "hdd".into(),
        path: "/hdd/t0".into(),
        module: plan.module,
        queue_depth: 4,
        leases: true,
        integrity: weft_core::Integrity::Off,
        emulate: None,
        ibridge,
        cache,
    };
    ServerConfig { targets: vec![target], ..config(Path::new("/"), vec![address()], false) }
}

/// Possible contents of a part of a datafile.
#[derive(Clone)]
pub struct Model {
    pub part: DatafileId,
    /// Start of the part.
    pub start: u64,
    /// Whether the part extends to the end, so that its length can be checked.
    pub is_all: bool,
    /// Versions since the last sync, the newest last.
    pub versions: Vec<Vec<u8>>,
    /// The newest version was requested, but not acknowledged.
    pub in_doubt: bool,
    /// The datafile is being removed and is not used again.
    pub doomed: bool,
    /// Bytes may be lost, after an SSD failure.
    pub may_be_lost: bool,
}

impl Model {
    pub fn new(part: DatafileId, start: u64, is_all: bool) -> Self {
        Self {
            part,
            start,
            is_all,
            versions: vec![Vec::new()],
            in_doubt: false,
            doomed: false,
            may_be_lost: false,
        }
    }

    pub fn now(&self) -> &Vec<u8> {
        self.versions.last().expect("there is always one")
    }

    pub fn change(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        assert!(!self.in_doubt);
        let mut next = self.now().clone();
        change(&mut next);
        self.versions.push(next);
        self.in_doubt = true;
    }

    /// Checks that `seen` consists of bytes of the last `count` versions; it becomes the only version.
    pub fn check_and_adopt(&mut self, seen: &[u8], count: usize, what: &str) {
        let from = self.versions.len().saturating_sub(count);
        let allowed = &self.versions[from..];
        let is_newest = allowed.last().is_some_and(|newest| newest == seen);
        let to_compare = if is_newest { &[] } else { seen };
        for (at, &byte) in to_compare.iter().enumerate() {
            // A length that became durable before the bytes below it leaves a hole.
            let fits = |version: &Vec<u8>| version.get(at).is_none_or(|&other| other == byte || byte == 0);
            let blank = if self.is_all { None } else { Some(&0) };
            let exact = |version: &Vec<u8>| version.get(at).or(blank) == Some(&byte);
            let fits = if allowed.len() == 1 { exact(&allowed[0]) } else { allowed.iter().any(fits) };
            assert!(fits, "{what}: byte {at} of {:?} is {byte}", self.part);
        }
        if self.is_all {
            let (len, lens) = (seen.len(), allowed.iter().map(Vec::len));
            let (min, max) = (lens.clone().min().unwrap_or(0), lens.max().unwrap_or(0));
            assert!((min..=max).contains(&len), "{what}: {:?} has {len} bytes, not {min}..={max}", self.part);
        }
        self.versions = vec![seen.to_vec()];
        self.in_doubt = false;
    }
}

/// Client that detects the end of its server.
pub struct Asker {
    pub client: Client<SimEnv>,
    pub requests: u64,
}

/// The server did not answer.
pub struct ServerGone;

impl Asker {
    pub async fn connect(env: &SimEnv, session: u64, as_server: bool) -> Self {
        let user = Identity { uid: 1000, gid: 1000, groups: vec![] };
        let (role, key) = match as_server {
            true => (Role::Server(ServerId(1)), secret().server_key()),
            false => (Role::Client(user.clone()), secret().identity_key(&user)),
        };
        let client = Client::connect_as(env, &address(), hello(role, session.into()), key).await;
        Self { client, requests: 100 }
    }

    pub async fn ask(
        &mut self,
        request: &DataRequest,
        payload: &[u8],
    ) -> Result<(DataReply, Vec<u8>), ServerGone> {
        self.requests += 1;
        let pieces = [IoSlice::new(payload)];
        let pieces: &[_] = if payload.is_empty() { &[] } else { &pieces };
        let link = &mut self.client.link;
        link.send(Kind::Request, Family::Data, self.requests, request, pieces)
            .await
            .map_err(|_| ServerGone)?;
        let incoming = link.recv().await.map_err(|_| ServerGone)?.ok_or(ServerGone)?;
        let reply = link.decode(&incoming).expect("decodes");
        let mut bytes = vec![0; incoming.header.payload_len as usize];
        let mut bufs = [IoSliceMut::new(&mut bytes)];
        link.recv_payload(&incoming.header, &mut bufs).await.map_err(|_| ServerGone)?;
        Ok((reply, bytes))
    }

    pub async fn read(
        &mut self,
        part: DatafileId,
        offset: u64,
        len: u32,
    ) -> Result<(DataReply, Vec<u8>), ServerGone> {
        let hints = IoHints { siblings: 1 + (len % 3) as u16, ..IoHints::default() };
        let cap = self.client.cap(part.file.0);
        self.ask(&DataRequest::Read { datafile: part, cap, offset: LocalOffset(offset), len, hints }, &[])
            .await
    }

    pub async fn write(
        &mut self,
        part: DatafileId,
        offset: u64,
        bytes: &[u8],
    ) -> Result<DataReply, ServerGone> {
        let hints = IoHints { siblings: 1 + (bytes.len() % 3) as u16, ..IoHints::default() };
        let (cap, len) = (self.client.cap(part.file.0), bytes.len() as u32);
        let (offset, place) = (LocalOffset(offset), PayloadLocation::Payload);
        let write = DataRequest::Write { datafile: part, cap, offset, len, place, hints };
        Ok(self.ask(&write, bytes).await?.0)
    }

    /// Reads the part of a model; `None` if bytes are lost.
    pub async fn all_of(&mut self, model: &Model) -> Result<Option<Vec<u8>>, ServerGone> {
        let len = if model.is_all { LEN_MAX + 1 } else { REGION };
        let (reply, bytes) = self.read(model.part, model.start, len as u32).await?;
        match reply {
            DataReply::Read { .. } => Ok(Some(bytes)),
            DataReply::Failed(error) => {
                assert!(model.may_be_lost && error.errno == Errno::EIO, "{error}");
                Ok(None)
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Executes one step of a client on one of its parts.
pub async fn step(
    asker: &mut Asker,
    rng: &mut Rng,
    model: &Mutex<Model>,
    fresh: &AtomicU64,
) -> Result<(), ServerGone> {
    let (part, start, is_all) = {
        let model = model.lock();
        (model.part, model.start, model.is_all)
    };
    let size = if is_all { LEN_MAX } else { REGION };
    let len = match rng.below(10) {
        0..=6 => 1 + rng.below(19_000),
        7 => 4096 * (1 + rng.below(4)),
        _ => 1 + rng.below(45_000),
    };
    let offset = match rng.below(3) {
        0 => rng.below((size - len) / 4096 + 1) * 4096,
        _ => rng.below(size - len + 1),
    }
    .min(size - len);
    let cap = asker.client.cap(part.file.0);
    match rng.below(100) {
        0..=44 => {
            let bytes: Vec<u8> = pattern(len as usize, rng.below(u64::MAX)).iter().map(|b| b | 1).collect();
            model.lock().change(|now| {
                let (from, to) = (offset as usize, (offset + len) as usize);
                now.resize(now.len().max(to), 0);
                now[from..to].copy_from_slice(&bytes);
            });
            let reply = asker.write(part, start + offset, &bytes).await?;
            let mut model = model.lock();
            match reply {
                DataReply::Written => model.in_doubt = false,
                DataReply::Failed(error) => {
                    // A part of it may have been written.
                    assert!(model.may_be_lost && error.errno == Errno::EIO, "{error}");
                }
                other => panic!("{other:?}"),
            }
        }
        45..=79 => {
            let (reply, bytes) = asker.read(part, start + offset, len as u32).await?;
            let model = model.lock();
            match reply {
                DataReply::Read { datafile_len } => {
                    let now = model.now();
                    let from = now.len().min(offset as usize);
                    let to = now.len().min((offset + len) as usize);
                    let expected = &now[from..to];
                    if is_all {
                        assert_eq!(datafile_len.0, now.len() as u64);
                        assert!(bytes == expected, "{part:?} at {offset}: {} bytes", bytes.len());
                    } else {
                        assert!(bytes.starts_with(expected), "{part:?} at {}", start + offset);
                        assert!(bytes[expected.len()..].iter().all(|&byte| byte == 0));
                    }
                }
                DataReply::Failed(error) => {
                    assert!(model.may_be_lost && error.errno == Errno::EIO, "{error}");
                    assert!(error.detail.contains("/ssd/log"), "{error}");
                }
                other => panic!("{other:?}"),
            }
        }
        80..=85 if is_all => {
            let len = if rng.below(3) == 0 { 0 } else { offset };
            model.lock().change(|now| now.resize(len as usize, 0));
            let cut = DataRequest::SetLens { cap, datafiles: vec![(part, ByteLen(len))] };
            let reply = asker.ask(&cut, &[]).await?.0;
            let mut model = model.lock();
            match reply {
                DataReply::Done => model.in_doubt = false,
                other => assert!(model.may_be_lost, "{other:?}"),
            }
        }
        80..=91 => {
            let sync = DataRequest::Sync { cap, datafiles: vec![part] };
            match asker.ask(&sync, &[]).await?.0 {
                DataReply::Done => {
                    let mut model = model.lock();
                    let last = model.versions.len() - 1;
                    model.versions.drain(..last);
                }
                other => assert!(model.lock().may_be_lost, "{other:?}"),
            }
        }
        92..=95 => {
            let lens = DataRequest::GetLens { cap, datafiles: vec![part] };
            let DataReply::Lens(lens) = asker.ask(&lens, &[]).await?.0 else { panic!("no lengths") };
            if is_all {
                assert_eq!(lens[0].len.0, model.lock().now().len() as u64);
            }
        }
        96..=97 => {
            let mut from = None;
            loop {
                let flush = DataRequest::Flush { target: TargetId(0), from };
                match asker.ask(&flush, &[]).await?.0 {
                    DataReply::Flushed { next: None, .. } => break,
                    DataReply::Flushed { next, .. } => from = next,
                    other => {
                        assert!(model.lock().may_be_lost, "{other:?}");
                        break;
                    }
                }
            }
        }
        _ if is_all => {
            // Numbers are never reused.
            let next = datafile(0, fresh.fetch_add(1, Ordering::SeqCst), 0);
            model.lock().change(Vec::clear);
            model.lock().doomed = true;
            match asker.ask(&DataRequest::Remove { datafiles: vec![part] }, &[]).await?.0 {
                DataReply::Done => {
                    let reply = asker.write(part, 0, &[1; 100]).await?;
                    assert_eq!(errno(&reply), Some(Errno::ESTALE), "it was removed");
                    let mut model = model.lock();
                    *model = Model { may_be_lost: model.may_be_lost, ..Model::new(next, 0, true) };
                }
                other => assert!(model.lock().may_be_lost, "{other:?}"),
            }
        }
        _ => {}
    }
    // Before the next request, find out whether the failed one had an effect.
    let doubtful = model.lock().clone();
    if doubtful.doomed {
        let mut model = model.lock();
        let next = datafile(0, fresh.fetch_add(1, Ordering::SeqCst), 0);
        *model = Model { may_be_lost: true, ..Model::new(next, 0, true) };
    } else if doubtful.in_doubt {
        if let Some(seen) = asker.all_of(&doubtful).await? {
            model.lock().check_and_adopt(&seen, 2, "after a failed request");
        } else {
            let mut model = model.lock();
            *model = Model {
                may_be_lost: true,
                ..Model::new(datafile(0, fresh.fetch_add(1, Ordering::SeqCst), 0), model.start, is_all)
            };
        }
    }
    Ok(())
}

/// Way in which the server ends.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum End {
    Stop,
    Hurry,
    Kill,
    PowerCut,
    /// The power is cut when this sync, counted from the start of the clients, begins.
    CutAtSync(u64),
    /// The SSD fails in the middle; the server is killed later.
    BadSsd,
}

pub struct World {
    pub sim: Sim<'static>,
    pub control: Control,
    pub storage: SimEnv,
    pub compute: SimEnv,
    pub rng: Rng,
    /// Two for each client: its own file, and its region of the shared one.
    pub models: Vec<Arc<Mutex<Model>>>,
    pub fresh: Arc<AtomicU64>,
    pub plan: Plan,
    pub totals: SsdStatus,
}

impl World {
    pub fn new(seed: u64, plan: Plan) -> Self {
        let mut sim = Sim::with_seed(seed);
        let storage = sim.node("storage");
        let compute = sim.node("compute");
        let control = sim.control();
        for path in ["/ssd", "/hdd"] {
            control.add_disk(&storage, Path::new(path), Box::new(SimpleDisk::default()));
        }
        let env = storage.clone();
        sim.block_on(&storage, async move {
            for (mount, folder) in [("/ssd", "log"), ("/hdd", "t0")] {
                let root = env.dir(Path::new(mount)).await.expect("a disk");
                root.make_dir(folder).await.expect("a folder");
                root.sync("").await.expect("synced");
            }
        });
        let models = (0..CLIENTS).flat_map(|client| {
            let own = Model::new(datafile(0, 100 + client, 0), 0, true);
            [own, Model::new(datafile(0, SHARED, 0), client * REGION, false)]
        });
        let models = models.map(|model| Arc::new(Mutex::new(model))).collect();
        let fresh = Arc::new(AtomicU64::new(1000));
        let (rng, totals) = (control.rng(), SsdStatus::default());
        Self { sim, control, storage, compute, rng, models, fresh, plan, totals }
    }

    pub fn start(&mut self) -> Arc<ServerHandle<SimEnv>> {
        let (env, config) = (self.storage.clone(), server_config(self.plan));
        self.sim.block_on(&self.storage, async move { Arc::new(start(&env, config).await) })
    }

    /// Checks that all contents match the models, of which the newest `count` versions are possible.
    pub fn check(&mut self, count: impl Fn(&Model) -> usize, what: &str) {
        let (env, models) = (self.compute.clone(), self.models.clone());
        let counts: Vec<usize> = models.iter().map(|model| count(&model.lock())).collect();
        let (what, fresh) = (what.to_owned(), Arc::clone(&self.fresh));
        self.sim.block_on(&self.compute, async move {
            let mut asker = Asker::connect(&env, 77, true).await;
            let mut seen_lens = Vec::new();
            for (model, count) in models.iter().zip(counts) {
                let now = model.lock().clone();
                if now.doomed {
                    let next = datafile(0, fresh.fetch_add(1, Ordering::SeqCst), 0);
                    *model.lock() = Model { may_be_lost: now.may_be_lost, ..Model::new(next, 0, true) };
                    continue;
                }
                let Ok(seen) = asker.all_of(&now).await else { panic!("{what}: gone") };
                let Some(seen) = seen else {
                    let next = datafile(0, fresh.fetch_add(1, Ordering::SeqCst), 0);
                    *model.lock() = Model { may_be_lost: true, ..Model::new(next, now.start, now.is_all) };
                    continue;
                };
                model.lock().check_and_adopt(&seen, count, &what);
                if now.is_all {
                    seen_lens.push((now.part, seen.len()));
                }
            }
            let list = DataRequest::ListDatafiles { target: TargetId(0), after: None, limit: 4096 };
            let Ok((DataReply::Datafiles(listed), _)) = asker.ask(&list, &[]).await else {
                panic!("{what}: no list")
            };
            for (part, len) in seen_lens.into_iter().filter(|(_, len)| *len > 0) {
                let found =
                    listed.iter().find(|(file, object, _)| (*file, *object) == (part.file, part.object));
                assert_eq!(found.map(|found| found.2.0), Some(len as u64), "{what}: {part:?} in the list");
            }
            assert!(!listed.iter().any(|(file, ..)| *file == FileId(0)));
        });
    }

    /// Runs the clients until the server comes to its `end`.
    pub fn work(&mut self, server: &Arc<ServerHandle<SimEnv>>, end: End) {
        let left = Arc::new(AtomicU64::new(CLIENTS));
        let (done, quit) = (self.compute.notify(), Arc::new(AtomicBool::new(false)));
        for client in 0..CLIENTS {
            let parts = [0, 1].map(|part| Arc::clone(&self.models[2 * client as usize + part]));
            let (env, mut rng) = (self.compute.clone(), self.control.rng());
            let (left, done, quit) = (Arc::clone(&left), done.clone(), Arc::clone(&quit));
            let fresh = Arc::clone(&self.fresh);
            let task = move || async move {
                let mut asker = Asker::connect(&env, 1 + client, true).await;
                while !quit.load(Ordering::SeqCst) {
                    if rng.below(4) == 0 {
                        env.sleep(Nanos::from_ms(rng.below(40))).await;
                    }
                    let model = &parts[rng.below(2) as usize];
                    if step(&mut asker, &mut rng, model, &fresh).await.is_err() {
                        break;
                    }
                }
                left.fetch_sub(1, Ordering::SeqCst);
                done.notify_all();
            };
            self.compute.spawn("client", task).expect("a task");
        }
        let (control, storage, env) = (self.control.clone(), self.storage.clone(), self.compute.clone());
        let (server, models) = (Arc::clone(server), self.models.clone());
        let may_lose = self.plan.may_lose();
        let mut span = Nanos::from_ms(200 + self.rng.below(1500));
        if let End::CutAtSync(number) = end {
            self.control.power_cut_at_sync(&self.storage, self.control.sync_points(&self.storage) + number);
            span = Nanos::from_ms(300);
        }
        let status = self.sim.block_on(&self.compute, async move {
            env.sleep(span).await;
            let mut status = None;
            match end {
                End::Stop | End::Hurry => quit.store(true, Ordering::SeqCst),
                End::Kill => control.kill(&storage),
                End::PowerCut | End::CutAtSync(_) => control.power_cut(&storage),
                End::BadSsd => {
                    models.iter().for_each(|model| model.lock().may_be_lost = may_lose);
                    let million = 1_000_000;
                    let faults = DiskFaults { write_errors_per_million: million, ..DiskFaults::default() };
                    control.set_disk_faults(&storage, Path::new("/ssd"), faults);
                    env.sleep(Nanos::from_ms(500)).await;
                    quit.store(true, Ordering::SeqCst);
                }
            }
            loop {
                let seen = done.epoch();
                if left.load(Ordering::SeqCst) == 0 {
                    break;
                }
                done.wait(seen, None).await;
            }
            if matches!(end, End::Stop | End::Hurry | End::BadSsd) {
                let mut asker = Asker::connect(&env, 78, true).await;
                if let StatusReply::Status(found) = asker.client.status(StatusRequest::Status).await {
                    status = found.targets[0].ssd.clone();
                }
            }
            status
        });
        if let Some(status) = status {
            self.totals.read_hits += status.read_hits;
            self.totals.read_partial_hits += status.read_partial_hits;
            self.totals.bytes_written.0 += status.bytes_written.0;
            self.totals.bytes_written_back.0 += status.bytes_written_back.0;
            self.totals.bytes_preloaded.0 += status.bytes_preloaded.0;
            self.totals.bytes_moved.0 += status.bytes_moved.0;
            if let Some(cache) = status.cache.clone() {
                let totals = self.totals.cache.get_or_insert_default();
                totals.bytes_hit.0 += cache.bytes_hit.0;
                totals.bytes_missed.0 += cache.bytes_missed.0;
                totals.bytes_evicted.0 += cache.bytes_evicted.0;
                totals.bytes_prefetched.0 += cache.bytes_prefetched.0;
                totals.rejected += cache.rejected;
            }
            if end == End::BadSsd {
                assert!(status.failed.is_some() || status.dirty == ByteLen(0), "{status:?}");
            }
        }
        match end {
            End::Stop | End::Hurry => {
                let ended = self.sim.block_on(&self.storage, async move {
                    if end == End::Hurry {
                        server.skip_writeback();
                    }
                    server.stop().await;
                    server.panics()
                });
                assert_eq!(ended, 0, "a bug in the server");
            }
            End::BadSsd => {
                assert_eq!(server.panics(), 0, "a bug in the server");
                self.control.kill(&self.storage);
                self.control.set_disk_faults(&self.storage, Path::new("/ssd"), DiskFaults::default());
            }
            End::Kill | End::PowerCut | End::CutAtSync(_) => {}
        }
        self.storage = self.control.restart(&self.storage);
    }
}

pub fn live(seed: u64, plan: Plan, ends: &[End]) -> SsdStatus {
    let mut world = World::new(seed, plan);
    for &end in ends {
        let server = world.start();
        world.work(&server, end);
        let _again = world.start();
        let what = format!("seed {seed}, after {end:?}");
        match end {
            End::PowerCut | End::CutAtSync(_) => world.check(|model| model.versions.len(), &what),
            _ => world.check(|model| if model.in_doubt { 2 } else { 1 }, &what),
        }
        world.control.kill(&world.storage);
        world.storage = world.control.restart(&world.storage);
        if end == End::BadSsd {
            let may_lose = world.plan.may_lose();
            world.models.iter().for_each(|model| {
                let mut model = model.lock();
                model.may_be_lost = may_lose;
            });
        }
    }
    world.totals
}

pub fn seeds(few: u64) -> u64 {
    std::env::var(SEEDS).map_or(few, |seeds| seeds.parse().expect("a number of seeds"))
}
