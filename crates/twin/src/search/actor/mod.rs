//! A program of the search: random operations on a few files, each told to the judge before and after.

mod bytes;
mod layouts;
mod locks;
mod names;

use crate::search::cluster::{Cluster, walk_proof};
use crate::search::file::HandleKey;
use crate::search::judge::Judge;
use crate::search::names::{DIRS, NAMES, Spot};
use crate::search::plan::{Fault, pick};
use std::sync::Arc;
use weft_client::{Client, Error, OpenFile, Place};
use weft_core::{FileId, Nanos};
use weft_env::Env;
use weft_env::sim::{Rng, SimEnv};

/// An open file of a program.
pub struct Handle {
    /// It.
    pub file: OpenFile<SimEnv>,
    /// Its number in the search.
    pub key: HandleKey,
    write: bool,
}

/// One program.
pub struct Actor {
    cluster: Arc<Cluster>,
    judge: Judge,
    client: Client<SimEnv>,
    number: u32,
    /// Locks of a process are told apart by this.
    process: u64,
    rng: Rng,
    /// Decides about moves, and about writing more, so that seeds without them are the same as ever.
    mover: Rng,
    /// About rules of directories, likewise.
    ruler: Rng,
    /// About parts of layouts, likewise.
    parter: Rng,
    /// About moves that stop, likewise.
    stopper: Rng,
    /// About holes, likewise.
    puncher: Rng,
    handles: Vec<Handle>,
}

/// The path of a directory.
pub fn dir_path(dir: u8) -> String {
    if dir == 0 { String::new() } else { format!("d{dir}") }
}

/// The path of a name.
pub fn path(spot: Spot) -> String {
    match spot.dir {
        0 => format!("f{}", spot.name),
        dir => format!("d{dir}/f{}", spot.name),
    }
}

fn place(path: &str) -> Place {
    Place::from_root(path, true)
}

fn short<T>(result: &Result<T, Error>) -> String {
    match result {
        Ok(_) => "ok".into(),
        Err(error) => format!("{error}"),
    }
}

impl Actor {
    /// A program of client `number`.
    pub fn new(cluster: Arc<Cluster>, judge: Judge, client: Client<SimEnv>, number: u32, rng: Rng) -> Self {
        let process = u64::from(judge.id());
        let mover = Rng::new(rng.clone().next_u64());
        let ruler = Rng::new(rng.clone().next_u64() ^ 0x002a_11e5);
        let parter = Rng::new(rng.clone().next_u64() ^ 0x000f_a475);
        let stopper = Rng::new(rng.clone().next_u64() ^ 0x0005_7095);
        let puncher = Rng::new(rng.clone().next_u64() ^ 0x0007_401e);
        let handles = Vec::new();
        Self { cluster, judge, client, number, process, rng, mover, ruler, parter, stopper, puncher, handles }
    }

    /// A file by its inode, which another program may have found.
    fn by_number(&self, file: FileId) -> Place {
        Place::at_inode(file, walk_proof(&self.client, file))
    }

    /// The client that it uses.
    pub fn client(&self) -> &Client<SimEnv> {
        &self.client
    }

    /// Random operations, with pauses.
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

    /// One operation.
    async fn step(&mut self) {
        if self.handles.is_empty() {
            return self.open().await;
        }
        if self.cluster.plan.moves && self.mover.below(8) == 0 {
            return self.move_file().await;
        }
        if self.cluster.plan.rules && self.ruler.below(6) == 0 {
            return self.rule().await;
        }
        if self.cluster.plan.parts() && self.parter.below(16) == 0 {
            return self.ask_for_room().await;
        }
        if self.cluster.plan.holes && self.puncher.below(8) == 0 {
            return self.punch().await;
        }
        if self.cluster.plan.churn && self.mover.below(2) == 0 {
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

    fn spot(&mut self) -> Spot {
        let dir = if self.rng.below(2) == 0 { 0 } else { self.rng.below(u64::from(DIRS)) as u8 };
        Spot { dir, name: self.rng.below(u64::from(NAMES)) as u8 }
    }

    fn offset(&mut self) -> u64 {
        let span = self.cluster.plan.span;
        match self.rng.below(4) {
            0 => self.rng.below(span),
            1 => self.rng.below(span / 4096 + 1) * 4096,
            2 => self.rng.below(span / 1000 + 1) * 1000,
            _ => self.rng.below(span / 4),
        }
    }

    fn len(&mut self) -> usize {
        let span = self.cluster.plan.span;
        (match self.rng.below(8) {
            0 => 0,
            1 => 1 + self.rng.below(64),
            2 => 4096,
            3 => 1 + self.rng.below(span),
            _ => 1 + self.rng.below(span / 6),
        }) as usize
    }

    fn some_handle(&mut self) -> usize {
        self.rng.below(self.handles.len() as u64) as usize
    }

    fn writer(&mut self) -> Option<usize> {
        let writers: Vec<usize> = (0..self.handles.len()).filter(|at| self.handles[*at].write).collect();
        (!writers.is_empty()).then(|| pick(&mut self.rng, &writers))
    }

    /// After an error: a handle that was lost over an outage is of no more use.
    async fn judged(&mut self, at: usize, error: &Error, legal: &[i32]) {
        let mut legal = legal.to_vec();
        if self.cluster.plan.faults.contains(&Fault::FullDisk) {
            legal.push(libc::ENOSPC);
        }
        if error.errno() == libc::ESTALE {
            // After an outage that was too long.
            self.judge.hit("actor: a lost handle");
            if self.judge.had_outage() {
                legal.push(libc::ESTALE);
            }
        }
        // Nothing goes on with a file on which the client has lost a lock until that is given up.
        let lock_lost =
            error.errno() == libc::EIO && error.to_string().starts_with("a lock on the file was lost");
        if lock_lost && self.judge.had_outage() {
            self.judge.hit("actor: a lost lock");
            legal.push(libc::EIO);
        }
        // A cut may have to sync what the SSD had of the file, and a datafile whose sync has failed once never can.
        let never_safe = self.cluster.plan.faults.contains(&Fault::DiskErrors)
            && error.to_string().contains("an earlier sync of it failed");
        if never_safe {
            legal.push(libc::EIO);
        }
        self.judge.excused(error, &legal);
        if error.errno() == libc::ESTALE {
            self.close(at).await;
        } else if lock_lost {
            self.give_locks_up(at).await;
        }
    }

    /// Checks all that it has open and closes it.
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
                self.judged(last, &error, &[]).await;
            }
            if self.handles.len() > last {
                self.close(last).await;
            }
        }
    }
}
