//! `weft ls`.

use super::bytes;
use super::file_json;
use super::names::{self, Names};
use super::session::{InexactSizes, Weft, join};
use crate::failure::Failure;
use clap::Args;
use serde_json::Value;
use std::path::PathBuf;
use weft_client::LastKnown;
use weft_core::units::human_bytes;
use weft_env::real::block_on;
use weft_wire::meta::{Attr, FileType};

/// Lists directories.
#[derive(Args)]
#[command(disable_help_flag = true)]
#[command(after_long_help = "Examples:\n  weft ls\n  weft ls -lh /weft/results\n  weft ls -R results")]
pub struct Ls {
    /// Show modes, owners, sizes and times
    #[arg(short = 'l')]
    long: bool,
    /// Include names that begin with a dot
    #[arg(short = 'a', long)]
    all: bool,
    /// Show sizes such as 1.50 GiB
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// List directories themselves instead of their contents
    #[arg(short = 'd', long)]
    directory: bool,
    /// List subdirectories, too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Print JSON: an array of files with all attributes
    #[arg(long)]
    json: bool,
    /// Show one name per line (always the case)
    #[arg(short = '1')]
    _one: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Paths to list [default: the root]
    #[arg(value_parser = bytes::argument())]
    paths: Vec<String>,
}

/// State collected during a listing.
#[derive(Default)]
struct Seen {
    names: Names,
    inexact: InexactSizes,
    /// Whether attributes of a name could not be found.
    failed: bool,
    /// Files for JSON.
    files: Vec<Value>,
}

impl Ls {
    /// Runs the command.
    pub fn run(mut self, file: Option<PathBuf>) -> Result<u8, Failure> {
        self.long |= self.json;
        let weft = Weft::open(file)?;
        let root = [String::new()];
        let paths = if self.paths.is_empty() { &root[..] } else { &self.paths[..] };
        let mut failed = false;
        let mut seen = Seen::default();
        for (index, path) in paths.iter().enumerate() {
            let inside = weft.inside(path)?;
            let heading = self.recursive || paths.len() > 1;
            if let Err(failure) = self.one(&weft, inside, heading, index > 0, &mut seen) {
                errln!("{failure}");
                failed = true;
            }
        }
        if self.json {
            outln!("{:#}", Value::from(std::mem::take(&mut seen.files)));
        }
        Ok(u8::from(seen.inexact.print() || seen.failed || failed))
    }

    fn one(
        &self,
        weft: &Weft,
        inside: &str,
        heading: bool,
        gap: bool,
        seen: &mut Seen,
    ) -> Result<(), Failure> {
        let known = weft.known(inside, !self.long)?;
        if known.attr.kind != FileType::Directory || self.directory {
            self.doubtful(weft, &weft.shown(inside), inside, &known, seen);
            return Ok(());
        }
        if heading && !self.json {
            outln!("{}{}:", if gap { "\n" } else { "" }, weft.shown(inside));
        }
        let mut below = Vec::new();
        weft.list(inside, self.long, |entry| {
            let name = bytes::text(&entry.name);
            if name.starts_with('.') && !self.all {
                return Ok(());
            }
            let path = join(inside, &name);
            if self.recursive && entry.kind == FileType::Directory {
                below.push(path.clone());
            }
            match entry.attr {
                // Only the data servers know a size that is not valid.
                Some(attr) if attr.invalid_size.is_none() => {
                    let known = LastKnown { attr, error: None, device: 0 };
                    self.doubtful(weft, &name, &path, &known, seen);
                }
                _ if self.long => {
                    match weft.look(&path, false) {
                        Ok(Some(known)) => self.doubtful(weft, &name, &path, &known, seen),
                        // Removed since.
                        Ok(None) => {}
                        Err(failure) => {
                            errln!("{failure}");
                            seen.failed = true;
                            match entry.attr {
                                _ if self.json => {}
                                Some(attr) => self.line(weft, &name, &path, &attr, &mut seen.names),
                                None => print_line(&name),
                            }
                        }
                    }
                }
                _ => print_line(&name),
            }
            Ok(())
        })?;
        for path in below {
            if let Err(failure) = self.one(weft, &path, true, true, seen) {
                errln!("{failure}");
                seen.failed = true;
            }
        }
        Ok(())
    }

    /// Prints a line, or notes the attributes for JSON. They may be outdated.
    fn doubtful(&self, weft: &Weft, name: &str, inside: &str, known: &LastKnown, seen: &mut Seen) {
        if self.long {
            seen.inexact.note(&weft.shown(inside), known);
        }
        if self.json {
            seen.files.push(file_json::attributes(&weft.shown(inside), known, &mut seen.names));
            return;
        }
        self.line(weft, name, inside, &known.attr, &mut seen.names);
    }

    fn line(&self, weft: &Weft, name: &str, inside: &str, attr: &Attr, names: &mut Names) {
        if !self.long {
            print_line(name);
            return;
        }
        let size = if self.human_readable { human_bytes(attr.size.0) } else { attr.size.0.to_string() };
        let user = names.user(attr.uid).to_owned();
        let mut line = format!(
            "{} {:3} {user:8} {:8} {size:>12} {} {name}",
            names::mode(attr.kind, attr.mode),
            attr.nlink,
            names.group(attr.gid),
            names::minute(attr.mtime),
        );
        if attr.kind == FileType::Symlink {
            let target = weft.at(inside, false, |place| block_on(weft.client.readlink(place)));
            if let Ok(target) = target {
                line += &format!(" -> {}", bytes::text(&target));
            }
        }
        print_line(&line);
    }
}

/// Prints a line with names as the bytes that they are.
fn print_line(text: &str) {
    let mut line = bytes::bytes(text);
    line.push(b'\n');
    crate::output::bytes(&line);
}
