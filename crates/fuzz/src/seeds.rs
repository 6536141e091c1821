//! Inputs to start from: the golden bytes of every message, and long ones.

use serde::Serialize;

/// The bodies in a golden file of weft-wire.
pub fn lines(text: &str) -> Vec<Vec<u8>> {
    let body = |line: &str| {
        let hex = line.split(' ').nth(1).expect("name and bytes");
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex digits");
        (0..hex.len()).step_by(2).map(byte).collect()
    };
    text.lines().map(body).collect()
}

/// The bodies of a golden file by its name.
macro_rules! golden {
    ($file:literal) => {
        $crate::seeds::lines(include_str!(concat!("../../../wire/tests/golden/", $file)))
    };
}
pub(crate) use golden;

/// A body.
pub fn encoded(message: &impl Serialize) -> Vec<u8> {
    postcard::to_allocvec(message).expect("messages encode")
}
