//! Reading pieces, and checking what was read.

use super::journal::PAYLOADS_NUMBER;
use super::map::{Map, Mapped};
use super::piece::{Piece, Place, State};
use super::record::Record;
use super::segments::{Chunk, check};
use super::{FragmentLog, LogError};
use crate::emulate;
use std::io::{self, IoSliceMut};
use weft_core::LocalOffset;
use weft_core::ranges::ByteRange;
use weft_env::device::DeviceAction;
use weft_env::{Env, File};

/// What of an entry is in `extent`.
pub(super) fn piece(map: &Map, entry: &Mapped, extent: ByteRange) -> Piece {
    let part = entry.extent.intersection(extent).expect("found by it");
    let place = match entry.label.state {
        State::Lost => entry.place,
        _ => Place {
            position: entry.place.position + (part.start() - entry.extent.start()) as u32,
            ..entry.place
        },
    };
    let pin = (entry.label.state != State::Lost).then(|| map.segments.get(place.segment).pin());
    Piece { key: entry.key, extent: part, state: entry.label.state, place, _pin: pin }
}

impl<E: Env> FragmentLog<E> {
    /// Reads a piece and checks it. `buf` is as long as its extent.
    ///
    /// # Errors
    /// [`LogError::Lost`] for dirty bytes that cannot be read; [`LogError::BadCopy`] for clean ones, which are dropped:
    /// the disk has them.
    pub async fn read(&self, piece: &Piece, buf: &mut [u8]) -> Result<(), LogError> {
        assert_eq!(piece.extent.len(), buf.len() as u64, "as long as the piece");
        let what = match piece.state {
            State::Lost => "they were found lost before".to_owned(),
            _ => match self.read_place(piece.place, buf).await {
                Ok(()) => return Ok(()),
                Err(error) => error.to_string(),
            },
        };
        self.unreadable(piece, what).await
    }

    async fn unreadable(&self, piece: &Piece, what: String) -> Result<(), LogError> {
        let shared = &*self.0;
        let path = shared.spec.path.clone();
        let (key, extent) = (piece.key, piece.extent);
        let point = {
            let mut state = shared.state.lock();
            let mut is_spare = matches!(piece.state, State::Clean | State::Copy);
            for (part, label) in state.map.still(key, extent, piece.place) {
                if label.state == State::Dirty {
                    // Not for the journal: a later start tries again.
                    state.map.lose(key, part);
                } else {
                    is_spare = true;
                    state.map.remove(key, part, |state| state != State::Dirty);
                    state.append(&Record::Forget(key, part));
                }
            }
            shared.filter.follow(&mut state.map);
            if !is_spare {
                let (file, offset, len) = (key.name(), extent.start(), extent.len());
                return Err(LogError::Lost { file, offset, len, path, what });
            }
            state.point
        };
        self.commit_anywhere(point).await?;
        Err(LogError::BadCopy { path, what })
    }

    /// Reads what was put at `place`, and checks it. The segment is pinned.
    pub(super) async fn read_place(&self, place: Place, buf: &mut [u8]) -> io::Result<()> {
        let shared = &*self.0;
        let end = place.position + buf.len() as u32;
        self.read_raw(place, buf).await?;
        if !shared.has_bytes {
            return Ok(());
        }
        let (generation, chunks): (u32, Vec<Chunk>) = {
            let state = shared.state.lock();
            let segment = state.map.segments.get(place.segment);
            (segment.generation, segment.chunks_of(place.position, end).to_vec())
        };
        let mut at = place.position;
        for chunk in chunks {
            if chunk.position > at {
                break;
            }
            let chunk_place = Place { position: chunk.position, ..place };
            let chunk_end = chunk.position + chunk.len;
            if chunk.position >= place.position && chunk_end <= end {
                let bytes = &buf[(chunk.position - place.position) as usize..][..chunk.len as usize];
                verify(bytes, chunk, chunk_place, generation)?;
            } else {
                let mut whole = vec![0; chunk.len as usize];
                self.read_raw(chunk_place, &mut whole).await?;
                verify(&whole, chunk, chunk_place, generation)?;
                let (from, to) = (chunk.position.max(place.position), chunk_end.min(end));
                let bytes = &whole[(from - chunk.position) as usize..(to - chunk.position) as usize];
                buf[(from - place.position) as usize..][..bytes.len()].copy_from_slice(bytes);
            }
            at = chunk_end;
        }
        match at >= end {
            true => Ok(()),
            false => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "nobody knows the check of what is there"))
            }
        }
    }

    async fn read_raw(&self, place: Place, buf: &mut [u8]) -> io::Result<()> {
        let shared = &*self.0;
        let offset = shared.offset(place);
        let charge = shared.begin(DeviceAction::Read, PAYLOADS_NUMBER, offset, buf.len());
        let len = buf.len();
        let got = shared.payloads.read_at(&mut [IoSliceMut::new(buf)], LocalOffset(offset)).await?;
        emulate::end(charge).await;
        if got == len { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

fn verify(bytes: &[u8], chunk: Chunk, place: Place, generation: u32) -> io::Result<()> {
    if check(bytes, place, generation) == chunk.check {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "not what was written there"))
}

impl<E: Env> super::Shared<E> {
    /// Where in the file of payloads.
    pub(super) fn offset(&self, place: Place) -> u64 {
        u64::from(place.segment) * self.spec.segment_len.0 + u64::from(place.position)
    }
}
