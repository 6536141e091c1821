//! Extended attributes.

use super::fault::{Fault, Outcome};
use super::layouts::{Wish, describe, spec, stripes};
use super::op::Op;
use super::permit::{READ, STICKY, WRITE, owns, require};
use super::tables::{change_inode, put_inode, put_row, row, xattr_names};
use super::walk::walk;
use weft_core::{ByteLen, FileId};
use weft_store::metadata::{Inode, Node, NodeKind, Snapshot, Table, Transaction, xattr_key};
use weft_wire::Errno;
use weft_wire::meta::{LayoutSpec, MetaReply, Place, XATTR_LEN_MAX};

/// `E2BIG`: a value that is too long.
const E2BIG: Errno = Errno(7);
/// The longest name, as on Linux.
const NAME_LEN_MAX: usize = 255;
/// Most attributes of an inode: their names fit one reply.
const COUNT_MAX: u32 = 256;
/// What the service answers for itself.
const OWN_PREFIX: &str = "user.weft.";
/// The one of these that can be set.
const INTEGRITY: &str = "integrity";

enum Space {
    User,
    Trusted,
    Security,
}

fn space(name: &str) -> Outcome<Space> {
    if name.is_empty() || name.len() > NAME_LEN_MAX {
        return Err(Errno::ERANGE.into());
    }
    let bare = |rest: &str| if rest.is_empty() { Err(Fault::from(Errno::EINVAL)) } else { Ok(()) };
    match name.split_once('.') {
        Some(("user", rest)) => bare(rest).map(|()| Space::User),
        Some(("trusted", rest)) => bare(rest).map(|()| Space::Trusted),
        Some(("security", rest)) => bare(rest).map(|()| Space::Security),
        _ => Err(Errno::EOPNOTSUPP.into()),
    }
}

impl Op<'_> {
    pub(super) fn get_xattr(&self, s: &dyn Snapshot, at: &Place, name: &str) -> Outcome<MetaReply> {
        let (file, inode) = walk(s, self, at)?.existing()?;
        match space(name)? {
            Space::User if !holds_user(&inode) => return Err(Errno::ENODATA.into()),
            Space::User => require(self.who, &inode, READ)?,
            Space::Trusted if !self.who.is_root() => return Err(Errno::ENODATA.into()),
            Space::Trusted | Space::Security => {}
        }
        if let Some(own) = name.strip_prefix(OWN_PREFIX) {
            let value = own_value(&inode, own).ok_or(Errno::ENODATA)?;
            return Ok(MetaReply::Value(value.into_bytes()));
        }
        if inode.xattrs == 0 {
            return Err(Errno::ENODATA.into());
        }
        let value: Vec<u8> = row(s, Table::Xattrs, &xattr_key(file, name))?.ok_or(Errno::ENODATA)?;
        Ok(MetaReply::Value(value))
    }

    pub(super) fn set_xattr(
        &self,
        t: &mut dyn Transaction,
        at: &Place,
        name: &str,
        value: &[u8],
        create: bool,
        replace: bool,
    ) -> Outcome<MetaReply> {
        let (file, inode) = walk(t, self, at)?.existing()?;
        if name.strip_prefix(OWN_PREFIX) == Some(INTEGRITY) {
            return self.set_integrity(t, file, inode, Some(value));
        }
        self.require_xattr_change(&inode, name)?;
        if value.len() > XATTR_LEN_MAX {
            return Err(E2BIG.into());
        }
        let key = xattr_key(file, name);
        let there = t.get(Table::Xattrs, &key)?.is_some();
        if there && create {
            return Err(Errno::EEXIST.into());
        }
        if !there && replace {
            return Err(Errno::ENODATA.into());
        }
        if !there && inode.xattrs >= COUNT_MAX {
            return Err(Fault::new(Errno::ENOSPC, format!("an inode has at most {COUNT_MAX} attributes")));
        }
        put_row(t, Table::Xattrs, &key, &value.to_vec());
        change_inode(t, file, |inode| {
            inode.xattrs += u32::from(!there);
            inode.ctime = self.now;
        })?;
        Ok(MetaReply::Done)
    }

    pub(super) fn list_xattr(&self, s: &dyn Snapshot, at: &Place) -> Outcome<MetaReply> {
        let (file, inode) = walk(s, self, at)?.existing()?;
        if inode.xattrs == 0 {
            return Ok(MetaReply::Names(Vec::new()));
        }
        let names = xattr_names(s, file)?.into_iter().map(|name| String::from_utf8_lossy(&name).into_owned());
        let seen = |name: &String| self.who.is_root() || !name.starts_with("trusted.");
        Ok(MetaReply::Names(names.filter(seen).collect()))
    }

    pub(super) fn remove_xattr(&self, t: &mut dyn Transaction, at: &Place, name: &str) -> Outcome<MetaReply> {
        let (file, inode) = walk(t, self, at)?.existing()?;
        if name.strip_prefix(OWN_PREFIX) == Some(INTEGRITY) {
            return self.set_integrity(t, file, inode, None);
        }
        self.require_xattr_change(&inode, name)?;
        let key = xattr_key(file, name);
        if t.get(Table::Xattrs, &key)?.is_none() {
            return Err(Errno::ENODATA.into());
        }
        t.delete(Table::Xattrs, &key);
        change_inode(t, file, |inode| {
            inode.xattrs = inode.xattrs.saturating_sub(1);
            inode.ctime = self.now;
        })?;
        Ok(MetaReply::Done)
    }

    /// Sets the checksums at rest of an empty file, or of new files of a directory; `None` leaves them to what is above.
    fn set_integrity(
        &self,
        t: &mut dyn Transaction,
        file: FileId,
        mut inode: Inode,
        value: Option<&[u8]>,
    ) -> Outcome<MetaReply> {
        if !owns(self.who, &inode) {
            return Err(Errno::EPERM.into());
        }
        let setting = value.map(|value| String::from_utf8_lossy(value).parse()).transpose();
        let setting = setting.map_err(|why: String| Fault::new(Errno::EINVAL, why))?;
        if let Node::Regular { settled, touched, .. } = &inode.node {
            if self.core.opens.lock().is_busy(file) {
                return Err(Fault::new(Errno::EBUSY, "the file is open for writing"));
            }
            if !*settled || *touched || inode.size > ByteLen(0) {
                let detail =
                    "only a file that was never written can get or lose checksums: copy it to a new one";
                return Err(Fault::new(Errno::EEXIST, detail));
            }
        } else if !inode.is_dir() {
            return Err(Errno::EPERM.into());
        }
        inode.set_integrity(setting);
        inode.ctime = self.now;
        put_inode(t, file, &inode);
        Ok(MetaReply::Done)
    }

    fn require_xattr_change(&self, inode: &Inode, name: &str) -> Outcome<()> {
        match space(name)? {
            Space::User if name.starts_with(OWN_PREFIX) => Err(Fault::new(
                Errno::EOPNOTSUPP,
                "the layout is set by `weft setstripe`, not by an attribute",
            )),
            Space::User if !holds_user(inode) => Err(Errno::EPERM.into()),
            Space::User => {
                // In a directory open to all, attributes are the owner's.
                if inode.is_dir() && inode.mode & STICKY != 0 && !owns(self.who, inode) {
                    return Err(Errno::EPERM.into());
                }
                require(self.who, inode, WRITE)
            }
            Space::Trusted | Space::Security if self.who.is_root() => Ok(()),
            Space::Trusted | Space::Security => Err(Errno::EPERM.into()),
        }
    }

    pub(super) fn get_layout(&self, s: &dyn Snapshot, at: &Place) -> Outcome<MetaReply> {
        let (_, inode) = walk(s, self, at)?.existing()?;
        match inode.node {
            Node::Regular { layout, .. } => Ok(MetaReply::Layout { layout: Some(layout), default: None }),
            Node::Directory { default, .. } => Ok(MetaReply::Layout {
                layout: None,
                default: default.map(|choice| spec(&Wish { choice, by_class: None })),
            }),
            _ => Err(Errno::EINVAL.into()),
        }
    }

    pub(super) fn set_layout(
        &self,
        t: &mut dyn Transaction,
        at: &Place,
        wish: &LayoutSpec,
    ) -> Outcome<MetaReply> {
        let (file, mut inode) = walk(t, self, at)?.existing()?;
        if !owns(self.who, &inode) {
            return Err(Errno::EPERM.into());
        }
        let wish = Wish::from(wish);
        self.core.layouts.check(&wish)?;
        match &mut inode.node {
            Node::Directory { default, .. } => {
                if wish.by_class.is_some() {
                    let detail = "a directory's layouts by class are rules: set one with the pattern **";
                    return Err(Fault::new(Errno::EINVAL, detail));
                }
                *default = (!wish.is_open()).then_some(wish.choice);
            }
            Node::Regular { layout, settled, touched, .. } => {
                if self.core.opens.lock().is_busy(file) {
                    return Err(Fault::new(Errno::EBUSY, "the file is open for writing"));
                }
                // A file that has held bytes may have datafiles where its layout says.
                if !*settled || *touched || inode.size > ByteLen(0) {
                    let detail = "only the layout of a file that was never written can be set; weft migrate moves others";
                    return Err(Fault::new(Errno::EEXIST, detail));
                }
                // What the old one promised is there for the new one.
                self.core.rooms.give_back(t, layout)?;
                let space = (&self.core.left(t)?, &self.core.closed());
                *layout = self.core.layouts.choose(&wish, None, None, space, file)?;
                self.core.rooms.take(t, layout)?;
            }
            _ => return Err(Errno::EINVAL.into()),
        }
        inode.ctime = self.now;
        put_inode(t, file, &inode);
        Ok(MetaReply::Done)
    }
}

fn holds_user(inode: &Inode) -> bool {
    matches!(inode.kind(), NodeKind::Regular | NodeKind::Directory)
}

fn own_value(inode: &Inode, name: &str) -> Option<String> {
    if name == INTEGRITY {
        return inode.integrity().map(|integrity| integrity.to_string());
    }
    match (&inode.node, name) {
        (Node::Regular { layout, .. }, "layout") => Some(describe(layout)),
        (Node::Regular { layout, .. }, "stripe_size") => Some(stripes(layout).0.to_string()),
        (Node::Regular { layout, .. }, "stripe_count") => Some(stripes(layout).1.to_string()),
        (Node::Directory { default: Some(default), .. }, "stripe_size") => {
            default.stripe_size.map(|size| size.to_string())
        }
        (Node::Directory { default: Some(default), .. }, "stripe_count") => {
            default.stripe_count.map(|count| count.to_string())
        }
        _ => None,
    }
}
