//! What a forked or executed process needs to go on with an open file.

use crate::file::OpenFile;
use serde::{Deserialize, Serialize};
use weft_core::FileId;
use weft_env::Env;
use weft_wire::meta::OpenFlags;
use weft_wire::{SessionName, WalkProof};

/// An open file in a form that can be handed to another process; see [`crate::Client::adopt`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HandleToken {
    /// Which file.
    pub file: FileId,
    /// How it was opened.
    pub flags: OpenFlags,
    /// That the session in which it is open reached it.
    pub proof: WalkProof,
    /// That session.
    pub session: SessionName,
    /// For messages.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
}

impl HandleToken {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("a token always encodes")
    }

    /// From bytes; `None` when they are none of ours.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        match postcard::take_from_bytes(bytes) {
            Ok((token, [])) => Some(token),
            _ => None,
        }
    }
}

impl<E: Env> OpenFile<E> {
    /// What another process needs to adopt this open file. Asks nobody.
    pub fn token(&self) -> HandleToken {
        let record = &self.state.record;
        HandleToken {
            file: record.file,
            flags: record.flags,
            proof: record.proof,
            session: self.state.client.core.session.name(),
            path: self.state.path.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_read_back_and_damage_is_noticed() {
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
