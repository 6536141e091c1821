//! The simulated world: the operations of [`Env`](crate::Env) under virtual time, on one thread, decided by a seed.
//!
//! A [`Sim`] holds machines with processes and disks, and a network. It runs their tasks one at a time, in the order of
//! virtual time (nanoseconds). The same seed gives the same [`Sim::event_hash`].
//!
//! Only legal faults occur: disks lose or tear unsynced bytes, processes and machines die, and streams are late, silent
//! or reset.
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

/// Configuration of a world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SimConfig {
    /// Seed of all random decisions.
    pub seed: u64,
    /// Whether tasks that become runnable at the same instant run in an order chosen by the seed, instead of first
    /// come, first served.
    pub shuffle: bool,
    /// Representation of payloads.
    pub payload: Payload,
}

/// Representation of payloads in a world.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Payload {
    /// Bytes: a read returns the bytes that were written.
    #[default]
    Bytes,
    /// Lengths only. Programs get [`Hollow`](crate::Hollow) buffers for payloads. Connections, and files in folders
    /// that [`Control::keep_lengths`] names, carry and store only their lengths. Everything else keeps its bytes.
    /// Compression has the ratio of [`Control::set_coding`].
    Lengths,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self { seed: 1, shuffle: true, payload: Payload::Bytes }
    }
}
