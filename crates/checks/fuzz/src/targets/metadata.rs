//! The metadata database on disk (rows, log, identity file) and tokens of open files.

use super::link::Raw;
use crate::Outcome;
use crate::alloc::bounded;
use crate::rng::Rng;
use crate::seeds::encoded;
use serde::{Serialize, de::DeserializeOwned};
use std::fmt::Debug;
use weft_client::{HandleId, HandleToken, OpenFlags};
use weft_core::{
    AttachToken, ByteLen, ClassLayout, ClassPart, ClusterId, FileId, FileOffset, Layout, RecordedLens,
    TargetId, TargetState, TargetUuid, Timestamp,
};
use weft_store::metadata::log_bytes::{frame, read};
use weft_store::metadata::{
    AllocatorRow, ClusterMapRow, DentryRow, DomainsRow, DumpError, DumpHeader, DumpReader, DumpWriter,
    Generations, Identity, IdsRow, Inode, LayoutChoice, LevelsRow, MoveRow, Node, NodeKind, OwnerRow,
    ReapRow, ReplicaRow, ReplyRow, RevokedRow, RuleRow, RulesRow, SpaceReservationRow, StartRow, Table,
    TargetRow, Untrusted, seal, sums_bytes,
};
use weft_wire::hello::SessionId;
use weft_wire::{ClusterSecret, SessionOwner};

const KEY: &[u8] = b"\0\0\0\0\0\0\0\x07";

pub fn metadata_row(data: &[u8]) -> Outcome {
    let Some((&kind, value)) = data.split_first() else { return Outcome::Refused };
    match kind % 17 {
        0 => row::<Inode>(Table::Inodes, value),
        1 => row::<DentryRow>(Table::Dentries, value),
        2 => row::<ReapRow>(Table::Reap, value),
        3 => row::<ReplyRow>(Table::Replies, value),
        4 => row::<AllocatorRow>(Table::Counters, value),
        6 => row::<RulesRow>(Table::Rules, value),
        7 => row::<SpaceReservationRow>(Table::SpaceReservations, value),
        8 => row::<MoveRow>(Table::Moves, value),
        9 => row::<TargetRow>(Table::Targets, value),
        10 => row::<IdsRow>(Table::Starts, value),
        11 => row::<OwnerRow>(Table::Owners, value),
        12 => row::<RevokedRow>(Table::Revoked, value),
        13 => row::<ReplicaRow>(Table::Replicas, value),
        14 => row::<ClusterMapRow>(Table::Counters, value),
        15 => row::<LevelsRow>(Table::Counters, value),
        16 => row::<DomainsRow>(Table::Counters, value),
        _ => row::<StartRow>(Table::Counters, value),
    }
}

fn row<T: Serialize + DeserializeOwned + PartialEq + Debug>(table: Table, value: &[u8]) -> Outcome {
    assert!(Untrusted::new(value.to_vec()).open::<T>(table, KEY).is_err() || value.len() > 4);
    let sealed = seal(table, KEY, &Raw(value));
    let decoded =
        bounded(value.len(), 48, (1 << 20) + 8192, || Untrusted::new(sealed.clone()).open::<T>(table, KEY));
    // Another key, another table and a flipped bit must be rejected: the checksum covers all of them.
    assert!(Untrusted::new(sealed.clone()).open::<T>(table, &KEY[1..]).is_err());
    assert!(Untrusted::new(sealed.clone()).open::<T>(Table::Sessions, KEY).is_err());
    let mut damaged = sealed;
    let bit = crc32fast::hash(&damaged) as usize % (damaged.len() * 8);
    damaged[bit / 8] ^= 1 << (bit % 8);
    assert!(Untrusted::new(damaged).open::<T>(table, KEY).is_err(), "the flipped bit {bit} was not detected");
    if let Ok(row) = &decoded {
        let again = Untrusted::new(seal(table, KEY, row)).open::<T>(table, KEY);
        assert_eq!(again.as_ref(), Ok(row));
    }
    Outcome::of(&decoded)
}

/// Decodes a dump as it is and, to pass the first check, with corrected checksums.
pub fn metadata_dump(data: &[u8]) -> Outcome {
    let as_given = check_dump(data);
    let identity = data[..data.len().min(64)].to_vec();
    let mut rows = DumpWriter::new(Vec::new(), &DumpHeader { made: Timestamp(1), identity });
    if let Ok(rows) = &mut rows {
        for (at, value) in data.chunks(7).enumerate() {
            let key = (at as u64).to_be_bytes();
            rows.row(Table::Xattrs, &key, &seal(Table::Xattrs, &key, &Raw(value))).expect("in memory");
        }
    }
    let (good, count) = rows.and_then(DumpWriter::end).expect("in memory");
    assert_eq!(check_dump(&good), Outcome::Accepted, "{count} rows");
    let mut damaged = good;
    let bit = crc32fast::hash(data) as usize % (damaged.len() * 8);
    damaged[bit / 8] ^= 1 << (bit % 8);
    assert_eq!(check_dump(&damaged), Outcome::Refused, "the flipped bit {bit} was not detected");
    as_given
}

fn check_dump(bytes: &[u8]) -> Outcome {
    let read = bounded(bytes.len(), 96, (1 << 20) + 8192, || {
        let mut dump = DumpReader::new(bytes)?;
        let mut rows = Vec::new();
        while let Some(row) = dump.next_row()? {
            rows.push(row);
        }
        Ok::<_, DumpError>((dump.header().clone(), rows))
    });
    let Ok((header, rows)) = read else { return Outcome::Refused };
    let mut again = DumpWriter::new(Vec::new(), &header).expect("in memory");
    for row in rows {
        again.row(row.table, &row.key, &row.value).expect("in memory");
    }
    assert_eq!(again.end().expect("in memory").0, bytes);
    Outcome::Accepted
}

pub fn metadata_dump_seeds() -> Vec<Vec<u8>> {
    let header = DumpHeader { made: Timestamp(1_800_000_000_000_000_000), identity: b"identity".to_vec() };
    let mut dump = DumpWriter::new(Vec::new(), &header).expect("in memory");
    for (table, key) in [(Table::Counters, b"allocator"), (Table::Inodes, b"number  1")] {
        dump.row(table, key, &seal(table, key, &7u64)).expect("in memory");
    }
    vec![dump.end().expect("in memory").0, b"WEFTDUMP\x01\0\0\0".to_vec()]
}

pub fn metadata_sums(data: &[u8]) -> Outcome {
    let Some(again) = sums_bytes::slot(data) else { return Outcome::Refused };
    assert_eq!(sums_bytes::slot(&again), Some(again.clone()));
    Outcome::Accepted
}

pub fn metadata_sums_seeds() -> Vec<Vec<u8>> {
    vec![sums_bytes::sample()]
}

/// Decodes a log. The first byte is the number of the last frame that the base already has.
pub fn metadata_log(data: &[u8]) -> Outcome {
    let Some((&applied, log)) = data.split_first() else { return Outcome::Refused };
    let applied = u64::from(applied);
    let as_given = check_log(log, applied);
    let mut sealed = log.to_vec();
    reseal(&mut sealed, &mut Rng::new(crc32fast::hash(log).into()), applied);
    check_log(&sealed, applied);
    as_given
}

fn check_log(log: &[u8], applied: u64) -> Outcome {
    // The limit covers a copy of the log and one of its longest body. A row without bytes takes eight bytes in the log
    // and an entry in the map here.
    let (last, changes) = match bounded(log.len(), 64, 16 << 10, || read(log, applied)) {
        Ok(read) => read,
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
            return Outcome::Refused;
        }
    };
    assert!(last >= applied && (last > applied || changes.is_empty()));
    if changes.is_empty() {
        return Outcome::Refused;
    }
    let again = frame(applied + 1, 0, &changes);
    assert_eq!(read(&again, applied).expect("a valid frame"), (applied + 1, changes));
    // Without its last byte the frame is incomplete and must be ignored.
    assert_eq!(
        read(&again[..again.len() - 1], applied).expect("an incomplete end is no error"),
        (applied, vec![])
    );
    Outcome::Accepted
}

/// Turns arbitrary bytes into frames with valid checksums.
fn reseal(log: &mut [u8], rng: &mut Rng, applied: u64) {
    let (mut at, mut number) = (0, applied.saturating_sub(rng.next() % 3));
    while log.len() - at >= 28 {
        let (head, rest) = log[at..].split_first_chunk_mut::<28>().expect("long enough");
        head[..4].copy_from_slice(b"WLO2");
        let len = u32::from_le_bytes(head[4..8].try_into().expect("four bytes")) as usize;
        let len = if rng.one_in(20) { len } else { len % (rest.len() + 1) };
        head[4..8].copy_from_slice(&(len as u32).to_le_bytes());
        number = if rng.one_in(10) { rng.next() >> rng.below(64) } else { number.wrapping_add(1) };
        head[8..16].copy_from_slice(&number.to_le_bytes());
        if !rng.one_in(10) {
            head[16..20].copy_from_slice(&(rng.below(3) as u32).to_le_bytes());
        }
        let body = &rest[..len.min(rest.len())];
        head[20..24].copy_from_slice(&crc32fast::hash(body).to_le_bytes());
        let len = body.len();
        let crc = crc32fast::hash(&head[..24]);
        head[24..28].copy_from_slice(&crc.to_le_bytes());
        at += 28 + len;
    }
}

pub fn metadata_identity(data: &[u8]) -> Outcome {
    let as_given = identity(data);
    if data.len() >= 4 {
        let mut sealed = data.to_vec();
        let split = sealed.len() - 4;
        let crc = crc32fast::hash(&sealed[..split]);
        sealed[split..].copy_from_slice(&crc.to_le_bytes());
        identity(&sealed);
    }
    as_given
}

fn identity(data: &[u8]) -> Outcome {
    let decoded = bounded(data.len(), 1, 64, || Identity::decode(data));
    match &decoded {
        Ok(identity) if identity.id.is_none() => {
            assert!(identity.was_version_1, "only version 1 has no identity of the cluster");
        }
        // Versions 2 to 5 differ in the number of the version only.
        Ok(identity) if data[8] < 5 => {
            assert_eq!(Identity::decode(&identity.encode()).as_ref(), Ok(identity))
        }
        Ok(identity) => assert_eq!(identity.encode(), data, "the encoding is unique"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    Outcome::of(&decoded)
}

pub fn handle_token(data: &[u8]) -> Outcome {
    let decoded = bounded(data.len(), 1, 64, || HandleToken::decode(data));
    let Some(token) = decoded else { return Outcome::Refused };
    assert_eq!(HandleToken::decode(&token.encode()), Some(token));
    Outcome::Accepted
}

pub fn metadata_row_seeds() -> Vec<Vec<u8>> {
    let layout = Layout::striped(&[TargetId(0), TargetId(300)], ByteLen(65_536)).expect("a layout");
    let choice = LayoutChoice {
        stripe_size: Some(ByteLen(1)),
        class: Some("ssd".into()),
        strips: Some(vec![(TargetId(1), ByteLen(2))]),
        ..LayoutChoice::default()
    };
    let regular = |generations, recorded| Node::Regular {
        layout: layout.clone(),
        is_size_valid: false,
        touched: true,
        epoch: u32::MAX,
        generations,
        recorded,
        is_inline: false,
    };
    let inline = Node::Regular {
        layout: layout.clone(),
        is_size_valid: true,
        touched: true,
        epoch: 1,
        generations: Generations { now: 0, last: 2 },
        recorded: RecordedLens::NONE,
        is_inline: true,
    };
    let recorded = RecordedLens::new(vec![ByteLen(1 << 40)]);
    let nodes = [
        regular(Generations::default(), RecordedLens::NONE),
        regular(Generations { now: 2, last: u16::MAX }, RecordedLens::NONE),
        regular(Generations { now: 2, last: 3 }, recorded),
        inline,
        Node::Directory { entries: 5, default: Some(choice) },
        Node::Symlink { target: b"../a".to_vec() },
        Node::Special { kind: NodeKind::Fifo, rdev: 0 },
    ];
    let inode = |node| Inode {
        mode: 0o644,
        uid: 1000,
        gid: 100,
        nlink: 1,
        size: ByteLen(1 << 40),
        blocks_512: 8,
        atime: Timestamp::from_parts(1, 2),
        mtime: Timestamp::from_parts(-1, 2),
        ctime: Timestamp::from_parts(1_800_000_000, 2),
        mtime_set_at: Timestamp::default(),
        parent: FileId(1),
        name: b"name".to_vec(),
        xattrs: 0,
        node,
    };
    let seed = |kind: u8, row: Vec<u8>| [&[kind], &row[..]].concat();
    let mut seeds: Vec<_> = nodes.map(|node| seed(0, encoded(&inode(node)))).to_vec();
    seeds.push(seed(1, encoded(&DentryRow { file: FileId(7), kind: NodeKind::Symlink })));
    let moving = MoveRow {
        generation: 1,
        layout: layout.clone(),
        session: 1 << 100,
        handle: 300,
        copied: ByteLen(1 << 30),
        epoch: Some(7),
        compression: None,
    };
    seeds.push(seed(8, encoded(&moving)));
    let compressed = MoveRow { compression: "zstd:3/256KiB".parse().ok(), ..moving };
    seeds.push(seed(8, encoded(&compressed)));
    seeds.push(seed(2, encoded(&ReapRow { layout })));
    seeds.push(seed(3, encoded(&ReplyRow { seq: 9, reply: vec![1; 300] })));
    seeds.push(seed(4, encoded(&AllocatorRow { next: FileId(1 << 33), inodes: 77 })));
    seeds.push(seed(5, encoded(&StartRow { incarnation: 3, clean: true, unused: false })));
    let part = |end, class: &str| ClassPart { end, stripes: vec![(class.into(), ByteLen(4096))] };
    let rule = RuleRow {
        pattern: "/run{n}/**/[a-z]?.h5".parse().expect("a pattern"),
        choice: LayoutChoice::default(),
        by_class: ClassLayout::new(vec![part(Some(FileOffset(300)), "ssd"), part(None, "hdd")]).ok(),
        compression: None,
    };
    let compressed = RuleRow { by_class: None, compression: "off".parse().ok(), ..rule.clone() };
    seeds.push(seed(6, encoded(&RulesRow { rules: vec![rule.clone(), compressed] })));
    seeds.push(seed(6, encoded(&RulesRow { rules: vec![rule.clone(), RuleRow { by_class: None, ..rule }] })));
    seeds.push(seed(7, encoded(&SpaceReservationRow { promised: ByteLen(1 << 40) })));
    seeds.push(seed(11, encoded(&OwnerRow { inodes: 1 << 33 })));
    let token = AttachToken { counter: 300, nonce: u64::MAX };
    let target = TargetRow { uuid: TargetUuid(1 << 100), state: TargetState::Draining, token, accepts: true };
    seeds.push(seed(9, encoded(&target)));
    seeds.push(seed(12, encoded(&RevokedRow { at_s: 1 << 31, generation: 300 })));
    seeds.push(seed(10, encoded(&IdsRow { first: FileId(2), end: FileId(1 << 47), start_s: 1 << 31 })));
    seeds
}

pub fn metadata_log_seeds() -> Vec<Vec<u8>> {
    let change = |n: u8, value: Option<usize>| {
        (Table::ALL[n as usize % Table::ALL.len()], vec![n; 8], value.map(|len| vec![n; len]))
    };
    let frames = [
        frame(5, 0, &[change(1, Some(100)), change(4, None)]),
        frame(6, 0, &[change(1, None)]),
        frame(7, 1, &(0..200).map(|n| change(n, Some(n.into()))).collect::<Vec<_>>()),
    ];
    let seed = |applied: u8, frames: &[Vec<u8>]| [&[applied], &frames.concat()[..]].concat();
    vec![
        seed(4, &frames),
        seed(6, &frames),
        seed(4, &frames[..1]),
        seed(0, &frames),
        seed(9, &[vec![0; 100]]),
    ]
}

pub fn metadata_identity_seeds() -> Vec<Vec<u8>> {
    let good = Identity { cluster: "physics".into(), id: ClusterId(7), was_version_1: false }.encode();
    let empty = Identity { cluster: String::new(), id: ClusterId(8), was_version_1: true }.encode();
    vec![good[1..].to_vec(), good, empty]
}

pub fn handle_token_seeds() -> Vec<Vec<u8>> {
    let session = SessionId(7).bound_to(SessionOwner { uid: 1000, is_server: false });
    let proof = ClusterSecret::new(&[7; 32]).prove_walk(FileId(7), session);
    let flags = OpenFlags { read: true, ..OpenFlags::default() };
    let session = SessionId(7).name();
    let token = HandleToken { file: FileId(7), flags, proof, session, path: b"a/b".to_vec() };
    let bare = HandleToken { path: vec![], ..token.clone() };
    vec![token.encode(), bare.encode(), encoded(&HandleId(1))]
}
