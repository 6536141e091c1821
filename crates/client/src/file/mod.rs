//! Open files.

use crate::call::Effect;
use crate::client::{Client, EMPTY};
use crate::control::datafile;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::gate::Gate;
use crate::lease::{self, Answer, Keeper, Lease, RETRY_AFTER};
use crate::options::Transport;
use crate::registry::OpenRecord;
use parking_lot::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use weft_core::{
    Access, AccessHistory, ByteLen, Extent, FileId, FileOffset, Layout, Nanos, ObjectId, SubRequest,
    TargetId, Timestamp,
};
use weft_env::Env;
use weft_wire::data::DatafileMeta;
use weft_wire::meta::{
    Attr, HandleId, MetaReply, MetaRequest, OpenFlags, Opened, Place, SetAttr, WriteSummary,
};
use weft_wire::{Capability, Errno};

/// Capabilities are renewed this long before they end (or after three quarters of their life, if that is later).
const RENEW_BEFORE_S: i128 = 60;

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

/// What the clones share.
pub(crate) struct State<E: Env> {
    pub(crate) client: Client<E>,
    pub(crate) record: Arc<OpenRecord>,
    /// For messages.
    pub(crate) path: Vec<u8>,
    pub(crate) layout: Option<Layout>,
    opened: Facts,
    /// When the capability is to be renewed, in seconds since 1970.
    renew_at_s: AtomicU64,
    /// Where a sequential request would begin.
    next: AtomicU64,
    pub(crate) written: Written,
    pub(crate) appending: Gate<E>,
    pub(crate) cells: Cells<E>,
    closed: bool,
}

/// What the metadata service said at the open and never changes.
struct Facts {
    created: bool,
    may_cache: bool,
    cached_elsewhere: bool,
    epoch: u64,
    attr: Attr,
}

/// What was written through this open file, for the summary at its close.
#[derive(Default)]
pub(crate) struct Written {
    any: AtomicBool,
    unsure: AtomicBool,
    end: AtomicU64,
    bytes: AtomicU64,
    /// On the exact clock: a time that is set right after a write must not be older than it. Becomes a civil time at
    /// the close.
    last: AtomicU64,
}

impl Written {
    #[inline]
    pub(crate) fn note(&self, extent: Extent, now: Nanos) {
        if !self.any.load(Relaxed) {
            self.any.store(true, Relaxed);
        }
        let end = extent.offset.0 + extent.len.0;
        if self.end.load(Relaxed) < end {
            self.end.fetch_max(end, Relaxed);
        }
        self.bytes.fetch_add(extent.len.0, Relaxed);
        self.last.store(now.0, Relaxed);
    }

    /// Something failed midway.
    pub(crate) fn unsure(&self) {
        self.any.store(true, Relaxed);
        self.unsure.store(true, Relaxed);
    }

    fn summary<E: Env>(&self, env: &E) -> WriteSummary {
        let ago = env.now().0.saturating_sub(self.last.load(Relaxed));
        WriteSummary {
            wrote: self.any.load(Relaxed),
            end: ByteLen(self.end.load(Relaxed)),
            bytes: ByteLen(self.bytes.load(Relaxed)),
            unsure: self.unsure.load(Relaxed),
            mtime: Timestamp(env.wall().0 - i128::from(ago)),
        }
    }
}

/// A place for the lease of each object.
pub(crate) struct Cells<E: Env> {
    /// Cells before each component.
    starts: Vec<usize>,
    cells: Vec<Cell<E>>,
    /// Whether any had a lease.
    leased: AtomicBool,
}

pub(crate) struct Cell<E: Env> {
    held: RwLock<Option<Arc<Lease<E>>>>,
    uses: AtomicU32,
    /// No asking before this time of the monotonic clock.
    not_before: AtomicU64,
}

impl<E: Env> Cells<E> {
    fn new(layout: Option<&Layout>, with_leases: bool) -> Self {
        let mut starts = Vec::new();
        let mut count = 0;
        if let Some(layout) = layout.filter(|_| with_leases) {
            for component in layout.components() {
                starts.push(count);
                count += component.strips.len();
            }
        }
        let cell =
            || Cell { held: RwLock::new(None), uses: AtomicU32::new(0), not_before: AtomicU64::new(0) };
        Self { starts, cells: (0..count).map(|_| cell()).collect(), leased: AtomicBool::new(false) }
    }

    /// Drops all leases; whether there had been any.
    fn clear(&mut self) -> bool {
        self.cells.clear();
        self.leased.load(Relaxed)
    }

    #[inline]
    fn get(&self, object: ObjectId) -> Option<&Cell<E>> {
        let start = *self.starts.get(usize::from(object.component))?;
        self.cells.get(start + usize::from(object.column))
    }
}

impl<E: Env> Keeper<E> for State<E> {
    fn drop_lease(&self, lease: &Arc<Lease<E>>) {
        for cell in &self.cells.cells {
            cell.drop_if(lease);
        }
    }
}

impl<E: Env> Cell<E> {
    fn drop_if(&self, lease: &Arc<Lease<E>>) {
        let dropped = {
            let mut held = self.held.write();
            if held.as_ref().is_some_and(|held| Arc::ptr_eq(held, lease)) { held.take() } else { None }
        };
        drop(dropped); // Outside the lock.
    }
}

impl<E: Env> State<E> {
    /// What the client decides at each request: whether it follows on the one before.
    #[inline]
    pub(crate) fn observe(&self, extent: Extent) -> Access {
        let mut history = AccessHistory::after(FileOffset(self.next.load(Relaxed)));
        let access = history.observe(extent);
        self.next.store(history.next().0, Relaxed);
        access
    }

    /// The layout of something that has bytes.
    #[inline]
    pub(crate) fn layout(&self) -> Result<&Layout> {
        self.layout.as_ref().ok_or_else(|| match self.opened.attr.kind {
            weft_wire::meta::FileType::Directory => Error::misuse(Errno::EISDIR, "a directory has no bytes"),
            _ => Error::misuse(Errno::EINVAL, "this kind of file has no bytes here"),
        })
    }

    /// Whether operations on this open file make sense still.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        self.client.core.check_ours()?;
        if self.record.lost.load(Relaxed) {
            const WHY: &str = "the open file was lost while the metadata server was away; open it again";
            return Err(Error::misuse(Errno::ESTALE, WHY));
        }
        Ok(())
    }

    /// As [`State::cap`]; `None` where there is none to be had (a directory).
    pub(crate) async fn with_cap(&self) -> Result<Option<Capability>> {
        if self.record.cap.read().is_none() { Ok(None) } else { self.cap().await.map(Some) }
    }

    /// Whether a kernel somewhere caches pages of this file.
    pub(crate) fn cached_elsewhere(&self) -> bool {
        self.opened.cached_elsewhere
    }

    /// A capability that is good for a while.
    pub(crate) async fn cap(&self) -> Result<Capability> {
        let cap = (*self.record.cap.read())
            .ok_or_else(|| Error::misuse(Errno::EBADF, "the file is not open for reading or writing"))?;
        let now_s = self.client.core.env.wall().0.div_euclid(1_000_000_000);
        if now_s < i128::from(self.renew_at_s.load(Relaxed)) {
            return Ok(cap);
        }
        // An outage of the metadata service must not stop reads and writes that are still allowed.
        match self.renew().await {
            Err(_) if now_s < i128::from(cap.expires_s) => Ok(cap),
            result => result,
        }
    }

    /// Asks for a fresh capability.
    pub(crate) async fn renew(&self) -> Result<Capability> {
        let request = MetaRequest::Renew { handle: self.record.handle };
        let answer = self.client.call(Effect::Repeatable, request).await;
        match answer.map_err(|error| error.about(&self.path))? {
            MetaReply::Capability(cap) => {
                *self.record.cap.write() = Some(cap);
                self.renew_at_s.store(renew_at(&cap, self.client.core.env.wall()), Relaxed);
                Ok(cap)
            }
            _ => Err(crate::control::odd_reply()),
        }
    }

    /// The lease on the datafile of `sub`, if there is one or it is time to get one.
    #[inline]
    pub(crate) async fn lease_for(
        self: &Arc<Self>,
        sub: &SubRequest,
        write: bool,
    ) -> Result<Option<Arc<Lease<E>>>> {
        let Some(cell) = self.cells.get(sub.object) else { return Ok(None) };
        let held = cell.held.read().clone();
        match held {
            Some(lease) if lease.writable || !write => Ok(Some(lease)),
            _ => self.get_lease(cell, (sub.object, sub.target), sub.local.len, write).await,
        }
    }

    /// The lease that is held on `object`, without asking for one.
    pub(crate) fn held_lease(&self, object: ObjectId) -> Option<Arc<Lease<E>>> {
        self.cells.get(object)?.held.read().clone()
    }

    /// The lease did not hold any more.
    #[cold]
    pub(crate) fn lease_ended(&self, object: ObjectId, lease: &Arc<Lease<E>>) {
        if let Some(cell) = self.cells.get(object) {
            cell.drop_if(lease);
            if self.only_descriptors() {
                return;
            }
            let not_before = self.client.core.env.now().saturating_add(RETRY_AFTER);
            cell.not_before.store(not_before.0, Relaxed);
        }
    }

    pub(crate) fn only_descriptors(&self) -> bool {
        self.client.core.options.transport == Transport::Descriptor
    }

    #[cold]
    async fn get_lease(
        self: &Arc<Self>,
        cell: &Cell<E>,
        (object, target): (ObjectId, TargetId),
        len: ByteLen,
        write: bool,
    ) -> Result<Option<Arc<Lease<E>>>> {
        let core = &*self.client.core;
        let now = core.env.now();
        let uses = cell.uses.fetch_add(1, Relaxed).saturating_add(1);
        let early = uses < core.options.lease_after_uses && len.0 < core.options.lease_at_len;
        let server = core.server(core.route(target)?);
        if !self.only_descriptors()
            && (early || now.0 < cell.not_before.load(Relaxed) || !server.channel.is_useful(now))
        {
            return Ok(None);
        }
        let cap = self.cap().await?;
        let name = datafile(self.record.file, (object, target));
        let later = || cell.not_before.store(now.saturating_add(RETRY_AFTER).0, Relaxed);
        match lease::ask(core, server, name, cap, write).await {
            Ok(Answer::Leased(lease)) => {
                let before = cell.held.write().replace(Arc::clone(&lease));
                drop(before);
                let this: Weak<Self> = Arc::downgrade(self);
                self.cells.leased.store(true, Relaxed);
                core.leases.add(this, &lease);
                Ok(Some(lease))
            }
            Ok(Answer::Busy) => Ok(None),
            // A datafile that does not exist yet is read by message: it has nothing to say.
            Ok(Answer::No) if self.only_descriptors() && write => Err(lease::no_descriptor()),
            Ok(Answer::Never) if self.only_descriptors() => Err(lease::no_descriptor()),
            Ok(Answer::No | Answer::Never) => {
                later();
                Ok(None)
            }
            // Messages may still work, or say better what is wrong.
            Err(_) if !self.only_descriptors() => {
                later();
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// What is left to do when the last clone goes; `None` when nothing is.
    fn farewell(&mut self) -> Option<Farewell<E>> {
        let leased = self.cells.clear();
        if std::mem::replace(&mut self.closed, true) || self.client.core.is_abandoned() {
            return None;
        }
        let core = Arc::clone(&self.client.core);
        let (handle, summary) = (self.record.handle, self.written.summary(&core.env));
        core.registry.closed(handle);
        (!self.record.lost.load(Relaxed)).then_some(Farewell { core, handle, summary, leased })
    }
}

/// The end of an open file, detached from it.
struct Farewell<E: Env> {
    core: Arc<Core<E>>,
    handle: HandleId,
    summary: WriteSummary,
    leased: bool,
}

impl<E: Env> Farewell<E> {
    async fn say(self) -> Result<()> {
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

impl<E: Env> OpenFile<E> {
    /// Wraps what the metadata service opened, and cuts the datafiles when it says so.
    pub(crate) async fn from_opened(
        client: &Client<E>,
        handle: HandleId,
        flags: OpenFlags,
        path: &[u8],
        opened: Opened,
    ) -> Result<Self> {
        let core = &client.core;
        let Opened { attr, layout, cap, created, must_truncate, cached_elsewhere, may_cache, epoch } = opened;
        let record = Arc::new(OpenRecord {
            handle,
            file: attr.file,
            flags,
            cap: RwLock::new(cap),
            lost: AtomicBool::new(false),
            caching: AtomicBool::new(may_cache),
        });
        core.registry.opened(&record);
        let with_leases = core.options.transport != Transport::Socket;
        let renew_at_s = cap.map_or(u64::MAX, |cap| renew_at(&cap, core.env.wall()));
        let this = Self {
            state: Arc::new(State {
                client: client.clone(),
                record,
                path: path.to_vec(),
                cells: Cells::new(layout.as_ref(), with_leases),
                layout,
                opened: Facts { created, may_cache, cached_elsewhere, epoch, attr },
                renew_at_s: AtomicU64::new(renew_at_s),
                next: AtomicU64::new(0),
                written: Written::default(),
                appending: Gate::new(&core.env),
                closed: false,
            }),
        };
        if must_truncate {
            this.cut_to_nothing(epoch).await?;
        }
        Ok(this)
    }

    /// What `O_TRUNC` asked for.
    async fn cut_to_nothing(&self, epoch: u64) -> Result<()> {
        let state = &*self.state;
        let (Some(layout), Some(cap)) = (&state.layout, *state.record.cap.read()) else { return Ok(()) };
        let core = &state.client.core;
        let result = core.set_lens(state.record.file, cap, layout, FileOffset::ZERO).await;
        // A writer's close or whoever asks after it settles the size; without a writer it is known now.
        let result = match result {
            Ok(()) if !state.record.flags.write => {
                state.client.settle(state.record.file, epoch, cap, EMPTY).await
            }
            result => result,
        };
        if result.is_err() {
            state.written.unsure();
        }
        state.cut_or_grown(ByteLen::ZERO).await;
        result.map_err(|error| error.about(&state.path))
    }

    /// Which file.
    pub fn file(&self) -> FileId {
        self.state.record.file
    }

    /// Which open of the session.
    pub fn handle(&self) -> HandleId {
        self.state.record.handle
    }

    /// How it was opened.
    pub fn flags(&self) -> OpenFlags {
        self.state.record.flags
    }

    /// Where its datafiles are; `None` for what has none.
    pub fn layout(&self) -> Option<&Layout> {
        self.state.layout.as_ref()
    }

    /// The path that it was opened by, as given; for messages.
    pub fn path(&self) -> &[u8] {
        &self.state.path
    }

    /// Whether the open made the file.
    pub fn created(&self) -> bool {
        self.state.opened.created
    }

    /// Whether the kernel may cache its pages (see [`crate::ClientOptions::kernel_cache`]).
    pub fn may_cache(&self) -> bool {
        self.state.opened.may_cache
    }

    /// Whether the metadata service still tells this mount of writes by others: it does not where somebody began to
    /// write the file while this session was cut off.
    pub fn hears_of_writes(&self) -> bool {
        self.state.record.caching.load(Relaxed)
    }

    /// Changes whenever anybody opens the file for writing or cuts it: as it was at the open.
    pub fn epoch(&self) -> u64 {
        self.state.opened.epoch
    }

    /// Attributes as they were at the open, size as far as the inode knew it.
    pub fn attr_at_open(&self) -> &Attr {
        &self.state.opened.attr
    }

    /// A place that names this file by its inode.
    pub fn place(&self) -> Place {
        Place { base: self.file(), path: Vec::new(), follow: false }
    }

    /// The client that opened it.
    pub fn client(&self) -> &Client<E> {
        &self.state.client
    }

    /// Attributes now, size resolved.
    ///
    /// # Errors
    /// As [`Client::stat`].
    pub async fn attr(&self) -> Result<Attr> {
        self.state.check()?;
        self.state.client.stat(&self.place()).await.map_err(|error| error.about(&self.state.path))
    }

    /// Length now, as the datafiles know it; 0 for what has none.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn size(&self) -> Result<ByteLen> {
        let state = &self.state;
        state.check()?;
        let Some(layout) = &state.layout else { return Ok(ByteLen::ZERO) };
        let size = state.size_beyond(layout, &mut Vec::new(), None).await;
        size.map(|size| ByteLen(size.0)).map_err(|error| error.about(&state.path))
    }

    /// Length, room and time of each datafile, in the order of [`Layout::objects`]; none for what has no bytes.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn datafiles(&self) -> Result<Vec<DatafileMeta>> {
        let state = &self.state;
        state.check()?;
        let Some(layout) = &state.layout else { return Ok(Vec::new()) };
        let objects: Vec<_> = layout.objects().collect();
        let lens = state.client.core.lens(state.record.file, state.cap().await?, &objects).await;
        lens.map_err(|error| error.about(&state.path))
    }

    /// Cuts or extends the file to `size`.
    ///
    /// # Errors
    /// `EINVAL` when it is not open for writing, `EFBIG` beyond 2^63 - 1, and those of the servers.
    pub async fn truncate(&self, size: ByteLen) -> Result<()> {
        let state = &self.state;
        state.check()?;
        if !state.record.flags.write {
            return Err(Error::misuse(Errno::EINVAL, "the file is not open for writing"));
        }
        let result = state.client.truncate_by(self.place(), Some(self.handle()), size).await;
        if result.is_err() {
            state.written.unsure();
        }
        state.cut_or_grown(size).await;
        result.map_err(|error| error.about(&state.path))
    }

    /// Makes what was written by anybody, and the file itself, survive loss of power. Changes of metadata have
    /// reached the disk before they are answered, so that the data servers alone are asked.
    ///
    /// # Errors
    /// Those of the servers; a write that a server lost by its own restart is not reported here, because data
    /// that reached a server's kernel survives the server.
    pub async fn sync(&self) -> Result<()> {
        let state = &self.state;
        state.check()?;
        let Some(layout) = &state.layout else { return Ok(()) };
        let Some(cap) = state.with_cap().await? else { return Ok(()) };
        let core = &state.client.core;
        let result = core.sync_objects(self.file(), cap, layout).await;
        result.map_err(|error| error.about(&state.path))
    }

    /// Sets attributes.
    ///
    /// # Errors
    /// As [`Client::set_attr`].
    pub async fn set_attr(&self, set: SetAttr) -> Result<Attr> {
        self.state.check()?;
        self.state.client.set_attr(&self.place(), set).await.map_err(|error| error.about(&self.state.path))
    }

    /// Closes the file when this is the last clone, and tells of errors. Dropping does the same without telling.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn close(self) -> Result<()> {
        let Some(mut state) = Arc::into_inner(self.state) else { return Ok(()) };
        match state.farewell() {
            Some(farewell) => farewell.say().await.map_err(|error| error.about(&state.path)),
            None => Ok(()),
        }
    }
}

/// When a capability that came at `now` is to be renewed, in seconds since 1970.
fn renew_at(cap: &Capability, now: Timestamp) -> u64 {
    let life_s = i128::from(cap.expires_s) - now.0.div_euclid(1_000_000_000);
    if life_s <= 0 {
        // The clocks disagree: only a server can say when it has ended.
        return u64::MAX;
    }
    (i128::from(cap.expires_s) - RENEW_BEFORE_S.min(life_s / 4)) as u64
}
