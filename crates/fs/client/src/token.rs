//! Tokens with which a forked or executed process takes over an open file.

use crate::file::OpenFile;
use serde::{Deserialize, Serialize};
use weft_core::FileId;
use weft_env::Env;
use weft_wire::meta::OpenFlags;
use weft_wire::{SessionName, WalkProof};

/// An open file in a form that can be passed to another process; see [`crate::Client::adopt`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HandleToken {
    /// Id of the file.
    pub file: FileId,
    /// Flags of the open.
    pub flags: OpenFlags,
    /// Proof that the session with the open file reached it by a path.
    pub proof: WalkProof,
    /// Session with the open file.
    pub session: SessionName,
    /// Path for error messages.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
}

impl HandleToken {
    /// Encodes the token.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("a token always encodes")
    }

    /// Decodes a token; `None` if `bytes` is not a token.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        match postcard::take_from_bytes(bytes) {
            Ok((token, [])) => Some(token),
            _ => None,
        }
    }
}

impl<E: Env> OpenFile<E> {
    /// Returns the token for another process, without a message.
    pub fn token(&self) -> HandleToken {
        let record = &self.state.record;
        HandleToken {
            file: record.file,
            flags: record.flags,
            proof: record.proof,
            session: self.state.session.core.session_id.name(),
            path: self.state.path.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_encoding_and_damage_is_rejected() {
        let token = HandleToken {
            file: FileId(7),
            flags: OpenFlags { read: true, ..OpenFlags::default() },
            proof: WalkProof([7; 16]),
            session: SessionName(9),
            path: b"a/b".to_vec(),
        };
        let bytes = token.encode();
        assert_eq!(HandleToken::decode(&bytes), Some(token));
        assert_eq!(HandleToken::decode(&bytes[1..]), None);
        assert_eq!(HandleToken::decode(&[&bytes[..], &[0]].concat()), None);
    }
}
