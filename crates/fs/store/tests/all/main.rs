//! Tests in one program, which links once.

mod checksums;
mod datafiles;
mod emulate;
mod fragments;
mod fragments_failed;
mod fragments_model;
mod fragments_removed;
mod fragments_support;
mod fragments_threads;
mod metadata_damage;
mod metadata_full;
mod metadata_mutated;
mod metadata_power;
mod target;
#[path = "../target_support/mod.rs"]
mod target_support;
