//! Errors that end a command.

use std::fmt;

/// Exit code of a command that failed.
pub const FAILED: u8 = 1;
/// Exit code of a command with invalid arguments or an invalid cluster file.
pub const MISUSED: u8 = 2;

/// An error, printed as `weft: what: why; remedy`.
#[derive(Clone, Debug)]
pub struct Failure {
    text: String,
    code: u8,
}

impl Failure {
    /// Creates an error of the environment.
    pub fn new(what: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self { text: format!("{what}: {}", without_numbers(&why.to_string())), code: FAILED }
    }

    /// Creates an error of the environment from a complete sentence.
    pub fn said(why: impl fmt::Display) -> Self {
        Self { text: without_numbers(&why.to_string()), code: FAILED }
    }

    /// Creates an error of the arguments or the cluster file.
    pub fn misuse(what: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self { text: format!("{what}: {}", without_numbers(&why.to_string())), code: MISUSED }
    }

    /// Adds a remedy.
    #[must_use]
    pub fn remedy(mut self, remedy: impl fmt::Display) -> Self {
        self.text = format!("{}; {remedy}", self.text);
        self
    }

    /// Changes the exit code.
    #[must_use]
    pub fn code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }

    /// Replaces `wrong` by `right` in the text.
    #[must_use]
    pub fn with(mut self, wrong: &str, right: &str) -> Self {
        self.text = self.text.replace(wrong, right);
        self
    }

    /// Returns the text without the program's name.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the exit code.
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

/// Removes ` (os error 2)`, which adds nothing to the text before it.
pub fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(" (os error ") {
        out += before;
        match after.split_once(')') {
            Some((number, after)) if number.chars().all(|c| c.is_ascii_digit()) => rest = after,
            _ => {
                out += " (os error ";
                rest = after;
            }
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_numbers_of_the_system_go() {
        assert_eq!(without_numbers("gone (os error 2); why (os error x) not"), "gone; why (os error x) not");
        let failure = Failure::new("a", std::io::Error::from_raw_os_error(2)).remedy("make it");
        assert_eq!(failure.to_string(), "weft: a: No such file or directory; make it");
    }
}
