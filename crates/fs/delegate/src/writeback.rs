//! Writes of dirty bytes to underlying files: by background tasks, for room, and by flushes.

use crate::pages::PendingWrite;
use crate::service::Service;
use crate::state::State;
use crate::underlying::Underlying;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weft_client::FileHandle;
use weft_core::delegates::ownership::{FileNumber, PageId, PageIndex};
use weft_core::delegates::page_cache::Cause;
use weft_core::{ByteRange, FileOffset, Nanos};
use weft_env::mutants::{Mutant, is_seeded};
use weft_env::{Env, Notify};
use weft_wire::WireError;

/// A chosen write, and the file to write to.
type Chosen<F> = (PendingWrite, Option<Arc<F>>);

/// Next step of a flush.
enum Step<F> {
    Write(Chosen<F>),
    Wait,
    Done,
}

impl<E: Env, U: Underlying<E>> Service<E, U> {
    fn choose(state: &mut State<E, U::File>, cause: Cause, page_len: Option<u64>) -> Option<Chosen<U::File>> {
        let pending = state.pages.next_write(cause, page_len)?;
        let file = pending.write.parts[0].0.file;
        let writer = state.files.get(&file).and_then(|open| open.writer.clone());
        Some((pending, writer))
    }

    /// Writes chosen bytes, and registers the end.
    async fn perform(&self, (pending, writer): Chosen<U::File>) {
        let range = pending.write.range;
        let written = match &writer {
            Some(writer) => write_fully(writer, &pending, range.start()).await,
            None => Err(weft_client::Error::Misuse {
                errno: weft_wire::Errno::EBADF,
                why: "no rank has opened the file for writing",
            }),
        };
        let mut state = self.state.lock();
        let (file, range) = state.pages.written(pending, written.is_ok());
        state.counters.file_writes += 1;
        match written {
            Ok(()) => state.counters.file_bytes_written += range.len(),
            Err(error) => {
                state.counters.write_errors += 1;
                let name =
                    state.files.get(&file).map(|open| String::from_utf8_lossy(&open.name).into_owned());
                let detail = format!(
                    "bytes {} to {} of {} could not be written and are lost: {error}",
                    range.start(),
                    range.end(),
                    name.unwrap_or_default()
                );
                (self.config.hooks.log)(&format!("warn: {detail}"));
                if !is_seeded(Mutant::SwallowedWriteError) {
                    let failure = WireError::new(weft_wire::Errno(error.errno()), detail);
                    state.write_failures.add(file, failure);
                }
            }
        }
        self.wake(&state);
    }

    /// Makes room for a page: writes dirty bytes, or waits for a write that is under way.
    pub(crate) async fn make_room(&self, seen: u64) {
        let chosen = {
            let mut state = self.state.lock();
            let chosen = Self::choose(&mut state, Cause::Pressure, None);
            state.waiting += u32::from(chosen.is_none());
            chosen
        };
        match chosen {
            Some((pending, _)) if is_seeded(Mutant::DroppedDirtyRange) => {
                let mut state = self.state.lock();
                state.pages.written(pending, true);
                self.wake(&state);
            }
            Some(chosen) => self.perform(chosen).await,
            None => self.wait(seen).await,
        }
    }

    /// Writes the bytes of a range that are dirty now, and waits for those in flight. Errors are kept for the next sync or
    /// close. Bytes that are written again meanwhile are written once at most.
    pub(crate) async fn write_back(&self, file: FileNumber, range: ByteRange) {
        let mut from = range.start();
        loop {
            let seen = self.changed.epoch();
            let step = {
                let mut state = self.state.lock();
                let step = Self::next_step(&mut state, file, range, &mut from);
                state.waiting += u32::from(matches!(step, Step::Wait));
                step
            };
            match step {
                Step::Write(chosen) => self.perform(chosen).await,
                Step::Wait => self.wait(seen).await,
                Step::Done => return,
            }
        }
    }

    fn next_step(
        state: &mut State<E, U::File>,
        file: FileNumber,
        range: ByteRange,
        from: &mut u64,
    ) -> Step<U::File> {
        let Some(page_len) = state.files.get(&file).map(|open| open.page_len) else { return Step::Done };
        loop {
            let cache = state.pages.of(page_len);
            let Some(index) = cache.next_unwritten(file, PageIndex(*from / page_len)) else {
                return Step::Done;
            };
            let id = PageId::new(file, index);
            let start = index.0 * page_len;
            *from = start.max(*from);
            let within = ByteRange::new(*from - start, (range.end() - start.min(range.end())).min(page_len));
            let Some(within) = within else { return Step::Done };
            if !cache.is_unwritten(id, within) {
                *from = start + page_len;
                if *from >= range.end() {
                    return Step::Done;
                }
                continue;
            }
            if cache.is_in_flight(id) {
                return Step::Wait;
            }
            let cause = Cause::Flush(id, within.start());
            let chosen =
                Self::choose(state, cause, Some(page_len)).expect("the page has dirty bytes to write");
            // Bytes before the start of the write's end are written; later dirty bytes are newer.
            *from = chosen.0.write.range.end();
            return Step::Write(chosen);
        }
    }

    /// Writes full pages, and others when no request comes or dirty bytes are many, until the delegate ends.
    pub(crate) async fn run_write_behind(self: Arc<Self>) {
        while !self.is_stopping.load(Ordering::SeqCst) {
            let seen = self.work.epoch();
            let next = {
                let mut state = self.state.lock();
                let next = self.next_write_behind(&mut state);
                state.idle_writers += u32::from(next.is_err());
                state.untimed_writers += u32::from(matches!(next, Err(None)));
                next
            };
            match next {
                Ok(chosen) => self.perform(chosen).await,
                Err(timeout) => {
                    self.work.wait(seen, timeout).await;
                    let mut state = self.state.lock();
                    state.idle_writers -= 1;
                    state.untimed_writers -= u32::from(timeout.is_none());
                }
            }
        }
    }

    /// Chooses a write, or returns the time after which to look again.
    fn next_write_behind(&self, state: &mut State<E, U::File>) -> Result<Chosen<U::File>, Option<Nanos>> {
        if let Some(chosen) = Self::choose(state, Cause::Full, None) {
            return Ok(chosen);
        }
        let dirty = state.pages.dirty();
        if dirty == 0 {
            return Err(None);
        }
        let quiet = self.env.tick().saturating_sub(state.last_request);
        if dirty >= self.config.dirty_high || quiet >= self.config.idle {
            return Self::choose(state, Cause::Pressure, None).ok_or(Some(self.config.idle));
        }
        Err(Some(self.config.idle.saturating_sub(quiet).max(Nanos::from_ms(1))))
    }
}

async fn write_fully<F: FileHandle>(
    file: &Arc<F>,
    pending: &PendingWrite,
    offset: u64,
) -> Result<(), weft_client::Error> {
    let mut done = 0;
    let total = pending.write.range.len() as usize;
    while done < total {
        let mut skip = done;
        let mut slices = Vec::with_capacity(pending.parts.len());
        for (buffer, range) in &pending.parts {
            let (start, end) = (range.start() as usize, range.end() as usize);
            let taken = skip.min(end - start);
            skip -= taken;
            if taken < end - start {
                slices.push(IoSlice::new(buffer.slice(start + taken..end)));
            }
        }
        done += file.write_at(&slices, FileOffset(offset + done as u64)).await?;
    }
    Ok(())
}
