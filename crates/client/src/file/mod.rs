//! Open files.

mod capability;
mod ends;
mod farewell;
mod home;
mod leases;
mod unsynced;
mod written;

pub(crate) use ends::Ends;
pub(crate) use home::{Home, Patience, another_home, moved};
pub(crate) use unsynced::Unsynced;
pub(crate) use written::Written;

use crate::client::Client;
use crate::error::{Error, Result};
use crate::gate::Gate;
use crate::options::Transport;
use crate::registry::OpenRecord;
use crate::size::Loss;
use capability::renew_at;
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use weft_core::{Access, AccessHistory, ByteLen, Extent, FileId, FileOffset, Layout};
use weft_env::Env;
use weft_wire::Errno;
use weft_wire::data::DatafileMeta;
use weft_wire::meta::{Attr, FileType, HandleId, OpenFlags, Opened, Place, SetAttr};

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
    /// Where its bytes were at the open, and have been since; `None` for what has none.
    home: Option<Home<E>>,
    opened: Facts,
    /// When the capability is to be renewed, in seconds since 1970.
    renew_at_s: AtomicU64,
    /// Where a sequential request would begin.
    next: AtomicU64,
    /// The number of the next request that goes by messages.
    calls: AtomicU32,
    pub(crate) written: Written,
    pub(crate) unsynced: Unsynced,
    pub(crate) appending: Gate<E>,
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

/// Numbers of requests through the open files of a client lie far from each other.
fn first_call(handle: HandleId) -> u32 {
    (handle.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

impl<E: Env> State<E> {
    /// A number for a request that goes by messages.
    #[inline]
    pub(crate) fn call(&self) -> u32 {
        self.calls.fetch_add(1, Relaxed)
    }

    /// What the client decides at each request: whether it follows on the one before.
    #[inline]
    pub(crate) fn observe(&self, extent: Extent) -> Access {
        let mut history = AccessHistory::after(FileOffset(self.next.load(Relaxed)));
        let access = history.observe(extent);
        self.next.store(history.next().0, Relaxed);
        access
    }

    /// Where the bytes are of something that has some.
    #[inline]
    pub(crate) fn home(&self) -> Result<&Home<E>> {
        match &self.home {
            Some(home) => Ok(home.last()),
            None => Err(match self.opened.attr.kind {
                FileType::Directory => Error::misuse(Errno::EISDIR, "a directory has no bytes"),
                _ => Error::misuse(Errno::EINVAL, "this kind of file has no bytes here"),
            }),
        }
    }

    /// The same; `None` for what has none.
    pub(crate) fn some_home(&self) -> Option<&Home<E>> {
        self.home.as_ref().map(Home::last)
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

    /// What to tell of an error of the metadata service about this open, which may have been found to be lost on the
    /// way there: the service does not know it then.
    pub(crate) fn explained(&self, error: Error) -> Error {
        match self.check() {
            Err(lost) if error.errno() == Errno::EBADF.0 => lost,
            _ => error.about(&self.path),
        }
    }

    /// Whether a kernel somewhere caches pages of this file.
    pub(crate) fn cached_elsewhere(&self) -> bool {
        self.opened.cached_elsewhere
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
        let Opened {
            attr,
            layout,
            cap,
            created,
            must_truncate,
            cached_elsewhere,
            may_cache,
            epoch,
            recorded,
        } = opened;
        let record = Arc::new(OpenRecord {
            handle,
            file: attr.file,
            proof: attr.proof,
            who: client.on_behalf.clone(),
            flags,
            cap: RwLock::new(cap),
            lost: AtomicBool::new(false),
            caching: AtomicBool::new(may_cache),
        });
        core.registry.opened(&record);
        let with_leases = core.options.transport != Transport::Socket;
        // The capability names the datafiles.
        let data = cap.map_or(attr.file, |cap| cap.file);
        let renew_at_s = cap.map_or(u64::MAX, |cap| renew_at(&cap, core.env.wall()));
        let this = Self {
            state: Arc::new(State {
                client: client.clone(),
                record,
                path: path.to_vec(),
                home: layout.map(|layout| {
                    let ends = Ends::new(&layout, Some(recorded), flags.write);
                    Home::new(data, layout, with_leases, ends)
                }),
                opened: Facts { created, may_cache, cached_elsewhere, epoch, attr },
                renew_at_s: AtomicU64::new(renew_at_s),
                next: AtomicU64::new(0),
                calls: AtomicU32::new(first_call(handle)),
                written: Written::default(),
                unsynced: Unsynced::default(),
                appending: Gate::new(&core.env),
                closed: false,
            }),
        };
        if must_truncate {
            this.cut_to_nothing().await?;
        }
        Ok(this)
    }

    /// What `O_TRUNC` asked for.
    async fn cut_to_nothing(&self) -> Result<()> {
        let state = &*self.state;
        if state.home.is_none() || state.record.cap.read().is_none() {
            return Ok(());
        }
        let core = &state.client.core;
        let mut patience = Patience::default();
        let result = loop {
            let home = state.home()?;
            let cut = match *state.record.cap.read() {
                Some(cap) if cap.file == home.data => Ok(cap),
                _ => Err(home::another_home()),
            };
            let cut = match cut {
                Ok(cap) => core.cut(home.data, cap, &home.layout, FileOffset::ZERO, &[]).await,
                Err(error) => Err(error),
            };
            match state.unless_moved(home, cut, &mut patience).await {
                Ok(None) => {}
                Ok(Some(cut)) => break Ok(cut),
                Err(error) => break Err(error),
            }
        };
        // Whoever asks for the size after the close settles it: while it is open others do not believe it.
        let result = result.map(|boots| {
            if state.record.flags.write {
                state.unsynced.note_all(&boots);
            }
        });
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

    /// Where its datafiles are, as far as this open file has heard; `None` for what has none.
    pub fn layout(&self) -> Option<&Layout> {
        self.state.some_home().map(|home| &home.layout)
    }

    /// The path that it was opened by, as given; for messages.
    pub fn path(&self) -> &[u8] {
        &self.state.path
    }

    /// Gives a file that was opened by its inode a path for messages. No effect once there are clones.
    #[must_use]
    pub fn named(mut self, path: Vec<u8>) -> Self {
        if let Some(state) = Arc::get_mut(&mut self.state) {
            state.path = path;
        }
        self
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
        Place::at_inode(self.file(), self.state.record.proof)
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
        self.size_and_loss().await.map(|(size, _)| size)
    }

    /// Length as for [`OpenFile::size`], and whether bytes of the file are lost.
    pub(crate) async fn size_and_loss(&self) -> Result<(ByteLen, bool)> {
        let state = &self.state;
        state.check()?;
        let mut patience = Patience::default();
        loop {
            let Some(home) = state.some_home() else { return Ok((ByteLen::ZERO, false)) };
            let size = state.size_in(home).await;
            let size = state.unless_moved(home, size, &mut patience).await;
            if let Some((size, lost)) = size.map_err(|error| error.about(&state.path))? {
                return Ok((ByteLen(size.0), lost));
            }
        }
    }

    /// Fails where the end of the file cannot be known because a data server is down. A kernel takes the size that it was
    /// told by name, which may be the last known one, for the end of the file. The servers are asked only while one of them
    /// is in trouble.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn require_size(&self) -> Result<()> {
        let state = &self.state;
        let core = &state.client.core;
        let in_trouble = |(_, target)| core.route(target).map_or(true, |id| core.server(id).is_troubled());
        let doubtful = state.opened.attr.unsettled.is_some()
            && state.some_home().is_some_and(|home| home.layout.objects().any(in_trouble));
        if doubtful { self.size().await.map(drop) } else { Ok(()) }
    }

    /// Length, room and time of each datafile, in the order of [`Layout::objects`]; none for what has no bytes.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn datafiles(&self) -> Result<Vec<DatafileMeta>> {
        let state = &self.state;
        state.check()?;
        let mut patience = Patience::default();
        loop {
            let Some(home) = state.some_home() else { return Ok(Vec::new()) };
            let lens = state.lens_in(home).await;
            let lens = state.unless_moved(home, lens, &mut patience).await;
            if let Some(lens) = lens.map_err(|error| error.about(&state.path))? {
                return Ok(lens);
            }
        }
    }

    /// Cuts or extends the file to `size`.
    ///
    /// # Errors
    /// `EINVAL` when it is not open for writing, `EFBIG` beyond 2^63 - 1, and those of the servers.
    pub async fn truncate(&self, size: ByteLen) -> Result<()> {
        let state = &self.state;
        state.check()?;
        state.check_locks().await?;
        if !state.record.flags.write {
            return Err(Error::misuse(Errno::EINVAL, "the file is not open for writing"));
        }
        let result = state.client.truncate_by(self.place(), Some(self.handle()), size, Loss::IsError).await;
        if result.is_err() {
            state.written.unsure();
        }
        state.cut_or_grown(size).await;
        result.map(|boots| state.unsynced.note_all(&boots)).map_err(|error| state.explained(error))
    }

    /// Makes what was written by anybody, and the file itself, survive loss of power. Changes of metadata have
    /// reached the disk before they are answered, so that the data servers alone are asked.
    ///
    /// # Errors
    /// Those of the servers; `EIO`, once, when a server's machine lost power after it had taken what was written
    /// through this open file. What reached a server's kernel survives a restart of the server alone.
    pub async fn sync(&self) -> Result<()> {
        let state = &self.state;
        state.check()?;
        let core = &state.client.core;
        let mut patience = Patience::default();
        loop {
            let Some(home) = state.some_home() else { return Ok(()) };
            if state.with_cap().await?.is_none() {
                return Ok(());
            }
            let before = state.unsynced.before();
            let written = home.ends.written(home.data).lens;
            let synced = match state.cap_in(home).await {
                Ok(cap) => core.sync_objects(home.data, cap, &home.layout).await.map(|boots| (cap, boots)),
                Err(error) => Err(error),
            };
            let Some((cap, mut boots)) = state
                .unless_moved(home, synced, &mut patience)
                .await
                .map_err(|error| error.about(&state.path))?
            else {
                continue;
            };
            // What was written to targets that the file has left was brought to others and made safe there, unless their
            // machines lost it before.
            for target in state.unsynced.elsewhere(&before, &boots) {
                let boot = core.boot_of(target, cap).await.map_err(|error| error.about(&state.path))?;
                boots.push((target, boot));
            }
            state.unsynced.synced(&before, &boots).map_err(|error| error.about(&state.path))?;
            state.record_ends(home, self.handle(), written).await;
            return Ok(());
        }
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
