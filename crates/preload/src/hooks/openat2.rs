//! `openat2(2)`, which programs call by number: `openat` with limits on where the walk may lead.
//!
//! A limited walk goes from inode to inode, one name at a time, so that a name which is replaced meanwhile leads
//! nowhere that the limits forbid.

use crate::backend::{Backend, backend};
use crate::errno::{Fail, Res};
use crate::open;
use crate::pathname;
use crate::route::{self, Base, Route, Spot};
use crate::serve::answer;
use crate::table;
use libc::{AT_FDCWD, c_char, c_int, size_t};

/// `struct open_how` of Linux.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

/// How often a walk follows a link before it gives up, as the kernel does.
const LINKS_MAX: u32 = 40;

/// Serves a call that leads to a file of ours.
///
/// # Safety
/// `path` is null or a C string, `how` null or `size` bytes.
pub unsafe fn openat2(dir: c_int, path: *const c_char, how: *const OpenHow, size: size_t) -> Option<c_int> {
    if path.is_null() || how.is_null() || size < size_of::<OpenHow>() || crate::guard::inside() {
        return None;
    }
    let text = std::ffi::CStr::from_ptr(path).to_bytes();
    let in_root = (*how).resolve & libc::RESOLVE_IN_ROOT != 0;
    // In the root of a directory an absolute path begins there.
    let skipped = if in_root { text.iter().take_while(|&&byte| byte == b'/').count() } else { 0 };
    let way = route::route(dir, path.add(skipped));
    let from_ours = if dir == AT_FDCWD { route::cwd().is_some() } else { table::is_ours(dir) };
    let is_absolute = text.starts_with(b"/") && !in_root;
    if matches!(way, Route::Foreign) && (is_absolute || !from_ours) {
        return None;
    }
    Some(answer(|| {
        let extra = std::slice::from_raw_parts(how.cast::<u8>(), size).get(size_of::<OpenHow>()..);
        if extra.is_some_and(|extra| extra.iter().any(|&byte| byte != 0)) {
            return Err(libc::E2BIG.into());
        }
        let how = *how;
        let flags = c_int::try_from(how.flags).map_err(|_| libc::EINVAL)?;
        let known = libc::RESOLVE_NO_XDEV
            | libc::RESOLVE_NO_MAGICLINKS
            | libc::RESOLVE_NO_SYMLINKS
            | libc::RESOLVE_BENEATH
            | libc::RESOLVE_IN_ROOT
            | libc::RESOLVE_CACHED;
        let makes = flags & libc::O_CREAT != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE;
        let scoped = libc::RESOLVE_BENEATH | libc::RESOLVE_IN_ROOT;
        if how.resolve & !known != 0
            || how.resolve & scoped == scoped
            || how.mode & !0o7777 != 0
            || how.mode != 0 && !makes
        {
            return Err(libc::EINVAL.into());
        }
        if how.resolve & libc::RESOLVE_CACHED != 0 {
            // Nothing is cached: the caller asks again without the flag.
            return Err(libc::EAGAIN.into());
        }
        if is_absolute && how.resolve & libc::RESOLVE_BENEATH != 0 {
            return Err(libc::EXDEV.into());
        }
        let backend = backend()?;
        let walk = Walk { backend, resolve: how.resolve, flags };
        let spot = if from_ours && !is_absolute {
            walk.go(start(backend, dir)?, &text[skipped..])?
        } else {
            let Route::Ours(spot) = way else { return Err(libc::EXDEV.into()) };
            if how.resolve & libc::RESOLVE_NO_XDEV != 0 {
                return Err(libc::EXDEV.into());
            }
            let names = pathname::names(&text[skipped..]);
            let climbs = names.scan(0i64, |depth, name| {
                *depth += if name == b".." { -1 } else { 1 };
                Some(*depth)
            });
            if how.resolve & scoped != 0 && climbs.min().is_some_and(|lowest| lowest < 0) {
                return Err(libc::EXDEV.into());
            }
            let root = Spot::at(b"/".to_vec());
            let (_, base) = backend.stat_base(&root, true)?;
            let mut found = walk.go((base, root.text), &spot.text)?;
            found.must_dir = spot.must_dir;
            found
        };
        // What stood there as a link has been followed.
        open::open(&spot, flags | libc::O_NOFOLLOW, how.mode as u32)
    }))
}

/// The directory at which a relative path begins: its inode and its path from the root of the mount.
fn start(backend: &Backend, dir: c_int) -> Res<(Base, Vec<u8>)> {
    if dir == AT_FDCWD {
        let text = route::cwd().ok_or(libc::ENOENT)?;
        return Ok((backend.stat_base(&Spot::at(text.clone()), true)?.1, text));
    }
    let open = table::get(dir).ok_or(libc::EBADF)?;
    if !open.is_directory() {
        return Err(libc::ENOTDIR.into());
    }
    Ok((open.directory_base().ok_or(libc::EBADF)?, open.path()))
}

struct Walk<'a> {
    backend: &'a Backend,
    resolve: u64,
    flags: c_int,
}

impl Walk<'_> {
    fn has(&self, limit: u64) -> bool {
        self.resolve & limit != 0
    }

    /// The directory and the last name to which `path` leads from `from`.
    fn go(&self, from: (Base, Vec<u8>), path: &[u8]) -> Res<Spot> {
        let must_dir = pathname::wants_directory(path);
        let mut dirs = vec![from];
        let mut todo: Vec<Vec<u8>> = Vec::new();
        let append = |todo: &mut Vec<Vec<u8>>, path: &[u8]| {
            let names: Vec<Vec<u8>> = pathname::names(path).map(<[u8]>::to_vec).collect();
            todo.extend(names.into_iter().rev());
        };
        append(&mut todo, path);
        let mut links = 0;
        while let Some(name) = todo.pop() {
            if name == b".." {
                self.up(&mut dirs)?;
                continue;
            }
            let (base, text) = dirs.last().ok_or(libc::ENOENT)?;
            let spot = below(*base, text, &name);
            let is_last = todo.is_empty();
            let kept = is_last && !must_dir;
            let (st, found) = match self.backend.stat_base(&spot, false) {
                Ok(known) => known,
                Err(Fail::Errno(libc::ENOENT)) if is_last => return Ok(Spot { must_dir, ..spot }),
                Err(fail) => return Err(fail),
            };
            let is_link = st.st_mode & libc::S_IFMT == libc::S_IFLNK;
            let exclusive = libc::O_CREAT | libc::O_EXCL;
            if is_link
                && !(kept && (self.flags & libc::O_NOFOLLOW != 0 || self.flags & exclusive == exclusive))
            {
                links += 1;
                if self.has(libc::RESOLVE_NO_SYMLINKS) || links > LINKS_MAX {
                    return Err(libc::ELOOP.into());
                }
                let target = self.backend.readlink(&spot)?;
                let rest = self.restart(&mut dirs, &target)?;
                append(&mut todo, rest);
            } else if is_last {
                return Ok(Spot { must_dir, ..spot });
            } else if st.st_mode & libc::S_IFMT == libc::S_IFDIR {
                dirs.push((found, spot.text));
            } else {
                return Err(libc::ENOTDIR.into());
            }
        }
        // The path is that of a directory already found.
        let (base, text) = dirs.pop().ok_or(libc::ENOENT)?;
        let len = text.len();
        Ok(Spot { text, base: Some((base, len)), must_dir: true })
    }

    /// `..`
    fn up(&self, dirs: &mut Vec<(Base, Vec<u8>)>) -> Res<()> {
        if dirs.len() > 1 {
            dirs.pop();
            return Ok(());
        }
        if self.has(libc::RESOLVE_IN_ROOT) {
            return Ok(());
        }
        let Some((base, text)) = dirs.pop().filter(|_| !self.has(libc::RESOLVE_BENEATH)) else {
            return Err(libc::EXDEV.into());
        };
        let root = self.backend.stat(&Spot::at(b"/".to_vec()), true)?.st_ino;
        if base.inode == root {
            return Err(libc::EXDEV.into());
        }
        let parent = Spot { text: b"/..".to_vec(), base: Some((base, 0)), must_dir: false };
        dirs.push((self.backend.stat_base(&parent, true)?.1, pathname::split(&text).0.to_vec()));
        Ok(())
    }

    /// Where the target of a link goes on: an absolute one from a root, another one from where the walk is.
    fn restart<'t>(&self, dirs: &mut Vec<(Base, Vec<u8>)>, target: &'t [u8]) -> Res<&'t [u8]> {
        if !target.starts_with(b"/") {
            return Ok(target);
        }
        if self.has(libc::RESOLVE_IN_ROOT) {
            dirs.truncate(1);
            return Ok(target);
        }
        let rest = pathname::below(&crate::config::config().mount, target);
        let Some(rest) = rest.filter(|_| !self.has(libc::RESOLVE_BENEATH | libc::RESOLVE_NO_XDEV)) else {
            return Err(libc::EXDEV.into());
        };
        let root = Spot::at(b"/".to_vec());
        *dirs = vec![(self.backend.stat_base(&root, true)?.1, root.text)];
        Ok(rest)
    }
}

/// `name` in the directory `base`, whose path is `text`.
fn below(base: Base, text: &[u8], name: &[u8]) -> Spot {
    let start = if text == b"/" { 0 } else { text.len() };
    Spot { text: pathname::join(text, name), base: Some((base, start)), must_dir: false }
}
