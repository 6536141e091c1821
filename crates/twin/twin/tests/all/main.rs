//! Tests in one program, which links once.

mod aligned;
mod by_hand;
mod cluster;
mod compression;
mod disk_bytes;
mod locking;
mod script;
mod search_jobs;
mod search_regressions;
