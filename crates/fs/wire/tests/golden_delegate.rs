//! Golden bytes of the delegate family.

mod support;

use weft_core::delegates::ownership::{FileNumber, PageIndex, Policy};
use weft_core::delegates::page_locks::HolderId;
use weft_core::{ByteLen, Nanos};
use weft_wire::delegate::{
    DelegateReply, DelegateRequest, DelegateStatus, FilePiece, FileSource, FileStatus, Grant, HomeGeneration,
    JobSettings, PayloadLocation,
};
use weft_wire::{Errno, WireError};

const FILE: FileNumber = FileNumber(1 << 50);

#[test]
fn encoded_requests_match_the_golden_bytes() {
    let open = |source| DelegateRequest::Open {
        file: FILE,
        handle: 304,
        source,
        read: true,
        write: false,
        page_len: 512 << 10,
        name: b"/scratch/a".to_vec(),
    };
    let pieces = vec![FilePiece { offset: 300, len: 47_008 }, FilePiece { offset: 1 << 40, len: 1 }];
    let grants = vec![Grant { home: 3, generation: HomeGeneration(301) }];
    support::check(
        "delegate_request.txt",
        &[
            DelegateRequest::AttachShared { payload_len: 2 << 20 },
            DelegateRequest::Settings,
            open(FileSource::Descriptor),
            open(FileSource::Path { path: b"/scratch/a".to_vec(), inode: 302 }),
            open(FileSource::Token(vec![1, 2, 3])),
            DelegateRequest::Close { file: FILE, handle: 304, failures_seen: 305 },
            DelegateRequest::Read {
                file: FILE,
                pieces: pieces.clone(),
                place: PayloadLocation::Shared(4096),
                grants: Vec::new(),
            },
            DelegateRequest::Write { file: FILE, pieces, place: PayloadLocation::Payload, grants },
            DelegateRequest::Sync { file: FILE, failures_seen: u64::MAX },
            DelegateRequest::End { file: FILE },
            DelegateRequest::WriteBack { file: FILE, start: 1, end: 300 },
            DelegateRequest::Hold { file: FILE, start: 1, end: u64::MAX, wait: true },
            DelegateRequest::Release { file: FILE, start: 1, end: u64::MAX },
            DelegateRequest::LockPages {
                holder: HolderId(303),
                requester: 2,
                file: FILE,
                pages: vec![PageIndex(7), PageIndex(304)],
                exclusive: true,
            },
            DelegateRequest::UnlockPages { holder: HolderId(303) },
            DelegateRequest::Status,
        ],
    );
}

#[test]
fn encoded_replies_match_the_golden_bytes() {
    let settings = JobSettings {
        delegates: 4,
        index: 1,
        policy: Policy::FirstTouch,
        group_pages: 2,
        page_len: Some(1 << 20),
        memory: ByteLen(1 << 30),
        write_behind: true,
        direct_min: Some(1 << 20),
    };
    let file = FileStatus {
        name: b"/scratch/a".to_vec(),
        sessions: 5,
        page_len: 512 << 10,
        pages: 6,
        dirty: ByteLen(7),
    };
    let status = DelegateStatus {
        index: 1,
        pid: 300,
        host: "node1".into(),
        sessions: 2,
        uptime: Nanos::from_s(3),
        memory_max: ByteLen(1 << 30),
        memory: ByteLen(4),
        pages: 5,
        dirty: ByteLen(6),
        requests: 7,
        pieces: 8,
        bytes_read: ByteLen(9),
        bytes_written: ByteLen(10),
        hits: 11,
        misses: 12,
        read_ahead: 13,
        file_reads: 14,
        file_writes: 15,
        file_bytes_written: ByteLen(16),
        forwarded: 17,
        write_errors: 18,
        files: vec![file],
    };
    support::check(
        "delegate_reply.txt",
        &[
            DelegateReply::Done,
            DelegateReply::Failed(WireError::new(
                Errno::ENOSPC,
                "bytes 0 to 9 could not be written".to_owned(),
            )),
            DelegateReply::NotOpen { delegate: 3 },
            DelegateReply::WriteFailed {
                failure: 303,
                error: WireError::new(Errno::EIO, "bytes 0 to 9 could not be written".to_owned()),
            },
            DelegateReply::Busy,
            DelegateReply::OldGrant,
            DelegateReply::Attached { payload_len: 2 << 20 },
            DelegateReply::Settings(settings),
            DelegateReply::Opened { page_len: 512 << 10, failures: 302 },
            DelegateReply::Read { known: vec![0, 300] },
            DelegateReply::End(Some(301)),
            DelegateReply::Locked { owners: vec![0, 3], generation: HomeGeneration(302) },
            DelegateReply::Status(Box::new(status)),
        ],
    );
}
