//! Layout versions of an open file, and how an operation follows a file that moves to another layout.
//!
//! A move gives the file a new layout and new datafiles, whose name carries the next *generation*. An open file keeps
//! a list of its layout versions:
//!
//! ```text
//! State ─▶ generation 0 ─next─▶ generation 1 ─next─▶ generation 2     (newest, used by new operations)
//!          layout, ends,        layout, ends,        layout, ends,
//!          leases, fence        leases, fence        leases, fence
//! ```
//!
//! Versions are only appended and live as long as the open file, so an operation keeps a plain reference to the
//! version that it began with while other tasks use a newer one.
//!
//! How an operation learns that its version is stale:
//!
//! | sign | meaning | reaction |
//! | --- | --- | --- |
//! | `EREMCHG` from the metadata server | the bytes are no longer in the metadata | renew the capability, then repeat |
//! | `EREMCHG` from a data server | the datafile is sealed by a move | renew the capability, then repeat |
//! | the capability names another generation | another task has followed the move | repeat on the newest version |
//! | the renewed capability passes the seal | the move was given up | repeat on the same version |
//! | the renewed capability does not pass it | the move is in progress | back off; `EIO` after 30 s |
//!
//! A write is repeated as a whole. An append never follows a move under its grant, because its exchanges must all see
//! the same datafiles. See docs/design/moving-files.md.

use super::State;
use super::ends::DatafileEnds;
use super::leases::LeaseSlots;
use crate::error::{Error, Result};
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use weft_core::{ByteLen, FileId, Layout};
use weft_env::Env;
use weft_wire::Capability;

/// One layout of a file, with the datafiles that belong to it.
pub(crate) struct LayoutVersion<E: Env> {
    /// Name of the datafiles: the file's id and the generation.
    pub(crate) data: FileId,
    pub(crate) layout: Layout,
    /// For a version whose bytes are in the metadata, without datafiles: offset behind the last byte that it may have.
    pub(crate) inline_max: Option<ByteLen>,
    /// Ends of its datafiles.
    pub(crate) ends: DatafileEnds,
    pub(super) slots: LeaseSlots<E>,
    /// The data servers reject capabilities that end before this time, in seconds since 1970.
    pub(crate) fenced_s: AtomicU64,
    next: OnceLock<Box<LayoutVersion<E>>>,
}

impl<E: Env> LayoutVersion<E> {
    pub(crate) fn new(
        data: FileId,
        layout: Layout,
        with_leases: bool,
        ends: DatafileEnds,
        inline_max: Option<ByteLen>,
    ) -> Self {
        let slots = LeaseSlots::new(Some(&layout), with_leases);
        let fenced_s = AtomicU64::new(0);
        Self { data, layout, inline_max, ends, slots, fenced_s, next: OnceLock::new() }
    }

    /// Whether the bytes are in the metadata.
    #[inline]
    pub(crate) fn is_inline(&self) -> bool {
        self.inline_max.is_some()
    }

    /// Returns the newest version known here.
    #[inline]
    pub(super) fn last(&self) -> &Self {
        let mut version = self;
        while let Some(next) = version.next.get() {
            version = next;
        }
        version
    }

    /// Returns all versions, the oldest first.
    pub(super) fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |version| version.next.get().map(Box::as_ref))
    }

    /// Drops all leases, and returns whether there were any.
    pub(super) fn clear(&mut self) -> bool {
        let leased = self.slots.clear();
        self.next.get_mut().is_some_and(|next| next.clear()) | leased
    }
}

impl<E: Env> State<E> {
    /// Takes over the capability and layout of a file that has moved.
    pub(crate) fn install_layout(&self, cap: Capability, layout: Layout) {
        if let Some(mut version) = self.first_version.as_ref() {
            let mut fresh = None;
            loop {
                version = version.last();
                if version.data.generation() >= cap.file.generation() {
                    break;
                }
                let with_leases = self.session.core.options.transport != crate::options::Transport::Socket;
                let next = fresh.take().unwrap_or_else(|| {
                    let ends = DatafileEnds::new(&layout, None, self.record.flags.write);
                    Box::new(LayoutVersion::new(cap.file, layout.clone(), with_leases, ends, None))
                });
                version.slots.drop_all();
                match version.next.set(next) {
                    Ok(()) => break,
                    Err(next) => fresh = Some(next),
                }
            }
        }
        self.install_cap(cap);
    }

    /// Returns a capability for `version` that does not expire soon.
    ///
    /// # Errors
    /// `EREMCHG` when the file has another layout by now.
    pub(crate) async fn cap_in(&self, version: &LayoutVersion<E>) -> Result<Capability> {
        let cap = self.cap().await?;
        if cap.file == version.data { Ok(cap) } else { Err(Error::stale_layout()) }
    }
}
