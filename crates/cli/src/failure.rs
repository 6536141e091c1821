//! How a command ends when it cannot do what it was asked.

use std::fmt;

/// Exit code of a command that could not do what it was asked.
pub const FAILED: u8 = 1;
/// Exit code of a command that was asked wrongly: arguments or cluster file.
pub const MISUSED: u8 = 2;

/// Printed as `weft: what: why; remedy`.
#[derive(Debug)]
pub struct Failure {
    text: String,
    code: u8,
}

impl Failure {
    /// Something that the world refused.
    pub fn new(what: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self { text: format!("{what}: {why}"), code: FAILED }
    }

    /// Something that was asked wrongly.
    pub fn misuse(what: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self { text: format!("{what}: {why}"), code: MISUSED }
    }

    /// With what to do about it.
    #[must_use]
    pub fn remedy(mut self, remedy: impl fmt::Display) -> Self {
        self.text = format!("{}; {remedy}", self.text);
        self
    }

    /// With another exit code.
    #[must_use]
    pub fn code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }

    /// The code with which the process ends.
    pub fn exit_code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "weft: {}", self.text)
    }
}

impl From<weft_config::ConfigError> for Failure {
    fn from(error: weft_config::ConfigError) -> Self {
        Self { text: error.to_string(), code: MISUSED }
    }
}

impl From<weft_config::KeyError> for Failure {
    fn from(error: weft_config::KeyError) -> Self {
        Self { text: error.to_string(), code: MISUSED }
    }
}
