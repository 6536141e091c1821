//! Traces for other eyes: [Parquet](parquet) files for data frames and SQL, [heat maps](heat) for people.
//!
//! A crate of its own because of what it depends on: `weft-trace` is part of the preload library, which must stay
//! small.

pub mod heat;
pub mod parquet;
