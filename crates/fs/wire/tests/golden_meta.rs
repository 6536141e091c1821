//! Golden bytes of the metadata family.

mod support;

use weft_core::ibridge::Report;
use weft_core::{
    AttachToken, ByteLen, ClassLayout, ClassPart, ClusterId, Component, FileId, FileOffset, Integrity,
    Layout, Nanos, QuotaId, QuotaLimits, QuotaUsage, RecordedLens, Reserve, ServerId, Strip, TargetId,
    TargetSettings, TargetState, TargetUuid, Timestamp,
};
use weft_env::Address;
use weft_wire::capability::{Capability, Rights, WriteLimit};
use weft_wire::cluster::{
    ClusterMap, Domain, DomainChange, ServerChange, ServerEntry, TargetEntry, TargetPlace,
};
use weft_wire::hello::Identity;
use weft_wire::keys::{KeyId, Revoked};
use weft_wire::meta::*;
use weft_wire::{Errno, Level, Levels, SessionName, WalkProof, WireError};

fn at(path: &str) -> InodePath {
    InodePath::from_root(path, true)
}

const PROOF: WalkProof = WalkProof([0xab; 16]);

fn cap_rights() -> Rights {
    Rights::LENGTH.and(Rights::of_compression("auto".parse().ok()))
}

fn cap() -> Capability {
    Capability {
        file: FileId(77),
        rights: cap_rights(),
        expires_s: 1_800_000_000,
        limit: None,
        mac: [0xcd; 16],
    }
}

fn layout() -> Layout {
    let strips = |sizes: &[(u32, u64)]| {
        sizes.iter().map(|&(t, s)| Strip { target: TargetId(t), stripe_size: ByteLen(s) }).collect()
    };
    Layout::from_components(vec![
        Component {
            start: FileOffset(0),
            end: Some(FileOffset(1 << 30)),
            strips: strips(&[(2, 131_072), (3, 47_008)]),
        },
        Component { start: FileOffset(1 << 30), end: None, strips: strips(&[(0, 65_536), (1, 65_536)]) },
    ])
    .expect("a valid layout")
}

fn recorded() -> RecordedLens {
    RecordedLens::new(vec![ByteLen(131_072), ByteLen(0), ByteLen(5)])
}

fn token(counter: u64) -> AttachToken {
    AttachToken { counter, nonce: 0xabcd }
}

fn attr(invalid_size: bool) -> Attr {
    let time = |s| Timestamp::from_parts(s, 999_999_999);
    Attr {
        file: FileId(77),
        proof: PROOF,
        kind: FileType::Regular,
        mode: 0o644,
        uid: 1000,
        gid: 100,
        nlink: 2,
        size: ByteLen(1 << 40),
        blocks_512: 1 << 31,
        atime: time(1_790_000_000),
        mtime: time(-5),
        ctime: time(0),
        rdev: 0x0103,
        invalid_size: invalid_size.then(|| {
            Box::new(InvalidSize {
                layout: layout(),
                cap: cap(),
                epoch: 9,
                may_validate_size: true,
                mtime_set_at: time(1),
                recorded: recorded(),
            })
        }),
    }
}

fn spec() -> LayoutSpec {
    LayoutSpec {
        stripe_size: Some(ByteLen::from_kib(64)),
        stripe_count: Some(4),
        first: Some(1),
        class: Some("ssd".into()),
        strips: Some(vec![(TargetId(3), ByteLen(47_008))]),
        tails: vec![(FileOffset(1 << 20), vec![(TargetId(1), ByteLen(65_536))])],
        by_class: None,
        compression: "zstd:3/256KiB".parse().ok(),
    }
}

fn rule() -> Rule {
    let part = |end, stripes: &[(&str, u64)]| ClassPart {
        end,
        stripes: stripes.iter().map(|(class, size)| ((*class).to_owned(), ByteLen(*size))).collect(),
    };
    let parts = vec![
        part(Some(FileOffset(1 << 20)), &[("hdd", 4096), ("ssd", 65_536)]),
        part(None, &[("hdd", 8192)]),
    ];
    let by_class = Some(ClassLayout::new(parts).expect("a layout"));
    Rule {
        pattern: "/out.{n}.h5".parse().expect("a pattern"),
        layout: LayoutSpec { by_class, ..LayoutSpec::default() },
    }
}

const RANGE: LockRange = LockRange { start: 100, end: u64::MAX };

fn lost_lock() -> ReclaimLock {
    ReclaimLock {
        file: FileId(77),
        space: LockSpace::Record,
        owner: LockOwner::Process(0),
        kind: LockKind::Exclusive,
        range: RANGE,
        pid: 300,
    }
}

fn replica_info() -> ReplicaInfo {
    ReplicaInfo {
        file: FileId(77),
        path: b"a/b".to_vec(),
        spec: ReplicaSpec {
            ranks: 300,
            len: ByteLen(1 << 33),
            mapping_len: 92,
            mapping_hash: 0x0102_0304_0506_0708,
            gain_us: 400,
        },
        phase: weft_core::replicas::Phase::Valid,
        is_used: true,
        opens: 2,
        dirty: vec![1, 0, 255],
        epoch: 10,
        writers: 3,
        has_lost_opens: true,
    }
}

fn reclaim_open() -> ReclaimOpen {
    ReclaimOpen {
        handle: HandleId(5),
        file: FileId(77),
        flags: OpenFlags { read: true, ..OpenFlags::default() },
        proof: Some(PROOF),
        cap: Some(cap()),
        caching: true,
        redirected: Redirected::Yes(FileId(78)),
    }
}

#[test]
fn the_call_around_a_request() {
    let call = |on_behalf| MetaCall { seq: 300, on_behalf, request: MetaRequest::Flush };
    support::check(
        "meta_call.txt",
        &[call(None), call(Some(Identity { uid: 1, gid: 2, groups: vec![3, 4] }))],
    );
}

fn report(age: u64) -> Report {
    Report { target: TargetId(300), average: Nanos(5_000_000), age: Nanos(age) }
}

#[test]
fn encoded_requests_match_the_golden_bytes() {
    let handle = HandleId(5);
    let (space, owner, kind, range) = (LockSpace::Flock, LockOwner::Handle(handle), LockKind::Shared, RANGE);
    let flags = OpenFlags { read: true, write: true, create: true, ..OpenFlags::default() };
    let summary = WriteSummary {
        wrote: true,
        end: ByteLen(1 << 20),
        bytes: ByteLen(1 << 21),
        unsure: false,
        mtime: Timestamp::from_parts(1_790_000_000, 1),
        written: WrittenLens { data: FileId(77).of_generation(3), lens: recorded() },
        reported: true,
    };
    let found = CollectedSize {
        size: ByteLen(4096),
        blocks_512: 8,
        mtime: Some(Timestamp(5)),
        lens: RecordedLens::new(vec![ByteLen(4096)]),
    };
    let set = SetAttr {
        mode: Some(0o4755),
        uid: Some(0),
        gid: None,
        atime: Some(SetTime::Now),
        mtime: Some(SetTime::At(Timestamp::from_parts(-1, 0))),
        written_by: Some(Writer::Other),
    };
    let claim = TargetClaim::Identity {
        cluster: ClusterId(299),
        uuid: TargetUuid(300),
        tokens: [token(5), token(4)],
    };
    let requests = [
        MetaRequest::Stat { at: at("a/b/c") },
        MetaRequest::Stat { at: InodePath { path: b"c".to_vec(), ..InodePath::at_inode(FileId(77), PROOF) } },
        MetaRequest::Open {
            at: at("new"),
            flags,
            mode: 0o600,
            handle,
            layout: spec(),
            cache: true,
            ranks: None,
        },
        MetaRequest::Open {
            at: at("new"),
            flags,
            mode: 0o600,
            handle,
            layout: spec(),
            cache: false,
            ranks: Some(300),
        },
        MetaRequest::Adopt { open: reclaim_open(), parent: SessionName(300) },
        MetaRequest::Close { handle, summary: summary.clone() },
        MetaRequest::ValidateSize { file: FileId(77), epoch: 9, cap: cap(), found },
        MetaRequest::Truncate { at: at(""), handle: Some(handle), size: ByteLen(300) },
        MetaRequest::Renew { handle },
        MetaRequest::Mkdir { at: at("dir"), mode: 0o755 },
        MetaRequest::Mknod { at: at("fifo"), kind: FileType::Fifo, mode: 0o600, rdev: 0 },
        MetaRequest::Symlink { at: at("link"), target: b"/weft/a\xff".to_vec() },
        MetaRequest::Link { from: at("a"), to: at("b") },
        MetaRequest::Unlink { at: at("a") },
        MetaRequest::Rmdir { at: at("dir") },
        MetaRequest::Rename { from: at("a"), to: at("b"), no_replace: true, exchange: false },
        MetaRequest::Readlink { at: InodePath { follow: false, ..at("link") } },
        MetaRequest::SetAttr { at: at("a"), set },
        MetaRequest::List { at: at(""), after: b"m".to_vec(), limit: 4096, with_attr: true, lease: true },
        MetaRequest::Access { at: at("a"), mask: 6 },
        MetaRequest::GetXattr { at: at("a"), name: "user.k".into() },
        MetaRequest::SetXattr {
            at: at("a"),
            name: "user.k".into(),
            value: vec![0, 1, 255],
            create: false,
            replace: true,
        },
        MetaRequest::ListXattr { at: at("a") },
        MetaRequest::RemoveXattr { at: at("a"), name: "user.k".into() },
        MetaRequest::GetLayout { at: at("a") },
        MetaRequest::SetLayout { at: at("a"), spec: LayoutSpec::default() },
        MetaRequest::Lock { handle, space, owner, kind, range, wait: true, ticket: 3, pid: 4242 },
        MetaRequest::CancelLock { ticket: 3 },
        MetaRequest::Unlock { handle, space, owner, range },
        MetaRequest::TestLock { handle, space: LockSpace::Append, owner: LockOwner::Process(1), kind, range },
        MetaRequest::Reclaim { opens: vec![reclaim_open()], locks: vec![lost_lock()] },
        MetaRequest::Flush,
        MetaRequest::StatFs { at: None },
        MetaRequest::StatFs { at: Some(at("a/b")) },
        MetaRequest::Invalidate { handle, start: 0, end: u64::MAX },
        MetaRequest::AwaitRecall { handle },
        MetaRequest::WaitEvents { done: 8 },
        MetaRequest::ScanInodes { after: FileId(0), limit: 1000 },
        MetaRequest::CheckNamespace { repair: true },
        MetaRequest::Averages { reports: vec![report(0), report(1_000_000)] },
        MetaRequest::AbandonAppend { handle, owner },
        MetaRequest::Rules { at: at("dir") },
        MetaRequest::ChangeRules { at: at("dir"), forget: RuleRemoval::Replaced, add: vec![rule()] },
        MetaRequest::ChangeRules { at: at("dir"), forget: RuleRemoval::All, add: vec![] },
        MetaRequest::ChangeRules {
            at: at("dir"),
            forget: RuleRemoval::These(vec![rule().pattern]),
            add: vec![],
        },
        MetaRequest::BeginMove { at: at("a/b"), handle, layout: LayoutSpec::default(), dry_run: true },
        MetaRequest::RenewMove { handle, copied: ByteLen(1 << 33), done: ByteLen(300), left: ByteLen(0) },
        MetaRequest::BeginCutover { handle },
        MetaRequest::CancelCutover { handle },
        MetaRequest::CommitMove {
            handle,
            seal_s: 1_800_000_000,
            size: ByteLen(300),
            lens: recorded(),
            copied: ByteLen(301),
        },
        MetaRequest::Paths { files: vec![FileId(77), FileId(78), FileId(79)] },
        MetaRequest::SyncNames,
        MetaRequest::ReadInline { handle: HandleId(7), offset: FileOffset(300), len: ByteLen(4096) },
        MetaRequest::WriteInline {
            handle: HandleId(7),
            offset: Some(FileOffset(300)),
            bytes: b"ab".to_vec(),
        },
        MetaRequest::WriteInline { handle: HandleId(7), offset: None, bytes: Vec::new() },
        MetaRequest::Grow { handle: HandleId(7) },
        MetaRequest::Grown {
            handle: HandleId(7),
            copied: WrittenLens { data: FileId(77).of_generation(1), lens: recorded() },
        },
        MetaRequest::AbortMove { at: at("a/b") },
        MetaRequest::Moves { after: FileId(300) },
        MetaRequest::DumpBegin,
        MetaRequest::DumpPage { number: 300, after: None },
        MetaRequest::DumpPage { number: 300, after: Some((2, b"key".to_vec())) },
        MetaRequest::DumpEnd { number: 300 },
        MetaRequest::Record { handle, written: summary.written },
        MetaRequest::Recorded { handle },
        MetaRequest::JudgeTarget { target: TargetId(2), claim: TargetClaim::Blank, format: true },
        MetaRequest::JudgeTarget { target: TargetId(2), claim: TargetClaim::Version1, format: false },
        MetaRequest::JudgeTarget { target: TargetId(2), claim, format: false },
        MetaRequest::AttachTarget {
            target: TargetId(2),
            uuid: TargetUuid(300),
            from: Some(token(5)),
            to: token(6),
            place: Some(TargetPlace { server: ServerId(300), class: "ssd".into(), settings: settings() }),
        },
        MetaRequest::AttachTarget {
            target: TargetId(2),
            uuid: TargetUuid(300),
            from: None,
            to: token(1),
            place: None,
        },
        MetaRequest::Targets,
        MetaRequest::ChangeTarget { target: TargetId(2), change: TargetChange::Add },
        MetaRequest::ChangeTarget { target: TargetId(2), change: TargetChange::Replace { data_lost: true } },
        MetaRequest::Lineage { files: vec![FileId(300), FileId(1)] },
        MetaRequest::RevokeKeys { keys: vec![KeyId(1), KeyId(u64::MAX)] },
        MetaRequest::RevokedKeys,
        MetaRequest::CreateReplica {
            handle,
            data_handle: HandleId(6),
            spec: replica_info().spec,
            layout: LayoutSpec::default(),
        },
        MetaRequest::CopyReplica { handle, sealed_s: 280 },
        MetaRequest::PublishReplica { handle },
        MetaRequest::OpenReplica { handle, data_handle: HandleId(6) },
        MetaRequest::BypassReplica { handle },
        MetaRequest::MarkReplica { handle, first: 3, count: 300 },
        MetaRequest::FenceFile { handle, kind: FenceKind::All },
        MetaRequest::ReleaseSeal { handle },
        MetaRequest::SynchronizedReplica { handle, epoch: 300, sealed_s: 280 },
        MetaRequest::DropReplica { at: at("a"), force: true },
        MetaRequest::Replica { at: at("a") },
        MetaRequest::Replicas { after: FileId(300) },
        MetaRequest::AbandonReplica { handle },
        MetaRequest::ReserveSpace { handle, cap: limited(), end: FileOffset(300) },
        MetaRequest::SetQuota { subject: QuotaSubject::User(1001), limits: quota().limits },
        MetaRequest::GetQuota { subject: QuotaSubject::TreeOf(at("a/b")) },
        MetaRequest::ListQuotas { after: Some(QuotaId::Tree(FileId(300))) },
        MetaRequest::CountTree(TreeStep { tree: FileId(300), dir: FileId(301), after: b"n".to_vec() }),
        MetaRequest::EndTreeCount { tree: FileId(300) },
        MetaRequest::LookUp { at: at("d") },
        MetaRequest::ClusterMap,
        MetaRequest::RegisterServer {
            name: "node3".into(),
            addresses: addresses(),
            targets: vec![TargetId(2), TargetId(300)],
            format: true,
            levels: Levels { earliest: Level(1), latest: Level(2) },
        },
        MetaRequest::ChangeServer { name: "node3".into(), change: ServerChange::Add },
        MetaRequest::ChangeServer { name: "node3".into(), change: ServerChange::Remove },
        MetaRequest::Levels,
        MetaRequest::RaiseLevel { to: Level(2) },
        MetaRequest::SetDomain {
            name: "node3".into(),
            change: DomainChange { host: None, rack: Some("r1".into()) },
        },
    ];
    support::check("meta_request.txt", &requests);
}

fn addresses() -> Vec<Address> {
    vec![Address::Unix("/run/weft/node3".into()), Address::Tcp("node3".into(), 7411)]
}

fn domain(host: &str, rack: &str) -> Domain {
    Domain { host: host.into(), rack: rack.into() }
}

fn map() -> ClusterMap {
    ClusterMap {
        domains: Vec::new(),
        name: "physics".into(),
        version: 1_796_000_000,
        servers: vec![ServerEntry { name: "node3".into(), addresses: addresses() }, ServerEntry::default()],
        targets: vec![TargetEntry { id: TargetId(300), server: ServerId(0), class: "ssd".into() }],
        metadata: ServerId(0),
    }
}

fn settings() -> TargetSettings {
    TargetSettings {
        capacity: Some(ByteLen(1 << 40)),
        reserve: Some(Reserve::Percent(5)),
        compression: "zstd:3".parse().ok(),
    }
}

fn quota() -> Quota {
    Quota {
        id: QuotaId::Tree(FileId(300)),
        path: b"a/b".to_vec(),
        limits: QuotaLimits { bytes: Some(ByteLen(1 << 40)), inodes: None },
        usage: QuotaUsage { bytes: ByteLen(300), inodes: 5 },
        is_counted: true,
    }
}

fn limited() -> Capability {
    Capability { limit: Some(WriteLimit { file_len: ByteLen(600), datafile_len: ByteLen(300) }), ..cap() }
}

#[test]
fn encoded_replies_match_the_golden_bytes() {
    let entry = |name: &str, attr: Option<Attr>| Entry {
        name: name.into(),
        file: FileId(77),
        kind: FileType::Regular,
        leased: attr.is_some(),
        attr,
    };
    let opened = Opened {
        attr: attr(false),
        layout: Some(layout()),
        cap: Some(cap()),
        created: true,
        must_truncate: false,
        cached_elsewhere: true,
        mapped_elsewhere: true,
        may_cache: false,
        must_recall: true,
        epoch: 10,
        recorded: recorded(),
        is_replica_used: true,
        inline_max: Some(ByteLen(4096)),
        bytes: Some(b"first".to_vec()),
    };
    let replica = replica_info();
    let mover = MoverState {
        since: Timestamp::from_parts(1_790_000_000, 123_456_789),
        reported: Timestamp::from_parts(-1, 1),
        done: ByteLen(1 << 33),
        left: ByteLen(300),
    };
    let state = |mover| MoveState {
        file: FileId(77),
        path: b"a/b".to_vec(),
        size: ByteLen(1 << 33),
        layout: layout(),
        safe: ByteLen(1 << 30),
        mover,
    };
    let moving = Moving {
        file: FileId(77),
        proof: PROOF,
        from: cap(),
        from_layout: layout(),
        to: Capability { file: FileId(77).of_generation(3), ..cap() },
        to_layout: layout(),
        copied: ByteLen(1 << 33),
        fence_s: 0,
        seal_s: 1_800_000_000,
        last: Some(cap()),
    };
    let scanned = ScannedInode {
        file: FileId(77),
        proof: PROOF,
        kind: FileType::Regular,
        size: ByteLen(5),
        is_size_valid: true,
        layout: Some(layout()),
        doomed: false,
        path: b"a/b".to_vec(),
        recorded: recorded(),
        epoch: 300,
        integrity: Some(Integrity::Crc32c),
        compression: "lz4".parse().ok(),
        is_inline: true,
    };
    let replies = [
        MetaReply::Attr(attr(false)),
        MetaReply::Attr(attr(true)),
        MetaReply::Opened(Box::new(opened.clone())),
        MetaReply::Truncate {
            file: FileId(77),
            layout: layout(),
            cap: cap(),
            epoch: 11,
            recorded: recorded(),
        },
        MetaReply::Capability(cap()),
        MetaReply::Done,
        MetaReply::Target(b"../x".to_vec()),
        MetaReply::Entries { entries: vec![entry("a", None), entry("b", Some(attr(true)))], more: true },
        MetaReply::Value(vec![0, 255]),
        MetaReply::Names(vec!["user.a".into(), "user.b".into()]),
        MetaReply::Layout { layout: Some(layout()), default: Some(spec()) },
        MetaReply::Locked,
        MetaReply::LockWait(12),
        MetaReply::Holder(Some(HeldLock {
            kind: LockKind::Shared,
            range: RANGE,
            pid: 9,
            is_of_open_file: true,
        })),
        MetaReply::Reclaimed {
            lost_opens: vec![HandleId(5)],
            lost_locks: vec![lost_lock()],
            uncached: vec![HandleId(6)],
        },
        MetaReply::Recalled(true),
        MetaReply::OpenFirst,
        MetaReply::StatFs { inodes: 1, total: ByteLen(2), free: ByteLen(3), quotas: vec![quota()] },
        MetaReply::Quotas { quotas: vec![quota()], more: true },
        MetaReply::TreeCounted { directories: vec![FileId(300)], after: Some(b"n".to_vec()), entries: 5 },
        MetaReply::TreeCounted { directories: vec![], after: None, entries: 0 },
        MetaReply::Capability(limited()),
        MetaReply::Events(vec![
            Event { number: 1, file: FileId(77), outdated: Outdated::Pages { start: 0, end: 4096 } },
            Event { number: 300, file: FileId(77), outdated: Outdated::Name },
            Event { number: 301, file: FileId(78), outdated: Outdated::Attributes },
        ]),
        MetaReply::Inodes(vec![scanned]),
        MetaReply::Checked(NamespaceReport {
            inodes: 1,
            entries: 2,
            problems: vec!["a: link count 3, should be 2".into()],
            mended: 1,
        }),
        MetaReply::Elsewhere { from: b"a".to_vec(), target: b"/etc".to_vec(), rest: b"passwd".to_vec() },
        MetaReply::Averages(vec![report(5)]),
        MetaReply::Failed(WireError::new(Errno::ENOENT, "a: no such file")),
        MetaReply::LockedFenced { cap: cap(), fence_s: 1_799_999_999 },
        MetaReply::Rules(vec![RuledDirectory {
            directory: FileId(78),
            path: b"a/dir".to_vec(),
            rules: vec![rule()],
        }]),
        MetaReply::Relocated { cap: cap(), layout: layout() },
        MetaReply::Moving(Box::new(moving)),
        MetaReply::Moves { moves: vec![state(None), state(Some(mover))], more: Some(FileId(300)) },
        MetaReply::Moves { moves: vec![], more: None },
        MetaReply::DumpBegun(Box::new(DumpBegun {
            number: 300,
            made: Timestamp(301),
            identity: b"id".to_vec(),
            inodes: 302,
        })),
        MetaReply::Dumped(vec![DumpedRow { table: 2, key: b"key".to_vec(), value: b"value".to_vec() }]),
        MetaReply::Dumped(vec![]),
        MetaReply::Recorded { data: FileId(77).of_generation(3), epoch: 300, lens: recorded() },
        MetaReply::TargetVerdict(TargetVerdict::Attach(token(5))),
        MetaReply::TargetVerdict(TargetVerdict::Join),
        MetaReply::Attached { capabilities_from_s: 1_790_000_000 },
        MetaReply::TargetVerdict(TargetVerdict::Refused(TargetRefusal::Foreign { found: ClusterId(299) })),
        MetaReply::TargetVerdict(TargetVerdict::Refused(TargetRefusal::Diverged)),
        MetaReply::Targets {
            cluster: ClusterId(299),
            targets: vec![TargetRecord {
                target: TargetId(2),
                state: TargetState::Draining,
                uuid: TargetUuid(300),
                attaches: 6,
                accepts: false,
            }],
        },
        MetaReply::Lineage(vec![true, false]),
        MetaReply::Revoked(Revoked { keys: vec![KeyId(1), KeyId(u64::MAX)] }),
        MetaReply::ReplicaOpened { info: Box::new(replica.clone()), opened: Box::new(opened.clone()) },
        MetaReply::Replicas { replicas: vec![replica], more: Some(FileId(300)) },
        MetaReply::InlineBytes { size: ByteLen(300), bytes: b"ab".to_vec() },
        MetaReply::InlineWritten { offset: FileOffset(300) },
        MetaReply::LookedUp { attr: attr(false), leased: true },
        MetaReply::ClusterMap(Box::new(map())),
        MetaReply::Registered { server: ServerId(300), level: Level(2) },
        MetaReply::Levels(ClusterLevels {
            cluster: Level(1),
            known: Levels { earliest: Level(1), latest: Level(2) },
            servers: vec![("node3".into(), Level(2))],
        }),
        MetaReply::of_map(
            &ClusterMap { domains: vec![Domain::default(), domain("node3", "r1")], ..map() },
            Level(2),
        ),
        MetaReply::Growing(Box::new(Growing {
            cap: cap(),
            layout: layout(),
            bytes: b"ab".to_vec(),
            must_sync: true,
        })),
        MetaReply::Paths(vec![KnownPath::Path(b"a/b".to_vec()), KnownPath::Unnamed, KnownPath::Hidden]),
    ];
    support::check("meta_reply.txt", &replies);
}
