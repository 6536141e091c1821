//! Initial inputs: the golden bytes of every message, and long messages.

use serde::Serialize;

/// Decodes the message bodies of a golden file of weft-wire.
pub fn lines(text: &str) -> Vec<Vec<u8>> {
    let body = |line: &str| {
        let hex = line.split(' ').nth(1).expect("name and bytes");
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex digits");
        (0..hex.len()).step_by(2).map(byte).collect()
    };
    text.lines().map(body).collect()
}

/// Loads the message bodies of a golden file by its name.
macro_rules! golden {
    ($file:literal) => {
        $crate::seeds::lines(include_str!(concat!("../../../../fs/wire/tests/golden/", $file)))
    };
}
pub(crate) use golden;

/// Encodes a message body.
pub fn encoded(message: &impl Serialize) -> Vec<u8> {
    postcard::to_allocvec(message).expect("messages encode")
}
