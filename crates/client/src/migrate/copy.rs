//! Copying the bytes of one layout to another.

use super::{GoOn, MoveProgress, Mover, Side};
use crate::core::Core;
use crate::data::{Part, Reads, SharedBounds, Subs, Writes};
use crate::error::{Error, Result};
use crate::exchange::{Item, exchange};
use crate::write::{expired, finish};
use std::io::{IoSlice, IoSliceMut};
use weft_core::{Access, ByteLen, ByteRange, Extent, Nanos, SplitPolicy, SubRequest};
use weft_env::Env;
use weft_env::plants::{Plant, planted};
use weft_wire::{Capability, Errno};

/// Bytes that are read at a time, and then written, if nobody says something else.
const PIECE: ByteLen = ByteLen::from_mib(8);
/// Zeros of so many bytes in a row become a hole where there was nothing.
const HOLE: usize = 64 << 10;
static ZEROS: [u8; HOLE] = [0; HOLE];
/// The servers are asked for changes at least so often, so that they go on noting them.
const POLL_AFTER: Nanos = Nanos::from_s(5);
/// What was copied is made safe, for whoever goes on should this mover end, after so many bytes, likewise.
const SAFE_AFTER: ByteLen = ByteLen::from_mib(1024);

impl<E: Env> Mover<'_, E> {
    /// Copies all that has changed; false when it was asked to stop.
    pub(super) async fn round(&mut self, round: u32, size: ByteLen, go_on: &mut GoOn<'_>) -> Result<bool> {
        let env = self.client.core.env.clone();
        let mut all = Vec::new();
        for range in self.changed.take().iter() {
            all.extend(ByteRange::new(range.start(), range.end().min(size.0)));
            // What was cut and copied before must not show where the file grows again.
            if let Some(behind) = ByteRange::new(range.start().max(size.0), range.end())
                && !planted(Plant::ForgottenCut)
            {
                self.changed.add(behind);
            }
        }
        let of = ByteLen(all.iter().copied().map(ByteRange::len).sum());
        let (piece, safe_after) = (self.piece(), self.options.safe_after.unwrap_or(SAFE_AFTER).0);
        let (began, mut done, mut safe) = (env.now(), 0, 0);
        for (at, range) in all.iter().enumerate() {
            let mut start = range.start();
            while start < range.end() {
                let chunk = ByteRange::new(start, range.end().min(start + piece)).expect("not at the end");
                let goes_on = go_on(MoveProgress { done: ByteLen(done), of, round });
                let copied = if goes_on { self.copy(chunk).await } else { Ok(()) };
                if !goes_on || copied.is_err() {
                    // What was not copied stays to be copied.
                    self.changed.add(ByteRange::new(start, range.end()).expect("this chunk at least"));
                    all[at + 1..].iter().for_each(|range| self.changed.add(*range));
                    copied?;
                    if round == 1 && all.len() == 1 {
                        self.make_safe(start).await?;
                    }
                    return Ok(false);
                }
                start = chunk.end();
                done += chunk.len();
                if env.now() >= self.polled.saturating_add(POLL_AFTER) {
                    self.poll().await?;
                }
                self.tell(ByteLen(of.0 - done)).await?;
                if round == 1 && all.len() == 1 && start - safe >= safe_after {
                    self.make_safe(start).await?;
                    safe = start;
                }
                if let Some(rate) = self.options.rate.filter(|rate| rate.0 > 0) {
                    let due = (u128::from(done) * 1_000_000_000 / u128::from(rate.0)) as u64;
                    self.wait_until(began.saturating_add(Nanos(due)), go_on, done, of, round).await?;
                }
            }
        }
        go_on(MoveProgress { done: of, of, round });
        Ok(true)
    }

    /// Waits, and keeps the servers noting meanwhile.
    async fn wait_until(
        &mut self,
        due: Nanos,
        go_on: &mut GoOn<'_>,
        done: u64,
        of: ByteLen,
        round: u32,
    ) -> Result<()> {
        let env = self.client.core.env.clone();
        loop {
            let now = env.now();
            if now >= due || !go_on(MoveProgress { done: ByteLen(done), of, round }) {
                return Ok(());
            }
            env.sleep(due.saturating_sub(now).min(Nanos::from_ms(100))).await;
            self.tell(ByteLen(of.0 - done)).await?;
            if env.now() >= self.polled.saturating_add(POLL_AFTER) {
                self.poll().await?;
            }
        }
    }

    /// All bytes below `end` are to survive, whatever becomes of this mover.
    async fn make_safe(&mut self, end: u64) -> Result<()> {
        self.sync(self.to.cap).await?;
        self.go_on(ByteLen(end)).await
    }

    /// Has what was written survive loss of power.
    pub(super) async fn sync(&mut self, cap: Capability) -> Result<()> {
        let before = self.unsynced.before();
        let boots = match self.client.core.sync_objects(self.to.data(), cap, &self.to.layout).await {
            Err(error) if expired(&error) => {
                self.go_on(ByteLen::ZERO).await?;
                self.client.core.sync_objects(self.to.data(), self.to.cap, &self.to.layout).await?
            }
            boots => boots?,
        };
        self.unsynced.synced(&before, &boots)
    }

    /// Bytes that are copied at a time.
    pub(super) fn piece(&self) -> u64 {
        self.options.piece.unwrap_or(PIECE).0.max(1)
    }

    /// Copies the bytes of `range`, at most a [`piece`](Self::piece) of them.
    pub(super) async fn copy(&mut self, range: ByteRange) -> Result<()> {
        let env = self.client.core.env.clone();
        let began = env.now();
        let mut buf = std::mem::take(&mut self.buf);
        buf.resize(range.len() as usize, 0);
        let result = self.copy_by(range, &mut buf).await;
        self.buf = buf;
        self.took = self.took.saturating_add(env.now().saturating_sub(began));
        result
    }

    async fn copy_by(&mut self, range: ByteRange, buf: &mut [u8]) -> Result<()> {
        self.read(true, range.start(), buf).await?;
        for (start, end) in self.runs(range.start(), buf) {
            let bytes = &buf[start..end];
            let at = range.start() + start as u64;
            // Before: on an error some of it may be there.
            self.written.add(ByteRange::with_len(at, bytes.len() as u64).expect("runs have bytes"));
            self.write(at, bytes).await?;
            self.copied.0 += bytes.len() as u64;
        }
        if self.options.verify {
            let mut again = vec![0xa5; buf.len()];
            self.read(false, range.start(), &mut again).await?;
            if again != buf {
                const WHY: &str =
                    "what was copied reads back as something else: see 'weft status' and the servers' logs";
                return Err(Error::misuse(Errno::EIO, WHY));
            }
        }
        Ok(())
    }

    /// The parts of `buf`, whose first byte is byte `at` of the file, that are to be written: all but zeros where there is
    /// nothing yet.
    fn runs(&self, at: u64, buf: &[u8]) -> Vec<(usize, usize)> {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        let mut start = 0;
        while start < buf.len() {
            // Blocks lie at multiples of their length in the file.
            let end = (start + HOLE - (at + start as u64) as usize % HOLE).min(buf.len());
            let here = ByteRange::new(at + start as u64, at + end as u64).expect("a block has bytes");
            // As a whole: byte by byte it would take half of the time that a sparse file does.
            let is_hole = buf[start..end] == ZEROS[..end - start] && !self.written.ranges().overlaps(here);
            match runs.last_mut() {
                _ if is_hole => {}
                Some(last) if last.1 == start => last.1 = end,
                _ => runs.push((start, end)),
            }
            start = end;
        }
        runs
    }

    fn side(&self, from: bool) -> &Side {
        if from { &self.from } else { &self.to }
    }

    fn parts(&self, from: bool, at: u64, len: usize) -> Vec<Part> {
        let mut subs = Subs::take();
        let extent = Extent::new(at, len as u64);
        self.side(from).layout.split_into(extent, Access::Sequential, SplitPolicy::default(), &mut subs.0);
        let part = |sub: &SubRequest| {
            let mut sub = *sub;
            // No program asked for it: servers that keep samples of requests leave it out.
            sub.siblings = 0;
            Part::new(sub)
        };
        subs.0.iter().map(part).collect()
    }

    /// Of an exchange whose capability had run out makes, once, one that can be repeated.
    async fn renew_once(&mut self, result: Result<()>, renewed: &mut bool) -> Result<()> {
        match result {
            Err(error) if expired(&error) && !*renewed => {
                *renewed = true;
                self.go_on(ByteLen::ZERO).await
            }
            result => result,
        }
    }

    /// Reads from one side; what is not there reads as zeros.
    async fn read(&mut self, from: bool, at: u64, buf: &mut [u8]) -> Result<()> {
        buf.fill(0);
        let mut parts = self.parts(from, at, buf.len());
        let (mut renewed, buffer_len) = (false, buf.len());
        loop {
            let core = &*self.client.core;
            let (open, mut items) = asked(core, &parts)?;
            if open.is_empty() {
                return Ok(());
            }
            let mut reads = Reads {
                core_bounds: SharedBounds::of(core),
                file: self.side(from).data(),
                cap: self.side(from).cap,
                call: 0,
                parts: &mut parts,
                items: &open,
                bufs: &mut [IoSliceMut::new(buf)],
                buffer_len,
                area_used: 0,
            };
            exchange(core, &mut items, &mut reads).await;
            let result = finish(items);
            self.renew_once(result, &mut renewed).await?;
        }
    }

    /// Writes to the new datafiles.
    async fn write(&mut self, at: u64, buf: &[u8]) -> Result<()> {
        let mut parts = self.parts(false, at, buf.len());
        let mut renewed = false;
        loop {
            let core = &*self.client.core;
            let (open, mut items) = asked(core, &parts)?;
            if open.is_empty() {
                return Ok(());
            }
            let mut writes = Writes {
                core_bounds: SharedBounds::of(core),
                file: self.to.data(),
                cap: self.to.cap,
                call: 0,
                unsynced: &self.unsynced,
                parts: &mut parts,
                items: &open,
                bufs: &[IoSlice::new(buf)],
                buffer_len: buf.len(),
                shared: 0,
                area_used: 0,
            };
            exchange(core, &mut items, &mut writes).await;
            let result = finish(items);
            self.renew_once(result, &mut renewed).await?;
        }
    }
}

/// The parts that are not moved yet, and for each whom to ask.
fn asked<E: Env>(core: &Core<E>, parts: &[Part]) -> Result<(Vec<usize>, Vec<Item>)> {
    let open: Vec<usize> = (0..parts.len()).filter(|&part| !parts[part].is_complete()).collect();
    let items = open.iter().map(|&part| Ok(Item::new(core.route(parts[part].sub.target)?)));
    let items = items.collect::<Result<_>>()?;
    Ok((open, items))
}
