//! Rules of directories: which files created below them get which layout.
//!
//! A directory has one row of rules, or none. For a new file, the service looks at its directory, then at the one
//! above, up to the root. It takes the first rule that matches the path of the file below that directory. Rules are not
//! copied: they apply at once to everything below, and after a rename the rules of the new place apply.

use super::fault::{Fault, Outcome};
use super::layouts::{LayoutRequest, spec};
use super::op::Op;
use super::permit::owns;
use super::tables::{known_inode, path_of, put_inode, put_row, row};
use super::walk::walk;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use weft_core::{FileId, Pattern};
use weft_env::mutants::{Mutant, is_seeded};
use weft_store::metadata::{Inode, RuleRow, RulesRow, Scan, Snapshot, Table, Transaction, file_key};
use weft_wire::Errno;
use weft_wire::meta::{InodePath, LayoutSpec, MetaReply, ROOT, RULES_MAX, Rule, RuleRemoval, RuledDirectory};

/// Maximum size of the rules of a directory.
const ROW_LEN_MAX: usize = 128 << 10;
/// Approximate maximum size of a reply with rules.
const REPLY_LEN_MAX: usize = 512 << 10;

/// The rules of all directories, as in the database. Changed under its lock only.
#[derive(Default)]
pub(super) struct Rules {
    directories: BTreeMap<FileId, Arc<RulesRow>>,
}

impl Rules {
    /// Reads all rules of the database.
    pub(super) fn load(s: &dyn Snapshot) -> Outcome<Self> {
        let mut directories = BTreeMap::new();
        if is_seeded(Mutant::UnloadedRules) {
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

    /// Whether a directory has rules.
    pub(super) fn has(&self, dir: FileId) -> bool {
        self.directories.contains_key(&dir)
    }

    /// Forgets a removed directory.
    pub(super) fn forget(&mut self, dir: FileId) {
        self.directories.remove(&dir);
    }
}

/// The rule that applies to a new file.
pub(super) struct MatchedRule {
    /// All rules of the directory.
    rules: Arc<RulesRow>,
    /// Index of the rule.
    at: usize,
    /// Directory that has the rule.
    pub dir: FileId,
}

impl MatchedRule {
    pub(super) fn rule(&self) -> &RuleRow {
        &self.rules.rules[self.at]
    }
}

impl Op<'_> {
    /// The rule for a file created as `name` in `dir`.
    pub(super) fn rule_for(
        &self,
        s: &dyn Snapshot,
        dir: FileId,
        dir_inode: &Inode,
        name: &[u8],
    ) -> Outcome<Option<MatchedRule>> {
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
                return Ok(Some(MatchedRule { rules: of.clone(), at: fits, dir: at }));
            }
            if at == ROOT {
                return Ok(None);
            }
            let inode: &Inode = above.as_ref().unwrap_or(dir_inode);
            // A damaged tree must not block the service, so the path is bounded.
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

    pub(super) fn rules(&self, s: &dyn Snapshot, at: &InodePath) -> Outcome<MetaReply> {
        let (mut dir, mut inode) = walk(s, self, at)?.existing()?;
        if !inode.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        let (mut ruled, mut len) = (Vec::new(), 0);
        loop {
            if let Some(found) = row::<RulesRow>(s, Table::Rules, &file_key(dir))? {
                len += row_len(&found);
                let rule = |rule: &RuleRow| {
                    let layout = LayoutSpec { compression: rule.compression, ..spec(&request(rule)) };
                    Rule { pattern: rule.pattern.clone(), layout }
                };
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
        at: &InodePath,
        forget: &RuleRemoval,
        add: &[Rule],
    ) -> Outcome<MetaReply> {
        let (dir, mut inode) = walk(t, self, at)?.existing()?;
        if !inode.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        if !owns(self.caller, &inode) {
            return Err(Fault::new(Errno::EPERM, "only the owner of a directory sets rules for it"));
        }
        if inode.nlink == 0 {
            return Err(Errno::ENOENT.into()); // removed, but still open
        }
        let mut rules = Vec::with_capacity(add.len());
        for Rule { pattern, layout } in add {
            let describe = |fault: Fault| fault.about(&format!("rule {pattern}"));
            let request = LayoutRequest::from(layout);
            self.core.layouts.check(&request).map_err(describe)?;
            let LayoutRequest { choice, by_class } = request;
            rules.push(RuleRow {
                pattern: pattern.clone(),
                choice,
                by_class,
                compression: layout.compression,
            });
        }
        let kept = row::<RulesRow>(t, Table::Rules, &file_key(dir))?.unwrap_or_default().rules;
        let is_gone = |rule: &RuleRow| {
            let forgotten = match forget {
                RuleRemoval::All => true,
                RuleRemoval::These(these) => these.contains(&rule.pattern),
                RuleRemoval::Replaced => false,
            };
            forgotten || add.iter().any(|new| new.pattern == rule.pattern)
        };
        if let RuleRemoval::These(these) = forget {
            let missing = |pattern: &&Pattern| !kept.iter().any(|rule| rule.pattern == **pattern);
            if let Some(pattern) = these.iter().find(missing) {
                return Err(Fault::new(Errno::ENOENT, format!("the directory has no rule {pattern}")));
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
        // Last, because a change in memory is not rolled back.
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

/// The layout request of a rule.
pub(super) fn request(rule: &RuleRow) -> LayoutRequest {
    LayoutRequest { choice: rule.choice.clone(), by_class: rule.by_class.clone() }
}

fn row_len(row: &RulesRow) -> usize {
    postcard::experimental::serialized_size(row).unwrap_or(usize::MAX)
}
