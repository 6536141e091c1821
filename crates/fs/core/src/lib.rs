//! Pure types and decisions of Weft: units, layouts and the splitting function.
//!
//! This crate uses no runtime, socket, clock or file; its manifest proves it.
// Also runs in the simulation, so clocks, files, sockets and threads come from weft-env alone (see clippy.toml).
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod access;
pub mod cache;
mod changed_ranges;
mod cluster;
mod compression;
mod data_class;
pub mod delegates;
mod device_load;
pub mod escape;
mod geometry;
mod histogram;
pub mod ibridge;
mod integrity;
pub mod layout;
pub mod locks;
pub mod merge;
mod module;
pub mod parts;
pub mod pattern;
pub mod placement;
pub mod quota;
pub mod random;
pub mod ranges;
mod recorded;
pub mod repeats;
pub mod replicas;
mod reserve;
pub mod size;
pub mod split;
mod ssd_budget;
pub mod units;

pub use access::{Access, AccessHistory};
pub use changed_ranges::ChangedRanges;
pub use cluster::{AttachToken, ClusterId, TargetSettings, TargetState, TargetUuid};
pub use compression::{
    CHUNK_LEN_DEFAULT, CHUNK_LEN_MAX, CHUNK_LEN_MIN, COMPRESSION_ATTRIBUTE, CodecPolicy, Compression,
    CompressionSetting, parse_compression,
};
pub use data_class::DataClass;
pub use device_load::DeviceLoad;
pub use escape::{escaped, unescaped};
pub use histogram::Histogram;
pub use integrity::Integrity;
pub use layout::{Component, Layout, LayoutError, RawLayout, Strip};
pub use module::Module;
pub use parts::{ClassLayout, ClassPart};
pub use pattern::Pattern;
pub use placement::{Candidate, ClassFilter, Factor, Placement, PlacementError, Start};
pub use quota::{QuotaId, QuotaLimits, QuotaUsage};
pub use ranges::{ByteRange, RangeSet};
pub use recorded::RecordedLens;
pub use reserve::Reserve;
pub use split::{Piece, SplitPolicy, SubFlags, SubRequest};
pub use ssd_budget::{CacheShare, CacheShareError, SsdBudget};
pub use units::{
    BufferOffset, ByteLen, Extent, FileId, FileOffset, LocalExtent, LocalOffset, Nanos, ObjectId, ServerId,
    TargetId, Timestamp,
};
