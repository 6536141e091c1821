//! Names: making, linking, renaming, removing and listing them.

use crate::call::Effect;
use crate::client::Client;
use crate::control::odd_reply;
use crate::error::Result;
use weft_env::Env;
use weft_wire::meta::{Attr, Entry, FileType, LIST_LIMIT_MAX, MetaReply, MetaRequest, Place};

impl<E: Env> Client<E> {
    /// Makes a directory; `mode` without the umask's bits.
    ///
    /// # Errors
    /// Those of mkdir(2).
    pub async fn mkdir(&self, at: &Place, mode: u32) -> Result<Attr> {
        self.changed_attr(at, MetaRequest::Mkdir { at: at.clone(), mode }).await
    }

    /// Makes a node without bytes.
    ///
    /// # Errors
    /// Those of mknod(2).
    pub async fn mknod(&self, at: &Place, kind: FileType, mode: u32, rdev: u64) -> Result<Attr> {
        self.changed_attr(at, MetaRequest::Mknod { at: at.clone(), kind, mode, rdev }).await
    }

    /// Makes a symbolic link at `at`.
    ///
    /// # Errors
    /// Those of symlink(2).
    pub async fn symlink(&self, at: &Place, target: &[u8]) -> Result<Attr> {
        self.changed_attr(at, MetaRequest::Symlink { at: at.clone(), target: target.to_vec() }).await
    }

    /// Gives `from` the further name `to`.
    ///
    /// # Errors
    /// Those of link(2).
    pub async fn link(&self, from: &Place, to: &Place) -> Result<Attr> {
        let request = MetaRequest::Link { from: from.clone(), to: to.clone() };
        self.changed_attr(from, request).await
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

    /// A page of the names in a directory after `after` (empty: from the start), in the order of their bytes, and
    /// whether there are more. Entries that were removed meanwhile have no attributes. Entries whose size a data server
    /// could not be asked for have the last known one and [`Attr::unsettled`]; [`Client::stat_last_known`] says why.
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
                entry.attr = self.resolve(attr).await.ok().map(|known| known.attr);
            }
        }
        Ok((entries, more))
    }
}
