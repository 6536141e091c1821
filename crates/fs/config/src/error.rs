//! Errors in a cluster file.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Error in a cluster file: position, problem and remedy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// File.
    pub file: PathBuf,
    /// Position in the file; `None` if the error concerns the whole file.
    pub place: Option<Location>,
    /// Problem.
    pub problem: String,
    /// Remedy.
    pub remedy: String,
}

/// Position in a cluster file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Location {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Number of marked characters, at least 1.
    pub width: usize,
    /// Text of the line.
    pub text: String,
}

impl Location {
    /// Returns the location of a byte range of `source`. A range over several lines is cut at the end of the first one.
    pub(crate) fn of(source: &str, span: Range<usize>) -> Self {
        let start = span.start.min(source.len());
        let line_start = source[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = source[start..].find('\n').map_or(source.len(), |at| start + at);
        let end = span.end.clamp(start, line_end);
        Self {
            line: source[..start].matches('\n').count() + 1,
            column: source[line_start..start].chars().count() + 1,
            width: source[start..end].chars().count().max(1),
            text: source[line_start..line_end].trim_end().to_owned(),
        }
    }
}

impl ConfigError {
    /// Creates an error that concerns the whole file.
    pub(crate) fn whole(file: &Path, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { file: file.to_owned(), place: None, problem: problem.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(place) = &self.place else {
            return write!(f, "{}: {}; {}", self.file.display(), self.problem, self.remedy);
        };
        let Location { line, column, width, text } = place;
        let number = line.to_string();
        let margin = " ".repeat(number.len());
        writeln!(f, "{}:{line}:{column}: {}", self.file.display(), self.problem)?;
        writeln!(f, " {number} | {text}")?;
        // Keep tabs before the marked text, so that the marks align on every terminal.
        let before: String =
            text.chars().take(column - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        writeln!(f, " {margin} | {before}{}", "^".repeat(*width))?;
        write!(f, " {margin} = {}", self.remedy)
    }
}

impl std::error::Error for ConfigError {}
