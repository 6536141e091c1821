//! Golden bytes of the status family.

mod support;

use weft_core::{ByteLen, ClusterId, DeviceLoad, FileId, Nanos, ServerId, TargetId, TargetState, TargetUuid};
use weft_env::Address;
use weft_wire::activity::{
    Activity, ClientActivity, FileActivity, LatencyCounts, TargetLatency, UserActivity, Work,
};
use weft_wire::cluster::ServerEntry;
use weft_wire::hello::Process;
use weft_wire::keys::{KeyId, Revoked};
use weft_wire::meta::{SpaceReservation, TargetRecord};
use weft_wire::status::{
    AuditStatus, CacheStatus, DelegateCounts, KeyStatus, MetadataEntry, MetadataStatus, MoveCounts,
    RefusedTarget, ServerStatus, SsdClass, SsdStatus, StatusReply, StatusRequest, TargetStatus, UserStatus,
};
use weft_wire::{Errno, WireError};

#[test]
fn encoded_requests_match_the_golden_bytes() {
    support::check(
        "status_request.txt",
        &[
            StatusRequest::Status,
            StatusRequest::Shutdown,
            StatusRequest::Echo { reply_len: 4 << 20 },
            StatusRequest::Revoke(Revoked { keys: vec![KeyId(300)] }),
            StatusRequest::Activity,
            StatusRequest::MetadataServer,
            StatusRequest::SetMetadataServer(entry()),
        ],
    );
}

fn entry() -> MetadataEntry {
    let addresses = vec![Address::Tcp("node3".into(), 7411)];
    MetadataEntry { version: 300, entry: ServerEntry { name: "node3".into(), addresses } }
}

fn activity(status: ServerStatus) -> Activity {
    let work = Work {
        reads: 1,
        writes: 300,
        others: 3,
        metadata: 4,
        bytes_read: ByteLen(5),
        bytes_written: ByteLen(1 << 40),
        time: Nanos(7),
    };
    let latency = |sum| LatencyCounts { counts: vec![1, 0, 300], sum: Nanos(sum) };
    let process = Process { host: "node7".into(), pid: 4242, program: "ior".into() };
    Activity {
        now: Nanos::from_s(60),
        incarnation: 1 << 40,
        is_complete: true,
        status: ServerStatus { users: vec![], ..status },
        operations: vec![latency(1), latency(2)],
        targets: vec![TargetLatency { target: TargetId(7), read: latency(3), write: latency(4) }],
        clients: vec![ClientActivity {
            client: 0x0102_0304,
            uid: 1000,
            since: Nanos(8),
            process,
            address: "10.0.0.7:4000".into(),
            connections: 2,
            leases: 9,
            work,
        }],
        users: vec![UserActivity { uid: 1000, since: Nanos(10), leases: 11, work }],
        files: vec![FileActivity { file: FileId(77), uid: 1000, since: Nanos(12), leases: 13, work }],
    }
}

#[test]
fn encoded_replies_match_the_golden_bytes() {
    let target = TargetStatus {
        target: TargetId(7),
        class: "ssd".into(),
        path: "/data/weft".into(),
        module: "buffered".into(),
        total: ByteLen(1 << 40),
        free: ByteLen(1 << 39),
        bytes_read: 1,
        bytes_written: 2,
        requests: 3,
        fragments: 4,
        queue: 5,
        leases: 6,
        damaged: 8,
        unverified: 300,
        bytes_compressed: 301,
        bytes_stored: 302,
        ssd: None,
        file_system: 7,
        refused: None,
        disk: None,
    };
    let refused = RefusedTarget { state: "blank".into(), reason: "mount its disk".into() };
    let refused = TargetStatus {
        refused: Some(refused),
        disk: Some(DeviceLoad { in_flight: 2, queued_ms: 303, bytes_read: 304, bytes_written: 305 }),
        ..target.clone()
    };
    let class = SsdClass {
        number: 1,
        name: "random".into(),
        bytes: ByteLen(1),
        dirty: ByteLen(13),
        quota: ByteLen(2),
        gain: -3,
        admitted: 4,
    };
    let cache = CacheStatus {
        mode: "write-back".into(),
        eviction: "s3-fifo".into(),
        share: "50 %".into(),
        blocks: 14,
        bytes_hit: ByteLen(15),
        bytes_missed: ByteLen(16),
        rejected: 17,
        bytes_evicted: ByteLen(18),
        bytes_prefetched: ByteLen(19),
    };
    let bridged = TargetStatus {
        ssd: Some(SsdStatus {
            path: "/ssd/log".into(),
            policy: "static(1:2)".into(),
            partition: "static(1:2), cache 50 %".into(),
            failed: Some("input/output error".into()),
            capacity: ByteLen(1 << 33),
            dirty: ByteLen(1),
            lost: ByteLen(20),
            entries: 2,
            service_time: Nanos::from_ms(3),
            classes: vec![SsdClass { number: 0, name: "fragment".into(), ..SsdClass::default() }, class],
            cache: Some(cache),
            read_hits: 4,
            read_partial_hits: 5,
            read_misses: 6,
            bytes_read: ByteLen(7),
            bytes_written: ByteLen(8),
            bytes_written_back: ByteLen(9),
            written_back_per_s: ByteLen(10),
            bytes_preloaded: ByteLen(11),
            bytes_moved: ByteLen(12),
        }),
        ..target.clone()
    };
    let metadata = MetadataStatus {
        inodes: 1,
        sessions: 2,
        opens: 3,
        locks: 4,
        requests: 5,
        mutations: 6,
        commits: 7,
        reaping: 8,
        total: ByteLen(9),
        free: ByteLen(10),
        space_reservations: vec![SpaceReservation {
            target: TargetId(2),
            capacity: ByteLen(11),
            reserved: ByteLen(12),
        }],
        damaged_blocks: 13,
        targets: vec![TargetRecord {
            target: TargetId(7),
            state: TargetState::Draining,
            uuid: TargetUuid(13),
            attaches: 14,
            accepts: true,
        }],
        moves: MoveCounts {
            running: 20,
            interrupted: 21,
            started: 22,
            completed: 23,
            lost: 24,
            abandoned: 25,
            removed: 26,
            bytes_copied: ByteLen(300),
        },
        delegates: DelegateCounts {
            jobs: 30,
            delegates: 31,
            cached_files: 32,
            open_files: 33,
            recalls: 34,
            recalls_failed: 35,
            recall_time: Nanos(36),
        },
    };
    let status = ServerStatus {
        server: ServerId(1),
        name: "node1".into(),
        version: "0.1.0".into(),
        pid: 4242,
        uptime: Nanos::from_s(60),
        connections: 12,
        memory: ByteLen::from_mib(20),
        targets: vec![target, bridged, refused],
        metadata: Some(metadata),
        cluster_id: ClusterId(15),
        users: vec![UserStatus {
            uid: 1000,
            connections: 16,
            payload: ByteLen(17),
            opens: 18,
            locks: 19,
            inodes: 300,
        }],
        bounds: UserStatus { connections: 4096, ..UserStatus::default() },
        keys: KeyStatus { generations: vec![300, 299], revoked: 16 },
        audit: Some(AuditStatus {
            path: "/var/log/weft/audit.log".into(),
            written: 17,
            lost: 18,
            failed: Some("no space".into()),
        }),
    };
    support::check(
        "status_reply.txt",
        &[
            StatusReply::Status(Box::new(status.clone())),
            StatusReply::ShuttingDown,
            StatusReply::Failed(WireError::from(Errno::EPERM)),
            StatusReply::Echo,
            StatusReply::Revoked,
            StatusReply::Activity(Box::new(activity(status))),
            StatusReply::MetadataServer(Some(entry())),
        ],
    );
}
