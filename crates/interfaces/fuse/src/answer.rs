//! Replies to the kernel.

use crate::convert::{attr, errno};
use fuser::{Errno, Generation, ReplyAttr, ReplyEmpty, ReplyEntry, ReplyXattr};
use std::time::Duration;
use weft_client::Error;
use weft_wire::meta::Attr;

/// Error number with which a request fails.
pub struct Refusal(pub Errno);

/// Result of a request.
pub type Answer<T> = Result<T, Refusal>;

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self(errno)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        if error.errno() == libc::EIO {
            crate::failures::note(&error);
        }
        Self(errno(&error))
    }
}

/// Replies to a request without a result.
pub fn done(result: Answer<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(Refusal(errno)) => reply.error(errno),
    }
}

/// Replies with a name, which the kernel may cache for `name_ttl`, and its attributes.
pub fn entry(result: Answer<Attr>, (name_ttl, attr_ttl): (Duration, Duration), reply: ReplyEntry) {
    match result {
        Ok(found) => reply.entry_with_ttls(&attr_ttl, &name_ttl, &attr(&found), Generation(0)),
        Err(Refusal(errno)) => reply.error(errno),
    }
}

/// Replies with attributes, which the kernel may cache for `ttl`.
pub fn attributes(result: Answer<Attr>, ttl: Duration, reply: ReplyAttr) {
    match result {
        Ok(found) => reply.attr(&ttl, &attr(&found)),
        Err(Refusal(errno)) => reply.error(errno),
    }
}

/// Replies to a query of an extended attribute with its size, or with its bytes if they fit.
pub fn sized(result: Answer<Vec<u8>>, size: u32, reply: ReplyXattr) {
    match result {
        Ok(bytes) if size == 0 => reply.size(bytes.len() as u32),
        Ok(bytes) if bytes.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(bytes) => reply.data(&bytes),
        Err(Refusal(errno)) => reply.error(errno),
    }
}
