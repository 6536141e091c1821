//! A metadata service under attack: well-formed messages with hostile contents, in any order, by two users.

use super::bodies::meta_request_seeds;
use crate::Outcome;
use crate::seeds::encoded;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use weft_core::{ByteLen, ClassLayout, ClassPart, FileId, FileOffset, ServerId, TargetId, TargetSettings};
use weft_env::sim::{Sim, SimEnv, SimpleDisk};
use weft_server::Hooks;
use weft_server::metadata::{Config, Removal, Service};
use weft_store::metadata::JournalOptions;
use weft_wire::cluster::{ServerEntry, TargetEntry};
use weft_wire::data::DatafileId;
use weft_wire::hello::{Identity, SessionId};
use weft_wire::meta::*;
use weft_wire::{ClusterMap, ClusterSecret};

/// Maximum number of requests per input. More would only be slower.
const CALLS_MAX: usize = 64;

/// Runs a sequence of requests. Each is a byte that selects the peer, then a `MetaCall`.
pub fn meta_service(data: &[u8]) -> Outcome {
    let mut calls = Vec::new();
    let mut rest = data;
    while let Some((&who, body)) = rest.split_first()
        && let Ok((call, left)) = postcard::take_from_bytes::<MetaCall>(body)
        && calls.len() < CALLS_MAX
    {
        calls.push((usize::from(who % 3), call));
        rest = left;
    }
    if calls.is_empty() {
        return Outcome::Refused;
    }
    let mut sim = Sim::with_seed(crc32fast::hash(data).into());
    let node = sim.node("metadata");
    sim.add_disk(&node, Path::new("/metadata"), Box::new(SimpleDisk::default()));
    let env = node.clone();
    sim.block_on(&node, async move { ask(&env, calls).await });
    Outcome::Accepted
}

async fn ask(env: &SimEnv, calls: Vec<(usize, MetaCall)>) {
    let secret = ClusterSecret::new(&[5; 32]);
    let service = Service::start_with(env.clone(), config(), secret, Hooks::none(), Gone).await;
    let service: Arc<Service<SimEnv>> = service.unwrap_or_else(|error| panic!("{error}"));
    let user = |uid| Identity { uid, gid: uid, groups: vec![] };
    // Two connections of one session, and one of another session.
    let peers = [(1, 0, 0), (1, 1, 0), (2, 0, 1000)]
        .map(|(session, slot, uid)| service.connected(SessionId(session), slot, user(uid), 100, false));
    for (who, call) in calls {
        let reply = service.call(&peers[who], call).await;
        let body = encoded(&reply);
        assert!(body.len() <= weft_wire::header::BODY_LEN_MAX as usize, "a reply of {} bytes", body.len());
        let back: MetaReply = postcard::from_bytes(&body).expect("a reply decodes");
        assert_eq!(back, reply);
    }
    // After any requests the namespace must be consistent.
    let request = MetaRequest::CheckNamespace { repair: false };
    let check = MetaCall { seq: 0, on_behalf: None, request };
    match service.call(&peers[0], check).await {
        MetaReply::Checked(report) => assert_eq!(report.problems, Vec::<String>::new()),
        other => panic!("the check failed: {other:?}"),
    }
    for peer in peers {
        service.disconnected(peer).await;
    }
    service.shutdown().await;
}

/// Data servers that remove any datafile as requested.
struct Gone;

impl Removal for Gone {
    async fn remove(&mut self, _: BTreeMap<ServerId, Vec<DatafileId>>) -> BTreeMap<ServerId, String> {
        BTreeMap::new()
    }
}

fn config() -> Config {
    let server = |n: u32| ServerEntry { name: format!("s{n}"), addresses: vec![] };
    let target =
        |n: u32, class: &str| TargetEntry { id: TargetId(n), server: ServerId(n), class: class.into() };
    let cluster = ClusterMap {
        domains: Vec::new(),
        name: "fuzz".into(),
        version: 0,
        servers: (0..3).map(server).collect(),
        targets: vec![target(0, "hdd"), target(1, "hdd"), target(2, "ssd")],
        metadata: ServerId(0),
    };
    let mut config = Config::new("/metadata".into(), cluster);
    config.format = true;
    config.options.without_registry = true;
    config.options.journal = JournalOptions {
        log_len: ByteLen::from_kib(256),
        cache_len: ByteLen::from_mib(4),
        ..JournalOptions::default()
    };
    config.options.root.uid = Some(0);
    // A small capacity, so that requests exhaust it.
    config.options.targets = [(TargetId(2), TargetSettings::with_capacity(ByteLen(100_000)))].into();
    config
}

pub fn meta_service_seeds() -> Vec<Vec<u8>> {
    let at = |path: &str| InodePath::from_root(path, true);
    let flags = OpenFlags { read: true, write: true, create: true, ..OpenFlags::default() };
    let open = |path: &str, handle| MetaRequest::Open {
        at: at(path),
        flags,
        mode: 0o666,
        handle: HandleId(handle),
        layout: LayoutSpec::default(),
        cache: handle % 2 == 0,
        ranks: None,
    };
    let lock = |handle, start, end, wait| MetaRequest::Lock {
        handle: HandleId(handle),
        space: LockSpace::Record,
        owner: LockOwner::Process(0),
        kind: LockKind::Exclusive,
        range: LockRange { start, end },
        wait,
        ticket: 0,
        pid: 1,
    };
    let rename = |from: &str, to: &str, exchange| MetaRequest::Rename {
        from: at(from),
        to: at(to),
        no_replace: false,
        exchange,
    };
    let session = [
        (0, MetaRequest::Mkdir { at: at("d"), mode: 0o777 }),
        (0, MetaRequest::Mkdir { at: at("d/e"), mode: 0o777 }),
        (2, open("d/e/f", 1)),
        (0, open("d/e/f", 2)),
        (0, lock(2, 0, 100, false)),
        (2, lock(1, 50, u64::MAX, true)),
        (1, MetaRequest::Link { from: at("d/e/f"), to: at("d/g") }),
        (0, rename("d/e", "h", false)),
        (0, rename("h", "d", true)),
        (0, rename("d", "d/h/x", false)),
        (0, MetaRequest::Symlink { at: at("s"), target: b"d/../h".to_vec() }),
        (2, MetaRequest::Stat { at: at("s/g") }),
        (0, MetaRequest::LookUp { at: at("s") }),
        (0, MetaRequest::Truncate { at: at(""), handle: Some(HandleId(2)), size: ByteLen(5) }),
        (0, MetaRequest::Unlink { at: at("h/g") }),
        (0, MetaRequest::List { at: at(""), after: vec![], limit: u32::MAX, with_attr: true, lease: false }),
        (0, MetaRequest::Rmdir { at: at("h") }),
        (2, MetaRequest::Close { handle: HandleId(1), summary: WriteSummary::default() }),
        (0, MetaRequest::Record { handle: HandleId(2), written: WrittenLens::default() }),
        (0, MetaRequest::Recorded { handle: HandleId(2) }),
        (0, MetaRequest::ScanInodes { after: FileId(0), limit: u32::MAX }),
    ];
    let part = |end, class: &str| ClassPart { end, stripes: vec![(class.into(), ByteLen(4096))] };
    let by_class = ClassLayout::new(vec![part(Some(FileOffset(65_536)), "ssd"), part(None, "hdd")]).ok();
    let layout = LayoutSpec { by_class, ..LayoutSpec::default() };
    let rule = Rule { pattern: "**/f{n}".parse().expect("a pattern"), layout: layout.clone() };
    let session = session.into_iter().chain([
        (0, MetaRequest::Mkdir { at: at("r"), mode: 0o777 }),
        (0, MetaRequest::ChangeRules { at: at("r"), forget: RuleRemoval::Replaced, add: vec![rule] }),
        (0, open("r/f1", 4)),
        (0, MetaRequest::Mknod { at: at("r/f2"), kind: FileType::Regular, mode: 0o644, rdev: 0 }),
        (0, MetaRequest::SetLayout { at: at("r/f2"), spec: layout }),
        (0, MetaRequest::Unlink { at: at("r/f1") }),
        (2, MetaRequest::Rules { at: at("r") }),
        (0, MetaRequest::ChangeRules { at: at("r"), forget: RuleRemoval::All, add: vec![] }),
    ]);
    let mut seq = 0;
    let whole: Vec<u8> = session
        .into_iter()
        .flat_map(|(who, request)| {
            seq += 1;
            let call = encoded(&MetaCall { seq, on_behalf: None, request });
            [vec![who], call].concat()
        })
        .collect();
    // One request of each kind alone, and all of them in sequence.
    let single: Vec<_> = meta_request_seeds().into_iter().map(|call| [vec![0], call].concat()).collect();
    let mut seeds = vec![whole, single[..single.len() - 1].concat()];
    seeds.extend(single);
    seeds.push(vec![9]);
    seeds
}
