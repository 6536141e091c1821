//! Changes through an open file that are not synced yet: on which target, and during which boot of its machine.

use crate::error::{Error, Result};
use parking_lot::Mutex;
use weft_core::TargetId;
use weft_env::mutants::{Mutant, is_seeded};
use weft_wire::Errno;

/// Changes to the datafiles of one target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Change {
    target: TargetId,
    /// Boot id of the machine that acknowledged the first of these changes.
    boot: u64,
    count: u64,
}

/// Acknowledged changes that the next sync must make durable.
///
/// Such a change lives in the memory of a machine. A machine that has rebooted would sync what is left and report
/// success, so the boot id is compared.
#[derive(Default, Debug)]
pub(crate) struct Unsynced(Mutex<Vec<Change>>);

/// The changes that were unsynced when a sync began.
pub(crate) struct SyncPoint(Vec<Change>);

impl Unsynced {
    /// Records a change that a machine on the network acknowledged. A machine that loses power takes its local clients
    /// with it, so local changes are not recorded.
    pub(crate) fn note(&self, target: TargetId, boot: u64) {
        let mut all = self.0.lock();
        match all.iter_mut().find(|change| change.target == target) {
            Some(change) => change.count += 1,
            None => all.push(Change { target, boot, count: 1 }),
        }
    }

    /// Records a change that each of these machines acknowledged.
    pub(crate) fn note_all(&self, boots: &[(TargetId, u64)]) {
        boots.iter().for_each(|&(target, boot)| self.note(target, boot));
    }

    /// Returns the current changes; called before a sync.
    pub(crate) fn begin_sync(&self) -> SyncPoint {
        SyncPoint(self.0.lock().clone())
    }

    /// Returns the targets with changes that are not among `boots`.
    pub(super) fn targets_not_in(&self, before: &SyncPoint, boots: &[(TargetId, u64)]) -> Vec<TargetId> {
        let asked = |target| boots.iter().any(|(other, _)| *other == target);
        before.0.iter().map(|change| change.target).filter(|target| !asked(*target)).collect()
    }

    /// Completes a sync that succeeded on machines with these boot ids.
    ///
    /// # Errors
    /// `EIO`, once, when a machine lost changes that it had acknowledged.
    pub(crate) fn finish_sync(&self, before: &SyncPoint, boots: &[(TargetId, u64)]) -> Result<()> {
        let boot_of = |target| boots.iter().find(|(other, _)| *other == target).map(|(_, boot)| *boot);
        let is_lost = before.0.iter().any(|change| boot_of(change.target) != Some(change.boot));
        // Changes that arrived during the sync remain.
        self.0.lock().retain(|change| !before.0.contains(change));
        if is_lost && !is_seeded(Mutant::ForgottenBoot) {
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
        let before = unsynced.begin_sync();
        unsynced.note(target, 7);
        assert_eq!(unsynced.finish_sync(&before, &[(target, 7)]), Ok(()));
        assert!(
            unsynced.finish_sync(&unsynced.begin_sync(), &[(target, 8)]).is_err(),
            "the later write is lost"
        );
        assert_eq!(unsynced.finish_sync(&unsynced.begin_sync(), &[(target, 8)]), Ok(()), "reported once");
    }
}
