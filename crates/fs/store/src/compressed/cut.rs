//! Truncations and holes.

use super::Compressed;
use super::journal::Cause;
use super::record::Record;
use crate::content::Fault;
use weft_core::{ByteLen, LocalOffset};
use weft_env::Env;

impl<E: Env> Compressed<E> {
    pub async fn set_len(&self, len: ByteLen) -> Result<(), Fault> {
        Box::pin(self.cut(len.0)).await?;
        Box::pin(self.relieve()).await;
        Ok(())
    }

    async fn cut(&self, len: u64) -> Result<(), Fault> {
        let _guard = self.locks.lock(len / self.chunk_len, u64::MAX).await;
        if self.state.lock().chunks.len() == len {
            // Only the time changes.
            return self.commit(Vec::new(), 0, Cause::Program).await;
        }
        let was_unsafe = len == 0 && self.forgive();
        let mut cut = self.commit(vec![Record::Length { len }], 0, Cause::Program).await;
        if was_unsafe && matches!(cut, Err(Fault::Io(_))) {
            // The next sync of a file reports an earlier write error. The truncation removes the bytes that it is about.
            self.forgive();
            cut = self.commit(vec![Record::Length { len }], 0, Cause::Program).await;
        }
        if cut.is_err() && was_unsafe {
            self.upkeep.note_unsafe(self.key);
        }
        cut
    }

    pub async fn punch(&self, offset: LocalOffset, len: ByteLen) -> Result<(), Fault> {
        Box::pin(self.make_hole(offset.0, len.0)).await?;
        Box::pin(self.relieve()).await;
        Ok(())
    }

    async fn make_hole(&self, start: u64, len: u64) -> Result<(), Fault> {
        let wanted_end = start.saturating_add(len);
        let end = self.state.lock().chunks.len().min(wanted_end);
        if start >= end {
            return Ok(());
        }
        let chunks = self.chunks_of(start, end);
        let _guard = self.locks.lock(chunks.start, chunks.end).await;
        let locked_end = chunks.end * self.chunk_len;
        // Bytes behind the end of the datafile read as zeros already.
        let reaches_end = self.state.lock().chunks.len() <= wanted_end.min(locked_end);
        let end = if reaches_end { locked_end } else { wanted_end.min(locked_end) };
        let whole = start.div_ceil(self.chunk_len)..end / self.chunk_len;
        let mut records = Vec::new();
        let mut zeros = |from: u64, to: u64| {
            let chunk = from / self.chunk_len;
            if from < to && !self.state.lock().chunks.is_hole(chunk) {
                let start = (from % self.chunk_len) as u32;
                records.push(Record::Zeros { chunk, start, len: (to - from) as u32 });
            }
        };
        if whole.start > whole.end {
            zeros(start, end);
        } else {
            zeros(start, whole.start * self.chunk_len);
            zeros(whole.end * self.chunk_len, end);
        }
        let stored = self.state.lock().chunks.next_stored(whole.start);
        if stored.is_some_and(|chunk| chunk < whole.end) {
            records.push(Record::Hole { chunk: whole.start, count: whole.end - whole.start });
        }
        self.commit(records, 0, Cause::Program).await
    }
}
