//! The scratch directory of a trial: one directory for each side, whose rules give the files their layouts.

use super::layouts::Side;
use crate::commands::session::{Weft, join, why};
use crate::commands::{bytes, tree};
use crate::failure::Failure;
use std::path::PathBuf;
use weft_core::Layout;
use weft_env::real::block_on;
use weft_wire::meta::{InodePath, LayoutSpec, OpenFlags, Rule, RuleRemoval};

/// A hidden directory at the root of the cluster. It is removed when it is dropped.
pub struct Scratch<'a> {
    weft: &'a Weft,
    /// Path below the mount; `None` once it is removed.
    inside: Option<String>,
}

impl<'a> Scratch<'a> {
    /// Creates the directory.
    pub fn new(weft: &'a Weft) -> Result<Self, Failure> {
        // Skip a directory of a process with this id on another host.
        for number in 0.. {
            let inside = match number {
                0 => format!(".weft-trial-{}", std::process::id()),
                number => format!(".weft-trial-{}.{number}", std::process::id()),
            };
            match block_on(weft.client.mkdir(&plain(&inside), 0o700)) {
                Err(error) if error.errno() == libc::EEXIST => continue,
                Err(error) => {
                    return Err(Failure::new(weft.shown(&inside), why(&error))
                        .remedy("--try needs a scratch directory there"));
                }
                Ok(_) => return Ok(Self { weft, inside: Some(inside) }),
            }
        }
        unreachable!("some number is unused")
    }

    fn path(&self, name: &str) -> String {
        join(self.inside.as_deref().expect("not removed"), name)
    }

    /// Creates the directory of a side with these rules.
    pub fn set_rules(&self, side: Side, rules: Vec<Rule>) -> Result<(), Failure> {
        let inside = self.path(side.name());
        let failed = |error| Failure::new(self.weft.shown(&inside), why(&error));
        block_on(self.weft.client.mkdir(&plain(&inside), 0o700)).map_err(failed)?;
        block_on(self.weft.client.change_rules(&plain(&inside), RuleRemoval::All, rules)).map_err(failed)
    }

    /// Directory for the files of a replay. The replay creates and removes it.
    pub fn replay_dir(&self, side: Side) -> PathBuf {
        self.weft.cluster.mount.join(self.path(side.name())).join("files")
    }

    /// Returns the layout that a new file gets with this request.
    pub fn layout_of(&self, spec: &LayoutSpec) -> Result<Layout, Failure> {
        let inside = self.path("probe");
        let failed = |error| Failure::new(self.weft.shown(&inside), why(&error));
        let flags = OpenFlags { write: true, create: true, exclusive: true, ..OpenFlags::default() };
        let client = &self.weft.client;
        drop(block_on(client.open(&plain(&inside), flags, 0o600, spec)).map_err(failed)?);
        let (layout, _) = block_on(client.get_layout(&plain(&inside))).map_err(failed)?;
        block_on(client.unlink(&plain(&inside))).map_err(failed)?;
        Ok(layout.expect("a file has a layout"))
    }

    /// Removes the directory with all that it contains.
    pub fn remove(mut self) -> Result<(), Failure> {
        let inside = self.inside.take().expect("not removed");
        tree::remove(self.weft, &inside)
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        if let Some(Err(failure)) = self.inside.take().map(|inside| tree::remove(self.weft, &inside)) {
            errln!("{failure}");
        }
    }
}

/// Returns the place of the name itself.
fn plain(inside: &str) -> InodePath {
    InodePath::from_root(bytes::bytes(inside), false)
}
