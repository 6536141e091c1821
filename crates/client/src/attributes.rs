//! Attributes, layouts and extended attributes of files by their names.

use crate::call::Effect;
use crate::client::Client;
use crate::control::odd_reply;
use crate::error::Result;
use crate::size::LastKnown;
use weft_core::Layout;
use weft_env::Env;
use weft_wire::Errno;
use weft_wire::meta::{
    Attr, Forget, LayoutSpec, MetaReply, MetaRequest, Place, Rule, RuledDirectory, SetAttr,
};

/// A name whose file is removed each time that the size of it is asked for is given up after so many.
const TRIES_MAX: u32 = 10;

impl<E: Env> Client<E> {
    /// Attributes; the size of a file that is being written is asked of the data servers.
    ///
    /// # Errors
    /// `ENOENT`, `EACCES` and the like; `Unreachable`; [`Error::Elsewhere`](crate::Error::Elsewhere).
    pub async fn stat(&self, at: &Place) -> Result<Attr> {
        self.stat_last_known(at).await?.exact()
    }

    /// Attributes of a name, also while a data server that would know the size cannot be asked: see [`LastKnown`].
    ///
    /// # Errors
    /// `ENOENT`, `EACCES` and the like; `Unreachable` for the metadata server; [`Error::Elsewhere`](crate::Error::Elsewhere).
    pub async fn stat_last_known(&self, at: &Place) -> Result<LastKnown> {
        let mut tries = 0;
        loop {
            let found = self.attr_reply(at, Effect::Repeatable, MetaRequest::Stat { at: at.clone() }).await;
            // The file that had the name was removed before its datafiles told how long it is: another one may have it now.
            let is_gone = found.as_ref().is_err_and(|error| error.errno() == Errno::ESTALE.0);
            if !is_gone || at.path.is_empty() || tries == TRIES_MAX {
                return found;
            }
            tries += 1;
        }
    }

    /// Sets mode, owner or times. The size is the last known one where it cannot be asked for.
    ///
    /// # Errors
    /// Those of chmod(2), chown(2) and utimensat(2).
    pub async fn set_attr(&self, at: &Place, set: SetAttr) -> Result<Attr> {
        self.changed_attr(at, MetaRequest::SetAttr { at: at.clone(), set }).await
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

    /// The rules of a directory and of those above it, the nearest first; those without rules are left out.
    ///
    /// # Errors
    /// `ENOTDIR`, and those of stat(2).
    pub async fn rules(&self, at: &Place) -> Result<Vec<RuledDirectory>> {
        match self.about(at, Effect::Repeatable, MetaRequest::Rules { at: at.clone() }).await? {
            MetaReply::Rules(ruled) => Ok(ruled),
            _ => Err(odd_reply()),
        }
    }

    /// Takes rules from a directory and gives it others, which go before those that it keeps, all at once.
    ///
    /// # Errors
    /// `EPERM` for who does not own the directory; `EINVAL` for a layout that no file could have; `ENOSPC` for too many;
    /// `ENOENT` for a rule to forget that is not there.
    pub async fn change_rules(&self, at: &Place, forget: Forget, add: Vec<Rule>) -> Result<()> {
        self.done(at, Effect::Once, MetaRequest::ChangeRules { at: at.clone(), forget, add }).await
    }
}
