//! Tags and encryption of the messages of one connection.

use super::{SEGMENT_LEN, SessionKeys, TAG_LEN};
use crate::header::{HEADER_LEN, Malformed};
use crate::hello::Security;
use aegis::aegis128x4::{Aegis128X4, Aegis128X4Mac, Key};
use std::ops::Range;

/// Part number of header and body.
const HEAD: u32 = 0;

/// Returns the ranges of a payload of `len` bytes, each of which has a tag.
pub fn segments(len: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(SEGMENT_LEN).map(move |start| start..(start + SEGMENT_LEN).min(len))
}

/// Seals the messages of one direction and opens those of the other.
pub struct Sealing {
    keys: SessionKeys,
    is_server: bool,
    security: Security,
    send: Direction,
    receive: Direction,
}

/// State of one direction.
struct Direction {
    suite: Suite,
    /// Sequence number of the next message.
    next: u64,
}

#[derive(Clone, Copy)]
enum Suite {
    Mac(Key),
    Encrypt(Key),
}

/// Sequence number and part of one tag.
#[derive(Clone, Copy)]
struct Nonce(u64, u32);

impl Nonce {
    fn bytes(self) -> [u8; 16] {
        let mut out = [0; 16];
        out[..8].copy_from_slice(&self.0.to_le_bytes());
        out[8..12].copy_from_slice(&self.1.to_le_bytes());
        out
    }
}

impl Sealing {
    /// Creates the state at the end of the handshake. Everything is encrypted until [`agree`](Self::agree).
    pub fn new(keys: SessionKeys, is_server: bool) -> Self {
        let (to, from) = directions(&keys, is_server);
        let (send, receive) =
            (Direction::new(to, Security::Encrypt), Direction::new(from, Security::Encrypt));
        Self { keys, is_server, security: Security::Encrypt, send, receive }
    }

    /// Switches to fresh keys after the greeting, without encryption if [`Security::Mac`] was agreed.
    ///
    /// # Panics
    /// If `security` is `None`.
    pub fn agree(&mut self, security: Security) {
        assert_ne!(security, Security::None, "a sealed connection stays sealed");
        let (to, from) = directions(&self.keys, self.is_server);
        let derive = |key: &[u8; 32]| blake3::derive_key("weft 2026 wire after the greeting", key);
        self.send = Direction { next: self.send.next, ..Direction::new(&derive(to), security) };
        self.receive = Direction { next: self.receive.next, ..Direction::new(&derive(from), security) };
        self.security = security;
    }

    /// Returns the current protection of messages.
    pub fn security(&self) -> Security {
        self.security
    }

    /// Whether bodies and payloads are encrypted.
    pub fn encrypts(&self) -> bool {
        self.security == Security::Encrypt
    }

    /// Starts the next message of this side and seals its head. `message` consists of header, space for a tag, and
    /// body.
    ///
    /// # Panics
    /// After 2^64 messages.
    pub fn seal_head(&mut self, message: &mut [u8]) {
        let nonce = Nonce(self.send.next, HEAD);
        self.send.next = self.send.next.checked_add(1).expect("a connection ends before 2^64 messages");
        let (header, rest) = message.split_at_mut(HEADER_LEN);
        let (tag, body) = rest.split_at_mut(TAG_LEN);
        tag.copy_from_slice(&self.send.suite.seal(nonce, header, body));
    }

    /// Returns the tag of segment `index` of the current message, whose bytes lie in `pieces`. Not for encryption.
    pub fn tag_of_segment<'a>(&self, index: usize, pieces: impl Iterator<Item = &'a [u8]>) -> [u8; TAG_LEN] {
        self.send.suite.mac(Nonce(self.send.next - 1, part(index)), pieces).finalize()
    }

    /// Encrypts segment `index` of the current message in place and returns its tag.
    pub fn seal_segment(&self, index: usize, bytes: &mut [u8]) -> [u8; TAG_LEN] {
        self.send.suite.seal(Nonce(self.send.next - 1, part(index)), &[], bytes)
    }

    /// Opens the head of the peer's next message in place: header, tag and body.
    ///
    /// # Errors
    /// `Forged`.
    pub fn open_head(&mut self, message: &mut [u8]) -> Result<(), Malformed> {
        let nonce = Nonce(self.receive.next, HEAD);
        let (header, rest) = message.split_at_mut(HEADER_LEN);
        let (tag, body) = rest.split_at_mut(TAG_LEN);
        let tag: &[u8; TAG_LEN] = (&*tag).try_into().expect("split there");
        self.receive.suite.open(nonce, header, body, tag)?;
        self.receive.next = self.receive.next.checked_add(1).ok_or(Malformed::Forged)?;
        Ok(())
    }

    /// Verifies segment `index` of the message just opened, whose bytes lie in `pieces`. Not for encryption.
    ///
    /// # Errors
    /// `Forged`.
    pub fn verify_segment<'a>(
        &self,
        index: usize,
        pieces: impl Iterator<Item = &'a [u8]>,
        tag: &[u8; TAG_LEN],
    ) -> Result<(), Malformed> {
        let made = self.receive.suite.mac(Nonce(self.receive.next - 1, part(index)), pieces);
        made.verify(tag).map_err(|_| Malformed::Forged)
    }

    /// Decrypts segment `index` of the message just opened in place.
    ///
    /// # Errors
    /// `Forged`.
    pub fn open_segment(&self, index: usize, bytes: &mut [u8], tag: &[u8; TAG_LEN]) -> Result<(), Malformed> {
        self.receive.suite.open(Nonce(self.receive.next - 1, part(index)), &[], bytes, tag)
    }
}

fn directions(keys: &SessionKeys, is_server: bool) -> (&[u8; 32], &[u8; 32]) {
    match is_server {
        true => (&keys.to_client, &keys.to_server),
        false => (&keys.to_server, &keys.to_client),
    }
}

fn part(index: usize) -> u32 {
    u32::try_from(index + 1).expect("the part number fits: a payload has few segments")
}

impl Direction {
    fn new(key: &[u8; 32], security: Security) -> Self {
        let derive = |context| {
            let key = blake3::derive_key(context, key);
            *key.first_chunk().expect("16 of 32 bytes")
        };
        let suite = match security {
            Security::Encrypt => Suite::Encrypt(derive("weft 2026 wire encryption")),
            Security::Mac | Security::None => Suite::Mac(derive("weft 2026 wire mac")),
        };
        Self { suite, next: 0 }
    }
}

impl Suite {
    /// Returns the tag over `header` and `body`. Encrypts `body` in place if the suite encrypts.
    fn seal(&self, nonce: Nonce, header: &[u8], body: &mut [u8]) -> [u8; TAG_LEN] {
        match self {
            Self::Mac(_) => self.mac(nonce, [header, body].into_iter()).finalize(),
            Self::Encrypt(key) => Aegis128X4::new(key, &nonce.bytes()).encrypt_in_place(body, header),
        }
    }

    /// Verifies the tag over `header` and `body`. Decrypts `body` in place if the suite encrypts.
    fn open(
        &self,
        nonce: Nonce,
        header: &[u8],
        body: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), Malformed> {
        let opened = match self {
            Self::Mac(_) => self.mac(nonce, [header, &*body].into_iter()).verify(tag),
            Self::Encrypt(key) => Aegis128X4::new(key, &nonce.bytes()).decrypt_in_place(body, tag, header),
        };
        opened.map_err(|_| Malformed::Forged)
    }

    fn mac<'a>(&self, nonce: Nonce, pieces: impl Iterator<Item = &'a [u8]>) -> Aegis128X4Mac<TAG_LEN> {
        let Self::Mac(key) = self else { unreachable!("only an unencrypted direction computes tags alone") };
        let mut mac = Aegis128X4Mac::new_with_nonce(key, &nonce.bytes());
        pieces.for_each(|piece| mac.update(piece));
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::{Family, Header, Kind, encode_message};
    use crate::level::Level;

    fn keys() -> SessionKeys {
        SessionKeys { to_server: [1; 32], to_client: [2; 32] }
    }

    fn pair(security: Security) -> (Sealing, Sealing) {
        let (mut client, mut server) = (Sealing::new(keys(), false), Sealing::new(keys(), true));
        client.agree(security);
        server.agree(security);
        (client, server)
    }

    fn message() -> Vec<u8> {
        let mut out = Vec::new();
        let header = Header {
            level: Level::DOMAINS,
            is_sealed: true,
            payload_len: 5,
            ..Header::new(Kind::Request, Family::Data, 7)
        };
        encode_message(&mut out, &header, &(0x1122_u16, 0x33_u8));
        out
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    const BOTH: [Security; 2] = [Security::Mac, Security::Encrypt];

    /// A difference means that programs built before and after the change cannot communicate.
    #[test]
    fn golden_bytes() {
        let (mut client, _) = pair(Security::Mac);
        let mut sealed = message();
        client.seal_head(&mut sealed);
        assert_eq!(hex(&sealed), GOLDEN_MAC);
        assert_eq!(
            hex(&client.tag_of_segment(0, [b"he".as_slice(), b"llo"].into_iter())),
            GOLDEN_MAC_SEGMENT
        );
        let (mut client, _) = pair(Security::Encrypt);
        let mut sealed = message();
        client.seal_head(&mut sealed);
        assert_eq!(hex(&sealed), GOLDEN_ENCRYPT);
        let mut segment = *b"hello";
        let tag = client.seal_segment(0, &mut segment);
        assert_eq!(hex(&segment) + &hex(&tag), GOLDEN_ENCRYPT_SEGMENT);
        // Keys of the greeting.
        let mut client = Sealing::new(keys(), false);
        let mut sealed = message();
        client.seal_head(&mut sealed);
        assert_eq!(hex(&sealed), GOLDEN_GREETING);
    }

    const GOLDEN_MAC: &str = "574546540200010207000000000000000300000005000000000000000000000000000000000000000000000097be6df1f3f0b092a38b5936243102993c7b0b6ea22233";
    const GOLDEN_MAC_SEGMENT: &str = "b984ecc38164f011790ed4157e80064c";
    const GOLDEN_ENCRYPT: &str = "574546540200010207000000000000000300000005000000000000000000000000000000000000000000000097be6df11b2ee4a87f9513731871945da7f7c438f1b193";
    const GOLDEN_ENCRYPT_SEGMENT: &str = "8b220a1ee284746d37ec244f3dd650ba8434c7a7f8";
    const GOLDEN_GREETING: &str = "574546540200010207000000000000000300000005000000000000000000000000000000000000000000000097be6df13ebfef377235dce77401a229effa5118609988";

    #[test]
    fn a_sealed_message_opens_only_at_the_other_end() {
        for security in BOTH {
            let (mut client, mut server) = pair(security);
            let plain = message();
            for _ in 0..3 {
                let mut sealed = plain.clone();
                client.seal_head(&mut sealed);
                assert!(client.open_head(&mut sealed.clone()).is_err(), "sent back");
                server.open_head(&mut sealed).expect("the next message");
                assert_eq!(sealed[HEADER_LEN + TAG_LEN..], plain[HEADER_LEN + TAG_LEN..]);
                assert!(server.open_head(&mut sealed.clone()).is_err(), "again");
            }
            let mut answer = message();
            server.seal_head(&mut answer);
            client.open_head(&mut answer).expect("the other direction");
            // Protection that was not agreed, and the keys of the greeting.
            let mut sealed = message();
            client.seal_head(&mut sealed);
            let (_, mut other) = pair(BOTH[usize::from(security == Security::Mac)]);
            other.receive.next = server.receive.next;
            assert!(other.open_head(&mut sealed.clone()).is_err());
            let mut greeting = Sealing::new(keys(), true);
            greeting.receive.next = server.receive.next;
            assert!(greeting.open_head(&mut sealed.clone()).is_err());
        }
    }

    #[test]
    fn any_flipped_bit_is_detected() {
        for security in BOTH {
            let (mut client, mut server) = pair(security);
            let mut sealed = message();
            client.seal_head(&mut sealed);
            for bit in 0..sealed.len() * 8 {
                let mut bad = sealed.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(server.open_head(&mut bad), Err(Malformed::Forged), "{security:?}, bit {bit}");
            }
            server.open_head(&mut sealed).expect("nothing was opened before");
            let mut segment = *b"some bytes";
            let tag = match security {
                Security::Encrypt => client.seal_segment(3, &mut segment),
                _ => client.tag_of_segment(3, std::iter::once(segment.as_slice())),
            };
            let open = |index, mut bytes: [u8; 10], tag: [u8; TAG_LEN]| match security {
                Security::Encrypt => server.open_segment(index, &mut bytes, &tag),
                _ => server.verify_segment(index, std::iter::once(bytes.as_slice()), &tag),
            };
            assert_eq!(open(3, segment, tag), Ok(()));
            assert_eq!(open(2, segment, tag), Err(Malformed::Forged), "another place");
            for bit in 0..(segment.len() + TAG_LEN) * 8 {
                let (mut bytes, mut tag) = (segment, tag);
                match bit / 8 {
                    at if at < bytes.len() => bytes[at] ^= 1 << (bit % 8),
                    at => tag[at - bytes.len()] ^= 1 << (bit % 8),
                }
                assert_eq!(open(3, bytes, tag), Err(Malformed::Forged), "{security:?}, bit {bit}");
            }
        }
    }

    #[test]
    fn pieces_make_no_difference() {
        let (mut client, _) = pair(Security::Mac);
        client.seal_head(&mut message());
        let bytes: Vec<u8> = (0..1000_u32).map(|at| at as u8).collect();
        let whole = client.tag_of_segment(0, std::iter::once(bytes.as_slice()));
        for at in [0, 1, 31, 64, 999, 1000] {
            let (one, other) = bytes.split_at(at);
            assert_eq!(client.tag_of_segment(0, [one, other].into_iter()), whole, "{at}");
        }
    }

    #[test]
    fn segments_cover_a_payload_once() {
        for len in [0, 1, SEGMENT_LEN - 1, SEGMENT_LEN, SEGMENT_LEN + 1, 4 << 20] {
            let all: Vec<_> = segments(len).collect();
            assert_eq!(all.len(), len.div_ceil(SEGMENT_LEN));
            assert_eq!(all.iter().map(|range| range.len()).sum::<usize>(), len);
            assert!(all.windows(2).all(|pair| pair[0].end == pair[1].start && pair[0].len() == SEGMENT_LEN));
        }
    }
}
