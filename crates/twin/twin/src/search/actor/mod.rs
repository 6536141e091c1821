//! A program of the search: random operations on a few files, each reported to the judge before and after.

mod bytes;
mod layouts;
mod locks;
mod names;
mod replicas;

use crate::search::cluster::{Cluster, walk_proof};
use crate::search::file::HandleKey;
use crate::search::judge::Judge;
use crate::search::names::{DIRS, NAMES, NameSlot};
use crate::search::plan::{Fault, pick};
use std::sync::Arc;
use weft_client::{Client, Error, InodePath, OpenFile};
use weft_core::{FileId, Nanos};
use weft_env::Env;
use weft_env::sim::{Rng, SimEnv};

/// An open file of a program.
pub struct Handle {
    /// The open file.
    pub file: OpenFile<SimEnv>,
    /// Its key in the search.
    pub key: HandleKey,
    write: bool,
}

/// A program.
pub struct Actor {
    cluster: Arc<Cluster>,
    judge: Judge,
    client: Client<SimEnv>,
    number: u32,
    /// Identifies the process for locks of processes.
    process: u64,
    rng: Rng,
    /// Random generator for moves and for additional writes. Each optional feature has its own generator, so that seeds
    /// without the feature keep their events.
    moves_rng: Rng,
    /// Random generator for layout rules.
    rules_rng: Rng,
    /// Random generator for components of layouts.
    parts_rng: Rng,
    /// Random generator for interrupted moves.
    stops_rng: Rng,
    /// Random generator for holes.
    holes_rng: Rng,
    /// Random generator for inline files.
    inline_rng: Rng,
    /// Random generator for replicas.
    replicas_rng: Rng,
    /// Random generator for compression.
    compression_rng: Rng,
    handles: Vec<Handle>,
}

/// Path of a directory.
pub fn dir_path(dir: u8) -> String {
    if dir == 0 { String::new() } else { format!("d{dir}") }
}

/// Path of a name.
pub fn path(slot: NameSlot) -> String {
    match slot.dir {
        0 => format!("f{}", slot.name),
        dir => format!("d{dir}/f{}", slot.name),
    }
}

fn inode_path(path: &str) -> InodePath {
    InodePath::from_root(path, true)
}

fn short<T>(result: &Result<T, Error>) -> String {
    match result {
        Ok(_) => "ok".into(),
        Err(error) => format!("{error}"),
    }
}

impl Actor {
    /// Creates a program of client `number`.
    pub fn new(cluster: Arc<Cluster>, judge: Judge, client: Client<SimEnv>, number: u32, rng: Rng) -> Self {
        let process = u64::from(judge.id());
        let moves_rng = Rng::new(rng.clone().next_u64());
        let rules_rng = Rng::new(rng.clone().next_u64() ^ 0x002a_11e5);
        let parts_rng = Rng::new(rng.clone().next_u64() ^ 0x000f_a475);
        let stops_rng = Rng::new(rng.clone().next_u64() ^ 0x0005_7095);
        let holes_rng = Rng::new(rng.clone().next_u64() ^ 0x0007_401e);
        let inline_rng = Rng::new(rng.clone().next_u64() ^ 0x0001_411e);
        let replicas_rng = Rng::new(rng.clone().next_u64() ^ 0x00c0_9135);
        let compression_rng = Rng::new(rng.clone().next_u64() ^ 0x000c_0de5);
        let handles = Vec::new();
        Self {
            cluster,
            judge,
            client,
            number,
            process,
            rng,
            moves_rng,
            rules_rng,
            parts_rng,
            stops_rng,
            holes_rng,
            inline_rng,
            replicas_rng,
            compression_rng,
            handles,
        }
    }

    /// Place of a file by its inode number, which another program may have found.
    fn by_number(&self, file: FileId) -> InodePath {
        InodePath::at_inode(file, walk_proof(&self.client, file))
    }

    /// The client that the program uses.
    pub fn client(&self) -> &Client<SimEnv> {
        &self.client
    }

    /// Runs random operations with pauses.
    pub async fn run(&mut self, steps: u32) {
        for _ in 0..steps {
            if self.judge.violation().is_some() {
                return;
            }
            let pause = self.rng.below(self.cluster.plan.pause.0 + 1);
            if self.rng.below(3) > 0 {
                self.client.env().sleep(Nanos(pause)).await;
            }
            self.step().await;
        }
    }

    /// Runs one operation.
    async fn step(&mut self) {
        if self.handles.is_empty() {
            return self.open().await;
        }
        if self.cluster.plan.moves && self.moves_rng.below(8) == 0 {
            return self.move_file().await;
        }
        if self.cluster.plan.rules && self.rules_rng.below(6) == 0 {
            return self.rule().await;
        }
        if self.cluster.plan.parts() && self.parts_rng.below(16) == 0 {
            return self.query_capacity().await;
        }
        if self.cluster.plan.holes && self.holes_rng.below(8) == 0 {
            return self.punch().await;
        }
        if self.cluster.plan.replicas && self.replicas_rng.below(6) == 0 {
            return self.replicate().await;
        }
        if self.cluster.plan.churn && self.moves_rng.below(2) == 0 {
            return self.write().await;
        }
        match self.rng.below(100) {
            0..10 => self.open().await,
            10..34 => self.write().await,
            34..56 => self.read().await,
            56..62 => self.append().await,
            62..67 => self.truncate().await,
            67..74 => self.sync(false).await,
            74..79 => self.size().await,
            79..82 => self.sync(true).await,
            82..94 => self.names().await,
            _ => self.lock().await,
        }
    }

    fn begins(&self, what: impl FnOnce() -> String) -> u32 {
        self.judge.begins(self.number, what)
    }

    fn ends<T>(&self, id: u32, result: &Result<T, Error>) -> Nanos {
        self.judge.ends(id, || short(result))
    }

    fn draw_slot(&mut self) -> NameSlot {
        let dir = if self.rng.below(2) == 0 { 0 } else { self.rng.below(u64::from(DIRS)) as u8 };
        NameSlot { dir, name: self.rng.below(u64::from(NAMES)) as u8 }
    }

    fn draw_offset(&mut self) -> u64 {
        let span = self.cluster.plan.span;
        match self.rng.below(4) {
            0 => self.rng.below(span),
            1 => self.rng.below(span / 4096 + 1) * 4096,
            2 => self.rng.below(span / 1000 + 1) * 1000,
            _ => self.rng.below(span / 4),
        }
    }

    fn draw_len(&mut self) -> usize {
        let span = self.cluster.plan.span;
        (match self.rng.below(8) {
            0 => 0,
            1 => 1 + self.rng.below(64),
            2 => 4096,
            3 => 1 + self.rng.below(span),
            _ => 1 + self.rng.below(span / 6),
        }) as usize
    }

    fn draw_handle(&mut self) -> usize {
        self.rng.below(self.handles.len() as u64) as usize
    }

    fn draw_writer(&mut self) -> Option<usize> {
        let writers: Vec<usize> = (0..self.handles.len()).filter(|at| self.handles[*at].write).collect();
        (!writers.is_empty()).then(|| pick(&mut self.rng, &writers))
    }

    /// Checks an error of an operation on an open file, and closes a file that an outage has invalidated.
    async fn check_error(&mut self, at: usize, error: &Error, legal: &[i32]) {
        let mut legal = legal.to_vec();
        if self.cluster.plan.faults.contains(&Fault::FullDisk) {
            legal.push(libc::ENOSPC);
        }
        if error.errno() == libc::ESTALE {
            // The outage exceeded the grace period.
            self.judge.hit("actor: a lost open file");
            if self.judge.had_outage() {
                legal.push(libc::ESTALE);
            }
        }
        // The client rejects operations on a file with a lost lock until the lock is released.
        let lock_lost =
            error.errno() == libc::EIO && error.to_string().starts_with("a lock on the file was lost");
        if lock_lost && self.judge.had_outage() {
            self.judge.hit("actor: a lost lock");
            legal.push(libc::EIO);
        }
        // A truncation may have to sync data of the SSD. A datafile whose sync has failed once never can.
        let never_safe = self.cluster.plan.faults.contains(&Fault::DiskErrors)
            && error.to_string().contains("an earlier sync of it failed");
        if never_safe {
            legal.push(libc::EIO);
        }
        self.judge.check_excuse(error, &legal);
        if error.errno() == libc::ESTALE {
            self.close(at).await;
        } else if lock_lost {
            self.release_locks(at).await;
        }
    }

    /// Checks all open files and closes them.
    pub async fn finish(&mut self) {
        while let Some(last) = self.handles.len().checked_sub(1) {
            let handle = self.handles[last].file.clone();
            let result = match self.size_of(&handle).await {
                Ok(size) if handle.flags().read => {
                    self.read_range(&handle, 0, size as usize + 10).await.map(drop)
                }
                result => result.map(drop),
            };
            drop(handle);
            if let Err(error) = result {
                self.check_error(last, &error, &[]).await;
            }
            if self.handles.len() > last {
                self.close(last).await;
            }
        }
    }
}
