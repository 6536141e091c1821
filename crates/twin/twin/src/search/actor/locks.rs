//! Operations on locks.

use super::Actor;
use crate::search::locks::GrantedLock;
use weft_client::Wait;
use weft_wire::meta::{LockKind, LockOwner, LockRange, LockSpace};

impl Actor {
    pub(super) async fn release_locks(&mut self, at: usize) {
        let (handle, key) = (self.handles[at].file.clone(), self.handles[at].key);
        let all = LockRange { start: 0, end: u64::MAX };
        let of_process = (LockSpace::Record, LockOwner::Process(self.process), self.process);
        let of_handle = (LockSpace::Flock, LockOwner::Handle(handle.handle()), key);
        for (space, owner, own) in [of_process, of_handle] {
            let own = (self.number, own);
            self.judge.now(|state, _| state.locks.released(own, handle.file(), space, (0, u64::MAX)));
            if let Err(error) = handle.unlock(space, owner, all).await {
                self.judge.unlock_unanswered(self.number);
                self.judge.check_excuse(&error, &[libc::ESTALE]);
            }
        }
    }

    pub(super) async fn lock(&mut self) {
        let at = self.draw_handle();
        let (handle, key) = (self.handles[at].file.clone(), self.handles[at].key);
        let file = handle.file();
        let whole = self.rng.below(3) == 0;
        let (space, owner, owner_key, range) = match whole {
            true => (LockSpace::Flock, LockOwner::Handle(handle.handle()), key, (0, u64::MAX)),
            false => {
                let start = self.rng.below(8) * 10;
                (
                    LockSpace::Record,
                    LockOwner::Process(self.process),
                    self.process,
                    (start, start + 10 + self.rng.below(3) * 10),
                )
            }
        };
        let wire_range = LockRange { start: range.0, end: range.1 };
        let own = (self.number, owner_key);
        if self.rng.below(5) < 2 {
            let id = self.begins(|| format!("unlock file {file} {space:?} {range:?}"));
            self.judge.hit("op: unlock");
            self.judge.now(|state, _| state.locks.released(own, file, space, range));
            let result = handle.unlock(space, owner, wire_range).await;
            self.ends(id, &result);
            drop(handle);
            if let Err(error) = result {
                self.judge.unlock_unanswered(self.number);
                self.check_error(at, &error, &[]).await;
            }
            return;
        }
        // As in fcntl, a shared lock needs read access and an exclusive lock needs write access.
        let (read, write) = (self.handles[at].file.flags().read, self.handles[at].write);
        let shared = !write || (read && self.rng.below(3) == 0);
        let kind = if shared { LockKind::Shared } else { LockKind::Exclusive };
        let id = self.begins(|| format!("lock file {file} {space:?} {kind:?} {range:?}"));
        self.judge.hit("op: lock");
        let troubles = self.judge.link_disturbances();
        let mut polls = 0;
        let polls_max = self.rng.below(8);
        let mut interrupted = || {
            polls += 1;
            polls > polls_max
        };
        let wait = if polls_max == 0 { Wait::No } else { Wait::Until(&mut interrupted) };
        // From here on the lock that the owner had on the range may be replaced.
        self.judge.now(|state, _| state.locks.released(own, file, space, range));
        let result = handle.lock(space, owner, kind, wire_range, wait).await;
        self.ends(id, &result);
        drop(handle);
        match result {
            Ok(()) => {
                let in_doubt = self.judge.link_disturbances() != troubles || self.judge.link_is_disturbed();
                let lock = GrantedLock { owner: own, file, space, kind, range, in_doubt, lost_at: None };
                self.judge.locked(id, lock);
            }
            Err(error) => {
                if error.errno() == libc::EINTR || error.errno() == libc::EAGAIN {
                    self.judge.hit("lock: held by another client");
                }
                self.check_error(at, &error, &[libc::EAGAIN, libc::EINTR, libc::EDEADLK]).await;
            }
        }
    }
}
