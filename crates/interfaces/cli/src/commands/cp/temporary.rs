//! Temporary names for the files of a copy, in the directories of their final names. A failed or interrupted copy
//! leaves nothing under a final name, and an old file stays until the new one is complete.

use super::Copy;
use super::copy_path::{CopyPath, ExistingFile, above, below, inode_path};
use crate::commands::session::{join, why};
use crate::commands::{bytes, posix, stripe};
use crate::failure::Failure;
use crate::signals::{self, Blocked};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use weft_client::Client;
use weft_core::COMPRESSION_ATTRIBUTE;
use weft_env::real::{RealEnv, block_on};
use weft_wire::meta::{FileType, LayoutSpec, RuledDirectory, SetAttr};

/// Maximum number of symbolic links followed, the limit of Linux.
const LINKS_MAX: usize = 40;
/// Permission bits that an old file passes on to its replacement. Set-id bits are not among them.
const KEPT_MODE: u32 = 0o1777;

/// The temporary files of this process.
#[derive(Clone, Default)]
pub(super) struct Temporaries(Arc<Mutex<Vec<CopyPath>>>);

impl Temporaries {
    /// Removes all temporary files and ends the process on SIGINT, SIGTERM and SIGHUP. A second signal ends it at once.
    pub(super) fn remove_on_signals(&self, client: &Client<RealEnv>) {
        let wanted = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
        // Signals that were ignored at the start, for example by nohup, stay ignored.
        let wanted: Vec<_> = wanted.into_iter().filter(|signal| !signals::is_ignored(*signal)).collect();
        if wanted.is_empty() {
            return;
        }
        let signals = Blocked::new(&wanted);
        let (these, client) = (self.clone(), client.clone());
        std::thread::spawn(move || {
            let number = signals.wait().number;
            signals.unblock();
            // Held until the process ends, so that no copy gets its final name or begins during the removal.
            let mut all = these.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.drain(..).for_each(|temporary| remove(&client, &temporary));
            std::process::exit(128 + number);
        });
    }

    fn begin(&self, location: &CopyPath) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(location.clone());
    }

    /// Calls `rename` and removes the file from the list, without a signal in between.
    fn end<T>(&self, location: &CopyPath, rename: impl FnOnce() -> T) -> T {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let done = rename();
        all.retain(|other| !is_same(other, location));
        done
    }
}

fn is_same(a: &CopyPath, b: &CopyPath) -> bool {
    match (a, b) {
        (CopyPath::Weft(a), CopyPath::Weft(b)) => a == b,
        (CopyPath::Local(a), CopyPath::Local(b)) => a == b,
        _ => false,
    }
}

fn remove(client: &Client<RealEnv>, location: &CopyPath) {
    // A file that cannot be removed has a name that identifies it.
    match location {
        CopyPath::Weft(path) => drop(block_on(client.unlink(&inode_path(path, false)))),
        CopyPath::Local(path) => drop(std::fs::remove_file(path)),
    }
}

/// A temporary file that receives the bytes of a copy.
pub(super) struct TemporaryFile<'a> {
    copy: &'a Copy<'a>,
    /// Path of the temporary file.
    pub(super) location: CopyPath,
    to: CopyPath,
    named: bool,
}

impl TemporaryFile<'_> {
    /// Renames the temporary file to its final name and replaces an existing file.
    pub(super) fn name(mut self) -> Result<(), Failure> {
        let (copy, to) = (self.copy, &self.to);
        copy.temporaries.end(&self.location, || match (&self.location, to) {
            (CopyPath::Weft(from), CopyPath::Weft(name)) => block_on(copy.weft.client.rename(
                &inode_path(from, false),
                &inode_path(name, false),
                false,
                false,
            ))
            .map_err(|error| Failure::new(copy.shown(to), why(&error))),
            (CopyPath::Local(from), CopyPath::Local(name)) => {
                std::fs::rename(from, name).map_err(|error| copy.local(name, &error))
            }
            _ => unreachable!("both are in one directory"),
        })?;
        self.named = true;
        Ok(())
    }
}

impl Drop for TemporaryFile<'_> {
    fn drop(&mut self) {
        if !self.named {
            self.copy.temporaries.end(&self.location, || remove(&self.copy.weft.client, &self.location));
        }
    }
}

impl<'a> Copy<'a> {
    /// Returns an unused temporary name in the directory of `to`.
    pub(super) fn temporary(&'a self, to: CopyPath) -> TemporaryFile<'a> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let dir = above(&to).unwrap_or_else(|| to.clone());
        let mut random = [0; 8];
        weft_env::Env::random(&RealEnv::new(), &mut random);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let location = below(&dir, &format!(".weft-cp.{:016x}.{number}", u64::from_le_bytes(random)));
        self.temporaries.begin(&location);
        TemporaryFile { copy: self, location, to, named: false }
    }

    /// Returns the final path of a file written to `to`, after following symbolic links. Returns `None` if the file
    /// must be written in place: devices, pipes, files with several names, and files of other users.
    pub(super) fn replaced(
        &self,
        to: &CopyPath,
        there: Option<&ExistingFile>,
    ) -> Result<Option<CopyPath>, Failure> {
        let is_special = |path: &Path| path.starts_with("/dev") || path.starts_with("/proc");
        if matches!(to, CopyPath::Local(path) if std::path::absolute(path).is_ok_and(|path| is_special(&path)))
        {
            return Ok(None);
        }
        // SAFETY: geteuid has no preconditions and cannot fail.
        let user = unsafe { libc::geteuid() };
        let may_replace = |old: &ExistingFile| {
            old.kind == FileType::Regular && old.links == 1 && (user == 0 || old.uid == user)
        };
        if !there.is_none_or(may_replace) {
            return Ok(None);
        }
        let mut real = to.clone();
        for _ in 0..LINKS_MAX {
            match self.look_at(&real, false)? {
                Some(found) if found.kind == FileType::Symlink => real = self.led_to(&real)?,
                _ => return Ok(Some(real)),
            }
        }
        Err(Failure::new(self.shown(to), posix(libc::ELOOP)))
    }

    /// Returns the target of the symbolic link at `location`.
    fn led_to(&self, location: &CopyPath) -> Result<CopyPath, Failure> {
        let dir = above(location);
        match (location, dir) {
            (CopyPath::Weft(path), Some(CopyPath::Weft(dir))) => {
                let target = block_on(self.weft.client.readlink(&inode_path(path, false)))
                    .map_err(|error| Failure::new(self.shown(location), why(&error)))?;
                let target = bytes::text(&target);
                match (target.starts_with('/'), self.weft.strip(&target)) {
                    (false, _) => Ok(CopyPath::Weft(join(&dir, &target))),
                    (true, Some(inside)) => Ok(CopyPath::Weft(inside.trim_end_matches('/').to_owned())),
                    (true, None) => {
                        let why = format!("it is a symbolic link to {target}, outside of Weft");
                        Err(Failure::new(self.shown(location), why))
                    }
                }
            }
            (CopyPath::Local(path), Some(CopyPath::Local(dir))) => {
                let target = std::fs::read_link(path).map_err(|error| self.local(path, &error))?;
                Ok(CopyPath::Local(dir.join(target)))
            }
            _ => Err(Failure::new(self.shown(location), posix(libc::EINVAL))),
        }
    }

    /// Returns the layout and compression that a file with the final name would get: those of the old file, or of the
    /// rule for the name.
    /// The temporary name may not match the rule. Without either, the directory's default applies.
    pub(super) fn layout_of(&self, to: &CopyPath, replaces: bool) -> Result<LayoutSpec, Failure> {
        let CopyPath::Weft(path) = to else { return Ok(LayoutSpec::default()) };
        if replaces {
            let (layout, _) =
                self.weft.at(path, false, |place| block_on(self.weft.client.get_layout(place)))?;
            let spec = layout.map_or_else(LayoutSpec::default, |layout| LayoutSpec::exactly(&layout));
            let setting = stripe::setting(self.weft, path, COMPRESSION_ATTRIBUTE)?;
            let compression = setting.and_then(|setting| setting.parse().ok());
            return Ok(LayoutSpec { compression, ..spec });
        }
        let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
        let parts = path.split('/').filter(|part| !part.is_empty() && *part != ".");
        let whole = bytes::bytes(&parts.collect::<Vec<_>>().join("/"));
        for directory in &*self.rules_of(dir)? {
            // A path that was reached by a link has other rules. These see the temporary name.
            let Some(rest) = whole.strip_prefix(&directory.path[..]) else { continue };
            let rest = rest.strip_prefix(b"/").unwrap_or(rest);
            if let Some(rule) = directory.rules.iter().find(|rule| rule.pattern.matches(rest)) {
                return Ok(rule.layout.clone());
            }
        }
        Ok(LayoutSpec::default())
    }

    /// Returns the rules for files in a directory. The rules of the last directory are cached.
    fn rules_of(&self, dir: &str) -> Result<Arc<Vec<RuledDirectory>>, Failure> {
        let mut last = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, rules)) = &*last
            && of == dir
        {
            return Ok(Arc::clone(rules));
        }
        let rules = Arc::new(self.weft.at(dir, true, |place| block_on(self.weft.client.rules(place)))?);
        *last = Some((dir.to_owned(), Arc::clone(&rules)));
        Ok(rules)
    }

    /// Gives the temporary file the permissions and owners of the file that it replaces.
    pub(super) fn pass_on(&self, location: &CopyPath, old: &ExistingFile) -> Result<(), Failure> {
        // SAFETY: geteuid has no preconditions and cannot fail.
        let root = unsafe { libc::geteuid() } == 0;
        let mode = old.mode & KEPT_MODE;
        match location {
            CopyPath::Weft(path) => {
                let set = SetAttr {
                    mode: Some(mode),
                    uid: root.then_some(old.uid),
                    gid: Some(old.gid),
                    ..SetAttr::default()
                };
                block_on(self.weft.client.set_attr(&inode_path(path, false), set))
                    .map(drop)
                    .map_err(|error| Failure::new(self.shown(location), why(&error)))
            }
            CopyPath::Local(path) => {
                let io = |error: std::io::Error| self.local(path, &error);
                std::os::unix::fs::chown(path, root.then_some(old.uid), Some(old.gid)).map_err(io)?;
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(io)
            }
        }
    }

    /// Creates a symbolic link.
    pub(super) fn make_link(&self, location: &CopyPath, target: &[u8]) -> Result<(), Failure> {
        match location {
            CopyPath::Weft(path) => block_on(self.weft.client.symlink(&inode_path(path, false), target))
                .map(drop)
                .map_err(|error| Failure::new(self.shown(location), why(&error))),
            CopyPath::Local(path) => {
                let target = PathBuf::from(std::ffi::OsString::from_vec(target.to_vec()));
                std::os::unix::fs::symlink(target, path).map_err(|error| self.local(path, &error))
            }
        }
    }
}
