//! Making and removing names.

use super::fault::Outcome;
use super::layouts::Wish;
use super::op::Op;
use super::permit::{EXECUTE, MODE_MASK, SET_GID, WRITE, require, require_linkable, require_unstuck};
use super::rules;
use super::tables::{add_entry, allocate, change_inode, path_of, put_inode, remove_entry};
use super::walk::{Last, Walked, walk, walk_to_name};
use weft_core::parts::RoomLeft;
use weft_core::{ByteLen, FileId, Layout, RecordedLens};
use weft_store::metadata::{DentryRow, Generations, INTEGRITY_BITS, Inode, Node, NodeKind, Transaction};
use weft_wire::Errno;
use weft_wire::meta::{FileType, LayoutSpec, MetaReply, PATH_LEN_MAX, Place, ROOT};

/// Most names of a file, as on ext4.
pub(super) const LINKS_MAX: u32 = 65_000;

impl Op<'_> {
    pub(super) fn mkdir(&self, t: &mut dyn Transaction, at: &Place, mode: u32) -> Outcome<MetaReply> {
        let spot = walk_to_name(t, self, at)?;
        self.require_free(&spot)?;
        let node = Node::Directory { entries: 0, default: inherited(&spot.dir_inode) };
        let (file, inode) = self.make(t, &spot, mode & !SET_GID, node)?;
        Ok(MetaReply::Attr(self.attr(file, &inode)))
    }

    pub(super) fn mknod(
        &self,
        t: &mut dyn Transaction,
        at: &Place,
        kind: FileType,
        mode: u32,
        rdev: u64,
    ) -> Outcome<MetaReply> {
        let spot = walk_to_name(t, self, at)?;
        self.require_free(&spot)?;
        if spot.slash {
            return Err(Errno::ENOENT.into());
        }
        let special = |kind| Node::Special { kind, rdev };
        let node = match kind {
            FileType::Regular => {
                let (file, inode) = self.make_regular(t, &spot, mode, &LayoutSpec::default(), true)?;
                return Ok(MetaReply::Attr(self.attr(file, &inode)));
            }
            FileType::Fifo => special(NodeKind::Fifo),
            FileType::Socket => special(NodeKind::Socket),
            FileType::CharDevice | FileType::BlockDevice if !self.who.is_root() => {
                return Err(Errno::EPERM.into());
            }
            FileType::CharDevice => special(NodeKind::CharDevice),
            FileType::BlockDevice => special(NodeKind::BlockDevice),
            FileType::Directory => return Err(Errno::EPERM.into()),
            FileType::Symlink => return Err(Errno::EINVAL.into()),
        };
        let (file, inode) = self.make(t, &spot, mode, node)?;
        Ok(MetaReply::Attr(self.attr(file, &inode)))
    }

    pub(super) fn symlink(&self, t: &mut dyn Transaction, at: &Place, target: &[u8]) -> Outcome<MetaReply> {
        if target.is_empty() {
            return Err(Errno::ENOENT.into());
        }
        if target.len() >= PATH_LEN_MAX {
            return Err(Errno::ENAMETOOLONG.into());
        }
        if target.contains(&0) {
            return Err(Errno::EINVAL.into());
        }
        let spot = walk_to_name(t, self, at)?;
        self.require_free(&spot)?;
        if spot.slash {
            return Err(Errno::ENOENT.into());
        }
        let (file, inode) = self.make(t, &spot, 0o777, Node::Symlink { target: target.to_vec() })?;
        Ok(MetaReply::Attr(self.attr(file, &inode)))
    }

    pub(super) fn link(&self, t: &mut dyn Transaction, from: &Place, to: &Place) -> Outcome<MetaReply> {
        let (file, inode) = walk(t, self, from)?.existing()?;
        require_linkable(self.who, &inode)?;
        let spot = walk_to_name(t, self, to)?;
        self.require_free(&spot)?;
        if spot.slash {
            return Err(Errno::ENOENT.into());
        }
        self.require_change(&spot.dir_inode)?;
        if inode.is_dir() {
            return Err(Errno::EPERM.into());
        }
        if inode.nlink == 0 {
            return Err(Errno::ENOENT.into());
        }
        if inode.nlink >= LINKS_MAX {
            return Err(Errno::EMLINK.into());
        }
        let entry = DentryRow { file, kind: inode.kind() };
        add_entry(t, spot.dir, &spot.name, entry, self.now)?;
        let inode = change_inode(t, file, |inode| {
            inode.nlink += 1;
            inode.ctime = self.now;
        })?;
        Ok(MetaReply::Attr(self.attr(file, &inode)))
    }

    pub(super) fn unlink(&self, t: &mut dyn Transaction, at: &Place) -> Outcome<MetaReply> {
        let spot = walk_to_name(t, self, at)?;
        if spot.last != Last::Name {
            return Err(Errno::EISDIR.into());
        }
        let Some((file, inode)) = &spot.found else { return Err(Errno::ENOENT.into()) };
        if spot.slash {
            return Err(if inode.is_dir() { Errno::EISDIR.into() } else { Errno::ENOTDIR.into() });
        }
        self.require_change(&spot.dir_inode)?;
        require_unstuck(self.who, &spot.dir_inode, inode)?;
        if inode.is_dir() {
            return Err(Errno::EISDIR.into());
        }
        remove_entry(t, spot.dir, &spot.name, inode.kind(), self.now)?;
        self.drop_name(t, *file, inode.clone())?;
        Ok(MetaReply::Done)
    }

    pub(super) fn rmdir(&self, t: &mut dyn Transaction, at: &Place) -> Outcome<MetaReply> {
        let spot = walk_to_name(t, self, at)?;
        match spot.last {
            Last::Dot => return Err(Errno::EINVAL.into()),
            Last::DotDot => return Err(Errno::ENOTEMPTY.into()),
            Last::Base => return Err(Errno::EBUSY.into()),
            Last::Name => {}
        }
        let Some((file, inode)) = &spot.found else { return Err(Errno::ENOENT.into()) };
        self.require_change(&spot.dir_inode)?;
        require_unstuck(self.who, &spot.dir_inode, inode)?;
        match &inode.node {
            Node::Directory { entries: 0, .. } => {}
            Node::Directory { .. } => return Err(Errno::ENOTEMPTY.into()),
            _ => return Err(Errno::ENOTDIR.into()),
        }
        debug_assert_ne!(*file, ROOT, "the root has no name");
        remove_entry(t, spot.dir, &spot.name, NodeKind::Directory, self.now)?;
        self.drop_name(t, *file, inode.clone())?;
        Ok(MetaReply::Done)
    }

    /// Makes an inode and its name at a free spot, with the caller's right to do it.
    pub(super) fn make(
        &self,
        t: &mut dyn Transaction,
        spot: &Walked,
        mode: u32,
        node: Node,
    ) -> Outcome<(FileId, Inode)> {
        self.require_change(&spot.dir_inode)?;
        let file = allocate(t, self.who.uid, self.bounds().map(|bounds| bounds.inodes))?;
        self.make_as(t, spot, file, mode, node)
    }

    /// Makes a file of striped bytes at a free spot.
    pub(super) fn make_regular(
        &self,
        t: &mut dyn Transaction,
        spot: &Walked,
        mode: u32,
        wish: &LayoutSpec,
        settled: bool,
    ) -> Outcome<(FileId, Inode)> {
        self.require_change(&spot.dir_inode)?;
        let file = allocate(t, self.who.uid, self.bounds().map(|bounds| bounds.inodes))?;
        let directory = inherited(&spot.dir_inode);
        let layout = self.layout_of_new(t, spot, &Wish::from(wish), directory.as_ref(), file)?;
        let generations = Generations::default();
        let recorded = RecordedLens::NONE;
        let node = Node::Regular { layout, settled, touched: false, epoch: 0, generations, recorded };
        let made = self.make_as(t, spot, file, mode, node)?;
        self.core.opens.lock().begin_marking(file);
        Ok(made)
    }

    /// The layout of a new file, by the wish, the nearest rule, the directory and the cluster; the room that it promises is
    /// taken.
    fn layout_of_new(
        &self,
        t: &mut dyn Transaction,
        spot: &Walked,
        wish: &Wish,
        directory: Option<&weft_store::metadata::LayoutChoice>,
        file: FileId,
    ) -> Outcome<Layout> {
        let found = self.rule_for(t, spot.dir, &spot.dir_inode, &spot.name)?;
        let rule = found.as_ref().map(|found| rules::wish(found.rule()));
        let by_class = [Some(wish), rule.as_ref()].into_iter().flatten().any(|wish| wish.by_class.is_some());
        let left = if by_class { self.core.left(t)? } else { RoomLeft::new() };
        let space = (&left, &self.core.closed());
        let chosen = self.core.layouts.choose(wish, rule.as_ref(), directory, space, file);
        let layout = match (chosen, &found) {
            (Err(fault), Some(found)) if wish.is_open() => {
                let dir = String::from_utf8_lossy(&path_of(t, found.dir)?).into_owned();
                return Err(fault.about(&format!("rule {} of /{dir}", found.rule().pattern)));
            }
            (chosen, _) => chosen?,
        };
        self.core.rooms.take(t, &layout)?;
        Ok(layout)
    }

    fn make_as(
        &self,
        t: &mut dyn Transaction,
        spot: &Walked,
        file: FileId,
        mode: u32,
        node: Node,
    ) -> Outcome<(FileId, Inode)> {
        let in_group_dir = spot.dir_inode.mode & SET_GID != 0;
        let gid = if in_group_dir { spot.dir_inode.gid } else { self.who.gid };
        let mut mode = mode & MODE_MASK;
        let is_dir = matches!(node, Node::Directory { .. });
        if is_dir {
            mode |= spot.dir_inode.mode & SET_GID;
        } else if mode & SET_GID != 0 && mode & 0o010 != 0 && !self.who.is_root() && !self.who.in_group(gid) {
            mode &= !SET_GID;
        }
        if matches!(node, Node::Directory { .. } | Node::Regular { .. }) {
            mode |= spot.dir_inode.mode & INTEGRITY_BITS;
        }
        let inode = Inode {
            mode,
            uid: self.who.uid,
            gid,
            nlink: if is_dir { 2 } else { 1 },
            size: ByteLen(0),
            blocks_512: 0,
            atime: self.now,
            mtime: self.now,
            ctime: self.now,
            mtime_set_at: self.now,
            parent: spot.dir,
            name: spot.name.clone(),
            xattrs: 0,
            node,
        };
        add_entry(t, spot.dir, &spot.name, DentryRow { file, kind: inode.kind() }, self.now)?;
        put_inode(t, file, &inode);
        Ok((file, inode))
    }

    /// One name less for an inode, whose entry is gone already.
    pub(super) fn drop_name(&self, t: &mut dyn Transaction, file: FileId, mut inode: Inode) -> Outcome<()> {
        inode.ctime = self.now;
        inode.nlink = if inode.is_dir() { 0 } else { inode.nlink.saturating_sub(1) };
        if inode.nlink > 0 {
            put_inode(t, file, &inode);
            return Ok(());
        }
        self.core.forsake(t, file, &inode)
    }

    /// That names may be added to and removed from this directory by the caller.
    pub(super) fn require_change(&self, dir: &Inode) -> Outcome<()> {
        if dir.nlink == 0 {
            return Err(Errno::ENOENT.into()); // removed, but open somewhere
        }
        require(self.who, dir, WRITE | EXECUTE)
    }

    /// That a new name can stand here.
    pub(super) fn require_free(&self, spot: &Walked) -> Outcome<()> {
        if spot.last != Last::Name || spot.found.is_some() {
            return Err(Errno::EEXIST.into());
        }
        Ok(())
    }
}

/// What a directory wants of layouts in it.
pub(super) fn inherited(dir: &Inode) -> Option<weft_store::metadata::LayoutChoice> {
    match &dir.node {
        Node::Directory { default, .. } => default.clone(),
        _ => None,
    }
}
