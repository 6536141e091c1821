//! Ranks and delegates in the simulated world: every read returns the newest bytes, and every byte reaches the file.

mod support;

use proptest::prelude::*;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use support::{Job, PAGE, RankFile, below, number, open, run, settings};
use weft_client::{DelegatedFile, Delegates, FileHandle, HostFile, ReadPiece, WritePiece};
use weft_core::delegates::ownership::Policy;
use weft_core::random::SplitMix64;
use weft_core::{ByteLen, Extent, FileOffset};
use weft_env::sim::{SimEnv, SimNotify};
use weft_env::{Env, Notify};

const RANKS: u32 = 4;
const LEN_MAX: u64 = 40 * PAGE;

/// One rank: its connections and its open file.
struct Rank {
    delegates: Delegates<SimEnv>,
    file: RankFile,
}

async fn ranks(job: &Job, env: &SimEnv) -> Vec<Rank> {
    let mut all = Vec::new();
    for rank in 0..RANKS {
        let delegates = job.rank(env, rank, RANKS).await;
        let file = open(env, &delegates, "f").await;
        all.push(Rank { delegates, file });
    }
    all
}

fn bytes(random: &mut SplitMix64, len: u64) -> Vec<u8> {
    (0..len).map(|_| random.below(255) as u8 + 1).collect()
}

/// A random range, often unaligned, sometimes of many pages.
fn range(random: &mut SplitMix64) -> (u64, u64) {
    let len = match random.below(4) {
        0 => random.below(64) + 1,
        1 => PAGE * (random.below(3) + 1),
        2 => random.below(3 * PAGE) + 1,
        _ => random.below(12 * PAGE) + 1,
    };
    let start = match random.below(3) {
        0 => random.below(LEN_MAX / PAGE) * PAGE,
        _ => random.below(LEN_MAX),
    };
    (start, len)
}

async fn step(ranks: &mut [Rank], env: &SimEnv, model: &mut Vec<u8>, random: &mut SplitMix64) {
    let which = random.below(u64::from(RANKS)) as usize;
    let file = &ranks[which].file;
    let (start, len) = range(random);
    match random.below(20) {
        0..=6 => {
            let data = bytes(random, len);
            let (a, b) = data.split_at(random.below(len) as usize);
            let slices = [IoSlice::new(a), IoSlice::new(b)];
            let slices = if random.below(2) == 0 { &slices[..] } else { &[IoSlice::new(&data)][..] };
            assert_eq!(file.write_at(slices, FileOffset(start)).await.expect("writes"), data.len());
            put(model, start, &data);
        }
        7 | 8 => {
            let list: Vec<(u64, Vec<u8>)> = (0..random.below(30))
                .map(|_| {
                    let (start, len) = (random.below(LEN_MAX), random.below(300));
                    (start, bytes(random, len))
                })
                .collect();
            let pieces =
                list.iter().map(|(start, data)| WritePiece { offset: FileOffset(*start), bytes: data });
            file.write_list(&pieces.collect::<Vec<_>>()).await.expect("writes");
            list.iter().for_each(|(start, data)| put(model, *start, data));
        }
        9..=12 => {
            let mut found = vec![0xEE; len as usize];
            let read =
                file.read_at(&mut [IoSliceMut::new(&mut found)], FileOffset(start)).await.expect("reads");
            let end = (start + len).min(model.len() as u64).max(start);
            let expected =
                &model[start.min(model.len() as u64) as usize..end.min(model.len() as u64) as usize];
            assert_eq!(read, expected.len(), "{len} bytes from {start} of {}", model.len());
            assert!(found[..read] == *expected, "bytes {start} to {end}");
        }
        13 => {
            let mut found: Vec<(u64, Vec<u8>)> =
                (0..12).map(|_| (random.below(LEN_MAX), vec![0xEE; random.below(900) as usize])).collect();
            let mut list: Vec<ReadPiece<'_>> = found
                .iter_mut()
                .map(|(start, buffer)| ReadPiece {
                    offset: FileOffset(*start),
                    buffer: IoSliceMut::new(buffer),
                })
                .collect();
            let lens = file.read_list(&mut list).await.expect("reads");
            drop(list);
            for ((start, found), len) in found.iter().zip(lens) {
                let from = (*start).min(model.len() as u64) as usize;
                let to = (*start as usize + found.len()).min(model.len()).max(from);
                assert_eq!((len, &found[..len]), (to - from, &model[from..to]), "bytes from {start}");
            }
        }
        14 => {
            file.truncate(ByteLen(start)).await.expect("cuts");
            model.resize(start as usize, 0);
        }
        15 => {
            let data = bytes(random, len.min(500));
            let (at, done) = file.append(&[IoSlice::new(&data)]).await.expect("appends");
            assert_eq!((at.0, done), (model.len() as u64, data.len()));
            model.extend_from_slice(&data);
        }
        16 => {
            let end = (start + len).min(model.len() as u64);
            if start < end {
                file.punch(Extent::new(start, end - start)).await.expect("punches");
                model[start as usize..end as usize].fill(0);
            }
        }
        17 => {
            file.sync().await.expect("syncs");
            assert!(below(file).await == *model, "the underlying file after a sync");
        }
        18 => {
            let fresh = open(env, &ranks[which].delegates, "f").await;
            let old = std::mem::replace(&mut ranks[which].file, fresh);
            let is_used = old.page_len().is_some();
            old.close().await.expect("closes");
            let found = below(&ranks[which].file).await;
            assert!(!is_used || found == *model, "the underlying file after a close");
        }
        _ => assert_eq!(file.size().await.expect("has a size").0, model.len() as u64),
    }
}

fn put(model: &mut Vec<u8>, start: u64, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    let end = start as usize + data.len();
    model.resize(model.len().max(end), 0);
    model[start as usize..end].copy_from_slice(data);
}

fn random_job(seed: u64, delegates: u32, policy: Policy, write_behind: bool) -> u64 {
    let settings = weft_wire::delegate::JobSettings { write_behind, ..settings(delegates, policy) };
    let (requests, hash) = run(seed, settings, move |job, env, _| async move {
        let mut ranks = ranks(&job, &env).await;
        let (mut model, mut random) = (Vec::new(), SplitMix64::new(seed));
        for _ in 0..120 {
            step(&mut ranks, &env, &mut model, &mut random).await;
        }
        let mut requests = 0;
        for delegate in (0..delegates).map(weft_core::delegates::assignment::DelegateIndex) {
            let status = ranks[0].delegates.status(delegate).await.expect("has a status");
            assert!(status.memory <= status.memory_max, "{status:?}");
            requests += status.requests;
        }
        for Rank { file, .. } in ranks {
            file.close().await.expect("closes");
        }
        let delegates = job.rank(&env, 0, 1).await;
        assert!(below(&open(&env, &delegates, "f").await).await == model, "the file at the end");
        job.stop().await;
        requests
    });
    assert!(requests > 0);
    hash
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn every_rank_sees_the_newest_bytes(
        seed: u64, delegates in 1u32..5, hashed: bool, write_behind: bool
    ) {
        let policy = if hashed { Policy::Hashed } else { Policy::FirstTouch };
        random_job(seed, delegates, policy, write_behind);
    }
}

/// A program outside of the job opens the file in the middle of a run: from then on it sees each write at once, until
/// all ranks have closed the file.
fn shared_job(seed: u64, delegates: u32, policy: Policy, write_behind: bool) {
    let settings = weft_wire::delegate::JobSettings { write_behind, ..settings(delegates, policy) };
    run(seed, settings, move |job, env, _| async move {
        let mut ranks = ranks(&job, &env).await;
        let (mut model, mut random) = (Vec::new(), SplitMix64::new(seed));
        for _ in 0..random.below(60) {
            step(&mut ranks, &env, &mut model, &mut random).await;
        }
        job.outside.open(number("f"), delegates).await;
        for _ in 0..60 {
            assert!(below(&ranks[0].file).await == model, "what the other program sees");
            step(&mut ranks, &env, &mut model, &mut random).await;
        }
        job.outside.close();
        for _ in 0..20 {
            step(&mut ranks, &env, &mut model, &mut random).await;
        }
        for Rank { file, .. } in ranks {
            file.close().await.expect("closes");
        }
        let delegates = job.rank(&env, 0, 1).await;
        assert!(below(&open(&env, &delegates, "f").await).await == model, "the file at the end");
        job.stop().await;
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn a_program_outside_of_the_job_sees_each_write_at_once(
        seed: u64, delegates in 1u32..5, hashed: bool, write_behind: bool
    ) {
        let policy = if hashed { Policy::Hashed } else { Policy::FirstTouch };
        shared_job(seed, delegates, policy, write_behind);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for policy in [Policy::Hashed, Policy::FirstTouch] {
        assert_eq!(random_job(5, 3, policy, true), random_job(5, 3, policy, true));
    }
}

/// All ranks write interleaved blocks at the same time, and then read those of their neighbors.
#[test]
fn ranks_that_write_at_the_same_time_do_not_lose_bytes() {
    for (policy, delegates, seed) in [
        (Policy::Hashed, 2, 1),
        (Policy::FirstTouch, 2, 2),
        (Policy::FirstTouch, 3, 3),
        (Policy::Hashed, 4, 4),
    ] {
        run(seed, settings(delegates, policy), move |job, env, _| async move {
            const BLOCK: u64 = 1479;
            const BLOCKS: u64 = 40;
            let done = env.notify();
            let ended = Arc::new(AtomicU32::new(0));
            for rank in 0..RANKS {
                let (env, done, ended) = (env.clone(), done.clone(), Arc::clone(&ended));
                let delegates = job.rank(&env, rank, RANKS).await;
                let spawned = env.clone().spawn("rank", move || async move {
                    let file = open(&env, &delegates, "f").await;
                    for block in 0..BLOCKS {
                        let at = (block * u64::from(RANKS) + u64::from(rank)) * BLOCK;
                        let data = vec![rank as u8 + 1; BLOCK as usize];
                        file.write_at(&[IoSlice::new(&data)], FileOffset(at)).await.expect("writes");
                    }
                    for block in 0..BLOCKS {
                        let at = (block * u64::from(RANKS) + u64::from(rank)) * BLOCK;
                        let mut found = vec![0; BLOCK as usize];
                        let read = file.read_at(&mut [IoSliceMut::new(&mut found)], FileOffset(at)).await;
                        assert_eq!(read.expect("reads"), BLOCK as usize);
                        assert!(found.iter().all(|byte| *byte == rank as u8 + 1), "block {block} of {rank}");
                    }
                    file.close().await.expect("closes");
                    ended.fetch_add(1, SeqCst);
                    done.notify_all();
                });
                spawned.expect("starts");
            }
            loop {
                let seen = done.epoch();
                if ended.load(SeqCst) == RANKS {
                    break;
                }
                done.wait(seen, None).await;
            }
            let delegates = job.rank(&env, 0, 1).await;
            let found = below(&open(&env, &delegates, "f").await).await;
            assert_eq!(found.len() as u64, BLOCK * BLOCKS * u64::from(RANKS));
            for (at, byte) in found.iter().enumerate() {
                assert_eq!(u64::from(*byte), at as u64 / BLOCK % u64::from(RANKS) + 1, "byte {at}");
            }
        });
    }
}

/// A file whose writes wait until the test lets them go on.
struct Paused {
    file: HostFile<SimEnv>,
    /// Number of writes that have begun, and whether they may go on.
    state: Arc<(AtomicU32, AtomicBool)>,
    changed: SimNotify,
}

impl Paused {
    async fn until(changed: &SimNotify, is_met: impl Fn() -> bool) {
        loop {
            let seen = changed.epoch();
            if is_met() {
                return;
            }
            changed.wait(seen, None).await;
        }
    }
}

impl FileHandle for Paused {
    async fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: FileOffset) -> weft_client::Result<usize> {
        self.file.read_at(bufs, offset).await
    }
    async fn write_at(&self, bufs: &[IoSlice<'_>], offset: FileOffset) -> weft_client::Result<usize> {
        self.state.0.fetch_add(1, SeqCst);
        self.changed.notify_all();
        Self::until(&self.changed, || self.state.1.load(SeqCst)).await;
        self.file.write_at(bufs, offset).await
    }
    async fn append(&self, bufs: &[IoSlice<'_>]) -> weft_client::Result<(FileOffset, usize)> {
        self.file.append(bufs).await
    }
    async fn size(&self) -> weft_client::Result<ByteLen> {
        self.file.size().await
    }
    async fn truncate(&self, size: ByteLen) -> weft_client::Result<()> {
        self.file.truncate(size).await
    }
    async fn sync(&self) -> weft_client::Result<()> {
        self.file.sync().await
    }
    async fn punch(&self, extent: Extent) -> weft_client::Result<()> {
        self.file.punch(extent).await
    }
    async fn seek_data(&self, offset: FileOffset) -> weft_client::Result<Option<FileOffset>> {
        self.file.seek_data(offset).await
    }
    async fn seek_hole(&self, offset: FileOffset) -> weft_client::Result<Option<FileOffset>> {
        self.file.seek_hole(offset).await
    }
    async fn close(self) -> weft_client::Result<()> {
        Ok(())
    }
}

/// A connection that is lost while a rank holds a range ends the hold early. Another rank may then cache old bytes, which
/// must not stay.
#[test]
fn a_hold_that_is_lost_leaves_no_old_bytes() {
    run(7, settings(2, Policy::Hashed), move |job, env, control| async move {
        let writer_env = control.process(&job.machine, "writer", 1000, 1000);
        let writer = job.rank(&writer_env, 0, 2).await;
        let reader = job.rank(&env, 1, 2).await;
        let file = open(&env, &reader, "f").await;
        file.write_at(&[IoSlice::new(&[1; 8 * PAGE as usize])], FileOffset(0)).await.expect("writes");

        let (state, changed) = (Arc::new((AtomicU32::new(0), AtomicBool::new(false))), env.notify());
        let held = open(&writer_env, &writer, "f").await;
        let below = HostFile::new(held.below().file().clone(), b"f".to_vec());
        let paused = Paused { file: below, state: Arc::clone(&state), changed: changed.clone() };
        let direct = DelegatedFile::new(&writer, paused, held.spec().clone());
        let ended = Arc::new(AtomicBool::new(false));
        let (told, done) = (Arc::clone(&ended), changed.clone());
        let spawned = writer_env.clone().spawn("writer", move || async move {
            let new = [2; 8 * PAGE as usize];
            direct.write_at(&[IoSlice::new(&new)], FileOffset(0)).await.expect("writes");
            told.store(true, SeqCst);
            done.notify_all();
        });
        spawned.expect("starts");
        Paused::until(&changed, || state.0.load(SeqCst) > 0).await;
        control.reset_connections(&job.machine, &job.machine);
        let mut found = vec![0; PAGE as usize];
        for page in 0..8 {
            let read = file.read_at(&mut [IoSliceMut::new(&mut found)], FileOffset(page * PAGE)).await;
            assert_eq!(read.expect("reads"), PAGE as usize);
            assert!(found.iter().all(|byte| *byte == 1), "the hold has ended with its connection");
        }
        state.1.store(true, SeqCst);
        changed.notify_all();
        Paused::until(&changed, || ended.load(SeqCst)).await;
        for page in 0..8 {
            let read = file.read_at(&mut [IoSliceMut::new(&mut found)], FileOffset(page * PAGE)).await;
            assert_eq!(read.expect("reads"), PAGE as usize);
            assert!(found.iter().all(|byte| *byte == 2), "old bytes of page {page}");
        }
    });
}
