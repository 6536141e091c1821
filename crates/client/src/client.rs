//! The client: namespace operations and opens.

use crate::call::Effect;
use crate::control::odd_reply;
use crate::core::Core;
use crate::counters::Counts;
use crate::error::{Error, Result};
use crate::file::OpenFile;
use crate::options::{ClientOptions, Credentials};
use crate::token::HandleToken;
use std::sync::Arc;
use weft_core::{ByteLen, FileId, FileOffset, Layout};
use weft_env::Env;
use weft_wire::hello::{Identity, SessionId};
use weft_wire::meta::{
    Attr, Entry, Event, FileType, HandleId, MetaReply, MetaRequest, OpenFlags, Place, ReclaimOpen, SetAttr,
    Settlement,
};
use weft_wire::meta::{LIST_LIMIT_MAX, LayoutSpec};
use weft_wire::{Capability, ClusterMap, Errno};

/// The finding about a file that was just cut to nothing.
pub(crate) const EMPTY: Settlement = Settlement { size: ByteLen(0), blocks_512: 0, mtime: None };

/// One session with a cluster. Clones share it and everything in it; the last one ends it, and with it its locks.
pub struct Client<E: Env> {
    pub(crate) core: Arc<Core<E>>,
    on_behalf: Option<Arc<Identity>>,
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
    pub fn new(env: E, map: ClusterMap, options: ClientOptions, credentials: Credentials) -> Self {
        Self { core: Arc::new(Core::new(env, map, options, credentials)), on_behalf: None }
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
        let fresh =
            Core::new(core.env.clone(), core.map.clone(), core.options.clone(), core.credentials.clone());
        Self { core: Arc::new(fresh), on_behalf: self.on_behalf.clone() }
    }

    pub(crate) fn who(&self) -> Option<&Identity> {
        self.on_behalf.as_deref()
    }

    pub(crate) async fn call(&self, effect: Effect, request: MetaRequest) -> Result<MetaReply> {
        self.core.call(self.who(), effect, request).await
    }

    /// Attributes; the size of a file that is being written is asked of the data servers.
    ///
    /// # Errors
    /// `ENOENT`, `EACCES` and the like; `Unreachable`; [`Error::Elsewhere`].
    pub async fn stat(&self, at: &Place) -> Result<Attr> {
        self.attr_reply(at, Effect::Repeatable, MetaRequest::Stat { at: at.clone() }).await
    }

    /// Opens a file, making it first where `flags` say so: one message.
    ///
    /// # Errors
    /// Those of open(2); `Unreachable`; [`Error::Elsewhere`].
    pub async fn open(
        &self,
        at: &Place,
        flags: OpenFlags,
        mode: u32,
        spec: &LayoutSpec,
    ) -> Result<OpenFile<E>> {
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
        let answer =
            self.core.call(self.who(), Effect::Once, request).await.map_err(|e| e.about(&at.path))?;
        self.opened(answer, handle, flags, &at.path).await
    }

    /// Opens again what another process had open: after fork and exec.
    ///
    /// # Errors
    /// `ESTALE` when the file is gone, `EACCES` when the token does not prove the right; `Unreachable`.
    pub async fn adopt(&self, token: &HandleToken) -> Result<OpenFile<E>> {
        let handle = self.core.new_handle();
        let open =
            ReclaimOpen { handle, file: token.file, flags: token.flags, cap: token.cap, caching: false };
        let reply = self.call(Effect::Repeatable, MetaRequest::Adopt { open }).await;
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

    /// Makes a directory; `mode` without the umask's bits.
    ///
    /// # Errors
    /// Those of mkdir(2).
    pub async fn mkdir(&self, at: &Place, mode: u32) -> Result<Attr> {
        self.attr_reply(at, Effect::Once, MetaRequest::Mkdir { at: at.clone(), mode }).await
    }

    /// Makes a node without bytes.
    ///
    /// # Errors
    /// Those of mknod(2).
    pub async fn mknod(&self, at: &Place, kind: FileType, mode: u32, rdev: u64) -> Result<Attr> {
        self.attr_reply(at, Effect::Once, MetaRequest::Mknod { at: at.clone(), kind, mode, rdev }).await
    }

    /// Makes a symbolic link at `at`.
    ///
    /// # Errors
    /// Those of symlink(2).
    pub async fn symlink(&self, at: &Place, target: &[u8]) -> Result<Attr> {
        self.attr_reply(at, Effect::Once, MetaRequest::Symlink { at: at.clone(), target: target.to_vec() })
            .await
    }

    /// Gives `from` the further name `to`.
    ///
    /// # Errors
    /// Those of link(2).
    pub async fn link(&self, from: &Place, to: &Place) -> Result<Attr> {
        let request = MetaRequest::Link { from: from.clone(), to: to.clone() };
        self.attr_reply(from, Effect::Once, request).await
    }

    /// Removes a name that is no directory.
    ///
    /// # Errors
    /// Those of unlink(2).
    pub async fn unlink(&self, at: &Place) -> Result<()> {
        self.done(at, Effect::Once, MetaRequest::Unlink { at: at.clone() }).await
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Those of rmdir(2).
    pub async fn rmdir(&self, at: &Place) -> Result<()> {
        self.done(at, Effect::Once, MetaRequest::Rmdir { at: at.clone() }).await
    }

    /// Renames.
    ///
    /// # Errors
    /// Those of renameat2(2).
    pub async fn rename(&self, from: &Place, to: &Place, no_replace: bool, exchange: bool) -> Result<()> {
        let request = MetaRequest::Rename { from: from.clone(), to: to.clone(), no_replace, exchange };
        self.done(from, Effect::Once, request).await
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// Those of readlink(2).
    pub async fn readlink(&self, at: &Place) -> Result<Vec<u8>> {
        let at = &Place { follow: false, ..at.clone() };
        match self.about(at, Effect::Repeatable, MetaRequest::Readlink { at: at.clone() }).await? {
            MetaReply::Target(target) => Ok(target),
            _ => Err(odd_reply()),
        }
    }

    /// Sets mode, owner or times.
    ///
    /// # Errors
    /// Those of chmod(2), chown(2) and utimensat(2).
    pub async fn set_attr(&self, at: &Place, set: SetAttr) -> Result<Attr> {
        self.attr_reply(at, Effect::Once, MetaRequest::SetAttr { at: at.clone(), set }).await
    }

    /// Cuts or extends a file.
    ///
    /// # Errors
    /// Those of truncate(2).
    pub async fn truncate(&self, at: &Place, size: ByteLen) -> Result<()> {
        self.truncate_by(at.clone(), None, size).await.map_err(|error| error.about(&at.path))
    }

    pub(crate) async fn truncate_by(&self, at: Place, handle: Option<HandleId>, size: ByteLen) -> Result<()> {
        if size.0 > crate::read::OFFSET_MAX {
            return Err(Error::misuse(Errno::EFBIG, "a length beyond 2^63 - 1"));
        }
        match self.call(Effect::Once, MetaRequest::Truncate { at, handle }).await? {
            MetaReply::Truncate { file, layout, cap, epoch } => {
                let cut = self.core.set_lens(file, cap, &layout, FileOffset(size.0)).await;
                if handle.is_some() {
                    // The writers' closes settle the size, or whoever asks after them.
                    return cut;
                }
                let found = match (&cut, size) {
                    (Err(_), _) => Err(()),
                    (Ok(()), ByteLen(0)) => Ok(EMPTY),
                    (Ok(()), _) => self.core.survey(file, cap, &layout).await.map_err(drop),
                };
                // The service waits to hear that the cut is over; it believes no finding under another epoch.
                let (epoch, found) = found.map_or((u64::MAX, EMPTY), |found| (epoch, found));
                let settled = self.settle(file, epoch, cap, found).await;
                cut.and(settled)
            }
            _ => Err(odd_reply()),
        }
    }

    /// A page of the names in a directory after `after` (empty: from the start), in the order of their bytes, and
    /// whether there are more. Entries whose attributes could not be had have none.
    ///
    /// # Errors
    /// Those of opendir(3).
    pub async fn list(
        &self,
        at: &Place,
        after: &[u8],
        limit: u32,
        with_attr: bool,
    ) -> Result<(Vec<Entry>, bool)> {
        let limit = limit.clamp(1, LIST_LIMIT_MAX);
        let request = MetaRequest::List { at: at.clone(), after: after.to_vec(), limit, with_attr };
        let MetaReply::Entries { mut entries, more } = self.about(at, Effect::Repeatable, request).await?
        else {
            return Err(odd_reply());
        };
        for entry in &mut entries {
            if let Some(attr) = entry.attr.take_if(|attr| attr.unsettled.is_some()) {
                entry.attr = self.resolve(attr).await.ok();
            }
        }
        Ok((entries, more))
    }

    /// Whether the caller may do what `mask` says (access(2)).
    ///
    /// # Errors
    /// `EACCES` when not.
    pub async fn access(&self, at: &Place, mask: u32) -> Result<()> {
        self.done(at, Effect::Repeatable, MetaRequest::Access { at: at.clone(), mask }).await
    }

    /// An extended attribute.
    ///
    /// # Errors
    /// `ENODATA` when there is none of that name.
    pub async fn get_xattr(&self, at: &Place, name: &str) -> Result<Vec<u8>> {
        let request = MetaRequest::GetXattr { at: at.clone(), name: name.to_owned() };
        match self.about(at, Effect::Repeatable, request).await? {
            MetaReply::Value(value) => Ok(value),
            _ => Err(odd_reply()),
        }
    }

    /// Sets an extended attribute; `create` fails when it is there, `replace` when it is not.
    ///
    /// # Errors
    /// Those of setxattr(2).
    pub async fn set_xattr(
        &self,
        at: &Place,
        name: &str,
        value: &[u8],
        create: bool,
        replace: bool,
    ) -> Result<()> {
        let (name, value) = (name.to_owned(), value.to_vec());
        let request = MetaRequest::SetXattr { at: at.clone(), name, value, create, replace };
        self.done(at, Effect::Once, request).await
    }

    /// The names of all extended attributes.
    ///
    /// # Errors
    /// Those of listxattr(2).
    pub async fn list_xattr(&self, at: &Place) -> Result<Vec<String>> {
        match self.about(at, Effect::Repeatable, MetaRequest::ListXattr { at: at.clone() }).await? {
            MetaReply::Names(names) => Ok(names),
            _ => Err(odd_reply()),
        }
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// Those of removexattr(2).
    pub async fn remove_xattr(&self, at: &Place, name: &str) -> Result<()> {
        let request = MetaRequest::RemoveXattr { at: at.clone(), name: name.to_owned() };
        self.done(at, Effect::Once, request).await
    }

    /// The layout of a file, or what a directory asks for for new files.
    ///
    /// # Errors
    /// Those of stat(2).
    pub async fn get_layout(&self, at: &Place) -> Result<(Option<Layout>, Option<LayoutSpec>)> {
        match self.about(at, Effect::Repeatable, MetaRequest::GetLayout { at: at.clone() }).await? {
            MetaReply::Layout { layout, default } => Ok((layout, default)),
            _ => Err(odd_reply()),
        }
    }

    /// Sets the layout of an empty file, or what a directory asks for for new files.
    ///
    /// # Errors
    /// `EEXIST` or `EBUSY` when the file has bytes or writers; `EINVAL` for what no target fits.
    pub async fn set_layout(&self, at: &Place, spec: &LayoutSpec) -> Result<()> {
        self.done(at, Effect::Once, MetaRequest::SetLayout { at: at.clone(), spec: spec.clone() }).await
    }

    /// Begins to listen for [`Client::wait_events`]. What is written from here on is told.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn listen(&self) -> Result<()> {
        self.core.listen().await
    }

    /// Waits up to 30 s for pages that this mount's kernel must drop, and says that all up to `done` were. Fails as soon
    /// as the connection is lost since [`Client::listen`]: what happened meanwhile nobody told.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn wait_events(&self, done: u64) -> Result<Vec<Event>> {
        let longer = weft_core::Nanos::from_s(30);
        match self.core.call_unbroken(self.who(), MetaRequest::WaitEvents { done }, longer).await? {
            MetaReply::Events(events) => Ok(events),
            _ => Err(odd_reply()),
        }
    }

    async fn about(&self, at: &Place, effect: Effect, request: MetaRequest) -> Result<MetaReply> {
        self.call(effect, request).await.map_err(|error| error.about(&at.path))
    }

    async fn done(&self, at: &Place, effect: Effect, request: MetaRequest) -> Result<()> {
        match self.about(at, effect, request).await? {
            MetaReply::Done => Ok(()),
            _ => Err(odd_reply()),
        }
    }

    async fn attr_reply(&self, at: &Place, effect: Effect, request: MetaRequest) -> Result<Attr> {
        match self.about(at, effect, request).await? {
            MetaReply::Attr(attr) => self.resolve(attr).await.map_err(|error| error.about(&at.path)),
            _ => Err(odd_reply()),
        }
    }

    /// Fills in what only the datafiles know, and tells the metadata service so that the next one need not ask.
    pub(crate) async fn resolve(&self, mut attr: Attr) -> Result<Attr> {
        let Some(unsettled) = attr.unsettled.take() else { return Ok(attr) };
        let found = self.core.survey(attr.file, unsettled.cap, &unsettled.layout).await?;
        attr.size = found.size;
        attr.blocks_512 = found.blocks_512;
        if let Some(mtime) = found.mtime.filter(|mtime| *mtime > unsettled.mtime_set_at) {
            attr.mtime = mtime;
            attr.ctime = attr.ctime.max(mtime);
        }
        if unsettled.may_settle {
            // The answer is right without it.
            let _ = self.settle(attr.file, unsettled.epoch, unsettled.cap, found).await;
        }
        Ok(attr)
    }

    pub(crate) async fn settle(
        &self,
        file: FileId,
        epoch: u64,
        cap: Capability,
        found: Settlement,
    ) -> Result<()> {
        self.core.tell(self.who(), MetaRequest::Settle { file, epoch, cap, found }).await
    }
}
