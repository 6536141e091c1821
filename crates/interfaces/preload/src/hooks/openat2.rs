//! `openat2(2)`, which programs call by number: `openat` with restrictions on the walk.
//!
//! A restricted walk goes from inode to inode, one name at a time, so that a concurrently replaced name cannot lead
//! outside the restrictions.

use crate::backend::{Backend, backend};
use crate::errno::{Fail, Res};
use crate::memory::{self, Access};
use crate::open;
use crate::pathname;
use crate::route::{self, Base, Named, Route, WeftPath};
use crate::serve::answer;
use crate::table;
use libc::{AT_FDCWD, c_char, c_int, size_t};

/// Linux's `struct open_how`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

/// Maximum number of links on a walk, as in the kernel.
const LINKS_MAX: u32 = 40;

/// Serves a call on a Weft file.
///
/// # Safety
/// `path` is null or a C string, `how` is null or points to `size` bytes.
pub unsafe fn openat2(dir: c_int, path: *const c_char, how: *const OpenHow, size: size_t) -> Option<c_int> {
    let is_whole = size >= size_of::<OpenHow>() && memory::has(how.cast(), size, Access::Read);
    if !memory::is_text(path) || !is_whole || crate::guard::inside() {
        return None;
    }
    let text = std::ffi::CStr::from_ptr(path).to_bytes();
    let in_root = (*how).resolve & libc::RESOLVE_IN_ROOT != 0;
    // With a directory as root, an absolute path starts there.
    let skipped = if in_root { text.iter().take_while(|&&byte| byte == b'/').count() } else { 0 };
    let way = route::route(dir, path.add(skipped));
    let from_ours = if dir == AT_FDCWD { route::cwd().is_some() } else { table::is_weft(dir) };
    let is_absolute = text.starts_with(b"/") && !in_root;
    if matches!(way, Route::Foreign) && (is_absolute || !from_ours) {
        return crate::over::is_on().then(|| crate::over::openat2(dir, path, how.cast(), size));
    }
    let checked = checked(how, size, text);
    if (*how).resolve == 0
        && let Ok(flags) = checked
    {
        // As `openat`: links may lead to files of the host.
        return Some(super::names::openat(dir, path, flags, (*how).mode as libc::mode_t));
    }
    Some(answer(|| {
        let flags = checked?;
        let how = *how;
        let scoped = libc::RESOLVE_BENEATH | libc::RESOLVE_IN_ROOT;
        if is_absolute && how.resolve & libc::RESOLVE_BENEATH != 0 {
            return Err(libc::EXDEV.into());
        }
        let backend = backend()?;
        let from_host_root = !from_ours && !is_absolute;
        let walk = Walk { backend, resolve: how.resolve, flags, from_host_root };
        let weft_path = if from_ours && !is_absolute {
            walk.go(start(dir)?, &text[skipped..])?
        } else {
            let Route::Ours(weft_path) = way else { return Err(libc::EXDEV.into()) };
            if weft_path.by != Named::Path {
                // A magic link, which leaves every directory.
                if how.resolve & (libc::RESOLVE_NO_MAGICLINKS | libc::RESOLVE_NO_SYMLINKS) != 0 {
                    return Err(libc::ELOOP.into());
                }
                if how.resolve & (scoped | libc::RESOLVE_NO_XDEV) != 0 {
                    return Err(libc::EXDEV.into());
                }
                return open::open(&weft_path, flags, how.mode as u32);
            }
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
            let root = WeftPath::at(b"/".to_vec());
            let (_, base) = backend.stat_base(&root, true)?;
            let end: &[u8] = if text.ends_with(b"/") { b"/" } else { b"" };
            let mut found = walk.go((base, root.text), &[&weft_path.text[..], end].concat())?;
            found.must_dir |= weft_path.must_dir;
            found
        };
        super::names::refuse_dots(&weft_path, path, flags)?;
        let large = if flags & libc::O_PATH == 0 { open::LARGE } else { 0 };
        // Links were followed by the walk.
        open::open_as(&weft_path, flags | libc::O_NOFOLLOW, flags | large, how.mode as u32)
    }))
}

/// Checks the parameters, and returns the flags of the open.
unsafe fn checked(how: *const OpenHow, size: size_t, text: &[u8]) -> Res<c_int> {
    let extra = std::slice::from_raw_parts(how.cast::<u8>(), size).get(size_of::<OpenHow>()..);
    if extra.is_some_and(|extra| extra.iter().any(|&byte| byte != 0)) {
        return Err(libc::E2BIG.into());
    }
    let how = *how;
    let flags = c_int::try_from(how.flags).map_err(|_| libc::EINVAL)?;
    check_flags(flags)?;
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
    if text.is_empty() {
        return Err(libc::ENOENT.into());
    }
    if text.len() >= libc::PATH_MAX as usize {
        return Err(libc::ENAMETOOLONG.into());
    }
    if how.resolve & libc::RESOLVE_CACHED != 0 {
        // Nothing is cached: the caller retries without the flag.
        return Err(libc::EAGAIN.into());
    }
    Ok(flags)
}

/// Refuses unknown and contradictory flags, which `open` ignores.
fn check_flags(flags: c_int) -> Res<()> {
    const KNOWN: c_int = libc::O_ACCMODE
        | libc::O_CREAT
        | libc::O_EXCL
        | libc::O_NOCTTY
        | libc::O_TRUNC
        | libc::O_APPEND
        | libc::O_NONBLOCK
        | libc::O_SYNC
        | libc::O_ASYNC
        | libc::O_DIRECT
        | open::LARGE
        | libc::O_DIRECTORY
        | libc::O_NOFOLLOW
        | libc::O_NOATIME
        | libc::O_CLOEXEC
        | libc::O_PATH
        | libc::O_TMPFILE;
    const BY_PATH: c_int = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let both = libc::O_CREAT | libc::O_DIRECTORY;
    let unnamed = libc::O_TMPFILE & !libc::O_DIRECTORY;
    let is_unwritable = flags & libc::O_DIRECTORY == 0 || flags & libc::O_ACCMODE == libc::O_RDONLY;
    if flags & !KNOWN != 0
        || flags & libc::O_PATH != 0 && flags & !BY_PATH != 0
        || flags & both == both
        || flags & unnamed != 0 && is_unwritable
    {
        return Err(libc::EINVAL.into());
    }
    Ok(())
}

/// Returns the directory at which a relative path starts: its inode and its path from the root of the mount.
fn start(dir: c_int) -> Res<(Base, Vec<u8>)> {
    if dir == AT_FDCWD {
        let cwd = route::cwd().ok_or(libc::ENOENT)?;
        return Ok((cwd.open.directory_base()?, cwd.text()));
    }
    let open = table::get(dir).ok_or(libc::EBADF)?;
    Ok((open.directory_base()?, open.path()))
}

struct Walk<'a> {
    backend: &'a Backend,
    resolve: u64,
    flags: c_int,
    /// Whether the walk began at the host's root, which is then the root of links, too.
    from_host_root: bool,
}

impl Walk<'_> {
    fn has(&self, limit: u64) -> bool {
        self.resolve & limit != 0
    }

    /// Returns the directory and the last name to which `path` leads from `from`.
    fn go(&self, from: (Base, Vec<u8>), path: &[u8]) -> Res<WeftPath> {
        let mut must_dir = pathname::wants_directory(path);
        let has_dots = |path: &[u8]| matches!(pathname::last_name(path), None | Some(b"." | b".."));
        let mut ends_in_dots = has_dots(path);
        // Linux creates no name with a slash behind it, and does not look for it.
        let mut ends_in_slash = path.ends_with(b"/");
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
            let weft_path = below(*base, text, &name);
            let is_last = todo.is_empty();
            if is_last && ends_in_slash && !ends_in_dots && self.flags & libc::O_CREAT != 0 {
                return Err(libc::EISDIR.into());
            }
            let kept = is_last && !must_dir;
            let (st, found) = match self.backend.stat_base(&weft_path, false) {
                Ok(known) => known,
                Err(Fail::Errno(libc::ENOENT)) if is_last => {
                    return Ok(WeftPath { must_dir, ends_in_dots, ..weft_path });
                }
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
                let target = self.backend.readlink(&weft_path)?;
                must_dir |= is_last && pathname::wants_directory(&target);
                ends_in_slash |= is_last && target.ends_with(b"/");
                ends_in_dots |= is_last && has_dots(&target);
                let rest = self.restart(&mut dirs, &target)?;
                append(&mut todo, rest);
            } else if is_last {
                return Ok(WeftPath { must_dir, ends_in_dots, ..weft_path });
            } else if st.st_mode & libc::S_IFMT == libc::S_IFDIR {
                dirs.push((found, weft_path.text));
            } else {
                return Err(libc::ENOTDIR.into());
            }
        }
        // The path is that of a directory already found.
        let (base, text) = dirs.pop().ok_or(libc::ENOENT)?;
        let len = text.len();
        Ok(WeftPath { must_dir: true, ..WeftPath::from_base(base, text, len) })
    }

    /// Follows `..`.
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
        let root = self.backend.stat(&WeftPath::at(b"/".to_vec()), true)?.st_ino;
        if base.inode == root {
            return Err(libc::EXDEV.into());
        }
        let parent = WeftPath::from_base(base, b"..".to_vec(), 0);
        dirs.push((self.backend.stat_base(&parent, true)?.1, pathname::split(&text).0.to_vec()));
        Ok(())
    }

    /// Continues at the target of a link: an absolute one from the root, a relative one from the current directory.
    fn restart<'t>(&self, dirs: &mut Vec<(Base, Vec<u8>)>, target: &'t [u8]) -> Res<&'t [u8]> {
        if !target.starts_with(b"/") {
            return Ok(target);
        }
        if self.has(libc::RESOLVE_IN_ROOT) && !self.from_host_root {
            dirs.truncate(1);
            return Ok(target);
        }
        let rest = pathname::below(&crate::config::config().mount, target);
        let Some(rest) = rest.filter(|_| !self.has(libc::RESOLVE_BENEATH | libc::RESOLVE_NO_XDEV)) else {
            return Err(libc::EXDEV.into());
        };
        let root = WeftPath::at(b"/".to_vec());
        *dirs = vec![(self.backend.stat_base(&root, true)?.1, root.text)];
        Ok(rest)
    }
}

/// Returns `name` in the directory `base`, whose path is `text`.
fn below(base: Base, text: &[u8], name: &[u8]) -> WeftPath {
    let start = if text == b"/" { 0 } else { text.len() };
    WeftPath::from_base(base, pathname::join(text, name), start)
}
