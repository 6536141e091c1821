//! The handshake: Noise `NNpsk0` with X25519, ChaCha20-Poly1305 and BLAKE2s, by the `snow` crate.

use super::{TAG_LEN, prologue};
use crate::hello::{Exchange, Names};
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, Error, HandshakeState};

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// Length of either message in bytes: an ephemeral key, and the tag of an empty payload.
const MESSAGE_LEN: usize = 32 + TAG_LEN;

/// The peer did not prove that it holds the key and uses the same names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the peer does not hold the key")]
pub struct NoKey;

/// Client side of a handshake in progress.
pub struct Handshake(HandshakeState);

/// Keys that two ends share for one connection.
#[derive(Clone)]
pub struct SessionKeys {
    /// Key from the client to the server.
    pub(super) to_server: [u8; 32],
    /// Key from the server to the client.
    pub(super) to_client: [u8; 32],
}

impl std::fmt::Debug for SessionKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionKeys(..)") // never printed
    }
}

impl Handshake {
    /// Starts the handshake as the client. Returns the state and the message to send. `random` must be fresh.
    pub fn begin(key: &[u8; 32], names: &Names, random: [u8; 32]) -> (Self, Exchange) {
        let mut state = build(key, names, random, HandshakeSide::Client);
        let mut message = [0; MESSAGE_LEN];
        let len = state.write_message(&[], &mut message).expect("space for the first message");
        assert_eq!(len, MESSAGE_LEN);
        (Self(state), exchange(&message))
    }

    /// Answers as the server. Returns the keys and the message to send. `random` must be fresh.
    ///
    /// A replayed first message passes this step, but only a client that holds the key can use the resulting keys.
    ///
    /// # Errors
    /// If the client does not hold `key` or uses other names.
    pub fn answer(
        key: &[u8; 32],
        names: &Names,
        first: &Exchange,
        random: [u8; 32],
    ) -> Result<(SessionKeys, Exchange), NoKey> {
        let mut state = build(key, names, random, HandshakeSide::Server);
        state.read_message(&bytes(first), &mut []).map_err(|_| NoKey)?;
        let mut message = [0; MESSAGE_LEN];
        // Also fails for an ephemeral key of low order, which an honest client never sends.
        let len = state.write_message(&[], &mut message).map_err(|_| NoKey)?;
        assert_eq!(len, MESSAGE_LEN);
        Ok((keys(&mut state), exchange(&message)))
    }

    /// Completes the handshake as the client.
    ///
    /// # Errors
    /// If the server does not hold the key or uses other names.
    pub fn finish(mut self, second: &Exchange) -> Result<SessionKeys, NoKey> {
        self.0.read_message(&bytes(second), &mut []).map_err(|_| NoKey)?;
        Ok(keys(&mut self.0))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum HandshakeSide {
    Client,
    Server,
}

fn build(key: &[u8; 32], names: &Names, random: [u8; 32], side: HandshakeSide) -> HandshakeState {
    let prologue = prologue(names);
    let build = || {
        let params = PATTERN.parse()?;
        let builder = Builder::with_resolver(params, Box::new(Resolver(random)));
        let builder = builder.psk(0, key)?.prologue(&prologue)?;
        match side {
            HandshakeSide::Client => builder.build_initiator(),
            HandshakeSide::Server => builder.build_responder(),
        }
    };
    build().expect("the pattern and its primitives are built in")
}

fn keys(state: &mut HandshakeState) -> SessionKeys {
    let (to_server, to_client) = state.dangerously_get_raw_split();
    SessionKeys { to_server, to_client }
}

fn exchange(message: &[u8; MESSAGE_LEN]) -> Exchange {
    let (ephemeral, tag) = message.split_at(32);
    Exchange {
        ephemeral: ephemeral.try_into().expect("32 bytes"),
        tag: tag.try_into().expect("the other 16"),
    }
}

fn bytes(exchange: &Exchange) -> [u8; MESSAGE_LEN] {
    let mut message = [0; MESSAGE_LEN];
    message[..32].copy_from_slice(&exchange.ephemeral);
    message[32..].copy_from_slice(&exchange.tag);
    message
}

/// Uses the primitives of the crate, but random bytes from the environment, so that a simulated run is reproducible.
struct Resolver([u8; 32]);

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(FixedRandom(Some(self.0))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

/// Random source that returns its bytes once: a handshake generates one ephemeral key.
struct FixedRandom(Option<[u8; 32]>);

impl Random for FixedRandom {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), Error> {
        match self.0.take() {
            Some(given) if given.len() == dest.len() => {
                dest.copy_from_slice(&given);
                Ok(())
            }
            _ => Err(Error::Rng),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hello::{Identity, Role};
    use crate::level::Levels;
    use weft_core::ClusterId;

    fn names() -> Names {
        Names {
            levels: Levels::KNOWN,
            cluster: "physics".into(),
            cluster_id: ClusterId(4),
            server: "s0".into(),
            role: Role::Client(Identity { uid: 1, gid: 2, groups: vec![] }),
            key: None,
        }
    }

    #[test]
    fn both_ends_get_the_same_keys_and_others_none() {
        let key = [1; 32];
        let (client, first) = Handshake::begin(&key, &names(), [3; 32]);
        let (server_keys, second) = Handshake::answer(&key, &names(), &first, [4; 32]).expect("the same key");
        let client_keys = client.finish(&second).expect("the same key");
        assert_eq!(client_keys.to_server, server_keys.to_server);
        assert_eq!(client_keys.to_client, server_keys.to_client);
        assert_ne!(client_keys.to_client, client_keys.to_server);
    }

    #[test]
    fn keys_are_fresh_for_each_connection() {
        let key = [1; 32];
        let connect = |client: [u8; 32], server: [u8; 32]| {
            let (_, first) = Handshake::begin(&key, &names(), client);
            Handshake::answer(&key, &names(), &first, server).expect("the same key").0.to_server
        };
        assert_eq!(connect([3; 32], [4; 32]), connect([3; 32], [4; 32]));
        assert_ne!(connect([3; 32], [4; 32]), connect([5; 32], [4; 32]));
        assert_ne!(connect([3; 32], [4; 32]), connect([3; 32], [5; 32]), "a replayed first message");
    }

    #[test]
    fn another_key_or_name_on_either_side_is_rejected() {
        let (key, other_key) = ([1; 32], [2; 32]);
        let (_, first) = Handshake::begin(&key, &names(), [3; 32]);
        assert_eq!(Handshake::answer(&other_key, &names(), &first, [4; 32]).err(), Some(NoKey));
        let mut others = vec![names(), names(), names(), names()];
        others[0].cluster = "physic".into();
        others[1].cluster_id = ClusterId(5);
        others[2].server = "s1".into();
        others[3].role = Role::Client(Identity { uid: 0, gid: 2, groups: vec![] });
        for other in others {
            assert_eq!(Handshake::answer(&key, &other, &first, [4; 32]).err(), Some(NoKey), "{other:?}");
        }
        let (client, first) = Handshake::begin(&key, &names(), [3; 32]);
        let (_, mut second) = Handshake::answer(&key, &names(), &first, [4; 32]).expect("the same key");
        second.tag[3] ^= 1;
        assert_eq!(client.finish(&second).err(), Some(NoKey), "a changed tag");
        let (client, first) = Handshake::begin(&key, &names(), [3; 32]);
        assert_eq!(client.finish(&first).err(), Some(NoKey), "a reflected message");
    }

    #[test]
    fn ephemeral_keys_of_low_order_give_no_keys() {
        // The tag is valid: the attacker holds the key of one user and tries to make the shared secret predictable.
        let (_, first) = Handshake::begin(&[1; 32], &names(), [3; 32]);
        let zero = Exchange { ephemeral: [0; 32], ..first };
        assert_eq!(Handshake::answer(&[1; 32], &names(), &zero, [4; 32]).err(), Some(NoKey));
    }
}
