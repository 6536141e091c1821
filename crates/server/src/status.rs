//! What a server says of itself.

use crate::connection::malformed;
use crate::data::DataConnection;
use crate::server::Shared;
use std::io::{self, IoSlice};
use weft_env::Env;
use weft_wire::data::PAYLOAD_LEN_MAX;
use weft_wire::status::{ServerStatus, StatusReply, StatusRequest};
use weft_wire::{Errno, Incoming, Link, WireError};

/// What a reply is made of.
pub(crate) enum Answer {
    /// This, and no payload.
    Plain(StatusReply),
    /// `Echo` with so many zeros.
    Echo(u32),
}

/// Zeros to send, over and over: an echo takes no memory.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// So many zeros.
pub(crate) fn zeros(len: u32) -> Vec<IoSlice<'static>> {
    let mut left = len as usize;
    let mut pieces = Vec::with_capacity(left.div_ceil(ZEROS.len()));
    while left > 0 {
        let piece = left.min(ZEROS.len());
        pieces.push(IoSlice::new(&ZEROS[..piece]));
        left -= piece;
    }
    pieces
}

/// Answers a request of the status family.
pub(crate) async fn reply<E: Env>(
    shared: &Shared<E>,
    link: &mut Link<E::Conn>,
    incoming: &Incoming,
    connection: &DataConnection<E>,
) -> io::Result<Answer> {
    let request = link.decode(incoming);
    link.skip_payload(incoming.header.payload_len.into()).await?;
    Ok(Answer::Plain(match request {
        Ok(StatusRequest::Echo { reply_len }) if reply_len <= PAYLOAD_LEN_MAX => {
            return Ok(Answer::Echo(reply_len));
        }
        Ok(StatusRequest::Echo { .. }) => {
            StatusReply::Failed(WireError::new(Errno::EINVAL, "a payload cannot be so long"))
        }
        Ok(StatusRequest::Status) => StatusReply::Status(Box::new(status(shared).await)),
        Ok(StatusRequest::Shutdown) if connection.is_administrator() => {
            shared.request_stop();
            StatusReply::ShuttingDown
        }
        Ok(StatusRequest::Shutdown) => StatusReply::Failed(WireError::new(
            Errno::EPERM,
            "only root and the user who runs the server may end it",
        )),
        Err(bad) => StatusReply::Failed(malformed(bad)),
    }))
}

async fn status<E: Env>(shared: &Shared<E>) -> ServerStatus {
    let config = &shared.config;
    ServerStatus {
        server: config.server,
        name: config.name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: config.hooks.pid,
        uptime: shared.env.now().saturating_sub(shared.started),
        connections: shared.connections.count() as u32,
        memory: (config.hooks.memory)(),
        cluster_id: shared.cluster_id,
        targets: match &shared.data {
            Some(service) => service.status().await,
            None => Vec::new(),
        },
        metadata: match &shared.metadata {
            Some(service) => Some(service.status().await),
            None => None,
        },
    }
}
