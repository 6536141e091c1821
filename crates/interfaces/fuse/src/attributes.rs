//! Attributes, extended attributes, and space.

use crate::answer::Answer;
use crate::caller::identity;
use crate::convert::set_time;
use crate::failures;
use crate::filesystem::WeftFilesystem;
use crate::open::SET_IDS;
use fuser::{Errno, FileHandle, INodeNo, ReplyStatfs, Request, TimeOrNow};
use std::ffi::OsStr;
use std::sync::atomic::Ordering;
use std::time::Duration;
use weft_client::StatFs;
use weft_core::{ByteLen, FileId};
use weft_env::Env;
use weft_env::real::block_on;
use weft_wire::meta::{Attr, FileType, InodePath, SetAttr, Writer};

/// Block size of `statfs`.
const STATFS_BLOCK: u32 = 4096;

/// Changes that `setattr` requests.
#[derive(Clone, Copy, Default, PartialEq)]
pub struct Changes {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<TimeOrNow>,
    pub mtime: Option<TimeOrNow>,
}

impl WeftFilesystem {
    /// Returns attributes. The kernel relies on those of an open file for offsets: they are exact, or an error. Those
    /// of a name are the last known ones while a data server is unreachable. Also returns the time for which the kernel
    /// may use them.
    pub fn attributes_of(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: Option<FileHandle>,
    ) -> Answer<(Attr, Duration)> {
        if let Some(handle) = fh.and_then(|fh| self.files.get(fh.0)) {
            return Ok((block_on(handle.file.attr())?, self.ttl()));
        }
        let client = self.client(request);
        let (known, until) = match self.look_up(&client, &self.inode_proofs.inode(ino)) {
            Err(error) if error.errno() == libc::ESTALE => {
                let held = self.replaced.get(ino.0).ok_or(error)?;
                return Ok((held.attr.clone(), Duration::ZERO));
            }
            result => result?,
        };
        let used = until.map(|until| self.pages.names.queried((known.attr.file, until), client.env().now()));
        Ok((known.attr, used.unwrap_or_default().max(self.ttl())))
    }

    /// Returns the target of a symbolic link.
    pub fn target_of(&self, request: &Request, ino: INodeNo) -> Answer<Vec<u8>> {
        match block_on(self.client(request).readlink(&self.inode_proofs.inode(ino))) {
            Err(error) if error.errno() == libc::ESTALE => {
                let held = self.replaced.get(ino.0).and_then(|held| held.target.clone());
                Ok(held.ok_or(error)?)
            }
            target => Ok(target?),
        }
    }

    /// Changes attributes, including the size. Returns the new attributes.
    pub fn change(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: Option<FileHandle>,
        changes: Changes,
    ) -> Answer<Attr> {
        let client = self.client(request);
        let at = self.inode_proofs.inode(ino);
        if changes == Changes::default() {
            return self.take_set_ids_at(request, &at);
        }
        let before = self.pages.before_change();
        if let Some(size) = changes.size {
            match fh.and_then(|fh| self.files.get(fh.0)) {
                Some(handle) => {
                    if request.uid() != 0 {
                        self.take_set_ids(request, &handle);
                    }
                    block_on(handle.file.truncate(ByteLen(size)))?;
                }
                None => block_on(client.truncate(&at, ByteLen(size)))
                    .map_err(|error| error.about(&self.names.path(ino.0)))?,
            }
        }
        if changes.size.is_some() {
            self.pages.after_change(FileId(ino.0), before, true);
        }
        if changes.mode.is_some_and(|mode| mode & SET_IDS != 0) {
            self.files.each(|handle| {
                if handle.file.file().0 == ino.0 {
                    handle.set_ids.store(true, Ordering::Relaxed);
                }
            });
        }
        let set = SetAttr {
            mode: changes.mode.map(|mode| mode & 0o7777),
            uid: changes.uid,
            gid: changes.gid,
            atime: changes.atime.map(set_time),
            mtime: changes.mtime.map(set_time),
            written_by: None,
        };
        if set != SetAttr::default() {
            block_on(client.set_attr(&at, set))?;
        }
        Ok(block_on(client.stat_last_known(&at))?.attr)
    }

    /// Clears the set-id bits of a file that is not a directory. The kernel asks for no change at all when it wants that, for
    /// `chown(-1, -1)` and for a change of the bytes.
    fn take_set_ids_at(&self, request: &Request, at: &InodePath) -> Answer<Attr> {
        let client = self.client(request);
        let found = block_on(client.stat_last_known(at))?.attr;
        // The message does not say whether the caller has the file open for writing, so others may not cause it.
        let may = || request.uid() == found.uid || block_on(client.access(at, libc::W_OK as u32)).is_ok();
        if found.kind == FileType::Directory || found.mode & SET_IDS == 0 || !may() {
            return Ok(found);
        }
        let is_member = request.uid() == 0 || identity(request).in_group(found.gid);
        let written_by = Some(if is_member { Writer::Member } else { Writer::Other });
        Ok(block_on(client.set_attr(at, SetAttr { written_by, ..SetAttr::default() }))?)
    }

    /// Sets an extended attribute.
    pub fn set_xattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
    ) -> Answer<()> {
        let (create, replace) = (flags & libc::XATTR_CREATE != 0, flags & libc::XATTR_REPLACE != 0);
        let (client, name) = (self.client(request), text(name)?);
        Ok(block_on(client.set_xattr(&self.inode_proofs.inode(ino), name, value, create, replace))?)
    }

    /// Returns the value of an extended attribute.
    pub fn xattr(&self, request: &Request, ino: INodeNo, name: &OsStr) -> Answer<Vec<u8>> {
        // The kernel queries this one often by itself, and a mount without set-id programs does not need it.
        if name == "security.capability" {
            return Err(Errno::ENODATA.into());
        }
        if ino == INodeNo::ROOT && name == failures::ATTRIBUTE {
            return Ok(failures::report().into_bytes());
        }
        Ok(block_on(self.client(request).get_xattr(&self.inode_proofs.inode(ino), text(name)?))?)
    }

    /// Returns the names of all extended attributes, each followed by a zero byte.
    pub fn xattr_names(&self, request: &Request, ino: INodeNo) -> Answer<Vec<u8>> {
        let names = block_on(self.client(request).list_xattr(&self.inode_proofs.inode(ino)))?;
        Ok(names.iter().flat_map(|name| name.bytes().chain([0])).collect())
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&self, request: &Request, ino: INodeNo, name: &OsStr) -> Answer<()> {
        Ok(block_on(self.client(request).remove_xattr(&self.inode_proofs.inode(ino), text(name)?))?)
    }
}

/// Replies with the free space.
pub fn statfs(space: &StatFs, reply: ReplyStatfs) {
    let blocks = |len: ByteLen| len.0 / u64::from(STATFS_BLOCK);
    let free = blocks(space.free);
    // Only the space of the metadata device limits inodes.
    let inodes = space.inodes + space.inodes_free;
    reply.statfs(blocks(space.total), free, free, inodes, space.inodes_free, STATFS_BLOCK, 255, STATFS_BLOCK);
}

fn text(name: &OsStr) -> Answer<&str> {
    Ok(name.to_str().ok_or(Errno::EINVAL)?)
}
