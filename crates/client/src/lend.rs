//! Lending: where the bytes of a file lie, as runs of leased datafiles, for whoever can move them without a buffer (the
//! mount splices them to the kernel).

use crate::file::OpenFile;
use crate::lease::Lease;
use crate::read::OFFSET_MAX;
use std::sync::Arc;
use weft_core::{Access, ByteLen, Extent, LocalOffset, SubRequest};
use weft_env::Env;

/// Bytes of a file, lent. While it stands no server takes back the leases behind it, cuts the datafiles or lets anybody
/// believe that it could: end it soon, by [`Loan::end`] or by dropping it.
pub struct Loan<E: Env> {
    leases: Vec<Arc<Lease<E>>>,
    /// How many of the leases count this loan as an operation in flight.
    entered: usize,
    runs: Vec<Run>,
    subs: Vec<SubRequest>,
}

struct Run {
    /// Where it begins in the request.
    at: u64,
    lease: usize,
    offset: LocalOffset,
    len: ByteLen,
}

impl<E: Env> Default for Loan<E> {
    fn default() -> Self {
        Self { leases: Vec::new(), entered: 0, runs: Vec::new(), subs: Vec::new() }
    }
}

impl<E: Env> Loan<E> {
    /// Datafile, first byte in it and length of each run, in the order of the file.
    pub fn runs(&self) -> impl Iterator<Item = (&E::File, LocalOffset, ByteLen)> {
        self.runs.iter().map(|run| (&self.leases[run.lease].file, run.offset, run.len))
    }

    /// Gives everything back; room for the next one stays reserved.
    pub fn end(&mut self) {
        for lease in self.leases.iter().take(self.entered) {
            lease.leave();
        }
        self.entered = 0;
        self.leases.clear();
        self.runs.clear();
        self.subs.clear();
    }
}

impl<E: Env> Drop for Loan<E> {
    fn drop(&mut self) {
        self.end();
    }
}

impl<E: Env> OpenFile<E> {
    /// Lends the bytes of `extent` when all of them belong to leased datafiles. Where a datafile is shorter than its run
    /// the rest is a hole or lies behind the end of the file: [`OpenFile::read_at`] tells them apart.
    ///
    /// `false`, and nothing is lent, where `read_at` must do it, or must say what is wrong.
    pub async fn lend(&self, extent: Extent, loan: &mut Loan<E>) -> bool {
        loan.end();
        let lent = self.try_lend(extent, loan).await;
        if !lent {
            loan.end();
        }
        lent
    }

    async fn try_lend(&self, extent: Extent, loan: &mut Loan<E>) -> bool {
        let state = &self.state;
        let end = extent.offset.0.checked_add(extent.len.0);
        let fits = extent.len.0 > 0 && end.is_some_and(|end| end <= OFFSET_MAX);
        if !fits || !state.record.flags.read || state.check().is_err() {
            return false;
        }
        if state.check_locks().await.is_err() {
            return false;
        }
        let Some(home) = state.some_home() else { return false };
        // No server hears of this request, so that what its policies would want to know does not matter.
        let split = state.client.core.options.split;
        home.layout.split_into(extent, Access::Sequential, split, &mut loan.subs);
        // All leases first: while an operation is in flight no server is waited for.
        for sub in &loan.subs {
            match state.lease_for(home, sub, false).await {
                Ok(Some(lease)) => loan.leases.push(lease),
                _ => return false,
            }
        }
        for (lease, sub) in loan.leases.iter().zip(&loan.subs) {
            match lease.enter(&state.client.core.env) {
                Some(inside) => {
                    std::mem::forget(inside); // `end` leaves in its place.
                    loan.entered += 1;
                }
                None => {
                    state.lease_ended(home, sub.object, lease);
                    return false;
                }
            }
        }
        for (lease, sub) in loan.subs.iter().enumerate() {
            let mut offset = sub.local.offset;
            for piece in sub.pieces() {
                loan.runs.push(Run { at: piece.offset.0, lease, offset, len: piece.len });
                offset.0 += piece.len.0;
            }
        }
        loan.runs.sort_unstable_by_key(|run| run.at);
        state.observe(extent);
        true
    }
}
