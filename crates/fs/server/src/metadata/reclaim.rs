//! Opens and locks that a client reclaims after a lost connection or a restart.

use super::Service;
use super::fault::{Fault, Outcome};
use super::locking::LockRequest;
use super::op::Op;
use super::open::OpenOrigin;
use super::serve::Call;
use weft_env::Env;
use weft_store::metadata::Transaction;
use weft_wire::Errno;
use weft_wire::meta::{LockSpace, MetaReply, ReclaimLock, ReclaimOpen};

impl<E: Env> Service<E> {
    pub(super) async fn reclaim(
        &self,
        call: &Call<'_>,
        opens: &[ReclaimOpen],
        locks: &[ReclaimLock],
    ) -> Outcome<MetaReply> {
        let session = call.ctx.session;
        let (mut lost_opens, mut lost_locks, mut uncached) = (Vec::new(), Vec::new(), Vec::new());
        for open in opens {
            let reopen = |t: &mut dyn Transaction, op: &Op<'_>| op.adopt(t, OpenOrigin::Reclaimed, open);
            match self.commit(call, reopen).await {
                Ok(_) => {
                    self.wait_for_mark(call, open.file, false).await?;
                    let entry = self.core.opens.lock().get(session, open.handle);
                    if open.caching && !entry.is_some_and(|entry| entry.caching) {
                        uncached.push(open.handle);
                    }
                }
                Err(Fault::Failed(error)) if error.errno == Errno::EIO => return Err(Fault::Failed(error)),
                Err(_) => lost_opens.push(open.handle),
            }
        }
        for lock in locks {
            let ReclaimLock { file, space, owner, kind, range, pid } = lock;
            let is_open = self.core.opens.lock().is_held_by(*file, session);
            // An append lock is not reclaimed: its loss fences the file, and the next holder learns of it.
            let got = is_open && *space != LockSpace::Append && {
                let pid = if *pid == 0 { call.ctx.pid } else { *pid };
                let request = call.lock_request(*file, (*space, *owner), *kind, *range)?;
                self.locks.lock().reclaim(LockRequest { pid, ..request }, self.env.now())
            };
            if !got {
                lost_locks.push(lock.clone());
            }
        }
        // Recorded only now: after a crash before this reply, the next start must not give back what was refused here.
        if lost_locks.len() < locks.len() {
            self.record_locks(call).await?;
        }
        Ok(MetaReply::Reclaimed { lost_opens, lost_locks, uncached })
    }
}
