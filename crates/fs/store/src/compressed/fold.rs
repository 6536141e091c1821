//! Folding: version and layers of a chunk become a new version.

use super::Compressed;
use super::chunks::{Chunk, Layer};
use super::codec::Codec;
use super::journal::Cause;
use super::record::{Record, UNIT_BYTES, Version};
use super::write::Packed;
use crate::content::Fault;
use crate::target::FOLD_IDLE;
use weft_core::{ByteLen, Nanos};
use weft_env::{Env, File};

/// Maximum number of bytes that the overlay of a datafile occupies.
const OVERLAY_BYTES_MAX: u64 = 16 << 20;
/// Maximum number of chunks with layers.
const OVERLAY_CHUNKS_MAX: u64 = 1024;

impl<E: Env> Compressed<E> {
    /// Folds half of the overlay if it has reached its bound.
    pub(super) async fn fold_bounded(&self) -> Result<(), Fault> {
        if !self.is_overlay_beyond(1) {
            return Ok(());
        }
        let _guard = self.folds.lock(0, 1).await;
        if !self.is_overlay_beyond(1) {
            return Ok(());
        }
        let mut from = 0;
        while self.is_overlay_beyond(2)
            && let Some(chunk) = self.next_overlaid(from)
        {
            match self.fold(chunk).await {
                // A damaged chunk stays as it is. Its reads report it.
                Ok(()) | Err(Fault::Damaged(_)) => from = chunk + 1,
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    /// Returns true if the overlay is larger than one part in `part` of its bound.
    fn is_overlay_beyond(&self, part: u64) -> bool {
        let (bytes, chunks) = self.state.lock().chunks.overlay_size();
        bytes > OVERLAY_BYTES_MAX / part || chunks > OVERLAY_CHUNKS_MAX / part
    }

    fn next_overlaid(&self, from: u64) -> Option<u64> {
        self.state.lock().chunks.next_overlaid(from)
    }

    /// Folds the overlay if the datafile has been idle for [`FOLD_IDLE`], until something changes it. Returns the time
    /// at which to try again; `None` if there is nothing left to fold.
    pub async fn fold_idle(&self) -> Option<Nanos> {
        let mut from = 0;
        while let Some(chunk) = self.next_overlaid(from) {
            let idle_at = self.state.lock().changed_at.saturating_add(FOLD_IDLE);
            if idle_at > self.env.tick() {
                return Some(idle_at);
            }
            // A chunk that cannot be folded stays as it is; settling reports the error.
            let _ = Box::pin(self.fold(chunk)).await;
            from = chunk + 1;
        }
        None
    }

    /// Folds all chunks, makes everything durable, and frees all space that is not used.
    pub async fn settle(&self) -> Result<(), Fault> {
        let (mut from, mut folded) = (0, Ok(()));
        while let Some(chunk) = self.next_overlaid(from) {
            if let Err(fault) = self.fold(chunk).await {
                folded = Err(fault);
            }
            from = chunk + 1;
        }
        let changed = self.state.lock().last_change;
        self.sync().await?;
        {
            // Nothing is allocated meanwhile.
            let _guard = self.locks.lock(0, u64::MAX).await;
            let end = self.state.lock().space.trim() * UNIT_BYTES;
            if self.container.file.meta().await?.len.0 > end {
                self.container.set_len(ByteLen(end)).await?;
            }
        }
        self.punch_free(0, usize::MAX).await;
        self.mark_container().await;
        let mut state = self.state.lock();
        if state.last_change == changed {
            state.unsettled_since = None;
        } else {
            // Changed meanwhile: the target has forgotten its work.
            self.upkeep.note_unsettled(self.key, FOLD_IDLE);
        }
        folded
    }

    /// Folds a chunk, if it has layers.
    async fn fold(&self, chunk: u64) -> Result<(), Fault> {
        let _guard = self.locks.lock(chunk, chunk + 1).await;
        let stack = self.state.lock().chunks.get(chunk);
        if stack.layers.is_empty() {
            return Ok(());
        }
        let mut bytes = self.assemble(chunk, &stack, 0..stack.end()).await?;
        if self.coder.has_contents() {
            bytes.truncate(bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1));
        }
        let (mut records, mut packed, mut reserved) = (Vec::new(), Packed::default(), Vec::new());
        self.pack(chunk, &bytes, &mut packed, &mut records);
        self.spend(packed.time()).await;
        let folded = match packed.in_place(&stack) {
            Some(record) => self.commit(vec![record], 0, Cause::Upkeep).await,
            None => match self.store(packed, &mut records, &mut reserved).await {
                Ok(()) => self.commit(records, 0, Cause::Upkeep).await,
                Err(fault) => Err(fault),
            },
        };
        if folded.is_err() {
            self.unreserve(reserved);
        }
        folded
    }
}

impl Packed {
    /// Returns the record that makes the only piece of a chunk its version where it is, if the chunk is stored raw
    /// anyway.
    fn in_place(&self, stack: &Chunk) -> Option<Record> {
        let (chunk, version) = self.single()?;
        match (stack.version, &stack.layers[..]) {
            (None, [Layer::Piece(piece)]) if version.codec == Codec::Raw && piece.start == 0 => {
                let version = Version {
                    at: piece.at,
                    stored: piece.len,
                    len: piece.len,
                    crc: piece.crc,
                    codec: Codec::Raw,
                };
                Some(Record::Version { chunk, version })
            }
            _ => None,
        }
    }
}
