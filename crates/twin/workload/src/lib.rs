//! Workloads: generators of the file operations of parallel programs, used by the twin, `weft bench` and replay.
//!
//! A [`WorkloadSpec`] describes a workload as data, with default parameters. [`WorkloadSpec::build`] checks it and
//! returns the [`Workload`], which yields a stream of [`Op`]s for each rank. Streams are computed while they are read,
//! so a billion operations take no memory.
// Also runs in the simulated world, so clocks, files, sockets and threads only through weft-env (see clippy.toml).
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod btio;
mod collective;
mod dice;
mod error;
mod flash_io;
mod flash_layout;
mod hpio;
mod ior;
mod mdtest;
mod mix;
mod mpi_io_test;
mod mpi_md_test;
mod op;
mod passes;
mod permutation;
mod s3d_io;
mod sandia;
mod segments;
mod server_span;
mod size;
mod spec;
mod subarray;
#[cfg(test)]
mod testing;
mod tile_io;
mod tree;

pub use btio::{Btio, BtioClass, BtioSubtype};
pub use collective::TwoPhase;
pub use error::SpecError;
pub use flash_io::{FlashFile, FlashFormat, FlashIo};
pub use hpio::{Hpio, HpioArrangement};
pub use ior::{Ior, IorLayout, IorOrder};
pub use mdtest::{MdPhase, Mdtest};
pub use mix::{Mix, MixProgram};
pub use mpi_io_test::MpiIoTest;
pub use mpi_md_test::{MpiMdMode, MpiMdPhase, MpiMdTest};
pub use op::{FileRef, Op, Workload};
pub use passes::{Access, SyncWhen};
pub use permutation::Permutation;
pub use s3d_io::S3dIo;
pub use sandia::{Sandia, SandiaApplication};
pub use segments::{Segment, SegmentArrangement, Segments};
pub use server_span::{ServerSpan, SpanOrder};
pub use size::Size;
pub use spec::WorkloadSpec;
pub use tile_io::MpiTileIo;
