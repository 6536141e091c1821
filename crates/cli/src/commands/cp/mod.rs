//! `weft cp`: between the local file system and Weft, or within Weft.

mod beside;
mod content;
mod progress;
mod side;

use super::session::{Weft, why};
use super::{bytes, posix};
use crate::failure::Failure;
use beside::Temporaries;
use clap::Args;
use content::Open;
use indicatif::ProgressBar;
use progress::bar;
use side::{Found, Id, Side, above, below, name, place};

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use weft_env::real::block_on;
use weft_wire::meta::{FileType, LayoutSpec, RuledDirectory};

const AFTER: &str = "\
Paths with the /weft prefix are on Weft, all others local; at least one must be on Weft. Permission bits are copied,
-p copies times and owners too. Symbolic links are copied as links with -r and followed without.

A file gets its name when it is complete, and an old one stays until then: a copy that fails or is interrupted leaves
nothing under the name. Until then it is called .weft-cp.*, which may be removed when a killed copy has left it. Devices,
pipes, and old files that have several names or another owner are written in place.

Examples:
  weft cp data.bin /weft/
  weft cp -r results /weft/archive
  weft cp -r /weft/archive/run7 .
  weft cp /weft/a /weft/b";

/// Copies files between the local file system and Weft, or within Weft.
#[derive(Args)]
#[command(after_long_help = AFTER)]
pub struct Cp {
    /// Directories with all that they hold
    #[arg(short = 'r', short_alias = 'R', long)]
    recursive: bool,
    /// Times and owners too
    #[arg(short = 'p', long)]
    preserve: bool,
    /// Never replace what is there
    #[arg(short = 'n', long)]
    no_clobber: bool,
    /// No progress bar
    #[arg(short = 'q', long)]
    quiet: bool,
    /// What to copy, and last where to
    #[arg(required = true, num_args = 2.., value_parser = bytes::argument())]
    paths: Vec<String>,
}

impl Cp {
    /// Copies them.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let weft = Weft::open(file)?;
        let side = |path: &String| match weft.strip(path) {
            Some(inside) => Side::Weft(inside.trim_end_matches('/').to_owned()),
            None => Side::Local(bytes::local(path)),
        };
        let sides: Vec<_> = self.paths.iter().map(side).collect();
        if !sides.iter().any(|side| matches!(side, Side::Weft(_))) {
            return Err(Failure::misuse(
                "cp",
                format!("none of the paths is under {}", weft.cluster.mount.display()),
            )
            .remedy("write the prefix before paths on Weft, or use the system's cp"));
        }
        let Some((to, from)) = sides.split_last() else { unreachable!("at least two") };
        let temporaries = Temporaries::default();
        temporaries.remove_on_signals(&weft.client);
        let copy = Copy {
            weft: &weft,
            options: &self,
            bar: bar(self.quiet),
            failed: AtomicBool::new(false),
            made: Mutex::new(None),
            temporaries,
            rules: Mutex::new(None),
        };
        let into = copy.look(to)?.is_some_and(|found| found.kind == FileType::Directory);
        if from.len() > 1 && !into {
            return Err(Failure::misuse(
                copy.shown(to),
                "several files go into a directory, and this is none",
            ));
        }
        for from in from {
            let to = if into { below(to, &name(from)) } else { to.clone() };
            copy.tell(copy.one(from, &to));
        }
        copy.bar.finish_and_clear();
        Ok(u8::from(copy.failed.load(Ordering::Relaxed)))
    }
}

struct Copy<'a> {
    weft: &'a Weft,
    options: &'a Cp,
    bar: ProgressBar,
    failed: AtomicBool,
    /// The directory that what is being copied goes to.
    made: Mutex<Option<Id>>,
    temporaries: Temporaries,
    /// The directory whose rules were asked for last, and they.
    rules: Mutex<Option<(String, Arc<Vec<RuledDirectory>>)>>,
}

impl Copy<'_> {
    /// Prints what went wrong and goes on with the next file.
    fn tell(&self, result: Result<(), Failure>) {
        if let Err(failure) = result {
            self.failed.store(true, Ordering::Relaxed);
            self.bar.suspend(|| eprintln!("{failure}"));
        }
    }

    /// What was named on the command line.
    fn one(&self, from: &Side, to: &Side) -> Result<(), Failure> {
        let follow = !self.options.recursive;
        let found = self.find(from, follow)?;
        if found.kind == FileType::Directory && self.options.recursive {
            self.check_apart(from, to, &found)?;
        }
        *self.made.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
        self.any(from, to, follow)
    }

    /// A copy that lies in what is copied would find itself and never end.
    fn check_apart(&self, from: &Side, to: &Side, found: &Found) -> Result<(), Failure> {
        let mut way = Some(to.clone());
        while let Some(directory) = way {
            if self.look(&directory)?.is_some_and(|there| there.id == found.id) {
                return Err(self.refuse_itself(from));
            }
            way = above(&directory);
        }
        Ok(())
    }

    fn refuse_itself(&self, from: &Side) -> Failure {
        Failure::new(self.shown(from), "a directory is not copied into itself")
    }

    fn any(&self, from: &Side, to: &Side, follow: bool) -> Result<(), Failure> {
        let found = self.find(from, follow)?;
        match found.kind {
            FileType::Directory if self.options.recursive => self.directory(from, to, &found),
            FileType::Directory => Err(Failure::new(self.shown(from), "this is a directory")
                .remedy("-r copies it with all that it holds")),
            FileType::Regular => self.file(from, to, &found),
            FileType::Symlink => self.link(from, to),
            _ => Err(Failure::new(self.shown(from), "devices, pipes and sockets are not copied")),
        }
    }

    fn directory(&self, from: &Side, to: &Side, found: &Found) -> Result<(), Failure> {
        // A symbolic link may have led into what is copied: there it is met again.
        if *self.made.lock().unwrap_or_else(std::sync::PoisonError::into_inner) == Some(found.id) {
            return Err(self.refuse_itself(from));
        }
        match to {
            Side::Weft(path) => {
                match block_on(self.weft.client.mkdir(&place(path, false), found.mode | 0o700)) {
                    Err(error) if error.errno() != libc::EEXIST => {
                        return Err(Failure::new(self.shown(to), why(&error)));
                    }
                    _ => {}
                }
            }
            Side::Local(path) => match std::fs::create_dir(path) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(self.local(path, &error));
                }
                _ => {}
            },
        }
        if self.made.lock().unwrap_or_else(std::sync::PoisonError::into_inner).is_none() {
            *self.made.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
                self.look(to)?.map(|made| made.id);
        }
        let mut names = Vec::new();
        match from {
            Side::Weft(path) => self.weft.list(path, false, |entry| {
                names.push(bytes::text(&entry.name));
                Ok(())
            })?,
            Side::Local(path) => {
                for entry in std::fs::read_dir(path).map_err(|error| self.local(path, &error))? {
                    let entry = entry.map_err(|error| self.local(path, &error))?;
                    names.push(bytes::text(entry.file_name().as_bytes()));
                }
            }
        }
        for name in names {
            self.tell(self.any(&below(from, &name), &below(to, &name), false));
        }
        self.attributes(to, found)
    }

    fn link(&self, from: &Side, to: &Side) -> Result<(), Failure> {
        let target = match from {
            Side::Weft(path) => block_on(self.weft.client.readlink(&place(path, false)))
                .map_err(|error| Failure::new(self.shown(from), why(&error)))?,
            Side::Local(path) => {
                use std::os::unix::ffi::OsStringExt;
                std::fs::read_link(path)
                    .map_err(|error| self.local(path, &error))?
                    .into_os_string()
                    .into_vec()
            }
        };
        // A link replaces what is not a directory, as a file does.
        if let Some(old) = self.look_at(to, false)? {
            if self.options.no_clobber {
                return Ok(());
            }
            if old.kind == FileType::Directory {
                return Err(Failure::new(self.shown(to), posix(libc::EEXIST)));
            }
        }
        let beside = self.beside(to.clone());
        self.make_link(&beside.side, &target)?;
        beside.name()
    }

    fn file(&self, from: &Side, to: &Side, found: &Found) -> Result<(), Failure> {
        let there = self.look(to)?;
        // Opening it for writing cuts it: under another name, or by a link, too.
        if there.as_ref().is_some_and(|there| there.id == found.id) {
            return Err(Failure::new(self.shown(from), format!("{} is the same file", self.shown(to))));
        }
        if self.options.no_clobber && there.is_some() {
            return Ok(());
        }
        self.bar.set_message(self.shown(to));
        self.bar.inc_length(found.size);
        let source = self.open(from, None)?;
        let Some(real) = self.replaced(to, there.as_ref())? else {
            return self.in_place(from, to, &source, found);
        };
        let spec = self.layout_of(&real, there.is_some())?;
        let beside = self.beside(real);
        let made = self.open(&beside.side, Some((found.mode, &spec))).and_then(|target| {
            there.as_ref().map_or(Ok(()), |old| self.pass_on(&beside.side, old)).map(|()| target)
        });
        let target = match made {
            // A directory that takes no new file may have one that can be written; of a group that the user is not in, too.
            Err(_) if there.is_some() => {
                drop(beside);
                return self.in_place(from, to, &source, found);
            }
            made => made.map_err(|failure| failure.with(&self.shown(&beside.side), &self.shown(to)))?,
        };
        self.bytes(from, to, &source, &target, found.size)?;
        let failed = |why: String| Failure::new(self.shown(to), why);
        if there.is_some() {
            // The old file goes: what takes its place must not be lost with the machine's power.
            target.sync().map_err(failed)?;
        }
        target.close().map_err(failed)?;
        if self.options.preserve {
            self.attributes(&beside.side, found)?;
        }
        beside.name()
    }

    /// Over what has the name already, which it loses at once.
    fn in_place(&self, from: &Side, to: &Side, source: &Open, found: &Found) -> Result<(), Failure> {
        let target = self.open(to, Some((found.mode, &LayoutSpec::default())))?;
        self.bytes(from, to, source, &target, found.size)?;
        target.close().map_err(|why| Failure::new(self.shown(to), why))?;
        if self.options.preserve { self.attributes(to, found) } else { Ok(()) }
    }
}
