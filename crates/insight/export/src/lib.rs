//! Exports traces: [Parquet](parquet) files for data frames and SQL, and [heat maps](heat) as pictures.
//!
//! This is a separate crate because of its dependencies: `weft-trace` is part of the preload library, which must stay
//! small.

pub mod heat;
pub mod parquet;
