//! Plays workloads on a plain directory and compares every byte.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;
use weft_bench::barrier::{Barrier, BarrierFile};
use weft_bench::player::{PhaseResult, Player};
use weft_bench::rank::FileAccess;
use weft_bench::target::Target;
use weft_workload::{Access, Btio, Ior, MdPhase, Mdtest, Mix, Size, WorkloadSpec};

/// Plays with one thread per rank. Returns each rank's phases, or the first failure.
fn play(spec: &WorkloadSpec, dir: &Path, inputs: bool) -> Result<Vec<Vec<PhaseResult>>, String> {
    let workload = spec.build().map_err(|error| error.to_string())?;
    let ranks = workload.ranks();
    let file = BarrierFile::new(ranks).unwrap();
    let dir = dir.to_str().unwrap();
    std::thread::scope(|scope| {
        let (workload, path) = (&*workload, file.path());
        let threads: Vec<_> = (0..ranks)
            .map(|rank| {
                let path = path.clone();
                scope.spawn(move || {
                    let barrier = Barrier::open(&path, ranks, false).unwrap();
                    let mut target = Target::new(&FileAccess::Calls).unwrap();
                    let mut player = Player::new(workload, rank, dir, &mut target, &barrier);
                    let made = if inputs { player.make_inputs() } else { Ok(()) };
                    barrier.wait_all().unwrap();
                    made.and_then(|()| player.play(true)).inspect_err(|_| barrier.fail())
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn every_kind_plays_and_its_data_is_correct() {
    let access = |access| {
        WorkloadSpec::Ior(Ior { access, ranks: 3, per_rank: Some(Size::kib(200)), ..Ior::default() })
    };
    let unique = WorkloadSpec::Mdtest(Mdtest {
        files: 20,
        unique_dirs: true,
        write: Size(3901),
        read: Size(3901),
        phases: vec![MdPhase::Create, MdPhase::Stat, MdPhase::Read, MdPhase::Remove],
        ..Mdtest::default()
    });
    let opens = WorkloadSpec::Mdtest(Mdtest {
        files: 20,
        unique_dirs: true,
        phases: vec![MdPhase::Open, MdPhase::Stat],
        ..Mdtest::default()
    });
    let mut specs = vec![access(Access::Read), access(Access::Both), unique, opens];
    for mut spec in WorkloadSpec::all() {
        if let WorkloadSpec::Btio(Btio { dumps, .. }) = &mut spec {
            *dumps = Some(2);
        }
        if let WorkloadSpec::Mix(Mix { parts }) = &mut spec {
            let WorkloadSpec::Btio(btio) = &mut parts[1].workload else { panic!("{:?}", parts[1]) };
            btio.dumps = Some(1);
        }
        specs.push(spec);
    }
    for spec in specs {
        let dir = tempfile::tempdir().unwrap();
        let phases = play(&spec, dir.path(), true).unwrap_or_else(|error| panic!("{spec:?}: {error}"));
        let workload = spec.build().unwrap();
        let moves = |op| matches!(op, weft_workload::Op::Read { .. } | weft_workload::Op::Write { .. });
        let expected = (0..workload.ranks()).any(|rank| workload.ops(rank).any(moves));
        let moved: u64 = phases.iter().flatten().map(|phase| phase.bytes).sum();
        assert_eq!(moved > 0, expected, "{spec:?}");
        assert!(phases.iter().flatten().any(|phase| phase.ops > 0 && phase.end_ns >= phase.begin_ns));
    }
}

#[test]
fn a_wrong_byte_is_reported_with_its_offset() {
    let dir = tempfile::tempdir().unwrap();
    let ior = |access| {
        WorkloadSpec::Ior(Ior {
            access,
            ranks: 2,
            per_rank: Some(Size::kib(128)),
            reorder: 1,
            ..Ior::default()
        })
    };
    play(&ior(Access::Write), dir.path(), false).unwrap();
    play(&ior(Access::Read), dir.path(), false).unwrap();
    let file = std::fs::File::options().read(true).write(true).open(dir.path().join("ior")).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 200_000).unwrap();
    file.write_all_at(&[byte[0] ^ 1], 200_000).unwrap();
    let error = play(&ior(Access::Read), dir.path(), false).unwrap_err();
    // Rank 0 reads the part of rank 1, whose second transfer starts at 196,608.
    assert_eq!(error, "wrong byte at 200000 in the transfer of 65536 B at 196608");
}

#[test]
fn a_short_file_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let ior = |access| {
        WorkloadSpec::Ior(Ior { access, ranks: 1, per_rank: Some(Size::kib(128)), ..Ior::default() })
    };
    play(&ior(Access::Write), dir.path(), false).unwrap();
    std::fs::File::options().write(true).open(dir.path().join("ior")).unwrap().set_len(70_000).unwrap();
    let error = play(&ior(Access::Read), dir.path(), false).unwrap_err();
    assert_eq!(error, "read of 65536 B at 65536: the file ended after 4464 B");
}

#[test]
fn time_at_barriers_is_not_part_of_a_phase() {
    const LATE: Duration = Duration::from_millis(500);
    let dir = tempfile::tempdir().unwrap();
    let spec = WorkloadSpec::Ior(Ior {
        access: Access::Write,
        ranks: 2,
        per_rank: Some(Size::kib(64)),
        ..Ior::default()
    });
    let workload = spec.build().unwrap();
    let file = BarrierFile::new(2).unwrap();
    let (path, text) = (file.path(), dir.path().to_str().unwrap());
    let play = |rank| {
        let barrier = Barrier::open(&path, 2, false).unwrap();
        let mut target = Target::new(&FileAccess::Calls).unwrap();
        Player::new(&*workload, rank, text, &mut target, &barrier).play(false).unwrap()
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| play(0));
        // Rank 0 has opened its file and waits until rank 1 has as well.
        while !dir.path().join("ior").exists() {
            std::thread::yield_now();
        }
        std::thread::sleep(LATE);
        play(1);
        for part in first.join().unwrap() {
            assert!(part.end_ns - part.begin_ns < LATE.as_nanos() as u64, "{part:?}");
        }
    });
}
