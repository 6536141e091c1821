//! A local directory in place of a cluster (`WEFT_LOCAL_ROOT`), so that the hooks can be tested without servers.

use super::{Backend, DEVICE, File, How, Interrupted, Name};
use crate::errno::{self, Fail, Res};
use crate::route::Spot;
use crate::{pathname, placeholder, sys};
use std::ffi::{CString, c_int};
use std::io::{IoSlice, IoSliceMut};
use weft_core::Layout;
use weft_wire::meta::{HeldLock, LockKind, LockRange, LockSpace, SetAttr, SetTime};

pub struct Local {
    root: Vec<u8>,
}

fn check(result: impl Into<i64>) -> Res<i64> {
    let result = result.into();
    if result < 0 { Err(errno::get().into()) } else { Ok(result) }
}

fn ours(mut st: libc::stat) -> libc::stat {
    st.st_dev = DEVICE;
    st
}

impl Local {
    pub fn new(root: &[u8]) -> Self {
        Self { root: root.to_vec() }
    }

    fn real(&self, text: &[u8]) -> CString {
        sys::c(&pathname::join(&self.root, text))
    }

    /// Walks as the metadata service does: links inside are followed, an absolute or climbing one ends the walk.
    fn walk(&self, at: &Spot, follow: bool) -> Res<CString> {
        let mut done: Vec<u8> = Vec::new();
        let mut todo: Vec<Vec<u8>> = pathname::names(&at.text).map(<[u8]>::to_vec).collect();
        todo.reverse();
        let mut links = 0;
        while let Some(name) = todo.pop() {
            if name == b".." {
                done = pathname::split(&done).0.to_vec();
                if done == b"/" || done == b"." {
                    done.clear();
                }
                continue;
            }
            let mut next = done.clone();
            next.push(b'/');
            next.extend_from_slice(&name);
            let last = todo.is_empty() && !follow && !at.must_dir;
            match sys::readlinkat(libc::AT_FDCWD, &self.real(&next)) {
                Ok(target) if !last => {
                    links += 1;
                    if links > 40 {
                        return Err(libc::ELOOP.into());
                    }
                    let rest = todo.iter().rev().map(Vec::as_slice).collect::<Vec<_>>().join(&b'/');
                    let climbs = pathname::tidy(&pathname::join(&done, &target)).is_none();
                    if target.starts_with(b"/") || climbs {
                        let from = crate::route::full(if done.is_empty() { b"/" } else { &done });
                        let to = if climbs { pathname::join(&from, &target) } else { target };
                        return Err(Fail::Moved(if rest.is_empty() {
                            to
                        } else {
                            pathname::join(&to, &rest)
                        }));
                    }
                    let names: Vec<Vec<u8>> = pathname::names(&target).map(<[u8]>::to_vec).collect();
                    todo.extend(names.into_iter().rev());
                }
                _ => done = next,
            }
        }
        let mut path = pathname::join(&self.root, &done);
        if at.must_dir && !path.ends_with(b"/") {
            path.push(b'/');
        }
        Ok(sys::c(&path))
    }

    fn flags(follow: bool) -> c_int {
        if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW }
    }
}

fn time(set: Option<SetTime>) -> libc::timespec {
    match set {
        None => libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT },
        Some(SetTime::Now) => libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW },
        Some(SetTime::At(at)) => {
            let (sec, nsec) = crate::open::parts(at);
            libc::timespec { tv_sec: sec, tv_nsec: nsec }
        }
    }
}

impl Backend for Local {
    fn stat(&self, at: &Spot, follow: bool) -> Res<libc::stat> {
        Ok(ours(sys::fstatat(libc::AT_FDCWD, &self.walk(at, follow)?, Self::flags(follow))?))
    }

    fn open(&self, at: &Spot, how: &How) -> Res<Box<dyn File>> {
        let path = self.walk(at, !(how.nofollow || how.create && how.exclusive))?;
        let mut flags = match (how.read, how.write) {
            (_, false) => libc::O_RDONLY,
            (false, true) => libc::O_WRONLY,
            (true, true) => libc::O_RDWR,
        };
        for (wanted, flag) in [
            (how.create, libc::O_CREAT),
            (how.exclusive, libc::O_EXCL),
            (how.truncate, libc::O_TRUNC),
            (how.directory, libc::O_DIRECTORY),
            (how.nofollow, libc::O_NOFOLLOW),
        ] {
            flags |= if wanted { flag } else { 0 };
        }
        if how.write && !how.read {
            flags = flags & !libc::O_ACCMODE | libc::O_RDWR;
        }
        let fd = sys::open(&path, flags | libc::O_CLOEXEC, how.mode)?;
        LocalFile::boxed(fd, path, at.text.clone(), flags)
    }

    fn mknod(&self, at: &Spot, mode: u32, device: u64) -> Res<()> {
        check(unsafe { libc::mknod(self.walk(at, false)?.as_ptr(), mode, device) }).map(drop)
    }

    fn mkdir(&self, at: &Spot, mode: u32) -> Res<()> {
        let at = Spot { must_dir: false, ..at.clone() };
        check(unsafe { libc::mkdir(self.walk(&at, false)?.as_ptr(), mode) }).map(drop)
    }

    fn symlink(&self, at: &Spot, target: &[u8]) -> Res<()> {
        check(unsafe { libc::symlink(sys::c(target).as_ptr(), self.walk(at, false)?.as_ptr()) }).map(drop)
    }

    fn link(&self, from: &Spot, to: &Spot, follow: bool) -> Res<()> {
        let (from, to) = (self.walk(from, follow)?, self.walk(to, false)?);
        check(unsafe { libc::link(from.as_ptr(), to.as_ptr()) }).map(drop)
    }

    fn unlink(&self, at: &Spot) -> Res<()> {
        check(unsafe { libc::unlink(self.walk(at, false)?.as_ptr()) }).map(drop)
    }

    fn rmdir(&self, at: &Spot) -> Res<()> {
        check(unsafe { libc::rmdir(self.walk(at, false)?.as_ptr()) }).map(drop)
    }

    fn rename(&self, from: &Spot, to: &Spot, no_replace: bool, exchange: bool) -> Res<()> {
        let (from, to) = (self.walk(from, false)?, self.walk(to, false)?);
        let flags =
            u32::from(no_replace) * libc::RENAME_NOREPLACE + u32::from(exchange) * libc::RENAME_EXCHANGE;
        let done = unsafe {
            libc::syscall(
                libc::SYS_renameat2,
                libc::AT_FDCWD,
                from.as_ptr(),
                libc::AT_FDCWD,
                to.as_ptr(),
                flags,
            )
        };
        check(done).map(drop)
    }

    fn readlink(&self, at: &Spot) -> Res<Vec<u8>> {
        Ok(sys::readlinkat(libc::AT_FDCWD, &self.walk(at, false)?)?)
    }

    fn set_attr(&self, at: &Spot, follow: bool, set: &SetAttr) -> Res<()> {
        let path = self.walk(at, follow)?;
        if set.uid.is_some() || set.gid.is_some() {
            let (uid, gid) = (set.uid.unwrap_or(u32::MAX), set.gid.unwrap_or(u32::MAX));
            check(unsafe { libc::fchownat(libc::AT_FDCWD, path.as_ptr(), uid, gid, Self::flags(follow)) })?;
        }
        if let Some(mode) = set.mode {
            check(unsafe { libc::chmod(path.as_ptr(), mode) })?;
        }
        if set.atime.is_some() || set.mtime.is_some() {
            let times = [time(set.atime), time(set.mtime)];
            let flags = Self::flags(follow);
            check(unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), flags) })?;
        }
        Ok(())
    }

    fn truncate(&self, at: &Spot, size: u64) -> Res<()> {
        check(unsafe { libc::truncate(self.walk(at, true)?.as_ptr(), size as i64) }).map(drop)
    }

    fn list(&self, at: &Spot, after: &[u8]) -> Res<(Vec<Name>, bool)> {
        let path = self.walk(at, true)?;
        let mut names = Vec::new();
        unsafe {
            let dir = libc::opendir(path.as_ptr());
            if dir.is_null() {
                return Err(errno::get().into());
            }
            loop {
                let entry = libc::readdir(dir);
                let Some(entry) = entry.as_ref() else { break };
                let name = std::ffi::CStr::from_ptr(entry.d_name.as_ptr()).to_bytes().to_vec();
                if name != b"." && name != b".." && name.as_slice() > after {
                    names.push(Name { name, inode: entry.d_ino, kind: entry.d_type });
                }
            }
            libc::closedir(dir);
        }
        names.sort_by(|a, b| a.name.cmp(&b.name));
        // Short pages, so that tests see several.
        let more = names.len() > 100;
        names.truncate(100);
        Ok((names, more))
    }

    fn access(&self, at: &Spot, mask: u32, follow: bool) -> Res<()> {
        check(unsafe { libc::access(self.walk(at, follow)?.as_ptr(), mask as i32) }).map(drop)
    }

    fn get_xattr(&self, at: &Spot, follow: bool, name: &str) -> Res<Vec<u8>> {
        let mut out = vec![0u8; 65_536];
        let (path, name) = (self.walk(at, follow)?, sys::c(name.as_bytes()));
        let len =
            unsafe { libc::lgetxattr(path.as_ptr(), name.as_ptr(), out.as_mut_ptr().cast(), out.len()) };
        out.truncate(check(len as i64)? as usize);
        Ok(out)
    }

    fn set_xattr(&self, at: &Spot, follow: bool, name: &str, value: &[u8], flags: i32) -> Res<()> {
        let (path, name) = (self.walk(at, follow)?, sys::c(name.as_bytes()));
        let value_at = value.as_ptr().cast();
        check(unsafe { libc::lsetxattr(path.as_ptr(), name.as_ptr(), value_at, value.len(), flags) })
            .map(drop)
    }

    fn list_xattr(&self, at: &Spot, follow: bool) -> Res<Vec<String>> {
        let mut out = vec![0u8; 65_536];
        let path = self.walk(at, follow)?;
        let len =
            check(unsafe { libc::llistxattr(path.as_ptr(), out.as_mut_ptr().cast(), out.len()) } as i64)?;
        let names = out[..len as usize].split(|&byte| byte == 0).filter(|name| !name.is_empty());
        Ok(names.map(|name| String::from_utf8_lossy(name).into_owned()).collect())
    }

    fn remove_xattr(&self, at: &Spot, follow: bool, name: &str) -> Res<()> {
        let (path, name) = (self.walk(at, follow)?, sys::c(name.as_bytes()));
        check(unsafe { libc::lremovexattr(path.as_ptr(), name.as_ptr()) }).map(drop)
    }

    fn statfs(&self) -> Res<libc::statfs> {
        let mut out: libc::statfs = unsafe { std::mem::zeroed() };
        check(unsafe { libc::statfs(self.real(b"/").as_ptr(), &mut out) })?;
        Ok(out)
    }

    fn layout(&self, _at: &Spot) -> Res<Option<Layout>> {
        Ok(None)
    }

    fn adopt(&self, token: &[u8]) -> Res<Box<dyn File>> {
        let (flags, rest) = token.split_at(4);
        let flags = c_int::from_le_bytes(flags.try_into().expect("four bytes"));
        let (text, path) = rest.split_at(rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len()));
        let path = sys::c(&path[1..]);
        let again = flags & (libc::O_ACCMODE | libc::O_DIRECTORY);
        let fd = sys::open(&path, again | libc::O_CLOEXEC, 0)?;
        LocalFile::boxed(fd, path, text.to_vec(), flags)
    }

    fn after_fork_in_child(&self) -> Box<dyn Backend> {
        Box::new(Self { root: self.root.clone() })
    }
}

struct LocalFile {
    fd: c_int,
    path: CString,
    text: Vec<u8>,
    flags: c_int,
    inode: u64,
    directory: bool,
}

impl LocalFile {
    fn boxed(fd: c_int, path: CString, text: Vec<u8>, flags: c_int) -> Res<Box<dyn File>> {
        let high = sys::fcntl(fd, libc::F_DUPFD_CLOEXEC, placeholder::floor() as usize);
        sys::close(fd);
        let fd = high?;
        let st = sys::fstatat(fd, c"", libc::AT_EMPTY_PATH)?;
        let directory = st.st_mode & libc::S_IFMT == libc::S_IFDIR;
        Ok(Box::new(Self { fd, path, text, flags, inode: st.st_ino, directory }))
    }
}

impl Drop for LocalFile {
    fn drop(&mut self) {
        sys::close(self.fd);
    }
}

impl File for LocalFile {
    fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Res<usize> {
        let n = unsafe { libc::preadv(self.fd, bufs.as_ptr().cast(), bufs.len() as i32, offset as i64) };
        Ok(check(n as i64)? as usize)
    }

    fn write_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Res<usize> {
        let n = unsafe { libc::pwritev(self.fd, bufs.as_ptr().cast(), bufs.len() as i32, offset as i64) };
        Ok(check(n as i64)? as usize)
    }

    fn append(&self, bufs: &[IoSlice<'_>]) -> Res<(u64, usize)> {
        check(unsafe { libc::flock(self.fd, libc::LOCK_EX) })?;
        let result = self.size().and_then(|size| Ok((size, self.write_at(bufs, size)?)));
        unsafe { libc::flock(self.fd, libc::LOCK_UN) };
        result
    }

    fn size(&self) -> Res<u64> {
        Ok(self.stat()?.st_size as u64)
    }

    fn stat(&self) -> Res<libc::stat> {
        Ok(ours(sys::fstatat(self.fd, c"", libc::AT_EMPTY_PATH)?))
    }

    fn truncate(&self, size: u64) -> Res<()> {
        check(unsafe { libc::ftruncate(self.fd, size as i64) }).map(drop)
    }

    fn sync(&self) -> Res<()> {
        check(unsafe { libc::fsync(self.fd) }).map(drop)
    }

    fn lock(
        &self,
        space: LockSpace,
        by_handle: bool,
        kind: Option<LockKind>,
        range: LockRange,
        wait: Option<Interrupted<'_>>,
    ) -> Res<()> {
        let mut wait = wait;
        loop {
            let result = if space == LockSpace::Flock {
                let how = match kind {
                    None => libc::LOCK_UN,
                    Some(LockKind::Shared) => libc::LOCK_SH,
                    Some(LockKind::Exclusive) => libc::LOCK_EX,
                };
                check(unsafe { libc::flock(self.fd, how | libc::LOCK_NB) })
            } else {
                let mut lock: libc::flock = unsafe { std::mem::zeroed() };
                lock.l_type = match kind {
                    None => libc::F_UNLCK,
                    Some(LockKind::Shared) => libc::F_RDLCK,
                    Some(LockKind::Exclusive) => libc::F_WRLCK,
                } as i16;
                lock.l_start = range.start as i64;
                lock.l_len = if range.end > i64::MAX as u64 { 0 } else { (range.end - range.start) as i64 };
                let cmd = if by_handle { libc::F_OFD_SETLK } else { libc::F_SETLK };
                check(unsafe { libc::fcntl(self.fd, cmd, &lock) })
            };
            match (result, &mut wait) {
                (Ok(_), _) => return Ok(()),
                (Err(Fail::Errno(libc::EAGAIN | libc::EACCES)), Some(interrupted)) => {
                    if interrupted() {
                        return Err(libc::EINTR.into());
                    }
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                (Err(fail), _) => return Err(fail),
            }
        }
    }

    fn test_lock(&self, by_handle: bool, kind: LockKind, range: LockRange) -> Res<Option<HeldLock>> {
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = if kind == LockKind::Shared { libc::F_RDLCK } else { libc::F_WRLCK } as i16;
        lock.l_start = range.start as i64;
        lock.l_len = if range.end > i64::MAX as u64 { 0 } else { (range.end - range.start) as i64 };
        let cmd = if by_handle { libc::F_OFD_GETLK } else { libc::F_GETLK };
        check(unsafe { libc::fcntl(self.fd, cmd, &mut lock) })?;
        let kind = match i32::from(lock.l_type) {
            libc::F_RDLCK => LockKind::Shared,
            libc::F_WRLCK => LockKind::Exclusive,
            _ => return Ok(None),
        };
        let start = lock.l_start as u64;
        let end = if lock.l_len == 0 { u64::MAX } else { start + lock.l_len as u64 };
        Ok(Some(HeldLock { kind, range: LockRange { start, end }, pid: lock.l_pid as u32 }))
    }

    fn spot(&self) -> Spot {
        Spot::at(self.text.clone())
    }

    fn inode(&self) -> u64 {
        self.inode
    }

    fn is_directory(&self) -> bool {
        self.directory
    }

    fn token(&self) -> Vec<u8> {
        [&self.flags.to_le_bytes()[..], &self.text, &[0], self.path.as_bytes()].concat()
    }
}
