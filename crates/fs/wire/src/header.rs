//! The header before every message.
//!
//! ```text
//! offset size field
//!      0    4 magic        "WEFT"
//!      4    1 level        feature level of the connection; 0 in a greeting
//!      5    1 kind         0 request, 1 reply, 2 one-way (no reply follows)
//!      6    1 family       0 hello, 1 data, 2 metadata, 3 status, 4 delegate
//!      7    1 flags        bit 0: payload_check holds the payload's XXH3-64
//!                         bit 1: sealed, see crate::secure; then bit 0, payload_check and body_crc are zero
//!      8    8 request      number chosen by the client, repeated in the reply
//!     16    4 body_len     at most BODY_LEN_MAX
//!     20    4 payload_len  at most PAYLOAD_LEN_MAX
//!     24    8 payload_check  zero without the flag
//!     32    1 attachments  descriptors that travel with this message, at most 8
//!     33    2 waits_on     1 + the processor on which the sender waits for the reply; 0 if not given
//!     35    1 reserved     zero
//!     36    4 map_version  version of the cluster map; zero if not given
//!     40    4 body_crc     CRC-32 of the body, zero in a sealed message
//!     44    4 header_crc   CRC-32 of bytes 0 to 43
//! ```
//! Numbers are little-endian.

use crate::data::PAYLOAD_LEN_MAX;
use crate::level::{Level, Levels};
use crate::secure::TAG_LEN;
use serde::{Serialize, de::DeserializeOwned};
use weft_env::Processor;

/// Length of an encoded header in bytes.
pub const HEADER_LEN: usize = 48;
/// Maximum length of a message's body in bytes.
pub const BODY_LEN_MAX: u32 = 1 << 20;
/// Maximum number of descriptors that travel with one message.
pub const ATTACHMENTS_MAX: u8 = 8;

const MAGIC: [u8; 4] = *b"WEFT";
const FLAG_CHECK: u8 = 1;
const FLAG_SEALED: u8 = 2;

/// Direction of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Request that expects a reply.
    Request,
    /// Reply to a request.
    Reply,
    /// Request without a reply.
    OneWay,
}

/// Service that a message belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// Greeting and authentication.
    Hello,
    /// Data service.
    Data,
    /// Metadata service.
    Meta,
    /// State of a server.
    Status,
    /// I/O delegates.
    Delegate,
}

/// Decoded and checked header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Feature level of the connection; [`Level::NONE`] in a greeting.
    pub level: Level,
    /// Direction.
    pub kind: Kind,
    /// Service.
    pub family: Family,
    /// Number of the request.
    pub request: u64,
    /// Length of the body in bytes.
    pub body_len: u32,
    /// CRC-32 of the body.
    pub body_crc: u32,
    /// Length of the payload in bytes.
    pub payload_len: u32,
    /// XXH3-64 of the payload, if the sender computed it.
    pub payload_check: Option<u64>,
    /// Whether MACs protect the message; see [`secure`](crate::secure).
    pub is_sealed: bool,
    /// Number of descriptors that travel with the message.
    pub attachments: u8,
    /// For a request between processes of one machine: the processor on which the sender waits for this reply and for
    /// no other. The server best executes the request there (see [`weft_env::Env::run_on`]).
    pub waits_on: Option<Processor>,
    /// In a reply of the metadata service: version of the cluster map, which the client fetches if it has another one. 0
    /// if not given.
    pub map_version: u32,
}

/// Whether a message could not be received because the peer does not know the level of this connection.
pub fn is_other_level(error: &std::io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(inner, Some(Malformed::Level(_)))
}

/// Reason why received bytes are not a valid message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Malformed {
    /// The magic number is wrong.
    #[error("the peer does not speak Weft's protocol")]
    Magic,
    /// The peer uses another feature level.
    #[error(
        "the peer speaks feature level {0}, this program {known}: install the same Weft on both, or versions that follow \
         each other",
        known = Levels::KNOWN
    )]
    Level(u8),
    /// The message has another feature level than its connection.
    #[error("a message of feature level {0} on a connection of level {1}")]
    OtherLevel(u8, u8),
    /// The header does not match its checksum.
    #[error("message header damaged on the wire (checksum)")]
    HeaderCrc,
    /// The body does not match its checksum.
    #[error("message body damaged on the wire (checksum)")]
    BodyCrc,
    /// The payload does not match its checksum.
    #[error("message payload damaged on the wire (checksum)")]
    PayloadCheck,
    /// The message is not the next one of the authenticated peer.
    #[error("message changed, repeated, reordered or injected on the way (MAC)")]
    Forged,
    /// A field is out of range.
    #[error("message field {0} out of range")]
    Field(&'static str),
    /// The body does not decode as a message of its family.
    #[error("message body does not decode")]
    Body,
}

impl From<Malformed> for std::io::Error {
    fn from(error: Malformed) -> Self {
        std::io::Error::new(std::io::ErrorKind::InvalidData, error)
    }
}

impl Header {
    /// Creates the header of a message without payload; [`encode_message`] fills in the fields of the body. The level is
    /// the latest one, except in a greeting.
    pub fn new(kind: Kind, family: Family, request: u64) -> Self {
        Self {
            level: if family == Family::Hello { Level::NONE } else { Level::LATEST },
            kind,
            family,
            request,
            body_len: 0,
            body_crc: 0,
            payload_len: 0,
            payload_check: None,
            is_sealed: false,
            attachments: 0,
            waits_on: None,
            map_version: 0,
        }
    }

    /// Encodes the header.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        out[0..4].copy_from_slice(&MAGIC);
        out[4] = self.level.0;
        out[5] = match self.kind {
            Kind::Request => 0,
            Kind::Reply => 1,
            Kind::OneWay => 2,
        };
        out[6] = match self.family {
            Family::Hello => 0,
            Family::Data => 1,
            Family::Meta => 2,
            Family::Status => 3,
            Family::Delegate => 4,
        };
        out[7] = if self.payload_check.is_some() { FLAG_CHECK } else { 0 };
        out[7] |= if self.is_sealed { FLAG_SEALED } else { 0 };
        out[8..16].copy_from_slice(&self.request.to_le_bytes());
        out[16..20].copy_from_slice(&self.body_len.to_le_bytes());
        out[20..24].copy_from_slice(&self.payload_len.to_le_bytes());
        out[24..32].copy_from_slice(&self.payload_check.unwrap_or(0).to_le_bytes());
        out[32] = self.attachments;
        let waits_on = self.waits_on.map_or(0, |processor| processor.0.saturating_add(1));
        out[33..35].copy_from_slice(&waits_on.to_le_bytes());
        out[36..40].copy_from_slice(&self.map_version.to_le_bytes());
        out[40..44].copy_from_slice(&self.body_crc.to_le_bytes());
        let crc = crc32fast::hash(&out[..44]);
        out[44..48].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Checks and decodes a header.
    ///
    /// # Errors
    /// The first violation found; the checksum is checked before the values.
    pub fn decode(bytes: &[u8; HEADER_LEN]) -> Result<Self, Malformed> {
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        if bytes[0..4] != MAGIC {
            return Err(Malformed::Magic);
        }
        let level = Level(bytes[4]);
        if level > Level::LATEST {
            return Err(Malformed::Level(bytes[4]));
        }
        if crc32fast::hash(&bytes[..44]) != u32_at(44) {
            return Err(Malformed::HeaderCrc);
        }
        let kind = match bytes[5] {
            0 => Kind::Request,
            1 => Kind::Reply,
            2 => Kind::OneWay,
            _ => return Err(Malformed::Field("kind")),
        };
        let family = match bytes[6] {
            0 => Family::Hello,
            1 => Family::Data,
            2 => Family::Meta,
            3 => Family::Status,
            4 => Family::Delegate,
            _ => return Err(Malformed::Field("family")),
        };
        let is_sealed = bytes[7] & FLAG_SEALED != 0;
        if bytes[7] & !(FLAG_CHECK | FLAG_SEALED) != 0 || bytes[7] == FLAG_CHECK | FLAG_SEALED {
            return Err(Malformed::Field("flags"));
        }
        if is_sealed && u32_at(40) != 0 {
            return Err(Malformed::Field("body_crc"));
        }
        if bytes[7] & FLAG_CHECK == 0 && u64_at(24) != 0 {
            return Err(Malformed::Field("payload_check"));
        }
        if bytes[35] != 0 {
            return Err(Malformed::Field("reserved"));
        }
        let header = Self {
            level,
            kind,
            family,
            request: u64_at(8),
            body_len: u32_at(16),
            body_crc: u32_at(40),
            payload_len: u32_at(20),
            payload_check: (bytes[7] & FLAG_CHECK != 0).then(|| u64_at(24)),
            is_sealed,
            attachments: bytes[32],
            waits_on: u16::from_le_bytes([bytes[33], bytes[34]]).checked_sub(1).map(Processor),
            map_version: u32_at(36),
        };
        if header.body_len > BODY_LEN_MAX {
            return Err(Malformed::Field("body_len"));
        }
        if header.payload_len > PAYLOAD_LEN_MAX {
            return Err(Malformed::Field("payload_len"));
        }
        if header.attachments > ATTACHMENTS_MAX {
            return Err(Malformed::Field("attachments"));
        }
        Ok(header)
    }

    /// Checks `body` against this header and decodes it as a message of type `M`. The MAC of a sealed message, which
    /// was verified earlier, replaces the checksum.
    ///
    /// # Errors
    /// `BodyCrc`, or `Body` for a body that does not decode or has trailing bytes.
    pub fn decode_body<M: DeserializeOwned>(&self, body: &[u8]) -> Result<M, Malformed> {
        let is_whole = || self.is_sealed || crc32fast::hash(body) == self.body_crc;
        if body.len() != self.body_len as usize || !is_whole() {
            return Err(Malformed::BodyCrc);
        }
        match postcard::take_from_bytes(body) {
            Ok((message, [])) => Ok(message),
            _ => Err(Malformed::Body),
        }
    }
}

/// Encodes the header and body of a message into `out`, which it clears first. The caller sends the payload afterwards.
/// The fields of `header` that describe the body are computed here. In a sealed message, space for the MAC lies between
/// the two.
///
/// # Panics
/// If the body exceeds [`BODY_LEN_MAX`] or the payload exceeds [`PAYLOAD_LEN_MAX`]: callers split what they send.
pub fn encode_message<M: Serialize>(out: &mut Vec<u8>, header: &Header, message: &M) {
    let head_len = if header.is_sealed { HEADER_LEN + TAG_LEN } else { HEADER_LEN };
    out.clear();
    out.resize(head_len, 0);
    let taken = std::mem::take(out);
    *out = postcard::to_extend(message, taken).expect("messages always encode");
    let body_len = out.len() - head_len;
    assert!(body_len <= BODY_LEN_MAX as usize, "a message body of {body_len} bytes");
    assert!(header.payload_len <= PAYLOAD_LEN_MAX, "a payload of {} bytes", header.payload_len);
    let body_crc = if header.is_sealed { 0 } else { crc32fast::hash(&out[head_len..]) };
    let header = Header { body_len: body_len as u32, body_crc, ..*header };
    out[..HEADER_LEN].copy_from_slice(&header.encode());
}

/// Returns the checksum of a payload that lies in several pieces.
pub fn payload_check<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> u64 {
    let mut hasher = xxhash_rust::xxh3::Xxh3::new();
    for piece in pieces {
        hasher.update(piece);
    }
    hasher.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Header {
        Header {
            level: Level::DOMAINS,
            kind: Kind::Reply,
            family: Family::Data,
            request: 0x0102_0304_0506_0708,
            body_len: 7,
            body_crc: 0xaabb_ccdd,
            payload_len: 65_536,
            payload_check: Some(0x1122_3344_5566_7788),
            is_sealed: false,
            attachments: 1,
            waits_on: Some(Processor(0x0202)),
            map_version: 0x0d0c_0b0a,
        }
    }

    #[test]
    fn golden_bytes() {
        let mut expected = Vec::new();
        expected.extend_from_slice(b"WEFT\x02\x01\x01\x01");
        expected.extend_from_slice(&[8, 7, 6, 5, 4, 3, 2, 1]);
        expected.extend_from_slice(&[7, 0, 0, 0, 0, 0, 1, 0]);
        expected.extend_from_slice(&[0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
        expected.extend_from_slice(&[1, 3, 2, 0, 0x0a, 0x0b, 0x0c, 0x0d, 0xdd, 0xcc, 0xbb, 0xaa]);
        let crc = crc32fast::hash(&expected);
        expected.extend_from_slice(&crc.to_le_bytes());
        assert_eq!(sample().encode().as_slice(), expected);
    }

    fn sealed() -> Header {
        Header { body_crc: 0, payload_check: None, is_sealed: true, ..sample() }
    }

    #[test]
    fn golden_bytes_of_a_sealed_message() {
        let mut expected = Vec::new();
        expected.extend_from_slice(b"WEFT\x02\x01\x01\x02");
        expected.extend_from_slice(&[8, 7, 6, 5, 4, 3, 2, 1]);
        expected.extend_from_slice(&[7, 0, 0, 0, 0, 0, 1, 0]);
        expected.extend_from_slice(&[0; 8]);
        expected.extend_from_slice(&[1, 3, 2, 0, 0x0a, 0x0b, 0x0c, 0x0d, 0, 0, 0, 0]);
        let crc = crc32fast::hash(&expected);
        expected.extend_from_slice(&crc.to_le_bytes());
        assert_eq!(sealed().encode().as_slice(), expected);
        assert_eq!(Header::decode(&sealed().encode()), Ok(sealed()));
    }

    #[test]
    fn a_sealed_message_has_no_checksums() {
        let resealed = |change: &dyn Fn(&mut [u8; HEADER_LEN])| {
            let mut bytes = sealed().encode();
            change(&mut bytes);
            let crc = crc32fast::hash(&bytes[..44]);
            bytes[44..].copy_from_slice(&crc.to_le_bytes());
            Header::decode(&bytes)
        };
        assert_eq!(resealed(&|bytes| bytes[7] = 3), Err(Malformed::Field("flags")));
        assert_eq!(resealed(&|bytes| bytes[7] = 4), Err(Malformed::Field("flags")));
        assert_eq!(resealed(&|bytes| bytes[40] = 1), Err(Malformed::Field("body_crc")));
        assert_eq!(resealed(&|bytes| bytes[24] = 1), Err(Malformed::Field("payload_check")));
    }

    #[test]
    fn encoded_headers_decode() {
        assert_eq!(Header::decode(&sample().encode()), Ok(sample()));
    }

    #[test]
    fn any_flipped_bit_is_detected() {
        let good = sample().encode();
        for bit in 0..HEADER_LEN * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn lengths_above_the_limits_are_rejected_before_allocation() {
        let mut big = sample();
        big.body_len = BODY_LEN_MAX + 1;
        assert_eq!(Header::decode(&big.encode()), Err(Malformed::Field("body_len")));
        let mut big = sample();
        big.payload_len = PAYLOAD_LEN_MAX + 1;
        assert_eq!(Header::decode(&big.encode()), Err(Malformed::Field("payload_len")));
    }

    #[test]
    fn a_checksum_without_its_flag_is_rejected() {
        let mut bytes = Header { payload_check: None, ..sample() }.encode();
        bytes[24] = 1;
        let crc = crc32fast::hash(&bytes[..44]);
        bytes[44..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Header::decode(&bytes), Err(Malformed::Field("payload_check")));
    }

    #[test]
    fn a_body_with_trailing_bytes_is_rejected() {
        let mut out = Vec::new();
        encode_message(&mut out, &Header::new(Kind::Request, Family::Hello, 1), &(1u32, 2u32));
        let header = Header::decode(out[..HEADER_LEN].try_into().expect("48")).expect("good");
        assert_eq!(header.decode_body::<(u32, u32)>(&out[HEADER_LEN..]), Ok((1, 2)));
        assert_eq!(header.decode_body::<u32>(&out[HEADER_LEN..]), Err(Malformed::Body));
        out[HEADER_LEN] ^= 1;
        assert_eq!(header.decode_body::<(u32, u32)>(&out[HEADER_LEN..]), Err(Malformed::BodyCrc));
    }
}
