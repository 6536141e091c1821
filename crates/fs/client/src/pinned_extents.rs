//! Pinned extents: the location of a file's bytes in leased datafiles, for callers that transfer them without a
//! buffer. The mount splices them to the kernel.
//!
//! | step | effect |
//! | --- | --- |
//! | [`OpenFile::pin`] | obtains all leases first, then begins one operation on each |
//! | while pinned | a server that revokes one of the leases waits, so no datafile is truncated, removed or moved |
//! | [`PinnedExtents::release`] or drop | ends the operations; a waiting server continues |
//!
//! All leases are obtained before the first operation begins, because a client with an operation in flight must not
//! wait for a server, which may itself be waiting for that operation.

use crate::file::OpenFile;
use crate::lease::Lease;
use crate::size::OFFSET_MAX;
use std::sync::Arc;
use weft_core::{Access, ByteLen, Extent, LocalOffset, SubRequest};
use weft_env::Env;

/// Bytes of a file, pinned in their leased datafiles.
///
/// While they are pinned, no server can revoke the leases or truncate the datafiles. Release them soon, with
/// [`PinnedExtents::release`] or by dropping the value.
pub struct PinnedExtents<E: Env> {
    leases: Vec<Arc<Lease<E>>>,
    /// Number of leases with an operation in flight for this value.
    operations: usize,
    runs: Vec<Run>,
    subs: Vec<SubRequest>,
}

struct Run {
    /// Offset of the run in the request.
    at: u64,
    lease: usize,
    offset: LocalOffset,
    len: ByteLen,
}

impl<E: Env> Default for PinnedExtents<E> {
    fn default() -> Self {
        Self { leases: Vec::new(), operations: 0, runs: Vec::new(), subs: Vec::new() }
    }
}

impl<E: Env> PinnedExtents<E> {
    /// Returns datafile, offset in it and length of each run, in the order of the file.
    pub fn runs(&self) -> impl Iterator<Item = (&E::File, LocalOffset, ByteLen)> {
        self.runs.iter().map(|run| (&self.leases[run.lease].file, run.offset, run.len))
    }

    /// Releases everything; the memory is kept for the next use.
    pub fn release(&mut self) {
        for lease in self.leases.iter().take(self.operations) {
            lease.end_operation();
        }
        self.operations = 0;
        self.leases.clear();
        self.runs.clear();
        self.subs.clear();
    }
}

impl<E: Env> Drop for PinnedExtents<E> {
    fn drop(&mut self) {
        self.release();
    }
}

impl<E: Env> OpenFile<E> {
    /// Pins the bytes of `extent` if all of them are in leased datafiles.
    ///
    /// If a datafile is shorter than its run, the rest of the run is a hole or lies after the end of the file;
    /// [`OpenFile::read_at`] tells which. Returns `false`, with nothing pinned, where the caller must use `read_at`,
    /// which also reports errors.
    pub async fn pin(&self, extent: Extent, pinned: &mut PinnedExtents<E>) -> bool {
        pinned.release();
        let is_pinned = self.try_pin(extent, pinned).await;
        if !is_pinned {
            pinned.release();
        }
        is_pinned
    }

    async fn try_pin(&self, extent: Extent, pinned: &mut PinnedExtents<E>) -> bool {
        let state = &self.state;
        let end = extent.offset.0.checked_add(extent.len.0);
        let fits = extent.len.0 > 0 && end.is_some_and(|end| end <= OFFSET_MAX);
        if !fits || !state.record.flags.read || state.check().is_err() {
            return false;
        }
        if state.check_locks().await.is_err() {
            return false;
        }
        let Some(version) = state.layout_version_if_any().filter(|version| !version.is_inline()) else {
            return false;
        };
        // No server receives this request, so its hints for server policies do not matter.
        let split = state.session.core.options.split;
        version.layout.split_into(extent, Access::Sequential, split, &mut pinned.subs);
        // All leases first: no server may be waited for while an operation is in flight.
        for sub in &pinned.subs {
            match state.lease_for(version, sub, false).await {
                Ok(Some(lease)) => pinned.leases.push(lease),
                _ => return false,
            }
        }
        for (lease, sub) in pinned.leases.iter().zip(&pinned.subs) {
            match lease.begin_operation(&state.session.core.env) {
                Some(operation) => {
                    std::mem::forget(operation); // `release` ends the operation instead.
                    pinned.operations += 1;
                }
                None => {
                    state.drop_ended_lease(version, sub.object, lease);
                    return false;
                }
            }
        }
        for (lease, sub) in pinned.subs.iter().enumerate() {
            let mut offset = sub.local.offset;
            for piece in sub.pieces() {
                pinned.runs.push(Run { at: piece.offset.0, lease, offset, len: piece.len });
                offset.0 += piece.len.0;
            }
        }
        pinned.runs.sort_unstable_by_key(|run| run.at);
        state.observe(extent);
        true
    }
}
