//! What a server keeps on its devices: datafiles, I/O modules and the metadata database.
#![allow(async_fn_in_trait)] // As in weft-env: futures stay on the task that made them.

pub mod target;
