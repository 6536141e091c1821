//! Sealed messages that an attacker on the network modifies, repeats, reorders, drops or adds.

use super::link::{Pieces, Raw};
use crate::Outcome;
use crate::rng::Rng;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::sync::{Arc, Mutex};
use weft_core::{ByteLen, ClusterId, LocalOffset, Nanos};
use weft_env::real::block_on;
use weft_env::{Attachment, Closer, Conn, Peer};
use weft_wire::hello::{Identity, Names, Role, Security};
use weft_wire::secure::{Handshake, SEGMENT_LEN, Sealing, SessionKeys};
use weft_wire::{Family, Kind, Link};

/// The first bytes of an input select the messages. Each further [`EDIT_LEN`] bytes are one edit of the stream.
const SCRIPT_LEN: usize = 8;
const EDIT_LEN: usize = 9;

/// A sent message: its body, its payload, and its end in the stream.
struct Sent {
    body: Vec<u8>,
    payload: Vec<u8>,
    end: usize,
}

pub fn sealed(data: &[u8]) -> Outcome {
    let script =
        data.get(..SCRIPT_LEN).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight")));
    let security = if script & 1 == 0 { Security::Mac } else { Security::Encrypt };
    let keys = keys();
    let (stream, sent) = record(&keys, security, &mut Rng::new(script));
    let mut tampered = stream.clone();
    for edit in data.get(SCRIPT_LEN..).unwrap_or_default().chunks_exact(EDIT_LEN).take(4) {
        tamper(&mut tampered, edit, &sent);
    }
    let same = stream.iter().zip(&tampered).take_while(|(a, b)| a == b).count();
    let is_whole = tampered.len() == stream.len() && same == stream.len();
    let mut link = Link::new(Pieces::new(tampered.clone(), !script));
    link.seal(Sealing::new(keys, true), false);
    link.agree(security);
    let mut choose = Rng::new(script ^ 0xc0ff_ee00);
    let mut received = 0;
    let end = loop {
        match receive(&mut link, &mut choose) {
            Ok(Some((body, payload))) => {
                let expected = sent.get(received).expect("no more messages than were sent");
                assert!(expected.end <= same, "message {received} was modified but accepted");
                assert_eq!(body, expected.body);
                assert!(payload.is_none_or(|payload| payload == expected.payload));
                received += 1;
            }
            Ok(None) => break None,
            Err(error) => break Some(error.kind()),
        }
    };
    let untouched = sent.iter().take_while(|message| message.end <= same).count();
    assert_eq!(received, untouched, "every message before the first modification arrives");
    match end {
        None => {
            // The stream ends at a message boundary.
            let ends = sent.get(received.wrapping_sub(1)).map_or(0, |message| message.end);
            assert_eq!(tampered.len(), ends);
        }
        Some(ErrorKind::InvalidData | ErrorKind::UnexpectedEof) => {
            assert!(!is_whole, "the unmodified stream was rejected");
            if end == Some(ErrorKind::InvalidData) {
                assert!(block_on(link.recv()).is_err(), "the link is unusable after a forgery");
            }
        }
        other => panic!("{other:?}"),
    }
    if is_whole { Outcome::Accepted } else { Outcome::Refused }
}

/// Body of a received message, and its payload unless it was skipped.
type Received = (Vec<u8>, Option<Vec<u8>>);

/// Receives one message.
fn receive(link: &mut Link<Pieces>, choose: &mut Rng) -> io::Result<Option<Received>> {
    let Some(incoming) = block_on(link.recv())? else { return Ok(None) };
    let body_len = incoming.header.body_len as usize;
    let body = link.body(&incoming).to_vec();
    assert_eq!(body.len(), body_len);
    let len = incoming.header.payload_len as usize;
    if choose.one_in(4) {
        block_on(link.skip_payload(len as u64))?;
        return Ok(Some((body, None)));
    }
    let mut out = vec![0; len];
    let mut bufs = Vec::new();
    let mut rest = out.as_mut_slice();
    while !rest.is_empty() && bufs.len() < 5 {
        let (one, more) = rest.split_at_mut(choose.below(rest.len() + 1));
        bufs.push(IoSliceMut::new(one));
        rest = more;
    }
    bufs.push(IoSliceMut::new(rest));
    block_on(link.recv_payload(&incoming.header, &mut bufs))?;
    Ok(Some((body, Some(out))))
}

/// Generates messages. Returns their bytes on the wire and their contents.
fn record(keys: &SessionKeys, security: Security, rng: &mut Rng) -> (Vec<u8>, Vec<Sent>) {
    let stream = Arc::new(Mutex::new(Vec::new()));
    let mut link = Link::new(Tape(Arc::clone(&stream)));
    link.seal(Sealing::new(keys.clone(), false), false);
    link.agree(security);
    let mut sent = Vec::new();
    for number in 0..1 + rng.below(5) {
        let body: Vec<u8> = (0..rng.below(200)).map(|_| rng.next() as u8).collect();
        let len =
            [0, 0, 1, 100, 5000, SEGMENT_LEN, SEGMENT_LEN + 17][rng.below(if number == 0 { 7 } else { 5 })];
        let salt = rng.next() as usize;
        let payload: Vec<u8> =
            (0..len).map(|at| ((at ^ salt).wrapping_mul(0x9e37_79b9) >> 9) as u8).collect();
        let (one, other) = payload.split_at(rng.below(len + 1));
        let pieces = [IoSlice::new(one), IoSlice::new(other)];
        let pieces: &[_] = if len == 0 { &[] } else { &pieces };
        block_on(link.send(Kind::Request, Family::Data, number as u64, &Raw(&body), pieces)).expect("taped");
        sent.push(Sent { body, payload, end: stream.lock().expect("no panic").len() });
    }
    let stream = std::mem::take(&mut *stream.lock().expect("no panic"));
    (stream, sent)
}

/// Applies one edit to the stream.
fn tamper(stream: &mut Vec<u8>, edit: &[u8], sent: &[Sent]) {
    let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    let at = number(&edit[1..5]) % (stream.len() + 1);
    let len = number(&edit[5..7]).min(stream.len() - at);
    // The boundaries of a message, as long as no edit has changed a length.
    let pick = number(&edit[5..7]) % sent.len();
    let message = pick.checked_sub(1).map_or(0, |before| sent[before].end)..sent[pick].end;
    let message = message.start.min(stream.len())..message.end.min(stream.len());
    match edit[0] % 8 {
        0 | 1 => {
            if let Some(byte) = stream.get_mut(at) {
                *byte ^= 1 << (edit[7] % 8);
            }
        }
        2 => drop(stream.drain(at..at + len)),
        3 => stream.truncate(at),
        4 => {
            let again = stream[at..at + len].to_vec();
            stream.splice(at..at, again);
        }
        // Repeat, move or drop a message.
        5 => {
            let again = stream[message].to_vec();
            stream.extend(again);
        }
        6 => {
            let moved: Vec<u8> = stream.drain(message).collect();
            stream.extend(moved);
        }
        _ => drop(stream.drain(message)),
    }
}

fn keys() -> SessionKeys {
    let names = Names {
        levels: weft_wire::Levels::KNOWN,
        cluster: "c".into(),
        cluster_id: ClusterId(1),
        server: "s".into(),
        role: Role::Client(Identity { uid: 1, gid: 1, groups: vec![] }),
        key: None,
    };
    let (_, first) = Handshake::begin(&[1; 32], &names, [2; 32]);
    Handshake::answer(&[1; 32], &names, &first, [3; 32]).expect("both use one key").0
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for script in 0..12_u64 {
        let mut seed = script.wrapping_mul(0x0123_4567_89ab_cdef).to_le_bytes().to_vec();
        seed[0] = script as u8;
        seeds.push(seed.clone());
        for kind in 0..8 {
            let mut seed = seed.clone();
            seed.extend([kind, 0, 0, script as u8, 40, 0, 1, 3, 0]);
            seeds.push(seed);
        }
    }
    seeds
}

/// A connection that stores the bytes sent.
struct Tape(Arc<Mutex<Vec<u8>>>);

impl Tape {
    fn nothing_else() -> io::Error {
        unreachable!("the link only sends")
    }
}

impl Conn for Tape {
    type File = ();
    type Shared = ();

    async fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let mut stream = self.0.lock().expect("no panic");
        parts.iter().for_each(|part| stream.extend_from_slice(part));
        Ok(())
    }

    async fn send_file(&mut self, _: &[IoSlice<'_>], _: &(), _: LocalOffset, _: ByteLen) -> io::Result<()> {
        Err(Self::nothing_else())
    }

    async fn send_attached(&mut self, _: &[u8], _: &[Attachment<(), ()>]) -> io::Result<()> {
        Err(Self::nothing_else())
    }

    async fn recv(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(Self::nothing_else())
    }

    async fn recv_exact(&mut self, _: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        Err(Self::nothing_else())
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
