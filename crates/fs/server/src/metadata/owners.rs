//! Number of inodes that each user owns, and their limit.
//!
//! Each count is a row of the database. It changes in the transaction that creates an inode, removes it or changes its
//! owner, so it is exact after any crash. A database without counts is counted at the next start.

use super::fault::{Fault, Outcome};
use super::tables::{put_row, row};
use std::collections::BTreeMap;
use std::ops::Bound;
use weft_store::metadata::{Inode, OwnerRow, Scan, Snapshot, Table, Transaction, owner_key};
use weft_wire::Errno;

/// Inodes by user id.
pub(super) type Counts = BTreeMap<u32, u64>;

/// Number of inodes that `uid` owns.
pub(super) fn owned(s: &dyn Snapshot, uid: u32) -> Outcome<u64> {
    let row: Option<OwnerRow> = row(s, Table::Owners, &owner_key(uid))?;
    Ok(row.unwrap_or_default().inodes)
}

/// Counts a new inode of `uid`.
///
/// # Errors
/// `EDQUOT` if the user owns `max` inodes or more.
pub(super) fn add(t: &mut dyn Transaction, uid: u32, max: Option<u64>) -> Outcome<()> {
    let inodes = owned(t, uid)?;
    if let Some(max) = max.filter(|max| inodes >= *max) {
        let detail = format!(
            "user {uid} owns {inodes} files and directories, of at most {max}: remove some, or raise user_inodes under \
             [limits] in the cluster file and restart the metadata server"
        );
        return Err(Fault::new(Errno::EDQUOT, detail));
    }
    put(t, uid, inodes + 1);
    Ok(())
}

/// Subtracts an inode of `uid`.
pub(super) fn remove(t: &mut dyn Transaction, uid: u32) -> Outcome<()> {
    let inodes = owned(t, uid)?;
    put(t, uid, inodes.saturating_sub(1));
    Ok(())
}

/// Sets a count; zero has no row.
pub(super) fn put(t: &mut dyn Transaction, uid: u32, inodes: u64) {
    match inodes {
        0 => t.delete(Table::Owners, &owner_key(uid)),
        _ => put_row(t, Table::Owners, &owner_key(uid), &OwnerRow { inodes }),
    }
}

/// All counts.
pub(super) fn all(s: &dyn Snapshot) -> Outcome<Counts> {
    let mut counts = Counts::new();
    s.scan(Table::Owners, Bound::Unbounded, &mut |key, value| {
        let row: OwnerRow = value.open(Table::Owners, key)?;
        if let Ok(uid) = key.try_into() {
            counts.insert(u32::from_be_bytes(uid), row.inodes);
        }
        Ok(Scan::Next)
    })?;
    Ok(counts)
}

/// Called at the start: counts the inodes of a database without counts.
pub(super) fn begin(t: &mut dyn Transaction) -> Outcome<()> {
    let mut has_accounts = false;
    t.scan(Table::Owners, Bound::Unbounded, &mut |_, _| {
        has_accounts = true;
        Ok(Scan::Stop)
    })?;
    if has_accounts {
        return Ok(());
    }
    let mut counts = Counts::new();
    t.scan(Table::Inodes, Bound::Unbounded, &mut |key, value| {
        // A damaged row must not prevent the start. The check finds it and corrects the count.
        if let Ok(inode) = value.open::<Inode>(Table::Inodes, key) {
            *counts.entry(inode.uid).or_default() += 1;
        }
        Ok(Scan::Next)
    })?;
    counts.into_iter().for_each(|(uid, inodes)| put(t, uid, inodes));
    Ok(())
}

/// Counts that differ from `counted`, the inodes found by a check: user, recorded count, correct count.
pub(super) fn wrong(s: &dyn Snapshot, counted: &Counts) -> Outcome<Vec<(u32, u64, u64)>> {
    let has = all(s)?;
    let users = has.keys().chain(counted.keys().filter(|uid| !has.contains_key(uid)));
    let of = |counts: &Counts, uid: &u32| counts.get(uid).copied().unwrap_or(0);
    let found = users.map(|uid| (*uid, of(&has, uid), of(counted, uid)));
    Ok(found.filter(|(_, has, counted)| has != counted).collect())
}
