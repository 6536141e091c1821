//! Typed access to rows of the database, and the small changes that operations are made of.

use super::fault::Outcome;
use super::owners;
use serde::de::DeserializeOwned;
use weft_core::{FileId, Timestamp};
use weft_store::metadata::{
    ALLOCATOR_KEY, AllocatorRow, DentryRow, Inode, Node, NodeKind, ReapRow, START_KEY, Scan, Snapshot,
    StartRow, Table, Transaction, dentry_key, file_key, seal, xattr_key,
};
use weft_wire::Errno;
use weft_wire::meta::ROOT;

pub(super) fn row<T: DeserializeOwned>(s: &dyn Snapshot, table: Table, key: &[u8]) -> Outcome<Option<T>> {
    match s.get(table, key)? {
        None => Ok(None),
        Some(found) => Ok(Some(found.open(table, key)?)),
    }
}

/// File that a key begins with.
pub(super) fn file_of_key(key: &[u8]) -> FileId {
    FileId(key.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes)))
}

/// Rows of a table by file, and the last file if there may be more.
pub(super) type Page<T> = (Vec<(FileId, T)>, Option<FileId>);

/// The next rows of a table by file, at most `max`.
pub(super) fn page_after<T: DeserializeOwned>(
    s: &dyn Snapshot,
    table: Table,
    after: FileId,
    max: usize,
) -> Outcome<Page<T>> {
    let (mut rows, mut more) = (Vec::new(), None);
    s.scan(table, std::ops::Bound::Excluded(&file_key(after)), &mut |key, value| {
        if rows.len() == max {
            more = rows.last().map(|(file, _): &(FileId, T)| *file);
            return Ok(Scan::Stop);
        }
        rows.push((file_of_key(key), value.open(table, key)?));
        Ok(Scan::Next)
    })?;
    Ok((rows, more))
}

pub(super) fn put_row<T: serde::Serialize>(t: &mut dyn Transaction, table: Table, key: &[u8], value: &T) {
    t.put(table, key, seal(table, key, value));
}

pub(super) fn inode(s: &dyn Snapshot, file: FileId) -> Outcome<Option<Inode>> {
    row(s, Table::Inodes, &file_key(file))
}

/// The inode that a request names by number. A removed one is `ESTALE`, as over NFS.
pub(super) fn named_inode(s: &dyn Snapshot, file: FileId) -> Outcome<Inode> {
    inode(s, file)?.ok_or_else(|| Errno::ESTALE.into())
}

/// The inode that a row of the database names.
pub(super) fn known_inode(s: &dyn Snapshot, file: FileId) -> Outcome<Inode> {
    inode(s, file)?.ok_or_else(|| {
        super::fault::Fault::new(
            Errno::EIO,
            format!("metadata database: inode {file} is missing; run `weft fsck --repair`"),
        )
    })
}

pub(super) fn put_inode(t: &mut dyn Transaction, file: FileId, inode: &Inode) {
    put_row(t, Table::Inodes, &file_key(file), inode);
}

/// Reads, changes and writes an inode, so that several changes within one operation add up.
pub(super) fn change_inode(
    t: &mut dyn Transaction,
    file: FileId,
    change: impl FnOnce(&mut Inode),
) -> Outcome<Inode> {
    let mut inode = known_inode(t, file)?;
    change(&mut inode);
    put_inode(t, file, &inode);
    Ok(inode)
}

pub(super) fn dentry(s: &dyn Snapshot, dir: FileId, name: &[u8]) -> Outcome<Option<DentryRow>> {
    row(s, Table::Dentries, &dentry_key(dir, name))
}

/// Adds a name, which must not exist, to a directory.
pub(super) fn add_entry(
    t: &mut dyn Transaction,
    dir: FileId,
    name: &[u8],
    entry: DentryRow,
    now: Timestamp,
) -> Outcome<()> {
    put_row(t, Table::Dentries, &dentry_key(dir, name), &entry);
    change_inode(t, dir, |inode| {
        if let Node::Directory { entries, .. } = &mut inode.node {
            *entries += 1;
        }
        inode.nlink += u32::from(entry.kind == NodeKind::Directory);
        (inode.mtime, inode.ctime) = (now, now);
    })?;
    Ok(())
}

/// Removes a name from a directory.
pub(super) fn remove_entry(
    t: &mut dyn Transaction,
    dir: FileId,
    name: &[u8],
    kind: NodeKind,
    now: Timestamp,
) -> Outcome<()> {
    t.delete(Table::Dentries, &dentry_key(dir, name));
    change_inode(t, dir, |inode| {
        if let Node::Directory { entries, .. } = &mut inode.node {
            *entries = entries.saturating_sub(1);
        }
        inode.nlink = inode.nlink.saturating_sub(u32::from(kind == NodeKind::Directory));
        (inode.mtime, inode.ctime) = (now, now);
    })?;
    Ok(())
}

pub(super) fn allocator(s: &dyn Snapshot) -> Outcome<AllocatorRow> {
    let row = row(s, Table::Counters, ALLOCATOR_KEY)?;
    Ok(row.unwrap_or(AllocatorRow { next: FileId(ROOT.0 + 1), inodes: 0 }))
}

pub(super) fn put_allocator(t: &mut dyn Transaction, row: &AllocatorRow) {
    put_row(t, Table::Counters, ALLOCATOR_KEY, row);
}

/// Assigns a new file id to an inode of `uid`, whose limit is `max`.
pub(super) fn allocate(t: &mut dyn Transaction, uid: u32, max: Option<u64>) -> Outcome<FileId> {
    owners::add(t, uid, max)?;
    let mut row = allocator(t)?;
    let file = row.next;
    if file.0 >= FileId::INODES_END {
        return Err(Errno::ENOSPC.into());
    }
    row.next = FileId(file.0 + 1);
    row.inodes += 1;
    put_allocator(t, &row);
    Ok(file)
}

pub(super) fn start_row(s: &dyn Snapshot) -> Outcome<StartRow> {
    Ok(row(s, Table::Counters, START_KEY)?.unwrap_or_default())
}

pub(super) fn put_start_row(t: &mut dyn Transaction, row: &StartRow) {
    put_row(t, Table::Counters, START_KEY, row);
}

/// Names of the extended attributes of a file.
pub(super) fn xattr_names(s: &dyn Snapshot, file: FileId) -> Outcome<Vec<Vec<u8>>> {
    let prefix = file_key(file);
    let mut names = Vec::new();
    s.scan(Table::Xattrs, std::ops::Bound::Included(&prefix), &mut |key, _| {
        Ok(match key.strip_prefix(&prefix) {
            Some(name) => {
                names.push(name.to_vec());
                Scan::Next
            }
            None => Scan::Stop,
        })
    })?;
    Ok(names)
}

/// Removes an inode that has no name and is not open. Its datafiles, if there can be any, are queued for removal.
/// Returns whether there can be some.
pub(super) fn destroy(t: &mut dyn Transaction, file: FileId, inode: &Inode) -> Outcome<bool> {
    if inode.xattrs > 0 {
        for name in xattr_names(t, file)? {
            t.delete(Table::Xattrs, &xattr_key(file, &String::from_utf8_lossy(&name)));
        }
    }
    t.delete(Table::Inodes, &file_key(file));
    owners::remove(t, inode.uid)?;
    let mut row = allocator(t)?;
    row.inodes = row.inodes.saturating_sub(1);
    put_allocator(t, &row);
    match &inode.node {
        Node::Regular { is_inline: true, .. } => {
            t.delete(Table::Inline, &file_key(file));
            let copy = inode.unfinished_copy(file);
            if let Some((copy, layout)) = copy {
                put_row(t, Table::Reap, &file_key(copy), &ReapRow { layout: layout.clone() });
            }
            Ok(copy.is_some())
        }
        Node::Regular { layout, is_size_valid, touched, .. } if *touched || !*is_size_valid => {
            put_row(t, Table::Reap, &file_key(inode.data(file)), &ReapRow { layout: layout.clone() });
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// Path of a directory from the root, with `/` between names and none at the ends.
pub(super) fn path_of(s: &dyn Snapshot, dir: FileId) -> Outcome<Vec<u8>> {
    let mut names = Vec::new();
    let mut at = dir;
    while at != ROOT {
        let inode = known_inode(s, at)?;
        names.push(inode.name);
        at = inode.parent;
        if names.len() > 4096 {
            return Err(Errno::ELOOP.into()); // a damaged tree; `weft fsck` repairs it
        }
    }
    names.reverse();
    Ok(names.join(&b'/'))
}
