//! `weft mv`, `rm`, `mkdir`, `touch` and `ln`: changes of the namespace only.

use super::bytes;
use super::session::{Weft, base_name, join, why};
use crate::failure::Failure;
use clap::Args;
use std::path::PathBuf;
use weft_client::Error;
use weft_env::real::block_on;
use weft_wire::meta::{FileType, InodePath, LayoutSpec, OpenFlags, SetAttr, SetTime};

/// Renames or moves files within Weft.
#[derive(Args)]
#[command(
    after_long_help = "Examples:\n  weft mv old new\n  weft mv a b dir/\n  weft mv -n new name-that-must-be-free"
)]
pub struct Mv {
    /// Never replace an existing file
    #[arg(short = 'n', long)]
    no_clobber: bool,
    /// The sources, and the destination last
    #[arg(required = true, num_args = 2.., value_parser = bytes::argument())]
    paths: Vec<String>,
}

impl Mv {
    /// Runs the command.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let weft = Weft::open(file)?;
        let Some((to, from)) = self.paths.split_last() else { unreachable!("at least two") };
        let to = weft.inside(to)?;
        let into = weft.kind(to, true)? == Some(FileType::Directory);
        if from.len() > 1 && !into {
            return Err(Failure::misuse(weft.shown(to), "several sources need a directory as destination"));
        }
        let from = from.iter().map(|from| weft.inside(from)).collect::<Result<Vec<_>, Failure>>()?;
        for from in from {
            let to = if into { join(to, base_name(from)) } else { to.to_owned() };
            let (old, new) = (plain(from), plain(&to));
            block_on(weft.client.rename(&old, &new, self.no_clobber, false)).map_err(|error| {
                Failure::new(format!("{} to {}", weft.shown(from), weft.shown(&to)), why(&error))
            })?;
        }
        Ok(0)
    }
}

/// Removes files.
#[derive(Args)]
#[command(after_long_help = "Examples:\n  weft rm /weft/out.h5\n  weft rm -r results\n  weft rm -f maybe")]
pub struct Rm {
    /// Remove directories and all that they contain
    #[arg(short = 'r', short_alias = 'R', long)]
    recursive: bool,
    /// Ignore paths that do not exist
    #[arg(short = 'f', long)]
    force: bool,
    /// Paths to remove
    #[arg(required = true, value_parser = bytes::argument())]
    paths: Vec<String>,
}

impl Rm {
    /// Runs the command.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let weft = Weft::open(file)?;
        let mut failed = false;
        for path in &self.paths {
            let inside = weft.inside(path)?;
            if inside.is_empty() {
                return Err(Failure::misuse(weft.shown(""), "the root cannot be removed")
                    .remedy("name its entries; `weft run --fresh` empties an embedded cluster"));
            }
            if let Err(failure) = self.one(&weft, inside) {
                errln!("{failure}");
                failed = true;
            }
        }
        Ok(u8::from(failed))
    }

    fn one(&self, weft: &Weft, inside: &str) -> Result<(), Failure> {
        let Some(kind) = weft.kind(inside, false)? else {
            if self.force {
                return Ok(());
            }
            return Err(Failure::new(weft.shown(inside), super::posix(libc::ENOENT)));
        };
        if kind == FileType::Directory && !self.recursive {
            let failure = Failure::new(weft.shown(inside), "this is a directory");
            return Err(failure.remedy("-r removes it with its contents"));
        }
        remove(weft, inside)
    }
}

/// Removes a path with all that it contains.
pub fn remove(weft: &Weft, inside: &str) -> Result<(), Failure> {
    let one = |path: &str, kind| {
        let result = match kind {
            FileType::Directory => block_on(weft.client.rmdir(&plain(path))),
            _ => block_on(weft.client.unlink(&plain(path))),
        };
        match result {
            // Another process was faster.
            Err(error) if error.errno() == libc::ENOENT => Ok(()),
            Err(error) => Err(Failure::new(weft.shown(path), why(&error))),
            Ok(()) => Ok(()),
        }
    };
    weft.walk_past(inside, true, &mut |path, known| one(path, known.attr.kind), &mut |path, kind, failure| {
        // The size of a damaged file is unknown, but it can be removed.
        if kind == FileType::Directory { Err(failure) } else { one(path, kind) }
    })
}

/// Makes directories.
#[derive(Args)]
#[command(
    after_long_help = "Examples:\n  weft mkdir results\n  weft mkdir -p a/b/c\n  weft mkdir -m 700 private"
)]
pub struct Mkdir {
    /// Create parent directories, too, and accept existing ones
    #[arg(short = 'p', long)]
    parents: bool,
    /// Permission bits, octal [default: 777 without the umask]
    #[arg(short = 'm', long, value_parser = octal)]
    mode: Option<u32>,
    /// Directories to create
    #[arg(required = true, value_parser = bytes::argument())]
    paths: Vec<String>,
}

fn octal(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
    mode.ok_or_else(|| "write permission bits as an octal number, such as 755".to_owned())
}

impl Mkdir {
    /// Runs the command.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let weft = Weft::open(file)?;
        let mode = self.mode.unwrap_or(0o777 & !umask());
        for path in &self.paths {
            let inside = weft.inside(path)?;
            if self.parents {
                let mut above = String::new();
                for name in inside.split('/').filter(|name| !name.is_empty()) {
                    above = join(&above, name);
                    let last = above == inside.trim_end_matches('/');
                    let mode = if last { mode } else { 0o777 & !umask() };
                    match block_on(weft.client.mkdir(&plain(&above), mode)) {
                        Err(error) if error.errno() == libc::EEXIST => {}
                        Err(error) => return Err(Failure::new(weft.shown(&above), why(&error))),
                        Ok(_) => {}
                    }
                }
                if weft.kind(inside, true)? != Some(FileType::Directory) {
                    return Err(Failure::new(weft.shown(inside), super::posix(libc::EEXIST)));
                }
            } else {
                block_on(weft.client.mkdir(&plain(inside), mode)).map_err(|error| {
                    let failure = Failure::new(weft.shown(inside), why(&error));
                    match error.errno() {
                        libc::ENOENT => failure.remedy("-p makes missing directories above it, too"),
                        _ => failure,
                    }
                })?;
            }
        }
        Ok(0)
    }
}

/// Makes empty files, or sets times to now.
#[derive(Args)]
#[command(after_long_help = "Examples:\n  weft touch ready\n  weft touch -c only-if-there")]
pub struct Touch {
    /// Create no file
    #[arg(short = 'c', long)]
    no_create: bool,
    /// Files to touch
    #[arg(required = true, value_parser = bytes::argument())]
    paths: Vec<String>,
}

impl Touch {
    /// Runs the command.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let weft = Weft::open(file)?;
        let now = SetAttr { atime: Some(SetTime::Now), mtime: Some(SetTime::Now), ..SetAttr::default() };
        for path in &self.paths {
            let inside = weft.inside(path)?;
            if weft.look(inside, true)?.is_some() {
                weft.at(inside, true, |place| block_on(weft.client.set_attr(place, now)))?;
            } else if !self.no_create {
                let flags = OpenFlags { write: true, create: true, ..OpenFlags::default() };
                let (spec, mode) = (LayoutSpec::default(), 0o666 & !umask());
                weft.at(inside, true, |place| block_on(weft.client.open(place, flags, mode, &spec)))?;
            }
        }
        Ok(0)
    }
}

/// Makes links.
#[derive(Args)]
#[command(after_long_help = "\
A symbolic link stores its target as written. Write the target with the /weft prefix, or relative to the link.

Examples:
  weft ln file another-name
  weft ln -s /weft/results/today latest")]
pub struct Ln {
    /// Create a symbolic link
    #[arg(short = 's', long)]
    symbolic: bool,
    /// Replace an existing name
    #[arg(short = 'f', long)]
    force: bool,
    /// Target of the link
    #[arg(value_parser = bytes::argument())]
    target: String,
    /// Name of the link, or a directory for it
    #[arg(value_parser = bytes::argument())]
    name: String,
}

impl Ln {
    /// Runs the command.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let weft = Weft::open(file)?;
        let mut name = weft.inside(&self.name)?.to_owned();
        if weft.kind(&name, true)? == Some(FileType::Directory) {
            name = join(&name, base_name(&self.target));
        }
        let target = if self.symbolic { "" } else { weft.inside(&self.target)? };
        let make = || {
            if self.symbolic {
                block_on(weft.client.symlink(&plain(&name), &bytes::bytes(&self.target))).map(drop)
            } else {
                block_on(weft.client.link(&plain(target), &plain(&name))).map(drop)
            }
        };
        let mut made = make();
        if self.force && made.as_ref().is_err_and(|error: &Error| error.errno() == libc::EEXIST) {
            made = block_on(weft.client.unlink(&plain(&name))).and_then(|()| make());
        }
        made.map_err(|error| Failure::new(weft.shown(&name), why(&error)))?;
        Ok(0)
    }
}

/// Returns the place of the name itself. A link at the end is not followed.
fn plain(inside: &str) -> InodePath {
    InodePath::from_root(bytes::bytes(inside), false)
}

/// Returns the umask of this process.
pub fn umask() -> u32 {
    // SAFETY: umask cannot fail; nothing else runs between the two calls in this single-threaded part.
    unsafe {
        let mask = libc::umask(0o022);
        libc::umask(mask);
        mask
    }
}
