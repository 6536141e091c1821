//! Tests in one program, which links once.

mod attack_greeting;
mod attack_leases;
mod attack_permissions;
mod attack_shares;
mod attack_wire;
mod cache;
mod compression;
mod hostile;
mod meta_check;
mod meta_compression;
mod meta_dump;
mod meta_inline;
mod meta_levels;
mod meta_map;
mod meta_model;
mod meta_names;
mod meta_namespace;
mod meta_opens;
mod meta_quotas;
mod meta_rules;
mod meta_support;
mod meta_unnamed;
mod placement;
mod samples;
mod service;
mod simulated;
#[path = "../support/mod.rs"]
mod support;
mod tier_support;
