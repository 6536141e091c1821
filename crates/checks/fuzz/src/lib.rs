//! Fuzz targets for everything that decodes bytes from the network, the disk or a user.
//!
//! A target is a function that takes any bytes and asserts properties of the decoder:
//!
//! | property | checked with |
//! | --- | --- |
//! | no panic | the driver or libFuzzer |
//! | bounded memory: an allocation needs input bytes that justify it | [`alloc::bounded`] |
//! | round trip: decoded values encode to bytes that decode to equal values | the target |
//! | integrity: a flipped bit under a checksum is rejected | the target |
//!
//! [`TARGETS`] lists all targets. They run in two ways:
//!
//! - The [`driver`] mutates known inputs for a bounded time in `cargo test`, on stable Rust.
//! - The `fuzz/` directory at the root of the repository wraps each target for libFuzzer, which is guided by coverage.
//!
//! See docs/reference/fuzzing.md.

pub mod alloc;
pub mod driver;
pub mod mutate;
mod rng;
mod seeds;
pub mod targets;

pub use targets::{TARGETS, Target};

/// Result of a decoder on an input. A panic is a finding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The input was decoded.
    Accepted,
    /// The input was rejected.
    Refused,
}

impl Outcome {
    /// Converts a decoder's result.
    fn of<T, E>(result: &Result<T, E>) -> Self {
        if result.is_ok() { Self::Accepted } else { Self::Refused }
    }
}
