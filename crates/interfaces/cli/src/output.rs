//! Standard output and standard error. A failed write to standard output ends the command with a message and its exit code, never with a panic.

use std::fmt;
use std::io::Write;

/// Like `print!`, without a panic on a full device.
macro_rules! out {
    ($($text:tt)*) => { $crate::output::text(format_args!($($text)*)) };
}

/// Like `println!`, without a panic on a full device.
macro_rules! outln {
    () => { $crate::output::text(format_args!("\n")) };
    ($($text:tt)*) => { $crate::output::text(format_args!("{}\n", format_args!($($text)*))) };
}

/// Like `eprintln!`, with one system call per line, so that the lines of several processes on one terminal stay whole, and without a panic.
macro_rules! errln {
    ($($text:tt)*) => { $crate::output::error_line(format_args!($($text)*)) };
}

/// Writes a line to standard error. A failed write is ignored: there is no place left to report it.
pub fn error_line(line: fmt::Arguments<'_>) {
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Writes text.
pub fn text(text: fmt::Arguments<'_>) {
    bytes(text.to_string().as_bytes());
}

/// Writes bytes. A closed pipe ends the process by its signal, as for other tools.
pub fn bytes(bytes: &[u8]) {
    end_on(std::io::stdout().write_all(bytes));
}

/// Writes buffered output. Called before the process ends.
pub fn flush() {
    end_on(std::io::stdout().flush());
}

fn end_on(written: std::io::Result<()>) {
    if let Err(error) = written {
        errln!("{}", crate::failure::Failure::new("standard output", error));
        std::process::exit(i32::from(crate::failure::FAILED));
    }
}
