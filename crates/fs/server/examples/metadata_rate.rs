//! Measures the metadata service alone: clients in threads of this process, each with one outstanding request, without
//! a network. Prints rates by tenths of the work, and the number of syncs for the changes.
//!
//! ```text
//! cargo run --release --example metadata_rate -- [FILES [CLIENTS [DIRECTORY [RULES]]]]
//! ```
//! RULES is the number of rules of the root directory; the last one matches.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use weft_core::{ServerId, TargetId};
use weft_env::real::{RealEnv, block_on};
use weft_server::Hooks;
use weft_server::metadata::{Config, ConnectionContext, Removal, Service};
use weft_wire::cluster::{ServerEntry, TargetEntry};
use weft_wire::data::DatafileId;
use weft_wire::hello::{Identity, SessionId};
use weft_wire::meta::*;
use weft_wire::{ClusterMap, ClusterSecret};

/// Data servers that accept every request.
struct Nowhere;

impl Removal for Nowhere {
    async fn remove(&mut self, _: BTreeMap<ServerId, Vec<DatafileId>>) -> BTreeMap<ServerId, String> {
        BTreeMap::new()
    }
}

struct Client {
    service: Arc<Service<RealEnv>>,
    ctx: ConnectionContext,
    seq: u64,
    number: u64,
}

impl Client {
    fn ask(&self, seq: u64, request: MetaRequest) -> MetaReply {
        let reply = block_on(self.service.call(&self.ctx, MetaCall { seq, on_behalf: None, request }));
        if let MetaReply::Failed(error) = &reply {
            panic!("client {}: {error}", self.number);
        }
        reply
    }

    fn change(&mut self, request: MetaRequest) {
        self.seq += 1;
        self.ask(self.seq, request);
    }

    fn inode_path(&self, file: u64) -> InodePath {
        let path = format!("d/client{}.file{file:07}", self.number).into_bytes();
        InodePath::from_root(path, true)
    }

    fn create(&mut self, file: u64) {
        let flags = OpenFlags { read: true, write: true, create: true, ..OpenFlags::default() };
        let (handle, layout) = (HandleId(file + 1), LayoutSpec::default());
        let at = self.inode_path(file);
        self.change(MetaRequest::Open { at, flags, mode: 0o644, handle, layout, cache: false, ranks: None });
        self.ask(0, MetaRequest::Close { handle, summary: WriteSummary::default() });
    }
}

/// Runs `body` for each file in each client's thread; prints the rates of ten parts of the work.
fn phase(name: &str, clients: &mut [Client], files: u64, body: fn(&mut Client, u64)) {
    let before = block_on(clients[0].service.status());
    let (each, start) = (files / clients.len() as u64, Instant::now());
    let mut parts: Vec<f64> = Vec::new();
    for part in 0..10 {
        let begun = Instant::now();
        let range = each * part / 10..each * (part + 1) / 10;
        let done = (range.end - range.start) * clients.len() as u64;
        std::thread::scope(|scope| {
            for client in &mut *clients {
                let range = range.clone();
                scope.spawn(move || range.for_each(|file| body(client, file)));
            }
        });
        parts.push(done as f64 / begun.elapsed().as_secs_f64());
    }
    let after = block_on(clients[0].service.status());
    let rate = (each * clients.len() as u64) as f64 / start.elapsed().as_secs_f64();
    let parts: Vec<String> = parts.iter().map(|rate| format!("{:.0}", rate / 1000.0)).collect();
    println!(
        "{name:<8} {rate:>9.0}/s   thousands per second, by tenths: {}   {} changes in {} syncs",
        parts.join(" "),
        after.mutations - before.mutations,
        after.commits - before.commits,
    );
}

fn list(client: &Client) -> usize {
    let (mut count, mut after) = (0, Vec::new());
    loop {
        let at = InodePath::from_root(b"d".to_vec(), true);
        let request = MetaRequest::List { at, after, limit: LIST_LIMIT_MAX, with_attr: true, lease: false };
        let MetaReply::Entries { entries, more } = client.ask(0, request) else { panic!("no entries") };
        count += entries.len();
        match entries.into_iter().last() {
            Some(last) if more => after = last.name,
            _ => return count,
        }
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let files = args.next().map_or(20_000, |n| n.parse().expect("a number of files"));
    let clients: u64 = args.next().map_or(4, |n| n.parse().expect("a number of clients"));
    let place = args.next();
    let rules: u64 = args.next().map_or(0, |n| n.parse().expect("a number of rules"));
    let made = tempfile::tempdir_in(place.map_or_else(std::env::temp_dir, PathBuf::from));
    let dir = made.expect("a directory");
    let server = |n: u32| ServerEntry { name: format!("s{n}"), addresses: vec![] };
    let target = |n: u32| TargetEntry { id: TargetId(n), server: ServerId(n), class: "ssd".into() };
    let cluster = ClusterMap {
        domains: Vec::new(),
        name: "rate".into(),
        version: 0,
        servers: (0..4).map(server).collect(),
        targets: (0..4).map(target).collect(),
        metadata: ServerId(0),
    };
    let secret = ClusterSecret::new(&[1; 32]);
    let mut config = Config::new(dir.path().into(), cluster);
    config.format = true;
    config.options.without_registry = true;
    let started = Service::start_with(RealEnv::new(), config, secret, Hooks::none(), Nowhere);
    let service = block_on(started).expect("a service");
    let mut clients: Vec<Client> = (0..clients)
        .map(|number| {
            let identity = Identity { uid: 0, gid: 0, groups: vec![] };
            let ctx = service.connected(SessionId(number.into()), 0, identity, 1, false);
            Client { service: service.clone(), ctx, seq: 0, number }
        })
        .collect();
    clients[0].change(MetaRequest::Mkdir { at: InodePath::from_root(b"d".to_vec(), true), mode: 0o755 });
    if rules > 0 {
        let rule = |number: u64| {
            let other = format!("/run{{n}}/out{number}.*.h5");
            let pattern = if number + 1 == rules { "*.file*" } else { &other };
            let layout = LayoutSpec { stripe_count: Some(2), ..LayoutSpec::default() };
            Rule { pattern: pattern.parse().expect("a pattern"), layout }
        };
        let at = InodePath::from_root(Vec::new(), true);
        let add = (0..rules).map(rule).collect();
        clients[0].change(MetaRequest::ChangeRules { at, forget: RuleRemoval::All, add });
    }
    phase("create", &mut clients, files, Client::create);
    phase("stat", &mut clients, files, |client, file| {
        client.ask(0, MetaRequest::Stat { at: client.inode_path(file) });
    });
    let begun = Instant::now();
    let count = list(&clients[0]);
    println!(
        "list     {:>9.0}/s   {count} entries with attributes",
        count as f64 / begun.elapsed().as_secs_f64()
    );
    phase("remove", &mut clients, files, |client, file| {
        let at = client.inode_path(file);
        client.change(MetaRequest::Unlink { at });
    });
    block_on(service.shutdown());
}
