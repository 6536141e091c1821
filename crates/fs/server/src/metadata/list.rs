//! Listing a directory in pages.

use super::fault::{Fault, Outcome};
use super::op::{Op, file_type};
use super::permit::{EXECUTE, allows};
use super::tables::inode;
use super::walk::walk;
use std::ops::Bound;
use weft_core::{FileId, Nanos};
use weft_store::metadata::{DentryRow, Scan, Snapshot, Table, dentry_key, file_key};
use weft_wire::Errno;
use weft_wire::meta::{Attr, Entry, InodePath, LIST_LIMIT_MAX, MetaReply};

/// Approximate maximum size of a page, well below the maximum message.
const PAGE_BYTES_MAX: usize = 512 << 10;
/// Size of an entry in addition to its name: numbers, then attributes with a capability and a layout of some columns.
const ENTRY_BYTES: usize = 24;
const ATTR_BYTES: usize = 160;
/// Maximum size of a column in a layout.
const COLUMN_BYTES: usize = 15;

/// Page that a client asks for.
pub(super) struct Page<'a> {
    /// Last name of the page before.
    pub after: &'a [u8],
    pub limit: u32,
    pub with_attr: bool,
    /// Time before the step, if the names are to be leased.
    pub lease_at: Option<Nanos>,
}

impl Op<'_> {
    pub(super) fn list(&self, s: &dyn Snapshot, at: &InodePath, page: &Page<'_>) -> Outcome<MetaReply> {
        let Page { after, limit, with_attr, lease_at } = *page;
        let (dir, dir_inode) = walk(s, self, at)?.existing()?;
        if !dir_inode.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        self.require_read(&dir_inode)?;
        let (found, mut more) = names(s, dir, after, limit.clamp(1, LIST_LIMIT_MAX) as usize, with_attr)?;
        // Read permission on a directory gives names; attributes also need search permission.
        let with_attr = with_attr && allows(self.caller, &dir_inode, EXECUTE);
        let mut entries = Vec::with_capacity(found.len());
        let mut layouts = 0;
        for (name, row) in found {
            if layouts > PAGE_BYTES_MAX / 2 {
                more = true; // files being written carry their layouts
                break;
            }
            let attr = match with_attr {
                // Missing only in a damaged tree. The name is still listed, so that it can be removed.
                true => inode(s, row.file)?.map(|inode| self.attr(row.file, &inode)),
                false => None,
            };
            if let Some(invalid_size) = attr.as_ref().and_then(|attr: &Attr| attr.invalid_size.as_ref()) {
                layouts += COLUMN_BYTES * invalid_size.layout.objects().count();
            }
            entries.push(Entry { name, file: row.file, kind: file_type(row.kind), attr, leased: false });
        }
        if let Some(now) = lease_at.filter(|_| with_attr) {
            let found: Vec<&Attr> = entries.iter().filter_map(|entry| entry.attr.as_ref()).collect();
            let leased = self.core.name_leases.lock().grant(self.session, dir, found.into_iter(), now);
            let with_attr = entries.iter_mut().filter(|entry| entry.attr.is_some());
            with_attr.zip(leased).for_each(|(entry, leased)| entry.leased = leased);
        }
        Ok(MetaReply::Entries { entries, more })
    }
}

/// A name and the inode it leads to.
pub(super) type Named = (Vec<u8>, DentryRow);

/// Up to `limit` names of `dir` after `after`, and whether there are more.
pub(super) fn names(
    s: &dyn Snapshot,
    dir: FileId,
    after: &[u8],
    limit: usize,
    with_attr: bool,
) -> Outcome<(Vec<Named>, bool)> {
    let (mut found, mut more, mut bytes) = (Vec::new(), false, 0);
    let prefix = file_key(dir);
    s.scan(Table::Dentries, Bound::Excluded(&dentry_key(dir, after)), &mut |key, value| {
        let Some(name) = key.strip_prefix(&prefix) else { return Ok(Scan::Stop) };
        if found.len() == limit || bytes > PAGE_BYTES_MAX {
            more = true;
            return Ok(Scan::Stop);
        }
        bytes += name.len() + ENTRY_BYTES + if with_attr { ATTR_BYTES } else { 0 };
        found.push((name.to_vec(), value.open::<DentryRow>(Table::Dentries, key)?));
        Ok(Scan::Next)
    })
    .map_err(Fault::from)?;
    Ok((found, more))
}
