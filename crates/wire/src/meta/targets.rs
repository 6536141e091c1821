//! Targets that join the cluster, attach at the start of their server, and retire.
//!
//! A data server asks before it uses a target's directory ([`MetaRequest::JudgeTarget`]), stores the new token in the
//! target's identity file, and reports it ([`MetaRequest::AttachTarget`]). Both sides then know the same token, unless one
//! of them is replaced by an older copy of itself.
//!
//! [`MetaRequest::JudgeTarget`]: super::MetaRequest::JudgeTarget
//! [`MetaRequest::AttachTarget`]: super::MetaRequest::AttachTarget

use serde::{Deserialize, Serialize};
use weft_core::{AttachToken, ClusterId, TargetId, TargetState, TargetUuid};

/// The most file ids in one [`MetaRequest::Lineage`](super::MetaRequest::Lineage).
pub const LINEAGE_MAX: usize = 4096;

/// What a data server found in a target's directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum TargetClaim {
    /// No identity file.
    Blank,
    /// The identity file of a format without cluster id and uuid, for the right cluster name and target number.
    Version1,
    /// An identity file.
    Identity {
        /// The cluster that the target joined.
        cluster: ClusterId,
        /// The disk.
        uuid: TargetUuid,
        /// The tokens that the metadata server may know: that of the last attach, and the one before.
        tokens: [AttachToken; 2],
    },
}

/// Whether a target may be used.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum TargetVerdict {
    /// It attaches; this is the token on record.
    Attach(AttachToken),
    /// It may join the cluster; a blank directory is formatted.
    Join,
    /// It must not be used.
    Refused(TargetRefusal),
}

/// Why a target must not be used.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum TargetRefusal {
    /// The directory is blank, and the target has a disk.
    Blank,
    /// The directory is missing. Never sent.
    Missing,
    /// The directory cannot be used for another reason. Never sent.
    Unusable(String),
    /// The disk belongs to another cluster.
    Foreign {
        /// Identity of that cluster; [`ClusterId::NONE`] where the format has none.
        found: ClusterId,
    },
    /// The disk is another one than the one that joined as this target.
    OtherDisk {
        /// The disk in the directory.
        found: TargetUuid,
        /// The disk that joined.
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
    /// Target and record each took part in an attach that the other one does not know.
    Diverged,
}

impl TargetRefusal {
    /// The word for it in tables.
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

    /// The reason and the remedy, for the target at `path` of cluster `cluster`.
    pub fn told(&self, target: TargetId, path: &str, cluster: ClusterId) -> String {
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

/// A target on record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TargetRecord {
    /// Its number.
    pub target: TargetId,
    /// Its state.
    pub state: TargetState,
    /// Its disk; [`TargetUuid::NONE`] before the first attach.
    pub uuid: TargetUuid,
    /// Number of attaches.
    pub attaches: u64,
    /// Whether the next attach is accepted though target and record do not fit.
    pub accepts: bool,
}

/// What an administrator does with a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum TargetChange {
    /// A blank disk may become this target, which is not on record.
    Add,
    /// The next attach is accepted though an older copy of the target or of the metadata was restored.
    Accept,
    /// Takes no new files from here on.
    Drain,
    /// Takes new files again.
    Activate,
    /// Another disk may become this target. Refused while files have data there, unless that is lost.
    Replace {
        /// The data is lost.
        data_lost: bool,
    },
    /// Takes the target out of the cluster. Refused while files have data there.
    Remove,
}
