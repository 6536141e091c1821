//! Paths of inodes for `weft top`, within the permissions of the caller.

use super::fault::Outcome;
use super::op::Op;
use super::permit::{EXECUTE, READ, allows, owns};
use super::tables::{dentry, inode};
use weft_core::FileId;
use weft_store::metadata::Snapshot;
use weft_wire::meta::{KnownPath, MetaReply, PATH_LEN_MAX, ROOT};

impl Op<'_> {
    /// Paths of inodes: all with `sees_all`, else those that the caller could find by listing directories.
    pub(super) fn paths(&self, s: &dyn Snapshot, files: &[FileId], sees_all: bool) -> MetaReply {
        let path = |file: &FileId| self.visible_path(s, file.inode(), sees_all);
        // A damaged row hides the path; `weft fsck` reports it.
        MetaReply::Paths(files.iter().map(|file| path(file).unwrap_or(KnownPath::Hidden)).collect())
    }

    /// Path of an inode, if the name it was created or last renamed under still leads to it. The caller must have
    /// permission to search every directory above it, and to list it unless the caller owns the entry.
    fn visible_path(&self, s: &dyn Snapshot, file: FileId, sees_all: bool) -> Outcome<KnownPath> {
        let (mut names, mut len, mut at) = (Vec::new(), 0, file);
        while at != ROOT {
            let Some(found) = inode(s, at)? else { return Ok(KnownPath::Unnamed) };
            if found.nlink == 0 || dentry(s, found.parent, &found.name)?.is_none_or(|entry| entry.file != at)
            {
                return Ok(KnownPath::Unnamed);
            }
            let Some(dir) = inode(s, found.parent)? else { return Ok(KnownPath::Unnamed) };
            let can_find = allows(self.caller, &dir, EXECUTE)
                && (owns(self.caller, &found) || allows(self.caller, &dir, READ));
            len += found.name.len() + 1;
            // The length also ends the walk through a damaged tree with a cycle.
            if !(can_find || sees_all) || len > PATH_LEN_MAX {
                return Ok(KnownPath::Hidden);
            }
            at = found.parent;
            names.push(found.name);
        }
        names.reverse();
        Ok(KnownPath::Path(names.join(&b'/')))
    }
}
