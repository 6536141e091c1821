//! The client side of a greeting, for clients and for servers that connect to servers.

use crate::header::{Family, Kind, Malformed};
use crate::hello::{AuthMethod, BODY_LEN_MAX, Hello, HelloReply, Names, Opening, Role, Security, Welcome};
use crate::secure::{Handshake, Sealing};
use crate::{Link, WireError};
use serde::Serialize;
use std::io;
use weft_env::{Conn, Peer};

/// Parameters of a client's greeting.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Both ends.
    pub names: Names,
    /// Requested properties of the connection.
    pub opening: Opening,
    /// Key of the role, if there is one.
    pub key: Option<[u8; 32]>,
    /// Fresh random bytes.
    pub random: [u8; 32],
    /// Whether payloads of this world are lengths only.
    pub lengths_only: bool,
}

/// Reason for which a greeting failed.
#[derive(Debug)]
pub enum GreetingError {
    /// The connection broke, or the peer does not speak Weft's protocol.
    Io(io::Error),
    /// The server rejected the greeting.
    Refused(WireError),
    /// The connection needs a key, but there is none.
    NoKey,
    /// The server did not prove that it holds the key and has the expected name.
    Unproven,
}

impl From<io::Error> for GreetingError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Malformed> for GreetingError {
    fn from(error: Malformed) -> Self {
        Self::Io(error.into())
    }
}

/// Greets a server over a fresh connection. Calls `pace` before each wait for the server.
///
/// After success, the link protects messages as the server's [`Welcome`] says.
///
/// # Errors
/// If the server does not answer, or does not prove its welcome.
pub async fn greet<C: Conn>(
    link: &mut Link<C>,
    caller: Caller,
    mut pace: impl FnMut(&mut Link<C>) -> io::Result<()>,
) -> Result<Welcome, GreetingError> {
    let Caller { names, opening, key, random, lengths_only } = caller;
    let is_local = matches!(link.conn().peer(), Peer::Local { .. });
    let levels = names.levels;
    let security_min = opening.security.max(Security::Mac);
    link.limit_bodies(BODY_LEN_MAX);
    let welcome = if is_local && matches!(names.role, Role::Client(_)) {
        pace(link)?;
        match say(link, 1, &Hello { names, method: AuthMethod::Credentials(opening) }).await? {
            HelloReply::Welcome(welcome) => welcome,
            HelloReply::Refused(error) => return Err(GreetingError::Refused(error)),
            HelloReply::Challenge(_) => return Err(Malformed::Field("challenge").into()),
        }
    } else {
        let key = key.ok_or(GreetingError::NoKey)?;
        let (handshake, first) = Handshake::begin(&key, &names, random);
        pace(link)?;
        let second = match say(link, 1, &Hello { names, method: AuthMethod::Key(first) }).await? {
            HelloReply::Challenge(second) => second,
            HelloReply::Refused(error) => return Err(GreetingError::Refused(error)),
            HelloReply::Welcome(_) => return Err(GreetingError::Unproven),
        };
        let keys = handshake.finish(&second).map_err(|_| GreetingError::Unproven)?;
        link.seal(Sealing::new(keys, false), lengths_only);
        pace(link)?;
        match say(link, 2, &opening).await? {
            HelloReply::Welcome(welcome) => welcome,
            HelloReply::Refused(error) => return Err(GreetingError::Refused(error)),
            HelloReply::Challenge(_) => return Err(Malformed::Field("challenge").into()),
        }
    };
    // Only the authenticated server can have sent this reply, but it must not offer less protection than requested.
    let is_enough = match is_local {
        true => welcome.security == Security::None,
        false => welcome.security >= security_min,
    };
    if !is_enough {
        return Err(Malformed::Field("security").into());
    }
    if !levels.contain(welcome.level) {
        return Err(Malformed::Field("level").into());
    }
    link.agree(welcome.security);
    link.set_level(welcome.level);
    link.set_checksums(welcome.checksums);
    link.limit_bodies(u32::MAX);
    Ok(welcome)
}

async fn say<C: Conn, M: Serialize>(
    link: &mut Link<C>,
    request: u64,
    message: &M,
) -> Result<HelloReply, GreetingError> {
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
