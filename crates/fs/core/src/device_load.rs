//! Load of block devices, as their kernel counts it.

use serde::{Deserialize, Serialize};

/// Counters of a block device, or the sums of several.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct DeviceLoad {
    /// Requests that the device has not completed.
    pub in_flight: u64,
    /// Sum over all requests so far of the time that each was queued or served, in milliseconds.
    pub queued_ms: u64,
    /// Bytes read so far.
    pub bytes_read: u64,
    /// Bytes written so far.
    pub bytes_written: u64,
}

impl DeviceLoad {
    /// Adds the load of another device.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            in_flight: self.in_flight.saturating_add(other.in_flight),
            queued_ms: self.queued_ms.saturating_add(other.queued_ms),
            bytes_read: self.bytes_read.saturating_add(other.bytes_read),
            bytes_written: self.bytes_written.saturating_add(other.bytes_written),
        }
    }
}
