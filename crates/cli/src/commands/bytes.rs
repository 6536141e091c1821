//! Names are bytes, and nearly always text. Here they are text in which every byte that is none stands as a character
//! of a private range, so that any name goes in and comes out as it was.

use clap::builder::{OsStringValueParser, TypedValueParser};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// A byte `b` from 0x80 stands as this plus `b`.
const BASE: u32 = 0x10_ff00;

/// Bytes as text.
pub fn text(bytes: &[u8]) -> String {
    let stands_for = |byte: &u8| char::from_u32(BASE + u32::from(*byte)).expect("in the private range");
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            // A character that would be read back as a byte is taken apart itself.
            match u32::from(char) >= BASE {
                true => out.extend(char.encode_utf8(&mut [0; 4]).as_bytes().iter().map(stands_for)),
                false => out.push(char),
            }
        }
        out.extend(chunk.invalid().iter().map(stands_for));
    }
    out
}

/// The bytes that `text` stands for.
pub fn bytes(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for char in text.chars() {
        match u32::from(char).checked_sub(BASE) {
            Some(byte) => out.push(byte as u8),
            None => out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out
}

/// A local path.
pub fn local(text: &str) -> PathBuf {
    OsString::from_vec(bytes(text)).into()
}

/// For people: what is no text as a question mark in a box.
pub fn shown(text: &str) -> String {
    String::from_utf8_lossy(&bytes(text)).into_owned()
}

/// Reads an argument that is a name or path.
pub fn argument() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().map(|argument| text(argument.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_comes_out_as_it_was() {
        let names: [&[u8]; 6] = [
            b"plain",
            "na\u{ef}ve".as_bytes(),
            b"\xff\xfe",
            b"a\x80b\xc3",
            "\u{10ffff}\u{10ff85}".as_bytes(),
            b"",
        ];
        for name in names {
            assert_eq!(bytes(&text(name)), name);
        }
        let all: Vec<u8> = (1..=255).collect();
        assert_eq!(bytes(&text(&all)), all);
        assert_eq!(shown(&text(b"a\xffb")), "a\u{fffd}b");
    }
}
