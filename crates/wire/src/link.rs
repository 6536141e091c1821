//! Messages over a connection: what client and server share of sending and receiving.

use crate::header::{
    BODY_LEN_MAX, Family, HEADER_LEN, Header, Kind, Malformed, encode_message, payload_check,
};
use crate::hello::Security;
use crate::secure::{Sealing, TAG_LEN, segments};
use serde::{Serialize, de::DeserializeOwned};
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use weft_core::{ByteLen, LocalOffset};
use weft_env::{Attachment, Conn, Hollow, Processor};

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
    sealed: Option<Box<Sealed>>,
}

/// What a link has when its messages are sealed.
struct Sealed {
    sealing: Sealing,
    /// Where payloads are lengths only: in the place of each of their tags, so that they take as long as others.
    hollow_tag: Option<Hollow>,
    /// A segment that is encrypted, or dropped after it was verified.
    segment: Vec<u8>,
    /// A message was not the peer's: nothing is received any more.
    is_forged: bool,
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
            sealed: None,
        }
    }

    /// Seals all messages from here on, the greeting's with encryption. `lengths_only` in a world whose payloads are.
    pub fn seal(&mut self, sealing: Sealing, lengths_only: bool) {
        let hollow_tag = lengths_only.then(|| Hollow::new(TAG_LEN).expect("this world has such buffers"));
        let segment = Vec::new();
        self.sealed = Some(Box::new(Sealed { sealing, hollow_tag, segment, is_forged: false }));
    }

    /// After the greeting: messages are protected by `security` from here on.
    ///
    /// # Panics
    /// When there is to be a protection for which no keys were agreed.
    pub fn agree(&mut self, security: Security) {
        match (&mut self.sealed, security) {
            (sealed, Security::None) => *sealed = None,
            (Some(sealed), security) => sealed.sealing.agree(security),
            (None, _) => panic!("{security:?} on a connection without keys"),
        }
    }

    /// How messages are protected.
    pub fn security(&self) -> Security {
        self.sealed.as_ref().map_or(Security::None, |sealed| sealed.sealing.security())
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

    /// Whether [`send_file`](Self::send_file) may be used: payloads that carry checksums or tags pass through this program.
    pub fn sends_files(&self) -> bool {
        !self.checksums && self.sealed.is_none()
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
        let has_check = self.checksums && payload_len > 0 && self.sealed.is_none();
        let check = has_check.then(|| payload_check(payload.iter().map(|p| &**p)));
        let header = Header {
            payload_len: payload_len as u32,
            payload_check: check,
            waits_on: if kind == Kind::Request { self.waits_on } else { None },
            ..self.header(kind, family, request)
        };
        self.encode(&header, message)?;
        if payload.is_empty() {
            return self.conn.send(&[IoSlice::new(&self.outbox)]).await;
        }
        if self.sealed.is_some() {
            return self.send_sealed(payload, payload_len).await;
        }
        let mut parts = Vec::with_capacity(payload.len() + 1);
        parts.push(IoSlice::new(&self.outbox));
        parts.extend(payload.iter().map(|piece| IoSlice::new(piece)));
        self.conn.send(&parts).await
    }

    fn header(&self, kind: Kind, family: Family, request: u64) -> Header {
        Header { is_sealed: self.sealed.is_some(), ..Header::new(kind, family, request) }
    }

    /// Puts header and body into the outbox, and seals them.
    fn encode<M: Serialize>(&mut self, header: &Header, message: &M) -> io::Result<()> {
        encode_message(&mut self.outbox, header, message);
        match &mut self.sealed {
            Some(sealed) if sealed.is_forged => Err(Malformed::Forged.into()),
            Some(sealed) => {
                sealed.sealing.seal_head(&mut self.outbox);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Sends the outbox and the payload behind it, each segment with its tag.
    async fn send_sealed(&mut self, payload: &[IoSlice<'_>], len: usize) -> io::Result<()> {
        let sealed = self.sealed.as_mut().expect("a sealed link");
        let mut cursor = Cursor::default();
        for (index, range) in segments(len).enumerate() {
            let mut parts = Vec::with_capacity(payload.len() + 2);
            if index == 0 {
                parts.push(IoSlice::new(&self.outbox));
            }
            let pieces = cursor.take(payload.iter().map(|piece| piece.len()), range.len());
            let pieces = pieces.into_iter().map(|(at, range)| &payload[at][range]);
            let tag;
            if let Some(hollow) = &sealed.hollow_tag {
                parts.extend(pieces.map(IoSlice::new));
                parts.push(IoSlice::new(hollow));
                self.conn.send(&parts).await?;
                continue;
            }
            if sealed.sealing.encrypts() {
                sealed.segment.clear();
                pieces.for_each(|piece| sealed.segment.extend_from_slice(piece));
                tag = sealed.sealing.seal_segment(index, &mut sealed.segment);
                parts.push(IoSlice::new(&sealed.segment));
            } else {
                tag = sealed.sealing.tag_of_segment(index, pieces.clone());
                parts.extend(pieces.map(IoSlice::new));
            }
            parts.push(IoSlice::new(&tag));
            self.conn.send(&parts).await?;
        }
        Ok(())
    }

    /// Sends a message whose payload is `len` bytes of `file` from `offset`, without a checksum (the bytes do not
    /// pass through this program where the system can send them itself). Only where [`sends_files`](Self::sends_files).
    ///
    /// # Errors
    /// Of the connection; `Unsupported` when payloads have to pass through this program.
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
        if !self.sends_files() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let header = Header { payload_len: len.0 as u32, ..self.header(kind, family, request) };
        self.encode(&header, message)?;
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
        let header = Header { attachments: attachments.len() as u8, ..self.header(kind, family, request) };
        self.encode(&header, message)?;
        self.conn.send_attached(&self.outbox, attachments).await
    }

    /// The next message, without its payload; `None` when the peer closed between messages.
    ///
    /// # Errors
    /// Of the connection; `InvalidData` (a [`Malformed`]) when the bytes are no message, or not the peer's next one, after
    /// which the connection is of no more use.
    pub async fn recv(&mut self) -> io::Result<Option<Incoming>> {
        if self.sealed.as_ref().is_some_and(|sealed| sealed.is_forged) {
            return Err(Malformed::Forged.into());
        }
        let result = self.recv_message().await;
        if let (Some(sealed), Err(error)) = (&mut self.sealed, &result) {
            // What comes next could be told from nothing that came before.
            sealed.is_forged |= error.kind() == io::ErrorKind::InvalidData;
        }
        result
    }

    async fn recv_message(&mut self) -> io::Result<Option<Incoming>> {
        if !self.fill(HEADER_LEN).await? {
            return Ok(None);
        }
        let bytes: &[u8; HEADER_LEN] =
            self.inbox[self.start..self.start + HEADER_LEN].try_into().expect("a header's length");
        let header = Header::decode(bytes)?;
        if header.is_sealed != self.sealed.is_some() {
            return Err(Malformed::Forged.into());
        }
        if header.body_len > self.body_len_max {
            return Err(Malformed::Field("body_len").into());
        }
        let head_len = if header.is_sealed { HEADER_LEN + TAG_LEN } else { HEADER_LEN };
        let len = head_len + header.body_len as usize;
        if !self.fill(len).await? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(sealed) = &mut self.sealed {
            sealed.sealing.open_head(&mut self.inbox[self.start..self.start + len])?;
        }
        let body = self.start + head_len..self.start + len;
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

    /// The bytes of the body of the message just received; they are the peer's only where messages are sealed.
    pub fn body(&self, incoming: &Incoming) -> &[u8] {
        &self.inbox[incoming.body.clone()]
    }

    /// Receives the payload of the message just received into `bufs`, which together are as long as it is. What they hold
    /// means nothing before this returns without an error.
    ///
    /// # Errors
    /// Of the connection; `InvalidData` when the payload's checksum or a tag does not fit. After a wrong tag the connection
    /// is of no more use.
    ///
    /// # Panics
    /// When `bufs` have another length than the payload.
    pub async fn recv_payload(&mut self, header: &Header, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let room: usize = bufs.iter().map(|buf| buf.len()).sum();
        assert_eq!(room, header.payload_len as usize, "room for the payload");
        if self.sealed.is_some() {
            return self.recv_sealed(room, bufs).await;
        }
        self.recv_into(bufs).await?;
        match header.payload_check {
            Some(check) if check != payload_check(bufs.iter().map(|buf| &**buf)) => {
                Err(Malformed::PayloadCheck.into())
            }
            _ => Ok(()),
        }
    }

    /// Receives a payload of `len` bytes, each segment with its tag.
    async fn recv_sealed(&mut self, len: usize, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let mut cursor = Cursor::default();
        for (index, range) in segments(len).enumerate() {
            let pieces = cursor.take(bufs.iter().map(|buf| buf.len()), range.len());
            let mut tag = [0; TAG_LEN];
            let mut hollow = self.sealed.as_mut().and_then(|sealed| sealed.hollow_tag.take());
            {
                let first = pieces.first().map_or(0, |(at, _)| *at);
                let mut parts: Vec<IoSliceMut<'_>> = Vec::with_capacity(pieces.len() + 1);
                for (buf, (_, range)) in bufs[first..].iter_mut().zip(&pieces) {
                    parts.push(IoSliceMut::new(&mut buf[range.clone()]));
                }
                parts.push(match &mut hollow {
                    Some(hollow) => IoSliceMut::new(hollow),
                    None => IoSliceMut::new(&mut tag),
                });
                self.recv_into(&mut parts).await?;
            }
            let sealed = self.sealed.as_mut().expect("a sealed link");
            if hollow.is_some() {
                sealed.hollow_tag = hollow;
                continue;
            }
            let verified = match (sealed.sealing.encrypts(), pieces.as_slice()) {
                (false, _) => {
                    let pieces = pieces.iter().map(|(at, range)| &bufs[*at][range.clone()]);
                    sealed.sealing.verify_segment(index, pieces, &tag)
                }
                (true, [(at, range)]) => {
                    sealed.sealing.open_segment(index, &mut bufs[*at][range.clone()], &tag)
                }
                (true, _) => {
                    sealed.segment.clear();
                    for (at, range) in &pieces {
                        sealed.segment.extend_from_slice(&bufs[*at][range.clone()]);
                    }
                    let opened = sealed.sealing.open_segment(index, &mut sealed.segment, &tag);
                    let mut from = 0;
                    for (at, range) in &pieces {
                        let len = range.len();
                        bufs[*at][range.clone()].copy_from_slice(&sealed.segment[from..from + len]);
                        from += len;
                    }
                    opened
                }
            };
            if let Err(forged) = verified {
                sealed.is_forged = true;
                return Err(forged.into());
            }
        }
        Ok(())
    }

    /// Fills all of `bufs`, with what lies in the inbox first.
    async fn recv_into(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
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
        let Some((first, rest)) = bufs[skip..].split_first_mut() else { return Ok(()) };
        if partial == 0 {
            return self.conn.recv_exact(&mut bufs[skip..]).await;
        }
        let mut tail: Vec<IoSliceMut<'_>> = Vec::with_capacity(rest.len() + 1);
        tail.push(IoSliceMut::new(&mut first[partial..]));
        tail.extend(rest.iter_mut().map(|buf| IoSliceMut::new(buf)));
        self.conn.recv_exact(&mut tail).await
    }

    /// Receives and drops the payload of the message just received, whose length is `len`.
    ///
    /// # Errors
    /// Of the connection; `InvalidData` when a tag does not fit, after which the connection is of no more use.
    pub async fn skip_payload(&mut self, len: u64) -> io::Result<()> {
        match &self.sealed {
            Some(sealed) if sealed.hollow_tag.is_none() => return self.skip_sealed(len as usize).await,
            Some(_) => self.skip_bytes(len + (segments(len as usize).count() * TAG_LEN) as u64).await,
            None => self.skip_bytes(len).await,
        }
    }

    async fn skip_bytes(&mut self, len: u64) -> io::Result<()> {
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

    async fn skip_sealed(&mut self, len: usize) -> io::Result<()> {
        for (index, range) in segments(len).enumerate() {
            let mut segment = std::mem::take(&mut self.sealed.as_mut().expect("a sealed link").segment);
            segment.resize(range.len(), 0);
            let mut tag = [0; TAG_LEN];
            let received =
                self.recv_into(&mut [IoSliceMut::new(&mut segment), IoSliceMut::new(&mut tag)]).await;
            let sealed = self.sealed.as_mut().expect("a sealed link");
            let verified = received.and_then(|()| {
                let verified = match sealed.sealing.encrypts() {
                    true => sealed.sealing.open_segment(index, &mut segment, &tag),
                    false => sealed.sealing.verify_segment(index, std::iter::once(&*segment), &tag),
                };
                sealed.is_forged |= verified.is_err();
                Ok(verified?)
            });
            sealed.segment = segment;
            verified?;
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

/// A place in a list of buffers.
#[derive(Default)]
struct Cursor {
    at: usize,
    offset: usize,
}

impl Cursor {
    /// The next `len` bytes of buffers of lengths `lens`: which part of which. Consecutive buffers, empty ones included.
    fn take(&mut self, lens: impl Iterator<Item = usize>, len: usize) -> Vec<(usize, Range<usize>)> {
        let mut taken = Vec::new();
        let mut left = len;
        for (at, buf_len) in lens.enumerate().skip(self.at) {
            let range = self.offset..buf_len.min(self.offset + left);
            left -= range.len();
            let is_used_up = range.end == buf_len;
            (self.at, self.offset) = if is_used_up { (at + 1, 0) } else { (at, range.end) };
            taken.push((at, range));
            if left == 0 {
                break;
            }
        }
        assert_eq!(left, 0, "buffers end before the payload");
        taken
    }
}
