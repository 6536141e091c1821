//! Requests that set, count and show quotas.

use super::super::fault::{Fault, Outcome};
use super::super::op::Op;
use super::super::open::Urgency;
use super::super::tables::{file_of_key, known_inode, path_of, row};
use super::super::walk::walk;
use super::super::{list, rename};
use super::{charge_of, charge_row, charge_rows, name_of, put_account, put_charge_row};
use std::ops::Bound;
use weft_core::{ByteLen, FileId, QuotaId, QuotaLimits, QuotaUsage};
use weft_store::metadata::{
    FileChargeRow, Inode, Node, NodeKind, QuotaRow, Scan, Snapshot, Table, Transaction, quota_key,
    quota_of_key,
};
use weft_wire::Errno;
use weft_wire::meta::{InodePath, MetaReply, PATH_LEN_MAX, QUOTAS_MAX, Quota, QuotaSubject, ROOT, TreeStep};

/// Number of directory entries counted in one step.
const COUNTED_MAX: usize = 1024;

/// Bytes of paths in one page of a listing, at least; one path more may follow.
const PATH_BYTES_MAX: usize = 256 << 10;

impl Op<'_> {
    /// Sets the limits of an account, and begins it if it is new.
    pub(in crate::metadata) fn set_quota(
        &self,
        t: &mut dyn Transaction,
        subject: &QuotaSubject,
        limits: QuotaLimits,
    ) -> Outcome<MetaReply> {
        let (id, begun) = match subject {
            QuotaSubject::User(uid) => (QuotaId::User(*uid), self.begin_user_account(t, *uid)?),
            QuotaSubject::TreeOf(at) => {
                let (dir, inode) = walk(t, self, at)?.existing()?;
                if !inode.is_dir() {
                    return Err(Errno::ENOTDIR.into());
                }
                (QuotaId::Tree(dir), self.begin_tree_account(t, dir, &inode)?)
            }
        };
        let account = QuotaRow { limits, ..begun };
        put_account(t, id, &account);
        self.core.quotas.lock().put(id, limits);
        Ok(MetaReply::Quotas { quotas: vec![described(t, id, &account)?], more: false })
    }

    fn begin_user_account(&self, t: &mut dyn Transaction, uid: u32) -> Outcome<QuotaRow> {
        if uid == 0 || uid == self.core.owner_uid {
            let detail = format!(
                "user {uid}: quotas do not limit root and the user who runs the metadata server: set the quota of \
                 another user or of a directory"
            );
            return Err(Fault::new(Errno::EINVAL, detail));
        }
        if let Some(account) = row(t, Table::Quotas, &quota_key(QuotaId::User(uid)))? {
            return Ok(account);
        }
        let rows = charge_rows(t)?;
        let mut usage = QuotaUsage::default();
        t.scan(Table::Inodes, Bound::Unbounded, &mut |key, value| {
            let inode: Inode = value.open(Table::Inodes, key)?;
            if inode.uid == uid {
                let row = rows.get(&file_of_key(key)).copied().unwrap_or_default();
                usage.add(QuotaUsage { bytes: charge_of(&inode, &row), inodes: 1 });
            }
            Ok(Scan::Next)
        })?;
        Ok(QuotaRow { limits: QuotaLimits::default(), usage, is_counted: true })
    }

    fn begin_tree_account(&self, t: &mut dyn Transaction, dir: FileId, inode: &Inode) -> Outcome<QuotaRow> {
        if let Some(account) = row(t, Table::Quotas, &quota_key(QuotaId::Tree(dir)))? {
            return Ok(account);
        }
        let nested = |other: FileId| {
            let name = name_of(t, QuotaId::Tree(other));
            let detail = format!("{name} has a quota already, and trees with quotas do not overlap");
            Fault::new(Errno::EINVAL, detail)
        };
        let trees: Vec<FileId> = self.core.quotas.lock().accounts.keys().filter_map(tree).collect();
        for other in trees {
            if rename::is_within(t, other, dir)? || rename::is_within(t, dir, other)? {
                return Err(nested(other));
            }
        }
        let row = charge_row(t, dir)?;
        put_charge_row(t, dir, &row, &FileChargeRow { tree: Some(dir), ..row });
        let is_empty = matches!(inode.node, Node::Directory { entries: 0, .. });
        let usage = QuotaUsage { bytes: ByteLen(0), inodes: 1 };
        Ok(QuotaRow { limits: QuotaLimits::default(), usage, is_counted: is_empty })
    }

    /// Counts entries of a directory in a new tree. An entry that is counted already, or was created since, is skipped.
    pub(in crate::metadata) fn count_tree(
        &self,
        t: &mut dyn Transaction,
        step: &TreeStep,
    ) -> Outcome<(MetaReply, Urgency)> {
        let TreeStep { tree, dir, after } = step;
        let mut directories = Vec::new();
        // Removed meanwhile, or moved out of the tree before it was counted.
        if self.core.tree_of(t, *dir)? != Some(*tree) {
            return Ok((MetaReply::TreeCounted { directories, after: None, entries: 0 }, Urgency::Lazy));
        }
        let (found, more) = list::names(t, *dir, after, COUNTED_MAX, false)?;
        let mut sum = QuotaUsage::default();
        for (_, entry) in &found {
            if entry.kind == NodeKind::Directory {
                directories.push(entry.file);
            }
            let row = charge_row(t, entry.file)?;
            if self.core.counted_tree(&row).is_some() {
                continue;
            }
            let inode = known_inode(t, entry.file)?;
            sum.add(QuotaUsage { bytes: charge_of(&inode, &row), inodes: 1 });
            put_charge_row(t, entry.file, &row, &FileChargeRow { tree: Some(*tree), ..row });
        }
        self.core.change_usage(t, QuotaId::Tree(*tree), |usage| usage.add(sum))?;
        let entries = found.len() as u32;
        let after = found.last().filter(|_| more).map(|(name, _)| name.clone());
        Ok((MetaReply::TreeCounted { directories, after, entries }, Urgency::Lazy))
    }

    /// Records that all files of a tree are counted.
    pub(in crate::metadata) fn end_tree_count(
        &self,
        t: &mut dyn Transaction,
        tree: FileId,
    ) -> Outcome<MetaReply> {
        let id = QuotaId::Tree(tree);
        let found: Option<QuotaRow> = row(t, Table::Quotas, &quota_key(id))?;
        let account = found.ok_or_else(|| Fault::new(Errno::ENOENT, "the directory was removed"))?;
        put_account(t, id, &QuotaRow { is_counted: true, ..account });
        Ok(MetaReply::Done)
    }

    pub(in crate::metadata) fn get_quota(
        &self,
        s: &dyn Snapshot,
        subject: &QuotaSubject,
        is_administrator: bool,
    ) -> Outcome<MetaReply> {
        let id = match subject {
            QuotaSubject::User(uid) if *uid == self.caller.uid || is_administrator => {
                Some(QuotaId::User(*uid))
            }
            QuotaSubject::User(uid) => {
                let detail = format!("user {uid}: only administrators see quotas of other users");
                return Err(Fault::new(Errno::EPERM, detail));
            }
            QuotaSubject::TreeOf(at) => {
                let (file, _) = walk(s, self, at)?.existing()?;
                self.core.tree_of(s, file)?.map(QuotaId::Tree)
            }
        };
        let found = match id {
            Some(id) => row(s, Table::Quotas, &quota_key(id))?.map(|account| (id, account)),
            None => None,
        };
        let quotas = found.map(|(id, account)| described(s, id, &account)).transpose()?;
        Ok(MetaReply::Quotas { quotas: quotas.into_iter().collect(), more: false })
    }

    pub(in crate::metadata) fn list_quotas(
        &self,
        s: &dyn Snapshot,
        after: Option<QuotaId>,
    ) -> Outcome<MetaReply> {
        let after = after.map(quota_key);
        let from = after.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(&key[..]));
        let (mut found, mut more) = (Vec::new(), false);
        s.scan(Table::Quotas, from, &mut |key, value| {
            if found.len() == QUOTAS_MAX {
                more = true;
                return Ok(Scan::Stop);
            }
            let account: QuotaRow = value.open(Table::Quotas, key)?;
            found.extend(quota_of_key(key).map(|id| (id, account)));
            Ok(Scan::Next)
        })?;
        let (mut quotas, mut path_bytes) = (Vec::new(), 0);
        for (id, account) in &found {
            if path_bytes > PATH_BYTES_MAX {
                more = true;
                break;
            }
            let quota = described(s, *id, account)?;
            path_bytes += quota.path.len();
            quotas.push(quota);
        }
        Ok(MetaReply::Quotas { quotas, more })
    }

    /// Accounts that limit new files of the caller, in the tree of `at` if given.
    pub(in crate::metadata) fn quotas_that_apply(
        &self,
        s: &dyn Snapshot,
        at: Option<&InodePath>,
    ) -> Outcome<Vec<Quota>> {
        if self.is_exempt() || self.core.quotas.lock().accounts.is_empty() {
            return Ok(Vec::new());
        }
        let tree = match at {
            Some(at) => self.core.tree_of(s, walk(s, self, at)?.existing()?.0)?,
            None => self.core.tree_of(s, ROOT)?,
        };
        let ids = [Some(QuotaId::User(self.caller.uid)), tree.map(QuotaId::Tree)];
        let mut quotas = Vec::new();
        for id in ids.into_iter().flatten() {
            let found: Option<QuotaRow> = row(s, Table::Quotas, &quota_key(id))?;
            if let Some(account) = found.filter(|account| account.limits != QuotaLimits::default()) {
                quotas.push(described(s, id, &account)?);
            }
        }
        Ok(quotas)
    }
}

fn tree(id: &QuotaId) -> Option<FileId> {
    match id {
        QuotaId::Tree(dir) => Some(*dir),
        QuotaId::User(_) => None,
    }
}

/// Number of all accounts, and the `accounts_max` that are nearest to one of their limits.
pub(in crate::metadata) fn nearest_to_limits(
    s: &dyn Snapshot,
    accounts_max: usize,
) -> Outcome<(u64, Vec<Quota>)> {
    let mut all = Vec::new();
    s.scan(Table::Quotas, Bound::Unbounded, &mut |key, value| {
        let account: QuotaRow = value.open(Table::Quotas, key)?;
        all.extend(quota_of_key(key).map(|id| (account.limits.share_of(account.usage), id, account)));
        Ok(Scan::Next)
    })?;
    let count = all.len() as u64;
    all.sort_by(|one, other| other.0.total_cmp(&one.0));
    all.truncate(accounts_max);
    let quotas = all.iter().map(|(_, id, account)| described(s, *id, account)).collect::<Outcome<_>>()?;
    Ok((count, quotas))
}

fn described(s: &dyn Snapshot, id: QuotaId, account: &QuotaRow) -> Outcome<Quota> {
    let path = match id {
        // A removed directory that is still open has no path.
        QuotaId::Tree(dir) => shown(path_of(s, dir).unwrap_or_default()),
        QuotaId::User(_) => Vec::new(),
    };
    let QuotaRow { limits, usage, is_counted } = *account;
    Ok(Quota { id, path, limits, usage, is_counted })
}

/// The path, or the end of one that is too long for a program to open.
fn shown(mut path: Vec<u8>) -> Vec<u8> {
    if path.len() > PATH_LEN_MAX {
        path.drain(..path.len() - PATH_LEN_MAX);
        path.splice(..3, *b"...");
    }
    path
}
