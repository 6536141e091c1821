//! The modelled locking file system, alone and behind delegates.

use crate::script::Script;
use weft_core::Nanos;
use weft_core::delegates::ownership::Policy;
use weft_twin::locking::{DelegatesSpec, LockingKind, LockingOutcome, LockingSpec};
use weft_twin::{ClusterSpec, Outcome, RunOptions, run_with};
use weft_workload::{Btio, BtioClass, FileRef, Op, Size, TwoPhase, Workload, WorkloadSpec};

const FILE: FileRef = FileRef(0);
const STRIPE: u64 = 512 << 10;

/// Ranks open a file, perform operations and close it.
fn script(ranks: Vec<Vec<Op>>) -> Script {
    let open = Op::Open { file: FILE, create: true };
    let whole = |ops: Vec<Op>| [vec![open, Op::Barrier], ops, vec![Op::Close { file: FILE }]].concat();
    Script(ranks.into_iter().map(whole).collect())
}

fn write(offset: u64, len: u64) -> Op {
    Op::Write { file: FILE, offset, len, collective: false }
}

fn pause(ms: u64) -> Op {
    Op::Compute(Nanos::from_ms(ms))
}

fn cluster(kind: LockingKind) -> ClusterSpec {
    let locking = LockingSpec { kind, servers: Some(4), ..LockingSpec::default() };
    ClusterSpec { processes_per_node: 1, locking: Some(locking), ..ClusterSpec::default() }
}

fn ran(spec: &ClusterSpec, workload: &dyn Workload) -> Outcome {
    let options = RunOptions { drain: true, ..RunOptions::default() };
    run_with(spec, workload, options).unwrap_or_else(|error| panic!("{error}"))
}

fn counters(spec: &ClusterSpec, ranks: Vec<Vec<Op>>) -> LockingOutcome {
    ran(spec, &script(ranks)).locking.expect("the cluster has a locking file system")
}

const KINDS: [LockingKind; 2] = [LockingKind::LustreLike, LockingKind::GpfsLike];

#[test]
fn a_revocation_writes_the_holders_dirty_bytes() {
    for kind in KINDS {
        // Both ranks write into the first stripe, the second one later.
        let half = STRIPE / 2;
        let first = vec![write(0, half), pause(20)];
        let seen = counters(&cluster(kind), vec![first, vec![pause(10), write(half, half)]]);
        assert_eq!(seen.locks.revoked, 1, "{kind:?}: {seen:?}");
        assert_eq!(seen.revoked_bytes, half, "{kind:?}: {seen:?}");
        assert_eq!(seen.write_bytes, STRIPE, "{kind:?}: {seen:?}");
    }
}

#[test]
fn a_client_keeps_its_lock() {
    for kind in KINDS {
        let writes = (0..8).map(|piece| write(piece << 16, 1 << 16)).collect();
        let seen = counters(&cluster(kind), vec![writes]);
        // Eight pieces of one stripe.
        assert_eq!((seen.locks.requests, seen.locks.hits, seen.locks.revoked), (8, 7, 0), "{kind:?}");
        assert_eq!((seen.revoked_bytes, seen.write_bytes), (0, STRIPE), "{kind:?}");
    }
}

#[test]
fn aligned_writers_wait_less_than_unaligned_ones() {
    for kind in KINDS {
        // Four ranks write 40 parts in turn, of a stripe each or shifted by half of one.
        let ops = |rank: u64, shift: u64| -> Vec<Op> {
            let part = |round: u64| [Op::Barrier, write((round * 4 + rank) * STRIPE + shift, STRIPE)];
            (0..10).flat_map(part).collect()
        };
        let of = |shift| ran(&cluster(kind), &script((0..4).map(|rank| ops(rank, shift)).collect()));
        let (aligned, unaligned) = (of(0), of(STRIPE / 2));
        let locks = |outcome: &Outcome| outcome.locking.expect("counters");
        assert!(locks(&aligned).locks.revoked < locks(&unaligned).locks.revoked, "{kind:?}");
        assert!(locks(&aligned).lock_wait_ns < locks(&unaligned).lock_wait_ns, "{kind:?}");
        assert!(aligned.elapsed < unaligned.elapsed, "{kind:?}");
        assert_eq!(locks(&aligned).write_bytes, locks(&unaligned).write_bytes);
    }
}

#[test]
fn without_locks_nobody_waits() {
    let mut spec = cluster(LockingKind::LustreLike);
    let ranks = || vec![vec![write(0, 1000)], vec![pause(10), write(1000, 1000)]];
    assert!(counters(&spec, ranks()).lock_wait_ns > 0);
    spec.locking.as_mut().expect("set above").locks = false;
    let seen = counters(&spec, ranks());
    assert_eq!((seen.locks.requests, seen.revoked_bytes), (0, 0));
}

#[test]
fn units_that_a_write_changes_in_part_are_read_once() {
    let spec = cluster(LockingKind::LustreLike);
    // A new file has no bytes to keep. The second client changes the second half of the first page.
    let seen = counters(&spec, vec![vec![write(0, 2048)], vec![pause(10), write(2048, 2048)]]);
    assert_eq!(seen.unit_reads, 1, "{seen:?}");
    // A client has its own pages in its cache.
    assert_eq!(counters(&spec, vec![vec![write(0, 2048), write(2048, 2048)]]).unit_reads, 0);
    // Whole pages need no read.
    assert_eq!(counters(&spec, vec![vec![write(0, 4096)], vec![pause(10), write(4096, 4096)]]).unit_reads, 0);
}

#[test]
fn a_full_cache_makes_writers_wait_for_the_disks() {
    let mut spec = cluster(LockingKind::LustreLike);
    // Slower than the client copies into its cache.
    spec.locking.as_mut().expect("set above").profile = "ibridge-hdd".to_owned();
    let ops = || vec![(0..64).map(|part| write(part << 20, 1 << 20)).collect()];
    let quick = ran(&spec, &script(ops()));
    spec.locking.as_mut().expect("set above").cache = Some(Size::mib(1));
    let slow = ran(&spec, &script(ops()));
    let longest = |outcome: &Outcome| outcome.phases[0].kinds[&weft_twin::OpKind::Write].latency.max();
    assert!(longest(&slow) > longest(&quick), "{:?} and {:?}", longest(&slow), longest(&quick));
}

#[test]
fn impossible_descriptions_are_refused() {
    let refused = |spec: &ClusterSpec| spec.check().expect_err("refused").to_string();
    let mut spec = cluster(LockingKind::GpfsLike);
    spec.locking.as_mut().expect("set above").write_unit = Some(Size(3000));
    assert!(refused(&spec).contains("locking.write_unit"));
    let delegates = DelegatesSpec { count: 2, ..DelegatesSpec::default() };
    let spec = ClusterSpec { delegates, ..ClusterSpec::default() };
    assert!(refused(&spec).contains("delegates.count"));
}

fn btio(two_phase: Option<TwoPhase>) -> Box<dyn Workload> {
    let access = weft_workload::Access::Write;
    let spec = Btio { ranks: 16, class: BtioClass::A, dumps: Some(3), access, two_phase, ..Btio::default() };
    WorkloadSpec::Btio(spec).build().expect("a workload")
}

/// Bytes of three dumps of 64^3 points.
const BTIO_BYTES: u64 = 3 * 64 * 64 * 64 * 40;

#[test]
fn equal_seeds_give_equal_runs_of_two_phase_io() {
    let two_phase = TwoPhase { exchange: true, ..TwoPhase::default() };
    let workload = btio(Some(two_phase));
    for kind in KINDS {
        let (a, b) = (ran(&cluster(kind), &*workload), ran(&cluster(kind), &*workload));
        assert_eq!(a, b);
        assert!(a.locking.expect("counters").write_bytes >= BTIO_BYTES);
        let silent = btio(Some(TwoPhase::default()));
        let silent = ran(&cluster(kind), &*silent);
        // The exchange delays writes, so that they meet other locks: the run may even become shorter.
        assert_ne!(silent.elapsed, a.elapsed, "{kind:?}: an exchange takes time");
    }
}

#[test]
fn delegates_write_every_byte_in_fewer_and_longer_requests() {
    let native = ran(&cluster(LockingKind::LustreLike), &*btio(None));
    for policy in [Policy::FirstTouch, Policy::Hashed] {
        for write_behind in [false, true] {
            let delegates = DelegatesSpec { count: 2, policy, write_behind, ..DelegatesSpec::default() };
            let spec = ClusterSpec { delegates, ..cluster(LockingKind::LustreLike) };
            let with = ran(&spec, &*btio(None));
            let seen = with.delegates.expect("counters of delegates");
            assert_eq!(seen.file_bytes, BTIO_BYTES, "{policy} {write_behind}");
            assert!(seen.memory_max <= delegates_memory(&spec), "{policy} {write_behind}");
            assert!(
                with.elapsed < native.elapsed,
                "{policy} {write_behind}: {:?} {:?}",
                with.elapsed,
                native.elapsed
            );
            assert_eq!(with, ran(&spec, &*btio(None)));
        }
    }
}

fn delegates_memory(spec: &ClusterSpec) -> u64 {
    spec.delegates.memory.0
}
