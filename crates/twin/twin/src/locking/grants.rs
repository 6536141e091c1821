//! Locks of a client: requests, revocations, and the write-back that a revocation waits for.
//!
//! The lock model decides who gets which range at a request, and computes the time of the messages. The revoked
//! client's calls and its write-back take time in the simulated world, so the grant waits for them here.

use super::state::{ClientNumber, Lockable, LockingFs, Use};
use std::sync::Arc;
use weft_core::ranges::ByteRange;
use weft_core::{LocalOffset, Nanos};
use weft_env::{Env, Notify};
use weft_models::locks::{LockRequest, Mode, Revoked};

/// Number of a granted lock in use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct UseNumber(pub u64);

impl LockingFs {
    /// Requests a lock and waits for it. The lock stays in use until [`release`](Self::release).
    pub(super) async fn lock(
        self: &Arc<Self>,
        client: ClientNumber,
        lockable: Lockable,
        range: ByteRange,
        mode: Mode,
    ) -> UseNumber {
        let start = self.control.elapsed().0;
        let (number, grant, env) = {
            let mut state = self.state.lock();
            let number = state.next_use;
            state.next_use += 1;
            let grant = self.figures.has_locks.then(|| {
                let range = LocalOffset(range.start())..LocalOffset(range.end());
                let request =
                    LockRequest { client: client.0, object: lockable.0, range, mode, hold: Nanos::ZERO };
                state.locks.request(Nanos(start), &request)
            });
            let has_begun = grant.is_none();
            // Until the grant has arrived, the whole granted range is in use: its previous holder may still write.
            let range = match &grant {
                Some(grant) => ByteRange::new(grant.range.start.0, grant.range.end.0).unwrap_or(range),
                None => range,
            };
            let client = &mut state.clients[client.0 as usize];
            client.uses.insert(number, Use { lockable, range, has_begun });
            (UseNumber(number), grant, client.env.clone())
        };
        let Some(grant) = grant else { return number };
        if grant.messages == 0 {
            self.wait_for_own_grant(client, lockable, range, number).await;
        } else {
            let latency = self.figures.lock_latency;
            if grant.revoked.is_empty() {
                self.sleep_until(&env, grant.at.0).await;
            } else {
                // The holders learn of the revocation two messages before the grant arrives.
                self.sleep_until(&env, grant.at.0.saturating_sub(2 * latency)).await;
                self.revoke(lockable, &grant.revoked, number).await;
                env.sleep(Nanos(2 * latency)).await;
            }
        }
        let mut state = self.state.lock();
        state.counters.lock_wait_ns += self.control.elapsed().0 - start;
        let client = &mut state.clients[client.0 as usize];
        let of_call = client.uses.get_mut(&number.0).expect("released by this call only");
        (of_call.range, of_call.has_begun) = (range, true);
        client.changed.notify_all();
        number
    }

    /// Ends the use of a lock. The client keeps the lock.
    pub(super) fn release(&self, client: ClientNumber, number: UseNumber) {
        let mut state = self.state.lock();
        let client = &mut state.clients[client.0 as usize];
        client.uses.remove(&number.0);
        client.changed.notify_all();
    }

    /// Waits for an earlier grant of the same client that covers the range and has not arrived yet.
    async fn wait_for_own_grant(
        &self,
        client: ClientNumber,
        lockable: Lockable,
        range: ByteRange,
        number: UseNumber,
    ) {
        let changed = self.changed(client);
        loop {
            let epoch = changed.epoch();
            let is_waiting = {
                let state = self.state.lock();
                let mut earlier = state.clients[client.0 as usize].uses.range(..number.0);
                earlier
                    .any(|(_, one)| !one.has_begun && one.lockable == lockable && one.range.overlaps(range))
            };
            if !is_waiting {
                return;
            }
            changed.wait(epoch, None).await;
        }
    }

    /// Waits until all holders have released what they lost, at the same time.
    async fn revoke(self: &Arc<Self>, lockable: Lockable, revoked: &[Revoked], by: UseNumber) {
        let lost = revoked.iter().filter_map(|one| {
            let range = ByteRange::new(one.range.start.0, one.range.end.0)?;
            Some((ClientNumber(one.client), range))
        });
        let waiting = lost.map(|(holder, range)| self.give_up(holder, lockable, range, by));
        super::write_back::all(waiting).await;
    }

    /// Waits for the calls of a client that use a range, then writes its dirty bytes and drops the range from its cache.
    async fn give_up(
        self: &Arc<Self>,
        holder: ClientNumber,
        lockable: Lockable,
        range: ByteRange,
        by: UseNumber,
    ) {
        let changed = self.changed(holder);
        loop {
            let epoch = changed.epoch();
            let is_used = {
                let state = self.state.lock();
                let mut earlier = state.clients[holder.0 as usize].uses.range(..by.0);
                earlier.any(|(_, one)| one.lockable == lockable && one.range.overlaps(range))
            };
            if !is_used {
                break;
            }
            changed.wait(epoch, None).await;
        }
        let dirty = self.dirty_bytes(holder, lockable, range);
        self.state.lock().counters.revoked_bytes += dirty;
        self.write_range(holder, lockable, range).await;
        let mut state = self.state.lock();
        if let Some(cache) = state.clients[holder.0 as usize].caches.get_mut(&lockable) {
            cache.valid.remove(range);
        }
    }
}
