//! Holes of a file: punching them, and finding them from the holes of the datafiles.

use crate::control::{Boots, datafile, expect_done};
use crate::core::Core;
use crate::error::{Error, Result};
use crate::file::{LayoutRetry, OpenFile};
use crate::size::OFFSET_MAX;
use weft_core::{ByteLen, Extent, FileId, FileOffset, Layout, LocalOffset, ObjectId, TargetId};
use weft_env::Env;
use weft_wire::data::{DataReply, DataRequest};
use weft_wire::{Capability, Errno};

impl<E: Env> OpenFile<E> {
    /// Makes the bytes of `extent` read as zeros and frees their space, like fallocate(2) with `FALLOC_FL_PUNCH_HOLE`.
    /// The size of the file does not change, even if `extent` ends after it.
    ///
    /// # Errors
    /// `EBADF` when the file is not open for writing, `EFBIG` beyond 2^63 - 1, `EOPNOTSUPP` when a target's file
    /// system has no holes, and errors of the servers.
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
        if let Some(replica) = state.replica() {
            Box::pin(self.punch_redirected(replica, extent)).await?;
        }
        // Space and modification time of the file now follow from the datafiles alone.
        state.written.mark_uncertain();
        let core = &state.session.core;
        let mut retry = LayoutRetry::new(state);
        let punched = retry.run(async |version| {
            if version.is_inline() {
                state.grow().await?;
                return Err(Error::stale_layout());
            }
            let cap = state.cap_in(version).await?;
            core.punch(version.data, cap, &version.layout, extent).await
        });
        let boots = punched.await.map_err(|error| error.about(&state.path))?;
        state.unsynced.note_all(&boots);
        state.invalidate_if_cached(extent).await;
        Ok(())
    }

    /// Returns the offset of the first byte at or after `offset` that is not in a hole; `None` if there is none. Data
    /// may be zeros.
    ///
    /// # Errors
    /// `Unreachable`, and errors of the servers.
    pub async fn seek_data(&self, offset: FileOffset) -> Result<Option<FileOffset>> {
        let (size, lost) = self.size_and_loss().await?;
        if self.state.replica().is_some() {
            // Holes of the file may have bytes in the replica, so all of it counts as data.
            return Ok((offset.0 < size.0).then_some(offset));
        }
        let found = match offset.0 < size.0 {
            // Lost bytes are not a hole: a program that looks for data must get the error.
            true if lost => Some(offset),
            true => self.seek(offset, false).await?,
            false => None,
        };
        Ok(found.filter(|at| at.0 < size.0))
    }

    /// Returns the offset of the first byte at or after `offset` that is in a hole. The end of the file counts as a
    /// hole. `None` if `offset` is at or after the end.
    ///
    /// # Errors
    /// `Unreachable`, and errors of the servers.
    pub async fn seek_hole(&self, offset: FileOffset) -> Result<Option<FileOffset>> {
        let (size, lost) = self.size_and_loss().await?;
        if offset.0 >= size.0 {
            return Ok(None);
        }
        if self.state.replica().is_some() {
            return Ok(Some(FileOffset(size.0)));
        }
        let found = if lost { None } else { self.seek(offset, true).await? };
        Ok(Some(FileOffset(found.map_or(size.0, |at| at.0.min(size.0)))))
    }

    async fn seek(&self, offset: FileOffset, hole: bool) -> Result<Option<FileOffset>> {
        let state = &self.state;
        state.check()?;
        let core = &state.session.core;
        let mut retry = LayoutRetry::new(state);
        let found = retry.run(async |version| {
            if version.is_inline() {
                // All of it is data.
                let size = state.inline_size().await?;
                return Ok((!hole && offset.0 < size.0).then_some(offset));
            }
            let cap = state.cap_in(version).await?;
            core.seek(version.data, cap, &version.layout, offset, hole).await
        });
        found.await.map_err(|error| error.about(&state.path))
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
        let replies = self.send_by_server(&objects, |&(_, target)| target, request).await?;
        expect_done(&replies)?;
        Ok(crate::control::boots(&objects, &replies))
    }

    /// Returns the offset of the first byte of the file that is in a hole of its datafile, or that is not.
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
        for (indices, (reply, _)) in self.send_by_server(&objects, |&(_, target)| target, request).await? {
            let DataReply::Sought(found) = reply else { return Err(Error::unexpected_reply()) };
            if found.len() != indices.len() {
                return Err(Error::unexpected_reply());
            }
            for (index, local) in indices.into_iter().zip(found) {
                let (object, _) = objects[index];
                let at = local.and_then(|local| file_offset(layout, object, local));
                // A datafile may report a byte of the file before `offset`.
                if let Some(at) = at.filter(|at| *at >= offset) {
                    first = Some(first.map_or(at, |first| first.min(at)));
                }
            }
        }
        Ok(first)
    }
}

/// Returns the offset in the file of byte `local` of a datafile; `None` after the last byte that the datafile can
/// hold.
fn file_offset(layout: &Layout, object: ObjectId, local: LocalOffset) -> Option<FileOffset> {
    let (before, with) = (ByteLen(local.0), ByteLen(local.0.checked_add(1)?));
    let end = layout.logical_end(object, with);
    (end > layout.logical_end(object, before)).then(|| FileOffset(end.0 - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_offset_inverts_the_split_of_every_layout() {
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
