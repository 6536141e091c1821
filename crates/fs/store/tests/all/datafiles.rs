//! Datafiles against a model that keeps every byte: on the real and the simulated file system, through each module,
//! with power cuts at every sync point.

use crate::target_support::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use weft_core::{ByteLen, FileId, Integrity, LocalOffset, ObjectId};
use weft_env::real::{RealEnv, block_on};
use weft_env::sim::{Rng, Sim, SimEnv};
use weft_env::{Dir, Env, Shared};
use weft_store::datafile::DatafileKey;
use weft_store::error::DatafileError;
use weft_store::target::{DatafileFormat, Module, Target, TargetSpec};

/// Few datafiles, and few held open, so that some are closed and opened again all the time.
const DATAFILES: u64 = 6;
const OPEN_MAX: usize = 3;
const LEN_MAX: u64 = 50_000;

/// Storage configuration of a test.
#[derive(Clone, Copy, Debug)]
struct Setup {
    module: Module,
    integrity: Integrity,
}

const SETUPS: [Setup; 4] = [
    Setup { module: Module::Buffered, integrity: Integrity::Off },
    Setup { module: Module::Direct, integrity: Integrity::Off },
    Setup { module: Module::Buffered, integrity: Integrity::Crc32c },
    Setup { module: Module::Direct, integrity: Integrity::Crc32c },
];

fn spec(path: &Path, Setup { module, integrity }: Setup) -> TargetSpec {
    target_spec(path, module, integrity, OPEN_MAX)
}

#[derive(Clone, Debug)]
enum Op {
    Write { key: DatafileKey, offset: u64, len: usize, fill: u8, shared: bool },
    Read { key: DatafileKey, offset: u64, len: usize },
    SetLen { key: DatafileKey, len: u64 },
    Sync { key: DatafileKey },
    Remove { key: DatafileKey },
    List { limit: usize },
    Seal { key: DatafileKey },
}

/// Offsets and lengths near block edges are the interesting ones.
fn position(rng: &mut Rng) -> u64 {
    match rng.below(4) {
        0 => rng.below(LEN_MAX),
        1 => rng.below(8) * 4096,
        2 => (1 + rng.below(8)) * 4096 - 1 - rng.below(3),
        _ => rng.below(8) * 4096 + rng.below(3),
    }
}

fn op(rng: &mut Rng) -> Op {
    let file = 0x100 + rng.below(DATAFILES / 2) * 0x101;
    let key = DatafileKey::new(FileId(file), ObjectId { component: 0, column: rng.below(2) as u16 });
    match rng.below(20) {
        0..=8 => {
            let (a, b) = (position(rng), position(rng));
            let (fill, shared) = (rng.below(255) as u8 + 1, rng.below(4) == 0);
            Op::Write { key, offset: a.min(b), len: a.abs_diff(b) as usize, fill, shared }
        }
        9..=13 => Op::Read { key, offset: position(rng), len: position(rng) as usize },
        14..=15 => Op::SetLen { key, len: if rng.below(4) == 0 { 0 } else { position(rng) } },
        16..=17 => Op::Sync { key },
        18 => Op::Remove { key },
        19 if rng.below(2) == 0 => Op::Seal { key },
        _ => Op::List { limit: 1 + rng.below(DATAFILES) as usize },
    }
}

/// Content of a datafile, and the part that must survive a loss of power.
#[derive(Default, Clone)]
struct Modeled {
    bytes: Vec<u8>,
    /// Content as of the last sync.
    synced: Vec<u8>,
    /// Bytes that are unchanged since.
    sound: Vec<bool>,
}

impl Modeled {
    fn touch(&mut self, from: u64, to: u64) {
        let len = self.sound.len();
        self.sound[(from as usize).min(len)..(to as usize).min(len)].fill(false);
    }
}

#[derive(Default, Clone)]
struct Model {
    datafiles: BTreeMap<DatafileKey, Modeled>,
    /// Datafiles that have been removed at some time.
    removed: BTreeSet<DatafileKey>,
}

impl Model {
    /// Applied before the target: from here on, either state is valid.
    fn begin(&mut self, op: &Op) {
        match *op {
            Op::Write { key, offset, len, .. } => {
                let it = self.datafiles.entry(key).or_default();
                it.touch(offset, offset + len as u64);
            }
            Op::SetLen { key, len } => {
                if let Some(it) = self.datafiles.get_mut(&key) {
                    it.touch(len, u64::MAX);
                }
            }
            Op::Remove { key } => {
                if let Some(it) = self.datafiles.get_mut(&key) {
                    it.touch(0, u64::MAX);
                }
            }
            Op::Read { .. } | Op::Sync { .. } | Op::List { .. } | Op::Seal { .. } => {}
        }
    }

    /// Applied after the target.
    fn end(&mut self, op: &Op) {
        match *op {
            Op::Write { key, offset, len, fill, .. } => {
                let it = self.datafiles.get_mut(&key).expect("begun");
                let end = offset as usize + len;
                // An empty write does not extend the datafile.
                if len > 0 && it.bytes.len() < end {
                    it.bytes.resize(end, 0);
                }
                it.bytes.get_mut(offset as usize..end).unwrap_or_default().fill(fill);
            }
            Op::SetLen { key, len } if len > 0 || self.datafiles.contains_key(&key) => {
                self.datafiles.entry(key).or_default().bytes.resize(len as usize, 0);
            }
            Op::Sync { key } => {
                if let Some(it) = self.datafiles.get_mut(&key) {
                    it.synced = it.bytes.clone();
                    it.sound = vec![true; it.bytes.len()];
                }
            }
            Op::Remove { key } => {
                self.datafiles.remove(&key);
                self.removed.insert(key);
            }
            Op::SetLen { .. } | Op::Read { .. } | Op::List { .. } | Op::Seal { .. } => {}
        }
    }
}

async fn apply<E: Env>(env: &E, target: &Target<E>, model: &Mutex<Model>, op: &Op) {
    model.lock().expect("model").begin(op);
    if let Op::Write { key, .. } | Op::SetLen { key, len: 1.. } = *op {
        let is_new = target.meta(key).await.expect("meta").is_none();
        if !is_new || !matches!(*op, Op::Write { len: 0, .. }) {
            target.prepare(key, DatafileFormat::default()).await.expect("prepare");
        }
    }
    match *op {
        Op::Write { key, offset, len, fill, shared } if shared => {
            let area = env.shared(len + 77).expect("shared memory");
            area.copy_in(77, &vec![fill; len]);
            target.write_shared(key, LocalOffset(offset), &area, 77, len).await.expect("write");
        }
        Op::Write { key, offset, len, fill, .. } => {
            target.write(key, LocalOffset(offset), &vec![fill; len]).await.expect("write");
        }
        Op::Read { key, offset, len } => {
            let mut buf = vec![0xee; len];
            let (got, datafile_len) = target.read(key, LocalOffset(offset), &mut buf).await.expect("read");
            let model = model.lock().expect("model");
            let bytes = model.datafiles.get(&key).map_or(&[][..], |it| &it.bytes);
            assert_eq!(datafile_len.0, bytes.len() as u64, "{op:?}");
            let expected = &bytes[bytes.len().min(offset as usize)..bytes.len().min(offset as usize + len)];
            assert!(&buf[..got] == expected, "{op:?}: got {got} of {}", expected.len());
        }
        Op::SetLen { key, len } => target.set_len(key, ByteLen(len)).await.expect("set_len"),
        Op::Sync { key } => target.sync(key).await.expect("sync"),
        Op::Seal { key } => {
            target.settle(key).await.expect("seal");
        }
        Op::Remove { key } => target.remove(key).await.expect("remove"),
        Op::List { limit } => {
            let (mut after, mut found) = (None, Vec::new());
            loop {
                let page = target.list(after, limit).await.expect("list");
                assert!(page.len() <= limit);
                let Some(last) = page.last() else { break };
                after = Some(last.0);
                found.extend(page);
            }
            let model = model.lock().expect("model");
            let expected: Vec<_> =
                model.datafiles.iter().map(|(&key, it)| (key, ByteLen(it.bytes.len() as u64))).collect();
            assert_eq!(found, expected);
        }
    }
    model.lock().expect("model").end(op);
    if let Op::Write { key, .. } | Op::SetLen { key, .. } | Op::Remove { key } = *op {
        let meta = target.meta(key).await.expect("meta");
        let model = model.lock().expect("model");
        let expected = model.datafiles.get(&key).map(|it| it.bytes.len() as u64);
        assert_eq!(meta.map(|meta| meta.len.0), expected, "{op:?}");
    }
}

async fn run<E: Env>(env: E, path: PathBuf, setup: Setup, seed: u64, count: usize, model: Arc<Mutex<Model>>) {
    let target = Target::open(&env, &spec(&path, setup)).await.expect("target");
    let mut rng = Rng::new(seed);
    for _ in 0..count {
        apply(&env, &target, &model, &op(&mut rng)).await;
        assert!(target.open_count() <= OPEN_MAX);
    }
}

#[test]
fn real_files_match_the_model() {
    for setup in SETUPS {
        for seed in 0..10 {
            eprintln!("{setup:?}, seed {seed}");
            let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
            block_on(run(RealEnv::new(), folder.path().into(), setup, seed, 400, Arc::default()));
        }
    }
}

#[test]
fn simulated_files_match_the_model() {
    for setup in SETUPS {
        for seed in 0..50 {
            eprintln!("{setup:?}, seed {seed}");
            let mut sim = Sim::with_seed(seed);
            let env = sim.node("node");
            sim.block_on(&env, run(env.clone(), "/".into(), setup, seed, 300, Arc::default()));
        }
    }
}

/// Checks that synced bytes that have not changed since are present.
async fn check_survivors(env: SimEnv, setup: Setup, model: Model) {
    let target =
        Target::open(&env, &spec(Path::new("/"), setup)).await.expect("the target opens after a cut");
    for (key, it) in &model.datafiles {
        let mut found = vec![0; it.synced.len()];
        let got = match target.read(*key, LocalOffset(0), &mut found).await {
            Ok((got, _)) => got,
            // Two incarnations of one name, which a file system may mix up if power is lost before either is synced.
            Err(DatafileError::Damaged { .. })
                if model.removed.contains(key) && !it.sound.contains(&true) =>
            {
                continue;
            }
            Err(error) => panic!("{key:?}: {error}"),
        };
        for (at, (expected, sound)) in it.synced.iter().zip(&it.sound).enumerate() {
            if *sound {
                assert!(at < got, "{key:?}: synced byte {at} is gone");
                assert_eq!(found[at], *expected, "{key:?}: synced byte {at} changed");
            }
        }
    }
    // The target still works.
    let key = DatafileKey::new(FileId(1), ObjectId::default());
    target.write(key, LocalOffset(0), b"alive").await.expect("write");
    target.sync(key).await.expect("sync");
}

#[test]
fn synced_bytes_survive_a_power_cut_at_every_sync_point() {
    const OPS: usize = 60;
    let mut checked = 0;
    for setup in SETUPS {
        for seed in 0..6 {
            let total = {
                let mut sim = Sim::with_seed(seed);
                let env = sim.node("node");
                sim.block_on(&env, run(env.clone(), "/".into(), setup, seed, OPS, Arc::default()));
                sim.sync_points(&env)
            };
            for cut in 1..=total {
                eprintln!("{setup:?}, seed {seed}, power cut at sync {cut} of {total}");
                let model = Arc::new(Mutex::new(Model::default()));
                let mut sim = Sim::with_seed(seed);
                let env = sim.node("node");
                sim.power_cut_at_sync(&env, cut);
                let ended = sim
                    .try_block_on(&env, run(env.clone(), "/".into(), setup, seed, OPS, Arc::clone(&model)));
                assert!(ended.is_none(), "the power was cut");
                let env = sim.restart(&env);
                let model = model.lock().expect("model").clone();
                checked += model.datafiles.values().flat_map(|it| &it.sound).filter(|sound| **sound).count();
                sim.block_on(&env.clone(), check_survivors(env, setup, model));
            }
        }
    }
    assert!(checked > 1_000_000, "only {checked} bytes had to survive");
}

#[test]
fn concurrent_writes_of_one_block_are_all_kept() {
    // Tasks write single bytes of the same blocks directly, at the same virtual time; every byte must be kept.
    for seed in 0..30 {
        eprintln!("seed {seed}");
        let mut sim = Sim::with_seed(seed);
        let env = sim.node("node");
        let world = env.clone();
        let key = DatafileKey::new(FileId(9), ObjectId::default());
        let target = sim.block_on(&env, async move {
            Arc::new(Target::open(&world, &spec(Path::new("/"), SETUPS[1])).await.expect("target"))
        });
        for writer in 0..8_u64 {
            let target = Arc::clone(&target);
            env.spawn("writer", move || async move {
                for round in 0..40_u64 {
                    let at = round * 200 + writer * 25;
                    target.write(key, LocalOffset(at), &[writer as u8 + 1; 25]).await.expect("write");
                }
            })
            .expect("a task");
        }
        sim.run();
        let bytes = sim.block_on(&env, async move {
            let mut bytes = vec![0; 9000];
            let (got, len) = target.read(key, LocalOffset(0), &mut bytes).await.expect("read");
            assert_eq!((got, len), (8000, ByteLen(8000)));
            bytes
        });
        for (at, byte) in bytes[..8000].iter().enumerate() {
            assert_eq!(*byte as usize, at / 25 % 8 + 1, "byte {at}");
        }
    }
}

#[test]
fn a_removed_datafile_starts_empty_when_it_is_written_again() {
    simulate(1, |world| async move {
        let target = Target::open(&world, &spec(Path::new("/"), SETUPS[0])).await.expect("target");
        let key = DatafileKey::new(FileId(9), ObjectId::default());
        target.write(key, LocalOffset(0), b"old bytes").await.expect("write");
        target.remove(key).await.expect("remove");
        assert_eq!(target.meta(key).await.expect("meta"), None);
        target.write(key, LocalOffset(4), b"new").await.expect("write");
        let mut bytes = [0xee; 20];
        assert_eq!(target.read(key, LocalOffset(0), &mut bytes).await.expect("read").0, 7);
        assert_eq!(&bytes[..7], b"\0\0\0\0new");
        let names = world.dir(Path::new("/")).await.expect("dir").list("objects/09").await.expect("list");
        assert_eq!(names, ["0000000000000009.0.0"]);
    });
}
