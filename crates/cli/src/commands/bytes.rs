//! Names are bytes, and nearly always text. Here they are text in which other bytes stand as `\xHH`, so that any name goes
//! in and comes out as it was; as traces, plans and rules have them, too.

use clap::builder::{OsStringValueParser, TypedValueParser};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// Bytes as text.
pub fn text(bytes: &[u8]) -> String {
    weft_core::escaped(bytes).into_owned()
}

/// The bytes that `text` stands for.
pub fn bytes(text: &str) -> Vec<u8> {
    weft_core::unescaped(text).into_owned()
}

/// A local path.
pub fn local(text: &str) -> PathBuf {
    OsString::from_vec(bytes(text)).into()
}

/// Reads an argument that is a name or path.
pub fn argument() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().map(|argument| text(argument.as_bytes()))
}
