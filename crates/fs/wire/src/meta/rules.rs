//! Rules of directories: patterns of file names, and the layouts of new files that match.

use super::LayoutSpec;
use crate::bounded;
use serde::{Deserialize, Serialize};
use weft_core::{ByteLen, FileId, Pattern, TargetId};

/// Maximum number of rules of one directory.
pub const RULES_MAX: usize = 256;
/// Maximum number of directories in [`MetaReply::Rules`](super::MetaReply::Rules): the maximum depth of a path.
pub const RULED_MAX: usize = super::PATH_LEN_MAX / 2;

/// Rule: a pattern of files below a directory, and the layout of new files that match.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Rule {
    /// Pattern of paths relative to the directory.
    pub pattern: Pattern,
    /// Layout of matching files.
    pub layout: LayoutSpec,
}

/// Rules to remove from a directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RuleRemoval {
    /// Only rules whose pattern a new rule has.
    Replaced,
    /// All rules.
    All,
    /// Rules with these patterns. It is an error if one of them does not exist.
    These(#[serde(deserialize_with = "bounded::vec::<_, _, RULES_MAX>")] Vec<Pattern>),
}

/// Directory with rules.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RuledDirectory {
    /// Inode of the directory.
    pub directory: FileId,
    /// Path from the root, without a leading or trailing slash.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// Rules; the first match decides.
    #[serde(deserialize_with = "bounded::vec::<_, _, RULES_MAX>")]
    pub rules: Vec<Rule>,
}

impl RuledDirectory {
    /// The rule for a file with this path from the root: the first that matches in `ruled`, nearest directory first.
    pub fn rule_for<'a>(ruled: &'a [Self], path: &[u8]) -> Option<&'a Rule> {
        ruled.iter().find_map(|directory| {
            let below = path.strip_prefix(directory.path.as_slice())?;
            let below = below.strip_prefix(b"/").unwrap_or(below);
            directory.rules.iter().find(|rule| rule.pattern.matches(below))
        })
    }
}

/// Reserved space of a target with limited capacity.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SpaceReservation {
    /// Target.
    pub target: TargetId,
    /// Space that layouts may reserve.
    #[serde(rename = "room")]
    pub capacity: ByteLen,
    /// Space that layouts have reserved; more than the limit if the limit was lowered later.
    #[serde(rename = "promised")]
    pub reserved: ByteLen,
}
