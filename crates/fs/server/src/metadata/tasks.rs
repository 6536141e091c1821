//! The service's own task: ends the grace time after a start, and removes the datafiles of removed files.

use super::Service;
use super::fault::Outcome;
use super::reaper::{BACKOFF_MAX, BACKOFF_MIN, Removal, next_batch};
use super::tables::row;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use weft_core::{FileId, Nanos};
use weft_env::mutants::{Mutant, is_seeded};
use weft_env::{Env, Notify};
use weft_store::metadata::{Engine, ReapRow, Snapshot, Table, file_key};
use weft_wire::meta::FREED_WITHIN;

/// Time between two passes, in which small removed files gather: each pass costs a sync of the log and a message to each
/// data server. Large files, whose removal waits for the space, do not wait for it.
const GATHER_FOR: Nanos = Nanos::from_ms(5);

impl<E: Env> Service<E> {
    pub(super) async fn reap<R: Removal>(&self, mut removal: R) {
        let mut has_orphans = self.orphans_until > self.grace_until;
        self.end_grace_when_due(!has_orphans).await;
        let mut backoff = BACKOFF_MIN;
        while !self.is_stopping() {
            let epoch = self.reap_work.epoch();
            if has_orphans && self.env.now() >= self.orphans_until {
                has_orphans = false;
                self.end_orphans().await;
            }
            let before = self.core.freeing.lock().begin();
            let failed = self.reap_all(&mut removal).await;
            if self.is_stopping() {
                break;
            }
            if failed.is_empty() {
                backoff = BACKOFF_MIN;
                self.core.freeing.lock().freed(&before);
                self.freed.notify_all();
                let ended = self.env.now();
                let left = has_orphans.then(|| self.orphans_until.saturating_sub(self.env.now()));
                self.reap_work.wait(epoch, left).await;
                let early = GATHER_FOR.saturating_sub(self.env.now().saturating_sub(ended));
                if early > Nanos::ZERO && self.core.freeing.lock().files.is_empty() && !self.is_stopping() {
                    self.env.sleep(early).await;
                }
            } else {
                self.core.freeing.lock().stalled();
                self.freed.notify_all();
                // More files to remove do not end the wait: the server that is down would be tried endlessly.
                backoff = match self.wait_for_return(backoff).await {
                    true => BACKOFF_MIN,
                    false => BACKOFF_MAX.min(Nanos(backoff.0 * 2)),
                };
            }
        }
        self.core.freeing.lock().stalled();
        self.freed.notify_all();
        self.reaper_runs.store(false, Ordering::SeqCst);
        self.reaper_ended.notify_all();
    }

    async fn end_grace_when_due(&self, orphans: bool) {
        self.wait_unless_stopping(self.grace_until.saturating_sub(self.env.now())).await;
        if !self.is_stopping() {
            self.end_grace(orphans).await;
        }
    }

    async fn wait_unless_stopping(&self, duration: Nanos) {
        self.wait_while(duration, || !self.is_stopping()).await;
    }

    /// Waits for `duration`, or until a server that was down answers again. Returns whether one did.
    async fn wait_for_return(&self, duration: Nanos) -> bool {
        self.wait_while(duration, || !self.is_stopping() && !self.server_returned.load(Ordering::SeqCst))
            .await;
        self.server_returned.swap(false, Ordering::SeqCst)
    }

    async fn wait_while(&self, duration: Nanos, should_wait: impl Fn() -> bool) {
        let until = self.env.now().saturating_add(duration);
        loop {
            let epoch = self.reap_work.epoch();
            let left = until.saturating_sub(self.env.now());
            if left == Nanos::ZERO || !should_wait() {
                return;
            }
            self.reap_work.wait(epoch, Some(left)).await;
        }
    }

    /// Removes all datafiles that are queued. Returns messages about failures.
    async fn reap_all<R: Removal>(&self, removal: &mut R) -> Vec<String> {
        let (mut after, mut down, mut failures) = (FileId(0), BTreeSet::new(), Vec::new());
        while !self.is_stopping() {
            let map = self.core.map.get();
            let batch = match self.journal.read(|s| next_batch(s, &map, after)) {
                Ok(batch) => batch,
                Err(fault) => {
                    failures.push(format!("{fault:?}"));
                    break;
                }
            };
            let Some((last, _)) = batch.files.last() else { break };
            after = *last;
            // The batch may include rows that came during an earlier wait. Nothing is removed whose removal from the
            // namespace is not durable.
            if self.journal.durable(self.journal.now()).await.is_err() {
                failures.push("the metadata log has failed".to_owned());
                return failures;
            }
            let mut by_server = batch.by_server;
            by_server.retain(|server, _| !down.contains(server));
            for (server, error) in removal.remove(by_server).await {
                down.insert(server);
                failures.push(format!("datafiles of removed files stay for now: {error}"));
            }
            let done: Vec<FileId> = batch
                .files
                .into_iter()
                .filter(|(_, servers)| servers.is_disjoint(&down))
                .map(|(file, _)| file)
                .collect();
            self.core.freeing.lock().freed(&done);
            self.freed.notify_all();
            let removed = self.journal.write(|t| -> Outcome<()> {
                for key in done.iter().map(|file| file_key(*file)) {
                    if let Some(ReapRow { layout }) = self.core.reservations.counted_row(t, &key)?
                        && !is_seeded(Mutant::KeptReservation)
                    {
                        self.core.reservations.release(t, &layout)?;
                    }
                    t.delete(Table::Reap, &key);
                }
                Ok(())
            });
            if let Ok((_, point)) = removed {
                self.core.reaping.fetch_sub(done.len() as u64, Ordering::Relaxed);
                self.freed.notify_all();
                // If this is lost, the removal is repeated, which is harmless.
                let _ = self.journal.durable_soon(point).await;
            }
            self.journal.await_device().await;
        }
        failures.iter().for_each(|failure| self.log(&format!("warn: {failure}")));
        failures
    }

    /// Waits a bounded time until the space of large files that are being removed is free.
    pub(super) async fn wait_until_freed(&self) {
        let pending = self.core.freeing.lock().files.clone();
        let until = self.env.now().saturating_add(FREED_WITHIN);
        loop {
            let epoch = self.freed.epoch();
            let left = until.saturating_sub(self.env.now());
            if left == Nanos::ZERO || pending.is_disjoint(&self.core.freeing.lock().files) {
                return;
            }
            self.freed.wait(epoch, Some(left)).await;
        }
    }

    /// Waits a bounded time until these datafiles are removed and their reservations released.
    pub(super) async fn wait_until_reaped(&self, data: FileId) -> Outcome<()> {
        self.wake_reaper();
        let until = self.env.now().saturating_add(FREED_WITHIN);
        loop {
            let epoch = self.freed.epoch();
            let left = until.saturating_sub(self.env.now());
            let is_pending = |s: &dyn Snapshot| row::<ReapRow>(s, Table::Reap, &file_key(data));
            if left == Nanos::ZERO || self.journal.read(is_pending)?.is_none() {
                return Ok(());
            }
            self.freed.wait(epoch, Some(left)).await;
        }
    }

    pub(super) async fn wait_for_reaper(&self) {
        loop {
            let epoch = self.reaper_ended.epoch();
            if !self.reaper_runs.load(Ordering::SeqCst) {
                return;
            }
            self.reaper_ended.wait(epoch, None).await;
        }
    }
}
