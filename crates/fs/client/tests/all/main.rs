//! Tests in one program, which links once.

mod inline;
mod lost;
mod migrate;
mod real;
mod removal;
mod replicas;
mod simulated;
#[path = "../support/mod.rs"]
mod support;
