//! Standard output: what cannot be written ends the command with a sentence and its exit code, never by a panic.

use std::fmt;
use std::io::Write;

/// `print!`, for a device that may be full.
macro_rules! out {
    ($($text:tt)*) => { $crate::output::text(format_args!($($text)*)) };
}

/// `println!`, for a device that may be full.
macro_rules! outln {
    () => { $crate::output::text(format_args!("\n")) };
    ($($text:tt)*) => { $crate::output::text(format_args!("{}\n", format_args!($($text)*))) };
}

/// Writes text.
pub fn text(text: fmt::Arguments<'_>) {
    bytes(text.to_string().as_bytes());
}

/// Writes bytes. A closed pipe ends the process as it does other tools, by its signal.
pub fn bytes(bytes: &[u8]) {
    end_on(std::io::stdout().write_all(bytes));
}

/// Writes what is still in memory; before the process ends.
pub fn flush() {
    end_on(std::io::stdout().flush());
}

fn end_on(written: std::io::Result<()>) {
    if let Err(error) = written {
        eprintln!("{}", crate::failure::Failure::new("standard output", error));
        std::process::exit(i32::from(crate::failure::FAILED));
    }
}
