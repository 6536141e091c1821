//! Secured connections: messages that only the two authenticated peers can produce.
//!
//! # Life of a connection
//!
//! ```text
//!   network peer                           keys in use           protection
//!   ------------------------------------   -------------------   ----------------------------
//!   Hello, Challenge (Noise messages)      none                  handshake tags
//!       |  both ends proved the key and used the same names
//!       v
//!   Opening, Welcome                       greeting keys         encrypted
//!       |  Sealing::agree
//!       v
//!   requests and replies                   traffic keys,         Security::Mac or
//!                                          derived by BLAKE3     Security::Encrypt
//! ```
//!
//! The handshake ([`Handshake`]) is the Noise pattern `NNpsk0`. The pre-shared key authenticates both ends, the
//! ephemeral keys provide forward secrecy, and the [`Names`] in the prologue bind the handshake to this client and this
//! server. Each direction has its own keys, before and after the greeting, so that a message can neither be sent back
//! to its sender nor moved across the two phases.
//!
//! # Sealed messages
//!
//! ```text
//! offset       size  field
//!      0         48  header       flag bit 1 set
//!     48         16  tag          over header and body
//!     64   body_len  body
//!      …      n + 16 each segment of the payload and its tag: SEGMENT_LEN bytes, the last one shorter
//! ```
//! A tag is a MAC over a nonce and the bytes, under the key of its direction:
//!
//! ```text
//! offset size field of the nonce, little-endian
//!      0    8 sequence number of the message in its direction, from 0
//!      8    4 part: 0 header and body, 1 + n segment n of the payload
//!     12    4 zero
//! ```
//!
//! | attack on a message | why verification fails |
//! | --- | --- |
//! | change a byte, or forge a message | the tag needs the key |
//! | repeat, drop or reorder messages | the sequence number is part of the nonce, never sent |
//! | exchange segments of a payload | the part number is part of the nonce |
//! | send a message back to its sender | each direction has its own key |
//!
//! The receiver then closes the connection. Nothing of the message has taken effect: header and body are verified
//! before the body is decoded, and the payload before the call that receives it returns.
//!
//! With [`Security::Mac`](crate::hello::Security::Mac) the tag is AEGIS-MAC with AEGIS-128X4. With
//! [`Security::Encrypt`](crate::hello::Security::Encrypt), AEGIS-128X4 encrypts bodies and segments, with the header as
//! associated data.
//!
//! In a simulated world with length-only payloads, the tags of payloads are lengths only, too: there are no bytes to
//! protect.

mod noise;
mod record;

pub use noise::{Handshake, NoKey, SessionKeys};
pub use record::{Sealing, segments};

use crate::hello::Names;

/// Length of a tag in bytes.
pub const TAG_LEN: usize = 16;
/// Number of payload bytes under one tag. It is large enough to make the cost of tags negligible, and small enough that
/// the receiver can verify one segment while the next one arrives.
pub const SEGMENT_LEN: usize = 256 << 10;

/// Returns the prologue that both ends feed into the handshake: the names.
fn prologue(names: &Names) -> Vec<u8> {
    postcard::to_extend(names, b"weft greeting".to_vec()).expect("names always encode")
}
