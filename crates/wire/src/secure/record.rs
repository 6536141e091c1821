//! Tags and encryption of the messages of one connection.

use super::{SEGMENT_LEN, SessionKeys, TAG_LEN};
use crate::header::{HEADER_LEN, Malformed};
use crate::hello::Security;
use aegis::aegis128x2::{Aegis128X2, Aegis128X2Mac, Key};
use std::ops::Range;

/// Part number of header and body.
const HEAD: u32 = 0;

/// The ranges of a payload of `len` bytes that have a tag each.
pub fn segments(len: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(SEGMENT_LEN).map(move |start| start..(start + SEGMENT_LEN).min(len))
}

/// Seals the messages of one direction and opens those of the other.
pub struct Sealing {
    keys: SessionKeys,
    is_server: bool,
    security: Security,
    send: Half,
    receive: Half,
}

/// One direction.
struct Half {
    suite: Suite,
    /// Number of the next message.
    next: u64,
}

#[derive(Clone, Copy)]
enum Suite {
    Mac(Key),
    Encrypt(Key),
}

/// Number and part under which one tag is made.
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
    /// At the end of the handshake, on the server's side or the client's: everything is encrypted until
    /// [`agree`](Self::agree).
    pub fn new(keys: SessionKeys, is_server: bool) -> Self {
        let (to, from) = directions(&keys, is_server);
        let (send, receive) = (Half::new(to, Security::Encrypt), Half::new(from, Security::Encrypt));
        Self { keys, is_server, security: Security::Encrypt, send, receive }
    }

    /// After the greeting: goes on with fresh keys, and without encryption if [`Security::Mac`] was agreed.
    ///
    /// # Panics
    /// When `security` is none.
    pub fn agree(&mut self, security: Security) {
        assert_ne!(security, Security::None, "a sealed connection stays so");
        let (to, from) = directions(&self.keys, self.is_server);
        let derive = |key: &[u8; 32]| blake3::derive_key("weft 2026 wire after the greeting", key);
        self.send = Half { next: self.send.next, ..Half::new(&derive(to), security) };
        self.receive = Half { next: self.receive.next, ..Half::new(&derive(from), security) };
        self.security = security;
    }

    /// Protection of the messages from here on.
    pub fn security(&self) -> Security {
        self.security
    }

    /// Whether bodies and payloads are encrypted.
    pub fn encrypts(&self) -> bool {
        self.security == Security::Encrypt
    }

    /// Begins the next message of this side and seals its head: `message` is header, room for a tag, and body.
    ///
    /// # Panics
    /// After 2^64 messages.
    pub fn seal_head(&mut self, message: &mut [u8]) {
        let nonce = Nonce(self.send.next, HEAD);
        self.send.next = self.send.next.checked_add(1).expect("a connection ends before that");
        let (header, rest) = message.split_at_mut(HEADER_LEN);
        let (tag, body) = rest.split_at_mut(TAG_LEN);
        tag.copy_from_slice(&self.send.suite.seal(nonce, header, body));
    }

    /// The tag of segment `index` of the message just begun, whose bytes lie in `pieces`; not for encryption.
    pub fn tag_of_segment<'a>(&self, index: usize, pieces: impl Iterator<Item = &'a [u8]>) -> [u8; TAG_LEN] {
        self.send.suite.mac(Nonce(self.send.next - 1, part(index)), pieces).finalize()
    }

    /// Encrypts segment `index` of the message just begun in place, and gives its tag.
    pub fn seal_segment(&self, index: usize, bytes: &mut [u8]) -> [u8; TAG_LEN] {
        self.send.suite.seal(Nonce(self.send.next - 1, part(index)), &[], bytes)
    }

    /// Opens the head of the next message of the peer in place: header, tag, and body.
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

    /// Verifies segment `index` of the message just opened, whose bytes lie in `pieces`; not for encryption.
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
    u32::try_from(index + 1).expect("a payload has few segments")
}

impl Half {
    fn new(key: &[u8; 32], security: Security) -> Self {
        let derive = |context| {
            let key = blake3::derive_key(context, key);
            *key.first_chunk().expect("sixteen of 32 bytes")
        };
        let suite = match security {
            Security::Encrypt => Suite::Encrypt(derive("weft 2026 wire encryption")),
            Security::Mac | Security::None => Suite::Mac(derive("weft 2026 wire mac")),
        };
        Self { suite, next: 0 }
    }
}

impl Suite {
    /// The tag over `header` and `body`, which is encrypted in place if this encrypts.
    fn seal(&self, nonce: Nonce, header: &[u8], body: &mut [u8]) -> [u8; TAG_LEN] {
        match self {
            Self::Mac(_) => self.mac(nonce, [header, body].into_iter()).finalize(),
            Self::Encrypt(key) => Aegis128X2::new(key, &nonce.bytes()).encrypt_in_place(body, header),
        }
    }

    /// Verifies the tag over `header` and `body`, which is decrypted in place if this encrypts.
    fn open(
        &self,
        nonce: Nonce,
        header: &[u8],
        body: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), Malformed> {
        let opened = match self {
            Self::Mac(_) => self.mac(nonce, [header, &*body].into_iter()).verify(tag),
            Self::Encrypt(key) => Aegis128X2::new(key, &nonce.bytes()).decrypt_in_place(body, tag, header),
        };
        opened.map_err(|_| Malformed::Forged)
    }

    fn mac<'a>(&self, nonce: Nonce, pieces: impl Iterator<Item = &'a [u8]>) -> Aegis128X2Mac<TAG_LEN> {
        let Self::Mac(key) = self else { unreachable!("tags alone are made where nothing is encrypted") };
        let mut mac = Aegis128X2Mac::new_with_nonce(key, &nonce.bytes());
        pieces.for_each(|piece| mac.update(piece));
        mac
    }
}
