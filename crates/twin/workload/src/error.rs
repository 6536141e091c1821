//! Errors in descriptions of workloads.

use std::fmt;

/// An invalid parameter, with the valid range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpecError {
    /// Kind of the workload, as in `kind = "…"`.
    pub kind: &'static str,
    /// Name of the parameter.
    pub parameter: &'static str,
    /// The reason and the remedy.
    pub message: String,
}

impl SpecError {
    pub(crate) fn new(kind: &'static str, parameter: &'static str, message: impl Into<String>) -> Self {
        Self { kind, parameter, message: message.into() }
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "workload {}: {}: {}", self.kind, self.parameter, self.message)
    }
}

impl std::error::Error for SpecError {}

/// Checks that several kinds share, for one kind.
#[derive(Clone, Copy)]
pub(crate) struct Check(pub(crate) &'static str);

impl Check {
    pub(crate) fn fail<T>(self, parameter: &'static str, message: impl Into<String>) -> Result<T, SpecError> {
        Err(SpecError::new(self.0, parameter, message))
    }

    /// Checks that a number is at least 1.
    pub(crate) fn positive(self, parameter: &'static str, value: u64) -> Result<u64, SpecError> {
        if value == 0 { self.fail(parameter, "0 is not possible: give at least 1") } else { Ok(value) }
    }

    /// Returns a product if it is a valid file offset. File offsets are signed 64-bit integers in all interfaces.
    pub(crate) fn product(self, parameter: &'static str, factors: &[u64]) -> Result<u64, SpecError> {
        let product = factors.iter().try_fold(1u64, |product, &factor| product.checked_mul(factor));
        match product {
            Some(bytes) if i64::try_from(bytes).is_ok() => Ok(bytes),
            _ => self.fail(parameter, "the file would be larger than 2^63 bytes: give less"),
        }
    }

    /// Checks that a number of files fits [`crate::FileRef`].
    pub(crate) fn files(self, parameter: &'static str, files: u64) -> Result<u32, SpecError> {
        u32::try_from(files)
            .or_else(|_| self.fail(parameter, format!("{files} files are more than 2^32: give fewer")))
    }
}
