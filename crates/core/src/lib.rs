//! Pure types and decisions of Weft: units, layouts and the one splitting function.
//!
//! This crate names no runtime, socket, clock or file; its manifest proves it.
pub mod units;

pub use units::{
    ByteLen, Extent, FileId, FileOffset, LocalOffset, Nanos, ObjectId, ServerId, TargetId, Timestamp,
};
