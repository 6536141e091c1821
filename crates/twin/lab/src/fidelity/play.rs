//! Runs a workload on real servers, with one thread and one client for each rank.

use super::real::RealCluster;
use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Barrier;
use std::time::{Duration, Instant};
use weft_client::{Client, Error, InodePath, OpenFile, OpenFlags};
use weft_core::{ByteLen, FileOffset};
use weft_env::real::{RealEnv, block_on};
use weft_workload::{FileRef, Op, Workload};

const WRITE: OpenFlags = OpenFlags { write: true, create: true, ..OpenFlags::READ };
const FOLDER: &str = "workload";
const PIECE: u64 = 1 << 20;

fn inode_path(path: String) -> InodePath {
    InodePath::from_root(path, true)
}

/// Writes the input files, then runs the workload. Returns the time from the first operation to the last end.
pub fn play(cluster: &mut RealCluster, workload: &dyn Workload) -> Result<Duration, String> {
    prepare(cluster, workload).map_err(|error| format!("preparing: {error}"))?;
    cluster.forget();
    let ranks = workload.ranks();
    let mut barriers = BTreeMap::new();
    let mut rank = 0;
    while rank < ranks {
        let group = workload.group(rank);
        barriers.insert(group.start, Barrier::new((group.end - group.start) as usize));
        rank = group.end;
    }
    let start = Barrier::new(ranks as usize + 1);
    let (cluster, barriers, start) = (&*cluster, &barriers, &start);
    std::thread::scope(|scope| {
        let spawn = |rank| {
            scope.spawn(move || {
                let client = cluster.client();
                let (open, buffer) = (BTreeMap::new(), Vec::new());
                let mut runner = RankRunner { cluster, workload, client, open, buffer };
                start.wait();
                runner.run(rank, &barriers[&workload.group(rank).start])?;
                Ok(Instant::now())
            })
        };
        let ranks: Vec<_> = (0..ranks).map(spawn).collect();
        start.wait();
        let begin = Instant::now();
        let mut end = begin;
        for (rank, thread) in ranks.into_iter().enumerate() {
            let ended: Result<Instant, String> =
                thread.join().map_err(|_| format!("rank {rank} panicked"))?;
            end = end.max(ended.map_err(|error| format!("rank {rank}: {error}"))?);
        }
        Ok(end - begin)
    })
}

fn prepare(cluster: &RealCluster, workload: &dyn Workload) -> Result<(), Error> {
    let client = cluster.client();
    block_on(async {
        client.mkdir(&inode_path(FOLDER.into()), 0o777).await?;
        let bytes = vec![0u8; PIECE as usize];
        for (file, len) in workload.inputs() {
            let at = inode_path(format!("{FOLDER}/{}", workload.name(file)));
            let file = client.open(&at, WRITE, 0o666, &cluster.layout()).await?;
            let mut offset = 0;
            while offset < len {
                let piece = PIECE.min(len - offset);
                file.write_at(&[IoSlice::new(&bytes[..piece as usize])], FileOffset(offset)).await?;
                offset += piece;
            }
            file.sync().await?;
            file.close().await?;
        }
        Ok(())
    })
}

struct RankRunner<'a> {
    cluster: &'a RealCluster,
    workload: &'a dyn Workload,
    client: Client<RealEnv>,
    open: BTreeMap<FileRef, OpenFile<RealEnv>>,
    buffer: Vec<u8>,
}

impl RankRunner<'_> {
    fn run(&mut self, rank: u32, barrier: &Barrier) -> Result<(), String> {
        // A rank that fails still takes part in barriers, so that the others do not wait forever.
        let mut failure = Ok(());
        for op in self.workload.ops(rank) {
            match op {
                Op::Barrier => drop(barrier.wait()),
                Op::Phase(_) => {}
                Op::Compute(time) => std::thread::sleep(Duration::from_nanos(time.0)),
                op if failure.is_ok() => {
                    failure = block_on(self.step(op)).map_err(|error| format!("{op:?}: {error}"));
                }
                _ => {}
            }
        }
        failure
    }

    fn inode_path(&self, file: FileRef) -> InodePath {
        inode_path(format!("{FOLDER}/{}", self.workload.name(file)))
    }

    async fn opened(&self, file: FileRef, create: bool) -> Result<OpenFile<RealEnv>, Error> {
        let flags = if create { WRITE } else { OpenFlags::READ };
        self.client.open(&self.inode_path(file), flags, 0o666, &self.cluster.layout()).await
    }

    async fn step(&mut self, op: Op) -> Result<(), Error> {
        match op {
            Op::Open { file, create } => {
                let opened = self.opened(file, create).await?;
                self.open.insert(file, opened);
            }
            Op::Close { file } => match self.open.remove(&file) {
                Some(open) => open.close().await?,
                None => panic!("the workload closes a file that is not open"),
            },
            Op::Read { file, offset, len, .. } => {
                self.buffer.resize(self.buffer.len().max(len as usize), 0);
                let bytes = &mut self.buffer[..len as usize];
                self.open[&file].read_at(&mut [IoSliceMut::new(bytes)], FileOffset(offset)).await?;
            }
            Op::Write { file, offset, len, .. } => {
                self.buffer.resize(self.buffer.len().max(len as usize), 0);
                let bytes = &self.buffer[..len as usize];
                self.open[&file].write_at(&[IoSlice::new(bytes)], FileOffset(offset)).await?;
            }
            Op::Sync { file } => self.open[&file].sync().await?,
            Op::SetLen { file, len } => self.open[&file].truncate(ByteLen(len)).await?,
            Op::Mkdir { file } => drop(self.client.mkdir(&self.inode_path(file), 0o777).await?),
            Op::Create { file } => self.opened(file, true).await?.close().await?,
            Op::Stat { file } => drop(self.client.stat(&self.inode_path(file)).await?),
            Op::Resize { file, len } => self.client.truncate(&self.inode_path(file), ByteLen(len)).await?,
            Op::Remove { file } => self.client.unlink(&self.inode_path(file)).await?,
            Op::Rmdir { file } => self.client.rmdir(&self.inode_path(file)).await?,
            Op::Barrier | Op::Phase(_) | Op::Compute(_) => unreachable!("done by the caller"),
        }
        Ok(())
    }
}
