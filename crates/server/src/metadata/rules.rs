//! Rules of directories: which files made below them get which layout.
//!
//! A directory has a row of rules, or none. A new file asks its own directory, then the one above, up to the root, and takes
//! the first rule that fits the path of the file below that directory. Nothing is copied: what is below a directory has its
//! rules when they are set, and after a rename those of where it is then.

use super::fault::{Fault, Outcome};
use super::layouts::{Wish, spec};
use super::op::Op;
use super::permit::owns;
use super::tables::{known_inode, path_of, put_inode, put_row, row};
use super::walk::walk;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use weft_core::{FileId, Pattern};
use weft_env::plants::{Plant, planted};
use weft_store::metadata::{Inode, RuleRow, RulesRow, Scan, Snapshot, Table, Transaction, file_key};
use weft_wire::Errno;
use weft_wire::meta::{Forget, MetaReply, Place, ROOT, RULES_MAX, Rule, RuledDirectory};

/// The most bytes of the rules of a directory.
const ROW_LEN_MAX: usize = 128 << 10;
/// About the most bytes of a reply with rules.
const REPLY_LEN_MAX: usize = 512 << 10;

/// The rules of all directories, as the database has them. Changed under its lock only.
#[derive(Default)]
pub(super) struct Rules {
    directories: BTreeMap<FileId, Arc<RulesRow>>,
}

impl Rules {
    /// All that the database has.
    pub(super) fn load(s: &dyn Snapshot) -> Outcome<Self> {
        let mut directories = BTreeMap::new();
        if planted(Plant::UnloadedRules) {
            return Ok(Self { directories });
        }
        s.scan(Table::Rules, Bound::Unbounded, &mut |key, value| {
            let rules: RulesRow = value.open(Table::Rules, key)?;
            if let Some(key) = key.first_chunk() {
                directories.insert(FileId(u64::from_be_bytes(*key)), Arc::new(rules));
            }
            Ok(Scan::Next)
        })?;
        Ok(Self { directories })
    }

    /// Whether a directory has some.
    pub(super) fn has(&self, dir: FileId) -> bool {
        self.directories.contains_key(&dir)
    }

    /// A directory is gone.
    pub(super) fn forget(&mut self, dir: FileId) {
        self.directories.remove(&dir);
    }
}

/// The rule that a new file takes.
pub(super) struct Found {
    /// Of these.
    rules: Arc<RulesRow>,
    /// This one.
    at: usize,
    /// The directory that has it.
    pub dir: FileId,
}

impl Found {
    pub(super) fn rule(&self) -> &RuleRow {
        &self.rules.rules[self.at]
    }
}

impl Op<'_> {
    /// The rule for a file that is made as `name` in `dir`.
    pub(super) fn rule_for(
        &self,
        s: &dyn Snapshot,
        dir: FileId,
        dir_inode: &Inode,
        name: &[u8],
    ) -> Outcome<Option<Found>> {
        let rules = self.core.rules.lock();
        if rules.directories.is_empty() {
            return Ok(None);
        }
        let mut path = name.to_vec();
        let (mut at, mut above) = (dir, None);
        loop {
            if let Some(of) = rules.directories.get(&at)
                && let Some(fits) = of.rules.iter().position(|rule| rule.pattern.matches(&path))
            {
                return Ok(Some(Found { rules: of.clone(), at: fits, dir: at }));
            }
            if at == ROOT {
                return Ok(None);
            }
            let inode: &Inode = above.as_ref().unwrap_or(dir_inode);
            // A damaged tree must not hold the service: paths end somewhere.
            if path.len() > 8 * weft_wire::meta::PATH_LEN_MAX {
                return Ok(None);
            }
            path.splice(0..0, inode.name.iter().copied().chain([b'/']));
            at = inode.parent;
            if at != ROOT {
                above = Some(known_inode(s, at)?);
            }
        }
    }

    pub(super) fn rules(&self, s: &dyn Snapshot, at: &Place) -> Outcome<MetaReply> {
        let (mut dir, mut inode) = walk(s, self, at)?.existing()?;
        if !inode.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        let (mut ruled, mut len) = (Vec::new(), 0);
        loop {
            if let Some(found) = row::<RulesRow>(s, Table::Rules, &file_key(dir))? {
                len += row_len(&found);
                let rule = |rule: &RuleRow| Rule { pattern: rule.pattern.clone(), layout: spec(&wish(rule)) };
                ruled.push(RuledDirectory {
                    directory: dir,
                    path: path_of(s, dir)?,
                    rules: found.rules.iter().map(rule).collect(),
                });
            }
            if dir == ROOT || len > REPLY_LEN_MAX || inode.parent == dir {
                return Ok(MetaReply::Rules(ruled));
            }
            dir = inode.parent;
            inode = known_inode(s, dir)?;
        }
    }

    pub(super) fn change_rules(
        &self,
        t: &mut dyn Transaction,
        at: &Place,
        forget: &Forget,
        add: &[Rule],
    ) -> Outcome<MetaReply> {
        let (dir, mut inode) = walk(t, self, at)?.existing()?;
        if !inode.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        if !owns(self.who, &inode) {
            return Err(Fault::new(Errno::EPERM, "only the owner of a directory sets rules for it"));
        }
        if inode.nlink == 0 {
            return Err(Errno::ENOENT.into()); // removed, but open somewhere
        }
        let mut rules = Vec::with_capacity(add.len());
        for Rule { pattern, layout } in add {
            let told = |fault: Fault| fault.about(&format!("rule {pattern}"));
            let wish = Wish::from(layout);
            self.core.layouts.check(&wish).map_err(told)?;
            let Wish { choice, by_class } = wish;
            rules.push(RuleRow { pattern: pattern.clone(), choice, by_class });
        }
        let kept = row::<RulesRow>(t, Table::Rules, &file_key(dir))?.unwrap_or_default().rules;
        let is_gone = |rule: &RuleRow| {
            let forgotten = match forget {
                Forget::All => true,
                Forget::These(these) => these.contains(&rule.pattern),
                Forget::Replaced => false,
            };
            forgotten || add.iter().any(|new| new.pattern == rule.pattern)
        };
        if let Forget::These(these) = forget {
            let missing = |pattern: &&Pattern| !kept.iter().any(|rule| rule.pattern == **pattern);
            if let Some(pattern) = these.iter().find(missing) {
                return Err(Fault::new(Errno::ENOENT, format!("there is no rule {pattern} here")));
            }
        }
        rules.extend(kept.into_iter().filter(|rule| !is_gone(rule)));
        if rules.len() > RULES_MAX {
            let detail = format!("{} rules are more than the {RULES_MAX} of a directory", rules.len());
            return Err(Fault::new(Errno::ENOSPC, detail));
        }
        let new = RulesRow { rules };
        if row_len(&new) > ROW_LEN_MAX {
            let detail = format!(
                "the rules of a directory take at most {ROW_LEN_MAX} bytes: use fewer parts or rules"
            );
            return Err(Fault::new(Errno::ENOSPC, detail));
        }
        inode.ctime = self.now;
        put_inode(t, dir, &inode);
        // Last: what is in memory does not go back.
        let mut known = self.core.rules.lock();
        if new.rules.is_empty() {
            t.delete(Table::Rules, &file_key(dir));
            known.directories.remove(&dir);
        } else {
            put_row(t, Table::Rules, &file_key(dir), &new);
            known.directories.insert(dir, Arc::new(new));
        }
        Ok(MetaReply::Done)
    }
}

/// What a rule wants.
pub(super) fn wish(rule: &RuleRow) -> Wish {
    Wish { choice: rule.choice.clone(), by_class: rule.by_class.clone() }
}

fn row_len(row: &RulesRow) -> usize {
    postcard::experimental::serialized_size(row).unwrap_or(usize::MAX)
}
