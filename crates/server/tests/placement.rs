//! A server with an SSD beside its disk against a naive model of bytes: random requests of several clients at once,
//! through ends of every kind. Whatever lies where, reads give the newest bytes or, where an SSD failed, an error that
//! says what is lost.

mod support;

use parking_lot::Mutex;
use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use support::*;
use weft_core::ibridge::{Policy, ServiceCurve};
use weft_core::{ByteLen, FileId, LocalOffset, Nanos, ServerId, TargetId};
use weft_env::sim::{Control, DiskFaults, Rng, Sim, SimEnv, SimpleDisk};
use weft_env::{Address, Dir, Env, Notify};
use weft_server::{IbridgeConfig, ServerConfig, ServerHandle, TargetConfig};
use weft_store::target::Module;
use weft_wire::data::{DataReply, DataRequest, DatafileId, IoHints, Place};
use weft_wire::hello::{Identity, Role};
use weft_wire::status::{IbridgeStatus, StatusReply, StatusRequest};
use weft_wire::{Errno, Family, Kind};

const CLIENTS: u64 = 4;
/// The file in which each client has a region of its own.
const SHARED: u64 = 1;
const REGION: u64 = 50_000;
const LEN_MAX: u64 = 120_000;
/// Set to run so many seeds instead of a few.
const SEEDS: &str = "WEFT_PLACEMENT_SEEDS";

fn address() -> Address {
    Address::Tcp("storage".into(), 4000)
}

/// A disk on which requests next to each other cost little and others a seek.
fn curve() -> ServiceCurve {
    let seek = vec![(ByteLen(0), Nanos(0)), (ByteLen(1 << 20), Nanos::from_ms(3))];
    ServiceCurve::new(seek, Nanos::from_ms(4), 100_000_000, 100_000_000, ByteLen(1 << 30)).expect("a curve")
}

/// How a run goes.
#[derive(Clone, Copy, Debug)]
struct Plan {
    policy: Policy,
    module: Module,
    /// Of the log.
    size: ByteLen,
}

fn server_config(plan: Plan) -> ServerConfig {
    let mut ibridge = IbridgeConfig::new("/ssd/log".into(), plan.size, curve());
    ibridge.policy = plan.policy;
    let target = TargetConfig {
        id: TargetId(0),
        class: "hdd".into(),
        path: "/hdd/t0".into(),
        module: plan.module,
        queue_depth: 4,
        leases: true,
        integrity: weft_core::Integrity::Off,
        emulate: None,
        ibridge: Some(ibridge),
    };
    ServerConfig { targets: vec![target], ..config(Path::new("/"), vec![address()], false) }
}

/// What a part of a datafile may hold.
#[derive(Clone)]
struct Model {
    part: DatafileId,
    /// Where the part begins.
    start: u64,
    /// Whether it reaches to the end, so that lengths can be looked at.
    is_all: bool,
    /// What it held since the last sync, the newest last.
    versions: Vec<Vec<u8>>,
    /// The newest was asked for, but nobody said that it was done.
    in_doubt: bool,
    /// It is being removed, and is not used again.
    doomed: bool,
    /// After an SSD failed, bytes may be lost.
    may_be_lost: bool,
}

impl Model {
    fn new(part: DatafileId, start: u64, is_all: bool) -> Self {
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

    fn now(&self) -> &Vec<u8> {
        self.versions.last().expect("there is always one")
    }

    fn change(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        assert!(!self.in_doubt);
        let mut next = self.now().clone();
        change(&mut next);
        self.versions.push(next);
        self.in_doubt = true;
    }

    /// Whether what is read is one of the last `count` versions, byte by byte; it is the truth from here on.
    fn settle(&mut self, seen: &[u8], count: usize, what: &str) {
        let from = self.versions.len().saturating_sub(count);
        let allowed = &self.versions[from..];
        let is_newest = allowed.last().is_some_and(|newest| newest == seen);
        let to_compare = if is_newest { &[] } else { seen };
        for (at, &byte) in to_compare.iter().enumerate() {
            // A length that came before the bytes below it leaves a hole.
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

/// A client that notices when its server goes away.
struct Asker {
    client: Client<SimEnv>,
    requests: u64,
}

/// The server did not answer.
struct Gone;

impl Asker {
    async fn connect(env: &SimEnv, session: u64, as_server: bool) -> Self {
        let user = Identity { uid: 1000, gid: 1000, groups: vec![] };
        let (role, key) = match as_server {
            true => (Role::Server(ServerId(1)), secret().server_key()),
            false => (Role::Client(user.clone()), secret().identity_key(&user)),
        };
        let client = Client::connect_as(env, &address(), hello(role, session.into()), key).await;
        Self { client, requests: 100 }
    }

    async fn ask(&mut self, request: &DataRequest, payload: &[u8]) -> Result<(DataReply, Vec<u8>), Gone> {
        self.requests += 1;
        let pieces = [IoSlice::new(payload)];
        let pieces: &[_] = if payload.is_empty() { &[] } else { &pieces };
        let link = &mut self.client.link;
        link.send(Kind::Request, Family::Data, self.requests, request, pieces).await.map_err(|_| Gone)?;
        let incoming = link.recv().await.map_err(|_| Gone)?.ok_or(Gone)?;
        let reply = link.decode(&incoming).expect("decodes");
        let mut bytes = vec![0; incoming.header.payload_len as usize];
        let mut bufs = [IoSliceMut::new(&mut bytes)];
        link.recv_payload(&incoming.header, &mut bufs).await.map_err(|_| Gone)?;
        Ok((reply, bytes))
    }

    async fn read(&mut self, part: DatafileId, offset: u64, len: u32) -> Result<(DataReply, Vec<u8>), Gone> {
        let hints = IoHints { siblings: 1 + (len % 3) as u16, ..IoHints::default() };
        let cap = self.client.cap(part.file.0);
        self.ask(&DataRequest::Read { datafile: part, cap, offset: LocalOffset(offset), len, hints }, &[])
            .await
    }

    async fn write(&mut self, part: DatafileId, offset: u64, bytes: &[u8]) -> Result<DataReply, Gone> {
        let hints = IoHints { siblings: 1 + (bytes.len() % 3) as u16, ..IoHints::default() };
        let (cap, len) = (self.client.cap(part.file.0), bytes.len() as u32);
        let (offset, place) = (LocalOffset(offset), Place::Payload);
        let write = DataRequest::Write { datafile: part, cap, offset, len, place, hints };
        Ok(self.ask(&write, bytes).await?.0)
    }

    /// All bytes of a model's part; `None` where some are lost.
    async fn all_of(&mut self, model: &Model) -> Result<Option<Vec<u8>>, Gone> {
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

/// One step of a client on one of its parts.
async fn step(asker: &mut Asker, rng: &mut Rng, model: &Mutex<Model>, fresh: &AtomicU64) -> Result<(), Gone> {
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
                    // It may have been written in part.
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
            // Its number is never used again.
            let next = datafile(0, fresh.fetch_add(1, Ordering::SeqCst), 0);
            model.lock().change(Vec::clear);
            model.lock().doomed = true;
            match asker.ask(&DataRequest::Remove { datafiles: vec![part] }, &[]).await?.0 {
                DataReply::Done => {
                    let reply = asker.write(part, 0, &[1; 100]).await?;
                    assert_eq!(errno(&reply), Some(Errno::ESTALE), "it is gone");
                    let mut model = model.lock();
                    *model = Model { may_be_lost: model.may_be_lost, ..Model::new(next, 0, true) };
                }
                other => assert!(model.lock().may_be_lost, "{other:?}"),
            }
        }
        _ => {}
    }
    // Whether a request that failed has changed anything is found out before the next.
    let doubtful = model.lock().clone();
    if doubtful.doomed {
        let mut model = model.lock();
        let next = datafile(0, fresh.fetch_add(1, Ordering::SeqCst), 0);
        *model = Model { may_be_lost: true, ..Model::new(next, 0, true) };
    } else if doubtful.in_doubt {
        if let Some(seen) = asker.all_of(&doubtful).await? {
            model.lock().settle(&seen, 2, "after a request that failed");
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

/// What comes to an end, and how.
#[derive(Clone, Copy, PartialEq, Debug)]
enum End {
    Stop,
    Hurry,
    Kill,
    PowerCut,
    /// Power is cut when this sync from the start of the clients begins.
    CutAtSync(u64),
    /// The SSD fails in the middle; the server is killed later.
    BadSsd,
}

struct World {
    sim: Sim<'static>,
    control: Control,
    storage: SimEnv,
    compute: SimEnv,
    rng: Rng,
    /// Two of each client: its own file, and its region of the shared one.
    models: Vec<Arc<Mutex<Model>>>,
    fresh: Arc<AtomicU64>,
    plan: Plan,
    totals: IbridgeStatus,
}

impl World {
    fn new(seed: u64, plan: Plan) -> Self {
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
        let (rng, totals) = (control.rng(), IbridgeStatus::default());
        Self { sim, control, storage, compute, rng, models, fresh, plan, totals }
    }

    fn start(&mut self) -> Arc<ServerHandle<SimEnv>> {
        let (env, config) = (self.storage.clone(), server_config(self.plan));
        self.sim.block_on(&self.storage, async move { Arc::new(start(&env, config).await) })
    }

    /// Everything is what the models say, of which the newest `count` versions are possible.
    fn check(&mut self, count: impl Fn(&Model) -> usize, what: &str) {
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
                model.lock().settle(&seen, count, &what);
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

    /// Clients work until the server comes to its `end`.
    fn work(&mut self, server: &Arc<ServerHandle<SimEnv>>, end: End) {
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
                    models.iter().for_each(|model| model.lock().may_be_lost = true);
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
                    status = found.targets[0].ibridge.clone();
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
            if end == End::BadSsd {
                assert!(status.failed.is_some() || status.dirty == ByteLen(0), "{status:?}");
            }
        }
        match end {
            End::Stop | End::Hurry => {
                let ended = self.sim.block_on(&self.storage, async move {
                    if end == End::Hurry {
                        server.hurry();
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

fn live(seed: u64, plan: Plan, ends: &[End]) -> IbridgeStatus {
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
            world.models.iter().for_each(|model| {
                let mut model = model.lock();
                model.may_be_lost = true;
            });
        }
    }
    world.totals
}

fn seeds(few: u64) -> u64 {
    std::env::var(SEEDS).map_or(few, |seeds| seeds.parse().expect("a number of seeds"))
}

fn plan(seed: u64) -> Plan {
    let policies =
        [Policy::Threshold, Policy::Ibridge, Policy::Static { fragments: 1, random: 2 }, Policy::DETOUR];
    Plan {
        policy: policies[(seed % 4) as usize],
        module: if seed % 3 == 2 { Module::Direct } else { Module::Buffered },
        // The small one is full all the time.
        size: if seed % 5 < 2 { ByteLen(512 << 10) } else { ByteLen(2 << 20) },
    }
}

#[test]
fn reads_give_the_newest_bytes_through_every_end() {
    let mut totals = IbridgeStatus::default();
    for seed in 0..seeds(8) {
        let plan = plan(seed);
        eprintln!("seed {seed}: {plan:?}");
        let ends = [End::Stop, End::Kill, End::PowerCut, End::Hurry, End::PowerCut];
        let status = live(seed, plan, &ends);
        totals.read_hits += status.read_hits;
        totals.read_partial_hits += status.read_partial_hits;
        totals.bytes_written.0 += status.bytes_written.0;
        totals.bytes_written_back.0 += status.bytes_written_back.0;
        totals.bytes_preloaded.0 += status.bytes_preloaded.0;
        totals.bytes_moved.0 += status.bytes_moved.0;
    }
    eprintln!("{totals:?}");
    assert!(totals.read_hits > 100 && totals.read_partial_hits > 100);
    assert!(totals.bytes_written.0 > 1 << 20 && totals.bytes_written_back.0 > 1 << 20);
    assert!(totals.bytes_preloaded.0 > 1 << 16);
}

#[test]
fn power_may_be_cut_at_any_sync() {
    for seed in 200..200 + seeds(2) {
        let plan = plan(seed);
        eprintln!("seed {seed}: {plan:?}");
        for sync in 0..25 {
            live(seed, plan, &[End::CutAtSync(sync), End::CutAtSync(1 + sync % 5)]);
        }
    }
}

#[test]
fn a_failed_ssd_gives_errors_and_never_old_bytes() {
    for seed in 100..100 + seeds(8) {
        let plan = plan(seed);
        eprintln!("seed {seed}: {plan:?}");
        live(seed, plan, &[End::Kill, End::BadSsd, End::Kill]);
    }
}

/// What each byte of a datafile may be by now: the number of the last write that was answered, and of the last that was
/// asked for.
struct Marks {
    answered: Mutex<Vec<u8>>,
    asked: Mutex<Vec<u8>>,
}

#[test]
fn no_reader_sees_older_bytes_than_were_there_when_it_began() {
    const LEN: u64 = 40_000;
    const WRITERS: u64 = 3;
    for seed in 300..300 + seeds(6) {
        let plan = plan(seed);
        eprintln!("seed {seed}: {plan:?}");
        let mut world = World::new(seed, plan);
        let server = world.start();
        let len = (LEN * WRITERS) as usize;
        let marks = Arc::new(Marks { answered: Mutex::new(vec![0; len]), asked: Mutex::new(vec![0; len]) });
        let (left, done) = (Arc::new(AtomicU64::new(WRITERS)), world.compute.notify());
        let part = datafile(0, 1, 0);
        for writer in 0..WRITERS {
            let (env, mut rng, marks) = (world.compute.clone(), world.control.rng(), Arc::clone(&marks));
            let (left, done) = (Arc::clone(&left), done.clone());
            let task = move || async move {
                let mut asker = Asker::connect(&env, 1 + writer, true).await;
                for number in 1..=200_u8 {
                    let len = 1 + if rng.below(3) == 0 { rng.below(LEN - 1) } else { rng.below(6000) };
                    let at = LEN * writer + rng.below(LEN - len + 1);
                    let range = at as usize..(at + len) as usize;
                    marks.asked.lock()[range.clone()].fill(number);
                    let Ok(reply) = asker.write(part, at, &vec![number; len as usize]).await else {
                        panic!("gone")
                    };
                    assert_eq!(reply, DataReply::Written);
                    marks.answered.lock()[range].fill(number);
                    if rng.below(5) == 0 {
                        env.sleep(Nanos::from_ms(rng.below(30))).await;
                    }
                    if rng.below(20) == 0 {
                        let flush = DataRequest::Flush { target: TargetId(0), from: None };
                        let flushed = asker.ask(&flush, &[]).await;
                        assert!(matches!(flushed, Ok((DataReply::Flushed { .. }, _))));
                    }
                }
                left.fetch_sub(1, Ordering::SeqCst);
                done.notify_all();
            };
            world.compute.spawn("writer", task).expect("a task");
        }
        for reader in 0..4 {
            let (env, mut rng, marks) = (world.compute.clone(), world.control.rng(), Arc::clone(&marks));
            let left = Arc::clone(&left);
            let task = move || async move {
                let mut asker = Asker::connect(&env, 10 + reader, true).await;
                while left.load(Ordering::SeqCst) > 0 {
                    let len = 1 + if rng.below(3) == 0 { rng.below(LEN) } else { rng.below(9000) };
                    let at = rng.below(LEN * WRITERS - len + 1);
                    let range = at as usize..(at + len) as usize;
                    let before = marks.answered.lock()[range.clone()].to_vec();
                    let Ok((DataReply::Read { .. }, seen)) = asker.read(part, at, len as u32).await else {
                        panic!("no bytes")
                    };
                    let after = marks.asked.lock()[range].to_vec();
                    for (index, (&oldest, &newest)) in before.iter().zip(&after).enumerate() {
                        let byte = seen.get(index).copied().unwrap_or(0);
                        assert!(
                            (oldest..=newest).contains(&byte),
                            "byte {} was {oldest} and is {byte}",
                            at as usize + index
                        );
                    }
                    if rng.below(3) == 0 {
                        env.sleep(Nanos::from_ms(rng.below(15))).await;
                    }
                }
            };
            world.compute.spawn("reader", task).expect("a task");
        }
        world.sim.block_on(&world.compute, async move {
            loop {
                let seen = done.epoch();
                if left.load(Ordering::SeqCst) == 0 {
                    break;
                }
                done.wait(seen, None).await;
            }
        });
        assert_eq!(server.panics(), 0);
    }
}

#[test]
fn what_was_cut_off_does_not_come_back_as_it_was_before_the_ssd_had_it() {
    for seed in 400..420 {
        let plan = Plan { policy: Policy::Threshold, module: Module::Buffered, size: ByteLen(2 << 20) };
        let mut world = World::new(seed, plan);
        let _server = world.start();
        let env = world.compute.clone();
        world.sim.block_on(&world.compute, async move {
            let mut asker = Asker::connect(&env, 1, true).await;
            let (part, other) = (datafile(0, 1, 0), datafile(0, 2, 0));
            let (cap, other_cap) = (asker.client.cap(1), asker.client.cap(2));
            let sync = |cap, part| DataRequest::Sync { cap, datafiles: vec![part] };
            let requests = [
                (part, vec![1; 60_000], true), // on the disk
                (part, vec![2; 5_000], true),  // on the SSD, over it
                (part, vec![], false),         // gone
                (other, vec![3; 5_000], true), // brings the log's journal to the SSD
            ];
            for (of, bytes, synced) in requests {
                let reply = match bytes.is_empty() {
                    true => {
                        let cut = DataRequest::SetLens { cap, datafiles: vec![(of, ByteLen(0))] };
                        asker.ask(&cut, &[]).await.map(|(reply, _)| reply)
                    }
                    false => asker.write(of, 0, &bytes).await,
                };
                assert!(matches!(reply, Ok(DataReply::Written | DataReply::Done)));
                let cap = if of == part { cap } else { other_cap };
                if synced {
                    assert!(matches!(asker.ask(&sync(cap, of), &[]).await, Ok((DataReply::Done, _))));
                }
            }
        });
        world.control.power_cut(&world.storage);
        world.storage = world.control.restart(&world.storage);
        let _server = world.start();
        let env = world.compute.clone();
        world.sim.block_on(&world.compute, async move {
            let mut asker = Asker::connect(&env, 2, true).await;
            let Ok((DataReply::Read { .. }, seen)) = asker.read(datafile(0, 1, 0), 0, 5_000).await else {
                panic!("no bytes")
            };
            let whole = seen.iter().all(|&byte| byte == 2 || byte == 0);
            assert!(whole, "seed {seed}: {} bytes, of which some are {:?}", seen.len(), seen.first());
        });
    }
}

#[test]
fn what_a_failed_ssd_had_survives_loss_of_power_until_newer_bytes_do() {
    let mut newer = 0;
    for seed in 500..520 {
        let plan = Plan { policy: Policy::Threshold, module: Module::Buffered, size: ByteLen(2 << 20) };
        let mut world = World::new(seed, plan);
        let _server = world.start();
        let (env, storage, control) = (world.compute.clone(), world.storage.clone(), world.control.clone());
        world.sim.block_on(&world.compute, async move {
            let mut asker = Asker::connect(&env, 1, true).await;
            let part = datafile(0, 1, 0);
            let sync = DataRequest::Sync { cap: asker.client.cap(1), datafiles: vec![part] };
            // On the disk, and on the SSD over it.
            for bytes in [vec![1; 60_000], vec![2; 5_000]] {
                assert!(matches!(asker.write(part, 0, &bytes).await, Ok(DataReply::Written)));
                assert!(matches!(asker.ask(&sync, &[]).await, Ok((DataReply::Done, _))));
            }
            let faults = DiskFaults { write_errors_per_million: 1_000_000, ..DiskFaults::default() };
            control.set_disk_faults(&storage, Path::new("/ssd"), faults);
            assert!(matches!(asker.write(part, 0, &[3; 5_000]).await, Ok(DataReply::Written)));
        });
        world.control.power_cut(&world.storage);
        world.control.set_disk_faults(&world.storage, Path::new("/ssd"), DiskFaults::default());
        world.storage = world.control.restart(&world.storage);
        let _server = world.start();
        let env = world.compute.clone();
        let seen = world.sim.block_on(&world.compute, async move {
            let mut asker = Asker::connect(&env, 2, true).await;
            match asker.read(datafile(0, 1, 0), 0, 5_000).await {
                Ok((DataReply::Read { .. }, seen)) => seen,
                _ => panic!("no bytes"),
            }
        });
        assert!(seen.iter().all(|&byte| byte > 1), "seed {seed}: bytes of before what was synced");
        newer += u32::from(seen[0] == 3);
    }
    assert!(newer > 0, "the newer ones survive now and then");
}

#[test]
fn a_hole_leaves_the_length_that_a_failed_ssd_gave_a_datafile() {
    for seed in 700..720 {
        let plan = Plan { policy: Policy::Threshold, module: Module::Buffered, size: ByteLen(2 << 20) };
        let mut world = World::new(seed, plan);
        let _server = world.start();
        let (env, storage, control) = (world.compute.clone(), world.storage.clone(), world.control.clone());
        world.sim.block_on(&world.compute, async move {
            let mut asker = Asker::connect(&env, 1, true).await;
            let part = datafile(0, 1, 0);
            // On the disk, and on the SSD behind that.
            for (offset, bytes) in [(0, [1; 60_000].as_slice()), (60_000, &[2; 5_000])] {
                assert!(matches!(asker.write(part, offset, bytes).await, Ok(DataReply::Written)));
            }
            let faults = DiskFaults { write_errors_per_million: 1_000_000, ..DiskFaults::default() };
            control.set_disk_faults(&storage, Path::new("/ssd"), faults);
            // From before the dirty bytes, or in the middle of them, to behind their end.
            let from = [59_000, 60_000, 62_000][seed as usize % 3];
            let cap = asker.client.cap(1);
            let punch = DataRequest::Punch { cap, extents: vec![(part, LocalOffset(from), ByteLen(90_000))] };
            assert!(matches!(asker.ask(&punch, &[]).await, Ok((DataReply::Done, _))));
            let lens = DataRequest::GetLens { cap, datafiles: vec![part] };
            let Ok((DataReply::Lens(lens), _)) = asker.ask(&lens, &[]).await else { panic!("no lengths") };
            assert_eq!(lens[0].len, ByteLen(65_000), "seed {seed}");
            let Ok((DataReply::Read { .. }, seen)) = asker.read(part, from, 10_000).await else {
                panic!("no bytes");
            };
            assert_eq!(seen.len() as u64, 65_000 - from);
            assert!(seen.iter().all(|&byte| byte == 0), "seed {seed}: older bytes in the hole");
        });
    }
}

#[test]
fn a_datafile_that_is_being_removed_is_as_long_as_it_was_or_gone() {
    let (mut whole, mut refused) = (0, 0);
    for seed in 600..640 {
        let plan = Plan { policy: Policy::Threshold, module: Module::Buffered, size: ByteLen(2 << 20) };
        let mut world = World::new(seed, plan);
        let server = world.start();
        let env = world.compute.clone();
        let (seen, told) = world.sim.block_on(&world.compute, async move {
            let part = datafile(0, 1, 0);
            let mut asker = Asker::connect(&env, 1, true).await;
            // On the disk, and on the SSD behind that.
            for (offset, bytes) in [(0, [1; 60_000].as_slice()), (60_000, &[2; 5_000])] {
                assert!(matches!(asker.write(part, offset, bytes).await, Ok(DataReply::Written)));
            }
            let other = env.clone();
            let remove = move || async move {
                let mut asker = Asker::connect(&other, 2, true).await;
                other.sleep(Nanos(1 + seed % 40 * 7_000)).await;
                let remove = DataRequest::Remove { datafiles: vec![part] };
                assert!(matches!(asker.ask(&remove, &[]).await, Ok((DataReply::Done, _))));
            };
            env.spawn("remover", remove).expect("a task");
            let (mut seen, mut told) = (0, 0);
            while told < 3 {
                let lens = DataRequest::GetLens { cap: asker.client.cap(1), datafiles: vec![part] };
                match asker.ask(&lens, &[]).await {
                    Ok((DataReply::Lens(lens), _)) => {
                        assert_eq!(lens[0].len, ByteLen(65_000), "seed {seed}");
                        seen += 1;
                    }
                    Ok((DataReply::Failed(error), _)) if error.errno == Errno::ESTALE => told += 1,
                    Ok((other, _)) => panic!("{other:?}"),
                    Err(_) => panic!("the server is gone"),
                }
            }
            (seen, told)
        });
        (whole, refused) = (whole + seen, refused + told);
        assert_eq!(server.panics(), 0);
    }
    assert!(whole > 40 && refused > 40, "{whole} and {refused}");
}

#[test]
fn a_seed_decides_what_happens() {
    let once = |seed| live(seed, plan(seed), &[End::Kill, End::Stop]);
    assert_eq!(once(5), once(5));
}
