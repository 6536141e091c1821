//! A link over a byte stream in arbitrary pieces, compared with a reader of the complete stream.

use crate::Outcome;
use crate::alloc::bounded;
use crate::rng::Rng;
use crate::seeds::golden;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use weft_core::{ByteLen, LocalOffset, Nanos};
use weft_env::real::block_on;
use weft_env::{Attachment, Closer, Conn, Peer};
use weft_wire::data::{DataReply, DataRequest};
use weft_wire::delegate::{DelegateReply, DelegateRequest};
use weft_wire::header::{encode_message, payload_check};
use weft_wire::hello::{Hello, HelloReply};
use weft_wire::meta::{MetaCall, MetaReply};
use weft_wire::status::{StatusReply, StatusRequest};
use weft_wire::{Family, HEADER_LEN, Header, Kind, Link, hello};

/// The first bytes of an input determine how the stream is divided and read. The rest is the stream.
const SCRIPT_LEN: usize = 8;

pub fn link(data: &[u8]) -> Outcome {
    let script =
        data.get(..SCRIPT_LEN).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight")));
    let stream = data.get(SCRIPT_LEN..).unwrap_or_default();
    compare(stream, script);
    // Also test with lengths that fit the stream and valid checksums, to reach the code after these checks.
    let mut sealed = stream.to_vec();
    seal(&mut sealed, &mut Rng::new(!script));
    compare(&sealed, script)
}

/// How a stream ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// Between two messages.
    Clean,
    /// Inside a message.
    Cut,
    /// At bytes that are not a message.
    Invalid,
}

fn compare(stream: &[u8], script: u64) -> Outcome {
    let small = script & 1 == 1;
    let body_len_max = if small { hello::BODY_LEN_MAX } else { weft_wire::header::BODY_LEN_MAX };
    let mut link = Link::new(Pieces::new(stream.to_vec(), script));
    link.limit_bodies(body_len_max);
    link.set_level(weft_wire::Level::LATEST);
    let mut choose = Rng::new(script ^ 0xc0ff_ee00);
    let mut left = stream;
    let mut messages = 0;
    loop {
        let (expected, header) = next_message(&mut left, body_len_max);
        // The limit covers an inbox of the received bytes that doubles when it grows, and the previous inbox.
        let got = bounded(stream.len(), 2, 8192, || block_on(link.recv()));
        match (expected, got) {
            (None, Ok(Some(incoming))) => {
                let header = header.expect("a message has a header");
                assert_eq!(incoming.header, header);
                decode(&link, &incoming);
                messages += 1;
                let ended = payload(&mut link, &header, &mut left, &mut choose);
                if ended {
                    break;
                }
            }
            (Some(End::Clean), Ok(None)) => {
                assert!(!link.has_buffered());
                break;
            }
            (Some(End::Cut), Err(error)) => {
                assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
                break;
            }
            (Some(End::Invalid), Err(error)) => {
                assert_eq!(error.kind(), ErrorKind::InvalidData);
                break;
            }
            (expected, got) => panic!("message {messages}: expected {expected:?} {header:?}, got {got:?}"),
        }
    }
    if messages > 0 { Outcome::Accepted } else { Outcome::Refused }
}

/// Takes header and body from the front of `left`. Returns the end of the stream, if this is the end.
fn next_message(left: &mut &[u8], body_len_max: u32) -> (Option<End>, Option<Header>) {
    if left.is_empty() {
        return (Some(End::Clean), None);
    }
    let Some((bytes, rest)) = left.split_first_chunk::<HEADER_LEN>() else { return (Some(End::Cut), None) };
    let Ok(header) = Header::decode(bytes) else { return (Some(End::Invalid), None) };
    let is_other_level = header.level != weft_wire::Level::LATEST;
    if is_other_level || header.is_sealed || header.body_len > body_len_max {
        return (Some(End::Invalid), None);
    }
    let Some(rest) = rest.get(header.body_len as usize..) else { return (Some(End::Cut), None) };
    *left = rest;
    (None, Some(header))
}

fn decode(link: &Link<Pieces>, incoming: &weft_wire::Incoming) {
    // Other targets check whether the body decodes.
    match (incoming.header.family, incoming.header.kind) {
        (Family::Hello, Kind::Reply) => drop(link.decode::<HelloReply>(incoming)),
        (Family::Hello, _) => drop(link.decode::<Hello>(incoming)),
        (Family::Data, Kind::Reply) => drop(link.decode::<DataReply>(incoming)),
        (Family::Data, _) => drop(link.decode::<DataRequest>(incoming)),
        (Family::Meta, Kind::Reply) => drop(link.decode::<MetaReply>(incoming)),
        (Family::Meta, _) => drop(link.decode::<MetaCall>(incoming)),
        (Family::Delegate, Kind::Reply) => drop(link.decode::<DelegateReply>(incoming)),
        (Family::Delegate, _) => drop(link.decode::<DelegateRequest>(incoming)),
        (Family::Status, Kind::Reply) => drop(link.decode::<StatusReply>(incoming)),
        (Family::Status, _) => drop(link.decode::<StatusRequest>(incoming)),
    }
}

/// Receives or skips the payload in one of several ways. Returns true if the stream ended inside it.
fn payload(link: &mut Link<Pieces>, header: &Header, left: &mut &[u8], choose: &mut Rng) -> bool {
    let len = header.payload_len as usize;
    let sent = left.get(..len);
    let result = if choose.one_in(3) {
        block_on(link.skip_payload(len as u64))
    } else {
        let mut out = vec![0; len];
        let mut bufs = Vec::new();
        let mut rest = out.as_mut_slice();
        while !rest.is_empty() && bufs.len() < 5 {
            let (one, more) = rest.split_at_mut(choose.below(rest.len() + 1));
            bufs.push(IoSliceMut::new(one));
            rest = more;
        }
        bufs.push(IoSliceMut::new(rest));
        let received = block_on(link.recv_payload(header, &mut bufs));
        if received.is_ok() {
            assert_eq!(Some(out.as_slice()), sent, "the payload is received unchanged");
        }
        match (header.payload_check, sent) {
            (Some(check), Some(sent)) if check != payload_check([sent].into_iter()) => {
                assert_eq!(received.expect_err("a wrong checksum").kind(), ErrorKind::InvalidData);
                return true;
            }
            _ => received,
        }
    };
    match sent {
        Some(_) => {
            result.expect("the payload is complete");
            *left = &left[len..];
            false
        }
        None => {
            assert_eq!(result.expect_err("the payload is truncated").kind(), ErrorKind::UnexpectedEof);
            true
        }
    }
}

/// Turns a stream into messages: magic number, small fields, mostly fitting lengths, and checksums.
fn seal(stream: &mut [u8], rng: &mut Rng) {
    let mut at = 0;
    while stream.len() - at >= HEADER_LEN {
        let (bytes, rest) = stream[at..].split_first_chunk_mut::<HEADER_LEN>().expect("long enough");
        bytes[..4].copy_from_slice(b"WEFT");
        bytes[4] = weft_wire::Level::LATEST.0;
        (bytes[5], bytes[6], bytes[7], bytes[32]) = (bytes[5] % 3, bytes[6] % 4, bytes[7] & 1, bytes[32] % 9);
        bytes[33..40].fill(0);
        let mut cut = |at: usize, most: usize, limit: u32| -> usize {
            let len = u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
            let most = if rng.one_in(40) { limit } else { limit.min(most as u32) };
            let len = len % (most + 1);
            bytes[at..at + 4].copy_from_slice(&len.to_le_bytes());
            len as usize
        };
        let body_len = cut(16, rest.len(), weft_wire::header::BODY_LEN_MAX).min(rest.len());
        let payload_len = cut(20, rest.len() - body_len, weft_wire::data::PAYLOAD_LEN_MAX);
        let payload_len = payload_len.min(rest.len() - body_len);
        let payload = &rest[body_len..body_len + payload_len];
        let check = match (bytes[7], rng.one_in(10)) {
            (0, _) => 0,
            (_, true) => 1,
            (_, false) => payload_check([payload].into_iter()),
        };
        bytes[24..32].copy_from_slice(&check.to_le_bytes());
        bytes[40..44].copy_from_slice(&crc32fast::hash(&rest[..body_len]).to_le_bytes());
        super::header::reseal(bytes);
        at += HEADER_LEN + body_len + payload_len;
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let bodies = [
        (Family::Hello, Kind::Request, golden!("hello.txt")),
        (Family::Data, Kind::Request, golden!("data_request.txt")),
        (Family::Data, Kind::Reply, golden!("data_reply.txt")),
        (Family::Meta, Kind::OneWay, golden!("meta_call.txt")),
        (Family::Meta, Kind::Reply, golden!("meta_reply.txt")),
        (Family::Status, Kind::Reply, golden!("status_reply.txt")),
        (Family::Delegate, Kind::Request, golden!("delegate_request.txt")),
    ];
    let mut seeds = Vec::new();
    for (seed, payload_len) in [(2u8, 0usize), (4, 100), (6, 5000), (8, 70_000)] {
        let mut stream = vec![seed; SCRIPT_LEN];
        for (number, (family, kind, bodies)) in bodies.iter().enumerate() {
            let payload = vec![number as u8; payload_len];
            let check = (number % 2 == 0).then(|| payload_check([payload.as_slice()].into_iter()));
            stream.extend(message(*kind, *family, &bodies[bodies.len() - 1], payload_len as u32, check));
            stream.extend(payload);
        }
        // A body larger than the inbox, between short ones.
        stream.extend(message(Kind::Reply, Family::Meta, &vec![0x81; 20_000], 0, None));
        stream.extend(message(Kind::Reply, Family::Meta, &[], 0, None));
        seeds.push(stream);
    }
    seeds
}

fn message(kind: Kind, family: Family, body: &[u8], payload_len: u32, check: Option<u64>) -> Vec<u8> {
    let mut out = Vec::new();
    let header = Header { payload_len, payload_check: check, ..Header::new(kind, family, 9) };
    encode_message(&mut out, &header, &Raw(body));
    assert_eq!(&out[HEADER_LEN..], body);
    out
}

/// An encoded body, which serializes to its bytes without a length.
pub struct Raw<'a>(pub &'a [u8]);

impl serde::Serialize for Raw<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeTuple;
        let mut tuple = serializer.serialize_tuple(self.0.len())?;
        self.0.iter().try_for_each(|byte| tuple.serialize_element(byte))?;
        tuple.end()
    }
}

/// A connection that delivers a stream in pieces and accepts no output.
pub struct Pieces {
    stream: Vec<u8>,
    at: usize,
    rng: Rng,
}

impl Pieces {
    pub fn new(stream: Vec<u8>, script: u64) -> Self {
        Self { stream, at: 0, rng: Rng::new(script) }
    }

    fn nothing_else() -> io::Error {
        unreachable!("the link only receives")
    }
}

impl Conn for Pieces {
    type File = ();
    type Shared = ();

    async fn send(&mut self, _: &[IoSlice<'_>]) -> io::Result<()> {
        Err(Self::nothing_else())
    }

    async fn send_file(&mut self, _: &[IoSlice<'_>], _: &(), _: LocalOffset, _: ByteLen) -> io::Result<()> {
        Err(Self::nothing_else())
    }

    async fn send_attached(&mut self, _: &[u8], _: &[Attachment<(), ()>]) -> io::Result<()> {
        Err(Self::nothing_else())
    }

    async fn recv(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = &self.stream[self.at..];
        let piece = [1, 7, 48, 100, 4096, usize::MAX][self.rng.below(6)];
        let piece = piece.min(left.len()).min(buf.len());
        buf[..piece].copy_from_slice(&left[..piece]);
        self.at += piece;
        Ok(piece)
    }

    async fn recv_exact(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        for buf in bufs {
            let left = &self.stream[self.at..];
            if left.len() < buf.len() {
                self.at = self.stream.len();
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let len = buf.len();
            buf.copy_from_slice(&left[..len]);
            self.at += buf.len();
        }
        Ok(())
    }

    fn take_file(&mut self) -> Option<()> {
        None
    }

    fn take_shared(&mut self, _: usize) -> io::Result<()> {
        Err(Self::nothing_else())
    }

    fn peer(&self) -> &Peer {
        unreachable!("the link does not ask for it")
    }

    fn set_timeout(&mut self, _: Option<Nanos>) -> io::Result<()> {
        Ok(())
    }

    fn closer(&self) -> Box<dyn Closer> {
        unreachable!("the link does not ask for it")
    }
}
