//! Sends and receives messages over a connection, for clients and servers.

use crate::header::{
    BODY_LEN_MAX, Family, HEADER_LEN, Header, Kind, Malformed, encode_message, payload_check,
};
use crate::hello::Security;
use crate::level::Level;
use crate::secure::{Sealing, TAG_LEN, segments};
use serde::{Serialize, de::DeserializeOwned};
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use weft_core::{ByteLen, LocalOffset};
use weft_env::{Attachment, Conn, Hollow, Processor};

/// Connection that carries messages. Used by one task at a time.
pub struct Link<C: Conn> {
    conn: C,
    inbox: Vec<u8>,
    start: usize,
    end: usize,
    outbox: Vec<u8>,
    checksums: bool,
    body_len_max: u32,
    level: Level,
    waits_on: Option<Processor>,
    map_version: u32,
    sealed: Option<Box<Sealed>>,
}

/// State of a link whose messages are sealed.
struct Sealed {
    sealing: Sealing,
    /// In a world with length-only payloads: a stand-in for each tag, so that sealed payloads take as long as real
    /// ones.
    hollow_tag: Option<Hollow>,
    /// Segment that is encrypted, or verified and then dropped.
    segment: Vec<u8>,
    /// Whether a message failed verification; nothing is received after it.
    is_forged: bool,
}

/// Received message without its payload. The caller must receive or skip the payload before the next message.
#[derive(Debug)]
pub struct Incoming {
    /// Checked header.
    pub header: Header,
    body: std::ops::Range<usize>,
}

impl<C: Conn> Link<C> {
    /// Creates a link over a fresh connection, without payload checksums.
    pub fn new(conn: C) -> Self {
        Self {
            conn,
            inbox: vec![0; C::READ_LEN],
            start: 0,
            end: 0,
            outbox: Vec::new(),
            checksums: false,
            body_len_max: BODY_LEN_MAX,
            level: Level::NONE,
            waits_on: None,
            map_version: 0,
            sealed: None,
        }
    }

    /// Seals all messages from now on; those of the greeting are encrypted. `lengths_only` is true in a world with
    /// length-only payloads.
    pub fn seal(&mut self, sealing: Sealing, lengths_only: bool) {
        let hollow_tag = lengths_only.then(|| Hollow::new(TAG_LEN).expect("this world has such buffers"));
        let segment = Vec::new();
        self.sealed = Some(Box::new(Sealed { sealing, hollow_tag, segment, is_forged: false }));
    }

    /// Switches to the protection `security` after the greeting.
    ///
    /// # Panics
    /// If `security` asks for protection on a connection without keys.
    pub fn agree(&mut self, security: Security) {
        match (&mut self.sealed, security) {
            (sealed, Security::None) => *sealed = None,
            (Some(sealed), security) => sealed.sealing.agree(security),
            (None, _) => panic!("{security:?} on a connection without keys"),
        }
    }

    /// Sets the feature level of all later messages.
    pub fn set_level(&mut self, level: Level) {
        self.level = level;
    }

    /// Feature level of messages; [`Level::NONE`] before the greeting has ended.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Current protection of messages.
    pub fn security(&self) -> Security {
        self.sealed.as_ref().map_or(Security::None, |sealed| sealed.sealing.security())
    }

    /// Limits the bodies of received messages to `body_len_max` bytes, at most [`BODY_LEN_MAX`]. Until the peer has
    /// authenticated itself, a server uses [`hello::BODY_LEN_MAX`](crate::hello::BODY_LEN_MAX).
    pub fn limit_bodies(&mut self, body_len_max: u32) {
        self.body_len_max = body_len_max.min(BODY_LEN_MAX);
    }

    /// Sets the processor on which this task waits for the replies to later requests. Only for a task that waits for
    /// this connection alone, with a peer on the same machine.
    pub fn set_waits_on(&mut self, processor: Option<Processor>) {
        self.waits_on = processor;
        self.conn.set_shares_processor(processor.is_some());
    }

    /// Sets the version of the cluster map that later replies carry.
    pub fn set_map_version(&mut self, version: u32) {
        self.map_version = version;
    }

    /// Sets whether payloads sent from now on carry checksums.
    pub fn set_checksums(&mut self, on: bool) {
        self.checksums = on;
    }

    /// Whether [`send_file`](Self::send_file) may be used. Payloads with checksums or tags have to pass through this
    /// program.
    pub fn sends_files(&self) -> bool {
        !self.checksums && self.sealed.is_none()
    }

    /// Returns the underlying connection, for its peer, time-outs, closer and attachments.
    pub fn conn(&mut self) -> &mut C {
        &mut self.conn
    }

    /// Sends a message and its payload from memory in one call.
    ///
    /// # Errors
    /// Errors of the connection.
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
        let map_version = if kind == Kind::Reply { self.map_version } else { 0 };
        let is_sealed = self.sealed.is_some();
        Header { level: self.level, is_sealed, map_version, ..Header::new(kind, family, request) }
    }

    /// Encodes header and body into the outbox and seals them.
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

    /// Sends the outbox, then the payload as segments, each followed by its tag.
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

    /// Sends a message whose payload is `len` bytes of `file` from `offset`, without a checksum. Where the operating
    /// system can send a file itself, the bytes do not pass through this program. Requires
    /// [`sends_files`](Self::sends_files).
    ///
    /// # Errors
    /// Errors of the connection; `Unsupported` if payloads have to pass through this program.
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

    /// Sends a message with descriptors and without payload.
    ///
    /// # Errors
    /// Errors of the connection; `Unsupported` if the peer is not local.
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

    /// Receives the next message without its payload; `None` if the peer closed the connection between messages.
    ///
    /// # Errors
    /// Errors of the connection; `InvalidData` (a [`Malformed`]) if the bytes are not a valid next message of the peer.
    /// The connection is unusable afterwards.
    pub async fn recv(&mut self) -> io::Result<Option<Incoming>> {
        if self.sealed.as_ref().is_some_and(|sealed| sealed.is_forged) {
            return Err(Malformed::Forged.into());
        }
        let result = self.recv_message().await;
        if let (Some(sealed), Err(error)) = (&mut self.sealed, &result) {
            // The start of the next message is unknown from here on.
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
        if header.level != self.level {
            return Err(Malformed::OtherLevel(header.level.0, self.level.0).into());
        }
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

    /// Checks and decodes the body of the message just received.
    ///
    /// # Errors
    /// See [`Header::decode_body`].
    pub fn decode<M: DeserializeOwned>(&self, incoming: &Incoming) -> Result<M, Malformed> {
        incoming.header.decode_body(&self.inbox[incoming.body.clone()])
    }

    /// Returns the body of the message just received. Only on a sealed connection is it authentic.
    pub fn body(&self, incoming: &Incoming) -> &[u8] {
        &self.inbox[incoming.body.clone()]
    }

    /// Receives the payload of the message just received into `bufs`, whose total length must be that of the payload.
    /// Until this returns without an error, the contents of `bufs` are undefined.
    ///
    /// # Errors
    /// Errors of the connection; `InvalidData` if a checksum or tag does not match. After a wrong tag, the connection
    /// is unusable.
    ///
    /// # Panics
    /// If `bufs` and the payload differ in length.
    pub async fn recv_payload(&mut self, header: &Header, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let bufs_len: usize = bufs.iter().map(|buf| buf.len()).sum();
        assert_eq!(bufs_len, header.payload_len as usize, "buffers as long as the payload");
        if self.sealed.is_some() {
            return self.recv_sealed(bufs_len, bufs).await;
        }
        self.recv_into(bufs).await?;
        match header.payload_check {
            Some(check) if check != payload_check(bufs.iter().map(|buf| &**buf)) => {
                Err(Malformed::PayloadCheck.into())
            }
            _ => Ok(()),
        }
    }

    /// Receives a payload of `len` bytes in segments with tags.
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

    /// Fills `bufs`, first with bytes of the inbox.
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

    /// Receives and discards the payload of the message just received, whose length is `len`.
    ///
    /// # Errors
    /// Errors of the connection; `InvalidData` if a tag does not match, after which the connection is unusable.
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

    /// Whether the inbox holds bytes of a message that has not been decoded yet.
    pub fn has_buffered(&self) -> bool {
        self.start < self.end
    }

    /// Reads until `len` bytes lie at `start`. Returns false if the peer closed the connection before the first of
    /// them.
    async fn fill(&mut self, len: usize) -> io::Result<bool> {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
            // Long bodies are rare: release the memory.
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
                // Grow with the received bytes, so that a header alone cannot make this side allocate a whole body.
                let inbox_len = (self.inbox.len() * 2).min(len);
                self.inbox.reserve_exact(inbox_len - self.inbox.len());
                self.inbox.resize(inbox_len, 0);
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

/// Position in a list of buffers.
#[derive(Default)]
struct Cursor {
    at: usize,
    offset: usize,
}

impl Cursor {
    /// Advances over the next `len` bytes of buffers with lengths `lens`. Returns the index and range of each buffer
    /// touched; they are consecutive, and empty ones are included.
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
