//! Pure types and decisions of Weft: units, layouts and the one splitting function.
//!
//! This crate names no runtime, socket, clock or file; its manifest proves it.
// Runs in the simulated world too: no clock, file, socket or thread but those of weft-env (see clippy.toml).
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod access;
mod changed;
mod cluster;
pub mod escape;
mod geometry;
mod histogram;
pub mod ibridge;
mod integrity;
pub mod layout;
pub mod locks;
pub mod merge;
pub mod parts;
pub mod pattern;
pub mod placement;
pub mod ranges;
mod recorded;
mod reserve;
pub mod size;
pub mod split;
pub mod units;

pub use access::{Access, AccessHistory};
pub use changed::Changed;
pub use cluster::{AttachToken, ClusterId, TargetState, TargetUuid};
pub use escape::{escaped, unescaped};
pub use histogram::Histogram;
pub use integrity::Integrity;
pub use layout::{Component, Layout, LayoutError, RawLayout, Strip};
pub use parts::{ClassLayout, ClassPart};
pub use pattern::Pattern;
pub use placement::{Candidate, ClassFilter, Factor, Placement, PlacementError, Start};
pub use ranges::{ByteRange, RangeSet};
pub use recorded::RecordedLens;
pub use reserve::Reserve;
pub use split::{Piece, SplitPolicy, SubFlags, SubRequest};
pub use units::{
    BufferOffset, ByteLen, Extent, FileId, FileOffset, LocalExtent, LocalOffset, Nanos, ObjectId, ServerId,
    TargetId, Timestamp,
};
