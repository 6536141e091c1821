//! Renaming.

use super::fault::Outcome;
use super::op::Op;
use super::permit::{WRITE, require, require_sticky_permission};
use super::tables::{add_entry, change_inode, known_inode, remove_entry};
use super::walk::{LastComponent, Walked, walk_to_name};
use weft_core::FileId;
use weft_store::metadata::{DentryRow, Inode, Node, Snapshot, Transaction};
use weft_wire::Errno;
use weft_wire::meta::{InodePath, MetaReply, ROOT};

impl Op<'_> {
    pub(super) fn rename(
        &self,
        t: &mut dyn Transaction,
        from: &InodePath,
        to: &InodePath,
        no_replace: bool,
        exchange: bool,
    ) -> Outcome<MetaReply> {
        if no_replace && exchange {
            return Err(Errno::EINVAL.into());
        }
        let from = walk_to_name(t, self, from)?;
        let to = walk_to_name(t, self, to)?;
        if from.last != LastComponent::Name || to.last != LastComponent::Name {
            return Err(if no_replace && to.last != LastComponent::Name {
                Errno::EEXIST
            } else {
                Errno::EBUSY
            }
            .into());
        }
        let (file, inode) = from.found.clone().ok_or(Errno::ENOENT)?;
        if no_replace && to.found.is_some() {
            return Err(Errno::EEXIST.into());
        }
        if exchange && to.found.is_none() {
            return Err(Errno::ENOENT.into());
        }
        if !inode.is_dir() && (from.slash || (to.slash && !exchange)) {
            return Err(Errno::ENOTDIR.into());
        }
        if inode.is_dir() && is_within(t, to.dir, file)? {
            return Err(Errno::EINVAL.into());
        }
        if let Some((other, victim)) = &to.found
            && victim.is_dir()
            && *other != file
            && is_within(t, from.dir, *other)?
        {
            return Err(if exchange { Errno::EINVAL } else { Errno::ENOTEMPTY }.into());
        }
        if to.found.as_ref().is_some_and(|(other, _)| *other == file) {
            return Ok(MetaReply::Done); // two names of one file: nothing to do, by POSIX
        }
        self.require_change(&from.dir_inode)?;
        require_sticky_permission(self.caller, &from.dir_inode, &inode)?;
        self.require_change(&to.dir_inode)?;
        if let Some((_, victim)) = &to.found {
            require_sticky_permission(self.caller, &to.dir_inode, victim)?;
        }
        if from.dir != to.dir && inode.is_dir() {
            require(self.caller, &inode, WRITE)?; // its `..` changes
        }
        match to.found.clone() {
            Some((other, victim)) if exchange => {
                if to.slash && !victim.is_dir() {
                    return Err(Errno::ENOTDIR.into());
                }
                if from.dir != to.dir && victim.is_dir() {
                    require(self.caller, &victim, WRITE)?;
                }
                self.change_tree(t, (file, &inode), &from, &to)?;
                self.change_tree(t, (other, &victim), &to, &from)?;
                self.take(t, &from, &inode)?;
                self.take(t, &to, &victim)?;
                self.put(t, &to, file, &inode)?;
                self.put(t, &from, other, &victim)?;
            }
            found => {
                // Before the object at the new name is removed: nothing may be refused afterwards.
                self.change_tree(t, (file, &inode), &from, &to)?;
                if let Some((other, victim)) = found {
                    self.replace(t, &inode, &to, other, victim)?;
                }
                self.take(t, &from, &inode)?;
                self.put(t, &to, file, &inode)?;
            }
        }
        Ok(MetaReply::Done)
    }

    /// Removes the object at `to`, if `inode` may replace it.
    fn replace(
        &self,
        t: &mut dyn Transaction,
        inode: &Inode,
        to: &Walked,
        other: FileId,
        victim: Inode,
    ) -> Outcome<()> {
        match (&victim.node, inode.is_dir()) {
            (Node::Directory { .. }, false) => return Err(Errno::EISDIR.into()),
            (Node::Directory { entries: 0, .. }, true) => {}
            (Node::Directory { .. }, true) => return Err(Errno::ENOTEMPTY.into()),
            (_, true) => return Err(Errno::ENOTDIR.into()),
            (_, false) => {}
        }
        remove_entry(t, to.dir, &to.name, victim.kind(), self.now)?;
        self.drop_name(t, other, victim)
    }

    /// Adapts the quotas of trees to a rename, unless it stays in its directory.
    fn change_tree(
        &self,
        t: &mut dyn Transaction,
        (file, inode): (FileId, &Inode),
        from: &Walked,
        to: &Walked,
    ) -> Outcome<()> {
        if from.dir == to.dir {
            return Ok(());
        }
        let must_stay = inode.is_dir() || inode.nlink > 1;
        self.core.change_tree(t, (file, inode), to.dir, (must_stay, self.is_exempt()))
    }

    fn take(&self, t: &mut dyn Transaction, from: &Walked, inode: &Inode) -> Outcome<()> {
        remove_entry(t, from.dir, &from.name, inode.kind(), self.now)
    }

    fn put(&self, t: &mut dyn Transaction, to: &Walked, file: FileId, inode: &Inode) -> Outcome<()> {
        add_entry(t, to.dir, &to.name, DentryRow { file, kind: inode.kind() }, self.now)?;
        change_inode(t, file, |inode| {
            inode.ctime = self.now;
            (inode.parent, inode.name) = (to.dir, to.name.clone());
        })?;
        Ok(())
    }
}

/// Whether `dir` is `ancestor` or below it.
pub(super) fn is_within(s: &dyn Snapshot, dir: FileId, ancestor: FileId) -> Outcome<bool> {
    let mut at = dir;
    loop {
        if at == ancestor {
            return Ok(true);
        }
        if at == ROOT {
            return Ok(false);
        }
        let next = known_inode(s, at)?.parent;
        if next == at {
            return Ok(false); // a damaged tree must not block the service
        }
        at = next;
    }
}
