//! Weft's protocol: message header, message families, authentication and capabilities.
//!
//! A message consists of a [`Header`], a body (a [`postcard`](https://docs.rs/postcard) encoding of one of the message
//! enums) and a payload (file bytes, which are never copied into the body). Bytes from the network stay untrusted until
//! the family's `decode` has checked them. Every length is checked against a limit before memory is allocated for it.
//!
//! | family | request | reply | spoken between |
//! | --- | --- | --- | --- |
//! | [`hello`] | [`hello::Hello`] | [`hello::Welcome`] | every client and every server, once per connection |
//! | [`data`] | [`data::DataRequest`] | [`data::DataReply`] | clients and the data service |
//! | [`meta`] | [`meta::MetaRequest`] | [`meta::MetaReply`] | clients and the metadata service |
//! | [`status`] | [`status::StatusRequest`] | [`status::StatusReply`] | any peer and any server |
//! | [`delegate`] | [`delegate::DelegateRequest`] | [`delegate::DelegateReply`] | ranks of a job and its I/O delegates |
// This crate also runs in the simulated world: clock, files, sockets and threads come from weft-env only (clippy.toml).
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod activity;
mod bounded;
pub mod capability;
pub mod cluster;
pub mod data;
pub mod delegate;
pub mod error;
pub mod greeting;
pub mod header;
pub mod hello;
pub mod keys;
pub mod level;
pub mod link;
pub mod meta;
pub mod secure;
pub mod session;
pub mod status;
pub mod watch;

pub use capability::{Capability, Rights, WriteLimit};
pub use cluster::ClusterMap;
pub use error::{Errno, WireError};
pub use header::{Family, HEADER_LEN, Header, Kind, Malformed, is_other_level};
pub use keys::{ClusterSecret, KeyClaims, KeyId};
pub use level::{Level, Levels};
pub use link::{Incoming, Link};
pub use session::{BoundSession, RETRY_FOR_MAX, SessionName, SessionOwner, WalkProof};
