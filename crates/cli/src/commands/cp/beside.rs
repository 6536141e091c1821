//! The files of a copy under temporary names beside their final ones, so that a copy that fails or is interrupted leaves
//! nothing under a final name, and what was there stays until the new file is complete.

use super::Copy;
use super::side::{Found, Side, above, below, place};
use crate::commands::session::{join, why};
use crate::commands::{bytes, posix};
use crate::failure::Failure;
use crate::signals::{self, Blocked};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use weft_client::Client;
use weft_env::real::{RealEnv, block_on};
use weft_wire::meta::{FileType, LayoutSpec, RuledDirectory, SetAttr};

/// Links followed before a path is taken for a loop, as Linux has it.
const LINKS_MAX: usize = 40;
/// Permission bits that an old file passes on to the one that takes its name: none that make it run as somebody else.
const KEPT_MODE: u32 = 0o1777;

/// The temporary files of this process.
#[derive(Clone, Default)]
pub(super) struct Temporaries(Arc<Mutex<Vec<Side>>>);

impl Temporaries {
    /// On SIGINT, SIGTERM and SIGHUP all of them are removed, and the process ends. A second signal ends it at once.
    pub(super) fn remove_on_signals(&self, client: &Client<RealEnv>) {
        let wanted = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
        // What a program like nohup ignores stays ignored.
        let wanted: Vec<_> = wanted.into_iter().filter(|signal| !signals::is_ignored(*signal)).collect();
        if wanted.is_empty() {
            return;
        }
        let signals = Blocked::new(&wanted);
        let (these, client) = (self.clone(), client.clone());
        std::thread::spawn(move || {
            let number = signals.wait().number;
            signals.unblock();
            // Held until the end: no copy that goes on meanwhile gets its final name half removed, or begins.
            let mut all = these.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.drain(..).for_each(|temporary| remove(&client, &temporary));
            std::process::exit(128 + number);
        });
    }

    fn begin(&self, side: &Side) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(side.clone());
    }

    /// Does `rename` and takes the file from the list, without a signal in between.
    fn end<T>(&self, side: &Side, rename: impl FnOnce() -> T) -> T {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let done = rename();
        all.retain(|other| !is_same(other, side));
        done
    }
}

fn is_same(a: &Side, b: &Side) -> bool {
    match (a, b) {
        (Side::Weft(a), Side::Weft(b)) => a == b,
        (Side::Local(a), Side::Local(b)) => a == b,
        _ => false,
    }
}

fn remove(client: &Client<RealEnv>, side: &Side) {
    // What cannot be removed has a name that says what it is.
    match side {
        Side::Weft(path) => drop(block_on(client.unlink(&place(path, false)))),
        Side::Local(path) => drop(std::fs::remove_file(path)),
    }
}

/// Where the bytes of a copy go first.
pub(super) struct Beside<'a> {
    copy: &'a Copy<'a>,
    /// The temporary file.
    pub(super) side: Side,
    to: Side,
    named: bool,
}

impl Beside<'_> {
    /// Gives the temporary file its final name, in the place of what has that name.
    pub(super) fn name(mut self) -> Result<(), Failure> {
        let (copy, to) = (self.copy, &self.to);
        copy.temporaries.end(&self.side, || match (&self.side, to) {
            (Side::Weft(from), Side::Weft(name)) => {
                block_on(copy.weft.client.rename(&place(from, false), &place(name, false), false, false))
                    .map_err(|error| Failure::new(copy.shown(to), why(&error)))
            }
            (Side::Local(from), Side::Local(name)) => {
                std::fs::rename(from, name).map_err(|error| copy.local(name, &error))
            }
            _ => unreachable!("both are in one directory"),
        })?;
        self.named = true;
        Ok(())
    }
}

impl Drop for Beside<'_> {
    fn drop(&mut self) {
        if !self.named {
            self.copy.temporaries.end(&self.side, || remove(&self.copy.weft.client, &self.side));
        }
    }
}

impl<'a> Copy<'a> {
    /// A name for a temporary file in the directory of `to`, which nobody has.
    pub(super) fn beside(&'a self, to: Side) -> Beside<'a> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let dir = above(&to).unwrap_or_else(|| to.clone());
        let mut random = [0; 8];
        weft_env::Env::random(&RealEnv::new(), &mut random);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let side = below(&dir, &format!(".weft-cp.{:016x}.{number}", u64::from_le_bytes(random)));
        self.temporaries.begin(&side);
        Beside { copy: self, side, to, named: false }
    }

    /// The name that a file written to `to` gets, links at its end followed, and what the old file there has to pass on;
    /// `None` where it is to be written in place: devices and pipes, files with several names, and those of other users.
    pub(super) fn replaced(&self, to: &Side, there: Option<&Found>) -> Result<Option<Side>, Failure> {
        let is_special = |path: &Path| path.starts_with("/dev") || path.starts_with("/proc");
        if matches!(to, Side::Local(path) if std::path::absolute(path).is_ok_and(|path| is_special(&path))) {
            return Ok(None);
        }
        // SAFETY: geteuid has no preconditions and cannot fail.
        let user = unsafe { libc::geteuid() };
        let may_replace =
            |old: &Found| old.kind == FileType::Regular && old.links == 1 && (user == 0 || old.uid == user);
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

    /// Where the symbolic link at `side` leads.
    fn led_to(&self, side: &Side) -> Result<Side, Failure> {
        let dir = above(side);
        match (side, dir) {
            (Side::Weft(path), Some(Side::Weft(dir))) => {
                let target = block_on(self.weft.client.readlink(&place(path, false)))
                    .map_err(|error| Failure::new(self.shown(side), why(&error)))?;
                let target = bytes::text(&target);
                match (target.starts_with('/'), self.weft.strip(&target)) {
                    (false, _) => Ok(Side::Weft(join(&dir, &target))),
                    (true, Some(inside)) => Ok(Side::Weft(inside.trim_end_matches('/').to_owned())),
                    (true, None) => {
                        let why = format!("it is a symbolic link to {target}, outside of Weft");
                        Err(Failure::new(self.shown(side), why))
                    }
                }
            }
            (Side::Local(path), Some(Side::Local(dir))) => {
                let target = std::fs::read_link(path).map_err(|error| self.local(path, &error))?;
                Ok(Side::Local(dir.join(target)))
            }
            _ => Err(Failure::new(self.shown(side), posix(libc::EINVAL))),
        }
    }

    /// The layout that a file with the final name would get: that of the old file, or of the rule for the name, which may
    /// not fit the temporary one. Without either it is what the directory says for all.
    pub(super) fn layout_of(&self, to: &Side, replaces: bool) -> Result<LayoutSpec, Failure> {
        let Side::Weft(path) = to else { return Ok(LayoutSpec::default()) };
        if replaces {
            let (layout, _) =
                self.weft.at(path, false, |place| block_on(self.weft.client.get_layout(place)))?;
            return Ok(layout.map_or_else(LayoutSpec::default, |layout| LayoutSpec::exactly(&layout)));
        }
        let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
        let parts = path.split('/').filter(|part| !part.is_empty() && *part != ".");
        let whole = bytes::bytes(&parts.collect::<Vec<_>>().join("/"));
        for directory in &*self.rules_of(dir)? {
            // Where a link leads here the rules are those of another path, which decide by the temporary name.
            let Some(rest) = whole.strip_prefix(&directory.path[..]) else { continue };
            let rest = rest.strip_prefix(b"/").unwrap_or(rest);
            if let Some(rule) = directory.rules.iter().find(|rule| rule.pattern.matches(rest)) {
                return Ok(rule.layout.clone());
            }
        }
        Ok(LayoutSpec::default())
    }

    /// The rules for files in a directory, asked for once as long as the directory stays the same.
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
    pub(super) fn pass_on(&self, side: &Side, old: &Found) -> Result<(), Failure> {
        // SAFETY: geteuid has no preconditions and cannot fail.
        let root = unsafe { libc::geteuid() } == 0;
        let mode = old.mode & KEPT_MODE;
        match side {
            Side::Weft(path) => {
                let set = SetAttr {
                    mode: Some(mode),
                    uid: root.then_some(old.uid),
                    gid: Some(old.gid),
                    ..SetAttr::default()
                };
                block_on(self.weft.client.set_attr(&place(path, false), set))
                    .map(drop)
                    .map_err(|error| Failure::new(self.shown(side), why(&error)))
            }
            Side::Local(path) => {
                let io = |error: std::io::Error| self.local(path, &error);
                std::os::unix::fs::chown(path, root.then_some(old.uid), Some(old.gid)).map_err(io)?;
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(io)
            }
        }
    }

    /// Makes a symbolic link.
    pub(super) fn make_link(&self, side: &Side, target: &[u8]) -> Result<(), Failure> {
        match side {
            Side::Weft(path) => block_on(self.weft.client.symlink(&place(path, false), target))
                .map(drop)
                .map_err(|error| Failure::new(self.shown(side), why(&error))),
            Side::Local(path) => {
                let target = PathBuf::from(std::ffi::OsString::from_vec(target.to_vec()));
                std::os::unix::fs::symlink(target, path).map_err(|error| self.local(path, &error))
            }
        }
    }
}
