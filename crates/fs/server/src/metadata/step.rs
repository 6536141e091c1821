//! One step on the database, and the durability its reply needs.

use super::Service;
use super::fault::{Fault, Outcome};
use super::op::Op;
use super::open::Urgency;
use super::serve::Call;
use super::tables::{put_row, row};
use std::cell::Cell;
use std::sync::atomic::Ordering;
use weft_core::FileId;
use weft_env::mutants::{Mutant, is_seeded};
use weft_env::{Env, Notify};
use weft_store::metadata::{Engine, Point, ReplyRow, Snapshot, Table, Transaction, reply_key};
use weft_wire::Errno;
use weft_wire::meta::MetaReply;

impl<E: Env> Service<E> {
    pub(super) fn op<'a>(&'a self, call: &'a Call<'_>) -> Op<'a> {
        let (session, job, level) = (call.ctx.session, call.ctx.job, call.ctx.level);
        let (trusted, acts_for_users) = (call.ctx.is_trusted(), call.ctx.acts_for_users());
        let (now, clock) = (self.env.wall(), self.env.now());
        let (changed_bytes, is_repeated) = (Cell::new(None), Cell::new(false));
        let (core, caller) = (&self.core, &call.caller);
        Op {
            core,
            caller,
            session,
            level,
            job,
            trusted,
            acts_for_users,
            now,
            clock,
            changed_bytes,
            is_repeated,
        }
    }

    /// A step that changes nothing.
    pub(super) fn read<T>(
        &self,
        call: &Call<'_>,
        body: impl FnOnce(&dyn Snapshot, &Op<'_>) -> Outcome<T>,
    ) -> Outcome<T> {
        let op = self.op(call);
        self.journal.read(|s| body(s, &op))
    }

    /// Runs a step that may change the database. Returns when the change survives what its urgency says, and no mount uses
    /// outdated names or attributes. If it is refused, the state that it saw survives as much as a change of names: a program
    /// relies on EEXIST, for example.
    pub(super) async fn commit<T>(
        &self,
        call: &Call<'_>,
        body: impl FnOnce(&mut dyn Transaction, &Op<'_>) -> Outcome<(T, Urgency)>,
    ) -> Outcome<T> {
        self.journal.throttle().await;
        let op = self.op(call);
        let written = self.journal.write(|t| self.revoking(t, &op, body));
        let changed_bytes = op.changed_bytes.get();
        let (((result, urgency), revoked), point) = match written {
            Ok(done) => done,
            Err(fault) => {
                changed_bytes.iter().for_each(|file| self.core.unsynced_bytes.lock().refused(*file));
                return Err(self.after_durable(call, fault).await);
            }
        };
        match urgency {
            Urgency::Lazy => self.journal.durable_soon(point).await?,
            _ if is_seeded(Mutant::EarlyCommit) => self.journal.durable_soon(point).await?,
            Urgency::Name => self.name_durable(call, point).await?,
            Urgency::Durable => self.journal.durable(point).await?,
        }
        // If the log has failed, clients on other hosts never see these bytes.
        if let Some(file) = changed_bytes {
            let durable = self.journal.durable_point();
            self.core.unsynced_bytes.lock().written(file, point, durable);
            if self.core.growths.lock().take_ended() {
                self.hold_ended.notify_all();
            }
        }
        self.wait_for_revoked(revoked).await;
        Ok(result)
    }

    /// Waits until the bytes and sizes of files that the client has seen survive a loss of power, unless it ends with this
    /// host.
    pub(super) async fn wait_for_seen(
        &self,
        call: &Call<'_>,
        files: impl IntoIterator<Item = FileId>,
    ) -> Outcome<()> {
        if call.ctx.ends_with_host {
            return Ok(());
        }
        let durable = self.journal.durable_point();
        let are_durable = {
            let unsynced = self.core.unsynced_bytes.lock();
            files.into_iter().all(|file| unsynced.are_durable(file, durable))
        };
        if !are_durable {
            self.journal.durable(self.journal.now()).await?;
        }
        Ok(())
    }

    /// Waits until names and attributes up to `point` are as durable as the client needs.
    async fn name_durable(&self, call: &Call<'_>, point: Point) -> Outcome<()> {
        if !call.ctx.ends_with_host {
            return Ok(self.journal.durable(point).await?);
        }
        self.early_names.fetch_max(point.0, Ordering::SeqCst);
        Ok(self.journal.written(point).await?)
    }

    /// Waits until all changes of names and attributes that were answered before their sync survive a loss of power.
    pub(super) async fn sync_names(&self) -> Outcome<()> {
        Ok(self.journal.durable(Point(self.early_names.load(Ordering::SeqCst))).await?)
    }

    /// Waits until the state that a refused change saw is durable. If that fails, returns the error of the journal instead.
    pub(super) async fn after_durable(&self, call: &Call<'_>, refused: Fault) -> Fault {
        if matches!(refused, Fault::Elsewhere { .. } | Fault::Growing(_) | Fault::Leased(_)) {
            return refused;
        }
        match self.name_durable(call, self.journal.now()).await {
            Ok(()) => refused,
            Err(error) => error,
        }
    }

    /// Runs a change at most once for each sequence number of a slot, and stores its reply. A repeated request gets the
    /// stored reply by way of `again`.
    pub(super) async fn change_once(
        &self,
        call: &Call<'_>,
        body: impl FnOnce(&mut dyn Transaction, &Op<'_>) -> Outcome<(MetaReply, Urgency)>,
        again: impl FnOnce(&mut dyn Transaction, &Op<'_>, MetaReply) -> Outcome<MetaReply>,
    ) -> Outcome<MetaReply> {
        let seq = call.seq;
        if seq == 0 {
            return self.commit(call, body).await;
        }
        let key = reply_key(call.ctx.session.0, call.ctx.slot);
        let step = |t: &mut dyn Transaction, op: &Op<'_>| {
            let stored = row::<ReplyRow>(t, Table::Replies, &key)?;
            if let Some(stored) = stored.filter(|_| !is_seeded(Mutant::ChangeTwice)) {
                if stored.seq > seq {
                    let detail =
                        format!("request {seq} of slot {} comes after request {}", call.ctx.slot, stored.seq);
                    return Err(Fault::new(Errno::EPROTO, detail));
                }
                if stored.seq == seq {
                    op.is_repeated.set(true);
                    let reply = postcard::from_bytes(&stored.reply)
                        .map_err(|_| Fault::new(Errno::EIO, "a stored reply does not decode"))?;
                    return Ok((again(t, op, reply)?, Urgency::Durable));
                }
            }
            let (reply, urgency) = body(t, op)?;
            let stored = postcard::to_allocvec(&reply).expect("replies always encode");
            put_row(t, Table::Replies, &key, &ReplyRow { seq, reply: stored });
            Ok((reply, urgency))
        };
        self.commit(call, step).await
    }

    /// Runs a change that must survive a loss of power.
    pub(super) async fn change(
        &self,
        call: &Call<'_>,
        body: impl FnOnce(&mut dyn Transaction, &Op<'_>) -> Outcome<MetaReply>,
    ) -> Outcome<MetaReply> {
        self.change_to(call, Urgency::Durable, body).await
    }

    /// Runs a change once, with the durability that it needs.
    pub(super) async fn change_to(
        &self,
        call: &Call<'_>,
        urgency: Urgency,
        body: impl FnOnce(&mut dyn Transaction, &Op<'_>) -> Outcome<MetaReply>,
    ) -> Outcome<MetaReply> {
        self.change_once(call, |t, op| Ok((body(t, op)?, urgency)), |_, _, reply| Ok(reply)).await
    }

    /// Runs a change that needs space. It is refused when little is left, so that removals still work.
    pub(super) async fn change_with_space(
        &self,
        call: &Call<'_>,
        urgency: Urgency,
        body: impl FnOnce(&mut dyn Transaction, &Op<'_>) -> Outcome<MetaReply>,
    ) -> Outcome<MetaReply> {
        self.change_to(call, urgency, |t, op| {
            self.require_space()?;
            body(t, op)
        })
        .await
    }

    pub(super) fn require_space(&self) -> Outcome<()> {
        if self.journal.is_low() {
            const WHY: &str = "the device of the metadata is full: free space there, or remove files";
            return Err(Fault::new(Errno::ENOSPC, WHY));
        }
        Ok(())
    }
}
