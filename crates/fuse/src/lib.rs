//! The FUSE mount.
