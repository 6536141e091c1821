//! Replicas of files of the host in the simulated world: several processes, other programs, killed processes and losses of
//! power at every sync, against a byte vector.

use std::cell::RefCell;
use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use std::rc::Rc;
use weft_client::replicas::{
    Begun, MaybeReplicated, Origin, Phase, Replica, ReplicaInfo, Unpaced, Usage, list_replicas,
};
use weft_client::{FileHandle, HostFile};
use weft_core::random::SplitMix64;
use weft_core::replicas::{MappedExtent, Mapping};
use weft_core::{ByteLen, Extent, FileOffset, LocalOffset, Nanos};
use weft_env::sim::{Sim, SimEnv};
use weft_env::{Dir, Env, File, OpenMode};

type SimHandle = MaybeReplicated<SimEnv, HostFile<SimEnv>>;

/// Length of the original at first.
const LEN: u64 = 6000;
/// One past the last byte that is ever written.
const END: u64 = 9000;
const PROCESSES: usize = 3;
const ID: &str = "f";

/// Every second piece of 100 bytes below [`END`] is mapped, in two objects; their order in the replica is another one.
fn mapping() -> Mapping {
    let count = END / 100 / 2;
    let piece = |number: u64| MappedExtent {
        start: number * 200,
        len: 100,
        at: (number % 2) * (count / 2 + 1) * 100 + number / 2 * 100,
    };
    let irregular = MappedExtent { start: 110, len: 50, at: 50_000 };
    Mapping::of_pieces((0..count).map(piece).chain([irregular]).collect()).expect("a mapping")
}

async fn original(env: &SimEnv) -> <SimEnv as Env>::File {
    let dir = env.dir(Path::new("/")).await.expect("the disk");
    dir.open("original", OpenMode::WRITE).await.expect("the original")
}

async fn origin(env: &SimEnv) -> Origin<SimEnv> {
    let file = original(env).await;
    let again = file.clone();
    Origin { file, writable: Box::new(move || Ok(again.clone())) }
}

async fn replica(env: &SimEnv) -> Replica<SimEnv> {
    let dir = env.dir(Path::new("/")).await.expect("the disk");
    Replica::open(env.clone(), dir, "/.weft/replicas", ID).await.expect("the replica")
}

async fn open(env: &SimEnv) -> SimHandle {
    let file = HostFile::new(original(env).await, b"original".to_vec());
    let (usage, begun) = Usage::begin(replica(env).await, origin(env).await, None).await.expect("begins");
    MaybeReplicated::begun(env.clone(), file, usage, begun)
}

/// Creates the original with `LEN` bytes and its replica.
async fn create(env: &SimEnv, bytes: &[u8]) {
    let dir = env.dir(Path::new("/")).await.expect("the disk");
    let file = dir.open("original", OpenMode::CREATE).await.expect("created");
    file.write_at(&[IoSlice::new(bytes)], LocalOffset(0)).await.expect("written");
    file.sync().await.expect("durable");
    dir.sync("").await.expect("durable");
    let original = file.meta().await.expect("attributes").into();
    let info = ReplicaInfo {
        phase: Phase::Copying,
        ranks: 0,
        original,
        mapping_hash: 0,
        path: b"original".to_vec(),
    };
    let created = Replica::create(env.clone(), dir, "/.weft/replicas", ID, &mapping(), &info).await;
    let copied =
        Usage::fill(created.expect("created"), origin(env).await, &mut Unpaced).await.expect("copied");
    assert!(copied.is_some_and(|copied| copied > 0), "{copied:?}");
}

async fn contents(file: &impl FileHandle) -> Vec<u8> {
    let mut bytes = vec![0; END as usize + 10];
    let read = file.read_at(&mut [IoSliceMut::new(&mut bytes)], FileOffset(0)).await.expect("reads");
    assert_eq!(read as u64, file.size().await.expect("the size").0);
    bytes.truncate(read);
    bytes
}

/// Possible contents of the file.
#[derive(Clone, Default)]
struct Model {
    now: Vec<u8>,
    /// Values of each byte that a loss of power may leave: the durable one, and those written since.
    possible: Vec<Vec<u8>>,
}

impl Model {
    fn new(bytes: Vec<u8>) -> Self {
        let possible = bytes.iter().map(|byte| vec![*byte]).collect();
        Self { possible, now: bytes }
    }

    fn before_write(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset as usize + bytes.len();
        if self.possible.len() < end {
            self.possible.resize(end, vec![0]);
        }
        for (possible, byte) in self.possible[offset as usize..].iter_mut().zip(bytes) {
            possible.push(*byte);
        }
    }

    fn written(&mut self, offset: u64, bytes: &[u8]) {
        let (from, end) = (offset as usize, offset as usize + bytes.len());
        if self.now.len() < end {
            self.now.resize(end, 0);
        }
        self.now[from..end].copy_from_slice(bytes);
    }

    fn cut(&mut self, size: u64) {
        if self.possible.len() < size as usize {
            self.possible.resize(size as usize, vec![0]);
        }
        self.now.resize(size as usize, 0);
    }

    /// All writes are durable.
    fn durable(&mut self) {
        for (possible, byte) in self.possible.iter_mut().zip(&self.now) {
            *possible = vec![*byte];
        }
    }
}

/// Events of a run beside reads and writes.
#[derive(Clone, Copy)]
struct Mix {
    steps: u64,
    truncates: bool,
    kills: bool,
    foreign: bool,
}

/// Processes that open, read, write, sync and close the file, one step after another.
struct Run {
    control: weft_env::sim::Control,
    machine: SimEnv,
    model: Rc<RefCell<Model>>,
    random: SplitMix64,
    processes: Vec<(SimEnv, Option<SimHandle>)>,
    redirected: u64,
}

impl Run {
    async fn steps(&mut self, mix: Mix) {
        for _ in 0..mix.steps {
            let number = self.random.below(PROCESSES as u64) as usize;
            let Some(file) = self.processes[number].1.take() else {
                self.closed_step(number, mix).await;
                continue;
            };
            self.redirected += u64::from(file.is_redirected());
            if let Some(file) = self.open_step(number, file, mix).await {
                self.processes[number].1 = Some(file);
            }
        }
    }

    fn is_unused(&self) -> bool {
        self.processes.iter().all(|(_, file)| file.is_none())
    }

    async fn closed_step(&mut self, number: usize, mix: Mix) {
        if mix.foreign && self.is_unused() && self.random.below(4) == 0 {
            // Another program writes to the original, long after the last user.
            self.machine.sleep(Nanos::from_s(20)).await;
            let pending = replica(&self.machine).await.written().await.expect("the marks").any;
            if !pending {
                let bytes = [self.random.below(255) as u8 + 1; 300];
                let offset = self.random.below(LEN - 300);
                self.model.borrow_mut().before_write(offset, &bytes);
                let file = original(&self.machine).await;
                file.write_at(&[IoSlice::new(&bytes)], LocalOffset(offset)).await.expect("written");
                file.sync().await.expect("durable");
                let mut model = self.model.borrow_mut();
                model.written(offset, &bytes);
                model.durable();
            }
            return;
        }
        let file = open(&self.processes[number].0).await;
        self.processes[number].1 = Some(file);
    }

    async fn open_step(&mut self, number: usize, file: SimHandle, mix: Mix) -> Option<SimHandle> {
        match self.random.below(20) {
            0..8 => {
                let offset = self.random.below(END - 1);
                let len = (1 + self.random.below(700)).min(END - offset);
                let bytes = vec![self.random.below(255) as u8 + 1; len as usize];
                self.model.borrow_mut().before_write(offset, &bytes);
                let half = bytes.len() / 2;
                let bufs = [IoSlice::new(&bytes[..half]), IoSlice::new(&bytes[half..])];
                assert_eq!(file.write_at(&bufs, FileOffset(offset)).await.expect("writes"), bytes.len());
                self.model.borrow_mut().written(offset, &bytes);
            }
            8..13 => assert!(contents(&file).await == self.model.borrow().now, "another content"),
            13 => {
                file.sync().await.expect("syncs");
                self.model.borrow_mut().durable();
            }
            14 => {
                let offset = self.random.below(LEN);
                let len = 1 + self.random.below(500);
                let size = self.model.borrow().now.len() as u64;
                let end = (offset + len).min(size);
                if offset < end {
                    let zeros = vec![0; (end - offset) as usize];
                    self.model.borrow_mut().before_write(offset, &zeros);
                    file.punch(Extent::new(offset, len)).await.expect("punches");
                    self.model.borrow_mut().written(offset, &zeros);
                }
            }
            15 if mix.truncates => {
                let size = self.random.below(END);
                file.truncate(ByteLen(size)).await.expect("cuts");
                self.model.borrow_mut().cut(size);
            }
            16 => {
                let bytes = vec![self.random.below(255) as u8 + 1; 1 + self.random.below(150) as usize];
                let end = self.model.borrow().now.len() as u64;
                if end + bytes.len() as u64 <= END {
                    self.model.borrow_mut().before_write(end, &bytes);
                    let (at, done) = file.append(&[IoSlice::new(&bytes)]).await.expect("appends");
                    assert_eq!((at.0, done), (end, bytes.len()));
                    self.model.borrow_mut().written(end, &bytes);
                }
            }
            17 if mix.kills => {
                self.control.kill(&self.processes[number].0);
                drop(file);
                self.processes[number].0 = self.control.process(&self.machine, "program", 1000, 1000);
                return None;
            }
            18..20 => {
                file.close().await.expect("closes");
                if self.is_unused() {
                    let direct = HostFile::<SimEnv>::new(original(&self.machine).await, Vec::new());
                    assert!(
                        contents(&direct).await == self.model.borrow().now,
                        "the original after the last close"
                    );
                    self.model.borrow_mut().durable();
                }
                return None;
            }
            _ => {}
        }
        Some(file)
    }
}

fn at_first() -> Vec<u8> {
    (0..LEN).map(|at| (at % 251) as u8 + 1).collect()
}

/// Runs a seed on a machine, and returns the model. Ends early if the power is cut.
fn run(sim: &mut Sim<'_>, machine: &SimEnv, seed: u64, mix: Mix, model: &Rc<RefCell<Model>>) -> Option<u64> {
    let control = sim.control();
    let main = control.process(machine, "test", 1000, 1000);
    let (machine, model) = (machine.clone(), Rc::clone(model));
    sim.try_block_on(&main, async move {
        let processes =
            (0..PROCESSES).map(|_| (control.process(&machine, "program", 1000, 1000), None)).collect();
        let random = SplitMix64::new(seed);
        let mut run = Run { control, machine, model, random, processes, redirected: 0 };
        run.steps(mix).await;
        let open: Vec<SimHandle> = run.processes.iter_mut().filter_map(|(_, file)| file.take()).collect();
        for file in open {
            file.close().await.expect("closes");
        }
        run.redirected
    })
}

/// Both views of the file, after whatever happened: that of the next user, then that of everybody.
fn views(sim: &mut Sim<'_>, machine: &SimEnv) -> (Vec<u8>, Vec<u8>, Phase) {
    let main = sim.control().process(machine, "after", 1000, 1000);
    let env = main.clone();
    sim.block_on(&main, async move {
        let file = open(&env).await;
        let redirected = contents(&file).await;
        file.close().await.expect("closes");
        let direct = HostFile::<SimEnv>::new(original(&env).await, Vec::new());
        (redirected, contents(&direct).await, replica(&env).await.info().await.expect("the state").phase)
    })
}

fn begin(seed: u64) -> (Sim<'static>, SimEnv, Rc<RefCell<Model>>) {
    let mut sim = Sim::with_seed(seed);
    let machine = sim.node("host");
    let env = machine.clone();
    sim.block_on(&machine, async move { create(&env, &at_first()).await });
    (sim, machine, Rc::new(RefCell::new(Model::new(at_first()))))
}

/// Runs a seed without losses of power, and returns the number of steps that used the replica.
fn check_without_cuts(seed: u64, kills: bool, foreign: bool) -> u64 {
    let (mut sim, machine, model) = begin(seed);
    let mix = Mix { steps: 60, truncates: true, kills, foreign };
    let redirected = run(&mut sim, &machine, seed, mix, &model).expect("nothing ended it");
    let (seen, direct, _) = views(&mut sim, &machine);
    assert!(seen == model.borrow().now && direct == seen, "seed {seed}");
    redirected
}

#[test]
fn programs_see_each_byte_in_its_newest_version() {
    let mut redirected = 0;
    for seed in 0..150 {
        for (kills, foreign) in [(false, false), (true, false), (false, true), (true, true)] {
            redirected += check_without_cuts(seed, kills, foreign);
        }
    }
    assert!(redirected > 3000, "{redirected} steps used the replica");
}

/// Runs a seed once for each sync, where the power is cut. Returns their number.
fn check_each_cut(seed: u64) -> u64 {
    let mix = Mix { steps: 40, truncates: false, kills: true, foreign: false };
    let (mut sim, machine, model) = begin(seed);
    let first = sim.control().sync_points(&machine) + 1;
    run(&mut sim, &machine, seed, mix, &model).expect("nothing ended it");
    let last = sim.control().sync_points(&machine);
    for cut in first..=last {
        let (mut sim, machine, model) = begin(seed);
        sim.control().power_cut_at_sync(&machine, cut);
        assert_eq!(run(&mut sim, &machine, seed, mix, &model), None, "seed {seed}, cut {cut}");
        let machine = sim.control().restart(&machine);
        // Again while the next user synchronizes.
        let again = sim.control().sync_points(&machine) + 1 + cut % 5;
        sim.control().power_cut_at_sync(&machine, again);
        let env = machine.clone();
        let _ = sim.try_block_on(&machine, async move { open(&env).await.close().await });
        let machine = sim.control().restart(&machine);
        sim.control().power_cut_at_sync(&machine, u64::MAX);
        let (seen, direct, phase) = views(&mut sim, &machine);
        assert!(seen == direct, "seed {seed}, cut {cut}: the views differ");
        assert_ne!(phase, Phase::Copying);
        let model = model.borrow();
        for (at, byte) in seen.iter().enumerate() {
            let values = model.possible.get(at);
            let is_possible = values.is_some_and(|values| values.contains(byte));
            assert!(is_possible, "seed {seed}, cut {cut}: byte {at} is {byte}, not one of {values:?}");
        }
    }
    last + 1 - first
}

#[test]
fn synced_bytes_survive_a_loss_of_power_at_every_sync() {
    let cuts: u64 = (0..25).map(check_each_cut).sum();
    assert!(cuts > 400, "{cuts} cuts");
}

/// Cuts the power at each sync while a replica is created.
fn check_creation(seed: u64) {
    for cut in 1.. {
        let mut sim = Sim::with_seed(1000 * seed + cut);
        let machine = sim.node("host");
        sim.control().power_cut_at_sync(&machine, cut);
        let env = machine.clone();
        if sim.try_block_on(&machine, async move { create(&env, &at_first()).await }).is_some() {
            assert!(cut > 8, "{cut} syncs");
            return;
        }
        let machine = sim.control().restart(&machine);
        let env = machine.clone();
        let main = machine.clone();
        sim.block_on(&main, async move {
            let dir = env.dir(Path::new("/")).await.expect("the disk");
            if list_replicas::<SimEnv>(&dir).await.expect("listed").is_empty() {
                return;
            }
            let file = open(&env).await;
            let phase = replica(&env).await.info().await.expect("the state").phase;
            assert_eq!(file.is_redirected(), phase == Phase::Valid, "cut {cut}");
            assert!(contents(&file).await == at_first(), "cut {cut}");
            file.close().await.expect("closes");
            let filled = Usage::fill(replica(&env).await, origin(&env).await, &mut Unpaced).await;
            assert!(filled.expect("copied").is_some());
            let file = open(&env).await;
            assert!(file.is_redirected() && contents(&file).await == at_first(), "cut {cut}");
            file.close().await.expect("closes");
            let difference = Usage::verify(replica(&env).await, origin(&env).await, &mut Unpaced).await;
            let difference = difference.expect("compares").expect("it is valid");
            assert_eq!((difference.differing, difference.first), (0, None));
            assert!(difference.compared > LEN / 2 - 100, "{difference:?}");
        });
    }
}

#[test]
fn a_partial_copy_is_never_used() {
    check_creation(0);
}

#[cfg(feature = "mutants")]
#[test]
fn seeded_bugs_are_found() {
    use weft_env::mutants::{self, Mutant};
    let check = |mutant, seed| match mutant {
        Mutant::LateReplicaMark => drop(check_each_cut(seed)),
        Mutant::EarlyReplica => check_creation(seed),
        _ => drop(check_without_cuts(seed, true, false)),
    };
    for mutant in
        [Mutant::LateReplicaMark, Mutant::EarlyReplica, Mutant::ForgottenRegion, Mutant::ReplicaAfterCut]
    {
        let found = (0..100).find(|&seed| {
            mutants::seed(Some(mutant));
            let found = std::panic::catch_unwind(|| check(mutant, seed)).is_err();
            mutants::seed(None);
            found
        });
        eprintln!("{}: seed {found:?}", mutant.name());
        assert!(found.is_some(), "{} is not found", mutant.name());
    }
}

#[test]
fn a_change_by_another_program_beside_unsynchronized_bytes_is_refused_until_somebody_decides() {
    let (mut sim, machine, _) = begin(1);
    let control = sim.control();
    let env = machine.clone();
    sim.block_on(&machine, async move {
        let program = control.process(&env, "program", 1000, 1000);
        let file = open(&program).await;
        file.write_at(&[IoSlice::new(&[7; 100])], FileOffset(0)).await.expect("writes");
        control.kill(&program);
        drop(file);
        env.sleep(Nanos::from_s(30)).await;
        original(&env).await.write_at(&[IoSlice::new(&[9; 100])], LocalOffset(0)).await.expect("writes");
        let begun = Usage::begin(replica(&env).await, origin(&env).await, None).await;
        let error = begun.map(|_| ()).expect_err("refused");
        let text = error.to_string();
        assert_eq!(error.errno(), 5);
        assert!(text.contains("/.weft/replicas/f") && text.contains("weft replicate sync --force"), "{text}");
        let kept = contents(&HostFile::<SimEnv>::new(original(&env).await, Vec::new())).await;
        assert_eq!(kept[..100], [9; 100]);
        let forced = Usage::synchronize(replica(&env).await, origin(&env).await, true, &mut Unpaced).await;
        assert_eq!(forced.expect("copied").expect("alone").info.phase, Phase::Valid);
        let file = open(&env).await;
        assert_eq!(contents(&file).await[..100], [7; 100]);
        file.close().await.expect("closes");
    });
}

#[test]
fn another_number_of_processes_bypasses_the_replica_and_so_do_all_beside_it() {
    let (mut sim, machine, _) = begin(2);
    let env = machine.clone();
    sim.block_on(&machine, async move {
        let dir = env.dir(Path::new("/")).await.expect("the disk");
        Replica::<SimEnv>::remove(&dir, "/.weft/replicas", ID).await.expect("removed");
        assert!(list_replicas::<SimEnv>(&dir).await.expect("listed").is_empty());
        let info = ReplicaInfo {
            phase: Phase::Copying,
            ranks: 8,
            original: original(&env).await.meta().await.expect("attributes").into(),
            mapping_hash: 0,
            path: Vec::new(),
        };
        let created = Replica::create(env.clone(), dir, "/.weft/replicas", ID, &mapping(), &info).await;
        let created = created.expect("created");
        Usage::fill(created, origin(&env).await, &mut Unpaced).await.expect("copied").expect("alone");
        let begin = async |ranks| {
            Usage::begin(replica(&env).await, origin(&env).await, Some(ranks)).await.expect("begins")
        };
        let (four, begun) = begin(4).await;
        assert_eq!(begun, Begun::Bypassed);
        let (eight, begun) = begin(8).await;
        assert_eq!(begun, Begun::Bypassed, "the file is in use without the replica");
        four.end().await.expect("ends");
        eight.end().await.expect("ends");
        let (eight, begun) = begin(8).await;
        assert_eq!(begun, Begun::Used);
        let (four, begun) = begin(4).await;
        assert_eq!(begun, Begun::Used, "the file is in use with the replica");
        drop((four, eight));
    });
}
