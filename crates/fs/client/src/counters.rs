//! Counters of one client: messages, leases and connections, for measurements and tests.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts since the client was created.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Requests sent to data servers; repeated ones count again.
    pub data_messages: u64,
    /// Requests sent to the metadata server, one-way messages included.
    pub meta_messages: u64,
    /// Reads and writes through leased descriptors: no message, one system call each. Where threads share an open
    /// file, a few are not counted.
    pub leased_operations: u64,
    /// Leases granted.
    pub leases: u64,
    /// Write payloads that went through shared memory.
    pub shared_payloads: u64,
    /// Connections made.
    pub connections: u64,
    /// Requests sent again after a connection was lost.
    pub repeated: u64,
}

macro_rules! counters {
    ($($name:ident),*) => {
        /// The atomics behind [`Counts`].
        #[derive(Default, Debug)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
        }

        impl Counters {
            pub(crate) fn read(&self) -> Counts {
                Counts { $($name: self.$name.get(),)* }
            }
        }
    };
}

counters!(data_messages, meta_messages, leased_operations, leases, shared_payloads, connections, repeated);

/// One counter.
#[derive(Default, Debug)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn one(&self) {
        self.add(1);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }
}
