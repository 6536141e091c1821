//! Targets that take no new files, and the reason for each. All placement decisions ask this module.

use super::fault::Fault;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use weft_core::{ByteLen, Candidate, TargetId};
use weft_wire::Errno;

/// Reason why a target takes no new files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Reason {
    /// Less space is free than must stay free.
    Full {
        /// Bytes free.
        free: ByteLen,
        /// Bytes that must stay free.
        reserve: ByteLen,
    },
    /// The target's server does not answer the metadata server.
    Down(Arc<DownServer>),
    /// The target's server refuses to use its directory.
    Refused(Arc<str>),
    /// Recorded state of the target, as the rest of a sentence.
    State(&'static str),
}

/// A data server that does not answer.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct DownServer {
    /// Name in the cluster file.
    pub server: String,
    /// Cause, for the error message.
    pub cause: String,
}

/// Targets that take no new files.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct ClosedTargets(pub BTreeMap<TargetId, Reason>);

impl ClosedTargets {
    pub(super) fn has(&self, target: TargetId) -> bool {
        self.0.contains_key(&target)
    }

    /// Reopens those of `targets` whose server is down, for a file that is there already.
    pub(super) fn reopen_down(&mut self, targets: impl IntoIterator<Item = TargetId>) {
        for target in targets {
            if matches!(self.0.get(&target), Some(Reason::Down(_))) {
                self.0.remove(&target);
            }
        }
    }

    /// Error for a file that finds no target, if closed targets are the cause. `admits` says which candidates the file
    /// could use; `admitted` describes them.
    pub(super) fn refusal(
        &self,
        candidates: &[Candidate<'_>],
        admits: impl Fn(&Candidate<'_>) -> bool,
        admitted: &str,
    ) -> Option<Fault> {
        let among =
            |target: &TargetId| candidates.iter().any(|found| found.target == *target && admits(found));
        let causes: BTreeMap<_, _> =
            self.0.iter().filter(|(target, _)| among(target)).map(|(id, why)| (*id, why.clone())).collect();
        if causes.is_empty() {
            return None;
        }
        let causes = Self(causes);
        // Space on a server that is down is unknown, not missing.
        let is_down = causes.0.values().any(|reason| matches!(reason, Reason::Down(_) | Reason::Refused(_)));
        Some(if is_down {
            let detail = format!(
                "no target {admitted} takes a new file ({causes}): see which servers run with 'weft status' and start \
                 them with 'weft serve', or ask for other targets"
            );
            Fault::new(Errno::EIO, detail)
        } else {
            let detail = format!(
                "no target {admitted} has space for a new file ({causes}): remove files, add targets, or lower \
                 their reserve in the cluster file"
            );
            Fault::new(Errno::ENOSPC, detail)
        })
    }
}

impl fmt::Display for ClosedTargets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (target, reason)) in self.0.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            match reason {
                Reason::Full { free, reserve } => {
                    write!(f, "{comma}{target} has {free} bytes free and keeps {reserve}")?;
                }
                Reason::Refused(why) => write!(f, "{comma}{target} is refused: {why}")?,
                Reason::State(why) => write!(f, "{comma}{target} {why}")?,
                Reason::Down(down) => {
                    write!(f, "{comma}{target}: server {} does not answer: {}", down.server, down.cause)?;
                }
            }
        }
        Ok(())
    }
}
