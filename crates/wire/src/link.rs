//! Messages over a connection: what client and server share of sending and receiving.

use crate::header::{
    BODY_LEN_MAX, Family, HEADER_LEN, Header, Kind, Malformed, encode_message, payload_check,
};
use serde::{Serialize, de::DeserializeOwned};
use std::io::{self, IoSlice, IoSliceMut};
use weft_core::{ByteLen, LocalOffset};
use weft_env::{Attachment, Conn, Processor};

/// A connection on which messages travel. Used by one task at a time.
pub struct Link<C: Conn> {
    conn: C,
    inbox: Vec<u8>,
    start: usize,
    end: usize,
    outbox: Vec<u8>,
    checksums: bool,
    body_len_max: u32,
    waits_on: Option<Processor>,
}

/// A received message without its payload. Its payload must be received or skipped before the next message.
#[derive(Debug)]
pub struct Incoming {
    /// The checked header.
    pub header: Header,
    body: std::ops::Range<usize>,
}

impl<C: Conn> Link<C> {
    /// Over a fresh connection, without payload checksums.
    pub fn new(conn: C) -> Self {
        Self {
            conn,
            inbox: vec![0; C::READ_LEN],
            start: 0,
            end: 0,
            outbox: Vec::new(),
            checksums: false,
            body_len_max: BODY_LEN_MAX,
            waits_on: None,
        }
    }

    /// The most body bytes that a message from the peer may have from now on, itself at most [`BODY_LEN_MAX`]. A
    /// server sets [`hello::BODY_LEN_MAX`](crate::hello::BODY_LEN_MAX) until the peer has authenticated itself.
    pub fn limit_bodies(&mut self, body_len_max: u32) {
        self.body_len_max = body_len_max.min(BODY_LEN_MAX);
    }

    /// The processor that this task waits on for the replies to the requests sent from now on: for when it waits for
    /// this connection alone, and the peer is of this machine.
    pub fn set_waits_on(&mut self, processor: Option<Processor>) {
        self.waits_on = processor;
    }

    /// Whether payloads that this side sends carry checksums from now on.
    pub fn set_checksums(&mut self, on: bool) {
        self.checksums = on;
    }

    /// Whether payloads that this side sends carry checksums.
    pub fn checksums(&self) -> bool {
        self.checksums
    }

    /// The connection below, for its peer, time-outs, closer and attachments.
    pub fn conn(&mut self) -> &mut C {
        &mut self.conn
    }

    /// Sends a message whose payload lies in memory, in one send.
    ///
    /// # Errors
    /// Of the connection.
    pub async fn send<M: Serialize>(
        &mut self,
        kind: Kind,
        family: Family,
        request: u64,
        message: &M,
        payload: &[IoSlice<'_>],
    ) -> io::Result<()> {
        let payload_len: usize = payload.iter().map(|piece| piece.len()).sum();
        let check = (self.checksums && payload_len > 0).then(|| payload_check(payload.iter().map(|p| &**p)));
        let header = Header {
            payload_len: payload_len as u32,
            payload_check: check,
            waits_on: if kind == Kind::Request { self.waits_on } else { None },
            ..Header::new(kind, family, request)
        };
        encode_message(&mut self.outbox, &header, message);
        if payload.is_empty() {
            return self.conn.send(&[IoSlice::new(&self.outbox)]).await;
        }
        let mut parts = Vec::with_capacity(payload.len() + 1);
        parts.push(IoSlice::new(&self.outbox));
        parts.extend(payload.iter().map(|piece| IoSlice::new(piece)));
        self.conn.send(&parts).await
    }

    /// Sends a message whose payload is `len` bytes of `file` from `offset`, without a checksum (the bytes do not
    /// pass through this program where the system can send them itself).
    ///
    /// # Errors
    /// Of the connection.
    #[expect(clippy::too_many_arguments, reason = "a message and its three-part payload")]
    pub async fn send_file<M: Serialize>(
        &mut self,
        kind: Kind,
        family: Family,
        request: u64,
        message: &M,
        file: &C::File,
        offset: LocalOffset,
        len: ByteLen,
    ) -> io::Result<()> {
        let header = Header { payload_len: len.0 as u32, ..Header::new(kind, family, request) };
        encode_message(&mut self.outbox, &header, message);
        self.conn.send_file(&[IoSlice::new(&self.outbox)], file, offset, len).await
    }

    /// Sends a message without payload and with descriptors.
    ///
    /// # Errors
    /// Of the connection; `Unsupported` when the peer is not local.
    pub async fn send_attached<M: Serialize>(
        &mut self,
        kind: Kind,
        family: Family,
        request: u64,
        message: &M,
        attachments: &[Attachment<C::File, C::Shared>],
    ) -> io::Result<()> {
        let header = Header { attachments: attachments.len() as u8, ..Header::new(kind, family, request) };
        encode_message(&mut self.outbox, &header, message);
        self.conn.send_attached(&self.outbox, attachments).await
    }

    /// The next message, without its payload; `None` when the peer closed between messages.
    ///
    /// # Errors
    /// Of the connection; `InvalidData` (a [`Malformed`]) when the bytes are no message, after which the
    /// connection is of no more use.
    pub async fn recv(&mut self) -> io::Result<Option<Incoming>> {
        if !self.fill(HEADER_LEN).await? {
            return Ok(None);
        }
        let bytes: &[u8; HEADER_LEN] =
            self.inbox[self.start..self.start + HEADER_LEN].try_into().expect("a header's length");
        let header = Header::decode(bytes)?;
        if header.body_len > self.body_len_max {
            return Err(Malformed::Field("body_len").into());
        }
        let len = HEADER_LEN + header.body_len as usize;
        if !self.fill(len).await? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let body = self.start + HEADER_LEN..self.start + len;
        self.start += len;
        Ok(Some(Incoming { header, body }))
    }

    /// The body of the message just received, checked and decoded.
    ///
    /// # Errors
    /// As [`Header::decode_body`].
    pub fn decode<M: DeserializeOwned>(&self, incoming: &Incoming) -> Result<M, Malformed> {
        incoming.header.decode_body(&self.inbox[incoming.body.clone()])
    }

    /// Receives the payload of the message just received into `bufs`, which together are as long as it is.
    ///
    /// # Errors
    /// Of the connection; `InvalidData` when the payload's checksum does not fit.
    ///
    /// # Panics
    /// When `bufs` have another length than the payload.
    pub async fn recv_payload(&mut self, header: &Header, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let room: usize = bufs.iter().map(|buf| buf.len()).sum();
        assert_eq!(room, header.payload_len as usize, "room for the payload");
        let mut skip = 0;
        let mut partial = 0;
        for buf in bufs.iter_mut() {
            let take = buf.len().min(self.end - self.start);
            buf[..take].copy_from_slice(&self.inbox[self.start..self.start + take]);
            self.start += take;
            if take < buf.len() {
                partial = take;
                break;
            }
            skip += 1;
        }
        if let Some((first, rest)) = bufs[skip..].split_first_mut() {
            if partial == 0 {
                self.conn.recv_exact(&mut bufs[skip..]).await?;
            } else {
                let mut tail: Vec<IoSliceMut<'_>> = Vec::with_capacity(rest.len() + 1);
                tail.push(IoSliceMut::new(&mut first[partial..]));
                tail.extend(rest.iter_mut().map(|buf| IoSliceMut::new(buf)));
                self.conn.recv_exact(&mut tail).await?;
            }
        }
        match header.payload_check {
            Some(check) if check != payload_check(bufs.iter().map(|buf| &**buf)) => {
                Err(Malformed::PayloadCheck.into())
            }
            _ => Ok(()),
        }
    }

    /// Receives and drops what is left of a payload.
    ///
    /// # Errors
    /// Of the connection.
    pub async fn skip_payload(&mut self, len: u64) -> io::Result<()> {
        let mut left = len;
        while left > 0 {
            if self.start == self.end {
                self.start = 0;
                self.end = 0;
                let got = self.conn.recv(&mut self.inbox).await?;
                if got == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                self.end = got;
            }
            let take = left.min((self.end - self.start) as u64);
            self.start += take as usize;
            left -= take;
        }
        Ok(())
    }

    /// Whether bytes have been received that no message has been made of yet.
    pub fn has_buffered(&self) -> bool {
        self.start < self.end
    }

    /// Has at least `len` bytes at `start`; false when the peer closed before the first of them.
    async fn fill(&mut self, len: usize) -> io::Result<bool> {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
            // A long body is rare: give its room back.
            if self.inbox.len() > C::READ_LEN && len <= C::READ_LEN {
                self.inbox.truncate(C::READ_LEN);
                self.inbox.shrink_to_fit();
            }
        }
        if self.start + len > self.inbox.len() {
            self.inbox.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        while self.end - self.start < len {
            if self.end == self.inbox.len() {
                // Room grows with what has come, so that a header alone makes nobody reserve its whole body.
                let room = (self.inbox.len() * 2).min(len);
                self.inbox.reserve_exact(room - self.inbox.len());
                self.inbox.resize(room, 0);
            }
            let got = self.conn.recv(&mut self.inbox[self.end..]).await?;
            if got == 0 {
                if self.start == self.end {
                    return Ok(false);
                }
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.end += got;
        }
        Ok(true)
    }
}
