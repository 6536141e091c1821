//! Targets that take no new files, and why. Placement asks here and nowhere else.

use super::fault::Fault;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use weft_core::{ByteLen, Candidate, TargetId};
use weft_wire::Errno;

/// Why a target takes no new files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Reason {
    /// Less space is free than the target keeps.
    Full {
        /// Bytes free.
        free: ByteLen,
        /// Bytes that are to stay free.
        reserve: ByteLen,
    },
    /// The target's server does not answer the metadata server.
    Down(Arc<Down>),
    /// The target's server refuses to use its directory.
    Refused(Arc<str>),
    /// State of the target on record, as the rest of a sentence.
    State(&'static str),
}

/// A data server that does not answer.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Down {
    /// Name in the cluster file.
    pub server: String,
    /// Cause, for people.
    pub cause: String,
}

/// Targets that take no new files.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Closed(pub BTreeMap<TargetId, Reason>);

impl Closed {
    pub(super) fn has(&self, target: TargetId) -> bool {
        self.0.contains_key(&target)
    }

    /// Opens those of `targets` again whose server is down: for a file that lies there already.
    pub(super) fn reopen_down(&mut self, targets: impl IntoIterator<Item = TargetId>) {
        for target in targets {
            if matches!(self.0.get(&target), Some(Reason::Down(_))) {
                self.0.remove(&target);
            }
        }
    }

    /// The error for a file that finds no target, if closed targets are the cause: `admits` says which candidates the file
    /// could have had, `admitted` says the same in words.
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
        // Space that a server which is down may have is not known to be missing.
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

impl fmt::Display for Closed {
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
