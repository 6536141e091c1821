//! A lock-free filter for datafiles without bytes in the log.

use super::map::Map;
use crate::datafile::DatafileKey;
use std::sync::atomic::{AtomicU32, Ordering};

/// Counts the datafiles in the log per hash value. A count of zero proves that a datafile has no bytes in the log.
pub(super) struct Filter(Box<[AtomicU32]>);

impl Filter {
    const LEN: usize = 4096;

    pub fn new() -> Self {
        Self((0..Self::LEN).map(|_| AtomicU32::new(0)).collect())
    }

    fn slot(&self, key: DatafileKey) -> &AtomicU32 {
        let object = u64::from(key.object.component) << 16 | u64::from(key.object.column);
        let hash = (key.file.0 ^ object << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.0[(hash >> 52) as usize % Self::LEN]
    }

    #[inline]
    pub fn may_have(&self, key: DatafileKey) -> bool {
        self.slot(key).load(Ordering::Acquire) > 0
    }

    pub fn update(&self, map: &mut Map) {
        for key in map.files_added.drain(..) {
            self.slot(key).fetch_add(1, Ordering::AcqRel);
        }
        for key in map.files_removed.drain(..) {
            self.slot(key).fetch_sub(1, Ordering::AcqRel);
        }
    }
}
