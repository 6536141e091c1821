//! Operations by path.

use super::connect::client;
use super::convert::{base_of, kind_of, place, stat_of};
use super::delegates::{has_delegates, joined};
use super::{Backend, File, Name, OpenRequest};
use crate::config;
use crate::errno::Res;
use crate::open::page_len_hint;
use crate::route::{Base, WeftPath};
use weft_client::{Client, DelegatedFs, FileSystem, FileType, HandleToken, InodePath, OpenFile, SetAttr};
use weft_core::{ByteLen, Layout};
use weft_env::real::{RealEnv, block_on};
use weft_wire::cluster::TargetEntry;

/// Block size of `statfs`, in bytes.
const UNIT: u64 = 4096;
/// Type of the file system in `statfs`: "weft".
const MAGIC: i64 = 0x7765_6674;

impl Backend {
    /// Returns names of Weft whose files' bytes go through the delegates of the job.
    fn files(&self) -> DelegatedFs<'_, RealEnv> {
        DelegatedFs {
            weft: &self.client,
            join: if has_delegates() { Some(&joined) } else { None },
            page_len: page_len_hint(),
            mount: &config::config().mount,
        }
    }

    pub fn stat(&self, at: &WeftPath, follow: bool) -> Res<libc::stat> {
        Ok(stat_of(&block_on(self.client.stat_last_known(&place(at, follow)))?.attr))
    }

    /// Returns attributes with a size that includes bytes that delegates hold.
    pub fn stat_whole(&self, at: &WeftPath, follow: bool) -> Res<libc::stat> {
        Ok(stat_of(&block_on(self.files().stat(&place(at, follow)))?.attr))
    }

    /// Returns attributes, and the inode as the start of a walk.
    pub fn stat_base(&self, at: &WeftPath, follow: bool) -> Res<(libc::stat, Base)> {
        let attr = block_on(self.client.stat_last_known(&place(at, follow)))?.attr;
        Ok((stat_of(&attr), base_of(&attr)))
    }

    pub fn open(&self, at: &WeftPath, how: &OpenRequest) -> Res<File> {
        let follow = !(how.nofollow || how.flags.create && how.flags.exclusive);
        let file = block_on(self.files().open(&place(at, follow), how.flags, how.mode, &how.spec))?;
        let file = File::from(file);
        match file.weft()?.attr_at_open().kind {
            FileType::Symlink => Err(libc::ELOOP.into()),
            FileType::Directory if how.flags.write => Err(libc::EISDIR.into()),
            FileType::Regular | FileType::Directory => Ok(file),
            // Only the kernel can implement such files.
            _ if how.flags.read || how.flags.write => Err(libc::ENXIO.into()),
            _ => Ok(file),
        }
    }

    /// Creates a file without a name in the directory `at`, and opens it.
    pub fn open_unnamed(&self, at: &WeftPath, how: &OpenRequest) -> Res<File> {
        let at = place(at, !how.nofollow);
        let file = block_on(self.client.open_unnamed(&at, how.flags, how.mode, &how.spec))?;
        Ok(self.files().wrap(file)?.into())
    }

    /// Creates a node of the type in `mode` (`S_IFIFO`, `S_IFREG`, ...), after the umask.
    pub fn mknod(&self, at: &WeftPath, mode: u32, device: u64) -> Res<()> {
        let kind = kind_of(mode)?;
        Ok(block_on(self.client.mknod(&place(at, false), kind, mode & 0o7777, device)).map(drop)?)
    }

    pub fn mkdir(&self, at: &WeftPath, mode: u32) -> Res<()> {
        let at = InodePath { follow: false, ..place(at, false) };
        Ok(block_on(self.client.mkdir(&at, mode)).map(drop)?)
    }

    pub fn symlink(&self, at: &WeftPath, target: &[u8]) -> Res<()> {
        Ok(block_on(self.client.symlink(&place(at, false), target)).map(drop)?)
    }

    pub fn link(&self, from: &WeftPath, to: &WeftPath, follow: bool) -> Res<()> {
        Ok(block_on(self.client.link(&place(from, follow), &place(to, false))).map(drop)?)
    }

    /// Gives an open file another name, or its first one.
    pub fn link_open(&self, from: &File, to: &WeftPath) -> Res<()> {
        Ok(block_on(from.weft()?.link(&place(to, false))).map(drop)?)
    }

    pub fn unlink(&self, at: &WeftPath) -> Res<()> {
        Ok(block_on(self.client.unlink(&place(at, false)))?)
    }

    pub fn rmdir(&self, at: &WeftPath) -> Res<()> {
        let at = InodePath { follow: false, ..place(at, false) };
        Ok(block_on(self.client.rmdir(&at))?)
    }

    pub fn rename(&self, from: &WeftPath, to: &WeftPath, no_replace: bool, exchange: bool) -> Res<()> {
        let (from, to) = (place(from, false), place(to, false));
        Ok(block_on(self.client.rename(&from, &to, no_replace, exchange))?)
    }

    pub fn readlink(&self, at: &WeftPath) -> Res<Vec<u8>> {
        Ok(block_on(self.client.readlink(&place(at, false)))?)
    }

    pub fn set_attr(&self, at: &WeftPath, follow: bool, set: &SetAttr) -> Res<()> {
        Ok(block_on(self.client.set_attr(&place(at, follow), *set)).map(drop)?)
    }

    pub fn truncate(&self, at: &WeftPath, size: u64) -> Res<()> {
        Ok(block_on(self.files().truncate(&place(at, true), ByteLen(size)))?)
    }

    /// Returns the names after `after` in byte order, without `.` and `..`, and whether there are more.
    pub fn list(&self, at: &WeftPath, after: &[u8]) -> Res<(Vec<Name>, bool)> {
        let (entries, more) = block_on(self.client.list(&place(at, true), after, 4096, false))?;
        let name = |entry: weft_client::Entry| Name {
            inode: entry.file.0,
            // The types of directory entries are those of modes, shifted.
            kind: (entry.kind.mode_bits() >> 12) as u8,
            name: entry.name,
        };
        Ok((entries.into_iter().map(name).collect(), more))
    }

    pub fn access(&self, at: &WeftPath, mask: u32, follow: bool) -> Res<()> {
        Ok(block_on(self.client.access(&place(at, follow), mask))?)
    }

    pub fn get_xattr(&self, at: &WeftPath, follow: bool, name: &str) -> Res<Vec<u8>> {
        Ok(block_on(self.client.get_xattr(&place(at, follow), name))?)
    }

    pub fn set_xattr(&self, at: &WeftPath, follow: bool, name: &str, value: &[u8], flags: i32) -> Res<()> {
        let (create, replace) = (flags & libc::XATTR_CREATE != 0, flags & libc::XATTR_REPLACE != 0);
        Ok(block_on(self.client.set_xattr(&place(at, follow), name, value, create, replace))?)
    }

    pub fn list_xattr(&self, at: &WeftPath, follow: bool) -> Res<Vec<String>> {
        Ok(block_on(self.client.list_xattr(&place(at, follow)))?)
    }

    pub fn remove_xattr(&self, at: &WeftPath, follow: bool, name: &str) -> Res<()> {
        Ok(block_on(self.client.remove_xattr(&place(at, follow), name))?)
    }

    /// Returns the space at a path or, with `None`, that of the whole file system.
    pub fn statfs(&self, at: Option<&WeftPath>) -> Res<libc::statfs> {
        let space = block_on(self.client.statfs(at.map(|at| place(at, true)).as_ref()))?;
        // SAFETY: all zeros is a valid `statfs`.
        let mut out: libc::statfs = unsafe { std::mem::zeroed() };
        out.f_type = MAGIC;
        out.f_bsize = UNIT as i64;
        out.f_frsize = UNIT as i64;
        out.f_blocks = space.total.0 / UNIT;
        out.f_bfree = space.free.0 / UNIT;
        out.f_bavail = space.free.0 / UNIT;
        out.f_files = space.inodes + space.inodes_free;
        out.f_ffree = space.inodes_free;
        out.f_namelen = 255;
        Ok(out)
    }

    pub fn layout(&self, at: &WeftPath) -> Res<Option<Layout>> {
        Ok(block_on(self.client.get_layout(&place(at, true)))?.0)
    }

    /// Returns the targets of the cluster with their classes, in the order of their ids.
    pub fn targets(&self) -> &[TargetEntry] {
        &self.client.map().targets
    }

    /// Opens the file that [`File::token`] describes.
    pub fn adopt(&self, token: &[u8]) -> Res<File> {
        Ok(self.files().wrap(adopted(&self.client, token)?)?.into())
    }

    /// Creates the file system for a forked child, which must not use the parent's connections.
    pub fn after_fork_in_child(&self) -> Self {
        // This does not affect the parent's session; the child's session has its own process id.
        let same = self.client.after_fork_in_child();
        let fresh = client(&self.cluster).unwrap_or(same);
        Self { client: fresh, cluster: self.cluster.clone() }
    }
}

/// Opens the file that another process described, in the session of `client`.
pub fn adopted(client: &Client<RealEnv>, token: &[u8]) -> Res<OpenFile<RealEnv>> {
    let token = HandleToken::decode(token).ok_or(libc::ESTALE)?;
    Ok(block_on(client.adopt(&token))?)
}
