//! Temporary names for the files of a copy, in the directories of their final names. A failed or interrupted copy
//! leaves nothing under a final name, and an old file stays until the new one is complete.

use super::Copy;
use super::copy_path::{ExistingFile, above, below, inside, on_host, on_weft};
use crate::commands::session::join;
use crate::commands::{bytes, posix, stripe};
use crate::failure::Failure;
use crate::signals::{self, Blocked};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use weft_client::{FileSystem, HostOrWeftFs, HostOrWeftPath, HostPath};
use weft_core::COMPRESSION_ATTRIBUTE;
use weft_env::real::{RealEnv, block_on};
use weft_wire::meta::{FileType, LayoutSpec, RuledDirectory, SetAttr};

/// Maximum number of symbolic links followed, the limit of Linux.
const LINKS_MAX: usize = 40;
/// Permission bits that an old file passes on to its replacement. Set-id bits are not among them.
const KEPT_MODE: u32 = 0o1777;

/// The temporary files of this process.
#[derive(Clone, Default)]
pub(super) struct Temporaries(Arc<Mutex<Vec<HostOrWeftPath>>>);

impl Temporaries {
    /// Removes all temporary files and ends the process on SIGINT, SIGTERM and SIGHUP. A second signal ends it at once.
    pub(super) fn remove_on_signals(&self, files: &HostOrWeftFs) {
        let wanted = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
        // Signals that were ignored at the start, for example by nohup, stay ignored.
        let wanted: Vec<_> = wanted.into_iter().filter(|signal| !signals::is_ignored(*signal)).collect();
        if wanted.is_empty() {
            return;
        }
        let signals = Blocked::new(&wanted);
        let (these, files) = (self.clone(), files.clone());
        std::thread::spawn(move || {
            let number = signals.wait().number;
            signals.unblock();
            // Held until the process ends, so that no copy gets its final name or begins during the removal.
            let mut all = these.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.drain(..).for_each(|temporary| remove(&files, &temporary));
            std::process::exit(128 + number);
        });
    }

    fn begin(&self, location: &HostOrWeftPath) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(location.clone());
    }

    /// Calls `rename` and removes the file from the list, without a signal in between.
    fn end<T>(&self, location: &HostOrWeftPath, rename: impl FnOnce() -> T) -> T {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let done = rename();
        all.retain(|other| other != location);
        done
    }
}

fn remove(files: &HostOrWeftFs, location: &HostOrWeftPath) {
    // A file that cannot be removed has a name that identifies it.
    drop(block_on(files.unlink(&location.following(false))));
}

/// A temporary file that receives the bytes of a copy.
pub(super) struct TemporaryFile<'a> {
    copy: &'a Copy<'a>,
    /// Path of the temporary file.
    pub(super) location: HostOrWeftPath,
    to: HostOrWeftPath,
    named: bool,
}

impl TemporaryFile<'_> {
    /// Renames the temporary file to its final name and replaces an existing file.
    pub(super) fn name(mut self) -> Result<(), Failure> {
        let (copy, to) = (self.copy, &self.to);
        let (from, name) = (self.location.following(false), to.following(false));
        let renamed = copy.temporaries.end(&self.location, || block_on(copy.files.rename(&from, &name)));
        renamed.map_err(|error| copy.failure(to, &error))?;
        self.named = true;
        Ok(())
    }
}

impl Drop for TemporaryFile<'_> {
    fn drop(&mut self) {
        if !self.named {
            self.copy.temporaries.end(&self.location, || remove(&self.copy.files, &self.location));
        }
    }
}

impl<'a> Copy<'a> {
    /// Returns an unused temporary name in the directory of `to`.
    pub(super) fn temporary(&'a self, to: HostOrWeftPath) -> TemporaryFile<'a> {
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
        to: &HostOrWeftPath,
        there: Option<&ExistingFile>,
    ) -> Result<Option<HostOrWeftPath>, Failure> {
        let is_special = |path: &Path| path.starts_with("/dev") || path.starts_with("/proc");
        if let HostOrWeftPath::Host(HostPath { path, .. }) = to
            && std::path::absolute(path).is_ok_and(|path| is_special(&path))
        {
            return Ok(None);
        }
        // SAFETY: geteuid has no preconditions and cannot fail.
        let user = unsafe { libc::geteuid() };
        let may_replace = |old: &ExistingFile| {
            let old = &old.attr;
            old.kind == FileType::Regular && old.nlink == 1 && (user == 0 || old.uid == user)
        };
        if !there.is_none_or(may_replace) {
            return Ok(None);
        }
        let mut real = to.clone();
        for _ in 0..LINKS_MAX {
            match self.look_at(&real, false)? {
                Some(found) if found.attr.kind == FileType::Symlink => real = self.led_to(&real)?,
                _ => return Ok(Some(real)),
            }
        }
        Err(Failure::new(self.shown(to), posix(libc::ELOOP)))
    }

    /// Returns the path to which the symbolic link at `location` leads.
    fn led_to(&self, location: &HostOrWeftPath) -> Result<HostOrWeftPath, Failure> {
        let target = self.readlink(location)?;
        match (location, above(location)) {
            (HostOrWeftPath::Weft(_), Some(HostOrWeftPath::Weft(dir))) => {
                let target = bytes::text(&target);
                match (target.starts_with('/'), self.weft.strip(&target)) {
                    (false, _) => Ok(on_weft(&join(&inside(&dir), &target))),
                    (true, Some(inside)) => Ok(on_weft(inside.trim_end_matches('/'))),
                    (true, None) => {
                        let why = format!("it is a symbolic link to {target}, outside of Weft");
                        Err(Failure::new(self.shown(location), why))
                    }
                }
            }
            (HostOrWeftPath::Host(_), Some(HostOrWeftPath::Host(dir))) => {
                Ok(on_host(dir.path.join(OsString::from_vec(target))))
            }
            _ => Err(Failure::new(self.shown(location), posix(libc::EINVAL))),
        }
    }

    /// Returns the target of a symbolic link.
    pub(super) fn readlink(&self, location: &HostOrWeftPath) -> Result<Vec<u8>, Failure> {
        let read = block_on(self.files.readlink(&location.following(false)));
        read.map_err(|error| self.failure(location, &error))
    }

    /// Returns the layout and compression that a file with the final name would get: those of the old file, or of the
    /// rule for the name.
    /// The temporary name may not match the rule. Without either, the directory's default applies.
    pub(super) fn layout_of(&self, to: &HostOrWeftPath, replaces: bool) -> Result<LayoutSpec, Failure> {
        let HostOrWeftPath::Weft(at) = to else { return Ok(LayoutSpec::default()) };
        let path = &inside(at);
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
        // A path that was reached by a link has other rules. These see the temporary name.
        if let Some(rule) = RuledDirectory::rule_for(&self.rules_of(dir)?, &whole) {
            return Ok(rule.layout.clone());
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
    pub(super) fn pass_on(&self, location: &HostOrWeftPath, old: &ExistingFile) -> Result<(), Failure> {
        // SAFETY: geteuid has no preconditions and cannot fail.
        let root = unsafe { libc::geteuid() } == 0;
        let old = &old.attr;
        let set = SetAttr {
            mode: Some(old.mode & KEPT_MODE),
            uid: root.then_some(old.uid),
            gid: Some(old.gid),
            ..SetAttr::default()
        };
        self.set_attr(&location.following(false), set)
    }

    /// Creates a symbolic link.
    pub(super) fn make_link(&self, location: &HostOrWeftPath, target: &[u8]) -> Result<(), Failure> {
        let made = block_on(self.files.symlink(&location.following(false), target));
        made.map_err(|error| self.failure(location, &error))
    }
}
