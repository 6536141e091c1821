//! The client's side of a greeting: what clients, and servers that connect to servers, have in common.

use crate::header::{Family, Kind, Malformed};
use crate::hello::{BODY_LEN_MAX, Hello, HelloReply, Means, Names, Opening, Role, Security, Welcome};
use crate::secure::{Handshake, Sealing};
use crate::{Link, WireError};
use serde::Serialize;
use std::io;
use weft_env::{Conn, Peer};

/// What a client greets a server with.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Both ends.
    pub names: Names,
    /// What the client wants of the connection.
    pub opening: Opening,
    /// The key of the role; `None` when there is none.
    pub key: Option<[u8; 32]>,
    /// Fresh random bytes.
    pub random: [u8; 32],
    /// Payloads of this world are lengths only.
    pub lengths_only: bool,
}

/// Why a greeting failed.
#[derive(Debug)]
pub enum NotWelcome {
    /// The connection broke, or the peer spoke no Weft.
    Io(io::Error),
    /// The server said why.
    Refused(WireError),
    /// A key is needed here, and there is none.
    NoKey,
    /// The server did not prove that it holds the key and is the server that was meant.
    Unproven,
}

impl From<io::Error> for NotWelcome {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Malformed> for NotWelcome {
    fn from(error: Malformed) -> Self {
        Self::Io(error.into())
    }
}

/// Greets a server over a fresh connection. `pace` is called before each wait for it.
///
/// After a success the link protects messages as the server's [`Welcome`] says.
///
/// # Errors
/// When the server did not answer, or not with a welcome that it proved.
pub async fn greet<C: Conn>(
    link: &mut Link<C>,
    caller: Caller,
    mut pace: impl FnMut(&mut Link<C>) -> io::Result<()>,
) -> Result<Welcome, NotWelcome> {
    let Caller { names, opening, key, random, lengths_only } = caller;
    let is_local = matches!(link.conn().peer(), Peer::Local { .. });
    link.limit_bodies(BODY_LEN_MAX);
    let welcome = if is_local && matches!(names.role, Role::Client(_)) {
        pace(link)?;
        match say(link, 1, &Hello { names, means: Means::Credentials(opening) }).await? {
            HelloReply::Welcome(welcome) => welcome,
            HelloReply::Refused(error) => return Err(NotWelcome::Refused(error)),
            HelloReply::Challenge(_) => return Err(Malformed::Field("challenge").into()),
        }
    } else {
        let key = key.ok_or(NotWelcome::NoKey)?;
        let (handshake, first) = Handshake::begin(&key, &names, random);
        pace(link)?;
        let second = match say(link, 1, &Hello { names, means: Means::Key(first) }).await? {
            HelloReply::Challenge(second) => second,
            HelloReply::Refused(error) => return Err(NotWelcome::Refused(error)),
            HelloReply::Welcome(_) => return Err(NotWelcome::Unproven),
        };
        let keys = handshake.finish(&second).map_err(|_| NotWelcome::Unproven)?;
        link.seal(Sealing::new(keys, false), lengths_only);
        pace(link)?;
        match say(link, 2, &opening).await? {
            HelloReply::Welcome(welcome) => welcome,
            HelloReply::Refused(error) => return Err(NotWelcome::Refused(error)),
            HelloReply::Challenge(_) => return Err(Malformed::Field("challenge").into()),
        }
    };
    // Nobody but the server can have said so, and a server does not say less than it was asked for.
    let is_enough = match is_local {
        true => welcome.security == Security::None,
        false => welcome.security >= opening.security.max(Security::Mac),
    };
    if !is_enough {
        return Err(Malformed::Field("security").into());
    }
    link.agree(welcome.security);
    link.set_checksums(welcome.checksums);
    link.limit_bodies(u32::MAX);
    Ok(welcome)
}

async fn say<C: Conn, M: Serialize>(
    link: &mut Link<C>,
    request: u64,
    message: &M,
) -> Result<HelloReply, NotWelcome> {
    link.send(Kind::Request, Family::Hello, request, message, &[]).await?;
    let incoming = link.recv().await?.ok_or(io::ErrorKind::UnexpectedEof).map_err(io::Error::from)?;
    let header = &incoming.header;
    if header.family != Family::Hello || header.kind != Kind::Reply || header.request != request {
        return Err(Malformed::Field("request").into());
    }
    if header.payload_len != 0 {
        return Err(Malformed::Field("payload_len").into());
    }
    Ok(link.decode(&incoming)?)
}
