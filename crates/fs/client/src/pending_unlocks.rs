//! Unlocks that the metadata server has not acknowledged. Until it receives them, other clients wait for the locks.

use parking_lot::Mutex;
use weft_wire::meta::MetaRequest;

/// Unlocks to be sent before the next request.
#[derive(Default)]
pub(crate) struct PendingUnlocks(Mutex<Vec<MetaRequest>>);

impl PendingUnlocks {
    pub(crate) fn enqueue(&self, unlock: MetaRequest) {
        self.0.lock().push(unlock);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Removes and returns the unlocks that `wanted` selects.
    pub(crate) fn take(&self, wanted: impl Fn(&MetaRequest) -> bool) -> Vec<MetaRequest> {
        let mut all = self.0.lock();
        let (taken, rest) = all.drain(..).partition(wanted);
        *all = rest;
        taken
    }
}
