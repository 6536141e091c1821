//! Reads of pieces, with verification.

use super::journal::PAYLOADS_NUMBER;
use super::map::{Label, Map, Mapped};
use super::piece::{Location, Piece, State};
use super::record::Record;
use super::segments::{Chunk, check};
use super::{FragmentLog, LogError};
use crate::emulate;
use std::io::{self, IoSliceMut};
use weft_core::LocalOffset;
use weft_core::ranges::ByteRange;
use weft_env::device::DeviceAction;
use weft_env::{Env, File};

/// Returns the part of an entry that overlaps `extent`.
pub(super) fn piece(map: &Map, entry: &Mapped, extent: ByteRange) -> Piece {
    let Mapped { key, extent, location, label: Label { class, state, .. }, .. } = entry.clipped(extent);
    let pin = (state != State::Lost).then(|| map.segments.get(location.segment).pin());
    Piece { key, extent, class, state, location, _pin: pin }
}

impl<E: Env> FragmentLog<E> {
    /// Reads and verifies a piece into `buf`, which is as long as its extent.
    ///
    /// # Errors
    /// [`LogError::Lost`] for unreadable dirty bytes. [`LogError::BadCopy`] for unreadable clean bytes, which are
    /// dropped, because the disk has them.
    pub async fn read(&self, piece: &Piece, buf: &mut [u8]) -> Result<(), LogError> {
        assert_eq!(piece.extent.len(), buf.len() as u64, "as long as the piece");
        let what = match piece.state {
            State::Lost => "an earlier read failed".to_owned(),
            _ => match self.read_location(piece.location, buf).await {
                Ok(()) => return Ok(()),
                Err(error) => error.to_string(),
            },
        };
        self.drop_unreadable(piece, what).await
    }

    async fn drop_unreadable(&self, piece: &Piece, what: String) -> Result<(), LogError> {
        let shared = &*self.0;
        let path = shared.spec.path.clone();
        let (key, extent) = (piece.key, piece.extent);
        let lsn = {
            let mut state = shared.state.lock();
            let mut is_evictable = matches!(piece.state, State::Clean | State::Copy);
            for (part, label) in state.map.parts_at(key, extent, piece.location) {
                if label.state == State::Dirty {
                    // Not journaled: a later start tries to read them again.
                    state.map.lose(key, part);
                } else {
                    is_evictable = true;
                    state.map.remove(key, part, |state| state != State::Dirty);
                    state.append(&Record::Forget(key, part));
                }
            }
            shared.filter.update(&mut state.map);
            if !is_evictable {
                let (file, offset, len) = (key.name(), extent.start(), extent.len());
                return Err(LogError::Lost { file, offset, len, path, what });
            }
            state.lsn
        };
        self.commit_anywhere(lsn).await?;
        Err(LogError::BadCopy { path, what })
    }

    /// Reads and verifies the payload at `location`. The caller has pinned the segment.
    pub(super) async fn read_location(&self, location: Location, buf: &mut [u8]) -> io::Result<()> {
        let shared = &*self.0;
        let end = location.position + buf.len() as u32;
        self.read_raw(location, buf).await?;
        if !shared.has_bytes {
            return Ok(());
        }
        let (generation, chunks): (u32, Vec<Chunk>) = {
            let state = shared.state.lock();
            let segment = state.map.segments.get(location.segment);
            (segment.generation, segment.chunks_of(location.position, end).to_vec())
        };
        let mut at = location.position;
        for chunk in chunks {
            if chunk.position > at {
                break;
            }
            let chunk_location = Location { position: chunk.position, ..location };
            let chunk_end = chunk.position + chunk.len;
            if chunk.position >= location.position && chunk_end <= end {
                let bytes = &buf[(chunk.position - location.position) as usize..][..chunk.len as usize];
                verify(bytes, chunk, chunk_location, generation)?;
            } else {
                let mut whole = vec![0; chunk.len as usize];
                self.read_raw(chunk_location, &mut whole).await?;
                verify(&whole, chunk, chunk_location, generation)?;
                let (from, to) = (chunk.position.max(location.position), chunk_end.min(end));
                let bytes = &whole[(from - chunk.position) as usize..(to - chunk.position) as usize];
                buf[(from - location.position) as usize..][..bytes.len()].copy_from_slice(bytes);
            }
            at = chunk_end;
        }
        match at >= end {
            true => Ok(()),
            false => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "no checksum is recorded for these bytes"))
            }
        }
    }

    async fn read_raw(&self, location: Location, buf: &mut [u8]) -> io::Result<()> {
        let shared = &*self.0;
        let offset = shared.offset(location);
        let in_flight = shared.begin(DeviceAction::Read, PAYLOADS_NUMBER, offset, buf.len());
        let len = buf.len();
        let got = shared.payloads.read_at(&mut [IoSliceMut::new(buf)], LocalOffset(offset)).await?;
        emulate::finish(in_flight).await;
        if got == len { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

fn verify(bytes: &[u8], chunk: Chunk, location: Location, generation: u32) -> io::Result<()> {
    if check(bytes, location, generation) == chunk.check {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "checksum mismatch"))
}

impl<E: Env> super::Shared<E> {
    /// Returns the location's offset in the payload file.
    pub(super) fn offset(&self, location: Location) -> u64 {
        u64::from(location.segment) * self.spec.segment_len.0 + u64::from(location.position)
    }
}
