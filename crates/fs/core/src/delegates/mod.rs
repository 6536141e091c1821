//! Decisions of I/O delegates: a few processes of a job that cache pages of files together and do the file I/O of all
//! ranks.
//!
//! Based on IODC, "I/O Delegate Cache System", sections III.A to III.E.

pub mod assignment;
pub mod ownership;
pub mod page_cache;
pub mod page_locks;
