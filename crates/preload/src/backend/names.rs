//! What is asked by a path.

use super::connect::client;
use super::convert::{base_of, kind_of, place, stat_of};
use super::{Backend, File, How, Name};
use crate::errno::Res;
use crate::route::{Base, Spot};
use weft_client::{Client, FileType, HandleToken, Place, SetAttr};
use weft_core::{ByteLen, Layout};
use weft_env::real::{RealEnv, block_on};
use weft_wire::cluster::TargetEntry;

/// Unit of `statfs`, in bytes.
const UNIT: u64 = 4096;
/// The file system's number in `statfs`: "weft".
const MAGIC: i64 = 0x7765_6674;

impl Backend {
    pub fn stat(&self, at: &Spot, follow: bool) -> Res<libc::stat> {
        Ok(stat_of(&block_on(self.client.stat_last_known(&place(at, follow)))?.attr))
    }

    /// Attributes, and the inode from which names in it are walked.
    pub fn stat_base(&self, at: &Spot, follow: bool) -> Res<(libc::stat, Base)> {
        let attr = block_on(self.client.stat_last_known(&place(at, follow)))?.attr;
        Ok((stat_of(&attr), base_of(&attr)))
    }

    pub fn open(&self, at: &Spot, how: &How) -> Res<File> {
        let follow = !(how.nofollow || how.flags.create && how.flags.exclusive);
        let file = block_on(self.client.open(&place(at, follow), how.flags, how.mode, &how.spec))?;
        match file.attr_at_open().kind {
            FileType::Symlink => Err(libc::ELOOP.into()),
            FileType::Directory if how.flags.write => Err(libc::EISDIR.into()),
            FileType::Regular | FileType::Directory => Ok(File(file)),
            // Only the kernel can do what they are for.
            _ if how.flags.read || how.flags.write => Err(libc::ENXIO.into()),
            _ => Ok(File(file)),
        }
    }

    /// Makes a node of the type in `mode` (`S_IFIFO`, `S_IFREG`, ...), the umask taken off.
    pub fn mknod(&self, at: &Spot, mode: u32, device: u64) -> Res<()> {
        let kind = kind_of(mode)?;
        Ok(block_on(self.client.mknod(&place(at, false), kind, mode & 0o7777, device)).map(drop)?)
    }

    pub fn mkdir(&self, at: &Spot, mode: u32) -> Res<()> {
        let at = Place { follow: false, ..place(at, false) };
        Ok(block_on(self.client.mkdir(&at, mode)).map(drop)?)
    }

    pub fn symlink(&self, at: &Spot, target: &[u8]) -> Res<()> {
        Ok(block_on(self.client.symlink(&place(at, false), target)).map(drop)?)
    }

    pub fn link(&self, from: &Spot, to: &Spot, follow: bool) -> Res<()> {
        Ok(block_on(self.client.link(&place(from, follow), &place(to, false))).map(drop)?)
    }

    pub fn unlink(&self, at: &Spot) -> Res<()> {
        Ok(block_on(self.client.unlink(&place(at, false)))?)
    }

    pub fn rmdir(&self, at: &Spot) -> Res<()> {
        let at = Place { follow: false, ..place(at, false) };
        Ok(block_on(self.client.rmdir(&at))?)
    }

    pub fn rename(&self, from: &Spot, to: &Spot, no_replace: bool, exchange: bool) -> Res<()> {
        let (from, to) = (place(from, false), place(to, false));
        Ok(block_on(self.client.rename(&from, &to, no_replace, exchange))?)
    }

    pub fn readlink(&self, at: &Spot) -> Res<Vec<u8>> {
        Ok(block_on(self.client.readlink(&place(at, false)))?)
    }

    pub fn set_attr(&self, at: &Spot, follow: bool, set: &SetAttr) -> Res<()> {
        Ok(block_on(self.client.set_attr(&place(at, follow), *set)).map(drop)?)
    }

    pub fn truncate(&self, at: &Spot, size: u64) -> Res<()> {
        Ok(block_on(self.client.truncate(&place(at, true), ByteLen(size)))?)
    }

    /// Names after `after` in the order of their bytes, without `.` and `..`, and whether there are more.
    pub fn list(&self, at: &Spot, after: &[u8]) -> Res<(Vec<Name>, bool)> {
        let (entries, more) = block_on(self.client.list(&place(at, true), after, 4096, false))?;
        let name = |entry: weft_client::Entry| Name {
            inode: entry.file.0,
            // Type numbers of directory entries are those of modes, shifted.
            kind: (entry.kind.mode_bits() >> 12) as u8,
            name: entry.name,
        };
        Ok((entries.into_iter().map(name).collect(), more))
    }

    pub fn access(&self, at: &Spot, mask: u32, follow: bool) -> Res<()> {
        Ok(block_on(self.client.access(&place(at, follow), mask))?)
    }

    pub fn get_xattr(&self, at: &Spot, follow: bool, name: &str) -> Res<Vec<u8>> {
        Ok(block_on(self.client.get_xattr(&place(at, follow), name))?)
    }

    pub fn set_xattr(&self, at: &Spot, follow: bool, name: &str, value: &[u8], flags: i32) -> Res<()> {
        let (create, replace) = (flags & libc::XATTR_CREATE != 0, flags & libc::XATTR_REPLACE != 0);
        Ok(block_on(self.client.set_xattr(&place(at, follow), name, value, create, replace))?)
    }

    pub fn list_xattr(&self, at: &Spot, follow: bool) -> Res<Vec<String>> {
        Ok(block_on(self.client.list_xattr(&place(at, follow)))?)
    }

    pub fn remove_xattr(&self, at: &Spot, follow: bool, name: &str) -> Res<()> {
        Ok(block_on(self.client.remove_xattr(&place(at, follow), name))?)
    }

    pub fn statfs(&self) -> Res<libc::statfs> {
        let room = block_on(self.client.statfs())?;
        // SAFETY: all zeros is a valid `statfs`.
        let mut out: libc::statfs = unsafe { std::mem::zeroed() };
        out.f_type = MAGIC;
        out.f_bsize = UNIT as i64;
        out.f_frsize = UNIT as i64;
        out.f_blocks = room.total.0 / UNIT;
        out.f_bfree = room.free.0 / UNIT;
        out.f_bavail = room.free.0 / UNIT;
        out.f_files = room.inodes + room.inodes_free;
        out.f_ffree = room.inodes_free;
        out.f_namelen = 255;
        Ok(out)
    }

    pub fn layout(&self, at: &Spot) -> Res<Option<Layout>> {
        Ok(block_on(self.client.get_layout(&place(at, true)))?.0)
    }

    /// The targets of the cluster, each with its class, in the order of their ids.
    pub fn targets(&self) -> &[TargetEntry] {
        &self.client.map().targets
    }

    /// Opens what another process described by [`File::token`].
    pub fn adopt(&self, token: &[u8]) -> Res<File> {
        adopted(&self.client, token)
    }

    /// The file system for a forked child, which must not use the parent's connections.
    pub fn after_fork_in_child(&self) -> Self {
        // Leaves the parent's session alone; the child's own says its own process id.
        let same = self.client.after_fork_in_child();
        let fresh = client(&self.cluster).unwrap_or(same);
        Self { client: fresh, cluster: self.cluster.clone() }
    }
}

/// Opens what another process described, in the session of `client`.
pub fn adopted(client: &Client<RealEnv>, token: &[u8]) -> Res<File> {
    let token = HandleToken::decode(token).ok_or(libc::ESTALE)?;
    Ok(File(block_on(client.adopt(&token))?))
}
