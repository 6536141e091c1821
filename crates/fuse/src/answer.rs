//! Results on their way to the kernel.

use crate::convert::{attr, errno};
use fuser::{Errno, Generation, ReplyAttr, ReplyEmpty, ReplyEntry, ReplyXattr};
use std::time::Duration;
use weft_client::Error;
use weft_wire::meta::Attr;

/// Why a request is refused.
pub struct Refusal(pub Errno);

/// What a request comes to.
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

/// Says that it is done.
pub fn done(result: Answer<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(Refusal(errno)) => reply.error(errno),
    }
}

/// Tells of a name, which the kernel may keep for `ttl`.
pub fn entry(result: Answer<Attr>, ttl: Duration, reply: ReplyEntry) {
    match result {
        Ok(found) => reply.entry(&ttl, &attr(&found), Generation(0)),
        Err(Refusal(errno)) => reply.error(errno),
    }
}

/// Tells attributes, which the kernel may keep for `ttl`.
pub fn attributes(result: Answer<Attr>, ttl: Duration, reply: ReplyAttr) {
    match result {
        Ok(found) => reply.attr(&ttl, &attr(&found)),
        Err(Refusal(errno)) => reply.error(errno),
    }
}

/// Answers a question for an extended attribute: its size, or the bytes when they fit.
pub fn sized(result: Answer<Vec<u8>>, size: u32, reply: ReplyXattr) {
    match result {
        Ok(bytes) if size == 0 => reply.size(bytes.len() as u32),
        Ok(bytes) if bytes.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(bytes) => reply.data(&bytes),
        Err(Refusal(errno)) => reply.error(errno),
    }
}
