//! A greeted connection: requests, replies, one-way messages, and the shared payload area.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, IoSlice};
use weft_env::Env;
use weft_wire::{Family, Incoming, Kind, Link, Malformed};

/// A greeted connection.
pub(crate) struct Connection<E: Env> {
    pub(crate) link: Link<E::Conn>,
    /// Changes with every start of the server process.
    pub(crate) incarnation: u64,
    /// Changes with every boot of the server's machine.
    pub(crate) boot: u64,
    /// Whether client and server share a machine, and therefore memory and descriptors.
    pub(crate) local: bool,
    /// Number of replies not received yet.
    pub(crate) replies_pending: u32,
    /// Shared payload area, once attached.
    pub(crate) area: Area<E::Shared>,
    pub(crate) next_request: u64,
    pub(crate) last_answered: u64,
    /// Version of the cluster map in the latest reply.
    pub(crate) map_version: u32,
}

/// Shared memory for payloads.
pub(crate) enum Area<S> {
    /// Not requested yet.
    Unknown,
    /// Refused by the server.
    None,
    /// Attached, with its length in bytes.
    Attached(S, u32),
}

impl<E: Env> Connection<E> {
    /// Sends a request.
    pub(crate) async fn send_request<M: Serialize>(
        &mut self,
        family: Family,
        message: &M,
        payload: &[IoSlice<'_>],
    ) -> io::Result<()> {
        self.next_request += 1;
        self.link.send(Kind::Request, family, self.next_request, message, payload).await?;
        self.replies_pending += 1;
        Ok(())
    }

    /// Sends a message that gets no reply.
    pub(crate) async fn send_one_way<M: Serialize>(&mut self, family: Family, message: &M) -> io::Result<()> {
        self.next_request += 1;
        // Replies come in the order of requests. This message gets none, so its number is skipped.
        if self.replies_pending == 0 {
            self.last_answered = self.next_request;
        }
        debug_assert_eq!(self.replies_pending, 0, "one-way messages go between exchanges");
        self.link.send(Kind::OneWay, family, self.next_request, message, &[]).await
    }

    /// Receives the next reply, which answers the oldest request. The payload remains to be received.
    pub(crate) async fn recv_reply(&mut self) -> io::Result<Incoming> {
        debug_assert!(self.replies_pending > 0, "a reply is awaited");
        let incoming = self.link.recv().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        self.last_answered += 1;
        if incoming.header.kind != Kind::Reply || incoming.header.request != self.last_answered {
            return Err(Malformed::Field("request").into());
        }
        self.replies_pending -= 1;
        self.map_version = incoming.header.map_version;
        Ok(incoming)
    }

    /// Sends a request and receives its reply, both without payload.
    pub(crate) async fn exchange<M: Serialize, R: DeserializeOwned>(
        &mut self,
        family: Family,
        message: &M,
    ) -> io::Result<R> {
        self.send_request(family, message, &[]).await?;
        let incoming = self.recv_reply().await?;
        let reply = self.link.decode(&incoming)?;
        self.link.skip_payload(u64::from(incoming.header.payload_len)).await?;
        Ok(reply)
    }
}

/// Describes a connection's error for a person.
pub(crate) fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => "no answer within the time-out".into(),
        io::ErrorKind::NotFound => "nothing listens there".into(),
        io::ErrorKind::UnexpectedEof => "it closed the connection".into(),
        _ => error.to_string(),
    }
}

/// Returns whether a time-out passed without an answer.
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

/// Error for a reply that does not fit its request.
pub(crate) fn unexpected_reply() -> io::Error {
    Malformed::Field("reply").into()
}
