//! Names: creating, linking, renaming, removing and listing them.

use crate::call::Effect;
use crate::client::Client;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::file::OpenFile;
use crate::size::SizeWait;
use weft_core::Nanos;
use weft_env::{Address, Env};
use weft_wire::meta::{Attr, Entry, FileType, InodePath, LIST_LIMIT_MAX, MetaReply, MetaRequest, NAME_LEASE};

impl<E: Env> Client<E> {
    /// Creates a directory. `mode` has the umask applied already.
    ///
    /// # Errors
    /// Errors of mkdir(2).
    pub async fn mkdir(&self, at: &InodePath, mode: u32) -> Result<Attr> {
        self.session.changed_attr(at, MetaRequest::Mkdir { at: at.clone(), mode }).await
    }

    /// Creates a node without bytes.
    ///
    /// # Errors
    /// Errors of mknod(2).
    pub async fn mknod(&self, at: &InodePath, kind: FileType, mode: u32, rdev: u64) -> Result<Attr> {
        self.session.changed_attr(at, MetaRequest::Mknod { at: at.clone(), kind, mode, rdev }).await
    }

    /// Creates a symbolic link at `at`.
    ///
    /// # Errors
    /// Errors of symlink(2).
    pub async fn symlink(&self, at: &InodePath, target: &[u8]) -> Result<Attr> {
        self.session.changed_attr(at, MetaRequest::Symlink { at: at.clone(), target: target.to_vec() }).await
    }

    /// Creates the hard link `to` for `from`.
    ///
    /// A file of [`Client::open_unnamed`] gets its first name if `from` is its inode with `follow`, and this session has
    /// it open for writing. A caller sets `follow` only if the open was not exclusive.
    ///
    /// # Errors
    /// Errors of link(2).
    pub async fn link(&self, from: &InodePath, to: &InodePath) -> Result<Attr> {
        let request = MetaRequest::Link { from: from.clone(), to: to.clone() };
        self.session.changed_attr(from, request).await
    }

    /// Removes a name of a file that is not a directory.
    ///
    /// # Errors
    /// Errors of unlink(2).
    pub async fn unlink(&self, at: &InodePath) -> Result<()> {
        self.session.done_at(at, Effect::Once, MetaRequest::Unlink { at: at.clone() }).await
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Errors of rmdir(2).
    pub async fn rmdir(&self, at: &InodePath) -> Result<()> {
        self.session.done_at(at, Effect::Once, MetaRequest::Rmdir { at: at.clone() }).await
    }

    /// Renames `from` to `to`.
    ///
    /// # Errors
    /// Errors of renameat2(2).
    pub async fn rename(
        &self,
        from: &InodePath,
        to: &InodePath,
        no_replace: bool,
        exchange: bool,
    ) -> Result<()> {
        let request = MetaRequest::Rename { from: from.clone(), to: to.clone(), no_replace, exchange };
        self.session.done_at(from, Effect::Once, request).await
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// Errors of readlink(2).
    pub async fn readlink(&self, at: &InodePath) -> Result<Vec<u8>> {
        let at = &InodePath { follow: false, ..at.clone() };
        match self.session.call_at(at, Effect::Repeatable, MetaRequest::Readlink { at: at.clone() }).await? {
            MetaReply::Target(target) => Ok(target),
            _ => Err(Error::unexpected_reply()),
        }
    }

    /// Makes all changes of names and attributes so far survive a loss of power, as fsync of a directory does.
    ///
    /// # Errors
    /// `EIO` when the metadata log has failed; `Unreachable`.
    pub async fn sync_names(&self) -> Result<()> {
        self.session.core.sync_names().await
    }

    /// Returns a page of the names in a directory after `after` (empty: from the start), sorted by bytes, and whether
    /// there are more.
    ///
    /// An entry that was removed in the meantime has no attributes. An entry whose size could not be asked for has the
    /// last known size and [`Attr::invalid_size`]; [`Client::stat_last_known`] tells the reason.
    ///
    /// # Errors
    /// Errors of opendir(3).
    pub async fn list(
        &self,
        at: &InodePath,
        after: &[u8],
        limit: u32,
        with_attr: bool,
    ) -> Result<(Vec<Entry>, bool)> {
        self.list_page(at, after, limit, (with_attr, false)).await
    }

    /// Returns a page of a directory with attributes as [`Self::list`] does, and leases its names. Those that are
    /// [leased](Entry::leased) may be used until the returned time, unless an event says that they are outdated.
    ///
    /// The caller must handle the events of [`Client::wait_events`].
    ///
    /// # Errors
    /// Errors of opendir(3).
    pub async fn list_leased(
        &self,
        at: &InodePath,
        after: &[u8],
        limit: u32,
    ) -> Result<(Vec<Entry>, bool, Nanos)> {
        let until = self.session.core.env.now().saturating_add(NAME_LEASE);
        let (entries, more) = self.list_page(at, after, limit, (true, true)).await?;
        Ok((entries, more, until))
    }

    async fn list_page(
        &self,
        at: &InodePath,
        after: &[u8],
        limit: u32,
        (with_attr, lease): (bool, bool),
    ) -> Result<(Vec<Entry>, bool)> {
        let limit = limit.clamp(1, LIST_LIMIT_MAX);
        let request = MetaRequest::List { at: at.clone(), after: after.to_vec(), limit, with_attr, lease };
        let MetaReply::Entries { mut entries, more } =
            self.session.call_at(at, Effect::Repeatable, request).await?
        else {
            return Err(Error::unexpected_reply());
        };
        for entry in &mut entries {
            if let Some(attr) = entry.attr.take_if(|attr| attr.invalid_size.is_some()) {
                let known = self.session.resolve(attr, SizeWait::LastKnownWillDo).await;
                entry.attr = known.ok().map(|known| known.attr);
            }
        }
        Ok((entries, more))
    }
}

impl<E: Env> Core<E> {
    /// Makes changes of names and attributes durable that the metadata server answered before their sync.
    pub(crate) async fn sync_names(&self) -> Result<()> {
        // It does so for programs on its own host only, which reach it by its Unix socket.
        let is_early =
            self.metadata_server().entry().addresses.iter().any(|at| matches!(at, Address::Unix(_)));
        if !is_early {
            return Ok(());
        }
        match self.call(None, Effect::Repeatable, MetaRequest::SyncNames).await? {
            MetaReply::Done => Ok(()),
            _ => Err(Error::unexpected_reply()),
        }
    }
}

impl<E: Env> OpenFile<E> {
    /// Creates the hard link `to` for this file. A file of [`Client::open_unnamed`] gets its first name so.
    ///
    /// # Errors
    /// Errors of linkat(2); `ENOENT` for a removed file, and for an unnamed one that was opened with `exclusive`.
    pub async fn link(&self, to: &InodePath) -> Result<Attr> {
        let state = &self.state;
        state.check()?;
        let flags = self.flags();
        let is_nameable = flags.create && flags.directory && !flags.exclusive;
        let from = InodePath { follow: is_nameable, ..self.place() };
        let request = MetaRequest::Link { from: from.clone(), to: to.clone() };
        let linked = state.session.changed_attr(&from, request).await;
        linked.map_err(|error| error.about(&state.path))
    }
}
