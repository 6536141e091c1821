//! `weft cp`: copies between the local file system and Weft, or within Weft.

mod content;
mod copy_path;
mod progress;
mod temporary;

use super::session::Weft;
use super::{bytes, posix};
use crate::failure::Failure;
use clap::Args;
use content::Open;
use copy_path::{ExistingFile, Id, above, below, name, on_host, on_weft};
use indicatif::ProgressBar;
pub use progress::bar;
use temporary::Temporaries;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use weft_client::{FileSystem, HostFs, HostOrWeftFs, HostOrWeftPath};
use weft_env::real::{RealEnv, block_on};
use weft_wire::meta::{FileType, LayoutSpec, RuledDirectory};

const AFTER: &str = "\
Paths with the /weft prefix are on Weft, all others are local. At least one must be on Weft. Permission bits are
copied; -p also copies times and owners. Symbolic links are copied as links with -r, and followed without it.

A file gets its name when it is complete, and an old file stays until then. A failed or interrupted copy leaves
nothing under the name. The temporary name is .weft-cp.*; such a file left by a killed copy may be removed. Devices,
pipes, and old files with several names or another owner are overwritten in place.

Examples:
  weft cp data.bin /weft/
  weft cp -r results /weft/archive
  weft cp -r /weft/archive/run7 .
  weft cp /weft/a /weft/b";

/// Copies files between the local file system and Weft, or within Weft.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Cp {
    /// Copy directories with all that they contain
    #[arg(short = 'r', short_alias = 'R', long)]
    recursive: bool,
    /// Keep times and owners, too
    #[arg(short = 'p', long)]
    preserve: bool,
    /// Never replace an existing file
    #[arg(short = 'n', long)]
    no_clobber: bool,
    /// Show no progress bar
    #[arg(short = 'q', long)]
    quiet: bool,
    /// The sources, and the destination last
    #[arg(required = true, num_args = 2.., value_parser = bytes::argument())]
    paths: Vec<String>,
}

impl Cp {
    /// Copies the files.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let weft = Weft::open_for_transfer(file)?;
        let location = |path: &String| match weft.strip(path) {
            Some(inside) => on_weft(inside.trim_end_matches('/')),
            None => on_host(bytes::local(path)),
        };
        let locations: Vec<_> = self.paths.iter().map(location).collect();
        if !locations.iter().any(|location| matches!(location, HostOrWeftPath::Weft(_))) {
            return Err(Failure::misuse(
                "cp",
                format!("none of the paths is under {}", weft.cluster.mount.display()),
            )
            .remedy("write the prefix before paths on Weft, or use the system's cp"));
        }
        let Some((to, from)) = locations.split_last() else { unreachable!("at least two") };
        let temporaries = Temporaries::default();
        let files = HostOrWeftFs::new(HostFs::new(RealEnv::new()), Some(weft.client.clone()));
        temporaries.remove_on_signals(&files);
        let copy = Copy {
            weft: &weft,
            files,
            options: &self,
            bar: bar(self.quiet),
            failed: AtomicBool::new(false),
            made: Mutex::new(None),
            temporaries,
            rules: Mutex::new(None),
        };
        let into = copy.look(to)?.is_some_and(|found| found.attr.kind == FileType::Directory);
        if from.len() > 1 && !into {
            return Err(Failure::misuse(copy.shown(to), "several sources need a directory as destination"));
        }
        for from in from {
            let to = if into { below(to, &name(from)) } else { to.clone() };
            copy.print_error(copy.one(from, &to));
        }
        copy.bar.finish_and_clear();
        Ok(u8::from(copy.failed.load(Ordering::Relaxed)))
    }
}

struct Copy<'a> {
    weft: &'a Weft,
    files: HostOrWeftFs,
    options: &'a Cp,
    bar: ProgressBar,
    failed: AtomicBool,
    /// The destination directory of the recursive copy in progress.
    made: Mutex<Option<Id>>,
    temporaries: Temporaries,
    /// The directory whose rules were read last, and its rules.
    rules: Mutex<Option<(String, Arc<Vec<RuledDirectory>>)>>,
}

impl Copy<'_> {
    /// Prints an error and continues with the next file.
    fn print_error(&self, result: Result<(), Failure>) {
        if let Err(failure) = result {
            self.failed.store(true, Ordering::Relaxed);
            self.bar.suspend(|| errln!("{failure}"));
        }
    }

    /// Copies one source of the command line.
    fn one(&self, from: &HostOrWeftPath, to: &HostOrWeftPath) -> Result<(), Failure> {
        let follow = !self.options.recursive;
        let found = self.find(from, follow)?;
        if found.attr.kind == FileType::Directory && self.options.recursive {
            self.check_apart(from, to, &found)?;
        }
        *self.made.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
        self.any(from, to, follow)
    }

    /// Refuses to copy a directory into itself, which would never end.
    fn check_apart(
        &self,
        from: &HostOrWeftPath,
        to: &HostOrWeftPath,
        found: &ExistingFile,
    ) -> Result<(), Failure> {
        let mut way = Some(to.clone());
        while let Some(directory) = way {
            if self.look(&directory)?.is_some_and(|there| there.id == found.id) {
                return Err(self.refuse_itself(from));
            }
            way = above(&directory);
        }
        Ok(())
    }

    fn refuse_itself(&self, from: &HostOrWeftPath) -> Failure {
        Failure::new(self.shown(from), "a directory cannot be copied into itself")
    }

    fn any(&self, from: &HostOrWeftPath, to: &HostOrWeftPath, follow: bool) -> Result<(), Failure> {
        let found = self.find(from, follow)?;
        match found.attr.kind {
            FileType::Directory if self.options.recursive => self.directory(from, to, &found),
            FileType::Directory => Err(Failure::new(self.shown(from), "this is a directory")
                .remedy("-r copies it with its contents")),
            FileType::Regular => self.file(from, to, &found),
            FileType::Symlink => self.link(from, to),
            _ => Err(Failure::new(self.shown(from), "devices, pipes and sockets are not copied")),
        }
    }

    fn directory(
        &self,
        from: &HostOrWeftPath,
        to: &HostOrWeftPath,
        found: &ExistingFile,
    ) -> Result<(), Failure> {
        // A symbolic link may have led into the source. The copy then meets the destination again.
        if *self.made.lock().unwrap_or_else(std::sync::PoisonError::into_inner) == Some(found.id) {
            return Err(self.refuse_itself(from));
        }
        match block_on(self.files.mkdir(&to.following(false), found.attr.mode | 0o700)) {
            Err(error) if error.errno() != libc::EEXIST => return Err(self.failure(to, &error)),
            _ => {}
        }
        if self.made.lock().unwrap_or_else(std::sync::PoisonError::into_inner).is_none() {
            *self.made.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
                self.look(to)?.map(|made| made.id);
        }
        for name in self.at(from, true, |place| block_on(self.files.read_dir(place)))? {
            let name = bytes::text(&name);
            self.print_error(self.any(&below(from, &name), &below(to, &name), false));
        }
        self.attributes(to, found)
    }

    fn link(&self, from: &HostOrWeftPath, to: &HostOrWeftPath) -> Result<(), Failure> {
        let target = self.readlink(from)?;
        // A link replaces anything but a directory, like a file.
        if let Some(old) = self.look_at(to, false)? {
            if self.options.no_clobber {
                return Ok(());
            }
            if old.attr.kind == FileType::Directory {
                return Err(Failure::new(self.shown(to), posix(libc::EEXIST)));
            }
        }
        let temporary = self.temporary(to.clone());
        self.make_link(&temporary.location, &target)?;
        temporary.name()
    }

    fn file(&self, from: &HostOrWeftPath, to: &HostOrWeftPath, found: &ExistingFile) -> Result<(), Failure> {
        let there = self.look(to)?;
        // The same file under another name, or by a link: opening it for writing would truncate it.
        if there.as_ref().is_some_and(|there| there.id == found.id) {
            return Err(Failure::new(self.shown(from), format!("{} is the same file", self.shown(to))));
        }
        if self.options.no_clobber && there.is_some() {
            return Ok(());
        }
        self.bar.set_message(self.shown(to));
        self.bar.inc_length(found.attr.size.0);
        let source = self.open(from, None)?;
        let Some(real) = self.replaced(to, there.as_ref())? else {
            return self.in_place(from, to, &source, found);
        };
        let spec = self.layout_of(&real, there.is_some())?;
        let temporary = self.temporary(real);
        let made = self.open(&temporary.location, Some((found.attr.mode, &spec))).and_then(|target| {
            there.as_ref().map_or(Ok(()), |old| self.pass_on(&temporary.location, old)).map(|()| target)
        });
        let target = match made {
            // A directory without write permission may contain a writable file. The same holds for a group without the
            // user.
            Err(_) if there.is_some() => {
                drop(temporary);
                return self.in_place(from, to, &source, found);
            }
            made => {
                made.map_err(|failure| failure.with(&self.shown(&temporary.location), &self.shown(to)))?
            }
        };
        self.bytes(from, to, &source, &target, found.attr.size.0)?;
        let failed = |why: String| Failure::new(self.shown(to), why);
        if there.is_some() {
            // The new file replaces the old one, so it must be durable first.
            target.sync().map_err(failed)?;
        }
        target.close().map_err(failed)?;
        if self.options.preserve {
            self.attributes(&temporary.location, found)?;
        }
        temporary.name()
    }

    /// Overwrites the file that has the name, which loses its bytes at once.
    fn in_place(
        &self,
        from: &HostOrWeftPath,
        to: &HostOrWeftPath,
        source: &Open,
        found: &ExistingFile,
    ) -> Result<(), Failure> {
        let target = self.open(to, Some((found.attr.mode, &LayoutSpec::default())))?;
        self.bytes(from, to, source, &target, found.attr.size.0)?;
        target.close().map_err(|why| Failure::new(self.shown(to), why))?;
        if self.options.preserve { self.attributes(to, found) } else { Ok(()) }
    }
}
