//! Operations by path.

use super::connect::client;
use super::convert::{base_of, kind_of, place, stat_of};
use super::delegates::{has_delegates, joined};
use super::{Backend, File, Name, OpenRequest};
use crate::config;
use crate::errno::{Fail, Res};
use crate::open::page_len_hint;
use crate::private::mapped;
use crate::route::{Base, Named, WeftPath};
use weft_client::{
    Client, DelegatedFs, FileSystem, FileType, HandleToken, InodePath, LayoutSpec, OpenFile, OpenFlags,
    SetAttr,
};
use weft_core::{ByteLen, Layout};
use weft_env::real::{RealEnv, block_on};
use weft_wire::cluster::TargetEntry;

/// Block size of `statfs`, in bytes.
const UNIT: u64 = 4096;
/// Type of the file system in `statfs`: "weft".
const MAGIC: i64 = 0x7765_6674;

/// Returns the name at a path, which is created, removed or replaced; what is there need not be a directory.
fn name_at(at: &WeftPath) -> WeftPath {
    WeftPath { must_dir: false, ..at.clone() }
}

impl Backend {
    /// Returns names of Weft whose files' bytes go through the delegates of the job.
    fn files<'a>(&'a self, client: &'a Client<RealEnv>) -> DelegatedFs<'a, RealEnv> {
        DelegatedFs {
            weft: client,
            join: if has_delegates() { Some(&joined) } else { None },
            page_len: page_len_hint(),
            mount: &config::config().mount,
        }
    }

    pub fn stat(&self, at: &WeftPath, follow: bool) -> Res<libc::stat> {
        Ok(self.stat_base(at, follow)?.0)
    }

    /// Returns attributes with a size that includes bytes that delegates hold.
    pub fn stat_whole(&self, at: &WeftPath, follow: bool) -> Res<libc::stat> {
        let (client, place) = self.reach(at, follow)?;
        Ok(stat_of(&block_on(self.files(&client).stat(&place))?.attr))
    }

    /// Returns attributes, and the inode as the start of a walk.
    pub fn stat_base(&self, at: &WeftPath, follow: bool) -> Res<(libc::stat, Base)> {
        let (client, place) = self.reach(at, follow)?;
        let attr = block_on(client.stat_last_known(&place))?.attr;
        Ok((stat_of(&attr), base_of(&attr, client.session())))
    }

    pub fn open(&self, at: &WeftPath, how: &OpenRequest) -> Res<File> {
        let follow = !(how.nofollow || how.flags.create && how.flags.exclusive);
        let (client, place) = self.reach(&name_at(at), follow || at.must_dir)?;
        // A link in `/proc` leads to a file that exists.
        let flags = OpenFlags { create: how.flags.create && at.by == Named::Path, ..how.flags };
        let file = block_on(self.files(&client).open(&place, flags, how.mode, &how.spec))?;
        let file = File::from(file);
        if how.flags.truncate
            && let Some(mapped) = file.mapped()
        {
            // The kernel's pages end, too, and are not written over the truncated file.
            mapped.truncate(0)?;
        }
        match file.weft()?.attr_at_open().kind {
            FileType::Directory if how.flags.write => Err(libc::EISDIR.into()),
            FileType::Directory if how.direct => Err(libc::EINVAL.into()),
            FileType::Regular | FileType::Directory => Ok(file),
            // Only the kernel can implement such files.
            _ if how.flags.read || how.flags.write => Err(libc::ENXIO.into()),
            _ => Ok(file),
        }
    }

    /// Creates a file without a name in the directory `at`, and opens it.
    pub fn open_unnamed(&self, at: &WeftPath, how: &OpenRequest) -> Res<File> {
        let (client, at) = self.reach(at, !how.nofollow)?;
        let file = block_on(client.open_unnamed(&at, how.flags, how.mode, &how.spec))?;
        Ok(self.files(&client).wrap(file)?.into())
    }

    /// Creates a node of the type in `mode` (`S_IFIFO`, `S_IFREG`, ...), after the umask.
    pub fn mknod(&self, at: &WeftPath, mode: u32, device: u64) -> Res<()> {
        let kind = kind_of(mode)?;
        let (client, at) = self.reach(&name_at(at), false)?;
        Ok(block_on(client.mknod(&at, kind, mode & 0o7777, device)).map(drop)?)
    }

    pub fn mkdir(&self, at: &WeftPath, mode: u32) -> Res<()> {
        let (client, at) = self.reach(&name_at(at), false)?;
        Ok(block_on(client.mkdir(&InodePath { follow: false, ..at }, mode)).map(drop)?)
    }

    pub fn symlink(&self, at: &WeftPath, target: &[u8]) -> Res<()> {
        let (client, at) = self.reach(&name_at(at), false)?;
        Ok(block_on(client.symlink(&at, target)).map(drop)?)
    }

    pub fn link(&self, from: &WeftPath, to: &WeftPath, follow: bool) -> Res<()> {
        let ((client, from), to) = self.reach_both((from, follow), &name_at(to))?;
        Ok(block_on(client.link(&from, &to)).map(drop)?)
    }

    /// Gives an open file another name, or its first one.
    pub fn link_open(&self, from: &File, to: &WeftPath) -> Res<()> {
        let (_, to) = self.reach(&name_at(to), false)?;
        Ok(block_on(from.weft()?.link(&to)).map(drop)?)
    }

    pub fn unlink(&self, at: &WeftPath) -> Res<()> {
        let (client, at) = self.reach(&name_at(at), false)?;
        Ok(block_on(client.unlink(&at))?)
    }

    pub fn rmdir(&self, at: &WeftPath) -> Res<()> {
        let (client, at) = self.reach(&name_at(at), false)?;
        Ok(block_on(client.rmdir(&InodePath { follow: false, ..at }))?)
    }

    pub fn rename(&self, from: &WeftPath, to: &WeftPath, no_replace: bool, exchange: bool) -> Res<()> {
        let ((client, from), to) = self.reach_both((&name_at(from), false), &name_at(to))?;
        Ok(block_on(client.rename(&from, &to, no_replace, exchange))?)
    }

    pub fn readlink(&self, at: &WeftPath) -> Res<Vec<u8>> {
        let (client, at) = self.reach(at, false)?;
        Ok(block_on(client.readlink(&at))?)
    }

    pub fn set_attr(&self, at: &WeftPath, follow: bool, set: &SetAttr) -> Res<()> {
        let (client, at) = self.reach(at, follow)?;
        Ok(block_on(client.set_attr(&at, *set)).map(drop)?)
    }

    pub fn truncate(&self, at: &WeftPath, size: u64) -> Res<()> {
        let (client, place) = self.reach(at, true)?;
        block_on(self.files(&client).truncate(&place, ByteLen(size)))?;
        if mapped::any()
            && let Some(mapped) = mapped::of(self.stat(at, true)?.st_ino)
        {
            mapped.truncate(size)?;
        }
        Ok(())
    }

    /// Returns the names after `after` in byte order, without `.` and `..`, and whether there are more.
    pub fn list(&self, at: &WeftPath, after: &[u8]) -> Res<(Vec<Name>, bool)> {
        let (client, at) = self.reach(at, true)?;
        let (entries, more) = block_on(client.list(&at, after, 4096, false))?;
        let name = |entry: weft_client::Entry| Name {
            inode: entry.file.0,
            // The types of directory entries are those of modes, shifted.
            kind: (entry.kind.mode_bits() >> 12) as u8,
            name: entry.name,
        };
        Ok((entries.into_iter().map(name).collect(), more))
    }

    pub fn access(&self, at: &WeftPath, mask: u32, follow: bool) -> Res<()> {
        let (client, at) = self.reach(at, follow)?;
        Ok(block_on(client.access(&at, mask))?)
    }

    pub fn get_xattr(&self, at: &WeftPath, follow: bool, name: &str) -> Res<Vec<u8>> {
        let (client, at) = self.reach(at, follow)?;
        Ok(block_on(client.get_xattr(&at, name))?)
    }

    pub fn set_xattr(&self, at: &WeftPath, follow: bool, name: &str, value: &[u8], flags: i32) -> Res<()> {
        let (create, replace) = (flags & libc::XATTR_CREATE != 0, flags & libc::XATTR_REPLACE != 0);
        let (client, at) = self.reach(at, follow)?;
        Ok(block_on(client.set_xattr(&at, name, value, create, replace))?)
    }

    pub fn list_xattr(&self, at: &WeftPath, follow: bool) -> Res<Vec<String>> {
        let (client, at) = self.reach(at, follow)?;
        Ok(block_on(client.list_xattr(&at))?)
    }

    pub fn remove_xattr(&self, at: &WeftPath, follow: bool, name: &str) -> Res<()> {
        let (client, at) = self.reach(at, follow)?;
        Ok(block_on(client.remove_xattr(&at, name))?)
    }

    /// Returns the space at a path or, with `None`, that of the whole file system.
    pub fn statfs(&self, at: Option<&WeftPath>) -> Res<libc::statfs> {
        let reached = at.map(|at| self.reach(at, true)).transpose()?;
        let space = match &reached {
            Some((client, at)) => block_on(client.statfs(Some(at))),
            None => block_on(self.client.statfs(None)),
        }?;
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

    /// Returns the cluster file.
    pub fn cluster_file(&self) -> std::path::PathBuf {
        self.cluster.file.clone()
    }

    pub fn layout(&self, at: &WeftPath) -> Res<Option<Layout>> {
        let (client, at) = self.reach(at, true)?;
        Ok(block_on(client.get_layout(&at))?.0)
    }

    /// Returns the targets of the cluster with their classes, in the order of their ids.
    pub fn targets(&self) -> Vec<TargetEntry> {
        self.client.map().targets.clone()
    }

    /// Opens the file that [`File::token`] describes.
    ///
    /// A session of another user cannot pass its open file on. The file is then opened by its path `text`, with the
    /// permissions of this user.
    pub fn adopt(&self, token: &[u8], text: &[u8]) -> Res<File> {
        Ok(self.files(&self.client).wrap(self.adopt_in(&self.client, token, text)?)?.into())
    }

    /// Opens the file that another process described in the session of `client`, which belongs to this user.
    pub(super) fn adopt_in(
        &self,
        client: &Client<RealEnv>,
        token: &[u8],
        text: &[u8],
    ) -> Res<OpenFile<RealEnv>> {
        match block_on(client.adopt(&HandleToken::decode(token).ok_or(libc::ESTALE)?)).map_err(Fail::from) {
            Err(Fail::Errno(libc::EACCES)) => self.open_again(client, token, text),
            other => other,
        }
    }

    fn open_again(&self, client: &Client<RealEnv>, token: &[u8], text: &[u8]) -> Res<OpenFile<RealEnv>> {
        let token = HandleToken::decode(token).ok_or(libc::ESTALE)?;
        let at = place(&WeftPath::at(text.to_vec()), true);
        let directory = token.flags.directory;
        let OpenFlags { read, write, .. } = token.flags;
        let flags = OpenFlags { read, write, directory, ..OpenFlags::default() };
        let opened = block_on(client.open(&at, flags, 0, &LayoutSpec::default()));
        match opened {
            Ok(file) if file.file() == token.file => Ok(file),
            _ => {
                crate::sys::complain(&format!(
                    "open: {}: user {} may not open this file again, which another user has open: open it as this user",
                    String::from_utf8_lossy(&crate::route::full(text)),
                    self.identity.uid
                ));
                Err(libc::EACCES.into())
            }
        }
    }

    /// Creates the file system for a forked child, which must not use the parent's connections.
    pub fn after_fork_in_child(&self) -> Self {
        // This does not affect the parent's session; the child's session has its own process id.
        let same = self.client.after_fork_in_child();
        let fresh = client(&self.cluster, &self.identity).unwrap_or(same);
        let sessions = [&self.sessions[..], &[fresh.session()]].concat();
        Self { client: fresh, cluster: self.cluster.clone(), identity: self.identity.clone(), sessions }
    }
}
