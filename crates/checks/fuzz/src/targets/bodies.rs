//! Message bodies of every family, requests and replies.

use crate::Outcome;
use crate::alloc::bounded;
use crate::seeds::{encoded, golden};
use serde::{Serialize, de::DeserializeOwned};
use std::fmt::Debug;
use weft_core::delegates::ownership::FileNumber;
use weft_core::{ByteLen, FileId, LocalOffset, Nanos, ObjectId, TargetId, Timestamp};
use weft_wire::data::{DataReply, DataRequest, DatafileId, DatafileMeta, SAMPLES_MAX, Sample, Samples};
use weft_wire::delegate::{DelegateReply, DelegateRequest, FilePiece, PIECES_MAX, PayloadLocation};
use weft_wire::header::BODY_LEN_MAX;
use weft_wire::hello::{AuthMethod, Hello, HelloReply, Opening};
use weft_wire::meta::{Entry, FileType, MetaCall, MetaReply, MetaRequest};
use weft_wire::secure::Handshake;
use weft_wire::status::{StatusReply, StatusRequest};
use weft_wire::{BoundSession, ClusterSecret, Family, Header, Kind, Malformed, Rights};

/// Maximum number of bytes allocated per byte of body.
///
/// An empty string is one byte on the wire and 24 in memory, and a vector grows by doubling.
const MEMORY_BYTES_PER_INPUT_BYTE: usize = 48;
/// Maximum number of bytes allocated regardless of the body's length.
///
/// For a list, serde allocates up to 1 MiB before the first element, on at most two levels.
const MEMORY_BYTES_MIN: usize = (2 << 20) + 8192;

/// Decodes `data` as a body of type `M` and asserts the properties of any body.
fn body<M>(family: Family, data: &[u8]) -> Option<M>
where
    M: Serialize + DeserializeOwned + PartialEq + Debug,
{
    let data = &data[..data.len().min(BODY_LEN_MAX as usize)];
    let header = header_of(family, data);
    let decode = || header.decode_body(data);
    let message: M = match bounded(data.len(), MEMORY_BYTES_PER_INPUT_BYTE, MEMORY_BYTES_MIN, decode) {
        Ok(message) => message,
        Err(error) => {
            assert_eq!(error, Malformed::Body);
            return None;
        }
    };
    let again = encoded(&message);
    assert!(again.len() <= data.len(), "the encoder writes the shortest form");
    let back: M = header_of(family, &again).decode_body(&again).expect("an encoded body decodes");
    assert_eq!(back, message);
    assert_eq!(encoded(&back), again);
    // Flip one bit, chosen by the data.
    if !data.is_empty() {
        let bit = header.body_crc as usize % (data.len() * 8);
        let mut damaged = data.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(header.decode_body::<M>(&damaged), Err(Malformed::BodyCrc));
    }
    Some(message)
}

fn header_of(family: Family, body: &[u8]) -> Header {
    let body_crc = crc32fast::hash(body);
    Header { body_len: body.len() as u32, body_crc, ..Header::new(Kind::Request, family, 1) }
}

fn outcome<M>(decoded: Option<M>) -> Outcome {
    if decoded.is_some() { Outcome::Accepted } else { Outcome::Refused }
}

pub fn hello_request(data: &[u8]) -> Outcome {
    let opening = body::<Opening>(Family::Hello, data);
    let Some(hello) = body::<Hello>(Family::Hello, data) else { return outcome(opening) };
    // A server answers this message before it has authenticated the peer.
    if let AuthMethod::Key(first) = &hello.method {
        let answered = Handshake::answer(&[1; 32], &hello.names, first, [2; 32]);
        assert!(answered.is_err(), "only the holder of the key can make the tag");
    }
    Outcome::Accepted
}

pub fn hello_reply(data: &[u8]) -> Outcome {
    outcome(body::<HelloReply>(Family::Hello, data))
}

pub fn data_request(data: &[u8]) -> Outcome {
    outcome(body::<DataRequest>(Family::Data, data))
}

pub fn data_reply(data: &[u8]) -> Outcome {
    outcome(body::<DataReply>(Family::Data, data))
}

pub fn meta_request(data: &[u8]) -> Outcome {
    outcome(body::<MetaCall>(Family::Meta, data))
}

pub fn meta_reply(data: &[u8]) -> Outcome {
    let reply = body::<MetaReply>(Family::Meta, data);
    if let Some(MetaReply::Attr(attr)) = &reply {
        for time in [attr.atime, attr.mtime, attr.ctime] {
            let (seconds, nanos) = time.parts();
            assert_eq!(
                weft_core::Timestamp::from_parts(seconds, nanos),
                time,
                "every time is a valid timespec"
            );
        }
    }
    outcome(reply)
}

pub fn status_request(data: &[u8]) -> Outcome {
    outcome(body::<StatusRequest>(Family::Status, data))
}

pub fn status_reply(data: &[u8]) -> Outcome {
    outcome(body::<StatusReply>(Family::Status, data))
}

pub fn delegate_request(data: &[u8]) -> Outcome {
    outcome(body::<DelegateRequest>(Family::Delegate, data))
}

pub fn delegate_reply(data: &[u8]) -> Outcome {
    outcome(body::<DelegateReply>(Family::Delegate, data))
}

pub fn hello_request_seeds() -> Vec<Vec<u8>> {
    let mut seeds = golden!("hello.txt");
    seeds.extend(golden!("opening.txt"));
    seeds
}

pub fn hello_reply_seeds() -> Vec<Vec<u8>> {
    golden!("hello_reply.txt")
}

pub fn data_request_seeds() -> Vec<Vec<u8>> {
    let datafile = |n: u32| DatafileId {
        target: TargetId(n % 16),
        file: FileId(1 << 40),
        object: ObjectId { component: 0, column: n as u16 },
    };
    let session = BoundSession(9);
    let cap = ClusterSecret::new(&[7; 32]).grant(session, FileId(1 << 40), Rights::WRITE, 1 << 31);
    let datafiles: Vec<_> = (0..20_000u32).map(datafile).collect();
    let lens = datafiles.iter().take(5_000).map(|&id| (id, ByteLen(1 << 50))).collect();
    let mut seeds = golden!("data_request.txt");
    seeds.push(encoded(&DataRequest::GetLens { cap, datafiles }));
    seeds.push(encoded(&DataRequest::SetLens { cap, datafiles: lens }));
    seeds
}

pub fn data_reply_seeds() -> Vec<Vec<u8>> {
    let mut seeds = golden!("data_reply.txt");
    seeds.push(encoded(&DataReply::Lens(vec![DatafileMeta::default(); 300_000])));
    let sample = |n: u32| Sample {
        datafile: DatafileId {
            target: TargetId(n % 16),
            file: FileId(1 << 40),
            object: ObjectId { component: 0, column: n as u16 },
        },
        client: u64::MAX - u64::from(n),
        offset: LocalOffset(u64::from(n) << 16),
        len: 65_536,
        write: n.is_multiple_of(3),
        siblings: 4,
        call: n / 3,
        start: Timestamp(i128::from(n)),
        took: Nanos(u64::from(n)),
    };
    // The maximum number of samples, and one more.
    for count in [SAMPLES_MAX as u32, SAMPLES_MAX as u32 + 1] {
        let samples = (0..count).map(sample).collect();
        seeds.push(encoded(&DataReply::Samples(Samples { run: 1, next: 5, lost: 0, one_in: 64, samples })));
    }
    seeds
}

pub fn meta_request_seeds() -> Vec<Vec<u8>> {
    let mut seeds = golden!("meta_call.txt");
    // Requests in the golden file lack the two fields that a call has before the request.
    seeds.extend(golden!("meta_request.txt").into_iter().map(|request| [&[5, 0], &request[..]].concat()));
    let at = weft_wire::meta::InodePath::from_root(b"dir/".repeat(1000), true);
    let value = vec![0x80; weft_wire::meta::XATTR_LEN_MAX];
    let request = MetaRequest::SetXattr { at, name: "user.long".into(), value, create: true, replace: false };
    seeds.push(encoded(&MetaCall { seq: 1, on_behalf: None, request }));
    seeds
}

pub fn meta_reply_seeds() -> Vec<Vec<u8>> {
    let mut seeds = golden!("meta_reply.txt");
    let entry = |n: u64| Entry {
        name: format!("file.{n:06}").into_bytes(),
        file: FileId(n),
        kind: FileType::Regular,
        attr: None,
        leased: false,
    };
    seeds.push(encoded(&MetaReply::Entries { entries: (0..4096).map(entry).collect(), more: true }));
    // As many elements as fit: the most memory per byte of body.
    seeds.push(encoded(&MetaReply::Names(vec![String::new(); 600_000])));
    seeds
}

pub fn status_request_seeds() -> Vec<Vec<u8>> {
    golden!("status_request.txt")
}

pub fn status_reply_seeds() -> Vec<Vec<u8>> {
    golden!("status_reply.txt")
}

pub fn delegate_request_seeds() -> Vec<Vec<u8>> {
    let mut seeds = golden!("delegate_request.txt");
    // The maximum number of pieces, and one more.
    for count in [PIECES_MAX, PIECES_MAX + 1] {
        let pieces = (0..count as u64).map(|n| FilePiece { offset: n * 47_008, len: 1280 }).collect();
        let (file, place) = (FileNumber(1 << 50), PayloadLocation::Payload);
        seeds.push(encoded(&DelegateRequest::Write { file, pieces, place, grants: Vec::new() }));
    }
    seeds
}

pub fn delegate_reply_seeds() -> Vec<Vec<u8>> {
    let mut seeds = golden!("delegate_reply.txt");
    seeds.push(encoded(&DelegateReply::Read { known: vec![1280; PIECES_MAX] }));
    seeds
}
