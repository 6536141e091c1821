//! Leases of the bytes of inline files, which a client gets with the reply to its open and reads without another message.
//!
//! Nobody revokes such a lease: it is so short that a change waits for its end. It ends when the client closes the file, and at
//! the latest after [`BYTE_LEASE`]. So programs that answer no events can have one.
//!
//! **No transaction changes the bytes of a file, or takes them out of the database, while another client may use a lease.**
//! Leases are granted inside the steps on the database, so each is before or after each change.
//!
//! | case | rule |
//! | --- | --- |
//! | a change finds a lease | it is repeated when the lease has ended; the file is not leased again for [`CONTENDED_FOR`] |
//! | the session is lost | the lease lasts, because its client may not know |
//! | restart | changes wait until leases of the previous start have ended |
//! | clocks of client and server do not run at the same speed | the service lets the lease last a quarter longer |

use super::fault::{Fault, Outcome};
use super::inline::bytes_of;
use super::op::Op;
use std::collections::BTreeMap;
use weft_core::{ByteLen, FileId, Nanos};
use weft_env::mutants::{Mutant, is_seeded};
use weft_store::metadata::{Inode, Snapshot};
use weft_wire::BoundSession;
use weft_wire::meta::{BYTE_LEASE, HandleId};

/// Time after which no client uses a lease.
const ENDED_AFTER: Nanos = Nanos(BYTE_LEASE.0 / 4 * 5);
/// Time for which a file is not leased after a change of it had to wait.
const CONTENDED_FOR: Nanos = Nanos::from_s(1);
/// Maximum number of leases, and of files that are not leased. Beyond it nothing is leased.
const LEASES_MAX: usize = 4096;
/// Maximum size of a leased file. The client keeps the bytes until the first read after the lease.
const LEASED_LEN_MAX: ByteLen = ByteLen(4096);

/// Leases of all clients.
#[derive(Default, Debug)]
pub(super) struct ByteLeases {
    /// Ends of the leases.
    ends: BTreeMap<(FileId, BoundSession, HandleId), Nanos>,
    /// Files that are not leased, with the end of this time.
    contended: BTreeMap<FileId, Nanos>,
    /// Time until which leases of the previous start may be in use.
    known_from: Nanos,
    /// Time at which ended leases were forgotten last.
    cleaned_at: Nanos,
}

impl ByteLeases {
    /// `is_restart` says whether there may be leases of a previous start.
    pub(super) fn new(is_restart: bool, now: Nanos) -> Self {
        let known_from = if is_restart { now.saturating_add(ENDED_AFTER) } else { Nanos::ZERO };
        Self { known_from, ..Self::default() }
    }

    /// Leases a file. Returns whether that is possible.
    fn grant(&mut self, file: FileId, session: BoundSession, handle: HandleId, now: Nanos) -> bool {
        let is_full = |leases: &Self| leases.ends.len().max(leases.contended.len()) >= LEASES_MAX;
        // Not at each request, if all are in use.
        if is_full(self) && now.saturating_sub(self.cleaned_at) > BYTE_LEASE {
            self.ends.retain(|_, end| *end > now);
            self.contended.retain(|_, until| *until > now);
            self.cleaned_at = now;
        }
        let may_lease = !is_full(self) && self.contended.get(&file).is_none_or(|until| *until <= now);
        if may_lease {
            self.ends.insert((file, session, handle), now.saturating_add(ENDED_AFTER));
        }
        may_lease
    }

    /// Ends the lease of a closed file. Returns whether a change may wait for that.
    pub(super) fn closed(&mut self, file: FileId, session: BoundSession, handle: HandleId) -> bool {
        self.ends.remove(&(file, session, handle)).is_some() && self.contended.contains_key(&file)
    }

    /// Time at which the last lease of a file ends, if a change has to wait for it.
    fn wait_until(&mut self, file: FileId, now: Nanos) -> Option<Nanos> {
        let least = (file, BoundSession(0), HandleId(0));
        let of_file = self.ends.range(least..).take_while(|((other, ..), _)| *other == file);
        let end = of_file.map(|(_, end)| *end).max().unwrap_or_default().max(self.known_from);
        if end <= now || is_seeded(Mutant::IgnoredByteLease) {
            return None;
        }
        self.contended.insert(file, now.saturating_add(CONTENDED_FOR));
        Some(end)
    }
}

impl Op<'_> {
    /// Bytes of a file that the client has opened to read only, if they can be leased.
    pub(super) fn leased_bytes(
        &self,
        s: &dyn Snapshot,
        file: FileId,
        inode: &Inode,
        handle: HandleId,
    ) -> Option<Vec<u8>> {
        // An empty file may get its datafiles at any time, without a copy.
        let can_be = inode.is_inline() && (ByteLen(1)..=LEASED_LEN_MAX).contains(&inode.size);
        if !can_be || !self.core.byte_leases.lock().grant(file, self.session, handle, self.clock) {
            return None;
        }
        // If the bytes are lost, the read says so.
        bytes_of(s, file, inode).ok()
    }

    /// Fails while a client may use a lease of the bytes that this request changes.
    pub(super) fn require_no_byte_lease(&self, file: FileId) -> Outcome<()> {
        match self.core.byte_leases.lock().wait_until(file, self.clock) {
            Some(until) => Err(Fault::Held(until)),
            None => Ok(()),
        }
    }
}
