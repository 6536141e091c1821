//! Closing an open file.

use super::State;
use crate::call::Effect;
use crate::core::Core;
use crate::error::Result;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use weft_env::Env;
use weft_wire::meta::{HandleId, MetaRequest, WriteSummary};

impl<E: Env> State<E> {
    /// Returns the request that closes the file, to be sent when the last clone goes; `None` if there is nothing to
    /// send.
    pub(super) fn take_close_request(&mut self) -> Option<CloseRequest<E>> {
        let leased = self.first_version.as_mut().is_some_and(super::layout_version::LayoutVersion::clear);
        if std::mem::replace(&mut self.closed, true) || self.session.core.is_abandoned() {
            return None;
        }
        let core = Arc::clone(&self.session.core);
        let written = self
            .layout_version_if_any()
            .map(|version| version.ends.written(version.data))
            .unwrap_or_default();
        let (handle, summary) = (self.record.handle, self.written.summary(&core.env, written));
        let opened = &self.opened;
        let mapped = opened.mapped_elsewhere && !opened.cached_elsewhere && (summary.wrote || summary.unsure);
        core.registry.closed(handle);
        (!self.record.lost.load(Relaxed)).then_some(CloseRequest { core, handle, summary, mapped, leased })
    }
}

/// A close that no longer needs the open file.
pub(super) struct CloseRequest<E: Env> {
    core: Arc<Core<E>>,
    handle: HandleId,
    summary: WriteSummary,
    /// Whether programs may have mapped the file on mounts, which must see its bytes before the close returns.
    mapped: bool,
    leased: bool,
}

impl<E: Env> CloseRequest<E> {
    pub(super) async fn send(self) -> Result<()> {
        let Self { core, handle, mut summary, mapped, leased } = self;
        core.wait_for_reclaims().await;
        if mapped {
            let all = MetaRequest::Invalidate { handle, start: 0, end: u64::MAX };
            // The close itself has them drop their pages later, if this fails.
            summary.reported = core.call(None, Effect::Repeatable, all).await.is_ok();
        }
        let result = core.send_one_way(None, MetaRequest::Close { handle, summary }).await;
        if leased {
            for server in core.servers() {
                server.channel.return_released().await;
            }
        }
        result
    }
}

impl<E: Env> Drop for State<E> {
    fn drop(&mut self) {
        if let Some(request) = self.take_close_request() {
            let env = self.session.core.env.clone();
            // No caller is left to receive an error. If the request fails, the end of the session closes the file.
            let _ = env.detach("weft close", move || async move {
                let _ = request.send().await;
            });
        }
    }
}
