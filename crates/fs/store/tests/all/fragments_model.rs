//! The fragment log against a naive model of bytes: a disk that follows the caller's contract, kills, and losses of
//! power at every sync.

use crate::fragments_support::*;
use std::cell::RefCell;
use std::path::Path;
use weft_core::DataClass;
use weft_core::{ByteLen, LocalOffset, Nanos};
use weft_env::Env;
use weft_env::sim::{DiskFaults, Rng, Sim, SimEnv};
use weft_store::fragments::{FragmentLog, LogError};

const FILES: u64 = 6;
const FILE_LEN: usize = 192 << 10;

/// All relevant states of a datafile.
#[derive(Clone)]
struct FileModel {
    /// Last acknowledged bytes.
    truth: Vec<u8>,
    /// Bytes that reads of the disk return, and the part that survives a loss of power.
    disk: Vec<u8>,
    medium: Vec<u8>,
    /// Bytes that survive a loss of power, and for some ranges the bytes that may be found instead.
    durable: Vec<u8>,
    since: Vec<(std::ops::Range<usize>, Vec<u8>)>,
    /// Range that is being written.
    flying: Option<(std::ops::Range<usize>, Vec<u8>)>,
}

impl FileModel {
    fn new() -> Self {
        let zeros = vec![0; FILE_LEN];
        Self {
            truth: zeros.clone(),
            disk: zeros.clone(),
            medium: zeros.clone(),
            durable: zeros,
            since: Vec::new(),
            flying: None,
        }
    }

    fn try_write(&mut self, at: usize, bytes: &[u8]) {
        self.since.push((at..at + bytes.len(), bytes.to_vec()));
        self.flying = Some((at..at + bytes.len(), bytes.to_vec()));
    }

    fn wrote(&mut self, at: usize, bytes: &[u8]) {
        self.truth[at..at + bytes.len()].copy_from_slice(bytes);
        self.flying = None;
    }

    /// Returns true if a killed process may leave this byte.
    fn is(&self, at: usize, byte: u8) -> bool {
        let flying = self.flying.iter().filter(|(range, _)| range.contains(&at));
        self.truth[at] == byte || flying.map(|(range, bytes)| bytes[at - range.start]).any(|it| it == byte)
    }

    fn write_disk(&mut self, at: usize, bytes: &[u8]) {
        self.disk[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn synced(&mut self) {
        self.durable.clone_from(&self.truth);
        self.since.clear();
    }

    fn lose_power(&mut self, rng: &mut Rng) {
        for sector in (0..FILE_LEN).step_by(512) {
            if rng.below(2) == 0 {
                self.disk[sector..sector + 512].copy_from_slice(&self.medium[sector..sector + 512]);
            }
        }
        self.medium.clone_from(&self.disk);
    }

    fn may_be(&self, at: usize, byte: u8) -> bool {
        let since = self.since.iter().filter(|(range, _)| range.contains(&at));
        self.durable[at] == byte || since.map(|(range, bytes)| bytes[at - range.start]).any(|it| it == byte)
    }
}

/// The complete model, outside of the simulated world.
struct Model {
    files: Vec<FileModel>,
    rng: Rng,
    stamp: u8,
    happened: Happened,
}

/// Events of the log that a test requires to have occurred.
#[derive(Default, Debug)]
struct Happened {
    full: u64,
    moved: u64,
    evicted: u64,
    torn: u64,
    failed: u64,
    checkpoints: u64,
}

struct Run<'a> {
    env: SimEnv,
    log: FragmentLog<SimEnv>,
    model: &'a RefCell<Model>,
}

impl Run<'_> {
    fn below(&self, bound: u64) -> u64 {
        self.model.borrow_mut().rng.below(bound)
    }

    fn range(&self, len_max: u64) -> (u64, usize, usize) {
        let file = self.below(FILES);
        // Adjacent and overlapping ranges, not only scattered ones.
        let len = match self.below(3) {
            0 => 4096,
            _ => 1 + self.below(len_max),
        } as usize;
        let at = match self.below(2) {
            0 => self.below((FILE_LEN - len) as u64 / 4096 + 1) as usize * 4096,
            _ => self.below((FILE_LEN - len) as u64 + 1) as usize,
        };
        (file, at.min(FILE_LEN - len), len)
    }

    fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        let mut model = self.model.borrow_mut();
        model.stamp = model.stamp.wrapping_add(1);
        let stamp = model.stamp;
        (at..at + len).map(|at| stamp ^ (at / 64) as u8).collect()
    }

    async fn view(&self, file: u64, at: usize, len: usize) -> Vec<u8> {
        let pieces = self.log.find(key(file), range(at as u64, (at + len) as u64));
        let mut view = self.model.borrow().files[file as usize].disk[at..at + len].to_vec();
        let mut end = at as u64;
        for piece in pieces {
            let extent = piece.extent();
            assert!(extent.start() >= end, "pieces are sorted and disjoint");
            end = extent.end();
            let part = &mut view[extent.start() as usize - at..extent.end() as usize - at];
            self.log.read(&piece, part).await.expect("readable");
        }
        view
    }

    async fn check(&self, file: u64, at: usize, len: usize) {
        let view = self.view(file, at, len).await;
        let model = self.model.borrow();
        let truth = &model.files[file as usize].truth[at..at + len];
        if view == truth {
            return;
        }
        if let Some(wrong) = view.iter().zip(truth).position(|(view, truth)| view != truth) {
            panic!("file {file} at {}: {:#x} instead of {:#x}", at + wrong, view[wrong], truth[wrong]);
        }
    }

    async fn put(&self, file: u64, at: usize, bytes: &[u8]) -> bool {
        let class = DataClass::ALL[self.below(DataClass::COUNT as u64) as usize];
        self.model.borrow_mut().files[file as usize].try_write(at, bytes);
        match self
            .log
            .put(key(file), LocalOffset(at as u64), bytes, weft_store::fragments::Tag { class, ..dirty(1) })
            .await
        {
            Ok(()) => {
                self.model.borrow_mut().files[file as usize].wrote(at, bytes);
                true
            }
            Err(LogError::Full) => {
                self.model.borrow_mut().happened.full += 1;
                false
            }
            Err(LogError::Failed { .. }) => {
                self.model.borrow_mut().happened.failed += 1;
                let extent = range(at as u64, (at + bytes.len()) as u64);
                self.log.abandon(key(file), extent).await.expect("the disk works");
                let file = &mut self.model.borrow_mut().files[file as usize];
                file.write_disk(at, bytes);
                file.wrote(at, bytes);
                true
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Writes to the disk, where no dirty bytes are.
    async fn write_disk(&self, file: u64, at: usize, bytes: &[u8]) {
        let extent = range(at as u64, (at + bytes.len()) as u64);
        self.model.borrow_mut().files[file as usize].try_write(at, bytes);
        self.log.forget(key(file), extent).await.expect("dropped");
        assert!(!self.log.overlap(key(file), extent).any);
        if self.below(2) == 0 {
            self.env.sleep(Nanos(0)).await;
        }
        let file = &mut self.model.borrow_mut().files[file as usize];
        file.write_disk(at, bytes);
        file.wrote(at, bytes);
    }

    async fn write_back(&self, len_max: u64) {
        let mut after = None;
        loop {
            let pieces = self.log.dirty_pieces(after, ByteLen(len_max));
            let Some(last) = pieces.last() else { break };
            after = Some((last.key(), LocalOffset(last.extent().end())));
            for piece in &pieces {
                let mut bytes = vec![0; piece.extent().len() as usize];
                self.log.read(piece, &mut bytes).await.expect("dirty bytes are readable");
                let file = &mut self.model.borrow_mut().files[piece.key().file.0 as usize];
                file.write_disk(piece.extent().start() as usize, &bytes);
            }
            if self.below(4) == 0 {
                let (file, at, len) = self.range(9000);
                self.put(file, at, &self.bytes(at, len)).await;
            }
            for file in &mut self.model.borrow_mut().files {
                file.medium.clone_from(&file.disk);
            }
            self.log.mark_clean(&pieces).await.expect("recorded");
            if self.below(3) == 0 {
                break;
            }
        }
    }

    /// Overwrites dirty bytes repeatedly, so that segments are reused.
    async fn step_over(&self) {
        let (file, at) = (self.below(2), self.below(96 << 10) as usize);
        let bytes = self.bytes(at, 1 + self.below(12_000) as usize);
        if !self.put(file, at, &bytes).await {
            self.write_back(1 << 20).await;
        }
        self.check(file, at, bytes.len()).await;
        if self.below(16) == 0 {
            self.log.sync_datafile(key(file)).await.expect("synced");
            let file = &mut self.model.borrow_mut().files[file as usize];
            file.medium.clone_from(&file.disk);
            file.synced();
        }
    }

    async fn step(&self) {
        match self.below(20) {
            0..8 => {
                let (file, at, len) = self.range(20 << 10);
                let bytes = self.bytes(at, len);
                if !self.put(file, at, &bytes).await {
                    self.write_back(1 << 16).await;
                }
                self.check(file, at, len).await;
            }
            8..11 => {
                // As the SSD tier does: parts over dirty bytes go to the log, the rest to the disk.
                let (file, at, len) = self.range(40 << 10);
                let bytes = self.bytes(at, len);
                let dirty: Vec<_> = self
                    .log
                    .find(key(file), range(at as u64, (at + len) as u64))
                    .into_iter()
                    .filter(|piece| piece.is_dirty())
                    .map(|piece| piece.extent().start() as usize..piece.extent().end() as usize)
                    .collect();
                let mut from = at;
                for part in dirty.into_iter().map(Some).chain([None]) {
                    let (start, end) = part.map_or((at + len, at + len), |part| (part.start, part.end));
                    if start > from {
                        self.write_disk(file, from, &bytes[from - at..start - at]).await;
                    }
                    if end > start && !self.put(file, start, &bytes[start - at..end - at]).await {
                        while self.log.overlap(key(file), range(start as u64, end as u64)).dirty {
                            self.write_back(1 << 20).await;
                        }
                        self.write_disk(file, start, &bytes[start - at..end - at]).await;
                    }
                    from = end;
                }
                self.check(file, at, len).await;
            }
            11..13 => {
                let (file, at, len) = self.range(20 << 10);
                if !self.log.overlap(key(file), range(at as u64, (at + len) as u64)).dirty {
                    let bytes = self.model.borrow().files[file as usize].disk[at..at + len].to_vec();
                    match self.log.put(key(file), LocalOffset(at as u64), &bytes, copy()).await {
                        Ok(()) | Err(LogError::Full | LogError::Failed { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                self.check(file, at, len).await;
            }
            13 => self.write_back(1 + self.below(1 << 17)).await,
            14 => {
                let (file, mut at, _) = self.range(1);
                if self.below(4) == 0 {
                    at = 0;
                }
                let zeros = vec![0; FILE_LEN - at];
                self.model.borrow_mut().files[file as usize].try_write(at, &zeros);
                let is_first = self.log.overlap(key(file), range(at as u64, u64::MAX)).dirty;
                if is_first {
                    let file = &mut self.model.borrow_mut().files[file as usize];
                    file.write_disk(at, &zeros);
                    file.medium.clone_from(&file.disk);
                }
                self.env.sleep(Nanos(0)).await;
                self.log.truncate(key(file), ByteLen(at as u64)).await.expect("truncated");
                let file = &mut self.model.borrow_mut().files[file as usize];
                file.write_disk(at, &zeros);
                file.wrote(at, &zeros);
            }
            15..17 => {
                let file = self.below(FILES);
                {
                    let file = &mut self.model.borrow_mut().files[file as usize];
                    file.medium.clone_from(&file.disk);
                }
                if self.below(3) == 0 && self.log.settle_copies(key(file)).await.is_ok() {
                    assert!(!self.log.has_copies(key(file)));
                }
                match self.log.sync_datafile(key(file)).await {
                    Ok(()) => self.model.borrow_mut().files[file as usize].synced(),
                    Err(error) => assert!(matches!(error, LogError::Failed { .. }), "{error}"),
                }
            }
            17 => {
                let capacity = self.log.stats().capacity.0;
                let first = self.below(capacity);
                let second = self.below(capacity - first + 1);
                let third = capacity - first - second;
                self.log.set_quotas([first, second, third].map(ByteLen));
            }
            18 if self.below(2) == 0 => {
                let (file, at, len) = self.range(64 << 10);
                let class = DataClass::ALL[self.below(DataClass::COUNT as u64) as usize];
                let extent = range(at as u64, (at + len) as u64);
                match self.log.evict_range(key(file), extent, class).await {
                    Ok(_) | Err(LogError::Failed { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
                self.check(file, at, len).await;
            }
            _ => {
                let (file, at, len) = self.range(64 << 10);
                self.check(file, at, len).await;
            }
        }
    }

    async fn check_all(&self) {
        for file in 0..FILES {
            self.check(file, 0, FILE_LEN).await;
        }
        let stats = self.log.stats();
        let (mut dirty, mut clean) = (0, 0);
        for (_, cached) in self.log.list(None, usize::MAX) {
            (dirty, clean) = (dirty + cached.dirty.0, clean + cached.clean.0);
        }
        assert_eq!((stats.dirty().0, stats.clean().0), (dirty, clean));
    }
}

/// Way in which a run of the log ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Orderly,
    Killed,
    PowerCutAtSync(u64),
    PowerCut,
    /// Both devices lose their caches, and the process ends, while the machine runs on.
    CachesLost,
    /// The SSD fails to write at some time, the process is killed later, and the SSD works again.
    SsdFails,
}

/// Runs some steps from the present state of the model. Returns the number of syncs that began.
fn live<'a>(
    sim: &mut Sim<'a>,
    node: &SimEnv,
    model: &'a RefCell<Model>,
    steps: u64,
    end: End,
    over: bool,
) -> (SimEnv, u64) {
    let before = sim.sync_points(node);
    if let End::PowerCutAtSync(count) = end {
        sim.power_cut_at_sync(node, before + count);
    }
    let env = node.clone();
    let life = async move {
        let (log, _) = match FragmentLog::open(&env, &spec_of(10)).await {
            Ok(opened) => opened,
            // The SSD has failed already.
            Err(error) => return assert!(end == End::SsdFails, "{error}"),
        };
        let run = Run { env, log, model };
        run.check_all().await;
        for _ in 0..steps {
            if over { run.step_over().await } else { run.step().await }
        }
        run.check_all().await;
        let stats = run.log.stats();
        {
            let happened = &mut model.borrow_mut().happened;
            happened.moved += stats.moved.0;
            happened.evicted += stats.evicted.0;
            happened.checkpoints += stats.checkpoints;
        }
        if end == End::Orderly {
            run.log.close().await.expect("orderly");
        }
    };
    match end {
        End::Orderly | End::PowerCutAtSync(_) => {
            sim.try_block_on(node, life);
        }
        End::Killed | End::PowerCut | End::CachesLost | End::SsdFails => {
            sim.start(node, "driver", life);
            let time = model.borrow_mut().rng.below(60_000_000);
            if end == End::SsdFails {
                sim.run_for(Nanos(time / 2));
                let faults = DiskFaults { write_errors_per_million: 300_000, ..DiskFaults::default() };
                sim.set_disk_faults(node, Path::new("/ssd"), faults);
            }
            sim.run_for(Nanos(time));
        }
    }
    let syncs = sim.sync_points(node) - before;
    sim.power_cut_at_sync(node, u64::MAX);
    match end {
        End::Killed | End::SsdFails => sim.kill(node),
        End::PowerCut | End::CachesLost => sim.power_cut(node),
        _ => {}
    }
    sim.set_disk_faults(node, Path::new("/ssd"), DiskFaults::default());
    let lost_power =
        matches!(end, End::PowerCut | End::CachesLost | End::PowerCutAtSync(_)) && !sim.is_alive(node);
    let node = match end {
        End::CachesLost => sim.control().restart_in_same_boot(node),
        _ => sim.restart(node),
    };
    if lost_power {
        let model = &mut *model.borrow_mut();
        model.files.iter_mut().for_each(|file| file.lose_power(&mut model.rng));
    }
    // The bytes found must be permitted; from here on they must stay.
    let env = node.clone();
    sim.block_on(&node, async move {
        let (log, recovered) = FragmentLog::open(&env, &spec_of(10)).await.expect("opens again");
        assert!(recovered.lost.is_empty());
        model.borrow_mut().happened.torn += recovered.torn;
        let run = Run { env, log, model };
        for file in 0..FILES {
            let view = run.view(file, 0, FILE_LEN).await;
            let it = &mut run.model.borrow_mut().files[file as usize];
            let sure = if lost_power { &it.durable } else { &it.truth };
            let differs = |at: &usize| view[*at..*at + 64] != sure[*at..*at + 64];
            let stretches: Vec<usize> = (0..FILE_LEN).step_by(64).filter(differs).collect();
            for at in stretches.into_iter().flat_map(|at| at..at + 64) {
                let byte = view[at];
                let fits = if lost_power { it.may_be(at, byte) } else { it.is(at, byte) };
                assert!(fits, "file {file} at {at}: {byte:#x}, not {:#x}, after {end:?}", it.truth[at]);
            }
            it.truth = view;
            it.flying = None;
            if lost_power {
                it.synced();
            }
        }
        run.check_all().await;
    });
    sim.kill(&node);
    (sim.restart(&node), syncs)
}

fn model(seed: u64) -> RefCell<Model> {
    let files = (0..FILES).map(|_| FileModel::new()).collect();
    RefCell::new(Model { files, rng: Rng::new(seed), stamp: 0, happened: Happened::default() })
}

#[test]
fn every_kind_of_end_leaves_the_newest_bytes() {
    let mut all = Happened::default();
    for seed in 0..3 {
        println!("seed {seed}");
        let model = model(seed);
        let mut sim = Sim::with_seed(seed);
        let mut machine = node(&sim);
        for life in 0..8 {
            let (pick, cut) = {
                let rng = &mut model.borrow_mut().rng;
                (rng.below(5), 1 + rng.below(20))
            };
            let end = match pick {
                _ if life == 0 => End::Orderly,
                0 => End::Orderly,
                1 => End::PowerCut,
                2 => End::PowerCutAtSync(cut),
                3 => End::CachesLost,
                _ => End::Killed,
            };
            println!("life {life}: {end:?}");
            (machine, _) = live(&mut sim, &machine, &model, 80, end, false);
        }
        let happened = &model.borrow().happened;
        all.full += happened.full;
        all.moved += happened.moved;
        all.evicted += happened.evicted;
        all.torn += happened.torn;
        all.failed += happened.failed;
        all.checkpoints += happened.checkpoints;
    }
    println!("{all:?}");
    assert!(
        all.full > 0 && all.moved > 0 && all.evicted > 0 && all.torn > 0 && all.checkpoints > 0,
        "{all:?}"
    );
}

#[test]
fn a_failed_ssd_loses_nothing_readable() {
    let mut failed = 0;
    for seed in 200..203 {
        println!("seed {seed}");
        let model = model(seed);
        let mut sim = Sim::with_seed(seed);
        let mut machine = node(&sim);
        for end in [End::Orderly, End::SsdFails, End::Killed, End::SsdFails, End::SsdFails, End::Orderly] {
            println!("{end:?}");
            (machine, _) = live(&mut sim, &machine, &model, 60, end, false);
        }
        failed += model.borrow().happened.failed;
    }
    assert!(failed > 0);
}

#[test]
fn power_cuts_at_every_sync_are_survived() {
    for seed in 100..101 {
        let mut cut = 1;
        loop {
            let model = model(seed);
            let mut sim = Sim::with_seed(seed);
            let machine = node(&sim);
            let (machine, syncs) = live(&mut sim, &machine, &model, 100, End::PowerCutAtSync(cut), false);
            if syncs < cut {
                println!("seed {seed}: {} syncs", cut - 1);
                break;
            }
            live(&mut sim, &machine, &model, 20, End::Orderly, false);
            cut += 1;
        }
    }
}

#[test]
fn payloads_replaced_by_torn_puts_still_exist() {
    let (mut torn, mut moved) = (0, 0);
    for seed in 300..303 {
        let model = model(seed);
        let mut sim = Sim::with_seed(seed);
        let mut machine = node(&sim);
        for life in 0..10 {
            let cut = model.borrow_mut().rng.below(60);
            let end = match life % 3 {
                0 => End::PowerCut,
                1 => End::PowerCutAtSync(1 + cut),
                _ => End::CachesLost,
            };
            println!("seed {seed} life {life}: {end:?}");
            (machine, _) = live(&mut sim, &machine, &model, 250, end, true);
        }
        torn += model.borrow().happened.torn;
        moved += model.borrow().happened.moved;
    }
    assert!(torn > 0 && moved > 0, "{torn} {moved}");
}
