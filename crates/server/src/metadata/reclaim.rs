//! Opens and locks that a client tells again after a lost connection or a restart.

use super::Service;
use super::fault::{Fault, Outcome};
use super::locking::{LockRequest, byte_range};
use super::op::Op;
use super::open::Standing;
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
            let reopen = |t: &mut dyn Transaction, op: &Op<'_>| op.adopt(t, Standing::Before, open);
            match self.commit(call, reopen).await {
                Ok(_) => {
                    let mut opens = self.core.opens.lock();
                    opens.marked(open.file);
                    let entry = opens.get(session, open.handle);
                    drop(opens);
                    if open.caching && !entry.is_some_and(|entry| entry.caching) {
                        uncached.push(open.handle);
                    }
                }
                Err(Fault::Failed(error)) if error.errno == Errno::EIO => return Err(Fault::Failed(error)),
                Err(_) => lost_opens.push(open.handle),
            }
        }
        for lock in locks {
            let ReclaimLock { file, space, owner, kind, range } = lock;
            let is_open = self.core.opens.lock().is_held_by(*file, session);
            // Of the append lock nobody is told again: who has it next has been told of this one's loss.
            let got = is_open && *space != LockSpace::Append && {
                let range = byte_range(*range)?;
                let request = LockRequest {
                    session,
                    file: *file,
                    space: *space,
                    owner: *owner,
                    kind: *kind,
                    range,
                    pid: call.ctx.pid,
                    uid: call.who.uid,
                    user_max: None,
                };
                self.locks.lock().get_back(request, self.env.now())
            };
            if !got {
                lost_locks.push(lock.clone());
            }
        }
        // Only now: a start after a crash before this reply must not give back what was refused here.
        if lost_locks.len() < locks.len() {
            self.note_locks(call).await?;
        }
        Ok(MetaReply::Reclaimed { lost_opens, lost_locks, uncached })
    }
}
