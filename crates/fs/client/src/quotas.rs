//! Quotas of users and directory trees.

use crate::call::Effect;
use crate::client::Client;
use crate::error::{Error, Result};
use weft_core::{FileId, QuotaId, QuotaLimits};
use weft_env::Env;
use weft_wire::meta::{InodePath, MetaReply, MetaRequest, Quota, QuotaSubject, TreeStep};

impl<E: Env> Client<E> {
    /// Returns the quota of a user, or of the tree that a path is in; `None` if there is none.
    ///
    /// # Errors
    /// `EPERM` for another user, unless the caller is an administrator; errors of stat(2) for a path.
    pub async fn quota(&self, subject: QuotaSubject) -> Result<Option<Quota>> {
        let request = MetaRequest::GetQuota { subject: subject.clone() };
        Ok(first(self.ask_quota(&subject, Effect::Repeatable, request).await?))
    }

    /// Returns the quotas of all users and trees. For administrators only.
    ///
    /// # Errors
    /// `EPERM`; `Unreachable`.
    pub async fn quotas(&self) -> Result<Vec<Quota>> {
        let mut all: Vec<Quota> = Vec::new();
        loop {
            let after: Option<QuotaId> = all.last().map(|quota| quota.id);
            let request = MetaRequest::ListQuotas { after };
            let MetaReply::Quotas { quotas, more } = self.session.call(Effect::Repeatable, request).await?
            else {
                return Err(Error::unexpected_reply());
            };
            let is_last = !more || quotas.is_empty();
            all.extend(quotas);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// Sets the limits of a user or tree, and counts the files of a new tree, which may take long. If that is
    /// interrupted, a repetition continues it. For administrators only.
    ///
    /// `counted` is called after each step with the number of entries so far.
    ///
    /// # Errors
    /// `EPERM`; `EINVAL` for users without limits and for trees that overlap; errors of stat(2) for a path.
    pub async fn set_quota(
        &self,
        subject: &QuotaSubject,
        limits: QuotaLimits,
        mut counted: impl FnMut(u64),
    ) -> Result<Quota> {
        let request = MetaRequest::SetQuota { subject: subject.clone(), limits };
        let quota = first(self.ask_quota(subject, Effect::Once, request).await?);
        let quota = quota.ok_or_else(Error::unexpected_reply)?;
        let QuotaId::Tree(tree) = quota.id else { return Ok(quota) };
        if quota.is_counted {
            return Ok(quota);
        }
        let (mut open, mut sum) = (vec![tree], 0);
        while let Some(dir) = open.pop() {
            self.count_directory(tree, dir, &mut open, |entries| {
                sum += u64::from(entries);
                counted(sum);
            })
            .await?;
        }
        match self.session.call(Effect::Once, MetaRequest::EndTreeCount { tree }).await? {
            MetaReply::Done => {}
            _ => return Err(Error::unexpected_reply()),
        }
        let subject = QuotaSubject::TreeOf(InodePath::from_root(quota.path, false));
        let quota = self.quota(subject).await?;
        quota.ok_or_else(|| Error::misuse(weft_wire::Errno::ENOENT, "the directory was removed meanwhile"))
    }

    /// Counts the entries of one directory of a tree, and adds its subdirectories to `open`.
    async fn count_directory(
        &self,
        tree: FileId,
        dir: FileId,
        open: &mut Vec<FileId>,
        mut counted: impl FnMut(u32),
    ) -> Result<()> {
        let mut after = Vec::new();
        loop {
            let request = MetaRequest::CountTree(TreeStep { tree, dir, after });
            let reply = self.session.call(Effect::Repeatable, request).await?;
            let MetaReply::TreeCounted { directories, after: next, entries } = reply else {
                return Err(Error::unexpected_reply());
            };
            open.extend(directories);
            counted(entries);
            match next {
                Some(next) => after = next,
                None => return Ok(()),
            }
        }
    }

    async fn ask_quota(
        &self,
        subject: &QuotaSubject,
        effect: Effect,
        request: MetaRequest,
    ) -> Result<Vec<Quota>> {
        let reply = match subject {
            QuotaSubject::User(_) => self.session.call(effect, request).await?,
            QuotaSubject::TreeOf(at) => self.session.call_at(at, effect, request).await?,
        };
        match reply {
            MetaReply::Quotas { quotas, .. } => Ok(quotas),
            _ => Err(Error::unexpected_reply()),
        }
    }
}

fn first(quotas: Vec<Quota>) -> Option<Quota> {
    quotas.into_iter().next()
}
