//! Unlocks that the metadata service did not hear: whoever waits for the lock would wait for ever.

use crate::call::Effect;
use crate::core::Core;
use crate::error::{Error, Result};
use weft_env::Env;
use weft_wire::meta::{LockOwner, LockSpace, MetaRequest};

impl<E: Env> Core<E> {
    /// An unlock failed because the service did not answer: it is said again before the next request. Connections that
    /// nobody uses are closed, so that the locks of a process that asks for nothing more end with its session; but the
    /// service takes an append lock back by itself, and the session's other locks are worth keeping.
    pub(crate) fn owe(&self, unlock: MetaRequest) {
        let of_append = matches!(
            unlock,
            MetaRequest::Unlock { space: LockSpace::Append, .. } | MetaRequest::Forsake { .. }
        );
        self.owed.lock().push(unlock);
        if of_append {
            return;
        }
        self.metadata.disconnect_idle();
        // Those for data of the same server keep the session alive, too.
        self.metadata_server().lines.disconnect_idle();
    }

    /// Says again what `wanted` picks, if anything; nobody else says it meanwhile or later.
    pub(crate) async fn pay(&self, wanted: impl Fn(&MetaRequest) -> bool) -> Result<()> {
        if self.owed.lock().is_empty() {
            return Ok(());
        }
        let _under_way = self.begin_reclaim();
        let due: Vec<MetaRequest> = {
            let mut owed = self.owed.lock();
            let (due, rest) = owed.drain(..).partition(|unlock| wanted(unlock));
            *owed = rest;
            due
        };
        let mut failed = None;
        for unlock in due {
            let said = match &failed {
                None => self.call_as_is(None, Effect::Repeatable, unlock.clone()).await.map(drop),
                Some(_) => Err(Error::Interrupted),
            };
            match said {
                // Closed or given up by other means.
                Ok(()) | Err(Error::Refused(_)) => {}
                Err(error) => {
                    self.owed.lock().push(unlock);
                    failed.get_or_insert(error);
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Before `owner` asks for a lock: no unlock of before may be heard after it.
    pub(crate) async fn pay_before_lock(&self, space: LockSpace, owner: LockOwner) -> Result<()> {
        self.pay(|unlock| {
            matches!(unlock, MetaRequest::Unlock { space: s, owner: o, .. } if (*s, *o) == (space, owner))
        })
        .await?;
        self.until_reclaimed().await;
        Ok(())
    }
}
