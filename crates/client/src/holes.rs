//! Holes of files: making them, and finding them by what the datafiles say of theirs.

use crate::control::{Boots, datafile, odd_reply, only_done};
use crate::core::Core;
use crate::error::{Error, Result};
use crate::file::{OpenFile, Patience};
use crate::read::OFFSET_MAX;
use weft_core::{ByteLen, Extent, FileId, FileOffset, Layout, LocalOffset, ObjectId, TargetId};
use weft_env::Env;
use weft_wire::data::{DataReply, DataRequest};
use weft_wire::{Capability, Errno};

impl<E: Env> OpenFile<E> {
    /// Makes the bytes of `extent` read as zeros and gives their room back, as fallocate(2) does with
    /// `FALLOC_FL_PUNCH_HOLE`. The size of the file stays, also where `extent` ends behind it.
    ///
    /// # Errors
    /// `EBADF` when the file is not open for writing, `EFBIG` beyond 2^63 - 1, `EOPNOTSUPP` when the file system below a
    /// target has no holes, and others of the servers.
    pub async fn punch(&self, extent: Extent) -> Result<()> {
        let state = &self.state;
        state.check()?;
        state.check_locks().await?;
        if !state.record.flags.write {
            return Err(Error::misuse(Errno::EBADF, "the file is not open for writing"));
        }
        if extent.offset.0.checked_add(extent.len.0).is_none_or(|end| end > OFFSET_MAX) {
            return Err(Error::misuse(Errno::EFBIG, "a hole beyond 2^63 - 1"));
        }
        // The room and the time of change are what the datafiles say.
        state.written.unsure();
        let mut patience = Patience::default();
        loop {
            let home = state.home()?;
            let punched = match state.cap_in(home).await {
                Ok(cap) => state.client.core.punch(home.data, cap, &home.layout, extent).await,
                Err(error) => Err(error),
            };
            let punched = state.unless_moved(home, punched, &mut patience).await;
            if let Some(boots) = punched.map_err(|error| error.about(&state.path))? {
                state.unsynced.note_all(&boots);
                state.changed_pages(extent).await;
                return Ok(());
            }
        }
    }

    /// The first byte at or behind `offset` that lies in no hole; `None` when there is none. Data may be zeros.
    ///
    /// # Errors
    /// `Unreachable`, and others of the servers.
    pub async fn seek_data(&self, offset: FileOffset) -> Result<Option<FileOffset>> {
        let (size, lost) = self.size_and_loss().await?;
        let found = match offset.0 < size.0 {
            // Lost bytes are no hole: who looks for data has to meet them.
            true if lost => Some(offset),
            true => self.seek(offset, false).await?,
            false => None,
        };
        Ok(found.filter(|at| at.0 < size.0))
    }

    /// The first byte at or behind `offset` that lies in a hole, as the end of the file does; `None` behind the end.
    ///
    /// # Errors
    /// `Unreachable`, and others of the servers.
    pub async fn seek_hole(&self, offset: FileOffset) -> Result<Option<FileOffset>> {
        let (size, lost) = self.size_and_loss().await?;
        if offset.0 >= size.0 {
            return Ok(None);
        }
        let found = if lost { None } else { self.seek(offset, true).await? };
        Ok(Some(FileOffset(found.map_or(size.0, |at| at.0.min(size.0)))))
    }

    async fn seek(&self, offset: FileOffset, hole: bool) -> Result<Option<FileOffset>> {
        let state = &self.state;
        state.check()?;
        let mut patience = Patience::default();
        loop {
            let home = state.home()?;
            let found = match state.cap_in(home).await {
                Ok(cap) => state.client.core.seek(home.data, cap, &home.layout, offset, hole).await,
                Err(error) => Err(error),
            };
            let found = state.unless_moved(home, found, &mut patience).await;
            if let Some(found) = found.map_err(|error| error.about(&state.path))? {
                return Ok(found);
            }
        }
    }
}

impl<E: Env> Core<E> {
    async fn punch(&self, file: FileId, cap: Capability, layout: &Layout, extent: Extent) -> Result<Boots> {
        let end = FileOffset(extent.offset.0 + extent.len.0);
        let part = |object| {
            let (from, to) = (layout.local_len(object, extent.offset).0, layout.local_len(object, end).0);
            (LocalOffset(from), ByteLen(to - from))
        };
        let objects: Vec<_> = layout.objects().filter(|(object, _)| part(*object).1 > ByteLen(0)).collect();
        let request = |some: Vec<&(ObjectId, TargetId)>| {
            let one = |&object: &(ObjectId, TargetId)| {
                let (offset, len) = part(object.0);
                (datafile(file, object), offset, len)
            };
            DataRequest::Punch { cap, extents: some.into_iter().map(one).collect() }
        };
        let replies = self.ask_about(&objects, |&(_, target)| target, request).await?;
        only_done(&replies)?;
        Ok(crate::control::boots(&objects, &replies))
    }

    /// The first byte of the file that lies in a hole of its datafile, or in none.
    async fn seek(
        &self,
        file: FileId,
        cap: Capability,
        layout: &Layout,
        offset: FileOffset,
        hole: bool,
    ) -> Result<Option<FileOffset>> {
        let objects: Vec<_> = layout.objects().collect();
        let request = |some: Vec<&(ObjectId, TargetId)>| {
            let one = |&object: &(ObjectId, TargetId)| {
                (datafile(file, object), LocalOffset(layout.local_len(object.0, offset).0))
            };
            DataRequest::Seek { cap, datafiles: some.into_iter().map(one).collect(), hole }
        };
        let mut first: Option<FileOffset> = None;
        for (indices, (reply, _)) in self.ask_about(&objects, |&(_, target)| target, request).await? {
            let DataReply::Sought(found) = reply else { return Err(odd_reply()) };
            if found.len() != indices.len() {
                return Err(odd_reply());
            }
            for (index, local) in indices.into_iter().zip(found) {
                let (object, _) = objects[index];
                let at = local.and_then(|local| file_offset(layout, object, local));
                // A byte before the offset is none that was asked for.
                if let Some(at) = at.filter(|at| *at >= offset) {
                    first = Some(first.map_or(at, |first| first.min(at)));
                }
            }
        }
        Ok(first)
    }
}

/// Where the byte at `local` of a datafile lies in the file; `None` behind all that the datafile can hold.
fn file_offset(layout: &Layout, object: ObjectId, local: LocalOffset) -> Option<FileOffset> {
    let (before, with) = (ByteLen(local.0), ByteLen(local.0.checked_add(1)?));
    let end = layout.logical_end(object, with);
    (end > layout.logical_end(object, before)).then(|| FileOffset(end.0 - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_of_a_datafile_has_its_place_in_the_file() {
        let [a, b, c] = [0, 1, 2].map(TargetId);
        let layouts = [
            Layout::striped(&[a, b, c], ByteLen(4097)).expect("a layout"),
            Layout::variable(&[(a, ByteLen(7)), (b, ByteLen(4096))]).expect("a layout"),
            Layout::single(a),
        ];
        for layout in layouts {
            for at in [0, 1, 6, 7, 4095, 4096, 4097, 8193, 8194, 12_290, 12_291, 1 << 40] {
                let place = layout.locate(FileOffset(at));
                assert_eq!(file_offset(&layout, place.object, place.local), Some(FileOffset(at)));
            }
            let (object, _) = layout.objects().next().expect("one");
            assert_eq!(file_offset(&layout, object, LocalOffset(u64::MAX)), None);
        }
    }
}
