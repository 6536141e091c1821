//! The cluster file: one commented cluster.toml, checked with the line and the remedy.
