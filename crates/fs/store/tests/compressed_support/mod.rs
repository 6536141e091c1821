//! Random operations on compressed datafiles, and a model of their bytes.

use crate::target_support::target_spec;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use weft_core::{ByteLen, Compression, FileId, Integrity, LocalOffset, ObjectId};
use weft_env::sim::{Rng, Sim, SimEnv};
use weft_env::{Env, Shared};
use weft_store::datafile::DatafileKey;
use weft_store::error::DatafileError;
use weft_store::target::{DatafileFormat, Module, Target};

/// Few datafiles, and few held open, so that some are closed and opened again all the time.
const DATAFILES: u64 = 4;
const OPEN_MAX: usize = 2;

const ZEROS: [u8; 128] = [0; 128];

/// Module and compression of a test.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub module: Module,
    compression: &'static str,
    integrity: Integrity,
}

pub const SETUPS: [Setup; 7] = [
    Setup { module: Module::Buffered, compression: "lz4/16KiB", integrity: Integrity::Off },
    Setup { module: Module::Buffered, compression: "zstd:1/16KiB", integrity: Integrity::Crc32c },
    Setup { module: Module::Direct, compression: "auto/32KiB", integrity: Integrity::Off },
    Setup { module: Module::Buffered, compression: "zstd:5/64KiB", integrity: Integrity::Off },
    Setup { module: Module::Direct, compression: "lz4/128KiB", integrity: Integrity::Crc32c },
    Setup { module: Module::Buffered, compression: "zstd:3/256KiB", integrity: Integrity::Off },
    Setup { module: Module::Buffered, compression: "auto/1MiB", integrity: Integrity::Off },
];

impl Setup {
    pub fn compression(&self) -> Compression {
        self.compression.parse().expect("a setting")
    }

    pub fn format(&self) -> DatafileFormat {
        DatafileFormat { integrity: Some(self.integrity), compression: Some(self.compression()) }
    }

    /// Maximum number of chunks of a datafile.
    fn chunks_max(&self) -> u64 {
        match self.compression().chunk_len() {
            0..=0x2_0000 => 5,
            0x2_0001..=0x4_0000 => 3,
            _ => 2,
        }
    }

    /// Maximum length of a datafile.
    fn len_max(&self) -> u64 {
        self.compression().chunk_len() * self.chunks_max()
    }

    /// Returns the number of seeds for a test that uses `seeds` of them with the shortest chunks.
    pub fn seeds(&self, seeds: u64) -> u64 {
        (seeds * 0x1_4000 / self.len_max().max(0x1_4000)).max(1)
    }
}

pub async fn open<E: Env>(env: &E, path: &Path, module: Module) -> Target<E> {
    Target::open(env, &target_spec(path, module, Integrity::Off, OPEN_MAX)).await.expect("target")
}

pub fn key(file: u64, column: u16) -> DatafileKey {
    DatafileKey::new(FileId(file), ObjectId { component: 0, column })
}

/// Writes as a data server does.
pub async fn write<E: Env>(target: &Target<E>, key: DatafileKey, setup: Setup, offset: u64, bytes: &[u8]) {
    target.prepare(key, setup.format()).await.expect("prepare");
    target.write(key, LocalOffset(offset), bytes).await.expect("write");
}

/// Reads a datafile as a data server does.
pub async fn read<E: Env>(
    target: &Target<E>,
    key: DatafileKey,
    setup: Setup,
) -> Result<Vec<u8>, DatafileError> {
    target.require_format(key, setup.format()).await?;
    let (_, len) = target.read(key, LocalOffset(0), &mut []).await?;
    let mut bytes = vec![0xee; len.0 as usize + 9];
    let (got, len) = target.read(key, LocalOffset(0), &mut bytes).await?;
    assert_eq!(got as u64, len.0);
    bytes.truncate(got);
    Ok(bytes)
}

/// Returns bytes that compress to less than a half.
pub fn text(len: usize) -> Vec<u8> {
    let words = [&b"chunk "[..], b"of ", b"compressed ", b"bytes ", b"and ", b"more ", b"of them, "];
    let mut text = Vec::with_capacity(len + 16);
    let mut number = len as u64 | 1;
    while text.len() < len {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.extend_from_slice(words[(number >> 33) as usize % words.len()]);
    }
    text.truncate(len);
    text
}

/// Returns bytes that do not compress.
pub fn noise(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
    bytes.truncate(len);
    bytes
}

#[derive(Clone, Debug)]
enum Op {
    Write { key: DatafileKey, offset: u64, bytes: Vec<u8>, shared: bool },
    SetLen { key: DatafileKey, len: u64 },
    Punch { key: DatafileKey, offset: u64, len: u64 },
    Sync { key: DatafileKey },
    Settle { key: DatafileKey },
    Remove { key: DatafileKey },
    Reopen,
    List,
}

impl Op {
    fn key(&self) -> Option<DatafileKey> {
        match self {
            Self::Write { key, .. }
            | Self::SetLen { key, .. }
            | Self::Punch { key, .. }
            | Self::Sync { key }
            | Self::Settle { key }
            | Self::Remove { key } => Some(*key),
            Self::Reopen | Self::List => None,
        }
    }
}

/// Random operations to run.
#[derive(Clone, Copy)]
pub struct Plan {
    pub setup: Setup,
    pub seed: u64,
    pub ops: usize,
    pub may_remove: bool,
    /// Number of small appends that precede the operations, to make a map long.
    pub appends: usize,
    /// True if the disk loses its cache while the machine runs on, instead of a loss of power.
    pub same_boot: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self { setup: SETUPS[0], seed: 0, ops: 0, may_remove: true, appends: 0, same_boot: false }
    }
}

impl Plan {
    /// Offsets near the edges of chunks are the interesting ones.
    fn position(&self, rng: &mut Rng) -> u64 {
        let (chunk_len, chunks) = (self.setup.compression().chunk_len(), self.setup.chunks_max());
        match rng.below(4) {
            0 => rng.below(self.setup.len_max()),
            1 => rng.below(chunks) * chunk_len,
            2 => (1 + rng.below(chunks - 1)) * chunk_len - 1 - rng.below(3),
            _ => rng.below(chunks) * chunk_len + rng.below(700),
        }
    }

    fn bytes(&self, rng: &mut Rng, len: usize) -> Vec<u8> {
        match rng.below(6) {
            0 => vec![0; len],
            1 => noise(rng, len),
            // Few values, so that the stored bytes of different chunks are often the same.
            2 => vec![1 + rng.below(2) as u8; len],
            3 => {
                let mut bytes = noise(rng, len);
                bytes[len / 2..].fill(7);
                bytes
            }
            _ => {
                let mut bytes = text(len + rng.below(50) as usize);
                bytes.split_off(bytes.len() - len)
            }
        }
    }

    fn op(&self, rng: &mut Rng, model: &Model) -> Op {
        let key = key(0x100 + rng.below(DATAFILES / 2) * 0x101, rng.below(2) as u16);
        let (a, b) = (self.position(rng), self.position(rng));
        let (offset, len) = (a.min(b), a.abs_diff(b));
        match rng.below(24) {
            // Small writes, and writes that continue the last one.
            0..=5 => {
                let len = 1 + rng.below(3000) as usize;
                let end = model.datafiles.get(&key).map_or(0, |it| it.bytes.len() as u64);
                let offset = if rng.below(2) == 0 && end < self.setup.len_max() { end } else { offset };
                Op::Write { key, offset, bytes: self.bytes(rng, len), shared: rng.below(4) == 0 }
            }
            6..=11 => Op::Write {
                key,
                offset,
                bytes: if len == 0 { Vec::new() } else { self.bytes(rng, len as usize) },
                shared: rng.below(4) == 0,
            },
            12..=14 => Op::SetLen { key, len: if rng.below(5) == 0 { 0 } else { a } },
            15 | 16 => Op::Punch { key, offset, len },
            17..=19 => Op::Sync { key },
            20 => Op::Settle { key },
            21 if self.may_remove => Op::Remove { key },
            22 => Op::Reopen,
            _ => Op::List,
        }
    }
}

/// Bytes of a datafile.
#[derive(Default, Clone)]
pub struct Modeled {
    pub bytes: Vec<u8>,
    /// Bytes after the operation that is running.
    pub next: Option<Vec<u8>>,
    /// Bytes at the last sync and after each operation since.
    history: Vec<Vec<u8>>,
}

impl Modeled {
    /// Checks that each byte of a datafile has a value that it had at the last sync or since. Returns the number of
    /// bytes that could have one value only.
    pub fn check_survivor(&self, key: DatafileKey, found: &[u8]) -> usize {
        let lens = self.history.iter().map(Vec::len);
        let (least, most) = (lens.clone().min().unwrap_or(0), lens.max().unwrap_or(0));
        assert!((least..=most).contains(&found.len()), "{key:?}: {} of {least} to {most} bytes", found.len());
        check_known(key, found, &self.history)
    }
}

#[derive(Default, Clone)]
pub struct Model {
    pub datafiles: BTreeMap<DatafileKey, Modeled>,
}

impl Model {
    /// Applied before the target: from here on, either state is valid.
    fn begin(&mut self, op: &Op) {
        let Some(key) = op.key() else { return };
        let is_new = !self.datafiles.contains_key(&key);
        let mut bytes = self.datafiles.get(&key).map(|it| it.bytes.clone()).unwrap_or_default();
        match op {
            Op::Write { offset, bytes: new, .. } => {
                let end = *offset as usize + new.len();
                // An empty write does not extend the datafile.
                if !new.is_empty() && bytes.len() < end {
                    bytes.resize(end, 0);
                }
                if !new.is_empty() {
                    bytes[*offset as usize..end].copy_from_slice(new);
                }
            }
            Op::SetLen { len: 0, .. } if is_new => return,
            Op::SetLen { len, .. } => bytes.resize(*len as usize, 0),
            Op::Punch { .. } if is_new => return,
            Op::Punch { offset, len, .. } => {
                let reach = bytes.len();
                bytes[reach.min(*offset as usize)..reach.min((offset + len) as usize)].fill(0);
            }
            _ => return,
        }
        let it = self.datafiles.entry(key).or_default();
        if is_new {
            it.history.push(Vec::new());
        }
        it.history.push(bytes.clone());
        it.next = Some(bytes);
    }

    /// Applied after the target.
    fn end(&mut self, op: &Op) {
        let Some(key) = op.key() else { return };
        if let Op::Remove { .. } = op {
            self.datafiles.remove(&key);
        }
        let Some(it) = self.datafiles.get_mut(&key) else { return };
        if let Some(next) = it.next.take() {
            it.bytes = next;
        }
        if let Op::Sync { .. } | Op::Settle { .. } = op {
            it.history = vec![it.bytes.clone()];
        }
    }
}

async fn apply<E: Env>(env: &E, target: &Target<E>, setup: Setup, op: &Op) {
    match op {
        Op::Write { key, offset, bytes, shared } => {
            target.prepare(*key, setup.format()).await.expect("prepare");
            if *shared {
                let area = env.shared(bytes.len() + 77).expect("shared memory");
                area.copy_in(77, bytes);
                let written = target.write_shared(*key, LocalOffset(*offset), &area, 77, bytes.len()).await;
                written.expect("write");
            } else {
                target.write(*key, LocalOffset(*offset), bytes).await.expect("write");
            }
        }
        Op::SetLen { key, len } => {
            if *len > 0 {
                target.prepare(*key, setup.format()).await.expect("prepare");
            }
            target.set_len(*key, ByteLen(*len)).await.expect("set_len");
        }
        Op::Punch { key, offset, len } => {
            target.punch(*key, LocalOffset(*offset), ByteLen(*len)).await.expect("punch");
        }
        Op::Sync { key } => target.sync(*key).await.expect("sync"),
        Op::Settle { key } => {
            target.settle(*key).await.expect("settle");
        }
        Op::Remove { key } => target.remove(*key).await.expect("remove"),
        Op::Reopen => unreachable!("opened again by the caller"),
        Op::List => {}
    }
}

/// Checks that each byte of `found` has its value in one of `states`. Bytes behind the end of a state are zeros.
/// Returns the number of bytes, in whole blocks, that have one value in all states.
pub fn check_known(key: DatafileKey, found: &[u8], states: &[Vec<u8>]) -> usize {
    let mut certain = 0;
    // Most blocks are known as a whole.
    for (block, bytes) in found.chunks(ZEROS.len()).enumerate() {
        let start = block * ZEROS.len();
        let is_known = |state: &Vec<u8>| {
            let known = &state[start.min(state.len())..(start + bytes.len()).min(state.len())];
            bytes[..known.len()] == *known && bytes[known.len()..] == ZEROS[known.len()..bytes.len()]
        };
        let known = states.iter().filter(|state| is_known(state)).count();
        certain += if known == states.len() { bytes.len() } else { 0 };
        if known > 0 {
            continue;
        }
        for (at, byte) in (start..).zip(bytes) {
            let mut values = states.iter().map(|bytes| bytes.get(at).copied().unwrap_or(0));
            assert!(values.any(|value| value == *byte), "{key:?}: byte {at} is {byte}, which it never was");
        }
    }
    certain
}

/// Compares a datafile with the model: bytes, parts of them, length, holes.
async fn compare<E: Env>(
    env: &E,
    target: &Target<E>,
    setup: Setup,
    key: DatafileKey,
    expected: Option<&[u8]>,
    rng: &mut Rng,
) {
    let meta = target.meta(key).await.expect("meta");
    assert_eq!(meta.map(|meta| meta.len.0), expected.map(|bytes| bytes.len() as u64), "{key:?}");
    let Some(expected) = expected else { return };
    let found = read(target, key, setup).await.expect("read");
    assert_eq!(found.len(), expected.len());
    if found != expected
        && let Some(at) = found.iter().zip(expected).position(|(found, expected)| found != expected)
    {
        panic!("{key:?}: byte {at} of {} is {}, not {}", expected.len(), found[at], expected[at]);
    }
    let len = expected.len() as u64;
    for _ in 0..3 {
        let (from, count) = (rng.below(len + 100), rng.below(20_000) as usize);
        let part = &expected[expected.len().min(from as usize)..expected.len().min(from as usize + count)];
        let mut buf = vec![0xee; count];
        let (got, _) = target.read(key, LocalOffset(from), &mut buf).await.expect("read");
        assert!(got == part.len() && buf[..got] == *part, "{key:?}: {count} bytes from {from}");
        let area = env.shared(count + 5).expect("shared memory");
        let (got, _) = target.read_shared(key, LocalOffset(from), &area, 5, count).await.expect("read");
        area.copy_out(5, &mut buf);
        assert!(got == part.len() && buf[..got] == *part, "{key:?}: {count} bytes from {from}");
    }
    let mut at = 0;
    while at < len {
        let data = target.seek_data(key, LocalOffset(at)).await.expect("seek").map_or(len, |data| data.0);
        assert!(data >= at && data <= len, "data at {data} from {at} of {len}");
        let hole = &expected[at as usize..data as usize];
        assert!(hole.chunks(ZEROS.len()).all(|part| *part == ZEROS[..part.len()]), "a hole has bytes");
        let hole = target.seek_hole(key, LocalOffset(data)).await.expect("seek").0;
        assert!(data == len || hole > data, "a hole at {hole} in data from {data} of {len}");
        at = hole.max(data);
    }
    assert_eq!(at, len);
}

/// Runs random operations, and compares with the model after each.
pub async fn run<E: Env>(env: E, path: PathBuf, plan: Plan, model: Arc<Mutex<Model>>) {
    let mut target = open(&env, &path, plan.setup.module).await;
    let mut rng = Rng::new(plan.seed);
    let key_long = key(0x100, 0);
    let appends = (0..plan.appends).map(|number| {
        let (offset, bytes) = (12 * number as u64, vec![number as u8 | 1; 12]);
        Op::Write { key: key_long, offset, bytes, shared: false }
    });
    for op in appends.chain((plan.appends > 0).then_some(Op::Sync { key: key_long })) {
        model.lock().expect("model").begin(&op);
        apply(&env, &target, plan.setup, &op).await;
        model.lock().expect("model").end(&op);
    }
    for _ in 0..plan.ops {
        let op = plan.op(&mut rng, &model.lock().expect("model"));
        if let Op::Reopen = op {
            target.release();
            drop(target);
            target = open(&env, &path, plan.setup.module).await;
            continue;
        }
        model.lock().expect("model").begin(&op);
        apply(&env, &target, plan.setup, &op).await;
        model.lock().expect("model").end(&op);
        assert!(target.open_count() <= OPEN_MAX);
        if let Some(key) = op.key() {
            let expected = model.lock().expect("model").datafiles.get(&key).map(|it| it.bytes.clone());
            compare(&env, &target, plan.setup, key, expected.as_deref(), &mut rng).await;
        } else {
            let found = target.list(None, 100).await.expect("list");
            let model = model.lock().expect("model");
            let expected: Vec<_> =
                model.datafiles.iter().map(|(&key, it)| (key, ByteLen(it.bytes.len() as u64))).collect();
            assert_eq!(found, expected);
        }
    }
    target.release();
}

/// Cuts the power at each sync of a run, and checks what is left. Returns the number of bytes that had to survive.
pub fn cut_power_at_every_sync(plan: Plan) -> usize {
    let total = sync_points(plan);
    let mut checked = 0;
    for cut in 1..=total {
        eprintln!("{:?}, seed {}, power cut at sync {cut} of {total}", plan.setup, plan.seed);
        let (mut sim, env, model) = cut_power(plan, cut);
        checked += sim.block_on(&env.clone(), check_survivors(env, plan.setup, model, plan.seed));
    }
    checked
}

/// Cuts the power at a random sync of a run, continues with the surviving bytes, and cuts the power again, at each
/// sync. Returns the number of bytes that had to survive.
pub fn cut_power_twice(plan: Plan) -> usize {
    let total = sync_points(plan);
    let first = 1 + Rng::new(plan.seed).below(total);
    let second = Plan { seed: plan.seed + 1_000_000, ..plan };
    let start = || {
        let (mut sim, env, model) = cut_power(plan, first);
        let model = sim.block_on(&env.clone(), survivors(env.clone(), plan.setup, model));
        (sim, env, Arc::new(Mutex::new(model)))
    };
    let cuts = {
        let (mut sim, env, model) = start();
        let before = sim.sync_points(&env);
        sim.block_on(&env, run(env.clone(), "/".into(), second, model));
        before + 1..=sim.sync_points(&env)
    };
    let mut checked = 0;
    for cut in cuts {
        eprintln!("{:?}, seed {}, power cut at syncs {first} and {cut}", plan.setup, plan.seed);
        let (mut sim, env, model) = start();
        let (env, model) = run_to_cut(&mut sim, env, second, model, cut);
        checked += sim.block_on(&env.clone(), check_survivors(env, plan.setup, model, plan.seed));
    }
    checked
}

/// Returns the number of syncs of a run.
fn sync_points(plan: Plan) -> u64 {
    let mut sim = Sim::with_seed(plan.seed);
    let env = sim.node("node");
    sim.block_on(&env, run(env.clone(), "/".into(), plan, Arc::default()));
    sim.sync_points(&env)
}

/// Runs a new simulation until the power is cut at a sync.
fn cut_power(plan: Plan, cut: u64) -> (Sim<'static>, SimEnv, Model) {
    let mut sim = Sim::with_seed(plan.seed);
    let env = sim.node("node");
    let (env, model) = run_to_cut(&mut sim, env, plan, Arc::default(), cut);
    (sim, env, model)
}

/// Runs operations until the power is cut at a sync. Returns the restarted machine.
fn run_to_cut(sim: &mut Sim, env: SimEnv, plan: Plan, model: Arc<Mutex<Model>>, cut: u64) -> (SimEnv, Model) {
    sim.power_cut_at_sync(&env, cut);
    let ended = sim.try_block_on(&env, run(env.clone(), "/".into(), plan, Arc::clone(&model)));
    assert!(ended.is_none(), "the power was cut");
    let model = model.lock().expect("model").clone();
    let control = sim.control();
    (if plan.same_boot { control.restart_in_same_boot(&env) } else { control.restart(&env) }, model)
}

/// Returns the model of what a loss of power has left.
async fn survivors(env: SimEnv, setup: Setup, model: Model) -> Model {
    let target = open(&env, Path::new("/"), setup.module).await;
    let mut left = Model::default();
    for &key in model.datafiles.keys() {
        let bytes = read(&target, key, setup).await.expect("read");
        if target.meta(key).await.expect("meta").is_some() {
            left.datafiles.insert(key, Modeled { history: vec![bytes.clone()], bytes, next: None });
        }
    }
    target.release();
    left
}

/// Checks that each byte has a value that it had at the last sync or since. Returns the number of bytes that could have
/// one value only.
async fn check_survivors(env: SimEnv, setup: Setup, model: Model, seed: u64) -> usize {
    let path = Path::new("/");
    let mut target = open(&env, path, setup.module).await;
    let (mut rng, mut checked) = (Rng::new(seed), 0);
    for (&key, it) in &model.datafiles {
        let found = read(&target, key, setup).await.unwrap_or_else(|error| panic!("{key:?}: {error}"));
        checked += it.check_survivor(key, &found);
        // The bytes that were found stay, and can be changed.
        if rng.below(2) == 0 {
            target.release();
            drop(target);
            target = open(&env, path, setup.module).await;
        }
        let is_there = target.meta(key).await.expect("meta").is_some();
        assert!(is_there || found.is_empty());
        compare(&env, &target, setup, key, is_there.then_some(&found[..]), &mut rng).await;
        let mut expected = found;
        let at = rng.below(expected.len() as u64 + 1);
        let new = noise(&mut rng, 20_000);
        expected.resize(expected.len().max(at as usize + new.len()), 0);
        expected[at as usize..at as usize + new.len()].copy_from_slice(&new);
        write(&target, key, setup, at, &new).await;
        target.sync(key).await.expect("sync");
        compare(&env, &target, setup, key, Some(&expected), &mut rng).await;
    }
    target.release();
    checked
}
