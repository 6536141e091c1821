//! Attributes, layouts, rules and extended attributes, by path.

use crate::call::Effect;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::size::{LastKnown, LossPolicy, SizeWait};
use weft_core::{ByteLen, Layout, Nanos};
use weft_env::Env;
use weft_wire::Errno;
use weft_wire::meta::{
    Attr, InodePath, LayoutSpec, MetaReply, MetaRequest, NAME_LEASE, Rule, RuleRemoval, RuledDirectory,
    SetAttr,
};

/// Most repetitions of a `stat` whose file is replaced each time before its size is known.
const STAT_REPETITIONS_MAX: u32 = 10;

impl<E: Env> Client<E> {
    /// Returns attributes. The size of a file that is being written is asked of the data servers.
    ///
    /// # Errors
    /// `ENOENT`, `EACCES` and the like; `Unreachable`; [`Error::ExternalLink`](crate::Error::ExternalLink).
    pub async fn stat(&self, at: &InodePath) -> Result<Attr> {
        let request = MetaRequest::Stat { at: at.clone() };
        self.find(at, request, SizeWait::Exact).await?.0.exact()
    }

    /// Returns the attributes of a name, even while a data server with a part of the file does not answer: see
    /// [`LastKnown`].
    ///
    /// # Errors
    /// `ENOENT`, `EACCES` and the like; `Unreachable` for the metadata server;
    /// [`Error::ExternalLink`](crate::Error::ExternalLink).
    pub async fn stat_last_known(&self, at: &InodePath) -> Result<LastKnown> {
        let request = MetaRequest::Stat { at: at.clone() };
        self.find(at, request, SizeWait::LastKnownWillDo).await.map(|(known, _)| known)
    }

    /// Looks up a name as [`Client::stat_last_known`] does. Also returns the time until which the caller may use name and
    /// attributes, unless an event says that they are outdated; `None` without a lease.
    ///
    /// The caller must handle the events of [`Client::wait_events`].
    ///
    /// # Errors
    /// As for [`Client::stat_last_known`].
    pub async fn look_up(&self, at: &InodePath) -> Result<(LastKnown, Option<Nanos>)> {
        let until = self.session.core.env.now().saturating_add(NAME_LEASE);
        let request = MetaRequest::LookUp { at: at.clone() };
        let (known, leased) = self.find(at, request, SizeWait::LastKnownWillDo).await?;
        Ok((known, leased.then_some(until)))
    }

    /// Finds the attributes of a name by `request`. Also returns whether the name is leased.
    async fn find(&self, at: &InodePath, request: MetaRequest, wait: SizeWait) -> Result<(LastKnown, bool)> {
        let mut tries = 0;
        loop {
            let found = self.session.leased_attr_reply(at, Effect::Repeatable, request.clone(), wait).await;
            // The file was removed before its datafiles reported their lengths. Another file may have the name now.
            let is_gone = found.as_ref().is_err_and(|error| error.errno() == Errno::ESTALE.0);
            if !is_gone || at.path.is_empty() || tries == STAT_REPETITIONS_MAX {
                return found;
            }
            tries += 1;
        }
    }

    /// Truncates or extends a file.
    ///
    /// # Errors
    /// Errors of truncate(2).
    pub async fn truncate(&self, at: &InodePath, size: ByteLen) -> Result<()> {
        self.session
            .truncate_by(at.clone(), None, size, LossPolicy::Fail)
            .await
            .map(drop)
            .map_err(|error| error.about(&at.path))
    }

    /// Accepts the loss of bytes: the file gets the length `size`, with holes where bytes are missing.
    ///
    /// # Errors
    /// Errors of truncate(2).
    pub async fn accept_loss(&self, at: &InodePath, size: ByteLen) -> Result<()> {
        let truncated = self.session.truncate_by(at.clone(), None, size, LossPolicy::Accept).await;
        truncated.map(drop).map_err(|error| error.about(&at.path))
    }

    /// Sets mode, owner or times. The returned size is the last known one if a data server does not answer.
    ///
    /// # Errors
    /// Errors of chmod(2), chown(2) and utimensat(2).
    pub async fn set_attr(&self, at: &InodePath, set: SetAttr) -> Result<Attr> {
        self.session.changed_attr(at, MetaRequest::SetAttr { at: at.clone(), set }).await
    }

    /// Checks whether the caller has the permissions in `mask` (access(2)).
    ///
    /// # Errors
    /// `EACCES` if not.
    pub async fn access(&self, at: &InodePath, mask: u32) -> Result<()> {
        self.session.done_at(at, Effect::Repeatable, MetaRequest::Access { at: at.clone(), mask }).await
    }

    /// Returns the value of an extended attribute.
    ///
    /// # Errors
    /// `ENODATA` when there is no attribute of that name.
    pub async fn get_xattr(&self, at: &InodePath, name: &str) -> Result<Vec<u8>> {
        let request = MetaRequest::GetXattr { at: at.clone(), name: name.to_owned() };
        match self.session.call_at(at, Effect::Repeatable, request).await? {
            MetaReply::Value(value) => Ok(value),
            _ => Err(Error::unexpected_reply()),
        }
    }

    /// Sets an extended attribute. `create` fails if it exists, `replace` if it does not.
    ///
    /// # Errors
    /// Errors of setxattr(2).
    pub async fn set_xattr(
        &self,
        at: &InodePath,
        name: &str,
        value: &[u8],
        create: bool,
        replace: bool,
    ) -> Result<()> {
        let (name, value) = (name.to_owned(), value.to_vec());
        let request = MetaRequest::SetXattr { at: at.clone(), name, value, create, replace };
        self.session.done_at(at, Effect::Once, request).await
    }

    /// Returns the names of all extended attributes.
    ///
    /// # Errors
    /// Errors of listxattr(2).
    pub async fn list_xattr(&self, at: &InodePath) -> Result<Vec<String>> {
        match self.session.call_at(at, Effect::Repeatable, MetaRequest::ListXattr { at: at.clone() }).await? {
            MetaReply::Names(names) => Ok(names),
            _ => Err(Error::unexpected_reply()),
        }
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// Errors of removexattr(2).
    pub async fn remove_xattr(&self, at: &InodePath, name: &str) -> Result<()> {
        let request = MetaRequest::RemoveXattr { at: at.clone(), name: name.to_owned() };
        self.session.done_at(at, Effect::Once, request).await
    }

    /// Returns the layout of a file, or the default for new files of a directory.
    ///
    /// # Errors
    /// Errors of stat(2).
    pub async fn get_layout(&self, at: &InodePath) -> Result<(Option<Layout>, Option<LayoutSpec>)> {
        match self.session.call_at(at, Effect::Repeatable, MetaRequest::GetLayout { at: at.clone() }).await? {
            MetaReply::Layout { layout, default } => Ok((layout, default)),
            _ => Err(Error::unexpected_reply()),
        }
    }

    /// Sets the layout of an empty file, or the default for new files of a directory.
    ///
    /// # Errors
    /// `EEXIST` or `EBUSY` when the file has bytes or writers; `EINVAL` when no target fits.
    pub async fn set_layout(&self, at: &InodePath, spec: &LayoutSpec) -> Result<()> {
        self.session
            .done_at(at, Effect::Once, MetaRequest::SetLayout { at: at.clone(), spec: spec.clone() })
            .await
    }

    /// Returns the rules of a directory and its ancestors, the nearest first. Directories without rules are left out.
    ///
    /// # Errors
    /// `ENOTDIR`, and errors of stat(2).
    pub async fn rules(&self, at: &InodePath) -> Result<Vec<RuledDirectory>> {
        match self.session.call_at(at, Effect::Repeatable, MetaRequest::Rules { at: at.clone() }).await? {
            MetaReply::Rules(ruled) => Ok(ruled),
            _ => Err(Error::unexpected_reply()),
        }
    }

    /// Removes rules of a directory and adds others in one step. Added rules come before those that remain.
    ///
    /// # Errors
    /// `EPERM` when the caller does not own the directory; `EINVAL` for an impossible layout; `ENOSPC` for too many
    /// rules; `ENOENT` when a rule to remove does not exist.
    pub async fn change_rules(&self, at: &InodePath, forget: RuleRemoval, add: Vec<Rule>) -> Result<()> {
        self.session.done_at(at, Effect::Once, MetaRequest::ChangeRules { at: at.clone(), forget, add }).await
    }
}
