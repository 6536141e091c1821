//! Revoked keys: stored in the database, distributed to the data servers, refused by this server.

use super::Service;
use super::fault::{Fault, Outcome};
use super::op::Op;
use super::serve::Call;
use super::tables::put_row;
use std::ops::Bound;
use weft_env::{Env, Notify};
use weft_store::metadata::{RevokedRow, Scan, Snapshot, Table, Transaction, revoked_key};
use weft_wire::ClusterSecret;
use weft_wire::Errno;
use weft_wire::keys::{KeyId, REVOKED_MAX, Revoked};
use weft_wire::meta::MetaReply;

impl<E: Env> Service<E> {
    /// Revokes keys. When the reply is sent, the change is durable and this server refuses them; each data server
    /// learns of it with its next poll.
    pub(super) async fn revoke_keys(&self, call: &Call<'_>, keys: &[KeyId]) -> Outcome<MetaReply> {
        let generation = self.core.secret.generations().into_iter().max().unwrap_or_default();
        let reply = self.change(call, |t, op| op.revoke_keys(t, keys, generation)).await?;
        self.core.secret.revoke(keys.iter().copied());
        self.watch_work.notify_all();
        Ok(reply)
    }

    pub(super) fn revoked_keys(&self) -> MetaReply {
        MetaReply::Revoked(Revoked { keys: self.core.secret.revoked() })
    }
}

impl Op<'_> {
    fn revoke_keys(&self, t: &mut dyn Transaction, keys: &[KeyId], generation: u32) -> Outcome<MetaReply> {
        let mut known = Vec::new();
        each(t, |key, _| known.push(key))?;
        let new: Vec<_> = keys.iter().filter(|key| !known.contains(key)).collect();
        if new.contains(&&KeyId::ROOT) {
            const WHY: &str =
                "key 0000000000000000 is the servers' root key: use `weft key rotate` to change it";
            return Err(Fault::new(Errno::EINVAL, WHY));
        }
        if known.len() + new.len() > REVOKED_MAX {
            let why = format!(
                "{} keys are revoked, and {REVOKED_MAX} can be: `weft key rotate` ends all keys of the present \
                 generation",
                known.len()
            );
            return Err(Fault::new(Errno::ENOSPC, why));
        }
        let at_s = u64::try_from(self.now.parts().0).unwrap_or(0);
        for key in new {
            put_row(t, Table::Revoked, &revoked_key(key.0), &RevokedRow { at_s, generation });
        }
        Ok(MetaReply::Done)
    }
}

/// Refuses the keys that were revoked before this start. Deletes those whose generation is no longer accepted.
pub(super) fn begin(t: &mut dyn Transaction, secret: &ClusterSecret) -> Outcome<()> {
    let oldest = secret.generations().into_iter().min().unwrap_or_default();
    let (mut revoked, mut gone) = (Vec::new(), Vec::new());
    each(t, |key, row| if row.generation < oldest { gone.push(key) } else { revoked.push(key) })?;
    gone.iter().for_each(|key| t.delete(Table::Revoked, &revoked_key(key.0)));
    secret.revoke(revoked);
    Ok(())
}

fn each(s: &dyn Snapshot, mut with: impl FnMut(KeyId, RevokedRow)) -> Outcome<()> {
    let mut found = Vec::new();
    s.scan(Table::Revoked, Bound::Unbounded, &mut |key, value| {
        let number = key.try_into().map_or(0, u64::from_be_bytes);
        found.push((KeyId(number), value.open::<RevokedRow>(Table::Revoked, key)?));
        Ok(Scan::Next)
    })?;
    found.into_iter().for_each(|(key, row)| with(key, row));
    Ok(())
}

/// Whether a server that knows `known` revoked keys needs the list again. `None` if it has never received the list.
pub(super) fn needs_revoked_list(known: Option<usize>, secret: &ClusterSecret) -> bool {
    match known {
        None => secret.revoked_count() > 0,
        Some(known) => secret.revoked_count() != known,
    }
}
