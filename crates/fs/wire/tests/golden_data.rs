//! Golden bytes of the data family.

mod support;

use weft_core::{ByteLen, FileId, LocalOffset, Nanos, ObjectId, TargetId, Timestamp};
use weft_wire::capability::{Capability, Rights};
use weft_wire::data::{
    Change, Damage, DataReply, DataRequest, DatafileId, DatafileMeta, IoHints, PayloadLocation, ProbeWork,
    Sample, Samples, Scrubbed,
};
use weft_wire::{Errno, WireError};

fn datafile(column: u16) -> DatafileId {
    DatafileId {
        target: TargetId(300),
        file: FileId(0x1234_5678_9abc),
        object: ObjectId { component: 1, column },
    }
}

fn cap() -> Capability {
    Capability {
        file: FileId(0x1234_5678_9abc),
        rights: Rights::READ.and(Rights::WRITE),
        expires_s: 1_800_000_000,
        limit: None,
        mac: [0xcd; 16],
    }
}

fn probe(work: ProbeWork, offsets: Vec<LocalOffset>) -> DataRequest {
    DataRequest::Probe { target: TargetId(1), work, len: 65_536, offsets, within: Nanos::from_ms(500) }
}

#[test]
fn encoded_requests_match_the_golden_bytes() {
    let (datafile, cap, offset) = (datafile(2), cap(), LocalOffset(1 << 33));
    let sibling_targets = vec![TargetId(301), TargetId(0), TargetId(65_535), TargetId(2)];
    let plain = IoHints { fragment: false, small_random: true, siblings: 1, ..IoHints::default() };
    let hints = IoHints { fragment: true, small_random: false, siblings: 5, call: 70_000, sibling_targets };
    let both = vec![self::datafile(0), datafile];
    let fenced = vec![datafile];
    support::check(
        "data_request.txt",
        &[
            DataRequest::Read { datafile, cap, offset, len: 65_536, hints: plain.clone() },
            DataRequest::Write {
                datafile,
                cap,
                offset,
                len: 47_008,
                place: PayloadLocation::Payload,
                hints: hints.clone(),
            },
            DataRequest::Write {
                datafile,
                cap,
                offset,
                len: 64,
                place: PayloadLocation::Shared(4096),
                hints,
            },
            DataRequest::GetLens { cap, datafiles: both.clone() },
            DataRequest::SetLens {
                cap,
                datafiles: vec![(datafile, ByteLen(0)), (datafile, ByteLen(u64::MAX))],
            },
            DataRequest::Sync { cap, datafiles: vec![] },
            DataRequest::Remove { datafiles: both },
            DataRequest::Lease { datafile, cap, write: true },
            DataRequest::Release { slots: vec![0, 1022] },
            DataRequest::AttachShared { payload_len: 4 << 20 },
            DataRequest::ReadShared { datafile, cap, offset, len: 65_536, to: 4096, hints: plain },
            DataRequest::RevokeLeases { target: TargetId(1) },
            DataRequest::ListDatafiles { target: TargetId(1), after: None, limit: 1000 },
            DataRequest::ListDatafiles {
                target: TargetId(1),
                after: Some((FileId(9), ObjectId { component: 0, column: 3 })),
                limit: 1000,
            },
            DataRequest::Flush { target: TargetId(1), from: None },
            DataRequest::Flush {
                target: TargetId(1),
                from: Some((FileId(9), ObjectId { component: 0, column: 3 }, offset)),
            },
            DataRequest::Fence { cap, before_s: 1_799_999_999, datafiles: fenced },
            DataRequest::Samples { run: u64::MAX, from: 300, limit: 8192 },
            probe(ProbeWork::Make(ByteLen(1 << 30)), vec![]),
            probe(ProbeWork::Read, vec![LocalOffset(0), offset]),
            probe(ProbeWork::Write, vec![LocalOffset(4096)]),
            probe(ProbeWork::Sync, vec![]),
            probe(ProbeWork::Forget, vec![]),
            probe(ProbeWork::Remove, vec![]),
            probe(ProbeWork::WritePast, vec![LocalOffset(4096)]),
            DataRequest::Watch { cap, datafiles: vec![datafile] },
            DataRequest::Changes { cap, watch: u64::MAX, round: 300 },
            DataRequest::Seal { cap, before_s: 1_800_000_000, datafiles: vec![datafile] },
            DataRequest::SetTimes {
                cap,
                mtime: Timestamp::from_parts(1_790_000_000, 123_456_789),
                datafiles: vec![datafile],
            },
            DataRequest::Punch { cap, extents: vec![(datafile, LocalOffset(4095), ByteLen(70_000))] },
            DataRequest::Seek { cap, datafiles: vec![(datafile, LocalOffset(300))], hole: true },
            DataRequest::Scrub {
                target: datafile.target,
                from: Some((datafile.file, datafile.object, LocalOffset(4096))),
                len: 300,
            },
        ],
    );
}

#[test]
fn encoded_replies_match_the_golden_bytes() {
    let there = DatafileMeta {
        len: ByteLen(1 << 33),
        blocks_512: 77,
        mtime: Some(Timestamp::from_parts(1_790_000_000, 123_456_789)),
        ssd_dirty: ByteLen(300),
        ssd_clean: ByteLen(7),
        keeps_nothing: true,
    };
    let sample = Sample {
        datafile: datafile(2),
        client: u64::MAX,
        offset: LocalOffset(1 << 33),
        len: 65_536,
        write: true,
        siblings: 5,
        call: 70_000,
        start: Timestamp::from_parts(1_790_000_000, 123_456_789),
        took: Nanos(1_000_000),
    };
    let before_1970 = DatafileMeta { mtime: Some(Timestamp::from_parts(-1, 1)), ..there };
    support::check(
        "data_reply.txt",
        &[
            DataReply::Read { datafile_len: ByteLen(u64::MAX) },
            DataReply::ReadShared { len: 9, datafile_len: Some(ByteLen(9)) },
            DataReply::Written,
            DataReply::Lens(vec![there, before_1970, DatafileMeta::default()]),
            DataReply::Done,
            DataReply::Leased { slot: 1022 },
            DataReply::NotLeased,
            DataReply::Attached { payload_len: 0 },
            DataReply::Datafiles(vec![(FileId(1), ObjectId { component: 0, column: 65_535 }, ByteLen(5))]),
            DataReply::Failed(WireError::new(Errno::ENOSPC, "target 3 is full: remove files")),
            DataReply::Flushed {
                next: Some((FileId(9), ObjectId { component: 0, column: 3 }, LocalOffset(77))),
                written: ByteLen(1 << 20),
                dirty: ByteLen(0),
            },
            DataReply::Flushed { next: None, written: ByteLen(0), dirty: ByteLen(5) },
            DataReply::Samples(Samples { run: 9, next: 301, lost: 3, one_in: 64, samples: vec![sample] }),
            DataReply::Samples(Samples::default()),
            DataReply::Probed { times: vec![Nanos(1), Nanos(8_000_000)], elapsed: Nanos(8_000_100) },
            DataReply::Watching { watch: 1 << 63 },
            DataReply::Changes(vec![Change {
                datafile: datafile(2),
                ranges: vec![(0, 5), (1 << 33, u64::MAX)],
            }]),
            DataReply::NotWatching,
            DataReply::WriteLeasesSuspended,
            DataReply::Sought(vec![None, Some(LocalOffset(300))]),
            DataReply::Scrubbed(Scrubbed {
                next: None,
                verified: ByteLen(300),
                checked: 2,
                unchecked: vec![(FileId(4), ObjectId { component: 1, column: 2 })],
                damaged: vec![Damage {
                    file: FileId(3),
                    object: ObjectId::default(),
                    start: 4096,
                    end: 8192,
                }],
            }),
            DataReply::Damaged { start: 4096, end: 8192, error: WireError::new(Errno::EIO, "disk") },
        ],
    );
}
