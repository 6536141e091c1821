//! Rules of directories: which files below them get which layout.

use super::LayoutSpec;
use crate::bounded;
use serde::{Deserialize, Serialize};
use weft_core::{ByteLen, FileId, Pattern, TargetId};

/// The most rules of one directory.
pub const RULES_MAX: usize = 256;
/// The most directories in [`MetaReply::Rules`](super::MetaReply::Rules): as many as a path can have.
pub const RULED_MAX: usize = super::PATH_LEN_MAX / 2;

/// A rule: files below a directory, and the layout that they get when they are made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Rule {
    /// Which files, by their path below the directory.
    pub pattern: Pattern,
    /// Their layout.
    pub layout: LayoutSpec,
}

/// Which rules a directory is to lose.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Forget {
    /// None but those with the pattern of a new one.
    Replaced,
    /// All.
    All,
    /// Those with these patterns; it is an error when one of them is not there.
    These(#[serde(deserialize_with = "bounded::vec::<_, _, RULES_MAX>")] Vec<Pattern>),
}

/// A directory that has rules.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RuledDirectory {
    /// Which.
    pub directory: FileId,
    /// Its path from the root, without slashes at the ends.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// The first that fits decides.
    #[serde(deserialize_with = "bounded::vec::<_, _, RULES_MAX>")]
    pub rules: Vec<Rule>,
}

/// The account of a target with limited room.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TargetRoom {
    /// Which.
    pub target: TargetId,
    /// What layouts may promise there.
    pub room: ByteLen,
    /// What they do; more than `room` when that was made smaller.
    pub promised: ByteLen,
}
