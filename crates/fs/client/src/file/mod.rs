//! Open files: state that all operations on one open file share.

mod capability;
mod capability_retry;
mod close_request;
mod ends;
mod layout_version;
mod leases;
mod unsynced;
mod written;

pub(crate) use capability_retry::{CapabilityRetry, LayoutRetry};
pub(crate) use ends::DatafileEnds;
pub(crate) use layout_version::LayoutVersion;
pub(crate) use unsynced::Unsynced;
pub(crate) use written::Written;

use crate::async_mutex::AsyncMutex;
use crate::call::Effect;
use crate::control::Boots;
use crate::core::BeforeOpen;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::leased_bytes::LeasedBytes;
use crate::options::Transport;
use crate::registry::OpenRecord;
use crate::replicas::Redirection;
use crate::session::Session;
use crate::size::{LastKnown, LossPolicy, OFFSET_MAX, SizeWait};
use capability::renew_at;
use parking_lot::{Mutex, RwLock};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use weft_core::{Access, AccessHistory, ByteLen, Extent, FileId, FileOffset, Layout, Nanos};
use weft_env::Env;
use weft_wire::data::DatafileMeta;
use weft_wire::hello::SessionId;
use weft_wire::meta::{
    Attr, FileType, HandleId, InodePath, MetaReply, MetaRequest, OpenFlags, Opened, Redirected, SetAttr,
};
use weft_wire::{Errno, WireError};

/// Most time that an open waits for I/O delegates of other jobs.
const RECALL_LIMIT: Nanos = Nanos::from_s(30);

/// An open file. Clones share it; the last one closes it.
pub struct OpenFile<E: Env> {
    pub(crate) state: Arc<State<E>>,
}

impl<E: Env> Clone for OpenFile<E> {
    fn clone(&self) -> Self {
        Self { state: Arc::clone(&self.state) }
    }
}

impl<E: Env> std::fmt::Debug for OpenFile<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenFile").field("record", &self.state.record).finish_non_exhaustive()
    }
}

/// State that all clones of an open file share.
pub(crate) struct State<E: Env> {
    /// Session that the file was opened in.
    pub(crate) session: Session<E>,
    pub(crate) record: Arc<OpenRecord>,
    /// Path for error messages.
    pub(crate) path: Vec<u8>,
    /// Layout at the open, with later ones linked to it; `None` for files without bytes.
    first_version: Option<LayoutVersion<E>>,
    opened: OpenAnswer,
    /// Time at which the capability must be renewed, in seconds since 1970.
    renew_at_s: AtomicU64,
    /// Offset at which a sequential request would begin.
    next: AtomicU64,
    /// Number of the next request that goes by messages.
    calls: AtomicU32,
    pub(crate) written: Written,
    pub(crate) unsynced: Unsynced,
    pub(crate) appending: AsyncMutex<E>,
    /// Held while this open file gives the file datafiles.
    pub(crate) growing: AsyncMutex<E>,
    /// Bytes of an inline file that came with the open.
    pub(crate) leased_bytes: LeasedBytes,
    /// The file's replica, if it is used; set at the open.
    replica: OnceLock<Box<Redirection<E>>>,
    /// Whether this file is the data of a replica, whose bytes the original has, too.
    is_replica: AtomicBool,
    closed: bool,
}

/// Answer of the metadata server to the open. It never changes.
struct OpenAnswer {
    created: bool,
    may_cache: bool,
    cached_elsewhere: bool,
    mapped_elsewhere: bool,
    epoch: u64,
    attr: Attr,
}

/// Returns the first request number of an open file. Open files of one client get numbers far from each other.
fn first_call(handle: HandleId) -> u32 {
    (handle.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

impl<E: Env> State<E> {
    /// Marks this file as the data of a replica. Reads do not wait long for its servers, because the original has the bytes.
    pub(crate) fn mark_as_replica(&self) {
        self.is_replica.store(true, Relaxed);
    }

    /// Starts the deadline of a read.
    pub(crate) fn read_deadline(&self) -> Deadline {
        let core = &*self.session.core;
        if self.is_replica.load(Relaxed) { Deadline::brief(core) } else { Deadline::of_request(core) }
    }

    /// Returns a new number for a request that goes by messages.
    #[inline]
    pub(crate) fn call(&self) -> u32 {
        self.calls.fetch_add(1, Relaxed)
    }

    /// Returns whether a request continues the previous one, and remembers its end.
    #[inline]
    pub(crate) fn observe(&self, extent: Extent) -> Access {
        let mut history = AccessHistory::after(FileOffset(self.next.load(Relaxed)));
        let access = history.observe(extent);
        self.next.store(history.next().0, Relaxed);
        access
    }

    /// Returns the newest layout version of a file that has bytes.
    #[inline]
    pub(crate) fn layout_version(&self) -> Result<&LayoutVersion<E>> {
        match &self.first_version {
            Some(version) => Ok(version.last()),
            None => Err(match self.opened.attr.kind {
                FileType::Directory => Error::misuse(Errno::EISDIR, "a directory has no bytes"),
                _ => Error::misuse(Errno::EINVAL, "this kind of file has no bytes here"),
            }),
        }
    }

    /// Returns the newest layout version; `None` for files without bytes.
    pub(crate) fn layout_version_if_any(&self) -> Option<&LayoutVersion<E>> {
        self.first_version.as_ref().map(LayoutVersion::last)
    }

    /// Fails if this open file cannot be used any more.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        self.session.core.check_not_forked()?;
        if self.record.lost.load(Relaxed) {
            const WHY: &str = "the open file was lost while the metadata server was away; open it again";
            return Err(Error::misuse(Errno::ESTALE, WHY));
        }
        Ok(())
    }

    /// Turns an error of the metadata server about this open file into the error for the caller.
    ///
    /// If the reconnection found the open lost, the server only says that it does not know the handle.
    pub(crate) fn explained(&self, error: Error) -> Error {
        match self.check() {
            Err(lost) if error.errno() == Errno::EBADF.0 => lost,
            _ => error.about(&self.path),
        }
    }

    /// The file's replica, if this open uses it.
    #[inline]
    pub(crate) fn replica(&self) -> Option<&Redirection<E>> {
        self.replica.get().map(|replica| &**replica)
    }

    /// Returns whether some mount's kernel caches pages of this file.
    pub(crate) fn cached_elsewhere(&self) -> bool {
        self.opened.cached_elsewhere
    }
}

impl<E: Env> OpenFile<E> {
    /// Creates an open file from the metadata server's answer, and truncates the datafiles if the answer asks for
    /// that.
    pub(crate) async fn from_opened(
        session: &Session<E>,
        (handle, flags): (HandleId, OpenFlags),
        before: BeforeOpen,
        path: &[u8],
        opened: Opened,
    ) -> Result<Self> {
        let core = &session.core;
        let Opened {
            attr,
            layout,
            cap,
            created,
            must_truncate,
            cached_elsewhere,
            mapped_elsewhere,
            may_cache,
            must_recall,
            epoch,
            recorded,
            is_replica_used,
            inline_max,
            bytes,
        } = opened;
        let record = Arc::new(OpenRecord {
            handle,
            file: attr.file,
            proof: attr.proof,
            identity: session.on_behalf.clone(),
            flags,
            cap: RwLock::new(cap),
            lost: AtomicBool::new(false),
            caching: AtomicBool::new(may_cache),
            // Until the replica is open, or not used.
            redirected: Mutex::new(if is_replica_used { Redirected::Undecided } else { Redirected::No }),
        });
        core.registry.opened(&record);
        let with_leases = core.options.transport != Transport::Socket;
        // The capability carries the name of the datafiles.
        let data = cap.map_or(attr.file, |cap| cap.file);
        let renew_at_s = cap.map_or(u64::MAX, |cap| renew_at(&cap, core.env.wall()));
        let this = Self {
            state: Arc::new(State {
                session: session.clone(),
                record,
                path: path.to_vec(),
                first_version: layout.map(|layout| {
                    let ends = DatafileEnds::new(&layout, Some((recorded, before.restarts)), flags.write);
                    LayoutVersion::new(data, layout, with_leases, ends, inline_max)
                }),
                opened: OpenAnswer { created, may_cache, cached_elsewhere, mapped_elsewhere, epoch, attr },
                renew_at_s: AtomicU64::new(renew_at_s),
                next: AtomicU64::new(0),
                calls: AtomicU32::new(first_call(handle)),
                written: Written::new(cached_elsewhere),
                unsynced: Unsynced::default(),
                appending: AsyncMutex::new(&core.env),
                growing: AsyncMutex::new(&core.env),
                leased_bytes: LeasedBytes::new(bytes, before.sent_at),
                replica: OnceLock::new(),
                is_replica: AtomicBool::new(false),
                closed: false,
            }),
        };
        if must_recall {
            this.await_recall().await?;
        }
        if is_replica_used {
            match Box::pin(this.open_replica(true)).await {
                Ok(replica) => drop(this.state.replica.set(Box::new(replica))),
                Err(error) => this.bypass_replica(error).await?,
            }
        }
        if must_truncate {
            match this.state.replica() {
                Some(replica) => Box::pin(this.truncate_redirected(replica, ByteLen::ZERO, true)).await?,
                None => this.truncate_at_open().await?,
            }
        }
        Ok(this)
    }

    /// Waits until the I/O delegates of other jobs have written their pages of this file and no longer cache it.
    async fn await_recall(&self) -> Result<()> {
        let state = &*self.state;
        let core = &state.session.core;
        let until = core.env.now().saturating_add(RECALL_LIMIT);
        let handle = state.record.handle;
        loop {
            let reply = state.session.call(Effect::Repeatable, MetaRequest::AwaitRecall { handle }).await;
            match reply.map_err(|error| state.explained(error))? {
                MetaReply::Recalled(true) => return Ok(()),
                MetaReply::Recalled(false) if core.env.now() < until => {}
                MetaReply::Recalled(false) => {
                    let detail = format!(
                        "I/O delegates of a job cache this file, and have not written all of it within {} s: see \
                         'weft delegate status' of the user who runs the job, and try again",
                        RECALL_LIMIT.0 / Nanos::from_s(1).0
                    );
                    return Err(core
                        .metadata_server()
                        .refused(WireError::new(Errno::EBUSY, detail))
                        .about(&state.path));
                }
                _ => return Err(Error::unexpected_reply()),
            }
        }
    }

    /// Truncates the datafiles to nothing for `O_TRUNC`.
    ///
    /// The datafiles of the open's reply need no other message: the open has lowered the record of their lengths. After a
    /// move, or the fence of an append, the metadata server lowers it first.
    pub(crate) async fn truncate_at_open(&self) -> Result<()> {
        let state = &*self.state;
        let cap = *state.record.cap.read();
        let (Some(first), Some(cap)) = (&state.first_version, cap) else { return Ok(()) };
        let core = &state.session.core;
        let truncated = match cap.file == first.data {
            true => core.truncate(first.data, cap, &first.layout, FileOffset::ZERO, &[]).await,
            false => Err(Error::stale_layout()),
        };
        let truncated = match truncated {
            Err(error) if error.is_stale_layout() || error.is_expired() => {
                Box::pin(self.resize(ByteLen::ZERO, LossPolicy::Accept)).await
            }
            truncated => truncated,
        };
        // Sends no size: while the file is open, the metadata server would not accept one. The next `stat` after the
        // close finds it.
        let result = truncated.map(|boots| {
            if state.record.flags.write {
                state.unsynced.note_all(&boots);
            }
        });
        if result.is_err() {
            state.written.mark_uncertain();
        }
        state.invalidate_after_resize(ByteLen::ZERO).await;
        result.map_err(|error| error.about(&state.path))
    }

    /// Whether requests for some bytes go to a replica of the file.
    pub fn uses_replica(&self) -> bool {
        self.state.replica().is_some()
    }

    /// Session in which the file is open.
    pub fn session(&self) -> SessionId {
        self.state.session.core.session_id
    }

    /// Id of the file.
    pub fn file(&self) -> FileId {
        self.state.record.file
    }

    /// Handle of this open within the session.
    pub fn handle(&self) -> HandleId {
        self.state.record.handle
    }

    /// Flags of the open.
    pub fn flags(&self) -> OpenFlags {
        self.state.record.flags
    }

    /// Returns the newest layout known to this open file; `None` for files without bytes.
    pub fn layout(&self) -> Option<&Layout> {
        self.state.layout_version_if_any().map(|version| &version.layout)
    }

    /// Path of the open as the caller gave it, for messages.
    pub fn path(&self) -> &[u8] {
        &self.state.path
    }

    /// Sets the path for messages of a file that was opened by its inode. No effect once there are clones.
    #[must_use]
    pub fn with_path(mut self, path: Vec<u8>) -> Self {
        if let Some(state) = Arc::get_mut(&mut self.state) {
            state.path = path;
        }
        self
    }

    /// Returns whether the open created the file.
    pub fn created(&self) -> bool {
        self.state.opened.created
    }

    /// Returns whether the kernel may cache pages of the file (see [`crate::ClientOptions::kernel_cache`]).
    pub fn may_cache(&self) -> bool {
        self.state.opened.may_cache
    }

    /// Returns whether the metadata server still sends events about this file. It stops when, while this session is
    /// disconnected, another client begins to write the file, or for an I/O delegate, opens it.
    pub fn receives_invalidations(&self) -> bool {
        self.state.record.caching.load(Relaxed)
    }

    /// Epoch of the file at the open. Each open for writing and each truncation begins a new one.
    pub fn epoch(&self) -> u64 {
        self.state.opened.epoch
    }

    /// Attributes at the open, with the size as the inode had it.
    pub fn attr_at_open(&self) -> &Attr {
        &self.state.opened.attr
    }

    /// Returns the place that names this file by its inode.
    pub fn place(&self) -> InodePath {
        InodePath::at_inode(self.file(), self.state.record.proof)
    }

    /// Returns the current attributes, with the size from the datafiles if the inode's is not valid.
    ///
    /// # Errors
    /// Errors of [`Client::stat`](crate::Client::stat).
    pub async fn attr(&self) -> Result<Attr> {
        self.state.check()?;
        let at = self.place();
        let request = MetaRequest::Stat { at: at.clone() };
        let known = self.state.session.attr_reply(&at, Effect::Repeatable, request, SizeWait::Exact).await;
        known.and_then(LastKnown::exact).map_err(|error| error.about(&self.state.path))
    }

    /// Returns the current size according to the datafiles; 0 for files without bytes.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn size(&self) -> Result<ByteLen> {
        self.size_and_loss().await.map(|(size, _)| size)
    }

    /// Returns [`OpenFile::size`], and whether bytes of the file are lost.
    pub(crate) async fn size_and_loss(&self) -> Result<(ByteLen, bool)> {
        let state = &self.state;
        state.check()?;
        if state.layout_version_if_any().is_none() {
            return Ok((ByteLen::ZERO, false));
        }
        let size = LayoutRetry::new(state).run(async |version| state.size_in(version).await).await;
        let (size, lost) = size.map_err(|error| error.about(&state.path))?;
        Ok((ByteLen(size.0), lost))
    }

    /// Fails if the size is unknown because a data server is down.
    ///
    /// A kernel takes the size of a `stat` by name, which may be the last known one, for the end of the file. This
    /// function asks the servers only while one of them is in trouble.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn require_size(&self) -> Result<()> {
        let state = &self.state;
        let core = &state.session.core;
        let in_trouble = |(_, target)| core.route(target).map_or(true, |id| core.server(id).is_troubled());
        let doubtful = state.opened.attr.invalid_size.is_some()
            && state.layout_version_if_any().is_some_and(|version| version.layout.objects().any(in_trouble));
        if doubtful { self.size().await.map(drop) } else { Ok(()) }
    }

    /// Returns length, allocated space and modification time of each datafile, in the order of [`Layout::objects`];
    /// empty for files without bytes.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn datafiles(&self) -> Result<Vec<DatafileMeta>> {
        let state = &self.state;
        state.check()?;
        if state.layout_version_if_any().is_none() {
            return Ok(Vec::new());
        }
        let metas = LayoutRetry::new(state).run(async |version| state.metas_in(version).await).await;
        metas.map_err(|error| error.about(&state.path))
    }

    /// Truncates or extends the file to `size`.
    ///
    /// # Errors
    /// `EINVAL` when the file is not open for writing, `EFBIG` beyond 2^63 - 1, and errors of the servers.
    pub async fn truncate(&self, size: ByteLen) -> Result<()> {
        let state = &self.state;
        state.check()?;
        state.check_locks().await?;
        if !state.record.flags.write {
            return Err(Error::misuse(Errno::EINVAL, "the file is not open for writing"));
        }
        match state.replica() {
            Some(replica) => Box::pin(self.truncate_redirected(replica, size, false)).await,
            None => self.truncate_original(size).await,
        }
    }

    /// Truncates or extends the file's own datafiles.
    pub(crate) async fn truncate_original(&self, size: ByteLen) -> Result<()> {
        let state = &self.state;
        let result = self.resize(size, LossPolicy::Fail).await;
        if result.is_err() {
            state.written.mark_uncertain();
        }
        state.invalidate_after_resize(size).await;
        result.map(|boots| state.unsynced.note_all(&boots)).map_err(|error| state.explained(error))
    }

    /// Truncates or extends the file by its handle. An inline file that becomes too large gets datafiles first.
    pub(crate) async fn resize(&self, size: ByteLen, on_loss: LossPolicy) -> Result<Boots> {
        let state = &self.state;
        state.leased_bytes.end();
        loop {
            let is_inline = state.layout_version()?.is_inline();
            match state.session.truncate_by(self.place(), Some(self.handle()), size, on_loss).await {
                Err(error) if is_inline && error.errno() == Errno::EFBIG.0 && size.0 <= OFFSET_MAX => {
                    state.grow().await?;
                }
                result => return result,
            }
        }
    }

    /// Makes all acknowledged writes of all clients to the file, and all changes of names so far, survive a loss of power.
    ///
    /// # Errors
    /// Errors of the servers. `EIO`, once, when a server's machine lost power after it had acknowledged a write of
    /// this open file. A restart of the server process alone loses nothing that reached its kernel.
    pub async fn sync(&self) -> Result<()> {
        let state = &self.state;
        state.check()?;
        if let Some(replica) = state.replica() {
            Box::pin(replica.data().sync()).await?;
        }
        if self.sync_inline().await.map_err(|error| error.about(&state.path))? {
            return Ok(());
        }
        self.sync_original().await?;
        state.session.core.sync_names().await.map_err(|error| error.about(&state.path))
    }

    /// Syncs the file's own datafiles.
    pub(crate) async fn sync_original(&self) -> Result<()> {
        let state = &self.state;
        let core = &state.session.core;
        let mut retry = LayoutRetry::new(state);
        loop {
            let Some(version) = state.layout_version_if_any() else { return Ok(()) };
            if state.with_cap().await?.is_none() {
                return Ok(());
            }
            let before = state.unsynced.begin_sync();
            let written = version.ends.written(version.data).lens;
            let synced = match state.cap_in(version).await {
                Ok(cap) => {
                    core.sync_datafiles(version.data, cap, &version.layout).await.map(|boots| (cap, boots))
                }
                Err(error) => Err(error),
            };
            let synced = retry.check(version, synced).await.map_err(|error| error.about(&state.path))?;
            let Some((cap, mut boots)) = synced else { continue };
            // A move has copied and synced the bytes on targets that the file has left, unless their machines lost
            // them earlier.
            for target in state.unsynced.targets_not_in(&before, &boots) {
                let boot = core.boot_of(target, cap).await.map_err(|error| error.about(&state.path))?;
                boots.push((target, boot));
            }
            state.unsynced.finish_sync(&before, &boots).map_err(|error| error.about(&state.path))?;
            state.record_ends(version, self.handle(), written).await;
            return Ok(());
        }
    }

    /// Syncs the file's own datafiles without reporting lost changes of this open file; see [`Boots`].
    pub(crate) async fn sync_datafiles(&self) -> Result<Boots> {
        let state = &self.state;
        let version = state.layout_version()?;
        let cap = state.cap_in(version).await?;
        state.session.core.sync_datafiles(version.data, cap, &version.layout).await
    }

    /// Sets mode, owner or times.
    ///
    /// # Errors
    /// Errors of [`Client::set_attr`](crate::Client::set_attr).
    pub async fn set_attr(&self, set: SetAttr) -> Result<Attr> {
        self.state.check()?;
        let at = self.place();
        let attr = self.state.session.changed_attr(&at, MetaRequest::SetAttr { at: at.clone(), set }).await;
        attr.map_err(|error| error.about(&self.state.path))
    }

    /// Closes the file if this is the last clone, and returns errors. Dropping the last clone closes it too, without
    /// errors.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn close(self) -> Result<()> {
        let Some(mut state) = Arc::into_inner(self.state) else { return Ok(()) };
        match state.take_close_request() {
            Some(request) => request.send().await.map_err(|error| error.about(&state.path)),
            None => Ok(()),
        }
    }
}
