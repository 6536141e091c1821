//! Leases of the bytes of inline files, which a client gets with the reply to its open and reads without another message.
//!
//! Nobody revokes such a lease: it is so short that a change waits for its end. It ends when the client closes the file, and at
//! the latest after [`BYTE_LEASE`]. So programs that answer no events can have one.
//!
//! **While an open file may use a lease, no transaction changes the bytes of the file or gives it datafiles, except through this
//! open file.** Leases are granted inside the steps on the database. So each of them is before or after each change.
//!
//! | case | rule |
//! | --- | --- |
//! | a change through the open file that has the lease | ends it: the client no longer uses it |
//! | a change finds another lease, even of its own client | it is repeated when the lease has ended; the file is not leased again for [`CONTENDED_FOR`], and the session gets no leases for as long |
//! | the session is lost | the lease lasts, because its client may not know |
//! | restart | changes wait until leases of the previous start have ended |
//! | clocks of client and server do not run at the same speed | the service lets the lease last a quarter longer |

use super::fault::{Fault, Outcome};
use super::inline::bytes_of;
use super::op::Op;
use super::tables::inode;
use std::collections::BTreeMap;
use weft_core::{ByteLen, FileId, Nanos};
use weft_env::mutants::{Mutant, is_seeded};
use weft_store::metadata::Snapshot;
use weft_wire::BoundSession;
use weft_wire::meta::{BYTE_LEASE, HandleId};

/// Time after which no client uses a lease.
const ENDED_AFTER: Nanos = Nanos(BYTE_LEASE.0 / 4 * 5);
/// Time for which a file is not leased after a change of it had to wait, and for which a session with such a lease gets none.
const CONTENDED_FOR: Nanos = Nanos::from_s(1);
/// Maximum number of leases, and of files or sessions without them. Beyond it nothing is leased.
const LEASES_MAX: usize = 4096;
/// Maximum size of a leased file. A client that does not read keeps the bytes until it closes the file.
const LEASED_LEN_MAX: ByteLen = ByteLen(4096);

/// Leases of all clients.
#[derive(Default, Debug)]
pub(super) struct ByteLeases {
    /// Ends of the leases.
    ends: BTreeMap<(FileId, BoundSession, HandleId), Nanos>,
    /// Files that are not leased, with the end of this time.
    contended: BTreeMap<FileId, Nanos>,
    /// Sessions that get no leases, with the end of this time.
    in_the_way: BTreeMap<BoundSession, Nanos>,
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
        let is_full = |leases: &Self| {
            leases.ends.len().max(leases.contended.len()).max(leases.in_the_way.len()) >= LEASES_MAX
        };
        // Not at each request, if all are in use.
        if is_full(self) && now.saturating_sub(self.cleaned_at) > BYTE_LEASE {
            self.ends.retain(|_, end| *end > now);
            self.contended.retain(|_, until| *until > now);
            self.in_the_way.retain(|_, until| *until > now);
            self.cleaned_at = now;
        }
        let is_over = |until: Option<&Nanos>| until.is_none_or(|until| *until <= now);
        let may_lease =
            !is_full(self) && is_over(self.contended.get(&file)) && is_over(self.in_the_way.get(&session));
        if may_lease {
            self.ends.insert((file, session, handle), now.saturating_add(ENDED_AFTER));
        }
        may_lease
    }

    /// Ends the lease of a closed file. Returns whether a change may wait for that.
    pub(super) fn closed(&mut self, file: FileId, session: BoundSession, handle: HandleId) -> bool {
        self.ends.remove(&(file, session, handle)).is_some() && self.contended.contains_key(&file)
    }

    /// Time at which the last lease of a file ends, if a change through the open file `own` has to wait for it.
    fn wait_until(
        &mut self,
        file: FileId,
        own: Option<(BoundSession, HandleId)>,
        now: Nanos,
    ) -> Option<Nanos> {
        if let Some((session, handle)) = own {
            self.ends.remove(&(file, session, handle));
        }
        let least = (file, BoundSession(0), HandleId(0));
        let of_file = self.ends.range(least..).take_while(|((other, ..), _)| *other == file);
        let of_file: Vec<_> = of_file.map(|(key, end)| (*key, *end)).collect();
        let (mut last, contended_until) = (self.known_from, now.saturating_add(CONTENDED_FOR));
        for (key, end) in of_file {
            last = last.max(end);
            if end <= now {
                self.ends.remove(&key);
            } else {
                self.in_the_way.insert(key.1, contended_until);
            }
        }
        if last <= now || is_seeded(Mutant::IgnoredByteLease) {
            return None;
        }
        self.contended.insert(file, contended_until);
        Some(last)
    }
}

impl Op<'_> {
    /// Leases the bytes of a file that the client has opened to read, and returns them, if that is possible.
    pub(super) fn lease_bytes(
        &self,
        s: &dyn Snapshot,
        file: FileId,
        handle: HandleId,
    ) -> Outcome<Option<Vec<u8>>> {
        let Some(inode) = inode(s, file)? else { return Ok(None) };
        // An empty file gets its datafiles without a copy. I/O delegates change files of their jobs.
        let can_be = inode.is_inline()
            && (ByteLen(1)..=LEASED_LEN_MAX).contains(&inode.size)
            && self.job.is_none()
            && !self.core.growths.lock().is_growing(file);
        // If the bytes are lost, the read says so.
        let Some(bytes) = can_be.then(|| bytes_of(s, file, &inode).ok()).flatten() else { return Ok(None) };
        let is_leased = self.core.byte_leases.lock().grant(file, self.session, handle, self.clock);
        Ok(is_leased.then_some(bytes))
    }

    /// Fails while a lease of the bytes that this request changes may be in use, other than that of the open file with `handle`.
    pub(super) fn require_no_byte_lease(&self, file: FileId, handle: Option<HandleId>) -> Outcome<()> {
        let own = handle.map(|handle| (self.session, handle));
        match self.core.byte_leases.lock().wait_until(file, own, self.clock) {
            Some(until) => Err(Fault::Leased(until)),
            None => Ok(()),
        }
    }
}
