//! Bytes of a small file that came with the reply to its open. Reads use them while the metadata service lets nobody change them.

use crate::core::Core;
use parking_lot::Mutex;
use weft_core::Nanos;
use weft_env::Env;
use weft_wire::meta::BYTE_LEASE;

/// Leased bytes of an open file.
pub(crate) struct LeasedBytes(Mutex<Option<Leased>>);

struct Leased {
    bytes: Vec<u8>,
    until: Nanos,
}

impl LeasedBytes {
    /// `bytes` are those of a reply to an open that was sent at `sent_at`, if it had any.
    pub(crate) fn new(bytes: Option<Vec<u8>>, sent_at: Nanos) -> Self {
        Self(Mutex::new(bytes.map(|bytes| Leased { bytes, until: sent_at.saturating_add(BYTE_LEASE) })))
    }

    /// Ends the use of the lease. Every change through the open file begins with this, because its own lease does not delay it.
    pub(crate) fn end(&self) {
        *self.0.lock() = None;
    }

    /// Calls `body` with all bytes of the file, if the lease has not ended. They are those of the time of this call, even if the
    /// process is stopped within `body`.
    pub(crate) fn with<E: Env, R>(&self, core: &Core<E>, body: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let mut leased = self.0.lock();
        if leased.as_ref().is_some_and(|leased| core.env.now() >= leased.until) {
            *leased = None;
        }
        leased.as_ref().map(|leased| body(&leased.bytes))
    }
}
