//! Messages that only the two ends of a greeting can make.
//!
//! On a network both ends agree on fresh keys by a Noise handshake ([`Handshake`], `NNpsk0`): the pre-shared key proves who
//! they are, the ephemeral keys give forward secrecy, and the [`Names`] in its prologue say who means
//! whom. From the next message on everything is sealed:
//!
//! ```text
//! offset       size  field
//!      0         48  header       flag bit 1 set
//!     48         16  tag          over header and body
//!     64   body_len  body
//!      …      n + 16 each segment of the payload and its tag: SEGMENT_LEN bytes, the last one what is left
//! ```
//! A tag is a MAC under the key of its direction over a nonce and the bytes:
//!
//! ```text
//! offset size field of the nonce, little-endian
//!      0    8 sequence number of the message in its direction, from 0
//!      8    4 part: 0 header and body, 1 + n segment n of the payload
//!     12    4 zero
//! ```
//! A message that was changed, repeated, left out, reordered, sent back or made by another has no valid tag. The receiver
//! then ends the connection before anything of the message is acted on: header and body are verified before the body is
//! decoded, and the payload before the call that receives it returns.
//!
//! With [`Security::Mac`](crate::hello::Security::Mac) the tag is AEGIS-MAC with AEGIS-128X2. With
//! [`Security::Encrypt`](crate::hello::Security::Encrypt) bodies and segments are encrypted by AEGIS-128X2, and the header
//! is associated data. The greeting itself is always encrypted. Each direction, the greeting, and what follows it have keys
//! of their own, derived by BLAKE3 from the handshake's.
//!
//! In a simulated world whose payloads are lengths only, so are their tags: there are no bytes to protect.

mod noise;
mod record;

pub use noise::{Handshake, NoKey, SessionKeys};
pub use record::{Sealing, segments};

use crate::hello::Names;

/// Length of a tag in bytes.
pub const TAG_LEN: usize = 16;
/// Bytes of a payload under one tag. Long enough that a tag costs nothing, short enough that the receiver verifies one
/// while the next one is under way.
pub const SEGMENT_LEN: usize = 256 << 10;

/// What both ends feed into the handshake: the protocol's version and the names.
fn prologue(names: &Names) -> Vec<u8> {
    let mut out = vec![crate::header::VERSION];
    out.extend_from_slice(b"weft greeting");
    postcard::to_extend(names, out).expect("names always encode")
}
