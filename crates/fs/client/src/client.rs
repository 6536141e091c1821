//! A session with a cluster: its parts, its opens, and the events that a mount waits for.

use crate::attempts::ATTEMPTS_MAX;
use crate::call::Effect;
use crate::core::{BeforeOpen, Core};
use crate::counters::Counts;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::file::OpenFile;
use crate::options::{ClientOptions, Credentials};
use crate::session::Session;
use crate::token::HandleToken;
use std::sync::Arc;
use weft_env::Env;
use weft_wire::hello::{Identity, SessionId};
use weft_wire::meta::{
    Event, HandleId, InodePath, LayoutSpec, MetaReply, MetaRequest, OpenFlags, ReclaimOpen, Redirected,
    WriteSummary,
};
use weft_wire::{ClusterMap, Errno};

/// One session with a cluster. Clones share it; dropping the last clone ends the session and releases its locks.
pub struct Client<E: Env> {
    pub(crate) session: Session<E>,
}

impl<E: Env> Clone for Client<E> {
    fn clone(&self) -> Self {
        Self { session: self.session.clone() }
    }
}

impl<E: Env> std::fmt::Debug for Client<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("session", &self.session.core.session_id).finish_non_exhaustive()
    }
}

impl<E: Env> Client<E> {
    /// Creates a session. It connects when it is first used.
    pub fn new(
        env: E,
        map: impl Into<Arc<ClusterMap>>,
        options: ClientOptions,
        credentials: Credentials,
    ) -> Self {
        let core = Arc::new(Core::new(env, map.into(), options, credentials));
        Self { session: Session { core, on_behalf: None } }
    }

    /// Number of the session.
    pub fn session(&self) -> SessionId {
        self.session.core.session_id
    }

    /// Servers and targets of the cluster, as far as this client knows them: from the cluster file until the first answer
    /// of the metadata server.
    pub fn map(&self) -> Arc<ClusterMap> {
        self.session.core.map()
    }

    /// Asks the metadata server for the servers and targets of the cluster, and tries for a few seconds only to reach it.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn fetch_map(&self) -> Result<Arc<ClusterMap>> {
        let core = &self.session.core;
        let (deadline, identity) = (Deadline::brief(core), self.session.identity());
        match core.call_until(deadline, identity, Effect::Repeatable, MetaRequest::ClusterMap).await? {
            MetaReply::ClusterMap(_) | MetaReply::MapWithDomains { .. } => Ok(self.map()),
            _ => Err(Error::unexpected_reply()),
        }
    }

    /// Options of this client.
    pub fn options(&self) -> &ClientOptions {
        &self.session.core.options
    }

    /// Environment that the client runs in, real or simulated.
    pub fn env(&self) -> &E {
        &self.session.core.env
    }

    /// Counts of messages, leases and connections since the client was created.
    pub fn counts(&self) -> Counts {
        // A lease that ends between these two reads may be counted twice, but never missed.
        let held = self.session.core.leases.operations();
        let mut counts = self.session.core.counters.read();
        counts.leased_operations += held;
        counts
    }

    /// Returns this session acting for another user, as a mount run by root does for its callers. Servers ignore the
    /// identity unless this process belongs to root.
    #[must_use]
    pub fn on_behalf(&self, identity: Identity) -> Self {
        let core = Arc::clone(&self.session.core);
        Self { session: Session { core, on_behalf: Some(Arc::new(identity)) } }
    }

    /// Connects to every server that this session has no connection to.
    ///
    /// # Errors
    /// `Unreachable`, for the last server that cannot be reached.
    pub async fn connect_all(&self) -> Result<()> {
        self.session.core.connect_all().await
    }

    /// Makes no further connections where there is one, because this process is not the session's user any more.
    pub fn keep_connections(&self) {
        self.session.core.keep_connections();
    }

    /// Closes all idle connections. The session must have no open files; every later call fails.
    pub fn abandon(&self) {
        self.session.core.abandon();
    }

    /// Whether [`Self::abandon`] was called.
    pub fn is_abandoned(&self) -> bool {
        self.session.core.is_abandoned()
    }

    /// Returns a fresh session for a forked child.
    ///
    /// The child leaves the parent's connections and leases alone and closes its own copies of them where it can.
    /// Everything that came from `self` fails from now on. The child reopens a file with [`Client::adopt`], from a
    /// token taken before the fork or from the inherited open file.
    #[must_use]
    pub fn after_fork_in_child(&self) -> Self {
        self.session.core.abandon();
        let core = &self.session.core;
        let fresh = Core::new(core.env.clone(), core.map(), core.options.clone(), core.credentials.clone());
        Self { session: Session { core: Arc::new(fresh), on_behalf: self.session.on_behalf.clone() } }
    }

    /// Opens a file with one message, and creates it first if `flags` ask for that.
    ///
    /// # Errors
    /// Errors of open(2); `EINVAL` if `flags` ask to create a directory; `Unreachable`;
    /// [`Error::ExternalLink`](crate::Error::ExternalLink).
    pub async fn open(
        &self,
        at: &InodePath,
        flags: OpenFlags,
        mode: u32,
        spec: &LayoutSpec,
    ) -> Result<OpenFile<E>> {
        if flags.create && flags.directory {
            return Err(Error::misuse(Errno::EINVAL, "an open creates no directory"));
        }
        self.send_open(at, flags, mode, spec).await
    }

    /// Creates a regular file without a name in the directory `at` (`O_TMPFILE`), and opens it, with one message.
    ///
    /// The file is removed at its last close, unless [`OpenFile::link`] has given it a name. With `flags.exclusive` it
    /// never gets one. Its layout is that of a new file in the directory.
    ///
    /// # Errors
    /// Errors of open(2); `EINVAL` without `flags.write`; `Unreachable`;
    /// [`Error::ExternalLink`](crate::Error::ExternalLink).
    pub async fn open_unnamed(
        &self,
        at: &InodePath,
        flags: OpenFlags,
        mode: u32,
        spec: &LayoutSpec,
    ) -> Result<OpenFile<E>> {
        if !flags.write {
            return Err(Error::misuse(Errno::EINVAL, "a file without a name needs an open for writing"));
        }
        // No other open has both flags.
        let flags = OpenFlags { create: true, directory: true, truncate: false, ..flags };
        self.send_open(at, flags, mode, spec).await
    }

    async fn send_open(
        &self,
        at: &InodePath,
        flags: OpenFlags,
        mode: u32,
        spec: &LayoutSpec,
    ) -> Result<OpenFile<E>> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let repeated = self.session.core.counters.repeated.get();
            let handle = self.session.core.new_handle();
            let before = self.session.core.before_open();
            let request = MetaRequest::Open {
                at: at.clone(),
                flags,
                mode,
                handle,
                layout: spec.clone(),
                // A kernel writes faster past its page cache, and a kernel without cached pages needs no
                // invalidations.
                cache: self.session.core.options.kernel_cache && !flags.write,
                ranks: self.session.core.options.ranks,
            };
            let error = match self.session.call(Effect::Once, request).await {
                Ok(answer) => return self.opened(answer, (handle, flags), before, &at.path).await,
                Err(error) => error,
            };
            if matches!(error, Error::Refused(_)) && self.session.core.counters.repeated.get() != repeated {
                // The first request may have opened the file and lost its reply, so that the repetition was refused.
                let _ = self
                    .session
                    .core
                    .send_one_way(None, MetaRequest::Close { handle, summary: WriteSummary::default() })
                    .await;
            }
            if error.errno() != Errno::EALREADY.0 || attempt == ATTEMPTS_MAX {
                return Err(error.about(&at.path));
            }
        }
    }

    /// Reopens a file that another process of the same user has open, after fork and exec.
    ///
    /// # Errors
    /// `ESTALE` when the file is gone. `EACCES` when the token belongs to another user, or when the caller neither
    /// owns the file nor may still open it. `Unreachable`.
    pub async fn adopt(&self, token: &HandleToken) -> Result<OpenFile<E>> {
        self.send_adopt(token, false).await
    }

    /// Reopens a file that a process of the job has open, to cache its pages in an I/O delegate as long as
    /// [`OpenFile::receives_invalidations`] says so. Needs [`ClientOptions::job`] and [`Client::wait_events`].
    ///
    /// # Errors
    /// As for [`Client::adopt`].
    pub async fn adopt_to_cache(&self, token: &HandleToken) -> Result<OpenFile<E>> {
        self.send_adopt(token, self.session.core.options.job.is_some()).await
    }

    async fn send_adopt(&self, token: &HandleToken, caching: bool) -> Result<OpenFile<E>> {
        let handle = self.session.core.new_handle();
        let before = self.session.core.before_open();
        let HandleToken { file, flags, proof, session: parent, .. } = *token;
        let open = ReclaimOpen {
            handle,
            file,
            flags,
            proof: Some(proof),
            cap: None,
            caching,
            redirected: Redirected::No,
        };
        let reply = self.session.call(Effect::Repeatable, MetaRequest::Adopt { open, parent }).await;
        let reply = reply.map_err(|e| e.about(&token.path))?;
        self.opened(reply, (handle, flags), before, &token.path).await
    }

    async fn opened(
        &self,
        reply: MetaReply,
        requested: (HandleId, OpenFlags),
        before: BeforeOpen,
        path: &[u8],
    ) -> Result<OpenFile<E>> {
        let MetaReply::Opened(opened) = reply else { return Err(Error::unexpected_reply()) };
        OpenFile::from_opened(&self.session, requested, before, path, *opened).await
    }

    /// Connects for [`Client::wait_events`]. The server reports every later write by another client.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn listen(&self) -> Result<()> {
        self.session.core.listen().await
    }

    /// Waits a short time for pages that the kernel of this mount, or this I/O delegate, must drop, and acknowledges all
    /// events up to `done`.
    ///
    /// Fails as soon as the connection has been lost since [`Client::listen`]: events may have been missed.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn wait_events(&self, done: u64) -> Result<Vec<Event>> {
        match self
            .session
            .core
            .call_on_event_connection(self.session.identity(), MetaRequest::WaitEvents { done })
            .await?
        {
            MetaReply::Events(events) => Ok(events),
            _ => Err(Error::unexpected_reply()),
        }
    }
}
