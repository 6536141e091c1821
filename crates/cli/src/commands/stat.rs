//! `weft stat`.

use super::bytes;
use super::names::{self, Names};
use super::session::{Doubts, Weft};
use crate::failure::Failure;
use clap::Args;
use std::path::PathBuf;

/// Shows all attributes.
#[derive(Args)]
#[command(after_long_help = "Examples:\n  weft stat /weft/out.h5\n  weft stat -L link")]
pub struct Stat {
    /// What a symbolic link leads to, not the link
    #[arg(short = 'L', long)]
    dereference: bool,
    /// What to show
    #[arg(required = true, value_parser = bytes::argument())]
    paths: Vec<String>,
}

impl Stat {
    /// Shows them.
    pub fn run(self, file: Option<PathBuf>) -> Result<u8, Failure> {
        let weft = Weft::open(file)?;
        let mut names = Names::default();
        let (mut failed, mut doubts) = (false, Doubts::default());
        for path in &self.paths {
            let inside = weft.inside(path);
            match weft.known(inside, self.dereference) {
                Ok(known) => {
                    doubts.note(&weft.shown(inside), &known);
                    let attr = known.attr;
                    outln!("  File: {}", weft.shown(inside));
                    let (size, blocks) = (attr.size.0, attr.blocks_512);
                    outln!("  Size: {size:<15} Blocks: {blocks:<10} {}", names::kind(attr.kind));
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
                    eprintln!("{failure}");
                    failed = true;
                }
            }
        }
        Ok(u8::from(doubts.tell() || failed))
    }
}
