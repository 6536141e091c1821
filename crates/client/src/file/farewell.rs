//! The end of an open file.

use super::State;
use crate::core::Core;
use crate::error::Result;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use weft_env::Env;
use weft_wire::meta::{HandleId, MetaRequest, WriteSummary};

impl<E: Env> State<E> {
    /// What is left to do when the last clone goes; `None` when nothing is.
    pub(super) fn farewell(&mut self) -> Option<Farewell<E>> {
        let leased = self.home.as_mut().is_some_and(super::home::Home::clear);
        if std::mem::replace(&mut self.closed, true) || self.client.core.is_abandoned() {
            return None;
        }
        let core = Arc::clone(&self.client.core);
        let written = self.some_home().map(|home| home.ends.written(home.data)).unwrap_or_default();
        let (handle, summary) = (self.record.handle, self.written.summary(&core.env, written));
        core.registry.closed(handle);
        (!self.record.lost.load(Relaxed)).then_some(Farewell { core, handle, summary, leased })
    }
}

/// The end of an open file, detached from it.
pub(super) struct Farewell<E: Env> {
    core: Arc<Core<E>>,
    handle: HandleId,
    summary: WriteSummary,
    leased: bool,
}

impl<E: Env> Farewell<E> {
    pub(super) async fn say(self) -> Result<()> {
        let Self { core, handle, summary, leased } = self;
        core.until_reclaimed().await;
        let result = core.tell(None, MetaRequest::Close { handle, summary }).await;
        if leased {
            for server in &core.servers {
                server.channel.give_back().await;
            }
        }
        result
    }
}

impl<E: Env> Drop for State<E> {
    fn drop(&mut self) {
        if let Some(farewell) = self.farewell() {
            let env = self.client.core.env.clone();
            // Nobody is left to be told of an error; the session's end closes what this could not.
            let _ = env.detach("weft close", move || async move {
                let _ = farewell.say().await;
            });
        }
    }
}
