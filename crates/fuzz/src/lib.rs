//! Fuzz targets for everything that decodes bytes from the network, the disk or a person.
//!
//! A target is a function over bytes that asserts what must hold for any of them: no panic, no more memory reserved
//! than the input's length allows, what decodes encodes and decodes to the same again, and damage is noticed where
//! a checksum covers it. [`TARGETS`] lists them all. The same functions run in two ways:
//!
//! * [`driver`] mutates known messages for a bounded time inside `cargo test`, on stable Rust;
//! * the `fuzz/` directory at the top of the tree hands them to libFuzzer for runs that follow coverage.
//!
//! See docs/fuzzing.md.

pub mod alloc;
pub mod driver;
pub mod mutate;
mod rng;
mod seeds;
pub mod targets;

pub use targets::{TARGETS, Target};

/// What a decoder made of an input; a panic is the third possibility.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It decoded.
    Accepted,
    /// It did not.
    Refused,
}

impl Outcome {
    /// Of a decoder's result.
    fn of<T, E>(result: &Result<T, E>) -> Self {
        if result.is_ok() { Self::Accepted } else { Self::Refused }
    }
}
