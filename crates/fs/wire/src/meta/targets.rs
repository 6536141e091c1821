//! Targets that join the cluster, attach when their server starts, and retire.
//!
//! Before a data server uses a target's directory, it asks the metadata server ([`MetaRequest::JudgeTarget`]). It then
//! stores a new token in the target's identity file and reports it ([`MetaRequest::AttachTarget`]). Both sides then
//! have the same token, unless one of them is replaced by an older copy of itself.
//!
//! [`MetaRequest::JudgeTarget`]: super::MetaRequest::JudgeTarget
//! [`MetaRequest::AttachTarget`]: super::MetaRequest::AttachTarget

use serde::{Deserialize, Serialize};
use weft_core::{AttachToken, ClusterId, TargetId, TargetState, TargetUuid};

/// Maximum number of file ids in one [`MetaRequest::Lineage`](super::MetaRequest::Lineage).
pub const LINEAGE_MAX: usize = 4096;

/// Contents of a target's directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum TargetClaim {
    /// No identity file.
    Blank,
    /// Identity file of the format without cluster id and uuid, with the right cluster name and target number.
    Version1,
    /// Identity file.
    Identity {
        /// Cluster that the target joined.
        cluster: ClusterId,
        /// Identity of the disk.
        uuid: TargetUuid,
        /// Tokens that the metadata server may have: that of the last attach, and the one before it.
        tokens: [AttachToken; 2],
    },
}

/// Decision whether a target may be used.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum TargetVerdict {
    /// The target attaches; this is the token on record.
    Attach(AttachToken),
    /// The target may join the cluster; a blank directory is formatted.
    Join,
    /// The target must not be used.
    Refused(TargetRefusal),
}

/// Reason why a target must not be used.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum TargetRefusal {
    /// The directory is blank, but the target has a disk on record.
    Blank,
    /// The directory is missing. Never sent.
    Missing,
    /// The directory is unusable for another reason. Never sent.
    Unusable(String),
    /// The disk belongs to another cluster.
    Foreign {
        /// Identity of that cluster; [`ClusterId::NONE`] if the format has none.
        found: ClusterId,
    },
    /// The disk differs from the one that joined as this target.
    OtherDisk {
        /// Disk in the directory.
        found: TargetUuid,
        /// Disk that joined.
        joined: TargetUuid,
    },
    /// The disk was replaced by another one.
    Replaced,
    /// The target is not on record.
    NotJoined,
    /// The target was removed from the cluster.
    Retired,
    /// The target is older than its record: an older copy of its disk was restored.
    OlderTarget,
    /// The record is older than the target: an older copy of the metadata was restored.
    OlderMetadata,
    /// Target and record each took part in an attach that the other does not know.
    Diverged,
}

impl TargetRefusal {
    /// Returns the reason as one word, for tables.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Blank => "blank",
            Self::Missing => "missing",
            Self::Unusable(_) => "unusable",
            Self::Foreign { .. } => "foreign",
            Self::OtherDisk { .. } => "other disk",
            Self::Replaced => "replaced",
            Self::NotJoined => "not joined",
            Self::Retired => "retired",
            Self::OlderTarget => "older copy",
            Self::OlderMetadata => "older metadata",
            Self::Diverged => "diverged",
        }
    }

    /// Returns the reason and the remedy, for the target at `path` of cluster `cluster`.
    pub fn explain(&self, target: TargetId, path: &str, cluster: ClusterId) -> String {
        let number = target.0;
        let lost = format!("if the disk is lost, `weft target replace {number} --data-lost`");
        let mount = format!("mount the disk of {target} there and start the server again; {lost}");
        let accept = format!("`weft target accept {number}`, start the server again, then run `weft fsck`");
        match self {
            Self::Blank => format!("{path}: blank, but {target} has joined with another disk: {mount}"),
            Self::Missing => format!(
                "{path}: there is no such directory: {mount}; for a target that has never joined, create the directory, then \
                 `weft target add {number}`"
            ),
            Self::Unusable(why) => why.clone(),
            Self::Foreign { found } if found.is_none() => format!(
                "{path}: formatted before clusters had identities, for another cluster than {cluster}: correct the \
                 target's path; {lost}"
            ),
            Self::Foreign { found } => {
                format!(
                    "{path}: belongs to cluster {found}, this is cluster {cluster}: correct the target's path; {lost}"
                )
            }
            Self::OtherDisk { found, joined } => {
                format!("{path}: has disk {found}, but {target} joined with disk {joined}: {mount}")
            }
            Self::Replaced => format!(
                "{path}: the disk that was replaced as {target}: mount the new one there, and start the server again"
            ),
            Self::NotJoined => format!(
                "{path}: {target} has not joined the cluster: `weft target add {number}`, then start the server again \
                 (or start it with --format)"
            ),
            Self::Retired => format!(
                "{path}: {target} was removed from the cluster: take it out of the cluster file, and give a new target \
                 another number"
            ),
            Self::OlderTarget => format!(
                "{path}: older than the metadata: an older copy of {target} was restored, and what was written since is \
                 missing there: restore the latest copy; to go on with this one, {accept}"
            ),
            Self::OlderMetadata => format!(
                "{path}: newer than the metadata: an older copy of the metadata was restored, and files made since are \
                 unknown to it: restore the latest copy; to go on with this one, {accept}"
            ),
            Self::Diverged => format!(
                "{path}: has been in use with another copy of the metadata: restore the latest copy of both; to go on \
                 with these, {accept}"
            ),
        }
    }
}

/// Target on record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TargetRecord {
    /// Number of the target.
    pub target: TargetId,
    /// State.
    pub state: TargetState,
    /// Identity of the disk; [`TargetUuid::NONE`] before the first attach.
    pub uuid: TargetUuid,
    /// Number of attaches.
    pub attaches: u64,
    /// Whether the next attach is accepted although target and record do not match.
    pub accepts: bool,
}

/// Change of a target by an administrator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum TargetChange {
    /// Lets a blank disk join as this target, which is not on record.
    Add,
    /// Accepts the next attach although an older copy of the target or of the metadata was restored.
    Accept,
    /// Stops placing new files on the target.
    Drain,
    /// Places new files on the target again.
    Activate,
    /// Lets another disk join as this target. Rejected while files have data there, unless that data is lost.
    Replace {
        /// Whether the data is lost.
        data_lost: bool,
    },
    /// Removes the target from the cluster. Rejected while files have data there.
    Remove,
}
