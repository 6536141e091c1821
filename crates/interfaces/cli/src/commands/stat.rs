//! `weft stat`.

use super::bytes;
use super::file_json;
use super::names::{self, Names};
use super::session::{InexactSizes, Weft};
use super::stripe;
use crate::failure::Failure;
use clap::Args;
use serde_json::Value;
use std::path::PathBuf;
use weft_core::COMPRESSION_ATTRIBUTE;
use weft_wire::meta::FileType;

/// Shows all attributes.
#[derive(Args)]
#[command(
    after_long_help = "Examples:\n  weft stat /weft/out.h5\n  weft stat -L link\n  weft stat --json /weft/a /weft/b"
)]
pub struct Stat {
    /// Show the target of a symbolic link instead of the link
    #[arg(short = 'L', long)]
    dereference: bool,
    /// Print JSON: an array of files
    #[arg(long)]
    json: bool,
    /// Paths to show
    #[arg(required = true, value_parser = bytes::argument())]
    paths: Vec<String>,
}

impl Stat {
    /// Runs the command.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let weft = Weft::open(file)?;
        let mut names = Names::default();
        let (mut failed, mut inexact) = (false, InexactSizes::default());
        let mut files = Vec::new();
        for path in &self.paths {
            let inside = weft.inside(path)?;
            match weft.known(inside, self.dereference) {
                Ok(known) if self.json => {
                    inexact.note(&weft.shown(inside), &known);
                    files.push(file_json::attributes(&weft.shown(inside), &known, &mut names));
                }
                Ok(known) => {
                    inexact.note(&weft.shown(inside), &known);
                    let attr = known.attr;
                    outln!("  File: {}", weft.shown(inside));
                    let (size, blocks) = (attr.size.0, attr.blocks_512);
                    outln!("  Size: {size:<15} Blocks: {blocks:<10} {}", names::kind(attr.kind));
                    if attr.kind == FileType::Regular
                        && let Ok(Some(setting)) = stripe::setting(&weft, inside, COMPRESSION_ATTRIBUTE)
                        && setting != "off"
                    {
                        outln!("Stored: {}; compress {setting}", stripe::stored_size(size, blocks * 512));
                    }
                    outln!(" Inode: {:<15} Links: {}", attr.file.0, attr.nlink);
                    outln!(
                        "Access: ({:04o}/{})  Uid: ({}/{})  Gid: ({}/{})",
                        attr.mode,
                        names::mode(attr.kind, attr.mode),
                        attr.uid,
                        names.user(attr.uid).to_owned(),
                        attr.gid,
                        names.group(attr.gid),
                    );
                    outln!("Access: {}", names::time(attr.atime));
                    outln!("Modify: {}", names::time(attr.mtime));
                    outln!("Change: {}", names::time(attr.ctime));
                }
                Err(failure) => {
                    errln!("{failure}");
                    failed = true;
                }
            }
        }
        if self.json {
            outln!("{:#}", Value::from(files));
        }
        Ok(u8::from(inexact.print() || failed))
    }
}
