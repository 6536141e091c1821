//! Creating and removing names.

use super::fault::Outcome;
use super::layouts::LayoutRequest;
use super::op::Op;
use super::permit::{
    EXECUTE, MODE_MASK, SET_GID, WRITE, owns, require, require_linkable, require_sticky_permission,
};
use super::quotas::inodes_max;
use super::rules;
use super::tables::{add_entry, allocate, change_inode, path_of, put_inode, put_row, remove_entry};
use super::walk::{LastComponent, Walked, walk, walk_to_name};
use weft_core::parts::SpaceLeft;
use weft_core::{ByteLen, CompressionSetting, FileId, Layout, RecordedLens};
use weft_store::metadata::{
    DentryRow, Generations, INTEGRITY_BITS, Inode, Node, NodeKind, Table, Transaction, file_key,
};
use weft_wire::Errno;
use weft_wire::meta::{FileType, InodePath, LayoutSpec, MetaReply, PATH_LEN_MAX, ROOT};

/// Maximum number of links of a file, as on ext4.
pub(super) const LINKS_MAX: u32 = 65_000;

impl Op<'_> {
    pub(super) fn mkdir(&self, t: &mut dyn Transaction, at: &InodePath, mode: u32) -> Outcome<MetaReply> {
        let spot = walk_to_name(t, self, at)?;
        self.require_free(&spot)?;
        let node = Node::Directory { entries: 0, default: inherited(&spot.dir_inode) };
        let (file, inode) = self.make(t, &spot, mode & !SET_GID, node)?;
        Ok(MetaReply::Attr(self.attr(file, &inode)))
    }

    pub(super) fn mknod(
        &self,
        t: &mut dyn Transaction,
        at: &InodePath,
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
                let layout = LayoutSpec::default();
                let is_inline = self.is_new_inline(&layout);
                let (file, inode) = self.make_regular(t, &spot, mode, &layout, true, is_inline)?;
                return Ok(MetaReply::Attr(self.attr(file, &inode)));
            }
            FileType::Fifo => special(NodeKind::Fifo),
            FileType::Socket => special(NodeKind::Socket),
            FileType::CharDevice | FileType::BlockDevice if !self.caller.is_root() => {
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

    pub(super) fn symlink(
        &self,
        t: &mut dyn Transaction,
        at: &InodePath,
        target: &[u8],
    ) -> Outcome<MetaReply> {
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

    pub(super) fn link(
        &self,
        t: &mut dyn Transaction,
        from: &InodePath,
        to: &InodePath,
    ) -> Outcome<MetaReply> {
        let (file, inode) = walk(t, self, from)?.existing()?;
        require_linkable(self.caller, &inode)?;
        let spot = walk_to_name(t, self, to)?;
        self.require_free(&spot)?;
        if spot.slash {
            return Err(Errno::ENOENT.into());
        }
        self.require_change(&spot.dir_inode)?;
        if inode.is_dir() {
            return Err(Errno::EPERM.into());
        }
        let is_first_name = inode.nlink == 0;
        if is_first_name {
            self.require_nameable(from, file, &inode)?;
        }
        if inode.nlink >= LINKS_MAX {
            return Err(Errno::EMLINK.into());
        }
        self.core.change_tree(t, (file, &inode), spot.dir, (!is_first_name, self.is_exempt()))?;
        let entry = DentryRow { file, kind: inode.kind() };
        add_entry(t, spot.dir, &spot.name, entry, self.now)?;
        let inode = change_inode(t, file, |inode| {
            if is_first_name {
                (inode.parent, inode.name) = (spot.dir, spot.name.clone());
            }
            inode.nlink += 1;
            inode.ctime = self.now;
        })?;
        if is_first_name {
            // In the transaction of the name: a file is removed only while it has this row.
            t.delete(Table::Orphans, &file_key(file));
            self.core.opens.lock().named(file);
        }
        Ok(MetaReply::Attr(self.attr(file, &inode)))
    }

    /// Checks that a file without a name may get its first one (`O_TMPFILE`): its owner's session has it open for
    /// writing. The client asks by `follow` on the inode itself. It alone knows whether the open had `O_EXCL` and, after
    /// a restart of this service, whether the file ever had a name.
    fn require_nameable(&self, from: &InodePath, file: FileId, inode: &Inode) -> Outcome<()> {
        let is_requested = from.follow && from.path.is_empty() && inode.kind() == NodeKind::Regular;
        if !is_requested || !self.core.opens.lock().may_get_first_name(file, self.session) {
            return Err(Errno::ENOENT.into());
        }
        if owns(self.caller, inode) { Ok(()) } else { Err(Errno::EPERM.into()) }
    }

    pub(super) fn unlink(&self, t: &mut dyn Transaction, at: &InodePath) -> Outcome<MetaReply> {
        let spot = walk_to_name(t, self, at)?;
        if spot.last != LastComponent::Name {
            return Err(Errno::EISDIR.into());
        }
        let Some((file, inode)) = &spot.found else { return Err(Errno::ENOENT.into()) };
        if spot.slash {
            return Err(if inode.is_dir() { Errno::EISDIR.into() } else { Errno::ENOTDIR.into() });
        }
        self.require_change(&spot.dir_inode)?;
        require_sticky_permission(self.caller, &spot.dir_inode, inode)?;
        if inode.is_dir() {
            return Err(Errno::EISDIR.into());
        }
        remove_entry(t, spot.dir, &spot.name, inode.kind(), self.now)?;
        self.drop_name(t, *file, inode.clone())?;
        Ok(MetaReply::Done)
    }

    pub(super) fn rmdir(&self, t: &mut dyn Transaction, at: &InodePath) -> Outcome<MetaReply> {
        let spot = walk_to_name(t, self, at)?;
        match spot.last {
            LastComponent::Dot => return Err(Errno::EINVAL.into()),
            LastComponent::DotDot => return Err(Errno::ENOTEMPTY.into()),
            LastComponent::Base => return Err(Errno::EBUSY.into()),
            LastComponent::Name => {}
        }
        let Some((file, inode)) = &spot.found else { return Err(Errno::ENOENT.into()) };
        self.require_change(&spot.dir_inode)?;
        require_sticky_permission(self.caller, &spot.dir_inode, inode)?;
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

    /// Creates an inode and its name at a free place, after checking permission.
    pub(super) fn make(
        &self,
        t: &mut dyn Transaction,
        spot: &Walked,
        mode: u32,
        node: Node,
    ) -> Outcome<(FileId, Inode)> {
        self.require_change(&spot.dir_inode)?;
        let file = allocate(t, self.caller.uid, inodes_max(self))?;
        self.make_as(t, spot, file, mode, node, spot.dir_inode.compression_setting())
    }

    /// Creates a regular file at a free place. Its bytes are in the database at first if `is_inline`.
    pub(super) fn make_regular(
        &self,
        t: &mut dyn Transaction,
        spot: &Walked,
        mode: u32,
        request: &LayoutSpec,
        is_size_valid: bool,
        is_inline: bool,
    ) -> Outcome<(FileId, Inode)> {
        self.require_change(&spot.dir_inode)?;
        let file = allocate(t, self.caller.uid, inodes_max(self))?;
        let directory = inherited(&spot.dir_inode);
        let (layout, of_rule) =
            self.layout_of_new(t, spot, &LayoutRequest::from(request), directory.as_ref(), file)?;
        let compression = request.compression.or(of_rule).or_else(|| spot.dir_inode.compression_setting());
        let compression = compression.or_else(|| self.core.compression.read().of(&layout));
        let generations = Generations::default();
        let recorded = RecordedLens::NONE;
        let is_size_valid = is_size_valid || is_inline;
        let node = Node::Regular {
            layout,
            is_size_valid,
            touched: false,
            epoch: 0,
            generations,
            recorded,
            is_inline,
        };
        let made = self.make_as(t, spot, file, mode, node, compression)?;
        self.core.opens.lock().await_durability(file);
        Ok(made)
    }

    /// Creates a regular file without a name, which gets layout and group as a new file of the directory. The caller
    /// opens it in the same transaction.
    pub(super) fn make_unnamed(
        &self,
        t: &mut dyn Transaction,
        (dir, dir_inode): (FileId, Inode),
        mode: u32,
        request: &LayoutSpec,
    ) -> Outcome<(FileId, Inode)> {
        // Rules apply as to an empty name.
        let (last, name) = (LastComponent::Name, Vec::new());
        let spot = Walked { last, dir, dir_inode, name, slash: false, found: None };
        self.make_regular(t, &spot, mode, request, false, false)
    }

    /// Layout of a new file, by the request, the nearest rule, the directory and the cluster, and the compression
    /// setting of that rule. Reserves its space.
    fn layout_of_new(
        &self,
        t: &mut dyn Transaction,
        spot: &Walked,
        request: &LayoutRequest,
        directory: Option<&weft_store::metadata::LayoutChoice>,
        file: FileId,
    ) -> Outcome<(Layout, Option<CompressionSetting>)> {
        let found = self.rule_for(t, spot.dir, &spot.dir_inode, &spot.name)?;
        let rule = found.as_ref().map(|found| rules::request(found.rule()));
        let by_class =
            [Some(request), rule.as_ref()].into_iter().flatten().any(|request| request.by_class.is_some());
        let left = if by_class { self.core.available_space(t)? } else { SpaceLeft::new() };
        let space = (&left, &self.core.closed());
        let chosen = self.core.layouts.choose(request, rule.as_ref(), directory, space, file);
        let layout = match (chosen, &found) {
            (Err(fault), Some(found)) if request.is_open() => {
                let dir = String::from_utf8_lossy(&path_of(t, found.dir)?).into_owned();
                return Err(fault.about(&format!("rule {} of /{dir}", found.rule().pattern)));
            }
            (chosen, _) => chosen?,
        };
        self.core.reservations.reserve(t, &layout)?;
        Ok((layout, found.and_then(|found| found.rule().compression)))
    }

    /// Creates an inode and its name. Without a name it is an orphan from the start.
    fn make_as(
        &self,
        t: &mut dyn Transaction,
        spot: &Walked,
        file: FileId,
        mode: u32,
        node: Node,
        compression: Option<CompressionSetting>,
    ) -> Outcome<(FileId, Inode)> {
        let in_group_dir = spot.dir_inode.mode & SET_GID != 0;
        let gid = if in_group_dir { spot.dir_inode.gid } else { self.caller.gid };
        let mut mode = mode & MODE_MASK;
        let is_dir = matches!(node, Node::Directory { .. });
        if is_dir {
            mode |= spot.dir_inode.mode & SET_GID;
        } else if mode & SET_GID != 0
            && mode & 0o010 != 0
            && !self.caller.is_root()
            && !self.caller.in_group(gid)
        {
            mode &= !SET_GID;
        }
        let has_settings = matches!(node, Node::Directory { .. } | Node::Regular { .. });
        let is_unnamed = spot.name.is_empty();
        let mut inode = Inode {
            mode,
            uid: self.caller.uid,
            gid,
            nlink: if is_dir { 2 } else { u32::from(!is_unnamed) },
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
        if has_settings {
            inode.mode |= spot.dir_inode.mode & INTEGRITY_BITS;
            inode.set_compression(compression);
        }
        if is_unnamed {
            put_row(t, Table::Orphans, &file_key(file), &());
        } else {
            add_entry(t, spot.dir, &spot.name, DentryRow { file, kind: inode.kind() }, self.now)?;
        }
        put_inode(t, file, &inode);
        self.core.charge_new_inode(t, (file, &inode), spot.dir, self.is_exempt())?;
        Ok((file, inode))
    }

    /// Removes a link of an inode whose entry is removed already.
    pub(super) fn drop_name(&self, t: &mut dyn Transaction, file: FileId, mut inode: Inode) -> Outcome<()> {
        inode.ctime = self.now;
        inode.nlink = if inode.is_dir() { 0 } else { inode.nlink.saturating_sub(1) };
        if inode.nlink > 0 {
            put_inode(t, file, &inode);
            return Ok(());
        }
        self.core.orphan_or_destroy(t, file, &inode)
    }

    /// Checks that the caller may add names to this directory and remove them.
    pub(super) fn require_change(&self, dir: &Inode) -> Outcome<()> {
        if dir.nlink == 0 {
            return Err(Errno::ENOENT.into()); // removed, but still open
        }
        require(self.caller, dir, WRITE | EXECUTE)
    }

    /// Checks that a name can be created here.
    pub(super) fn require_free(&self, spot: &Walked) -> Outcome<()> {
        if spot.last != LastComponent::Name || spot.found.is_some() {
            return Err(Errno::EEXIST.into());
        }
        Ok(())
    }
}

/// Default layout of a directory.
pub(super) fn inherited(dir: &Inode) -> Option<weft_store::metadata::LayoutChoice> {
    match &dir.node {
        Node::Directory { default, .. } => default.clone(),
        _ => None,
    }
}
