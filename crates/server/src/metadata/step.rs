//! One step on the database, and when its reply may go out.

use super::Service;
use super::fault::{Fault, Outcome};
use super::op::Op;
use super::open::Urgency;
use super::serve::Call;
use super::tables::{put_row, row};
use weft_env::Env;
use weft_env::plants::{Plant, planted};
use weft_store::metadata::{Engine, ReplyRow, Snapshot, Table, Transaction, reply_key};
use weft_wire::Errno;
use weft_wire::meta::MetaReply;

impl<E: Env> Service<E> {
    pub(super) fn op<'a>(&'a self, call: &'a Call<'_>) -> Op<'a> {
        let (session, trusted) = (call.ctx.session, call.ctx.is_trusted());
        Op { core: &self.core, who: &call.who, session, trusted, now: self.env.wall() }
    }

    /// A step that changes nothing.
    pub(super) fn look<T>(
        &self,
        call: &Call<'_>,
        body: impl FnOnce(&dyn Snapshot, &Op<'_>) -> Outcome<T>,
    ) -> Outcome<T> {
        let op = self.op(call);
        self.journal.read(|s| body(s, &op))
    }

    /// A step that changes something; its result may be told when it is durable, if it is urgent.
    pub(super) async fn commit<T>(
        &self,
        call: &Call<'_>,
        body: impl FnOnce(&mut dyn Transaction, &Op<'_>) -> Outcome<(T, Urgency)>,
    ) -> Outcome<T> {
        self.journal.room().await;
        let op = self.op(call);
        let ((told, urgency), point) = self.journal.write(|t| body(t, &op))?;
        match urgency {
            Urgency::Durable if !planted(Plant::EarlyCommit) => self.journal.durable(point).await?,
            Urgency::Durable => self.journal.lazily(point).await?,
            Urgency::Lazy => self.journal.lazily(point).await?,
        }
        Ok(told)
    }

    /// The same, done once for each number on a slot.
    pub(super) async fn once(
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
            if let Some(stored) = stored.filter(|_| !planted(Plant::ChangeTwice)) {
                if stored.seq > seq {
                    let detail =
                        format!("request {seq} of slot {} comes after {}", call.ctx.slot, stored.seq);
                    return Err(Fault::new(Errno::EPROTO, detail));
                }
                if stored.seq == seq {
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

    pub(super) async fn change(
        &self,
        call: &Call<'_>,
        body: impl FnOnce(&mut dyn Transaction, &Op<'_>) -> Outcome<MetaReply>,
    ) -> Outcome<MetaReply> {
        self.once(call, |t, op| Ok((body(t, op)?, Urgency::Durable)), |_, _, reply| Ok(reply)).await
    }

    /// A change that takes more room: refused where there is hardly any left, so that removals find some.
    pub(super) async fn grow(
        &self,
        call: &Call<'_>,
        body: impl FnOnce(&mut dyn Transaction, &Op<'_>) -> Outcome<MetaReply>,
    ) -> Outcome<MetaReply> {
        self.change(call, |t, op| {
            self.check_room()?;
            body(t, op)
        })
        .await
    }

    pub(super) fn check_room(&self) -> Outcome<()> {
        if self.journal.is_low() {
            const WHY: &str = "the device of the metadata is full: make room there, or remove something";
            return Err(Fault::new(Errno::ENOSPC, WHY));
        }
        Ok(())
    }

    pub(super) async fn change_as_urgent(
        &self,
        call: &Call<'_>,
        body: impl FnOnce(&mut dyn Transaction, &Op<'_>) -> Outcome<(MetaReply, Urgency)>,
    ) -> Outcome<MetaReply> {
        // Opening and cutting again is harmless, and their effect in memory is wanted: no reply is kept.
        self.commit(call, body).await
    }
}
