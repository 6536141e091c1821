//! Conversion of file names to text and back. Names are bytes and nearly always UTF-8. Other bytes are written as
//! `\xHH`, so that every name survives input and output. Traces, plans and rules use the same form.

use clap::builder::{OsStringValueParser, TypedValueParser};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// Converts bytes to text.
pub fn text(bytes: &[u8]) -> String {
    weft_core::escaped(bytes).into_owned()
}

/// Converts text back to bytes.
pub fn bytes(text: &str) -> Vec<u8> {
    weft_core::unescaped(text).into_owned()
}

/// Converts text to a local path.
pub fn local(text: &str) -> PathBuf {
    OsString::from_vec(bytes(text)).into()
}

/// Parses an argument that is a name or path.
pub fn argument() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().map(|argument| text(argument.as_bytes()))
}
