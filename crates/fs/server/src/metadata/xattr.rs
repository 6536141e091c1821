//! Extended attributes.

use super::fault::{Fault, Outcome};
use super::layouts::{LayoutRequest, describe, spec, stripes};
use super::op::Op;
use super::permit::{READ, STICKY, WRITE, owns, require};
use super::tables::{change_inode, put_inode, put_row, row, xattr_names};
use super::walk::walk;
use std::str::FromStr;
use weft_core::{ByteLen, FileId};
use weft_store::metadata::{Inode, Node, NodeKind, Snapshot, Table, Transaction, xattr_key};
use weft_wire::Errno;
use weft_wire::meta::{InodePath, LayoutSpec, MetaReply, XATTR_LEN_MAX};

/// A value is too long (`E2BIG`).
const E2BIG: Errno = Errno(7);
/// Maximum length of a name, as on Linux.
const NAME_LEN_MAX: usize = 255;
/// Maximum number of attributes of an inode: their names fit one reply.
const COUNT_MAX: u32 = 256;
/// Prefix of attributes that the service computes.
const OWN_PREFIX: &str = "user.weft.";
/// Suffix of the attribute that shows and sets the checksums at rest.
const INTEGRITY: &str = "integrity";
/// Suffix of the attribute that shows and sets the compression.
const COMPRESS: &str = "compress";

/// Label of SELinux, which does not label files of FUSE mounts. It is not supported rather than absent: `ls -l` then asks
/// for one file of a directory, not for each.
const SELINUX: &str = "security.selinux";

/// Capabilities of a program. A change of its bytes or owner removes them.
const CAPABILITY: &str = "security.capability";

/// Removes the capabilities of a program. The caller stores the inode.
pub(super) fn drop_capabilities(t: &mut dyn Transaction, file: FileId, inode: &mut Inode) {
    if inode.xattrs == 0 {
        return;
    }
    let key = xattr_key(file, CAPABILITY);
    // If the row cannot be read, a later step of the transaction fails too.
    if t.get(Table::Xattrs, &key).is_ok_and(|row| row.is_some()) {
        t.delete(Table::Xattrs, &key);
        inode.xattrs -= 1;
    }
}

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
    pub(super) fn get_xattr(&self, s: &dyn Snapshot, at: &InodePath, name: &str) -> Outcome<MetaReply> {
        let (file, inode) = walk(s, self, at)?.existing()?;
        match space(name)? {
            Space::User if !holds_user(&inode) => return Err(Errno::ENODATA.into()),
            Space::User => require(self.caller, &inode, READ)?,
            Space::Trusted if !self.caller.is_root() => return Err(Errno::ENODATA.into()),
            Space::Trusted | Space::Security => {}
        }
        if let Some(own) = name.strip_prefix(OWN_PREFIX) {
            let value = own_value(&inode, own).ok_or(Errno::ENODATA)?;
            return Ok(MetaReply::Value(value.into_bytes()));
        }
        let none = if name == SELINUX { Errno::EOPNOTSUPP } else { Errno::ENODATA };
        if inode.xattrs == 0 {
            return Err(none.into());
        }
        let value: Vec<u8> = row(s, Table::Xattrs, &xattr_key(file, name))?.ok_or(none)?;
        Ok(MetaReply::Value(value))
    }

    pub(super) fn set_xattr(
        &self,
        t: &mut dyn Transaction,
        at: &InodePath,
        name: &str,
        value: &[u8],
        create: bool,
        replace: bool,
    ) -> Outcome<MetaReply> {
        let (file, inode) = walk(t, self, at)?.existing()?;
        match name.strip_prefix(OWN_PREFIX) {
            Some(INTEGRITY) => return self.set_integrity(t, file, inode, Some(value)),
            Some(COMPRESS) => return self.set_compression(t, file, inode, Some(value)),
            _ => {}
        }
        self.require_xattr_change(&inode, name)?;
        if name == SELINUX {
            return Err(Errno::EOPNOTSUPP.into());
        }
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

    pub(super) fn list_xattr(&self, s: &dyn Snapshot, at: &InodePath) -> Outcome<MetaReply> {
        let (file, inode) = walk(s, self, at)?.existing()?;
        if inode.xattrs == 0 {
            return Ok(MetaReply::Names(Vec::new()));
        }
        let names = xattr_names(s, file)?.into_iter().map(|name| String::from_utf8_lossy(&name).into_owned());
        let seen = |name: &String| self.caller.is_root() || !name.starts_with("trusted.");
        Ok(MetaReply::Names(names.filter(seen).collect()))
    }

    pub(super) fn remove_xattr(
        &self,
        t: &mut dyn Transaction,
        at: &InodePath,
        name: &str,
    ) -> Outcome<MetaReply> {
        let (file, inode) = walk(t, self, at)?.existing()?;
        match name.strip_prefix(OWN_PREFIX) {
            Some(INTEGRITY) => return self.set_integrity(t, file, inode, None),
            Some(COMPRESS) => return self.set_compression(t, file, inode, None),
            _ => {}
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

    /// Sets the checksums at rest of an empty file, or of new files of a directory; `None` inherits the setting.
    fn set_integrity(
        &self,
        t: &mut dyn Transaction,
        file: FileId,
        mut inode: Inode,
        value: Option<&[u8]>,
    ) -> Outcome<MetaReply> {
        let written = "only a file that was never written can get or lose checksums: copy it to a new one";
        let setting = self.datafile_setting(file, &inode, value, written)?;
        inode.set_integrity(setting);
        inode.ctime = self.now;
        put_inode(t, file, &inode);
        Ok(MetaReply::Done)
    }

    /// Parses a setting of datafiles, and checks that the caller may change it: the owner, for a directory or a file
    /// without bytes. `written` is the message for a file that may have bytes.
    pub(super) fn datafile_setting<T: FromStr<Err = String>>(
        &self,
        file: FileId,
        inode: &Inode,
        value: Option<&[u8]>,
        written: &str,
    ) -> Outcome<Option<T>> {
        if !owns(self.caller, inode) {
            return Err(Errno::EPERM.into());
        }
        let setting = value.map(|value| String::from_utf8_lossy(value).parse::<T>()).transpose();
        let setting = setting.map_err(|why| Fault::new(Errno::EINVAL, why))?;
        match &inode.node {
            Node::Regular { .. } if self.core.opens.lock().is_busy(file) => {
                Err(Fault::new(Errno::EBUSY, "the file is open for writing"))
            }
            Node::Regular { is_size_valid, touched, is_inline: false, .. }
                if !*is_size_valid || *touched || inode.size > ByteLen(0) =>
            {
                Err(Fault::new(Errno::EEXIST, written))
            }
            Node::Regular { .. } | Node::Directory { .. } => Ok(setting),
            _ => Err(Errno::EPERM.into()),
        }
    }

    fn require_xattr_change(&self, inode: &Inode, name: &str) -> Outcome<()> {
        match space(name)? {
            Space::User if name.starts_with(OWN_PREFIX) => Err(Fault::new(
                Errno::EOPNOTSUPP,
                "the layout is set by `weft setstripe`, not by an attribute",
            )),
            Space::User if !holds_user(inode) => Err(Errno::EPERM.into()),
            Space::User => {
                // In a sticky directory, only the owner sets attributes.
                if inode.is_dir() && inode.mode & STICKY != 0 && !owns(self.caller, inode) {
                    return Err(Errno::EPERM.into());
                }
                require(self.caller, inode, WRITE)
            }
            Space::Trusted | Space::Security if self.caller.is_root() => Ok(()),
            Space::Trusted | Space::Security => Err(Errno::EPERM.into()),
        }
    }

    pub(super) fn get_layout(&self, s: &dyn Snapshot, at: &InodePath) -> Outcome<MetaReply> {
        let (_, inode) = walk(s, self, at)?.existing()?;
        let compression = inode.compression_setting();
        match inode.node {
            Node::Regular { layout, .. } => Ok(MetaReply::Layout { layout: Some(layout), default: None }),
            Node::Directory { default, .. } => {
                let has_any = default.is_some() || compression.is_some();
                let choice = default.unwrap_or_default();
                let default = LayoutSpec { compression, ..spec(&LayoutRequest { choice, by_class: None }) };
                Ok(MetaReply::Layout { layout: None, default: has_any.then_some(default) })
            }
            _ => Err(Errno::EINVAL.into()),
        }
    }

    pub(super) fn set_layout(
        &self,
        t: &mut dyn Transaction,
        at: &InodePath,
        request: &LayoutSpec,
    ) -> Outcome<MetaReply> {
        let (file, mut inode) = walk(t, self, at)?.existing()?;
        if !owns(self.caller, &inode) {
            return Err(Errno::EPERM.into());
        }
        let compression = request.compression;
        let request = LayoutRequest::from(request);
        self.core.layouts.check(&request)?;
        match &mut inode.node {
            Node::Directory { default, .. } => {
                if request.by_class.is_some() {
                    let detail = "a directory's layouts by class are rules: set one with the pattern **";
                    return Err(Fault::new(Errno::EINVAL, detail));
                }
                *default = (!request.is_open()).then_some(request.choice);
            }
            Node::Regular { .. } if self.core.opens.lock().is_busy(file) => {
                return Err(Fault::new(Errno::EBUSY, "the file is open for writing"));
            }
            Node::Regular { is_inline: true, .. } => {
                let space = (&self.core.available_space(t)?, &self.core.closed());
                let to = self.core.layouts.choose(&request, None, None, space, file)?;
                self.set_inline_layout(t, file, &mut inode, to)?;
            }
            Node::Regular { layout, is_size_valid, touched, .. } => {
                // A file that has held bytes may have datafiles on the targets of its layout.
                if !*is_size_valid || *touched || inode.size > ByteLen(0) {
                    let detail = "only the layout of a file that was never written can be set; weft migrate moves others";
                    return Err(Fault::new(Errno::EEXIST, detail));
                }
                // The space of the old layout is available to the new one.
                self.core.reservations.release(t, layout)?;
                let space = (&self.core.available_space(t)?, &self.core.closed());
                *layout = self.core.layouts.choose(&request, None, None, space, file)?;
                self.core.reservations.reserve(t, layout)?;
            }
            _ => return Err(Errno::EINVAL.into()),
        }
        if compression.is_some() {
            inode.set_compression(compression);
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
    if name == COMPRESS {
        return inode.compression_setting().map(|setting| setting.to_string());
    }
    match (&inode.node, name) {
        (Node::Regular { is_inline: true, .. }, "inline") => Some("yes".into()),
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
