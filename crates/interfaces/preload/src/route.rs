//! Decides whether a path is under the mount. For a foreign path this costs a few nanoseconds.

use crate::config::{self, config};
use crate::errno::Fail;
use crate::links::{self, Link};
use crate::lock::Lock;
use crate::open::Open;
use crate::{guard, memory, pathname, placeholder, sys, table};
use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use weft_wire::WalkProof;
use weft_wire::hello::SessionId;

/// Inode at which a walk starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Base {
    /// Inode number.
    pub inode: u64,
    /// Proof that a session of this process reached it.
    pub proof: WalkProof,
    /// The session.
    pub session: SessionId,
}

/// Name of a file in Weft.
#[derive(Clone, Debug)]
pub struct WeftPath {
    /// Path from the root of the mount, without `//` and `.`; starts with a slash. With a `base` it may climb above the
    /// root, and the part before the rest only serves messages.
    pub text: Vec<u8>,
    /// Inode at which the walk starts, and the position in `text` of the rest to walk.
    pub base: Option<(Base, usize)>,
    /// Whether the path's end requires a directory.
    pub must_dir: bool,
    /// Whether the path is absolute and ends in `.` or `..`, as that to which a link leads may.
    pub ends_in_dots: bool,
    /// How the program named the file.
    pub by: Named,
}

/// How a program names a file.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Named {
    /// By its path.
    #[default]
    Path,
    /// By a link in `/proc` or `/dev` to the inode. A call that does not follow links is the kernel's.
    ProcLink,
    /// By a foreign symbolic link to such a link.
    Symlink,
    /// By such a link of another process, which is not known.
    Unknown,
}

impl WeftPath {
    /// Creates a name from a normalized path from the root of the mount.
    pub fn at(text: Vec<u8>) -> Self {
        Self { text, base: None, must_dir: false, ends_in_dots: false, by: Named::Path }
    }

    /// Creates a name that a walk from `base` finds. The rest to walk begins at `start` in `text`.
    pub fn from_base(base: Base, text: Vec<u8>, start: usize) -> Self {
        Self { text, base: Some((base, start)), must_dir: false, ends_in_dots: false, by: Named::Path }
    }
}

/// Returns the mount prefix followed by `text`.
pub fn full(text: &[u8]) -> Vec<u8> {
    let mut out = config().mount.clone();
    if text != b"/" {
        out.extend_from_slice(text);
    }
    out
}

/// Destination of a path.
#[derive(Debug)]
pub enum Route {
    /// The kernel, with the path unchanged.
    Foreign,
    /// The kernel, with this path: the given one climbed out of the mount.
    Moved(CString),
    /// Weft.
    Ours(WeftPath),
    /// None: the directory at which the path starts cannot be reached.
    Failed(c_int),
}

/// Determines the destination of `path`, relative to `dir`. Does not allocate if the result is [`Route::Foreign`] and
/// no `..` leads lexically into the mount.
///
/// # Safety
/// `path` is null or a C string.
#[inline]
pub unsafe fn route(dir: c_int, path: *const c_char) -> Route {
    let Some(config) = config::ready() else { return Route::Foreign };
    if !memory::is_text(path) {
        return Route::Foreign;
    }
    let first = *path as u8;
    if first == b'/' {
        let second = *path.add(1) as u8;
        let mount = &config.mount;
        // The slow way compares the whole prefix; here one or two bytes decide most cases.
        let close = second == mount[1] && (mount.len() == 2 || *path.add(2) as u8 == mount[2]);
        // `/dev/fd/N`, `/proc/self/fd/N`
        let may_be_link = matches!(second, b'd' | b'p') && (table::any() || AWAY.load(Ordering::Relaxed));
        if !close && !may_be_link && second != b'/' && second != b'.' && !has_dots(path) {
            return Route::Foreign;
        }
        return absolute(path);
    }
    let from_ours = if dir == libc::AT_FDCWD { AWAY.load(Ordering::Relaxed) } else { table::is_ours(dir) };
    let may_be_link = table::any() && links::may_begin(CStr::from_ptr(path).to_bytes());
    if !(from_ours || may_be_link || first == b'.' || config.has_name_beginning_with(first) || has_dots(path))
    {
        return Route::Foreign;
    }
    relative(dir, path)
}

/// Whether the path contains `..`, as a component or within a name.
#[inline]
unsafe fn has_dots(path: *const c_char) -> bool {
    !libc::strstr(path, c"/..".as_ptr()).is_null()
}

unsafe fn absolute(path: *const c_char) -> Route {
    if guard::inside() {
        return Route::Foreign;
    }
    let bytes = CStr::from_ptr(path).to_bytes();
    // The kernel refuses such a path, wherever it leads.
    if bytes.len() >= libc::PATH_MAX as usize { Route::Foreign } else { absolute_bytes(bytes) }
}

fn absolute_bytes(bytes: &[u8]) -> Route {
    let mount = &config().mount;
    if let Some(rest) = pathname::below(mount, bytes) {
        return inside_mount(rest, bytes);
    }
    if let Some(link) = links::parse(bytes)
        && let Some(way) = behind_link(link, bytes)
    {
        return way;
    }
    // `//weft/x`, `/./weft/x`, `/tmp/../weft/x`
    if pathname::folds_below(mount, bytes) { from_foreign(b"/", bytes) } else { Route::Foreign }
}

/// Determines the destination of the path `bytes`, which leads through a link in `/proc` or `/dev`.
fn behind_link(link: Link<'_>, bytes: &[u8]) -> Option<Route> {
    let at = |open: &Open, text: Vec<u8>, rest: &[u8]| {
        if pathname::names(rest).next().is_some() {
            return from_directory(open, &text, rest);
        }
        let must_dir = pathname::wants_directory(bytes);
        match crate::serve::inside(|| open.weft_path()) {
            Ok(weft_path) => Route::Ours(WeftPath { must_dir, by: Named::ProcLink, ..weft_path }),
            Err(fail) => Route::Failed(fail.errno()),
        }
    };
    match link {
        Link::Descriptor(fd, rest) => {
            let open = table::get(fd).filter(|open| !open.is_host())?;
            Some(at(&open, open.path(), rest))
        }
        Link::Cwd(rest) => {
            let cwd = cwd()?;
            Some(at(&cwd.open, cwd.text(), rest))
        }
        Link::Root(rest) => {
            let below = pathname::below(&config().mount, rest)?;
            Some(inside_mount(below, bytes))
        }
        Link::Other => {
            let mut buffer = [0u8; libc::PATH_MAX as usize];
            let mut target = [0u8; 32];
            let len = sys::readlink_to(sys::copy_to(bytes, &mut buffer)?, &mut target)?;
            let is_ours = target[..len].starts_with(placeholder::TARGET);
            let way = WeftPath { by: Named::Unknown, ..WeftPath::at(b"/".to_vec()) };
            is_ours.then_some(Route::Ours(way))
        }
    }
}

/// Returns the destination of a foreign path that the kernel would follow to a placeholder or past the virtual working
/// directory, through a symbolic link.
///
/// # Safety
/// `path` is null or a C string.
pub unsafe fn through_symlink(dir: c_int, path: *const c_char) -> Option<Route> {
    if !table::any() || guard::inside() || !memory::is_text(path) {
        return None;
    }
    let errno = crate::errno::get();
    let found = links::behind_symlink(dir, CStr::from_ptr(path), absolute_bytes);
    crate::errno::set(errno);
    match found? {
        Route::Ours(weft_path) if weft_path.by == Named::ProcLink => {
            Some(Route::Ours(WeftPath { by: Named::Symlink, ..weft_path }))
        }
        // Another process's, or a name below an open directory.
        Route::Foreign => None,
        other => Some(other),
    }
}

/// Determines the destination of a path from the root of the mount.
fn inside_mount(rest: &[u8], as_written: &[u8]) -> Route {
    let must_dir = pathname::wants_directory(as_written);
    match pathname::tidy(rest) {
        Some(text) => {
            let ends_in_dots = must_dir && !as_written.ends_with(b"/");
            Route::Ours(WeftPath { must_dir, ends_in_dots, ..WeftPath::at(text) })
        }
        None => climb(rest, must_dir),
    }
}

/// Counts the nested calls of [`climb`] in this thread.
struct Climb;

impl Climb {
    /// Returns `None` if the kernel would not follow as many links.
    fn begin() -> Option<Self> {
        CLIMBS.set(CLIMBS.get() + 1);
        let climb = Self;
        (CLIMBS.get() <= 40).then_some(climb)
    }
}

impl Drop for Climb {
    fn drop(&mut self) {
        CLIMBS.set(CLIMBS.get() - 1);
    }
}

thread_local! {
    static CLIMBS: Cell<u32> = const { Cell::new(0) };
}

/// Determines the destination of a path that lexically climbs above the root of the mount. Links decide where `..`
/// leads, so the part before the climb is resolved first.
fn climb(rest: &[u8], must_dir: bool) -> Route {
    // Each link out of the mount leads here again.
    let Some(_depth) = Climb::begin() else { return Route::Failed(libc::ELOOP) };
    let mut text: Vec<u8> = Vec::new();
    let mut depth = 0usize;
    let mut todo = pathname::names(rest);
    while let Some(name) = todo.next() {
        if name != b".." || depth > 0 {
            depth = if name == b".." { depth - 1 } else { depth + 1 };
            text.push(b'/');
            text.extend_from_slice(name);
            continue;
        }
        let left = |to: &[u8]| {
            let mut path = to.to_vec();
            for name in todo.clone() {
                path.push(b'/');
                path.extend_from_slice(name);
            }
            if must_dir {
                path.push(b'/');
            }
            match absolute_bytes(&path) {
                Route::Foreign => Route::Moved(sys::c(&path)),
                other => other,
            }
        };
        if text.is_empty() {
            return left(&[pathname::split(&config().mount).0, b"/"].concat());
        }
        match crate::serve::inside(|| crate::hooks::resolved(&WeftPath::at(text.clone()))) {
            Ok(real) if real == b"/" => {
                return left(&[pathname::split(&config().mount).0, b"/"].concat());
            }
            Ok(real) => {
                text = pathname::split(&real).0.to_vec();
                if text == b"/" {
                    text.clear();
                }
                depth = pathname::names(&text).count();
            }
            Err(Fail::Moved(path)) => return left(&pathname::join(&path, b"..")),
            // The operation on it will fail, too.
            Err(_) => {
                text.extend_from_slice(b"/..");
                return Route::Ours(WeftPath { must_dir, ..WeftPath::at(text) });
            }
        }
    }
    if text.is_empty() {
        text.push(b'/');
    }
    Route::Ours(WeftPath { must_dir, ..WeftPath::at(text) })
}

unsafe fn relative(dir: c_int, path: *const c_char) -> Route {
    if guard::inside() {
        return Route::Foreign;
    }
    let bytes = CStr::from_ptr(path).to_bytes();
    // The kernel refuses both.
    if bytes.is_empty() || bytes.len() >= libc::PATH_MAX as usize {
        return Route::Foreign;
    }
    if dir == libc::AT_FDCWD {
        return match cwd() {
            Some(cwd) => from_directory(&cwd.open, &cwd.text(), bytes),
            None => relative_foreign(dir, bytes),
        };
    }
    match table::get(dir).filter(|open| !open.is_host()) {
        // As for its placeholder, the kernel reports that it is no directory, after errors that it finds before.
        Some(open) if !open.is_directory() => Route::Foreign,
        Some(open) => from_directory(&open, &open.path(), bytes),
        None => relative_foreign(dir, bytes),
    }
}

/// Determines the destination of `bytes` from an open directory, last known as `text`. The walk starts at its inode, so
/// that it is right even after the directory was renamed or moved.
fn from_directory(open: &Open, text: &[u8], bytes: &[u8]) -> Route {
    let base = match open.directory_base() {
        Ok(base) => base,
        Err(fail) => return Route::Failed(fail.errno()),
    };
    let mut joined = if text == b"/" { Vec::new() } else { text.to_vec() };
    let start = joined.len();
    for name in pathname::names(bytes) {
        joined.push(b'/');
        joined.extend_from_slice(name);
    }
    if joined.is_empty() {
        joined.push(b'/');
    }
    let must_dir = pathname::wants_directory(bytes);
    Route::Ours(WeftPath { must_dir, ..WeftPath::from_base(base, joined, start) })
}

/// Determines the destination of a relative path from a foreign directory, which may descend or climb into the mount.
fn relative_foreign(dir: c_int, bytes: &[u8]) -> Route {
    let mount = &config().mount;
    if table::any() && links::may_begin(bytes) {
        let mut buffer = [0u8; libc::PATH_MAX as usize];
        if let Some(absolute) = links::absolute(dir, bytes, &mut buffer)
            && let Some(link) = links::parse(absolute)
            && let Some(way) = behind_link(link, absolute)
        {
            return way;
        }
    }
    let mut names = pathname::names(bytes);
    let enters = names.next().is_some_and(|first| pathname::names(mount).any(|name| name == first));
    if !enters && pathname::names(bytes).all(|name| name != b"..") {
        return Route::Foreign;
    }
    let mut buffer = [0u8; libc::PATH_MAX as usize];
    let Some(from) = sys::directory_path(dir, &mut buffer) else { return Route::Foreign };
    if !pathname::leads_below(mount, [from, bytes])
        && !alias().is_some_and(|alias| pathname::leads_below(alias, [from, bytes]))
    {
        return Route::Foreign;
    }
    from_foreign(from, bytes)
}

/// Determines the destination of a path from the foreign directory `from` that lexically leads into the mount. The
/// kernel resolves a `..` after a foreign name, because that name may be a link.
fn from_foreign(from: &[u8], bytes: &[u8]) -> Route {
    let mount = &config().mount;
    let is_above = |path: &[u8]| pathname::below(path, mount).is_some() || path.is_empty();
    let is_mount = |path: &[u8]| path == &mount[..] || alias().is_some_and(|alias| path == alias);
    let mut at = pathname::fold(from);
    if at == b"/" {
        at.clear();
    }
    let mut rest = bytes;
    loop {
        while let Some(shorter) = rest.strip_prefix(b"/") {
            rest = shorter;
        }
        if rest.is_empty() {
            return Route::Foreign;
        }
        let len = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
        let name = &rest[..len];
        rest = &rest[len..];
        if name == b".." {
            if !is_above(&at) {
                let Some(real) = sys::real_directory(&sys::c(&at)) else { return Route::Foreign };
                at = real;
            }
            let parent = at.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
            at.truncate(parent);
        } else if name != b"." {
            at.push(b'/');
            at.extend_from_slice(name);
            if is_mount(&at) {
                return inside_mount(rest, bytes);
            }
        }
    }
}

/// Returns the mount prefix as the kernel names it, if a directory above the mount is reached through a link.
fn alias() -> Option<&'static [u8]> {
    static ALIAS: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    let found = ALIAS.get_or_init(|| {
        let mount = &config().mount;
        let mut above = pathname::split(mount).0;
        while above != b"/" {
            if let Some(real) = sys::real_directory(&sys::c(above)) {
                let alias = pathname::join(&real, &mount[above.len()..]);
                return (alias != *mount).then_some(alias);
            }
            above = pathname::split(above).0;
        }
        None
    });
    found.as_deref()
}

/// After the kernel has found nothing at `path`: returns the destination if a foreign symbolic link on the way leads
/// into the mount.
///
/// # Safety
/// `path` is null or a C string.
#[cold]
pub unsafe fn follow_foreign(dir: c_int, path: *const c_char) -> Option<Route> {
    if guard::inside() || !memory::is_text(path) {
        return None;
    }
    let errno = crate::errno::get();
    let found = find_foreign_link(dir, CStr::from_ptr(path));
    crate::errno::set(errno);
    found
}

fn find_foreign_link(dir: c_int, path: &CStr) -> Option<Route> {
    let text = path;
    let path = text.to_bytes();
    // The usual case, a missing name in an existing directory, ends here after one or two system calls.
    if path.is_empty() || sys::is_no_link(dir, text) && parent_exists(dir, path) {
        return None;
    }
    // Nothing has been allocated up to here, nor is anything for a missing directory without a link before it.
    if sys::is_no_link(dir, text) && first_missing(dir, path).is_some_and(|(_, is_link)| !is_link) {
        return below_link_above(dir, path);
    }
    let mut path = path.to_vec();
    // As many links as the kernel would follow.
    for _ in 0..40 {
        let (parent, _) = pathname::split(&path);
        let link = match sys::readlinkat(dir, &sys::c(&path)) {
            Ok(target) => (target, path.len()),
            Err(libc::ENOENT) if sys::fstatat(dir, &sys::c(parent), 0).is_err() => {
                let (end, _) = first_missing(dir, &path)?;
                (sys::readlinkat(dir, &sys::c(&path[..end])).ok()?, end)
            }
            Err(_) => return None,
        };
        let (target, end) = link;
        let before = pathname::split(&path[..end]).0.to_vec();
        let rest = path[end..].to_vec();
        path = if target.starts_with(b"/") { target } else { pathname::join(&before, &target) };
        path.extend_from_slice(&rest);
        if path.starts_with(b"/") {
            let folded = pathname::fold(&path);
            if let Some(rest) = pathname::below(&config().mount, &folded) {
                return Some(inside_mount(rest, &path));
            }
        }
    }
    None
}

/// Handles a path on which a directory is missing: it leads into the mount if the last existing directory is above the
/// mount and was reached through a link (`/tmp/link-to-root/weft/x`).
fn below_link_above(dir: c_int, path: &[u8]) -> Option<Route> {
    let (end, _) = first_missing(dir, path)?;
    let (before, name) = pathname::split(&path[..end]);
    let mount = &config().mount;
    if !pathname::names(mount).any(|part| part == name) {
        return None;
    }
    let mut buffer = [0u8; libc::PATH_MAX as usize];
    let text = sys::copy_to(before, &mut buffer)?;
    let opened = sys::open_directory(dir, text)?;
    let mut buffer = [0u8; libc::PATH_MAX as usize];
    let real = sys::directory_path(opened, &mut buffer);
    sys::close(opened);
    let (real, rest) = (real?, &path[before.len()..]);
    pathname::leads_below(mount, [real, rest]).then(|| from_foreign(real, rest))
}

/// Whether the directory of `path` exists. Programs look up many names in few directories, so recently found
/// directories are remembered. One that was removed since contains no link into the mount either.
fn parent_exists(dir: c_int, path: &[u8]) -> bool {
    static SEEN: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
    let parent = pathname::split(path).0;
    let absolute = parent.starts_with(b"/");
    let hash = parent.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let seen = &SEEN[(hash >> 58) as usize];
    if absolute && seen.load(Ordering::Relaxed) == hash {
        return true;
    }
    let mut buffer = [0u8; libc::PATH_MAX as usize];
    let exists = sys::copy_to(parent, &mut buffer).is_some_and(|parent| sys::exists(dir, parent));
    if exists && absolute {
        seen.store(hash, Ordering::Relaxed);
    }
    exists
}

/// Returns where in `path` the name of the first missing directory ends, and whether that name is a link. Does not
/// allocate.
fn first_missing(dir: c_int, path: &[u8]) -> Option<(usize, bool)> {
    let mut buffer = [0u8; libc::PATH_MAX as usize];
    let ends = (1..path.len()).filter(|&at| path[at] == b'/' && path[at - 1] != b'/');
    for end in ends {
        let prefix = sys::copy_to(&path[..end], &mut buffer)?;
        if sys::fstatat(dir, prefix, 0).is_err() {
            return Some((end, !sys::is_no_link(dir, prefix)));
        }
    }
    None
}

/// Working directory in Weft; the kernel's stays unchanged.
pub struct Cwd {
    /// The directory, open only as a place for walks.
    pub open: Open,
    /// Path from the root of the mount at which it was last seen, without links.
    text: Lock<Vec<u8>>,
}

impl Cwd {
    /// Creates a working directory.
    pub fn new(open: Open, text: Vec<u8>) -> Self {
        Self { open, text: Lock::new(text) }
    }

    /// Returns the path at which the directory was last seen.
    pub fn text(&self) -> Vec<u8> {
        self.text.lock().clone()
    }

    /// Notes the path at which the directory was seen.
    pub fn note_text(&self, text: &[u8]) {
        text.clone_into(&mut self.text.lock());
    }
}

static AWAY: AtomicBool = AtomicBool::new(false);
static CWD: Lock<Option<Arc<Cwd>>> = Lock::new(None);

/// Returns the working directory if it is in Weft.
pub fn cwd() -> Option<Arc<Cwd>> {
    if AWAY.load(Ordering::Acquire) { CWD.lock().clone() } else { None }
}

/// Sets the working directory; `None` returns it to the kernel.
pub fn set_cwd(to: Option<Cwd>) {
    let to = to.map(Arc::new);
    AWAY.store(to.is_some(), Ordering::Release);
    let before = std::mem::replace(&mut *CWD.lock(), to);
    // Closes the directory, after the lock is released.
    drop(before);
}

/// Resets the locks in a forked child, where only the forking thread exists: another thread may have held them.
pub fn after_fork_in_child() {
    // SAFETY: the holder does not exist in this process, and the values are replaced as a whole.
    unsafe { CWD.reset() };
    if let Some(cwd) = cwd() {
        // SAFETY: as above.
        unsafe { cwd.text.reset() };
        cwd.open.after_fork_in_child();
    }
}
