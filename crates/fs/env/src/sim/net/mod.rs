//! The simulated network: streams of segments, each with a time of arrival.

mod conn;
mod link;
mod listener;
mod model;

pub use conn::SimConn;
pub(super) use conn::connect;
pub(super) use link::Link;
pub use listener::SimListener;
pub(super) use listener::{ListenerKey, Port, listen};
pub(super) use model::Network;
pub use model::{NetworkFaults, NetworkModel, SimpleNetwork};
