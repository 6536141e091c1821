//! A program of the search: random operations on a few files, each told to the judge before and after.

use super::bytes::{Fill, fill};
use super::cluster::Cluster;
use super::file::HandleKey;
use super::judge::Judge;
use super::locks::Held;
use super::names::{Answer, DIRS, NAMES, Request, Spot};
use super::plan::pick;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use weft_client::{Client, Error, MoveOptions, MoveOutcome, OpenFile, Place, ROOT, Wait};
use weft_core::{ByteLen, FileId, FileOffset, Layout, Nanos, Placement, TargetId};
use weft_env::Env;
use weft_env::sim::{Rng, SimEnv};
use weft_wire::meta::{Forget, LayoutSpec, LockKind, LockOwner, LockRange, LockSpace, OpenFlags, Rule};

/// Files that a program keeps open.
const OPEN_MAX: usize = 4;
/// Stripes of files that take rules are odd from here on; no other is.
const RULED_FROM: u64 = 4097;
/// The extended attribute of the search.
const ATTRIBUTE: &str = "user.value";

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
    Place { base: ROOT, path: path.into(), follow: true }
}

fn by_number(file: FileId) -> Place {
    Place { base: file, path: Vec::new(), follow: false }
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
        Self { cluster, judge, client, number, process, rng, mover, ruler, handles: Vec::new() }
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
        if self.cluster.plan.faults.contains(&super::plan::Fault::FullDisk) {
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
        let never_safe = self.cluster.plan.faults.contains(&super::plan::Fault::DiskErrors)
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

    async fn give_locks_up(&mut self, at: usize) {
        let (handle, key) = (self.handles[at].file.clone(), self.handles[at].key);
        let all = LockRange { start: 0, end: u64::MAX };
        let of_process = (LockSpace::Record, LockOwner::Process(self.process), self.process);
        let of_handle = (LockSpace::Flock, LockOwner::Handle(handle.handle()), key);
        for (space, owner, own) in [of_process, of_handle] {
            let own = (self.number, own);
            self.judge.now(|state, _| state.locks.released(own, handle.file(), space, (0, u64::MAX)));
            if let Err(error) = handle.unlock(space, owner, all).await {
                self.judge.unlock_unheard(self.number);
                self.judge.excused(&error, &[libc::ESTALE]);
            }
        }
    }

    // Bytes.

    async fn open(&mut self) {
        if self.handles.len() >= OPEN_MAX {
            let at = self.some_handle();
            return self.close(at).await;
        }
        if self.rng.below(5) == 0 && !self.handles.is_empty() {
            return self.open_again().await;
        }
        let at = self.spot();
        let create = self.rng.below(4) > 0;
        let exclusive = create && self.rng.below(3) == 0;
        let write = self.rng.below(4) > 0;
        let read = !write || self.rng.below(5) > 0;
        let flags = OpenFlags { read, write, create, exclusive, truncate: false, directory: false };
        let stripe = pick(&mut self.rng, &self.cluster.plan.stripes);
        let by_rule = self.cluster.plan.rules && self.ruler.below(4) > 0;
        let stripe_size = (!by_rule).then_some(ByteLen(stripe));
        let spec = LayoutSpec { stripe_size, ..LayoutSpec::default() };
        let path = path(at);
        let id = self.begins(|| format!("open {path} {flags:?}"));
        self.judge.hit("op: open");
        self.judge.asks(id, Request::Open { at, create, exclusive });
        let began = self.judge.moment();
        let result = self.client.open(&place(&path), flags, 0o644, &spec).await;
        let took = self.judge.ends(id, || match &result {
            Ok(file) => format!("file {} created {}", file.file(), file.created()),
            Err(error) => error.to_string(),
        });
        match result {
            Ok(file) => {
                self.judge.told(id, &Answer::Opened { file: file.file().0, made: file.created() });
                if let Some(layout) = file.layout().filter(|_| by_rule && file.created()) {
                    self.made_by_rule(id, at.dir, began, layout);
                }
                self.opened(file, write, began);
            }
            Err(error) => self.name_error(id, &error, took),
        }
    }

    fn opened(&mut self, file: OpenFile<SimEnv>, write: bool, began: u64) {
        let known_at = self.judge.file(file.file(), |model, _| {
            if model.layout.is_none() {
                model.layout = file.layout().cloned();
            }
            model.known_at
        });
        if file.created() && known_at < began {
            self.judge.violated("file ids are not used again", format!("file {}", file.file()));
        }
        let key = u64::from(self.judge.id());
        self.handles.push(Handle { file, key, write });
    }

    /// A file was made that leaves its layout to rules.
    fn made_by_rule(&self, id: u32, dir: u8, began: u64, layout: &Layout) {
        let stripe = layout.components()[0].strips[0].stripe_size.0;
        let default = Placement::DEFAULT_STRIPE_SIZE.0;
        self.judge.hit(if stripe == default { "rules: a file without one" } else { "rules: a file by one" });
        let may_be = self.judge.now(|state, _| state.rules.stripes(dir, began, default));
        if !may_be.contains(&stripe) {
            let what = format!("#{id} made a file with stripes of {stripe} bytes, of {may_be:?}");
            self.judge.violated("new files take the rule that there is", what);
        }
    }

    /// Changes the rule of a directory, or asks for it.
    async fn rule(&mut self) {
        let dir = self.ruler.below(u64::from(DIRS)) as u8;
        let at = place(&dir_path(dir));
        let result = if self.ruler.below(4) == 0 {
            self.judge.hit("op: ask for rules");
            let id = self.begins(|| format!("rules of directory {dir}"));
            let began = self.judge.moment();
            let result = self.client.rules(&at).await;
            self.ends(id, &result);
            result.map(|ruled| {
                let own = ruled.iter().find(|ruled| ruled.path == dir_path(dir).as_bytes());
                let rule = own.and_then(|own| own.rules.first());
                let value = rule.and_then(|rule| rule.layout.stripe_size).map(|size| size.0);
                let may_be = self.judge.now(|state, _| state.rules.of(dir, began));
                if !may_be.contains(&value) {
                    let what = format!("#{id} was told {value:?}, of {may_be:?}");
                    self.judge.violated("rules of directories are those that were set last", what);
                }
            })
        } else {
            self.judge.hit("op: change rules");
            // No other rule, nor the default, has this stripe.
            let stripe = (self.ruler.below(4) > 0).then(|| RULED_FROM + 2 * u64::from(self.judge.id()));
            let layout = LayoutSpec { stripe_size: stripe.map(ByteLen), ..LayoutSpec::default() };
            let rule = |_| Rule { pattern: "**".parse().expect("a pattern"), layout: layout.clone() };
            let forget =
                if self.ruler.below(2) == 0 || stripe.is_none() { Forget::All } else { Forget::Replaced };
            let id = self.begins(|| format!("rules of directory {dir}: {stripe:?}"));
            self.judge.now(|state, now| state.rules.begin(id, dir, stripe, now));
            let result = self.client.change_rules(&at, forget, stripe.iter().map(rule).collect()).await;
            self.ends(id, &result);
            self.rule_written(id, &result);
            result
        };
        if let Err(error) = result
            && error.errno() != libc::ENOENT
        {
            let is_full = self.cluster.plan.faults.contains(&super::plan::Fault::FullDisk);
            self.judge.excused(&error, if is_full { &[libc::ENOSPC] } else { &[] });
        }
    }

    /// What became of a change of a directory's rules.
    fn rule_written<T>(&self, id: u32, result: &Result<T, Error>) {
        self.judge.now(|state, now| match result {
            Ok(_) => state.rules.done(id, now),
            Err(error) if [libc::ENOENT, libc::EEXIST, libc::ENOTEMPTY].contains(&error.errno()) => {
                state.rules.refused(id);
            }
            // Nobody knows.
            Err(_) => {}
        });
    }

    /// Opens a file by its number, perhaps to cut it.
    async fn open_again(&mut self) {
        let at = self.some_handle();
        let file = self.handles[at].file.file();
        let (write, truncate) = (self.rng.below(2) == 0, self.rng.below(2) == 0);
        let flags =
            OpenFlags { read: true, write, create: false, exclusive: false, truncate, directory: false };
        let id = self.begins(|| format!("open file {file} {flags:?}"));
        self.judge.hit(if truncate { "op: open with O_TRUNC" } else { "op: open by number" });
        let began = self.judge.moment();
        if truncate {
            self.judge.file(file, |model, now| model.begin_cut(id, 0, now));
        }
        let result = self.client.open(&by_number(file), flags, 0, &LayoutSpec::default()).await;
        self.ends(id, &result);
        match result {
            Ok(again) => {
                if truncate {
                    self.judge.file(file, |model, now| model.end_cut(id, began, now));
                }
                self.opened(again, write, began);
            }
            // Removed and not open any more after an outage.
            Err(error) => self.judged(at, &error, &[libc::ESTALE]).await,
        }
    }

    async fn close(&mut self, at: usize) {
        let handle = self.handles.swap_remove(at);
        let file = handle.file.file();
        let id = self.begins(|| format!("close file {file}"));
        self.judge.hit("op: close");
        if self.handles.iter().all(|other| other.file.file() != file) {
            self.judge.now(|state, _| state.locks.closed(self.number, file));
        }
        let own = (self.number, handle.key);
        self.judge.now(|state, _| state.locks.released(own, file, LockSpace::Flock, (0, u64::MAX)));
        let result = handle.file.close().await;
        self.ends(id, &result);
        if let Err(error) = result {
            self.judge.excused(&error, &[]);
        }
    }

    async fn write(&mut self) {
        let Some(at) = self.writer() else { return };
        let (offset, len) = (self.offset(), self.len());
        let (handle, key) = (self.handles[at].file.clone(), self.handles[at].key);
        let file = handle.file();
        let id = self.begins(|| format!("write file {file} {offset}..{}", offset + len as u64));
        self.judge.hit(if len == 0 { "op: write of nothing" } else { "op: write" });
        let mut bytes = vec![0; len];
        fill(id, Fill::Placed, offset, &mut bytes);
        let end = offset + len as u64;
        let began = self.judge.file(file, |model, now| {
            if len > 0 {
                model.begin_write(id, offset, end, now);
            }
            now
        });
        // As two pieces of memory now and then.
        let (first, second) = bytes.split_at(if self.rng.below(3) == 0 { len / 3 } else { len });
        let parts = [IoSlice::new(first), IoSlice::new(second)];
        let result = handle.write_at(&parts, FileOffset(offset)).await;
        let took = self.ends(id, &result);
        drop(handle);
        match result {
            Ok(count) => {
                if count > 0 {
                    self.judge.used(id, self.number, file, took);
                }
                if count < len && !self.cluster.plan.faults.contains(&super::plan::Fault::FullDisk) {
                    self.judge.violated("writes are whole", format!("#{id}: {count} of {len}"));
                }
                self.judge.file(file, |model, now| {
                    if len > 0 {
                        model.end_write(id, key, (offset, end, count as u64), began, now);
                    }
                });
            }
            Err(error) => self.judged(at, &error, &[]).await,
        }
    }

    async fn append(&mut self) {
        let Some(at) = self.writer() else { return };
        let len = self.len().clamp(1, 9000);
        let (handle, key) = (self.handles[at].file.clone(), self.handles[at].key);
        let file = handle.file();
        let id = self.begins(|| format!("append to file {file} {len} bytes"));
        self.judge.hit("op: append");
        let mut bytes = vec![0; len];
        fill(id, Fill::Flat, 0, &mut bytes);
        let began = self.judge.file(file, |model, now| {
            model.begin_append(id, now);
            model.reads.insert(now);
            now
        });
        let result = handle.append(&[IoSlice::new(&bytes)]).await;
        let took = self.judge.ends(id, || match &result {
            Ok((offset, count)) => format!("{count} bytes at {offset}"),
            Err(error) => error.to_string(),
        });
        drop(handle);
        match result {
            Ok((offset, count)) => {
                self.judge.used(id, self.number, file, took);
                self.judge.appended(id, file, began, offset.0, count as u64);
                self.judge.asked(file, began);
                let (len, count) = (len as u64, count as u64);
                self.judge.file(file, |model, now| {
                    model.end_append(id, key, (offset.0, len, count), began, now);
                });
            }
            Err(error) => {
                self.judge.file(file, |model, _| model.fail_append(id, len as u64, began));
                self.judge.asked(file, began);
                self.judged(at, &error, &[]).await;
            }
        }
    }

    async fn read(&mut self) {
        let at = self.some_handle();
        let handle = self.handles[at].file.clone();
        if !handle.flags().read {
            return;
        }
        let (offset, len) = (self.offset(), self.len());
        if let Err(error) = self.read_range(&handle, offset, len).await {
            drop(handle);
            self.judged(at, &error, &[]).await;
        }
    }

    /// Reads and checks.
    pub async fn read_range(
        &self,
        handle: &OpenFile<SimEnv>,
        offset: u64,
        len: usize,
    ) -> Result<usize, Error> {
        let file = handle.file();
        let id = self.begins(|| format!("read file {file} {offset}..{}", offset + len as u64));
        self.judge.hit("op: read");
        // What a read leaves alone must not look like data.
        let mut buf = vec![0xee; len];
        let began = self.judge.begin_read(file);
        let result = handle.read_at(&mut [IoSliceMut::new(&mut buf)], FileOffset(offset)).await;
        let took = self.judge.ends(id, || match &result {
            Ok(count) => format!("{count} bytes"),
            Err(error) => error.to_string(),
        });
        match &result {
            Ok(count) => {
                if *count > 0 {
                    self.judge.used(id, self.number, file, took);
                }
                buf.truncate(*count);
                if *count < len {
                    self.judge.hit("op: read across the end");
                }
                self.judge.end_read(id, file, began, offset, len, &buf);
            }
            Err(_) => self.judge.fail_read(file, began),
        }
        result
    }

    async fn truncate(&mut self) {
        let by_handle = self.rng.below(3) > 0;
        let at = if by_handle { self.writer() } else { Some(self.some_handle()) };
        let Some(at) = at else { return };
        let handle = self.handles[at].file.clone();
        let (file, size) = (handle.file(), self.offset());
        let id = self.begins(|| format!("truncate file {file} to {size}, by handle {by_handle}"));
        self.judge.hit(if by_handle { "op: truncate" } else { "op: truncate by name" });
        let began = self.judge.file(file, |model, now| {
            model.begin_cut(id, size, now);
            now
        });
        let result = match by_handle {
            true => handle.truncate(ByteLen(size)).await,
            false => self.client.truncate(&by_number(file), ByteLen(size)).await,
        };
        self.ends(id, &result);
        drop(handle);
        match result {
            Ok(()) => self.judge.file(file, |model, now| model.end_cut(id, began, now)),
            Err(error) => self.judged(at, &error, if by_handle { &[] } else { &[libc::ENOENT] }).await,
        }
    }

    async fn sync(&mut self, and_close: bool) {
        let at = self.some_handle();
        let (handle, key) = (self.handles[at].file.clone(), self.handles[at].key);
        let file = handle.file();
        let id = self.begins(|| format!("sync file {file}"));
        self.judge.hit("op: sync");
        let began = self.judge.file(file, |_, now| now);
        let result = handle.sync().await;
        self.ends(id, &result);
        self.judge.end_sync(file, key, began, result.is_ok());
        drop(handle);
        match result {
            Ok(()) if and_close => self.close(at).await,
            Ok(()) => {}
            // A datafile whose sync has failed once is never called safe again.
            Err(error) if self.cluster.plan.faults.contains(&super::plan::Fault::DiskErrors) => {
                self.judged(at, &error, &[libc::EIO]).await;
            }
            // What was written before a loss of power may be lost, and that is to be told.
            Err(error) if self.judge.file(file, |model, _| model.lost_power_ever()) => {
                self.judge.hit("sync: told that writes are lost");
                self.judged(at, &error, &[libc::EIO]).await;
            }
            Err(error) => self.judged(at, &error, &[]).await,
        }
    }

    /// Has the bytes of a file go somewhere else while everybody uses it.
    async fn move_file(&mut self) {
        let file = self.handles[self.mover.below(self.handles.len() as u64) as usize].file.file();
        let count = self.cluster.len() as u32;
        let mut targets: Vec<u32> = (0..count).filter(|_| self.mover.below(2) == 0).collect();
        if targets.is_empty() {
            targets.push(self.mover.below(u64::from(count)) as u32);
        }
        let stripe = ByteLen(pick(&mut self.mover, &self.cluster.plan.stripes));
        let strips: Vec<_> = targets.iter().map(|&target| (TargetId(target), stripe)).collect();
        let ids: Vec<TargetId> = targets.iter().copied().map(TargetId).collect();
        let layout = Layout::striped(&ids, stripe).expect("stripes have bytes");
        let spec = LayoutSpec { strips: Some(strips), ..LayoutSpec::default() };
        let options = MoveOptions {
            verify: self.mover.below(2) == 0,
            last: pick(&mut self.mover, &[None, Some(ByteLen(0)), Some(ByteLen(2000))]),
            ..MoveOptions::default()
        };
        // Now and then it is asked to stop.
        let mut patience = pick(&mut self.mover, &[u64::MAX, u64::MAX, 1]);
        let mut go_on = |_| {
            patience = patience.saturating_sub(1);
            patience > 0
        };
        let id = self.begins(|| format!("move file {file} to {targets:?} by {stripe}"));
        self.judge.hit("op: move");
        // From here on its parts may be there, whatever is heard of it.
        self.judge.file(file, |model, _| model.moved_to.push(layout));
        let result = self.client.migrate(&by_number(file), &spec, options, &mut go_on).await;
        self.judge.ends(id, || format!("{result:?}"));
        match result {
            Ok(MoveOutcome::Moved(report)) => {
                self.judge.hit("move: done");
                if report.rounds > 1 {
                    self.judge.hit("move: more than one round");
                }
            }
            Ok(MoveOutcome::Stopped) => self.judge.hit("move: stopped"),
            Ok(MoveOutcome::Already) => {}
            Err(error) => {
                self.judge.hit("move: failed");
                // Somebody else moves it, or it was removed, or forgotten in an outage.
                let mut legal = vec![libc::EBUSY, libc::ENOENT, libc::ESTALE, libc::EAGAIN];
                if self.judge.had_outage() {
                    legal.push(libc::EBADF);
                }
                if self.cluster.plan.faults.contains(&super::plan::Fault::FullDisk) {
                    legal.push(libc::ENOSPC);
                }
                if self.cluster.plan.faults.contains(&super::plan::Fault::DiskErrors) {
                    legal.push(libc::EIO);
                }
                if self.judge.file(file, |model, _| model.lost_power_ever()) {
                    legal.push(libc::EIO);
                }
                self.judge.excused(&error, &legal);
            }
        }
    }

    async fn size(&mut self) {
        let at = self.some_handle();
        let handle = self.handles[at].file.clone();
        if let Err(error) = self.size_of(&handle).await {
            drop(handle);
            self.judged(at, &error, &[]).await;
        }
    }

    /// Asks for a file's length and checks it.
    pub async fn size_of(&self, handle: &OpenFile<SimEnv>) -> Result<u64, Error> {
        let file = handle.file();
        let by_stat = self.judge.moment().is_multiple_of(2);
        let id = self.begins(|| format!("size of file {file}, by stat {by_stat}"));
        self.judge.hit(if by_stat { "op: stat by handle" } else { "op: size" });
        let began = self.judge.begin_asking(file);
        let result = match by_stat {
            true => handle.attr().await.map(|attr| attr.size.0),
            false => handle.size().await.map(|size| size.0),
        };
        self.judge.ends(id, || format!("{result:?}"));
        if let Ok(size) = &result {
            self.judge.size_told(id, file, began, *size, by_stat);
        }
        self.judge.asked(file, began);
        result
    }

    // Names.

    fn name_error(&mut self, id: u32, error: &Error, took: Nanos) {
        match error.errno() {
            errno @ (libc::ENOENT | libc::EEXIST | libc::ENOTEMPTY) => {
                self.judge.told(id, &Answer::Errno(errno));
            }
            _ => {
                self.judge.never_told(id, took, error);
                let is_full = self.cluster.plan.faults.contains(&super::plan::Fault::FullDisk);
                self.judge.excused(error, if is_full { &[libc::ENOSPC] } else { &[] });
            }
        }
    }

    fn name_told(&mut self, id: u32, result: Result<Answer, Error>) {
        let took = self.judge.ends(id, || match &result {
            Ok(answer) => format!("{answer:?}"),
            Err(error) => error.to_string(),
        });
        match result {
            Ok(answer) => self.judge.told(id, &answer),
            Err(error) => self.name_error(id, &error, took),
        }
    }

    async fn names(&mut self) {
        let (a, b) = (self.spot(), self.spot());
        let (from, to) = (place(&path(a)), place(&path(b)));
        let dir = 1 + self.rng.below(u64::from(DIRS - 1)) as u8;
        let request = match self.rng.below(16) {
            0..3 => Request::Rename(a, b),
            3..5 => Request::Link(a, b),
            5..8 => Request::Unlink(a),
            8 | 9 => Request::Mkdir(dir),
            10 => Request::Rmdir(dir),
            11 | 12 => Request::Stat(a),
            13 => Request::SetValue(a, self.judge.id()),
            14 => Request::GetValue(a),
            _ => Request::List(self.rng.below(u64::from(DIRS)) as u8),
        };
        let id = self.begins(|| format!("{request:?}"));
        self.judge.asks(id, request.clone());
        // A directory that is new has no rules.
        let renews = match request {
            Request::Mkdir(dir) | Request::Rmdir(dir) => Some(dir),
            _ => None,
        };
        if let Some(dir) = renews {
            self.judge.now(|state, now| state.rules.begin(id, dir, None, now));
        }
        let client = self.client.clone();
        let result = match request {
            Request::Rename(..) => {
                self.judge.hit("op: rename");
                client.rename(&from, &to, false, false).await.map(|()| Answer::Done)
            }
            Request::Link(..) => {
                self.judge.hit("op: link");
                client
                    .link(&from, &to)
                    .await
                    .map(|attr| Answer::Attr { file: attr.file.0, nlink: attr.nlink })
            }
            Request::Unlink(_) => {
                self.judge.hit("op: unlink");
                client.unlink(&from).await.map(|()| Answer::Done)
            }
            Request::Mkdir(dir) => {
                self.judge.hit("op: mkdir");
                client.mkdir(&place(&dir_path(dir)), 0o755).await.map(|_| Answer::Done)
            }
            Request::Rmdir(dir) => {
                self.judge.hit("op: rmdir");
                client.rmdir(&place(&dir_path(dir))).await.map(|()| Answer::Done)
            }
            Request::SetValue(_, value) => {
                self.judge.hit("op: set an attribute");
                let value = value.to_le_bytes();
                client.set_xattr(&from, ATTRIBUTE, &value, false, false).await.map(|()| Answer::Done)
            }
            Request::GetValue(_) => {
                self.judge.hit("op: get an attribute");
                match client.get_xattr(&from, ATTRIBUTE).await {
                    Ok(value) => Ok(Answer::Value(value.try_into().ok().map(u32::from_le_bytes))),
                    Err(error) if error.errno() == libc::ENODATA => Ok(Answer::Value(None)),
                    Err(error) => Err(error),
                }
            }
            Request::List(dir) => {
                self.judge.hit("op: list");
                self.list(dir).await
            }
            Request::Stat(_) | Request::Open { .. } => {
                self.judge.hit("op: stat");
                self.stat(id, &from).await
            }
        };
        if renews.is_some() {
            self.rule_written(id, &result);
        }
        self.name_told(id, result);
    }

    async fn stat(&self, id: u32, at: &Place) -> Result<Answer, Error> {
        let began = self.judge.begin_asking_by_name();
        let stat = self.client.stat(at).await;
        if let Ok(attr) = &stat {
            self.judge.size_told(id, attr.file, began, attr.size.0, true);
        }
        self.judge.asked_by_name(began);
        let attr = stat?;
        Ok(Answer::Attr { file: attr.file.0, nlink: attr.nlink })
    }

    async fn list(&self, dir: u8) -> Result<Answer, Error> {
        let (entries, _) = self.client.list(&place(&dir_path(dir)), b"", 100, false).await?;
        let names = entries.iter().filter_map(|entry| entry.name.strip_prefix(b"f"));
        Ok(Answer::Names(names.filter_map(|digit| digit.first().map(|digit| digit - b'0')).collect()))
    }

    /// Looks at every name and compares; everything is quiet.
    pub async fn check_names(&mut self) {
        for dir in 0..DIRS {
            let id = self.begins(|| format!("list directory {dir}"));
            self.judge.asks(id, Request::List(dir));
            let result = self.list(dir).await;
            self.name_told(id, result);
            for name in 0..NAMES {
                let at = Spot { dir, name };
                let path = path(at);
                let id = self.begins(|| format!("stat {path}"));
                self.judge.asks(id, Request::Stat(at));
                let result = self.stat(id, &place(&path)).await;
                self.name_told(id, result);
            }
        }
    }

    /// Gives up what movers have left of a file's moves.
    pub async fn forget_move(&self, file: FileId) -> Result<(), Error> {
        self.client.forget_move(&by_number(file)).await
    }

    /// Opens a file by its number for reading.
    pub async fn open_to_read(&self, file: FileId) -> Result<OpenFile<SimEnv>, Error> {
        self.client.open(&by_number(file), OpenFlags::READ, 0, &LayoutSpec::default()).await
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

    // Locks.

    async fn lock(&mut self) {
        let at = self.some_handle();
        let (handle, key) = (self.handles[at].file.clone(), self.handles[at].key);
        let file = handle.file();
        let whole = self.rng.below(3) == 0;
        let (space, owner, owner_key, range) = match whole {
            true => (LockSpace::Flock, LockOwner::Handle(handle.handle()), key, (0, u64::MAX)),
            false => {
                let start = self.rng.below(8) * 10;
                (
                    LockSpace::Record,
                    LockOwner::Process(self.process),
                    self.process,
                    (start, start + 10 + self.rng.below(3) * 10),
                )
            }
        };
        let wire_range = LockRange { start: range.0, end: range.1 };
        let own = (self.number, owner_key);
        if self.rng.below(5) < 2 {
            let id = self.begins(|| format!("unlock file {file} {space:?} {range:?}"));
            self.judge.hit("op: unlock");
            self.judge.now(|state, _| state.locks.released(own, file, space, range));
            let result = handle.unlock(space, owner, wire_range).await;
            self.ends(id, &result);
            drop(handle);
            if let Err(error) = result {
                self.judge.unlock_unheard(self.number);
                self.judged(at, &error, &[]).await;
            }
            return;
        }
        // As fcntl has it, one has to read what one locks shared, and write the rest.
        let (read, write) = (self.handles[at].file.flags().read, self.handles[at].write);
        let shared = !write || (read && self.rng.below(3) == 0);
        let kind = if shared { LockKind::Shared } else { LockKind::Exclusive };
        let id = self.begins(|| format!("lock file {file} {space:?} {kind:?} {range:?}"));
        self.judge.hit("op: lock");
        let troubles = self.judge.link_troubles();
        let mut asked = 0;
        let patience = self.rng.below(8);
        let mut interrupted = || {
            asked += 1;
            asked > patience
        };
        let wait = if patience == 0 { Wait::No } else { Wait::Until(&mut interrupted) };
        // From here on what it held of the range may be replaced.
        self.judge.now(|state, _| state.locks.released(own, file, space, range));
        let result = handle.lock(space, owner, kind, wire_range, wait).await;
        self.ends(id, &result);
        drop(handle);
        match result {
            Ok(()) => {
                let in_doubt = self.judge.link_troubles() != troubles || self.judge.link_is_troubled();
                let lock = Held { owner: own, file, space, kind, range, in_doubt, lost_at: None };
                self.judge.locked(id, lock);
            }
            Err(error) => {
                if error.errno() == libc::EINTR || error.errno() == libc::EAGAIN {
                    self.judge.hit("lock: somebody had it");
                }
                self.judged(at, &error, &[libc::EAGAIN, libc::EINTR, libc::EDEADLK]).await;
            }
        }
    }
}
