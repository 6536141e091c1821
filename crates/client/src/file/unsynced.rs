//! What was changed through an open file and not synced since: where it lies, and in which life of the machine there.

use crate::error::{Error, Result};
use parking_lot::Mutex;
use weft_core::TargetId;
use weft_env::plants::{Plant, planted};
use weft_wire::Errno;

/// Changes of one target's datafiles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Change {
    target: TargetId,
    /// Of the machine that acknowledged the first of them.
    boot: u64,
    count: u64,
}

/// What a sync has to speak for: an acknowledged change lives in the memory of a machine, and a machine that has lost
/// power since would sync what is left of it without a word.
#[derive(Default, Debug)]
pub(crate) struct Unsynced(Mutex<Vec<Change>>);

/// What was there when a sync began.
pub(crate) struct Before(Vec<Change>);

impl Unsynced {
    /// A change was acknowledged by a machine on the network. One on this node dies with its clients.
    pub(crate) fn note(&self, target: TargetId, boot: u64) {
        let mut all = self.0.lock();
        match all.iter_mut().find(|change| change.target == target) {
            Some(change) => change.count += 1,
            None => all.push(Change { target, boot, count: 1 }),
        }
    }

    /// All of these machines acknowledged a change.
    pub(crate) fn note_all(&self, boots: &[(TargetId, u64)]) {
        boots.iter().for_each(|&(target, boot)| self.note(target, boot));
    }

    /// Before a sync.
    pub(crate) fn before(&self) -> Before {
        Before(self.0.lock().clone())
    }

    /// Targets that a sync has to speak for and that are not among `boots`.
    pub(super) fn elsewhere(&self, before: &Before, boots: &[(TargetId, u64)]) -> Vec<TargetId> {
        let asked = |target| boots.iter().any(|(other, _)| *other == target);
        before.0.iter().map(|change| change.target).filter(|target| !asked(*target)).collect()
    }

    /// A sync has succeeded on machines in these lives.
    ///
    /// # Errors
    /// `EIO`, once, when one of them lost what it had acknowledged.
    pub(crate) fn synced(&self, before: &Before, boots: &[(TargetId, u64)]) -> Result<()> {
        let boot_of = |target| boots.iter().find(|(other, _)| *other == target).map(|(_, boot)| *boot);
        let is_lost = before.0.iter().any(|change| boot_of(change.target) != Some(change.boot));
        // What came while it was synced stays to be synced.
        self.0.lock().retain(|change| !before.0.contains(change));
        if is_lost && !planted(Plant::ForgottenBoot) {
            const WHY: &str = "a server's machine went down after it had taken what was written and before this \
                               sync: write it again";
            return Err(Error::misuse(Errno::EIO, WHY));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_speaks_for_what_its_machines_had_taken() {
        let (unsynced, target) = (Unsynced::default(), TargetId(3));
        unsynced.note(target, 7);
        let before = unsynced.before();
        unsynced.note(target, 7);
        assert_eq!(unsynced.synced(&before, &[(target, 7)]), Ok(()));
        assert!(unsynced.synced(&unsynced.before(), &[(target, 8)]).is_err(), "the later write is lost");
        assert_eq!(unsynced.synced(&unsynced.before(), &[(target, 8)]), Ok(()), "told once");
    }
}
