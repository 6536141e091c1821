//! A rank: random operations on the file, and the checks of their results.

use super::job::{FILE, Job, RankFile};
use crate::search::bytes::{Fill, Moment, fill};
use crate::search::file::HandleKey;
use crate::search::judge::Judge;
use std::collections::BTreeSet;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use weft_client::{Delegates, Error, FileHandle, ReadPiece, WritePiece};
use weft_core::{ByteLen, Extent, FileOffset, Nanos};
use weft_env::Env;
use weft_env::sim::{Rng, SimEnv};

/// Pages of the file that operations choose from.
const PAGES: u64 = 40;
/// Longest time until an operation reports a dead delegate.
const DEATH_REPORTED_WITHIN: Nanos = Nanos::from_s(3);
/// Part of the message about bytes that write-behind has lost.
const LOST: &str = "could not be written";

/// A rank with its open file.
pub struct Rank {
    job: Arc<Job>,
    judge: Judge,
    env: SimEnv,
    number: u32,
    delegates: Delegates<SimEnv>,
    file: RankFile,
    /// Key of the open file in the models.
    handle: HandleKey,
    rng: Rng,
    is_registered: bool,
    reported: Reported,
}

/// Failed writes that the next sync or close reports, as numbers of all failures so far.
#[derive(Clone, Copy, Default)]
struct Reported {
    /// Failures from this one on must be reported.
    must_from: usize,
    /// Failures from this one on may be reported.
    may_from: usize,
}

/// An operation that has begun.
struct Op {
    id: u32,
    since: Nanos,
    failures: usize,
    /// Whether the file was registered before.
    is_registered: bool,
    /// Delegates that it needs, if these are known.
    needs: Option<BTreeSet<u32>>,
}

impl Rank {
    /// Connects a rank and opens the file; `None` if the delegates cannot be reached.
    pub async fn start(job: Arc<Job>, env: SimEnv, number: u32, rng: Rng) -> Option<Self> {
        let judge = job.judge.clone();
        let since = job.control.elapsed();
        let delegates = match job.join(&env, number).await {
            Ok(delegates) => delegates,
            Err(error) => {
                judge.say(|| format!("rank {number} does not start: {error}"));
                if job.is_quiet(since) && job.gone().is_empty() {
                    judge.violated("errors come from faults only", error.to_string());
                }
                return None;
            }
        };
        let file = job.open(&env, &delegates).await.ok()?;
        let handle = u64::from(number) << 32;
        let reported = Reported::default();
        Some(Self { job, judge, env, number, delegates, file, handle, rng, is_registered: false, reported })
    }

    /// Runs steps, unless a promise is broken first.
    pub async fn run(&mut self, steps: u32) {
        for _ in 0..steps {
            if self.judge.violation().is_some() {
                return;
            }
            self.step().await;
            if self.rng.below(3) == 0 {
                self.env.sleep(Nanos(self.rng.below(self.job.plan.step_pause.0))).await;
            }
        }
    }

    /// Syncs and closes the file. Returns whether the sync succeeded.
    pub async fn finish(mut self) -> bool {
        let is_synced = self.sync().await;
        self.close().await;
        is_synced
    }

    async fn step(&mut self) {
        match self.rng.below(20) {
            0..=5 => self.write().await,
            6 | 7 => self.write_list().await,
            8..=11 => self.read().await,
            12 | 13 => self.read_list().await,
            14 => self.truncate().await,
            15 => self.append().await,
            16 => self.punch().await,
            17 => drop(self.sync().await),
            18 => self.close().await,
            _ => self.size().await,
        }
    }

    /// Draws a range, often unaligned, sometimes of many pages.
    fn range(&mut self) -> (u64, u64) {
        let page = self.job.plan.page_len;
        let len = match self.rng.below(4) {
            0 => self.rng.below(64) + 1,
            1 => page * (self.rng.below(3) + 1),
            2 => self.rng.below(3 * page) + 1,
            _ => self.rng.below(12 * page) + 1,
        };
        let start = match self.rng.below(3) {
            0 => self.rng.below(PAGES) * page,
            _ => self.rng.below(PAGES * page),
        };
        (start, start + len)
    }

    /// Draws ranges in ascending order that do not overlap.
    fn ranges(&mut self) -> Vec<(u64, u64)> {
        let page = self.job.plan.page_len;
        let mut at = self.rng.below(PAGES * page / 2);
        let count = 1 + self.rng.below(12);
        let mut all = Vec::new();
        for _ in 0..count {
            let len = 1 + self.rng.below(page);
            all.push((at, at + len));
            at += len + self.rng.below(2 * page);
        }
        all
    }

    fn begins(&self, what: impl FnOnce() -> String) -> Op {
        let since = self.job.control.elapsed();
        let id = self.judge.begins(self.number, what);
        let (failures, is_registered) = (self.job.failures(), self.is_registered);
        Op { id, since, failures, is_registered, needs: None }
    }

    /// Ends an operation and checks its error.
    fn ends<T>(&mut self, op: &Op, result: &Result<T, Error>) {
        let took = self.judge.ends(op.id, || match result {
            Ok(_) => "ok".to_owned(),
            Err(error) => error.to_string(),
        });
        if !self.is_registered && self.file.page_len().is_some() {
            self.is_registered = true;
            self.reported = Reported { must_from: self.job.failures(), may_from: op.failures };
        }
        let Err(error) = result else { return };
        let text = error.to_string();
        if text.contains(LOST) {
            return;
        }
        self.judge.hit("rank: an operation failed");
        if !self.job.is_quiet(op.since) {
            return;
        }
        let gone = self.job.gone();
        let is_named = gone.iter().any(|index| text.contains(&format!("delegate {index}")));
        let is_needed = op.needs.as_ref().is_none_or(|needs| needs.iter().any(|index| gone.contains(index)));
        let promise = if gone.is_empty() {
            "errors come from faults only"
        } else if !is_named || error.errno() != libc::EIO {
            "an error names the dead delegate"
        } else if took > DEATH_REPORTED_WITHIN {
            "a dead delegate is reported within 3 s"
        } else if op.is_registered && !is_needed {
            "operations that other delegates serve go on"
        } else {
            self.judge.hit("rank: a dead delegate was reported");
            return;
        };
        self.judge.violated(promise, format!("#{}: {text} after {took}, gone: {gone:?}", op.id));
    }

    async fn write(&mut self) {
        let (start, end) = self.range();
        let mut op = self.begins(|| format!("write {start}..{end}"));
        op.needs = self.job.owners(start, end);
        self.judge.hit("op: write");
        let mut data = vec![0; (end - start) as usize];
        fill(op.id, Fill::Positional, start, &mut data);
        let began = self.judge.file(FILE, |model, now| {
            model.begin_write(op.id, Fill::Positional, start, end, now);
            now
        });
        let (a, b) = data.split_at(self.rng.below(end - start) as usize);
        let slices = [IoSlice::new(a), IoSlice::new(b)];
        let slices = if self.rng.below(2) == 0 { &slices[..] } else { &[IoSlice::new(&data)][..] };
        let result = self.file.write_at(slices, FileOffset(start)).await;
        self.ends(&op, &result);
        if let Ok(count) = result {
            let handle = self.handle;
            self.judge.file(FILE, |model, now| {
                model.end_write(op.id, handle, (start, end, count as u64), began, now);
            });
        }
    }

    async fn write_list(&mut self) {
        let ranges = self.ranges();
        let op = self.begins(|| format!("write list {ranges:?}"));
        self.judge.hit("op: write list");
        let mut pieces: Vec<(u32, Moment, u64, Vec<u8>)> = Vec::new();
        for (start, end) in ranges {
            let id = self.judge.id();
            let mut data = vec![0; (end - start) as usize];
            fill(id, Fill::Positional, start, &mut data);
            let began = self.judge.file(FILE, |model, now| {
                model.begin_write(id, Fill::Positional, start, end, now);
                now
            });
            pieces.push((id, began, start, data));
        }
        let list =
            pieces.iter().map(|(_, _, start, data)| WritePiece { offset: FileOffset(*start), bytes: data });
        let list: Vec<WritePiece<'_>> = list.collect();
        let result = self.file.write_list(&list).await;
        self.ends(&op, &result);
        if result.is_ok() {
            let handle = self.handle;
            self.judge.file(FILE, |model, now| {
                for (id, began, start, data) in &pieces {
                    let (end, len) = (start + data.len() as u64, data.len() as u64);
                    model.end_write(*id, handle, (*start, end, len), *began, now);
                }
            });
        }
    }

    async fn read(&mut self) {
        let (start, end) = self.range();
        let op = self.begins(|| format!("read {start}..{end}"));
        self.judge.hit("op: read");
        let began = self.judge.begin_read(FILE);
        let mut bytes = vec![0xEE; (end - start) as usize];
        let middle = self.rng.below(end - start) as usize;
        let result = if self.rng.below(2) == 0 {
            let (a, b) = bytes.split_at_mut(middle);
            self.file.read_at(&mut [IoSliceMut::new(a), IoSliceMut::new(b)], FileOffset(start)).await
        } else {
            self.file.read_at(&mut [IoSliceMut::new(&mut bytes)], FileOffset(start)).await
        };
        self.ends(&op, &result);
        match result {
            Ok(count) => self.judge.end_read(op.id, FILE, began, start, bytes.len(), &bytes[..count]),
            Err(_) => self.judge.fail_read(FILE, began),
        }
    }

    async fn read_list(&mut self) {
        let ranges = self.ranges();
        let op = self.begins(|| format!("read list {ranges:?}"));
        self.judge.hit("op: read list");
        let began: Vec<Moment> = ranges.iter().map(|_| self.judge.begin_read(FILE)).collect();
        let mut buffers: Vec<Vec<u8>> =
            ranges.iter().map(|(start, end)| vec![0xEE; (end - start) as usize]).collect();
        let pieces = ranges.iter().zip(&mut buffers);
        let mut list: Vec<ReadPiece<'_>> = pieces
            .map(|((start, _), buffer)| ReadPiece {
                offset: FileOffset(*start),
                buffer: IoSliceMut::new(buffer),
            })
            .collect();
        let result = self.file.read_list(&mut list).await;
        drop(list);
        self.ends(&op, &result);
        for (at, (start, _)) in ranges.iter().enumerate() {
            match &result {
                Ok(counts) => {
                    let bytes = &buffers[at][..counts[at]];
                    self.judge.end_read(op.id, FILE, began[at], *start, buffers[at].len(), bytes);
                }
                Err(_) => self.judge.fail_read(FILE, began[at]),
            }
        }
    }

    async fn truncate(&mut self) {
        let (size, _) = self.range();
        let op = self.begins(|| format!("truncate to {size}"));
        self.judge.hit("op: truncate");
        let began = self.judge.file(FILE, |model, now| {
            model.begin_cut(op.id, size, now);
            now
        });
        let result = self.file.truncate(ByteLen(size)).await;
        self.ends(&op, &result);
        if result.is_ok() {
            self.judge.file(FILE, |model, now| model.end_cut(op.id, began, now));
        }
    }

    async fn append(&mut self) {
        let len = 1 + self.rng.below(500);
        let op = self.begins(|| format!("append {len} bytes"));
        self.judge.hit("op: append");
        let mut bytes = vec![0; len as usize];
        fill(op.id, Fill::Uniform, 0, &mut bytes);
        let began = self.judge.file(FILE, |model, now| {
            model.begin_append(op.id, now);
            model.reads.insert(now);
            now
        });
        let result = self.file.append(&[IoSlice::new(&bytes)]).await;
        self.ends(&op, &result);
        match result {
            Ok((offset, count)) => {
                self.judge.say(|| format!("         at {offset}"));
                self.judge.appended(op.id, FILE, began, offset.0, count as u64);
                self.judge.end_size_query(FILE, began);
                let (handle, count) = (self.handle, count as u64);
                self.judge.file(FILE, |model, now| {
                    model.end_append(op.id, handle, (offset.0, len, count), began, now);
                });
            }
            Err(_) => {
                self.judge.file(FILE, |model, _| model.fail_append(op.id, len, began));
                self.judge.end_size_query(FILE, began);
            }
        }
    }

    async fn punch(&mut self) {
        let (start, end) = self.range();
        let op = self.begins(|| format!("punch {start}..{end}"));
        self.judge.hit("op: punch");
        let began = self.judge.file(FILE, |model, now| {
            model.begin_punch(op.id, start, end, now);
            now
        });
        let result = self.file.punch(Extent::new(start, end - start)).await;
        self.ends(&op, &result);
        if result.is_ok() {
            let handle = self.handle;
            self.judge.file(FILE, |model, now| model.end_punch(op.id, handle, (start, end), began, now));
        }
    }

    async fn size(&mut self) {
        let op = self.begins(|| "size".to_owned());
        self.judge.hit("op: size");
        let began = self.judge.begin_size_query(FILE);
        let result = self.file.size().await;
        self.ends(&op, &result);
        if let Ok(size) = result {
            self.judge.size_returned(op.id, FILE, began, size.0, false);
        }
        self.judge.end_size_query(FILE, began);
    }

    /// Syncs. Returns whether that succeeded.
    async fn sync(&mut self) -> bool {
        let op = self.begins(|| "sync".to_owned());
        self.judge.hit("op: sync");
        let began = self.judge.begin_read(FILE);
        let result = self.file.sync().await;
        self.ends(&op, &result);
        self.check_report(&op, &result);
        self.judge.end_sync(FILE, self.handle, began, result.is_ok());
        if result.is_ok() && self.is_registered {
            self.check_below(&op, began).await;
        }
        self.judge.fail_read(FILE, began);
        result.is_ok()
    }

    /// Closes the file and opens it again.
    async fn close(&mut self) {
        let Ok(fresh) = self.job.open(&self.env, &self.delegates).await else { return };
        let op = self.begins(|| "close".to_owned());
        self.judge.hit("op: close");
        let began = self.judge.begin_read(FILE);
        let was_registered = self.is_registered;
        let result = std::mem::replace(&mut self.file, fresh).close().await;
        self.ends(&op, &result);
        if was_registered {
            self.check_report(&op, &result);
        }
        self.is_registered = false;
        if result.is_err() {
            self.judge.file(FILE, |model, _| model.not_synced(self.handle));
        }
        self.handle += 1;
        if result.is_ok() && was_registered {
            self.check_below(&op, began).await;
        }
        self.judge.fail_read(FILE, began);
    }

    /// Checks that a sync or close reports failed writes of dirty bytes once.
    fn check_report(&mut self, op: &Op, result: &Result<(), Error>) {
        if !op.is_registered {
            return;
        }
        let now = self.job.failures();
        let Reported { must_from, may_from } = self.reported;
        match result {
            Ok(()) => {
                if must_from < op.failures {
                    let what = format!("#{} succeeds after {} failed writes", op.id, op.failures - must_from);
                    self.judge.violated("a failed write is reported at the next sync or close", what);
                }
                self.reported = Reported { must_from: now, may_from: op.failures };
            }
            Err(error) if error.to_string().contains(LOST) => {
                self.judge.hit("write-behind: failure reported");
                if may_from == now {
                    let what = format!("#{}: {error}", op.id);
                    self.judge.violated("a failed write is reported once", what);
                }
                self.reported = Reported { must_from: now, may_from: op.failures };
            }
            // Another delegate may have reported a failure, or may do so the next time.
            Err(_) => self.reported.must_from = now,
        }
    }

    /// Checks that the underlying file has all bytes that were acknowledged before `began`.
    async fn check_below(&self, op: &Op, began: Moment) {
        let Ok(bytes) = self.job.below().await else { return };
        self.judge.hit("check: the underlying file");
        check_bytes(&self.judge, &format!("#{}", op.id), began, &bytes);
    }
}

/// Checks the bytes of the underlying file: everything acknowledged before `began` is there.
pub fn check_bytes(judge: &Judge, by: &str, began: Moment, bytes: &[u8]) {
    let (wrong, (least, most)) = judge.file(FILE, |model, now| {
        (model.bytes.check_and(false, 0, bytes, began, now).err(), model.sizes.bounds(began))
    });
    if let Some(wrong) = wrong {
        judge.violated(
            "no byte is lost or returns after a sync",
            format!("{by}: the underlying file: {wrong:?}"),
        );
    }
    let len = bytes.len() as u64;
    if len < least || len > most {
        let what = format!("{by}: the underlying file has {len} bytes, and at least {least}, at most {most}");
        judge.violated("sizes shrink by truncation only", what);
    }
}
