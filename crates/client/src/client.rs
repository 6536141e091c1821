//! A session with a cluster: what it is made of, opens, and the news that a mount waits for.

use crate::call::{ATTEMPTS_MAX, Effect};
use crate::control::odd_reply;
use crate::core::Core;
use crate::counters::Counts;
use crate::error::{Error, Result};
use crate::file::OpenFile;
use crate::options::{ClientOptions, Credentials};
use crate::size::LastKnown;
use crate::token::HandleToken;
use std::sync::Arc;
use weft_env::Env;
use weft_wire::hello::{Identity, SessionId};
use weft_wire::meta::{
    Attr, Event, HandleId, LayoutSpec, MetaReply, MetaRequest, OpenFlags, Place, ReclaimOpen, WriteSummary,
};
use weft_wire::{ClusterMap, Errno};

/// One session with a cluster. Clones share it and everything in it; the last one ends it, and with it its locks.
pub struct Client<E: Env> {
    pub(crate) core: Arc<Core<E>>,
    pub(crate) on_behalf: Option<Arc<Identity>>,
}

impl<E: Env> Clone for Client<E> {
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core), on_behalf: self.on_behalf.clone() }
    }
}

impl<E: Env> std::fmt::Debug for Client<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("session", &self.core.session).finish_non_exhaustive()
    }
}

impl<E: Env> Client<E> {
    /// A session that connects when it is first needed.
    pub fn new(
        env: E,
        map: impl Into<Arc<ClusterMap>>,
        options: ClientOptions,
        credentials: Credentials,
    ) -> Self {
        Self { core: Arc::new(Core::new(env, map.into(), options, credentials)), on_behalf: None }
    }

    /// The session's number.
    pub fn session(&self) -> SessionId {
        self.core.session
    }

    /// The cluster.
    pub fn map(&self) -> &ClusterMap {
        &self.core.map
    }

    /// How it behaves.
    pub fn options(&self) -> &ClientOptions {
        &self.core.options
    }

    /// The world that it lives in.
    pub fn env(&self) -> &E {
        &self.core.env
    }

    /// What was done so far.
    pub fn counts(&self) -> Counts {
        // A lease that ends between the two is not missed, but may be counted twice.
        let held = self.core.leases.operations();
        let mut counts = self.core.counters.read();
        counts.leased_operations += held;
        counts
    }

    /// The same session for another caller: a mount by root acts for whoever asked the kernel. Ignored by servers
    /// unless this process is root.
    #[must_use]
    pub fn on_behalf(&self, who: Identity) -> Self {
        Self { core: Arc::clone(&self.core), on_behalf: Some(Arc::new(who)) }
    }

    /// In a forked child: a fresh session. The parent's connections and leases are left alone (this process's copies
    /// are closed where they can be), and everything that came from `self` refuses to do anything; open files are
    /// had again by [`Client::adopt`] of tokens taken before the fork or from the inherited files.
    #[must_use]
    pub fn after_fork_in_child(&self) -> Self {
        self.core.abandon();
        let core = &self.core;
        let fresh = Core::new(
            core.env.clone(),
            Arc::clone(&core.map),
            core.options.clone(),
            core.credentials.clone(),
        );
        Self { core: Arc::new(fresh), on_behalf: self.on_behalf.clone() }
    }

    pub(crate) fn who(&self) -> Option<&Identity> {
        self.on_behalf.as_deref()
    }

    pub(crate) async fn call(&self, effect: Effect, request: MetaRequest) -> Result<MetaReply> {
        self.core.call(self.who(), effect, request).await
    }

    /// Opens a file, making it first where `flags` say so: one message.
    ///
    /// # Errors
    /// Those of open(2); `Unreachable`; [`Error::Elsewhere`](crate::Error::Elsewhere).
    pub async fn open(
        &self,
        at: &Place,
        flags: OpenFlags,
        mode: u32,
        spec: &LayoutSpec,
    ) -> Result<OpenFile<E>> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let repeated = self.core.counters.repeated.get();
            let handle = self.core.new_handle();
            let request = MetaRequest::Open {
                at: at.clone(),
                flags,
                mode,
                handle,
                layout: spec.clone(),
                // A kernel writes faster past its pages, and one that has none need not be told of writes by others.
                cache: self.core.options.kernel_cache && !flags.write,
            };
            let error = match self.call(Effect::Once, request).await {
                Ok(answer) => return self.opened(answer, handle, flags, &at.path).await,
                Err(error) => error,
            };
            if matches!(error, Error::Refused(_)) && self.core.counters.repeated.get() != repeated {
                // It may have been opened by a request whose reply was lost, and refused when that was repeated.
                let _ = self
                    .core
                    .tell(None, MetaRequest::Close { handle, summary: WriteSummary::default() })
                    .await;
            }
            if error.errno() != Errno::EALREADY.0 || attempt == ATTEMPTS_MAX {
                return Err(error.about(&at.path));
            }
        }
    }

    /// Opens again what another process of the same user had open: after fork and exec.
    ///
    /// # Errors
    /// `ESTALE` when the file is gone; `EACCES` when the token is another user's, or the caller neither owns the file nor
    /// may open it so any more; `Unreachable`.
    pub async fn adopt(&self, token: &HandleToken) -> Result<OpenFile<E>> {
        let handle = self.core.new_handle();
        let HandleToken { file, flags, proof, session: parent, .. } = *token;
        let open = ReclaimOpen { handle, file, flags, proof: Some(proof), cap: None, caching: false };
        let reply = self.call(Effect::Repeatable, MetaRequest::Adopt { open, parent }).await;
        self.opened(reply.map_err(|e| e.about(&token.path))?, handle, token.flags, &token.path).await
    }

    async fn opened(
        &self,
        reply: MetaReply,
        handle: HandleId,
        flags: OpenFlags,
        path: &[u8],
    ) -> Result<OpenFile<E>> {
        let MetaReply::Opened(opened) = reply else { return Err(odd_reply()) };
        OpenFile::from_opened(self, handle, flags, path, *opened).await
    }

    /// Begins to listen for [`Client::wait_events`]. What is written from here on is told.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn listen(&self) -> Result<()> {
        self.core.listen().await
    }

    /// Waits a little for pages that this mount's kernel must drop, and says that all up to `done` were. Fails as soon
    /// as the connection is lost since [`Client::listen`]: what happened meanwhile nobody told.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn wait_events(&self, done: u64) -> Result<Vec<Event>> {
        match self.core.call_unbroken(self.who(), MetaRequest::WaitEvents { done }).await? {
            MetaReply::Events(events) => Ok(events),
            _ => Err(odd_reply()),
        }
    }

    pub(crate) async fn about(&self, at: &Place, effect: Effect, request: MetaRequest) -> Result<MetaReply> {
        self.call(effect, request).await.map_err(|error| error.about(&at.path))
    }

    pub(crate) async fn done(&self, at: &Place, effect: Effect, request: MetaRequest) -> Result<()> {
        match self.about(at, effect, request).await? {
            MetaReply::Done => Ok(()),
            _ => Err(odd_reply()),
        }
    }

    pub(crate) async fn attr_reply(
        &self,
        at: &Place,
        effect: Effect,
        request: MetaRequest,
    ) -> Result<LastKnown> {
        let MetaReply::Attr(attr) = self.about(at, effect, request).await? else { return Err(odd_reply()) };
        let mut known = self.resolve(attr).await.map_err(|error| error.about(&at.path))?;
        known.error = known.error.map(|error| error.about(&at.path));
        Ok(known)
    }

    /// The attributes after a change, which is done also where a data server cannot be asked for the size.
    pub(crate) async fn changed_attr(&self, at: &Place, request: MetaRequest) -> Result<Attr> {
        Ok(self.attr_reply(at, Effect::Once, request).await?.attr)
    }
}
