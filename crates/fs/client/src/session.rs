//! A session as its operations see it: the shared state, and the user that they act for.

use crate::call::Effect;
use crate::core::Core;
use crate::error::{Error, Result};
use std::sync::Arc;
use weft_env::Env;
use weft_wire::hello::Identity;
use weft_wire::meta::{InodePath, MetaReply, MetaRequest};

/// One session, acting for one user. [`Client`](crate::Client) and open files each hold one.
pub(crate) struct Session<E: Env> {
    pub(crate) core: Arc<Core<E>>,
    /// The user to act for, if that is not this client's own.
    pub(crate) on_behalf: Option<Arc<Identity>>,
}

impl<E: Env> Clone for Session<E> {
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core), on_behalf: self.on_behalf.clone() }
    }
}

impl<E: Env> Session<E> {
    pub(crate) fn identity(&self) -> Option<&Identity> {
        self.on_behalf.as_deref()
    }

    pub(crate) async fn call(&self, effect: Effect, request: MetaRequest) -> Result<MetaReply> {
        self.core.call(self.identity(), effect, request).await
    }

    pub(crate) async fn call_at(
        &self,
        at: &InodePath,
        effect: Effect,
        request: MetaRequest,
    ) -> Result<MetaReply> {
        self.call(effect, request).await.map_err(|error| error.about(&at.path))
    }

    pub(crate) async fn done_at(&self, at: &InodePath, effect: Effect, request: MetaRequest) -> Result<()> {
        match self.call_at(at, effect, request).await? {
            MetaReply::Done => Ok(()),
            _ => Err(Error::unexpected_reply()),
        }
    }
}
