//! Tests in one program, which links once.

mod lost;
mod migrate;
mod real;
mod removal;
mod simulated;
#[path = "../support/mod.rs"]
mod support;
