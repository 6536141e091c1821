//! Comparison of accounts with the files, for `weft fsck`.

use super::super::fault::Outcome;
use super::super::tables::file_of_key;
use super::{account, charge_of, charge_rows, put_account};
use std::collections::BTreeMap;
use std::ops::Bound;
use weft_core::{FileId, QuotaId, QuotaUsage};
use weft_store::metadata::{Inode, QuotaRow, Scan, Snapshot, Table, Transaction, quota_of_key};

/// Accounts that differ from the files.
#[derive(Default)]
pub(in crate::metadata) struct WrongAccounts {
    /// Account, recorded usage, correct usage.
    pub usage: Vec<(QuotaId, QuotaUsage, QuotaUsage)>,
    /// Missing files that have a charge.
    pub missing: Vec<FileId>,
}

/// Compares all accounts with the files.
pub(in crate::metadata) fn wrong(s: &dyn Snapshot) -> Outcome<WrongAccounts> {
    let mut accounts: BTreeMap<QuotaId, (QuotaUsage, QuotaUsage)> = BTreeMap::new();
    s.scan(Table::Quotas, Bound::Unbounded, &mut |key, value| {
        let account: QuotaRow = value.open(Table::Quotas, key)?;
        if let Some(id) = quota_of_key(key) {
            accounts.insert(id, (account.usage, QuotaUsage::default()));
        }
        Ok(Scan::Next)
    })?;
    let mut rows = charge_rows(s)?;
    if accounts.is_empty() && rows.is_empty() {
        return Ok(WrongAccounts::default());
    }
    s.scan(Table::Inodes, Bound::Unbounded, &mut |key, value| {
        let inode: Inode = value.open(Table::Inodes, key)?;
        let row = rows.remove(&file_of_key(key)).unwrap_or_default();
        let part = QuotaUsage { bytes: charge_of(&inode, &row), inodes: 1 };
        for id in [Some(QuotaId::User(inode.uid)), row.tree.map(QuotaId::Tree)].into_iter().flatten() {
            if let Some((_, counted)) = accounts.get_mut(&id) {
                counted.add(part);
            }
        }
        Ok(Scan::Next)
    })?;
    let differ = |(id, (has, counted)): (QuotaId, (QuotaUsage, QuotaUsage))| {
        (has != counted).then_some((id, has, counted))
    };
    let usage = accounts.into_iter().filter_map(differ).collect();
    Ok(WrongAccounts { usage, missing: rows.into_keys().collect() })
}

/// Corrects the usage of an account.
pub(in crate::metadata) fn correct(t: &mut dyn Transaction, id: QuotaId, usage: QuotaUsage) -> Outcome<()> {
    let account = account(t, id)?;
    put_account(t, id, &QuotaRow { usage, ..account });
    Ok(())
}
