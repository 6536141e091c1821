//! The simulated world: the same operations under virtual time, on one thread, decided by a seed.
//!
//! A [`Sim`] holds machines, processes on them, disks and a network, and runs their tasks one at a time in the order
//! of virtual time (nanoseconds). The same seed gives the same [`Sim::event_hash`]. Faults are legal ones only:
//! disks lose or tear what was not synced, processes and machines die, streams are late, silent or reset.
//!
//! ```
//! use weft_core::Nanos;
//! use weft_env::{Env, sim::Sim};
//!
//! let mut sim = Sim::with_seed(7);
//! let node = sim.node("a");
//! let env = node.clone();
//! sim.block_on(&node, async move { env.sleep(Nanos::from_s(3600)).await });
//! assert_eq!(sim.elapsed(), Nanos::from_s(3600));
//! ```

mod control;
mod disk;
mod env;
mod executor;
mod net;
mod notify;
mod rng;
mod shared;
mod world;

pub use control::Control;
pub use disk::{DiskFaults, SimBlockingFile, SimDir, SimFile, SimpleDisk, SpareDisk};
pub use env::SimEnv;
pub use executor::Sim;
pub use net::{NetworkFaults, NetworkModel, SimConn, SimListener, SimpleNetwork};
pub use notify::SimNotify;
pub use rng::Rng;
pub use shared::SimShared;

/// How a world behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SimConfig {
    /// Decides everything that is open.
    pub seed: u64,
    /// Tasks that can run at the same instant run in an order of the seed instead of first come, first served.
    pub shuffle: bool,
    /// What payloads are.
    pub payload: Payload,
}

/// What the payloads of a world are.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Payload {
    /// Bytes: whatever is written is read again.
    #[default]
    Bytes,
    /// Lengths only: programs are given [`Hollow`](crate::Hollow) buffers for payloads, of which connections carry, and
    /// folders that [`Control::keep_lengths`] names store, the lengths. Everything else keeps its bytes.
    Lengths,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self { seed: 1, shuffle: true, payload: Payload::Bytes }
    }
}
